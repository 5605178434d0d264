//! A table file that a flush, a job or an import has written and that no version contains yet.

use std::sync::Arc;

use crate::format::file_meta::FileMeta;
use crate::lsm::Env;
use crate::manifest::Version;
use crate::options::IoMode;
use crate::sst::Sst;

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
    /// The reader for the version that will contain the file, see [`open`](Self::open).
    pub(crate) sst: Option<Arc<Sst>>,
}

impl NewFile {
    /// Opens a file whose contents this process has merged or flushed, so that its first readers
    /// need not open and check it. If `populates`, its pages are mapped, too. With
    /// `IoMode::Pread` files are opened at their first use, and so is a file that cannot be opened.
    pub(super) fn open(&mut self, env: &Env, populates: bool) {
        if env.options.io_mode == IoMode::Mmap
            && let Ok(mut sst) = Sst::open(&*env.cached_fs, &env.dir, &self.meta, &env.sst)
        {
            sst.hand_over(populates);
            self.sst = Some(Arc::new(sst));
        }
    }

    /// Hands the reader over to `version`, which contains the file and is not installed yet.
    pub(super) fn hand_over(&self, version: &Version) {
        if let (Some(sst), Some(entry)) = (&self.sst, version.file(self.meta.number)) {
            entry.set_sst(Arc::clone(sst));
        }
    }
}

/// Returns `bytes` * `part` / `whole`.
pub(in crate::lsm) fn share(bytes: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(bytes) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(bytes)
}
