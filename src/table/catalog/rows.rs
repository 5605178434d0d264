//! Encodes and decodes two kinds of catalog rows: the rows of tables, and the row with the next
//! table's id. Also defines the PartitionKeys of all kinds of rows.

use std::borrow::Cow;

use crate::error::Error;
use crate::format::names::TableId;
use crate::model::Entity;

pub(super) const TABLES: &str = "table";
pub(super) const NEXT: &str = "next";
pub(super) const GATES: &str = "gate";
pub(super) const NOTES: &str = "note";
/// The note of a table from which a limit on disk use drops rows, or has once, or whose rows had a
/// time to live. Other processes do not have the options of the writer.
pub(super) const LETS_GO: &str = "lets-rows-go";

/// The key of a note: the table's id, or 0 for the database, and the note's name.
pub(super) type NoteKey = (u32, String);

/// The contents of a catalog row that describes a table, or of the one with the next table's id.
/// For code that reads or repairs a catalog without opening the database.
pub(crate) enum CatalogRow<'a> {
    /// A table and its name.
    Table(TableId, &'a str),
    /// The id of the next table to be created.
    Next(TableId),
}

impl<'a> CatalogRow<'a> {
    /// Returns the contents of `row`. `None` for gates, notes, rows of newer builds, and rows with
    /// an id that no table can have.
    pub(crate) fn of(row: &'a Entity) -> Option<Self> {
        let id = TableId(u32::try_from(row.get::<i64>("Id").ok()?).ok()?);
        match row.partition_key() {
            TABLES if id == TableId::CATALOG || id.0 == u32::MAX => None,
            TABLES => Some(Self::Table(id, row.get("Name").ok()?)),
            NEXT => Some(Self::Next(id)),
            _ => None,
        }
    }

    /// Returns the catalog row that has these contents.
    pub(crate) fn entity(&self) -> Entity {
        match self {
            Self::Table(id, name) => table_row(&name.to_ascii_lowercase(), name, *id, None),
            Self::Next(id) => Entity::new(NEXT, "").with("Id", i64::from(id.0)),
        }
    }
}

/// Returns the catalog row of a table; `ttl` is the time to live of its rows in seconds.
pub(super) fn table_row(lower: &str, name: &str, id: TableId, ttl: Option<i64>) -> Entity {
    let row = Entity::new(TABLES, lower).with("Name", name).with("Id", i64::from(id.0));
    match ttl {
        Some(seconds) if seconds > 0 => row.with("Ttl", seconds),
        _ => row,
    }
}

pub(super) fn lets_go(table: TableId) -> NoteKey {
    (table.0, LETS_GO.to_owned())
}

pub(super) fn damaged(problem: impl Into<Cow<'static, str>>) -> Error {
    Error::corrupt("catalog".as_ref(), 0, "catalog row", problem)
}
