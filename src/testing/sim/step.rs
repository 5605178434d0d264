//! One step of a program or script.
//!
//! Invariants
//! * a step is self-contained: entity tags are named by role or by commit number, so that a program
//!   remains valid when steps are removed.
//!
//! Not here: the text of steps (`parse`).

use std::time::Duration;

use crate::fs::Fault;
use crate::lsm::GateMode;
use crate::model::Entity;
use crate::named::named;
use crate::options::{Durability, IoMode};

use super::query::Query;
use super::value::Val;

named! {
    /// The verb of a write, as the methods of `Table` are called.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Verb {
        /// Refused if the entity exists.
        #[default]
        Insert "insert",
        /// Replaces or inserts.
        Upsert "upsert",
        /// Merges or inserts.
        UpsertMerge "upsert-merge",
        /// Refused if the entity does not exist.
        Replace "replace",
        /// Keeps the properties that are not named; refused if the entity does not exist.
        Merge "merge",
        /// Refused if the entity does not exist.
        Delete "delete",
    }

    /// The command in the text of a program.
    pub(super) fn name;
    pub const ALL;
}

/// The entity tag that a write demands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// None, or `*`.
    #[default]
    Any,
    /// The entity's current tag; if there is no entity, a tag that no entity has.
    Current,
    /// A tag other than the entity's current one.
    Stale,
    /// The tag of commit number n.
    Commit(usize),
}

/// One operation on one entity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Write {
    /// The operation.
    pub verb: Verb,
    /// PartitionKey.
    pub pk: String,
    /// RowKey.
    pub rk: String,
    /// Names and values; empty for a delete.
    pub properties: Vec<(String, Val)>,
    /// Ignored unless [`Verb::is_conditional`].
    pub condition: Condition,
}

/// A kind of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Commit groups that await polling, the next log, the sync of weak commits.
    Log,
    /// Flush, removal of files, sorting.
    Flush,
    /// Merges of files, and their follow-up work.
    Compact,
}

/// The bounds of a scan, and how it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scan {
    /// The partition; `None` reads the whole table, without row key bounds.
    pub pk: Option<String>,
    /// Lower bound of the row keys, inclusive, within the partition.
    pub from: Option<String>,
    /// Upper bound of the row keys, exclusive.
    pub to: Option<String>,
    /// The properties to read; `None` reads all.
    pub select: Option<Vec<String>>,
    /// The maximum number of rows; ignored when reading by pages.
    pub top: Option<usize>,
    /// Reads page by page of this size, each page from the token of the previous one.
    pub page: Option<usize>,
    /// The name of a snapshot; `None` reads the current state.
    pub at: Option<String>,
}

/// The options of a database under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The durability of commits that do not state one.
    pub durability: Durability,
    /// How table files are read.
    pub io_mode: IoMode,
    /// The size at which a memtable is frozen.
    pub memtable_bytes: usize,
    /// The target size of a block of a table file.
    pub block_bytes: usize,
    /// The target size of a file of the run.
    pub run_file_bytes: u64,
    /// The capacity of the block cache.
    pub cache_bytes: usize,
    /// The size at which the committer that fills the log buffer writes it.
    pub log_buffer_bytes: usize,
    /// The size at which the manifest is rolled over.
    pub manifest_roll_bytes: u64,
    /// Whether table files are compressed; no effect without the feature `zstd`.
    pub compress: bool,
    /// The targets in entities per second, of each partition and of the database.
    pub targets: Option<(u32, u32)>,
    /// The limit on disk use, in bytes above the least possible limit.
    pub cap: Option<u64>,
    /// Whether tables evict their oldest rows at the limit; these are the first and the last table.
    pub ring: bool,
    /// Seed of the engine's ids and hash seeds.
    pub seed: u64,
}

/// One action on the database, its disk, its process or its clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Opens the database with these options; a database that is open is dropped first.
    Open(Config),
    /// Creates the table of this name.
    CreateTable(String),
    /// Drops the table of this name.
    DropTable(String),
    /// Deletes the keys of a span, existing or not; only the bounds of the scan matter.
    DropRange {
        /// The table's name.
        table: String,
        /// The span to delete.
        scan: Scan,
        /// A partition that is deleted in the same commit.
        also: Option<String>,
    },
    /// Expires rows written before the last `keep` commits.
    Expire {
        /// The table's name.
        table: String,
        /// The number of commits whose rows remain.
        keep: usize,
    },
    /// Closes a gate to the keys of a span; only the bounds of the scan matter.
    Gate {
        /// The table's name.
        table: String,
        /// The span.
        scan: Scan,
        /// The mode.
        mode: GateMode,
    },
    /// Opens the gate with exactly these bounds.
    Lift {
        /// The table's name.
        table: String,
        /// The span.
        scan: Scan,
    },
    /// Exports a span, deletes it, takes a snapshot, and imports the exported rows.
    Move {
        /// The table's name.
        table: String,
        /// The span to move; only the bounds of the scan matter.
        scan: Scan,
        /// The name of the snapshot for later steps.
        snapshot: String,
    },
    /// Lists the tables.
    Tables,
    /// One write, waited for.
    Write {
        /// The table's name.
        table: String,
        /// The write.
        write: Write,
        /// The durability; `None` uses that of the options.
        durability: Option<Durability>,
    },
    /// Several writes of one partition, waited for.
    Group {
        /// The table's name.
        table: String,
        /// The writes, which are committed together.
        writes: Vec<Write>,
        /// The durability; `None` uses that of the options.
        durability: Option<Durability>,
    },
    /// Submits a group and keeps its ticket under a name.
    Submit {
        /// The name of the ticket for later steps.
        ticket: String,
        /// The table's name.
        table: String,
        /// The writes, which are committed together.
        writes: Vec<Write>,
        /// The durability; `None` uses that of the options.
        durability: Option<Durability>,
    },
    /// Waits for a ticket.
    Await(String),
    /// Polls a ticket once.
    Poll(String),
    /// Drops a ticket without waiting for the commit.
    Forget(String),
    /// Reads one entity.
    Get {
        /// The table's name.
        table: String,
        /// PartitionKey and RowKey.
        key: (String, String),
        /// The properties to read; `None` reads all.
        select: Option<Vec<String>>,
        /// The name of a snapshot; `None` reads the current state.
        at: Option<String>,
    },
    /// Reads the rows of a scan to its end.
    Scan {
        /// The table's name.
        table: String,
        /// The bounds, and how they are read.
        scan: Scan,
    },
    /// Queries the rows that match a filter.
    Query {
        /// The table's name.
        table: String,
        /// The query, and how it is read.
        query: Box<Query>,
    },
    /// Reads the first page of a query; later steps read its other pages.
    Pages {
        /// The name of the pages for later steps.
        name: String,
        /// The table's name.
        table: String,
        /// The query: rows, by pages.
        query: Box<Query>,
    },
    /// Reads the next page, of the current state.
    Resume(String),
    /// Opens an iterator that stays open over other steps.
    Iterate {
        /// The name of the iterator for later steps.
        name: String,
        /// The table's name.
        table: String,
        /// The bounds; the scan reads the current state, and not by pages.
        scan: Scan,
    },
    /// Reads some rows of an open iterator.
    Next {
        /// The iterator's name.
        name: String,
        /// The maximum number of rows.
        count: usize,
    },
    /// Takes a snapshot under this name.
    Snapshot(String),
    /// Releases a snapshot or an iterator.
    Release(String),
    /// Flushes every memtable.
    Flush,
    /// Merges everything into the run.
    Compact,
    /// Makes every commit durable.
    Sync,
    /// Runs a number of background steps, of one lane or of any.
    Background(usize, Option<Lane>),
    /// The first half of a flush: writes the files.
    BeginFlush,
    /// The second half of a flush: installs the files.
    EndFlush,
    /// The first half of a compaction: writes the files.
    BeginCompaction,
    /// The second half: installs the files, or declines them if their inputs have changed.
    EndCompaction,
    /// Makes a checkpoint next to the database, opens it, compares it and removes it.
    Checkpoint,
    /// Makes a backup into the common directory, then restores and compares it, also after a power
    /// cut.
    Backup,
    /// Archives a table in another database, on images of the disk, and cuts the job off at some
    /// operations.
    Archive {
        /// The table's name.
        table: String,
        /// Chooses the operations.
        seed: u64,
    },
    /// Another process opens the database read-only, and continues in the change feed.
    Beside,
    /// Time passes, and background work runs until there is none; everything must then be durable
    /// and in order.
    Settle,
    /// Verifies the engine's files, which must be sound.
    Verify,
    /// A clean close, followed by an opening.
    Reopen,
    /// The process dies, now or after this many file operations; data passed to the operating
    /// system survives.
    Kill(Option<u64>),
    /// The power fails.
    Crash {
        /// Decides which unsynced data survives.
        seed: u64,
        /// Now, or after this many file operations.
        ops: Option<u64>,
    },
    /// Arms a fault: an operation fails, now or later.
    Fault(Fault),
    /// Disarms all faults.
    FaultsOff,
    /// Limits the disk to this many bytes more than now, or removes the limit.
    Quota(Option<u64>),
    /// Ends all faults, and reopens the database if writing had ended; afterwards it must work
    /// again.
    Mend,
    /// Flips a bit of a table file at rest.
    Rot(u64),
    /// Restores the bit, and reopens the database.
    Heal,
    /// Closes the database, damages a byte in a copy of its files, and opens the copy.
    Damage(u64),
    /// The wall clock jumps by this many milliseconds; if forward, time passes as well.
    Clock(i64),
}

impl Write {
    /// The entity for the engine.
    pub(crate) fn entity(&self) -> Entity {
        let mut entity = Entity::new(&*self.pk, &*self.rk);
        for (name, value) in &self.properties {
            entity.set(&**name, value.to_value());
        }
        entity
    }
}

impl Scan {
    /// True if no key can be in the span.
    pub(super) fn is_empty(&self) -> bool {
        let from = self.from.as_deref().unwrap_or_default();
        self.to.as_ref().is_some_and(|to| !from.encode_utf16().lt(to.encode_utf16()))
    }

    /// True if the entity with these keys is in the span.
    pub(super) fn covers(&self, pk: &str, rk: &str) -> bool {
        let is_before = |a: &str, b: &str| a.encode_utf16().lt(b.encode_utf16());
        self.pk.as_ref().is_none_or(|only| only == pk)
            && self.from.as_ref().is_none_or(|from| !is_before(rk, from))
            && self.to.as_ref().is_none_or(|to| is_before(rk, to))
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            durability: Durability::Sync,
            io_mode: IoMode::Mmap,
            memtable_bytes: 64 << 10,
            block_bytes: 16 << 10,
            run_file_bytes: 64 << 10,
            cache_bytes: 1 << 20,
            log_buffer_bytes: 512 << 10,
            manifest_roll_bytes: 64 << 10,
            compress: false,
            targets: None,
            cap: None,
            ring: false,
            seed: 1,
        }
    }
}

impl Config {
    /// How long commits wait to form larger groups. In every third database this is longer than the
    /// usual distance to the end of a Seq reservation.
    pub(super) fn commit_delay(&self) -> Duration {
        Duration::from_secs(if self.seed.is_multiple_of(3) { 30 } else { 0 })
    }
}

impl Verb {
    /// Whether the verb has a form that takes an entity tag.
    pub fn is_conditional(self) -> bool {
        match self {
            Verb::Replace | Verb::Merge | Verb::Delete => true,
            Verb::Insert | Verb::Upsert | Verb::UpsertMerge => false,
        }
    }
}

/// True for steps that merge everything: they would wait for a job in progress.
pub(super) fn merges_all(step: &Step) -> bool {
    matches!(step, Step::Compact | Step::Settle)
}

/// True for steps that may flush; only one flush runs at a time.
pub(super) fn may_flush(step: &Step) -> bool {
    matches!(
        step,
        Step::Flush
            | Step::Checkpoint
            | Step::Backup
            | Step::Background(_, None | Some(Lane::Flush))
    )
}
