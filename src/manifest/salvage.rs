//! Reads the manifest of a damaged database, and decides whether it is complete.
//!
//! A manifest is complete if CURRENT names it, if neither a durable offset nor a log states that it
//! is longer than its valid records, and if no missing file shows that it lost an edit. If CURRENT
//! is unreadable, the manifest must be the only one in the directory instead. The readable part of
//! an incomplete manifest describes an earlier state. Files that this part does not name may belong
//! to the database, except those that a readable edit removed.
//!
//! Writes nothing.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::format::edit::VersionEdit;
use crate::format::names::{FileName, FileNumber};
use crate::format::record::{LogKind, Position};
use crate::fs::Fs;
use crate::log::LogReader;
use crate::rng::Rng;
use crate::sort::sort_by;

use super::missing;
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
    /// The table files that its edits removed. Matters only if the manifest may be incomplete.
    pub(crate) removed: BTreeSet<FileNumber>,
}

/// Reads the manifest of `dir`. `vouched` is the greatest length of the manifest that the logs
/// state.
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
                    let doubt = describe_doubt(opened.manifest.position(), vouched)
                        .or_else(|| opened.manifest.doubt().map(str::to_owned))
                        .or_else(|| opened.short.map(|error| error.chain()));
                    let note = opened.torn.map(|torn| torn.to_string());
                    let removed = match &doubt {
                        Some(_) => prefix(&**fs, dir, current.manifest).removed,
                        None => BTreeSet::new(),
                    };
                    Ok(SalvagedManifest { version, doubt, note, removed })
                }
                Err(error) if error.kind() == ErrorKind::Unsupported => Err(error),
                Err(error) => {
                    let Prefix { version, removed, .. } = prefix(&**fs, dir, current.manifest);
                    let doubt = Some(error.chain());
                    Ok(SalvagedManifest { version, doubt, note: None, removed })
                }
            }
        }
        Err(error) => without_current(&**fs, dir, &manifests, vouched, &error),
    }
}

fn without_current(
    fs: &dyn Fs,
    dir: &Path,
    manifests: &[FileNumber],
    vouched: Option<Position>,
    error: &Error,
) -> Result<SalvagedManifest> {
    let problem = error.chain();
    let Some(last) = manifests.last() else {
        let doubt = Some(format!("{problem}; there is no manifest"));
        return Ok(SalvagedManifest { doubt, ..SalvagedManifest::default() });
    };
    let names = names(fs, dir)?;
    let Prefix { version, removed, end } = prefix(fs, dir, *last);
    let doubt = match end {
        _ if manifests.len() > 1 => {
            Some("which of several manifests counts is not known".to_owned())
        }
        Ok(end) => describe_doubt(end, vouched).or_else(|| missing::doubt(&version, end, &names)),
        Err(why) => Some(why),
    };
    let (doubt, note) = match doubt {
        Some(doubt) => (Some(format!("{problem}; {doubt}")), None),
        None => (None, Some(format!("{problem}; {} is the only one", FileName::Manifest(*last)))),
    };
    Ok(SalvagedManifest { version, doubt, note, removed })
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
    sort_by(&mut manifests, Ord::cmp);
    Ok(manifests)
}

/// The records of a manifest before the first bad one.
struct Prefix {
    version: Version,
    /// The table files that these records remove.
    removed: BTreeSet<FileNumber>,
    /// Where these records end, or the problem at that offset.
    end: Result<Position, String>,
}

fn prefix(fs: &dyn Fs, dir: &Path, number: FileNumber) -> Prefix {
    let path = dir.join(FileName::Manifest(number).to_string());
    // A failed edit leaves `version` unusable, so a second pass stops before that edit.
    let mut most = u64::MAX;
    loop {
        let mut reader = match LogReader::open(fs, &path, LogKind::Manifest, None) {
            Ok(reader) => reader,
            Err(error) => {
                let (version, removed) = (Version::default(), BTreeSet::new());
                return Prefix { version, removed, end: Err(error.chain()) };
            }
        };
        let (mut version, mut removed, mut count) = (Version::default(), BTreeSet::new(), 0);
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
            let applied = edit.and_then(|edit| {
                version.apply_in_place(&edit)?;
                removed.extend(edit.remove_files);
                Ok(())
            });
            let Err(why) = applied else {
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
        return Prefix { version, removed, end: classify_end(&mut reader, wrong, most) };
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
        // These bytes may be a torn tail or a damaged durable edit. Nothing distinguishes the two,
        // so the manifest is treated as incomplete.
        None if !rest.is_zero() => Err(format!("{path}: the bytes at {at} are no record")),
        None => Ok(at),
    }
}
