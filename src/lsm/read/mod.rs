//! Reads: pins a view of memtables and files, and merges them into rows.
//!
//! Not here: commits (`write`), changes of the files (`scheduler`), opening (`recovery`).

pub(super) mod concat_iter;
pub(super) mod dropped_tables;
pub(super) mod env;
pub(super) mod gap_cache;
pub(super) mod load_sampling;
pub(super) mod log_files;
pub(super) mod merge;
pub(super) mod merge_window;
pub(super) mod published;
pub(super) mod range_tombstones;
pub(super) mod reader;
pub(super) mod reverse_scan;
pub(super) mod row_filter;
pub(super) mod scan;
pub(super) mod snapshot;
pub(super) mod view;
pub(super) mod window;
