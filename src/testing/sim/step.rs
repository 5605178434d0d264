//! One step of a program or script.
//!
//! Invariants
//! * a step is self-contained: entity tags are named by role or by commit number, so that a program
//!   stays a program when steps are taken out of it.
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

/// Which entity tag a write demands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// None, or `*`.
    #[default]
    Any,
    /// The entity's own; one that nothing has if there is no entity.
    Current,
    /// One that the entity does not have.
    Stale,
    /// That of commit number n.
    Commit(usize),
}

/// One operation on one entity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Write {
    /// What is done.
    pub verb: Verb,
    /// PartitionKey.
    pub pk: String,
    /// RowKey.
    pub rk: String,
    /// Names and values; none for a delete.
    pub properties: Vec<(String, Val)>,
    /// Only some verbs have one: see [`Verb::is_conditional`].
    pub condition: Condition,
}

/// A kind of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Rounds that somebody polls for, the next log, the sync of weak commits.
    Log,
    /// Flush, removal of files, sorting.
    Flush,
    /// Merges of files, and what follows them.
    Compact,
}

/// What a scan covers and how it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scan {
    /// The partition; the whole table if there is none, and then no row keys either.
    pub pk: Option<String>,
    /// Row keys from (inclusive) and to (exclusive), within the partition.
    pub from: Option<String>,
    /// See `from`.
    pub to: Option<String>,
    /// The properties to read; all if there are none.
    pub select: Option<Vec<String>>,
    /// How many rows at most; pages do not look at it.
    pub top: Option<usize>,
    /// Page by page of this size, each page from the token of the one before.
    pub page: Option<usize>,
    /// The name of a snapshot; what is visible now if there is none.
    pub at: Option<String>,
}

/// The options of a database under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Of commits that do not say.
    pub durability: Durability,
    /// How table files are read.
    pub io_mode: IoMode,
    /// A memtable this full is frozen.
    pub memtable_bytes: usize,
    /// How long a block of a table file should be.
    pub block_bytes: usize,
    /// How long a file of the run should be.
    pub run_file_bytes: u64,
    /// What the block cache may hold.
    pub cache_bytes: usize,
    /// A log buffer this full is written by whoever filled it.
    pub log_buffer_bytes: usize,
    /// A manifest this long is rolled over.
    pub manifest_roll_bytes: u64,
    /// Whether table files are compressed; without the feature `zstd` this says nothing.
    pub compress: bool,
    /// How many entities a second pass, of each partition and of all.
    pub targets: Option<(u32, u32)>,
    /// The limit on disk use: so many bytes above the smallest there can be.
    pub cap: Option<u64>,
    /// Whether tables give their oldest rows where the limit leaves no room: the first and the last.
    pub ring: bool,
    /// Decides what the engine draws: ids and hash seeds.
    pub seed: u64,
}

/// One thing done to the database, its disk, its process or its clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Opens the database with these options; one that is open is dropped first.
    Open(Config),
    /// Creates the table of this name.
    CreateTable(String),
    /// Drops the table of this name.
    DropTable(String),
    /// Deletes the keys of a span, whatever there is: of the scan only its bounds count.
    DropRange {
        /// The table's name.
        table: String,
        /// What goes.
        scan: Scan,
        /// A partition that goes with the same commit.
        also: Option<String>,
    },
    /// Lets rows expire that were written before the last so many commits.
    Expire {
        /// The table's name.
        table: String,
        /// How many commits stay.
        keep: usize,
    },
    /// Closes a gate to the keys of a span: of the scan only its bounds count.
    Gate {
        /// The table's name.
        table: String,
        /// What is held back.
        scan: Scan,
        /// How.
        mode: GateMode,
    },
    /// Opens the gate with exactly these bounds.
    Lift {
        /// The table's name.
        table: String,
        /// What is not held back any more.
        scan: Scan,
    },
    /// Exports a span, deletes it, takes a snapshot, and imports what was exported.
    Move {
        /// The table's name.
        table: String,
        /// What is moved: of the scan only its bounds count.
        scan: Scan,
        /// What other steps call the snapshot.
        snapshot: String,
    },
    /// Lists the tables.
    Tables,
    /// One write, waited for.
    Write {
        /// The table's name.
        table: String,
        /// What is written.
        write: Write,
        /// That of the options if there is none.
        durability: Option<Durability>,
    },
    /// Several writes of one partition, waited for.
    Group {
        /// The table's name.
        table: String,
        /// All of them happen, or none.
        writes: Vec<Write>,
        /// That of the options if there is none.
        durability: Option<Durability>,
    },
    /// A group whose commit is not waited for yet, under a name for its ticket.
    Submit {
        /// What other steps call the ticket.
        ticket: String,
        /// The table's name.
        table: String,
        /// All of them happen, or none.
        writes: Vec<Write>,
        /// That of the options if there is none.
        durability: Option<Durability>,
    },
    /// Waits for a ticket.
    Await(String),
    /// Polls a ticket once.
    Poll(String),
    /// Drops a ticket: nobody waits for the commit.
    Forget(String),
    /// Reads one entity.
    Get {
        /// The table's name.
        table: String,
        /// PartitionKey and RowKey.
        key: (String, String),
        /// The properties to read; all if there are none.
        select: Option<Vec<String>>,
        /// The name of a snapshot; what is visible now if there is none.
        at: Option<String>,
    },
    /// Reads the rows of a scan to its end.
    Scan {
        /// The table's name.
        table: String,
        /// What is read, and how.
        scan: Scan,
    },
    /// Asks for the rows that meet a filter.
    Query {
        /// The table's name.
        table: String,
        /// What is asked, and how it is read.
        query: Box<Query>,
    },
    /// The first page of a query whose other pages come later.
    Pages {
        /// What other steps call the pages.
        name: String,
        /// The table's name.
        table: String,
        /// What is asked: rows, by pages.
        query: Box<Query>,
    },
    /// The next page, of what is there by now.
    Resume(String),
    /// An iterator that stays open over other steps.
    Iterate {
        /// What other steps call the iterator.
        name: String,
        /// The table's name.
        table: String,
        /// What is read: now, and not by pages.
        scan: Scan,
    },
    /// So many rows of an open iterator.
    Next {
        /// The iterator's name.
        name: String,
        /// How many rows at most.
        count: usize,
    },
    /// Takes a snapshot under this name.
    Snapshot(String),
    /// Lets go of a snapshot or an iterator.
    Release(String),
    /// Flushes every memtable.
    Flush,
    /// Merges everything into the run.
    Compact,
    /// Makes every commit durable.
    Sync,
    /// A number of background steps, of one lane or of any.
    Background(usize, Option<Lane>),
    /// The first half of a flush: the files are written.
    BeginFlush,
    /// The second half: the files are installed.
    EndFlush,
    /// The first half of a compaction.
    BeginCompaction,
    /// The second half: the files are installed, or declined if what they replace has changed.
    EndCompaction,
    /// A copy of the database beside it, which is opened, compared and removed.
    Checkpoint,
    /// A backup into the one directory of them, which is restored and compared, also as a power cut leaves it.
    Backup,
    /// A table is archived in another database, on images of the disk, and the step ends at some operations.
    Archive {
        /// The table's name.
        table: String,
        /// Chooses where it ends.
        seed: u64,
    },
    /// Another process opens the database to read it, and goes on in the change feed.
    Beside,
    /// Time passes and background work runs until there is none: then everything is durable and in order.
    Settle,
    /// The engine checks its files, and must find nothing.
    Verify,
    /// A clean close and an open.
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
    /// An operation fails, now or later.
    Fault(Fault),
    /// Armed faults are forgotten.
    FaultsOff,
    /// At most so many bytes more than now, or no limit.
    Quota(Option<u64>),
    /// Faults end; a database that writing ended for is opened anew; then it must get on.
    Mend,
    /// A bit of a table file at rest flips.
    Rot(u64),
    /// The bit is as before; the database is opened anew.
    Heal,
    /// The database is closed, a byte of a copy of its files is damaged, and the copy opened.
    Damage(u64),
    /// The wall clock jumps by so many milliseconds; forward, time passes too.
    Clock(i64),
}

impl Write {
    /// The entity that the engine takes.
    pub(crate) fn entity(&self) -> Entity {
        let mut entity = Entity::new(&*self.pk, &*self.rk);
        for (name, value) in &self.properties {
            entity.set(&**name, value.to_value());
        }
        entity
    }
}

impl Scan {
    /// True if no key can be in it.
    pub(super) fn is_empty(&self) -> bool {
        let from = self.from.as_deref().unwrap_or_default();
        self.to.as_ref().is_some_and(|to| !from.encode_utf16().lt(to.encode_utf16()))
    }

    /// True if the entity with these keys is in it.
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
    /// How long commits wait for company: in every third database longer than a ceiling of weak commits lies ahead otherwise.
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

/// Steps that would wait for a job that is under way.
pub(super) fn merges_all(step: &Step) -> bool {
    matches!(step, Step::Compact | Step::Settle)
}

/// Steps that may flush: one flush at a time.
pub(super) fn may_flush(step: &Step) -> bool {
    matches!(
        step,
        Step::Flush
            | Step::Checkpoint
            | Step::Backup
            | Step::Background(_, None | Some(Lane::Flush))
    )
}
