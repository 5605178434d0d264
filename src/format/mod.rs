//! Encodes, decodes and verifies every structure on disk, but reads and writes no files. FORMAT.md
//! is the specification.
//!
//! `log`, `sst` and `manifest` read and write the files; `codec` has the primitives.

pub(crate) mod block;
pub(crate) mod current;
pub(crate) mod edit;
pub(crate) mod field;
pub(crate) mod field_set;
pub(crate) mod file_meta;
pub(crate) mod generation;
pub(crate) mod hash_index;
pub(crate) mod key;
pub(crate) mod names;
pub(crate) mod record;
pub(crate) mod row;
pub(crate) mod row_block;
pub(crate) mod shape;
pub(crate) mod span;
pub(crate) mod sparse_index;
pub(crate) mod sst;
pub(crate) mod stats;
pub(crate) mod wal;
pub(crate) mod zones;

/// The effect of an entry on its user key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    /// From the entry's Seq on, the key has the entry's row.
    Put = 1,
    /// From the entry's Seq on, the key has no row (a tombstone).
    Delete = 2,
}

impl Kind {
    /// Returns the kind with this code. Other codes are reserved for later use (range delete, blob
    /// reference, expiry).
    pub(crate) fn from_code(code: u8) -> Option<Kind> {
        match code {
            1 => Some(Kind::Put),
            2 => Some(Kind::Delete),
            _ => None,
        }
    }
}
