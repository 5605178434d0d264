//! The log-structured merge tree.

pub(crate) mod compaction;
