//! A Table service at another address: [`Remote`] is a store of tables over HTTP.
//!
//! Files: `client` (the verbs), `exchange` (repeats and lost answers), `request` and `response`
//! (what is sent and received), `extensions` (of `rowstone serve`), `feed` (its changes), `check`
//! (names and keys), `transport` (connections), `endpoint` (address and credential), `options`.

mod check;
mod client;
pub(crate) mod endpoint;
mod exchange;
mod extensions;
pub(crate) mod feed;
mod options;
mod request;
mod response;
pub(crate) mod transport;

#[cfg(test)]
mod tests;

pub use self::client::Remote;
pub use self::options::RemoteOptions;
