//! Limits on the resources of a server, so that no client can exhaust them.
//!
//! Not here: limits of entities and names (`model`), limits on the syntax of requests (`protocol`).

use std::time::Duration;

/// Bounds of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The most concurrent connections; further ones are answered `ServerBusy` and closed.
    pub(crate) connections: usize,
    /// The most requests carried out at the same time; further ones are answered `ServerBusy`.
    pub(crate) requests: usize,
    /// Total bytes of request bodies that are being read or worked on; small ones are not counted.
    pub(crate) body_bytes: usize,
    /// Total bytes of response bodies that are not yet sent; small ones are not counted.
    pub(crate) response_bytes: usize,
    /// Time from the opening of a connection to the end of its first head.
    pub(crate) header_time: Duration,
    /// Time from the end of the head to the end of the body.
    pub(crate) body_time: Duration,
    /// Time to send an answer that is not small, plus the time for its bytes at
    /// `send_bytes_per_second`. A slower client is cut off, because unsent answers use the memory
    /// shared by all clients.
    pub(crate) send_time: Duration,
    pub(crate) send_bytes_per_second: usize,
    /// Time without progress while reading or writing, and from the end of a request to the end of
    /// the next one's head.
    pub(crate) idle_time: Duration,
    /// Time for connections to end after a stop.
    pub(crate) drain_time: Duration,
}

/// The largest body of any request, in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 4 << 20;
/// The most bytes of the request line and all headers. The HTTP library limits the address in the
/// line to 64 KiB, which is enough for a filter of some 20,000 characters, all of them
/// percent-encoded.
pub(crate) const HEAD_BYTES_MAX: usize = 128 << 10;
/// Bytes of a refused body that are read and discarded, so that the client receives the answer.
pub(crate) const DRAINED_BYTES_MAX: u64 = 16 << 20;
/// Bodies up to this size, in bytes, are not counted against a budget: the limit on connections
/// bounds their number.
pub(crate) const SMALL_BYTES: usize = 64 << 10;
/// Connections over the limit that are answered at the same time; further ones are closed without
/// an answer.
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
            requests: 256,
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
