//! Tagged fields: how structures grow without breaking older readers. FORMAT.md §field.
//!
//! A field is `varint (tag × 2 + must-understand bit) ‖ varint length ‖ content`.
//!
//! Invariants
//! * an unknown tag with the bit is refused as unsupported, by name; without the bit it is skipped;
//! * a tag may repeat; what that means is the structure's business.

use std::borrow::Cow;
use std::path::Path;

use crate::codec::{Cursor, DecodeError, put_bytes, put_varint};
use crate::error::{Error, ErrorKind};

/// Why bytes could not be used: they are wrong, or they ask for more than this build can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FormatError {
    /// Not what any version writes.
    Damaged(DecodeError),
    /// A newer format's; the text names what is missing.
    Unsupported(Cow<'static, str>),
}

/// One field as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    pub(crate) tag: u64,
    /// A reader that does not know the tag must refuse the structure.
    pub(crate) must_understand: bool,
    pub(crate) content: &'a [u8],
    /// The offset of the content in the decoded buffer.
    pub(crate) at: usize,
}

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

/// The next field; `None` at the end.
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
    /// What a reader that does not know this tag does: refuse or skip.
    pub(crate) fn unknown(&self, structure: &'static str) -> Result<(), FormatError> {
        if self.must_understand {
            let text = format!("{structure} field {} of a newer format", self.tag);
            Err(FormatError::Unsupported(text.into()))
        } else {
            Ok(())
        }
    }
}

impl From<DecodeError> for FormatError {
    fn from(error: DecodeError) -> Self {
        FormatError::Damaged(error)
    }
}

impl FormatError {
    /// The engine's error about the bytes at `base` of `file`.
    pub(crate) fn into_error(self, file: &Path, base: u64) -> Error {
        match self {
            FormatError::Damaged(error) => Error::decode(file, base, error),
            FormatError::Unsupported(what) => {
                Error::new(ErrorKind::Unsupported, format!("{} needs {what}", file.display()))
            }
        }
    }

    /// The same error with its offset counted from `base` bytes earlier.
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
