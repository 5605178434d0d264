//! Iterates over the entries of one table file in order.
//!
//! Invariants
//! * entries are ordered by ascending user key; the versions of a key by descending sequence number
//!   (Seq);
//! * after an error every call returns the same error, so a damaged file never looks like a shorter
//!   one;
//! * nothing is allocated per entry: the key is built in a reused buffer.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::Sst;
use super::cache::Area;
use super::readahead::Readahead;
use crate::codec::DecodeError;
use crate::error::{Error, Result};
use crate::format::Kind;
use crate::format::row::decode_row;
use crate::format::row_block::{BlockEntry, EntryPlace, RowBlock, RowLayout};
use crate::model::{RowRef, Seq};

/// The initial capacity of the key buffer in bytes, sufficient for most keys.
const KEY_BYTES: usize = 128;

/// The number of bytes copied at once for a key suffix. Most suffixes in a block are shorter.
const SHORT_SUFFIX: usize = 32;

/// Iterates over a file, which it keeps open.
pub(crate) struct SstIter {
    sst: Arc<Sst>,
    fill_cache: bool,
    state: State,
    /// The number of the current block. The next two fields are its contents and its layout.
    block: usize,
    contents: Bytes,
    layout: RowLayout,
    slot: usize,
    place: EntryPlace,
    /// The current key, which begins with the block's prefix.
    key: Vec<u8>,
    prefix_len: usize,
    ahead: Readahead,
    /// The number of blocks read so far.
    loads: u64,
}

/// Consecutive entries of one block.
pub(crate) struct BlockRun<'a> {
    sst: &'a Sst,
    number: usize,
    block: RowBlock<'a>,
    pub(crate) slots: Range<usize>,
}

/// The state of a walk over a [`BlockRun`] that finds the rows visible to a reader.
#[derive(Default)]
pub(crate) struct RunWalk {
    /// The slots not visited yet; a slot is the index of an entry in its block.
    pub(crate) slots: Range<usize>,
    /// The last key whose visible version was found (it is *decided*; older versions are skipped).
    /// Contains the start and end of the key's suffix in the block, and the Seq of that version.
    decided: Option<(usize, usize, Seq)>,
}

#[derive(Clone, Debug)]
enum State {
    BeforeFirst,
    Valid,
    AtEnd,
    Failed(Error),
}

impl Sst {
    /// Returns an iterator over all entries, positioned before the first. `fill_cache` should be
    /// false if the blocks are unlikely to be read again, for example in a compaction.
    pub(crate) fn iter(self: &Arc<Sst>, fill_cache: bool) -> SstIter {
        SstIter::new(Arc::clone(self), fill_cache)
    }
}

impl<'a> BlockRun<'a> {
    /// True if the run has no entries, because its upper bound is at or below its first key.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the common prefix of all keys of the run.
    pub(crate) fn prefix(&self) -> &'a [u8] {
        self.block.prefix()
    }

    /// Returns the entry in `slot`. Its key is the run's prefix followed by the suffix.
    pub(crate) fn entry(&self, slot: usize) -> Result<BlockEntry<'a>> {
        self.block.entry(slot).map_err(|error| self.damaged(error))
    }

    /// Returns the position of the entry in `slot` within its block, and the entry's key suffix.
    #[inline]
    pub(crate) fn place(&self, slot: usize) -> Result<(EntryPlace, &'a [u8])> {
        match self.block.place(slot) {
            Ok(place) => Ok((place, self.block.suffix(&place))),
            Err(error) => Err(self.damaged(error)),
        }
    }

    /// Calls `with` for each entry of the run, in order, with its position and key suffix.
    #[inline(always)]
    pub(crate) fn visit_places(&self, with: impl FnMut(EntryPlace, &'a [u8])) -> Result<()> {
        let visited = self.block.visit_places(self.slots.clone(), with);
        visited.map_err(|error: DecodeError| self.damaged(error))
    }

    /// Calls `with` for each entry of the run, in order, with its slot and the entry.
    #[inline]
    pub(crate) fn visit(
        &self,
        with: impl FnMut(usize, BlockEntry<'a>) -> Result<(), DecodeError>,
    ) -> Result<()> {
        self.block.visit(self.slots.clone(), with).map_err(|error| self.damaged(error))
    }

    /// Decodes the row of an entry, which must not be a tombstone.
    #[inline]
    pub(crate) fn row(&self, entry: &BlockEntry<'a>) -> Result<RowRef<'a>, DecodeError> {
        decode_row(entry.row, |number| self.sst.shapes.get(number as usize))
    }

    /// Returns the error for a damaged entry of the run.
    #[cold]
    fn damaged(&self, error: DecodeError) -> Error {
        self.sst.bad_block(self.number, error)
    }
}

impl RunWalk {
    pub(crate) fn new(slots: Range<usize>) -> Self {
        Self { slots, decided: None }
    }
}

impl SstIter {
    pub(super) fn new(sst: Arc<Sst>, fill_cache: bool) -> Self {
        let place =
            EntryPlace { suffix_at: 0, row_at: 0, end: 0, seq: Seq::ZERO, kind: Kind::Delete };
        let ahead = Readahead::new(sst.handles.rows(), !fill_cache);
        Self {
            sst,
            ahead,
            fill_cache,
            state: State::BeforeFirst,
            block: 0,
            contents: Bytes::new(),
            layout: RowLayout::default(),
            slot: 0,
            place,
            key: Vec::new(),
            prefix_len: 0,
            loads: 0,
        }
    }

    /// True if the iterator is on an entry.
    #[inline]
    pub(crate) fn valid(&self) -> bool {
        matches!(self.state, State::Valid)
    }

    /// Moves to the first entry whose key is at or above `key`.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.check()?;
        let found = self.try_seek(key);
        self.finish_move(found)
    }

    /// Moves to the next entry; from the position before all entries, to the first one.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<()> {
        if self.valid() && self.slot + 1 < self.block().len() {
            return self.go_to_slot(self.slot + 1);
        }
        self.next_block()
    }

    /// Returns the user key.
    ///
    /// Requires, like the accessors below, that the iterator is [`valid`](Self::valid).
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        debug_assert!(self.valid(), "the iterator is on an entry");
        &self.key
    }

    #[inline]
    pub(crate) fn seq(&self) -> Seq {
        debug_assert!(self.valid(), "the iterator is on an entry");
        self.place.seq
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        debug_assert!(self.valid(), "the iterator is on an entry");
        self.place.kind
    }

    /// Returns the row as stored in the file; empty for a tombstone.
    #[inline]
    pub(crate) fn row_bytes(&self) -> &[u8] {
        debug_assert!(self.valid(), "the iterator is on an entry");
        self.contents.get(self.place.row_at..self.place.end).unwrap_or_default()
    }

    /// Decodes the row. The entry must not be a tombstone.
    #[inline(always)]
    pub(crate) fn row(&self) -> Result<RowRef<'_>> {
        self.sst.row(self.block, self.row_bytes())
    }

    /// Returns the entries of the current block from the current one up to the first key at or
    /// above `limit`.
    pub(crate) fn rest_of_block(&self, limit: Option<&[u8]>) -> Result<BlockRun<'_>> {
        debug_assert!(self.valid(), "the iterator is on an entry");
        let block = self.block();
        let end = match limit {
            Some(limit) if !block.ends_before(limit) => block.lower_bound(limit),
            _ => Ok(block.len()),
        };
        let end = end.map_err(|error| self.sst.bad_block(self.block, error))?;
        Ok(BlockRun { sst: &self.sst, number: self.block, block, slots: self.slot..end })
    }

    /// Returns the entries from the current one up to the first key at or above `limit`. Searches
    /// only the next `ahead` entries. So `limit` must not exceed the key that
    /// [`put_key_ahead`](Self::put_key_ahead) returned for `ahead`.
    pub(crate) fn window(&self, limit: &[u8], ahead: usize) -> Result<BlockRun<'_>> {
        debug_assert!(self.valid(), "the iterator is on an entry");
        let block = self.block();
        let end = block.lower_bound_in(self.slot..block.len().min(self.slot + ahead), limit);
        let end = end.map_err(|error| self.sst.bad_block(self.block, error))?;
        Ok(BlockRun { sst: &self.sst, number: self.block, block, slots: self.slot..end })
    }

    /// Moves to entry `slot` of the current block, which must exist.
    #[inline]
    pub(crate) fn go_to_slot(&mut self, slot: usize) -> Result<()> {
        debug_assert!(self.valid(), "the iterator is on an entry");
        match self.block().place(slot) {
            Ok(place) => {
                self.slot = slot;
                self.show(place);
                Ok(())
            }
            Err(error) => {
                let error = self.sst.bad_block(self.block, error);
                self.finish_move(Err(error))
            }
        }
    }

    /// Moves to the next visible row of `walk`, or returns false without moving if there is none. A
    /// row is visible if it is a put and the newest version of its key at or below `at`. A key is
    /// decided once its newest version at or below `at` was found, be it a put or a tombstone. On
    /// entry `decided` must be the last key decided by earlier walks; at the end of the walk it is
    /// set to the last key decided.
    // Inlined so that a loop over a run keeps the block's layout in registers.
    #[inline(always)]
    pub(crate) fn next_visible(
        &mut self,
        walk: &mut RunWalk,
        at: Seq,
        decided: &mut Vec<u8>,
    ) -> Result<bool> {
        while let Some(slot) = walk.slots.next() {
            let place = match self.block().short_place(slot) {
                Some(place) => place,
                None => self.place(slot)?,
            };
            if place.seq > at || self.is_decided(walk, &place, decided) {
                continue;
            }
            walk.decided = Some((place.suffix_at, place.row_at, place.seq));
            if place.kind == Kind::Put {
                self.slot = slot;
                self.show(place);
                return Ok(true);
            }
        }
        self.put_decided(walk, decided);
        Ok(false)
    }

    /// At the end of a walk, sets `decided` to the last key that the walk decided, if any.
    #[cold]
    fn put_decided(&self, walk: &RunWalk, decided: &mut Vec<u8>) {
        if let Some((start, end, _)) = walk.decided {
            decided.clear();
            decided.extend_from_slice(self.block().prefix());
            decided.extend_from_slice(self.contents.get(start..end).unwrap_or_default());
        }
    }

    /// Returns the position of the entry in `slot`. An error ends the iteration.
    #[cold]
    fn place(&mut self, slot: usize) -> Result<EntryPlace> {
        let place = self.block().place(slot);
        let place = place.map_err(|error| self.sst.bad_block(self.block, error));
        place.inspect_err(|error| self.state = State::Failed(error.clone()))
    }

    /// True if a newer version of the key at `place` was already found, so this version is skipped.
    /// `before` is the last key decided by earlier walks.
    #[inline(always)]
    fn is_decided(&self, walk: &RunWalk, place: &EntryPlace, before: &[u8]) -> bool {
        let key = self.contents.get(place.suffix_at..place.row_at).unwrap_or_default();
        match walk.decided {
            // The Seqs of a key descend, so an entry whose Seq is not lower has another key.
            Some((_, _, seq)) if seq <= place.seq => false,
            Some((start, end, _)) => self.contents.get(start..end) == Some(key),
            None => before.strip_prefix(self.block().prefix()) == Some(key),
        }
    }

    /// True if the current block has this slot.
    pub(crate) fn has_slot(&self, slot: usize) -> bool {
        slot < self.block().len()
    }

    /// Writes to `out` the key of the entry `ahead` entries after the current one in this block, or
    /// the block's last key if there are fewer.
    pub(crate) fn put_key_ahead(&self, ahead: usize, out: &mut Vec<u8>) -> Result<()> {
        debug_assert!(self.valid(), "the iterator is on an entry");
        let slot = (self.slot + ahead).min(self.block().len() - 1);
        let entry = self.entry_at(slot)?;
        out.clear();
        out.extend_from_slice(self.block().prefix());
        out.extend_from_slice(entry.suffix);
        Ok(())
    }

    /// Returns the key of the entry at `place` in the current block, as prefix and suffix.
    pub(crate) fn key_at(&self, place: &EntryPlace) -> (&[u8], &[u8]) {
        (self.prefix(), self.block().suffix(place))
    }

    /// Returns the entry in `slot` of the current block. Its key is the block's prefix followed by
    /// the suffix.
    #[inline]
    fn entry_at(&self, slot: usize) -> Result<BlockEntry<'_>> {
        self.block().entry(slot).map_err(|error| self.sst.bad_block(self.block, error))
    }

    /// Returns the common prefix of all keys of the current block.
    #[inline]
    pub(crate) fn prefix(&self) -> &[u8] {
        self.key.get(..self.prefix_len).unwrap_or_default()
    }

    /// True if `key` has a version in the current block, at or after the current entry, that is
    /// newer than `seq` but not newer than `at`.
    pub(crate) fn hides(&self, key: &[u8], seq: Seq, at: Seq) -> Result<bool> {
        debug_assert!(self.valid(), "the iterator is on an entry");
        let Some(suffix) = key.strip_prefix(self.prefix()) else { return Ok(false) };
        let block = self.block();
        let from = block.lower_bound(key);
        let from = from.map_err(|error| self.sst.bad_block(self.block, error))?;
        // Entries before the current one may be outside the clip, the key range visible in this
        // file.
        for slot in from.max(self.slot)..block.len() {
            let entry = self.entry_at(slot)?;
            // The Seqs of a key descend, so no later entry can match.
            if entry.suffix != suffix || entry.seq <= seq {
                return Ok(false);
            }
            if entry.seq <= at {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the slot of the current entry in its block.
    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    /// Returns the number of the current block.
    pub(crate) fn block_number(&self) -> usize {
        self.block
    }

    pub(crate) fn sst(&self) -> &Arc<Sst> {
        &self.sst
    }

    /// Moves to the first entry of another block, which must exist.
    pub(crate) fn go_to_block(&mut self, block: usize) -> Result<()> {
        debug_assert!(block < self.sst.handles.len(), "there is a block of this number");
        let moved = self.load(block).and_then(|()| self.go_to(0));
        self.finish_move(moved)
    }

    /// Returns the number of blocks read so far.
    pub(crate) fn loads(&self) -> u64 {
        self.loads
    }

    /// Moves to the previous entry. Moves from the end to the last entry, and from the first entry
    /// to the end.
    pub(crate) fn prev(&mut self) -> Result<()> {
        let moved = match self.state {
            State::Failed(_) => return self.check(),
            State::Valid if self.slot > 0 => self.go_to(self.slot - 1),
            State::Valid => self.load_last(self.block),
            State::AtEnd | State::BeforeFirst => self.load_last(self.sst.handles.len()),
        };
        self.finish_move(moved)
    }

    /// Moves to the last entry.
    pub(crate) fn seek_to_last(&mut self) -> Result<()> {
        self.check()?;
        let moved = self.load_last(self.sst.handles.len());
        self.finish_move(moved)
    }

    /// Moves to the last entry of the block before `block`. Returns false if there is no such
    /// block.
    fn load_last(&mut self, block: usize) -> Result<bool> {
        let Some(before) = block.checked_sub(1) else { return Ok(false) };
        self.load(before)?;
        self.go_to(self.block().len() - 1)
    }

    fn check(&self) -> Result<()> {
        match &self.state {
            State::Failed(error) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Sets the state after a move: valid, at the end, or failed. A failure is permanent.
    fn finish_move(&mut self, moved: Result<bool>) -> Result<()> {
        self.state = match moved {
            Ok(true) => State::Valid,
            Ok(false) => State::AtEnd,
            Err(error) => State::Failed(error),
        };
        self.check()
    }

    fn try_seek(&mut self, key: &[u8]) -> Result<bool> {
        // A key above the last key of the file needs no read.
        if key > &*self.sst.meta().key_max {
            return Ok(false);
        }
        let block = self.sst.block_of(key, self.fill_cache)?;
        self.ahead.seek();
        self.load(block)?;
        let slot = self.block().lower_bound(key);
        let slot = slot.map_err(|error| self.sst.bad_block(self.block, error))?;
        if slot < self.block().len() {
            return self.go_to(slot);
        }
        self.load_next()
    }

    #[cold]
    fn next_block(&mut self) -> Result<()> {
        let moved = match self.state {
            State::Failed(_) => return self.check(),
            State::AtEnd => Ok(false),
            State::BeforeFirst => self.load(0).and_then(|()| self.go_to(0)),
            State::Valid => self.load_next(),
        };
        self.finish_move(moved)
    }

    /// Moves to the first entry of the next block. Returns false if there is no such block.
    fn load_next(&mut self) -> Result<bool> {
        if self.block + 1 >= self.sst.handles.len() {
            self.contents = Bytes::new();
            return Ok(false);
        }
        self.load(self.block + 1)?;
        self.go_to(0)
    }

    fn load(&mut self, block: usize) -> Result<()> {
        let range = self.sst.block_range(block)?;
        if let Some(wanted) = self.ahead.visit(&range) {
            self.sst.source.ask_ahead(wanted);
        }
        self.contents = self.sst.source.owned_block(Area::Rows, block, range, self.fill_cache)?;
        self.block = block;
        self.loads += 1;
        let parsed = RowBlock::parse(&self.contents);
        let parsed = parsed.map_err(|error| self.sst.bad_block(block, error))?;
        self.layout = parsed.layout;
        self.key.clear();
        if self.key.capacity() == 0 {
            self.key.reserve(KEY_BYTES);
        }
        self.key.extend_from_slice(parsed.prefix());
        self.prefix_len = self.key.len();
        Ok(())
    }

    fn go_to(&mut self, slot: usize) -> Result<bool> {
        self.slot = slot;
        let place = self.block().place(slot);
        let place = place.map_err(|error| self.sst.bad_block(self.block, error))?;
        self.show(place);
        Ok(true)
    }

    #[inline(always)]
    pub(crate) fn show(&mut self, place: EntryPlace) {
        let rest = self.contents.get(place.suffix_at..).unwrap_or_default();
        let len = place.row_at.saturating_sub(place.suffix_at);
        self.key.truncate(self.prefix_len);
        match rest.first_chunk::<SHORT_SUFFIX>() {
            // A copy of constant length compiles to two instructions, without a call. The surplus
            // bytes are then truncated.
            Some(chunk) if len <= SHORT_SUFFIX => {
                self.key.extend_from_slice(chunk);
                self.key.truncate(self.prefix_len + len);
            }
            _ => self.key.extend_from_slice(rest.get(..len).unwrap_or_default()),
        }
        self.place = place;
    }

    #[inline]
    fn block(&self) -> RowBlock<'_> {
        RowBlock { bytes: &self.contents, layout: self.layout }
    }
}
