//! Registers snapshots: Seqs that must stay readable.
//!
//! Invariant: a snapshot's Seq is loaded and registered under one lock. A job reads the list of
//! snapshots under the same lock before it loads the published Seq. So no version that a snapshot
//! sees can be dropped before the snapshot is registered.

use crate::model::Seq;
use crate::mutants::mutant;
use crate::sort::SortedMap;
use crate::sync::Mutex;

use super::published::PublishedSeq;

/// The snapshots that are held.
#[derive(Default)]
pub(crate) struct Snapshots(Mutex<Held>);

#[derive(Default)]
struct Held {
    /// The number of holders of each snapshot Seq.
    holders: SortedMap<Seq, usize>,
    /// Background work waits until no snapshot is below this Seq; `None` if it waits for none.
    awaited: Option<Seq>,
}

/// Decides which versions of a key jobs must keep: the newest, and for each snapshot the newest at
/// or below its Seq.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Horizon {
    /// The Seqs of the snapshots, ascending.
    snapshots: Vec<Seq>,
    /// Readers without a snapshot read at this Seq or later.
    pub(super) published: Seq,
}

impl Snapshots {
    /// Keeps the published Seq readable until [`release`](Self::release).
    pub(in crate::lsm) fn register(&self, published: &PublishedSeq) -> Seq {
        let early = mutant!("early-snapshot").then(|| published.load());
        let mut held = self.0.lock();
        let seq = early.unwrap_or_else(|| published.load());
        let is_newest = held.holders.keys().next_back().is_none_or(|last| *last <= seq);
        debug_assert!(early.is_some() || is_newest, "snapshots are taken at growing Seqs");
        *held.holders.get_or_insert_with(seq, || 0) += 1;
        seq
    }

    /// Releases one holder of `seq`. Returns true if background work that waits for snapshots may
    /// continue.
    pub(in crate::lsm) fn release(&self, seq: Seq) -> bool {
        let mut held = self.0.lock();
        let Some(count) = held.holders.get_mut(&seq) else { return false };
        debug_assert!(*count > 0, "a Seq is held as long as it is counted");
        *count -= 1;
        if *count > 0 {
            return false;
        }
        held.holders.remove(&seq);
        held.take_due()
    }

    /// Requests that [`release`](Self::release) returns true once no snapshot below `seq` is left.
    /// Returns true if there is none now.
    pub(in crate::lsm) fn await_release_below(&self, seq: Seq) -> bool {
        let mut held = self.0.lock();
        let awaited = held.awaited.map_or(seq, |other| other.min(seq));
        held.awaited = Some(awaited);
        held.take_due()
    }

    /// Returns the horizon of a job that starts now.
    pub(in crate::lsm) fn horizon(&self, published: &PublishedSeq) -> Horizon {
        let held = self.0.lock();
        let snapshots: Vec<Seq> = held.holders.keys().copied().collect();
        let published = published.load();
        let last = snapshots.last().copied().unwrap_or_default();
        debug_assert!(last <= published, "snapshots read what is published");
        Horizon { snapshots, published }
    }
}

impl Held {
    /// True if no snapshot is below the awaited Seq. The request for a wakeup then ends.
    fn take_due(&mut self) -> bool {
        let oldest = self.holders.keys().next().copied().unwrap_or(Seq::MAX);
        self.awaited.take_if(|awaited| oldest >= *awaited).is_some()
    }
}

impl Horizon {
    /// True if the version `newer` of a key hides the version `older` from every reader.
    pub(crate) fn hides(&self, newer: Seq, older: Seq) -> bool {
        debug_assert!(newer > older, "versions come newest first");
        newer <= self.published && !self.snapshots.iter().any(|at| *at >= older && *at < newer)
    }

    /// True if there is a snapshot. Snapshots may keep versions that newer versions hide.
    pub(in crate::lsm) fn has_snapshots(&self) -> bool {
        !self.snapshots.is_empty()
    }

    /// Returns the oldest Seq at which any later read can happen.
    pub(crate) fn oldest(&self) -> Seq {
        self.snapshots.first().map_or(self.published, |oldest| self.published.min(*oldest))
    }

    /// True if every later read happens at `seq` or above.
    pub(crate) fn all_see(&self, seq: Seq) -> bool {
        seq <= self.published && self.snapshots.first().is_none_or(|oldest| *oldest >= seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Horizon {
        /// Creates a horizon with these snapshots.
        pub(crate) fn new(snapshots: &[u64], published: u64) -> Self {
            Self {
                snapshots: snapshots.iter().copied().map(Seq).collect(),
                published: Seq(published),
            }
        }
    }

    #[track_caller]
    fn check_hides(snapshots: &[u64], newer: u64, older: u64, expected: bool) {
        assert_eq!(Horizon::new(snapshots, 100).hides(Seq(newer), Seq(older)), expected);
    }

    #[test]
    fn trap_15_a_version_that_a_snapshot_sees_is_kept() {
        check_hides(&[], 20, 10, true);
        check_hides(&[10], 20, 10, false);
        check_hides(&[19], 20, 10, false);
        check_hides(&[20], 20, 10, true);
        check_hides(&[9], 20, 10, true);
        check_hides(&[5, 15, 50], 20, 10, false);
        check_hides(&[], 101, 10, false);
    }

    #[test]
    fn a_snapshot_sees_commits_up_to_its_own_seq() {
        assert!(Horizon::new(&[], 10).all_see(Seq(10)));
        assert!(!Horizon::new(&[], 10).all_see(Seq(11)));
        assert!(Horizon::new(&[10], 20).all_see(Seq(10)));
        assert!(!Horizon::new(&[10], 20).all_see(Seq(11)));
    }
}
