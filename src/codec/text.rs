//! Tests and searches texts eight bytes at a time. Most texts in rows are short and ASCII.
//!
//! The standard library processes short texts byte by byte. To check that a text of ten letters is
//! UTF-8, it needs seven times as many instructions as this module.
//!
//! `model::value` compares texts and counts their UTF-16 units.

use std::str::Utf8Error;

/// The high bit of each byte.
pub(crate) const HIGH: u64 = 0x8080_8080_8080_8080;
/// The lowest bit of each byte.
pub(crate) const ONES: u64 = 0x0101_0101_0101_0101;

/// Returns `bytes` as text.
///
/// # Errors
/// An error if `bytes` are not UTF-8.
#[inline]
#[expect(
    unsafe_code,
    reason = "a text of a row is decoded several times for each time it is looked at"
)]
pub(crate) fn utf8(bytes: &[u8]) -> Result<&str, Utf8Error> {
    if is_ascii(bytes) {
        // SAFETY: `is_ascii` has checked every byte of this slice. Each byte below 80 (hex) is
        // valid UTF-8 by itself, and so is any sequence of such bytes.
        return Ok(unsafe { std::str::from_utf8_unchecked(bytes) });
    }
    std::str::from_utf8(bytes)
}

/// Whether no byte is above 7F (hex).
#[inline]
pub(crate) fn is_ascii(bytes: &[u8]) -> bool {
    !any(bytes, |word| word & HIGH)
}

/// Whether no byte is above 7F (hex) and none is 0.
#[inline]
pub(crate) fn is_plain(bytes: &[u8]) -> bool {
    // If all bytes are below 80 (hex), subtracting 1 from each byte sets the high bit of the first
    // zero byte by a borrow. Without a zero byte there is no borrow.
    !any(bytes, |word| (word.wrapping_sub(ONES) | word) & HIGH)
}

/// Whether both slices have the same bytes. Inlined for names, which are short: comparing two of
/// them inline takes a third of the time of a function call.
#[inline]
pub(crate) fn same_short(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let ends = |bytes: &[u8]| match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
        _ => match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
            (Some(first), Some(last)) => {
                (u64::from(u32::from_le_bytes(*first)), u64::from(u32::from_le_bytes(*last)))
            }
            _ => (0, bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte))),
        },
    };
    // The first and the last word, which may overlap, cover up to sixteen bytes.
    ends(a) == ends(b) && (a.len() <= 16 || a == b)
}

/// Whether `a < b`. Optimized for keys: the first eight bytes are compared without a function call.
/// Only if they are equal is the rest compared.
#[inline]
pub(crate) fn is_below(a: &[u8], b: &[u8]) -> bool {
    if let (Some(x), Some(y)) = (a.first_chunk::<8>(), b.first_chunk::<8>())
        && x != y
    {
        // With its bytes swapped, a little-endian word compares like the byte string it was read
        // from.
        return u64::from_le_bytes(*x).swap_bytes() < u64::from_le_bytes(*y).swap_bytes();
    }
    a < b
}

/// Returns the length of the common prefix of `a` and `b`.
#[inline]
pub(crate) fn shared_len(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (Some(a), Some(b)) = (a.get(..len), b.get(..len)) else { return 0 };
    let mut at = 0;
    for (x, y) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
        // The first byte of a little-endian word is its lowest.
        let differ = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differ != 0 {
            return at + differ.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    if let (Some(x), Some(y)) = (a.last_chunk::<8>(), b.last_chunk::<8>()) {
        // This word may overlap words that were compared before. Their bytes are equal, so they do
        // not change the result.
        let differ = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        return len - 8 + (differ.trailing_zeros() as usize / 8).min(8);
    }
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Returns the index of the first zero byte.
#[inline]
pub(crate) fn find_zero(bytes: &[u8]) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // Bytes after the first zero byte may be marked by mistake. Bytes before it never are.
        let zeros = word.wrapping_sub(ONES) & !word & HIGH;
        if zeros != 0 {
            return Some(i * 8 + zeros.trailing_zeros() as usize / 8);
        }
    }
    let at = rest.iter().position(|byte| *byte == 0)?;
    Some(bytes.len() - rest.len() + at)
}

/// Divides `bytes` into words of eight bytes, and returns whether `marks` is nonzero for any word.
/// Words may overlap. A text of less than eight bytes becomes one word in which bytes are repeated.
#[inline]
pub(crate) fn any(bytes: &[u8], marks: impl Fn(u64) -> u64) -> bool {
    // The first and the last word, which may overlap, cover up to sixteen bytes, so most texts need
    // no loop.
    if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        let ends = marks(u64::from_le_bytes(*first)) | marks(u64::from_le_bytes(*last));
        let inner = if bytes.len() > 16 { bytes.get(8..).unwrap_or_default() } else { &[] };
        let words = inner.as_chunks::<8>().0;
        return words.iter().fold(ends, |all, word| all | marks(u64::from_le_bytes(*word))) != 0;
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let both =
            u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last));
        return marks(both) != 0;
    }
    let (&[first, ..], &[.., last]) = (bytes, bytes) else { return false };
    let middle = bytes.get(1).copied().unwrap_or(first);
    let ends = u64::from(middle) << 8 | u64::from(last);
    marks((ONES * u64::from(first)) & !0xffff | ends) != 0
}

/// Returns a number with a comma before every three digits: `1,234,567`.
pub(crate) fn with_thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests all lengths up to 34 bytes, every position, and every byte value at that position.
    #[test]
    fn every_byte_of_every_length_is_checked() {
        for len in 0..35 {
            let mut bytes = vec![b'a'; len];
            assert_eq!(find_zero(&bytes), None);
            for at in 0..len {
                for byte in 0..=255 {
                    bytes[at] = byte;
                    assert_eq!(is_ascii(&bytes), byte < 0x80, "{byte:02x} at {at} of {len}");
                    assert_eq!(is_plain(&bytes), (1..0x80).contains(&byte));
                    assert_eq!(utf8(&bytes), std::str::from_utf8(&bytes));
                    assert_eq!(find_zero(&bytes), (byte == 0).then_some(at));
                }
                bytes[at] = b'a';
            }
        }
    }

    #[test]
    fn the_shared_prefix_ends_before_the_first_byte_that_differs() {
        for len in 0..35 {
            let same = vec![b'a'; len];
            assert_eq!(shared_len(&same, &same), len);
            assert_eq!(shared_len(&same, &[&same[..], b"aaaaaaaaaa"].concat()), len);
            for (first, second) in (0..len).flat_map(|a| (0..len).map(move |b| (a, b))) {
                let mut other = same.clone();
                (other[first], other[second]) = (b'b', 0xff);
                assert_eq!(shared_len(&same, &other), first.min(second));
                other.push(b'a');
                assert_eq!(shared_len(&other, &same), first.min(second));
            }
        }
    }

    #[test]
    fn short_texts_are_the_same_if_every_byte_is() {
        for len in 0..35 {
            let mut bytes = vec![b'a'; len];
            let same = bytes.clone();
            assert!(same_short(&bytes, &same));
            assert!(!same_short(&bytes, &[&same[..], b"a"].concat()));
            for at in 0..len {
                for byte in [0, b'b', 0xff] {
                    bytes[at] = byte;
                    assert!(!same_short(&bytes, &same) && !same_short(&same, &bytes));
                }
                bytes[at] = b'a';
            }
        }
    }

    #[test]
    fn words_compare_like_their_bytes() {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for len in 0..12 {
            keys.push(vec![7; len]);
            for at in 0..len {
                for byte in [0, 6, 8, 0x80, 0xff] {
                    let mut key = vec![7; len];
                    key[at] = byte;
                    keys.push(key);
                }
            }
        }
        for (a, b) in keys.iter().flat_map(|a| keys.iter().map(move |b| (a, b))) {
            assert_eq!(is_below(a, b), a < b, "{a:?} {b:?}");
        }
    }

    /// Tests texts of ordinary bytes with two special bytes, for every pair of special bytes and
    /// every distance between them.
    #[test]
    fn borrows_between_bytes_cause_no_wrong_result() {
        let kinds =
            [0, 1, 2, 0x1f, 0x20, 0x21, 0x22, 0x23, 0x5c, 0x5d, 0x7f, 0x80, 0x81, 0xc3, 0xa4, 0xff];
        for len in 2..20 {
            for (a, b) in (0..len).flat_map(|a| (0..len).map(move |b| (a, b))) {
                for (x, y) in kinds.iter().flat_map(|x| kinds.iter().map(move |y| (*x, *y))) {
                    let mut bytes = vec![b'a'; len];
                    (bytes[a], bytes[b]) = (x, y);
                    bytes.iter_mut().filter(|byte| **byte == b'a').for_each(|byte| *byte = 1);
                    assert_eq!(is_ascii(&bytes), bytes.is_ascii());
                    assert_eq!(is_plain(&bytes), bytes.is_ascii() && !bytes.contains(&0));
                    assert_eq!(find_zero(&bytes), bytes.iter().position(|byte| *byte == 0));
                    assert_eq!(utf8(&bytes), std::str::from_utf8(&bytes));
                }
            }
        }
    }

    #[test]
    fn utf8_validation_agrees_with_the_standard_library() {
        for text in ["", "ä", "über alles", "日本語の文字列", "plain, and then 🙂", "a\0b"]
        {
            assert_eq!(utf8(text.as_bytes()), Ok(text));
        }
        let cut = "日本語".as_bytes().split_last().unwrap().1;
        assert_eq!(utf8(cut).unwrap_err().valid_up_to(), 6);
    }
}
