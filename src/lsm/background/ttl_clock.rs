//! Computes *lived time*, which measures the age of rows even if wall clocks are wrong. An *era* is
//! a period with a constant offset from the wall clock to lived time. See [`LivedClock`].
//!
//! Invariants
//! * Lived time never decreases, unless the options trust jumps of the wall clock.
//! * Lived time exceeds the time that has passed only by accepted jumps of at most one day each.
//! * If the wall clock matches several eras, the era that moves lived time least is used. An era is
//!   no longer used after its wall clock went backwards.
//! * The lived time stored in an era never exceeds lived time when the era was last used.
//! * Unreliable Seqs are recorded with the log that contains them, or by the next background step.

use std::time::Duration;

use crate::clock::{TICKS_PER_SECOND, ticks_in};
use crate::format::edit::{ERAS_MAX, Era, LivedTime, MARKS_MAX, Mark};
use crate::model::Seq;
use crate::mutants::mutant;

/// The longest jump of the wall clock that lived time follows.
pub(super) const JUMP_MAX: u64 = 86_400 * TICKS_PER_SECOND;
/// A mark is dropped if the marks before and after it are so close to each other that their
/// distance is below their age divided by this.
const MARKS_PER_AGE: u64 = 16;

/// Differences between clocks up to this size are ignored.
const NOTHING: u64 = TICKS_PER_SECOND;

/// A clock went backwards if it is at least this far behind an earlier value.
const BACK: u64 = 60 * TICKS_PER_SECOND;

/// Derives lived time from the wall clock and the monotonic clock.
///
/// Lived time starts at the wall clock's value and advances with it. When the wall clock jumps by
/// more than one day, a new *era* begins, in which lived time continues from its current value. If
/// the clock returns to an earlier era, even in a later session, lived time follows it again. This
/// holds only from the second return on, because a wrong clock may match an era by chance.
///
/// Commits derive their Seqs from the wall clock. If the clock was wrong, Seqs may be decades in
/// the future. A *mark* therefore records a lived time and the last Seq assigned by then.
///
/// A *witness* is an era from before the opening. Only if the clock matches a witness is it known
/// how much time passed while the database was closed. Until then lived time lags and advances by
/// the monotonic clock alone. While the wall clock is behind, Seqs are behind, too. When the clock
/// is right again, the commits of that period look older than they are. A *doubt* protects such
/// commits from expiry as long as they may still be young.
///
/// A witness may also underestimate the time passed: its clock may restart at each power-on, or the
/// era may have begun while lived time lagged. So when an era moves lived time forward, all commits
/// since the clock was last in that era get a doubt. It is unknown how much of the added time
/// passed before these commits.
#[derive(Debug)]
pub(super) struct LivedClock {
    time: LivedTime,
    monotonic: Duration,
    /// The eras known when this session began.
    witnesses: Vec<Era>,
    /// The sum of the jumps that moved lived time forward since opening, minus the time that passed
    /// after them, but at least zero.
    advanced: u64,
    /// How long this session has been open.
    pub(super) up: Duration,
    /// The last commit before this session.
    begun: Seq,
    /// True once the clock matched a witness, so that lived time equals the time passed.
    is_sure: bool,
    /// The last commit at the time when the clock was last known to be right.
    right: Seq,
}

/// The readings of the clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) wall: u64,
    pub(super) monotonic: Duration,
    /// The last published commit.
    pub(super) last: Seq,
}

impl LivedClock {
    /// Creates the clock at opening. `known` is the persisted state.
    pub(super) fn new(shown: Shown, known: LivedTime, trusts_jumps: bool) -> Self {
        let is_new = known.now == 0;
        let now = if is_new { shown.wall } else { known.now };
        let plain = || vec![Era { wall: now, lived: now, is_known: true }];
        let witnesses = if known.eras.is_empty() { plain() } else { known.eras.clone() };
        let (begun, monotonic) = (shown.last, shown.monotonic);
        let time = LivedTime { now, ..known.clone() };
        let (is_sure, right) = (is_new, if is_new { shown.last } else { written(&known, shown) });
        let (advanced, up) = (0, Duration::ZERO);
        let mut clock = Self { time, monotonic, witnesses, advanced, up, begun, is_sure, right };
        clock.read(shown, trusts_jumps);
        clock
    }

    /// Updates lived time from the readings, and returns it.
    pub(super) fn read(&mut self, shown: Shown, trusts_jumps: bool) -> u64 {
        let Shown { wall, monotonic, last } = shown;
        let since_read = monotonic.saturating_sub(self.monotonic);
        let passed = ticks_in(since_read);
        let expected = self.time.now.saturating_add(passed);
        self.monotonic = monotonic;
        self.up += since_read;
        self.advanced = self.advanced.saturating_sub(passed);
        if trusts_jumps {
            self.time = wall.into();
            (self.is_sure, self.right) = (true, last);
            return wall;
        }
        let heard = mutant!("unwitnessed-time") || self.hears_witness(wall, expected);
        self.is_sure |= heard;
        let (by_era, met) = self.by_era(wall, expected);
        let lived = if self.is_sure { by_era.max(expected) } else { expected };
        debug_assert!(lived >= expected, "time that was lived does not go back");
        self.time.now = lived;
        if let Some(met) = met
            && lived > expected + NOTHING
        {
            self.doubt_since(met, last);
        }
        // If the wall clock is behind lived time, so are the Seqs of commits.
        self.record_certainty(
            self.is_sure && wall.max(last.0).saturating_add(NOTHING) >= lived,
            last,
        );
        lived
    }

    /// Records whether Seqs assigned now are reliable.
    fn record_certainty(&mut self, is_right: bool, last: Seq) {
        match self.time.unsure {
            None if is_right => self.right = last,
            None => self.time.unsure = Some(self.right),
            Some(since) if is_right => {
                (self.time.unsure, self.right) = (None, last);
                if last > since {
                    self.doubt(since);
                }
            }
            Some(_) => {}
        }
    }

    /// True if the clock matches an era from before this opening. The clock then shows how much
    /// time has passed since that era was last used.
    fn hears_witness(&self, wall: u64, expected: u64) -> bool {
        let fits = |era: &Era| {
            let lived = lived_at(era, wall);
            lived + NOTHING >= expected && lived.abs_diff(expected) <= JUMP_MAX
        };
        // A clock that restarts at each power-on is behind the Seqs that were derived from it
        // earlier. It may match an era, but that proves nothing. Seqs far in the future came from
        // another clock and are ignored.
        let begun = self.begun.0;
        let goes_on = wall + NOTHING >= begun || begun > expected.saturating_add(JUMP_MAX);
        goes_on && self.witnesses.iter().any(|era| era.is_known && fits(era))
    }

    /// Returns lived time by the era that matches `wall`, and the lived time at which an earlier
    /// session last used this era. Returns `expected` if no era matches, in which case a new era
    /// begins, or if the matching era is not trusted.
    fn by_era(&mut self, wall: u64, expected: u64) -> (u64, Option<u64>) {
        let is_near = wall.abs_diff(expected) <= JUMP_MAX;
        if self.time.eras.is_empty() && is_near && self.may_advance(wall.saturating_sub(expected)) {
            return (wall, None);
        }
        if self.time.eras.is_empty() {
            self.time.eras.push(self.witnesses[0]);
        }
        let Some((at, lived)) = self.nearest(wall, expected) else {
            self.time.eras.truncate(ERAS_MAX - 1);
            self.time.eras.insert(0, Era { wall, lived: expected, is_known: false });
            return (expected, None);
        };
        self.time.eras[..=at].rotate_right(1);
        let mut era = self.time.eras[0];
        let witness = self.witnesses.iter().find(|witness| is_same(witness, &era)).copied();
        let is_back = wall + BACK < era.wall;
        let jumps = self.is_sure && lived > expected + NOTHING;
        let is_believed = era.is_known || mutant!("unwitnessed-time");
        let is_doubtful = jumps && !(is_believed && self.may_advance(lived - expected));
        let lived = if is_back || is_doubtful {
            era = Era { wall, lived: expected, is_known: era.is_known && !is_back };
            (expected, None)
        } else {
            let met = witness.map_or(era.lived, |witness| witness.lived);
            era.is_known |= witness.is_some() && lived >= expected;
            if wall > era.wall && self.is_sure && lived >= expected {
                (era.wall, era.lived) = (wall, lived);
            }
            (lived, Some(met))
        };
        self.time.eras[0] = era;
        lived
    }

    /// Returns the index of the matching era that moves lived time least, and the lived time by
    /// that era.
    fn nearest(&self, wall: u64, expected: u64) -> Option<(usize, u64)> {
        let candidates = self.time.eras.iter().map(|era| lived_at(era, wall)).enumerate();
        let near = candidates.filter(|(_, lived)| lived.abs_diff(expected) <= JUMP_MAX);
        near.min_by_key(|(at, lived)| (*lived, *at))
    }

    /// True if lived time may jump forward by `by` ticks. The sum of all forward jumps since
    /// opening, minus the time that passed after them, may be at most one day.
    fn may_advance(&mut self, by: u64) -> bool {
        if !self.is_sure || by <= NOTHING {
            return true;
        }
        let advanced = self.advanced.saturating_add(by);
        let may = advanced <= JUMP_MAX;
        if may {
            self.advanced = advanced;
        }
        may
    }

    /// Adds a doubt for the commits since lived time `met`. At `met`, the clock was last in the era
    /// that has now moved lived time forward. The commits since then may have been made just now.
    fn doubt_since(&mut self, met: u64, last: Seq) {
        let since = Seq(self.given_by(met.saturating_sub(1)).saturating_sub(1));
        if last > since {
            self.doubt(since);
        }
    }

    /// Adds a doubt for the commits after `since`: they may have been made just now.
    fn doubt(&mut self, since: Seq) {
        if mutant!("forget-doubts") {
            return;
        }
        let (now, doubts) = (self.time.now, &mut self.time.doubts);
        // The new doubt includes the commits of these doubts and lasts longer, so it replaces them.
        while doubts.last().is_some_and(|last| last.seq >= since) {
            doubts.pop();
        }
        if doubts.last().is_none_or(|last| last.lived < now) {
            doubts.push(Mark { lived: now, seq: since });
        }
        debug_assert!(doubts.is_sorted_by_key(|doubt| doubt.seq), "doubts are in order of Seqs");
        for per_age in [MARKS_PER_AGE, MARKS_PER_AGE / 4, 1] {
            join(doubts, now, per_age);
            if doubts.len() <= MARKS_MAX {
                return;
            }
        }
    }

    /// Returns the state to persist.
    pub(super) fn time(&self) -> &LivedTime {
        &self.time
    }

    /// Adds a mark, which records that every commit up to `published` has been made by now. Adds no
    /// mark if the Seq itself shows this, or if a mark was added in the last `patience` ticks.
    pub(super) fn mark(&mut self, published: Seq, patience: u64) {
        let (now, marks) = (self.time.now, &mut self.time.marks);
        let is_off = published.0 > now.saturating_add(patience) || self.time.unsure.is_some();
        let is_news = marks.last().is_none_or(|last| {
            published > last.seq && now > last.lived && now - last.lived >= patience
        });
        if !is_off || !is_news || published == Seq::ZERO {
            return;
        }
        marks.push(Mark { lived: now, seq: published });
        debug_assert!(marks.is_sorted_by_key(|mark| mark.lived), "marks are in order of time");
        for per_age in [MARKS_PER_AGE, MARKS_PER_AGE / 4, 1] {
            thin(marks, now, per_age);
            if marks.len() <= MARKS_MAX {
                return;
            }
        }
    }

    /// Returns a bound in Seqs. All commits below the bound had certainly been made by lived time
    /// `lived`.
    pub(super) fn given_by(&self, lived: u64) -> u64 {
        let at = self.time.marks.partition_point(|mark| mark.lived <= lived);
        let marked = at.checked_sub(1).map_or(0, |last| self.time.marks[last].seq.0 + 1);
        let doubt = self.time.doubts.iter().find(|doubt| doubt.lived > lived);
        let doubted = doubt.map_or(u64::MAX, |doubt| doubt.seq.0 + 1);
        let unsure = self.time.unsure.map_or(u64::MAX, |since| since.0 + 1);
        lived.min(unsure).max(marked).min(doubted)
    }

    /// Discards marks and doubts that are needed only for times before `lived`.
    pub(super) fn forget_before(&mut self, lived: u64) {
        let LivedTime { marks, doubts, .. } = &mut self.time;
        let passed = marks.partition_point(|mark| mark.lived <= lived);
        marks.drain(..passed.saturating_sub(1));
        doubts.drain(..doubts.partition_point(|doubt| doubt.lived <= lived));
    }
}

/// Converts `wall`, a time of the wall clock, to lived time according to `era`.
fn lived_at(era: &Era, wall: u64) -> u64 {
    era.lived.saturating_add(wall).saturating_sub(era.wall)
}

/// True if both eras have the same offset between wall clock and lived time.
fn is_same(one: &Era, other: &Era) -> bool {
    one.lived.wrapping_sub(one.wall) == other.lived.wrapping_sub(other.wall)
}

/// Returns the last commit that certainly existed when `known` was persisted. Later commits may
/// have been made later than their Seqs suggest.
fn written(known: &LivedTime, shown: Shown) -> Seq {
    let marked = known.marks.last().map_or(Seq::ZERO, |mark| mark.seq);
    shown.last.min(Seq(known.now).max(marked))
}

/// Removes each mark whose neighbours are close to each other, compared to their age at `now`.
/// Keeps the first and the last mark.
fn thin(marks: &mut Vec<Mark>, now: u64, per_age: u64) {
    let mut kept = 0;
    for at in 0..marks.len() {
        let is_close =
            |after: &Mark| after.lived - marks[kept - 1].lived <= (now - after.lived) / per_age;
        if kept == 0 || !marks.get(at + 1).is_some_and(is_close) {
            marks[kept] = marks[at];
            kept += 1;
        }
    }
    marks.truncate(kept);
}

/// Joins doubts that are close to each other; the earlier doubt then lasts as long as the later
/// one.
fn join(doubts: &mut Vec<Mark>, now: u64, per_age: u64) {
    let mut kept = 0;
    for at in 0..doubts.len() {
        let Mark { lived, .. } = doubts[at];
        if kept >= 2 && lived - doubts[kept - 2].lived <= (now - lived) / per_age {
            doubts[kept - 1].lived = lived;
        } else {
            doubts[kept] = doubts[at];
            kept += 1;
        }
    }
    doubts.truncate(kept);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const DAY: u64 = JUMP_MAX;
    const YEAR: u64 = 365 * DAY;
    const HOUR: Duration = Duration::from_secs(3600);

    fn shown(wall: u64, monotonic: Duration, last: u64) -> Shown {
        Shown { wall, monotonic, last: Seq(last) }
    }

    fn clock(wall: u64, known: u64) -> LivedClock {
        LivedClock::new(shown(wall, Duration::ZERO, known), LivedTime::from(known), false)
    }

    impl LivedClock {
        /// Calls `read` with a last commit that was made at the wall clock's time.
        fn look(&mut self, wall: u64, monotonic: Duration, trusts: bool) -> u64 {
            let last = self.right.0.max(wall);
            self.read(shown(wall, monotonic, last), trusts)
        }
    }

    #[test]
    fn a_clock_jump_of_more_than_a_day_is_not_trusted() {
        let mut clock = clock(100 * DAY, 100 * DAY);
        assert_eq!(clock.look(100 * DAY + 7, Duration::ZERO, false), 100 * DAY + 7);
        assert!(!clock.time().was_wrong());
        assert_eq!(clock.look(300 * DAY, HOUR, false), 100 * DAY + 7 + DAY / 24);
        // Once the clock is right again, lived time follows it.
        assert_eq!(clock.look(101 * DAY, 2 * HOUR, false), 101 * DAY);
        assert_eq!(clock.look(7, 2 * HOUR, false), 101 * DAY);
        assert_eq!(clock.look(7, 2 * HOUR, true), 7);
        assert!(!clock.time().was_wrong());
    }

    #[test]
    fn an_open_trusts_the_clock_only_near_the_stored_time() {
        let read = |wall, known, trusts| {
            let shown = shown(wall, Duration::ZERO, known);
            LivedClock::new(shown, known.into(), trusts).time().now
        };
        assert_eq!(read(100 * DAY, 0, false), 100 * DAY);
        assert_eq!(read(100 * DAY, 99 * DAY, false), 100 * DAY);
        assert_eq!(read(100 * DAY, 98 * DAY, false), 98 * DAY);
        assert_eq!(read(100 * DAY, 98 * DAY, true), 100 * DAY);
        assert_eq!(read(DAY, 100 * DAY, false), 100 * DAY);
        // The clock is behind lived time, but by less than a day, so lived time does not decrease.
        assert_eq!(read(100 * DAY, 100 * DAY + 9, false), 100 * DAY + 9);
    }

    /// In each session the clock starts at the same wrong year and is then set. Hours pass between
    /// sessions.
    #[test]
    fn trap_56_a_clock_set_late_at_each_boot_is_eventually_trusted() {
        let mut known = LivedTime::default();
        let mut last = 0;
        for opening in 0..100 {
            let mut clock = LivedClock::new(shown(DAY, Duration::ZERO, last), known, false);
            let before = clock.time().now;
            // Commits made before the clock is set get the Seqs right after the last one.
            last = (last + 1).max(DAY);
            clock.read(shown(DAY, HOUR / 900, last), false);
            let written = clock.given_by(u64::MAX);
            let right = 400 * YEAR + opening * DAY / 4;
            let lived = clock.read(shown(right, HOUR / 720, last), false);
            assert!(lived >= before);
            if opening > 1 {
                assert!(lived.abs_diff(DAY + opening * DAY / 4) <= DAY / 100, "{opening}: {lived}");
                // Commits made before the clock was set may have been made just now.
                assert!(clock.given_by(lived - 1) <= written && written <= last, "{opening}");
                assert_eq!(clock.time().doubts.last().map(|doubt| doubt.lived), Some(lived));
            }
            assert!(clock.time().eras.len() <= ERAS_MAX);
            last = right;
            clock.read(shown(right, HOUR / 720, last), false);
            known = clock.time().clone();
        }
    }

    #[test]
    fn wrong_clocks_leave_few_eras_and_time_never_decreases() {
        let mut rng = crate::rng::Rng::from_seed(1);
        let mut known = LivedTime::default();
        let (mut physical, mut lived) = (400 * YEAR, 0);
        for _ in 0..5_000 {
            let mut clock = LivedClock::new(shown(physical, Duration::ZERO, 0), known, false);
            for second in 1..=rng.below(4) {
                physical += 10_000_000;
                let jump = if rng.chance(1, 4) { rng.below(40) * YEAR } else { 0 };
                let wall = if rng.chance(1, 2) { physical + jump } else { physical - jump };
                let now = clock.read(shown(wall, Duration::from_secs(second), 0), false);
                assert!(now >= lived);
                assert!(now <= physical, "it is never ahead of time that has passed");
                lived = now;
            }
            known = clock.time().clone();
            assert!(known.eras.len() <= ERAS_MAX && known.doubts.len() <= MARKS_MAX);
            physical += rng.below(DAY / 8);
        }
        let (lost, all) = ((physical - lived) / DAY, (physical - 400 * YEAR) / DAY);
        assert!(lost <= all / 20, "{lost} days of {all} are lost");
    }

    /// The wall clock is right, jumps into an era of an earlier wrong clock, and returns. Lived
    /// time does not jump.
    #[test]
    fn trap_56_a_wrong_clock_that_matches_an_era_by_chance_advances_no_time() {
        let right = 400 * YEAR;
        let mut first =
            LivedClock::new(shown(right, Duration::ZERO, 0), LivedTime::default(), false);
        first.look(right + 40 * YEAR, HOUR, false);
        first.look(right + DAY / 12, 2 * HOUR, false);
        let known = first.time().clone();
        let mut second = LivedClock::new(shown(right + DAY / 8, Duration::ZERO, 0), known, false);
        let before = second.time().now;
        assert_eq!(before, right + DAY / 8);
        // The clock jumps ahead by 40 years, to within a day of what the earlier wrong clock would
        // show.
        for (second_of, wall) in
            [(1, right + 40 * YEAR + DAY / 2), (2, right + 40 * YEAR + DAY / 2)]
        {
            let lived = second.look(wall, Duration::from_secs(second_of), false);
            assert_eq!(lived, before + second_of * TICKS_PER_SECOND);
        }
        let back = right + DAY / 8 + 3 * TICKS_PER_SECOND;
        assert_eq!(second.look(back, Duration::from_secs(3), false), back);
    }

    /// In each session the clock starts at the same wrong year. Seqs that are ahead of every clock
    /// do not prove that an earlier session was in that year.
    #[test]
    fn trap_56_a_clock_that_restarts_at_each_boot_advances_no_time() {
        let (right, ahead) = (400 * YEAR, 440 * YEAR);
        let mut clock = clock(right, right);
        clock.read(shown(right, Duration::ZERO, ahead), false);
        clock.read(shown(DAY, Duration::ZERO, ahead), false);
        let mut known = clock.time().clone();
        for opening in 1..=4 {
            let last = ahead + 2 * opening;
            let mut clock = LivedClock::new(shown(DAY, Duration::ZERO, last), known.clone(), false);
            clock.read(shown(DAY + TICKS_PER_SECOND, HOUR / 3_600, last + 1), false);
            clock.mark(Seq(last + 1), 1);
            // Persist marks and eras as they are now, but lived time as it was at the opening.
            known = LivedTime { now: known.now, ..clock.time().clone() };
        }
        let now = right + DAY / 4;
        let mut clock = LivedClock::new(shown(now, Duration::ZERO, ahead + 9), known, false);
        assert_eq!((clock.time().now, clock.time().unsure), (now, None));
        clock.read(shown(now, Duration::ZERO, ahead + 9), false);
        assert!(clock.given_by(now - 1) <= ahead + 1, "all that came since may be as young");
    }

    /// The last commits were made under a right clock, after lived time was last persisted. In the
    /// next session the clock is wrong.
    #[test]
    fn trap_56_commits_after_the_last_clock_record_may_be_newer_than_it() {
        let (right, ahead) = (400 * YEAR, 440 * YEAR);
        let mut first = clock(right, right);
        first.read(shown(right, Duration::ZERO, ahead), false);
        first.mark(Seq(ahead), 1);
        let known = first.time().clone();
        // After an hour of further commits the power fails.
        let mut second = LivedClock::new(shown(DAY, Duration::ZERO, ahead + 3_600), known, false);
        assert_eq!(second.time().unsure, Some(Seq(ahead)));
        second.read(shown(DAY, Duration::from_secs(1), ahead + 3_600), false);
        second.mark(Seq(ahead + 3_600), 1);
        let now = right + DAY / 24 + 5 * TICKS_PER_SECOND;
        second.read(shown(now, Duration::from_secs(2), ahead + 3_601), false);
        assert_eq!((second.time().now, second.time().unsure), (now, None));
        assert!(
            second.given_by(right + DAY / 24) <= ahead + 1,
            "these commits may be a minute old"
        );
    }

    /// The wall clock is ahead by the same 17 years in each session, so from the second session on
    /// it confirms an era of an earlier session. Lived time was eight hours behind when that era
    /// began.
    #[test]
    fn trap_56_a_late_witness_makes_no_row_seem_older() {
        let (right, minute) = (400 * YEAR, DAY / 1_440);
        let (mut known, mut last, mut rows) = (LivedTime::from(right), right, Vec::new());
        for minutes in [480, 495, 510, 520] {
            let now = right + minutes * minute;
            let wall = now + 17 * YEAR;
            let mut clock = LivedClock::new(shown(wall, Duration::ZERO, last), known, false);
            last = wall.max(last + 1);
            rows.push((last, now));
            clock.read(shown(wall, Duration::ZERO, last), false);
            clock.mark(Seq(last), 1);
            known = clock.time().clone();
        }
        let now = right + 530 * minute;
        let mut clock = LivedClock::new(shown(now, Duration::ZERO, last), known, false);
        let lived = clock.read(shown(now, Duration::ZERO, last), false);
        assert_eq!(lived, now);
        for age in [10, 30, 60, 360].map(|minutes| minutes * minute) {
            let given = clock.given_by(lived - age);
            let early = rows.iter().find(|(seq, at)| *seq < given && now - at < age);
            assert_eq!(early, None, "{age}");
        }
    }

    /// The clock jumps back and forth by less than a day each time. Lived time follows only one
    /// jump.
    #[test]
    fn trap_56_jumps_forth_and_back_do_not_add_up() {
        let right = 400 * YEAR;
        let mut clock = clock(right, right);
        let hours = DAY / 24;
        for (second, wall) in
            [20, 0, 20, 0, 20, 0].into_iter().zip(1..).map(|(h, s)| (s, h * hours))
        {
            let lived = clock.look(right + wall, Duration::from_secs(second), false);
            assert!(lived <= right + DAY, "{second}");
        }
        for (second, behind) in (7..).zip([20, 0, 20, 0]) {
            let lived = clock.look(right - behind * hours, Duration::from_secs(second), false);
            assert!(lived <= right + DAY, "{second}");
        }
        for (second, ahead) in (11..).zip([23, 0, 46, 0, 69, 92]) {
            let lived = clock.look(right + ahead * hours, Duration::from_secs(second), false);
            assert!(lived <= right + DAY + DAY / 1_440, "{second}");
        }
    }

    #[test]
    fn trap_56_marks_record_when_seqs_ahead_of_time_were_assigned() {
        let mut clock = clock(100 * DAY, 100 * DAY);
        let (patience, ahead) = (DAY / 64, 40 * YEAR);
        for step in 0..10_000u64 {
            let seconds = step * 864;
            let monotonic = Duration::from_secs(seconds);
            let now = clock.read(shown(100 * DAY, monotonic, ahead + step), false);
            clock.mark(Seq(ahead + step), patience);
            assert!(clock.time().marks.len() < 200, "{}", clock.time().marks.len());
            for age in [DAY / 50, DAY, 7 * DAY, 60 * DAY] {
                let given = clock.given_by(now - age);
                if given < ahead {
                    continue;
                }
                // Marks are a hundredth of a day apart. All commits below `given` were made by
                // lived time `now - age`. Few commits at or above `given` were made by then.
                let steps = age / (DAY / 100);
                let exact = ahead + step.saturating_sub(steps) + 1;
                assert!(given <= exact, "{age} {step}");
                let slack = steps / MARKS_PER_AGE + 4;
                assert!(step < steps + slack || given + slack >= exact, "{age} {step}");
            }
            clock.forget_before(now.saturating_sub(70 * DAY));
        }
    }

    #[test]
    fn seqs_that_are_not_ahead_of_time_leave_no_mark() {
        let mut clock = clock(100 * DAY, 100 * DAY);
        for hour in 0..100u32 {
            let wall = 100 * DAY + u64::from(hour) * DAY / 24;
            clock.look(wall, hour * HOUR, false);
            clock.mark(Seq(wall), DAY / 64);
        }
        assert!(!clock.time().was_wrong());
    }

    /// The wall clock falls behind while the database is open.
    #[test]
    fn trap_56_seqs_of_a_slow_clock_are_doubted_once_it_is_set() {
        let mut clock = clock(100 * DAY, 100 * DAY);
        clock.look(100 * DAY, Duration::ZERO, false);
        let behind = |clock: &mut LivedClock, hours: u32| {
            clock.read(shown(DAY, hours * HOUR, 100 * DAY + u64::from(hours)), false)
        };
        assert_eq!(behind(&mut clock, 5), 100 * DAY + 5 * DAY / 24);
        assert_eq!(clock.time().unsure, Some(Seq(100 * DAY)));
        behind(&mut clock, 9);
        let right = 100 * DAY + 10 * DAY / 24;
        clock.read(shown(right, 10 * HOUR, 100 * DAY + 9), false);
        assert_eq!(clock.time().unsure, None);
        assert_eq!(clock.given_by(right - 1), 100 * DAY + 1);
        assert_eq!(clock.given_by(right), right);
    }
}
