//! What a database can be told when it is opened: plain data, every default and limit with its reason.

/// How immutable files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMode {
    /// Mapped read-only: fastest; a file cut short by somebody else while open ends the process with a signal.
    Mmap,
    /// Read through a bounded block cache: a failing disk is an error and never a signal.
    Pread,
}

/// How the blocks of a table file are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// As they are: used in place.
    None,
    /// zstd; needs the feature `zstd`.
    Zstd,
}
