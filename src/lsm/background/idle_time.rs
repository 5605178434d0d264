//! Measures the time since the last commit. The caller passes the time, so the module reads no
//! clock.
//!
//! Invariants
//! * The result never exceeds the time since the first call.
//! * A jump of the wall clock changes the result by at most the time between two calls.

use std::time::Duration;

use crate::model::Seq;

/// The last commit that a call has seen.
#[derive(Debug, Default)]
pub(in crate::lsm) struct IdleTime {
    seen: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    published: Seq,
    /// The monotonic time of the commit.
    at: Duration,
    /// The monotonic time of the last call.
    called: Duration,
}

impl IdleTime {
    /// Returns the time since the commit `published`, the last one. `wall` and `now` are the wall
    /// clock and the monotonic time.
    pub(super) fn since(&mut self, published: Seq, wall: u64, now: Duration) -> Duration {
        let first = Seen { published, at: now, called: now };
        let seen = self.seen.get_or_insert(first);
        if seen.published != published {
            // A Seq is the wall clock at the commit. The commit was made after the last call.
            let ticks = wall.saturating_sub(published.0);
            let ago = Duration::from_nanos(ticks.saturating_mul(100));
            seen.published = published;
            seen.at = now.saturating_sub(ago.min(now.saturating_sub(seen.called)));
        }
        seen.called = seen.called.max(now);
        now.saturating_sub(seen.at)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::TICKS_PER_SECOND;

    #[test]
    fn idle_time_begins_with_the_last_commit_and_ignores_clock_jumps() {
        let mut time = IdleTime::default();
        let mut since = |commit: u64, wall: u64, now: u64| {
            let (commit, wall) = (Seq(commit * TICKS_PER_SECOND), wall * TICKS_PER_SECOND);
            time.since(commit, wall, Duration::from_secs(now)).as_secs()
        };
        assert_eq!(since(1_000, 5_000, 100), 0, "the time before the first call does not count");
        assert_eq!(since(1_000, 5_007, 107), 7);
        assert_eq!(since(5_008, 5_012, 112), 4, "the commit was made between two calls");
        assert_eq!(since(5_008, 5_020, 120), 12);
        assert_eq!(since(5_021, 9_000, 122), 2, "the wall clock has jumped forward");
        assert_eq!(since(9_001, 3_000, 130), 0, "the wall clock has jumped back");
        assert_eq!(since(9_001, 3_010, 140), 10);
    }
}
