//! Returns everything that is still readable in a damaged database, entity by entity, for
//! examination.
//!
//! The result includes data that a repair leaves out: older versions and deletions, files that no
//! manifest names, and log records after damage. Each version is returned with its file and its
//! state. This module writes nothing.

use std::collections::BTreeMap;
use std::path::Path;

use super::repair::{entity_of, texts};
use crate::check::{Breadth, Evidence, FoundIn, Item, KeyFacts, Verdict};
use crate::error::Result;
use crate::format::Kind;
use crate::format::key::table_of;
use crate::format::names::{FileName, TableId};
use crate::model::{Entity, Seq};
use crate::named::named;
use crate::options::Options;
use crate::table::CatalogRow;

/// A version of an entity, found by [`Options::salvage`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Salvaged {
    /// The name of the entity's table, or `t` and the table's number if the name is lost.
    pub table: String,
    /// The PartitionKey.
    pub partition_key: String,
    /// The RowKey.
    pub row_key: String,
    /// The Seq of the version's commit, from which its Timestamp and ETag are derived.
    pub seq: Seq,
    /// The file in which the version was found.
    pub file: String,
    /// How far the version can be trusted.
    pub state: SalvagedState,
    /// The entity; `None` for a deletion, and for a row that cannot be read.
    pub entity: Option<Entity>,
}

named! {
    /// How far a salvaged version can be trusted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[non_exhaustive]
    pub enum SalvagedState {
        /// Proven to be the current row of its key.
        Live "live",
        /// Possibly outdated: the newest readable version of its key, but a newer one may have been
        /// lost. Also a version after damage in a log: it is newer than the proven row, but may not
        /// belong to the last state.
        Suspect "suspect",
        /// There is a newer version of the key, or the manifest shows that the version's file is no
        /// longer part of the database.
        Superseded "superseded",
        /// A deletion.
        Deleted "deleted",
        /// Deleted with its table or with a key span.
        Dropped "dropped",
        /// The key and the Seq are known, but the row cannot be read.
        Unreadable "unreadable",
    }

    /// Returns the state's name, as printed.
    pub fn as_str;
}

/// The result of [`Options::salvage`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvageReport {
    /// The reason why the manifest does not prove which files are live; `None` if it does.
    pub doubt: Option<String>,
    /// The unreadable parts, each with its file.
    pub problems: Vec<String>,
    /// The number of versions found, by state.
    pub found: BTreeMap<&'static str, u64>,
}

impl Options {
    /// Calls `take` with every version of every entity that is readable in the directory `source`,
    /// by table and key, newest first. Reads all table files, even those that no manifest names,
    /// and all log records, even after damage. The database must not be open and is not changed.
    /// `progress` is called with the bytes read since the last call and the total.
    ///
    /// # Errors
    /// Errors of [`repair`](Self::repair), and of `take`.
    pub fn salvage(
        self,
        source: impl AsRef<Path>,
        mut take: impl FnMut(Salvaged) -> Result<()>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<SalvageReport> {
        let mut evidence = Evidence::gather(&self.fs, source.as_ref(), Breadth::All)?;
        let whole = evidence.bytes();
        let mut names: BTreeMap<TableId, String> = BTreeMap::new();
        let mut report = SalvageReport::default();
        let mut report_progress = |bytes| progress(bytes, whole);
        evidence.walk(&mut report_progress, |evidence, facts, verdict| {
            if table_of(facts.key) == Some(TableId::CATALOG) {
                collect_table_names(facts, &mut names);
                return Ok(());
            }
            for (i, item) in facts.items.iter().enumerate() {
                let state = state(evidence, facts, verdict, i);
                *report.found.entry(state.as_str()).or_default() += 1;
                take(salvaged(evidence, facts.key, item, state, &names))?;
            }
            Ok(())
        })?;
        report.doubt.clone_from(&evidence.salvaged.doubt);
        let of_tables = evidence.sources.iter().flat_map(|source| &source.outcome.problems);
        report.problems.extend(of_tables.cloned());
        let of_logs = evidence.logs.losses.iter();
        let of_logs = of_logs.map(|loss| format!("{}: {}", FileName::Wal(loss.file), loss.problem));
        report.problems.extend(of_logs);
        Ok(report)
    }
}

/// Collects the names of present and former tables.
fn collect_table_names(facts: &KeyFacts<'_>, names: &mut BTreeMap<TableId, String>) {
    for item in facts.items.iter().rev() {
        let entity = item.row.as_ref().and_then(|row| entity_of(facts.key, item.seq, row).ok());
        if let Some(CatalogRow::Table(id, name)) = entity.as_ref().and_then(CatalogRow::of) {
            names.insert(id, name.to_owned());
        }
    }
}

fn state(evidence: &Evidence, facts: &KeyFacts<'_>, verdict: Verdict, at: usize) -> SalvagedState {
    let Some(item) = facts.items.get(at) else { return SalvagedState::Superseded };
    let is_dropped = table_of(facts.key).is_some_and(|t| evidence.dropped.contains_key(&t));
    let newest = facts.items.iter().position(|item| evidence.counts(item, facts.key));
    let is_in_log = matches!(item.from, FoundIn::Log(..));
    // Whether a version comes from a part of a log after damage, and is newer than the proven
    // version.
    let is_beyond = |at: usize| {
        let in_log = facts.items.get(at).is_some_and(|i| matches!(i.from, FoundIn::Log(..)));
        in_log && newest.is_some_and(|newest| at < newest) && !is_flushed(evidence, facts, at)
    };
    let is_row = |at: &usize| facts.items.get(*at).is_some_and(|item| item.row.is_some());
    match (item.kind, verdict) {
        (Kind::Delete, _) => SalvagedState::Deleted,
        (Kind::Put, _) if item.row.is_none() => SalvagedState::Unreadable,
        _ if is_dropped => SalvagedState::Dropped,
        (_, Verdict::Live(i) | Verdict::Suspect(i)) if i == at => {
            let newer: Vec<usize> = (0..at).filter(|newer| is_beyond(*newer)).collect();
            match verdict {
                _ if newer.iter().any(is_row) => SalvagedState::Superseded,
                Verdict::Live(_) if newer.is_empty() => SalvagedState::Live,
                _ => SalvagedState::Suspect,
            }
        }
        _ if is_flushed(evidence, facts, at) => SalvagedState::Superseded,
        _ if is_beyond(at) => SalvagedState::Suspect,
        // No version of the key is proven, and this is the newest one found. It is in a log, or a
        // lost block of a table file may have contained the key.
        _ if newest.is_none() && at == 0 && (is_in_log || !facts.gaps.is_empty()) => {
            SalvagedState::Suspect
        }
        (_, Verdict::Gone) if newest == Some(at) => SalvagedState::Dropped,
        _ => SalvagedState::Superseded,
    }
}

/// Whether the item is in a log that is kept only for the change feed. All live entries of such a
/// log are also in table files. Returns false if the entry may be missing from the table files
/// because one of them is damaged.
fn is_flushed(evidence: &Evidence, facts: &KeyFacts<'_>, at: usize) -> bool {
    let is_old = |item: &Item| {
        matches!(item.from, FoundIn::Log(..)) && item.seq <= evidence.salvaged.version.flushed_seq
    };
    evidence.is_whole()
        && facts.items.get(at).is_some_and(is_old)
        && (facts.gaps.is_empty() || has_twin(evidence, facts, at))
}

/// Whether the same version (with the same key and Seq) exists in another file, and is part of the
/// proven state there.
fn has_twin(evidence: &Evidence, facts: &KeyFacts<'_>, at: usize) -> bool {
    let seq = facts.items.get(at).map(|item| item.seq);
    let is_twin = |(i, other): (usize, &Item)| {
        i != at && Some(other.seq) == seq && evidence.counts(other, facts.key)
    };
    facts.items.iter().enumerate().any(is_twin)
}

fn salvaged(
    evidence: &Evidence,
    key: &[u8],
    item: &Item,
    state: SalvagedState,
    names: &BTreeMap<TableId, String>,
) -> Salvaged {
    let (table, (partition_key, row_key)) = texts(key, names);
    let entity = item.row.as_ref().and_then(|row| entity_of(key, item.seq, row).ok());
    let (file, seq) = (evidence.file_of(item), item.seq);
    Salvaged { table, partition_key, row_key, seq, file, state, entity }
}
