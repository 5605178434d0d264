//! Checks the limits of a whole row: its names, its values, their number and its size. SEMANTICS.md
//! §limits.

use super::limits::{
    ENTITY_SIZE_MAX, PROPERTIES_MAX, STRING_UNITS_MAX, check_property_name, check_value,
    variable_size,
};
use super::row::RowRef;
use super::shape::Shape;
use super::value::ValueRef;
use crate::error::{Code, Error, Result, quoted};

/// Checks the names, the values, their number and the size of a whole row, such as the result of a
/// merge.
///
/// `key_units` returns the number of UTF-16 units of PartitionKey and RowKey together. It is called
/// only if the row might exceed the size limit with keys of `key_units_max` units, an upper bound.
/// The body must be well-formed.
pub(crate) fn check_row_limits(
    key_units_max: usize,
    key_units: impl FnOnce() -> Result<usize>,
    row: &RowRef<'_>,
) -> Result<()> {
    let shape = row.shape.arc();
    check_names(shape)?;
    if is_small(key_units_max, shape, row.body.len()) {
        return Ok(());
    }
    check_value_sizes(key_units()?, shape, shape.values(row.body).filter_map(|value| value.ok()))
}

/// As [`check_row_limits`], for values that are not encoded as a row yet. They are in the order of
/// the shape. Returns the length of the body.
pub(crate) fn check_values<'v>(
    key_units_max: usize,
    key_units: impl FnOnce() -> usize,
    shape: &Shape,
    values: impl Iterator<Item = ValueRef<'v>> + Clone,
) -> Result<usize> {
    check_names(shape)?;
    let variable_bytes: usize = values.clone().map(|value| value.variable_bytes().len()).sum();
    if !is_small(key_units_max, shape, variable_bytes) {
        check_value_sizes(key_units(), shape, values)?;
    }
    Ok(shape.body_bytes(variable_bytes))
}

/// Whether the length of a row alone proves that the row obeys all limits on values and size. It
/// does for most rows.
fn is_small(key_units_max: usize, shape: &Shape, bytes: usize) -> bool {
    // A UTF-16 unit adds two bytes to the size, and takes at least one byte in UTF-8.
    let size_at_most = 4 + 2 * key_units_max + shape.size_base() + 2 * bytes;
    bytes <= STRING_UNITS_MAX && size_at_most <= ENTITY_SIZE_MAX
}

fn check_value_sizes<'v>(
    key_units: usize,
    shape: &Shape,
    values: impl Iterator<Item = ValueRef<'v>> + Clone,
) -> Result<()> {
    // An error about a single value is more specific, so values are checked first.
    values.clone().enumerate().try_for_each(|(index, value)| {
        let named = || quoted("property", shape.property(index).0);
        check_value(value).map_err(|error| error.about(named))
    })?;
    if entity_size(key_units, shape, values) > ENTITY_SIZE_MAX {
        return Err(Error::refused(Code::EntityTooLarge));
    }
    Ok(())
}

fn check_names(shape: &Shape) -> Result<()> {
    if shape.len() > PROPERTIES_MAX {
        return Err(Error::refused(Code::TooManyProperties));
    }
    if shape.is_well_named() {
        return Ok(());
    }
    shape.properties().try_for_each(|(name, _)| check_property_name(name))
}

/// Returns the size that counts against the limit: `4 + 2·(units of both keys) + Σ (8 + 2·units of
/// the name + size of the value)`.
pub(crate) fn entity_size<'v>(
    key_units: usize,
    shape: &Shape,
    values: impl Iterator<Item = ValueRef<'v>>,
) -> usize {
    4 + 2 * key_units + shape.size_base() + values.map(variable_size).sum::<usize>()
}
