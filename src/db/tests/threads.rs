//! Tests with concurrent threads of the application and of the database. If a thread misses its
//! wake-up, the test hangs.

#![expect(clippy::disallowed_methods, reason = "tests have threads of their own")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::*;
use crate::table::EntityGroup;

fn threaded(fs: &MemFs) -> Options {
    options(fs).background(Background::Threads)
}

#[test]
fn trap_19_each_key_has_exactly_one_winner_during_background_work() {
    let fs = MemFs::new();
    let db = threaded(&fs).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let reader = {
        let (db, table, done) = (db.clone(), table.clone(), Arc::clone(&done));
        std::thread::spawn(move || {
            let mut rounds = 0;
            while !done.load(Ordering::Acquire) || rounds == 0 {
                rounds += 1;
                read(&db, &table);
            }
        })
    };
    let wins = Arc::new(AtomicU64::new(0));
    let durabilities = [Durability::Sync, Durability::Os, Durability::Buffered, Durability::Sync];
    let writers: Vec<_> = (0..4)
        .map(|thread: i32| {
            let table = table.clone().with_durability(durabilities[thread as usize]);
            let wins = Arc::clone(&wins);
            std::thread::spawn(move || {
                for i in 0..400 {
                    let mut group = EntityGroup::new("p");
                    for half in ["a", "b"] {
                        let entity = Entity::new("p", format!("{i:04}{half}"));
                        let entity = entity.with("T", thread).with("F", vec![1; 500]);
                        group.insert(entity).unwrap();
                    }
                    match table.commit(group) {
                        Ok(_) => drop(wins.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::AlreadyExists),
                    }
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    done.store(true, Ordering::Release);
    reader.join().unwrap();
    assert_eq!(wins.load(Ordering::Relaxed), 400);
    db.compact().unwrap();
    read(&db, &table);
    db.close().unwrap();
    let db = open(&fs);
    assert_eq!(db.table("things").unwrap().scan(KeyRange::all()).into_iter().count(), 800);
    assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
}

/// Checks that both halves of a group are visible together, and that a snapshot does not change.
fn read(db: &Db, table: &crate::table::Table) {
    let halves = |entities: &[Entity]| {
        assert!(entities.len().is_multiple_of(2), "half a group");
        for pair in entities.chunks(2) {
            let thread = |i: usize| pair[i].get::<i32>("T").unwrap();
            assert_eq!(thread(0), thread(1));
            assert_eq!(pair[0].etag(), pair[1].etag());
        }
    };
    let all: Vec<Entity> = table.scan(KeyRange::all()).into_iter().map(Result::unwrap).collect();
    halves(&all);
    let snapshot = db.snapshot();
    let scan = || -> Vec<Entity> {
        table.at(&snapshot).scan(KeyRange::all()).into_iter().map(Result::unwrap).collect()
    };
    let first = scan();
    halves(&first);
    assert!(first.len() >= all.len());
    let second = scan();
    assert_eq!(first.len(), second.len());
    for entity in first.iter().step_by(37) {
        let got = table.get("p", entity.row_key()).unwrap().unwrap();
        assert_eq!(got.etag(), entity.etag());
    }
}

#[test]
fn trap_43_commits_of_other_threads_during_a_close_are_refused_or_kept() {
    for round in 0..60u32 {
        let fs = MemFs::new();
        let db = threaded(&fs).open("db").unwrap();
        let table = db.create_table("things").unwrap();
        let written = Arc::new(AtomicU64::new(0));
        let writers: Vec<_> = (0..3u32)
            .map(|thread| {
                let (table, written) = (table.clone(), Arc::clone(&written));
                std::thread::spawn(move || {
                    let mut kept = Vec::new();
                    for i in 0.. {
                        let key = thread * 1_000_000 + i;
                        let entity = row(key, 0).with("F", vec![1; 700]);
                        match table.insert(entity) {
                            Ok(_) => kept.push(key),
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
                                return kept;
                            }
                        }
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                    kept
                })
            })
            .collect();
        while written.load(Ordering::Relaxed) < u64::from(round * 10) {
            std::thread::yield_now();
        }
        db.close().unwrap();
        let kept: Vec<u32> = writers.into_iter().flat_map(|w| w.join().unwrap()).collect();
        drop(table);
        let db = open(&fs);
        assert_eq!(db.opened().torn, None);
        let table = db.table("things").unwrap();
        for key in kept {
            let found = table.get(&format!("p{}", key % 7), &format!("{key:06}")).unwrap();
            assert!(found.is_some(), "{key} was acknowledged");
        }
    }
}

#[test]
fn trap_29_writers_wait_for_room_while_another_thread_flushes() {
    let fs = MemFs::new();
    let db = threaded(&fs).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let flusher = {
        let (db, done) = (db.clone(), Arc::clone(&done));
        std::thread::spawn(move || {
            while !done.load(Ordering::Acquire) {
                db.flush().unwrap();
            }
        })
    };
    let writers: Vec<_> = (0..3u32)
        .map(|thread| {
            let table = table.clone().with_durability(Durability::Buffered);
            std::thread::spawn(move || {
                for i in 0..400 {
                    table.upsert(row(thread * 1000 + i, 0).with("F", vec![1; 9000])).unwrap();
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    done.store(true, Ordering::Release);
    flusher.join().unwrap();
    db.close().unwrap();
}

#[test]
fn trap_11_tables_are_dropped_under_flushes_and_compactions() {
    let fs = MemFs::new();
    let db = threaded(&fs).open("db").unwrap();
    let kept = db.create_table("kept").unwrap();
    let work: Vec<_> = (0..2u32)
        .map(|thread| {
            let (db, kept) = (db.clone(), kept.clone());
            std::thread::spawn(move || {
                for life in 0..20 {
                    let name = format!("t{thread}x{life}");
                    let table = db.create_table(&name).unwrap();
                    for i in 0..40 {
                        table.upsert(row(i, life).with("F", vec![1; 3000])).unwrap();
                        kept.upsert(row(thread * 1000 + i, life)).unwrap();
                    }
                    db.delete_table(&name).unwrap();
                }
            })
        })
        .collect();
    let compactor = {
        let db = db.clone();
        std::thread::spawn(move || (0..20).for_each(|_| db.compact().unwrap()))
    };
    work.into_iter().for_each(|thread| thread.join().unwrap());
    compactor.join().unwrap();
    db.compact().unwrap();
    assert_eq!(kept.scan(KeyRange::all()).into_iter().count(), 80);
    db.close().unwrap();
    let db = open(&fs);
    assert_eq!(db.tables().unwrap(), ["kept"]);
    while db.step(Duration::ZERO) {}
    db.flush().unwrap();
    while db.step(Duration::ZERO) {}
    assert_eq!(db.verify().unwrap().problems, Vec::<String>::new());
    assert!(db.stats().get("file_bytes").unwrap() < 100_000, "{:?}", db.stats());
}

/// The number of threads that the database has started.
fn started(db: &Db) -> usize {
    db.engine.maintenance().executor.threads()
}

/// Writes a database that has a table to reclaim and a file to join the run, and closes it.
fn closed() -> MemFs {
    let fs = MemFs::new();
    let db = open(&fs);
    db.create_table("dropped").unwrap().upsert(row(1, 0)).unwrap();
    let table = db.create_table("things").unwrap();
    (0..20).for_each(|i| drop(table.upsert(row(i, 0)).unwrap()));
    db.flush().unwrap();
    db.delete_table("dropped").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    fs
}

fn read_some(db: &Db) {
    let table = db.table("things").unwrap();
    assert!(table.get("p1", "000001").unwrap().is_some());
    assert_eq!(table.scan(KeyRange::all()).into_iter().count(), 20);
}

#[test]
fn a_clean_opening_starts_no_thread_before_the_first_write() {
    for (background, at_least) in [(Background::Threads, 2), (Background::OneThread, 1)] {
        let fs = closed();
        let db = options(&fs).background(background).open("db").unwrap();
        read_some(&db);
        assert_eq!(started(&db), 0);
        let insert = db.table("things").unwrap().insert(row(1, 1));
        assert_eq!(insert.unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(started(&db), 0, "a refused write needs no background work");
        db.table("things").unwrap().upsert(row(1, 1)).unwrap();
        assert!(started(&db) >= at_least, "{background:?}");
        db.clone().close().unwrap();
        assert_eq!(started(&db), 0);
        // Nothing was written: a close has no thread to wait for.
        let db = options(&fs).background(background).open("db").unwrap();
        db.close().unwrap();
        // A copy made before a close is recovered, which is background work.
        let db = options(&fs).background(background).open("db").unwrap();
        db.table("things").unwrap().upsert(row(2, 1)).unwrap();
        let killed = options(&fs.crash_image(1)).background(background).open("db").unwrap();
        assert!(started(&killed) >= at_least, "{background:?}");
    }
}

#[test]
fn a_late_read_after_a_clean_opening_starts_the_background_work_that_is_due() {
    for background in [Background::Threads, Background::OneThread] {
        let (fs, clock) = (closed(), Arc::new(ManualClock::new(NOW + 1_000_000)));
        let options = options(&fs).background(background).clock(Arc::clone(&clock) as _);
        let db = options.open("db").unwrap();
        let files = db.stats().get("files").unwrap();
        assert!(db.engine.reader().has_drops());
        clock.advance(Duration::from_secs(9));
        read_some(&db);
        assert_eq!(started(&db), 0);
        clock.advance(Duration::from_secs(2));
        read_some(&db);
        assert!(started(&db) > 0);
        // Nothing else wakes the threads: no write, and no signal of this test.
        db.engine.maintenance().executor.wait_idle();
        assert!(!db.engine.reader().has_drops(), "the dropped table is reclaimed");
        assert!(db.stats().get("files").unwrap() <= files);
        db.close().unwrap();
    }
}

#[test]
fn waiting_for_background_work_after_a_clean_opening_starts_it() {
    let fs = closed();
    let db = threaded(&fs).open("db").unwrap();
    assert_eq!(started(&db), 0);
    db.wait_idle().unwrap();
    assert!(started(&db) > 0 && !db.engine.reader().has_drops());
}
