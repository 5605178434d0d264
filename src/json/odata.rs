//! Reads and writes entities in the JSON format of Azure Table storage.
//!
//! Invariants
//! * an annotation `P@odata.type` may precede or follow `P`; `odata.*` members are ignored;
//! * a repeated member is refused, and a null is not a property;
//! * an entity written with its types reads back with the same properties and types.
//!
//! `model` checks the limits on names, values and sizes; `exec` parses ETags and other conditions.

use std::borrow::Cow;

use base64::engine::{Engine as _, general_purpose::STANDARD as BASE64};

use smallvec::SmallVec;

use super::double;
use super::scan;
#[cfg(feature = "remote")]
use super::scan::Scan;
use crate::error::{Code, Error, Result};
use crate::json::{self, Object, Scalar};
use crate::model::{
    DateTime, DateTimeProblem, EdmType, Entity, EntityEncoder, KeyPart, SYSTEM_PROPERTIES,
    ValueRef, check_property_name, out_of_range,
};
use crate::sort::sort_by;

/// The maximum number of members of an object, including annotations and nulls. It is far above the
/// maximum number of properties of an entity.
const MEMBERS_MAX: usize = 4096;
/// The maximum number of names among which duplicates are found by comparing all pairs. More names
/// are sorted.
const SMALL: usize = 24;
/// The number of members, without annotations, that are read without an allocation; most entities
/// have fewer.
const VALUES_ROOM: usize = 10;
/// The number of properties of which an entity is made without an allocation.
const PROPERTIES_ROOM: usize = 24;
/// The number of annotations that are read without an allocation.
const TYPES_ROOM: usize = 4;
const TYPE_SUFFIX: &str = "@odata.type";

/// The metadata written with an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Metadata {
    /// Whether to write `odata.etag` if the entity has an ETag.
    pub(crate) etag: bool,
    /// Whether to write `P@odata.type` if JSON alone does not determine the type of `P`.
    pub(crate) types: bool,
    /// Whether to write `Timestamp@odata.type`.
    pub(crate) timestamp_type: bool,
    /// Whether to write the type of each Double. Azurite takes 1.0 without it for an Int32.
    pub(crate) double_types: bool,
}

/// The members of an entity's JSON object, parsed but not yet interpreted.
#[derive(Debug, Default)]
pub(crate) struct Members<'a> {
    values: SmallVec<[Member<'a>; VALUES_ROOM]>,
    /// Property names and their annotated types.
    types: SmallVec<[Member<'a>; TYPES_ROOM]>,
    /// The member `odata.etag`, which clients read.
    #[cfg(feature = "remote")]
    etag: Option<Scalar<'a>>,
}

/// A value converted to the property's type. A binary is owned, because it is decoded from text.
enum Typed<'v> {
    Plain(ValueRef<'v>),
    Binary(Vec<u8>),
}

impl Metadata {
    pub(crate) const NONE: Metadata =
        Metadata { etag: false, types: false, timestamp_type: false, double_types: false };
    pub(crate) const TYPES: Metadata = Metadata { types: true, ..Self::NONE };
    pub(crate) const MINIMAL: Metadata = Metadata { etag: true, ..Self::TYPES };
    /// The metadata in requests to other services.
    #[cfg(feature = "remote")]
    pub(crate) const REQUEST: Metadata = Metadata { double_types: true, ..Self::TYPES };
}

/// Reads an entity that contains its keys.
///
/// # Errors
/// The service's codes: `InvalidInput`, `PropertiesNeedValue`, `DuplicatePropertiesSpecified`,
/// `TooManyProperties`, and `OutOfRangeInput` for a date and time out of range.
pub(crate) fn read_entity(text: &str) -> Result<Entity> {
    let members = Members::read(text)?;
    let partition_key = members.key(KeyPart::PartitionKey)?;
    let row_key = members.key(KeyPart::RowKey)?;
    members.entity(partition_key, row_key, &mut EntityEncoder::default())
}

/// Appends `entity` as a JSON object. With `select`, only the selected members are written; a
/// selected member that the entity lacks is null.
pub(crate) fn put_entity(
    out: &mut Vec<u8>,
    entity: &Entity,
    select: Option<&[String]>,
    metadata: Metadata,
) {
    json::put_object(out, |object| {
        metadata.put_etag(object, entity);
        metadata.put_members(object, entity, select);
    });
}

/// Returns `entity` as a JSON object, with all its members.
pub(crate) fn entity_text(entity: &Entity, metadata: Metadata) -> String {
    let mut json = Vec::new();
    put_entity(&mut json, entity, None, metadata);
    String::from_utf8(json).unwrap_or_default()
}

/// Reads the array in the member `value` of the object in `text`, which contains only objects, in
/// one pass if `scan` can read it. Passes the members of each of the first `most` objects to
/// `read`; returns `None` if the text is malformed, and if `read` does.
#[cfg(feature = "remote")]
pub(crate) fn read_page<'a, T>(
    text: &'a str,
    most: usize,
    mut read: impl FnMut(&Members<'a>) -> Option<T>,
) -> Option<Vec<T>> {
    let (mut found, mut members, mut layout) = (Vec::new(), Members::default(), Vec::new());
    let quick = scan::read_list(text, "value", most, |scan| {
        let start = *scan;
        if members.read_like(&layout, scan).is_none() {
            *scan = start;
            layout = members.read_other(scan)?;
        }
        found.push(read(&members)?);
        Some(())
    });
    if quick.is_some() {
        return Some(found);
    }
    let members = json::read_object(text, MEMBERS_MAX).ok()?;
    let (_, value) = members.into_iter().find(|(name, _)| name == "value")?;
    let list = json::read_array(value.get(), most).ok()?;
    list.into_iter().map(|item| read(&Members::read(item.get()).ok()?)).collect()
}

/// The names of the members of an object in order, and their places in [`Members`]. Objects of a
/// page mostly have the same.
#[cfg(feature = "remote")]
type Layout<'a> = Vec<(&'a str, Place)>;

/// A place in [`Members`].
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "remote"), expect(dead_code, reason = "only pages are read again by it"))]
enum Place {
    Value(usize),
    Type(usize),
    #[cfg(feature = "remote")]
    ETag,
    Ignored,
}

#[cfg(feature = "remote")]
impl<'a> Members<'a> {
    /// Parses the object at the position of `scan` in place of the present members, which have this
    /// layout. Returns `None` if the names of the object differ from the layout, or if `read` must
    /// parse it.
    fn read_like(&mut self, layout: &[(&str, Place)], scan: &mut Scan<'a>) -> Option<()> {
        scan.after(b'{').filter(|()| !layout.is_empty())?;
        for (index, (name, place)) in layout.iter().enumerate() {
            if index > 0 {
                scan.after(b',')?;
            }
            scan.known_name(name)?;
            let value = scan.value()?;
            match *place {
                Place::Value(at) => self.values.get_mut(at)?.1 = value,
                Place::Type(at) => self.types.get_mut(at)?.1 = value,
                Place::ETag => self.etag = Some(value),
                Place::Ignored => {}
            }
        }
        scan.after(b'}')
    }

    /// Parses the object at the position of `scan` in place of the present members, and returns its
    /// layout. Returns `None` if `read` must parse the object.
    fn read_other(&mut self, scan: &mut Scan<'a>) -> Option<Layout<'a>> {
        *self = Members::default();
        let (mut layout, mut has_escapes) = (Vec::new(), false);
        scan.object(MEMBERS_MAX, |name, value| {
            let raw = if let Cow::Borrowed(name) = name { Some(name) } else { None };
            let place = self.push(name, value);
            match raw {
                Some(raw) => layout.push((raw, place)),
                None => has_escapes = true,
            }
        })?;
        self.check_repeats().ok()?;
        // A name with escapes has other texts than the one that was read.
        if has_escapes {
            layout.clear();
        }
        Some(layout)
    }
}

impl<'a> Members<'a> {
    /// Parses one JSON object. Text after the object is an error, unless it is white space.
    pub(crate) fn read(text: &'a str) -> Result<Members<'a>> {
        let mut members = Members::default();
        let quick = scan::read_object(text, MEMBERS_MAX, |name, value| {
            members.push(name, value);
        });
        if quick.is_none() {
            members = Members::default();
            let read = json::read_object(text, MEMBERS_MAX + 1)?;
            if read.len() > MEMBERS_MAX {
                return Err(Error::refused(Code::TooManyProperties));
            }
            for (name, value) in read {
                members.push(name, Scalar::read(value)?);
            }
        }
        members.check_repeats()?;
        Ok(members)
    }

    /// Adds a member, and returns its place.
    fn push(&mut self, name: Cow<'a, str>, value: Scalar<'a>) -> Place {
        match name.strip_suffix(TYPE_SUFFIX).map(str::len) {
            Some(len) => {
                let property = match name {
                    Cow::Borrowed(name) => name.get(..len).unwrap_or_default().into(),
                    Cow::Owned(mut name) => {
                        name.truncate(len);
                        name.into()
                    }
                };
                self.types.push((property, value));
                Place::Type(self.types.len() - 1)
            }
            #[cfg(feature = "remote")]
            None if name == "odata.etag" => {
                self.etag = Some(value);
                Place::ETag
            }
            None if name.starts_with("odata.") => Place::Ignored,
            None => {
                self.values.push((name, value));
                Place::Value(self.values.len() - 1)
            }
        }
    }

    /// Returns the key `part`, which the object must contain.
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

    /// Returns the text of a member as written in the JSON, without the quotes of a string. Used by
    /// commands that build keys from templates.
    pub(crate) fn raw(&self, name: &str) -> Option<&str> {
        match self.find(name)? {
            Scalar::String(text) => Some(text),
            Scalar::Number(text) => Some(text),
            Scalar::Boolean(true) => Some("true"),
            Scalar::Boolean(false) => Some("false"),
            Scalar::Null | Scalar::Nested(_) => None,
        }
    }

    /// Returns the names of the members, without annotations.
    #[cfg(feature = "cli")]
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(|(name, _)| &**name)
    }

    /// Returns the entity with these keys and the object's other members. The limits of the data
    /// model are checked later, by the write.
    pub(crate) fn entity(
        &self,
        partition_key: &str,
        row_key: &str,
        encoder: &mut EntityEncoder,
    ) -> Result<Entity> {
        let mut values = SmallVec::<[_; PROPERTIES_ROOM]>::new();
        for property in self.properties() {
            values.push(property?);
        }
        let mut properties = SmallVec::<[_; PROPERTIES_ROOM]>::new();
        properties.extend(values.iter().map(|(name, value)| (*name, value.as_ref())));
        Ok(encoder.unchecked(partition_key, row_key, &mut properties))
    }

    /// Returns names and values of the members that become properties.
    fn properties(&self) -> impl Iterator<Item = Result<(&str, Typed<'_>)>> {
        self.values.iter().filter_map(|(name, value)| self.property(name, value).transpose())
    }

    /// Returns the property of a member; `None` if it is a null, which is not stored, or a system
    /// property.
    fn property<'v>(
        &self,
        name: &'v str,
        value: &'v Scalar<'_>,
    ) -> Result<Option<(&'v str, Typed<'v>)>> {
        match value {
            _ if SYSTEM_PROPERTIES.contains(&name) => Ok(None),
            Scalar::Null => check_property_name(name).map(|()| None),
            _ => Ok(Some((name, interpret(name, value, self.type_of(name)?)?))),
        }
    }

    /// Returns the first member that cannot be a property.
    #[cfg(feature = "cli")]
    pub(crate) fn unfit(&self) -> Option<(&str, &Scalar<'a>)> {
        let mut members = self.values.iter().map(|(name, value)| (&**name, value));
        members.find(|(name, value)| self.property(name, value).is_err())
    }

    /// Renames members with their annotations, then drops members, and annotates others. A member
    /// that gets the type String or Boolean may be a number, and a String is also the text of an
    /// array or object.
    pub(crate) fn adapt(
        &mut self,
        renames: &'a [(String, String)],
        dropped: &[String],
        types: &'a [(String, EdmType)],
    ) -> Result<()> {
        for name in self.values.iter_mut().chain(self.types.iter_mut()).map(|member| &mut member.0)
        {
            if let Some((_, new)) = renames.iter().find(|(old, _)| *old == **name) {
                *name = Cow::Borrowed(new);
            }
        }
        self.values.retain(|(name, _)| !dropped.iter().any(|dropped| *dropped == **name));
        self.types.retain(|(name, _)| !types.iter().any(|(typed, _)| *typed == **name));
        for (name, edm) in types {
            self.types.push((name.into(), Scalar::String(edm.name().into())));
            let value = self.values.iter_mut().find(|(member, _)| member == name);
            let Some((_, value)) = value else { continue };
            *value = match (edm, &*value) {
                (EdmType::String, Scalar::Number(text) | Scalar::Nested(text)) => {
                    Scalar::String((*text).into())
                }
                (EdmType::String, Scalar::Boolean(true)) => Scalar::String("true".into()),
                (EdmType::String, Scalar::Boolean(false)) => Scalar::String("false".into()),
                (EdmType::Boolean, Scalar::Number("0")) => Scalar::Boolean(false),
                (EdmType::Boolean, Scalar::Number("1")) => Scalar::Boolean(true),
                _ => continue,
            };
        }
        self.check_repeats()
    }

    /// Returns the text of `odata.etag`.
    #[cfg(feature = "remote")]
    pub(crate) fn etag(&self) -> Option<&str> {
        match &self.etag {
            Some(Scalar::String(text)) => Some(text),
            _ => None,
        }
    }

    fn check_repeats(&self) -> Result<()> {
        if has_repeats(&self.values) || has_repeats(&self.types) {
            return Err(Error::refused(Code::DuplicatePropertiesSpecified));
        }
        Ok(())
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Scalar<'a>> {
        self.values.iter().find(|(member, _)| member == name).map(|(_, value)| value)
    }

    pub(crate) fn type_of(&self, name: &str) -> Result<Option<EdmType>> {
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

/// A name and a value, or a property and its annotated type.
type Member<'a> = (Cow<'a, str>, Scalar<'a>);

fn has_repeats(members: &[Member<'_>]) -> bool {
    let names = members.iter().map(|(name, _)| &**name);
    if members.len() <= SMALL {
        return names.enumerate().any(|(i, name)| members.iter().take(i).any(|m| m.0 == name));
    }
    let mut sorted: Vec<_> = names.collect();
    sort_by(&mut sorted, Ord::cmp);
    sorted.windows(2).any(|pair| pair.first() == pair.last())
}

impl Typed<'_> {
    fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Typed::Plain(value) => *value,
            Typed::Binary(bytes) => ValueRef::Binary(bytes),
        }
    }
}

/// Converts the value of property `name` to the annotated type, or else to the type that its JSON
/// implies.
fn interpret<'v>(
    name: &str,
    value: &'v Scalar<'_>,
    annotated: Option<EdmType>,
) -> Result<Typed<'v>> {
    let edm = match (annotated, value) {
        (Some(edm), _) => edm,
        (None, Scalar::String(_)) => EdmType::String,
        (None, Scalar::Boolean(_)) => EdmType::Boolean,
        (None, Scalar::Number(text)) if is_integer(text) => EdmType::Int32,
        (None, Scalar::Number(_)) => EdmType::Double,
        (None, Scalar::Null | Scalar::Nested(_)) => {
            return Err(invalid(format!("Property '{name}' is an array or object.")));
        }
    };
    let interpreted = match (edm, value) {
        (EdmType::Boolean, Scalar::Boolean(value)) => Some(ValueRef::Boolean(*value)),
        (EdmType::Int32, Scalar::Number(text)) => text.parse().ok().map(ValueRef::Int32),
        (EdmType::Int64, Scalar::Number(text)) => text.parse().ok().map(ValueRef::Int64),
        (EdmType::Double, Scalar::Number(text)) => double::parse_finite(text).map(ValueRef::Double),
        (_, Scalar::String(text)) => return interpret_text(name, text, edm),
        _ => None,
    };
    interpreted.map(Typed::Plain).ok_or_else(|| not_a(name, edm.name()))
}

fn interpret_text<'v>(name: &str, text: &'v str, edm: EdmType) -> Result<Typed<'v>> {
    let value = match edm {
        EdmType::String => Some(ValueRef::String(text)),
        EdmType::Binary => {
            let bytes = BASE64.decode(text).map_err(|_| not_a(name, edm.name()));
            return bytes.map(Typed::Binary);
        }
        EdmType::Boolean => match text {
            "true" | "True" => Some(ValueRef::Boolean(true)),
            "false" | "False" => Some(ValueRef::Boolean(false)),
            _ => None,
        },
        EdmType::Int32 => integer(text).and_then(|text| text.parse().ok()).map(ValueRef::Int32),
        EdmType::Int64 => integer(text).and_then(|text| text.parse().ok()).map(ValueRef::Int64),
        EdmType::Double => double::parse(text).map(ValueRef::Double),
        EdmType::Guid => text.parse().ok().map(ValueRef::Guid),
        EdmType::DateTime => match DateTime::parse(text) {
            Ok(time) => Some(ValueRef::DateTime(time)),
            Err(DateTimeProblem::OutOfRange(time)) => return Err(out_of_range(name, &time)),
            Err(DateTimeProblem::Malformed) => None,
        },
    };
    value.map(Typed::Plain).ok_or_else(|| not_a(name, edm.name()))
}

/// True for a JSON number without fraction and exponent.
fn is_integer(number: &str) -> bool {
    !number.contains(['.', 'e', 'E'])
}

/// Returns `text` unless it has a plus sign, which Rust's parser accepts and JSON does not.
fn integer(text: &str) -> Option<&str> {
    (!text.starts_with('+')).then_some(text)
}

fn invalid(message: String) -> Error {
    Error::refused_with(Code::InvalidInput, message)
}

fn not_a(name: &str, edm: &str) -> Error {
    invalid(format!("The value of property '{name}' is not of type {edm}."))
}

impl Metadata {
    /// Writes `odata.etag`, if it is requested and the entity has an ETag.
    pub(crate) fn put_etag(self, object: &mut Object<'_>, entity: &Entity) {
        if let Some(etag) = entity.etag().filter(|_| self.etag) {
            object.text("odata.etag", &etag.to_string());
        }
    }

    /// Writes keys, Timestamp and properties. With `select`, only the selected members are written;
    /// a selected member that the entity lacks is null.
    pub(crate) fn put_members(
        self,
        object: &mut Object<'_>,
        entity: &Entity,
        select: Option<&[String]>,
    ) {
        let selected = |name: &str| select.is_none_or(|names| names.iter().any(|n| n == name));
        if selected("PartitionKey") {
            object.text("PartitionKey", entity.partition_key());
        }
        if selected("RowKey") {
            object.text("RowKey", entity.row_key());
        }
        if let Some(time) = entity.timestamp().filter(|_| selected("Timestamp")) {
            if self.timestamp_type {
                put_type(object.next_member(), "Timestamp", EdmType::DateTime);
            }
            put_value(object.name("Timestamp"), ValueRef::DateTime(time));
        }
        let Some(names) = select else {
            let properties = entity.properties();
            return properties.for_each(|(name, value)| self.put_property(object, name, value));
        };
        for (i, name) in names.iter().enumerate() {
            let repeated = names.iter().take(i).any(|earlier| earlier == name);
            if repeated || SYSTEM_PROPERTIES.contains(&name.as_str()) {
                continue;
            }
            match entity.value(name) {
                Some(value) => self.put_property(object, name, value),
                None if is_property(name) => object.name(name).extend_from_slice(b"null"),
                None => {}
            }
        }
    }

    fn put_property(self, object: &mut Object<'_>, name: &str, value: ValueRef<'_>) {
        let is_typed_double = self.double_types && value.edm_type() == EdmType::Double;
        if is_typed_double || self.types && needs_type(value) {
            put_type(object.next_member(), name, value.edm_type());
        }
        put_value(object.name(name), value);
    }
}

/// Appends the annotation of a property's type.
pub(crate) fn put_type(out: &mut Vec<u8>, name: &str, edm: EdmType) {
    json::put_string(out, name);
    // Replace the name's closing quote by the rest of the annotation's name.
    out.pop();
    for text in [TYPE_SUFFIX, "\":\"", edm.name(), "\""] {
        out.extend_from_slice(text.as_bytes());
    }
}

/// True if a property can have this name. If a selected name fails this test, the result omits it
/// instead of writing a null.
pub(crate) fn is_property(name: &str) -> bool {
    check_property_name(name).is_ok()
}

/// True if JSON alone does not determine the type.
fn needs_type(value: ValueRef<'_>) -> bool {
    match value {
        ValueRef::Double(value) => !value.is_finite(),
        value => is_annotated(value.edm_type()),
    }
}

/// True if JSON alone does not determine this type. For Double this returns false, although
/// infinite numbers and NaN need an annotation.
pub(crate) fn is_annotated(edm: EdmType) -> bool {
    match edm {
        EdmType::String | EdmType::Boolean | EdmType::Int32 | EdmType::Double => false,
        EdmType::Int64 | EdmType::DateTime | EdmType::Guid | EdmType::Binary => true,
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

/// Appends `value` as plain text, as shown to people and written to CSV.
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
