//! The limits of the data model: each is reached, and exceeded by one.

use rowstone::store::Condition;
use rowstone::{Entity, Operation, Result, Value};

use super::{Contract, TABLE, outcome};

/// The verbs that write an entity.
const WRITES: [&str; 4] = ["insert", "replace", "merge", "group"];

impl Contract<'_> {
    pub(super) fn limits(&mut self) {
        self.values();
        #[cfg(feature = "chrono")]
        self.refused_values();
        self.names();
        self.counts();
        self.sizes();
        self.long_keys();
        self.forbidden_keys();
    }

    /// Writes an entity that does not exist, by `verb`.
    fn write(&self, verb: &str, entity: &Entity) -> Result<()> {
        match verb {
            "insert" => self.store.insert(TABLE, entity).map(drop),
            "replace" => self.store.upsert(TABLE, entity).map(drop),
            "merge" => self.store.upsert_merge(TABLE, entity).map(drop),
            _ => self.commit(Operation::Upsert(entity.clone())),
        }
    }

    /// Writes an entity by each verb; the error is that of `code`.
    fn write_each(&mut self, what: &str, code: &str, entity: &Entity) {
        for verb in WRITES {
            let done = self.write(verb, entity);
            let at = if verb == "group" { " at 0" } else { "" };
            let expected = match code {
                "done" => code.to_owned(),
                code => format!("InvalidInput {code}{at}"),
            };
            self.case(format!("{what} by {verb}"), expected, outcome(&done));
            if done.is_ok() {
                self.clear(entity.partition_key(), entity.row_key());
            }
        }
    }

    fn values(&mut self) {
        let paired = |chars| "x".repeat(chars) + "😀";
        let entity = Entity::new("p", "l").with("V", paired(32_766));
        self.write_each("a text of 32,766 characters and a surrogate pair", "done", &entity);
        for (what, value) in [
            ("a text of 32,769 characters", Value::String("x".repeat(32_769))),
            ("a text of 32,767 characters and a surrogate pair", Value::String(paired(32_767))),
            ("a binary of 65,537 bytes", Value::Binary(vec![1; 65_537])),
        ] {
            let entity = Entity::new("p", "l").with("V", value);
            self.write_each(what, "PropertyValueTooLarge", &entity);
        }
    }

    /// The entity has no such value, but its write must not succeed without it.
    #[cfg(feature = "chrono")]
    fn refused_values(&mut self) {
        let entity = Entity::new("p", "l").with("V", chrono::DateTime::<chrono::Utc>::MIN_UTC);
        self.write_each("a time before the year 1601", "OutOfRangeInput", &entity);
    }

    fn names(&mut self) {
        let long = "n".repeat(255);
        for name in ["_", "A1", "é", "名前", "a_b", &long] {
            let what = format!("a property named {}", short(name));
            self.write_each(&what, "done", &Entity::new("p", "l").with(name, 1));
        }
        let dashed = ["", "1a", "a-b", "a b", "a.b", "a'b", "a/b", "a@odata.type", "odata.etag"];
        for name in dashed.into_iter().chain(["PartitionKey", "RowKey", "Timestamp"]) {
            let what = format!("a property named '{name}'");
            self.write_each(&what, "PropertyNameInvalid", &Entity::new("p", "l").with(name, 1));
        }
        let entity = Entity::new("p", "l").with("n".repeat(256), 1);
        self.write_each("a property name of 256 characters", "PropertyNameTooLong", &entity);
    }

    fn counts(&mut self) {
        let of = |range: std::ops::Range<usize>| {
            let mut entity = Entity::new("p", "l");
            for number in range {
                entity.set(format!("P{number}"), true);
            }
            entity
        };
        self.write_each("252 properties", "done", &of(0..252));
        self.write_each("253 properties", "TooManyProperties", &of(0..253));
        self.store.upsert(TABLE, &of(0..252)).unwrap();
        let more = of(251..252);
        let done = self.store.merge(TABLE, &more, &Condition::Any);
        self.case("a merge that leaves 252 properties", "done", outcome(&done));
        let done = self.store.merge(TABLE, &of(252..253), &Condition::Any);
        let refused = "InvalidInput TooManyProperties";
        self.case("a merge that makes 253 properties", refused, outcome(&done));
        let left = self.get("p", "l").unwrap().map(|entity| entity.len());
        self.case("properties after a refused merge", "Some(252)", format!("{left:?}"));
        self.clear("p", "l");
    }

    fn sizes(&mut self) {
        let of = |last: usize| {
            let mut entity = Entity::new("p", "l");
            for number in 10..25 {
                entity.set(format!("P{number}"), Value::Binary(vec![3; 65_536]));
            }
            entity.set("Last", Value::Binary(vec![3; last]));
            entity
        };
        let room = (1 << 20) - of(0).size();
        assert_eq!(of(room).size(), 1 << 20, "it has exactly the maximum size");
        self.write_each("an entity of 1 MiB", "done", &of(room));
        self.write_each("an entity of 1 MiB and a byte", "EntityTooLarge", &of(room + 1));
        let done = self.store.upsert(TABLE, &of(room - 100));
        self.case("an entity of nearly 1 MiB", "done", outcome(&done));
        let add = |bytes| Entity::new("p", "l").with("More", Value::Binary(vec![3; bytes]));
        let refused = "InvalidInput EntityTooLarge";
        for (bytes, expected) in [(200, refused), (10, "done")] {
            let done = self.store.merge(TABLE, &add(bytes), &Condition::Any);
            self.case(format!("a merge of {bytes} bytes near 1 MiB"), expected, outcome(&done));
        }
        self.clear("p", "l");
    }

    fn long_keys(&mut self) {
        for (unit, what) in [("k", "characters"), ("é", "characters of two bytes")] {
            for (units, code) in [(512, "done"), (1_024, "done"), (1_025, "PropertyValueTooLarge")]
            {
                let key = unit.repeat(units);
                let part = format!("a PartitionKey of {units} {what}");
                self.write_each(&part, code, &Entity::new(&*key, "l").with("V", 1));
                let part = format!("a RowKey of {units} {what}");
                self.write_each(&part, code, &Entity::new("p", &*key).with("V", 1));
            }
        }
        let found = self.get("p", &"k".repeat(1_025));
        self.case("get with a RowKey of 1,025 characters", "done", outcome(&found));
    }

    fn forbidden_keys(&mut self) {
        for char in ['/', '\\', '#', '?', '\0', '\t', '\n', '\u{1f}', '\u{7f}', '\u{85}'] {
            for part in ["PartitionKey", "RowKey"] {
                let odd = format!("a{char}b");
                let keys = if part == "RowKey" { ("p", &*odd) } else { (&*odd, "l") };
                let what = format!("a {part} with {char:?}");
                let entity = Entity::new(keys.0, keys.1).with("V", 1);
                self.write_each(&what, "OutOfRangeInput", &entity);
                let refused = "InvalidInput OutOfRangeInput";
                let done = self.store.delete(TABLE, keys.0, keys.1, &Condition::Any);
                self.case(format!("{what} by delete"), refused, outcome(&done));
                let found = self.get(keys.0, keys.1).map(|found| found.is_some());
                self.case(format!("{what} by get"), "Ok(false)", format!("{found:?}"));
            }
        }
    }
}

fn short(name: &str) -> String {
    if name.len() > 50 { format!("of {} bytes", name.len()) } else { format!("'{name}'") }
}
