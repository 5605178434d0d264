//! Applies changes whose rows the feed does not list. The rows are found in the index, and in the
//! source if it has more than the feed shows.

use std::mem;

use super::View;
use super::apply::{Advance, Row, Rows, apply};
use super::index::{self, Key, source_key};
use super::mark::Runner;
use super::window::{Event, WINDOW_BYTES, WINDOW_ROWS, What};
use crate::error::{Code, Result};
use crate::model::Entity;
use crate::query::KeyRange;
use crate::store::pages::{self, PAGE_MAX, Side, contains, filter};

/// States of rows that are not applied yet.
struct Batch<'b> {
    view: &'b View<'b>,
    runner: &'b Runner<'b>,
    advance: Advance,
    rows: Rows,
    bytes: usize,
}

/// The keys of the rows of a range of the source, in order.
struct Keys<'k> {
    source: Side<'k>,
    rows: pages::Rows<'k>,
    next: Option<Key>,
}

impl View<'_> {
    /// Applies an event, but not to the rows of `later`, which have states of later commits.
    pub(super) fn replay(
        &self,
        runner: &Runner<'_>,
        event: &Event,
        later: &Rows,
        advance: Advance,
    ) -> Result<()> {
        let state = self.source.view()?;
        let source = Side { store: state.store(), table: &self.table };
        let mut batch = Batch { view: self, runner, advance, rows: Rows::new(), bytes: 0 };
        if event.what == What::Imported {
            self.add_present(source, event, later, &mut batch)?;
        }
        let mut keys = Keys::new(source, &event.range);
        let index = Side { store: self.target, table: &self.index };
        for row in index.rows(&index::filter(&event.range), &[], PAGE_MAX) {
            let Some(key) = source_key(&row?) else { continue };
            if !is_in(&event.range, &key) || later.contains_key(&key) {
                continue;
            }
            if event.what == What::Deleted || !keys.has(&key)? {
                batch.add(key, Row { at: event.at, folded: Vec::new() })?;
            }
        }
        batch.flush()
    }

    /// Adds the source rows of an event. Rows that were written later are in the feed: so the end
    /// of a table to which rows are appended is reached.
    fn add_present(
        &self,
        source: Side<'_>,
        event: &Event,
        later: &Rows,
        batch: &mut Batch<'_>,
    ) -> Result<()> {
        for row in source.rows(&filter(&event.range), &[], PAGE_MAX) {
            let Some(row) = unless_dropped(row)? else { break };
            let key = (row.partition_key().to_owned(), row.row_key().to_owned());
            let is_later =
                row.timestamp().is_some_and(|time| time.ticks() > event.at.seq().ticks());
            if contains(&event.range, &row) && !is_later && !later.contains_key(&key) {
                batch.add(key, Row { at: event.at, folded: self.fold(&row)? })?;
            }
        }
        Ok(())
    }
}

fn is_in(range: &KeyRange, (pk, rk): &Key) -> bool {
    contains(range, &Entity::new(&**pk, &**rk))
}

/// Returns `None` if the source's table does not exist.
fn unless_dropped<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(error) if error.code() == Code::TableNotFound.as_str() => Ok(None),
        read => read.map(Some),
    }
}

impl Batch<'_> {
    fn add(&mut self, key: Key, row: Row) -> Result<()> {
        self.bytes += row.folded.iter().map(Entity::size_at_most).sum::<usize>();
        self.rows.insert(key, row);
        if self.rows.len() < WINDOW_ROWS && self.bytes < WINDOW_BYTES {
            return Ok(());
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        // A power cut of the source must not revert what the view has.
        self.view.source.settle()?;
        self.bytes = 0;
        apply(self.runner, self.view.tables(), &mem::take(&mut self.rows), self.advance)
    }
}

impl<'k> Keys<'k> {
    fn new(source: Side<'k>, range: &KeyRange) -> Self {
        let rows = source.rows(&filter(range), &["PartitionKey".to_owned()], PAGE_MAX);
        Self { source, rows, next: None }
    }

    /// Whether the source has a row. Calls with ascending keys read each page once.
    fn has(&mut self, key: &Key) -> Result<bool> {
        while self.next.as_ref().is_none_or(|next| next < key) {
            let row = self.rows.next().transpose();
            let Some(row) = unless_dropped(row)?.flatten() else { break };
            self.next = Some((row.partition_key().to_owned(), row.row_key().to_owned()));
        }
        if self.next.as_ref() == Some(key) {
            return Ok(true);
        }
        // The page may be of before a write.
        let Side { store, table } = self.source;
        let found = unless_dropped(store.get(table, &key.0, &key.1, &["PartitionKey"]))?;
        Ok(found.flatten().is_some())
    }
}
