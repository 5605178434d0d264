//! The choices of a power cut: which writes survive it.

use crate::rng::Rng;

/// What a disk writes all or nothing.
pub(super) const SECTOR: usize = 512;

/// How much of what was not synced survives.
#[derive(Clone, Copy, Debug)]
pub(super) enum Survival {
    Nothing,
    Everything,
    /// The sectors below a point chosen as the first is met.
    Front,
    /// The sectors from such a point on: written back out of order.
    Back,
    /// Each with a chance of so many eighths.
    Some(u64),
}

/// Decides the sectors of one file.
pub(super) struct FileFate {
    pub(super) rng: Rng,
    pub(super) survival: Survival,
    /// How many dirty sectors were met so far.
    pub(super) met: u64,
    /// The point of `Front` and `Back`, counted in dirty sectors.
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
    /// Which of `count` versions of a sector is left: 0 is the one of the last sync, the others are
    /// the later ones in order.
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

    /// The length that is left: durable, current, or between the least and the greatest since.
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
