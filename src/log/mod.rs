//! Writes and reads record files (WAL and MANIFEST). Format: FORMAT.md §record.
//!
//! Invariants
//! * a file is never recycled or pre-filled, and nothing is appended after an unreadable record;
//! * after a failed write or sync a file accepts no more bytes. A repeated sync could report
//!   success although bytes were lost.
//!
//! `format::wal` and `format::edit` define the contents of records; `lsm` buffers them and forms
//! commit groups.

mod durable_len;
mod reader;
mod writer;

pub(crate) use durable_len::DurableLen;
pub(crate) use reader::{LogReader, RecordView, StopReason};
pub(crate) use writer::LogFile;

#[cfg(test)]
mod tests;
