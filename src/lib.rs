//! An embedded storage engine for schemaless, typed entities that are keyed by PartitionKey and
//! RowKey. It has the data model, limits, errors, ETags and continuation tokens of Azure Table
//! storage, in a local directory.
//!
//! ```
//! use rowstone::{Db, Entity};
//!
//! # fn main() -> rowstone::Result<()> {
//! let db = Db::open_in_memory()?; // Db::open("inventory") for a directory
//! let parts = db.table_or_create("parts")?;
//! parts.insert(Entity::new("bolts", "m4x20").with("Price", 0.12).with("Stock", 1_200))?;
//! for entity in parts.query("PartitionKey eq 'bolts' and Price lt 0.5")? {
//!     println!("{}", entity?.row_key());
//! }
//! # db.close()
//! # }
//! ```
//!
//! **Database.** A [`Db`] is a directory that one process at a time opens for writing. Other
//! processes may read it concurrently or [follow](Follower) it. A `Db` is `Send`, `Sync` and cheap
//! to clone. [`Options`] set the durability of commits, the use of memory, the clock and the file
//! system.
//!
//! **Table.** A [`Table`] is a set of entities. [`Db`] has the methods to create, delete and list
//! tables.
//!
//! **Entity.** An [`Entity`] has two keys and up to 252 properties, at most 1 MiB in all. Entities
//! of one table may have different properties. The pair of keys is the only index; keys are ordered
//! by UTF-16 unit.
//!
//! **Value.** A [`Value`] has one of eight types; a [`ValueRef`] borrows one. There are no nested
//! values and no null.
//!
//! **Write.** The methods are `insert`, `replace`, `merge`, `upsert`, `upsert_merge`, `delete`.
//! Those that end in `_if` require an [`ETag`] that was read before, and refuse the write if the
//! entity has changed since. [`Table::loader`] loads many rows in any order.
//!
//! **Group.** An [`EntityGroup`] has up to 100 operations on one partition, of which all take
//! effect or none. [`Table::commit_async`] returns a [`Ticket`], which is also a `Future`, so that
//! many commits of one thread share a sync.
//!
//! **Read.** [`Table::get`] finds one entity, [`Table::get_many`] finds many, [`Table::scan`] reads
//! a [`KeyRange`]. A [`RowView`] reads properties in the stored row without building an entity. A
//! [`RowDecoder`] reads the same properties of many rows.
//!
//! **Query.** [`Table::query`] accepts the filter language of Azure Table storage, or a [`Filter`]
//! built with [`prop`]. Comparisons of keys become key intervals, and only these are read. Results
//! are returned one by one or in [`Page`]s, whose [`Token`]s never expire. [`Query::explain`]
//! reports the work of a query. [`Query::reverse`], [`Query::count`] and [`Query::aggregate`] are
//! extensions.
//!
//! **Snapshot.** A [`Snapshot`] is a fixed state of all tables, to be read through [`Table::at`].
//!
//! **Changes.** [`Db::changes`] returns commits in order, with whole entities, from any
//! [`Position`] whose changes are still kept. A [`Cursor`] stores a position under a name.
//!
//! **Durability.** Each commit has a [`Durability`]: `Sync` survives a power cut, `Os` a crash of
//! the process, and `Buffered` neither until [`Db::sync`]. The commits that survive are always a
//! prefix of all commits.
//!
//! **Errors.** An [`Error`] has a [`kind`](Error::kind) for the program to act on, and the code and
//! status of Azure Table storage. A missing entity is `None`, not an error. Damage on disk is
//! [`ErrorKind::Corruption`], with file and offset; it is never a panic and never wrong data.
//!
//! **Retry.** [`RetryPolicy`] retries errors for which [`Error::is_transient`] is true, after the
//! pauses of the service's client libraries.
//!
//! **Features.** `cli` (default) builds the binary and adds `Options::control`. `zstd` (default)
//! compresses files. `serde` converts application structs to entities and back. `rest` lets the
//! binary serve the Table service over HTTP. `events` reports events of the engine to subscribers
//! of `tracing`.
//!
//! **Limits.** A key has at most 1,024 characters, a text 32,768, a binary 64 KiB. A group has at
//! most 100 operations and 4 MiB, and a page at most 1,000 entities.
//!
//! **Not provided.** Secondary indexes, joins, transactions over several partitions, replication,
//! sort orders other than key order, functions and arithmetic in filters.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]
#![warn(missing_docs, unreachable_pub)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests start threads of their own"))]

mod check;
mod clock;
mod codec;
#[cfg(feature = "cli")]
mod control;
mod db;
mod error;
mod executor;
mod format;
pub mod fs;
#[cfg(feature = "cli")]
mod json;
mod log;
mod lsm;
mod manifest;
mod memtable;
mod model;
mod mutants;
mod named;
mod options;
mod query;
mod ranges;
#[cfg(feature = "rest")]
mod rest;
mod retry;
mod rng;
mod sst;
// This module of `rest` has loom models. Builds for loom leave out `rest`, because its dependency
// tokio does not compile under loom, and include only this module of it.
#[cfg(all(test, loom))]
#[path = "rest/http/stage.rs"]
mod stage;
mod sync;
mod table;
mod testing;
mod write_accounting;

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;

#[cfg(all(feature = "rest", any(fuzzing, feature = "fuzzing")))]
#[doc(hidden)]
pub use rest::testing::fuzz as fuzzing_rest;
#[doc(hidden)]
pub use testing::bench_support;
#[cfg(any(fuzzing, feature = "fuzzing"))]
#[doc(hidden)]
pub use testing::fuzzing;
#[cfg(feature = "sim")]
pub use testing::sim;

pub use check::VerifyReport;
pub use clock::{Clock, ManualClock, SystemClock};
pub use db::{
    Advice, AntiPattern, Backup, BackupReport, Change, Changes, ClosedGate, Commit, CopyJob,
    CopyProblem, CopyProblemKind, CopySummary, Cursor, DataShape, Db, FileOutcome, Follower,
    Generation, HealReport, InspectOptions, InspectedPart, InspectedValue, LoadPattern, Loss,
    LostRange, MissingTarget, Moved, OpenReport, PartitionRange, PartitionSize, Position, Pruned,
    Quarantined, RangeBound, ReferenceCheck, References, RepairReport, RepairedTable,
    SalvageReport, Salvaged, SalvagedState, Stats, SuspectRows, inspect,
};
pub use error::{Code, Corruption, Error, ErrorKind, Result};
pub use format::edit::Wear;
pub use model::{
    Binary, DateTime, ETag, EdmType, Entity, EntityEncoder, FromValue, Guid, Seq, Shape, Value,
    ValueRef,
};
pub use options::{Background, Codec, Durability, IoMode, OnFull, Options, Targets};
pub use query::{
    Aggregate, Entities, Explain, Filter, KeyRange, Number, Page, Prop, Query, Token, prop,
};
pub use retry::{RetryPauses, RetryPolicy};
pub use rng::Rng;
pub use table::{
    EntityGroup, FromValues, GateMode, LoadMode, LoadSummary, Loader, Operation, Rejected,
    RowDecoder, RowView, SlowQuery, Snapshot, Table, TableView, Ticket,
};

/// Runs the examples of README.md with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
