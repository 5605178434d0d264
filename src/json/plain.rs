//! Finds the bytes of a JSON string that need an escape, eight bytes at a time.
//!
//! `serde_json` writes the escapes; `codec` checks UTF-8.

use crate::codec::text::{HIGH, ONES, any};

/// True if these bytes need no escape in a JSON string: no quote, no backslash, and no byte below
/// 0x20.
#[inline]
pub(crate) fn is_plain(bytes: &[u8]) -> bool {
    !any(bytes, odd)
}

/// Counts the leading bytes that need no escape in a JSON string: up to a quote, a backslash or a
/// byte below 0x20.
#[inline]
pub(super) fn plain_len(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let marks = odd(u64::from_le_bytes(*word));
        if marks != 0 {
            // Only the lowest mark is reliable (see `odd`).
            return i * 8 + marks.trailing_zeros() as usize / 8;
        }
    }
    let is_odd = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\');
    bytes.len() - rest.len() + rest.iter().position(is_odd).unwrap_or(rest.len())
}

/// Sets the high bit of each byte that is a quote, a backslash or below 0x20. In bytes more
/// significant than the lowest such byte, the bit may be set wrongly.
#[inline]
fn odd(word: u64) -> u64 {
    odd_or_high(word) & !word & HIGH
}

/// Sets the high bit of each byte that is a quote, a backslash or below 0x20. Bytes above 0x7F may
/// be marked too, and the other bits have no meaning.
#[inline]
pub(crate) fn odd_or_high(word: u64) -> u64 {
    // Flipping bit 1 turns a quote into 0x20 and keeps bytes below 0x20 in that range, so one
    // comparison finds quotes and low bytes.
    let quote_or_low = (word ^ (ONES * 0x02)).wrapping_sub(ONES * 0x21);
    let backslash = (word ^ (ONES * u64::from(b'\\'))).wrapping_sub(ONES);
    quote_or_low | backslash
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests all pairs of byte kinds at all pairs of positions, because the subtraction in
    /// `odd_or_high` can borrow from the next byte. The borrow must not change the result.
    #[test]
    fn each_byte_of_each_length_is_checked() {
        let kinds =
            [0, 1, 2, 0x1f, 0x20, 0x21, 0x22, 0x23, 0x5c, 0x5d, 0x7f, 0x80, 0x81, 0xc3, 0xa4, 0xff];
        for len in 2..20 {
            for (a, b) in (0..len).flat_map(|a| (0..len).map(move |b| (a, b))) {
                for (x, y) in kinds.iter().flat_map(|x| kinds.iter().map(move |y| (*x, *y))) {
                    let mut bytes = vec![b'a'; len];
                    (bytes[a], bytes[b]) = (x, y);
                    let is_odd = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\');
                    let first = bytes.iter().position(is_odd);
                    assert_eq!(is_plain(&bytes), first.is_none());
                    assert_eq!(plain_len(&bytes), first.unwrap_or(len));
                }
            }
        }
    }
}
