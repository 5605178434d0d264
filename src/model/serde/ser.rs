//! Converts a struct to the properties of an entity.

use serde::ser::{Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, Serializer};

use super::super::entity::Entity;
use super::super::limits::SYSTEM_PROPERTIES;
use super::super::value::Value;
use super::problem::Problem;
use super::types::{DATE_TIME, GUID};

type Result<T, E = Problem> = std::result::Result<T, E>;

/// Serializes a struct, or a map with texts as keys.
pub(super) struct EntitySerializer(pub(super) Entity);

/// The fields serialized so far.
pub(super) struct Fields {
    entity: Entity,
    key: String,
}

/// Serializes one value.
struct ValueSerializer;

/// A serialized value.
enum Given {
    /// A value, or `None` for an absent property.
    Value(Option<Value>),
    /// A `u8`: an Int32 if it is a field, one byte of a Binary if it is an element of a sequence.
    /// Sequences allow no other elements.
    Byte(u8),
    /// A sequence without elements, whose type shows whether the elements would be bytes.
    Empty,
}

/// Collects the bytes of a sequence.
struct ByteSequence(Vec<u8>);

impl Given {
    /// Serializes `value`. The type of an empty sequence decides whether it is a Binary.
    fn of<T: Serialize + ?Sized>(value: &T) -> Result<Given> {
        match value.serialize(ValueSerializer)? {
            Given::Empty if may_be_of_bytes(std::any::type_name::<T>()) => {
                Ok(Given::Value(Some(Value::Binary(Vec::new()))))
            }
            Given::Empty => Err(Problem::new(NOT_A_BYTE)),
            given => Ok(given),
        }
    }

    fn into_value(self) -> Option<Value> {
        match self {
            Given::Value(value) => value,
            Given::Empty => None,
            Given::Byte(byte) => Some(Value::Int32(byte.into())),
        }
    }
}

impl Fields {
    fn set<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<()> {
        if SYSTEM_PROPERTIES.contains(&name) {
            return Ok(());
        }
        let given = Given::of(value).map_err(|problem| problem.of(name))?;
        if let Some(value) = given.into_value() {
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
        self.key = match key.serialize(ValueSerializer) {
            Ok(Given::Value(Some(Value::String(text)))) => text,
            Ok(Given::Value(Some(Value::Guid(guid)))) => guid.to_string(),
            Ok(Given::Value(Some(Value::DateTime(time)))) => time.to_string(),
            _ => return Err(Problem::new(NOT_A_KEY)),
        };
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
    type Ok = Given;
    type Error = Problem;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, byte: &T) -> Result<()> {
        let Ok(Given::Byte(byte)) = byte.serialize(ValueSerializer) else {
            return Err(Problem::new(NOT_A_BYTE));
        };
        self.0.push(byte);
        Ok(())
    }

    fn end(self) -> Result<Given> {
        Ok(match self.0.is_empty() {
            true => Given::Empty,
            false => Given::Value(Some(Value::Binary(self.0))),
        })
    }
}

/// Whether the elements of a type with this name may be bytes. False only for a collection of the
/// standard library with another type of elements, such as `alloc::vec::Vec<i32>`. The elements of
/// any other type, such as a structure that is serialized like its only field, are unknown.
fn may_be_of_bytes(mut name: &str) -> bool {
    const COLLECTIONS: [&str; 4] =
        ["alloc::vec::Vec<", "alloc::collections::", "std::collections::", "["];
    const POINTERS: [&str; 8] = [
        "core::cell::Cell<",
        "core::cell::RefCell<",
        "&",
        "mut ",
        "alloc::boxed::Box<",
        "alloc::rc::Rc<",
        "alloc::sync::Arc<",
        "alloc::borrow::Cow<",
    ];
    while let Some(rest) = POINTERS.iter().find_map(|pointer| name.strip_prefix(pointer)) {
        name = rest;
    }
    if !COLLECTIONS.iter().any(|collection| name.starts_with(collection)) {
        return true;
    }
    let element = name.split_once(['<', '[']).and_then(|(_, element)| element.strip_prefix("u8"));
    element.is_some_and(|rest| rest.starts_with(['>', ']', ',', ';']))
}

/// Defines methods of a serializer that reject a plain value.
macro_rules! refuse {
    ($text:expr, $refused:ident; $($method:ident($($argument:ty),*)),* $(,)?) => {
        $(fn $method(self, $(_: $argument),*) -> Result<Self::$refused> {
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

        refuse!($text, SerializeTuple; serialize_tuple(usize));
        refuse!($text, SerializeTupleStruct; serialize_tuple_struct(&'static str, usize));
        refuse!($text, SerializeTupleVariant;
            serialize_tuple_variant(&'static str, u32, &'static str, usize));
        refuse!($text, SerializeStructVariant;
            serialize_struct_variant(&'static str, u32, &'static str, usize));
    };
}

macro_rules! impossible {
    ($ok:ty: $($part:ident),*) => {
        $(type $part = Impossible<$ok, Problem>;)*
    };
}

const NOT_AN_ENTITY: &str = "only a struct or a map with texts for keys can be an entity";
const NOT_A_VALUE: &str =
    "nested values have no EDM type; `#[serde(with = \"rowstone::json\")]` stores them as text";
const NOT_A_BYTE: &str = "a sequence of anything but bytes has no EDM type; \
                          `#[serde(with = \"rowstone::json\")]` stores it as text";
const NOT_A_KEY: &str = "the names of properties are texts";

impl Serializer for EntitySerializer {
    type Ok = Entity;
    type Error = Problem;
    type SerializeMap = Fields;
    type SerializeStruct = Fields;
    impossible!(Entity: SerializeSeq, SerializeTuple, SerializeTupleStruct, SerializeTupleVariant,
        SerializeStructVariant);

    refuse!(NOT_AN_ENTITY, Ok; serialize_bool(bool), serialize_i8(i8), serialize_i16(i16),
        serialize_i32(i32), serialize_i64(i64), serialize_u8(u8), serialize_u16(u16),
        serialize_u32(u32), serialize_u64(u64), serialize_f32(f32), serialize_f64(f64),
        serialize_char(char), serialize_str(&str), serialize_bytes(&[u8]), serialize_none(),
        serialize_unit(), serialize_unit_variant(&'static str, u32, &'static str));
    refuse!(NOT_AN_ENTITY, SerializeSeq; serialize_seq(Option<usize>));
    refuse_nested!(NOT_AN_ENTITY);

    fn serialize_unit_struct(self, _: &'static str) -> Result<Entity> {
        Ok(self.0)
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
        $(fn $method(self, $value: $source) -> Result<Given> {
            Ok(Given::Value(Some($result)))
        })*
    };
}

impl Serializer for ValueSerializer {
    type Ok = Given;
    type Error = Problem;
    type SerializeSeq = ByteSequence;
    impossible!(Given: SerializeTuple, SerializeTupleStruct, SerializeTupleVariant,
        SerializeMap,
        SerializeStruct, SerializeStructVariant);

    values! {
        serialize_bool(bool) value => Value::Boolean(value);
        serialize_i8(i8) value => Value::Int32(value.into());
        serialize_i16(i16) value => Value::Int32(value.into());
        serialize_i32(i32) value => Value::Int32(value);
        serialize_i64(i64) value => Value::Int64(value);
        serialize_u16(u16) value => Value::Int32(value.into());
        serialize_u32(u32) value => Value::Int64(value.into());
        serialize_f32(f32) value => Value::Double(value.into());
        serialize_f64(f64) value => Value::Double(value);
        serialize_char(char) value => Value::String(value.into());
        serialize_str(&str) value => Value::String(value.to_owned());
        serialize_bytes(&[u8]) value => Value::Binary(value.to_owned());
    }
    refuse!(NOT_A_VALUE, SerializeMap; serialize_map(Option<usize>));
    refuse!(NOT_A_VALUE, SerializeStruct; serialize_struct(&'static str, usize));
    refuse_nested!(NOT_A_VALUE);

    fn serialize_u8(self, value: u8) -> Result<Given> {
        Ok(Given::Byte(value))
    }

    fn serialize_u64(self, value: u64) -> Result<Given> {
        match i64::try_from(value) {
            Ok(value) => Ok(Given::Value(Some(Value::Int64(value)))),
            Err(_) => Err(Problem::new(format!("{value} is beyond Edm.Int64"))),
        }
    }

    fn serialize_none(self) -> Result<Given> {
        Ok(Given::Value(None))
    }

    /// A `u8` in an `Option` is an Int32, so it is refused as an element of a sequence.
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Given> {
        Given::of(value).map(|given| Given::Value(given.into_value()))
    }

    fn serialize_unit(self) -> Result<Given> {
        Ok(Given::Value(None))
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Given> {
        Ok(Given::Value(None))
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<Given> {
        Ok(Given::Value(Some(Value::String(variant.to_owned()))))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<Given> {
        let value = Given::of(value)?;
        // `Guid` and `DateTime` serialize themselves as texts, because other formats need texts.
        // Parse the texts back here.
        let parsed = match (name, &value) {
            (GUID, Given::Value(Some(Value::String(text)))) => text.parse().map(Value::Guid),
            (DATE_TIME, Given::Value(Some(Value::String(text)))) => {
                text.parse().map(Value::DateTime)
            }
            _ => return Ok(value),
        };
        parsed.map(|value| Given::Value(Some(value))).map_err(|error| Problem::new(error.message()))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<ByteSequence> {
        Ok(ByteSequence(Vec::new()))
    }
}
