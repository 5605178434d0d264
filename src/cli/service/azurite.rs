//! `azurite-table`: `serve` with the options of the emulator's command of this name.
//!
//! docs/AZURITE.md compares both.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser};

use super::serve::Serve;
use crate::cli::failure::{Failure, eprint_line, exit_code};

/// Serve with the options of Azurite's command
#[derive(Args)]
#[command(rename_all = "camelCase", after_long_help = HELP)]
pub(in crate::cli) struct AzuriteTable {
    /// Where to listen: a loopback address, because the key of the development account is public
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    table_host: String,
    /// The port
    #[arg(long, value_name = "PORT", default_value_t = 10002)]
    table_port: u16,
    /// Seconds after which an idle connection is closed
    #[arg(long, value_name = "SECONDS")]
    table_keep_alive_timeout: Option<u64>,
    /// A directory, in which the database is the directory rowstone-tables
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    location: PathBuf,
    /// Keep the database in memory
    #[arg(long)]
    in_memory_persistence: bool,
    /// Log only problems of the server, and not each request
    #[arg(short, long)]
    silent: bool,
    /// Also log connections that end early; the log is on standard error, and FILE is not written
    #[arg(short, long, value_name = "FILE", conflicts_with = "silent")]
    debug: Option<PathBuf>,
    /// A certificate chain, a PEM file
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The key of the certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// No effect: each version of the protocol that the hosted service knows is permitted
    #[arg(long)]
    skip_api_version_check: bool,
    /// No effect: unknown headers and parameters are always ignored
    #[arg(short = 'L', long)]
    loose: bool,
    /// No effect: the account is always the first part of the path
    #[arg(long)]
    disable_product_style_url: bool,
    /// No effect: nothing is collected
    #[arg(long)]
    disable_telemetry: bool,
}

const HELP: &str = "\
With scripts that start Azurite's Table service, `rowstone azurite-table` takes its place. `serve` has
more options. docs/AZURITE.md lists what is stricter than Azurite, with the errors.

Not here: --oauth and --pwd, which are for tokens and for certificates in PFX. The accounts of the
environment variable AZURITE_ACCOUNTS are those of a file for `serve --accounts`, with which other
addresses than loopback can be served.

Examples:
  rowstone azurite-table --silent --location /tmp/tables
  rowstone azurite-table --inMemoryPersistence --tablePort 20002";

/// The variable with which Azurite gets accounts.
const ACCOUNTS: &str = "AZURITE_ACCOUNTS";
/// A file of Azurite in its directory.
const FOREIGN: &str = "__azurite_db_table__.json";

/// The line of arguments of `serve`.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(flatten)]
    serve: Serve,
}

impl AzuriteTable {
    pub(super) fn run(self) -> ExitCode {
        if std::env::var_os(ACCOUNTS).is_some() {
            let problem = format!(
                "{ACCOUNTS} is set, but only the development account is served\n  \
                 try: rowstone serve {} --accounts FILE",
                self.database().display()
            );
            return exit_code(Err(Failure::Usage(problem)));
        }
        if self.location.join(FOREIGN).exists() {
            eprint_line(&format!(
                "note: Azurite's data in {} is not read: docs/MOVING.md has a way to copy it",
                self.location.display()
            ));
        }
        match Line::try_parse_from(self.arguments()) {
            Ok(line) => line.serve.in_memory(self.in_memory_persistence).run(),
            Err(error) => exit_code(Err(Failure::Usage(error.to_string()))),
        }
    }

    fn database(&self) -> PathBuf {
        self.location.join("rowstone-tables")
    }

    /// Returns the arguments of `serve` that mean the same.
    fn arguments(&self) -> Vec<OsString> {
        let host = if self.table_host == "localhost" { "127.0.0.1" } else { &*self.table_host };
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let level = match (self.silent, &self.debug) {
            (true, _) => "problems",
            (false, Some(_)) => "connections",
            (false, None) => "requests",
        };
        let mut arguments = vec![self.database().into_os_string()];
        arguments.push(format!("--listen={host}:{}", self.table_port).into());
        arguments.push(format!("--log={level}").into());
        arguments
            .extend(self.table_keep_alive_timeout.map(|time| format!("--idle-time={time}").into()));
        let file = |name: &str, path: &Path| {
            let mut argument = OsString::from(name);
            argument.push(path);
            argument
        };
        arguments.extend(self.cert.iter().map(|path| file("--tls-cert=", path)));
        arguments.extend(self.key.iter().map(|path| file("--tls-key=", path)));
        arguments
    }
}
