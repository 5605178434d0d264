//! Keys whose order is useful: the helpers of `rowstone::keys`, as a store sorts them.
//!
//! Keys are texts, sorted by UTF-16 unit: `10` is before `9`, and a character of two units before
//! U+FFFD. So numbers are padded, and newest-first needs inverted numbers or reversed times. A
//! bucket in the PartitionKey spreads keys that are written in order.
//!
//! Do not use buckets if a reader wants ranges of the key: each range costs a query per bucket. Do
//! not pad to fewer digits than the numbers will ever have, because keys cannot be changed.

use std::collections::BTreeSet;

use rowstone::keys::{bucket, invert, pad, reverse_date};
use rowstone::store::TableStore;
use rowstone::{DateTime, Entity, Filter};

mod cookbook;
use cookbook::{Groups, Result};

const KEYS: &str = "Keys";
/// The number of buckets of the keys of hours.
pub const BUCKETS: u32 = 4;

fn main() -> Result<()> {
    let store = &*cookbook::store_of_arguments()?;
    println!("numbers: {:?}", sorted(store, "pad", &padded(&[10, 9, 100])?)?);
    println!("the greatest first: {:?}", sorted(store, "invert", &inverted(&[10, 9, 100]))?);
    let times = ["2013-01-01T05:00Z", "2013-02-01T05:00Z"];
    println!("the newest first: {:?}", sorted(store, "reverse_date", &reversed(&times)?)?);
    println!("any characters: {:?}", sorted(store, "text", &unusual())?);
    println!("hours in {BUCKETS} buckets: {:?}", spread(store)?);
    println!("RowKeys with the prefix Z: {}", prefixed(store, "text", "Z")?);
    Ok(())
}

/// Writes the labels under their keys and returns the labels as the store sorts them.
pub fn sorted(
    store: &dyn TableStore,
    partition: &str,
    rows: &[(String, String)],
) -> Result<Vec<String>> {
    let mut groups = Groups::new(store, KEYS)?;
    for (key, label) in rows {
        groups.upsert(Entity::new(partition, key).with("Label", label.as_str()))?;
    }
    groups.finish()?;
    let mut labels = Vec::new();
    cookbook::for_each(store, KEYS, &Filter::partition(partition).to_string(), &[], |row| {
        labels.push(row.get::<String>("Label")?);
        Ok(())
    })?;
    Ok(labels)
}

/// Returns keys with leading zeros: the least number is first.
pub fn padded(numbers: &[u64]) -> Result<Vec<(String, String)>> {
    let key = |number: &u64| Ok((pad(*number, 20)?, number.to_string()));
    numbers.iter().map(key).collect()
}

/// Returns inverted keys: the greatest number is first.
pub fn inverted(numbers: &[u64]) -> Vec<(String, String)> {
    numbers.iter().map(|number| (invert(*number), number.to_string())).collect()
}

/// Returns reversed keys: the newest time is first.
pub fn reversed(times: &[&str]) -> Result<Vec<(String, String)>> {
    let key = |time: &&str| Ok((reverse_date(time.parse::<DateTime>()?), (*time).to_owned()));
    times.iter().map(key).collect()
}

/// Returns texts whose order by UTF-16 units is not their order by bytes of UTF-8.
pub fn unusual() -> Vec<(String, String)> {
    let texts = ["\u{fffd}", "\u{1f6eb}", "é", "Z", "a", "Zürich", "\u{d7ff}", "\u{e000}", "z"];
    texts.map(|text| (text.to_owned(), text.to_owned())).to_vec()
}

/// Writes a row for each hour with flights, in a partition of its bucket. Returns the number of
/// rows of each bucket.
pub fn spread(store: &dyn TableStore) -> Result<Vec<usize>> {
    let mut groups = Groups::new(store, KEYS)?;
    let mut hours = BTreeSet::new();
    cookbook::for_each_flight(|flight| {
        hours.insert(flight.time_hour);
        Ok(())
    })?;
    for hour in hours {
        let partition = format!("hour_{}", bucket(&hour, BUCKETS));
        groups.upsert(Entity::new(partition, hour))?;
    }
    groups.finish()?;
    let count = |number| {
        cookbook::count(store, KEYS, &Filter::partition(format!("hour_{number}")).to_string())
    };
    (0..BUCKETS).map(count).collect()
}

/// Counts the rows of a partition whose RowKeys begin with a prefix: one range.
pub fn prefixed(store: &dyn TableStore, partition: &str, prefix: &str) -> Result<usize> {
    cookbook::count(store, KEYS, &Filter::row_prefix(partition, prefix).to_string())
}
