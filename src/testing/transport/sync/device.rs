//! The device whose changes are carried: a database on a disk that loses power, its writer, and
//! restores and repairs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::super::network::{Network, Turn};
use super::super::strict::{REFUSED, REFUSED_TABLE};
use super::choices::{Choices, Reader};
use super::history::History;
use crate::clock::ManualClock;
use crate::db::{Db, SuspectRows};
use crate::error::{Error, ErrorKind, Result};
use crate::fs::{Fs, MemFs};
use crate::model::Entity;
use crate::options::{Background, Durability, OnFull, Options};
use crate::query::KeyRange;
use crate::rng::Rng;
use crate::store::Remote;
use crate::store::sync::Source;
use crate::sync::Mutex;
use crate::table::EntityGroup;
use crate::testing::sim::power::{End, PowerFs};

const MAIN: &str = "Main";
/// A table whose rows expire, or of which the oldest are dropped near the limit on disk use.
const AGED: &str = "Aged";
const TTL: Duration = Duration::from_secs(3_600);
/// A table that is dropped and made again.
const EXTRA: &str = REFUSED_TABLE;
/// Rows are imported into the last one.
const PARTITIONS: [&str; 3] = ["p", "q", "r"];
const ROWS: u64 = 5;
/// The limit on disk use.
const DISK: u64 = 7 << 19;
/// A large row has up to so many texts. Each is 180 kB of JSON.
const TEXTS: u64 = 4;
const BACKUPS: &str = "backups";
/// A boot that the power survives needs fewer tries.
const BOOTS_MAX: usize = 10;
/// More steps are background work that does not end.
const STEPS_MAX: usize = 10_000;

/// A device, as its writer and its syncs share it.
pub(super) struct Device {
    pub(super) network: Arc<Network>,
    state: Mutex<State>,
}

struct State {
    rng: Rng,
    choices: Choices,
    clock: Arc<ManualClock>,
    memory: MemFs,
    power: PowerFs,
    db: Option<Db>,
    dir: String,
    durability: Durability,
    /// The number of restores and repairs.
    replaced: u64,
    has_backup: bool,
    /// The last value that was written.
    value: i32,
    /// Whether the power no longer fails.
    is_calm: bool,
    /// The half requests that are left to the syncs of this boot.
    left: Arc<AtomicU64>,
    history: Option<History>,
}

/// The writer of a device.
pub(super) struct Writer(pub(super) Arc<Device>);

impl Turn for Writer {
    fn turn(&mut self) {
        self.0.write();
    }
}

impl Device {
    /// Creates a device with empty tables.
    pub(super) fn new(network: &Arc<Network>, mut rng: Rng, choices: Choices) -> Self {
        let memory = MemFs::new();
        let mut state = State {
            clock: Arc::clone(&network.clocks[0]),
            power: PowerFs::new(Arc::new(memory.clone()), memory.clone()),
            memory,
            db: None,
            dir: "device".to_owned(),
            durability: Durability::Sync,
            replaced: 0,
            has_backup: false,
            value: 0,
            is_calm: rng.chance(1, 4),
            left: Arc::default(),
            history: None,
            choices,
            rng,
        };
        let made = state.options().open(&state.dir).and_then(|db| {
            state.history = Some(History::new(&db, choices));
            [MAIN, AGED, EXTRA].iter().try_for_each(|name| db.create_table(name).map(drop))?;
            if choices.has_ttl {
                db.set_ttl(AGED, Some(TTL))?;
            }
            state.db = Some(db);
            Ok(())
        });
        made.unwrap_or_else(|error| panic!("a database in memory: {error}"));
        Self { network: Arc::clone(network), state: Mutex::new(state) }
    }

    pub(super) fn is_down(&self) -> bool {
        self.state.lock().power.is_gone()
    }

    /// Lets the power fail once more, if it ever did, and then no longer.
    pub(super) fn calm(&self) {
        let mut state = self.state.lock();
        if !state.is_calm && !state.power.is_gone() {
            state.cut();
        }
        state.is_calm = true;
    }

    /// Returns the database.
    pub(super) fn db(&self) -> Result<Db> {
        let db = self.state.lock().db.clone();
        db.ok_or_else(|| Error::new(ErrorKind::NotFound, "the device has no database"))
    }

    /// Returns the state that no power cut can revert.
    pub(super) fn durable(&self) -> std::result::Result<Db, String> {
        let mut state = self.state.lock();
        let follower = state.options().follow(&state.dir);
        follower.map(|follower| follower.db()).map_err(|error| error.chain().to_string())
    }

    pub(super) fn was_replaced(&self) -> bool {
        self.state.lock().replaced > 0
    }

    pub(super) fn fs(&self) -> Arc<dyn Fs> {
        Arc::new(self.state.lock().power.clone())
    }

    /// Returns the source of a sync in the writer's process, or in another one. `connect` returns a
    /// client of the server in the writer's process.
    pub(super) fn source(&self, connect: impl FnOnce() -> Remote) -> Result<Source> {
        let mut state = self.state.lock();
        match state.choices.reader {
            Reader::Writer => {
                drop(state);
                self.db().map(Source::Db)
            }
            Reader::Follower => state.options().follow(&state.dir).map(Source::Follower),
            Reader::Client => {
                drop(state);
                self.network.serve(self.db()?);
                Ok(Source::Remote(connect()))
            }
        }
    }

    /// Gives the syncs of this boot a number of half requests; none are left if the power fails.
    pub(super) fn set_left(&self, left: &Arc<AtomicU64>) {
        self.state.lock().left = Arc::clone(left);
    }

    pub(super) fn with_history<T>(&self, work: impl FnOnce(&mut History) -> T) -> T {
        let mut state = self.state.lock();
        let Some(history) = &mut state.history else { panic!("the device has a history") };
        work(history)
    }

    /// Writes once, unless the power is off. Then it may fail.
    fn write(&self) {
        let mut state = self.state.lock();
        let Some(db) = state.db.clone().filter(|_| !state.power.is_gone()) else { return };
        let (what, done) = state.act(&db);
        if !state.power.is_gone() && !state.is_calm && state.rng.chance(1, 15) {
            state.cut();
        }
        let is_gone = state.power.is_gone();
        if is_gone {
            // The next look of a sync is its last one.
            state.left.store(1, Ordering::Relaxed);
            *self.network.state.lock().counts.entry("power cuts").or_default() += 1;
        }
        self.network.note(|| match &done {
            Ok(()) => format!("the device: {what}; power is off: {is_gone}"),
            Err(error) => format!("the device: {what}: {:?}; off: {is_gone}", error.kind()),
        });
        // A table or a row may be absent, and the disk full.
        if let Err(error) = done
            && !is_gone
            && error.kind() != ErrorKind::NotFound
            && error.kind() != ErrorKind::StorageFull
        {
            let text = format!("the device: {what}: {}", error.chain());
            self.network.state.lock().ledger.fail(|| text);
        }
    }

    /// Opens the database if the power was off.
    pub(super) fn boot(&self) -> std::result::Result<(), String> {
        for number in 0..BOOTS_MAX {
            let mut state = self.state.lock();
            if !state.power.is_gone() && state.db.is_some() {
                return Ok(());
            }
            state.power_on();
            let is_calm = state.is_calm || number + 1 == BOOTS_MAX;
            if !is_calm && state.rng.chance(1, 2) {
                let ops = state.rng.below(250);
                let end = state.end();
                state.power.arm(ops, end);
            }
            let opened = state.options().open(&state.dir).and_then(|db| {
                state.db = Some(db.clone());
                state.read(&db)
            });
            if let Err(error) = opened
                && !state.power.is_gone()
            {
                return Err(format!("the device cannot open: {}", error.chain()));
            }
            drop(state);
            self.network.note(|| format!("the device boots; power is off: {}", self.is_down()));
        }
        Err("the device does not boot".to_owned())
    }

    /// Restores or repairs the database, which begins another history, unless the power fails.
    pub(super) fn replace(&self) -> std::result::Result<(), String> {
        *self.network.source.lock() = None;
        let mut state = self.state.lock();
        let Some(db) = state.db.take() else { return Ok(()) };
        let is_restored = state.has_backup && state.rng.chance(2, 3);
        let old = state.dir.clone();
        let closed = state.read_all(&db).and_then(|()| db.close());
        if state.power.is_gone() {
            return Ok(());
        }
        let replaced = closed.and_then(|()| {
            // Nothing is open, so the power need not fail meanwhile.
            state.power = PowerFs::new(Arc::new(state.memory.clone()), state.memory.clone());
            state.replaced += 1;
            let new = format!("device{}", state.replaced);
            if is_restored {
                state.options().open_backup(BACKUPS)?.restore(None, &new)?;
            } else {
                state.options().repair(&old, &new, SuspectRows::LeaveOut, |_, _| ())?;
            }
            let db = state.options().open(&new)?;
            (state.dir, state.db) = (new, Some(db.clone()));
            state.history.as_mut().map_or(Ok(()), |history| history.restored(&db))
        });
        drop(state);
        self.network.note(|| format!("the device is replaced; restored: {is_restored}"));
        let count = if is_restored { "restores" } else { "repairs" };
        *self.network.state.lock().counts.entry(count).or_default() += 1;
        replaced.map_err(|error| format!("the device cannot be replaced: {}", error.chain()))
    }

    /// Makes all commits durable, and adds them to the history.
    pub(super) fn settle(&self) -> std::result::Result<(), String> {
        let settled = self.db().and_then(|db| self.with_history(|h| h.read_all(&db)));
        settled.map_err(|error| format!("the device: {}", error.chain()))
    }
}

impl State {
    fn options(&mut self) -> Options {
        let mut options = Db::options().background(Background::Manual).memtable_bytes(256 << 10);
        if self.choices.is_full {
            let on_full = OnFull::DropOldest(vec![AGED.to_owned()]);
            options = options.run_file_bytes(64 << 10).max_disk(DISK).on_full(on_full);
        }
        options.log_allocate_bytes = 4 << 10;
        let options = options.fs(Arc::new(self.power.clone())).durability(self.durability);
        let options = options.clock(Arc::clone(&self.clock) as _).seed(self.rng.next_u64());
        let kept = if self.choices.is_full { 1 << 19 } else { 1 << 30 };
        // Otherwise each flush discards changes.
        if self.rng.chance(3, 4) { options.keep_changes(kept) } else { options }
    }

    fn end(&mut self) -> End {
        match self.rng.chance(1, 4) {
            true => End::Kill,
            false => End::PowerCut(self.rng.next_u64()),
        }
    }

    /// The power fails now.
    fn cut(&mut self) {
        let end = self.end();
        self.memory = self.power.cut(end);
    }

    fn power_on(&mut self) {
        self.db = None;
        if let Some((memory, _)) = self.power.take_left() {
            self.memory = memory;
        }
        self.power = PowerFs::new(Arc::new(self.memory.clone()), self.memory.clone());
        let weak = [Durability::Buffered, Durability::Os];
        self.durability =
            if self.rng.chance(1, 2) { *self.rng.pick(&weak) } else { Durability::Sync };
    }

    fn read(&mut self, db: &Db) -> Result<()> {
        self.history.as_mut().map_or(Ok(()), |history| history.read(db))
    }

    fn read_all(&mut self, db: &Db) -> Result<()> {
        self.history.as_mut().map_or(Ok(()), |history| history.read_all(db))
    }

    /// Does a random operation, and adds the commits that are durable then to the history.
    fn act(&mut self, db: &Db) -> (String, Result<()>) {
        let main = if self.choices.is_full { AGED } else { MAIN };
        let table = *self.rng.pick(&[MAIN, main, AGED, EXTRA]);
        let pk = PARTITIONS[self.rng.index(if self.choices.imports { 3 } else { 2 })];
        let rk = self.rng.below(ROWS).to_string();
        self.value += 10;
        let number = self.rng.below(if self.choices.imports { 23 } else { 20 });
        let what = format!("operation {number} of {table}/{pk}/{rk}, value {}", self.value);
        // A write to a full disk flushes, which discards changes.
        let kept = if self.choices.is_full { self.read_all(db) } else { Ok(()) };
        let done = kept.and_then(|()| match number {
            0..10 => self.write(db, number, (table, pk, &rk)),
            10..13 => self.group(db, table, pk),
            13 => self.delete_range(db, table, pk, &rk),
            14 => match db.table(EXTRA) {
                Ok(_) => db.delete_table(EXTRA),
                Err(_) => db.create_table(EXTRA).map(drop),
            },
            15..17 => db.sync(),
            17 => self.back_up(db),
            18..20 => self.maintain(db),
            _ => self.import(db, table),
        });
        let read = if self.power.is_gone() { Ok(()) } else { self.read(db) };
        (what, done.and(read))
    }

    /// Returns an entity, which a strict target may refuse.
    fn entity(&mut self, table: &str, pk: &str, rk: &str) -> Entity {
        let mut entity = Entity::new(pk, rk).with("N", self.value);
        if self.choices.is_full && table == AGED {
            let text = "\u{1}".repeat(30_000);
            for number in 0..1 + self.rng.below(TEXTS) {
                entity = entity.with(format!("Text{number}"), &*text);
            }
        }
        let is_refused = self.choices.strict.refuses_rows && self.rng.chance(1, 6);
        if is_refused { entity.with(REFUSED, 1) } else { entity }
    }

    fn write(&mut self, db: &Db, number: u64, (table, pk, rk): (&str, &str, &str)) -> Result<()> {
        let entity = self.entity(table, pk, rk);
        let table = db.table(table)?;
        match number {
            0..6 => table.upsert(entity).map(drop),
            6..8 => table.merge(entity.with("M", self.value)).map(drop),
            _ => table.delete(pk, rk),
        }
    }

    fn group(&mut self, db: &Db, name: &str, pk: &str) -> Result<()> {
        let table = db.table(name)?;
        let mut group = EntityGroup::new(pk);
        for rk in (0..ROWS).map(|rk| rk.to_string()) {
            match self.rng.below(4) {
                0 if table.get(pk, &rk)?.is_some() => drop(group.delete(&rk)?),
                1..3 => drop(group.upsert(self.entity(name, pk, &rk))?),
                _ => {}
            }
        }
        if group.is_empty() { Ok(()) } else { table.commit(group).map(drop) }
    }

    fn delete_range(&mut self, db: &Db, table: &str, pk: &str, rk: &str) -> Result<()> {
        let range = match self.rng.below(3) {
            0 => KeyRange::partition(pk),
            1 => KeyRange::rows(pk, rk..),
            _ => KeyRange::partitions(pk..),
        };
        db.table(table)?.delete_range(&range).map(drop)
    }

    /// Imports rows of another database into a partition that is empty, or was until then.
    fn import(&mut self, db: &Db, name: &str) -> Result<()> {
        let dir = format!("import{}", self.value);
        let (from, pk) = (self.options().open(&dir)?, PARTITIONS[2]);
        let table = from.create_table(name)?;
        for rk in (0..ROWS).map(|rk| rk.to_string()) {
            if rk == "0" || self.rng.chance(1, 2) {
                table.insert(self.entity(name, pk, &rk))?;
            }
        }
        from.close()?;
        let into = db.table(name)?;
        if self.rng.chance(2, 3) {
            into.delete_range(&KeyRange::partition(pk))?;
        }
        // An import flushes, which discards changes that are not kept.
        self.read_all(db)?;
        match db.import_range(&dir, name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            imported => imported.and_then(|_| db.sync()),
        }
    }

    /// Makes a backup, which flushes.
    fn back_up(&mut self, db: &Db) -> Result<()> {
        if self.has_backup && self.rng.chance(2, 3) {
            return Ok(());
        }
        self.read_all(db)?;
        db.backup(BACKUPS)?;
        self.has_backup = true;
        Ok(())
    }

    /// Flushes, which discards changes that are not kept, and expires rows.
    fn maintain(&mut self, db: &Db) -> Result<()> {
        self.read_all(db)?;
        db.flush()?;
        db.compact()?;
        for _ in 0..STEPS_MAX {
            if !db.step(Duration::ZERO) {
                return Ok(());
            }
        }
        panic!("background work does not end")
    }
}
