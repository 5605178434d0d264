//! One interface to a database in a directory and to a Table service at another address.
//!
//! Invariants
//! * [`TableStore`] has only verbs that both have, with the same errors;
//! * ETags and continuations are opaque, and a continuation is accepted only by its own store.
//!
//! Files: `table_store` (the interface), `continuation` (positions of pages), `directory` (over a
//! [`Db`](crate::Db)), `remote` (over HTTP), `open` (either), `reference` (texts that name one),
//! `misbehaving`, `update` (with closures), `pages`, `slice` and `split` (parts of the key space),
//! `groups`, `workers`, `load`, `copy`, `source` (a change feed), `sync`, `view`, `queue`, …

#[cfg(all(feature = "cli", feature = "remote"))]
pub(crate) mod compare;
mod continuation;
#[cfg(all(feature = "cli", feature = "remote"))]
pub(crate) mod copy;
#[cfg(test)]
mod cut;
#[cfg(feature = "cli")]
mod dialect;
mod directory;
#[cfg(all(test, feature = "remote"))]
mod failing;
#[cfg(feature = "remote")]
mod groups;
pub(crate) mod large;
#[cfg(all(feature = "cli", feature = "remote"))]
pub(crate) mod load;
#[cfg(feature = "remote")]
mod locked_file;
#[cfg(feature = "json")]
mod misbehaving;
mod open;
pub(crate) mod pages;
pub(crate) mod queue;
mod reference;
#[cfg(feature = "remote")]
pub(crate) mod remote;
#[cfg(feature = "remote")]
pub(crate) mod slice;
mod source;
#[cfg(feature = "remote")]
mod split;
#[cfg(feature = "remote")]
pub mod sync;
mod table_store;
mod update;
pub(crate) mod view;
#[cfg(feature = "remote")]
pub(crate) mod workers;

pub use self::continuation::Continuation;
#[cfg(feature = "cli")]
pub(crate) use self::dialect::Dialect;
#[cfg(feature = "json")]
pub use self::misbehaving::Misbehaving;
pub use self::open::open_store;
#[cfg(feature = "json")]
pub(crate) use self::reference::{Reference, foreign};
#[cfg(feature = "remote")]
pub use self::remote::{Remote, RemoteOptions};
#[cfg(feature = "remote")]
pub use self::split::split;
pub use self::table_store::{Condition, EntityPage, PageQuery, TableStore};
pub use self::update::{PartitionView, transact, update};
#[cfg(all(feature = "sim", feature = "rest", feature = "remote"))]
pub(crate) use self::update::{transact_with, update_with};
