//! One file in memory: its current bytes, its durable bytes, and the unsynced versions between
//! them.
//!
//! Invariants
//! * pages are zero beyond the file's length, so that growing the file needs no write;
//! * a sector that is not in `dirty` has its durable bytes, unless a failed sync gave it up;
//! * undoing a page's changes from the last to the first restores every version of its dirty
//!   sectors in turn.
//!
//! Contents and crash images share pages. A write to a shared page copies the page first.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::fate::{FileFate, SECTOR};

const PAGE: usize = 4096;
const SECTORS: usize = PAGE / SECTOR;
/// The maximum file size. Without a limit, a write at a wrong offset could allocate all memory for
/// page slots.
const LEN_MAX: u64 = 1 << 36;

#[derive(Clone, Debug)]
enum Page {
    Own(Arc<[u8; PAGE]>),
    /// A slice of the buffer that `gather` made for a map of the whole file.
    Mapped(Bytes),
}

/// A file's length and its bytes in pages. A missing page is all zeros.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    len: u64,
    pages: Vec<Option<Page>>,
}

/// The unsynced sectors of a page.
#[derive(Clone, Debug, Default)]
struct Dirt {
    /// One bit per sector, set if the sector is unsynced.
    sectors: u8,
    undo: Vec<Undo>,
}

/// The bytes that a write replaced. They are kept only if the write overlapped a sector that was
/// already dirty.
#[derive(Clone, Debug)]
struct Undo {
    at: usize,
    old: Box<[u8]>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct File {
    current: Content,
    durable: Content,
    dirty: BTreeMap<usize, Dirt>,
    /// The minimum and maximum length of the file since the last sync.
    len_low: u64,
    len_high: u64,
    /// Whether a failed sync gave up sectors: their bytes can be read, but never become durable.
    lost: bool,
    /// All current bytes in one buffer, if the file was mapped since the last change.
    whole: Option<Bytes>,
}

impl Page {
    fn bytes(&self) -> &[u8] {
        match self {
            Page::Own(page) => &page[..],
            Page::Mapped(page) => page,
        }
    }
}

impl Content {
    /// Returns a copy. The copy and the original share only pages that are never changed.
    fn detached(&self) -> Self {
        let copy = |page: &Option<Page>| {
            page.as_ref().map(|page| match page {
                Page::Own(page) => Page::Own(Arc::new(**page)),
                Page::Mapped(page) => Page::Mapped(page.clone()),
            })
        };
        Self { len: self.len, pages: self.pages.iter().map(copy).collect() }
    }

    fn page(&self, index: usize) -> Option<&Page> {
        self.pages.get(index)?.as_ref()
    }

    fn page_mut(&mut self, index: usize) -> &mut [u8; PAGE] {
        if self.pages.len() <= index {
            self.pages.resize(index + 1, None);
        }
        let slot = &mut self.pages[index];
        if !matches!(slot, Some(Page::Own(_))) {
            let mut page = [0; PAGE];
            if let Some(mapped) = slot {
                page.copy_from_slice(mapped.bytes());
            }
            *slot = Some(Page::Own(Arc::new(page)));
        }
        match slot {
            Some(Page::Own(page)) => Arc::make_mut(page),
            _ => unreachable!("just made this page our own"),
        }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) {
        for (index, part, range) in pieces(offset, buffer.len()) {
            match self.page(index) {
                Some(page) => buffer[part].copy_from_slice(&page.bytes()[range]),
                None => buffer[part].fill(0),
            }
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (index, part, range) in pieces(offset, bytes.len()) {
            self.page_mut(index)[range].copy_from_slice(&bytes[part]);
        }
        self.len = self.len.max(offset + bytes.len() as u64);
    }

    /// Inverts the bits of `mask` in the byte at `offset`.
    pub(super) fn flip(&mut self, offset: u64, mask: u8) -> io::Result<()> {
        if offset >= self.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.page_mut((offset / PAGE as u64) as usize)[offset as usize % PAGE] ^= mask;
        Ok(())
    }

    /// Truncates or grows the content. Zeros the part of the last page beyond `len`, so that no old
    /// bytes appear when the file grows again.
    pub(super) fn resize(&mut self, len: u64) {
        self.len = len;
        self.pages.truncate(len.div_ceil(PAGE as u64) as usize);
        let (last, used) = ((len / PAGE as u64) as usize, len as usize % PAGE);
        if self.page(last).is_some_and(|page| page.bytes()[used..].iter().any(|byte| *byte != 0)) {
            self.page_mut(last)[used..].fill(0);
        }
    }

    /// Copies the file's bytes into one buffer and returns it. The pages become slices of the
    /// buffer.
    fn gather(&mut self) -> Bytes {
        let pages = self.len.div_ceil(PAGE as u64) as usize;
        let mut whole = BytesMut::zeroed(pages * PAGE);
        self.read(0, &mut whole[..self.len as usize]);
        let whole = whole.freeze();
        self.pages = (0..pages)
            .map(|index| Some(Page::Mapped(whole.slice(index * PAGE..(index + 1) * PAGE))))
            .collect();
        whole.slice(..self.len as usize)
    }
}

impl Dirt {
    fn has(&self, sector: usize) -> bool {
        self.sectors & (1 << sector) != 0
    }

    /// Marks the sectors that `range` of the page overlaps. Returns whether any of them was already
    /// marked.
    fn mark(&mut self, range: &Range<usize>) -> bool {
        debug_assert!(range.end <= PAGE, "a change is within one page");
        let mask = (range.start / SECTOR..range.end.div_ceil(SECTOR))
            .fold(0, |mask, sector| mask | (1u8 << sector));
        let again = self.sectors & mask != 0;
        self.sectors |= mask;
        again
    }
}

impl Undo {
    /// Returns the bytes that this change replaced in `sector`: their offset in the page, and the
    /// old bytes.
    fn within(&self, sector: usize) -> Option<(usize, &[u8])> {
        let start = self.at.max(sector * SECTOR);
        let end = (self.at + self.old.len()).min((sector + 1) * SECTOR);
        (start < end).then(|| (start, &self.old[start - self.at..end - self.at]))
    }
}

impl File {
    /// Creates a file with the durable bytes `bytes`.
    pub(super) fn durable(bytes: &[u8]) -> Self {
        let mut file = Self::default();
        file.replace(|content| {
            *content = Content::default();
            content.write(0, bytes);
        });
        file
    }

    /// Returns a copy. The copy and the original share only data that is never changed in place.
    pub(super) fn detached(&self) -> Self {
        let (current, durable) = (self.current.detached(), self.durable.detached());
        Self { current, durable, ..self.clone() }
    }

    pub(super) fn len(&self) -> u64 {
        self.current.len
    }

    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        match offset.checked_add(buffer.len() as u64) {
            Some(end) if end <= self.len() => {
                self.current.read(offset, buffer);
                Ok(())
            }
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Returns `len`, or an error if no file may have this length.
    pub(super) fn check_len(len: Option<u64>) -> io::Result<u64> {
        len.filter(|len| *len <= LEN_MAX).ok_or_else(|| io::ErrorKind::FileTooLarge.into())
    }

    /// Writes `bytes`. Requires that `check_len` allows the end of the write.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.whole = None;
        let end = offset.checked_add(bytes.len() as u64);
        debug_assert!(Self::check_len(end).is_ok(), "the caller checked the length");
        for (index, part, range) in pieces(offset, bytes.len()) {
            self.overwrite(index, range, &bytes[part]);
        }
        self.current.len = self.current.len.max(offset + bytes.len() as u64);
        self.len_high = self.len_high.max(self.current.len);
        debug_assert!(
            self.len_low <= self.current.len,
            "lengths since the last sync have the current one"
        );
    }

    /// Sets the length. Requires that `check_len` allows `len`.
    pub(super) fn set_len(&mut self, len: u64) {
        debug_assert!(Self::check_len(Some(len)).is_ok(), "the caller checked the length");
        self.whole = None;
        // After a power cut the truncated bytes may still exist. If the file was extended again,
        // they may also be zero. So truncating also writes zeros.
        let end = usize::try_from(self.current.len.saturating_sub(len)).unwrap_or(0);
        for (index, part, range) in pieces(len, end) {
            if self.current.page(index).or(self.durable.page(index)).is_some() {
                self.overwrite(index, range, &[0; PAGE][..part.len()]);
            }
        }
        self.current.resize(len);
        self.len_low = self.len_low.min(len);
        self.len_high = self.len_high.max(len);
        debug_assert!(self.len_low <= self.len_high, "lengths since the last sync are a range");
    }

    fn overwrite(&mut self, index: usize, range: Range<usize>, bytes: &[u8]) {
        let dirt = self.dirty.entry(index).or_default();
        let page = self.current.page_mut(index);
        if dirt.mark(&range) {
            dirt.undo.push(Undo { at: range.start, old: page[range.clone()].into() });
        }
        page[range].copy_from_slice(bytes);
    }

    /// Makes the bytes and the length durable.
    pub(super) fn sync(&mut self) {
        for index in std::mem::take(&mut self.dirty).into_keys() {
            if self.durable.pages.len() <= index {
                self.durable.pages.resize(index + 1, None);
            }
            self.durable.pages[index] = self.current.page(index).cloned();
        }
        self.durable.resize(self.current.len);
        (self.len_low, self.len_high) = (self.current.len, self.current.len);
    }

    /// Models a failed sync: unsynced bytes never become durable, although they read as written.
    pub(super) fn forget_dirty(&mut self) {
        self.lost |= !self.dirty.is_empty();
        self.dirty.clear();
    }

    /// Returns the bytes of the whole file in one buffer. All calls return the same buffer until
    /// the next change.
    pub(super) fn map(&mut self) -> Bytes {
        if self.whole.is_none() {
            self.whole = Some(self.current.gather());
            if self.is_clean() {
                self.durable = self.current.clone(); // both now share the buffer
            }
        }
        self.whole.clone().unwrap_or_default()
    }

    pub(super) fn mapped(&self) -> Option<Bytes> {
        self.whole.clone()
    }

    /// Applies `change` to the file's bytes and makes the result durable, to simulate damage.
    pub(super) fn replace(&mut self, change: impl FnOnce(&mut Content)) {
        change(&mut self.current);
        *self = Self {
            durable: self.current.clone(),
            len_low: self.current.len,
            len_high: self.current.len,
            current: std::mem::take(&mut self.current),
            ..Self::default()
        };
    }

    /// Whether the file has exactly its current bytes after any power cut.
    pub(super) fn is_clean(&self) -> bool {
        self.dirty.is_empty() && !self.lost && self.len_low == self.len_high
    }

    /// Returns the number of unsynced sectors.
    pub(super) fn dirty_sectors(&self) -> u64 {
        self.dirty.values().map(|dirt| u64::from(dirt.sectors.count_ones())).sum()
    }

    /// Returns the file after a power cut; `fate` chooses a version for each sector.
    pub(super) fn after_power_cut(&self, fate: &mut FileFate) -> Self {
        let mut left = self.durable.clone();
        for (index, dirt) in &self.dirty {
            for sector in (0..SECTORS).filter(|sector| dirt.has(*sector)) {
                self.decide_sector(&mut left, *index, dirt, sector, fate);
            }
        }
        let lens = [self.durable.len, self.current.len, self.len_low, self.len_high];
        left.resize(fate.len(lens));
        let mut file = Self::default();
        file.replace(|content| *content = left);
        file
    }

    /// Lets `fate` choose the version of one sector after a power cut.
    fn decide_sector(
        &self,
        left: &mut Content,
        index: usize,
        dirt: &Dirt,
        sector: usize,
        fate: &mut FileFate,
    ) {
        let undos = || dirt.undo.iter().rev().filter_map(|undo| undo.within(sector));
        let versions = 2 + undos().count();
        let version = fate.version(versions);
        if version == 0 {
            return;
        }
        let bytes = sector * SECTOR..(sector + 1) * SECTOR;
        let page = left.page_mut(index);
        match self.current.page(index) {
            Some(current) => page[bytes.clone()].copy_from_slice(&current.bytes()[bytes]),
            None => page[bytes].fill(0),
        }
        for (at, old) in undos().take(versions - 1 - version) {
            page[at..at + old.len()].copy_from_slice(old);
        }
    }
}

/// Splits a transfer at page boundaries. Each item is the number of a page, a range of the
/// transfer's buffer, and a range of the page.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (usize, Range<usize>, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let start = (at % PAGE as u64) as usize;
        let count = (PAGE - start).min(len - done);
        let part = done..done + count;
        done += count;
        Some(((at / PAGE as u64) as usize, part, start..start + count))
    })
}
