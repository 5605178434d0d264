//! Inspects a generation of a backup: its files, and the edit from which a restore builds the
//! database.

use std::path::Path;

use super::bytes::Bytes;
use super::parts::{Sink, damage, hex, hex_id, number, part, text};
use crate::error::Result;
use crate::format::generation::{GENERATION_BYTES_MAX, GENERATION_HEADER_BYTES, Generation, MAGIC};
use crate::model::DateTime;

/// Whether the file is a generation, by its name or its magic number.
pub(super) fn is_generation(path: &Path, file: &Bytes) -> bool {
    let is_named = path.extension().is_some_and(|extension| extension == "generation");
    is_named || file.read(0..MAGIC.len() as u64).is_ok_and(|head| head == MAGIC)
}

pub(super) fn generation(file: &Bytes, sink: &mut Sink<'_>) -> Result<()> {
    let bytes = file.read(0..GENERATION_BYTES_MAX)?;
    let generation = match Generation::decode(&bytes) {
        Ok(generation) => generation,
        Err(error) => {
            sink(damage(0, error))?;
            return sink(part("bytes", 0, [("hex", hex(&bytes))]));
        }
    };
    let taken = DateTime::from_ticks(generation.taken).unwrap_or(DateTime::MIN);
    let fields = [
        ("backup", number(generation.number)),
        ("taken", text(taken)),
        ("seq", number(generation.seq().0)),
        ("files", number(generation.files.len())),
    ];
    sink(part("header", 0, fields))?;
    let at = GENERATION_HEADER_BYTES as u64;
    for file in &generation.files {
        let checksum = text(format!("{:08x}", file.checksum));
        let fields =
            [("id", hex_id(file.id.0)), ("bytes", number(file.bytes)), ("checksum", checksum)];
        sink(part("stored", at, fields))?;
    }
    let edit = generation.edit.to_string();
    edit.lines().try_for_each(|line| sink(part("edit", at, [("says", text(line))])))
}
