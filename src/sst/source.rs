//! Provides the bytes of an open table file, either from a memory map or through the block cache.
//!
//! Invariants
//! * in a mapped file, a block is checked when it is first used, and then marked in a bitmap. No
//!   unsafe code relies on the bitmap. Blocks of a file that this process has just written need no
//!   check at first use;
//! * in a file that is read, a block is checked when it is read, before it enters the cache;
//! * a buffer for stored bytes is no larger than the file, and one for decompressed contents no
//!   larger than `RAW_BYTES_MAX`.

use std::borrow::Cow;
use std::ops::{Deref, Range};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use super::cache::{Area, BlockCache, CacheKey};
use super::page_alignment::OS_PAGE_BYTES;
use crate::codec::DecodeError;
use crate::error::{Error, ErrorKind, Result};
use crate::format::block::{BlockKind, BlockPlace, Packing, StoredBlock};
use crate::format::field::FormatError;
use crate::format::file_meta::FileMeta;
use crate::format::hash_index::{PAGE_BYTES, check_page};
use crate::format::key::display_keys;
use crate::format::names::{FileId, FileNumber};
use crate::fs::{Advice, FileRead, Map};
use crate::mutants::mutant;
use crate::sync::{AtomicBool, AtomicU64, OnceLock, Ordering};

#[cfg(all(test, loom))]
mod models;

/// The source of an open file's bytes.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) number: FileNumber,
    pub(super) id: FileId,
    /// The file; `None` if it is mapped, because a memory map stays valid after the file is closed.
    pub(super) file: Option<Arc<dyn FileRead>>,
    /// The memory map; `None` if the file is read instead.
    pub(super) map: Option<Map>,
    cache: Arc<BlockCache>,
    seen: [Seen; 4],
    /// True if this process has just written the file, and so computed the checksums. Blocks are
    /// then not checked at first use.
    pub(super) is_written: bool,
    /// Set when the first compressed block is found. From then on, the cache is searched before the
    /// map.
    is_packed: AtomicBool,
    /// The first and the last key of the file, for error messages.
    keys: (Box<[u8]>, Box<[u8]>),
    /// The first damage found.
    damage: OnceLock<Error>,
}

/// The contents of a block or an index page.
pub(super) enum Contents<'a> {
    /// A slice of the memory map.
    Mapped(&'a [u8]),
    /// A buffer, which may also be in the cache.
    Owned(Bytes),
}

/// A bitmap with one bit per block of a section: 1 if the block was checked.
#[derive(Debug, Default)]
struct Seen(Box<[AtomicU64]>);

impl Source {
    /// Returns the heap memory used, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let seen: usize = self.seen.iter().map(|seen| size_of_val(&*seen.0)).sum();
        seen + self.path.as_os_str().len() + self.keys.0.len() + self.keys.1.len()
    }

    /// Creates a source. [`expect`](Self::expect) must then be called with the number of blocks.
    pub(super) fn new(
        path: PathBuf,
        meta: &FileMeta,
        file: Arc<dyn FileRead>,
        map: Option<Map>,
        cache: Arc<BlockCache>,
    ) -> Self {
        let file = if map.is_some() { None } else { Some(file) };
        let (number, id, is_packed) = (meta.number, meta.id, AtomicBool::new(false));
        let (keys, damage) = ((meta.key_min.clone(), meta.key_max.clone()), OnceLock::new());
        let seen = Default::default();
        let is_written = false;
        Self { path, number, id, file, map, cache, seen, is_written, is_packed, keys, damage }
    }

    /// Returns the first damage found, if any.
    pub(super) fn damage(&self) -> Option<&Error> {
        self.damage.get()
    }

    /// Adds the file's key interval to an error about its contents. Remembers the first error of
    /// kind `Corruption`.
    #[cold]
    pub(super) fn damaged(&self, error: Error) -> Error {
        let error = error.of_keys(|| display_keys(&self.keys.0, &self.keys.1));
        if error.kind() == ErrorKind::Corruption {
            self.damage.get_or_init(|| error.clone());
        }
        error
    }

    /// Returns the error for a damaged `structure` at `offset`.
    #[cold]
    pub(super) fn corrupt(
        &self,
        offset: u64,
        structure: &'static str,
        problem: impl Into<Cow<'static, str>>,
    ) -> Error {
        self.damaged(Error::corrupt(&self.path, offset, structure, problem))
    }

    /// Allocates the bitmap for the `count` blocks of `area`.
    pub(super) fn expect(&mut self, area: Area, count: usize) {
        debug_assert!(self.seen[area as usize].0.is_empty(), "blocks of an area are counted once");
        self.seen[area as usize] =
            Seen((0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect());
    }

    /// Returns the contents of block `index` of `area`, which fills `range`. If `fill` is true,
    /// adds them to the cache.
    #[inline]
    pub(super) fn block(
        &self,
        area: Area,
        index: usize,
        range: Range<u64>,
        fill: bool,
    ) -> Result<Contents<'_>> {
        self.checked_block(area, index, range, fill, false)
    }

    /// As [`block`](Self::block). `is_asked` must be true if the caller has already requested the
    /// range from the operating system.
    #[inline]
    fn checked_block(
        &self,
        area: Area,
        index: usize,
        range: Range<u64>,
        fill: bool,
        is_asked: bool,
    ) -> Result<Contents<'_>> {
        let place = self.place(area, index);
        let Some(map) = &self.map else {
            return self.read_block(area, place, range, fill).map(Contents::Owned);
        };
        let key = self.cache_key(area, place.number);
        // Only rows are compressed. If the cache has the decompressed block, the map is not
        // accessed, because its pages may not be in memory.
        let is_packed = area == Area::Rows && self.is_packed.load(Ordering::Relaxed);
        if is_packed && let Some(cached) = self.cache.get(key) {
            return Ok(Contents::Owned(cached));
        }
        let bytes = self.mapped(map, &range)?;
        let seen = &self.seen[area as usize];
        let block = if seen.get(index) {
            StoredBlock::reopen(place, bytes)
        } else if self.is_written {
            seen.set(index);
            StoredBlock::reopen(place, bytes)
        } else {
            if !is_asked {
                self.ask(range.clone());
            }
            if mutant!("early-checked") {
                seen.set(index);
            }
            StoredBlock::open(place, bytes).inspect(|_| seen.set(index))
        };
        let block = block.map_err(|error| self.unreadable(range.start, error))?;
        if block.packing == Packing::Plain {
            return Ok(Contents::Mapped(block.stored));
        }
        if !is_packed {
            if area == Area::Rows {
                self.is_packed.store(true, Ordering::Relaxed);
            }
            if let Some(cached) = self.cache.get(key) {
                return Ok(Contents::Owned(cached));
            }
        }
        let raw = block.decompress().map_err(|error| self.unreadable(range.start, error))?;
        Ok(Contents::Owned(self.keep(key, Bytes::from(raw), fill)))
    }

    /// As [`block`](Self::block), but the result can outlive the source. The caller must request
    /// the range beforehand; see [`ask`](Self::ask).
    pub(super) fn owned_block(
        &self,
        area: Area,
        index: usize,
        range: Range<u64>,
        fill: bool,
    ) -> Result<Bytes> {
        if !fill && self.map.is_some() {
            // The caller is a compaction, which copies this block to another file. There damage
            // would no longer be detectable, so check the block again.
            return self.unpack(self.place(area, index), range);
        }
        match (self.checked_block(area, index, range, fill, true)?, &self.map) {
            (Contents::Owned(bytes), _) => Ok(bytes),
            (Contents::Mapped(part), Some(map)) => Ok(map.bytes().slice_ref(part)),
            (Contents::Mapped(part), None) => Ok(Bytes::copy_from_slice(part)),
        }
    }

    /// Counts a search for a key in block `index` of rows. Returns true if it is the second search
    /// since the block was cached.
    pub(super) fn is_searched_again(&self, index: usize) -> bool {
        let number = self.place(Area::Rows, index).number;
        self.cache.is_searched_again(self.cache_key(Area::Rows, number))
    }

    /// Returns page `index` of the hash index; the index begins at offset `start`.
    #[inline]
    pub(super) fn hash_page(&self, start: u64, index: usize) -> Result<Contents<'_>> {
        let start = start + (index * PAGE_BYTES) as u64;
        let range = start..start + PAGE_BYTES as u64;
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        let check = |page: &[u8]| {
            let checked = check_page(self.id, number, page);
            checked.map_err(|error| self.decode(start, error))
        };
        if let Some(map) = &self.map {
            let page = self.mapped(map, &range)?;
            let seen = &self.seen[Area::Hash as usize];
            if !seen.get(index) {
                if !self.is_written {
                    check(page)?;
                }
                seen.set(index);
            }
            return Ok(Contents::Mapped(page));
        }
        let key = self.cache_key(Area::Hash, number);
        if let Some(cached) = self.cache.get(key) {
            return Ok(Contents::Owned(cached));
        }
        let page = self.read(range)?;
        check(&page)?;
        Ok(Contents::Owned(self.keep(key, page, true)))
    }

    /// Returns page `index` of the hash index if it is already in the cache, or mapped and checked.
    pub(super) fn hash_page_at_hand(&self, start: u64, index: usize) -> Option<Contents<'_>> {
        let is_at_hand = match &self.map {
            Some(_) => self.seen[Area::Hash as usize].get(index),
            None => {
                let number = u32::try_from(index).unwrap_or(u32::MAX);
                let cached = self.cache.get(self.cache_key(Area::Hash, number));
                return cached.map(Contents::Owned);
            }
        };
        if is_at_hand { self.hash_page(start, index).ok() } else { None }
    }

    /// If the file is mapped, asks the operating system to read all of `range` at once. Without
    /// this request, page faults would read it page by page.
    pub(super) fn ask(&self, range: Range<u64>) {
        if self.map.is_some() {
            self.ask_ahead(range);
        }
    }

    /// As [`ask`](Self::ask), for readahead of an iteration. Also requests the range if the file is
    /// not mapped, because the iteration then reads its blocks one by one.
    pub(super) fn ask_ahead(&self, range: Range<u64>) {
        // A range within one page needs no request, because the first access reads the whole page.
        // On systems with larger pages, some requests are superfluous.
        if range.start / OS_PAGE_BYTES != range.end.saturating_sub(1) / OS_PAGE_BYTES {
            self.advise(Advice::WillNeed, range);
        }
    }

    /// Tells the operating system how `range` will be read.
    pub(super) fn advise(&self, advice: Advice, range: Range<u64>) {
        if let Some(file) = &self.file {
            return file.advise(advice, range);
        }
        let bounds = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
        if let Some((map, (start, end))) = self.map.as_ref().zip(bounds) {
            map.advise(advice, start..end);
        }
    }

    /// Reads a section that consists of one block at `range`, without caching it.
    pub(super) fn single(&self, kind: BlockKind, range: Range<u64>) -> Result<Bytes> {
        self.ask(range.clone());
        self.unpack(BlockPlace::new(kind, self.id, 0), range)
    }

    /// Reads and checks the block at `place` again, regardless of the cache and of earlier checks.
    pub(super) fn unpack(&self, place: BlockPlace, range: Range<u64>) -> Result<Bytes> {
        let start = range.start;
        let bytes = self.read(range)?;
        let block = StoredBlock::open(place, &bytes);
        let block = block.map_err(|error| self.unreadable(start, error))?;
        if block.packing == Packing::Plain {
            return Ok(bytes.slice_ref(block.stored));
        }
        let raw = block.decompress().map_err(|error| self.unreadable(start, error))?;
        Ok(Bytes::from(raw))
    }

    /// Reads raw bytes of the file. `range` must be within the file's length.
    pub(super) fn read(&self, range: Range<u64>) -> Result<Bytes> {
        if let Some(map) = &self.map {
            return self.mapped(map, &range).map(|part| map.bytes().slice_ref(part));
        }
        let len = usize::try_from(range.end - range.start).ok();
        let Some((file, len)) = self.file.as_ref().zip(len) else {
            return Err(self.beyond(&range));
        };
        let mut buffer = vec![0; len];
        match file.read_at(range.start, &mut buffer) {
            Ok(()) => Ok(buffer.into()),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(self.beyond(&range))
            }
            Err(error) => Err(Error::io(format!("read {}", self.path.display()), error)),
        }
    }

    /// Returns the error for contents of this file that cannot be decoded; `base` is their offset.
    pub(super) fn decode(&self, base: u64, error: DecodeError) -> Error {
        self.damaged(Error::decode(&self.path, base, error))
    }

    pub(super) fn unreadable(&self, base: u64, error: FormatError) -> Error {
        self.damaged(error.into_error(&self.path, base))
    }

    fn read_block(
        &self,
        area: Area,
        place: BlockPlace,
        range: Range<u64>,
        fill: bool,
    ) -> Result<Bytes> {
        let key = self.cache_key(area, place.number);
        if let Some(cached) = self.cache.get(key) {
            return Ok(cached);
        }
        let contents = self.unpack(place, range)?;
        Ok(self.keep(key, contents, fill))
    }

    fn keep(&self, key: CacheKey, contents: Bytes, fill: bool) -> Bytes {
        if fill {
            self.cache.insert(key, &contents);
        }
        contents
    }

    #[inline]
    fn mapped<'a>(&self, map: &'a Map, range: &Range<u64>) -> Result<&'a [u8]> {
        let (start, end) = (usize::try_from(range.start), usize::try_from(range.end));
        let part = start.ok().zip(end.ok()).and_then(|(start, end)| map.get(start..end));
        part.ok_or_else(|| self.beyond(range))
    }

    #[cold]
    fn beyond(&self, range: &Range<u64>) -> Error {
        self.corrupt(range.start, "sst", "the file ends before this part of it")
    }

    #[inline]
    fn place(&self, area: Area, index: usize) -> BlockPlace {
        let kind = match area {
            Area::Rows => BlockKind::Rows,
            // The pages of the hash index have a different header, and `hash_page` reads them
            // instead.
            Area::Sparse | Area::Hash => BlockKind::Sparse,
            Area::Zones => BlockKind::Zones,
        };
        BlockPlace::new(kind, self.id, index)
    }

    #[inline]
    fn cache_key(&self, area: Area, index: u32) -> CacheKey {
        CacheKey { file: self.number, area, index }
    }
}

impl Deref for Contents<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Contents::Mapped(bytes) => bytes,
            Contents::Owned(bytes) => bytes,
        }
    }
}

impl Seen {
    #[inline]
    fn get(&self, index: usize) -> bool {
        // The file's bytes never change, so the bit needs no memory ordering.
        let word = self.0.get(index / 64);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (index % 64) & 1 != 0)
    }

    fn set(&self, index: usize) {
        if let Some(word) = self.0.get(index / 64) {
            if mutant!("overwrite-marks") {
                let old = word.load(Ordering::Relaxed);
                return word.store(old | 1 << (index % 64), Ordering::Relaxed);
            }
            word.fetch_or(1 << (index % 64), Ordering::Relaxed);
        }
    }
}
