//! Collects the keys that the rows of a file would get, and ranks keys that they could get, for
//! `advise --sample`. Loads no rows.
//!
//! Memory is bounded for files of any size: `sketch` and `candidates` have the limits, together
//! about 80 MiB.

use std::io::Read;

use super::candidates::{Columns, Ranking};
use super::columns::{find_column, header_names, usage};
use super::rows::{InputFormat, LINE_BYTES_MAX, MemberKeys, format_of, unreadable};
use super::sketch::{Repeats, Sketch};
use crate::cli::csv::{CsvReader, delimiter_of};
use crate::cli::failure::{Failure, Outcome};
use crate::cli::files;
use crate::db::DataShape;
use crate::error::Error;
use crate::json::elements::Elements;
use crate::json::odata::Members;
use crate::json::window::Lines;
use crate::model::Template;

/// The maximum memory for the partitions of the requested keys, in bytes.
const PARTITIONS_MEMORY_MAX: usize = 8 << 20;

/// The keys found in a file.
pub(in crate::cli) struct Sample {
    /// The number of rows, without those that are malformed or have no such keys.
    pub(in crate::cli) rows: u64,
    /// The partitions by the requested PartitionKey, if one was requested.
    pub(in crate::cli) data: Option<DataShape>,
    /// The number of rows whose keys occurred in an earlier row; `None` if no RowKey was requested.
    pub(in crate::cli) repeated: Option<u64>,
    /// Whether numbers of partitions, or of rows with repeated keys, are estimates.
    pub(in crate::cli) is_estimate: bool,
    pub(in crate::cli) ranking: Ranking,
}

/// Counts rows by their keys.
struct Counting<'t> {
    partition_key: Option<&'t str>,
    row_key: Option<&'t str>,
    rows: u64,
    /// The error of the first object that is no row with such keys.
    problem: Option<Error>,
    partitions: Sketch,
    repeats: Repeats,
    /// `None` before the first row.
    columns: Option<Columns>,
}

/// Reads a file of CSV, NDJSON or JSON, and builds the keys of its rows from the templates.
pub(in crate::cli) fn read(path: &str, pk: Option<&str>, rk: Option<&str>) -> Outcome<Sample> {
    let input = files::open_input(path)?;
    if input.is_blank {
        return Err(Failure::Other(format!("{path} is empty: a sample has rows in CSV or JSON")));
    }
    let mut counting = Counting::new(pk, rk);
    match format_of(&input.head) {
        InputFormat::Csv => {
            counting.read_csv(CsvReader::new(input.reader, delimiter_of(&input.head)), path)?;
        }
        InputFormat::Ndjson => counting.read_ndjson(input.reader, path)?,
        InputFormat::Json => counting.read_json(input.reader, path)?,
        InputFormat::Parquet => {
            let problem = format!("{path} is Parquet, but a sample is CSV, JSON or NDJSON");
            return Err(Failure::Usage(problem));
        }
    }
    if counting.rows == 0 {
        let problem = counting.problem.map(|error| format!(": {error}")).unwrap_or_default();
        return Err(Failure::Other(format!("{path} has no usable row{problem}")));
    }
    Ok(counting.finish())
}

impl<'t> Counting<'t> {
    fn new(partition_key: Option<&'t str>, row_key: Option<&'t str>) -> Self {
        let (partitions, repeats) = (Sketch::new(PARTITIONS_MEMORY_MAX), Repeats::new());
        let (rows, problem, columns) = (0, None, None);
        Self { partition_key, row_key, rows, problem, partitions, repeats, columns }
    }

    fn read_csv(&mut self, mut reader: CsvReader<impl Read>, path: &str) -> Outcome {
        let bad = |error| unreadable(path, &error);
        let Some(header) = reader.next().map_err(bad)? else { return Ok(()) };
        let names = header_names(&header, &[])?;
        let find = |name: &str| find_column(&names, name);
        let parse = |template: Option<&str>| {
            let parse = |template| Template::parse(template, find);
            template.map(parse).transpose().map_err(|problem| usage(problem, &names))
        };
        let (pk, rk) = (parse(self.partition_key)?, parse(self.row_key)?);
        let mut columns = Columns::new(names.iter().map(String::as_str));
        let (mut partition, mut row_key) = (Vec::new(), Vec::new());
        while let Some(row) = reader.next().map_err(bad)? {
            // Rows that an import would reject are not counted.
            if row.problem.is_some() || row.len() != names.len() {
                continue;
            }
            self.rows += 1;
            columns.add(|i, _| std::str::from_utf8(row.field(i)).ok());
            let Some(pk) = &pk else { continue };
            partition.clear();
            row_key.clear();
            pk.expand(&mut partition, |i| row.field(i));
            if let Some(rk) = &rk {
                rk.expand(&mut row_key, |i| row.field(i));
            }
            let bytes = row.fields().map(<[u8]>::len).sum::<usize>();
            self.add(&String::from_utf8_lossy(&partition), &row_key, bytes as u64);
        }
        self.columns = Some(columns);
        Ok(())
    }

    fn read_ndjson(&mut self, source: impl Read, path: &str) -> Outcome {
        let keys = self.member_keys()?;
        let mut lines = Lines::new(source, LINE_BYTES_MAX);
        while let Some(line) = lines.next().map_err(|error| unreadable(path, &error))? {
            if let Some(bytes) = line.bytes.filter(|bytes| !bytes.trim_ascii().is_empty()) {
                self.add_object(&keys, bytes);
            }
        }
        Ok(())
    }

    fn read_json(&mut self, source: impl Read, path: &str) -> Outcome {
        let keys = self.member_keys()?;
        let mut elements = Elements::new(source, LINE_BYTES_MAX);
        while let Some(element) = elements.next().map_err(|error| unreadable(path, &error))? {
            if let Some(bytes) = element.bytes {
                self.add_object(&keys, bytes);
            }
        }
        Ok(())
    }

    /// Returns a parser of rows. An empty template replaces a key that was not requested, so that
    /// rows need not have it.
    fn member_keys(&self) -> Outcome<MemberKeys> {
        let template = |requested: Option<&'t str>| Some(requested.unwrap_or_default());
        MemberKeys::new(template(self.partition_key), template(self.row_key))
    }

    /// Counts a row in JSON, unless it has no such keys. Its values may need options of an import.
    fn add_object(&mut self, keys: &MemberKeys, bytes: &[u8]) {
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        let read = Members::read(text).and_then(|members| Ok((keys.keys(&members)?, members)));
        let ((partition_key, row_key), members) = match read {
            Ok(read) => read,
            Err(error) => {
                self.problem.get_or_insert(error);
                return;
            }
        };
        self.rows += 1;
        // A member that the first row lacks is missing in a row, so it cannot form keys.
        let columns = self.columns.get_or_insert_with(|| Columns::new(members.names()));
        columns.add(|_, name| members.raw(name));
        if self.partition_key.is_some() {
            self.add(&partition_key, row_key.as_bytes(), bytes.len() as u64);
        }
    }

    fn add(&mut self, partition: &str, row_key: &[u8], bytes: u64) {
        if self.row_key.is_some() {
            self.repeats.add(&[partition.as_bytes(), &[0], row_key].concat());
        }
        self.partitions.add(partition, bytes);
    }

    fn finish(self) -> Sample {
        let is_estimate = self.partitions.is_estimate() || self.repeats.is_estimate();
        let columns = self.columns.unwrap_or_else(|| Columns::new(std::iter::empty()));
        Sample {
            rows: self.rows,
            data: self.partition_key.map(|_| self.partitions.finish()),
            repeated: self.row_key.map(|_| self.repeats.count()),
            is_estimate,
            ranking: columns.rank(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(text: &str, pk: Option<&str>, rk: Option<&str>) -> Sample {
        let mut counting = Counting::new(pk, rk);
        counting.read_csv(CsvReader::new(text.as_bytes(), b','), "test").unwrap();
        counting.finish()
    }

    #[test]
    fn rows_are_counted_by_the_keys_they_would_get() {
        let text = "day,id,x\n1,a,5\n1,b,5\n2,a,5\nbad\n2,a,6\n";
        let found = csv(text, Some("{day}"), Some("{id}"));
        let data = found.data.unwrap();
        assert_eq!((data.partitions, data.entities, found.rows), (2, 4, 4));
        assert_eq!((data.ascending, found.repeated), (1.0, Some(1)));
        assert!(!found.is_estimate);
        let found = csv(text, Some("{id}"), None);
        assert_eq!((found.data.unwrap().single_partitions, found.repeated), (1, None));
        let found = csv(text, None, None);
        assert!(found.data.is_none() && found.ranking.candidates.len() == 3);
    }

    #[test]
    fn keys_ordered_by_time_are_found_although_rows_return_to_earlier_keys() {
        // Each hour's first row comes after the first row of the hour before, and its other rows
        // between those of its neighbours, as in data of flights by departure.
        let rows = (0..400u32).map(|i| format!("{:03},x\n", (i / 4).saturating_sub(i % 2)));
        let text: String = std::iter::once("hour,v\n".to_owned()).chain(rows).collect();
        let data = csv(&text, Some("{hour}"), None).data.unwrap();
        assert!(data.partitions >= 99 && data.ascending > 0.98, "{}", data.ascending);
    }

    #[test]
    fn ndjson_rows_are_counted_like_csv_rows() {
        let text = "{\"day\":\"1\",\"id\":\"a\"}\n\n{\"day\":\"2\",\"id\":\"b\"}\nbad\n";
        let mut counting = Counting::new(Some("{day}"), None);
        counting.read_ndjson(text.as_bytes(), "test").unwrap();
        let found = counting.finish();
        let data = found.data.unwrap();
        assert_eq!((data.partitions, data.entities), (2, 2));
        let names: Vec<_> = found.ranking.candidates.iter().map(|c| &*c.template).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        let mut counting = Counting::new(Some("{day}"), None);
        let text = format!("[{}]", text.replace("\n\n", ",").replace("\nbad", ",[]"));
        counting.read_json(text.as_bytes(), "test").unwrap();
        let data = counting.finish().data.unwrap();
        assert_eq!((data.partitions, data.entities), (2, 2));
    }

    #[test]
    fn an_unknown_column_is_a_usage_error() {
        let reader = CsvReader::new(&b"a,b\n"[..], b',');
        let read = Counting::new(Some("{c}"), None).read_csv(reader, "test");
        assert!(matches!(read, Err(Failure::Usage(text)) if text.contains("columns: a, b")));
    }
}
