//! Backups: a directory that holds a database as of several moments, and what is made of it again.
//!
//! A backup: 1. flush and pin the database (`lsm::checkpoint`); 2. copy the table files that no backup in the directory
//! has yet, and check the copies; 3. write a generation that names all files of the moment (`store`).
//!
//! A restore of everything: 1. copy the files of a generation into a new directory, holding each against its checksum;
//! 2. write a manifest with a new incarnation, CURRENT last. Of a key range: the generation is looked at as a database
//! (`overlay`), and its rows go into a running one as an imported range does (`moving`).
//!
//! Invariants
//! * files are stored once, known by their unique ids, and copied, never linked: what happens to the database's files
//!   does not happen to the backup's;
//! * nothing damaged goes in, and nothing damaged comes out.
//!
//! Not here: copies on the same disk ([`Db::checkpoint`]).

mod overlay;
mod store;

pub use store::Pruned;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Db, Moved};
use crate::error::{Doing, Error, ErrorKind, Result};
use crate::format::generation as format;
use crate::format::names::{FileId, FileName};
use crate::fs::Fs;
use crate::lsm::{build, image, require_empty, require_outside, verify_copy};
use crate::manifest::Version;
use crate::model::{DateTime, Seq};
use crate::options::{Background, Options};
use crate::query::KeyRange;
use crate::rng::Rng;

use overlay::Overlay;
use store::Store;

/// A directory of backups of one database. A cheap clone; several processes may read it at the same time.
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
/// // The partition comes back into the database in use …
/// backups.restore_into(monday.number, "parts", KeyRange::partition("bolts"), &db, "parts")?;
/// assert!(parts.get("bolts", "m4x20")?.is_some());
/// // … and all of Monday becomes another.
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

/// One backup in a directory of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Generation {
    /// What [`Backup::restore`] calls it; later ones have greater numbers.
    pub number: u64,
    /// When it was taken, by the database's clock.
    pub taken: DateTime,
    /// Every commit up to here is in it, and none above.
    pub seq: Seq,
    /// Table files that it consists of.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Of these files, those that no earlier backup there has.
    pub new_files: u64,
    /// Bytes of these.
    pub new_bytes: u64,
    /// Why it cannot be restored: its generation file is damaged, and nothing else is known of it.
    pub problem: Option<String>,
}

/// What [`Backup::verify`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupReport {
    /// Backups that were read.
    pub generations: u64,
    /// Table files that were read, each once.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// What is damaged or missing, and which backups suffer from it.
    pub problems: Vec<String>,
}

impl Options {
    /// Opens the directory of backups `dir`; of the options count the file system, and for what is restored into a running
    /// database, those of reading.
    ///
    /// # Errors
    /// `NotFound` if there are none; `Io`.
    pub fn open_backup(self, dir: impl AsRef<Path>) -> Result<Backup> {
        let store = Store::open(Arc::clone(&self.fs), dir.as_ref())?;
        Ok(Backup { store, options: self })
    }
}

impl Db {
    /// Takes a backup of the database, as of now, into the directory `dir`, while it is in use: one moment of all tables.
    /// The directory is made by the first backup; later ones copy only the table files that it does not have yet. It
    /// is for one database, and for those that were restored from it.
    ///
    /// The copy of each new file is read and checked, so that damage does not get into a backup. Merges rewrite
    /// files: how much is new depends on how much was written, not on when. An interrupted backup is none; the next one goes
    /// over what it left.
    ///
    /// # Errors
    /// `Corruption` if a table file is damaged; `InvalidInput` for a directory with something else, with backups of
    /// another database, or inside this one; `Locked` while another backup goes there; `Busy`, `Io`, `StorageFull`. No
    /// backup was made then, and those that are there are as they were.
    pub fn backup(&self, dir: impl AsRef<Path>) -> Result<Generation> {
        self.backup_with(dir, |_, _| ())
    }

    /// As [`backup`](Self::backup); `progress` is called with the bytes copied so far, and how many there will be.
    ///
    /// # Errors
    /// As [`backup`](Self::backup).
    pub fn backup_with(
        &self,
        dir: impl AsRef<Path>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Generation> {
        let env = self.engine.env();
        require_outside(dir.as_ref(), &env.dir)?;
        let store = Store::create(Arc::clone(&env.fs), dir.as_ref())?;
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
        let mut progress = counted(new_bytes, &mut progress);
        for (file, path) in new {
            files.push(store.add(&path, &file.meta, &mut progress, &|copy| {
                let copy = BTreeMap::from([(path.clone(), copy.to_owned())]);
                verify_copy(self.engine.env(), &Overlay::new(Arc::clone(&env.fs), copy), &file.meta)
            })?);
        }
        files.sort_unstable_by_key(|file| file.id);
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

    /// The backups there are, oldest first.
    ///
    /// # Errors
    /// `Io`; `Unsupported` for one of a newer format. A damaged one is listed with its problem.
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

    /// Reads everything that the backups consist of and holds it against their checksums.
    ///
    /// # Errors
    /// Only what keeps it from looking; damage is in the report.
    pub fn verify(&self) -> Result<BackupReport> {
        self.verify_with(|_, _| ())
    }

    /// As [`verify`](Self::verify); `progress` is called with the bytes read so far, and how many there will be.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub fn verify_with(&self, mut progress: impl FnMut(u64, u64)) -> Result<BackupReport> {
        let mut report = BackupReport::default();
        // Of damaged files of one id each generation may say something else.
        let mut files: BTreeMap<format::StoredFile, Vec<u64>> = BTreeMap::new();
        for number in self.store.numbers()? {
            match self.store.read(number).and_then(|g| version_of(&g).map(|_| g)) {
                Ok(generation) => {
                    report.generations += 1;
                    for file in generation.files {
                        files.entry(file).or_default().push(number);
                    }
                }
                Err(error) => report.problems.push(found(error)?),
            }
        }
        let total = files.keys().map(|file| file.bytes).sum();
        let mut progress = counted(total, &mut progress);
        for (file, generations) in &files {
            report.files += 1;
            report.bytes += file.bytes;
            if let Err(error) = self.store.check(file, &mut progress) {
                let of: Vec<String> = generations.iter().map(u64::to_string).collect();
                let problem = found(error)?;
                report.problems.push(format!("{problem}; backups that need it: {}", of.join(", ")));
            }
        }
        Ok(report)
    }

    /// Removes all backups but the newest `keep`, and the files that only they had.
    ///
    /// # Errors
    /// `InvalidInput` for none; `Corruption` if one that is to stay cannot be read, and nothing was removed; `Locked`
    /// while a backup is taken; `Io`: what is to stay is there.
    pub fn prune(&self, keep: usize) -> Result<Pruned> {
        if keep == 0 {
            let problem = "at least one backup stays: remove the directory to remove all of them";
            return Err(Error::new(ErrorKind::InvalidInput, problem));
        }
        let _lock = self.store.lock()?;
        self.store.prune(keep)
    }

    /// Makes a database of a backup, or of the newest for `None`, in the new or empty directory `path`. It has all tables
    /// as of the backup's moment, with ETags and Timestamps, and an incarnation of its own: who followed the changes of the
    /// old one is told that they are lost.
    ///
    /// # Errors
    /// `AlreadyExists` if there is something; `NotFound` without such a backup; `Corruption` naming the damaged file, `Io`,
    /// `StorageFull`: what is in `path` then does not open, and is removed where that can be done.
    pub fn restore(
        &self,
        generation: impl Into<Option<u64>>,
        path: impl AsRef<Path>,
    ) -> Result<Generation> {
        self.restore_with(generation, path, |_, _| ())
    }

    /// As [`restore`](Self::restore); `progress` is called with the bytes copied so far, and how many there will be.
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
        let mut progress = counted(total, &mut progress);
        self.build(&generation, fs, path, &mut |file, target| {
            self.store.take(file, target, &mut progress)
        })?;
        Ok(Generation::of(&generation))
    }

    /// Takes the entities that a key range of a table had in a backup into the table `into` of a database in use, which is
    /// created if need be, with their ETags and Timestamps. All of them become visible at once, and no snapshot from before
    /// sees them. The files that they lie in are checked first; nothing but their rows is written.
    ///
    /// There must be no entity between the first and the last of them, nor a deleted one that a snapshot still reads:
    /// restore under a new name to look, or delete the range first. The database keeps its incarnation; its changes show an
    /// imported range.
    ///
    /// # Errors
    /// `NotFound` for the backup or the table; `AlreadyExists` if there are entities; `Busy` while a snapshot reads
    /// deleted ones there, or others keep writing; `Corruption`, `Io`, `StorageFull`. The table is as it was then.
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

    /// As [`restore_into`](Self::restore_into); calls `progress` now and then with the number of entities so far.
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
        let generation = self.read(generation.into())?;
        let source = self.look(&generation)?;
        let from = source.table(table)?;
        let span = range.span(from.entry.gate.table);
        let pinned = source.engine.reader().pin();
        let ranges = pinned.version.ranges_in(&span).iter();
        let inside = ranges.flat_map(|range| range.references());
        let ids: BTreeSet<FileId> = inside.map(|(_, part)| part.file.meta.id).collect();
        for file in ids.iter().filter_map(|id| generation.file(*id)) {
            self.store.check(file, &mut |_| ())?;
        }
        // They held others back from the database that is gone.
        for gate in source.gates()? {
            source.lift_gate(&gate.table, gate.range)?;
        }
        db.take_in((&source, &from), range, into, &mut progress)
    }

    /// The database as it was in a backup, to read from: its table files are read where they are, and what is written goes
    /// to memory and is gone with the last handle. The backup must not be pruned meanwhile.
    ///
    /// # Errors
    /// `NotFound`; `Corruption`, `Io`: damage of a file is found when it is read.
    pub fn open_database(&self, generation: impl Into<Option<u64>>) -> Result<Db> {
        self.look(&self.read(generation.into())?)
    }

    fn look(&self, generation: &format::Generation) -> Result<Db> {
        // A path that there is no file at: errors name the backup by it.
        let dir = self.store.dir.join(format!("generation {}", generation.number));
        let name = |number| dir.join(FileName::Sst(number).to_string());
        let files = generation.edit.add_files.iter();
        let files = files.map(|meta| (name(meta.number), self.store.file_path(meta.id)));
        let under = Overlay::new(Arc::clone(&self.options.fs), files.collect());
        let fs: Arc<dyn Fs> = Arc::new(under);
        fs.create_dir_all(&dir).doing("create", &dir)?;
        self.build(generation, &fs, &dir, &mut |_, _| Ok(()))?;
        let mut options = self.options.clone().background(Background::Manual).fs(fs);
        options.targets = None;
        options.create_if_missing(false).open(&dir)
    }

    /// The generation of this number, or the newest.
    fn read(&self, number: Option<u64>) -> Result<format::Generation> {
        match number.or(self.store.numbers()?.last().copied()) {
            Some(number) => self.store.read(number),
            None => {
                let problem = format!("there is no backup in {}", self.store.dir.display());
                Err(Error::new(ErrorKind::NotFound, problem))
            }
        }
    }

    /// Makes a database in `dir` of `fs`; `place` puts each file there.
    fn build(
        &self,
        generation: &format::Generation,
        fs: &Arc<dyn Fs>,
        dir: &Path,
        place: &mut dyn FnMut(&format::StoredFile, &Path) -> Result<()>,
    ) -> Result<()> {
        let version = version_of(generation)?;
        let Some(identity) = version.identity.as_ref() else { return Ok(()) };
        let mut edit = generation.edit.clone();
        (edit.identity, edit.numbers_below) = (None, None);
        let mut rng = self.options.seed.map_or_else(Rng::from_entropy, Rng::from_seed);
        let place = |meta: &crate::format::file_meta::FileMeta| {
            let target: PathBuf = dir.join(FileName::Sst(meta.number).to_string());
            generation.file(meta.id).map_or(Ok(()), |file| place(file, &target))
        };
        build(fs, dir, identity, &edit, rng.next_u64(), place)
    }
}

/// Adds up bytes, and passes on how many there are, of `total`.
fn counted(total: u64, progress: &mut dyn FnMut(u64, u64)) -> impl FnMut(u64) {
    let mut done = 0;
    move |bytes| {
        done += bytes;
        progress(done, total);
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

/// The version that a generation is; its edit must make sense.
fn version_of(generation: &format::Generation) -> Result<Version> {
    let version = Version::default().apply(&generation.edit);
    let sound = version.and_then(|version| version.check().map(|()| version));
    sound.map_err(|problem| {
        let name = format!("generation {}", generation.number);
        Error::corrupt(Path::new(&name), 0, "version edit", problem)
    })
}

/// The text of damage; any other error keeps from looking.
fn found(error: Error) -> Result<String> {
    match error.kind() {
        ErrorKind::Corruption | ErrorKind::Unsupported => Ok(error.chain()),
        _ => Err(error),
    }
}
