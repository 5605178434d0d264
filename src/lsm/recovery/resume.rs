//! Finishes the replay of logs for which the memtables had no room.
//!
//! Invariants
//! * All logs were checked and are durable before the first file is named.
//! * A log is linked to the memtable that holds its last commit. A flush of an earlier memtable
//!   does not remove the log; the flushed Seq tells the next opening which commits to skip.
//! * The new log was begun before, so no flush begins it. It is linked last.
//!
//! Not here: checking the logs (`replay`).

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::format::names::{FileName, FileNumber};
use crate::format::record::LogKind;
use crate::format::wal::{Predecessor, WalRecord};
use crate::log::{LogReader, StopReason};
use crate::memtable::Memtable;
use crate::model::Seq;

use super::replay::{accepts_writes, decode};
use super::wal_rows::{Drops, LogRows, Problem};
use crate::lsm::background::maintenance::Maintenance;
use crate::lsm::read::view::Slot;

/// Inserts the commits of the logs `accepted` after `inserted`. Flushes full memtables meanwhile,
/// so that memtables take no more memory than they do while the database is written. The last one
/// is linked to the new log `number`.
pub(super) fn resume(
    maintenance: &Maintenance,
    inserted: Seq,
    accepted: &[Predecessor],
    number: FileNumber,
) -> Result<()> {
    let reader = maintenance.reader();
    let view = reader.view.load_full();
    let is_done = |log: &Predecessor| view.memtables.iter().any(|s| s.logs.contains(&log.number));
    let mut rows = LogRows::default();
    for log in accepted.iter().filter(|log| !is_done(log)) {
        resume_log(maintenance, &mut rows, inserted, log)?;
        reader.change_view(|view| view.with_log(log.number));
    }
    if !accepts_writes(maintenance.env(), reader.view.load().active()) {
        begin_memtable(maintenance)?;
    }
    reader.change_view(|view| view.with_log(number));
    Ok(())
}

fn resume_log(
    maintenance: &Maintenance,
    rows: &mut LogRows,
    inserted: Seq,
    log: &Predecessor,
) -> Result<()> {
    let (env, view) = (maintenance.env(), &maintenance.reader().view);
    let path = env.dir.join(FileName::Wal(log.number).to_string());
    let reader = LogReader::open(&*env.fs, &path, LogKind::Wal, Some(log.id))?;
    let mut reader = reader.until(log.accepted_end);
    rows.begin_log();
    while let Some(record) = reader.next()? {
        let (WalRecord::Group(group) | WalRecord::Catalog(group)) = decode(&path, &record)? else {
            continue;
        };
        let at = record.payload_offset();
        let damage = |Problem(text)| Error::corrupt(&path, at, "wal group", text);
        rows.define(&env.shapes, &group).map_err(damage)?;
        if record.seq <= inserted {
            continue;
        }
        if view.load().active().is_overfull(env.options.memtable_bytes) {
            begin_memtable(maintenance)?;
        }
        // The view has the drops of all logs already.
        let (commit, mut known) = ((record.seq, record.payload.len()), Drops::default());
        let active = view.load();
        let memtable = Some(&*active.active().memtable);
        rows.take(env.seed, memtable, commit, &group, &mut known).map_err(damage)?;
    }
    if reader.stop() != Some(&StopReason::Accepted) {
        let (at, problem) = (reader.position().offset, reader.stop_text());
        return Err(Error::corrupt(&path, at, "record", problem));
    }
    Ok(())
}

/// Begins another memtable, and flushes the oldest one if too many wait for their flush. On a full
/// disk they continue to wait.
fn begin_memtable(maintenance: &Maintenance) -> Result<()> {
    let (options, reader) = (&maintenance.env().options, maintenance.reader());
    let id = reader.view.load().active().memtable.id + 1;
    let memtable = Arc::new(Memtable::new(id, options.memtable_bytes, 0));
    let slot = Arc::new(Slot { memtable, logs: Vec::new() });
    reader.change_view(|view| view.with_active(&slot));
    while reader.view.load().frozen().len() > options.frozen_max {
        match maintenance.flush_one() {
            Ok(true) => {}
            Err(error) if error.kind() != ErrorKind::StorageFull => return Err(error),
            Ok(false) | Err(_) => break,
        }
    }
    Ok(())
}
