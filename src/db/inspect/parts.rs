//! Defines the parts of an inspected file. A part has a name, an offset, and fields with numbers
//! and texts.

use std::fmt;

use crate::codec::DecodeError;
use crate::error::{Error, Result};
use crate::format::field::FormatError;

/// Maximum number of bytes of a value that are shown.
const SHOWN_BYTES: usize = 256;
pub(super) const DAMAGE: &str = "damage";

/// The details to show in addition to the outline of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InspectOptions {
    /// Shows only this block of rows of an SST, or this record of a log, counted from 0, with all
    /// its contents.
    pub block: Option<u64>,
    /// Shows only this row of the block, counted from 0: its bytes and their meaning.
    pub row: Option<u64>,
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InspectedPart {
    /// The part's kind: `header`, `section`, `block`, `record`, `row`, `bytes`, `damage`, ….
    pub what: &'static str,
    /// The part's offset in the file, in bytes.
    pub at: u64,
    /// The part's contents, by name.
    pub fields: Vec<(&'static str, InspectedValue)>,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InspectedValue {
    /// A number.
    Number(u64),
    /// Anything else, as text.
    Text(String),
}

/// The reason why the rest of a part is not shown.
pub(super) enum Stop {
    /// The part is damaged; the damage is shown instead.
    Damage(InspectedPart),
    /// The inspection failed.
    Failed(Error),
}

impl From<InspectedPart> for Stop {
    fn from(damage: InspectedPart) -> Self {
        Stop::Damage(damage)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Failed(error)
    }
}

/// If damage has stopped the display of a part, shows the damage. Returns any other error.
pub(super) fn show_damage(shown: Result<(), Stop>, sink: &mut Sink<'_>) -> Result<()> {
    match shown {
        Ok(()) => Ok(()),
        Err(Stop::Damage(damage)) => sink(damage),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// A callback that receives the parts of a file, in the order of their offsets.
pub(super) type Sink<'s> = dyn FnMut(InspectedPart) -> Result<()> + 's;

pub(super) fn part<const N: usize>(
    what: &'static str,
    at: u64,
    fields: [(&'static str, InspectedValue); N],
) -> InspectedPart {
    InspectedPart { what, at, fields: fields.into() }
}

/// Returns a part that shows bytes in hexadecimal, and their meaning.
pub(super) fn hex_part(at: u64, bytes: &[u8], means: impl fmt::Display) -> InspectedPart {
    part("bytes", at, [("hex", hex(bytes)), ("means", text(means))])
}

/// Returns a part that describes the damage that a decoder found. `base` is the offset of the
/// decoder's buffer in the file.
pub(super) fn damage(base: u64, error: impl Into<FormatError>) -> InspectedPart {
    match error.into() {
        FormatError::Damaged(DecodeError { structure, at, problem }) => {
            let fields = [("structure", text(structure)), ("problem", text(problem))];
            part(DAMAGE, base + at as u64, fields)
        }
        FormatError::Unsupported(what) => {
            part("unsupported", base, [("problem", text(format!("needs {what}")))])
        }
    }
}

/// Returns the offset of `slice` within `whole`, computed from their addresses. `slice` must be a
/// part of `whole`, or empty; if it is empty and lies outside of `whole`, the result is 0.
pub(super) fn place_in(whole: &[u8], slice: &[u8]) -> u64 {
    let apart = (slice.as_ptr() as usize).checked_sub(whole.as_ptr() as usize);
    apart.filter(|apart| *apart <= whole.len()).map_or(0, |apart| apart as u64)
}

pub(super) fn text(value: impl fmt::Display) -> InspectedValue {
    InspectedValue::Text(value.to_string())
}

pub(super) fn number(value: impl TryInto<u64>) -> InspectedValue {
    InspectedValue::Number(value.try_into().unwrap_or(u64::MAX))
}

pub(super) fn hex_id(id: u64) -> InspectedValue {
    text(format!("{id:016x}"))
}

/// Formats bytes as hexadecimal digits, at most [`SHOWN_BYTES`] bytes.
pub(super) fn hex(bytes: &[u8]) -> InspectedValue {
    let mut digits: String =
        bytes.iter().take(SHOWN_BYTES).map(|byte| format!("{byte:02x}")).collect();
    if bytes.len() > SHOWN_BYTES {
        digits.push('…');
    }
    InspectedValue::Text(digits)
}

/// Prints one line: offset, kind and fields.
impl fmt::Display for InspectedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>10}  {:<8}", self.at, self.what)?;
        self.fields.iter().try_for_each(|(name, value)| write!(f, "  {name} {value}"))
    }
}

impl fmt::Display for InspectedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InspectedValue::Number(value) => value.fmt(f),
            InspectedValue::Text(value) => f.write_str(value),
        }
    }
}
