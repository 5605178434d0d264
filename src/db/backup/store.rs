//! Manages the directory of backups: `files/<id>.sst`, `generations/<n>.generation` and `LOCK`. See
//! FORMAT.md §generation.
//!
//! Invariants
//! * a generation gets its final name only when all files that it names are durable under their own
//!   final names;
//! * generations, and stored files that a generation names, are never written again;
//! * a file is identified by its id. If two entries have the same id but differ otherwise, one is
//!   damaged;
//! * a file is removed only after all generations that named it are durably removed.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Doing, Error, ErrorKind, Result};
use crate::format::file_meta::FileMeta;
use crate::format::generation::{GENERATION_BYTES_MAX, Generation, StoredFile};
use crate::format::names::FileId;
use crate::fs::{FileLock, Fs, read_small};
use crate::lsm::{OnBytes, copy_file, read_file};

const FILES: &str = "files";
const GENERATIONS: &str = "generations";
const LOCK: &str = "LOCK";
const TEMPORARY: &str = ".tmp";

/// A directory of backups of one database.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    fs: Arc<dyn Fs>,
    pub(super) dir: PathBuf,
}

/// The stored files that the generations name.
#[derive(Default)]
pub(super) struct Known {
    /// Each file's metadata and its entry in a generation, by id.
    files: BTreeMap<FileId, (FileMeta, StoredFile)>,
}

/// The backups and files that [`Backup::prune`](super::Backup::prune) removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// The number of removed backups.
    pub generations: u64,
    /// The number of removed table files: those that only removed backups used, and those that
    /// interrupted backups left over.
    pub files: u64,
    /// The total size of the removed files in bytes.
    pub bytes: u64,
}

impl Store {
    /// Opens the backups in `dir`.
    ///
    /// # Errors
    /// `NotFound` if `dir` has never contained backups.
    pub(super) fn open(fs: Arc<dyn Fs>, dir: &Path) -> Result<Store> {
        let store = Store { fs, dir: dir.to_owned() };
        if store.exists(&store.dir.join(GENERATIONS))? {
            return Ok(store);
        }
        Err(Error::new(ErrorKind::NotFound, format!("there are no backups in {}", dir.display())))
    }

    /// As [`open`](Self::open), but creates the store if `dir` is missing or empty.
    ///
    /// # Errors
    /// `InvalidInput` for a directory with other contents.
    pub(super) fn create(fs: Arc<dyn Fs>, dir: &Path) -> Result<Store> {
        let store = Store { fs, dir: dir.to_owned() };
        if store.exists(dir)? {
            let ours = [FILES, GENERATIONS, LOCK];
            let names = store.list(dir)?;
            if let Some(foreign) = names.iter().find(|name| !ours.contains(&name.as_str())) {
                let problem = format!(
                    "{} holds no backups: it holds {foreign}; name a new path or an empty directory",
                    dir.display()
                );
                return Err(Error::new(ErrorKind::InvalidInput, problem));
            }
        }
        for part in [FILES, GENERATIONS] {
            let part = dir.join(part);
            store.fs.create_dir_all(&part).doing("create", &part)?;
        }
        Ok(store)
    }

    /// Takes the lock that excludes other backups and prunes.
    pub(super) fn lock(&self) -> Result<Box<dyn FileLock>> {
        let path = self.dir.join(LOCK);
        self.fs.lock(&path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                let problem =
                    format!("another backup or prune is at work in {}", self.dir.display());
                Error::new(ErrorKind::Locked, problem)
            }
            _ => doing("lock", &path, error),
        })
    }

    /// Returns the numbers of all generations, ascending.
    pub(super) fn numbers(&self) -> Result<Vec<u64>> {
        let names = self.list(&self.dir.join(GENERATIONS))?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| parse_number(name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns the number for the next generation, one above the highest.
    ///
    /// # Errors
    /// `InvalidInput` if the highest possible number exists, which is the case only if another
    /// program created its file.
    pub(super) fn next_number(&self) -> Result<u64> {
        let Some(last) = self.numbers()?.last().copied() else { return Ok(1) };
        last.checked_add(1).ok_or_else(|| {
            let path = self.generation_path(last);
            let problem = format!("{} has the last number there is: remove it", path.display());
            Error::new(ErrorKind::InvalidInput, problem)
        })
    }

    /// Reads one generation.
    ///
    /// # Errors
    /// `NotFound`; `Corruption`, `Unsupported`, `Io`.
    pub(super) fn read(&self, number: u64) -> Result<Generation> {
        let path = self.generation_path(number);
        let bytes = read_small(&*self.fs, &path, GENERATION_BYTES_MAX);
        let bytes = bytes.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let problem = format!("there is no backup {number} in {}", self.dir.display());
                Error::new(ErrorKind::NotFound, problem)
            }
            io::ErrorKind::InvalidData => Error::corrupt(&path, 0, "generation", error.to_string()),
            _ => doing("read", &path, error),
        })?;
        let generation = Generation::decode(&bytes).map_err(|error| error.into_error(&path, 0))?;
        if generation.number != number {
            let problem = format!("another backup's number, {}", generation.number);
            return Err(Error::corrupt(&path, 0, "generation", problem));
        }
        Ok(generation)
    }

    /// Returns the path of the file with this id, whether it exists or not.
    pub(super) fn file_path(&self, id: FileId) -> PathBuf {
        self.dir.join(FILES).join(format!("{:016x}.sst", id.0))
    }

    fn generation_path(&self, number: u64) -> PathBuf {
        self.dir.join(GENERATIONS).join(format!("{number:06}.generation"))
    }

    /// Returns the stored files of `database`. Unreadable generations are ignored.
    ///
    /// # Errors
    /// `InvalidInput` if the backups are of another database.
    pub(super) fn known(&self, database: u128) -> Result<Known> {
        let mut known = Known::default();
        for number in self.numbers()? {
            let generation = match self.read(number) {
                Ok(generation) => generation,
                Err(error) if error.kind() == ErrorKind::Corruption => continue,
                Err(error) => return Err(error),
            };
            if generation.identity().is_some_and(|identity| identity.database != database) {
                let problem = format!(
                    "{} holds backups of another database: a directory is for one",
                    self.dir.display()
                );
                return Err(Error::new(ErrorKind::InvalidInput, problem));
            }
            for meta in &generation.edit.add_files {
                let Some(stored) = generation.file(meta.id) else { continue };
                known.files.insert(meta.id, (meta.clone(), *stored));
            }
        }
        Ok(known)
    }

    /// Whether the file exists with the expected length.
    pub(super) fn has(&self, file: &StoredFile) -> Result<bool> {
        let path = self.file_path(file.id);
        if !self.exists(&path)? {
            return Ok(false);
        }
        Ok(self.fs.open_read(&path).and_then(|file| file.len()).doing("open", &path)? == file.bytes)
    }

    /// Copies the table file at `source` into the store if `check` accepts the copy. The copy is
    /// written to a temporary name, synced, checked and renamed. [`put`](Self::put) makes the final
    /// name durable.
    pub(super) fn add(
        &self,
        source: &Path,
        meta: &FileMeta,
        progress: OnBytes<'_>,
        check: &dyn Fn(&Path) -> Result<()>,
    ) -> Result<StoredFile> {
        let path = self.file_path(meta.id);
        let half = temporary(&path);
        let copied = copy_file(&*self.fs, source, &half, progress).map_err(|error| {
            drop(self.fs.remove(&half));
            Error::io(format!("copy {} to {}", source.display(), half.display()), error)
        })?;
        if copied.bytes != meta.bytes {
            drop(self.fs.remove(&half));
            let problem = format!("{} bytes long, {} by the manifest", copied.bytes, meta.bytes);
            return Err(Error::corrupt(source, copied.bytes.min(meta.bytes), "sst", problem));
        }
        check(&half).inspect_err(|_| drop(self.fs.remove(&half)))?;
        self.fs.rename(&half, &path).doing("rename", &half)?;
        Ok(StoredFile { id: meta.id, bytes: copied.bytes, checksum: copied.checksum })
    }

    /// Writes a generation. All files that it names must exist. Syncs the directory `files`, writes
    /// the generation to a temporary name, syncs and renames it, and syncs the directory
    /// `generations`.
    pub(super) fn put(&self, generation: &Generation) -> Result<()> {
        // Sync even if this backup added no file: an interrupted backup may have left file names
        // that are not durable.
        self.sync(FILES)?;
        let path = self.generation_path(generation.number);
        let bytes = generation.encode();
        if bytes.len() as u64 > GENERATION_BYTES_MAX {
            let problem = format!("a backup of {} files is too large", generation.files.len());
            return Err(Error::new(ErrorKind::Unsupported, problem));
        }
        let half = temporary(&path);
        let write = || -> io::Result<()> {
            let file = self.fs.create(&half)?;
            file.write_at(0, &bytes)?;
            file.sync()?;
            drop(file);
            self.fs.rename(&half, &path)
        };
        write().map_err(|error| {
            drop(self.fs.remove(&half));
            doing("write", &path, error)
        })?;
        self.sync(GENERATIONS)
    }

    /// Removes half-written files. Requires the lock.
    pub(super) fn remove_temporaries(&self) -> Result<()> {
        for part in [FILES, GENERATIONS] {
            let part = self.dir.join(part);
            let names = self.list(&part)?;
            let is_ours = |name: &&String| {
                name.strip_suffix(TEMPORARY).map(Path::new).is_some_and(|path| {
                    is_stored_file(path)
                        || path.to_str().is_some_and(|name| parse_number(name).is_some())
                })
            };
            for name in names.iter().filter(is_ours) {
                let path = part.join(name);
                self.fs.remove(&path).doing("remove", &path)?;
            }
        }
        Ok(())
    }

    /// Removes all generations except the newest `keep`, and then every file that no kept
    /// generation names. Requires the lock.
    ///
    /// # Errors
    /// `Corruption` if a generation to be kept cannot be read; then nothing is removed.
    pub(super) fn prune(&self, keep: usize) -> Result<Pruned> {
        let numbers = self.numbers()?;
        let (old, kept) = numbers.split_at(numbers.len().saturating_sub(keep));
        let mut named = BTreeMap::new();
        for number in kept {
            let files = self.read(*number)?.files;
            named.extend(files.into_iter().map(|file| (self.file_path(file.id), file)));
        }
        self.remove_temporaries()?;
        let mut pruned = Pruned { generations: old.len() as u64, ..Pruned::default() };
        for number in old {
            let path = self.generation_path(*number);
            self.fs.remove(&path).doing("remove", &path)?;
        }
        self.sync(GENERATIONS)?;
        self.remove_unnamed(&named, &mut pruned)?;
        self.sync(FILES)?;
        Ok(pruned)
    }

    fn remove_unnamed(
        &self,
        named: &BTreeMap<PathBuf, StoredFile>,
        pruned: &mut Pruned,
    ) -> Result<()> {
        let dir = self.dir.join(FILES);
        for path in self.list(&dir)?.into_iter().map(|name| dir.join(name)) {
            // Files that no backup created are kept.
            if named.contains_key(&path) || !is_stored_file(&path) {
                continue;
            }
            let len = self.fs.open_read(&path).and_then(|file| file.len());
            pruned.bytes += len.doing("open", &path)?;
            pruned.files += 1;
            self.fs.remove(&path).doing("remove", &path)?;
        }
        Ok(())
    }

    /// Reads a stored file and compares its length and checksum with its entry in the generation.
    pub(super) fn check(&self, file: &StoredFile, progress: OnBytes<'_>) -> Result<()> {
        let path = self.file_path(file.id);
        let read = read_file(&*self.fs, &path, &mut |_, piece| progress(piece.len() as u64));
        let read = read.map_err(|error| missing_or(&path, error))?;
        compare(&path, file, read.bytes, read.checksum)
    }

    /// Copies a stored file to `target` and syncs its contents, but not its name.
    pub(super) fn take(
        &self,
        file: &StoredFile,
        target: &Path,
        progress: OnBytes<'_>,
    ) -> Result<()> {
        let path = self.file_path(file.id);
        if !self.exists(&path)? {
            return Err(missing(&path));
        }
        let copied = copy_file(&*self.fs, &path, target, progress).map_err(|error| {
            Error::io(format!("copy {} to {}", path.display(), target.display()), error)
        })?;
        compare(&path, file, copied.bytes, copied.checksum)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.fs.list(dir).doing("list", dir)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.fs.exists(path).doing("look at", path)
    }

    fn sync(&self, part: &str) -> Result<()> {
        let dir = self.dir.join(part);
        self.fs.sync_dir(&dir).doing("sync directory", &dir)
    }
}

/// Whether `path` has the name of a stored file: an id in hexadecimal, and the extension.
fn is_stored_file(path: &Path) -> bool {
    let id = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".sst"));
    id.is_some_and(|id| id.len() == 16 && u64::from_str_radix(id, 16).is_ok())
}

impl Known {
    /// Returns the stored copy of the file that `meta` describes, if there is one.
    ///
    /// # Errors
    /// `Corruption` if the store has a different file with the same id.
    pub(super) fn file(&self, path: &Path, meta: &FileMeta) -> Result<Option<StoredFile>> {
        let Some((known, stored)) = self.files.get(&meta.id) else { return Ok(None) };
        let facts = |meta: &FileMeta| (meta.bytes, meta.entries, meta.seq_min, meta.seq_max);
        if facts(known) == facts(meta) && known.sections == meta.sections {
            return Ok(Some(*stored));
        }
        let problem = format!("its id {:016x} is that of another file in the backup", meta.id.0);
        Err(Error::corrupt(path, 0, "sst header", problem))
    }
}

fn compare(path: &Path, file: &StoredFile, bytes: u64, checksum: u32) -> Result<()> {
    if bytes != file.bytes {
        let problem = format!("{bytes} bytes long, {} when it was stored", file.bytes);
        return Err(Error::corrupt(path, bytes.min(file.bytes), "stored file", problem));
    }
    if checksum != file.checksum {
        let problem = format!("checksum {checksum:08x}, {:08x} when it was stored", file.checksum);
        return Err(Error::corrupt(path, 0, "stored file", problem));
    }
    Ok(())
}

fn missing(path: &Path) -> Error {
    Error::corrupt(path, 0, "stored file", "it is missing")
}

fn missing_or(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => missing(path),
        _ => doing("read", path, error),
    }
}

fn doing(what: &str, path: &Path, error: io::Error) -> Error {
    Error::io(format!("{what} {}", path.display()), error)
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY);
    name.into()
}

/// Returns the number of a generation from its file name. The name must have the canonical form, at
/// least six digits without superfluous zeros, so that each number has one name.
fn parse_number(name: &str) -> Option<u64> {
    let number: u64 = name.strip_suffix(".generation")?.parse().ok()?;
    (format!("{number:06}.generation") == name).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::names::FileNumber;
    use crate::model::Seq;

    fn meta(number: u64, id: u64) -> FileMeta {
        FileMeta {
            number: FileNumber(number),
            id: FileId(id),
            bytes: 8300,
            seq_min: Seq(100),
            seq_max: Seq(300),
            visible_from: Seq::ZERO,
            tombstones_applied: Seq::ZERO,
            entries: 3,
            tombstones: 1,
            raw_bytes: 60,
            key_min: b"a"[..].into(),
            key_max: b"c"[..].into(),
            sections: Vec::new(),
            unknown: Box::default(),
        }
    }

    #[test]
    fn a_file_with_another_id_differs_despite_equal_number_and_size() {
        let stored = StoredFile { id: FileId(7), bytes: 8300, checksum: 1 };
        let known = Known { files: BTreeMap::from([(FileId(7), (meta(12, 7), stored))]) };
        let ask = |meta: &FileMeta| known.file(Path::new("000012.sst"), meta);
        assert_eq!(ask(&meta(12, 7)).unwrap(), Some(stored));
        assert_eq!(ask(&meta(12, 8)).unwrap(), None);
        // A copy of the database may have the same file under another number.
        assert_eq!(ask(&meta(13, 7)).unwrap(), Some(stored));
        let other = FileMeta { entries: 4, ..meta(12, 7) };
        assert_eq!(ask(&other).unwrap_err().kind(), ErrorKind::Corruption);
    }

    #[test]
    fn one_number_has_one_name() {
        assert_eq!(parse_number("000012.generation"), Some(12));
        assert_eq!(parse_number("1234567.generation"), Some(1_234_567));
        for name in ["12.generation", "0000012.generation", "000012.generation.tmp", "+00012.x"] {
            assert_eq!(parse_number(name), None);
        }
    }
}
