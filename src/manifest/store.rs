//! Reads and writes the manifest, a record file of version edits. Versions change only here.
//!
//! Invariants
//! * nothing is appended to a file with a torn tail, and no file that CURRENT may name is
//!   rewritten;
//! * a failure after the first byte of a record, or a failed replacement of CURRENT, ends writing;
//! * a file number is assigned only after the manifest reserved it durably, and never twice.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::codec::HashSeed;
use crate::error::{Error, ErrorKind, Result};
use crate::format::current::Current;
use crate::format::edit::{CleanClose, Identity, VersionEdit};
use crate::format::names::{FileId, FileName, FileNumber};
use crate::format::record::{
    LogHeader, LogKind, Position, RECORD_ALIGN, RecordKind, begin, end, seal,
};
use crate::fs::{Fs, parent};
use crate::log::{DurableLen, LogFile, LogReader};
use crate::model::Seq;
use crate::mutants::mutant;
use crate::options::MANIFEST_ROLL_BYTES;
use crate::rng::Rng;
use crate::write_accounting::Meter;

use super::edit_record::{edit_of, refused};
use super::missing;
use super::publish::{PublishError, names, number_after_all, publish, read_current, sync_dir};
use super::tailer::ManifestTail;
use super::version::Version;

/// How many unused file numbers an edit reserves.
const NUMBERS_RESERVED: u64 = 64;
/// Space is allocated in multiples of this many bytes.
const ALLOCATE_BYTES: u64 = 64 << 10;
/// A manifest is rolled over (replaced by a new file that begins with a snapshot) when it is this
/// many times as long as a snapshot.
const ROLL_FACTOR: u64 = 4;

/// How a manifest is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing on disk changes.
    ReadOnly,
    ReadWrite,
}

/// The manifest of an open database.
#[derive(Debug)]
pub(crate) struct Manifest {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    rng: Rng,
    version: Arc<Version>,
    /// Counts bytes and syncs for the wear account (bytes written since creation), which edits
    /// contain; `None` before [`Manifest::count_with`].
    meter: Option<Arc<Meter>>,
    /// The header of the file that CURRENT names.
    header: LogHeader,
    end: u64,
    tail: Tail,
    /// The length of the file that syncs in this session have made durable, including allocated
    /// space; 0 before the first write.
    durable_len: u64,
    /// Records from this offset on may exist only in the page cache; `None` once they are durable.
    unconfirmed: Option<u64>,
    /// Logs with records that may exist only in the page cache; empty once they are durable.
    unconfirmed_logs: Vec<UnconfirmedLog>,
    /// True if the last record is the edit of a clean close.
    ends_closed: bool,
    /// True if the last record at opening is the edit of an import.
    ends_imported: bool,
    /// The next number to assign; at most the reserved upper bound.
    next_number: u64,
    /// The length above which the file is rolled over before the next append.
    roll_at: u64,
    /// The length below which the file is never rolled over.
    pub(crate) roll_bytes_min: u64,
    /// Manifests replaced by roll-overs.
    pub(crate) superseded: Vec<FileNumber>,
    /// The first error that ended writing.
    failure: Option<Error>,
    /// The error for every edit after the database was closed.
    ended: Option<Error>,
    /// Why the manifest may not be written; `None` if it may.
    read_only: Option<String>,
    /// Why the last edits may be lost; `None` if nothing indicates a loss. As long as there is a
    /// doubt, the manifest is not rolled over unless it is torn.
    doubt: Option<String>,
}

/// A log that an earlier session wrote. The records in `from..end` may exist only in the page
/// cache.
#[derive(Debug)]
pub(crate) struct UnconfirmedLog {
    pub(crate) header: LogHeader,
    pub(crate) from: u64,
    pub(crate) end: u64,
}

/// Whether records can be appended to the file.
#[derive(Debug)]
enum Tail {
    /// Appendable through `file`, with space allocated up to `allocated`.
    Open { file: LogFile, allocated: u64 },
    /// Appendable only after [`Manifest::confirm`].
    Unconfirmed,
    /// Never appendable: the next edit begins a new file.
    Torn,
}

/// The largest size of the field that states the length of a manifest.
const LEN_FIELD_BYTES: u64 = 24;

/// The result of opening a manifest.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) manifest: Manifest,
    /// The torn tail that was ignored, if any.
    pub(crate) torn: Option<Torn>,
    /// The error if the file is shorter than its durable length. If the caller accepts such a file,
    /// the next edit begins a new manifest file.
    pub(crate) short: Option<Error>,
    /// The names of the files in the directory.
    pub(crate) names: Vec<String>,
}

/// A torn tail, which a crash normally leaves: bytes after the last valid record that no durable
/// offset covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Torn {
    pub(crate) at: Position,
    /// The number of bytes up to the last one that is not zero.
    pub(crate) bytes: u64,
    pub(crate) why: String,
}

impl fmt::Display for Torn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Torn { at, bytes, why } = self;
        let (offset, name) = (at.offset, FileName::Manifest(at.file));
        write!(f, "torn tail of {bytes} bytes at byte {offset} of {name}: {why}")
    }
}

impl Manifest {
    /// Creates a database in `dir`, which must hold none (see [`probe`](super::probe)), with
    /// `first` as its first edit.
    ///
    /// 1. Write a new manifest with the identity and the first edits, and sync it.
    /// 2. Sync the directory and its parent.
    /// 3. Make CURRENT name the manifest.
    ///
    /// Before step 3 the directory holds no database, and the next attempt replaces the files left
    /// over.
    ///
    /// # Errors
    /// `Io` or `StorageFull`. Creation may be retried, because no database exists yet.
    pub(crate) fn create(
        fs: Arc<dyn Fs>,
        dir: &Path,
        identity: Identity,
        first: &VersionEdit,
        mut rng: Rng,
    ) -> Result<Manifest> {
        // Range ids are taken from the sequence of file numbers, but appear in no file name. So
        // also stay above the range ids in `first`.
        let named = first.add_ranges.iter().map(|range| range.id.0 + 1).max().unwrap_or(0);
        let number = number_after_all(&names(&*fs, dir)?).max(named);
        let reserved = VersionEdit {
            identity: Some(identity),
            numbers_below: Some(FileNumber(number + NUMBERS_RESERVED)),
            ..VersionEdit::default()
        };
        let version = Version::default().apply(&reserved).and_then(|version| version.apply(first));
        let version = Arc::new(version.map_err(|problem| refused(dir, 0, problem))?);
        let header = new_header(FileNumber(number), &mut rng);
        let mut manifest = Manifest {
            next_number: number + 1,
            roll_at: 0,
            ..Self::at(fs, dir, rng, Arc::clone(&version), header, 0)
        };
        // An earlier creation may have been interrupted before the name of `dir` was durable.
        sync_dir(&*manifest.fs, &parent(dir))?;
        manifest.begin_file(header, version).map_err(PublishError::into_error)?;
        Ok(manifest)
    }

    /// Opens the database in `dir`.
    ///
    /// 1. Read CURRENT.
    /// 2. Replay the manifest that CURRENT names, up to the first bad record.
    /// 3. Fail if CURRENT or a later record states a greater durable length. [`Manifest::require`]
    ///    later compares the lengths that logs state.
    /// 4. Check the version.
    /// 5. Fail if a file that the version names is missing, unless only zeros follow the records.
    ///
    /// [`Manifest::confirm`] syncs the accepted records later: before anything depends on them, and
    /// at the latest before the first edit.
    ///
    /// # Errors
    /// `Corruption` if durable data is missing or wrong, `Unsupported` for data of a newer build,
    /// `Io`.
    pub(crate) fn open(fs: Arc<dyn Fs>, dir: &Path, access: Access, rng: Rng) -> Result<Opened> {
        let current = read_current(&*fs, dir)?;
        let path = dir.join(FileName::Manifest(current.manifest).to_string());
        let mut reader = LogReader::open(&*fs, &path, LogKind::Manifest, Some(current.id))?;
        if reader.header().number != current.manifest {
            return Err(Error::corrupt(&path, 16, "log header", "another file's number"));
        }
        let (version, last, ends) = replay(&mut reader)?;
        let torn = classify_tail(&mut reader, &current)?;
        let end = reader.position().offset;
        let short = DurableLen(version.durable_len(current.manifest)).error(&reader);
        version.check().map_err(|problem| refused(&path, end, problem))?;
        let read_only = read_only(&version, access, &path)?;
        let names = names(&*fs, dir)?;
        let bad = torn.as_ref().map(|torn| &*torn.why);
        let doubt = missing::compare(&path, &version, reader.position(), bad, &names)?;
        let next_number = number_after_all(&names).max(version.numbers_below.0);
        let manifest = Manifest {
            // With either of these tails, nothing can be appended before `confirm`.
            tail: if torn.is_none() && short.is_none() { Tail::Unconfirmed } else { Tail::Torn },
            unconfirmed: read_only.is_none().then_some(last.max(current.synced_len)),
            ends_closed: ends.clean_close.is_some(),
            ends_imported: !ends.add_imports.is_empty(),
            next_number,
            read_only,
            doubt,
            ..Self::at(fs, dir, rng, Arc::new(version), reader.header(), end)
        };
        Ok(Opened { manifest, torn, short, names })
    }

    /// Returns the manifest of a read-only engine, with a version read by `tailer`.
    pub(crate) fn for_readers(
        tail: &ManifestTail,
        version: &Arc<Version>,
        fs: Arc<dyn Fs>,
        dir: &Path,
    ) -> Self {
        let Position { file: number, offset: end } = tail.position();
        let header = LogHeader { kind: LogKind::Manifest, number, id: tail.id() };
        let (rng, version) = (Rng::from_seed(0), Arc::clone(version));
        Self::at(fs, dir, rng, version, header, end)
    }

    /// Returns a manifest whose records end at `end` in the file of `header`. It is not yet
    /// appendable.
    fn at(
        fs: Arc<dyn Fs>,
        dir: &Path,
        rng: Rng,
        version: Arc<Version>,
        header: LogHeader,
        end: u64,
    ) -> Self {
        Manifest {
            fs,
            dir: dir.to_owned(),
            rng,
            version,
            meter: None,
            header,
            end,
            tail: Tail::Torn,
            durable_len: 0,
            unconfirmed: None,
            unconfirmed_logs: Vec::new(),
            ends_closed: false,
            ends_imported: false,
            next_number: 0,
            // Set by `confirm`.
            roll_at: u64::MAX,
            roll_bytes_min: MANIFEST_ROLL_BYTES,
            superseded: Vec::new(),
            failure: None,
            ended: None,
            read_only: None,
            doubt: None,
        }
    }

    /// Registers the logs that opening accepted. [`Manifest::confirm`] makes them durable.
    pub(crate) fn rely_on(&mut self, logs: Vec<UnconfirmedLog>) {
        debug_assert!(
            self.is_untouched() || logs.is_empty(),
            "logs are accepted before the first edit"
        );
        self.unconfirmed_logs = logs;
    }

    /// True if a log that opening accepted may not be durable.
    pub(crate) fn has_unconfirmed_logs(&self) -> bool {
        !self.unconfirmed_logs.is_empty()
    }

    /// Makes the records accepted at opening durable, those of the manifest and those of the logs,
    /// unless an earlier call has done so. No edit, no removal of a file and no new commit may
    /// depend on records that are not durable.
    ///
    /// # Errors
    /// Every error ends writing.
    pub(crate) fn confirm(&mut self) -> Result<()> {
        self.usable()?;
        let Some(from) = self.unconfirmed else { return Ok(()) };
        let snapshot_len = snapshot_records(&self.version, self.header.number)?.0.len() as u64;
        self.roll_at = roll_at(snapshot_len, MANIFEST_ROLL_BYTES);
        self.make_durable(from).map_err(|error| self.fail(error))?;
        debug_assert!(!matches!(self.tail, Tail::Unconfirmed), "a tail is open or torn");
        self.unconfirmed = None;
        self.unconfirmed_logs.clear();
        Ok(())
    }

    fn make_durable(&mut self, from: u64) -> Result<()> {
        debug_assert!(from <= self.end, "the last record begins before the end");
        let logs = &self.unconfirmed_logs;
        debug_assert!(logs.is_sorted_by_key(|log| log.header.number), "logs ascend");
        for log in logs.iter().filter(|_| !mutant!("unsynced-recovery")) {
            let name = FileName::Wal(log.header.number);
            self.rewrite(&self.dir.join(name.to_string()), log.header, log.from..log.end)?;
        }
        // The last record of the manifest suffices: its header states that the earlier ones are
        // durable.
        let file = self.rewrite(&self.path(), self.header, from..self.end)?;
        sync_dir(&*self.fs, &self.dir)?;
        if matches!(self.tail, Tail::Unconfirmed) {
            self.tail = Tail::Open { file, allocated: self.end };
        }
        Ok(())
    }

    /// Writes the `records` of a file again and syncs it. After a sync that failed in an earlier
    /// process another sync is not enough.
    fn rewrite(&self, path: &Path, header: LogHeader, records: Range<u64>) -> Result<LogFile> {
        let file = LogFile::reopen(&*self.fs, path, header)?;
        file.write_again(&*self.fs, records.start, records.end)?;
        file.sync()?;
        Ok(file)
    }

    /// Adds the stored wear account to `meter`, which already counts the work of this opening. From
    /// now on edits contain the account, so recording it costs no extra writes.
    pub(crate) fn count_with(&mut self, meter: &Arc<Meter>) {
        if let Some(before) = self.version.account.as_ref() {
            meter.add(before);
        }
        self.meter = Some(Arc::clone(meter));
    }

    /// Returns the clean close if its edit was the last record at opening. Otherwise later records
    /// may exist only in the page cache.
    pub(crate) fn last_close(&self) -> Option<CleanClose> {
        self.version.clean_close.filter(|_| self.ends_closed)
    }

    /// True if the edit of an import was the last record at opening, so that it may not be durable.
    pub(crate) fn ends_imported(&self) -> bool {
        self.ends_imported
    }

    /// True if nothing was written since opening.
    pub(crate) fn is_untouched(&self) -> bool {
        self.unconfirmed.is_some()
    }

    /// Returns the hash seed of the database in `dir`.
    ///
    /// # Errors
    /// `Corruption` if the version has no identity.
    pub(crate) fn seed(&self, dir: &Path) -> Result<HashSeed> {
        let identity = self.version.identity.as_ref().map(|identity| identity.seed);
        identity.ok_or_else(|| Error::corrupt(dir, 0, "manifest", "no identity"))
    }

    /// Returns the id of the manifest file.
    pub(crate) fn id(&self) -> FileId {
        self.header.id
    }

    /// Returns the version after the last edit.
    pub(crate) fn version(&self) -> &Arc<Version> {
        &self.version
    }

    /// Returns the durable end of the manifest. Logs record it.
    pub(crate) fn position(&self) -> Position {
        Position { file: self.header.number, offset: self.end }
    }

    /// Returns why edits may have been lost before opening, or `None`. The doubt lasts as long as a
    /// file that the version names is missing.
    pub(crate) fn doubt(&self) -> Option<&str> {
        let doubt = self.doubt.as_deref()?;
        let is_proof = |names: Vec<String>| missing::missing(&self.version, &names).is_some();
        names(&*self.fs, &self.dir).map_or(true, is_proof).then_some(doubt)
    }

    /// Reads CURRENT again. If it names another manifest, returns the error that says so.
    ///
    /// # Errors
    /// `Corruption` if CURRENT cannot be decoded; `Io`.
    pub(crate) fn replaced(&self) -> Result<Option<Error>> {
        let current = read_current(&*self.fs, &self.dir)?;
        if (current.manifest, current.id) == (self.header.number, self.header.id) {
            return Ok(None);
        }
        let path = self.dir.join(FileName::Current.to_string());
        let (named, used) = (current.manifest, self.header.number);
        let problem = format!("it names MANIFEST-{named}, and MANIFEST-{used} is in use");
        Ok(Some(Error::corrupt(&path, 16, "current", problem)))
    }

    /// Checks that the manifest extends to `position`. A log states that it is durable up to there.
    ///
    /// # Errors
    /// `Corruption` if the manifest ends before `position`.
    pub(crate) fn require(&self, position: Position) -> Result<()> {
        if position <= self.position() {
            return Ok(());
        }
        let problem = format!("the records end here; a log vouches up to {position}");
        Err(Error::corrupt(&self.path(), self.end, "record", problem))
    }

    /// Makes `edit` durable and returns the resulting version.
    ///
    /// 1. Roll over if the file is torn or has outgrown its content.
    /// 2. Apply the edit to a copy of the version.
    /// 3. Allocate space.
    /// 4. Write and sync one record.
    /// 5. Install the copy as the version.
    ///
    /// # Errors
    /// `StorageFull` if nothing was written. Any other write error ends writing, and later calls
    /// return `Poisoned`. An edit that breaks an invariant is refused as `Corruption` before
    /// anything is written.
    pub(crate) fn append(&mut self, edit: &VersionEdit) -> Result<Arc<Version>> {
        self.append_behind(edit, None, 0)
    }

    /// As [`append_behind`](Self::append_behind), followed by an empty edit that states that the
    /// first edit is durable. Readers in other processes then accept the first edit immediately.
    /// Space for both edits is allocated before either is written. If writing the second edit fails
    /// nevertheless, the first is durable and writing has ended.
    ///
    /// # Errors
    /// As for [`append`](Self::append) of the first edit.
    pub(crate) fn append_vouched(
        &mut self,
        edit: &VersionEdit,
        log_durable: Option<Position>,
    ) -> Result<Arc<Version>> {
        let nothing = VersionEdit::default();
        let mut vouching = Vec::new();
        put_record(&mut vouching, &nothing, &nothing)?;
        let room = vouching.len() as u64 + LEN_FIELD_BYTES;
        let version = self.append_behind(edit, log_durable, room)?;
        if let Err(error) = self.append(&nothing) {
            self.failure.get_or_insert(error);
        }
        Ok(version)
    }

    /// As [`append`](Self::append), and records in the edit that the logs are durable up to
    /// `log_durable`. A drop or an import needs this statement if no later log record makes it.
    /// Otherwise other processes could see the drop or the import before they know that the log
    /// records before it are durable. Allocates `room` bytes after the record.
    ///
    /// # Errors
    /// As for [`append`](Self::append).
    pub(crate) fn append_behind(
        &mut self,
        edit: &VersionEdit,
        log_durable: Option<Position>,
        room: u64,
    ) -> Result<Arc<Version>> {
        self.confirm()?;
        self.make_room()?;
        let next = self.version.apply(edit);
        let mut next = next.map_err(|problem| refused(&self.path(), self.end, problem))?;
        let mut record = Vec::new();
        let start = begin(&mut record, RecordKind::Edit, Seq::ZERO);
        let content = record.len();
        edit.encode(&mut record);
        // An empty edit omits the account, because the caller reserved only the length of an edit
        // without an account.
        let account = self.meter.as_ref().filter(|_| record.len() > content);
        let account = account.map(|meter| meter.account());
        // The edit of a clean close states no length, because the space after it is released.
        let (number, len) = (self.header.number, self.durable_len);
        let is_longer = len > self.version.durable_len(number) && edit.clean_close.is_none();
        let durable_lens = if is_longer { vec![(number, len)] } else { Vec::new() };
        let added = VersionEdit { log_durable, account, durable_lens, ..VersionEdit::default() };
        added.encode(&mut record);
        end(&mut record, start)?;
        next.record_log_durable(log_durable.unwrap_or_default());
        if is_longer {
            next.record_len(number, len);
        }
        next.account = account.or(next.account);
        next.count_edit(&(self.end..self.end + record.len() as u64));
        self.write(&mut record, room)?;
        self.ends_closed = edit.clean_close.is_some();
        self.version = Arc::new(next);
        Ok(Arc::clone(&self.version))
    }

    /// Returns a number that was never assigned before.
    pub(crate) fn next_number(&mut self) -> Result<FileNumber> {
        self.next_numbers(1)
    }

    /// Returns the first of `count` consecutive unused numbers, which one edit reserves.
    pub(crate) fn next_numbers(&mut self, count: u64) -> Result<FileNumber> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        // The last reserved number is kept for the next manifest, whose header needs a number
        // before any edit can reserve one.
        if self.next_number + count >= self.version.numbers_below.0 {
            self.confirm()?;
            // A roll-over uses a number, so it must precede the reservation.
            self.make_room()?;
            let below = Some(FileNumber(self.next_number + count + NUMBERS_RESERVED - 1));
            self.append(&VersionEdit { numbers_below: below, ..VersionEdit::default() })?;
        }
        let number = FileNumber(self.next_number);
        self.next_number += count;
        debug_assert!(
            self.next_number <= self.version.numbers_below.0,
            "numbers are reserved first"
        );
        Ok(number)
    }

    /// Returns a random id for a new file.
    pub(crate) fn next_id(&mut self) -> FileId {
        FileId(self.rng.next_u64())
    }

    /// Returns the failure that leaves the contents of the disk unknown, if any.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// Releases preallocated space after a clean close.
    pub(crate) fn trim(&mut self) {
        if let Tail::Open { file, allocated } = &mut self.tail
            && self.ends_closed
        {
            debug_assert!(self.end <= *allocated, "records fit what is allocated");
            file.trim(self.end);
            *allocated = self.end;
        }
    }

    /// Makes every later edit fail with `error`; does not touch the disk.
    pub(crate) fn end(&mut self, error: Error) {
        self.ended.get_or_insert(error);
    }

    fn path(&self) -> PathBuf {
        self.dir.join(FileName::Manifest(self.header.number).to_string())
    }

    /// Checks that edits are accepted.
    ///
    /// # Errors
    /// The error that ended writing; `Unsupported` if the manifest may only be read.
    pub(crate) fn usable(&self) -> Result<()> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        if let Some(why) = &self.read_only {
            return Err(Error::new(ErrorKind::Unsupported, why.clone()));
        }
        match &self.failure {
            Some(error) => Err(error.clone().poisoned()),
            None => Ok(()),
        }
    }

    /// Rolls over if that is due. If the disk is too full for a new file, the old file still
    /// accepts edits that fit.
    fn make_room(&mut self) -> Result<()> {
        let torn = matches!(self.tail, Tail::Torn);
        if !torn && (self.end <= self.roll_at || self.doubt.is_some()) {
            return Ok(());
        }
        match self.roll() {
            Err(error) if error.kind() == ErrorKind::StorageFull && !torn => {
                self.usable()?;
                self.roll_at = self.end.saturating_mul(2);
                Ok(())
            }
            result => result,
        }
    }

    fn roll(&mut self) -> Result<()> {
        let number = self.next_number;
        self.next_number += 1;
        let mut version = Arc::clone(&self.version);
        if self.next_number > version.numbers_below.0 {
            let below = Some(FileNumber(number + NUMBERS_RESERVED));
            let edit = VersionEdit { numbers_below: below, ..VersionEdit::default() };
            let reserved = version.apply(&edit);
            version = Arc::new(reserved.map_err(|p| refused(&self.path(), self.end, p))?);
        }
        let header = new_header(FileNumber(number), &mut self.rng);
        self.begin_file(header, version).map_err(|error| match error {
            PublishError::Before(error) => {
                let full = error.kind() == ErrorKind::StorageFull;
                if full { error } else { self.fail(error) }
            }
            PublishError::Unknown(error) => self.fail(error),
        })
    }

    /// Writes `version` to a new file and makes CURRENT name it.
    ///
    /// 1. Write a snapshot to the new file and sync it.
    /// 2. Sync the directory.
    /// 3. Make CURRENT name the file.
    fn begin_file(&mut self, header: LogHeader, version: Arc<Version>) -> Result<(), PublishError> {
        debug_assert!(header.number.0 < self.next_number, "a new file has a number that was taken");
        let path = self.dir.join(FileName::Manifest(header.number).to_string());
        let written = self.write_snapshot(&path, header, &version).map_err(PublishError::Before);
        let published = written.and_then(|(file, end, allocated)| {
            let current = Current { manifest: header.number, id: header.id, synced_len: end };
            publish(&*self.fs, &self.dir, current)?;
            Ok((file, end, allocated))
        });
        if let Err(PublishError::Before(_)) = &published {
            // CURRENT does not name the new file, and a full disk needs its space. If the removal
            // fails, the file is an orphan.
            drop(self.fs.remove(&path));
        }
        let (file, end, allocated) = published?;
        debug_assert!(end <= allocated, "a snapshot fits the space allocated for it");
        debug_assert!(!self.superseded.contains(&header.number), "a new file was never replaced");
        if self.header.number != header.number {
            self.superseded.push(self.header.number);
        }
        self.version = version;
        self.header = header;
        self.end = end;
        self.durable_len = allocated;
        Arc::make_mut(&mut self.version).record_len(header.number, allocated);
        self.roll_at = roll_at(end, self.roll_bytes_min);
        self.tail = Tail::Open { file, allocated };
        Ok(())
    }

    fn write_snapshot(
        &self,
        path: &Path,
        header: LogHeader,
        version: &Version,
    ) -> Result<(LogFile, u64, u64)> {
        let (mut records, allocated) = snapshot_records(version, header.number)?;
        let at = Position { file: header.number, offset: LogFile::START };
        seal(&mut records, at, header.id, Position::default());
        let end = LogFile::START + records.len() as u64;
        let file = LogFile::create(&*self.fs, path, header, allocated)?;
        file.write_at(at.offset, &records)?;
        file.sync()?;
        sync_dir(&*self.fs, &self.dir)?;
        Ok((file, end, allocated))
    }

    /// Writes one record at the end and syncs it; allocates space for `room` bytes after it.
    fn write(&mut self, record: &mut [u8], room: u64) -> Result<()> {
        debug_assert!(self.unconfirmed.is_none(), "an edit follows confirmed ones");
        debug_assert!(record.len().is_multiple_of(RECORD_ALIGN), "a record is padded");
        let at = self.position();
        let id = self.header.id;
        let Tail::Open { file, allocated } = &mut self.tail else {
            return Err(refused(&self.path(), self.end, "nothing follows a torn tail".into()));
        };
        // Each append is synced before the next, so all bytes before this record are durable.
        seal(record, at, id, at);
        let end = at.offset + record.len() as u64;
        if end + room > *allocated {
            let wanted = (end + room).next_multiple_of(ALLOCATE_BYTES);
            match file.allocate(wanted) {
                Ok(()) => *allocated = wanted,
                Err(e) if e.kind() == ErrorKind::StorageFull => return Err(e),
                Err(e) => return Err(self.fail(e)),
            }
        }
        let sync = || if mutant!("unsynced-edit") { Ok(()) } else { file.sync() };
        let written = file.write_at(at.offset, record).and_then(|()| sync());
        let allocated = *allocated;
        written.map_err(|error| self.fail(error))?;
        (self.end, self.durable_len) = (end, self.durable_len.max(allocated));
        debug_assert!(
            self.end <= self.durable_len,
            "durable records are within the durable length"
        );
        Ok(())
    }

    fn fail(&mut self, error: Error) -> Error {
        self.failure = Some(error.clone());
        error
    }
}

impl PublishError {
    fn into_error(self) -> Error {
        match self {
            PublishError::Before(error) | PublishError::Unknown(error) => error,
        }
    }
}

/// Applies every record before the first bad one. Returns the version, and the offset and the edit
/// of the last applied record.
fn replay(reader: &mut LogReader) -> Result<(Version, u64, VersionEdit)> {
    let path = reader.path().to_owned();
    let (mut version, mut last) = (Version::default(), LogFile::START);
    let mut last_edit = VersionEdit::default();
    while let Some(record) = reader.next()? {
        last = record.offset;
        let edit = edit_of(&path, &record)?;
        let applied = version.apply_in_place(&edit);
        applied.map_err(|problem| refused(&path, record.offset, problem))?;
        version.count_edit(&record.bytes());
        last_edit = edit;
    }
    Ok((version, last, last_edit))
}

/// Examines the bytes after the last valid record. Returns a torn tail, `None` if the end is clean,
/// or the error if a durable record is damaged.
fn classify_tail(reader: &mut LogReader, current: &Current) -> Result<Option<Torn>> {
    let at = reader.position();
    let why = reader.stop_text();
    let corrupt = |evidence: String| {
        Err(Error::corrupt(reader.path(), at.offset, "record", format!("{why}; {evidence}")))
    };
    if at.offset < current.synced_len {
        return corrupt(format!("CURRENT vouches up to {}", current.synced_len));
    }
    let path = reader.path().to_owned();
    let rest = reader.rest()?;
    match rest.durable_up_to {
        Some(durable_up_to) if durable_up_to > at => {
            let problem = format!("{why}; a later record vouches up to {durable_up_to}");
            Err(Error::corrupt(&path, at.offset, "record", problem))
        }
        _ if rest.is_zero() => Ok(None),
        _ => Ok(Some(Torn { at, bytes: rest.bytes, why })),
    }
}

fn read_only(version: &Version, access: Access, path: &Path) -> Result<Option<String>> {
    let Some(identity) = version.identity.as_ref() else {
        return Err(Error::corrupt(path, LogFile::START, "record", "a manifest without records"));
    };
    let feature = identity.unwritable();
    Ok(match (feature, access) {
        (Some(feature), _) => {
            Some(format!("{} needs the feature {feature} to write", path.display()))
        }
        (None, Access::ReadOnly) => Some("the database was opened to be read only".into()),
        (None, Access::ReadWrite) => None,
    })
}

/// Returns the records of a snapshot, and the length to allocate for the manifest `number` that
/// begins with them. The last record states that length.
fn snapshot_records(version: &Version, number: FileNumber) -> Result<(Vec<u8>, u64)> {
    debug_assert!(version.identity.is_some(), "a snapshot begins with the identity");
    let mut records = Vec::new();
    let (nothing, edits) = (VersionEdit::default(), version.snapshot());
    let mut last = 0;
    for edit in &edits {
        last = records.len();
        put_record(&mut records, edit, &nothing)?;
    }
    let end = LogFile::START + records.len() as u64 + LEN_FIELD_BYTES;
    let allocated = end.next_multiple_of(ALLOCATE_BYTES);
    records.truncate(last);
    let len = VersionEdit { durable_lens: vec![(number, allocated)], ..nothing };
    put_record(&mut records, edits.last().unwrap_or(&VersionEdit::default()), &len)?;
    Ok((records, allocated))
}

/// Appends a record with the fields of `edit` and those of `added`.
fn put_record(out: &mut Vec<u8>, edit: &VersionEdit, added: &VersionEdit) -> Result<()> {
    let start = begin(out, RecordKind::Edit, Seq::ZERO);
    edit.encode(out);
    added.encode(out);
    end(out, start)
}

fn new_header(number: FileNumber, rng: &mut Rng) -> LogHeader {
    LogHeader { kind: LogKind::Manifest, number, id: FileId(rng.next_u64()) }
}

fn roll_at(snapshot_len: u64, least: u64) -> u64 {
    snapshot_len.saturating_mul(ROLL_FACTOR).max(least)
}
