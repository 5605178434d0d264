//! Parses and writes the addresses of requests: path, query string and `Host` header.
//!
//! Invariants
//! * parsing first splits the raw path, then decodes percent-escapes, then reads quoted literals.
//!   So an escaped slash or quote is part of a key;
//! * the address written for a key reads back as that key.
//!
//! Not here: which methods a resource supports, and whether a table exists or may have its name.

mod encoding;
mod parameters;

#[cfg(feature = "rest")]
pub(crate) use parameters::extra_parameter;
pub(crate) use parameters::{Parameter, Parameters, put_query};

use super::fault::{Fault, Known};
use encoding::{decode, is_plain};

use crate::error::Code;
pub(crate) use encoding::put_encoded;

/// The resource that an address names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// The account's base address.
    Service,
    /// `Tables`.
    Tables,
    /// `Tables('people')`.
    Table(String),
    /// `people`, `people()`.
    Entities(String),
    /// `people(PartitionKey='p',RowKey='r')`.
    Entity { table: String, key: Key },
    /// `$batch`.
    Batch,
    /// `$metadata`.
    Metadata,
    /// The path after the account, if it names no resource of the service.
    Unknown(String),
}

/// The keys in an address; see [`check`](Self::check).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) partition_key: String,
    pub(crate) row_key: String,
}

/// A parsed address of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The account's name without `-secondary`; empty if the path names no account.
    pub(crate) account: String,
    pub(crate) secondary: bool,
    /// The path before the resource: empty, or the account, such as `/devstoreaccount1`.
    pub(crate) root: String,
    pub(crate) resource: Resource,
    pub(crate) query: Parameters,
}

/// Where an address names the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// In the host if one of the host's labels after the first is `table`, otherwise in the path.
    ByHost,
    /// `/ACCOUNT/…`
    Path,
}

const SECONDARY: &str = "-secondary";
/// If a label of a host after the first is this word, the first label names the account.
const SERVICE_LABEL: &str = "table";

impl Key {
    /// Refuses keys with characters that no key can contain. If the request reads (`reads`), the
    /// error is that the entity was not found, as in the Azure service.
    pub(crate) fn check(&self, reads: bool) -> Result<(), Fault> {
        let chars = || self.partition_key.chars().chain(self.row_key.chars());
        let is_odd = |c| matches!(c, '/' | '\\' | '#' | '?' | '\0'..='\x1f' | '\x7f'..='\u{9f}');
        if !chars().any(is_odd) {
            return Ok(());
        }
        Err(match reads {
            true => Code::ResourceNotFound.into(),
            false if chars().any(|c| matches!(c, '/' | '\\')) => Fault::query_syntax(),
            false => Code::OutOfRangeInput.into(),
        })
    }
}

impl Style {
    fn is_host(self, host: &str) -> bool {
        let mut labels = host_name(host).split('.').skip(1);
        match self {
            Style::ByHost => labels.any(|label| label.eq_ignore_ascii_case(SERVICE_LABEL)),
            Style::Path => false,
        }
    }
}

/// Reads an address: path and query string as in the request line, and the `Host` header.
///
/// # Errors
/// `HostInformationNotPresent`; [`Fault::invalid_url`] for control characters; `InvalidInput` for
/// malformed keys and for a repeated parameter; `NotImplemented` for unknown options that begin
/// with `$`.
pub(crate) fn read(path: &str, query: &str, host: &str, style: Style) -> Result<Target, Fault> {
    let query = Parameters::read(query)?;
    if style != Style::Path && host.is_empty() {
        return Err(Known::HostInformationNotPresent.into());
    }
    let rest = path.strip_prefix('/').unwrap_or(path);
    let (account, root, rest) = if style.is_host(host) {
        let account = host_name(host).split('.').next().unwrap_or_default();
        (account.to_ascii_lowercase(), String::new(), rest)
    } else {
        let (account, rest) = rest.split_once('/').unwrap_or((rest, ""));
        (decode(account, false)?, ["/", account].concat(), rest)
    };
    let (account, secondary) = match account.strip_suffix(SECONDARY) {
        Some(account) => (account.to_owned(), true),
        None => (account, false),
    };
    let resource = match account.is_empty() {
        true => Resource::Unknown(String::new()),
        false => read_resource(rest)?,
    };
    Ok(Target { account, secondary, root, resource, query })
}

impl Target {
    /// Reads the address of an operation in a batch that was sent to `self`. The address is a full
    /// URL, or a path with or without the account.
    pub(crate) fn read_inner(&self, url: &str) -> Result<Target, Fault> {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let path = match path.split_once("://") {
            // A key may contain `://`, but a host never contains an opening parenthesis.
            Some((before, rest)) if !before.contains(['/', '(']) => match rest.find('/') {
                Some(at) => rest.get(at..).unwrap_or_default(),
                None => "",
            },
            _ => path,
        };
        let path = path.strip_prefix('/').unwrap_or(path);
        let own = |first: &str| first.strip_suffix(SECONDARY).unwrap_or(first) == self.account;
        let rest = match path.split_once('/') {
            Some((first, rest)) if own(first) => rest,
            _ => path,
        };
        Ok(Target {
            account: self.account.clone(),
            secondary: self.secondary,
            root: self.root.clone(),
            resource: read_resource(rest)?,
            query: Parameters::read(query)?,
        })
    }

    /// Returns the account's address with a trailing slash, as it appears in responses.
    pub(crate) fn base(&self, scheme: &str, host: &str) -> String {
        [scheme, "://", host, &self.root, "/"].concat()
    }
}

/// Returns `people(PartitionKey='p',RowKey='r')`, escaped as the service does: quotes are doubled
/// but not percent-encoded.
pub(crate) fn entity_path(table: &str, partition_key: &str, row_key: &str) -> String {
    let keys = partition_key.len() + row_key.len();
    let mut out = String::with_capacity(table.len() + keys + 32);
    put_entity_path(&mut out, table, partition_key, row_key);
    out
}

/// Appends the path that [`entity_path`] returns.
pub(crate) fn put_entity_path(out: &mut String, table: &str, partition_key: &str, row_key: &str) {
    out.push_str(table);
    out.push_str("(PartitionKey='");
    put_literal(out, partition_key);
    out.push_str("',RowKey='");
    put_literal(out, row_key);
    out.push_str("')");
}

/// Returns the number of bytes that [`put_entity_path`] appends.
pub(crate) fn entity_path_len(table: &str, partition_key: &str, row_key: &str) -> usize {
    const AROUND: usize = "(PartitionKey='',RowKey='')".len();
    let len = |byte| match byte {
        b'\'' => 2,
        byte if is_plain(byte) => 1,
        _ => 3,
    };
    let literals = partition_key.bytes().chain(row_key.bytes()).map(len);
    table.len() + AROUND + literals.sum::<usize>()
}

/// Returns `Tables('people')`.
pub(crate) fn table_path(name: &str) -> String {
    let mut out = String::from("Tables('");
    put_literal(&mut out, name);
    out.push_str("')");
    out
}

/// Returns `host` without its port.
fn host_name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Reads the path after the account, without its first slash.
fn read_resource(path: &str) -> Result<Resource, Fault> {
    let path = path.trim_matches('/');
    let text = decode(path, false)?;
    if text.chars().any(is_refused_by_front_end) {
        return Err(Fault::invalid_url());
    }
    let Some((name, predicate)) = text.split_once('(') else {
        return Ok(match text.as_str() {
            "" => Resource::Service,
            "$batch" => Resource::Batch,
            "$metadata" => Resource::Metadata,
            name if name.eq_ignore_ascii_case("Tables") => Resource::Tables,
            name if name.starts_with('$') || path.contains('/') => Resource::Unknown(text),
            _ => Resource::Entities(text),
        });
    };
    let (name, predicate) = (name.trim(), predicate.trim_end());
    let predicate = predicate.strip_suffix(')').ok_or_else(Fault::query_syntax)?;
    // An escaped slash is part of the name, which no table can have.
    let raw_name = path.split('(').flat_map(|part| part.split("%28")).next().unwrap_or_default();
    if name.is_empty() || raw_name.contains('/') || name.starts_with('$') && name.len() > 1 {
        return Ok(Resource::Unknown(text));
    }
    match (name.eq_ignore_ascii_case("Tables"), predicate.trim().is_empty()) {
        (true, true) => Ok(Resource::Tables),
        (false, true) => Ok(Resource::Entities(name.to_owned())),
        (true, false) => read_table_name(predicate).map(Resource::Table),
        (false, false) => {
            Ok(Resource::Entity { table: name.to_owned(), key: read_key(predicate)? })
        }
    }
}

/// Reads `'people'` or `TableName='people'`.
fn read_table_name(predicate: &str) -> Result<String, Fault> {
    let text = predicate.trim_start();
    let text = match text.strip_prefix("TableName") {
        Some(rest) => rest.trim_start().strip_prefix('=').ok_or_else(Fault::query_syntax)?,
        None => text,
    };
    let (name, rest) = read_literal(text).ok_or_else(Fault::query_syntax)?;
    if rest.trim().is_empty() { Ok(name) } else { Err(Fault::query_syntax()) }
}

/// Reads `PartitionKey='p',RowKey='r'` in either order.
fn read_key(predicate: &str) -> Result<Key, Fault> {
    let (mut partition_key, mut row_key) = (None, None);
    let mut text = predicate;
    loop {
        let (name, rest) = text.split_once('=').ok_or_else(Fault::query_syntax)?;
        let place = match name.trim() {
            "PartitionKey" => &mut partition_key,
            "RowKey" => &mut row_key,
            _ => return Err(Fault::query_syntax()),
        };
        let (value, rest) = read_literal(rest).ok_or_else(Fault::query_syntax)?;
        if place.replace(value).is_some() {
            return Err(Fault::query_syntax());
        }
        let rest = rest.trim_start();
        match rest.strip_prefix(',') {
            Some(rest) => text = rest,
            None if rest.is_empty() => break,
            None => return Err(Fault::query_syntax()),
        }
    }
    match (partition_key, row_key) {
        (Some(partition_key), Some(row_key)) => Ok(Key { partition_key, row_key }),
        _ => Err(Code::InvalidInput.into()),
    }
}

/// Reads a quoted literal, in which a quote is written twice. Also returns the text after it.
fn read_literal(text: &str) -> Option<(String, &str)> {
    let mut rest = text.trim_start().strip_prefix('\'')?;
    let mut value = String::new();
    loop {
        let (part, after) = rest.split_once('\'')?;
        value.push_str(part);
        let Some(doubled) = after.strip_prefix('\'') else { return Some((value, after)) };
        value.push('\'');
        rest = doubled;
    }
}

/// Appends the content of a quoted literal, escaped.
fn put_literal(out: &mut String, text: &str) {
    for (i, part) in text.split('\'').enumerate() {
        if i > 0 {
            out.push_str("''");
        }
        put_encoded(out, part);
    }
}

fn is_refused_by_front_end(c: char) -> bool {
    matches!(c, '\0'..='\x1f' | '\x7f' | '\u{81}' | '\u{8d}' | '\u{8f}' | '\u{90}' | '\u{9d}')
}

#[cfg(test)]
mod tests;
