//! Fuzz targets for decoders, for commands that read bytes, and for whole databases, and one round
//! trip for each example in FORMAT.md. The feature `fuzzing` is meant for this repository only; its
//! interface is unstable.
//!
//! A target panics only if the tested code is wrong: it panicked, returned a wrong result, or
//! accepted data that decodes to something else after it is encoded again. Where a checksum
//! protects the bytes, the target also corrects the checksum and tests again, to reach the code
//! after the check. The drivers (`fuzz/`) limit the memory that a target may use.

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

/// A fuzz target, which accepts any bytes.
pub type Target = fn(&[u8]);

/// Every target by name, except `fuzzing_rest`. Each file in `src/format` has a target with the
/// name of the file.
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
