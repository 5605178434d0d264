//! Reads the manifest of a damaged database, and decides whether it is complete.
//!
//! It is complete if CURRENT names it, if no durable offset is beyond the end of its valid records,
//! and if no log states a greater length of the manifest. If CURRENT is unreadable, the only
//! manifest in the directory is used under the same conditions. An incomplete manifest describes an
//! earlier state, so files that it does not name may still be in use.
//!
//! Writes nothing.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::format::edit::VersionEdit;
use crate::format::names::{FileName, FileNumber};
use crate::format::record::{LogKind, Position};
use crate::fs::Fs;
use crate::log::LogReader;
use crate::rng::Rng;

use super::publish::{names, read_current};
use super::store::{Access, Manifest};
use super::version::Version;

/// A manifest read from a damaged database.
#[derive(Default)]
pub(crate) struct SalvagedManifest {
    pub(crate) version: Version,
    /// Why the manifest may be incomplete; `None` if it is complete.
    pub(crate) doubt: Option<String>,
    /// A problem that does not put the manifest in doubt.
    pub(crate) note: Option<String>,
}

/// Reads the manifest of `dir`. `vouched` is the greatest length of it that logs state.
///
/// # Errors
/// `Unsupported` for data of a newer build; `Io` if the directory cannot be listed.
pub(crate) fn salvaged(
    fs: &Arc<dyn Fs>,
    dir: &Path,
    vouched: Option<Position>,
) -> Result<SalvagedManifest> {
    let manifests = manifests(&**fs, dir)?;
    match read_current(&**fs, dir) {
        Ok(current) => {
            let opened = Manifest::open(Arc::clone(fs), dir, Access::ReadOnly, Rng::from_seed(0));
            match opened {
                Ok(opened) => {
                    let version = Version::clone(opened.manifest.version());
                    let doubt = describe_doubt(opened.manifest.position(), vouched);
                    let doubt = doubt.or_else(|| opened.short.map(|error| error.chain()));
                    let note = opened.torn.map(|torn| torn.to_string());
                    Ok(SalvagedManifest { version, doubt, note })
                }
                Err(error) if error.kind() == ErrorKind::Unsupported => Err(error),
                Err(error) => {
                    let (version, _) = prefix(&**fs, dir, current.manifest);
                    Ok(SalvagedManifest { version, doubt: Some(error.chain()), note: None })
                }
            }
        }
        Err(error) => Ok(without_current(&**fs, dir, &manifests, vouched, &error)),
    }
}

fn without_current(
    fs: &dyn Fs,
    dir: &Path,
    manifests: &[FileNumber],
    vouched: Option<Position>,
    error: &Error,
) -> SalvagedManifest {
    let problem = error.chain();
    let Some(last) = manifests.last() else {
        let doubt = Some(format!("{problem}; there is no manifest"));
        return SalvagedManifest { doubt, ..SalvagedManifest::default() };
    };
    let (version, end) = prefix(fs, dir, *last);
    let doubt = match end {
        _ if manifests.len() > 1 => {
            Some("which of several manifests counts is not known".to_owned())
        }
        Ok(end) => describe_doubt(end, vouched),
        Err(why) => Some(why),
    };
    match doubt {
        Some(doubt) => {
            SalvagedManifest { version, doubt: Some(format!("{problem}; {doubt}")), note: None }
        }
        None => {
            let note = format!("{problem}; {} is the only one", FileName::Manifest(*last));
            SalvagedManifest { version, doubt: None, note: Some(note) }
        }
    }
}

fn describe_doubt(end: Position, vouched: Option<Position>) -> Option<String> {
    let longer = vouched.filter(|vouched| *vouched > end)?;
    Some(format!("the manifest ends at {end}; a log has seen it up to {longer}"))
}

fn manifests(fs: &dyn Fs, dir: &Path) -> Result<Vec<FileNumber>> {
    let number = |name: &String| match FileName::parse(name) {
        Some(FileName::Manifest(number)) => Some(number),
        _ => None,
    };
    let mut manifests: Vec<FileNumber> = names(fs, dir)?.iter().filter_map(number).collect();
    manifests.sort_unstable();
    Ok(manifests)
}

/// Applies the records before the first bad one. Returns the version, and the end of these records
/// or the problem found there.
fn prefix(fs: &dyn Fs, dir: &Path, number: FileNumber) -> (Version, Result<Position, String>) {
    let path = dir.join(FileName::Manifest(number).to_string());
    // A failed edit leaves `version` unusable, so the next pass stops before that edit.
    let mut most = u64::MAX;
    loop {
        let mut reader = match LogReader::open(fs, &path, LogKind::Manifest, None) {
            Ok(reader) => reader,
            Err(error) => return (Version::default(), Err(error.chain())),
        };
        let (mut version, mut count) = (Version::default(), 0);
        let mut wrong = None;
        while count < most {
            let record = match reader.next() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(error) => {
                    wrong = Some(error.chain());
                    break;
                }
            };
            let at = record.offset;
            let edit = VersionEdit::decode(record.payload).map_err(|error| format!("{error:?}"));
            let Err(why) = edit.and_then(|edit| version.apply_in_place(&edit)) else {
                count += 1;
                continue;
            };
            wrong = Some(format!("version edit at byte {at} of {}: {why}", path.display()));
            break;
        }
        if count < most && wrong.is_some() && version.identity.is_some() && most == u64::MAX {
            most = count;
            continue;
        }
        return (version, classify_end(&mut reader, wrong, most));
    }
}

fn classify_end(
    reader: &mut LogReader,
    wrong: Option<String>,
    most: u64,
) -> Result<Position, String> {
    let at = reader.position();
    let cut = || format!("{}: an edit at {at} does not fit", reader.path().display());
    match wrong {
        Some(wrong) => return Err(wrong),
        None if most < u64::MAX => return Err(cut()),
        None => {}
    }
    let rest = reader.rest().map_err(|error| error.chain())?;
    let path = reader.path().display().to_string();
    match rest.durable_up_to.filter(|durable_up_to| *durable_up_to > at) {
        Some(durable_up_to) => {
            Err(format!("{path}: damage at {at}; a later record vouches up to {durable_up_to}"))
        }
        // There is no other evidence, so a durable edit may be missing.
        None if !rest.is_zero() => Err(format!("{path}: the bytes at {at} are no record")),
        None => Ok(at),
    }
}
