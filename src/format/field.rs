//! Tagged fields, which let structures grow without breaking older readers. FORMAT.md §field.
//!
//! A field is `varint (tag × 2 + must-understand bit) ‖ varint length ‖ content`.
//!
//! Invariants
//! * an unknown tag with the must-understand bit is refused with an error that names the tag;
//!   without the bit the field is skipped;
//! * a tag may repeat; each structure defines the meaning of repetition.

use std::borrow::Cow;
use std::path::Path;

use crate::codec::{Checksum, Cursor, DecodeError, check_sum, put_bytes, put_varint};
use crate::error::{Error, ErrorKind};
use crate::model::Seq;

use super::names::{FileId, FileNumber, RangeId, TableId};

/// The reason why bytes cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FormatError {
    /// Bytes that no version writes.
    Damaged(DecodeError),
    /// Bytes of a newer format; the text names the missing feature.
    Unsupported(Cow<'static, str>),
}

/// A decoded field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    pub(crate) tag: u64,
    /// Whether a reader that does not know the tag must refuse the structure.
    pub(crate) must_understand: bool,
    pub(crate) content: &'a [u8],
    /// The offset of the content in the decoded buffer.
    pub(crate) at: usize,
}

/// A value that can be the content of a field, or a part of the content.
pub(crate) trait Content: Sized {
    fn encode(&self, out: &mut Vec<u8>);
    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError>;
}

/// Implements [`Content`] for structures by encoding their members in sequence.
macro_rules! content {
    ($($name:ident { $($member:ident),* })*) => {
        $(impl $crate::format::field::Content for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                $(self.$member.encode(out);)*
            }

            fn decode(
                cursor: &mut $crate::codec::Cursor<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                $(let $member = $crate::format::field::Content::decode(cursor)?;)*
                Ok(Self { $($member),* })
            }
        })*
    };
}
pub(crate) use content;

/// The upper limit of file numbers, so that their sums do not overflow.
const NUMBER_MAX: u64 = 1 << 56;

/// Appends a field that every reader must understand.
pub(crate) fn put_field(out: &mut Vec<u8>, tag: u64, content: &[u8]) {
    put_varint(out, tag << 1 | 1);
    put_bytes(out, content);
}

/// Appends a field that a reader may skip.
pub(crate) fn put_optional_field(out: &mut Vec<u8>, tag: u64, content: &[u8]) {
    put_varint(out, tag << 1);
    put_bytes(out, content);
}

/// Appends `content` as a field that every reader must understand.
pub(crate) fn put_content(out: &mut Vec<u8>, tag: u64, content: &impl Content) {
    put_with(out, tag, |out| content.encode(out));
}

/// Appends `content`, if any, as a field that a reader may skip.
pub(crate) fn put_optional_content<C: Content>(out: &mut Vec<u8>, tag: u64, content: Option<&C>) {
    if let Some(content) = content {
        let mut bytes = Vec::new();
        content.encode(&mut bytes);
        put_optional_field(out, tag, &bytes);
    }
}

/// Appends a field that every reader must understand; `encode` writes its content.
pub(crate) fn put_with(out: &mut Vec<u8>, tag: u64, encode: impl FnOnce(&mut Vec<u8>)) {
    let mut content = Vec::new();
    encode(&mut content);
    put_field(out, tag, &content);
}

/// Decodes all fields of `payload` and calls `read` with the tag and content of each. `read` must
/// consume the whole content, or return false for an unknown tag.
pub(crate) fn read_fields(
    structure: &'static str,
    payload: &[u8],
    mut read: impl FnMut(u64, &mut Cursor<'_>) -> Result<bool, DecodeError>,
) -> Result<(), FormatError> {
    let mut cursor = Cursor::new(structure, payload);
    while let Some(field) = next_field(&mut cursor)? {
        let mut content = Cursor::new(structure, field.content);
        let known = read(field.tag, &mut content)
            .and_then(|known| if known { content.finish().map(|()| true) } else { Ok(false) });
        let known = known.map_err(|error| FormatError::from(error).shifted(field.at))?;
        if !known {
            field.unknown(structure)?;
        }
    }
    Ok(())
}

/// Reads the next field; `None` at the end.
pub(crate) fn next_field<'a>(cursor: &mut Cursor<'a>) -> Result<Option<Field<'a>>, DecodeError> {
    if cursor.is_empty() {
        return Ok(None);
    }
    let head = cursor.varint()?;
    let content = cursor.bytes()?;
    let at = cursor.at() - content.len();
    Ok(Some(Field { tag: head >> 1, must_understand: head & 1 == 1, content, at }))
}

impl Field<'_> {
    /// Refuses a field with an unknown tag, or skips it if that is allowed.
    pub(crate) fn unknown(&self, structure: &'static str) -> Result<(), FormatError> {
        if self.must_understand {
            unsupported(format!("{structure} field {} of a newer format", self.tag))
        } else {
            Ok(())
        }
    }
}

impl Content for u64 {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, *self);
    }

    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        cursor.varint()
    }
}

impl Content for Seq {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let seq = Seq(cursor.varint()?);
        if seq > Seq::MAX { Err(cursor.error("Seq beyond the year 9999")) } else { Ok(seq) }
    }
}

impl Content for FileNumber {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        match cursor.varint()? {
            number @ ..=NUMBER_MAX => Ok(FileNumber(number)),
            number => Err(cursor.error(format!("file number {number}"))),
        }
    }
}

impl Content for FileId {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes());
    }

    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        cursor.u64().map(FileId)
    }
}

impl Content for RangeId {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        cursor.varint().map(RangeId)
    }
}

impl Content for TableId {
    fn encode(&self, out: &mut Vec<u8>) {
        u64::from(self.0).encode(out);
    }

    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let id = u32::try_from(cursor.varint()?);
        id.map(TableId).map_err(|_| cursor.error("table id above u32"))
    }
}

impl<A: Content, B: Content> Content for (A, B) {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
        self.1.encode(out);
    }

    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok((A::decode(cursor)?, B::decode(cursor)?))
    }
}

impl From<DecodeError> for FormatError {
    fn from(error: DecodeError) -> Self {
        FormatError::Damaged(error)
    }
}

/// Describes the start of a file header: magic number, format version, and a checksum of all other
/// bytes.
pub(crate) struct FileHead {
    pub(crate) structure: &'static str,
    pub(crate) magic: [u8; 8],
    /// The name of the kind of file, for errors.
    pub(crate) file: &'static str,
    /// The name of the format, for errors.
    pub(crate) format: &'static str,
}

impl FileHead {
    /// The version of every format; there is only one so far.
    const VERSION: u32 = 1;
    /// The offset of the checksum in the header. The checksum covers all other bytes of the slice
    /// that [`seal`](Self::seal) and [`check`](Self::check) receive as `covered`.
    const SUM_AT: usize = 12;

    /// Fills in the header at the start of `covered`: magic number, version and checksum.
    pub(crate) fn seal(&self, covered: &mut [u8]) {
        covered[..8].copy_from_slice(&self.magic);
        covered[8..12].copy_from_slice(&Self::VERSION.to_le_bytes());
        let sum = Self::sum(covered);
        covered[12..16].copy_from_slice(&sum.to_le_bytes());
    }

    /// Checks the magic number and returns a cursor after it.
    pub(crate) fn open<'a>(&self, bytes: &'a [u8]) -> Result<Cursor<'a>, DecodeError> {
        let mut cursor = Cursor::new(self.structure, bytes);
        if cursor.take(8)? != self.magic {
            let problem = format!("not a {} file", self.file);
            return Err(DecodeError::new(self.structure, 0, problem));
        }
        Ok(cursor)
    }

    /// Compares the checksum of `covered` with `stored`, and then checks the version.
    pub(crate) fn check(
        &self,
        covered: &[u8],
        (version, stored): (u32, u32),
    ) -> Result<(), FormatError> {
        check_sum(self.structure, Self::SUM_AT, Self::sum(covered), stored)?;
        match version {
            Self::VERSION => Ok(()),
            _ => unsupported(format!("{} format {version}", self.format)),
        }
    }

    pub(super) fn sum(covered: &[u8]) -> u32 {
        let parts = [0..Self::SUM_AT, Self::SUM_AT + 4..covered.len()];
        let part = |part| covered.get(part).unwrap_or_default();
        parts.into_iter().fold(Checksum::new(), |sum, range| sum.bytes(part(range))).finish()
    }
}

/// Returns an error for data that needs a feature this build lacks.
pub(crate) fn unsupported<T>(what: impl Into<Cow<'static, str>>) -> Result<T, FormatError> {
    Err(FormatError::Unsupported(what.into()))
}

impl FormatError {
    /// Returns the engine's error for the bytes at offset `base` of `file`.
    pub(crate) fn into_error(self, file: &Path, base: u64) -> Error {
        match self {
            FormatError::Damaged(error) => Error::decode(file, base, error),
            FormatError::Unsupported(what) => {
                Error::new(ErrorKind::Unsupported, format!("{} needs {what}", file.display()))
            }
        }
    }

    /// Returns the error with its offset increased by `base`.
    pub(crate) fn shifted(self, base: usize) -> Self {
        match self {
            FormatError::Damaged(mut error) => {
                error.at += base;
                FormatError::Damaged(error)
            }
            unsupported @ FormatError::Unsupported(_) => unsupported,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_say_whether_they_must_be_understood() {
        let mut out = Vec::new();
        put_field(&mut out, 3, b"ab");
        put_optional_field(&mut out, 300, b"");
        let mut cursor = Cursor::new("thing", &out);
        let known = next_field(&mut cursor).unwrap().unwrap();
        assert_eq!((known.tag, known.content, known.at), (3, &b"ab"[..], 2));
        assert_eq!(
            known.unknown("thing"),
            Err(FormatError::Unsupported("thing field 3 of a newer format".into()))
        );
        let skipped = next_field(&mut cursor).unwrap().unwrap();
        assert_eq!((skipped.tag, skipped.unknown("thing")), (300, Ok(())));
        assert_eq!(next_field(&mut cursor), Ok(None));
    }
}
