//! `rowstone compare`: compares two tables, or all tables of two databases, entity by entity.
//!
//! Both sides are read in key order, each at one snapshot, and merge-joined, so memory does not
//! grow with their size. Timestamps and ETags are ignored. Property types and every bit of a number
//! are compared.

#[cfg(feature = "remote")]
mod stores;

use std::cmp::Ordering;
use std::sync::Arc;

use clap::Args;

use super::copy::open_other;
use super::csv;
#[cfg(feature = "remote")]
use super::endpoint::AccountArgs;
use super::endpoint::Place;
use super::failure::{Failure, Outcome, eprint_line};
use super::moving::KeyArgs;
use super::open::{open_table, open_to_read};
use super::output::{Format, Output, counted, without_control};
use super::progress::Progress;
use crate::db::Db;
use crate::format::key::user_key;
use crate::format::names::TableId;
use crate::json::odata::{Metadata, entity_text};
use crate::json::{self, Object};
use crate::model::Entity;
use crate::table::Table;

/// List the differences between two tables or two databases.
#[derive(Args)]
#[command(after_long_help = HELP)]
pub(super) struct Compare {
    /// One database
    a: Place,
    /// The other database; may be the same
    b: Place,
    /// Only this table
    #[arg(long)]
    table: Option<String>,
    /// The name of the table in the other database
    #[arg(long, value_name = "TABLE", requires = "table")]
    with: Option<String>,
    #[command(flatten)]
    keys: KeyArgs,
    /// Print the requests for `exec` that make the other database like the first
    #[arg(long)]
    requests: bool,
    /// How to print the differences
    #[arg(long, value_enum, default_value_t = Format::Ndjson)]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format", hide = true)]
    json: bool,
    /// Stop after this many differences
    #[arg(long, value_name = "N")]
    top: Option<u64>,
    #[cfg(feature = "remote")]
    #[command(flatten)]
    account: AccountArgs,
}

const HELP: &str = "\
Prints a JSON object for each difference, one a line unless --format is given:
  {\"table\":T,\"difference\":\"only-a\",\"a\":{entity}}             also only-b
  {\"table\":T,\"difference\":\"differs\",\"a\":{entity},\"b\":{entity}}
  {\"table\":T,\"difference\":\"table-only-a\"}                    also table-only-b
A table and CSV have the keys, not the entities. Timestamps and ETags do not count; types do. With --requests each difference is instead what
`exec` needs to make B like A; write it to a file first, for a database is open once at a time.

With a Table service, differences of several parts of a table are printed as they are found, each
part in key order.

Exit status: 0 they are equal, 1 they differ, 2 one of them cannot be read.

Examples:
  rowstone compare shop shop-monday
  rowstone compare shop moving --table parts --from-partition m --to-partition n
  rowstone compare shop shop --table parts --with partscopy
  rowstone compare shop env:STORE --table parts
  rowstone compare shop other --requests > catch-up.ndjson
  rowstone exec other < catch-up.ndjson";

/// Entities between two updates of the progress bar.
const PROGRESS_ROWS: u64 = 1_000;

impl Compare {
    pub(super) fn run(self) -> Outcome {
        // The status 1 means that the sides differ.
        self.compare().map_err(|failure| match failure {
            Failure::Operation(error) => Failure::Open(error),
            failure => failure,
        })
    }

    fn compare(&self) -> Outcome {
        let format = if self.json { Format::Json } else { self.format };
        if self.requests && format != Format::Ndjson {
            return Err(Failure::Usage("--requests prints NDJSON only, which `exec` reads".into()));
        }
        let mut join = Join {
            output: Output::standard(),
            progress: Arc::new(Progress::new(None)),
            compared: 0,
            differences: 0,
            most: self.top.unwrap_or(u64::MAX),
            requests: self.requests,
            format,
        };
        #[cfg(feature = "remote")]
        if self.run_stores(&mut join)? {
            return join.finish();
        }
        let a = open_to_read(&self.a)?;
        let b = open_other(&a, &self.a, Some(&*self.b), open_to_read)?;
        match &self.table {
            Some(table) => {
                let with = self.with.as_ref().unwrap_or(table);
                let of_a = open_table(&a, &self.a, table)?;
                join.tables(&of_a, &open_table(&b, &self.b, with)?, &self.keys)?;
            }
            None => self.databases(&mut join, &a, &b)?,
        }
        b.close()?;
        a.close()?;
        join.finish()
    }

    fn databases(&self, join: &mut Join, a: &Db, b: &Db) -> Outcome {
        let (of_a, of_b) = (a.tables()?, b.tables()?);
        let has = |tables: &[String], name: &str| {
            tables.iter().any(|other| other.eq_ignore_ascii_case(name))
        };
        for name in &of_a {
            let table = a.table(name)?;
            if has(&of_b, name) {
                join.tables(&table, &b.table(name)?, &self.keys)?;
            } else {
                join.tell([name, name], Difference::TableOnlyA)?;
                join.missing(&table, &self.keys)?;
            }
        }
        for name in of_b.iter().filter(|name| !has(&of_a, name)) {
            join.extra(name, &self.keys, b.table(name)?.scan(self.keys.range()))?;
        }
        Ok(())
    }
}

/// A comparison in progress.
struct Join {
    output: Output,
    progress: Arc<Progress>,
    /// The number of distinct keys that were compared.
    compared: u64,
    differences: u64,
    most: u64,
    requests: bool,
    format: Format,
}

/// A difference between the two sides.
enum Difference<'e> {
    TableOnlyA,
    TableOnlyB,
    /// Two entities with the same key, one of each side. `None` if a side has no such entity.
    Entities(Option<&'e Entity>, Option<&'e Entity>),
}

impl Join {
    /// Writes what is before the first difference, also if there is none.
    fn begin(&mut self) -> Outcome {
        match self.format {
            Format::Csv => self.put_row(["table", "difference", "PartitionKey", "RowKey"]),
            Format::Json => Ok(self.output.data(b"[")?),
            Format::Table | Format::Ndjson => Ok(()),
        }
    }

    fn put_row(&mut self, cells: [&str; 4]) -> Outcome {
        let mut line = Vec::new();
        csv::put_row(&mut line, cells, b',');
        Ok(self.output.data(&line)?)
    }

    fn tables(&mut self, a: &Table, b: &Table, keys: &KeyArgs) -> Outcome {
        let (mut left, mut right) =
            (a.scan(keys.range()).into_iter(), b.scan(keys.range()).into_iter());
        let (mut one, mut other) = (left.next().transpose()?, right.next().transpose()?);
        while self.differences < self.most {
            let order = match (&one, &other) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(one), Some(other)) => key(one).cmp(&key(other)),
            };
            let (of_a, of_b) = match order {
                Ordering::Less => (one.as_ref(), None),
                Ordering::Greater => (None, other.as_ref()),
                Ordering::Equal => (one.as_ref(), other.as_ref()),
            };
            if !matches!((of_a, of_b), (Some(a), Some(b)) if a.has_properties_of(b)) {
                self.tell([a.name(), b.name()], Difference::Entities(of_a, of_b))?;
            }
            if order != Ordering::Greater {
                one = left.next().transpose()?;
            }
            if order != Ordering::Less {
                other = right.next().transpose()?;
            }
            self.compared += 1;
            if self.compared.is_multiple_of(PROGRESS_ROWS) {
                self.progress.reach(self.compared);
            }
        }
        Ok(())
    }

    /// Reports the entities of `a`, a table that only the first side has. Does nothing unless
    /// requests are printed: the missing table itself is already reported.
    fn missing(&mut self, a: &Table, keys: &KeyArgs) -> Outcome {
        if self.requests {
            for entity in a.scan(keys.range()) {
                self.tell([a.name(), a.name()], Difference::Entities(Some(&entity?), None))?;
            }
        }
        Ok(())
    }

    /// Reports a table that only the second side has, which requests delete; of a range of keys,
    /// only its `entities`.
    fn extra(
        &mut self,
        table: &str,
        keys: &KeyArgs,
        entities: impl IntoIterator<Item = crate::error::Result<Entity>>,
    ) -> Outcome {
        if !(self.requests && keys.is_given()) {
            return self.tell([table, table], Difference::TableOnlyB);
        }
        entities.into_iter().try_for_each(|entity| {
            self.tell([table, table], Difference::Entities(None, Some(&entity?)))
        })
    }

    /// Flushes the output, and prints the number of differences.
    fn finish(mut self) -> Outcome {
        if self.differences == 0 {
            self.begin()?;
        }
        let Join { mut output, progress, compared, differences, .. } = self;
        drop(progress);
        if self.format == Format::Json {
            output.data(b"\n]\n")?;
        }
        output.finish()?;
        eprint_line(&format!(
            "{} compared, {}",
            counted(compared, "entity", "entities"),
            counted(differences, "difference", "differences")
        ));
        if differences > 0 { Err(Failure::Problems) } else { Ok(()) }
    }

    fn tell(&mut self, tables: [&str; 2], difference: Difference<'_>) -> Outcome {
        if self.differences >= self.most {
            return Ok(());
        }
        self.differences += 1;
        if self.differences == 1 {
            self.begin()?;
        }
        let (table, (what, a, b)) = (tables[0], difference.parts());
        let (pk, rk) = a.or(b).map_or(("", ""), |e| (e.partition_key(), e.row_key()));
        Ok(match self.format {
            Format::Csv => return self.put_row([table, what, pk, rk]),
            Format::Table => {
                let keys = a.or(b).map(|_| without_control(&format!(" '{pk}' '{rk}'")));
                self.output.fold(
                    &format!("{what:<12}  "),
                    &(table.to_owned() + keys.as_deref().unwrap_or_default()),
                )
            }
            Format::Json => {
                let between = if self.differences == 1 { "" } else { "," };
                let json = json::object(|object| difference.put(object, table));
                self.output.data(format!("{between}\n{json}").as_bytes())
            }
            Format::Ndjson => self.output.object(|object| match self.requests {
                true => difference.put_request(object, tables[1]),
                false => difference.put(object, table),
            }),
        }?)
    }
}

impl<'e> Difference<'e> {
    /// Returns the name of the difference, and the entities.
    fn parts(&self) -> (&'static str, Option<&'e Entity>, Option<&'e Entity>) {
        match *self {
            Difference::TableOnlyA => ("table-only-a", None, None),
            Difference::TableOnlyB => ("table-only-b", None, None),
            Difference::Entities(a, None) => ("only-a", a, None),
            Difference::Entities(None, b) => ("only-b", None, b),
            Difference::Entities(a, b) => ("differs", a, b),
        }
    }

    fn put(&self, object: &mut Object<'_>, table: &str) {
        let (what, a, b) = self.parts();
        object.text("table", table);
        object.text("difference", what);
        for (name, entity) in [("a", a), ("b", b)] {
            if let Some(entity) = entity {
                object.raw(name, entity_text(entity, Metadata::TYPES));
            }
        }
    }

    /// Writes the request that changes the second side to match the first.
    fn put_request(&self, object: &mut Object<'_>, table: &str) {
        let op = match self {
            Difference::TableOnlyA => "create_table",
            Difference::TableOnlyB => "delete_table",
            Difference::Entities(Some(_), _) => "upsert_replace",
            Difference::Entities(None, _) => "delete",
        };
        object.text("op", op);
        object.text("table", table);
        match self {
            Difference::Entities(Some(a), _) => {
                object.raw("entity", entity_text(a, Metadata::TYPES));
            }
            Difference::Entities(None, Some(b)) => {
                object.text("pk", b.partition_key());
                object.text("rk", b.row_key());
                object.text("etag", "*");
            }
            _ => {}
        }
    }
}

/// Returns the encoded key, which defines the order of entities in a table.
fn key(entity: &Entity) -> Vec<u8> {
    user_key(TableId::CATALOG, entity.partition_key(), entity.row_key())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(a: Entity, b: Entity, same: bool) {
        assert_eq!((a.has_properties_of(&b), b.has_properties_of(&a)), (same, same), "{a:?} {b:?}");
    }

    #[test]
    fn types_and_every_bit_of_a_number_are_compared() {
        let new = || Entity::new("p", "r");
        check(new().with("A", 1).with("B", "x"), new().with("B", "x").with("A", 1), true);
        check(new().with("A", 1), new().with("A", 1i64), false);
        check(new().with("A", 1), new().with("B", 1), false);
        check(new().with("A", 1), new().with("A", 1).with("B", 1), false);
        check(new().with("A", f64::NAN), new().with("A", f64::NAN), true);
        check(new().with("A", 0.0), new().with("A", -0.0), false);
    }
}
