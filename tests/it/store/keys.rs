//! Keys that need escaping, in each place of a request that contains keys.

use std::fmt::Write;

use rowstone::store::{Condition, PageQuery};
use rowstone::{Entity, EntityGroup, Result};

use super::{Contract, TABLE, outcome};

const KEYS: [&str; 36] = [
    "",
    " ",
    "  ",
    "a b",
    " a ",
    "'",
    "''",
    "a'b",
    "'a'",
    "%",
    "%25",
    "%2F",
    "%zz",
    "+",
    "a+b",
    "&",
    "a=b",
    "é",
    "😀",
    "名前",
    "\"",
    "<a>",
    "(",
    ")",
    "a,RowKey='b'",
    "$batch",
    "~",
    ":;",
    "a:b",
    "|",
    "{x}",
    "..",
    "*",
    "@;",
    "\u{feff}",
    "\u{fffd}",
];

impl Contract<'_> {
    pub(super) fn keys(&mut self) {
        for key in KEYS {
            for (part, partition, row) in
                [("PartitionKey", key, "k"), ("RowKey", "k", key), ("both keys", key, key)]
            {
                let expected = "insert done, get same, replace done, merge done, query same, \
                                delete done, group done, get same, group done, get none";
                let found = self.walk(partition, row);
                self.case(format!("{part} {key:?}"), expected, found);
            }
        }
        self.order();
    }

    /// Uses an entity by each verb, and tells the outcome of each.
    fn walk(&self, partition: &str, row: &str) -> String {
        let store = self.store;
        let mut told = String::new();
        let mut tell = |verb: &str, text: &str| {
            let comma = if told.is_empty() { "" } else { ", " };
            write!(told, "{comma}{verb} {text}").unwrap();
        };
        let found = |read: Result<Option<Entity>>| match read {
            Ok(Some(found)) if (found.partition_key(), found.row_key()) == (partition, row) => {
                "same".to_owned()
            }
            Ok(Some(_)) => "another".to_owned(),
            Ok(None) => "none".to_owned(),
            Err(_) => outcome(&read),
        };
        let entity = Entity::new(partition, row).with("V", 1);
        tell("insert", &outcome(&store.insert(TABLE, &entity)));
        let read = self.get(partition, row);
        let etag = read.as_ref().ok().and_then(|read| read.as_ref()?.etag());
        tell("get", &found(read));
        let condition = etag.map_or(Condition::Any, Condition::Match);
        tell("replace", &outcome(&store.replace(TABLE, &entity, &condition)));
        tell("merge", &outcome(&store.merge(TABLE, &entity, &Condition::Any)));
        tell("query", &found(self.query_one(partition, row)));
        tell("delete", &outcome(&store.delete(TABLE, partition, row, &Condition::Any)));
        let mut group = EntityGroup::new(partition);
        group.insert(entity).unwrap();
        tell("group", &outcome(&store.commit(TABLE, &group)));
        tell("get", &found(self.get(partition, row)));
        let mut group = EntityGroup::new(partition);
        group.delete(row).unwrap();
        tell("group", &outcome(&store.commit(TABLE, &group)));
        tell("get", &found(self.get(partition, row)));
        drop(store.delete(TABLE, partition, row, &Condition::None));
        told
    }

    fn query_one(&self, partition: &str, row: &str) -> Result<Option<Entity>> {
        let [partition, row] = [partition, row].map(|key| key.replace('\'', "''"));
        let filter = format!("PartitionKey eq '{partition}' and RowKey eq '{row}'");
        let page = PageQuery { filter: &filter, ..PageQuery::default() };
        Ok(self.store.query(TABLE, &page)?.entities.pop())
    }

    /// Keys are ordered by their UTF-16 units.
    fn order(&mut self) {
        let mut expected = [KEYS.as_slice(), &["A", "Z", "a", "10", "9", "\u{ff5e}"]].concat();
        for key in &expected {
            // An entity that is missing fails the cases below.
            drop(self.store.upsert(TABLE, &Entity::new(*key, "o")));
            drop(self.store.upsert(TABLE, &Entity::new("order", *key)));
        }
        expected.sort_by_key(|key| key.encode_utf16().collect::<Vec<_>>());
        let keys_of = |filter| {
            let page = PageQuery { filter, ..PageQuery::default() };
            self.store.query(TABLE, &page).unwrap().entities
        };
        let rows = keys_of("PartitionKey eq 'order'");
        let rows: Vec<_> = rows.iter().map(Entity::row_key).collect();
        let partitions = keys_of("RowKey eq 'o' and PartitionKey ne 'order'");
        let partitions: Vec<_> = partitions.iter().map(Entity::partition_key).collect();
        self.case("the order of RowKeys", format!("{expected:?}"), format!("{rows:?}"));
        self.case("the order of PartitionKeys", format!("{expected:?}"), format!("{partitions:?}"));
        self.pages_of_odd_keys(&expected);
        for key in expected {
            self.clear(key, "o");
            self.clear("order", key);
        }
    }

    /// Continuations have these keys.
    fn pages_of_odd_keys(&mut self, expected: &[&str]) {
        for (part, filter) in [
            ("RowKeys", "PartitionKey eq 'order'"),
            ("PartitionKeys", "RowKey eq 'o' and PartitionKey ne 'order'"),
        ] {
            let (mut found, mut next) = (Vec::new(), None);
            loop {
                let continuation = next.as_ref();
                let page = PageQuery { filter, top: 1, continuation, ..PageQuery::default() };
                let page = self.store.query(TABLE, &page).unwrap();
                found.extend(page.entities.iter().map(|entity| match part {
                    "RowKeys" => entity.row_key().to_owned(),
                    _ => entity.partition_key().to_owned(),
                }));
                next = page.next;
                if next.is_none() || found.len() > expected.len() {
                    break;
                }
            }
            let name = format!("pages of one entity, by odd {part}");
            self.case(name, format!("{expected:?}"), format!("{found:?}"));
        }
    }
}
