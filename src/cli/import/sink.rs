//! The destination of an import's rows: a loader in this process, requests to the process that has
//! the database open, or requests to a Table service.

use std::io::{self, Write};

#[cfg(feature = "remote")]
use crate::cli::endpoint::{Service, create_missing_table};
use crate::cli::failure::{Failure, Outcome};
use crate::cli::writer::Writer;
use crate::error::ErrorKind;
use crate::json::exec::load_mode;
use crate::json::odata::{Metadata, entity_text, read_entity};
use crate::model::Entity;
#[cfg(feature = "remote")]
use crate::store::{load::StoreLoader, pages::Side};
use crate::table::{LoadMode, Loader, Rejected};

/// The size in bytes at which the collected entities are sent. The last of them may exceed it,
/// because a request may be much longer.
const REQUEST_BYTES: usize = 1 << 20;

/// The database or the service that receives the rows.
pub(super) enum Destination {
    Database(Writer),
    #[cfg(feature = "remote")]
    Service(Service),
}

pub(super) enum Sink<'w> {
    Here(Loader),
    There(Requests<'w>),
    #[cfg(feature = "remote")]
    Service(StoreLoader<'w>),
}

/// How rows are written.
#[derive(Clone, Copy)]
pub(super) struct Mode {
    pub(super) load: LoadMode,
    /// Whether a row that is in the table with equal properties is skipped.
    pub(super) resume: bool,
    /// Whether to print the number of the last input line after a group or a request.
    pub(super) ack: bool,
}

/// Collects rows and sends them to the process that has the database open.
pub(super) struct Requests<'w> {
    writer: &'w Writer,
    table: &'w str,
    mode: Mode,
    /// The numbers of the input lines of the collected entities.
    lines: Vec<u64>,
    /// The collected entities as JSON, separated by commas.
    entities: String,
    rejected: Vec<Rejected>,
    loaded: u64,
}

impl Destination {
    pub(super) fn create_missing_table(&self, table: &str) -> Outcome {
        match self {
            Self::Database(db) => db.create_missing_table(table),
            #[cfg(feature = "remote")]
            Self::Service(service) => create_missing_table(&**service, table),
        }
    }

    /// True if the row is to be skipped, because the table has an entity with its keys and its
    /// properties. The loader of a service finds such rows itself, group by group.
    pub(super) fn has(&self, table: &str, entity: &Entity) -> Outcome<bool> {
        match self {
            Self::Database(db) => is_present(db, table, entity),
            #[cfg(feature = "remote")]
            Self::Service(_) => Ok(false),
        }
    }

    pub(super) fn close(self) -> Outcome {
        match self {
            Self::Database(db) => db.close(),
            #[cfg(feature = "remote")]
            Self::Service(_) => Ok(()),
        }
    }
}

/// True if the table has an entity with the keys and the properties of `entity`.
fn is_present(writer: &Writer, table: &str, entity: &Entity) -> Outcome<bool> {
    let (pk, rk) = (entity.partition_key(), entity.row_key());
    let found = match writer {
        Writer::Here(db) => match db.table(table)?.get(pk, rk) {
            // The loader rejects a key that no entity can have.
            Err(error) if error.kind() == ErrorKind::InvalidInput => None,
            found => found?,
        },
        Writer::There(_) => {
            let answer = writer.ask("get", |request| {
                request.text("table", table);
                request.text("pk", pk);
                request.text("rk", rk);
            });
            match answer {
                Ok(answer) => {
                    answer.member("entity").map(|entity| read_entity(entity.get())).transpose()?
                }
                Err(Failure::Operation(error))
                    if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::NotFound) =>
                {
                    None
                }
                Err(failure) => return Err(failure),
            }
        }
    };
    Ok(found.is_some_and(|found| found.has_properties_of(entity)))
}

impl<'w> Sink<'w> {
    pub(super) fn new(to: &'w Destination, table: &'w str, mode: Mode) -> Outcome<Self> {
        match to {
            Destination::Database(writer) => Self::of_database(writer, table, mode),
            #[cfg(feature = "remote")]
            Destination::Service(service) => {
                let side = Side { store: &**service, table };
                let acknowledged: Option<fn(u64)> = if mode.ack { Some(acknowledge) } else { None };
                let loader = StoreLoader::new(side, mode.load, mode.resume, acknowledged);
                Ok(Self::Service(loader))
            }
        }
    }

    fn of_database(writer: &'w Writer, table: &'w str, mode: Mode) -> Outcome<Self> {
        let Writer::Here(db) = writer else {
            let (lines, entities, rejected) = (Vec::new(), String::new(), Vec::new());
            let requests = Requests { writer, table, mode, lines, entities, rejected, loaded: 0 };
            return Ok(Self::There(requests));
        };
        let loader = db.table(table)?.loader().mode(mode.load);
        Ok(Self::Here(if mode.ack { loader.on_acknowledged(acknowledge) } else { loader }))
    }

    pub(super) fn push(&mut self, line: u64, entity: Entity) -> Outcome {
        match self {
            Self::Here(loader) => Ok(loader.push(line, entity)?),
            Self::There(requests) => requests.push(line, &entity),
            #[cfg(feature = "remote")]
            Self::Service(loader) => Ok(loader.push(line, entity)?),
        }
    }

    /// Returns the rows rejected since the last call.
    pub(super) fn take_rejected(&mut self) -> Vec<Rejected> {
        match self {
            Self::Here(loader) => loader.take_rejected(),
            Self::There(requests) => std::mem::take(&mut requests.rejected),
            #[cfg(feature = "remote")]
            Self::Service(loader) => loader.take_rejected(),
        }
    }

    /// Blocks until all rows are loaded or rejected.
    pub(super) fn flush(&mut self) -> Outcome {
        match self {
            Self::Here(loader) => Ok(loader.flush()?),
            Self::There(requests) => requests.send(),
            #[cfg(feature = "remote")]
            Self::Service(loader) => Ok(loader.flush()?),
        }
    }

    /// Returns the numbers of rows that are loaded, and that the loader found in the table.
    pub(super) fn counts(&self) -> (u64, u64) {
        match self {
            Self::Here(loader) => (loader.summary().loaded, 0),
            Self::There(requests) => (requests.loaded, 0),
            #[cfg(feature = "remote")]
            Self::Service(loader) => loader.counts(),
        }
    }
}

impl Requests<'_> {
    fn push(&mut self, line: u64, entity: &Entity) -> Outcome {
        if !self.lines.is_empty() {
            self.entities.push(',');
        }
        self.lines.push(line);
        self.entities.push_str(&entity_text(entity, Metadata::MINIMAL));
        if self.entities.len() < REQUEST_BYTES { Ok(()) } else { self.send() }
    }

    fn send(&mut self) -> Outcome {
        let Some(last) = self.lines.last().copied() else { return Ok(()) };
        let answer = self.writer.ask("load", |request| {
            request.text("table", self.table);
            request.text("mode", load_mode(self.mode.load));
            request.raw("entities", format_args!("[{}]", self.entities));
        })?;
        let loaded = answer.number("loaded").unwrap_or_default();
        self.loaded += loaded;
        for Rejected { line, error } in answer.rejected()? {
            let line = usize::try_from(line).ok().and_then(|index| self.lines.get(index));
            let line = line.copied().unwrap_or_default();
            self.rejected.push(Rejected { line, error });
        }
        if self.mode.ack && loaded > 0 {
            acknowledge(last);
        }
        self.lines.clear();
        self.entities.clear();
        Ok(())
    }
}

/// Prints the line number up to which rows are durable. Ignores errors, because the program that
/// reads the output may have ended.
fn acknowledge(line: u64) {
    let mut output = io::stdout().lock();
    drop(writeln!(output, "{line}").and_then(|()| output.flush()));
}
