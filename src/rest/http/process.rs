//! Runs the process of a server: opens its listeners, handles its signals, replaces the keys of its
//! accounts, and closes its databases.
//!
//! `server` handles connections, and `cli::service` parses the arguments.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_rustls::TlsAcceptor;

use super::limits::Limits;
use super::log_writer::LogWriter;
use super::server::{self, Server};
use super::signals::{Action, Signals};
use super::tls::{self, TlsFiles};
use super::worker_pool::WorkerPool;
use super::{fd_limit, metrics};
use crate::behave::Behaviour;
use crate::rest::accounts::{AccountConfig, Accounts, Rotated};
use crate::rest::heat;
use crate::rest::page::Settings;
use crate::rest::service::Service;

/// The addresses and settings of a server.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) listen: SocketAddr,
    /// The address where metrics are served; `None` if metrics are not served.
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) limits: Limits,
    pub(crate) settings: Settings,
    /// The rules by which the server misbehaves.
    pub(crate) behaviour: Option<Behaviour>,
    pub(crate) log: LogWriter,
}

/// Returns an error if an account with a publicly known key would be served on an address that
/// other hosts can reach.
///
/// # Errors
/// The reason, and how to fix it.
pub(crate) fn check_exposure(
    listen: &SocketAddr,
    accounts: &[AccountConfig],
) -> Result<(), String> {
    match accounts.iter().find(|account| account.is_public()) {
        Some(account) if !listen.ip().is_loopback() => Err(format!(
            "{listen} is not loopback, and the key of account '{}' is public: use accounts with \
             keys of your own (--accounts FILE), or listen on 127.0.0.1",
            account.name
        )),
        _ => Ok(()),
    }
}

/// Everything that a server needs except the databases.
pub(crate) struct Ready {
    site: Site,
    tls: Option<TlsAcceptor>,
    pool: WorkerPool,
    listener: TcpListener,
    metrics: Option<TcpListener>,
}

/// Acquires the resources of a server, before a database is opened or created.
///
/// # Errors
/// A text that names the resource that could not be set up.
pub(crate) fn prepare(mut site: Site) -> Result<Ready, String> {
    let tls = site.tls.as_ref().map(tls::acceptor).transpose()?;
    site.limits.connections = fd_limit::connections(site.limits.connections)?;
    let pool = WorkerPool::new(site.limits.requests);
    let pool = pool.map_err(|error| format!("no threads: {error}"))?;
    let listen = |address, option| {
        pool.run(server::listen(address)).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => {
                format!("{}; choose another port with {option}", cannot_listen(error))
            }
            _ => cannot_listen(error),
        })
    };
    let listener = listen(site.listen, "--listen")?;
    let metrics = site.metrics.map(|address| listen(address, "--metrics")).transpose()?;
    Ok(Ready { site, tls, pool, listener, metrics })
}

impl Ready {
    /// Serves until a signal stops the server. Then calls `before_close`, and syncs and closes the
    /// databases.
    ///
    /// # Errors
    /// A text that names the resource that could not be set up or closed.
    pub(crate) fn serve(
        self,
        accounts: Accounts,
        reread: impl Fn() -> Result<Vec<AccountConfig>, String>,
        greet: impl FnOnce(SocketAddr, Option<SocketAddr>),
        before_close: impl FnOnce(),
    ) -> Result<(), String> {
        let Ready { site, tls, pool, listener, metrics } = self;
        let at = listener.local_addr().map_err(cannot_listen)?;
        let metrics_at = metrics.as_ref().map(TcpListener::local_addr).transpose();
        let metrics_at = metrics_at.map_err(cannot_listen)?;
        let service = Service::new(accounts, site.settings).misbehaving(site.behaviour);
        let service = Arc::new(service);
        let server = Server { service: Arc::clone(&service), limits: site.limits, tls };
        let metrics = metrics.map(|listener| (listener, site.log));
        let rotate = || rotate(&service, &site.listen, &reread);
        pool.run(async {
            // Install the signal handlers before the greeting. A program that waits for the
            // greeting may then send signals; a signal sent earlier ends the process at once.
            let signals = Signals::install().map_err(|error| format!("no signals: {error}"))?;
            greet(at, metrics_at);
            run(server, &pool, (listener, metrics), signals, rotate).await;
            Ok::<_, String>(())
        })?;
        // Dropping the pool cuts off connections that are still open.
        drop(pool);
        before_close();
        close(&service)
    }
}

fn cannot_listen(error: io::Error) -> String {
    format!("cannot listen on {error}")
}

/// Serves until a stop signal arrives. Then waits until the requests in progress have ended, or
/// until a second stop signal. Calls `rotate` when a signal asks for it, and records the heat of
/// the tables.
async fn run(
    server: Server,
    pool: &WorkerPool,
    (listener, metrics): (TcpListener, Option<(TcpListener, LogWriter)>),
    mut signals: Signals,
    rotate: impl Fn(),
) {
    let (stop, stopped) = watch::channel(false);
    if let Some((listener, log)) = metrics {
        let shown = metrics::Shown { service: Arc::clone(&server.service), log };
        tokio::spawn(metrics::serve(shown, listener, until(stopped.clone())));
    }
    let service = Arc::clone(&server.service);
    let mut samples = interval(heat::SAMPLE_TIME);
    samples.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let served = server.run(listener, pool, until(stopped));
    tokio::pin!(served);
    loop {
        let action = tokio::select! {
            () = &mut served => return,
            action = signals.next() => action,
            _ = samples.tick() => {
                service.record_heat();
                continue;
            }
        };
        if action == Action::Rotate {
            rotate();
        } else if stop.send_replace(true) {
            tracing::warn!("second signal to stop: closing the connections that are still open");
            return;
        }
    }
}

/// Completes once `stopped` is true.
async fn until(mut stopped: watch::Receiver<bool>) {
    drop(stopped.wait_for(|stopped| *stopped).await);
}

fn rotate(
    service: &Service,
    listen: &SocketAddr,
    reread: impl Fn() -> Result<Vec<AccountConfig>, String>,
) {
    let configs = reread().and_then(|configs| {
        check_exposure(listen, &configs)?;
        Ok(configs)
    });
    match configs {
        Ok(configs) => {
            let Rotated { came, gone, moved } = service.accounts().rotate(configs);
            tracing::info!("the keys of all accounts were read again");
            if !gone.is_empty() {
                tracing::warn!(?gone, "accounts that are gone have no keys any more");
            }
            if !came.is_empty() || !moved.is_empty() {
                tracing::warn!(?came, ?moved, "new accounts and other databases take a restart");
            }
        }
        Err(problem) => tracing::error!(%problem, "the keys stay as they were"),
    }
}

/// Syncs and closes the databases. Requires: all requests have ended.
fn close(service: &Service) -> Result<(), String> {
    let mut failed = Vec::new();
    for account in service.accounts().iter() {
        if let Err(error) = account.db.clone().close() {
            failed.push(format!("account '{}': {}", account.name, error.chain()));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}
