//! Defines a request as it was received, before it is interpreted.
//!
//! Not here: reading it from a connection (`http::server`), its meaning (`context`).

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
use super::http::request_slots::RequestSlot;

/// A request as received.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// The path as in the request line, with its escapes.
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) peer: IpAddr,
    pub(crate) is_encrypted: bool,
    pub(crate) received: DateTime,
    pub(crate) request_id: String,
    /// The connection slot of the request; `None` for a request without a connection.
    pub(crate) slot: Option<Arc<ConnectionSlot>>,
    /// The slot of the request while it is carried out; `None` if the number of requests is
    /// unlimited.
    pub(crate) request_slot: Option<Arc<RequestSlot>>,
    /// The budget of unsent responses; `None` if it is unlimited.
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
        // The host in the request line overrides the header `Host`.
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
            request_slot: None,
            response_budget: None,
        }
    }

    /// True if the method has a body but no header gives its length.
    pub(crate) fn needs_length(&self) -> bool {
        let has_body = matches!(self.method.as_str(), "POST" | "PUT" | "MERGE" | "PATCH");
        let is_told =
            [CONTENT_LENGTH, TRANSFER_ENCODING].iter().any(|name| self.headers.contains_key(name));
        has_body && !is_told
    }

    /// True if the body has a transfer coding other than a single `chunked`, which the HTTP library
    /// would not decode.
    pub(crate) fn has_unknown_coding(&self) -> bool {
        let mut codings = self.headers.get_all(TRANSFER_ENCODING).iter();
        let is_chunked =
            |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
        codings.next().is_some_and(|first| !is_chunked(first) || codings.next().is_some())
    }

    /// Grows `share`, the part of the budget of unsent responses that this response reserves, to
    /// `bytes`. Must be called before the response is built.
    ///
    /// # Errors
    /// `ServerBusy`.
    pub(super) fn grow(&self, share: &mut Share, bytes: usize) -> Result<(), Fault> {
        self.response_budget.as_ref().map_or(Ok(()), |budget| budget.grow(share, bytes))
    }

    /// Returns a reused buffer for a response and charges its capacity to `share`. If the budget
    /// cannot cover it, returns an empty buffer: the response may be smaller and still fit.
    pub(super) fn spare(&self, share: &mut Share) -> Vec<u8> {
        let spare = self.response_budget.as_ref().map(Budget::spare).unwrap_or_default();
        if self.grow(share, spare.capacity()).is_ok() { spare } else { Vec::new() }
    }

    /// Marks the connection as one of a client that has a key or token of `account`.
    pub(super) fn mark_authenticated(&self, account: &str) {
        if let Some(slot) = &self.slot {
            slot.mark_authenticated(account);
        }
    }

    /// Charges the request's slot to its client, which has `token` or else a key of `account`.
    ///
    /// # Errors
    /// `ServerBusy` if the client has its share of the slots.
    pub(super) fn charge_slot(&self, account: &str, token: Option<&str>) -> Result<(), Fault> {
        let slot = self.request_slot.as_ref();
        slot.map_or(Ok(()), |slot| slot.charge(account, token, self.peer))
    }

    pub(super) fn host(&self) -> &str {
        self.value(HOST.as_str()).unwrap_or_default()
    }

    pub(super) fn scheme(&self) -> &'static str {
        if self.is_encrypted { "https" } else { "http" }
    }

    /// Returns the body as text.
    ///
    /// # Errors
    /// `InvalidInput`.
    pub(super) fn text(&self) -> Result<&str, Fault> {
        std::str::from_utf8(&self.body).map_err(|_| Code::InvalidInput.into())
    }
}

impl Headers for Request {
    fn nth(&self, name: &str, index: usize) -> Option<&str> {
        // A request has few headers, so comparing each name costs less than a hash lookup.
        let mut same = self.headers.iter().filter(|(given, _)| {
            let given = given.as_str();
            given.len() == name.len() && given.eq_ignore_ascii_case(name)
        });
        std::str::from_utf8(same.nth(index)?.1.as_bytes()).ok()
    }
}
