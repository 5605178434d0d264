//! A generation file describes one backup: it lists the stored files, and contains the version edit
//! that recreates the database from them. FORMAT.md §generation.
//!
//! Invariants
//! * one checksum covers the whole file, so it is valid as a whole or not at all;
//! * the stored files are exactly the files that the edit adds, with the same lengths, in ascending
//!   order of id;
//! * an unknown field that need not be understood is kept.
//!
//! `db::backup` writes, restores and removes generations.

use crate::codec::{Cursor, DecodeError, put_varint};
use crate::format::edit::{Identity, VersionEdit};
use crate::format::field::{Content, FileHead, FormatError, put_content, put_with, unsupported};
use crate::format::field_set::{self, FieldSet};
use crate::format::names::FileId;
use crate::model::Seq;
use crate::sort::sort_by;

/// The number of bytes before the fields.
pub(crate) const GENERATION_HEADER_BYTES: usize = 24;

/// The maximum length of a generation file; bounds the memory that a reader uses.
pub(crate) const GENERATION_BYTES_MAX: u64 = 1 << 30;

const STRUCTURE: &str = "generation";
pub(crate) const MAGIC: [u8; 8] = *b"rowsgen\0";
const HEAD: FileHead =
    FileHead { structure: STRUCTURE, magic: MAGIC, file: "generation", format: "backup" };

/// The length of a stored file in the shortest encoding: id, one byte of length, checksum.
const STORED_BYTES_MIN: usize = 8 + 1 + 4;

/// One backup of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    /// 1 for the first backup in a directory, and one more for each later backup. A number is not
    /// reused while a backup with a higher number exists.
    pub(crate) number: u64,
    /// The time of the backup in ticks since 1601, by the database's clock.
    pub(crate) taken: u64,
    /// The stored files, by ascending id: all files that `edit` adds.
    pub(crate) files: Vec<StoredFile>,
    /// The edit that recreates the database from the files. It contains the identity, and the Seq
    /// of the backup.
    pub(crate) edit: VersionEdit,
    /// Fields of a newer format, as they were encoded.
    pub(crate) unknown: Box<[u8]>,
}

/// A table file in a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StoredFile {
    pub(crate) id: FileId,
    pub(crate) bytes: u64,
    /// CRC-32 of the whole file.
    pub(crate) checksum: u32,
}

mod tag {
    pub(super) const NUMBER: u64 = 1;
    pub(super) const TAKEN: u64 = 2;
    pub(super) const FILES: u64 = 3;
    pub(super) const EDIT: u64 = 4;
}

impl Generation {
    /// Returns the Seq of the backup, which has every commit up to this Seq and no later one.
    pub(crate) fn seq(&self) -> Seq {
        self.edit.flushed_seq.unwrap_or_default()
    }

    /// Returns the identity of the database; a decoded generation always has one.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.edit.identity.as_ref()
    }

    /// Returns the stored file with this id.
    pub(crate) fn file(&self, id: FileId) -> Option<&StoredFile> {
        let at = self.files.binary_search_by_key(&id, |file| file.id);
        at.ok().and_then(|at| self.files.get(at))
    }

    /// Encodes the whole file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; GENERATION_HEADER_BYTES];
        put_content(&mut out, tag::NUMBER, &self.number);
        put_content(&mut out, tag::TAKEN, &self.taken);
        put_with(&mut out, tag::FILES, |content| {
            put_varint(content, self.files.len() as u64);
            for file in &self.files {
                (file.id, file.bytes).encode(content);
                content.extend_from_slice(&file.checksum.to_le_bytes());
            }
        });
        put_with(&mut out, tag::EDIT, |content| self.edit.encode(content));
        out.extend_from_slice(&self.unknown);
        let len = out.len() as u64;
        out[16..24].copy_from_slice(&len.to_le_bytes());
        HEAD.seal(&mut out);
        out
    }

    /// Reads the whole file.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Generation, FormatError> {
        check_header(bytes)?;
        let fields = bytes.get(GENERATION_HEADER_BYTES..).unwrap_or_default();
        Self::decode_fields(fields).map_err(|error| error.shifted(GENERATION_HEADER_BYTES))
    }

    fn decode_fields(bytes: &[u8]) -> Result<Generation, FormatError> {
        let fields = FieldSet::<{ tag::EDIT as usize + 1 }>::decode(STRUCTURE, bytes)?;
        if let Some(tag) = field_set::not_understood(fields.unknown) {
            return unsupported(format!("generation field {tag} of a newer format"));
        }
        let generation = Generation {
            number: fields.get(tag::NUMBER)?,
            taken: fields.get(tag::TAKEN)?,
            files: fields.read(tag::FILES, stored_files)?,
            edit: VersionEdit::decode(fields.bytes(tag::EDIT)?)?,
            unknown: fields.unknown.into(),
        };
        if let Some(feature) = generation.identity().and_then(Identity::unreadable) {
            return unsupported(format!("the feature {feature}"));
        }
        generation.check().map_err(|problem| DecodeError::new(STRUCTURE, 0, problem))?;
        Ok(generation)
    }

    /// Rejects impossible values.
    fn check(&self) -> Result<(), &'static str> {
        let edit = &self.edit;
        if edit.identity.is_none() || edit.flushed_seq.is_none() {
            return Err("an edit without identity or Seq");
        }
        if !edit.add_logs.is_empty() || edit.clean_close.is_some() {
            return Err("an edit that names logs");
        }
        if self.taken > Seq::MAX.0 {
            return Err("taken beyond the year 9999");
        }
        let is_stored = |meta: &crate::format::file_meta::FileMeta| {
            self.file(meta.id).is_some_and(|file| file.bytes == meta.bytes)
        };
        // All files of the edit must be stored. Their ids must be distinct, and as many as the
        // stored files, so that each stored file is named exactly once.
        let mut ids: Vec<FileId> = edit.add_files.iter().map(|meta| meta.id).collect();
        sort_by(&mut ids, Ord::cmp);
        ids.dedup();
        let all = edit.add_files.iter().all(is_stored);
        if !all || ids.len() != edit.add_files.len() || ids.len() != self.files.len() {
            return Err("the stored files are not those of the edit");
        }
        Ok(())
    }
}

fn check_header(bytes: &[u8]) -> Result<(), FormatError> {
    let mut cursor = HEAD.open(bytes)?;
    let (head, len) = ((cursor.u32()?, cursor.u32()?), cursor.u64()?);
    if len != bytes.len() as u64 {
        let problem = format!("{} bytes long, {len} by its header", bytes.len());
        return Err(DecodeError::new(STRUCTURE, 16, problem).into());
    }
    HEAD.check(bytes, head)
}

fn stored_files(cursor: &mut Cursor<'_>) -> Result<Vec<StoredFile>, DecodeError> {
    let count = cursor.count(cursor.left() / STORED_BYTES_MIN)?;
    let mut files: Vec<StoredFile> = Vec::with_capacity(count);
    for _ in 0..count {
        let (id, bytes) = Content::decode(cursor)?;
        let file = StoredFile { id, bytes, checksum: cursor.u32()? };
        if files.last().is_some_and(|last| last.id >= file.id) {
            return Err(cursor.error("ids do not ascend"));
        }
        files.push(file);
    }
    Ok(files)
}

#[cfg(test)]
mod tests;
