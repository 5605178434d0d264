//! Tests of docs/SEMANTICS.md §9.2: one for each rule, named after it.

use super::*;
use crate::model::{DateTime, EdmType, Entity, Guid, Seq};
use crate::query::filter::{Filter, prop};

const OPS: [CompareOp; 6] =
    [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge];
const LESS: [bool; 6] = [false, true, true, true, false, false];
const EQUAL: [bool; 6] = [true, false, false, true, false, true];
const GREATER: [bool; 6] = [false, true, false, false, true, true];
/// The results of the operators for NaN, by IEEE 754.
const UNORDERED: [bool; 6] = [false, true, false, false, false, false];

/// Checks `property op literal` for each operator, in the order of `OPS`.
#[track_caller]
fn check(property: impl Into<Value>, literal: impl Into<Value>, expected: [bool; 6]) {
    let (property, literal) = (property.into(), literal.into());
    let found = OPS.map(|op| compare(Some(property.as_ref()), op, &literal));
    assert_eq!(found, expected, "{property:?} and {literal:?}, for eq ne lt le gt ge");
}

/// Checks that each value is less than the next.
#[track_caller]
fn ascending<T: Into<Value> + Clone>(values: &[T]) {
    for (i, a) in values.iter().enumerate() {
        for (j, b) in values.iter().enumerate() {
            let expected = match i.cmp(&j) {
                Ordering::Less => LESS,
                Ordering::Equal => EQUAL,
                Ordering::Greater => GREATER,
            };
            check(a.clone(), b.clone(), expected);
        }
    }
}

fn time(text: &str) -> DateTime {
    text.parse().unwrap()
}

fn guid(text: &str) -> Guid {
    text.parse().unwrap()
}

/// Returns a smaller, a middle and a greater value of a type. The values of all numeric types are
/// equal, so that types can be compared with each other.
fn three(edm: EdmType) -> [Value; 3] {
    match edm {
        EdmType::String => ["", "5", "x"].map(Value::from),
        EdmType::Binary => [&b""[..], b"5", b"x"].map(Value::from),
        EdmType::Boolean => [false, true, true].map(Value::from),
        EdmType::Int32 => [-1, 5, 7].map(Value::from),
        EdmType::Int64 => [-1_i64, 5, 7].map(Value::from),
        EdmType::Double => [-1.0, 5.0, 7.0].map(Value::from),
        EdmType::DateTime => {
            [0, 5, 7].map(|ticks| Value::DateTime(DateTime::from_ticks(ticks).unwrap()))
        }
        EdmType::Guid => [0, 5, 7].map(|byte| Value::Guid(Guid::from_bytes([byte; 16]))),
    }
}

/// Rows: the type of the property. Columns: the type of the literal. `=`: the values are compared.
/// `<`: the property is less than the literal.
const FITS: [(EdmType, &str); 8] = [
    //                  String Binary Boolean Int32 Int64 Double DateTime Guid
    (EdmType::String, "=<<<<<<<"),
    (EdmType::Binary, "<=<<<<<<"),
    (EdmType::Boolean, "<<=<<<<<"),
    (EdmType::Int32, "<<<=<<<<"),
    (EdmType::Int64, "<<<==<<<"),
    (EdmType::Double, "<<<===<<"),
    (EdmType::DateTime, "<<<<<<=<"),
    (EdmType::Guid, "<<<<<<<="),
];

#[test]
fn every_pair_of_types_under_every_operator() {
    for (property_type, fits) in FITS {
        for (literal_type, fit) in EdmType::ALL.into_iter().zip(fits.chars()) {
            for (i, property) in three(property_type).into_iter().enumerate() {
                for (j, literal) in three(literal_type).into_iter().enumerate() {
                    // There are only two Booleans, so the middle and the greater value are equal.
                    let rank =
                        |n: usize| if property_type == EdmType::Boolean { n.min(1) } else { n };
                    let expected = match (fit, rank(i).cmp(&rank(j))) {
                        ('<', _) | (_, Ordering::Less) => LESS,
                        (_, Ordering::Equal) => EQUAL,
                        (_, Ordering::Greater) => GREATER,
                    };
                    check(property.clone(), literal, expected);
                }
            }
        }
    }
}

#[test]
fn an_absent_property_meets_no_comparison_not_even_ne() {
    for op in OPS {
        for edm in EdmType::ALL {
            assert!(three(edm).iter().all(|literal| !compare(None, op, literal)));
        }
    }
    let entity = Entity::new("p", "r");
    assert!(!prop("A").ne(1).matches(&entity));
    assert!((!prop("A").eq(1)).matches(&entity));
    assert!(!prop("A").eq(true).matches(&entity));
}

#[test]
fn a_property_of_another_type_counts_as_less_than_the_literal() {
    check("zzz", 1, LESS);
    check(i32::MAX, "", LESS);
    check(true, 0, LESS);
    check(1, true, LESS);
    check("true", true, LESS);
    check("2024-01-01T00:00:00Z", time("2024-01-01T00:00:00Z"), LESS);
    check(b"a", "a", LESS);
    check(f64::INFINITY, "a", LESS);
    check(f64::NAN, "a", LESS);
    check("a", f64::NAN, LESS);
}

#[test]
fn the_property_is_widened_to_compare_with_a_wider_literal_of_the_same_kind() {
    check(5_i64, 5, EQUAL);
    check(i64::MAX, i32::MAX, GREATER);
    check(i64::MIN, i32::MIN, LESS);
    check(5.0, 5, EQUAL);
    check(5.5, 5, GREATER);
    check(-0.0, 0, EQUAL);
    check(4.9, 5_i64, LESS);
    check(5.0, 5_i64, EQUAL);
    check(f64::INFINITY, i64::MAX, GREATER);
    check(f64::NEG_INFINITY, i32::MIN, LESS);
}

/// The literal is rounded to a Double, which may equal other integers, too.
#[test]
fn an_int64_literal_compared_with_a_double_becomes_a_double() {
    check(9_007_199_254_740_992.0, 9_007_199_254_740_993_i64, EQUAL);
    check(9_223_372_036_854_775_808.0, i64::MAX, EQUAL);
    check(9_007_199_254_740_994.0, 9_007_199_254_740_993_i64, GREATER);
}

#[test]
fn a_narrower_property_mismatches_even_if_numerically_equal() {
    check(5, 5_i64, LESS);
    check(5, 5.0, LESS);
    check(5_i64, 5.0, LESS);
    check(6, 5_i64, LESS);
    check(6, 5.0, LESS);
    check(6_i64, 5.0, LESS);
    let entity = Entity::new("p", "r").with("Age", 5);
    let holds = |text: &str| text.parse::<Filter>().unwrap().matches(&entity);
    assert!(holds("Age eq 5") && !holds("Age eq 5L") && !holds("Age eq 5.0"));
    assert!(holds("Age ne 5L") && holds("5L gt Age"));
}

#[test]
fn strings_are_ordinal_and_case_sensitive_in_utf16_units() {
    ascending(&[
        "",
        "\0",
        "10",
        "111",
        "2",
        "9",
        "Z",
        "Za",
        "a",
        "ab",
        "é",
        "\u{1f600}",
        "\u{ff5e}",
    ]);
    check("a", "A", GREATER);
    check("straße", "strasse", GREATER);
    check("e\u{301}", "é", LESS);
}

#[test]
fn false_is_less_than_true() {
    ascending(&[false, true]);
}

#[test]
fn numbers_compare_by_value() {
    ascending(&[i32::MIN, -1, 0, 1, i32::MAX]);
    ascending(&[i64::MIN, -1, 0, 1, i64::MAX]);
    ascending(&[f64::NEG_INFINITY, f64::MIN, -1.0, -5e-324, 0.0, 5e-324, f64::MAX, f64::INFINITY]);
    check(-0.0, 0.0, EQUAL);
    check(0.0, -0.0, EQUAL);
}

#[test]
fn times_compare_by_instant() {
    ascending(&[
        DateTime::MIN,
        time("2024-01-01T00:00:00Z"),
        time("2024-01-01T00:00:00.0000001Z"),
        DateTime::MAX,
    ]);
    check(time("2024-01-01T12:00:00+02:00"), time("2024-01-01T10:00:00Z"), EQUAL);
}

#[test]
fn binaries_compare_byte_by_byte_and_a_prefix_is_smaller() {
    ascending(&[&b""[..], b"\0", b"\0\0", b"\x01", b"\x7f\xff", b"\x80", b"\xff", b"\xff\0"]);
}

#[test]
fn guids_compare_by_their_digits_as_printed() {
    ascending(&[
        guid("00000000-0000-0000-0000-000000000000"),
        guid("00000000-0000-0000-0000-000000000100"),
        guid("00000000-0000-0000-0100-000000000000"),
        guid("00000001-ffff-ffff-ffff-ffffffffffff"),
        guid("00000100-0000-0000-0000-000000000000"),
        guid("ffffffff-0000-0000-0000-000000000000"),
    ]);
}

#[test]
fn nan_is_only_ever_unequal() {
    check(f64::NAN, f64::NAN, UNORDERED);
    check(f64::NAN, 1.0, UNORDERED);
    check(1.0, f64::NAN, UNORDERED);
    check(f64::NAN, 1, UNORDERED);
    check(f64::NAN, 1_i64, UNORDERED);
    check(f64::INFINITY, f64::NAN, UNORDERED);
    // The types do not match, so the values are not compared.
    check(1, f64::NAN, LESS);
    check(1_i64, f64::NAN, LESS);
}

#[test]
fn keys_are_texts_and_timestamp_is_a_time() {
    let entity = Entity::new("p", "r").at(Seq(time("2024-01-01T00:00:00Z").ticks()));
    let holds = |text: &str| text.parse::<Filter>().unwrap().matches(&entity);
    assert!(holds("PartitionKey eq 'p' and RowKey gt 'q' and RowKey lt 's'"));
    assert!(holds("Timestamp eq datetime'2024-01-01T00:00:00Z'"));
    assert!(holds("Timestamp lt datetime'2024-01-01T00:00:00.0000001Z'"));
    // A key is less than a literal of another type.
    assert!(holds("PartitionKey lt 5 and PartitionKey ne true and not (RowKey ge 5L)"));
    assert!(holds("Timestamp lt '' and Timestamp ne 5"));
    assert!(!holds("PartitionKey"));
    // Literals with characters that no key may contain are compared like other literals.
    assert!(holds("PartitionKey gt 'o\0/' and PartitionKey lt 'p\0'"));
    // Names are case-sensitive, and no property has this name.
    assert!(!holds("partitionkey eq 'p'"));
    let new = Entity::new("p", "r");
    assert!(!prop("Timestamp").ge(DateTime::MIN).matches(&new));
}

/// A comparison with an absent property is false; `not`, `and` and `or` have their usual meaning.
#[test]
fn not_and_or_work_on_plain_booleans() {
    let entity = Entity::new("p", "r").with("T", true).with("F", false);
    let holds = |text: &str| text.parse::<Filter>().unwrap().matches(&entity);
    for (a, x) in [("T", true), ("F", false), ("Absent", false), ("Absent ne 1", false)] {
        assert_eq!(holds(a), x);
        assert_eq!(holds(&format!("not ({a})")), !x);
        for (b, y) in [("T", true), ("F", false), ("Absent", false), ("not Absent", true)] {
            assert_eq!(holds(&format!("{a} and {b}")), x && y, "{a} and {b}");
            assert_eq!(holds(&format!("{a} or {b}")), x || y, "{a} or {b}");
            assert_eq!(holds(&format!("not ({a} and {b})")), !(x && y));
            assert_eq!(holds(&format!("not ({a} or {b})")), !(x || y));
        }
    }
}

#[test]
fn flipping_exchanges_the_sides() {
    for op in OPS {
        for ordering in [Ordering::Less, Ordering::Equal, Ordering::Greater] {
            assert_eq!(op.admits(ordering), op.flipped().admits(ordering.reverse()));
        }
    }
}
