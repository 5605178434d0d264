//! Imports and exports for the fuzz targets, without files, threads or a terminal.
//!
//! Not here: reading and converting rows, which uses the code of the command itself (`import`).

use std::io::Read;

use super::columns::Choices;
use super::rows::{MemberKeys, infer_columns, parse_csv, parse_ndjson};
use crate::cli::csv::CsvReader;
use crate::cli::failure::Failure;
use crate::cli::output::for_each_json;
use crate::error::{Error, Result};
use crate::json::odata::Metadata;
use crate::model::Entity;
use crate::query::KeyRange;
use crate::table::{LoadMode, Table};

/// The options of an import.
#[derive(Clone, Copy)]
pub(crate) struct Given<'a> {
    pub(crate) partition_key: Option<&'a str>,
    pub(crate) row_key: Option<&'a str>,
    pub(crate) nulls: &'a [&'a str],
    pub(crate) delimiter: u8,
    pub(crate) mode: LoadMode,
}

/// The counts of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Loaded {
    pub(crate) rows: u64,
    pub(crate) loaded: u64,
    pub(crate) rejected: u64,
}

/// Imports CSV. Returns `None` if the header or the options are invalid.
pub(crate) fn csv(table: &Table, bytes: &[u8], given: Given<'_>) -> Result<Option<Loaded>> {
    let choices = Choices {
        partition_key: given.partition_key.map(str::to_owned),
        row_key: given.row_key.map(str::to_owned),
        nulls: given.nulls.iter().map(|null| (*null).to_owned()).collect(),
        ..Choices::default()
    };
    let reader = || CsvReader::new(bytes, given.delimiter);
    let Ok((columns, rows)) = infer_columns(reader(), &choices, "the input") else {
        return Ok(None);
    };
    let loaded = load(table, given, |push| parse_csv(reader(), &columns, push))?;
    assert_eq!(loaded.rows, rows, "both readings find the same rows");
    Ok(Some(loaded))
}

/// Imports NDJSON. Returns `None` if the options are invalid.
pub(crate) fn ndjson(table: &Table, source: impl Read, given: Given<'_>) -> Result<Option<Loaded>> {
    let Ok(mut keys) = MemberKeys::new(given.partition_key, given.row_key) else { return Ok(None) };
    load(table, given, |push| parse_ndjson(source, &mut keys, push)).map(Some)
}

/// Exports a table as NDJSON.
pub(crate) fn export(table: &Table) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let entities = table.scan(KeyRange::all()).into_iter();
    let written = for_each_json(entities, None, Metadata::TYPES, |json, _| {
        out.extend_from_slice(json);
        out.push(b'\n');
        Ok(())
    });
    match written {
        Err(Failure::Operation(error)) => Err(error),
        other => {
            assert!(other.is_ok(), "a buffer takes everything: {other:?}");
            Ok(out)
        }
    }
}

type Push<'p> = &'p mut dyn FnMut(u64, Result<Entity>) -> bool;

fn load(
    table: &Table,
    given: Given<'_>,
    parse: impl FnOnce(Push<'_>) -> std::io::Result<()>,
) -> Result<Loaded> {
    let mut loader = table.loader().mode(given.mode);
    let mut loaded = Loaded::default();
    let mut failed: Option<Error> = None;
    let parsed = parse(&mut |line, row| {
        loaded.rows += 1;
        match row {
            Ok(entity) => failed = loader.push(line, entity).err(),
            Err(_) => loaded.rejected += 1,
        }
        failed.is_none()
    });
    assert!(parsed.is_ok(), "a slice is read without errors: {parsed:?}");
    failed.map_or(Ok(()), Err)?;
    loader.flush()?;
    loaded.rejected += loader.take_rejected().len() as u64;
    loaded.loaded = loader.finish()?.loaded;
    Ok(loaded)
}
