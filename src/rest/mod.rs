//! The Table service over HTTP: translates requests to calls of the library.
//!
//! Three layers, each of which imports only layers below it:
//! 1. `http` accepts connections and reads requests; only it knows sockets and async;
//! 2. `service` authenticates a request (`auth`) and dispatches it to `tables`, `entities`,
//!    `batch`, `settings` or `extensions`, which call the library and build a [`reply::Reply`];
//! 3. `protocol` parses and writes addresses, headers, bodies, tokens and signatures.
//!
//! Not here: entities as JSON (`crate::json`), the operations on tables and entities (`table`,
//! `query`), command-line arguments (`cli::serve`).

#[cfg(feature = "rest")]
pub(crate) mod accounts;
#[cfg(feature = "rest")]
mod auth;
#[cfg(feature = "rest")]
mod batch;
#[cfg(feature = "rest")]
mod context;
#[cfg(feature = "rest")]
mod entities;
#[cfg(feature = "rest")]
mod extensions;
#[cfg(feature = "rest")]
mod feed;
#[cfg(feature = "rest")]
mod heat;
#[cfg(feature = "rest")]
pub(crate) mod http;
#[cfg(feature = "rest")]
mod local;
#[cfg(feature = "rest")]
mod metrics;
#[cfg(feature = "rest")]
mod misbehave;
#[cfg(feature = "rest")]
mod page;
#[cfg_attr(not(feature = "rest"), allow(dead_code, reason = "a client needs a part of it"))]
pub(crate) mod protocol;
#[cfg(feature = "rest")]
pub(crate) mod reply;
#[cfg(feature = "rest")]
mod request;
#[cfg(feature = "rest")]
pub(crate) mod service;
#[cfg(feature = "rest")]
mod settings;
#[cfg(feature = "rest")]
mod table_metrics;
#[cfg(feature = "rest")]
mod tables;

#[cfg(all(feature = "rest", any(test, fuzzing, feature = "fuzzing")))]
#[expect(unreachable_pub, reason = "lib.rs exports the fuzz target")]
pub mod testing;

#[cfg(all(test, feature = "rest"))]
mod tests;

#[cfg(feature = "rest")]
pub(crate) use self::http::log_writer::LogLevel;
#[cfg(feature = "rest")]
pub(crate) use self::http::process::{Site, check_exposure, prepare};
#[cfg(feature = "rest")]
pub(crate) use self::http::tls::TlsFiles;
#[cfg(feature = "rest")]
pub(crate) use self::page::Settings;
