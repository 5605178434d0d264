//! The bytes of a mapped file, and advice about the access to its pages or to a file that is read.
//!
//! Invariants
//! * advice never fails and never changes a byte; an implementation may ignore it.
//!
//! Not here: creating maps (`disk`, `mem`), choosing the pages to fetch (`sst::readahead`).

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use bytes::Bytes;

/// A whole file, as it was when it was mapped. A clone is another handle to the same map.
#[derive(Clone, Debug, Default)]
pub struct Map {
    bytes: Bytes,
    pages: Option<Arc<dyn Pages>>,
}

/// How a part of a map or a file will be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// In random order: a missing page is read alone, without its neighbours.
    Random,
    /// Soon: missing pages are fetched in few large reads. The call does not wait for them.
    WillNeed,
}

/// Receives the advice for a map's pages.
pub trait Pages: Send + Sync + fmt::Debug {
    /// Requires: a range of the map.
    fn advise(&self, advice: Advice, range: Range<usize>);
}

impl Map {
    /// A map with pages that take advice.
    pub fn new(bytes: Bytes, pages: Arc<dyn Pages>) -> Self {
        Self { bytes, pages: Some(pages) }
    }

    /// The bytes, shared.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Announces how `range`, clipped to the map, will be read. No effect if the pages take no
    /// advice.
    pub fn advise(&self, advice: Advice, range: Range<usize>) {
        let range = range.start..range.end.min(self.bytes.len());
        if let Some(pages) = self.pages.as_ref().filter(|_| !range.is_empty()) {
            pages.advise(advice, range);
        }
    }
}

/// A map without advice.
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
