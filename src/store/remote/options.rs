//! Options for access to a Table service.

use std::path::PathBuf;
use std::time::Duration;

use crate::retry::RetryPolicy;

/// The default time of one request: the service has 30 s, and the network the rest.
const TIMEOUT: Duration = Duration::from_secs(35);

/// Options of [`Remote::open_with`](super::Remote::open_with).
///
/// ```no_run
/// use rowstone::store::{Remote, RemoteOptions};
///
/// # fn main() -> rowstone::Result<()> {
/// let options = RemoteOptions::new().request_id("RequestId").ca("/etc/shop/ca.pem");
/// let store = Remote::open_with("file:/etc/shop/tables", options)?;
/// # Ok(())
/// # }
/// ```
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
    /// Returns the defaults, which each method describes.
    pub fn new() -> Self {
        let [min, z, max] = [500, 1_000, 30_000].map(Duration::from_millis);
        Self {
            request_id: None,
            ca: None,
            secondary: false,
            plain_http: false,
            timeout: TIMEOUT,
            retries: RetryPolicy::exponential_within(z, min, max),
        }
    }

    /// Sets the property in which each insert, replace and merge stores the random id of its
    /// request, an Edm.Guid; a group stores it in one of its entities. After a lost answer a read
    /// of the property tells whether the write took effect. Default: no property.
    ///
    /// The property counts as one of the 252 of an entity, and replaces an earlier value. If other
    /// programs merge into these entities, or read and replace them, without setting the property,
    /// the ETag that a write returns after a lost answer may be that of their write.
    pub fn request_id(self, property: impl Into<String>) -> Self {
        Self { request_id: Some(property.into()), ..self }
    }

    /// Sets a PEM file with the certificates that are trusted instead of those of the platform. The
    /// file has at most 1 MiB. Default: those of the platform.
    pub fn ca(self, path: impl Into<PathBuf>) -> Self {
        Self { ca: Some(path.into()), ..self }
    }

    /// Sets whether reads that fail at the primary location are repeated at the secondary, whose
    /// data may be older. Reads that follow a lost answer never use it, but those of
    /// [`update`](crate::store::update) and [`transact`](crate::store::transact) do. Default:
    /// false.
    pub fn secondary(self, secondary: bool) -> Self {
        Self { secondary, ..self }
    }

    /// Sets whether plain HTTP to another machine is allowed: requests and entities are then sent
    /// without encryption. Plain HTTP to this machine is always allowed. Default: false.
    pub fn plain_http(self, plain_http: bool) -> Self {
        Self { plain_http, ..self }
    }

    /// Sets the maximum time of one request with its answer. The service is told to give up the
    /// request after the same time, in whole seconds from 1 to 30. Default: 35 s.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets how often a request is repeated and the pauses before that. A repeat waits longer if
    /// the answer has a longer `Retry-After`, in seconds or until a date, but at most 30 s for this
    /// reason. A repeat after a lost answer may wait longer too; see [`Remote`](super::Remote).
    /// Default: three times after pauses of some 1.5, 3.5 and 7.5 s.
    pub fn retries(self, retries: RetryPolicy) -> Self {
        Self { retries, ..self }
    }
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self::new()
    }
}
