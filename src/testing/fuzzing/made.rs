//! A helper that collects the bytes that an encoder appends to a buffer.

/// Returns the bytes that `encode` appends to an empty buffer.
pub(super) fn made(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}
