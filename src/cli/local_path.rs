//! Parses the paths among the arguments: refuses a URL, a connection string or the name of a Table
//! service, which would become the name of a directory. `endpoint` parses the arguments that may be
//! a service.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command, Error, ValueHint};

use crate::store::foreign;

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
