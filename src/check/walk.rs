//! Visits all keys of a damaged database in order, with every readable version and possible losses.
//!
//! Each table file is a source of entries in key order; the logs are one more source. Where blocks
//! of a file are lost, the file has a *gap*: a span of keys, and the file may have held any of
//! them. Sources are merged by key. A file is opened at its first key and closed after its last
//! one.
//!
//! A gap extends from the last key read before it to the first key read after it. It may hide older
//! versions of the key before it, and newer ones of the key after it. Memory is bounded by one
//! block of each open file, and the entries of the logs. `evidence` chooses among the versions.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::format::Kind;
use crate::format::file_meta::FileMeta;
use crate::format::names::{FileName, FileNumber};
use crate::fs::Fs;
use crate::model::{Row, Seq, Shapes};
use crate::sort::sort_by;
use crate::sst::{RemainingEntry, SalvageReader};

use super::logs::LogRows;

/// The first and the last key of a file.
pub(crate) type KeyBounds = (Box<[u8]>, Box<[u8]>);

/// A table file to be read.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) number: FileNumber,
    /// The metadata in the manifest, if it names the file.
    pub(crate) meta: Option<FileMeta>,
    /// The first and the last key of the file, as the manifest states them. For a file that the
    /// manifest does not name, they come from its statistics or its entries.
    pub(crate) keys: Option<KeyBounds>,
    pub(crate) seqs: (Seq, Seq),
    /// The number of entries, if known.
    pub(crate) entries: Option<u64>,
    /// The result of reading the file.
    pub(crate) outcome: Outcome,
}

/// The number of entries read from a file, the losses, and the problems.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) read: u64,
    /// The gaps as (first key, last key), both included. The file may have held any key of a gap.
    pub(crate) gaps: Vec<(Vec<u8>, Vec<u8>)>,
    /// The number of keys whose rows are unreadable. The next field is the first and the last of
    /// these keys.
    pub(crate) rows_lost: u64,
    pub(crate) rows_between: Option<(Vec<u8>, Vec<u8>)>,
    pub(crate) problems: Vec<String>,
    /// The first error about an unknown format, which is not damage: another build may be able to
    /// read the file.
    pub(crate) unsupported: Option<Error>,
}

impl Outcome {
    fn note(&mut self, problem: &Error) {
        if problem.kind() == ErrorKind::Unsupported && self.unsupported.is_none() {
            self.unsupported = Some(problem.clone());
        }
        self.problems.push(problem.chain());
    }
}

/// A version of a key.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) seq: Seq,
    pub(crate) kind: Kind,
    /// `None` for a tombstone, and for an unreadable row.
    pub(crate) row: Option<Row>,
    pub(crate) from: FoundIn,
}

/// The file in which a version was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundIn {
    /// The source with this index, a table file.
    Table(usize),
    /// The log with this number. The flag is true if the version was read after damage in the log.
    Log(FileNumber, bool),
}

/// The readable versions of one key, and the sources that may have lost other versions.
pub(crate) struct KeyFacts<'w> {
    pub(crate) key: &'w [u8],
    /// Versions, newest first.
    pub(crate) items: Vec<Item>,
    /// Indexes of sources with a gap at this key.
    pub(crate) gaps: Vec<usize>,
}

/// Keys that a file may have held in a damaged part.
struct Gap {
    low: Vec<u8>,
    /// Whether the newest version of `low` may be lost. False if `low` was read before the gap.
    is_low_lost: bool,
    high: Vec<u8>,
}

/// The reading position in a file.
struct Cursor {
    remains: Option<SalvageReader>,
    entries: VecDeque<RemainingEntry>,
    /// The gap between the previous entry and the current one, or between the last entry and the
    /// end of the file.
    gap: Option<Gap>,
    last: Option<Vec<u8>>,
}

/// A merge of all sources in key order.
pub(crate) struct Walk<'a> {
    fs: &'a dyn Fs,
    dir: PathBuf,
    shapes: &'a Shapes,
    pub(crate) sources: Vec<Source>,
    cursors: Vec<Option<Cursor>>,
    heap: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    /// Indexes of sources with a gap that may reach the current key or a later one.
    gapped: Vec<usize>,
    progress: &'a mut dyn FnMut(u64),
}

impl Source {
    /// Creates the source for a file that the manifest names.
    pub(crate) fn named(meta: &FileMeta) -> Source {
        Source {
            name: meta.number.sst_name(),
            number: meta.number,
            keys: Some((meta.key_min.clone(), meta.key_max.clone())),
            seqs: (meta.seq_min, meta.seq_max),
            entries: Some(meta.entries),
            meta: Some(meta.clone()),
            outcome: Outcome::default(),
        }
    }

    /// Creates the source for a file that the manifest does not name, from the file's own contents.
    pub(crate) fn found(fs: &dyn Fs, dir: &Path, number: FileNumber, shapes: &Shapes) -> Source {
        let name = FileName::Sst(number).to_string();
        let mut outcome = Outcome::default();
        let (mut keys, mut seqs, mut entries) = (None, (Seq::ZERO, Seq::MAX), None);
        match SalvageReader::open(fs, &dir.join(&name), None, shapes) {
            Ok(mut remains) => match remains.stats.take() {
                Some(stats) => {
                    keys = Some((stats.key_min, stats.key_max));
                    (seqs, entries) = ((stats.seq_min, stats.seq_max), Some(stats.entries));
                }
                None => keys = bounds(&mut remains),
            },
            Err(error) => outcome.note(&error),
        }
        Source { name, number, meta: None, keys, seqs, entries, outcome }
    }
}

/// Returns the first and the last readable key of a file.
fn bounds(remains: &mut SalvageReader) -> Option<KeyBounds> {
    let mut keys: Option<KeyBounds> = None;
    while let Some(entries) = remains.next_block() {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { continue };
        let first = keys.take().map_or_else(|| first.key.as_slice().into(), |(first, _)| first);
        keys = Some((first, last.key.as_slice().into()));
    }
    keys
}

impl<'a> Walk<'a> {
    /// Creates a walk over the files `sources` of `dir`. It calls `progress` with the size of each
    /// file read.
    pub(crate) fn new(
        fs: &'a dyn Fs,
        dir: &Path,
        shapes: &'a Shapes,
        sources: Vec<Source>,
        progress: &'a mut dyn FnMut(u64),
    ) -> Self {
        let first = |(i, source): (usize, &Source)| {
            source.keys.as_ref().map(|(first, _)| Reverse((first.to_vec(), i)))
        };
        let heap = sources.iter().enumerate().filter_map(first).collect();
        let cursors = sources.iter().map(|_| None).collect();
        let dir = dir.to_owned();
        Self { fs, dir, shapes, sources, cursors, heap, gapped: Vec::new(), progress }
    }

    /// Calls `visit` with every key that is readable in a table file or a log, in order.
    ///
    /// # Errors
    /// Errors of `visit`.
    pub(crate) fn run(
        &mut self,
        logs: &LogRows,
        mut visit: impl FnMut(KeyFacts<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut in_logs = logs.rows.iter().peekable();
        loop {
            let of_files = self.heap.peek().map(|Reverse((key, _))| key.as_slice());
            let of_logs = in_logs.peek().map(|(key, _)| key.as_slice());
            let Some(key) = [of_files, of_logs].into_iter().flatten().min().map(<[u8]>::to_vec)
            else {
                break;
            };
            let mut items = Vec::new();
            if let Some((_, entries)) = in_logs.next_if(|(other, _)| **other == key) {
                items.extend(entries.iter().map(|entry| Item {
                    seq: entry.seq,
                    kind: entry.kind,
                    row: entry.row.clone(),
                    from: FoundIn::Log(entry.file, entry.is_behind),
                }));
            }
            self.take(&key, &mut items);
            let gaps = self.gaps_at(&key);
            sort_by(&mut items, |a, b| b.seq.cmp(&a.seq));
            if !items.is_empty() {
                visit(KeyFacts { key: &key, items, gaps })?;
            }
        }
        Ok(())
    }

    /// Moves the entries of `key` from all files to `items`.
    fn take(&mut self, key: &[u8], items: &mut Vec<Item>) {
        while let Some(Reverse((next, i))) = self.heap.peek()
            && next == key
        {
            let i = *i;
            self.heap.pop();
            if self.cursors[i].is_none() {
                self.open(i);
            }
            self.take_of(i, key, items);
            if let Some(entry) = self.cursors[i].as_ref().and_then(|c| c.entries.front()) {
                self.heap.push(Reverse((entry.key.clone(), i)));
            }
        }
    }

    /// Moves all versions of `key` from file `i` to `items`. Loads further blocks as needed, so
    /// that the first queued entry then has the file's next key.
    fn take_of(&mut self, i: usize, key: &[u8], items: &mut Vec<Item>) {
        loop {
            let Some(cursor) = &mut self.cursors[i] else { return };
            match cursor.entries.front() {
                Some(entry) if entry.key == key => {}
                None if cursor.remains.is_some() => {
                    self.load(i);
                    continue;
                }
                _ => return,
            }
            let Some(entry) = cursor.entries.pop_front() else { return };
            let outcome = &mut self.sources[i].outcome;
            outcome.read += 1;
            if entry.kind == Kind::Put && entry.row.is_none() {
                outcome.rows_lost += 1;
                let first =
                    outcome.rows_between.take().map_or_else(|| key.to_vec(), |(first, _)| first);
                outcome.rows_between = Some((first, key.to_vec()));
            }
            cursor.last = Some(entry.key);
            let RemainingEntry { seq, kind, row, .. } = entry;
            items.push(Item { seq, kind, row, from: FoundIn::Table(i) });
            if cursor.entries.is_empty() {
                self.load(i);
            }
        }
    }

    fn open(&mut self, i: usize) {
        let source = &mut self.sources[i];
        let path = self.dir.join(&source.name);
        let remains = SalvageReader::open(self.fs, &path, source.meta.as_ref(), self.shapes);
        let mut cursor = Cursor { remains: None, entries: VecDeque::new(), gap: None, last: None };
        match remains {
            Ok(remains) => cursor.remains = Some(remains),
            Err(error) => {
                source.outcome.note(&error);
                if let Some((first, last)) = &source.keys {
                    let (low, high) = (first.to_vec(), last.to_vec());
                    cursor.gap = Some(Gap { low, is_low_lost: true, high });
                    source.outcome.gaps.push((first.to_vec(), last.to_vec()));
                    self.gapped.push(i);
                }
            }
        }
        self.cursors[i] = Some(cursor);
        self.load(i);
    }

    /// Loads the next block of file `i`. Records a gap if keys were lost before that block or at
    /// the end of the file.
    fn load(&mut self, i: usize) {
        let (Some(cursor), source) = (&mut self.cursors[i], &mut self.sources[i]) else { return };
        let Some(remains) = &mut cursor.remains else { return };
        let block = remains.next_block();
        let bounds = source.keys.clone().unwrap_or_default();
        if remains.has_gap {
            let low = cursor.last.clone().unwrap_or_else(|| bounds.0.to_vec());
            let next = block.as_ref().and_then(|entries| entries.first());
            let high = next.map_or_else(|| bounds.1.to_vec(), |entry| entry.key.clone());
            source.outcome.gaps.push((low.clone(), high.clone()));
            // Extends a previous gap that ends at `low`. The entry at `low` was not visited yet,
            // and the previous gap may have held newer versions of it.
            let touching = cursor.gap.take().filter(|gap| gap.high >= low);
            let (low, is_low_lost) =
                touching.map_or((low, cursor.last.is_none()), |gap| (gap.low, gap.is_low_lost));
            cursor.gap = Some(Gap { low, is_low_lost, high });
            if !self.gapped.contains(&i) {
                self.gapped.push(i);
            }
        }
        match block {
            Some(entries) => cursor.entries.extend(entries),
            None => {
                remains.problems.iter().for_each(|problem| source.outcome.note(problem));
                cursor.remains = None;
                (self.progress)(source.meta.as_ref().map_or(0, |meta| meta.bytes));
            }
        }
    }

    /// Returns the indexes of the sources that may have lost versions of `key`.
    fn gaps_at(&mut self, key: &[u8]) -> Vec<usize> {
        let mut at = Vec::new();
        let cursors = &self.cursors;
        self.gapped.retain(|i| {
            let gap = cursors[*i].as_ref().and_then(|cursor| cursor.gap.as_ref());
            let Some(Gap { low, is_low_lost, high }) = gap else { return false };
            let is_begun = low.as_slice() < key || *is_low_lost && low.as_slice() == key;
            if is_begun && key <= high.as_slice() {
                at.push(*i);
            }
            key <= high.as_slice()
        });
        at
    }
}
