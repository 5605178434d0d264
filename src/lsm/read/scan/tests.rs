//! What tests read of single files.

use super::*;
use crate::manifest::FileReference;

impl ReadView {
    /// The rows of these references, whatever ranges they belong to.
    pub(crate) fn scan_references(&self, files: &[FileReference]) -> Result<Scan> {
        Ok(Scan::new(Merge::over_files(&self.env, &[], files)?, self.at, None, Head::closed()))
    }
}
