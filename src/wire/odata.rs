//! Entities as the Table service's JSON, both ways.
//!
//! Invariants
//! * an annotation `P@odata.type` counts whether it stands before or after `P`; `odata.*` members are ignored;
//! * a member named twice is refused, and a null is no property;
//! * what is written with types reads back as the same properties with the same types.
//!
//! Not here: limits on names, values and sizes (`model`), conditions (`exec`).

use std::borrow::Cow;

use base64::engine::{Engine as _, general_purpose::STANDARD as BASE64};

use super::double;
use super::json::{self, Scalar};
use crate::error::{Code, Error, Result};
use crate::model::{
    DateTime, DateTimeProblem, ETag, EdmType, Entity, KeyPart, SYSTEM_PROPERTIES, Value, ValueRef,
    out_of_range,
};

/// Members of one object, annotations included; far above what an entity can have, nulls and all.
const MEMBERS_MAX: usize = 4096;
/// Up to here names are compared each with each; beyond, sorted.
const SMALL: usize = 24;
const TYPE_SUFFIX: &str = "@odata.type";

/// What an entity is written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Metadata {
    /// `odata.etag`, where the entity has an ETag.
    pub(crate) etag: bool,
    /// `P@odata.type`, where JSON alone would not tell the type.
    pub(crate) types: bool,
    /// `Timestamp@odata.type`.
    pub(crate) timestamp_type: bool,
}

/// The members of an entity's JSON object, told apart but not yet interpreted.
#[derive(Debug)]
pub(crate) struct Members<'a> {
    values: Vec<(Cow<'a, str>, Scalar<'a>)>,
    /// Property names and the types that annotations give them.
    types: Vec<(Cow<'a, str>, Scalar<'a>)>,
}

impl Metadata {
    #[cfg(feature = "rest")]
    pub(super) const FULL: Metadata = Metadata { etag: true, types: true, timestamp_type: true };
    pub(crate) const MINIMAL: Metadata =
        Metadata { etag: true, types: true, timestamp_type: false };
    pub(crate) const TYPES: Metadata = Metadata { etag: false, types: true, timestamp_type: false };
    pub(crate) const NONE: Metadata = Metadata { etag: false, types: false, timestamp_type: false };
}

/// Reads an entity that carries its keys.
///
/// # Errors
/// The service's codes: `InvalidInput`, `PropertiesNeedValue`, `DuplicatePropertiesSpecified`, `TooManyProperties`,
/// and `OutOfRangeInput` for a point in time out of range.
pub(crate) fn read_entity(text: &str) -> Result<Entity> {
    let members = Members::read(text)?;
    let partition_key = members.key(KeyPart::PartitionKey)?;
    let row_key = members.key(KeyPart::RowKey)?;
    members.entity(partition_key, row_key)
}

/// Appends `entity` as a JSON object; with `select`, its members alone, absent ones as null.
pub(crate) fn put_entity(
    out: &mut Vec<u8>,
    entity: &Entity,
    select: Option<&[String]>,
    metadata: Metadata,
) {
    let mut writer = Writer::begin(out, metadata);
    writer.etag(entity);
    writer.members(entity, select);
    writer.end();
}

impl<'a> Members<'a> {
    /// Reads one JSON object and nothing after it.
    pub(crate) fn read(text: &'a str) -> Result<Members<'a>> {
        let mut members = Members { values: Vec::new(), types: Vec::new() };
        let read = json::read_object(text, MEMBERS_MAX + 1)?;
        if read.len() > MEMBERS_MAX {
            return Err(Error::refused(Code::TooManyProperties));
        }
        for (name, value) in read {
            let value = Scalar::read(value)?;
            if let Some(property) = name.strip_suffix(TYPE_SUFFIX) {
                members.types.push((property.to_owned().into(), value));
            } else if !name.starts_with("odata.") {
                members.values.push((name, value));
            }
        }
        if has_repeats(&members.values) || has_repeats(&members.types) {
            return Err(Error::refused(Code::DuplicatePropertiesSpecified));
        }
        Ok(members)
    }

    /// A key that the object must have.
    pub(crate) fn key(&self, part: KeyPart) -> Result<&str> {
        match self.find(part.name()) {
            Some(Scalar::String(key)) => match self.type_of(part.name())? {
                None | Some(EdmType::String) => Ok(key),
                Some(_) => Err(not_a(part.name(), "Edm.String")),
            },
            None | Some(Scalar::Null) => Err(Error::refused(Code::PropertiesNeedValue)),
            Some(_) => Err(not_a(part.name(), "Edm.String")),
        }
    }

    /// The text of a member as it stands in the JSON, a string without its quotes; for templates of keys.
    pub(crate) fn raw(&self, name: &str) -> Option<&str> {
        match self.find(name)? {
            Scalar::String(text) => Some(text),
            Scalar::Number(text) => Some(text),
            Scalar::Boolean(true) => Some("true"),
            Scalar::Boolean(false) => Some("false"),
            Scalar::Null | Scalar::Nested => None,
        }
    }

    /// The entity with these keys and the object's other members.
    pub(crate) fn entity(&self, partition_key: &str, row_key: &str) -> Result<Entity> {
        let mut entity = Entity::new(partition_key, row_key);
        for (name, value) in &self.values {
            if SYSTEM_PROPERTIES.contains(&&**name) || *value == Scalar::Null {
                continue;
            }
            entity.set(&**name, interpret(name, value, self.type_of(name)?)?);
        }
        Ok(entity)
    }

    fn find(&self, name: &str) -> Option<&Scalar<'a>> {
        self.values.iter().find(|(member, _)| member == name).map(|(_, value)| value)
    }

    fn type_of(&self, name: &str) -> Result<Option<EdmType>> {
        let Some((_, annotation)) = self.types.iter().find(|(property, _)| property == name) else {
            return Ok(None);
        };
        let known = match annotation {
            Scalar::String(name) => EdmType::from_name(name),
            _ => None,
        };
        let unknown = || invalid(format!("The type of property '{name}' is not an EDM type."));
        known.map(Some).ok_or_else(unknown)
    }
}

fn has_repeats(members: &[(Cow<'_, str>, Scalar<'_>)]) -> bool {
    let names = members.iter().map(|(name, _)| &**name);
    if members.len() <= SMALL {
        return names.enumerate().any(|(i, name)| members.iter().take(i).any(|m| m.0 == name));
    }
    let mut sorted: Vec<_> = names.collect();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair.first() == pair.last())
}

/// The value of property `name`, of the annotated type or of the one that its JSON implies.
fn interpret(name: &str, value: &Scalar<'_>, annotated: Option<EdmType>) -> Result<Value> {
    let edm = match (annotated, value) {
        (Some(edm), _) => edm,
        (None, Scalar::String(_)) => EdmType::String,
        (None, Scalar::Boolean(_)) => EdmType::Boolean,
        (None, Scalar::Number(text)) if is_integer(text) => EdmType::Int32,
        (None, Scalar::Number(_)) => EdmType::Double,
        (None, Scalar::Null | Scalar::Nested) => {
            return Err(invalid(format!("Property '{name}' is an array or object.")));
        }
    };
    let interpreted = match (edm, value) {
        (EdmType::Boolean, Scalar::Boolean(value)) => Some(Value::Boolean(*value)),
        (EdmType::Int32, Scalar::Number(text)) => text.parse().ok().map(Value::Int32),
        (EdmType::Int64, Scalar::Number(text)) => text.parse().ok().map(Value::Int64),
        (EdmType::Double, Scalar::Number(text)) => double::parse_finite(text).map(Value::Double),
        (_, Scalar::String(text)) => return interpret_text(name, text, edm),
        _ => None,
    };
    interpreted.ok_or_else(|| not_a(name, edm.name()))
}

fn interpret_text(name: &str, text: &str, edm: EdmType) -> Result<Value> {
    let value = match edm {
        EdmType::String => Some(Value::String(text.to_owned())),
        EdmType::Binary => BASE64.decode(text).ok().map(Value::Binary),
        EdmType::Boolean => text.parse().ok().map(Value::Boolean),
        EdmType::Int32 => integer(text).and_then(|text| text.parse().ok()).map(Value::Int32),
        EdmType::Int64 => integer(text).and_then(|text| text.parse().ok()).map(Value::Int64),
        EdmType::Double => double::parse(text).map(Value::Double),
        EdmType::Guid => text.parse().ok().map(Value::Guid),
        EdmType::DateTime => match DateTime::parse(text) {
            Ok(time) => Some(Value::DateTime(time)),
            Err(DateTimeProblem::OutOfRange(time)) => return Err(out_of_range(name, &time)),
            Err(DateTimeProblem::Malformed) => None,
        },
    };
    value.ok_or_else(|| not_a(name, edm.name()))
}

/// True of a JSON number without a fraction and an exponent.
fn is_integer(number: &str) -> bool {
    !number.contains(['.', 'e', 'E'])
}

/// `text`, if it spells an integer as JSON would: Rust's parser alone would take a plus sign.
fn integer(text: &str) -> Option<&str> {
    (!text.starts_with('+')).then_some(text)
}

fn invalid(message: String) -> Error {
    Error::refused_with(Code::InvalidInput, message)
}

fn not_a(name: &str, edm: &str) -> Error {
    invalid(format!("The value of property '{name}' is not of type {edm}."))
}

/// An entity that is being written.
pub(super) struct Writer<'o> {
    out: &'o mut Vec<u8>,
    metadata: Metadata,
    first: bool,
}

impl<'o> Writer<'o> {
    pub(super) fn begin(out: &'o mut Vec<u8>, metadata: Metadata) -> Self {
        out.push(b'{');
        Self { out, metadata, first: true }
    }

    pub(super) fn end(self) {
        self.out.push(b'}');
    }

    /// `odata.etag`, if it is asked for and there is one.
    pub(super) fn etag(&mut self, entity: &Entity) {
        if let Some(etag) = entity.etag().filter(|_| self.metadata.etag) {
            put_etag(self.name("odata.etag"), etag);
        }
    }

    /// Keys, Timestamp and properties; with `select`, those alone, absent ones as null.
    pub(super) fn members(&mut self, entity: &Entity, select: Option<&[String]>) {
        let selected = |name: &str| select.is_none_or(|names| names.iter().any(|n| n == name));
        if selected("PartitionKey") {
            self.text("PartitionKey", entity.partition_key());
        }
        if selected("RowKey") {
            self.text("RowKey", entity.row_key());
        }
        if let Some(time) = entity.timestamp().filter(|_| selected("Timestamp")) {
            if self.metadata.timestamp_type {
                self.type_of("Timestamp", EdmType::DateTime);
            }
            put_value(self.name("Timestamp"), ValueRef::DateTime(time));
        }
        let Some(names) = select else {
            return entity.properties().for_each(|(name, value)| self.property(name, value));
        };
        for (i, name) in names.iter().enumerate() {
            let repeated = names.iter().take(i).any(|earlier| earlier == name);
            if repeated || SYSTEM_PROPERTIES.contains(&name.as_str()) {
                continue;
            }
            match entity.value(name) {
                Some(value) => self.property(name, value),
                None => self.name(name).extend_from_slice(b"null"),
            }
        }
    }

    /// Writes a member's name; its value goes into what is returned.
    pub(super) fn name(&mut self, name: &str) -> &mut Vec<u8> {
        if !std::mem::replace(&mut self.first, false) {
            self.out.push(b',');
        }
        json::put_string(self.out, name);
        self.out.push(b':');
        self.out
    }

    pub(super) fn text(&mut self, name: &str, text: &str) {
        json::put_string(self.name(name), text);
    }

    fn property(&mut self, name: &str, value: ValueRef<'_>) {
        if self.metadata.types && needs_type(value) {
            self.type_of(name, value.edm_type());
        }
        put_value(self.name(name), value);
    }

    fn type_of(&mut self, name: &str, edm: EdmType) {
        let out = self.name(name);
        // The name's closing quote and colon give way to the rest of the annotation's name.
        out.truncate(out.len().saturating_sub(2));
        out.extend_from_slice(TYPE_SUFFIX.as_bytes());
        out.extend_from_slice(b"\":\"");
        out.extend_from_slice(edm.name().as_bytes());
        out.push(b'"');
    }
}

/// Appends an ETag as a JSON string, whose quotes are all that needs an escape in it.
fn put_etag(out: &mut Vec<u8>, etag: ETag) {
    let text = DateTime::from(etag.seq()).text();
    out.extend_from_slice(b"\"W/\\\"datetime'");
    for (i, part) in text.as_str().split(':').enumerate() {
        if i > 0 {
            out.extend_from_slice(b"%3A");
        }
        out.extend_from_slice(part.as_bytes());
    }
    out.extend_from_slice(b"'\\\"\"");
}

/// Whether JSON alone would not tell the type.
fn needs_type(value: ValueRef<'_>) -> bool {
    match value {
        ValueRef::String(_) | ValueRef::Boolean(_) | ValueRef::Int32(_) => false,
        ValueRef::Double(value) => !value.is_finite(),
        ValueRef::Int64(_) | ValueRef::DateTime(_) | ValueRef::Guid(_) | ValueRef::Binary(_) => {
            true
        }
    }
}

/// Appends `value` as JSON.
fn put_value(out: &mut Vec<u8>, value: ValueRef<'_>) {
    match value {
        ValueRef::String(text) => return json::put_string(out, text),
        ValueRef::Boolean(_) | ValueRef::Int32(_) => return put_text(out, value),
        ValueRef::Double(number) if number.is_finite() => return put_text(out, value),
        _ => {}
    }
    out.push(b'"');
    put_text(out, value);
    out.push(b'"');
}

/// Appends `value` as plain text, as people and CSV have it.
pub(crate) fn put_text(out: &mut Vec<u8>, value: ValueRef<'_>) {
    match value {
        ValueRef::String(text) => out.extend_from_slice(text.as_bytes()),
        ValueRef::Binary(bytes) => out.extend_from_slice(BASE64.encode(bytes).as_bytes()),
        ValueRef::Boolean(value) => {
            out.extend_from_slice(if value { b"true" } else { b"false" });
        }
        ValueRef::Double(value) => double::put(out, value),
        ValueRef::Int32(value) => json::put_integer(out, value.into()),
        ValueRef::Int64(value) => json::put_integer(out, value),
        ValueRef::DateTime(value) => out.extend_from_slice(value.text().as_str().as_bytes()),
        ValueRef::Guid(value) => out.extend_from_slice(value.to_string().as_bytes()),
    }
}

#[cfg(test)]
#[path = "odata_tests.rs"]
mod tests;
