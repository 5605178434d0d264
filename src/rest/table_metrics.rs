//! Writes the sizes and loads of tables and ranges in the Prometheus text format. The number of
//! label values is bounded: only the largest tables and the busiest ranges of a database have their
//! own samples.
//!
//! `db::stats` has the counters of databases, and `db::partitions` describes ranges.

use std::collections::BTreeMap;

use crate::db::prometheus::{Exposition, Metric};
use crate::db::{Db, PartitionRange};
use crate::format::span::Span;

/// The maximum number of tables per database that have their own samples. All other tables of the
/// database share one sample per metric.
const TABLES_MAX: usize = 50;
/// The maximum number of ranges per database that have samples.
const RANGES_MAX: usize = 50;
/// The label value of the sample that the other tables share. It is not a valid table name.
const OTHERS: &str = "(others)";

/// The metrics of tables and ranges. Each has the end of its name, its help text, and the function
/// that returns its value.
type Column = (&'static str, &'static str, fn(&Sums) -> f64);
const COLUMNS: [Column; 6] = [
    ("ranges", "Number of ranges.", |sums| sums.ranges),
    ("bytes", "Size of the files, counting only the parts that belong here.", |sums| sums.bytes),
    ("entities", "Number of entities in files, counting all versions.", |sums| sums.entities),
    ("merge_debt_bytes", "Bytes of newer files that await merging.", |sums| sums.debt),
    ("reads_per_second", "Entities read per second; half-life one minute.", |sums| sums.reads),
    ("writes_per_second", "Entities written per second; half-life one minute.", |sums| sums.writes),
];

/// The values of one range, or the sums over all ranges of one or several tables.
#[derive(Clone, Copy, Default)]
struct Sums {
    ranges: f64,
    bytes: f64,
    entities: f64,
    debt: f64,
    reads: f64,
    writes: f64,
}

/// A row of the output: the values of the labels after `account`, and the sums.
type Row = (Vec<String>, Sums);

/// Writes the metrics of the tables and ranges of several databases, each with its account.
pub(crate) fn put(out: &mut Exposition, databases: &[(&str, &Db)]) {
    let found: Vec<_> = databases.iter().map(|(account, db)| (*account, rows(db))).collect();
    for (column, (end, help, value)) in COLUMNS.iter().enumerate() {
        put_metric(out, ("rowstone_table_", end, help), &["table"], &found, |(tables, _)| {
            tables.iter().map(|(labels, sums)| (labels, value(sums))).collect()
        });
        // The first metric, the number of ranges, exists only for tables.
        if column > 0 {
            put_metric(out, ("rowstone_range_", end, help), &["table", "range"], &found, |found| {
                found.1.iter().map(|(labels, sums)| (labels, value(sums))).collect()
            });
        }
    }
}

fn put_metric<'f, F>(
    out: &mut Exposition,
    (start, end, help): (&str, &str, &'static str),
    names: &[&str],
    databases: &'f [(&str, F)],
    rows: impl Fn(&'f F) -> Vec<(&'f Vec<String>, f64)>,
) {
    let metric = Metric { name: format!("{start}{end}"), kind: "gauge", help };
    out.begin(&metric);
    for (account, found) in databases {
        for (values, value) in rows(found) {
            let others = names.iter().zip(values).map(|(name, value)| (*name, &**value));
            let labels: Vec<_> = [("account", *account)].into_iter().chain(others).collect();
            out.sample(&metric.name, &labels, value);
        }
    }
}

/// Returns the rows of the tables, largest first, and of the ranges, busiest first.
fn rows(db: &Db) -> (Vec<Row>, Vec<Row>) {
    let (mut tables, mut ranges) = (BTreeMap::<String, Sums>::new(), Vec::new());
    for (name, range) in db.ranges_in(&Span::all()) {
        let sums = Sums::of(&range);
        tables.entry(name.to_string()).or_default().add(&sums);
        ranges.push((vec![name.to_string(), format!("r{}", range.id)], sums));
    }
    let mut tables: Vec<Row> = tables.into_iter().map(|(name, sums)| (vec![name], sums)).collect();
    tables.sort_by(|(_, a), (_, b)| b.bytes.total_cmp(&a.bytes));
    if tables.len() > TABLES_MAX {
        let mut others = Sums::default();
        tables.drain(TABLES_MAX..).for_each(|(_, sums)| others.add(&sums));
        tables.push((vec![OTHERS.to_owned()], others));
    }
    let load = |sums: &Sums| sums.reads + sums.writes;
    ranges.sort_by(|(_, a): &Row, (_, b)| {
        load(b).total_cmp(&load(a)).then(b.bytes.total_cmp(&a.bytes))
    });
    ranges.truncate(RANGES_MAX);
    (tables, ranges)
}

impl Sums {
    fn of(range: &PartitionRange) -> Self {
        Self {
            ranges: 1.0,
            bytes: range.bytes as f64,
            entities: range.entities as f64,
            debt: range.debt as f64,
            reads: range.reads,
            writes: range.writes,
        }
    }

    fn add(&mut self, other: &Sums) {
        self.ranges += other.ranges;
        self.bytes += other.bytes;
        self.entities += other.entities;
        self.debt += other.debt;
        self.reads += other.reads;
        self.writes += other.writes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Entity;

    #[test]
    fn the_number_of_samples_is_bounded_and_their_sum_is_complete() {
        let db = Db::open_in_memory().unwrap();
        for table in 0..60 {
            let table = db.create_table(&format!("Table{table:02}")).unwrap();
            table.insert(Entity::new("p", "r").with("A", 1)).unwrap();
        }
        db.flush().unwrap();
        let mut out = Exposition::new();
        put(&mut out, &[("shop", &db)]);
        let text = out.into_text();
        let values = |start: &str| -> Vec<f64> {
            let lines = text.lines().filter(|line| line.starts_with(start));
            lines.map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect()
        };
        let entities = values("rowstone_table_entities{");
        assert_eq!((entities.len(), entities.iter().sum::<f64>()), (TABLES_MAX + 1, 60.0));
        assert!(text.contains("rowstone_table_ranges{account=\"shop\",table=\"(others)\"} 10\n"));
        assert_eq!(values("rowstone_range_bytes{").len(), RANGES_MAX);
        assert!(text.contains("rowstone_range_reads_per_second{account=\"shop\",table=\"Table"));
        assert!(!text.contains("rowstone_range_ranges"));
    }
}
