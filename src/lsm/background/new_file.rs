//! A table file that a flush, a job or an import wrote and that no version contains yet.

use crate::format::file_meta::FileMeta;

/// The part of a file in one range, as the ranges were when the job began, or in a table that had
/// no range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The first and the last user key.
    pub(crate) low: Box<[u8]>,
    pub(crate) high: Box<[u8]>,
    /// About the size of the part in the file; the parts together have all bytes of the file.
    pub(crate) bytes: u64,
}

/// A file that a job wrote.
pub(crate) struct NewFile {
    pub(crate) meta: FileMeta,
    /// In ascending key order.
    pub(crate) parts: Vec<Part>,
}

/// `bytes` * `part` / `whole`.
pub(in crate::lsm) fn share(bytes: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(bytes) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(bytes)
}
