//! Runs everything concurrently on threads: readers, writers, snapshots, flushes, compactions,
//! copies, and tables that are created and dropped. The threads share only the database and a flag,
//! so that a thread sanitizer checks the database's synchronisation alone.
//!
//! Each thread checks its results: groups are whole, counters only grow, scans are ordered,
//! snapshots do not change, tables contain only their own rows, and only expected errors occur. At
//! the end the totals must be right, in the database, after a power cut, and after a close.
//!
//! `SOAK=n` sets the number of writes of each writer; the default is 10,000.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rowstone::fs::MemFs;
use rowstone::{
    Db, Durability, Entity, EntityGroup, ErrorKind, KeyRange, Options, Snapshot, Table,
    options::{Background, IoMode},
    query::Entities,
    retry::Rng,
};

const COUNTERS: u64 = 12;
const PARTITIONS: usize = 3;
const GROUP: usize = 8;
const DURABILITIES: [Durability; 3] = [Durability::Buffered, Durability::Os, Durability::Sync];

/// The objects that the threads work on.
struct World {
    db: Db,
    fs: MemFs,
    counters: Table,
    groups: Table,
    queue: Table,
    writes: u64,
    done: AtomicBool,
}

/// Sets the flag even if the writers panic; otherwise the other threads would never end.
struct RaiseOnDrop<'w>(&'w AtomicBool);

impl Drop for RaiseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The state at one moment: the counters, and for each partition of `groups` the number of the
/// round in which it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Picture {
    counters: BTreeMap<String, i64>,
    rounds: BTreeMap<String, i64>,
}

fn options(fs: &MemFs, background: Background, io_mode: IoMode) -> Options {
    let options = Options::new().fs(Arc::new(fs.clone())).background(background).io_mode(io_mode);
    let small = options.memtable_bytes(32 << 10).run_file_bytes(64 << 10).block_bytes(1 << 10);
    small.cache_bytes(32 << 10)
}

fn number(entity: &Entity, name: &str) -> i64 {
    entity.get(name).expect("every row has its number")
}

/// Collects all rows, whose keys must ascend.
fn ordered(rows: Entities) -> Vec<Entity> {
    let rows: Vec<Entity> = rows.collect::<Result<_, _>>().unwrap();
    let key = |row: &Entity| (row.partition_key().to_owned(), row.row_key().to_owned());
    assert!(rows.windows(2).all(|two| key(&two[0]) < key(&two[1])), "keys do not ascend");
    rows
}

fn counters(rows: Vec<Entity>) -> BTreeMap<String, i64> {
    rows.iter().map(|row| (row.row_key().to_owned(), number(row, "Count"))).collect()
}

/// Returns the round of each partition. All rows of a partition must have the same round.
fn rounds(rows: Vec<Entity>) -> BTreeMap<String, i64> {
    let mut found: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for row in &rows {
        let round = number(row, "Round");
        assert_eq!(row.get::<String>("Note").unwrap(), note(round), "a row mixes two writes");
        found.entry(row.partition_key().to_owned()).or_default().push(round);
    }
    let whole = |rounds: &Vec<i64>| rounds.len() == GROUP && rounds.iter().all(|r| *r == rounds[0]);
    assert!(found.values().all(whole), "a group in part: {found:?}");
    found.into_iter().map(|(partition, rounds)| (partition, rounds[0])).collect()
}

fn note(round: i64) -> String {
    "x".repeat(round as usize % 150)
}

/// Checks that no counter and no round has decreased.
#[track_caller]
fn check_grown(older: &Picture, newer: &Picture) {
    for (name, count) in &older.counters {
        assert!(newer.counters[name] >= *count, "{name} was {count}: {newer:?}");
    }
    for (partition, round) in &newer.rounds {
        let before = older.rounds.get(partition).unwrap_or(&-1);
        assert!(round >= before, "{partition} was at {before}: {newer:?}");
    }
}

impl Picture {
    fn at(world: &World, snapshot: &Snapshot) -> Picture {
        let all = |table: &Table| ordered(table.at(snapshot).scan(KeyRange::all()).into_iter());
        Picture { counters: counters(all(&world.counters)), rounds: rounds(all(&world.groups)) }
    }

    /// Returns the state of a database without concurrent writes.
    fn of(db: &Db) -> Picture {
        let all = |name: &str| ordered(db.table(name).unwrap().scan(KeyRange::all()).into_iter());
        Picture { counters: counters(all("Counters")), rounds: rounds(all("Groups")) }
    }

    fn total(&self) -> i64 {
        self.counters.values().sum()
    }
}

/// Increments counters by conditional replaces; returns the number of increments.
fn increment_counters(world: &World, seed: u64) -> i64 {
    let mut rng = Rng::from_seed(seed);
    let mut counted = 0;
    while counted < world.writes as i64 {
        let name = format!("c{:02}", rng.below(COUNTERS));
        let table = world.counters.clone().with_durability(*rng.pick(&DURABILITIES));
        let mut row = table.get("p", &name).unwrap().expect("counters stay");
        let (etag, count) = (row.etag().expect("read from a table"), number(&row, "Count"));
        row.set("Count", count + 1);
        match table.replace_if(row, etag) {
            Ok(_) => counted += 1,
            Err(error) => assert_eq!(error.kind(), ErrorKind::PreconditionFailed, "{error:?}"),
        }
    }
    counted
}

/// Writes and deletes whole partitions with several commits in flight. Returns the rounds expected
/// at the end.
fn write_groups(world: &World) -> BTreeMap<String, i64> {
    let mut rng = Rng::from_seed(11);
    let mut expected = BTreeMap::new();
    let mut flying = VecDeque::new();
    for round in 0..(world.writes / 4) as i64 {
        let partition = format!("g{}", rng.index(PARTITIONS));
        let is_delete = expected.contains_key(&partition) && rng.chance(1, 8);
        let mut group = EntityGroup::new(&partition);
        for row in 0..GROUP {
            let row = format!("r{row}");
            if is_delete {
                group.delete(&row).unwrap();
            } else {
                let entity = Entity::new(&partition, row).with("Round", round);
                group.upsert(entity.with("Note", note(round))).unwrap();
            }
        }
        if is_delete {
            expected.remove(&partition);
        } else {
            expected.insert(partition, round);
        }
        let table = world.groups.clone().with_durability(*rng.pick(&DURABILITIES));
        flying.push_back(table.commit_async(group).unwrap());
        while flying.len() > rng.index(4) {
            flying.pop_front().map(|ticket| ticket.wait().unwrap());
        }
    }
    flying.into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));
    expected
}

/// Inserts at the end of a queue and deletes at its head; returns the remaining length.
fn queue(world: &World) -> usize {
    let mut rng = Rng::from_seed(12);
    let (mut head, mut end) = (0, 0);
    for _ in 0..world.writes {
        let table = world.queue.clone().with_durability(*rng.pick(&DURABILITIES));
        if head == end || rng.chance(1, 2) {
            table.insert(Entity::new("q", format!("{end:08}")).with("Number", end)).unwrap();
            end += 1;
            continue;
        }
        let first = ordered(table.scan(KeyRange::partition("q")).top(1).into_iter());
        assert_eq!(number(&first[0], "Number"), head);
        table.delete_if("q", first[0].row_key(), first[0].etag().unwrap()).unwrap();
        assert!(table.get("q", first[0].row_key()).unwrap().is_none());
        head += 1;
    }
    (end - head) as usize
}

/// Creates a table, fills it with one group, drops it, and repeats under the same name.
fn recreate_table(world: &World) -> u64 {
    let generations = world.writes / 50;
    for generation in 0..generations as i64 {
        let table = world.db.create_table("Temporary").unwrap();
        let mut group = EntityGroup::new("t");
        for row in 0..GROUP {
            let entity = Entity::new("t", format!("r{row}")).with("Generation", generation);
            group.insert(entity).unwrap();
        }
        table.commit_with(group, DURABILITIES[generation as usize % 3]).unwrap();
        let snapshot = world.db.snapshot();
        let taken = world.db.create_table("temporary").unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AlreadyExists, "{taken:?}");
        world.db.delete_table("Temporary").unwrap();
        let gone = table.insert(Entity::new("t", "late")).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::NotFound, "{gone:?}");
        let kept = ordered(table.at(&snapshot).scan(KeyRange::all()).into_iter());
        assert_eq!(kept.len(), GROUP, "a snapshot keeps the rows of a table that was dropped");
    }
    generations
}

/// Reads in every way; returns the number of reads.
fn read(world: &World, seed: u64) -> u64 {
    let mut rng = Rng::from_seed(seed);
    let (mut reads, mut newest) = (0, Picture::default());
    while !world.done.load(Ordering::Acquire) {
        let mut now = newest.clone();
        match rng.below(5) {
            0 => now.counters = counters(ordered(world.counters.scan(KeyRange::all()).into_iter())),
            1 => now.rounds = rounds(ordered(world.groups.scan(KeyRange::all()).into_iter())),
            2 => {
                let name = format!("c{:02}", rng.below(COUNTERS));
                let row = world.counters.get("p", &name).unwrap().expect("counters stay");
                now.counters.insert(name, number(&row, "Count"));
            }
            3 => read_pages(world, 1 + rng.index(5)),
            _ => read_temporary(world),
        }
        check_grown(&newest, &now);
        // A partition that is absent now may only reappear with a later round.
        newest.counters = now.counters;
        newest.rounds.extend(now.rounds);
        reads += 1;
    }
    reads
}

/// Reads the counters page by page. All counters must be found, whatever happens between two pages.
fn read_pages(world: &World, size: usize) {
    let (mut names, mut token) = (Vec::new(), None);
    loop {
        let query = world.counters.scan(KeyRange::all());
        let query = match token.take() {
            Some(token) => query.after(token),
            None => query,
        };
        let page = query.page(size).unwrap();
        names.extend(page.entities().iter().map(|row| row.row_key().to_owned()));
        match page.next() {
            Some(next) => token = Some(next.clone()),
            None => break,
        }
    }
    let expected: Vec<String> = (0..COUNTERS).map(|counter| format!("c{counter:02}")).collect();
    assert_eq!(names, expected);
}

/// Checks that the repeatedly recreated table shows all rows of one generation, or none.
fn read_temporary(world: &World) {
    let table = match world.db.table("Temporary") {
        Ok(table) => table,
        Err(error) => return assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}"),
    };
    let found: Result<Vec<Entity>, _> = table.scan(KeyRange::all()).into_iter().collect();
    match found {
        Ok(rows) => {
            assert!(rows.is_empty() || rows.len() == GROUP, "a group in part: {rows:?}");
            let generation = |row: &Entity| number(row, "Generation");
            assert!(rows.windows(2).all(|two| generation(&two[0]) == generation(&two[1])));
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}"),
    }
}

/// Holds up to four snapshots and repeatedly rereads each; returns the number of snapshots.
fn hold_snapshots(world: &World) -> u64 {
    let mut rng = Rng::from_seed(13);
    let mut held: VecDeque<(Snapshot, Picture)> = VecDeque::new();
    let mut taken = 0;
    while !world.done.load(Ordering::Acquire) {
        if held.len() < 4 {
            let snapshot = world.db.snapshot();
            let picture = Picture::at(world, &snapshot);
            if let Some((_, before)) = held.back() {
                check_grown(before, &picture);
            }
            held.push_back((snapshot, picture));
            taken += 1;
        }
        let (snapshot, picture) = &held[rng.index(held.len())];
        assert_eq!(Picture::at(world, snapshot), *picture, "a snapshot changed");
        if rng.chance(1, 4) {
            held.remove(rng.index(held.len()));
        }
    }
    taken
}

/// Flushes, compacts, syncs, verifies and copies; returns the number of rounds.
fn maintain(world: &World) -> u64 {
    let mut rng = Rng::from_seed(14);
    let (mut rounds, mut copies) = (0, 0);
    let mut newest = Picture::default();
    while !world.done.load(Ordering::Acquire) {
        match rng.below(16) {
            0..3 => world.db.flush().unwrap(),
            3 => world.db.compact().unwrap(),
            4..6 => world.db.sync().unwrap(),
            6 => check_sound(&world.db),
            7 if copies < 8 => {
                let path = format!("copy{copies}");
                world.db.checkpoint(&path).unwrap();
                copies += 1;
                let copy =
                    options(&world.fs, Background::Manual, IoMode::Pread).open(&path).unwrap();
                check_sound(&copy);
                let picture = Picture::of(&copy);
                check_grown(&newest, &picture);
                newest = picture;
                copy.close().unwrap();
            }
            8 => assert_eq!(world.db.stats().get("trouble"), Some(0)),
            _ => drop(world.db.step(std::time::Duration::ZERO)),
        }
        rounds += 1;
        thread::yield_now();
    }
    rounds
}

#[track_caller]
fn check_sound(db: &Db) {
    let report = db.verify().unwrap();
    assert!(report.is_sound(), "{:#?}", report.problems);
}

fn open_world(fs: &MemFs, background: Background, io_mode: IoMode, writes: u64) -> World {
    let db = options(fs, background, io_mode).open("db").unwrap();
    let [counters, groups, queue] =
        ["Counters", "Groups", "Queue"].map(|name| db.create_table(name).unwrap());
    for counter in 0..COUNTERS {
        counters.insert(Entity::new("p", format!("c{counter:02}")).with("Count", 0i64)).unwrap();
    }
    let done = AtomicBool::new(false);
    World { db, fs: fs.clone(), counters, groups, queue, writes, done }
}

fn soak(background: Background, io_mode: IoMode) {
    let writes = crate::cases("SOAK", 10_000);
    let fs = MemFs::new();
    let world = &open_world(&fs, background, io_mode, writes);
    let (counted, expected, left, said) = thread::scope(|scope| {
        let others = [
            scope.spawn(|| read(world, 1)),
            scope.spawn(|| read(world, 2)),
            scope.spawn(|| hold_snapshots(world)),
            scope.spawn(|| maintain(world)),
        ];
        let raise = RaiseOnDrop(&world.done);
        let counters = [
            scope.spawn(|| increment_counters(world, 3)),
            scope.spawn(|| increment_counters(world, 4)),
        ];
        let groups = scope.spawn(|| write_groups(world));
        let queue = scope.spawn(|| queue(world));
        let tables = scope.spawn(|| recreate_table(world));
        let counted: i64 = counters.map(|thread| thread.join().unwrap()).iter().sum();
        let (expected, left) = (groups.join().unwrap(), queue.join().unwrap());
        let generations = tables.join().unwrap();
        drop(raise);
        let [reads, more, snapshots, rounds] = others.map(|thread| thread.join().unwrap());
        let reads = reads + more;
        let said = format!(
            "{counted} increments, {generations} tables, {reads} reads, {snapshots} snapshots, {rounds} rounds \
             of maintenance"
        );
        (counted, expected, left, said)
    });
    let check = |db: &Db| {
        let picture = Picture::of(db);
        assert_eq!((picture.total(), &picture.rounds), (counted, &expected));
        let queue = ordered(db.table("Queue").unwrap().scan(KeyRange::all()).into_iter());
        assert_eq!(queue.len(), left);
        assert_eq!(db.tables().unwrap(), ["Counters", "Groups", "Queue"]);
        check_sound(db);
    };
    check(&world.db);
    let stat = |name: &str| world.db.stats().get(name).unwrap();
    let (flushes, compactions) = (stat("flushes"), stat("compactions"));
    crate::say(format!("soak: {said}, {flushes} flushes, {compactions} compactions"));
    world.db.sync().unwrap();
    let cut = fs.crash_image(5);
    check(&options(&cut, Background::Manual, io_mode).open("db").unwrap());
    world.db.clone().close().unwrap();
    check(&options(&fs, background, io_mode).open("db").unwrap());
}

#[test]
fn trap_17_soak_with_threads_and_maps() {
    soak(Background::Threads, IoMode::Mmap);
}

#[test]
fn trap_17_soak_with_threads_and_a_small_cache() {
    soak(Background::Threads, IoMode::Pread);
}

#[test]
fn trap_29_soak_with_steps_run_by_waiting_writers() {
    soak(Background::Manual, IoMode::Mmap);
}
