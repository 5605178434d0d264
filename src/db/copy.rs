//! Copies entities from one table into another table of the same or another database, optionally
//! under other keys.
//!
//! Invariants
//! * if a run is interrupted at any point, each row is in the source, or its copy is durable, or
//!   both. Running the job again completes the copy;
//! * rows of the source that would get the same new key are not copied. They are found by the
//!   hashes of their new keys, in several passes if necessary to bound memory;
//! * a source row is deleted only after the target is synced, and only if it has not changed since
//!   it was read.

use std::fmt;
use std::sync::Arc;

use super::Db;
use crate::codec::{HashSeed, hash};
use crate::error::{Error, ErrorKind, Result};
use crate::lsm::{OnProgress, SnapshotGuard};
use crate::model::{ETag, Entity, GROUP_OPERATIONS_MAX, KeyTemplate};
use crate::named::named;
use crate::options::Durability;
use crate::query::{Filter, Query};
use crate::table::{EntityGroup, LoadMode, Snapshot, Table};

/// Rows per batch of look-ups, inserts and deletes.
const BATCH_ROWS: usize = 1_000;
/// Limit on the total entity size of a batch, in bytes.
const BATCH_BYTES: usize = 4 << 20;
/// Number of new keys that one pass compares with each other. Each takes 16 bytes of memory.
const PASS_ROWS: u64 = 4 << 20;
/// Maximum number of problems in a summary; all problems are counted.
const PROBLEMS_MAX: usize = 100;

/// A copy of entities from one table into another. It may be run again after an interruption.
///
/// Nothing in the target is overwritten unless [`replace`](Self::replace) is set. A target row with
/// the same key and the same properties is not an error, so an interrupted run is simply repeated.
/// With [`then_delete`](Self::then_delete) the job is an archive step. Copies get new Timestamps
/// and ETags.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// use rowstone::{Db, Entity, copy::CopyJob};
/// let db = Db::open_in_memory()?;
/// let (orders, archive) = (db.create_table("orders")?, db.create_table("archive")?);
/// for (id, year) in [("17", 2012), ("18", 2013), ("19", 2013)] {
///     orders.insert(Entity::new("open", id).with("Year", year))?;
/// }
/// let job = CopyJob::new(&orders, &archive);
/// let mut job = job.filter("Year eq 2013")?.partition_key("{Year}")?.then_delete(true);
/// let summary = job.run()?;
/// assert_eq!((summary.copied, summary.deleted), (2, 2));
/// assert!(archive.get("2013", "18")?.is_some());
/// assert!(orders.get("open", "18")?.is_none());
/// # Ok(())
/// # }
/// ```
pub struct CopyJob {
    source: Table,
    target: Table,
    filter: Filter,
    select: Option<Vec<String>>,
    partition_key: Option<KeyTemplate>,
    row_key: Option<KeyTemplate>,
    then_delete: bool,
    replace: bool,
    on_problem: Option<OnProblem>,
    pub(super) batch_rows: usize,
    pub(super) pass_rows: u64,
}

/// The callback for problems.
type OnProblem = Box<dyn FnMut(&CopyProblem) + Send>;

/// The result of a [`CopyJob`]. Each row read is counted once: as copied, replaced, present, in
/// place, in conflict, shared or refused. If the job deletes source rows, `deleted` and `changed`
/// count some rows again.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CopySummary {
    /// Rows of the source that match the filter.
    pub rows: u64,
    /// Rows copied by this run.
    pub copied: u64,
    /// Rows that were not copied because the target has a row with the new key and the same
    /// properties.
    pub present: u64,
    /// Rows that replaced a target row with the new key and other properties.
    pub replaced: u64,
    /// Rows that are not copied because, in a copy within one table, they already have their new
    /// key.
    pub in_place: u64,
    /// Rows deleted from the source after their copies were durable.
    pub deleted: u64,
    /// Rows not copied because the target has a row with the new key and other properties.
    pub conflicts: u64,
    /// Rows not copied because another row of the source would get the same key.
    pub shared: u64,
    /// Rows not copied because they lack a property from which the new key is formed, or because
    /// the target refuses them.
    pub refused: u64,
    /// Rows copied but not deleted, because of a concurrent write or delete.
    pub changed: u64,
    /// The first hundred rows counted in `conflicts`, `shared`, `refused` and `changed`.
    pub problems: Vec<CopyProblem>,
}

/// A row that was not copied, or copied but not deleted, with the reason.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CopyProblem {
    /// PartitionKey and RowKey in the source.
    pub source: (String, String),
    /// PartitionKey and RowKey in the target, if they could be formed.
    pub target: Option<(String, String)>,
    /// The kind of problem.
    pub kind: CopyProblemKind,
    /// A description of the problem.
    pub message: String,
}

named! {
    /// Kinds of problems of a [`CopyJob`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum CopyProblemKind {
        /// The target has a row with the new key and other properties.
        Conflict "conflict",
        /// Another row of the source would get the same key.
        Shared "shared",
        /// The row lacks a property from which the new key is formed, or the target refuses the
        /// row.
        Refused "refused",
        /// The row was copied, but not deleted, because of a concurrent write or delete.
        Changed "changed",
    }

    /// Returns the name, one word.
    pub fn as_str;
    #[cfg(feature = "cli")]
    pub(crate) const ALL;
}

/// A row to be copied.
struct Moving {
    partition_key: String,
    row_key: String,
    etag: Option<ETag>,
    copy: Entity,
    /// Whether the copy is in the target.
    is_there: bool,
}

/// A run in progress. It reads the source at a snapshot, in key order, in batches.
struct Run<'j, 'p> {
    job: &'j mut CopyJob,
    snapshot: Snapshot,
    summary: CopySummary,
    of: u64,
    is_within_a_table: bool,
    progress: OnProgress<'p>,
}

impl CopyJob {
    /// Creates a job that copies all entities of `source` into `target` under their own keys.
    pub fn new(source: &Table, target: &Table) -> Self {
        Self {
            source: source.clone(),
            target: target.clone(),
            filter: Filter::all(),
            select: None,
            partition_key: None,
            row_key: None,
            then_delete: false,
            replace: false,
            on_problem: None,
            batch_rows: BATCH_ROWS,
            pass_rows: PASS_ROWS,
        }
    }

    /// Restricts the copy to entities that match `filter`: its text, or a [`Filter`] with bound
    /// values.
    ///
    /// # Errors
    /// As [`Table::query`].
    pub fn filter<F>(mut self, filter: F) -> Result<Self>
    where
        F: TryInto<Filter>,
        Error: From<F::Error>,
    {
        self.filter = self.source.query(filter)?.into_filter();
        Ok(self)
    }

    /// Copies only these properties; new keys may also be formed from other properties. If rows are
    /// deleted after copying, their other properties are lost.
    pub fn select(mut self, names: &[&str]) -> Self {
        let all = names.contains(&"*");
        self.select = (!all).then(|| names.iter().map(|name| (*name).to_owned()).collect());
        self
    }

    /// Sets the PartitionKey of the copies: a text with properties in braces, such as
    /// `{carrier}-{origin}`. `{{` and `}}` are literal braces. PartitionKey, RowKey and Timestamp
    /// may be used like properties. A DateTime is written as in JSON, a Binary as hexadecimal
    /// digits. By default a copy keeps the row's PartitionKey.
    ///
    /// # Errors
    /// `InvalidInput` for a lone brace.
    pub fn partition_key(mut self, template: &str) -> Result<Self> {
        self.partition_key = Some(KeyTemplate::parse(template)?);
        Ok(self)
    }

    /// Sets the RowKey of the copies, like [`partition_key`](Self::partition_key).
    ///
    /// # Errors
    /// `InvalidInput` for a lone brace.
    pub fn row_key(mut self, template: &str) -> Result<Self> {
        self.row_key = Some(KeyTemplate::parse(template)?);
        Ok(self)
    }

    /// Deletes each row from the source after its copy is durable in the target, whatever the
    /// durability of the two databases. A row that was written after the job read it is not
    /// deleted.
    pub fn then_delete(mut self, then_delete: bool) -> Self {
        self.then_delete = then_delete;
        self
    }

    /// Replaces a target row with other properties under the same key, instead of reporting a
    /// conflict. If source and target are the same table, this replaces only copies that an earlier
    /// run made: rows whose keys are formed from their own properties. Any other row is itself a
    /// source row, which may not have been copied yet.
    pub fn replace(mut self, replace: bool) -> Self {
        self.replace = replace;
        self
    }

    /// Calls `with` with each problem, including problems that the summary omits.
    pub fn on_problem(mut self, with: impl FnMut(&CopyProblem) + Send + 'static) -> Self {
        self.on_problem = Some(Box::new(with));
        self
    }

    /// Runs the job. Without new keys it reads the source once. With new keys it reads the source
    /// twice for every four million rows: first to find keys that several rows would get, then to
    /// copy. Memory does not grow with the tables.
    ///
    /// To copy within one table, form both keys only from properties that are copied. Then a later
    /// run of the job forms the same keys for a copy, and leaves it in place.
    ///
    /// # Errors
    /// `InvalidInput` for a copy within one table with keys that are not formed in this way. Errors
    /// that end reading or writing: `Corruption`, `Io`, `StorageFull`, `Poisoned`, `Busy`,
    /// `NotFound` for a table that was dropped. The job may be run again after these. Problems of
    /// single rows are in the summary.
    pub fn run(&mut self) -> Result<CopySummary> {
        self.run_with(|_, _| ())
    }

    /// As [`run`](Self::run); calls `progress` with the rows processed so far and the total.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_with(&mut self, mut progress: impl FnMut(u64, u64)) -> Result<CopySummary> {
        self.run_while(&mut |rows, of| {
            progress(rows, of);
            Ok(())
        })
    }

    /// Like [`run_with`](Self::run_with); an error of `progress` ends the job. Copies made before
    /// stay.
    pub(crate) fn run_while(&mut self, progress: OnProgress<'_>) -> Result<CopySummary> {
        self.check()?;
        let snapshot = Snapshot::new(SnapshotGuard::take(&self.source.engine));
        let summary = CopySummary::default();
        let is_within_a_table = self.is_within_a_table();
        let mut run = Run { job: self, snapshot, summary, of: 0, is_within_a_table, progress };
        run.all()?;
        let summary = run.summary;
        self.target.engine.maintenance().sync()?;
        if self.then_delete {
            self.source.engine.maintenance().sync()?;
        }
        Ok(summary)
    }

    /// Reads the rows and copies nothing. A row is counted as refused if its copy cannot be formed
    /// or `refuses` returns reasons. Calls `progress` with the rows read so far and the total.
    ///
    /// # Errors
    /// Errors that end reading.
    #[cfg(feature = "cli")]
    pub(crate) fn check_with(
        &mut self,
        refuses: &dyn Fn(&Entity) -> Vec<String>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<CopySummary> {
        let snapshot = Snapshot::new(SnapshotGuard::take(&self.source.engine));
        let summary = CopySummary::default();
        // The copies are for another store, so no row is in place.
        let mut run = Run {
            job: self,
            snapshot,
            summary,
            of: 0,
            is_within_a_table: false,
            progress: &mut |_, _| Ok(()),
        };
        run.of = run.query()?.count()?;
        let passes = run.passes();
        for pass in 0..passes {
            let shared = run.shared_keys(pass, passes)?;
            for row in run.query()? {
                let row = row?;
                let taken = run.take(&row, |hash| is_of(hash, pass, passes), &shared);
                let reasons = taken.as_ref().map(|row| refuses(&row.copy)).unwrap_or_default();
                if let (Some(moving), false) = (taken, reasons.is_empty()) {
                    run.report_row(&moving, CopyProblemKind::Refused, reasons.join("; "));
                }
                progress(run.summary.rows, run.of);
            }
        }
        Ok(run.summary)
    }

    fn is_within_a_table(&self) -> bool {
        Arc::ptr_eq(&self.source.engine, &self.target.engine)
            && self.source.entry.gate.table == self.target.entry.gate.table
    }

    fn is_rekeyed(&self) -> bool {
        self.partition_key.is_some() || self.row_key.is_some()
    }

    /// For a copy within one table, checks that both templates use only properties that are copied.
    /// Otherwise the next run would form other keys for a copy, and copy the copy again.
    fn check(&self) -> Result<()> {
        if !self.is_within_a_table() {
            return Ok(());
        }
        let wrong = |problem: &'static str| Err(Error::new(ErrorKind::InvalidInput, problem));
        let (Some(partition_key), Some(row_key)) = (&self.partition_key, &self.row_key) else {
            return wrong("within a table both keys of the copies must be made of properties");
        };
        let mut names = partition_key.names().iter().chain(row_key.names());
        let is_system = |name: &str| matches!(name, "PartitionKey" | "RowKey" | "Timestamp");
        let is_kept = |name: &String| self.select.as_ref().is_none_or(|all| all.contains(name));
        if names.all(|name| !is_system(name) && is_kept(name)) {
            return Ok(());
        }
        wrong("within a table keys are made of properties that are copied, and of no keys")
    }

    /// Returns the copy of a row, or the name of a property that the row lacks and a key needs.
    fn copy_of(&self, row: &Entity) -> std::result::Result<Entity, String> {
        let (partition_key, row_key) = self.keys_of(row)?;
        let Some(select) = &self.select else { return Ok(row.with_keys(&partition_key, &row_key)) };
        let mut copy = Entity::new(partition_key, row_key);
        for (name, value) in row.properties().filter(|(name, _)| is_in(select, name)) {
            copy.set(name, value.to_value());
        }
        Ok(copy)
    }

    fn keys_of(&self, row: &Entity) -> std::result::Result<(String, String), String> {
        let key = |template: &Option<KeyTemplate>, own: &str| match template {
            Some(template) => template.key(row).map_err(str::to_owned),
            None => Ok(own.to_owned()),
        };
        Ok((key(&self.partition_key, row.partition_key())?, key(&self.row_key, row.row_key())?))
    }

    fn report_problem(&mut self, problem: &CopyProblem) {
        if let Some(with) = &mut self.on_problem {
            with(problem);
        }
    }
}

/// Returns the reason why no key can be formed from a row without the property.
fn lacks(name: &str) -> String {
    format!("it has no property '{name}'")
}

fn is_in(names: &[String], name: &str) -> bool {
    names.iter().any(|other| other == name)
}

impl Run<'_, '_> {
    fn query(&self) -> Result<Query> {
        self.job.source.at(&self.snapshot).query(self.job.filter.clone())
    }

    fn all(&mut self) -> Result<()> {
        self.of = self.query()?.count()?;
        let passes = self.passes();
        for pass in 0..passes {
            let shared = self.shared_keys(pass, passes)?;
            self.pass(pass, passes, &shared)?;
        }
        Ok(())
    }

    fn passes(&self) -> u64 {
        match self.job.is_rekeyed() {
            true => self.of.div_ceil(self.job.pass_rows).max(1),
            false => 1,
        }
    }

    /// Returns, in ascending order, the hashes of the new keys of this pass that more than one row
    /// would get.
    fn shared_keys(&self, pass: u64, passes: u64) -> Result<Vec<u128>> {
        let mut hashes = Vec::new();
        if !self.job.is_rekeyed() {
            return Ok(hashes);
        }
        for row in self.query()? {
            let row = row?;
            let Ok((partition_key, row_key)) = self.job.keys_of(&row) else { continue };
            let hash = key_hash(&partition_key, &row_key);
            if is_of(hash, pass, passes) && !self.is_in_place(&row, &partition_key, &row_key) {
                hashes.push(hash);
            }
        }
        hashes.sort_unstable();
        let mut shared: Vec<_> =
            hashes.windows(2).filter(|two| two[0] == two[1]).map(|two| two[0]).collect();
        shared.dedup();
        Ok(shared)
    }

    fn is_in_place(&self, row: &Entity, partition_key: &str, row_key: &str) -> bool {
        self.is_within_a_table && (row.partition_key(), row.row_key()) == (partition_key, row_key)
    }

    /// Whether a target row is a copy: the templates form the row's own keys from its properties.
    fn is_copy(&self, found: &Entity) -> bool {
        let keys = self.job.keys_of(found);
        keys.is_ok_and(|(pk, rk)| (found.partition_key(), found.row_key()) == (&*pk, &*rk))
    }

    /// Copies the rows whose new keys belong to this pass.
    fn pass(&mut self, pass: u64, passes: u64, shared: &[u128]) -> Result<()> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        for row in self.query()? {
            let row = row?;
            let Some(moving) = self.take(&row, |hash| is_of(hash, pass, passes), shared) else {
                continue;
            };
            bytes += moving.copy.size_at_most();
            batch.push(moving);
            if batch.len() >= self.job.batch_rows || bytes >= BATCH_BYTES {
                self.copy_batch(std::mem::take(&mut batch))?;
                bytes = 0;
            }
        }
        self.copy_batch(batch)
    }

    /// Prepares the row for copying if it belongs to this pass and can be copied.
    fn take(
        &mut self,
        row: &Entity,
        is_of_pass: impl Fn(u128) -> bool,
        shared: &[u128],
    ) -> Option<Moving> {
        let copy = match self.job.copy_of(row) {
            Ok(copy) => copy,
            // A row whose key cannot be formed has no hash and thus belongs to no pass. The first
            // pass reports it.
            Err(name) => {
                if is_of_pass(0) {
                    self.summary.rows += 1;
                    self.report(key(row), None, CopyProblemKind::Refused, lacks(&name));
                }
                return None;
            }
        };
        let hash = key_hash(copy.partition_key(), copy.row_key());
        if self.job.is_rekeyed() && !is_of_pass(hash) {
            return None;
        }
        self.summary.rows += 1;
        if self.is_in_place(row, copy.partition_key(), copy.row_key()) {
            self.summary.in_place += 1;
            return None;
        }
        if shared.binary_search(&hash).is_ok() {
            let message = "another row would get the same key".to_owned();
            self.report(key(row), Some(key(&copy)), CopyProblemKind::Shared, message);
            return None;
        }
        let (partition_key, row_key) = key(row);
        Some(Moving { partition_key, row_key, etag: row.etag(), copy, is_there: false })
    }

    /// Copies a batch to the target. Rows with new keys that the target lacks are inserted.
    /// `resolve_existing` handles the others. If requested, the target is then synced, and the
    /// source rows that have copies are deleted.
    fn copy_batch(&mut self, mut batch: Vec<Moving>) -> Result<()> {
        let keys: Vec<_> =
            batch.iter().map(|row| (row.copy.partition_key(), row.copy.row_key())).collect();
        let found = self.job.target.get_many(&keys)?;
        let mut absent = Vec::new();
        for (index, found) in found.into_iter().enumerate() {
            match found {
                None => absent.push(index),
                Some(found) => self.resolve_existing(&mut batch[index], &found)?,
            }
        }
        self.insert(&mut batch, &absent)?;
        if self.job.then_delete {
            self.job.target.engine.maintenance().sync()?;
            self.delete(&batch)?;
        }
        let told = (self.progress)(self.summary.rows, self.of);
        told.map_err(|error| Error::io("copy", error))
    }

    /// Handles a row if the target already has a row `found` with the new key. If the properties
    /// are equal, the row is counted as present; otherwise `found` is replaced, or a conflict is
    /// reported.
    fn resolve_existing(&mut self, row: &mut Moving, found: &Entity) -> Result<()> {
        if row.copy.has_properties_of(found) && self.may_be_copy(row, found) {
            self.summary.present += 1;
            row.is_there = true;
            return Ok(());
        }
        let mut message = match row.copy.has_properties_of(found) {
            true => {
                "the target's row is older: it is the copy of another row with the same properties"
            }
            false => "the target has other properties under the key",
        };
        // If source and target are the same table, a row that is not a copy is a source row. It
        // must not be replaced, because it may not be copied yet.
        let may_replace = self.job.replace && (!self.is_within_a_table || self.is_copy(found));
        if let (true, Some(etag)) = (may_replace, found.etag()) {
            let target = self.job.target.clone().with_durability(Durability::Os);
            match target.replace_if(row.copy.clone(), etag) {
                Ok(_) => {
                    self.summary.replaced += 1;
                    row.is_there = true;
                    return Ok(());
                }
                Err(error) if is_of_row(&error) => {
                    message = "the row of the target was written by another writer in the meantime";
                }
                Err(error) if error.kind() == ErrorKind::InvalidInput => {
                    self.report_row(row, CopyProblemKind::Refused, error.chain());
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        self.report_row(row, CopyProblemKind::Conflict, message.to_owned());
        Ok(())
    }

    /// Whether `found`, which has the same properties as the copy of `row`, may be that copy, made
    /// by an earlier run. If the job changes keys and deletes source rows, returns false for a
    /// `found` that is older than `row`: it may be the copy of another row with the same
    /// properties.
    fn may_be_copy(&self, row: &Moving, found: &Entity) -> bool {
        let is_older = || match (found.etag(), &row.etag) {
            (Some(found), Some(of)) => found.seq() < of.seq(),
            _ => false,
        };
        !(self.job.then_delete && self.job.is_rekeyed() && is_older())
    }

    /// Inserts the copies of those rows of the batch whose indexes are in `absent`. If a concurrent
    /// writer has inserted a row under the same key, the copy is compared with that row.
    fn insert(&mut self, batch: &mut [Moving], absent: &[usize]) -> Result<()> {
        let loader = self.job.target.loader().mode(LoadMode::Insert);
        let mut loader = loader.durability(Durability::Os);
        for &index in absent {
            batch[index].is_there = true;
            loader.push(index as u64, batch[index].copy.clone())?;
        }
        loader.flush()?;
        let rejected = loader.take_rejected();
        self.summary.copied += loader.finish()?.loaded;
        for rejected in rejected {
            let row = &mut batch[rejected.line as usize];
            row.is_there = false;
            match rejected.error.kind() {
                ErrorKind::AlreadyExists => {
                    let (partition_key, row_key) = key(&row.copy);
                    match self.job.target.get(&partition_key, &row_key)? {
                        Some(found) => self.resolve_existing(row, &found)?,
                        None => {
                            self.report_row(row, CopyProblemKind::Refused, rejected.error.chain())
                        }
                    }
                }
                ErrorKind::InvalidInput => {
                    self.report_row(row, CopyProblemKind::Refused, rejected.error.chain())
                }
                _ => return Err(rejected.error),
            }
        }
        Ok(())
    }

    /// Deletes the source rows that have copies, in groups of rows with the same PartitionKey.
    fn delete(&mut self, batch: &[Moving]) -> Result<()> {
        let there: Vec<_> = batch.iter().filter(|row| row.is_there).collect();
        for partition in there.chunk_by(|a, b| a.partition_key == b.partition_key) {
            for rows in partition.chunks(GROUP_OPERATIONS_MAX) {
                self.delete_group(rows.to_vec())?;
            }
        }
        Ok(())
    }

    fn delete_group(&mut self, mut rows: Vec<&Moving>) -> Result<()> {
        while let Some(first) = rows.first() {
            let mut group = EntityGroup::new(first.partition_key.as_str());
            for row in &rows {
                match &row.etag {
                    Some(etag) => group.delete_if(&row.row_key, etag)?,
                    None => group.delete(&row.row_key)?,
                };
            }
            match self.job.source.commit_with(group, Durability::Os) {
                Ok(_) => {
                    self.summary.deleted += rows.len() as u64;
                    break;
                }
                Err(error) => {
                    let index = error.index().filter(|index| *index < rows.len());
                    let Some(index) = index.filter(|_| is_of_row(&error)) else {
                        return Err(error);
                    };
                    let row = rows.remove(index);
                    let message = match error.kind() {
                        ErrorKind::NotFound => "deleted by another writer in the meantime",
                        _ => "changed by another writer in the meantime",
                    };
                    self.report_row(row, CopyProblemKind::Changed, message.to_owned());
                }
            }
        }
        Ok(())
    }

    fn report_row(&mut self, row: &Moving, kind: CopyProblemKind, message: String) {
        let source = (row.partition_key.clone(), row.row_key.clone());
        self.report(source, Some(key(&row.copy)), kind, message);
    }

    fn report(
        &mut self,
        source: (String, String),
        target: Option<(String, String)>,
        kind: CopyProblemKind,
        message: String,
    ) {
        *match kind {
            CopyProblemKind::Conflict => &mut self.summary.conflicts,
            CopyProblemKind::Shared => &mut self.summary.shared,
            CopyProblemKind::Refused => &mut self.summary.refused,
            CopyProblemKind::Changed => &mut self.summary.changed,
        } += 1;
        let problem = CopyProblem { source, target, kind, message };
        self.job.report_problem(&problem);
        if self.summary.problems.len() < PROBLEMS_MAX {
            self.summary.problems.push(problem);
        }
    }
}

fn key(entity: &Entity) -> (String, String) {
    (entity.partition_key().to_owned(), entity.row_key().to_owned())
}

/// Whether the error reports that the row changed or is missing, not that its table is missing.
fn is_of_row(error: &Error) -> bool {
    matches!(error.code(), "ResourceNotFound" | "UpdateConditionNotSatisfied")
}

/// Returns a hash of 128 bits, so that collisions do not occur in practice.
fn key_hash(partition_key: &str, row_key: &str) -> u128 {
    let key = [partition_key.as_bytes(), &[0], row_key.as_bytes()].concat();
    let half = |seed| u128::from(hash(HashSeed(seed), &key));
    half(1) << 64 | half(2)
}

fn is_of(hash: u128, pass: u64, passes: u64) -> bool {
    hash % u128::from(passes) == u128::from(pass)
}

impl CopySummary {
    /// Returns the number of rows that were not copied, or copied but not deleted.
    pub fn problem_count(&self) -> u64 {
        self.conflicts + self.shared + self.refused + self.changed
    }

    /// Adds the counts of another summary, and its problems while there are at most `problems_max`.
    #[cfg(feature = "remote")]
    pub(crate) fn add(&mut self, other: Self, problems_max: usize) {
        self.rows += other.rows;
        self.copied += other.copied;
        self.present += other.present;
        self.replaced += other.replaced;
        self.in_place += other.in_place;
        self.deleted += other.deleted;
        self.conflicts += other.conflicts;
        self.shared += other.shared;
        self.refused += other.refused;
        self.changed += other.changed;
        let left = problems_max.saturating_sub(self.problems.len());
        self.problems.extend(other.problems.into_iter().take(left));
    }

    /// Returns the name and value of every count.
    pub fn fields(&self) -> [(&'static str, u64); 10] {
        [
            ("rows", self.rows),
            ("copied", self.copied),
            ("present", self.present),
            ("replaced", self.replaced),
            ("in_place", self.in_place),
            ("deleted", self.deleted),
            ("conflicts", self.conflicts),
            ("shared", self.shared),
            ("refused", self.refused),
            ("changed", self.changed),
        ]
    }
}

impl fmt::Debug for CopyJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyJob")
            .field("source", &self.source)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

impl Db {
    /// Creates a job that copies entities of the table `source` into the table `target` of this
    /// database.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn copy(&self, source: &str, target: &str) -> Result<CopyJob> {
        Ok(CopyJob::new(&self.table(source)?, &self.table(target)?))
    }
}
