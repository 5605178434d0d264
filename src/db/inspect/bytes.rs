//! A file that is read in pieces.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::fs::{FileRead, Fs};

/// A file that is read in pieces.
pub(super) struct Bytes {
    file: Arc<dyn FileRead>,
    pub(super) len: u64,
    name: String,
}

impl Bytes {
    pub(super) fn open(fs: &dyn Fs, path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let doing = |error| Error::io(format!("open {name}"), error);
        let file = fs.open_read(path).map_err(doing)?;
        let len = file.len().map_err(doing)?;
        Ok(Self { file, len, name })
    }

    /// The bytes in `range`, as far as the file has them.
    pub(super) fn read(&self, range: std::ops::Range<u64>) -> Result<Vec<u8>> {
        let (start, end) = (range.start.min(self.len), range.end.min(self.len));
        let len = usize::try_from(end.saturating_sub(start)).unwrap_or(0);
        let mut bytes = vec![0; len];
        self.file
            .read_at(start, &mut bytes)
            .map_err(|error| Error::io(format!("read {}", self.name), error))?;
        Ok(bytes)
    }
}
