//! Divides entities into groups that a service accepts, and tells the errors of groups apart.

use super::pages::quoted;
use crate::error::{Code, Error};
use crate::model::{Entity, GROUP_OPERATIONS_MAX};

/// The maximum length of the members of a group as JSON: that of Cosmos DB, 2 MB, with room for
/// the head of the body. Other services accept 4 MiB.
pub(super) const BODY_MAX: usize = 2_000_000 - (64 << 10);
/// The maximum length of the head of a member, without its keys, which may take three bytes for
/// each byte.
const MEMBER_HEAD: usize = 600;
/// The maximum number of times that a group is sent because its outcome is not known, or because
/// other writers change its entities.
pub(super) const TRIES_MAX: usize = 5;

/// Returns the number of entities, at least one, that one group can have. Each has its length as
/// JSON.
pub(super) fn group_len<'e>(entities: impl Iterator<Item = (&'e Entity, usize)>) -> usize {
    let (mut len, mut bytes, mut size) = (0, 0, 0);
    for (entity, length) in entities.take(GROUP_OPERATIONS_MAX) {
        let (pk, rk) = entity.key_bytes();
        bytes += length + member_head(pk.len() + rk.len());
        size += entity.size_at_most();
        if len > 0 && bytes.max(size) > BODY_MAX {
            break;
        }
        len += 1;
    }
    len
}

/// Returns the maximum length of the head of a member whose keys have this many bytes together.
pub(super) fn member_head(key_bytes: usize) -> usize {
    MEMBER_HEAD + 3 * key_bytes
}

/// Returns the filter for the range of keys from `first` to `last`, in one partition.
pub(super) fn range_filter(first: &Entity, last: &Entity) -> String {
    format!(
        "PartitionKey eq {} and RowKey ge {} and RowKey le {}",
        quoted(first.partition_key()),
        quoted(first.row_key()),
        quoted(last.row_key())
    )
}

/// Whether the error is about an entity, not about its table.
pub(super) fn is_of_row(error: &Error) -> bool {
    matches!(
        error.code(),
        "EntityAlreadyExists" | "ResourceNotFound" | "UpdateConditionNotSatisfied"
    )
}

/// Whether the error is about the size of a group.
pub(super) fn is_of_group(error: &Error) -> bool {
    error.code() == Code::RequestBodyTooLarge.as_str()
}
