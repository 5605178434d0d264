//! Writes query explanations and aggregates as JSON objects.
//!
//! Invariants
//! * an object is flat except for the list of intervals, which is truncated;
//! * an integer keeps all its digits; NaN and infinite Doubles are strings, as in entities.
//!
//! `query` formats explanations as plain text, `cli` as tables.

use std::time::Duration;

use super::double;
use crate::json::Object;
use crate::query::{Aggregate, Explain, Number};
use crate::table::SlowQuery;

/// The maximum number of intervals listed in an explanation; the others are only counted.
const INTERVALS_LISTED: usize = 16;

/// Puts the members of `explain`; times are in microseconds.
pub(crate) fn put_explain(object: &mut Object<'_>, explain: &Explain) {
    let intervals = explain.intervals();
    object.text("filter", explain.filter());
    object.text("class", explain.class());
    object.text("rating", explain.rating());
    object.text("service_class", explain.service_class());
    object.raw("intervals", intervals.len() as u64);
    object.texts("interval_list", intervals.iter().take(INTERVALS_LISTED));
    match explain.rest() {
        Some(rest) => object.text("rest", &rest),
        None => object.raw("rest", "null"),
    }
    object.raw("ranges", explain.ranges());
    object.raw("files_read", explain.files_read());
    object.raw("files_skipped", explain.files_skipped());
    object.raw("blocks_read", explain.blocks_read());
    object.raw("blocks_skipped", explain.blocks_skipped());
    object.raw("points", explain.points());
    object.raw("rows_looked_at", explain.rows_looked_at());
    object.raw("rows_returned", explain.rows_returned());
    object.raw("planning_us", micros(explain.planning_time()));
    object.raw("finding_us", micros(explain.finding_time()));
    object.raw("building_us", micros(explain.building_time()));
}

/// Puts the members of a slow query; times are in microseconds.
pub(crate) fn put_slow(object: &mut Object<'_>, query: &SlowQuery) {
    object.text("at", &query.at.to_string());
    object.text("table", &query.table);
    object.text("filter", &query.filter);
    object.text("class", query.class);
    object.raw("took_us", micros(query.took));
    object.raw("rows_looked_at", query.rows_looked_at);
    object.raw("rows_returned", query.rows_returned);
    object.text("explanation", &query.explanation);
}

/// Puts the members of `aggregate`.
pub(crate) fn put_aggregate(object: &mut Object<'_>, aggregate: &Aggregate) {
    for (name, count) in counts(aggregate) {
        object.raw(name, count);
    }
    for (name, value) in numbers(aggregate) {
        match value {
            None => object.raw(name, "null"),
            Some(Number::Double(value)) if !value.is_finite() => {
                object.text(name, &number_text(Number::Double(value)));
            }
            Some(value) => object.raw(name, number_text(value)),
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the counts that an aggregate contains, by name.
pub(crate) fn counts(aggregate: &Aggregate) -> [(&'static str, u64); 6] {
    [
        ("rows", aggregate.rows()),
        ("integers", aggregate.integers()),
        ("doubles", aggregate.doubles()),
        ("nans", aggregate.nans()),
        ("missing", aggregate.missing()),
        ("others", aggregate.others()),
    ]
}

/// Returns the numeric results of an aggregate, by name.
pub(crate) fn numbers(aggregate: &Aggregate) -> [(&'static str, Option<Number>); 4] {
    [
        ("min", aggregate.min()),
        ("max", aggregate.max()),
        ("sum", aggregate.sum()),
        ("avg", aggregate.avg().map(Number::Double)),
    ]
}

/// Formats a number as it is written in an entity's JSON.
pub(crate) fn number_text(number: Number) -> String {
    match number {
        Number::Integer(value) => value.to_string(),
        Number::Double(value) => {
            let mut text = Vec::new();
            double::put(&mut text, value);
            String::from_utf8_lossy(&text).into_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Db;
    use crate::model::{Entity, Value};
    use crate::table::Table;

    fn table(values: &[Value]) -> Table {
        let table = Db::open_in_memory().unwrap().create_table("Tab").unwrap();
        for (i, value) in values.iter().enumerate() {
            table.insert(Entity::new("p", i.to_string()).with("A", value.clone())).unwrap();
        }
        table
    }

    #[track_caller]
    fn aggregates(values: &[Value], expected: &str) {
        let aggregate = table(values).query("").unwrap().aggregate("A").unwrap();
        let mut out = Vec::new();
        crate::json::put_object(&mut out, |object| put_aggregate(object, &aggregate));
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn aggregates_keep_their_digits() {
        aggregates(
            &[],
            r#"{"rows":0,"integers":0,"doubles":0,"nans":0,"missing":0,"others":0,"min":null,"max":null,"sum":null,"avg":null}"#,
        );
        aggregates(
            &[i64::MAX.into(), i64::MAX.into(), "x".into()],
            r#"{"rows":3,"integers":2,"doubles":0,"nans":0,"missing":0,"others":1,"min":9223372036854775807,"max":9223372036854775807,"sum":18446744073709551614,"avg":9.223372036854776E+18}"#,
        );
        aggregates(
            &[1.0.into(), f64::INFINITY.into(), f64::NAN.into()],
            r#"{"rows":3,"integers":0,"doubles":2,"nans":1,"missing":0,"others":0,"min":1.0,"max":"Infinity","sum":"Infinity","avg":"Infinity"}"#,
        );
    }

    #[test]
    fn intervals_are_counted_and_some_of_them_listed() {
        let points: Vec<_> = (10..30).map(|i| format!("RowKey eq '{i}'")).collect();
        let filter = format!("PartitionKey eq 'p' and ({}) and A gt 1", points.join(" or "));
        let explain = table(&[]).query(&filter).unwrap().explain().unwrap();
        let mut out = Vec::new();
        crate::json::put_object(&mut out, |object| put_explain(object, &explain));
        let text = String::from_utf8(out).unwrap();
        let listed: Vec<_> =
            explain.intervals().iter().take(16).map(|text| format!("\"{text}\"")).collect();
        assert!(
            text.contains(&format!(r#""intervals":20,"interval_list":[{}],"#, listed.join(","))),
            "{text}"
        );
        assert!(text.contains(r#""rest":"A gt 1","#), "{text}");
    }
}
