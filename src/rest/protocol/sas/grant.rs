//! The rights of a verified token: period of validity, client addresses, operations and entities.

use std::cmp::Ordering;
use std::net::{IpAddr, Ipv4Addr};

use super::token::{KeyBounds, Sas, ServiceSas, Terms, malformed};
use crate::clock::TICKS_PER_SECOND;
use crate::error::Code;
use crate::model::{DateTime, utf16_cmp};
use crate::query::{Filter, prop};
use crate::rest::protocol::fault::{Fault, Known};
use crate::rest::protocol::headers::Version;
use crate::rest::protocol::settings::Policy;
use crate::rest::protocol::time;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    GetProperties,
    SetProperties,
    GetStats,
    QueryTables,
    CreateTable,
    DeleteTable,
    /// Reading or writing the access policies of a table. No token grants it: it requires an
    /// account key.
    Policies,
    /// Querying the entities of a table.
    Query,
    /// Getting one entity.
    Get,
    Insert,
    /// A replace or a merge of an existing entity.
    Update,
    Upsert,
    Delete,
}

/// The time of a request, and how it reached the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    pub(crate) now: DateTime,
    pub(crate) address: IpAddr,
    pub(crate) is_https: bool,
}

/// The rights of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    permissions: String,
    scope: Scope,
    /// The entities that the token covers.
    pub(crate) bounds: KeyBounds,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Scope {
    /// The entities of one table. `hides` is true for tokens of old versions: a refused operation
    /// is then reported as not found.
    Table { name: String, hides: bool },
    /// The parameter `srt`: one letter for each permitted type of resource.
    Account { resource_types: String },
}

/// The permissions on entities as letters, in the order that a token must use.
const PERMISSIONS: &str = "raud";
/// The maximum period of validity of a token without a policy and without a version (`sv`), as
/// issued by the first versions of the protocol.
const OLD_LIFE_TICKS: u64 = 3600 * TICKS_PER_SECOND;

impl Sas {
    /// Returns the current rights of the token, whose signature must have been verified. `policy`
    /// is the stored access policy that the token names, if it exists.
    ///
    /// # Errors
    /// `AuthenticationFailed`, `InvalidQueryParameterValue`, `AuthorizationSourceIPMismatch`,
    /// `AuthorizationProtocolMismatch`, `AuthorizationServiceMismatch`.
    pub(crate) fn grant(
        &self,
        policy: Option<&Policy>,
        circumstances: &Circumstances,
    ) -> Result<Grant, Fault> {
        match self {
            Sas::Service(sas) => sas.grant(policy, circumstances),
            Sas::Account(sas) => {
                let terms = &sas.terms;
                let expiry = terms.time(&terms.expiry, "se")?.ok_or_else(|| malformed("se"))?;
                check_time(terms.time(&terms.start, "st")?, expiry, circumstances.now)?;
                terms.check_origin(circumstances)?;
                if !sas.services.contains('t') {
                    return Err(Known::AuthorizationServiceMismatch.into());
                }
                let permissions = terms.permissions.clone().ok_or_else(|| malformed("sp"))?;
                let scope = Scope::Account { resource_types: sas.resource_types.clone() };
                Ok(Grant { permissions, scope, bounds: KeyBounds::default() })
            }
        }
    }
}

impl ServiceSas {
    fn grant(&self, policy: Option<&Policy>, now: &Circumstances) -> Result<Grant, Fault> {
        let Self { terms, bounds, .. } = self;
        let policy = match (&self.policy, policy) {
            (Some(id), Some(policy)) if *id == policy.id => Some(policy),
            (Some(_), _) => return Err(malformed("si")),
            (None, _) => None,
        };
        let access = policy.and_then(|policy| policy.access.as_ref());
        let start = terms.time(&terms.start, "st")?;
        let start = one(start, access.and_then(|access| access.start), "st")?;
        let given = terms.time(&terms.expiry, "se")?;
        let expiry = one(given, access.and_then(|access| access.expiry), "se")?;
        let permissions = access.and_then(|access| access.permissions.clone());
        let given = terms.permissions.clone().filter(|letters| !letters.is_empty());
        let is_given = given.is_some();
        let permissions = one(given, permissions, "sp")?;
        let expiry = expiry.ok_or_else(|| malformed("se"))?;
        let permissions = permissions.ok_or_else(|| malformed("sp"))?;
        if is_given && !is_ordered(&permissions) {
            return Err(malformed("sp"));
        }
        let is_halved = bounds.start_row.is_some() && bounds.start_partition.is_none()
            || bounds.end_row.is_some() && bounds.end_partition.is_none();
        if is_halved {
            return Err(malformed("spk and epk"));
        }
        check_time(start, expiry, now.now)?;
        let life = expiry.ticks().saturating_sub(start.unwrap_or(now.now).ticks());
        let is_unversioned = terms.version.is_none_or(|version| version < Version::SIGNED_VERSION);
        if is_unversioned && policy.is_none() && life > OLD_LIFE_TICKS {
            return Err(malformed("se"));
        }
        terms.check_origin(now)?;
        let hides = terms.version.is_none_or(|version| version < Version::ACCOUNT_SAS);
        let scope = Scope::Table { name: self.table.clone(), hides };
        Ok(Grant { permissions, scope, bounds: bounds.clone() })
    }
}

impl Terms {
    fn time(&self, field: &Option<String>, name: &str) -> Result<Option<DateTime>, Fault> {
        let given = field.as_deref().filter(|text| !text.is_empty());
        given.map(|text| time::read_iso(text).ok_or_else(|| malformed(name))).transpose()
    }

    fn check_origin(&self, circumstances: &Circumstances) -> Result<(), Fault> {
        if let Some(addresses) = self.addresses.as_deref().filter(|text| !text.is_empty()) {
            let (first, last) = addresses.split_once('-').unwrap_or((addresses, addresses));
            let read = |text: &str| text.trim().parse::<Ipv4Addr>().map_err(|_| malformed("sip"));
            let range = read(first)?..=read(last)?;
            let address = match circumstances.address {
                IpAddr::V4(address) => Some(address),
                IpAddr::V6(address) => address.to_ipv4_mapped(),
            };
            if !address.is_some_and(|address| range.contains(&address)) {
                return Err(Known::AuthorizationSourceIPMismatch.into());
            }
        }
        match self.protocols.as_deref() {
            None | Some("" | "https,http" | "http,https") => Ok(()),
            Some("https") if circumstances.is_https => Ok(()),
            Some("https") => Err(Known::AuthorizationProtocolMismatch.into()),
            Some(_) => Err(malformed("spr")),
        }
    }
}

impl Grant {
    /// Checks that the token allows `action`, on `table` if the action concerns a table.
    ///
    /// # Errors
    /// `AuthorizationFailure`, `AuthorizationPermissionMismatch`,
    /// `AuthorizationResourceTypeMismatch`; for old tokens `ResourceNotFound`.
    pub(crate) fn check(&self, action: Action, table: Option<&str>) -> Result<(), Fault> {
        let has = |letters: &str| letters.chars().all(|letter| self.permissions.contains(letter));
        let has_one = |letters: &str| letters.chars().any(|l| self.permissions.contains(l));
        let is_of_entities = match action {
            Action::Query
            | Action::Get
            | Action::Insert
            | Action::Update
            | Action::Upsert
            | Action::Delete => true,
            Action::Policies => return Err(Known::AuthorizationFailure.into()),
            _ => false,
        };
        match &self.scope {
            Scope::Table { name, .. } => {
                let is_its = table.is_some_and(|table| table.eq_ignore_ascii_case(name));
                if !is_of_entities || !is_its {
                    return Err(Known::AuthorizationFailure.into());
                }
            }
            Scope::Account { resource_types } => {
                let allowed = match action {
                    // Some servers treat a query as an operation on the container (`c`), others on
                    // its objects (`o`). Tokens made for either are accepted.
                    Action::Query => resource_types.contains(['o', 'c']),
                    _ if is_of_entities => resource_types.contains('o'),
                    Action::QueryTables | Action::CreateTable | Action::DeleteTable => {
                        resource_types.contains('c')
                    }
                    _ => resource_types.contains('s'),
                };
                if !allowed {
                    return Err(Known::AuthorizationResourceTypeMismatch.into());
                }
            }
        }
        let allowed = match action {
            Action::GetProperties | Action::GetStats | Action::Query | Action::Get => has("r"),
            Action::SetProperties => has("w"),
            Action::QueryTables => has("l"),
            Action::CreateTable => has_one("cw"),
            Action::DeleteTable | Action::Delete => has("d"),
            Action::Insert => has("a"),
            Action::Update => has("u"),
            Action::Upsert => has("au"),
            Action::Policies => false,
        };
        match (allowed, &self.scope) {
            (true, _) => Ok(()),
            (false, Scope::Table { hides: true, .. }) => Err(Code::ResourceNotFound.into()),
            (false, _) => Err(Known::AuthorizationPermissionMismatch.into()),
        }
    }

    /// Checks that the token covers the entity with these keys.
    ///
    /// # Errors
    /// `AuthorizationFailure`.
    pub(crate) fn check_keys(&self, partition_key: &str, row_key: &str) -> Result<(), Fault> {
        let is_covered = self.bounds.contain(partition_key, row_key);
        if is_covered { Ok(()) } else { Err(Known::AuthorizationFailure.into()) }
    }
}

impl KeyBounds {
    pub(crate) fn contain(&self, partition_key: &str, row_key: &str) -> bool {
        let side = |partition: &Option<String>, row: &Option<String>, inside: Ordering| {
            let Some(partition) = partition else { return true };
            match utf16_cmp(partition_key.as_bytes(), partition.as_bytes()) {
                Ordering::Equal => {
                    let row = row.as_ref().map(|row| utf16_cmp(row_key.as_bytes(), row.as_bytes()));
                    row.is_none_or(|order| order == inside || order == Ordering::Equal)
                }
                order => order == inside,
            }
        };
        side(&self.start_partition, &self.start_row, Ordering::Greater)
            && side(&self.end_partition, &self.end_row, Ordering::Less)
    }

    /// Returns the bounds as a filter, which a plan turns into key ranges; `None` for all entities.
    pub(crate) fn filter(&self) -> Option<Filter> {
        let start = self.start_partition.as_ref().map(|partition| match &self.start_row {
            None => prop("PartitionKey").ge(partition.as_str()),
            Some(row) => prop("PartitionKey").gt(partition.as_str()).or(prop("PartitionKey")
                .eq(partition.as_str())
                .and(prop("RowKey").ge(row.as_str()))),
        });
        let end = self.end_partition.as_ref().map(|partition| match &self.end_row {
            None => prop("PartitionKey").le(partition.as_str()),
            Some(row) => prop("PartitionKey").lt(partition.as_str()).or(prop("PartitionKey")
                .eq(partition.as_str())
                .and(prop("RowKey").le(row.as_str()))),
        });
        match (start, end) {
            (Some(start), Some(end)) => Some(start.and(end)),
            (start, end) => start.or(end),
        }
    }
}

/// Returns the value of a field that may be set by the token or by the policy, but not by both.
fn one<T>(given: Option<T>, stored: Option<T>, field: &str) -> Result<Option<T>, Fault> {
    match (given, stored) {
        (Some(_), Some(_)) => {
            let reason = "The stored access policy has this field, too.";
            Err(Fault::parameter(field, "", reason))
        }
        (given, stored) => Ok(given.or(stored)),
    }
}

fn check_time(start: Option<DateTime>, expiry: DateTime, now: DateTime) -> Result<(), Fault> {
    if start.is_none_or(|start| start <= now) && now < expiry {
        return Ok(());
    }
    let start = start.map(time::http).unwrap_or_default();
    Err(Fault::unauthenticated(&format!(
        "Signature not valid in the specified time frame: Start [{start}] - Expiry [{}] - Current [{}]",
        time::http(expiry),
        time::http(now)
    )))
}

/// Whether all letters are permissions on entities, without repetition and in the required order.
pub(crate) fn is_ordered(permissions: &str) -> bool {
    let mut places = permissions.chars().map(|letter| PERMISSIONS.find(letter));
    let mut last = None;
    places.all(|place| place.is_some() && std::mem::replace(&mut last, place) < place)
}
