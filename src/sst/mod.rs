//! One sorted table file: written once, front to back, then read by point, by range, or whole.
//!
//! Invariants
//! * a file has its name only when it is complete and synced; the directory's entry is the caller's to sync;
//! * nothing read from a file is believed before its checksum matched, and every access is bounds-checked even then;
//! * what is wrong with a file is an error that names it, with an offset; an iterator in error stays in error.
//!
//! Format: FORMAT.md §sst and the structures it names.
//!
//! Not here: which files there are and which of them hold a key (`manifest`, `ranges`), merging several (`lsm`).

mod cache;
#[cfg(test)]
mod examples;
mod iter;
mod location_cache;
mod page_alignment;
#[cfg(test)]
mod paging_tests;
mod readahead;
mod reader;
mod salvage_reader;
mod shapes;
mod source;
mod span_estimate;
mod split_points;
#[cfg(test)]
mod tests;
mod verify;
mod writer;
mod zones;

pub(crate) use cache::BlockCache;
pub(crate) use iter::{BlockRun, RunWalk, SstIter};
pub(crate) use reader::{Hit, Sst};
pub(crate) use salvage_reader::{RemainingEntry, SalvageReader};
pub(crate) use shapes::decode_table;
pub(crate) use span_estimate::SstPart;
pub(crate) use verify::SstFacts;
pub(crate) use writer::SstWriter;

use std::sync::Arc;

use crate::codec::HashSeed;
use crate::model::Shapes;
use crate::options::{Codec, IoMode};

/// How a file is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SstOptions {
    /// About the length of a block before compression: `page_alignment` says where one ends. A single row may be longer.
    pub(crate) block_bytes: usize,
    pub(crate) codec: Codec,
    pub(crate) seed: HashSeed,
}

/// What the open files of a database have in common.
#[derive(Clone, Debug)]
pub(crate) struct SstShared {
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) shapes: Arc<Shapes>,
    pub(crate) mode: IoMode,
    pub(crate) seed: HashSeed,
}
