//! The engine: commits, reads and background work over logs, memtables and table files. It knows
//! keys and rows, no entities.
//!
//! Four rooms, each of which uses only rooms before it in this order: `read` < `write` <
//! `background` < `recovery`. The engine is composed of a part of each: `Engine` owns a
//! [`Maintenance`], which owns a [`Writer`], which owns a [`Reader`].
//!
//! Locks, always taken in this order: `Maintenance::install` (the manifest and every change of the
//! version), the commit lock (`Writer::group_commit`), then any of the small ones (snapshots,
//! state), which are held for a few instructions.
//!
//! Not here: tables by name and entities (`table`), bytes (`format`).

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
pub(crate) use background::ingest::Ingested;
pub(crate) use background::maintenance::Maintenance;
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
    OnBytes, build, checkpoint, copy_file, image, read_file, require_empty, require_outside,
    verify_copy,
};
pub(crate) use recovery::file_replacement::{FileReplacement, Healed, SoundCopies};
pub(crate) use recovery::follower::LogFollower;
pub(crate) use recovery::inspect::Inspector;
pub(crate) use recovery::open::open;
pub(crate) use recovery::wal_tail::More;
#[cfg(feature = "sim")]
pub(crate) use write::admission::least_limit;
pub(crate) use write::batch::{Action, Batch, Condition, Gate, Op, Ops, PackedRow, TableChange};
pub use write::gates::GateMode;
pub(crate) use write::gates::SpanGate;
pub(crate) use write::writer::Writer;

use std::sync::Arc;

use crate::error::Result;
use crate::format::span::Span;
use crate::fs::FileLock;
use crate::model::Seq;
use crate::options::Durability;
use crate::sync::Mutex;

/// One open database. It is closed when the library drops its last reference. Background threads
/// hold only the `Maintenance`.
pub(crate) struct Engine {
    maintenance: Arc<Maintenance>,
    /// The result of recovery at opening.
    pub(crate) recovered: Recovered,
    /// Held until the database is closed.
    lock: Mutex<Option<Box<dyn FileLock>>>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The error is lost here; call `close` to get it.
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
    /// of every entity that the batch wrote.
    ///
    /// # Errors
    /// The service's code for an unmet condition; `StorageFull` (nothing was written), `Poisoned`,
    /// `Io`.
    pub(crate) fn commit(&self, batch: &Batch<'_>, durability: Durability) -> Result<Seq> {
        self.maintenance.commit(batch, durability)
    }

    /// The state as of `at`, or as of now.
    pub(crate) fn read_view(&self, at: Option<Seq>) -> ReadView {
        self.writer().cut_gaps();
        self.reader().read_view(at)
    }

    /// The rows of `span` as of `at`, or as of now.
    pub(crate) fn scan(&self, span: &Span, at: Option<Seq>) -> Result<Scan> {
        self.read_view(at).scan(span, span)
    }

    /// Ends background work, makes everything durable, and writes the mark of a clean close.
    ///
    /// # Errors
    /// The first failure. Data that could not be made durable is lost only if the machine stops:
    /// the next opening recovers it from the log.
    pub(crate) fn close(&self) -> Result<()> {
        self.maintenance.executor.stop();
        let Some(lock) = self.lock.lock().take() else { return Ok(()) };
        let result = self.maintenance.close();
        drop(lock);
        result
    }
}
