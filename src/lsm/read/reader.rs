//! The part of the engine that reads: the current view, the published Seq, and the snapshots that
//! keep older versions readable.
//!
//! Invariants
//! * a read pins the view first and loads its Seq afterwards, see [`Reader::pin_read`];
//! * no read waits for a commit, a flush or the manifest, because reads take none of their locks.
//!
//! Not here: scans (`scan`), changes of the view (`Writer`, `Maintenance`).

use std::sync::Arc;

use crate::clock::ticks_in;
use crate::error::Result;
use crate::format::edit::RangeTombstone;
use crate::format::names::TableId;
use crate::model::{RowRef, Seq};
use crate::mutants::mutant;
use crate::sync::{ArcSwap, AtomicU64, Loaded, Ordering};

use super::dropped_tables::DroppedTables;
use super::env::Env;
use super::load_sampling::Operation;
use super::published::PublishedSeq;
use super::scan::ReadView;
use super::snapshot::{Horizon, Snapshots};
use super::view::View;

/// The state that reads use.
pub(crate) struct Reader {
    pub(crate) env: Arc<Env>,
    pub(in crate::lsm) view: ArcSwap<View>,
    pub(in crate::lsm) published: Arc<PublishedSeq>,
    pub(in crate::lsm) snapshots: Snapshots,
    /// The Seq of the newest commit that added a range tombstone, or of the newest import,
    /// published or not.
    newest_range_tombstone: AtomicU64,
    /// Ticks by which the session's time is ahead of the monotonic clock.
    session_ahead: AtomicU64,
    pub(in crate::lsm) dropped: DroppedTables,
}

impl Reader {
    pub(in crate::lsm) fn new(
        env: Arc<Env>,
        view: View,
        published: Arc<PublishedSeq>,
        dropped: DroppedTables,
    ) -> Self {
        let newest_range_tombstone = AtomicU64::new(view.range_tombstones.newest.0);
        let (view, snapshots) = (ArcSwap::from_pointee(view), Snapshots::default());
        let session_ahead = AtomicU64::new(0);
        Self { env, view, published, snapshots, newest_range_tombstone, session_ahead, dropped }
    }

    /// Calls `with` with the newest row of `key` as of `at`, or as of now. Returns `None` if no row
    /// is visible.
    #[inline]
    pub(crate) fn get<R>(
        &self,
        key: &[u8],
        at: Option<Seq>,
        with: impl FnOnce(Seq, RowRef<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        let hash = self.env.hash(key);
        let (view, at) = self.pin_read(at);
        view.record_rows(&self.env, 1, key, Operation::Get);
        let found = view.read(&self.env, hash, key, at, |current| match current.row {
            Some(row) => with(current.seq, row).map(Some),
            None => Ok(None),
        })?;
        Ok(found.flatten())
    }

    /// Returns the published Seq, up to which every commit is visible.
    #[inline]
    pub(crate) fn published(&self) -> Seq {
        self.published.load()
    }

    /// Returns the session's time in ticks: the wall clock, or the last commit plus the monotonic
    /// time since, if that is later. A wall clock that was ahead for a while counts only if there
    /// was a commit, because only then the lead is durable.
    pub(crate) fn session_time(&self) -> u64 {
        let monotonic = ticks_in(self.env.clock.monotonic());
        let ahead = self.published().0.saturating_sub(monotonic);
        let before = self.session_ahead.fetch_max(ahead, Ordering::Relaxed);
        before.max(ahead).saturating_add(monotonic).max(self.env.clock.now())
    }

    /// Pins a view, and returns it with the Seq to read at: `at` or the published one.
    ///
    /// The view is loaded first (see `view`). If the view lacks a range tombstone that was
    /// committed in the meantime, the view and the Seq are loaded again.
    #[inline]
    pub(in crate::lsm) fn pin_read(&self, at: Option<Seq>) -> (Loaded<View>, Seq) {
        self.pin_around(at, || {})
    }

    /// As [`pin_read`](Self::pin_read). Tests pass `between`, which runs after loading the view and
    /// before loading the Seq.
    #[inline]
    pub(in crate::lsm) fn pin_around(
        &self,
        at: Option<Seq>,
        between: impl Fn(),
    ) -> (Loaded<View>, Seq) {
        loop {
            let early = mutant!("seq-before-view").then(|| self.published());
            let view = self.view.load();
            between();
            let at = at.or(early).unwrap_or_else(|| self.published());
            let newest = Seq(self.newest_range_tombstone.load(Ordering::Acquire));
            if newest <= view.range_tombstones.newest {
                return (view, at);
            }
        }
    }

    /// Returns a view of the state as of `at`, or as of now.
    pub(in crate::lsm) fn read_view(&self, at: Option<Seq>) -> ReadView {
        let is_newest = at.is_none();
        let (view, at) = self.pin_read(at);
        ReadView::of(&self.env, Arc::clone(&view), at, is_newest)
    }

    /// Returns the current view. The files of the view are not removed while the view is held.
    pub(crate) fn pin(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Returns the incarnation of the database. A restored database keeps its id but gets another
    /// incarnation.
    pub(crate) fn incarnation(&self) -> u64 {
        self.pin().version.identity.as_ref().map_or(0, |identity| identity.incarnation)
    }

    /// Replaces the current view by the result of `next`. If another thread changes the view at the
    /// same time, `next` is called again, so that both changes are kept.
    pub(in crate::lsm) fn change_view(&self, next: impl Fn(&View) -> View) {
        if mutant!("overwrite-view") {
            let next = next(&self.view.load());
            return self.view.store(Arc::new(next));
        }
        self.view.rcu(|view| next(view));
    }

    /// Adds the range tombstones of an unpublished commit to the view. Requires the commit lock.
    pub(in crate::lsm) fn add_range_tombstones(&self, range_tombstones: &[RangeTombstone]) {
        let newest = range_tombstones.iter().map(|range_tombstone| range_tombstone.from).max();
        let Some(newest) = newest else { return };
        self.change_view(|view| {
            view.with_range_tombstones(Arc::new(view.range_tombstones.with(range_tombstones)))
        });
        self.require_range_tombstones_of(newest);
    }

    /// From now on reads pin only views that contain the range tombstones and imports up to `seq`.
    pub(in crate::lsm) fn require_range_tombstones_of(&self, seq: Seq) {
        self.newest_range_tombstone.store(seq.0, Ordering::Release);
    }

    /// Returns the Seqs that a job starting now must keep readable.
    pub(in crate::lsm) fn horizon(&self) -> Horizon {
        self.snapshots.horizon(&self.published)
    }

    /// True if the table was dropped and its space is not reclaimed yet.
    pub(crate) fn is_dropped(&self, table: TableId) -> bool {
        self.dropped.contains(table)
    }

    /// True if the space of any dropped table or span is not reclaimed yet.
    pub(crate) fn has_drops(&self) -> bool {
        !self.dropped.is_empty() || !self.view.load().range_tombstones.is_empty()
    }
}
