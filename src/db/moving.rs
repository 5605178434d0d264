//! Moving a key range out: into a new database of its own, and from there into another.
//!
//! Out: 1. a new database is made in an empty directory; 2. the rows of the range, as of a snapshot, become its table
//! files; 3. its table is created, last, so that what a crash leaves of it has no table; 4. it is closed.
//!
//! In: 1. the other database is opened; 2. its rows become files of the table (`lsm::background::ingest`), at once or not at all.
//!
//! Not here: holding writes back meanwhile ([`Db::gate`]), comparing (`cli`).

use std::path::Path;

use super::Db;
use crate::error::{Error, ErrorKind, Result};
use crate::format::key::user_key;
use crate::format::names::TableId;
use crate::format::span::{Span, whole_table};
use crate::lsm::{Gate, Ingested, SnapshotGuard, require_empty, require_outside};
use crate::model::Entity;
use crate::options::{Background, Options};
use crate::query::KeyRange;
use crate::table::Table;

/// What [`Db::export_range`] or [`Db::import_range`] moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moved {
    /// Entities.
    pub entities: u64,
    /// Table files that hold them now.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
}

impl Db {
    /// Copies the entities of a key range, as of now, into a new database in the new or empty directory `path`, under the
    /// table's name and with their ETags and Timestamps. It is an ordinary database; [`import_range`](Self::import_range)
    /// takes it into another. Reads each row of the range once and writes it once, whole tables as table files.
    ///
    /// A [gate](Self::gate) does not hold it back: close one first, so that nothing is written behind it.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use rowstone::{Db, Entity, GateMode, KeyRange, fs::MemFs};
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
    /// `NotFound`; `AlreadyExists` for a directory that is not empty; `Corruption`, `Io`, `StorageFull`. What is in
    /// `path` then is no database, or one without the table: remove it.
    pub fn export_range(
        &self,
        table: &str,
        range: KeyRange,
        path: impl AsRef<Path>,
    ) -> Result<Moved> {
        self.export_range_with(table, range, path, |_| ())
    }

    /// As [`export_range`](Self::export_range); calls `progress` now and then with the number of entities so far.
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
        let (path, entry) = (path.as_ref(), self.catalog.table(table)?);
        require_empty(&*self.engine.env().fs, path)?;
        require_outside(path, &self.engine.env().dir)?;
        let snapshot = SnapshotGuard::take(&self.engine);
        let seed = self.engine.maintenance().next_seed();
        let target = self.beside().create_if_missing(true).seed(seed).open(path)?;
        let span = range.span(entry.gate.table);
        let gate = Gate::new(target.catalog.next_id());
        let mut rows = self.engine.scan(&span, Some(snapshot.seq))?;
        let whole = whole_table(gate.table);
        let moved = target.engine.maintenance().ingest(&mut rows, &gate, &whole, &mut progress)?;
        target.create_table(&entry.name)?;
        target.close()?;
        Ok(moved.into())
    }

    /// Takes the entities of a database that [`export_range`](Self::export_range) made in `path`, or of any other, into
    /// the table `table`, which is created if need be, with their ETags and Timestamps. Of several tables there the one
    /// with the same name is taken. All of them become visible at once, and no snapshot from before sees them.
    ///
    /// The table must have no entity between the first and the last of them, nor a deleted one that a snapshot still
    /// reads. The other database must not be open.
    ///
    /// # Errors
    /// `AlreadyExists` if there are entities; `Busy` while a snapshot reads deleted ones there, or others keep writing;
    /// `NotFound` for a path without a database; `InvalidInput` if it has several tables and none of this name; `Locked`;
    /// `Corruption`, `Io`, `StorageFull`. The table is as it was then.
    pub fn import_range(&self, path: impl AsRef<Path>, table: &str) -> Result<Moved> {
        self.import_range_with(path, table, |_| ())
    }

    /// As [`import_range`](Self::import_range); calls `progress` now and then with the number of entities so far.
    ///
    /// # Errors
    /// As [`import_range`](Self::import_range).
    pub fn import_range_with(
        &self,
        path: impl AsRef<Path>,
        table: &str,
        mut progress: impl FnMut(u64),
    ) -> Result<Moved> {
        let source = self.beside().create_if_missing(false).open(path)?;
        let from = the_table(&source, table)?;
        let moved = self.take_in((&source, &from), KeyRange::all(), table, &mut progress)?;
        drop(from);
        source.close()?;
        Ok(moved)
    }

    /// Takes the entities of `range` of a table of another database into the table `into`.
    pub(super) fn take_in(
        &self,
        (source, from): (&Db, &Table),
        range: KeyRange,
        into: &str,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Moved> {
        let into = self.catalog.table_or_create(into)?;
        let within = range.span(from.entry.gate.table);
        let Some(span) = bounds(from, range, into.gate.table)? else { return Ok(Moved::default()) };
        let mut rows = source.engine.scan(&within, None)?;
        Ok(self.engine.maintenance().ingest(&mut rows, &into.gate, &span, progress)?.into())
    }

    /// Options for another database that is opened for a moment.
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

/// The table of this name, or the only one.
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

/// From the first to the last key in `range` of `table`, as keys of the table `into`; `None` if there is none.
fn bounds(table: &Table, range: KeyRange, into: TableId) -> Result<Option<Span>> {
    let first = table.scan(range.clone()).top(1).into_iter().next().transpose()?;
    let last = table.scan(range).reverse().top(1).into_iter().next().transpose()?;
    Ok(first.zip(last).map(|(first, last)| {
        let key = |e: &Entity| user_key(into, e.partition_key(), e.row_key());
        Span::inclusive(&key(&first), &key(&last))
    }))
}
