//! Refuses names and keys that a path or a JSON object would give another meaning, with the errors
//! of a database. The service checks all other limits.

use crate::error::{Code, Error, Result, quoted};
use crate::model::{KeyPart, check_key, check_property_name, check_table_name};
use crate::table::{EntityGroup, Operation};

/// Checks the name of a table that is used. No table has an invalid name.
pub(super) fn table(name: &str) -> Result<()> {
    missing(name, Code::TableNotFound)
}

/// Checks the name of a table that is deleted.
pub(super) fn deleted_table(name: &str) -> Result<()> {
    missing(name, Code::ResourceNotFound)
}

fn missing(name: &str, code: Code) -> Result<()> {
    check_table_name(name).map_err(|_| Error::refused(code).about(|| quoted("table", name)))
}

pub(super) fn keys(partition_key: &str, row_key: &str) -> Result<()> {
    check_key(KeyPart::PartitionKey, partition_key)?;
    check_key(KeyPart::RowKey, row_key)
}

/// Checks the keys of an operation and the names of its properties.
pub(super) fn operation(operation: &Operation) -> Result<()> {
    let (partition_key, row_key) = operation.keys();
    keys(partition_key, row_key)?;
    operation.entity().map_or(Ok(()), |entity| entity.check_names())
}

pub(super) fn group(group: &EntityGroup) -> Result<()> {
    if group.is_empty() {
        return Err(Error::refused(Code::InvalidInput));
    }
    let mut operations = group.operations().enumerate();
    operations.try_for_each(|(index, op)| operation(&op).map_err(|error| error.at_index(index)))
}

/// Returns the names in `$select`, among which are those of the system properties; `None` selects
/// all. A name that no property can have would be several names.
pub(super) fn selected(select: &[&str]) -> Option<String> {
    if select.is_empty() || select.contains(&"*") {
        return None;
    }
    let named = select.iter().filter(|name| check_property_name(name).is_ok());
    let system = ["PartitionKey", "RowKey", "Timestamp"];
    Some(system.iter().chain(named).copied().collect::<Vec<_>>().join(","))
}
