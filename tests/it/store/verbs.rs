//! Each verb with each condition on each state of the entity, and the use of ETags.

use rowstone::store::{Condition, PageQuery, TableStore};
use rowstone::{ETag, Entity, EntityGroup, Result};

use super::{Contract, TABLE, content, outcome};

/// The state of an entity before a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Absent,
    Present,
    /// Written again after its ETag was read.
    Changed,
}

impl Contract<'_> {
    /// Puts the entity into a state, and returns the ETag that was read.
    fn prepare(&self, before: Before) -> Option<ETag> {
        self.clear("p", "v");
        if before == Before::Absent {
            return None;
        }
        let first = self.store.insert(TABLE, &Entity::new("p", "v").with("A", 1)).unwrap();
        if before == Before::Changed {
            self.store.upsert(TABLE, &Entity::new("p", "v").with("A", 1).with("B", 2)).unwrap();
        }
        Some(first)
    }

    pub(super) fn verbs(&mut self) {
        for before in [Before::Absent, Before::Present, Before::Changed] {
            for verb in ["insert", "replace", "merge", "delete"] {
                for kind in ["none", "any", "read", "stale"] {
                    if verb != "insert" || kind == "none" {
                        self.verb(verb, kind, before);
                    }
                }
            }
        }
        self.verbs_of_a_missing_table();
        self.merges();
    }

    fn verb(&mut self, verb: &str, kind: &str, before: Before) {
        let read = self.prepare(before);
        let condition = match (kind, read) {
            ("none", _) => Condition::None,
            ("any", _) => Condition::Any,
            ("read", Some(read)) => Condition::Match(read),
            _ => Condition::Match(stale()),
        };
        let new = Entity::new("p", "v").with("C", 3);
        let done = match verb {
            "insert" => self.store.insert(TABLE, &new).map(Some),
            "replace" => self.store.replace(TABLE, &new, &condition).map(Some),
            "merge" => self.store.merge(TABLE, &new, &condition).map(Some),
            _ if kind == "none" => self.store.delete_if_exists(TABLE, "p", "v").map(|()| None),
            _ => self.store.delete(TABLE, "p", "v", &condition).map(|()| None),
        };
        let expected = match (verb, kind, before) {
            ("insert", _, Before::Absent) => "done",
            ("insert", ..) => "AlreadyExists EntityAlreadyExists",
            (_, "none", _) => "done",
            (_, _, Before::Absent) => "NotFound ResourceNotFound",
            (_, "any", _) | (_, "read", Before::Present) => "done",
            _ => "PreconditionFailed UpdateConditionNotSatisfied",
        };
        let name = format!("{verb} if {kind} on {before:?}");
        self.case(&name, expected, outcome(&done));
        let old = match before {
            Before::Absent => "",
            Before::Present => "A=Int32(1)",
            Before::Changed => "A=Int32(1) B=Int32(2)",
        };
        let left = match (verb, expected, old) {
            ("delete", "done", _) => "none".to_owned(),
            ("merge", "done", old) if !old.is_empty() => format!("[{old} C=Int32(3)]"),
            (_, "done", _) => "[C=Int32(3)]".to_owned(),
            (_, _, "") => "none".to_owned(),
            _ => format!("[{old}]"),
        };
        let found = self.get("p", "v");
        self.case(format!("content after {name}"), left, content(&found));
        if let Ok(Some(etag)) = done {
            let found = found.unwrap().and_then(|entity| entity.etag());
            let is_same = found.as_ref() == Some(&etag);
            self.case(format!("the ETag of {name} is that of a read"), true, is_same);
        }
    }

    fn verbs_of_a_missing_table(&mut self) {
        let (store, entity) = (self.store, Entity::new("p", "r").with("A", 1));
        let no = "NotFound TableNotFound";
        for (kind, condition) in [
            ("none", Condition::None),
            ("any", Condition::Any),
            ("stale", Condition::Match(stale())),
        ] {
            let done = store.replace("Missing", &entity, &condition);
            self.case(format!("replace if {kind} without a table"), no, outcome(&done));
            let done = store.merge("Missing", &entity, &condition);
            self.case(format!("merge if {kind} without a table"), no, outcome(&done));
            let done = store.delete("Missing", "p", "r", &condition);
            self.case(format!("delete if {kind} without a table"), no, outcome(&done));
        }
        let done = store.insert("Missing", &entity);
        self.case("insert without a table", no, outcome(&done));
        let found = store.get("Missing", "p", "r", &[]);
        self.case("get without a table", no, outcome(&found));
        let found = store.query("Missing", &PageQuery::default());
        self.case("query without a table", no, outcome(&found));
        let mut group = EntityGroup::new("p");
        group.insert(entity).unwrap();
        let done = store.commit("Missing", &group);
        self.case("group without a table", "NotFound TableNotFound at 0", outcome(&done));
    }

    /// Properties that a write does not name, and types that change.
    fn merges(&mut self) {
        let store = self.store;
        let named = |name: &str| Entity::new("p", "m").with(name, "text");
        type Verb = fn(&dyn TableStore, &Entity) -> Result<ETag>;
        let verbs: [(&str, Verb, bool); 4] = [
            ("upsert", |store, entity| store.upsert(TABLE, entity), false),
            ("replace", |store, entity| store.replace(TABLE, entity, &Condition::Any), false),
            ("upsert_merge", |store, entity| store.upsert_merge(TABLE, entity), true),
            ("merge", |store, entity| store.merge(TABLE, entity, &Condition::Any), true),
        ];
        for (verb, write, keeps) in verbs {
            store.upsert(TABLE, &Entity::new("p", "m").with("A", 1).with("B", true)).unwrap();
            write(store, &named("A")).unwrap();
            let rest = if keeps { " B=Boolean(true)" } else { "" };
            let found = content(&self.get("p", "m"));
            self.case(
                format!("{verb} changes a type"),
                format!("[A=String(\"text\"){rest}]"),
                found,
            );
            write(store, &Entity::new("p", "m").with("A", None::<i32>)).unwrap();
            let rest = if keeps { "[A=String(\"text\") B=Boolean(true)]" } else { "[]" };
            let found = content(&self.get("p", "m"));
            self.case(format!("{verb} without properties"), rest, found);
        }
        self.clear("p", "m");
    }

    /// The ETag that each verb returns can be used by each other one, as a text.
    pub(super) fn etags(&mut self) {
        let store = self.store;
        let entity = Entity::new("p", "e").with("A", 1);
        for source in ["insert", "replace", "merge", "group", "get", "query", "selected query"] {
            for user in ["replace", "merge", "delete", "group"] {
                self.clear("p", "e");
                let first = store.insert(TABLE, &entity).unwrap();
                let etag = self.etag_of(source, first);
                // An ETag survives its text.
                let etag: ETag = etag.to_string().parse().unwrap();
                let done = self.use_etag(user, &etag);
                self.case(format!("ETag of {source} for {user}"), "done", outcome(&done));
                if user != "delete" {
                    let again = self.use_etag(user, &etag);
                    let at = if user == "group" { " at 0" } else { "" };
                    let stale = format!("PreconditionFailed UpdateConditionNotSatisfied{at}");
                    self.case(format!("ETag of {source} for {user} again"), stale, outcome(&again));
                }
            }
        }
        self.clear("p", "e");
        let first = store.insert(TABLE, &entity).unwrap();
        let second = store.replace(TABLE, &entity, &Condition::Match(first.clone())).unwrap();
        self.case("equal content gets another ETag", true, first != second);
        let read = self.get("p", "e").unwrap().unwrap();
        self.case("a read has a Timestamp", true, read.timestamp().is_some());
        let again = self.get("p", "e").unwrap().unwrap();
        self.case("a read leaves the ETag", true, read.etag() == again.etag());
        self.clear("p", "e");
        store.insert(TABLE, &entity).unwrap();
        let done = store.replace(TABLE, &entity, &Condition::Match(second));
        let stale = "PreconditionFailed UpdateConditionNotSatisfied";
        self.case("the ETag of a deleted entity is stale", stale, outcome(&done));
        self.clear("p", "e");
    }

    /// Returns the ETag that `source` tells of the entity, which has the ETag `first`.
    fn etag_of(&self, source: &str, first: ETag) -> ETag {
        let (store, entity) = (self.store, Entity::new("p", "e").with("A", 1));
        let filter = "PartitionKey eq 'p' and RowKey eq 'e'";
        let query = |select: &[&str]| {
            let page = PageQuery { filter, select, ..PageQuery::default() };
            store.query(TABLE, &page).unwrap().entities.remove(0).etag().unwrap()
        };
        match source {
            "insert" => first,
            "replace" => store.replace(TABLE, &entity, &Condition::Any).unwrap(),
            "merge" => store.merge(TABLE, &entity, &Condition::Match(first)).unwrap(),
            "group" => {
                let mut group = EntityGroup::new("p");
                group.upsert(entity).unwrap();
                store.commit(TABLE, &group).unwrap().remove(0).unwrap()
            }
            "get" => self.get("p", "e").unwrap().unwrap().etag().unwrap(),
            "query" => query(&[]),
            _ => query(&["A"]),
        }
    }

    fn use_etag(&self, user: &str, etag: &ETag) -> Result<()> {
        let (store, entity) = (self.store, Entity::new("p", "e").with("A", 2));
        let condition = Condition::Match(etag.clone());
        match user {
            "replace" => store.replace(TABLE, &entity, &condition).map(drop),
            "merge" => store.merge(TABLE, &entity, &condition).map(drop),
            "delete" => store.delete(TABLE, "p", "e", &condition),
            _ => {
                let mut group = EntityGroup::new("p");
                group.merge_if(entity, etag).unwrap();
                store.commit(TABLE, &group).map(drop)
            }
        }
    }
}

/// An ETag that no entity has.
pub(super) fn stale() -> ETag {
    "W/\"datetime'2020-01-01T00%3A00%3A00Z'\"".parse().unwrap()
}
