//! The Seq up to which commits are visible.
//!
//! Invariant: the published Seq never decreases. The leader of a commit group stores it, under the
//! commit lock.
//!
//! Not here: the conditions for publishing a commit (`group_commit`).

use crate::model::Seq;
use crate::mutants::mutant;
use crate::sync::{AtomicU64, Ordering};

/// The Seq up to which readers see all commits. Load it after pinning a view.
pub(crate) struct PublishedSeq(AtomicU64);

impl PublishedSeq {
    pub(crate) fn new(seq: Seq) -> Self {
        Self(AtomicU64::new(seq.0))
    }

    #[inline]
    pub(crate) fn load(&self) -> Seq {
        Seq(self.0.load(Ordering::Acquire))
    }

    /// Publishes `seq`, which must be greater than the current value. Requires the commit lock.
    pub(in crate::lsm) fn store(&self, seq: Seq) {
        let before = self.0.load(Ordering::Relaxed);
        debug_assert!(seq.0 > before, "the published Seq only rises");
        let relaxed = mutant!("relaxed-publish");
        self.0.store(seq.0, if relaxed { Ordering::Relaxed } else { Ordering::Release });
    }
}
