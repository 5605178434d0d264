//! Backs up a database into a directory that stores several of its states, and restores from it.
//!
//! A backup flushes the database and pins its table files (`lsm::checkpoint`). It copies the table
//! files that the directory lacks, checks the copies, and writes a generation (`store`).
//!
//! Invariants
//! * a file is stored once under its unique id, and is copied, never linked, so that damage to the
//!   database's file does not affect the backup;
//! * damaged files, and files that differ from their entry in the generation, are neither backed up
//!   nor restored.

mod overlay;
mod store;

pub use store::Pruned;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Db, Moved};
use crate::check::gaps;
use crate::error::{Doing, Error, ErrorKind, Result};
use crate::format::file_meta::FileMeta;
use crate::format::generation as format;
use crate::format::names::{FileId, FileName};
use crate::fs::Fs;
use crate::lsm::{
    OnProgress, OnRows, build, image, require_empty, require_outside, verify_copy, verify_entry,
};
use crate::manifest::Version;
use crate::model::{DateTime, Seq};
use crate::options::{Background, Options};
use crate::query::KeyRange;
use crate::rng::Rng;
use crate::sort::sort_by;

use overlay::Overlay;
use store::Store;

/// A directory of backups of one database, cheap to clone. Several processes may read the directory
/// concurrently.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// use rowstone::{Db, Entity, KeyRange, fs::MemFs};
/// let fs = std::sync::Arc::new(MemFs::new());
/// let options = || Db::options().fs(fs.clone());
/// let db = options().open("shop")?;
/// let parts = db.create_table("parts")?;
/// parts.insert(Entity::new("bolts", "m4x20").with("Stock", 1_200))?;
/// let monday = db.backup("backups")?;
/// parts.delete_partition("bolts")?;
///
/// let backups = options().open_backup("backups")?;
/// assert!(backups.verify()?.problems.is_empty());
/// // Restore one partition into the running database …
/// backups.restore_into(monday.number, "parts", KeyRange::partition("bolts"), &db, "parts")?;
/// assert!(parts.get("bolts", "m4x20")?.is_some());
/// // … and the whole backup as a separate database.
/// backups.restore(monday.number, "restored")?;
/// assert_eq!(options().open("restored")?.tables()?, ["parts"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Backup {
    store: Store,
    options: Options,
}

/// One backup in a directory of backups.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Generation {
    /// The number to pass to [`Backup::restore`]; later backups have greater numbers.
    pub number: u64,
    /// The time of the backup, by the database's clock.
    pub taken: DateTime,
    /// The Seq of the last commit in the backup: earlier commits are included, later ones are not.
    pub seq: Seq,
    /// The number of table files in the backup.
    pub files: u64,
    /// The total size of the backup's table files in bytes.
    pub bytes: u64,
    /// The number of table files that no earlier backup in the directory has.
    pub new_files: u64,
    /// The total size of the new files in bytes.
    pub new_bytes: u64,
    /// The problem, if the generation file is damaged. Such a backup cannot be restored, and all
    /// fields except `number` are unknown.
    pub problem: Option<String>,
}

/// The result of [`Backup::verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupReport {
    /// The number of backups that were read.
    pub generations: u64,
    /// The number of table files that were read. A file that several backups share is counted once.
    pub files: u64,
    /// The total size of the table files that were read, in bytes.
    pub bytes: u64,
    /// The damaged or missing files, and for each the backups that need it.
    pub problems: Vec<String>,
}

impl Options {
    /// Opens the directory of backups `dir`. Uses only the file system of these options and, for
    /// restores into a running database, the read options.
    ///
    /// # Errors
    /// `NotFound` if there are no backups; `Io`.
    pub fn open_backup(self, dir: impl AsRef<Path>) -> Result<Backup> {
        let store = Store::open(Arc::clone(&self.fs), dir.as_ref())?;
        Ok(Backup { store, options: self })
    }
}

impl Db {
    /// Backs up the current state of the database into the directory `dir`, while the database is
    /// in use. The first backup creates the directory. Later ones copy only table files that the
    /// directory does not contain yet. A directory holds backups of one database and of the
    /// databases restored from it.
    ///
    /// Each new copy is read and checked, so that a backup never contains damage. Compactions
    /// rewrite files, so the number of new files depends on the amount of data written since the
    /// last backup. An interrupted backup is not listed; the next one replaces or removes its
    /// files.
    ///
    /// # Errors
    /// `Corruption` if a table file is damaged; `InvalidInput` for a directory with other contents,
    /// with backups of another database, or inside this database; `Locked` while another backup
    /// into the directory runs; `Busy`, `Io`, `StorageFull`. After an error no backup was added,
    /// and the existing ones are unchanged.
    pub fn backup(&self, dir: impl AsRef<Path>) -> Result<Generation> {
        self.backup_with(dir, |_, _| ())
    }

    /// As [`backup`](Self::backup); calls `progress` with the bytes copied so far and the total.
    ///
    /// # Errors
    /// As [`backup`](Self::backup).
    pub fn backup_with(
        &self,
        dir: impl AsRef<Path>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Generation> {
        self.backup_while(dir.as_ref(), &mut |done, of| {
            progress(done, of);
            Ok(())
        })
    }

    /// Opens the directory of backups `dir`, which is created if it is missing.
    pub(crate) fn backup_store(&self, dir: &Path) -> Result<Store> {
        let env = self.engine.env();
        require_outside(dir, &env.dir)?;
        Store::create(Arc::clone(&env.fs), dir)
    }

    /// Like [`backup_with`](Self::backup_with); an error of `progress` ends the backup.
    pub(crate) fn backup_while(&self, dir: &Path, progress: OnProgress<'_>) -> Result<Generation> {
        let (store, env) = (self.backup_store(dir)?, self.engine.env());
        let _lock = store.lock()?;
        store.remove_temporaries()?;
        let image = image(&self.engine)?;
        let known = store.known(image.identity.database)?;
        let (mut files, mut new) = (Vec::new(), Vec::new());
        for file in image.version().files() {
            let path = env.dir.join(FileName::Sst(file.meta.number).to_string());
            match known.file(&path, &file.meta)? {
                Some(stored) if store.has(&stored)? => files.push(stored),
                _ => new.push((file, path)),
            }
        }
        let new_bytes = new.iter().map(|(file, _)| file.meta.bytes).sum();
        let new_files = new.len() as u64;
        let mut progress = counted(new_bytes, progress);
        for (file, path) in new {
            files.push(store.add(&path, &file.meta, &mut progress, &|copy| {
                let copy = BTreeMap::from([(path.clone(), copy.to_owned())]);
                verify_copy(self.engine.env(), &Overlay::new(Arc::clone(&env.fs), copy), &file.meta)
            })?);
        }
        sort_by(&mut files, |a, b| a.id.cmp(&b.id));
        let mut edit = image.edit.clone();
        edit.identity = Some(image.identity.clone());
        edit.numbers_below = Some(image.version().numbers_below);
        let generation = format::Generation {
            number: store.next_number()?,
            taken: env.clock.now().min(Seq::MAX.0),
            files,
            edit,
            unknown: Box::default(),
        };
        store.put(&generation)?;
        Ok(Generation { new_files, new_bytes, ..Generation::of(&generation) })
    }
}

impl Backup {
    /// Opens the directory of backups `dir` with the default options.
    ///
    /// # Errors
    /// As [`Options::open_backup`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Backup> {
        Options::new().open_backup(dir)
    }

    /// Returns the backups in the directory, oldest first.
    ///
    /// # Errors
    /// `Io`; `Unsupported` for a backup of a newer format. A damaged backup is no error: it is
    /// listed with its problem.
    pub fn generations(&self) -> Result<Vec<Generation>> {
        let (mut list, mut seen) = (Vec::new(), BTreeSet::new());
        for number in self.store.numbers()? {
            let generation = match self.store.read(number) {
                Ok(generation) => generation,
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    list.push(Generation::damaged(number, &error));
                    continue;
                }
                Err(error) => return Err(error),
            };
            let new: Vec<_> =
                generation.files.iter().filter(|file| seen.insert(file.id)).copied().collect();
            let (new_files, new_bytes) = (new.len() as u64, new.iter().map(|f| f.bytes).sum());
            list.push(Generation { new_files, new_bytes, ..Generation::of(&generation) });
        }
        Ok(list)
    }

    /// Reads all files of the backups, and compares their contents with the checksums and with the
    /// metadata in the backups.
    ///
    /// # Errors
    /// Fails only for errors that prevent the check; damage is in the report.
    pub fn verify(&self) -> Result<BackupReport> {
        self.verify_with(|_, _| ())
    }

    /// As [`verify`](Self::verify); `progress` is called with the bytes read so far and the total.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub fn verify_with(&self, mut progress: impl FnMut(u64, u64)) -> Result<BackupReport> {
        let mut report = BackupReport::default();
        // If a generation is damaged, it may describe a file differently than other generations do.
        // So the key of this map is the whole description of a file, not only its id.
        let mut files: BTreeMap<format::StoredFile, Vec<Entry>> = BTreeMap::new();
        for number in self.store.numbers()? {
            match self.store.read(number).and_then(|g| version_of(&g).map(|_| g)) {
                Ok(generation) => {
                    report.generations += 1;
                    for meta in &generation.edit.add_files {
                        let Some(file) = generation.file(meta.id) else { continue };
                        let entries = files.entry(*file).or_default();
                        match entries.last_mut().filter(|(last, _)| last == meta) {
                            Some((_, generations)) => generations.push(number),
                            None => entries.push((meta.clone(), vec![number])),
                        }
                    }
                }
                Err(error) => report.problems.push(found(error)?),
            }
        }
        let total = files.keys().map(|file| file.bytes).sum();
        let mut infallible = |done, of| {
            progress(done, of);
            Ok(())
        };
        let mut progress = counted(total, &mut infallible);
        for (file, entries) in &files {
            report.files += 1;
            report.bytes += file.bytes;
            let all = || entries.iter().flat_map(|(_, generations)| generations).copied().collect();
            let found_in: Vec<(Error, Vec<u64>)> = match self.store.check(file, &mut progress) {
                Err(error) => vec![(error, all())],
                Ok(()) => entries
                    .iter()
                    .filter_map(|(meta, of)| {
                        Some((self.check_entry(of[0], meta).err()?, of.clone()))
                    })
                    .collect(),
            };
            for (error, generations) in found_in {
                let of: Vec<String> = generations.iter().map(u64::to_string).collect();
                let problem = found(error)?;
                report.problems.push(format!("{problem}; backups that need it: {}", of.join(", ")));
            }
        }
        Ok(report)
    }

    /// Compares a file's metadata in a generation with the contents of the stored file.
    fn check_entry(&self, generation: u64, meta: &FileMeta) -> Result<()> {
        let dir = self.generation_dir(generation);
        let path = dir.join(FileName::Sst(meta.number).to_string());
        let files = BTreeMap::from([(path, self.store.file_path(meta.id))]);
        verify_entry(&Overlay::new(Arc::clone(&self.options.fs), files), &dir, meta)
    }

    /// Removes all backups except the newest `keep`, and the files that only the removed ones used.
    ///
    /// # Errors
    /// `InvalidInput` for `keep` = 0. `Corruption` if a backup to be kept cannot be read; then
    /// nothing is removed. `Locked` while a backup runs. `Io`; then the backups to be kept are
    /// intact.
    pub fn prune(&self, keep: usize) -> Result<Pruned> {
        if keep == 0 {
            let problem = "at least one backup stays: remove the directory to remove all of them";
            return Err(Error::new(ErrorKind::InvalidInput, problem));
        }
        let _lock = self.store.lock()?;
        self.store.prune(keep)
    }

    /// Restores a backup, or the newest one for `None`, as a database in the new or empty directory
    /// `path`. The database has all tables as of the backup, with ETags and Timestamps, and a new
    /// incarnation (a random identity that no other copy has). A consumer of the old database's
    /// changes gets `ChangesLost`. The contents of each copied file are compared with its checksum
    /// and with its metadata in the backup.
    ///
    /// # Errors
    /// `AlreadyExists` if `path` is not empty; `NotFound` if there is no such backup; `Corruption`,
    /// which names the damaged file; `Io`, `StorageFull`. After an error `path` contains no
    /// database that opens; its files are removed where possible.
    pub fn restore(
        &self,
        generation: impl Into<Option<u64>>,
        path: impl AsRef<Path>,
    ) -> Result<Generation> {
        self.restore_with(generation, path, |_, _| ())
    }

    /// As [`restore`](Self::restore); `progress` is called with the bytes copied so far and the
    /// total.
    ///
    /// # Errors
    /// As [`restore`](Self::restore).
    pub fn restore_with(
        &self,
        generation: impl Into<Option<u64>>,
        path: impl AsRef<Path>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Generation> {
        let (fs, path) = (&self.options.fs, path.as_ref());
        require_empty(&**fs, path)?;
        let generation = self.read(generation.into())?;
        fs.create_dir_all(path).doing("create", path)?;
        let total = generation.files.iter().map(|file| file.bytes).sum();
        let mut infallible = |done, of| {
            progress(done, of);
            Ok(())
        };
        let mut progress = counted(total, &mut infallible);
        self.build(&generation, fs, path, &mut |file, meta, target| {
            self.store.take(file, target, &mut progress)?;
            self.check_entry(generation.number, meta)
        })?;
        Ok(Generation::of(&generation))
    }

    /// Restores the entities of a key range of a table from a backup into the table `into` of a
    /// running database. Creates the table if it does not exist. Entities keep their ETags and
    /// Timestamps. All of them become visible at the same time, and no earlier snapshot sees them.
    /// The files that contain them are checked first, and only rows in the range are written.
    ///
    /// The table must have no entity between the first and the last restored key, nor a deleted one
    /// that a snapshot still reads. To examine old data, restore into a new table. To replace data,
    /// delete the range first. The database keeps its incarnation, and its change feed shows an
    /// imported range.
    ///
    /// # Errors
    /// `NotFound` for the backup or the table; `AlreadyExists` if the range has entities; `Busy`
    /// while a snapshot reads deleted entities of the range, or while concurrent writes do not
    /// pause; `Corruption`, `Io`, `StorageFull`. After an error the table has its previous
    /// contents.
    pub fn restore_into(
        &self,
        generation: impl Into<Option<u64>>,
        table: &str,
        range: KeyRange,
        db: &Db,
        into: &str,
    ) -> Result<Moved> {
        self.restore_into_with(generation, table, range, (db, into), |_| ())
    }

    /// As [`restore_into`](Self::restore_into); calls `progress` periodically with the number of
    /// entities restored so far.
    ///
    /// # Errors
    /// As [`restore_into`](Self::restore_into).
    pub fn restore_into_with(
        &self,
        generation: impl Into<Option<u64>>,
        table: &str,
        range: KeyRange,
        (db, into): (&Db, &str),
        mut progress: impl FnMut(u64),
    ) -> Result<Moved> {
        self.restore_into_while(generation.into(), table, range, (db, into), &mut |rows| {
            progress(rows);
            Ok(())
        })
    }

    /// Like [`restore_into_with`](Self::restore_into_with); an error of `progress` ends the import.
    pub(crate) fn restore_into_while(
        &self,
        generation: Option<u64>,
        table: &str,
        range: KeyRange,
        (db, into): (&Db, &str),
        progress: OnRows<'_>,
    ) -> Result<Moved> {
        let generation = self.read(generation)?;
        let source = self.look(&generation)?;
        let from = source.table(table)?;
        let span = range.span(from.entry.gate.table);
        let pinned = source.engine.reader().pin();
        let ranges = pinned.version.ranges_in(&span).iter();
        let inside = ranges.flat_map(|range| range.references());
        let files: BTreeMap<FileId, &FileMeta> =
            inside.map(|(_, part)| (part.file.meta.id, &part.file.meta)).collect();
        for (id, meta) in files {
            let Some(file) = generation.file(id) else { continue };
            self.store.check(file, &mut |_| Ok(()))?;
            self.check_entry(generation.number, meta)?;
        }
        // Lifts the gates that the backup contains, because they would block reads here.
        for gate in source.gates()? {
            source.lift_gate(&gate.table, gate.range)?;
        }
        db.take_in((&source, &from), range, into, progress)
    }

    /// Opens the state of a backup as a database for reading. Table files are read from the backup
    /// in place. Writes are kept in memory and are discarded with the last handle. The backup must
    /// not be pruned while the handle exists.
    ///
    /// # Errors
    /// `NotFound`; `Corruption`, `Io`. Damage of a table file is detected only when the file is
    /// read.
    pub fn open_database(&self, generation: impl Into<Option<u64>>) -> Result<Db> {
        self.look(&self.read(generation.into())?)
    }

    fn look(&self, generation: &format::Generation) -> Result<Db> {
        let dir = self.generation_dir(generation.number);
        let name = |number| dir.join(FileName::Sst(number).to_string());
        let files = generation.edit.add_files.iter();
        let files = files.map(|meta| (name(meta.number), self.store.file_path(meta.id)));
        let under = Overlay::new(Arc::clone(&self.options.fs), files.collect());
        let fs: Arc<dyn Fs> = Arc::new(under);
        fs.create_dir_all(&dir).doing("create", &dir)?;
        self.build(generation, &fs, &dir, &mut |_, _, _| Ok(()))?;
        let mut options = self.options.clone().background(Background::Manual).fs(fs);
        options.targets = None;
        options.create_if_missing(false).open(&dir)
    }

    /// Returns a path that identifies the backup in errors. No file exists at this path.
    fn generation_dir(&self, number: u64) -> PathBuf {
        self.store.dir.join(format!("generation {number}"))
    }

    /// Reads the generation of this number, or the newest.
    fn read(&self, number: Option<u64>) -> Result<format::Generation> {
        let Some(number) = number.or(self.store.numbers()?.last().copied()) else {
            let problem = format!("there is no backup in {}", self.store.dir.display());
            return Err(Error::new(ErrorKind::NotFound, problem));
        };
        self.store.read(number)
    }

    /// Builds a database with a new incarnation in `dir` of `fs`; `place` creates each table file.
    fn build(
        &self,
        generation: &format::Generation,
        fs: &Arc<dyn Fs>,
        dir: &Path,
        place: &mut dyn FnMut(&format::StoredFile, &FileMeta, &Path) -> Result<()>,
    ) -> Result<()> {
        let version = version_of(generation)?;
        let Some(identity) = version.identity.as_ref() else { return Ok(()) };
        let mut edit = generation.edit.clone();
        (edit.identity, edit.numbers_below) = (None, None);
        let mut rng = self.options.seed.map_or_else(Rng::from_entropy, Rng::from_seed);
        let place = |meta: &FileMeta| {
            let target: PathBuf = dir.join(FileName::Sst(meta.number).to_string());
            generation.file(meta.id).map_or(Ok(()), |file| place(file, meta, &target))
        };
        build(fs, dir, identity, &edit, rng.next_u64(), place)
    }
}

/// The metadata of a file in a generation, and the numbers of the generations that have this
/// metadata.
type Entry = (FileMeta, Vec<u64>);

/// Returns a callback that adds up bytes and passes the sum and `total` to `progress`.
fn counted(total: u64, progress: OnProgress<'_>) -> impl FnMut(u64) -> io::Result<()> {
    let mut done = 0;
    move |bytes| {
        done += bytes;
        progress(done, total)
    }
}

impl Generation {
    fn of(generation: &format::Generation) -> Self {
        Self {
            number: generation.number,
            taken: DateTime::from_ticks(generation.taken).unwrap_or(DateTime::MIN),
            seq: generation.seq(),
            files: generation.files.len() as u64,
            bytes: generation.files.iter().map(|file| file.bytes).sum(),
            new_files: 0,
            new_bytes: 0,
            problem: None,
        }
    }

    fn damaged(number: u64, error: &Error) -> Self {
        Self {
            number,
            taken: DateTime::MIN,
            seq: Seq::ZERO,
            files: 0,
            bytes: 0,
            new_files: 0,
            new_bytes: 0,
            problem: Some(error.chain()),
        }
    }
}

/// Returns the version that a generation describes. Fails if the edit of the generation is
/// inconsistent, or if its ranges leave a gap.
fn version_of(generation: &format::Generation) -> Result<Version> {
    let checked = |version: Version| {
        version.check()?;
        gaps(&version).into_iter().next().map_or(Ok(version), Err)
    };
    Version::default().apply(&generation.edit).and_then(checked).map_err(|problem| {
        let name = format!("generation {}", generation.number);
        Error::corrupt(Path::new(&name), 0, "version edit", problem)
    })
}

/// Returns the text of an error that reports damage or an unknown format. Fails with any other
/// error.
fn found(error: Error) -> Result<String> {
    match error.kind() {
        ErrorKind::Corruption | ErrorKind::Unsupported => Ok(error.chain()),
        _ => Err(error),
    }
}
