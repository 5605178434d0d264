//! Exposes commands to the fuzz targets. The commands read untrusted bytes, and run here without
//! files, threads or a terminal.
//!
//! Invariant: the bytes pass only through code of the commands and of the database.

use std::io::{self, Read};

use super::csv::CsvReader;
pub(crate) use super::csv::put_row as put_csv_row;
use super::exec::serve;
pub(crate) use super::import::direct::{Given, Loaded, csv, export, ndjson};
use crate::db::Db;

/// A row of CSV: its line number, the reason if it is malformed, and its fields.
pub(crate) type Row = (u64, Option<&'static str>, Vec<Vec<u8>>);

/// Carries out all of `requests`, and returns the responses.
pub(crate) fn exec(db: &Db, requests: &[u8]) -> Vec<u8> {
    let mut responses = Vec::new();
    let served = serve(db, requests, &mut responses);
    assert!(served.is_ok(), "neither a slice nor a buffer fails: {served:?}");
    responses
}

/// Parses the CSV rows of `bytes`. The parser gets at most `step` bytes per read.
pub(crate) fn csv_rows(bytes: &[u8], delimiter: u8, step: usize) -> Vec<Row> {
    let mut reader = CsvReader::new(Steps { bytes, step }, delimiter);
    let mut rows = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(row)) => {
                let fields = row.fields().map(<[u8]>::to_vec).collect();
                rows.push((row.line, row.problem, fields));
            }
            Ok(None) => return rows,
            Err(error) => panic!("a slice is read without errors: {error}"),
        }
    }
}

/// A reader that returns at most `step` bytes per read.
struct Steps<'a> {
    bytes: &'a [u8],
    step: usize,
}

impl Read for Steps<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.step.min(self.bytes.len()).min(buffer.len());
        let (now, later) = self.bytes.split_at(len);
        buffer[..len].copy_from_slice(now);
        self.bytes = later;
        Ok(len)
    }
}
