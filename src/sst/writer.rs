//! Writes a table file (SST) from front to back, in bounded memory.
//!
//! Invariants
//! * until it is complete and synced, the file has a temporary name; an abandoned file is removed;
//! * an entry out of order is an error and is never written;
//! * memory: a block, a write buffer, 12 bytes per user key, about 10 bytes per block, separators,
//!   and zones (21 bytes per block, and 17 per block and property for up to 32 properties).
//!
//! `lsm` decides which entries are in which file.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::SstOptions;
use super::page_alignment::Pages;
use super::shapes::ShapeTable;
use super::zones::ZoneBuilder;
use crate::codec::{Checksum, hash, varint_len};
use crate::error::{Doing, Error, ErrorKind, Result};
use crate::format::Kind;
use crate::format::block::{BlockKind, BlockPlace, HEADER_BYTES, Packing, Sealer};
use crate::format::file_meta::{FileMeta, Section};
use crate::format::hash_index::{LocationSplit, PAGE_BYTES, choose_form, encode_pages};
use crate::format::key::DisplayEntry;
use crate::format::names::{FileId, FileName, FileNumber};
use crate::format::row::encode_row;
use crate::format::row_block::{KEY_BYTES_MAX, RowBlockBuilder};
use crate::format::sparse_index::{FANOUT, Handles, SparseBuilder, separator};
use crate::format::sst::{encode_footer, encode_header, section};
use crate::format::stats::SstStats;
use crate::format::zones::{ZONE_BLOCKS, ZoneSummary};
use crate::fs::{FileWrite, Fs};
use crate::model::{RowRef, Seq};
use crate::options::Codec;

/// Writes one table file.
///
/// 1. Entries fill a block. A full block gets its checksum and is appended; its separator and
///    offset are kept in memory. `page_alignment` determines where the block ends.
/// 2. The file is synced about every 8 MiB. So a sync of the log, for a commit, never waits for
///    much unsynced data of this file.
/// 3. After the rows follow the hash index, the shapes, the sparse index, the handles, the
///    statistics, the zones and the footer.
/// 4. The file is synced and renamed to its final name. The caller syncs the directory.
pub(crate) struct SstWriter {
    output: Output,
    number: FileNumber,
    id: FileId,
    options: SstOptions,
    sealer: Sealer,
    pages: Pages,
    builder: RowBlockBuilder,
    /// The maximum length of the current block's contents, in bytes.
    room: usize,
    /// A buffer for the contents of a block that is being finished. Empty between calls.
    raw: Vec<u8>,
    shapes: ShapeTable,
    keys: Keys,
    index: Index,
    zones: ZoneBuilder,
    zone_pages: ZonePages,
    stats: SstStats,
    last_key: Vec<u8>,
    last_seq: Seq,
}

/// The data needed to build the hash index.
#[derive(Default)]
struct Keys {
    hashes: Vec<u64>,
    /// For each key, the position of its newest entry among all entries of the file. Together with
    /// `block_entries` it determines the key's location.
    entries: Vec<u32>,
    /// The number of entries of each finished block.
    block_entries: Vec<u16>,
}

/// The data needed to build the sparse index and the handles.
#[derive(Default)]
struct Index {
    blocks: Vec<u64>,
    page: SparseBuilder,
    root: SparseBuilder,
    /// The finished index pages in one buffer, and the offset of each page in it.
    pages: Vec<u8>,
    page_starts: Vec<u64>,
}

/// The finished zone pages in one buffer, and the offset of each page in it.
#[derive(Default)]
struct ZonePages {
    bytes: Vec<u8>,
    starts: Vec<u64>,
}

/// The file under its temporary name.
struct Output {
    fs: Arc<dyn Fs>,
    temporary: PathBuf,
    path: PathBuf,
    file: Option<Box<dyn FileWrite>>,
    buffer: Vec<u8>,
    /// The number of bytes written so far, and how many of them are synced.
    written: u64,
    synced: u64,
    /// The checksum of the current section, which begins at `section_start`. Of the bytes in the
    /// buffer it covers the first `summed`.
    checksum: Checksum,
    section_start: u64,
    summed: usize,
    sections: Vec<Section>,
    /// The error that ended writing. A failed write or sync is not retried.
    failed: Option<Error>,
}

/// The size of a write to the file, in bytes.
const BUFFER_BYTES: usize = 256 << 10;
/// The maximum number of unsynced bytes. At 100 MB/s they are written back in less than 0.1 s.
const SYNC_BYTES: u64 = 8 << 20;

impl SstWriter {
    /// Creates the file in `dir` under its temporary name.
    ///
    /// # Errors
    /// `Unsupported` if this build lacks the codec.
    pub(crate) fn create(
        fs: Arc<dyn Fs>,
        dir: &Path,
        number: FileNumber,
        id: FileId,
        options: SstOptions,
    ) -> Result<Self> {
        let packing = match options.codec {
            Codec::None => Packing::Plain,
            Codec::Zstd => Packing::Columns,
        };
        let pages = Pages::new(options.block_bytes, packing);
        let sealer = Sealer::new(packing)
            .map_err(|what| Error::new(ErrorKind::Unsupported, what).during("write an sst"))?;
        let mut output = Output::create(fs, dir, number)?;
        encode_header(id, &mut output.buffer);
        output.begin_section();
        Ok(Self {
            output,
            number,
            id,
            options,
            sealer,
            pages,
            builder: RowBlockBuilder::default(),
            room: 0,
            raw: Vec::new(),
            shapes: ShapeTable::default(),
            keys: Keys::default(),
            index: Index::default(),
            zones: ZoneBuilder::default(),
            zone_pages: ZonePages::default(),
            stats: SstStats::default(),
            last_key: Vec::new(),
            last_seq: Seq::MAX,
        })
    }

    /// Adds an entry; `row` is `None` for a tombstone. Keys must ascend, and the Seqs of a key must
    /// descend.
    pub(crate) fn add(
        &mut self,
        key: &[u8],
        seq: Seq,
        kind: Kind,
        row: Option<&RowRef<'_>>,
    ) -> Result<()> {
        let newest = self.check_order(key, seq, kind, row.is_some())?;
        let number = row.and_then(|row| self.shapes.number(row.shape.arc()));
        // If the shape table is full, the row will contain its shape. This is rare, so the length
        // of the shape is ignored here.
        let head_len = number.map_or(0, |number| varint_len(u64::from(number) + 1));
        let row_len = row.map_or(0, |row| head_len + row.body.len());
        if self.builder.is_full(key, (seq, kind), row_len, self.room) {
            self.finish_block()?;
        }
        if self.builder.is_empty() {
            self.index.add_block(self.output.position(), separator(&self.last_key, key));
            self.room = self.pages.room(self.output.position());
            if self.zones.begin_block(newest) {
                self.finish_zone_page();
            }
        }
        self.zones.add(newest, seq, kind, row);
        let mut row_len = 0;
        self.builder.add(key, seq, kind, |out| {
            let start = out.len();
            if let Some(row) = row {
                encode_row(out, number, row);
            }
            row_len = out.len() - start;
        });
        if newest {
            self.keys.hashes.push(hash(self.options.seed, key));
            // `check_order` bounds the number of entries, so the conversion cannot fail.
            self.keys.entries.push(u32::try_from(self.stats.entries).unwrap_or(u32::MAX));
        }
        self.stats.count(key, seq, kind, row_len);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.last_seq = seq;
        Ok(())
    }

    /// Returns the last user key added; empty before the first.
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Returns the current length of the file in bytes, without its indexes.
    pub(crate) fn bytes(&self) -> u64 {
        self.output.position()
    }

    /// Returns the memory used in bytes, including the additional memory that `finish` will need.
    pub(crate) fn memory_bytes(&self) -> usize {
        // Per key: a hash, an entry number, and the entry of the hash index in its largest layout.
        // Per block: an offset and a count.
        let keys = self.keys.hashes.len() * (8 + 4 + 9) + self.keys.block_entries.len() * 10;
        let index = self.index.page.bytes() + self.index.root.bytes() + self.index.pages.len();
        let zones = self.zones.memory_bytes() + self.zone_pages.bytes.len();
        keys + index + zones + BUFFER_BYTES + 3 * self.options.block_bytes
    }

    /// Writes the indexes, syncs the file and renames it to its final name. At least one entry must
    /// have been added.
    pub(crate) fn finish(mut self) -> Result<FileMeta> {
        if self.stats.entries == 0 {
            return Err(Error::new(ErrorKind::InvalidInput, "an sst needs an entry"));
        }
        self.finish_block()?;
        self.output.end_section(section::ROWS, Section::MUST_UNDERSTAND)?;
        let blocks_end = self.output.position();
        debug_assert_eq!(self.keys.hashes.len(), self.keys.entries.len(), "one number a hash");
        debug_assert!(self.keys.hashes.len() as u64 <= self.stats.entries, "a key has an entry");
        let split = self.write_hash_index()?;
        let mut raw = std::mem::take(&mut self.raw);
        self.shapes.encode(&mut raw);
        self.write_single(section::SHAPES, BlockKind::Shapes, &mut raw)?;
        let pages = self.write_sparse_index()?;
        let mut blocks = std::mem::take(&mut self.index.blocks);
        blocks.push(blocks_end);
        let blocks = blocks.into();
        Handles { split, fanout: FANOUT, blocks, pages }.encode(&mut raw);
        self.write_single(section::HANDLES, BlockKind::Handles, &mut raw)?;
        self.stats.key_max = self.last_key.as_slice().into();
        self.stats.keys = self.keys.hashes.len() as u64;
        debug_assert!(self.stats.key_min <= self.stats.key_max, "entries were added in order");
        debug_assert!(self.stats.tombstones <= self.stats.entries, "a tombstone is an entry");
        self.stats.encode(&mut raw);
        self.write_single(section::STATISTICS, BlockKind::Stats, &mut raw)?;
        self.write_zones(&mut raw)?;
        let bytes = self.output.finish(self.id)?;
        Ok(self.meta(bytes))
    }

    fn meta(self, bytes: u64) -> FileMeta {
        let stats = self.stats;
        debug_assert!(stats.seq_min <= stats.seq_max, "the bounds of Seqs hold an entry");
        FileMeta {
            number: self.number,
            id: self.id,
            bytes,
            seq_min: stats.seq_min,
            seq_max: stats.seq_max,
            visible_from: Seq::ZERO,
            tombstones_applied: Seq::ZERO,
            entries: stats.entries,
            tombstones: stats.tombstones,
            raw_bytes: stats.raw_bytes,
            key_min: stats.key_min,
            key_max: stats.key_max,
            sections: self.output.sections.clone(),
            unknown: Box::default(),
        }
    }

    /// Checks that the entry is in order. Returns true if it is the first, and therefore the
    /// newest, version of its key.
    fn check_order(&self, key: &[u8], seq: Seq, kind: Kind, has_row: bool) -> Result<bool> {
        if let Some(error) = &self.output.failed {
            return Err(error.clone());
        }
        let order = match self.stats.entries {
            0 => Ordering::Greater,
            _ => key.cmp(&self.last_key),
        };
        let newest = order.is_gt();
        let ordered = newest || order.is_eq() && seq < self.last_seq;
        let wrong = |what: &str| {
            let entry = DisplayEntry { key, seq, kind };
            Err(Error::new(ErrorKind::InvalidInput, format!("{entry}: {what}")))
        };
        if !ordered {
            return wrong("out of order, the sst is not written");
        }
        if has_row != (kind == Kind::Put) {
            return wrong("a put needs a row, and a tombstone has none");
        }
        let full = self.stats.entries >= u64::from(u32::MAX);
        if full || key.len() > KEY_BYTES_MAX || seq > Seq::MAX {
            return wrong("a key is too long, a seq too great, or a file too full");
        }
        Ok(newest)
    }

    fn finish_block(&mut self) -> Result<()> {
        debug_assert!(!self.builder.is_empty(), "a finished block has an entry");
        debug_assert!(self.raw.is_empty(), "the buffer is empty between calls");
        self.keys.block_entries.push(u16::try_from(self.builder.len()).unwrap_or(u16::MAX));
        self.builder.finish(&mut self.raw);
        self.zones.finish_block();
        let number = self.index.blocks.len() - 1;
        let place = BlockPlace::new(BlockKind::Rows, self.id, number);
        let end = self.output.position() + (HEADER_BYTES + self.raw.len()) as u64;
        match self.pages.padding(end) {
            0 => {
                let places = self.shapes.places();
                self.sealer.seal_rows(place, &self.raw, places, &mut self.output.buffer);
            }
            padding => self.sealer.seal_padded(place, &self.raw, padding, &mut self.output.buffer),
        }
        debug_assert_eq!(
            self.keys.block_entries.len(),
            self.index.blocks.len(),
            "one count a block"
        );
        self.raw.clear();
        if self.index.page.len() == FANOUT {
            self.finish_page();
        }
        self.output.flush_if_full()
    }

    /// Finishes a page of the sparse index. Pages stay in memory until all rows are written.
    fn finish_page(&mut self) {
        debug_assert!(
            (1..=FANOUT).contains(&self.index.page.len()),
            "a page has up to FANOUT blocks"
        );
        self.index.root.add(self.index.page.first());
        self.index.page.finish(&mut self.raw);
        self.seal_page();
    }

    /// Appends the index page in `raw`, with header and checksum, to the finished pages.
    fn seal_page(&mut self) {
        let number = self.index.page_starts.len();
        self.index.page_starts.push(self.index.pages.len() as u64);
        let place = BlockPlace::new(BlockKind::Sparse, self.id, number);
        self.sealer.seal_plain(place, &self.raw, &mut self.index.pages);
        self.raw.clear();
    }

    fn write_sparse_index(&mut self) -> Result<Box<[u64]>> {
        if self.index.page.len() > 0 {
            self.finish_page();
        }
        let pages = self.index.page_starts.len();
        debug_assert_eq!(self.index.root.len(), pages, "the root has a separator for each page");
        self.index.root.finish(&mut self.raw);
        self.seal_page();
        let start = self.output.position();
        let mut starts = std::mem::take(&mut self.index.page_starts);
        starts.push(self.index.pages.len() as u64);
        starts.iter_mut().for_each(|offset| *offset += start);
        self.output.begin_section();
        self.output.buffer.append(&mut self.index.pages);
        self.output.end_section(section::SPARSE_INDEX, Section::MUST_UNDERSTAND)?;
        Ok(starts.into())
    }

    /// Finishes a page of zones. Pages stay in memory until all rows are written.
    fn finish_zone_page(&mut self) {
        let number = self.zone_pages.starts.len();
        self.zone_pages.starts.push(self.zone_pages.bytes.len() as u64);
        let raw = self.zones.take_page();
        let place = BlockPlace::new(BlockKind::Zones, self.id, number);
        self.sealer.seal_plain(place, &raw, &mut self.zone_pages.bytes);
    }

    fn write_zones(&mut self, raw: &mut Vec<u8>) -> Result<()> {
        self.finish_zone_page();
        let start = self.output.position();
        let ZonePages { bytes, mut starts } = std::mem::take(&mut self.zone_pages);
        let pages = self.keys.block_entries.len().div_ceil(ZONE_BLOCKS);
        debug_assert_eq!(starts.len(), pages, "a page of zones covers ZONE_BLOCKS blocks");
        starts.push(bytes.len() as u64);
        starts.iter_mut().for_each(|offset| *offset += start);
        self.output.begin_section();
        for pair in starts.windows(2) {
            let at = |offset: u64| usize::try_from(offset - start).unwrap_or(usize::MAX);
            let page = bytes.get(at(pair[0])..at(pair[1])).unwrap_or_default();
            self.output.buffer.extend_from_slice(page);
            self.output.flush_if_full()?;
        }
        self.output.end_section(section::ZONES, 0)?;
        let mut set = Vec::new();
        self.zones.summary(&mut set);
        ZoneSummary::encode(&starts, &set, raw);
        self.write_single(section::ZONE_SUMMARY, BlockKind::ZoneSummary, raw)
    }

    fn write_hash_index(&mut self) -> Result<LocationSplit> {
        let slots = self.keys.block_entries.iter().copied().max().unwrap_or(0);
        let blocks = self.keys.block_entries.len();
        let Some(split) = LocationSplit::new(blocks, usize::from(slots)) else {
            let what = "an sst has more blocks than its hash index can tell apart";
            return Err(Error::new(ErrorKind::InvalidInput, what));
        };
        let is_compressed = self.options.codec == Codec::Zstd;
        let (form, kind) = choose_form(is_compressed, split.location_bits(blocks));
        let keys = self.keys.hashes.len();
        let pages = encode_pages(self.id, form, keys, self.keys.locations(split));
        debug_assert!(pages.len().is_multiple_of(PAGE_BYTES), "hash pages have one size");
        self.output.pad(PAGE_BYTES as u64)?;
        debug_assert!(self.output.position().is_multiple_of(PAGE_BYTES as u64), "hash pages align");
        self.output.begin_section();
        // Writes page by page, so that even a large index is synced in steps.
        for page in pages.chunks(PAGE_BYTES) {
            self.output.buffer.extend_from_slice(page);
            self.output.flush_if_full()?;
        }
        self.output.end_section(kind, Section::MUST_UNDERSTAND)?;
        Ok(split)
    }

    /// Writes a section that consists of one block with the contents `raw`, and clears `raw`.
    fn write_single(&mut self, kind: u16, block: BlockKind, raw: &mut Vec<u8>) -> Result<()> {
        let ignorable = matches!(kind, section::STATISTICS | section::ZONE_SUMMARY);
        let flags = if ignorable { 0 } else { Section::MUST_UNDERSTAND };
        self.output.begin_section();
        self.sealer.seal_plain(BlockPlace::new(block, self.id, 0), raw, &mut self.output.buffer);
        raw.clear();
        self.output.end_section(kind, flags)
    }
}

impl Keys {
    /// Returns the hash and the location of each key.
    fn locations(&self, split: LocationSplit) -> impl Iterator<Item = (u64, u32)> {
        let (mut block, mut first) = (0, 0);
        self.hashes.iter().zip(&self.entries).map(move |(hash, entry)| {
            // Both entries and blocks are in file order, so the block number only increases.
            while let Some(len) = self.block_entries.get(block)
                && entry - first >= u32::from(*len)
            {
                first += u32::from(*len);
                block += 1;
            }
            let slot = entry - first;
            let location = split.pack(u32::try_from(block).unwrap_or(u32::MAX), slot);
            debug_assert_eq!(
                split.unpack(location),
                (block, slot as usize),
                "locations fit 32 bits"
            );
            (*hash, location)
        })
    }
}

impl Index {
    fn add_block(&mut self, offset: u64, separator: &[u8]) {
        debug_assert!(self.blocks.last().is_none_or(|last| *last < offset), "block offsets ascend");
        let first = self.blocks.is_empty();
        self.blocks.push(offset);
        self.page.add(if first { &[] } else { separator });
    }
}

impl Output {
    fn create(fs: Arc<dyn Fs>, dir: &Path, number: FileNumber) -> Result<Self> {
        let name = FileName::Sst(number).to_string();
        let temporary = dir.join(format!("{name}.tmp"));
        let file = fs.create(&temporary);
        let file = file.doing("create", &temporary)?;
        Ok(Self {
            fs,
            path: dir.join(name),
            temporary,
            file: Some(file),
            buffer: Vec::with_capacity(BUFFER_BYTES + (BUFFER_BYTES >> 3)),
            written: 0,
            synced: 0,
            checksum: Checksum::new(),
            section_start: 0,
            summed: 0,
            sections: Vec::new(),
            failed: None,
        })
    }

    /// Returns the offset in the file at which the next byte will be written.
    fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn begin_section(&mut self) {
        let end = self.sections.last().map_or(0, |last| last.offset + last.len);
        debug_assert!(end <= self.position(), "sections do not overlap");
        self.section_start = self.position();
        self.summed = self.buffer.len();
        self.checksum = Checksum::new();
    }

    fn end_section(&mut self, kind: u16, flags: u8) -> Result<()> {
        debug_assert!(self.sections.iter().all(|section| section.kind != kind), "one of a kind");
        self.sum();
        let checksum = std::mem::replace(&mut self.checksum, Checksum::new()).finish();
        let (offset, len) = (self.section_start, self.position() - self.section_start);
        self.sections.push(Section { kind, flags, offset, len, checksum });
        self.flush_if_full()
    }

    /// Appends zeros up to a multiple of `alignment`.
    fn pad(&mut self, alignment: u64) -> Result<()> {
        let len = self.position().next_multiple_of(alignment) - self.position();
        self.buffer.resize(self.buffer.len() + usize::try_from(len).unwrap_or(0), 0);
        self.flush_if_full()
    }

    fn sum(&mut self) {
        debug_assert!(self.summed <= self.buffer.len(), "the checksum covers bytes of the buffer");
        let part = self.buffer.get(self.summed..).unwrap_or_default();
        self.checksum = std::mem::replace(&mut self.checksum, Checksum::new()).bytes(part);
        self.summed = self.buffer.len();
    }

    fn flush_if_full(&mut self) -> Result<()> {
        if self.buffer.len() < BUFFER_BYTES {
            return Ok(());
        }
        self.flush()?;
        if self.written - self.synced >= SYNC_BYTES {
            self.sync()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.sum();
        let written = self.file()?.write_at(self.written, &self.buffer);
        self.check("write", written)?;
        let len = self.buffer.len() as u64;
        self.file()?.start_write_back(self.written, len);
        self.written += len;
        self.buffer.clear();
        self.summed = 0;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        let synced = self.file()?.sync();
        debug_assert!(self.synced <= self.written, "only written bytes are synced");
        self.check("sync", synced)?;
        self.synced = self.written;
        Ok(())
    }

    /// Writes the footer, syncs the file and renames it. Returns the file's length.
    fn finish(&mut self, id: FileId) -> Result<u64> {
        let before = self.position();
        let bytes = encode_footer(id, &self.sections, before, &mut self.buffer);
        self.flush()?;
        self.sync()?;
        self.file = None;
        debug_assert_eq!((bytes, bytes), (self.written, self.synced), "a named file is durable");
        let renamed = self.fs.rename(&self.temporary, &self.path);
        self.check("rename", renamed)?;
        // The file no longer has its temporary name, so `drop` must not remove it.
        self.temporary.clear();
        Ok(bytes)
    }

    fn file(&self) -> Result<&dyn FileWrite> {
        match (&self.failed, &self.file) {
            (Some(error), _) => Err(error.clone()),
            (None, Some(file)) => Ok(&**file),
            (None, None) => Err(Error::new(ErrorKind::Io, "the sst is closed")),
        }
    }

    fn check(&mut self, doing: &str, result: std::io::Result<()>) -> Result<()> {
        result.map_err(|error| {
            let error = Error::io(format!("{doing} {}", self.temporary.display()), error);
            self.failed = Some(error.clone());
            error
        })
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.file = None;
        if !self.temporary.as_os_str().is_empty() {
            // If the removal fails, the file is an orphan, which the next opening of the database
            // removes.
            let _ = self.fs.remove(&self.temporary);
        }
    }
}
