//! Base64 with padding, as JSON carries Edm.Binary.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends `bytes` in base64.
pub(crate) fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.chunks(3) {
        let at = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let group = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4 {
            let digit = ALPHABET[(group >> (18 - 6 * i) & 63) as usize];
            out.push(if i <= chunk.len() { digit } else { b'=' });
        }
    }
}

/// The bytes that `text` spells; `None` unless it is padded base64 in its one canonical form.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let chunks = text.len() / 4;
    for (i, chunk) in text.chunks(4).enumerate() {
        let padding = chunk.iter().rev().take_while(|&&digit| digit == b'=').count();
        if padding > 2 || (padding > 0 && i + 1 < chunks) {
            return None;
        }
        let mut group = 0u32;
        for &digit in chunk.iter().take(4 - padding) {
            group = group << 6 | value(digit)?;
        }
        group <<= 6 * padding;
        let [_, a, b, c] = u32_bytes(group);
        let decoded = [a, b, c];
        let (kept, spilled) = decoded.split_at(3 - padding);
        if spilled.iter().any(|&byte| byte != 0) {
            return None;
        }
        bytes.extend_from_slice(kept);
    }
    Some(bytes)
}

fn value(digit: u8) -> Option<u32> {
    Some(match digit {
        b'A'..=b'Z' => u32::from(digit - b'A'),
        b'a'..=b'z' => u32::from(digit - b'a') + 26,
        b'0'..=b'9' => u32::from(digit - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

/// Most significant byte first.
fn u32_bytes(value: u32) -> [u8; 4] {
    let mut bytes = value.to_le_bytes();
    bytes.reverse();
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], text: &str) {
        let mut out = Vec::new();
        put(&mut out, bytes);
        assert_eq!(std::str::from_utf8(&out), Ok(text));
        assert_eq!(decode(text).as_deref(), Some(bytes));
    }

    #[test]
    fn both_ways() {
        check(b"", "");
        check(b"f", "Zg==");
        check(b"fo", "Zm8=");
        check(b"foo", "Zm9v");
        check(b"foob", "Zm9vYg==");
        check(&[1, 2, 3], "AQID");
        check(&[0xff, 0xfe, 0xfd, 0xfc], "//79/A==");
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["Z", "Zg", "Zg=", "====", "Zg==Zg==", "Zh==", "Zm9=", "Zm 9", "Zm9v\n", "é==="]
        {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
