//! Filters with each type and operator, selections, and refused queries.

use rowstone::store::{Condition, PageQuery};
use rowstone::{DateTime, Entity, Guid, Result, Value};

use super::{Contract, content, outcome};

const GUID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";
const OTHER: &str = "ff8fad5b-d9cb-469f-a165-70867728950e";

impl Contract<'_> {
    pub(super) fn queries(&mut self) {
        self.fresh("Queries");
        for (row, value) in rows() {
            let mut entity = Entity::new("types", row).with("N", row.len() as i32);
            if let Some(value) = value {
                entity.set("V", value);
            }
            self.store.insert("Queries", &entity).unwrap();
        }
        self.store.insert("Queries", &Entity::new("it's", "r'k")).unwrap();
        self.comparisons();
        self.combinations();
        self.refused_filters();
        self.selections();
        self.store.delete_table("Queries").unwrap();
    }

    /// Returns the RowKeys that match, or the error.
    fn matching(&self, filter: &str) -> String {
        let page = PageQuery { filter, ..PageQuery::default() };
        match self.store.query("Queries", &page) {
            Ok(page) => page.entities.iter().map(Entity::row_key).collect::<Vec<_>>().join(" "),
            failed => outcome(&failed),
        }
    }

    /// Each operator with a literal that equals, or is below or above, the value of a row.
    fn comparisons(&mut self) {
        for (row, below, equal, above) in [
            ("boolean", None, "true", None),
            ("string", Some("'it'"), "'it''s'", Some("'ju'")),
            ("int32", Some("4"), "5", Some("6")),
            ("int64", Some("1099511627775L"), "1099511627776L", Some("1099511627777L")),
            ("double", Some("2.25"), "2.5", Some("2.75")),
            (
                "time",
                Some("datetime'2024-05-01T10:00:00Z'"),
                "datetime'2024-05-01T10:00:00.1234567Z'",
                Some("datetime'2024-05-01T10:00:00.1234568Z'"),
            ),
            (
                "guid",
                Some("guid'00000000-0000-0000-0000-000000000000'"),
                &format!("guid'{GUID}'"),
                Some(&format!("guid'{OTHER}'")),
            ),
            ("binary", Some("X'00'"), "X'00ff'", Some("X'00ff00'")),
        ] {
            for (literal, order) in [(below, 1), (Some(equal), 0), (above, -1)] {
                let Some(literal) = literal else { continue };
                for (operator, is_met) in [
                    ("eq", order == 0),
                    ("ne", order != 0),
                    ("gt", order > 0),
                    ("ge", order >= 0),
                    ("lt", order < 0),
                    ("le", order <= 0),
                ] {
                    let filter = format!("RowKey eq '{row}' and V {operator} {literal}");
                    let expected = if is_met { row } else { "" };
                    let found = self.matching(&filter);
                    self.case(filter, expected, found);
                }
            }
        }
    }

    fn combinations(&mut self) {
        let typed = "PartitionKey eq 'types'";
        for (filter, expected) in [
            ("PartitionKey eq 'it''s'", "r'k"),
            ("RowKey eq 'r''k'", "r'k"),
            ("PartitionKey eq 'types' and RowKey eq 'int32'", "int32"),
            ("PartitionKey eq 'types' and RowKey ge 'b' and RowKey lt 'd'", "binary boolean"),
            ("PartitionKey gt 'it''s' and RowKey le 'boolean'", "binary boolean"),
            ("PartitionKey ne 'types'", "r'k"),
            ("RowKey eq 'int32' or RowKey eq 'int64'", "int32 int64"),
            ("(RowKey eq 'int32' or RowKey eq 'int64') and N eq 5", "int32 int64"),
            ("RowKey eq 'int32' or RowKey eq 'int64' and N eq 4", "int32"),
            (
                "not (N eq 5) and PartitionKey eq 'types'",
                "binary boolean double guid string time without",
            ),
            (
                "not N eq 5 and PartitionKey eq 'types'",
                "binary boolean double guid string time without",
            ),
            ("N eq 4 and not (RowKey eq 'time')", "guid"),
            ("4 eq N", "guid time"),
            ("5 lt N", "binary boolean double string without"),
            ("N eq 5 and Absent eq 1", ""),
            ("Absent ne 1", ""),
            ("not (Absent eq 1) and N eq 4", "guid time"),
            ("RowKey eq 'without' and V ne 1", ""),
            ("RowKey eq 'without' and not (V eq 1)", "without"),
            ("N eq 6 and V eq 'it''s'", "string"),
            ("N eq 6 and V ne 'it''s'", "binary double"),
            ("RowKey eq 'string' and V lt 5", "string"),
            ("RowKey eq 'int32' and V eq 5L", ""),
            ("RowKey eq 'int64' and V gt 5", "int64"),
            ("RowKey eq 'double' and V lt 3", "double"),
            ("RowKey eq 'boolean' and V", "boolean"),
            ("RowKey eq 'boolean' and not V", ""),
            ("Timestamp gt datetime'2020-01-01T00:00:00Z' and N eq 4", "guid time"),
            ("Timestamp lt datetime'2020-01-01T00:00:00Z'", ""),
            ("", "r'k binary boolean double guid int32 int64 string time without"),
            (typed, "binary boolean double guid int32 int64 string time without"),
        ] {
            let found = self.matching(filter);
            self.case(format!("filter '{filter}'"), expected, found);
        }
    }

    fn refused_filters(&mut self) {
        for (filter, code) in [
            ("N eq", "InvalidInput"),
            ("(N eq 1", "InvalidInput"),
            ("N eq 1)", "InvalidInput"),
            ("N eq 'open", "InvalidInput"),
            ("N = 1", "InvalidInput"),
            ("N eq 1 or", "InvalidInput"),
            ("1", "InvalidInput"),
            ("N eq 3000000000", "InvalidInput"),
            ("N eq null", "InvalidInput"),
            ("N gt null", "InvalidInput"),
            ("V eq guid'no'", "InvalidInput"),
            ("V eq datetime'no'", "InvalidInput"),
            ("V eq X'0'", "InvalidInput"),
            ("N eq N", "NotImplemented"),
            ("1 eq 1", "NotImplemented"),
            ("N add 1 eq 2", "NotImplemented"),
            ("startswith(RowKey, 'a')", "NotImplemented"),
        ] {
            let kind = if code == "NotImplemented" { code } else { "InvalidInput" };
            let found = self.matching(filter);
            self.case(format!("filter '{filter}'"), format!("{kind} {code}"), found);
        }
        for top in [1_001, 5_000] {
            let page = PageQuery { top, ..PageQuery::default() };
            let found = self.store.query("Queries", &page);
            self.case(format!("a page of {top}"), "InvalidInput InvalidInput", outcome(&found));
        }
    }

    fn selections(&mut self) {
        let entity = Entity::new("select", "r").with("A", 1).with("B", "b").with("C", true);
        let etag = self.store.insert("Queries", &entity).unwrap();
        for (select, expected) in [
            (&[][..], "[A=Int32(1) B=String(\"b\") C=Boolean(true)]"),
            (&["A"], "[A=Int32(1)]"),
            (&["C", "A"], "[A=Int32(1) C=Boolean(true)]"),
            (&["A", "A"], "[A=Int32(1)]"),
            (&["a"], "[]"),
            (&["Absent"], "[]"),
            (&["Absent", "B"], "[B=String(\"b\")]"),
            (&["*"], "[A=Int32(1) B=String(\"b\") C=Boolean(true)]"),
            (&["A", "*"], "[A=Int32(1) B=String(\"b\") C=Boolean(true)]"),
            (&["A,B"], "[]"),
            (&["A", "no name"], "[A=Int32(1)]"),
            (&["PartitionKey"], "[]"),
            (&["RowKey", "B"], "[B=String(\"b\")]"),
            (&["Timestamp"], "[]"),
        ] {
            let name = format!("selection of {select:?}");
            let found = self.store.get("Queries", "select", "r", select);
            self.case(format!("get, {name}"), expected, content(&found));
            self.selected(&format!("get, {name}"), &etag, &found);
            let filter = "PartitionKey eq 'select' and B eq 'b'";
            let page = PageQuery { filter, select, ..PageQuery::default() };
            let found = self.store.query("Queries", &page).map(|mut page| page.entities.pop());
            self.case(format!("query, {name}"), expected, content(&found));
            self.selected(&format!("query, {name}"), &etag, &found);
        }
        let found = self.store.get("Queries", "select", "none", &["A"]);
        self.case("get of a missing entity, with a selection", "none", content(&found));
        self.store.delete("Queries", "select", "r", &Condition::Any).unwrap();
    }

    /// A selection leaves the keys, the ETag and the Timestamp.
    fn selected(&mut self, name: &str, etag: &rowstone::ETag, found: &Result<Option<Entity>>) {
        let found = found.as_ref().ok().and_then(Option::as_ref).map(|found| {
            let has_keys = (found.partition_key(), found.row_key()) == ("select", "r");
            (has_keys, found.etag().as_ref() == Some(etag), found.timestamp().is_some())
        });
        let all = "Some((true, true, true))";
        self.case(format!("system properties of {name}"), all, format!("{found:?}"));
    }
}

/// One row for each type, and one without a value.
fn rows() -> [(&'static str, Option<Value>); 9] {
    [
        ("string", Some(Value::String("it's".to_owned()))),
        ("int32", Some(Value::Int32(5))),
        ("int64", Some(Value::Int64(1 << 40))),
        ("double", Some(Value::Double(2.5))),
        ("boolean", Some(Value::Boolean(true))),
        (
            "time",
            Some(Value::DateTime("2024-05-01T10:00:00.1234567Z".parse::<DateTime>().unwrap())),
        ),
        ("guid", Some(Value::Guid(GUID.parse::<Guid>().unwrap()))),
        ("binary", Some(Value::Binary(vec![0, 255]))),
        ("without", None),
    ]
}
