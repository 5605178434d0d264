//! Write amplification of rowstone beside RocksDB: the same loads, equal write buffers, one process.
//!
//! README.md beside it says how to run it and how RocksDB is set up.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock and pauses")]

#[path = "../../ranges/amplification.rs"]
mod amplification;
mod rocksdb;

use std::path::{Path, PathBuf};
use std::time::Instant;

use rowstone::fs::{DiskFs, Fs};

use amplification::{Load, MEMTABLE_BYTES, Written, drive, key, process_written, row_bytes};
use rocksdb::Rocks;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Some(dir) = arguments.next().map(PathBuf::from) else {
        eprintln!("usage: rowstone-compare DIR [WORD]");
        std::process::exit(2);
    };
    let word = arguments.next().unwrap_or_default();
    std::fs::create_dir_all(&dir).expect("a directory that can be written");
    let kind = DiskFs::new().kind(&dir);
    println!("file system: {kind}");
    assert!(!matches!(kind.as_str(), "tmpfs" | "ramfs"), "{} is in memory", dir.display());

    let times = std::env::var("TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(10);
    let row_bytes = row_bytes();
    for load in Load::all(times * MEMTABLE_BYTES as u64, row_bytes) {
        if !load.name.contains(&word) {
            continue;
        }
        let Load { writes, keys, .. } = load;
        println!("{}: {writes} writes of {row_bytes} bytes, {keys} keys", load.name);
        let raw = writes * row_bytes;
        let own = dir.join(format!("{}-rowstone", load.name));
        drive(&own, &load, false).print("rowstone", &load, raw);
        let peer = dir.join(format!("{}-rocksdb", load.name));
        drive_peer(&peer, &load, row_bytes).print("RocksDB", &load, raw);
    }
}

/// Drives RocksDB in `dir` through `load`, with keys and values of `row_bytes` together.
fn drive_peer(dir: &Path, load: &Load, row_bytes: u64) -> Written {
    let rocks = Rocks::open(dir, MEMTABLE_BYTES);
    let (before, start) = (process_written(), Instant::now());
    let mut value = Vec::new();
    load.each(|number, note| {
        let (partition, row) = key(number);
        let key = format!("{partition}\0{row}");
        value.clear();
        value.extend(note.iter().chain(&note[..]).take(row_bytes as usize - key.len()));
        rocks.put(key.as_bytes(), &value);
    });
    let loading = start.elapsed();
    rocks.flush();
    let resting = rocks.rest();
    let process = before.and_then(|before| Some(process_written()? - before));
    let of = |name| rocks.ticker(name);
    let (bytes, rows) = (c"rocksdb.total-sst-files-size", c"rocksdb.estimate-num-keys");
    println!(
        "  RocksDB: about {} rows, {:.0} MB at rest; {:.1} s of stalls",
        rocks.property(rows),
        rocks.property(bytes) as f64 / 1e6,
        of("rocksdb.stall.micros") as f64 / 1e6,
    );
    Written {
        log: of("rocksdb.wal.bytes"),
        flush: of("rocksdb.flush.write.bytes"),
        compaction: of("rocksdb.compact.write.bytes"),
        process,
        loading,
        resting,
    }
}
