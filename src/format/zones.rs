//! Encodes and reads zones, which summarize the rows of SST blocks, so that a scan can skip blocks.
//! FORMAT.md §zones.
//!
//! Invariants
//! * values are compared by order keys, which are integers that sort like the values
//!   ([`order_key`], [`head`]). Bounds are inclusive. Different long texts may have equal order
//!   keys;
//! * a [`ZoneSet`] borrows the encoded bytes. Parsing checks lengths once; accessors check bounds.
//!
//! `sst::zones` collects zones from rows; `query::prune` evaluates filters on them.

use std::ops::Range;

use crate::codec::{Cursor, DecodeError};
use crate::format::sparse_index::offsets;
#[cfg(feature = "cli")]
use crate::model::Value;
use crate::model::{DateTime, EdmType, Seq, utf16_rank};

/// The number of blocks that one page of zones describes. `query::prune` has one bit for each.
pub(crate) const ZONE_BLOCKS: usize = 64;
/// The maximum number of columns of a [`ZoneSet`].
pub(crate) const COLUMNS_MAX: usize = 32;
/// The maximum length of a property name in bytes. A property with a longer name gets no column.
/// Valid entities have only shorter names.
pub(crate) const NAME_BYTES_MAX: usize = 1024;
/// The maximum length of a column's prefix, the bytes with which all its texts begin.
pub(crate) const PREFIX_BYTES_MAX: usize = 255;
/// The number of bytes of a text that are in its order key. They follow the column's prefix.
pub(crate) const HEAD_BYTES: usize = 8;

/// The minimum and the maximum that are stored for a column if no row of the block has a value in
/// it.
pub(crate) const NO_VALUES: (u64, u64) = (u64::MAX, 0);

/// Flags of a zone, which describes one block or the whole file.
pub(crate) mod flag {
    /// The block has tombstones.
    pub(crate) const TOMBSTONES: u8 = 1;
    /// A user key has more than one version in the block.
    pub(crate) const VERSIONS: u8 = 2;
    /// The last user key has more versions in the next block.
    pub(crate) const GOES_ON: u8 = 4;
    /// The first user key has newer versions in the previous block.
    pub(crate) const BEGAN_BEFORE: u8 = 8;
}

/// States whether rows of a block have the column's property, in the column's type.
pub(crate) mod presence {
    /// At least one row has the property.
    pub(crate) const SOME: u8 = 1;
    /// Every put in the block has the property.
    pub(crate) const ALL: u8 = 2;
    /// At least one row has NaN in the property, which the bounds do not include.
    pub(crate) const NAN: u8 = 4;
}

/// The part of a zone that does not depend on columns, for one block or for the whole file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ZoneMeta {
    pub(crate) seq_min: Seq,
    pub(crate) seq_max: Seq,
    /// The number of entries of the block, including tombstones and older versions.
    pub(crate) entries: u32,
    /// Bits of [`flag`].
    pub(crate) flags: u8,
}

/// The presence of one column in one block, and the column's least and greatest order key in the
/// block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZoneValues {
    /// Bits of [`presence`].
    pub(crate) presence: u8,
    pub(crate) min: u64,
    pub(crate) max: u64,
}

/// A column to be encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ZoneColumn {
    pub(crate) name: Box<str>,
    pub(crate) edm: EdmType,
    pub(crate) prefix: Box<[u8]>,
    /// The values, one item for each block that the set describes.
    pub(crate) values: Vec<ZoneValues>,
}

/// The zones of several blocks or of a whole file, borrowed from the encoded bytes.
///
/// It has one entry per block, for up to [`ZONE_BLOCKS`] adjacent blocks, or one entry for the
/// whole file. A column has a property name and a type, and for each entry the least and the
/// greatest value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZoneSet<'a> {
    /// Whether every property of every row has a column. If not, a row may have a property without
    /// a column, or a property that has a column only for another type.
    pub(crate) is_complete: bool,
    /// The least Seq of each entry, as little-endian numbers.
    pub(crate) seq_min: &'a [[u8; 8]],
    /// The greatest Seq of each entry.
    pub(crate) seq_max: &'a [[u8; 8]],
    entries: &'a [[u8; 4]],
    flags: &'a [u8],
    /// Types, prefixes and names of the columns.
    descriptions: &'a [u8],
    values: &'a [u8],
}

/// A column of a [`ZoneSet`], borrowed from the encoded bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column<'a> {
    /// The property's name as stored; UTF-8 in a checked set.
    pub(crate) name: &'a [u8],
    pub(crate) edm: EdmType,
    /// The bytes with which all texts or byte strings of the column begin. Order keys are made from
    /// the bytes after this prefix.
    pub(crate) prefix: &'a [u8],
    /// The [`presence`] of each entry.
    pub(crate) presence: &'a [u8],
    /// The least order key of each entry, as little-endian numbers.
    pub(crate) min: &'a [[u8; 8]],
    /// The greatest order key of each entry.
    pub(crate) max: &'a [[u8; 8]],
}

/// The zone summary of a file: the positions of the pages of zones, and one set of zones for the
/// whole file.
#[derive(Clone, Debug)]
pub(crate) struct ZoneSummary {
    /// The start of each page, and the end of the last one.
    pub(crate) pages: Box<[u64]>,
    /// The offset in the summary at which the set for the whole file begins.
    pub(crate) set_at: usize,
}

const STRUCTURE: &str = "zones";
const STRUCTURE_SUMMARY: &str = "zone summary";
const COMPLETE: u8 = 1;
/// The number of bytes of a column per entry: presence, minimum, maximum.
const VALUES_BYTES: usize = 1 + 8 + 8;

/// Appends a set.
///
/// Requires: 1 to 64 entries, at most 32 columns in order of (name, type), names and prefixes
/// within their limits.
pub(crate) fn encode(
    metas: &[ZoneMeta],
    complete: bool,
    columns: &[ZoneColumn],
    out: &mut Vec<u8>,
) {
    let len8 = |len: usize| u8::try_from(len).unwrap_or(u8::MAX);
    out.extend_from_slice(&[len8(metas.len()), len8(columns.len()), u8::from(complete), 0]);
    let described = columns.iter().map(|column| 4 + column.name.len() + column.prefix.len());
    let described = u32::try_from(described.sum::<usize>()).unwrap_or(u32::MAX);
    out.extend_from_slice(&described.to_le_bytes());
    for ZoneColumn { name, edm, prefix, .. } in columns {
        out.extend_from_slice(&[*edm as u8, len8(prefix.len())]);
        out.extend_from_slice(&u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(prefix);
    }
    metas.iter().for_each(|meta| out.extend_from_slice(&meta.seq_min.0.to_le_bytes()));
    metas.iter().for_each(|meta| out.extend_from_slice(&meta.seq_max.0.to_le_bytes()));
    metas.iter().for_each(|meta| out.extend_from_slice(&meta.entries.to_le_bytes()));
    out.extend(metas.iter().map(|meta| meta.flags));
    for ZoneColumn { values, .. } in columns {
        out.extend(values.iter().map(|values| values.presence));
        values.iter().for_each(|values| out.extend_from_slice(&values.min.to_le_bytes()));
        values.iter().for_each(|values| out.extend_from_slice(&values.max.to_le_bytes()));
    }
}

impl<'a> ZoneSet<'a> {
    /// Parses the set that fills `bytes`.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(STRUCTURE, bytes);
        let (len, columns) = (usize::from(cursor.u8()?), usize::from(cursor.u8()?));
        let (complete, reserved, described) = (cursor.u8()?, cursor.u8()?, cursor.u32()?);
        if !(1..=ZONE_BLOCKS).contains(&len) || columns > COLUMNS_MAX {
            return Err(DecodeError::new(
                STRUCTURE,
                0,
                "impossible numbers of entries and columns",
            ));
        }
        if complete > COMPLETE || reserved != 0 {
            return Err(DecodeError::new(STRUCTURE, 2, "reserved bits in use"));
        }
        let descriptions_at = cursor.at();
        let descriptions = cursor.take(described as usize)?;
        let set = Self {
            is_complete: complete == COMPLETE,
            descriptions,
            seq_min: cursor.take(8 * len)?.as_chunks().0,
            seq_max: cursor.take(8 * len)?.as_chunks().0,
            entries: cursor.take(4 * len)?.as_chunks().0,
            flags: cursor.take(len)?,
            values: cursor.take(VALUES_BYTES * len * columns)?,
        };
        cursor.finish()?;
        check_descriptions(descriptions, columns)
            .map_err(|error| DecodeError { at: descriptions_at + error.at, ..error })?;
        Ok(set)
    }

    /// Returns the number of entries.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.flags.len()
    }

    /// Returns entry `i`; `None` beyond the last.
    pub(crate) fn meta(&self, i: usize) -> Option<ZoneMeta> {
        Some(ZoneMeta {
            seq_min: Seq(u64::from_le_bytes(*self.seq_min.get(i)?)),
            seq_max: Seq(u64::from_le_bytes(*self.seq_max.get(i)?)),
            entries: u32::from_le_bytes(*self.entries.get(i)?),
            flags: *self.flags.get(i)?,
        })
    }

    /// Returns all columns in order of name and type.
    pub(crate) fn columns(&self) -> impl Iterator<Item = Column<'a>> {
        let (len, values) = (self.len(), self.values);
        let parts = Descriptions(self.descriptions).zip(values.chunks_exact(VALUES_BYTES * len));
        parts.map(move |((edm, name, prefix), values)| {
            let (presence, bounds) = values.split_at_checked(len).unwrap_or_default();
            let (min, max) = bounds.split_at_checked(8 * len).unwrap_or_default();
            let (min, max) = (min.as_chunks().0, max.as_chunks().0);
            Column { name, edm, prefix, presence, min, max }
        })
    }

    /// Returns the columns of a property, one for each of its types.
    pub(crate) fn columns_named(&self, name: &str) -> impl Iterator<Item = Column<'a>> {
        self.columns().filter(move |column| column.name == name.as_bytes())
    }

    /// Checks rules on which the safety of readers does not depend: names are UTF-8, and bounds and
    /// flags have possible values.
    pub(crate) fn check(&self) -> Result<(), DecodeError> {
        let wrong = |problem| Err(DecodeError::new(STRUCTURE, 0, problem));
        let metas = (0..self.len()).filter_map(|i| self.meta(i));
        for meta in metas {
            if meta.seq_min > meta.seq_max || meta.seq_max > Seq::MAX || meta.entries == 0 {
                return wrong("impossible Seqs, or no entries");
            }
            if meta.flags >> 4 != 0 {
                return wrong("unknown flags");
            }
        }
        for column in self.columns() {
            if std::str::from_utf8(column.name).is_err() {
                return wrong("a name is not UTF-8");
            }
            if (0..self.len()).any(|i| !column.values(i).is_some_and(|it| it.is_sound(column.edm)))
            {
                return wrong("impossible presence or bounds");
            }
        }
        Ok(())
    }
}

impl<'a> Column<'a> {
    /// Returns entry `i`; `None` beyond the last.
    pub(crate) fn values(&self, i: usize) -> Option<ZoneValues> {
        Some(ZoneValues {
            presence: *self.presence.get(i)?,
            min: u64::from_le_bytes(*self.min.get(i)?),
            max: u64::from_le_bytes(*self.max.get(i)?),
        })
    }
}

impl ZoneValues {
    /// The values for a block in which no row has the property.
    pub(crate) const NONE: ZoneValues =
        ZoneValues { presence: 0, min: NO_VALUES.0, max: NO_VALUES.1 };

    fn is_sound(&self, edm: EdmType) -> bool {
        let has = |bits| self.presence & bits != 0;
        let known = self.presence >> 3 == 0 && (!has(presence::NAN) || edm == EdmType::Double);
        let (valued, empty) = (self.min <= self.max, (self.min, self.max) == NO_VALUES);
        match has(presence::SOME) {
            true => known && (valued || empty && has(presence::NAN)),
            false => self.presence == 0 && empty,
        }
    }
}

/// Iterates over types, names and prefixes of columns.
struct Descriptions<'a>(&'a [u8]);

impl<'a> Iterator for Descriptions<'a> {
    type Item = (EdmType, &'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let ([edm, prefix_len, name_len @ ..], rest) = self.0.split_first_chunk::<4>()?;
        let (name, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*name_len)))?;
        let (prefix, rest) = rest.split_at_checked(usize::from(*prefix_len))?;
        self.0 = rest;
        Some((EdmType::from_code(*edm)?, name, prefix))
    }
}

fn check_descriptions(bytes: &[u8], count: usize) -> Result<(), DecodeError> {
    let mut descriptions = Descriptions(bytes);
    let mut previous = None;
    for _ in 0..count {
        let at = bytes.len() - descriptions.0.len();
        let wrong = |problem| Err(DecodeError::new(STRUCTURE, at, problem));
        let Some((edm, name, prefix)) = descriptions.next() else {
            return wrong("a column of an unknown type, or cut short");
        };
        if name.len() > NAME_BYTES_MAX || !prefix.is_empty() && !is_cut_text(edm) {
            return wrong("a name is too long, or a type has no prefix");
        }
        if previous.is_some_and(|previous| previous >= (name, edm)) {
            return wrong("columns are not in order");
        }
        previous = Some((name, edm));
    }
    if !descriptions.0.is_empty() {
        let at = bytes.len() - descriptions.0.len();
        return Err(DecodeError::new(STRUCTURE, at, "bytes behind the columns"));
    }
    Ok(())
}

impl ZoneSummary {
    /// Appends the summary of a file. `set` is the encoded set whose only entry describes the whole
    /// file.
    pub(crate) fn encode(pages: &[u64], set: &[u8], out: &mut Vec<u8>) {
        let count = u32::try_from(pages.len() - 1).unwrap_or(u32::MAX);
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        pages.iter().for_each(|offset| out.extend_from_slice(&offset.to_le_bytes()));
        out.extend_from_slice(set);
    }

    /// Decodes the summary from `bytes`. The file has `blocks` blocks, and the pages of zones must
    /// fill the range `zones`.
    pub(crate) fn decode(
        bytes: &[u8],
        blocks: usize,
        zones: Range<u64>,
    ) -> Result<ZoneSummary, DecodeError> {
        let mut cursor = Cursor::new(STRUCTURE_SUMMARY, bytes);
        let (count, reserved) = (cursor.u32()? as usize, cursor.u32()?);
        if count != blocks.div_ceil(ZONE_BLOCKS) || reserved != 0 {
            return Err(
                cursor.error("not as many pages as the blocks need, or reserved bytes in use")
            );
        }
        let pages = offsets(&mut cursor, count, zones)?;
        let set_at = cursor.at();
        let set = ZoneSet::parse(cursor.rest())
            .map_err(|error| DecodeError { at: set_at + error.at, ..error })?;
        if set.len() != 1 {
            return Err(DecodeError::new(STRUCTURE_SUMMARY, set_at, "more than one entry"));
        }
        Ok(ZoneSummary { pages, set_at })
    }
}

/// Whether order keys of this type skip the column's common prefix.
#[inline]
pub(crate) fn is_cut_text(edm: EdmType) -> bool {
    matches!(edm, EdmType::String | EdmType::Binary)
}

/// Whether equal order keys of this type imply equal values.
#[inline]
pub(crate) fn is_exact(edm: EdmType) -> bool {
    !matches!(edm, EdmType::String | EdmType::Binary | EdmType::Guid)
}

/// Returns the order key of an Int32 or Int64.
#[inline]
pub(crate) fn int_key(value: i64) -> u64 {
    value.cast_unsigned() ^ 1 << 63
}

/// Returns the order key of a Double; `None` for NaN.
#[inline]
pub(crate) fn double_key(value: f64) -> Option<u64> {
    // Adding zero turns -0.0 into the equal 0.0.
    let bits = (value + 0.0).to_bits();
    let key = if bits >> 63 == 0 { bits | 1 << 63 } else { !bits };
    (!value.is_nan()).then_some(key)
}

/// Returns the order key of the bytes after a column's prefix in a text or byte string.
#[inline]
pub(crate) fn head(edm: EdmType, rest: &[u8]) -> u64 {
    let mut head = [0; HEAD_BYTES];
    let len = rest.len().min(HEAD_BYTES);
    head[..len].copy_from_slice(&rest[..len]);
    if edm == EdmType::String && !head.is_ascii() {
        head.iter_mut().for_each(|byte| *byte = utf16_rank(*byte));
    }
    bytes_key(head)
}

/// Returns the order key of eight bytes that compare lexicographically.
#[inline]
#[expect(clippy::big_endian_bytes, reason = "the first byte decides first")]
pub(crate) fn bytes_key(bytes: [u8; HEAD_BYTES]) -> u64 {
    u64::from_be_bytes(bytes)
}

/// Returns the order key of the fixed-width value at the start of `bytes`, except for a Double;
/// `None` if the value is damaged.
#[inline]
pub(crate) fn order_key(edm: EdmType, bytes: &[u8]) -> Option<u64> {
    let eight = || bytes.first_chunk().copied();
    match edm {
        EdmType::Int32 => Some(int_key(i32::from_le_bytes(bytes.first_chunk().copied()?).into())),
        EdmType::Int64 => Some(int_key(i64::from_le_bytes(eight()?))),
        EdmType::DateTime => {
            DateTime::from_ticks(u64::from_le_bytes(eight()?)).map(DateTime::ticks)
        }
        EdmType::Boolean => match bytes {
            [value @ (0 | 1), ..] => Some(u64::from(*value)),
            _ => None,
        },
        EdmType::Guid => Some(bytes_key(eight()?)),
        EdmType::Double | EdmType::String | EdmType::Binary => None,
    }
}

/// Returns the value with this order key; `None` for types with more values than order keys.
#[cfg(feature = "cli")]
pub(crate) fn value_of(edm: EdmType, key: u64) -> Option<Value> {
    let int = (key ^ 1 << 63).cast_signed();
    Some(match edm {
        EdmType::Int32 => Value::Int32(i32::try_from(int).ok()?),
        EdmType::Int64 => Value::Int64(int),
        EdmType::DateTime => Value::DateTime(DateTime::from_ticks(key)?),
        EdmType::Boolean => Value::Boolean(key == 1),
        EdmType::Double => {
            Value::Double(f64::from_bits(if key >> 63 == 1 { key ^ 1 << 63 } else { !key }))
        }
        EdmType::Guid | EdmType::String | EdmType::Binary => return None,
    })
}

#[cfg(test)]
mod tests;
