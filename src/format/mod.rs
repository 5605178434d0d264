//! Every byte on disk: encode, decode and verify of each structure side by side; memory to memory. FORMAT.md is the contract.
//!
//! Not here: files (`log`, `sst`, `manifest`), primitives (`codec`).

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

/// What an entry says about its user key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The key has this row from here on.
    Put = 1,
    /// The key has no row from here on: a tombstone.
    Delete = 2,
}

impl Kind {
    /// The kind with this code; others are reserved (range delete, blob reference, expiry).
    pub(crate) fn from_code(code: u8) -> Option<Kind> {
        match code {
            1 => Some(Kind::Put),
            2 => Some(Kind::Delete),
            _ => None,
        }
    }
}
