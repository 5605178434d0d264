//! Background work: flush, compaction, ingestion, range splits, TTL, eviction, and removal of
//! obsolete files.
//!
//! Uses `read` for merges, and `write` for the commits that drop data.
//!
//! `executor` has the threads that run this work; `recovery` opens databases.

pub(super) mod compaction;
pub(super) mod events;
pub(super) mod fifo_eviction;
pub(super) mod fifo_tables;
pub(super) mod flush;
pub(super) mod flush_placement;
pub(super) mod idle_time;
pub(super) mod ingest;
pub(super) mod maintenance;
pub(super) mod new_file;
pub(super) mod output_writer;
pub(super) mod quarantine;
pub(super) mod range_split;
pub(super) mod reclaim;
pub(super) mod scheduler;
pub(super) mod space_limit;
pub(super) mod state;
pub(super) mod token_bucket;
pub(super) mod ttl;
pub(super) mod ttl_clock;
pub(super) mod ttl_tables;
pub(super) mod wal_retention;
