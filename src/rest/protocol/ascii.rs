//! Fast checks and copies of short texts, used when rows are written into a page of JSON.
//!
//! Not here: writing the pages (`rows`).

use crate::codec::text::{HIGH, any};
use crate::json::plain::odd_or_high;

/// True if all bytes are ASCII and a JSON string can hold them without escapes.
#[inline]
pub(super) fn is_plain_ascii(bytes: &[u8]) -> bool {
    !any(bytes, |word| (odd_or_high(word) | word) & HIGH)
}

/// Like `copy_from_slice`, but in a third of the time for short texts. Requires equal lengths.
#[inline(always)]
pub(super) fn copy_short(to: &mut [u8], from: &[u8]) {
    // Copies the first N and the last N bytes. The two pieces may overlap, so they cover any length
    // from N to 2 N.
    let is_copied = match from.len() {
        65.. => false,
        32.. => copy_ends::<32>(to, from),
        16.. => copy_ends::<16>(to, from),
        8.. => copy_ends::<8>(to, from),
        4.. => copy_ends::<4>(to, from),
        2.. => copy_ends::<2>(to, from),
        1 => copy_ends::<1>(to, from),
        0 => true,
    };
    if !is_copied {
        to.copy_from_slice(from);
    }
}

#[inline(always)]
fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) -> bool {
    let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) else {
        return false;
    };
    if to.len() != from.len() {
        return false;
    }
    if let Some(place) = to.first_chunk_mut() {
        *place = *first;
    }
    if let Some(place) = to.last_chunk_mut() {
        *place = *last;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::plain::is_plain;

    #[test]
    fn each_length_is_copied() {
        let text: Vec<u8> = (0..200).collect();
        for len in 0..text.len() {
            let mut copy = vec![255; len];
            copy_short(&mut copy, &text[..len]);
            assert_eq!(copy, text[..len]);
        }
    }

    #[test]
    fn plain_ascii_is_plain_and_ascii() {
        for len in 0..35 {
            let mut bytes = vec![b'a'; len];
            for at in 0..len {
                for byte in 0..=255 {
                    bytes[at] = byte;
                    assert_eq!(is_plain_ascii(&bytes), byte < 0x80 && is_plain(&bytes));
                }
                bytes[at] = b'a';
            }
        }
    }
}
