//! The manifest's entry for one SST, including the directory of its sections. FORMAT.md §file_meta.
//!
//! Invariants
//! * fields are tagged and in ascending order of tag, so a value has only one encoding;
//! * an unknown field is kept and encoded again unchanged;
//! * an unknown field that must be understood makes the file
//!   [unreadable](FileMeta::not_understood), not corrupt.
//!
//! The entry has no checksum of its own; the edit's record has one.

use crate::codec::{Cursor, DecodeError, put_varint};
use crate::format::field::{put_content, put_field};
use crate::format::field_set::{self, FieldSet};
use crate::format::names::{FileId, FileNumber};
use crate::model::Seq;

/// The metadata of an SST, known without opening the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileMeta {
    pub(crate) number: FileNumber,
    /// The file's id, which is also stored in the file. The number locates the file; the id
    /// confirms that the file found is the right one.
    pub(crate) id: FileId,
    /// The length of the file.
    pub(crate) bytes: u64,
    /// The Seqs of the oldest and the newest entry.
    pub(crate) seq_min: Seq,
    pub(crate) seq_max: Seq,
    /// Reads before this Seq do not see the file. It is [`Seq::ZERO`] except for ingested files.
    pub(crate) visible_from: Seq,
    /// No range tombstone of a commit up to this Seq hides an entry of the file. It is
    /// [`Seq::ZERO`] if this was not checked.
    pub(crate) tombstones_applied: Seq,
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    /// Size of keys and rows in bytes, as encoded, before prefix sharing and block compression.
    pub(crate) raw_bytes: u64,
    /// The first and the last user key.
    pub(crate) key_min: Box<[u8]>,
    pub(crate) key_max: Box<[u8]>,
    /// A copy of the directory in the file, which lists its sections.
    pub(crate) sections: Vec<Section>,
    /// Fields of a newer format, as they were encoded.
    pub(crate) unknown: Box<[u8]>,
}

/// A section (part) of an SST: its kind, position and checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) kind: u16,
    /// [`Section::MUST_UNDERSTAND`]; the other bits are reserved and zero.
    pub(crate) flags: u8,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// CRC-32 of the section's bytes.
    pub(crate) checksum: u32,
}

const STRUCTURE: &str = "file entry";

/// The maximum number of sections, more than any file has. It limits the memory that a reader
/// allocates for a hostile directory.
const SECTIONS_MAX: usize = 256;

mod tag {
    pub(super) const NUMBER: u64 = 1;
    pub(super) const ID: u64 = 2;
    pub(super) const BYTES: u64 = 3;
    pub(super) const SEQ_MIN: u64 = 4;
    pub(super) const SEQ_MAX: u64 = 5;
    pub(super) const VISIBLE_FROM: u64 = 6;
    pub(super) const ENTRIES: u64 = 7;
    pub(super) const TOMBSTONES: u64 = 8;
    pub(super) const RAW_BYTES: u64 = 9;
    pub(super) const KEY_MIN: u64 = 10;
    pub(super) const KEY_MAX: u64 = 11;
    pub(super) const SECTIONS: u64 = 12;
    pub(super) const TOMBSTONES_APPLIED: u64 = 13;
}

impl Section {
    /// Flag: a reader that does not know the section's kind must not use the file.
    pub(crate) const MUST_UNDERSTAND: u8 = 1;

    /// Appends a directory: the number of sections, then the sections.
    pub(crate) fn encode_all(sections: &[Section], out: &mut Vec<u8>) {
        put_varint(out, sections.len() as u64);
        for section in sections {
            put_varint(out, u64::from(section.kind));
            out.push(section.flags);
            put_varint(out, section.offset);
            put_varint(out, section.len);
            out.extend_from_slice(&section.checksum.to_le_bytes());
        }
    }

    /// Reads a directory: sections in order of offset, without overlap, all within `file_bytes`.
    pub(crate) fn decode_all(
        cursor: &mut Cursor<'_>,
        file_bytes: u64,
    ) -> Result<Vec<Section>, DecodeError> {
        let count = cursor.count(SECTIONS_MAX)?;
        let mut sections = Vec::with_capacity(count);
        let mut end = 0;
        for _ in 0..count {
            let section = Self::decode(cursor)?;
            if section.offset < end {
                return Err(cursor.error("sections overlap or are out of order"));
            }
            end = match section.offset.checked_add(section.len) {
                Some(end) if end <= file_bytes => end,
                _ => return Err(cursor.error("section ends beyond the file")),
            };
            sections.push(section);
        }
        Ok(sections)
    }

    fn decode(cursor: &mut Cursor<'_>) -> Result<Section, DecodeError> {
        let kind = cursor.varint()?;
        let Ok(kind) = u16::try_from(kind) else {
            return Err(cursor.error(format!("section kind {kind}")));
        };
        Ok(Section {
            kind,
            flags: cursor.u8()?,
            offset: cursor.varint()?,
            len: cursor.varint()?,
            checksum: cursor.u32()?,
        })
    }
}

impl FileMeta {
    /// Returns the heap memory that the entry uses.
    pub(crate) fn memory_bytes(&self) -> usize {
        let keys = self.key_min.len() + self.key_max.len() + self.unknown.len();
        keys + self.sections.capacity() * size_of::<Section>()
    }

    /// Appends the entry; the caller writes its length.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_content(out, tag::NUMBER, &self.number);
        put_content(out, tag::ID, &self.id);
        put_content(out, tag::BYTES, &self.bytes);
        put_content(out, tag::SEQ_MIN, &self.seq_min);
        put_content(out, tag::SEQ_MAX, &self.seq_max);
        if self.visible_from != Seq::ZERO {
            put_content(out, tag::VISIBLE_FROM, &self.visible_from);
        }
        put_content(out, tag::ENTRIES, &self.entries);
        put_content(out, tag::TOMBSTONES, &self.tombstones);
        put_content(out, tag::RAW_BYTES, &self.raw_bytes);
        put_field(out, tag::KEY_MIN, &self.key_min);
        put_field(out, tag::KEY_MAX, &self.key_max);
        let mut directory = Vec::new();
        Section::encode_all(&self.sections, &mut directory);
        put_field(out, tag::SECTIONS, &directory);
        if self.tombstones_applied > Seq::ZERO {
            put_content(out, tag::TOMBSTONES_APPLIED, &self.tombstones_applied);
        }
        out.extend_from_slice(&self.unknown);
    }

    /// Reads an entry that fills `bytes`.
    pub(crate) fn decode(bytes: &[u8]) -> Result<FileMeta, DecodeError> {
        let fields =
            FieldSet::<{ tag::TOMBSTONES_APPLIED as usize + 1 }>::decode(STRUCTURE, bytes)?;
        let file_bytes = fields.get(tag::BYTES)?;
        let meta = FileMeta {
            number: fields.get(tag::NUMBER)?,
            id: fields.get(tag::ID)?,
            bytes: file_bytes,
            seq_min: fields.get(tag::SEQ_MIN)?,
            seq_max: fields.get(tag::SEQ_MAX)?,
            visible_from: fields.get_or_default(tag::VISIBLE_FROM)?,
            tombstones_applied: fields.get_or_default(tag::TOMBSTONES_APPLIED)?,
            entries: fields.get(tag::ENTRIES)?,
            tombstones: fields.get(tag::TOMBSTONES)?,
            raw_bytes: fields.get(tag::RAW_BYTES)?,
            key_min: fields.bytes(tag::KEY_MIN)?.into(),
            key_max: fields.bytes(tag::KEY_MAX)?.into(),
            sections: fields
                .read(tag::SECTIONS, |cursor| Section::decode_all(cursor, file_bytes))?,
            unknown: fields.unknown.into(),
        };
        meta.check().map_err(|problem| DecodeError::new(STRUCTURE, 0, problem))?;
        Ok(meta)
    }

    /// Returns the tag of an unknown field that must be understood. If there is one, the database
    /// must not use the file, and fails with [`Unsupported`](crate::error::ErrorKind::Unsupported).
    pub(crate) fn not_understood(&self) -> Option<u64> {
        field_set::not_understood(&self.unknown)
    }

    /// Returns the section of this kind.
    pub(crate) fn section(&self, kind: u16) -> Option<&Section> {
        self.sections.iter().find(|section| section.kind == kind)
    }

    /// Whether `key` is between the file's first and last key, inclusive.
    #[inline]
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        key >= &*self.key_min && key <= &*self.key_max
    }

    /// Rejects impossible values.
    fn check(&self) -> Result<(), &'static str> {
        if self.entries == 0 || self.tombstones > self.entries {
            return Err("no entries, or more tombstones than entries");
        }
        if self.seq_min > self.seq_max || self.seq_max > Seq::MAX {
            return Err("impossible Seq interval");
        }
        if self.key_min > self.key_max {
            return Err("the first key is greater than the last");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::put_bytes;

    fn sample() -> FileMeta {
        FileMeta {
            number: FileNumber(7),
            id: FileId(0x1122_3344_5566_7788),
            bytes: 8300,
            seq_min: Seq(100),
            seq_max: Seq(300),
            visible_from: Seq::ZERO,
            tombstones_applied: Seq::ZERO,
            entries: 3,
            tombstones: 1,
            raw_bytes: 60,
            key_min: b"\0\0\0\x01a\0b"[..].into(),
            key_max: b"\0\0\0\x01c\0d"[..].into(),
            sections: vec![Section {
                kind: 1,
                flags: 1,
                offset: 32,
                len: 90,
                checksum: 0xa1b2_c3d4,
            }],
            unknown: Box::default(),
        }
    }

    fn encoded(meta: &FileMeta) -> Vec<u8> {
        let mut out = Vec::new();
        meta.encode(&mut out);
        out
    }

    #[test]
    fn round_trip() {
        let mut meta = sample();
        assert_eq!(FileMeta::decode(&encoded(&meta)), Ok(meta.clone()));
        (meta.visible_from, meta.tombstones_applied) = (Seq(5), Seq(9));
        assert_eq!(FileMeta::decode(&encoded(&meta)), Ok(meta));
    }

    #[test]
    fn unknown_fields_are_kept_and_required_ones_reported() {
        let mut out = encoded(&sample());
        put_varint(&mut out, 40 << 1);
        put_bytes(&mut out, b"new");
        let meta = FileMeta::decode(&out).unwrap();
        assert_eq!((meta.not_understood(), encoded(&meta)), (None, out.clone()));
        put_field(&mut out, 41, b"newer");
        let meta = FileMeta::decode(&out).unwrap();
        assert_eq!((meta.not_understood(), encoded(&meta)), (Some(41), out));
    }

    #[test]
    fn cut_or_changed_bytes_never_panic() {
        let bytes = encoded(&sample());
        for len in 0..bytes.len() {
            assert!(FileMeta::decode(&bytes[..len]).is_err());
        }
        for at in 0..bytes.len() {
            for mask in 1..=255 {
                let mut bytes = bytes.clone();
                bytes[at] ^= mask;
                if let Ok(meta) = FileMeta::decode(&bytes) {
                    assert_eq!(FileMeta::decode(&encoded(&meta)), Ok(meta));
                }
            }
        }
    }

    #[test]
    fn impossible_entries_are_refused() {
        #[track_caller]
        fn check(change: impl FnOnce(&mut FileMeta)) {
            let mut meta = sample();
            change(&mut meta);
            assert!(FileMeta::decode(&encoded(&meta)).is_err());
        }
        check(|meta| meta.entries = 0);
        check(|meta| meta.tombstones = 4);
        check(|meta| meta.seq_min = Seq(301));
        check(|meta| meta.key_min = b"\xff"[..].into());
        check(|meta| meta.bytes = 121);
    }

    #[test]
    fn bounds_are_inclusive() {
        let meta = sample();
        assert!(meta.covers(&meta.key_min) && meta.covers(&meta.key_max));
        assert!(!meta.covers(b"\0\0\0\x01a\0a") && !meta.covers(b"\0\0\0\x01c\0d\0"));
    }
}
