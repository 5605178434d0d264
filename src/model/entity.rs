//! Implements entities. An entity has a PartitionKey, a RowKey, typed properties, and the ETag of
//! the state that was read.
//!
//! Invariants
//! * names of properties are distinct and in ascending order, however the entity was created;
//! * the body of an entity read from a row was checked when the entity was created, so its
//!   accessors cannot fail;
//! * an entity is checked against the limits when it is converted to a row, not before.
//!
//! `convert` converts values, `project` makes projections, and `json` implements the JSON form.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::convert::{FromValue, IntoProperty, no_property, other_type};
use super::datetime::DateTime;
use super::etag::ETag;
use super::limits::{self, KeyPart};
use super::row::{Body, NewRow, Row, RowRef, ShapeRef};
use super::row_limits;
use super::seq::Seq;
use super::shape::{Outline, Shape, Walk};
use super::shapes::{Interned, Numbers, ShapeList, Shapes};
use super::value::{EdmType, Value, ValueRef, utf16_len, utf16_units, utf16_unrank_in_place};
use crate::codec::{DecodeError, is_ascii, utf8};
use crate::error::{Error, Result, quoted};
use crate::sort::SortedMap;

/// When the first property is added, memory for this many properties is allocated, so that further
/// properties rarely reallocate. Memory for a name of `NAME_ROOM` bytes is allocated for each of
/// them, too.
const PROPERTIES_ROOM: usize = 8;
const NAME_ROOM: usize = 10;

/// A set of typed properties under a PartitionKey and a RowKey.
///
/// Two entities are equal if their keys and properties are equal; ETags are ignored.
///
/// An entity accepts any properties. If they violate the limits of the data model, a write of the
/// entity is refused.
#[derive(Clone)]
pub struct Entity {
    repr: Repr,
    version: Version,
}

/// The state of an entity that was read.
#[derive(Clone)]
enum Version {
    /// The entity was not read from a table.
    None,
    /// The commit of this engine that wrote the entity.
    Seq(Seq),
    /// The ETag and Timestamp that another store sent.
    #[cfg(feature = "remote")]
    Received(Box<(Option<ETag>, Option<DateTime>)>),
}

#[derive(Clone)]
enum Repr {
    Built(Built),
    Stored(Stored),
}

/// The properties of an entity created by a caller: each value is stored separately.
#[derive(Clone, Default)]
struct Built {
    pk: String,
    rk: String,
    /// All names in order, concatenated in one allocation. A [`Shape`] stores its names in the same
    /// way.
    names: String,
    /// For each property in order of names: the end of the name in `names`, and the value.
    properties: Vec<(usize, Value)>,
    /// Boxed, because entities rarely have any.
    refused: Option<Box<Refused>>,
}

/// The properties that were last set to something that is no value, and the errors. A write of the
/// entity returns the first of them.
#[derive(Clone, Default)]
struct Refused(SortedMap<String, Error>);

/// An entity read from a row: a shared shape, and one allocation with both keys and the body.
#[derive(Clone)]
struct Stored {
    shape: Arc<Shape>,
    /// The start of the RowKey in `bytes`.
    pk_end: usize,
    /// The start of the body in `bytes`.
    rk_end: usize,
    bytes: Box<[u8]>,
}

/// An iterator over the properties of an entity, by name.
enum Properties<'e> {
    /// The remaining names begin at `start`.
    Built {
        names: &'e str,
        start: usize,
        list: std::slice::Iter<'e, (usize, Value)>,
    },
    Stored(Walk<'e, 'e>),
}

impl Entity {
    /// Creates an entity without properties.
    pub fn new(partition_key: impl Into<String>, row_key: impl Into<String>) -> Self {
        let (pk, rk) = (partition_key.into(), row_key.into());
        Self { repr: Repr::Built(Built { pk, rk, ..Built::default() }), version: Version::None }
    }

    /// Returns the entity with this property set. With `None`, the entity does not have the
    /// property.
    ///
    /// Integers of up to 32 bits with a sign, and of up to 16 without, are stored as Int32; `i64`
    /// and `u32` as Int64; `f32` and `f64` as Double. A `u64`, `usize` or `isize` may be outside of
    /// Int64: convert it by `i64::try_from`.
    ///
    /// With the features `time`, `chrono` and `uuid`, the times and UUIDs of these crates are
    /// stored as DateTime and Guid. A time is rounded down to a multiple of 100 ns. If a time is
    /// before the year 1601 or after the year 9999, writes of the entity are refused with
    /// `OutOfRangeInput`.
    ///
    /// ```
    /// use rowstone::Entity;
    /// let (port, weight, coating): (u16, f32, Option<&str>) = (8080, 0.5, None);
    /// let part = Entity::new("bolts", "m4x20").with("Port", port).with("Weight", weight);
    /// let part = part.with("Coating", coating).with("Length", Some(20u32));
    /// assert_eq!((part.get::<u16>("Port").unwrap(), part.len()), (8080, 3));
    /// ```
    #[must_use]
    #[inline]
    pub fn with(mut self, name: impl AsRef<str>, value: impl IntoProperty) -> Self {
        self.set(name, value);
        self
    }

    /// Sets a property; its type may change. `None` removes the property.
    #[inline]
    pub fn set(&mut self, name: impl AsRef<str>, value: impl IntoProperty) -> &mut Self {
        let (built, name) = (self.built(), name.as_ref());
        match value.into_property() {
            Ok(Some(value)) => built.set(name, value),
            Ok(None) => drop(built.remove(name)),
            Err(error) => built.refuse(name, error),
        }
        self
    }

    /// Removes a property and returns its value.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        self.built().remove(name)
    }

    /// Returns the property with this name as a Rust value: `f64`, `String`, `&str`,
    /// `Option<bool>`, ….
    ///
    /// An Int32 can also be read as `i64` and as `f64`, and an Int32 or Int64 as any other integer
    /// that its value fits. A Double read as `f32` is rounded.
    ///
    /// # Errors
    /// `NotFound` if there is no such property and `T` is not an `Option`; `InvalidInput` if its
    /// type does not fit, or if it was set to a time that a property cannot have.
    pub fn get<'a, T: FromValue<'a>>(&'a self, name: &str) -> Result<T> {
        let Some(value) = self.value(name) else {
            if let Repr::Built(Built { refused: Some(refused), .. }) = &self.repr {
                refused.check(Some(name))?;
            }
            return T::from_absent().ok_or_else(|| no_property(name));
        };
        T::from_value(value).ok_or_else(|| other_type(name, value.edm_type(), T::EXPECTED))
    }

    /// Returns the property with this name.
    pub fn value(&self, name: &str) -> Option<ValueRef<'_>> {
        match &self.repr {
            Repr::Built(built) => Some(built.properties[built.find(name).ok()?].1.as_ref()),
            Repr::Stored(stored) => {
                stored.shape.value(stored.body(), stored.shape.find(name)?).ok()
            }
        }
    }

    /// Iterates over names and values, in order of names.
    #[inline]
    pub fn properties(&self) -> impl Iterator<Item = (&str, ValueRef<'_>)> {
        match &self.repr {
            Repr::Built(Built { names, properties, .. }) => {
                Properties::Built { names, start: 0, list: properties.iter() }
            }
            Repr::Stored(stored) => Properties::Stored(stored.shape.walk(stored.body())),
        }
    }

    /// Returns the number of properties, without the keys and the Timestamp.
    pub fn len(&self) -> usize {
        match &self.repr {
            Repr::Built(built) => built.properties.len(),
            Repr::Stored(stored) => stored.shape.len(),
        }
    }

    /// Whether there are no properties except the keys and the Timestamp.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the PartitionKey.
    pub fn partition_key(&self) -> &str {
        match &self.repr {
            Repr::Built(built) => &built.pk,
            Repr::Stored(stored) => stored.text(0, stored.pk_end),
        }
    }

    /// Returns the RowKey.
    pub fn row_key(&self) -> &str {
        match &self.repr {
            Repr::Built(built) => &built.rk,
            Repr::Stored(stored) => stored.text(stored.pk_end, stored.rk_end),
        }
    }

    /// Returns the ETag with which the entity was read; `None` if it was not read from a table.
    pub fn etag(&self) -> Option<ETag> {
        match &self.version {
            Version::None => None,
            Version::Seq(seq) => Some(ETag::from(*seq)),
            #[cfg(feature = "remote")]
            Version::Received(received) => received.0.clone(),
        }
    }

    /// Returns the time of the write; `None` if the entity was not read from a table.
    pub fn timestamp(&self) -> Option<DateTime> {
        match &self.version {
            Version::None => None,
            Version::Seq(seq) => Some(DateTime::from(*seq)),
            #[cfg(feature = "remote")]
            Version::Received(received) => received.1,
        }
    }

    /// Sets the ETag and the Timestamp that another store sent.
    #[cfg(feature = "remote")]
    pub(crate) fn received(mut self, etag: Option<ETag>, timestamp: Option<DateTime>) -> Self {
        self.version = Version::Received(Box::new((etag, timestamp)));
        self
    }

    /// Checks the names of the properties, and that no value was refused.
    #[cfg(feature = "remote")]
    pub(crate) fn check_names(&self) -> Result<()> {
        if let Repr::Built(Built { refused: Some(refused), .. }) = &self.repr {
            refused.check(None)?;
        }
        self.properties().try_for_each(|(name, _)| limits::check_property_name(name))
    }

    /// Returns the size that counts against the limits of an entity and of a group, in bytes.
    pub fn size(&self) -> usize {
        match &self.repr {
            Repr::Stored(stored) => {
                let shape = &stored.shape;
                // The shape knows the fixed part of the size. Only the sizes of texts and binaries
                // are missing.
                let sizes = (0..shape.len()).map(|index| match shape.property(index).1 {
                    EdmType::String => 2 * shape.raw(stored.body(), index).map_or(0, utf16_units),
                    EdmType::Binary => shape.raw(stored.body(), index).map_or(0, <[u8]>::len),
                    _ => 0,
                });
                4 + 2 * self.key_units() + shape.size_base() + sizes.sum::<usize>()
            }
            Repr::Built(built) => {
                let sizes = built.properties.iter().map(|(_, value)| {
                    let value = value.as_ref();
                    limits::property_size_base(0, value.edm_type()) + limits::variable_size(value)
                });
                4 + 2 * (self.key_units() + utf16_len(&built.names)) + sizes.sum::<usize>()
            }
        }
    }

    /// Returns an upper bound of [`size`](Self::size) without reading texts: a text has no more
    /// UTF-16 units than UTF-8 bytes.
    pub(crate) fn size_at_most(&self) -> usize {
        let (keys, base, texts) = match &self.repr {
            Repr::Stored(stored) => {
                (stored.rk_end, stored.shape.size_base(), stored.bytes.len() - stored.rk_end)
            }
            Repr::Built(built) => {
                let mut sums = (built.pk.len() + built.rk.len(), 2 * built.names.len(), 0);
                for (_, value) in &built.properties {
                    let value = value.as_ref();
                    sums.1 += limits::property_size_base(0, value.edm_type());
                    sums.2 += value.variable_bytes().len();
                }
                sums
            }
        };
        4 + 2 * keys + base + 2 * texts
    }

    /// Returns PartitionKey and RowKey in UTF-8.
    pub(crate) fn key_bytes(&self) -> (&[u8], &[u8]) {
        match &self.repr {
            Repr::Built(built) => (built.pk.as_bytes(), built.rk.as_bytes()),
            Repr::Stored(stored) => {
                let (keys, pk_end) = (&stored.bytes[..stored.rk_end], stored.pk_end);
                (&keys[..pk_end], &keys[pk_end..])
            }
        }
    }

    /// Returns the number of UTF-16 units of both keys.
    fn key_units(&self) -> usize {
        utf16_len(self.partition_key()) + utf16_len(self.row_key())
    }

    /// Returns an entity with the same properties and other keys, without an ETag.
    pub(crate) fn with_keys(&self, partition_key: &str, row_key: &str) -> Entity {
        let repr = match &self.repr {
            Repr::Stored(stored) => {
                let (pk_end, rk_end) = (partition_key.len(), partition_key.len() + row_key.len());
                let parts = [partition_key.as_bytes(), row_key.as_bytes(), stored.body()];
                let bytes = parts.concat().into_boxed_slice();
                Repr::Stored(Stored { shape: Arc::clone(&stored.shape), pk_end, rk_end, bytes })
            }
            Repr::Built(built) => {
                let (pk, rk) = (partition_key.to_owned(), row_key.to_owned());
                Repr::Built(Built { pk, rk, ..built.clone() })
            }
        };
        Entity { repr, version: Version::None }
    }

    /// Whether the properties are equal in types and values. Doubles are compared bit by bit: a NaN
    /// equals itself, and the two zeros differ.
    pub(crate) fn has_properties_of(&self, other: &Entity) -> bool {
        let same = |(a, b): ((&str, ValueRef<'_>), (&str, ValueRef<'_>))| {
            let values = match (a.1, b.1) {
                (ValueRef::Double(a), ValueRef::Double(b)) => a.to_bits() == b.to_bits(),
                (a, b) => a == b,
            };
            a.0 == b.0 && values
        };
        self.len() == other.len() && self.properties().zip(other.properties()).all(same)
    }

    #[inline]
    fn built(&mut self) -> &mut Built {
        if let Repr::Stored(_) = self.repr {
            self.separate_values();
        }
        match &mut self.repr {
            Repr::Built(built) => built,
            Repr::Stored(_) => unreachable!("replaced above"),
        }
    }

    #[cold]
    fn separate_values(&mut self) {
        let (pk, rk) = (self.partition_key().to_owned(), self.row_key().to_owned());
        let mut built = Built { pk, rk, ..Built::default() };
        self.properties().for_each(|(name, value)| built.set(name, value.to_value()));
        self.repr = Repr::Built(built);
    }
}

/// Conversion between entities and rows.
impl Entity {
    /// Returns the entity as a row. Checks all limits of the data model.
    pub(crate) fn to_row(&self, shapes: &Shapes) -> Result<Row> {
        limits::check_key(KeyPart::PartitionKey, self.partition_key())?;
        limits::check_key(KeyPart::RowKey, self.row_key())?;
        self.to_row_of_checked_keys(shapes)
    }

    /// As [`to_row`](Self::to_row). Requires: the keys were checked.
    pub(crate) fn to_row_of_checked_keys(&self, shapes: &Shapes) -> Result<Row> {
        let NewRow { shape, body, .. } = self.to_new_row(&mut Numbers::new(shapes))?;
        let body = match body {
            Body::Owned(body) => body,
            body => body.as_slice().to_vec(),
        };
        Ok(Row { shape: Arc::clone(shape.arc()), body })
    }

    /// Returns the row to be written, which borrows from the entity where possible. Requires: the
    /// keys were checked.
    pub(crate) fn to_new_row<'e>(&'e self, numbers: &mut Numbers<'_, 'e>) -> Result<NewRow<'e>> {
        let (pk, rk) = self.key_bytes();
        let key_units_max = pk.len() + rk.len();
        match &self.repr {
            Repr::Stored(stored) => {
                let row = stored.row();
                row_limits::check_row_limits(key_units_max, || Ok(self.key_units()), &row)?;
                let number = numbers.of(&stored.shape);
                Ok(NewRow { number, shape: row.shape, body: Body::Borrowed(row.body) })
            }
            Repr::Built(built) => {
                built.refused.as_ref().map_or(Ok(()), |refused| refused.check(None))?;
                let Interned { shape, id } = numbers.shapes.intern_outline(built.outline());
                let values = built.properties.iter().map(|(_, value)| value.as_ref());
                let key_units = || self.key_units();
                let body_bytes =
                    row_limits::check_values(key_units_max, key_units, &shape, values.clone())?;
                let mut body = Vec::with_capacity(body_bytes);
                shape.encode_body(values, &mut body);
                Ok(NewRow { number: id, shape: ShapeRef::Own(shape), body: Body::Owned(body) })
            }
        }
    }

    /// Appends the body of the row to be written to `out`, and returns the index of its shape in
    /// `shapes`. After an error nothing is appended. Requires: the keys were checked.
    pub(super) fn append_row(&self, shapes: &mut ShapeList, out: &mut Vec<u8>) -> Result<usize> {
        let (pk, rk) = self.key_bytes();
        let key_units_max = pk.len() + rk.len();
        match &self.repr {
            Repr::Stored(stored) => {
                let (row, shape) = (stored.row(), &stored.shape);
                row_limits::check_row_limits(key_units_max, || Ok(self.key_units()), &row)?;
                out.extend_from_slice(row.body);
                let is = |other: &Arc<Shape>| Arc::ptr_eq(other, shape) || other == shape;
                Ok(shapes.place(is, || Arc::clone(shape)))
            }
            Repr::Built(built) => {
                built.refused.as_ref().map_or(Ok(()), |refused| refused.check(None))?;
                let outline = built.outline();
                let place =
                    shapes.place(|shape| outline.fits(shape), || Arc::new(outline.to_shape()));
                let shape = shapes.get(place);
                let values = built.properties.iter().map(|(_, value)| value.as_ref());
                let key_units = || self.key_units();
                let body_bytes =
                    row_limits::check_values(key_units_max, key_units, shape, values.clone())?;
                out.reserve(body_bytes);
                shape.encode_body(values, out);
                Ok(place)
            }
        }
    }

    /// As [`to_new_row`](Self::to_new_row), but the row takes over the entity's allocation instead
    /// of borrowing from it.
    pub(crate) fn into_new_row(self, shapes: &Shapes) -> Result<NewRow<'static>> {
        let NewRow { number, shape, body } = self.to_new_row(&mut Numbers::new(shapes))?;
        let shape = ShapeRef::Own(Arc::clone(shape.arc()));
        let owned = match body {
            Body::Owned(body) => Some(body),
            _ => None,
        };
        let body = match (owned, self.repr) {
            (Some(body), _) => Body::Owned(body),
            (None, Repr::Stored(stored)) => Body::Tail(stored.bytes, stored.rk_end),
            (None, Repr::Built(_)) => unreachable!("its body was made for it"),
        };
        Ok(NewRow { number, shape, body })
    }

    /// Returns the entity of a row. `pk` and `rk` are the two parts of its user key, still encoded.
    pub(crate) fn from_row(
        pk: &[u8],
        rk: &[u8],
        seq: Seq,
        row: &RowRef<'_>,
    ) -> Result<Entity, DecodeError> {
        row.check()?;
        let (pk_end, rk_end) = (pk.len(), pk.len() + rk.len());
        let mut bytes = Vec::with_capacity(rk_end + row.body.len());
        bytes.extend_from_slice(pk);
        bytes.extend_from_slice(rk);
        let is_plain = is_ascii(&bytes);
        if !is_plain {
            utf16_unrank_in_place(&mut bytes);
        }
        bytes.extend_from_slice(row.body);
        let shape = Arc::clone(row.shape.arc());
        if !is_plain {
            return Ok(Self::from_parts(shape, pk_end, rk_end, bytes)?.at(seq));
        }
        Ok(Self::from_checked(shape, pk_end, rk_end, bytes).at(seq))
    }

    /// Creates an entity from `bytes`: PartitionKey up to `pk_end`, RowKey up to `rk_end`, then a
    /// checked body of `shape`.
    pub(super) fn from_parts(
        shape: Arc<Shape>,
        pk_end: usize,
        rk_end: usize,
        bytes: Vec<u8>,
    ) -> Result<Entity, DecodeError> {
        for (start, end) in [(0, pk_end), (pk_end, rk_end)] {
            if let Err(error) = utf8(&bytes[start..end]) {
                let at = start + error.valid_up_to();
                return Err(DecodeError::new("user key", at, "a key is not text"));
            }
        }
        Ok(Self::from_checked(shape, pk_end, rk_end, bytes))
    }

    /// As [`from_parts`](Self::from_parts). Requires: both keys were checked to be UTF-8.
    #[inline]
    pub(super) fn from_checked(
        shape: Arc<Shape>,
        pk_end: usize,
        rk_end: usize,
        bytes: Vec<u8>,
    ) -> Entity {
        let stored = Stored { shape, pk_end, rk_end, bytes: bytes.into_boxed_slice() };
        debug_assert_eq!(stored.row().check(), Ok(()));
        Entity { repr: Repr::Stored(stored), version: Version::None }
    }

    /// Sets the Seq of the commit that wrote the entity.
    pub(crate) fn at(mut self, seq: Seq) -> Self {
        self.version = Version::Seq(seq);
        self
    }
}

impl Built {
    #[inline]
    fn name(&self, index: usize) -> &str {
        &self.names[self.name_start(index)..self.properties[index].0]
    }

    #[inline]
    fn name_start(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.properties[before].0)
    }

    /// Returns the index of the property with this name, or its insertion point.
    fn find(&self, name: &str) -> std::result::Result<usize, usize> {
        let (mut low, mut high) = (0, self.properties.len());
        // If names are added in ascending order, as when they come from another entity, no search
        // is needed.
        if high > 0 && self.name(high - 1) < name {
            return Err(high);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            match self.name(middle).cmp(name) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    fn set(&mut self, name: &str, value: Value) {
        self.forget_refusal(name);
        let place = match self.find(name) {
            Ok(found) => {
                self.properties[found].1 = value;
                return;
            }
            Err(place) => place,
        };
        if self.properties.is_empty() {
            self.properties.reserve(PROPERTIES_ROOM);
            self.names.reserve(PROPERTIES_ROOM * NAME_ROOM);
        }
        if place == self.properties.len() {
            self.names.push_str(name);
            self.properties.push((self.names.len(), value));
            return;
        }
        let start = self.name_start(place);
        self.names.insert_str(start, name);
        self.properties.insert(place, (start, value));
        self.properties[place..].iter_mut().for_each(|(end, _)| *end += name.len());
    }

    /// Removes the property, and refuses writes of the entity until it is set or removed again.
    #[cold]
    fn refuse(&mut self, name: &str, error: Error) {
        self.remove(name);
        self.refused.get_or_insert_default().0.insert(name.to_owned(), error);
    }

    #[inline]
    fn forget_refusal(&mut self, name: &str) {
        if let Some(refused) = &mut self.refused {
            refused.0.remove(name);
        }
    }

    fn remove(&mut self, name: &str) -> Option<Value> {
        self.forget_refusal(name);
        let found = self.find(name).ok()?;
        self.names.drain(self.name_start(found)..self.properties[found].0);
        self.properties[found..].iter_mut().for_each(|(end, _)| *end -= name.len());
        Some(self.properties.remove(found).1)
    }

    /// Returns the names and types, which determine the shape.
    fn outline(&self) -> Outline<'_, impl ExactSizeIterator<Item = (usize, EdmType)> + Clone> {
        let types = self.properties.iter().map(|(end, value)| (*end, value.edm_type()));
        Outline { names: &self.names, types }
    }
}

impl Refused {
    /// Returns the error of the property `name`, or of the first one.
    fn check(&self, name: Option<&str>) -> Result<()> {
        let found = match name {
            Some(name) => self.0.iter().find(|(other, _)| *other == name),
            None => self.0.iter().next(),
        };
        match found {
            Some((name, error)) => Err(error.clone().about(|| quoted("property", name))),
            None => Ok(()),
        }
    }
}

impl Stored {
    fn body(&self) -> &[u8] {
        &self.bytes[self.rk_end..]
    }

    fn row(&self) -> RowRef<'_> {
        RowRef { shape: ShapeRef::Shared(&self.shape), body: self.body() }
    }

    /// Returns a part of the keys, which was checked to be valid text when the entity was created.
    fn text(&self, start: usize, end: usize) -> &str {
        utf8(&self.bytes[start..end]).unwrap_or_default()
    }
}

impl<'e> Iterator for Properties<'e> {
    type Item = (&'e str, ValueRef<'e>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Properties::Built { names, start, list } => {
                let (end, value) = list.next()?;
                let name = names.get(*start..*end)?;
                *start = *end;
                Some((name, value.as_ref()))
            }
            // The body was checked when the entity was created.
            Properties::Stored(walk) => walk.step().and_then(|(name, value)| Some((name, value?))),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Properties::Built { list, .. } => list.size_hint(),
            Properties::Stored(walk) => walk.size_hint(),
        }
    }
}

impl PartialEq for Entity {
    fn eq(&self, other: &Entity) -> bool {
        self.partition_key() == other.partition_key()
            && self.row_key() == other.row_key()
            && self.properties().eq(other.properties())
    }
}

impl fmt::Debug for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        map.entry(&"PartitionKey", &self.partition_key()).entry(&"RowKey", &self.row_key());
        if let Some(time) = self.timestamp() {
            map.entry(&"Timestamp", &time);
        }
        map.entries(self.properties()).finish()
    }
}

#[cfg(test)]
mod tests;
