//! Slices of the key space of a table: the queries that read a slice, and the key at which a slice
//! is cut in two.
//!
//! Invariants
//! * the bounds of a slice are compared by the store that is read, by the same operators on both
//!   sides of a bound, so each entity is in exactly one slice;
//! * no query has an `or`, which is a scan of the whole table at Azure Table storage.

use super::pages::{Side, quoted};
use crate::error::{ErrorKind, Result};
use crate::format::key::user_key;
use crate::format::names::TableId;
use crate::model::Entity;

/// PartitionKey and RowKey.
pub(crate) type Key = (String, String);

/// The keys after `after` up to and including `until`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) after: Option<Key>,
    pub(crate) until: Option<Key>,
}

/// The maximum number of requests that search a cut.
const PROBES_MAX: usize = 96;
/// Bounds are made of characters below this one, for which the orders by UTF-8 and by UTF-16 agree.
const CHAR_END: u32 = 0xD800;
/// Stands for the end of a text. Keys have no characters up to this one.
const TEXT_END: u32 = 0x1F;
/// Follows the last printable ASCII character.
const ASCII_END: u32 = 0x7F;

impl Slice {
    /// Returns the filters that match the entities of the slice, in key order, each joined with
    /// `filter`.
    pub(crate) fn filters(&self, filter: &str) -> Vec<String> {
        let mut ranges = Vec::new();
        let (after, until) = (self.after.as_ref(), self.until.as_ref());
        if let (Some((p, r)), Some((q, s))) = (after, until)
            && p == q
        {
            let (p, r, s) = (quoted(p), quoted(r), quoted(s));
            ranges.push(format!("PartitionKey eq {p} and RowKey gt {r} and RowKey le {s}"));
        } else {
            if let Some((p, r)) = after {
                ranges.push(format!("PartitionKey eq {} and RowKey gt {}", quoted(p), quoted(r)));
            }
            let low = after.map(|(p, _)| format!("PartitionKey gt {}", quoted(p)));
            let high = until.map(|(q, _)| format!("PartitionKey lt {}", quoted(q)));
            ranges.push(low.into_iter().chain(high).collect::<Vec<_>>().join(" and "));
            if let Some((q, s)) = until {
                ranges.push(format!("PartitionKey eq {} and RowKey le {}", quoted(q), quoted(s)));
            }
        }
        ranges.iter().map(|range| both(range, filter)).collect()
    }

    /// Whether the key of `entity` is after the end of the slice.
    pub(crate) fn ends_before(&self, entity: &Entity) -> bool {
        self.until.as_ref().is_some_and(|until| order_of(until) < order(entity))
    }

    pub(crate) fn contains(&self, entity: &Entity) -> bool {
        let is_after = |after: &Key| order_of(after) < order(entity);
        self.after.as_ref().is_none_or(is_after) && !self.ends_before(entity)
    }

    pub(crate) fn overlaps(&self, other: &Slice) -> bool {
        let is_before = |end: &Option<Key>, start: &Option<Key>| match (end, start) {
            (Some(end), Some(start)) => order_of(end) <= order_of(start),
            _ => false,
        };
        !is_before(&self.until, &other.after) && !is_before(&other.until, &self.after)
    }

    /// Returns a measure of the part of the key space in the slice: a slice with a shorter common
    /// prefix of its bounds is larger, then one with a greater difference behind the prefix.
    pub(crate) fn width(&self) -> (std::cmp::Reverse<usize>, u64) {
        let bytes = |key: &Option<Key>| key.as_ref().map(order_of);
        let low = bytes(&self.after).unwrap_or_default();
        let high = bytes(&self.until).unwrap_or_else(|| vec![u8::MAX]);
        let same = low.iter().zip(&high).take_while(|(a, b)| a == b).count();
        let number = |bytes: &[u8]| {
            (0..8).fold(0u64, |sum, i| sum << 8 | u64::from(*bytes.get(same + i).unwrap_or(&0)))
        };
        (std::cmp::Reverse(same), number(&high).saturating_sub(number(&low)))
    }

    /// As [`cut`](Self::cut), but returns `None` if the store is too busy to search.
    pub(crate) fn cut_if_free(&self, side: Side<'_>, rows_min: usize) -> Result<Option<Key>> {
        match self.cut(side, rows_min) {
            Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::Timeout) => Ok(None),
            cut => cut,
        }
    }

    /// Returns a key that has entities of the slice before and after it. Returns `None` if there
    /// are fewer than `rows_min` entities, or if no key is found.
    fn cut(&self, side: Side<'_>, rows_min: usize) -> Result<Option<Key>> {
        let keys = ["PartitionKey", "RowKey"].map(str::to_owned);
        let mut pages = side.pages(self.filters(""), &keys, rows_min);
        let (mut first, mut count) = (None, 0);
        while count < rows_min {
            let Some(page) = pages.next()? else { return Ok(None) };
            count += page.len();
            first = first.or_else(|| page.into_iter().next());
        }
        let Some(first) = first else { return Ok(None) };
        let (pk, rk) = (first.partition_key(), first.row_key());
        let end = self.until.as_ref();
        if end.is_none_or(|(q, _)| q != pk) {
            let end = end.map(|(q, _)| q.as_str());
            if let Some(cut) = bisect(side, "PartitionKey", "", pk, end, &keys)? {
                return Ok(Some((cut, String::new())));
            }
        }
        // The last partitions of a slice may be its only ones: the cut is then in the first.
        let end = end.filter(|(q, _)| q == pk).map(|(_, s)| s.as_str());
        let within = format!("PartitionKey eq {}", quoted(pk));
        let cut = bisect(side, "RowKey", &within, rk, end, &keys)?;
        Ok(cut.map(|cut| (pk.to_owned(), cut)))
    }
}

/// Searches a text after `low`, for which there are entities whose property `key` is greater, and
/// less than `end`.
fn bisect(
    side: Side<'_>,
    key: &str,
    within: &str,
    low: &str,
    end: Option<&str>,
    keys: &[String],
) -> Result<Option<String>> {
    let has_after = |text: &str| {
        let range = format!("{key} gt {}", quoted(text));
        let high = end.map(|end| format!("{key} lt {}", quoted(end))).unwrap_or_default();
        let filter = both(&both(within, &range), &high);
        side.pages(vec![filter], keys, 1).next().map(|page| page.is_some())
    };
    if !has_after(low)? {
        return Ok(None);
    }
    let mut high = end.map(str::to_owned);
    for _ in 0..PROBES_MAX {
        let Some(middle) = midpoint(low, high.as_deref()) else { return Ok(None) };
        if has_after(&middle)? {
            return Ok(Some(middle));
        }
        high = Some(middle);
    }
    Ok(None)
}

/// Returns a text between two texts; `None` for `high` is after all texts. May return `None`
/// although there is one.
fn midpoint(low: &str, high: Option<&str>) -> Option<String> {
    let mut lows = low.chars();
    let mut highs = high.map(str::chars);
    let mut text = String::new();
    loop {
        let least = lows.next().map_or(TEXT_END, u32::from);
        let unlimited = if least < ASCII_END - 1 { ASCII_END } else { CHAR_END };
        let most = match &mut highs {
            Some(highs) => highs.next().map_or(TEXT_END, u32::from).min(CHAR_END),
            None => unlimited,
        };
        if most > least + 1 {
            text.push(char::from_u32(least.midpoint(most))?);
            return Some(text);
        }
        if least <= TEXT_END || least >= CHAR_END || most < least {
            return None;
        }
        text.push(char::from_u32(least)?);
        if most > least {
            highs = None;
        }
    }
}

/// Joins two filters; an empty one matches everything.
pub(crate) fn both(a: &str, b: &str) -> String {
    match (a, b) {
        (one, "") | ("", one) => one.to_owned(),
        _ => format!("({a}) and ({b})"),
    }
}

/// Returns bytes whose order is the order of entities in a table.
pub(crate) fn order(entity: &Entity) -> Vec<u8> {
    user_key(TableId::CATALOG, entity.partition_key(), entity.row_key())
}

pub(super) fn order_of((partition_key, row_key): &Key) -> Vec<u8> {
    user_key(TableId::CATALOG, partition_key, row_key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Db;
    use crate::store::TableStore;
    use crate::store::failing::{Fail, failing};

    fn key(pk: &str, rk: &str) -> Option<Key> {
        Some((pk.to_owned(), rk.to_owned()))
    }

    #[test]
    fn a_slice_is_read_by_ranges_without_or() {
        let slice = Slice { after: key("a'b", "1"), until: key("c", "9") };
        let expected = [
            "(PartitionKey eq 'a''b' and RowKey gt '1') and (N eq 1 or N eq 2)",
            "(PartitionKey gt 'a''b' and PartitionKey lt 'c') and (N eq 1 or N eq 2)",
            "(PartitionKey eq 'c' and RowKey le '9') and (N eq 1 or N eq 2)",
        ];
        assert_eq!(slice.filters("N eq 1 or N eq 2"), expected);
        let slice = Slice { after: key("a", "1"), until: key("a", "9") };
        let expected = ["PartitionKey eq 'a' and RowKey gt '1' and RowKey le '9'"];
        assert_eq!(slice.filters(""), expected);
        assert_eq!(Slice::default().filters(""), [""]);
    }

    #[test]
    fn a_slice_contains_its_end_but_not_its_beginning() {
        let slice = Slice { after: key("a", "1"), until: key("b", "1") };
        let contains = |(pk, rk)| slice.contains(&Entity::new(pk, rk));
        let keys = [("a", "1"), ("a", "10"), ("aa", "0"), ("b", "1"), ("b", "2")];
        assert_eq!(keys.map(contains), [false, true, true, true, false]);
        assert!(Slice::default().contains(&Entity::new("", "")));
        let next = Slice { after: key("b", "1"), until: key("c", "1") };
        let overlaps = |other: &Slice| (slice.overlaps(other), other.overlaps(&slice));
        assert_eq!(overlaps(&next), (false, false));
        assert_eq!(overlaps(&Slice { after: key("b", "0"), ..next }), (true, true));
        assert_eq!(overlaps(&Slice::default()), (true, true));
    }

    #[test]
    fn a_busy_store_ends_the_search_of_a_cut() {
        let store = failing(Fail::Busy);
        let side = Side { store: &store, table: "Tab" };
        assert_eq!(Slice::default().cut(side, 4).unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(Slice::default().cut_if_free(side, 4).unwrap(), None);
    }

    #[test]
    fn a_midpoint_is_between() {
        for (low, high) in [
            ("", None),
            ("a", None),
            ("a", Some("c")),
            ("a", Some("b")),
            ("2013-01-01", Some("2013-12-31")),
            ("~~", None),
            ("\u{4e00}", None),
            ("a", Some("a0")),
        ] {
            let middle = midpoint(low, high).unwrap_or_else(|| panic!("{low} {high:?}"));
            assert!(low < middle.as_str(), "{low} {middle}");
            assert!(high.is_none_or(|high| middle.as_str() < high), "{middle} {high:?}");
        }
        assert_eq!(midpoint("a", Some("a ")), None);
        assert_eq!(midpoint("\u{1f600}", None), None);
    }

    /// Cuts every slice again and again, and checks that each entity is in exactly one slice.
    #[test]
    fn cuts_divide_a_table_into_slices() {
        let db = Db::open_in_memory().unwrap();
        let table = db.create_table("Tab").unwrap();
        let mut all = Vec::new();
        for (pk, rows) in [("", 3), ("a", 1), ("one big partition", 90), ("\u{1f600}", 4)] {
            for row in 0..rows {
                table.insert(Entity::new(pk, format!("2013-{row:02}"))).unwrap();
                all.push((pk.to_owned(), format!("2013-{row:02}")));
            }
        }
        let side = Side { store: &db as &dyn TableStore, table: "Tab" };
        let (mut slices, mut small) = (vec![Slice::default()], Vec::new());
        while let Some(slice) = slices.pop() {
            match slice.cut(side, 4).unwrap() {
                Some(cut) => {
                    let after = Some(cut.clone());
                    slices.push(Slice { after, until: slice.until });
                    slices.push(Slice { after: slice.after, until: Some(cut) });
                }
                None => small.push(slice),
            }
        }
        assert!(small.len() > 20, "{}", small.len());
        let mut read = Vec::new();
        for slice in &small {
            let mut pages = side.pages(slice.filters(""), &[], 2);
            while let Some(page) = pages.next().unwrap() {
                assert!(page.iter().all(|entity| !slice.ends_before(entity)));
                let keys = page.iter().map(|e| (e.partition_key().into(), e.row_key().into()));
                read.extend(keys);
            }
        }
        read.sort();
        all.sort();
        assert_eq!(read, all);
    }
}
