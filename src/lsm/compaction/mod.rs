//! Compaction: which files to merge, and merging them.

pub(crate) mod job;
mod picker;
