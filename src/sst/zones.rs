//! Computes the zones of a file from its entries, for the writer and for verification. A zone has
//! the minimum and maximum of each property in a block, so that scans can skip blocks.
//!
//! Invariants
//! * a zone covers all versions in its block, not only the newest one of each key;
//! * an unreadable value is treated as any possible value, so damage never narrows a zone.
//!
//! `format::zones` encodes zones.

use std::collections::HashMap;
use std::sync::Arc;

use crate::codec::{same_short, shared_len};
use crate::format::Kind;
use crate::format::zones::{
    COLUMNS_MAX, HEAD_BYTES, NAME_BYTES_MAX, NO_VALUES, PREFIX_BYTES_MAX, ZONE_BLOCKS, ZoneColumn,
    ZoneMeta, ZoneValues, bytes_key, double_key, encode, flag, head, is_cut_text, order_key,
    presence,
};
use crate::model::{EdmType, RowRef, Seq, Shape, utf16_rank};
use crate::sort::sort_by;

/// Computes the zones of a file that is being written or verified.
///
/// A zone page has a column for each property, that is, each pair of name and type, up to 32. A
/// page with more properties is *incomplete*: it has columns only for the 32 that occur first, in
/// the order of entries and, within a row, of names.
#[derive(Default)]
pub(super) struct ZoneBuilder {
    /// The metadata of the current block.
    block: ZoneMeta,
    puts: u32,
    /// The metadata of the finished blocks of the current page.
    metas: Vec<ZoneMeta>,
    columns: Vec<PageColumn>,
    /// True if some property of the current page has no column.
    incomplete: bool,
    page_puts: u64,
    slots: Slots,
    /// Fixed-width values of rows of the current block that were not added to the columns yet. All
    /// these rows have the shape used last. Adding many values at a time to a column halves the
    /// cost.
    waiting: Vec<u8>,
    summary: Summary,
}

/// A column of the current zone page.
struct PageColumn {
    name: Box<str>,
    edm: EdmType,
    /// The bounds of the values in the current block.
    block: Bounds,
    /// The bounds of the values in each finished block, up to the last block with a value.
    done: Vec<Bounds>,
}

/// The zone summary of the whole file, merged from the zone pages in order.
///
/// An incomplete page may contain values of properties for which it has no column. So all columns
/// that such a page lacks are removed from the summary. The columns that the page has are added, up
/// to 32. After an incomplete page, or once a column did not fit, the summary is incomplete, and
/// later pages add no columns.
#[derive(Default)]
struct Summary {
    meta: ZoneMeta,
    columns: Vec<(Box<str>, EdmType, Bounds)>,
    /// True if a property may lack a column. Then no more columns are added: a new one could belong
    /// to a property whose earlier values were not included.
    incomplete: bool,
    puts: u64,
}

/// The bounds of a column's values in a block, a page or a file.
#[derive(Clone)]
struct Bounds {
    rows: u64,
    /// True if every put in the block, page or file has a value in this column.
    all: bool,
    nan: bool,
    /// The least and the greatest order key. Those of a text or byte string are of its first bytes,
    /// and not encoded.
    min: u64,
    max: u64,
    /// The least text or byte string, truncated to the bytes that the format can store (prefix and
    /// head). `max_text` is the greatest text or byte string, truncated in the same way.
    min_text: Vec<u8>,
    max_text: Vec<u8>,
}

/// Maps the properties of each shape to the columns of the current zone page.
#[derive(Default)]
struct Slots {
    shapes: Vec<Known>,
    by_hash: HashMap<u64, usize>,
    /// The index in `shapes` of the previous row's shape, because most rows have the same shape.
    last: usize,
}

/// A shape that occurs in the current zone page.
struct Known {
    shape: Arc<Shape>,
    /// The fixed-width properties that have a column.
    fixed: Box<[Step]>,
    /// For each variable-width property, the index of its column or [`NO_COLUMN`].
    variable: Box<[u8]>,
}

/// The column of a fixed-width property, and the offset of its value in a row's body.
struct Step {
    column: u8,
    edm: EdmType,
    place: u32,
}

/// Used instead of a column index for a property without a column.
const NO_COLUMN: u8 = u8::MAX;
/// The maximum number of shapes in [`Slots`].
const SLOTS_MAX: usize = 256;
/// The maximum number of bytes kept of a text.
const TEXT_BYTES_MAX: usize = PREFIX_BYTES_MAX + HEAD_BYTES;

impl ZoneBuilder {
    /// Begins a block. `newest` must be true if its first entry is the newest version of its key,
    /// and false if the key continues from the previous block. If the result is true, the caller
    /// must call [`take_page`](Self::take_page) before it adds an entry.
    pub(super) fn begin_block(&mut self, newest: bool) -> bool {
        if !newest && let Some(last) = self.metas.last_mut() {
            last.flags |= flag::GOES_ON;
            self.block.flags |= flag::BEGAN_BEFORE;
        }
        self.metas.len() == ZONE_BLOCKS
    }

    /// Adds an entry to the current block. `newest` must be true if it is the first version of its
    /// key in the file.
    pub(super) fn add(&mut self, newest: bool, seq: Seq, kind: Kind, row: Option<&RowRef<'_>>) {
        let block = &mut self.block;
        if block.entries == 0 {
            (block.seq_min, block.seq_max) = (seq, seq);
        } else if !newest {
            block.flags |= flag::VERSIONS;
        }
        if !newest {
            self.summary.meta.flags |= flag::VERSIONS;
        }
        block.entries += 1;
        block.seq_min = block.seq_min.min(seq);
        block.seq_max = block.seq_max.max(seq);
        if kind == Kind::Delete {
            block.flags |= flag::TOMBSTONES;
        }
        let Some(row) = row else { return };
        self.puts += 1;
        let shape = row.shape.arc();
        if !self.slots.is_last(shape) {
            self.drain_waiting();
            self.slots.find(shape, &mut self.columns, &mut self.incomplete);
        }
        let Some(Known { fixed, variable, .. }) = self.slots.last() else { return };
        match row.body.get(..shape.fixed_bytes()) {
            Some(values) => self.waiting.extend_from_slice(values),
            // The body is damaged, so its fixed-width values are unknown.
            None => add_damaged(fixed, &mut self.columns),
        }
        let mut texts = shape.raw_variables(row.body);
        for column in variable {
            let bytes = texts.next().flatten();
            // For [`NO_COLUMN`], which is beyond all columns, `get_mut` returns `None`.
            if let Some(column) = self.columns.get_mut(usize::from(*column)) {
                column.block.add_variable(column.edm, bytes);
            }
        }
    }

    /// Adds the values of the waiting rows to their columns.
    fn drain_waiting(&mut self) {
        let Some(Known { shape, fixed, .. }) = self.slots.last() else { return };
        for Step { column, edm, place } in fixed {
            if let Some(column) = self.columns.get_mut(usize::from(*column)) {
                let rows = self.waiting.chunks_exact(shape.fixed_bytes());
                column.block.add_fixed(*edm, rows, *place as usize);
            }
        }
        self.waiting.clear();
    }

    /// Ends the current block, which must have at least one entry.
    pub(super) fn finish_block(&mut self) {
        self.drain_waiting();
        let number = self.metas.len();
        for column in &mut self.columns {
            if column.block.rows > 0 {
                column.done.resize(number, Bounds::NONE);
                column.block.all = column.block.rows == u64::from(self.puts);
                column.done.push(std::mem::replace(&mut column.block, Bounds::NONE));
            }
        }
        self.page_puts += u64::from(std::mem::take(&mut self.puts));
        self.metas.push(std::mem::take(&mut self.block));
    }

    /// True if the current page has no finished blocks.
    pub(super) fn is_empty(&self) -> bool {
        self.metas.is_empty()
    }

    /// Encodes and returns the page of the blocks finished so far, and begins the next page.
    pub(super) fn take_page(&mut self) -> Vec<u8> {
        let len = self.metas.len();
        sort_by(&mut self.columns, |a, b| (&a.name, a.edm).cmp(&(&b.name, b.edm)));
        let encoded = self.columns.iter_mut().map(|column| {
            column.done.resize(len, Bounds::NONE);
            zone_column(&column.name, column.edm, &column.done)
        });
        let encoded: Vec<_> = encoded.collect();
        let mut page = Vec::new();
        encode(&self.metas, !self.incomplete, &encoded, &mut page);
        let columns = std::mem::take(&mut self.columns);
        self.summary.merge(&self.metas, columns, self.incomplete, self.page_puts);
        self.metas.clear();
        self.incomplete = false;
        self.page_puts = 0;
        self.slots.clear();
        page
    }

    /// Appends the zone summary of all pages that [`take_page`](Self::take_page) has returned.
    pub(super) fn summary(&self, out: &mut Vec<u8>) {
        let Summary { meta, columns, incomplete, puts } = &self.summary;
        let columns = columns.iter().map(|(name, edm, bounds)| {
            let all = bounds.rows == *puts;
            zone_column(name, *edm, &[Bounds { all, ..bounds.clone() }])
        });
        let mut columns: Vec<_> = columns.collect();
        sort_by(&mut columns, |a, b| (&a.name, a.edm).cmp(&(&b.name, b.edm)));
        encode(&[*meta], !incomplete, &columns, out);
    }

    /// Returns the approximate memory used by the current page in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let column = |column: &PageColumn| {
            let texts = column.done.iter().map(|it| it.min_text.len() + it.max_text.len());
            column.done.len() * size_of::<Bounds>() + texts.sum::<usize>()
        };
        self.columns.iter().map(column).sum()
    }
}

impl Slots {
    fn is_last(&self, shape: &Arc<Shape>) -> bool {
        self.last().is_some_and(|last| Arc::ptr_eq(&last.shape, shape))
    }

    fn last(&self) -> Option<&Known> {
        self.shapes.get(self.last)
    }

    /// Finds or adds `shape`, makes it the last one used, and adds the columns that it needs.
    #[cold]
    fn find(&mut self, shape: &Arc<Shape>, columns: &mut Vec<PageColumn>, incomplete: &mut bool) {
        let hash = shape.hash().value();
        if let Some(at) = self.by_hash.get(&hash)
            && self.shapes.get(*at).is_some_and(|known| known.shape == *shape)
        {
            self.last = *at;
            return;
        }
        if self.shapes.len() == SLOTS_MAX {
            self.clear();
        }
        let (mut fixed, mut variable) = (Vec::new(), Vec::new());
        for (index, (name, edm)) in shape.properties().enumerate() {
            let column = column_of(columns, name, edm);
            *incomplete |= column == NO_COLUMN;
            match edm.fixed_width() {
                None => variable.push(column),
                Some(_) if column == NO_COLUMN => {}
                Some(_) => {
                    let place = u32::try_from(shape.fixed_offset(index)).unwrap_or(u32::MAX);
                    fixed.push(Step { column, edm, place });
                }
            }
        }
        let (fixed, variable) = (fixed.into(), variable.into());
        self.shapes.push(Known { shape: Arc::clone(shape), fixed, variable });
        self.last = self.shapes.len() - 1;
        self.by_hash.insert(hash, self.last);
    }

    fn clear(&mut self) {
        self.shapes.clear();
        self.by_hash.clear();
        self.last = 0;
    }
}

/// Extends the columns of a damaged row's fixed-width properties to any possible value.
#[cold]
fn add_damaged(fixed: &[Step], columns: &mut [PageColumn]) {
    for Step { column, edm, .. } in fixed {
        if let Some(column) = columns.get_mut(usize::from(*column)) {
            column.block.rows += 1;
            column.block.add_anything(*edm);
        }
    }
}

/// Returns the index of the column for `name` and `edm`. Adds the column if there is space;
/// otherwise returns [`NO_COLUMN`].
fn column_of(columns: &mut Vec<PageColumn>, name: &str, edm: EdmType) -> u8 {
    let found = columns.iter().position(|column| column.edm == edm && &*column.name == name);
    if let Some(at) = found {
        return u8::try_from(at).unwrap_or(NO_COLUMN);
    }
    if columns.len() == COLUMNS_MAX || name.len() > NAME_BYTES_MAX {
        return NO_COLUMN;
    }
    let (block, done) = (Bounds::NONE, Vec::new());
    columns.push(PageColumn { name: name.into(), edm, block, done });
    u8::try_from(columns.len() - 1).unwrap_or(NO_COLUMN)
}

impl Summary {
    fn merge(&mut self, metas: &[ZoneMeta], columns: Vec<PageColumn>, incomplete: bool, puts: u64) {
        for meta in metas {
            let all = &mut self.meta;
            let first = all.entries == 0;
            all.seq_min = if first { meta.seq_min } else { all.seq_min.min(meta.seq_min) };
            all.seq_max = all.seq_max.max(meta.seq_max);
            all.entries = all.entries.saturating_add(meta.entries);
            all.flags |= meta.flags & flag::TOMBSTONES;
        }
        self.puts += puts;
        if incomplete {
            let has = |name: &str, edm| columns.iter().any(|it| &*it.name == name && it.edm == edm);
            self.columns.retain(|(name, edm, _)| has(name, *edm));
        }
        for PageColumn { name, edm, done, .. } in columns {
            let known = self.columns.iter().position(|it| it.0 == name && it.1 == edm);
            let at = known.unwrap_or(self.columns.len());
            if known.is_none() {
                if self.incomplete || at == COLUMNS_MAX {
                    self.incomplete = true;
                    continue;
                }
                self.columns.push((name, edm, Bounds::NONE));
            }
            let Some((_, _, into)) = self.columns.get_mut(at) else { continue };
            done.iter().filter(|bounds| bounds.rows > 0).for_each(|it| into.merge(edm, it));
        }
        self.incomplete |= incomplete;
    }
}

impl Bounds {
    const NONE: Bounds = Bounds {
        rows: 0,
        all: false,
        nan: false,
        min: NO_VALUES.0,
        max: NO_VALUES.1,
        min_text: Vec::new(),
        max_text: Vec::new(),
    };

    /// Adds the value at offset `place` of each of `rows`. An unreadable value is treated as any
    /// possible value.
    fn add_fixed<'b>(
        &mut self,
        edm: EdmType,
        rows: impl ExactSizeIterator<Item = &'b [u8]>,
        place: usize,
    ) {
        self.rows += rows.len() as u64;
        let values = rows.map(|row| row.get(place..).unwrap_or_default());
        // Each type has its own loop, so that the type is constant inside it.
        match edm {
            EdmType::Double => values.for_each(|bytes| self.add_double(bytes)),
            EdmType::Int32 => self.add_keys(EdmType::Int32, values),
            EdmType::Int64 => self.add_keys(EdmType::Int64, values),
            EdmType::DateTime => self.add_keys(EdmType::DateTime, values),
            edm => self.add_keys(edm, values),
        }
    }

    #[inline]
    fn add_keys<'b>(&mut self, edm: EdmType, values: impl Iterator<Item = &'b [u8]>) {
        let (mut min, mut max, mut sound) = (self.min, self.max, true);
        for bytes in values {
            match order_key(edm, bytes) {
                Some(key) => (min, max) = (min.min(key), max.max(key)),
                None => sound = false,
            }
        }
        (self.min, self.max) = (min, max);
        if !sound {
            self.add_anything(edm);
        }
    }

    /// Adds a variable-width value. An unreadable value is treated as any possible value.
    #[inline]
    fn add_variable(&mut self, edm: EdmType, bytes: Option<&[u8]>) {
        self.rows += 1;
        match bytes {
            Some(bytes) => self.add_text(edm, bytes),
            None => self.add_anything(edm),
        }
    }

    #[inline]
    fn add_key(&mut self, key: u64) {
        self.min = self.min.min(key);
        self.max = self.max.max(key);
    }

    #[inline]
    fn add_double(&mut self, bytes: &[u8]) {
        let Some(bytes) = bytes.first_chunk() else { return self.add_anything(EdmType::Double) };
        let value = f64::from_le_bytes(*bytes);
        match double_key(value) {
            Some(key) => self.add_key(key),
            None => self.nan = true,
        }
    }

    #[inline]
    fn add_text(&mut self, edm: EdmType, bytes: &[u8]) {
        // The first bytes of most texts are strictly between those of the bounds.
        if let Some(first) = bytes.first_chunk()
            && (edm == EdmType::Binary || first.is_ascii())
            && (self.min.saturating_add(1)..self.max).contains(&bytes_key(*first))
        {
            return;
        }
        let bytes = bytes.get(..TEXT_BYTES_MAX).unwrap_or(bytes);
        // A text equal to the minimum is frequent if there are few distinct texts.
        if self.rows == 1 || !same_short(bytes, &self.min_text) {
            self.add_bound(edm, bytes);
        }
    }

    /// Adds a text or byte string that may be a new bound.
    fn add_bound(&mut self, edm: EdmType, bytes: &[u8]) {
        if self.rows == 1 || is_less(edm, bytes, &self.min_text) {
            replace(&mut self.min_text, bytes);
            self.min = head(edm, bytes);
        }
        if self.rows == 1 || is_less(edm, &self.max_text, bytes) {
            replace(&mut self.max_text, bytes);
            self.max = head(edm, bytes);
        }
    }

    /// Adds an unreadable value, which may be any value.
    #[cold]
    fn add_anything(&mut self, edm: EdmType) {
        (self.min, self.max) = (0, u64::MAX);
        self.nan |= edm == EdmType::Double;
        if is_cut_text(edm) {
            replace(&mut self.min_text, &[]);
            replace(&mut self.max_text, &[u8::MAX; HEAD_BYTES]);
        }
    }

    fn merge(&mut self, edm: EdmType, other: &Bounds) {
        let first = self.rows == 0;
        self.rows += other.rows;
        self.nan |= other.nan;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        if first || is_less(edm, &other.min_text, &self.min_text) {
            replace(&mut self.min_text, &other.min_text);
        }
        if first || is_less(edm, &self.max_text, &other.max_text) {
            replace(&mut self.max_text, &other.max_text);
        }
    }

    fn presence(&self) -> u8 {
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        bit(self.rows > 0, presence::SOME)
            | bit(self.all, presence::ALL)
            | bit(self.nan, presence::NAN)
    }
}

/// Builds the column to encode. Texts are stored as a common prefix and, per bound, a head.
fn zone_column(name: &str, edm: EdmType, blocks: &[Bounds]) -> ZoneColumn {
    let prefix = if is_cut_text(edm) { shared_prefix(blocks) } else { &[] };
    let values = blocks.iter().map(|bounds| {
        let presence = bounds.presence();
        if bounds.rows == 0 {
            return ZoneValues::NONE;
        }
        if !is_cut_text(edm) {
            return ZoneValues { presence, min: bounds.min, max: bounds.max };
        }
        let head = |text: &[u8]| head(edm, text.get(prefix.len()..).unwrap_or_default());
        ZoneValues { presence, min: head(&bounds.min_text), max: head(&bounds.max_text) }
    });
    ZoneColumn { name: name.into(), edm, values: values.collect(), prefix: prefix.into() }
}

/// Returns the common prefix of all texts.
fn shared_prefix(blocks: &[Bounds]) -> &[u8] {
    let mut with = blocks.iter().filter(|bounds| bounds.rows > 0);
    let Some(Bounds { min_text: first, max_text, .. }) = with.next() else { return &[] };
    let mut len = shared_len(first, max_text).min(PREFIX_BYTES_MAX);
    for bounds in with {
        len = len.min(shared_len(first, &bounds.min_text));
        len = len.min(shared_len(first, &bounds.max_text));
    }
    first.get(..len).unwrap_or_default()
}

/// Compares texts by UTF-16 units, and byte strings by bytes.
#[inline]
fn is_less(edm: EdmType, a: &[u8], b: &[u8]) -> bool {
    if edm == EdmType::Binary {
        return a < b;
    }
    // Most values differ early or not at all. The rank of the first byte that differs decides.
    let at = shared_len(a, b);
    match (a.get(at), b.get(at)) {
        (Some(a), Some(b)) => utf16_rank(*a) < utf16_rank(*b),
        (a, b) => a.is_none() && b.is_some(),
    }
}

fn replace(text: &mut Vec<u8>, by: &[u8]) {
    text.clear();
    text.extend_from_slice(by);
}

#[cfg(test)]
mod tests;
