//! Defines the cursor through which every decoder reads. The cursor checks bounds, and its errors
//! contain the offset.

use super::{DecodeError, VARINT_BYTES_MAX};

/// Reads a buffer front to back, for the decoder of one structure.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    structure: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(structure: &'static str, bytes: &'a [u8]) -> Self {
        Self { structure, bytes, at: 0 }
    }

    /// Returns the offset of the next byte.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Returns the number of remaining bytes.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left() == 0
    }

    /// Returns an error about this structure, at the current offset.
    pub(crate) fn error(&self, problem: impl Into<std::borrow::Cow<'static, str>>) -> DecodeError {
        DecodeError::new(self.structure, self.at, problem)
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let Some(part) = self.bytes.get(self.at..).and_then(|rest| rest.get(..len)) else {
            return Err(self.error(format!("{len} bytes wanted, {} left", self.left())));
        };
        self.at += len;
        Ok(part)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads a varint. An encoding that is longer than necessary is accepted; a value of more than
    /// 64 bits is refused.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, DecodeError> {
        match self.bytes.get(self.at) {
            Some(&byte @ ..0x80) => {
                self.at += 1;
                Ok(byte.into())
            }
            _ => self.long_varint(),
        }
    }

    /// Reads any varint. Most have one byte and need no loop.
    fn long_varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for i in 0..VARINT_BYTES_MAX {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if i == VARINT_BYTES_MAX - 1 && bits > 1 {
                break;
            }
            value |= bits << (7 * i);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.error("varint longer than 64 bits"))
    }

    /// Reads a varint as a count of items, at most `max`.
    pub(crate) fn count(&mut self, max: usize) -> Result<usize, DecodeError> {
        let value = self.varint()?;
        match usize::try_from(value) {
            Ok(value) if value <= max => Ok(value),
            _ => Err(self.error(format!("count {value} is above the limit {max}"))),
        }
    }

    /// Reads a length and then that number of bytes.
    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.varint()?;
        let Ok(len) = usize::try_from(len) else {
            return Err(self.error(format!("length {len} is beyond the address space")));
        };
        self.take(len)
    }

    /// Reads all remaining bytes.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        self.at = self.bytes.len();
        rest
    }

    /// Returns an error if any bytes remain.
    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        if self.is_empty() {
            Ok(())
        } else {
            Err(self.error(format!("{} bytes too many", self.left())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{put_bytes, put_varint, varint_len};
    use super::*;

    #[track_caller]
    fn check_varint(value: u64, encoded: &[u8]) {
        let mut out = Vec::new();
        put_varint(&mut out, value);
        assert_eq!(out, encoded);
        assert_eq!(varint_len(value), encoded.len());
        let mut cursor = Cursor::new("test", &out);
        assert_eq!(cursor.varint(), Ok(value));
        assert_eq!(cursor.finish(), Ok(()));
    }

    #[test]
    fn varints() {
        check_varint(0, &[0]);
        check_varint(127, &[0x7f]);
        check_varint(128, &[0x80, 1]);
        check_varint(300, &[0xac, 2]);
        check_varint(u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    }

    #[test]
    fn varint_of_more_than_64_bits_is_refused() {
        let bytes = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        assert!(Cursor::new("test", &bytes).varint().is_err());
        assert!(Cursor::new("test", &[0x80; 11]).varint().is_err());
    }

    #[test]
    fn errors_of_short_buffers_name_their_offset() {
        let mut cursor = Cursor::new("thing", &[1, 2, 3]);
        assert_eq!(cursor.u8(), Ok(1));
        let error = cursor.u32().unwrap_err();
        assert_eq!(error.to_string(), "thing at byte 1: 4 bytes wanted, 2 left");
    }

    #[test]
    fn lengths_beyond_the_buffer_are_errors() {
        let mut out = Vec::new();
        put_bytes(&mut out, b"abc");
        assert_eq!(Cursor::new("test", &out).bytes(), Ok(&b"abc"[..]));
        put_varint(&mut out, u64::MAX);
        let mut cursor = Cursor::new("test", &out);
        cursor.bytes().unwrap();
        assert!(cursor.bytes().is_err());
    }
}
