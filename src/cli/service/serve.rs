//! `serve`: offers the Table service over HTTP, until a signal stops it.
//!
//! `rest` handles the requests.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::RangedU64ValueParser;

use super::accounts::{read_accounts, read_text};
use super::backups::BackupArgs;
use crate::behave::Behaviour;
use crate::cli::failure::{Failure, Outcome, folded};
use crate::cli::open::{OpenArgs, set};
use crate::db::Db;
use crate::error::Error;
use crate::options::{Options, Targets};
use crate::rest::accounts::{AccountConfig, Accounts};
use crate::rest::http::limits::Limits;
use crate::rest::http::log_writer::LogWriter;
use crate::rest::protocol::sign::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};
use crate::rest::{self, Settings, Site, TlsFiles};

/// The address at which clients expect a local Table service.
const DEFAULT_ADDRESS: &str = "127.0.0.1:10002";

/// Serve a database to clients of Azure Table storage
#[derive(Args)]
#[command(after_long_help = SERVE_HELP)]
pub(in crate::cli) struct Serve {
    /// The database: a directory, created if it is missing or empty
    db: PathBuf,
    /// Where to listen; addresses other than loopback require --accounts with private keys
    #[arg(long, default_value = DEFAULT_ADDRESS, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// A JSON file with the accounts to serve instead of the public development account
    #[arg(long, value_name = "FILE")]
    accounts: Option<PathBuf>,
    /// Answer 503 to requests that exceed the service's scalability targets
    #[arg(long)]
    throttle: bool,
    /// Serve TLS with this certificate chain, a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Also listen here for GET /metrics in the Prometheus text format
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Let the web page change entities
    #[arg(long)]
    allow_edit: bool,
    /// Also serve the change feed, range deletes, counts and reverse order to clients with the
    /// account's key
    #[arg(long)]
    extensions: bool,
    /// Misbehave on purpose, to test clients: a JSON file of rules (docs/BEHAVE.md), or one of the
    /// profiles flaky, throttled-2010 and rebalancing
    #[arg(long, value_name = "FILE|PROFILE")]
    behave: Option<PathBuf>,
    /// The seed of the choices of --behave
    #[arg(long, value_name = "N", default_value_t = 0, requires = "behave")]
    seed: u64,
    /// Maximum number of concurrent connections; further connections are answered 503
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    connections_max: usize,
    /// Maximum number of requests executed at the same time, of which one client gets three
    /// quarters; further requests are answered 503
    #[arg(long, value_name = "N", default_value_t = Limits::default().requests)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    requests_max: usize,
    /// Seconds after which a connection is closed if no byte arrives, or if the next request's head
    /// is not complete
    #[arg(long, value_name = "SECONDS", default_value_t = seconds(|limits| limits.idle_time))]
    #[arg(value_parser = clap::value_parser!(u64).range(SECONDS))]
    idle_time: u64,
    /// Seconds from the opening of a connection to the end of its first request's head
    #[arg(long, value_name = "SECONDS", default_value_t = seconds(|limits| limits.header_time))]
    #[arg(value_parser = clap::value_parser!(u64).range(SECONDS), hide_short_help = true)]
    header_time: u64,
    /// Seconds from the end of a request's head to the end of its body
    #[arg(long, value_name = "SECONDS", default_value_t = seconds(|limits| limits.body_time))]
    #[arg(value_parser = clap::value_parser!(u64).range(SECONDS), hide_short_help = true)]
    body_time: u64,
    /// Seconds for a client to receive an answer of more than 64 KiB, plus one for each 64 KiB
    #[arg(long, value_name = "SECONDS", default_value_t = seconds(|limits| limits.send_time))]
    #[arg(value_parser = clap::value_parser!(u64).range(SECONDS), hide_short_help = true)]
    send_time: u64,
    /// Seconds for requests in progress to end after a stop
    #[arg(long, value_name = "SECONDS", default_value_t = seconds(|limits| limits.drain_time))]
    #[arg(value_parser = clap::value_parser!(u64).range(SECONDS), hide_short_help = true)]
    drain_time: u64,
    #[command(flatten)]
    backups: BackupArgs,
    #[command(flatten)]
    open: OpenArgs,
    /// Which events are logged on standard error: short lines on a terminal, JSON elsewhere
    #[arg(long, value_enum, default_value_t = rest::LogLevel::Requests)]
    log: rest::LogLevel,
    /// Whether the database is in memory.
    #[arg(skip)]
    in_memory: bool,
}

const SERVE_HELP: &str = r#"The development account, on loopback only because its key is public:
  rowstone serve shop
  UseDevelopmentStorage=true, or
  DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;TableEndpoint=http://127.0.0.1:10002/devstoreaccount1;

Accounts of your own, each with one or two keys in Base64 and, but for one, a database of its own:
  [{"name":"acme","keys":["MDEyMzQ1Njc4OTo7PD0+Pw=="]},
   {"name":"labs","keys":["..."],"database":"labs.db"}]
  rowstone serve shop --listen 0.0.0.0:10002 --accounts accounts.json
SIGHUP reads the file again: keys change without a restart, and an account that is gone has none.
SIGTERM and Ctrl-C finish running requests, sync and stop; a second one closes all connections.

A log of at most 2 GiB, which drops its oldest entities:
  rowstone serve shop --max-disk 2147483648 --drop-oldest log

The change feed, also with requests that wait for a commit, deletes of ranges, counts and reverse
order, which Azure Table storage does not have, for clients with a key of the account:
  rowstone serve shop --extensions

A service that fails now and then, to test clients:
  rowstone serve /tmp/test --behave flaky --seed 1

Scheduled backups:
  rowstone serve shop --backup-to /mnt/backups/shop --backup-every 1h --keep 24

While it runs, commands that write to the same database send their requests to the server, through the
socket CONTROL in the directory of the database.

A page for people is at http://127.0.0.1:10002/"#;

/// From 1 s to 1 day, so that adding such a time to the clock cannot overflow.
const SECONDS: RangeInclusive<u64> = 1..=86_400;

fn seconds(of: impl Fn(&Limits) -> Duration) -> u64 {
    of(&Limits::default()).as_secs()
}

impl Serve {
    pub(super) fn in_memory(self, in_memory: bool) -> Self {
        Self { in_memory, ..self }
    }

    pub(super) fn run(self) -> ExitCode {
        let (log, guard) = LogWriter::start(self.log);
        let (status, text) = match self.serve(&log) {
            Ok(()) => (0, None),
            Err(failure) => failure.message(),
        };
        text.iter().for_each(|text| log.verbatim(folded(text).trim_end()));
        drop(guard);
        ExitCode::from(status)
    }

    fn serve(&self, log: &LogWriter) -> Outcome {
        let configs = self.read_accounts()?;
        rest::check_exposure(&self.listen, &configs).map_err(Failure::Usage)?;
        let limits = Limits {
            connections: self.connections_max,
            requests: self.requests_max,
            idle_time: Duration::from_secs(self.idle_time),
            header_time: Duration::from_secs(self.header_time),
            body_time: Duration::from_secs(self.body_time),
            send_time: Duration::from_secs(self.send_time),
            drain_time: Duration::from_secs(self.drain_time),
            ..Limits::default()
        };
        let settings = Settings {
            allow_edit: self.allow_edit,
            is_throttled: self.throttle,
            extensions: self.extensions,
        };
        let behaviour = self.behaviour()?;
        let tls = self.tls_cert.clone().zip(self.tls_key.clone());
        let site = Site {
            listen: self.listen,
            metrics: self.metrics,
            tls: tls.map(|(cert, key)| TlsFiles { cert, key }),
            limits,
            settings,
            behaviour,
            log: log.clone(),
        };
        let ready = rest::prepare(site).map_err(Failure::Other)?;
        let mut backed_up = Vec::new();
        let accounts = Accounts::open(configs, |config| {
            let db = self.open(config)?;
            let note = |text: String| log.verbatim(folded(&format!("note: {text}")).trim_end());
            db.without_companion().iter().for_each(|why| note(why.to_string()));
            // Otherwise the event `opened` tells it.
            if db.opened().created && !self.in_memory && self.log < rest::LogLevel::Requests {
                note(format!("created the database {}", self.path_of(config).display()));
            }
            let name = self.accounts.as_ref().map(|_| &*config.name);
            backed_up.extend(self.backups.dir(name).map(|dir| (dir, db.clone())));
            Outcome::Ok(db)
        })?;
        let reread = || self.reread_accounts();
        let greet = |at, metrics| self.greet(log, at, metrics);
        let serve = |stop_backups: &dyn Fn()| {
            ready.serve(accounts, reread, greet, stop_backups).map_err(Failure::Other)
        };
        self.backups.during(backed_up, log, serve)
    }

    /// Reads the accounts again while the server runs. Reads only a regular file, because opening a
    /// pipe could block forever.
    fn reread_accounts(&self) -> Result<Vec<AccountConfig>, String> {
        match &self.accounts {
            Some(path) if !path.is_file() => Err(format!("{} is not a file", path.display())),
            _ => self.read_accounts().map_err(text),
        }
    }

    fn read_accounts(&self) -> Outcome<Vec<AccountConfig>> {
        let Some(path) = &self.accounts else { return Ok(vec![AccountConfig::development()]) };
        let configs = read_accounts(path)?;
        let own: Vec<_> = configs.iter().filter(|config| config.database.is_none()).collect();
        match own.as_slice() {
            [_, other, ..] => Err(Failure::Usage(format!(
                "{}: account '{}' needs a \"database\" of its own: another one has {}",
                path.display(),
                other.name,
                self.db.display(),
            ))),
            _ => Ok(configs),
        }
    }

    /// Reads the rules by which the server misbehaves.
    fn behaviour(&self) -> Outcome<Option<Behaviour>> {
        let Some(path) = &self.behave else { return Ok(None) };
        let rules = match path.to_str().and_then(Behaviour::profile) {
            Some(rules) => rules.into(),
            None => read_text(path)?,
        };
        let read = Behaviour::read(&rules, self.seed);
        let problem =
            |error: Error| Failure::Usage(format!("{}: {}", path.display(), error.message()));
        read.map(Some).map_err(problem)
    }

    fn path_of<'p>(&'p self, config: &'p AccountConfig) -> &'p Path {
        config.database.as_ref().unwrap_or(&self.db)
    }

    fn open(&self, config: &AccountConfig) -> Outcome<Db> {
        let path = self.path_of(config);
        let targets = self.throttle.then(Targets::service);
        if self.in_memory {
            return Db::open_in_memory().map_err(Failure::Open);
        }
        self.open.open(set(Db::options(), targets, Options::throttle), path)
    }

    /// Prints the addresses of the server once it listens.
    fn greet(&self, log: &LogWriter, at: SocketAddr, metrics: Option<SocketAddr>) {
        let scheme = if self.tls_cert.is_some() { "https" } else { "http" };
        log.line(&format!("listening on {scheme}://{at}/"));
        if let Some(at) = metrics {
            log.line(&format!("metrics on http://{at}/metrics"));
        }
        if let Some(rules) = &self.behave {
            let (rules, seed) = (rules.display(), self.seed);
            log.line(&format!("misbehaving on purpose, for tests only: {rules}, seed {seed}"));
        }
        if self.accounts.is_none() {
            log.line("connection string:");
            // On a line of its own, to be copied. Its key is public.
            log.verbatim(&format!(
                "DefaultEndpointsProtocol={scheme};AccountName={DEVELOPMENT_ACCOUNT};\
                 AccountKey={DEVELOPMENT_KEY};TableEndpoint={scheme}://{at}/{DEVELOPMENT_ACCOUNT};"
            ));
        }
    }
}

/// Returns the text of a failure, without exit status and advice.
fn text(failure: Failure) -> String {
    match failure {
        Failure::Usage(text) | Failure::Other(text) => text,
        Failure::Open(error) | Failure::Operation(error) | Failure::Filter { error, .. } => {
            error.chain()
        }
        Failure::Problems | Failure::Rejected | Failure::Closed => String::new(),
    }
}
