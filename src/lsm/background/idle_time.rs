//! Measures the time since the last write that matters. The caller passes the time, so the module
//! reads no clock.
//!
//! Invariants
//! * The result never exceeds the time since the first call.
//! * A jump of the wall clock changes the result by at most the time between two calls.
//! * A few small commits, commits that expire rows, and the removal of range tombstones change
//!   nothing.

use std::time::Duration;

use crate::lsm::read::view::View;
use crate::model::Seq;

/// The time counts from the last write that fills another 1/`STEPS` of a memtable, freezes a
/// memtable or deletes a span.
const STEPS: usize = 64;

/// The last write that a call has seen.
#[derive(Debug, Default)]
pub(in crate::lsm) struct IdleTime {
    seen: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    written: Written,
    /// The monotonic time of the write.
    at: Duration,
    /// The monotonic time of the last call.
    called: Duration,
}

/// How much was written so far. Compared field by field in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Written {
    memtable: u64,
    /// The size of the active memtable, in units of 1/`STEPS` of the full size.
    steps: usize,
    /// The last deletion of a span.
    deleted: Seq,
}

impl Written {
    pub(super) fn of(view: &View, memtable_bytes: usize) -> Self {
        let memtable = &view.active().memtable;
        let deletions = view.range_tombstones.iter().filter(|it| it.is_drop());
        Self {
            memtable: memtable.id,
            steps: memtable.payload_bytes() / (memtable_bytes / STEPS).max(1),
            deleted: deletions.map(|deletion| deletion.from).max().unwrap_or_default(),
        }
    }
}

impl IdleTime {
    /// Returns the time since the last write. `published` is the last commit; `wall` and `now` are
    /// the wall clock and the monotonic time.
    pub(super) fn since(
        &mut self,
        written: Written,
        published: Seq,
        (wall, now): (u64, Duration),
    ) -> Duration {
        let seen = self.seen.get_or_insert(Seen { written, at: now, called: now });
        if written > seen.written {
            // A Seq is the wall clock at the commit. A commit before the last call is not the
            // write, which is then not published yet.
            let ticks = wall.saturating_sub(published.0);
            let ago = Duration::from_nanos(ticks.saturating_mul(100));
            let is_later = ago <= now.saturating_sub(seen.called);
            seen.written = written;
            seen.at = if is_later { now.saturating_sub(ago) } else { now };
        }
        seen.called = seen.called.max(now);
        now.saturating_sub(seen.at)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::TICKS_PER_SECOND;

    fn written(memtable: u64, steps: usize, deleted: u64) -> Written {
        Written { memtable, steps, deleted: Seq(deleted) }
    }

    fn seconds(wall: u64, now: u64) -> (u64, Duration) {
        (wall * TICKS_PER_SECOND, Duration::from_secs(now))
    }

    #[test]
    fn idle_time_begins_with_the_last_write_and_ignores_clock_jumps() {
        let mut time = IdleTime::default();
        let mut since = |commit: u64, wall: u64, now: u64| {
            let published = Seq(commit * TICKS_PER_SECOND);
            time.since(written(1, commit as usize, 0), published, seconds(wall, now)).as_secs()
        };
        assert_eq!(since(1_000, 5_000, 100), 0, "the time before the first call does not count");
        assert_eq!(since(1_000, 5_007, 107), 7);
        assert_eq!(since(5_008, 5_012, 112), 4, "the commit was made between two calls");
        assert_eq!(since(5_008, 5_020, 120), 12);
        assert_eq!(since(5_021, 9_000, 122), 0, "the wall clock has jumped forward");
        assert_eq!(since(9_001, 3_000, 130), 0, "the wall clock has jumped back");
        assert_eq!(since(9_001, 3_010, 140), 10);
    }

    #[test]
    fn small_commits_and_removed_range_tombstones_do_not_end_idle_time() {
        let mut time = IdleTime::default();
        let mut since = |written: Written, now: u64| {
            let published = Seq((5_000 + now) * TICKS_PER_SECOND);
            time.since(written, published, seconds(5_000 + now, now)).as_secs()
        };
        assert_eq!(since(written(1, 3, 50), 100), 0);
        assert_eq!(since(written(1, 3, 50), 120), 20, "the last commit is the present one");
        assert_eq!(since(written(1, 3, 0), 121), 21, "a range tombstone was removed");
        assert_eq!(since(written(1, 4, 0), 122), 0, "much was written");
        assert_eq!(since(written(1, 4, 60), 123), 0, "a span was deleted");
        assert_eq!(since(written(2, 0, 0), 124), 0, "a memtable was frozen");
        assert_eq!(since(written(2, 0, 0), 134), 10);
    }
}
