//! Parses the argument of the commands that work with a directory and with a Table service, and
//! opens the service.
//!
//! Invariants
//! * an argument with a key or a signature is refused, because other users of the machine see the
//!   arguments of programs; the message does not repeat it;
//! * a refused argument creates nothing.
//!
//! `local_path` parses the arguments that are paths only.

#[cfg(all(feature = "bench", feature = "remote"))]
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Deref;
use std::path::{Path, PathBuf};

#[cfg(feature = "remote")]
use clap::Args;
use clap::builder::{TypedValueParser, ValueParserFactory};
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};

#[cfg(feature = "remote")]
use super::failure::{Failure, Outcome, eprint_line};
#[cfg(feature = "remote")]
use super::open::open_to_read;
use crate::store::{Reference, foreign};
#[cfg(feature = "remote")]
use crate::{
    billing::Bill,
    db::Db,
    error::{Code, Error as StoreError, ErrorKind as StoreErrorKind, Result},
    model::{ETag, Entity},
    store::pages::{PAGE_MAX, Side},
    store::remote::endpoint::referenced,
    store::{Condition, Dialect, Remote, RemoteOptions, TableStore},
};

/// The directory of a database, or the text that names a Table service.
#[derive(Clone, Debug)]
pub(super) struct Place(PathBuf);

/// The account of the services that are named by URLs.
#[cfg(feature = "remote")]
#[derive(Args)]
pub(super) struct AccountArgs {
    /// A database may also be a Table service: UseDevelopmentStorage=true, env:NAME or file:PATH (a
    /// variable or a file with a connection string), or a URL. This is the account of a URL: a file
    /// with a connection string or a shared access signature, or env:NAME
    #[arg(long, value_name = "FILE", value_parser = AccountFileParser)]
    account_file: Option<String>,
    /// A PEM file of the certificates that are trusted instead of those of the platform
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

/// Parses `--account-file`. The message of a refusal does not repeat the argument.
#[cfg(feature = "remote")]
#[derive(Clone)]
struct AccountFileParser;

#[cfg(feature = "remote")]
impl TypedValueParser for AccountFileParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, Error> {
        let name = argument.map(Arg::to_string).unwrap_or_default();
        let problem = match value.to_str() {
            Some(text) if reference(text).is_valid() => return Ok(text.to_owned()),
            Some(_) => "must be a file, file:PATH or env:NAME, without any of ; ? & =",
            None => "is not UTF-8",
        };
        let message = format!("{name} {problem}\n");
        Err(Error::raw(ErrorKind::ValueValidation, message).with_cmd(command))
    }
}

/// Returns what `--account-file` names; a file without a prefix.
#[cfg(feature = "remote")]
fn reference(text: &str) -> Reference<'_> {
    Reference::read(text).unwrap_or(Reference::File(text))
}

/// The texts that name a Table service, as the end of a message.
const ACCEPTED: &str = ", UseDevelopmentStorage=true, env:NAME, file:PATH, or a URL with \
                        --account-file: other users see the arguments of programs";

impl Deref for Place {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

#[derive(Clone)]
pub(super) struct PlaceParser;

impl ValueParserFactory for Place {
    type Parser = PlaceParser;

    fn value_parser() -> PlaceParser {
        PlaceParser
    }
}

impl TypedValueParser for PlaceParser {
    type Value = Place;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Place, Error> {
        let text = value.to_str().unwrap_or_default();
        let Some(kind) = foreign(text) else { return Ok(Place(value.into())) };
        let (accepted, next) = match (is_service(text), cfg!(feature = "remote")) {
            (true, true) => return Ok(Place(value.into())),
            (true, false) => (
                ": this build lacks the feature remote",
                "\n  try: cargo install rowstone --features remote",
            ),
            (false, _) => (ACCEPTED, ""),
        };
        let name = argument.map(Arg::to_string).unwrap_or_default();
        let message =
            format!("{name} is {kind}, but must be a path{accepted}; nothing was made{next}\n");
        Err(Error::raw(ErrorKind::ValueValidation, message).with_cmd(command))
    }
}

/// Whether `text` names a service, and has neither a key nor a signature.
fn is_service(text: &str) -> bool {
    let has_prefix = |prefix: &str| text.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty());
    let is_url = has_prefix("http://") || has_prefix("https://");
    match is_url {
        true => !text.contains(['?', '@', ';', '=']),
        false => {
            text.eq_ignore_ascii_case("UseDevelopmentStorage=true")
                || Reference::read(text).is_some_and(Reference::is_valid)
        }
    }
}

/// A Table service that is open.
#[cfg(feature = "remote")]
pub(super) struct Service {
    remote: Remote,
    /// Its URL, without a signature.
    pub(super) name: String,
}

/// A store that is read.
#[cfg(feature = "remote")]
pub(super) enum Store {
    Directory(Db),
    Service(Service),
}

#[cfg(feature = "remote")]
impl Store {
    /// Opens the directory `place` unless it is the `service`.
    pub(super) fn open_to_read(service: Option<Service>, place: &Place) -> Outcome<Self> {
        Ok(match service {
            Some(service) => Self::Service(service),
            None => Self::Directory(open_to_read(place)?),
        })
    }

    pub(super) fn get(&self) -> &dyn TableStore {
        match self {
            Self::Directory(db) => db,
            Self::Service(service) => &**service,
        }
    }

    pub(super) fn close(self) -> Outcome {
        match self {
            Self::Directory(db) => Ok(db.close()?),
            Self::Service(_) => Ok(()),
        }
    }
}

/// Returns the failure of a command whose status 1 reports a finding. A service that is not reached
/// is like a database that cannot be opened.
#[cfg(feature = "remote")]
pub(super) fn unread(error: StoreError) -> Failure {
    match error.kind() {
        StoreErrorKind::Io => Failure::Open(error),
        _ => Failure::Operation(error),
    }
}

#[cfg(feature = "remote")]
impl Deref for Service {
    type Target = dyn TableStore;

    fn deref(&self) -> &Self::Target {
        &self.remote
    }
}

#[cfg(feature = "remote")]
impl AccountArgs {
    /// Opens the service that `place` names; `None` for a directory. Sends nothing.
    pub(super) fn open(&self, place: &Place) -> Outcome<Option<Service>> {
        self.open_with(place, RemoteOptions::new())
    }

    /// As [`open`](Self::open), with further options.
    pub(super) fn open_with(
        &self,
        place: &Place,
        mut options: RemoteOptions,
    ) -> Outcome<Option<Service>> {
        let text = place.to_str().unwrap_or_default();
        if foreign(text).is_none() {
            return Ok(None);
        }
        if let Some(ca) = &self.ca {
            options = options.ca(ca);
        }
        let opened = match text.starts_with("http") {
            false => Remote::open_with(text, options),
            true => {
                let Some(file) = &self.account_file else {
                    let text = format!(
                        "{text} is a URL: it must be a path, or --account-file FILE must name its account"
                    );
                    return Err(Failure::Usage(text));
                };
                let source = match reference(file) {
                    Reference::Variable(name) => format!("env:{name}"),
                    Reference::File(path) => format!("file:{path}"),
                };
                let account = referenced(&source).map_err(|error| Failure::Usage(error.chain()))?;
                let joined = with_account(text, &account.unwrap_or_default())?;
                Remote::open_read(&joined, Some(source), options)
            }
        };
        let remote = opened.map_err(|error| Failure::Usage(format!("{text}: {error}")))?;
        let name = remote.name().to_owned();
        Ok(Some(Service { remote, name }))
    }
}

#[cfg(feature = "remote")]
impl Service {
    /// Reads the entities that match a filter, at most `top`, with at least the properties
    /// `select`.
    pub(super) fn rows<'s>(
        &'s self,
        table: &'s str,
        filter: &str,
        select: Option<&[String]>,
        top: Option<usize>,
    ) -> impl Iterator<Item = Result<Entity>> + use<'s> {
        let select = select.filter(|names| names.iter().all(|name| name != "*")).unwrap_or(&[]);
        let keys = ["PartitionKey", "RowKey", "Timestamp"].map(str::to_owned);
        let names = match select {
            [] => Vec::new(),
            select => select
                .iter()
                .chain(keys.iter().filter(|key| !select.contains(key)))
                .cloned()
                .collect(),
        };
        let top = top.unwrap_or(usize::MAX);
        let side = Side { store: &self.remote, table };
        side.rows(filter, &names, top.min(PAGE_MAX)).take(top)
    }

    /// The service, for its extensions.
    pub(super) fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Returns access whose queries are in descending order. Only a service with extensions has it.
    pub(super) fn reversed(&self) -> Outcome<Self> {
        self.refuse(&[("--reverse", !self.remote.has_extensions()?)])?;
        Ok(Self { remote: self.remote.reversed(), name: self.name.clone() })
    }

    /// Returns the transactions and bytes out of the requests so far.
    pub(super) fn bill(&self) -> Bill {
        self.remote.bill()
    }

    #[cfg(feature = "bench")]
    /// Returns the numbers of errors since the last call, by code. Each try counts.
    pub(super) fn take_errors(&self) -> BTreeMap<String, u64> {
        self.remote.take_errors()
    }

    /// Whether the signature may permit reads; a key does.
    pub(super) fn may_read(&self) -> bool {
        self.remote.may_read()
    }

    /// Prints a note if the signature covers only a range of keys. Returns whether it does.
    pub(super) fn note_hidden_keys(&self) -> bool {
        let hides = self.remote.hides_keys();
        if hides {
            eprint_line(&format!(
                "note: the signature for {} covers only a range of keys; other entities are not seen",
                self.name
            ));
        }
        hides
    }

    /// Refuses a service that does not sort query results by key.
    pub(super) fn check_order(&self) -> Outcome {
        if Dialect::at(&self.name).sorts_by_key() {
            return Ok(());
        }
        let text = format!(
            "{} does not sort query results by key, so `copy` and `compare` cannot read it: write \
             its table to a file with `export`, and read the file with `import`",
            self.name
        );
        Err(Failure::Usage(text))
    }

    /// Refuses options that only a directory has.
    pub(super) fn refuse(&self, options: &[(&str, bool)]) -> Outcome {
        match options.iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => {
                let text =
                    format!("{name} is for a directory, but {} is a Table service", self.name);
                Err(Failure::Usage(text))
            }
            None => Ok(()),
        }
    }
}

/// Creates a table unless it exists. An existing one is not created again, because a shared access
/// signature for a table cannot create tables.
#[cfg(feature = "remote")]
pub(super) fn create_missing_table(store: &dyn TableStore, table: &str) -> Outcome {
    match store.get(table, table, table, &["PartitionKey"]) {
        Err(error) if error.code() == Code::TableNotFound.as_str() => {}
        // The service was reached, but the signature may not cover this key. The writes that follow
        // report what is refused.
        Err(error) if error.kind() == StoreErrorKind::Io && !error.was_retried() => return Ok(()),
        found => return Ok(found.map(drop)?),
    }
    match store.create_table(table) {
        Err(error) if error.code() == Code::TableAlreadyExists.as_str() => Ok(()),
        created => Ok(created?),
    }
}

/// Returns the condition for an ETag that was given; any state without one.
#[cfg(feature = "remote")]
pub(super) fn condition(etag: Option<&str>) -> Outcome<Condition> {
    match etag {
        None | Some("*") => Ok(Condition::Any),
        Some(etag) => Ok(Condition::Match(etag.parse::<ETag>()?)),
    }
}

/// Returns a connection string for `url`. The account's own address does not count.
#[cfg(feature = "remote")]
fn with_account(url: &str, account: &str) -> Outcome<String> {
    let account = account.trim().trim_start_matches('?');
    let is_signature = account.split('&').any(|part| part.starts_with("sig="));
    if is_signature && !account.contains("://") && !account.contains(';') {
        return Ok(format!("{url}?{account}"));
    }
    let parts = account.split(';').map(str::trim).filter(|part| !part.is_empty());
    let name = |part: &str| part.split('=').next().unwrap_or_default().to_ascii_lowercase();
    let parts: Vec<&str> = parts.filter(|part| name(part) != "tableendpoint").collect();
    let has = |wanted: &str| parts.iter().any(|part| name(part) == wanted);
    if !has("accountkey") && !has("sharedaccesssignature") && !has("usedevelopmentstorage") {
        let text = "the file of --account-file has no connection string or shared access signature";
        return Err(Failure::Usage(text.to_owned()));
    }
    Ok(format!("{};TableEndpoint={url}", parts.join(";")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_with_a_key_name_no_service() {
        for text in [
            "UseDevelopmentStorage=true",
            "usedevelopmentstorage=TRUE",
            "env:STORE",
            "file:/etc/store",
            "ENV:STORE",
            "https://acme.table.core.windows.net",
            "http://127.0.0.1:10002/devstoreaccount1",
        ] {
            assert!(is_service(text) && foreign(text).is_some(), "{text}");
        }
        for text in [
            "UseDevelopmentStorage=true;AccountKey=a",
            "AccountName=a;AccountKey=b",
            "https://a.table.core.windows.net?sv=1&sig=x",
            "https://a:b@c/",
            "file:///etc/store",
            "s3://a",
            "file:AccountName=a;AccountKey=b",
            "env:sv=1&sig=x",
            "file:/etc/a?sig=x",
            "env:",
        ] {
            assert!(!is_service(text), "{text}");
        }
        for text in ["./env:STORE", "db", "env"] {
            assert!(!is_service(text) && foreign(text).is_none(), "{text}");
        }
    }

    #[cfg(feature = "remote")]
    #[test]
    fn an_account_is_joined_with_a_url() {
        let url = "http://127.0.0.1:1/acme";
        let joined = |account: &str| with_account(url, account).ok();
        let key = "AccountName=acme;AccountKey=a2V5";
        assert_eq!(joined(key), Some(format!("{key};TableEndpoint={url}")));
        let other = format!("{key};TableEndpoint=https://other;\n");
        assert_eq!(joined(&other), Some(format!("{key};TableEndpoint={url}")));
        assert_eq!(joined("?sv=1&sig=x\n"), Some(format!("{url}?sv=1&sig=x")));
        for text in ["", "AccountName=acme", "key"] {
            assert_eq!(joined(text), None, "{text}");
        }
    }
}
