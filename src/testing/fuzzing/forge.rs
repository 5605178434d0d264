//! Corrects the checksums of files that the fuzz target `directory` has edited, so that the edits
//! reach the code after the checks.
//!
//! Checksums of whole sections of a table file are not corrected, because only a verification
//! compares them.

use std::ops::Range;

use crate::codec::{Checksum, checksum};
use crate::format::block::HEADER_BYTES as BLOCK_HEADER_BYTES;
use crate::format::current::CURRENT_BYTES;
use crate::format::file_meta::Section;
use crate::format::hash_index::PAGE_BYTES;
use crate::format::names::{FileId, FileName};
use crate::format::record::{LOG_HEADER_BYTES, RECORD_ALIGN, RECORD_HEADER_BYTES};
use crate::format::sst::{HEADER_BYTES, TAIL_BYTES, Tail, section};

/// The block kind of a hash index page, which is part of the page's checksum.
const PAGE_KIND: u8 = 6;

/// Corrects all checksums in the file `name` whose structures are still recognizable.
pub(super) fn forge(name: &str, bytes: &mut [u8]) {
    match FileName::parse(name) {
        Some(FileName::Current) => sum(bytes, 12, CURRENT_BYTES),
        Some(FileName::Manifest(_) | FileName::Wal(_)) => forge_log(bytes),
        Some(FileName::Sst(_)) => forge_sst(bytes),
        Some(FileName::Lock | FileName::Control | FileName::Temporary) | None => {}
    }
}

/// Computes the checksum of the first `len` bytes except the four bytes at `at`, and stores it in
/// these four bytes.
pub(super) fn sum(bytes: &mut [u8], at: usize, len: usize) {
    if let Some(covered) = bytes.get_mut(..len) {
        let sum = Checksum::new().bytes(&covered[..at]).bytes(&covered[at + 4..]).finish();
        covered[at..at + 4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Sets the checksums of the record at `offset`, which consists of `header` and its stored payload
/// `stored`.
pub(super) fn seal_record(
    header: &mut [u8; RECORD_HEADER_BYTES],
    stored: &[u8],
    offset: u64,
    id: FileId,
) {
    header[4..8].copy_from_slice(&checksum(stored).to_le_bytes());
    header[16..24].copy_from_slice(&id.0.to_le_bytes());
    let sum = Checksum::new().u64(offset).bytes(&header[4..]).finish();
    header[..4].copy_from_slice(&sum.to_le_bytes());
}

fn forge_log(bytes: &mut [u8]) {
    sum(bytes, 12, LOG_HEADER_BYTES);
    let id = FileId(le_u64(bytes, 24));
    for Range { start, end } in records(bytes) {
        let record = bytes.get_mut(start..end).and_then(<[u8]>::split_first_chunk_mut);
        if let Some((header, stored)) = record {
            seal_record(header, stored, start as u64, id);
        }
    }
}

/// Returns the byte ranges of the records of a log. Uses only their lengths, not their checksums.
pub(super) fn records(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut records = Vec::new();
    let mut start = LOG_HEADER_BYTES;
    while let Some(header) = bytes.get(start..start + RECORD_HEADER_BYTES) {
        let len = (le_u32(header, 8) as usize).next_multiple_of(RECORD_ALIGN);
        let end = start + RECORD_HEADER_BYTES + len;
        if end > bytes.len() || header == [0; RECORD_HEADER_BYTES] {
            break;
        }
        records.push(start..end);
        start = end;
    }
    records
}

fn forge_sst(bytes: &mut [u8]) {
    sum_header(bytes);
    let Some(tail_at) = bytes.len().checked_sub(TAIL_BYTES) else { return };
    let Ok(tail) = Tail::decode(&bytes[tail_at..]) else { return };
    let Some(directory_at) = tail_at.checked_sub(tail.directory_len) else { return };
    sum_tail(&mut bytes[directory_at..]);
    let Ok(tail) = Tail::decode(&bytes[tail_at..]) else { return };
    let sections = tail.sections(tail.file, &bytes[directory_at..tail_at]);
    for Section { kind, offset, len, .. } in sections.unwrap_or_default() {
        let range = usize::try_from(offset).ok().zip(usize::try_from(offset + len).ok());
        let Some(part) = range.and_then(|(start, end)| bytes.get_mut(start..end)) else { continue };
        match kind {
            kind if section::HASH_INDEXES.contains(&kind) => forge_pages(part, tail.file),
            _ => forge_blocks(part, tail.file),
        }
    }
}

/// Sets the checksum of the file header at the start of `bytes`.
pub(super) fn sum_header(bytes: &mut [u8]) {
    if let Some(header) = bytes.get_mut(..HEADER_BYTES) {
        let sum = Checksum::new().bytes(&header[..24]).bytes(&header[28..]).finish();
        header[24..28].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Sets the checksum of the tail at the end of `bytes`. All bytes before the tail are the
/// directory.
pub(super) fn sum_tail(bytes: &mut [u8]) {
    let Some(at) = bytes.len().checked_sub(TAIL_BYTES) else { return };
    let (directory, tail) = bytes.split_at_mut(at);
    let sum = Checksum::new().bytes(directory).u64(u64::from(le_u32(tail, 0)));
    let sum = sum.bytes(&tail[8..32]).finish();
    tail[4..8].copy_from_slice(&sum.to_le_bytes());
}

/// Sets the checksums of consecutive blocks, up to the first implausible block header.
fn forge_blocks(mut section: &mut [u8], file: FileId) {
    for number in 0.. {
        let Some((header, rest)) = section.split_first_chunk_mut::<BLOCK_HEADER_BYTES>() else {
            return;
        };
        let len = le_u32(header, 16) as usize;
        // If a block has the padding flag, the zeros after it are its padding: the next block
        // cannot begin with a zero.
        let behind = rest.get(len..).unwrap_or_default().iter().take_while(|byte| **byte == 0);
        let padding = if header[2] & 1 != 0 { behind.count() } else { 0 };
        let Some((stored, rest)) = rest.split_at_mut_checked(len.saturating_add(padding)) else {
            return;
        };
        let sum = Checksum::new().u64(file.0).u32(number).bytes(&header[..20]).bytes(stored);
        header[20..].copy_from_slice(&sum.finish().to_le_bytes());
        section = rest;
    }
}

fn forge_pages(section: &mut [u8], file: FileId) {
    for (number, page) in (0..).zip(section.chunks_exact_mut(PAGE_BYTES)) {
        let sum = Checksum::new().u64(file.0).u32(number).bytes(&[PAGE_KIND]).bytes(&page[4..]);
        page[..4].copy_from_slice(&sum.finish().to_le_bytes());
    }
}

fn le_u32(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

pub(super) fn le_u64(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
