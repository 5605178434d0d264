//! Requests and responses of the Table service as text, read and written. Pure: text in, values
//! out; every reader is bounded.
//!
//! Not here: carrying a request out (the files above), connections (`http`), entities as JSON
//! (`crate::json`).

pub(crate) mod address;
mod ascii;
pub(super) mod batch;
pub(super) mod fault;
pub(crate) mod headers;
pub(super) mod paging;
pub(super) mod payload;
pub(super) mod rows;
pub(crate) mod sas;
pub(super) mod settings;
pub(crate) mod sign;
pub(crate) mod time;
pub(super) mod xml;
