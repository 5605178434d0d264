//! The index of a view: for each source row, the view partitions that have a contribution of it.
//!
//! All rows of the index are in one partition, whose mark is the checkpoint. So from the moment a
//! runner has written the checkpoint it knows all rows that earlier runners have listed, and those
//! can list no more.

use std::collections::{BTreeMap, BTreeSet};

use super::mark::{Change, GROUP_BYTES, Place, Runner};
use crate::error::Result;
use crate::model::{Entity, GROUP_OPERATIONS_MAX};
use crate::query::KeyRange;
use crate::store::pages::quoted;
use crate::table::Operation;

/// PartitionKey and RowKey of a source row.
pub(super) type Key = (String, String);
/// The view partitions with a contribution of each source row.
pub(super) type Partitions<'r> = BTreeMap<&'r Key, BTreeSet<String>>;

/// The tables of a view.
#[derive(Clone, Copy)]
pub(super) struct Tables<'v> {
    pub(super) view: &'v str,
    pub(super) index: &'v str,
}

/// The PartitionKey of all rows of the index.
pub(super) const PARTITION: &str = "";
/// The first character of the RowKeys of listed rows.
const LISTED: &str = "=";
/// Between PartitionKey and RowKey of a listed row. The space is the least character of a key.
const END: &str = " !";
/// A space in a PartitionKey. It is greater than [`END`], which keeps the order of the keys.
const SPACE: &str = " \"";
const PARTITIONS: &str = "Partitions";
/// No key has this character.
const SEPARATOR: char = '\n';

impl<'v> Tables<'v> {
    pub(super) fn checkpoint(self) -> Place<'v> {
        Place(self.index, PARTITION, "checkpoint")
    }
}

/// Returns the RowKey of a listed row. The order of the rows is that of the source.
pub(super) fn index_key((pk, rk): &Key) -> String {
    format!("{LISTED}{}{END}{rk}", escaped(pk))
}

fn escaped(pk: &str) -> String {
    pk.replace(' ', SPACE)
}

/// Returns the keys of the source row of a listed row.
pub(super) fn source_key(row: &Entity) -> Option<Key> {
    let (pk, rk) = row.row_key().strip_prefix(LISTED)?.split_once(END)?;
    Some((pk.replace(SPACE, " "), rk.to_owned()))
}

/// Returns a filter that matches the listed rows of a range of the source, and perhaps others.
pub(super) fn filter(range: &KeyRange) -> String {
    // A bound of a range may have characters that no key has.
    let bounds = range.partition_bounds();
    let [low, high] = bounds.map(|key| key.filter(|key| !key.contains(char::is_control)));
    let low = format!("{LISTED}{}", low.map(escaped).unwrap_or_default());
    let high = high.map_or(">".to_owned(), |high| format!("{LISTED}{}{SPACE}", escaped(high)));
    let keys = format!("RowKey ge {} and RowKey lt {}", quoted(&low), quoted(&high));
    format!("PartitionKey eq '{PARTITION}' and {keys}")
}

/// Lists the view partitions that `new` returns for the keys and the partitions that are listed.
/// Returns the new ones.
pub(super) fn list<'r>(
    runner: &Runner<'_>,
    tables: Tables<'_>,
    keys: &[&'r Key],
    new: impl Fn(&Key, &BTreeSet<String>) -> BTreeSet<String>,
) -> Result<Partitions<'r>> {
    let (mut left, mut all) = (keys, Partitions::new());
    while !left.is_empty() {
        let done = runner.commit(tables.checkpoint(), |mark| {
            let (mut done, mut operations, mut bytes) = (Partitions::new(), Vec::new(), 0);
            for key in left {
                if operations.len() + 1 >= GROUP_OPERATIONS_MAX || bytes > GROUP_BYTES {
                    break;
                }
                let rk = index_key(key);
                let row = runner.store.get(tables.index, PARTITION, &rk, &[])?;
                let text = row.map(|row| row.get::<String>(PARTITIONS)).transpose()?;
                let split = |text: String| text.split(SEPARATOR).map(str::to_owned).collect();
                let old: BTreeSet<String> = text.map(split).unwrap_or_default();
                let new = new(key, &old);
                if new != old {
                    let row = listed(&rk, &new);
                    bytes += row.size_at_most();
                    operations.push(match new.is_empty() {
                        true => Operation::Delete {
                            partition_key: PARTITION.to_owned(),
                            row_key: rk,
                            etag: None,
                        },
                        false => Operation::Upsert(row),
                    });
                }
                done.insert(*key, new);
            }
            Ok((done, Change { operations, position: mark.position }))
        })?;
        left = left.get(done.len()..).unwrap_or_default();
        all.extend(done);
    }
    Ok(all)
}

fn listed(rk: &str, partitions: &BTreeSet<String>) -> Entity {
    let partitions: Vec<&str> = partitions.iter().map(String::as_str).collect();
    Entity::new(PARTITION, rk).with(PARTITIONS, partitions.join(&SEPARATOR.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_rows_have_the_order_of_the_source() {
        let parts = ["", " ", "!", "!x", "a", "a ", "a  ", "a !", "a b", "a!", "ab", "b"];
        let keys: Vec<Key> =
            parts.iter().flat_map(|pk| parts.map(|rk| ((*pk).to_owned(), rk.to_owned()))).collect();
        let listed: Vec<String> = keys.iter().map(index_key).collect();
        assert!(keys.is_sorted() && listed.is_sorted());
        for (key, listed) in keys.iter().zip(listed) {
            assert_eq!(source_key(&Entity::new("", listed)).as_ref(), Some(key));
        }
        assert_eq!(source_key(&Entity::new("", "checkpoint")), None);
    }

    #[test]
    fn the_filter_of_a_range() {
        for (range, low, high) in [
            (KeyRange::all(), "=", ">"),
            (KeyRange::partition("a b"), "=a \"b", "=a \"b \""),
            (KeyRange::partitions("it's"..), "=it''s", ">"),
            (KeyRange::partitions("\u{1}"..="b"), "=", "=b \""),
        ] {
            let keys = format!("RowKey ge '{low}' and RowKey lt '{high}'");
            assert_eq!(filter(&range), format!("PartitionKey eq '' and {keys}"));
        }
    }
}
