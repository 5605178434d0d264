//! Notes: short named texts of the database or of a table, such as stored access policies.
//!
//! | PartitionKey | RowKey                                     | properties                                              |
//! | `note`       | id of the table (or 0), 8 hex digits, `-name` | `Id` Int64: the table; `Text0`, `Text1`, … String: the text |
//!
//! Invariants
//! * a note that was set is durable;
//! * dropping a table removes its notes, in the same commit.
//!
//! `rest` defines the contents of notes.

use std::sync::Arc;

use crate::error::{Code, Error, Result};
use crate::format::names::TableId;
use crate::lsm::{Action, Op};
use crate::model::Entity;
use crate::options::Durability;

use super::rows::{LETS_GO, NOTES, NoteKey, damaged};
use super::{Catalog, Tables};

impl Catalog {
    /// Returns the operation that puts the note's row into the catalog.
    pub(super) fn put_note(&self, key: &NoteKey, text: &str) -> Result<Op<'static>> {
        self.put(&row(key, text))
    }

    /// Whether a limit on disk use drops the oldest rows of a table, or has once, or the table had
    /// a time to live.
    ///
    /// # Errors
    /// `NotFound` (`TableNotFound`).
    #[cfg(feature = "remote")]
    pub(crate) fn let_rows_go(&self, table: &str) -> Result<bool> {
        Ok(self.note(Some(table), LETS_GO)?.is_some())
    }

    /// Writes the notes of the tables that a limit on disk use has begun to drop rows from. If it
    /// fails, for example because the disk is full, the next opening tries again; also if the files
    /// exceed the limit, since opening drops no rows.
    pub(super) fn note_drops_oldest(&self) {
        let disk_use = self.engine.maintenance().disk_use();
        if disk_use.is_none_or(|[total, limit, ..]| total > limit) {
            return;
        }
        let on_full = &self.engine.env().options.on_full;
        for name in self.names().iter().filter(|name| on_full.drops_from(name)) {
            if matches!(self.note(Some(name), LETS_GO), Ok(None)) {
                drop(self.set_note(Some(name), LETS_GO, Some("")));
            }
        }
    }

    /// Returns the operation that deletes the note's row from the catalog.
    pub(super) fn delete_note(&self, key: &NoteKey) -> Op<'static> {
        self.op(NOTES, &row_key(key), Action::Delete)
    }
}

impl Tables {
    /// Returns the keys of the notes of a table.
    pub(super) fn notes_of(&self, table: TableId) -> Vec<NoteKey> {
        self.notes.keys().filter(|(id, _)| *id == table.0).cloned().collect()
    }

    /// Adds the note that a catalog row contains.
    pub(super) fn add_note(&mut self, id: u32, row: &Entity) -> Result<()> {
        let name = row.row_key().split_once('-').map(|(_, name)| name.to_owned());
        let name = name.ok_or_else(|| damaged("a note without a name"))?;
        let mut text = String::new();
        for piece in 0.. {
            let property = format!("Text{piece}");
            if row.value(&property).is_none() {
                break;
            }
            text.push_str(&row.get::<String>(&property)?);
        }
        self.notes.insert((id, name), text.into());
        Ok(())
    }
}

fn row_key((id, name): &NoteKey) -> String {
    format!("{id:08x}-{name}")
}

/// The maximum length of a note's text in bytes, far more than any service setting needs.
pub(crate) const NOTE_BYTES_MAX: usize = 512 << 10;
/// The number of bytes of a note's text that are stored in one property. A String has at most
/// 32,768 UTF-16 units, and no character has more units than UTF-8 bytes.
const PIECE_BYTES: usize = 32 << 10;

impl Catalog {
    /// Returns the note `name` of `table`, or of the database if `table` is `None`.
    ///
    /// # Errors
    /// `NotFound` (`TableNotFound`).
    pub(crate) fn note(&self, table: Option<&str>, name: &str) -> Result<Option<Arc<str>>> {
        let tables = self.tables.lock();
        Ok(tables.notes.get(&(tables.owner(table)?, name.to_owned())).cloned())
    }

    /// Sets the note `name` of `table`, or of the database if `table` is `None`; removes the note
    /// if `text` is `None`. The change is durable on return.
    ///
    /// # Errors
    /// `NotFound` (`TableNotFound`); `InvalidInput` for a text of more than 512 KiB; and the errors
    /// that any write may return.
    pub(crate) fn set_note(
        &self,
        table: Option<&str>,
        name: &str,
        text: Option<&str>,
    ) -> Result<()> {
        let mut tables = self.tables.lock();
        let key = (tables.owner(table)?, name.to_owned());
        let op = match text {
            Some(text) if text.len() > NOTE_BYTES_MAX => {
                let problem = format!("a note of more than {NOTE_BYTES_MAX} bytes");
                return Err(Error::refused_with(Code::InvalidInput, problem));
            }
            Some(text) => self.put_note(&key, text)?,
            None => self.delete_note(&key),
        };
        self.engine.commit(&self.batch(vec![op]), Durability::Sync)?;
        match text {
            Some(text) => tables.notes.insert(key, text.into()),
            None => tables.notes.remove(&key),
        };
        Ok(())
    }
}

impl Tables {
    fn owner(&self, table: Option<&str>) -> Result<u32> {
        let Some(name) = table else { return Ok(0) };
        let entry = self.by_name.get(&name.to_ascii_lowercase());
        let missing = || super::refused(Code::TableNotFound, name);
        entry.map(|entry| entry.gate.table.0).ok_or_else(missing)
    }
}

fn row(key: &NoteKey, text: &str) -> Entity {
    let mut row = Entity::new(NOTES, row_key(key)).with("Id", i64::from(key.0));
    let (mut rest, mut piece) = (text, 0);
    loop {
        let end = (0..=PIECE_BYTES.min(rest.len())).rev().find(|at| rest.is_char_boundary(*at));
        let (head, tail) = rest.split_at(end.unwrap_or(0));
        row.set(format!("Text{piece}"), head);
        if tail.is_empty() {
            return row;
        }
        (rest, piece) = (tail, piece + 1);
    }
}
