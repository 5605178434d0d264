//! An embedded storage engine for schemaless, typed entities keyed by PartitionKey and RowKey. It
//! has the data model, limits, errors, ETags and continuation tokens of Azure Table storage, in a
//! local directory.
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
//! **Database.** [`Db`] is a directory that one process at a time opens for writing. Other
//! processes may read it concurrently or [follow](Follower) it. `Db` is a cheap clone, `Send +
//! Sync`. [`Options`] set the durability of commits, the use of memory, and the sources of time and
//! files.
//!
//! **Table.** [`Table`] is a set of entities. Creating, deleting and listing are methods of [`Db`].
//!
//! **Entity.** [`Entity`] has two keys and up to 252 properties, at most 1 MiB in all. Entities of
//! one table may have entirely different properties. The pair of keys is the only index; order is
//! ordinal in UTF-16 units.
//!
//! **Value.** [`Value`] is one of eight types; [`ValueRef`] borrows one. There are no nested values
//! and no null.
//!
//! **Write.** `insert`, `replace`, `merge`, `upsert`, `upsert_merge`, `delete`, and the forms
//! ending in `_if`. Those require the [`ETag`] that the caller read and refuse the write if the
//! entity has changed since. [`Table::loader`] loads many rows in any order.
//!
//! **Group.** [`EntityGroup`] holds up to 100 operations on one partition; all of them take effect,
//! or none. [`Table::commit_async`] returns a [`Ticket`], which is also a `Future`. Many commits of
//! one thread can share a sync.
//!
//! **Read.** [`Table::get`] finds one entity, [`Table::get_many`] many, [`Table::scan`] reads a
//! [`KeyRange`]. [`RowView`] reads properties in the stored row without building an entity.
//! [`RowDecoder`] reads the same properties of many rows.
//!
//! **Query.** [`Table::query`] accepts the filter language of Azure Table storage, or a [`Filter`]
//! of bound values from [`prop`]. Comparisons of keys are converted to key intervals, and only
//! those are read. Results are returned one by one or in [`Page`]s. Their [`Token`]s stay valid
//! forever. [`Query::explain`] reports the work of a query. Additions to the service:
//! [`Query::reverse`], [`Query::count`], [`Query::aggregate`].
//!
//! **Snapshot.** [`Snapshot`] is a state of all tables that stays readable, through [`Table::at`].
//!
//! **Changes.** [`Db::changes`] returns commits in order, with whole entities, from any
//! [`Position`] that is still kept. A [`Cursor`] stores a position under a name.
//!
//! **Durability.** [`Durability`] of each commit: `Sync` survives a power cut, `Os` a crash of the
//! process, `Buffered` neither until [`Db::sync`]. The commits that survive are always a prefix,
//! without holes.
//!
//! **Errors.** [`Error`] has a [`kind`](Error::kind) for the program to act on, and the code and
//! status of Azure Table storage. Absence is `None`, not an error. Damage on disk is
//! [`ErrorKind::Corruption`], with file and offset; it is never a panic and never wrong data.
//!
//! **Retry.** [`RetryPolicy`] retries errors for which [`Error::is_transient`] is true, after the
//! pauses of the service's client libraries.
//!
//! **Features.** `cli` (default): the binary. `zstd` (default): compressed files. `serde`:
//! application structs as entities and back. `rest`: the binary serves the Table service over HTTP.
//! `events`: events of the engine for subscribers of `tracing`.
//!
//! **Limits.** Keys 1,024 characters, texts 32,768, binaries 64 KiB, groups 100 operations and 4
//! MiB, pages 1,000 entities.
//!
//! **Not provided.** No secondary index, no joins, no transaction over several partitions, no
//! replication. No order but that of the keys, no functions and no arithmetic in filters.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]
#![warn(missing_docs, unreachable_pub)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests start threads of their own"))]

mod check;
mod clock;
mod codec;
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
// The loom models of `stage` are built without `rest`, because tokio does not compile under loom.
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
