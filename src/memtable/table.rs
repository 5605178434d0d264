//! The hash table of a memtable: from a user key to the newest of its nodes.
//!
//! Lines of 64 bytes hold seven nodes and an 8-bit tag of each, so that a miss costs one line. A full line
//! passes nodes on to the next. A table that fills up is followed by one twice as large; every insert then
//! moves one line, and the smaller table, no longer written, is read for what is not moved yet.
//!
//! Invariants
//! * a key is in at most one slot of a table, and a slot never changes its key;
//! * the smaller table answers for every key it held when the larger one was begun;
//! * a line that passed a node on says so (`PASSED`) and goes on saying so.
//!
//! Locks: writers hold the arena's; readers take none.

use std::sync::OnceLock;

use super::arena::{Arena, ArenaWriter, LINE_SLOTS, Line, Node};
use crate::sync::{AtomicUsize, Ordering};

/// Lines of the first table: 4 KiB.
const LINES_MIN: usize = if cfg!(loom) { 1 } else { 64 };
/// More doublings than memory allows.
const TABLES_MAX: usize = usize::BITS as usize - 12;
/// A table is full at 23/4 nodes a line: above, what passes on costs more than the memory is worth.
const LOAD_MAX: (usize, usize) = (23, 4);
/// The eighth byte of the tags: a node that belongs here is in a later line.
const PASSED: u64 = 1 << 56;
const ONES: u64 = 0x0001_0101_0101_0101;
const HIGHS: u64 = 0x0080_8080_8080_8080;

/// Finds the newest node of a key.
pub(super) struct Table {
    /// Twice the number of the current table, plus 1 while the one before it is being moved.
    state: AtomicUsize,
    tables: Box<[OnceLock<Box<[Line]>>]>,
    /// Keys in all. Writers only.
    keys: AtomicUsize,
    /// Lines moved of the table before. Writers only.
    moved: AtomicUsize,
    bytes: AtomicUsize,
}

/// Where a key is, or where it would go.
enum Spot<'t> {
    Taken(&'t Line, usize),
    Free(&'t Line, usize),
}

impl Table {
    pub(super) fn new() -> Self {
        let tables: Box<[_]> = (0..TABLES_MAX).map(|_| OnceLock::new()).collect();
        let bytes = tables.len() * size_of::<OnceLock<Box<[Line]>>>();
        let table = Self {
            state: AtomicUsize::new(0),
            tables,
            keys: AtomicUsize::new(0),
            moved: AtomicUsize::new(0),
            bytes: AtomicUsize::new(bytes),
        };
        table.lines(0);
        table
    }

    /// Bytes of all tables, with those that are no longer written.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The newest node of `key`.
    #[inline]
    pub(super) fn find<'a>(&self, arena: &'a Arena, hash: u32, key: &[u8]) -> Option<Node<'a>> {
        let state = self.state.load(Ordering::Acquire);
        let found = find(self.lines(state / 2), arena, hash, key);
        if found.is_some() || state % 2 == 0 {
            return found;
        }
        find(self.lines(state / 2 - 1), arena, hash, key)
    }

    /// Makes `node` the newest of its key. Requires that `older` is what [`Table::find`] finds.
    pub(super) fn put(&self, writer: &ArenaWriter<'_>, node: Node<'_>, older: Option<Node<'_>>) {
        let keys = self.keys.load(Ordering::Relaxed) + usize::from(older.is_none());
        self.keys.store(keys, Ordering::Relaxed);
        let mut state = self.state.load(Ordering::Relaxed);
        if state % 2 == 0 && keys * LOAD_MAX.1 > self.lines(state / 2).len() * LOAD_MAX.0 {
            // The larger table, empty, answers together with the smaller one from here on.
            state += 3;
            self.lines(state / 2);
            self.moved.store(0, Ordering::Relaxed);
            self.state.store(state, Ordering::Release);
        }
        let (lines, hash) = (self.lines(state / 2), node.hash());
        match spot(lines, writer.arena(), hash, node) {
            Spot::Taken(line, slot) => line.slots[slot].store(node),
            Spot::Free(line, slot) => fill(line, slot, hash, node),
        }
        if state % 2 == 1 {
            self.move_line(writer.arena(), state / 2);
        }
    }

    /// Moves one line of the table before `current`.
    fn move_line(&self, arena: &Arena, current: usize) {
        let (old, new) = (self.lines(current - 1), self.lines(current));
        let at = self.moved.load(Ordering::Relaxed);
        let nodes = old[at].slots.each_ref().map(|slot| slot.load(arena));
        // All hashes first: the nodes lie anywhere, and their cache misses overlap.
        let hashes = nodes.map(|node| node.map_or(0, Node::hash));
        for (node, hash) in nodes.into_iter().zip(hashes) {
            let Some(node) = node else { break };
            // What is taken there is newer: the key was written since the move began.
            if let Spot::Free(line, slot) = spot(new, arena, hash, node) {
                fill(line, slot, hash, node);
            }
        }
        self.moved.store(at + 1, Ordering::Relaxed);
        if at + 1 == old.len() {
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

/// The node of `key` in `lines`.
#[inline]
fn find<'a>(lines: &[Line], arena: &'a Arena, hash: u32, key: &[u8]) -> Option<Node<'a>> {
    let mut at = hash as usize & (lines.len() - 1);
    for _ in 0..lines.len() {
        let line = &lines[at];
        let tags = line.tags.load(Ordering::Acquire);
        if let Some((_, node)) = look(line, tags, arena, hash, || key) {
            return Some(node);
        }
        if tags & PASSED == 0 {
            return None;
        }
        at = (at + 1) & (lines.len() - 1);
    }
    None
}

/// Where the key of `node`, with that hash, is or would go; says on the way that it passed.
fn spot<'t>(lines: &'t [Line], arena: &Arena, hash: u32, node: Node<'_>) -> Spot<'t> {
    let mut at = hash as usize & (lines.len() - 1);
    loop {
        let line = &lines[at];
        let tags = line.tags.load(Ordering::Relaxed);
        if let Some((slot, _)) = look(line, tags, arena, hash, || node.key()) {
            return Spot::Taken(line, slot);
        }
        let filled = filled(tags);
        if filled < LINE_SLOTS {
            return Spot::Free(line, filled);
        }
        if tags & PASSED == 0 {
            line.tags.store(tags | PASSED, Ordering::Release);
        }
        at = (at + 1) & (lines.len() - 1);
    }
}

/// The slot and node of `key` in this line, whose tags are `tags`.
#[inline]
fn look<'a, 'k>(
    line: &Line,
    tags: u64,
    arena: &'a Arena,
    hash: u32,
    key: impl Fn() -> &'k [u8],
) -> Option<(usize, Node<'a>)> {
    // A byte of `differ` is 0 where the tag is ours. The borrow may also raise the byte above such a byte:
    // the comparison of keys decides anyway.
    let differ = tags ^ (tag(hash) * ONES);
    let mut hits = differ.wrapping_sub(ONES) & !differ & HIGHS;
    while hits != 0 {
        let slot = hits.trailing_zeros() as usize / 8;
        if let Some(node) = line.slots[slot].load(arena)
            && node.hash() == hash
            && node.key() == key()
        {
            return Some((slot, node));
        }
        hits &= hits - 1;
    }
    None
}

/// Puts `node` into the first free slot, then its tag: who sees the tag finds the node.
fn fill(line: &Line, slot: usize, hash: u32, node: Node<'_>) {
    let tags = line.tags.load(Ordering::Relaxed);
    line.slots[slot].store(node);
    line.tags.store(tags | tag(hash) << (slot * 8), Ordering::Release);
}

/// How many slots are taken: they fill from the first, and no tag is 0.
fn filled(tags: u64) -> usize {
    let bits = u64::BITS - (tags & (PASSED - 1)).leading_zeros();
    bits.div_ceil(8) as usize
}

/// The upper bits, for the lower ones choose the line; never 0, which is an empty slot.
#[inline]
fn tag(hash: u32) -> u64 {
    u64::from(hash >> 24).max(1)
}
