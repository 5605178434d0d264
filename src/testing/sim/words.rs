//! Words of a script: names, options, lists, and entities, as steps and rows print them.

use std::fmt;

use super::value::Val;

/// A key or name as a script writes it: quoted where it would not read back as one word.
pub(super) fn word(text: &str) -> String {
    let plain =
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if plain { text.to_owned() } else { format!("'{}'", text.replace('\'', "''")) }
}

/// ` name=value`, or nothing.
pub(super) fn option(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    value: Option<impl fmt::Display>,
) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, " {name}={value}"))
}

/// The names of a projection in one word.
pub(super) fn words(names: &Option<Vec<String>>) -> Option<String> {
    names.as_ref().map(|names| names.join(","))
}

/// `pk rk Name=value …`
pub(super) fn write_entity(
    f: &mut fmt::Formatter<'_>,
    (pk, rk): (&str, &str),
    properties: &[(String, Val)],
) -> fmt::Result {
    write!(f, "{} {}", word(pk), word(rk))?;
    properties.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
}
