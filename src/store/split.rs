//! Divides a table into ranges of keys, for readers that work in parallel.

use super::pages::{PAGE_MAX, Side, quoted};
use super::slice::{Slice, order_of};
use super::table_store::TableStore;
use crate::error::Result;

/// Divides a table into about `parts` ranges of keys, for readers that work in parallel. Returns
/// filters in key order, of which exactly one matches each entity: also those that are inserted
/// later. None has an `or`, so each is read as a range.
///
/// The ranges divide the keys, and their numbers of entities may differ much. So ask for more parts
/// than there are readers, and let each reader take the next part when it has finished one. A part
/// with less than 1,000 entities is not divided. A part that begins or ends within a partition has
/// two or three filters. The search costs about 10 requests for each part.
///
/// ```
/// use rowstone::store::{PageQuery, TableStore, split};
/// use rowstone::{Db, Entity};
///
/// # fn main() -> rowstone::Result<()> {
/// let store = Db::open_in_memory()?;
/// let parts = store.create_table("parts")?;
/// for number in 0..2_000 {
///     parts.insert(Entity::new(format!("{:02}", number % 30), number.to_string()))?;
/// }
/// let mut count = 0;
/// for filter in split(&store, "parts", 4)? {
///     let query = PageQuery { filter: &filter, ..PageQuery::default() };
///     count += store.query("parts", &query)?.entities.len();
/// }
/// assert_eq!(count, 2_000);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Those of [`TableStore::query`]. If the store becomes too busy to search, there are fewer parts.
pub fn split(store: &dyn TableStore, table: &str, parts: usize) -> Result<Vec<String>> {
    split_above(Side { store, table }, parts, PAGE_MAX)
}

/// As [`split`], but divides parts that have at least `rows_min` entities.
fn split_above(side: Side<'_>, parts: usize, rows_min: usize) -> Result<Vec<String>> {
    let (mut open, mut slices) = (vec![Slice::default()], Vec::new());
    while open.len() + slices.len() < parts {
        let widest = (0..open.len()).max_by_key(|index| open[*index].width());
        let Some(widest) = widest else { break };
        let slice = open.swap_remove(widest);
        match slice.cut_if_free(side, rows_min)? {
            Some(cut) => {
                let after = Some(cut.clone());
                open.push(Slice { after: slice.after, until: Some(cut) });
                open.push(Slice { after, until: slice.until });
            }
            None => slices.push(slice),
        }
    }
    slices.append(&mut open);
    slices.sort_by_key(|slice| slice.after.as_ref().map(order_of));
    Ok(slices.iter().flat_map(filters).collect())
}

/// Returns the filters of a slice. A bound with an empty RowKey is before its partition, so that a
/// part of whole partitions has one filter.
fn filters(slice: &Slice) -> Vec<String> {
    let after = slice.after.as_ref().map(|(pk, rk)| (quoted(pk), rk));
    let until = slice.until.as_ref().map(|(pk, rk)| (quoted(pk), rk));
    let first = after.as_ref().filter(|(_, rk)| !rk.is_empty());
    let last = until.as_ref().filter(|(_, rk)| !rk.is_empty());
    let after_row = first.map(|(_, rk)| format!(" and RowKey gt {}", quoted(rk)));
    let until_row = last.map(|(_, rk)| format!(" and RowKey le {}", quoted(rk)));
    let pk = |key: &Option<(String, _)>| key.as_ref().map(|(pk, _)| pk.clone());
    let of = |pk: &str, rows: &[&Option<String>]| {
        let rows: String = rows.iter().filter_map(|row| row.as_deref()).collect();
        format!("PartitionKey eq {pk}{rows}")
    };
    match (pk(&after), pk(&until)) {
        (Some(p), Some(q)) if p == q => vec![of(&p, &[&after_row, &until_row])],
        (p, q) => {
            let operator = if first.is_some() { "gt" } else { "ge" };
            let low = p.as_ref().map(|p| format!("PartitionKey {operator} {p}"));
            let high = q.as_ref().map(|q| format!("PartitionKey lt {q}"));
            let middle = low.into_iter().chain(high).collect::<Vec<_>>().join(" and ");
            let first = after_row.is_some().then(|| of(&p.unwrap_or_default(), &[&after_row]));
            let last = until_row.is_some().then(|| of(&q.unwrap_or_default(), &[&until_row]));
            first.into_iter().chain([middle]).chain(last).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Db;
    use crate::model::Entity;
    use crate::store::failing::{Fail, failing};

    #[test]
    fn each_entity_is_in_exactly_one_part() {
        let db = Db::open_in_memory().unwrap();
        let table = db.create_table("Tab").unwrap();
        for (pk, rows) in [("", 3), ("a", 1), ("it's big", 90), ("o", 9), ("\u{1f600}", 4)] {
            for row in 0..rows {
                let row = if row == 0 { String::new() } else { format!("2013-{row:02}") };
                table.insert(Entity::new(pk, row)).unwrap();
            }
        }
        let side = Side { store: &db, table: "Tab" };
        let key = |row: Result<Entity>| {
            let row = row.unwrap();
            (row.partition_key().to_owned(), row.row_key().to_owned())
        };
        let all: Vec<_> = side.rows("", &[], 1_000).map(key).collect();
        for parts in [0, 1, 2, 3, 8, 20] {
            let filters = split_above(side, parts, 4).unwrap();
            assert!((parts..=3 * parts.max(1)).contains(&filters.len()), "{filters:?}");
            assert!(filters.iter().all(|filter| !filter.contains(" or ")));
            let rows = filters.iter().flat_map(|filter| side.rows(filter, &[], 1_000));
            assert_eq!(rows.map(key).collect::<Vec<_>>(), all, "{filters:?}");
        }
        assert_eq!(split(&db, "Tab", 8).unwrap(), [""]);
    }

    #[test]
    fn whole_partitions_are_one_filter() {
        let key = |pk: &str, rk: &str| Some((pk.to_owned(), rk.to_owned()));
        let of = |after, until| filters(&Slice { after, until });
        assert_eq!(of(None, None), [""]);
        assert_eq!(of(key("a", ""), None), ["PartitionKey ge 'a'"]);
        let expected = ["PartitionKey ge 'a' and PartitionKey lt 'b'"];
        assert_eq!(of(key("a", ""), key("b", "")), expected);
        let expected = ["PartitionKey eq 'a' and RowKey le '5'"];
        assert_eq!(of(key("a", ""), key("a", "5")), expected);
        let expected = [
            "PartitionKey eq 'a' and RowKey gt '5'",
            "PartitionKey gt 'a' and PartitionKey lt 'b'",
            "PartitionKey eq 'b' and RowKey le '1'",
        ];
        assert_eq!(of(key("a", "5"), key("b", "1")), expected);
    }

    #[test]
    fn a_busy_store_is_not_divided() {
        assert_eq!(split(&failing(Fail::Busy), "Tab", 4).unwrap(), [""]);
    }
}
