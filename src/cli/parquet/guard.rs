//! Guards against Parquet files that are damaged or hostile. The crate `parquet` believes counts
//! and sizes in a file, reserves memory for them, and panics at some contradictions. Therefore the
//! schema and the header of each page are checked before the crate reads them, and its panics
//! become errors.
//!
//! Invariants
//! * a column chunk for which [`pages`] returned `bytes` is read in about that many bytes;
//! * encodings whose pages contain further counts are refused, and so is GZIP, which the crate
//!   unpacks without a bound.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use parquet::errors::{ParquetError, Result};

/// The maximum length of the metadata at the end of a file.
const FOOTER_BYTES_MAX: u64 = 64 << 20;
/// The maximum number of nodes of a schema, and the maximum depth of one.
pub(in crate::cli) const NODES_MAX: usize = 20_000;
const DEPTH_MAX: usize = 32;
/// The lengths of a page header that are tried in turn.
const HEADER_BYTES: [u64; 2] = [256, 1 << 20];
/// The size of a decoded value in a dictionary, at most.
const ENTRY_BYTES: u64 = 32;
const TAIL_BYTES: u64 = 8;

/// The pages of a column chunk.
#[derive(Debug)]
pub(in crate::cli) struct Pages {
    /// The numbers of rows of the data pages.
    pub(in crate::cli) rows: VecDeque<u64>,
    /// The memory that reading them needs, in bytes.
    pub(in crate::cli) bytes: u64,
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Calls `work`, and returns an error if it panics. The crate indexes slices and asserts while it
/// decodes; its readers are dropped after an error, so a broken invariant of theirs is not seen. A
/// build with `panic = "abort"` ends with the message of the panic instead.
pub(in crate::cli) fn quietly<T>(work: impl FnOnce() -> Result<T>) -> io::Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                before(panic);
            }
        }));
    });
    QUIET.set(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(false);
    match done {
        Ok(done) => done.map_err(into_io),
        Err(_) => Err(damaged("its parts contradict one another")),
    }
}

/// Returns the error of the file below if there is one.
pub(in crate::cli) fn into_io(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
    }
}

fn damaged(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the Parquet file is damaged: {problem}"))
}

/// Checks the length of the metadata at the end of a file, and the schema in it.
pub(in crate::cli) fn check_footer(file: &File) -> io::Result<()> {
    let len = file.metadata()?.len();
    let before = len.checked_sub(TAIL_BYTES).ok_or_else(|| damaged("it is cut short"))?;
    let mut tail = [0; TAIL_BYTES as usize];
    let mut reader = file;
    reader.seek(SeekFrom::Start(before))?;
    reader.read_exact(&mut tail)?;
    let [a, b, c, d, magic @ ..] = tail;
    match &magic {
        b"PAR1" => {}
        b"PARE" => return Err(damaged("its metadata is encrypted, which is not supported")),
        _ => return Err(damaged("it does not end with PAR1, so it may be cut short")),
    }
    let bytes = u64::from(u32::from_le_bytes([a, b, c, d]));
    if bytes > FOOTER_BYTES_MAX {
        let problem = format!("its metadata has {bytes} bytes, more than {FOOTER_BYTES_MAX}");
        return Err(damaged(&problem));
    }
    let start = before.checked_sub(bytes).ok_or_else(|| damaged("it is cut short"))?;
    reader.seek(SeekFrom::Start(start))?;
    let mut footer = Vec::new();
    reader.take(bytes).read_to_end(&mut footer)?;
    let mut thrift = Thrift(&footer);
    let checked = thrift.fields(|thrift, number, kind| match (number, kind) {
        (1, I32) | (3.., _) => Some(false),
        (2, LIST) => thrift.check_schema().map(|()| true),
        _ => None,
    });
    checked.ok_or_else(|| damaged("its metadata cannot be read, or has too many columns"))
}

/// Checks the headers of the pages of a column chunk, which is `len` bytes from `start`.
pub(in crate::cli) fn pages(file: &File, start: u64, len: u64) -> io::Result<Pages> {
    let end = start.checked_add(len).filter(|&end| end <= file.metadata().map_or(0, |m| m.len()));
    let end = end.ok_or_else(|| damaged("a column is beyond the end of the file"))?;
    let mut rows = VecDeque::new();
    let (mut at, mut dictionary, mut page) = (start, 0u64, 0u64);
    while at < end {
        let header = header_at(file, at, end)?;
        at += header.bytes + header.packed;
        if at > end {
            return Err(damaged("a page is longer than its column"));
        }
        let bytes = 2 * (header.packed + header.unpacked);
        match header.kind {
            Kind::Index => continue,
            Kind::Dictionary if matches!(header.encoding, PLAIN | PLAIN_DICTIONARY) => {
                let entries = header.values.saturating_mul(ENTRY_BYTES);
                dictionary = dictionary.saturating_add(bytes).saturating_add(entries);
            }
            Kind::Data if ENCODINGS.contains(&header.encoding) => {
                page = page.max(bytes);
                rows.push_back(header.values);
            }
            _ => {
                let name = ENCODING_NAMES.iter().find(|(code, _)| *code == header.encoding);
                let name = name.map_or("an unknown encoding", |(_, name)| name);
                let problem = format!("a page has {name}, which is not supported");
                return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
            }
        }
    }
    Ok(Pages { rows, bytes: dictionary.saturating_add(page) })
}

/// The unchecked header of a page.
struct Header {
    kind: Kind,
    /// The length of the header itself.
    bytes: u64,
    packed: u64,
    unpacked: u64,
    values: u64,
    encoding: i64,
}

#[derive(Clone, Copy)]
enum Kind {
    Data,
    Index,
    Dictionary,
}

const PLAIN: i64 = 0;
const PLAIN_DICTIONARY: i64 = 2;
/// The encodings of data pages that are read: PLAIN, PLAIN_DICTIONARY, RLE, DELTA_BINARY_PACKED,
/// RLE_DICTIONARY and BYTE_STREAM_SPLIT.
const ENCODINGS: [i64; 6] = [PLAIN, PLAIN_DICTIONARY, 3, 5, 8, 9];
const ENCODING_NAMES: [(i64, &str); 3] = [
    (4, "the encoding BIT_PACKED"),
    (6, "the encoding DELTA_LENGTH_BYTE_ARRAY"),
    (7, "the encoding DELTA_BYTE_ARRAY"),
];

fn header_at(mut file: &File, at: u64, end: u64) -> io::Result<Header> {
    for window in HEADER_BYTES {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(at))?;
        file.take(window.min(end - at)).read_to_end(&mut bytes)?;
        if let Some(header) = read_header(&bytes) {
            return Ok(header);
        }
    }
    Err(damaged("the header of a page cannot be read"))
}

fn read_header(bytes: &[u8]) -> Option<Header> {
    let mut thrift = Thrift(bytes);
    let (mut kind, mut unpacked, mut packed) = (None, None, None);
    // The counts of values and encodings of the three kinds of pages, by number of the field.
    let mut counts = [None; 9];
    thrift.fields(|thrift, number, field| {
        match (number, field) {
            (1, I32) => kind = Some(thrift.int()?),
            (2, I32) => unpacked = Some(thrift.int()?),
            (3, I32) => packed = Some(thrift.int()?),
            (5 | 7 | 8, STRUCT) => {
                let encoding_number = if number == 8 { 4 } else { 2 };
                let (mut values, mut encoding) = (0, -1);
                thrift.fields(|thrift, number, field| {
                    match (number, field) {
                        (1, I32) => values = thrift.int()?,
                        (n, I32) if n == encoding_number => encoding = thrift.int()?,
                        (1..=2, kind) if kind != I32 => return None,
                        _ => return Some(false),
                    }
                    Some(true)
                })?;
                *counts.get_mut(usize::try_from(number).ok()?)? = Some((values, encoding));
            }
            (4, I32) | (6, STRUCT) | (9.., _) => return Some(false),
            _ => return None,
        }
        Some(true)
    })?;
    let (kind, number) = match kind? {
        0 => (Kind::Data, 5),
        1 => (Kind::Index, 6),
        2 => (Kind::Dictionary, 7),
        3 => (Kind::Data, 8),
        _ => return None,
    };
    let (values, encoding) = match kind {
        Kind::Index => (0, 0),
        _ => (*counts.get(number)?)?,
    };
    let count = |value: i64| u32::try_from(value).ok().map(u64::from);
    Some(Header {
        kind,
        bytes: (bytes.len() - thrift.0.len()) as u64,
        packed: count(packed?)?,
        unpacked: count(unpacked?)?,
        values: count(values)?,
        encoding,
    })
}

/// The kinds of fields of the compact protocol of Thrift.
const BOOLEANS: std::ops::RangeInclusive<u8> = 1..=2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

/// Reads the compact protocol of Thrift. `None` is the end of the bytes, or damage.
struct Thrift<'b>(&'b [u8]);

impl Thrift<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    fn skip_bytes(&mut self, len: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(len).ok()?..)?;
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn int(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// Returns the kind and the number of the elements of a list.
    fn list(&mut self) -> Option<(u8, u64)> {
        let head = self.byte()?;
        let len = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        Some((head & 15, len))
    }

    /// Calls `field` with the number and the kind of each field of a struct. It returns false for a
    /// field that it did not read.
    fn fields(&mut self, mut field: impl FnMut(&mut Self, i64, u8) -> Option<bool>) -> Option<()> {
        self.fields_within(DEPTH_MAX, &mut field)
    }

    fn fields_within(
        &mut self,
        depth: usize,
        field: &mut dyn FnMut(&mut Self, i64, u8) -> Option<bool>,
    ) -> Option<()> {
        let mut number = 0i64;
        loop {
            let head = self.byte()?;
            let kind = head & 15;
            if kind == 0 {
                return Some(());
            }
            number = match head >> 4 {
                0 => self.int()?,
                delta => number.checked_add(delta.into())?,
            };
            // The value of a Boolean field is its kind.
            if !field(self, number, kind)? && !BOOLEANS.contains(&kind) {
                self.skip(kind, depth)?;
            }
        }
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            1..=BYTE => self.skip_bytes(1),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.skip_bytes(8),
            BINARY => {
                let len = self.varint()?;
                self.skip_bytes(len)
            }
            LIST | SET => {
                let (kind, len) = self.list()?;
                (0..len).try_for_each(|_| self.skip(kind, depth))
            }
            MAP => {
                let len = self.varint()?;
                let kinds = if len == 0 { 0 } else { self.byte()? };
                (0..len).try_for_each(|_| {
                    self.skip(kinds >> 4, depth)?;
                    self.skip(kinds & 15, depth)
                })
            }
            STRUCT => self.fields_within(depth, &mut |_, _, _| Some(false)),
            _ => None,
        }
    }

    /// Reads a schema: a list of nodes, each before its children. The numbers of children must not
    /// exceed the nodes that follow, because the crate reserves memory for them and descends.
    fn check_schema(&mut self) -> Option<()> {
        let (kind, len) = self.list()?;
        let len = usize::try_from(len).ok().filter(|&len| kind == STRUCT && len <= NODES_MAX)?;
        // The numbers of nodes that are still to come, by depth.
        let mut open = vec![1];
        let mut named = 1;
        for _ in 0..len {
            let mut children = 0;
            self.fields(|thrift, number, kind| match (number, kind) {
                (5, I32) => {
                    children = usize::try_from(thrift.int()?).ok()?;
                    Some(true)
                }
                (1..=3 | 6..=9, I32) | (4, BINARY) | (10.., _) => Some(false),
                _ => None,
            })?;
            while open.last() == Some(&0) {
                open.pop();
            }
            *open.last_mut()? -= 1;
            open.push(children);
            named = children.saturating_add(named);
            if open.len() > DEPTH_MAX || named > len {
                return None;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        let found = quietly::<()>(|| panic!("of the crate")).unwrap_err();
        assert!(found.to_string().contains("is damaged"), "{found}");
        assert_eq!(quietly(|| Ok(7)).unwrap(), 7);
    }

    /// A struct in Thrift whose only field has the number 5 and this value.
    fn node(children: u8) -> Vec<u8> {
        vec![0x50 | I32, 2 * children, 0]
    }

    fn schema(nodes: &[u8]) -> Option<()> {
        let mut bytes = vec![u8::try_from(nodes.len()).unwrap() << 4 | STRUCT];
        nodes.iter().for_each(|children| bytes.extend(node(*children)));
        Thrift(&bytes).check_schema()
    }

    #[test]
    fn schemas_that_claim_more_nodes_than_they_have_are_refused() {
        assert!(schema(&[2, 0, 0]).is_some());
        assert!(schema(&[2, 1, 0, 0]).is_some());
        assert!(schema(&[60, 0, 0]).is_none());
        assert!(schema(&[2, 2, 0, 0]).is_none());
        assert!(schema(&[1, 0, 0]).is_none());
        let deep: Vec<u8> = std::iter::repeat_n(1, 40).collect();
        let mut bytes = vec![0xf0 | STRUCT, 40];
        deep.iter().for_each(|children| bytes.extend(node(*children)));
        assert!(Thrift(&bytes).check_schema().is_none());
    }

    #[test]
    fn a_page_header_is_read_up_to_its_end() {
        let data = [0x10 | I32, 20, 0x10 | I32, 0, 0];
        let head = [0x10 | I32, 0, 0x10 | I32, 0xc8, 1, 0x10 | I32, 80];
        let bytes = [&head[..], &[0x20 | STRUCT], &data, &[0, 9, 9]].concat();
        let header = read_header(&bytes).unwrap();
        assert_eq!(header.bytes, bytes.len() as u64 - 2);
        assert_eq!((header.unpacked, header.packed, header.values), (100, 40, 10));
        assert!((0..bytes.len() - 2).all(|len| read_header(&bytes[..len]).is_none()));
    }
}
