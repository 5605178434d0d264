//! Measures large deletions: the drop of a partition, the drop of a table, and a queue whose
//! entities are deleted one by one.

use std::path::Path;
use std::time::{Duration, Instant};

use rowstone::{Db, Durability, Entity, KeyRange, Options};

use super::amplification::{pause, rest};
use super::{PARTITIONS, load_shuffled, partition_key, stat};

/// The maximum time to wait until space is reclaimed. A quick run waits a tenth of it.
const RECLAIM_MAX: Duration = Duration::from_secs(120);
/// The number of entities in the queue.
const WINDOW: u64 = 10_000;
/// The number of inserts and deletes between two reads of the head of the queue.
const LOOK_EACH: u64 = 250;
const JOB: &str = "resize /pictures/2024/07/harbour.jpeg to 640 by 480 and tell frontend-3";

/// A call that deletes many rows.
struct Called {
    start: Instant,
    took: Duration,
    /// The maximum time to wait for the space to be reclaimed.
    most: Duration,
}

/// Drops a partition with a tenth of a table's rows, then the whole table. For each drop, prints
/// the time of the call and the time until the space is reclaimed.
pub fn drops(dir: &Path, quick: bool) {
    let rows = if quick { 500_000 } else { 5_000_000 };
    let path = dir.join("drop");
    let db = Db::options().durability(Durability::Os).open(&path).expect("room on the disk");
    let table = db.create_table("Dropped").expect("a new database");
    load_shuffled(&table, rows, Duration::MAX);
    db.flush().expect("room on the disk");
    rest(&db);
    let before = stat(&db, "file_bytes");
    let files = stat(&db, "files");
    let most = if quick { RECLAIM_MAX / 10 } else { RECLAIM_MAX };
    let reclaimed = |what, took, start, enough| {
        let start = Called { start, took, most };
        reclaimed(&db, &path, what, &start, enough);
    };
    println!("drop: {rows} entities in random order, {files} files, {} MB", before / 1_000_000);

    let start = Instant::now();
    table.delete_partition(&partition_key(3)).expect("the disk works");
    let took = start.elapsed();
    let left = table.scan(KeyRange::all()).count().expect("a sound database");
    assert_eq!(left, rows - rows / PARTITIONS);
    // Requires only nine tenths of the partition's space back, because the partition shares its
    // first and last blocks with its neighbours.
    let enough = before - before / PARTITIONS * 9 / 10;
    reclaimed("a partition of a tenth", took, start, enough);
    rest(&db);

    drop(table);
    let start = Instant::now();
    db.delete_table("Dropped").expect("the disk works");
    let took = start.elapsed();
    reclaimed("the table with the rest", took, start, before / 100);
    db.close().expect("nothing keeps it from closing");
}

/// Waits until the table files have at most `enough` bytes: first according to the manifest, then
/// in the directory. Prints both times.
fn reclaimed(db: &Db, path: &Path, what: &str, called: &Called, enough: u64) {
    let Called { start, took, most } = *called;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let until = |of: &dyn Fn() -> u64| {
        while of() > enough {
            if start.elapsed() > most {
                return format!("NOT within {:.0} s", most.as_secs_f64());
            }
            pause(Duration::from_millis(1));
        }
        format!("after {:.1} ms", ms(start.elapsed()))
    };
    let compacted = stat(db, "compaction_bytes");
    let in_manifest = until(&|| stat(db, "file_bytes"));
    let on_disk = until(&|| table_bytes(path));
    let compacted = stat(db, "compaction_bytes") - compacted;
    println!(
        "drop of {what}: {:.2} ms; file_bytes back {in_manifest}, unlinked {on_disk}, {:.1} MB rewritten for it; \
         {} MB left",
        ms(took),
        compacted as f64 / 1e6,
        stat(db, "file_bytes") / 1_000_000,
    );
}

/// Returns the bytes of the table files in a directory.
fn table_bytes(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).expect("it is there").filter_map(Result::ok);
    let tables = entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "sst"));
    tables.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

/// Inserts at the end and deletes at the head of a queue, and times reading the head.
pub fn queues(dir: &Path, quick: bool) {
    let rows = if quick { 300_000 } else { 1_000_000 };
    let default = Db::options();
    queue(default.clone(), &dir.join("queue"), rows, "default memtables");
    let small = default.memtable_bytes(4 << 20);
    queue(small, &dir.join("queue-small"), rows, "memtables of 4 MiB");
}

/// The measurements of one tenth of the run.
#[derive(Default)]
struct Tenth {
    heads: Vec<Duration>,
    file_bytes: u64,
    tombstones: u64,
    sources: u64,
}

fn queue(options: Options, path: &Path, rows: u64, name: &str) {
    let db = options.durability(Durability::Os).open(path).expect("room on the disk");
    let table = db.create_table("Queue").expect("a new database");
    let key = |i: u64| ("queue", format!("{i:012}"));
    let insert = |i: u64| {
        let (partition, row) = key(i);
        let row = Entity::new(partition, row).with("Sequence", i as i64).with("Job", JOB);
        table.insert(row).expect("a new key");
    };
    (0..WINDOW).for_each(insert);
    let (mut tenths, start) = (Vec::new(), Instant::now());
    for part in 0..10 {
        let mut tenth = Tenth::default();
        for i in rows / 10 * part..rows / 10 * (part + 1) {
            insert(i + WINDOW);
            let (partition, row) = key(i);
            table.delete(partition, &row).expect("it is there");
            if i % LOOK_EACH == 0 {
                let begin = Instant::now();
                let head = table.scan(KeyRange::partition(partition)).top(1).into_iter().next();
                tenth.heads.push(begin.elapsed());
                let head = head.expect("a window of them").expect("a sound database");
                assert_eq!(head.row_key(), key(i + 1).1);
            }
        }
        tenth.heads.sort_unstable();
        tenth.file_bytes = stat(&db, "file_bytes");
        tenth.tombstones = stat(&db, "tombstones");
        tenth.sources = stat(&db, "sources_max");
        tenths.push(tenth);
    }
    let rate = rows as f64 / start.elapsed().as_secs_f64();
    println!("queue, {name}: {rows} through a window of {WINDOW}, {rate:.0} pairs/s");
    for (part, tenth) in tenths.iter().enumerate().filter(|(part, _)| [0, 4, 9].contains(part)) {
        let us = |of: f64| {
            let place = (tenth.heads.len() as f64 * of) as usize;
            tenth.heads[place.min(tenth.heads.len() - 1)].as_secs_f64() * 1e6
        };
        println!(
            "  tenth {}: head read p50 {:.1}, p99 {:.1}, max {:.0} us; {:.1} MB of files, {} tombstones, {} sources",
            part + 1,
            us(0.5),
            us(0.99),
            us(1.0),
            tenth.file_bytes as f64 / 1e6,
            tenth.tombstones,
            tenth.sources,
        );
    }
    db.flush().expect("room on the disk");
    rest(&db);
    let (bytes, tombstones) = (stat(&db, "file_bytes") as f64 / 1e6, stat(&db, "tombstones"));
    println!("  at rest: {bytes:.1} MB of files, {tombstones} tombstones");
    drop(table);
    db.close().expect("nothing keeps it from closing");
}
