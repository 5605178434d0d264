//! The bytes of a memory-mapped file, and advice to the system on how a map or a file will be read.
//!
//! `disk` and `mem` create maps; `sst::readahead` chooses the pages to fetch.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use bytes::Bytes;

/// The bytes of a whole file at the time it was mapped. Clones share the map.
#[derive(Clone, Debug, Default)]
pub struct Map {
    bytes: Bytes,
    pages: Option<Arc<dyn Pages>>,
}

/// How a part of a map or a file will be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// In random order: the system reads a missing page alone, without its neighbours.
    Random,
    /// Soon: the system starts to fetch missing pages, in few large reads. The call does not wait
    /// for the pages.
    WillNeed,
    /// At once: the system maps all pages, so that reading them causes no page faults. The call
    /// waits for missing pages. Only for maps.
    Populate,
}

/// The memory pages of a map. The system accepts advice on them.
pub trait Pages: Send + Sync + fmt::Debug {
    /// Tells the system how `range`, which must be within the map, will be read.
    fn advise(&self, advice: Advice, range: Range<usize>);
}

impl Map {
    /// Creates a map of `bytes`; advice is passed to `pages`.
    pub fn new(bytes: Bytes, pages: Arc<dyn Pages>) -> Self {
        Self { bytes, pages: Some(pages) }
    }

    /// Returns the bytes, which can be shared.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Tells the system how `range`, clipped to the map, will be read. A map that was made from
    /// [`Bytes`] ignores this.
    pub fn advise(&self, advice: Advice, range: Range<usize>) {
        let range = range.start..range.end.min(self.bytes.len());
        if let Some(pages) = self.pages.as_ref().filter(|_| !range.is_empty()) {
            pages.advise(advice, range);
        }
    }
}

/// Creates a map that ignores advice.
impl From<Bytes> for Map {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, pages: None }
    }
}

impl Deref for Map {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}
