//! Collects the keys that the rows of a file would get, for `advise --sample`. Loads no rows.
//!
//! Memory grows by about 100 bytes per partition and, with row keys, by 8 bytes per row.

use std::collections::{BTreeMap, HashSet};
use std::io::Read;

use super::columns::{header_names, usage};
use super::rows::{InputFormat, LINE_BYTES_MAX, MemberKeys, format_of, parse_json, unreadable};
use crate::cli::csv::{CsvReader, delimiter_of};
use crate::cli::failure::{Failure, Outcome};
use crate::cli::files;
use crate::codec::{HashSeed, hash};
use crate::db::shape::ShapeBuilder;
use crate::db::{DataShape, PartitionSize};
use crate::json::window::Lines;
use crate::model::Template;

/// The keys found in a file.
pub(in crate::cli) struct Sample {
    pub(in crate::cli) data: DataShape,
    /// The number of rows whose keys occurred in an earlier row; `None` if no RowKey was requested.
    pub(in crate::cli) repeated: Option<u64>,
}

/// Counts rows by their keys.
#[derive(Default)]
struct Counting {
    partitions: BTreeMap<String, (u64, u64)>,
    last: Option<String>,
    /// The number of pairs of consecutive rows with different PartitionKeys, and how many of these
    /// pairs are in ascending order.
    pairs: (u64, u64),
    keys: HashSet<u64>,
    rows: u64,
}

/// Reads a file of CSV, NDJSON or JSON, and builds the keys of its rows from the templates.
pub(in crate::cli) fn read(path: &str, pk: &str, rk: Option<&str>) -> Outcome<Sample> {
    let input = files::open_input(path)?;
    let mut counting = Counting::default();
    match format_of(&input.head) {
        InputFormat::Csv => {
            let reader = CsvReader::new(input.reader, delimiter_of(&input.head));
            counting.read_csv(reader, path, pk, rk)?;
        }
        InputFormat::Ndjson => counting.read_ndjson(input.reader, path, pk, rk)?,
        InputFormat::Json => counting.read_json(input.reader, path, pk, rk)?,
        InputFormat::Parquet => {
            let problem = format!("{path} is Parquet, but a sample is CSV, JSON or NDJSON");
            return Err(Failure::Usage(problem));
        }
    }
    Ok(counting.finish(rk.is_some()))
}

impl Counting {
    fn read_csv(
        &mut self,
        mut reader: CsvReader<impl Read>,
        path: &str,
        pk: &str,
        rk: Option<&str>,
    ) -> Outcome {
        let bad = |error| unreadable(path, &error);
        let Some(header) = reader.next().map_err(bad)? else {
            return Err(Failure::Other(format!("{path} is empty")));
        };
        let names = header_names(&header, &[])?;
        let find = |name: &str| names.iter().position(|column| column == name);
        let parse = |template: &str| {
            Template::parse(template, find).map_err(|problem| usage(problem, &names))
        };
        let (pk, rk) = (parse(pk)?, rk.map(parse).transpose()?);
        let (mut partition, mut row_key) = (Vec::new(), Vec::new());
        while let Some(row) = reader.next().map_err(bad)? {
            // Rows that an import would reject are not counted.
            if row.problem.is_some() || row.len() != names.len() {
                continue;
            }
            partition.clear();
            row_key.clear();
            pk.expand(&mut partition, |i| row.field(i));
            if let Some(rk) = &rk {
                rk.expand(&mut row_key, |i| row.field(i));
            }
            let bytes = row.fields().map(<[u8]>::len).sum::<usize>();
            let partition = String::from_utf8_lossy(&partition);
            self.add(&partition, rk.is_some().then_some(&row_key), bytes as u64);
        }
        Ok(())
    }

    fn read_ndjson(
        &mut self,
        source: impl Read,
        path: &str,
        pk: &str,
        rk: Option<&str>,
    ) -> Outcome {
        // If no RowKey was requested, an empty template replaces it, so that lines need not have a
        // RowKey.
        let mut keys = MemberKeys::new(Some(pk), Some(rk.unwrap_or_default()))?;
        let mut lines = Lines::new(source, LINE_BYTES_MAX);
        while let Some(line) = lines.next().map_err(|error| unreadable(path, &error))? {
            let Some(bytes) = line.bytes.filter(|bytes| !bytes.trim_ascii().is_empty()) else {
                continue;
            };
            if let Ok(entity) = keys.entity(bytes) {
                let row_key = entity.row_key().as_bytes().to_vec();
                let row_key = rk.is_some().then_some(&row_key);
                self.add(entity.partition_key(), row_key, bytes.len() as u64);
            }
        }
        Ok(())
    }

    fn read_json(&mut self, source: impl Read, path: &str, pk: &str, rk: Option<&str>) -> Outcome {
        let mut keys = MemberKeys::new(Some(pk), Some(rk.unwrap_or_default()))?;
        let parsed = parse_json(source, &mut keys, |_, row| {
            if let Ok(entity) = row {
                let row_key = rk.is_some().then(|| entity.row_key().as_bytes().to_vec());
                self.add(entity.partition_key(), row_key.as_ref(), entity.size() as u64);
            }
            true
        });
        parsed.map_err(|error| unreadable(path, &error))
    }

    fn add(&mut self, partition: &str, row_key: Option<&Vec<u8>>, bytes: u64) {
        self.rows += 1;
        if let Some(row_key) = row_key {
            let key = [partition.as_bytes(), &[0], row_key].concat();
            self.keys.insert(hash(HashSeed(0), &key));
        }
        match self.partitions.get_mut(partition) {
            Some((rows, sum)) => (*rows, *sum) = (*rows + 1, *sum + bytes),
            None => drop(self.partitions.insert(partition.to_owned(), (1, bytes))),
        }
        if self.last.as_deref() != Some(partition) {
            if let Some(last) = &self.last {
                self.pairs.0 += 1;
                self.pairs.1 += u64::from(last.as_str() < partition);
            }
            self.last = Some(partition.to_owned());
        }
    }

    fn finish(self, has_row_keys: bool) -> Sample {
        let mut builder = ShapeBuilder::new();
        for (partition_key, (entities, bytes)) in self.partitions {
            builder.add(PartitionSize { partition_key, entities, bytes });
        }
        (0..self.pairs.0).for_each(|i| builder.add_pair(i < self.pairs.1));
        let repeated = has_row_keys.then(|| self.rows - self.keys.len() as u64);
        Sample { data: builder.finish(true), repeated }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(text: &str, pk: &str, rk: Option<&str>) -> Sample {
        let mut counting = Counting::default();
        let reader = CsvReader::new(text.as_bytes(), b',');
        counting.read_csv(reader, "test", pk, rk).unwrap();
        counting.finish(rk.is_some())
    }

    #[test]
    fn rows_are_counted_by_the_keys_they_would_get() {
        let text = "day,id,x\n1,a,5\n1,b,5\n2,a,5\nbad\n2,a,6\n";
        let found = csv(text, "{day}", Some("{id}"));
        assert_eq!((found.data.partitions, found.data.entities), (2, 4));
        assert_eq!((found.data.ascending, found.repeated), (1.0, Some(1)));
        let found = csv(text, "{id}", None);
        assert_eq!((found.data.single_partitions, found.repeated), (1, None));
        assert!(found.data.ascending < 0.7);
    }

    #[test]
    fn ndjson_rows_are_counted_like_csv_rows() {
        let text = "{\"day\":\"1\",\"id\":\"a\"}\n\n{\"day\":\"2\",\"id\":\"b\"}\nbad\n";
        let mut counting = Counting::default();
        counting.read_ndjson(text.as_bytes(), "test", "{day}", None).unwrap();
        let found = counting.finish(false);
        assert_eq!((found.data.partitions, found.data.entities), (2, 2));
        let mut counting = Counting::default();
        let text = format!("[{}]", text.replace("\n\n", ",").replace("\nbad", ",[]"));
        counting.read_json(text.as_bytes(), "test", "{day}", None).unwrap();
        let found = counting.finish(false);
        assert_eq!((found.data.partitions, found.data.entities), (2, 2));
    }

    #[test]
    fn an_unknown_column_is_a_usage_error() {
        let reader = CsvReader::new(&b"a,b\n"[..], b',');
        let read = Counting::default().read_csv(reader, "test", "{c}", None);
        assert!(matches!(read, Err(Failure::Usage(text)) if text.contains("columns: a, b")));
    }
}
