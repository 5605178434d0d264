//! Defines a version: the set of live files with their ranges, logs and range tombstones. A shared
//! version never changes.
//!
//! Invariants, ensured by [`Version::apply`]
//! * each range keeps the invariants that `ranges` states;
//! * each referenced file exists, and a removed file has no references;
//! * no two files, logs or ranges share a number, and all numbers are below the reserved bound;
//! * the flushed Seq never decreases.
//!
//! `store` makes versions durable; `lsm` keeps an obsolete file while it is read.

use std::fmt;
use std::ops;
use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::format::edit::{
    Account, CleanClose, Identity, Import, KeptLog, LivedTime, LogMeta, RangeMeta, RangeTombstone,
    ReferenceMeta, VersionEdit,
};
use crate::format::file_meta::FileMeta;
use crate::format::key::display_keys;
use crate::format::names::{FileNumber, RangeId, TableId};
use crate::format::record::Position;
use crate::format::span::Span;
use crate::model::Seq;
use crate::ranges::{Range, RangeFile, RangeMap, Reference};
use crate::sort::{SortedMap, sort_by};
use crate::sst::Sst;
use crate::sync::{ModelledOnce, OnceLock};

/// The approximate size of a record of a snapshot, in bytes.
const SNAPSHOT_RECORD_BYTES: usize = 1 << 20;

/// A range of a version.
pub(crate) type FileRange = Range<Arc<FileEntry>>;
/// A reference of a range to a file.
pub(crate) type FileReference = Reference<Arc<FileEntry>>;

/// A table file of a version, shared by all versions that contain it.
pub(crate) struct FileEntry {
    pub(crate) meta: FileMeta,
    /// The file's reader, opened at first use.
    sst: ModelledOnce<Arc<Sst>>,
    /// Damage reported by a reader other than `sst`, or by a failed attempt to open `sst`.
    damage: OnceLock<Error>,
}

/// The set of live files. A clone copies pointers only.
#[derive(Clone, Debug, Default)]
pub(crate) struct Version {
    /// The identity of the database; `None` only before the first edit.
    pub(crate) identity: Option<Arc<Identity>>,
    /// The bound of the reserved file numbers. Numbers from this one on were never assigned.
    pub(crate) numbers_below: FileNumber,
    /// The logs to replay, oldest first.
    pub(crate) logs: Vec<LogMeta>,
    /// Every commit up to this Seq is in table files.
    pub(crate) flushed_seq: Seq,
    files: SortedMap<FileNumber, Held>,
    /// The total length of all files, in bytes.
    pub(crate) file_bytes: u64,
    /// All ranges, in key order.
    pub(crate) ranges: RangeMap<Arc<FileEntry>>,
    /// Dropped tables with files that still exist, each with the Seq of its drop.
    pub(crate) dropped: SortedMap<TableId, Seq>,
    /// Range tombstones up to the flushed Seq that may still hide older entries.
    pub(crate) range_tombstones: Vec<RangeTombstone>,
    /// The last clean close, kept as long as its log belongs to the version.
    pub(crate) clean_close: Option<CleanClose>,
    /// The expiry clock, as last recorded.
    pub(crate) clock: LivedTime,
    /// Logs that only the change feed reads, oldest first.
    pub(crate) kept_logs: Vec<KeptLog>,
    /// Imports of rows as table files. An import is kept as long as the logs that follow it.
    pub(crate) imports: Vec<Import>,
    log_durable: Position,
    /// The lengths of logs, and of the manifest itself, that records have stated since the last
    /// clean close.
    durable_lens: SortedMap<FileNumber, u64>,
    /// The wear account (bytes written since creation), as recorded in the manifest; `None` if an
    /// older build wrote the manifest.
    pub(crate) account: Option<Account>,
    unknown: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Held {
    entry: Arc<FileEntry>,
    /// The number of ranges that reference the file.
    references: usize,
    /// The approximate bytes of the file that these ranges use.
    used: u64,
}

impl FileEntry {
    pub(crate) fn new(meta: FileMeta) -> Self {
        Self { meta, sst: ModelledOnce::new(), damage: OnceLock::new() }
    }

    /// Returns the first damage found in the file. A damaged file is quarantined: it stays
    /// referenced and is read where possible, but no compaction uses it as input.
    pub(crate) fn damage(&self) -> Option<&Error> {
        self.damage.get().or_else(|| self.sst.get().and_then(|sst| sst.damage()))
    }

    /// Quarantines the file because of `error`.
    pub(crate) fn record_damage(&self, error: &Error) {
        self.damage.get_or_init(|| error.clone());
    }

    /// Returns the file's name.
    pub(crate) fn name(&self) -> String {
        self.meta.number.sst_name()
    }

    /// Describes the file's key interval for messages.
    pub(crate) fn keys(&self) -> String {
        display_keys(&self.meta.key_min, &self.meta.key_max)
    }

    /// True if a read at `at` sees the file. An imported file is invisible to reads at a Seq before
    /// its import.
    #[inline]
    pub(crate) fn is_visible(&self, at: Seq) -> bool {
        self.meta.visible_from <= at
    }

    /// Whether the file may contain a key in `span`.
    pub(crate) fn has_keys_in(&self, span: &Span) -> bool {
        let meta = &self.meta;
        *meta.key_max >= *span.low && !span.ends_before(&meta.key_min)
    }

    /// Returns the memory used for the file in bytes, whether its reader is open or not.
    pub(crate) fn memory_bytes(&self) -> usize {
        let open = self.sst.get().map_or(0, |sst| sst.memory_bytes());
        size_of::<Self>() + self.meta.memory_bytes() + open
    }

    /// Returns the file's reader, if it is open.
    pub(crate) fn opened(&self) -> Option<&Arc<Sst>> {
        self.sst.get()
    }

    /// Sets the file's reader, unless it is open.
    pub(crate) fn set_sst(&self, sst: Arc<Sst>) {
        self.sst.get_or_init(|| sst);
    }

    /// Returns the file's reader; the first use opens it with `open`.
    #[inline]
    pub(crate) fn sst_or_open(
        &self,
        open: impl FnOnce() -> Result<Sst, Error>,
    ) -> Result<&Arc<Sst>, Error> {
        match self.sst.get() {
            Some(sst) => Ok(sst),
            // Two threads may open the file at the same time; one of the two readers is kept.
            None => match open() {
                Ok(sst) => Ok(self.sst.get_or_init(|| Arc::new(sst))),
                Err(error) => Err(self.unopened(error)),
            },
        }
    }

    #[cold]
    fn unopened(&self, error: Error) -> Error {
        let error = error.of_keys(|| self.keys());
        if error.kind() == ErrorKind::Corruption {
            self.record_damage(&error);
        }
        error
    }
}

impl fmt::Debug for FileEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FileEntry").field(&self.meta).finish()
    }
}

impl RangeFile for Arc<FileEntry> {
    fn number(&self) -> FileNumber {
        self.meta.number
    }

    fn seqs(&self) -> (Seq, Seq) {
        (self.meta.seq_min, self.meta.seq_max)
    }

    fn bytes(&self) -> u64 {
        self.meta.bytes
    }
}

impl Version {
    /// Returns the total bytes of the kept logs, as edits recorded them.
    pub(crate) fn kept_log_bytes(&self) -> u64 {
        self.kept_logs.iter().fold(0, |sum, kept| sum.saturating_add(kept.bytes))
    }

    /// Returns the position up to which edits state the logs to be durable.
    pub(crate) fn vouched(&self) -> Position {
        let close = self.clean_close.map(|close| Position { file: close.log, offset: close.end });
        close.unwrap_or_default().max(self.log_durable)
    }

    /// Returns the least length, in bytes, that the log or manifest `number` must have; 0 if no
    /// length is stated.
    pub(crate) fn durable_len(&self, number: FileNumber) -> u64 {
        self.durable_lens.get(&number).copied().unwrap_or_default()
    }

    /// Records the durable length of the manifest `number`, as its records state it.
    pub(super) fn record_len(&mut self, number: FileNumber, len: u64) {
        let is_log = |number: &FileNumber| self.logs.iter().any(|log| log.number == *number);
        self.durable_lens.retain(|number, _| is_log(number));
        self.durable_lens.insert(number, len);
    }

    /// Records that the logs were durable up to `position` before the next edit was written.
    pub(super) fn record_log_durable(&mut self, position: Position) {
        self.log_durable = self.log_durable.max(position);
    }

    /// Adds the bytes of an edit's record to the wear account.
    pub(super) fn count_edit(&mut self, record: &ops::Range<u64>) {
        if let Some(account) = &mut self.account {
            account.wear.count_edit(record);
        }
    }

    pub(crate) fn file(&self, number: FileNumber) -> Option<&Arc<FileEntry>> {
        self.files.get(&number).map(|held| &held.entry)
    }

    /// Returns all files, ordered by number.
    pub(crate) fn files(&self) -> impl ExactSizeIterator<Item = &Arc<FileEntry>> {
        self.files.values().map(|held| &held.entry)
    }

    /// Returns how many ranges reference the file.
    pub(crate) fn references_to(&self, number: FileNumber) -> usize {
        self.files.get(&number).map_or(0, |held| held.references)
    }

    /// Returns about how many bytes of the file all ranges together use; 0 for an unknown file.
    pub(crate) fn used_bytes(&self, number: FileNumber) -> u64 {
        self.files.get(&number).map_or(0, |held| held.used)
    }

    /// Returns the range that contains `user_key`.
    #[inline]
    pub(crate) fn range_for(&self, user_key: &[u8]) -> Option<&Arc<FileRange>> {
        self.ranges.range_for(user_key)
    }

    /// Returns the ranges that overlap `span`, in key order.
    pub(crate) fn ranges_in(&self, span: &Span) -> &[Arc<FileRange>] {
        self.ranges.ranges_in(span)
    }

    /// Returns the references to files that may hold `user_key`, newest first.
    #[inline]
    pub(crate) fn sources<'a>(
        &'a self,
        user_key: &'a [u8],
    ) -> impl Iterator<Item = &'a FileReference> + 'a {
        self.range_for(user_key).into_iter().flat_map(move |range| range.sources(user_key))
    }

    /// Returns the recorded clock for an edit that recreates this version, or `None` if no time was
    /// recorded.
    pub(crate) fn clock_if_known(&self) -> Option<LivedTime> {
        (self.clock.now > 0).then(|| self.clock.clone())
    }

    /// Returns the greatest Seq that the version mentions, including that of a clean close.
    pub(crate) fn seq_max(&self) -> Seq {
        let close = self.clean_close.map(|close| close.last_seq);
        self.seq_used().max(close.unwrap_or_default())
    }

    /// Returns the greatest Seq used by a file, import, range tombstone, drop or flush.
    pub(crate) fn seq_used(&self) -> Seq {
        let files = self.files().map(|file| file.meta.seq_max.max(file.meta.visible_from));
        let files = files.chain(self.imports.iter().map(|import| import.seq));
        let range_tombstones =
            self.range_tombstones.iter().map(|range_tombstone| range_tombstone.from);
        let known = files.chain(range_tombstones).chain(self.dropped.values().copied());
        known.max().unwrap_or_default().max(self.flushed_seq)
    }

    /// Returns the greatest Seq up to which files hold all rows, for a reader that has read the
    /// logs up to `passed`. An import is included only if its log position is at or before
    /// `passed`.
    pub(crate) fn settled_seq(&self, passed: Position) -> Seq {
        let imports = self.imports.iter();
        let seen = imports.clone().filter(|import| import.at <= passed).map(|import| import.seq);
        let is_told = |seq: Seq| self.imports.iter().any(|import| import.seq == seq);
        // Imports recorded by older builds are known only from their files.
        let others = self.files().map(|file| file.meta.visible_from).filter(|seq| !is_told(*seq));
        let close = self.clean_close.map(|close| close.last_seq);
        seen.chain(others).chain(close).max().unwrap_or_default().max(self.flushed_seq)
    }

    /// Returns the version after `edit`, or a description of the invariant that `edit` would break.
    pub(crate) fn apply(&self, edit: &VersionEdit) -> Result<Version, String> {
        let mut next = self.clone();
        next.apply_in_place(edit)?;
        Ok(next)
    }

    /// As [`apply`](Self::apply), but changes `self`, which must not be used after an error.
    pub(super) fn apply_in_place(&mut self, edit: &VersionEdit) -> Result<(), String> {
        self.apply_numbers(edit)?;
        let mut touched = self.remove_references(edit)?;
        self.apply_ranges(edit)?;
        self.add_files(edit)?;
        touched.extend(self.add_references(edit)?);
        self.remove_files(edit)?;
        self.apply_logs(edit)?;
        self.apply_history(edit)?;
        self.apply_drops(edit)?;
        if let Some(clock) = &edit.clock {
            self.clock.clone_from(clock);
        }
        self.account = edit.account.or(self.account);
        if edit.clean_close.is_some() {
            self.clean_close = edit.clean_close;
            // The clean close states where the records end, and the allocated space after them is
            // released. So the lengths stated earlier, which include this space, no longer hold.
            self.durable_lens.clear();
        }
        self.durable_lens.extend(edit.durable_lens.iter().copied());
        // A closed log never changes, so the close stays valid as long as the log exists.
        self.clean_close = self.clean_close.filter(|c| self.logs.iter().any(|l| l.number == c.log));
        self.unknown.extend_from_slice(&edit.unknown);
        sort_by(&mut touched, Ord::cmp);
        touched.dedup();
        let mut hint = 0;
        for id in touched {
            // A range that this edit removes needs no check.
            let Some(at) = self.ranges.position(id, hint) else { continue };
            hint = at;
            self.ranges.at(at).map_or(Ok(()), |range| range.check())?;
        }
        Ok(())
    }

    /// Takes over the open readers of the files that `before` also contains.
    pub(super) fn adopt_open_files(&mut self, before: &Version) {
        for held in self.files.values_mut() {
            let known = before
                .file(held.entry.meta.number)
                .filter(|known| known.meta.id == held.entry.meta.id);
            if let Some(sst) = known.and_then(|known| known.sst.get()) {
                held.entry.sst.get_or_init(|| Arc::clone(sst));
            }
        }
    }

    /// Adds to `edit` the removal of all files whose last reference `edit` removes, and returns
    /// these files.
    pub(crate) fn remove_unreferenced(&self, edit: &mut VersionEdit) -> Vec<Arc<FileEntry>> {
        let mut gone: SortedMap<FileNumber, usize> = SortedMap::default();
        for (_, file) in &edit.remove_references {
            *gone.get_or_insert_with(*file, Default::default) += 1;
        }
        for reference in &edit.add_references {
            gone.remove(&reference.file);
        }
        let left = |(file, count): (FileNumber, usize)| {
            self.files.get(&file).filter(|held| held.references == count)
        };
        let gone: Vec<_> =
            gone.into_iter().filter_map(left).map(|f| Arc::clone(&f.entry)).collect();
        debug_assert!(edit.remove_files.is_empty(), "files leave by their references only");
        edit.remove_files = gone.iter().map(|file| file.meta.number).collect();
        gone
    }

    /// Checks every invariant of every range, as opening a database requires.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.ranges.check()
    }

    /// Returns edits that recreate this version from nothing, each well below the size limit of a
    /// record.
    pub(super) fn snapshot(&self) -> Vec<VersionEdit> {
        let mut edits = vec![VersionEdit {
            identity: self.identity.as_deref().cloned(),
            numbers_below: Some(self.numbers_below),
            add_logs: self.logs.clone(),
            flushed_seq: Some(self.flushed_seq),
            drop_tables: self.dropped.iter().map(|(table, seq)| (*table, *seq)).collect(),
            clock: self.clock_if_known(),
            log_durable: (self.log_durable > Position::default()).then_some(self.log_durable),
            unknown: self.unknown.clone(),
            ..VersionEdit::default()
        }];
        let mut parts = Parts { edits: &mut edits, bytes: 0, bytes_max: SNAPSHOT_RECORD_BYTES };
        self.put_tree(&mut parts);
        for kept in &self.kept_logs {
            parts.room(64).keep_logs.push(*kept);
        }
        for import in &self.imports {
            parts.room(span_bytes(&import.span)).add_imports.push(import.clone());
        }
        if let Some(last) = edits.last_mut() {
            last.clean_close = self.clean_close;
            last.account = self.account;
            // State the lengths in the same edit as the clean close, because applying a clean close
            // clears the lengths that earlier edits stated.
            let stated = |log: &LogMeta| Some((log.number, *self.durable_lens.get(&log.number)?));
            last.durable_lens = self.logs.iter().filter_map(stated).collect();
        }
        edits
    }

    /// Returns one edit that recreates all files and ranges, and the drops that affect them.
    pub(crate) fn image(&self) -> VersionEdit {
        let mut edits = vec![VersionEdit {
            flushed_seq: Some(self.flushed_seq.max(self.seq_max())),
            drop_tables: self.dropped.iter().map(|(table, seq)| (*table, *seq)).collect(),
            clock: self.clock_if_known(),
            unknown: self.unknown.clone(),
            ..VersionEdit::default()
        }];
        self.put_tree(&mut Parts { edits: &mut edits, bytes: 0, bytes_max: usize::MAX });
        edits.swap_remove(0)
    }

    fn put_tree(&self, parts: &mut Parts<'_>) {
        for file in self.files() {
            let bytes = 256 + file.meta.key_min.len() + file.meta.key_max.len();
            parts.room(bytes).add_files.push(file.meta.clone());
        }
        for range in self.ranges.iter() {
            let meta = RangeMeta { id: range.id, table: range.table, span: range.span.clone() };
            parts.room(span_bytes(&meta.span)).add_ranges.push(meta);
            for (placement, reference) in range.references() {
                let (range, file) = (range.id, reference.file.number());
                let (clip, bytes) = (reference.clip.clone(), reference.bytes_meta());
                let edit = parts.room(span_bytes(&clip));
                edit.add_references.push(ReferenceMeta { range, file, placement, clip, bytes });
            }
        }
        for range_tombstone in &self.range_tombstones {
            parts
                .room(span_bytes(&range_tombstone.span))
                .add_range_tombstones
                .push(range_tombstone.clone());
        }
    }

    fn apply_numbers(&mut self, edit: &VersionEdit) -> Result<(), String> {
        if let Some(identity) = &edit.identity {
            if self.identity.is_some() {
                return Err("a second identity".into());
            }
            self.identity = Some(Arc::new(identity.clone()));
        }
        if self.identity.is_none() {
            return Err("the first edit holds no identity".into());
        }
        if let Some(below) = edit.numbers_below {
            if below < self.numbers_below {
                return Err(format!("numbers below {below}, {} before", self.numbers_below));
            }
            self.numbers_below = below;
        }
        if let Some(seq) = edit.flushed_seq {
            if seq < self.flushed_seq {
                return Err(format!("flushed up to #{seq}, #{} before", self.flushed_seq));
            }
            self.flushed_seq = seq;
        }
        Ok(())
    }

    fn remove_references(&mut self, edit: &VersionEdit) -> Result<Vec<RangeId>, String> {
        let mut hint = 0;
        for (id, file) in &edit.remove_references {
            let gone = self.ranges.position(*id, hint).and_then(|at| {
                hint = at;
                self.ranges.at_mut(at)?.remove(*file)
            });
            let Some(gone) = gone else {
                return Err(format!("range r{} does not reference file {file}", id.0));
            };
            if let Some(held) = self.files.get_mut(file) {
                debug_assert!(held.references > 0, "a reference that leaves was counted");
                held.references -= 1;
                held.used = held.used.saturating_sub(gone.bytes);
            }
        }
        Ok(edit.remove_references.iter().map(|(id, _)| *id).collect())
    }

    fn apply_ranges(&mut self, edit: &VersionEdit) -> Result<(), String> {
        let new = edit.add_ranges.iter();
        let new = new.map(|RangeMeta { id, table, span }| Range::new(*id, *table, span.clone()));
        match (edit.remove_ranges.is_empty(), edit.add_ranges.is_empty()) {
            (true, true) => Ok(()),
            _ => self.ranges.change(&edit.remove_ranges, new.collect()),
        }
    }

    fn add_files(&mut self, edit: &VersionEdit) -> Result<(), String> {
        for meta in &edit.add_files {
            self.claim(meta.number)?;
            let entry = Arc::new(FileEntry::new(meta.clone()));
            self.file_bytes = self.file_bytes.saturating_add(meta.bytes);
            self.files.insert(meta.number, Held { entry, references: 0, used: 0 });
        }
        Ok(())
    }

    fn add_references(&mut self, edit: &VersionEdit) -> Result<Vec<RangeId>, String> {
        let mut hint = 0;
        for ReferenceMeta { range, file, placement, clip, bytes } in &edit.add_references {
            let Some(held) = self.files.get_mut(file) else {
                return Err(format!("range r{} references file {file}, which is gone", range.0));
            };
            let Some(at) = self.ranges.position(*range, hint) else {
                return Err(format!("file {file} is for range r{}, which is gone", range.0));
            };
            hint = at;
            held.references += 1;
            if let Some(range) = self.ranges.at_mut(at) {
                let is_whole = *clip == ReferenceMeta::whole_range();
                let clip = if is_whole { &range.span } else { clip };
                let entry = Arc::clone(&held.entry);
                let reference = Reference::new(entry, clip.clone(), *bytes);
                held.used = held.used.saturating_add(reference.bytes);
                range.add(*placement, reference);
            }
        }
        Ok(edit.add_references.iter().map(|reference| reference.range).collect())
    }

    fn remove_files(&mut self, edit: &VersionEdit) -> Result<(), String> {
        for number in &edit.remove_files {
            match self.files.remove(number) {
                None => return Err(format!("file {number} leaves and is not there")),
                Some(held) if held.references > 0 => {
                    return Err(format!("file {number} leaves and is still referenced"));
                }
                Some(held) => {
                    self.file_bytes = self.file_bytes.saturating_sub(held.entry.meta.bytes);
                }
            }
        }
        Ok(())
    }

    fn apply_logs(&mut self, edit: &VersionEdit) -> Result<(), String> {
        for number in &edit.remove_logs {
            let gone = take(&mut self.logs, |log| log.number == *number);
            gone.ok_or_else(|| format!("log {number} leaves and is not there"))?;
            self.durable_lens.remove(number);
        }
        for log in &edit.add_logs {
            self.claim(log.number)?;
            if self.logs.last().is_some_and(|last| last.number > log.number) {
                return Err(format!("log {} is added after a newer one", log.number));
            }
            self.logs.push(*log);
        }
        debug_assert!(self.logs.is_sorted_by(|a, b| a.number < b.number), "logs ascend");
        Ok(())
    }

    fn apply_history(&mut self, edit: &VersionEdit) -> Result<(), String> {
        for number in &edit.forget_logs {
            let gone = take(&mut self.kept_logs, |kept| kept.log.number == *number);
            gone.ok_or_else(|| format!("log {number} is forgotten and was not kept"))?;
        }
        for kept in &edit.keep_logs {
            self.claim(kept.log.number)?;
            if self.kept_logs.last().is_some_and(|last| last.log.number > kept.log.number) {
                return Err(format!("log {} is kept behind a newer one", kept.log.number));
            }
            self.kept_logs.push(*kept);
        }
        for seq in &edit.forget_imports {
            let gone = take(&mut self.imports, |import| import.seq == *seq);
            gone.ok_or_else(|| format!("the import #{seq} is forgotten and was not there"))?;
        }
        for import in &edit.add_imports {
            if self.imports.last().is_some_and(|last| last.seq >= import.seq) {
                return Err(format!("the import #{} is added after a newer one", import.seq));
            }
            self.imports.push(import.clone());
        }
        let ascend = |a: &KeptLog, b: &KeptLog| a.log.number < b.log.number;
        debug_assert!(self.kept_logs.is_sorted_by(ascend), "kept logs ascend");
        debug_assert!(self.imports.is_sorted_by(|a, b| a.seq < b.seq), "imports ascend");
        self.record_log_durable(edit.log_durable.unwrap_or_default());
        Ok(())
    }

    fn apply_drops(&mut self, edit: &VersionEdit) -> Result<(), String> {
        for (table, seq) in &edit.drop_tables {
            if self.dropped.insert(*table, *seq).is_some() {
                return Err(format!("{table} is dropped twice"));
            }
        }
        for table in &edit.forget_tables {
            if self.dropped.remove(table).is_none() {
                return Err(format!("{table} is forgotten and was not dropped"));
            }
        }
        let mut gone = RangeTombstoneBag::new(&edit.remove_range_tombstones);
        self.range_tombstones.retain(|found| !gone.take(found));
        if let Some(RangeTombstone { span, from, .. }) = gone.0.values().flatten().next() {
            return Err(format!("fence {span} #{from} is not there"));
        }
        self.range_tombstones.extend(edit.add_range_tombstones.iter().cloned());
        Ok(())
    }

    /// Checks that `number` is reserved and not in use.
    fn claim(&self, number: FileNumber) -> Result<(), String> {
        if number >= self.numbers_below {
            return Err(format!("number {number} is not reserved, below {}", self.numbers_below));
        }
        let is_kept = self.kept_logs.binary_search_by_key(&number, |kept| kept.log.number).is_ok();
        let is_log = is_kept || self.logs.iter().any(|log| log.number == number);
        if is_log || self.files.contains_key(&number) {
            return Err(format!("number {number} is in use"));
        }
        Ok(())
    }
}

/// A sequence of edits to which content is added. Each edit gets about `bytes_max` bytes at most.
struct Parts<'a> {
    edits: &'a mut Vec<VersionEdit>,
    bytes: usize,
    bytes_max: usize,
}

impl Parts<'_> {
    /// Returns an edit with space for about `bytes` more; begins a new one if the last is full.
    fn room(&mut self, bytes: usize) -> &mut VersionEdit {
        self.bytes += bytes;
        if self.bytes > self.bytes_max || self.edits.is_empty() {
            self.bytes = bytes;
            self.edits.push(VersionEdit::default());
        }
        let last = self.edits.len() - 1;
        &mut self.edits[last]
    }
}

/// Removes and returns the first item for which `is_it` is true.
fn take<T>(list: &mut Vec<T>, is_it: impl Fn(&T) -> bool) -> Option<T> {
    list.iter().position(is_it).map(|at| list.remove(at))
}

/// Range tombstones, of which several may be equal, by the Seqs of their commits.
pub(crate) struct RangeTombstoneBag<'a>(SortedMap<Seq, Vec<&'a RangeTombstone>>);

impl<'a> RangeTombstoneBag<'a> {
    pub(crate) fn new(range_tombstones: &'a [RangeTombstone]) -> Self {
        let mut bag: SortedMap<Seq, Vec<&RangeTombstone>> = SortedMap::default();
        range_tombstones
            .iter()
            .for_each(|it| bag.get_or_insert_with(it.from, Default::default).push(it));
        Self(bag)
    }

    /// Takes one range tombstone equal to `wanted` out of the bag. Returns false if there is none.
    pub(crate) fn take(&mut self, wanted: &RangeTombstone) -> bool {
        let Some(list) = self.0.get_mut(&wanted.from) else { return false };
        take(list, |other| *other == wanted).is_some()
    }
}

fn span_bytes(span: &Span) -> usize {
    48 + span.low.len() + span.high.as_ref().map_or(0, |high| high.len())
}

#[cfg(test)]
mod tests;
