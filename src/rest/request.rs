//! A request as it came.
//!
//! Not here: reading it off a connection (`http::server`), its meaning (`context`).

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use hyper::http::request::Parts;

use crate::error::Code;
use crate::model::DateTime;
use crate::rest::protocol::fault::Fault;
use crate::rest::protocol::headers::Headers;

use super::http::body::{Budget, Share};
use super::http::connection_slots::ConnectionSlot;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// As they stand in the request line.
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) peer: IpAddr,
    pub(crate) is_encrypted: bool,
    pub(crate) received: DateTime,
    pub(crate) request_id: String,
    /// Of the connection that it came over, if it did.
    pub(crate) slot: Option<Arc<ConnectionSlot>>,
    /// For answers that are not sent yet, if it is bounded.
    pub(crate) response_budget: Option<Budget>,
}

impl Request {
    pub(crate) fn new(
        head: Parts,
        peer: IpAddr,
        is_encrypted: bool,
        received: DateTime,
        request_id: String,
    ) -> Self {
        let mut headers = head.headers;
        // An address with a host in the request line has the last word about it.
        if let Some(authority) = head.uri.authority()
            && let Ok(host) = HeaderValue::from_str(authority.as_str())
        {
            headers.insert(HOST, host);
        }
        Request {
            method: head.method.as_str().to_owned(),
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            headers,
            body: Bytes::new(),
            peer,
            is_encrypted,
            received,
            request_id,
            slot: None,
            response_budget: None,
        }
    }

    /// True if the method has a body and nothing says how long it is.
    pub(crate) fn needs_length(&self) -> bool {
        let has_body = matches!(self.method.as_str(), "POST" | "PUT" | "MERGE" | "PATCH");
        let is_told =
            [CONTENT_LENGTH, TRANSFER_ENCODING].iter().any(|name| self.headers.contains_key(name));
        has_body && !is_told
    }

    /// Makes `share` one for an answer of `bytes`, before there are so many.
    ///
    /// # Errors
    /// `ServerBusy`.
    pub(super) fn grow(&self, share: &mut Share, bytes: usize) -> Result<(), Fault> {
        self.response_budget.as_ref().map_or(Ok(()), |budget| budget.grow(share, bytes))
    }

    /// Room for an answer, which `share` is made one for; none where that would be too much, for the answer may be small.
    pub(super) fn spare(&self, share: &mut Share) -> Vec<u8> {
        let spare = self.response_budget.as_ref().map(Budget::spare).unwrap_or_default();
        if self.grow(share, spare.capacity()).is_ok() { spare } else { Vec::new() }
    }

    /// Whoever asks may do so.
    pub(super) fn mark_authenticated(&self) {
        if let Some(slot) = &self.slot {
            slot.mark_authenticated();
        }
    }

    pub(super) fn host(&self) -> &str {
        self.value(HOST.as_str()).unwrap_or_default()
    }

    pub(super) fn scheme(&self) -> &'static str {
        if self.is_encrypted { "https" } else { "http" }
    }

    /// The body as text.
    ///
    /// # Errors
    /// `InvalidInput`.
    pub(super) fn text(&self) -> Result<&str, Fault> {
        std::str::from_utf8(&self.body).map_err(|_| Code::InvalidInput.into())
    }
}

impl Headers for Request {
    fn nth(&self, name: &str, index: usize) -> Option<&str> {
        // There are few: to look at each costs less than to find out where a name would be.
        let mut same = self.headers.iter().filter(|(given, _)| {
            let given = given.as_str();
            given.len() == name.len() && given.eq_ignore_ascii_case(name)
        });
        std::str::from_utf8(same.nth(index)?.1.as_bytes()).ok()
    }
}
