//! Splits and merges key ranges at any moment and compares all reads with a map: no reader may see
//! a difference.
//!
//! Keys are chosen at boundaries: empty ones, prefixes of one another, the first and last
//! characters; one partition is larger than a range. Flushes and compactions are started and
//! finished separately, with splits and merges of ranges in between.

use std::collections::BTreeMap;
use std::sync::Arc;

use rowstone::fs::MemFs;
use rowstone::sim::engine::START;
use rowstone::sim::ranges::{
    Half, begin_compaction, begin_flush, finish, merge_at, ranges, split_at, split_by_size,
};
use rowstone::{
    Db, Durability, Entity, KeyRange, Query, Snapshot, Table, Token,
    clock::ManualClock,
    options::{Background, IoMode},
    retry::Rng,
};

use crate::{cases, say};

/// PartitionKeys and RowKeys that are close to one another in the order of keys.
const TEXTS: [&str; 14] = [
    "",
    " ",
    "!",
    "a",
    "a ",
    "aa",
    "ab",
    "b",
    "z",
    "~",
    "\u{d7ff}",
    "\u{10ffff}",
    "\u{e000}",
    "\u{ffff}",
];
const BIG: &str = "big";
const BIG_ROWS: u64 = 300;
const TABLE: &str = "Ranges";

/// A pair of keys in UTF-16 code units, which have the service's order.
type Key = (Vec<u16>, Vec<u16>);
type State = BTreeMap<Key, (String, String, i64)>;

struct Bed {
    fs: MemFs,
    clock: Arc<ManualClock>,
    rng: Rng,
    db: Option<Db>,
    now: State,
    held: Vec<(Snapshot, State)>,
    halves: Vec<Half>,
    /// The token of the paged scan in progress.
    token: Option<Token>,
    counts: BTreeMap<&'static str, u64>,
}

fn key(pk: &str, rk: &str) -> Key {
    (pk.encode_utf16().collect(), rk.encode_utf16().collect())
}

fn open(fs: &MemFs, clock: &Arc<ManualClock>, rng: &mut Rng) -> Db {
    let mode = if rng.chance(1, 2) { IoMode::Mmap } else { IoMode::Pread };
    let options = Db::options().fs(Arc::new(fs.clone())).clock(clock.clone()).seed(rng.next_u64());
    let options = options.background(Background::Manual).durability(Durability::Sync);
    let options = options.memtable_bytes(64 << 10).block_bytes(512).run_file_bytes(8 << 10);
    options.io_mode(mode).range_bytes(16 << 10).open("db").unwrap()
}

fn answer(query: Query) -> Vec<(String, String, i64)> {
    query.into_iter().map(|entity| row(&entity.unwrap())).collect()
}

fn row(entity: &Entity) -> (String, String, i64) {
    let number = entity.get::<i64>("N").unwrap();
    (entity.partition_key().to_owned(), entity.row_key().to_owned(), number)
}

impl Bed {
    fn new(seed: u64) -> Self {
        let (fs, clock) = (MemFs::new(), Arc::new(ManualClock::new(START)));
        let mut rng = Rng::from_seed(seed);
        let db = open(&fs, &clock, &mut rng);
        db.create_table(TABLE).unwrap();
        let (held, halves, counts) = (Vec::new(), Vec::new(), BTreeMap::new());
        let now = State::new();
        Self { fs, clock, rng, db: Some(db), now, held, halves, token: None, counts }
    }

    fn db(&self) -> Db {
        self.db.clone().unwrap()
    }

    fn table(&self) -> Table {
        self.db().table(TABLE).unwrap()
    }

    fn count(&mut self, what: &'static str, done: bool) {
        *self.counts.entry(what).or_default() += u64::from(done);
    }

    fn random_key(&mut self) -> (String, String) {
        if self.rng.chance(1, 2) {
            return (BIG.to_owned(), format!("{:04}", self.rng.below(BIG_ROWS)));
        }
        let (pk, rk) = (*self.rng.pick(&TEXTS), *self.rng.pick(&TEXTS));
        (pk.to_owned(), rk.to_owned())
    }

    fn write(&mut self) {
        let table = self.table();
        for _ in 0..=self.rng.below(40) {
            let (pk, rk) = self.random_key();
            self.clock.advance(std::time::Duration::from_millis(1));
            if self.rng.chance(1, 4) {
                let found = table.delete(&pk, &rk).is_ok();
                assert_eq!(found, self.now.remove(&key(&pk, &rk)).is_some(), "{pk:?} {rk:?}");
            } else {
                let number = i64::try_from(self.rng.below(1 << 40)).unwrap();
                let filler = "x".repeat(self.rng.below(400) as usize);
                let entity = Entity::new(&*pk, &*rk).with("N", number).with("Filler", filler);
                table.upsert(entity).unwrap();
                self.now.insert(key(&pk, &rk), (pk, rk, number));
            }
        }
    }

    fn split(&mut self) {
        let db = self.db();
        let done = if self.rng.chance(1, 3) {
            let count = ranges(&db, TABLE).unwrap().len() as u64;
            split_by_size(&db, TABLE, self.rng.below(count + 1) as usize).unwrap()
        } else {
            let (pk, rk) = self.random_key();
            let rk = self.rng.chance(1, 2).then_some(&*rk);
            split_at(&db, TABLE, &pk, rk).unwrap()
        };
        self.count("splits", done);
    }

    fn merge(&mut self) {
        let count = ranges(&self.db(), TABLE).unwrap().len() as u64;
        let done = merge_at(&self.db(), TABLE, self.rng.below(count + 1) as usize).unwrap();
        self.count("merges", done);
    }

    /// Starts a job (a flush or a compaction), or finishes one that was started.
    fn job(&mut self) {
        let db = self.db();
        if let Some(half) = self.halves.pop() {
            let done = finish(&db, half).unwrap();
            self.count("halves", done);
            return;
        }
        let begun = match self.rng.chance(2, 3) {
            true => begin_flush(&db).unwrap(),
            false => begin_compaction(&db).unwrap(),
        };
        self.halves.extend(begun);
    }

    fn end_jobs(&mut self) {
        while let Some(half) = self.halves.pop() {
            finish(&self.db(), half).unwrap();
        }
    }

    fn snapshot(&mut self) {
        if self.held.len() < 3 {
            self.held.push((self.db().snapshot(), self.now.clone()));
        } else {
            let at = self.rng.below(3) as usize;
            self.held.swap_remove(at);
        }
    }

    /// Closes the database, kills its process or cuts the power, and opens it again. Every commit
    /// is durable.
    fn reopen(&mut self) {
        let how = self.rng.below(3);
        if how == 0 {
            self.end_jobs();
        }
        self.held.clear();
        let half = std::mem::take(&mut self.halves);
        let db = self.db.take().unwrap();
        match how {
            0 => db.close().unwrap(),
            how => {
                let seed = self.rng.next_u64();
                let image = if how == 1 { self.fs.kill_image() } else { self.fs.crash_image(seed) };
                drop((half, db));
                self.fs = image;
            }
        }
        self.db = Some(open(&self.fs, &self.clock, &mut self.rng));
    }

    /// Checks the database that a power cut leaves at every file operation of a split or a merge.
    fn crash_within(&mut self) {
        self.fs.record();
        match self.rng.chance(1, 2) {
            true => self.split(),
            false => self.merge(),
        }
        let moments: Vec<u64> = self.fs.recorded().collect();
        for op in moments {
            let image = self.fs.crash_image_at(op, self.rng.next_u64()).unwrap();
            let db = open(&image, &self.clock, &mut self.rng);
            let table = db.table(TABLE).unwrap();
            let expected: Vec<_> = self.now.values().cloned().collect();
            assert_eq!(answer(table.scan(KeyRange::all())), expected);
            assert!(db.verify().unwrap().is_sound());
            self.count("images", true);
        }
    }

    /// Reads the next page of a scan that continues through all other operations.
    fn page(&mut self) {
        let query = self.table().scan(KeyRange::all());
        let from = self.token.as_ref().map(|token| key(&token.partition_key, &token.row_key));
        let query = match self.token.take() {
            Some(token) => query.after(token),
            None => query,
        };
        let count = 1 + self.rng.below(30) as usize;
        let page = query.page(count).unwrap();
        let rest = self.now.iter().filter(|(key, _)| from.as_ref().is_none_or(|from| *key >= from));
        let expected: Vec<_> = rest.take(count).map(|(_, row)| row.clone()).collect();
        assert_eq!(page.entities().iter().map(row).collect::<Vec<_>>(), expected);
        self.token = page.next().cloned();
        self.count("pages", true);
    }

    fn check(&mut self) {
        let table = self.table();
        let all: Vec<_> = self.now.values().cloned().collect();
        assert_eq!(answer(table.scan(KeyRange::all())), all);
        let reversed: Vec<_> = all.iter().rev().cloned().collect();
        assert_eq!(answer(table.scan(KeyRange::all()).reverse()), reversed);
        for _ in 0..10 {
            let (pk, rk) = self.random_key();
            let found = table.get(&pk, &rk).unwrap().map(|e| e.get::<i64>("N").unwrap());
            assert_eq!(found, self.now.get(&key(&pk, &rk)).map(|row| row.2), "{pk:?} {rk:?}");
            let (low, high) = (self.random_key().0, pk);
            let filter = rowstone::prop("PartitionKey").ge(&*low);
            let filter = filter.and(rowstone::prop("PartitionKey").le(&*high));
            let expected: Vec<_> = all
                .iter()
                .filter(|(pk, ..)| key(pk, "") >= key(&low, "") && key(pk, "") <= key(&high, ""))
                .cloned()
                .collect();
            assert_eq!(answer(table.query(filter).unwrap()), expected, "{low:?} to {high:?}");
        }
        let count = table.query("N ge 0").unwrap().count().unwrap();
        assert_eq!(count, all.len() as u64);
        for (snapshot, state) in &self.held {
            let then: Vec<_> = state.values().cloned().collect();
            assert_eq!(answer(table.at(snapshot).scan(KeyRange::all())), then);
        }
    }

    fn step(&mut self) {
        match self.rng.below(20) {
            0..=4 => self.write(),
            5..=8 => self.split(),
            9..=10 => self.merge(),
            11..=14 => self.job(),
            15 => self.snapshot(),
            16 => self.page(),
            17 if self.rng.chance(1, 3) => self.reopen(),
            18 if self.rng.chance(1, 3) => self.crash_within(),
            _ if self.halves.is_empty() && self.db().step(std::time::Duration::ZERO) => {
                self.count("steps", true)
            }
            _ => {}
        }
    }
}

#[test]
fn trap_20_splits_and_merges_do_not_change_what_is_read() {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let seeds = cases("RANGES", 16);
    for seed in 0..seeds {
        let mut bed = Bed::new(seed);
        for step in 0..120 {
            bed.step();
            if step % 4 == 0 {
                bed.check();
            }
        }
        bed.end_jobs();
        bed.check();
        bed.held.clear();
        let db = bed.db();
        db.compact().unwrap();
        while db.step(std::time::Duration::ZERO) {}
        bed.check();
        assert!(db.verify().unwrap().is_sound());
        let stats = db.stats();
        assert!(stats.get("sources_max").unwrap() <= 8, "{:?}", stats.fields());
        for (what, count) in bed.counts {
            *counts.entry(what).or_default() += count;
        }
    }
    say(format!("ranges: {counts:?}"));
    for what in ["splits", "merges", "halves", "images", "pages", "steps"] {
        assert!(counts[what] > 2 * seeds, "{what}: {counts:?}");
    }
}
