//! An embedded storage engine for schema-less, typed entities keyed by PartitionKey and RowKey: the data model,
//! limits, errors, ETags and continuation tokens of a hosted Table service, in a directory of your own.
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
//! **Database.** [`Db`] is a directory that one process at a time has open to write; others may read it beside that, or
//! [follow](Follower) it. A cheap clone, `Send + Sync`. [`Options`] say how durable commits are, how much memory to take,
//! and where time and files come from.
//!
//! **Table.** [`Table`] is a set of entities. Creating, deleting and listing are methods of [`Db`].
//!
//! **Entity.** [`Entity`] has two keys and up to 252 properties, at most 1 MiB in all. Two entities of a table need have
//! nothing in common. The pair of keys is the only index; order is ordinal in UTF-16 units.
//!
//! **Value.** [`Value`] is one of eight types; [`ValueRef`] borrows one. There are no nested values and no null.
//!
//! **Write.** `insert`, `replace`, `merge`, `upsert`, `upsert_merge`, `delete`, and the forms ending in `_if`, which take
//! the [`ETag`] that was read: if somebody was faster, the write is refused. [`Table::loader`] takes many rows in any order.
//!
//! **Group.** [`EntityGroup`] holds up to 100 operations on one partition: all of them take effect, or none.
//! [`Table::commit_async`] gives a [`Ticket`], also a `Future`: many commits of one thread share a sync.
//!
//! **Read.** [`Table::get`] finds one entity, [`Table::get_many`] many, [`Table::scan`] reads a [`KeyRange`]. [`RowView`]
//! reads a row where it lies, [`RowDecoder`] the same properties of many.
//!
//! **Query.** [`Table::query`] takes the service's filter language, or a [`Filter`] of bound values from [`prop`]. What it says
//! about keys becomes intervals of keys, and nothing else is read. Results come one by one or in [`Page`]s whose
//! [`Token`]s stay valid for ever; [`Query::explain`] says what was read. Beyond the service: [`Query::reverse`],
//! [`Query::count`], [`Query::aggregate`].
//!
//! **Snapshot.** [`Snapshot`] is a moment of all tables that stays readable, through [`Table::at`].
//!
//! **Changes.** [`Db::changes`] gives commits in order, with whole entities, from any [`Position`] that is still kept;
//! a [`Cursor`] remembers one by name.
//!
//! **Durability.** [`Durability`] of each commit: `Sync` survives a power cut, `Os` a crash of the process, `Buffered`
//! neither until [`Db::sync`]. What survives is always a prefix of the commits, without holes.
//!
//! **Errors.** [`Error`] has a [`kind`](Error::kind) to act on, and the service's code and status. Absence is `None`, not an
//! error. Damage on disk is [`ErrorKind::Corruption`], with file and offset; it is never a panic and never wrong data.
//!
//! **Retry.** [`RetryPolicy`] tries again what [`Error::is_transient`] says may pass, after the pauses of the service's clients.
//!
//! **Features.** `cli` (default): the binary. `zstd` (default): compressed files. `serde`: application structs in and out.
//! `rest`: the binary serves the Table service over HTTP. `events`: what the engine does, told to subscribers of `tracing`.
//!
//! **Limits.** Keys 1,024 characters, texts 32,768, binaries 64 KiB, groups 100 operations and 4 MiB, pages 1,000 entities.
//!
//! **What it is not.** No secondary index, no joins, no transaction over several partitions, no replication.
//! No order but that of the keys, no functions and no arithmetic in filters.

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
// Its models are built without `rest`, since tokio does not compile under loom.
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

/// The examples of README.md run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
