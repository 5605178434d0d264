//! One step of a program or script.
//!
//! Invariant: a step is self-contained. It states entity tags indirectly, as the current tag of an
//! entity or the tag of a numbered commit, so that a program remains valid when steps are removed.

use std::time::Duration;

use crate::fs::Fault;
use crate::lsm::GateMode;
use crate::model::Entity;
use crate::named::named;
use crate::options::{Durability, IoMode};

use super::query::Query;
use super::value::Val;

named! {
    /// The kind of a write, named like the methods of `Table`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Verb {
        /// Inserts an entity, which must not exist.
        #[default]
        Insert "insert",
        /// Replaces or inserts an entity.
        Upsert "upsert",
        /// Merges into or inserts an entity.
        UpsertMerge "upsert-merge",
        /// Replaces an entity, which must exist.
        Replace "replace",
        /// Sets the named properties of an entity, which must exist.
        Merge "merge",
        /// Deletes an entity, which must exist.
        Delete "delete",
    }

    /// Returns the command in the text of a program.
    pub(super) fn name;
    pub const ALL;
}

/// The entity tag that a write demands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// No tag, or `*`.
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
    /// The condition; ignored unless [`Verb::is_conditional`].
    pub condition: Condition,
}

/// A kind of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Completes submitted commits, prepares the next log, and syncs commits that were acknowledged
    /// before they were durable.
    Log,
    /// Flushes, removes files, and sorts memtables.
    Flush,
    /// Splits and merges ranges, and compacts files.
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
    /// The size of a page, if the scan is read by pages.
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
    /// The target size of a file of the sorted run.
    pub run_file_bytes: u64,
    /// The capacity of the block cache.
    pub cache_bytes: usize,
    /// The size at which a committer writes the log buffer to the file.
    pub log_buffer_bytes: usize,
    /// The size at which the manifest is replaced by a new one.
    pub manifest_roll_bytes: u64,
    /// Whether table files are compressed. This has no effect without the feature `zstd`.
    pub compress: bool,
    /// The scalability targets of each partition and of the database, in entities per second.
    pub targets: Option<(u32, u32)>,
    /// The limit on disk use, in bytes above the minimum limit.
    pub cap: Option<u64>,
    /// Whether the first and the last table evict their oldest rows at the limit.
    pub ring: bool,
    /// The seed of the engine's ids and hash seeds.
    pub seed: u64,
}

/// One action on the database, its disk, its process or its clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Opens the database with these options. A database that is open is dropped first.
    Open(Config),
    /// Creates the table of this name.
    CreateTable(String),
    /// Drops the table of this name.
    DropTable(String),
    /// Deletes the keys of a span, existing or not. Only the bounds of the scan matter.
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
    /// Closes a gate to the keys of a span. Only the bounds of the scan matter.
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
    /// Makes one write and waits for it.
    Write {
        /// The table's name.
        table: String,
        /// The write.
        write: Write,
        /// The durability; `None` uses that of the options.
        durability: Option<Durability>,
    },
    /// Makes several writes in one partition and waits for them.
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
        /// The bounds, and how the rows are read.
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
        /// The query, which must return rows by pages.
        query: Box<Query>,
    },
    /// Reads the next page, from the current state.
    Resume(String),
    /// Opens an iterator that stays open over other steps.
    Iterate {
        /// The name of the iterator for later steps.
        name: String,
        /// The table's name.
        table: String,
        /// The bounds. The scan must not have a page size or a snapshot.
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
    /// Compacts all files into the sorted run.
    Compact,
    /// Makes every commit durable.
    Sync,
    /// Runs a number of background steps, of one lane or of any.
    Background(usize, Option<Lane>),
    /// Writes the files of a flush (first half).
    BeginFlush,
    /// Installs the files of a flush (second half).
    EndFlush,
    /// Writes the files of a compaction (first half).
    BeginCompaction,
    /// Installs the files of a compaction (second half), or declines them if their inputs have
    /// changed.
    EndCompaction,
    /// Makes a checkpoint next to the database, opens it, compares it and removes it.
    Checkpoint,
    /// Makes a backup in the backup directory, then restores and compares it, also after a power
    /// cut.
    Backup,
    /// Archives a table in another database, on images of the disk, and interrupts the job at some
    /// operations.
    Archive {
        /// The table's name.
        table: String,
        /// The seed that chooses the operations.
        seed: u64,
    },
    /// While the database is open, moves or replaces its directory or removes its lock file, as the
    /// seed chooses. This happens on an image of the disk.
    Displace(u64),
    /// Opens the database read-only as another process would, and reads the new part of the change
    /// feed.
    Beside,
    /// Lets time pass and runs background work until there is none left. Then every commit must be
    /// durable, and no unneeded file may be left.
    Settle,
    /// Verifies the engine's files, which must be sound.
    Verify,
    /// Closes the database cleanly, and opens it again.
    Reopen,
    /// Kills the process, now or after this many file operations. Data passed to the operating
    /// system survives.
    Kill(Option<u64>),
    /// The power fails.
    Crash {
        /// The seed that decides which unsynced data survives.
        seed: u64,
        /// The number of file operations before the cut; `None` cuts now.
        ops: Option<u64>,
    },
    /// Arms a fault, so that an operation fails now or later.
    Fault(Fault),
    /// Disarms all faults.
    FaultsOff,
    /// Limits the disk to this many bytes more than it uses now, or removes the limit.
    Quota(Option<u64>),
    /// Ends all faults, and reopens the database if writing had ended. Afterwards it must work
    /// again.
    Mend,
    /// Flips a bit of a table file on disk.
    Rot(u64),
    /// Restores the bit, and reopens the database.
    Heal,
    /// Closes the database, damages a byte in a copy of its files, and opens the copy. Every fourth
    /// seed kills the process instead, and cuts the last log.
    Damage(u64),
    /// Moves the wall clock by this many milliseconds. A move forward also advances the monotonic
    /// clock; a move back does not change it.
    Clock(i64),
}

impl Write {
    /// Returns the entity for the engine.
    pub(crate) fn entity(&self) -> Entity {
        let mut entity = Entity::new(&*self.pk, &*self.rk);
        for (name, value) in &self.properties {
            entity.set(&**name, value.to_value());
        }
        entity
    }
}

impl Scan {
    /// Whether no key can be in the span.
    pub(super) fn is_empty(&self) -> bool {
        let from = self.from.as_deref().unwrap_or_default();
        self.to.as_ref().is_some_and(|to| !from.encode_utf16().lt(to.encode_utf16()))
    }

    /// Whether the entity with these keys is in the span.
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
    /// Returns how long commits wait to form larger groups. In every third database they wait for
    /// longer than a reservation of Seqs usually lasts.
    pub(super) fn commit_delay(&self) -> Duration {
        Duration::from_secs(if self.seed.is_multiple_of(3) { 30 } else { 0 })
    }
}

impl Verb {
    /// Whether the verb accepts an entity tag.
    pub fn is_conditional(self) -> bool {
        match self {
            Verb::Replace | Verb::Merge | Verb::Delete => true,
            Verb::Insert | Verb::Upsert | Verb::UpsertMerge => false,
        }
    }
}

/// Whether a step compacts everything, and therefore would have to wait for a job in progress.
pub(super) fn merges_all(step: &Step) -> bool {
    matches!(step, Step::Compact | Step::Settle)
}

/// Whether a step may flush; only one flush runs at a time.
pub(super) fn may_flush(step: &Step) -> bool {
    matches!(
        step,
        Step::Flush
            | Step::Checkpoint
            | Step::Backup
            | Step::Background(_, None | Some(Lane::Flush))
    )
}
