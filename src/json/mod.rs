//! What crosses the process boundary: entities and requests as JSON, and the Table service's requests and responses,
//! both ways. Pure: text in, values out; what is read is bounded, whatever the text.
//!
//! Not here: carrying a request out (`cli::exec`), files and streams (`cli`).

pub(crate) mod double;
pub(crate) mod exec;
pub(crate) mod explain;
pub(crate) mod json;
pub(crate) mod odata;
mod scan;

#[cfg(feature = "rest")]
pub(crate) mod address;
#[cfg(feature = "rest")]
pub(crate) mod batch;
#[cfg(feature = "rest")]
pub(crate) mod fault;
#[cfg(feature = "rest")]
pub(crate) mod headers;
#[cfg(feature = "rest")]
pub(crate) mod paging;
#[cfg(feature = "rest")]
pub(crate) mod payload;
#[cfg(feature = "rest")]
pub(crate) mod rows;
#[cfg(feature = "rest")]
pub(crate) mod sas;
#[cfg(feature = "rest")]
pub(crate) mod settings;
#[cfg(feature = "rest")]
pub(crate) mod sign;
#[cfg(feature = "rest")]
pub(crate) mod time;
#[cfg(feature = "rest")]
pub(crate) mod xml;
