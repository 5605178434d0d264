//! Projection: creates entities that have only selected properties of a row. Also creates entities
//! and rows from lists of properties whose names and types recur. The most recent shapes are
//! cached, so that an entity costs one allocation.

use std::fmt;
use std::sync::Arc;

use super::entity::Entity;
use super::limits::variable_size;
use super::recent::Recent;
use super::row::{Body, NewRow, RowRef, ShapeRef};
use super::row_limits;
use super::seq::Seq;
use super::shape::Shape;
use super::shapes::Shapes;
use super::value::{ValueRef, utf16_len, utf16_unrank_in_place};
use crate::codec::DecodeError;
use crate::error::{Code, Error, Result, quoted};
use crate::sort::sort_by;

/// Creates entities with selected properties from rows.
pub(crate) struct Projector {
    /// The selected names, ascending and distinct.
    names: Vec<Box<str>>,
    recent: Recent<Projection>,
}

/// Creates entities from property lists with recurring names and types, as in a bulk load. This
/// costs half as much as building each entity, because the names are looked up only once.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// use rowstone::{Db, EntityEncoder, ValueRef};
/// let readings = Db::open_in_memory()?.create_table("readings")?;
/// let (mut encoder, mut loader) = (EntityEncoder::default(), readings.loader());
/// for line in 1..=1_000u64 {
///     let mut row = [("Celsius", ValueRef::Double(20.5)), ("Sensor", ValueRef::Int32(7))];
///     loader.push(line, encoder.entity("kitchen", &format!("{line:06}"), &mut row)?)?;
/// }
/// assert_eq!(loader.finish()?.loaded, 1_000);
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct EntityEncoder {
    recent: Recent<Arc<Shape>>,
    /// The buffer in which [`EntityEncoder::row`] encodes the body of a row. It is reused for the
    /// next row.
    body: Vec<u8>,
}

/// The result of checking a list of properties that is in order and violates no limit: the index of
/// its shape in the cache, and the length of its body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checked {
    shape: usize,
    body_bytes: usize,
}

struct Projection {
    from: Arc<Shape>,
    to: Arc<Shape>,
    /// The index in `from` of each property of `to`.
    indices: Vec<usize>,
}

/// A body above this number of bytes is freed after use, to bound memory.
const BODY_KEPT_MAX: usize = 64 << 10;

impl Projector {
    /// Creates a projector for the properties `names`. Names that a row lacks are omitted from the
    /// entity.
    pub(crate) fn new(names: &[impl AsRef<str>]) -> Self {
        let mut names: Vec<Box<str>> = names.iter().map(|name| name.as_ref().into()).collect();
        sort_by(&mut names, Ord::cmp);
        names.dedup();
        Self { names, recent: Recent::default() }
    }

    /// Returns the entity with the selected properties of a row. `pk` and `rk` are encoded as in
    /// user keys.
    pub(crate) fn entity(
        &mut self,
        pk: &[u8],
        rk: &[u8],
        seq: Seq,
        row: &RowRef<'_>,
    ) -> Result<Entity, DecodeError> {
        let projection = self.projection(row);
        let values = || projection.indices.iter().map(|&index| row.value(index));
        // The first pass detects damage, so that the second pass cannot fail.
        let mut variable_bytes = 0;
        for value in values() {
            variable_bytes += value?.variable_bytes().len();
        }
        let room = pk.len() + rk.len() + projection.to.body_bytes(variable_bytes);
        let mut bytes = Vec::with_capacity(room);
        bytes.extend_from_slice(pk);
        bytes.extend_from_slice(rk);
        let keys = bytes.len();
        utf16_unrank_in_place(&mut bytes);
        projection.to.encode_body(values().filter_map(|value| value.ok()), &mut bytes);
        Ok(Entity::from_parts(Arc::clone(&projection.to), pk.len(), keys, bytes)?.at(seq))
    }

    /// Returns the size of the entity that [`entity`](Self::entity) would create, with keys of
    /// `key_units` UTF-16 units.
    pub(crate) fn size(
        &mut self,
        key_units: usize,
        row: &RowRef<'_>,
    ) -> Result<usize, DecodeError> {
        let projection = self.projection(row);
        let base = 4 + 2 * key_units + projection.to.size_base();
        projection
            .indices
            .iter()
            .try_fold(base, |size, &index| Ok(size + variable_size(row.value(index)?)))
    }

    fn projection(&mut self, row: &RowRef<'_>) -> &Projection {
        let (shape, names) = (row.shape.arc(), &self.names);
        self.recent.find_or_add(
            |known| Arc::ptr_eq(&known.from, shape) || known.from == *shape,
            || Projection::new(shape, names),
        )
    }
}

impl Projection {
    fn new(from: &Arc<Shape>, names: &[Box<str>]) -> Self {
        let indices: Vec<usize> = names.iter().filter_map(|name| from.find(name)).collect();
        let to = match indices.len() == from.len() {
            true => Arc::clone(from),
            false => {
                Arc::new(Shape::from_sorted(indices.iter().map(|&index| from.property(index))))
            }
        };
        Projection { from: Arc::clone(from), to, indices }
    }
}

impl EntityEncoder {
    /// Creates an entity with these properties, which are sorted by name in place.
    ///
    /// # Errors
    /// `InvalidInput` for names, values and sizes that the data model does not allow, or a
    /// duplicate name.
    pub fn entity(
        &mut self,
        pk: &str,
        rk: &str,
        properties: &mut [(&str, ValueRef<'_>)],
    ) -> Result<Entity> {
        let Checked { shape, body_bytes } = self.check(pk, rk, properties)?;
        let values = properties.iter().map(|(_, value)| *value);
        Ok(Self::encode(&self.recent[shape], pk, rk, values, body_bytes))
    }

    /// Finds the shape of these properties, sorts them if necessary, and checks them.
    ///
    /// # Errors
    /// As [`entity`](Self::entity).
    #[inline]
    pub(crate) fn check(
        &mut self,
        pk: &str,
        rk: &str,
        properties: &mut [(&str, ValueRef<'_>)],
    ) -> Result<Checked> {
        let types = || properties.iter().map(|(name, value)| (*name, value.edm_type()));
        // The names of a shape are sorted, and so are properties that match it.
        let known = self.recent.find(|known| known.matches(types()));
        let known = known.map_or_else(|| self.learn(properties), Ok)?;
        let values = properties.iter().map(|(_, value)| *value);
        let key_units = || utf16_len(pk) + utf16_len(rk);
        let (keys, shape) = (pk.len() + rk.len(), &self.recent[known]);
        let body_bytes = row_limits::check_values(keys, key_units, shape, values)?;
        Ok(Checked { shape: known, body_bytes })
    }

    /// Encodes the properties that were checked last as a row, in a buffer that is reused.
    /// Requires: the encoder was not used since that check.
    pub(crate) fn row(
        &mut self,
        checked: Checked,
        properties: &[(&str, ValueRef<'_>)],
        shapes: &Shapes,
    ) -> NewRow<'_> {
        let shape = &self.recent[checked.shape];
        self.body.clear();
        self.body.shrink_to(BODY_KEPT_MAX);
        self.body.reserve(checked.body_bytes);
        shape.encode_body(properties.iter().map(|(_, value)| *value), &mut self.body);
        let body = Body::Borrowed(&self.body);
        NewRow { number: shapes.number(shape), shape: ShapeRef::Shared(shape), body }
    }

    /// Appends the body of the properties that were checked last to `out`, and returns their shape.
    /// Requires: the encoder was not used since that check.
    #[inline]
    pub(super) fn append_row(
        &self,
        checked: Checked,
        properties: &[(&str, ValueRef<'_>)],
        out: &mut Vec<u8>,
    ) -> &Arc<Shape> {
        let shape = &self.recent[checked.shape];
        out.reserve(checked.body_bytes);
        shape.encode_body(properties.iter().map(|(_, value)| *value), out);
        shape
    }

    /// Creates an entity without checking limits; a write of the entity checks them. Requires: the
    /// names are distinct.
    #[cfg(feature = "json")]
    pub(crate) fn unchecked(
        &mut self,
        pk: &str,
        rk: &str,
        properties: &mut [(&str, ValueRef<'_>)],
    ) -> Entity {
        properties.sort_unstable_by(|a, b| a.0.cmp(b.0));
        let types = || properties.iter().map(|(name, value)| (*name, value.edm_type()));
        let known = self.recent.find(|known| known.matches(types()));
        let place = known.unwrap_or_else(|| self.recent.add(Arc::new(Shape::from_sorted(types()))));
        let shape = &self.recent[place];
        let values = properties.iter().map(|(_, value)| *value);
        let bytes = values.clone().map(|value| value.variable_bytes().len()).sum();
        Self::encode(shape, pk, rk, values, shape.body_bytes(bytes))
    }

    /// Encodes the keys and values of an entity. Requires: the values have the types of the shape,
    /// were checked, and take `body_bytes` bytes in the body.
    #[inline]
    fn encode<'v>(
        shape: &Arc<Shape>,
        pk: &str,
        rk: &str,
        values: impl Iterator<Item = ValueRef<'v>>,
        body_bytes: usize,
    ) -> Entity {
        let mut bytes = Vec::with_capacity(pk.len() + rk.len() + body_bytes);
        bytes.extend_from_slice(pk.as_bytes());
        bytes.extend_from_slice(rk.as_bytes());
        let keys = bytes.len();
        shape.encode_body(values, &mut bytes);
        Entity::from_checked(Arc::clone(shape), pk.len(), keys, bytes)
    }

    /// Sorts the properties and returns the index of their shape, which is added to the cache if
    /// necessary.
    #[cold]
    fn learn(&mut self, properties: &mut [(&str, ValueRef<'_>)]) -> Result<usize> {
        sort_by(properties, |a, b| a.0.cmp(b.0));
        if let Some(twice) = properties.windows(2).find(|two| two[0].0 == two[1].0) {
            let error = Error::refused(Code::DuplicatePropertiesSpecified);
            return Err(error.about(|| quoted("property", twice[0].0)));
        }
        let types = || properties.iter().map(|(name, value)| (*name, value.edm_type()));
        let found = self.recent.find(|known| known.matches(types()));
        Ok(found.unwrap_or_else(|| self.recent.add(Arc::new(Shape::from_sorted(types())))))
    }
}

impl fmt::Debug for EntityEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntityEncoder").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
