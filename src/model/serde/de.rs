//! Converts the properties of an entity to a struct.

use serde::Deserializer;
use serde::de::value::{BorrowedStrDeserializer, SeqDeserializer};
use serde::de::{DeserializeSeed, Error as _, IntoDeserializer, MapAccess, Visitor};

use super::super::entity::Entity;
use super::super::value::ValueRef;
use super::problem::Problem;
use super::types::{BINARY, DATE_TIME, GUID};

type Result<T, E = Problem> = std::result::Result<T, E>;

/// Deserializes a struct or a map.
#[derive(Clone, Copy)]
pub(super) struct EntityDeserializer<'de>(pub(super) &'de Entity);

/// Iterates over names and values, in order.
struct Fields<'de, I> {
    list: I,
    current: Option<(&'de str, ValueRef<'de>)>,
}

/// Deserializes one value.
#[derive(Clone, Copy)]
struct ValueDeserializer<'de>(ValueRef<'de>);

impl<'de> Deserializer<'de> for EntityDeserializer<'de> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_map(Fields { list: self.0.properties(), current: None })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let keys = [
            ("PartitionKey", Some(ValueRef::String(self.0.partition_key()))),
            ("RowKey", Some(ValueRef::String(self.0.row_key()))),
            ("Timestamp", self.0.timestamp().map(ValueRef::DateTime)),
        ];
        let keys = keys.into_iter().filter(|(name, _)| fields.contains(name));
        let keys = keys.filter_map(|(name, value)| Some((name, value?)));
        visitor.visit_map(Fields { list: keys.chain(self.0.properties()), current: None })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_some(self)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        seq tuple
        tuple_struct map enum identifier ignored_any
    }
}

impl<'de, I: Iterator<Item = (&'de str, ValueRef<'de>)>> MapAccess<'de> for Fields<'de, I> {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        self.current = self.list.next();
        match self.current {
            Some((name, _)) => seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value> {
        let Some((name, value)) = self.current.take() else {
            return Err(Problem::new("a value was asked for before its name"));
        };
        seed.deserialize(ValueDeserializer(value)).map_err(|problem| problem.of(name))
    }
}

impl<'de> Deserializer<'de> for ValueDeserializer<'de> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            ValueRef::String(text) => visitor.visit_borrowed_str(text),
            ValueRef::Binary(bytes) => visitor.visit_borrowed_bytes(bytes),
            ValueRef::Boolean(value) => visitor.visit_bool(value),
            ValueRef::Int32(value) => visitor.visit_i32(value),
            ValueRef::Int64(value) => visitor.visit_i64(value),
            ValueRef::Double(value) => visitor.visit_f64(value),
            ValueRef::DateTime(time) => visitor.visit_string(time.to_string()),
            ValueRef::Guid(guid) => visitor.visit_string(guid.to_string()),
        }
    }

    /// A present property is always `Some`, because null values are not stored.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            ValueRef::Binary(bytes) => {
                visitor.visit_seq(SeqDeserializer::new(bytes.iter().copied()))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        let fits = match name {
            GUID => matches!(self.0, ValueRef::Guid(_)),
            DATE_TIME => matches!(self.0, ValueRef::DateTime(_)),
            BINARY => matches!(self.0, ValueRef::Binary(_)),
            _ => true,
        };
        if !fits {
            let wanted = name.trim_start_matches("$rowstone::");
            let text = format!("{} where Edm.{wanted} was expected", self.0.edm_type());
            return Err(Problem::custom(text));
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        match self.0 {
            ValueRef::String(text) => {
                text.into_deserializer().deserialize_enum(name, variants, visitor)
            }
            _ => self.deserialize_any(visitor),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct
        tuple tuple_struct map struct identifier ignored_any
    }
}
