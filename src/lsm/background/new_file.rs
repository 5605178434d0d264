//! A table file that a flush, a job or an import has written and that no version contains yet.

use crate::format::file_meta::FileMeta;

/// The part of a file that belongs to one range, as the ranges were when the job began. In a table
/// without ranges, the part belongs to the whole table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The first and the last user key.
    pub(crate) low: Box<[u8]>,
    pub(crate) high: Box<[u8]>,
    /// The approximate size of the part in bytes. The sizes of all parts add up to the file's size.
    pub(crate) bytes: u64,
}

/// A file written by a flush, a job or an import.
pub(crate) struct NewFile {
    pub(crate) meta: FileMeta,
    /// The parts of the file, in ascending key order.
    pub(crate) parts: Vec<Part>,
}

/// Returns `bytes` * `part` / `whole`.
pub(in crate::lsm) fn share(bytes: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(bytes) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(bytes)
}
