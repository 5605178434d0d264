//! Connections: accepting them, reading requests, writing responses, and stopping without cutting anybody off.
//!
//! Invariants
//! * what clients can take is bounded (`limits`): connections, bodies in memory, and time without progress;
//! * the engine is called from threads that may block, never from those that serve connections;
//! * after a stop no connection is accepted, and those that are open end with the request they are in.
//!
//! Not here: what is answered (`service`), memory for bodies (`body`), addresses that may be listened to (`check_exposure`).

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;

use crate::error::Code;
use crate::wire::fault::{Fault, Known};

use super::body::{self, Budget, Share};
use super::crowd::{Crowd, Settling};
use super::limits::{HEAD_BYTES_MAX, HEADERS_MAX, Limits, REFUSALS_MAX};
use super::reply::{ERROR_CODE, Reply};
use super::service::{Asked, Service};

/// What a connection that is one too many is told.
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nx-ms-error-code: ServerBusy\r\n\
    Retry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
/// It has heard so by then, or never does.
const REFUSAL_TIME: Duration = Duration::from_secs(1);

/// A server about to run.
pub(crate) struct Server {
    pub(crate) service: Arc<Service>,
    pub(crate) limits: Limits,
    pub(crate) tls: Option<TlsAcceptor>,
}

/// What connections share.
struct Shared {
    service: Arc<Service>,
    limits: Limits,
    requests: Arc<Semaphore>,
    crowd: Arc<Crowd>,
    bodies: Budget,
    responses: Budget,
}

impl Server {
    /// Serves connections to `listener` until `stop` is done, and then those that are open until they end.
    pub(crate) async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let Server { service, limits, tls } = self;
        let slots = Arc::new(Semaphore::new(limits.connections));
        let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
        let crowd = Crowd::new(service.accounts().iter().count());
        let shared = Arc::new(Shared {
            service,
            limits,
            requests: Arc::new(Semaphore::new(limits.requests)),
            crowd,
            bodies: Budget::new(limits.body_bytes),
            responses: Budget::new(limits.response_bytes),
        });
        let open = GracefulShutdown::new();
        tokio::pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = &mut stop => break,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    // Out of descriptors, most likely: asking again at once would spin.
                    sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
                // What is not TLS would mean nothing to a client that speaks it.
                if tls.is_none()
                    && let Ok(slot) = Arc::clone(&refusals).try_acquire_owned()
                {
                    tokio::spawn(refuse(stream, slot));
                }
                continue;
            };
            serve(stream, peer, tls.clone(), Arc::clone(&shared), &open, slot);
        }
        drop(listener);
        let drained = timeout(limits.drain_time, open.shutdown()).await;
        if drained.is_err() {
            tracing::warn!("connections were still open {:?} after the stop", limits.drain_time);
        }
    }
}

/// Tells a connection that it is one too many. It may not listen.
async fn refuse(mut stream: TcpStream, _slot: OwnedSemaphorePermit) {
    let told = async {
        stream.write_all(TOO_MANY).await?;
        stream.shutdown().await?;
        // Closed with something unread, the connection would be reset and the answer lost.
        let mut unread = stream.take(HEAD_BYTES_MAX as u64);
        tokio::io::copy(&mut unread, &mut tokio::io::sink()).await
    };
    drop(timeout(REFUSAL_TIME, told).await);
}

/// Serves one connection, in a task of its own.
fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    open: &GracefulShutdown,
    slot: OwnedSemaphorePermit,
) {
    // Small responses must not wait for acknowledgements of those before.
    drop(stream.set_nodelay(true));
    let mut stream = TimeoutStream::new(stream);
    stream.set_read_timeout(Some(shared.limits.idle_time));
    stream.set_write_timeout(Some(shared.limits.idle_time));
    let watcher = open.watcher();
    tokio::spawn(async move {
        let _slot = slot;
        let client = Client { peer: peer.ip(), is_encrypted: tls.is_some() };
        match tls {
            None => converse(Box::pin(stream), client, shared, watcher).await,
            Some(tls) => {
                let handshake = tls.accept(Box::pin(stream));
                match timeout(shared.limits.header_time, handshake).await {
                    Ok(Ok(stream)) => converse(stream, client, shared, watcher).await,
                    Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS connection"),
                    Err(_) => tracing::debug!(%peer, "no TLS connection in time"),
                }
            }
        }
    });
}

/// Who is at the other end.
#[derive(Clone, Copy)]
struct Client {
    peer: IpAddr,
    is_encrypted: bool,
}

/// Answers the requests of one connection.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    client: Client,
    shared: Arc<Shared>,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(shared.limits.header_time)
        // Whoever has nothing more to say may still listen.
        .half_close(true)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX);
    let answer = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(request, client, &shared).await) }
    });
    let connection = watcher.watch(http.serve_connection(TokioIo::new(stream), answer));
    if let Err(error) = connection.await {
        tracing::debug!(peer = %client.peer, %error, "a connection ended");
    }
}

async fn answer(
    request: Request<Incoming>,
    client: Client,
    shared: &Shared,
) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let service = &shared.service;
    let Client { peer, is_encrypted } = client;
    let mut asked = Asked::new(head, peer, is_encrypted, service.now(), service.new_id());
    let (reply, share) = match receive(body, &asked, shared).await {
        Err(fault) => (service.refuse(&asked, fault), Share::default()),
        Ok((bytes, share)) => {
            asked.body = bytes;
            // A slow body takes no other's place: only now there is something to do.
            match Arc::clone(&shared.requests).try_acquire_owned() {
                Ok(permit) => {
                    carry_out(Arc::clone(service), &shared.crowd, asked, permit, share).await
                }
                Err(_) => (service.refuse(&asked, Code::ServerBusy.into()), share),
            }
        }
    };
    response(reply, share, &shared.responses)
}

/// Reads the body of a request.
///
/// # Errors
/// Those of [`body::read`]; `MissingContentLengthHeader`, `OperationTimedOut`.
async fn receive(
    mut body: Incoming,
    asked: &Asked,
    shared: &Shared,
) -> Result<(Bytes, Share), Fault> {
    if asked.needs_length() {
        return Err(Known::MissingContentLengthHeader.into());
    }
    let read = async {
        let read = body::read(&mut body, &shared.bodies).await;
        // A client that waits for leave to send its body is not to be given it.
        if read.is_err() && !asked.headers.contains_key(header::EXPECT) {
            body::drain(&mut body).await;
        }
        read
    };
    let late = |_| Err(Code::OperationTimedOut.into());
    timeout(shared.limits.body_time, read).await.unwrap_or_else(late)
}

/// Carries the request out in a thread that may block. Its place and its body count until it is done, whether or not its
/// client is still there.
async fn carry_out(
    service: Arc<Service>,
    crowd: &Arc<Crowd>,
    asked: Asked,
    permit: OwnedSemaphorePermit,
    share: Share,
) -> (Reply, Share) {
    let id = asked.request_id.clone();
    let broken = |error: JoinError| {
        tracing::error!(request = %id, %error, "a request ended in a panic");
        (Reply::broken(&id), Share::default())
    };
    let coming = asked.is_write().then(|| crowd.enter());
    let begun = spawn_blocking(move || {
        let Some(coming) = coming else {
            let reply = service.answer(&asked);
            drop((asked, permit));
            return Progress::Answered(reply, share);
        };
        let mut begun = service.begin(&asked);
        match coming.settle(begun.ticket.take()) {
            Settling::Settled(settled) => {
                let reply = service.end(&asked, begun, settled);
                drop((asked, permit));
                Progress::Answered(reply, share)
            }
            Settling::Led(led) => {
                let end = async move {
                    let settled = led.settled().await;
                    let reply = service.end(&asked, begun, settled);
                    drop((asked, permit));
                    (reply, share)
                };
                Progress::Begun(Box::pin(end))
            }
        }
    });
    match begun.await {
        Ok(Progress::Answered(reply, share)) => (reply, share),
        Ok(Progress::Begun(end)) => tokio::spawn(end).await.unwrap_or_else(broken),
        Err(error) => broken(error),
    }
}

/// How far a request has come.
enum Progress {
    Answered(Reply, Share),
    /// All but its commit, which others lead.
    Begun(Pin<Box<dyn Future<Output = (Reply, Share)> + Send>>),
}

/// The response as it goes out. What was read finds room among all responses or is not sent; what tells of a write is
/// sent in any case, in the room of the body that it answers.
fn response(reply: Reply, share: Share, budget: &Budget) -> Response<Full<Bytes>> {
    let Reply { status, headers, body } = reply;
    let body = match status {
        StatusCode::OK => match budget.share(body.capacity()) {
            Ok(share) => share.hold(body),
            Err(_) => return busy(),
        },
        _ => share.hold(body),
    };
    let has_body = !body.is_empty();
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let fields = response.headers_mut();
    for (name, value) in headers {
        // A value that no header can hold is left out: it came from a key, and stands in the body too.
        if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
            fields.append(name, value);
        }
    }
    if has_body {
        fields.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    response
}

/// There is no room for what the answer was.
fn busy() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let code = HeaderValue::from_static(Code::ServerBusy.as_str());
    response.headers_mut().insert(ERROR_CODE, code);
    response
}

/// Listens to `address`.
///
/// # Errors
/// As the system says, with the address.
pub(crate) async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listening = TcpListener::bind(address).await;
    listening.map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))
}
