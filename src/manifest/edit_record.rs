//! Decodes the edit in a manifest record; reports edits that break an invariant.

use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::format::edit::{Identity, VersionEdit};
use crate::format::record::RecordKind;
use crate::log::RecordView;
use crate::model::Seq;

/// Decodes the edit in a manifest record, and checks that this build can read it.
pub(super) fn edit_of(path: &Path, record: &RecordView<'_>) -> Result<VersionEdit> {
    if record.kind != RecordKind::Edit {
        let problem = format!("a record of kind {:?} in a manifest", record.kind);
        return Err(Error::corrupt(path, record.offset, "record header", problem));
    }
    if record.seq != Seq::ZERO {
        let problem = format!("Seq {} of a version edit, which has none", record.seq);
        return Err(Error::corrupt(path, record.offset, "record header", problem));
    }
    let edit = VersionEdit::decode(record.payload)
        .map_err(|error| error.into_error(path, record.payload_offset()))?;
    match edit.identity.as_ref().and_then(Identity::unreadable) {
        Some(feature) => {
            let problem = format!("{} needs the feature {feature} to read", path.display());
            Err(Error::new(ErrorKind::Unsupported, problem))
        }
        None => Ok(edit),
    }
}

/// Returns the error for an edit that breaks an invariant. If the edit was read from disk, it is
/// damaged; if it was to be written, it reveals a bug.
pub(super) fn refused(path: &Path, offset: u64, problem: String) -> Error {
    Error::corrupt(path, offset, "version edit", problem)
}
