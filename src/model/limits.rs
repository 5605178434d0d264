//! The limits of the data model, and the errors for violations: SEMANTICS.md §limits.
//!
//! Invariant: every error has the same code and text as in Azure Table storage.

use super::value::{EdmType, ValueRef, utf16_len};
use crate::error::{Code, Error, Result, quoted};
use crate::named::named;

/// Maximum size of an entity, by the formula of `entity_size`.
pub(crate) const ENTITY_SIZE_MAX: usize = 1 << 20;
/// Maximum number of properties in addition to PartitionKey, RowKey and Timestamp.
pub(crate) const PROPERTIES_MAX: usize = 252;
/// Maximum number of UTF-16 units of a property's name.
pub(crate) const NAME_UNITS_MAX: usize = 255;
/// Maximum number of UTF-16 units of a PartitionKey or RowKey.
pub(crate) const KEY_UNITS_MAX: usize = 1024;
/// Maximum number of operations of an entity group.
pub(crate) const GROUP_OPERATIONS_MAX: usize = 100;
/// Maximum sum of the sizes of the entities of an entity group.
pub(crate) const GROUP_SIZE_MAX: usize = 4 << 20;
/// Maximum number of UTF-16 units of a text.
pub(crate) const STRING_UNITS_MAX: usize = 32 * 1024;
/// Maximum number of bytes of a binary.
pub(crate) const BINARY_BYTES_MAX: usize = 64 * 1024;

/// The properties that every entity has and callers cannot set.
pub(crate) const SYSTEM_PROPERTIES: [&str; 3] = ["PartitionKey", "RowKey", "Timestamp"];

named! {
    /// One of the two parts of a key.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum KeyPart {
        PartitionKey "PartitionKey",
        RowKey "RowKey",
    }

    pub(crate) fn name;
}

/// Checks the name of a table to be created.
///
/// Case is preserved but not significant, so look tables up by the lower-case name.
pub(crate) fn check_table_name(name: &str) -> Result<()> {
    check_new_table(name).map_err(|error| error.about(|| quoted("table", name)))
}

fn check_new_table(name: &str) -> Result<()> {
    let starts_well = name.bytes().next().is_none_or(|byte| byte.is_ascii_alphabetic());
    if !starts_well || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(Error::refused(Code::InvalidResourceName));
    }
    if !(3..=63).contains(&name.len()) {
        let text = "The specified resource name length is not within the permissible limits.";
        return Err(Error::refused_with(Code::OutOfRangeInput, text));
    }
    if name.eq_ignore_ascii_case("Tables") {
        return Err(Error::refused(Code::InvalidInput));
    }
    Ok(())
}

/// Checks a PartitionKey or RowKey.
#[inline]
pub(crate) fn check_key(part: KeyPart, key: &str) -> Result<()> {
    let found = key.bytes().fold(0, |found, byte| found | KEY_BYTES[byte as usize]);
    if found != 0 {
        check_odd_key(part, key)?;
    }
    if key.len() > KEY_UNITS_MAX && utf16_len(key) > KEY_UNITS_MAX {
        let error = Error::refused(Code::PropertyValueTooLarge);
        return Err(error.about(|| part.name().to_owned()));
    }
    Ok(())
}

#[cold]
fn check_odd_key(part: KeyPart, key: &str) -> Result<()> {
    match key.chars().any(is_forbidden_in_keys) {
        true => Err(out_of_range(part.name(), key)),
        false => Ok(()),
    }
}

/// Returns the error for a value that its property does not allow.
pub(crate) fn out_of_range(name: &str, value: &str) -> Error {
    let text = format!("The '{name}' parameter of value '{value}' is out of range.");
    Error::refused_with(Code::OutOfRangeInput, text)
}

/// Checks the name of a property.
pub(crate) fn check_property_name(name: &str) -> Result<()> {
    check_name(name).map_err(|error| error.about(|| quoted("property", name)))
}

fn check_name(name: &str) -> Result<()> {
    if name.len() > NAME_UNITS_MAX && utf16_len(name) > NAME_UNITS_MAX {
        return Err(Error::refused(Code::PropertyNameTooLong));
    }
    let mut chars = name.chars();
    let well_formed = chars.next().is_some_and(starts_name) && chars.all(continues_name);
    if !well_formed || SYSTEM_PROPERTIES.contains(&name) {
        return Err(Error::refused(Code::PropertyNameInvalid));
    }
    Ok(())
}

/// Checks a single value.
#[inline]
pub(crate) fn check_value(value: ValueRef<'_>) -> Result<()> {
    let too_large = match value {
        ValueRef::String(text) => {
            text.len() > STRING_UNITS_MAX && utf16_len(text) > STRING_UNITS_MAX
        }
        ValueRef::Binary(bytes) => bytes.len() > BINARY_BYTES_MAX,
        _ => false,
    };
    if too_large { Err(Error::refused(Code::PropertyValueTooLarge)) } else { Ok(()) }
}

/// Returns the number of bytes that a text or a binary adds to the size of an entity.
pub(crate) fn variable_size(value: ValueRef<'_>) -> usize {
    match value {
        ValueRef::String(text) => 2 * utf16_len(text),
        ValueRef::Binary(bytes) => bytes.len(),
        _ => 0,
    }
}

/// Returns the number of bytes that a property adds to the size of an entity, not counting the
/// bytes of a text or a binary.
pub(crate) fn property_size_base(name_units: usize, edm: EdmType) -> usize {
    8 + 2 * name_units + edm.fixed_width().unwrap_or(4)
}

/// For each byte: 1 if it is not ASCII or if [`is_forbidden_in_keys`] forbids the character, else
/// 0.
const KEY_BYTES: [u8; 256] = {
    let mut table = [1; 256];
    let mut byte = 0u8;
    while byte < 0x80 {
        table[byte as usize] = is_forbidden_in_keys(byte as char) as u8;
        byte += 1;
    }
    table
};

const fn is_forbidden_in_keys(c: char) -> bool {
    matches!(c, '/' | '\\' | '#' | '?' | '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}')
}

/// Whether the letter may begin both a C# identifier and an XML name.
pub(crate) fn starts_name(c: char) -> bool {
    c == '_' || c.is_ascii_alphabetic() || (!c.is_ascii() && c.is_alphabetic() && is_xml_letter(c))
}

pub(crate) fn continues_name(c: char) -> bool {
    // Unicode superscripts and fractions are numeric, but are not digits.
    let digit = c.is_numeric() && is_xml_letter(c) && !matches!(c, '\u{2070}'..='\u{215f}');
    let joins = matches!(c, '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}');
    starts_name(c) || c.is_ascii_digit() || digit || joins
}

/// Whether the character is an XML NameStartChar beyond ASCII.
fn is_xml_letter(c: char) -> bool {
    matches!(c,
        '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}' | '\u{370}'..='\u{37d}'
        | '\u{37f}'..='\u{1fff}' | '\u{200c}'..='\u{200d}' | '\u{2070}'..='\u{218f}'
        | '\u{2c00}'..='\u{2fef}' | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}'
        | '\u{fdf0}'..='\u{fffd}' | '\u{10000}'..='\u{effff}')
}

#[cfg(test)]
mod tests;
