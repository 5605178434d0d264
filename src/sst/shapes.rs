//! Writes and reads the shapes section of a table file, which numbers the shapes of the file's
//! rows. A shape is the list of a row's property names and types. Format: FORMAT.md §shapes.
//!
//! Invariant: the number of shapes and the size of the section are bounded. A row whose shape does
//! not fit into the section contains its shape itself.

use std::collections::HashMap;
use std::sync::Arc;

use crate::codec::{Cursor, DecodeError, put_bytes, put_varint};
use crate::format::shape::{decode_shape, encode_shape};
use crate::model::{Shape, Shapes};

const STRUCTURE: &str = "shapes section";
/// The maximum number of shapes in the table, which stays in memory while the file is open.
/// Entities of one kind need one shape or a few.
const SHAPES_MAX: usize = 1024;
const BYTES_MAX: usize = 256 << 10;

/// The table of shapes of a file that is being written.
#[derive(Default)]
pub(super) struct ShapeTable {
    shapes: Vec<Arc<Shape>>,
    by_hash: HashMap<u64, Vec<u32>>,
    encoded: Vec<u8>,
    places: Vec<u16>,
    /// The shape of the previous row and its number, because most rows have the same shape.
    last: Option<(Arc<Shape>, Option<u32>)>,
}

impl ShapeTable {
    /// Returns the number of `shape` in this file, or `None` if the table has no space for it.
    pub(super) fn number(&mut self, shape: &Arc<Shape>) -> Option<u32> {
        if let Some((last, number)) = &self.last
            && Arc::ptr_eq(last, shape)
        {
            return *number;
        }
        let number = self.find(shape).or_else(|| self.add(shape));
        self.last = Some((Arc::clone(shape), number));
        number
    }

    /// Appends the section's contents.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.shapes.len() as u64);
        out.extend_from_slice(&self.encoded);
    }

    fn find(&self, shape: &Arc<Shape>) -> Option<u32> {
        let same_hash = self.by_hash.get(&shape.hash().value())?;
        let equal = |number: &&u32| {
            let other = self.shapes.get(**number as usize);
            other.is_some_and(|other| Arc::ptr_eq(other, shape) || other == shape)
        };
        same_hash.iter().find(equal).copied()
    }

    fn add(&mut self, shape: &Arc<Shape>) -> Option<u32> {
        let mut encoded = Vec::new();
        encode_shape(&mut encoded, shape);
        let full = self.shapes.len() >= SHAPES_MAX;
        if full || self.encoded.len() + encoded.len() > BYTES_MAX {
            return None;
        }
        let number = u32::try_from(self.shapes.len()).ok()?;
        put_bytes(&mut self.encoded, &encoded);
        self.by_hash.entry(shape.hash().value()).or_default().push(number);
        self.shapes.push(Arc::clone(shape));
        // Assumes text offsets of one byte, as in most rows: the texts of a row have less than 256
        // bytes in total.
        let place = 1 + shape.body_bytes(0);
        self.places.push(u16::try_from(place).unwrap_or(u16::MAX));
        Some(number)
    }

    /// Returns, for each shape, the offset in a row at which the texts begin. The offset includes
    /// the row's head.
    pub(super) fn places(&self) -> &[u16] {
        &self.places
    }
}

/// Decodes the table in `bytes`, and replaces each shape by the database's copy of it.
pub(crate) fn decode_table(
    bytes: &[u8],
    shapes: &Shapes,
) -> Result<Box<[Arc<Shape>]>, DecodeError> {
    let mut cursor = Cursor::new(STRUCTURE, bytes);
    let count = cursor.count(SHAPES_MAX)?;
    let mut table = Vec::with_capacity(count.min(cursor.left()));
    for _ in 0..count {
        let encoded = cursor.bytes()?;
        let base = cursor.at() - encoded.len();
        let shape = decode_shape(encoded);
        let shape = shape.map_err(|error| DecodeError { at: base + error.at, ..error })?;
        table.push(shapes.intern(&shape).shape);
    }
    cursor.finish()?;
    Ok(table.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::EdmType;

    fn shape(name: &str) -> Arc<Shape> {
        Arc::new(Shape::new(vec![(name.into(), EdmType::Int32)]))
    }

    #[test]
    fn equal_shapes_have_one_number() {
        let mut table = ShapeTable::default();
        let (a, b) = (shape("A"), shape("B"));
        let numbers = [&a, &b, &a, &shape("A")].map(|shape| table.number(shape));
        assert_eq!(numbers, [Some(0), Some(1), Some(0), Some(0)]);
        let mut out = Vec::new();
        table.encode(&mut out);
        assert_eq!(out, [2, 4, 1, 4, 1, b'A', 4, 1, 4, 1, b'B']);
        let decoded = decode_table(&out, &Shapes::new(1 << 20)).unwrap();
        assert_eq!(decoded[..], [a, b]);
        for len in 0..out.len() {
            assert!(decode_table(&out[..len], &Shapes::new(0)).is_err());
        }
    }

    #[test]
    fn the_table_is_bounded() {
        let mut table = ShapeTable::default();
        let numbered = (0..3000).filter(|i| table.number(&shape(&format!("P{i}"))).is_some());
        assert_eq!(numbered.count(), SHAPES_MAX);
        let mut table = ShapeTable::default();
        let name = "x".repeat(10_000);
        let numbered = (0..100).filter(|i| table.number(&shape(&format!("{name}{i}"))).is_some());
        assert_eq!(numbered.count(), 26);
        assert_eq!(table.number(&shape(&format!("{name}3"))), Some(3));
    }
}
