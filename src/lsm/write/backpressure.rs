//! Computes how long to delay writers so that background work keeps up. Pure functions of the
//! backlog.
//!
//! Invariants
//! * Without a backlog there is no delay. A range's files delay only writes to that range.
//! * When memory is nearly exhausted, all writers are delayed, but not longer than the pace of
//!   flushes requires, because a longer delay would not free memory sooner.
//! * Delays grow continuously with the backlog, from zero to [`DELAY_MAX`].
//!
//! Not here: waiting (`delay`), counting (`backlog`).

use std::time::Duration;

/// The maximum delay of a write, whether its ranges or the use of memory cause the delay. It slows
/// a single writer of 32 KiB writes to about 2 MB/s, the pace of a slow disk. Even four such delays
/// in a row take less than 50 ms.
pub(in crate::lsm) const DELAY_MAX: Duration = Duration::from_millis(12);
/// With up to this many overlapping files, writes are not delayed, because compaction is idle or
/// about to start.
pub(in crate::lsm) const SOURCES_FREE: usize = 8;
/// The number of overlapping files that a range with few readers may have in addition to
/// [`SOURCES_FREE`]. Merges of such a range start only when the number of files that overlap at
/// some key reaches its limit, and flushes add more files during a merge.
pub(in crate::lsm) const SOURCES_UNREAD: usize = 4;
/// With this many overlapping files, writes to the range are delayed by [`DELAY_MAX`]: reads cost
/// three times the normal amount.
pub(in crate::lsm) const SOURCES_FULL: usize = 24;
/// Young files of a range with up to this many times a memtable's bytes cause no delay: such a
/// backlog is normal.
const DEBT_FREE_MEMTABLES: u64 = 12;
/// Young files with this many times a memtable's bytes delay writes by [`DELAY_MAX`]: compaction is
/// then minutes behind.
const DEBT_FULL_MEMTABLES: u64 = 44;
/// Memory use, in 1/1000 of the memory for memtables, at which delays begin and at which they stop
/// growing. When they begin, one memtable is being filled and one is being flushed.
const MEMORY_FREE: u64 = 700;
const MEMORY_FULL: u64 = 1_000;
/// The number of concurrent writers that a delay assumes. When memory is exhausted, this many
/// writers together are slowed to the pace of a flush; a single writer is slowed to that pace
/// earlier. Likewise, at half of the full debt this many writers together are slowed to the pace of
/// merges.
const WRITERS: u64 = 16;
/// The share that stands for 100 %. Shares are in millionths.
const WHOLE: u64 = 1_000_000;

/// Returns the largest size of a file that a flush writes: a nearly full memtable accepts one more
/// commit. Files that merges write from several inputs are usually larger.
pub(in crate::lsm) fn flush_bytes_max(memtable_bytes: u64) -> u64 {
    memtable_bytes.saturating_mul(2)
}

/// The merge backlog of a range, in millionths of the backlog that causes a delay of [`DELAY_MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::lsm) struct RangeDebt(u64);

impl RangeDebt {
    /// Computes the debt of a range with `sources` overlapping files at a key and `debt` bytes of
    /// young files to merge.
    pub(in crate::lsm) fn of(sources: usize, debt: u64, memtable_bytes: u64) -> Self {
        let sources = share(sources as u64, SOURCES_FREE as u64, SOURCES_FULL as u64);
        let [free, full] = [DEBT_FREE_MEMTABLES, DEBT_FULL_MEMTABLES].map(|n| n * memtable_bytes);
        Self(sources.max(share(debt, free, full)))
    }
}

/// Returns the delay of a write to a range with this debt. `merge` is the expected time to merge as
/// many bytes as the write has, if known. A small debt slows writers at most to the pace of merges;
/// this bound rises with the debt and vanishes at the full debt.
pub(in crate::lsm) fn range_delay(
    RangeDebt(share): RangeDebt,
    merge: Option<Duration>,
) -> Duration {
    let pace = merge.map_or(DELAY_MAX, |merge| {
        let left = u128::from((WHOLE - share).max(1));
        // A coarse clock may measure zero, so assume at least 1 ns.
        let nanos = merge.as_nanos().max(1).saturating_mul(u128::from(WRITERS * share)) / left;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    });
    delay(share).min(pace)
}

/// Returns the delay of any write while memtables use `used` of `most` bytes. `flush` is the
/// expected time to flush as many bytes as the write has, if known.
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

/// Returns the position of `value` between `free` and `full`, in millionths.
fn share(value: u64, free: u64, full: u64) -> u64 {
    let way = u128::from(full.saturating_sub(free).max(1));
    let gone = u128::from(value.clamp(free, full.max(free)) - free);
    u64::try_from(gone * 1_000_000 / way).unwrap_or(1_000_000)
}

/// Returns the delay for a share of the full backlog. It grows with the square of the share: a
/// small backlog is mostly a burst that background work will absorb, while a large one must slow
/// the writer to the pace of the disk.
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
    fn writers_of_a_range_within_limits_are_not_slowed() {
        for sources in 0..=SOURCES_FREE {
            assert_eq!(range(sources, 8 * 64 * MIB, 64 * MIB), Duration::ZERO);
        }
        assert!(range(SOURCES_FREE + 1, 0, 64 * MIB) > Duration::ZERO);
    }

    #[test]
    fn delays_grow_gradually() {
        // From one value to the next, the delay grows by at most an eighth of the full delay.
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
    fn the_worse_of_files_and_bytes_determines_the_delay() {
        let (files, bytes) = (range(12, 0, MIB), range(0, 20 * MIB, MIB));
        assert_eq!(range(12, 20 * MIB, MIB), files.max(bytes));
    }

    #[test]
    fn a_writer_is_slowed_to_the_pace_of_flushes_and_no_further() {
        let flush = Duration::from_micros(60);
        let delay = |used| memory_delay(used, 1_000, Some(flush));
        assert_eq!(delay(700), Duration::ZERO);
        assert!((701..1_000).all(|used| delay(used) <= memory_delay(used, 1_000, None)));
        // A single writer is slowed to the pace of flushes while most of the last 30 % of memory is
        // still free for other writers.
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
        assert_eq!(delay(24, merge), DELAY_MAX, "the delay is independent of the speed of merges");
        assert_eq!(delay(9, Some(Duration::MAX)), delay(9, None));
        assert_eq!(delay(8, merge), Duration::ZERO);
    }

    #[test]
    fn memory_slows_writers_early_and_extremes_are_safe() {
        assert_eq!(
            memory_delay(2, 3, None),
            Duration::ZERO,
            "one memtable fills while one is flushed"
        );
        assert!(memory_delay(8, 10, None) > Duration::ZERO);
        assert_eq!(memory_delay(u64::MAX, 0, None), DELAY_MAX);
        assert_eq!(memory_delay(u64::MAX, 0, Some(Duration::MAX)), DELAY_MAX);
        assert_eq!(range(usize::MAX, u64::MAX, 1), DELAY_MAX);
        assert_eq!(range(0, 0, 0), Duration::ZERO);
    }
}
