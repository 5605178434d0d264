//! Models gates in the oracle. A closed gate refuses writes to a span of keys. If the span is
//! offline, the gate also refuses reads. Refused requests are answered `ServerBusy`.
//!
//! Invariants
//! * a write into a closed span is refused before its condition is evaluated (`oracle`);
//! * a read that would show a row of an offline span is refused;
//! * any other read of a table with an offline span may be refused, because the oracle does not
//!   know which rows the engine's query plan reads;
//! * gates are part of the state after each commit: they survive or are lost with the commit.

use crate::error::Error;
use crate::lsm::GateMode;

use super::counts::Event;
use super::row::Row;
use super::runner::{Outcome, Runner, line};
use super::runner_state::Held;
use super::step::Scan;

impl Runner {
    /// Returns whether gates refuse a read of `table` that shows these rows, now or at a snapshot.
    pub(super) fn held(&self, table: &str, at: Option<&String>, rows: &[Row]) -> Held {
        let keys = rows.iter().map(|row| (row.pk.as_str(), row.rk.as_str()));
        self.held_keys(table, at, keys)
    }

    /// As [`held`](Self::held), for a read of all these keys.
    pub(super) fn held_keys<'k>(
        &self,
        table: &str,
        at: Option<&String>,
        mut keys: impl Iterator<Item = (&'k str, &'k str)>,
    ) -> Held {
        let Some(now) = self.oracle.tables.get(&table.to_lowercase()) else { return Held::No };
        let offline = now.gates.iter().filter(|(_, mode)| **mode == GateMode::Offline);
        let offline: Vec<&Scan> = offline.map(|(span, _)| span).collect();
        let pinned = at.and_then(|at| self.snapshots.get(at)).map(|(pinned, _)| pinned);
        // Gates belong to the table that has this name now, so they do not apply to a snapshot that
        // was taken when the name denoted another table, or none.
        if offline.is_empty() || !pinned.is_none_or(|at| self.engine.is_of_today(table, at)) {
            return Held::No;
        }
        match keys.any(|(pk, rk)| offline.iter().any(|span| span.covers(pk, rk))) {
            true => Held::Must,
            false => Held::May,
        }
    }

    /// Checks the error of a refused read.
    pub(super) fn read_refused(&mut self, error: &Error, no_table: bool, held: Held) -> Outcome {
        if no_table && error.code() == "TableNotFound" {
            return line(error.code());
        }
        if held != Held::No && error.code() == "ServerBusy" {
            self.counts.note(Event::HeldBack);
            return line(error.code());
        }
        self.excuse(Err(error.clone()))
    }
}
