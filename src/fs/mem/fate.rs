//! Chooses which unsynced changes survive a simulated power cut.

use crate::rng::Rng;

/// The unit that a disk writes atomically, in bytes.
pub(super) const SECTOR: usize = 512;

/// A rule that selects the changes that survive, among the unsynced changes of a file's sectors or
/// of a directory's names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Survival {
    Nothing,
    Everything,
    /// The changes before a randomly chosen point.
    Front,
    /// The changes from a randomly chosen point on, as if the system wrote later changes to disk
    /// first.
    Back,
    /// Each change survives with this probability, given in eighths.
    Some(u64),
}

/// Chooses which version of each sector of one file survives.
pub(super) struct FileFate {
    pub(super) rng: Rng,
    pub(super) survival: Survival,
    /// The number of dirty sectors for which a version was already chosen.
    pub(super) met: u64,
    /// The index of the dirty sector at which `Front` ends and `Back` begins.
    pub(super) point: u64,
}

impl Survival {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        match rng.below(8) {
            0 => Survival::Nothing,
            1 => Survival::Everything,
            2 => Survival::Front,
            3 => Survival::Back,
            _ => Survival::Some(1 + rng.below(7)),
        }
    }
}

impl FileFate {
    /// Returns the index of the version of a sector that survives, out of `count` versions. Version
    /// 0 is that of the last sync; later versions follow in the order in which they were written.
    pub(super) fn version(&mut self, count: usize) -> usize {
        let met = self.met;
        self.met += 1;
        let survives = match self.survival {
            Survival::Nothing => false,
            Survival::Everything => true,
            Survival::Front => met < self.point,
            Survival::Back => met >= self.point,
            Survival::Some(eighths) => self.rng.chance(eighths, 8),
        };
        match (survives, self.survival) {
            (false, _) => 0,
            (true, Survival::Some(_)) => 1 + self.rng.below(count as u64 - 1) as usize,
            (true, _) => count - 1,
        }
    }

    /// Returns the length that survives: the durable length, the current length, or a length
    /// between the minimum and the maximum since the last sync.
    pub(super) fn len(&mut self, [durable, current, low, high]: [u64; 4]) -> u64 {
        let between = self.rng.below(high - low + 1);
        match (self.survival, self.rng.below(8)) {
            (Survival::Everything, 1..) => current,
            (Survival::Nothing, 4..) => durable,
            (_, 0 | 4) => durable,
            (_, 1 | 5 | 6) => current,
            (_, 2) => low + between,
            (_, 3) => (low + between).next_multiple_of(SECTOR as u64).min(high),
            (_, _) => high,
        }
    }
}
