//! The oracle's values, which can be compared bit by bit, and their text. A value is written like a
//! literal of a filter: `12`, `12L`, `1.5`, `'text'`, `true`, `X'0a0b'`, `datetime'…'`, `guid'…'`.

use std::fmt;

use crate::model::{DateTime, Guid, Value, ValueRef};

/// A value. Doubles are stored as bits, so that NaN equals itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Val {
    /// Edm.String.
    String(String),
    /// Edm.Binary.
    Binary(Vec<u8>),
    /// Edm.Boolean.
    Boolean(bool),
    /// Edm.Int32.
    Int32(i32),
    /// Edm.Int64.
    Int64(i64),
    /// Edm.Double, as returned by `f64::to_bits`.
    Double(u64),
    /// Edm.DateTime in ticks of 100 ns since 1601. Ticks after the year 9999 are written as the
    /// last moment of that year.
    DateTime(u64),
    /// Edm.Guid, its bytes in the order of its text.
    Guid([u8; 16]),
}

impl Val {
    /// Returns the value to be set in an entity.
    pub(crate) fn to_value(&self) -> Value {
        match self {
            Val::String(text) => Value::String(text.clone()),
            Val::Binary(bytes) => Value::Binary(bytes.clone()),
            Val::Boolean(value) => Value::Boolean(*value),
            Val::Int32(value) => Value::Int32(*value),
            Val::Int64(value) => Value::Int64(*value),
            Val::Double(bits) => Value::Double(f64::from_bits(*bits)),
            Val::DateTime(ticks) => Value::DateTime(moment(*ticks)),
            Val::Guid(bytes) => Value::Guid(Guid::from_bytes(*bytes)),
        }
    }

    /// Returns the value that was read from an entity.
    pub(crate) fn from_ref(value: ValueRef<'_>) -> Val {
        match value {
            ValueRef::String(text) => Val::String(text.to_owned()),
            ValueRef::Binary(bytes) => Val::Binary(bytes.to_owned()),
            ValueRef::Boolean(value) => Val::Boolean(value),
            ValueRef::Int32(value) => Val::Int32(value),
            ValueRef::Int64(value) => Val::Int64(value),
            ValueRef::Double(value) => Val::Double(value.to_bits()),
            ValueRef::DateTime(value) => Val::DateTime(value.ticks()),
            ValueRef::Guid(value) => Val::Guid(*value.as_bytes()),
        }
    }

    /// Reads the text of a value.
    ///
    /// # Errors
    /// `text` is not the text of a value.
    pub fn parse(text: &str) -> Result<Val, String> {
        let bad = || format!("`{text}` is no value");
        if let Some((prefix, quoted)) = text.split_once('\'') {
            let inner = quoted.strip_suffix('\'').ok_or_else(bad)?;
            return match prefix {
                "" => Ok(Val::String(inner.replace("''", "'"))),
                "X" => Ok(Val::Binary(unhex(inner).ok_or_else(bad)?)),
                "datetime" => {
                    let time: DateTime = inner.parse().map_err(|_| bad())?;
                    Ok(Val::DateTime(time.ticks()))
                }
                "guid" => {
                    let guid: Guid = inner.parse().map_err(|_| bad())?;
                    Ok(Val::Guid(*guid.as_bytes()))
                }
                _ => Err(bad()),
            };
        }
        match text {
            "true" => return Ok(Val::Boolean(true)),
            "false" => return Ok(Val::Boolean(false)),
            _ => {}
        }
        if let Some(digits) = text.strip_suffix('L') {
            return digits.parse().map(Val::Int64).map_err(|_| bad());
        }
        if let Ok(value) = text.parse() {
            return Ok(Val::Int32(value));
        }
        text.parse().map(|value: f64| Val::Double(value.to_bits())).map_err(|_| bad())
    }
}

/// Returns the DateTime that is written for `ticks`. Ticks after the year 9999 become the last
/// moment of that year. The engine never returns such ticks, so this hides no difference.
fn moment(ticks: u64) -> DateTime {
    DateTime::from_ticks(ticks).unwrap_or(DateTime::MAX)
}

impl fmt::Display for Val {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Val::String(text) => write!(f, "'{}'", text.replace('\'', "''")),
            Val::Binary(bytes) => write!(f, "X'{}'", hex(bytes)),
            Val::Boolean(value) => write!(f, "{value}"),
            Val::Int32(value) => write!(f, "{value}"),
            Val::Int64(value) => write!(f, "{value}L"),
            Val::Double(bits) => write!(f, "{:?}", f64::from_bits(*bits)),
            Val::DateTime(ticks) => write!(f, "datetime'{}'", moment(*ticks)),
            Val::Guid(bytes) => write!(f, "guid'{}'", Guid::from_bytes(*bytes)),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes pairs of hex digits in either case; `None` for an odd number of digits or any other
/// character.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    let pairs = digits.chunks(2);
    pairs.map(|pair| pair.get(1).map(|low| pair[0] << 4 | low)).collect()
}

#[test]
fn values_print_and_parse_back() {
    for text in [
        "12",
        "-7L",
        "1.5",
        "1e300",
        "NaN",
        "-0.0",
        "'a b''c'",
        "''",
        "true",
        "X'0aff'",
        "X''",
        "datetime'2020-10-01T00:38:38.47506Z'",
        "guid'0f8fad5b-d9cb-469f-a165-70867728950e'",
    ] {
        assert_eq!(Val::parse(text).unwrap().to_string(), text);
    }
    assert!(
        Val::parse("X'0").is_err() && Val::parse("X'123'").is_err() && Val::parse("x").is_err()
    );
}
