//! Infers the types of CSV columns from all fields, and converts fields to values.
//!
//! A column has the first of these types that can represent all its values: Boolean, Int32, Int64,
//! Double, DateTime, Guid; otherwise it is a String. A text that would not be written back
//! identically is not a number: `007` and `+1` make a column text, and so does an integer beyond
//! Int64 with more digits than a Double can hold.
//!
//! Invariant: a field that was accepted for a type converts to that type.

use crate::json::double;
use crate::model::{DateTime, EdmType, Guid, ValueRef};

/// The types that can represent all fields of a column that were seen so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidates {
    types: u8,
    seen: bool,
}

/// The types other than String that can be inferred, in order of preference.
const PREFERENCE: [EdmType; 6] = [
    EdmType::Boolean,
    EdmType::Int32,
    EdmType::Int64,
    EdmType::Double,
    EdmType::DateTime,
    EdmType::Guid,
];
const NUMBERS: u8 = bit(EdmType::Int32) | bit(EdmType::Int64) | bit(EdmType::Double);
/// The maximum number of significant digits of an integer that is stored as a Double because it
/// exceeds Int64. A Double represents integers of up to this many digits exactly.
const DOUBLE_DIGITS: usize = 15;

const fn bit(edm: EdmType) -> u8 {
    1 << (edm as u8 - 1)
}

impl Candidates {
    pub(super) fn all() -> Self {
        let types = PREFERENCE.iter().fold(0, |types, edm| types | bit(*edm));
        Self { types, seen: false }
    }

    /// Excludes the types that cannot represent `field`. A null text (a text that means no value)
    /// must not be passed.
    #[inline]
    pub(super) fn see(&mut self, field: &[u8]) {
        // If no other type than String remains, further checks are useless.
        if self.types != 0 {
            self.types &= types_of(field);
            self.seen = true;
        }
    }

    pub(super) fn decide(self) -> EdmType {
        let fits = |edm: &EdmType| self.seen && self.types & bit(*edm) != 0;
        PREFERENCE.into_iter().find(fits).unwrap_or(EdmType::String)
    }
}

/// Returns the types that can represent `field`, except String.
fn types_of(field: &[u8]) -> u8 {
    let possible = match field.first() {
        Some(b'0'..=b'9' | b'-') => {
            if let Some(value) = integer(field) {
                let fits = i32::try_from(value).is_ok();
                return if fits { NUMBERS } else { NUMBERS & !bit(EdmType::Int32) };
            }
            [EdmType::Double, EdmType::DateTime, EdmType::Guid]
        }
        Some(_) => [EdmType::Boolean, EdmType::Double, EdmType::Guid],
        None => return 0,
    };
    let fits = |edm: &EdmType| value(field, *edm).is_some();
    possible.into_iter().filter(fits).fold(0, |types, edm| types | bit(edm))
}

/// Converts `field` to a value of type `edm`.
#[inline]
pub(super) fn value(field: &[u8], edm: EdmType) -> Option<ValueRef<'_>> {
    Some(match edm {
        EdmType::String => ValueRef::String(std::str::from_utf8(field).ok()?),
        EdmType::Int32 => ValueRef::Int32(i32::try_from(integer(field)?).ok()?),
        EdmType::Int64 => ValueRef::Int64(integer(field)?),
        EdmType::Double => ValueRef::Double(double(field)?),
        EdmType::Boolean => ValueRef::Boolean(boolean(field)?),
        EdmType::DateTime => ValueRef::DateTime(date_time(field)?),
        EdmType::Guid => ValueRef::Guid(guid(field)?),
        // Binary values are decoded into separate memory by `decode_binaries` in `columns`.
        EdmType::Binary => return None,
    })
}

fn boolean(field: &[u8]) -> Option<bool> {
    match field {
        b"true" | b"TRUE" | b"True" => Some(true),
        b"false" | b"FALSE" | b"False" => Some(false),
        _ => None,
    }
}

/// Parses a decimal integer in its canonical form: no plus sign, no leading zero, no `-0`.
#[inline]
fn integer(field: &[u8]) -> Option<i64> {
    let (digits, negative) = match field {
        [b'-', digits @ ..] => (digits, true),
        digits => (digits, false),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut value = 0u64;
    for &digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // At most nineteen digits, so the value cannot overflow.
        value = value * 10 + u64::from(digit);
    }
    if negative { 0i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}

fn double(field: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(field).ok()?;
    let value = double::parse(text)?;
    let integral = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    if integral && text.trim_start_matches('-').trim_end_matches('0').len() > DOUBLE_DIGITS {
        // An integer with so many digits is accepted only if it is in the range of Int64: a column
        // of Doubles may contain Int64 values.
        integer(field)?;
    }
    Some(value)
}

fn date_time(field: &[u8]) -> Option<DateTime> {
    // The cheapest check comes first, and rejects most texts.
    if field.get(10) != Some(&b'T') {
        return None;
    }
    DateTime::parse(std::str::from_utf8(field).ok()?).ok()
}

fn guid(field: &[u8]) -> Option<Guid> {
    if field.len() != 36 {
        return None;
    }
    std::str::from_utf8(field).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(fields: &[&str], expected: EdmType) {
        let mut candidates = Candidates::all();
        fields.iter().for_each(|field| candidates.see(field.as_bytes()));
        assert_eq!(candidates.decide(), expected, "{fields:?}");
        for field in fields {
            let value = value(field.as_bytes(), expected);
            assert_eq!(value.map(ValueRef::edm_type), Some(expected), "{field}");
        }
    }

    #[test]
    fn integers_widen() {
        check(&["1", "0", "-7"], EdmType::Int32);
        check(&["2147483647", "-2147483648"], EdmType::Int32);
        check(&["1", "2147483648"], EdmType::Int64);
        check(&["9223372036854775807", "-9223372036854775808"], EdmType::Int64);
        check(&["1", "2147483648", "0.5"], EdmType::Double);
        check(&["1", "1e3"], EdmType::Double);
        check(&["1", "-0"], EdmType::Double);
        check(&["1", "100000000000000000000"], EdmType::Double);
        check(&["1.5", "NaN", "-Infinity"], EdmType::Double);
        check(&["1", "x"], EdmType::String);
    }

    #[test]
    fn text_that_would_not_round_trip_stays_text() {
        check(&["007"], EdmType::String);
        check(&["+1"], EdmType::String);
        check(&["1", "01"], EdmType::String);
        check(&["1."], EdmType::String);
        check(&[".5"], EdmType::String);
        check(&["1e999"], EdmType::String);
        check(&["12345678901234567890"], EdmType::String);
        check(&["-"], EdmType::String);
        check(&["1 "], EdmType::String);
        check(&["", "1"], EdmType::String);
    }

    #[test]
    fn other_types() {
        check(&["true", "FALSE", "True"], EdmType::Boolean);
        check(&["true", "1"], EdmType::String);
        check(&["2013-01-01T10:00:00Z", "2013-01-01T10:00:00.1234567+02:00"], EdmType::DateTime);
        check(&["2013-01-01"], EdmType::String);
        check(&["2013-13-01T10:00:00Z"], EdmType::String);
        check(&["2013-01-01T10:00:00Z", "1"], EdmType::String);
        check(
            &["0f8fad5b-d9cb-469f-a165-70867728950e", "ABCDEFAB-d9cb-469f-a165-70867728950e"],
            EdmType::Guid,
        );
        check(&["N14228"], EdmType::String);
        check(&[], EdmType::String);
    }

    #[test]
    fn every_text_counted_for_a_type_converts_to_it() {
        let pieces =
            ["-", "0", "1", "9", "9223372036854775807", ".", "e", "E+", "T", "true", "NaN", ":"];
        let mut rng = crate::rng::Rng::from_seed(1);
        for _ in 0..20_000 {
            let field: String = (0..1 + rng.below(4)).map(|_| *rng.pick(&pieces)).collect();
            for edm in PREFERENCE {
                let counts = types_of(field.as_bytes()) & bit(edm) != 0;
                assert_eq!(counts, value(field.as_bytes(), edm).is_some(), "{field} {edm}");
            }
        }
    }
}
