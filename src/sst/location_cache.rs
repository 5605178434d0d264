//! Caches the locations (block and slot) of keys for a file whose hash index stores none. There is
//! space for one location per entry of the index, if the block cache grants a reservation.
//!
//! Invariants
//! * only locations of the newest version of a key in the file are stored, so a hit ends the search
//!   in the file;
//! * a miss proves nothing, because index entries with equal tags are indistinguishable;
//! * a file never changes, so a stored location stays valid.
//!
//! `reader` searches the file after a miss; `format::hash_index` encodes locations.

use std::fmt;
use std::hint::black_box;
use std::sync::Arc;

use super::cache::BlockCache;
use crate::format::hash_index::{HashLayout, LINES_PER_PAGE, LinePlace};
use crate::sync::{AtomicU32, OnceLock, Ordering};

/// The locations of keys of one open file that earlier reads have found.
pub(super) struct LocationCache {
    /// The locations by page of the hash index. A page is allocated when it gets its first
    /// location.
    pages: Box<[OnceLock<Page>]>,
    cache: Arc<BlockCache>,
}

/// The locations for one page of the hash index, in the order of its lines.
type Page = Box<[Line]>;

/// The locations for one line of the hash index, in the order of its entries: 0 if unknown,
/// otherwise the location plus one. Fills two cache lines of the processor.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([AtomicU32; ENTRIES]);

/// The maximum number of entries in a line, in any layout of the hash index.
const ENTRIES: usize = 32;
/// The index of the first entry in the second cache line.
const HALF: usize = ENTRIES / 2;
const PAGE_BYTES: usize = LINES_PER_PAGE * size_of::<Line>();

impl LocationCache {
    /// Creates an empty cache. It stays empty if the hash index itself has locations.
    pub(super) fn new(layout: HashLayout, cache: &Arc<BlockCache>) -> Self {
        let pages = if layout.has_locations() { 0 } else { layout.pages() };
        let pages = (0..pages).map(|_| OnceLock::new()).collect();
        Self { pages, cache: Arc::clone(cache) }
    }

    /// Prefetches the cached locations for the line at `place`, while the processor still loads the
    /// line itself. The line then tells which of the locations is needed.
    #[inline]
    pub(super) fn touch(&self, place: LinePlace) {
        if let Some(line) = self.line(place) {
            black_box(line.0[0].load(Ordering::Relaxed) ^ line.0[HALF].load(Ordering::Relaxed));
        }
    }

    /// Returns the location stored for entry `i` of the line at `place`. It may be the location of
    /// another key with the same tag.
    #[inline]
    pub(super) fn get(&self, place: LinePlace, i: u32) -> Option<u32> {
        let known = self.line(place)?.0.get(i as usize)?;
        known.load(Ordering::Relaxed).checked_sub(1)
    }

    #[inline]
    fn line(&self, place: LinePlace) -> Option<&Line> {
        self.pages.get(place.page)?.get()?.get(place.line())
    }

    /// Stores `location` for the first unused entry in `matches`, a bit set of entries in the line
    /// at `place` whose tags match the key. Returns false if there is no space for the page.
    pub(super) fn put(&self, place: LinePlace, mut matches: u32, location: u32) -> bool {
        let line = self.page(place.page).and_then(|page| page.get(place.line()));
        let Some((line, location)) = line.zip(location.checked_add(1)) else { return false };
        while let Some(known) = line.0.get(matches.trailing_zeros() as usize) {
            let before = known.load(Ordering::Relaxed);
            if before == 0 {
                known.store(location, Ordering::Relaxed);
            }
            if before == 0 || before == location {
                break;
            }
            matches &= matches - 1;
        }
        true
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        let lines = self.pages.iter().filter_map(OnceLock::get).flatten();
        lines.flat_map(|line| &line.0).filter(|known| known.load(Ordering::Relaxed) != 0).count()
    }

    /// Returns the lines of a page. Allocates them if the block cache has space.
    fn page(&self, number: usize) -> Option<&Page> {
        let page = self.pages.get(number)?;
        if page.get().is_none() && self.cache.reserve(PAGE_BYTES) {
            let lines = (0..LINES_PER_PAGE).map(|_| Line::default()).collect();
            if page.set(lines).is_err() {
                // Another thread was first to allocate the page.
                self.cache.release(PAGE_BYTES);
            }
        }
        page.get()
    }
}

impl Drop for LocationCache {
    fn drop(&mut self) {
        let made = self.pages.iter().filter(|page| page.get().is_some()).count();
        self.cache.release(made * PAGE_BYTES);
    }
}

impl fmt::Debug for LocationCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocationCache({} pages)", self.pages.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::hash_index::choose_form;

    const PLACE: LinePlace = LinePlace { page: 1, offset: 128 };

    fn known(cache: &Arc<BlockCache>, is_compressed: bool) -> LocationCache {
        LocationCache::new(HashLayout::of_pages(choose_form(is_compressed, 0).0, 3), cache)
    }

    #[test]
    fn entries_with_equal_tags_have_separate_locations() {
        let known = known(&Arc::new(BlockCache::new(1 << 20)), true);
        known.touch(PLACE);
        let found =
            |place, bits: &[u32]| bits.iter().map(|i| known.get(place, *i)).collect::<Vec<_>>();
        assert_eq!(found(PLACE, &[0, 3, 29]), vec![None; 3]);
        for (location, bits) in [(70, 0b1001), (70, 0b1001), (0, 0b1001), (9, 0b1001)] {
            known.put(PLACE, bits, location);
        }
        known.put(PLACE, 1 << 29, u32::MAX - 1);
        known.put(PLACE, 1 << 28, u32::MAX);
        let expected = [Some(70), None, Some(0), None, Some(u32::MAX - 1)];
        assert_eq!(found(PLACE, &[0, 1, 3, 28, 29]), expected);
        let places = [(0, 128), (1, 64), (1, 192), (2, 128), (3, 64)];
        for (page, offset) in places {
            assert_eq!(found(LinePlace { page, offset }, &[0, 3]), [None, None]);
        }
        known.touch(PLACE);
    }

    #[test]
    fn trap_31_cached_locations_stay_within_the_cache_bound() {
        let cache = Arc::new(BlockCache::new(2 * 16 * PAGE_BYTES));
        let mut files: Vec<_> = (0..3).map(|_| known(&cache, true)).collect();
        for known in &files {
            known.put(PLACE, 1, 5);
            known.put(PLACE, 2, 6);
        }
        let found = files.iter().filter_map(|known| known.get(PLACE, 0));
        assert_eq!((found.count(), cache.bytes()), (2, 2 * PAGE_BYTES));
        // The space reserved for a closed file becomes available to other files.
        files.remove(0);
        assert_eq!(cache.bytes(), PAGE_BYTES);
        files[1].put(PLACE, 1, 5);
        assert_eq!(files[1].get(PLACE, 0), Some(5));
        drop(files);
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn an_index_with_locations_uses_no_location_cache() {
        let cache = Arc::new(BlockCache::new(1 << 20));
        let known = known(&cache, false);
        known.put(PLACE, 1, 5);
        assert_eq!((known.get(PLACE, 0), cache.bytes()), (None, 0));
    }
}
