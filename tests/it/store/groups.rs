//! Groups: each verb, atomicity, the index of the operation that fails, and the limits.

use rowstone::store::PageQuery;
use rowstone::{ETag, Entity, EntityGroup, Operation, Result, Value};

use super::verbs::stale;
use super::{Contract, TABLE, content, outcome};

const PARTITION: &str = "g";

impl Contract<'_> {
    pub(super) fn groups(&mut self) {
        self.each_operation();
        self.failures();
        self.two_failures();
        self.lengths();
        self.bodies();
        self.group_of_each_verb();
    }

    /// Each operation on each state of its entity, alone in a group.
    fn each_operation(&mut self) {
        let missing = "NotFound ResourceNotFound at 0";
        let changed = "PreconditionFailed UpdateConditionNotSatisfied at 0";
        let exists = "AlreadyExists EntityAlreadyExists at 0";
        for (verb, on_absent, on_present) in [
            ("insert", "done", exists),
            ("upsert", "done", "done"),
            ("upsert_merge", "done", "done"),
            ("replace", missing, "done"),
            ("merge", missing, "done"),
            ("delete", missing, "done"),
            ("replace_if", missing, "done"),
            ("merge_if", missing, "done"),
            ("delete_if", missing, "done"),
            ("replace_if stale", missing, changed),
            ("merge_if stale", missing, changed),
            ("delete_if stale", missing, changed),
        ] {
            for (state, expected) in [("absent", on_absent), ("present", on_present)] {
                self.clear(PARTITION, "x");
                let mut etag = stale();
                if state == "present" {
                    let read = self.store.insert(TABLE, &entity("x").with("A", 1)).unwrap();
                    etag = if verb.ends_with("stale") { etag } else { read };
                }
                let done = self.commit(operation(verb, "x", etag));
                let name = format!("group of {verb} on {state}");
                self.case(&name, expected, outcome(&done));
                let left = match (expected, state, verb) {
                    ("done", _, verb) if verb.starts_with("delete") => "none",
                    ("done", "present", verb) if verb.contains("merge") => {
                        "[A=Int32(1) B=Int32(2)]"
                    }
                    ("done", ..) => "[B=Int32(2)]",
                    (_, "present", _) => "[A=Int32(1)]",
                    _ => "none",
                };
                let found = content(&self.get(PARTITION, "x"));
                self.case(format!("content after {name}"), left, found);
            }
        }
        self.clear(PARTITION, "x");
    }

    /// An operation that fails, first, in the middle and last: nothing is applied.
    fn failures(&mut self) {
        let (count, missing) = (7, "NotFound ResourceNotFound");
        let changed = "PreconditionFailed UpdateConditionNotSatisfied";
        for (verb, expected) in [
            ("insert", "AlreadyExists EntityAlreadyExists"),
            ("replace", missing),
            ("merge", missing),
            ("delete", missing),
            ("replace_if", changed),
            ("merge_if", changed),
            ("delete_if", changed),
            ("a long text", "InvalidInput PropertyValueTooLarge"),
            ("253 properties", "InvalidInput TooManyProperties"),
            ("a bad name", "InvalidInput PropertyNameInvalid"),
            ("a large entity", "InvalidInput EntityTooLarge"),
            ("a bad key", "InvalidInput OutOfRangeInput"),
        ] {
            for index in [0, count / 2, count - 1] {
                self.clear(PARTITION, "x");
                (0..count).for_each(|number| self.clear(PARTITION, &format!("n{number}")));
                if !["replace", "merge", "delete"].contains(&verb) {
                    self.store.insert(TABLE, &entity("x").with("A", 1)).unwrap();
                }
                let mut group = EntityGroup::new(PARTITION);
                for number in 0..count {
                    let operation = match number == index {
                        true => operation(verb, "x", stale()),
                        false => Operation::Insert(entity(&format!("n{number}"))),
                    };
                    group.push(operation).unwrap();
                }
                let done = self.store.commit(TABLE, &group);
                let name = format!("{verb} that fails as {index} of {count}");
                self.case(&name, format!("{expected} at {index}"), outcome(&done));
                let left = self.count(PARTITION, "RowKey ge 'n' and RowKey lt 'o'");
                self.case(format!("entities after {name}"), "Ok(0)", left);
            }
        }
        self.clear(PARTITION, "x");
    }

    /// The first operation that fails is reported.
    fn two_failures(&mut self) {
        let mut group = EntityGroup::new(PARTITION);
        group.insert(entity("n0")).unwrap();
        group.delete("none").unwrap();
        group.merge(entity("nobody")).unwrap();
        let done = self.store.commit(TABLE, &group);
        let expected = "NotFound ResourceNotFound at 1";
        self.case("the first of two failures", expected, outcome(&done));
        let left = self.count(PARTITION, "RowKey eq 'n0'");
        self.case("entities after two failures", "Ok(0)", left);
    }

    fn lengths(&mut self) {
        let done = self.store.commit(TABLE, &EntityGroup::new(PARTITION));
        self.case("an empty group", "InvalidInput InvalidInput", outcome(&done));
        for len in [1, 99, 100] {
            let mut group = EntityGroup::new(PARTITION);
            for number in 0..len {
                group.upsert(entity(&format!("l{number:03}")).with("N", number)).unwrap();
            }
            let done = self.store.commit(TABLE, &group).map(|etags| {
                let etags: Vec<ETag> = etags.into_iter().flatten().collect();
                etags.len()
            });
            self.case(format!("ETags of a group of {len}"), format!("Ok({len})"), told(&done));
            let left = self.count(PARTITION, "RowKey ge 'l' and RowKey lt 'm'");
            self.case(format!("entities after a group of {len}"), format!("Ok({len})"), left);
        }
        let mut group = EntityGroup::new(PARTITION);
        for number in 0..100 {
            group.delete(&format!("l{number:03}")).unwrap();
        }
        let done = self.store.commit(TABLE, &group).map(|etags| etags.iter().flatten().count());
        self.case("ETags of 100 deletes", "Ok(0)", told(&done));
        let refused = group.delete("more").map(drop);
        let expected = "InvalidInput InvalidInput at 100";
        self.case("101 operations", expected, outcome(&refused));
        let refused = EntityGroup::new(PARTITION).insert(Entity::new("other", "x")).map(drop);
        let expected = "InvalidInput CommandsInBatchActOnDifferentPartitions at 0";
        self.case("another partition", expected, outcome(&refused));
        let mut group = EntityGroup::new(PARTITION);
        group.insert(entity("x")).unwrap();
        let refused = group.delete("x").map(drop);
        self.case("a row twice", "InvalidInput InvalidDuplicateRow at 1", outcome(&refused));
    }

    /// A group is limited by the size of its entities, and by that of the request.
    fn bodies(&mut self) {
        for (what, value) in [
            ("texts", Value::String("x".repeat(20_000))),
            ("texts of quotes", Value::String("\"".repeat(10_000))),
            ("binaries", Value::Binary(vec![1; 41_000])),
        ] {
            let mut group = EntityGroup::new(PARTITION);
            for number in 0..100 {
                let entity = entity(&format!("b{number}")).with("V", value.clone());
                group.upsert(entity).unwrap();
            }
            assert!(group.size() <= 4 << 20, "{}", group.size());
            let done = self.store.commit(TABLE, &group);
            self.case(format!("nearly 4 MiB of {what}"), "done", outcome(&done));
        }
        let mut group = EntityGroup::new(PARTITION);
        for number in 0..100 {
            group.upsert(entity(&format!("b{number}"))).unwrap();
        }
        self.store.commit(TABLE, &group).unwrap();
    }

    /// All verbs in one group, and its ETags.
    fn group_of_each_verb(&mut self) {
        let store = self.store;
        let rows = ["replace", "merge", "delete", "replace_if", "merge_if", "delete_if"];
        let etags = rows.map(|row| store.insert(TABLE, &entity(row).with("A", 1)).unwrap());
        let mut group = EntityGroup::new(PARTITION);
        for (row, etag) in rows.into_iter().zip(etags) {
            group.push(operation(row, row, etag)).unwrap();
        }
        for row in ["insert", "upsert", "upsert_merge"] {
            group.push(operation(row, row, stale())).unwrap();
        }
        let done = store.commit(TABLE, &group);
        self.case("group of each verb", "done", outcome(&done));
        let etags = done.unwrap_or_default();
        let all = rows.into_iter().chain(["insert", "upsert", "upsert_merge"]);
        for (row, etag) in all.zip(etags) {
            let found = self.get(PARTITION, row).unwrap();
            let name = format!("ETag of {row} in a group of each verb");
            self.case(name, true, found.as_ref().and_then(Entity::etag) == etag);
            let expected = match row {
                "delete" | "delete_if" => "none",
                "merge" | "merge_if" => "[A=Int32(1) B=Int32(2)]",
                _ => "[B=Int32(2)]",
            };
            let name = format!("content of {row} in a group of each verb");
            self.case(name, expected, content(&Ok(found)));
        }
    }

    /// Returns the number of entities of a partition that match a filter.
    fn count(&self, partition: &str, filter: &str) -> String {
        let filter = format!("PartitionKey eq '{partition}' and {filter}");
        let page = PageQuery { filter: &filter, ..PageQuery::default() };
        told(&self.store.query(TABLE, &page).map(|page| page.entities.len()))
    }
}

fn told(count: &Result<usize>) -> String {
    count.as_ref().map_or_else(|_| outcome(count), |count| format!("Ok({count})"))
}

fn entity(row: &str) -> Entity {
    Entity::new(PARTITION, row)
}

/// Returns an operation on a row, which writes B=2, or something that no store accepts.
fn operation(verb: &str, row: &str, etag: ETag) -> Operation {
    let new = entity(row).with("B", 2);
    let delete = |etag| {
        let (partition_key, row_key) = (PARTITION.to_owned(), row.to_owned());
        Operation::Delete { partition_key, row_key, etag }
    };
    match verb.trim_end_matches(" stale") {
        "insert" => Operation::Insert(new),
        "upsert" => Operation::Upsert(new),
        "upsert_merge" => Operation::UpsertMerge(new),
        "replace" => Operation::Replace(new, None),
        "merge" => Operation::Merge(new, None),
        "delete" => delete(None),
        "replace_if" => Operation::Replace(new, Some(etag)),
        "merge_if" => Operation::Merge(new, Some(etag)),
        "delete_if" => delete(Some(etag)),
        "a long text" => Operation::Upsert(new.with("V", "x".repeat(32_769))),
        "a bad name" => Operation::Upsert(new.with("a-b", 1)),
        "a bad key" => Operation::Upsert(entity("a/b")),
        "253 properties" => {
            Operation::Upsert((0..253).fold(entity(row), |e, n| e.with(format!("P{n}"), n)))
        }
        "a large entity" => {
            let part = |e: Entity, n| e.with(format!("P{n}"), Value::Binary(vec![0; 65_536]));
            Operation::Upsert((0..16).fold(entity(row), part))
        }
        _ => unreachable!("no operation {verb}"),
    }
}
