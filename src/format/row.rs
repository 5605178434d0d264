//! Encodes and decodes a row. A row begins with a head: the number of its shape (names and types of
//! properties), or the shape itself. The body, which contains the values, follows. FORMAT.md §row.
//!
//! Invariants
//! * the body is copied verbatim when a row moves to another file; only its shape number is
//!   rewritten;
//! * decoding a row reads only its shape; a value is checked when it is read, or by
//!   [`RowRef::check`].
//!
//! `model::shape` defines the contents of a body.

use std::sync::Arc;

use super::shape::{encode_shape, read_shape};
use crate::codec::{Cursor, DecodeError, put_varint};
use crate::model::{RowRef, Shape, ShapeRef};

const STRUCTURE: &str = "row";
/// The maximum length of a head that is a shape number: the varint of a 32-bit number plus one.
const HEAD_BYTES_MAX: usize = 5;

/// Appends `row` with `number` as its shape number in this file. With `None`, the row contains its
/// whole shape instead.
#[inline]
pub(crate) fn encode_row(out: &mut Vec<u8>, number: Option<u32>, row: &RowRef<'_>) {
    encode_head(out, number, row);
    out.extend_from_slice(row.body);
}

/// Appends the head of `row`, as [`encode_row`] encodes it. The row's body follows it.
#[inline]
pub(crate) fn encode_head(out: &mut Vec<u8>, number: Option<u32>, row: &RowRef<'_>) {
    match number {
        Some(number) => put_varint(out, u64::from(number) + 1),
        None => {
            put_varint(out, 0);
            encode_shape(out, row.shape.arc());
        }
    }
}

/// The encoded shape number, which precedes the body of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowHead {
    bytes: [u8; HEAD_BYTES_MAX],
    len: u8,
}

impl RowHead {
    /// Returns the head of a row with this shape number.
    #[inline]
    pub(crate) fn new(number: u32) -> Self {
        let (mut head, mut rest) = (Self::default(), u64::from(number) + 1);
        for byte in &mut head.bytes {
            let more = rest >= 0x80;
            *byte = (rest & 0x7f) as u8 | if more { 0x80 } else { 0 };
            head.len += 1;
            rest >>= 7;
            if !more {
                break;
            }
        }
        head
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// Decodes the row that fills `bytes`; `lookup` returns shapes by number.
// Called for every row read: without inlining, moving the result would cost more than the look-up.
#[inline(always)]
pub(crate) fn decode_row<'a>(
    bytes: &'a [u8],
    lookup: impl Fn(u32) -> Option<&'a Arc<Shape>>,
) -> Result<RowRef<'a>, DecodeError> {
    match decode_common_row(bytes, &lookup) {
        Some(row) => Ok(row),
        None => decode_rare_row(bytes, lookup),
    }
}

/// Decodes a row whose shape number is known and encoded in one byte, as in most rows. `None` for
/// other rows.
// Callers that convert the error of `decode_row` call this first, because the conversion would move
// the row a second time.
#[inline(always)]
pub(crate) fn decode_common_row<'a>(
    bytes: &'a [u8],
    lookup: impl Fn(u32) -> Option<&'a Arc<Shape>>,
) -> Option<RowRef<'a>> {
    let (&head @ 1..0x80, body) = bytes.split_first()? else { return None };
    let shape = lookup(u32::from(head) - 1)?;
    Some(RowRef { shape: ShapeRef::Shared(shape), body })
}

/// Decodes any row.
#[cold]
fn decode_rare_row<'a>(
    bytes: &'a [u8],
    lookup: impl Fn(u32) -> Option<&'a Arc<Shape>>,
) -> Result<RowRef<'a>, DecodeError> {
    let mut cursor = Cursor::new(STRUCTURE, bytes);
    let shape = match shape_number(cursor.varint()?) {
        Some(number) => match u32::try_from(number).ok().and_then(lookup) {
            Some(shape) => ShapeRef::Shared(shape),
            None => return Err(DecodeError::new(STRUCTURE, 0, format!("no shape {number}"))),
        },
        None => ShapeRef::Own(Arc::new(read_shape(&mut cursor)?)),
    };
    Ok(RowRef { shape, body: cursor.rest() })
}

/// Whether `head`, the first byte of a row, is the complete head. Then all rows of the file that
/// begin with this byte have the same shape, and the body begins at the next byte.
#[inline]
pub(crate) fn is_shared_head(head: u8) -> bool {
    (1..0x80).contains(&head)
}

/// Returns the number of the row's shape without looking it up; `None` for a row that contains its
/// shape instead.
pub(crate) fn row_shape_number(bytes: &[u8]) -> Result<Option<u32>, DecodeError> {
    let mut cursor = Cursor::new(STRUCTURE, bytes);
    match shape_number(cursor.varint()?) {
        Some(number) => match u32::try_from(number) {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(cursor.error(format!("no shape {number}"))),
        },
        None => Ok(None),
    }
}

fn shape_number(head: u64) -> Option<u64> {
    head.checked_sub(1)
}

#[cfg(test)]
mod tests;
