//! A buffer for the rows of many entities, such as those of a group: one allocation for all bodies,
//! and each shape once.

use std::sync::Arc;

use super::entity::Entity;
use super::project::{Checked, EntityEncoder};
use super::row::{Body, NewRow, Row, ShapeRef};
use super::row_limits::entity_size;
use super::shape::Shape;
use super::shapes::{Numbers, ShapeList};
use super::value::ValueRef;
use crate::error::Result;

/// Encoded rows that were checked against the limits of the data model.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowBuffer {
    bodies: Vec<u8>,
    shapes: ShapeList,
}

/// A row of a [`RowBuffer`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferedRow {
    shape: usize,
    start: usize,
    end: usize,
}

/// A body buffer above this number of bytes is freed when it is cleared, to bound memory.
const BODIES_KEPT_MAX: usize = 256 << 10;

impl RowBuffer {
    /// Appends the row of an entity. Requires: the keys were checked.
    ///
    /// # Errors
    /// `InvalidInput` if the entity violates the limits of the data model.
    pub(crate) fn push(&mut self, entity: &Entity) -> Result<BufferedRow> {
        let start = self.bodies.len();
        let shape = entity.append_row(&mut self.shapes, &mut self.bodies)?;
        Ok(BufferedRow { shape, start, end: self.bodies.len() })
    }

    /// Appends the row of properties that `encoder` has checked last.
    pub(crate) fn push_properties(
        &mut self,
        encoder: &EntityEncoder,
        checked: Checked,
        properties: &[(&str, ValueRef<'_>)],
    ) -> BufferedRow {
        let start = self.bodies.len();
        let shape = encoder.append_row(checked, properties, &mut self.bodies);
        let shape = self.shapes.place(|other| Arc::ptr_eq(other, shape), || Arc::clone(shape));
        BufferedRow { shape, start, end: self.bodies.len() }
    }

    /// Removes the row, which must be the last one.
    pub(crate) fn pop(&mut self, row: BufferedRow) {
        debug_assert_eq!(row.end, self.bodies.len(), "the last row is removed");
        self.bodies.truncate(row.start);
    }

    /// Removes all rows and keeps most of the memory.
    pub(crate) fn clear(&mut self) {
        self.bodies.clear();
        self.bodies.shrink_to(BODIES_KEPT_MAX);
        self.shapes.trim();
    }

    /// Returns the row in the form in which it is written.
    pub(crate) fn new_row<'b>(
        &'b self,
        row: BufferedRow,
        numbers: &mut Numbers<'_, 'b>,
    ) -> NewRow<'b> {
        let (shape, body) = self.parts(row);
        let (number, shape) = (numbers.of(shape), ShapeRef::Shared(shape));
        NewRow { number, shape, body: Body::Borrowed(body) }
    }

    /// Returns a copy of the row.
    pub(crate) fn row(&self, row: BufferedRow) -> Row {
        let (shape, body) = self.parts(row);
        Row { shape: Arc::clone(shape), body: body.to_vec() }
    }

    /// Returns the entity of the row, without an ETag.
    pub(crate) fn entity(&self, pk: &str, rk: &str, row: BufferedRow) -> Entity {
        let (shape, body) = self.parts(row);
        let bytes = [pk.as_bytes(), rk.as_bytes(), body].concat();
        Entity::from_checked(Arc::clone(shape), pk.len(), pk.len() + rk.len(), bytes)
    }

    /// Returns the size that counts against the limits of a group, in bytes, for keys of
    /// `key_units` UTF-16 units.
    pub(crate) fn size(&self, key_units: usize, row: BufferedRow) -> usize {
        let (shape, body) = self.parts(row);
        entity_size(key_units, shape, shape.values(body).filter_map(|value| value.ok()))
    }

    /// Returns an upper bound of [`size`](Self::size), for keys of `key_bytes` bytes in UTF-8.
    pub(crate) fn size_at_most(&self, key_bytes: usize, row: BufferedRow) -> usize {
        let (shape, body) = self.parts(row);
        4 + 2 * key_bytes + shape.size_base() + 2 * body.len()
    }

    #[inline]
    fn parts(&self, row: BufferedRow) -> (&Arc<Shape>, &[u8]) {
        (self.shapes.get(row.shape), &self.bodies[row.start..row.end])
    }
}
