//! What a copy between two stores copies, and how it changes entities.

use crate::billing::Bill;
use crate::db::{CopyProblem, CopyProblemKind, CopySummary};
use crate::json::odata::{Metadata, entity_text};
use crate::model::{Entity, KeyTemplate};
use crate::store::Dialect;
use crate::store::pages::{PAGE_MAX, Side};
use crate::store::slice::Key;

/// A copy of the entities of a table into a table of another store.
pub(crate) struct StoreCopy<'s> {
    pub(crate) source: Side<'s>,
    /// `None` counts what a copy would do.
    pub(crate) target: Option<Side<'s>>,
    pub(crate) filter: String,
    /// The properties to copy; none means all.
    pub(crate) select: Vec<String>,
    pub(crate) partition_key: Option<KeyTemplate>,
    pub(crate) row_key: Option<KeyTemplate>,
    pub(crate) replace: bool,
    pub(crate) then_delete: bool,
    /// Whether the target can be read. Otherwise each entity under the key of a copy is a conflict.
    pub(crate) reads_target: bool,
    /// The service that `--check` names: entities that it would refuse are reported.
    pub(crate) dialect: Option<Dialect>,
    pub(crate) workers: usize,
    /// The maximum number of entities in a page. A slice with fewer entities is not halved.
    pub(crate) page_rows: usize,
    /// Called with each problem.
    pub(crate) on_problem: &'s (dyn Fn(&CopyProblem) + Sync),
    /// Called with the number of entities that are copied.
    pub(crate) on_progress: &'s (dyn Fn(u64) + Sync),
}

/// The part of the bills of the two services that is not in [`Remote::bill`](crate::store::Remote).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// For the source: the groups of deletes that a dry run would send.
    pub(crate) source: Bill,
    /// For the target: the groups that a dry run would send, and the entities that are written.
    pub(crate) target: Bill,
}

/// What a job has done.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) summary: CopySummary,
    pub(super) traffic: Traffic,
    /// The key of the last entity that was found in the target or written to it.
    pub(super) found: Option<Key>,
}

/// An entity that is copied.
pub(super) struct Moving {
    pub(super) source: Entity,
    pub(super) copy: Entity,
    /// The length of the copy as JSON.
    pub(super) bytes: usize,
    /// Whether the target has the copy.
    pub(super) is_there: bool,
    /// The number of times that the entity with its key was read alone.
    pub(super) tries: usize,
}

/// The maximum number of problems in a summary; all problems are counted.
pub(super) const PROBLEMS_MAX: usize = 100;

impl<'s> StoreCopy<'s> {
    /// Returns a copy of all entities from one table to the other, by one worker.
    pub(crate) fn new([source, target]: [Side<'s>; 2]) -> Self {
        Self {
            source,
            target: Some(target),
            filter: String::new(),
            select: Vec::new(),
            partition_key: None,
            row_key: None,
            replace: false,
            then_delete: false,
            reads_target: true,
            dialect: None,
            workers: 1,
            page_rows: PAGE_MAX,
            on_problem: &|_| (),
            on_progress: &|_| (),
        }
    }
}

impl StoreCopy<'_> {
    /// Returns the names of the properties to read; none means all.
    pub(super) fn names(&self) -> Vec<String> {
        if self.select.is_empty() {
            return Vec::new();
        }
        let templates = [&self.partition_key, &self.row_key].into_iter().flatten();
        let mut names = ["PartitionKey", "RowKey", "Timestamp"].map(str::to_owned).to_vec();
        names.extend(self.select.iter().cloned());
        names.extend(templates.flat_map(|template| template.names().iter().cloned()));
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns the copy of an entity, or the name of a property that its new key needs.
    pub(super) fn copy_of(
        &self,
        source: Entity,
    ) -> std::result::Result<Moving, Box<(Entity, String)>> {
        let new = |template: &Option<KeyTemplate>, own: &str| match template {
            Some(template) => template.key(&source).map_err(str::to_owned),
            None => Ok(own.to_owned()),
        };
        let keys = new(&self.partition_key, source.partition_key())
            .and_then(|pk| Ok((pk, new(&self.row_key, source.row_key())?)));
        let (pk, rk) = match keys {
            Ok(keys) => keys,
            Err(name) => return Err(Box::new((source, name))),
        };
        let mut copy = source.with_keys(&pk, &rk);
        if !self.select.is_empty() {
            let is_left = |name: &&str| !self.select.iter().any(|selected| selected == name);
            let left = source.properties().map(|(name, _)| name).filter(is_left);
            left.for_each(|name| drop(copy.remove(name)));
        }
        let bytes = entity_text(&copy, Metadata::TYPES).len();
        Ok(Moving { source, copy, bytes, is_there: false, tries: 0 })
    }

    pub(super) fn report(&self, tally: &mut Tally, problem: CopyProblem) {
        (self.on_problem)(&problem);
        let summary = &mut tally.summary;
        *match problem.kind {
            CopyProblemKind::Conflict => &mut summary.conflicts,
            CopyProblemKind::Shared => &mut summary.shared,
            CopyProblemKind::Refused => &mut summary.refused,
            CopyProblemKind::Changed => &mut summary.changed,
        } += 1;
        if summary.problems.len() < PROBLEMS_MAX {
            summary.problems.push(problem);
        }
    }
}

pub(super) fn key(entity: &Entity) -> Key {
    (entity.partition_key().to_owned(), entity.row_key().to_owned())
}
