//! One interface to a database in a directory and to a Table service at another address.
//!
//! Invariants
//! * [`TableStore`] has only verbs that both have, with the same errors;
//! * ETags and continuations are opaque, and a continuation is accepted only by its own store.
//!
//! Files: `table_store` (the interface), `continuation` (positions of pages), `directory` (the
//! interface over a [`Db`](crate::Db)), `remote` (over HTTP), `open` (either, by a text), `dialect`
//! (the rules in which services differ).

mod continuation;
#[cfg(feature = "cli")]
mod dialect;
mod directory;
mod open;
#[cfg(feature = "remote")]
pub(crate) mod remote;
mod table_store;

pub use self::continuation::Continuation;
#[cfg(feature = "cli")]
pub(crate) use self::dialect::Dialect;
pub use self::open::open_store;
#[cfg(feature = "remote")]
pub use self::remote::{Remote, RemoteOptions};
pub use self::table_store::{Condition, EntityPage, PageQuery, TableStore};
