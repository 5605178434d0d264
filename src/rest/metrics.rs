//! Counters of a server in the Prometheus text form, at an address of their own.
//!
//! Not here: the counters of databases and the text form (`Db::stats`, `db::prometheus`), which are shown beside these.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::db::prometheus::{Exposition, Metric};
use crate::db::stats::put_all;
use crate::sync::Mutex;

use super::http::log_writer::Journal;
use super::service::Service;

/// Upper bounds of the histogram of times, in seconds.
const BOUNDS: [f64; 11] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0];
/// Whoever asks must have done so by then.
const SCRAPE_TIME: Duration = Duration::from_secs(5);
/// Connections at a time; one more is closed.
const SCRAPES_MAX: usize = 64;
/// Of a request that is looked at.
const HEAD_BYTES: usize = 4096;

/// Whose counters are shown.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) service: Arc<Service>,
    pub(crate) journal: Journal,
}

/// What was counted since the server started.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    /// By method, status and code.
    requests: BTreeMap<(&'static str, u16, String), u64>,
    times: [u64; BOUNDS.len()],
    count: u64,
    seconds: f64,
    bytes_in: u64,
    bytes_out: u64,
}

impl Metrics {
    /// Counts a request.
    pub(super) fn note(
        &self,
        method: &str,
        status: u16,
        code: &str,
        time: Duration,
        bytes_in: usize,
        bytes_out: usize,
    ) {
        let mut counted = self.counted.lock();
        // Codes are the service's, so there are few; methods are anybody's.
        let key = (known(method), status, code.to_owned());
        *counted.requests.entry(key).or_default() += 1;
        let seconds = time.as_secs_f64();
        for (bound, count) in BOUNDS.iter().zip(&mut counted.times) {
            *count += u64::from(seconds <= *bound);
        }
        counted.count += 1;
        counted.seconds += seconds;
        counted.bytes_in += bytes_in as u64;
        counted.bytes_out += bytes_out as u64;
    }

    fn put(&self, out: &mut Exposition) {
        let counted = self.counted.lock();
        let help = "Requests, by what became of them.";
        let requests = begin(out, "rowstone_requests_total", "counter", help);
        for ((method, status, code), count) in &counted.requests {
            let status = status.to_string();
            let labels = [("method", *method), ("status", &*status), ("code", &**code)];
            out.sample(requests, &labels, count);
        }
        let help = "Time from a request's last byte to its response, without the network.";
        begin(out, "rowstone_request_seconds", "histogram", help);
        for (bound, count) in BOUNDS.iter().zip(&counted.times) {
            out.sample("rowstone_request_seconds_bucket", &[("le", &bound.to_string())], count);
        }
        out.sample("rowstone_request_seconds_bucket", &[("le", "+Inf")], counted.count);
        out.sample("rowstone_request_seconds_sum", &[], counted.seconds);
        out.sample("rowstone_request_seconds_count", &[], counted.count);
        let bytes = [
            ("rowstone_request_bytes_total", "Bytes of bodies of requests.", counted.bytes_in),
            ("rowstone_response_bytes_total", "Bytes of bodies of responses.", counted.bytes_out),
        ];
        for (name, help, count) in bytes {
            begin(out, name, "counter", help);
            out.sample(name, &[], count);
        }
    }
}

/// All counters of a server and of its databases, and lines that its log lost.
pub(super) fn text(service: &Service, lost_lines: u64) -> String {
    let mut out = Exposition::new();
    service.metrics().put(&mut out);
    let help = "Lines of the log that found no room or could not be written.";
    let lost = begin(&mut out, "rowstone_log_lines_lost_total", "counter", help);
    out.sample(lost, &[], lost_lines);
    let stats: Vec<_> =
        service.accounts().iter().map(|account| (&*account.name, account.db.stats())).collect();
    let labels: Vec<_> = stats.iter().map(|(account, _)| [("account", *account)]).collect();
    let all: Vec<_> =
        labels.iter().zip(&stats).map(|(labels, (_, stats))| (&labels[..], stats)).collect();
    put_all(&mut out, &all);
    out.into_text()
}

fn begin(
    out: &mut Exposition,
    name: &'static str,
    kind: &'static str,
    help: &'static str,
) -> &'static str {
    out.begin(&Metric { name: name.to_owned(), kind, help });
    name
}

fn known(method: &str) -> &'static str {
    const METHODS: [&str; 8] =
        ["GET", "HEAD", "OPTIONS", "POST", "PUT", "MERGE", "PATCH", "DELETE"];
    METHODS.into_iter().find(|known| *known == method).unwrap_or("other")
}

/// Answers `GET /metrics` to connections to `listener` until `stop` is done.
pub(crate) async fn serve(shown: Shown, listener: TcpListener, stop: impl Future<Output = ()>) {
    tokio::pin!(stop);
    let slots = Arc::new(Semaphore::new(SCRAPES_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => return,
        };
        match accepted {
            // Who says nothing holds up nobody else.
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
        // It asks databases, which may be held up; this thread listens for all connections.
        let body = spawn_blocking(move || text(&shown.service, shown.journal.lost())).await?;
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
