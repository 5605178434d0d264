//! Encodes and decodes version edits, the payload of records in a MANIFEST. FORMAT.md §edit.
//!
//! Invariants
//! * an edit is a sequence of tagged fields, written in ascending order of tag and read in any
//!   order;
//! * an unknown optional field is kept, and is written again when the manifest is rewritten as a
//!   snapshot;
//! * the first record of a manifest contains the identity of the database.
//!
//! `manifest` applies edits to versions and validates them.

mod lived;
mod wear;

use std::fmt;

use crate::codec::{Cursor, DecodeError, HashSeed};
use crate::model::Seq;
use crate::rng::Rng;
use crate::sort::SortedMap;

use super::field::{
    Content, Field, FormatError, content, next_field, put_content, put_field, put_optional_content,
    put_with, read_fields, unsupported,
};
use super::file_meta::FileMeta;
use super::names::{FileId, FileNumber, RangeId, TableId};
use super::record::Position;
use super::span::Span;

pub(crate) use lived::{ERAS_MAX, Era, LivedTime, MARKS_MAX, Mark};
pub(crate) use wear::Account;
pub use wear::Wear;

const EDIT: &str = "version edit";
const IDENTITY: &str = "identity";

/// The features that this build supports, for reading and for writing; none yet.
const FEATURES_KNOWN: [&str; 0] = [];

/// A change of the version, applied atomically.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VersionEdit {
    pub(crate) identity: Option<Identity>,
    /// Every file number that was ever assigned is below this number.
    pub(crate) numbers_below: Option<FileNumber>,
    pub(crate) add_logs: Vec<LogMeta>,
    pub(crate) remove_logs: Vec<FileNumber>,
    /// Every commit up to this Seq is in table files.
    pub(crate) flushed_seq: Option<Seq>,
    pub(crate) add_files: Vec<FileMeta>,
    pub(crate) remove_files: Vec<FileNumber>,
    pub(crate) add_ranges: Vec<RangeMeta>,
    pub(crate) remove_ranges: Vec<RangeId>,
    pub(crate) add_references: Vec<ReferenceMeta>,
    pub(crate) remove_references: Vec<(RangeId, FileNumber)>,
    pub(crate) drop_tables: Vec<(TableId, Seq)>,
    pub(crate) forget_tables: Vec<TableId>,
    pub(crate) add_range_tombstones: Vec<RangeTombstone>,
    pub(crate) remove_range_tombstones: Vec<RangeTombstone>,
    /// Set by a clean close; states the durable end of the last log. The version drops it together
    /// with that log.
    pub(crate) clean_close: Option<CleanClose>,
    /// The clock by which rows expire.
    pub(crate) clock: Option<LivedTime>,
    /// Logs that recovery does not need but the change feed does.
    pub(crate) keep_logs: Vec<KeptLog>,
    pub(crate) forget_logs: Vec<FileNumber>,
    /// Describes imports whose files this edit adds; kept for the change feed.
    pub(crate) add_imports: Vec<Import>,
    pub(crate) forget_imports: Vec<Seq>,
    /// The position up to which the logs were durable before this edit was written.
    pub(crate) log_durable: Option<Position>,
    /// The wear account (bytes and syncs by cause), without the write of this edit.
    pub(crate) account: Option<Account>,
    /// Known durable lengths of table files, logs or the manifest itself, by file number. The edit
    /// of a clean close revokes the lengths that earlier edits state.
    pub(crate) durable_lens: Vec<(FileNumber, u64)>,
    /// Fields of a newer format, as they were encoded.
    pub(crate) unknown: Vec<u8>,
}

/// The identity of a database, and the features needed to use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Random; never changes.
    pub(crate) database: u128,
    /// Random; replaced by every restore or repair.
    pub(crate) incarnation: u64,
    pub(crate) seed: HashSeed,
    /// Features without which the database cannot be read.
    pub(crate) read_features: Vec<Box<str>>,
    /// Features without which the database can be read but not written.
    pub(crate) write_features: Vec<Box<str>>,
    /// Features for information only.
    pub(crate) ignorable_features: Vec<Box<str>>,
}

/// A WAL that recovery replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogMeta {
    pub(crate) number: FileNumber,
    pub(crate) id: FileId,
}

/// A log whose contents are all in table files; it is kept for the change feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptLog {
    pub(crate) log: LogMeta,
    /// The length of the file.
    pub(crate) bytes: u64,
    /// The greatest Seq of a commit in it.
    pub(crate) last: Seq,
}

/// Rows that were imported as table files, with their own Seqs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Import {
    /// The rows are visible from this Seq on.
    pub(crate) seq: Seq,
    /// Logged commits before this position precede the import; all later ones follow it.
    pub(crate) at: Position,
    /// The span of the imported rows. At `seq` it holds no other rows.
    pub(crate) span: Span,
}

/// A contiguous span of a table's keys with its own tree of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeMeta {
    pub(crate) id: RangeId,
    pub(crate) table: TableId,
    pub(crate) span: Span,
}

/// The reference of a range to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReferenceMeta {
    pub(crate) range: RangeId,
    pub(crate) file: FileNumber,
    pub(crate) placement: Placement,
    /// The part of the file's keys that belongs to this range. [`whole_range`](Self::whole_range)
    /// stands for the span of the range.
    pub(crate) clip: Span,
    /// The approximate number of bytes of the file that are in the clip; `None` means the size of
    /// the file.
    pub(crate) bytes: Option<u64>,
}

/// The position of a file in a range's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Placement {
    /// Among the young files, which may overlap.
    Young = 1,
    /// In the sorted run, whose files do not overlap.
    Run = 2,
}

/// A range tombstone hides the entries of `span` with Seqs below `below` from reads at `from` or
/// later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeTombstone {
    pub(crate) span: Span,
    /// Equal to `from` for a deletion, lower for an expiry.
    pub(crate) below: Seq,
    /// The commit that created it.
    pub(crate) from: Seq,
}

/// A clean close. The last log is complete only if it extends to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CleanClose {
    pub(crate) log: FileNumber,
    pub(crate) end: u64,
    pub(crate) last_seq: Seq,
}

mod tag {
    pub(super) const IDENTITY: u64 = 1;
    pub(super) const NUMBERS_BELOW: u64 = 2;
    pub(super) const ADD_LOG: u64 = 3;
    pub(super) const REMOVE_LOG: u64 = 4;
    pub(super) const FLUSHED_SEQ: u64 = 5;
    pub(super) const ADD_FILE: u64 = 6;
    pub(super) const REMOVE_FILE: u64 = 7;
    pub(super) const ADD_RANGE: u64 = 8;
    pub(super) const REMOVE_RANGE: u64 = 9;
    pub(super) const ADD_REFERENCE: u64 = 10;
    pub(super) const REMOVE_REFERENCE: u64 = 11;
    pub(super) const DROP_TABLE: u64 = 12;
    pub(super) const FORGET_TABLE: u64 = 13;
    pub(super) const ADD_RANGE_TOMBSTONE: u64 = 14;
    pub(super) const REMOVE_RANGE_TOMBSTONE: u64 = 15;
    pub(super) const CLEAN_CLOSE: u64 = 16;
    pub(super) const REFERENCE_BYTES: u64 = 17;
    pub(super) const ADD_EXPIRY: u64 = 18;
    pub(super) const REMOVE_EXPIRY: u64 = 19;
    pub(super) const CLOCK: u64 = 20;
    pub(super) const KEEP_LOG: u64 = 21;
    pub(super) const FORGET_LOG: u64 = 22;
    pub(super) const ADD_IMPORT: u64 = 23;
    pub(super) const FORGET_IMPORT: u64 = 24;
    pub(super) const LOG_DURABLE: u64 = 25;
    pub(super) const ACCOUNT: u64 = 26;
    pub(super) const LIVED_TIME: u64 = 27;
    pub(super) const DURABLE_LEN: u64 = 28;
}

mod identity_tag {
    pub(super) const DATABASE: u64 = 1;
    pub(super) const INCARNATION: u64 = 2;
    pub(super) const SEED: u64 = 3;
    pub(super) const READ_FEATURE: u64 = 4;
    pub(super) const WRITE_FEATURE: u64 = 5;
    pub(super) const IGNORABLE_FEATURE: u64 = 6;
}

/// The approximate number of bytes of a file that are in a range.
type Sizes = SortedMap<(RangeId, FileNumber), u64>;

impl VersionEdit {
    /// Appends the edit as the payload of a record.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        if let Some(identity) = &self.identity {
            put_with(out, tag::IDENTITY, |content| identity.encode(content));
        }
        put_all(out, tag::NUMBERS_BELOW, &self.numbers_below);
        put_all(out, tag::ADD_LOG, &self.add_logs);
        put_all(out, tag::REMOVE_LOG, &self.remove_logs);
        put_all(out, tag::FLUSHED_SEQ, &self.flushed_seq);
        for file in &self.add_files {
            put_with(out, tag::ADD_FILE, |content| file.encode(content));
        }
        put_all(out, tag::REMOVE_FILE, &self.remove_files);
        put_all(out, tag::ADD_RANGE, &self.add_ranges);
        put_all(out, tag::REMOVE_RANGE, &self.remove_ranges);
        put_all(out, tag::ADD_REFERENCE, &self.add_references);
        put_all(out, tag::REMOVE_REFERENCE, &self.remove_references);
        put_all(out, tag::DROP_TABLE, &self.drop_tables);
        put_all(out, tag::FORGET_TABLE, &self.forget_tables);
        put_tombstones(out, tag::ADD_RANGE_TOMBSTONE, &self.add_range_tombstones, true);
        put_tombstones(out, tag::REMOVE_RANGE_TOMBSTONE, &self.remove_range_tombstones, true);
        put_all(out, tag::CLEAN_CLOSE, &self.clean_close);
        for reference in &self.add_references {
            let size = reference.bytes.map(|bytes| ((reference.range, reference.file), bytes));
            put_optional_content(out, tag::REFERENCE_BYTES, size.as_ref());
        }
        put_tombstones(out, tag::ADD_EXPIRY, &self.add_range_tombstones, false);
        put_tombstones(out, tag::REMOVE_EXPIRY, &self.remove_range_tombstones, false);
        put_optional_content(out, tag::CLOCK, self.clock.as_ref().map(|clock| &clock.now));
        put_all(out, tag::KEEP_LOG, &self.keep_logs);
        put_all(out, tag::FORGET_LOG, &self.forget_logs);
        put_all(out, tag::ADD_IMPORT, &self.add_imports);
        put_all(out, tag::FORGET_IMPORT, &self.forget_imports);
        put_optional_content(out, tag::LOG_DURABLE, self.log_durable.as_ref());
        put_optional_content(out, tag::ACCOUNT, self.account.as_ref());
        let wrong_clock = self.clock.as_ref().filter(|clock| clock.was_wrong());
        put_optional_content(out, tag::LIVED_TIME, wrong_clock);
        for len in &self.durable_lens {
            put_optional_content(out, tag::DURABLE_LEN, Some(len));
        }
        out.extend_from_slice(&self.unknown);
    }

    /// Decodes the payload of a record.
    pub(crate) fn decode(payload: &[u8]) -> Result<VersionEdit, FormatError> {
        let mut edit = VersionEdit::default();
        let mut sizes = SortedMap::default();
        let mut cursor = Cursor::new(EDIT, payload);
        loop {
            let start = cursor.at();
            let Some(field) = next_field(&mut cursor)? else {
                edit.set_sizes(&sizes);
                edit.order_range_tombstones();
                return Ok(edit);
            };
            let known = edit.read(&field, &mut sizes).map_err(|error| error.shifted(field.at))?;
            if !known {
                field.unknown(EDIT)?;
                let kept = payload.get(start..cursor.at()).unwrap_or_default();
                edit.unknown.extend_from_slice(kept);
            }
        }
    }

    /// Sets the sizes of the references that this edit adds. Ignores sizes of other references: an
    /// older build does not know sizes, and keeps them after the reference is removed.
    fn set_sizes(&mut self, sizes: &Sizes) {
        if !sizes.is_empty() {
            for reference in &mut self.add_references {
                reference.bytes = sizes.get(&(reference.range, reference.file)).copied();
            }
        }
    }

    /// Puts deletions before expiries, because range tombstones take effect and are written in this
    /// order. In a decoded edit they may be in any order.
    fn order_range_tombstones(&mut self) {
        for range_tombstones in [&mut self.add_range_tombstones, &mut self.remove_range_tombstones]
        {
            let (drops, expiries): (Vec<_>, Vec<_>) =
                range_tombstones.drain(..).partition(RangeTombstone::is_drop);
            range_tombstones.extend(drops);
            range_tombstones.extend(expiries);
        }
    }

    /// Reads one field; returns false if its tag is unknown. Offsets in errors count from the start
    /// of the content.
    fn read(&mut self, field: &Field<'_>, sizes: &mut Sizes) -> Result<bool, FormatError> {
        let mut content = Cursor::new(EDIT, field.content);
        let c = &mut content;
        match field.tag {
            tag::IDENTITY => self.identity = Some(Identity::decode(c.rest())?),
            tag::NUMBERS_BELOW => self.numbers_below = Some(Content::decode(c)?),
            tag::ADD_LOG => self.add_logs.push(Content::decode(c)?),
            tag::REMOVE_LOG => self.remove_logs.push(Content::decode(c)?),
            tag::FLUSHED_SEQ => self.flushed_seq = Some(Content::decode(c)?),
            tag::ADD_FILE => self.add_files.push(file_meta(c.rest())?),
            tag::REMOVE_FILE => self.remove_files.push(Content::decode(c)?),
            tag::ADD_RANGE => self.add_ranges.push(Content::decode(c)?),
            tag::REMOVE_RANGE => self.remove_ranges.push(Content::decode(c)?),
            tag::ADD_REFERENCE => self.add_references.push(Content::decode(c)?),
            tag::REMOVE_REFERENCE => self.remove_references.push(Content::decode(c)?),
            tag::DROP_TABLE => self.drop_tables.push(Content::decode(c)?),
            tag::FORGET_TABLE => self.forget_tables.push(Content::decode(c)?),
            tag::ADD_RANGE_TOMBSTONE => {
                self.add_range_tombstones.push(RangeTombstone::decode_drop(c)?)
            }
            tag::REMOVE_RANGE_TOMBSTONE => {
                self.remove_range_tombstones.push(RangeTombstone::decode_drop(c)?)
            }
            tag::ADD_EXPIRY => self.add_range_tombstones.push(RangeTombstone::decode_expiry(c)?),
            tag::REMOVE_EXPIRY => {
                self.remove_range_tombstones.push(RangeTombstone::decode_expiry(c)?)
            }
            tag::CLOCK => self.clock.get_or_insert_default().now = Seq::decode(c)?.0,
            tag::LIVED_TIME => {
                let clock = self.clock.get_or_insert_default();
                *clock = LivedTime { now: clock.now, ..LivedTime::decode(c)? };
            }
            tag::CLEAN_CLOSE => self.clean_close = Some(Content::decode(c)?),
            tag::KEEP_LOG => self.keep_logs.push(Content::decode(c)?),
            tag::FORGET_LOG => self.forget_logs.push(Content::decode(c)?),
            tag::ADD_IMPORT => self.add_imports.push(Content::decode(c)?),
            tag::FORGET_IMPORT => self.forget_imports.push(Content::decode(c)?),
            tag::LOG_DURABLE => self.log_durable = Some(Content::decode(c)?),
            tag::DURABLE_LEN => self.durable_lens.push(Content::decode(c)?),
            tag::ACCOUNT => match Content::decode(c) {
                Ok(account) if c.is_empty() => self.account = Some(account),
                // No row depends on the account, so a malformed account is kept like an unknown
                // field.
                _ => return Ok(false),
            },
            tag::REFERENCE_BYTES => {
                let (reference, bytes) = Content::decode(c)?;
                sizes.insert(reference, bytes);
            }
            _ => return Ok(false),
        }
        content.finish()?;
        Ok(true)
    }
}

impl Identity {
    /// Returns the identity of a new database.
    pub(crate) fn random(rng: &mut Rng) -> Self {
        Self {
            database: u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64()),
            incarnation: rng.next_u64(),
            seed: HashSeed(rng.next_u64()),
            read_features: Vec::new(),
            write_features: Vec::new(),
            ignorable_features: Vec::new(),
        }
    }

    /// Whether both databases have the same history, so that a position in one is valid in the
    /// other.
    pub(crate) fn is_same_history(&self, other: &Identity) -> bool {
        (self.database, self.incarnation) == (other.database, other.incarnation)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_field(out, identity_tag::DATABASE, &self.database.to_le_bytes());
        put_field(out, identity_tag::INCARNATION, &self.incarnation.to_le_bytes());
        put_field(out, identity_tag::SEED, &self.seed.0.to_le_bytes());
        let sets = [
            (identity_tag::READ_FEATURE, &self.read_features),
            (identity_tag::WRITE_FEATURE, &self.write_features),
            (identity_tag::IGNORABLE_FEATURE, &self.ignorable_features),
        ];
        for (tag, features) in sets {
            features.iter().for_each(|feature| put_field(out, tag, feature.as_bytes()));
        }
    }

    fn decode(bytes: &[u8]) -> Result<Identity, FormatError> {
        let (mut database, mut incarnation, mut seed) = (None, None, None);
        let mut sets = [Vec::new(), Vec::new(), Vec::new()];
        let [read_features, write_features, ignorable_features] = &mut sets;
        read_fields(IDENTITY, bytes, |tag, content| {
            match tag {
                identity_tag::DATABASE => {
                    let low = u128::from(content.u64()?);
                    database = Some(u128::from(content.u64()?) << 64 | low);
                }
                identity_tag::INCARNATION => incarnation = Some(content.u64()?),
                identity_tag::SEED => seed = Some(HashSeed(content.u64()?)),
                identity_tag::READ_FEATURE => read_features.push(text(content)?),
                identity_tag::WRITE_FEATURE => write_features.push(text(content)?),
                identity_tag::IGNORABLE_FEATURE => ignorable_features.push(text(content)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let missing = || DecodeError::new(IDENTITY, 0, "incomplete");
        let [read_features, write_features, ignorable_features] = sets;
        Ok(Identity {
            database: database.ok_or_else(missing)?,
            incarnation: incarnation.ok_or_else(missing)?,
            seed: seed.ok_or_else(missing)?,
            read_features,
            write_features,
            ignorable_features,
        })
    }

    /// Returns the first feature that is needed to read the database but is missing in this build.
    pub(crate) fn unreadable(&self) -> Option<&str> {
        first_unknown(&self.read_features)
    }

    /// Returns the first feature that is needed to write to the database but is missing in this
    /// build.
    pub(crate) fn unwritable(&self) -> Option<&str> {
        first_unknown(&self.write_features)
    }
}

content! {
    LogMeta { number, id }
    KeptLog { log, bytes, last }
    Import { seq, at, span }
    RangeMeta { id, table, span }
    CleanClose { log, end, last_seq }
}

impl ReferenceMeta {
    /// Returns the clip that means the whole range.
    pub(crate) fn whole_range() -> Span {
        Span::all()
    }
}

/// Encodes all members except `bytes`, which is encoded as a separate field.
impl Content for ReferenceMeta {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.range, self.file).encode(out);
        out.push(self.placement as u8);
        self.clip.encode(out);
    }

    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let (range, file) = Content::decode(cursor)?;
        let placement = match cursor.u8()? {
            1 => Placement::Young,
            2 => Placement::Run,
            code => return Err(cursor.error(format!("placement {code}"))),
        };
        Ok(Self { range, file, placement, clip: Span::decode(cursor)?, bytes: None })
    }
}

impl RangeTombstone {
    /// Creates the range tombstone by which commit `seq` deletes all entries of `span`.
    pub(crate) fn drop(span: Span, seq: Seq) -> Self {
        Self { span, below: seq, from: seq }
    }

    pub(crate) fn is_drop(&self) -> bool {
        self.below == self.from
    }

    fn decode_drop(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let (from, span) = Content::decode(cursor)?;
        Ok(Self::drop(span, from))
    }

    fn decode_expiry(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let (from, below) = Content::decode(cursor)?;
        if below >= from {
            return Err(cursor.error("an expiry is not below the commit that told of it"));
        }
        Ok(Self { span: Span::decode(cursor)?, below, from })
    }
}

/// Prints the text for `inspect`, one line per field.
impl fmt::Display for VersionEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(id) = &self.identity {
            let (database, incarnation) = (id.database, id.incarnation);
            writeln!(f, "identity {database:032x} incarnation {incarnation:016x}")?;
        }
        if let Some(number) = self.numbers_below {
            writeln!(f, "numbers below {number}")?;
        }
        self.add_logs.iter().try_for_each(|log| writeln!(f, "add log {}", log.number))?;
        self.remove_logs.iter().try_for_each(|number| writeln!(f, "remove log {number}"))?;
        if let Some(seq) = self.flushed_seq {
            writeln!(f, "flushed #{seq}")?;
        }
        for file in &self.add_files {
            let (number, min, max) = (file.number, file.seq_min, file.seq_max);
            let span = Span::inclusive(&file.key_min, &file.key_max);
            writeln!(f, "add file {number} {} bytes #{min}..#{max} {span}", file.bytes)?;
        }
        self.remove_files.iter().try_for_each(|number| writeln!(f, "remove file {number}"))?;
        for range in &self.add_ranges {
            writeln!(f, "add range r{} {} {}", range.id.0, range.table, range.span)?;
        }
        self.remove_ranges.iter().try_for_each(|id| writeln!(f, "remove range r{}", id.0))?;
        for reference in &self.add_references {
            let ReferenceMeta { range, file, placement, clip, bytes } = reference;
            write!(f, "add reference r{} {file} {placement:?} {clip}", range.0)?;
            bytes.map_or(Ok(()), |bytes| write!(f, " about {bytes} bytes"))?;
            writeln!(f)?;
        }
        for (range, file) in &self.remove_references {
            writeln!(f, "remove reference r{} {file}", range.0)?;
        }
        self.drop_tables.iter().try_for_each(|(id, seq)| writeln!(f, "drop {id} #{seq}"))?;
        self.forget_tables.iter().try_for_each(|id| writeln!(f, "forget {id}"))?;
        let (add, remove) = (&self.add_range_tombstones, &self.remove_range_tombstones);
        for (verb, tombstones) in [("add", add), ("remove", remove)] {
            for tombstone in tombstones {
                let RangeTombstone { span, below, from } = tombstone;
                match tombstone.is_drop() {
                    true => writeln!(f, "{verb} fence {span} #{from}")?,
                    false => writeln!(f, "{verb} expiry {span} below #{below} from #{from}")?,
                }
            }
        }
        for KeptLog { log, bytes, last } in &self.keep_logs {
            writeln!(f, "keep log {} {bytes} bytes up to #{last}", log.number)?;
        }
        self.forget_logs.iter().try_for_each(|number| writeln!(f, "forget log {number}"))?;
        for Import { seq, at, span } in &self.add_imports {
            writeln!(f, "import {span} #{seq} at {at}")?;
        }
        self.forget_imports.iter().try_for_each(|seq| writeln!(f, "forget import #{seq}"))?;
        if let Some(position) = self.log_durable {
            writeln!(f, "logs durable up to {position}")?;
        }
        if let Some(Account { wear, .. }) = &self.account {
            let (user, written, syncs) = (wear.user_bytes, wear.written(), wear.syncs());
            writeln!(f, "wear {user} bytes of users, {written} written, {syncs} syncs")?;
        }
        if let Some(LivedTime { now, eras, marks, doubts, unsure }) = &self.clock {
            let (eras, marks, doubts) = (eras.len(), marks.len(), doubts.len());
            write!(f, "clock {now}, {eras} eras, {marks} marks, {doubts} doubts")?;
            unsure.map_or(Ok(()), |seq| write!(f, ", not right since #{seq}"))?;
            writeln!(f)?;
        }
        self.fmt_end(f)
    }
}

impl VersionEdit {
    /// Prints the last lines: durable lengths, unknown fields, and the clean close.
    fn fmt_end(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, len) in &self.durable_lens {
            writeln!(f, "file {number} at least {len} bytes long")?;
        }
        if !self.unknown.is_empty() {
            writeln!(f, "{} bytes of fields that cannot be read", self.unknown.len())?;
        }
        match &self.clean_close {
            Some(c) => writeln!(f, "clean close {}.wal at {} #{}", c.log, c.end, c.last_seq),
            None => Ok(()),
        }
    }
}

fn put_all<'c, C: Content + 'c>(
    out: &mut Vec<u8>,
    tag: u64,
    contents: impl IntoIterator<Item = &'c C>,
) {
    contents.into_iter().for_each(|content| put_content(out, tag, content));
}

/// Appends the range tombstones of deletions if `drops` is true, and those of expiries otherwise;
/// the two have different tags. A deletion omits `below`, which equals `from`.
fn put_tombstones(out: &mut Vec<u8>, tag: u64, tombstones: &[RangeTombstone], drops: bool) {
    for RangeTombstone { span, below, from } in
        tombstones.iter().filter(|tombstone| tombstone.is_drop() == drops)
    {
        put_with(out, tag, |content| {
            from.encode(content);
            if !drops {
                below.encode(content);
            }
            span.encode(content);
        });
    }
}

fn first_unknown(features: &[Box<str>]) -> Option<&str> {
    features.iter().map(|feature| &**feature).find(|feature| !FEATURES_KNOWN.contains(feature))
}

fn file_meta(bytes: &[u8]) -> Result<FileMeta, FormatError> {
    let meta = FileMeta::decode(bytes)?;
    match meta.not_understood() {
        None => Ok(meta),
        Some(tag) => unsupported(format!("file entry field {tag} of a newer format")),
    }
}

fn text(cursor: &mut Cursor<'_>) -> Result<Box<str>, DecodeError> {
    let text = std::str::from_utf8(cursor.rest());
    text.map(Into::into).map_err(|_| cursor.error("a feature's name is not UTF-8"))
}

#[cfg(test)]
mod tests;
