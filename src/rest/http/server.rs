//! Accepts connections, reads requests, writes responses, and stops gracefully.
//!
//! Invariants
//! * clients' use of connections, memory and time is bounded (`limits`);
//! * from an unauthenticated client, at most the request head and a small body are read;
//! * a request that waits for a disk blocks no other connection (`worker_pool`);
//! * after a stop no connection is accepted, and open ones end with their current request, if any.
//!
//! `service` computes the answers, `body` limits memory, `connection_slots` assigns slots.

use std::borrow::Cow;
use std::future::{pending, ready};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;

use crate::error::Code;
use crate::rest::protocol::fault::{Fault, Known};

use super::body::{self, Budget, Sent, Share};
use super::connection_slots::{ConnectionSlot, ConnectionSlots, HeldSlot, SlotStream};
use super::limits::{HEAD_BYTES_MAX, Limits, REFUSALS_MAX};
use super::request_slots::RequestSlots;
use super::worker_pool::WorkerPool;
use crate::rest::feed::Feed;
use crate::rest::reply::Reply;
use crate::rest::service::{Request, Service};

/// The maximum time in which a connection over the limit can send its request and receive the
/// refusal.
const REFUSAL_TIME: Duration = Duration::from_secs(5);
/// If a body has not arrived completely after this time, the client is authenticated before the
/// rest is read. So a request may be refused without waiting for the rest.
const PROMPT_TIME: Duration = Duration::from_secs(1);
/// The maximum time until a request that waits for changes looks for them.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The pause after a look that found only commits that are not durable yet.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// A server that is ready to run.
pub(crate) struct Server {
    pub(crate) service: Arc<Service>,
    pub(crate) limits: Limits,
    pub(crate) tls: Option<TlsAcceptor>,
}

/// State shared by all connections.
struct Shared {
    service: Arc<Service>,
    limits: Limits,
    requests: Arc<RequestSlots>,
    bodies: Budget,
    responses: Budget,
    /// Whether the server stops, which ends the waits for changes.
    stops: watch::Sender<bool>,
}

impl Shared {
    fn new(service: Arc<Service>, limits: Limits) -> Self {
        Shared {
            limits,
            requests: RequestSlots::new(limits.requests),
            bodies: Budget::new(limits.body_bytes),
            responses: Budget::new(limits.response_bytes),
            stops: watch::Sender::new(false),
            service,
        }
    }
}

impl Server {
    /// Serves connections to `listener` until `stop` completes. Then waits for open connections to
    /// end, at most for `drain_time`. Connections that remain end when the pool is dropped.
    pub(in crate::rest) async fn run(
        self,
        listener: TcpListener,
        pool: &WorkerPool,
        stop: impl Future<Output = ()>,
    ) {
        let Server { service, limits, tls } = self;
        let slots = ConnectionSlots::new(limits.connections);
        let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
        let shared = Arc::new(Shared::new(service, limits));
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
                    // The process is most likely out of descriptors, so accepting again immediately
                    // would fail, too.
                    sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Some(held_slot) = slots.take(peer.ip()) else {
                // Answers only if TLS is off, because a TLS client could not read the plain text.
                if tls.is_none()
                    && let Ok(slot) = Arc::clone(&refusals).try_acquire_owned()
                {
                    tokio::spawn(refuse(stream, peer, Arc::clone(&shared.service), slot));
                }
                continue;
            };
            pool.serve(serve(stream, peer, tls.clone(), Arc::clone(&shared), &open, held_slot));
        }
        drop(listener);
        shared.stops.send_replace(true);
        // `shutdown` ends connections that wait for a next request. `clear` ends those that have
        // sent only a part of a request head.
        let ended = async {
            tokio::join!(open.shutdown(), async { slots.clear() });
            // Also wait for writes whose client has disconnected: they hold slots until they are
            // done.
            shared.requests.all_free().await;
        };
        let drained = timeout(limits.drain_time, ended).await;
        if drained.is_err() {
            tracing::warn!("connections were still open {:?} after the stop", limits.drain_time);
        }
    }
}

/// Answers the first request of a connection over the limit with the refusal, and closes the
/// connection.
async fn refuse(
    stream: TcpStream,
    peer: SocketAddr,
    service: Arc<Service>,
    slot: OwnedSemaphorePermit,
) {
    let answer = service_fn(|request: hyper::Request<Incoming>| {
        let head = request.into_parts().0;
        let request = Request::new(head, peer.ip(), false, service.now(), service.new_id());
        let reply = service.refuse(&request, Code::ServerBusy.into());
        ready(response(reply, Share::default(), |body| body))
    });
    let slot = Arc::new(ConnectionSlot::new(slot, peer.ip()));
    slot.leave_input_unread();
    let stream = TokioIo::new(SlotStream::new(stream, slot));
    let mut http = http1::Builder::new();
    http.keep_alive(false).half_close(true).max_buf_size(HEAD_BYTES_MAX);
    let served = timeout(REFUSAL_TIME, http.serve_connection(stream, answer)).await;
    if !matches!(served, Ok(Ok(()))) {
        tracing::debug!(%peer, "a connection too many ended");
    }
}

/// Serves one connection.
fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    open: &GracefulShutdown,
    held_slot: HeldSlot,
) -> impl Future<Output = ()> + Send + use<> {
    // Send small responses at once: do not wait for the acknowledgement of earlier packets.
    drop(stream.set_nodelay(true));
    let mut stream = TimeoutStream::new(stream);
    stream.set_read_timeout(Some(shared.limits.idle_time));
    stream.set_write_timeout(Some(shared.limits.idle_time));
    let watcher = open.watcher();
    async move {
        let slot = Arc::clone(&held_slot.slot);
        let client =
            Client { peer: peer.ip(), is_encrypted: tls.is_some(), slot: Arc::clone(&slot) };
        let limits = shared.limits;
        let served = async {
            match tls {
                None => serve_requests(Box::pin(stream), client, shared, watcher).await,
                Some(tls) => match tls.accept(Box::pin(stream)).await {
                    Ok(stream) => serve_requests(stream, client, shared, watcher).await,
                    Err(error) => tracing::debug!(%peer, %error, "no TLS connection"),
                },
            }
        };
        serve_until_cut_off(served, peer, &slot, &limits).await;
        drop(held_slot);
    }
}

/// Serves a connection until it ends, exceeds a time limit, or must give up its slot.
async fn serve_until_cut_off(
    served: impl Future<Output = ()>,
    peer: SocketAddr,
    slot: &ConnectionSlot,
    limits: &Limits,
) {
    tokio::select! {
        biased;
        () = served => {}
        () = slot.left() => tracing::debug!(%peer, "a connection without a request was closed"),
        () = never_begun(slot, limits.header_time) => tracing::debug!(%peer, "no request in time"),
        () = overdue(slot, limits) => tracing::debug!(%peer, "an answer was not taken in time"),
    }
}

/// Completes after `time` if no request has begun by then, and otherwise never.
async fn never_begun(slot: &ConnectionSlot, time: Duration) {
    sleep(time).await;
    if slot.has_begun() {
        pending().await
    }
}

/// Completes if sending an answer exceeds its time limit.
async fn overdue(slot: &ConnectionSlot, limits: &Limits) {
    loop {
        let answer = slot.next_answer().await;
        if timeout(limits.sending(answer.bytes), slot.is_sent(answer)).await.is_err() {
            return;
        }
    }
}

/// The client of a connection, and the connection's slot.
#[derive(Clone)]
struct Client {
    peer: IpAddr,
    is_encrypted: bool,
    slot: Arc<ConnectionSlot>,
}

/// Answers the requests of one connection.
async fn serve_requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    client: Client,
    shared: Arc<Shared>,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        // For the first head, a shorter time applies (`never_begun`).
        .header_read_timeout(shared.limits.idle_time)
        // A client that has shut down its sending side may still read answers.
        .half_close(true)
        .max_buf_size(HEAD_BYTES_MAX);
    // The library bounds the number of headers: 100 by default.
    let (peer, slot) = (client.peer, Arc::clone(&client.slot));
    let stream = SlotStream::new(stream, Arc::clone(&slot));
    let answer = service_fn(move |request| {
        let (shared, client) = (Arc::clone(&shared), client.clone());
        async move {
            client.slot.begin().await;
            let response = answer(request, &client, &shared).await;
            client.slot.answered();
            response
        }
    });
    let connection = watcher.watch(http.serve_connection(TokioIo::new(stream), answer));
    if let Err(error) = connection.await {
        tracing::debug!(%peer, %error, "a connection ended");
    }
}

async fn answer(
    request: hyper::Request<Incoming>,
    client: &Client,
    shared: &Arc<Shared>,
) -> io::Result<Response<Sent>> {
    let (head, body) = request.into_parts();
    let service = &shared.service;
    let (peer, is_encrypted) = (client.peer, client.is_encrypted);
    let head_bytes = head_bytes(&head);
    let mut request = Request::new(head, peer, is_encrypted, service.now(), service.new_id());
    request.slot = Some(Arc::clone(&client.slot));
    request.response_budget = Some(shared.responses.clone());
    let (reply, share) = match receive(body, &request, head_bytes, shared).await {
        Err(fault) => (service.refuse(&request, fault), Share::default()),
        Ok((bytes, share)) => {
            request.body = bytes;
            // A request counts against the limit on requests only once its body has arrived, so
            // that slow bodies do not use up the limit.
            request.request_slot = shared.requests.take().map(Arc::new);
            match request.request_slot {
                Some(_) => carry_out(shared, Accepted { request, share }).await,
                None => (service.refuse(&request, Code::ServerBusy.into()), share),
            }
        }
    };
    if !reply.delivery.delay.is_zero() {
        sleep(reply.delivery.delay).await;
    }
    let mut response = response(reply, share, |body| client.slot.watch(body))?;
    if client.slot.may_leave_input_unread() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

/// Returns the bytes of the request line and all headers, assuming the minimum number of spaces
/// between their parts.
fn head_bytes(head: &Parts) -> usize {
    const LINE: usize = "  HTTP/1.1\r\n\r\n".len();
    const FIELD: usize = ": \r\n".len();
    let target = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
    let fields = head.headers.iter();
    let fields = fields.map(|(name, value)| name.as_str().len() + value.len() + FIELD);
    LINE + head.method.as_str().len() + target + fields.sum::<usize>()
}

/// Reads the body of a request.
///
/// # Errors
/// Those of [`body::read`] and of [`Service::admit`]; `MissingContentLengthHeader`,
/// `OperationTimedOut`; 431; `NotImplemented` for an unknown transfer coding.
async fn receive(
    mut body: Incoming,
    request: &Request,
    head_bytes: usize,
    shared: &Shared,
) -> Result<(Bytes, Share), Fault> {
    let leave = || request.slot.iter().for_each(|slot| slot.leave_input_unread());
    // Check the size of the head again: the library accepts a larger head if it arrives in one
    // piece.
    if head_bytes > HEAD_BYTES_MAX {
        leave();
        let fault = Fault::invalid("The request line and the headers are too large.");
        return Err(Fault { status: 431, ..fault });
    }
    if request.has_unknown_coding() {
        leave();
        return Err(Code::NotImplemented.into());
    }
    if request.needs_length() {
        return Err(Known::MissingContentLengthHeader.into());
    }
    // The error of reading the body. It is stored here because draining, which follows, may time
    // out and would lose it.
    let mut known = None;
    let read = async {
        let admitted = async { shared.service.admit(request) };
        let late = async { sleep(PROMPT_TIME).await };
        let read = body::read(&mut body, &shared.bodies, admitted, late).await;
        let fault = match read {
            Ok(read) => return Some(read),
            Err(fault) => fault,
        };
        known = Some(fault);
        // Draining would send `100 Continue` to a client that waits for it, and so request a body
        // that is refused.
        if !request.headers.contains_key(header::EXPECT) {
            let drained = timeout(PROMPT_TIME, body::drain(&mut body)).await;
            if !drained.unwrap_or_default() {
                leave();
            }
        }
        None
    };
    let read = timeout(shared.limits.body_time, read).await;
    if read.is_err() {
        leave();
    }
    let read = read.ok().flatten();
    let late = || known.unwrap_or_else(|| Code::OperationTimedOut.into());
    let read = read.ok_or_else(late)?;
    if let Some(slot) = &request.slot {
        slot.work().await;
    }
    Ok(read)
}

/// A request that is being carried out. It holds its slot until it is answered, even if its client
/// disconnects meanwhile.
struct Accepted {
    request: Request,
    share: Share,
}

/// Carries a request out in the calling thread, which database calls may block. But if a commit
/// still has to become durable, a task waits for it, and no thread is blocked.
async fn carry_out(shared: &Shared, mut accepted: Accepted) -> (Reply, Share) {
    let (id, service) = (accepted.request.request_id.clone(), Arc::clone(&shared.service));
    let begun = catch_unwind(AssertUnwindSafe(|| service.begin(&accepted.request)));
    let Ok(mut begun) = begun else { return (broken(&id), Share::default()) };
    if let Some(mut feed) = begun.take_feed() {
        let request = &mut accepted.request;
        let resumed = match wait_for_commit(shared, request, &mut feed).await {
            Ok(()) => catch_unwind(AssertUnwindSafe(|| service.resume(request, &mut begun, *feed))),
            Err(fault) => return (service.refuse(request, fault), accepted.share),
        };
        if resumed.is_err() {
            return (broken(&id), Share::default());
        }
    }
    let ticket = begun.ticket.take();
    let end = move |committed| {
        let reply = service.end(&accepted.request, begun, committed);
        (reply, accepted.share)
    };
    let answered = match ticket {
        None => catch_unwind(AssertUnwindSafe(|| end(Ok(())))).ok(),
        Some(ticket) => {
            match tokio::spawn(async move { end(ticket.await.map(drop)) }).await {
                Ok(answered) => Some(answered),
                Err(error) if error.is_panic() => None,
                // The task was cancelled because the pool is being dropped. This connection is
                // dropped with it.
                Err(_) => pending().await,
            }
        }
    };
    answered.unwrap_or_else(|| (broken(&id), Share::default()))
}

/// Waits until `feed` has a commit, its time is over, or the server stops. Meanwhile the request
/// holds neither a thread nor a request slot, and its connection may be closed.
///
/// # Errors
/// Those of [`Feed::look`] and of [`Service::readmit`]; `ServerBusy` if there is no request slot
/// after the wait.
async fn wait_for_commit(
    shared: &Shared,
    request: &mut Request,
    feed: &mut Feed,
) -> Result<(), Fault> {
    request.request_slot = None;
    let slot = request.slot.clone();
    if let Some(slot) = &slot {
        slot.wait().await;
    }
    let (mut rings, mut stops) = (feed.listen(), shared.stops.subscribe());
    let wait = feed.wait;
    let until_found = async {
        loop {
            if feed.is_behind() {
                if feed.look()? {
                    return Ok(());
                }
                sleep(LOOK_PAUSE).await;
            }
            drop(timeout(LOOK_EVERY, rings.changed()).await);
        }
    };
    let waited: Result<(), Fault> = tokio::select! {
        found = until_found => found,
        () = sleep(wait) => Ok(()),
        () = async { drop(stops.wait_for(|stops| *stops).await) } => Ok(()),
    };
    if let Some(slot) = &slot {
        slot.work().await;
    }
    waited?;
    request.request_slot = shared.requests.take().map(Arc::new);
    match request.request_slot {
        Some(_) => shared.service.readmit(request),
        None => Err(Code::ServerBusy.into()),
    }
}

/// Returns the answer to a request that ended in a panic.
fn broken(id: &str) -> Reply {
    tracing::error!(request = %id, "a request ended in a panic");
    Reply::broken(id)
}

/// Builds the response. The response's body keeps its own share of the memory budget until it is
/// sent; the share of the request's body is released.
///
/// # Errors
/// The response is lost on purpose: the connection must be closed.
fn response(
    reply: Reply,
    answered: Share,
    watch: impl FnOnce(Bytes) -> Bytes,
) -> io::Result<Response<Sent>> {
    let Reply { status, headers, body, share: own, delivery } = reply;
    drop(answered);
    let body = own.hold(body);
    let len = body.len();
    let Some(sent) = delivery.end.sent(len) else {
        return Err(io::Error::other("the answer is lost on purpose"));
    };
    let body = watch(body.slice(..sent));
    let has_body = !body.is_empty();
    let mut response = Response::new(match sent < len {
        true => Sent::cut(body),
        false => Sent::new(body, status),
    });
    *response.status_mut() = status;
    let fields = response.headers_mut();
    // Also reserve capacity for the headers that are added below and by the library.
    fields.reserve(headers.len() + 3);
    for (name, value) in headers {
        // Omit a value that is not valid in a header. It was derived from a key, and the body
        // contains it, too.
        let value = match value {
            Cow::Borrowed(value) => Bytes::from_static(value.as_bytes()),
            Cow::Owned(value) => value.into(),
        };
        if let Ok(value) = HeaderValue::from_maybe_shared(value) {
            fields.append(name, value);
        }
    }
    if has_body {
        fields.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    if status == StatusCode::NO_CONTENT {
        fields.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    Ok(response)
}

/// Listens on `address`.
///
/// # Errors
/// The error of the system, with the address.
pub(crate) async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listening = TcpListener::bind(address).await;
    listening.map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::{Read, Write};
    use std::pin::{Pin, pin};
    use std::task::Poll;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::db::Db;
    use crate::model::Entity;
    use crate::rest::Settings;
    use crate::rest::accounts::{AccountConfig, Accounts};
    use crate::rest::protocol::address::Parameters;
    use crate::rest::protocol::sign::{
        self, AccountKey, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Scheme,
    };
    use crate::rest::protocol::time;

    fn service() -> Arc<Service> {
        let opened = Accounts::open(vec![AccountConfig::development()], |_| Db::open_in_memory());
        Arc::new(Service::new(opened.unwrap(), Settings::default()))
    }

    /// Returns a signed request for a path.
    fn get(service: &Service, path: &str) -> Request {
        let head = hyper::Request::get(path).header("Host", "localhost");
        let head = head.header("x-ms-date", time::http(service.now()));
        let head = head.body(()).unwrap().into_parts().0;
        let peer = IpAddr::from([127, 0, 0, 1]);
        let mut request = Request::new(head, peer, false, service.now(), service.new_id());
        let none = Parameters::default();
        let signed = sign::SignedParts::of("GET", path, &none, &request);
        let key = AccountKey::read(DEVELOPMENT_KEY).unwrap();
        let signed = signed.sign(Scheme::SharedKey, DEVELOPMENT_ACCOUNT, &key);
        request.headers.insert("Authorization", signed.parse().unwrap());
        request
    }

    /// Returns the text of a request without a body.
    fn head_of(request: &Request) -> String {
        let fields = request.headers.iter();
        let fields: String = fields
            .map(|(name, value)| format!("{name}: {}\r\n", value.to_str().unwrap()))
            .collect();
        format!("{} {} HTTP/1.1\r\n{fields}\r\n", request.method, request.path)
    }

    /// Polls a wait for changes that is still going on. It holds no request slot.
    async fn goes_on(wait: &mut Pin<&mut impl Future<Output = Result<(), Fault>>>, on: &Shared) {
        let is_pending = poll_fn(|context| Poll::Ready(wait.as_mut().poll(context).is_pending()));
        assert!(is_pending.await);
        assert!(on.requests.take().is_some(), "the only slot is free");
    }

    #[test]
    fn a_wait_for_changes_ends_with_a_commit_or_a_stop() {
        let service = service();
        let account = Arc::clone(service.accounts().get(DEVELOPMENT_ACCOUNT).unwrap());
        let limits = Limits { requests: 1, ..Limits::default() };
        let shared = Shared::new(Arc::clone(&service), limits);
        let mut request = get(&service, "/devstoreaccount1/$rowstone/changes");
        request.request_slot = shared.requests.take().map(Arc::new);
        let open = || {
            let (since, day) = (account.db.position(), Duration::from_secs(86_400));
            Feed::open(&account.db, &account.readers, Some(since), day).unwrap()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut feed = open();
            {
                let mut wait = pin!(wait_for_commit(&shared, &mut request, &mut feed));
                goes_on(&mut wait, &shared).await;
                account.db.create_table("people").unwrap();
                wait.await.unwrap();
            }
            assert!(feed.look().unwrap() && request.request_slot.is_some());
            let mut feed = open();
            let mut wait = pin!(wait_for_commit(&shared, &mut request, &mut feed));
            goes_on(&mut wait, &shared).await;
            shared.stops.send_replace(true);
            wait.await.unwrap();
        });
        assert!(request.request_slot.is_some());
        // A key that was replaced meanwhile is refused.
        service.accounts().rotate(Vec::new());
        runtime.block_on(async {
            let refused = wait_for_commit(&shared, &mut request, &mut open()).await;
            assert_eq!(refused.unwrap_err().code, "AuthenticationFailed");
        });
    }

    #[test]
    fn memory_of_an_unread_response_is_released() {
        const ROOM: usize = 1 << 20;
        let service = service();
        let table = service.accounts().get(DEVELOPMENT_ACCOUNT).unwrap().db.create_table("people");
        let text = "x".repeat(30_000);
        let names = (0..10).map(|i| format!("A{i}"));
        let entity = names.fold(Entity::new("p", "r"), |entity, name| entity.with(name, &*text));
        table.unwrap().upsert(entity).unwrap();
        let limits = Limits {
            response_bytes: ROOM,
            send_time: Duration::from_millis(1),
            send_bytes_per_second: usize::MAX,
            ..Limits::default()
        };
        let request = head_of(&get(&service, "/devstoreaccount1/people()"));
        let shared = Arc::new(Shared::new(service, limits));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let sent = runtime.block_on(async {
            let (stream, mut client) = tokio::io::duplex(4 << 10);
            client.write_all(request.as_bytes()).await.unwrap();
            let peer = SocketAddr::from(([127, 0, 0, 1], 1));
            let held_slot = ConnectionSlots::new(1).take(peer.ip()).unwrap();
            let (slot, open) = (Arc::clone(&held_slot.slot), GracefulShutdown::new());
            let known = Client { peer: peer.ip(), is_encrypted: false, slot: Arc::clone(&slot) };
            let served = serve_requests(stream, known, Arc::clone(&shared), open.watcher());
            serve_until_cut_off(served, peer, &slot, &limits).await;
            let mut sent = String::new();
            client.read_to_string(&mut sent).await.unwrap();
            sent
        });
        assert!(sent.starts_with("HTTP/1.1 200 ") && sent.contains("xxx"), "{sent}");
        assert!(sent.len() < text.len(), "{} bytes were sent", sent.len());
        shared.responses.grow(&mut Share::default(), ROOM).unwrap();
    }

    #[test]
    fn large_responses_have_a_longer_time_limit() {
        let limits = Limits::default();
        assert_eq!(limits.sending(0), Duration::from_secs(30));
        assert_eq!(limits.sending(4 << 20), Duration::from_secs(30 + 64));
    }

    #[test]
    fn a_request_above_the_limit_gets_a_response() {
        let service = service();
        let limits = Limits { requests: 0, ..Limits::default() };
        let pool = WorkerPool::new(limits.requests).unwrap();
        let listener = pool.run(listen("127.0.0.1:0".parse().unwrap())).unwrap();
        let at = listener.local_addr().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let server = Server { service, limits, tls: None };
        std::thread::scope(|scope| {
            let stop = stop;
            let stopped = async { drop(stopped.await) };
            scope.spawn(|| pool.run(server.run(listener, &pool, stopped)));
            let mut stream = std::net::TcpStream::connect(at).unwrap();
            stream
                .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                .unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
            for text in
                ["x-ms-request-id: ", "x-ms-error-code: ServerBusy", "\"code\":\"ServerBusy\""]
            {
                assert!(answer.contains(text), "{answer}");
            }
            drop(stop);
        });
    }
}
