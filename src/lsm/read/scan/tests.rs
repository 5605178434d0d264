//! Scans of single files, for tests.

use super::*;
use crate::manifest::FileReference;

impl ReadView {
    /// The rows of these references, of any ranges.
    pub(crate) fn scan_references(&self, files: &[FileReference]) -> Result<Scan> {
        Ok(Scan::new(Merge::over_files(&self.env, &[], files)?, self.at, None, Head::closed()))
    }
}
