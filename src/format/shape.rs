//! Encodes and decodes a shape, the names and types of a row's properties. FORMAT.md §shape.
//!
//! Invariant: equal shapes are encoded as equal bytes. A reader accepts varints that are longer
//! than needed, but only properties in ascending order of name.

use crate::codec::{Cursor, DecodeError, put_bytes, put_varint};
use crate::model::{EdmType, PROPERTIES_MAX, Shape};

const STRUCTURE: &str = "shape";
/// A bit of the type code. It is reserved for properties whose values are stored outside the row.
/// This version writes no code with this bit and refuses to decode one.
const ELSEWHERE: u8 = 0x80;

pub(crate) fn encode_shape(out: &mut Vec<u8>, shape: &Shape) {
    put_varint(out, shape.len() as u64);
    for (name, edm) in shape.properties() {
        out.push(edm as u8);
        put_bytes(out, name.as_bytes());
    }
}

/// Decodes a shape from `bytes`. Bytes after the shape are an error.
pub(crate) fn decode_shape(bytes: &[u8]) -> Result<Shape, DecodeError> {
    let mut cursor = Cursor::new(STRUCTURE, bytes);
    let shape = read_shape(&mut cursor)?;
    cursor.finish()?;
    Ok(shape)
}

/// Decodes the shape at the cursor.
pub(crate) fn read_shape(cursor: &mut Cursor<'_>) -> Result<Shape, DecodeError> {
    let count = cursor.count(PROPERTIES_MAX)?;
    let mut properties: Vec<(&str, EdmType)> = Vec::with_capacity(count.min(cursor.left() / 2));
    for _ in 0..count {
        let code = cursor.u8()?;
        let Some(edm) = EdmType::from_code(code) else {
            let what = if code & ELSEWHERE != 0 { "values stored elsewhere" } else { "type" };
            return Err(cursor.error(format!("code {code}: {what} unknown to this version")));
        };
        let name = cursor.bytes()?;
        let name = std::str::from_utf8(name).map_err(|_| cursor.error("a name is not UTF-8"))?;
        if properties.last().is_some_and(|last| last.0 >= name) {
            return Err(cursor.error("names do not ascend"));
        }
        properties.push((name, edm));
    }
    Ok(Shape::from_sorted(properties.into_iter()))
}
