//! The engine: commits, reads and background work over logs, memtables and table files. Knows keys and rows, no entities.
//!
//! Locks, always taken in this order: `install` (the manifest and every change of the version), the commit lock
//! (`group_commit`), then any of the small ones (`snapshots`, `state`), which are held for a few instructions.
//!
//! Not here: tables by name and entities (`table`), bytes (`format`).

mod background;
mod read;
mod recovery;
mod write;

#[cfg(all(test, loom))]
mod models;

#[cfg(feature = "sim")]
pub(crate) use background::compaction::job::Compaction;
pub(crate) use background::events::Recovered;
#[cfg(all(test, feature = "events"))]
pub(crate) use background::events::Stall;
#[cfg(feature = "sim")]
pub(crate) use background::fifo_eviction::Given;
#[cfg(feature = "sim")]
pub(crate) use background::flush::Flush;
pub(crate) use background::ingest::Ingested;
#[cfg(feature = "sim")]
pub(crate) use background::space_limit::least_limit;
pub(crate) use read::concat_iter::ReadCounts;
pub(crate) use read::range_tombstones::RangeTombstones;
pub(crate) use read::reverse_scan::ReverseScan;
pub(crate) use read::scan::{
    Judgement, ReadView, RowFilter, Scan, ScanRow, Step, VisibleRun, Visit,
};
pub(crate) use read::snapshot::SnapshotGuard;
pub(crate) use recovery::change_log::{ChangeLog, Logged};
pub(crate) use recovery::checkpoint::{
    OnBytes, build, copy_file, read_file, require_empty, require_outside,
};
pub(crate) use recovery::file_replacement::{Healed, SoundCopies};
pub(crate) use recovery::follower::LogFollower;
pub(crate) use recovery::handle::Handle;
pub(crate) use recovery::wal_tail::More;
pub(crate) use write::batch::{Action, Batch, Condition, Gate, Op, Ops, PackedRow, TableChange};
pub use write::gates::GateMode;
pub(crate) use write::gates::SpanGate;
pub(crate) use write::ticket::CommitTicket;

use std::path::PathBuf;
use std::sync::Arc;

use crate::clock::Clock;
use crate::codec::{HashSeed, hash};
use crate::error::Result;
use crate::executor::Executor;
use crate::format::names::{FileId, FileNumber};
use crate::fs::{FileLock, Fs};
use crate::manifest::{FileEntry, Manifest};
use crate::model::{Seq, ShapeId, Shapes};
use crate::mutants::mutant;
use crate::options::Options;
use crate::sst::{Sst, SstShared};
use crate::sync::{ArcSwap, AtomicU64, Mutex};
use crate::write_accounting::Meter;

use background::space_limit::SpaceLimit;
use background::state::MaintenanceState;
use background::ttl::Ttl;
use read::gap_cache::GapCache;
use read::load_sampling::LoadSampling;
use read::snapshot::Snapshots;
use read::view::View;
use write::commit::LogQueue;
use write::gates::Gates;
use write::group_commit::GroupCommit;
use write::rate_limit::RateLimit;

/// What everything in the engine works with and nothing changes.
pub(crate) struct Env {
    /// Counted by `meter`; table files that are written through it came in.
    pub(crate) fs: Arc<dyn Fs>,
    /// The same for table files that are read, which it closes when others are wanted more.
    cached_fs: Arc<dyn Fs>,
    meter: Arc<Meter>,
    pub(crate) dir: PathBuf,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Options,
    pub(crate) seed: HashSeed,
    pub(crate) shapes: Arc<Shapes>,
    sst: SstShared,
    loads: LoadSampling,
    pub(crate) gaps: GapCache,
    /// Only if there is a limit on disk use.
    space_limit: Option<SpaceLimit>,
}

/// One open database.
pub(crate) struct Engine {
    pub(crate) env: Arc<Env>,
    view: ArcSwap<View>,
    group_commit: GroupCommit<LogQueue>,
    install: Mutex<Manifest>,
    snapshots: Snapshots,
    ttl: Ttl,
    /// The newest commit that put up a range tombstone, published or not, or the newest import.
    newest_range_tombstone: AtomicU64,
    state: MaintenanceState,
    divided: background::range_split::Divided,
    pub(crate) gates: Gates,
    /// Only if there are targets.
    rate_limit: Option<RateLimit>,
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
        file.sst_or_open(|| Sst::open(&*self.cached_fs, &self.dir, &file.meta, &self.sst))
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
        self.env.record_read(&view.version, key);
        let found = view.read(&self.env, hash, key, at, |current| match current.row {
            Some(row) => with(current.seq, row).map(Some),
            None => Ok(None),
        })?;
        Ok(found.flatten())
    }

    /// Readers see every commit up to this one.
    pub(crate) fn published(&self) -> Seq {
        self.group_commit.published()
    }

    /// Puts what `next` makes of the current view in its place; what others put there meanwhile stays.
    fn change_view(&self, next: impl Fn(&View) -> View) {
        if mutant!("overwrite-view") {
            let next = next(&self.view.load());
            return self.view.store(Arc::new(next));
        }
        self.view.rcu(|view| next(view));
    }

    /// What all files take, the limit, how many writes it refused, and how many files and bytes it made go, if there is one.
    pub(crate) fn disk_use(&self) -> Option<[u64; 5]> {
        self.env.space_limit.as_ref().map(SpaceLimit::figures)
    }

    /// A number and an id for a new table file.
    fn new_file(&self) -> Result<(FileNumber, FileId)> {
        let mut manifest = self.install.lock();
        let number = manifest.next_number();
        let number = number.map_err(|error| self.poison_on_failure(&manifest, error))?;
        self.env.discard_superseded(&mut manifest);
        Ok((number, manifest.next_id()))
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
