//! Tables of entities: reads, conditional writes, entity groups, bulk loading, and the catalog of
//! tables.
//!
//! `query` has scans and pages, `db` opens databases, `lsm` stores rows.

mod catalog;
mod counts;
mod decode;
mod entry;
mod group;
mod loader;
mod members;
mod operation;
mod read;
mod slow;
mod ticket;
mod write;

pub use decode::{FromValues, RowDecoder};
pub use group::EntityGroup;
pub use loader::{LoadMode, LoadSummary, Loader, Rejected};
pub use operation::Operation;
pub use read::{RowView, Snapshot, TableView};
pub use slow::SlowQuery;
pub use ticket::Ticket;

pub use crate::lsm::GateMode;

pub(crate) use catalog::{Catalog, CatalogRow, GateEntry, check_row};
pub(crate) use counts::{Breadth, QueryCounts};
pub(crate) use entry::TableEntry;
#[cfg(feature = "remote")]
pub(crate) use operation::quoted_entity;
pub(crate) use operation::quoted_entity_of;

use std::fmt;
use std::sync::Arc;

use crate::lsm::Engine;
use crate::options::Durability;

/// A table: a schemaless set of entities, each identified by (PartitionKey, RowKey).
///
/// A `Table` is a handle that is cheap to clone and usable from any thread.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// use rowstone::{Db, Entity};
/// let parts = Db::open_in_memory()?.create_table("parts")?;
/// parts.insert(Entity::new("bolts", "m4x20").with("Price", 0.12).with("Stock", 1_200))?;
/// let bolt = parts.get("bolts", "m4x20")?.expect("just inserted");
/// assert_eq!(bolt.get::<f64>("Price")?, 0.12);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Table {
    pub(crate) engine: Arc<Engine>,
    pub(crate) entry: Arc<TableEntry>,
    durability: Durability,
}

impl Table {
    pub(crate) fn new(engine: Arc<Engine>, entry: Arc<TableEntry>) -> Self {
        let durability = engine.env().options.durability;
        Self { engine, entry, durability }
    }

    /// Returns the table's name as spelled at creation.
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// Returns a handle for the same table whose writes have `durability`.
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("name", &self.entry.name).finish_non_exhaustive()
    }
}
