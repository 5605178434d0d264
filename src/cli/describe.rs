//! Implements `describe`: prints the properties of a table, each with its types, how often it
//! occurs, and its least and greatest value.
//!
//! If not all entities are read, zones (the bounds of the values in a file) lead to the least and
//! the greatest number of the whole table.
//!
//! Invariant: memory holds two values for each property and type, not the entities.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;

use super::failure::{Outcome, eprint_line};
use super::layout::{Screen, cut};
use super::open::open_to_read;
use super::output::{Format, Output, TableArgs, counted, with_thousands, write_cells};
use super::progress::Progress;
use super::unmatched::least;
use crate::db::Db;
use crate::error::{Error, Result};
use crate::json::odata::put_text;
use crate::json::{self, Object};
use crate::model::{EdmType, Entity, Value, ValueRef};
use crate::query::{Filter, KeyRange, Prop, order, prop};
use crate::table::Table;

/// The number of entities that are read without --exact.
const ENTITIES_MAX: usize = 1_000_000;
/// The number of entities that may be read for one bound of the whole table.
const SEARCHED_MAX: usize = 100_000;
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

Of a table with more than 1,000,000 entities only the first ones are counted, unless --exact is given.
The least and the greatest PartitionKey, number, truth value and DateTime are nevertheless those of the
whole table where it tells them without being read: its files know the bounds of each property. They
are bounds of the whole table if bounds_exact is true in JSON and CSV; a table marks the others with *,
those of the entities that were read. The number of a property that only later entities have is
unknown: ?, null in JSON, empty in CSV.

Examples:
  rowstone describe shop parts
  rowstone describe shop parts --format json";

/// The statistics of a property with one type.
#[derive(Debug, Default)]
struct Column {
    count: u64,
    least: Option<Value>,
    greatest: Option<Value>,
    /// Whether `least` and `greatest` are those of the whole table, if not all of it was read.
    is_whole: bool,
}

/// The columns of a table, by name and type.
type Columns = BTreeMap<String, BTreeMap<EdmType, Column>>;

impl Describe {
    pub(super) fn run(self) -> Outcome {
        let db = open_to_read(&self.db)?;
        let table = db.table(&self.table)?;
        let most = if self.exact { usize::MAX } else { ENTITIES_MAX };
        let mut seen =
            Progress::during("rows", None, |bar| read(&table, most, |count| bar.reach(count)))?;
        if seen.is_cut {
            seen.widen(&db, &table)?;
        }
        let format = self.format.get();
        self.format.print(|output| match format {
            Format::Json | Format::Ndjson => output.object(|object| put(object, &seen)),
            Format::Csv => write_columns(output, &seen, format),
            Format::Table => {
                output.fold("", &format!("{}: {}", table.name(), seen.count_text()))?;
                writeln!(output)?;
                write_columns(output, &seen, format)?;
                if seen.columns().any(|(.., column)| !seen.is_exact(column)) {
                    writeln!(output)?;
                    output.fold("* ", "of the entities that were read")?;
                }
                Ok(())
            }
        })?;
        if seen.is_cut && format != Format::Table {
            let count = seen.count_text();
            eprint_line(&format!("note: only {count} were read, --exact reads all"));
        }
        Ok(db.close()?)
    }
}

/// A property, one of its types, and their statistics.
type Named<'a> = (&'a str, EdmType, &'a Column);

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

    /// Whether the bounds of `column` are those of the whole table.
    fn is_exact(&self, column: &Column) -> bool {
        column.is_whole || !self.is_cut
    }

    /// Replaces the bounds of the entities that were read by those of the whole table, where these
    /// are found without reading it.
    fn widen(&mut self, db: &Db, table: &Table) -> Result<()> {
        let keys = self.columns.get_mut("PartitionKey").into_iter().flatten().next();
        let last = table.scan(KeyRange::all()).reverse().into_iter().next().transpose()?;
        if let (Some((_, keys)), Some(last)) = (keys, last) {
            // The first entity was read.
            keys.greatest = Some(last.partition_key().into());
            keys.is_whole = true;
        }
        for (name, [min, max]) in db.zone_bounds(table.name())? {
            let least = extreme(table, &name, &min, Ordering::Less)?;
            let Some(greatest) = extreme(table, &name, &max, Ordering::Greater)? else { continue };
            if least.is_some() {
                let types = self.columns.entry(name).or_default();
                let column = types.entry(min.as_ref().edm_type()).or_default();
                *column = Column { least, greatest: Some(greatest), is_whole: true, ..*column };
            }
        }
        Ok(())
    }

    /// Returns each column with its name and type: the keys first.
    fn columns(&self) -> impl Iterator<Item = Named<'_>> {
        let system = ["PartitionKey", "RowKey", "Timestamp"];
        let names =
            self.columns.keys().map(String::as_str).filter(move |name| !system.contains(name));
        system.into_iter().chain(names).flat_map(|name| {
            let types = self.columns.get(name).into_iter().flatten();
            types.map(move |(edm, column)| (name, *edm, column))
        })
    }

    fn csv_row(&self, (name, edm, column): Named<'_>) -> Vec<String> {
        let [least, greatest] = [&column.least, &column.greatest].map(|v| text_of(v.as_ref()));
        let count = column.count().map_or(String::new(), |count| count.to_string());
        let is_exact = self.is_exact(column).to_string();
        vec![name.to_owned(), edm.name().to_owned(), count, least, greatest, is_exact]
    }

    /// Returns a row for people, with values of at most `most` columns.
    fn row(&self, (name, edm, column): Named<'_>, most: usize) -> Vec<String> {
        let [least, greatest] = [&column.least, &column.greatest].map(|value| match value {
            Some(Value::String(text)) if text.is_empty() => "''".to_owned(),
            value => cut(&text_of(value.as_ref()), most).into_owned(),
        });
        let count = column.count().map_or("?".to_owned(), with_thousands);
        let mut row = vec![name.to_owned(), edm.name().to_owned(), count, least, greatest];
        if self.is_cut {
            row.push(if self.is_exact(column) { "" } else { "*" }.to_owned());
        }
        row
    }
}

/// Returns the value of property `name` that is the last one of its type in the direction `way`. No
/// entity in a file has one beyond `bound`. Returns `None` if none has a value at `bound` any more,
/// or if the search takes too long.
fn extreme(table: &Table, name: &str, bound: &Value, way: Ordering) -> Result<Option<Value>> {
    type At = fn(Prop, Value) -> Filter;
    let (at, beyond): (At, At) = match way {
        Ordering::Less => (|prop, value| prop.le(value), |prop, value| prop.lt(value)),
        _ => (|prop, value| prop.ge(value), |prop, value| prop.gt(value)),
    };
    let edm = bound.as_ref().edm_type();
    let values = |filter: Filter| {
        // Values of incomparable types are less than any other.
        let query = table.query(filter.and(least(name, bound)))?.select(&[name]);
        let value = |entity: Entity| {
            let value = entity.value(name).filter(|value| value.edm_type() == edm);
            value.map(|value| value.to_value())
        };
        let values = query.into_iter().take(SEARCHED_MAX).map(move |entity| entity.map(value));
        Ok::<_, Error>(values)
    };
    let first = values(at(prop(name), bound.clone()))?.find_map(Result::transpose).transpose()?;
    let Some(mut found) = first else { return Ok(None) };
    // Entities that are not in a file yet may have values beyond the bound.
    let mut count = 0;
    for value in values(beyond(prop(name), found.clone()))? {
        count += 1;
        let is_beyond = |value: &Value| order(value.as_ref(), found.as_ref()) == Some(way);
        if let Some(value) = value?.filter(is_beyond) {
            found = value;
        }
    }
    Ok((count < SEARCHED_MAX).then_some(found))
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
    /// Returns the number of entities that have the property; `None` if only entities that were not
    /// read have it.
    fn count(&self) -> Option<u64> {
        (self.count > 0).then_some(self.count)
    }

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

const COLUMNS: [&str; 6] = ["Property", "Type", "Entities", "Least", "Greatest", ""];
/// The members of a property in JSON.
const CSV_COLUMNS: [&str; 6] =
    ["property", "type", "entities", "least", "greatest", "bounds_exact"];

fn text_of(value: Option<&Value>) -> String {
    let mut text = Vec::new();
    value.iter().for_each(|value| put_text(&mut text, value.as_ref()));
    String::from_utf8_lossy(&text).into_owned()
}

fn write_columns(output: &mut Output, seen: &Seen, format: Format) -> io::Result<()> {
    let is_csv = format == Format::Csv;
    let most = if output.screen() == Screen::WIDE { usize::MAX } else { VALUE_WIDTH };
    let rows = match is_csv {
        true => seen.columns().map(|column| seen.csv_row(column)).collect(),
        false => seen.columns().map(|column| seen.row(column, most)).collect(),
    };
    let (names, right): (&[_], _) = match is_csv {
        true => (&CSV_COLUMNS, Vec::new()),
        false => (
            COLUMNS.get(..5 + usize::from(seen.is_cut)).unwrap_or(&COLUMNS),
            vec![false, false, true],
        ),
    };
    write_cells(output, names, rows, right, format)
}

fn put(object: &mut Object<'_>, seen: &Seen) {
    object.raw("entities", seen.entities);
    object.raw("exact", !seen.is_cut);
    let columns = seen.columns().map(|(name, edm, column)| {
        json::object(|object| {
            object.text("property", name);
            object.text("type", edm.name());
            object.raw("entities", column.count().map_or("null".to_owned(), |n| n.to_string()));
            if let (Some(least), Some(greatest)) = (&column.least, &column.greatest) {
                object.text("least", &text_of(Some(least)));
                object.text("greatest", &text_of(Some(greatest)));
                object.raw("bounds_exact", seen.is_exact(column));
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

/// Zones lead to the bounds of entities that were not read, and overwritten versions do not count.
#[test]
fn bounds_are_those_of_the_whole_table_where_zones_know_them() {
    let options = Db::options().background(crate::options::Background::Manual);
    let db = options.open_in_memory().unwrap();
    let table = db.create_table("Tab").unwrap();
    let put = |i: i32, entity: Entity| {
        let text = if i == 7 { Value::String("x".into()) } else { Value::Int32(i) };
        let entity = entity.with("A", i).with("B", f64::from(-i)).with("C", i64::from(i % 2));
        table.upsert(entity.with("D", "text").with("E", "").with("M", text)).unwrap();
    };
    let key = |i: i32| Entity::new(format!("p{i}"), "r");
    (0..9).for_each(|i| put(i, key(i)));
    put(9, key(9).with("Late", true));
    db.flush().unwrap();
    let shown = |most| {
        let mut seen = read(&table, most, |_| ()).unwrap();
        seen.widen(&db, &table).unwrap();
        let text = |column| match &seen.row(column, VALUE_WIDTH)[..] {
            [name, _, count, least, greatest, mark] => {
                format!("{name} {count} {least} {greatest}{mark}")
            }
            row => panic!("{row:?}"),
        };
        let is_shown = |text: &String| !text.starts_with("Timestamp");
        let table = seen.columns().map(text).filter(is_shown).collect::<Vec<_>>().join(", ");
        (table, json::object(|object| self::put(object, &seen)), seen)
    };
    let (text, json, seen) = shown(3);
    assert_eq!(
        text,
        "PartitionKey 3 p0 p9, RowKey 3 r r*, A 3 0 9, B 3 -9.0 0.0, C 3 0 1, D 3 text text*, \
         E 3 '' ''*, Late ? true true, M 3 0 9"
    );
    let late = r#"{"property":"Late","type":"Edm.Boolean","entities":null,"least":"true","#;
    assert!(json.contains(late), "{json}");
    let rows: Vec<_> = seen.columns().map(|column| seen.csv_row(column)).collect();
    assert!(rows.contains(
        &["Late", "Edm.Boolean", "", "true", "true", "true"].map(str::to_owned).to_vec()
    ));
    // Nothing has the bounds of the files any more.
    put(5, key(9));
    table.delete("p8", "r").unwrap();
    assert_eq!(
        shown(3).0,
        "PartitionKey 3 p0 p9, RowKey 3 r r*, A 3 0 2*, B 3 -2.0 0.0*, C 3 0 1, D 3 text text*, \
         E 3 '' ''*, M 3 0 2*"
    );
    // Beyond the bounds of the files is an entity in the memtable.
    put(12, key(3));
    assert_eq!(
        shown(3).0,
        "PartitionKey 3 p0 p9, RowKey 3 r r*, A 3 0 12, B 3 -12.0 0.0, C 3 0 1, D 3 text text*, \
         E 3 '' ''*, M 3 0 12"
    );
}
