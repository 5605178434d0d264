//! The bytes of a mapped file, and what its pages, or a file that is read, can be told.
//!
//! Invariants
//! * advice never fails and never changes a byte: what cannot take it ignores it.
//!
//! Not here: who maps (`disk`, `mem`), which pages are wanted when (`sst::readahead`).

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use bytes::Bytes;

/// A whole file in memory, as it was when it was mapped. A clone is another handle to the same map.
#[derive(Clone, Debug, Default)]
pub struct Map {
    bytes: Bytes,
    pages: Option<Arc<dyn Pages>>,
}

/// How a part of a map or a file will be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// Here and there: a page that is not in memory is read alone, without those around it.
    Random,
    /// At once: what is not in memory is fetched in few large reads. The call does not wait for them.
    WillNeed,
}

/// Takes the advice about a map's pages.
pub trait Pages: Send + Sync + fmt::Debug {
    /// Requires: a range of the map.
    fn advise(&self, advice: Advice, range: Range<usize>);
}

impl Map {
    /// A map whose pages take advice.
    pub fn new(bytes: Bytes, pages: Arc<dyn Pages>) -> Self {
        Self { bytes, pages: Some(pages) }
    }

    /// The bytes, shared.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Says how `range`, cut to the map, will be read. Nothing happens where pages take no advice.
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
