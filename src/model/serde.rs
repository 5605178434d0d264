//! Application structs in and out of entities: the feature `serde`.
//!
//! A struct's fields are the properties; `None` is an absent property. [`Guid`], [`DateTime`] and [`Binary`] keep
//! their EDM types; in other formats they are a text, a text and bytes.
//!
//! | Rust | EDM |
//! | --- | --- |
//! | `bool` | Boolean |
//! | `i8` `i16` `i32` `u8` `u16` | Int32 |
//! | `i64` `u32`, `u64` within `i64` | Int64 |
//! | `f32` `f64` | Double |
//! | `String` `char`, an enum's variant without data | String |
//! | `Binary`, `Vec<u8>` | Binary |
//! | `DateTime`, `Guid` | DateTime, Guid |
//!
//! Invariant: an error names the field that it is about.

mod de;
mod ser;

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde::ser::{Serialize, Serializer};

use super::convert::Binary;
use super::datetime::DateTime;
use super::entity::Entity;
use super::guid::Guid;
use crate::error::{Code, Error, Result};

/// The names under which our own types pass through serde, so that this module knows them again.
const GUID: &str = "$rowstone::Guid";
const DATE_TIME: &str = "$rowstone::DateTime";
const BINARY: &str = "$rowstone::Binary";

impl Entity {
    /// An entity whose properties are the fields of `value`.
    ///
    /// Fields named PartitionKey, RowKey or Timestamp are left out: the keys are the arguments.
    ///
    /// # Errors
    /// `InvalidInput`, naming the field, if a field is neither a value of an EDM type nor `None`.
    pub fn from_serde<T: Serialize + ?Sized>(
        partition_key: impl Into<String>,
        row_key: impl Into<String>,
        value: &T,
    ) -> Result<Entity> {
        let entity = Entity::new(partition_key, row_key);
        value.serialize(ser::EntitySerializer(entity)).map_err(Problem::refusal)
    }

    /// The properties as a struct. A field named PartitionKey, RowKey or Timestamp gets just that; properties
    /// without a field are passed over, unless the struct denies unknown fields.
    ///
    /// # Errors
    /// `InvalidInput`, naming the field, if one is missing or of another type.
    pub fn to<'de, T: Deserialize<'de>>(&'de self) -> Result<T> {
        T::deserialize(de::EntityDeserializer(self)).map_err(Problem::refusal)
    }
}

/// What went wrong, and in which field.
#[derive(Debug)]
struct Problem {
    field: Option<String>,
    text: String,
}

impl Problem {
    fn new(text: impl Into<String>) -> Self {
        Self { field: None, text: text.into() }
    }

    fn of(mut self, field: &str) -> Self {
        self.field.get_or_insert_with(|| field.to_owned());
        self
    }

    fn refusal(self) -> Error {
        Error::refused_with(Code::InvalidInput, self.to_string())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "property '{field}': {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

impl std::error::Error for Problem {}

impl serde::ser::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Problem::new(message.to_string())
    }
}

impl serde::de::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Problem::new(message.to_string())
    }
}

impl Serialize for Guid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(GUID, &self.to_string())
    }
}

impl Serialize for DateTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(DATE_TIME, &self.to_string())
    }
}

impl Serialize for Binary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Bytes<'a>(&'a [u8]);
        impl Serialize for Bytes<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_bytes(self.0)
            }
        }
        serializer.serialize_newtype_struct(BINARY, &Bytes(&self.0))
    }
}

impl<'de> Deserialize<'de> for Guid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(GUID, Text)?.parse().map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for DateTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(DATE_TIME, Text)?.parse().map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Binary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(BINARY, Bytes).map(Binary)
    }
}

/// A text, perhaps inside a newtype.
struct Text;

impl<'de> Visitor<'de> for Text {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<String, D::Error> {
        String::deserialize(inner)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}

/// Bytes, or a sequence of them, perhaps inside a newtype.
struct Bytes;

impl<'de> Visitor<'de> for Bytes {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<Vec<u8>, D::Error> {
        inner.deserialize_bytes(Bytes)
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_owned())
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<u8>, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = seq.next_element()? {
            bytes.push(byte);
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests;
