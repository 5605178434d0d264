//! `exec`: requests from standard input, one a line, each answered before the next is carried out.
//!
//! Invariants
//! * every line gets one response, in order, flushed before the next line is read;
//! * memory is bounded by the longest line admitted and one page of entities;
//! * no request ends the process, only the end of input or of output does.
//!
//! Not here: the form of requests and responses (`wire::exec`).

use std::io::{self, Read, Write};
use std::path::PathBuf;

use clap::Args;

use super::failure::{Failure, Outcome};
use super::window::Lines;
use super::{Create, DurabilityName, IoName, open_with};
use crate::db::Db;
use crate::error::{Code, Error, Result};
use crate::model::{KeyPart, check_key};
use crate::query::{KeyRange, Token};
use crate::table::{EntityGroup, Operation, Table};
use crate::wire::exec::{Condition, Key, Request, Response, Select, Write as Change, read_request};
use crate::wire::keys::KeyFilter;

/// The longest line that is read: ample for the largest group, however its text is escaped.
const LINE_BYTES_MAX: usize = 16 << 20;

/// Carry out JSON requests, one a line, and answer each with a line of JSON.
#[derive(Args)]
#[command(after_long_help = EXEC_HELP)]
pub(super) struct Exec {
    /// The database: a directory, created if it is missing or empty
    db: PathBuf,
    /// What a write survives once its answer is there
    #[arg(long, value_enum, default_value_t = DurabilityName::Sync)]
    durability: DurabilityName,
    /// How the files of tables are read [default: mapped where addresses have 64 bits]
    #[arg(long, value_enum)]
    io: Option<IoName>,
    /// What a memtable may take before it is flushed [default: 64 MiB]
    #[arg(long, value_name = "BYTES")]
    memtable_bytes: Option<usize>,
}

const EXEC_HELP: &str = r#"Requests:
  {"op":"create_table","table":"T"}   {"op":"delete_table","table":"T"}   {"op":"tables"}
  {"op":"insert","table":"T","entity":{"PartitionKey":"p","RowKey":"r","A":1}}
      also upsert_replace, upsert_merge
  {"op":"replace","table":"T","entity":{...},"etag":"*"}
      also merge; the etag is "*" or one that was returned
  {"op":"delete","table":"T","pk":"p","rk":"r","etag":"*"}
  {"op":"get","table":"T","pk":"p","rk":"r","select":["A"]}
  {"op":"query","table":"T","filter":"PartitionKey eq 'p'","select":["A"],"top":10,"next":{...}}
  {"op":"group","table":"T","ops":[{"op":"insert","entity":{...}},{"op":"delete",...}]}
  {"op":"flush"}   {"op":"compact"}   {"op":"checkpoint","path":"..."}
  {"op":"stats"}   {"op":"verify"}

Answers:
  {"ok":true,...}
  {"ok":false,"error":{"code":"EntityAlreadyExists","status":409,"message":"..."}}

Example:
  echo '{"op":"query","table":"parts","top":5}' | rowstone exec shop"#;

impl Exec {
    pub(super) fn run(self) -> Outcome {
        let mut options = Db::options();
        if let Some(io) = self.io {
            options = options.io_mode(io.into());
        }
        if let Some(bytes) = self.memtable_bytes {
            options = options.memtable_bytes(bytes);
        }
        let db = open_with(options, &self.db, Create::IfMissing, self.durability)?;
        serve(&db, io::stdin(), io::stdout().lock())?;
        Ok(db.close()?)
    }
}

/// Answers every line of `requests`, until they end.
pub(super) fn serve(db: &Db, requests: impl Read, mut responses: impl Write) -> Outcome {
    let mut lines = Lines::new(requests, LINE_BYTES_MAX);
    loop {
        let line = match lines.next() {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(()),
            Err(error) => {
                return Err(Failure::Other(format!("cannot read standard input: {error}")));
            }
        };
        let answer = line.bytes.map_or_else(|| Err(too_long()), read_request);
        let answer = answer.and_then(|request| answer_to(db, request));
        let response = answer.unwrap_or_else(|error| Response::error(&error));
        responses.write_all(&response.into_line()).map_err(Failure::output)?;
        responses.flush().map_err(Failure::output)?;
    }
}

fn too_long() -> Error {
    let text = format!("the line is longer than {LINE_BYTES_MAX} bytes");
    Error::refused_with(Code::InvalidInput, text)
}

/// Carries out one request.
fn answer_to(db: &Db, request: Request) -> Result<Response> {
    Ok(match request {
        Request::CreateTable { table } => {
            db.create_table(&table)?;
            Response::ok()
        }
        Request::DeleteTable { table } => {
            db.delete_table(&table)?;
            Response::ok()
        }
        Request::Tables => Response::ok().tables(&db.tables()?),
        Request::Write { table, write } => change(&db.table(&table)?, write)?,
        Request::Get { table, key, select } => {
            let found = db.table(&table)?.get(&key.pk, &key.rk)?;
            let entity = found.ok_or_else(|| Error::refused(Code::ResourceNotFound))?;
            Response::ok().entity(&entity, &select)
        }
        Request::Query { table, filter, select, top, next } => {
            query(&db.table(&table)?, filter, &select, top, next)?
        }
        Request::Group { table, writes } => {
            let operations = writes.into_iter().map(operation);
            let table = db.table(&table)?;
            Response::ok().etags(&table.commit(EntityGroup::from_operations(operations)?)?)
        }
        Request::Flush => {
            db.flush()?;
            Response::ok()
        }
        Request::Compact => {
            db.compact()?;
            Response::ok()
        }
        Request::Checkpoint { path } => {
            db.checkpoint(path)?;
            Response::ok()
        }
        Request::Stats => Response::ok().counters(db.stats().fields().iter().copied()),
        Request::Verify => {
            let report = db.verify()?;
            Response::verified(&report.checked, &report.problems)
        }
    })
}

fn change(table: &Table, change: Change) -> Result<Response> {
    let etag = match change {
        Change::Insert(entity) => table.insert(entity)?,
        Change::Upsert(entity) => table.upsert(entity)?,
        Change::UpsertMerge(entity) => table.upsert_merge(entity)?,
        Change::Replace(entity, Condition::Exists) => table.replace(entity)?,
        Change::Replace(entity, Condition::Is(etag)) => table.replace_if(entity, etag)?,
        Change::Merge(entity, Condition::Exists) => table.merge(entity)?,
        Change::Merge(entity, Condition::Is(etag)) => table.merge_if(entity, etag)?,
        Change::Delete(key, condition) => {
            match condition {
                Condition::Exists => table.delete(&key.pk, &key.rk)?,
                Condition::Is(etag) => table.delete_if(&key.pk, &key.rk, etag)?,
            }
            return Ok(Response::ok());
        }
    };
    Ok(Response::ok().etag(etag))
}

fn operation(change: Change) -> Operation {
    let etag = |condition| match condition {
        Condition::Exists => None,
        Condition::Is(etag) => Some(etag),
    };
    match change {
        Change::Insert(entity) => Operation::Insert(entity),
        Change::Upsert(entity) => Operation::Upsert(entity),
        Change::UpsertMerge(entity) => Operation::UpsertMerge(entity),
        Change::Replace(entity, condition) => Operation::Replace(entity, etag(condition)),
        Change::Merge(entity, condition) => Operation::Merge(entity, etag(condition)),
        Change::Delete(Key { pk, rk }, condition) => {
            Operation::Delete { partition_key: pk, row_key: rk, etag: etag(condition) }
        }
    }
}

fn query(
    table: &Table,
    filter: KeyFilter,
    select: &Select,
    top: usize,
    next: Option<Key>,
) -> Result<Response> {
    let Some(range) = range_of(filter).filter(|_| top > 0) else {
        return Ok(Response::ok().page(&[], select, None));
    };
    let mut query = table.scan(range);
    if let Some(Key { pk, rk }) = next {
        query = query.after(Token { partition_key: pk, row_key: rk });
    }
    let page = query.page(top)?;
    let key = |token: &Token| Key { pk: token.partition_key.clone(), rk: token.row_key.clone() };
    let next = page.next().map(key);
    Ok(Response::ok().page(page.entities(), select, next.as_ref()))
}

/// The keys that `filter` names; `None` if no entity can have them.
fn range_of(filter: KeyFilter) -> Option<KeyRange> {
    // A literal may hold what a key must not: it is no error, and nothing equals it.
    let possible = |part, key: &str| check_key(part, key).is_ok();
    match filter {
        KeyFilter::All => Some(KeyRange::all()),
        KeyFilter::Partition(pk) => {
            possible(KeyPart::PartitionKey, &pk).then(|| KeyRange::partition(&pk))
        }
        KeyFilter::Row(pk, rk) => (possible(KeyPart::PartitionKey, &pk)
            && possible(KeyPart::RowKey, &rk))
        .then(|| KeyRange::point(&pk, &rk)),
    }
}
