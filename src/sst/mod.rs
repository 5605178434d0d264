//! Sorted table files (SST): written once, then read by key, by range or as a whole. Format:
//! FORMAT.md §sst.
//!
//! Invariants
//! * a file gets its final name after it is complete and synced; the caller syncs the directory;
//! * no bytes of a file are used before their checksum was verified, or computed by this process
//!   when it wrote the file. Accesses are bounds-checked even then;
//! * damage is an error with the file's name and an offset. A failed iterator keeps failing.
//!
//! `manifest` knows which files exist, `ranges` which files may hold a key; `lsm` merges files.

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

/// Options for writing a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SstOptions {
    /// The approximate length of a block before compression, in bytes. `page_alignment` determines
    /// where it ends, and a single long row may exceed it.
    pub(crate) block_bytes: usize,
    pub(crate) codec: Codec,
    pub(crate) seed: HashSeed,
}

/// State shared by the open files of a database.
#[derive(Clone, Debug)]
pub(crate) struct SstShared {
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) shapes: Arc<Shapes>,
    pub(crate) mode: IoMode,
    pub(crate) seed: HashSeed,
}
