//! Commands about tables: `create-table`, `drop-table`, `tables`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::failure::{Failure, Outcome};
use super::output::{Format, Output};
use super::{Create, open};
use crate::wire::json;

/// Create a table, and the database if there is none.
#[derive(Args)]
#[command(after_long_help = "Example:\n  rowstone create-table shop parts")]
pub(super) struct CreateTable {
    /// The database: a directory, created if it is missing or empty
    db: PathBuf,
    /// The table: 3 to 63 letters and digits, a letter first; case does not count
    table: String,
}

/// Drop a table with all its entities, at once.
#[derive(Args)]
#[command(after_long_help = "The space is given back in the background.\n\n\
    Example:\n  rowstone drop-table shop parts")]
pub(super) struct DropTable {
    /// The database
    db: PathBuf,
    /// The table
    table: String,
}

/// List the tables.
#[derive(Args)]
#[command(
    after_long_help = "Examples:\n  rowstone tables shop\n  rowstone tables shop --format json"
)]
pub(super) struct Tables {
    /// The database
    db: PathBuf,
    /// How to print the list
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

impl CreateTable {
    pub(super) fn run(self) -> Outcome {
        let db = open(&self.db, Create::IfMissing)?;
        db.create_table(&self.table)?;
        Ok(db.close()?)
    }
}

impl DropTable {
    pub(super) fn run(self) -> Outcome {
        let db = open(&self.db, Create::Never)?;
        db.delete_table(&self.table)?;
        Ok(db.close()?)
    }
}

impl Tables {
    pub(super) fn run(self) -> Outcome {
        let db = open(&self.db, Create::Never)?;
        let tables = db.tables()?;
        let mut output = Output::standard();
        write_tables(&mut output, &tables, self.format).map_err(Failure::output)?;
        output.finish()?;
        Ok(db.close()?)
    }
}

fn write_tables(output: &mut Output, tables: &[String], format: Format) -> std::io::Result<()> {
    let mut text = Vec::new();
    if format == Format::Json {
        text.push(b'[');
    }
    if format == Format::Csv {
        text.extend_from_slice(b"TableName\n");
    }
    for (i, table) in tables.iter().enumerate() {
        match format {
            Format::Table | Format::Csv => text.extend_from_slice(table.as_bytes()),
            Format::Json | Format::Ndjson => json::put_string(&mut text, table),
        }
        text.extend_from_slice(match format {
            Format::Json if i + 1 < tables.len() => b",",
            Format::Json => b"",
            _ => b"\n",
        });
    }
    if format == Format::Json {
        text.extend_from_slice(b"]\n");
    }
    output.write_all(&text)
}
