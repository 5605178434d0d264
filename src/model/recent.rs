//! The few things that were met last, to be found again without making them anew.
//!
//! Not here: what identifies them; whoever looks for one says that.

use std::ops::Index;

/// At most sixteen; the one that was added first gives way.
#[derive(Clone)]
pub(crate) struct Recent<T> {
    items: Vec<T>,
    next: usize,
}

const RECENT_MAX: usize = 16;

impl<T> Recent<T> {
    /// The first that `is` one looked for, or the one that `make` makes.
    pub(crate) fn find_or_add(&mut self, is: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> &T {
        let found = self.find(is).unwrap_or_else(|| self.add(make()));
        &self.items[found]
    }

    /// Where the first is that `is` one looked for.
    #[inline]
    pub(crate) fn find(&self, is: impl Fn(&T) -> bool) -> Option<usize> {
        self.items.iter().position(is)
    }

    /// Adds an item and says where it is.
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
