//! Serves `GET /metrics` on a separate listener: the counters of the server, of its log and of its
//! databases.
//!
//! The counters are in `rest::metrics` and `Db::stats`.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::log_writer::LogWriter;
use crate::db::prometheus::Exposition;
use crate::db::stats::put_all;
use crate::rest::metrics::{begin, put_misbehaved};
use crate::rest::service::Service;
use crate::rest::table_metrics;

/// The time limit of a connection.
const SCRAPE_TIME: Duration = Duration::from_secs(5);
/// The maximum number of concurrent connections; further ones are closed.
const SCRAPES_MAX: usize = 64;
/// The maximum number of bytes that are read of a request.
const HEAD_BYTES: usize = 4096;

/// The objects whose counters are served.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) service: Arc<Service>,
    pub(crate) log: LogWriter,
}

/// Returns all counters of a server and of its databases as text, and the number of lines lost by
/// its log.
pub(in crate::rest) fn text(service: &Service, lost_lines: u64) -> String {
    let mut out = Exposition::new();
    service.metrics().put(&mut out);
    let help = "Lines of the log that found no room or could not be written.";
    let lost = begin(&mut out, "rowstone_log_lines_lost_total", "counter", help);
    out.sample(lost, &[], lost_lines);
    if let Some(behaviour) = service.behaviour() {
        put_misbehaved(&mut out, behaviour);
    }
    let stats: Vec<_> =
        service.accounts().iter().map(|account| (&*account.name, account.db.stats())).collect();
    let labels: Vec<_> = stats.iter().map(|(account, _)| [("account", *account)]).collect();
    let all: Vec<_> =
        labels.iter().zip(&stats).map(|(labels, (_, stats))| (&labels[..], stats)).collect();
    put_all(&mut out, &all);
    let databases: Vec<_> =
        service.accounts().iter().map(|account| (&*account.name, &account.db)).collect();
    table_metrics::put(&mut out, &databases);
    out.into_text()
}

/// Answers `GET /metrics` on `listener` until `stop` completes.
pub(crate) async fn serve(shown: Shown, listener: TcpListener, stop: impl Future<Output = ()>) {
    tokio::pin!(stop);
    let slots = Arc::new(Semaphore::new(SCRAPES_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => return,
        };
        match accepted {
            // Each connection has its own task, so that a silent client does not block others.
            Ok((stream, _)) => {
                let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else { continue };
                let shown = shown.clone();
                tokio::spawn(async move {
                    drop(timeout(SCRAPE_TIME, scrape(shown, stream)).await);
                    drop(slot);
                });
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn scrape(shown: Shown, mut stream: TcpStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|four| four == b"\r\n\r\n") && head.len() < HEAD_BYTES {
        let mut piece = [0; 1024];
        match stream.read(&mut piece).await? {
            0 => return Ok(()),
            n => head.extend_from_slice(piece.get(..n).unwrap_or_default()),
        }
    }
    let response = if head.starts_with(b"GET /metrics ") || head.starts_with(b"GET /metrics?") {
        // Reading the counters of a database may wait for a disk, so it is done in a blocking task.
        let body = spawn_blocking(move || text(&shown.service, shown.log.lost_lines())).await?;
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        )
    } else {
        "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned()
    };
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}
