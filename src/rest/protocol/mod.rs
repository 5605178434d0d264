//! Parses requests and formats responses of the Table service. No I/O and no state; every parser
//! limits the number and depth of the elements that it accepts.
//!
//! Not here: executing a request (the other modules of `rest`), connections (`http`), entities as
//! JSON (`crate::json`).

pub(crate) mod address;
#[cfg(any(test, fuzzing, feature = "fuzzing", feature = "remote"))]
pub(crate) mod answer;
mod ascii;
pub(crate) mod batch;
pub(crate) mod fault;
pub(crate) mod headers;
#[cfg(feature = "rest")]
pub(super) mod paging;
pub(super) mod payload;
pub(super) mod rows;
pub(crate) mod sas;
pub(super) mod settings;
pub(crate) mod sign;
pub(crate) mod time;
pub(super) mod xml;
