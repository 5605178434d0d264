//! 128-bit identifiers and their text form.

use std::fmt;
use std::str::FromStr;

use crate::error::{Code, Error, Result};

/// A GUID. Its bytes are stored and compared in the order of the 32 digits of the text form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Guid([u8; 16]);

/// Indexes of the bytes that follow a hyphen.
const HYPHENS: [usize; 4] = [4, 6, 8, 10];

impl Guid {
    /// Returns the GUID whose text form has these bytes, in hex and in this order.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes in the order of the text form.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl FromStr for Guid {
    type Err = Error;

    /// Parses 8-4-4-4-12 hex digits of either case.
    fn from_str(text: &str) -> Result<Self> {
        parse(text.as_bytes()).map(Guid).ok_or_else(|| Error::refused(Code::InvalidInput))
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [b'-'; 36];
        let mut places = text.iter_mut();
        for (i, byte) in self.0.iter().enumerate() {
            if HYPHENS.contains(&i) {
                places.next();
            }
            for nibble in [byte >> 4, byte & 15] {
                if let Some(place) = places.next() {
                    *place = DIGITS[usize::from(nibble)];
                }
            }
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn parse(mut text: &[u8]) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    for (i, byte) in bytes.iter_mut().enumerate() {
        if HYPHENS.contains(&i) {
            text = text.strip_prefix(b"-")?;
        }
        let ([high, low], rest) = text.split_first_chunk()?;
        *byte = (digit(*high)? << 4) | digit(*low)?;
        text = rest;
    }
    text.is_empty().then_some(bytes)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00112233-4455-6677-8899-aabbccddeeff";

    #[test]
    fn guids_print_in_lower_case_and_parse_in_either_case() {
        let guid: Guid = TEXT.to_uppercase().parse().unwrap();
        assert_eq!(guid.to_string(), TEXT);
        assert_eq!(guid.as_bytes()[..3], [0, 0x11, 0x22]);
    }

    #[test]
    fn malformed() {
        for text in [
            "",
            "0",
            &TEXT.replace('-', ""),
            &TEXT[1..],
            &format!("{TEXT}0"),
            &TEXT.replace('a', "g"),
        ] {
            assert_eq!(text.parse::<Guid>().unwrap_err().code(), "InvalidInput", "{text}");
        }
    }

    #[test]
    fn guids_are_ordered_like_their_text() {
        let (low, high): (Guid, Guid) =
            (TEXT.parse().unwrap(), TEXT.replace("00", "01").parse().unwrap());
        assert!(low < high);
    }
}
