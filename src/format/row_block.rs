//! Builds and reads a block of entries. A slot is the index of an entry in its block; any slot can
//! be read directly. FORMAT.md §row_block.
//!
//! Invariants
//! * entries are in order: user key ascending, Seq strictly descending within a key;
//! * every access is bounds-checked, whether or not the block's checksum was verified;
//! * a list of entries has only one encoding.
//!
//! `block` adds a frame with a checksum. Rows are opaque bytes here; `row` decodes them.

use std::cmp::Ordering;
use std::hint::black_box;
use std::ops::Range;

use crate::codec::{Cursor, DecodeError, is_below, put_varint, shared_len, varint_len};
use crate::format::Kind;
use crate::model::Seq;

/// The maximum number of entries in a block. A slot then uses 12 of the 32 bits of a location,
/// which leaves a million blocks per file.
pub(crate) const SLOTS_MAX: usize = 4096;

/// The maximum length of a user key in a block. The data model allows only much shorter keys.
pub(crate) const KEY_BYTES_MAX: usize = u16::MAX as usize;

const STRUCTURE: &str = "row block";
/// The length of the fixed part: count, widths, prefix length, flags, length of suffixes, least
/// Seq.
pub(crate) const FIXED_BYTES: usize = 16;
/// The offset of the flags, which state what is omitted from entries.
const FLAGS_AT: usize = 6;
/// Flag: every entry is a put, so entries omit the kind.
const FLAG_PUTS: u8 = 1;
/// Flag: all suffixes have the length in the byte after the flags.
const FLAG_EVEN: u8 = 2;
/// The smallest suffix length whose varint takes two bytes. If all suffixes of a block have the
/// same length below this value, entries omit the length.
const LONG_SUFFIX: usize = 0x80;
/// The offset in an entry at which [`RowBlock::touch`] prefetches: two processor cache lines. A
/// reader may need only the beginning of a longer row.
const TOUCH_BYTES: usize = 128;
const NARROW: u8 = 2;
const WIDE: u8 = 4;

/// A block that was parsed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowBlock<'a> {
    pub(crate) bytes: &'a [u8],
    /// The layout that [`RowLayout`] read from `bytes`.
    pub(crate) layout: RowLayout,
}

/// The layout of a block, kept with an owned buffer so that it is not parsed again for each entry.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RowLayout {
    pub(crate) count: usize,
    wide: bool,
    pub(crate) is_puts: bool,
    is_even: bool,
    /// The suffix length of every entry if `is_even` is set, otherwise 0.
    suffix_len: u8,
    pub(crate) seq_width: usize,
    seq_mask: u64,
    seq_min: u64,
    prefix_at: usize,
    prefix_end: usize,
}

/// An entry. Its key is the block's prefix followed by `suffix`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockEntry<'a> {
    pub(crate) suffix: &'a [u8],
    pub(crate) seq: Seq,
    pub(crate) kind: Kind,
    pub(crate) row: &'a [u8],
}

/// The offsets of an entry in its block, for readers that own the bytes and cannot keep a borrowed
/// entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryPlace {
    pub(crate) suffix_at: usize,
    pub(crate) row_at: usize,
    pub(crate) end: usize,
    pub(crate) seq: Seq,
    pub(crate) kind: Kind,
}

impl<'a> RowBlock<'a> {
    /// Reads the layout of `bytes`.
    #[inline]
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(Self { bytes, layout: RowLayout::parse(bytes)? })
    }

    /// Returns the number of entries, which is at least one.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.layout.count
    }

    /// Returns the common prefix of all keys of the block.
    #[inline]
    pub(crate) fn prefix(&self) -> &'a [u8] {
        self.bytes.get(self.layout.prefix_at..self.layout.prefix_end).unwrap_or_default()
    }

    /// Returns the offset of the entry in `slot`.
    pub(crate) fn start(&self, slot: usize) -> Option<usize> {
        self.span(slot).map(|(start, _)| start)
    }

    /// Prefetches a later part of the row in `slot` while the processor loads the start of the
    /// entry. Without this call the second load would begin only after the first.
    #[inline]
    pub(crate) fn touch(&self, slot: usize) {
        let far =
            self.span(slot).map(|(start, end)| end.saturating_sub(1).min(start + TOUCH_BYTES));
        black_box(far.and_then(|far| self.bytes.get(far)).copied());
    }

    /// Returns the entry in `slot`.
    #[inline]
    pub(crate) fn entry(&self, slot: usize) -> Result<BlockEntry<'a>, DecodeError> {
        let place = self.place(slot)?;
        let EntryPlace { suffix_at, row_at, end, seq, kind } = place;
        let parts = self.bytes.get(suffix_at..row_at).zip(self.bytes.get(row_at..end));
        let (suffix, row) = parts.ok_or_else(|| bad_entry(suffix_at))?;
        Ok(BlockEntry { suffix, seq, kind, row })
    }

    /// Calls `with` with each entry of `slots`, in order. This costs half as much as separate calls
    /// of [`entry`](Self::entry).
    #[inline]
    pub(crate) fn visit<E: From<DecodeError>>(
        &self,
        slots: Range<usize>,
        mut with: impl FnMut(usize, BlockEntry<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut start = self.offset(slots.start);
        for slot in slots {
            let end = match slot + 1 {
                next if next == self.layout.count => Some(self.bytes.len()),
                next => self.offset(next),
            };
            let span = start.zip(end).and_then(|(start, end)| self.bytes.get(start..end));
            let entry = match span.and_then(|span| self.short_entry(span)) {
                Some(entry) => entry,
                None => self.entry(slot)?,
            };
            with(slot, entry)?;
            start = end;
        }
        Ok(())
    }

    /// Calls `with` with the place and the key suffix of each entry of `slots`, in order. This
    /// costs half as much as separate calls of [`place`](Self::place) and [`suffix`](Self::suffix).
    #[inline(always)]
    pub(crate) fn visit_places<E: From<DecodeError>>(
        &self,
        slots: Range<usize>,
        mut with: impl FnMut(EntryPlace, &'a [u8]),
    ) -> Result<(), E> {
        let mut start = self.offset(slots.start);
        for slot in slots {
            let end = match slot + 1 {
                next if next == self.layout.count => Some(self.bytes.len()),
                next => self.offset(next),
            };
            let short = start.zip(end).and_then(|(start, end)| self.short_place_in(start, end));
            let place = match short {
                Some(place) => place,
                None => self.long_place(slot)?,
            };
            with(place, self.suffix(&place));
            start = end;
        }
        Ok(())
    }

    /// Returns the entry that fills `bytes`, if it has the common form: a suffix length below 128.
    #[inline]
    fn short_entry(&self, bytes: &'a [u8]) -> Option<BlockEntry<'a>> {
        let (len, kind, head_len) = self.short_head(bytes)?;
        let rest = bytes.get(head_len..)?;
        let delta = u64::from_le_bytes(*rest.first_chunk()?) & self.layout.seq_mask;
        let parts = rest.get(self.layout.seq_width..)?.split_at_checked(len)?;
        let seq = Seq(self.layout.seq_min.wrapping_add(delta));
        let possible = kind == Kind::Put || parts.1.is_empty();
        possible.then_some(BlockEntry { suffix: parts.0, seq, kind, row: parts.1 })
    }

    /// Returns the offsets of the entry in `slot`, which are within the block.
    #[inline]
    pub(crate) fn place(&self, slot: usize) -> Result<EntryPlace, DecodeError> {
        match self.short_place(slot) {
            Some(place) => Ok(place),
            None => self.long_place(slot),
        }
    }

    /// Returns the offsets of the entry in `slot`, if its suffix length is below 128.
    #[inline(always)]
    pub(crate) fn short_place(&self, slot: usize) -> Option<EntryPlace> {
        let (start, end) = self.span(slot)?;
        self.short_place_in(start, end)
    }

    /// Returns the offsets of the entry from `start` to `end`, if its suffix length is below 128.
    #[inline(always)]
    fn short_place_in(&self, start: usize, end: usize) -> Option<EntryPlace> {
        let entry = self.bytes.get(start..end)?;
        let (len, kind, head_len) = self.short_head(entry)?;
        let delta = entry.get(head_len..)?.first_chunk()?;
        let delta = u64::from_le_bytes(*delta) & self.layout.seq_mask;
        let suffix_at = start + head_len + self.layout.seq_width;
        let row_at = suffix_at + len;
        let seq = Seq(self.layout.seq_min.wrapping_add(delta));
        let possible = row_at <= end && (kind == Kind::Put || row_at == end);
        possible.then_some(EntryPlace { suffix_at, row_at, end, seq, kind })
    }

    /// Returns the suffix length and kind of the entry that begins with `bytes`, and the number of
    /// bytes that encode them. `None` if the length is 128 or more.
    #[inline(always)]
    fn short_head(&self, bytes: &[u8]) -> Option<(usize, Kind, usize)> {
        let (len, kind_at) = match self.layout.is_even {
            true => (self.layout.suffix_len, 0),
            false => (*bytes.first()?, 1),
        };
        if usize::from(len) >= LONG_SUFFIX {
            return None;
        }
        match self.layout.is_puts {
            true => Some((usize::from(len), Kind::Put, kind_at)),
            false => Some((usize::from(len), Kind::from_code(*bytes.get(kind_at)?)?, kind_at + 1)),
        }
    }

    /// Returns the key suffix of the entry at `place`.
    #[inline]
    pub(crate) fn suffix(&self, place: &EntryPlace) -> &'a [u8] {
        self.bytes.get(place.suffix_at..place.row_at).unwrap_or_default()
    }

    #[cold]
    fn long_place(&self, slot: usize) -> Result<EntryPlace, DecodeError> {
        let layout = &self.layout;
        let no_slot = || format!("slot {slot} of {}", self.len());
        let (start, end) =
            self.span(slot).ok_or_else(|| DecodeError::new(STRUCTURE, 0, no_slot()))?;
        let head = match self.bytes.get(start) {
            _ if layout.is_even => Some((usize::from(layout.suffix_len), start)),
            Some(&short) if usize::from(short) < LONG_SUFFIX => {
                Some((usize::from(short), start + 1))
            }
            _ => self.long_suffix(start),
        };
        let place = head.and_then(|(suffix_len, kind_at)| {
            let (kind, delta_at) = match layout.is_puts {
                true => (Kind::Put, kind_at),
                false => (Kind::from_code(*self.bytes.get(kind_at)?)?, kind_at + 1),
            };
            let suffix_at = delta_at + layout.seq_width;
            let row_at = suffix_at.checked_add(suffix_len)?;
            let seq = Seq(layout.seq_min.wrapping_add(self.delta(delta_at)));
            let fits = row_at <= end && end <= self.bytes.len();
            let possible = fits && (kind == Kind::Put || row_at == end);
            possible.then_some(EntryPlace { suffix_at, row_at, end, seq, kind })
        });
        place.ok_or_else(|| bad_entry(start))
    }

    /// Returns the first slot whose key is not below `key`; [`len`](Self::len) if there is none.
    pub(crate) fn lower_bound(&self, key: &[u8]) -> Result<usize, DecodeError> {
        self.lower_bound_in(0..self.len(), key)
    }

    /// Returns the first of `slots` whose key is not below `key`; `slots.end` if there is none.
    ///
    /// Requires: all keys before `slots` are below `key`.
    pub(crate) fn lower_bound_in(
        &self,
        slots: Range<usize>,
        key: &[u8],
    ) -> Result<usize, DecodeError> {
        let prefix = self.prefix();
        let Range { start: mut low, end: mut high } = slots;
        let Some(suffix) = key.strip_prefix(prefix) else {
            return Ok(if key < prefix { low } else { high });
        };
        while low < high {
            let middle = low.midpoint(high);
            let found = match self.short_suffix(middle) {
                Some(found) => found,
                None => self.entry(middle)?.suffix,
            };
            if is_below(found, suffix) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Returns the suffix of the entry in `slot`, if the suffix is shorter than 128 bytes and
    /// within the block.
    #[inline]
    fn short_suffix(&self, slot: usize) -> Option<&'a [u8]> {
        let entry = self.bytes.get(self.offset(slot)?..)?;
        let (len, head_len) = match self.layout.is_even {
            true => (self.layout.suffix_len, 0),
            false => (*entry.first()?, 1),
        };
        let head_len = head_len + usize::from(!self.layout.is_puts) + self.layout.seq_width;
        let suffix = entry.get(head_len..)?.get(..usize::from(len))?;
        (usize::from(len) < LONG_SUFFIX).then_some(suffix)
    }

    /// Whether all keys of the block are below `key`.
    pub(crate) fn ends_before(&self, key: &[u8]) -> bool {
        let prefix = self.prefix();
        match (key.strip_prefix(prefix), self.entry(self.len() - 1)) {
            (Some(suffix), Ok(last)) => is_below(last.suffix, suffix),
            (None, _) => key > prefix,
            (Some(_), Err(_)) => false,
        }
    }

    /// Whether `key` is the key of the entry at `place`.
    #[inline]
    pub(crate) fn is_key_at(&self, place: &EntryPlace, key: &[u8]) -> bool {
        let suffix = self.bytes.get(place.suffix_at..place.row_at);
        // The suffix is compared first, because only the suffix distinguishes keys of one block.
        key.split_at_checked(self.prefix().len())
            .is_some_and(|(prefix, rest)| Some(rest) == suffix && prefix == self.prefix())
    }

    /// Checks what the accessors do not check: there are no gaps between entries, entries are in
    /// order, and widths are as small as possible.
    pub(crate) fn check(&self) -> Result<(), DecodeError> {
        let mut expected = self.layout.prefix_end;
        let mut previous: Option<BlockEntry<'_>> = None;
        let (mut seq_min, mut seq_max) = (u64::MAX, 0);
        let first_len = self.entry(0)?.suffix.len();
        let (mut is_puts, mut is_even) = (true, first_len < LONG_SUFFIX);
        for slot in 0..self.len() {
            let entry = self.entry(slot)?;
            let at = self.span(slot).map_or(0, |(start, _)| start);
            let wrong = |problem: &'static str| Err(DecodeError::new(STRUCTURE, at, problem));
            if at != expected {
                return wrong("an entry does not begin where the one before it ends");
            }
            if entry.seq.0 < self.layout.seq_min || entry.seq > Seq::MAX {
                return wrong("impossible Seq");
            }
            let order = previous.map_or(Ordering::Less, |p| p.suffix.cmp(entry.suffix));
            let newest_first = previous.is_none_or(|p| p.seq > entry.seq);
            if order.is_gt() || order.is_eq() && !newest_first {
                return wrong("entries out of order");
            }
            seq_min = seq_min.min(entry.seq.0);
            seq_max = seq_max.max(entry.seq.0);
            is_puts &= entry.kind == Kind::Put;
            is_even &= entry.suffix.len() == first_len;
            previous = Some(entry);
            expected = self.span(slot).map_or(0, |(_, end)| end);
        }
        if seq_min != self.layout.seq_min {
            return Err(DecodeError::new(STRUCTURE, 8, "the smallest Seq is that of no entry"));
        }
        // Older writers set neither flag, because their entries omit nothing. Such blocks are
        // valid.
        let (layout, old) = (&self.layout, !self.layout.is_puts && !self.layout.is_even);
        if !old && (layout.is_puts, layout.is_even) != (is_puts, is_even) {
            let problem = "the flags are not what the entries need";
            return Err(DecodeError::new(STRUCTURE, FLAGS_AT, problem));
        }
        self.check_widths(seq_max, previous)
    }

    /// Checks that the shared prefix is as long as possible, and that widths are as small as
    /// possible, so that a list of entries has only one encoding.
    fn check_widths(&self, seq_max: u64, last: Option<BlockEntry<'_>>) -> Result<(), DecodeError> {
        let saved = if self.layout.wide { self.len() * usize::from(WIDE - NARROW) } else { 0 };
        let wide = self.bytes.len() - saved > usize::from(u16::MAX);
        let seq_width = width(seq_max - self.layout.seq_min);
        if self.layout.wide != wide || self.layout.seq_width != seq_width {
            return Err(DecodeError::new(STRUCTURE, 2, "a width is not what the entries need"));
        }
        let last = last.map_or(&[][..], |entry| entry.suffix);
        if shared_len(self.entry(0)?.suffix, last) > 0 {
            return Err(DecodeError::new(STRUCTURE, 4, "the keys share more than the prefix"));
        }
        Ok(())
    }

    /// Returns the start and the end of the entry in `slot`.
    #[inline]
    fn span(&self, slot: usize) -> Option<(usize, usize)> {
        if slot >= self.layout.count {
            return None;
        }
        let end = match slot + 1 {
            next if next == self.layout.count => self.bytes.len(),
            next => self.offset(next)?,
        };
        Some((self.offset(slot)?, end))
    }

    #[inline]
    fn offset(&self, slot: usize) -> Option<usize> {
        let offsets = self.bytes.get(FIXED_BYTES..)?;
        if self.layout.wide {
            let offset = offsets.get(slot * 4..)?.first_chunk()?;
            Some(u32::from_le_bytes(*offset) as usize)
        } else {
            let offset = offsets.get(slot * 2..)?.first_chunk()?;
            Some(usize::from(u16::from_le_bytes(*offset)))
        }
    }

    /// Returns the encoded Seq at offset `at`, which is relative to the block's least Seq.
    #[inline]
    fn delta(&self, at: usize) -> u64 {
        let bytes = self.bytes.get(at..).unwrap_or_default();
        match bytes.first_chunk::<8>() {
            Some(chunk) => u64::from_le_bytes(*chunk) & self.layout.seq_mask,
            None => {
                let byte = |(i, byte): (usize, &u8)| u64::from(*byte) << (8 * i);
                bytes.iter().take(self.layout.seq_width).enumerate().map(byte).sum()
            }
        }
    }

    #[cold]
    fn long_suffix(&self, start: usize) -> Option<(usize, usize)> {
        let mut cursor = Cursor::new(STRUCTURE, self.bytes.get(start..)?);
        let len = usize::try_from(cursor.varint().ok()?).ok()?;
        Some((len, start + cursor.at()))
    }
}

/// Whether entries of the block in `bytes` omit parts that older readers expect in each entry.
pub(crate) fn leaves_out(bytes: &[u8]) -> bool {
    bytes.get(FLAGS_AT).is_some_and(|flags| *flags != 0)
}

#[cold]
fn bad_entry(at: usize) -> DecodeError {
    let problem = "an entry of unknown kind or beyond its end, or a deletion with a row";
    DecodeError::new(STRUCTURE, at, problem)
}

impl RowLayout {
    #[inline]
    fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let layout = Self::fixed(bytes).filter(|layout| layout.prefix_end <= bytes.len());
        layout.ok_or_else(|| {
            DecodeError::new(STRUCTURE, 0, "impossible count, width, prefix length or flags")
        })
    }

    /// Reads the layout of a block that begins with `bytes`, without checking the length of the
    /// block.
    #[inline]
    pub(crate) fn fixed(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk::<FIXED_BYTES>().and_then(|fixed| {
            let [c0, c1, offset_width, seq_width, p0, p1, flags, suffix_len, seq_min @ ..] = *fixed;
            let (is_puts, is_even) = (flags & FLAG_PUTS != 0, flags & FLAG_EVEN != 0);
            let count = usize::from(u16::from_le_bytes([c0, c1]));
            let prefix_at = FIXED_BYTES + count * usize::from(offset_width);
            let layout = Self {
                count,
                wide: offset_width == WIDE,
                is_puts,
                is_even,
                suffix_len,
                seq_width: usize::from(seq_width),
                seq_mask: u64::MAX.checked_shr(64 - 8 * u32::from(seq_width.min(8))).unwrap_or(0),
                seq_min: u64::from_le_bytes(seq_min),
                prefix_at,
                prefix_end: prefix_at + usize::from(u16::from_le_bytes([p0, p1])),
            };
            let possible = (1..=SLOTS_MAX).contains(&count)
                && matches!(offset_width, NARROW | WIDE)
                && seq_width <= 8
                && flags & !(FLAG_PUTS | FLAG_EVEN) == 0
                && usize::from(suffix_len) < if is_even { LONG_SUFFIX } else { 1 };
            possible.then_some(layout)
        })
    }

    pub(crate) fn offset_width(&self) -> usize {
        usize::from(if self.wide { WIDE } else { NARROW })
    }

    pub(crate) fn prefix_len(&self) -> usize {
        self.prefix_end - self.prefix_at
    }

    /// Returns the common length of all suffixes, if entries omit it.
    pub(crate) fn even_len(&self) -> Option<usize> {
        self.is_even.then_some(usize::from(self.suffix_len))
    }
}

/// Collects the entries of a block.
#[derive(Default)]
pub(crate) struct RowBlockBuilder {
    /// All keys and rows, one after another.
    data: Vec<u8>,
    entries: Vec<Pending>,
    /// The length of the prefix shared by the first and the last key, and so by all keys.
    prefix_len: usize,
    /// Whether all entries are puts (`is_puts`), and whether all keys have the same length
    /// (`is_even`).
    is_puts: bool,
    is_even: bool,
    seq_min: u64,
    seq_max: u64,
}

struct Pending {
    key_end: usize,
    row_end: usize,
    seq: Seq,
    kind: Kind,
}

impl RowBlockBuilder {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the block would be longer than `target` if an entry with `key` and a row of
    /// `row_len` bytes were added.
    #[inline]
    pub(crate) fn is_full(
        &self,
        key: &[u8],
        (seq, kind): (Seq, Kind),
        row_len: usize,
        target: usize,
    ) -> bool {
        let entries = self.entries.len();
        if entries == 0 || entries == SLOTS_MAX {
            return entries > 0;
        }
        let seq_width = width(self.seq_max.max(seq.0) - self.seq_min.min(seq.0));
        let is_even = self.is_even && key.len() == self.first_len();
        let kind_bytes = usize::from(!(self.is_puts && kind == Kind::Put));
        let bytes = |prefix_len: usize| {
            let is_long = key.len() >= prefix_len + LONG_SUFFIX;
            let len_bytes = if is_long { 2 } else { usize::from(!is_even) };
            let entry = usize::from(NARROW) + len_bytes + kind_bytes + seq_width;
            let all = FIXED_BYTES + self.data.len() + key.len() + row_len + (entries + 1) * entry;
            let all = all.saturating_sub(prefix_len * entries);
            // Offsets take four bytes each if they do not fit two.
            if all > usize::from(u16::MAX) { all + 2 * (entries + 1) } else { all }
        };
        if bytes(self.prefix_len) > target {
            return true;
        }
        // The shared prefix is computed only if the result depends on it.
        bytes(0) > target && bytes(self.shared_with(key)) > target
    }

    /// Returns the length of the prefix that `key` shares with all keys of the block.
    fn shared_with(&self, key: &[u8]) -> usize {
        let first = self.first_len().min(self.prefix_len);
        shared_len(self.data.get(..first).unwrap_or_default(), key)
    }

    /// Returns the length of the first key.
    fn first_len(&self) -> usize {
        self.entries.first().map_or(0, |first| first.key_end)
    }

    /// Adds an entry; `row` appends its row.
    ///
    /// Requires: the entry sorts after all entries of the block, and the key has at most
    /// [`KEY_BYTES_MAX`] bytes.
    pub(crate) fn add(&mut self, key: &[u8], seq: Seq, kind: Kind, row: impl FnOnce(&mut Vec<u8>)) {
        debug_assert!(self.len() < SLOTS_MAX && key.len() <= KEY_BYTES_MAX);
        match self.entries.first() {
            None => {
                self.prefix_len = key.len();
                (self.seq_min, self.seq_max) = (seq.0, seq.0);
                (self.is_puts, self.is_even) = (true, true);
            }
            Some(_) => {
                self.prefix_len = self.shared_with(key);
                self.seq_min = self.seq_min.min(seq.0);
                self.seq_max = self.seq_max.max(seq.0);
                self.is_even &= key.len() == self.first_len();
            }
        }
        self.is_puts &= kind == Kind::Put;
        self.data.extend_from_slice(key);
        let key_end = self.data.len();
        row(&mut self.data);
        self.entries.push(Pending { key_end, row_end: self.data.len(), seq, kind });
    }

    /// Appends the block to `out` and begins the next one.
    ///
    /// Requires: at least one entry was added.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        let start = out.len();
        let wide =
            FIXED_BYTES + self.len() * usize::from(NARROW) + self.prefix_len + self.entries_bytes()
                > usize::from(u16::MAX);
        let offset_width = if wide { WIDE } else { NARROW };
        self.put_fixed(offset_width, out);
        let mut offsets_at = out.len();
        out.resize(offsets_at + self.len() * usize::from(offset_width), 0);
        out.extend_from_slice(self.data.get(..self.prefix_len).unwrap_or_default());
        let seq_width = width(self.seq_max - self.seq_min);
        let is_even = self.even_len().is_some();
        let mut key_at = 0;
        for entry in &self.entries {
            let offset = out.len() - start;
            put_offset(out, &mut offsets_at, wide, offset);
            let suffix_at = key_at + self.prefix_len;
            let suffix_len = entry.key_end - suffix_at;
            let delta = (entry.seq.0 - self.seq_min).to_le_bytes();
            if !is_even {
                put_varint(out, suffix_len as u64);
            }
            if !self.is_puts {
                out.push(entry.kind as u8);
            }
            // Append all 8 bytes and then truncate, because a copy of constant length is faster.
            let end = out.len() + seq_width;
            out.extend_from_slice(&delta);
            out.truncate(end);
            // In `data` the row follows its key, so this appends both.
            out.extend_from_slice(self.data.get(suffix_at..entry.row_end).unwrap_or_default());
            key_at = entry.row_end;
        }
        self.data.clear();
        self.entries.clear();
    }

    fn put_fixed(&self, offset_width: u8, out: &mut Vec<u8>) {
        let u16_of = |len: usize| u16::try_from(len).unwrap_or(u16::MAX).to_le_bytes();
        let seq_width = u8::try_from(width(self.seq_max - self.seq_min)).unwrap_or(8);
        out.extend_from_slice(&u16_of(self.len()));
        out.extend_from_slice(&[offset_width, seq_width]);
        out.extend_from_slice(&u16_of(self.prefix_len));
        let puts = if self.is_puts { FLAG_PUTS } else { 0 };
        let (even, suffix_len) = self.even_len().map_or((0, 0), |len| (FLAG_EVEN, len));
        out.extend_from_slice(&[puts | even, suffix_len]);
        out.extend_from_slice(&self.seq_min.to_le_bytes());
    }

    /// Returns the common length of all suffixes, if entries can omit it.
    fn even_len(&self) -> Option<u8> {
        let len = self.first_len() - self.prefix_len;
        u8::try_from(len).ok().filter(|_| self.is_even && len < LONG_SUFFIX)
    }

    fn entries_bytes(&self) -> usize {
        let seq_width = width(self.seq_max - self.seq_min);
        let (is_even, kind_len) = (self.even_len().is_some(), usize::from(!self.is_puts));
        let mut key_at = 0;
        let mut bytes = 0;
        for entry in &self.entries {
            let suffix = entry.key_end - key_at - self.prefix_len;
            let len = if is_even { 0 } else { varint_len(suffix as u64) };
            bytes += len + kind_len + seq_width + suffix;
            bytes += entry.row_end - entry.key_end;
            key_at = entry.row_end;
        }
        bytes
    }
}

/// Writes the offset of an entry and advances `at` to the place of the next offset.
#[inline]
fn put_offset(out: &mut [u8], at: &mut usize, wide: bool, offset: usize) {
    let offset = u32::try_from(offset).unwrap_or(u32::MAX).to_le_bytes();
    let rest = out.get_mut(*at..).unwrap_or_default();
    if wide {
        if let Some(place) = rest.first_chunk_mut() {
            *place = offset;
        }
        *at += usize::from(WIDE);
    } else {
        if let Some(place) = rest.first_chunk_mut() {
            *place = [offset[0], offset[1]];
        }
        *at += usize::from(NARROW);
    }
}

/// Returns the number of bytes needed to store `value`; none are needed for 0.
#[inline]
fn width(value: u64) -> usize {
    (64 - value.leading_zeros()).div_ceil(8) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    type Entry = (Vec<u8>, u64, Kind, Vec<u8>);

    fn encoded(entries: &[Entry]) -> Vec<u8> {
        let mut builder = RowBlockBuilder::default();
        for (key, seq, kind, row) in entries {
            builder.add(key, Seq(*seq), *kind, |out| out.extend_from_slice(row));
        }
        let mut out = Vec::new();
        builder.finish(&mut out);
        assert!(builder.is_empty());
        out
    }

    fn put(key: &str, seq: u64, row: &str) -> Entry {
        (key.into(), seq, Kind::Put, row.into())
    }

    #[track_caller]
    fn check_round_trip(entries: &[Entry]) {
        let bytes = encoded(entries);
        let block = RowBlock::parse(&bytes).unwrap();
        assert_eq!(block.check(), Ok(()));
        let decoded: Vec<Entry> = (0..block.len())
            .map(|slot| {
                let entry = block.entry(slot).unwrap();
                let key = [block.prefix(), entry.suffix].concat();
                assert!(block.is_key_at(&block.place(slot).unwrap(), &key));
                let first = entries.iter().position(|e| e.0 == key);
                assert_eq!(block.lower_bound(&key).ok(), first);
                (key, entry.seq.0, entry.kind, entry.row.to_vec())
            })
            .collect();
        assert_eq!(decoded, entries);
        assert!(block.entry(block.len()).is_err());
        assert_eq!(block.lower_bound(&[255; 9]), Ok(block.len()));
    }

    #[test]
    fn round_trips() {
        check_round_trip(&[put("", 0, "")]);
        check_round_trip(&[put("key", Seq::MAX.0, "row")]);
        check_round_trip(&[put("", 5, ""), put("a", 5, "x"), put("ab", 4, "y")]);
        check_round_trip(&[put("k", 9, "new"), put("k", 8, "old"), put("k", 1, "older")]);
        check_round_trip(&[put("k/a", 5, "x"), put("k/b", 4, "y"), put("k/c", 4, "")]);
        check_round_trip(&[put("k/a", 5, "x"), ("k/b".into(), 4, Kind::Delete, vec![])]);
        let tails = ["a", "b"].map(|first| put(&(first.to_owned() + &"x".repeat(127)), 5, "r"));
        check_round_trip(&tails);
        let tails = ["a", "b"].map(|first| put(&(first.to_owned() + &"x".repeat(126)), 5, "r"));
        check_round_trip(&tails);
        let far = [put("k/a", 1, ""), put("k/b", Seq::MAX.0, ""), put("k/c", 1 << 40, "")];
        check_round_trip(&far);
        let long = "x".repeat(70_000);
        check_round_trip(&[put("a", 5, &long), put("b", 6, &long)]);
        let key = "k".repeat(3000);
        check_round_trip(&[put(&key, 5, "r"), put(&(key.clone() + "1"), 6, "")]);
        let narrow = "x".repeat(65_535 - 16 - 2 - 1);
        check_round_trip(&[put("k", 1, &narrow)]);
        check_round_trip(&[put("k", 1, &(narrow + "x"))]);
    }

    #[test]
    fn random_round_trips() {
        let mut rng = Rng::from_seed(7);
        for _ in 0..200 {
            let mut entries: Vec<Entry> = (0..rng.below(300) + 1)
                .map(|_| {
                    let key =
                        format!("table/{:0width$}", rng.below(99), width = rng.below(5) as usize);
                    let kind = if rng.chance(1, 5) { Kind::Delete } else { Kind::Put };
                    let bits = rng.below(50);
                    let len = if kind == Kind::Put { rng.below(20) as usize } else { 0 };
                    let row = vec![7; len];
                    (key.into_bytes(), rng.below(1 << bits), kind, row)
                })
                .collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
            entries.dedup_by(|a, b| a.0 == b.0 && a.1 == b.1);
            check_round_trip(&entries);
        }
    }

    /// If the flag [`FLAG_PUTS`] is cleared in a valid block of puts, readers take the first byte
    /// of a row for the kind of the entry. Here that byte means a deletion, which must not have a
    /// row.
    #[test]
    fn a_deletion_with_a_row_is_damage() {
        for len in [1, 200] {
            let row: String = "\x02".repeat(len);
            let mut bytes = encoded(&[put("k", 5, &row)]);
            bytes[FLAGS_AT] &= !FLAG_PUTS;
            let block = RowBlock::parse(&bytes).unwrap();
            let visit = |_, _: BlockEntry<'_>| Ok(());
            let refused = [
                block.entry(0).map(drop),
                block.place(0).map(drop),
                block.visit(0..1, visit),
                block.visit_places(0..1, |_, _| ()),
                block.check(),
            ];
            assert_eq!(refused.map(|refused| refused.is_err()), [len > 1; 5], "{len}");
        }
    }

    #[test]
    fn the_bytes_of_an_example() {
        let entries = [
            put("\0\0\0\x01a\0x", 0x1234, "R1"),
            ("\0\0\0\x01a\0yz".into(), 0x1200, Kind::Delete, vec![]),
        ];
        let expected = [
            2, 0, 2, 1, 6, 0, 0, 0, 0, 0x12, 0, 0, 0, 0, 0, 0, 26, 0, 32, 0, 0, 0, 0, 1, b'a', 0,
            1, 1, 0x34, b'x', b'R', b'1', 2, 2, 0, b'y', b'z',
        ];
        assert_eq!(encoded(&entries), expected);
        // All entries are puts, and all suffixes have the same length.
        let entries = [put("k/a", 0x1234, "R1"), put("k/b", 0x1200, "")];
        let expected = [
            2, 0, 2, 1, 2, 0, 3, 1, 0, 0x12, 0, 0, 0, 0, 0, 0, 22, 0, 26, 0, b'k', b'/', 0x34,
            b'a', b'R', b'1', 0, b'b',
        ];
        assert_eq!(encoded(&entries), expected);
    }

    /// Blocks of older writers must be readable and valid, although their entries omit nothing.
    #[test]
    fn trap_44_entries_without_omissions_are_read() {
        let bytes = [
            2, 0, 2, 1, 2, 0, 0, 0, 0, 0x12, 0, 0, 0, 0, 0, 0, 22, 0, 28, 0, b'k', b'/', 1, 1,
            0x34, b'a', b'R', b'1', 1, 1, 0, b'b',
        ];
        let block = RowBlock::parse(&bytes).unwrap();
        assert_eq!(block.check(), Ok(()));
        let (a, b) = (block.entry(0).unwrap(), block.entry(1).unwrap());
        assert_eq!((a.suffix, a.seq, a.row), (&b"a"[..], Seq(0x1234), &b"R1"[..]));
        assert_eq!((b.suffix, b.seq, b.kind, b.row), (&b"b"[..], Seq(0x1200), Kind::Put, &b""[..]));
        assert_eq!(block.lower_bound(b"k/b"), Ok(1));
    }

    #[test]
    fn flags_that_do_not_match_the_entries_are_detected() {
        let check = |entries: &[Entry], flags: [u8; 2], fails: bool| {
            let mut bytes = encoded(entries);
            assert_ne!(bytes[6..8], flags);
            bytes[6..8].copy_from_slice(&flags);
            let checked = RowBlock::parse(&bytes).and_then(|block| block.check());
            assert_eq!(checked.is_err(), fails, "{flags:?}");
        };
        let entries = [put("k/a", 0x1234, "R1"), put("k/b", 0x1200, "")];
        for flags in [[4, 0], [0x83, 1], [0, 1], [1, 1], [3, 2], [3, 0x80], [2, 1], [0, 0]] {
            check(&entries, flags, true);
        }
    }

    #[test]
    fn trap_23_hostile_blocks_never_panic() {
        let entries = [put("k/a", 700, "row one"), put("k/b", 600, "two"), put("k/b", 5, "")];
        let bytes = encoded(&entries);
        let visit = |bytes: &[u8]| {
            let Ok(block) = RowBlock::parse(bytes) else { return };
            for slot in 0..=block.len() {
                let _ = block.entry(slot);
            }
            let _ = (block.lower_bound(b"k/b"), block.lower_bound(b""), block.check());
        };
        for at in 0..bytes.len() {
            visit(&bytes[..at]);
            for value in 0..=255 {
                let mut bytes = bytes.clone();
                bytes[at] = value;
                visit(&bytes);
            }
        }
        let mut rng = Rng::from_seed(3);
        for _ in 0..20_000 {
            let mut bytes = bytes.clone();
            for _ in 0..4 {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = rng.next_u64() as u8;
            }
            visit(&bytes);
        }
    }

    #[test]
    fn entries_out_of_order_are_detected() {
        #[track_caller]
        fn check(entries: &[Entry]) {
            assert!(RowBlock::parse(&encoded(entries)).unwrap().check().is_err());
        }
        check(&[put("b", 1, ""), put("a", 1, "")]);
        check(&[put("a", 1, ""), put("a", 1, "")]);
        check(&[put("a", 1, ""), put("a", 2, "")]);
        check(&[put("a", Seq::MAX.0 + 1, "")]);
    }

    /// [`RowBlockBuilder::is_full`] must predict the length of a block correctly, even if the next
    /// entry changes the shared prefix and the widths.
    #[test]
    fn a_full_block_has_the_requested_length() {
        let mut rng = Rng::from_seed(9);
        for target in [300, 512, 4072, 8168, 40_000, 65_600, 150_000] {
            for _ in 0..40 {
                let (mut builder, mut entries) = (RowBlockBuilder::default(), Vec::new());
                let (spread, text) = (
                    1 << rng.below(50),
                    ["k/", "k/".repeat(99).as_str()][rng.below(2) as usize].to_owned(),
                );
                let mut number = 0;
                let next = loop {
                    number += 1 + rng.below(spread).min(1 << 20);
                    let row = "r".repeat(rng.below(90) as usize);
                    let entry = put(&format!("{text}{number:012}"), rng.below(spread), &row);
                    let (key, seq) = (entry.0.as_slice(), (Seq(entry.1), entry.2));
                    if builder.is_full(key, seq, row.len(), target) {
                        break entry;
                    }
                    builder.add(&entry.0, Seq(entry.1), entry.2, |out| {
                        out.extend_from_slice(&entry.3)
                    });
                    entries.push(entry);
                };
                let fits = encoded(&entries).len();
                entries.push(next);
                assert!(fits <= target || entries.len() == 2, "{fits} of {target}");
                assert!(encoded(&entries).len() > target, "{fits} of {target}");
            }
        }
    }
}
