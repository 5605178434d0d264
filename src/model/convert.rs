//! Between Rust's types and EDM values.

use std::borrow::Cow;

use super::datetime::DateTime;
use super::guid::Guid;
use super::value::{Value, ValueRef};

/// A Rust type that a property can be read as.
pub trait FromValue<'a>: Sized {
    /// What to say was expected, when it was something else.
    const EXPECTED: &'static str;

    /// The value, if its type fits.
    fn from_value(value: ValueRef<'a>) -> Option<Self>;

    /// What an absent property reads as; nothing, for most types.
    fn from_absent() -> Option<Self> {
        None
    }
}

/// Bytes; with the feature `serde` a field of this type is an Edm.Binary in every format.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Binary(pub Vec<u8>);

impl<'a, T: FromValue<'a>> FromValue<'a> for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn from_value(value: ValueRef<'a>) -> Option<Self> {
        T::from_value(value).map(Some)
    }

    fn from_absent() -> Option<Self> {
        Some(None)
    }
}

macro_rules! from_value {
    ($($target:ty, $expected:literal: $($pattern:pat => $result:expr),+;)*) => {
        $(impl<'a> FromValue<'a> for $target {
            const EXPECTED: &'static str = $expected;

            fn from_value(value: ValueRef<'a>) -> Option<Self> {
                match value {
                    $($pattern => Some($result),)+
                    _ => None,
                }
            }
        })*
    };
}

from_value! {
    &'a str, "Edm.String": ValueRef::String(text) => text;
    String, "Edm.String": ValueRef::String(text) => text.to_owned();
    &'a [u8], "Edm.Binary": ValueRef::Binary(bytes) => bytes;
    Vec<u8>, "Edm.Binary": ValueRef::Binary(bytes) => bytes.to_owned();
    Binary, "Edm.Binary": ValueRef::Binary(bytes) => Binary(bytes.to_owned());
    bool, "Edm.Boolean": ValueRef::Boolean(value) => value;
    i32, "Edm.Int32": ValueRef::Int32(value) => value;
    i64, "Edm.Int64": ValueRef::Int64(value) => value, ValueRef::Int32(value) => i64::from(value);
    f64, "Edm.Double": ValueRef::Double(value) => value, ValueRef::Int32(value) => f64::from(value);
    DateTime, "Edm.DateTime": ValueRef::DateTime(time) => time;
    Guid, "Edm.Guid": ValueRef::Guid(guid) => guid;
}

impl<'a> FromValue<'a> for ValueRef<'a> {
    const EXPECTED: &'static str = "a value";

    fn from_value(value: ValueRef<'a>) -> Option<Self> {
        Some(value)
    }
}

impl<'a> FromValue<'a> for Value {
    const EXPECTED: &'static str = "a value";

    fn from_value(value: ValueRef<'a>) -> Option<Self> {
        Some(value.to_value())
    }
}

macro_rules! into_value {
    ($($source:ty, $value:ident => $result:expr;)*) => {
        $(impl From<$source> for Value {
            fn from($value: $source) -> Value {
                $result
            }
        })*
    };
}

into_value! {
    &str, text => Value::String(text.to_owned());
    String, text => Value::String(text);
    &String, text => Value::String(text.clone());
    Cow<'_, str>, text => Value::String(text.into_owned());
    Box<str>, text => Value::String(text.into());
    &[u8], bytes => Value::Binary(bytes.to_owned());
    Vec<u8>, bytes => Value::Binary(bytes);
    Binary, bytes => Value::Binary(bytes.0);
    bool, value => Value::Boolean(value);
    i32, value => Value::Int32(value);
    i64, value => Value::Int64(value);
    f64, value => Value::Double(value);
    DateTime, time => Value::DateTime(time);
    Guid, guid => Value::Guid(guid);
    ValueRef<'_>, value => value.to_value();
}

impl<const N: usize> From<&[u8; N]> for Value {
    fn from(bytes: &[u8; N]) -> Value {
        Value::Binary(bytes.to_vec())
    }
}
