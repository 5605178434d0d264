//! Converts a nested field to JSON text and back, for `#[serde(with = "rowstone::json")]`.

use std::borrow::Cow;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _};
use serde::ser::{Error as _, Serialize, Serializer};

/// Serializes `value` as a text of JSON, which becomes an Edm.String of at most 32,768 characters.
///
/// # Errors
/// The serializer's error, also if JSON cannot represent the value.
pub fn serialize<T: Serialize + ?Sized, S: Serializer>(
    value: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let text = serde_json::to_string(value).map_err(S::Error::custom)?;
    serializer.serialize_str(&text)
}

/// Deserializes a value from a text of JSON.
///
/// # Errors
/// The deserializer's error, also if the text is not JSON of a `T`.
pub fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let text = Cow::<str>::deserialize(deserializer)?;
    serde_json::from_str(&text).map_err(D::Error::custom)
}
