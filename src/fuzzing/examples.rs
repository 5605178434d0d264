//! The hex examples of FORMAT.md: decoded, and encoded back to the same bytes.

mod logs;
mod tables;

use super::rows::{numbered, split_shape};
use crate::codec::Cursor;
use crate::format::current::Current;
use crate::format::file_meta::FileMeta;
use crate::format::key::{decode_part, decode_user_key, user_key};
use crate::format::row::{decode_row, encode_row, row_shape_number};
use crate::format::shape::{decode_shape, encode_shape};
use crate::format::span::Span;

/// Decodes an example of the structure `name` and encodes it again.
///
/// # Errors
/// The text says what the decoder found wrong, or that there is no such structure.
pub fn round_trip(name: &str, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    match name {
        "user-key" => {
            let (table, pk, rk) = decode_user_key(bytes).map_err(text)?;
            let (pk, rk) = (decode_part(pk).map_err(text)?, decode_part(rk).map_err(text)?);
            out = user_key(table, &pk, &rk);
        }
        "shape" => encode_shape(&mut out, &decode_shape(bytes).map_err(text)?),
        "row" => row(bytes, &mut out)?,
        "current" => out.extend(Current::decode(bytes).map_err(debug)?.encode()),
        "file-entry" => FileMeta::decode(bytes).map_err(text)?.encode(&mut out),
        "span" => Span::decode(&mut Cursor::new("span", bytes)).map_err(text)?.encode(&mut out),
        _ => {
            let known = logs::round_trip(name, bytes).or_else(|| tables::round_trip(name, bytes));
            out = known.ok_or_else(|| format!("no structure is called `{name}`"))??;
        }
    }
    Ok(out)
}

/// A row that describes itself, or one of the shape in the first example.
fn row(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    // Coated Boolean, Name String, Price Double, Stock Int32: shape number 0 in the document.
    let known = b"\x04\x03\x06Coated\x01\x04Name\x06\x05Price\x04\x05Stock";
    let (shape, _) = split_shape(known).ok_or("the document's shape")?;
    let number = row_shape_number(bytes).map_err(text)?;
    let row = decode_row(bytes, |number| (number == 0).then_some(&shape)).map_err(text)?;
    row.check().map_err(text)?;
    match number {
        Some(_) => encode_row(out, number, &numbered(&shape, row.body)),
        None => encode_row(out, None, &row),
    }
    Ok(())
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

fn debug(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}
