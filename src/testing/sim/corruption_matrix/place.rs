//! Finds the structure that contains a given byte of a database file, from the layout of the bytes
//! alone. With the readers under test it shares only the decoders of single structures, such as
//! record headers.

use std::ops::Range;

use crate::format::block;
use crate::format::file_meta::Section;
use crate::format::hash_index::PAGE_BYTES;
use crate::format::names::{FileId, FileName, FileNumber};
use crate::format::record::{
    LOG_HEADER_BYTES, LogHeader, Position, RECORD_ALIGN, RECORD_HEADER_BYTES, RecordHeader,
    RecordKind, decode_header,
};
use crate::format::sst::{self, section};
use crate::named::named;

named! {
    /// The kinds of files of a database.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum FileKind {
        /// `LOCK`
        Lock "LOCK",
        /// `CURRENT`
        Current "CURRENT",
        /// `MANIFEST-<n>`
        Manifest "MANIFEST",
        /// `<n>.wal`
        Wal "wal",
        /// `<n>.sst`
        Sst "sst",
    }

    /// Returns the name that printed tables show.
    pub fn name;
    pub const ALL;
}

/// A part of a file that is written, checked and named as a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) structure: &'static str,
    pub(super) range: Range<u64>,
}

/// The zeros that a log or manifest reserves after its records.
pub(super) const SPACE_AHEAD: &str = "space ahead";
/// The position after the last byte of a file, where a cut removes nothing.
pub(super) const END: &str = "end of file";

impl FileKind {
    pub(super) fn of(name: &str) -> Option<(FileKind, FileNumber)> {
        Some(match FileName::parse(name)? {
            FileName::Lock => (FileKind::Lock, FileNumber(0)),
            FileName::Current => (FileKind::Current, FileNumber(0)),
            FileName::Manifest(number) => (FileKind::Manifest, number),
            FileName::Wal(number) => (FileKind::Wal, number),
            FileName::Sst(number) => (FileKind::Sst, number),
            FileName::Control | FileName::Temporary => return None,
        })
    }
}

/// Returns the units of an intact file, in order and without gaps.
pub(super) fn units(kind: FileKind, number: FileNumber, bytes: &[u8]) -> Vec<Unit> {
    let mut units = match kind {
        FileKind::Lock => Vec::new(),
        FileKind::Current => vec![Unit { structure: "current", range: 0..bytes.len() as u64 }],
        FileKind::Manifest | FileKind::Wal => log_units(number, bytes),
        FileKind::Sst => sst_units(bytes),
    };
    let end = bytes.len() as u64;
    units.push(Unit { structure: END, range: end..end + 1 });
    units
}

/// A record of an intact log.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) at: u64,
    pub(super) header: RecordHeader,
    pub(super) end: u64,
}

/// Returns the records of a log or manifest, up to the first position that holds no record.
pub(super) fn records(number: FileNumber, bytes: &[u8]) -> Vec<Record> {
    let Some(id) = log_id(bytes) else { return Vec::new() };
    let mut records = Vec::new();
    let mut at = LOG_HEADER_BYTES;
    while let Some(header) = header_at(number, id, bytes, at) {
        let end = at + RECORD_HEADER_BYTES + header.stored_len();
        records.push(Record { at: at as u64, header, end: end as u64 });
        at = end;
    }
    records
}

/// Returns the highest durable offset of all record headers in a file. Damaged bytes between the
/// headers are skipped.
pub(super) fn highest_durable_claim(number: FileNumber, bytes: &[u8]) -> Option<Position> {
    let id = log_id(bytes)?;
    let places = (LOG_HEADER_BYTES..bytes.len()).step_by(RECORD_ALIGN);
    places
        .filter_map(|at| header_at(number, id, bytes, at))
        .map(|header| header.durable_up_to)
        .max()
}

fn log_id(bytes: &[u8]) -> Option<FileId> {
    let header = bytes.get(..LOG_HEADER_BYTES)?;
    LogHeader::decode(header).ok().map(|header| header.id)
}

fn header_at(number: FileNumber, id: FileId, bytes: &[u8], at: usize) -> Option<RecordHeader> {
    let header = bytes.get(at..at + RECORD_HEADER_BYTES)?;
    let position = Position { file: number, offset: at as u64 };
    decode_header(header.try_into().ok()?, position, id).ok()
}

fn log_units(number: FileNumber, bytes: &[u8]) -> Vec<Unit> {
    let mut units = vec![Unit { structure: "file header", range: 0..LOG_HEADER_BYTES as u64 }];
    let mut end = LOG_HEADER_BYTES as u64;
    for record in records(number, bytes) {
        let structure = match record.header.kind() {
            Ok(RecordKind::Open) => "open record",
            Ok(RecordKind::Group) => "group record",
            Ok(RecordKind::Catalog) => "catalog record",
            Ok(RecordKind::DurableUpTo) => "promise record",
            Ok(RecordKind::Close) => "close record",
            Ok(RecordKind::Edit) => "edit record",
            Err(_) => "record of a newer kind",
        };
        units.push(Unit { structure, range: record.at..record.end });
        end = record.end;
    }
    if end < bytes.len() as u64 {
        units.push(Unit { structure: SPACE_AHEAD, range: end..bytes.len() as u64 });
    }
    units
}

fn sst_units(bytes: &[u8]) -> Vec<Unit> {
    let len = bytes.len() as u64;
    let mut units = vec![Unit { structure: "header", range: 0..sst::HEADER_BYTES as u64 }];
    let tail_at = bytes.len().saturating_sub(sst::TAIL_BYTES);
    let tail = sst::Tail::decode(bytes.get(tail_at..).unwrap_or_default());
    let sections = tail.and_then(|tail| {
        let directory_at = tail_at.saturating_sub(tail.directory_len);
        let directory = bytes.get(directory_at..tail_at).unwrap_or_default();
        let sections = Section::decode_all(&mut crate::codec::Cursor::new("", directory), len)?;
        Ok((sections, directory_at as u64))
    });
    // If the file cannot be decoded even before the damage, it is a single unit.
    let Ok((sections, directory_at)) = sections else {
        return vec![Unit { structure: "sst", range: 0..len }];
    };
    let mut end = sst::HEADER_BYTES as u64;
    for section in &sections {
        if section.offset > end {
            units.push(Unit { structure: "gap", range: end..section.offset });
        }
        section_units(section, bytes, &mut units);
        end = section.offset + section.len;
    }
    if directory_at > end {
        units.push(Unit { structure: "gap", range: end..directory_at });
    }
    // One checksum covers the directory and the tail, so an error cannot tell which of them is
    // damaged.
    units.push(Unit { structure: "footer", range: directory_at..len });
    units
}

/// Adds the blocks or pages of a section to `units`.
fn section_units(section: &Section, bytes: &[u8], units: &mut Vec<Unit>) {
    let end = section.offset + section.len;
    let structure = match section.kind {
        section::ROWS => "row block",
        section::SHAPES => "shapes",
        kind if section::HASH_INDEXES.contains(&kind) => "hash index page",
        section::SPARSE_INDEX => "sparse index page",
        section::HANDLES => "handles",
        section::STATISTICS => "statistics",
        section::ZONES => "zones",
        section::ZONE_SUMMARY => "zone summary",
        _ => "section of a newer kind",
    };
    let mut at = section.offset;
    while at < end {
        let len = match section.kind {
            kind if section::HASH_INDEXES.contains(&kind) => PAGE_BYTES as u64,
            section::ROWS | section::SPARSE_INDEX | section::ZONES => block_len(bytes, at),
            _ => end - at,
        };
        let next = (at + len.max(1)).min(end);
        units.push(Unit { structure, range: at..next });
        at = next;
    }
}

/// Returns the length of a block, from its header.
fn block_len(bytes: &[u8], at: u64) -> u64 {
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    let stored = at.checked_add(16).and_then(|from| bytes.get(from..from + 4));
    let stored = stored.and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes);
    block::HEADER_BYTES as u64 + u64::from(stored)
}
