//! Builds keys whose order, which is that of texts, is the order that a program needs.

use super::datetime::DateTime;
use crate::codec::checksum;
use crate::error::{Error, ErrorKind, Result};

/// The digits of the greatest `u64`.
const DIGITS_OF_U64: usize = 20;
/// The digits of the ticks from 1601 to the year 9999.
const DIGITS_OF_TICKS: usize = 19;

/// Returns a number with leading zeros, so that keys sort by the number.
///
/// ```
/// use rowstone::keys::pad;
/// assert_eq!(pad(42, 6)?, "000042");
/// assert!(pad(42, 6)? < pad(100, 6)?);
/// # Ok::<_, rowstone::Error>(())
/// ```
///
/// # Errors
/// `InvalidInput` if the number has more than `digits` digits: its key would not sort by the
/// number.
pub fn pad(number: u64, digits: usize) -> Result<String> {
    let text = format!("{number:0digits$}");
    if text.len() > digits {
        let problem = format!("{number} has more than {digits} digits");
        return Err(Error::new(ErrorKind::InvalidInput, problem));
    }
    Ok(text)
}

/// Returns the key of a number whose order is reversed: the greatest number is first. The key has
/// 20 digits.
///
/// ```
/// use rowstone::keys::invert;
/// assert!(invert(100) < invert(42));
/// ```
pub fn invert(number: u64) -> String {
    format!("{:0DIGITS_OF_U64$}", u64::MAX - number)
}

/// Returns the key of a time whose order is reversed: the newest time is first. The key has 19
/// digits: the ticks of 100 ns from the time to the end of the year 9999, as in
/// `(DateTime.MaxValue.Ticks - time.Ticks).ToString("d19")` of .NET.
///
/// ```
/// use rowstone::{DateTime, keys::reverse_date};
/// let day = |text: &str| text.parse::<DateTime>();
/// let (older, newer) = (day("2013-01-01T00:00Z")?, day("2013-01-02T00:00Z")?);
/// assert!(reverse_date(newer) < reverse_date(older));
/// # Ok::<_, rowstone::Error>(())
/// ```
pub fn reverse_date(time: DateTime) -> String {
    format!("{:0DIGITS_OF_TICKS$}", DateTime::MAX.ticks() - time.ticks())
}

/// Returns one of `count` numbers, from 0 on, that depends only on the text: a PartitionKey that
/// begins with it spreads keys that are written in order over `count` ranges. All numbers have as
/// many digits as the greatest. The result of a text and a count never changes. A `count` of 0
/// counts as 1.
///
/// ```
/// use rowstone::keys::bucket;
/// assert_eq!(bucket("sensor-17", 16), bucket("sensor-17", 16));
/// assert_eq!(bucket("sensor-17", 16).len(), 2);
/// ```
pub fn bucket(text: &str, count: u32) -> String {
    let greatest = count.saturating_sub(1);
    let digits = greatest.to_string().len();
    let number = u64::from(checksum(text.as_bytes())) * u64::from(count.max(1));
    format!("{:0digits$}", number >> 32)
}

/// Returns the least text, in the order of keys (UTF-16 units), that is greater than all texts with
/// this `prefix`; `None` if there is no such text. The texts with the prefix are those from
/// `prefix` to before the result.
///
/// ```
/// use rowstone::{KeyRange, keys::prefix_end};
/// assert_eq!(prefix_end("2013-01").as_deref(), Some("2013-02"));
/// # let end = prefix_end("2013-01").unwrap();
/// let january = KeyRange::rows("EWR", "2013-01"..&end);
/// ```
pub fn prefix_end(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        // By UTF-16 unit, characters of two units (surrogates) sort between U+D7FF and U+E000.
        let next = match last {
            '\u{d7ff}' => Some('\u{10000}'),
            '\u{10ffff}' => Some('\u{e000}'),
            '\u{ffff}' => None,
            _ => char::from_u32(u32::from(last) + 1),
        };
        if let Some(next) = next {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts that keys sort, as the service sorts them, as their sources do.
    #[track_caller]
    fn check_order(keys: &[String]) {
        let units = |key: &String| key.encode_utf16().collect::<Vec<_>>();
        assert!(keys.is_sorted_by(|a, b| units(a) < units(b)), "{keys:?}");
    }

    #[test]
    fn keys_sort_by_number_and_by_time() {
        let numbers = [0, 1, 9, 10, 99, 100, u64::MAX / 2, u64::MAX];
        check_order(&numbers.map(|number| pad(number, 20).unwrap()));
        check_order(&numbers.map(|number| invert(u64::MAX - number)));
        let last = DateTime::MAX.ticks();
        let times = [0, 1, last / 10, last / 2, last - 1, last];
        check_order(&times.map(|at| reverse_date(DateTime::from_ticks(last - at).unwrap())));
    }

    #[test]
    fn a_reversed_date_is_that_of_dotnet() {
        let time = "2013-02-08T18:00:00Z".parse().unwrap();
        // DateTime.MaxValue.Ticks is 3155378975999999999, and this time has 634959432000000000.
        let expected = 3_155_378_975_999_999_999_u64 - 634_959_432_000_000_000;
        assert_eq!(reverse_date(time), expected.to_string());
        assert_eq!(reverse_date(DateTime::MAX), "0".repeat(19));
    }

    #[test]
    fn a_number_that_does_not_fit_is_refused() {
        assert_eq!(pad(999, 3).unwrap(), "999");
        assert!(pad(1_000, 3).unwrap_err().to_string().contains("1000 has more than 3 digits"));
        assert_eq!(pad(0, 0).unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn buckets_are_used_evenly_and_stay() {
        let mut counts = [0; 12];
        for i in 0..12_000 {
            counts[bucket(&format!("sensor-{i}"), 12).parse::<usize>().unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| (900..1_100).contains(count)), "{counts:?}");
        // Stored keys depend on these.
        assert_eq!(["a", "b", ""].map(|text| bucket(text, 100)), ["90", "44", "00"]);
        assert_eq!([0, 1].map(|count| bucket("a", count)), ["0", "0"]);
        assert!(bucket("a", u32::MAX).len() == 10);
    }

    #[test]
    fn a_prefix_ends_by_utf16_units() {
        for (prefix, end) in [
            ("m4", Some("m5")),
            ("a\u{ffff}\u{ffff}", Some("b")),
            ("\u{ffff}", None),
            ("", None),
            ("a\u{d7ff}", Some("a\u{10000}")),
            ("\u{10ffff}", Some("\u{e000}")),
        ] {
            assert_eq!(prefix_end(prefix).as_deref(), end, "{prefix:?}");
        }
    }
}
