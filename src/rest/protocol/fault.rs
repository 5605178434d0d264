//! Builds error responses: code, status, message, and the body as JSON, XML or HTML.
//!
//! Invariants
//! * codes, statuses and messages equal those of Azure Table storage;
//! * responses report internal errors without detail; operation and location go to the log.
//!
//! Not here: which requests fail (`model`, `table`, and the other modules of `protocol`).

use std::borrow::Cow;

use super::{time, xml};
use crate::error::{Code, Error};
use crate::json;
use crate::model::DateTime;

/// The answer to a failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The error code. Empty if the response is an HTML page; see [`is_html`](Self::is_html).
    pub(crate) code: Cow<'static, str>,
    pub(crate) status: u16,
    pub(crate) message: String,
    /// The index of the failing operation in a batch.
    pub(crate) index: Option<usize>,
    /// Additional elements of the XML body, such as `HeaderName` and `HeaderValue`.
    pub(crate) details: Vec<(Cow<'static, str>, String)>,
    /// The engine's description of an internal error. It is written to the log only.
    pub(crate) cause: Option<String>,
}

/// The id and time of the request, which are the last two lines of an error message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occasion<'a> {
    pub(crate) request_id: &'a str,
    pub(crate) time: DateTime,
}

/// The service's message for a malformed path or query string.
pub(crate) const QUERY_SYNTAX: &str = "Bad Request - Error in query syntax.";

macro_rules! known {
    ($($code:ident $status:literal $message:literal)*) => {
        /// An error code that only the server sends; codes that the library also uses are in
        /// [`Code`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(
            not(any(test, fuzzing, feature = "fuzzing")),
            expect(dead_code, reason = "the service's list is whole, and the server sends some of it")
        )]
        pub(crate) enum Known {
            $($code,)*
        }

        impl Known {
            #[cfg(any(test, fuzzing, feature = "fuzzing"))]
            pub(crate) const ALL: &[Known] = &[$(Known::$code,)*];

            pub(crate) fn parts(self) -> (&'static str, u16, &'static str) {
                match self { $(Known::$code => (stringify!($code), $status, $message),)* }
            }
        }
    };
}

known! {
    AccountIsDisabled 403 "The specified account is disabled."
    AtomFormatNotSupported 415 "Atom format is not supported."
    AuthenticationFailed 403 "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature."
    AuthorizationFailure 403 "This request is not authorized to perform this operation."
    AuthorizationPermissionMismatch 403 "This request is not authorized to perform this operation using this permission."
    AuthorizationProtocolMismatch 403 "This request is not authorized to perform this operation using this protocol."
    AuthorizationResourceTypeMismatch 403 "This request is not authorized to perform this operation using this resource type."
    AuthorizationServiceMismatch 403 "This request is not authorized to perform this operation using this service."
    AuthorizationSourceIPMismatch 403 "This request is not authorized to perform this operation using this source IP."
    ChangesLost 410 "The requested changes are no longer kept."
    ConditionHeadersNotSupported 400 "Condition headers are not supported."
    CorsPreflightFailure 403 "CORS not enabled or no matching rule found for this request."
    FeatureVersionMismatch 409 "The operation uses a feature that the version of the token does not have."
    HostInformationNotPresent 400 "The required host information is not present in the request. You must send a non-empty Host header or include the absolute URI in the request line."
    InsufficientAccountPermissions 403 "The account being accessed does not have sufficient permissions to execute this operation."
    InvalidAuthenticationInfo 400 "Authentication information is not given in the correct format. Check the value of Authorization header."
    InvalidHeaderValue 400 "The value for one of the HTTP headers is not in the correct format."
    InvalidHttpVerb 400 "The HTTP verb specified is invalid - it is not recognized by the server."
    InvalidMd5 400 "The MD5 value specified in the request is invalid. MD5 value must be 128 bits and base64-encoded."
    InvalidQueryParameterValue 400 "Value for one of the query parameters specified in the request URI is invalid."
    InvalidUri 400 "The requested URI does not represent any resource on the server."
    InvalidXmlDocument 400 "XML specified is not syntactically valid."
    InvalidXmlNodeValue 400 "The value for one of the XML nodes is not in the correct format."
    JsonFormatNotSupported 415 "JSON format is not supported."
    JsonVerboseFormatNotSupported 415 "JSON Verbose format is not supported."
    Md5Mismatch 400 "The MD5 value specified in the request did not match with the MD5 value calculated by the server."
    MediaTypeNotSupported 415 "None of the provided media types are supported"
    MethodNotAllowed 405 "The requested method is not allowed on the specified resource."
    MissingContentLengthHeader 411 "Content-Length HTTP header was not specified."
    MissingRequiredHeader 400 "An HTTP header that's mandatory for this request is not specified."
    MissingRequiredQueryParameter 400 "A query parameter that's mandatory for this request is not specified."
    MissingRequiredXmlNode 400 "A required XML node was not specified in the request body."
    MultipleConditionHeadersNotSupported 400 "Multiple condition headers are not supported."
    NoAuthenticationInformation 401 "Server failed to authenticate the request. Please refer to the information in the www-authenticate header."
    OutOfRangeQueryParameterValue 400 "One of the query parameters specified in the request URI is outside the permissible range."
    RequestUrlFailedToParse 400 "The url in the request could not be parsed."
    UnsupportedHeader 400 "One of the HTTP headers specified in the request is not supported."
    UnsupportedHttpVerb 405 "The resource doesn't support the specified HTTP verb."
    UnsupportedQueryParameter 400 "One of the query parameters specified in the request URI is not supported."
    UnsupportedXmlNode 400 "One of the XML nodes specified in the request body is not supported."
    XMethodIncorrectCount 400 "More than one X-HTTP-Method is specified."
    XMethodIncorrectValue 400 "The specified X-HTTP-Method is invalid."
    XMethodNotUsingPost 400 "The request uses X-HTTP-Method with an HTTP verb other than POST."
}

impl From<Known> for Fault {
    fn from(known: Known) -> Self {
        let (code, status, message) = known.parts();
        Fault::build(code.into(), status, message.to_owned())
    }
}

impl From<Code> for Fault {
    fn from(code: Code) -> Self {
        Fault::build(code.as_str().into(), code.status(), code.message().into_owned())
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let (code, status) = (error.code(), error.status());
        // Messages taken from the service are meant for clients and begin with a capital letter.
        // The engine's own messages do not, and are replaced by the message of the code.
        let is_own =
            status >= 500 && !error.message().starts_with(|c: char| c.is_ascii_uppercase());
        let message = match error_code(code).filter(|_| is_own) {
            Some(code) => code.message().into_owned(),
            None => error.message().to_owned(),
        };
        // `ServerBusy` also has a status of 500 or above, but needs no investigation.
        let is_failure = matches!(error_code(code), Some(Code::InternalError | Code::StorageFull));
        let cause = is_failure.then(|| error.chain());
        Fault { index: error.index(), cause, ..Fault::build(code.into(), status, message) }
    }
}

impl Fault {
    pub(in crate::rest) fn build(code: Cow<'static, str>, status: u16, message: String) -> Self {
        Fault { code, status, message, index: None, details: Vec::new(), cause: None }
    }

    /// Returns `InvalidInput` with the message `message` instead of the usual one.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Fault::from(Code::InvalidInput).with_message(message)
    }

    /// Returns the fault for a malformed path or query string, or a malformed key in it.
    pub(crate) fn query_syntax() -> Self {
        Fault::invalid(QUERY_SYNTAX)
    }

    /// Returns the error for characters that no address may contain. Like the front end of the
    /// Azure service, it is an HTML page without an error code.
    pub(crate) fn invalid_url() -> Self {
        Fault::build("".into(), 400, "Invalid URL".to_owned())
    }

    /// Returns the fault that represents a response that a client could not parse.
    #[cfg(any(test, fuzzing, feature = "fuzzing", feature = "remote"))]
    pub(crate) fn unreadable(status: u16, body: &str) -> Self {
        Fault::build("".into(), status, body.to_owned())
    }

    /// Returns `InvalidHeaderValue`, naming the header.
    pub(crate) fn header(name: &str, value: &str) -> Self {
        let fault = Fault::from(Known::InvalidHeaderValue);
        fault.with_detail("HeaderName", name).with_detail("HeaderValue", value)
    }

    /// Returns `MissingRequiredHeader`, naming the header.
    pub(crate) fn no_header(name: &str) -> Self {
        Fault::from(Known::MissingRequiredHeader).with_detail("HeaderName", name)
    }

    /// Returns `InvalidQueryParameterValue`, naming the parameter.
    pub(crate) fn parameter(name: &str, value: &str, reason: &str) -> Self {
        let fault = Fault::from(Known::InvalidQueryParameterValue);
        let fault = fault.with_detail("QueryParameterName", name);
        fault.with_detail("QueryParameterValue", value).with_detail("Reason", reason)
    }

    /// Returns `AuthenticationFailed`. Only the XML body contains `detail`, the reason.
    pub(crate) fn unauthenticated(detail: &str) -> Self {
        Fault::from(Known::AuthenticationFailed).with_detail("AuthenticationErrorDetail", detail)
    }

    pub(crate) fn with_message(self, message: impl Into<String>) -> Self {
        Fault { message: message.into(), ..self }
    }

    pub(crate) fn with_detail(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.details.push((name.into(), value.into()));
        self
    }

    /// Returns the same fault as the result of operation `index` in a batch.
    pub(crate) fn at_index(self, index: usize) -> Self {
        Fault { index: Some(index), ..self }
    }

    /// True if the body is the front end's HTML page instead of JSON or XML.
    pub(crate) fn is_html(&self) -> bool {
        self.code.is_empty()
    }

    /// Appends the JSON body, used for requests about tables and entities and in batches.
    pub(crate) fn put_json(&self, out: &mut Vec<u8>, occasion: Occasion<'_>) {
        let message = json::object(|object| {
            object.text("lang", "en-US");
            object.text("value", &self.text(occasion));
        });
        let error = json::object(|object| {
            object.text("code", &self.code);
            object.raw("message", message);
        });
        json::put_object(out, |object| object.raw("odata.error", error));
    }

    /// Appends the XML body, used for requests about policies, settings and statistics, and for
    /// errors that occur before the operation is known.
    pub(crate) fn put_xml(&self, out: &mut Vec<u8>, occasion: Occasion<'_>) {
        out.extend_from_slice(xml::DECLARATION.as_bytes());
        xml::open(out, "Error");
        xml::put(out, "Code", &self.code);
        xml::put(out, "Message", &self.text(occasion));
        for (name, value) in &self.details {
            xml::put(out, name, value);
        }
        xml::close(out, "Error");
    }

    /// Appends the HTML page of [`invalid_url`](Self::invalid_url).
    pub(crate) fn put_html(&self, out: &mut Vec<u8>) {
        for line in [
            "<!DOCTYPE HTML PUBLIC \"-//W3C//DTD HTML 4.01//EN\"\"http://www.w3.org/TR/html4/strict.dtd\">",
            "<HTML><HEAD><TITLE>Bad Request</TITLE>",
            "<META HTTP-EQUIV=\"Content-Type\" Content=\"text/html; charset=us-ascii\"></HEAD>",
            "<BODY><h2>Bad Request - Invalid URL</h2>",
            "<hr><p>HTTP Error 400. The request URL is invalid.</p>",
            "</BODY></HTML>",
        ] {
            out.extend_from_slice(line.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Returns the complete message: index of the operation, message, request id, time.
    fn text(&self, occasion: Occasion<'_>) -> String {
        let Occasion { request_id, time } = occasion;
        let time = time::seven_digits(time);
        let index = self.index.map(|index| format!("{index}:")).unwrap_or_default();
        format!("{index}{}\nRequestId:{request_id}\nTime:{time}", self.message)
    }
}

/// Returns the library's code for a server error (5xx) with this name.
fn error_code(name: &str) -> Option<Code> {
    let own = [Code::InternalError, Code::OperationTimedOut, Code::ServerBusy, Code::StorageFull];
    own.into_iter().find(|code| code.as_str() == name)
}

#[cfg(test)]
mod tests;
