//! Verbs with closures: conflicts, refusals, and what is written.

use rowstone::store::{Condition, transact, update};
use rowstone::{Entity, EntityGroup, Result};

use super::{Contract, TABLE, content, outcome};

const PARTITION: &str = "u";

/// The writes of another writer between the read and the write of the first run.
const OTHERS: [&str; 4] = ["nothing", "a write", "a delete", "a delete and an insert"];

impl Contract<'_> {
    pub(super) fn updates(&mut self) {
        for other in OTHERS {
            self.update(other);
        }
        self.refused_updates();
        for verb in ["insert", "replace", "merge", "upsert", "upsert_merge", "delete"] {
            for state in ["absent", "present"] {
                for other in ["nothing", "a change"] {
                    self.transact(verb, state, other);
                }
            }
        }
        self.refused_groups();
        self.clear(PARTITION, "x");
    }

    fn update(&mut self, other: &str) {
        self.clear(PARTITION, "x");
        self.store.insert(TABLE, &entity("x").with("A", 1)).unwrap();
        let mut runs = 0;
        let done = update(self.store, TABLE, PARTITION, "x", |found| {
            runs += 1;
            found.set("C", runs);
            let again = entity("x").with("A", 2);
            if runs == 1 && other.contains("delete") {
                self.store.delete(TABLE, PARTITION, "x", &Condition::Any)?;
            }
            match (runs, other) {
                (1, "a write") => self.store.upsert(TABLE, &again).map(drop),
                (1, "a delete and an insert") => self.store.insert(TABLE, &again).map(drop),
                _ => Ok(()),
            }
        });
        let (expected, left) = match other {
            "nothing" => ("done in 1", "[A=Int32(1) C=Int32(1)]"),
            "a delete" => ("NotFound ResourceNotFound in 1", "none"),
            _ => ("done in 2", "[A=Int32(2) C=Int32(2)]"),
        };
        let name = format!("update and {other}");
        self.case(&name, expected, format!("{} in {runs}", outcome(&done)));
        self.case(format!("content after {name}"), left, content(&self.get(PARTITION, "x")));
    }

    fn refused_updates(&mut self) {
        self.clear(PARTITION, "x");
        let absent = update(self.store, TABLE, PARTITION, "x", |_| Ok(()));
        self.case("update of no entity", "NotFound ResourceNotFound", outcome(&absent));
        let absent = update(self.store, "Missing", PARTITION, "x", |_| Ok(()));
        self.case("update of no table", "NotFound TableNotFound", outcome(&absent));
        let etag = self.store.insert(TABLE, &entity("x").with("A", 1)).unwrap();
        let same = update(self.store, TABLE, PARTITION, "x", |_| Ok(()));
        self.case("update without a change", true, same.unwrap() == etag);
        let keys = update(self.store, TABLE, PARTITION, "x", |found| {
            *found = entity("y");
            Ok(())
        });
        self.case("update of the keys", "InvalidInput InvalidInput", outcome(&keys));
        let failed = update(self.store, TABLE, PARTITION, "x", |found| {
            found.set("A", 2);
            found.get::<i32>("B").map(drop)
        });
        self.case("update whose closure fails", false, failed.is_ok());
        let etags = content(&self.get(PARTITION, "x"));
        self.case("content after refused updates", "[A=Int32(1)]", etags);
    }

    /// A transaction of one operation on an entity that it reads first. In the first run, another
    /// writer then inserts an absent entity, or deletes a present one.
    fn transact(&mut self, verb: &str, state: &str, other: &str) {
        self.clear(PARTITION, "x");
        if state == "present" {
            self.store.insert(TABLE, &entity("x").with("A", 1)).unwrap();
        }
        let mut runs = 0;
        let done = transact(self.store, TABLE, PARTITION, |view| {
            let found = view.get("x")?;
            runs += 1;
            match &found {
                _ if runs > 1 || other == "nothing" => {}
                None => drop(self.store.insert(TABLE, &entity("x").with("A", 1))?),
                Some(_) => self.store.delete(TABLE, PARTITION, "x", &Condition::Any)?,
            }
            group(verb, "x")
        });
        let last = if (state == "present") == (other == "nothing") { "present" } else { "absent" };
        let (expected, left) = match (verb, last) {
            ("insert", "present") => ("AlreadyExists EntityAlreadyExists at 0", "[A=Int32(1)]"),
            ("replace" | "merge" | "delete", "absent") => {
                ("NotFound ResourceNotFound at 0", "none")
            }
            ("delete", _) => ("done", "none"),
            ("merge" | "upsert_merge", "present") => ("done", "[A=Int32(1) B=Int32(2)]"),
            _ => ("done", "[B=Int32(2)]"),
        };
        // These do not require the state that was read.
        let is_free = match state {
            "absent" => ["replace", "merge", "delete"].contains(&verb),
            _ => verb == "insert",
        };
        let expected_runs = if other == "nothing" || is_free { 1 } else { 2 };
        let name = format!("transaction of {verb} on {state} and {other}");
        let found = format!("{} in {runs}", outcome(&done));
        self.case(&name, format!("{expected} in {expected_runs}"), found);
        self.case(format!("content after {name}"), left, content(&self.get(PARTITION, "x")));
    }

    fn refused_groups(&mut self) {
        self.clear(PARTITION, "x");
        let mut runs = 0;
        let mut count = |group: Result<EntityGroup>| {
            runs += 1;
            group
        };
        let none = transact(self.store, TABLE, PARTITION, |_| count(Ok(EntityGroup::new("v"))));
        self.case("transaction of nothing", 0, none.unwrap().len());
        let other = transact(self.store, TABLE, "v", |_| count(group("upsert", "x")));
        let expected = "InvalidInput CommandsInBatchActOnDifferentPartitions";
        self.case("transaction of another partition", expected, outcome(&other));
        let unread = transact(self.store, TABLE, PARTITION, |_| count(group("merge", "x")));
        let expected = "NotFound ResourceNotFound at 0";
        self.case("transaction of an entity that was not read", expected, outcome(&unread));
        let missing = transact(self.store, "Missing", PARTITION, |_| count(group("upsert", "x")));
        let expected = "NotFound TableNotFound at 0";
        self.case("transaction of no table", expected, outcome(&missing));
        self.case("runs of refused transactions", 4, runs);
    }
}

fn entity(row: &str) -> Entity {
    Entity::new(PARTITION, row)
}

fn group(verb: &str, row: &str) -> Result<EntityGroup> {
    let new = entity(row).with("B", 2);
    let mut group = EntityGroup::new(PARTITION);
    match verb {
        "insert" => group.insert(new)?,
        "replace" => group.replace(new)?,
        "merge" => group.merge(new)?,
        "upsert" => group.upsert(new)?,
        "upsert_merge" => group.upsert_merge(new)?,
        _ => group.delete(row)?,
    };
    Ok(group)
}
