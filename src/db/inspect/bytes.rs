//! Reads byte ranges of a file on demand.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Doing, Result};
use crate::fs::{FileRead, Fs};

/// A file of which single byte ranges are read on demand.
pub(super) struct Bytes {
    file: Arc<dyn FileRead>,
    pub(super) len: u64,
    path: PathBuf,
}

impl Bytes {
    pub(super) fn open(fs: &dyn Fs, path: &Path) -> Result<Self> {
        let file = fs.open_read(path).doing("open", path)?;
        let len = file.len().doing("open", path)?;
        Ok(Self { file, len, path: path.to_owned() })
    }

    /// Returns the bytes of the file within `range`, which may exceed the end of the file.
    pub(super) fn read(&self, range: std::ops::Range<u64>) -> Result<Vec<u8>> {
        let (start, end) = (range.start.min(self.len), range.end.min(self.len));
        let mut bytes = vec![0; usize::try_from(end.saturating_sub(start)).unwrap_or(0)];
        self.file.read_at(start, &mut bytes).doing("read", &self.path)?;
        Ok(bytes)
    }
}
