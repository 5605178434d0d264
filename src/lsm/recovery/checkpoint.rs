//! Takes images of a live database for checkpoints and backups, and creates checkpoints.
//!
//! Invariants
//! * A copy holds a prefix of the commits, across all tables. If an import is newer than a commit
//!   that is still in memory, the files do not form a prefix, and the image is taken again.
//! * The copy shares only table files with the database. Table files never change.
//! * Each copy gets an incarnation of its own, because a Seq identifies a state only within one
//!   incarnation.
//!
//! Not here: backups as directories (`db::backup`), copies of key ranges (`ingest`).

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::codec::{Checksum, HashSeed};
use crate::error::{Doing, Error, ErrorKind, Result};
use crate::format::edit::{Identity, VersionEdit};
use crate::format::file_meta::FileMeta;
use crate::format::names::FileName;
use crate::fs::Fs;
use crate::manifest::{Manifest, Version};
use crate::model::Shapes;
use crate::options::IoMode;
use crate::rng::Rng;
use crate::sst::{BlockCache, Sst, SstShared};

use crate::lsm::guards::SnapshotGuard;
use crate::lsm::read::view::View;
use crate::lsm::{Engine, Env};

/// The size of the pieces in which files are copied, in bytes.
const COPY_BYTES: usize = 1 << 20;
/// The number of attempts to take an image while ranges are imported.
const TRIES: usize = 8;

/// A progress callback: receives the number of bytes copied or read since its last call. If it
/// returns an error, the work ends and fails.
pub(crate) type OnBytes<'p> = &'p mut dyn FnMut(u64) -> io::Result<()>;

/// A progress callback: receives the amount of work done and the total, which is 0 if unknown. If
/// it returns an error, the work ends and fails.
pub(crate) type OnProgress<'p> = &'p mut dyn FnMut(u64, u64) -> io::Result<()>;

/// The database at one moment. Its files are not removed while the image exists.
pub(crate) struct Image {
    pinned: Arc<View>,
    /// The identity of the original database. A copy gets its own incarnation.
    pub(crate) identity: Identity,
    /// The edit that creates this state in a new database from the table files alone.
    pub(crate) edit: VersionEdit,
}

/// The result of copying a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    pub(crate) bytes: u64,
    /// CRC-32 of the whole file.
    pub(crate) checksum: u32,
}

impl Image {
    pub(crate) fn version(&self) -> &Version {
        &self.pinned.version
    }
}

/// Flushes the memtables and returns an image of the current state.
pub(crate) fn image(engine: &Arc<Engine>) -> Result<Image> {
    let _snapshot = SnapshotGuard::take(engine);
    engine.maintenance().confirm()?;
    for _ in 0..TRIES {
        engine.maintenance().flush_all()?;
        let pinned = engine.reader().pin();
        if !pinned.is_a_prefix() {
            continue;
        }
        let version = &pinned.version;
        let Some(identity) = version.identity.as_ref() else {
            return Err(Error::corrupt(&engine.env().dir, 0, "manifest", "no identity"));
        };
        let (identity, edit) = ((**identity).clone(), version.image());
        return Ok(Image { pinned, identity, edit });
    }
    let problem = "ranges are imported all the time; try again when that has ended";
    Err(Error::new(ErrorKind::Busy, problem))
}

/// Copies the current state of the database into the new or empty directory `target`. After a
/// failure the copied files are removed, if it is certain that they do not form a database.
///
/// 1. Flush, so that the copy needs no log. Pin the version, so that its files are not removed.
///    Hold a snapshot, so that the rows of a table dropped in the meantime remain: the copy may
///    still contain the table's catalog row.
/// 2. Link the files, or copy and sync them. Sync the directory.
/// 3. Write a manifest with a new incarnation; sync it and its name. Write CURRENT last, because
///    the copy cannot be opened without it.
pub(crate) fn checkpoint(engine: &Arc<Engine>, target: &Path, progress: OnBytes<'_>) -> Result<()> {
    let fs = &engine.env().fs;
    require_empty(&**fs, target)?;
    require_outside(target, &engine.env().dir)?;
    let image = image(engine)?;
    fs.create_dir_all(target).doing("create", target)?;
    let place = |meta: &FileMeta| {
        let name = FileName::Sst(meta.number).to_string();
        link_or_copy(&**fs, &engine.env().dir.join(&name), &target.join(&name), progress)
    };
    build(fs, target, &image.identity, &image.edit, engine.maintenance().next_seed(), place)?;
    let files = &image.edit.add_files;
    let bytes = files.iter().map(|file| file.bytes).sum();
    engine.maintenance().emit_checkpoint(target, files.len() as u64, bytes);
    Ok(())
}

/// Reads and checks the whole copy of a table file. `fs` has the copy under the name of the
/// original. Nothing cached is used, because the original may be mapped and partly checked already.
pub(crate) fn verify_copy(env: &Env, fs: &dyn Fs, meta: &FileMeta) -> Result<()> {
    let cache = Arc::new(BlockCache::new(0));
    let shared = SstShared { cache, ..env.sst.clone() };
    let facts = Sst::open(fs, &env.dir, meta, &shared)?.verify(&mut |_| ())?;
    facts.problems.into_iter().next().map_or(Ok(()), |problem| Err(Error::damage(problem)))
}

/// Compares `meta`, the manifest's entry of a table file, with what the file in `dir` states about
/// itself. Reads none of its rows.
pub(crate) fn verify_entry(fs: &dyn Fs, dir: &Path, meta: &FileMeta) -> Result<()> {
    let (cache, shapes) = (Arc::new(BlockCache::new(0)), Arc::new(Shapes::new(0)));
    // Any seed works: seeds matter only for looking up keys, which this function does not do.
    let shared = SstShared { cache, shapes, mode: IoMode::Pread, seed: HashSeed(0) };
    Sst::open(fs, dir, meta, &shared)?.verify_entry()
}

impl View {
    /// True if no memtable holds a commit older than a commit in the files. Flushes preserve this,
    /// because they begin with the oldest memtable. Imports do not.
    pub(crate) fn is_a_prefix(&self) -> bool {
        let imported = self.version.files().map(|file| file.meta.visible_from).max();
        let imported = imported.unwrap_or_default();
        let mut memtables = self.memtables.iter().map(|slot| &slot.memtable);
        memtables.all(|memtable| memtable.seq_max().is_none() || memtable.seq_min() > imported)
    }
}

/// Creates a database in the empty directory `dir`. `place` creates the files there and makes their
/// contents durable, but not their names. `edit` lists the files. The incarnation and the ids are
/// derived from `seed`.
pub(crate) fn build(
    fs: &Arc<dyn Fs>,
    dir: &Path,
    identity: &Identity,
    edit: &VersionEdit,
    seed: u64,
    mut place: impl FnMut(&FileMeta) -> Result<()>,
) -> Result<()> {
    let mut placed = Vec::new();
    let mut build = || {
        for meta in &edit.add_files {
            placed.push(dir.join(FileName::Sst(meta.number).to_string()));
            place(meta)?;
        }
        fs.sync_dir(dir).doing("sync directory", dir)?;
        let mut rng = Rng::from_seed(seed);
        let incarnation = rng.next_u64();
        let identity = Identity { incarnation, ..identity.clone() };
        Manifest::create(Arc::clone(fs), dir, identity, edit, rng).map(drop)
    };
    let built = build();
    if built.is_err() {
        discard(&**fs, dir, &placed);
    }
    built
}

/// Returns an error if `dir` is not empty.
pub(crate) fn require_empty(fs: &dyn Fs, dir: &Path) -> Result<()> {
    if fs.exists(dir).doing("look at", dir)? && !fs.list(dir).doing("look at", dir)?.is_empty() {
        let problem = format!("{} exists and is not empty", dir.display());
        return Err(Error::new(ErrorKind::AlreadyExists, problem));
    }
    Ok(())
}

/// Returns an error if `dir` is the database's directory or inside it, because `dir` would be lost
/// with the database. Compares paths only.
pub(crate) fn require_outside(dir: &Path, database: &Path) -> Result<()> {
    if !plain(dir).starts_with(plain(database)) {
        return Ok(());
    }
    let (dir, database) = (dir.display(), database.display());
    let problem = format!("{dir} is in the database {database} and would be lost with it");
    Err(Error::new(ErrorKind::InvalidInput, problem))
}

/// Returns the absolute path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut plain = PathBuf::new();
    for part in absolute.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// Copies a whole file and syncs the copy, but not the directory that contains it.
pub(crate) fn copy_file(
    fs: &dyn Fs,
    source: &Path,
    target: &Path,
    progress: OnBytes<'_>,
) -> io::Result<Copied> {
    let to = fs.create(target)?;
    let copied = read_file(fs, source, &mut |at, piece| {
        progress(piece.len() as u64)?;
        to.write_at(at, piece)
    })?;
    to.sync()?;
    Ok(copied)
}

/// Reads a whole file in pieces.
pub(crate) fn read_file(
    fs: &dyn Fs,
    path: &Path,
    with: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<Copied> {
    let from = fs.open_read(path)?;
    let bytes = from.len()?;
    let mut checksum = Checksum::new();
    let mut buffer = vec![0; usize::try_from(bytes).unwrap_or(COPY_BYTES).min(COPY_BYTES)];
    let mut at = 0;
    while at < bytes {
        let count = usize::try_from(bytes - at).unwrap_or(COPY_BYTES).min(COPY_BYTES);
        let piece = &mut buffer[..count];
        from.read_at(at, piece)?;
        checksum = checksum.bytes(piece);
        with(at, piece)?;
        at += count as u64;
    }
    Ok(Copied { bytes, checksum: checksum.finish() })
}

fn link_or_copy(fs: &dyn Fs, source: &Path, target: &Path, progress: OnBytes<'_>) -> Result<()> {
    let mut place = || {
        progress(0)?;
        match fs.link(source, target) {
            Ok(()) => Ok(()),
            Err(_) => copy_file(fs, source, target, progress).map(drop),
        }
    };
    place().map_err(|error| {
        Error::io(format!("copy {} to {}", source.display(), target.display()), error)
    })
}

/// Removes the files of an incomplete copy. This loses no data, because a directory without CURRENT
/// is not a database.
fn discard(fs: &dyn Fs, dir: &Path, placed: &[PathBuf]) {
    if fs.exists(&dir.join(FileName::Current.to_string())).unwrap_or(true) {
        return;
    }
    // If a file cannot be removed, the next attempt fails and names it.
    placed.iter().for_each(|path| drop(fs.remove(path)));
    drop(fs.sync_dir(dir));
}
