//! Reads single properties of many bodies with the same shape. The position of a property is looked
//! up once in the shape; reading a value from a body then needs no shape.
//!
//! Invariant: the result for every value is that of [`Shape::value`], or `None` if the value is
//! damaged.

use super::{Fields, Shape, bytes_at};
use crate::codec::utf8;
use crate::model::datetime::DateTime;
use crate::model::guid::Guid;
use crate::model::value::{EdmType, ValueRef};

/// The type of a property, and the position of its value in the bodies of one shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    edm: EdmType,
    /// An offset, or a rank among the values of variable width.
    at: u32,
}

impl Shape {
    /// Returns the position of the property with this name, if there is one.
    pub(crate) fn place_of(&self, name: &str) -> Option<Place> {
        let property = self.properties[self.find(name)?];
        Some(Place { edm: property.edm, at: property.place })
    }
}

/// One value of a body, given by its position and the parts of the body.
#[derive(Clone, Copy)]
pub struct Field<'f, 'b> {
    place: Place,
    fields: &'f Fields<'b>,
}

impl<'b> Fields<'b> {
    /// Returns the value at `place`, which must be a position in the shape of this body.
    #[inline(always)]
    pub(crate) fn field(&self, place: Place) -> Field<'_, 'b> {
        Field { place, fields: self }
    }
}

impl<'b> Field<'_, 'b> {
    /// Returns the value; `None` if it is damaged.
    #[inline(always)]
    pub(crate) fn value(&self) -> Option<ValueRef<'b>> {
        let at = self.place.at as usize;
        Some(match self.place.edm {
            EdmType::String => ValueRef::String(utf8(self.fields.variable(at)?).ok()?),
            EdmType::Binary => ValueRef::Binary(self.fields.variable(at)?),
            edm => return fixed_value(edm, self.fields.body, at),
        })
    }

    /// Returns the text, if the value is an undamaged text.
    #[inline(always)]
    pub(crate) fn text(&self) -> Option<&'b str> {
        utf8(self.variable(EdmType::String)?).ok()
    }

    /// Returns the bytes if the value is a Binary and undamaged.
    #[inline(always)]
    pub(crate) fn binary(&self) -> Option<&'b [u8]> {
        self.variable(EdmType::Binary)
    }

    /// Returns the `N` bytes of the value if its type is `edm`; `None` for another type.
    #[inline(always)]
    pub(crate) fn fixed<const N: usize>(&self, edm: EdmType) -> Option<[u8; N]> {
        if self.place.edm != edm {
            return None;
        }
        self.fields.fixed(self.place.at as usize)
    }

    #[inline(always)]
    fn variable(&self, edm: EdmType) -> Option<&'b [u8]> {
        if self.place.edm != edm {
            return None;
        }
        self.fields.variable(self.place.at as usize)
    }
}

/// Returns the value of fixed width at offset `at` of a body. Returns `None` if the value is
/// damaged, or if the type has no fixed width.
#[inline(always)]
pub(super) fn fixed_value(edm: EdmType, body: &[u8], at: usize) -> Option<ValueRef<'static>> {
    Some(match edm {
        EdmType::Boolean => match bytes_at(body, at)? {
            [0] => ValueRef::Boolean(false),
            [1] => ValueRef::Boolean(true),
            _ => return None,
        },
        EdmType::Int32 => ValueRef::Int32(i32::from_le_bytes(bytes_at(body, at)?)),
        EdmType::Int64 => ValueRef::Int64(i64::from_le_bytes(bytes_at(body, at)?)),
        EdmType::Double => ValueRef::Double(f64::from_le_bytes(bytes_at(body, at)?)),
        EdmType::DateTime => {
            ValueRef::DateTime(DateTime::from_ticks(u64::from_le_bytes(bytes_at(body, at)?))?)
        }
        EdmType::Guid => ValueRef::Guid(Guid::from_bytes(bytes_at(body, at)?)),
        EdmType::String | EdmType::Binary => return None,
    })
}
