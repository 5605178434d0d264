//! How much a writer is slowed so that background work keeps up: pure functions of what waits to be done.
//!
//! Invariants
//! * nothing waits, no delay: a range is slowed by its own files only, and everybody by memory only when it is nearly
//!   used up, and then to the pace of flushes, not below it: what waits for memory longer than that waits for nothing;
//! * delays grow steadily, from nothing, with what waits, and end at [`DELAY_MAX`]: no cliff.
//!
//! Why squares: at the beginning a backlog is mostly a burst that background work takes care of; the more of the
//! way is gone, the closer the writer must come to the pace of the disk.
//!
//! Not here: waiting (`delay`), counting (`backlog`).

use std::time::Duration;

/// The longest delay of a write for what it touches. A single writer gets as slow as a disk of 2 MB/s with writes of
/// 32 KiB, and four of these still stay below 50 ms.
pub(in crate::lsm) const DELAY_MAX: Duration = Duration::from_millis(12);
/// Up to so many files over one another compaction is at rest, or about to begin.
pub(in crate::lsm) const SOURCES_FREE: usize = 8;
/// So many more where nobody reads: there merges begin when a key has as many as it may, and flushes go on meanwhile.
pub(in crate::lsm) const SOURCES_UNREAD: usize = 4;
/// From so many on a range is slowed by all of [`DELAY_MAX`]: reads cost three times what they should.
pub(in crate::lsm) const SOURCES_FULL: usize = 24;
/// Up to so many memtables of young bytes in a range are the normal work of tiers.
const DEBT_FREE_MEMTABLES: u64 = 12;
/// From so many on compaction is minutes behind.
const DEBT_FULL_MEMTABLES: u64 = 44;
/// Of the memory for memtables, in 1/1000: one is filling and one being flushed.
const MEMORY_FREE: u64 = 700;
const MEMORY_FULL: u64 = 1_000;
/// So many writers together are as slow as a flush when memory is used up; one alone is so long before. The same of merges,
/// halfway to where a range is slowed by all of [`DELAY_MAX`].
const WRITERS: u64 = 16;
/// All of the way.
const WHOLE: u64 = 1_000_000;

/// No flush writes a longer file: a memtable takes one commit more when it is nearly full. What merges write of several is
/// longer, as a rule.
pub(in crate::lsm) fn flush_bytes_max(memtable_bytes: u64) -> u64 {
    memtable_bytes.saturating_mul(2)
}

/// How far a range is behind with merges, in millionths of the way to where that is slowed by all of [`DELAY_MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::lsm) struct RangeDebt(u64);

impl RangeDebt {
    /// Of a range in which `sources` files lie over a key, and `debt` bytes of young files wait.
    pub(in crate::lsm) fn of(sources: usize, debt: u64, memtable_bytes: u64) -> Self {
        let sources = share(sources as u64, SOURCES_FREE as u64, SOURCES_FULL as u64);
        let [free, full] = [DEBT_FREE_MEMTABLES, DEBT_FULL_MEMTABLES].map(|n| n * memtable_bytes);
        Self(sources.max(share(debt, free, full)))
    }
}

/// The delay of a write to a range that is so far behind. `merge`: how long it takes to merge as much as is written, if
/// that is known. Who is a little behind keeps that pace; towards the end of the way it counts for nothing any more.
pub(in crate::lsm) fn range_delay(
    RangeDebt(share): RangeDebt,
    merge: Option<Duration>,
) -> Duration {
    let pace = merge.map_or(DELAY_MAX, |merge| {
        let left = u128::from((WHOLE - share).max(1));
        // However coarse the clock is.
        let nanos = merge.as_nanos().max(1).saturating_mul(u128::from(WRITERS * share)) / left;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    });
    delay(share).min(pace)
}

/// The delay of any write while memtables take `used` of at most `most` bytes. `flush`: how long it takes to flush as much
/// as is written, if that is known.
pub(in crate::lsm) fn memory_delay(used: u64, most: u64, flush: Option<Duration>) -> Duration {
    let used = u128::from(used) * 1_000_000 / u128::from(most.max(1));
    let used = u64::try_from(used).unwrap_or(u64::MAX);
    let share = share(used, MEMORY_FREE * 1_000, MEMORY_FULL * 1_000);
    let pace = flush.map_or(DELAY_MAX, |flush| {
        let nanos = flush.as_nanos() * u128::from(WRITERS * share) / 1_000_000;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    });
    delay(share).min(pace)
}

/// How far `value` is on the way from `free` to `full`, in millionths.
fn share(value: u64, free: u64, full: u64) -> u64 {
    let way = u128::from(full.saturating_sub(free).max(1));
    let gone = u128::from(value.clamp(free, full.max(free)) - free);
    u64::try_from(gone * 1_000_000 / way).unwrap_or(1_000_000)
}

fn delay(share: u64) -> Duration {
    debug_assert!(share <= WHOLE, "a share is a part of the whole");
    let nanos = u64::try_from(DELAY_MAX.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(nanos / 1_000 * (share * share / 1_000_000) / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn range(sources: usize, debt: u64, memtable_bytes: u64) -> Duration {
        range_delay(RangeDebt::of(sources, debt, memtable_bytes), None)
    }

    #[test]
    fn a_range_in_order_is_not_slowed() {
        for sources in 0..=SOURCES_FREE {
            assert_eq!(range(sources, 8 * 64 * MIB, 64 * MIB), Duration::ZERO);
        }
        assert!(range(SOURCES_FREE + 1, 0, 64 * MIB) > Duration::ZERO);
    }

    #[test]
    fn delays_grow_without_a_cliff() {
        // The next step is never more than an eighth of the whole.
        let check = |delays: &mut dyn Iterator<Item = Duration>| {
            let delays: Vec<Duration> = delays.collect();
            assert_eq!(delays.first(), Some(&Duration::ZERO));
            assert_eq!(delays.last(), Some(&DELAY_MAX));
            for pair in delays.windows(2) {
                assert!(pair[1] >= pair[0] && pair[1] - pair[0] <= DELAY_MAX / 8, "{pair:?}");
            }
        };
        check(&mut (0..64).map(|sources| range(sources, 0, MIB)));
        check(&mut (0..64).map(|memtables| range(0, memtables * MIB, MIB)));
        check(&mut (0..=200).map(|used| memory_delay(used, 200, None)));
    }

    #[test]
    fn the_worse_of_files_and_bytes_counts() {
        let (files, bytes) = (range(12, 0, MIB), range(0, 20 * MIB, MIB));
        assert_eq!(range(12, 20 * MIB, MIB), files.max(bytes));
    }

    #[test]
    fn a_writer_is_slowed_to_the_pace_of_flushes_and_no_further() {
        let flush = Duration::from_micros(60);
        let delay = |used| memory_delay(used, 1_000, Some(flush));
        assert_eq!(delay(700), Duration::ZERO);
        assert!((701..1_000).all(|used| delay(used) <= memory_delay(used, 1_000, None)));
        // One alone keeps the pace of flushes where most of the memory is still free for others.
        assert!(delay(740) > flush && delay(710) < flush);
        assert_eq!(delay(1_000), flush * 16);
    }

    #[test]
    fn a_writer_is_slowed_to_the_pace_of_merges_until_they_do_not_help() {
        let delay = |sources, merge| range_delay(RangeDebt::of(sources, 0, MIB), merge);
        let merge = Some(Duration::from_micros(2));
        assert!(
            delay(9, merge) > Duration::from_micros(2)
                && delay(9, merge) < Duration::from_micros(3)
        );
        assert_eq!(delay(16, merge), Duration::from_micros(32));
        assert!((0..23).all(|sources| delay(sources, merge) <= delay(sources + 1, merge)));
        assert_eq!(delay(24, merge), DELAY_MAX, "however fast merges were");
        assert_eq!(delay(9, Some(Duration::MAX)), delay(9, None));
        assert_eq!(delay(8, merge), Duration::ZERO);
    }

    #[test]
    fn memory_slows_from_early_on_and_extremes_do_no_harm() {
        assert_eq!(memory_delay(2, 3, None), Duration::ZERO, "one fills and one is flushed");
        assert!(memory_delay(8, 10, None) > Duration::ZERO);
        assert_eq!(memory_delay(u64::MAX, 0, None), DELAY_MAX);
        assert_eq!(memory_delay(u64::MAX, 0, Some(Duration::MAX)), DELAY_MAX);
        assert_eq!(range(usize::MAX, u64::MAX, 1), DELAY_MAX);
        assert_eq!(range(0, 0, 0), Duration::ZERO);
    }
}
