//! Opens a database: turns the contents of a directory into a running engine. [`open`] lists the
//! steps.
//!
//! Invariants
//! * Nothing is appended to a log that an earlier session wrote.
//! * No file is removed before every file that the manifest names has been found.
//! * New Seqs are above every Seq on disk and, if weak commits may have been lost, above the Seq
//!   reservation.
//!
//! Not here: opening the manifest (`manifest`), replaying one log (`replay`).

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::codec::HashSeed;
use crate::error::{Doing, Error, ErrorKind, Result};
use crate::executor::Executor;
use crate::format::edit::{CleanClose, Identity, VersionEdit};
use crate::format::names::{FileName, FileNumber};
use crate::format::record::{LogHeader, LogKind, Position};
use crate::format::wal::Predecessor;
use crate::fs::{CachedHandleFs, FileLock, Fs, GuardedFs};
use crate::log::LogFile;
use crate::manifest::{Access, Manifest, Opened, UnconfirmedLog, probe};
use crate::memtable::Memtable;
use crate::model::{Seq, Shapes};
use crate::options::{IoMode, Options};
use crate::rng::Rng;
use crate::sst::{BlockCache, SstShared};
use crate::sync::Mutex;
use crate::write_accounting::{Cause, Meter};

use super::replay::{Replayed, accepted, accepts_writes, replay};
use super::resume::resume;
use super::wal_rows::Drops;
use crate::lsm::background::events::Recovered;
use crate::lsm::background::fifo_tables::FifoEviction;
use crate::lsm::background::maintenance::{Maintenance, read_only};
use crate::lsm::background::state::MaintenanceState;
use crate::lsm::background::ttl_tables::Ttl;
use crate::lsm::read::dropped_tables::DroppedTables;
use crate::lsm::read::range_tombstones::RangeTombstones;
use crate::lsm::read::view::{Slot, View};
use crate::lsm::write::admission::SpaceLimit;
use crate::lsm::write::backlog::Backlog;
use crate::lsm::write::gates::Gates;
use crate::lsm::write::group_commit::GroupCommit;
use crate::lsm::write::log_queue::{LastSeqs, LogQueue, SPARE_BUFFERS};
use crate::lsm::write::rate_limit::RateLimit;
use crate::lsm::{Engine, Env, Reader, Writer};

/// Opens or creates the database in `dir`.
///
/// 1. Refuse a directory that holds other files but no database, keep the directory open, take the
///    lock, and open or create the manifest.
/// 2. Read the first record of every log that the manifest names. It states where the previous log
///    ended.
/// 3. Replay the logs in order into memtables, each up to the end that its successor states.
/// 4. Let X be the first position without a valid record. Opening fails if more data was stated to
///    be durable: by a durable offset beyond X in this log or a later one, by the clean-close edit,
///    by a stated length of the file, or by a log that states a greater length of the manifest.
///    Otherwise X is a torn tail, and everything after it in all logs is dropped.
/// 5. Make the accepted records durable, because new data must not depend on bytes that exist only
///    in the page cache. Bytes that no durable offset covers are rewritten first. Begin a new log
///    that states where the last one ended. Both are deferred if possible: to the
///    first commit, edit of the manifest, sync, backup or read of the change feed, and at most for
///    as long as weak commits wait for their sync. If every commit is known to be durable, a
///    session that only reads writes nothing.
/// 6. Remove orphans, unless the manifest may have lost edits, and start background work.
/// 7. If the memtables had no room for all commits, insert the others and flush meanwhile
///    (`resume`). No file of this opening is named before.
///
/// # Errors
/// `NotFound` if the directory holds no database and the options do not allow creating one;
/// `InvalidInput` if it holds something else; `Locked`, `Corruption`, `Unsupported`, `Io`,
/// `StorageFull`.
pub(crate) fn open(dir: &Path, mut options: Options) -> Result<Arc<Engine>> {
    let meter = Meter::new(dir);
    look(&*options.fs, dir, &options)?;
    let (lock, unguarded) = guard(dir, &mut options)?;
    let eviction = FifoEviction::begin(&options)?;
    let space_limit = SpaceLimit::begin(dir, &mut options)?;
    let disk = space_limit.map(|limit| (limit, eviction));
    let fs = meter.count(&options.fs, Cause::Import);
    // Probe again: another process may have created a database before this one took the lock.
    let is_there = probe(&*fs, dir)?;
    let mut rng = options.seed.map_or_else(Rng::from_entropy, Rng::from_seed);
    let mut recovered = Recovered { warnings: Vec::from_iter(unguarded), ..Recovered::default() };
    let (mut manifest, names) = match is_there {
        true => {
            let opened = Manifest::open(Arc::clone(&fs), dir, Access::ReadWrite, fork(&mut rng))?;
            opened.manifest.usable()?;
            report_manifest(opened, &options, &mut recovered)?
        }
        false => {
            recovered.created = true;
            let (identity, first) = (Identity::random(&mut rng), VersionEdit::default());
            let manifest =
                Manifest::create(Arc::clone(&fs), dir, identity, &first, fork(&mut rng))?;
            (manifest, fs.list(dir).doing("list", dir)?)
        }
    };
    manifest.count_with(&meter);
    let env = Arc::new(new_env(dir, options, &manifest, (fs, meter))?);
    let replayed = replay(&env, &manifest, &names, Some(env.options.frozen_max + 1))?;
    env.meter.add(&replayed.found);
    recovered.commits = replayed.commits;
    recovered.torn.extend(replayed.torn.iter().cloned());
    let is_closed = is_closed(manifest.last_close(), &replayed);
    if !is_closed {
        manifest.rely_on(unconfirmed_logs(&replayed));
    }
    // If the replay must flush, the flush would begin the new log, and link it to a memtable to
    // which older logs are not linked yet.
    let may_defer =
        replayed.inserted.is_none() && (is_closed || may_be_read(&manifest, &replayed, &recovered));
    if !may_defer {
        manifest.confirm()?;
    }
    recovered.orphans = remove_orphans(&env, &mut manifest, &names, &mut recovered.warnings)?;
    let is_deferred = may_defer && (is_closed || manifest.is_untouched());
    let maintenance = Arc::new(begin(env, manifest, replayed, is_deferred, disk)?);
    maintenance.emit_opened(&recovered);
    maintenance.writer.space_limit.iter().for_each(SpaceLimit::enforce);
    let engine = Engine::new(maintenance, recovered, Some(lock));
    engine.maintenance.begin(is_deferred)?;
    Ok(Arc::new(engine))
}

/// Refuses a `dir` that holds other files but no database. Creates a missing `dir` if the options
/// allow it.
fn look(fs: &dyn Fs, dir: &Path, options: &Options) -> Result<()> {
    // An unset variable of a shell, for example. It would mean the current directory.
    if dir.as_os_str().is_empty() {
        let problem = "the path of the database is empty (use . for the current directory)";
        return Err(Error::new(ErrorKind::InvalidInput, problem));
    }
    if probe(fs, dir)? {
        return Ok(());
    }
    if fs.exists(dir).doing("look at", dir)? {
        let names = fs.list(dir).doing("look at", dir)?;
        if let Some(foreign) = names.iter().find(|name| FileName::parse(name).is_none()) {
            let problem = format!(
                "{} is not a database: it holds {foreign}; name a new path or an empty directory",
                dir.display()
            );
            return Err(Error::new(ErrorKind::InvalidInput, problem));
        }
    }
    if !options.create_if_missing {
        let problem = format!("there is no database in {}", dir.display());
        return Err(Error::new(ErrorKind::NotFound, problem));
    }
    fs.create_dir_all(dir).doing("create", dir)
}

/// Adds the results of opening the manifest to `recovered`. Returns the manifest and the names of
/// the files in its directory.
///
/// # Errors
/// `Corruption` if the manifest is shorter than its durable length and `options` do not accept
/// that.
pub(super) fn report_manifest(
    opened: Opened,
    options: &Options,
    recovered: &mut Recovered,
) -> Result<(Manifest, Vec<String>)> {
    recovered.torn.extend(opened.torn.map(|torn| torn.to_string()));
    if let Some(short) = opened.short {
        recovered.torn.push(accepted(options, short)?);
    }
    recovered.warnings.extend(opened.manifest.doubt().map(str::to_owned));
    Ok((opened.manifest, opened.names))
}

/// Opens the directory and takes its lock. From then on, changes fail if the directory was moved or
/// replaced. Returns the lock, and a warning if the file system does not permit this check.
fn guard(dir: &Path, options: &mut Options) -> Result<(Arc<dyn FileLock>, Option<String>)> {
    if let Some(pinned) = options.fs.pin(dir).doing("open", dir)? {
        options.fs = pinned;
    }
    let lock: Arc<dyn FileLock> = take_lock(&*options.fs, dir)?.into();
    let path = dir.join(FileName::Lock.to_string());
    if !lock.is_current().doing("look at", &path)? {
        let warning = format!(
            "the file system shows {} under another identity each time: a moved or replaced \
             directory will not be noticed",
            path.display()
        );
        return Ok((lock, Some(warning)));
    }
    let (fs, clock) = (Arc::clone(&options.fs), Arc::clone(&options.clock));
    options.fs = Arc::new(GuardedFs::new(fs, path, &lock, clock, is_log));
    Ok((lock, None))
}

fn is_log(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| FileName::parse(name.to_str()?));
    matches!(name, Some(FileName::Wal(_)))
}

fn take_lock(fs: &dyn Fs, dir: &Path) -> Result<Box<dyn FileLock>> {
    let path = dir.join(FileName::Lock.to_string());
    fs.lock(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => {
            let problem = format!(
                "{} is open in another process, or twice in this one: close it there first",
                dir.display()
            );
            Error::new(ErrorKind::Locked, problem)
        }
        _ => Error::io(format!("lock {}", path.display()), error),
    })
}

fn fork(rng: &mut Rng) -> Rng {
    Rng::from_seed(rng.next_u64())
}

/// Creates the state shared by all table files of one opening.
pub(in crate::lsm) fn shared_by_tables(options: &Options, seed: HashSeed) -> SstShared {
    SstShared {
        cache: Arc::new(BlockCache::new(options.cache_bytes)),
        shapes: Arc::new(Shapes::new(options.shape_bytes)),
        mode: options.io_mode,
        seed,
    }
}

fn new_env(
    dir: &Path,
    options: Options,
    manifest: &Manifest,
    (fs, meter): (Arc<dyn Fs>, Arc<Meter>),
) -> Result<Env> {
    let sst = shared_by_tables(&options, manifest.seed(dir)?);
    let cached_fs: Arc<dyn Fs> = match options.io_mode {
        // A memory map needs no open descriptor, so handles need no cache.
        IoMode::Mmap => Arc::clone(&fs),
        IoMode::Pread => Arc::new(CachedHandleFs::new(Arc::clone(&fs), options.max_open_files)),
    };
    Ok(Env::new(dir, options, sst, [fs, cached_fs], meter))
}

/// True if the database was closed cleanly and nothing was written since.
fn is_closed(close: Option<CleanClose>, replayed: &Replayed) -> bool {
    // The clean-close edit is written after the closing record is durable. The record alone does
    // not prove that the close completed.
    let close = close.map(|close| (close.log, close.end));
    let last = replayed.accepted.last().map(|log| (log.number, log.accepted_end));
    replayed.is_clean && last.is_some() && last == close
}

/// True if the accepted records may be read before they are durable. This is not so if
/// * a torn tail is dropped, or edits of the manifest may be lost;
/// * a `Sync` commit or an import may not be durable.
fn may_be_read(manifest: &Manifest, replayed: &Replayed, recovered: &Recovered) -> bool {
    let is_whole = recovered.torn.is_empty() && manifest.doubt().is_none();
    let has_log = !replayed.accepted.is_empty();
    has_log && is_whole && !manifest.ends_imported() && replayed.may_be_read()
}

/// Returns the accepted log records that no durable offset covers. After an unclean end they may
/// exist only in the page cache.
fn unconfirmed_logs(replayed: &Replayed) -> Vec<UnconfirmedLog> {
    let unconfirmed = |log: &Predecessor| {
        let header = LogHeader { kind: LogKind::Wal, number: log.number, id: log.id };
        let start = Position { file: log.number, offset: LogFile::START };
        let from = replayed.vouched.max(start);
        let from = if from.file == log.number { from.offset } else { log.accepted_end };
        UnconfirmedLog { header, from, end: log.accepted_end }
    };
    replayed.accepted.iter().map(unconfirmed).collect()
}

/// Removes orphans among `names`: files of this database that the manifest does not name, left by
/// failed jobs and crashes. Returns their number. A directory with the name of an orphan is not
/// removed; this adds a warning to `warnings`.
fn remove_orphans(
    env: &Env,
    manifest: &mut Manifest,
    names: &[String],
    warnings: &mut Vec<String>,
) -> Result<u64> {
    let version = Arc::clone(manifest.version());
    let mut orphans = 0;
    let is_doubtful = manifest.doubt().is_some();
    for name in names {
        let is_orphan = match FileName::parse(name) {
            Some(FileName::Temporary) => true,
            // A lost edit may have named the file.
            _ if is_doubtful => false,
            Some(FileName::Sst(number)) => version.file(number).is_none(),
            Some(FileName::Wal(number)) => {
                let kept = version.kept_logs.iter().map(|kept| kept.log.number);
                !version.logs.iter().map(|log| log.number).chain(kept).any(|log| log == number)
            }
            Some(FileName::Manifest(number)) => number != manifest.position().file,
            Some(FileName::Lock | FileName::Control | FileName::Current) | None => false,
        };
        if is_orphan {
            // The last edit of the manifest, which removed this file, may not be durable yet. If a
            // crash undid that edit, the manifest would name the file again.
            manifest.confirm()?;
            let path = env.dir.join(name);
            let is_dir = |error: io::Error| error.kind() == io::ErrorKind::IsADirectory;
            match env.fs.remove(&path) {
                Err(_) if env.fs.open_read(&path).is_err_and(is_dir) => {
                    warnings.push(format!("{} is a directory: it stays", path.display()));
                }
                result => {
                    result.doing("remove", path)?;
                    orphans += 1;
                }
            }
        }
    }
    Ok(orphans)
}

/// Assembles an engine that refuses every write. It shows the version of `manifest`, and the
/// `logged` memtables and drops, up to commit `shown`.
pub(super) fn assemble_reader(
    env: Env,
    mut manifest: Manifest,
    shown: Seq,
    logged: (Vec<Arc<Slot>>, Drops),
    recovered: Recovered,
) -> Arc<Engine> {
    let why = read_only();
    manifest.end(why.clone());
    let known = manifest.version().clock_if_known();
    let known = known.unwrap_or_else(|| env.clock.now().min(shown.0).into());
    let ttl = Ttl::new(&env.options, known, shown);
    manifest.version().account.iter().for_each(|account| env.meter.add(account));
    let log = Arc::new(LogFile::refusing(why.clone()));
    let seqs = LastSeqs { used: shown, given_out: shown };
    let queue = LogQueue::behind(log, 0, Position::default(), Vec::new(), seqs);
    let (env, executor) = (Arc::new(env), Executor::manual());
    let mut maintenance = assemble(env, manifest, (queue, shown), logged, ttl, executor);
    maintenance.is_reader = true;
    maintenance.writer.group_commit.fail(why);
    Arc::new(Engine::new(Arc::new(maintenance), recovered, None))
}

/// Assembles an engine from the version of `manifest`, and the `memtables` and `drops` of the logs
/// up to commit `last`.
pub(super) fn assemble(
    env: Arc<Env>,
    manifest: Manifest,
    (queue, last): (LogQueue, Seq),
    (memtables, drops): (Vec<Arc<Slot>>, Drops),
    ttl: Ttl,
    executor: Executor,
) -> Maintenance {
    let is_newer = |a: &Arc<Slot>, b: &Arc<Slot>| a.memtable.id > b.memtable.id;
    debug_assert!(memtables.is_sorted_by(is_newer), "the newest memtable is first");
    debug_assert!(!memtables.is_empty(), "there is an active memtable");
    let version = Arc::clone(manifest.version());
    let known = version.range_tombstones.iter().cloned();
    let range_tombstones = known.chain(drops.range_tombstones).collect();
    let range_tombstones = Arc::new(RangeTombstones::new(range_tombstones, Seq::ZERO));
    let mut dropped = version.dropped.clone();
    dropped.extend(drops.tables);
    let view = View { memtables, version, range_tombstones };
    let group_commit = GroupCommit::new(queue, last);
    let published = Arc::clone(&group_commit.published);
    let executor = Arc::new(executor);
    let state = MaintenanceState::new(env.options.background_bytes_per_second);
    let writer = Writer {
        group_commit,
        gates: Gates::default(),
        rate_limit: None,
        space_limit: None,
        backlog: Backlog::default(),
        executor: Arc::clone(&executor),
        reader: Reader::new(env, view, published, DroppedTables(Mutex::new(dropped))),
    };
    let (install, is_reader) = (Mutex::new(manifest), false);
    Maintenance { writer, install, state, ttl, eviction: None, executor, is_reader }
}

/// Begins a new log, unless that waits for the first write (`is_deferred`), and assembles the
/// engine.
fn begin(
    env: Arc<Env>,
    mut manifest: Manifest,
    replayed: Replayed,
    is_deferred: bool,
    disk: Option<(SpaceLimit, FifoEviction)>,
) -> Result<Maintenance> {
    manifest.roll_bytes_min = env.options.manifest_roll_bytes;
    let known = manifest.version().clock_if_known();
    // If the manifest states no time, start the time for expiry at the lesser of the clock and the
    // last Seq, so that no row expires early. Seqs may be ahead of every clock.
    let known = known.unwrap_or_else(|| env.clock.now().min(replayed.last.0).into());
    let ttl = Ttl::new(&env.options, known, replayed.last);
    let last_log = replayed.accepted.last().copied();
    let mut queue = match last_log.filter(|_| is_deferred) {
        Some(log) => behind(&env, &manifest, log, &replayed)?,
        None => begin_log(&env, &mut manifest, last_log, &replayed, &ttl)?,
    };
    let number = queue.position().file;
    queue.spare_bytes_max = SPARE_BUFFERS * env.options.log_buffer_bytes;
    let executor = Executor::behind(&env.loads.bell);
    let rate_limit = env.options.targets.map(RateLimit::new);
    let memtables = match replayed.inserted {
        None => memtables(&env, replayed.slots, (!is_deferred).then_some(number)),
        Some(_) => replayed.slots.into_iter().rev().map(Arc::new).collect(),
    };
    let (last, logged) = (replayed.last, (memtables, replayed.drops));
    let mut maintenance = assemble(env, manifest, (queue, last), logged, ttl, executor);
    maintenance.writer.rate_limit = rate_limit;
    (maintenance.writer.space_limit, maintenance.eviction) = disk.unzip();
    if let Some(inserted) = replayed.inserted {
        resume(&maintenance, inserted, &replayed.accepted, number)?;
    }
    Ok(maintenance)
}

fn begin_log(
    env: &Env,
    manifest: &mut Manifest,
    last_log: Option<Predecessor>,
    replayed: &Replayed,
    ttl: &Ttl,
) -> Result<LogQueue> {
    // The new log states that the accepted records are durable, so other readers need not wait for
    // its first commit.
    let accepted = last_log.map(|log| Position { file: log.number, offset: log.accepted_end });
    let bytes = env.options.log_allocate_bytes;
    let clock = ttl.news(&manifest.version().clock);
    let next = env.create_log(manifest, bytes, &replayed.unused, accepted, clock)?;
    let durable = Position { file: next.log.header().number, offset: 0 };
    LogQueue::new(next, last_log, accepted.unwrap_or(durable), replayed.seqs())
}

/// Returns the log queue of a session that follows `log`, the last log of an earlier session.
/// Nothing is appended to that log. Commits that may not be durable wait for a sync like weak
/// commits of this session.
fn behind(
    env: &Env,
    manifest: &Manifest,
    log: Predecessor,
    replayed: &Replayed,
) -> Result<LogQueue> {
    let path = env.dir.join(FileName::Wal(log.number).to_string());
    let header = LogHeader { kind: LogKind::Wal, number: log.number, id: log.id };
    let file = LogFile::reopen(&*env.fs, &path, header)?;
    let (end, unused) = (log.accepted_end, replayed.unused.clone());
    let is_unconfirmed = manifest.has_unconfirmed_logs();
    let all = Position { file: log.number, offset: end };
    let durable = if is_unconfirmed { replayed.vouched.min(all) } else { all };
    let mut queue = LogQueue::behind(Arc::new(file), end, durable, unused, replayed.seqs());
    let is_due = is_unconfirmed && replayed.has_unvouched_commits();
    queue.undurable = is_due.then(|| (0, env.clock.monotonic()));
    Ok(queue)
}

/// Returns the memtables, newest first. The first one accepts writes and is linked to the log
/// `number`, if that log exists yet.
pub(super) fn memtables(
    env: &Env,
    mut replayed: Vec<Slot>,
    number: Option<FileNumber>,
) -> Vec<Arc<Slot>> {
    if replayed.last().is_some_and(|slot| accepts_writes(env, slot)) {
        if let Some(last) = replayed.last_mut() {
            last.logs.extend(number);
        }
    } else {
        let id = replayed.last().map_or(0, |slot| slot.memtable.id + 1);
        let memtable = Arc::new(Memtable::new(id, env.options.memtable_bytes, 0));
        replayed.push(Slot { memtable, logs: number.into_iter().collect() });
    }
    replayed.into_iter().rev().map(Arc::new).collect()
}
