//! Stores a *window* of a merge: all entries of several sources below some key, sorted together.
//!
//! Not here: filling a window and reading from it (`merge_window`).

use std::cell::Cell;
use std::cmp::Ordering;

use crate::error::Result;
use crate::format::key::head;
use crate::format::row_block::EntryPlace;
use crate::memtable::{Entry, MemtableIter};
use crate::model::Seq;
use crate::sst::BlockRun;

/// The window of a merge; empty while none is open.
#[derive(Default)]
pub(super) struct Window {
    pub(super) lanes: Vec<Lane>,
    /// The items in order. If a filter was evaluated before sorting (a *sieve*), they are the rows
    /// that may match, otherwise all entries that the reader may see.
    pub(super) items: Vec<Item>,
    /// The positions of entries in their blocks.
    pub(super) places: Vec<EntryPlace>,
    /// The index of the next item.
    pub(super) next: usize,
    /// The last item that was the visible version of its key.
    pub(super) decided: Option<Item>,
    /// The length of the prefix shared by all keys.
    pub(super) shared: usize,
    pub(super) limit: Vec<u8>,
    /// The approximate maximum number of entries that the next window takes from each source.
    pub(super) ahead: usize,
    /// Buffers for reuse.
    pub(super) ends: Vec<usize>,
    pub(super) spare: Vec<Item>,
    pub(super) key: Vec<u8>,
    pub(super) found: Vec<u16>,
}

/// The part of a window that is from one file, or from one sorted run of a memtable.
#[derive(Clone, Copy)]
pub(super) struct Lane {
    pub(super) source: usize,
    /// The index of the run, if the source is a memtable.
    pub(super) run: usize,
    /// The slot of the first entry in its block; 0 in a memtable.
    pub(super) first: usize,
    pub(super) len: usize,
}

/// The bounds of the entries that a window takes from each source.
#[derive(Clone, Copy)]
pub(super) struct Part<'l> {
    pub(super) limit: &'l [u8],
    /// False if no source has a key above the limit. The limit is then the greatest key, and all
    /// remaining sources are memtables.
    pub(super) has_limit: bool,
    /// The maximum number of entries below the limit in any one file.
    pub(super) ahead: usize,
}

/// The position of an entry, and the head of its key (the eight bytes after the common prefix).
#[derive(Clone, Copy)]
pub(super) struct Item {
    pub(super) head: u64,
    pub(super) lane: u32,
    /// The index of the entry's place in `places` or, for an entry of a memtable, its distance from
    /// the current entry of its run.
    pub(super) at: u32,
}

/// The value of `Window::ahead` for the first window, and its maximum for later windows.
pub(super) const AHEAD: (usize, usize) = (64, 256);
/// The minimum of `Window::ahead`, even if few rows are expected.
pub(super) const AHEAD_MIN: usize = 4;
/// Groups of up to this many entries with equal heads are sorted by comparing keys.
pub(super) const GROUP_SMALL: usize = 8;
/// The largest buffers that a thread keeps for its next scan, in bytes. Scans of some hundred rows
/// need less, and a full scan gains nothing from kept buffers.
pub(super) const ROOM_BYTES_MAX: usize = 128 << 10;

thread_local! {
    /// The buffers of the window that this thread closed last. Without them, a scan of a small
    /// range would spend about 5 % of its time on allocating.
    static ROOM: Cell<Window> = Cell::default();
}

impl<'l> Part<'l> {
    /// Returns the exclusive upper bound of the window's keys, if there is one.
    pub(super) fn below(self) -> Option<&'l [u8]> {
        self.has_limit.then_some(self.limit)
    }
}

impl Window {
    /// Empties the window, and takes the buffers kept by this thread if the window has none.
    pub(super) fn take_room(&mut self) {
        if self.items.capacity() == 0 {
            *self = Window { ahead: self.ahead, ..ROOM.try_with(Cell::take).unwrap_or_default() };
        }
        self.clear();
    }

    /// Keeps the buffers for the next window of this thread.
    pub(super) fn leave_room(&mut self) {
        let bytes = self.places.capacity() * size_of::<EntryPlace>()
            + (self.items.capacity() + self.spare.capacity()) * size_of::<Item>();
        if bytes > 0 && bytes <= ROOM_BYTES_MAX {
            self.clear();
            // If the thread is ending, the buffers are freed instead.
            let _ = ROOM.try_with(|space_limit| space_limit.set(std::mem::take(self)));
        }
    }

    pub(super) fn clear(&mut self) {
        self.lanes.clear();
        self.items.clear();
        self.places.clear();
        self.ends.clear();
        (self.next, self.decided) = (0, None);
    }

    pub(super) fn add_lane(&mut self, source: usize, run: usize, first: usize, len: usize) -> u32 {
        self.lanes.push(Lane { source, run, first, len });
        self.lanes.len() as u32 - 1
    }

    /// Adds a lane for the rest of a block. Returns its index, and how to compute the heads of its
    /// keys.
    pub(super) fn begin_block(&mut self, source: usize, run: &BlockRun<'_>) -> (u32, Heads) {
        let lane = self.add_lane(source, 0, run.slots.start, run.slots.len());
        (lane, Heads::new(run.prefix(), self.shared))
    }

    /// Adds a lane for each run of a memtable, with the entries below the limit that `takes`
    /// accepts.
    pub(super) fn take_entries(
        &mut self,
        source: usize,
        iter: &MemtableIter,
        part: Part<'_>,
        mut takes: impl FnMut(&Entry<'_>) -> Result<bool>,
    ) -> Result<()> {
        for run in 0..iter.runs() {
            let lane = self.add_lane(source, run, 0, 0);
            let (shared, mut next) = (self.shared, 0);
            let items = &mut self.items;
            let len = iter.visit_below(run, part.below(), part.ahead, |entry| {
                let at = next;
                next += 1;
                if takes(&entry)? {
                    let head = head(entry.key.get(shared..).unwrap_or_default());
                    items.push(Item { head, lane, at });
                }
                Ok(())
            })?;
            self.end_lane(len);
        }
        Ok(())
    }

    /// Sets the length of the last lane to `len` entries.
    pub(super) fn end_lane(&mut self, len: usize) {
        if let Some(lane) = self.lanes.last_mut() {
            lane.len = len;
        }
        self.ends.push(self.items.len());
    }

    /// Adds a lane for the rest of a block, with all entries that are not newer than `at`.
    pub(super) fn take_block(&mut self, source: usize, run: &BlockRun<'_>, at: Seq) -> Result<()> {
        let (lane, heads) = self.begin_block(source, run);
        let Self { items, places, .. } = self;
        items.reserve(run.slots.len());
        places.reserve(run.slots.len());
        run.visit_places(|place, suffix| {
            if place.seq <= at {
                items.push(Item { head: heads.of(suffix), lane, at: places.len() as u32 });
                places.push(place);
            }
        })?;
        self.ends.push(self.items.len());
        Ok(())
    }

    pub(super) fn add_place(&mut self, head: u64, lane: u32, place: EntryPlace) {
        self.items.push(Item { head, lane, at: self.places.len() as u32 });
        self.places.push(place);
    }

    /// Sorts the items of all lanes by head. Items with equal heads stay in the order of the lanes.
    pub(super) fn merge_lanes(&mut self) {
        self.ends.dedup();
        self.ends.retain(|end| *end > 0);
        debug_assert!(self.ends.is_sorted(), "lanes follow one another");
        let end = self.ends.last().copied().unwrap_or_default();
        debug_assert_eq!(end, self.items.len(), "each item is in a lane");
        merge_all(&mut self.items, &mut self.spare, &mut self.ends);
    }
}

/// Merges adjacent sorted lists that end at the positions `ends`.
pub(super) fn merge_all(items: &mut Vec<Item>, spare: &mut Vec<Item>, ends: &mut Vec<usize>) {
    while ends.len() > 1 {
        spare.clear();
        spare.reserve(items.len());
        let (mut start, mut at, mut kept) = (0, 0, 0);
        while at < ends.len() {
            let middle = ends[at];
            let end = ends.get(at + 1).copied().unwrap_or(middle);
            merge(&items[start..middle], &items[middle..end], spare);
            ends[kept] = end;
            start = end;
            kept += 1;
            at += 2;
        }
        ends.truncate(kept);
        std::mem::swap(items, spare);
    }
}

/// Merges two sorted lists into `out`.
pub(super) fn merge(a: &[Item], b: &[Item], out: &mut Vec<Item>) {
    let (mut i, mut j) = (0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let second = y.head < x.head;
        out.push(if second { *y } else { *x });
        // Advance without a branch, which would be unpredictable.
        i += usize::from(!second);
        j += usize::from(second);
    }
    out.extend_from_slice(&a[i..]);
    out.extend_from_slice(&b[j..]);
}

/// Computes the heads of keys with a common prefix.
pub(super) struct Heads {
    /// `lead` is the part of the prefix after its first `shared` bytes. `bits` is the length of
    /// that part in bits, at most 64.
    pub(super) lead: u64,
    pub(super) bits: u32,
    /// The number of bytes to skip in the part of the key after the prefix.
    pub(super) skip: usize,
}

impl Heads {
    /// Prepares for keys that begin with `prefix`, of which the first `shared` bytes are skipped.
    pub(super) fn new(prefix: &[u8], shared: usize) -> Heads {
        let rest = prefix.get(shared..).unwrap_or_default();
        let bits = 8 * rest.len().min(8) as u32;
        Heads { lead: head(rest), bits, skip: shared.saturating_sub(prefix.len()) }
    }

    #[inline]
    pub(super) fn of(&self, suffix: &[u8]) -> u64 {
        let head = head(suffix.get(self.skip..).unwrap_or_default());
        self.lead | head.checked_shr(self.bits).unwrap_or(0)
    }
}

/// Compares two keys, each given in two parts.
pub(super) fn compare_parts(a: (&[u8], &[u8]), b: (&[u8], &[u8])) -> Ordering {
    if a.0.len() > b.0.len() {
        return compare_parts(b, a).reverse();
    }
    // The first part of `b` is longer than that of `a`, so compare it in two pieces.
    let (start, rest) = b.0.split_at(a.0.len());
    let (same, behind) = a.1.split_at(rest.len().min(a.1.len()));
    let begin = a.0.cmp(start).then_with(|| same.cmp(&rest[..same.len()]));
    // If `a` ends within the first part of `b`, it is the lesser key.
    let ends = (rest.len() - same.len()).cmp(&0).reverse();
    begin.then(ends).then_with(|| behind.cmp(b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_in_parts_compare_like_whole_keys() {
        let keys: Vec<&[u8]> =
            vec![b"", b"a", b"ab", b"abc", b"abd", b"ac", b"acb", b"b", b"ba", b"bab"];
        for (a, b) in keys.iter().flat_map(|a| keys.iter().map(move |b| (*a, *b))) {
            for (i, j) in (0..=a.len()).flat_map(|i| (0..=b.len()).map(move |j| (i, j))) {
                let parts = compare_parts(a.split_at(i), b.split_at(j));
                assert_eq!(parts, a.cmp(b), "{a:?} at {i}, {b:?} at {j}");
            }
        }
    }
}
