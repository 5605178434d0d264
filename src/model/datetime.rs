//! Implements points in time, which are ticks of 100 ns since 1601-01-01 UTC, and their text form.
//!
//! Invariants
//! * a [`DateTime`] is within the years 1601 to 9999;
//! * the text of a DateTime parses back to the same DateTime.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::seq::Seq;
use crate::clock::{self, Clock, SystemClock, TICKS_TO_UNIX_EPOCH};
use crate::error::{Code, Error, Result};

/// A point in time between 1601-01-01T00:00:00Z and 9999-12-31T23:59:59.9999999Z, in steps of 100
/// ns.
///
/// The text form omits trailing zeros of the fraction of a second, and omits the fraction if it is
/// zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DateTime(u64);

/// The reason why a text is not a [`DateTime`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DateTimeProblem {
    /// The text is not of the form `yyyy-MM-ddTHH:mm[:ss[.fff]][Z|±hh:mm]`.
    Malformed,
    /// The text denotes a time outside the range of a [`DateTime`]. The string is that time in the
    /// form `MM/dd/yyyy HH:mm:ss`, in UTC.
    OutOfRange(String),
}

const TICKS_PER_SECOND: i64 = 10_000_000;
const TICKS_PER_DAY: i64 = 86_400 * TICKS_PER_SECOND;
const DAYS_PER_400_YEARS: i64 = 146_097;
const DAYS_PER_100_YEARS: i64 = 36_524;
const DAYS_PER_4_YEARS: i64 = 1_461;
/// The maximum length of the text form.
const TEXT_MAX: usize = 28;
/// The index of the decimal point before the fraction.
const POINT_AT: usize = 19;
const FRACTION_DIGITS: usize = 7;
/// The number of days before each month of a common year.
const DAYS_BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];

impl DateTime {
    /// 1601-01-01T00:00:00Z.
    pub const MIN: DateTime = DateTime(0);
    /// 9999-12-31T23:59:59.9999999Z.
    pub const MAX: DateTime = DateTime(Seq::MAX.0);

    /// Returns the point `ticks` × 100 ns after 1601-01-01 UTC; `None` after the year 9999.
    #[inline]
    pub fn from_ticks(ticks: u64) -> Option<DateTime> {
        (ticks <= Self::MAX.0).then_some(DateTime(ticks))
    }

    /// Returns the ticks of 100 ns since 1601-01-01 UTC.
    #[inline]
    pub fn ticks(self) -> u64 {
        self.0
    }

    /// Returns the current time of the system's clock. The Timestamps of commits follow
    /// [`Options::clock`](crate::Options::clock) instead.
    pub fn now() -> DateTime {
        DateTime(SystemClock::new().now().min(Self::MAX.0))
    }

    /// Returns the point `nanos` ns after 1970-01-01 UTC, rounded down to a multiple of 100 ns.
    ///
    /// # Errors
    /// `InvalidInput` (`OutOfRangeInput`) before the year 1601 or after the year 9999.
    pub(super) fn from_unix_nanos(nanos: i128) -> Result<DateTime> {
        let ticks = nanos.div_euclid(100).saturating_add(TICKS_TO_UNIX_EPOCH.into());
        let time = u64::try_from(ticks).ok().and_then(DateTime::from_ticks);
        time.ok_or_else(|| Error::refused(Code::OutOfRangeInput))
    }

    /// Returns the nanoseconds since 1970-01-01 UTC.
    #[cfg(any(feature = "time", feature = "chrono"))]
    pub(super) fn unix_nanos(self) -> i128 {
        (i128::from(self.0) - i128::from(TICKS_TO_UNIX_EPOCH)) * 100
    }

    /// Returns the text form. This is faster than `fmt`, which matters because a page may contain
    /// thousands of DateTimes.
    pub(crate) fn text(self) -> TimeText {
        let mut texts = TimeTexts::default();
        texts.of(self);
        texts.last
    }

    /// As [`FromStr`], but returns the reason of a failure.
    pub(crate) fn parse(text: &str) -> Result<DateTime, DateTimeProblem> {
        let ticks = parse_ticks(text).ok_or(DateTimeProblem::Malformed)?;
        match u64::try_from(ticks).ok().and_then(DateTime::from_ticks) {
            Some(time) => Ok(time),
            None => Err(DateTimeProblem::OutOfRange(american(ticks))),
        }
    }
}

impl TryFrom<SystemTime> for DateTime {
    type Error = Error;

    /// Rounds down to a multiple of 100 ns.
    ///
    /// # Errors
    /// `InvalidInput` (`OutOfRangeInput`) before the year 1601 or after the year 9999.
    fn try_from(time: SystemTime) -> Result<Self> {
        // A Duration has less than 2^94 ns.
        DateTime::from_unix_nanos(match time.duration_since(UNIX_EPOCH) {
            Ok(after) => after.as_nanos() as i128,
            Err(before) => -(before.duration().as_nanos() as i128),
        })
    }
}

impl From<DateTime> for SystemTime {
    fn from(DateTime(ticks): DateTime) -> Self {
        let time = |ticks| {
            let of_second = Duration::from_nanos(ticks % clock::TICKS_PER_SECOND * 100);
            Duration::from_secs(ticks / clock::TICKS_PER_SECOND) + of_second
        };
        match ticks.checked_sub(TICKS_TO_UNIX_EPOCH) {
            Some(after) => UNIX_EPOCH + time(after),
            None => UNIX_EPOCH - time(TICKS_TO_UNIX_EPOCH - ticks),
        }
    }
}

impl From<Seq> for DateTime {
    fn from(seq: Seq) -> Self {
        DateTime(seq.0.min(Seq::MAX.0))
    }
}

impl FromStr for DateTime {
    type Err = Error;

    /// Parses `yyyy-MM-ddTHH:mm[:ss[.fff]]` followed by `Z`, an offset `±hh:mm`, or nothing, which
    /// means UTC. Digits of the fraction after the seventh are ignored.
    fn from_str(text: &str) -> Result<Self> {
        DateTime::parse(text).map_err(|problem| match problem {
            DateTimeProblem::Malformed => Error::refused(Code::InvalidInput),
            DateTimeProblem::OutOfRange(_) => Error::refused(Code::OutOfRangeInput),
        })
    }
}

impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().as_str())
    }
}

impl fmt::Debug for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text of a [`DateTime`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeText {
    bytes: [u8; TEXT_MAX],
    len: usize,
}

/// Formats DateTimes one after another. This is fast if many of them are equal or on the same day,
/// as in a page or in the response to an entity group.
#[derive(Clone, Debug)]
pub(crate) struct TimeTexts {
    /// The DateTime whose text is `last`, and its day, counted from 1601-01-01.
    ticks: u64,
    day: u64,
    last: TimeText,
}

impl TimeTexts {
    /// Returns the text of `time`, which is ASCII.
    #[inline]
    pub(crate) fn of(&mut self, time: DateTime) -> &[u8] {
        if time.0 != self.ticks {
            self.put(time.0);
        }
        self.last.as_bytes()
    }

    fn put(&mut self, ticks: u64) {
        let text = &mut self.last;
        let day = ticks / TICKS_PER_DAY as u64;
        if day != self.day {
            let (year, month, of_month) = civil(day as i64);
            for (at, two) in [(0, year / 100), (2, year % 100), (5, month), (8, of_month)] {
                text.put_two(at, two as u64);
            }
        }
        let rest = ticks % TICKS_PER_DAY as u64;
        let seconds = rest / TICKS_PER_SECOND as u64;
        text.put_two(11, seconds / 3600);
        text.put_two(14, seconds / 60 % 60);
        text.put_two(17, seconds % 60);
        text.put_fraction(rest % TICKS_PER_SECOND as u64);
        (self.ticks, self.day) = (ticks, day);
    }
}

impl Default for TimeTexts {
    fn default() -> Self {
        let last = TimeText { bytes: *b"1601-01-01T00:00:00Z\0\0\0\0\0\0\0\0", len: POINT_AT + 1 };
        TimeTexts { ticks: 0, day: 0, last }
    }
}

impl TimeText {
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Writes a number below 100 as two digits at `at`.
    #[inline]
    fn put_two(&mut self, at: usize, two: u64) {
        if let Some([tens, ones]) = self.bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            (*tens, *ones) = (b'0' + (two / 10) as u8, b'0' + (two % 10) as u8);
        }
    }

    /// Writes the end of the text: the fraction of a second without trailing zeros, unless it is
    /// zero, and the `Z`.
    #[inline]
    fn put_fraction(&mut self, fraction: u64) {
        let mut end = POINT_AT;
        if fraction != 0 {
            let (mut left, mut digits) = (fraction, FRACTION_DIGITS);
            while left % 10 == 0 {
                (left, digits) = (left / 10, digits - 1);
            }
            end = POINT_AT + 1 + digits;
            let bytes = self.bytes.get_mut(POINT_AT..end).unwrap_or_default();
            if let Some((point, bytes)) = bytes.split_first_mut() {
                *point = b'.';
                for byte in bytes.iter_mut().rev() {
                    *byte = b'0' + (left % 10) as u8;
                    left /= 10;
                }
            }
        }
        self.len = end + 1;
        if let Some(byte) = self.bytes.get_mut(end) {
            *byte = b'Z';
        }
    }
}

/// Returns the year, month and day of a date, given as the number of days since 1601-01-01. The
/// calendar repeats every 400 years, and 1601-01-01 begins such a cycle.
fn civil(days: i64) -> (i64, i64, i64) {
    let cycles = days.div_euclid(DAYS_PER_400_YEARS);
    let mut rest = days.rem_euclid(DAYS_PER_400_YEARS);
    // The last of the four centuries, and the last of four years, have one day more than the
    // divisor. On that extra day the quotient would be 4, and must be 3.
    let centuries = (rest / DAYS_PER_100_YEARS).min(3);
    rest -= centuries * DAYS_PER_100_YEARS;
    let fours = rest / DAYS_PER_4_YEARS;
    rest -= fours * DAYS_PER_4_YEARS;
    let years = (rest / 365).min(3);
    rest -= years * 365;
    let year = 1601 + 400 * cycles + 100 * centuries + 4 * fours + years;
    let month = (1..=12).rev().find(|&month| days_before(year, month) <= rest).unwrap_or(1);
    (year, month, rest - days_before(year, month) + 1)
}

/// Returns the number of days from 1601-01-01 to the given day.
fn days_since_1601(year: i64, month: i64, day: i64) -> i64 {
    let y = year - 1601;
    let leap_days = y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400);
    y * 365 + leap_days + days_before(year, month) + day - 1
}

fn days_before(year: i64, month: i64) -> i64 {
    let index = usize::try_from(month - 1).unwrap_or(0);
    DAYS_BEFORE[index] + i64::from(month > 2 && is_leap(year))
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Formats `ticks`, which may be negative, as `MM/dd/yyyy HH:mm:ss`.
fn american(ticks: i64) -> String {
    let (year, month, day) = civil(ticks.div_euclid(TICKS_PER_DAY));
    let seconds = ticks.rem_euclid(TICKS_PER_DAY) / TICKS_PER_SECOND;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{month:02}/{day:02}/{year:04} {hour:02}:{minute:02}:{second:02}")
}

/// Returns the point in time that `text` denotes, in ticks since 1601-01-01; `None` if the text is
/// malformed. The result is negative for the years 0001 to 1600.
fn parse_ticks(text: &str) -> Option<i64> {
    let mut scan = Scan(text.as_bytes());
    let year = scan.digits(4)?;
    let month = scan.after(b'-')?.digits(2)?;
    let day = scan.after(b'-')?.digits(2)?;
    let hour = scan.after(b'T')?.digits(2)?;
    let minute = scan.after(b':')?.digits(2)?;
    let (mut second, mut fraction) = (0, 0);
    if scan.after(b':').is_some() {
        second = scan.digits(2)?;
        if scan.after(b'.').is_some() {
            fraction = scan.fraction()?;
        }
    }
    let offset_minutes = scan.offset()?;
    let day_exists =
        year >= 1 && (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
    if !day_exists || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let minutes = (days_since_1601(year, month, day) * 24 + hour) * 60 + minute - offset_minutes;
    Some((minutes * 60 + second) * TICKS_PER_SECOND + fraction)
}

/// The unparsed rest of a text.
struct Scan<'a>(&'a [u8]);

impl Scan<'_> {
    fn after(&mut self, byte: u8) -> Option<&mut Self> {
        self.0 = self.0.strip_prefix(&[byte])?;
        Some(self)
    }

    fn digit(&mut self) -> Option<i64> {
        let (first, rest) = self.0.split_first()?;
        let digit = first.is_ascii_digit().then(|| i64::from(first - b'0'))?;
        self.0 = rest;
        Some(digit)
    }

    fn digits(&mut self, count: usize) -> Option<i64> {
        (0..count).try_fold(0, |value, _| Some(value * 10 + self.digit()?))
    }

    /// Reads the digits after the decimal point of a second, at least one, and returns their value
    /// in ticks. Digits after the seventh are ignored.
    fn fraction(&mut self) -> Option<i64> {
        let mut unit = TICKS_PER_SECOND / 10;
        let mut ticks = self.digit()? * unit;
        while let Some(digit) = self.digit() {
            unit /= 10;
            ticks += digit * unit;
        }
        Some(ticks)
    }

    /// Reads the end of the text, `Z`, `±hh:mm` or nothing, and returns the offset in minutes.
    fn offset(&mut self) -> Option<i64> {
        let sign = match self.0.split_first() {
            None | Some((b'Z', [])) => return Some(0),
            Some((b'+', rest)) => (1, rest),
            Some((b'-', rest)) => (-1, rest),
            Some(_) => return None,
        };
        self.0 = sign.1;
        let hours = self.digits(2)?;
        let minutes = self.after(b':')?.digits(2)?;
        let plausible = hours <= 14 && minutes <= 59 && self.0.is_empty();
        plausible.then_some(sign.0 * (hours * 60 + minutes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(text.parse::<DateTime>().unwrap().to_string(), expected);
    }

    #[track_caller]
    fn check_malformed(text: &str) {
        assert_eq!(DateTime::parse(text), Err(DateTimeProblem::Malformed), "{text}");
        assert_eq!(text.parse::<DateTime>().unwrap_err().code(), "InvalidInput");
    }

    #[track_caller]
    fn check_out_of_range(text: &str, american: &str) {
        assert_eq!(DateTime::parse(text), Err(DateTimeProblem::OutOfRange(american.to_owned())));
        assert_eq!(text.parse::<DateTime>().unwrap_err().code(), "OutOfRangeInput");
    }

    #[test]
    fn trailing_zeros_of_the_fraction_are_trimmed() {
        check("2020-10-01T00:38:38.4750600Z", "2020-10-01T00:38:38.47506Z");
        check("2020-09-17T00:00:00.000Z", "2020-09-17T00:00:00Z");
        check("2020-09-17T00:00:00.0000001Z", "2020-09-17T00:00:00.0000001Z");
    }

    #[test]
    fn no_zone_is_utc_and_offsets_are_converted() {
        check("2024-01-31T12:00:00", "2024-01-31T12:00:00Z");
        check("2024-01-31T12:00", "2024-01-31T12:00:00Z");
        check("2024-01-01T00:30:00+01:00", "2023-12-31T23:30:00Z");
        check("2024-02-28T20:00:00.5-08:00", "2024-02-29T04:00:00.5Z");
    }

    #[test]
    fn digits_after_the_seventh_are_dropped() {
        check("2024-01-31T00:00:00.12345678999Z", "2024-01-31T00:00:00.1234567Z");
    }

    #[test]
    fn the_ends_of_the_range() {
        check("1601-01-01T00:00:00Z", "1601-01-01T00:00:00Z");
        check("9999-12-31T23:59:59.9999999Z", "9999-12-31T23:59:59.9999999Z");
        assert_eq!("1601-01-01T00:00:00Z".parse::<DateTime>().unwrap(), DateTime::MIN);
        assert_eq!("9999-12-31T23:59:59.9999999".parse::<DateTime>().unwrap(), DateTime::MAX);
        assert_eq!(DateTime::from_ticks(DateTime::MAX.0 + 1), None);
    }

    #[test]
    fn times_of_the_system_convert_both_ways() {
        for text in
            ["1601-01-01T00:00:00.0000001Z", "1969-12-31T23:59:59.9Z", "2024-01-31T12:00:00Z"]
        {
            let time: DateTime = text.parse().unwrap();
            assert_eq!(DateTime::try_from(SystemTime::from(time)).unwrap(), time);
        }
        for time in [DateTime::MIN, DateTime::MAX] {
            assert_eq!(DateTime::try_from(SystemTime::from(time)).unwrap(), time);
        }
        let at = UNIX_EPOCH + Duration::from_nanos(1_500_000_199);
        assert_eq!(DateTime::try_from(at).unwrap().to_string(), "1970-01-01T00:00:01.5000001Z");
        let before = UNIX_EPOCH - Duration::from_nanos(1);
        assert_eq!(DateTime::try_from(before).unwrap().to_string(), "1969-12-31T23:59:59.9999999Z");
        let tick = Duration::from_nanos(100);
        for beyond in
            [SystemTime::from(DateTime::MIN) - tick, SystemTime::from(DateTime::MAX) + tick]
        {
            assert_eq!(DateTime::try_from(beyond).unwrap_err().code(), "OutOfRangeInput");
        }
        assert!(DateTime::now() > "2020-01-01T00:00:00Z".parse().unwrap());
    }

    #[test]
    fn beyond_the_range() {
        check_out_of_range("1600-12-31T23:59:59.9999999Z", "12/31/1600 23:59:59");
        check_out_of_range("0001-01-01T00:00:00Z", "01/01/0001 00:00:00");
        check_out_of_range("1601-01-01T00:00:00+00:01", "12/31/1600 23:59:00");
        check_out_of_range("9999-12-31T23:59:59-00:01", "01/01/10000 00:00:59");
    }

    #[test]
    fn malformed() {
        for text in [
            "",
            "2024",
            "2024-01-31",
            "2024-01-31 00:00:00",
            "2024-13-01T00:00:00Z",
            "2024-00-01T00:00:00Z",
            "2023-02-29T00:00:00Z",
            "2024-01-32T00:00:00Z",
            "2024-01-00T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:60:00Z",
            "2024-01-01T00:00:60Z",
            "2024-01-01T00:00:00.Z",
            "2024-01-01T00:00:00ZZ",
            "2024-01-01T00:00:00+1:00",
            "2024-01-01T00:00:00+15:00",
            "2024-01-01T00:00:00+01:60",
            "0000-01-01T00:00:00Z",
            "+024-01-01T00:00:00Z",
            "2024-01-01T00:00:00Z ",
            "２024-01-01T00:00:00Z",
        ] {
            check_malformed(text);
        }
    }

    #[test]
    fn the_unix_epoch() {
        let epoch: DateTime = "1970-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(epoch.ticks(), 11_644_473_600 * 10_000_000);
    }

    #[test]
    fn the_text_of_a_time_is_independent_of_earlier_ones() {
        let mut rng = Rng::from_seed(11);
        let (mut texts, mut ticks) = (TimeTexts::default(), 0);
        for round in 0..20_000u64 {
            ticks = match round % 4 {
                0 => rng.below(DateTime::MAX.0 + 1),
                1 => (ticks + rng.below(10_000_000)).min(DateTime::MAX.0),
                2 => ticks / 10_000_000 * 10_000_000,
                _ => (ticks + rng.below(20) * 1_000_000).min(DateTime::MAX.0),
            };
            let time = DateTime(ticks);
            let text = std::str::from_utf8(texts.of(time)).unwrap();
            assert_eq!(text, time.to_string());
            assert_eq!(DateTime::parse(text), Ok(time), "{text}");
        }
        assert_eq!(texts.of(DateTime::MIN), b"1601-01-01T00:00:00Z");
    }

    #[test]
    fn days_and_dates_convert_to_each_other() {
        let mut days = 0;
        for year in 1601..=2401 {
            for month in 1..=12 {
                for day in 1..=days_in(year, month) {
                    assert_eq!(civil(days), (year, month, day));
                    assert_eq!(days_since_1601(year, month, day), days);
                    days += 1;
                }
            }
        }
    }

    #[test]
    fn random_times_round_trip() {
        let mut rng = Rng::from_seed(1);
        for _ in 0..20_000 {
            let time = DateTime(rng.below(DateTime::MAX.0 + 1));
            assert_eq!(time.to_string().parse::<DateTime>().unwrap(), time);
        }
    }
}
