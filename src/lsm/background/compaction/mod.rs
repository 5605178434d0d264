//! Compaction: which files to merge, and merging them.

mod facts;
pub(crate) mod job;
pub(super) mod order;
pub(super) mod picker;
