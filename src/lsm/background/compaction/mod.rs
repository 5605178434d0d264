//! Compaction: choosing files to merge, and merging them.

mod facts;
pub(crate) mod job;
pub(in crate::lsm) mod order;
pub(in crate::lsm) mod picker;
pub(in crate::lsm) mod plan;
