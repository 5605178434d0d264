//! Converts between application structs and entities, with the feature `serde`. Each field of a
//! struct is a property; a field that is `None` is an absent property. Fields of type `Guid`,
//! `DateTime` and `Binary` become properties of these EDM types (see `types`). In other formats,
//! such as JSON, `Guid` and `DateTime` are texts, and `Binary` is bytes.
//!
//! Invariant: an error names the field that caused it.

mod de;
mod problem;
mod ser;
mod types;

use serde::de::Deserialize;
use serde::ser::Serialize;

use self::problem::Problem;
use super::entity::Entity;
use crate::error::Result;

impl Entity {
    /// Creates an entity with the fields of `value` as properties.
    ///
    /// Fields named PartitionKey, RowKey or Timestamp are omitted; the arguments are the keys.
    ///
    /// | Rust | EDM |
    /// | --- | --- |
    /// | `bool` | Boolean |
    /// | `i8` `i16` `i32` `u8` `u16` | Int32 |
    /// | `i64` `u32`, `u64` up to `i64::MAX` | Int64 |
    /// | `f32` `f64` | Double |
    /// | `String` `char`, an enum's variant without data | String |
    /// | `Binary`, `Vec<u8>` | Binary |
    /// | `DateTime`, `Guid` | DateTime, Guid |
    /// | any other, by `#[serde(with = "rowstone::json")]` | String |
    ///
    /// There are no nested values: a sequence of anything but `u8`, even an empty one, a map or a
    /// struct in a field is refused, unless the field is stored as JSON:
    ///
    /// ```
    /// use rowstone::Entity;
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Part {
    ///     price: f64,
    ///     #[serde(with = "rowstone::json")]
    ///     tags: Vec<String>,
    /// }
    ///
    /// # fn main() -> rowstone::Result<()> {
    /// let part = Part { price: 0.12, tags: vec!["steel".to_owned()] };
    /// let entity = Entity::from_serde("bolts", "m4x20", &part)?;
    /// assert_eq!(entity.get::<&str>("tags")?, r#"["steel"]"#);
    /// assert_eq!(entity.to::<Part>()?.tags, part.tags);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidInput`, which names the field, if a field is neither a value of an EDM type nor
    /// `None`.
    pub fn from_serde<T: Serialize + ?Sized>(
        partition_key: impl Into<String>,
        row_key: impl Into<String>,
        value: &T,
    ) -> Result<Entity> {
        let entity = Entity::new(partition_key, row_key);
        value.serialize(ser::EntitySerializer(entity)).map_err(Problem::refusal)
    }

    /// Converts the properties to a struct. A field named PartitionKey, RowKey or Timestamp gets
    /// that system property. Properties without a field are ignored, unless the struct denies
    /// unknown fields.
    ///
    /// # Errors
    /// `InvalidInput`, which names the field, if a field is missing or of another type.
    pub fn to<'de, T: Deserialize<'de>>(&'de self) -> Result<T> {
        T::deserialize(de::EntityDeserializer(self)).map_err(Problem::refusal)
    }
}

#[cfg(test)]
mod tests;
