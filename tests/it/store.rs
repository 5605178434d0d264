//! The contract of a store: the same cases over each implementation of [`TableStore`].

use rowstone::store::{Condition, PageQuery, TableStore};
use rowstone::{DateTime, Db, ETag, Entity, EntityGroup, ErrorKind, Guid, Result, Value};

/// Counts cases, and names the one that fails.
struct Contract<'s> {
    store: &'s dyn TableStore,
    cases: usize,
    failures: Vec<String>,
}

/// The state of an entity before a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Absent,
    Present,
    /// Written again after its ETag was read.
    Changed,
}

const TABLE: &str = "Contract";

impl Contract<'_> {
    fn check(&mut self, name: impl FnOnce() -> String, is_met: bool) {
        self.cases += 1;
        if !is_met {
            self.failures.push(name());
        }
    }

    /// Puts the entity with this key into a state, and returns the ETag that was read.
    fn prepare(&self, row: &str, before: Before) -> Option<ETag> {
        self.store.delete(TABLE, "p", row, &Condition::None).unwrap();
        if before == Before::Absent {
            return None;
        }
        let first = self.store.insert(TABLE, &base(row)).unwrap();
        if before == Before::Changed {
            self.store.upsert(TABLE, &base(row).with("B", 2)).unwrap();
        }
        Some(first)
    }

    fn get(&self, row: &str) -> Option<Entity> {
        self.store.get(TABLE, "p", row, &[]).unwrap()
    }

    /// Each verb with each condition on each state.
    fn verbs(&mut self) {
        let stale = "W/\"datetime'2020-01-01T00%3A00%3A00Z'\"".parse::<ETag>().unwrap();
        for before in [Before::Absent, Before::Present, Before::Changed] {
            for verb in ["insert", "replace", "merge", "delete"] {
                for kind in ["none", "any", "read", "stale"] {
                    if verb == "insert" && kind != "none" {
                        continue;
                    }
                    let read = self.prepare("v", before);
                    let condition = match kind {
                        "none" => Condition::None,
                        "any" => Condition::Any,
                        "read" => Condition::Match(read.unwrap_or_else(|| stale.clone())),
                        _ => Condition::Match(stale.clone()),
                    };
                    self.verb(verb, kind, before, &condition);
                }
            }
        }
    }

    fn verb(&mut self, verb: &str, kind: &str, before: Before, condition: &Condition) {
        let new = Entity::new("p", "v").with("C", 3);
        let done = match verb {
            "insert" => self.store.insert(TABLE, &new).map(Some),
            "replace" => self.store.replace(TABLE, &new, condition).map(Some),
            "merge" => self.store.merge(TABLE, &new, condition).map(Some),
            _ => self.store.delete(TABLE, "p", "v", condition).map(|()| None),
        };
        let expected = match (verb, kind, before) {
            ("insert", _, Before::Absent) => None,
            ("insert", ..) => Some(ErrorKind::AlreadyExists),
            (_, "none", _) => None,
            (_, _, Before::Absent) => Some(ErrorKind::NotFound),
            (_, "any", _) | (_, "read", Before::Present) => None,
            _ => Some(ErrorKind::PreconditionFailed),
        };
        let name = || format!("{verb} {kind} on {before:?}: {done:?}, expected {expected:?}");
        self.check(name, done.as_ref().err().map(rowstone::Error::kind) == expected);
        let found = self.get("v");
        let names = |entity: &Entity| {
            entity.properties().map(|(name, _)| name.to_owned()).collect::<Vec<_>>().concat()
        };
        let old = match before {
            Before::Absent => None,
            Before::Present => Some("A"),
            Before::Changed => Some("AB"),
        };
        let content = match (verb, expected) {
            (_, Some(_)) => old.map(str::to_owned),
            ("delete", None) => None,
            ("merge", None) => Some(format!("{}C", old.unwrap_or_default())),
            (_, None) => Some("C".to_owned()),
        };
        let name = || format!("content after {verb} {kind} on {before:?}: {found:?}");
        self.check(name, found.as_ref().map(names) == content);
        if let Ok(Some(etag)) = &done {
            let name = || format!("the ETag of {verb} {kind} on {before:?} is that of a read");
            self.check(name, found.and_then(|entity| entity.etag()).as_ref() == Some(etag));
        }
    }

    /// Each type, with its bounds, by each verb that writes it.
    fn types(&mut self) {
        for (index, value) in values().into_iter().enumerate() {
            for verb in ["insert", "replace", "merge", "group"] {
                let row = format!("t-{index}-{verb}");
                let entity = Entity::new("p", &*row).with("V", value.clone());
                let done: Result<()> = match verb {
                    "insert" => self.store.insert(TABLE, &entity).map(drop),
                    "replace" => self.store.upsert(TABLE, &entity).map(drop),
                    "merge" => self.store.upsert_merge(TABLE, &entity).map(drop),
                    _ => {
                        let mut group = EntityGroup::new("p");
                        group.insert(entity.clone()).unwrap();
                        self.store.commit(TABLE, &group).map(drop)
                    }
                };
                let found = self.get(&row);
                let name = || format!("{value:?} by {verb}: {done:?}, found {found:?}");
                let is_same = match (&value, found.as_ref().and_then(|found| found.value("V"))) {
                    (Value::Double(value), Some(rowstone::ValueRef::Double(found))) => {
                        value.to_bits() == found.to_bits() || value.is_nan() && found.is_nan()
                    }
                    (value, found) => found == Some(value.as_ref()),
                };
                self.check(name, done.is_ok() && is_same);
            }
        }
    }
}

fn base(row: &str) -> Entity {
    Entity::new("p", row).with("A", 1)
}

fn values() -> Vec<Value> {
    let mut values = vec![
        Value::Boolean(true),
        Value::Boolean(false),
        Value::Guid(Guid::from_bytes([0; 16])),
        Value::Guid(Guid::from_bytes([0xf7; 16])),
        Value::Binary(Vec::new()),
        Value::Binary(vec![0, 255, 128]),
        Value::Binary(vec![7; 65_536]),
    ];
    values.extend([i32::MIN, -1, 0, i32::MAX].map(Value::Int32));
    values.extend([i64::MIN, -1, 0, 1 << 53, i64::MAX].map(Value::Int64));
    let doubles = [0.0, -0.0, 1.0, 0.1, f64::MAX, f64::MIN_POSITIVE, f64::INFINITY, f64::NAN];
    values.extend(doubles.map(Value::Double));
    let texts = ["", "a", "é😀", "a\"\\/b", "a\r\nb\t", "  spaces  ", "null", "'quoted'"];
    values.extend(texts.map(|text| Value::String(text.to_owned())));
    values.push(Value::String("x".repeat(32_768)));
    let times = ["1601-01-01T00:00:00Z", "2024-02-03T04:05:06.1234567Z", "9999-12-31T23:59:59Z"];
    values.extend(times.map(|time| Value::DateTime(time.parse::<DateTime>().unwrap())));
    values
}

/// Runs all cases and returns their number.
fn run(store: &dyn TableStore) -> usize {
    store.create_table(TABLE).unwrap();
    let mut contract = Contract { store, cases: 0, failures: Vec::new() };
    contract.verbs();
    contract.types();
    contract.pages();
    assert!(contract.failures.is_empty(), "{:#?}", contract.failures);
    contract.cases
}

impl Contract<'_> {
    /// Pages of each size, followed to the end.
    fn pages(&mut self) {
        self.store.create_table("Pages").unwrap();
        for partition in ["a", "b", "é"] {
            let mut group = EntityGroup::new(partition);
            for row in 0..30 {
                let entity = Entity::new(partition, format!("{row:02}")).with("N", row);
                group.insert(entity.with("Even", row % 2 == 0)).unwrap();
            }
            self.store.commit("Pages", &group).unwrap();
        }
        let filters = [
            ("", 90),
            ("PartitionKey eq 'b'", 30),
            ("N lt 5", 15),
            ("Even eq true and N ge 20", 15),
            ("PartitionKey eq 'é' and RowKey gt '27'", 2),
            ("not (Even eq true)", 45),
            ("N eq 99", 0),
        ];
        for (filter, expected) in filters {
            for top in [1, 7, 30, 1_000, 0] {
                let mut found = Vec::new();
                let mut next = None;
                loop {
                    let query = PageQuery {
                        filter,
                        top,
                        continuation: next.as_ref(),
                        ..PageQuery::default()
                    };
                    let page = self.store.query("Pages", &query).unwrap();
                    let keys = page.entities.iter();
                    found.extend(
                        keys.map(|e| (e.partition_key().to_owned(), e.row_key().to_owned())),
                    );
                    // A continuation survives its text.
                    next = page.next.map(|next| next.to_string().parse().unwrap());
                    if next.is_none() {
                        break;
                    }
                }
                let is_ordered = found.windows(2).all(|pair| pair[0] < pair[1]);
                let name = || format!("'{filter}' by {top}: {}, ordered {is_ordered}", found.len());
                self.check(name, found.len() == expected && is_ordered);
            }
        }
    }
}

#[test]
fn the_contract_holds_over_a_directory() {
    let cases = run(&Db::open_in_memory().unwrap());
    assert!(cases >= 200, "{cases}");
}
