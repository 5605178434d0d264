//! Reads a key span backwards.
//!
//! Keys are visited from the last to the first, over all sources, and the row of each key is found
//! by a point read. In reverse order a source returns the versions of a key oldest first, so the
//! newest is known only after all others. A point read costs less than remembering a candidate from
//! each source.
//!
//! Invariant: every key in the span, of every source, is visited in descending order.
//! Not here: scanning forwards (`scan`).

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::span::Span;
use crate::manifest::FileEntry;
use crate::memtable::MemtableIter;
use crate::model::{Row, Seq};
use crate::ranges::Chain;
use crate::sst::SstIter;

use super::row_filter::{RowFilter, ScanRow, Step};
use super::scan::{ReadView, VERSIONS_MAX};
use crate::lsm::Env;

/// Reads the rows of a key span as of one Seq, last to first.
pub(crate) struct ReverseScan {
    view: ReadView,
    low: Box<[u8]>,
    sources: Vec<Source>,
    /// The key that was last looked up. All sources are positioned below it.
    key: Vec<u8>,
    found: Option<(Seq, Row)>,
    /// The number of keys looked up so far.
    pub(crate) rows: u64,
    failed: Option<Error>,
}

enum Source {
    Memory(MemtableIter),
    Files(Box<Files>),
}

/// Non-overlapping files, read from the last to the first.
struct Files {
    /// The files not read completely yet, in ascending key order. The last one is being read.
    files: Chain<Arc<FileEntry>>,
    iter: Option<SstIter>,
}

impl ReadView {
    /// Reads the rows of `span`, last to first.
    pub(crate) fn scan_reverse(&self, span: &Span) -> Result<ReverseScan> {
        let memory = self.view.memtables.iter().filter(|slot| !slot.memtable.is_empty());
        let mut sources: Vec<Source> =
            memory.map(|slot| Source::Memory(slot.memtable.iter())).collect();
        let chains = self.view.chains(span, self.at);
        let files = chains.into_iter().map(|files| Box::new(Files { files, iter: None }));
        sources.extend(files.map(Source::Files));
        let high = span.high.as_deref();
        for source in &mut sources {
            source.seek_below(&self.env, high)?;
        }
        Ok(ReverseScan {
            view: self.clone(),
            low: span.low.clone(),
            sources,
            key: Vec::new(),
            found: None,
            rows: 0,
            failed: None,
        })
    }
}

impl ReverseScan {
    /// Moves down to the next visible row that matches. Pauses after `rows_max` keys.
    ///
    /// # Errors
    /// Damage and disk errors, which every later call returns too; errors of the filter.
    pub(crate) fn advance_where(
        &mut self,
        filter: &mut impl RowFilter,
        rows_max: u64,
    ) -> Result<Step> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let step = self.try_advance(filter, rows_max);
        self.failed = step.as_ref().err().cloned();
        step
    }

    /// Returns the current row. The scan must be positioned on a row.
    pub(crate) fn row(&self) -> Result<ScanRow<'_>> {
        match &self.found {
            Some((seq, row)) => Ok(ScanRow { key: &self.key, seq: *seq, row: row.as_ref() }),
            None => Err(Error::corrupt("scan".as_ref(), 0, "iterator", "no current row")),
        }
    }

    /// Returns the last visited key. All keys above it were read.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// True if a key was visited and the scan has not ended.
    pub(crate) fn is_valid(&self) -> bool {
        self.rows > 0
    }

    fn try_advance(&mut self, filter: &mut impl RowFilter, rows_max: u64) -> Result<Step> {
        let pause_at = self.rows.saturating_add(rows_max);
        while self.step()? {
            self.rows += 1;
            let key = &self.key;
            let found = self.view.get(key, |seq, row| {
                let row = ScanRow { key, seq, row };
                Ok(filter.matches(&row)?.then(|| (seq, row.row.to_row())))
            })?;
            self.found = found.flatten();
            if self.found.is_some() {
                return Ok(Step::Row);
            }
            if self.rows >= pause_at {
                return Ok(Step::Pause);
            }
        }
        self.found = None;
        Ok(Step::End)
    }

    /// Moves to the greatest key of all sources, and moves every source below that key. Returns
    /// false at the end.
    fn step(&mut self) -> Result<bool> {
        let Some(greatest) = self.sources.iter().filter_map(Source::key).max() else {
            return Ok(false);
        };
        if greatest < &*self.low {
            return Ok(false);
        }
        self.key.clear();
        self.key.extend_from_slice(greatest);
        for source in &mut self.sources {
            source.pass(&self.view.env, &self.key)?;
        }
        Ok(true)
    }
}

impl Source {
    /// Returns the current key of the source; `None` at its end.
    fn key(&self) -> Option<&[u8]> {
        match self {
            Source::Memory(iter) => iter.valid().then(|| iter.key()),
            Source::Files(files) => {
                files.iter.as_ref().filter(|iter| iter.valid()).map(SstIter::key)
            }
        }
    }

    /// Moves to the last entry below `high`, or to the last entry of all.
    fn seek_below(&mut self, env: &Env, high: Option<&[u8]>) -> Result<()> {
        match self {
            Source::Memory(iter) => {
                iter.seek_below(high);
                Ok(())
            }
            Source::Files(files) => files.seek_below(env, high),
        }
    }

    /// Moves below `key`, if that is the current key. Returns the number of moves.
    fn pass(&mut self, env: &Env, key: &[u8]) -> Result<u32> {
        let mut moves = 0;
        while self.key() == Some(key) {
            moves += 1;
            match self {
                Source::Memory(iter) if moves > VERSIONS_MAX => iter.seek_below(Some(key)),
                _ => self.back(env)?,
            }
        }
        Ok(moves)
    }

    fn back(&mut self, env: &Env) -> Result<()> {
        match self {
            Source::Memory(iter) => {
                iter.prev();
                Ok(())
            }
            Source::Files(files) => files.back(env),
        }
    }
}

impl Files {
    /// Moves to the last entry below `high`, in the current or an earlier file. Ignores entries
    /// outside the file's clip, the key span for which the file is used.
    fn seek_below(&mut self, env: &Env, high: Option<&[u8]>) -> Result<()> {
        while let Some(file) = self.files.last() {
            let high = [high, file.clip.high.as_deref()].into_iter().flatten().min();
            let mut iter = env.open_sst(&file.file)?.iter(true);
            if let Some(high) = high {
                iter.seek(high)?;
                iter.prev()?;
            } else {
                iter.seek_to_last()?;
            }
            self.iter = Some(iter);
            if self.is_inside() {
                return Ok(());
            }
            self.leave_file();
        }
        Ok(())
    }

    fn back(&mut self, env: &Env) -> Result<()> {
        if let Some(iter) = &mut self.iter {
            iter.prev()?;
            if self.is_inside() {
                return Ok(());
            }
            self.leave_file();
        }
        self.seek_below(env, None)
    }

    fn leave_file(&mut self) {
        self.files.pop();
        self.iter = None;
    }

    /// True if the current entry is not below the current file's clip.
    fn is_inside(&self) -> bool {
        let iter = self.iter.as_ref().filter(|iter| iter.valid());
        iter.zip(self.files.last()).is_some_and(|(iter, file)| iter.key() >= &*file.clip.low)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::format::Kind;
    use crate::fs::MemFs;
    use crate::memtable::Memtable;
    use crate::options::{Background, Options};

    #[test]
    fn the_versions_of_a_key_in_memory_are_passed_by_a_search() {
        let options = Options::default().fs(Arc::new(MemFs::new()));
        let engine = crate::lsm::open("db".as_ref(), options.background(Background::Manual));
        let engine = engine.unwrap();
        let (env, memtable) = (engine.env(), Arc::new(Memtable::new(1, 8 << 20, 0)));
        let mut seq = 0;
        for (key, versions) in [(b"a", 3), (b"b", 10_000), (b"c", 2)] {
            for _ in 0..versions {
                seq += 1;
                memtable.insert(env.hash(key), key, Seq(seq), Kind::Put, b"row");
            }
        }
        let mut source = Source::Memory(memtable.iter());
        source.seek_below(env, None).unwrap();
        for (key, moves) in [(b"c", 2), (b"b", VERSIONS_MAX + 1), (b"a", 3)] {
            assert_eq!(source.key(), Some(&key[..]));
            assert_eq!(source.pass(env, b"other").unwrap(), 0);
            assert_eq!(source.pass(env, key).unwrap(), moves);
        }
        assert_eq!(source.key(), None);
    }
}
