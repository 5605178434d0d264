//! The commit path. A batch is validated, logged, inserted into the memtable, and published by its
//! commit group.
//!
//! Uses `read` for the current rows against which conditions are checked.
//!
//! Not here: flushing memtables (`scheduler`), replaying the log (`recovery`).

pub(super) mod admission;
pub(super) mod backlog;
pub(super) mod backpressure;
pub(super) mod batch;
pub(super) mod commit;
pub(super) mod delay;
pub(super) mod events;
pub(super) mod gates;
pub(super) mod group_commit;
pub(super) mod insert;
pub(super) mod log_queue;
pub(super) mod look_up;
pub(super) mod poison;
pub(super) mod rate_limit;
pub(super) mod retry;
pub(super) mod rotate;
pub(super) mod wal_switch;
pub(super) mod writer;
