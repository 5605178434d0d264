//! Fuzz targets for the commands that read external input. Each runs on a database in memory.

use std::sync::Arc;

use crate::clock::ManualClock;
use crate::db::Db;
use crate::error::{Code, Result};
use crate::fs::MemFs;
use crate::options::{Background, Options};
use crate::query::KeyRange;
use crate::table::{LoadMode, Table};

use crate::cli::direct::{self, Given, Loaded};

/// The sets of import options. The first byte of an input for `csv` or `ndjson` selects one set.
const GIVEN: [Given<'static>; 6] = [
    given_of([None, None], &[""], b',', LoadMode::Insert),
    given_of([Some("all"), Some("{a}")], &[""], b',', LoadMode::Insert),
    given_of([Some("{a}"), Some("{b}-{c}")], &["NA"], b',', LoadMode::Upsert),
    given_of([None, Some("{{{RowKey}")], &["", "null"], b'\t', LoadMode::UpsertMerge),
    given_of([Some("{a}{b}"), None], &[], b';', LoadMode::Upsert),
    given_of([Some("p"), Some("r")], &[], b'|', LoadMode::UpsertMerge),
];

const fn given_of(
    [partition_key, row_key]: [Option<&'static str>; 2],
    nulls: &'static [&'static str],
    delimiter: u8,
    mode: LoadMode,
) -> Given<'static> {
    Given { partition_key, row_key, nulls, delimiter, mode }
}

/// The beginning of the response to a failed request.
const FAILED: &str = "{\"ok\":false,\"error\":";
/// The maximum length of inputs that are also read a few bytes at a time. Such reads take quadratic
/// time.
const SLOWLY_MAX: usize = 1024;

/// Runs `exec` with the lines of the input as requests. Each line must get one response, and the
/// database must be undamaged afterwards.
pub fn exec(data: &[u8]) {
    let fs = MemFs::new();
    let db = memory(&fs);
    let responses = direct::exec(&db, data);
    let lines = data.split(|&byte| byte == b'\n').count() - usize::from(data.ends_with(b"\n"));
    let lines = if data.is_empty() { 0 } else { lines };
    let answers: Vec<&[u8]> = responses.split_inclusive(|&byte| byte == b'\n').collect();
    assert_eq!(answers.len(), lines, "a response a line");
    answers.iter().for_each(|answer| check_answer(answer));
    let before = contents(&db);
    close(db);
    let db = memory(&fs);
    assert_eq!(contents(&db), before, "closed and opened again");
    sound(&db);
}

fn check_answer(answer: &[u8]) {
    let text = String::from_utf8_lossy(answer);
    let parsed = serde_json::from_slice::<serde::de::IgnoredAny>(answer);
    assert!(parsed.is_ok() && answer.ends_with(b"}\n"), "{text}");
    let broken = ["Corruption", "Poisoned"].map(|kind| {
        format!("{{\"ok\":false,\"error\":{{\"code\":\"InternalError\",\"status\":500,\"kind\":\"{kind}\"")
    });
    assert!(!broken.iter().any(|broken| text.starts_with(broken.as_str())), "{text}");
    assert!(!text.starts_with("{\"ok\":false,\"checked\""), "{text}");
    let is_of = |code: &Code| {
        let (name, status) = (code.as_str(), code.status());
        text.starts_with(&format!("{FAILED}{{\"code\":\"{name}\",\"status\":{status},"))
    };
    assert!(!text.starts_with(FAILED) || Code::ALL.iter().any(is_of), "{text}");
}

/// Imports CSV with the options that the first byte selects, then exports and reimports the table
/// as NDJSON.
pub fn csv(data: &[u8]) {
    import(data, |table, bytes, given| {
        check_rows(bytes, given.delimiter);
        direct::csv(table, bytes, given)
    });
}

/// Imports NDJSON with the options that the first byte selects, then exports and reimports the
/// table as NDJSON.
pub fn ndjson(data: &[u8]) {
    import(data, |table, bytes, given| direct::ndjson(table, bytes, given));
}

fn import(data: &[u8], load: impl FnOnce(&Table, &[u8], Given<'static>) -> Result<Option<Loaded>>) {
    let Some((options, bytes)) = data.split_first() else { return };
    let given = GIVEN[usize::from(*options) % GIVEN.len()];
    let db = memory(&MemFs::new());
    let table = table(&db, "Imported");
    let loaded = load(&table, bytes, given);
    let loaded = loaded.unwrap_or_else(|error| panic!("loading: {error:?}"));
    check_loaded(&db, &table, loaded, given.mode);
}

/// Parses CSV. The rows must not depend on how many bytes a read returns. When written as CSV, they
/// must read back the same.
fn check_rows(bytes: &[u8], delimiter: u8) {
    let rows = direct::csv_rows(bytes, delimiter, usize::MAX);
    if bytes.len() <= SLOWLY_MAX {
        assert_eq!(direct::csv_rows(bytes, delimiter, 1 + bytes.len() % 7), rows);
    }
    // A row with one empty field is written as an empty line, which would not be read as a row.
    // Exports always have at least two columns.
    let whole = rows.into_iter().filter(|(_, problem, fields)| {
        problem.is_none() && !(fields.len() == 1 && fields.iter().all(Vec::is_empty))
    });
    let fields: Vec<Vec<Vec<u8>>> = whole.map(|(_, _, fields)| fields).collect();
    let mut written = Vec::new();
    fields.iter().for_each(|fields| direct::put_csv_row(&mut written, fields, delimiter));
    let again = direct::csv_rows(&written, delimiter, usize::MAX);
    assert!(again.iter().all(|(_, problem, _)| problem.is_none()), "written rows are well-formed");
    assert!(again.into_iter().map(|(_, _, fields)| fields).eq(fields), "rows read back");
}

/// Checks that every row was loaded or rejected, and that an export as NDJSON can be imported again
/// and gives the same table.
fn check_loaded(db: &Db, table: &Table, loaded: Option<Loaded>, mode: LoadMode) {
    let loaded = loaded.unwrap_or_default();
    assert_eq!(loaded.loaded + loaded.rejected, loaded.rows, "no row is lost");
    let entities = entities(table);
    let found = entities.len() as u64;
    assert!(found <= loaded.loaded, "an entity came from nowhere");
    assert!(mode != LoadMode::Insert || found == loaded.loaded, "inserts do not replace");
    let text = export(table);
    let copy = self::table(db, "Copy");
    let again = direct::ndjson(&copy, &*text, GIVEN[0]);
    let again = again.unwrap_or_else(|error| panic!("loading the export: {error:?}"));
    assert_eq!(again, Some(Loaded { rows: found, loaded: found, rejected: 0 }));
    assert_eq!(self::entities(&copy), entities, "the copy is the table");
    sound(db);
}

/// Returns a clock at 2024-01-01.
pub(crate) fn clock() -> ManualClock {
    ManualClock::new(133_485_408_000_000_000)
}

pub(crate) fn memory(fs: &MemFs) -> Db {
    let clock = Arc::new(clock());
    let mut options = Options::new().background(Background::Manual).memtable_bytes(16 << 10);
    // With less reserved space in the log, reopening the database reads less.
    options.log_allocate_bytes = 4 << 10;
    let opened = options.seed(1).clock(clock).fs(Arc::new(fs.clone())).open("memory");
    opened.unwrap_or_else(|error| panic!("a database in memory opens: {error:?}"))
}

fn close(db: Db) {
    db.close().unwrap_or_else(|error| panic!("a database in memory closes: {error:?}"));
}

pub(crate) fn table(db: &Db, name: &str) -> Table {
    db.table_or_create(name).unwrap_or_else(|error| panic!("a table in memory: {error:?}"))
}

fn export(table: &Table) -> Vec<u8> {
    direct::export(table).unwrap_or_else(|error| panic!("an export from memory: {error:?}"))
}

/// Returns each entity of the table as text. Entities that differ have different texts.
fn entities(table: &Table) -> Vec<String> {
    let entities = table.scan(KeyRange::all()).into_iter().map(|entity| {
        let entity = entity?;
        let properties: Vec<_> = entity.properties().collect();
        Ok(format!("{:?} {:?} {properties:?}", entity.partition_key(), entity.row_key()))
    });
    let entities: Result<Vec<_>> = entities.collect();
    entities.unwrap_or_else(|error| panic!("a scan of memory: {error:?}"))
}

/// Returns the names of all tables, each with its contents as NDJSON.
pub(crate) fn contents(db: &Db) -> Vec<(String, Vec<u8>)> {
    let names = db.tables().unwrap_or_else(|error| panic!("tables: {error:?}"));
    let export = |name: String| {
        let exported = export(&table(db, &name));
        (name, exported)
    };
    names.into_iter().map(export).collect()
}

pub(crate) fn sound(db: &Db) {
    let report = db.verify().unwrap_or_else(|error| panic!("verify: {error:?}"));
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}
