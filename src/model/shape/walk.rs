//! Iterates over all values of a body. Reads the shape and the end offsets side by side from the
//! start, so that no value has to be looked up.
//!
//! Invariants
//! * every value equals the result of [`Shape::value`];
//! * after an error there are no more values.

use super::place::fixed_value;
use super::{Property, Shape, error, variable_area};
use crate::codec::{DecodeError, utf8};
use crate::model::value::{EdmType, ValueRef};

/// An iterator over names and values of a body.
#[derive(Clone, Debug)]
pub(crate) struct Walk<'s, 'b> {
    shape: &'s Shape,
    properties: std::slice::Iter<'s, Property>,
    body: &'b [u8],
    /// The end offsets of the remaining values.
    offsets: &'b [u8],
    width: usize,
    /// The bytes of all values of variable width. The next of these values begins at `start`.
    data: &'b [u8],
    start: usize,
}

impl Shape {
    /// Iterates over names and values of `body`, in order of names.
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
        // If the end offsets are damaged, the first value of variable width reports it.
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
    /// Returns the next name and its value; `None` for a damaged value and all values after it.
    // Inlined: keeping the walk in registers halves the cost of a value.
    #[inline(always)]
    pub(crate) fn step(&mut self) -> Option<(&'s str, Option<ValueRef<'b>>)> {
        let property = self.properties.next()?;
        // Slicing the name has no side effect, so the compiler removes it if the caller ignores the
        // name.
        let place = property.name_start as usize..property.name_end as usize;
        Some((self.shape.names.get(place).unwrap_or_default(), self.value(property)))
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

    /// Returns the bytes of the next value of variable width.
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

    /// Returns the error for the value at which the last step failed.
    // `problem_of` gets only parts of the walk. A function that got the walk itself would force the
    // compiler to keep the walk in memory instead of registers, so every step of every caller would
    // write to memory.
    #[inline(always)]
    pub(crate) fn problem(&mut self) -> DecodeError {
        let left = std::mem::take(&mut self.properties).len();
        problem_of(self.shape, self.body, left)
    }
}

/// Returns the error for the damaged value of `body` that is followed by `left` more values.
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
