//! `rowstone exec`: carries out requests from standard input, one per line, and answers each before
//! it reads the next.
//!
//! Invariants
//! * every line gets one response, in order, flushed before the next line is read;
//! * memory is bounded by the longest allowed line, one page of entities, and one result per
//!   partition if requested;
//! * no request ends the process; only the end of input or of output does.
//!
//! Not here: the format of requests and responses (`wire::exec`).

use std::io::{self, Read, Write};
use std::path::PathBuf;

use clap::Args;

use super::failure::{Failure, Outcome};
use super::open::{OpenArgs, noted, set};
use super::window::Lines;
use crate::db::Db;
use crate::error::{Code, Error, Result};
use crate::json::exec::{Query, Request, Response, read_request};
use crate::options::{IoMode, Options};
use crate::query::{Filter, Page};
use crate::table::{EntityGroup, Operation, Table};

/// The maximum length of a request line in bytes. It is enough for the largest group of writes,
/// even if all its text is escaped.
const LINE_BYTES_MAX: usize = 16 << 20;

/// Carry out JSON requests, one per line, and answer each with a line of JSON.
#[derive(Args)]
#[command(after_long_help = EXEC_HELP)]
pub(super) struct Exec {
    /// The database: a directory, created if it is missing or empty
    db: PathBuf,
    /// How table files are read [default: mapped on 64-bit systems]
    #[arg(long, value_enum)]
    io: Option<IoMode>,
    /// Bytes of a memtable at which it is flushed [default: 64 MiB]
    #[arg(long, value_name = "BYTES")]
    memtable_bytes: Option<usize>,
    #[command(flatten)]
    open: OpenArgs,
}

const EXEC_HELP: &str = r#"Requests:
  {"op":"create_table","table":"T"}   {"op":"delete_table","table":"T"}   {"op":"tables"}
  {"op":"insert","table":"T","entity":{"PartitionKey":"p","RowKey":"r","A":1}}
      also upsert_replace, upsert_merge
  {"op":"replace","table":"T","entity":{...},"etag":"*"}
      also merge; the etag is "*" or one that was returned
  {"op":"delete","table":"T","pk":"p","rk":"r","etag":"*"}
  {"op":"get","table":"T","pk":"p","rk":"r","select":["A"]}
  {"op":"query","table":"T","filter":"PartitionKey eq 'p' and A gt 1","select":["A"],"top":10,
      "next":{"pk":"p","rk":"r"},"explain":true,"reverse":true}
      next is what the page before returned; without rk it is the start of the partition;
      reverse, from the last key to the first, is beyond the service
  {"op":"count","table":"T","filter":"A gt 1","by_partition":true}
  {"op":"aggregate","table":"T","filter":"A gt 1","property":"A","by_partition":true}
      both beyond the service; one result in all unless by_partition is true
  {"op":"group","table":"T","ops":[{"op":"insert","entity":{...}},{"op":"delete",...}]}
  {"op":"flush"}   {"op":"compact"}   {"op":"checkpoint","path":"..."}
  {"op":"backup","path":"..."}   {"op":"stats"}   {"op":"verify"}   {"op":"slow_queries"}

Answers:
  {"ok":true,...}
  {"ok":false,"error":{"code":"EntityAlreadyExists","status":409,"message":"..."}}

Example:
  echo '{"op":"query","table":"parts","top":5}' | rowstone exec shop

As a ring buffer of 2 GiB, in which the newest readings are always there:
  rowstone exec station --max-disk 2147483648 --drop-oldest readings < requests"#;

impl Exec {
    pub(super) fn run(self) -> Outcome {
        let options = set(Db::options(), self.io, Options::io_mode);
        let options = set(options, self.memtable_bytes, Options::memtable_bytes);
        let db = noted(self.open.open(options, &self.db)?);
        serve(&db, io::stdin(), io::stdout().lock())?;
        Ok(db.close()?)
    }
}

/// Answers every line of `requests`, until they end.
pub(super) fn serve(db: &Db, requests: impl Read, mut responses: impl Write) -> Outcome {
    let mut lines = Lines::new(requests, LINE_BYTES_MAX);
    loop {
        let line = lines.next();
        let line = line.map_err(|e| Failure::Other(format!("cannot read standard input: {e}")))?;
        let Some(line) = line else { return Ok(()) };
        let answer = line.bytes.map_or_else(|| Err(too_long()), read_request);
        let answer = answer.and_then(|request| answer_to(db, request));
        let response = answer.unwrap_or_else(|error| Response::error(&error));
        responses.write_all(&response.into_line())?;
        responses.flush()?;
    }
}

fn too_long() -> Error {
    let text = format!("the line is longer than {LINE_BYTES_MAX} bytes");
    Error::refused_with(Code::InvalidInput, text)
}

fn done<T>(result: Result<T>) -> Result<Response> {
    result.map(|_| Response::ok())
}

/// Carries out one request.
fn answer_to(db: &Db, request: Request) -> Result<Response> {
    Ok(match request {
        Request::CreateTable { table } => done(db.create_table(&table))?,
        Request::DeleteTable { table } => done(db.delete_table(&table))?,
        Request::Tables => Response::ok().tables(&db.tables()?),
        Request::Write { table, write } => {
            let is_delete = matches!(write, Operation::Delete { .. });
            let etag = db.table(&table)?.write(write)?;
            if is_delete { Response::ok() } else { Response::ok().etag(etag) }
        }
        Request::Get { table, key, select } => {
            let found = db.table(&table)?.get(&key.pk, &key.rk)?;
            let entity = found.ok_or_else(|| Error::refused(Code::ResourceNotFound))?;
            Response::ok().entity(&entity, &select)
        }
        Request::Query { table, query } => page(&db.table(&table)?, query)?,
        Request::Count { table, filter, by_partition } => {
            count(&db.table(&table)?, filter, by_partition)?
        }
        Request::Aggregate { table, filter, property, by_partition } => {
            aggregate(&db.table(&table)?, filter, &property, by_partition)?
        }
        Request::Group { table, writes } => {
            let table = db.table(&table)?;
            Response::ok().etags(&table.commit(EntityGroup::from_operations(writes)?)?)
        }
        Request::Flush => done(db.flush())?,
        Request::Compact => done(db.compact())?,
        Request::Checkpoint { path } => done(db.checkpoint(path))?,
        Request::Backup { path } => {
            let made = db.backup(path)?;
            Response::ok().counters([
                ("generation", made.number),
                ("files", made.files),
                ("bytes", made.bytes),
                ("new_files", made.new_files),
                ("new_bytes", made.new_bytes),
            ])
        }
        Request::Stats => Response::ok().counters(db.stats().fields().iter().copied()),
        Request::SlowQueries => Response::ok().slow_queries(&db.slow_queries()),
        Request::Verify => Response::verified(&db.verify()?),
    })
}

fn page(table: &Table, query: Query) -> Result<Response> {
    let Query { filter, select, top, next, reverse, explain } = query;
    let mut found = table.query(filter)?.select_some(select.as_deref());
    if let Some(next) = next {
        found = found.after(next);
    }
    if reverse {
        found = found.reverse();
    }
    let response = |page: &Page| Response::ok().page(page.entities(), &select, page.next());
    if explain {
        let (page, explain) = found.page_explained(top)?;
        return Ok(response(&page).explain(&explain));
    }
    Ok(response(&found.page(top)?))
}

fn count(table: &Table, filter: Filter, by_partition: bool) -> Result<Response> {
    let query = table.query(filter)?;
    Ok(match by_partition {
        true => Response::ok().counts(&query.count_by_partition()?),
        false => Response::ok().counters([("count", query.count()?)]),
    })
}

fn aggregate(
    table: &Table,
    filter: Filter,
    property: &str,
    by_partition: bool,
) -> Result<Response> {
    let query = table.query(filter)?;
    Ok(match by_partition {
        true => Response::ok().aggregates(&query.aggregate_by_partition(property)?),
        false => Response::ok().aggregate(&query.aggregate(property)?),
    })
}
