//! Ranks PartitionKeys that could be made of the columns of a file, for `advise --sample`.
//!
//! Each column is measured over all rows; pairs of columns, and the places of new rows, over a
//! sample. A row is in the sample if the hash of its number ends with enough zeros, so that the
//! sample is spread over the file and equal files give equal ranks.
//!
//! Memory is bounded by [`COLUMNS_MAX`], [`COLUMN_MEMORY_MAX`], [`ROWS_MAX`] and [`TEXT_MAX`].

use std::collections::HashMap;

use super::sketch::Sketch;
use crate::codec::{HashSeed, hash};
use crate::db::advice::{HOT_SHARE, ORDERED_SHARE};
use crate::db::shape::ShapeBuilder;
use crate::model::{KeyPart, check_key};
use crate::named::named;
use crate::sort::sort_by;

const COLUMNS_MAX: usize = 32;
const COLUMN_MEMORY_MAX: usize = 1 << 20;
/// Limits of the sample: rows, and bytes of their texts.
const ROWS_MAX: usize = 32_768;
const TEXT_MAX: usize = 16 << 20;
/// The longest valid key in bytes: 1,024 UTF-16 units of three bytes.
const KEY_BYTES_MAX: usize = 3 * 1_024;
/// The number of sampled rows within which one partition is looked for that gets most of them.
const WINDOW: usize = 64;
/// Pairs are made of this many columns, those with the fewest partitions.
const PAIRED: usize = 6;
/// A pair is a candidate if its heaviest partition has at most this share of the rows of the
/// heaviest partition of each of its columns.
const PAIR_GAIN: f64 = 0.8;

/// The ranked candidates.
pub(in crate::cli) struct Ranking {
    pub(in crate::cli) candidates: Vec<Candidate>,
    /// The number of rows in the sample.
    pub(in crate::cli) sampled: u64,
}

/// A PartitionKey that the rows of a file could have.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli) struct Candidate {
    pub(in crate::cli) template: String,
    pub(in crate::cli) partitions: u64,
    /// The heaviest partition's share of the rows, 0 to 1.
    pub(in crate::cli) heaviest: f64,
    pub(in crate::cli) new_rows: NewRows,
}

named! {
    /// The partitions that rows go to at about the same time.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(in crate::cli) enum NewRows {
        Spread "spread",
        OneAtATime "one partition at a time",
        Alone "a partition each",
        Start "at the start only",
        End "at the end only",
    }

    pub(in crate::cli) fn name;
}

/// The columns of a file, and a sample of its rows.
pub(super) struct Columns {
    columns: Vec<Column>,
    rows: Vec<Row>,
    text: usize,
    shift: u32,
    seen: u64,
    rows_max: usize,
}

struct Column {
    name: String,
    /// The position in the header.
    index: usize,
    /// `None` if a row has no value for the column, or one that is not valid in a key.
    sketch: Option<Sketch>,
}

struct Row {
    number: u64,
    text: String,
    /// The end of each column's value in `text`.
    ends: Vec<u32>,
}

impl Row {
    fn cell(&self, column: usize) -> &str {
        let end = |i: usize| self.ends.get(i).map_or(0, |end| *end as usize);
        let start = column.checked_sub(1).map_or(0, end);
        self.text.get(start..end(column)).unwrap_or_default()
    }
}

impl Columns {
    pub(super) fn new<'n>(names: impl Iterator<Item = &'n str>) -> Self {
        // A RowKey and a Timestamp are unique, and an annotation has the type of another member.
        let usable = |(_, name): &(usize, &str)| {
            !matches!(*name, "RowKey" | "Timestamp") && !name.contains(['@', '{', '}'])
        };
        let columns = names.enumerate().filter(usable).take(COLUMNS_MAX).map(|(index, name)| {
            let sketch = Some(Sketch::new(COLUMN_MEMORY_MAX));
            Column { name: name.to_owned(), index, sketch }
        });
        let columns = columns.collect();
        Self { columns, rows: Vec::new(), text: 0, shift: 0, seen: 0, rows_max: ROWS_MAX }
    }

    /// Adds a row; `field` returns the value of the column with an index and a name.
    pub(super) fn add<'f>(&mut self, field: impl Fn(usize, &str) -> Option<&'f str>) {
        self.seen += 1;
        let is_picked = self.picks(self.seen);
        let mut row = Row { number: self.seen, text: String::new(), ends: Vec::new() };
        for column in &mut self.columns {
            if let Some(sketch) = &mut column.sketch {
                let value = field(column.index, &column.name);
                let value = value.filter(|value| value.len() <= KEY_BYTES_MAX);
                // A known value was checked when it was new.
                let is_valid = value.is_some_and(|value| {
                    !sketch.add(value, 1) || check_key(KeyPart::PartitionKey, value).is_ok()
                });
                match value.filter(|_| is_valid) {
                    Some(value) if is_picked => row.text.push_str(value),
                    Some(_) => {}
                    None => column.sketch = None,
                }
            }
            row.ends.push(row.text.len() as u32);
        }
        if is_picked {
            self.text += row.text.len();
            self.rows.push(row);
        }
        while self.rows.len() > self.rows_max || self.text > TEXT_MAX {
            self.shift += 1;
            let mut rows = std::mem::take(&mut self.rows);
            rows.retain(|row| self.picks(row.number));
            self.text = rows.iter().map(|row| row.text.len()).sum();
            self.rows = rows;
        }
    }

    fn picks(&self, number: u64) -> bool {
        hash(HashSeed(0), &number.to_le_bytes()).trailing_zeros() >= self.shift
    }

    /// Ranks the candidates. Keys that spread new rows come first, and of these the one that
    /// changes most slowly, which has the fewest partitions.
    pub(super) fn rank(mut self) -> Ranking {
        let mut singles = Vec::new();
        for i in 0..self.columns.len() {
            let Some(column) = self.columns.get_mut(i) else { continue };
            let Some(sketch) = column.sketch.take().filter(|sketch| sketch.rows() > 0) else {
                continue;
            };
            let template = format!("{{{}}}", column.name);
            let data = sketch.finish();
            let most = data.largest.first().map_or(0, |partition| partition.entities);
            let heaviest = most as f64 / data.entities.max(1) as f64;
            let mean = data.entities as f64 / data.partitions.max(1) as f64;
            let seen = Seen::new(&self.rows, |row| row.cell(i).to_owned());
            let new_rows = seen.new_rows(data.ascending, mean);
            let partitions = data.partitions;
            singles.push((i, Candidate { template, partitions, heaviest, new_rows }));
        }
        sort_by(&mut singles, |(_, a), (_, b)| a.rank().total_cmp(&b.rank()));
        let paired: Vec<_> =
            singles.iter().filter(|(_, c)| c.is_fit()).take(PAIRED).cloned().collect();
        let mut candidates: Vec<_> = singles.into_iter().map(|(_, single)| single).collect();
        for (at, (i, a)) in paired.iter().enumerate() {
            let pairs = paired.iter().skip(at + 1).map(|(j, b)| self.pair((*i, a), (*j, b)));
            candidates.extend(pairs.flatten());
        }
        sort_by(&mut candidates, |a, b| a.rank().total_cmp(&b.rank()));
        Ranking { candidates, sampled: self.rows.len() as u64 }
    }

    /// Returns the candidate of two columns if it divides the rows clearly better than each of
    /// them.
    fn pair(&self, (i, a): (usize, &Candidate), (j, b): (usize, &Candidate)) -> Option<Candidate> {
        let seen = Seen::new(&self.rows, |row| format!("{}-{}", row.cell(i), row.cell(j)));
        let mean = self.rows.len() as f64 / seen.partitions.max(1) as f64;
        let new_rows = seen.new_rows(seen.ascending, mean);
        let template = format!("{}-{}", a.template, b.template);
        let Seen { partitions, heaviest, .. } = seen;
        let gains = heaviest <= PAIR_GAIN * a.heaviest.min(b.heaviest);
        // A sample with few rows of each partition does not show how many there are.
        let is_measured = mean >= 4.0 || self.shift == 0;
        let candidate = Candidate { template, partitions, heaviest, new_rows };
        (gains && is_measured && candidate.is_fit()).then_some(candidate)
    }
}

impl Candidate {
    /// Whether the load of new rows can be divided between partitions.
    pub(in crate::cli) fn is_fit(&self) -> bool {
        self.partitions > 1 && self.heaviest < HOT_SHARE && self.new_rows == NewRows::Spread
    }

    /// Returns a number that is lower for a better candidate. A share is below 2, so it decides
    /// only between equal numbers of partitions.
    fn rank(&self) -> f64 {
        let unfit = if self.is_fit() { 0.0 } else { 1e18 };
        unfit + 2.0 * self.partitions as f64 + self.heaviest
    }
}

/// A candidate's partitions in the sample.
struct Seen {
    partitions: u64,
    heaviest: f64,
    ascending: f64,
    /// The mean share of the rows of a window that go to the window's heaviest partition.
    at_once: f64,
    /// The share of the newest tenth of the rows in the tenth of the key order that has most of
    /// them.
    together: f64,
}

impl Seen {
    fn new(rows: &[Row], key: impl Fn(&Row) -> String) -> Self {
        let mut keys: Vec<_> = rows.iter().map(|row| (key(row), row.number)).collect();
        let windows = keys.chunks(WINDOW).map(|window| {
            let mut counts = HashMap::new();
            window.iter().for_each(|(key, _)| *counts.entry(key).or_insert(0u32) += 1);
            f64::from(counts.into_values().max().unwrap_or(0)) / window.len() as f64
        });
        let at_once = windows.sum::<f64>() / keys.len().div_ceil(WINDOW).max(1) as f64;
        sort_by(&mut keys, Ord::cmp);
        let (mut builder, mut most, mut partitions) = (ShapeBuilder::new(), 0, 0);
        let mut before = None;
        for partition in keys.chunk_by(|(a, _), (b, _)| a == b) {
            partitions += 1;
            most = most.max(partition.len());
            partition.iter().for_each(|(_, number)| builder.add_row(*number));
            if let Some((_, first)) = partition.first()
                && let Some(before) = before.replace(*first)
            {
                builder.add_pair(*first > before);
            }
        }
        let data = builder.finish(true);
        let together = data.newest.windows(2).map(|pair| pair.iter().sum()).fold(0.0, f64::max);
        let heaviest = most as f64 / keys.len().max(1) as f64;
        Self { partitions, heaviest, ascending: data.ascending, at_once, together }
    }

    /// `mean` is the mean number of rows of a partition.
    fn new_rows(&self, ascending: f64, mean: f64) -> NewRows {
        let is_together = self.together >= HOT_SHARE;
        if is_together && ascending >= ORDERED_SHARE {
            NewRows::End
        } else if is_together && ascending <= 1.0 - ORDERED_SHARE {
            NewRows::Start
        } else if mean < 2.0 {
            NewRows::Alone
        } else if self.at_once >= HOT_SHARE {
            NewRows::OneAtATime
        } else {
            NewRows::Spread
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings of ten devices, one after the other: day, device, site, sequence number, constant.
    fn readings(rows: u32, rows_max: usize) -> Ranking {
        let names = ["day", "device", "site", "id", "unit", "path", "RowKey", "v@type"];
        let mut columns = Columns::new(names.into_iter());
        columns.rows_max = rows_max;
        for i in 0..rows {
            let (day, id) = (format!("2024-{:03}", i / 200), format!("{i:08}"));
            let (device, site) = (format!("d{}", i * 7 % 10), format!("s{}", i / 3 % 3));
            let cells = [&*day, &*device, &*site, &*id, "C", "a/b", "r", "t"];
            columns.add(|index, _| cells.get(index).copied());
        }
        columns.rank()
    }

    fn of<'r>(ranking: &'r Ranking, template: &str) -> &'r Candidate {
        ranking.candidates.iter().find(|c| c.template == template).expect(template)
    }

    #[test]
    fn slow_columns_that_spread_the_load_come_first() {
        let ranking = readings(10_000, ROWS_MAX);
        let names: Vec<_> = ranking.candidates.iter().map(|c| &*c.template).collect();
        assert_eq!(names, ["{site}", "{device}", "{site}-{device}", "{unit}", "{day}", "{id}"]);
        let pair = of(&ranking, "{site}-{device}");
        assert_eq!((pair.partitions, pair.new_rows), (30, NewRows::Spread));
        assert_eq!(of(&ranking, "{day}").new_rows, NewRows::End);
        assert_eq!(of(&ranking, "{id}").new_rows, NewRows::End);
        assert!(of(&ranking, "{unit}").heaviest == 1.0 && !of(&ranking, "{unit}").is_fit());
        assert!((0.33..0.34).contains(&of(&ranking, "{site}").heaviest));
    }

    #[test]
    fn a_sample_of_the_rows_ranks_alike() {
        let (all, sampled) = (readings(40_000, ROWS_MAX * 2), readings(40_000, 2_000));
        assert_eq!(all.sampled, 40_000);
        assert!((900..=2_000).contains(&sampled.sampled), "{}", sampled.sampled);
        let names = |ranking: &Ranking| -> Vec<_> {
            ranking.candidates.iter().map(|c| (c.template.clone(), c.partitions)).collect()
        };
        assert_eq!(names(&sampled), names(&readings(40_000, 2_000)));
        assert_eq!(names(&sampled)[..5], names(&all)[..5]);
        assert_eq!(of(&sampled, "{day}").new_rows, NewRows::End);
    }

    #[test]
    fn columns_that_cannot_be_keys_and_empty_files_have_no_candidates() {
        assert!(readings(0, 10).candidates.is_empty());
        let mut columns = Columns::new(["long", "gap"].into_iter());
        let long = "x".repeat(2_000);
        columns.add(|index, _| if index == 0 { Some(&*long) } else { Some("a") });
        columns.add(|_, _| None);
        assert!(columns.rank().candidates.is_empty());
    }

    #[test]
    fn values_that_come_in_turns_get_the_load_one_at_a_time() {
        let mut columns = Columns::new(["turn", "phase"].into_iter());
        for i in 0..10_000u32 {
            let cells = [format!("t{}", i / 500 * 7 % 20), format!("p{}", i % 5)];
            columns.add(|index, _| cells.get(index).map(String::as_str));
        }
        let ranking = columns.rank();
        assert_eq!(of(&ranking, "{turn}").new_rows, NewRows::OneAtATime);
        assert_eq!(ranking.candidates[0].template, "{phase}");
    }
}
