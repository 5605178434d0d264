//! One function per decoder, command that takes bytes, and whole database, for the fuzz targets; and one per example of
//! FORMAT.md, for the test that holds the document to the code. No promise of stability: the feature `fuzzing` is for
//! this repository.
//!
//! Invariants
//! * a target panics only if what it runs breaks a promise: it panicked itself, answered wrongly, or what it
//!   accepted does not encode back to what it means;
//! * bytes below a checksum are also tried with the checksum made right, so that mutations reach what is behind it;
//! * a target needs memory in proportion to its input: the drivers count what it holds and set the limit.
//!
//! Not here: drivers and corpora (`fuzz/`), the document (FORMAT.md).

#[cfg(feature = "cli")]
pub(crate) mod commands;
mod directory;
mod examples;
mod files;
mod filters;
mod forge;
#[cfg(feature = "cli")]
mod json;
mod logs;
mod made;
#[cfg(feature = "sim")]
mod program;
mod rows;
mod seeds;

#[cfg(feature = "cli")]
pub use commands::{csv, exec, ndjson};
pub use directory::directory;
pub use examples::round_trip;
pub use files::{block, file_meta, hash_index, row_block, sparse_index, sst, stats, zones};
pub use filters::filter_text;
#[cfg(feature = "cli")]
pub use json::json;
pub use logs::{current, edit, field, field_set, generation, record, span, wal};
#[cfg(feature = "sim")]
pub use program::program;
pub use rows::{key, row, shape, text};
pub use seeds::seeds;

/// A target: any bytes are fine.
pub type Target = fn(&[u8]);

/// Every target by name, but for `fuzzing_rest`. Each file of `src/format` has one of its name.
pub const TARGETS: &[(&str, Target)] = &[
    ("block", block),
    #[cfg(feature = "cli")]
    ("csv", csv),
    ("current", current),
    ("directory", directory),
    ("edit", edit),
    #[cfg(feature = "cli")]
    ("exec", exec),
    ("field", field),
    ("field_set", field_set),
    ("file_meta", file_meta),
    ("filter_text", filter_text),
    ("generation", generation),
    ("hash_index", hash_index),
    #[cfg(feature = "cli")]
    ("json", json),
    ("key", key),
    #[cfg(feature = "cli")]
    ("ndjson", ndjson),
    #[cfg(feature = "sim")]
    ("program", program),
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
    ("zones", zones),
];
