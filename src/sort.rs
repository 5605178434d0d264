//! A sort, a map and a set of small code, for lists that are short or rarely changed.
//!
//! The sorts of the standard library are compiled for each type of elements and each comparison, to
//! about 3 KB each. Of this sort only the comparison and the exchange of two elements are. The
//! trees of the standard library are compiled for each type of keys and values, to about 5 KB each;
//! the map and the set, to a tenth of that.

use std::borrow::Borrow;
use std::cmp::Ordering;

/// Sorts `list` by `compare`, which must be a total order. Equal elements keep their order.
/// Allocates 16 bytes per element, unless the list is sorted already.
pub(crate) fn sort_by<T>(list: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    if list.is_sorted_by(|a, b| compare(a, b).is_le()) {
        return;
    }
    let mut places = places(list.len(), &|a, b| compare(&list[a], &list[b]));
    for at in 0..list.len() {
        while places[at] != at {
            let place = places[at];
            list.swap(at, place);
            places.swap(at, place);
        }
    }
}

/// Returns for each of `len` elements its place in the order of `compare`.
fn places(len: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    order.sort_unstable_by(|a, b| compare(*a, *b).then(a.cmp(b)));
    let mut places = vec![0; len];
    for (place, at) in order.into_iter().enumerate() {
        places[at] = place;
    }
    places
}

/// A map in one list, in the order of the keys. An insertion or a removal moves all entries with
/// greater keys. Keys that are inserted in ascending order move none.
#[derive(Clone, Debug)]
pub(crate) struct SortedMap<K, V>(Vec<(K, V)>);

/// A set in one sorted list (see [`SortedMap`]).
#[derive(Clone, Debug)]
pub(crate) struct SortedSet<K>(SortedMap<K, ()>);

impl<K: Ord, V> SortedMap<K, V> {
    /// Returns the place of `key`, or the place at which it is to be inserted.
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|(other, _)| other.borrow().cmp(key))
    }

    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|at| &self.0[at].1)
    }

    pub(crate) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|at| &mut self.0[at].1)
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_ok()
    }

    /// Returns the value of `key`; if there is none, inserts `value` first.
    pub(crate) fn get_or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        let at = self.find(&key).unwrap_or_else(|at| {
            self.0.insert(at, (key, value()));
            at
        });
        &mut self.0[at].1
    }

    /// Sets the value of `key`. Returns the value that it replaces.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok(at) => return Some(std::mem::replace(&mut self.0[at].1, value)),
            Err(at) => self.0.insert(at, (key, value)),
        }
        None
    }

    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|at| self.0.remove(at).1)
    }

    /// Keeps the entries for which `is_kept` returns true.
    pub(crate) fn retain(&mut self, mut is_kept: impl FnMut(&K, &mut V) -> bool) {
        self.0.retain_mut(|(key, value)| is_kept(key, value));
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    pub(crate) fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl ExactSizeIterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord, V> Extend<(K, V)> for SortedMap<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<K, V> IntoIterator for SortedMap<K, V> {
    type Item = (K, V);
    type IntoIter = std::vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<K: Ord> SortedSet<K> {
    pub(crate) fn contains(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// Adds `key`. Returns false if the set has it already.
    pub(crate) fn insert(&mut self, key: K) -> bool {
        self.0.insert(key, ()).is_none()
    }

    /// Removes `key`. Returns false if the set does not have it.
    pub(crate) fn remove(&mut self, key: &K) -> bool {
        self.0.remove(key).is_some()
    }

    /// Keeps the keys for which `is_kept` returns true.
    pub(crate) fn retain(&mut self, mut is_kept: impl FnMut(&K) -> bool) {
        self.0.retain(|key, ()| is_kept(key));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }
}

impl<K> Default for SortedSet<K> {
    fn default() -> Self {
        Self(SortedMap::default())
    }
}

impl<K: Ord> Extend<K> for SortedSet<K> {
    fn extend<I: IntoIterator<Item = K>>(&mut self, keys: I) {
        for key in keys {
            self.insert(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn lists_are_sorted_as_by_the_stable_sort_of_the_standard_library() {
        for len in (0..20).chain([100, 1_000]) {
            for keys in [1, 3, 1_009] {
                let element = |at: usize| (at * 7_919 % 1_009 % keys, at.to_string());
                let list: Vec<_> = (0..len).map(element).collect();
                let (mut sorted, mut expected) = (list.clone(), list);
                sort_by(&mut sorted, |a, b| b.0.cmp(&a.0));
                expected.sort_by_key(|element| std::cmp::Reverse(element.0));
                assert_eq!(sorted, expected);
            }
        }
    }

    #[test]
    fn the_map_and_the_set_equal_those_of_the_standard_library() {
        let (mut map, mut set) = (SortedMap::default(), SortedSet::default());
        let (mut expected, mut expected_set) = (BTreeMap::new(), BTreeSet::new());
        for step in 0..2_000_u64 {
            let key = step * 7_919 % 1_009 % 97;
            match step % 5 {
                0 | 1 => assert_eq!(map.insert(key, step), expected.insert(key, step)),
                2 => {
                    *map.get_or_insert_with(key, || 1) += step;
                    *expected.entry(key).or_insert(1) += step;
                }
                _ => assert_eq!(map.remove(&key), expected.remove(&key)),
            }
            match step % 3 {
                0 => assert_eq!(set.remove(&key), expected_set.remove(&key)),
                _ => assert_eq!(set.insert(key), expected_set.insert(key)),
            }
            assert_eq!(map.get(&(step % 97)), expected.get(&(step % 97)));
            assert_eq!(set.contains(&(step % 97)), expected_set.contains(&(step % 97)));
            if step % 500 == 0 {
                map.retain(|key, _| key % 3 > 0);
                expected.retain(|key, _| key % 3 > 0);
            }
            assert!(map.iter().eq(&expected) && set.iter().eq(&expected_set));
        }
    }
}
