//! Reads structures of tagged fields in which each tag occurs at most once. FORMAT.md §field_set.
//!
//! Invariants
//! * tags ascend, so the same fields have only one encoding;
//! * fields with unknown tags, which are above the known ones, are kept as they were written.

use super::field::{Content, next_field};
use crate::codec::{Cursor, DecodeError};

/// The known fields of a structure by tag, and the encoded unknown fields.
pub(crate) struct FieldSet<'a, const KNOWN: usize> {
    structure: &'static str,
    /// Offset and content of each known field.
    known: [Option<(usize, &'a [u8])>; KNOWN],
    /// The fields with unknown tags, as they were encoded.
    pub(crate) unknown: &'a [u8],
}

impl<'a, const KNOWN: usize> FieldSet<'a, KNOWN> {
    /// Reads the fields that fill `bytes`; tags from `KNOWN` on are unknown.
    pub(crate) fn decode(structure: &'static str, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut known = [None; KNOWN];
        let mut unknown_from = bytes.len();
        let mut cursor = Cursor::new(structure, bytes);
        let mut previous = 0;
        loop {
            let start = cursor.at();
            let Some(field) = next_field(&mut cursor)? else { break };
            let tag = field.tag;
            if tag <= previous {
                let problem = format!("field {tag} after field {previous}");
                return Err(DecodeError::new(structure, start, problem));
            }
            previous = tag;
            match usize::try_from(tag).ok().and_then(|tag| known.get_mut(tag)) {
                Some(known) => *known = Some((field.at, field.content)),
                None => unknown_from = unknown_from.min(start),
            }
        }
        let unknown = bytes.get(unknown_from..).unwrap_or_default();
        Ok(Self { structure, known, unknown })
    }

    /// Returns the content of a required field.
    pub(crate) fn bytes(&self, tag: u64) -> Result<&'a [u8], DecodeError> {
        self.required(tag).map(|(_, content)| content)
    }

    /// Returns the value of a required field.
    pub(crate) fn get<T: Content>(&self, tag: u64) -> Result<T, DecodeError> {
        self.read(tag, T::decode)
    }

    /// Returns the value of a field, or its default if the field is absent.
    pub(crate) fn get_or_default<T: Content + Default>(&self, tag: u64) -> Result<T, DecodeError> {
        self.optional(tag).map_or_else(|| Ok(T::default()), |_| self.get(tag))
    }

    /// Returns the value that `read` decodes from a required field; `read` must consume the whole
    /// content.
    pub(crate) fn read<T>(
        &self,
        tag: u64,
        read: impl FnOnce(&mut Cursor<'a>) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let (at, content) = self.required(tag)?;
        let mut cursor = Cursor::new(self.structure, content);
        let value = read(&mut cursor);
        value
            .and_then(|value| cursor.finish().map(|()| value))
            .map_err(|error| DecodeError { at: at + error.at, ..error })
    }

    fn optional(&self, tag: u64) -> Option<(usize, &'a [u8])> {
        self.known.get(usize::try_from(tag).ok()?).copied().flatten()
    }

    fn required(&self, tag: u64) -> Result<(usize, &'a [u8]), DecodeError> {
        let missing = || DecodeError::new(self.structure, 0, format!("field {tag} is missing"));
        self.optional(tag).ok_or_else(missing)
    }
}

/// Returns the first tag among `unknown` fields that a reader must understand.
pub(crate) fn not_understood(unknown: &[u8]) -> Option<u64> {
    let mut cursor = Cursor::new("fields", unknown);
    while let Ok(Some(field)) = next_field(&mut cursor) {
        if field.must_understand {
            return Some(field.tag);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::field::{put_content, put_field};

    #[test]
    fn fields_ascend_and_unknown_ones_are_kept() {
        let mut out = Vec::new();
        put_content(&mut out, 1, &300);
        put_field(&mut out, 2, b"ab");
        let known = out.len();
        put_field(&mut out, 9, b"new");
        assert_eq!(&out[..known], [3, 2, 0xac, 2, 5, 2, b'a', b'b']);
        let fields = FieldSet::<3>::decode("test", &out).unwrap();
        assert_eq!((fields.get(1), fields.bytes(2)), (Ok(300u64), Ok(&b"ab"[..])));
        assert_eq!((fields.unknown, not_understood(fields.unknown)), (&out[known..], Some(9)));
        put_field(&mut out, 9, b"again");
        assert!(FieldSet::<3>::decode("test", &out).is_err());
    }

    #[test]
    fn missing_and_overlong_fields_are_errors() {
        let mut out = Vec::new();
        put_field(&mut out, 1, &[1, 1]);
        let fields = FieldSet::<3>::decode("test", &out).unwrap();
        assert_eq!(
            fields.get::<u64>(1).unwrap_err().to_string(),
            "test at byte 3: 1 bytes too many"
        );
        assert_eq!(fields.bytes(2).unwrap_err().problem, "field 2 is missing");
        assert_eq!(fields.get_or_default(2), Ok(0u64));
    }
}
