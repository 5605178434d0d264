//! Follows the feed of the source, or compares all of its rows.

use super::apply::{Advance, Row, Rows, apply};
use super::mark::{Change as GroupChange, Mark, Place, Runner};
use super::sums::{self, RESERVED};
use super::window::{Event, WINDOW_BYTES, WINDOW_COMMITS, WINDOW_ROWS, What, Window};
use super::{Running, View};
use crate::db::{Change, Position};
use crate::error::{Error, ErrorKind, Result};
use crate::model::Entity;
use crate::query::KeyRange;
use crate::store::pages::{PAGE_MAX, Side, contains};
use crate::store::source::Feed;

impl View<'_> {
    /// Applies the commits until `newest`. Returns false if they are no longer kept.
    pub(super) fn follow(&self, running: &mut Running<'_>, newest: Position) -> Result<bool> {
        let Some(mut feed) = running.feed.take() else { return Ok(false) };
        loop {
            let window = match self.window(&mut *feed, running.reached, newest) {
                Err(error) if error.kind() == ErrorKind::ChangesLost => {
                    self.check(running.reached, self.source.view()?.position())?;
                    self.save(&running.runner, None)?;
                    return Ok(false);
                }
                window => window?,
            };
            let Some(end) = window.end else { break };
            self.apply(running, window, end)?;
        }
        running.feed = Some(feed);
        Ok(true)
    }

    /// Refuses a position of another history, and one after the newest commit.
    pub(super) fn check(&self, position: Position, newest: Position) -> Result<()> {
        if position.has_history_of(newest) && position <= newest {
            return Ok(());
        }
        let text = format!(
            "the source was restored, repaired or set back, or is another one: the view in table \
             '{}' is at {position}, and the newest commit is {newest}; rebuild the view",
            self.view
        );
        Err(Error::new(ErrorKind::ChangesLost, text))
    }

    fn save(&self, runner: &Runner<'_>, position: Option<Position>) -> Result<()> {
        let change = |_: &Mark| Ok(((), GroupChange { operations: Vec::new(), position }));
        runner.commit(self.tables().checkpoint(), change)
    }

    /// Compares all source rows. The view then has the commits before the comparison, and perhaps
    /// some later ones, which the feed repeats.
    pub(super) fn compare_all(&self, running: &mut Running<'_>) -> Result<()> {
        // If the comparison is stopped, the next runner must compare, too.
        self.save(&running.runner, None)?;
        let state = self.source.view()?;
        let position = state.position();
        // Opened first, so that it can have the changes during the comparison.
        let feed = state.changes(position).map_err(|error| match error.kind() {
            ErrorKind::ChangesLost => error.during("open the source with `keep_changes`"),
            _ => error,
        })?;
        // A partition without contributions may be at a position of before the source was set back.
        let side = Side { store: self.target, table: &self.view };
        let keys = ["PartitionKey", "RowKey"].map(str::to_owned);
        for row in side.rows(&format!("RowKey eq '{RESERVED}'"), &keys, PAGE_MAX) {
            let (row, position) = (row?, Some(position));
            let place = Place(&self.view, row.partition_key(), RESERVED);
            let change = |_: &Mark| Ok(((), GroupChange { operations: Vec::new(), position }));
            running.runner.commit(place, change)?;
        }
        let all = Event { what: What::Imported, range: KeyRange::all(), at: position };
        self.replay(&running.runner, &all, &Rows::new(), Advance::Set(position))?;
        self.save(&running.runner, Some(position))?;
        (running.feed, running.reached, running.commits) = (Some(feed), position, 0);
        Ok(())
    }

    /// Applies a window, and writes the checkpoint if the view has changed.
    fn apply(&self, running: &mut Running<'_>, window: Window, end: Position) -> Result<()> {
        let Window { rows, events, commits, .. } = window;
        let is_change = !rows.is_empty() || !events.is_empty();
        for event in events {
            self.replay(&running.runner, &event, &rows, Advance::No)?;
        }
        apply(&running.runner, self.tables(), &rows, Advance::To(end))?;
        (running.reached, running.commits) = (end, running.commits + commits);
        if is_change || running.commits >= WINDOW_COMMITS {
            self.save(&running.runner, Some(end))?;
            running.commits = 0;
        }
        Ok(())
    }

    /// Reads commits until `newest`, and folds their rows.
    fn window(&self, feed: &mut dyn Feed, reached: Position, newest: Position) -> Result<Window> {
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
