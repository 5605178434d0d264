//! Shapes: the names and types of a row's properties, and the position of each value in the row's
//! body. FORMAT.md §row and §shape.
//!
//! Invariants
//! * names are distinct; properties are sorted and numbered in the order of their names in UTF-8;
//! * a shape and a body determine all values, and encoding the values of a checked body returns the
//!   same bytes;
//! * accessors are bounds-checked: a damaged body is a [`DecodeError`], never a panic.
//!
//! `format` encodes shapes and the shape number of a row.

mod place;
mod walk;

pub(crate) use place::Field;
pub(crate) use place::Place;
pub(crate) use walk::Walk;

use std::fmt;

use smallvec::SmallVec;

use super::datetime::DateTime;
use super::guid::Guid;
use super::limits;
use super::value::{EdmType, ValueRef, utf16_len};
use crate::codec::{DecodeError, is_ascii, same_short, utf8};

/// The names and types of the properties of a row.
#[derive(Clone)]
pub struct Shape {
    /// All names, concatenated.
    names: Box<str>,
    properties: Box<[Property]>,
    /// The total width of all values of fixed width, which are at the start of the body.
    fixed_bytes: usize,
    /// The number of properties of variable width.
    variables: usize,
    /// Offset and type of each value of fixed width whose bytes must be checked, because some bytes
    /// are invalid for its type, such as 2 for a Boolean.
    checked: Box<[(u32, EdmType)]>,
    size_base: usize,
    has_binary: bool,
    well_named: bool,
    hash: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Property {
    name_start: u32,
    name_end: u32,
    edm: EdmType,
    /// For a property of fixed width, the offset in the body. Otherwise the rank among the
    /// properties of variable width.
    place: u32,
}

/// The position of a value of variable width in the bodies of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VariablePlace {
    fixed_bytes: usize,
    variables: usize,
    rank: usize,
}

/// A body split into its parts; damaged parts are empty.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'b> {
    body: &'b [u8],
    /// The end offsets of the values of variable width. Each offset has `width` bytes.
    ends: &'b [u8],
    width: usize,
    /// All values of variable width, concatenated.
    variables: &'b [u8],
}

/// A hash that identifies a shape. It is computed from names and types in order, without building
/// the shape.
#[derive(Clone, Copy)]
pub(crate) struct ShapeHash(u64);

/// Names and types of a shape that may not exist yet.
#[derive(Clone)]
pub(crate) struct Outline<'n, T> {
    /// All names in order, concatenated.
    pub(crate) names: &'n str,
    /// The end of each name in `names`, and the type of its property.
    pub(crate) types: T,
}

const STRUCTURE: &str = "row body";

impl Shape {
    /// Creates the shape of properties with these names and types, in any order.
    ///
    /// Requires: the names are distinct, and shorter than 4 GiB together.
    pub(crate) fn new(mut properties: Vec<(Box<str>, EdmType)>) -> Shape {
        properties.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Shape::from_sorted(properties.iter().map(|(name, edm)| (&**name, *edm)))
    }

    /// As [`new`](Self::new), for names in ascending order.
    pub(crate) fn from_sorted<'n>(properties: impl Iterator<Item = (&'n str, EdmType)>) -> Shape {
        let mut names = String::new();
        let mut list = Vec::with_capacity(properties.size_hint().0);
        let (mut fixed_bytes, mut variables) = (0, 0);
        let (mut checked, mut well_named) = (Vec::new(), true);
        let (mut size_base, mut has_binary) = (0, false);
        for (name, edm) in properties {
            let name_start = names.len();
            names.push_str(name);
            let place;
            match edm.fixed_width() {
                Some(width) => (place, fixed_bytes) = (fixed_bytes, fixed_bytes + width),
                None => (place, variables) = (variables, variables + 1),
            }
            if matches!(edm, EdmType::Boolean | EdmType::DateTime) {
                checked.push((to_u32(place), edm));
            }
            has_binary |= edm == EdmType::Binary;
            well_named &= limits::check_property_name(name).is_ok();
            size_base += limits::property_size_base(utf16_len(name), edm);
            list.push(Property {
                name_start: to_u32(name_start),
                name_end: to_u32(names.len()),
                edm,
                place: to_u32(place),
            });
        }
        let types = list.iter().map(|p: &Property| (p.name_end as usize, p.edm));
        let hash = Outline { names: &names, types }.hash();
        let shape = Shape {
            names: names.into(),
            properties: list.into(),
            fixed_bytes,
            variables,
            checked: checked.into(),
            size_base,
            has_binary,
            well_named,
            hash: hash.0,
        };
        debug_assert!(shape.properties().is_sorted_by(|a, b| a.0 < b.0), "names must be distinct");
        shape
    }

    /// Returns the number of properties.
    pub fn len(&self) -> usize {
        self.properties.len()
    }

    /// Whether there are no properties.
    pub fn is_empty(&self) -> bool {
        self.properties.is_empty()
    }

    /// Returns name and type of property `index`. Requires: `index < len()`.
    #[inline]
    pub fn property(&self, index: usize) -> (&str, EdmType) {
        let property = self.properties[index];
        (self.name(property), property.edm)
    }

    /// Iterates over names and types, in order of names.
    pub fn properties(&self) -> impl ExactSizeIterator<Item = (&str, EdmType)> {
        self.properties.iter().map(|property| (self.name(*property), property.edm))
    }

    /// Returns the index of the property with this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.properties.binary_search_by(|property| self.name(*property).cmp(name)).ok()
    }

    #[inline]
    fn name(&self, property: Property) -> &str {
        &self.names[property.name_start as usize..property.name_end as usize]
    }

    /// Returns the hash that identifies the shape; collisions are possible.
    pub(crate) fn hash(&self) -> ShapeHash {
        ShapeHash(self.hash)
    }

    /// Whether all names are valid names of properties.
    pub(crate) fn is_well_named(&self) -> bool {
        self.well_named
    }

    /// Whether any property is of type Binary.
    pub(crate) fn has_binary(&self) -> bool {
        self.has_binary
    }

    /// Returns the part of the entity's size that all rows of the shape share: everything about the
    /// properties except their texts and binaries.
    pub(crate) fn size_base(&self) -> usize {
        self.size_base
    }

    /// Returns the length of a body with this many bytes of variable width.
    pub(crate) fn body_bytes(&self, variable_bytes: usize) -> usize {
        match self.variables {
            0 => self.fixed_bytes,
            count => self.fixed_bytes + 1 + count * offset_width(variable_bytes) + variable_bytes,
        }
    }

    /// Returns the memory that the shape uses, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let lists = size_of_val(&*self.properties) + size_of_val(&*self.checked);
        size_of::<Shape>() + self.names.len() + lists
    }

    /// Whether the shape has exactly these names and types, in this order.
    pub(crate) fn matches<'n>(
        &self,
        properties: impl ExactSizeIterator<Item = (&'n str, EdmType)>,
    ) -> bool {
        // The names that are not compared yet, concatenated.
        let mut names = self.names.as_bytes();
        let mut same = |(mine, (name, edm)): (&Property, (&str, EdmType))| {
            let len = (mine.name_end - mine.name_start) as usize;
            let Some((own, rest)) = names.split_at_checked(len) else { return false };
            names = rest;
            mine.edm == edm && same_short(own, name.as_bytes())
        };
        self.len() == properties.len() && self.properties.iter().zip(properties).all(&mut same)
    }
}

/// Methods that read and write the bodies of rows.
impl Shape {
    /// Returns the value of property `index`. Requires `index < len()`.
    #[inline]
    pub fn value<'b>(&self, body: &'b [u8], index: usize) -> Result<ValueRef<'b>, DecodeError> {
        let (edm, place) = self.place(index);
        match edm {
            EdmType::String => {
                let (at, bytes) = self.variable(body, place)?;
                text(at, bytes)
            }
            EdmType::Binary => Ok(ValueRef::Binary(self.variable(body, place)?.1)),
            edm => read_fixed(edm, body, place),
        }
    }

    /// Returns the offset of property `index` in a body. Requires: `index < len()`, and a fixed
    /// width.
    pub(crate) fn fixed_offset(&self, index: usize) -> usize {
        self.properties[index].place as usize
    }

    /// Returns the position of property `index` in a body. Requires: `index < len()`, and a
    /// variable width.
    pub(crate) fn variable_place(&self, index: usize) -> VariablePlace {
        let Shape { fixed_bytes, variables, .. } = *self;
        VariablePlace { fixed_bytes, variables, rank: self.properties[index].place as usize }
    }

    /// Returns the `N` bytes of a body at a fixed offset.
    #[inline]
    pub(crate) fn fixed_at<const N: usize>(
        body: &[u8],
        offset: usize,
    ) -> Result<[u8; N], DecodeError> {
        match body.get(offset..).and_then(|rest| rest.first_chunk()) {
            Some(bytes) => Ok(*bytes),
            None => Err(too_short(body)),
        }
    }

    /// Returns the stored bytes of property `index` without checking them; `None` if the body lacks
    /// them. Requires: `index < len()`.
    #[inline]
    pub(crate) fn raw<'b>(&self, body: &'b [u8], index: usize) -> Option<&'b [u8]> {
        let property = self.properties[index];
        let place = property.place as usize;
        match property.edm.fixed_width() {
            Some(width) => body.get(place..)?.get(..width),
            None => self.variable(body, place).ok().map(|(_, bytes)| bytes),
        }
    }

    /// Returns the length of the values of fixed width at the start of a body, in bytes.
    pub(crate) fn fixed_bytes(&self) -> usize {
        self.fixed_bytes
    }

    /// Iterates over the results of [`raw`](Self::raw) for each property of variable width, in
    /// order. The offsets are located only once.
    #[inline]
    pub(crate) fn raw_variables<'b>(
        &self,
        body: &'b [u8],
    ) -> impl Iterator<Item = Option<&'b [u8]>> {
        let fields = self.fields(body);
        (0..self.variables).map(move |rank| fields.variable(rank))
    }

    /// Splits a body into its parts, for callers that know the positions of the values.
    #[inline]
    pub(crate) fn fields<'b>(&self, body: &'b [u8]) -> Fields<'b> {
        let area = match self.variables {
            0 => None,
            count => variable_area(body, self.fixed_bytes, count).ok(),
        };
        let (width, data) = area.unwrap_or((1, body.len()));
        // If the end offsets are damaged, no value of variable width can be located.
        let ends = area.and_then(|_| body.get(self.fixed_bytes + 1..data)).unwrap_or_default();
        Fields { body, ends, width, variables: body.get(data..).unwrap_or_default() }
    }

    /// Returns the type of property `index`, and its position in [`Fields`]: an offset, or a rank
    /// among the properties of variable width. Requires: `index < len()`.
    #[inline]
    pub(crate) fn place(&self, index: usize) -> (EdmType, usize) {
        let property = self.properties[index];
        (property.edm, property.place as usize)
    }

    /// Returns all values, in the order of the names.
    pub(crate) fn values<'b>(
        &self,
        body: &'b [u8],
    ) -> impl Iterator<Item = Result<ValueRef<'b>, DecodeError>> + Clone {
        (0..self.len()).map(move |index| self.value(body, index))
    }

    /// Checks the whole body. If the check succeeds, no accessor fails on the body, and no other
    /// body encodes the same values.
    pub(crate) fn check(&self, body: &[u8]) -> Result<(), DecodeError> {
        self.check_whole(body).map(drop)
    }

    /// As [`check`](Self::check). Also returns the total length of all texts, in bytes, if they are
    /// ASCII and the shape has no Binary.
    pub(crate) fn checked_text_bytes(&self, body: &[u8]) -> Result<Option<usize>, DecodeError> {
        self.check_whole(body).map(|ascii_bytes| ascii_bytes.filter(|_| !self.has_binary()))
    }

    /// Checks the whole body. Also returns the total length of the values of variable width, in
    /// bytes, if all their bytes are ASCII.
    #[inline]
    fn check_whole(&self, body: &[u8]) -> Result<Option<usize>, DecodeError> {
        for (place, edm) in &self.checked {
            let value = body.get(*place as usize..).unwrap_or_default();
            let is_sound = match edm {
                EdmType::Boolean => value.first().is_some_and(|byte| *byte <= 1),
                _ => value
                    .first_chunk()
                    .is_some_and(|ticks| u64::from_le_bytes(*ticks) <= DateTime::MAX.ticks()),
            };
            if !is_sound {
                read_fixed(*edm, body, *place as usize)?;
            }
        }
        if self.variables == 0 {
            return if body.len() == self.fixed_bytes {
                Ok(Some(0))
            } else {
                Err(error(body.len().min(self.fixed_bytes), "length does not fit the shape"))
            };
        }
        let (width, data) = variable_area(body, self.fixed_bytes, self.variables)?;
        let bytes = body.get(data..).ok_or_else(|| too_short(body))?;
        let offsets = body.get(self.fixed_bytes + 1..data).unwrap_or_default();
        let end = match width {
            1 => last_end(offsets, |[byte]: &[u8; 1]| usize::from(*byte)),
            2 => last_end(offsets, |bytes| usize::from(u16::from_le_bytes(*bytes))),
            _ => last_end(offsets, |bytes| u32::from_le_bytes(*bytes) as usize),
        };
        let end = end.ok_or_else(|| error(self.fixed_bytes, "end offsets descend"))?;
        if end != bytes.len() || width != offset_width(end) {
            return Err(error(self.fixed_bytes, "end offsets do not fit the body"));
        }
        if is_ascii(bytes) {
            return Ok(Some(end)); // ASCII, so all texts are valid UTF-8
        }
        let texts = self.properties.iter().enumerate().filter(|(_, p)| p.edm == EdmType::String);
        for (index, _) in texts {
            self.value(body, index)?;
        }
        Ok(None)
    }

    /// Appends the body that contains `values`.
    ///
    /// Requires: one value of the right type per property, in the order of the names; the body is
    /// shorter than 4 GiB.
    pub(crate) fn encode_body<'v>(
        &self,
        values: impl Iterator<Item = ValueRef<'v>>,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        out.resize(start + self.fixed_bytes, 0);
        let mut fixed = &mut out[start..];
        let mut variables: SmallVec<[&[u8]; 8]> = SmallVec::new();
        for value in values {
            match value {
                ValueRef::String(text) => variables.push(text.as_bytes()),
                ValueRef::Binary(bytes) => variables.push(bytes),
                ValueRef::Boolean(value) => fill(&mut fixed, [u8::from(value)]),
                ValueRef::Int32(value) => fill(&mut fixed, value.to_le_bytes()),
                ValueRef::Int64(value) => fill(&mut fixed, value.to_le_bytes()),
                ValueRef::Double(value) => fill(&mut fixed, value.to_le_bytes()),
                ValueRef::DateTime(value) => fill(&mut fixed, value.ticks().to_le_bytes()),
                ValueRef::Guid(value) => fill(&mut fixed, *value.as_bytes()),
            }
        }
        debug_assert!(fixed.is_empty(), "a value for each property");
        if self.variables > 0 {
            put_variables(&variables, out);
        }
    }

    /// Appends a copy of `body` in which each value of `patch_body` replaces the value of the same
    /// property. Property `i` of `patch` is property `places[i]` of this shape. No value is
    /// decoded.
    ///
    /// Requires: these two properties have the same type for every `i`.
    pub(crate) fn encode_patched(
        &self,
        body: &[u8],
        patch: &Shape,
        patch_body: &[u8],
        places: &[usize],
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        let (fixed, start) =
            (body.get(..self.fixed_bytes).ok_or_else(|| too_short(body))?, out.len());
        let all_fixed = patch.variables == 0;
        out.extend_from_slice(if all_fixed { body } else { fixed });
        let mut variable: Vec<Option<&[u8]>> =
            vec![None; if all_fixed { 0 } else { self.variables }];
        for (index, &place) in places.iter().enumerate() {
            let value = patch.raw(patch_body, index).ok_or_else(|| too_short(patch_body))?;
            let place = self.properties[place];
            match place.edm.fixed_width() {
                Some(width) => out[start + place.place as usize..][..width].copy_from_slice(value),
                None => variable[place.place as usize] = Some(value),
            }
        }
        if all_fixed {
            return Ok(());
        }
        let old = |rank| self.variable(body, rank).map(|(_, bytes)| bytes);
        let values =
            variable.iter().enumerate().map(|(rank, new)| new.map_or_else(|| old(rank), Ok));
        put_variables(&values.collect::<Result<Vec<_>, _>>()?, out);
        Ok(())
    }

    /// Returns offset and bytes of the value of variable width with this rank.
    #[inline]
    fn variable<'b>(&self, body: &'b [u8], rank: usize) -> Result<(usize, &'b [u8]), DecodeError> {
        let Shape { fixed_bytes, variables, .. } = *self;
        VariablePlace { fixed_bytes, variables, rank }.find(body)
    }
}

impl<'b> Fields<'b> {
    /// Returns all values of variable width, concatenated.
    #[inline(always)]
    pub(crate) fn variables(&self) -> &'b [u8] {
        self.variables
    }

    /// Returns the bytes at an offset.
    #[inline(always)]
    pub(crate) fn fixed<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        bytes_at(self.body, at)
    }

    /// Returns the bytes of the value of variable width with this rank.
    #[inline(always)]
    pub(crate) fn variable(&self, rank: usize) -> Option<&'b [u8]> {
        let start = match rank.checked_sub(1) {
            Some(before) => self.end(before)?,
            None => 0,
        };
        self.variables().get(start..self.end(rank)?)
    }

    #[inline(always)]
    fn end(&self, rank: usize) -> Option<usize> {
        match self.width {
            1 => self.ends.get(rank).map(|end| usize::from(*end)),
            width => end_offset(self.ends, 0, width, rank).ok(),
        }
    }
}

impl VariablePlace {
    /// Returns the bytes of the value; text is not checked to be UTF-8.
    #[inline]
    pub(crate) fn read<'b>(&self, body: &'b [u8]) -> Result<&'b [u8], DecodeError> {
        self.find(body).map(|(_, bytes)| bytes)
    }

    #[inline]
    fn find<'b>(&self, body: &'b [u8]) -> Result<(usize, &'b [u8]), DecodeError> {
        let (width, data) = variable_area(body, self.fixed_bytes, self.variables)?;
        let offsets_at = self.fixed_bytes + 1;
        let start = match self.rank.checked_sub(1) {
            Some(before) => end_offset(body, offsets_at, width, before)?,
            None => 0,
        };
        let end = end_offset(body, offsets_at, width, self.rank)?;
        let bytes = body.get(data..).and_then(|bytes| bytes.get(start..end));
        let bytes =
            bytes.ok_or_else(|| error(self.fixed_bytes, "end offsets do not fit the body"))?;
        Ok((data + start, bytes))
    }
}

impl PartialEq for Shape {
    fn eq(&self, other: &Shape) -> bool {
        self.hash == other.hash && self.properties == other.properties && self.names == other.names
    }
}

impl Eq for Shape {}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.properties()).finish()
    }
}

impl<'n, T: ExactSizeIterator<Item = (usize, EdmType)> + Clone> Outline<'n, T> {
    /// Returns the hash that identifies the outlined shape; collisions are possible.
    pub(crate) fn hash(&self) -> ShapeHash {
        let names = crate::codec::hash(crate::codec::HashSeed(0), self.names.as_bytes());
        ShapeHash(self.types.clone().fold(names, |hash, (end, edm)| {
            // The odd multiplier spreads the input over the upper bits; the shift mixes them into
            // the lower ones.
            let mixed = (hash ^ (end as u64) << 8 ^ edm as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ mixed >> 29
        }))
    }

    /// Whether `shape` has exactly these names and types.
    pub(crate) fn fits(&self, shape: &Shape) -> bool {
        let mut properties = shape.properties.iter();
        self.types.len() == shape.len()
            && *self.names == *shape.names
            && self.types.clone().all(|(end, edm)| {
                properties.next().is_some_and(|p| p.name_end as usize == end && p.edm == edm)
            })
    }

    /// Builds the shape.
    pub(crate) fn to_shape(&self) -> Shape {
        let mut start = 0;
        Shape::from_sorted(self.types.clone().map(|(end, edm)| {
            let name = &self.names[start..end];
            start = end;
            (name, edm)
        }))
    }
}

impl ShapeHash {
    pub(crate) fn value(self) -> u64 {
        self.0
    }
}

/// Writes `value` at the start of `rest`, and advances `rest` past it.
#[inline]
fn fill<const N: usize>(rest: &mut &mut [u8], value: [u8; N]) {
    if let Some((place, behind)) = std::mem::take(rest).split_first_chunk_mut() {
        *place = value;
        *rest = behind;
    }
}

/// Appends the width of end offsets, the end offsets, and the bytes of the values of variable
/// width.
fn put_variables(values: &[&[u8]], out: &mut Vec<u8>) {
    let bytes = values.iter().map(|value| value.len()).sum();
    let width = offset_width(bytes);
    out.reserve(1 + values.len() * width + bytes);
    out.push(width as u8);
    let mut end = 0;
    for value in values {
        end += value.len();
        match width {
            1 => out.push(end as u8),
            _ => out.extend_from_slice(&to_u32(end).to_le_bytes()[..width]),
        }
    }
    for value in values {
        out.extend_from_slice(value);
    }
}

/// Returns the width of end offsets, and the start of the bytes after them.
#[inline]
fn variable_area(
    body: &[u8],
    fixed_bytes: usize,
    variables: usize,
) -> Result<(usize, usize), DecodeError> {
    let [width @ (1 | 2 | 4)] = Shape::fixed_at::<1>(body, fixed_bytes)? else {
        return Err(error(fixed_bytes, "the width of end offsets is not 1, 2 or 4"));
    };
    let width = usize::from(width);
    Ok((width, fixed_bytes + 1 + variables * width))
}

/// Returns the bytes at an offset.
#[inline(always)]
fn bytes_at<const N: usize>(body: &[u8], at: usize) -> Option<[u8; N]> {
    body.get(at..at + N)?.first_chunk().copied()
}

#[inline]
fn end_offset(
    body: &[u8],
    offsets_at: usize,
    width: usize,
    rank: usize,
) -> Result<usize, DecodeError> {
    let at = offsets_at + rank * width;
    Ok(match width {
        1 => usize::from(u8::from_le_bytes(Shape::fixed_at(body, at)?)),
        2 => usize::from(u16::from_le_bytes(Shape::fixed_at(body, at)?)),
        _ => u32::from_le_bytes(Shape::fixed_at(body, at)?) as usize,
    })
}

/// Reads a value of a type of fixed width.
#[inline]
fn read_fixed(edm: EdmType, body: &[u8], at: usize) -> Result<ValueRef<'static>, DecodeError> {
    Ok(match edm {
        EdmType::Boolean => match Shape::fixed_at(body, at)? {
            [0] => ValueRef::Boolean(false),
            [1] => ValueRef::Boolean(true),
            _ => return Err(error(at, "a boolean is neither 0 nor 1")),
        },
        EdmType::Int32 => ValueRef::Int32(i32::from_le_bytes(Shape::fixed_at(body, at)?)),
        EdmType::Int64 => ValueRef::Int64(i64::from_le_bytes(Shape::fixed_at(body, at)?)),
        EdmType::Double => ValueRef::Double(f64::from_le_bytes(Shape::fixed_at(body, at)?)),
        EdmType::DateTime => {
            let time = DateTime::from_ticks(u64::from_le_bytes(Shape::fixed_at(body, at)?));
            ValueRef::DateTime(time.ok_or_else(|| error(at, "a time is after the year 9999"))?)
        }
        EdmType::Guid => ValueRef::Guid(Guid::from_bytes(Shape::fixed_at(body, at)?)),
        EdmType::String | EdmType::Binary => return Err(error(at, "no fixed width")),
    })
}

/// Returns `bytes`, which begin at offset `at` of the body, as a text.
#[inline]
fn text(at: usize, bytes: &[u8]) -> Result<ValueRef<'_>, DecodeError> {
    match utf8(bytes) {
        Ok(text) => Ok(ValueRef::String(text)),
        Err(problem) => Err(error(at + problem.valid_up_to(), "text is not UTF-8")),
    }
}

/// Returns the last of the end offsets; `None` if one is less than its predecessor.
#[inline]
fn last_end<const N: usize>(offsets: &[u8], read: impl Fn(&[u8; N]) -> usize) -> Option<usize> {
    let mut end = 0;
    for bytes in offsets.as_chunks().0 {
        let next = read(bytes);
        if next < end {
            return None;
        }
        end = next;
    }
    Some(end)
}

/// Returns the minimum width in bytes that can represent the end offset `end`.
fn offset_width(end: usize) -> usize {
    match end {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        _ => 4,
    }
}

fn to_u32(value: usize) -> u32 {
    debug_assert!(u32::try_from(value).is_ok(), "limits are checked before anything is encoded");
    value as u32
}

#[cold]
fn too_short(body: &[u8]) -> DecodeError {
    error(body.len(), "shorter than its shape")
}

#[cold]
fn error(at: usize, problem: &'static str) -> DecodeError {
    DecodeError::new(STRUCTURE, at, problem)
}

#[cfg(test)]
mod tests;
