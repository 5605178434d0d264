//! Tests of docs/SEMANTICS.md §9.1: one for each rule, named after it.

use super::*;
use crate::query::filter::{Filter, prop};

#[track_caller]
fn check(text: &str, expected: Filter) {
    let parsed: Filter = text.parse().unwrap();
    assert_eq!(parsed, expected, "{text}");
    let printed = parsed.to_string();
    assert_eq!(printed.parse::<Filter>().unwrap(), expected, "{text}: {printed}");
}

/// Asserts that `text` is refused with `InvalidInput` and this message.
#[track_caller]
fn invalid(text: &str, expected: &str) {
    let error = text.parse::<Filter>().unwrap_err();
    assert_eq!((error.code(), error.status()), ("InvalidInput", 400), "{text}: {error}");
    assert_eq!(error.message(), expected, "{text}");
}

#[track_caller]
fn broken(text: &str, position: usize) {
    invalid(text, &format!("Syntax error at position {position} in '{text}'."));
    assert_eq!(parse_placed(text).unwrap_err().1, Some(position), "{text}");
}

#[track_caller]
fn unsupported(text: &str) {
    let error = text.parse::<Filter>().unwrap_err();
    assert_eq!((error.code(), error.status()), ("NotImplemented", 501), "{text}: {error}");
    let message = "The requested operation is not implemented on the specified resource.";
    assert_eq!(error.message(), message, "{text}");
    assert_eq!(parse_placed(text).unwrap_err().1, None, "{text}");
}

fn a() -> Filter {
    prop("A").eq(1)
}

fn b() -> Filter {
    prop("B").eq(2)
}

fn c() -> Filter {
    prop("C").eq(3)
}

#[test]
fn the_empty_filter_matches_every_entity() {
    for text in ["", "  ", "\t\r\n"] {
        check(text, Filter::all());
    }
}

#[test]
fn precedence_is_comparison_not_and_or() {
    let (ta, tb, tc) = ("A eq 1", "B eq 2", "C eq 3");
    check(&format!("{ta} or {tb} and {tc}"), a().or(b().and(c())));
    check(&format!("{ta} and {tb} or {tc}"), a().and(b()).or(c()));
    check(&format!("({ta} or {tb}) and {tc}"), a().or(b()).and(c()));
    check(&format!("not {ta} and {tb}"), (!a()).and(b()));
    check(&format!("not ({ta} and {tb})"), !a().and(b()));
    check(&format!("not {ta} or {tb}"), (!a()).or(b()));
    check(&format!("{ta} and not {tb}"), a().and(!b()));
    check(&format!("not not {ta}"), !!a());
    check(&format!("{ta} and ({tb} and {tc})"), a().and(b()).and(c()));
    check(&format!("({ta} or {tb}) or {tc}"), a().or(b()).or(c()));
    check(&format!("(({ta}))"), a());
}

#[test]
fn white_space_is_optional_next_to_parentheses() {
    check("(A eq 1)and(B eq 2)", a().and(b()));
    check("not(A eq 1)or(not(B eq 2))", (!a()).or(!b()));
    check(" ( A \t eq\r\n1 ) ", a());
    check("(A)eq(1)", a());
    broken("A eq1", 2);
    broken("Aeq 1", 4);
    broken("A eq 1and B eq 2", 5);
    broken("A eq 1 andB eq 2", 7);
    broken("notA eq 1 and", 13);
    check("notA eq 1", prop("notA").eq(1));
}

#[test]
fn a_literal_in_front_flips_the_operator() {
    check("5 lt Age", prop("Age").gt(5));
    check("5 le Age", prop("Age").ge(5));
    check("5 gt Age", prop("Age").lt(5));
    check("5 ge Age", prop("Age").le(5));
    check("5 eq Age", prop("Age").eq(5));
    check("5 ne Age", prop("Age").ne(5));
    check("'p' eq PartitionKey", Filter::partition("p"));
}

#[test]
fn a_bare_property_is_compared_with_true() {
    check("Active", prop("Active").eq(true));
    check("(Active)", prop("Active").eq(true));
    check("not Active", !prop("Active").eq(true));
    check("Active and A eq 1", prop("Active").eq(true).and(a()));
    check("A eq 1 or not Active", a().or(!prop("Active").eq(true)));
}

#[test]
fn system_properties_and_other_names_are_parsed() {
    check("PartitionKey eq 'p' and RowKey eq 'r'", Filter::row("p", "r"));
    check("RowKey eq 'r'", prop("RowKey").eq("r"));
    let time: DateTime = "2024-01-31T00:00:00Z".parse().unwrap();
    check("Timestamp ge datetime'2024-01-31T00:00:00Z'", prop("Timestamp").ge(time));
    check("partitionkey eq 'p'", prop("partitionkey").eq("p"));
    check("_9 eq 1", prop("_9").eq(1));
    check("Größe eq 1", prop("Größe").eq(1));
    check("add eq 1", prop("add").eq(1));
    check("datetime eq 1 and X eq 2", prop("datetime").eq(1).and(prop("X").eq(2)));
}

#[test]
fn literals_of_every_type() {
    check("A eq 'it''s '''", prop("A").eq("it's '"));
    check("A eq ''", prop("A").eq(""));
    check("A eq ' and RowKey eq '", prop("A").eq(" and RowKey eq "));
    check("A eq 'é😀\\n\0\n'", prop("A").eq("é😀\\n\0\n"));
    check("A eq 0 or A eq -7 or A eq 007", Filter::any([0, -7, 7].map(|n| prop("A").eq(n))));
    check("A eq 2147483647 or A eq -2147483648", prop("A").eq(i32::MAX).or(prop("A").eq(i32::MIN)));
    check("A eq 5L or A eq -5l", prop("A").eq(5_i64).or(prop("A").eq(-5_i64)));
    check("A eq 9223372036854775807L", prop("A").eq(i64::MAX));
    check("A eq -9223372036854775808L", prop("A").eq(i64::MIN));
    check("A eq 3000000000L", prop("A").eq(3_000_000_000_i64));
    for (text, value) in [
        ("1.5", 1.5),
        ("3.0", 3.0),
        ("1.2E+3", 1200.0),
        ("1e3", 1000.0),
        ("-1.5e-3", -0.0015),
        ("3D", 3.0),
        ("3d", 3.0),
        ("1.5D", 1.5),
        ("1e5d", 1e5),
        ("-0.0", -0.0),
        ("5e-324", 5e-324),
        ("NaN", f64::NAN),
        ("INF", f64::INFINITY),
        ("-INF", f64::NEG_INFINITY),
    ] {
        check(&format!("A lt {text}"), prop("A").lt(value));
        check(&format!("{text} gt A"), prop("A").lt(value));
    }
    check("A eq true or A eq false", prop("A").eq(true).or(prop("A").eq(false)));
    let guid: Guid = "01234567-89ab-cdef-0123-456789abcdef".parse().unwrap();
    check("A eq guid'01234567-89AB-cdef-0123-456789abCDEF'", prop("A").eq(guid));
    check("A eq X'00fF' or A eq binary'0a'", prop("A").eq(&[0, 255]).or(prop("A").eq(&[10])));
    check("A eq X''", prop("A").eq(&[]));
    for text in ["2024-05-01T10:00:00.1234567Z", "2024-05-01T10:00:00", "2024-05-01T12:00+02:00"] {
        let time: DateTime = text.parse().unwrap();
        check(&format!("A eq datetime'{text}'"), prop("A").eq(time));
    }
}

#[test]
fn integers_need_their_suffix() {
    for (text, literal, position) in [
        ("Age eq 2147483648", "2147483648", 7),
        ("-2147483649 lt Age", "-2147483649", 0),
        ("é eq 'é' or A eq 99999999999", "99999999999", 17),
    ] {
        let expected =
            format!("Unrecognized 'Edm.Int32' literal '{literal}' at '{position}' in '{text}'.");
        invalid(text, &expected);
    }
    let text = "A eq 9223372036854775808L";
    let expected = format!("Unrecognized 'Edm.Int64' literal '{}' at '5' in '{text}'.", &text[5..]);
    invalid(text, &expected);
    for literal in ["1e999", "-1.0e400D"] {
        let text = format!("A eq {literal}");
        invalid(
            &text,
            &format!("Unrecognized 'Edm.Double' literal '{literal}' at '5' in '{text}'."),
        );
    }
}

#[test]
fn comparisons_with_null_are_refused() {
    for text in ["A eq null", "A ne null", "null eq A", "null ne null"] {
        invalid(text, "One of the request inputs is not valid.");
    }
    for (op, name) in [
        ("lt", "LessThan"),
        ("le", "LessThanOrEqual"),
        ("gt", "GreaterThan"),
        ("ge", "GreaterThanOrEqual"),
    ] {
        let expected = format!(
            "The operator '{name}' is not supported for the 'null' literal; only equality checks are supported."
        );
        invalid(&format!("A {op} null"), &expected);
        invalid(&format!("null {op} A"), &expected);
        invalid(&format!("not (B eq 1 and (A {op} null))"), &expected);
    }
}

#[test]
fn the_whole_filter_must_be_boolean() {
    for text in ["1", "'p'", "(5L)", "null", "A eq 1 and 5", "not 'a'", "NaN or A"] {
        invalid(text, "The $filter expression must evaluate to a single boolean value.");
    }
}

#[test]
fn expressions_that_the_service_does_not_implement() {
    for text in [
        "A eq B",
        "PartitionKey eq RowKey",
        "1 eq 1",
        "'a' lt 'b'",
        "true",
        "A eq 1 or false",
        "true eq false",
        "NaN eq INF",
        "A add 1 eq 5",
        "5 eq A sub 1",
        "A mul 2 div 3 mod 4 gt 1.5",
        "(A add 1) eq 5",
        "(A eq 1) eq true",
        "startswith(RowKey, 'a')",
        "startswith(RowKey,'a') eq true",
        "not substringof('a', A)",
        "year(Timestamp) eq 2024",
        "length(tolower(A)) gt 1 and B eq 1",
        "now() gt Timestamp",
        "geo.distance(A, B) lt 1.5",
        "A eq B and C eq null",
    ] {
        unsupported(text);
    }
}

#[test]
fn a_syntax_error_has_a_position() {
    broken("A eq", 4);
    broken("A eq ", 5);
    broken("A eq 'p", 5);
    broken("A eq datetime'2024", 5);
    broken("A eq 1 and", 10);
    broken("(A eq 1", 7);
    broken("A eq 1)", 6);
    broken("A = 1", 2);
    broken("A eq 1 B eq 2", 7);
    broken("A eq 1 eq true", 7);
    broken("eq 'p'", 0);
    broken("and", 0);
    broken("A eq not", 5);
    broken("()", 1);
    broken("A eq 1x", 5);
    broken("A eq 1.", 5);
    broken("A eq .5", 5);
    broken("A eq +5", 5);
    broken("A eq 1.5L", 5);
    broken("A eq 1e", 5);
    broken("A eq 5f", 5);
    broken("A eq -", 5);
    broken("A eq -B", 5);
    broken("A eq -INFx", 5);
    broken("A eq -INFD", 5);
    broken("A eq --5", 5);
    broken("A eq foo'bar'", 8);
    broken("A eq x'00'", 6);
    broken("A eq datetime '2024-01-01T00:00:00Z'", 14);
    broken("A eq datetime'yesterday'", 5);
    broken("A eq datetime'1600-12-31T00:00:00Z'", 5);
    broken("A eq guid'0'", 5);
    broken("A eq X'0'", 5);
    broken("A eq binary'0g'", 5);
    broken("A eq X'+1'", 5);
    broken("f(A", 3);
    broken("f(A,)", 4);
    broken("f(,A)", 2);
    broken("A.B eq 1", 0);
    broken("A/B eq 1", 1);
    broken("A eq \"p\"", 5);
    broken("A eq 'p'x", 8);
    broken("{A} eq 1", 0);
    broken("A in ('x')", 2);
    broken("A eq B )", 7);
    broken("é eq '😀' )", 9);
}

#[test]
fn operators_and_words_are_in_lower_case() {
    broken("A EQ 1", 2);
    broken("A eq 1 AND B eq 2", 7);
    broken("A eq 1 Or B eq 2", 7);
    broken("NOT A", 4);
    broken("A eq TRUE", 5);
    broken("False eq A", 0);
    broken("A eq Null", 5);
    check("True eq 1", prop("True").eq(1));
}

#[test]
fn a_long_text_is_abbreviated_in_errors() {
    let long = "é".repeat(5_000);
    let message = |text: &str| text.parse::<Filter>().unwrap_err().message().to_owned();
    let front = message(&format!("= 1 or A eq '{long}'"));
    assert!(front.starts_with("Syntax error at position 0 in '= 1 or A eq 'éé"), "{front}");
    assert!(front.ends_with("éé…'."), "{front}");
    let back = message(&format!("A eq '{long}' or"));
    assert!(back.starts_with("Syntax error at position 5010 in '…éé"), "{back}");
    assert!(back.ends_with("éé' or'."), "{back}");
    assert!(front.chars().count() < 1_100 && back.chars().count() < 1_100);
    let digits = message(&format!("A eq {}", "9".repeat(5_000)));
    assert!(digits.starts_with("Unrecognized 'Edm.Int32' literal '999"), "{digits}");
    assert!(digits.len() < 2_200);
}

/// Flat filters of 64 KiB are parsed, and deeply nested ones are refused with a position. Neither
/// kind overflows a small stack.
#[test]
fn long_and_deep_texts_are_parsed_or_refused() {
    let run = || {
        let flat = |piece: &str, between: &str| {
            vec![piece; (64 << 10) / (piece.len() + between.len())].join(between)
        };
        for text in [
            flat("A eq 1", " and "),
            flat("A eq 1", " or "),
            flat("A", " or "),
            flat("not (A eq 'x' and B)", " or "),
            flat("(A or B)", " and "),
            format!("A eq '{}'", "''".repeat(32 << 10)),
            format!("A eq X'{}'", "0f".repeat(32 << 10)),
            format!("{} eq 1", "A".repeat(64 << 10)),
            format!("{}A", " ".repeat(64 << 10)),
        ] {
            let parsed: Filter = text.parse().unwrap();
            assert_eq!(parsed.to_string().parse::<Filter>().unwrap(), parsed);
        }
        assert_eq!(flat("A", " add ").parse::<Filter>().unwrap_err().code(), "NotImplemented");
        for depth in [128, 10_000, 1_000_000] {
            for open in ["(", "not ", "not (", "f(", "f(A,", "A eq (", "(A and (A or "] {
                let mut text = open.repeat(depth);
                text.truncate(TEXT_BYTES_MAX);
                let error = text.parse::<Filter>().unwrap_err();
                assert_eq!(error.code(), "InvalidInput");
                assert!(error.message().contains(" at position "), "{}", error.message());
            }
        }
        for depth in [127, 128] {
            let text = format!("{}A{}", "(".repeat(depth), ")".repeat(depth));
            assert_eq!(text.parse::<Filter>().unwrap(), prop("A").eq(true));
        }
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap().join().unwrap();
}

#[test]
fn nesting_is_refused_where_it_gets_too_deep() {
    let too_deep = |text: &str, position: usize| {
        let expected = format!("Nesting deeper than 128 at position {position} in '{text}'.");
        invalid(text, &expected);
    };
    too_deep(&format!("{}A{}", "(".repeat(129), ")".repeat(129)), 128);
    let text = format!("{}A", "not ".repeat(128));
    too_deep(&text, 4 * 127);
    assert!("not ".repeat(127).parse::<Filter>().is_err());
    check(&format!("{}A", "not ".repeat(127)), (0..127).fold(prop("A").eq(true), |f, _| !f));
    // Each pair makes a `not` and an `or`, so the tree is twice as deep as the parentheses.
    let pairs = |n: usize| format!("{}A{}", "not (B or ".repeat(n), ")".repeat(n));
    assert!(pairs(63).parse::<Filter>().is_ok());
    too_deep(&pairs(64), 0);
}

#[test]
fn text_of_more_than_a_mebibyte_is_refused() {
    let text = format!("A eq '{}'", "é".repeat((1 << 19) - 4));
    assert!(text.len() <= TEXT_BYTES_MAX && text.len() > TEXT_BYTES_MAX - 4);
    text.parse::<Filter>().unwrap();
    let error = format!("{text} or A eq 1").parse::<Filter>().unwrap_err();
    assert_eq!(error.code(), "InvalidInput");
    assert!(error.message().starts_with("Filter longer than 1 MiB at position 5242"), "{error}");
    let nested = "(".repeat(TEXT_BYTES_MAX + 1).parse::<Filter>().unwrap_err();
    assert!(nested.message().starts_with("Filter longer than 1 MiB at position 1048576 "));
}

#[test]
fn every_prefix_of_a_filter_is_parsed_or_refused() {
    let text =
        "not (A eq 'it''s' or f(B, 1L)) and (C lt datetime'2024-01-01T00:00:00Z') or -1.5e3D gt É";
    for (end, _) in text.char_indices() {
        drop(text[..end].parse::<Filter>());
        drop(text[end..].parse::<Filter>());
    }
}

#[test]
fn every_text_type_converts_to_a_filter() {
    fn take<F: TryInto<Filter, Error: Into<Error>>>(filter: F) -> Result<Filter> {
        filter.try_into().map_err(Into::into)
    }
    let text = String::from("A eq 1");
    for filter in [take("A eq 1"), take(&text), take(text.clone()), take(a())] {
        assert_eq!(filter.unwrap(), a());
    }
    assert_eq!(take("A eq").unwrap_err().code(), "InvalidInput");
}
