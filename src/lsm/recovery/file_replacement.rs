//! Sound copies of damaged table files come in from another directory, while the database is in use.
//!
//! 1. Find files with the same unique id there: a number names a file, only the id says that it is the one that was meant.
//! 2. Copy one under a new number: temporary name, synced, renamed, directory synced. Nothing names it yet.
//! 3. Read and check all of it against what the manifest says of the damaged one. If it is not sound, the next one.
//! 4. Claim the ranges that reference the damaged file, so that no job changes them. One edit puts the copy in its place
//!    everywhere, with the same clips; the damaged file is removed when nobody holds it any more.
//!
//! Invariants
//! * a crash leaves the damaged file or the sound one in use, and at most an orphan;
//! * whoever began to read before goes on reading the damaged file: maps are never changed under anybody.
//!
//! Not here: what is damaged (`quarantine`, `check`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Doing, Error, ErrorKind, Result};
use crate::format::edit::{ReferenceMeta, VersionEdit};
use crate::format::file_meta::FileMeta;
use crate::format::names::{FileId, FileName, FileNumber, RangeId};
use crate::format::sst::{HEADER_BYTES, file_id};
use crate::fs::Fs;
use crate::manifest::{FileEntry, FileReference, Version};

use super::checkpoint::copy_file;
use crate::lsm::background::maintenance::Maintenance;
use crate::lsm::{Engine, Env};

/// Where a backup may keep table files beside its own directory.
const FILES_DIR: &str = "files";

/// Table files by their ids, in a directory that need not be a database.
pub(crate) struct SoundCopies(BTreeMap<FileId, Vec<PathBuf>>);

/// What became of a damaged file.
#[derive(Clone, Debug)]
pub(crate) enum Healed {
    /// A copy of this file took its place, under this number.
    From(PathBuf, FileNumber),
    /// There is none with its id.
    NoCopy,
    /// There is one, and it is damaged too.
    Unsound(Error),
    /// Compaction or a drop took the file meanwhile.
    Gone,
}

impl SoundCopies {
    /// Looks at every table file in `dir`, and in `concat_iter` below it; what has no readable header is passed over.
    ///
    /// # Errors
    /// `NotFound` if there is no such directory; `Io`.
    pub(crate) fn in_dir(fs: &dyn Fs, dir: &Path) -> Result<Self> {
        if !fs.exists(dir).doing("look for files in", dir)? {
            let problem = format!("there is no directory {}", dir.display());
            return Err(Error::new(ErrorKind::NotFound, problem));
        }
        let mut found: BTreeMap<FileId, Vec<PathBuf>> = BTreeMap::new();
        for place in [dir.to_owned(), dir.join(FILES_DIR)] {
            if !fs.exists(&place).doing("look for files in", dir)? {
                continue;
            }
            let names = fs.list(&place).doing("look for files in", dir)?;
            for name in names.iter().filter(|name| name.ends_with(".sst")) {
                let path = place.join(name);
                if let Some(id) = id_of(fs, &path) {
                    found.entry(id).or_default().push(path);
                }
            }
        }
        Ok(Self(found))
    }

    fn of(&self, id: FileId) -> &[PathBuf] {
        self.0.get(&id).map_or(&[], Vec::as_slice)
    }
}

fn id_of(fs: &dyn Fs, path: &Path) -> Option<FileId> {
    let mut header = [0; HEADER_BYTES];
    fs.open_read(path).ok()?.read_at(0, &mut header).ok()?;
    file_id(&header).ok()
}

/// Replaces damaged files of an open database.
pub(crate) struct FileReplacement<'e>(&'e Maintenance);

impl<'e> FileReplacement<'e> {
    pub(crate) fn new(engine: &'e Engine) -> Self {
        Self(engine.maintenance())
    }

    /// Replaces `file` by a sound copy; `progress` receives the bytes read.
    ///
    /// # Errors
    /// `StorageFull` and `Io` of copying; of the manifest. The damaged file is in use then as before.
    pub(crate) fn replace(
        &self,
        file: &FileEntry,
        copies: &SoundCopies,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Healed> {
        let _work = self.0.state.work()?;
        let mut outcome = Healed::NoCopy;
        for path in copies.of(file.meta.id) {
            // Beside the damaged one, until nobody holds that.
            let _room = self.0.plan(file.meta.bytes).ok_or_else(|| self.0.no_room())?;
            let meta = self.copy_in(&file.meta, path)?;
            let checked = match self.0.env().verify_sst(&meta, progress) {
                Ok(facts) => facts.problems.into_iter().next().map(Error::damage),
                Err(error) => Some(error),
            };
            if let Some(error) = checked {
                self.0.env().discard(FileName::Sst(meta.number));
                outcome = Healed::Unsound(error);
                continue;
            }
            let number = meta.number;
            let exchanged = self.exchange_file(file, meta);
            // After any other failure the manifest may name the copy.
            let is_full = |error: &Error| error.kind() == ErrorKind::StorageFull;
            if exchanged.as_ref().map_or_else(is_full, |done| !done) {
                self.0.env().discard(FileName::Sst(number));
            }
            let healed = || Healed::From(path.clone(), number);
            return exchanged.map(|done| if done { healed() } else { Healed::Gone });
        }
        Ok(outcome)
    }

    /// Step 2: the copy's entry in the manifest, under a new number.
    fn copy_in(&self, meta: &FileMeta, path: &Path) -> Result<FileMeta> {
        let (number, _) = self.0.new_file()?;
        let copied = self.0.env().copy_in(path, number);
        copied.inspect_err(|_| self.0.env().discard(FileName::Sst(number)))?;
        Ok(FileMeta { number, ..meta.clone() })
    }

    /// Step 4; false if nothing references the file any more.
    fn exchange_file(&self, file: &FileEntry, meta: FileMeta) -> Result<bool> {
        // Jobs that end meanwhile may leave it to other ranges; those of a split are not known before.
        loop {
            let version = Arc::clone(&self.0.reader().view.load().version);
            let held = ranges_of(&version, file.meta.number);
            held.iter().for_each(|id| self.0.state.claim_waiting(*id));
            let done = self.exchange_claimed(file, &meta, &held);
            held.iter().for_each(|id| self.0.state.release(*id));
            if let Some(done) = done? {
                return Ok(done);
            }
        }
    }

    /// `None` if it is referenced by other ranges than those `held`.
    fn exchange_claimed(
        &self,
        file: &FileEntry,
        meta: &FileMeta,
        held: &[RangeId],
    ) -> Result<Option<bool>> {
        let mut manifest = self.0.install.lock();
        let version = Arc::clone(manifest.version());
        let Some(entry) = version.file(file.meta.number).cloned() else { return Ok(Some(false)) };
        if ranges_of(&version, file.meta.number) != held {
            return Ok(None);
        }
        let edit = replacement(&version, &entry, meta);
        let version = self.0.append_edit(&mut manifest, &edit)?;
        self.0.reader().change_view(|view| view.with_version(&version, None));
        drop(manifest);
        self.0.state.retire([entry]);
        Ok(Some(true))
    }
}

/// The ranges that reference the file, in the order of their keys.
fn ranges_of(version: &Version, file: FileNumber) -> Vec<RangeId> {
    let has = |(_, reference): (_, &FileReference)| reference.file.meta.number == file;
    let ranges = version.ranges.iter().filter(|range| range.references().any(has));
    ranges.map(|range| range.id).collect()
}

/// The edit that puts `meta` wherever `old` is.
fn replacement(version: &Version, old: &FileEntry, meta: &FileMeta) -> VersionEdit {
    let number = old.meta.number;
    let mut edit = VersionEdit {
        add_files: vec![meta.clone()],
        remove_files: vec![number],
        ..VersionEdit::default()
    };
    for range in version.ranges.iter() {
        let references = range.references().filter(|(_, r)| r.file.meta.number == number);
        for (placement, reference) in references {
            edit.remove_references.push((range.id, number));
            let (range, file, clip) = (range.id, meta.number, reference.clip.clone());
            let bytes = reference.bytes_meta();
            edit.add_references.push(ReferenceMeta { range, file, placement, clip, bytes });
        }
    }
    edit
}

impl Env {
    fn copy_in(&self, from: &Path, number: FileNumber) -> Result<()> {
        let path = self.dir.join(FileName::Sst(number).to_string());
        let temporary = path.with_extension("sst.tmp");
        let copied = copy_file(&*self.fs, from, &temporary, &mut |_| ());
        let copied = copied.and_then(|_| self.fs.rename(&temporary, &path));
        copied.map_err(|error| {
            // Nothing names it: on a full disk its space is needed.
            drop(self.fs.remove(&temporary));
            Error::io(format!("copy {} to {}", from.display(), path.display()), error)
        })?;
        self.sync_dir()
    }
}
