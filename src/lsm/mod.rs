//! The engine: commits, reads and background work over logs, memtables and table files. It handles
//! keys and rows, but not entities (`table`) or the bytes on disk (`format`).
//!
//! The engine has four parts (*rooms*), each a module that uses only the modules before it in this
//! order: `read`, `write`, `background`, `recovery`. An `Engine` owns a [`Maintenance`], which owns
//! a [`Writer`], which owns a [`Reader`].
//!
//! Locks are taken in this order: `Maintenance::install` (the manifest and every change of the
//! version), the commit lock (`Writer::group_commit`), then any of the locks held for a few
//! instructions (snapshots, state).

mod background;
mod guards;
mod read;
mod recovery;
mod write;

#[cfg(all(test, loom))]
mod models;

#[cfg(feature = "sim")]
pub(crate) use background::compaction::job::Compaction;
pub(crate) use background::events::Recovered;
#[cfg(feature = "sim")]
pub(crate) use background::fifo_tables::Evicted;
#[cfg(feature = "sim")]
pub(crate) use background::flush::Flush;
pub(crate) use background::ingest::{Ingested, OnRows};
pub(crate) use background::maintenance::Maintenance;
#[cfg(feature = "cli")]
pub(crate) use background::reclaim::Removed;
pub(crate) use guards::{CommitTicket, SnapshotGuard};
pub(crate) use read::concat_iter::ReadCounts;
pub(crate) use read::env::Env;
pub(crate) use read::range_tombstones::RangeTombstones;
pub(crate) use read::reader::Reader;
pub(crate) use read::reverse_scan::ReverseScan;
pub(crate) use read::row_filter::{RowFilter, ScanRow, Step, VisibleRun, Visit, ZoneMatch};
pub(crate) use read::scan::{ReadView, Scan};
pub(crate) use recovery::change_log::{ChangeLog, Logged};
pub(crate) use recovery::checkpoint::{
    OnBytes, OnProgress, build, checkpoint, copy_file, image, read_file, require_empty,
    require_outside, verify_copy, verify_entry,
};
pub(crate) use recovery::file_replacement::{FileReplacement, Healed, SoundCopies};
pub(crate) use recovery::follower::LogFollower;
pub(crate) use recovery::inspect::Inspector;
pub(crate) use recovery::open::open;
pub(crate) use recovery::read_only::open_read_only;
pub(crate) use recovery::wal_tail::More;
#[cfg(feature = "sim")]
pub(crate) use write::admission::least_limit;
pub(crate) use write::batch::{Action, Batch, Condition, Gate, Op, Ops, PackedRow, TableChange};
pub use write::gates::GateMode;
pub(crate) use write::gates::SpanGate;
#[cfg(feature = "json")]
pub(crate) use write::rate_limit::RateLimit;
pub(crate) use write::writer::Writer;

use std::sync::Arc;

use crate::error::Result;
use crate::format::span::Span;
use crate::fs::FileLock;
use crate::model::Seq;
#[cfg(feature = "cli")]
use crate::options::Companion;
use crate::options::Durability;
use crate::sync::Mutex;
#[cfg(feature = "cli")]
use crate::sync::UnmodelledMutex;

/// One open database. Dropping it closes the database. This works although background threads still
/// run, because these hold only the `Maintenance`.
pub(crate) struct Engine {
    maintenance: Arc<Maintenance>,
    /// The results of recovery at opening.
    pub(crate) recovered: Recovered,
    /// The lock on the directory, held until the database is closed.
    lock: Mutex<Option<Arc<dyn FileLock>>>,
    /// The companion that `Options::companion` started, or the error of starting it.
    #[cfg(feature = "cli")]
    pub(crate) companion: UnmodelledMutex<Option<Result<Companion>>>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        // An error of this close is lost. A caller that needs it must call `close` first.
        drop(self.close());
    }
}

impl Engine {
    #[inline]
    pub(crate) fn maintenance(&self) -> &Maintenance {
        &self.maintenance
    }

    #[inline]
    pub(crate) fn writer(&self) -> &Writer {
        &self.maintenance.writer
    }

    #[inline]
    pub(crate) fn reader(&self) -> &Reader {
        &self.maintenance.writer.reader
    }

    #[inline]
    pub(crate) fn env(&self) -> &Arc<Env> {
        &self.maintenance.writer.reader.env
    }

    /// Commits `batch` and waits until it is as durable as requested. The returned Seq is the ETag
    /// of every entity that the batch writes.
    ///
    /// # Errors
    /// The Azure error code for an unmet condition; `StorageFull` (nothing was written),
    /// `Poisoned`, `Io`.
    pub(crate) fn commit(&self, batch: &Batch<'_>, durability: Durability) -> Result<Seq> {
        self.maintenance.commit(batch, durability)
    }

    /// Returns a view of the state as of Seq `at`; `None` means the current state.
    pub(crate) fn read_view(&self, at: Option<Seq>) -> ReadView {
        self.writer().cut_gaps();
        self.reader().read_view(at)
    }

    /// Scans the rows of `span` as of Seq `at`; `None` means the current state.
    pub(crate) fn scan(&self, span: &Span, at: Option<Seq>) -> Result<Scan> {
        self.read_view(at).scan(span, span)
    }

    fn new(
        maintenance: Arc<Maintenance>,
        recovered: Recovered,
        lock: Option<Arc<dyn FileLock>>,
    ) -> Self {
        Self {
            maintenance,
            recovered,
            lock: Mutex::new(lock),
            #[cfg(feature = "cli")]
            companion: UnmodelledMutex::new(None),
        }
    }

    /// Ends background work, makes everything durable, and records a clean close.
    ///
    /// # Errors
    /// The first failure. If data could not be made durable, the next opening recovers it from the
    /// log, unless the machine stops before.
    pub(crate) fn close(&self) -> Result<()> {
        self.maintenance.executor.stop();
        // No background thread flushes any more, so writers that wait for a flush must flush.
        self.writer().backlog.wake();
        let Some(lock) = self.lock.lock().take() else { return Ok(()) };
        #[cfg(feature = "cli")]
        {
            // Dropping the companion ends its requests with an error and waits for its threads. The
            // mutex is unlocked before, so that these threads can lock it.
            let companion = self.companion.lock().take();
            drop(companion);
        }
        let result = self.maintenance.close();
        drop(lock);
        result
    }
}
