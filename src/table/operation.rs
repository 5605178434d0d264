//! An operation on one entity, alone or in an entity group.

use crate::error::put_quoted;
use crate::model::{ETag, Entity};

/// One operation of a group. An ETag of `None` accepts any existing entity.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Inserts the entity, which must not exist.
    Insert(Entity),
    /// Replaces the entity, which must exist.
    Replace(Entity, Option<ETag>),
    /// Sets the given properties of the entity, which must exist, and keeps its other properties.
    Merge(Entity, Option<ETag>),
    /// Inserts or replaces the entity.
    Upsert(Entity),
    /// Inserts the entity. If it exists, sets the given properties and keeps its other properties.
    UpsertMerge(Entity),
    /// Deletes the entity, which must exist.
    Delete {
        /// The entity's PartitionKey.
        partition_key: String,
        /// The entity's RowKey.
        row_key: String,
        /// If given, the entity must still have this ETag.
        etag: Option<ETag>,
    },
}

impl Operation {
    pub(super) fn delete(partition_key: &str, row_key: &str, etag: Option<ETag>) -> Self {
        let (partition_key, row_key) = (partition_key.to_owned(), row_key.to_owned());
        Operation::Delete { partition_key, row_key, etag }
    }

    /// Returns the PartitionKey and the RowKey.
    pub fn keys(&self) -> (&str, &str) {
        self.subject().map_or_else(|keys| keys, |entity| (entity.partition_key(), entity.row_key()))
    }

    pub(crate) fn entity(&self) -> Option<&Entity> {
        self.subject().ok()
    }

    /// Returns the entity, or for a delete the two keys.
    fn subject(&self) -> std::result::Result<&Entity, (&str, &str)> {
        match self {
            Operation::Delete { partition_key, row_key, .. } => Err((partition_key, row_key)),
            Operation::Insert(entity)
            | Operation::Replace(entity, _)
            | Operation::Merge(entity, _)
            | Operation::Upsert(entity)
            | Operation::UpsertMerge(entity) => Ok(entity),
        }
    }
}

/// Returns the text for an entity in errors.
pub(crate) fn quoted_entity((partition_key, row_key): (&str, &str)) -> String {
    // One allocation, because inserts of known keys may be frequent.
    let mut text = String::with_capacity(partition_key.len() + row_key.len() + 96);
    put_quoted(&mut text, "entity", partition_key);
    put_quoted(&mut text, "", row_key);
    text
}

/// Returns the text for an entity of a table in errors.
pub(crate) fn quoted_entity_of(table: &str, keys: (&str, &str)) -> String {
    let mut text = quoted_entity(keys);
    put_quoted(&mut text, " of table", table);
    text
}
