//! Collects the readable data of a damaged, closed database, and finds each key's current version.
//!
//! These rules decide which data count as proven:
//! * A whole manifest proves which files are live. An incomplete manifest proves only that files
//!   removed by a readable manifest edit are not live. Any other file may be live.
//! * Log commits are proven up to the first lost commit; later commits are not part of the state.
//! * A row is proven if no file that may hold a newer version of its key lost data at that key.
//!   Otherwise it is *suspect*: lost data may have overwritten or deleted it.
//!
//! This module writes no files; `db::repair` writes the new database.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Doing, Error, ErrorKind, Result};
use crate::format::Kind;
use crate::format::key::table_of;
use crate::format::names::{FileName, FileNumber, TableId};
use crate::format::span::Span;
use crate::fs::{FileLock, Fs};
use crate::lsm::RangeTombstones;
use crate::manifest::{SalvagedManifest, salvaged};
use crate::model::{Seq, Shapes};
use crate::sort::SortedMap;

use super::logs::{LogRows, read_all, read_proven, vouched_manifest};
use super::walk::{FoundIn, Item, KeyFacts, Source, Walk};

/// The readable data of a damaged database.
pub(crate) struct Evidence {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    pub(crate) shapes: Shapes,
    pub(crate) salvaged: SalvagedManifest,
    pub(crate) logs: LogRows,
    range_tombstones: RangeTombstones,
    pub(crate) dropped: SortedMap<TableId, Seq>,
    pub(crate) sources: Vec<Source>,
    /// Existing table files that the manifest does not name.
    pub(crate) unnamed: Vec<FileNumber>,
    /// Held, if the directory could be locked, so that no other process changes it.
    _lock: Option<Box<dyn FileLock>>,
}

/// Which data to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breadth {
    /// Only data of the proven state: files that the manifest names, and logs up to the damage.
    Proven,
    /// All readable data.
    All,
}

/// The conclusion about the current version of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The item with this index is the current row.
    Live(usize),
    /// The item with this index is the newest one that can be read, but a newer one may be lost.
    Suspect(usize),
    /// The key is deleted, either by a tombstone of its own or with a deleted span of keys or a
    /// deleted table.
    Gone,
    /// The newest version is a row that cannot be read.
    RowLost,
}

/// The maximum memory for shapes (lists of property names and types), in bytes. The limit is
/// generous, because no cache competes for memory here.
const SHAPE_BYTES: usize = 64 << 20;

impl Evidence {
    /// Reads the manifest and the logs in `dir`, and finds the table files.
    ///
    /// # Errors
    /// `NotFound` if there is no such directory, or no database in it; `Locked` if it is open;
    /// `Unsupported` for files of a newer build; `Io`.
    pub(crate) fn gather(fs: &Arc<dyn Fs>, dir: &Path, breadth: Breadth) -> Result<Evidence> {
        if !fs.exists(dir).doing("look at", dir)? {
            let problem = format!("there is no directory {}", dir.display());
            return Err(Error::new(ErrorKind::NotFound, problem));
        }
        let lock = lock(&**fs, dir)?;
        let tables = tables_in(&**fs, dir)?;
        let salvaged = salvaged(fs, dir, vouched_manifest(&**fs, dir))?;
        let version = &salvaged.version;
        let is_whole = salvaged.doubt.is_none();
        if !is_whole && version.identity.is_none() && tables.is_empty() {
            let names = fs.list(dir).doing("look at", dir)?;
            // A lock file does not prove that there is a database, because a directory of backups
            // also has one. A control socket is not part of a database.
            let is_of_database = |name: &String| {
                let name = FileName::parse(name);
                name.is_some_and(|name| !matches!(name, FileName::Lock | FileName::Control))
            };
            if !names.iter().any(is_of_database) {
                let problem = format!("there is no database in {}", dir.display());
                return Err(Error::new(ErrorKind::NotFound, problem));
            }
        }
        let shapes = Shapes::new(SHAPE_BYTES);
        let logs = match breadth {
            Breadth::Proven if is_whole => read_proven(&**fs, dir, version, &shapes)?,
            Breadth::All if is_whole => {
                read_proven(&**fs, dir, version, &shapes)?.with_rest(read_all(&**fs, dir, &shapes)?)
            }
            _ => read_all(&**fs, dir, &shapes)?,
        };
        let is_named = |number: &FileNumber| version.file(*number).is_some();
        let unnamed: Vec<FileNumber> =
            tables.iter().filter(|number| !is_named(number)).copied().collect();
        let is_there = |source: &Source| tables.contains(&source.number);
        let named = version.files().map(|file| Source::named(&file.meta));
        // An incomplete manifest may name files that lost edits removed, so files that do not exist
        // are skipped.
        let mut sources: Vec<Source> = named.filter(|s| is_whole || is_there(s)).collect();
        if !is_whole || breadth == Breadth::All {
            let is_read = |number: &&FileNumber| {
                breadth == Breadth::All || !salvaged.removed.contains(number)
            };
            let found = |number: &FileNumber| Source::found(&**fs, dir, *number, &shapes);
            sources.extend(unnamed.iter().filter(is_read).map(found));
        }
        let range_tombstones =
            version.range_tombstones.iter().chain(&logs.range_tombstones).cloned().collect();
        let mut dropped = version.dropped.clone();
        dropped.extend(logs.dropped.iter().map(|(table, seq)| (*table, *seq)));
        Ok(Evidence {
            fs: Arc::clone(fs),
            dir: dir.to_owned(),
            range_tombstones: RangeTombstones::new(range_tombstones, Seq::ZERO),
            dropped,
            shapes,
            logs,
            sources,
            unnamed,
            salvaged,
            _lock: lock,
        })
    }

    /// Whether the manifest is whole, and so proves which files are live.
    pub(crate) fn is_whole(&self) -> bool {
        self.salvaged.doubt.is_none()
    }

    /// Returns the total size of the files to read, as far as the manifest states it.
    pub(crate) fn bytes(&self) -> u64 {
        self.sources.iter().filter_map(|source| source.meta.as_ref()).map(|meta| meta.bytes).sum()
    }

    /// Returns the first error that reports a format of a newer build instead of damage. Such
    /// errors are known only after the files were read.
    pub(crate) fn unsupported(&self) -> Option<&Error> {
        self.sources.iter().find_map(|source| source.outcome.unsupported.as_ref())
    }

    /// Returns the Seq (sequence number) of the last commit in the proven state.
    pub(crate) fn as_of(&self) -> Seq {
        self.logs.last.max(self.salvaged.version.flushed_seq)
    }

    /// Returns an upper bound of all Seqs that were ever assigned, as far as the readable data
    /// show.
    pub(crate) fn seq_max(&self) -> Seq {
        let files = self.sources.iter().map(|source| source.seqs.1).filter(|seq| *seq < Seq::MAX);
        let known =
            files.chain([self.logs.last, self.logs.seq_reservation]).max().unwrap_or_default();
        known.max(self.salvaged.version.seq_max())
    }

    /// Calls `visit` for every readable key, in order, with the versions found and the conclusion
    /// about them. Afterwards each element of `sources` describes the losses of its file.
    ///
    /// # Errors
    /// Errors of `visit`.
    pub(crate) fn walk(
        &mut self,
        progress: &mut dyn FnMut(u64),
        mut visit: impl FnMut(&Evidence, &KeyFacts<'_>, Verdict) -> Result<()>,
    ) -> Result<()> {
        let this = &*self;
        let sources = this.sources.clone();
        let mut walk = Walk::new(&*this.fs, &this.dir, &this.shapes, sources, progress);
        walk.run(&this.logs, |facts| visit(this, &facts, this.judge(&facts)))?;
        self.sources = walk.sources;
        Ok(())
    }

    fn judge(&self, facts: &KeyFacts<'_>) -> Verdict {
        let key = facts.key;
        if table_of(key).is_some_and(|table| self.dropped.contains_key(&table)) {
            return Verdict::Gone;
        }
        let floor = self.range_tombstones.floor(key, Seq::MAX);
        let newest = facts.items.iter().position(|item| self.counts(item, key));
        let Some((at, item)) = newest.and_then(|at| Some((at, facts.items.get(at)?))) else {
            return Verdict::Gone;
        };
        if item.seq < floor {
            // An imported row may have a lower Seq than the deletion of its span, and still be
            // live. With an incomplete manifest, such a row looks like a row that the deletion
            // removed.
            let is_doubted = !self.is_whole() && item.kind == Kind::Put && item.row.is_some();
            return if is_doubted { Verdict::Suspect(at) } else { Verdict::Gone };
        }
        let hides = |i: &usize| {
            self.holds(*i, key) && self.sources.get(*i).is_some_and(|s| s.seqs.1 > item.seq)
        };
        let is_suspect = !self.is_whole() || facts.gaps.iter().any(hides);
        match (item.kind, &item.row) {
            (Kind::Delete, _) => Verdict::Gone,
            (Kind::Put, None) => Verdict::RowLost,
            (Kind::Put, Some(_)) if is_suspect => Verdict::Suspect(at),
            (Kind::Put, Some(_)) => Verdict::Live(at),
        }
    }

    /// Returns the name of the file that contains `item`.
    pub(crate) fn file_of(&self, item: &Item) -> String {
        match item.from {
            FoundIn::Table(i) => self.sources.get(i).map(|source| source.name.clone()),
            FoundIn::Log(number, _) => Some(FileName::Wal(number).to_string()),
        }
        .unwrap_or_default()
    }

    /// Whether `item` is part of the proven state. Returns false for an item of a table file that,
    /// according to the manifest, no longer holds the key (for example after compaction). If the
    /// manifest is whole, also returns false for a log entry after damage.
    pub(crate) fn counts(&self, item: &Item, key: &[u8]) -> bool {
        match item.from {
            FoundIn::Table(i) => self.holds(i, key),
            FoundIn::Log(_, is_behind) => !self.is_whole() || !is_behind,
        }
    }

    /// Whether a file may be live although the manifest is incomplete. Returns false if a readable
    /// manifest edit removed the file.
    fn may_be_live(&self, number: Option<FileNumber>) -> bool {
        number.is_none_or(|number| !self.salvaged.removed.contains(&number))
    }

    /// Whether source `i` may hold the current version of `key`, according to the manifest.
    fn holds(&self, i: usize, key: &[u8]) -> bool {
        let number = self.sources.get(i).map(|source| source.number);
        if !self.is_whole() {
            return self.may_be_live(number);
        }
        self.salvaged.version.sources(key).any(|r| Some(r.file.meta.number) == number)
    }

    /// Whether source `i` may hold the current version of any key from `low` to `high`.
    pub(crate) fn holds_any(&self, i: usize, low: &[u8], high: &[u8]) -> bool {
        let number = self.sources.get(i).map(|source| source.number);
        if !self.is_whole() {
            return self.may_be_live(number);
        }
        let span = Span::inclusive(low, high);
        self.salvaged.version.ranges_in(&span).iter().any(|range| {
            range.references().any(|(_, reference)| {
                Some(reference.file.meta.number) == number && reference.clip.overlaps(&span)
            })
        })
    }
}

/// Locks the directory if it has a lock file; does not create one.
fn lock(fs: &dyn Fs, dir: &Path) -> Result<Option<Box<dyn FileLock>>> {
    let path = dir.join(FileName::Lock.to_string());
    if !fs.exists(&path).unwrap_or(false) {
        return Ok(None);
    }
    match fs.lock(&path) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            let problem = format!("{} is open: close it there first", dir.display());
            Err(Error::new(ErrorKind::Locked, problem))
        }
        // Continues without a lock. Locking also fails on a read-only medium, which no process can
        // change.
        Err(_) => Ok(None),
    }
}

/// Returns the existing table files.
fn tables_in(fs: &dyn Fs, dir: &Path) -> Result<Vec<FileNumber>> {
    let names = fs.list(dir).doing("list", dir)?;
    let number = |name: &String| match FileName::parse(name) {
        Some(FileName::Sst(number)) => Some(number),
        _ => None,
    };
    Ok(names.iter().filter_map(number).collect())
}
