//! The commands of the Table service: `serve`, `azurite-table`, `sas`.
//!
//! `rest` handles requests and verifies tokens.

mod accounts;
mod azurite;
mod backups;
mod sas;
mod serve;

use std::process::ExitCode;

use clap::Subcommand;

use super::failure::exit_code;

#[derive(Subcommand)]
pub(super) enum Command {
    Serve(Box<serve::Serve>),
    AzuriteTable(Box<azurite::AzuriteTable>),
    Sas(Box<sas::Sas>),
}

impl Command {
    pub(super) fn run(self) -> ExitCode {
        match self {
            Command::Serve(command) => command.run(),
            Command::AzuriteTable(command) => command.run(),
            Command::Sas(command) => exit_code(command.run()),
        }
    }
}
