//! What crosses the process boundary: entities and requests as JSON, both ways. Pure: text in, values out.
//!
//! Not here: carrying a request out (`cli::exec`), files and streams (`cli`).

pub(crate) mod double;
pub(crate) mod exec;
pub(crate) mod explain;
pub(crate) mod json;
pub(crate) mod odata;
