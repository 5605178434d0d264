//! Computes the physical limit of a row, in the row's unit, and rowstone's share of it.
//!
//! Not here: measuring limits (`limits.rs`), the limit of each row (`rows.rs`).

use super::summary::Cell;
use crate::limits::Limits;
use crate::rows::{Bound, Row, Unit};

/// The physical limit of a row of the report. It is a limit only if each operation does the work
/// that `what` names.
pub struct Limit {
    pub what: String,
    /// The limit in the unit of the row. `share` is the part of it that rowstone reaches.
    pub value: f64,
    pub share: f64,
}

impl Limit {
    /// Returns the machine's limit for a row of the report, measured with `size` entities.
    pub fn of(row: &Row, size: u64, limits: &Limits, ours: &Cell) -> Option<Self> {
        let entities = |bytes: f64| bytes / ours.raw_bytes_each;
        let (what, value) = match row.bound {
            Bound::Write => ("sequential write", entities(limits.write_bytes)),
            Bound::Sync(1) => ("a sync each", limits.syncs[0]),
            Bound::Sync(commits) => ("a sync for all", limits.syncs[0] * commits as f64),
            Bound::Access(threads) => {
                ("a memory access each", limits.memory_accesses * threads as f64)
            }
            Bound::SizedAccess => match limits.accesses_over(size) {
                Some(accesses) => ("a memory access each, over as many bytes", accesses),
                None => ("a far memory access each", limits.far_accesses),
            },
            Bound::AccessTime => ("a memory access", 1e6 / limits.memory_accesses),
            Bound::MemoryRange(count) => {
                ("memory bandwidth", entities(limits.memory_read_bytes) / count as f64)
            }
            Bound::OneSync if row.unit == Unit::Milliseconds => ("a sync", 1e3 / limits.syncs[0]),
            Bound::OneSync => ("a sync", limits.syncs[0] * ours.entities),
            Bound::Files(count) => ("small files opened", 1e3 * count as f64 / limits.file_opens),
            Bound::RandomRange(count) => {
                ("a random page each", limits.random_reads[0] * count as f64)
            }
            Bound::Read => ("sequential read", entities(limits.read_bytes)),
            Bound::Memory => ("memory bandwidth", entities(limits.memory_read_bytes)),
            Bound::RandomRead(threads) => {
                ("a random page each", limits.random_reads[usize::from(threads > 1)])
            }
            Bound::Checksum => ("CRC-32 of all", entities(limits.crc32_bytes)),
            Bound::Compress => ("zstd encoding", entities(limits.zstd_compress_bytes)),
            Bound::Decompress => ("zstd decoding", entities(limits.zstd_decompress_bytes)),
            Bound::Once => ("each byte once", 1.0),
            Bound::Entropy => ("zstd, all in one", limits.zstd_entity_bytes),
            Bound::FlightEntropy => ("zstd, all in one", limits.zstd_flight_bytes),
        };
        // Result lines of an older run may lack this limit.
        if !value.is_normal() {
            return None;
        }
        let share =
            if row.unit.higher_is_better() { ours.value / value } else { value / ours.value };
        let what = match row.bound {
            Bound::Compress | Bound::Decompress | Bound::Entropy | Bound::FlightEntropy => {
                format!("{what}, level {}", limits.zstd_level)
            }
            _ => what.to_owned(),
        };
        Some(Self { what, value, share })
    }
}
