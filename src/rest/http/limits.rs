//! Limits on the resources of a server, so that no client can exhaust them.
//!
//! `model` has the limits of entities and names, `protocol` has the limits on the syntax of
//! requests.

use std::time::Duration;

/// The configurable limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The maximum number of concurrent connections; further ones are answered with `ServerBusy`
    /// and closed.
    pub(crate) connections: usize,
    /// The maximum number of requests carried out at the same time, of which a single client gets
    /// three quarters (`request_slots`); further ones are answered with `ServerBusy`.
    pub(crate) requests: usize,
    /// The maximum bytes of all request bodies that are being read or processed; small ones are not
    /// counted.
    pub(crate) body_bytes: usize,
    /// The maximum bytes of all response bodies that are not yet sent; small ones are not counted.
    pub(crate) response_bytes: usize,
    /// The maximum time from opening a connection to the end of its first request head.
    pub(crate) header_time: Duration,
    /// The maximum time from the end of a request head to the end of the body.
    pub(crate) body_time: Duration,
    /// An answer that is not small must be sent within this time plus one second for each
    /// `send_bytes_per_second` bytes. A slower client is cut off, because unsent answers use the
    /// memory shared by all clients.
    pub(crate) send_time: Duration,
    pub(crate) send_bytes_per_second: usize,
    /// The maximum time without progress while reading or writing. Also the maximum time from the
    /// end of a request to the end of the next request head.
    pub(crate) idle_time: Duration,
    /// How long a stopping server waits for connections to end.
    pub(crate) drain_time: Duration,
}

/// The maximum size of a request body, in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 4 << 20;
/// The maximum size of the request line and all headers, in bytes. The HTTP library limits the
/// address in the request line to 64 KiB, which is enough for a percent-encoded filter of some
/// 20,000 characters.
pub(crate) const HEAD_BYTES_MAX: usize = 128 << 10;
/// The maximum number of bytes of a refused body that are read and discarded, because a client may
/// read the answer only after it has sent the whole body.
pub(crate) const DRAINED_BYTES_MAX: u64 = 16 << 20;
/// Request and response bodies up to this size, in bytes, are not counted against a budget. Their
/// number is bounded by the limit on connections.
pub(crate) const SMALL_BYTES: usize = 64 << 10;
/// The maximum number of connections over the limit that are answered at the same time; further
/// ones are closed without an answer.
pub(crate) const REFUSALS_MAX: usize = 64;

impl Limits {
    /// Returns the time limit for sending an answer of `bytes`.
    pub(in crate::rest) fn sending(&self, bytes: usize) -> Duration {
        let seconds = bytes / self.send_bytes_per_second.max(1);
        self.send_time + Duration::from_secs(seconds as u64)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1_024,
            requests: 344,
            body_bytes: 128 << 20,
            response_bytes: 512 << 20,
            header_time: Duration::from_secs(30),
            body_time: Duration::from_secs(30),
            send_time: Duration::from_secs(30),
            send_bytes_per_second: 64 << 10,
            idle_time: Duration::from_secs(120),
            drain_time: Duration::from_secs(30),
        }
    }
}
