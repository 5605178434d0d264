//! A store that fails and delays requests on purpose, for tests of programs.
//!
//! `behave` decides; this file carries the decisions out. docs/BEHAVE.md has the rules.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::continuation::Continuation;
use super::table_store::{Condition, EntityPage, PageQuery, TableStore};
use crate::behave::{Asked, Behaviour, Fate, Operation, partition_of};
use crate::clock::Clock;
use crate::error::{Code, Error, ErrorKind, Result};
use crate::model::{DateTime, ETag, Entity};
use crate::query::{Filter, KeyRange};
use crate::sync::pause;
use crate::table::EntityGroup;

/// The name in continuations of empty first pages.
const EMPTY: &str = "misbehaving";

/// A store that misbehaves as a Table service may: some requests fail, are late or lose their
/// answer. With it the tests of a program need neither a service nor a network.
///
/// The rules are those of `rowstone serve --behave`, in the JSON of docs/BEHAVE.md. The same seed
/// and requests give the same failures, whatever the order of the requests. The errors are those of
/// `Remote` without retries:
///
/// | action | a write | a read |
/// | --- | --- | --- |
/// | `busy`, `move` | `Busy`, `ServerBusy` | the same |
/// | `timeout` | `OutcomeUnknown`, nothing was done | `Timeout` |
/// | `timeout_after`, `lost`, `cut` | `OutcomeUnknown`, done | `Timeout` or `Io` |
/// | `table_being_deleted` | `Busy`, `TableBeingDeleted` | the same |
///
/// `skew` and [`delete_range`](TableStore::delete_range) do nothing here and change nothing.
///
/// ```
/// use rowstone::store::{Misbehaving, TableStore};
/// use rowstone::{Db, Entity, ErrorKind};
///
/// # fn main() -> rowstone::Result<()> {
/// let rules = r#"[{"do": "lost", "operations": ["insert"], "first": 1}]"#;
/// let store = Misbehaving::new(Db::open_in_memory()?, rules, 1)?;
/// store.create_table("orders")?;
/// let order = Entity::new("2024-05", "1001").with("RequestId", "f2b1");
///
/// // The order is inserted, but the answer is lost: the retry finds an entity.
/// let lost = store.insert("orders", &order).unwrap_err();
/// assert_eq!(lost.kind(), ErrorKind::OutcomeUnknown);
/// let retried = store.insert("orders", &order).unwrap_err();
/// assert_eq!(retried.kind(), ErrorKind::AlreadyExists);
///
/// // The id of the request tells that the first try inserted it.
/// let found = store.get("orders", "2024-05", "1001", &[])?.expect("it exists");
/// assert_eq!(found.get::<String>("RequestId")?, "f2b1");
/// # Ok(())
/// # }
/// ```
pub struct Misbehaving<S> {
    store: S,
    behaviour: Behaviour,
    wait: Box<dyn Fn(Duration) + Send + Sync>,
}

impl<S: TableStore> Misbehaving<S> {
    /// Wraps a store. `rules` is a list of rules in JSON, or the name of a profile: `flaky`,
    /// `throttled-2010` or `rebalancing`.
    ///
    /// # Errors
    /// `InvalidInput`, with the rule and the field.
    pub fn new(store: S, rules: &str, seed: u64) -> Result<Self> {
        let rules = Behaviour::profile(rules).unwrap_or(rules);
        let behaviour = Behaviour::read(rules, seed)?;
        Ok(Self { store, behaviour, wait: Box::new(pause) })
    }

    /// Uses `clock` for rules by time and rate, which begin now. With a
    /// [`ManualClock`](crate::clock::ManualClock) these rules repeat, too.
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { behaviour: self.behaviour.with_clock(clock), ..self }
    }

    /// Calls `wait` for the delay of an answer instead of blocking the thread.
    pub fn wait(self, wait: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        Self { wait: Box::new(wait), ..self }
    }

    /// Returns the store inside, which behaves well.
    pub fn inner(&self) -> &S {
        &self.store
    }

    /// Returns for each rule its name and the number of requests that it changed.
    pub fn done(&self) -> Vec<(String, u64)> {
        self.behaviour.done().map(|(name, _, count)| (name.to_owned(), count)).collect()
    }

    /// Decides about a request, carries it out with `run`, and waits for the delay of the answer.
    fn carry_out<T>(
        &self,
        operation: Operation,
        table: &str,
        (partition, rest): (Option<&str>, &[&str]),
        run: impl FnOnce(Option<Fate>) -> Result<T>,
    ) -> Result<T> {
        let asked = Asked { account: "", operation, table, partition, rest };
        let decision = self.behaviour.decide(&asked);
        let answer = run(decision.fate);
        if !decision.delay.is_zero() {
            (self.wait)(decision.delay);
        }
        answer
    }

    fn write<T>(
        &self,
        operation: Operation,
        table: &str,
        keys: (Option<&str>, &[&str]),
        write: impl FnOnce(&S) -> Result<T>,
    ) -> Result<T> {
        let unknown = || Err(Error::new(ErrorKind::OutcomeUnknown, "no answer to a write"));
        self.carry_out(operation, table, keys, |fate| match fate {
            // A client cannot know whether the request had its effect.
            Some(Fate::Refused(Code::OperationTimedOut)) => unknown(),
            Some(Fate::Refused(code)) => Err(Error::refused(code)),
            Some(Fate::TimedOutAfter | Fate::Lost | Fate::Cut(_)) => {
                drop(write(&self.store));
                unknown()
            }
            None | Some(Fate::Page(_)) => write(&self.store),
        })
    }

    /// Reads; `read` gets the maximum number of entities of a page.
    fn read<T>(
        &self,
        operation: Operation,
        table: &str,
        keys: (Option<&str>, &[&str]),
        read: impl FnOnce(&S, usize) -> Result<T>,
    ) -> Result<T> {
        self.carry_out(operation, table, keys, |fate| match fate {
            Some(Fate::Refused(code)) => Err(Error::refused(code)),
            Some(Fate::TimedOutAfter) => Err(Error::refused(Code::OperationTimedOut)),
            Some(Fate::Lost | Fate::Cut(_)) => {
                Err(Error::new(ErrorKind::Io, "no complete answer to a read"))
            }
            Some(Fate::Page(most)) => read(&self.store, most),
            None => read(&self.store, usize::MAX),
        })
    }
}

impl<S: TableStore> TableStore for Misbehaving<S> {
    fn create_table(&self, table: &str) -> Result<()> {
        let create = |store: &S| store.create_table(table);
        self.write(Operation::CreateTable, table, (None, &[]), create)
    }

    fn delete_table(&self, table: &str) -> Result<()> {
        self.write(Operation::DeleteTable, table, (None, &[]), |store| {
            store.delete_table(table)?;
            self.behaviour.table_deleted("", table);
            Ok(())
        })
    }

    fn tables(&self) -> Result<Vec<String>> {
        self.read(Operation::Tables, "", (None, &[""]), |store, _| store.tables())
    }

    fn get(&self, table: &str, pk: &str, rk: &str, select: &[&str]) -> Result<Option<Entity>> {
        let get = |store: &S, _| store.get(table, pk, rk, select);
        self.read(Operation::Get, table, (Some(pk), &[rk]), get)
    }

    fn insert(&self, table: &str, entity: &Entity) -> Result<ETag> {
        let keys = (Some(entity.partition_key()), &[entity.row_key()][..]);
        self.write(Operation::Insert, table, keys, |store| store.insert(table, entity))
    }

    fn replace(&self, table: &str, entity: &Entity, condition: &Condition) -> Result<ETag> {
        let keys = (Some(entity.partition_key()), &[entity.row_key()][..]);
        let replace = |store: &S| store.replace(table, entity, condition);
        self.write(Operation::Replace, table, keys, replace)
    }

    fn merge(&self, table: &str, entity: &Entity, condition: &Condition) -> Result<ETag> {
        let keys = (Some(entity.partition_key()), &[entity.row_key()][..]);
        self.write(Operation::Merge, table, keys, |store| store.merge(table, entity, condition))
    }

    fn delete(&self, table: &str, pk: &str, rk: &str, condition: &Condition) -> Result<()> {
        let delete = |store: &S| store.delete(table, pk, rk, condition);
        self.write(Operation::Delete, table, (Some(pk), &[rk]), delete)
    }

    fn commit(&self, table: &str, group: &EntityGroup) -> Result<Vec<Option<ETag>>> {
        let keys: Vec<_> = (0..group.len()).filter_map(|index| group.keys(index)).collect();
        let rows: Vec<_> = keys.iter().map(|(_, row)| *row).collect();
        let partition = keys.first().map(|(partition, _)| *partition);
        let commit = |store: &S| store.commit(table, group);
        self.write(Operation::Commit, table, (partition, &rows), commit)
    }

    fn now(&self) -> Result<DateTime> {
        self.store.now()
    }

    fn query(&self, table: &str, page: &PageQuery<'_>) -> Result<EntityPage> {
        let filter: Filter =
            if page.filter.is_empty() { Filter::all() } else { page.filter.parse()? };
        let position = page.continuation.filter(|next| next.of(EMPTY).is_err());
        let [partition, row] = position.map_or(["", ""], Continuation::keys);
        let keys = (partition_of(&filter), &[page.filter, partition, row][..]);
        self.read(Operation::Query, table, keys, |store, most| {
            let top = match page.top {
                0 if most == usize::MAX => 0,
                0 => most.clamp(1, 1_000),
                top => top.min(most.max(1)),
            };
            // A store cannot be asked for an empty page, but may refuse the query.
            let found = store.query(table, &PageQuery { top, continuation: position, ..*page })?;
            if most > 0 {
                return Ok(found);
            }
            let first = || Continuation::new(EMPTY, String::new(), String::new());
            let next = Some(position.cloned().unwrap_or_else(first));
            Ok(EntityPage { entities: Vec::new(), next })
        })
    }

    fn delete_range(&self, table: &str, range: &KeyRange) -> Result<bool> {
        self.store.delete_range(table, range)
    }
}

impl<S> fmt::Debug for Misbehaving<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Misbehaving").field("behaviour", &self.behaviour).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::clock::ManualClock;
    use crate::db::Db;
    use crate::retry::{RetryPolicy, Rng};

    fn store(rules: &str) -> Misbehaving<Db> {
        let db = Db::open_in_memory().unwrap();
        db.create_table("Tab").unwrap();
        Misbehaving::new(db, rules, 1).unwrap()
    }

    fn kinds(store: &Misbehaving<Db>) -> [Option<ErrorKind>; 4] {
        let entity = Entity::new("p", "r");
        let mut group = EntityGroup::new("p");
        group.upsert(&entity).unwrap();
        [
            store.insert("Tab", &entity).err(),
            store.get("Tab", "p", "r", &[]).err(),
            store.query("Tab", &PageQuery::default()).err(),
            store.commit("Tab", &group).err(),
        ]
        .map(|error| error.map(|error| error.kind()))
    }

    #[test]
    fn each_action_has_the_error_of_a_remote_store() {
        use ErrorKind::{Busy, Io, OutcomeUnknown, Timeout};
        for (action, write, read, is_done) in [
            ("busy", Busy, Busy, false),
            ("timeout", OutcomeUnknown, Timeout, false),
            ("timeout_after", OutcomeUnknown, Timeout, true),
            ("lost", OutcomeUnknown, Io, true),
            ("cut", OutcomeUnknown, Io, true),
        ] {
            let store = store(&format!(r#"[{{"do":"{action}"}}]"#));
            assert_eq!(kinds(&store), [write, read, read, write].map(Some), "{action}");
            let found = store.inner().get("Tab", "p", "r", &[]).unwrap();
            assert_eq!(found.is_some(), is_done, "{action}");
            assert_eq!(store.done(), [(format!("{action} 1"), 4)]);
        }
    }

    #[test]
    fn pages_are_short_or_empty_and_a_query_still_reads_all() {
        let rules = r#"[{"do":"empty_page","first":1},{"do":"short_page","entities":2}]"#;
        let store = store(rules);
        for row in 0..5 {
            store.insert("Tab", &Entity::new("p", format!("{row}"))).unwrap();
        }
        let (mut sizes, mut next) = (Vec::new(), None);
        loop {
            let page = PageQuery { continuation: next.as_ref(), ..PageQuery::default() };
            let found = store.query("Tab", &page).unwrap();
            sizes.push(found.entities.len());
            next = found.next;
            if next.is_none() {
                break;
            }
        }
        assert_eq!(sizes, [0, 2, 0, 2, 0, 1]);
    }

    #[test]
    fn a_deleted_table_is_unusable_for_a_time_and_delays_are_waited_for() {
        let clock = Arc::new(ManualClock::new(0));
        let waited = Arc::new(AtomicU64::new(0));
        let (time, sum) = (Arc::clone(&clock), Arc::clone(&waited));
        let rules = r#"[{"do":"delay","ms":1500},{"do":"table_being_deleted"}]"#;
        let store = store(rules).clock(clock).wait(move |delay| {
            time.advance(delay);
            sum.fetch_add(delay.as_millis() as u64, Ordering::Relaxed);
        });
        store.delete_table("Tab").unwrap();
        let mut tries = 0;
        let created = loop {
            tries += 1;
            match store.create_table("tab") {
                Err(error) if error.code() == Code::TableBeingDeleted.as_str() => {}
                created => break created,
            }
        };
        created.unwrap();
        assert_eq!((tries, waited.load(Ordering::Relaxed)), (27, 1500 * 28));
    }

    #[test]
    fn pages_of_two_databases_have_the_same_failures() {
        let outcomes = || {
            let rules =
                r#"[{"do":"busy","percent":50,"operations":["query"]},{"do":"short_page"}]"#;
            let store = store(rules);
            for row in 0..20 {
                store.insert("Tab", &Entity::new("p", format!("{row}"))).unwrap();
            }
            let (mut outcomes, mut next) = (Vec::new(), None);
            loop {
                let page = PageQuery { continuation: next.as_ref(), ..PageQuery::default() };
                let found = store.query("Tab", &page);
                outcomes.push(found.is_ok());
                let Ok(found) = found else { continue };
                next = found.next;
                if next.is_none() {
                    break;
                }
            }
            outcomes
        };
        let first = outcomes();
        assert_eq!(first, outcomes());
        assert!(first.contains(&false) && first.len() > 20);
    }

    #[test]
    fn an_empty_page_is_of_a_query_that_the_store_accepts() {
        let store = store(r#"[{"do":"empty_page","first":1}]"#);
        let missing = store.query("Missing", &PageQuery::default()).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert!(store.query("Tab", &PageQuery::default()).unwrap().entities.is_empty());
    }

    #[test]
    fn an_answer_is_late_after_its_effect() {
        let db = Arc::new(Db::open_in_memory().unwrap());
        db.create_table("Tab").unwrap();
        let (inside, seen) = (Arc::clone(&db), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&seen);
        let rules = r#"[{"do":"delay","ms":1}]"#;
        let store = Misbehaving::new(Db::clone(&db), rules, 1).unwrap().wait(move |_| {
            let found = inside.get("Tab", "p", "r", &[]).unwrap();
            count.fetch_add(u64::from(found.is_some()), Ordering::Relaxed);
        });
        store.insert("Tab", &Entity::new("p", "r")).unwrap();
        assert_eq!(seen.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_program_with_retries_passes() {
        let store = store(r#"[{"do":"busy","first":2}]"#);
        let insert = || store.insert("Tab", &Entity::new("p", "r"));
        assert!(insert().unwrap_err().is_transient());
        RetryPolicy::in_process().run(&mut Rng::from_seed(1), |_| (), insert).unwrap();
    }
}
