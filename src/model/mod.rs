//! The data model: keys, typed values, entities, ETags, and the rules for them, without I/O or a
//! clock.
//!
//! `format` encodes rows for the disk, `json` reads and writes the JSON form, and `table` checks
//! the conditions of writes.

mod convert;
pub(crate) mod datetime;
mod entity;
mod etag;
#[cfg(any(feature = "time", feature = "chrono", feature = "uuid"))]
mod foreign;
mod guid;
pub mod keys;
mod limits;
mod project;
mod recent;
mod row;
mod row_buffer;
mod row_limits;
mod seq;
#[cfg(feature = "serde")]
mod serde;
mod shape;
mod shapes;
mod template;
mod value;

pub use convert::{Binary, FromValue, IntoProperty};
pub use datetime::DateTime;
pub use entity::Entity;
pub use etag::ETag;
pub use guid::Guid;
pub use project::EntityEncoder;
pub use seq::Seq;
pub use shape::Shape;
pub use value::{EdmType, Value, ValueRef};

// Used only by the command line and the server.
#[cfg(feature = "json")]
pub(crate) use datetime::DateTimeProblem;
#[cfg(feature = "json")]
pub(crate) use limits::{ENTITY_SIZE_MAX, SYSTEM_PROPERTIES, check_value, out_of_range};

pub(crate) use convert::{no_property, other_type};
pub(crate) use limits::{
    BINARY_BYTES_MAX, GROUP_OPERATIONS_MAX, GROUP_SIZE_MAX, KEY_UNITS_MAX, KeyPart, PROPERTIES_MAX,
    check_key, check_property_name, check_table_name, continues_name, starts_name, variable_size,
};
pub(crate) use project::Projector;
pub(crate) use recent::Recent;
pub(crate) use row::{Body, NewRow, Row, RowRef, ShapeRef, merge_rows};
pub(crate) use row_buffer::{BufferedRow, RowBuffer};
pub(crate) use row_limits::check_row_limits;
#[cfg(any(fuzzing, feature = "fuzzing"))]
pub(crate) use shape::Field;
pub(crate) use shape::{Fields, Place, VariablePlace, Walk};
pub(crate) use shapes::{Interned, Numbers, ShapeId, Shapes};
pub(crate) use template::KeyTemplate;
#[cfg(feature = "cli")]
pub(crate) use template::Template;
pub(crate) use value::{utf16_cmp, utf16_len, utf16_rank, utf16_unrank_in_place};
