//! The position of a sync at its source: in a file, or in a cursor of the database, which another
//! process may have open.

use std::path::Path;
use std::sync::Arc;

use crate::db::{Cursor, Position};
use crate::error::{Error, ErrorKind, Result};
use crate::fs::Fs;
use crate::json::{self, Scalar};
use crate::store::locked_file::LockedFile;

/// Where the position is saved.
pub(super) enum Saved {
    Nowhere,
    File(LockedFile),
    Cursor(Cursor),
    Process(Box<Process>),
}

/// Asks the process that has the source open to save a position, or for the saved one. Returns the
/// saved one; `None` if there is none, or if the process does not answer. The position at the
/// target then counts.
pub(crate) type Process = dyn Fn(Option<Position>) -> Option<Position> + Send;

/// The contents of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) position: Option<Position>,
    /// The last error, if nothing was carried since.
    pub(crate) error: Option<String>,
}

/// The maximum length of the file.
const BYTES_MAX: u64 = 64 << 10;
/// The maximum length of an error in the file.
const ERROR_MAX: usize = 4_000;

impl Saved {
    /// Takes the lock of a file.
    pub(super) fn open(fs: Arc<dyn Fs>, path: &Path) -> Result<Self> {
        let file = LockedFile::open(fs, path, "sync")?;
        // Refuses another file before anything is carried.
        read_file(&file)?;
        Ok(Self::File(file))
    }

    pub(super) fn position(&self) -> Result<Option<Position>> {
        match self {
            Self::Nowhere => Ok(None),
            Self::File(file) => Ok(read_file(file)?.position),
            Self::Cursor(cursor) => cursor.position(),
            Self::Process(ask) => Ok(ask(None)),
        }
    }

    /// Saves the position. A cursor never moves back: it is then newer than the target, and the
    /// older of both counts. Nor does it take a position of another history, which the target keeps
    /// until a restored source was compared.
    pub(super) fn write(&self, position: Option<Position>) -> Result<()> {
        match (self, position) {
            (Self::File(file), _) => write_file(file, position, None),
            (Self::Cursor(cursor), Some(position)) if cursor.has_history_of(position) => {
                match cursor.position()? {
                    Some(known) if known.has_history_of(position) && known >= position => Ok(()),
                    _ => cursor.commit(position),
                }
            }
            (Self::Process(ask), Some(_)) => {
                ask(position);
                Ok(())
            }
            (Self::Cursor(_) | Self::Process(_) | Self::Nowhere, _) => Ok(()),
        }
    }

    /// Writes an error into a file, for people.
    pub(super) fn note(&self, position: Option<Position>, error: &Error) -> Result<()> {
        match self {
            Self::File(file) => write_file(file, position, Some(error)),
            Self::Cursor(_) | Self::Process(_) | Self::Nowhere => Ok(()),
        }
    }
}

fn write_file(file: &LockedFile, position: Option<Position>, error: Option<&Error>) -> Result<()> {
    let text = json::object(|object| {
        object.raw("version", 1);
        position.iter().for_each(|at| object.text("position", &at.to_string()));
        error.iter().for_each(|error| {
            let text: String = error.chain().chars().take(ERROR_MAX).collect();
            object.text("error", &text);
        });
    });
    file.replace(text.as_bytes())
}

fn read_file(file: &LockedFile) -> Result<State> {
    file.read(BYTES_MAX)?.map_or_else(
        || Ok(State::default()),
        |text| State::parse(&text).map_err(|_| file.refused("is not a state file of a sync")),
    )
}

impl State {
    /// Reads the contents of a file.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let members = json::read_object(text, 4)?;
        let member = |name: &str| {
            let member = members.iter().find(|(known, _)| known == name);
            member.map(|(_, value)| Scalar::read(value)).transpose()
        };
        let text = |name: &str| match member(name)? {
            Some(Scalar::String(text)) => Ok(Some(text.into_owned())),
            None => Ok(None),
            Some(_) => Err(Error::new(ErrorKind::InvalidInput, "not a text")),
        };
        // Of all state files, only that of a sync has neither slices nor a job.
        let version = members.iter().find(|(name, _)| name == "version").map(|(_, v)| v.get());
        if version != Some("1") || members.iter().any(|(name, _)| name == "job") {
            let text = "not the state of a sync";
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        let position = text("position")?.map(|text| text.parse()).transpose()?;
        Ok(Self { position, error: text("error")? })
    }
}
