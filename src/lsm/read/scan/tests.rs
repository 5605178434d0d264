//! Scans single files, for tests.

use super::*;
use crate::manifest::FileReference;

impl ReadView {
    /// Scans the rows of `files`, which may belong to any range.
    pub(crate) fn scan_references(&self, files: &[FileReference]) -> Result<Scan> {
        Ok(Scan::new(Merge::over_files(&self.env, &[], files)?, self.at, None, Head::closed()))
    }
}
