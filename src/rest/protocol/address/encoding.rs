//! Percent-encodes and decodes texts.

use crate::rest::protocol::fault::{Fault, Known};

/// Appends `text`, percent-encoding all bytes except ASCII letters, digits and `-_.~`.
pub(crate) fn put_encoded(out: &mut String, text: &str) {
    if text.bytes().all(is_plain) {
        return out.push_str(text);
    }
    for byte in text.bytes() {
        if is_plain(byte) {
            out.push(char::from(byte));
        } else {
            let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
            out.extend(['%', digit(byte >> 4), digit(byte & 15)].map(|c| c.to_ascii_uppercase()));
        }
    }
}

pub(super) fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~')
}

/// Decodes escapes such as `%41`. In a query string, `+` is decoded as a space.
pub(super) fn decode(text: &str, is_query: bool) -> Result<String, Fault> {
    let has_escapes = text.contains('%') || is_query && text.contains('+');
    if !has_escapes {
        return Ok(text.to_owned());
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' if is_query => b' ',
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let (high, low) = (digit(), digit());
                let value =
                    high.zip(low).and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
                value.ok_or_else(|| undecodable(is_query))?
            }
            byte => byte,
        });
    }
    String::from_utf8(decoded).map_err(|_| undecodable(is_query))
}

fn undecodable(is_query: bool) -> Fault {
    if is_query { Fault::query_syntax() } else { Known::RequestUrlFailedToParse.into() }
}
