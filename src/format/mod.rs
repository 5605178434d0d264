//! Every byte on disk: encode, decode and verify of each structure side by side; memory to memory. FORMAT.md is the contract.
//!
//! Not here: files (`log`, `sst`, `manifest`), primitives (`codec`).

pub(crate) mod key;
pub(crate) mod names;
pub(crate) mod row;
pub(crate) mod shape;

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
