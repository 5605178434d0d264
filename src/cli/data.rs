//! Implements the commands for entities: `put`, `get`, `delete`, `scan`.

use std::io::{Read, Write};

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};

use super::endpoint::Place;
#[cfg(feature = "remote")]
use super::endpoint::{AccountArgs, Service, condition, create_missing_table};
use super::failure::{Failure, Outcome};
use super::files;
use super::moving::KeyArgs;
use super::open::{Create, Trimmed, open_to_read};
use super::output::{Format, FormatArgs, TableArgs, print, write_entities, write_entity};
use super::removal::Removal;
use super::unmatched::note;
use super::writer::Writer;
use crate::error::{Code, Error};
use crate::json::exec::read_etag;
use crate::json::odata;
use crate::model::{Entity, check_table_name};
use crate::options::Durability;
use crate::query::Filter;

/// The maximum length of a JSON text in bytes, which is enough for an entity of 1 MiB with any
/// escapes.
const ENTITY_TEXT_MAX: u64 = 16 << 20;

/// Write one entity, given as JSON, and print its new etag.
#[derive(Args)]
#[command(after_long_help = PUT_HELP)]
pub(super) struct Put {
    /// The database: a directory, created if it is missing or empty
    db: Place,
    /// The table, created if it is missing
    table: String,
    /// The entity as JSON of the Table service, or - to read it from standard input
    entity: String,
    /// How to treat an existing entity
    #[arg(long, value_enum, default_value_t = PutMode::Upsert)]
    mode: PutMode,
    /// Only if the entity still has this etag (with --mode replace or merge)
    #[arg(long)]
    etag: Option<String>,
    /// The event that the write survives [default: sync]
    #[arg(long, value_enum)]
    durability: Option<Durability>,
    #[cfg(feature = "remote")]
    #[command(flatten)]
    account: AccountArgs,
}

const PUT_HELP: &str = "\
A type that JSON cannot express is written next to its value:
  {\"PartitionKey\":\"bolts\",\"RowKey\":\"m4x20\",\"Price\":0.12,\"Stock\":1200,
   \"Made@odata.type\":\"Edm.DateTime\",\"Made\":\"2024-05-01T10:00:00Z\"}
Types: Edm.String Edm.Binary Edm.Boolean Edm.Int32 Edm.Int64 Edm.Double Edm.DateTime Edm.Guid

Examples:
  rowstone put shop parts \\
      '{\"PartitionKey\":\"bolts\",\"RowKey\":\"m4x20\",\"Price\":0.12}'
  rowstone put shop parts - --mode insert < bolt.json";

/// How a write treats an existing entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PutMode {
    /// Must be new
    Insert,
    /// Must exist; all properties are replaced
    Replace,
    /// Must exist; other properties are kept
    Merge,
    /// Insert or replace
    Upsert,
    /// Insert or merge
    UpsertMerge,
}

impl PutMode {
    fn op(self) -> &'static str {
        match self {
            PutMode::Insert => "insert",
            PutMode::Replace => "replace",
            PutMode::Merge => "merge",
            PutMode::Upsert => "upsert_replace",
            PutMode::UpsertMerge => "upsert_merge",
        }
    }
}

/// Print one entity.
#[derive(Args)]
#[command(after_long_help = "Examples:\n  rowstone get shop parts bolts m4x20\n  \
    rowstone get shop parts bolts m4x20 --select Price,Stock --format json")]
pub(super) struct Get {
    /// The database
    db: Place,
    /// The table
    table: String,
    /// The PartitionKey
    partition_key: String,
    /// The RowKey
    row_key: String,
    /// Properties to print, separated by commas; all by default
    #[arg(long, value_delimiter = ',', value_parser = Trimmed(NonEmptyStringValueParser::new()))]
    select: Option<Vec<String>>,
    #[command(flatten)]
    format: FormatArgs,
    #[cfg(feature = "remote")]
    #[command(flatten)]
    account: AccountArgs,
}

/// Delete one entity, or a range of keys in one commit.
#[derive(Args)]
#[command(after_long_help = "Examples:\n  rowstone delete shop parts bolts m4x20\n  \
    rowstone delete plant readings --partition sensor-7 --to 2026-01-01 --yes\n\n\
    One commit deletes a range, however many entities it has. Azure Table storage has no such operation. \
    The space is given back before the command ends: whole files are removed, and files that hold other entities \
    too are merged.")]
pub(super) struct Delete {
    /// The database
    db: Place,
    /// The table
    table: String,
    /// The PartitionKey
    #[arg(required_unless_present_any = KeyArgs::NAMES, requires = "row_key")]
    #[arg(conflicts_with_all = KeyArgs::NAMES)]
    partition_key: Option<String>,
    /// The RowKey
    row_key: Option<String>,
    #[command(flatten)]
    keys: KeyArgs,
    /// Only if the entity still has this etag
    #[arg(long, requires = "partition_key")]
    etag: Option<String>,
    /// The event that the deletion survives [default: sync]
    #[arg(long, value_enum)]
    durability: Option<Durability>,
    #[command(flatten)]
    removal: Removal,
    #[cfg(feature = "remote")]
    #[command(flatten)]
    account: AccountArgs,
}

/// Print the entities of a table or a range of keys, in key order.
#[derive(Args)]
#[command(after_long_help = "Examples:\n  rowstone scan flights Flights --top 10\n  \
    rowstone scan flights Flights --partition UA-EWR --select dest,dep_delay \\\n      \
    --from 2013-07-01 --to 2013-07-02\n  rowstone scan flights Flights --format ndjson | head")]
pub(super) struct Scan {
    /// The database
    db: Place,
    /// The table
    table: String,
    #[command(flatten)]
    keys: KeyArgs,
    /// At most this many entities
    #[arg(long, alias = "limit")]
    top: Option<usize>,
    /// Properties to print, separated by commas; all by default
    #[arg(long, value_delimiter = ',', value_parser = Trimmed(NonEmptyStringValueParser::new()))]
    select: Option<Vec<String>>,
    #[command(flatten)]
    format: TableArgs,
    #[cfg(feature = "remote")]
    #[command(flatten)]
    account: AccountArgs,
}

impl Put {
    pub(super) fn run(self) -> Outcome {
        let text = self.text()?;
        let entity = odata::read_entity(&text)?;
        if self.etag.is_some() && !matches!(self.mode, PutMode::Replace | PutMode::Merge) {
            let text = "--etag requires --mode replace or --mode merge";
            return Err(Failure::Usage(text.into()));
        }
        check_table_name(&self.table)?;
        #[cfg(feature = "remote")]
        if let Some(service) = self.account.open(&self.db)? {
            service.refuse(&[("--durability", self.durability.is_some())])?;
            return self.send(&service, &entity);
        }
        drop(entity);
        self.etag.as_deref().map(read_etag).transpose()?;
        let durability = self.durability.unwrap_or(Durability::Sync);
        let db = Writer::open_durable(&self.db, Create::IfMissing, durability)?;
        db.create_missing_table(&self.table)?;
        let etag = match self.mode {
            PutMode::Replace | PutMode::Merge => Some(self.etag.as_deref().unwrap_or("*")),
            PutMode::Insert | PutMode::Upsert | PutMode::UpsertMerge => None,
        };
        let written = db.ask(self.mode.op(), |request| {
            request.text("table", &self.table);
            // A request is one line. Valid JSON has line breaks only between tokens, where a space
            // means the same.
            request.raw("entity", text.replace(['\n', '\r'], " "));
            etag.iter().for_each(|etag| request.text("etag", etag));
        })?;
        let etag = written.text("etag").unwrap_or_default();
        print(|output| writeln!(output, "{etag}"))?;
        db.close()
    }

    fn text(&self) -> Outcome<String> {
        if self.entity != files::STANDARD_INPUT {
            return Ok(self.entity.clone());
        }
        let input = files::open_input(files::STANDARD_INPUT)?;
        let mut text = String::new();
        let read = input.reader.take(ENTITY_TEXT_MAX).read_to_string(&mut text);
        read.map_err(|error| Failure::Other(format!("cannot read standard input: {error}")))?;
        Ok(text)
    }
}

#[cfg(feature = "remote")]
impl Put {
    fn send(&self, service: &Service, entity: &Entity) -> Outcome {
        let condition = condition(self.etag.as_deref())?;
        let write = || match self.mode {
            PutMode::Insert => service.insert(&self.table, entity),
            PutMode::Replace => service.replace(&self.table, entity, &condition),
            PutMode::Merge => service.merge(&self.table, entity, &condition),
            PutMode::Upsert => service.upsert(&self.table, entity),
            PutMode::UpsertMerge => service.upsert_merge(&self.table, entity),
        };
        let etag = match write() {
            Err(error) if error.code() == Code::TableNotFound.as_str() => {
                create_missing_table(&**service, &self.table)?;
                write()?
            }
            written => written?,
        };
        print(|output| writeln!(output, "{etag}"))
    }
}

impl Get {
    pub(super) fn run(self) -> Outcome {
        #[cfg(feature = "remote")]
        if let Some(service) = self.account.open(&self.db)? {
            let found = service.get(&self.table, &self.partition_key, &self.row_key, &[])?;
            return self.show(found);
        }
        let db = open_to_read(&self.db)?;
        let table = db.table(&self.table)?;
        self.show(table.get(&self.partition_key, &self.row_key)?)?;
        drop(table);
        Ok(db.close()?)
    }

    fn show(&self, found: Option<Entity>) -> Outcome {
        let entity = found.ok_or_else(|| self.missing())?;
        let select = self.select.as_deref();
        let one = || Ok(std::iter::once(Ok(entity.clone())));
        print(|output| match self.format.get() {
            Format::Table => Ok(write_entity(output, &entity, select)?),
            Format::Csv => write_entities(output, one, select, Format::Csv),
            Format::Json | Format::Ndjson => write_entities(output, one, select, Format::Ndjson),
        })
    }

    fn missing(&self) -> Failure {
        let (pk, rk, table) = (&self.partition_key, &self.row_key, &self.table);
        let message = format!("there is no entity '{pk}' '{rk}' in table {table}");
        Error::refused_with(Code::ResourceNotFound, message).into()
    }
}

impl Delete {
    pub(super) fn run(self) -> Outcome {
        #[cfg(feature = "remote")]
        if let Some(service) = self.account.open(&self.db)? {
            service.refuse(&[("--durability", self.durability.is_some())])?;
            if self.partition_key.is_none() {
                return self.removal.run_at(&service, &self.table, &self.keys);
            }
            let (pk, rk) = (self.partition_key.as_deref(), self.row_key.as_deref());
            let (pk, rk) = (pk.unwrap_or_default(), rk.unwrap_or_default());
            let condition = condition(self.etag.as_deref())?;
            return Ok(service.delete(&self.table, pk, rk, &condition)?);
        }
        self.etag.as_deref().map(read_etag).transpose()?;
        let durability = self.durability.unwrap_or(Durability::Sync);
        let db = Writer::open_durable(&self.db, Create::Never, durability)?;
        match self.partition_key.as_deref().zip(self.row_key.as_deref()) {
            None => self.removal.run(&db, &self.table, "delete_range", &self.keys)?,
            Some((pk, rk)) => {
                db.ask("delete", |request| {
                    request.text("table", &self.table);
                    request.text("pk", pk);
                    request.text("rk", rk);
                    request.text("etag", self.etag.as_deref().unwrap_or("*"));
                })?;
            }
        }
        db.close()
    }
}

impl Scan {
    pub(super) fn run(self) -> Outcome {
        #[cfg(feature = "remote")]
        if let Some(service) = self.account.open(&self.db)? {
            let (select, format) = (self.select.as_deref(), self.format.get());
            let entities = || Ok(service.rows(&self.table, &self.keys.filter(), select, self.top));
            return self.format.print(|output| write_entities(output, entities, select, format));
        }
        let db = open_to_read(&self.db)?;
        let table = db.table(&self.table)?;
        let entities = || {
            let query = table.scan(self.keys.range());
            Ok(self.top.map_or(query.clone(), |top| query.top(top)).into_iter())
        };
        let (select, format) = (self.select.as_deref(), self.format.get());
        self.format.print(|output| write_entities(output, entities, select, format))?;
        note(&table, &Filter::all(), self.select.as_deref(), true);
        Ok(db.close()?)
    }
}
