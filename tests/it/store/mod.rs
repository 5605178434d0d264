//! The contract of a store: the same cases over each implementation of [`TableStore`].
//!
//! A case has a name, the text that the contract expects, and a text of what the store did.
//! A service may have a list of the cases in which it differs, with the reasons. A listed case that
//! does not differ in this way fails the suite, and so does an entry that matches no case.

mod azurite;
mod groups;
mod keys;
mod limits;
mod pages;
mod queries;
mod referee;
#[cfg(all(unix, feature = "rest"))]
mod serve;
mod tables;
#[cfg(feature = "serde")]
mod todo;
mod types;
mod updates;
mod verbs;

use std::collections::BTreeSet;
use std::fmt::Display;

use rowstone::store::{Condition, TableStore};
use rowstone::{Db, Entity, EntityGroup, Operation, Result, ValueRef};

/// Runs the cases over a store.
struct Contract<'s> {
    store: &'s dyn TableStore,
    deviations: &'s [Deviation],
    /// The names of the cases that ran, and whether the store deviated in the listed way.
    cases: Vec<(String, bool)>,
    failures: Vec<String>,
}

/// A case in which a service differs from the contract: its name, what the service does, and the
/// reason. `*` at the end of a name stands for any rest, and each such case must differ. `*` stands
/// for anything but what the contract says.
type Deviation = (&'static str, &'static str, &'static str);

/// The table of the cases that need no other table. It is empty between topics.
const TABLE: &str = "Contract";

impl Contract<'_> {
    /// Compares what the store did with what the contract says.
    fn case(&mut self, name: impl Display, expected: impl Display, found: impl Display) {
        let (name, expected) = (name.to_string(), expected.to_string());
        let found = found.to_string();
        let listed = self.deviations.iter().find(|listed| is_of(listed.0, &name));
        match listed {
            None if found == expected => {}
            None => self.failures.push(format!("{name}: {found}; expected {expected}")),
            Some(listed) if listed.1 == "*" && found != expected => {}
            Some(listed) if listed.1 == found && found != expected => {}
            Some(_) if found == expected => {
                self.failures.push(format!("{name}: does not deviate any more"));
            }
            Some(listed) => {
                self.failures.push(format!("{name}: {found}; listed {}", listed.1));
            }
        }
        self.cases.push((name, listed.is_some()));
    }

    /// Creates a table without entities.
    fn fresh(&self, table: &str) {
        drop(self.store.delete_table(table));
        self.store.create_table(table).unwrap();
    }

    fn get(&self, partition_key: &str, row_key: &str) -> Result<Option<Entity>> {
        self.store.get(TABLE, partition_key, row_key, &[])
    }

    fn commit(&self, operation: Operation) -> Result<()> {
        let group = EntityGroup::from_operations([operation])?;
        self.store.commit(TABLE, &group).map(drop)
    }

    /// Deletes an entity, if it exists.
    fn clear(&self, partition_key: &str, row_key: &str) {
        self.store.delete(TABLE, partition_key, row_key, &Condition::None).unwrap();
    }

    /// Reports all failures at once; returns the number of cases.
    fn finish(mut self) -> usize {
        let mut names = BTreeSet::new();
        for (name, _) in &self.cases {
            if !names.insert(name) {
                self.failures.push(format!("{name}: two cases have this name"));
            }
        }
        for listed in self.deviations {
            if !self.cases.iter().any(|(name, _)| is_of(listed.0, name)) {
                self.failures.push(format!("{}: listed, but no case", listed.0));
            }
        }
        assert!(self.failures.is_empty(), "{:#?}", self.failures);
        let deviating = self.cases.iter().filter(|(_, deviates)| *deviates).count();
        crate::say(format_args!("{} cases, of which {deviating} deviate:", self.cases.len()));
        for (case, _, reason) in self.deviations {
            crate::say(format_args!("  {case}: {reason}"));
        }
        self.cases.len()
    }
}

/// Runs all cases and returns their number.
fn run(store: &dyn TableStore, deviations: &[Deviation]) -> usize {
    let mut contract = Contract { store, deviations, cases: Vec::new(), failures: Vec::new() };
    contract.fresh(TABLE);
    contract.verbs();
    contract.etags();
    contract.types();
    contract.limits();
    contract.keys();
    contract.groups();
    contract.updates();
    contract.queries();
    contract.pages();
    contract.tables();
    contract.finish()
}

/// Whether a name in a list of deviations stands for the case.
fn is_of(listed: &str, name: &str) -> bool {
    listed.strip_suffix('*').map_or(listed == name, |begin| name.starts_with(begin))
}

/// Describes a result: `done`, or the kind and the code of the error, and the index in a group.
fn outcome<T>(result: &Result<T>) -> String {
    match result {
        Ok(_) => "done".to_owned(),
        Err(error) => match error.index() {
            None => format!("{:?} {}", error.kind(), error.code()),
            Some(index) => format!("{:?} {} at {index}", error.kind(), error.code()),
        },
    }
}

/// Describes the result of a read: the properties, or `none`.
fn content(result: &Result<Option<Entity>>) -> String {
    match result {
        Ok(None) => "none".to_owned(),
        Ok(Some(entity)) => {
            let properties = entity.properties();
            let texts = properties.map(|(name, value)| format!("{name}={}", value_text(value)));
            format!("[{}]", texts.collect::<Vec<_>>().join(" "))
        }
        Err(_) => outcome(result),
    }
}

/// Describes a value with its type; a long one by its length.
fn value_text(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::String(text) if text.len() > 99 => format!("String of {} bytes", text.len()),
        ValueRef::Binary(bytes) if bytes.len() > 99 => format!("Binary of {} bytes", bytes.len()),
        // NaN has many bit patterns, and JSON has one.
        ValueRef::Double(value) if value.is_nan() => "Double(NaN)".to_owned(),
        value => format!("{value:?}"),
    }
}

#[test]
fn a_database_is_a_store() {
    let cases = run(&Db::open_in_memory().unwrap(), &[]);
    assert!(cases >= 300, "{cases}");
}
