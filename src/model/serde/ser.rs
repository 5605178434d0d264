//! From a struct to the properties of an entity.

use serde::ser::{Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, Serializer};

use super::super::entity::Entity;
use super::super::limits::SYSTEM_PROPERTIES;
use super::super::value::Value;
use super::problem::Problem;
use super::types::{DATE_TIME, GUID};

type Result<T, E = Problem> = std::result::Result<T, E>;

/// Takes a struct, or a map with texts for keys.
pub(super) struct EntitySerializer(pub(super) Entity);

/// The fields that came so far.
pub(super) struct Fields {
    entity: Entity,
    key: String,
}

/// Takes one value; `None` is absence.
struct ValueSerializer;

/// Takes the bytes of a sequence.
struct ByteSequence(Vec<u8>);

/// Takes one byte of a sequence.
struct ByteSerializer;

/// Takes the key of a map.
struct KeySerializer;

impl Fields {
    fn set<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<()> {
        if SYSTEM_PROPERTIES.contains(&name) {
            return Ok(());
        }
        if let Some(value) = value.serialize(ValueSerializer).map_err(|problem| problem.of(name))? {
            self.entity.set(name, value);
        }
        Ok(())
    }
}

impl SerializeStruct for Fields {
    type Ok = Entity;
    type Error = Problem;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<()> {
        self.set(name, value)
    }

    fn end(self) -> Result<Entity> {
        Ok(self.entity)
    }
}

impl SerializeMap for Fields {
    type Ok = Entity;
    type Error = Problem;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<()> {
        self.key = key.serialize(KeySerializer)?;
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        let name = std::mem::take(&mut self.key);
        self.set(&name, value)
    }

    fn end(self) -> Result<Entity> {
        Ok(self.entity)
    }
}

impl SerializeSeq for ByteSequence {
    type Ok = Option<Value>;
    type Error = Problem;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, byte: &T) -> Result<()> {
        self.0.push(byte.serialize(ByteSerializer)?);
        Ok(())
    }

    fn end(self) -> Result<Option<Value>> {
        Ok(Some(Value::Binary(self.0)))
    }
}

/// Methods of a serializer that take a plain value and refuse it.
macro_rules! refuse {
    ($text:expr; $($method:ident($($argument:ty),*)),* $(,)?) => {
        $(fn $method(self, $(_: $argument),*) -> Result<Self::Ok> {
            Err(Problem::new($text))
        })*
    };
}

macro_rules! refuse_nested {
    ($text:expr) => {
        fn serialize_newtype_variant<T: Serialize + ?Sized>(
            self,
            _: &'static str,
            _: u32,
            _: &'static str,
            _: &T,
        ) -> Result<Self::Ok> {
            Err(Problem::new($text))
        }

        fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple> {
            Err(Problem::new($text))
        }

        fn serialize_tuple_struct(
            self,
            _: &'static str,
            _: usize,
        ) -> Result<Self::SerializeTupleStruct> {
            Err(Problem::new($text))
        }

        fn serialize_tuple_variant(
            self,
            _: &'static str,
            _: u32,
            _: &'static str,
            _: usize,
        ) -> Result<Self::SerializeTupleVariant> {
            Err(Problem::new($text))
        }

        fn serialize_struct_variant(
            self,
            _: &'static str,
            _: u32,
            _: &'static str,
            _: usize,
        ) -> Result<Self::SerializeStructVariant> {
            Err(Problem::new($text))
        }
    };
}

macro_rules! refuse_maps_and_sequences {
    ($text:expr) => {
        fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq> {
            Err(Problem::new($text))
        }

        refuse_maps!($text);
    };
}

macro_rules! refuse_maps {
    ($text:expr) => {
        fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap> {
            Err(Problem::new($text))
        }

        fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeStruct> {
            Err(Problem::new($text))
        }
    };
}

macro_rules! impossible {
    ($ok:ty: $($part:ident),*) => {
        $(type $part = Impossible<$ok, Problem>;)*
    };
}

const NOT_AN_ENTITY: &str = "only a struct or a map with texts for keys can be an entity";
const NOT_A_VALUE: &str = "nested values have no EDM type";
const NOT_A_BYTE: &str = "a sequence of anything but bytes has no EDM type";
const NOT_A_KEY: &str = "the names of properties are texts";

impl Serializer for EntitySerializer {
    type Ok = Entity;
    type Error = Problem;
    type SerializeMap = Fields;
    type SerializeStruct = Fields;
    impossible!(Entity: SerializeSeq, SerializeTuple, SerializeTupleStruct, SerializeTupleVariant,
        SerializeStructVariant);

    refuse!(NOT_AN_ENTITY; serialize_bool(bool), serialize_i8(i8), serialize_i16(i16),
        serialize_i32(i32), serialize_i64(i64), serialize_u8(u8), serialize_u16(u16),
        serialize_u32(u32), serialize_u64(u64), serialize_f32(f32), serialize_f64(f64),
        serialize_char(char), serialize_str(&str), serialize_bytes(&[u8]), serialize_none(),
        serialize_unit(), serialize_unit_variant(&'static str, u32, &'static str));
    refuse_nested!(NOT_AN_ENTITY);

    fn serialize_unit_struct(self, _: &'static str) -> Result<Entity> {
        Ok(self.0)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq> {
        Err(Problem::new(NOT_AN_ENTITY))
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Entity> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Entity> {
        value.serialize(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Fields> {
        Ok(Fields { entity: self.0, key: String::new() })
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Fields> {
        Ok(Fields { entity: self.0, key: String::new() })
    }
}

macro_rules! values {
    ($($method:ident($source:ty) $value:ident => $result:expr;)*) => {
        $(fn $method(self, $value: $source) -> Result<Option<Value>> {
            Ok(Some($result))
        })*
    };
}

impl Serializer for ValueSerializer {
    type Ok = Option<Value>;
    type Error = Problem;
    type SerializeSeq = ByteSequence;
    impossible!(Option<Value>: SerializeTuple, SerializeTupleStruct, SerializeTupleVariant,
        SerializeMap,
        SerializeStruct, SerializeStructVariant);

    values! {
        serialize_bool(bool) value => Value::Boolean(value);
        serialize_i8(i8) value => Value::Int32(value.into());
        serialize_i16(i16) value => Value::Int32(value.into());
        serialize_i32(i32) value => Value::Int32(value);
        serialize_i64(i64) value => Value::Int64(value);
        serialize_u8(u8) value => Value::Int32(value.into());
        serialize_u16(u16) value => Value::Int32(value.into());
        serialize_u32(u32) value => Value::Int64(value.into());
        serialize_f32(f32) value => Value::Double(value.into());
        serialize_f64(f64) value => Value::Double(value);
        serialize_char(char) value => Value::String(value.into());
        serialize_str(&str) value => Value::String(value.to_owned());
        serialize_bytes(&[u8]) value => Value::Binary(value.to_owned());
    }
    refuse_nested!(NOT_A_VALUE);
    refuse_maps!(NOT_A_VALUE);

    fn serialize_u64(self, value: u64) -> Result<Option<Value>> {
        match i64::try_from(value) {
            Ok(value) => Ok(Some(Value::Int64(value))),
            Err(_) => Err(Problem::new(format!("{value} is beyond Edm.Int64"))),
        }
    }

    fn serialize_none(self) -> Result<Option<Value>> {
        Ok(None)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Option<Value>> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Option<Value>> {
        Ok(None)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Option<Value>> {
        Ok(None)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<Option<Value>> {
        Ok(Some(Value::String(variant.to_owned())))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<Option<Value>> {
        let value = value.serialize(self)?;
        // Our own types come as what other formats get to see of them.
        let parsed = match (name, &value) {
            (GUID, Some(Value::String(text))) => text.parse().map(Value::Guid),
            (DATE_TIME, Some(Value::String(text))) => text.parse().map(Value::DateTime),
            _ => return Ok(value),
        };
        parsed.map(Some).map_err(|error| Problem::new(error.message()))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<ByteSequence> {
        Ok(ByteSequence(Vec::new()))
    }
}

impl Serializer for ByteSerializer {
    type Ok = u8;
    type Error = Problem;
    impossible!(u8: SerializeSeq, SerializeTuple, SerializeTupleStruct, SerializeTupleVariant,
        SerializeMap,
        SerializeStruct, SerializeStructVariant);

    fn serialize_u8(self, value: u8) -> Result<u8> {
        Ok(value)
    }

    refuse!(NOT_A_BYTE; serialize_bool(bool), serialize_i8(i8), serialize_i16(i16),
        serialize_i32(i32), serialize_i64(i64), serialize_u16(u16), serialize_u32(u32),
        serialize_u64(u64), serialize_f32(f32), serialize_f64(f64), serialize_char(char),
        serialize_str(&str), serialize_bytes(&[u8]), serialize_none(), serialize_unit(),
        serialize_unit_struct(&'static str), serialize_unit_variant(&'static str, u32,
        &'static str));
    refuse_nested!(NOT_A_BYTE);
    refuse_maps_and_sequences!(NOT_A_BYTE);

    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<u8> {
        Err(Problem::new(NOT_A_BYTE))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<u8> {
        value.serialize(self)
    }
}

impl Serializer for KeySerializer {
    type Ok = String;
    type Error = Problem;
    impossible!(String: SerializeSeq, SerializeTuple, SerializeTupleStruct,
        SerializeTupleVariant, SerializeMap,
        SerializeStruct, SerializeStructVariant);

    fn serialize_str(self, value: &str) -> Result<String> {
        Ok(value.to_owned())
    }

    fn serialize_char(self, value: char) -> Result<String> {
        Ok(value.into())
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<String> {
        Ok(variant.to_owned())
    }

    refuse!(NOT_A_KEY; serialize_bool(bool), serialize_i8(i8), serialize_i16(i16),
        serialize_i32(i32), serialize_i64(i64), serialize_u8(u8), serialize_u16(u16),
        serialize_u32(u32), serialize_u64(u64), serialize_f32(f32), serialize_f64(f64),
        serialize_bytes(&[u8]), serialize_none(), serialize_unit(),
        serialize_unit_struct(&'static str));
    refuse_nested!(NOT_A_KEY);
    refuse_maps_and_sequences!(NOT_A_KEY);

    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<String> {
        Err(Problem::new(NOT_A_KEY))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<String> {
        value.serialize(self)
    }
}
