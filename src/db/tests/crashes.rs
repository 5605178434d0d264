//! Runs a fixed sequence of writes, with mixed durabilities, several logs and a dropped table. Then
//! interrupts this sequence by a power cut or a kill at every file operation, and interrupts the
//! recovery as well.

use std::collections::BTreeMap;

use super::*;
use crate::error::Result;
use crate::model::{ETag, Seq};
use crate::table::EntityGroup;

/// Value and ETag, by table and row key.
type Content = BTreeMap<(String, String), (i32, Seq)>;

/// A run on a recorded file system, with the content after each commit.
struct History {
    fs: MemFs,
    /// `states[n]` is the content after n commits.
    states: Vec<Content>,
    /// For each acknowledgement, the number of file operations before it, the number of commits up
    /// to it, and the durability.
    acknowledged: Vec<(u64, usize, Durability)>,
    last: Seq,
}

/// Returns a row so large that a few of them fill a memtable.
fn big(table: usize, key: usize, value: i32) -> Entity {
    Entity::new(format!("p{table}"), format!("{key:04}"))
        .with("V", value)
        .with("Filler", vec![value as u8; 9000])
}

/// Returns the content of all tables. It has an additional entry for each table, so that empty
/// tables are compared, too.
fn content(db: &Db) -> Result<Content> {
    let mut content = Content::new();
    for name in db.tables()? {
        content.insert((name.clone(), String::new()), (0, Seq::ZERO));
        for entity in db.table(&name)?.scan(KeyRange::all()) {
            let entity = entity?;
            let value = (entity.get("V")?, entity.etag().map_or(Seq::ZERO, ETag::seq_of));
            content.insert((name.clone(), entity.row_key().to_owned()), value);
        }
    }
    Ok(content)
}

trait SeqOf {
    fn seq_of(self) -> Seq;
}

impl SeqOf for ETag {
    fn seq_of(self) -> Seq {
        self.seq().unwrap()
    }
}

impl History {
    fn run() -> Self {
        let fs = MemFs::new();
        fs.record();
        let db = open(&fs);
        let mut history = History {
            fs: fs.clone(),
            states: vec![Content::new()],
            acknowledged: Vec::new(),
            last: Seq::ZERO,
        };
        let durabilities = [
            Durability::Buffered,
            Durability::Os,
            Durability::Os,
            Durability::Sync,
            Durability::Os,
        ];
        let tables = ["aaa", "bbb", "ccc"];
        for (i, name) in tables.iter().enumerate() {
            drop(db.create_table(name).unwrap());
            history.commit(Durability::Sync, |content| {
                content.insert(((*name).to_owned(), String::new()), (0, Seq::ZERO));
            });
            assert_eq!(history.states.len(), i + 2);
        }
        for i in 0..60usize {
            let durability = durabilities[i % durabilities.len()];
            let at = i % if i < 40 { 3 } else { 2 };
            let table = db.table(tables[at]).unwrap().with_durability(durability);
            let mut group = EntityGroup::new(format!("p{at}"));
            let keys = [i % 5, 100 + i % 7];
            for key in keys {
                group.upsert(big(at, key, i as i32)).unwrap();
            }
            let etag = table.commit(group).unwrap()[0].clone().unwrap().seq_of();
            assert!(etag > history.last);
            history.last = etag;
            history.commit(durability, |content| {
                for key in keys {
                    let key = (tables[at].to_owned(), format!("{key:04}"));
                    content.insert(key, (i as i32, etag));
                }
            });
            if i == 39 {
                db.delete_table("ccc").unwrap();
                history.commit(Durability::Sync, |content| {
                    content.retain(|(table, _), _| table != "ccc");
                });
            }
            if i % 4 == 3 {
                for _ in 0..i % 3 {
                    db.step(std::time::Duration::ZERO);
                }
            }
            if i % 25 == 24 {
                db.flush().unwrap();
                db.step(std::time::Duration::ZERO);
            }
        }
        db.close().unwrap();
        history.acknowledge(Durability::Sync);
        history
    }

    fn commit(&mut self, durability: Durability, change: impl FnOnce(&mut Content)) {
        let mut next = self.states.last().unwrap().clone();
        change(&mut next);
        self.states.push(next);
        self.acknowledge(durability);
    }

    fn acknowledge(&mut self, durability: Durability) {
        self.acknowledged.push((self.fs.ops(), self.states.len() - 1, durability));
    }

    /// Returns the minimum number of commits that survive if the run stops at operation `op` and
    /// commits with a lower durability than `durability` may be lost.
    fn floor(&self, op: u64, durability: Durability) -> usize {
        let counted =
            self.acknowledged.iter().filter(|(at, _, how)| *at <= op && *how >= durability);
        counted.map(|(_, commits, _)| *commits).max().unwrap_or(0)
    }

    /// Opens the image, and checks that it contains a prefix of the commits with at least `floor`
    /// commits.
    #[track_caller]
    fn check(&self, image: &MemFs, floor: usize, what: &str) -> (Db, Content) {
        let clock = Arc::new(ManualClock::new(NOW - 1_000_000_000));
        let db = options(image).clock(clock).open("db");
        let db = db.unwrap_or_else(|error| panic!("{what}: {}", error.chain()));
        let found = content(&db).unwrap_or_else(|error| panic!("{what}: {}", error.chain()));
        let commits = self.states[floor..].iter().position(|state| *state == found);
        assert!(commits.is_some(), "{what}: no prefix of at least {floor} commits");
        (db, found)
    }
}

/// Makes one more synced commit, and checks that its ETag is above all earlier ones. Returns the
/// content.
#[track_caller]
fn go_on(db: &Db, found: &Content, last: Seq, what: &str) -> Content {
    let table = db.table_or_create("more").unwrap();
    let seen = found.values().map(|(_, seq)| *seq).max().unwrap_or(Seq::ZERO);
    let etag = table.upsert(big(9, 1, 77)).unwrap().seq_of();
    assert!(etag > seen.max(last), "{what}: an ETag is used twice");
    content(db).unwrap()
}

#[test]
fn trap_54_mixed_durabilities_leave_no_hole_after_one_or_two_crashes() {
    let history = History::run();
    for op in history.fs.recorded() {
        // Two of three interruptions are power cuts, the others kills of the process.
        let is_power = op % 3 < 2;
        let what = format!("operation {op}");
        let (image, durability) = if is_power {
            (history.fs.crash_image_at(op, op).unwrap(), Durability::Sync)
        } else {
            (history.fs.kill_image_at(op).unwrap(), Durability::Os)
        };
        // Callers know the Seqs of acknowledged commits, even of commits that are lost now. No
        // later commit may have one of these Seqs.
        let seen = history.states[history.floor(op, Durability::Buffered)].values();
        let seen = seen.map(|(_, seq)| *seq).max().unwrap_or(Seq::ZERO);
        image.record();
        let (db, found) = history.check(&image, history.floor(op, durability), &what);
        let opened = image.ops();
        let more = go_on(&db, &found, seen, &what);
        // An interruption of the recovery must not lose acknowledged commits, either.
        let first = *image.recorded().start();
        let again = first + op % (opened - first + 1);
        let second = image.crash_image_at(again, op).unwrap();
        let floor = history.floor(op, Durability::Sync);
        history.check(&second, floor, &format!("{what}, again at {again}"));
        // The acknowledged commit above made everything before it durable.
        let db = open(&image.crash_image(op));
        assert_eq!(content(&db).unwrap(), more, "{what}, after one more commit");
    }
}

#[test]
fn trap_09_a_weak_drop_is_not_carried_out_before_it_is_durable() {
    let fs = MemFs::new();
    let db = options(&fs).durability(Durability::Buffered).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    for i in 0..20 {
        table.insert(row(i, 0)).unwrap();
    }
    db.flush().unwrap();
    db.delete_table("things").unwrap();
    while db.step(std::time::Duration::ZERO) {}
    for seed in 0..40 {
        let db = open(&fs.crash_image(seed));
        let rows = db.table("things").map(|table| table.scan(KeyRange::all()).into_iter().count());
        assert!(rows.is_err() || rows.unwrap() == 20, "seed {seed}: the table without its rows");
    }
}

#[test]
fn trap_18_the_seq_reservation_outlives_the_log_that_states_it() {
    let fs = MemFs::new();
    let db = options(&fs).durability(Durability::Os).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    let mut last = Seq::ZERO;
    for i in 0..12 {
        last = table.upsert(big(0, i, i as i32)).unwrap().seq_of();
    }
    // The flush removes the first log. The second log has only commits that were not synced.
    db.flush().unwrap();
    for i in 0..3 {
        last = table.upsert(big(0, i, i as i32)).unwrap().seq_of();
    }
    for seed in 0..40 {
        let image = fs.crash_image(seed);
        for life in 0..3 {
            let clock = Arc::new(ManualClock::new(NOW - 1_000_000_000));
            let db = options(&image).clock(clock).open("db").unwrap();
            if life == 2 {
                let table = db.table_or_create("things").unwrap();
                let etag = table.upsert(row(1, 1)).unwrap().seq_of();
                assert!(etag > last, "seed {seed}: {etag} was used before");
            }
            db.flush().unwrap();
            let next = image.crash_image(seed + life);
            drop(db);
            assert!(next.ops() < u64::MAX);
        }
    }
}
