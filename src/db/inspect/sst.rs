//! Inspects an SST: header and footer, sections, and blocks of rows. On request it shows only one
//! block, or one row in hex.
//!
//! If the directory of sections or the handles of blocks are damaged, blocks are found one after
//! the other: the first follows the file's header, and each header states the length of its block.

use std::ops::Range;
use std::sync::Arc;

use super::bytes::Bytes;
use super::parts::{
    InspectOptions, Sink, Stop, damage, hex_id, hex_part, number, part, place_in, show_damage, text,
};
use crate::codec::{Checksum, DecodeError, check_sum};
use crate::error::Result;
use crate::format::Kind;
use crate::format::block::{
    BlockKind, BlockPlace, HEADER_BYTES as BLOCK_HEADER_BYTES, Packing, RAW_BYTES_MAX, StoredBlock,
};
use crate::format::file_meta::Section;
use crate::format::key::{DisplayEntry, DisplayKey};
use crate::format::names::FileId;
use crate::format::row::decode_row;
use crate::format::row_block::RowBlock;
use crate::format::sparse_index::Handles;
use crate::format::sst::{
    DIRECTORY_BYTES_MAX, HEADER_BYTES, TAIL_BYTES, Tail, check_header, section,
};
use crate::format::stats::SstStats;
use crate::model::{RowRef, Shape, Shapes, ValueRef};
use crate::sst::decode_table;

type Found<T> = std::result::Result<T, Stop>;

/// Number of bytes read at a time for the checksum of a section.
const STEP: u64 = 1 << 20;
/// Number of bytes read at a time to find the end of padding.
const STEP_ZEROS: u64 = 4 << 10;
/// Memory limit, in bytes, for the shapes of a file (the names and types of a row's properties); a
/// file has few shapes.
const SHAPES_BYTES: usize = 1 << 20;
/// Maximum number of characters of a value that are shown.
const VALUE_CHARS: usize = 60;

/// A file being inspected.
struct Looking<'f> {
    file: &'f Bytes,
    id: FileId,
    sections: Vec<Section>,
    shapes: Box<[Arc<Shape>]>,
    options: InspectOptions,
}

pub(super) fn parts(file: &Bytes, options: InspectOptions, sink: &mut Sink<'_>) -> Result<()> {
    let header = file.read(0..HEADER_BYTES as u64)?;
    let tail_at = file.len.saturating_sub(TAIL_BYTES as u64);
    let tail = Tail::decode(&file.read(tail_at..file.len)?);
    let own = header.get(16..24).and_then(|id| id.first_chunk::<8>());
    let own = FileId(own.map_or(0, |id| u64::from_le_bytes(*id)));
    let is_outline = options.block.is_none();
    let checked = check_header(own, &header);
    // Header and footer both contain the file's id. Read the id from one that is undamaged, because
    // with a wrong id all blocks would appear damaged.
    let id = match (&checked, &tail) {
        (Err(_), Ok(tail)) => tail.file,
        _ => own,
    };
    match checked {
        Ok(()) if is_outline => {
            sink(part("header", 0, [("id", hex_id(id.0)), ("file_bytes", number(file.len))]))?;
        }
        Ok(()) => {}
        Err(error) => sink(damage(0, error))?,
    }
    let mut looking = Looking { file, id, sections: Vec::new(), shapes: Box::default(), options };
    show_damage(looking.directory(tail, tail_at, sink), sink)?;
    if is_outline {
        show_damage(looking.sums(sink), sink)?;
    }
    show_damage(looking.read_shapes(sink), sink)?;
    let blocks = looking.blocks(sink)?;
    if let Some(block) = options.block {
        return show_damage(looking.one_block(block, &blocks, sink), sink);
    }
    for (index, range) in blocks.iter().enumerate() {
        show_damage(looking.block(index, range, sink), sink)?;
    }
    show_damage(looking.statistics(sink), sink)
}

impl Looking<'_> {
    /// Reads the list of sections in the directory, which precedes the tail.
    fn directory(
        &mut self,
        tail: std::result::Result<Tail, DecodeError>,
        tail_at: u64,
        sink: &mut Sink<'_>,
    ) -> Found<()> {
        let tail = tail.map_err(|error| damage(tail_at, error))?;
        let len = tail.directory_len.min(DIRECTORY_BYTES_MAX) as u64;
        let directory_at = tail_at.saturating_sub(len);
        let sections = tail.sections(self.id, &self.file.read(directory_at..tail_at)?);
        self.sections = sections.map_err(|error| damage(directory_at, error))?;
        if tail.file_bytes != self.file.len {
            let problem = format!("the file had {} bytes when it was written", tail.file_bytes);
            sink(damage(tail_at, DecodeError::new("sst footer", 0, problem)))?;
        }
        Ok(())
    }

    /// Shows each section and verifies its checksum; checks that bytes between sections are zero.
    fn sums(&self, sink: &mut Sink<'_>) -> Found<()> {
        let mut end = HEADER_BYTES as u64;
        for section in &self.sections {
            let gap = self.file.read(end..section.offset)?;
            if let Some(at) = gap.iter().position(|byte| *byte != 0) {
                let problem = "bytes between the sections that are not zero";
                sink(damage(end, DecodeError::new("sst", at, problem)))?;
            }
            end = section.offset + section.len;
            let mut sum = Checksum::new();
            let mut at = section.offset;
            while at < end {
                sum = sum.bytes(&self.file.read(at..end.min(at + STEP))?);
                at += STEP;
            }
            let fields = [
                ("kind", text(name_of(section.kind))),
                ("bytes", number(section.len)),
                ("checksum", text(format!("{:08x}", section.checksum))),
            ];
            sink(part("section", section.offset, fields))?;
            if let Err(error) = check_sum("section", 0, sum.finish(), section.checksum) {
                sink(damage(section.offset, error))?;
            }
        }
        Ok(())
    }

    fn section(&self, kind: u16) -> Option<Range<u64>> {
        let section = self.sections.iter().find(|section| section.kind == kind)?;
        Some(section.offset..section.offset + section.len)
    }

    /// Returns the contents of a section that is one block.
    fn single(&self, kind: BlockKind, range: &Range<u64>) -> Found<Vec<u8>> {
        self.unpack(BlockPlace::new(kind, self.id, 0), range)
    }

    /// Returns the uncompressed contents of a block, or a description of its damage.
    fn unpack(&self, place: BlockPlace, range: &Range<u64>) -> Found<Vec<u8>> {
        let bytes = self.file.read(range.clone())?;
        let contents = StoredBlock::open(place, &bytes).and_then(|block| block.decompress());
        Ok(contents.map_err(|error| damage(range.start, error))?)
    }

    fn read_shapes(&mut self, sink: &mut Sink<'_>) -> Found<()> {
        let Some(range) = self.section(section::SHAPES) else { return Ok(()) };
        let contents_at = range.start + BLOCK_HEADER_BYTES as u64;
        let bytes = self.single(BlockKind::Shapes, &range)?;
        let shapes = decode_table(&bytes, &Shapes::new(SHAPES_BYTES));
        self.shapes = shapes.map_err(|error| damage(contents_at, error))?;
        if self.options.block.is_some() {
            return Ok(());
        }
        for (index, shape) in self.shapes.iter().enumerate() {
            let fields = [("number", number(index)), ("properties", text(names_of(shape)))];
            sink(part("shape", contents_at, fields))?;
        }
        Ok(())
    }

    /// Returns the byte ranges of the row blocks. They are read from the handles or, if these are
    /// invalid, found by a sequential search.
    fn blocks(&self, sink: &mut Sink<'_>) -> Result<Vec<Range<u64>>> {
        let ranges = (
            self.section(section::HANDLES),
            self.section(section::ROWS),
            self.section(section::SPARSE_INDEX),
        );
        if let (Some(handles), Some(rows), Some(sparse)) = ranges {
            let at = handles.start + BLOCK_HEADER_BYTES as u64;
            let decoded = self.single(BlockKind::Handles, &handles).and_then(|bytes| {
                Handles::decode(&bytes, rows, sparse).map_err(|error| damage(at, error).into())
            });
            match decoded {
                Ok(handles) => {
                    return Ok((0..handles.len()).filter_map(|i| handles.block(i)).collect());
                }
                Err(stop) => show_damage(Err(stop), sink)?,
            }
        }
        let found = self.walk()?;
        sink(part("walk", HEADER_BYTES as u64, [("blocks", number(found.len()))]))?;
        Ok(found)
    }

    /// Finds the row blocks by a sequential search, which stops at the first invalid block header.
    fn walk(&self) -> Result<Vec<Range<u64>>> {
        let end = self.section(section::ROWS).map_or(self.file.len, |rows| rows.end);
        let (mut at, mut blocks) = (HEADER_BYTES as u64, Vec::new());
        while at + (BLOCK_HEADER_BYTES as u64) < end {
            let header = self.file.read(at..at + BLOCK_HEADER_BYTES as u64)?;
            let stored = header.get(16..20).and_then(|len| len.first_chunk::<4>());
            let stored = stored.map_or(0, |len| u64::from(u32::from_le_bytes(*len)));
            let is_rows = header.first() == Some(&(BlockKind::Rows as u8));
            if !is_rows || stored == 0 || stored > RAW_BYTES_MAX as u64 {
                break;
            }
            let mut next = at + BLOCK_HEADER_BYTES as u64 + stored;
            // Skips padding, which is zeros; no block begins with a zero.
            loop {
                let ahead = self.file.read(next..(next + STEP_ZEROS).min(end))?;
                let zeros = ahead.iter().take_while(|byte| **byte == 0).count();
                next += zeros as u64;
                if zeros < ahead.len() || ahead.is_empty() {
                    break;
                }
            }
            blocks.push(at..next.min(end));
            at = next;
        }
        Ok(blocks)
    }

    /// Shows one line about a block.
    fn block(&self, index: usize, range: &Range<u64>, sink: &mut Sink<'_>) -> Found<()> {
        let contents = self.unpack(BlockPlace::new(BlockKind::Rows, self.id, index), range)?;
        let parsed = RowBlock::parse(&contents).and_then(|block| block.check().map(|()| block));
        let block =
            parsed.map_err(|error| damage(range.start + BLOCK_HEADER_BYTES as u64, error))?;
        let key = |slot: usize| {
            let entry = block.entry(slot).ok();
            let suffix = entry.map_or(&[][..], |entry| entry.suffix);
            text(DisplayKey(&[block.prefix(), suffix].concat()))
        };
        let fields = [
            ("number", number(index)),
            ("bytes", number(range.end - range.start)),
            ("raw", number(contents.len())),
            ("rows", number(block.len())),
            ("first", key(0)),
            ("last", key(block.len().saturating_sub(1))),
        ];
        Ok(sink(part("block", range.start, fields))?)
    }

    /// Shows all rows of a block, or one of them in hex.
    fn one_block(&self, index: u64, blocks: &[Range<u64>], sink: &mut Sink<'_>) -> Found<()> {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let Some(range) = blocks.get(index) else {
            let fields = [("number", number(index)), ("of", number(blocks.len()))];
            return Ok(sink(part("missing", self.file.len, fields))?);
        };
        show_damage(self.block(index, range, sink), sink)?;
        let bytes = self.file.read(range.clone())?;
        let opened = StoredBlock::open(BlockPlace::new(BlockKind::Rows, self.id, index), &bytes);
        let is_plain = opened.as_ref().is_ok_and(|block| block.packing == Packing::Plain);
        let Ok(contents) = opened.and_then(|block| block.decompress()) else {
            let head = bytes.get(..BLOCK_HEADER_BYTES).unwrap_or(&bytes);
            return Ok(sink(hex_part(range.start, head, "its header"))?);
        };
        let Ok(block) = RowBlock::parse(&contents) else { return Ok(()) };
        // For a compressed block, offsets are relative to its uncompressed contents.
        let base = if is_plain { range.start + BLOCK_HEADER_BYTES as u64 } else { 0 };
        for slot in 0..block.len() {
            if self.options.row.is_none_or(|row| row == slot as u64) {
                show_damage(self.row(&block, &contents, slot, base, sink), sink)?;
            }
        }
        Ok(())
    }

    fn row(
        &self,
        block: &RowBlock<'_>,
        contents: &[u8],
        slot: usize,
        base: u64,
        sink: &mut Sink<'_>,
    ) -> Found<()> {
        let found = block.place(slot).and_then(|at| Ok((at, block.entry(slot)?)));
        let (place, entry) = found.map_err(|error| damage(base, error))?;
        let at = |offset: usize| base + offset as u64;
        let key = [block.prefix(), entry.suffix].concat();
        let shown = DisplayEntry { key: &key, seq: entry.seq, kind: entry.kind };
        let fields = [
            ("number", number(slot)),
            ("entry", text(shown)),
            ("bytes", number(place.end - place.suffix_at)),
        ];
        sink(part("row", at(place.suffix_at), fields))?;
        if self.options.row.is_none() {
            return Ok(());
        }
        let mut bytes = |from: usize, to: usize, means: &str| {
            sink(hex_part(at(from), contents.get(from..to).unwrap_or_default(), means))
        };
        let prefix_at = place_in(contents, block.prefix()) as usize;
        let prefix_end = prefix_at + block.prefix().len();
        bytes(prefix_at, prefix_end, "what all keys of the block begin with")?;
        let head = block.start(slot).unwrap_or(place.suffix_at);
        bytes(head, place.suffix_at, &format!("length of the suffix, kind, Seq {}", entry.seq))?;
        bytes(place.suffix_at, place.row_at, "the rest of the key")?;
        if entry.kind == Kind::Delete {
            return Ok(());
        }
        let decoded = decode_row(entry.row, |shape| self.shapes.get(shape as usize));
        match decoded.and_then(|row| row.check().map(|()| row)) {
            Ok(row) => {
                let body_at = place.end - row.body.len();
                bytes(place.row_at, body_at, "the shape of the row")?;
                Ok(self.body(&row, at(body_at), sink)?)
            }
            Err(error) => {
                bytes(place.row_at, place.end, "a row that cannot be read")?;
                Err(damage(at(place.row_at), error).into())
            }
        }
    }

    /// Shows the properties of a row, each with its bytes.
    fn body(&self, row: &RowRef<'_>, at: u64, sink: &mut Sink<'_>) -> Result<()> {
        let shape = row.shape.arc();
        for index in 0..shape.len() {
            let (name, edm) = shape.property(index);
            let Some(raw) = shape.raw(row.body, index) else { continue };
            let value = shape.value(row.body, index).map(shown).unwrap_or_default();
            sink(hex_part(at + place_in(row.body, raw), raw, format!("{name} ({edm}) = {value}")))?;
        }
        Ok(())
    }

    fn statistics(&self, sink: &mut Sink<'_>) -> Found<()> {
        let Some(range) = self.section(section::STATISTICS) else { return Ok(()) };
        let contents_at = range.start + BLOCK_HEADER_BYTES as u64;
        let stats = SstStats::decode(&self.single(BlockKind::Stats, &range)?);
        let stats = stats.map_err(|error| damage(contents_at, error))?;
        let fields = [
            ("entries", number(stats.entries)),
            ("keys", number(stats.keys)),
            ("tombstones", number(stats.tombstones)),
            ("raw_bytes", number(stats.raw_bytes)),
            ("seqs", text(format!("{}..{}", stats.seq_min, stats.seq_max))),
            ("first", text(DisplayKey(&stats.key_min))),
            ("last", text(DisplayKey(&stats.key_max))),
        ];
        Ok(sink(part("facts", range.start, fields))?)
    }
}

/// Formats names and types, as in `Price Double, Stock Int32`.
pub(super) fn names_of(shape: &Shape) -> String {
    let names: Vec<_> = shape.properties().map(|(name, edm)| format!("{name} {edm}")).collect();
    names.join(", ")
}

/// Returns a value for display, truncated if it is long.
fn shown(value: ValueRef<'_>) -> String {
    let mut shown: String = match value {
        ValueRef::String(text) => format!("'{}'", text.escape_debug()),
        ValueRef::Binary(bytes) => format!("{} bytes", bytes.len()),
        ValueRef::Boolean(value) => value.to_string(),
        ValueRef::Int32(value) => value.to_string(),
        ValueRef::Int64(value) => value.to_string(),
        ValueRef::Double(value) => format!("{value:?}"),
        ValueRef::DateTime(value) => value.to_string(),
        ValueRef::Guid(value) => value.to_string(),
    };
    if let Some((end, _)) = shown.char_indices().nth(VALUE_CHARS) {
        shown.truncate(end);
        shown.push('…');
    }
    shown
}

fn name_of(kind: u16) -> String {
    let name = match kind {
        section::ROWS => "rows",
        section::SHAPES => "shapes",
        section::HASH_INDEX => "hash index",
        section::SPARSE_INDEX => "sparse index",
        section::HANDLES => "handles",
        section::ZONES => "zones",
        section::STATISTICS => "statistics",
        section::ZONE_SUMMARY => "zone summary",
        section::HASH_WORDS => "hash index of the second form",
        section::HASH_TAGS => "hash index of the third form",
        kind => return format!("{kind}, which is newer"),
    };
    name.to_owned()
}
