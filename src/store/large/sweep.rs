//! Deletes chunks that are not in use.

use std::time::Duration;

use super::rows::{Values, WriteKey};
use crate::error::{ErrorKind, Result};
use crate::model::{ETag, Entity, GROUP_OPERATIONS_MAX, ValueRef};
use crate::store::pages::{PAGE_MAX, Side};
use crate::store::table_store::Condition;
use crate::table::EntityGroup;

/// The rows of a write.
struct Rows {
    partition_key: String,
    key: WriteKey,
    mark: Option<Mark>,
    /// The RowKeys of the chunks.
    chunks: Vec<String>,
    /// Whether a manifest before the rows had this write.
    is_current: bool,
}

struct Mark {
    etag: ETag,
    /// The time of the last write of the mark, in ticks.
    at: u64,
}

impl Values<'_> {
    pub(super) fn sweep(&self, grace: Duration) -> Result<u64> {
        let grace = u64::try_from(grace.as_nanos() / 100).unwrap_or(u64::MAX);
        let until = self.store.now()?.ticks().saturating_sub(grace);
        let side = Side { store: self.store, table: &self.table };
        let select = ["PartitionKey", "RowKey", "Write"].map(str::to_owned);
        let (mut rows, mut manifest, mut count) = (None::<Rows>, None, 0);
        for row in side.rows("", &select, PAGE_MAX) {
            let row = row?;
            let found = WriteKey::of(row.row_key());
            let is_next = |rows: &mut Rows| {
                let found = found.as_ref().map(|(key, _)| key);
                rows.partition_key != row.partition_key() || Some(&rows.key) != found
            };
            if let Some(rows) = rows.take_if(is_next) {
                count += self.sweep_rows(&rows, until)?;
            }
            match found {
                Some((key, is_chunk)) => {
                    let is_current =
                        manifest == Some((row.partition_key().to_owned(), key.clone()));
                    rows.get_or_insert_with(|| Rows {
                        partition_key: row.partition_key().to_owned(),
                        key,
                        mark: None,
                        chunks: Vec::new(),
                        is_current,
                    })
                    .add(&row, is_chunk);
                }
                None => manifest = current(&row).or(manifest),
            }
        }
        Ok(count + rows.map_or(Ok(0), |rows| self.sweep_rows(&rows, until))?)
    }

    /// Deletes the rows of a write that is not in use, and whose mark is not after `until`.
    fn sweep_rows(&self, rows: &Rows, until: u64) -> Result<u64> {
        let is_marked = || self.mark(&rows.partition_key, &rows.key).map(|mark| mark.is_some());
        match &rows.mark {
            None if rows.is_current || is_marked()? => return Ok(0),
            None => {}
            Some(mark) if mark.at > until => return Ok(0),
            Some(mark) => {
                let condition = Condition::Match(mark.etag.clone());
                let row = rows.key.mark();
                match self.store.delete(&self.table, &rows.partition_key, &row, &condition) {
                    Err(error) if is_changed(error.kind()) => return Ok(0),
                    done => done?,
                }
            }
        }
        // Between two looks without a mark the chunks are not current, so they were not before
        // the first one either: chunks that were replaced in between have a mark.
        if self.is_current(rows)? || is_marked()? {
            return Ok(0);
        }
        self.delete_chunks(rows)?;
        Ok(rows.chunks.len() as u64)
    }

    fn is_current(&self, rows: &Rows) -> Result<bool> {
        let (pk, row) = (&rows.partition_key, &rows.key.row);
        let manifest = self.store.get(&self.table, pk, row, &["Write"])?;
        Ok(manifest.and_then(|row| current(&row)).is_some_and(|(_, key)| key == rows.key))
    }

    fn delete_chunks(&self, rows: &Rows) -> Result<()> {
        for chunks in rows.chunks.chunks(GROUP_OPERATIONS_MAX) {
            let mut group = EntityGroup::new(&*rows.partition_key);
            for row in chunks {
                group.delete(row)?;
            }
            match self.store.commit(&self.table, &group) {
                // Another sweep is deleting them.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    for row in chunks {
                        self.store.delete_if_exists(&self.table, &rows.partition_key, row)?;
                    }
                }
                done => drop(done?),
            }
        }
        Ok(())
    }
}

impl Rows {
    fn add(&mut self, row: &Entity, is_chunk: bool) {
        if is_chunk {
            self.chunks.push(row.row_key().to_owned());
        } else if let (Some(etag), Some(at)) = (row.etag(), row.timestamp()) {
            self.mark = Some(Mark { etag, at: at.ticks() });
        }
    }
}

/// Returns the partition and the current write of a manifest.
fn current(manifest: &Entity) -> Option<(String, WriteKey)> {
    let Some(ValueRef::String(id)) = manifest.value("Write") else { return None };
    let key = WriteKey { row: manifest.row_key().to_owned(), id: id.to_owned() };
    Some((manifest.partition_key().to_owned(), key))
}

fn is_changed(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::PreconditionFailed | ErrorKind::NotFound)
}
