//! Parquet files: `guard` checks what a file claims before the crate `parquet` believes it, and
//! `write` writes the entities of a table. Reading is a part of `import`.

pub(super) mod guard;
pub(super) mod write;
