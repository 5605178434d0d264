//! Converts between Rust types and EDM values, the typed values of properties.

use std::borrow::Cow;

use super::datetime::DateTime;
use super::guid::Guid;
use super::shape::Field;
use super::value::{EdmType, Value, ValueRef};
use crate::error::{Error, ErrorKind, Result};

/// A Rust type to which the value of a property can be converted.
pub trait FromValue<'a>: Sized {
    /// The name of the expected type, for error messages.
    const EXPECTED: &'static str;

    /// Converts the value, if its type fits.
    fn from_value(value: ValueRef<'a>) -> Option<Self>;

    /// Returns the result for an absent property; for most types `None`, which is an error.
    fn from_absent() -> Option<Self> {
        None
    }

    /// Converts a value in the body of a row. If the type is not exactly the expected one, this may
    /// return `None` even for a value that [`from_value`](Self::from_value) converts. The caller
    /// then calls `from_value`.
    #[doc(hidden)]
    #[inline]
    fn from_field(field: Field<'_, 'a>) -> Option<Self> {
        Self::from_value(field.value()?)
    }
}

/// Bytes. With the feature `serde`, a field of this type is an Edm.Binary in every format.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Binary(pub Vec<u8>);

/// Returns the error for a missing property.
#[cold]
pub(crate) fn no_property(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("no property '{name}'"))
}

/// Returns the error for a property of another type than the requested one.
#[cold]
pub(crate) fn other_type(name: &str, edm: EdmType, expected: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("property '{name}' is {edm}, not {expected}"))
}

impl<'a, T: FromValue<'a>> FromValue<'a> for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn from_value(value: ValueRef<'a>) -> Option<Self> {
        T::from_value(value).map(Some)
    }

    fn from_absent() -> Option<Self> {
        Some(None)
    }

    #[inline(always)]
    fn from_field(field: Field<'_, 'a>) -> Option<Self> {
        T::from_field(field).map(Some)
    }
}

macro_rules! from_value {
    ($(
        $target:ty, $expected:literal: $($pattern:pat => $result:expr),+;
        $field:ident => $found:expr;
    )*) => {
        $(impl<'a> FromValue<'a> for $target {
            const EXPECTED: &'static str = $expected;

            fn from_value(value: ValueRef<'a>) -> Option<Self> {
                match value {
                    $($pattern => Some($result),)+
                    _ => None,
                }
            }

            #[inline(always)]
            fn from_field($field: Field<'_, 'a>) -> Option<Self> {
                $found
            }
        })*
    };
}

from_value! {
    &'a str, "Edm.String": ValueRef::String(text) => text;
        field => field.text();
    String, "Edm.String": ValueRef::String(text) => text.to_owned();
        field => field.text().map(str::to_owned);
    &'a [u8], "Edm.Binary": ValueRef::Binary(bytes) => bytes;
        field => field.binary();
    Vec<u8>, "Edm.Binary": ValueRef::Binary(bytes) => bytes.to_owned();
        field => field.binary().map(<[u8]>::to_owned);
    Binary, "Edm.Binary": ValueRef::Binary(bytes) => Binary(bytes.to_owned());
        field => field.binary().map(|bytes| Binary(bytes.to_owned()));
    bool, "Edm.Boolean": ValueRef::Boolean(value) => value;
        field => match field.fixed(EdmType::Boolean) {
            Some([byte @ 0..=1]) => Some(byte == 1),
            _ => None,
        };
    i32, "Edm.Int32": ValueRef::Int32(value) => value;
        field => field.fixed(EdmType::Int32).map(i32::from_le_bytes);
    i64, "Edm.Int64": ValueRef::Int64(value) => value, ValueRef::Int32(value) => i64::from(value);
        field => field.fixed(EdmType::Int64).map(i64::from_le_bytes);
    f64, "Edm.Double": ValueRef::Double(value) => value, ValueRef::Int32(value) => f64::from(value);
        field => field.fixed(EdmType::Double).map(f64::from_le_bytes);
    DateTime, "Edm.DateTime": ValueRef::DateTime(time) => time;
        field => {
            field.fixed(EdmType::DateTime).map(u64::from_le_bytes).and_then(DateTime::from_ticks)
        };
    Guid, "Edm.Guid": ValueRef::Guid(guid) => guid;
        field => field.fixed(EdmType::Guid).map(Guid::from_bytes);
}

macro_rules! from_integer {
    ($($target:ty, $expected:literal;)*) => {
        $(impl<'a> FromValue<'a> for $target {
            const EXPECTED: &'static str = $expected;

            fn from_value(value: ValueRef<'a>) -> Option<Self> {
                i64::from_value(value)?.try_into().ok()
            }
        })*
    };
}

from_integer! {
    i8, "an integer that fits i8";
    i16, "an integer that fits i16";
    u8, "an integer that fits u8";
    u16, "an integer that fits u16";
    u32, "an integer that fits u32";
    u64, "an integer that fits u64";
    usize, "an integer that fits usize";
}

impl<'a> FromValue<'a> for f32 {
    const EXPECTED: &'static str = "Edm.Double";

    /// Rounds to the nearest `f32`.
    fn from_value(value: ValueRef<'a>) -> Option<Self> {
        f64::from_value(value).map(|value| value as f32)
    }
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

/// A value of a property, or no value: the argument of [`Entity::with`](super::Entity::with).
/// Every type that converts to a [`Value`] has this trait, and an `Option` of it. So have the times
/// of the crates `time` and `chrono`, with the features of these names.
pub trait IntoProperty {
    /// Returns the value; `None` if the entity shall not have the property.
    ///
    /// # Errors
    /// `InvalidInput` if no value of a property represents `self`. Then writes of the entity are
    /// refused with this error.
    fn into_property(self) -> Result<Option<Value>>;
}

impl<T: Into<Value>> IntoProperty for T {
    #[inline]
    fn into_property(self) -> Result<Option<Value>> {
        Ok(Some(self.into()))
    }
}

impl<T: Into<Value>> IntoProperty for Option<T> {
    #[inline]
    fn into_property(self) -> Result<Option<Value>> {
        Ok(self.map(T::into))
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
    i8, value => Value::Int32(value.into());
    i16, value => Value::Int32(value.into());
    i32, value => Value::Int32(value);
    u8, value => Value::Int32(value.into());
    u16, value => Value::Int32(value.into());
    u32, value => Value::Int64(value.into());
    i64, value => Value::Int64(value);
    f32, value => Value::Double(value.into());
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
