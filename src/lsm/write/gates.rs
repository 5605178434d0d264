//! Gates: key spans in which writes, or writes and reads, are temporarily refused with
//! `ServerBusy`.
//!
//! Invariants
//! * if no gate is closed, a read only loads one counter;
//! * a commit that removes whole spans (by a table drop, a range deletion or an expiry) is not
//!   refused by a gate, because moving a range ends with such a commit. An import adds rows, and is
//!   refused.
//!
//! Not here: closing gates when opening (`table::catalog`), the gate of a table (`batch::Gate`).

use std::fmt;
use std::sync::Arc;

use crate::error::{Code, Error, Result};
use crate::format::span::Span;
use crate::model::Seq;
use crate::named::named;
use crate::sync::{ArcSwap, AtomicU64, Ordering};

named! {
    /// The operations that a closed gate refuses.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
    pub enum GateMode {
        /// Refuses writes.
        #[default]
        ReadOnly "ReadOnly",
        /// Refuses writes and reads.
        Offline "Offline",
    }

    /// Returns the name of the mode, `ReadOnly` or `Offline`.
    pub fn as_str;
    const ALL;
}

/// A closed gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpanGate {
    /// The number of the gate, unique in its database.
    pub(crate) id: u64,
    pub(crate) span: Span,
    pub(crate) mode: GateMode,
}

/// The closed gates of an open database.
///
/// 1. Closing a gate is a commit. It gets its Seq under the commit lock, and the gate refuses
///    writers from then on.
/// 2. The gate refuses readers once the commit is published; before that, its commit group can
///    still fail.
/// 3. When the closing commit returns, all earlier commits are published, and no later commit has
///    written to the span.
/// 4. Opening a gate is a commit too. The gate stays closed until that commit is published.
pub(crate) struct Gates {
    /// The gates, each with the Seq of the commit that closed it.
    closed: ArcSwap<Vec<(SpanGate, Seq)>>,
    count: AtomicU64,
}

impl GateMode {
    /// Returns the mode with this name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == name)
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
    /// Closes `gate` with the commit `seq`. An earlier gate with the same id is kept until
    /// [`remove_superseded`](Self::remove_superseded), because the commit may fail. Requires the
    /// commit lock, except while opening.
    pub(crate) fn close(&self, gate: &SpanGate, seq: Seq) {
        self.change(|gates| gates.push((gate.clone(), seq)));
    }

    /// Removes all gates with this id except the last one, whose commit must be published.
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

    /// Opens the gate. The commit that opens it must be published.
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

    /// Admits a read at `published`. `touches` returns whether the read touches the given span.
    ///
    /// # Errors
    /// `ServerBusy` if the read touches an offline span.
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

    /// True if an offline gate, closed at or before `published`, covers a span that the read
    /// touches.
    fn is_offline(&self, published: Seq, touches: impl Fn(&Span) -> bool) -> bool {
        let gates = self.closed.load();
        let counts = |gate: &SpanGate, since| gate.mode == GateMode::Offline && since <= published;
        gates.iter().any(|(gate, since)| counts(gate, *since) && touches(&gate.span))
    }

    /// If a closed gate covers any of `keys`, returns the commit that closed the gate.
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

    /// If a closed gate overlaps `span`, returns the commit that closed the gate.
    pub(in crate::lsm) fn closed_over(&self, span: &Span) -> Option<Seq> {
        let gates = self.closed.load();
        gates.iter().find(|(gate, _)| gate.span.overlaps(span)).map(|(_, seq)| *seq)
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
