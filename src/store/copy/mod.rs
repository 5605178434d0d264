//! Copies the entities of a table into a table of another store.
//!
//! Invariants
//! * nothing in the target is overwritten unless that is requested;
//! * a position advances only after the target has acknowledged its entities, and the source their
//!   deletion if they are deleted: repeating a job from a saved position loses nothing;
//! * memory is bounded by the number of workers, not by the sizes of the tables.
//!
//! Files: `plan` (the options), `job` (the workers), `pool` (the slices and their halving), `write`
//! (groups), `state` (the file of positions). Between directories `db::copy` copies.

mod job;
mod plan;
mod pool;
mod state;
#[cfg(test)]
pub(crate) mod tests;
mod write;

pub(crate) use self::plan::{StoreCopy, Traffic};
pub(crate) use self::state::StateFile;
