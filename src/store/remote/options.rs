//! Options for access to a Table service.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::Remote;
use super::endpoint::{Endpoint, referenced};
use super::transport::Http;
use crate::clock::SystemClock;
use crate::error::Result;
use crate::retry::{RetryPolicy, Rng};

/// Options for access to a Table service.
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    pub(super) request_id: Option<String>,
    pub(super) ca: Option<PathBuf>,
    pub(super) secondary: bool,
    pub(super) plain_http: bool,
    pub(super) timeout: Duration,
    pub(super) retries: RetryPolicy,
}

impl RemoteOptions {
    /// Returns the defaults.
    pub fn new() -> Self {
        let second = Duration::from_secs(1);
        Self {
            request_id: None,
            ca: None,
            secondary: false,
            plain_http: false,
            timeout: 35 * second,
            retries: RetryPolicy::exponential_within(second, second / 2, 30 * second),
        }
    }

    /// The property in which each write stores its id, so that a read can tell whose write an
    /// entity is.
    pub fn request_id(self, property: impl Into<String>) -> Self {
        Self { request_id: Some(property.into()), ..self }
    }

    /// A PEM file with the certificates of the authorities that are trusted instead of the
    /// platform's.
    pub fn ca(self, path: impl Into<PathBuf>) -> Self {
        Self { ca: Some(path.into()), ..self }
    }

    /// Whether reads are repeated at the secondary endpoint.
    pub fn secondary(self, secondary: bool) -> Self {
        Self { secondary, ..self }
    }

    /// Whether plain HTTP to another machine is allowed.
    pub fn plain_http(self, plain_http: bool) -> Self {
        Self { plain_http, ..self }
    }

    /// The maximum time of one request with its answer.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The number of repeats of a request, and the pauses before them.
    pub fn retries(self, retries: RetryPolicy) -> Self {
        Self { retries, ..self }
    }

    /// Prepares access as [`Remote::open`] does, with these options.
    pub fn open(self, text: &str) -> Result<Remote> {
        let endpoint = match referenced(text)? {
            Some(text) => Endpoint::read(&text)?,
            None => Endpoint::read(text)?,
        };
        let (transport, clock) = (Arc::new(Http::new()), Arc::new(SystemClock::new()));
        Ok(Remote::with_parts(endpoint, transport, clock, Rng::from_entropy(), self))
    }
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self::new()
    }
}
