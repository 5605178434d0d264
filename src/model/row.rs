//! Implements rows. A row consists of a shape (the names and types of its properties) and a body
//! (their values). The engine processes rows, not entities.
//!
//! Invariant: modules below `table` access a body only through its shape.

use std::sync::Arc;

use super::shape::Shape;
use super::shapes::ShapeId;
use super::value::ValueRef;
use crate::codec::DecodeError;

/// A row, borrowed from a log, a memtable or a block.
#[derive(Clone, Debug)]
pub(crate) struct RowRef<'a> {
    pub(crate) shape: ShapeRef<'a>,
    pub(crate) body: &'a [u8],
}

/// A row that owns its body.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) shape: Arc<Shape>,
    pub(crate) body: Vec<u8>,
}

/// A row to be written.
#[derive(Clone, Debug)]
pub(crate) struct NewRow<'a> {
    /// The shape's number in the registry, if it has one.
    pub(crate) number: Option<ShapeId>,
    pub(crate) shape: ShapeRef<'a>,
    pub(crate) body: Body<'a>,
}

/// The body of a row to be written. An existing body is borrowed, not copied.
#[derive(Clone, Debug)]
pub(crate) enum Body<'a> {
    Borrowed(&'a [u8]),
    Owned(Vec<u8>),
    /// The bytes of the allocation from this offset to its end.
    Tail(Box<[u8]>, usize),
}

/// The shape of a row: shared with other rows, or the row's own because the row is self-describing
/// (contains names and types itself).
#[derive(Clone, Debug)]
pub(crate) enum ShapeRef<'a> {
    Shared(&'a Arc<Shape>),
    Own(Arc<Shape>),
}

/// Merges rows: returns `old` with the properties of `patch` set. A property may have another type
/// in `patch` than in `old`.
///
/// `is_checked` states that the body of `old` is known to fit its shape. The result may exceed
/// limits that both rows obey, so check it with [`super::check_row_limits`].
pub(crate) fn merge_rows(
    old: &RowRef<'_>,
    patch: &RowRef<'_>,
    is_checked: bool,
) -> Result<Row, DecodeError> {
    let (old_shape, patch_shape) = (old.shape.arc(), patch.shape.arc());
    let same_shape = Arc::ptr_eq(old_shape, patch_shape) || old_shape == patch_shape;
    if same_shape {
        return Ok(patch.to_row());
    }
    if let Some(places) = places_of_same_type(patch_shape, old_shape) {
        if !is_checked {
            old.check()?; // because the values are copied without decoding
        }
        let mut body = Vec::with_capacity(old.body.len() + patch.body.len());
        old_shape.encode_patched(old.body, patch_shape, patch.body, &places, &mut body)?;
        return Ok(Row { shape: Arc::clone(old_shape), body });
    }
    let mut merged = Vec::with_capacity(old_shape.len() + patch_shape.len());
    let (mut i, mut j) = (0, 0);
    while i < old_shape.len() || j < patch_shape.len() {
        let old_name = (i < old_shape.len()).then(|| old_shape.property(i).0);
        let patch_name = (j < patch_shape.len()).then(|| patch_shape.property(j).0);
        let keep = match (old_name, patch_name) {
            (Some(old_name), Some(patch_name)) => {
                i += usize::from(old_name == patch_name);
                old_name < patch_name
            }
            (old_name, _) => old_name.is_some(),
        };
        if keep {
            merged.push((old_name.unwrap_or_default(), old.value(i)?));
            i += 1;
        } else {
            merged.push((patch_name.unwrap_or_default(), patch.value(j)?));
            j += 1;
        }
    }
    let types = merged.iter().map(|(name, value)| (*name, value.edm_type()));
    let shape = Arc::new(Shape::from_sorted(types));
    let mut body = Vec::with_capacity(old.body.len() + patch.body.len());
    shape.encode_body(merged.iter().map(|(_, value)| *value), &mut body);
    Ok(Row { shape, body })
}

/// Returns the index in `shape` of each property of `patch`, if `shape` has all of them with the
/// same types.
fn places_of_same_type(patch: &Shape, shape: &Shape) -> Option<Vec<usize>> {
    let place = |(name, edm)| shape.find(name).filter(|&index| shape.property(index).1 == edm);
    patch.properties().map(place).collect()
}

impl<'a> RowRef<'a> {
    /// Returns the value of property `index` of the shape.
    #[inline]
    pub(crate) fn value(&self, index: usize) -> Result<ValueRef<'a>, DecodeError> {
        self.shape.arc().value(self.body, index)
    }

    /// Returns the value of the property with this name, if the row has it.
    pub(crate) fn find(&self, name: &str) -> Result<Option<ValueRef<'a>>, DecodeError> {
        self.shape.arc().find(name).map(|index| self.value(index)).transpose()
    }

    /// Checks the whole body against the shape.
    pub(crate) fn check(&self) -> Result<(), DecodeError> {
        self.shape.arc().check(self.body)
    }

    /// Returns a copy that owns its body.
    pub(crate) fn to_row(&self) -> Row {
        Row { shape: Arc::clone(self.shape.arc()), body: self.body.to_vec() }
    }
}

impl Row {
    /// Borrows the row.
    #[inline]
    pub(crate) fn as_ref(&self) -> RowRef<'_> {
        RowRef { shape: ShapeRef::Shared(&self.shape), body: &self.body }
    }
}

impl Body<'_> {
    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Body::Borrowed(bytes) => bytes,
            Body::Owned(bytes) => bytes,
            Body::Tail(bytes, start) => bytes.get(*start..).unwrap_or_default(),
        }
    }
}

impl ShapeRef<'_> {
    /// Whether the row is self-describing.
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        matches!(self, ShapeRef::Own(_))
    }

    /// Returns the shape itself.
    #[inline]
    pub(crate) fn arc(&self) -> &Arc<Shape> {
        match self {
            ShapeRef::Shared(shape) => shape,
            ShapeRef::Own(shape) => shape,
        }
    }
}

#[cfg(test)]
mod tests;
