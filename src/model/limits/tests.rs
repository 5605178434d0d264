//! Tests of every limit, with values at the limit and one above it.

use super::*;
use crate::model::{Entity, Shapes, Value, check_row_limits};

const VALUE_TOO_LARGE: &str = "The property value exceeds the maximum allowed size (64KB). If the property \
     value is a string, it is UTF-16 encoded and the maximum number of characters should be 32K or less.";
const ENTITY_TOO_LARGE: &str = "The entity is larger than the maximum allowed size (1MB).";

#[track_caller]
fn check<T: std::fmt::Debug>(result: Result<T>, expected: Result<(), (&str, &str)>) {
    match (result, expected) {
        (Ok(_), Ok(())) => {}
        (Err(error), Err((code, message))) => {
            assert_eq!((error.code(), error.message(), error.status()), (code, message, 400));
        }
        (result, expected) => panic!("{result:?} instead of {expected:?}"),
    }
}

#[track_caller]
fn check_table(name: &str, expected: Result<(), (&str, &str)>) {
    check(check_table_name(name), expected);
}

#[track_caller]
fn check_name(name: &str, expected: Result<(), (&str, &str)>) {
    check(check_property_name(name), expected);
}

/// Checks an entity as every write does.
#[track_caller]
fn check_entity(entity: &Entity, expected: Result<(), (&str, &str)>) {
    check(entity.to_row(&Shapes::new(1 << 20)), expected);
}

#[track_caller]
fn check_one(value: impl Into<Value>, expected: Result<(), (&str, &str)>) {
    check_entity(&Entity::new("p", "r").with("A", value), expected);
}

const BAD_TABLE: Result<(), (&str, &str)> =
    Err(("InvalidResourceName", "The specifed resource name contains invalid characters."));
const TABLE_LENGTH: Result<(), (&str, &str)> = Err((
    "OutOfRangeInput",
    "The specified resource name length is not within the permissible limits.",
));
const BAD_NAME: Result<(), (&str, &str)> =
    Err(("PropertyNameInvalid", "The property name is invalid."));
const LONG_NAME: Result<(), (&str, &str)> =
    Err(("PropertyNameTooLong", "The property name exceeds the maximum allowed length."));
const LARGE_VALUE: Result<(), (&str, &str)> = Err(("PropertyValueTooLarge", VALUE_TOO_LARGE));
const LARGE_ENTITY: Result<(), (&str, &str)> = Err(("EntityTooLarge", ENTITY_TOO_LARGE));
const TOO_MANY: Result<(), (&str, &str)> =
    Err(("TooManyProperties", "The entity contains more properties than allowed."));

#[test]
fn table_names_have_3_to_63_letters_and_digits() {
    check_table("abc", Ok(()));
    check_table("A12", Ok(()));
    check_table(&"a".repeat(63), Ok(()));
    check_table("ab", TABLE_LENGTH);
    check_table("", TABLE_LENGTH);
    check_table(&"a".repeat(64), TABLE_LENGTH);
}

#[test]
fn table_names_start_with_a_letter_and_hold_nothing_else() {
    check_table("1ab", BAD_TABLE);
    check_table("a-b", BAD_TABLE);
    check_table("a_b", BAD_TABLE);
    check_table("äbc", BAD_TABLE);
    check_table("$MetricsHourPrimaryTransactionsTable", BAD_TABLE);
    check_table("$metrics", BAD_TABLE);
}

#[test]
fn tables_is_reserved_in_any_case() {
    check_table("tables", Err(("InvalidInput", "One of the request inputs is not valid.")));
    check_table("TABLES", Err(("InvalidInput", "One of the request inputs is not valid.")));
    check_table("tables1", Ok(()));
}

#[test]
fn keys_have_at_most_1024_units() {
    check_entity(&Entity::new("", ""), Ok(()));
    check_entity(&Entity::new("é".repeat(1024), "r"), Ok(()));
    check_entity(&Entity::new("p", "😀".repeat(512)), Ok(()));
    check_entity(&Entity::new("é".repeat(1025), "r"), LARGE_VALUE);
    check_entity(&Entity::new("p", "a".repeat(1025)), LARGE_VALUE);
    check_entity(&Entity::new("p", "😀".repeat(512) + "a"), LARGE_VALUE);
}

#[test]
fn every_forbidden_character_of_keys_is_refused() {
    for c in (0..=0x2ff).filter_map(char::from_u32) {
        let forbidden = "/\\#?".contains(c) || c < ' ' || ('\u{7f}'..='\u{9f}').contains(&c);
        for key in [format!("a{c}"), format!("é{c}")] {
            let message = format!("The 'RowKey' parameter of value '{key}' is out of range.");
            let expected = if forbidden { Err(("OutOfRangeInput", &*message)) } else { Ok(()) };
            check_entity(&Entity::new("p", key), expected);
        }
    }
    let message = "The 'PartitionKey' parameter of value '#' is out of range.";
    check_entity(&Entity::new("#", "?"), Err(("OutOfRangeInput", message)));
}

#[test]
fn names_valid_in_csharp_and_xml_are_accepted() {
    for name in
        ["a", "_", "_1", "Größe", "名前", "Ελλάς", "e\u{301}", "a\u{203f}b", "odata", "Ⅷ", "n٣"]
    {
        check_name(name, Ok(()));
    }
}

#[test]
fn names_invalid_in_csharp_or_xml_are_refused() {
    for name in [
        "",
        "1a",
        "a-b",
        "a b",
        "a.b",
        "odata.etag",
        "P@odata.type",
        "a\0",
        "a\u{7f}",
        "²",
        "a²",
        "a⁴",
        "½a",
        "\u{301}a",
        "a\u{2028}",
        "a×",
        "😀",
        "a/b",
    ] {
        check_name(name, BAD_NAME);
    }
}

#[test]
fn system_properties_are_no_names() {
    for name in SYSTEM_PROPERTIES {
        check_name(name, BAD_NAME);
    }
    check_name("timestamp", Ok(()));
}

#[test]
fn names_have_at_most_255_units() {
    check_name(&"a".repeat(255), Ok(()));
    check_name(&"ä".repeat(255), Ok(()));
    check_name(&"a".repeat(256), LONG_NAME);
    check_name(&"ä".repeat(256), LONG_NAME);
    check_name(&"-".repeat(256), LONG_NAME);
}

#[test]
fn an_invalid_property_name_is_refused_every_time() {
    let shapes = Shapes::new(1 << 20);
    for _ in 0..2 {
        check(Entity::new("p", "r").with("a-b", 1).to_row(&shapes), BAD_NAME);
    }
    assert_eq!(shapes.len(), 0);
}

#[test]
fn entities_have_at_most_252_properties() {
    let entity = (0..252).fold(Entity::new("p", "r"), |e, i| e.with(format!("P{i}"), i));
    check_entity(&entity, Ok(()));
    check_entity(&entity.with("One", 1), TOO_MANY);
}

#[test]
fn texts_have_at_most_32768_units() {
    check_one("é".repeat(32_768), Ok(()));
    check_one("😀".repeat(16_384), Ok(()));
    check_one("é".repeat(32_769), LARGE_VALUE);
    check_one("😀".repeat(16_384) + "a", LARGE_VALUE);
    check_one("", Ok(()));
}

#[test]
fn binaries_have_at_most_65536_bytes() {
    check_one(vec![0; 65_536], Ok(()));
    check_one(vec![0; 65_537], LARGE_VALUE);
    check_one(vec![], Ok(()));
}

#[test]
fn the_worked_example_of_the_size_formula() {
    let entity = Entity::new("p1", "r1").with("Age", 1).with("Name", "Ann");
    assert_eq!(entity.size(), 56);
}

#[test]
fn the_size_of_every_type() {
    let one = |value: Value| Entity::new("", "").with("A", value).size() - 4 - 8 - 2;
    assert_eq!(one(Value::String("é😀".to_owned())), 2 * 3 + 4);
    assert_eq!(one(Value::Binary(vec![1; 5])), 5 + 4);
    assert_eq!([one(1i32.into()), one(1i64.into()), one(1.0.into())], [4, 8, 8]);
    assert_eq!([one(Value::DateTime(crate::model::DateTime::MIN)), one(true.into())], [8, 1]);
    assert_eq!(one(crate::model::Guid::default().into()), 16);
}

/// Returns an entity of exactly this size: sixteen binaries, the last of which has the necessary
/// length.
fn entity_of(size: usize) -> Entity {
    let mut entity = Entity::new("p", "r");
    for i in 0..15 {
        entity.set(format!("B{i:02}"), vec![7u8; 65_536]);
    }
    let base = entity.with("B15", vec![0u8; 0]);
    let rest = size - base.size();
    base.with("B15", vec![7u8; rest])
}

#[test]
fn entities_have_at_most_one_mebibyte() {
    assert_eq!(entity_of(1 << 20).size(), 1 << 20);
    check_entity(&entity_of(1 << 20), Ok(()));
    check_entity(&entity_of((1 << 20) + 1), LARGE_ENTITY);
}

#[test]
fn text_counts_twice_against_the_size() {
    let wide = |last: usize| {
        let entity = (0..15)
            .fold(Entity::new("p", "r"), |e, i| e.with(format!("S{i:02}"), "a".repeat(32_768)));
        entity.with("S15", "a".repeat(last))
    };
    let units = (entity_room(&wide(0))) / 2;
    check_entity(&wide(units), Ok(()));
    check_entity(&wide(units + 1), LARGE_ENTITY);
}

fn entity_room(entity: &Entity) -> usize {
    ENTITY_SIZE_MAX - entity.size()
}

#[test]
fn an_oversized_value_is_reported_before_an_oversized_entity() {
    check_entity(&entity_of(1 << 20).with("C", vec![0u8; 65_537]), LARGE_VALUE);
}

#[test]
fn stored_entities_and_merged_rows_are_checked_alike() {
    let shapes = Shapes::new(1 << 20);
    let row = entity_of(1 << 20).to_row(&shapes).unwrap();
    let patch = Entity::new("p", "r").with("Z", 1).to_row(&shapes).unwrap();
    let merged = crate::model::merge_rows(&row.as_ref(), &patch.as_ref(), false).unwrap();
    check(check_row_limits(2, || Ok(2), &row.as_ref()), Ok(()));
    check(check_row_limits(3, || Ok(3), &row.as_ref()), LARGE_ENTITY);
    check(check_row_limits(2, || Ok(2), &merged.as_ref()), LARGE_ENTITY);
    let stored = Entity::from_row(b"p", b"r", crate::model::Seq(1), &merged.as_ref()).unwrap();
    check_entity(&stored, LARGE_ENTITY);
}

#[test]
fn merging_may_not_exceed_252_properties() {
    let shapes = Shapes::new(1 << 20);
    let full = (0..252).fold(Entity::new("p", "r"), |e, i| e.with(format!("P{i}"), i));
    let full = full.to_row(&shapes).unwrap();
    let merge = |patch: Entity| {
        let patch = patch.to_row(&shapes).unwrap();
        crate::model::merge_rows(&full.as_ref(), &patch.as_ref(), false).unwrap()
    };
    let same = merge(Entity::new("p", "r").with("P3", "text"));
    check(check_row_limits(2, || Ok(2), &same.as_ref()), Ok(()));
    let more = merge(Entity::new("p", "r").with("Q", 1));
    check(check_row_limits(2, || Ok(2), &more.as_ref()), TOO_MANY);
}
