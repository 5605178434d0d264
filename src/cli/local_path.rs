//! Parses the paths among the arguments: refuses a URL, a connection string or the name of a Table
//! service, which would become the name of a directory. `endpoint` parses the arguments that may be
//! a service.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command, Error, ValueHint};

use crate::store::Reference;

/// The names of the parts of a connection string that have an account, a key or an address.
const PARTS: [&str; 12] = [
    "accountkey",
    "accountname",
    "blobendpoint",
    "defaultendpointsprotocol",
    "endpoint",
    "endpointsuffix",
    "password",
    "sharedaccesskey",
    "sharedaccesssignature",
    "sig",
    "tableendpoint",
    "usedevelopmentstorage",
];

/// The ends of the names of hosts of the service.
const HOSTS: [&str; 2] = [".core.windows.net", ".cosmos.azure.com"];

/// Parses a path. The message of a refusal does not repeat the argument, which may have a key.
#[derive(Clone)]
struct LocalPath;

impl TypedValueParser for LocalPath {
    type Value = PathBuf;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<PathBuf, Error> {
        if let Some(kind) = value.to_str().and_then(foreign) {
            let name = argument.map(Arg::to_string).unwrap_or_default();
            let next = match argument.is_some_and(|argument| argument.get_id() == "db") {
                true => "\n  try: `rowstone help copy` tells how to bring its tables here",
                false => "",
            };
            let message = format!("{name} is {kind}, but must be a path; nothing was made{next}\n");
            return Err(Error::raw(ErrorKind::ValueValidation, message).with_cmd(command));
        }
        PathBufValueParser::new().parse_ref(command, argument, value)
    }
}

/// Makes every path among the arguments of `command` and of its subcommands a [`LocalPath`].
pub(super) fn checked(command: Command) -> Command {
    let checked_argument = |argument: Arg| match argument.get_value_hint() {
        ValueHint::AnyPath => argument.value_parser(LocalPath),
        _ => argument,
    };
    command.mut_args(checked_argument).mut_subcommands(checked)
}

/// Says what `text` is if it is no path of this machine. A URL begins with a scheme, which has two
/// letters or more, unlike the drives of some systems, or with the name of a host of the service.
pub(super) fn foreign(text: &str) -> Option<&'static str> {
    let text = text.trim_start();
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    let is_scheme = |scheme: &str| {
        scheme.len() > 1
            && scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    if scheme.is_some_and(is_scheme) {
        return Some("a URL");
    }
    if Reference::read(text).is_some() {
        return Some("the name of a Table service");
    }
    let names = text.split([';', '?', '&']).filter_map(|part| part.split_once('='));
    let mut names = names.map(|(name, _)| name.trim().to_ascii_lowercase());
    if names.any(|name| PARTS.contains(&&*name)) {
        return Some("a connection string");
    }
    let host = text.split(['/', ':']).next().unwrap_or_default().to_ascii_lowercase();
    HOSTS.iter().any(|domain| host.ends_with(domain)).then_some("a URL")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_connection_strings_are_no_paths() {
        for url in [
            "https://a.table.core.windows.net/",
            "file:///tmp/db",
            "s3://bucket/db",
            " https://a",
            "a.table.core.windows.net",
            "A.table.cosmos.azure.com:443/T",
        ] {
            assert_eq!(foreign(url), Some("a URL"), "{url}");
        }
        let keys = "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=b==";
        let signed = "a.table.core.windows.net/T?sv=2019-02-02&sig=b%3D";
        let bus = "Endpoint=sb://a.net/;SharedAccessKey=b=";
        for text in
            [keys, "UseDevelopmentStorage=true", "accountkey=b==", signed, "Password=b", bus]
        {
            assert_eq!(foreign(text), Some("a connection string"), "{text}");
        }
        for name in ["env:STORE", "file:/etc/store", " ENV:STORE", "File:store"] {
            assert_eq!(foreign(name), Some("the name of a Table service"), "{name}");
        }
        for path in [
            "./env:STORE",
            "db",
            "/var/lib/shop",
            "../a=b",
            "a;b",
            "c:\\db",
            "./https://x",
            "x://y",
            "=;",
        ] {
            assert_eq!(foreign(path), None, "{path}");
        }
    }
}
