//! One function per decoder, for the fuzz targets, and one per example of FORMAT.md, for the test that
//! holds the document to the code. No promise of stability: the feature `fuzzing` is for this repository.
//!
//! Invariants
//! * a target panics only if a decoder breaks a promise: it panicked itself, ran away, or what it
//!   accepted does not encode back to what it means;
//! * targets below a checksum take the bytes behind it, so that mutations reach the decoder.
//!
//! Not here: drivers and corpora (`fuzz/`), the document (FORMAT.md).

mod examples;
mod files;
#[cfg(feature = "cli")]
mod json;
mod logs;
mod rows;
mod seeds;

pub use examples::round_trip;
pub use files::{block, file_meta, hash_index, row_block, sparse_index, sst, stats};
#[cfg(feature = "cli")]
pub use json::{filter, json};
pub use logs::{current, edit, field, field_set, record, span, wal};
pub use rows::{key, row, shape, text};
pub use seeds::seeds;

/// A target: any bytes are fine.
pub type Target = fn(&[u8]);

/// Every target by name; each file of `src/format` has one of its name.
pub const TARGETS: &[(&str, Target)] = &[
    ("block", block),
    ("current", current),
    ("edit", edit),
    ("field", field),
    ("field_set", field_set),
    ("file_meta", file_meta),
    #[cfg(feature = "cli")]
    ("filter", filter),
    ("hash_index", hash_index),
    #[cfg(feature = "cli")]
    ("json", json),
    ("key", key),
    ("record", record),
    ("row", row),
    ("row_block", row_block),
    ("shape", shape),
    ("span", span),
    ("sparse_index", sparse_index),
    ("sst", sst),
    ("stats", stats),
    ("text", text),
    ("wal", wal),
];
