//! Provides the counters and sizes of a database by name, with their meanings and units, also in
//! the Prometheus text format.
//!
//! Invariant: every field has a line in the table `stats.md`, and every line describes a field.
//! `lsm::inspect` and `table::counts` do the counting; `rest::metrics` has the server's counters.

use super::prometheus::{Exposition, Metric};

/// Counters and sizes of an open database, by documented name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    fields: Vec<(&'static str, u64)>,
}

/// The description of a field.
struct Field {
    name: &'static str,
    /// The unit of the field's value.
    unit: &'static str,
    kind: &'static str,
    /// The field's meaning, in a sentence.
    help: &'static str,
}

/// The documentation of all fields as a Markdown table: name, unit, kind (`total`: counted since
/// opening; `now`: the current value), meaning.
const TABLE: &str = include_str!("stats.md");

impl Stats {
    pub(super) fn new(fields: Vec<(&'static str, u64)>) -> Self {
        Self { fields }
    }

    /// Returns all fields, in a fixed order. Fields marked `total` count since opening; the others
    /// are current values.
    ///
    #[doc = include_str!("stats.md")]
    pub fn fields(&self) -> &[(&'static str, u64)] {
        &self.fields
    }

    /// Returns the value of one field.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| *value)
    }

    /// Returns the unit of a field: `bytes`, `commits`, `microseconds`, ….
    pub fn unit(name: &str) -> Option<&'static str> {
        field(name).map(|field| field.unit)
    }

    /// Returns the meaning of a field, in a sentence.
    pub fn meaning(name: &str) -> Option<&'static str> {
        field(name).map(|field| field.help)
    }

    /// Returns all fields in the Prometheus text format. Names begin with `rowstone_`, and names of
    /// counters end with `_total`. Times are in seconds, and percentages are given as ratios: 50 %
    /// is 0.5.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// let db = rowstone::Db::open_in_memory()?;
    /// let text = db.stats().to_prometheus();
    /// assert!(text.contains("# TYPE rowstone_commits_total counter\nrowstone_commits_total "));
    /// # Ok(())
    /// # }
    /// ```
    pub fn to_prometheus(&self) -> String {
        let mut out = Exposition::new();
        put_all(&mut out, &[(&[], self)]);
        out.into_text()
    }
}

/// Writes the fields of several databases, each with its labels, grouped by metric.
pub(crate) fn put_all(out: &mut Exposition, all: &[(&[(&str, &str)], &Stats)]) {
    for field in table() {
        let (metric, units) = metric(&field);
        out.begin(&metric);
        for (labels, stats) in all {
            if let Some(value) = stats.get(field.name) {
                out.sample(&metric.name, labels, value as f64 / units);
            }
        }
    }
}

/// Returns the lines of the table.
fn table() -> impl Iterator<Item = Field> {
    TABLE.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
        let name = cells.next()?.trim_end_matches('`');
        let unit = cells.next()?;
        let kind = if cells.next()? == "total" { "counter" } else { "gauge" };
        Some(Field { name, unit, kind, help: cells.next()? })
    })
}

fn field(name: &str) -> Option<Field> {
    table().find(|field| field.name == name)
}

/// Returns the metric of a field, and the divisor that converts the field's value into the metric's
/// base unit, such as seconds.
fn metric(field: &Field) -> (Metric, f64) {
    let (base, units) = match field.unit {
        "percent" => (field.name.replace("_percent", "_ratio"), 100.0),
        "microseconds" => (field.name.replace("_micros", "_seconds"), 1e6),
        _ => (field.name.to_owned(), 1.0),
    };
    let end = if field.kind == "counter" { "_total" } else { "" };
    let name = format!("rowstone_{base}{end}");
    (Metric { name, kind: field.kind, help: field.help }, units)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Db;

    #[test]
    fn every_field_is_described_and_every_description_has_a_field() {
        let stats = Db::open_in_memory().unwrap().stats();
        let names: Vec<_> = stats.fields().iter().map(|(name, _)| *name).collect();
        let described: Vec<_> = table().map(|field| field.name).collect();
        assert_eq!(names, described);
        for name in names {
            assert!(Stats::unit(name).is_some_and(|unit| !unit.is_empty()), "{name}");
            assert!(Stats::meaning(name).is_some_and(|help| help.ends_with('.')), "{name}");
        }
        assert_eq!((Stats::unit("colour"), Stats::meaning("colour")), (None, None));
    }

    /// Parses the text as a scraper does: each sample belongs to the metric before it.
    #[test]
    fn the_text_for_prometheus_can_be_read_back() {
        let db = Db::open_in_memory().unwrap();
        db.create_table("things").unwrap();
        let stats = db.stats();
        let text = stats.to_prometheus();
        let (mut begun, mut seen) = (None, 0);
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                assert!(
                    rest.split_once(' ').is_some_and(|(_, help)| help.ends_with('.')),
                    "{line}"
                );
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                begun = rest.split_once(' ');
                assert!(matches!(begun, Some((_, "counter" | "gauge"))), "{line}");
            } else {
                let (name, value) = line.split_once(' ').unwrap();
                let (metric, kind) = begun.unwrap();
                assert_eq!(name, metric);
                assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
                assert!(name.strip_prefix("rowstone_").is_some_and(|rest| {
                    rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
                }));
                assert!(value.parse::<f64>().unwrap() >= 0.0, "{line}");
                seen += 1;
            }
        }
        assert_eq!(seen, stats.fields().len());
        assert!(text.contains("\nrowstone_tables 1\n"), "{text}");
        let micros = field("stall_micros").unwrap();
        assert_eq!(metric(&micros).0.name, "rowstone_stall_seconds_total");
        assert_eq!(2_500_000.0 / metric(&micros).1, 2.5);
        let percent = field("write_amplification_percent").unwrap();
        assert_eq!(metric(&percent).0.name, "rowstone_write_amplification_ratio");
        assert_eq!(250.0 / metric(&percent).1, 2.5);
    }
}
