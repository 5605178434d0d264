//! Verbs with a closure, which read, and write on the condition that nothing has changed since.
//!
//! Invariant: the closure runs again only after a refusal. A store refuses a write only if the
//! write has not taken effect.

use std::collections::BTreeMap;
use std::time::Duration;

use super::table_store::{Condition, TableStore};
use crate::error::{Code, Error, ErrorKind, Result, quoted};
use crate::model::{ETag, Entity};
use crate::mutants::mutant;
use crate::retry::{RetryPolicy, Rng};
use crate::sync::pause;
use crate::table::{EntityGroup, Operation, quoted_entity_of};

/// Reads an entity, changes it with `change`, and replaces it if it has not been written since.
/// Returns the ETag of the new state.
///
/// If another writer was faster, the entity is read again and `change` runs again: up to 12 times,
/// after the short pauses of [`RetryPolicy::in_process`]. If `change` leaves the entity as it was,
/// nothing is written. An application that refuses an update uses this, and stores its reason in a
/// variable.
///
/// ```
/// use rowstone::store::{TableStore, update};
/// use rowstone::{Db, Entity};
///
/// # fn main() -> rowstone::Result<()> {
/// let store = Db::open_in_memory()?;
/// store.create_table("parts")?;
/// store.insert("parts", &Entity::new("bolts", "m4x20").with("Stock", 1_200))?;
///
/// let mut is_enough = false;
/// update(&store, "parts", "bolts", "m4x20", |part| {
///     let stock: i32 = part.get("Stock")?;
///     is_enough = stock >= 50;
///     if is_enough {
///         part.set("Stock", stock - 50);
///     }
///     Ok(())
/// })?;
/// assert!(is_enough);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// * those of `change`; nothing is written;
/// * `NotFound` if the entity (`ResourceNotFound`) or the table (`TableNotFound`) does not exist;
/// * `PreconditionFailed` if other writers were faster each time;
/// * `InvalidInput` if `change` changes the keys;
/// * `OutcomeUnknown` after a lost answer: `change` does not run again, because its effect may have
///   been stored. With `RemoteOptions::request_id` most lost answers end with success instead;
/// * those of [`TableStore::replace`].
pub fn update(
    store: &dyn TableStore,
    table: &str,
    partition_key: &str,
    row_key: &str,
    change: impl FnMut(&mut Entity) -> Result<()>,
) -> Result<ETag> {
    update_with(&mut Rng::from_entropy(), pause, store, table, (partition_key, row_key), change)
}

/// As [`update`], with the random numbers and the wait of its pauses.
pub(crate) fn update_with(
    rng: &mut Rng,
    wait: impl FnMut(Duration),
    store: &dyn TableStore,
    table: &str,
    keys: (&str, &str),
    mut change: impl FnMut(&mut Entity) -> Result<()>,
) -> Result<ETag> {
    let about = |error: Error| error.about(|| quoted_entity_of(table, keys));
    until_written(rng, wait, || {
        let read = store.get(table, keys.0, keys.1, &[])?;
        let read = read.ok_or_else(|| about(Error::refused(Code::ResourceNotFound)))?;
        let mut entity = read.clone();
        change(&mut entity)?;
        if (entity.partition_key(), entity.row_key()) != (read.partition_key(), read.row_key()) {
            let text = "an update must not change the keys of the entity";
            return Err(about(Error::refused_with(Code::InvalidInput, text)).into());
        }
        let etag = etag_of(&read)?;
        if entity == read {
            return Ok(etag);
        }
        let written = store.replace(table, &entity, &Condition::Match(etag));
        written.map_err(|error| Failure { is_conflict: is_changed(&error), error })
    })
}

/// Builds a group for a partition with `build`, which may read entities of the partition, and
/// commits the group if the entities that it writes have not changed since they were read. Returns
/// the ETags as [`TableStore::commit`] does.
///
/// Operations without an ETag on entities that were read through the view get a condition: a
/// replace, merge, upsert or delete requires the state that was read, and an upsert of an absent
/// entity becomes an insert. Entities that were read and are not written may have changed; a merge
/// without properties ([`EntityGroup::merge`]) includes such an entity in the check.
///
/// If a write was refused because another writer was faster, `build` runs again with a new view, up
/// to 12 times, as in [`update`]. An empty group writes nothing, so an application returns it to
/// refuse a transaction.
///
/// ```
/// use rowstone::store::{TableStore, transact};
/// use rowstone::{Db, Entity, EntityGroup};
///
/// # fn main() -> rowstone::Result<()> {
/// let store = Db::open_in_memory()?;
/// store.create_table("accounts")?;
/// store.insert("accounts", &Entity::new("bank", "ann").with("Balance", 100))?;
///
/// // Moves 30 to another account, which may be missing.
/// transact(&store, "accounts", "bank", |view| {
///     let mut group = EntityGroup::new("bank");
///     let Some(ann) = view.get("ann")? else { return Ok(group) };
///     let bob = view.get("bob")?;
///     let balance = bob.as_ref().map_or(Ok(0), |bob| bob.get::<i32>("Balance"))?;
///     group.merge(Entity::new("bank", "ann").with("Balance", ann.get::<i32>("Balance")? - 30))?;
///     group.upsert_merge(Entity::new("bank", "bob").with("Balance", balance + 30))?;
///     Ok(group)
/// })?;
/// let bob = store.get("accounts", "bank", "bob", &[])?.expect("it was inserted");
/// assert_eq!(bob.get::<i32>("Balance")?, 30);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// * those of `build`; nothing is written;
/// * `PreconditionFailed`, or `AlreadyExists` or `NotFound` of an entity that was read in another
///   state, if other writers were faster each time;
/// * `AlreadyExists` and `NotFound` of an entity that was not read, or was read in this state;
/// * `InvalidInput` if the group has another partition;
/// * `OutcomeUnknown` after a lost answer: `build` does not run again;
/// * those of [`TableStore::commit`].
pub fn transact(
    store: &dyn TableStore,
    table: &str,
    partition_key: &str,
    build: impl FnMut(&mut PartitionView<'_>) -> Result<EntityGroup>,
) -> Result<Vec<Option<ETag>>> {
    transact_with(&mut Rng::from_entropy(), pause, store, table, partition_key, build)
}

/// As [`transact`], with the random numbers and the wait of its pauses.
pub(crate) fn transact_with(
    rng: &mut Rng,
    wait: impl FnMut(Duration),
    store: &dyn TableStore,
    table: &str,
    partition_key: &str,
    mut build: impl FnMut(&mut PartitionView<'_>) -> Result<EntityGroup>,
) -> Result<Vec<Option<ETag>>> {
    until_written(rng, wait, || {
        let mut view = PartitionView { store, table, partition_key, reads: BTreeMap::new() };
        let group = build(&mut view)?;
        if group.is_empty() {
            return Ok(Vec::new());
        }
        if group.partition_key() != partition_key {
            let error = Error::refused(Code::CommandsInBatchActOnDifferentPartitions);
            return Err(error.about(|| quoted("table", table)).into());
        }
        let operations = group.operations().map(|op| view.guarded(op.into_owned()));
        let group = EntityGroup::from_operations(operations)?;
        store.commit(table, &group).map_err(|error| {
            let failed = error.index().and_then(|index| group.operations().nth(index));
            let is_conflict =
                is_changed(&error) || failed.is_some_and(|op| view.differs(&error, &op));
            Failure { error, is_conflict }
        })
    })
}

/// A partition of a table, as a closure of [`transact`] reads it.
pub struct PartitionView<'s> {
    store: &'s dyn TableStore,
    table: &'s str,
    partition_key: &'s str,
    /// The first state that was read of each RowKey: the ETag, or `None` if there was no entity.
    reads: BTreeMap<String, Option<ETag>>,
}

impl PartitionView<'_> {
    /// Reads an entity of the partition with all its properties.
    ///
    /// # Errors
    /// Those of [`TableStore::get`]. A missing entity is `None`.
    pub fn get(&mut self, row_key: &str) -> Result<Option<Entity>> {
        let found = self.store.get(self.table, self.partition_key, row_key, &[])?;
        let etag = found.as_ref().map(etag_of).transpose()?;
        self.reads.entry(row_key.to_owned()).or_insert(etag);
        Ok(found)
    }

    /// Makes an operation without an ETag depend on the state that was read.
    fn guarded(&self, operation: Operation) -> Operation {
        let read = self.reads.get(operation.keys().1);
        match (operation, read) {
            (Operation::Replace(entity, None) | Operation::Upsert(entity), Some(Some(etag))) => {
                Operation::Replace(entity, Some(etag.clone()))
            }
            (Operation::Merge(entity, None) | Operation::UpsertMerge(entity), Some(Some(etag))) => {
                Operation::Merge(entity, Some(etag.clone()))
            }
            (Operation::Delete { partition_key, row_key, etag: None }, Some(Some(etag))) => {
                Operation::Delete { partition_key, row_key, etag: Some(etag.clone()) }
            }
            (Operation::Upsert(entity) | Operation::UpsertMerge(entity), Some(None)) => {
                Operation::Insert(entity)
            }
            (operation, _) => operation,
        }
    }

    /// Whether `error` shows that the entity of `operation` is not in the state that was read.
    fn differs(&self, error: &Error, operation: &Operation) -> bool {
        let exists = match error.code() {
            code if code == Code::EntityAlreadyExists.as_str() => true,
            code if code == Code::ResourceNotFound.as_str() => false,
            _ => return false,
        };
        self.reads.get(operation.keys().1).is_some_and(|read| read.is_some() != exists)
    }
}

impl std::fmt::Debug for PartitionView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys = (self.table, self.partition_key);
        f.debug_tuple("PartitionView").field(&keys).field(&self.reads).finish()
    }
}

/// A try that failed.
struct Failure {
    error: Error,
    /// Whether the reason is a write of another writer since the read.
    is_conflict: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, is_conflict: false }
    }
}

/// Repeats `attempt` after conflicts.
fn until_written<T>(
    rng: &mut Rng,
    wait: impl FnMut(Duration),
    attempt: impl FnMut() -> Result<T, Failure>,
) -> Result<T> {
    let policy = RetryPolicy::in_process();
    let done = policy.run_while(rng, wait, |failure: &Failure| failure.is_conflict, attempt);
    done.map_err(|failure| failure.error)
}

/// Whether a write was refused because of its ETag.
fn is_changed(error: &Error) -> bool {
    let is_lost = error.kind() == ErrorKind::OutcomeUnknown;
    error.kind() == ErrorKind::PreconditionFailed || mutant!("rerun-closure") && is_lost
}

fn etag_of(entity: &Entity) -> Result<ETag> {
    let missing = || Error::new(ErrorKind::Io, "the store returned an entity without an ETag");
    entity.etag().ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Db;

    const PARTITION: &str = "bank";

    fn accounts() -> Db {
        let db = Db::open_in_memory().unwrap();
        let table = db.create_table("accounts").unwrap();
        for row in ["ann", "bob"] {
            table.insert(account(row, 100)).unwrap();
        }
        db
    }

    fn account(row: &str, balance: i32) -> Entity {
        Entity::new(PARTITION, row).with("Balance", balance)
    }

    fn balance(db: &Db, row: &str) -> i32 {
        let found = db.get("accounts", PARTITION, row, &[]).unwrap();
        found.map_or(-1, |found| found.get("Balance").unwrap())
    }

    /// Adds 1 to an account, while another writer adds 10 in the first `others` runs. Returns the
    /// result, the number of runs, and the pauses.
    fn deposit(db: &Db, seed: u64, others: usize) -> (Result<ETag>, usize, Vec<Duration>) {
        let (mut runs, mut pauses, mut rng) = (0, Vec::new(), Rng::from_seed(seed));
        let wait = |pause| pauses.push(pause);
        let done = update_with(&mut rng, wait, db, "accounts", (PARTITION, "ann"), |entity| {
            runs += 1;
            let read: i32 = entity.get("Balance")?;
            if runs <= others {
                db.upsert("accounts", &account("ann", read + 10))?;
            }
            entity.set("Balance", read + 1);
            Ok(())
        });
        (done, runs, pauses)
    }

    #[test]
    fn a_conflict_reads_the_entity_again() {
        let db = accounts();
        let (done, runs, pauses) = deposit(&db, 1, 2);
        assert_eq!((runs, pauses.len(), balance(&db, "ann")), (3, 2, 121));
        let found = db.get("accounts", PARTITION, "ann", &[]).unwrap().unwrap();
        assert_eq!(done.ok(), found.etag());
    }

    #[test]
    fn the_number_of_tries_is_bounded_and_the_seed_decides_the_pauses() {
        let db = accounts();
        let (done, runs, pauses) = deposit(&db, 7, usize::MAX);
        assert_eq!(done.unwrap_err().kind(), ErrorKind::PreconditionFailed);
        assert_eq!((runs, balance(&db, "ann")), (13, 230));
        assert_eq!(pauses, RetryPolicy::in_process().pauses(7).collect::<Vec<_>>());
    }

    #[test]
    fn a_group_is_built_again_only_if_another_state_was_read() {
        // The write of another writer before the commit, the RowKeys that are read, the operation,
        // and the number of runs and the code at the end.
        type Other = fn(&Db) -> Result<()>;
        let nothing: Other = |_| Ok(());
        let write: Other = |db| db.upsert("accounts", &account("ann", 1)).map(drop);
        let delete: Other = |db| db.delete("accounts", PARTITION, "ann", &Condition::Any);
        let insert: Other = |db| db.insert("accounts", &account("cy", 1)).map(drop);
        let (replace, cy) = (Operation::Replace(account("ann", 5), None), account("cy", 5));
        let stale = "W/\"stale\"".parse::<ETag>().unwrap();
        let cases: [(Other, &str, Operation, usize, &str); 10] = [
            (nothing, "ann", replace.clone(), 1, ""),
            (write, "ann", replace.clone(), 2, ""),
            (write, "bob", replace.clone(), 1, ""),
            (write, "ann", Operation::Upsert(account("ann", 5)), 2, ""),
            (delete, "ann", replace, 2, "ResourceNotFound"),
            (delete, "ann", Operation::UpsertMerge(account("ann", 5)), 2, ""),
            (insert, "cy", Operation::Insert(cy.clone()), 2, "EntityAlreadyExists"),
            (insert, "bob", Operation::Insert(cy.clone()), 1, "EntityAlreadyExists"),
            (insert, "cy", Operation::Upsert(cy.clone()), 2, ""),
            (nothing, "ann", Operation::Replace(cy, Some(stale)), 1, "ResourceNotFound"),
        ];
        for (number, (other, read, operation, expected, code)) in cases.into_iter().enumerate() {
            let (db, mut runs, mut rng) = (accounts(), 0, Rng::from_seed(1));
            let build = |view: &mut PartitionView<'_>| {
                view.get(read)?;
                runs += 1;
                if runs == 1 {
                    other(&db)?;
                }
                EntityGroup::from_operations([operation.clone()])
            };
            let done = transact_with(&mut rng, |_| (), &db, "accounts", PARTITION, build);
            let found = done.as_ref().err().map_or("", Error::code);
            assert_eq!((runs, found), (expected, code), "case {number}");
        }
    }

    #[test]
    fn a_closure_that_fails_or_changes_nothing_writes_nothing() {
        let db = accounts();
        let seq = db.get("accounts", PARTITION, "ann", &[]).unwrap().unwrap().etag();
        assert_eq!(update(&db, "accounts", PARTITION, "ann", |_| Ok(())).ok(), seq);
        let failed = update(&db, "accounts", PARTITION, "ann", |entity| {
            entity.set("Balance", 0);
            entity.get::<i32>("Missing").map(drop)
        });
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::NotFound);
        let renamed = update(&db, "accounts", PARTITION, "ann", |entity| {
            *entity = account("bob", 0);
            Ok(())
        });
        assert_eq!(renamed.unwrap_err().code(), "InvalidInput");
        let none = transact(&db, "accounts", PARTITION, |_| Ok(EntityGroup::new("other")));
        assert_eq!(none.ok(), Some(Vec::new()));
        let other = transact(&db, "accounts", PARTITION, |_| {
            EntityGroup::from_operations([Operation::Insert(Entity::new("other", "ann"))])
        });
        assert_eq!(other.unwrap_err().code(), "CommandsInBatchActOnDifferentPartitions");
        let balances = ["ann", "bob"].map(|row| balance(&db, row));
        assert_eq!(balances, [100; 2]);
    }

    #[test]
    fn errors_tell_a_missing_entity_from_a_missing_table() {
        let db = accounts();
        let texts = [("accounts", "cy"), ("none", "ann")].map(|(table, row)| {
            let error = update(&db, table, PARTITION, row, |_| Ok(())).unwrap_err();
            let text = error.to_string();
            format!("{} {}", error.code(), &text[text.find('(').unwrap()..])
        });
        let expected = [
            "ResourceNotFound (entity 'bank' 'cy' of table 'accounts')",
            "TableNotFound (table 'none')",
        ];
        assert_eq!(texts, expected);
    }
}
