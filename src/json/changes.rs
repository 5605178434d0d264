//! Writes the commits of the change feed as JSON objects.

use super::Object;
use super::odata::{Metadata, entity_text};
use crate::db::{Change, Commit};

/// Puts the position, the time and the given `changes` of a commit.
pub(crate) fn put_commit(object: &mut Object<'_>, commit: &Commit, changes: &[&Change]) {
    object.text("position", &commit.position.to_string());
    object.text("timestamp", &commit.timestamp.to_string());
    object.objects("changes", changes, |object, change| put_change(object, change));
}

fn put_change(object: &mut Object<'_>, change: &Change) {
    let op = match change {
        Change::TableCreated { .. } => "create-table",
        Change::TableDropped { .. } => "drop-table",
        Change::Put { .. } => "put",
        Change::Deleted { .. } => "delete",
        Change::RangeDeleted { .. } => "delete-range",
        Change::Expired { .. } => "expire",
        Change::Imported { .. } => "import",
    };
    object.text("op", op);
    object.text("table", change.table());
    match change {
        Change::Put { entity, .. } => {
            object.raw("entity", entity_text(entity, Metadata::MINIMAL));
        }
        Change::Deleted { partition_key, row_key, .. } => {
            object.text("PartitionKey", partition_key);
            object.text("RowKey", row_key);
        }
        Change::RangeDeleted { range, .. } | Change::Imported { range, .. } => {
            object.text("range", &range.to_string());
        }
        Change::Expired { before, .. } => object.text("before", &before.to_string()),
        Change::TableCreated { .. } | Change::TableDropped { .. } => {}
    }
}
