//! A map with bounded memory, which forgets entries that were not used for long.

use std::collections::BTreeMap;

/// The maximum number of entries of each half.
const ENTRIES_MAX: usize = 1 << 15;

/// Values by hash. A new entry, or an old one that is used again, is in the younger half. Once this
/// half is full, it becomes the older half, and the entries of the previous older half are dropped.
/// So an entry stays while fewer than 32,768 others are used between two of its uses, and all take
/// at most some 4 MiB.
#[derive(Debug, Default)]
pub(super) struct Recent<V> {
    young: BTreeMap<u64, V>,
    old: BTreeMap<u64, V>,
}

impl<V: Default> Recent<V> {
    /// Returns the value of `key`, first the default.
    pub(super) fn entry(&mut self, key: u64) -> &mut V {
        if self.young.len() >= ENTRIES_MAX && !self.young.contains_key(&key) {
            let dropped = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
            debug_assert!(dropped.len() <= ENTRIES_MAX, "each half is bounded");
        }
        let old = &mut self.old;
        self.young.entry(key).or_insert_with(|| old.remove(&key).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_used_entries_stay() {
        let mut recent = Recent::<u64>::default();
        for key in 1..5 * ENTRIES_MAX as u64 {
            *recent.entry(key) += 1;
            if key % 1_000 == 0 {
                *recent.entry(0) += 1;
            }
        }
        assert!(recent.young.len() <= ENTRIES_MAX && recent.old.len() <= ENTRIES_MAX);
        assert_eq!(*recent.entry(0), (5 * ENTRIES_MAX as u64 - 1) / 1_000);
        assert_eq!(*recent.entry(1), 0, "it was forgotten");
    }
}
