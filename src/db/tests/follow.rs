//! Tests that read-only readers and followers see the right state while a writer changes the
//! database, on one memory file system.

use std::collections::BTreeMap;

use super::*;
use crate::db::Follower;
use crate::error::Result;
use crate::fs::{Fault, FaultFs, FaultKind, OpKind};
use crate::options::IoMode;
use crate::rng::Rng;

fn follow(fs: &MemFs) -> Follower {
    options(fs).follow("db").unwrap()
}

/// Returns every entity's version, by table and row key.
fn state(db: &Db) -> BTreeMap<(String, String), i32> {
    let mut state = BTreeMap::new();
    for name in db.tables().unwrap() {
        for entity in db.table(&name).unwrap().scan(KeyRange::all()) {
            let entity = entity.unwrap();
            let key = (name.clone(), entity.row_key().to_owned());
            state.insert(key, entity.get::<i32>("V").unwrap());
        }
    }
    state
}

#[test]
fn a_reader_refuses_every_write_and_changes_nothing() {
    let fs = MemFs::new();
    let db = open(&fs);
    let table = db.create_table("things").unwrap();
    for i in 0..300 {
        table.insert(row(i, 0)).unwrap();
    }
    db.flush().unwrap();
    for i in (0..300).step_by(2) {
        table.replace(row(i, 1)).unwrap();
    }
    fs.set_read_only(true);
    let (paths, ops) = (fs.paths(), fs.ops());
    let reader = options(&fs).open_read_only("db").unwrap();
    assert_eq!(state(&reader), state(&db));
    let things = reader.table("things").unwrap();
    let refused = |result: Result<()>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("read only"), "{error}");
    };
    refused(things.insert(row(999, 0)).map(drop));
    refused(things.clone().with_durability(Durability::Buffered).upsert(row(1, 7)).map(drop));
    refused(things.delete("p1", "000001").map(drop));
    refused(things.delete_range(&KeyRange::all()));
    refused(reader.create_table("other").map(drop));
    refused(reader.delete_table("things"));
    refused(reader.flush());
    refused(reader.compact());
    refused(reader.sync());
    refused(reader.checkpoint("copy"));
    refused(reader.set_ttl("things", Some(std::time::Duration::from_secs(9))));
    assert!(!reader.step(std::time::Duration::ZERO));
    assert_eq!(reader.verify().unwrap().problems, Vec::<String>::new());
    assert_eq!(state(&reader), state(&db));
    reader.close().unwrap();
    assert_eq!((fs.paths(), fs.ops()), (paths, ops));
    fs.set_read_only(false);
    table.insert(row(999, 0)).unwrap();
}

#[test]
fn a_reader_of_a_missing_database_creates_nothing() {
    let fs = MemFs::new();
    let error = options(&fs).open_read_only("db").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(fs.paths(), Vec::<String>::new());
}

#[test]
fn an_empty_path_is_refused() {
    let fs = MemFs::new();
    let error = options(&fs).open("").unwrap_err();
    assert!(error.to_string().contains("the path of the database is empty"), "{error}");
    assert_eq!(fs.paths(), Vec::<String>::new());
}

/// Does one random step as a writer. The steps include all operations that move rows: commits of
/// all durabilities, flushes, compactions, deletions, reopenings and kills.
fn random_step(db: &mut Option<Db>, fs: &MemFs, rng: &mut Rng, version: u32) {
    let now = db.take().unwrap_or_else(|| open(fs));
    let table = now.table_or_create("things").unwrap();
    let durability = [Durability::Buffered, Durability::Os, Durability::Sync];
    for _ in 0..rng.below(12) {
        let durability = durability[rng.below(3) as usize];
        let row = row(rng.below(200) as u32, version);
        let table = table.clone().with_durability(durability);
        table.upsert(row).unwrap();
    }
    match rng.below(14) {
        0 => drop(now.flush()),
        1 => now.compact().unwrap(),
        2 => table.delete_range(&KeyRange::partition(format!("p{}", rng.below(7)))).unwrap(),
        3 => now.delete_table("things").unwrap(),
        4 => return now.close().unwrap(),
        5 => now.sync().unwrap(),
        // Models a kill of the process: only data handed to the operating system is kept.
        6 => return std::mem::forget(now),
        _ => while now.step(std::time::Duration::ZERO) {},
    }
    *db = Some(now);
}

#[test]
fn a_follower_shows_only_commits_that_survive_a_power_cut() {
    for seed in 0..12 {
        let mut rng = Rng::from_seed(seed);
        let fs = MemFs::new();
        let mut db = Some(open(&fs));
        drop(db.as_ref().map(|db| db.sync()));
        let follower = follow(&fs);
        let mut shown = Vec::new();
        for step in 0..60 {
            random_step(&mut db, &fs, &mut rng, step);
            if db.is_none() {
                // A killed process holds no lock.
                fs.kill_locks();
            }
            follower.refresh().unwrap();
            let (followed, seq) = (follower.db(), follower.db().snapshot().seq());
            let image = fs.crash_image(rng.next_u64());
            let recovered = open(&image);
            assert!(recovered.snapshot().seq() >= seq, "seed {seed}, step {step}");
            // The recovered database may have additional commits that were not durable. If it has
            // none, it shows the same state as the follower.
            if recovered.snapshot().seq() == seq {
                assert_eq!(state(&recovered), state(&followed), "seed {seed}, step {step}");
            }
            // If no process has the database open for writing, a read-only database shows what an
            // opening for writing would show.
            let expected = db.is_none().then(|| open(&fs.kill_image()));
            let fresh = options(&fs).open_read_only("db").unwrap();
            let expected = state(expected.as_ref().unwrap_or(&followed));
            assert_eq!(state(&fresh), expected, "seed {seed}, step {step}");
            shown.push((state(&followed), followed));
            if let Some(db) = &db {
                db.sync().unwrap();
                assert!(follower.refresh().unwrap() || state(db) == state(&follower.db()));
                assert_eq!(state(db), state(&follower.db()), "seed {seed}, step {step}");
            }
            // A state that was shown before has not changed.
            let past = &shown[rng.below(shown.len() as u64) as usize];
            assert_eq!(past.0, state(&past.1), "seed {seed}, step {step}");
        }
    }
}

#[test]
fn a_follower_of_another_database_in_the_same_place_says_so() {
    let fs = MemFs::new();
    let db = open(&fs);
    db.create_table("things").unwrap();
    let follower = follow(&fs);
    db.close().unwrap();
    options(&fs).seed(8).open("other").unwrap().close().unwrap();
    for name in fs.paths().iter().filter(|path| path.starts_with("db/")) {
        fs.erase(name).unwrap();
    }
    for name in fs.paths().iter().filter(|path| path.starts_with("other/")) {
        fs.write(name.replace("other/", "db/"), &fs.read(name).unwrap()).unwrap();
    }
    let error = follower.refresh().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ChangesLost, "{error}");
    assert_eq!(follower.db().tables().unwrap(), ["things"]);
}

/// If a refresh fails after reading new commits, the next one shows them.
#[test]
fn commits_of_a_failed_refresh_are_shown_by_the_next() {
    let mut failed = 0;
    for nth in 0..40 {
        let fs = MemFs::new();
        let db = open(&fs);
        db.create_table("first").unwrap();
        let faulty = FaultFs::new(Arc::new(fs.clone()));
        let readers = options(&fs).fs(Arc::new(faulty.clone())).io_mode(IoMode::Pread);
        let follower = readers.cache_bytes(0).follow("db").unwrap();
        db.create_table("second").unwrap();
        db.flush().unwrap();
        faulty.arm(Fault::new(FaultKind::Eio).on(OpKind::Read).nth(nth));
        let refreshed = follower.refresh();
        if refreshed.is_err() {
            failed += 1;
            assert!(follower.refresh().unwrap(), "{nth}");
        }
        assert!(follower.db().table("second").is_ok(), "{nth}: {refreshed:?}");
    }
    assert!(failed > 2, "{failed}");
}
