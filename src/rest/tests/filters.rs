//! Tests filters as clients send them: parsing, literals, comparisons, refused filters, and query
//! plans. The tests of the filter language itself are in `query`.

use super::*;

const NOT_IMPLEMENTED: &str =
    "The requested operation is not implemented on the specified resource.";

impl Site {
    #[track_caller]
    fn syntax(&self, filter: &str, position: usize) {
        let text = format!("Syntax error at position {position} in '{filter}'.");
        self.filter(filter).send().refused(400, "InvalidInput", &text);
    }
}

/// Creates a test service with four people of different ages, names and sets of properties.
fn crowd() -> Site {
    let site = Site::people();
    site.insert("p", "ann", "\"Age\":30,\"Name\":\"Ann\",\"Tall\":true");
    site.insert("p", "bob", "\"Age\":41,\"Name\":\"Bob\",\"Tall\":false");
    site.insert("p", "cid", "\"Age\":41,\"Name\":\"O'Hara\"");
    site.insert("q", "dan", "\"Name\":\"Dan\"");
    site
}

#[test]
fn f22_filters_bind_and_before_or() {
    let site = crowd();
    for (filter, rows) in [
        ("Name eq 'Dan' or Age eq 41 and Tall eq false", "bob dan"),
        ("(Name eq 'Dan' or Age eq 41) and Tall eq false", "bob"),
        ("Age eq 41 and Tall eq false or Name eq 'Dan'", "bob dan"),
        ("not Age eq 41 and Name ne 'Dan'", "ann"),
        ("not (Age eq 41 and Tall eq false)", "ann cid dan"),
        ("not not Age eq 41", "bob cid"),
        ("(Age eq 41)and(Name eq 'Bob')", "bob"),
        ("((((Age eq 41))))", "bob cid"),
        ("not(Age eq 41)or(Age eq 41)", "ann bob cid dan"),
    ] {
        assert_eq!(site.rows(filter), rows, "{filter}");
    }
}

#[test]
fn f22_filters_may_have_the_literal_first() {
    let site = crowd();
    for (filter, rows) in [
        ("40 lt Age", "bob cid"),
        ("41 le Age", "bob cid"),
        ("41 gt Age", "ann"),
        ("30 ge Age", "ann"),
        ("30 eq Age", "ann"),
        ("'Bob' ne Name", "ann cid dan"),
        ("'p' eq PartitionKey", "ann bob cid"),
    ] {
        assert_eq!(site.rows(filter), rows, "{filter}");
    }
}

#[test]
fn f22_filters_may_be_a_boolean_property() {
    let site = crowd();
    assert_eq!(site.rows("Tall"), "ann");
    assert_eq!(site.rows("not Tall"), "bob cid dan");
    assert_eq!(site.rows("Tall and Age eq 30"), "ann");
    assert_eq!(site.rows("(Tall) or Name eq 'Dan'"), "ann dan");
    // A property used as a condition matches nothing if no entity has it or if it is not a Boolean.
    assert_eq!(site.rows("Small"), "");
    assert_eq!(site.rows("Name"), "");
    for filter in ["", " "] {
        assert_eq!(site.rows(filter), "ann bob cid dan");
    }
}

#[test]
fn f23_literals_of_every_type() {
    let site = Site::people();
    site.insert(
        "p",
        "r",
        "\"S\":\"it's\",\"B\":true,\"I\":-7,\"D\":1.5,\"L@odata.type\":\"Edm.Int64\",\"L\":\"9007199254740993\",\
         \"T@odata.type\":\"Edm.DateTime\",\"T\":\"2024-05-01T10:00:00.1234567Z\",\"G@odata.type\":\"Edm.Guid\",\
         \"G\":\"01234567-89ab-cdef-0123-456789abcdef\",\"X@odata.type\":\"Edm.Binary\",\"X\":\"AP8=\"",
    );
    for filter in [
        "S eq 'it''s'",
        "B eq true",
        "B ne false",
        "I eq -7",
        "I lt 0",
        "L eq 9007199254740993L",
        "L eq 9007199254740993l",
        "L gt 9007199254740992L",
        "D eq 1.5",
        "D eq 1.5D",
        "D eq 1.5d",
        "D eq 15E-1",
        "D lt 1.2E+3",
        "D gt 1",
        "D lt 3D",
        "D lt INF",
        "D gt -INF",
        "D ne NaN",
        "T eq datetime'2024-05-01T10:00:00.1234567Z'",
        "T eq datetime'2024-05-01T10:00:00.1234567'",
        "T lt datetime'2024-05-01T10:00:01Z'",
        "G eq guid'01234567-89AB-cdef-0123-456789abcdef'",
        "X eq X'00ff'",
        "X eq X'00FF'",
        "X eq binary'00fF'",
        "X gt X'00'",
        "X ge X''",
    ] {
        assert_eq!(site.rows(filter), "r", "{filter}");
    }
    for filter in ["S eq 'its'", "B eq false", "D eq NaN", "X eq X'00'", "L eq 9007199254740992L"] {
        assert_eq!(site.rows(filter), "", "{filter}");
    }
}

#[test]
fn f23_literals_that_are_malformed() {
    let site = Site::people();
    let text = "Unrecognized 'Edm.Int32' literal '2147483648' at '7' in 'Age eq 2147483648'.";
    site.filter("Age eq 2147483648").send().refused(400, "InvalidInput", text);
    let text = "Unrecognized 'Edm.Int32' literal '-2147483649' at '0' in '-2147483649 eq Age'.";
    site.filter("-2147483649 eq Age").send().refused(400, "InvalidInput", text);
    for (filter, position) in [
        ("X eq X'0'", 5),
        ("X eq X'0g'", 5),
        ("G eq guid'0123'", 5),
        ("T eq datetime'tomorrow'", 5),
        ("S eq 'open", 5),
        ("A eq 5x", 5),
    ] {
        site.syntax(filter, position);
    }
}

#[test]
fn f24_properties_that_are_missing_match_no_comparison() {
    let site = crowd();
    for op in ["eq", "ne", "lt", "le", "gt", "ge"] {
        let rows = site.rows(&format!("Age {op} 35"));
        assert!(!rows.contains("dan"), "{op}: {rows}");
        assert_eq!(site.rows(&format!("Missing {op} 35")), "");
    }
    assert_eq!(site.rows("Age ne 41"), "ann");
    assert_eq!(site.rows("not (Age eq 41)"), "ann dan");
    assert_eq!(site.rows("not (Missing ne 1)"), "ann bob cid dan");
}

#[test]
fn f24_properties_of_another_type_are_less() {
    let site = Site::people();
    site.insert(
        "p",
        "r",
        "\"I\":5,\"L@odata.type\":\"Edm.Int64\",\"L\":\"5\",\"D\":5.0,\"S\":\"5\",\"B\":true,\
         \"G@odata.type\":\"Edm.Guid\",\"G\":\"01234567-89ab-cdef-0123-456789abcdef\"",
    );
    // A literal of a narrower numeric type is converted to the wider type of the property.
    for (property, literal) in
        [("L", "5"), ("D", "5"), ("D", "5L"), ("I", "5"), ("L", "5L"), ("D", "5.0")]
    {
        for (op, is_met) in
            [("eq", true), ("ne", false), ("lt", false), ("le", true), ("gt", false), ("ge", true)]
        {
            let filter = format!("{property} {op} {literal}");
            assert_eq!(site.rows(&filter), if is_met { "r" } else { "" }, "{filter}");
        }
    }
    // In all other pairs the types are not comparable, and the property counts as less than the
    // literal.
    for (property, literal) in [
        ("I", "5L"),
        ("I", "5.0"),
        ("L", "5.0"),
        ("S", "5"),
        ("I", "'5'"),
        ("B", "'true'"),
        ("B", "1"),
        ("G", "'01234567-89ab-cdef-0123-456789abcdef'"),
        ("S", "datetime'2024-01-01T00:00:00Z'"),
        ("RowKey", "5"),
        ("Timestamp", "'2024'"),
    ] {
        for (op, is_met) in
            [("eq", false), ("ne", true), ("lt", true), ("le", true), ("gt", false), ("ge", false)]
        {
            let filter = format!("{property} {op} {literal}");
            assert_eq!(site.rows(&filter), if is_met { "r" } else { "" }, "{filter}");
        }
    }
    // Strings are compared by their UTF-16 units, and case matters.
    assert_eq!(site.rows("S lt '6' and S gt '10'"), "r");
    assert_eq!(site.rows("B gt false and B ge true"), "r");
}

#[test]
fn f25_functions_are_not_implemented() {
    let site = crowd();
    for filter in [
        "startswith(Name,'A')",
        "startswith(Name, 'A') eq true",
        "substringof('A',Name)",
        "length(Name) gt 3",
        "tolower(Name) eq 'ann'",
        "year(Timestamp) eq 2024",
        "Age add 1 eq 42",
        "Age mod 2 eq 0 and Tall",
        "Age eq Size",
        "1 eq 1",
        "'a' lt 'b'",
    ] {
        site.filter(filter).send().refused(501, "NotImplemented", NOT_IMPLEMENTED);
    }
}

#[test]
fn f25_syntax_errors_have_a_position() {
    let site = crowd();
    for (filter, position) in [
        ("Age eq", 6),
        ("Age eq and", 7),
        ("eq 5", 0),
        ("Age eq 5 and", 12),
        ("Age eq 5 Tall", 9),
        ("Age = 5", 4),
        ("(Age eq 5", 9),
        ("Age eq 5)", 8),
        ("Age EQ 5", 4),
        ("Näme eq €", 8),
    ] {
        site.syntax(filter, position);
    }
    let text = "The $filter expression must evaluate to a single boolean value.";
    for filter in ["1", "'text'", "datetime'2024-01-01T00:00:00Z'", "5L"] {
        site.filter(filter).send().refused(400, "InvalidInput", text);
    }
    // A malformed filter is refused even if the table does not exist. Nesting is bounded.
    site.get_with("nobody()", &[("$filter", "Age eq")]).send().fails(400, "InvalidInput");
    let deep = format!("{}Age eq 5{}", "(".repeat(10_000), ")".repeat(10_000));
    site.filter(&deep).send().fails(400, "InvalidInput");
    let many = vec!["Age eq 5"; 1000].join(" or ");
    assert_eq!(site.rows(&many), "");
}

#[test]
fn f25_nulls_are_refused() {
    let site = crowd();
    for filter in ["Age eq null", "Age ne null", "null eq Age"] {
        let text = "One of the request inputs is not valid.";
        site.filter(filter).send().refused(400, "InvalidInput", text);
    }
    for (op, name) in [
        ("lt", "LessThan"),
        ("le", "LessThanOrEqual"),
        ("gt", "GreaterThan"),
        ("ge", "GreaterThanOrEqual"),
    ] {
        let text = format!(
            "The operator '{name}' is not supported for the 'null' literal; only equality checks are supported."
        );
        site.filter(&format!("Age {op} null")).send().refused(400, "InvalidInput", &text);
    }
}

#[test]
fn f27_plans_have_five_classes() {
    let site = crowd();
    let explain = |filter: &str| {
        let got = site.get_with("$rowstone/explain/people", &[("$filter", filter)]).send();
        let got = got.done(200);
        let first = |name| got.values(name)[0].to_owned();
        [first("class"), first("service_class")]
    };
    const POINT: &str = "Point query";
    const ROWS: &str = "Row range scan";
    const PARTITION: &str = "Partition scan";
    const PARTITIONS: &str = "Partition range scan";
    const TABLE: &str = "Full table scan";
    for (filter, own, service) in [
        ("PartitionKey eq 'p' and RowKey eq 'ann'", POINT, POINT),
        ("PartitionKey eq 'p' and RowKey ge 'a' and RowKey lt 'c'", ROWS, ROWS),
        ("PartitionKey eq 'p'", PARTITION, PARTITION),
        ("PartitionKey eq 'p' and Age eq 41", PARTITION, PARTITION),
        ("PartitionKey ge 'A' and PartitionKey lt 'W' and Tall", PARTITIONS, PARTITIONS),
        ("PartitionKey ne 'a'", PARTITIONS, TABLE),
        ("RowKey ge 'C' and RowKey le 'S'", TABLE, TABLE),
        ("Age eq 41", TABLE, TABLE),
        ("", TABLE, TABLE),
    ] {
        assert_eq!(explain(filter), [own, service], "{filter}");
    }
    // For these filters the Azure service scans a partition or the table (second column). The plan
    // here reads less, but the results must be the same.
    for (filter, service, rows) in [
        ("PartitionKey eq 'p' or PartitionKey eq 'q'", TABLE, "ann bob cid dan"),
        ("PartitionKey eq 'p' and (RowKey eq 'ann' or RowKey eq 'cid')", PARTITION, "ann cid"),
        (
            "(PartitionKey eq 'p' and RowKey eq 'ann') or (PartitionKey eq 'q' and RowKey eq 'dan')",
            TABLE,
            "ann dan",
        ),
    ] {
        let [class, service_class] = explain(filter);
        assert_eq!(service_class, service, "{filter}");
        assert_ne!(class, service, "{filter}");
        assert_eq!(site.rows(filter), rows);
    }
    // A request for an explanation must be signed with a key.
    let got = site.get("$rowstone/explain/people").unsigned().send();
    got.fails(403, "AuthenticationFailed");
}
