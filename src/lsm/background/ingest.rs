//! Imports the rows of another database as table files. Rows keep their Seqs, and therefore their
//! ETags and Timestamps. [`Maintenance::ingest`] lists the steps.
//!
//! Invariants
//! * The commit lock is held only during the two writes of the manifest. Without this lock, a
//!   commit could get a Seq at which readers first miss the imported rows and later see them.
//! * A crash leaves all of the rows or none. If the manifest edit is not durable, the next opening
//!   removes the files.
//!
//! `db` chooses the rows; `view` and `merge` apply `visible_from` to reads.

use std::io;
use std::sync::Arc;

use crate::error::{Code, Error, ErrorKind, Result};
use crate::format::Kind;
use crate::format::edit::{
    Import, Placement, RangeMeta, RangeTombstone, ReferenceMeta, VersionEdit,
};
use crate::format::key::{TABLE_ID_BYTES, table_start};
use crate::format::names::{FileNumber, RangeId};
use crate::format::span::{Span, whole_table};
use crate::manifest::{FileRange, Manifest, Version};
use crate::model::Seq;
use crate::mutants::mutant;
use crate::ranges::Reference;
use crate::write_accounting::Cause;

use super::maintenance::Maintenance;
use super::new_file::NewFile;
use super::output_writer::{Boundaries, Cut, OutputWriter};
use crate::lsm::Env;
use crate::lsm::read::merge::Merge;
use crate::lsm::read::scan::Scan;
use crate::lsm::read::view::{Slot, View};
use crate::lsm::write::batch::Gate;
use crate::lsm::write::log_queue::closed;

/// The maximum number of attempts while other threads write to the key span of the import.
const TRIES: usize = 8;
/// The number of rows between checks whether the database is closing.
const LOOK_ROWS: u64 = 1_024;

/// A progress callback: receives the number of rows imported so far. Its error ends the import.
pub(crate) type OnRows<'p> = &'p mut dyn FnMut(u64) -> io::Result<()>;

/// The result of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ingested {
    pub(crate) rows: u64,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

impl Maintenance {
    /// Imports the rows of `source` into the table of `gate`. Their keys, changed to name that
    /// table, must be inside `span`. Calls `progress` with the number of rows so far. An error of
    /// `progress` ends the import.
    ///
    /// 1. Check that the span is empty: it has no entry in memory or in any file, not even a
    ///    tombstone, and no range tombstone of a deleted span, which would hide older rows. Merge
    ///    dead entries away first.
    /// 2. Write the rows in key order, under the new table's id, into new files. Sync the files and
    ///    the directory.
    /// 3. Under the install lock and the commit lock, check again that the span is empty, and that
    ///    no gate is closed there. Choose a Seq above all assigned Seqs and above the Seqs of all
    ///    rows in the files. One edit adds the files with this Seq as `visible_from`.
    /// 4. Publish this Seq like that of a commit. Readers at this Seq or later see the rows;
    ///    earlier snapshots never do.
    /// 5. A second edit under the same locks, and a sync, make the rows visible to other processes.
    ///    The change feed reports them (`wal_retention`).
    ///
    /// # Errors
    /// `AlreadyExists` if the span has entities; `ServerBusy` if a gate is closed there; `Busy` if
    /// a snapshot still reads entries deleted there, or if other writes or merges interfere
    /// repeatedly; `NotFound` if the table was dropped; `StorageFull`, also because of the limit on
    /// disk use; `Io`, `Poisoned`; damage in the source.
    pub(crate) fn ingest(
        &self,
        source: &mut Scan,
        gate: &Gate,
        span: &Span,
        progress: OnRows<'_>,
    ) -> Result<Ingested> {
        self.check_gates(span)?;
        let mut known = self.check_span_empty(span)?;
        let _work = self.state.work()?;
        let files = self.write_rows(source, gate, progress)?;
        debug_assert!(files.iter().all(|file| file.meta.entries > 0), "a file holds rows");
        let ingested = Ingested {
            rows: files.iter().map(|file| file.meta.entries).sum(),
            files: files.len() as u64,
            bytes: files.iter().map(|file| file.meta.bytes).sum(),
        };
        for _ in 0..TRIES {
            // Sync the commits made so far. After a power cut, the import must not exist without
            // the commits before it. Commits made during the import need not survive with it.
            self.sync().inspect_err(|_| self.discard(&files))?;
            match self.install_rows(&files, gate, span, &known) {
                Ok(true) => {
                    // Other processes see the import only when everything before it is durable.
                    self.sync()?;
                    return Ok(ingested);
                }
                Ok(false) => {}
                Err(error) => {
                    self.discard_files(&files, &error);
                    return Err(error);
                }
            }
            known = self.check_span_empty(span).inspect_err(|_| self.discard(&files))?;
        }
        self.discard(&files);
        Err(Error::new(ErrorKind::Busy, "others keep writing to where the rows go"))
    }

    /// Checks that no closed gate overlaps `span`. Returns false if the commit that closes one is
    /// not published yet and may still fail.
    ///
    /// # Errors
    /// `ServerBusy`.
    fn check_gates(&self, span: &Span) -> Result<bool> {
        match self.writer.gates.closed_over(span) {
            Some(at) if at <= self.reader().published() => Err(Error::refused(Code::ServerBusy)),
            closed => Ok(closed.is_none()),
        }
    }

    /// Checks that `span` is empty (step 1 of [`ingest`](Self::ingest)). Returns the files
    /// referenced in `span`, none of which has an entry there.
    fn check_span_empty(&self, span: &Span) -> Result<Vec<FileNumber>> {
        for group in 0..TRIES {
            self.flush_all()?;
            while self.reclaim()? {}
            let view = self.reader().view.load_full();
            if Merge::over_files_in(self.env(), &view.version, span)?.is_none()
                && !is_under_range_tombstone(&view, span)
            {
                return Ok(files_in(&view.version, span));
            }
            self.writer.cut_gaps();
            let mut visible = self.reader().read_view(None).scan(span, span)?;
            if visible.advance()? {
                let message = "there are entities where the range is to go";
                return Err(Error::refused_with(Code::EntityAlreadyExists, message));
            }
            // A snapshot that still needs the deleted entries keeps them in the files. If there is
            // no snapshot, a job that began before the delete may have kept them: try again.
            if group > 0 && self.reader().horizon().has_snapshots() {
                let message = "a snapshot still reads what was deleted where the range is to go";
                return Err(Error::new(ErrorKind::Busy, message));
            }
            // A range tombstone is removed only when it hides no entry anywhere, even outside
            // `span`. So merge the whole span of each range tombstone.
            let range_tombstones = view
                .range_tombstones
                .iter()
                .filter(|range_tombstone| is_drop(range_tombstone, span));
            let spans: Vec<&Span> = range_tombstones.map(|f| &f.span).chain([span]).collect();
            let is_in = |range: &Span| spans.iter().any(|span| span.overlaps(range));
            let ranges = view.version.ranges.iter().filter(|range| is_in(&range.span));
            let ids = ranges.map(|range| range.id).collect::<Vec<_>>();
            self.compact_ranges(&ids, &mut |_, _| Ok(()))?;
        }
        let message =
            "what was deleted where the range is to go is still being merged away: try again";
        Err(Error::new(ErrorKind::Busy, message))
    }

    /// Writes the rows to new files (step 2 of [`ingest`](Self::ingest)).
    fn write_rows(
        &self,
        source: &mut Scan,
        gate: &Gate,
        progress: OnRows<'_>,
    ) -> Result<Vec<NewFile>> {
        let options = &self.env().options;
        let cut = Cut { file_bytes: options.run_file_bytes, boundary_bytes: u64::MAX };
        let written_as = (options.codec_run, Cause::Import);
        let mut output = OutputWriter::new(self, cut, written_as, Boundaries::default());
        let (mut key, mut rows) = (table_start(gate.table), 0u64);
        let mut report = |rows| progress(rows).map_err(|error| Error::io("import rows", error));
        while source.advance()? {
            let row = source.row()?;
            key.truncate(TABLE_ID_BYTES);
            key.extend_from_slice(row.key.get(TABLE_ID_BYTES..).unwrap_or_default());
            output.add(&key, row.seq, Kind::Put, Some(&row.row))?;
            rows += 1;
            if rows.is_multiple_of(LOOK_ROWS) {
                report(rows)?;
                if self.executor.is_stopping() {
                    return Err(closed());
                }
            }
        }
        let files = output.finish()?;
        report(rows).inspect_err(|_| self.discard(&files))?;
        Ok(files)
    }

    /// Adds the files to the version (step 3 of [`ingest`](Self::ingest)). Returns false if an
    /// entry may have been added to the span, or a gate may be closed there.
    fn install_rows(
        &self,
        files: &[NewFile],
        gate: &Gate,
        span: &Span,
        known: &[FileNumber],
    ) -> Result<bool> {
        let mut manifest = self.install.lock();
        let version = Arc::clone(manifest.version());
        let mut edit = match files_in(&version, span) == known {
            true => placement_edit(&mut manifest, &version, files, span, gate)
                .map_err(|error| self.writer.poison_on_failure(&manifest, error))?,
            false => return Ok(false),
        };
        let mut state = self.writer.group_commit.lock();
        state.check()?;
        gate.dropped_at().map_or(Ok(()), |_| Err(Error::refused(Code::TableNotFound)))?;
        let is_open = mutant!("ungated-import") || self.check_gates(span)?;
        let view = self.reader().view.load_full();
        let newest = files.iter().map(|file| file.meta.seq_max).max().unwrap_or_default();
        if !is_open
            || holds_any(&view, span)
            || is_under_range_tombstone(&view, span)
            || holds_older(&view, &whole_table(gate.table), newest)
        {
            return Ok(false);
        }
        let after = state.last.max(newest).max(Seq(self.env().clock.now()));
        let visible_from = Seq(after.0.saturating_add(1));
        debug_assert!(visible_from > state.last, "rows that come in follow all commits");
        if visible_from > Seq::MAX {
            let problem = "the clock or a row of the range is beyond the year 9999";
            return Err(Error::new(ErrorKind::Unsupported, problem));
        }
        edit.add_files.iter_mut().for_each(|file| file.visible_from = visible_from);
        let gone = version.remove_unreferenced(&mut edit);
        if !files.is_empty() {
            let (seq, at) = (visible_from, state.queue.committed);
            edit.add_imports = vec![Import { seq, at, span: span.clone() }];
        }
        // While the commit lock is held, no later commit is in the log. So a process that reads a
        // later commit also finds this edit, and the record that states that the edit is durable.
        let appended = manifest.append_vouched(&edit, state.queue.durable_unclaimed());
        if let Ok(version) = &appended {
            self.env().gaps.clear();
            self.install_view(visible_from, version);
            state.raise(visible_from);
            state.queue.last = state.queue.last.max(visible_from);
        }
        drop(state);
        self.env().discard_superseded(&mut manifest);
        appended.map_err(|error| self.writer.poison_on_failure(&manifest, error))?;
        // The import itself is durable. If a later write of the manifest failed, poison the engine
        // but report success.
        if let Some(error) = manifest.failure().cloned() {
            self.writer.poison_on_failure(&manifest, error);
        }
        self.state.retire(gone);
        Ok(true)
    }

    /// Installs `version`, whose new files are visible from `seq` on. Readers at `seq` or later
    /// must pin a view with this version. The caller must hold the commit lock.
    fn install_view(&self, seq: Seq, version: &Arc<Version>) {
        self.reader().change_view(|view| {
            view.with_version(version, None)
                .with_range_tombstones(Arc::new(view.range_tombstones.with_newest(seq)))
        });
        self.reader().require_range_tombstones_of(seq);
    }
}

impl Merge {
    /// Merges all entries of the version's files in `span`. Returns `None` if no file has any.
    fn over_files_in(env: &Arc<Env>, version: &Version, span: &Span) -> Result<Option<Merge>> {
        let references = version.ranges_in(span).iter().flat_map(|range| range.references());
        let clipped = references.filter_map(|(_, reference)| {
            let clip = reference.clip.intersect(span)?;
            Some(Reference::new(Arc::clone(&reference.file), clip, None))
        });
        let merge = Merge::over_files(env, &clipped.collect::<Vec<_>>(), &[])?;
        Ok(merge.is_valid().then_some(merge))
    }
}

/// Returns the files that ranges reference inside `span`.
fn files_in(version: &Version, span: &Span) -> Vec<FileNumber> {
    let references = version.ranges_in(span).iter().flat_map(|range| range.references());
    let inside = references.filter(|(_, reference)| reference.clip.overlaps(span));
    inside.map(|(_, reference)| reference.file.meta.number).collect()
}

/// True if the range tombstone of a deleted span overlaps `span` and would hide the imported rows.
/// Expiry also uses range tombstones, but it may hide imported rows, because these are as old as
/// their Seqs say.
fn is_under_range_tombstone(view: &View, span: &Span) -> bool {
    view.range_tombstones.iter().any(|range_tombstone| is_drop(range_tombstone, span))
}

/// True if the range tombstone belongs to a deleted span, not to expiry, and overlaps `span`.
fn is_drop(range_tombstone: &RangeTombstone, span: &Span) -> bool {
    range_tombstone.is_drop() && range_tombstone.span.overlaps(span)
}

/// True if a memtable has any entry in `span`, published or not.
fn holds_any(view: &View, span: &Span) -> bool {
    view.memtables.iter().any(|slot| has_entry_in(slot, span))
}

/// True if a memtable has entries in `span` and may hold Seqs at or below `newest`, the newest Seq
/// of the imported rows. This happens if the other database's clock was ahead. The file to which
/// the memtable is flushed could then overlap the imported files without being newer.
fn holds_older(view: &View, span: &Span, newest: Seq) -> bool {
    let begins_before = |slot: &Slot| slot.memtable.seq_min() <= newest;
    view.memtables.iter().any(|slot| has_entry_in(slot, span) && begins_before(slot))
}

fn has_entry_in(slot: &Slot, span: &Span) -> bool {
    let mut entries = slot.memtable.iter();
    entries.seek(&span.low);
    entries.valid() && !span.ends_before(entries.key())
}

/// Builds the edit that adds the rows to the *runs* (sorted, non-overlapping files) of ranges. If
/// files of other rows overlap the span, their ranges are split at the ends of the span. Inside the
/// span these files lose their references, because they have no entries there.
fn placement_edit(
    manifest: &mut Manifest,
    version: &Version,
    files: &[NewFile],
    span: &Span,
    gate: &Gate,
) -> Result<VersionEdit> {
    let mut edit = VersionEdit {
        add_files: files.iter().map(|file| file.meta.clone()).collect(),
        ..VersionEdit::default()
    };
    let whole = whole_table(gate.table);
    let mut ranges: Vec<(RangeId, Span)> = Vec::new();
    for range in version.ranges_in(&whole) {
        if range.references().any(|(_, reference)| reference.clip.overlaps(span)) {
            cut_range(manifest, range, span, &mut edit, &mut ranges)?;
        } else {
            ranges.push((range.id, range.span.clone()));
        }
    }
    let ascend = |a: &(RangeId, Span), b: &(RangeId, Span)| a.1.ends_before(&b.1.low);
    debug_assert!(ranges.is_sorted_by(ascend), "ranges ascend and are disjoint");
    for gap in gaps(&whole, &ranges) {
        let id = RangeId(manifest.next_number()?.0);
        edit.add_ranges.push(RangeMeta { id, table: gate.table, span: gap.clone() });
        ranges.push((id, gap));
    }
    for file in files {
        let keys = Span::inclusive(&file.meta.key_min, &file.meta.key_max);
        debug_assert!(whole.covers(&keys), "the rows are of the table");
        for (range, within) in &ranges {
            let Some(clip) = within.intersect(&keys) else { continue };
            let (file, placement) = (file.meta.number, Placement::Run);
            edit.add_references.push(ReferenceMeta {
                range: *range,
                file,
                placement,
                clip,
                bytes: None,
            });
        }
    }
    Ok(edit)
}

/// Returns the parts of `whole` outside all of `ranges`, which must be in ascending order.
fn gaps(whole: &Span, ranges: &[(RangeId, Span)]) -> Vec<Span> {
    let mut gaps = Vec::new();
    let mut from = Some(&*whole.low);
    for (_, span) in ranges {
        gaps.extend(from.map(|from| Span::new(from, Some(&span.low))));
        from = span.high.as_deref();
    }
    gaps.extend(from.map(|from| Span::new(from, whole.high.as_deref())));
    gaps.retain(|gap| !gap.is_empty());
    gaps
}

/// Replaces `range` by its parts below, inside and above `span`. The part inside gets no files.
fn cut_range(
    manifest: &mut Manifest,
    range: &FileRange,
    span: &Span,
    edit: &mut VersionEdit,
    ranges: &mut Vec<(RangeId, Span)>,
) -> Result<()> {
    edit.remove_ranges.push(range.id);
    let files = range.references().map(|(_, reference)| (range.id, reference.file.meta.number));
    edit.remove_references.extend(files);
    let below = Span::new(&range.span.low, Some(&span.low));
    let above = span.high.as_deref().map(|high| Span::new(high, range.span.high.as_deref()));
    for (part, is_inside) in [(Some(below), false), (Some(span.clone()), true), (above, false)] {
        let Some(part) = part.and_then(|part| part.intersect(&range.span)) else { continue };
        let id = RangeId(manifest.next_number()?.0);
        edit.add_ranges.push(RangeMeta { id, table: range.table, span: part.clone() });
        let references = range.references().filter(|_| !is_inside);
        edit.add_references.extend(references.filter_map(|(placement, reference)| {
            let clip = reference.clip.intersect(&part)?;
            let file = reference.file.meta.number;
            Some(ReferenceMeta { range: id, file, placement, clip, bytes: Some(reference.bytes) })
        }));
        ranges.push((id, part));
    }
    Ok(())
}
