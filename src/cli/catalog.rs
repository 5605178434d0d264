//! Implements the commands for tables: `create-table`, `drop-table`, `ttl`, `tables`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::endpoint::Place;
#[cfg(feature = "remote")]
use super::endpoint::{AccountArgs, Service};
use super::failure::{Failure, Outcome, eprint_line};
use super::moving::KeyArgs;
use super::open::{Create, open_to_read};
use super::output::{Format, Output, TableArgs, print, with_thousands, write_cells};
use super::removal::Removal;
use super::writer::Writer;
use crate::db::Db;
use crate::error::Error;
use crate::json;
use crate::model::check_table_name;
use crate::query::KeyRange;

/// `tables` counts tables, without --exact too, as long as their files together have at most this
/// many entries: entities, overwritten versions of entities, and tombstones.
const ENTRIES_MAX: u64 = 200_000;

/// Create a table, and the database if there is none.
#[derive(Args)]
#[command(after_long_help = "Examples:\n  rowstone create-table shop parts\n  \
    rowstone create-table plant readings --ttl 30d")]
pub(super) struct CreateTable {
    /// The database: a directory, created if it is missing or empty
    db: Place,
    /// The table: 3 to 63 letters and digits, starting with a letter; any case
    table: String,
    /// Rows expire this long after they were written: 90s, 30m, 12h, 7d; Azure Table storage has no
    /// such option
    #[arg(long, value_name = "TIME", value_parser = read_time)]
    ttl: Option<Duration>,
    #[cfg(feature = "remote")]
    #[command(flatten)]
    account: AccountArgs,
}

/// Show or change how long rows of a table live.
#[derive(Args)]
#[command(
    after_long_help = "Azure Table storage has no such option. Files that hold only expired rows are deleted unread.\n\n\
    Examples:\n  rowstone ttl plant readings\n  rowstone ttl plant readings 7d\n  \
    rowstone ttl plant readings never"
)]
pub(super) struct Ttl {
    /// The database
    db: PathBuf,
    /// The table
    table: String,
    /// The lifetime: 90s, 30m, 12h, 7d; or `never`
    #[arg(value_parser = read_life)]
    life: Option<Duration>,
}

/// Drop a table with all its entities, immediately.
#[derive(Args)]
#[command(
    visible_alias = "delete-table",
    after_long_help = "The space is given back before the command ends: whole files are removed, and files that hold \
    entities of other tables too are merged.\n\n\
    Example:\n  rowstone drop-table shop parts --yes"
)]
pub(super) struct DropTable {
    /// The database
    db: Place,
    /// The table
    table: String,
    #[command(flatten)]
    removal: Removal,
    #[cfg(feature = "remote")]
    #[command(flatten)]
    account: AccountArgs,
}

/// List the tables, with the number of their entities.
#[derive(Args)]
#[command(
    after_long_help = "Tables are counted as long as their files together have at most 200,000 entries. The number of another one is an \
    estimate, made from the metadata of its files, unless --exact is given: `about` in a table, and Exact is false \
    in the other formats. The estimate is too high while the files have versions of entities that were \
    overwritten, and too low while entities are only in the log.\n\n\
    Examples:\n  rowstone tables shop\n  rowstone tables shop --exact\n  rowstone tables shop --format json"
)]
pub(super) struct Tables {
    /// The database
    db: Place,
    /// Count the entities of every table by reading it
    #[arg(long)]
    exact: bool,
    #[command(flatten)]
    format: TableArgs,
    #[cfg(feature = "remote")]
    #[command(flatten)]
    account: AccountArgs,
}

impl CreateTable {
    pub(super) fn run(self) -> Outcome {
        // The name is checked first, so that a refused one does not create a new database.
        check_table_name(&self.table)?;
        #[cfg(feature = "remote")]
        if let Some(service) = self.account.open(&self.db)? {
            service.refuse(&[("--ttl", self.ttl.is_some())])?;
            return Ok(service.create_table(&self.table)?);
        }
        let db = Writer::open(&self.db, Create::IfMissing)?;
        db.ask("create_table", |request| request.text("table", &self.table))?;
        if let Some(ttl) = self.ttl {
            set_ttl(&db, &self.table, ttl)?;
        }
        db.close()
    }
}

impl Ttl {
    pub(super) fn run(self) -> Outcome {
        let Some(life) = self.life else {
            let db = open_to_read(&self.db)?;
            let life = db.ttl(&self.table)?.map_or("never".to_owned(), time_text);
            print(|output| writeln!(output, "{life}"))?;
            return Ok(db.close()?);
        };
        let db = Writer::open(&self.db, Create::Never)?;
        set_ttl(&db, &self.table, life)?;
        db.close()
    }
}

/// Sets the lifetime of a table's rows. Zero means that rows do not expire.
fn set_ttl(db: &Writer, table: &str, life: Duration) -> Outcome {
    db.ask("ttl", |request| {
        request.text("table", table);
        request.raw("seconds", life.as_secs());
    })?;
    Ok(())
}

const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

pub(in crate::cli) fn read_time(text: &str) -> Result<Duration, String> {
    let problem = || format!("{text}: a number and a unit, such as 90s, 30m, 12h or 7d");
    let (_, seconds) = UNITS.iter().find(|(unit, _)| text.ends_with(*unit)).ok_or_else(problem)?;
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| problem())?;
    match number.checked_mul(*seconds) {
        None | Some(0) => Err(problem()),
        Some(seconds) => Ok(Duration::from_secs(seconds)),
    }
}

/// Like [`read_time`], but also accepts `never`, for which it returns zero.
fn read_life(text: &str) -> Result<Duration, String> {
    if text == "never" { Ok(Duration::ZERO) } else { read_time(text) }
}

/// Formats a time as a whole number of the largest possible unit.
fn time_text(time: Duration) -> String {
    let seconds = time.as_secs();
    let fits = |(_, unit): &&(char, u64)| seconds.is_multiple_of(*unit);
    let (unit, length) = UNITS.iter().find(fits).unwrap_or(&('s', 1));
    format!("{}{unit}", seconds / length)
}

impl DropTable {
    pub(super) fn run(self) -> Outcome {
        #[cfg(feature = "remote")]
        if let Some(service) = self.account.open(&self.db)? {
            self.removal.confirm(&format!("all entities of {} at {}", self.table, service.name))?;
            return Ok(service.delete_table(&self.table)?);
        }
        let db = Writer::open(&self.db, Create::Never)?;
        self.removal.run(&db, &self.table, "delete_table", &KeyArgs::default())?;
        db.close()
    }
}

impl Tables {
    pub(super) fn run(self) -> Outcome {
        #[cfg(feature = "remote")]
        if let Some(service) = self.account.open(&self.db)? {
            service.refuse(&[("--exact", self.exact)])?;
            return self.list(&service);
        }
        let db = open_to_read(&self.db)?;
        let mut left = if self.exact { u64::MAX } else { ENTRIES_MAX };
        let sized = |name: String| sized(&db, name, &mut left);
        let tables = db.tables()?.into_iter().map(sized).collect::<Outcome<Vec<_>>>()?;
        self.format.print(|output| write_tables(output, &tables, self.format.get()))?;
        let failed = tables.iter().filter_map(|table| Some((&table.name, table.error.as_ref()?)));
        let failed = failed.map(|(name, error)| {
            let error = error.clone().during(format!("count the entities of {name}"));
            Failure::from(error).message().1.iter().for_each(|text| eprint_line(text));
        });
        let failed = failed.count();
        db.close()?;
        if failed > 0 { Err(Failure::Problems) } else { Ok(()) }
    }
}

#[cfg(feature = "remote")]
impl Tables {
    /// Lists the names of the tables, of which a service does not know the sizes.
    fn list(&self, service: &Service) -> Outcome {
        let names = service.tables()?;
        let item = |name: &String| json::object(|object| object.text("TableName", name));
        self.format.print(|output| match self.format.get() {
            Format::Json => output.json(&json::array(names.iter().map(item))),
            Format::Ndjson => {
                output.items(&names.iter().map(item).collect::<Vec<_>>(), Format::Ndjson)
            }
            Format::Table if names.is_empty() => Ok(()),
            format => {
                let rows = names.iter().map(|name| vec![name.clone()]).collect();
                write_cells(output, &["TableName"], rows, vec![false], format)
            }
        })
    }
}

/// A table with its size.
struct Sized {
    name: String,
    entities: u64,
    /// Whether the entities were counted, and not estimated from the metadata of the files.
    is_exact: bool,
    bytes: u64,
    /// The error by which the entities could not be counted.
    error: Option<Error>,
}

/// Returns the size of a table. Its entities are counted if its files have at most `left` entries,
/// which are subtracted. Those in the memtable are not limited, because memory limits them.
fn sized(db: &Db, name: String, left: &mut u64) -> Outcome<Sized> {
    let part = db.size_in_files(&name, &KeyRange::all())?;
    let count = || db.table(&name)?.scan(KeyRange::all()).count();
    let rest = left.checked_sub(part.entries);
    *left = rest.unwrap_or(*left);
    let counted = rest.map(|_| count()).transpose();
    let (entities, is_exact, error) = match counted {
        Ok(Some(count)) => (count, true, None),
        Ok(None) => (part.puts(), false, None),
        Err(error) => (part.puts(), false, Some(error)),
    };
    Ok(Sized { name, entities, is_exact, bytes: part.bytes, error })
}

/// Rounds an estimate to four digits.
fn rounded(count: u64) -> u64 {
    let unit = 10u64.pow(count.max(1).ilog10().saturating_sub(3));
    (count / unit).saturating_mul(unit)
}

fn write_tables(output: &mut Output, tables: &[Sized], format: Format) -> io::Result<()> {
    let json = |table: &Sized| {
        json::object(|object| {
            object.text("TableName", &table.name);
            object.raw("Entities", table.entities);
            object.raw("Exact", table.is_exact);
            object.raw("Bytes", table.bytes);
        })
    };
    let items = || tables.iter().map(json).collect::<Vec<_>>();
    let rows = |numbers: fn(&Sized) -> Vec<String>| {
        let row = |table: &Sized| [vec![table.name.clone()], numbers(table)].concat();
        tables.iter().map(row).collect::<Vec<_>>()
    };
    match format {
        Format::Json => output.json(&json::array(items())),
        Format::Ndjson => output.items(&items(), format),
        Format::Csv => {
            let columns = ["TableName", "Entities", "Exact", "Bytes"];
            let numbers = |table: &Sized| {
                let Sized { entities, is_exact, bytes, .. } = table;
                vec![entities.to_string(), is_exact.to_string(), bytes.to_string()]
            };
            write_cells(output, &columns, rows(numbers), Vec::new(), format)
        }
        Format::Table if tables.is_empty() => Ok(()),
        Format::Table => {
            let numbers = |table: &Sized| {
                let entities = match table.is_exact {
                    true => with_thousands(table.entities),
                    false => format!("about {}", with_thousands(rounded(table.entities))),
                };
                vec![entities, with_thousands(table.bytes)]
            };
            let right = vec![false, true, true];
            write_cells(output, &["TableName", "Entities", "Bytes"], rows(numbers), right, format)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tables_with_few_entries_are_counted() {
        let background = crate::options::Background::Manual;
        let db = Db::options().background(background).open_in_memory().unwrap();
        let table = db.create_table("Tab").unwrap();
        let size = |mut most| {
            let sized = sized(&db, "Tab".into(), &mut most).unwrap();
            (sized.entities, sized.is_exact)
        };
        // Each time the same entities, until a merge removes the overwritten versions.
        for entries in [20, 40] {
            for i in 0..20 {
                table.upsert(crate::model::Entity::new("p", format!("{i:02}"))).unwrap();
            }
            assert_eq!(size(entries - 20), (20, true), "the new ones are in the memtable");
            db.flush().unwrap();
            assert_eq!((size(entries), size(u64::MAX)), ((20, true), (20, true)));
            assert_eq!(size(entries - 1), (entries, false));
        }
        db.compact().unwrap();
        assert_eq!(size(20), (20, true));
        // The limit is that of all tables.
        let mut left = 50;
        let counted = [(); 3].map(|()| sized(&db, "Tab".into(), &mut left).unwrap().is_exact);
        assert_eq!((counted, left), ([true, true, false], 10));
        assert_eq!([0, 9, 9_999, 1_234_567, u64::MAX].map(rounded)[..4], [0, 9, 9_999, 1_234_000]);
    }

    #[test]
    fn times_are_a_number_and_a_unit() {
        for (text, seconds) in [("90s", 90), ("30m", 1_800), ("12h", 43_200), ("7d", 604_800)] {
            let time = read_time(text).unwrap();
            assert_eq!((time.as_secs(), time_text(time).as_str()), (seconds, text));
        }
        for text in ["", "7", "d", "0s", "-1d", "1.5h", "7 d", "99999999999999999999d", "7dd"] {
            assert!(read_time(text).is_err(), "{text}");
        }
        assert_eq!(time_text(Duration::from_secs(3_601)), "3601s");
    }
}
