//! Lists the rows of the report: the title, unit and physical limit of each.
//!
//! Invariants
//! * names are unique: results refer to them;
//! * every row belongs to the session that measures it, in one child process.
//!
//! Not here: measuring rows (`workloads/`), showing them (`report/`).

use serde::{Deserialize, Serialize};

/// The work of one child process: its own database and the rows measured on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Session {
    /// A new database for each way of loading.
    Load,
    /// A new database on which commits, inserts and a queue are measured.
    Commit,
    /// One database, loaded in random order. It serves reads, then updates, mixes of operations and
    /// the drop of a tenth; at the end it is reopened.
    Serve,
    /// Loads the database that `Cold` reads. The load runs outside the memory limit of `Cold`.
    ColdLoad,
    Cold,
    Amplification,
    Compressed,
    Growth,
    Flights,
    /// Merges into sheets, which are entities with many or with large properties.
    Sheets,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    OpsPerSecond,
    EntitiesPerSecond,
    Milliseconds,
    Microseconds,
    BytesPerEntity,
    /// Bytes per byte.
    Times,
}

/// The physical limit of a row: the least work that the machine must do for one result. The report
/// shows rowstone's share of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Writes the raw bytes of the entities sequentially.
    Write,
    /// Syncs once for this many entities, which one group or concurrent commits write.
    Sync(u64),
    /// Makes one dependent access to memory for each operation, on this many threads.
    Access(u64),
    /// Reads the raw bytes of the entities from memory, once.
    Memory,
    /// Like `Access`, in a memory region as large as the raw bytes of the row's entities. If that
    /// was not measured, a region of 4 GiB is used.
    SizedAccess,
    /// The time of one dependent access to memory.
    AccessTime,
    /// Reads the raw bytes of this many entities from memory for each operation.
    MemoryRange(u64),
    /// Syncs once for the whole row.
    OneSync,
    /// Opens, reads and closes this many small files.
    Files(u64),
    /// Reads one random page of the disk for each operation, on this many threads.
    RandomRead(u64),
    /// Reads one random page of the disk for this many entities.
    RandomRange(u64),
    /// Reads the raw bytes of the entities sequentially from the disk.
    Read,
    /// Computes CRC-32 over the raw bytes of the entities, once.
    Checksum,
    /// Encodes the raw bytes with zstd, at the level of rowstone's files.
    Compress,
    /// Decodes the raw bytes with zstd.
    Decompress,
    /// Writes each raw byte exactly once (a write amplification of 1).
    Once,
    /// Compressed bytes per entity, if zstd compresses many entities as one piece.
    Entropy,
    /// Compressed bytes per flight, if zstd compresses all flights as one piece.
    FlightEntropy,
}

pub struct Row {
    pub name: &'static str,
    pub title: &'static str,
    pub group: &'static str,
    pub session: Session,
    pub unit: Unit,
    pub bound: Bound,
    /// Whether the other engines are measured with each of their encodings, or only with the
    /// fastest.
    pub all_encodings: bool,
    /// The row whose best peer rowstone is compared with. It is set if the other engines lack the
    /// interface that this row measures.
    pub peer_row: Option<&'static str>,
}

impl Session {
    /// Returns the name in reports.
    pub fn text(self) -> &'static str {
        match self {
            Session::Load => "loads",
            Session::Commit => "commits, inserts, queue",
            Session::Serve => "reads, updates, mixes, drop, opening",
            Session::ColdLoad => "load for larger than memory",
            Session::Cold => "larger than memory",
            Session::Amplification => "random fill",
            Session::Compressed => "compressed at rest",
            Session::Growth => "growth",
            Session::Flights => "real flights",
            Session::Sheets => "wide and large entities (fewer entities)",
        }
    }
}

impl Unit {
    pub fn higher_is_better(self) -> bool {
        matches!(self, Unit::OpsPerSecond | Unit::EntitiesPerSecond)
    }

    pub fn text(self) -> &'static str {
        match self {
            Unit::OpsPerSecond => "ops/s",
            Unit::EntitiesPerSecond => "entities/s",
            Unit::Milliseconds => "ms",
            Unit::Microseconds => "µs",
            Unit::BytesPerEntity => "bytes/entity",
            Unit::Times => "times",
        }
    }
}

const fn row(
    session: Session,
    group: &'static str,
    name: &'static str,
    title: &'static str,
    unit: Unit,
    bound: Bound,
) -> Row {
    Row { name, title, group, session, unit, bound, all_encodings: false, peer_row: None }
}

const fn both(row: Row) -> Row {
    Row { all_encodings: true, ..row }
}

const fn against(row: Row, name: &'static str) -> Row {
    Row { peer_row: Some(name), ..row }
}

/// Returns the row of this name.
pub fn find(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.name == name)
}

use Session::{Amplification, Cold, Commit, Compressed, Flights, Growth, Load, Serve, Sheets};
use Unit::{BytesPerEntity, EntitiesPerSecond, Microseconds, Milliseconds, OpsPerSecond, Times};

const LOADS: &str = "Loads";
const COMMITS: &str = "Durable single commits";
/// No peer has these operations, so the rows are not counted.
const TICKETS: &str = "Durable commits in flight by one thread, without a counterpart";
const CONDITIONS: &str = "Conditions and updates";
const POINTS: &str = "Point reads, all in memory";
const RANGES: &str = "Ranges, scans and filters, all in memory";
const YCSB: &str = "YCSB, zipfian, one thread";
const CONCURRENT: &str = "Reads with a concurrent writer";
const LIFE: &str = "Queue, drop, opening";
const COLD: &str = "Ten times larger than memory";
const SPACE: &str = "Space and writes";
const REST: &str = "Compressed at rest";
const GROWTH: &str = "Growth";
const REAL: &str = "Real flights";

pub static ROWS: &[Row] = &[
    both(row(
        Load,
        LOADS,
        "load-ascending",
        "single puts, ascending, os",
        OpsPerSecond,
        Bound::Write,
    )),
    row(Load, LOADS, "load-random", "single puts, random, os", OpsPerSecond, Bound::Write),
    both(row(
        Load,
        LOADS,
        "load-groups",
        "groups of 100, ascending, os",
        EntitiesPerSecond,
        Bound::Write,
    )),
    row(
        Load,
        LOADS,
        "load-groups-random",
        "groups of 100, partitions random, os",
        EntitiesPerSecond,
        Bound::Write,
    ),
    both(row(
        Load,
        LOADS,
        "load-bulk",
        "bulk load, random, durable at its end",
        EntitiesPerSecond,
        Bound::Write,
    )),
    row(
        Load,
        LOADS,
        "load-ascending-sync",
        "single puts, ascending, sync",
        OpsPerSecond,
        Bound::Sync(1),
    ),
    row(Load, LOADS, "load-random-sync", "single puts, random, sync", OpsPerSecond, Bound::Sync(1)),
    row(
        Load,
        LOADS,
        "load-groups-sync",
        "groups of 100, ascending, sync",
        EntitiesPerSecond,
        Bound::Sync(100),
    ),
    row(Commit, COMMITS, "commits-1", "1 in flight", OpsPerSecond, Bound::Sync(1)),
    row(Commit, COMMITS, "commits-4", "4 in flight, by threads", OpsPerSecond, Bound::Sync(4)),
    row(Commit, COMMITS, "commits-16", "16 in flight, by threads", OpsPerSecond, Bound::Sync(16)),
    row(Commit, COMMITS, "commits-64", "64 in flight, by threads", OpsPerSecond, Bound::Sync(64)),
    against(
        row(
            Commit,
            TICKETS,
            "tickets-4",
            "4 in flight, by tickets of one thread",
            OpsPerSecond,
            Bound::Sync(4),
        ),
        "commits-4",
    ),
    against(
        row(
            Commit,
            TICKETS,
            "tickets-16",
            "16 in flight, by tickets of one thread",
            OpsPerSecond,
            Bound::Sync(16),
        ),
        "commits-16",
    ),
    against(
        row(
            Commit,
            TICKETS,
            "tickets-64",
            "64 in flight, by tickets of one thread",
            OpsPerSecond,
            Bound::Sync(64),
        ),
        "commits-64",
    ),
    row(Commit, CONDITIONS, "insert", "insert if absent, random, os", OpsPerSecond, Bound::Write),
    row(
        Commit,
        CONDITIONS,
        "insert-groups",
        "insert if absent, groups of 100, os",
        EntitiesPerSecond,
        Bound::Write,
    ),
    row(
        Serve,
        CONDITIONS,
        "insert-refused",
        "insert of keys that exist",
        OpsPerSecond,
        Bound::Access(1),
    ),
    row(
        Serve,
        CONDITIONS,
        "replace",
        "replace with ETag: read it, then write, os",
        OpsPerSecond,
        Bound::Write,
    ),
    both(row(Serve, CONDITIONS, "merge", "merge of one property, os", OpsPerSecond, Bound::Write)),
    both(row(
        Sheets,
        CONDITIONS,
        "merge-wide",
        "merge of one property of 252, os",
        OpsPerSecond,
        Bound::Write,
    )),
    both(row(
        Sheets,
        CONDITIONS,
        "merge-large",
        "merge of one property of nearly 1 MiB, os",
        OpsPerSecond,
        Bound::Write,
    )),
    both(row(Serve, POINTS, "get-hit", "get, hit, owned", OpsPerSecond, Bound::Access(1))),
    row(Serve, POINTS, "get-hit-2", "get, hit, owned, 2 threads", OpsPerSecond, Bound::Access(2)),
    row(Serve, POINTS, "get-view", "get, hit, read in place", OpsPerSecond, Bound::Access(1)),
    row(Serve, POINTS, "get-miss", "get, miss", OpsPerSecond, Bound::Access(1)),
    row(Serve, POINTS, "get-miss-2", "get, miss, 2 threads", OpsPerSecond, Bound::Access(2)),
    row(
        Serve,
        POINTS,
        "get-hit-compacted",
        "get, hit, owned, after compaction",
        OpsPerSecond,
        Bound::Access(1),
    ),
    row(
        Serve,
        POINTS,
        "get-miss-compacted",
        "get, miss, after compaction",
        OpsPerSecond,
        Bound::Access(1),
    ),
    both(row(Serve, RANGES, "range-100", "row range of 100", EntitiesPerSecond, Bound::Memory)),
    both(row(Serve, RANGES, "scan", "full scan", EntitiesPerSecond, Bound::Memory)),
    both(row(Serve, RANGES, "filter-0.1", "filter, 0.1 % match", EntitiesPerSecond, Bound::Memory)),
    both(row(Serve, RANGES, "filter-1", "filter, 1 % match", EntitiesPerSecond, Bound::Memory)),
    both(row(Serve, RANGES, "filter-50", "filter, 50 % match", EntitiesPerSecond, Bound::Memory)),
    both(row(
        Serve,
        RANGES,
        "filter-between",
        "filter, 1 % match, in the middle",
        EntitiesPerSecond,
        Bound::Memory,
    )),
    row(
        Serve,
        RANGES,
        "scan-first",
        "full scan, the first after opening",
        EntitiesPerSecond,
        Bound::Checksum,
    ),
    row(
        Serve,
        RANGES,
        "scan-compacted",
        "full scan, after compaction",
        EntitiesPerSecond,
        Bound::Memory,
    ),
    row(
        Serve,
        RANGES,
        "filter-0.1-compacted",
        "filter, 0.1 % match, after compaction",
        EntitiesPerSecond,
        Bound::Memory,
    ),
    row(Serve, YCSB, "ycsb-a", "A: half reads, half updates", OpsPerSecond, Bound::Access(1)),
    row(Serve, YCSB, "ycsb-b", "B: 95 % reads, 5 % updates", OpsPerSecond, Bound::Access(1)),
    row(Serve, YCSB, "ycsb-c", "C: reads", OpsPerSecond, Bound::Access(1)),
    row(
        Serve,
        YCSB,
        "ycsb-d",
        "D: 95 % reads of the latest, 5 % inserts",
        OpsPerSecond,
        Bound::Access(1),
    ),
    row(
        Serve,
        YCSB,
        "ycsb-e",
        "E: 95 % ranges of up to 100, 5 % inserts",
        OpsPerSecond,
        Bound::MemoryRange(48),
    ),
    row(
        Serve,
        YCSB,
        "ycsb-f",
        "F: half reads, half read-modify-write",
        OpsPerSecond,
        Bound::Access(1),
    ),
    row(Serve, CONCURRENT, "reads-with-writer", "reads/s", OpsPerSecond, Bound::Access(1)),
    row(
        Serve,
        CONCURRENT,
        "reads-with-writer-p999",
        "p99.9 of reads, without run-queue wait",
        Microseconds,
        Bound::AccessTime,
    ),
    row(
        Serve,
        CONCURRENT,
        "reads-with-writer-unbounded",
        "reads/s, the writer as fast as it can",
        OpsPerSecond,
        Bound::Access(1),
    ),
    row(Serve, LIFE, "delete", "single deletes, random, os", OpsPerSecond, Bound::Write),
    row(Commit, LIFE, "queue", "insert at the end, take the head, os", OpsPerSecond, Bound::Write),
    row(
        Serve,
        LIFE,
        "drop-tenth",
        "drop of a tenth, 20 durable drops",
        EntitiesPerSecond,
        Bound::OneSync,
    ),
    row(
        Serve,
        LIFE,
        "open-closed",
        "open after close, to the first read",
        Milliseconds,
        Bound::Files(3),
    ),
    row(
        Serve,
        LIFE,
        "open-killed",
        "open after kill, to the first read",
        Milliseconds,
        Bound::OneSync,
    ),
    row(
        Serve,
        LIFE,
        "open-killed-64",
        "open after kill with a log of 64 MB",
        Milliseconds,
        Bound::OneSync,
    ),
    row(Cold, COLD, "cold-get-hit", "get, hit", OpsPerSecond, Bound::RandomRead(1)),
    row(Cold, COLD, "cold-get-hit-2", "get, hit, 2 threads", OpsPerSecond, Bound::RandomRead(2)),
    row(Cold, COLD, "cold-get-miss", "get, miss", OpsPerSecond, Bound::Access(1)),
    row(Cold, COLD, "cold-get-miss-2", "get, miss, 2 threads", OpsPerSecond, Bound::Access(2)),
    row(
        Cold,
        COLD,
        "cold-range-100",
        "row range of 100",
        EntitiesPerSecond,
        Bound::RandomRange(100),
    ),
    row(Cold, COLD, "cold-scan", "full scan", EntitiesPerSecond, Bound::Read),
    both(row(Serve, SPACE, "disk", "disk at rest, plain", BytesPerEntity, Bound::Entropy)),
    both(row(
        Compressed,
        SPACE,
        "disk-compressed",
        "disk at rest, compressed",
        BytesPerEntity,
        Bound::Entropy,
    )),
    row(
        Amplification,
        SPACE,
        "amplification",
        "writes of a random fill, 1 KiB payload",
        Times,
        Bound::Once,
    ),
    row(
        Amplification,
        SPACE,
        "fill-payload",
        "random fill, 1 KiB payload: speed",
        OpsPerSecond,
        Bound::Write,
    ),
    row(
        Amplification,
        SPACE,
        "disk-payload",
        "random fill, 1 KiB payload: disk at rest per user byte",
        Times,
        Bound::Once,
    ),
    row(
        Compressed,
        REST,
        "compressed-compact",
        "compaction into compressed files",
        EntitiesPerSecond,
        Bound::Compress,
    ),
    row(Compressed, REST, "compressed-get-hit", "get, hit, owned", OpsPerSecond, Bound::Access(1)),
    row(Compressed, REST, "compressed-get-miss", "get, miss", OpsPerSecond, Bound::Access(1)),
    row(
        Compressed,
        REST,
        "compressed-range-100",
        "row range of 100",
        EntitiesPerSecond,
        Bound::Decompress,
    ),
    row(Compressed, REST, "compressed-scan", "full scan", EntitiesPerSecond, Bound::Decompress),
    row(
        Compressed,
        REST,
        "compressed-filter-1",
        "filter, 1 % match",
        EntitiesPerSecond,
        Bound::Decompress,
    ),
    row(Growth, GROWTH, "growth-load", "bulk load, random", EntitiesPerSecond, Bound::Write),
    row(Growth, GROWTH, "growth-get-hit", "get, hit", OpsPerSecond, Bound::SizedAccess),
    row(Growth, GROWTH, "growth-get-miss", "get, miss", OpsPerSecond, Bound::SizedAccess),
    row(Growth, GROWTH, "growth-range-100", "row range of 100", EntitiesPerSecond, Bound::Memory),
    row(
        Growth,
        GROWTH,
        "growth-get-hit-touched",
        "get, hit, after a scan of all",
        OpsPerSecond,
        Bound::SizedAccess,
    ),
    row(Growth, GROWTH, "growth-merge", "merge of one property, os", OpsPerSecond, Bound::Write),
    row(Flights, REAL, "flights-load", "bulk load, random", EntitiesPerSecond, Bound::Write),
    row(Flights, REAL, "flights-disk", "disk at rest, plain", BytesPerEntity, Bound::FlightEntropy),
    row(Flights, REAL, "flights-get-hit", "get, hit", OpsPerSecond, Bound::Access(1)),
    row(Flights, REAL, "flights-scan", "full scan", EntitiesPerSecond, Bound::Memory),
    row(Flights, REAL, "flights-filter-1", "filter, 1 % match", EntitiesPerSecond, Bound::Memory),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_references_resolve() {
        let mut names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
        assert!(ROWS.iter().filter_map(|row| row.peer_row).all(|name| find(name).is_some()));
        assert!(ROWS.iter().all(|row| row.session != Session::ColdLoad));
    }
}
