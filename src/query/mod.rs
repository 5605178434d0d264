//! Reads many entities by filter or key range, in key order, page by page or one by one.
//!
//! A filter's text becomes a tree (`parse`, `filter`); `plan` turns its conditions on keys into
//! intervals, and `eval` compiles the remaining conditions for each shape (the names and types of a
//! row's properties). `exec` executes the plan on one state of the database. `table` reads single
//! entities by their keys.

mod aggregate;
mod begin;
mod builder;
mod compare;
mod entities;
mod eval;
mod exec;
mod explain;
mod filter;
mod key_range;
mod key_set;
mod page;
mod parse;
mod plan;
mod prune;
mod slow;
mod spans;
mod token;
pub(crate) mod tree;

pub use aggregate::{Aggregate, Number};
pub use builder::Query;
#[cfg(feature = "cli")]
pub(crate) use compare::order;
pub use entities::Entities;
pub use explain::Explain;
pub use filter::{Filter, Prop, prop};
pub use key_range::KeyRange;
pub use page::Page;
pub use token::Token;
