//! Tests several threads on one database: exactly one of several concurrent inserts of a key
//! succeeds, groups are visible as a whole, and ETags only grow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rowstone::fs::MemFs;
use rowstone::{Db, Durability, Entity, EntityGroup, ErrorKind, KeyRange, clock::ManualClock};

use rowstone::retry::Rng;
use rowstone::sim::engine::START;
use rowstone::sim::row::ticks;

const THREADS: u64 = 8;

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn open(fs: &MemFs, clock: &Arc<ManualClock>) -> Db {
    let options = Db::options().fs(Arc::new(fs.clone())).clock(clock.clone());
    options.memtable_bytes(64 << 10).open("db").unwrap()
}

#[test]
fn trap_19_inserts_of_the_same_keys_have_one_winner_each() {
    const KEYS: u64 = 500;
    let db = open(&MemFs::new(), &Arc::new(ManualClock::new(START)));
    let table = db.create_table("Races").unwrap();
    let won = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (table, won) = (table.clone(), &won);
            scope.spawn(move || {
                let mut rng = Rng::from_seed(thread);
                let mut keys: Vec<u64> = (0..KEYS).collect();
                for at in (1..keys.len()).rev() {
                    keys.swap(at, rng.index(at + 1));
                }
                for key in keys {
                    let entity = Entity::new(format!("p{}", key % 5), format!("r{key:04}"));
                    match table.insert(entity.with("By", thread as i64)) {
                        Ok(_) => drop(won.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error:?}")
                        }
                    }
                }
            });
        }
    });
    // This load is atomic, because the sanitizer does not see how a scope waits for its threads.
    assert_eq!(won.load(Ordering::Relaxed), KEYS);
    assert_eq!(table.scan(KeyRange::all()).into_iter().count() as u64, KEYS);
    db.close().unwrap();
}

#[test]
fn counters_lose_no_increment() {
    let db = open(&MemFs::new(), &Arc::new(ManualClock::new(START)));
    let table = db.create_table("Counters").unwrap();
    table.insert(Entity::new("p", "n").with("Count", 0i64)).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut done = 0;
                while done < 50 {
                    let mut entity = table.get("p", "n").unwrap().expect("inserted above");
                    let etag = entity.etag().expect("read from a table");
                    let count: i64 = entity.get("Count").unwrap();
                    entity.set("Count", count + 1);
                    match table.replace_if(entity, etag) {
                        Ok(_) => done += 1,
                        Err(error) => assert_eq!(error.kind(), ErrorKind::PreconditionFailed),
                    }
                }
            });
        }
    });
    let count: i64 = table.get("p", "n").unwrap().unwrap().get("Count").unwrap();
    assert_eq!(count, 200);
    db.close().unwrap();
}

#[test]
fn trap_17_groups_are_seen_whole_by_readers() {
    let db = open(&MemFs::new(), &Arc::new(ManualClock::new(START)));
    let table = db.create_table("Groups").unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            // Set even if the writer panics; otherwise the readers would never end.
            let _done = SetOnDrop(&done);
            for round in 0..400i64 {
                let mut group = EntityGroup::new("p");
                for row in 0..10 {
                    let note = "x".repeat((round % 200) as usize);
                    let entity = Entity::new("p", format!("r{row}")).with("Round", round);
                    group.upsert(entity.with("Note", note)).unwrap();
                }
                let durability = [Durability::Sync, Durability::Os, Durability::Buffered];
                table.commit_with(group, durability[round as usize % 3]).unwrap();
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut newest = -1;
                while !done.load(Ordering::Acquire) {
                    let rounds: Vec<i64> = table
                        .scan(KeyRange::partition("p"))
                        .into_iter()
                        .map(|entity| entity.unwrap().get("Round").unwrap())
                        .collect();
                    assert!(rounds.windows(2).all(|pair| pair[0] == pair[1]), "{rounds:?}");
                    assert!(rounds.is_empty() || rounds.len() == 10, "{rounds:?}");
                    let seen = rounds.first().copied().unwrap_or(-1);
                    assert!(seen >= newest, "round {seen} after {newest}");
                    newest = seen;
                }
            });
        }
        writer.join().unwrap();
    });
    db.close().unwrap();
}

/// The clock jumps forward and back while the database is not open. Each opening ends with a close,
/// a kill or a power cut.
#[test]
fn trap_18_trap_35_tags_grow_over_reopenings_under_a_clock_that_jumps() {
    let clock = Arc::new(ManualClock::new(START));
    let mut fs = MemFs::new();
    let mut newest = 0;
    let mut rng = Rng::from_seed(18);
    for round in 0..200u64 {
        clock.jump(START / 2 + rng.next_u64() % START);
        let db = open(&fs, &clock);
        let table = db.table_or_create("Tags").unwrap();
        for write in 0..5 {
            let durability = *rng.pick(&[Durability::Sync, Durability::Os, Durability::Buffered]);
            let mut group = EntityGroup::new("p");
            group
                .upsert(Entity::new("p", format!("r{write}")).with("Round", round as i64))
                .unwrap();
            let etag = table.commit_with(group, durability).unwrap()[0].clone().unwrap();
            let etag = ticks(etag);
            assert!(etag > newest, "round {round}: {etag} after {newest}");
            newest = etag;
            clock.jump(START / 2 + rng.next_u64() % START);
        }
        match rng.index(3) {
            0 => db.close().unwrap(),
            1 => fs = fs.kill_image(),
            _ => fs = fs.crash_image(round),
        }
    }
}
