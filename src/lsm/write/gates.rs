//! Gates: key spans whose writes, or reads too, are held back for a time, each answered `ServerBusy`.
//!
//! 1. Closing a gate is a commit. Under the commit lock it gets its Seq and counts for writers from then on.
//! 2. It counts for readers once it is published: until then its commit group can still fail.
//! 3. When the commit is answered, everything before it is published and nothing behind it got into the span.
//! 4. Opening one is a commit too, and the gate stays closed until that is published.
//!
//! Invariants
//! * without gates a read pays for one load of a counter;
//! * what removes whole spans (a dropped table, a deleted range, expiry) passes: that is how a move ends.
//!
//! Not here: which gates there are after opening (`table::catalog`), the drop of a table (`batch::Gate`).

use std::fmt;
use std::sync::Arc;

use crate::error::{Code, Error, Result};
use crate::format::span::Span;
use crate::model::Seq;
use crate::sync::{ArcSwap, AtomicU64, Ordering};

/// What a closed gate holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum GateMode {
    /// Writes.
    ReadOnly,
    /// Writes and reads.
    Offline,
}

/// A closed gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpanGate {
    /// Two gates of a database never share one.
    pub(crate) id: u64,
    pub(crate) span: Span,
    pub(crate) mode: GateMode,
}

/// The closed gates of an open database.
pub(crate) struct Gates {
    /// Each with the commit that closed it.
    closed: ArcSwap<Vec<(SpanGate, Seq)>>,
    count: AtomicU64,
}

impl GateMode {
    /// The mode as it is written: `ReadOnly` or `Offline`.
    pub fn as_str(self) -> &'static str {
        match self {
            GateMode::ReadOnly => "ReadOnly",
            GateMode::Offline => "Offline",
        }
    }

    /// The mode of this name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        [GateMode::ReadOnly, GateMode::Offline].into_iter().find(|mode| mode.as_str() == name)
    }
}

impl fmt::Display for GateMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Default for Gates {
    fn default() -> Self {
        Self { closed: ArcSwap::from_pointee(Vec::new()), count: AtomicU64::new(0) }
    }
}

impl Gates {
    /// Closes `gate` with the commit `seq`. One with its id stays until [`settle`](Self::settle): the commit may fail.
    /// Requires the commit lock, but at opening.
    pub(crate) fn close(&self, gate: &SpanGate, seq: Seq) {
        self.change(|gates| gates.push((gate.clone(), seq)));
    }

    /// Removes all gates with this id but the last. Requires: the commit that closed it is published.
    pub(crate) fn remove_superseded(&self, id: u64) {
        self.change(|gates| {
            let last = gates.iter().rposition(|(gate, _)| gate.id == id);
            let mut at = 0;
            gates.retain(|(gate, _)| {
                at += 1;
                gate.id != id || Some(at - 1) == last
            });
        });
    }

    /// Opens the gate again. Requires: the commit that does is published.
    pub(crate) fn lift(&self, id: u64) {
        self.change(|gates| gates.retain(|(gate, _)| gate.id != id));
    }

    fn change(&self, change: impl Fn(&mut Vec<(SpanGate, Seq)>)) {
        self.closed.rcu(|gates| {
            let mut gates = gates.to_vec();
            change(&mut gates);
            Arc::new(gates)
        });
        self.count.store(self.closed.load().len() as u64, Ordering::Release);
    }

    /// To be asked by a read at `published`; `touches` says whether it reads anything of a span.
    ///
    /// # Errors
    /// `ServerBusy` if any of that is offline.
    #[inline]
    pub(in crate::lsm) fn admit_read(
        &self,
        published: impl FnOnce() -> Seq,
        touches: impl Fn(&Span) -> bool,
    ) -> Result<()> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        match self.is_offline(published(), touches) {
            true => Err(Error::refused(Code::ServerBusy)),
            false => Ok(()),
        }
    }

    /// True if a gate that counts for readers takes a span offline that is touched.
    fn is_offline(&self, published: Seq, touches: impl Fn(&Span) -> bool) -> bool {
        let gates = self.closed.load();
        let counts = |gate: &SpanGate, since| gate.mode == GateMode::Offline && since <= published;
        gates.iter().any(|(gate, since)| counts(gate, *since) && touches(&gate.span))
    }

    /// The commit that closed a gate to any of `keys`.
    pub(in crate::lsm) fn closed_to<'k>(
        &self,
        mut keys: impl Iterator<Item = &'k [u8]>,
    ) -> Option<Seq> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let gates = self.closed.load();
        let gate = |key| gates.iter().find(|(gate, _)| gate.span.contains(key));
        keys.find_map(gate).map(|(_, seq)| *seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_that_is_replaced_holds_until_the_new_one_is_published() {
        let gates = Gates::default();
        let gate = |mode| SpanGate { id: 1, span: Span::new(b"a", Some(b"c")), mode };
        let holds = |published| gates.is_offline(Seq(published), |span| span.contains(b"b"));
        gates.close(&gate(GateMode::Offline), Seq(5));
        assert!(!holds(4) && holds(5));
        gates.close(&gate(GateMode::Offline), Seq(9));
        assert!(holds(8));
        gates.remove_superseded(1);
        assert!(!holds(8) && holds(9));
        gates.close(&gate(GateMode::ReadOnly), Seq(12));
        assert!(holds(12));
        gates.remove_superseded(1);
        assert!(!holds(12));
        gates.lift(1);
        assert_eq!(gates.closed_to(std::iter::once(&b"b"[..])), None);
    }
}
