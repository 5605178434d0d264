//! Reads the entities of a table, or of a range of its keys, page by page.

use std::collections::VecDeque;
use std::vec;

use super::continuation::Continuation;
use super::table_store::{PageQuery, TableStore};
use crate::error::{Error, ErrorKind, Result};
use crate::format::key::user_key;
use crate::format::names::TableId;
use crate::model::Entity;
use crate::query::KeyRange;

/// A table of a store.
#[derive(Clone, Copy)]
pub(crate) struct Side<'s> {
    pub(crate) store: &'s dyn TableStore,
    pub(crate) table: &'s str,
}

/// The entities that match one of several filters, page by page, in the order of the filters.
pub(crate) struct Pages<'s> {
    side: Side<'s>,
    filters: VecDeque<String>,
    select: Vec<String>,
    next: Option<Continuation>,
    repeats: Repeats<Continuation>,
    /// The number of entities to request, so that a page has about [`PAGE_BYTES`].
    top: usize,
    top_max: usize,
}

/// The entities of [`Pages`], one by one. Ends after an error.
pub(crate) struct Rows<'s> {
    pages: Option<Pages<'s>>,
    page: vec::IntoIter<Entity>,
}

/// Detects a cycle of positions by Brent's algorithm: each position is compared with the one whose
/// number is the last power of two.
pub(crate) struct Repeats<T> {
    kept: Option<T>,
    count: u64,
}

impl<T> Default for Repeats<T> {
    fn default() -> Self {
        Self { kept: None, count: 0 }
    }
}

impl<T: Clone + PartialEq> Repeats<T> {
    /// Whether `next` is a position that was passed before. May return true only after two cycles.
    pub(crate) fn is_repeated(&mut self, next: Option<&T>) -> bool {
        let is_repeated = next.is_some() && self.kept.as_ref() == next;
        self.count += 1;
        if self.count.is_power_of_two() {
            self.kept = next.cloned();
        }
        is_repeated
    }
}

/// The desired size of the entities of a page, in bytes.
const PAGE_BYTES: usize = 1 << 20;
/// The number of entities in the first page, whose size is not known.
const FIRST_PAGE: usize = 100;
/// The maximum number of entities in a page.
pub(crate) const PAGE_MAX: usize = 1_000;

impl<'s> Side<'s> {
    /// Reads the entities that match one of `filters`; none of `select` means all properties.
    pub(crate) fn pages(self, filters: Vec<String>, select: &[String], top: usize) -> Pages<'s> {
        let top_max = top.clamp(1, PAGE_MAX);
        Pages {
            side: self,
            filters: filters.into(),
            select: select.to_vec(),
            next: None,
            repeats: Repeats::default(),
            top: FIRST_PAGE.min(top_max),
            top_max,
        }
    }

    /// Reads the entities that match a filter, one by one.
    pub(crate) fn rows(self, filter: &str, select: &[String], top: usize) -> Rows<'s> {
        let pages = self.pages(vec![filter.to_owned()], select, top);
        Rows { pages: Some(pages), page: Vec::new().into_iter() }
    }
}

impl Pages<'_> {
    /// Returns the next page that has entities; `None` after the last one.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<Entity>>> {
        while let Some(filter) = self.filters.front() {
            let select: Vec<&str> = self.select.iter().map(String::as_str).collect();
            let query = PageQuery {
                filter,
                select: &select,
                top: self.top,
                continuation: self.next.as_ref(),
            };
            let page = self.side.store.query(self.side.table, &query)?;
            self.next = page.next;
            if self.repeats.is_repeated(self.next.as_ref()) {
                let text = format!("table '{}': the store repeats a page", self.side.table);
                return Err(Error::new(ErrorKind::Io, text));
            }
            if self.next.is_none() {
                self.repeats = Repeats::default();
                self.filters.pop_front();
            }
            if !page.entities.is_empty() {
                let bytes: usize = page.entities.iter().map(Entity::size_at_most).sum();
                let size = (bytes / page.entities.len()).max(1);
                self.top = (PAGE_BYTES / size).clamp(1, self.top_max);
                return Ok(Some(page.entities));
            }
        }
        Ok(None)
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<Entity>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entity) = self.page.next() {
                return Some(Ok(entity));
            }
            match self.pages.as_mut()?.next() {
                Ok(Some(page)) => self.page = page.into_iter(),
                Ok(None) => self.pages = None,
                Err(error) => {
                    self.pages = None;
                    return Some(Err(error));
                }
            }
        }
    }
}

/// Returns a text as a literal of a filter.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Returns a filter that matches the range, and perhaps keys around it.
pub(crate) fn filter(range: &KeyRange) -> String {
    // A bound of a range may have characters that no key has.
    let bounds = range.partition_bounds();
    let [low, high] = bounds.map(|key| key.filter(|key| !key.contains(char::is_control)));
    match (low, high) {
        (Some(low), Some(high)) if low == high => format!("PartitionKey eq {}", quoted(low)),
        _ => {
            let low = low.map(|key| format!("PartitionKey ge {}", quoted(key)));
            let high = high.map(|key| format!("PartitionKey le {}", quoted(key)));
            low.into_iter().chain(high).collect::<Vec<_>>().join(" and ")
        }
    }
}

/// Whether a range has the key of an entity.
pub(crate) fn contains(range: &KeyRange, row: &Entity) -> bool {
    let span = range.span(TableId(1));
    let key = user_key(TableId(1), row.partition_key(), row.row_key());
    *span.low <= *key && span.high.as_deref().is_none_or(|high| *key < *high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_matches_its_range() {
        let keys = [("a", "1"), ("a", "2"), ("b", "1"), ("c", "9"), ("d", "")];
        for (range, expected, within) in [
            (KeyRange::all(), "", vec![0, 1, 2, 3, 4]),
            (KeyRange::partition("a"), "PartitionKey eq 'a'", vec![0, 1]),
            (KeyRange::point("a", "2"), "PartitionKey eq 'a'", vec![1]),
            (KeyRange::rows("a", "2"..), "PartitionKey eq 'a'", vec![1]),
            (
                KeyRange::partitions("b".."d"),
                "PartitionKey ge 'b' and PartitionKey le 'd'",
                vec![2, 3],
            ),
            (KeyRange::partitions("it's"..), "PartitionKey ge 'it''s'", vec![]),
            (KeyRange::partitions("\u{1}"..="b"), "PartitionKey le 'b'", vec![0, 1, 2]),
        ] {
            assert_eq!(filter(&range), expected);
            let is_within = |i: &usize| contains(&range, &Entity::new(keys[*i].0, keys[*i].1));
            assert_eq!((0..keys.len()).filter(is_within).collect::<Vec<_>>(), within);
        }
    }
}
