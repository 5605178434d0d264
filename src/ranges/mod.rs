//! Contiguous key ranges, each with references to parts of files: *young* files, which may overlap,
//! and an older *sorted run*. This module does no I/O and is generic over the file type.
//!
//! Invariants, enforced by [`Range::check`] and [`RangeMap::change`]
//! * ranges do not overlap, so a key belongs to at most one;
//! * a reference is inside its range, and a range references a file once;
//! * of two references that overlap, all entries of one file are older than all of the other. Every
//!   pair is compared, because comparing only neighbours would not prove this;
//! * young references are ordered newest first. The references of the sorted run ascend and do not
//!   overlap.

mod chains;
pub(crate) mod decide;
pub(crate) mod divide;
pub(crate) mod load;
mod map;
pub(crate) mod sketch;

pub(crate) use chains::{Chain, chains};
pub(crate) use map::RangeMap;

use crate::format::edit::Placement;
use crate::format::names::{FileNumber, RangeId, TableId};
use crate::format::span::Span;
use crate::model::Seq;
use crate::sort::sort_by;

/// The properties of a file that a range needs.
pub(crate) trait RangeFile {
    fn number(&self) -> FileNumber;
    /// Returns the Seqs of the oldest and the newest entry.
    fn seqs(&self) -> (Seq, Seq);
    /// Returns the length in bytes.
    fn bytes(&self) -> u64;
}

/// The part of a file that belongs to a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference<F> {
    pub(crate) file: F,
    /// The keys of the file that belong to the range.
    pub(crate) clip: Span,
    /// The approximate bytes of the file that belong to the range.
    pub(crate) bytes: u64,
}

impl<F: RangeFile> Reference<F> {
    /// Creates a reference to the part of `file` in `clip`, which has about `bytes` bytes. `None`
    /// means all bytes of the file.
    pub(crate) fn new(file: F, clip: Span, bytes: Option<u64>) -> Self {
        let bytes = bytes.unwrap_or_else(|| file.bytes());
        Self { file, clip, bytes }
    }

    /// Returns the number of bytes as a version edit stores it: `None` for the size of the file.
    pub(crate) fn bytes_meta(&self) -> Option<u64> {
        (self.bytes != self.file.bytes()).then_some(self.bytes)
    }
}

/// A contiguous key span and the files that contain its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range<F> {
    pub(crate) id: RangeId,
    pub(crate) table: TableId,
    pub(crate) span: Span,
    /// The young references, newest first. They may overlap.
    pub(crate) young: Vec<Reference<F>>,
    /// The references of the sorted run, in key order and without overlap. Each is older than any
    /// young reference that it overlaps.
    pub(crate) run: Vec<Reference<F>>,
}

impl<F: RangeFile> Range<F> {
    /// Creates an empty range.
    pub(crate) fn new(id: RangeId, table: TableId, span: Span) -> Self {
        Self { id, table, span, young: Vec::new(), run: Vec::new() }
    }

    /// Returns the approximate bytes of the range: of each file, only the part inside the range
    /// counts.
    pub(crate) fn bytes(&self) -> u64 {
        self.references().map(|(_, reference)| reference.bytes).sum()
    }

    /// Returns the references that may contain `key`, newest first.
    pub(crate) fn sources<'a>(
        &'a self,
        key: &'a [u8],
    ) -> impl Iterator<Item = &'a Reference<F>> + 'a {
        let young = self.young.iter().filter(move |reference| reference.clip.contains(key));
        young.chain(self.run_at(key))
    }

    /// Returns the reference of the run that may contain `key`.
    pub(crate) fn run_at(&self, key: &[u8]) -> Option<&Reference<F>> {
        let at = self.run.partition_point(|reference| reference.clip.ends_before(key));
        // The reference found does not end before the key, so only its start must still be
        // compared.
        self.run.get(at).filter(|reference| *reference.clip.low <= *key)
    }

    /// Returns the references of the run that overlap `span`.
    pub(crate) fn run_in(&self, span: &Span) -> &[Reference<F>] {
        let from = self.run.partition_point(|reference| reference.clip.ends_before(&span.low));
        let rest = &self.run[from..];
        let len = rest.partition_point(|reference| !span.ends_before(&reference.clip.low));
        &rest[..len]
    }

    /// Returns all references: the young ones, newest first, and then the run.
    pub(crate) fn references(&self) -> impl Iterator<Item = (Placement, &Reference<F>)> {
        let young = self.young.iter().map(|reference| (Placement::Young, reference));
        young.chain(self.run.iter().map(|reference| (Placement::Run, reference)))
    }

    /// Adds a reference at its place in the order. The reference may violate an invariant, so the
    /// caller must call [`check`](Self::check) afterwards.
    pub(crate) fn add(&mut self, placement: Placement, reference: Reference<F>) {
        let age = |reference: &Reference<F>| {
            let (seq_min, seq_max) = reference.file.seqs();
            (seq_max, seq_min, reference.file.number())
        };
        match placement {
            Placement::Young => {
                let new = age(&reference);
                let at = self.young.partition_point(|other| age(other) > new);
                self.young.insert(at, reference);
            }
            Placement::Run => {
                let low = &reference.clip.low;
                let at = self.run.partition_point(|other| other.clip.low < *low);
                self.run.insert(at, reference);
            }
        }
    }

    /// Removes and returns the reference to `file`.
    pub(crate) fn remove(&mut self, file: FileNumber) -> Option<Reference<F>> {
        for references in [&mut self.young, &mut self.run] {
            if let Some(at) = references.iter().position(|r| r.file.number() == file) {
                return Some(references.remove(at));
            }
        }
        None
    }

    /// Returns an error if an invariant is violated.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (_, reference) in self.references() {
            if reference.clip.is_empty() || !self.span.covers(&reference.clip) {
                let (file, clip) = (reference.file.number(), &reference.clip);
                return Err(self.problem(format!("file {file} {clip} is not inside {}", self.span)));
            }
        }
        for pair in self.run.windows(2) {
            let [a, b] = pair else { continue };
            if !a.clip.ends_before(&b.clip.low) {
                return Err(self.pair("overlap in the run", a, b));
            }
        }
        for (i, newer) in self.young.iter().enumerate() {
            let older = self.young[i + 1..].iter();
            let older = older.filter(|older| older.clip.overlaps(&newer.clip));
            for older in older.chain(self.run_in(&newer.clip)) {
                if newer.file.seqs().0 <= older.file.seqs().1 {
                    return Err(self.pair("overlap in keys and Seqs", newer, older));
                }
            }
        }
        let mut files: Vec<_> = self.references().map(|(_, r)| r.file.number()).collect();
        sort_by(&mut files, Ord::cmp);
        match files.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(self.problem(format!("file {} is referenced twice", pair[0]))),
            None => Ok(()),
        }
    }

    fn pair(&self, what: &str, a: &Reference<F>, b: &Reference<F>) -> String {
        let text = |reference: &Reference<F>| {
            let (seq_min, seq_max) = reference.file.seqs();
            format!("{} #{seq_min}..#{seq_max} {}", reference.file.number(), reference.clip)
        };
        self.problem(format!("files {} and {} {what}", text(a), text(b)))
    }

    fn problem(&self, what: String) -> String {
        format!("range r{}: {what}", self.id.0)
    }
}

#[cfg(test)]
mod tests;
