//! Replaces damaged table files by sound copies from another directory, while the database is in
//! use. [`FileReplacement::replace`] lists the steps.
//!
//! Invariants
//! * After a crash the database uses either the damaged file or the copy. At most one of the two
//!   files is left as an orphan.
//! * Reads that began earlier continue on the damaged file, because a mapped file must never
//!   change.
//!
//! Not here: finding the damage (`quarantine`, `check`).

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

/// The subdirectory in which a backup may keep its table files.
const FILES_DIR: &str = "files";

/// The table files in a directory, by id. The directory need not be a database.
pub(crate) struct SoundCopies(BTreeMap<FileId, Vec<PathBuf>>);

/// The outcome of the attempt to replace a damaged file.
#[derive(Clone, Debug)]
pub(crate) enum Healed {
    /// The database now uses a copy of this file, under this number.
    From(PathBuf, FileNumber),
    /// No file with the id of the damaged file was found.
    NoCopy,
    /// The copies found are damaged too.
    Unsound(Error),
    /// Compaction or a drop has removed the damaged file in the meantime.
    Gone,
}

impl SoundCopies {
    /// Lists the table files in `dir` and in its subdirectory `FILES_DIR`. Files without a readable
    /// header are skipped.
    ///
    /// # Errors
    /// `NotFound` if `dir` does not exist; `Io`.
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

    /// Replaces `file` by a sound copy. `progress` is called with the bytes read.
    ///
    /// 1. Find files with the same id in `copies`. The id is unique; another database may use the
    ///    same number for a different file.
    /// 2. Copy one of them under a new number: write to a temporary name, sync, rename, sync the
    ///    directory. No version contains the copy yet.
    /// 3. Read the whole copy and check it against the manifest's entry of the damaged file. If the
    ///    copy is damaged, try the next one.
    /// 4. Claim the ranges that reference the damaged file, so that no job changes them. One edit
    ///    replaces the file by the copy in all of them, with the same clips. The damaged file is
    ///    removed when no reader uses it any more.
    ///
    /// # Errors
    /// `StorageFull` and `Io` if copying fails; errors of the manifest. The damaged file then
    /// remains in use.
    pub(crate) fn replace(
        &self,
        file: &FileEntry,
        copies: &SoundCopies,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Healed> {
        let _work = self.0.state.work()?;
        let mut outcome = Healed::NoCopy;
        for path in copies.of(file.meta.id) {
            // Reserve space for the copy, because the damaged file remains until no reader uses it.
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
            // If the disk is full or no range references the damaged file, remove the copy. After
            // any other error the edit may have reached the manifest, so the copy must stay.
            let is_full = |error: &Error| error.kind() == ErrorKind::StorageFull;
            if exchanged.as_ref().map_or_else(is_full, |done| !done) {
                self.0.env().discard(FileName::Sst(number));
            }
            let healed = || Healed::From(path.clone(), number);
            return exchanged.map(|done| if done { healed() } else { Healed::Gone });
        }
        Ok(outcome)
    }

    /// Copies the file at `path` under a new number (step 2 of [`replace`](Self::replace)). Returns
    /// the manifest entry of the copy.
    fn copy_in(&self, meta: &FileMeta, path: &Path) -> Result<FileMeta> {
        let (number, _) = self.0.new_file()?;
        let copied = self.0.env().copy_in(path, number);
        copied.inspect_err(|_| self.0.env().discard(FileName::Sst(number)))?;
        Ok(FileMeta { number, ..meta.clone() })
    }

    /// Replaces the file by the copy in all ranges (step 4 of [`replace`](Self::replace)). Returns
    /// false if no range references the damaged file any more.
    fn exchange_file(&self, file: &FileEntry, meta: FileMeta) -> Result<bool> {
        // A job or a split that ends before the ranges are claimed may add references in further
        // ranges. So repeat until all ranges that reference the file are claimed.
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

    /// Replaces the file in the claimed ranges `held`. Returns `None` if other ranges reference it
    /// too.
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
        let version = self.0.append_edit(&mut manifest, &replacement(&version, &entry, meta))?;
        self.0.reader().change_view(|view| view.with_version(&version, None));
        drop(manifest);
        self.0.state.retire([entry]);
        Ok(Some(true))
    }
}

/// Returns the ranges that reference `file`, in key order.
fn ranges_of(version: &Version, file: FileNumber) -> Vec<RangeId> {
    let has = |(_, reference): (_, &FileReference)| reference.file.meta.number == file;
    let ranges = version.ranges.iter().filter(|range| range.references().any(has));
    ranges.map(|range| range.id).collect()
}

/// Returns the edit that replaces `old` by `meta` in all ranges.
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
        let copied = copy_file(&*self.fs, from, &temporary, &mut |_| Ok(()));
        copied.and_then(|_| self.fs.rename(&temporary, &path)).map_err(|error| {
            // Remove the temporary file, which is not in use, because a full disk needs its space.
            drop(self.fs.remove(&temporary));
            Error::io(format!("copy {} to {}", from.display(), path.display()), error)
        })?;
        self.sync_dir()
    }
}
