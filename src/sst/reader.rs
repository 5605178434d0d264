//! Opens a table file and looks up single keys in it.
//!
//! A get checks the file's bounds and then the key's line (bucket) in the hash index. If the tag of
//! an entry matches the key, the get reads from the entry's location (block and slot) on to the
//! newest visible version. Older versions follow in key order, possibly in the next block. In a
//! file whose index has only tags, a match leads to the cached location of the key, or else to a
//! search in the sparse index.
//!
//! `lsm` applies `visible_from`, range tombstones and clips, which restrict reads of a file.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::SstShared;
use super::cache::Area;
use super::location_cache::LocationCache;
use super::shapes::decode_table;
use super::source::{Contents, Source};
use crate::codec::{DecodeError, HashSeed, hash as key_hash};
use crate::error::{Doing, Error, ErrorKind, Result};
use crate::format::Kind;
use crate::format::block::{BlockKind, HEADER_BYTES as BLOCK_HEADER_BYTES};
use crate::format::file_meta::{FileMeta, Section};
use crate::format::hash_index::{HashLayout, LinePlace, PAGE_BYTES};
use crate::format::names::FileName;
use crate::format::row::decode_row;
use crate::format::row_block::{EntryPlace, RowBlock};
use crate::format::span::Span;
use crate::format::sparse_index::{Handles, SparsePage};
use crate::format::sst::{HEADER_BYTES, TAIL_BYTES, Tail, check_header, section};
use crate::format::zones::{ZONE_BLOCKS, ZoneSet, ZoneSummary};
use crate::fs::{Advice, FileRead, Fs};
use crate::model::{RowRef, Seq, Shape};
use crate::options::IoMode;
use crate::sync::OnceLock;

/// An open table file. Its contents never change.
#[derive(Debug)]
pub(crate) struct Sst {
    pub(super) meta: FileMeta,
    pub(super) source: Source,
    pub(super) handles: Handles,
    /// The root of the sparse index, kept in memory because it is small.
    root: bytes::Bytes,
    pub(super) shapes: Box<[Arc<Shape>]>,
    pub(super) hash: HashLayout,
    hash_start: u64,
    pub(super) known: LocationCache,
    pub(super) seed: HashSeed,
    /// The zones (minimum and maximum values per block), read by the first scan that needs them.
    /// `Some(None)` if the file has no zones.
    zones: OnceLock<Option<Zones>>,
}

/// The zone summary of a file, and the offsets of its zone pages.
#[derive(Debug)]
pub(super) struct Zones {
    pub(super) contents: bytes::Bytes,
    pub(super) summary: ZoneSummary,
}

/// An entry found by a get.
pub(crate) struct Hit<'a> {
    pub(crate) seq: Seq,
    pub(crate) kind: Kind,
    sst: &'a Sst,
    contents: Contents<'a>,
    row: Range<usize>,
    block: usize,
}

/// The result of a look-up of a key at a location.
enum Located<'a> {
    OtherKey,
    NoneVisible,
    Visible(Hit<'a>),
}

impl Sst {
    /// Opens the file in `dir` that `meta` describes. The file's length, id and directory of
    /// sections must match `meta`.
    ///
    /// # Errors
    /// `Corruption` if the file is missing or does not match; `Unsupported` if its format is newer
    /// than this build.
    pub(crate) fn open(
        fs: &dyn Fs,
        dir: &Path,
        meta: &FileMeta,
        shared: &SstShared,
    ) -> Result<Sst> {
        let path = dir.join(FileName::Sst(meta.number).to_string());
        if let Some(tag) = meta.not_understood() {
            let what = format!("{} needs file entry field {tag}, which is newer", path.display());
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let mut source = open_source(fs, &path, meta, shared)?;
        source.advise(Advice::Random, 0..meta.bytes);
        check_ends(&source, meta)?;
        let handles = read_handles(&source, meta)?;
        let hash = hash_section(&source, meta)?;
        let layout = HashLayout::of_section(hash.kind, hash.len, handles.split, handles.len());
        let layout = layout.map_err(|error| source.decode(hash.offset, error))?;
        let shapes_at = range(section_of(&source, meta, section::SHAPES)?);
        let shapes = source.single(BlockKind::Shapes, shapes_at.clone())?;
        let shapes = decode_table(&shapes, &shared.shapes)
            .map_err(|error| source.decode(contents_at(&shapes_at), error))?;
        source.expect(Area::Rows, handles.len());
        source.expect(Area::Sparse, handles.page_count() + 1);
        source.expect(Area::Zones, handles.len().div_ceil(ZONE_BLOCKS));
        source.expect(Area::Hash, usize::try_from(hash.len).unwrap_or(0) / PAGE_BYTES);
        let root_at = handles.page(handles.page_count()).unwrap_or_default();
        source.ask(root_at.clone());
        let root =
            source.owned_block(Area::Sparse, handles.page_count(), root_at.clone(), false)?;
        SparsePage::parse(&root).map_err(|e| source.decode(contents_at(&root_at), e))?;
        let hash_start = hash.offset;
        let (meta, seed) = (meta.clone(), shared.seed);
        let (zones, known) = (OnceLock::new(), LocationCache::new(layout, &shared.cache));
        let hash = layout;
        Ok(Sst { meta, source, handles, root, shapes, hash, hash_start, known, seed, zones })
    }

    /// Prepares a mapped file that this process has just written for readers: its blocks are not
    /// checked at their first use. If `populates`, its pages are mapped, too.
    pub(crate) fn hand_over(&mut self, populates: bool) {
        self.source.is_written = true;
        if populates {
            // Pages that were evicted since are read in few large reads.
            self.source.ask(0..self.meta.bytes);
            self.source.advise(Advice::Populate, 0..self.meta.bytes);
        }
    }

    /// Returns the first damage that any read of this file has found.
    pub(crate) fn damage(&self) -> Option<&Error> {
        self.source.damage()
    }

    /// Returns the memory used by the open file in bytes, without its cached blocks.
    pub(crate) fn memory_bytes(&self) -> usize {
        let places = self.handles.blocks.len() + self.handles.pages.len();
        let zones = self.zones.get().and_then(Option::as_ref);
        let zones = zones.map_or(0, |zones| zones.contents.len() + 8 * zones.summary.pages.len());
        let shapes = size_of_val(&*self.shapes) + self.root.len();
        size_of::<Sst>()
            + self.meta.memory_bytes()
            + self.source.memory_bytes()
            + 8 * places
            + zones
            + shapes
    }

    /// Returns the description of the file in the manifest.
    pub(crate) fn meta(&self) -> &FileMeta {
        &self.meta
    }

    /// Returns the newest version of `key` visible at `at`. `hash` is the key's hash.
    #[inline]
    pub(crate) fn get(&self, hash: u64, key: &[u8], at: Seq) -> Result<Option<Hit<'_>>> {
        self.get_if(hash, key, at, || true)
    }

    /// As [`get`](Self::get), but returns `None` if `counts` returns false. `counts` is called only
    /// if the file may hold the key, and before any block of rows is read.
    #[inline]
    pub(crate) fn get_if(
        &self,
        hash: u64,
        key: &[u8],
        at: Seq,
        counts: impl Fn() -> bool,
    ) -> Result<Option<Hit<'_>>> {
        if !self.meta.covers(key) {
            return Ok(None);
        }
        let mut number = self.hash.home(hash);
        for _ in 0..self.hash.lines() {
            let place = self.hash.place(number);
            self.known.touch(place);
            let page = self.hash_page(place.page)?;
            let line = self.hash.line(&page, place);
            let line = line.map_err(|error| self.source.decode(self.hash_start, error))?;
            let mut matches = line.matches(hash);
            if matches != 0 && !counts() {
                return Ok(None);
            }
            if matches != 0 && !self.hash.has_locations() {
                return self.get_known((hash, key, at), place, matches);
            }
            while matches != 0 {
                let location = line.location(matches.trailing_zeros());
                match self.locate(self.handles.split.unpack(location), None, key, at)? {
                    Located::OtherKey => {}
                    Located::NoneVisible => return Ok(None),
                    Located::Visible(hit) => return Ok(Some(hit)),
                }
                matches &= matches - 1;
            }
            if !line.goes_on(hash) {
                break;
            }
            number = self.hash.next(number);
        }
        Ok(None)
    }

    /// False if no key of the file is in `span`. Reads one block of rows, rarely two. Always true
    /// for a compressed file, where a block costs more than the look-ups of many keys.
    pub(crate) fn may_hold(&self, span: &Span) -> Result<bool> {
        if !self.hash.has_locations() {
            return Ok(true);
        }
        for index in self.block_of(&span.low, true)?..self.handles.len() {
            let contents = self.rows(index)?;
            let bad = |error| self.bad_block(index, error);
            let block = RowBlock::parse(&contents).map_err(bad)?;
            let from = block.lower_bound(&span.low).map_err(bad)?;
            let end = span.high.as_deref().map_or(Ok(block.len()), |high| block.lower_bound(high));
            let end = end.map_err(bad)?;
            if from < end || end < block.len() {
                return Ok(from < end);
            }
        }
        Ok(false)
    }

    /// Returns the number of blocks of rows in the file.
    pub(crate) fn block_count(&self) -> usize {
        self.handles.len()
    }

    /// Calls `read` with the zone summary, which has one entry for the whole file. Returns `None`
    /// without a call if the file has no zones.
    pub(crate) fn zone_summary<T>(
        &self,
        read: impl FnOnce(&ZoneSet<'_>) -> T,
    ) -> Result<Option<T>> {
        let Some(zones) = self.zones()? else { return Ok(None) };
        let set_at = zones.summary.set_at;
        let at = self.meta.section(section::ZONE_SUMMARY).map_or(0, |it| contents_at(&range(it)));
        let set = ZoneSet::parse(zones.contents.get(set_at..).unwrap_or_default());
        let set = set.map_err(|error| self.source.decode(at + set_at as u64, error))?;
        Ok(Some(read(&set)))
    }

    /// Calls `read` with page `number` of the zones. The page covers [`ZONE_BLOCKS`] blocks, the
    /// first of which is block `number` × [`ZONE_BLOCKS`] and must exist; the last page may cover
    /// fewer. Returns `None` without a call if the file has no zones.
    pub(crate) fn zone_page<T>(
        &self,
        number: usize,
        read: impl FnOnce(&ZoneSet<'_>) -> T,
    ) -> Result<Option<T>> {
        let Some(zones) = self.zones()? else { return Ok(None) };
        let pages = &zones.summary.pages;
        let (Some(start), Some(end)) = (pages.get(number), pages.get(number + 1)) else {
            let problem = format!("page {number} of {}", pages.len() - 1);
            return Err(self.source.corrupt(0, "zones", problem));
        };
        let contents = self.source.block(Area::Zones, number, *start..*end, true)?;
        let set = ZoneSet::parse(&contents).and_then(|set| {
            let expected = (self.handles.len() - number * ZONE_BLOCKS).min(ZONE_BLOCKS);
            let problem = || format!("{} entries, {expected} expected", set.len());
            match set.len() == expected {
                true => Ok(set),
                false => Err(DecodeError::new("zones", 0, problem())),
            }
        });
        let set = set.map_err(|error| self.source.decode(contents_at(&(*start..*end)), error))?;
        Ok(Some(read(&set)))
    }

    /// Returns the zone summary, which is read at first use.
    fn zones(&self) -> Result<Option<&Zones>> {
        if let Some(zones) = self.zones.get() {
            return Ok(zones.as_ref());
        }
        let zones = self.read_zones()?;
        Ok(self.zones.get_or_init(|| zones).as_ref())
    }

    /// Reads the zone summary from the file.
    pub(super) fn read_zones(&self) -> Result<Option<Zones>> {
        let sections =
            (self.meta.section(section::ZONES), self.meta.section(section::ZONE_SUMMARY));
        let (Some(pages), Some(summary)) = sections else { return Ok(None) };
        let at = range(summary);
        let contents = self.source.single(BlockKind::ZoneSummary, at.clone())?;
        let summary = ZoneSummary::decode(&contents, self.handles.len(), range(pages));
        let summary = summary.map_err(|error| self.source.decode(contents_at(&at), error))?;
        Ok(Some(Zones { contents, summary }))
    }

    /// Returns the byte range of block `index` of rows.
    pub(super) fn block_range(&self, index: usize) -> Result<Range<u64>> {
        self.handles.block(index).ok_or_else(|| {
            let problem = format!("block {index} of {}", self.handles.len());
            self.source.corrupt(0, "location", problem)
        })
    }

    /// Returns page `index` of the hash index.
    #[inline]
    pub(super) fn hash_page(&self, index: usize) -> Result<Contents<'_>> {
        self.source.hash_page(self.hash_start, index)
    }

    /// Returns the error for damaged contents of block `index` of rows.
    #[cold]
    pub(super) fn bad_block(&self, index: usize, error: DecodeError) -> Error {
        let range = self.handles.block(index).unwrap_or_default();
        self.source.decode(contents_at(&range), error)
    }

    /// True if the index shows that every key of block `block` is below `key`.
    pub(crate) fn ends_before(&self, block: usize, key: &[u8]) -> Result<bool> {
        let next = block + 1;
        if next >= self.handles.len() {
            return Ok(*self.meta.key_max < *key);
        }
        let (number, index) = (next / self.handles.fanout, next % self.handles.fanout);
        let range = self.handles.page(number).unwrap_or_default();
        let contents = self.source.block(Area::Sparse, number, range.clone(), true)?;
        let separator = SparsePage::parse(&contents).and_then(|page| page.separator(index));
        let (prefix, suffix) =
            separator.map_err(|error| self.source.decode(contents_at(&range), error))?;
        // The separator of the next block is above every key of this one. Exception: it equals the
        // last key if versions of that key continue in the next block.
        Ok(match key.strip_prefix(prefix) {
            Some(rest) => suffix <= rest,
            None => prefix < key,
        })
    }

    /// Finds the first block of rows that may hold `key`.
    pub(super) fn block_of(&self, key: &[u8], fill: bool) -> Result<usize> {
        let page_count = self.handles.page_count();
        let bad = |page: usize, error| {
            let range = self.handles.page(page).unwrap_or_default();
            self.source.decode(contents_at(&range), error)
        };
        let root = SparsePage::parse(&self.root).and_then(|root| root.find(key));
        let number = root.map_err(|error| bad(page_count, error))?;
        let range = self.handles.page(number).filter(|_| number < page_count);
        let Some(range) = range else {
            let error = DecodeError::new("sparse index root", 0, "more entries than pages");
            return Err(bad(page_count, error));
        };
        let contents = self.source.block(Area::Sparse, number, range, fill)?;
        let page = SparsePage::parse(&contents).and_then(|page| page.find(key));
        let index = page.map_err(|error| bad(number, error))?;
        Ok(number * self.handles.fanout + index)
    }

    /// As [`get`](Self::get), for a hash index without locations: tries the cached locations for
    /// the entries `matches` of the line at `place`, and then searches the sparse index.
    fn get_known(
        &self,
        (hash, key, at): (u64, &[u8], Seq),
        place: LinePlace,
        mut matches: u32,
    ) -> Result<Option<Hit<'_>>> {
        while matches != 0 {
            if let Some(location) = self.known.get(place, matches.trailing_zeros()) {
                match self.locate(self.handles.split.unpack(location), None, key, at)? {
                    Located::OtherKey => {}
                    Located::NoneVisible => return Ok(None),
                    Located::Visible(hit) => return Ok(Some(hit)),
                }
            }
            matches &= matches - 1;
        }
        self.search(hash, key, at)
    }

    /// As [`get`](Self::get), but searches the sparse index instead of the hash index.
    fn search(&self, hash: u64, key: &[u8], at: Seq) -> Result<Option<Hit<'_>>> {
        let mut index = self.block_of(key, true)?;
        loop {
            let contents = self.rows(index)?;
            let bad = |error| self.bad_block(index, error);
            let block = RowBlock::parse(&contents).map_err(bad)?;
            let slot = block.lower_bound(key).map_err(bad)?;
            if slot < block.len() {
                self.put_known(hash, key, index, slot, &block);
                return Ok(match self.locate((index, slot), Some(contents), key, at)? {
                    Located::Visible(hit) => Some(hit),
                    Located::OtherKey | Located::NoneVisible => None,
                });
            }
            // All keys of this block are below `key`, but the next block may hold it: the separator
            // between the two blocks may equal `key`.
            index += 1;
            if index == self.handles.len() {
                return Ok(None);
            }
        }
    }

    /// Caches the location of `key` if it is in `slot` of block `index`. If the block is searched
    /// for the second time since it was cached, caches the location of every key in it.
    fn put_known(&self, hash: u64, key: &[u8], index: usize, slot: usize, block: &RowBlock<'_>) {
        let location = |slot: usize| {
            let parts = u32::try_from(index).ok().zip(u32::try_from(slot).ok());
            parts.map(|(index, slot)| self.handles.split.pack(index, slot))
        };
        let put = |hash, slot| location(slot).is_some_and(|at| self.put_location(hash, at));
        if !block.place(slot).is_ok_and(|place| block.is_key_at(&place, key)) {
            return;
        }
        let mut has_room = put(hash, slot);
        if !has_room || !self.source.is_searched_again(index) {
            return;
        }
        let mut key = block.prefix().to_vec();
        let mut before = None;
        // Skips the first key of the block, which may have a newer version in the previous block.
        // Stops at an unreadable entry.
        let visited = block.visit(0..block.len(), |slot, entry| {
            let is_newest = before.is_some_and(|before| before != entry.suffix);
            if has_room && is_newest {
                key.truncate(block.prefix().len());
                key.extend_from_slice(entry.suffix);
                has_room = put(key_hash(self.seed, &key), slot);
            }
            before = Some(entry.suffix);
            Ok::<(), DecodeError>(())
        });
        visited.unwrap_or_default();
    }

    /// Caches the location of the newest version of a key with this hash, if the lines of the hash
    /// index up to the key's entry are in memory. Returns false if there is no space.
    fn put_location(&self, hash: u64, location: u32) -> bool {
        let mut number = self.hash.home(hash);
        for _ in 0..self.hash.lines() {
            let place = self.hash.place(number);
            let page = self.source.hash_page_at_hand(self.hash_start, place.page);
            let Some(Ok(line)) = page.as_ref().map(|page| self.hash.line(page, place)) else {
                break;
            };
            let matches = line.matches(hash);
            if matches != 0 {
                return self.known.put(place, matches, location);
            }
            if !line.goes_on(hash) {
                break;
            }
            number = self.hash.next(number);
        }
        true
    }

    /// Returns the contents of block `index` of rows.
    #[inline]
    fn rows(&self, index: usize) -> Result<Contents<'_>> {
        self.source.block(Area::Rows, index, self.block_range(index)?, true)
    }

    /// Checks whether the entry at a block and slot has the key `key`, and finds its newest visible
    /// version. `contents` are the contents of the block, if already read.
    fn locate<'a>(
        &'a self,
        (mut index, mut slot): (usize, usize),
        mut contents: Option<Contents<'a>>,
        key: &[u8],
        at: Seq,
    ) -> Result<Located<'a>> {
        let mut newest = true;
        loop {
            let contents = match contents.take() {
                Some(contents) => contents,
                None => self.rows(index)?,
            };
            let bad = |error| self.bad_block(index, error);
            let block = RowBlock::parse(&contents).map_err(bad)?;
            if newest && slot >= block.len() {
                let problem = format!("slot {slot} of {} in block {index}", block.len());
                return Err(self.source.corrupt(self.hash_start, "location", problem));
            }
            while slot < block.len() {
                block.touch(slot);
                let place = block.place(slot).map_err(bad)?;
                if !block.is_key_at(&place, key) {
                    return Ok(if newest { Located::OtherKey } else { Located::NoneVisible });
                }
                if place.seq <= at {
                    let EntryPlace { row_at, end, seq, kind, .. } = place;
                    let row = row_at..end;
                    let hit = Hit { seq, kind, sst: self, contents, row, block: index };
                    return Ok(Located::Visible(hit));
                }
                newest = false;
                slot += 1;
            }
            (index, slot) = (index + 1, 0);
            if index == self.handles.len() {
                return Ok(Located::NoneVisible);
            }
        }
    }

    /// Decodes the row in `bytes`, which are a part of block `block`.
    #[inline(always)]
    pub(super) fn row<'a>(&'a self, block: usize, bytes: &'a [u8]) -> Result<RowRef<'a>> {
        decode_row(bytes, |number| self.shapes.get(number as usize))
            .map_err(|error| self.bad_block(block, error))
    }
}

impl Hit<'_> {
    /// Decodes the row. The entry must not be a tombstone.
    #[inline]
    pub(crate) fn row(&self) -> Result<RowRef<'_>> {
        self.sst.row(self.block, self.contents.get(self.row.clone()).unwrap_or_default())
    }
}

/// Returns the byte range of a section.
pub(super) fn range(section: &Section) -> Range<u64> {
    section.offset..section.offset + section.len
}

/// Returns the offset of the contents of the uncompressed block in `range`.
pub(super) fn contents_at(range: &Range<u64>) -> u64 {
    range.start + BLOCK_HEADER_BYTES as u64
}

pub(super) fn section_of<'a>(
    source: &Source,
    meta: &'a FileMeta,
    kind: u16,
) -> Result<&'a Section> {
    // Cannot fail, because opening the file has checked that the section exists.
    let missing = || source.corrupt(0, "sst footer", format!("no section {kind}"));
    meta.section(kind).ok_or_else(missing)
}

/// Returns the section of the hash index, in any of its layouts.
pub(super) fn hash_section<'a>(source: &Source, meta: &'a FileMeta) -> Result<&'a Section> {
    let kinds = section::HASH_INDEXES;
    let kind = kinds.into_iter().find(|kind| meta.section(*kind).is_some());
    section_of(source, meta, kind.unwrap_or(section::HASH_INDEX))
}

/// Opens a file that the manifest names.
pub(super) fn open_file(fs: &dyn Fs, path: &Path) -> Result<Arc<dyn FileRead>> {
    match fs.open_read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let problem = "the manifest names the file and it is not there";
            Err(Error::corrupt(path, 0, "sst", problem))
        }
        opened => opened.doing("open", path),
    }
}

fn open_source(fs: &dyn Fs, path: &Path, meta: &FileMeta, shared: &SstShared) -> Result<Source> {
    let file = open_file(fs, path)?;
    let len = file.len().doing("ask for the length of", path)?;
    let map = match shared.mode {
        IoMode::Pread => None,
        // A file of unexpected length is not mapped: it is reported as damaged below.
        IoMode::Mmap if len != meta.bytes => None,
        IoMode::Mmap => Some(file.map().doing("map", path)?),
    };
    if len != meta.bytes || map.as_ref().is_some_and(|map| map.len() as u64 != len) {
        let problem = format!("{len} bytes long, {} expected", meta.bytes);
        return Err(Error::corrupt(path, len.min(meta.bytes), "sst", problem));
    }
    Ok(Source::new(path.to_owned(), meta, file, map, Arc::clone(&shared.cache)))
}

/// Checks the header, the footer and the directory against `meta`.
fn check_ends(source: &Source, meta: &FileMeta) -> Result<()> {
    let ends = (HEADER_BYTES + TAIL_BYTES) as u64;
    if meta.bytes < ends {
        let problem = format!("{} bytes are too few for a file", meta.bytes);
        return Err(source.corrupt(0, "sst", problem));
    }
    let header = source.read(0..HEADER_BYTES as u64)?;
    check_header(meta.id, &header).map_err(|error| source.unreadable(0, error))?;
    let (sections, directory_at) = read_directory(source, meta.bytes)?;
    if sections != meta.sections {
        let problem = "the directory differs from the one in the manifest";
        return Err(source.corrupt(directory_at, "sst footer", problem));
    }
    Ok(())
}

/// Reads the directory of sections that the file itself contains; also returns its offset.
pub(super) fn read_directory(source: &Source, bytes: u64) -> Result<(Vec<Section>, u64)> {
    let tail_at = bytes.saturating_sub(TAIL_BYTES as u64);
    let tail = source.read(tail_at..bytes)?;
    let tail = Tail::decode(&tail).map_err(|error| source.decode(tail_at, error))?;
    let directory_at = tail_at.checked_sub(tail.directory_len as u64);
    let wrong = |problem| source.corrupt(tail_at, "sst footer", problem);
    let directory_at =
        directory_at.ok_or_else(|| wrong("the directory is longer than the file"))?;
    let directory = source.read(directory_at..tail_at)?;
    let sections = tail.sections(source.id, &directory);
    let sections = sections.map_err(|error| source.unreadable(directory_at, error))?;
    if tail.file_bytes != bytes {
        return Err(wrong("the file was longer or shorter when it was written"));
    }
    Ok((sections, directory_at))
}

fn read_handles(source: &Source, meta: &FileMeta) -> Result<Handles> {
    let at = range(section_of(source, meta, section::HANDLES)?);
    let rows = range(section_of(source, meta, section::ROWS)?);
    let sparse = range(section_of(source, meta, section::SPARSE_INDEX)?);
    let bytes = source.single(BlockKind::Handles, at.clone())?;
    Handles::decode(&bytes, rows, sparse).map_err(|error| source.decode(contents_at(&at), error))
}
