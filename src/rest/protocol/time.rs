//! Formats and parses dates and times for headers, tokens and error messages.
//!
//! The JSON format of times is in `model`.

use std::time::{Duration, UNIX_EPOCH};

use crate::clock::{TICKS_PER_SECOND, TICKS_TO_UNIX_EPOCH};
use crate::model::DateTime;

/// Reads `Mon, 02 Jan 2023 03:04:05 GMT`, or one of the two older forms that HTTP still allows.
pub(crate) fn read_http(text: &str) -> Option<DateTime> {
    let since = httpdate::parse_http_date(text.trim()).ok()?.duration_since(UNIX_EPOCH).ok()?;
    let ticks = since.as_secs().checked_mul(TICKS_PER_SECOND)?;
    DateTime::from_ticks(ticks.checked_add(TICKS_TO_UNIX_EPOCH)?)
}

/// Formats as `Mon, 02 Jan 2023 03:04:05 GMT`. The fraction of a second is dropped, and times
/// before 1970 become 1970.
pub(crate) fn http(time: DateTime) -> String {
    let ticks = time.ticks().saturating_sub(TICKS_TO_UNIX_EPOCH);
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(ticks / TICKS_PER_SECOND))
}

/// Reads a date such as `2024-01-31`. A time may follow, as `Thh:mm` or `Thh:mm:ss` with or without
/// a fraction, and then `Z`, an offset or nothing.
pub(crate) fn read_iso(text: &str) -> Option<DateTime> {
    if text.len() == 10 && text.is_ascii() {
        return DateTime::parse(&[text, "T00:00:00Z"].concat()).ok();
    }
    DateTime::parse(text).ok()
}

/// Formats as `2024-02-03T04:05:06.1234567Z`, always with seven digits.
pub(crate) fn seven_digits(time: DateTime) -> String {
    let text = time.to_string();
    let text = text.trim_end_matches('Z');
    match text.split_once('.') {
        Some((seconds, fraction)) => format!("{seconds}.{fraction:0<7}Z"),
        None => format!("{text}.0000000Z"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iso(text: &str) -> DateTime {
        read_iso(text).unwrap()
    }

    #[test]
    fn dates_of_headers_are_written_and_read_back() {
        let text = "Mon, 02 Jan 2023 03:04:05 GMT";
        assert_eq!(read_http(text), Some(iso("2023-01-02T03:04:05Z")));
        assert_eq!(http(iso("2023-01-02T03:04:05.9Z")), text);
        assert_eq!(
            read_http(" Monday, 02-Jan-23 03:04:05 GMT "),
            Some(iso("2023-01-02T03:04:05Z"))
        );
        assert_eq!(http(DateTime::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(http(DateTime::MIN), "Thu, 01 Jan 1970 00:00:00 GMT");
        for text in [
            "",
            "x",
            "2023-01-02T03:04:05Z",
            "Mon, 02 Jan 2023 03:04:05",
            "Mon, 32 Jan 2023 03:04:05 GMT",
        ] {
            assert_eq!(read_http(text), None, "{text}");
        }
    }

    #[test]
    fn times_of_tokens() {
        assert_eq!(iso("2024-01-31").to_string(), "2024-01-31T00:00:00Z");
        assert_eq!(iso("2024-01-31T10:20Z").to_string(), "2024-01-31T10:20:00Z");
        assert_eq!(iso("2024-01-31T10:20:30Z").to_string(), "2024-01-31T10:20:30Z");
        assert_eq!(
            iso("2024-01-31T10:20:30.1234567+02:00").to_string(),
            "2024-01-31T08:20:30.1234567Z"
        );
        for text in
            ["", "2024", "2024-13-01", "2024-01-3é", "31-01-2024", "2024-01-31T", "1500-01-01"]
        {
            assert_eq!(read_iso(text), None, "{text}");
        }
    }

    #[test]
    fn times_always_have_seven_digits() {
        for (time, text) in [
            ("2024-02-03T04:05:06Z", "2024-02-03T04:05:06.0000000Z"),
            ("2024-02-03T04:05:06.5Z", "2024-02-03T04:05:06.5000000Z"),
            ("2024-02-03T04:05:06.1234567Z", "2024-02-03T04:05:06.1234567Z"),
        ] {
            assert_eq!(seven_digits(iso(time)), text);
            assert_eq!(iso(text), iso(time));
        }
    }
}
