//! The hash table of a memtable: finds the newest node of a user key. Keys hash to lines of 64
//! bytes. A line has five slots, each with a pointer to a node and 32 bits of the key's hash, so a
//! miss reads one line and no node. A key whose line is full is stored in the next line. A full
//! table is replaced by one twice as large, and each later insert moves a few lines to it. Keys not
//! moved yet are read from the old table, which is no longer written. Writers hold the arena's
//! lock; readers take none.
//!
//! Invariants
//! * a key is in at most one slot of a table, and a slot never changes its key;
//! * the old table keeps every key that it had when the new one was created.

use super::arena::{Arena, ArenaWriter, LINE_SLOTS, Line, Lines, Node};
use crate::mutants::mutant;
use crate::sync::{AtomicUsize, OnceLock, Ordering};

/// The number of lines of the smallest table: 4 KiB.
const LINES_MIN: usize = if cfg!(loom) { 1 } else { 64 };
/// The maximum number of tables. Each is twice as large as the previous one, so a further table
/// would not fit into memory.
const TABLES_MAX: usize = usize::BITS as usize - 12;
/// A table is full at this average number of keys per line. Beyond it, overflows cost more than the
/// saved memory is worth.
const LOAD_MAX: usize = 4;
/// The number of lines moved by each insert. Moving a line costs cache misses, so each insert moves
/// only a few. Two are enough, because all lines are moved long before the new table is full, too.
const MOVE_LINES: usize = 2;
/// A flag in `Line::fill`, set when a key was stored in a later line because this one was full, and
/// never cleared. The lower bits of `fill` are the number of used slots.
const PASSED: u32 = 8;

/// A hash table from user keys to their newest nodes.
pub(super) struct Table {
    /// Twice the index of the current table in `tables`, plus 1 while lines are being moved from
    /// the previous table.
    state: AtomicUsize,
    tables: Box<[OnceLock<Lines>]>,
    /// The number of keys. Used by writers only.
    keys: AtomicUsize,
    /// The number of lines of the previous table moved so far. Used by writers only.
    moved: AtomicUsize,
    bytes: AtomicUsize,
}

/// The slot of a key with its newest node, or a free slot for the key.
enum Spot<'t, 'a> {
    Taken(&'t Line, usize, Node<'a>),
    Free(&'t Line, usize),
}

impl Table {
    /// Creates a table for about `keys` keys, with an initial size of at most `bytes_max` bytes. A
    /// table that is large enough from the start never has to be replaced, so the memory of smaller
    /// tables is saved.
    pub(super) fn new(keys: usize, bytes_max: usize) -> Self {
        let lines_max = (bytes_max / size_of::<Line>() / LINES_MIN).max(1);
        let wanted = keys.div_ceil(LOAD_MAX * LINES_MIN).max(1).next_power_of_two();
        let first = wanted.min(lines_max).ilog2() as usize;
        debug_assert!(first < TABLES_MAX, "a table can be named");
        let tables: Box<[_]> = (0..TABLES_MAX).map(|_| OnceLock::new()).collect();
        let table = Self {
            state: AtomicUsize::new(first * 2),
            bytes: AtomicUsize::new(size_of_val(&*tables)),
            tables,
            keys: AtomicUsize::new(0),
            moved: AtomicUsize::new(0),
        };
        table.lines(first);
        table
    }

    /// Returns the number of keys.
    pub(super) fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// Returns the bytes of all tables, including those that are no longer read.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the newest node of `key`.
    #[inline]
    pub(super) fn find<'a>(&self, arena: &'a Arena, hash: u32, key: &[u8]) -> Option<Node<'a>> {
        let state = self.state.load(Ordering::Acquire);
        let found = find(self.lines(state / 2), arena, hash, key);
        if found.is_some() || state.is_multiple_of(2) {
            return found;
        }
        // The key may still be in the old table only. If it has been moved in the meantime, it is
        // found there, too, because moving does not remove nodes from the old table.
        find(self.lines(state / 2 - 1), arena, hash, key)
    }

    /// Prefetches the line for a key with this hash.
    #[inline]
    pub(super) fn prefetch(&self, hash: u32) {
        let lines = self.lines(self.state.load(Ordering::Relaxed) / 2);
        lines[hash as usize & (lines.len() - 1)].prefetch();
    }

    /// Stores the result of `make` as the newest node of `key`. `make` receives the previous newest
    /// node. For writers only.
    #[inline]
    pub(super) fn put<'a>(
        &self,
        writer: &mut ArenaWriter<'a>,
        hash: u32,
        key: &[u8],
        make: impl FnOnce(&mut ArenaWriter<'a>, Option<Node<'a>>) -> Node<'a>,
    ) -> Node<'a> {
        let arena = writer.arena();
        let mut state = self.state.load(Ordering::Relaxed);
        let mut lines = self.lines(state / 2);
        if state.is_multiple_of(2) && self.keys() >= lines.len() * LOAD_MAX {
            // From here on reads search both tables: first the larger one, which is still empty,
            // then the smaller one.
            state += 3;
            lines = self.lines(state / 2);
            self.moved.store(0, Ordering::Relaxed);
            self.state.store(state, Ordering::Release);
        }
        debug_assert!(self.keys() < lines.len() * LINE_SLOTS, "a table has a free slot");
        let node = match spot(lines, arena, hash, key) {
            Spot::Taken(line, slot, older) => {
                let node = make(writer, Some(older));
                line.slots[slot].store(node);
                node
            }
            Spot::Free(line, slot) => {
                // The key may still be in the smaller table.
                let moving = state % 2 == 1;
                let before = if moving { Some(self.lines(state / 2 - 1)) } else { None };
                let older = before.and_then(|lines| find(lines, arena, hash, key));
                let node = make(writer, older);
                fill(line, slot, hash, node);
                let keys = self.keys() + usize::from(older.is_none());
                self.keys.store(keys, Ordering::Relaxed);
                node
            }
        };
        if state % 2 == 1 {
            self.move_lines(arena, state / 2);
        }
        node
    }

    /// Moves a few lines from the previous table to the table `current`.
    fn move_lines(&self, arena: &Arena, current: usize) {
        let (old, new) = (self.lines(current - 1), self.lines(current));
        debug_assert_eq!(new.len(), 2 * old.len(), "a table doubles");
        if mutant!("early-moved") {
            self.state.store(current * 2, Ordering::Release);
        }
        let start = self.moved.load(Ordering::Relaxed);
        debug_assert!(start < old.len(), "a move under way has lines left");
        let end = old.len().min(start + MOVE_LINES);
        for line in &old[start..end] {
            for (slot, hash) in line.slots.iter().zip(&line.hashes) {
                let (Some(node), hash) = (slot.load(arena), hash.load(Ordering::Relaxed)) else {
                    break;
                };
                // If the new table already has the key, the key was written after the move began,
                // and that node is newer than this one.
                if let Spot::Free(line, slot) = spot(new, arena, hash, node.key()) {
                    fill(line, slot, hash, node);
                }
            }
        }
        self.moved.store(end, Ordering::Relaxed);
        if end == old.len() {
            self.state.store(current * 2, Ordering::Release);
        }
    }

    #[inline]
    fn lines(&self, table: usize) -> &[Line] {
        self.tables[table].get_or_init(|| {
            let lines = Line::table(LINES_MIN << table);
            self.bytes.fetch_add(size_of_val(&*lines), Ordering::Relaxed);
            lines
        })
    }
}

/// Finds the node of `key` in `lines`.
#[inline]
fn find<'a>(lines: &[Line], arena: &'a Arena, hash: u32, key: &[u8]) -> Option<Node<'a>> {
    let mut at = hash as usize & (lines.len() - 1);
    for _ in 0..lines.len() {
        let line = &lines[at];
        let fill = line.fill.load(Ordering::Acquire);
        if let Some((_, node)) = look(line, fill, arena, hash, key) {
            return Some(node);
        }
        if fill & PASSED == 0 {
            return None;
        }
        at = (at + 1) & (lines.len() - 1);
    }
    None
}

/// Finds the slot of the key with this hash, or a free slot for it. Sets `PASSED` in full lines on
/// the way.
#[inline]
fn spot<'t, 'a>(lines: &'t [Line], arena: &'a Arena, hash: u32, key: &[u8]) -> Spot<'t, 'a> {
    let mut at = hash as usize & (lines.len() - 1);
    loop {
        let line = &lines[at];
        let fill = line.fill.load(Ordering::Relaxed);
        if let Some((slot, node)) = look(line, fill, arena, hash, key) {
            return Spot::Taken(line, slot, node);
        }
        let taken = taken(fill);
        if taken < LINE_SLOTS {
            return Spot::Free(line, taken);
        }
        if fill & PASSED == 0 {
            line.fill.store(fill | PASSED, Ordering::Release);
        }
        at = (at + 1) & (lines.len() - 1);
    }
}

/// Finds the slot and node of the key in this line. `fill` is the value loaded from the line.
#[inline]
fn look<'a>(
    line: &Line,
    fill: u32,
    arena: &'a Arena,
    hash: u32,
    key: &[u8],
) -> Option<(usize, Node<'a>)> {
    // Compare all five hashes without a branch; free slots are masked out.
    let mut hits = 0_u32;
    for (slot, held) in line.hashes.iter().enumerate() {
        hits |= u32::from(held.load(Ordering::Relaxed) == hash) << slot;
    }
    hits &= (1 << taken(fill)) - 1;
    while hits != 0 {
        let slot = hits.trailing_zeros() as usize;
        if let Some(node) = line.slots[slot].load(arena)
            && node.key() == key
        {
            return Some((slot, node));
        }
        hits &= hits - 1;
    }
    None
}

/// Stores `node` in the first free slot and then increments the count, so that a reader that sees
/// the count finds the node.
fn fill(line: &Line, slot: usize, hash: u32, node: Node<'_>) {
    let fill = line.fill.load(Ordering::Relaxed);
    line.slots[slot].store(node);
    debug_assert_eq!(slot, taken(fill), "slots of a line are filled in order");
    line.hashes[slot].store(hash, Ordering::Relaxed);
    line.fill.store(fill + 1, Ordering::Release);
}

#[inline]
fn taken(fill: u32) -> usize {
    (fill & (PASSED - 1)) as usize
}
