//! A damaged database, offline: what there is to go by, and what can be proven of a key.
//!
//! What is proven
//! * which files count, if the manifest is whole (`manifest::salvage`); else nothing is, for a file that nobody knows
//!   of any more may have held something newer;
//! * the commits of the logs up to the first that is lost: the state is that of its moment, and what was read behind it
//!   does not count;
//! * a row, if no file that may hold something newer has a gap where its key lies. Otherwise it is *suspect*: it may have
//!   been overwritten or deleted by what is lost.
//!
//! Nothing is written. Not here: the new database (`db::repair`), what is done with suspect rows (its caller).

use std::collections::BTreeMap;
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

use super::logs::{LogRows, read_all, read_proven, vouched_manifest};
use super::walk::{FoundIn, Item, KeyFacts, Source, Walk};

/// See the module.
pub(crate) struct Evidence {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    pub(crate) shapes: Shapes,
    pub(crate) salvaged: SalvagedManifest,
    pub(crate) logs: LogRows,
    range_tombstones: RangeTombstones,
    pub(crate) dropped: BTreeMap<TableId, Seq>,
    pub(crate) sources: Vec<Source>,
    /// Table files that are there and that the manifest does not name.
    pub(crate) unnamed: Vec<FileNumber>,
    /// Nobody else changes the directory meanwhile.
    _lock: Option<Box<dyn FileLock>>,
}

/// How much is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breadth {
    /// What counts: files that the manifest names, logs up to damage.
    Proven,
    /// Everything that can be read.
    All,
}

/// What can be said of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// This item is its row.
    Live(usize),
    /// This item is the newest that is left; something newer may be lost.
    Suspect(usize),
    /// It is deleted, or a drop took it.
    Gone,
    /// It has a row, which cannot be read.
    RowLost,
}

/// What shapes may take: nobody else's memory is at stake.
const SHAPE_BYTES: usize = 64 << 20;

impl Evidence {
    /// Gathers what is in `dir`.
    ///
    /// # Errors
    /// `NotFound` if there is no such directory; `Locked` if it is open; `Unsupported` for what a newer build wrote; `Io`.
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
            // A directory of backups has a lock, too.
            let is_of_database =
                |name: &String| FileName::parse(name).is_some_and(|name| name != FileName::Lock);
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
        // What a manifest that is not the last word names may long be gone.
        let mut sources: Vec<Source> = named.filter(|s| is_whole || is_there(s)).collect();
        if !is_whole || breadth == Breadth::All {
            let found = |number: &FileNumber| Source::found(&**fs, dir, *number, &shapes);
            sources.extend(unnamed.iter().map(found));
        }
        let range_tombstones =
            version.range_tombstones.iter().chain(&logs.range_tombstones).cloned().collect();
        let mut dropped = version.dropped.clone();
        dropped.extend(&logs.dropped);
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

    /// True if the manifest proves which files count.
    pub(crate) fn is_whole(&self) -> bool {
        self.salvaged.doubt.is_none()
    }

    /// Bytes of the files to be read.
    pub(crate) fn bytes(&self) -> u64 {
        self.sources.iter().filter_map(|source| source.meta.as_ref()).map(|meta| meta.bytes).sum()
    }

    /// What keeps this build from reading a file that is not damaged; known once it was tried.
    pub(crate) fn unsupported(&self) -> Option<&Error> {
        self.sources.iter().find_map(|source| source.outcome.unsupported.as_ref())
    }

    /// The moment of the state that is proven.
    pub(crate) fn as_of(&self) -> Seq {
        self.logs.last.max(self.salvaged.version.flushed_seq)
    }

    /// No Seq above this was ever given out, as far as anything tells.
    pub(crate) fn seq_max(&self) -> Seq {
        let files = self.sources.iter().map(|source| source.seqs.1).filter(|seq| *seq < Seq::MAX);
        let known =
            files.chain([self.logs.last, self.logs.seq_reservation]).max().unwrap_or_default();
        known.max(self.salvaged.version.seq_max())
    }

    /// Calls `visit` with every key that can be read, in order, and what can be said of it; afterwards `sources` say what was
    /// lost.
    ///
    /// # Errors
    /// Those of `visit`.
    pub(crate) fn walk(
        &mut self,
        progress: &mut dyn FnMut(u64),
        mut visit: impl FnMut(&Evidence, &KeyFacts<'_>, Verdict) -> Result<()>,
    ) -> Result<()> {
        let this = &*self;
        let sources = this.sources.clone();
        let mut walk = Walk::new(&*this.fs, &this.dir, &this.shapes, sources, progress);
        walk.run(&this.logs, |facts| {
            let verdict = this.judge(&facts);
            visit(this, &facts, verdict)
        })?;
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
            // Rows that came in as files are older than what was deleted there before: only a whole manifest tells.
            let was_put = item.kind == Kind::Put && item.row.is_some();
            let is_doubted = !self.is_whole() && was_put;
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

    /// False for what was merged away, and for what stands behind damage of a log, if the manifest is whole.
    pub(crate) fn counts(&self, item: &Item, key: &[u8]) -> bool {
        match item.from {
            FoundIn::Table(i) => self.holds(i, key),
            FoundIn::Log(_, is_behind) => !self.is_whole() || !is_behind,
        }
    }

    /// True if source `i` is asked for `key`: the manifest says so, or nothing can be said.
    fn holds(&self, i: usize, key: &[u8]) -> bool {
        if !self.is_whole() {
            return true;
        }
        let number = self.sources.get(i).map(|source| source.number);
        self.salvaged.version.range_for(key).is_some_and(|range| {
            let mut references = range.references();
            references.any(|(_, r)| Some(r.file.meta.number) == number && r.clip.contains(key))
        })
    }

    /// False if everything of source `i` from `low` to `high` was merged away.
    pub(crate) fn holds_any(&self, i: usize, low: &[u8], high: &[u8]) -> bool {
        if !self.is_whole() {
            return true;
        }
        let number = self.sources.get(i).map(|source| source.number);
        let span = Span::inclusive(low, high);
        let version = &self.salvaged.version;
        version.ranges_in(&span).iter().any(|range| {
            range.references().any(|(_, reference)| {
                Some(reference.file.meta.number) == number && reference.clip.overlaps(&span)
            })
        })
    }
}

/// Takes the lock of the directory, if it has one: nothing is created there.
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
        // A medium that cannot be written to is not changed by anybody.
        Err(_) => Ok(None),
    }
}

/// The table files there are.
fn tables_in(fs: &dyn Fs, dir: &Path) -> Result<Vec<FileNumber>> {
    let names = fs.list(dir).doing("list", dir)?;
    let number = |name: &String| match FileName::parse(name) {
        Some(FileName::Sst(number)) => Some(number),
        _ => None,
    };
    Ok(names.iter().filter_map(number).collect())
}
