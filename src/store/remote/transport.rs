//! Sends requests to a Table service. A trait, so that tests can lose, delay and cut answers.
//!
//! Not here: signatures and bodies (`request`), repeats and lost answers (`exchange`).

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, SendBody, Timeout, http};

use crate::error::{Code, Doing as _, Error, Result};
use crate::sync::pause;

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
    /// Whether every repeat would fail in the same way.
    pub(crate) is_final: bool,
    pub(crate) problem: String,
}

/// Sends requests.
pub(crate) trait Transport: Send + Sync {
    /// Sends a request and reads the answer within `time`.
    ///
    /// # Errors
    /// There is no complete answer.
    fn send(&self, request: &Request, time: Duration) -> Result<Response, NoAnswer>;

    /// Waits before a request is repeated.
    fn wait(&self, time: Duration);
}

/// HTTP/1.1 over TCP or TLS, with connections that stay open.
pub(crate) struct Http {
    agent: Agent,
}

/// The maximum length of the body of an answer, in bytes: a page of 1,000 entities of usual size.
/// A longer page is requested again with half the number of entities.
const BODY_MAX: u64 = 16 << 20;
/// Stands for the value of a header that is not printable ASCII.
pub(super) const NOT_TEXT: &str = "\u{fffd}";
/// The maximum length of a file of certificates, in bytes. The file of a platform has some 200 KiB.
const CA_MAX: u64 = 1 << 20;
/// The maximum length of the headers of an answer, in bytes.
const HEADERS_MAX: usize = 64 << 10;
/// The problem if no program listens at the address.
pub(super) const REFUSED: &str = "connection refused";
/// The maximum time for a connection, so that an unreachable service is soon noticed.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// The maximum number of idle connections.
const IDLE_MAX: usize = 32;

impl Http {
    /// Creates a client that trusts the certificates in `ca`, or else those of the platform.
    ///
    /// # Errors
    /// `Io` and `InvalidInput` for the file `ca`.
    pub(super) fn new(ca: Option<&Path>, is_tls: bool) -> Result<Self> {
        let roots = match ca {
            Some(path) => roots(path)?,
            None => RootCerts::PlatformVerifier,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = TlsConfig::builder()
            .root_certs(roots)
            .unversioned_rustls_crypto_provider(provider)
            .build();
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .save_redirect_history(false)
            .max_response_header_size(HEADERS_MAX)
            .max_idle_connections(IDLE_MAX)
            .max_idle_connections_per_host(IDLE_MAX)
            .timeout_connect(Some(CONNECT_TIME))
            .accept_encoding("identity")
            .tls_config(tls)
            .user_agent(concat!("rowstone/", env!("CARGO_PKG_VERSION")));
        // A proxy would see the requests that are not encrypted.
        let config = if is_tls { config } else { config.proxy(None) };
        Ok(Self { agent: config.build().into() })
    }

    fn run<B: ureq::AsSendBody>(
        &self,
        request: &Request,
        body: B,
        time: Duration,
    ) -> Result<Response, ureq::Error> {
        let mut builder = http::Request::builder().method(request.method).uri(&request.url);
        for (name, value) in &request.headers {
            builder = builder.header(*name, value);
        }
        let built = self.agent.configure_request(builder.body(body)?);
        let mut answer = self.agent.run(built.timeout_global(Some(time)).build())?;
        let status = answer.status().as_u16();
        let headers = answer.headers().iter().map(|(name, value)| {
            (name.as_str().to_owned(), value.to_str().unwrap_or(NOT_TEXT).to_owned())
        });
        let headers = headers.collect();
        let body = answer.body_mut().with_config().limit(BODY_MAX).read_to_vec()?;
        Ok(Response { status, headers, body })
    }
}

/// Reads the certificates of a PEM file.
#[expect(clippy::disallowed_methods, reason = "a file of the user's, not of a database")]
fn roots(path: &Path) -> Result<RootCerts> {
    let mut bytes = Vec::new();
    let file = File::open(path).doing("read", path)?;
    file.take(CA_MAX + 1).read_to_end(&mut bytes).doing("read", path)?;
    let certificates = match bytes.len() as u64 > CA_MAX {
        true => Err(format!("it is longer than {} MiB", CA_MAX >> 20)),
        false => certificates(&bytes),
    };
    certificates.map(|list| RootCerts::Specific(Arc::new(list))).map_err(|problem| {
        Error::refused_with(Code::InvalidInput, format!("{}: {problem}", path.display()))
    })
}

/// Reads the certificates of a PEM text, at least one. Texts between them are comments.
fn certificates(pem: &[u8]) -> Result<Vec<Certificate<'static>>, String> {
    let (mut found, mut begin, mut at) = (Vec::new(), None, 0);
    for (number, line) in (1..).zip(pem.split_inclusive(|byte| *byte == b'\n')) {
        if line.starts_with(b"-----BEGIN CERTIFICATE-----")
            && let Some((earlier, _)) = begin.replace((number, at))
        {
            return Err(format!("the certificate in line {earlier} has no end"));
        }
        at += line.len();
        if line.starts_with(b"-----END CERTIFICATE-----")
            && let Some((number, start)) = begin.take()
        {
            let malformed = |problem: &dyn fmt::Display| {
                format!("the certificate in line {number} is malformed: {problem}")
            };
            let certificate = Certificate::from_pem(pem.get(start..at).unwrap_or_default());
            let certificate = certificate.map_err(|error| malformed(&error))?;
            let der = CertificateDer::from(certificate.der());
            RootCertStore::empty().add(der).map_err(|error| malformed(&error))?;
            found.push(certificate);
        }
    }
    match begin {
        Some((number, _)) => Err(format!("the certificate in line {number} has no end")),
        None if found.is_empty() => Err("it has no certificate (BEGIN CERTIFICATE)".to_owned()),
        None => Ok(found),
    }
}

impl Transport for Http {
    fn send(&self, request: &Request, time: Duration) -> Result<Response, NoAnswer> {
        let sent = match request.body.is_empty() {
            true => self.run(request, SendBody::none(), time),
            false => self.run(request, &*request.body, time),
        };
        sent.map_err(|error| no_answer(&error))
    }

    fn wait(&self, time: Duration) {
        pause(time);
    }
}

/// Converts an error of the client. Unless it is sure that nothing was sent, something was.
fn no_answer(error: &ureq::Error) -> NoAnswer {
    use ureq::Error;
    let certificate = certificate_problem(error);
    let is_final = certificate.is_some();
    let was_sent = match error {
        Error::Io(error) => {
            error.kind() != io::ErrorKind::ConnectionRefused && certificate.is_none()
        }
        Error::Timeout(Timeout::Resolve | Timeout::Connect)
        | Error::HostNotFound
        | Error::ConnectionFailed
        | Error::ConnectProxyFailed(_)
        | Error::InvalidProxyUrl
        | Error::RequireHttpsOnly(_)
        | Error::TlsRequired
        | Error::Tls(_)
        | Error::BadUri(_)
        | Error::Http(_) => false,
        _ => certificate.is_none(),
    };
    let problem = certificate.unwrap_or_else(|| match error {
        Error::Timeout(Timeout::Resolve | Timeout::Connect) => "no connection in time".to_owned(),
        Error::Timeout(_) => "the time for the request is over".to_owned(),
        Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => REFUSED.to_owned(),
        Error::BodyExceedsLimit(max) => format!("the body is longer than {max} bytes"),
        // These have the URL.
        Error::BadUri(_) | Error::RequireHttpsOnly(_) => "the URL is refused".to_owned(),
        error => error.to_string(),
    });
    let is_too_large = matches!(error, Error::BodyExceedsLimit(_));
    NoAnswer { was_sent, is_too_large, is_final, problem }
}

/// Returns what is wrong with the certificate of the service. It is checked before a request is
/// sent.
fn certificate_problem(error: &ureq::Error) -> Option<String> {
    use rustls::CertificateError as Problem;
    let error = match error {
        ureq::Error::Io(error) => error.get_ref()?.downcast_ref::<rustls::Error>()?,
        ureq::Error::Rustls(error) => error,
        _ => return None,
    };
    let rustls::Error::InvalidCertificate(problem) = error else { return None };
    Some(match problem {
        Problem::Expired
        | Problem::ExpiredContext { .. }
        | Problem::NotValidYet
        | Problem::NotValidYetContext { .. } => {
            "its certificate is not valid at the time of this machine's clock: check the clock"
                .to_owned()
        }
        Problem::UnknownIssuer => {
            "its certificate is from an unknown authority: name the file of its certificate, with \
             --ca or RemoteOptions::ca"
                .to_owned()
        }
        problem => format!("its certificate is refused: {problem}"),
    })
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}
