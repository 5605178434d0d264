//! The registry of shapes, which stores each shape of a database once, under a number.
//!
//! Invariants
//! * append-only: a number refers to the same shape for the lifetime of the registry;
//! * registered shapes use at most `bytes_max` bytes; rows with a shape that no longer fits contain
//!   the shape themselves (self-describing rows);
//! * every registered shape has valid property names, and no more properties than an entity may.
//!
//! Locks: `numbers` is held while a shape is added. [`Shapes::get`] and look-ups of recent shapes
//! take no lock.

use std::collections::HashMap;
use std::sync::Arc;

use super::limits::PROPERTIES_MAX;
use super::shape::{Outline, Shape, ShapeHash};
use super::value::EdmType;
use crate::sync::{AtomicU64, Mutex, OnceLock, Ordering};

/// The number of a shape in the registry of its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ShapeId(pub(crate) u32);

/// The result of registering a shape.
#[derive(Clone, Debug)]
pub(crate) struct Interned {
    pub(crate) shape: Arc<Shape>,
    /// The shape's number; `None` if the registry is full or refuses the shape. Then each row of
    /// the shape must be self-describing.
    pub(crate) id: Option<ShapeId>,
}

/// The registry of shapes.
pub(crate) struct Shapes {
    bytes_max: usize,
    /// Segment `k` has space for `SEGMENT_BASE << k` shapes. A segment is never reallocated, so a
    /// shape never moves.
    segments: [Segment; SEGMENTS],
    /// Recent look-ups: each slot has the upper half of a hash, and the shape's number plus one; an
    /// unused slot is 0.
    recent: Box<[AtomicU64]>,
    numbers: Mutex<Registered>,
}

/// Looks up the numbers of shapes. In an entity group, most shapes equal the previous one, and then
/// need no look-up.
pub(crate) struct Numbers<'s, 'e> {
    pub(super) shapes: &'s Shapes,
    last: Option<(&'e Arc<Shape>, Option<ShapeId>)>,
}

/// The distinct shapes of the rows in a buffer, which may belong to any database.
#[derive(Clone, Debug, Default)]
pub(super) struct ShapeList {
    shapes: Vec<Arc<Shape>>,
    /// The index of the shape used last.
    last: usize,
}

type Segment = OnceLock<Box<[OnceLock<Arc<Shape>>]>>;

#[derive(Default)]
struct Registered {
    by_hash: HashMap<u64, Vec<ShapeId>>,
    len: u32,
    bytes: usize,
}

const SEGMENT_BASE: u32 = 64;
/// The number of segments. Together they have space for 2^27 shapes, more than any limit on memory
/// allows.
const SEGMENTS: usize = 21;
const RECENT: usize = if cfg!(loom) { 1 } else { 256 };
/// The maximum number of registered shapes with the same hash. Further shapes with that hash
/// indicate an attack and are not registered.
const COLLISIONS_MAX: usize = 8;
/// The maximum number of shapes that a trimmed [`ShapeList`] keeps.
const KEPT_MAX: usize = 16;
/// Memory of the registry's own structures per shape, in bytes.
const OVERHEAD_BYTES: usize = 96;

impl Shapes {
    /// Creates a registry with at most `bytes_max` bytes of shapes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            segments: [const { OnceLock::new() }; SEGMENTS],
            recent: (0..RECENT).map(|_| AtomicU64::new(0)).collect(),
            numbers: Mutex::new(Registered::default()),
        }
    }

    /// Returns the memory that the shapes use, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.numbers.lock().bytes
    }

    /// Returns the registered shape that equals `shape`. A new shape is registered first, if memory
    /// allows.
    pub(crate) fn intern(&self, shape: &Shape) -> Interned {
        self.find_or_add(shape.hash(), |other| **other == *shape, || Arc::new(shape.clone()))
    }

    /// Returns the number of a shared shape, which is registered first if it is new and memory
    /// allows.
    #[inline]
    pub(crate) fn number(&self, shape: &Arc<Shape>) -> Option<ShapeId> {
        let equal = |other: &Arc<Shape>| Arc::ptr_eq(other, shape) || other == shape;
        let recent = self.find_recent(shape.hash().value(), equal);
        recent.map(|(id, _)| id).or_else(|| self.intern_arc(shape).id)
    }

    /// As [`Self::intern`], for a shared shape, which is not copied.
    pub(crate) fn intern_arc(&self, shape: &Arc<Shape>) -> Interned {
        let equal = |other: &Arc<Shape>| Arc::ptr_eq(other, shape) || other == shape;
        self.find_or_add(shape.hash(), equal, || Arc::clone(shape))
    }

    /// Returns the shape of these names and types, and builds it only if it is new.
    pub(crate) fn intern_outline<T>(&self, outline: Outline<'_, T>) -> Interned
    where
        T: ExactSizeIterator<Item = (usize, EdmType)> + Clone,
    {
        let equal = |other: &Arc<Shape>| outline.fits(other);
        self.find_or_add(outline.hash(), equal, || Arc::new(outline.to_shape()))
    }

    /// Returns the shape with this number.
    #[inline]
    pub(crate) fn get(&self, id: ShapeId) -> Option<&Arc<Shape>> {
        let (segment, index) = place(id);
        self.segments.get(segment)?.get()?.get(index)?.get()
    }

    /// Returns the number of shapes.
    pub(crate) fn len(&self) -> usize {
        self.numbers.lock().len as usize
    }

    fn find_or_add(
        &self,
        hash: ShapeHash,
        equal: impl Fn(&Arc<Shape>) -> bool,
        build: impl FnOnce() -> Arc<Shape>,
    ) -> Interned {
        let hash = hash.value();
        if let Some((id, shape)) = self.find_recent(hash, &equal) {
            return Interned { shape: Arc::clone(shape), id: Some(id) };
        }
        let mut numbers = self.numbers.lock();
        let same_hash = numbers.by_hash.get(&hash).map_or(&[][..], |ids| ids);
        let found = same_hash.iter().find_map(|&id| Some((id, self.get(id).filter(|s| equal(s))?)));
        if let Some((id, shape)) = found {
            self.remember(hash, id);
            return Interned { shape: Arc::clone(shape), id: Some(id) };
        }
        let crowded = same_hash.len() >= COLLISIONS_MAX;
        let shape = build();
        // The names and the number of properties of a registered shape are never checked again, so
        // a shape that no valid entity can have is not registered.
        let valid = shape.is_well_named() && shape.len() <= PROPERTIES_MAX;
        let bytes = shape.memory_bytes() + OVERHEAD_BYTES;
        if crowded || !valid || numbers.bytes.saturating_add(bytes) > self.bytes_max {
            return Interned { shape, id: None };
        }
        let id = ShapeId(numbers.len);
        if !self.store(id, &shape) {
            return Interned { shape, id: None };
        }
        numbers.len += 1;
        numbers.bytes += bytes;
        numbers.by_hash.entry(hash).or_default().push(id);
        self.remember(hash, id);
        Interned { shape, id: Some(id) }
    }

    #[inline]
    fn find_recent(
        &self,
        hash: u64,
        equal: impl Fn(&Arc<Shape>) -> bool,
    ) -> Option<(ShapeId, &Arc<Shape>)> {
        // An outdated slot is harmless, because the shape itself is compared.
        let slot = self.recent[hash as usize % RECENT].load(Ordering::Acquire);
        if slot >> 32 != hash >> 32 {
            return None;
        }
        let id = ShapeId((slot as u32).checked_sub(1)?);
        Some((id, self.get(id).filter(|shape| equal(shape))?))
    }

    fn remember(&self, hash: u64, id: ShapeId) {
        let slot = (hash >> 32 << 32) | u64::from(id.0 + 1);
        self.recent[hash as usize % RECENT].store(slot, Ordering::Release);
    }

    /// Stores a shape. Returns false if its segment does not exist.
    fn store(&self, id: ShapeId, shape: &Arc<Shape>) -> bool {
        let (segment, index) = place(id);
        let Some(slots) = self.segments.get(segment) else {
            return false;
        };
        let len = (SEGMENT_BASE as usize) << segment;
        let slots = slots.get_or_init(|| (0..len).map(|_| OnceLock::new()).collect());
        slots[index].set(Arc::clone(shape)).is_ok()
    }
}

impl<'s, 'e> Numbers<'s, 'e> {
    pub(crate) fn new(shapes: &'s Shapes) -> Self {
        Self { shapes, last: None }
    }

    /// As [`Shapes::number`].
    #[inline]
    pub(super) fn of(&mut self, shape: &'e Arc<Shape>) -> Option<ShapeId> {
        match self.last {
            Some((last, number)) if Arc::ptr_eq(last, shape) => number,
            _ => {
                let number = self.shapes.number(shape);
                self.last = Some((shape, number));
                number
            }
        }
    }
}

impl ShapeList {
    /// Returns the index of the shape for which `is` returns true. If there is none, adds the shape
    /// that `make` returns.
    #[inline]
    pub(super) fn place(
        &mut self,
        is: impl Fn(&Arc<Shape>) -> bool,
        make: impl FnOnce() -> Arc<Shape>,
    ) -> usize {
        if !self.shapes.get(self.last).is_some_and(&is) {
            self.last = self.shapes.iter().position(is).unwrap_or_else(|| {
                self.shapes.push(make());
                self.shapes.len() - 1
            });
        }
        self.last
    }

    /// Returns the shape with this index.
    #[inline]
    pub(super) fn get(&self, index: usize) -> &Arc<Shape> {
        &self.shapes[index]
    }

    /// Forgets the shapes if there are many. Requires: their indexes are no longer used.
    pub(super) fn trim(&mut self) {
        if self.shapes.len() > KEPT_MAX {
            *self = Self::default();
        }
    }
}

impl std::fmt::Debug for Shapes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shapes({} of at most {} bytes)", self.len(), self.bytes_max)
    }
}

/// Returns segment and index of a shape. Segment `k` starts at number `SEGMENT_BASE * (2^k - 1)`.
#[inline]
fn place(id: ShapeId) -> (usize, usize) {
    let segment = (id.0 / SEGMENT_BASE + 1).ilog2();
    let start = SEGMENT_BASE * ((1 << segment) - 1);
    (segment as usize, (id.0 - start) as usize)
}

#[cfg(test)]
mod tests;
