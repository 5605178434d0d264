//! rowstone: an embedded storage engine for schema-less, typed entities keyed by PartitionKey and RowKey.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]
#![warn(missing_docs, unreachable_pub)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests start threads of their own"))]

#[doc(hidden)]
pub mod bench_support;
mod check;
mod clock;
mod codec;
mod db;
mod error;
mod executor;
mod format;
pub mod fs;
#[cfg(any(fuzzing, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod log;
mod lsm;
mod manifest;
mod memtable;
mod model;
mod options;
mod query;
mod ranges;
mod rng;
mod sst;
mod sync;
mod table;
#[cfg(feature = "cli")]
mod wire;

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;

pub use check::VerifyReport;
pub use clock::{Clock, ManualClock, SystemClock};
pub use db::{Db, OpenReport, Stats};
pub use error::{Code, Corruption, Error, ErrorKind, Result};
pub use model::{
    Binary, DateTime, ETag, EdmType, Entity, FromValue, Guid, Seq, Shape, Value, ValueRef,
};
pub use options::{Background, Codec, Durability, IoMode, Options};
pub use query::{Entities, KeyRange, Page, Query, QueryView, Token};
pub use rng::Rng;
pub use table::{
    EntityGroup, LoadMode, LoadSummary, Loader, Operation, Rejected, RowView, Snapshot, Table,
    TableView, Ticket,
};
