//! Reads commits and folds their rows.

use super::apply::{Row, Rows};
use super::ranges::{Event, What};
use super::{View, WINDOW_BYTES, WINDOW_COMMITS, WINDOW_ROWS, sums};
use crate::db::{Change, Position};
use crate::error::Result;
use crate::model::Entity;
use crate::query::KeyRange;
use crate::store::pages::contains;
use crate::store::source::Feed;

/// Commits that are applied together: first the events, then the rows.
#[derive(Default)]
pub(super) struct Window {
    pub(super) rows: Rows,
    pub(super) events: Vec<Event>,
    pub(super) end: Option<Position>,
    pub(super) commits: usize,
}

impl View<'_> {
    /// Reads commits until `newest`, and folds their rows.
    pub(super) fn window(
        &self,
        feed: &mut dyn Feed,
        reached: Position,
        newest: Position,
    ) -> Result<Window> {
        let (mut window, mut at, mut bytes) = (Window::default(), reached, 0);
        while at < newest
            && window.rows.len() < WINDOW_ROWS
            && bytes < WINDOW_BYTES
            && window.commits < WINDOW_COMMITS
        {
            let commit = match feed.next() {
                // The next call returns the error again.
                Err(_) if window.end.is_some() => break,
                commit => commit?,
            };
            let Some(commit) = commit else { break };
            at = commit.position;
            (window.end, window.commits) = (Some(at), window.commits + 1);
            for change in commit.changes {
                if change.table().eq_ignore_ascii_case(&self.table) {
                    bytes += self.add(&mut window, at, change)?;
                }
            }
        }
        Ok(window)
    }

    /// Adds a change to a window. Returns the size of its contributions.
    fn add(&self, window: &mut Window, at: Position, change: Change) -> Result<usize> {
        let (key, folded) = match change {
            Change::Put { entity, .. } => {
                let key = (entity.partition_key().to_owned(), entity.row_key().to_owned());
                (key, self.fold(&entity)?)
            }
            Change::Deleted { partition_key, row_key, .. } => {
                ((partition_key, row_key), Vec::new())
            }
            Change::RangeDeleted { range, .. } => {
                window.end_rows(at, &range, u64::MAX);
                window.push(What::Deleted, range, at);
                return Ok(0);
            }
            Change::TableDropped { .. } => {
                window.end_rows(at, &KeyRange::all(), u64::MAX);
                window.push(What::Deleted, KeyRange::all(), at);
                return Ok(0);
            }
            Change::Expired { before, .. } => {
                window.end_rows(at, &KeyRange::all(), before.ticks());
                // One comparison finds the rows of all.
                window.events.retain(|event| event.what != What::Expired);
                window.push(What::Expired, KeyRange::all(), at);
                return Ok(0);
            }
            Change::Imported { range, .. } => {
                window.rows.retain(|(pk, rk), _| !contains(&range, &Entity::new(&**pk, &**rk)));
                window.push(What::Imported, range, at);
                return Ok(0);
            }
            Change::TableCreated { .. } => return Ok(0),
        };
        let bytes = folded.iter().map(Entity::size_at_most).sum();
        window.rows.insert(key, Row { at, folded });
        Ok(bytes)
    }

    pub(super) fn fold(&self, entity: &Entity) -> Result<Vec<Entity>> {
        let folded = (self.fold)(entity)?;
        let key = (entity.partition_key().to_owned(), entity.row_key().to_owned());
        sums::check(&key, &folded)?;
        Ok(folded)
    }
}

impl Window {
    fn push(&mut self, what: What, range: KeyRange, at: Position) {
        self.events.push(Event { what, range, at });
    }

    /// Deletes the rows of a range that were written before a time in ticks.
    fn end_rows(&mut self, at: Position, range: &KeyRange, before: u64) {
        for ((pk, rk), row) in &mut self.rows {
            let is_old = row.at.seq().ticks() < before;
            if is_old && contains(range, &Entity::new(&**pk, &**rk)) {
                *row = Row { at, folded: Vec::new() };
            }
        }
    }
}
