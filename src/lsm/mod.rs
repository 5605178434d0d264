//! The engine: commits, reads and background work over logs, memtables and table files. Knows keys and rows, no entities.
//!
//! Locks, always taken in this order: `install` (the manifest and every change of the version), the commit lock
//! (`rounds`), then any of the small ones (`snapshots`, `upkeep`), which are held for a few instructions.
//!
//! Not here: tables by name and entities (`table`), bytes (`format`).

mod background;
mod batch;
mod checkpoint;
mod commit;
pub(crate) mod compaction;
mod events;
mod expiry;
mod feed;
mod fences;
mod files;
mod flush;
mod follow;
mod gaps;
mod gates;
mod handle;
mod heal;
mod history;
mod ingest;
mod inspect;
mod load;
mod log_rows;
mod merge;
mod outputs;
mod pace;
mod place;
mod pressure;
mod quarantine;
mod reclaim;
mod recover;
mod replay;
mod reverse;
mod ring;
mod room;
mod round;
mod scan;
mod snapshot;
mod split;
mod tail;
mod throttle;
mod ticket;
mod upkeep;
mod view;

#[cfg(all(test, loom))]
mod models;

pub(crate) use background::whole_table;
pub(crate) use batch::{Action, Batch, Condition, Gate, Op, Ops, PackedRow, TableChange};
pub(crate) use checkpoint::{OnBytes, build, copy_file, read_file, require_empty, require_outside};
#[cfg(feature = "sim")]
pub(crate) use compaction::job::Compaction;
#[cfg(all(test, feature = "events"))]
pub(crate) use events::Stall;
pub(crate) use feed::{LogFeed, Logged};
pub(crate) use fences::Fences;
pub(crate) use files::ReadCounts;
#[cfg(feature = "sim")]
pub(crate) use flush::Flush;
pub(crate) use follow::Following;
pub use gates::GateMode;
pub(crate) use gates::SpanGate;
pub(crate) use handle::Handle;
pub(crate) use heal::{Healed, SoundCopies};
pub(crate) use ingest::Ingested;
pub(crate) use recover::Recovered;
pub(crate) use reverse::ReverseScan;
#[cfg(feature = "sim")]
pub(crate) use ring::Given;
#[cfg(feature = "sim")]
pub(crate) use room::least_limit;
pub(crate) use scan::{Judgement, ReadView, RowFilter, Scan, ScanRow, Step, VisibleRun, Visit};
pub(crate) use snapshot::SnapshotGuard;
pub(crate) use tail::More;
pub(crate) use ticket::CommitTicket;

use std::path::PathBuf;
use std::sync::Arc;

use crate::clock::Clock;
use crate::codec::{HashSeed, hash};
use crate::error::Result;
use crate::executor::Executor;
use crate::format::names::{FileId, FileName, FileNumber};
use crate::fs::{FileLock, Fs};
use crate::manifest::{FileEntry, Manifest, Version};
use crate::meter::Meter;
use crate::model::{Seq, ShapeId, Shapes};
use crate::options::Options;
use crate::planted::planted;
use crate::sst::{Sst, SstShared};
use crate::sync::{ArcSwap, AtomicU64, Mutex};

use commit::LogQueue;
use expiry::Expiry;
use gaps::Gaps;
use gates::Gates;
use load::Loads;
use room::Room;
use round::Rounds;
use snapshot::Snapshots;
use throttle::Throttle;
use upkeep::Upkeep;
use view::View;

/// What everything in the engine works with and nothing changes.
pub(crate) struct Env {
    /// Counted by `meter`; table files that are written through it came in.
    pub(crate) fs: Arc<dyn Fs>,
    /// The same for table files that are read, which it closes when others are wanted more.
    few: Arc<dyn Fs>,
    meter: Arc<Meter>,
    pub(crate) dir: PathBuf,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Options,
    pub(crate) seed: HashSeed,
    pub(crate) shapes: Arc<Shapes>,
    sst: SstShared,
    loads: Loads,
    pub(crate) gaps: Gaps,
    /// Only if there is a limit on disk use.
    room: Option<Room>,
}

/// One open database.
pub(crate) struct Engine {
    pub(crate) env: Arc<Env>,
    view: ArcSwap<View>,
    rounds: Rounds<LogQueue>,
    install: Mutex<Manifest>,
    snapshots: Snapshots,
    expiry: Expiry,
    /// The newest commit that put up a fence, published or not, or the newest import.
    newest_fence: AtomicU64,
    upkeep: Upkeep,
    divided: split::Divided,
    pub(crate) gates: Gates,
    /// Only if there are targets.
    throttle: Option<Throttle>,
    pub(crate) executor: Executor,
    /// Nothing is written, by nobody: another process has the database, or may.
    is_reader: bool,
    /// What opening found.
    pub(crate) recovered: Recovered,
    /// Held until the database is closed.
    lock: Mutex<Option<Box<dyn FileLock>>>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        // It was closed with the last handle, unless opening failed halfway.
        drop(self.close());
    }
}

impl Env {
    /// The hash that memtables and files find `key` by.
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        hash(self.seed, key)
    }

    /// Forgets the cached blocks of a file that is going.
    fn forget_cached(&self, file: FileNumber) {
        self.sst.cache.remove_file(file);
    }

    /// The reader of `file`, opened at its first use.
    #[inline]
    fn open_sst<'a>(&self, file: &'a FileEntry) -> Result<&'a Arc<Sst>> {
        file.sst_or_open(|| Sst::open(&*self.few, &self.dir, &file.meta, &self.sst))
    }
}

impl Engine {
    /// Calls `with` with the newest row of `key` as of `at`, or as of now; `None` if there is none.
    #[inline]
    pub(crate) fn get<R>(
        &self,
        key: &[u8],
        at: Option<Seq>,
        with: impl FnOnce(Seq, crate::model::RowRef<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        let hash = self.env.hash(key);
        let (view, at) = self.pin_read(at);
        self.env.note_read(&view.version, key);
        let found = view.read(&self.env, hash, key, at, |current| match current.row {
            Some(row) => with(current.seq, row).map(Some),
            None => Ok(None),
        })?;
        Ok(found.flatten())
    }

    /// Readers see every commit up to this one.
    pub(crate) fn published(&self) -> Seq {
        self.rounds.published()
    }

    /// Puts what `next` makes of the current view in its place; what others put there meanwhile stays.
    fn change_view(&self, next: impl Fn(&View) -> View) {
        if planted!("view-overwritten") {
            let next = next(&self.view.load());
            return self.view.store(Arc::new(next));
        }
        self.view.rcu(|view| next(view));
    }

    /// What all files take, the limit, how many writes it refused, and how many files and bytes it made go, if there is one.
    pub(crate) fn disk_use(&self) -> Option<[u64; 5]> {
        self.env.room.as_ref().map(Room::figures)
    }

    /// A number and an id for a new table file.
    fn new_file(&self) -> Result<(FileNumber, FileId)> {
        let mut manifest = self.install.lock();
        let number = manifest.next_number();
        if planted!("reuse-file-numbers") {
            let id = manifest.next_id();
            return Ok((self.lowest_free(manifest.version()), id));
        }
        let number = number.map_err(|error| self.judge(&manifest, error))?;
        self.env.discard_superseded(&mut manifest);
        Ok((number, manifest.next_id()))
    }

    /// The lowest number that no log and no table file has; for a planted bug.
    fn lowest_free(&self, version: &Version) -> FileNumber {
        let is_log = |n: &FileNumber| version.logs().iter().any(|log| log.number == *n);
        let path = |n: &FileNumber| self.env.dir.join(FileName::Sst(*n).to_string());
        let is_there = |n: &FileNumber| self.env.fs.exists(&path(n)).unwrap_or(false);
        (2..).map(FileNumber).find(|n| !is_log(n) && !is_there(n)).unwrap_or_default()
    }

    /// A seed for another database, which follows from this one's.
    pub(crate) fn next_seed(&self) -> u64 {
        self.install.lock().next_id().0
    }

    /// A shape as the log defines it.
    fn encoded_shape(&self, id: ShapeId) -> Option<(ShapeId, Vec<u8>)> {
        let shape = self.env.shapes.get(id)?;
        let mut bytes = Vec::new();
        crate::format::shape::encode_shape(&mut bytes, shape);
        Some((id, bytes))
    }
}
