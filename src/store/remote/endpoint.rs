//! The address of a Table service and the credential for it.
//!
//! Invariants
//! * no formatting of an endpoint shows a key or a signature;
//! * the URL has neither a user name nor a query string, so that errors may show it.

use std::env::VarError;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::ops::RangeInclusive;

use crate::clock::TICKS_PER_SECOND;
use crate::error::{Code, Error, Result};
use crate::model::DateTime;
use crate::rest::protocol::headers::Version;
use crate::rest::protocol::sas::{KeyBounds, ServiceSas, Terms, is_ordered};
use crate::rest::protocol::sign::{AccountKey, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};
use crate::store::Reference;

/// The address of a service and the credential for it.
#[derive(Clone)]
pub(crate) struct Endpoint {
    /// The URL without a slash at its end, such as `https://acme.table.core.windows.net`.
    pub(crate) base: String,
    /// The path of the URL; empty if the account is in the host.
    pub(crate) path: String,
    /// The URL and path of the secondary location, if they are known.
    pub(super) secondary: Option<(String, String)>,
    pub(crate) account: String,
    pub(crate) credential: Credential,
    /// The text `env:NAME` or `file:PATH` from which the credential was read.
    pub(super) source: Option<String>,
}

/// A location of an account's data. The secondary is read-only and lags behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    Primary,
    Secondary,
}

#[derive(Clone)]
pub(crate) enum Credential {
    Key(AccountKey),
    /// The query string of a shared access signature, without a question mark.
    Sas(String),
}

/// The maximum length of a file with a connection string, in bytes.
const FILE_MAX: u64 = 64 << 10;
/// The address of the development account, at which Azurite and `rowstone serve` listen.
const DEVELOPMENT_URL: &str = "http://127.0.0.1:10002/devstoreaccount1";

impl Endpoint {
    /// Reads a connection string, or a URL with a shared access signature.
    ///
    /// # Errors
    /// `InvalidInput`. The text of the error does not contain `text`.
    pub(crate) fn read(text: &str) -> Result<Self> {
        let text = text.trim();
        if text.starts_with("http://") || text.starts_with("https://") {
            let (url, sas) = text.split_once('?').unwrap_or((text, ""));
            return Self::of_url(url, None, Credential::of_sas(sas)?);
        }
        let mut parts = Parts::default();
        for part in text.split(';').filter(|part| !part.trim().is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| refused("a part has no '='"))?;
            parts.set(name.trim(), value.trim())?;
        }
        parts.finish()
    }

    fn of_url(url: &str, account: Option<&str>, credential: Credential) -> Result<Self> {
        let (base, host, path) = split_url(url)?;
        let in_host = host.split(['.', ':']).next().unwrap_or_default();
        let in_path = path.split('/').nth(1);
        let account = account.or(in_path).unwrap_or(in_host).to_owned();
        let secondary = match in_path {
            Some(name) => (name == account && path.len() == name.len() + 1)
                .then(|| (format!("{base}-secondary"), format!("{path}-secondary"))),
            None => (in_host == account).then(|| {
                let before = format!("://{account}");
                (base.replacen(&before, &format!("{before}-secondary"), 1), String::new())
            }),
        };
        Ok(Self { base, path, secondary, account, credential, source: None })
    }

    /// Returns the URL and the path of a location; those of the primary if the other is unknown.
    pub(super) fn at(&self, location: Location) -> (&str, &str) {
        match (location, &self.secondary) {
            (Location::Secondary, Some((base, path))) => (base, path),
            _ => (&self.base, &self.path),
        }
    }

    /// Whether requests are encrypted.
    pub(super) fn is_tls(&self) -> bool {
        self.base.starts_with("https://")
    }

    /// Checks that no request would be sent to another machine without encryption.
    ///
    /// # Errors
    /// `InvalidInput`.
    pub(super) fn check_protection(&self) -> Result<()> {
        let others = self.secondary.iter().map(|(base, _)| base);
        let mut plain = others.chain([&self.base]).filter(|base| base.starts_with("http://"));
        match plain.all(|base| is_local(base)) {
            true => Ok(()),
            false => Err(refused(
                "plain HTTP would send data unprotected: use https (a program of its own may set \
                 RemoteOptions::plain_http)",
            )),
        }
    }

    /// Whether the credential may permit reads. The permissions of a stored policy are unknown.
    pub(super) fn may_read(&self) -> bool {
        let Credential::Sas(sas) = &self.credential else { return true };
        let permissions = sas.split('&').find_map(|part| part.strip_prefix("sp="));
        permissions.is_none_or(|letters| letters.contains('r'))
    }

    /// Whether the signature covers only a range of keys.
    pub(super) fn hides_keys(&self) -> bool {
        let Credential::Sas(sas) = &self.credential else { return false };
        let is_bound =
            |part: &str| ["spk=", "srk=", "epk=", "erk="].iter().any(|name| part.starts_with(name));
        sas.split('&').any(is_bound)
    }

    /// Whether the service is on this machine.
    pub(super) fn is_local(&self) -> bool {
        is_local(&self.base)
    }

    /// Returns the URL with a new signature.
    ///
    /// # Errors
    /// As [`Remote::shared_access`](super::Remote::shared_access).
    pub(super) fn shared_access(
        &self,
        table: &str,
        partitions: RangeInclusive<&str>,
        permissions: &str,
        expiry: DateTime,
    ) -> Result<String> {
        let problem = |text| Err(Error::refused_with(Code::InvalidInput, text));
        let Credential::Key(key) = &self.credential else {
            return problem("only the account key makes a shared access signature");
        };
        if permissions.is_empty() || !is_ordered(permissions) {
            return problem("the permissions are not letters of raud, in this order");
        }
        let (first, last) = partitions.into_inner();
        if first.is_empty() || last.is_empty() {
            return problem("a shared access signature cannot be limited by an empty PartitionKey");
        }
        // Tokens have no fractions of a second.
        let seconds = expiry.ticks() - expiry.ticks() % TICKS_PER_SECOND;
        let expiry = DateTime::from_ticks(seconds).unwrap_or(expiry);
        let terms = Terms {
            version: Some(Version::ACCOUNT_SAS),
            permissions: Some(permissions.to_owned()),
            expiry: Some(expiry.to_string()),
            ..Terms::default()
        };
        let [start_partition, end_partition] = [first, last].map(|key| Some(key.to_owned()));
        let bounds = KeyBounds { start_partition, end_partition, ..KeyBounds::default() };
        let sas = ServiceSas { terms, table: table.to_owned(), policy: None, bounds };
        Ok(format!("{}?{}", self.base, sas.sign(&self.account, key).token()))
    }

    /// Returns a name of the store, which continuations contain.
    pub(crate) fn name(&self) -> &str {
        &self.base
    }
}

/// Returns a URL without slashes at its end, and its host and path.
fn split_url(url: &str) -> Result<(String, &str, String)> {
    let base = url.trim_end_matches('/');
    let rest = base.strip_prefix("https://").or_else(|| base.strip_prefix("http://"));
    let rest = rest.ok_or_else(|| refused("the URL begins with neither https:// nor http://"))?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    // A name before the host would hide which machine is asked.
    if host.is_empty() || base.contains(['@', '\\', ' ', '#', '?']) || base.contains("sig=") {
        return Err(refused("the URL has more than a host and a path"));
    }
    let path = if path.is_empty() { String::new() } else { format!("/{path}") };
    Ok((base.to_owned(), host, path))
}

/// The parts of a connection string that are used.
#[derive(Default)]
struct Parts {
    is_development: bool,
    protocol: Option<String>,
    account: Option<String>,
    key: Option<AccountKey>,
    sas: Option<String>,
    suffix: Option<String>,
    endpoint: Option<String>,
    secondary: Option<String>,
}

impl Parts {
    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let text = Some(value.to_owned());
        match name.to_ascii_lowercase().as_str() {
            "usedevelopmentstorage" => self.is_development = value.eq_ignore_ascii_case("true"),
            "defaultendpointsprotocol" => self.protocol = text,
            "accountname" => self.account = text,
            "accountkey" => {
                let key = AccountKey::read(value);
                self.key = Some(key.ok_or_else(|| refused("AccountKey is not Base64"))?);
            }
            "sharedaccesssignature" => self.sas = text,
            "endpointsuffix" => self.suffix = text,
            "tableendpoint" => self.endpoint = text,
            "tablesecondaryendpoint" => self.secondary = text,
            // Endpoints of the other services of an account.
            _ => {}
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Endpoint> {
        let secondary = self.secondary.take();
        let mut endpoint = self.primary()?;
        if let Some(url) = secondary {
            let (base, _, path) = split_url(&url)?;
            endpoint.secondary = Some((base, path));
        }
        Ok(endpoint)
    }

    fn primary(self) -> Result<Endpoint> {
        if self.is_development {
            let key = AccountKey::read(DEVELOPMENT_KEY).ok_or_else(|| refused("no key"))?;
            let url = self.endpoint.as_deref().unwrap_or(DEVELOPMENT_URL);
            return Endpoint::of_url(url, Some(DEVELOPMENT_ACCOUNT), Credential::Key(key));
        }
        let credential = match (self.key, self.sas) {
            (Some(key), _) => Credential::Key(key),
            (None, Some(sas)) => Credential::of_sas(&sas)?,
            (None, None) => return Err(refused("it has no AccountKey or SharedAccessSignature")),
        };
        if let Some(endpoint) = &self.endpoint {
            return Endpoint::of_url(endpoint, self.account.as_deref(), credential);
        }
        let account = self.account.ok_or_else(|| refused("it has no AccountName"))?;
        let protocol = self.protocol.as_deref().unwrap_or("https");
        let suffix = self.suffix.as_deref().unwrap_or("core.windows.net");
        let url = format!("{protocol}://{account}.table.{suffix}");
        Endpoint::of_url(&url, Some(&account), credential)
    }
}

impl Credential {
    fn of_sas(text: &str) -> Result<Self> {
        let text = text.trim_start_matches('?');
        let has_signature = text.split('&').any(|part| part.starts_with("sig="));
        match has_signature {
            true => Ok(Credential::Sas(text.to_owned())),
            false => Err(refused("a URL needs a shared access signature (sig=)")),
        }
    }
}

/// Reads the text that `env:NAME` or `file:PATH` names. Returns `None` for another text.
///
/// # Errors
/// `InvalidInput` if there is no such variable or it is empty, for a name that may be a connection
/// string, which no error shows, and for a file that is longer than 64 KiB or not UTF-8; `Io` if
/// the file cannot be read.
#[expect(clippy::disallowed_methods, reason = "a file of the user's, not of a database")]
pub(crate) fn referenced(text: &str) -> Result<Option<String>> {
    let Some(reference) = Reference::read(text) else { return Ok(None) };
    if !reference.is_valid() {
        return Err(refused(
            "the name after env: or file: is empty, begins with // or has one of ; ? & =",
        ));
    }
    let path = match reference {
        Reference::File(path) => path,
        Reference::Variable(name) => return variable(name).map(Some),
    };
    let failed = |error| Error::io(format!("read {path}"), error);
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(refused(&format!("{path} is longer than {} KiB", FILE_MAX >> 10)));
    }
    let text = String::from_utf8(bytes);
    text.map(Some).map_err(|_| refused(&format!("{path} is not UTF-8")))
}

fn variable(name: &str) -> Result<String> {
    let problem = match std::env::var(name) {
        Ok(text) if !text.trim().is_empty() => return Ok(text),
        Ok(_) => "is empty",
        Err(VarError::NotPresent) => "is not set (export it)",
        Err(VarError::NotUnicode(_)) => "is not UTF-8",
    };
    let text = format!("the environment variable {name} {problem}");
    Err(Error::refused_with(Code::InvalidInput, text))
}

/// Whether the host of a URL is this machine.
fn is_local(base: &str) -> bool {
    let host = split_url(base).map_or("", |parts| parts.1);
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_loopback = name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    is_loopback || name == "localhost" || name.ends_with(".localhost")
}

fn refused(problem: &str) -> Error {
    Error::refused_with(Code::InvalidInput, format!("the connection string is refused: {problem}"))
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({})", self.base)
    }
}
