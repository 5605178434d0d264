//! The keys and entities of large values. The RowKeys of a value `name` in its partition are
//! * `name`: the manifest. It has the id of the write, length and checksum, and a short value;
//! * `name!id!number`: a chunk of the write `id`;
//! * `name!id`: the mark of a write whose chunks are not in use: they are being written, or their
//!   value was replaced or deleted. Its Timestamp is the beginning of the grace.

use std::fmt::Write;

use crate::error::{Code, Error, ErrorKind, Result, quoted};
use crate::model::{BINARY_BYTES_MAX, ETag, Entity, KEY_UNITS_MAX, ValueRef, utf16_len};
use crate::store::table_store::TableStore;

/// The number of bytes of a full chunk: an entity of this size, with its keys, is below 1 MiB.
pub(super) const CHUNK_BYTES: usize = 15 * BINARY_BYTES_MAX;
/// The maximum number of tries after lost answers and conflicts.
pub(super) const TRIES_MAX: usize = 5;
/// The properties of a manifest, without those of a short value.
const METADATA: [&str; 4] = ["Write", "Length", "Chunks", "Crc32"];
/// Divides the parts of the RowKeys of marks and chunks.
const SEPARATOR: char = '!';
/// The number of hexadecimal digits of the id of a write.
const ID_DIGITS: usize = 32;
/// The number of decimal digits of the number of a chunk.
const NUMBER_DIGITS: usize = 8;
/// The number of characters after the name in the RowKey of a chunk.
const SUFFIX: usize = ID_DIGITS + NUMBER_DIGITS + 2;

/// The length of a value, and its ETag for [`put_if`](super::LargeValues::put_if).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// The length in bytes.
    pub length: u64,
    /// The ETag of the manifest.
    pub etag: ETag,
}

/// The table of the values.
pub(super) struct Values<'s> {
    pub(super) store: &'s dyn TableStore,
    pub(super) table: String,
}

impl Values<'_> {
    pub(super) fn place<'k>(&'k self, partition_key: &'k str, name: &'k str) -> Result<Place<'k>> {
        Place::new(&self.table, partition_key, name)
    }

    /// Reads a manifest without a value.
    pub(super) fn manifest(&self, place: &Place<'_>) -> Result<Option<Manifest>> {
        let found = self.store.get(&self.table, place.partition_key, &place.row, &METADATA)?;
        found.map(|row| Manifest::of(place, row)).transpose()
    }

    /// Returns the ETag of a mark.
    pub(super) fn mark(&self, partition_key: &str, key: &WriteKey) -> Result<Option<ETag>> {
        let mark = self.store.get(&self.table, partition_key, &key.mark(), &["PartitionKey"])?;
        Ok(mark.and_then(|mark| mark.etag()))
    }
}

/// The place of a value.
pub(super) struct Place<'k> {
    pub(super) table: &'k str,
    pub(super) partition_key: &'k str,
    name: &'k str,
    /// The RowKey of the manifest.
    pub(super) row: String,
}

impl<'k> Place<'k> {
    /// # Errors
    /// `InvalidInput` if the name is too long.
    pub(super) fn new(table: &'k str, partition_key: &'k str, name: &'k str) -> Result<Self> {
        let place = Self { table, partition_key, name, row: escaped(name) };
        match utf16_len(&place.row) + SUFFIX > KEY_UNITS_MAX {
            true => Err(place.error(ErrorKind::InvalidInput, "the name is too long")),
            false => Ok(place),
        }
    }

    pub(super) fn error(&self, kind: ErrorKind, problem: &str) -> Error {
        Error::new(kind, format!("{problem}: {}", self.quoted()))
    }

    pub(super) fn refused(&self, code: Code) -> Error {
        Error::refused(code).about(|| self.quoted())
    }

    fn quoted(&self) -> String {
        let parts =
            [("value", self.name), ("partition", self.partition_key), ("table", self.table)];
        parts.map(|(of, name)| quoted(of, name)).join(" of ")
    }
}

/// The RowKey of the manifest of a value, and the id of a write of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WriteKey {
    pub(super) row: String,
    pub(super) id: String,
}

impl WriteKey {
    /// Returns the RowKey of the mark.
    pub(super) fn mark(&self) -> String {
        format!("{}{SEPARATOR}{}", self.row, self.id)
    }

    /// Returns the RowKey of a chunk.
    pub(super) fn chunk(&self, number: u32) -> String {
        format!("{}{SEPARATOR}{number:0NUMBER_DIGITS$}", self.mark())
    }

    /// Reads the RowKey of a mark, or of a chunk (true); `None` if it is another one.
    pub(super) fn of(row_key: &str) -> Option<(Self, bool)> {
        let mut parts = row_key.split(SEPARATOR);
        let (row, id, number, end) = (parts.next()?, parts.next()?, parts.next(), parts.next());
        let is_id = id.len() == ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_number = number.is_none_or(|number| {
            number.len() >= NUMBER_DIGITS && number.bytes().all(|byte| byte.is_ascii_digit())
        });
        let key = Self { row: row.to_owned(), id: id.to_owned() };
        (is_id && is_number && end.is_none()).then_some((key, number.is_some()))
    }
}

/// A manifest.
pub(super) struct Manifest {
    /// The id of the write.
    pub(super) id: String,
    pub(super) length: u64,
    /// The number of chunks; 0 if the value is in the manifest.
    pub(super) chunks: u32,
    pub(super) crc: u32,
    pub(super) etag: ETag,
    pub(super) row: Entity,
}

impl Manifest {
    /// # Errors
    /// `InvalidInput` if the entity is not a manifest.
    pub(super) fn of(place: &Place<'_>, row: Entity) -> Result<Self> {
        let read = || {
            let etag = row.etag()?;
            let id = row.get::<String>("Write").ok()?;
            let length = row.get::<i64>("Length").ok()?;
            let (chunks, crc) = (row.get::<i64>("Chunks").ok()?, row.get::<i64>("Crc32").ok()?);
            let (chunks, crc) = (chunks.try_into().ok()?, crc.try_into().ok()?);
            Some((id, length.try_into().ok()?, chunks, crc, etag))
        };
        let Some((id, length, chunks, crc, etag)) = read() else {
            return Err(place.error(ErrorKind::InvalidInput, "the entity is not a large value"));
        };
        let (size, length): (u64, u64) = (CHUNK_BYTES as u64, length);
        let expected = if length < size { 0 } else { length.div_ceil(size) };
        if u64::from(chunks) != expected {
            let problem = format!("{chunks} chunks cannot have {length} bytes");
            return Err(place.error(ErrorKind::Corruption, &problem));
        }
        Ok(Self { id, length, chunks, crc, etag, row })
    }

    pub(super) fn into_info(self) -> Info {
        Info { length: self.length, etag: self.etag }
    }

    pub(super) fn key(&self, place: &Place<'_>) -> WriteKey {
        WriteKey { row: place.row.clone(), id: self.id.clone() }
    }
}

/// Creates an entity with up to [`CHUNK_BYTES`].
pub(super) fn with_data(mut entity: Entity, bytes: &[u8]) -> Entity {
    for (number, part) in bytes.chunks(BINARY_BYTES_MAX).enumerate() {
        entity.set(data_name(number), part);
    }
    entity
}

/// Returns the bytes of an entity.
pub(super) fn data(entity: &Entity) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0.. {
        let Some(ValueRef::Binary(part)) = entity.value(&data_name(number)) else { break };
        bytes.extend_from_slice(part);
    }
    bytes
}

fn data_name(number: usize) -> String {
    format!("Data{number:02}")
}

/// Returns a name as a RowKey without [`SEPARATOR`].
fn escaped(name: &str) -> String {
    let mut row = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            SEPARATOR | '%' | '/' | '\\' | '#' | '?' => _ = write!(row, "%{:02X}", u32::from(c)),
            c if c.is_control() => _ = write!(row, "%{:02X}", u32::from(c)),
            c => row.push(c),
        }
    }
    row
}
