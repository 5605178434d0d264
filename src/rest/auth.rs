//! Authenticates the clients of requests, and checks their rights.
//!
//! Invariants
//! * a request is carried out only if its client has proved to hold a key of the account, or a
//!   token signed with such a key;
//! * a token's table, keys and rights are checked separately for each operation of a batch.
//!
//! `protocol::sign` verifies signatures, and `protocol::sas` parses tokens.

use crate::query::Filter;
use crate::rest::protocol::address::{Parameter, Target};
use crate::rest::protocol::fault::{Fault, Known};
use crate::rest::protocol::headers::Headers;
use crate::rest::protocol::sas::{Action, Circumstances, Sas};
use crate::rest::protocol::sign::{Authorization, SignedParts, check_date};
use crate::rest::protocol::{sas, settings};

use super::accounts::Account;
use super::request::Request;

/// The rights of an authenticated client. A client with a key of the account has all rights; a
/// client with a token has the rights of its token.
#[derive(Debug)]
pub(super) struct Grant(Option<sas::Grant>);

/// Authenticates the client of a request.
///
/// # Errors
/// `AuthenticationFailed` and the other errors of `protocol::sign` and `protocol::sas`.
pub(super) fn authenticate(
    request: &Request,
    account: &Account,
    target: &Target,
) -> Result<Grant, Fault> {
    let keys = account.keys();
    if let Some(text) = request.value("Authorization") {
        let authorization = Authorization::read(text)?;
        let named = authorization.account;
        if named.strip_suffix("-secondary").unwrap_or(named) != account.name {
            return Err(Fault::unauthenticated("The key is that of another account."));
        }
        check_date(request, request.received)?;
        let signed = SignedParts::of(&request.method, &request.path, &target.query, request);
        authorization.verify(&signed, &keys)?;
        return Ok(Grant(None));
    }
    let Some(token) = Sas::read(&target.query)? else {
        return Err(Known::AuthenticationFailed.into());
    };
    token.verify(&account.name, &keys)?;
    let circumstances = Circumstances {
        now: request.received,
        address: request.peer,
        is_https: request.is_encrypted,
    };
    let policy = match &token {
        Sas::Service(sas) => sas.policy.as_ref().and_then(|id| policy(account, &sas.table, id)),
        Sas::Account(_) => None,
    };
    Ok(Grant(Some(token.grant(policy.as_ref(), &circumstances)?)))
}

fn policy(account: &Account, table: &str, id: &str) -> Option<settings::Policy> {
    account.policies(table).ok()?.into_iter().find(|policy| policy.id == id)
}

impl Grant {
    /// Returns the signature of the client's token; `None` if the client has a key.
    pub(super) fn token<'t>(&self, target: &'t Target) -> Option<&'t str> {
        self.0.as_ref().and_then(|_| target.query.get(Parameter::SasSignature))
    }

    /// Returns an error if the grant does not allow the operation.
    ///
    /// # Errors
    /// 403 with the code of the reason.
    pub(super) fn allow(&self, action: Action, table: Option<&str>) -> Result<(), Fault> {
        self.0.as_ref().map_or(Ok(()), |grant| grant.check(action, table))
    }

    /// Returns an error unless the client authenticated with a key of the account.
    pub(super) fn allow_owner(&self) -> Result<(), Fault> {
        self.0.as_ref().map_or(Ok(()), |_| Err(Known::AuthorizationFailure.into()))
    }

    /// Returns an error if the grant does not cover the entity with these keys.
    pub(super) fn check_keys(&self, partition_key: &str, row_key: &str) -> Result<(), Fault> {
        self.0.as_ref().map_or(Ok(()), |grant| grant.check_keys(partition_key, row_key))
    }

    /// Restricts a query's filter to the entities that the grant covers.
    pub(super) fn within(&self, filter: Filter) -> Filter {
        match self.0.as_ref().and_then(|grant| grant.bounds.filter()) {
            Some(bounds) => bounds.and(filter),
            None => filter,
        }
    }
}
