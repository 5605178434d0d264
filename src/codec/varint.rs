//! Varints: integers encoded in LEB128, seven bits per byte, least significant bits first.

/// The maximum length of an encoded u64.
pub(crate) const VARINT_BYTES_MAX: usize = 10;

/// Appends `value` as a varint.
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a length, as a varint, and the bytes.
#[inline]
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Returns how many bytes [`put_varint`] appends for `value`.
#[inline]
pub(crate) fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}
