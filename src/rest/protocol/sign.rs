//! Signs requests with the schemes Shared Key and Shared Key Lite, and verifies such signatures.
//!
//! Invariants
//! * the time to compare signatures does not depend on where they differ;
//! * no formatting of a key, such as `Debug`, shows the key.
//!
//! Not here: signatures in query strings (`sas`), and the list of keys of each account
//! (`accounts`).

use std::fmt;

use base64::engine::{Engine as _, general_purpose::STANDARD as BASE64};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::address::{Parameter, Parameters};
use super::fault::{Fault, Known};
use super::headers::Headers;
use super::time;
use crate::clock::TICKS_PER_SECOND;
use crate::model::DateTime;
use crate::named::named;

/// The account for development on a local machine. Its name and key are public.
pub(crate) const DEVELOPMENT_ACCOUNT: &str = "devstoreaccount1";
/// The key of the development account, which is public.
pub(crate) const DEVELOPMENT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// The maximum difference between the date of a request and the current time.
const SKEW_TICKS: u64 = 15 * 60 * TICKS_PER_SECOND;
const SECONDARY: &str = "-secondary";

/// A key of an account.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct AccountKey(Vec<u8>);

named! {
/// The signature scheme, which determines the parts of a request that are signed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Scheme {
        SharedKey "SharedKey",
        SharedKeyLite "SharedKeyLite",
    }

    pub(crate) fn as_str;
}

/// `Authorization: SharedKey acme:signature`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Authorization<'a> {
    pub(crate) scheme: Scheme,
    pub(crate) account: &'a str,
    pub(crate) signature: &'a str,
}

/// The parts of a request that are signed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignedParts<'a> {
    /// The method in the request line, even if `X-HTTP-Method` overrides it.
    pub(crate) method: &'a str,
    /// The path in the request line, with its escapes.
    pub(crate) path: &'a str,
    pub(crate) comp: Option<&'a str>,
    pub(crate) content_md5: &'a str,
    pub(crate) content_type: &'a str,
    /// The value of `x-ms-date`, or else of `Date`.
    pub(crate) date: &'a str,
}

impl AccountKey {
    /// Decodes a key from Base64, the encoding in which users know their keys.
    pub(crate) fn read(text: &str) -> Option<AccountKey> {
        let key = BASE64.decode(text.trim()).ok()?;
        (!key.is_empty()).then_some(AccountKey(key))
    }

    /// Returns the signature of `text`, in Base64.
    pub(crate) fn sign(&self, text: &str) -> String {
        self.mac(text).map(|mac| BASE64.encode(mac.finalize().into_bytes())).unwrap_or_default()
    }

    /// Whether `signature` is the signature of `text`. The comparison takes constant time.
    pub(crate) fn verify(&self, text: &str, signature: &str) -> bool {
        match (self.mac(text), BASE64.decode(signature)) {
            (Some(mac), Ok(signature)) => mac.verify_slice(&signature).is_ok(),
            _ => false,
        }
    }

    fn mac(&self, text: &str) -> Option<Hmac<Sha256>> {
        // Always returns `Some`, because HMAC accepts keys of any length.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        mac.update(text.as_bytes());
        Some(mac)
    }
}

impl fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccountKey(…)")
    }
}

impl<'a> Authorization<'a> {
    /// Reads the header's value.
    ///
    /// # Errors
    /// `InvalidAuthenticationInfo`, with status 401 for a bearer token, which is not supported.
    pub(crate) fn read(text: &'a str) -> Result<Authorization<'a>, Fault> {
        let malformed = || Fault::from(Known::InvalidAuthenticationInfo);
        let (scheme, rest) = text.trim().split_once(' ').ok_or_else(malformed)?;
        let scheme = match scheme {
            "SharedKey" => Scheme::SharedKey,
            "SharedKeyLite" => Scheme::SharedKeyLite,
            _ if scheme.eq_ignore_ascii_case("Bearer") => {
                let (_, status, message) = Known::NoAuthenticationInformation.parts();
                return Err(Fault { status, ..malformed().with_message(message) });
            }
            _ => return Err(malformed()),
        };
        let (account, signature) = rest.trim().split_once(':').ok_or_else(malformed)?;
        if account.is_empty() || signature.is_empty() {
            return Err(malformed());
        }
        Ok(Authorization { scheme, account, signature })
    }

    /// Checks that the request was signed with one of the account's keys.
    ///
    /// # Errors
    /// `AuthenticationFailed`, with the text that should have been signed.
    pub(crate) fn verify(
        &self,
        request: &SignedParts<'_>,
        keys: &[AccountKey],
    ) -> Result<(), Fault> {
        let account = self.account.strip_suffix(SECONDARY).unwrap_or(self.account);
        let paths = [Some(request.path.to_owned()), other_location(request.path, account)];
        for path in paths.into_iter().flatten() {
            let text =
                string_to_sign(self.scheme, account, &SignedParts { path: &path, ..*request });
            // Always tries all keys, so that the time does not reveal which one matches.
            let matches = keys.iter().filter(|key| key.verify(&text, self.signature)).count();
            if matches > 0 {
                return Ok(());
            }
        }
        let text = string_to_sign(self.scheme, account, request);
        Err(Fault::unauthenticated(&format!(
            "The MAC signature found in the HTTP request '{}' is not the same as any computed \
             signature. Server used following string to sign: '{text}'.",
            self.signature
        )))
    }
}

impl fmt::Display for Authorization<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}:{}", self.scheme.as_str(), self.account, self.signature)
    }
}

impl<'a> SignedParts<'a> {
    /// Returns the signed parts of a request with these headers.
    pub(crate) fn of<H: Headers + ?Sized>(
        method: &'a str,
        path: &'a str,
        query: &'a Parameters,
        headers: &'a H,
    ) -> SignedParts<'a> {
        let value = |name| headers.value(name).unwrap_or_default();
        SignedParts {
            method,
            path,
            comp: query.get(Parameter::Comp),
            content_md5: value("Content-MD5"),
            content_type: value("Content-Type"),
            date: date(headers).unwrap_or_default(),
        }
    }

    /// Signs the request as a client does, and returns the value of the `Authorization` header.
    #[cfg(any(test, fuzzing, feature = "fuzzing", feature = "remote"))]
    pub(crate) fn sign(&self, scheme: Scheme, account: &str, key: &AccountKey) -> String {
        let signature = key.sign(&string_to_sign(scheme, account, self));
        Authorization { scheme, account, signature: &signature }.to_string()
    }
}

/// Checks that the date of a signed request is present and close to the current time.
///
/// # Errors
/// `AuthenticationFailed`.
pub(crate) fn check_date<H: Headers + ?Sized>(headers: &H, now: DateTime) -> Result<(), Fault> {
    let text = date(headers).ok_or_else(|| Fault::unauthenticated("The request has no date."))?;
    let malformed = || Fault::unauthenticated(&format!("The date '{text}' is not of RFC 1123."));
    let date = time::read_http(text).ok_or_else(malformed)?;
    if date.ticks().abs_diff(now.ticks()) <= SKEW_TICKS {
        return Ok(());
    }
    let now = time::http(now);
    Err(Fault::unauthenticated(&format!(
        "SignedParts date header too old or too new: '{text}', while it is '{now}'."
    )))
}

fn date<H: Headers + ?Sized>(headers: &H) -> Option<&str> {
    let given = |name| headers.value(name).filter(|value| !value.is_empty());
    given("x-ms-date").or_else(|| given("Date"))
}

fn string_to_sign(scheme: Scheme, account: &str, request: &SignedParts<'_>) -> String {
    let SignedParts { method, path, comp, content_md5, content_type, date } = request;
    let slash = if path.starts_with('/') { "" } else { "/" };
    let comp = comp.map(|comp| format!("?comp={comp}")).unwrap_or_default();
    let resource = format!("/{account}{slash}{path}{comp}");
    match scheme {
        Scheme::SharedKey => format!("{method}\n{content_md5}\n{content_type}\n{date}\n{resource}"),
        Scheme::SharedKeyLite => format!("{date}\n{resource}"),
    }
}

/// An account has a primary and a secondary location. Returns the path of the same resource at the
/// location that `path` does not name. Clients sign requests to the secondary with either path.
fn other_location(path: &str, account: &str) -> Option<String> {
    let rest = path.strip_prefix('/')?.strip_prefix(account)?;
    let (rest, suffix) = rest.strip_prefix(SECONDARY).map_or((rest, SECONDARY), |rest| (rest, ""));
    let is_whole = rest.is_empty() || rest.starts_with('/');
    is_whole.then(|| format!("/{account}{suffix}{rest}"))
}

#[cfg(test)]
mod tests;
