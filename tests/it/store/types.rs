//! Values of each type, with their bounds, by each verb.

use rowstone::store::PageQuery;
use rowstone::{DateTime, Entity, Guid, Operation, Value};

use super::{Contract, TABLE, outcome, value_text};

impl Contract<'_> {
    pub(super) fn types(&mut self) {
        for (index, value) in values().into_iter().enumerate() {
            let text = value_text(value.as_ref());
            for verb in ["group", "insert", "replace", "merge"] {
                let row = format!("t-{index}");
                self.clear("p", &row);
                let entity = Entity::new("p", &*row).with("V", value.clone());
                let done = match verb {
                    "insert" => self.store.insert(TABLE, &entity).map(drop),
                    "replace" => self.store.upsert(TABLE, &entity).map(drop),
                    "merge" => self.store.upsert_merge(TABLE, &entity).map(drop),
                    _ => self.commit(Operation::Insert(entity)),
                };
                let found = match (&done, self.get("p", &row)) {
                    (Ok(()), Ok(Some(found))) => found.value("V").map(value_text),
                    (_, found) => Some(format!("{}, {}", outcome(&done), outcome(&found))),
                };
                let found = found.unwrap_or_else(|| "no value".to_owned());
                self.case(format!("{text} by {verb}"), &text, found);
            }
        }
        self.all_types_in_a_page();
    }

    /// A query returns each value as a read of the entity does.
    fn all_types_in_a_page(&mut self) {
        let filter = "PartitionKey eq 'p' and RowKey ge 't-' and RowKey lt 't.'";
        let page = PageQuery { filter, ..PageQuery::default() };
        let page = self.store.query(TABLE, &page).unwrap();
        self.case("all values in a page", values().len(), page.entities.len());
        for entity in page.entities {
            let read = self.get("p", entity.row_key()).unwrap().unwrap();
            let texts = [&entity, &read].map(|entity| entity.value("V").map(value_text));
            let name = format!("a page has the value of {}", entity.row_key());
            self.case(name, format!("{:?}", texts[1]), format!("{:?}", texts[0]));
            let is_same = (entity.etag(), entity.timestamp()) == (read.etag(), read.timestamp());
            let name = format!("a page has the ETag and the Timestamp of {}", entity.row_key());
            self.case(name, true, is_same);
            self.clear("p", entity.row_key());
        }
    }
}

fn values() -> Vec<Value> {
    let mut values = vec![
        Value::Boolean(true),
        Value::Boolean(false),
        Value::Guid(Guid::from_bytes([0; 16])),
        Value::Guid(Guid::from_bytes([0xf7; 16])),
        Value::Guid(Guid::from_bytes(std::array::from_fn(|i| i as u8))),
        Value::Binary(Vec::new()),
        Value::Binary(vec![0, 255, 128]),
        Value::Binary(vec![7; 65_536]),
    ];
    values.extend([i32::MIN, -1, 0, i32::MAX].map(Value::Int32));
    values.extend([i64::MIN, -1, 0, (1 << 53) + 1, i64::MAX].map(Value::Int64));
    let doubles = [0.0, -0.0, 1.0, -5.0, 0.1, 1e22, 1e23, 5e-324, f64::MAX, f64::MIN_POSITIVE];
    values.extend(doubles.map(Value::Double));
    values.extend([f64::INFINITY, f64::NEG_INFINITY, f64::NAN].map(Value::Double));
    let texts = ["", "a", "é😀名前", "a\"\\/b", "a\r\nb\t", "\0\u{1}\u{7f}\u{2028}\u{feff}"];
    let more =
        ["  spaces  ", "null", "'quoted'", "<&>", "{\"a\":[1]}", "2024-01-01T00:00:00Z", "1"];
    values.extend(texts.iter().chain(&more).map(|text| Value::String((*text).to_owned())));
    values.extend(["x".repeat(32_768), "😀".repeat(1_000)].map(Value::String));
    let times = [
        "1601-01-01T00:00:00Z",
        "1970-01-01T00:00:00Z",
        "2024-02-29T23:59:59.5Z",
        "2024-02-03T04:05:06.1234567Z",
        "9999-12-31T23:59:59.9999999Z",
    ];
    values.extend(times.map(|time| Value::DateTime(time.parse::<DateTime>().unwrap())));
    values
}
