//! `rowstone exec`: carries out requests from standard input, one per line, and answers each before
//! it reads the next.
//!
//! Invariants
//! * every line gets one response, in order, flushed before the next line is read;
//! * no request ends the process; only the end of input or of output does.
//!
//! Not here: executing a request (`control::answer`), the format of requests and responses
//! (`json::exec`).

use std::io::{self, Read, Write};
use std::path::PathBuf;

use clap::Args;

use super::failure::{Failure, Outcome};
use super::open::{OpenArgs, noted, set};
use crate::control::answer::{LINE_BYTES_MAX, respond};
use crate::db::Db;
use crate::json::window::Lines;
use crate::options::{IoMode, Options};

/// Execute JSON requests, one per line; answer each with a line.
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
  {"op":"create_table","table":"T"}   {"op":"delete_table","table":"T"}
  {"op":"tables"}
  {"op":"insert","table":"T","entity":{"PartitionKey":"p","RowKey":"r","A":1}}
      also upsert_replace, upsert_merge
  {"op":"replace","table":"T","entity":{...},"etag":"*"}
      also merge; the etag is "*" or one that was returned
  {"op":"delete","table":"T","pk":"p","rk":"r","etag":"*"}
  {"op":"get","table":"T","pk":"p","rk":"r","select":["A"]}
  {"op":"query","table":"T","filter":"PartitionKey eq 'p' and A gt 1",
      "select":["A"],"top":10,"next":{"pk":"p","rk":"r"},"explain":true,
      "reverse":true}
      next is what the page before returned; without rk it is the start of the
      partition; reverse, from the last key to the first, is beyond the service
  {"op":"count","table":"T","filter":"A gt 1","by_partition":true}
  {"op":"aggregate","table":"T","filter":"A gt 1","property":"A",
      "by_partition":true}
      both beyond the service; one result in all unless by_partition is true
  {"op":"group","table":"T","ops":[
      {"op":"insert","entity":{...}},{"op":"delete",...}]}
  {"op":"load","table":"T","mode":"insert","entities":[{...},{...}]}
      loads as many entities as fit into a line, in any order; the other modes
      are upsert and upsert_merge
  {"op":"delete_range","table":"T","partition":"p","from":"a","to":"b",
      "reclaim":true}
      also size, which counts entities and bytes; a range is a partition, its
      rows at or above from and below to, or the partitions at or above
      "from_partition" and below "to_partition"; without these members it is the
      table; reclaim frees the space before the response, also in delete_table
  {"op":"gate","table":"T","partition":"p","mode":"ReadOnly"}   {"op":"gates"}
      lift_gate, with the range of a gate, removes the gate; the other mode is
      Offline
  {"op":"ttl","table":"T","seconds":604800}   {"op":"partitions","table":"T"}
      seconds sets the lifetime of rows; 0 means that they do not expire; the
      response has the lifetime
  {"op":"cursor","name":"N","position":"..."}
      position moves the cursor of the change feed; the response has its position
  {"op":"export_range","table":"T","partition":"p","path":"..."}
  {"op":"import_range","table":"T","path":"..."}
  {"op":"restore","path":"...","table":"T","into":"U","generation":1,
      "partition":"p"}
      imports a range of the backup generation, by default of the newest backup
  {"op":"heal","path":"...","file":"000012.sst"}
  {"op":"copy","table":"T","into":"U","filter":"A gt 1","select":["A"],
      "partition_key":"{A}","row_key":"{B}","replace":true,"then_delete":true}
  {"op":"flush"}   {"op":"sync"}   {"op":"compact"}   {"op":"stats"}
  {"op":"verify"}   {"op":"slow_queries"}   {"op":"backup","path":"..."}
  {"op":"checkpoint","path":"..."}
      compact accepts a table and a range

While it runs, commands that write to the same database send their requests to this process, through
the socket CONTROL in the directory of the database.

Answers:
  {"ok":true,...}
  {"ok":false,"error":{"code":"EntityAlreadyExists","status":409,
      "message":"..."}}

Example:
  echo '{"op":"query","table":"parts","top":5}' | rowstone exec shop

As a ring buffer of 2 GiB, in which the newest readings are always there:
  rowstone exec station --max-disk 2147483648 --drop-oldest readings < requests"#;

impl Exec {
    pub(super) fn run(self) -> Outcome {
        let options = set(Db::options(), self.io, Options::io_mode);
        let options = set(options, self.memtable_bytes, Options::memtable_bytes);
        let db = noted(self.open.open(options, &self.db)?, &self.db);
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
        responses.write_all(&respond(db, line.bytes, &mut |_, _| Ok(())))?;
        responses.flush()?;
    }
}
