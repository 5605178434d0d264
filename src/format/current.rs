//! The file CURRENT: it names the active manifest, and states the manifest's durable length when
//! CURRENT was written. FORMAT.md §current.

use crate::codec::DecodeError;

use super::field::{FileHead, FormatError};
use super::names::{FileId, FileNumber};

/// The length of the file.
pub(crate) const CURRENT_BYTES: usize = 40;

const STRUCTURE: &str = "current";
const HEAD: FileHead =
    FileHead { structure: STRUCTURE, magic: *b"rowscur\0", file: "CURRENT", format: "database" };

/// The content of CURRENT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) manifest: FileNumber,
    /// The id of the manifest file.
    pub(crate) id: FileId,
    /// The length of the manifest that was durable before CURRENT named it.
    pub(crate) synced_len: u64,
}

impl Current {
    pub(crate) fn encode(&self) -> [u8; CURRENT_BYTES] {
        let mut out = [0; CURRENT_BYTES];
        out[16..24].copy_from_slice(&self.manifest.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.id.0.to_le_bytes());
        out[32..40].copy_from_slice(&self.synced_len.to_le_bytes());
        HEAD.seal(&mut out);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Current, FormatError> {
        let Some(bytes) = bytes.first_chunk::<CURRENT_BYTES>().filter(|b| b.len() == bytes.len())
        else {
            let problem = format!("{} bytes long, not {CURRENT_BYTES}", bytes.len());
            return Err(DecodeError::new(STRUCTURE, 0, problem).into());
        };
        let mut cursor = HEAD.open(bytes)?;
        HEAD.check(bytes, (cursor.u32()?, cursor.u32()?))?;
        Ok(Current {
            manifest: FileNumber(cursor.u64()?),
            id: FileId(cursor.u64()?),
            synced_len: cursor.u64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_current() {
        let current =
            Current { manifest: FileNumber(7), id: FileId(0x0807_0605_0403_0201), synced_len: 160 };
        let bytes: Vec<_> = current.encode().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            bytes.concat(),
            "726f77736375720001000000a69fc17307000000000000000102030405060708a000000000000000"
        );
    }

    #[test]
    fn trap_24_every_flipped_byte_is_detected() {
        let current = Current { manifest: FileNumber(7), id: FileId(9), synced_len: 4096 };
        let bytes = current.encode();
        assert_eq!(Current::decode(&bytes), Ok(current));
        for at in 0..bytes.len() {
            for mask in 1..=255 {
                let mut bytes = bytes;
                bytes[at] ^= mask;
                assert!(matches!(Current::decode(&bytes), Err(FormatError::Damaged(_))));
            }
            assert!(Current::decode(&bytes[..at]).is_err());
        }
    }

    #[test]
    fn trap_44_a_newer_format_is_refused_by_name() {
        let current = Current { manifest: FileNumber(7), id: FileId(9), synced_len: 4096 };
        let mut bytes = current.encode();
        bytes[8] = 2;
        let sum = FileHead::sum(&bytes);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        let expected = FormatError::Unsupported("database format 2".into());
        assert_eq!(Current::decode(&bytes), Err(expected));
    }
}
