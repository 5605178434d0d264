//! The building blocks of all encodings: little-endian integers, varints, checksums, hashes, texts,
//! and the cursor through which every decoder reads.
//!
//! Invariants
//! * no input causes a panic: a short buffer is a [`DecodeError`];
//! * a decoder knows only its buffer. The caller adds the file, and the offset of the buffer in the
//!   file, to an error.

mod checksum;
mod cursor;
mod hash;
#[cfg(feature = "cli")]
pub(crate) mod printable;
pub(crate) mod text;
mod varint;

pub(crate) use checksum::{Checksum, check_sum, checksum};
pub(crate) use cursor::Cursor;
pub(crate) use hash::{HashSeed, hash};
pub(crate) use text::{find_zero, is_ascii, is_below, is_plain, same_short, shared_len, utf8};
pub(crate) use varint::{VARINT_BYTES_MAX, put_bytes, put_varint, varint_len};

use std::borrow::Cow;
use std::fmt;

/// The error of a decoder: the problem that it found in its buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// The structure being decoded, as FORMAT.md names it.
    pub structure: &'static str,
    /// The offset of the problem in the buffer.
    pub at: usize,
    /// A description of the problem.
    pub problem: Cow<'static, str>,
}

impl DecodeError {
    /// Creates an error: `structure` has a problem at offset `at` of the buffer.
    pub(crate) fn new(
        structure: &'static str,
        at: usize,
        problem: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { structure, at, problem: problem.into() }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}: {}", self.structure, self.at, self.problem)
    }
}
