//! Formats keys, names and entities for the steps of a script and for printed rows.

use super::value::Val;

/// Returns a key or name for a script, in quotes unless it reads back as one word.
pub(super) fn word(text: &str) -> String {
    let plain =
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if plain { text.to_owned() } else { format!("'{}'", text.replace('\'', "''")) }
}

/// Returns an entity as `pk rk Name=value …`.
pub(super) fn entity_text<'v>(
    (pk, rk): (&str, &str),
    properties: impl IntoIterator<Item = (&'v String, &'v Val)>,
) -> String {
    let mut text = format!("{} {}", word(pk), word(rk));
    properties.into_iter().for_each(|(name, value)| text += &format!(" {name}={value}"));
    text
}
