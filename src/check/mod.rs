//! Verifies a database: reads all files from disk and compares them with the metadata about them.
//!
//! | rule     | requirement                                                                     |
//! | manifest | CURRENT names it; every record verifies, and its edits make the current version |
//! | ranges   | the ranges of a table tile its keys; files that overlap have disjoint Seqs      |
//! | file     | checksums, order, counts, bounds, Seqs, zones and hash entries match the rows   |
//! | log      | every record up to the end of the commits verifies, and so does its payload     |
//! | catalog  | every range with files belongs to a known or dropped table; all rows are valid  |
//!
//! A damaged file is quarantined (compaction avoids it). The submodules read unopenable databases.

mod evidence;
mod logs;
mod walk;

pub(crate) use evidence::{Breadth, Evidence, Verdict};
pub(crate) use walk::{FoundIn, Item, KeyFacts, Source};

use std::collections::BTreeSet;

use crate::error::{ErrorKind, Result};
use crate::format::names::TableId;
use crate::format::span::whole_table;
use crate::lsm::{Engine, Inspector};

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// The number of checked objects of each kind.
    pub checked: Vec<(&'static str, u64)>,
    /// Where the log or the manifest was cut off by a crash, and the bytes that were dropped there
    /// when the database was opened ([`OpenReport::torn`](crate::repair::OpenReport::torn)). This
    /// is not a problem by itself.
    pub torn: Option<String>,
    /// The problems, each with file name and offset. A sound database has none.
    pub problems: Vec<String>,
}

impl VerifyReport {
    /// Whether there are no problems.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    fn note(&mut self, what: &'static str, count: u64) {
        self.checked.push((what, count));
    }

    /// Records damage, a failed read or an unknown format as a problem. Any other error ends the
    /// verification.
    fn problem<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        use ErrorKind::{Corruption, Io, Unsupported};
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if matches!(error.kind(), Corruption | Io | Unsupported) => {
                self.problems.push(error.chain());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Verifies all files. Calls `progress` with the number of bytes read since its last call. `tables`
/// returns the ids of the tables that are in the catalog when it is called.
///
/// # Errors
/// Errors that prevent the verification; problems found are in the report.
pub(crate) fn verify(
    engine: &Engine,
    tables: impl FnOnce() -> BTreeSet<TableId>,
    progress: &mut dyn FnMut(u64),
) -> Result<VerifyReport> {
    let mut report = VerifyReport { torn: engine.recovered.torn(), ..VerifyReport::default() };
    let pinned = engine.reader().pin();
    let version = &pinned.version;
    if let Err(problem) = version.check() {
        report.problems.push(problem);
    }
    report.note("ranges", version.ranges.len() as u64);
    report.problems.extend(gaps(version));
    files(engine, version, &mut report, progress)?;
    verify_logs(engine, &mut report)?;
    catalog(engine, version, &tables(), &mut report);
    Ok(report)
}

/// Reads the manifest and all logs, including those that only the change feed needs.
///
/// # Errors
/// Errors that prevent the verification; problems found are in `report`.
pub(crate) fn verify_logs(engine: &Engine, report: &mut VerifyReport) -> Result<()> {
    let records = Inspector::new(engine).verify_manifest();
    let records = report.problem(records)?.unwrap_or_default();
    report.note("manifest_records", records);
    report.problems.extend(Inspector::new(engine).doubt());
    let (records, problems) = Inspector::new(engine).verify_logs();
    problems.into_iter().try_for_each(|error| report.problem::<()>(Err(error)).map(drop))?;
    report.note("log_records", records);
    Ok(())
}

/// Reports gaps between the ranges of a table. A flush could not write a key in such a gap, because
/// no range contains it.
pub(crate) fn gaps(version: &crate::manifest::Version) -> Vec<String> {
    let ranges: Vec<_> = version.ranges.iter().collect();
    let mut problems = Vec::new();
    for table in ranges.chunk_by(|a, b| a.table == b.table) {
        let (Some(first), Some(last)) = (table.first(), table.last()) else { continue };
        let whole = whole_table(first.table);
        if first.span.low != whole.low || last.span.high != whole.high {
            problems.push(format!("{}: the ranges do not reach to its ends", first.table));
        }
        for pair in table.windows(2) {
            if pair[0].span.high.as_ref() != Some(&pair[1].span.low) {
                let [below, above] = [pair[0].id.0, pair[1].id.0];
                problems.push(format!("range r{below}: there is a gap between it and r{above}"));
            }
        }
    }
    problems
}

/// Reports ranges of `version` that belong to no table of this database. A concurrent drop first
/// removes a table from the catalog, then reclaims its ranges. So a range is reported only if its
/// table is neither in the catalog nor dropped, and the range still exists after these checks.
///
/// Requires: `tables` is read after the version was pinned.
fn catalog(
    engine: &Engine,
    version: &crate::manifest::Version,
    tables: &BTreeSet<TableId>,
    report: &mut VerifyReport,
) {
    report.note("tables", tables.len() as u64);
    for range in version.ranges.iter() {
        let known = range.table == TableId::CATALOG
            || tables.contains(&range.table)
            || engine.reader().is_dropped(range.table)
            || engine.reader().pin().version.ranges.iter().all(|other| other.id != range.id);
        if !known {
            let problem = format!("range r{}: {} is in no catalog", range.id.0, range.table);
            report.problems.push(problem);
        }
    }
}

fn files(
    engine: &Engine,
    version: &crate::manifest::Version,
    report: &mut VerifyReport,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let (mut files, mut blocks, mut entries) = (0, 0, 0);
    for file in version.files() {
        files += 1;
        let facts = Inspector::new(engine).verify_file(file, progress);
        let Some(facts) = report.problem(facts)? else { continue };
        blocks += facts.blocks;
        entries += facts.stats.entries;
        report.problems.extend(facts.problems.iter().map(ToString::to_string));
    }
    report.note("files", files);
    report.note("blocks", blocks);
    report.note("entries", entries);
    Ok(())
}
