//! Builds a new database from a damaged one. The new database gets the rows that are proven to be
//! current and, on request, rows that may be outdated. The damaged database is only read.
//!
//! 1. Read the damaged database, and decide for each key which row, if any, is kept
//!    (`check::evidence`).
//! 2. Write the newest row of each key, with its Seq, into table files of a new directory: one
//!    sorted run per table.
//! 3. Write the catalog. A table without a catalog row gets a generated name.
//! 4. Write a manifest with a new incarnation, then CURRENT, which makes the directory a database.
//!    Open the database once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::check::{Breadth, Evidence, Item, KeyFacts, Source, Verdict};
use crate::codec::DecodeError;
use crate::error::{Doing, Error, Result};
use crate::format::Kind;
use crate::format::edit::{Identity, Placement, RangeMeta, ReferenceMeta, VersionEdit};
use crate::format::file_meta::FileMeta;
use crate::format::key::{decode_part, decode_user_key, table_of, user_key};
use crate::format::names::{FileId, FileName, FileNumber, RangeId, TableId};
use crate::format::span::{Span, whole_table};
use crate::lsm::{require_empty, require_outside};
use crate::manifest::Manifest;
use crate::model::{DateTime, Entity, Row, Seq, Shapes};
use crate::options::{Background, Options};
use crate::rng::Rng;
use crate::sort::sort_by;
use crate::sst::{SstOptions, SstWriter};
use crate::table::{CatalogRow, check_row};

/// How to treat rows that a lost write or deletion may have superseded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SuspectRows {
    /// Counts suspect rows and leaves them out.
    #[default]
    LeaveOut,
    /// Keeps the newest remaining version of suspect rows.
    Keep,
}

/// The result of [`Options::repair`]: the rows saved, and the losses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// The reason why the manifest does not prove which files are live; `None` if it does. If there
    /// is a reason, all rows are suspect.
    pub doubt: Option<String>,
    /// Problems that were found but caused no loss.
    pub notes: Vec<String>,
    /// The time of the state that the new database contains, if the state is proven.
    pub as_of: Option<DateTime>,
    /// The Seq of the last commit in the state that the new database contains.
    pub as_of_seq: Seq,
    /// The tables, by name.
    pub tables: Vec<RepairedTable>,
    /// The losses, by file.
    pub losses: Vec<Loss>,
}

/// A table of a repaired database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairedTable {
    /// The table's name.
    pub name: String,
    /// Whether the table's catalog row is lost; `name` is generated then.
    pub is_name_lost: bool,
    /// The number of the table's rows in the new database.
    pub rows: u64,
    /// Number of suspect rows; they are left out, or included in `rows` with [`SuspectRows::Keep`].
    pub suspect: u64,
    /// The number of rows that existed and cannot be read.
    pub unreadable: u64,
}

/// The loss in one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// The file's name.
    pub file: String,
    /// The damage.
    pub problem: String,
    /// An upper bound of the number of lost entries, counting all versions and deletions, if the
    /// file's original number of entries is known. For a log, the number of readable commits that
    /// were left out because they follow the damage.
    pub entries: Option<u64>,
    /// The key ranges of the lost entries; empty if unknown, as for a log.
    pub ranges: Vec<LostRange>,
}

/// A range of keys, both ends included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostRange {
    /// The table of the first key, by name if known.
    pub table: String,
    /// PartitionKey and RowKey of the first key.
    pub first: (String, String),
    /// The table of the last key.
    pub last_table: String,
    /// PartitionKey and RowKey of the last key.
    pub last: (String, String),
}

impl RepairReport {
    /// Whether nothing is lost and nothing was left out.
    pub fn is_whole(&self) -> bool {
        let is_table_whole = |t: &RepairedTable| !t.is_name_lost && t.suspect + t.unreadable == 0;
        self.doubt.is_none() && self.losses.is_empty() && self.tables.iter().all(is_table_whole)
    }

    /// Returns the number of rows in the new database.
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|table| table.rows).sum()
    }

    /// Returns the number of suspect rows.
    pub fn suspect(&self) -> u64 {
        self.tables.iter().map(|table| table.suspect).sum()
    }
}

impl Options {
    /// Builds a new database in the new or empty directory `target` from the database in `source`,
    /// which may be too damaged to open. The new database gets all rows that are proven to be
    /// current. The source must not be open in any process, and is not changed. Entities keep their
    /// Timestamps and ETags; the new database has another incarnation. Reads every file once and
    /// writes every kept row.
    ///
    /// A row is *suspect* if a newer version of its key may have been lost, so that the row may be
    /// outdated or deleted. If the manifest is damaged, all rows are suspect, because the set of
    /// live files is unknown. `progress` is called with the bytes read since the last call and the
    /// total.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use rowstone::{Db, Entity, fs::{Fs, MemFs}, repair::SuspectRows};
    /// let fs = std::sync::Arc::new(MemFs::new());
    /// let options = || Db::options().fs(fs.clone());
    /// let db = options().open("db")?;
    /// db.create_table("parts")?.insert(Entity::new("bolts", "m4x20"))?;
    /// db.close()?;
    /// fs.remove("db/CURRENT".as_ref()).unwrap();
    /// assert!(options().open("db").is_err());
    /// let report = options().repair("db", "repaired", SuspectRows::LeaveOut, |_, _| ())?;
    /// assert!(report.is_whole() && report.rows() == 1);
    /// assert!(options().open("repaired")?.table("parts")?.get("bolts", "m4x20")?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound` if there is no database in `source`; `Locked` if it is open; `AlreadyExists` if
    /// `target` is not empty; `Unsupported` for data of a newer build, or of a build with other
    /// features; `Io`, `StorageFull`. The contents of `target` are not a database after an error.
    pub fn repair(
        self,
        source: impl AsRef<Path>,
        target: impl AsRef<Path>,
        suspect: SuspectRows,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<RepairReport> {
        let (source, target) = (source.as_ref(), target.as_ref());
        let fs = Arc::clone(&self.fs);
        require_empty(&*fs, target)?;
        require_outside(target, source)?;
        let mut evidence = Evidence::gather(&fs, source, Breadth::Proven)?;
        fs.create_dir_all(target).doing("create", target)?;
        let mut build = Build::new(&self, target, &evidence, suspect);
        let whole = evidence.bytes();
        let mut report_progress = |bytes| progress(bytes, whole);
        evidence.walk(&mut report_progress, |evidence, facts, verdict| {
            build.take(evidence, facts, verdict)
        })?;
        // Without this check, data that another build can read would be reported as lost.
        evidence.unsupported().map_or(Ok(()), |error| Err(error.clone()))?;
        let report = build.finish(&evidence)?;
        self.create_if_missing(false).background(Background::Manual).open(target)?.close()?;
        Ok(report)
    }
}

/// A database under construction.
struct Build<'o> {
    options: &'o Options,
    dir: PathBuf,
    identity: Identity,
    rng: Rng,
    suspect: SuspectRows,
    next: u64,
    writer: Option<SstWriter>,
    files: Vec<FileMeta>,
    catalog: BTreeMap<Vec<u8>, (Seq, Row)>,
    names: BTreeMap<TableId, String>,
    /// Catalog rows of tables that may have been dropped. Such a row is used only if the new
    /// database has other rows of the table.
    suspect_names: BTreeMap<TableId, (Vec<u8>, Seq, Row, String)>,
    next_table: u32,
    tables: BTreeMap<TableId, RepairedTable>,
    /// The losses of catalog rows that were left out because they would prevent a database from
    /// opening.
    unusable: Vec<Loss>,
}

impl<'o> Build<'o> {
    fn new(options: &'o Options, dir: &Path, evidence: &Evidence, suspect: SuspectRows) -> Self {
        let mut rng = options.seed.map_or_else(Rng::from_entropy, Rng::from_seed);
        let known = evidence.salvaged.version.identity.as_ref();
        let identity = match known {
            Some(known) => Identity { incarnation: rng.next_u64(), ..Identity::clone(known) },
            None => Identity::random(&mut rng),
        };
        Self {
            dir: dir.to_owned(),
            options,
            identity,
            rng,
            suspect,
            next: 1,
            writer: None,
            files: Vec::new(),
            catalog: BTreeMap::new(),
            names: BTreeMap::new(),
            suspect_names: BTreeMap::new(),
            next_table: 1,
            tables: BTreeMap::new(),
            unusable: Vec::new(),
        }
    }

    fn take(&mut self, evidence: &Evidence, facts: &KeyFacts<'_>, verdict: Verdict) -> Result<()> {
        let Some(table) = table_of(facts.key) else { return Ok(()) };
        if evidence.dropped.contains_key(&table) {
            return Ok(());
        }
        let (at, is_suspect) = match verdict {
            Verdict::Live(at) => (at, false),
            Verdict::Suspect(at) => (at, true),
            Verdict::Gone => return Ok(()),
            Verdict::RowLost => {
                self.table(table).unreadable += 1;
                return Ok(());
            }
        };
        let Some((item, row)) = facts.items.get(at).and_then(|i| Some((i, i.row.as_ref()?))) else {
            return Ok(());
        };
        if table == TableId::CATALOG {
            self.take_catalog(evidence, facts.key, item, row, is_suspect);
            return Ok(());
        }
        let keeps = !is_suspect || self.suspect == SuspectRows::Keep;
        let counts = self.table(table);
        counts.suspect += u64::from(is_suspect);
        counts.rows += u64::from(keeps);
        if keeps { self.put(facts.key, item.seq, row) } else { Ok(()) }
    }

    /// Keeps a catalog row. Even a suspect catalog row is kept if the manifest has ranges of its
    /// table, because the name and number of a table never change. A row that opening would refuse
    /// is left out.
    fn take_catalog(
        &mut self,
        evidence: &Evidence,
        key: &[u8],
        item: &Item,
        row: &Row,
        is_suspect: bool,
    ) {
        let seq = item.seq;
        let entity = entity_of(key, seq, row);
        let entity = entity.and_then(|entity| check_row(&entity).map(|()| entity));
        let entity = match entity {
            Ok(entity) => entity,
            Err(error) => {
                let ranges = vec![LostRange::of(key, key, &self.names)];
                let (file, problem, entries) = (evidence.file_of(item), error.chain(), Some(1));
                self.unusable.push(Loss { file, problem, entries, ranges });
                return;
            }
        };
        let keeps = !is_suspect || self.suspect == SuspectRows::Keep;
        match CatalogRow::of(&entity) {
            Some(CatalogRow::Table(id, name)) => {
                self.next_table = self.next_table.max(id.0.saturating_add(1));
                let has_range = || {
                    let version = &evidence.salvaged.version;
                    evidence.is_whole() && !version.ranges_in(&whole_table(id)).is_empty()
                };
                if evidence.dropped.contains_key(&id) {
                    return;
                }
                if !keeps && !has_range() {
                    let known = (key.to_vec(), seq, row.clone(), name.to_owned());
                    self.suspect_names.insert(id, known);
                    return;
                }
                self.names.insert(id, name.to_owned());
                self.table(id);
            }
            // Table numbers are never reused, so the highest next number in any catalog row of this
            // kind is used.
            Some(CatalogRow::Next(id)) => {
                self.next_table = self.next_table.max(id.0);
                return;
            }
            None if !keeps => return,
            None => {}
        }
        self.catalog.insert(key.to_vec(), (seq, row.clone()));
    }

    fn table(&mut self, id: TableId) -> &mut RepairedTable {
        self.next_table = self.next_table.max(id.0.saturating_add(1));
        self.tables.entry(id).or_default()
    }

    /// Writes a row. Requires that keys are in ascending order.
    fn put(&mut self, key: &[u8], seq: Seq, row: &Row) -> Result<()> {
        let ends = |writer: &SstWriter| {
            table_of(writer.last_key()) != table_of(key)
                || writer.bytes() >= self.options.run_file_bytes
        };
        if self.writer.as_ref().is_some_and(ends) {
            self.end_file()?;
        }
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => {
                let (number, id) = (FileNumber(self.next), FileId(self.rng.next_u64()));
                self.next += 1;
                let block_bytes = self.options.block_bytes;
                let (codec, seed) = (self.options.codec_run, self.identity.seed);
                let options = SstOptions { block_bytes, codec, seed };
                SstWriter::create(Arc::clone(&self.options.fs), &self.dir, number, id, options)?
            }
        };
        self.writer.insert(writer).add(key, seq, Kind::Put, Some(&row.as_ref()))
    }

    fn end_file(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            self.files.push(writer.finish()?);
        }
        Ok(())
    }

    fn finish(mut self, evidence: &Evidence) -> Result<RepairReport> {
        self.end_file()?;
        self.tables.remove(&TableId::CATALOG);
        if evidence.is_whole() {
            // Tables without a remaining row are included, too.
            let ranges = evidence.salvaged.version.ranges.iter().map(|range| range.table);
            let there =
                ranges.filter(|t| *t != TableId::CATALOG && !evidence.dropped.contains_key(t));
            there.for_each(|table| {
                self.table(table);
            });
        }
        self.name_tables(evidence.as_of(), &evidence.shapes)?;
        for (key, (seq, row)) in std::mem::take(&mut self.catalog) {
            self.put(&key, seq, &row)?;
        }
        self.end_file()?;
        self.publish(evidence)?;
        Ok(self.report(evidence))
    }

    /// Gives every table a catalog row, and writes the row with the next table number.
    fn name_tables(&mut self, seq: Seq, shapes: &Shapes) -> Result<()> {
        let ids: Vec<TableId> = self.tables.keys().copied().collect();
        let mut taken: BTreeSet<String> =
            self.names.values().map(|name| name.to_ascii_lowercase()).collect();
        for id in ids {
            if let Some((key, seq, row, name)) = self.suspect_names.remove(&id)
                && taken.insert(name.to_ascii_lowercase())
            {
                self.catalog.insert(key, (seq, row));
                self.names.insert(id, name);
            }
            let table = self.tables.entry(id).or_default();
            if let Some(name) = self.names.get(&id) {
                table.name.clone_from(name);
                continue;
            }
            let mut names = (0u32..).map(|i| match i {
                0 => format!("recovered{}", id.0),
                i => format!("recovered{}x{i}", id.0),
            });
            let name = names.find(|name| taken.insert(name.clone())).unwrap_or_default();
            (table.name, table.is_name_lost) = (name.clone(), true);
            self.put_catalog(&CatalogRow::Table(id, &name).entity(), seq, shapes)?;
            self.names.insert(id, name);
        }
        self.put_catalog(&CatalogRow::Next(TableId(self.next_table)).entity(), seq, shapes)
    }

    fn put_catalog(&mut self, entity: &Entity, seq: Seq, shapes: &Shapes) -> Result<()> {
        let row = entity.to_row(shapes)?;
        let key = user_key(TableId::CATALOG, entity.partition_key(), entity.row_key());
        self.catalog.insert(key, (seq, row));
        Ok(())
    }

    /// Writes the manifest and CURRENT (the first part of step 4).
    fn publish(&mut self, evidence: &Evidence) -> Result<()> {
        self.options.fs.sync_dir(&self.dir).doing("sync", &self.dir)?;
        let mut edit = VersionEdit {
            flushed_seq: Some(evidence.seq_max()),
            add_files: self.files.clone(),
            clock: evidence.salvaged.version.clock_if_known(),
            ..VersionEdit::default()
        };
        let mut ranges: BTreeMap<TableId, RangeId> = BTreeMap::new();
        for file in &self.files {
            let Some(table) = table_of(&file.key_min) else { continue };
            let next = &mut self.next;
            let range = *ranges.entry(table).or_insert_with(|| {
                *next += 1;
                let id = RangeId(*next);
                edit.add_ranges.push(RangeMeta { id, table, span: whole_table(table) });
                id
            });
            let clip = Span::inclusive(&file.key_min, &file.key_max);
            let (placement, file) = (Placement::Run, file.number);
            edit.add_references.push(ReferenceMeta { range, file, placement, clip, bytes: None });
        }
        sort_by(&mut edit.add_ranges, |a, b| a.span.low.cmp(&b.span.low));
        let (fs, identity) = (Arc::clone(&self.options.fs), self.identity.clone());
        let rng = Rng::from_seed(self.rng.next_u64());
        Manifest::create(fs, &self.dir, identity, &edit, rng).map(drop)
    }

    fn report(self, evidence: &Evidence) -> RepairReport {
        let salvaged = &evidence.salvaged;
        let mut notes: Vec<String> =
            salvaged.note.iter().chain(&evidence.logs.torn).cloned().collect();
        if !evidence.unnamed.is_empty() && evidence.is_whole() {
            let names = evidence.unnamed.iter().map(|n| FileName::Sst(*n).to_string());
            let names = names.collect::<Vec<_>>().join(", ");
            notes.push(format!("left out, for the manifest does not name them: {names}"));
        }
        let as_of_seq = evidence.as_of();
        let as_of = evidence.is_whole().then(|| DateTime::from(as_of_seq));
        let doubt = salvaged.doubt.clone();
        let losses = losses(evidence, &self.names).chain(self.unusable).collect();
        let mut tables: Vec<RepairedTable> = self.tables.into_values().collect();
        sort_by(&mut tables, |a, b| a.name.cmp(&b.name));
        RepairReport { doubt, notes, as_of, as_of_seq, tables, losses }
    }
}

/// Returns the losses, by file.
fn losses(evidence: &Evidence, names: &BTreeMap<TableId, String>) -> impl Iterator<Item = Loss> {
    let tables = evidence.sources.iter().enumerate();
    let tables = tables.filter_map(move |(i, source)| table_loss(evidence, i, source, names));
    let logs = evidence.logs.losses.iter().map(|loss| Loss {
        file: FileName::Wal(loss.file).to_string(),
        problem: loss.problem.clone(),
        entries: Some(loss.commits_behind),
        ranges: Vec::new(),
    });
    tables.chain(logs)
}

fn table_loss(
    evidence: &Evidence,
    i: usize,
    source: &Source,
    names: &BTreeMap<TableId, String>,
) -> Option<Loss> {
    let outcome = &source.outcome;
    let gaps = outcome.gaps.iter().filter(|(low, high)| evidence.holds_any(i, low, high));
    let rows = outcome.rows_between.iter().filter(|(low, high)| evidence.holds_any(i, low, high));
    let ranges: Vec<LostRange> =
        gaps.chain(rows).map(|(low, high)| LostRange::of(low, high, names)).collect();
    // If the first and last keys of a file are unknown, it may have contained any key, so it is
    // listed even without a lost range.
    if ranges.is_empty() && source.keys.is_some() {
        return None;
    }
    let lost = |entries: u64| entries.saturating_sub(outcome.read) + outcome.rows_lost;
    let problem = outcome.problems.first().cloned().unwrap_or_else(|| "damaged".to_owned());
    let entries = source.entries.map(lost);
    Some(Loss { file: source.name.clone(), problem, entries, ranges })
}

impl LostRange {
    fn of(low: &[u8], high: &[u8], names: &BTreeMap<TableId, String>) -> LostRange {
        let ((table, first), (last_table, last)) = (texts(low, names), texts(high, names));
        LostRange { table, first, last_table, last }
    }
}

/// Decodes a row as an entity.
///
/// # Errors
/// `Corruption` if it is damaged.
pub(super) fn entity_of(key: &[u8], seq: Seq, row: &Row) -> Result<Entity> {
    let bad = |error: DecodeError| Error::decode("row".as_ref(), 0, error);
    let (_, pk, rk) = decode_user_key(key).map_err(bad)?;
    Entity::from_row(pk, rk, seq, &row.as_ref()).map_err(bad)
}

/// Returns the table's name, and the PartitionKey and RowKey as text.
pub(super) fn texts(key: &[u8], names: &BTreeMap<TableId, String>) -> (String, (String, String)) {
    let text = |part: &[u8]| {
        decode_part(part).map_or_else(|_| part.escape_ascii().to_string(), |t| t.into_owned())
    };
    let table = table_of(key).unwrap_or_default();
    let name = match names.get(&table) {
        Some(name) => name.clone(),
        None if table == TableId::CATALOG => "(catalog)".to_owned(),
        None => table.to_string(),
    };
    match decode_user_key(key) {
        Ok((_, pk, rk)) => (name, (text(pk), text(rk))),
        Err(_) => (name, (key.escape_ascii().to_string(), String::new())),
    }
}
