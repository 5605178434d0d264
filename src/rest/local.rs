//! Protects accounts with a publicly known key. The server answers requests for such an account
//! only if their `Host` is a loopback name or address.
//!
//! The threat: any page in a browser may send requests to loopback and sign them with the public
//! key. With a host name of its own that resolves to loopback it could also read the answers.
//!
//! Invariants
//! * an account with a public key is served only under loopback names and addresses;
//! * no page of another site writes to it, unless a CORS rule of the account allows that origin.

use std::net::IpAddr;

use crate::rest::protocol::fault::{Fault, Known};
use crate::rest::protocol::headers::Headers;

use super::accounts::Account;
use super::request::Request;
use super::settings;

/// Refuses a request that a page of another site may have sent, if `account` has a public key.
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
    // Only browsers send `Sec-Fetch-Site`. Its value is `cross-site` if the requesting page belongs
    // to another site.
    let is_foreign = request.value("Sec-Fetch-Site").is_some_and(|site| site == "cross-site");
    if is_write && is_foreign && !settings::is_shared(request, account) {
        return Err(Known::CorsPreflightFailure.into());
    }
    Ok(())
}

/// Whether `host`, the value of a `Host` header, is a loopback name or address.
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
