//! Finds the reasons why a filter or a selection cannot match: a property that no entity of the
//! table has, and a literal that no entity has a value of a comparable type for.
//!
//! Invariant: each search ends at the first entity that has the property, or after [`BUDGET`]; then
//! nothing is claimed.

use std::collections::BTreeSet;
use std::time::Duration;

use super::failure::eprint_line;
use crate::error::Result;
use crate::model::{DateTime, Entity, Guid, Value};
use crate::query::tree::{Node, Property};
use crate::query::{Filter, KeyRange, prop};
use crate::table::Table;

/// The time for one search.
const BUDGET: Duration = Duration::from_millis(500);
/// The maximum number of searches for one command.
const SEARCHES_MAX: usize = 16;
/// The number of entities whose properties are candidates for the nearest name.
const NAMED_ROWS: usize = 10_000;

/// The result of a search for one entity.
enum Found {
    Yes(Box<Entity>),
    No,
    Unknown,
}

/// Prints a note on standard error for each comparison of `filter` and each name of `select` that
/// cannot match. `matched` says whether any entity matched the filter.
pub(super) fn note(table: &Table, filter: &Filter, select: Option<&[String]>, matched: bool) {
    let notes = notes(table, filter, select, matched);
    notes.iter().for_each(|note| eprint_line(&format!("note: {note}")));
}

/// Returns the texts that [`note`] prints. There are none if an entity that the command did not
/// need cannot be read.
pub(super) fn notes(
    table: &Table,
    filter: &Filter,
    select: Option<&[String]>,
    matched: bool,
) -> Vec<String> {
    search(table, filter, select, matched).unwrap_or_default()
}

fn search(
    table: &Table,
    filter: &Filter,
    select: Option<&[String]>,
    matched: bool,
) -> Result<Vec<String>> {
    let mut terms = Vec::new();
    // If an entity matched a filter without `or` and `not`, it matched every comparison.
    if !matched || !is_conjunction(filter.node()) {
        collect(filter.node(), &mut terms);
    }
    for name in select.into_iter().flatten().filter(|name| *name != "*") {
        terms.push((name.clone(), None));
    }
    terms.dedup_by(|(a, x), (b, y)| a == b && x.as_ref().map(kind) == y.as_ref().map(kind));
    let mut notes = Vec::new();
    for (name, literal) in terms.into_iter().take(SEARCHES_MAX) {
        notes.extend(note_of(table, &name, literal)?.filter(|note| !notes.contains(note)));
    }
    Ok(notes)
}

fn is_conjunction(node: &Node) -> bool {
    match node {
        Node::And(nodes) => nodes.iter().all(is_conjunction),
        Node::Or(_) | Node::Not(_) => false,
        Node::All | Node::Compare(_) | Node::TooDeep => true,
    }
}

fn collect(node: &Node, terms: &mut Vec<(String, Option<Value>)>) {
    match node {
        Node::All | Node::TooDeep => (),
        Node::Compare(term) => {
            terms.push((name_of(&term.property).to_owned(), Some(term.value.clone())));
        }
        Node::And(nodes) | Node::Or(nodes) => nodes.iter().for_each(|node| collect(node, terms)),
        Node::Not(node) => collect(node, terms),
    }
}

/// Returns the note on a comparison with `literal`, or on a selected property.
fn note_of(table: &Table, name: &str, literal: Option<Value>) -> Result<Option<String>> {
    let of_type = literal.as_ref().map(|literal| least(name, literal));
    if let Some(filter) = of_type
        && !matches!(find(table, filter)?, Found::No)
    {
        return Ok(None);
    }
    let any = prop(name).ne(false).or(prop(name).eq(false));
    Ok(match (find(table, any)?, literal) {
        (Found::Unknown, _) | (Found::Yes(_), None) => None,
        (Found::Yes(entity), Some(literal)) => {
            let (has, wants) = (type_of(&entity, name), kind(&literal));
            Some(format!("no entity has a {name} that compares with {wants}: it is {has}"))
        }
        (Found::No, _) => missing(table, name)?,
    })
}

fn name_of(property: &Property) -> &str {
    match property {
        Property::PartitionKey => "PartitionKey",
        Property::RowKey => "RowKey",
        Property::Timestamp => "Timestamp",
        Property::Named(name) => name,
    }
}

fn kind(value: &Value) -> &'static str {
    value.as_ref().edm_type().name()
}

fn type_of(entity: &Entity, name: &str) -> &'static str {
    match name {
        "Timestamp" => "Edm.DateTime",
        _ => entity.value(name).map_or("Edm.String", |value| value.edm_type().name()),
    }
}

/// Searches one entity that matches `filter`.
fn find(table: &Table, filter: Filter) -> Result<Found> {
    let page = table.query(filter)?.time_budget(BUDGET).page(1)?;
    Ok(match (page.entities().first(), page.next()) {
        (Some(entity), _) => Found::Yes(Box::new(entity.clone())),
        (None, None) => Found::No,
        (None, Some(_)) => Found::Unknown,
    })
}

/// Returns a condition that is true for every value that is comparable with `literal` (but not for
/// NaN), and false for all others, which are less than every literal.
fn least(name: &str, literal: &Value) -> Filter {
    let double = || prop(name).ge(f64::NEG_INFINITY);
    let long = || prop(name).ge(i64::MIN).or(double());
    match literal {
        Value::Int32(_) => prop(name).ge(i32::MIN).or(long()),
        Value::Int64(_) => long(),
        Value::Double(_) => double(),
        Value::String(_) => prop(name).ge(""),
        Value::Binary(_) => prop(name).ge(Vec::new()),
        Value::Boolean(_) => prop(name).ge(false),
        Value::DateTime(_) => prop(name).ge(DateTime::MIN),
        Value::Guid(_) => prop(name).ge(Guid::from_bytes([0; 16])),
    }
}

/// Returns the note on a property that no entity has; `None` if the table has no entities.
fn missing(table: &Table, name: &str) -> Result<Option<String>> {
    let mut names = BTreeSet::new();
    let mut rows = 0;
    for entity in table.scan(KeyRange::all()).top(NAMED_ROWS) {
        names.extend(entity?.properties().map(|(name, _)| name.to_owned()));
        rows += 1;
    }
    names.extend(["PartitionKey", "RowKey", "Timestamp"].map(str::to_owned));
    let nearest = nearest(name, names.iter().map(String::as_str));
    let nearest = nearest.map(|nearest| format!("; the nearest is {nearest}")).unwrap_or_default();
    Ok((rows > 0).then(|| format!("no entity has the property {name}{nearest}")))
}

/// Returns the name that differs from `name` in the fewest letters, if that is at most a third of
/// them. Case counts little.
fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let wanted = name.to_lowercase();
    let distances = names.map(|known| (distance(&wanted, &known.to_lowercase()), known));
    let (distance, known) = distances.min()?;
    (distance <= wanted.chars().count().div_ceil(3)).then_some(known)
}

/// The number of insertions, deletions and replacements of letters that make `a` to `b`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_differs_least() {
        let names = || ["Price", "Stock", "Made", "PartitionKey"].into_iter();
        for (name, expected) in [
            ("Prise", Some("Price")),
            ("price", Some("Price")),
            ("Stok", Some("Stock")),
            ("partition_key", Some("PartitionKey")),
            ("Colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, names()), expected, "{name}");
        }
        assert_eq!((distance("kitten", "sitting"), distance("", "abc")), (3, 3));
    }
}
