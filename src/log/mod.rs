//! Record files, WAL and MANIFEST alike: writing buffers of sealed records, reading until the first bad one.
//!
//! Invariants
//! * a file is never recycled or pre-filled, and nothing is appended behind a record that could not be read;
//! * after a failed write or sync a file takes no more bytes: no retry is taken for success.
//!
//! Format: FORMAT.md §record. Not here: which records (`format::wal`, `format::edit`), buffering and rounds (`lsm`).

mod reader;
mod writer;

pub(crate) use reader::{LogReader, RecordView, StopReason};
pub(crate) use writer::LogFile;

#[cfg(test)]
mod tests;
