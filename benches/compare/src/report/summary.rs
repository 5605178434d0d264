//! Summarizes the result lines. Each row of the report gets medians and spreads, the best peer (the
//! best of the other engines), the ratio of rowstone to it, and the physical limit.
//!
//! Invariants
//! * summaries depend only on the result lines, so that a report can be written anywhere, at any
//!   time;
//! * a ratio above 1 means that rowstone is ahead, whether more or less of the unit is better;
//! * a failed row is reported as failed.

use std::collections::{BTreeMap, BTreeSet};

use super::growth::{self, Growth};
use super::limit::Limit;
use crate::engines::Engine;
use crate::limits::Limits;
use crate::measure::Latency;
use crate::results::{Figures, Key, Results};
use crate::rows::{self, ROWS, Row, Unit};
use crate::store::Encoding;
use crate::targets::{Among, TARGETS, Target};

/// An engine with one of its encodings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Side {
    pub engine: Engine,
    pub encoding: Encoding,
}

/// The figures of one engine and encoding in one row, over all repetitions.
#[derive(Clone, Debug)]
pub struct Cell {
    pub side: Side,
    /// The median of the repetitions; `low` and `high` are their extremes. The following figures
    /// are medians, too.
    pub value: f64,
    pub low: f64,
    pub high: f64,
    pub repetitions: usize,
    pub latency: Option<Latency>,
    pub cpu_micros_each: f64,
    pub peak_bytes: f64,
    pub anonymous_bytes: f64,
    /// Bytes sent to storage per raw byte.
    pub written_times: f64,
    pub disk_bytes: Option<f64>,
    pub raw_bytes_each: f64,
    pub entities: f64,
    pub note: Option<String>,
}

/// A row of the table.
pub struct Entry {
    pub row: &'static Row,
    pub entities: u64,
    pub cells: Vec<Cell>,
    pub ours: Option<Cell>,
    pub best: Option<Cell>,
    /// How many times better rowstone is than the best peer.
    pub ratio: Option<f64>,
    pub limit: Option<Limit>,
    /// The targets of the row, each with the ratio that was reached.
    pub targets: Vec<(&'static Target, f64)>,
    /// The comparison with the row's smallest size, for growth rows.
    pub growth: Option<Growth>,
    pub failed: Vec<(Side, String)>,
}

/// Returns the rows of one form, in the order of the table.
pub fn entries(results: &Results, form: &str) -> Vec<Entry> {
    let mut groups: BTreeMap<(&str, u64), BTreeMap<Side, Vec<&Figures>>> = BTreeMap::new();
    for (key, figures) in results.figures.iter().filter(|(key, _)| key.form == form) {
        let sides = groups.entry((&key.row, key.entities)).or_default();
        sides.entry(side(key)).or_default().push(figures);
    }
    let failed: Vec<&Key> = results.failed.keys().filter(|key| key.form == form).collect();
    let sizes_of = |row: &Row| -> BTreeSet<u64> {
        let measured = groups.keys().filter(|(name, _)| *name == row.name).map(|(_, size)| *size);
        measured
            .chain(failed.iter().filter(|key| key.row == row.name).map(|key| key.entities))
            .collect()
    };
    let cells_of = |name: &str, entities: u64| -> Vec<Cell> {
        let sides = groups.get(&(name, entities));
        sides.into_iter().flatten().map(|(side, figures)| Cell::of(*side, figures)).collect()
    };
    let mut entries = Vec::new();
    for row in ROWS {
        for entities in sizes_of(row) {
            let cells = cells_of(row.name, entities);
            let peers = row.peer_row.map_or_else(|| cells.clone(), |name| cells_of(name, entities));
            let failures = results.failed.iter().filter(|(key, _)| {
                key.form == form && key.row == row.name && key.entities == entities
            });
            let failed = failures.map(|(key, why)| (side(key), why.clone())).collect();
            entries.push(Entry::of(row, entities, cells, &peers, failed, results.limits.get(form)));
        }
    }
    growth::compare_sizes(&mut entries, results.limits.get(form));
    entries
}

fn side(key: &Key) -> Side {
    Side { engine: key.engine, encoding: key.encoding }
}

/// Returns the median: the middle value, or the mean of the two middle values if the number of
/// values is even. Requires at least one value.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// Returns the median; `None` of no values.
fn median_of(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| median(values))
}

impl Cell {
    fn of(side: Side, figures: &[&Figures]) -> Self {
        let of = |value: fn(&Figures) -> f64| median(figures.iter().map(|figures| value(figures)));
        let values = || figures.iter().map(|figures| figures.value);
        let raw = |f: &Figures| f.raw_bytes_each * f.entities.max(f.ops).max(1) as f64;
        let latencies: Vec<Latency> =
            figures.iter().filter_map(|figures| figures.latency).collect();
        let percentile = |value: fn(&Latency) -> u64| {
            median(latencies.iter().map(|latency| value(latency) as f64)) as u64
        };
        let disks = figures.iter().filter_map(|f| f.disk_bytes.map(|bytes| bytes as f64));
        Self {
            side,
            value: median(values()),
            low: values().fold(f64::INFINITY, f64::min),
            high: values().fold(f64::NEG_INFINITY, f64::max),
            repetitions: figures.len(),
            latency: (!latencies.is_empty()).then(|| Latency {
                samples: latencies.iter().map(|latency| latency.samples).sum(),
                p50: percentile(|latency| latency.p50),
                p99: percentile(|latency| latency.p99),
                p999: percentile(|latency| latency.p999),
                max: percentile(|latency| latency.max),
                waits: median_of(latencies.iter().filter_map(|latency| latency.waits)),
            }),
            cpu_micros_each: of(|f| f.cpu_seconds * 1e6 / f.ops.max(1) as f64),
            peak_bytes: of(|f| f.memory.peak_bytes as f64),
            anonymous_bytes: of(|f| f.memory.anonymous_bytes as f64),
            written_times: median(figures.iter().map(|f| f.written_bytes as f64 / raw(f).max(1.0))),
            disk_bytes: median_of(disks),
            raw_bytes_each: of(|f| f.raw_bytes_each),
            entities: of(|f| f.entities as f64),
            note: figures.iter().find_map(|figures| figures.note.clone()),
        }
    }
}

impl Entry {
    fn of(
        row: &'static Row,
        entities: u64,
        cells: Vec<Cell>,
        peers: &[Cell],
        failed: Vec<(Side, String)>,
        limits: Option<&Limits>,
    ) -> Self {
        let ours = cells.iter().find(|cell| cell.side.engine == Engine::Rowstone).cloned();
        let best = best_of(row.unit, peers, Among::All).cloned();
        let ratio_to = |best: &Cell| ours.as_ref().map(|ours| times(row.unit, ours, best));
        let ratio = best.as_ref().and_then(ratio_to);
        let reached = TARGETS.iter().filter(|target| target.row == row.name).filter_map(|target| {
            Some((target, ratio_to(best_of(row.unit, peers, target.among)?)?))
        });
        let targets = reached.collect();
        let limit = limits
            .zip(ours.as_ref())
            .and_then(|(limits, ours)| Limit::of(row, entities, limits, ours));
        Self { row, entities, cells, ours, best, ratio, limit, targets, growth: None, failed }
    }

    pub fn is_behind(&self) -> bool {
        self.ratio.is_some_and(|ratio| ratio < 1.0)
    }

    /// Whether the row counts among the compared ones: a peer has the same operation.
    pub fn has_counterpart(&self) -> bool {
        self.row.peer_row.is_none() && self.ratio.is_some()
    }

    /// Returns the title, which includes the size in growth rows.
    pub fn title(&self) -> String {
        if self.row.session == rows::Session::Growth {
            format!("{}, {} entities", self.row.title, count(self.entities as f64))
        } else {
            self.row.title.to_owned()
        }
    }

    /// Returns the remarks that the report shows below the figures of the row.
    pub fn remarks(&self) -> Vec<String> {
        let targets = self.targets.iter().map(|(target, reached)| {
            let met = if *reached >= target.times { "met" } else { "MISSED" };
            format!("target {} × {}: {reached:.2}, {met}", target.times, target.among.text())
        });
        let growth = self.growth.as_ref().map(Growth::text);
        let failed = self.failed.iter().map(|(side, why)| format!("{} FAILED: {why}", side.name()));
        let notes = self
            .cells
            .iter()
            .filter_map(|cell| Some(format!("{}: {}", cell.side.name(), cell.note.as_ref()?)));
        targets.chain(growth).chain(failed).chain(notes).collect()
    }

    /// Returns the cell of the engine's best encoding.
    pub fn of_engine(&self, engine: Engine) -> Option<&Cell> {
        let cells = self.cells.iter().filter(|cell| cell.side.engine == engine);
        if self.row.unit.higher_is_better() {
            cells.max_by(|a, b| a.value.total_cmp(&b.value))
        } else {
            cells.min_by(|a, b| a.value.total_cmp(&b.value))
        }
    }
}

/// Returns the best of `peers`, which are other engines, that belongs to the group `among`.
fn best_of(unit: Unit, peers: &[Cell], among: Among) -> Option<&Cell> {
    let order = |a: &&Cell, b: &&Cell| {
        let ascending = a.value.total_cmp(&b.value);
        if unit.higher_is_better() { ascending } else { ascending.reverse() }
    };
    peers.iter().filter(|cell| among.has(cell.side.engine, cell.side.encoding)).max_by(order)
}

/// Returns how many times better `ours` is than `other`.
fn times(unit: Unit, ours: &Cell, other: &Cell) -> f64 {
    if unit.higher_is_better() { ours.value / other.value } else { other.value / ours.value }
}

/// Returns the latencies of a cell as texts, and the share of the time above p50.
pub fn latencies(cell: &Cell) -> [String; 5] {
    let Some(latency) = cell.latency else { return Default::default() };
    let [p50, p99, p999, max] = [latency.p50, latency.p99, latency.p999, latency.max].map(time);
    let waits = latency.waits.map_or(String::new(), |share| format!("{:.0} %", share * 100.0));
    [p50, p99, p999, max, waits]
}

impl Side {
    pub fn name(self) -> String {
        match self.encoding {
            Encoding::Native => self.engine.name().to_owned(),
            other => format!("{} {}", self.engine.name(), crate::plan::encoding_name(other)),
        }
    }
}

/// Formats a number with at least three significant digits, and with separators.
pub fn count(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    let (whole, fraction) = text.split_once('.').map_or((&*text, ""), |(w, f)| (w, f));
    let digits = whole.trim_start_matches('-');
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let sign = if whole.starts_with('-') { "-" } else { "" };
    let dot = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{grouped}{dot}{fraction}")
}

/// Formats a figure in its unit.
pub fn with_unit(value: f64, unit: Unit) -> String {
    format!("{} {}", count(value), unit.text())
}

/// Formats nanoseconds for people.
pub fn time(nanos: u64) -> String {
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{} µs", count(nanos as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", count(nanos as f64 / 1e6)),
        _ => format!("{} s", count(nanos as f64 / 1e9)),
    }
}

/// Formats bytes for people.
pub fn bytes(bytes: f64) -> String {
    match bytes {
        b if b >= 1e9 => format!("{} GB", count(b / 1e9)),
        b if b >= 1e6 => format!("{} MB", count(b / 1e6)),
        b => format!("{} kB", count(b / 1e3)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([3.0]), 3.0);
        assert_eq!(median([9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 9.0]), 3.0);
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(count(1_234_567.8), "1,234,568");
        assert_eq!(count(999.6), "1,000");
        assert_eq!(count(12.34), "12.3");
        assert_eq!(count(0.5), "0.50");
        assert_eq!(time(1_500), "1.50 µs");
        assert_eq!(time(12_000_000), "12.0 ms");
        assert_eq!(bytes(2_500_000.0), "2.50 MB");
    }
}
