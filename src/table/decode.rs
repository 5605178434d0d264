//! Decodes the same properties of many rows.
//!
//! Invariant: for each name, the result equals the result of [`RowView::value`]. Values are not
//! cached, only their positions.

use std::fmt;
use std::sync::Arc;

use super::RowView;
use crate::error::{Error, Result};
use crate::model::{Fields, FromValue, Place, Recent, Shape, no_property, other_type};

/// Decodes the same properties of many rows: the counterpart of
/// [`EntityEncoder`](crate::EntityEncoder).
///
/// Rows of one shape (the same property names and types) have their values at the same positions. A
/// decoder looks up the names once per shape and caches the positions for the last sixteen shapes.
/// Each further row then costs only the decoding of the requested values. Use one decoder per
/// thread, for as many rows as possible. A decoder has 1 to 16 properties and returns a tuple, even
/// for one property.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// # use std::ops::ControlFlow;
/// # use rowstone::{Db, Entity, KeyRange, RowDecoder};
/// let parts = Db::open_in_memory()?.create_table("parts")?;
/// parts.insert(Entity::new("bolts", "m4x20").with("Price", 0.12).with("Stock", 1_200))?;
/// parts.insert(Entity::new("bolts", "m4x25").with("Price", 0.25).with("Note", "old"))?;
/// let mut decoder = RowDecoder::new(["Price", "Stock", "Note"]);
/// let mut worth = 0.0;
/// parts.scan(KeyRange::partition("bolts")).for_each_row(|row| {
///     let (price, stock, _): (f64, Option<i32>, Option<&str>) = decoder.decode(row)?;
///     worth += price * f64::from(stock.unwrap_or(0));
///     Ok(ControlFlow::Continue(()))
/// })?;
/// assert_eq!(worth, 144.0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RowDecoder<const N: usize> {
    names: [Box<str>; N],
    recent: Recent<Known<N>>,
}

/// The positions of the properties in rows of one shape.
#[derive(Clone)]
struct Known<const N: usize> {
    shape: Arc<Shape>,
    places: [Option<Place>; N],
}

/// The types that `N` properties can be decoded to: a tuple of up to sixteen [`FromValue`] types.
pub trait FromValues<'r, const N: usize>: Sized {
    /// Returns the values of a row. `None` if any is absent, damaged, or not exactly of the
    /// expected type.
    #[doc(hidden)]
    fn from_fields(values: &RowValues<'_, 'r, N>) -> Option<Self>;

    /// Returns the values of a row, converted if necessary, or the first value that does not fit.
    #[doc(hidden)]
    fn from_values(values: &RowValues<'_, 'r, N>) -> std::result::Result<Self, Misfit>;
}

/// The values of a row, with their positions from the cache.
#[doc(hidden)]
pub struct RowValues<'k, 'r, const N: usize> {
    places: &'k [Option<Place>; N],
    fields: Fields<'r>,
}

/// The first value that is absent, damaged, or of another type than expected.
#[doc(hidden)]
pub struct Misfit {
    index: usize,
    expected: &'static str,
}

impl<const N: usize> RowDecoder<N> {
    /// Creates a decoder of the properties with these names.
    pub fn new(names: [&str; N]) -> Self {
        Self { names: names.map(Box::from), recent: Recent::default() }
    }

    /// Returns the values of the properties in `row`, in the order of the names. Use `Option` for
    /// properties that some rows lack.
    ///
    /// The time is linear in the number of names. A row with a shape that is not cached needs a
    /// search for each name in addition.
    ///
    /// # Errors
    /// For the first property that does not fit: `NotFound` if the row lacks it, `InvalidInput` if
    /// it is of another type, `Corruption` if it is damaged.
    #[inline]
    pub fn decode<'r, T: FromValues<'r, N>>(&mut self, row: &'r RowView<'_>) -> Result<T> {
        let (shape, body) = row.stored();
        let known = self.recent.find(|known| Arc::ptr_eq(&known.shape, shape));
        let known = known.unwrap_or_else(|| self.cache_shape(shape));
        let values = RowValues { places: &self.recent[known].places, fields: shape.fields(body) };
        // The first attempt is fast and reports only that some value does not fit. Then the row is
        // decoded again, to convert the value or to find out which one it is.
        match T::from_fields(&values) {
            Some(all) => Ok(all),
            None => self.decode_rare(known, row),
        }
    }

    /// Does the same as [`decode`](Self::decode), for a row with a value that is absent, damaged or
    /// not exactly of the expected type.
    #[cold]
    #[inline(never)]
    fn decode_rare<'r, T: FromValues<'r, N>>(
        &self,
        known: usize,
        row: &'r RowView<'_>,
    ) -> Result<T> {
        let (shape, body) = row.stored();
        let values = RowValues { places: &self.recent[known].places, fields: shape.fields(body) };
        T::from_values(&values).map_err(|misfit| self.problem(row, misfit))
    }

    /// Caches the positions for a shape and returns their index. Does not cache equal shapes twice:
    /// a row that contains its shape itself has its own copy of it.
    #[cold]
    fn cache_shape(&mut self, shape: &Arc<Shape>) -> usize {
        if let Some(known) = self.recent.find(|known| known.shape == *shape) {
            return known;
        }
        let places = std::array::from_fn(|i| shape.place_of(&self.names[i]));
        self.recent.add(Known { shape: Arc::clone(shape), places })
    }

    #[cold]
    fn problem(&self, row: &RowView<'_>, Misfit { index, expected }: Misfit) -> Error {
        let name = &*self.names[index];
        match row.value(name) {
            Err(error) => error,
            Ok(None) => no_property(name),
            Ok(Some(value)) => other_type(name, value.edm_type(), expected),
        }
    }
}

impl<'r, const N: usize> RowValues<'_, 'r, N> {
    #[inline(always)]
    fn field<T: FromValue<'r>>(&self, index: usize) -> Option<T> {
        match self.places[index] {
            Some(place) => T::from_field(self.fields.field(place)),
            None => T::from_absent(),
        }
    }

    fn value<T: FromValue<'r>>(&self, index: usize) -> std::result::Result<T, Misfit> {
        let value = match self.places[index] {
            Some(place) => self.fields.field(place).value().and_then(T::from_value),
            None => T::from_absent(),
        };
        value.ok_or(Misfit { index, expected: T::EXPECTED })
    }
}

macro_rules! tuples {
    ($($count:literal: $($part:ident $index:tt)+;)*) => {
        $(impl<'r, $($part: FromValue<'r>),+> FromValues<'r, $count> for ($($part,)+) {
            #[inline(always)]
            fn from_fields(values: &RowValues<'_, 'r, $count>) -> Option<Self> {
                Some(($(values.field::<$part>($index)?,)+))
            }

            fn from_values(
                values: &RowValues<'_, 'r, $count>,
            ) -> std::result::Result<Self, Misfit> {
                Ok(($(values.value::<$part>($index)?,)+))
            }
        })*
    };
}

tuples! {
    1: A 0;
    2: A 0 B 1;
    3: A 0 B 1 C 2;
    4: A 0 B 1 C 2 D 3;
    5: A 0 B 1 C 2 D 3 E 4;
    6: A 0 B 1 C 2 D 3 E 4 F 5;
    7: A 0 B 1 C 2 D 3 E 4 F 5 G 6;
    8: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7;
    9: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8;
    10: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9;
    11: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10;
    12: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11;
    13: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11 M 12;
    14: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11 M 12 N 13;
    15: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11 M 12 N 13 O 14;
    16: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11 M 12 N 13 O 14 P 15;
}

impl<const N: usize> fmt::Debug for RowDecoder<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RowDecoder").field(&self.names).finish()
    }
}

#[cfg(test)]
mod tests;
