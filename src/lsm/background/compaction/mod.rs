//! Compaction: chooses files to merge, and merges them.

pub(super) mod facts;
pub(crate) mod job;
pub(in crate::lsm) mod order;
pub(in crate::lsm) mod picker;
pub(in crate::lsm) mod plan;
