//! Protects accounts with a publicly known key. They are served to local clients only, on loopback.
//!
//! Any page in a browser may send requests to loopback, sign them with the public key, and read the
//! answers through a name that resolves to loopback.
//!
//! Invariants
//! * such an account is served only under names of loopback;
//! * no page of another site writes to it, unless a rule of the account allows the page's origin.
//!
//! Not here: rules (`settings`), addresses that may be listened to (`check_exposure`).

use std::net::IpAddr;

use crate::rest::protocol::fault::{Fault, Known};
use crate::rest::protocol::headers::Headers;

use super::accounts::Account;
use super::request::Request;
use super::settings;

/// Refuses requests that no legitimate client of a public account sends.
///
/// # Errors
/// `AuthorizationFailure`, `CorsPreflightFailure`.
pub(super) fn check(request: &Request, account: &Account) -> Result<(), Fault> {
    if !account.is_public() {
        return Ok(());
    }
    if !is_local(request.host()) {
        return Err(Fault::from(Known::AuthorizationFailure).with_message(
            "The key of this account is public, so it is served as localhost or 127.0.0.1 only.",
        ));
    }
    let is_write = !matches!(request.method.as_str(), "GET" | "HEAD" | "OPTIONS");
    // Only browsers send this header. It shows whether the page that makes the request is of
    // another site.
    let is_foreign = request.value("Sec-Fetch-Site").is_some_and(|site| site == "cross-site");
    if is_write && is_foreign && !settings::is_shared(request, account) {
        return Err(Known::CorsPreflightFailure.into());
    }
    Ok(())
}

/// Whether a `Host` is a name of loopback.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    if let Ok(address) = name.parse::<IpAddr>() {
        return address.is_loopback();
    }
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_loopback() {
        for host in [
            "localhost",
            "LocalHost:10002",
            "localhost.",
            "devstoreaccount1.table.localhost:10002",
            "127.0.0.1",
            "127.9.9.9:80",
            "[::1]",
            "[::1]:10002",
        ] {
            assert!(is_local(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:10002",
            "localhost.evil.example",
            "notlocalhost",
            "127.0.0.1.evil.example",
            "192.0.2.1",
            "[2001:db8::1]:80",
            "0.0.0.0",
        ] {
            assert!(!is_local(host), "{host}");
        }
    }
}
