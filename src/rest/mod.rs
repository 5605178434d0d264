//! The Table service over HTTP: translates requests to calls of the library.
//!
//! Three layers, each of which imports only layers below it:
//! 1. `http` accepts connections and reads requests; only it knows sockets and async;
//! 2. `service` authenticates a request (`auth`) and dispatches it to `tables`, `entities`, `batch`
//!    or `settings`, which call the library and build a [`reply::Reply`];
//! 3. `protocol` parses and writes addresses, headers, bodies, tokens and signatures.
//!
//! Not here: entities as JSON (`crate::json`), the operations on tables and entities (`table`,
//! `query`), command-line arguments (`cli::serve`).

pub(crate) mod accounts;
mod auth;
mod batch;
mod context;
mod entities;
pub(crate) mod http;
mod local;
mod metrics;
mod page;
pub(crate) mod protocol;
pub(crate) mod reply;
mod request;
pub(crate) mod service;
mod settings;
mod table_metrics;
mod tables;

#[cfg(any(test, fuzzing, feature = "fuzzing"))]
#[expect(unreachable_pub, reason = "lib.rs exports the fuzz target")]
pub mod testing;

#[cfg(test)]
mod tests;

pub(crate) use self::http::log_writer::LogLevel;
pub(crate) use self::http::process::{Site, check_exposure, prepare};
pub(crate) use self::http::tls::TlsFiles;
pub(crate) use self::page::Settings;
