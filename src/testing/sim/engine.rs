//! Wraps the engine for the simulation. The engine runs on a memory file system that may fail, lose
//! its power or get damaged. Writes, reads and results have the types of the oracle.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use crate::clock::ManualClock;
use crate::db::Db;
use crate::error::Result;
use crate::executor::{self, Worker};
use crate::format::span::whole_table;
use crate::fs::{FaultFs, FaultKind, Fs, MemFs};
use crate::lsm::{Batch, Compaction, Flush, GateMode, TableChange, least_limit};
use crate::model::{DateTime, ETag, EntityEncoder, Seq};
use crate::options::{Background, Durability, MergePrice, OnFull, Options, Targets};
use crate::query::{Entities, KeyRange, Query};
use crate::table::{EntityGroup, Operation, RowView, Snapshot, Table, Ticket};

use super::generate::RING;
use super::oracle::{self, Gates, Tables};
use super::power::{End, PowerFs};
use super::row::{Row, key, ticks};
use super::step::{Config, Lane, Scan, Verb, Write};

/// Directory of the database.
pub const PATH: &str = "db";
/// The size of a key range, so small that ranges are split and merged every few hundred rows.
const RANGE_BYTES: u64 = 24 << 10;
/// The size of a new log, so small that logs are often replaced.
pub(super) const LOG_ALLOCATE_BYTES: u64 = 4 << 10;
/// The price of a merge that is done to speed up reads, so low that one or two queries justify it.
const MERGE_PRICE: MergePrice = MergePrice { rows: 20, bytes_per_row: 1 << 10 };
/// The bytes of logs that are kept for the change feed: only a few logs.
const KEEP_CHANGES_BYTES: u64 = 64 << 10;
/// Each opening of this number uses smaller memtables, so that replay switches memtables inside a
/// log.
const SMALL_OPENING: u64 = 3;
/// 2024-01-01, in ticks of 100 ns since 1601.
pub const START: u64 = 133_485_408_000_000_000;

/// A snapshot, with handles of the tables that existed when it was taken. A table may have been
/// dropped since.
pub(super) struct Pinned {
    snapshot: Snapshot,
    tables: BTreeMap<String, Table>,
}

/// A file system, a clock, and a database that may be open.
pub struct Engine {
    /// The memory file system that holds the database's files.
    pub fs: MemFs,
    /// The clock of the database; only the simulation advances it.
    pub clock: Arc<ManualClock>,
    /// The options for the next opening.
    pub config: Config,
    /// A layer above `power` that injects failing operations.
    pub(super) faults: FaultFs,
    /// A layer below `faults` that simulates a kill or a power cut at a chosen operation.
    pub(super) power: PowerFs,
    wrap: Option<Wrap>,
    db: Option<Db>,
    /// The number of openings so far. It is added to the seed, so that each opening generates other
    /// ids.
    openings: u64,
    flush: Option<Flush>,
    compaction: Option<Compaction>,
}

/// Creates an additional file system layer between the engine and the memory file system.
pub type Wrap = fn(MemFs) -> Arc<dyn Fs>;

impl Engine {
    /// Creates an engine over an empty memory file system, at [`START`]. It is not open yet.
    pub fn new(config: Config) -> Self {
        Self::on(MemFs::new(), Arc::new(ManualClock::new(START)), config)
    }

    /// Creates an engine over the contents of `fs`. It is not open yet.
    pub fn on(fs: MemFs, clock: Arc<ManualClock>, config: Config) -> Self {
        let power = PowerFs::new(Arc::new(fs.clone()), fs.clone());
        let faults = FaultFs::new(Arc::new(power.clone()));
        let (flush, compaction) = (None, None);
        let (wrap, db, openings) = (None, None, 0);
        Self { fs, clock, config, faults, power, wrap, db, openings, flush, compaction }
    }

    /// Inserts `wrap` between the engine and the memory file system, from the next opening on.
    pub fn wrap(&mut self, wrap: Wrap) {
        self.wrap = Some(wrap);
        self.restack();
    }

    /// Creates a new [`PowerFs`] over the memory file system, and puts the armed faults above it.
    fn restack(&mut self) {
        let fs = self.fs.clone();
        let inner: Arc<dyn Fs> = match self.wrap {
            Some(wrap) => wrap(fs.clone()),
            None => Arc::new(fs.clone()),
        };
        self.power = PowerFs::new(inner, fs);
        self.faults = self.faults.over(Arc::new(self.power.clone()));
    }

    /// Opens the database through the layers that inject faults and power cuts. A database that is
    /// open is dropped first.
    pub fn open(&mut self) -> Result<()> {
        self.open_on(Arc::new(self.faults.clone()))
    }

    /// Opens the database through another file system over the same bytes.
    pub fn open_on(&mut self, fs: Arc<dyn Fs>) -> Result<()> {
        self.let_go();
        let seed = self.config.seed.wrapping_add(self.openings);
        self.openings += 1;
        let mut config = self.config.clone();
        if config.cap.is_none() && self.openings.is_multiple_of(SMALL_OPENING) {
            config.memtable_bytes /= 4;
        }
        let mut options = options(&config, &self.clock).seed(seed).fs(fs);
        options.max_disk = self.config.cap.map(|more| least_limit(&options) + more);
        if self.config.ring && self.config.cap.is_some() {
            options.on_full = OnFull::DropOldest(RING.map(str::to_owned).to_vec());
        }
        self.db = Some(options.open(Path::new(PATH))?);
        Ok(())
    }

    /// Whether the database is open, that is, was opened successfully and not closed or abandoned
    /// since.
    pub(super) fn is_open(&self) -> bool {
        self.db.is_some()
    }

    /// Returns the number of logs that the first log of this session will remove.
    pub(super) fn unused_logs(&self) -> usize {
        self.db().engine().writer().unused_logs()
    }

    /// Returns the last Seq in use. After an opening it is that of the last commit, while
    /// [`published`](Self::published) includes the Seqs that are reserved.
    pub(super) fn last_seq(&self) -> u64 {
        self.db().engine().writer().last_seq().ticks()
    }

    /// Whether the open database has not made the commits durable that it recovered.
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.db().engine().writer().is_unconfirmed()
    }

    /// Returns the open database.
    ///
    /// # Panics
    /// If it is not open.
    pub fn db(&self) -> &Db {
        self.db.as_ref().expect("the database is open")
    }

    /// Closes the database if it is open, and abandons a flush or compaction in progress.
    ///
    /// # Errors
    /// Errors of [`Db::close`]; the database is not open afterwards.
    pub fn close(&mut self) -> Result<()> {
        (self.flush, self.compaction) = (None, None);
        self.db.take().map_or(Ok(()), |db| db.close())
    }

    /// Simulates a kill: drops the database without closing it, and continues with the contents of
    /// `fs`.
    pub(super) fn abandon(&mut self, fs: MemFs) {
        // Cuts the power first, so that dropping the handle writes nothing. Such writes would only
        // cost time.
        drop(self.power.cut(End::Kill));
        self.let_go();
        self.fs = fs;
        self.restack();
    }

    fn let_go(&mut self) {
        (self.flush, self.compaction, self.db) = (None, None, None);
    }

    /// Returns the number of injected faults that occurred, without the kinds of faults that the
    /// engine cannot notice.
    pub(super) fn faults_met(&self) -> u64 {
        let seen = FaultKind::ALL.into_iter().filter(|kind| !kind.is_hidden());
        seen.map(|kind| self.faults.delivered_of(kind)).sum()
    }

    /// Returns the Seq of the last published commit, in ticks.
    pub(super) fn published(&self) -> u64 {
        self.db().engine().reader().published().ticks()
    }

    /// Drops a table. On success also returns the answers to a read and a write through a handle
    /// that was opened before the drop.
    pub(super) fn drop_table(&self, name: &str) -> (Result<()>, Vec<Result<()>>) {
        let handle = self.db().table(name);
        let dropped = self.db().delete_table(name);
        let answers = match (&dropped, handle) {
            (Ok(()), Ok(handle)) => {
                // The write is a delete, because a delete adds no shape (the property names and
                // types of a row), which would change the numbers of later shapes.
                vec![handle.get("a", "r00").map(drop), handle.delete("a", "r00")]
            }
            _ => Vec::new(),
        };
        (dropped, answers)
    }

    pub(super) fn drop_ranges(&self, table: &str, scans: &[Scan]) -> Result<()> {
        let ranges: Vec<_> = scans.iter().map(range).collect();
        self.db().table(table)?.delete_ranges(&ranges)
    }

    /// Expires the rows with tags below `below`.
    pub(super) fn expire(&self, table: &str, below: u64) -> Result<()> {
        let gate = Arc::clone(&self.db().table(table)?.entry.gate);
        let change = TableChange::Expired(whole_table(gate.table), Seq(below));
        self.db().engine().commit(&Batch::of_change(&gate, change), Durability::Sync).map(drop)
    }

    /// Submits a group of writes as one commit, without waiting for the commit.
    pub(super) fn submit(
        &self,
        table: &str,
        writes: &[Write],
        etags: &[Option<u64>],
        durability: Option<Durability>,
    ) -> Result<Ticket> {
        let operations = writes.iter().zip(etags).map(|(write, etag)| operation(write, *etag));
        let group = EntityGroup::from_operations(operations)?;
        let table = self.db().table(table)?;
        match durability {
            Some(durability) => table.with_durability(durability).commit_async(group),
            None => table.commit_async(group),
        }
    }

    /// Runs one background step of a lane (a kind of background work). Returns false if there was
    /// nothing to do.
    pub(super) fn step(&self, lane: Lane) -> bool {
        let lane = match lane {
            Lane::Log => executor::Lane::Log,
            Lane::Flush => executor::Lane::Flush,
            Lane::Compact => executor::Lane::Compact,
        };
        self.db().engine().maintenance().step(lane) == executor::Step::Worked
    }

    /// Writes the files of a flush. Returns false if there is nothing to flush.
    pub(super) fn begin_flush(&mut self) -> Result<bool> {
        self.end_flush()?;
        self.flush = self.db().engine().maintenance().begin_flush()?;
        Ok(self.flush.is_some())
    }

    /// Installs the files of [`Engine::begin_flush`]. Returns false if no flush was begun.
    pub(super) fn end_flush(&mut self) -> Result<bool> {
        let Some(flush) = self.flush.take() else { return Ok(false) };
        self.db().engine().maintenance().finish_flush(flush).map(|()| true)
    }

    /// Whether a flush was begun but not ended, so that no other flush may run.
    pub(super) fn is_flushing(&self) -> bool {
        self.flush.is_some()
    }

    /// Writes the files of a compaction. Returns false if there is nothing to do.
    pub(super) fn begin_compaction(&mut self) -> Result<bool> {
        self.end_compaction()?;
        self.compaction = self.db().engine().maintenance().begin_compaction()?;
        Ok(self.compaction.is_some())
    }

    /// Installs the files of [`Engine::begin_compaction`]. Returns `None` if none was begun, and
    /// false if the installation was declined.
    pub(super) fn end_compaction(&mut self) -> Result<Option<bool>> {
        let Some(compaction) = self.compaction.take() else { return Ok(None) };
        self.db().engine().maintenance().finish_compaction(&compaction).map(Some)
    }

    /// Returns the query for a scan, now or at a snapshot. Ignores the scan's page size.
    fn query(&self, table: &str, scan: &Scan, at: Option<&Pinned>) -> Result<Query> {
        let (table, at) = self.table_at(table, at)?;
        let query = match at {
            None => table.scan(range(scan)),
            Some(at) => table.at(at).scan(range(scan)),
        };
        Ok(query.select_some(scan.select.as_deref()))
    }

    /// Returns an iterator over the visible rows. Ignores the scan's page size and snapshot.
    pub(super) fn iterate(&self, table: &str, scan: &Scan) -> Result<Entities> {
        let query = self.query(table, scan, None)?;
        Ok(query.top(scan.top.unwrap_or(usize::MAX)).into_iter())
    }

    /// Executes one write. Returns its tag, or `None` for a delete.
    pub(super) fn write(
        &self,
        table: &str,
        write: &Write,
        etag: Option<u64>,
        durability: Option<Durability>,
    ) -> Result<Option<u64>> {
        let table = self.db().table(table)?;
        if let Some(durability) = durability {
            let group = EntityGroup::from_operations(vec![operation(write, etag)])?;
            return Ok(table.commit_with(group, durability)?.swap_remove(0).map(ticks));
        }
        let etag = etag.map(tag);
        let entity = write.entity();
        let written = match (write.verb, etag) {
            (Verb::Insert, _) if write.rk.len().is_multiple_of(2) => {
                let mut properties: Vec<_> = entity.properties().collect();
                let mut encoder = EntityEncoder::default();
                table.insert_properties(&mut encoder, &write.pk, &write.rk, &mut properties)?
            }
            (Verb::Insert, _) => table.insert(entity)?,
            (Verb::Upsert, _) => table.upsert(entity)?,
            (Verb::UpsertMerge, _) => table.upsert_merge(entity)?,
            (Verb::Replace, None) => table.replace(entity)?,
            (Verb::Replace, Some(etag)) => table.replace_if(entity, etag)?,
            (Verb::Merge, None) => table.merge(entity)?,
            (Verb::Merge, Some(etag)) => table.merge_if(entity, etag)?,
            (Verb::Delete, None) => return table.delete(&write.pk, &write.rk).map(|()| None),
            (Verb::Delete, Some(etag)) => {
                return table.delete_if(&write.pk, &write.rk, etag).map(|()| None);
            }
        };
        Ok(Some(ticks(written)))
    }

    /// Commits several writes together. Returns the tag of each, or `None` for a delete.
    pub(super) fn group(
        &self,
        table: &str,
        writes: &[Write],
        etags: &[Option<u64>],
        durability: Option<Durability>,
    ) -> Result<Vec<Option<u64>>> {
        let operations = writes.iter().zip(etags).map(|(write, etag)| operation(write, *etag));
        let group = EntityGroup::from_operations(operations)?;
        let table = self.db().table(table)?;
        let etags = match durability {
            Some(durability) => table.commit_with(group, durability)?,
            None => table.commit(group)?,
        };
        Ok(etags.into_iter().map(|etag| etag.map(ticks)).collect())
    }

    /// Reads one row, now or at a snapshot.
    pub(super) fn get(
        &self,
        table: &str,
        (pk, rk): (&str, &str),
        select: Option<&[String]>,
        at: Option<&Pinned>,
    ) -> Result<Option<Row>> {
        let (table, at) = self.table_at(table, at)?;
        let names: Option<Vec<&str>> = select.map(|names| names.iter().map(|n| &**n).collect());
        let found = match (at, names) {
            (None, None) => table.get(pk, rk)?,
            (None, Some(names)) => table.get_select(pk, rk, &names)?,
            (Some(snapshot), None) => table.at(snapshot).get(pk, rk)?,
            (Some(snapshot), Some(names)) => table.at(snapshot).get_select(pk, rk, &names)?,
        };
        Ok(found.as_ref().map(Row::of))
    }

    /// Returns the rows of a scan, now or at a snapshot. Reads page by page if the scan has a page
    /// size.
    pub(super) fn scan(&self, table: &str, scan: &Scan, at: Option<&Pinned>) -> Result<Vec<Row>> {
        let mut query = self.query(table, scan, at)?;
        let Some(size) = scan.page else {
            let entities = query.top(scan.top.unwrap_or(usize::MAX)).into_iter();
            return entities.map(|entity| entity.map(|entity| Row::of(&entity))).collect();
        };
        let mut rows = Vec::new();
        loop {
            let page = query.clone().page(size)?;
            assert!(page.entities().len() <= size, "a page is longer than asked");
            rows.extend(page.entities().iter().map(Row::of));
            match page.next() {
                Some(token) => query = query.after(token.clone()),
                None => return Ok(rows),
            }
        }
    }

    /// Takes a snapshot and handles of the existing tables.
    pub(super) fn pin(&self) -> Result<Pinned> {
        let snapshot = self.db().snapshot();
        let names = self.db().tables()?;
        let table = |name: String| Ok((name.to_lowercase(), self.db().table(&name)?));
        Ok(Pinned { snapshot, tables: names.into_iter().map(table).collect::<Result<_>>()? })
    }

    /// Whether `name` still denotes the table that it denoted when the snapshot was taken.
    pub(super) fn is_of_today(&self, name: &str, at: &Pinned) -> bool {
        let id = |table: &Table| table.entry.gate.table;
        let then = at.tables.get(&name.to_lowercase()).map(id);
        self.db().table(name).is_ok_and(|now| then == Some(id(&now)))
    }

    /// Returns a table, and the snapshot at which to read it.
    pub(super) fn table_at<'a>(
        &self,
        name: &str,
        at: Option<&'a Pinned>,
    ) -> Result<(Table, Option<&'a Snapshot>)> {
        let Some(pinned) = at else { return Ok((self.db().table(name)?, None)) };
        Ok((pinned.tables[&name.to_lowercase()].clone(), Some(&pinned.snapshot)))
    }

    /// Opens the database at `path` of `fs`, without injected faults, and calls `read` with it.
    fn with_copy<T>(
        &self,
        fs: &MemFs,
        path: &str,
        read: impl FnOnce(&Db) -> Result<T>,
    ) -> Result<T> {
        let db = self.options_on(fs).create_if_missing(false).open(Path::new(path))?;
        let found = read(&db)?;
        db.close()?;
        Ok(found)
    }

    /// Returns the state of a copy of the database, and the problems that `verify` reports.
    pub(super) fn look_at(&self, fs: &MemFs, path: &str) -> Result<(Tables, Vec<String>)> {
        self.with_copy(fs, path, |db| Ok((state_of(db)?, db.verify()?.problems)))
    }

    /// Returns options for opening a database in `fs`.
    pub(super) fn options_on(&self, fs: &MemFs) -> Options {
        options(&self.config, &self.clock).fs(Arc::new(fs.clone()))
    }

    /// As [`options_on`](Self::options_on), without scalability targets, for work that would exceed
    /// them.
    pub(super) fn unthrottled_options_on(&self, fs: &MemFs) -> Options {
        Options { targets: None, ..self.options_on(fs) }
    }

    /// Opens the database at `path` of `fs`, and returns the Seq of its last published commit.
    pub(super) fn published_in(&self, fs: &MemFs, path: &str) -> Result<u64> {
        self.with_copy(fs, path, |db| Ok(db.engine().reader().published().ticks()))
    }

    /// Whether the database at `path` of `fs` has the same incarnation (identity) as this database.
    /// A copy of the database must have a new incarnation.
    pub(super) fn is_incarnation_of(&self, fs: &MemFs, path: &str) -> bool {
        let copy = self.with_copy(fs, path, |db| Ok(db.engine().reader().incarnation()));
        copy.is_ok_and(|copy| copy == self.db().engine().reader().incarnation())
    }

    /// Returns the state of the open database.
    pub fn state(&self) -> Result<Tables> {
        state_of(self.db())
    }
}

/// Returns all tables, rows and gates of a database.
pub(super) fn state_of(db: &Db) -> Result<Tables> {
    let mut tables = BTreeMap::new();
    for name in db.tables()? {
        let (table, gates) = (db.table(&name)?, gates_of(db, &name)?);
        let is_throttled = db.engine().env().options.targets.is_some();
        let is_offline = gates.values().any(|mode| *mode == GateMode::Offline);
        let rows: Vec<Row> = if is_offline || is_throttled {
            rows_behind(db, &table)?
        } else {
            let rows = table.scan(KeyRange::all()).into_iter();
            rows.map(|entity| entity.map(|e| Row::of(&e))).collect::<Result<_>>()?
        };
        let count = rows.len();
        let rows: BTreeMap<_, _> =
            rows.into_iter().map(|row| (key(&row.pk, &row.rk), Rc::new(row))).collect();
        assert_eq!(count, rows.len(), "a scan of {name} shows an entity twice");
        tables.insert(name.to_lowercase(), oracle::Table { name, rows: Rc::new(rows), gates });
    }
    Ok(tables)
}

/// Returns the gates of a table.
fn gates_of(db: &Db, name: &str) -> Result<Gates> {
    let gates = db.gates()?.into_iter().filter(|gate| gate.table == name);
    let gate = |gate: crate::db::ClosedGate| {
        let [pk, from, to] = gate.range.rows_of_partition().map(|text| text.map(str::to_owned));
        (Scan { pk, from, to, ..Scan::default() }, gate.mode)
    };
    Ok(gates.map(gate).collect())
}

/// Returns the rows of a table, regardless of closed gates and scalability targets.
fn rows_behind(db: &Db, table: &Table) -> Result<Vec<Row>> {
    let mut scan = db.engine().scan(&whole_table(table.entry.gate.table), None)?;
    let mut rows = Vec::new();
    while scan.advance()? {
        let found = scan.row()?;
        rows.push(Row::of(&RowView::new(found.key, found.seq, found.row).to_entity()?));
    }
    Ok(rows)
}

/// Returns the engine options for `config`, with manual background work and the given clock.
pub(super) fn options(config: &Config, clock: &Arc<ManualClock>) -> Options {
    let options = Db::options()
        .durability(config.durability)
        .io_mode(config.io_mode)
        .memtable_bytes(config.memtable_bytes)
        .block_bytes(config.block_bytes)
        .run_file_bytes(config.run_file_bytes)
        .cache_bytes(config.cache_bytes)
        .background(Background::Manual)
        .clock(clock.clone())
        .seed(config.seed);
    // These sizes are below the limits for applications, so that rare events become frequent.
    let options = Options {
        memtable_bytes: config.memtable_bytes,
        log_buffer_bytes: config.log_buffer_bytes,
        manifest_roll_bytes: config.manifest_roll_bytes,
        log_allocate_bytes: LOG_ALLOCATE_BYTES,
        range_bytes: RANGE_BYTES,
        gap_entries_min: 1,
        targets: config.targets.map(|(partition, database)| Targets {
            partition_entities_per_second: partition,
            database_entities_per_second: database,
        }),
        max_commit_delay: config.commit_delay(),
        // Every second database keeps its logs for the change feed.
        keep_changes_bytes: config.seed.is_multiple_of(2).then_some(KEEP_CHANGES_BYTES),
        // In every third database table files are constantly closed and opened again.
        max_open_files: if config.seed.is_multiple_of(3) { 2 } else { options.max_open_files },
        // In two of three databases a few reads are enough to trigger a merge.
        merge_for_readers: (!config.seed.is_multiple_of(3)).then_some(MERGE_PRICE),
        ..options
    };
    #[cfg(feature = "zstd")]
    let options =
        if config.compress { options.codec(crate::options::Codec::Zstd) } else { options };
    options
}

/// Returns the entity tag of a Seq in ticks.
///
/// # Panics
/// If `ticks` is after the year 9999. The oracle has no such Seq.
pub(super) fn tag(ticks: u64) -> ETag {
    let time = DateTime::from_ticks(ticks).expect("a tag of the oracle");
    format!("W/\"datetime'{time}'\"").parse().expect("a tag by its text")
}

pub(super) fn operation(write: &Write, etag: Option<u64>) -> Operation {
    let etag = etag.map(tag);
    let entity = write.entity();
    match write.verb {
        Verb::Insert => Operation::Insert(entity),
        Verb::Upsert => Operation::Upsert(entity),
        Verb::UpsertMerge => Operation::UpsertMerge(entity),
        Verb::Replace => Operation::Replace(entity, etag),
        Verb::Merge => Operation::Merge(entity, etag),
        Verb::Delete => {
            let (partition_key, row_key) = (write.pk.clone(), write.rk.clone());
            Operation::Delete { partition_key, row_key, etag }
        }
    }
}

pub(super) fn range(scan: &Scan) -> KeyRange {
    let Some(pk) = &scan.pk else { return KeyRange::all() };
    match (&scan.from, &scan.to) {
        (None, None) => KeyRange::partition(pk),
        (Some(from), None) => KeyRange::rows(pk, from.as_str()..),
        (None, Some(to)) => KeyRange::rows(pk, ..to.as_str()),
        (Some(from), Some(to)) => KeyRange::rows(pk, from.as_str()..to.as_str()),
    }
}
