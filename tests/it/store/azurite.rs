//! The contract over Azurite 3.35, which `tests/clients/run` starts. The environment variable
//! `ROWSTONE_AZURITE` has its connection string.

use rowstone::store::Remote;

use super::{Deviation, run};

const UNCHECKED: &str = "the number of properties is not checked";
const SIZE: &str = "the size of the request is checked, not of the entity, and not by an insert";
const KEYS: &str = "in a group, the text after the first `RowKey=` of an address is the RowKey";
const TIMES: &str = "times are compared by milliseconds";
const LITERALS: &str = "literals are not checked";
const SYNTAX: &str = "what is not implemented is a syntax error";
const CASE: &str = "entities are found by the table's name as it was given";

const DEVIATIONS: &[Deviation] = &[
    ("Double(-0.0) by *", "Double(0.0)", "it stores numbers of JavaScript, and writes -0 as 0"),
    ("253 properties by *", "done", UNCHECKED),
    ("a merge that makes 253 properties", "done", UNCHECKED),
    ("properties after a refused merge", "Some(253)", UNCHECKED),
    ("253 properties that fails as *", "done", UNCHECKED),
    ("entities after 253 properties that fails as *", "Ok(6)", UNCHECKED),
    ("an entity of 1 MiB by replace", "InvalidInput EntityTooLarge", SIZE),
    ("an entity of 1 MiB by merge", "InvalidInput EntityTooLarge", SIZE),
    ("an entity of 1 MiB by group", "InvalidInput EntityTooLarge at 0", SIZE),
    ("an entity of 1 MiB and a byte by insert", "done", SIZE),
    ("an entity of nearly 1 MiB", "InvalidInput EntityTooLarge", SIZE),
    ("a merge of 200 bytes near 1 MiB", "NotFound ResourceNotFound", SIZE),
    ("a merge of 10 bytes near 1 MiB", "NotFound ResourceNotFound", SIZE),
    ("a PartitionKey of 1024 characters*", "*", "a key has at most 512 characters"),
    ("a RowKey of 1024 characters*", "*", "a key has at most 512 characters"),
    ("PartitionKey \"a,RowKey='b'\"", "*", KEYS),
    ("both keys \"a,RowKey='b'\"", "*", KEYS),
    (
        "nearly 4 MiB of binaries",
        "InvalidInput RequestBodyTooLarge",
        "a request has at most 4 MiB, and Base64 is longer than the bytes",
    ),
    ("RowKey eq 'time' and V eq datetime'2024-05-01T10:00:00.1234568Z'", "time", TIMES),
    ("RowKey eq 'time' and V ne datetime'2024-05-01T10:00:00.1234568Z'", "", TIMES),
    ("RowKey eq 'time' and V ge datetime'2024-05-01T10:00:00.1234568Z'", "time", TIMES),
    ("RowKey eq 'time' and V lt datetime'2024-05-01T10:00:00.1234568Z'", "", TIMES),
    (
        "filter 'RowKey eq 'string' and V lt 5'",
        "",
        "a value of another type is not less than a literal",
    ),
    (
        "filter 'RowKey eq 'int32' and V eq 5L'",
        "Io InternalError",
        "a literal of 64 bits is a text, and its comparison with a number fails",
    ),
    ("filter 'N eq 'open'", "", LITERALS),
    ("filter 'N eq 3000000000'", "", LITERALS),
    ("filter 'N eq null'", "r'k", "null is a value that absent properties have"),
    ("filter 'N gt null'", "", "null is a value that absent properties have"),
    ("filter 'V eq guid'no''", "boolean double int32", LITERALS),
    ("filter 'V eq datetime'no''", "", LITERALS),
    ("filter 'V eq X'0''", "", LITERALS),
    (
        "filter 'N eq N'",
        "r'k binary boolean double guid int32 int64 string time without",
        "two properties can be compared",
    ),
    ("filter '1 eq 1'", "InvalidInput InvalidInput", SYNTAX),
    ("filter 'N add 1 eq 2'", "InvalidInput InvalidInput", SYNTAX),
    ("filter 'startswith(RowKey, 'a')'", "InvalidInput InvalidInput", SYNTAX),
    ("a page of *", "done", "`$top` above 1,000 is not refused"),
    ("insert by the table's name in other case", "NotFound TableNotFound", CASE),
    ("get by the table's name in other case", "NotFound TableNotFound", CASE),
    ("query by the table's name in other case", "NotFound TableNotFound", CASE),
    ("the order of tables", "*", "tables are ordered by their names as given"),
];

#[test]
#[ignore = "tests/clients/run starts Azurite"]
fn azurite_is_a_store() {
    let cases = run(&Remote::open("env:ROWSTONE_AZURITE").unwrap(), DEVIATIONS);
    assert!(cases >= 300, "{cases}");
}

#[cfg(feature = "serde")]
#[test]
#[ignore = "tests/clients/run starts Azurite"]
fn todo_runs_over_azurite() {
    super::todo::check("env:ROWSTONE_AZURITE", None);
}
