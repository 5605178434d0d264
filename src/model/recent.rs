//! A small cache of the most recently added items, which callers find by a predicate.

use std::ops::Index;

/// A cache of at most sixteen items; a new one replaces the oldest.
#[derive(Clone)]
pub(crate) struct Recent<T> {
    items: Vec<T>,
    next: usize,
}

const RECENT_MAX: usize = 16;

impl<T> Recent<T> {
    /// Returns the first item for which `is` returns true, or adds the item that `make` returns.
    pub(crate) fn find_or_add(&mut self, is: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> &T {
        let found = self.find(is).unwrap_or_else(|| self.add(make()));
        &self.items[found]
    }

    /// Returns the index of the first item for which `is` returns true.
    #[inline]
    pub(crate) fn find(&self, is: impl Fn(&T) -> bool) -> Option<usize> {
        self.items.iter().position(is)
    }

    /// Adds an item and returns its index.
    pub(crate) fn add(&mut self, item: T) -> usize {
        let place = self.next % RECENT_MAX;
        self.next = place + 1;
        match self.items.get_mut(place) {
            Some(slot) => *slot = item,
            None => self.items.push(item),
        }
        place
    }
}

impl<T> Index<usize> for Recent<T> {
    type Output = T;

    #[inline]
    fn index(&self, place: usize) -> &T {
        &self.items[place]
    }
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self { items: Vec::new(), next: 0 }
    }
}
