//! The commands of the Table service: `serve`, `sas`.
//!
//! Not here: everything about requests and tokens (`rest`).

mod accounts;
mod sas;
mod serve;

use std::process::ExitCode;

use clap::Subcommand;

#[derive(Subcommand)]
pub(super) enum Command {
    Serve(Box<serve::Serve>),
    Sas(Box<sas::Sas>),
}

impl Command {
    pub(super) fn run(self) -> ExitCode {
        match self {
            Command::Serve(command) => command.run(),
            Command::Sas(command) => super::exit_code(command.run()),
        }
    }
}
