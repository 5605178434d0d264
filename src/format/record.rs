//! Record files (WAL and MANIFEST): the file header and the header of a record. FORMAT.md §record.
//!
//! Invariants
//! * a record starts at a multiple of 8 and never spans files;
//! * the header's checksum covers the record's offset, so moved or left-over bytes do not verify;
//! * a length is used only after the header that contains it was verified;
//! * the durable offset in a record is never beyond the start of the record.
//!
//! `log` reads, writes and syncs the files; `wal` and `edit` define the contents of records.

use std::fmt;

use crate::codec::{Cursor, DecodeError, check_sum, checksum};
use crate::error::{Code, Error};
use crate::model::Seq;

use super::field::{FileHead, FormatError, content, unsupported};
use super::names::{FileId, FileNumber};

/// The alignment of records.
pub(crate) const RECORD_ALIGN: usize = 8;
/// The length of a record's header.
pub(crate) const RECORD_HEADER_BYTES: usize = 48;
/// The maximum length of a payload. It bounds the memory of a reader even if a length is damaged.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 16 << 20;
/// The length of a file's header, which is the offset of its first record.
pub(crate) const LOG_HEADER_BYTES: usize = 64;

const HEAD: FileHead =
    FileHead { structure: LOG_HEADER, magic: *b"rowslog\0", file: "record", format: "log" };
const MUST_UNDERSTAND: u8 = 1;
const HEADER: &str = "record header";
const PAYLOAD: &str = "record payload";
const LOG_HEADER: &str = "log header";

/// A position in the sequence of record files: the number of a file, and an offset in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Position {
    pub(crate) file: FileNumber,
    pub(crate) offset: u64,
}

/// The purpose of a record file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum LogKind {
    Wal = 1,
    Manifest = 2,
}

/// The header of a record file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogHeader {
    pub(crate) kind: LogKind,
    pub(crate) number: FileNumber,
    pub(crate) id: FileId,
}

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordKind {
    /// The first record of a WAL, which names the preceding WAL.
    Open = 1,
    /// The entries of one commit.
    Group = 2,
    /// A commit that creates or drops tables.
    Catalog = 3,
    /// A newer durable offset and the Seq reservation (see `wal`), without a commit.
    DurableUpTo = 4,
    /// The last record of a WAL after a clean close.
    Close = 5,
    /// A version edit; only in a MANIFEST.
    Edit = 6,
}

/// A verified record header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    kind: u8,
    flags: u8,
    pub(crate) seq: Seq,
    /// The durable offset: the log was durable up to this position when the record was submitted
    /// for writing.
    pub(crate) durable_up_to: Position,
    payload_len: u32,
    payload_checksum: u32,
}

/// Starts a record at the end of `out` and returns its offset. Next, the caller appends the payload
/// and calls [`end`].
///
/// Requires: `out` contains only whole records.
pub(crate) fn begin(out: &mut Vec<u8>, kind: RecordKind, seq: Seq) -> usize {
    let start = out.len();
    debug_assert!(start.is_multiple_of(RECORD_ALIGN), "a record starts at a multiple of 8");
    out.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
    put(out, start + 12, &[kind as u8, MUST_UNDERSTAND]);
    put(out, start + 24, &seq.0.to_le_bytes());
    start
}

/// Ends the record that begins at `start`: sets its length and pads it. It becomes readable after
/// [`seal`].
///
/// # Errors
/// `RequestBodyTooLarge` if the payload is too long, for example because merges expand into large
/// entities. The record is then removed from `out`.
pub(crate) fn end(out: &mut Vec<u8>, start: usize) -> Result<(), Error> {
    debug_assert!(out.len() >= start + RECORD_HEADER_BYTES, "a record begins with its header");
    let len = out.len() - start - RECORD_HEADER_BYTES;
    let Some(len32) = u32::try_from(len).ok().filter(|_| len <= PAYLOAD_BYTES_MAX) else {
        out.truncate(start);
        return Err(Error::refused(Code::RequestBodyTooLarge));
    };
    put(out, start + 8, &len32.to_le_bytes());
    out.resize(out.len().next_multiple_of(RECORD_ALIGN), 0);
    Ok(())
}

/// Completes all records of `buffer` with ids, durable offsets and checksums. The buffer will be
/// written at position `at` of the file with this `id`. The leader of a commit group calls this
/// outside the commit lock.
///
/// Requires: `buffer` contains whole records made by [`begin`] and [`end`], and `durable_up_to` is
/// not beyond `at`.
pub(crate) fn seal(buffer: &mut [u8], at: Position, id: FileId, durable_up_to: Position) {
    debug_assert!(durable_up_to <= at, "a durable offset covers only written bytes");
    let mut start = 0;
    while let Some((header, tail)) =
        buffer.get_mut(start..).and_then(<[u8]>::split_first_chunk_mut::<RECORD_HEADER_BYTES>)
    {
        let stored = padded_len(le_u32(header, 8)).min(tail.len());
        seal_one(header, &tail[..stored], at.offset + start as u64, id, durable_up_to);
        start += RECORD_HEADER_BYTES + stored;
    }
    debug_assert_eq!(start, buffer.len(), "a buffer holds whole records");
}

fn seal_one(
    header: &mut [u8; RECORD_HEADER_BYTES],
    payload: &[u8],
    offset: u64,
    id: FileId,
    durable_up_to: Position,
) {
    header[4..8].copy_from_slice(&checksum(payload).to_le_bytes());
    header[16..24].copy_from_slice(&id.0.to_le_bytes());
    header[32..40].copy_from_slice(&durable_up_to.file.0.to_le_bytes());
    header[40..48].copy_from_slice(&durable_up_to.offset.to_le_bytes());
    let sum = header_checksum(header, offset);
    header[..4].copy_from_slice(&sum.to_le_bytes());
}

/// Computes the checksum of a header. It covers the record's offset, so a copy at another offset
/// does not verify.
fn header_checksum(header: &[u8; RECORD_HEADER_BYTES], offset: u64) -> u32 {
    // One piece, because the checksum of a short piece is computed byte by byte.
    let mut bytes = [0; 8 + RECORD_HEADER_BYTES - 4];
    bytes[..8].copy_from_slice(&offset.to_le_bytes());
    bytes[8..].copy_from_slice(&header[4..]);
    checksum(&bytes)
}

/// Whether `header` may be a record header of the file with this `id`; a cheap test for scans.
pub(crate) fn may_be_header(header: &[u8; RECORD_HEADER_BYTES], id: FileId) -> bool {
    header[16..24] == id.0.to_le_bytes()
}

/// Decodes and verifies the header at `at` of the file with this `id`.
pub(crate) fn decode_header(
    header: &[u8; RECORD_HEADER_BYTES],
    at: Position,
    id: FileId,
) -> Result<RecordHeader, DecodeError> {
    check_sum(HEADER, 0, header_checksum(header, at.offset), le_u32(header, 0))?;
    let (payload_checksum, payload_len) = (le_u32(header, 4), le_u32(header, 8));
    let (kind, flags) = (header[12], header[13]);
    if header[14..16] != [0; 2] || flags & !MUST_UNDERSTAND != 0 {
        return Err(DecodeError::new(HEADER, 13, "unknown flags"));
    }
    let found = FileId(le_u64(header, 16));
    if found != id {
        let problem = format!("file id {:016x}, this file is {:016x}", found.0, id.0);
        return Err(DecodeError::new(HEADER, 16, problem));
    }
    let seq = Seq(le_u64(header, 24));
    let durable_up_to =
        Position { file: FileNumber(le_u64(header, 32)), offset: le_u64(header, 40) };
    if durable_up_to > at {
        return Err(DecodeError::new(HEADER, 32, "promise beyond the record itself"));
    }
    if payload_len as usize > PAYLOAD_BYTES_MAX {
        let problem = format!("length {payload_len}, at most {PAYLOAD_BYTES_MAX}");
        return Err(DecodeError::new(HEADER, 8, problem));
    }
    Ok(RecordHeader { kind, flags, seq, durable_up_to, payload_len, payload_checksum })
}

impl RecordHeader {
    /// Returns the kind, or its code if this version does not know it.
    pub(crate) fn kind(&self) -> Result<RecordKind, u8> {
        RecordKind::from_code(self.kind).ok_or(self.kind)
    }

    /// Whether a reader that does not know the kind must refuse the file.
    pub(crate) fn must_understand(&self) -> bool {
        self.flags & MUST_UNDERSTAND != 0
    }

    /// Returns the length of the payload in bytes.
    pub(crate) fn payload_len(&self) -> usize {
        self.payload_len as usize
    }

    /// Returns the length of payload and padding after the header, in bytes.
    pub(crate) fn stored_len(&self) -> usize {
        padded_len(self.payload_len)
    }

    /// Verifies the bytes after the header and returns the payload in them.
    pub(crate) fn payload<'a>(&self, stored: &'a [u8]) -> Result<&'a [u8], DecodeError> {
        let computed = checksum(stored);
        check_sum(PAYLOAD, 0, computed, self.payload_checksum)?;
        Cursor::new(PAYLOAD, stored).take(self.payload_len())
    }
}

impl RecordKind {
    /// All kinds in order of their codes, from 1 on.
    const ALL: [Self; 6] =
        [Self::Open, Self::Group, Self::Catalog, Self::DurableUpTo, Self::Close, Self::Edit];

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

impl LogHeader {
    pub(crate) fn encode(&self) -> [u8; LOG_HEADER_BYTES] {
        let mut out = [0; LOG_HEADER_BYTES];
        out[16..24].copy_from_slice(&self.number.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.id.0.to_le_bytes());
        out[32] = self.kind as u8;
        HEAD.seal(&mut out);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<LogHeader, FormatError> {
        let mut cursor = HEAD.open(bytes)?;
        let head = (cursor.u32()?, cursor.u32()?);
        let Some(header) = bytes.first_chunk::<LOG_HEADER_BYTES>() else {
            return Err(DecodeError::new(LOG_HEADER, bytes.len(), "cut short").into());
        };
        HEAD.check(header, head)?;
        let (number, id) = (FileNumber(cursor.u64()?), FileId(cursor.u64()?));
        let (kind, codec, _reserved) = (cursor.u8()?, cursor.u8()?, cursor.u16()?);
        let (key, features) = (cursor.u32()?, cursor.u64()?);
        if codec != 0 || key != 0 || features != 0 {
            return unsupported(format!("log codec {codec}, key {key}, features {features:#x}"));
        }
        let kind = match kind {
            1 => LogKind::Wal,
            2 => LogKind::Manifest,
            _ => return Err(DecodeError::new(LOG_HEADER, 32, format!("kind {kind}")).into()),
        };
        Ok(LogHeader { kind, number, id })
    }
}

content! { Position { file, offset } }

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.offset)
    }
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

fn le_u32(header: &[u8; RECORD_HEADER_BYTES], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&header[at..at + 4]);
    u32::from_le_bytes(bytes)
}

fn le_u64(header: &[u8; RECORD_HEADER_BYTES], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&header[at..at + 8]);
    u64::from_le_bytes(bytes)
}

fn padded_len(payload_len: u32) -> usize {
    (payload_len as usize).next_multiple_of(RECORD_ALIGN)
}

#[cfg(test)]
mod tests;
