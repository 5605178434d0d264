//! The oracle's representation of an entity, and the position of the entity in its table.

use std::collections::BTreeMap;
use std::fmt;

use super::value::Val;
use super::words::entity_text;
use crate::model::{ETag, Entity};

/// PartitionKey and RowKey as UTF-16, which sort in the service's order.
pub type Key = (Vec<u16>, Vec<u16>);

/// An entity as every read must show it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// PartitionKey.
    pub pk: String,
    /// RowKey.
    pub rk: String,
    /// Properties by name.
    pub properties: BTreeMap<String, Val>,
    /// The Seq of the commit that wrote the row, in ticks.
    pub etag: u64,
}

impl Row {
    /// Returns the row for an entity of the database.
    pub(crate) fn of(entity: &Entity) -> Row {
        let properties = entity.properties();
        let properties =
            properties.map(|(name, value)| (name.to_owned(), Val::from_ref(value))).collect();
        Row {
            pk: entity.partition_key().to_string(),
            rk: entity.row_key().to_string(),
            properties,
            etag: entity.etag().map_or(0, ticks),
        }
    }
}

/// Returns the Seq of an entity tag, in ticks.
pub fn ticks(etag: ETag) -> u64 {
    etag.seq().unwrap_or_default().ticks()
}

/// Returns the position of the entity with these keys among the rows of its table.
pub(crate) fn key(pk: &str, rk: &str) -> Key {
    (pk.encode_utf16().collect(), rk.encode_utf16().collect())
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&entity_text((&self.pk, &self.rk), &self.properties))
    }
}
