//! Commits that are applied together.

use super::apply::{Row, Rows};
use crate::db::Position;
use crate::model::Entity;
use crate::query::KeyRange;
use crate::store::pages::contains;

/// The most source rows that are applied together, and the size of their contributions.
pub(super) const WINDOW_ROWS: usize = 1_000;
pub(super) const WINDOW_BYTES: usize = 4 << 20;
/// The commits without a change of the source table after which the checkpoint is written. Fewer
/// would repeat forever if the target is the source: a checkpoint is a commit.
pub(super) const WINDOW_COMMITS: usize = 10_000;

/// Commits that are applied together: first the events, then the rows.
#[derive(Default)]
pub(super) struct Window {
    pub(super) rows: Rows,
    pub(super) events: Vec<Event>,
    pub(super) end: Option<Position>,
    pub(super) commits: usize,
}

/// A change of a range.
pub(super) struct Event {
    pub(super) what: What,
    pub(super) range: KeyRange,
    pub(super) at: Position,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// All rows were deleted.
    Deleted,
    /// Rows that the source no longer has have expired.
    Expired,
    /// The source may have any rows.
    Imported,
}

impl Window {
    pub(super) fn push(&mut self, what: What, range: KeyRange, at: Position) {
        self.events.push(Event { what, range, at });
    }

    /// Deletes the rows of a range that were written before a time in ticks.
    pub(super) fn end_rows(&mut self, at: Position, range: &KeyRange, before: u64) {
        for ((pk, rk), row) in &mut self.rows {
            let is_old = row.at.seq().ticks() < before;
            if is_old && contains(range, &Entity::new(&**pk, &**rk)) {
                *row = Row { at, folded: Vec::new() };
            }
        }
    }
}
