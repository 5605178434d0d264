//! Finds keys at which a table file can be split, from its sparse index.
//!
//! `span_estimate` estimates the bytes between two keys; `ranges::decide` chooses a key.

use std::sync::Arc;

use crate::error::Result;
use crate::format::span::Span;

use super::Sst;

impl Sst {
    /// Returns at most `count_max` block boundaries inside `span`, ascending and evenly spread.
    /// Each is a pair: the key of the boundary, and the number of bytes in the blocks between it
    /// and the previous boundary (or the start of the span).
    pub(crate) fn places(&self, span: &Span, count_max: usize) -> Result<Vec<(Box<[u8]>, u64)>> {
        let first = self.block_of(&span.low, true)?;
        let last = match &span.high {
            Some(high) => self.block_of(high, true)?,
            None => self.handles.len().saturating_sub(1),
        };
        let step = (last.saturating_sub(first)).div_ceil(count_max.max(1)).max(1);
        let offset = |block: usize| self.handles.blocks.get(block).copied().unwrap_or_default();
        let mut places = Vec::new();
        let mut start = offset(first);
        for block in (first + 1..=last).step_by(step) {
            let Some(key) = self.separator(block)? else { continue };
            if *key > *span.low && span.contains(&key) {
                let end = offset(block);
                places.push((key, end.saturating_sub(start)));
                start = end;
            }
        }
        Ok(places)
    }

    /// Returns the first key at or above `key`, if the file has any.
    pub(crate) fn key_from(self: &Arc<Sst>, key: &[u8]) -> Result<Option<Box<[u8]>>> {
        let mut iter = self.iter(true);
        iter.seek(key)?;
        Ok(iter.valid().then(|| iter.key().into()))
    }
}
