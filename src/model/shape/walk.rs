//! All values of a body in order: the shape and the end offsets are walked in step, nothing is searched.
//!
//! Invariants
//! * every value is what [`Shape::value`] says of it;
//! * after an error nothing follows.

use super::place::fixed_value;
use super::{Property, Shape, error, variable_area};
use crate::codec::{DecodeError, utf8};
use crate::model::value::{EdmType, ValueRef};

/// Names and values of a body.
#[derive(Clone, Debug)]
pub(crate) struct Walk<'s, 'b> {
    shape: &'s Shape,
    properties: std::slice::Iter<'s, Property>,
    body: &'b [u8],
    /// The end offsets of what is left.
    offsets: &'b [u8],
    width: usize,
    /// All bytes of variable width, and where the next value begins in them.
    data: &'b [u8],
    start: usize,
}

impl Shape {
    /// Names and values of `body`, by name.
    #[inline]
    pub(crate) fn walk<'s, 'b>(&'s self, body: &'b [u8]) -> Walk<'s, 'b> {
        let mut walk = Walk {
            shape: self,
            properties: self.properties.iter(),
            body,
            offsets: &[],
            width: 1,
            data: &[],
            start: 0,
        };
        // What is wrong with the area is said by the first value in it.
        if self.variables > 0
            && let Ok((width, data_at)) = variable_area(body, self.fixed_bytes, self.variables)
        {
            walk.offsets = body.get(self.fixed_bytes + 1..data_at).unwrap_or_default();
            walk.data = body.get(data_at..).unwrap_or_default();
            walk.width = width;
        }
        walk
    }
}

impl<'s, 'b> Walk<'s, 'b> {
    /// The next name and its value; `None` for a value that is damaged, and for all that follow.
    // Where a caller's loop keeps the walk in registers, a value costs half.
    #[inline(always)]
    pub(crate) fn step(&mut self) -> Option<(&'s str, Option<ValueRef<'b>>)> {
        let property = self.properties.next()?;
        // No way out here, and nothing that the next step rests on: where the caller looks at no name, none is cut out.
        let place = property.name_start as usize..property.name_end as usize;
        let name = self.shape.names.get(place).unwrap_or_default();
        Some((name, self.value(property)))
    }

    #[inline(always)]
    fn value(&mut self, property: &Property) -> Option<ValueRef<'b>> {
        let at = property.place as usize;
        Some(match property.edm {
            EdmType::String => ValueRef::String(utf8(self.variable()?).ok()?),
            EdmType::Binary => ValueRef::Binary(self.variable()?),
            edm => return fixed_value(edm, self.body, at),
        })
    }

    /// The bytes of the next value of variable width.
    #[inline]
    fn variable(&mut self) -> Option<&'b [u8]> {
        let (end, offsets) = match self.width {
            1 => self.offsets.split_first().map(|(end, rest)| (usize::from(*end), rest))?,
            2 => {
                let (end, rest) = self.offsets.split_first_chunk()?;
                (usize::from(u16::from_le_bytes(*end)), rest)
            }
            _ => {
                let (end, rest) = self.offsets.split_first_chunk()?;
                (u32::from_le_bytes(*end) as usize, rest)
            }
        };
        let bytes = self.data.get(self.start..end)?;
        (self.start, self.offsets) = (end, offsets);
        Some(bytes)
    }

    /// What is wrong with the value that the last step found damaged.
    // Only parts of the walk go to a function of their own: one that took the walk would keep it in memory, and every step
    // of every caller would write there what it changed.
    #[inline(always)]
    pub(crate) fn problem(&mut self) -> DecodeError {
        let left = std::mem::take(&mut self.properties).len();
        problem_of(self.shape, self.body, left)
    }
}

/// What is wrong with the value of `body` that so many others follow.
#[cold]
#[inline(never)]
fn problem_of(shape: &Shape, body: &[u8], left: usize) -> DecodeError {
    let value = shape.value(body, shape.len() - left - 1);
    value.err().unwrap_or_else(|| error(0, "the values before it are damaged"))
}

impl<'s, 'b> Iterator for Walk<'s, 'b> {
    type Item = Result<(&'s str, ValueRef<'b>), DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self.step()? {
            (name, Some(value)) => Some(Ok((name, value))),
            (_, None) => Some(Err(self.problem())),
        }
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.properties.len()))
    }
}
