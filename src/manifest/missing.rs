//! Finds files that a version names but that are missing in the directory. A file is removed only
//! after the edit that no longer names it is durable, so a missing file may prove that the manifest
//! has lost an edit. See FORMAT.md §torn.
//!
//! Not here: damage that a durable offset proves (`store`).

use std::path::Path;

use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::format::record::Position;

use super::version::Version;

/// Compares `names`, the sorted names of the files in the directory, with the files of `version`.
/// The records of the manifest at `path` up to `end` describe that version. `torn` says why the
/// bytes at `end` are no record; it is `None` if they are zeros. Returns why edits at `end` may be
/// lost, or `None` if nothing suggests a loss.
///
/// # Errors
/// `Corruption` if a file is missing and the bytes at `end` are not zeros.
pub(super) fn compare(
    path: &Path,
    version: &Version,
    end: Position,
    torn: Option<&str>,
    names: &[String],
) -> Result<Option<String>> {
    let Some(why) = torn else { return Ok(doubt(version, end, names)) };
    let Some(missing) = missing(version, names) else { return Ok(None) };
    let problem = format!(
        "{why}; {missing} is missing, and the edits before name it: either this edit was durable \
         and removed it, or it was lost before a crash interrupted this edit. `rowstone repair \
         --keep-suspect` builds a new database of everything that is left"
    );
    Err(Error::corrupt(path, end.offset, "record", problem))
}

/// Returns why edits at `end` may be lost although only zeros follow, or `None` if nothing suggests
/// a loss. A loss is suspected if a file of `version` is missing and the directory has a table file
/// that `version` does not name, because a lost edit may have named that file.
pub(super) fn doubt(version: &Version, end: Position, names: &[String]) -> Option<String> {
    let is_unnamed = |name: &&String| match FileName::parse(name) {
        Some(FileName::Sst(number)) => version.file(number).is_none(),
        _ => false,
    };
    let unnamed = names.iter().find(is_unnamed)?;
    let missing = missing(version, names)?;
    let Position { file, offset } = end;
    Some(format!(
        "{} ends at byte {offset} and names {missing}, which is missing, but not {unnamed}, which \
         is there: either {missing} is lost (`rowstone heal`), or edits at that byte are (`rowstone \
         repair --keep-suspect`)",
        FileName::Manifest(file)
    ))
}

/// Returns the name of a table file or log of `version` that is not in `names`. Ignores logs that
/// only the change feed reads.
pub(super) fn missing(version: &Version, names: &[String]) -> Option<String> {
    debug_assert!(names.is_sorted(), "a directory is listed in order");
    let tables = version.files().map(|file| file.name());
    let logs = version.logs.iter().map(|log| FileName::Wal(log.number).to_string());
    tables.chain(logs).find(|name| names.binary_search(name).is_err())
}
