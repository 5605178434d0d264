//! The options of `bench`: sizes, clients, and settings of the database.

use clap::Args;

use crate::cli::open::read_bytes;
use crate::cli::output::FormatArgs;
use crate::options::{Durability, IoMode};

pub(super) const NUM: u64 = 1_000_000;
pub(super) const VALUE_SIZE: u32 = 100;
pub(super) const PARTITION_ROWS: u64 = 1_000;

/// How benchmarks run.
#[derive(Args, Debug)]
pub(super) struct Settings {
    /// Number of keys, and of entities that the fill benchmarks write [default: 1000000]
    #[arg(long, value_name = "N", value_parser = number::<1, { 1 << 40 }>)]
    pub(super) num: Option<u64>,
    /// Operations of a read benchmark, over all clients [default: as --num]
    #[arg(long, value_name = "N", value_parser = number::<1, { 1 << 40 }>)]
    pub(super) reads: Option<u64>,
    /// Concurrent clients, which share the operations
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub(super) threads: u32,
    /// Bytes of the text in each entity [default: 100]
    #[arg(long, alias = "value_size", value_name = "BYTES",
        value_parser = clap::value_parser!(u32).range(0..=32_768))]
    pub(super) value_size: Option<u32>,
    /// Entities per group in fillbatch
    #[arg(long, alias = "batch_size", value_name = "N", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) batch_size: u32,
    /// Entities per PartitionKey [default: 1000]
    #[arg(long, value_name = "N", value_parser = number::<1, { 1 << 32 }>)]
    pub(super) partition_rows: Option<u64>,
    /// Entities that seekrandom reads after the first
    #[arg(long, alias = "seek_nexts", value_name = "N", default_value_t = 0)]
    pub(super) seek_nexts: u32,
    /// Percentage of the entities that match in filterscan
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0,
        value_parser = |text: &str| between(text, 100.0))]
    pub(super) selectivity: f64,
    /// Compressed size of an entity's text, as a fraction
    #[arg(long, alias = "compression_ratio", value_name = "RATIO", default_value_t = 0.5,
        value_parser = |text: &str| between(text, 1.0))]
    pub(super) compression_ratio: f64,
    /// Seed for keys, values and their order
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Run random reads, overwrite and filterscan for this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = number::<1, { 1 << 20 }>)]
    pub(super) duration: Option<u64>,
    /// Entities per second of the writer in readwhilewriting [default: unlimited]
    #[arg(long, alias = "benchmark_write_rate_limit", value_name = "N",
        value_parser = number::<1, { 1 << 32 }>)]
    pub(super) write_rate: Option<u64>,
    /// The event that a commit survives; fillsync always uses sync
    #[arg(long, value_enum, default_value_t = Durability::Os)]
    pub(super) durability: Durability,
    /// How files are read
    #[arg(long, value_enum, default_value_t = IoMode::Mmap)]
    pub(super) io: IoMode,
    /// Bytes of the block cache, e.g. 32M; used with --io pread or --compress
    #[arg(long, alias = "cache_size", value_name = "BYTES", value_parser = read_bytes)]
    pub(super) cache_size: Option<u64>,
    /// Bytes of a memtable, e.g. 64M
    #[arg(long, alias = "write_buffer_size", value_name = "BYTES", value_parser = read_bytes)]
    pub(super) write_buffer_size: Option<u64>,
    /// Bytes of a block, e.g. 16K
    #[arg(long, alias = "block_size", value_name = "BYTES", value_parser = read_bytes)]
    pub(super) block_size: Option<u64>,
    /// Threads that merge files
    #[arg(long, alias = "max_background_compactions", value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) compaction_threads: Option<u32>,
    /// Bytes per second of background work, e.g. 100M [default: unlimited]
    #[arg(long, alias = "rate_limit", value_name = "BYTES", value_parser = read_bytes)]
    pub(super) rate_limit: Option<u64>,
    /// Compress table files with zstd
    #[arg(long)]
    pub(super) compress: bool,
    /// Print a histogram of latencies
    #[arg(long)]
    pub(super) histogram: bool,
    /// Use existing entities; the fill benchmarks then overwrite them
    #[arg(long, alias = "use_existing_db")]
    pub(super) use_existing_db: bool,
    #[command(flatten)]
    pub(super) format: FormatArgs,
}

fn number<const LEAST: u64, const MOST: u64>(text: &str) -> Result<u64, String> {
    let number: u64 = text.replace('_', "").parse().map_err(|error| format!("{error}"))?;
    let is_within = (LEAST..=MOST).contains(&number);
    if is_within { Ok(number) } else { Err(format!("from {LEAST} to {MOST}")) }
}

fn between(text: &str, most: f64) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|error| format!("{error}"))?;
    let is_within = (0.0..=most).contains(&number);
    if is_within { Ok(number) } else { Err(format!("from 0 to {most}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_limits() {
        assert_eq!(number::<1, 10>("1_0"), Ok(10));
        assert!(number::<1, 10>("11").is_err() && number::<1, 10>("x").is_err());
        assert_eq!((between("0.1", 100.0), between("1", 1.0)), (Ok(0.1), Ok(1.0)));
        assert!(between("101", 100.0).is_err() && between("NaN", 1.0).is_err());
    }
}
