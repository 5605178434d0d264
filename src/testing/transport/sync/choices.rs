//! What the source and the target of a run have besides rows.

use super::super::strict::Strict;
use crate::rng::Rng;

/// The choices of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choices {
    /// Whether the target drops the tables that the source drops.
    pub(super) allow_drop: bool,
    /// Whether rows are imported into the source.
    pub(super) imports: bool,
    /// Whether the source drops rows near a limit on disk use. Then rows are large.
    pub(super) is_full: bool,
    /// What the target refuses.
    pub(super) strict: Strict,
}

impl Choices {
    pub(super) fn new(rng: &mut Rng) -> Self {
        let allow_drop = rng.chance(1, 2);
        let imports = rng.chance(1, 4);
        let is_full = rng.chance(1, 6);
        let strict = Strict::new(rng, if is_full { 400_000 } else { 500 });
        Self { allow_drop, imports, is_full, strict }
    }
}
