//! The state of a sync, as another process sees it.

use std::path::Path;

use super::mark;
use super::saved::State;
use crate::db::Position;
use crate::error::{Doing, ErrorKind, Result};
use crate::fs::{DiskFs, read_small};
use crate::store::source::{Lag, Source};
use crate::store::table_store::TableStore;

/// The progress of a sync.
pub(crate) struct Report {
    /// The position at the target.
    pub(crate) position: Option<Position>,
    /// The newest durable commit of the source.
    pub(crate) newest: Position,
    /// The changes that are not carried yet. `None` if they are not known: before the first
    /// comparison has ended, and if the changes are no longer kept or of another history.
    pub(crate) lag: Option<Lag>,
    /// Whether a sync runs, or was killed.
    pub(crate) is_open: bool,
    pub(crate) problems: u64,
}

/// The maximum length of a state file.
const BYTES_MAX: u64 = 64 << 10;

impl Report {
    /// Reads the position row at the target, and the feed of the source.
    pub(crate) fn read(source: &Source, target: &dyn TableStore, name: &str) -> Result<Self> {
        let found = mark::read_at(target, name)?.unwrap_or_default();
        let lag = match found.position.map(|position| source.lag(position)).transpose() {
            Err(error) if error.kind() == ErrorKind::ChangesLost => None,
            lag => lag?,
        };
        Ok(Self {
            position: found.position,
            newest: source.view()?.position(),
            lag,
            is_open: found.is_open,
            problems: found.problems,
        })
    }
}

/// Returns the last error in a state file.
pub(crate) fn error_in(path: &Path) -> Result<Option<String>> {
    let bytes = read_small(&DiskFs::new(), path, BYTES_MAX).doing("read", path)?;
    Ok(State::parse(&String::from_utf8_lossy(&bytes))?.error)
}
