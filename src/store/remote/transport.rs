//! Sends requests to a Table service. A trait, so that tests can lose, delay and cut answers.
//!
//! Not here: signatures and bodies (`request`), what a lost answer means (`settle`).

use std::fmt;
use std::time::Duration;

use ureq::Agent;
use ureq::http;

/// One request, with a signed set of headers.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    /// The whole URL.
    pub(crate) url: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

/// Headers have a signature, and URLs may have one, so only the method is shown.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({})", self.method)
    }
}

/// An answer whose body arrived whole.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// There is no whole answer.
#[derive(Clone, Debug)]
pub(crate) struct NoAnswer {
    /// Whether the request may have reached the service.
    pub(crate) was_sent: bool,
    /// Whether the body is longer than the bound.
    pub(crate) is_too_large: bool,
    pub(crate) problem: String,
}

/// Sends requests.
pub(crate) trait Transport: Send + Sync {
    /// Sends a request and reads the answer within `time`.
    fn send(&self, request: &Request, time: Duration) -> Result<Response, NoAnswer>;

    /// Waits before a request is repeated.
    fn wait(&self, time: Duration);
}

/// HTTP/1.1 over TCP or TLS, with connections that stay open.
pub(crate) struct Http {
    agent: Agent,
}

/// The maximum length of the body of an answer, in bytes: a page of 1,000 entities of ordinary size.
/// A larger page is requested again with half the number of entities.
const BODY_MAX: u64 = 16 << 20;

impl Http {
    pub(crate) fn new() -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .save_redirect_history(false)
            .user_agent(concat!("rowstone/", env!("CARGO_PKG_VERSION")))
            .build();
        Self { agent: config.into() }
    }
}

impl Transport for Http {
    fn send(&self, request: &Request, time: Duration) -> Result<Response, NoAnswer> {
        let mut builder = http::Request::builder().method(request.method).uri(&request.url);
        for (name, value) in &request.headers {
            builder = builder.header(*name, value);
        }
        let built = builder.body(&*request.body).map_err(|error| NoAnswer {
            was_sent: false,
            is_too_large: false,
            problem: error.to_string(),
        })?;
        let built = self.agent.configure_request(built).timeout_global(Some(time)).build();
        let mut answer = self.agent.run(built).map_err(|error| no_answer(&error))?;
        let status = answer.status().as_u16();
        let headers = answer.headers().iter().filter_map(|(name, value)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        });
        let headers = headers.collect();
        let body = answer.body_mut().with_config().limit(BODY_MAX).read_to_vec();
        let body = body.map_err(|error| no_answer(&error))?;
        Ok(Response { status, headers, body })
    }

    #[expect(clippy::disallowed_methods, reason = "no condition ends the wait for a remote service")]
    fn wait(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// Converts an error of the client. Its text has neither a URL nor a header.
fn no_answer(error: &ureq::Error) -> NoAnswer {
    use ureq::Error;
    let was_sent = !matches!(
        error,
        Error::HostNotFound | Error::ConnectionFailed | Error::BadUri(_) | Error::Http(_)
    );
    let is_too_large = matches!(error, Error::BodyExceedsLimit(_));
    NoAnswer { was_sent, is_too_large, problem: error.to_string() }
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the body as text.
    pub(crate) fn text(&self) -> Result<&str, std::str::Utf8Error> {
        std::str::from_utf8(&self.body)
    }
}
