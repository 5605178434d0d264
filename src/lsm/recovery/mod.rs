//! Opens a database and reads its files: replay, followers, the change log, checkpoints and file
//! replacement.
//!
//! Not here: background work after opening (`scheduler`).

pub(super) mod change_log;
pub(super) mod checkpoint;
pub(super) mod file_replacement;
pub(super) mod follower;
pub(super) mod inspect;
pub(super) mod open;
pub(super) mod read_only;
pub(super) mod replay;
mod resume;
pub(super) mod wal_rows;
pub(super) mod wal_tail;
