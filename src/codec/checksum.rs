//! Computes and compares CRC-32 checksums, of one buffer or of several parts.

use super::DecodeError;

/// Returns the CRC-32 (ISO-HDLC) of one buffer.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// Compares the checksum `computed` with the one `stored` at byte `at` of `structure`.
///
/// # Errors
/// An error if they differ.
#[inline]
pub(crate) fn check_sum(
    structure: &'static str,
    at: usize,
    computed: u32,
    stored: u32,
) -> Result<(), DecodeError> {
    if computed == stored {
        return Ok(());
    }
    let problem = format!("checksum {computed:08x}, stored {stored:08x}");
    Err(DecodeError::new(structure, at, problem))
}

/// Computes the CRC-32 of several parts as if they were one buffer.
pub(crate) struct Checksum(crc32fast::Hasher);

impl Checksum {
    pub(crate) fn new() -> Self {
        Self(crc32fast::Hasher::new())
    }

    pub(crate) fn update(&mut self, part: &[u8]) {
        self.0.update(part);
    }

    pub(crate) fn bytes(mut self, part: &[u8]) -> Self {
        self.update(part);
        self
    }

    pub(crate) fn u64(self, part: u64) -> Self {
        self.bytes(&part.to_le_bytes())
    }

    pub(crate) fn u32(self, part: u32) -> Self {
        self.bytes(&part.to_le_bytes())
    }

    pub(crate) fn finish(self) -> u32 {
        self.0.finalize()
    }
}
