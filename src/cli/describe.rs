//! Implements `describe`: prints the properties of a table, each with its types, how often it
//! occurs, and its least and greatest value.
//!
//! Invariant: memory holds two values for each property and type, not the entities.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;

use super::failure::{Outcome, eprint_line};
use super::layout::{Screen, cut};
use super::open::open_to_read;
use super::output::{Format, Output, TableArgs, counted, with_thousands, write_cells};
use super::progress::Progress;
use crate::error::Result;
use crate::json::odata::put_text;
use crate::json::{self, Object};
use crate::model::{EdmType, Entity, Value, ValueRef};
use crate::query::{KeyRange, order};
use crate::table::Table;

/// The number of entities that are read without --exact.
const ENTITIES_MAX: usize = 1_000_000;
/// The longest value in the columns for people.
const VALUE_WIDTH: usize = 19;

/// Show the properties of a table, their types and their bounds.
#[derive(Args)]
#[command(after_long_help = HELP)]
pub(super) struct Describe {
    /// The database
    db: PathBuf,
    /// The table
    table: String,
    /// Read all entities, not only the first 1,000,000
    #[arg(long)]
    exact: bool,
    #[command(flatten)]
    format: TableArgs,
}

const HELP: &str = "\
A line is a property with one type; entities of one table may have different properties, and a
property different types. The columns are the number of entities that have it, and the least and the
greatest value: of texts in the order of filters, of numbers without NaN.

Examples:
  rowstone describe shop parts
  rowstone describe shop parts --format json";

/// The statistics of a property with one type.
#[derive(Debug, Default)]
struct Column {
    count: u64,
    least: Option<Value>,
    greatest: Option<Value>,
}

/// The columns of a table, by name and type.
type Columns = BTreeMap<String, BTreeMap<EdmType, Column>>;

impl Describe {
    pub(super) fn run(self) -> Outcome {
        let db = open_to_read(&self.db)?;
        let table = db.table(&self.table)?;
        let most = if self.exact { usize::MAX } else { ENTITIES_MAX };
        let seen =
            Progress::during("rows", None, |bar| read(&table, most, |count| bar.reach(count)))?;
        let format = self.format.get();
        self.format.print(|output| match format {
            Format::Json | Format::Ndjson => output.object(|object| put(object, &seen)),
            Format::Csv => write_columns(output, &seen.columns, format),
            Format::Table => {
                writeln!(output, "{}: {}\n", table.name(), seen.count_text())?;
                write_columns(output, &seen.columns, format)
            }
        })?;
        if seen.is_cut && format != Format::Table {
            let count = seen.count_text();
            eprint_line(&format!("note: only {count} were read, --exact reads all"));
        }
        Ok(db.close()?)
    }
}

/// The entities that were read.
#[derive(Default)]
struct Seen {
    entities: u64,
    /// Whether there are more entities.
    is_cut: bool,
    columns: Columns,
}

impl Seen {
    fn count_text(&self) -> String {
        let of = if self.is_cut { "the first " } else { "" };
        format!("{of}{}", counted(self.entities, "entity", "entities"))
    }
}

/// Reads at most `most` entities, and calls `progress` with their number now and then.
fn read(table: &Table, most: usize, progress: impl Fn(u64)) -> Result<Seen> {
    let mut seen = Seen::default();
    for entity in table.scan(KeyRange::all()).top(most.saturating_add(1)) {
        let entity = entity?;
        seen.is_cut = seen.entities == most as u64;
        if seen.is_cut {
            break;
        }
        add(&mut seen.columns, &entity);
        seen.entities += 1;
        if seen.entities % 1_000 == 0 {
            progress(seen.entities);
        }
    }
    Ok(seen)
}

fn add(columns: &mut Columns, entity: &Entity) {
    let keys = [("PartitionKey", entity.partition_key()), ("RowKey", entity.row_key())];
    let keys = keys.map(|(name, key)| (name, ValueRef::String(key)));
    let time = entity.timestamp().map(|time| ("Timestamp", ValueRef::DateTime(time)));
    for (name, value) in keys.into_iter().chain(time).chain(entity.properties()) {
        if !columns.contains_key(name) {
            columns.insert(name.to_owned(), BTreeMap::new());
        }
        if let Some(types) = columns.get_mut(name) {
            types.entry(value.edm_type()).or_default().add(value);
        }
    }
}

impl Column {
    fn add(&mut self, value: ValueRef<'_>) {
        self.count += 1;
        let is_nan = matches!(value, ValueRef::Double(number) if number.is_nan());
        let beyond = |bound: &Option<Value>, wanted| match bound {
            None => !is_nan,
            Some(bound) => order(value, bound.as_ref()) == Some(wanted),
        };
        if beyond(&self.least, std::cmp::Ordering::Less) {
            self.least = Some(value.to_value());
        }
        if beyond(&self.greatest, std::cmp::Ordering::Greater) {
            self.greatest = Some(value.to_value());
        }
    }
}

fn text_of(value: Option<&Value>) -> String {
    let mut text = Vec::new();
    value.iter().for_each(|value| put_text(&mut text, value.as_ref()));
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns each column with its name and type: the keys first.
fn each(columns: &Columns) -> impl Iterator<Item = (&str, EdmType, &Column)> {
    let system = ["PartitionKey", "RowKey", "Timestamp"];
    let names = columns.keys().map(String::as_str).filter(move |name| !system.contains(name));
    let names = system.into_iter().chain(names);
    let of = |name| columns.get(name).into_iter().flatten().map(move |(edm, of)| (name, *edm, of));
    names.flat_map(of)
}

fn write_columns(output: &mut Output, columns: &Columns, format: Format) -> io::Result<()> {
    let shorten = |text: String| match output.screen() {
        Screen::WIDE => text,
        _ => cut(&text, VALUE_WIDTH).into_owned(),
    };
    let rows = each(columns).map(|(name, edm, column)| {
        let [least, greatest] = [&column.least, &column.greatest].map(|v| text_of(v.as_ref()));
        let [count, least, greatest] = match format {
            Format::Csv => [column.count.to_string(), least, greatest],
            _ => [with_thousands(column.count), shorten(least), shorten(greatest)],
        };
        vec![name.to_owned(), edm.name().to_owned(), count, least, greatest]
    });
    let names = ["Property", "Type", "Entities", "Least", "Greatest"];
    let right = vec![false, false, true, false, false];
    write_cells(output, &names, rows.collect(), right, format)
}

fn put(object: &mut Object<'_>, seen: &Seen) {
    object.raw("entities", seen.entities);
    object.raw("exact", !seen.is_cut);
    let columns = each(&seen.columns).map(|(name, edm, column)| {
        json::object(|object| {
            object.text("property", name);
            object.text("type", edm.name());
            object.raw("entities", column.count);
            if let (Some(least), Some(greatest)) = (&column.least, &column.greatest) {
                object.text("least", &text_of(Some(least)));
                object.text("greatest", &text_of(Some(greatest)));
            }
        })
    });
    object.raw("properties", json::array(columns));
}

#[test]
fn a_table_with_more_entities_is_described_in_part() {
    let table = crate::db::Db::open_in_memory().unwrap().create_table("Tab").unwrap();
    for i in 0..5 {
        table.insert(Entity::new("p", format!("{i}")).with("A", i)).unwrap();
    }
    let read = |most| read(&table, most, |_| ()).unwrap();
    assert_eq!(read(4).count_text(), "the first 4 entities");
    let json = json::object(|object| put(object, &read(4)));
    assert!(json.starts_with(r#"{"entities":4,"exact":false,"#), "{json}");
    assert_eq!((read(5).count_text(), read(usize::MAX).is_cut), ("5 entities".into(), false));
}
