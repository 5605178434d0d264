//! The `rowstone` program: parses arguments, runs commands, and prints tables or JSON. One file
//! per command or group of commands; `catalog` has those for tables, `data` those for entities,
//! `service` has `serve` and `sas`, `pressure` and `stress` are the command `stress`. `help`
//! groups the commands, `local_path` refuses paths that are URLs, `endpoint` opens Table
//! services, `unmatched` finds filters that cannot match, `layout` fits tables to the terminal.
//! `writer` executes a command's requests in this process or in the one that has the database
//! open, and `removal` asks before many entities are removed. JSON is in `json`.
//!
//! Exit status: 0 done; 1 the operation failed, or `compare` found differences; 2 usage, or the
//! database cannot be opened; 3 rows were rejected or not copied.

mod advise;
mod backup;
#[cfg(feature = "bench")]
mod bench;
mod billing;
mod catalog;
mod changes;
mod compare;
mod copy;
mod csv;
mod damage;
mod data;
mod describe;
#[cfg(any(fuzzing, feature = "fuzzing"))]
pub(crate) mod direct;
mod endpoint;
mod exec;
mod export;
mod failure;
mod files;
mod help;
#[cfg(feature = "bench")]
mod histogram;
mod import;
mod inspect;
mod interrupt;
mod layout;
mod local_path;
mod maintain;
mod moving;
mod open;
mod order;
mod output;
#[cfg(feature = "parquet")]
mod parquet;
mod partitions;
#[cfg(feature = "bench")]
mod pressure;
mod progress;
mod query;
mod removal;
#[cfg(feature = "rest")]
mod service;
#[cfg(feature = "shell")]
mod shell;
#[cfg(feature = "sim")]
mod sim;
mod stats;
#[cfg(all(unix, feature = "bench", feature = "sim"))]
mod stress;
#[cfg(feature = "remote")]
mod sync;
mod unmatched;
mod wear;
mod writer;

use std::ffi::OsString;
use std::process::ExitCode;

#[cfg(feature = "bench")]
use clap::Args;
use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use self::failure::{Outcome, exit_code};
#[cfg(feature = "bench")]
use crate::options::Durability;

/// An embedded store of typed entities, keyed by PartitionKey and RowKey.
///
/// A database is a directory. A command creates it only where its help says so, and says that it
/// did. `rowstone COMMAND --help` explains a command, with examples.
#[derive(Parser)]
#[command(name = "rowstone", version, after_long_help = TOUR)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const TOUR: &str = "\
A first look:
  rowstone put shop parts \\
      '{\"PartitionKey\":\"bolts\",\"RowKey\":\"m4x20\",\"Price\":0.12}'
  rowstone scan shop parts
  rowstone get shop parts bolts m4x20 --format json
  rowstone query shop parts --filter 'Price lt 0.5'
  rowstone verify shop

Exit status:
  0  done
  1  the operation failed; `compare`: there are differences
  2  wrong usage, or the database cannot be opened
  3  an import rejected rows, or a copy left entities out, and did the rest
  130  an import was ended by Ctrl-C and has committed the rows it had read";

/// Declares the subcommands by their names and the types of their arguments. Each type has a method
/// `run`, which executes the command.
macro_rules! commands {
    ($($(#[$attribute:meta])* $name:ident($arguments:ty),)*) => {
        #[derive(Subcommand)]
        enum Command {
            $($(#[$attribute])* $name($arguments),)*
            #[cfg(feature = "rest")]
            #[command(flatten)]
            Service(service::Command),
            #[cfg(feature = "shell")]
            #[command(flatten)]
            Shell(shell::Command),
        }

        impl Command {
            fn run(self) -> Outcome<ExitCode> {
                match self {
                    $($(#[$attribute])* Self::$name(command) => command.run()?,)*
                    #[cfg(feature = "rest")]
                    Self::Service(command) => return Ok(command.run()),
                    #[cfg(feature = "shell")]
                    Self::Shell(command) => {
                        command.run(help::completed(Arguments::command()), execute)?
                    }
                }
                Ok(ExitCode::SUCCESS)
            }
        }
    };
}

commands! {
    CreateTable(catalog::CreateTable),
    DropTable(catalog::DropTable),
    Ttl(catalog::Ttl),
    Tables(catalog::Tables),
    Describe(describe::Describe),
    Import(import::Import),
    Export(export::Export),
    Put(data::Put),
    Get(data::Get),
    Delete(data::Delete),
    Scan(data::Scan),
    Query(query::Query),
    Exec(exec::Exec),
    Stats(stats::Stats),
    Wear(wear::WearCommand),
    Inspect(inspect::Inspect),
    Partitions(partitions::Partitions),
    Advise(advise::Advise),
    Changes(changes::ChangesCommand),
    Verify(maintain::Verify),
    Heal(damage::Heal),
    Repair(damage::Repair),
    Salvage(damage::Salvage),
    Compact(maintain::Compact),
    Checkpoint(maintain::Checkpoint),
    Backup(backup::Backup),
    Backups(backup::BackupsCommand),
    Restore(backup::Restore),
    Gate(moving::Gate),
    ExportRange(moving::ExportRange),
    ImportRange(moving::ImportRange),
    Compare(compare::Compare),
    Copy(copy::Copy),
    CheckRefs(copy::CheckRefs),
    #[cfg(feature = "remote")]
    Sync(sync::SyncCommand),
    #[cfg(feature = "sim")]
    Sim(sim::Sim),
    #[cfg(feature = "bench")]
    Stress(Stress),
    #[cfg(feature = "bench")]
    Bench(Box<bench::Bench>),
}

#[cfg(feature = "bench")]
/// Stress one partition at an application's peak rate.
///
/// With the feature sim also: kill this program repeatedly, and compare the data that it kept with
/// a model.
#[derive(Args)]
#[command(after_long_help = stress_help())]
struct Stress {
    /// A directory that is missing or empty; it is not removed
    dir: endpoint::Place,
    /// The failure that an acknowledged write survives [default: sync with --partition, else random
    /// at each start]
    #[arg(long, value_enum)]
    durability: Option<Durability>,
    #[command(flatten)]
    format: output::FormatArgs,
    #[command(flatten)]
    pressure: pressure::Pressure,
    #[cfg(feature = "remote")]
    #[command(flatten)]
    account: endpoint::AccountArgs,
    #[cfg(all(unix, feature = "bench", feature = "sim"))]
    #[command(flatten)]
    soak: stress::Stress,
}

#[cfg(all(unix, feature = "bench", feature = "sim"))]
fn stress_help() -> String {
    format!("{}\n\n{}", stress::HELP, pressure::HELP)
}

#[cfg(all(feature = "bench", not(all(unix, feature = "sim"))))]
fn stress_help() -> &'static str {
    pressure::HELP
}

#[cfg(feature = "bench")]
impl Stress {
    fn run(self) -> Outcome {
        let Self { dir, durability, format, pressure, .. } = self;
        let json = format.is_json()?;
        #[cfg(feature = "remote")]
        if let Some(service) = self.account.open(&dir)? {
            service.refuse(&[("--durability", durability.is_some())])?;
            return pressure.run_at(&service, json);
        }
        #[cfg(all(unix, feature = "bench", feature = "sim"))]
        if !pressure.is_asked() {
            return self.soak.run(dir.to_path_buf(), durability, json);
        }
        pressure.run(&dir, durability, json)
    }
}

/// Runs the command that `arguments` name. The first one is the name of the program, as in the
/// arguments of a process.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let outcome = match help::completed(Arguments::command()).try_get_matches_from(arguments) {
        Ok(matches) => execute(&matches),
        Err(help) if help.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            help.print().map_err(Into::into).map(|()| ExitCode::from(2))
        }
        Err(error) if error.use_stderr() => Err(error.into()),
        Err(help) => help.print().map_err(Into::into).map(|()| ExitCode::SUCCESS),
    };
    outcome.unwrap_or_else(|failure| exit_code(Err(failure)))
}

/// Runs the command that `matches` names.
fn execute(matches: &ArgMatches) -> Outcome<ExitCode> {
    if let Some(failure) = matches.subcommand_name().and_then(help::missing) {
        return Err(failure);
    }
    Arguments::from_arg_matches(matches)?.command.run()
}
