//! Simulates the device's wall clock during one boot. A clock is always right, or it is in 1970 or
//! wrong by years until it is set, or it is right except for one jump away and back.
//!
//! Invariant: monotonic time starts at zero with every boot, and advances independently of the wall
//! clock.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{ManualClock, TICKS_PER_SECOND, TICKS_TO_UNIX_EPOCH};
use crate::rng::Rng;

const SECOND: u64 = TICKS_PER_SECOND;
const DAY: u64 = 86_400 * SECOND;
const YEAR: u64 = 365 * DAY;
/// The maximum error of a clock that counts as right, in ticks.
const ERROR_MAX: u64 = 2 * SECOND;
/// The time within which a wrong clock is set, if it is set at all.
const SET_WITHIN: u64 = 8 * SECOND;

/// The clock of one boot.
#[derive(Debug)]
pub(super) struct Boot {
    pub(super) clock: Arc<ManualClock>,
    /// Time since power-on, in ticks.
    up: u64,
    /// The future changes of the wall clock, latest first: the time since power-on at which the
    /// clock is set, and its error from then on.
    turns: Vec<(u64, i64)>,
    /// Whether the clock starts with an error of more than a day.
    pub(super) is_wrong: bool,
}

/// Which errors the clocks of a boot may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clocks {
    /// Clocks in 1970 that are never set, like those of new devices without a battery.
    First,
    /// Clocks that are right or behind.
    Behind,
    /// Clocks that are right, behind or ahead.
    Any,
    /// Clocks that are right.
    Right,
}

impl Boot {
    /// Chooses a random clock for a boot that begins at `truth`, the true time in ticks since 1601.
    pub(super) fn draw(rng: &mut Rng, truth: u64, clocks: Clocks) -> Self {
        let right = rng.below(2 * ERROR_MAX + 1) as i64 - ERROR_MAX as i64;
        let kind = match clocks {
            Clocks::First => return Self::new(truth, in_1970(truth), Vec::new()),
            Clocks::Right => 0,
            Clocks::Behind | Clocks::Any => rng.below(100),
        };
        let is_ahead = clocks == Clocks::Any && rng.chance(1, 2);
        let mut years = |least: u64| {
            let error = (least * YEAR + rng.below((40 - least) * YEAR)) as i64;
            if is_ahead { error } else { -error }
        };
        match kind {
            0..60 => Self::new(truth, right, Vec::new()),
            60..90 => {
                let set = (rng.below(SET_WITHIN), right);
                let turns = if rng.chance(4, 5) { vec![set] } else { Vec::new() };
                Self::new(truth, in_1970(truth), turns)
            }
            90..98 => {
                let error = years(1);
                Self::new(truth, error, vec![(rng.below(SET_WITHIN), right)])
            }
            _ => {
                let error = years(10);
                let away = rng.below(4 * SECOND);
                let back = away + SECOND + rng.below(2 * SECOND);
                Self::new(truth, right, vec![(back, right), (away, error)])
            }
        }
    }

    fn new(truth: u64, error: i64, turns: Vec<(u64, i64)>) -> Self {
        let clock = Arc::new(ManualClock::new(truth.saturating_add_signed(error)));
        Self { clock, up: 0, turns, is_wrong: error.unsigned_abs() > DAY }
    }

    /// Advances the clock by `time`; afterwards the true time is `truth`. Returns the number of
    /// clock jumps of more than a day.
    pub(super) fn pass(&mut self, time: u64, truth: u64) -> u64 {
        self.up += time;
        self.clock.advance(Duration::from_nanos(100 * time));
        let mut jumps = 0;
        while let Some((_, error)) = self.turns.pop_if(|(at, _)| *at <= self.up) {
            let shown = truth.saturating_add_signed(error);
            jumps += u64::from(shown.abs_diff(self.shown()) > DAY);
            self.clock.jump(shown);
        }
        jumps
    }

    fn shown(&self) -> u64 {
        use crate::clock::Clock;
        self.clock.now()
    }
}

/// Returns the error, at the true time `truth`, of a clock that starts at 1970-01-01.
fn in_1970(truth: u64) -> i64 {
    -(truth.saturating_sub(TICKS_TO_UNIX_EPOCH) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sim::engine::START;

    #[test]
    fn clocks_are_wrong_with_the_given_probability_and_set_in_time() {
        let (mut rng, mut wrong, mut jumps, mut unset) = (Rng::from_seed(1), 0, 0, 0);
        for _ in 0..10_000 {
            let mut boot = Boot::draw(&mut rng, START, Clocks::Any);
            wrong += u64::from(boot.is_wrong);
            let mut truth = START;
            for _ in 0..10 {
                truth += SECOND;
                jumps += boot.pass(SECOND, truth);
            }
            unset += u64::from(boot.shown().abs_diff(truth) > ERROR_MAX);
        }
        assert!((3_600..4_000).contains(&wrong), "{wrong}");
        assert!((500..700).contains(&unset), "{unset}");
        // A wrong clock jumps once, when it is set. A right clock that jumps away and back makes
        // two jumps.
        assert!((3_300..3_900).contains(&jumps), "{jumps}");
    }

    #[test]
    fn a_clock_that_may_be_behind_only_is_never_ahead() {
        let mut rng = Rng::from_seed(2);
        for _ in 0..10_000 {
            let mut boot = Boot::draw(&mut rng, START, Clocks::Behind);
            let mut truth = START;
            for _ in 0..10 {
                assert!(boot.shown() <= truth + ERROR_MAX);
                truth += SECOND;
                boot.pass(SECOND, truth);
            }
        }
        let first = Boot::draw(&mut rng, START, Clocks::First);
        assert_eq!(first.shown(), TICKS_TO_UNIX_EPOCH);
    }
}
