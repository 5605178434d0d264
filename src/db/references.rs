//! Finds references to missing entities. A row refers to an entity if the keys that two templates
//! form from the row's properties are the keys of the entity.
//!
//! Rows are read in key order. The keys that they refer to are collected, looked up in batches in
//! key order, and cached. When the cache is full, all found keys are evicted; when the part of the
//! cache for missing keys is full, further missing keys are counted but not listed. The engine does
//! not maintain references during writes.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::lsm::SnapshotGuard;
use crate::model::{Entity, KeyTemplate};
use crate::query::{Filter, Query};
use crate::sort::sort_by;
use crate::table::{Snapshot, Table};

/// Keys per batch of look-ups.
const BATCH_KEYS: usize = 1_000;
/// Maximum number of bytes of memory for found keys; the same limit applies to missing keys.
const REMEMBERED_BYTES: usize = 16 << 20;
/// Approximate memory per cached key in addition to its text, in bytes.
const KEY_BYTES: usize = 96;
/// Number of rows between two calls of `progress`.
const PROGRESS_ROWS: u64 = 1_000;

/// A search for entities that refer to missing entities.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// use rowstone::{Db, Entity, copy::ReferenceCheck};
/// let db = Db::open_in_memory()?;
/// let (flights, planes) = (db.create_table("flights")?, db.create_table("planes")?);
/// planes.insert(Entity::new("all", "N14228"))?;
/// flights.insert(Entity::new("UA", "1").with("tailnum", "N14228"))?;
/// flights.insert(Entity::new("UA", "2").with("tailnum", "N3ALAA"))?;
/// flights.insert(Entity::new("UA", "3"))?;
/// let found = ReferenceCheck::new(&flights, &planes, "all", "{tailnum}")?.run()?;
/// assert_eq!((found.rows, found.found, found.missing, found.without), (3, 1, 1, 1));
/// assert_eq!(found.targets[0].row_key, "N3ALAA");
/// # Ok(())
/// # }
/// ```
pub struct ReferenceCheck {
    source: Table,
    target: Table,
    filter: Filter,
    partition_key: KeyTemplate,
    row_key: KeyTemplate,
    pub(super) remembered_bytes: usize,
}

/// The result of a [`ReferenceCheck`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct References {
    /// The number of rows that match the filter.
    pub rows: u64,
    /// The number of rows that lack a property from which the keys are formed, and thus refer to
    /// nothing.
    pub without: u64,
    /// The number of rows that refer to an existing entity.
    pub found: u64,
    /// The number of rows that refer to a missing entity.
    pub missing: u64,
    /// The missing entities, in descending order of the number of referring rows.
    pub targets: Vec<MissingTarget>,
    /// Whether `targets` is complete. It is not if the missing keys exceed 16 MiB; `missing` still
    /// counts all rows.
    pub has_all_targets: bool,
}

/// A missing entity to which rows refer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingTarget {
    /// The missing PartitionKey.
    pub partition_key: String,
    /// The missing RowKey.
    pub row_key: String,
    /// The number of rows that refer to the entity.
    pub rows: u64,
    /// PartitionKey and RowKey of the first referring row.
    pub first: (String, String),
}

type Keys = (String, String);

/// The number of rows that refer to one entity, and the keys of the first of these rows.
struct Pointing {
    rows: u64,
    first: Keys,
}

/// The templates of the PartitionKey and of the RowKey to which a row refers.
pub(crate) type KeyTemplates<'c> = (&'c KeyTemplate, &'c KeyTemplate);

/// Tells for each key whether the target has an entity with it.
pub(crate) type Exist<'c> = &'c dyn Fn(&[(&str, &str)]) -> Result<Vec<bool>>;

/// A search in progress.
struct Search<'c> {
    templates: KeyTemplates<'c>,
    exist: Exist<'c>,
    remembered_bytes: usize,
    pending: HashMap<Keys, Pointing>,
    found: HashSet<Keys>,
    found_bytes: usize,
    missing: HashMap<Keys, Pointing>,
    missing_bytes: usize,
    references: References,
}

impl ReferenceCheck {
    /// Creates a check of the entities of `source`. The two templates form a PartitionKey and a
    /// RowKey in `target` from their properties, as for
    /// [`CopyJob::partition_key`](crate::copy::CopyJob::partition_key).
    ///
    /// # Errors
    /// `InvalidInput` for a lone brace.
    pub fn new(source: &Table, target: &Table, partition_key: &str, row_key: &str) -> Result<Self> {
        Ok(Self {
            source: source.clone(),
            target: target.clone(),
            filter: Filter::all(),
            partition_key: KeyTemplate::parse(partition_key)?,
            row_key: KeyTemplate::parse(row_key)?,
            remembered_bytes: REMEMBERED_BYTES,
        })
    }

    /// Restricts the check to entities that match `filter`: its text, or a [`Filter`] with bound
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

    /// Runs the check. If both tables are in one database, they are read at the same snapshot. A
    /// key is looked up again only if the cache had no space for it. Memory is bounded to about 32
    /// MiB.
    ///
    /// # Errors
    /// `Corruption`, `Io`, `Busy`; `NotFound` for a table that was dropped.
    pub fn run(&self) -> Result<References> {
        self.run_with(|_, _| ())
    }

    /// As [`run`](Self::run); calls `progress` periodically with the rows checked so far and the
    /// total.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_with(&self, mut progress: impl FnMut(u64, u64)) -> Result<References> {
        let snapshot = Snapshot::new(SnapshotGuard::take(&self.source.engine));
        let rows: Query = self.source.at(&snapshot).query(self.filter.clone())?;
        let of = rows.clone().count()?;
        let is_one = Arc::ptr_eq(&self.source.engine, &self.target.engine);
        let target = is_one.then(|| self.target.at(&snapshot));
        let exist = |keys: &[(&str, &str)]| {
            let found = match &target {
                Some(target) => target.get_many(keys)?,
                None => self.target.get_many(keys)?,
            };
            Ok(found.iter().map(Option::is_some).collect())
        };
        let templates = (&self.partition_key, &self.row_key);
        let search = Search::new(templates, &exist, self.remembered_bytes);
        search.run(rows, |rows| progress(rows, of))
    }
}

/// Searches among `rows` as [`ReferenceCheck::run_with`] does; `exist` looks up their keys.
#[cfg(feature = "remote")]
pub(crate) fn search_references(
    rows: impl Iterator<Item = Result<Entity>>,
    templates: KeyTemplates<'_>,
    exist: Exist<'_>,
    progress: impl FnMut(u64),
) -> Result<References> {
    Search::new(templates, exist, REMEMBERED_BYTES).run(rows, progress)
}

impl<'c> Search<'c> {
    fn new(templates: KeyTemplates<'c>, exist: Exist<'c>, remembered_bytes: usize) -> Self {
        Self {
            templates,
            exist,
            remembered_bytes,
            pending: HashMap::new(),
            found: HashSet::new(),
            found_bytes: 0,
            missing: HashMap::new(),
            missing_bytes: 0,
            references: References { has_all_targets: true, ..References::default() },
        }
    }

    fn run(
        mut self,
        rows: impl IntoIterator<Item = Result<Entity>>,
        mut progress: impl FnMut(u64),
    ) -> Result<References> {
        for row in rows {
            self.look_at(&row?)?;
            if self.references.rows.is_multiple_of(PROGRESS_ROWS) {
                progress(self.references.rows);
            }
        }
        self.look_up()?;
        progress(self.references.rows);
        Ok(self.end())
    }

    fn look_at(&mut self, row: &Entity) -> Result<()> {
        self.references.rows += 1;
        let (Ok(partition_key), Ok(row_key)) =
            (self.templates.0.key(row), self.templates.1.key(row))
        else {
            self.references.without += 1;
            return Ok(());
        };
        let keys = (partition_key, row_key);
        if self.found.contains(&keys) {
            self.references.found += 1;
        } else if let Some(pointing) = self.missing.get_mut(&keys) {
            pointing.rows += 1;
            self.references.missing += 1;
        } else {
            let first = || (row.partition_key().to_owned(), row.row_key().to_owned());
            let pointing =
                self.pending.entry(keys).or_insert_with(|| Pointing { rows: 0, first: first() });
            pointing.rows += 1;
        }
        if self.pending.len() >= BATCH_KEYS { self.look_up() } else { Ok(()) }
    }

    /// Looks up the collected keys.
    fn look_up(&mut self) -> Result<()> {
        let pending: Vec<_> = self.pending.drain().collect();
        let keys: Vec<_> = pending.iter().map(|((pk, rk), _)| (pk.as_str(), rk.as_str())).collect();
        let found = (self.exist)(&keys)?;
        for ((keys, pointing), found) in pending.into_iter().zip(found) {
            match found {
                true => self.remember(keys, pointing.rows),
                false => self.miss(keys, pointing),
            }
        }
        Ok(())
    }

    fn remember(&mut self, keys: Keys, rows: u64) {
        self.references.found += rows;
        let bytes = keys.0.len() + keys.1.len() + KEY_BYTES;
        if self.found_bytes + bytes > self.remembered_bytes {
            self.found.clear();
            self.found_bytes = 0;
        }
        self.found_bytes += bytes;
        self.found.insert(keys);
    }

    fn miss(&mut self, keys: Keys, pointing: Pointing) {
        self.references.missing += pointing.rows;
        let first = pointing.first.0.len() + pointing.first.1.len();
        let bytes = keys.0.len() + keys.1.len() + first + KEY_BYTES;
        if self.missing_bytes + bytes > self.remembered_bytes {
            self.references.has_all_targets = false;
            return;
        }
        self.missing_bytes += bytes;
        self.missing.insert(keys, pointing);
    }

    fn end(mut self) -> References {
        let target = |((partition_key, row_key), Pointing { rows, first })| MissingTarget {
            partition_key,
            row_key,
            rows,
            first,
        };
        let mut targets: Vec<_> = self.missing.into_iter().map(target).collect();
        sort_by(&mut targets, |a, b| {
            let keys =
                |target: &MissingTarget| (target.partition_key.clone(), target.row_key.clone());
            b.rows.cmp(&a.rows).then_with(|| keys(a).cmp(&keys(b)))
        });
        self.references.targets = targets;
        self.references
    }
}

impl References {
    /// Returns the name and value of every count; `targets` is the number of distinct missing
    /// entities found.
    pub fn fields(&self) -> [(&'static str, u64); 5] {
        [
            ("rows", self.rows),
            ("without", self.without),
            ("found", self.found),
            ("missing", self.missing),
            ("targets", self.targets.len() as u64),
        ]
    }
}

impl fmt::Debug for ReferenceCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReferenceCheck")
            .field("source", &self.source)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}
