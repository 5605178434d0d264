//! The network between simulated clients and a service in the same process. It loses, delays,
//! repeats and cuts requests and answers, and lets other clients act while one of them waits.
//!
//! Invariants
//! * a request takes effect at most once, unless the fault is that it is delivered twice, and not
//!   later than its parameter `timeout` after it was sent;
//! * the seed decides everything: there is one thread, and the clocks advance only here.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::header::{HOST, HeaderMap, HeaderName, HeaderValue};

use super::ledger::{Action, Ledger};
use super::strict::Strict;
use crate::clock::{Clock, ManualClock, TICKS_PER_SECOND};
use crate::db::{Db, Position};
use crate::model::{DateTime, Entity};
use crate::named::named;
use crate::options::Background;
use crate::rest::Settings;
use crate::rest::accounts::{AccountConfig, Accounts};
use crate::rest::protocol::sign::AccountKey;
use crate::rest::protocol::time;
use crate::rest::service::{self, Service};
use crate::rng::Rng;
use crate::store::remote::endpoint::Endpoint;
use crate::store::remote::transport::{NoAnswer, Request, Response, Transport};
use crate::store::{Remote, RemoteOptions};
use crate::sync::Mutex;

pub(super) const ACCOUNT: &str = "acme";
/// The account of the server that is the source of a sync.
const SOURCE: &str = "device";
/// The key of the account, in Base64.
const KEY: &str = "c2VjcmV0";
/// The time for which the service may work on a request that does not state one.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The time at which the clock of the service begins, in ticks.
const BEGIN: u64 = 133_485_408_000_000_000;

pub(super) const AWAY: &str = "requests to a service that is away";

named! {
    /// The fate of a request and its answer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Fault {
        Refused "connection refused",
        Busy "server busy",
        LostRequest "request lost",
        LostAnswer "answer lost",
        Late "late",
        Error "error 500",
        Gateway "error of a gateway",
        Cut "answer cut",
        Twice "delivered twice",
        TooLarge "answer too large",
        ShortPage "short page",
    }

    pub(super) fn name;
    pub(super) const ALL;
}

/// A client, which has one turn after the other.
pub(super) trait Turn: Send {
    fn turn(&mut self);
}

/// The network, the service at its end, and the clients that have no turn at the moment.
pub(super) struct Network {
    pub(super) state: Mutex<State>,
    pub(super) idle: Mutex<Vec<Box<dyn Turn>>>,
    /// The clocks of the clients, which are wrong in some runs.
    pub(super) clocks: Vec<Arc<ManualClock>>,
    pub(super) primary: Site,
    secondary: Site,
    /// A server with extensions: the source of a sync, if it is on another machine.
    pub(super) source: Mutex<Option<Arc<Site>>>,
}

pub(super) struct State {
    pub(super) rng: Rng,
    pub(super) ledger: Ledger,
    /// The running call of each client.
    pub(super) current: Vec<usize>,
    /// The number of turns that are left.
    pub(super) turns: usize,
    /// How often a request or its answer suffers.
    pub(super) percent: u64,
    faults: Vec<Fault>,
    /// The time until which the service is away.
    pub(super) away: Duration,
    /// The calls of jobs that wrote to the primary location, with the position after each write.
    pub(super) written: Vec<(usize, Position)>,
    /// Limits of the primary location that `rowstone serve` does not have.
    pub(super) strict: Strict,
    late: Vec<Late>,
    /// Writes that the secondary location does not have yet.
    unreplicated: Vec<service::Request>,
    pub(super) digest: u64,
    pub(super) trace: Option<Vec<String>>,
    pub(super) counts: BTreeMap<&'static str, u64>,
}

/// A request that takes effect after its client gave up.
struct Late {
    due: Duration,
    call: usize,
    request: Request,
}

/// A service and its database.
pub(super) struct Site {
    pub(super) service: Service,
    pub(super) db: Db,
    pub(super) clock: Arc<ManualClock>,
}

/// The connection of one client.
pub(super) struct Line {
    pub(super) network: Arc<Network>,
    pub(super) client: usize,
}

impl Transport for Line {
    fn send(&self, request: &Request, time: Duration) -> Result<Response, NoAnswer> {
        self.network.send(self.client, request, time)
    }

    fn wait(&self, time: Duration) {
        self.network.note(|| format!("client {} waits {time:?}", self.client));
        self.network.pass(time);
    }
}

/// The payload of the panic that ends a process.
pub(super) struct Killed;

/// The connection of a process that is killed before a request, or after its answer.
pub(super) struct Mortal {
    pub(super) line: Line,
    /// The number of half requests that are left.
    pub(super) left: Arc<AtomicU64>,
}

impl Mortal {
    fn live(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.line.network.note(|| "the process is killed".to_owned());
            resume_unwind(Box::new(Killed));
        }
    }
}

impl Transport for Mortal {
    fn send(&self, request: &Request, time: Duration) -> Result<Response, NoAnswer> {
        self.live();
        let answer = self.line.send(request, time);
        self.live();
        answer
    }

    fn wait(&self, time: Duration) {
        self.line.wait(time);
    }
}

impl Site {
    pub(super) fn new() -> Self {
        let clock = Arc::new(ManualClock::new(BEGIN));
        Self::with(ACCOUNT, open_db(&clock), clock, Settings::default())
    }

    fn with(account: &str, db: Db, clock: Arc<ManualClock>, settings: Settings) -> Self {
        let keys = AccountKey::read(KEY).into_iter().collect();
        let config = AccountConfig { name: account.to_owned(), keys, database: None };
        let accounts = Accounts::open(vec![config], |_| Ok::<_, ()>(db.clone()));
        let Ok(accounts) = accounts else { panic!("an account opens") };
        let time = Arc::clone(&clock) as Arc<dyn Clock>;
        let service = Service::with(accounts, settings, time, Rng::from_seed(1));
        Self { service, db, clock }
    }

    pub(super) fn answer(&self, request: &service::Request) -> Response {
        let reply = self.service.answer(request);
        let date = ("Date".to_owned(), time::http(request.received));
        let headers = reply.headers.into_iter();
        let headers = headers.map(|(name, value)| (name.as_str().to_owned(), value.into_owned()));
        let headers = headers.chain([date]).collect();
        Response { status: reply.status.as_u16(), headers, body: reply.body }
    }

    /// Converts a request of a client to one that the service received at `now`.
    pub(super) fn received(&self, request: &Request, now: u64) -> service::Request {
        let (host, address) = host_and_address(&request.url);
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        let mut headers = HeaderMap::new();
        for (name, value) in &request.headers {
            let name = HeaderName::try_from(*name);
            headers.extend(name.ok().zip(HeaderValue::from_str(value).ok()));
        }
        headers.extend(HeaderValue::from_str(host).map(|host| (HOST, host)));
        service::Request {
            method: request.method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            headers,
            body: request.body.clone().into(),
            peer: IpAddr::V4(Ipv4Addr::LOCALHOST),
            is_encrypted: true,
            received: DateTime::from_ticks(now).unwrap_or(DateTime::MAX),
            request_id: self.service.new_id(),
            slot: None,
            request_slot: None,
            response_budget: None,
        }
    }
}

impl Network {
    /// Creates a network whose faults the seed chooses, and a service with empty databases.
    pub(super) fn new(seed: u64, clients: usize, turns: usize, traced: bool) -> Self {
        let mut rng = Rng::from_seed(seed);
        let percent = *rng.pick(&[0, 5, 15, 30, 50]);
        let kinds = rng.next_u64();
        let is_chosen = |kind: &Fault| kinds >> (*kind as u32) & 1 == 1;
        let faults = Fault::ALL.into_iter().filter(is_chosen).collect();
        let wrong = rng.chance(1, 8);
        let mut clock = || {
            let seconds = rng.below(if wrong { 86_400 } else { 600 });
            Arc::new(ManualClock::new(BEGIN - seconds * TICKS_PER_SECOND))
        };
        let clocks = (0..clients).map(|_| clock()).collect();
        let ledger = Ledger::new(percent == 0);
        let state = State {
            rng,
            ledger,
            current: vec![0; clients],
            turns,
            percent,
            faults,
            away: Duration::ZERO,
            written: Vec::new(),
            strict: Strict::default(),
            late: Vec::new(),
            unreplicated: Vec::new(),
            digest: seed,
            trace: traced.then(Vec::new),
            counts: BTreeMap::new(),
        };
        let (state, idle) = (Mutex::new(state), Mutex::default());
        let (primary, secondary, source) = (Site::new(), Site::new(), Mutex::default());
        Self { state, idle, clocks, primary, secondary, source }
    }

    /// Serves a database as the source of a sync.
    pub(super) fn serve(&self, db: Db) {
        let settings = Settings { extensions: true, ..Settings::default() };
        let site = Site::with(SOURCE, db, Arc::clone(&self.primary.clock), settings);
        *self.source.lock() = Some(Arc::new(site));
    }

    /// Adds a line to the trace and to its digest.
    pub(super) fn note(&self, line: impl FnOnce() -> String) {
        let line = format!("{:>9.3} {}", self.now().as_secs_f64(), line());
        let mut state = self.state.lock();
        state.digest = xxhash_rust::xxh3::xxh3_64_with_seed(line.as_bytes(), state.digest);
        if let Some(trace) = &mut state.trace {
            trace.push(line);
        }
    }

    /// Writes to both locations, before the first call.
    pub(super) fn prepare(&self, mut write: impl FnMut(&Db)) {
        write(&self.primary.db);
        write(&self.secondary.db);
    }

    pub(super) fn now(&self) -> Duration {
        self.primary.clock.monotonic()
    }

    /// Lets an idle client have a turn.
    pub(super) fn turn(&self) -> bool {
        let mut state = self.state.lock();
        let mut idle = self.idle.lock();
        if state.turns == 0 || idle.is_empty() {
            return false;
        }
        state.turns -= 1;
        let chosen = state.rng.index(idle.len());
        let mut client = idle.swap_remove(chosen);
        drop((state, idle));
        client.turn();
        self.idle.lock().push(client);
        true
    }

    /// Lets time pass. Other clients have turns meanwhile, and late requests take effect.
    pub(super) fn pass(&self, time: Duration) {
        let end = self.now() + time;
        let turns = self.state.lock().rng.below(3);
        for _ in 1..turns {
            let left = end.saturating_sub(self.now());
            let part = self.state.lock().rng.below(left.as_millis() as u64 + 1);
            self.reach(self.now() + Duration::from_millis(part));
            self.turn();
        }
        self.reach(end);
    }

    /// Advances the clocks to `end`, and carries out the requests that are due until then.
    fn reach(&self, end: Duration) {
        loop {
            let mut state = self.state.lock();
            let due = state.late.iter().map(|late| late.due).min().filter(|due| *due <= end);
            let at = due.and_then(|due| state.late.iter().position(|late| late.due == due));
            let late = at.map(|at| state.late.remove(at));
            drop(state);
            self.advance(late.as_ref().map_or(end, |late| late.due));
            let Some(Late { call, request, .. }) = late else { return };
            let answer = self.carry_out(call, &request);
            self.note(|| format!("late {} of call {call}: {}", request.method, answer.status));
        }
    }

    fn advance(&self, to: Duration) {
        let time = to.saturating_sub(self.now());
        self.primary.clock.advance(time);
        self.clocks.iter().for_each(|clock| clock.advance(time));
    }

    /// Carries out all late requests, when no client has a turn any more.
    pub(super) fn drain(&self) {
        self.reach(self.now() + TIMEOUT);
    }

    fn choose(&self, request: &Request) -> Option<Fault> {
        let mut state = self.state.lock();
        if self.now() < state.away && !is_source(&request.url) {
            *state.counts.entry(AWAY).or_default() += 1;
            return Some(*state.rng.pick(&[Fault::Refused, Fault::LostRequest]));
        }
        let State { rng, percent, faults, .. } = &mut *state;
        if !rng.chance(*percent, 100) || faults.is_empty() {
            return None;
        }
        let fault = *rng.pick(faults);
        let is_query = top(&request.url).is_some();
        let fits = is_query || !matches!(fault, Fault::TooLarge | Fault::ShortPage);
        if !fits {
            return None;
        }
        *state.counts.entry(fault.name()).or_default() += 1;
        Some(fault)
    }

    fn send(&self, client: usize, request: &Request, time: Duration) -> Result<Response, NoAnswer> {
        let fault = self.choose(request);
        let call = {
            let mut state = self.state.lock();
            let call = state.current[client];
            let is_settling = !matches!(state.ledger.action(call), Action::Read);
            if is_settling && is_secondary(&request.url) {
                state.ledger.fail(|| "a write read the secondary location".to_owned());
            }
            let is_known =
                matches!(fault, None | Some(Fault::Refused | Fault::Busy | Fault::Twice));
            if !is_known && request.method != "GET" {
                state.ledger.lost(call);
            }
            call
        };
        let answer = self.deliver(call, request, time, fault);
        self.note(|| {
            let fault = fault.map_or("", Fault::name);
            let (_, address) = host_and_address(&request.url);
            let address = address.split_once('?').map_or(address, |(path, _)| path);
            let answer = match &answer {
                Ok(response) => response.status.to_string(),
                Err(lost) => lost.problem.clone(),
            };
            let method = request.method;
            format!("client {client} call {call}: {method} {address}: {fault} = {answer}")
        });
        answer
    }

    fn deliver(
        &self,
        call: usize,
        request: &Request,
        time: Duration,
        fault: Option<Fault>,
    ) -> Result<Response, NoAnswer> {
        let sent = self.now();
        let latency = Duration::from_millis(self.state.lock().rng.below(200));
        match fault {
            None => {
                let answer = self.carry_out(call, request);
                self.pass(latency);
                Ok(answer)
            }
            Some(Fault::Refused) => Err(no_answer(false, "connection refused")),
            Some(Fault::Busy) => {
                self.pass(latency);
                self.state.lock().ledger.busy(call);
                Ok(self.error(503, "ServerBusy"))
            }
            Some(Fault::TooLarge) if top(&request.url).is_some_and(|(_, top)| top > 1) => {
                Err(NoAnswer { is_too_large: true, ..no_answer(true, "the answer is too large") })
            }
            Some(Fault::ShortPage | Fault::TooLarge) => {
                self.pass(latency);
                Ok(self.carry_out(call, &with_top(request, 1)))
            }
            Some(Fault::Twice) => {
                let answer = self.carry_out(call, request);
                self.carry_out(call, request);
                self.pass(latency);
                Ok(answer)
            }
            Some(Fault::Cut) => {
                let answer = self.carry_out(call, request);
                self.pass(latency);
                self.cut(answer, is_source(&request.url))
            }
            Some(Fault::LostRequest | Fault::LostAnswer | Fault::Late) => {
                self.take(call, request, sent, fault);
                self.give_up(time);
                Err(no_answer(true, "the connection was reset"))
            }
            Some(Fault::Error | Fault::Gateway) => {
                let fates = [Fault::LostRequest, Fault::LostAnswer, Fault::Late];
                let (fate, code) = {
                    let mut state = self.state.lock();
                    let codes = ["OperationTimedOut", "InternalError"];
                    (*state.rng.pick(&fates), *state.rng.pick(&codes))
                };
                self.take(call, request, sent, Some(fate));
                self.pass(latency);
                match fault {
                    Some(Fault::Error) => Ok(self.error(500, code)),
                    _ => Ok(self.gateway()),
                }
            }
        }
    }

    /// Cuts the body of an answer. A client may not notice that if a proxy left out its length.
    fn cut(&self, mut answer: Response, is_feed: bool) -> Result<Response, NoAnswer> {
        let mut length = self.state.lock().rng.index(answer.body.len());
        if is_feed && self.state.lock().rng.chance(1, 2) {
            // After a line, because a part of a commit is no commit.
            let line = answer.body.iter().take(length).rposition(|byte| *byte == b'\n');
            length = line.map_or(0, |end| end + 1);
        }
        answer.body.truncate(length);
        let is_noticed = self.state.lock().rng.chance(1, 2);
        match is_noticed || !is_feed && answer.body.is_empty() {
            false => Ok(answer),
            true => Err(no_answer(true, "the answer was cut")),
        }
    }

    /// Carries out a request whose answer is lost: now, later or never.
    fn take(&self, call: usize, request: &Request, sent: Duration, fate: Option<Fault>) {
        match fate {
            Some(Fault::LostAnswer) => drop(self.carry_out(call, request)),
            Some(Fault::Late) => {
                let mut state = self.state.lock();
                let delay = state.rng.below(timeout(&request.url).as_millis() as u64 + 1);
                let due = sent + Duration::from_millis(delay);
                state.late.push(Late { due, call, request: request.clone() });
            }
            _ => {}
        }
    }

    /// Waits until a client notices that there will be no answer.
    fn give_up(&self, time: Duration) {
        let quick = Duration::from_millis(self.state.lock().rng.below(2_000));
        let is_quick = self.state.lock().rng.chance(3, 4);
        self.pass(if is_quick { quick.min(time) } else { time });
    }

    fn error(&self, status: u16, code: &str) -> Response {
        let body = format!(
            "{{\"odata.error\":{{\"code\":\"{code}\",\"message\":{{\"lang\":\"en-US\",\
             \"value\":\"{code}\\nRequestId:0\\nTime:0\"}}}}}}"
        );
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers = vec![
            header("Content-Type", "application/json"),
            header("x-ms-error-code", code),
            header("Date", &time::http(self.date())),
        ];
        Response { status, headers, body: body.into_bytes() }
    }

    /// The answer of a proxy, which does not know whether the service carried out the request.
    fn gateway(&self) -> Response {
        let status = *self.state.lock().rng.pick(&[502, 503, 504]);
        let headers = vec![("Content-Type".to_owned(), "text/html".to_owned())];
        Response { status, headers, body: b"<html>Bad Gateway</html>".to_vec() }
    }

    fn date(&self) -> DateTime {
        DateTime::from_ticks(self.primary.clock.now()).unwrap_or(DateTime::MAX)
    }

    /// Executes a request, and tells the ledger what it changed.
    fn carry_out(&self, call: usize, request: &Request) -> Response {
        if is_source(&request.url) {
            let source = self.source.lock().clone();
            // The server may have ended before a late request.
            let Some(site) = source else { return self.gateway() };
            return site.answer(&site.received(request, site.clock.now()));
        }
        let site = if is_secondary(&request.url) { &self.secondary } else { &self.primary };
        let strict = self.state.lock().strict;
        if strict.is_too_large(request) {
            return self.error(413, "RequestBodyTooLarge");
        }
        let asked = site.received(&strict.spoilt(request), self.primary.clock.now());
        if is_secondary(&request.url) {
            self.replicate();
        }
        if request.method == "GET" {
            return site.answer(&asked);
        }
        let action = self.state.lock().ledger.action(call).clone();
        let (rows, table) = self.look(&action);
        let answer = site.answer(&asked);
        let (rows_after, table_after) = self.look(&action);
        let mut state = self.state.lock();
        if matches!(action, Action::Job) {
            state.written.push((call, self.primary.db.position()));
        }
        state.ledger.executed(call, &rows, &rows_after);
        state.ledger.executed_on_table(call, table, table_after);
        state.unreplicated.push(asked);
        answer
    }

    /// Reads the state that an action may change: entities, and whether a table exists.
    fn look(&self, action: &Action) -> (Vec<Option<Entity>>, bool) {
        let db = &self.primary.db;
        match action {
            Action::Read | Action::Job => (Vec::new(), false),
            Action::CreateTable(name) | Action::DeleteTable(name) => {
                (Vec::new(), db.table(name).is_ok())
            }
            Action::Write(writes) => {
                let row = |key: super::ledger::Key| {
                    db.table(key.table).ok()?.get(key.partition, key.row).ok().flatten()
                };
                (writes.iter().map(|write| row(write.key)).collect(), false)
            }
        }
    }

    /// Carries out some of the writes that the secondary location lacks. Its clock shows the time
    /// of the write at the primary location, so that both have the same ETags.
    fn replicate(&self) {
        let mut state = self.state.lock();
        let count = state.unreplicated.len() as u64 + 1;
        let count = state.rng.below(count) as usize;
        let writes: Vec<_> = state.unreplicated.drain(..count).collect();
        drop(state);
        for write in writes {
            self.secondary.clock.jump(write.received.ticks());
            self.secondary.service.answer(&write);
        }
    }
}

/// Opens a database in memory, small and without threads.
pub(super) fn open_db(clock: &Arc<ManualClock>) -> Db {
    let mut options = Db::options().background(Background::Manual).memtable_bytes(256 << 10);
    options = options.keep_changes(1 << 30);
    options.log_allocate_bytes = 4 << 10;
    let db = options.clock(Arc::clone(clock) as _).seed(1).open_in_memory();
    db.unwrap_or_else(|error| panic!("a database in memory opens: {error:?}"))
}

/// Opens a client of the service.
pub(super) fn open_remote(
    transport: Arc<dyn Transport>,
    clock: Arc<dyn Clock>,
    ids: Rng,
    options: RemoteOptions,
) -> Remote {
    open_account(ACCOUNT, transport, (clock, ids), options)
}

/// Opens a client of the server that is the source of a sync.
pub(super) fn open_source(
    transport: Arc<dyn Transport>,
    clock: Arc<dyn Clock>,
    ids: Rng,
) -> Remote {
    open_account(SOURCE, transport, (clock, ids), RemoteOptions::new())
}

fn open_account(
    account: &str,
    transport: Arc<dyn Transport>,
    (clock, ids): (Arc<dyn Clock>, Rng),
    options: RemoteOptions,
) -> Remote {
    let endpoint = Endpoint::read(&format!("AccountName={account};AccountKey={KEY}"));
    let endpoint = endpoint.unwrap_or_else(|error| panic!("a connection string: {error}"));
    Remote::with_parts(endpoint, transport, clock, ids, options)
}

pub(super) fn no_answer(was_sent: bool, problem: &str) -> NoAnswer {
    NoAnswer { was_sent, is_too_large: false, is_final: false, problem: problem.to_owned() }
}

/// Returns the host of a URL, and its path with the query string.
fn host_and_address(url: &str) -> (&str, &str) {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split_at(rest.find('/').unwrap_or(rest.len()))
}

fn is_secondary(url: &str) -> bool {
    host_and_address(url).0.split('.').next().is_some_and(|label| label.ends_with("-secondary"))
}

fn is_source(url: &str) -> bool {
    host_and_address(url).0.split('.').next() == Some(SOURCE)
}

/// Returns the place and value of `$top` in a URL.
fn top(url: &str) -> Option<(std::ops::Range<usize>, usize)> {
    let begin = url.find("top=")? + "top=".len();
    let length = url[begin..].find('&').unwrap_or(url.len() - begin);
    Some((begin..begin + length, url[begin..begin + length].parse().ok()?))
}

/// Returns the request with another `$top`, so that the page is short, as if the service were busy.
fn with_top(request: &Request, entities: usize) -> Request {
    let mut request = request.clone();
    if let Some((place, _)) = top(&request.url) {
        request.url.replace_range(place, &entities.to_string());
    }
    request
}

/// Returns the time for which the service may work on a request.
fn timeout(url: &str) -> Duration {
    let seconds =
        url.split(['?', '&']).find_map(|part| part.strip_prefix("timeout=")?.parse().ok());
    seconds.map_or(TIMEOUT, Duration::from_secs).min(TIMEOUT)
}
