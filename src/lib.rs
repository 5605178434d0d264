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
//! values and no null. [`LargeValues`](large::LargeValues) stores a value of any length in several
//! entities.
//!
//! **Write.** The methods are `insert`, `replace`, `merge`, `upsert`, `upsert_merge`, `delete`.
//! They take an entity or a reference to one. Those that end in `_if` require an [`ETag`] that was
//! read before, and refuse the write if the entity has changed since. [`store::update()`] and
//! [`store::transact`] read, write on this condition, and try again if another writer was faster.
//! [`Table::loader`] loads many rows in any order.
//!
//! **Group.** An [`EntityGroup`] has up to 100 operations on one partition, of which all take
//! effect or none. [`Table::commit_async`] and, for single writes, [`Table::write_async`] return a
//! [`Ticket`], which is also a `Future`, so that many commits of one thread share a sync.
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
//! [`Position`](changes::Position) whose changes are still kept. A [`Cursor`](changes::Cursor)
//! stores a position under a name. A [`View`](view::View) folds the changes of a table into sums of
//! integers, counts and indexes in another table.
//!
//! **Queue.** A [`Queue`](queue::Queue) hands messages out to consumers, at least once, over a
//! directory or an endpoint.
//!
//! **Durability.** Each commit has a [`Durability`]: `Sync` survives a power cut, `Os` a crash of
//! the process, and `Buffered` neither until [`Db::sync`]. The commits that survive are always a
//! prefix of all commits.
//!
//! **Async code.** No async runtime is needed or used. A [`Ticket`] is the only future: commits by
//! [`Table::commit_async`] and [`Table::write_async`] do not wait for their own sync. They block
//! for the reads that a condition or a merge needs, while background work or the log is behind, and
//! if they are refused because of an earlier commit, until that one is durable. All other methods
//! block: reads of files that are not cached take as long as the disk does, and [`Db::flush`],
//! [`Db::compact`], [`Db::checkpoint`] and verification may take minutes. Call these, queries and
//! [`Options::open`] from a thread for blocking work, such as tokio's `spawn_blocking`; `Db` and
//! `Table` are cheap to clone for it. A [`Table::get`] of cached data takes microseconds and may be
//! called directly. The package `examples/axum` of the repository is a service with axum and tokio.
//!
//! **Errors.** An [`Error`] has a [`kind`](Error::kind) for the program to act on, and the code and
//! status of Azure Table storage. Its text names the table, entity or property that was refused, or
//! the file and the reason. A missing entity is `None`, not an error. Damage on disk is
//! [`ErrorKind::Corruption`], with file and offset; it is never a panic and never wrong data.
//!
//! **Retry.** [`RetryPolicy`] retries errors for which [`Error::is_transient`] is true, after short
//! pauses within a process, or after those of the service's client libraries.
//!
//! **Features.** `cli` (default) builds the binary and adds `Options::control`; `bench` and `shell`
//! (default) add commands to it. `zstd` (default) compresses files. `serde` converts application
//! structs to entities and back. `time`, `chrono` and `uuid` convert the times and UUIDs of these
//! crates to values and back. `rest` lets the binary serve the Table service over HTTP. `events`
//! reports events of the engine to subscribers of `tracing`.
//!
//! **Limits.** A key has at most 1,024 characters, a text 32,768, a binary 64 KiB. A group has at
//! most 100 operations and 4 MiB, and a page at most 1,000 entities.
//!
//! **Not provided.** Secondary indexes, joins, transactions over several partitions, replication,
//! sort orders other than key order, functions and arithmetic in filters.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]
#![warn(missing_docs, unreachable_pub)]
#![cfg_attr(
    all(feature = "json", not(feature = "cli")),
    allow(dead_code, unused_imports, reason = "only the binary copies and compares stores")
)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests start threads of their own"))]

#[cfg(feature = "json")]
mod behave;
#[cfg(feature = "json")]
mod billing;
mod check;
pub mod clock;
mod codec;
#[cfg(feature = "cli")]
mod control;
mod db;
mod error;
mod executor;
mod format;
pub mod fs;
/// With the feature `serde`, `#[serde(with = "rowstone::json")]` stores a field with nested values
/// as a text of JSON; see [`Entity::from_serde`].
#[cfg(feature = "json")]
#[cfg_attr(not(feature = "serde"), doc(hidden))]
pub mod json;
#[cfg(all(feature = "serde", not(feature = "json")))]
#[path = "json/nested.rs"]
pub mod json;
mod log;
mod lsm;
mod manifest;
mod memtable;
mod model;
mod mutants;
mod named;
pub mod options;
pub mod query;
mod ranges;
#[cfg(any(feature = "rest", feature = "remote"))]
mod rest;
pub mod retry;
mod rng;
mod sort;
mod sst;
pub mod store;
// This module of `rest` has loom models. Builds for loom leave out `rest`, because its dependency
// tokio does not compile under loom, and include only this module of it.
#[cfg(all(test, loom))]
#[path = "rest/http/stage.rs"]
mod stage;
mod sync;
mod table;
mod testing;
// This simulation needs `rest`, which only this file and `cli` may name as a feature.
#[cfg(all(feature = "sim", feature = "rest", feature = "remote"))]
#[path = "testing/transport/mod.rs"]
mod transport;
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

pub use db::{Db, Follower};
pub use error::{Code, Error, ErrorKind, Result};
pub use model::{
    Binary, DateTime, ETag, EdmType, Entity, EntityEncoder, FromValue, Guid, IntoProperty, Seq,
    Shape, Value, ValueRef, keys,
};
#[doc(inline)]
pub use options::{Durability, Options};
#[doc(inline)]
pub use query::{Filter, KeyRange, Page, Query, Token, prop};
#[doc(inline)]
pub use retry::RetryPolicy;
pub use table::{
    EntityGroup, FromValues, Operation, RowDecoder, RowView, Snapshot, Table, TableView, Ticket,
};

/// Types of [`Db::data_shape`], [`Db::partitions`] and the advice on keys.
pub mod advice {
    pub use crate::db::{
        Advice, AntiPattern, DataShape, LoadPattern, PartitionRange, PartitionSize, RangeBound,
    };
}

/// Reports of backups; see [`Db::backup`].
pub mod backup {
    pub use crate::db::{Backup, BackupReport, Generation, Pruned};
}

/// The change feed; see [`Db::changes`].
pub mod changes {
    pub use crate::db::{Change, Changes, Commit, Cursor, Position};
}

/// Copies of a range into another table, moves into another database, and checks of references
/// between tables.
pub mod copy {
    pub use crate::db::{
        CopyJob, CopyProblem, CopyProblemKind, CopySummary, MissingTarget, Moved, ReferenceCheck,
        References,
    };
}

/// Blocks of writes, or of all access, to a key range; see [`Db::gate`].
pub mod gates {
    pub use crate::db::ClosedGate;
    pub use crate::table::GateMode;
}

/// A view into the files of a database, for people and tools.
pub mod inspect {
    pub use crate::db::{InspectOptions, InspectedPart, InspectedValue, inspect};
}

/// Values above the limits of an entity, in chunks with a manifest.
pub mod large {
    pub use crate::store::large::{Info, LargeValues};
}

/// Bulk loading; see [`Table::loader`].
pub mod load {
    pub use crate::table::{LoadMode, LoadSummary, Loader, Rejected};
}

/// A durable queue in the rows of a table.
pub mod queue {
    pub use crate::store::queue::{Message, Options, Queue};
}

/// Damage: what opening and verification report, and the reports of the methods that heal, repair
/// and salvage a damaged database.
pub mod repair {
    pub use crate::check::VerifyReport;
    pub use crate::db::{
        FileOutcome, HealReport, Loss, LostRange, OpenReport, Quarantined, RepairReport,
        RepairedTable, SalvageReport, Salvaged, SalvagedState, SuspectRows,
    };
    pub use crate::error::Corruption;
}

/// Counters and sizes of a database; see [`Db::stats`], [`Db::wear`] and [`Db::slow_queries`].
pub mod stats {
    pub use crate::db::Stats;
    pub use crate::format::edit::Wear;
    pub use crate::table::SlowQuery;
}

/// Tables that follow the changes of a table: sums of integers, counts and indexes.
pub mod view {
    pub use crate::store::view::{Lag, Source, View};
}

/// Runs the examples of README.md with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
