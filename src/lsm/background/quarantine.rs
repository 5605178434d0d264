//! Quarantine of damaged table files while the database runs.
//!
//! The first reader or job that finds damage in a file quarantines it (`FileEntry::damage`). The
//! file stays in place: its readable parts are still read, and its unreadable parts return
//! `Corruption`, never older data. Jobs avoid the file and compact everything else. A job may try
//! to read the file again after 1 minute; the delay doubles with each failure, up to 1 hour.
//!
//! Invariant: a job does not replace data that it could not read. Module `file_replacement`
//! replaces the file by a sound copy.

use std::time::Duration;

use crate::error::Error;
use crate::format::names::{FileNumber, RangeId};
use crate::sort::SortedMap;

const RETRY_FIRST: Duration = Duration::from_secs(60);
const RETRY_LAST: Duration = Duration::from_secs(3_600);

/// The files and ranges that jobs avoid, each with the time of the next attempt.
#[derive(Default)]
pub(in crate::lsm) struct Quarantine {
    files: SortedMap<FileNumber, Backoff>,
    /// Ranges with damage that a job could not attribute to a file.
    ranges: SortedMap<RangeId, (Error, Backoff)>,
}

#[derive(Clone, Copy)]
struct Backoff {
    wait: Duration,
    until: Duration,
}

impl Quarantine {
    /// Records that a job failed with `error` in `range`. `damaged` lists the range's files known
    /// to be damaged.
    pub(in crate::lsm) fn add(
        &mut self,
        range: RangeId,
        damaged: Vec<FileNumber>,
        error: &Error,
        now: Duration,
    ) {
        if damaged.is_empty() {
            let known = self.ranges.get(&range).map(|(_, backoff)| *backoff);
            self.ranges.insert(range, (error.clone(), Backoff::next(known, now)));
        }
        for file in damaged {
            let known = self.files.get(&file).copied();
            // A job stops at the first damaged file that it finds. So a failure says nothing about
            // damaged files whose retry was not due; do not extend their delay.
            if known.is_none_or(|backoff| backoff.until <= now) {
                self.files.insert(file, Backoff::next(known, now));
            }
        }
    }

    /// True if jobs must not touch the range now.
    pub(in crate::lsm) fn holds_range(&self, range: RangeId, now: Duration) -> bool {
        self.ranges.get(&range).is_some_and(|(_, backoff)| now < backoff.until)
    }

    /// True if a job may try the damaged file again. If only readers have found the damage so far,
    /// the first delay begins now.
    pub(in crate::lsm) fn may_retry(&mut self, file: FileNumber, now: Duration) -> bool {
        self.files.get_or_insert_with(file, || Backoff::next(None, now)).until <= now
    }

    /// Forgets a file that was removed.
    pub(in crate::lsm) fn forget(&mut self, file: FileNumber) {
        self.files.remove(&file);
    }

    /// Returns the errors because of which jobs avoid whole ranges.
    pub(in crate::lsm) fn errors(&self) -> impl Iterator<Item = &Error> {
        self.ranges.values().map(|(error, _)| error)
    }
}

impl Backoff {
    fn next(before: Option<Backoff>, now: Duration) -> Backoff {
        let wait = before.map_or(RETRY_FIRST, |before| (2 * before.wait).min(RETRY_LAST));
        debug_assert!((RETRY_FIRST..=RETRY_LAST).contains(&wait), "waits grow up to the last");
        Backoff { wait, until: now + wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn trap_28_a_damaged_file_is_retried_with_growing_pauses() {
        let (mut quarantine, file) = (Quarantine::default(), FileNumber(7));
        let error = Error::new(ErrorKind::Corruption, "damage");
        let mut now = Duration::ZERO;
        assert!(!quarantine.may_retry(file, now), "readers have just found the damage");
        for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
            now += minutes * MINUTE;
            assert!(!quarantine.may_retry(file, now - MINUTE / 2));
            assert!(quarantine.may_retry(file, now), "after {minutes} minutes");
            quarantine.add(RangeId(1), vec![file], &error, now);
            assert!(!quarantine.may_retry(file, now));
        }
        assert!(!quarantine.holds_range(RangeId(1), now), "other ranges are still compacted");
    }

    #[test]
    fn a_range_with_unlocated_damage_waits() {
        let mut quarantine = Quarantine::default();
        let error = Error::new(ErrorKind::Corruption, "damage");
        quarantine.add(RangeId(1), Vec::new(), &error, Duration::ZERO);
        assert!(quarantine.holds_range(RangeId(1), MINUTE / 2));
        assert!(!quarantine.holds_range(RangeId(2), MINUTE / 2));
        assert!(!quarantine.holds_range(RangeId(1), MINUTE));
    }
}
