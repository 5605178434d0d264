//! Opens the database that benchmarks run in, and checks that its directory and data are usable.
//!
//! A benchmark's database has two tables. One has the entities, the other a single entity with
//! their parameters, so that a later run with `--use-existing-db` knows the expected content.
//!
//! Invariants
//! * only the benchmark's own two tables are ever deleted;
//! * a database that the benchmark did not create is written only with `--use-existing-db`.

use std::path::Path;

use super::entities::{Entities, Present, Shape, wrong};
use super::settings::{NUM, PARTITION_ROWS, Settings, VALUE_SIZE};
use crate::cli::failure::{Failure, Outcome};
use crate::cli::open::set;
use crate::cli::progress::Progress;
use crate::db::Db;
use crate::error::ErrorKind;
use crate::fs::{DiskFs, Fs};
use crate::model::Entity;
use crate::options::{Background, Codec, Options};
use crate::query::KeyRange;
use crate::table::Table;

pub(super) const TABLE: &str = "RowstoneBench";
const SHAPE_TABLE: &str = "RowstoneBenchShape";
const SHAPE_KEYS: (&str, &str) = ("bench", "shape");

/// The open database of the benchmark, with its table and the expected entities.
pub(super) struct Stage {
    pub(super) db: Db,
    pub(super) table: Table,
    pub(super) entities: Entities,
    pub(super) present: Present,
}

/// The result of examining a directory: what it contains.
enum Found {
    Nothing,
    Ours(Shape),
    Others,
}

impl Stage {
    /// Opens or creates the database in `dir`.
    pub(super) fn open(dir: &Path, settings: &Settings) -> Outcome<Self> {
        let found = look(dir)?;
        if matches!(found, Found::Others) && !settings.use_existing_db {
            return Err(not_ours(dir, "; or --use-existing-db, which leaves other tables alone"));
        }
        let shape = match (&found, settings.use_existing_db) {
            (Found::Ours(shape), true) => settings.agree(shape)?,
            _ => settings.shape(),
        };
        let options = settings.options();
        let db = options.open(dir).map_err(Failure::Open)?;
        let table = db.table_or_create(TABLE)?;
        let present = Present::new(shape.num);
        let mut stage = Self { db, table, entities: Entities::new(shape), present };
        match found {
            Found::Ours(_) if settings.use_existing_db => stage.find_present()?,
            _ => stage = stage.clear(dir, settings)?,
        }
        Ok(stage)
    }

    /// Empties the table and reopens the database, so that its counters begin at zero.
    pub(super) fn clear(self, dir: &Path, settings: &Settings) -> Outcome<Self> {
        let Self { db, table, entities, .. } = self;
        drop(table);
        db.delete_table(TABLE)?;
        note_shape(&db, &entities.shape)?;
        // Deletes the dropped table's files now, not during the next benchmark.
        db.flush()?;
        db.close()?;
        let db = settings.options().open(dir).map_err(Failure::Open)?;
        let table = db.create_table(TABLE)?;
        let present = Present::new(entities.shape.num);
        Ok(Self { db, table, entities, present })
    }

    /// Finds the entities that an earlier run has written.
    fn find_present(&self) -> Outcome {
        let progress = Progress::new(None);
        let mut seen = 0;
        for entity in self.table.scan(KeyRange::all()).select(&[]) {
            let entity = entity?;
            let keys = (entity.partition_key(), entity.row_key());
            let i = self.entities.number_of(keys.0, keys.1);
            let i =
                i.ok_or_else(|| wrong(&format!("{}/{} is not the benchmark's", keys.0, keys.1)))?;
            self.present.add(i);
            seen += 1;
            if seen % 10_000 == 0 {
                progress.reach(seen);
            }
        }
        Ok(())
    }
}

impl Settings {
    pub(super) fn options(&self) -> Options {
        let size = |bytes: Option<u64>| bytes.map(|bytes| bytes as usize);
        let options = Db::options()
            .durability(self.durability)
            .io_mode(self.io)
            .codec(if self.compress { Codec::Zstd } else { Codec::None })
            .background_bytes_per_second(self.rate_limit.unwrap_or(0));
        let options = set(options, size(self.cache_size), Options::cache_bytes);
        let options = set(options, size(self.write_buffer_size), Options::memtable_bytes);
        let options = set(options, size(self.block_size), Options::block_bytes);
        let threads = self.compaction_threads.map(|threads| threads as usize);
        set(options, threads, Options::compaction_threads)
    }

    fn shape(&self) -> Shape {
        Shape {
            num: self.num.unwrap_or(NUM),
            value_size: self.value_size.unwrap_or(VALUE_SIZE),
            partition_rows: self.partition_rows.unwrap_or(PARTITION_ROWS),
            compression_ratio: self.compression_ratio,
            seed: self.seed,
        }
    }

    /// Returns the parameters of the existing table, or an error if the options ask for others.
    fn agree(&self, there: &Shape) -> Outcome<Shape> {
        let asked = [
            ("--num", self.num, there.num),
            ("--value-size", self.value_size.map(u64::from), u64::from(there.value_size)),
            ("--partition-rows", self.partition_rows, there.partition_rows),
        ];
        match asked.iter().find(|(_, asked, there)| asked.is_some_and(|asked| asked != *there)) {
            None => Ok(*there),
            Some((name, _, there)) => Err(Failure::Usage(format!(
                "the entities that are there were written with {name} {there}\n  \
                 try: leave {name} out, or leave --use-existing-db out to start again"
            ))),
        }
    }
}

fn not_ours(dir: &Path, or: &str) -> Failure {
    Failure::Usage(format!(
        "{} is a database that `bench` did not make\n  \
         try: a directory that is missing or empty{or}",
        dir.display()
    ))
}

/// Examines `dir`. Opens an existing database without background work, so that it does not change.
fn look(dir: &Path) -> Outcome<Found> {
    let fs = DiskFs::new();
    let cannot = |error| {
        Failure::Other(format!("cannot read {}: {error}\n  try: another directory", dir.display()))
    };
    if !fs.exists(dir).map_err(cannot)? || fs.list(dir).map_err(cannot)?.is_empty() {
        return Ok(Found::Nothing);
    }
    let options = Db::options().background(Background::Manual).create_if_missing(false);
    let db = options.open(dir).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::InvalidInput => Failure::Usage(format!(
            "{} is not empty and holds no database\n  try: a directory that is missing or empty",
            dir.display()
        )),
        _ => Failure::Open(error),
    })?;
    let found = match db.table(SHAPE_TABLE) {
        Ok(table) => match table.get(SHAPE_KEYS.0, SHAPE_KEYS.1)? {
            Some(entity) => Found::Ours(read_shape(&entity)?),
            None => Found::Others,
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Found::Others,
        Err(error) => return Err(error.into()),
    };
    db.close()?;
    Ok(found)
}

fn note_shape(db: &Db, shape: &Shape) -> Outcome {
    let entity = Entity::new(SHAPE_KEYS.0, SHAPE_KEYS.1)
        .with("Num", shape.num as i64)
        .with("ValueSize", i64::from(shape.value_size))
        .with("PartitionRows", shape.partition_rows as i64)
        .with("CompressionRatio", shape.compression_ratio)
        .with("Seed", shape.seed as i64);
    db.table_or_create(SHAPE_TABLE)?.upsert(entity)?;
    Ok(())
}

fn read_shape(entity: &Entity) -> Outcome<Shape> {
    let number = |name| entity.get::<i64>(name);
    Ok(Shape {
        num: number("Num")? as u64,
        value_size: number("ValueSize")? as u32,
        partition_rows: number("PartitionRows")?.max(1) as u64,
        compression_ratio: entity.get("CompressionRatio")?,
        seed: number("Seed")? as u64,
    })
}
