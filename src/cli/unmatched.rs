//! Finds the reasons why a filter or a selection cannot match: a property that no entity of the
//! table has, and a literal that no entity has a value of a comparable type for.
//!
//! Invariant: the searches of a command together read about [`ROWS_MAX`] rows, and end when they
//! have; then nothing is claimed. So the same rows lead to the same notes, on any machine.

use std::collections::BTreeSet;
use std::time::Duration;

use super::failure::eprint_line;
use crate::error::Result;
use crate::model::{DateTime, Entity, Guid, Value};
use crate::query::tree::{Node, Property};
use crate::query::{Filter, KeyRange, prop};
use crate::table::Table;

/// The number of rows that all searches of a command may read.
const ROWS_MAX: u64 = 100_000;
/// The maximum number of searches for one command.
const SEARCHES_MAX: usize = 16;
/// The number of entities whose properties are candidates for the nearest name.
const NAMED_ROWS: usize = 10_000;

/// The searches of a command in one table.
struct Search<'t> {
    table: &'t Table,
    /// The number of rows that may still be read.
    left: u64,
    /// The names of the properties of the first entities, once they are known.
    names: Option<BTreeSet<String>>,
}

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
    search(table, filter, select, matched, ROWS_MAX).unwrap_or_default()
}

fn search(
    table: &Table,
    filter: &Filter,
    select: Option<&[String]>,
    matched: bool,
    rows_max: u64,
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
    let mut search = Search { table, left: rows_max, names: None };
    let mut notes = Vec::new();
    for (name, literal) in terms.into_iter().take(SEARCHES_MAX) {
        notes.extend(search.note_of(&name, literal)?.filter(|note| !notes.contains(note)));
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

impl Search<'_> {
    /// Returns the note on a comparison with `literal`, or on a selected property.
    fn note_of(&mut self, name: &str, literal: Option<Value>) -> Result<Option<String>> {
        let of_type = literal.as_ref().map(|literal| least(name, literal));
        if let Some(filter) = of_type
            && !matches!(self.find(filter)?, Found::No)
        {
            return Ok(None);
        }
        let any = prop(name).ne(false).or(prop(name).eq(false));
        Ok(match (self.find(any)?, literal) {
            (Found::Unknown, _) | (Found::Yes(_), None) => None,
            (Found::Yes(entity), Some(literal)) => {
                let (has, wants) = (type_of(&entity, name), kind(&literal));
                let text = format!("no entity has a property {name} that compares with {wants}");
                Some(format!("{text}: it is {has}"))
            }
            (Found::No, _) => self.missing(name)?,
        })
    }

    /// Searches one entity that matches `filter`.
    fn find(&mut self, filter: Filter) -> Result<Found> {
        // A page without time ends after a few thousand rows.
        let mut query = self.table.query(filter)?.time_budget(Duration::ZERO);
        while self.left > 0 {
            let (page, explain) = query.clone().page_explained(1)?;
            self.left = self.left.saturating_sub(explain.rows_looked_at().max(1));
            match (page.entities().first(), page.next()) {
                (Some(entity), _) => return Ok(Found::Yes(Box::new(entity.clone()))),
                (None, None) => return Ok(Found::No),
                (None, Some(next)) => query = query.after(next.clone()),
            }
        }
        Ok(Found::Unknown)
    }

    /// Returns the note on a property that no entity has; `None` if the table has no entities.
    fn missing(&mut self, name: &str) -> Result<Option<String>> {
        let Some(names) = self.names()? else { return Ok(None) };
        let nearest = nearest(name, names.iter().map(String::as_str));
        let nearest = nearest.map(|name| format!("; the nearest is {name}")).unwrap_or_default();
        Ok(Some(format!("no entity has the property {name}{nearest}")))
    }

    /// Returns the names of the properties of the first entities; `None` if there are none.
    fn names(&mut self) -> Result<Option<&BTreeSet<String>>> {
        if self.names.is_none() {
            let most = usize::try_from(self.left).map_or(NAMED_ROWS, |left| left.min(NAMED_ROWS));
            let mut names = BTreeSet::new();
            for entity in self.table.scan(KeyRange::all()).top(most) {
                for (name, _) in entity?.properties() {
                    if !names.contains(name) {
                        names.insert(name.to_owned());
                    }
                }
                names.insert("PartitionKey".to_owned());
                self.left = self.left.saturating_sub(1);
            }
            if !names.is_empty() {
                names.extend(["RowKey", "Timestamp"].map(str::to_owned));
                self.names = Some(names);
            }
        }
        Ok(self.names.as_ref())
    }
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

/// Returns a condition that is true for every value that is comparable with `literal` (but not for
/// NaN), and false for all others, which are less than every literal.
pub(super) fn least(name: &str, literal: &Value) -> Filter {
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

/// Returns the name that differs from `name` in the fewest letters, if that is at most a third of
/// them. Case counts little. A single letter is near to itself only.
pub(super) fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let wanted = name.to_lowercase();
    let distances = names.map(|known| (distance(&wanted, &known.to_lowercase()), known));
    let (distance, known) = distances.min()?;
    let letters = wanted.chars().count();
    (distance == 0 || letters > 1 && distance <= letters.div_ceil(3)).then_some(known)
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

    /// Searches end after a number of rows, not after a time.
    #[test]
    fn nothing_is_noted_if_the_rows_are_used_up() {
        let table = crate::db::Db::open_in_memory().unwrap().create_table("Tab").unwrap();
        for i in 0..40 {
            table.insert(Entity::new("p", format!("{i:02}")).with("Price", i)).unwrap();
        }
        let notes = |filter: &str, rows| {
            search(&table, &filter.parse::<Filter>().unwrap(), None, false, rows).unwrap()
        };
        let missing = |name| format!("no entity has the property {name}; the nearest is Price");
        // A search of all rows for a value of the type, one for any value, and the names.
        assert_eq!(notes("Prise gt 1", 121), [missing("Prise")]);
        assert_eq!(notes("Prise gt 1 or Pricy gt 1", 201), [missing("Prise"), missing("Pricy")]);
        // The names are read once. The search that uses the last row claims nothing more.
        assert_eq!(notes("Prise gt 1 or Pricy gt 1", 160), [missing("Prise")]);
        assert_eq!(notes("Prise gt 1", 40), [""; 0]);
        assert_eq!(notes("Prise gt 1", 0), [""; 0]);
    }

    #[test]
    fn the_nearest_name_differs_least() {
        let names = || ["Price", "Stock", "Made", "PartitionKey", "A"].into_iter();
        for (name, expected) in [
            ("Prise", Some("Price")),
            ("price", Some("Price")),
            ("Stok", Some("Stock")),
            ("partition_key", Some("PartitionKey")),
            ("Colour", None),
            ("X", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, names()), expected, "{name}");
        }
        assert_eq!((distance("kitten", "sitting"), distance("", "abc")), (3, 3));
    }
}
