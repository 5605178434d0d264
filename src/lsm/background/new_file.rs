//! A table file that a flush, a job or an import wrote and that nothing names yet.

use crate::format::file_meta::FileMeta;

/// What a file holds of one range, as ranges were when the job began, or of a table that had none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The first and the last user key.
    pub(crate) low: Box<[u8]>,
    pub(crate) high: Box<[u8]>,
    /// About how much of the file it is; of all parts together as much as the file has.
    pub(crate) bytes: u64,
}

/// A file that a job wrote.
pub(crate) struct NewFile {
    pub(crate) meta: FileMeta,
    /// Ascending.
    pub(crate) parts: Vec<Part>,
}

/// `bytes` times `part` by `whole`.
pub(in crate::lsm) fn share(bytes: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(bytes) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(bytes)
}
