//! What a server admits at most, so that no client can take all of it.
//!
//! Not here: limits of entities and names (`model`), of requests' syntax (`protocol`).

use std::time::Duration;

/// Bounds of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections at a time; one more is told `ServerBusy` and closed.
    pub(crate) connections: usize,
    /// Requests carried out at a time; one more is answered `ServerBusy`.
    pub(crate) requests: usize,
    /// Of the bodies that are being read or worked on, in bytes, all together; small ones are not counted.
    pub(crate) body_bytes: usize,
    /// Of the bodies of responses that are not yet sent, in bytes, all together; small ones are not counted.
    pub(crate) response_bytes: usize,
    /// From the opening of a connection to the end of its first header.
    pub(crate) header_time: Duration,
    /// From the end of the header to the end of the body.
    pub(crate) body_time: Duration,
    /// From the moment that an answer is there until it is sent, if it is not small; and as long as its bytes take at
    /// `send_bytes_per_second`. Whoever is slower is cut off: room that an answer holds is everybody's.
    pub(crate) send_time: Duration,
    pub(crate) send_bytes_per_second: usize,
    /// Without a byte, where one is waited for or one is to be taken; and from the end of a request to the end of the next
    /// one's header.
    pub(crate) idle_time: Duration,
    /// For connections to end once the server was asked to stop.
    pub(crate) drain_time: Duration,
}

/// The largest body of any request, in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 4 << 20;
/// The request line and all headers, in bytes. The address in the line ends at 64 KiB, where the HTTP library has its own
/// bound: room for a filter of some 20,000 characters, all of them percent-encoded.
pub(crate) const HEAD_BYTES_MAX: usize = 128 << 10;
/// Of a body that is too large, what is read all the same, so that its client hears the answer.
pub(crate) const DRAINED_BYTES_MAX: u64 = 16 << 20;
/// Bodies up to here are not counted against a budget: there are no more of them than connections.
pub(crate) const SMALL_BYTES: usize = 64 << 10;
/// Connections at a time that are told that they are one too many; one more is just closed.
pub(crate) const REFUSALS_MAX: usize = 64;

impl Limits {
    /// How long an answer of `bytes` may take to be sent.
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
