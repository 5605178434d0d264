//! The engine behind one door: opening on a memory file system, writes and reads in the oracle's terms.
//!
//! Not here: what the answers should be (`oracle`).

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use crate::clock::ManualClock;
use crate::db::Db;
use crate::error::{Error, Result};
use crate::fs::{Fs, MemFs};
use crate::model::{DateTime, ETag, Entity};
use crate::options::{Background, Durability, Options};
use crate::query::{KeyRange, Page, Token};
use crate::table::{EntityGroup, Operation, Snapshot, Table};

use super::oracle::{self, Row, Tables, key};
use super::step::{Config, Scan, Verb, Write};
use super::value::Val;

/// Where the database lives.
pub const PATH: &str = "db";
/// 2024-01-01, in ticks of 100 ns since 1601.
pub const START: u64 = 133_485_408_000_000_000;

/// A snapshot with handles of the tables of its time, which may be dropped since.
pub struct Pinned {
    snapshot: Snapshot,
    tables: BTreeMap<String, Table>,
}

/// A file system, a clock and a database that is open or not.
pub struct Engine {
    pub fs: MemFs,
    pub clock: Arc<ManualClock>,
    pub config: Config,
    /// What stands between the engine and the memory, if anything.
    pub wrap: Option<fn(MemFs) -> Arc<dyn Fs>>,
    db: Option<Db>,
}

/// The rows of a query, or of a query at a snapshot: two types with the same methods.
macro_rules! read_all {
    ($begin:expr, $scan:expr) => {{
        let scan: &Scan = $scan;
        let begin = || {
            let query = $begin();
            match &scan.select {
                Some(names) => query.select(&names.iter().map(|name| &**name).collect::<Vec<_>>()),
                None => query,
            }
        };
        match scan.page {
            None => begin()
                .top(scan.top.unwrap_or(usize::MAX))
                .into_iter()
                .map(|entity| entity.map(|entity| row(&entity)))
                .collect(),
            Some(size) => pages(size, |after| {
                let query = begin();
                match after {
                    Some(token) => query.after(token).page(size),
                    None => query.page(size),
                }
            }),
        }
    }};
}

/// All pages, each from where the one before it ended.
fn pages(size: usize, mut read: impl FnMut(Option<Token>) -> Result<Page>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut after = None;
    loop {
        let page = read(after.take())?;
        assert!(page.entities().len() <= size, "a page is longer than asked");
        rows.extend(page.entities().iter().map(row));
        match page.next() {
            Some(token) => after = Some(token.clone()),
            None => return Ok(rows),
        }
    }
}

impl Engine {
    pub fn new(config: Config) -> Self {
        Self::on(MemFs::new(), Arc::new(ManualClock::new(START)), config)
    }

    pub fn on(fs: MemFs, clock: Arc<ManualClock>, config: Config) -> Self {
        Self { fs, clock, config, wrap: None, db: None }
    }

    pub fn open(&mut self) -> Result<()> {
        let fs = self.fs.clone();
        self.open_on(
            self.wrap.map_or_else(|| Arc::new(fs.clone()) as Arc<dyn Fs>, |wrap| wrap(fs.clone())),
        )
    }

    /// Opens through another file system over the same bytes.
    pub fn open_on(&mut self, fs: Arc<dyn Fs>) -> Result<()> {
        self.db = None;
        self.db = Some(options(&self.config, &self.clock).fs(fs).open(Path::new(PATH))?);
        Ok(())
    }

    pub fn is_open(&self) -> bool {
        self.db.is_some()
    }

    pub fn db(&self) -> &Db {
        self.db.as_ref().expect("the database is open")
    }

    pub fn close(&mut self) -> Result<()> {
        self.db.take().map_or(Ok(()), |db| db.close())
    }

    /// Drops the handle as a dying process would, and goes on with what is on `fs`.
    pub fn abandon(&mut self, fs: MemFs) {
        // The handle still writes to the old file system when it is dropped; nobody reads that again.
        self.db = None;
        self.fs = fs;
    }

    /// One write; its tag, `None` for a delete.
    pub fn write(
        &self,
        table: &str,
        write: &Write,
        etag: Option<u64>,
        durability: Option<Durability>,
    ) -> Result<Option<u64>> {
        let table = self.db().table(table)?;
        if let Some(durability) = durability {
            let group = EntityGroup::from_operations(vec![operation(write, etag)])?;
            return Ok(table.commit_with(group, durability)?[0].map(ticks));
        }
        let etag = etag.map(tag);
        let entity = entity(write);
        let written = match (write.verb, etag) {
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

    pub fn group(
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

    pub fn get(
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
        Ok(found.as_ref().map(row))
    }

    pub fn scan(&self, table: &str, scan: &Scan, at: Option<&Pinned>) -> Result<Vec<Row>> {
        let (table, at) = self.table_at(table, at)?;
        match at {
            None => read_all!(|| table.scan(range(scan)), scan),
            Some(at) => read_all!(|| table.at(at).scan(range(scan)), scan),
        }
    }

    /// A snapshot, and the tables that there are.
    pub fn pin(&self) -> Result<Pinned> {
        let snapshot = self.db().snapshot();
        let names = self.db().tables()?;
        let table = |name: String| Ok((name.to_lowercase(), self.db().table(&name)?));
        Ok(Pinned { snapshot, tables: names.into_iter().map(table).collect::<Result<_>>()? })
    }

    fn table_at<'a>(
        &self,
        name: &str,
        at: Option<&'a Pinned>,
    ) -> Result<(Table, Option<&'a Snapshot>)> {
        let Some(pinned) = at else { return Ok((self.db().table(name)?, None)) };
        Ok((pinned.tables[&name.to_lowercase()].clone(), Some(&pinned.snapshot)))
    }

    /// Everything that the database shows.
    pub fn state(&self) -> Result<Tables> {
        let mut tables = BTreeMap::new();
        for name in self.db().tables()? {
            let rows = self.scan(&name, &Scan::default(), None)?;
            let count = rows.len();
            let rows: BTreeMap<_, _> =
                rows.into_iter().map(|row| (key(&row.pk, &row.rk), Rc::new(row))).collect();
            assert_eq!(count, rows.len(), "a scan of {name} shows an entity twice");
            tables.insert(name.to_lowercase(), oracle::Table { name, rows: Rc::new(rows) });
        }
        Ok(tables)
    }
}

pub fn options(config: &Config, clock: &Arc<ManualClock>) -> Options {
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
    #[cfg(feature = "zstd")]
    let options =
        if config.compress { options.codec(crate::options::Codec::Zstd) } else { options };
    options
}

pub fn tag(ticks: u64) -> ETag {
    let time = DateTime::from_ticks(ticks).expect("a tag of the oracle");
    format!("W/\"datetime'{time}'\"").parse().expect("a tag by its text")
}

pub fn ticks(etag: ETag) -> u64 {
    etag.seq().ticks()
}

/// The code of an error, with the index of the failing operation.
pub fn code(error: &Error) -> (&'static str, Option<usize>) {
    (error.code(), error.index())
}

fn entity(write: &Write) -> Entity {
    let mut entity = Entity::new(&*write.pk, &*write.rk);
    for (name, value) in &write.properties {
        entity.set(&**name, value.to_value());
    }
    entity
}

fn operation(write: &Write, etag: Option<u64>) -> Operation {
    let etag = etag.map(tag);
    let entity = entity(write);
    match (write.verb, etag) {
        (Verb::Insert, _) => Operation::Insert(entity),
        (Verb::Upsert, _) => Operation::Upsert(entity),
        (Verb::UpsertMerge, _) => Operation::UpsertMerge(entity),
        (Verb::Replace, etag) => Operation::Replace(entity, etag),
        (Verb::Merge, etag) => Operation::Merge(entity, etag),
        (Verb::Delete, etag) => {
            let (partition_key, row_key) = (write.pk.clone(), write.rk.clone());
            Operation::Delete { partition_key, row_key, etag }
        }
    }
}

fn row(entity: &Entity) -> Row {
    let properties = entity.properties();
    let properties =
        properties.map(|(name, value)| (name.to_owned(), Val::from_ref(value))).collect();
    Row {
        pk: entity.partition_key().to_string(),
        rk: entity.row_key().to_string(),
        properties,
        etag: entity.etag().map_or(0, ticks),
    }
}

fn range(scan: &Scan) -> KeyRange {
    let Some(pk) = &scan.pk else { return KeyRange::all() };
    match (&scan.from, &scan.to) {
        (None, None) => KeyRange::partition(pk),
        (Some(from), None) => KeyRange::rows(pk, from.as_str()..),
        (None, Some(to)) => KeyRange::rows(pk, ..to.as_str()),
        (Some(from), Some(to)) => KeyRange::rows(pk, from.as_str()..to.as_str()),
    }
}
