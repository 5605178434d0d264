//! Encodes and checks the start and the end of an SST: the header, the directory of sections, and
//! the tail. FORMAT.md §sst.
//!
//! Invariants
//! * header and tail have the same layout in every format version, so a reader can tell a newer
//!   file from a damaged one;
//! * both contain the file's id; the tail also contains the file's length.
//!
//! `file_meta` encodes the entries of the directory; each kind of section has a module of its own.

use crate::codec::{Checksum, Cursor, DecodeError, check_sum};
use crate::format::field::{FormatError, unsupported};
use crate::format::file_meta::Section;
use crate::format::names::FileId;

/// The length of the header.
pub(crate) const HEADER_BYTES: usize = 32;
/// The length of the tail.
pub(crate) const TAIL_BYTES: usize = 40;
/// The maximum length of a directory.
pub(crate) const DIRECTORY_BYTES_MAX: usize = 64 << 10;

/// The kinds of sections.
pub(crate) mod section {
    pub(crate) const ROWS: u16 = 1;
    pub(crate) const SHAPES: u16 = 2;
    pub(crate) const HASH_INDEX: u16 = 3;
    pub(crate) const SPARSE_INDEX: u16 = 4;
    pub(crate) const HANDLES: u16 = 5;
    pub(crate) const ZONES: u16 = 6;
    pub(crate) const STATISTICS: u16 = 7;
    pub(crate) const ZONE_SUMMARY: u16 = 8;
    /// A hash index of the second form (see `format::hash_index`).
    pub(crate) const HASH_WORDS: u16 = 9;
    /// A hash index of the third form (see `format::hash_index`).
    pub(crate) const HASH_TAGS: u16 = 10;

    /// The kinds of hash indexes. Each file has exactly one hash index.
    pub(crate) const HASH_INDEXES: [u16; 3] = [HASH_INDEX, HASH_WORDS, HASH_TAGS];
    pub(super) const NEEDED: [u16; 4] = [ROWS, SHAPES, SPARSE_INDEX, HANDLES];
    pub(super) const OPTIONAL: [u16; 3] = [STATISTICS, ZONES, ZONE_SUMMARY];
}

const STRUCTURE_HEADER: &str = "sst header";
const STRUCTURE_TAIL: &str = "sst footer";
const MAGIC: [u8; 8] = *b"rwsn.sst";
const VERSION: u32 = 1;

/// The tail of an SST, with the length of the directory and the identity of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) directory_len: usize,
    pub(crate) file: FileId,
    pub(crate) file_bytes: u64,
    checksum: u32,
    version: u32,
    features: u32,
}

/// Appends the header of `file`.
pub(crate) fn encode_header(file: FileId, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    // The empty set of features that a reader must understand.
    out.extend_from_slice(&0u32.to_le_bytes());
    out.extend_from_slice(&file.0.to_le_bytes());
    let sum = Checksum::new().bytes(out.get(start..).unwrap_or_default()).bytes(&[0; 4]).finish();
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
}

/// Checks the header of `file`.
pub(crate) fn check_header(file: FileId, bytes: &[u8]) -> Result<(), FormatError> {
    let mut cursor = Cursor::new(STRUCTURE_HEADER, bytes);
    let magic = cursor.take(8)?;
    let (version, features) = (cursor.u32()?, cursor.u32()?);
    let id = FileId(cursor.u64()?);
    let checksum = cursor.u32()?;
    let reserved = cursor.take(4)?;
    cursor.finish()?;
    let checked = bytes.get(..HEADER_BYTES - 8).unwrap_or_default();
    let sum = Checksum::new().bytes(checked).bytes(reserved).finish();
    check_magic(STRUCTURE_HEADER, 0, magic)?;
    check_sum(STRUCTURE_HEADER, 24, sum, checksum)?;
    check_version(version, features)?;
    check_id(STRUCTURE_HEADER, 16, id, file)
}

/// Returns the id of the file that begins with `bytes`, after checking its header.
pub(crate) fn file_id(bytes: &[u8]) -> Result<FileId, FormatError> {
    let id = bytes.get(16..24).and_then(|id| id.first_chunk::<8>());
    let id = FileId(id.map_or(0, |id| u64::from_le_bytes(*id)));
    check_header(id, bytes).map(|()| id)
}

/// Appends the directory and the tail of `file`, which has `before` bytes before the directory.
/// Returns the length of the file.
pub(crate) fn encode_footer(
    file: FileId,
    sections: &[Section],
    before: u64,
    out: &mut Vec<u8>,
) -> u64 {
    let start = out.len();
    Section::encode_all(sections, out);
    let directory_len = out.len() - start;
    let file_bytes = before + (directory_len + TAIL_BYTES) as u64;
    let mut tail =
        Tail { directory_len, file, file_bytes, checksum: 0, version: VERSION, features: 0 };
    tail.checksum = tail.sum(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&u32::try_from(directory_len).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&tail.checksum.to_le_bytes());
    out.extend_from_slice(&file.0.to_le_bytes());
    out.extend_from_slice(&file_bytes.to_le_bytes());
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&0u32.to_le_bytes());
    out.extend_from_slice(&MAGIC);
    file_bytes
}

impl Tail {
    /// Reads the tail, which fills `bytes`. Checks only the magic number and the limit on the
    /// directory's length.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Tail, DecodeError> {
        let mut cursor = Cursor::new(STRUCTURE_TAIL, bytes);
        let tail = Tail {
            directory_len: cursor.u32()? as usize,
            checksum: cursor.u32()?,
            file: FileId(cursor.u64()?),
            file_bytes: cursor.u64()?,
            version: cursor.u32()?,
            features: cursor.u32()?,
        };
        check_magic(STRUCTURE_TAIL, cursor.at(), cursor.take(8)?)?;
        cursor.finish()?;
        if tail.directory_len > DIRECTORY_BYTES_MAX {
            let problem = format!("a directory of {} bytes", tail.directory_len);
            return Err(DecodeError::new(STRUCTURE_TAIL, 0, problem));
        }
        Ok(tail)
    }

    /// Verifies the tail and the directory of `file`, and decodes the directory. Offsets in errors
    /// count from the start of `directory`. A wrong checksum is reported at the tail, because a
    /// damaged tail may have led to the wrong bytes for the directory.
    pub(crate) fn sections(
        &self,
        file: FileId,
        directory: &[u8],
    ) -> Result<Vec<Section>, FormatError> {
        check_sum(STRUCTURE_TAIL, directory.len() + 4, self.sum(directory), self.checksum)?;
        check_version(self.version, self.features)?;
        check_id(STRUCTURE_TAIL, directory.len() + 8, self.file, file)?;
        let mut cursor = Cursor::new(STRUCTURE_TAIL, directory);
        let sections = Section::decode_all(&mut cursor, self.file_bytes)?;
        cursor.finish()?;
        check_sections(&sections)?;
        Ok(sections)
    }

    fn sum(&self, directory: &[u8]) -> u32 {
        Checksum::new()
            .bytes(directory)
            .u64(self.directory_len as u64)
            .u64(self.file.0)
            .u64(self.file_bytes)
            .u32(self.version)
            .u32(self.features)
            .finish()
    }
}

/// Checks that each required section exists once. Refuses an unknown section whose flags say that a
/// reader must understand it.
fn check_sections(sections: &[Section]) -> Result<(), FormatError> {
    for section in sections {
        let known = section::NEEDED.iter().chain(&section::HASH_INDEXES);
        let known = known.chain(&section::OPTIONAL).any(|kind| *kind == section.kind);
        if !known && section.flags & Section::MUST_UNDERSTAND != 0 {
            return unsupported(format!("sections of kind {}, which are newer", section.kind));
        }
    }
    let count = |kind: &u16| sections.iter().filter(|section| section.kind == *kind).count();
    let missing = section::NEEDED.iter().any(|kind| count(kind) != 1);
    let hash_indexes: usize = section::HASH_INDEXES.iter().map(count).sum();
    if missing || hash_indexes != 1 || section::OPTIONAL.iter().any(|kind| count(kind) > 1) {
        let problem = "a section is missing or there twice";
        return Err(DecodeError::new(STRUCTURE_TAIL, 0, problem).into());
    }
    Ok(())
}

fn check_magic(structure: &'static str, at: usize, magic: &[u8]) -> Result<(), DecodeError> {
    if magic == MAGIC {
        return Ok(());
    }
    Err(DecodeError::new(structure, at, "not the magic number of an SST"))
}

fn check_version(version: u32, features: u32) -> Result<(), FormatError> {
    let what = match (version, features) {
        (VERSION, 0) => return Ok(()),
        (VERSION, _) => format!("features {features:#x}, which are newer"),
        _ => format!("format version {version}: this build reads version {VERSION}"),
    };
    unsupported(what)
}

fn check_id(
    structure: &'static str,
    at: usize,
    found: FileId,
    expected: FileId,
) -> Result<(), FormatError> {
    if found == expected {
        return Ok(());
    }
    let problem = format!("file id {:016x}, {:016x} expected", found.0, expected.0);
    Err(DecodeError::new(structure, at, problem).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId(0x1122_3344_5566_7788);

    fn sections() -> Vec<Section> {
        let section = |kind, offset, len| Section { kind, flags: 1, offset, len, checksum: 7 };
        vec![
            section(section::ROWS, 32, 100),
            section(section::SHAPES, 132, 30),
            section(section::HASH_INDEX, 4096, 4096),
            section(section::SPARSE_INDEX, 8192, 40),
            section(section::HANDLES, 8232, 80),
        ]
    }

    fn footer(sections: &[Section]) -> Vec<u8> {
        let mut out = Vec::new();
        let bytes = encode_footer(FILE, sections, 8312, &mut out);
        assert_eq!(bytes, 8312 + out.len() as u64);
        out
    }

    fn read(footer: &[u8]) -> Result<Vec<Section>, FormatError> {
        let (directory, tail) = footer.split_at(footer.len() - TAIL_BYTES);
        Tail::decode(tail)?.sections(FILE, directory)
    }

    #[test]
    fn the_bytes_of_a_header() {
        let mut out = Vec::new();
        encode_header(FILE, &mut out);
        assert_eq!(check_header(FILE, &out), Ok(()));
        assert_eq!(out.len(), HEADER_BYTES);
        let expected = *b"rwsn.sst\x01\0\0\0\0\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11";
        assert_eq!(out[..24], expected);
        assert!(check_header(FileId(1), &out).is_err());
        assert_eq!(file_id(&out), Ok(FILE));
        assert!(file_id(&out[..20]).is_err());
    }

    #[test]
    fn trap_24_every_byte_of_header_and_footer_is_checked() {
        let mut header = Vec::new();
        encode_header(FILE, &mut header);
        let footer = footer(&sections());
        assert_eq!(read(&footer), Ok(sections()));
        let corrupt = |result: Result<(), FormatError>| {
            assert!(matches!(result, Err(FormatError::Damaged(_))), "{result:?}");
        };
        for bit in 0..8 {
            for at in 0..header.len() {
                let mut header = header.clone();
                header[at] ^= 1 << bit;
                corrupt(check_header(FILE, &header));
            }
            for at in 0..footer.len() {
                let mut footer = footer.clone();
                footer[at] ^= 1 << bit;
                corrupt(read(&footer).map(|_| ()));
            }
        }
    }

    /// If the checksum over directory and tail is wrong, the error must state the offset of the
    /// checksum, wherever the flipped bit is.
    #[test]
    fn a_wrong_checksum_is_reported_at_its_offset() {
        let footer = footer(&sections());
        for (at, bit) in [(0, 1), (footer.len() - TAIL_BYTES, 1), (footer.len() - TAIL_BYTES, 8)] {
            let mut footer = footer.clone();
            footer[at] ^= bit;
            let tail_at = footer.len() - TAIL_BYTES;
            let tail = Tail::decode(&footer[tail_at..]).unwrap();
            let directory_at = tail_at.saturating_sub(tail.directory_len);
            let directory = &footer[directory_at..tail_at];
            let Err(FormatError::Damaged(error)) = tail.sections(FILE, directory) else {
                panic!("the damage is not detected");
            };
            assert_eq!(directory_at + error.at, tail_at + 4, "{error}");
        }
    }

    #[test]
    fn trap_44_newer_files_are_refused_by_name() {
        #[track_caller]
        fn check(change: impl FnOnce(&mut Tail), expected: &str) {
            let footer = footer(&sections());
            let (directory, tail) = footer.split_at(footer.len() - TAIL_BYTES);
            let mut tail = Tail::decode(tail).unwrap();
            change(&mut tail);
            tail.checksum = tail.sum(directory);
            let text = format!("{:?}", tail.sections(FILE, directory).unwrap_err());
            assert!(text.starts_with("Unsupported") && text.contains(expected), "{text}");
        }
        check(|tail| tail.version = 2, "format version 2: this build reads version 1");
        check(|tail| tail.features = 4, "features 0x4");
    }

    #[test]
    fn unknown_sections_are_skipped_or_refused() {
        let mut sections = sections();
        let newer = Section { kind: 99, flags: 0, offset: 8312, len: 0, checksum: 0 };
        sections.push(newer);
        assert_eq!(read(&footer(&sections)), Ok(sections.clone()));
        sections[5].flags = 1;
        assert!(matches!(read(&footer(&sections)), Err(FormatError::Unsupported(_))));
        sections.pop();
        sections.pop();
        assert!(matches!(read(&footer(&sections)), Err(FormatError::Damaged(_))));
    }
}
