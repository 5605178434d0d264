//! The logical clock of a database. A Seq is the number of a commit, its Timestamp and, formatted,
//! its ETag.

use std::fmt;

/// The number of a commit: ticks of 100 ns since 1601-01-01 UTC, strictly increasing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub(crate) u64);

impl Seq {
    /// Less than the Seq of every commit.
    pub(crate) const ZERO: Seq = Seq(0);
    /// The last tick of the year 9999. No commit can follow it.
    pub const MAX: Seq = Seq(2_650_467_743_999_999_999);

    /// Returns the ticks of 100 ns since 1601-01-01 UTC.
    pub fn ticks(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
