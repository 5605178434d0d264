//! Parses Doubles by the grammar of JSON numbers, and writes them as the Table service does.
//!
//! Invariants
//! * a written Double reads back as the same bits, except for a NaN's payload;
//! * a finite Double is always written with a decimal point or an exponent, so that it is not read
//!   as an Int32.

use crate::json::{self, NUMBER_BYTES};

/// Parses `text` as a JSON number. Returns `None` if it is not a JSON number, or if it is too large
/// for a finite f64.
pub(crate) fn parse_finite(text: &str) -> Option<f64> {
    if text.is_empty() || number_len(text.as_bytes()) != text.len() {
        return None;
    }
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

/// Like [`parse_finite`], but also accepts `NaN`, `Infinity`, `-Infinity`.
pub(crate) fn parse(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => parse_finite(text),
    }
}

/// Returns the length of the JSON number at the start of `bytes`; 0 if there is none.
pub(crate) fn number_len(bytes: &[u8]) -> usize {
    let digits = |from: usize| {
        bytes.get(from..).unwrap_or_default().iter().take_while(|b| b.is_ascii_digit()).count()
    };
    let mut len = usize::from(bytes.first() == Some(&b'-'));
    match bytes.get(len) {
        Some(b'0') => len += 1,
        Some(b'1'..=b'9') => len += digits(len),
        _ => return 0,
    }
    if bytes.get(len) == Some(&b'.') {
        match digits(len + 1) {
            0 => return len,
            fraction => len += 1 + fraction,
        }
    }
    if let Some(b'e' | b'E') = bytes.get(len) {
        let sign = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
        match digits(len + 1 + sign) {
            0 => return len,
            exponent => len += 1 + sign + exponent,
        }
    }
    len
}

/// The length of 15 digits and a decimal point. Different decimals of at most this length are
/// different Doubles.
const CERTAIN_LEN: usize = 16;

/// One more than the largest number of 15 digits.
const DECIMAL_MAX: u64 = 1_000_000_000_000_000;

/// For each number of thousandths from 0 to 999: a decimal point and three digits, and how many of
/// these four bytes to write. Trailing zeros are left out, but at least one digit is written.
static FRACTIONS: [([u8; 4], u8); 1000] = {
    let (mut fractions, mut of) = ([([b'.', b'0', b'0', b'0'], 2); 1000], 0);
    while of < 1000 {
        let (tenths, hundredths, last) = ((of / 100) as u8, (of / 10 % 10) as u8, (of % 10) as u8);
        let len = if last != 0 {
            4
        } else if hundredths != 0 {
            3
        } else {
            2
        };
        fractions[of] = ([b'.', b'0' + tenths, b'0' + hundredths, b'0' + last], len);
        of += 1;
    }
    fractions
};

/// Whether `value`, which is at least 0.0001, may be exactly halfway between two of the shortest
/// decimals that read back as `value`. Such a number has at most 18 digits, and therefore at most
/// 24 binary digits after the point.
fn may_be_halfway(value: f64) -> bool {
    (value * f64::from(1 << 24)).fract() == 0.0
}

/// Appends a Double, for example `5.0`, `0.0001`, `1E-05`, `1.23456789012346E+24`, `NaN` or
/// `-Infinity`. Writes the fewest digits that read back as the number. The text has an exponent
/// from 1E+15 up and below 0.0001.
pub(crate) fn put(out: &mut Vec<u8>, value: f64) {
    let mut decimal = [0; NUMBER_BYTES];
    let len = put_decimal(&mut decimal, value);
    if len > 0 {
        return out.extend_from_slice(decimal.get(..len).unwrap_or_default());
    }
    if value.is_nan() {
        return out.extend_from_slice(b"NaN");
    }
    if value.is_infinite() {
        let name: &[u8] = if value > 0.0 { b"Infinity" } else { b"-Infinity" };
        return out.extend_from_slice(name);
    }
    let magnitude = value.abs();
    if (1e-4..1e15).contains(&magnitude) {
        // In this range `serde_json` writes a decimal point and no exponent. If two decimals are
        // equally close to the number, `serde_json` may choose another one than Rust's formatting.
        // So such numbers are formatted with Rust.
        let start = out.len();
        let written = serde_json::to_writer(&mut *out, &value);
        debug_assert!(written.is_ok(), "a finite number is JSON, and a vector takes any bytes");
        if out.len() - start > CERTAIN_LEN && may_be_halfway(value) {
            out.truncate(start);
            out.extend_from_slice(format!("{value:?}").as_bytes());
        }
        return;
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    out.extend_from_slice(format!("{digits}E{sign}{exponent:0>2}").as_bytes());
}

/// Writes a number below 1E+12 with at most three decimal places, which is the usual case, or an
/// integer below 1E+15. Returns the number of bytes, or 0 if the number is neither. Different
/// decimals of up to 15 digits are different Doubles, so no shorter text would read back as the
/// number.
pub(crate) fn put_decimal(text: &mut [u8; NUMBER_BYTES], value: f64) -> usize {
    let magnitude = value.abs();
    // Division rounds like parsing. So if the quotient equals the number, the digits read back as
    // the number.
    let (whole, thousandths) = if magnitude < 1e12 {
        let scaled = (magnitude * 1000.0 + 0.5) as i64;
        if scaled as f64 / 1000.0 != magnitude {
            return 0;
        }
        (scaled as u64 / 1000, scaled as u64 % 1000)
    } else {
        let whole = magnitude as u64;
        if whole >= DECIMAL_MAX || whole as f64 != magnitude {
            return 0;
        }
        (whole, 0)
    };
    let sign = usize::from(value.is_sign_negative());
    text[0] = b'-';
    let len = sign + json::put_digits(text.get_mut(sign..).unwrap_or_default(), whole);
    let (digits, fraction) = FRACTIONS[thousandths as usize];
    if let Some(place) = text.get_mut(len..).and_then(<[u8]>::first_chunk_mut) {
        *place = digits;
    }
    len + usize::from(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: f64, expected: &str) {
        let mut out = Vec::new();
        put(&mut out, value);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let back = parse(expected).unwrap();
        assert!(back.to_bits() == value.to_bits() || (back.is_nan() && value.is_nan()));
    }

    #[test]
    fn doubles_are_written_as_the_service_writes_them() {
        check(5.0, "5.0");
        check(0.0, "0.0");
        check(-0.0, "-0.0");
        check(21.5, "21.5");
        check(-0.05, "-0.05");
        check(1.005, "1.005");
        check(0.29, "0.29");
        check(1.001e12, "1001000000000.0");
        check(0.1 + 0.2, "0.30000000000000004");
        check(999.999, "999.999");
        check(-1000.0, "-1000.0");
        check(999_999_999_999.5, "999999999999.5");
        check(1e12, "1000000000000.0");
        check(1_000_000_000_000.5, "1000000000000.5");
        check(-123_456_789_012_345.0, "-123456789012345.0");
        check(0.001, "0.001");
        check(-0.01, "-0.01");
        check(0.000_999, "0.000999");
        check(999_999_999_999.999, "999999999999.999");
        check(9_999_999_999_999.999, "9999999999999.998");
        check(2.675 - 1e-15, "2.674999999999999");
        check(-1.5, "-1.5");
        check(0.0001, "0.0001");
        check(0.000_012, "1.2E-05");
        check(1e15, "1E+15");
        check(999_999_999_999_999.0, "999999999999999.0");
        check(1.23456789012346e24, "1.23456789012346E+24");
        check(f64::MAX, "1.7976931348623157E+308");
        check(5e-324, "5E-324");
        check(f64::NAN, "NaN");
        check(f64::INFINITY, "Infinity");
        check(f64::NEG_INFINITY, "-Infinity");
    }

    #[test]
    fn any_double_is_read_back_bit_for_bit() {
        let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20_000 {
            bits = bits.wrapping_mul(0xd129_0d3c_a1b5_59d9).wrapping_add(1);
            let value = f64::from_bits(bits);
            let mut out = Vec::new();
            put(&mut out, value);
            let text = String::from_utf8(out).unwrap();
            let back = parse(&text).unwrap_or_else(|| panic!("{text}"));
            assert!(back.to_bits() == bits || (back.is_nan() && value.is_nan()), "{text}");
            assert!(!value.is_finite() || text.contains(['.', 'E']), "{text}");
        }
    }

    #[test]
    fn numbers_of_common_size_are_written_as_rust_does() {
        let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..20_000 {
            bits = bits.wrapping_mul(0xd129_0d3c_a1b5_59d9).wrapping_add(1);
            let fraction = (bits >> 11) as f64 / (1_u64 << 53) as f64;
            let value = fraction * 10_f64.powi(round % 19 - 3);
            let value = match round % 3 {
                0 => value,
                1 => (value * 100.0).round() / 100.0,
                // These numbers have few binary digits after the point, like numbers halfway
                // between two decimals.
                _ => (bits >> 11) as f64 / 2_f64.powi(round % 24),
            };
            if value == 0.0 || (1e-4..1e15).contains(&value) {
                check(value, &format!("{value:?}"));
                check(-value, &format!("{:?}", -value));
            }
        }
    }

    #[test]
    fn other_spellings_are_not_numbers() {
        for text in
            ["", "nan", "inf", "+1", ".5", "1.", "0x10", "1_0", " 1", "1e999", "-1e999", "01"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("1e-999"), Some(0.0));
        assert_eq!(parse_finite("NaN"), None);
    }
}
