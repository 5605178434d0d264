//! Shared access signatures: tokens in query strings that grant some operations for some time.
//!
//! Invariants
//! * unsigned fields cannot widen a grant: a field that the token's version does not sign makes
//!   the token invalid;
//! * a token grants only the operations that it names;
//! * an empty field counts as absent: both have the same signature, so neither may grant more.
//!
//! Not here: requests signed in headers (`sign`), where stored policies are kept (`settings`).

use crate::rest::protocol::address::{Parameter, Parameters, put_query};
use crate::rest::protocol::fault::{Fault, Known};
use crate::rest::protocol::headers::Version;
use crate::rest::protocol::sign::AccountKey;

/// A token: for the entities of one table (service SAS), or for an account (account SAS).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sas {
    Service(ServiceSas),
    Account(AccountSas),
}

/// The fields that both kinds of tokens have, as written in the token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// `None` for tokens of the first versions, which do not contain their version.
    pub(crate) version: Option<Version>,
    pub(crate) permissions: Option<String>,
    pub(crate) start: Option<String>,
    pub(crate) expiry: Option<String>,
    /// `sip`: an address, or two with a dash between them.
    pub(crate) addresses: Option<String>,
    /// `spr`: `https`, or `https,http`.
    pub(crate) protocols: Option<String>,
    pub(crate) signature: String,
}

/// A token for entities of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceSas {
    pub(crate) terms: Terms,
    pub(crate) table: String,
    pub(crate) policy: Option<String>,
    pub(crate) bounds: KeyBounds,
}

/// A token for an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AccountSas {
    pub(crate) terms: Terms,
    /// `ss`: letters of the permitted services; `t` is the Table service.
    pub(crate) services: String,
    /// `srt`: letters of the permitted types: `s` (service), `c` (container), `o` (object).
    pub(crate) resource_types: String,
    pub(crate) encryption_scope: Option<String>,
}

/// The entities that a token is limited to; both ends are inclusive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyBounds {
    pub(crate) start_partition: Option<String>,
    pub(crate) start_row: Option<String>,
    pub(crate) end_partition: Option<String>,
    pub(crate) end_row: Option<String>,
}

impl Sas {
    /// Reads the token of a request; `None` if it has none.
    ///
    /// # Errors
    /// `AuthenticationFailed` if a field is missing or malformed; `FeatureVersionMismatch` if the
    /// token has a field that its version does not sign.
    pub(crate) fn read(query: &Parameters) -> Result<Option<Sas>, Fault> {
        let Some(signature) = query.get(Parameter::SasSignature) else { return Ok(None) };
        let text = |name| query.get(name).map(str::to_owned);
        let given = |name| text(name).filter(|text| !text.is_empty());
        let known = |text| Version::known(text).ok_or_else(|| malformed("sv"));
        let version = query.get(Parameter::SasVersion).map(known).transpose()?;
        let terms = Terms {
            version,
            permissions: text(Parameter::SasPermissions),
            start: text(Parameter::SasStart),
            expiry: text(Parameter::SasExpiry),
            addresses: text(Parameter::SasAddresses),
            protocols: text(Parameter::SasProtocols),
            // Undoes the decoding of an unescaped `+`, which occurs in Base64, as a space.
            signature: signature.replace(' ', "+"),
        };
        if query.get(Parameter::SasServices).is_some()
            || query.get(Parameter::SasResourceTypes).is_some()
        {
            let sas = AccountSas {
                terms,
                services: text(Parameter::SasServices).ok_or_else(|| malformed("ss"))?,
                resource_types: text(Parameter::SasResourceTypes)
                    .ok_or_else(|| malformed("srt"))?,
                encryption_scope: text(Parameter::SasEncryptionScope),
            };
            return sas.check_version().map(|()| Some(Sas::Account(sas)));
        }
        let sas = ServiceSas {
            terms,
            table: text(Parameter::SasTable).ok_or_else(|| malformed("tn"))?,
            policy: given(Parameter::SasPolicy),
            bounds: KeyBounds {
                start_partition: given(Parameter::SasStartPartition),
                start_row: given(Parameter::SasStartRow),
                end_partition: given(Parameter::SasEndPartition),
                end_row: given(Parameter::SasEndRow),
            },
        };
        sas.check_version().map(|()| Some(Sas::Service(sas)))
    }

    /// Checks that one of the account's keys signed the token.
    ///
    /// # Errors
    /// `AuthenticationFailed`.
    pub(crate) fn verify(&self, account: &str, keys: &[AccountKey]) -> Result<(), Fault> {
        let (text, signature) = match self {
            Sas::Service(sas) => (sas.string_to_sign(account), &sas.terms.signature),
            Sas::Account(sas) => (sas.string_to_sign(account), &sas.terms.signature),
        };
        // Always tries all keys, so that the time does not reveal which one matches.
        if keys.iter().filter(|key| key.verify(&text, signature)).count() > 0 {
            return Ok(());
        }
        Err(Fault::unauthenticated(&format!(
            "Signature did not match. String to sign used was {text}"
        )))
    }
}

impl Terms {
    fn text(field: &Option<String>) -> &str {
        field.as_deref().unwrap_or_default()
    }

    fn version_text(&self) -> &'static str {
        self.version.map(Version::as_str).unwrap_or_default()
    }

    /// Returns the token: the fields `own`, then the fields of these terms in their usual order.
    fn token(&self, own: &[(Parameter, Option<&str>)]) -> String {
        let common = [
            (Parameter::SasVersion, self.version.map(Version::as_str)),
            (Parameter::SasStart, self.start.as_deref()),
            (Parameter::SasExpiry, self.expiry.as_deref()),
            (Parameter::SasPermissions, self.permissions.as_deref()),
            (Parameter::SasAddresses, self.addresses.as_deref()),
            (Parameter::SasProtocols, self.protocols.as_deref()),
            (Parameter::SasSignature, Some(self.signature.as_str())),
        ];
        let pairs = own.iter().copied().chain(common);
        let given = pairs.filter_map(|(name, value)| Some((name.as_str(), value?)));
        let mut query = String::new();
        put_query(&mut query, given);
        query.split_off(1.min(query.len()))
    }
}

impl ServiceSas {
    /// Signs the token and returns it.
    pub(crate) fn sign(mut self, account: &str, key: &AccountKey) -> Self {
        self.terms.signature = key.sign(&self.string_to_sign(account));
        self
    }

    /// Returns the token as a query string, without a question mark.
    pub(crate) fn token(&self) -> String {
        let bounds = &self.bounds;
        self.terms.token(&[
            (Parameter::SasTable, Some(self.table.as_str())),
            (Parameter::SasPolicy, self.policy.as_deref()),
            (Parameter::SasStartPartition, bounds.start_partition.as_deref()),
            (Parameter::SasStartRow, bounds.start_row.as_deref()),
            (Parameter::SasEndPartition, bounds.end_partition.as_deref()),
            (Parameter::SasEndRow, bounds.end_row.as_deref()),
        ])
    }

    pub(super) fn string_to_sign(&self, account: &str) -> String {
        let Self { terms, table, policy, bounds } = self;
        let version = terms.version;
        let is_since = |since| version.is_some_and(|version| version >= since);
        let table = table.to_lowercase();
        let resource = match is_since(Version::TABLE_RESOURCE) {
            true => format!("/table/{account}/{table}"),
            false => format!("/{account}/{table}"),
        };
        let text = Terms::text;
        let (permissions, start) = (text(&terms.permissions), text(&terms.start));
        let mut lines =
            vec![permissions, start, text(&terms.expiry), resource.as_str(), text(policy)];
        if is_since(Version::ACCOUNT_SAS) {
            lines.extend([text(&terms.addresses), text(&terms.protocols)]);
        }
        if is_since(Version::SIGNED_VERSION) {
            lines.push(terms.version_text());
            lines.extend([text(&bounds.start_partition), text(&bounds.start_row)]);
            lines.extend([text(&bounds.end_partition), text(&bounds.end_row)]);
        }
        lines.join("\n")
    }

    fn check_version(&self) -> Result<(), Fault> {
        let Self { terms, bounds, .. } = self;
        let is_before = |since| terms.version.is_none_or(|version| version < since);
        let has_new = terms.addresses.is_some() || terms.protocols.is_some();
        if is_before(Version::ACCOUNT_SAS) && has_new
            || is_before(Version::SIGNED_VERSION) && *bounds != KeyBounds::default()
        {
            return Err(Known::FeatureVersionMismatch.into());
        }
        Ok(())
    }
}

impl AccountSas {
    /// Signs the token and returns it.
    pub(crate) fn sign(mut self, account: &str, key: &AccountKey) -> Self {
        self.terms.signature = key.sign(&self.string_to_sign(account));
        self
    }

    /// Returns the token as a query string, without a question mark.
    pub(crate) fn token(&self) -> String {
        self.terms.token(&[
            (Parameter::SasServices, Some(self.services.as_str())),
            (Parameter::SasResourceTypes, Some(self.resource_types.as_str())),
            (Parameter::SasEncryptionScope, self.encryption_scope.as_deref()),
        ])
    }

    fn string_to_sign(&self, account: &str) -> String {
        let Self { terms, services, resource_types, encryption_scope } = self;
        let text = Terms::text;
        let mut lines = vec![account, text(&terms.permissions), services, resource_types];
        lines.extend([text(&terms.start), text(&terms.expiry)]);
        lines.extend([text(&terms.addresses), text(&terms.protocols), terms.version_text()]);
        if terms.version.is_some_and(|version| version >= Version::ENCRYPTION_SCOPE) {
            lines.push(text(encryption_scope));
        }
        // Every line of the signed text ends with a line feed, including the last one.
        lines.push("");
        lines.join("\n")
    }

    fn check_version(&self) -> Result<(), Fault> {
        if self.terms.version.is_none_or(|version| version < Version::ACCOUNT_SAS) {
            return Err(malformed("sv"));
        }
        let is_old = self.terms.version.is_none_or(|version| version < Version::ENCRYPTION_SCOPE);
        match self.encryption_scope.is_some() && is_old {
            true => Err(Known::FeatureVersionMismatch.into()),
            false => Ok(()),
        }
    }
}

pub(super) fn malformed(field: &str) -> Fault {
    let detail = format!("{field} is mandatory, and must be well-formed.");
    Fault::unauthenticated(&detail)
}
