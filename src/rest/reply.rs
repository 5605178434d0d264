//! Builds responses, and adds the headers common to all responses.
//!
//! Not here: bodies (`protocol`), headers of single operations (`entities`, `tables`, `settings`).

use std::borrow::Cow;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{self, HeaderName};

use crate::model::ETag;

use super::http::body::Share;

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: Vec<(HeaderName, Cow<'static, str>)>,
    pub(crate) body: Vec<u8>,
    /// The bytes that the body reserves in the budget of unsent responses.
    pub(super) share: Share,
    pub(super) delivery: Delivery,
}

/// How an answer is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// The time to wait before the answer is sent.
    pub(crate) delay: Duration,
    pub(crate) end: End,
}

/// Where an answer ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    #[default]
    Whole,
    /// In the body, at a place that this number selects.
    Cut(u64),
    /// Before its first byte.
    Lost,
}

impl End {
    /// Returns the number of bytes to send of a body of `len` bytes; `None` if nothing is sent.
    pub(super) fn sent(self, len: usize) -> Option<usize> {
        match self {
            End::Whole => Some(len),
            End::Cut(number) if len > 1 => Some(1 + (number % (len as u64 - 1)) as usize),
            End::Cut(_) | End::Lost => None,
        }
    }
}

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-request-id");
pub(crate) const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-client-request-id");
pub(crate) const VERSION: HeaderName = HeaderName::from_static("x-ms-version");
pub(crate) const ERROR_CODE: HeaderName = HeaderName::from_static("x-ms-error-code");
pub(crate) const DATA_SERVICE_ID: HeaderName = HeaderName::from_static("dataserviceid");
pub(crate) const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// The headers that [`signed`](Reply::signed) adds. Web pages of other origins may read these
/// headers, too.
pub(crate) static COMMON: [HeaderName; 6] = [
    header::X_CONTENT_TYPE_OPTIONS,
    REQUEST_ID,
    header::SERVER,
    VERSION,
    CLIENT_REQUEST_ID,
    header::DATE,
];

const SERVER: &str = "Windows-Azure-Table/1.0 Microsoft-HTTPAPI/2.0";
const XML: &str = "application/xml";

impl Reply {
    pub(crate) fn new(status: u16) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Reply {
            status,
            headers: Vec::with_capacity(12),
            body: Vec::new(),
            share: Share::default(),
            delivery: Delivery::default(),
        }
    }

    /// Returns a response about tables or entities, which caches must not store.
    pub(crate) fn uncached(status: u16) -> Self {
        Reply::new(status).with(header::CACHE_CONTROL, "no-cache")
    }

    pub(crate) fn with(mut self, name: HeaderName, value: impl Into<Cow<'static, str>>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Adds the ETag of an entity.
    pub(crate) fn with_etag(self, etag: ETag) -> Self {
        self.with(header::ETAG, etag.to_string())
    }

    pub(crate) fn with_body(
        self,
        content_type: impl Into<Cow<'static, str>>,
        body: Vec<u8>,
    ) -> Self {
        Reply { body, ..self.with(header::CONTENT_TYPE, content_type) }
    }

    pub(crate) fn with_xml(self, body: Vec<u8>) -> Self {
        self.with_body(XML, body)
    }

    /// Completes the response with the headers common to all responses.
    pub(crate) fn signed(
        self,
        request_id: &str,
        version: Option<&'static str>,
        client_request_id: Option<&str>,
    ) -> Self {
        let mut reply = self
            .with(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
            .with(REQUEST_ID, request_id.to_owned())
            .with(header::SERVER, SERVER);
        if let Some(version) = version {
            reply = reply.with(VERSION, version);
        }
        if let Some(id) = client_request_id {
            reply = reply.with(CLIENT_REQUEST_ID, id.to_owned());
        }
        reply
    }

    pub(crate) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| &**value)
    }

    /// Returns the response to a request whose handler panicked.
    pub(crate) fn broken(request_id: &str) -> Self {
        let code = crate::error::Code::InternalError;
        Reply::new(code.status()).with(ERROR_CODE, code.as_str()).signed(request_id, None, None)
    }
}

/// Returns the name of a header that the server itself defines; such names are always valid.
pub(super) fn name(name: &str) -> HeaderName {
    HeaderName::try_from(name).unwrap_or(ERROR_CODE)
}
