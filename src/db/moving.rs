//! Moves a key range between databases: exports it into a new database, and imports a database into
//! a table.
//!
//! An export writes the rows of the range, as of a snapshot, to table files of a new database. It
//! creates the table last, so that an interrupted export has no table.
//!
//! An import opens the other database. Its rows become files of the target table atomically
//! (`lsm::background::ingest`).
//!
//! [`Db::gate`] blocks writes during a move; `cli` compares the copies.

use std::path::Path;

use super::Db;
use crate::error::{Error, ErrorKind, Result};
use crate::format::key::user_key;
use crate::format::names::{FileName, TableId};
use crate::format::span::{Span, whole_table};
use crate::lsm::{Gate, Ingested, OnRows, SnapshotGuard, require_empty, require_outside};
use crate::model::Entity;
use crate::options::{Background, Options};
use crate::query::KeyRange;
use crate::table::Table;

/// The amount of data moved by [`Db::export_range`] or [`Db::import_range`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moved {
    /// The number of entities.
    pub entities: u64,
    /// The number of table files that contain the entities now.
    pub files: u64,
    /// The total size of the table files that contain the entities, in bytes.
    pub bytes: u64,
}

impl Db {
    /// Copies the current entities of a key range into a new database in the new or empty directory
    /// `path`. The table keeps its name, and entities keep their ETags and Timestamps. The result
    /// is an ordinary database; [`import_range`](Self::import_range) adds its entities to another
    /// database. Each row of the range is read once, and written once, directly to table files.
    ///
    /// A [gate](Self::gate) does not block the export. To move a range, close a gate first, so that
    /// the copy does not miss later writes.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use rowstone::{Db, Entity, KeyRange, fs::MemFs, gates::GateMode};
    /// let fs = std::sync::Arc::new(MemFs::new());
    /// let open = |path: &str| Db::options().fs(fs.clone()).open(path);
    /// let (db, other) = (open("db")?, open("other")?);
    /// let parts = db.create_table("parts")?;
    /// let etag = parts.insert(Entity::new("bolts", "m4x20"))?;
    /// let bolts = KeyRange::partition("bolts");
    /// db.gate("parts", bolts.clone(), GateMode::ReadOnly)?;
    /// db.export_range("parts", bolts, "moving")?;
    /// assert_eq!(other.import_range("moving", "parts")?.entities, 1);
    /// assert_eq!(other.table("parts")?.get("bolts", "m4x20")?.unwrap().etag(), Some(etag));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound`; `AlreadyExists` for a directory that is not empty; `Corruption`, `Io`,
    /// `StorageFull`. After an error the files in `path` are removed where possible; if some
    /// remain, remove the directory.
    pub fn export_range(
        &self,
        table: &str,
        range: KeyRange,
        path: impl AsRef<Path>,
    ) -> Result<Moved> {
        self.export_range_with(table, range, path, |_| ())
    }

    /// As [`export_range`](Self::export_range); calls `progress` periodically with the number of
    /// entities copied so far.
    ///
    /// # Errors
    /// As [`export_range`](Self::export_range).
    pub fn export_range_with(
        &self,
        table: &str,
        range: KeyRange,
        path: impl AsRef<Path>,
        mut progress: impl FnMut(u64),
    ) -> Result<Moved> {
        self.export_range_while(table, range, path.as_ref(), &mut |rows| {
            progress(rows);
            Ok(())
        })
    }

    /// Like [`export_range_with`](Self::export_range_with); an error of `progress` ends the export.
    pub(crate) fn export_range_while(
        &self,
        table: &str,
        range: KeyRange,
        path: &Path,
        progress: OnRows<'_>,
    ) -> Result<Moved> {
        let entry = self.catalog.table(table)?;
        require_empty(&*self.engine.env().fs, path)?;
        require_outside(path, &self.engine.env().dir)?;
        let snapshot = SnapshotGuard::take(&self.engine);
        let seed = self.engine.maintenance().next_seed();
        let target = self.beside().create_if_missing(true).seed(seed).open(path)?;
        let span = range.span(entry.gate.table);
        let gate = Gate::new(target.catalog.next_id());
        let whole = whole_table(gate.table);
        let mut fill = || {
            let mut rows = self.engine.scan(&span, Some(snapshot.seq))?;
            let moved = target.engine.maintenance().ingest(&mut rows, &gate, &whole, progress)?;
            target.create_table(&entry.name)?;
            Ok(moved.into())
        };
        let filled = fill();
        let closed = target.close();
        let result = filled.and_then(|moved| closed.map(|()| moved));
        if result.is_err() {
            self.discard(path);
        }
        result
    }

    /// Imports the entities of the database in `path`, which need not come from
    /// [`export_range`](Self::export_range), into the table `table`. Creates the table if it does
    /// not exist. Entities keep their ETags and Timestamps. If the other database has several
    /// tables, the one with the same name is imported. All entities become visible at the same
    /// time, and no earlier snapshot sees them.
    ///
    /// `table` must have no entity between the first and the last imported key, nor a deleted one
    /// that a snapshot still reads. The other database must not be open.
    ///
    /// # Errors
    /// `AlreadyExists` if `table` has entities between these keys; `Busy` while a snapshot reads
    /// deleted entities between them, or while concurrent writes do not pause; `ServerBusy` if a
    /// [gate](Self::gate) is closed between them, in either mode; `NotFound` for a
    /// path without a database; `InvalidInput` if it has several tables and none of this name;
    /// `Locked`; `Corruption`, `Io`, `StorageFull`. After an error the table has its previous
    /// contents.
    pub fn import_range(&self, path: impl AsRef<Path>, table: &str) -> Result<Moved> {
        self.import_range_with(path, table, |_| ())
    }

    /// As [`import_range`](Self::import_range); calls `progress` periodically with the number of
    /// entities imported so far.
    ///
    /// # Errors
    /// As [`import_range`](Self::import_range).
    pub fn import_range_with(
        &self,
        path: impl AsRef<Path>,
        table: &str,
        mut progress: impl FnMut(u64),
    ) -> Result<Moved> {
        self.import_range_while(path.as_ref(), table, &mut |rows| {
            progress(rows);
            Ok(())
        })
    }

    /// Like [`import_range_with`](Self::import_range_with); an error of `progress` ends the import.
    pub(crate) fn import_range_while(
        &self,
        path: &Path,
        table: &str,
        progress: OnRows<'_>,
    ) -> Result<Moved> {
        let source = self.beside().create_if_missing(false).open(path)?;
        let from = the_table(&source, table)?;
        let moved = self.take_in((&source, &from), KeyRange::all(), table, progress)?;
        drop(from);
        source.close()?;
        Ok(moved)
    }

    /// Imports the entities of `range` of the table `from`, which belongs to another database, into
    /// the table `into`.
    pub(super) fn take_in(
        &self,
        (source, from): (&Db, &Table),
        range: KeyRange,
        into: &str,
        progress: OnRows<'_>,
    ) -> Result<Moved> {
        let into = self.catalog.table_or_create(into)?;
        let within = range.span(from.entry.gate.table);
        let Some(span) = bounds(from, range, into.gate.table)? else { return Ok(Moved::default()) };
        let mut rows = source.engine.scan(&within, None)?;
        Ok(self.engine.maintenance().ingest(&mut rows, &into.gate, &span, progress)?.into())
    }

    /// Removes the files of a failed export from `dir`, which was empty before the export. Ignores
    /// errors, because the next export into `dir` is refused if files remain.
    fn discard(&self, dir: &Path) {
        let fs = &self.engine.env().fs;
        for name in fs.list(dir).unwrap_or_default() {
            if FileName::parse(&name).is_some() {
                drop(fs.remove(&dir.join(name)));
            }
        }
    }

    /// Returns options for opening another database temporarily.
    fn beside(&self) -> Options {
        let mut options = self.engine.env().options.clone().background(Background::Manual);
        options.targets = None;
        options
    }
}

impl From<Ingested> for Moved {
    fn from(ingested: Ingested) -> Self {
        Self { entities: ingested.rows, files: ingested.files, bytes: ingested.bytes }
    }
}

/// Returns the table of this name or, if there is none, the only table.
fn the_table(db: &Db, name: &str) -> Result<Table> {
    match (db.table(name), db.tables()?.as_slice()) {
        (Ok(table), _) => Ok(table),
        (Err(_), [only]) => db.table(only),
        (Err(_), names) => {
            let problem = format!("there are {} tables and none is named {name}", names.len());
            Err(Error::new(ErrorKind::InvalidInput, problem))
        }
    }
}

/// Returns the span from the first to the last key of `table` in `range`, as a span of the table
/// `into`; `None` if the range has no key.
fn bounds(table: &Table, range: KeyRange, into: TableId) -> Result<Option<Span>> {
    let first = table.scan(range.clone()).top(1).into_iter().next().transpose()?;
    let last = table.scan(range).reverse().top(1).into_iter().next().transpose()?;
    Ok(first.zip(last).map(|(first, last)| {
        let key = |e: &Entity| user_key(into, e.partition_key(), e.row_key());
        Span::inclusive(&key(&first), &key(&last))
    }))
}
