//! Lists the targets. A target says how many times better than the best of the other engines (the
//! peers) rowstone must be in a row of the report.
//!
//! The report (`report/`) computes the ratios that rowstone reaches.

use crate::engines::Engine;
use crate::store::Encoding;

/// A group of peers. A target compares rowstone with the best of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Among {
    All,
    /// Peers with log-structured merge trees.
    Lsm,
    /// Peers whose commits sync one after the other behind a lock. fjall is not among them, because
    /// its adapter shares syncs outside of that lock.
    Serial,
    RocksDb,
    Json,
    Binary,
}

/// A target for `row`: rowstone must be at least `times` times better than the best peer of the
/// group `among`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    pub row: &'static str,
    pub times: f64,
    pub among: Among,
}

const fn target(row: &'static str, times: f64, among: Among) -> Target {
    Target { row, times, among }
}

pub static TARGETS: &[Target] = &[
    target("get-hit", 1.5, Among::All),
    target("get-miss", 2.0, Among::All),
    target("get-miss-compacted", 3.0, Among::All),
    target("insert", 1.3, Among::All),
    target("insert-groups", 2.0, Among::All),
    target("commits-16", 3.0, Among::Serial),
    target("commits-16", 1.0, Among::RocksDb),
    target("tickets-16", 5.0, Among::Serial),
    target("tickets-16", 1.0, Among::RocksDb),
    target("filter-0.1", 30.0, Among::Json),
    target("filter-0.1", 12.0, Among::Binary),
    target("filter-1", 30.0, Among::Json),
    target("filter-50", 5.0, Among::All),
    target("disk", 1.0, Among::All),
    target("disk-compressed", 1.0, Among::All),
    target("disk-compressed", 2.0, Among::All),
    target("amplification", 1.0, Among::Lsm),
    target("reads-with-writer-p999", 2.0, Among::Lsm),
];

impl Among {
    pub fn has(self, engine: Engine, encoding: Encoding) -> bool {
        let is_lsm = matches!(engine, Engine::RocksDb | Engine::Fjall);
        match self {
            Among::All => engine != Engine::Rowstone,
            Among::Lsm => is_lsm,
            Among::Serial => matches!(engine, Engine::Lmdb | Engine::Redb | Engine::Sqlite),
            Among::RocksDb => engine == Engine::RocksDb,
            Among::Json => engine != Engine::Rowstone && encoding == Encoding::Json,
            Among::Binary => encoding == Encoding::Binary,
        }
    }

    pub fn text(self) -> &'static str {
        match self {
            Among::All => "the best peer",
            Among::Lsm => "the best LSM peer",
            Among::Serial => "the best peer that syncs behind a lock",
            Among::RocksDb => "RocksDB",
            Among::Json => "the best peer with JSON",
            Among::Binary => "the best peer with a binary",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_its_row() {
        assert!(TARGETS.iter().all(|target| crate::rows::find(target.row).is_some()));
    }
}
