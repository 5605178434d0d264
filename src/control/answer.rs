//! Executes the requests of the exec protocol on an open database.
//!
//! Invariants
//! * memory is bounded by the longest allowed line, one page of entities, and one result per
//!   partition if requested;
//! * an error of the progress callback ends the request. The files of an incomplete checkpoint,
//!   backup, export or import are removed; copied entities and healed files stay.

use std::io;
use std::time::Duration;

use crate::db::{Backup, CopyJob, Db, Position};
use crate::error::{Code, Error, ErrorKind, Result};
use crate::json::exec::{CopyRequest, Query, Request, Response, read_request};
use crate::lsm::OnProgress;
use crate::model::{Entity, GROUP_SIZE_MAX};
use crate::query::{Filter, KeyRange, Page};
use crate::sort::sort_by;
use crate::table::{EntityGroup, LoadMode, Operation, Rejected, Table};

/// The maximum length of a request line in bytes. It is enough for the largest group of writes,
/// even if all its text is escaped.
pub(crate) const LINE_BYTES_MAX: usize = 16 << 20;

/// Parses and executes the request in `line`, and returns the response. `line` is `None` if it was
/// longer than [`LINE_BYTES_MAX`].
pub(crate) fn respond(db: &Db, line: Option<&[u8]>, progress: OnProgress<'_>) -> Vec<u8> {
    let request = line.map_or_else(|| Err(too_long()), read_request);
    let response = request.and_then(|request| answer(db, request, progress));
    response.unwrap_or_else(|error| Response::error(&error)).into_line()
}

fn too_long() -> Error {
    let text = format!("the line is longer than {LINE_BYTES_MAX} bytes");
    Error::refused_with(Code::InvalidInput, text)
}

fn done<T>(result: Result<T>) -> Result<Response> {
    result.map(|_| Response::ok())
}

/// Executes one request. Calls `progress` repeatedly if the request copies data or compacts a
/// range.
pub(crate) fn answer(db: &Db, request: Request, progress: OnProgress<'_>) -> Result<Response> {
    Ok(match request {
        Request::CreateTable { table } => done(db.create_table(&table))?,
        Request::DeleteTable { table } => done(db.delete_table(&table))?,
        Request::Tables => Response::ok().tables(&db.tables()?),
        Request::Write { table, write: row } => write(&db.table(&table)?, row)?,
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
        Request::Group { table, writes } => group(&db.table(&table)?, writes)?,
        Request::Reclaim { table, range } => reclaim(db, &table, range, progress)?,
        Request::DeleteRange { table, range } => done(db.table(&table)?.delete_range(&range))?,
        Request::Size { table, range } => size(db, &table, range)?,
        Request::Ttl { table, seconds } => ttl(db, &table, seconds)?,
        Request::Cursor { name, position } => cursor(db, &name, position)?,
        Request::Gate { table, range, mode } => done(db.gate(&table, range, mode))?,
        Request::LiftGate { table, range } => done(db.lift_gate(&table, range))?,
        Request::Gates => Response::ok().gates(&db.gates()?),
        Request::Partitions { table } => {
            Response::ok().load(&db.partitions(&table)?, &db.query_counts(&table)?)
        }
        Request::ExportRange { table, range, path } => {
            let rows = &mut |rows| progress(rows, 0);
            Response::ok().moved(&db.export_range_while(&table, range, path.as_ref(), rows)?)
        }
        Request::ImportRange { table, path } => {
            let rows = &mut |rows| progress(rows, 0);
            Response::ok().moved(&db.import_range_while(path.as_ref(), &table, rows)?)
        }
        Request::Restore { table, into, range, path, generation } => {
            let (backups, rows) = (Backup::open(path)?, &mut |rows| progress(rows, 0));
            let moved = backups.restore_into_while(generation, &table, range, (db, &into), rows)?;
            Response::ok().moved(&moved)
        }
        Request::Heal { path, file } => {
            let (file, read) = (file.as_deref(), &mut counted(progress));
            Response::ok().healed(&db.heal_while(file, path.as_ref(), read)?)
        }
        Request::Copy(request) => copy(db, request, progress)?,
        Request::Sync => done(db.sync())?,
        Request::Load { table, mode, entities } => load(&db.table(&table)?, mode, entities)?,
        Request::Flush => done(db.flush())?,
        Request::Compact => done(db.compact_while(progress))?,
        Request::CompactRange { table, range } => done(db.compact_range(&table, &range, progress))?,
        Request::Checkpoint { path } => {
            done(db.checkpoint_while(path.as_ref(), &mut counted(progress)))?
        }
        Request::Backup { path } => backup(db, &path, progress)?,
        Request::Stats => Response::ok().counters(db.stats().fields().iter().copied()),
        Request::SlowQueries => Response::ok().slow_queries(&db.slow_queries()),
        Request::Verify => Response::verified(&db.verify()?),
    })
}

/// Returns a callback that adds up the bytes it receives and passes the sum to `progress`.
fn counted(progress: OnProgress<'_>) -> impl FnMut(u64) -> io::Result<()> {
    let mut done = 0;
    move |bytes| {
        done += bytes;
        progress(done, 0)
    }
}

fn write(table: &Table, write: Operation) -> Result<Response> {
    let is_delete = matches!(write, Operation::Delete { .. });
    let etag = table.write(write)?;
    Ok(if is_delete { Response::ok() } else { Response::ok().etag(etag) })
}

/// Commits a group. The error is that of the first operation that fails, malformed or not.
fn group(table: &Table, writes: Vec<Result<Operation>>) -> Result<Response> {
    EntityGroup::check_len(writes.len())?;
    let (group, refused) = EntityGroup::up_to_refused(writes, GROUP_SIZE_MAX)?;
    if let Some(error) = refused {
        let refused = || error.at_index(group.len());
        return Err(table.first_failure(&group).unwrap_or_else(refused));
    }
    Ok(Response::ok().etags(&table.commit(group)?))
}

fn ttl(db: &Db, table: &str, seconds: Option<u64>) -> Result<Response> {
    if let Some(seconds) = seconds {
        db.set_ttl(table, (seconds > 0).then(|| Duration::from_secs(seconds)))?;
    }
    Ok(Response::ok().counters([("seconds", db.ttl(table)?.map_or(0, |ttl| ttl.as_secs()))]))
}

fn cursor(db: &Db, name: &str, position: Option<Position>) -> Result<Response> {
    let cursor = db.cursor(name)?;
    let known = cursor.position()?;
    if let Some(position) = position.filter(|_| position != known) {
        cursor.commit(position)?;
    }
    let response = Response::ok();
    Ok(match position.or(known) {
        Some(position) => response.text("position", &position.to_string()),
        None => response,
    })
}

fn load(table: &Table, mode: LoadMode, entities: Vec<Result<Entity>>) -> Result<Response> {
    let mut loader = table.loader().mode(mode);
    let mut rejected = Vec::new();
    for (line, entity) in (0..).zip(entities) {
        match entity {
            Ok(entity) => loader.push(line, entity)?,
            Err(error) => rejected.push(Rejected { line, error }),
        }
    }
    loader.flush()?;
    rejected.extend(loader.take_rejected());
    sort_by(&mut rejected, |a, b| a.line.cmp(&b.line));
    Ok(Response::ok().loaded(loader.finish()?.loaded, &rejected))
}

fn copy(db: &Db, request: CopyRequest, progress: OnProgress<'_>) -> Result<Response> {
    let (source, target) = (db.table(&request.table)?, db.table_or_create(&request.into)?);
    let mut job = CopyJob::new(&source, &target).filter(request.filter)?;
    job = job.then_delete(request.then_delete).replace(request.replace);
    if let Some(names) = &request.select {
        job = job.select(&names.iter().map(String::as_str).collect::<Vec<_>>());
    }
    if let Some(template) = &request.partition_key {
        job = job.partition_key(template)?;
    }
    if let Some(template) = &request.row_key {
        job = job.row_key(template)?;
    }
    Ok(Response::ok().copied(&job.run_while(progress)?))
}

/// If the metadata of the files indicates at most this many entities, they are counted; otherwise
/// the estimate is returned.
const COUNTED_MAX: u64 = 1_000_000;

/// Returns the number of entities in a range, counted or estimated, and about how many bytes of
/// table files they occupy.
fn size(db: &Db, table: &str, range: KeyRange) -> Result<Response> {
    let part = db.size_in_files(table, &range)?;
    let (estimate, bytes) = (part.puts(), part.bytes);
    let count = || db.table(table)?.scan(range).count();
    let counted = match (estimate <= COUNTED_MAX).then(count) {
        Some(Ok(count)) => Some(count),
        // A gate that blocks reads makes the count fail with `Busy`. A table with such a gate can
        // still be dropped, so the estimate is returned.
        Some(Err(error)) if error.kind() != ErrorKind::Busy => return Err(error),
        _ => None,
    };
    let entities = match counted {
        Some(count) => ("entities", count),
        None => ("entities_about", estimate),
    };
    Ok(Response::ok().counters([entities, ("bytes", bytes)]))
}

/// Deletes a range of a table, or the whole table if `range` is `None`, and frees the space. If
/// freeing fails, the rows are deleted nevertheless, and the response contains the error as `left`.
fn reclaim(
    db: &Db,
    table: &str,
    range: Option<KeyRange>,
    progress: OnProgress<'_>,
) -> Result<Response> {
    let delete = || match &range {
        Some(range) => db.table(table)?.delete_range(range).map(drop),
        None => db.delete_table(table),
    };
    let removed =
        db.remove_now(table, range.as_ref().unwrap_or(&KeyRange::all()), delete, progress)?;
    let kept = db.stats().get("kept_log_bytes").unwrap_or_default();
    let response = Response::ok().counters([
        ("freed_bytes", removed.freed),
        ("snapshot_bytes", removed.held_by_snapshots),
        ("reader_bytes", removed.held_by_readers),
        ("kept_log_bytes", kept),
    ]);
    Ok(match removed.error {
        Some(error) => response.text("left", &error.chain()),
        None => response,
    })
}

fn backup(db: &Db, path: &str, progress: OnProgress<'_>) -> Result<Response> {
    let made = db.backup_while(path.as_ref(), progress)?;
    let response = Response::ok().counters([
        ("generation", made.number),
        ("files", made.files),
        ("bytes", made.bytes),
        ("new_files", made.new_files),
        ("new_bytes", made.new_bytes),
        ("seq", made.seq.ticks()),
    ]);
    Ok(response.text("taken", &made.taken.to_string()))
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
