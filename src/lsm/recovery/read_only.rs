//! Opens a database to read it. Takes no lock and changes nothing on disk.
//!
//! * If no process holds the lock, recovery happens in memory. The engine then shows exactly what
//!   an opening for writing would show.
//! * While another process writes, the engine shows what is durable, as a follower does.
//!
//! Not here: following the writer (`follower`).

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::format::names::{FileId, FileName};
use crate::format::record::Position;
use crate::fs::{CachedHandleFs, Fs};
use crate::manifest::{Access, Manifest, Opened, probe};
use crate::options::{Background, IoMode, Options};
use crate::rng::Rng;
use crate::write_accounting::Meter;

use super::follower::{LogFollower, missing_database, open_files};
use super::open::{assemble_reader, memtables, report_manifest, shared_by_tables};
use super::replay::replay;
use crate::lsm::background::events::Recovered;
use crate::lsm::{Engine, Env};

/// The number of attempts while other processes open and close the database.
const TRIES: usize = 64;

/// Opens the database in `dir` read-only.
///
/// # Errors
/// `NotFound` if there is none; `Corruption`, `Unsupported`, `Io`; `Busy` if other processes change
/// files faster than they can be opened.
pub(crate) fn open_read_only(dir: &Path, options: Options) -> Result<Arc<Engine>> {
    let (fs, lock) = (Arc::clone(&options.fs), dir.join(FileName::Lock.to_string()));
    for _ in 0..TRIES {
        let opened = open_manifest(&fs, dir);
        let before = opened.as_ref().ok().map(end_of);
        let locked = fs.is_locked(&lock);
        if !matches!(locked, Ok(false)) {
            let warning = locked.err().map(|error| {
                let dir = dir.display();
                format!(
                    "cannot tell whether a process has {dir} open ({error}): only what is durable \
                     is shown"
                )
            });
            let recovered = warning.map(Recovered::of_warning).unwrap_or_default();
            return Ok(LogFollower::open(dir, options)?.engine(recovered));
        }
        let recovered = recover(dir, options.clone(), opened);
        // A writer that began meanwhile may have removed files that were about to be read. Use the
        // result only if there was no such writer. Every process that changes a database appends
        // an edit to the manifest first.
        let is_unlocked = fs.is_locked(&lock).is_ok_and(|held| !held);
        if is_unlocked && open_manifest(&fs, dir).as_ref().ok().map(end_of) == before {
            return recovered;
        }
    }
    let problem = format!("other processes change {} all the time", dir.display());
    Err(Error::new(ErrorKind::Busy, problem))
}

fn open_manifest(fs: &Arc<dyn Fs>, dir: &Path) -> Result<Opened> {
    Manifest::open(Arc::clone(fs), dir, Access::ReadOnly, Rng::from_seed(0))
}

/// Returns the id and the end of the manifest.
fn end_of(opened: &Opened) -> (FileId, Position) {
    (opened.manifest.id(), opened.manifest.position())
}

/// Recovers the database in memory. The steps are those of an opening for writing, without the
/// steps that change the disk.
fn recover(dir: &Path, options: Options, opened: Result<Opened>) -> Result<Arc<Engine>> {
    let (fs, options) = (Arc::clone(&options.fs), options.background(Background::Manual));
    if !probe(&*fs, dir)? {
        return Err(missing_database(dir));
    }
    let mut recovered = Recovered::default();
    let (manifest, names) = report_manifest(opened?, &options, &mut recovered)?;
    let sst = shared_by_tables(&options, manifest.seed(dir)?);
    let (files, handles_max) = (manifest.version().files().count(), options.max_open_files);
    let reading: Arc<dyn Fs> = if options.io_mode == IoMode::Mmap || files <= handles_max {
        open_files(&*fs, dir, manifest.version(), &sst, false)?;
        Arc::clone(&fs)
    } else {
        // Reads fail if a writer begins and removes files. Too many open handles would fail, too.
        Arc::new(CachedHandleFs::new(Arc::clone(&fs), handles_max))
    };
    let env = Env::new(dir, options, sst, [fs, reading], Meter::new(dir));
    let replayed = replay(&env, &manifest, &names, None)?;
    env.meter.add(&replayed.found);
    recovered.commits = replayed.commits;
    recovered.torn.extend(replayed.torn);
    let logged = (memtables(&env, replayed.slots, None), replayed.drops);
    Ok(assemble_reader(env, manifest, replayed.last, logged, recovered))
}
