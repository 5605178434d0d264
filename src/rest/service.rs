//! Turns requests into responses: authentication, routing, and the headers of all responses.
//!
//! Invariants
//! * every request is answered, counted and logged once, whatever its result;
//! * neither a query string nor an `Authorization` header is ever logged.
//!
//! Not here: HTTP (`server`), the operations (`entities`, `tables`, `batch`, `settings`).

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{self, HeaderValue};

use crate::behave::{Behaviour, Decision, Fate};
use crate::clock::{Clock, SystemClock, TICKS_PER_SECOND};
use crate::error::{Code, Error};
use crate::model::{DateTime, Guid};
use crate::rest::protocol::address::{self, Parameter, Resource, Style, Target};
use crate::rest::protocol::batch::Boundaries;
use crate::rest::protocol::fault::{Fault, Known, Occasion};
use crate::rest::protocol::headers::{
    Level, Method, Preference, Version, check_md5, client_request_id,
};
use crate::rest::protocol::time;
use crate::rng::Rng;
use crate::sync::Mutex;
use crate::table::Ticket;

use super::accounts::{Account, Accounts};
use super::context::{Commits, Misbehaving, RequestContext};
use super::entities::Order;
use super::feed::Feed;
use super::heat::HeatHistory;
use super::metrics::{Answered, Metrics};
use super::page::Settings;
use super::reply::{Delivery, ERROR_CODE, PREFERENCE_APPLIED, Reply};
pub(crate) use super::request::Request;
use super::{auth, batch, entities, extensions, local, page, settings, tables};

/// Answers requests.
#[derive(Debug)]
pub(crate) struct Service {
    accounts: Accounts,
    settings: Settings,
    clock: Arc<dyn Clock>,
    ids: Mutex<Rng>,
    metrics: Metrics,
    heat: HeatHistory,
    behaviour: Option<Behaviour>,
}

/// A request that was executed, except that its commit may not be durable yet.
#[derive(Debug)]
pub(super) struct Begun {
    /// The response to send if the commit succeeds.
    reply: Reply,
    routed: Routed,
    pub(super) ticket: Option<Ticket>,
    start: Duration,
}

/// The facts about a request that are found while it is routed.
#[derive(Debug, Default)]
struct Routed {
    /// The protocol version; `None` if the request was refused before it was known.
    version: Option<Version>,
    /// The account of the request; `None` if its client is not authenticated.
    account: Option<Arc<Account>>,
    /// Whether the account would pay for the request.
    is_billed: bool,
    /// The changes for which the request waits.
    feed: RefCell<Option<Box<Feed>>>,
    /// The decision of a service that misbehaves.
    decided: OnceCell<Decision>,
}

impl Begun {
    /// Returns the changes for which the request waits.
    pub(super) fn take_feed(&mut self) -> Option<Box<Feed>> {
        self.routed.feed.take()
    }
}

impl Service {
    pub(crate) fn new(accounts: Accounts, settings: Settings) -> Self {
        let clock = Arc::new(SystemClock::new());
        Self::with(accounts, settings, clock, Rng::from_entropy())
    }

    /// Creates a service with this clock and source of request ids.
    pub(crate) fn with(
        accounts: Accounts,
        settings: Settings,
        clock: Arc<dyn Clock>,
        ids: Rng,
    ) -> Self {
        let heat = HeatHistory::new(Arc::clone(&clock));
        let (ids, metrics) = (Mutex::new(ids), Metrics::default());
        Self { accounts, settings, clock, ids, metrics, heat, behaviour: None }
    }

    /// Misbehaves by these rules, with the service's clock.
    pub(crate) fn misbehaving(self, behaviour: Option<Behaviour>) -> Self {
        let clock = || Arc::clone(&self.clock);
        let behaviour = behaviour.map(|behaviour| behaviour.with_clock(clock()));
        Self { behaviour, ..self }
    }

    pub(crate) fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(crate) fn behaviour(&self) -> Option<&Behaviour> {
        self.behaviour.as_ref()
    }

    /// Returns the ticks by which the service's clock is fast.
    fn skew(&self) -> i64 {
        self.behaviour.as_ref().map_or(0, Behaviour::skew)
    }

    /// Records the present load of all tables. Must be called every `heat::SAMPLE_TIME`.
    pub(super) fn record_heat(&self) {
        self.heat.record(&self.accounts);
    }

    pub(crate) fn now(&self) -> DateTime {
        let now = self.clock.now().saturating_add_signed(self.skew());
        DateTime::from_ticks(now).unwrap_or(DateTime::MAX)
    }

    /// Returns the `Date` of an answer: the database's time, from which `Remote::now` learns it. An
    /// answer to a client that is not authenticated shows the clock by which signatures are
    /// checked. Returns `None` if the wall clock is right, which the HTTP library adds.
    fn date(&self, account: Option<&Account>) -> Option<String> {
        let wall = self.clock.now();
        let time = account.map_or(wall, |account| account.db.engine().reader().session_time());
        let time = time.saturating_add_signed(self.skew());
        let is_wall = time / TICKS_PER_SECOND == wall / TICKS_PER_SECOND;
        let date = || time::http(DateTime::from_ticks(time).unwrap_or(DateTime::MAX));
        (!is_wall).then(date)
    }

    /// Creates an id for a request or for a boundary in a response.
    pub(crate) fn new_id(&self) -> String {
        let mut ids = self.ids.lock();
        let words = [ids.next_u64(), ids.next_u64()];
        drop(ids);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&words[0].to_le_bytes());
        bytes[8..].copy_from_slice(&words[1].to_le_bytes());
        // Sets the version (4, random) and variant (RFC 4122) of a UUID.
        (bytes[6], bytes[8]) = (bytes[6] & 0x0f | 0x40, bytes[8] & 0x3f | 0x80);
        Guid::from_bytes(bytes).to_string()
    }

    /// Answers a request. Blocks until its commit, if any, is durable.
    #[cfg(any(test, fuzzing, feature = "fuzzing", all(feature = "sim", feature = "remote")))]
    pub(crate) fn answer(&self, request: &Request) -> Reply {
        let mut begun = self.begin(request);
        if let Some(feed) = begun.take_feed() {
            self.resume(request, &mut begun, *feed);
        }
        let committed = begun.ticket.take().map_or(Ok(()), |ticket| ticket.wait().map(drop));
        self.end(request, begun, committed)
    }

    /// Executes a request, but does not wait for its commit to become durable.
    pub(super) fn begin(&self, request: &Request) -> Begun {
        let start = self.clock.monotonic();
        let commits = Commits::Later(Cell::new(None));
        let (reply, routed) = self.reply(request, &commits);
        let ticket = match commits {
            Commits::Later(ticket) => ticket.into_inner(),
            Commits::Failed(_) => None,
        };
        Begun { reply, routed, ticket, start }
    }

    /// Authenticates a request again that has waited with a key of the account, since keys may have
    /// changed, and charges its new slot to its client.
    ///
    /// # Errors
    /// Those of [`admit`](Self::admit); `ServerBusy`.
    pub(super) fn readmit(&self, request: &Request) -> Result<(), Fault> {
        self.admit(request)?;
        request.charge_slot(&self.target(request)?.account, None)
    }

    /// Builds the answer to a request that has waited for changes. The time of the wait does not
    /// count as that of the request.
    pub(super) fn resume(&self, request: &Request, begun: &mut Begun, feed: Feed) {
        begun.start = self.clock.monotonic();
        let reply = feed.reply(request).unwrap_or_else(|fault| self.fault(request, &fault));
        let target = self.target(request).ok();
        begun.reply = match target.and_then(|target| self.accounts.get(&target.account)) {
            Some(account) => settings::share(request, account, reply),
            None => reply,
        };
    }

    /// Completes a request after [`begin`](Self::begin); `settled` is the result of its commit.
    pub(super) fn end(&self, request: &Request, begun: Begun, settled: Result<(), Error>) -> Reply {
        let reply = match settled {
            Ok(()) => begun.reply,
            Err(error) => self.reply(request, &Commits::Failed(error)).0,
        };
        self.finish(request, reply, begun.routed, begun.start)
    }

    /// Builds the response to a request.
    fn reply(&self, request: &Request, commits: &Commits) -> (Reply, Routed) {
        let mut routed = Routed::default();
        let reply = self.route(request, commits, &mut routed);
        let reply = reply.unwrap_or_else(|fault| self.fault(request, &fault));
        (reply, routed)
    }

    /// Answers a request that is refused with `fault`.
    pub(crate) fn refuse(&self, request: &Request, fault: Fault) -> Reply {
        let start = self.clock.monotonic();
        let reply = self.fault(request, &fault);
        let account = self.target(request).ok();
        let reply = match account.and_then(|target| self.accounts.get(&target.account)) {
            Some(account) => settings::share(request, account, reply),
            None => reply,
        };
        self.finish(request, reply, Routed::default(), start)
    }

    /// Authenticates a request by its head alone, which suffices because no signature covers a
    /// body.
    ///
    /// # Errors
    /// The fault with which the request would be answered.
    pub(super) fn admit(&self, request: &Request) -> Result<(), Fault> {
        request.check_headers()?;
        let target = self.target(request)?;
        let account = self.accounts.get(&target.account).ok_or(Code::ResourceNotFound)?;
        auth::authenticate(request, account, &target)?;
        request.mark_authenticated(&account.name);
        Ok(())
    }

    /// Parses the address. If the host seems to name an account that does not exist, but the path
    /// names an existing one, uses the account in the path.
    fn target(&self, request: &Request) -> Result<Target, Fault> {
        let read = |style| address::read(&request.path, &request.query, request.host(), style);
        let target = read(Style::ByHost)?;
        if target.root.is_empty() && self.accounts.get(&target.account).is_none() {
            let by_path = read(Style::Path)?;
            if self.accounts.get(&by_path.account).is_some() {
                return Ok(by_path);
            }
        }
        Ok(target)
    }

    fn route(
        &self,
        request: &Request,
        commits: &Commits,
        routed: &mut Routed,
    ) -> Result<Reply, Fault> {
        if let Some(reply) = page::answer(request) {
            return Ok(reply);
        }
        request.check_headers()?;
        let target = self.target(request)?;
        routed.version = Some(request.version_of(&target.query));
        let account = self.accounts.get(&target.account);
        if request.method == "OPTIONS" {
            return settings::preflight(request, account.map(|account| &**account));
        }
        let account = account.ok_or(Code::ResourceNotFound)?;
        let reply = self.carry_out(request, account, &target, commits, routed);
        let reply = reply.unwrap_or_else(|fault| self.fault(request, &fault));
        let reply = self.misbehaved(request, reply, routed.decided.get());
        Ok(settings::share(request, account, reply))
    }

    /// Changes the answer to a request about which this was decided.
    fn misbehaved(&self, request: &Request, reply: Reply, decided: Option<&Decision>) -> Reply {
        let Some(decision) = decided else { return reply };
        let reply = match decision.fate {
            Some(Fate::TimedOutAfter) => self.fault(request, &Code::OperationTimedOut.into()),
            _ => reply,
        };
        Reply { delivery: Delivery::from(decision), ..reply }
    }

    fn carry_out(
        &self,
        request: &Request,
        account: &Arc<Account>,
        target: &Target,
        commits: &Commits,
        routed: &mut Routed,
    ) -> Result<Reply, Fault> {
        local::check(request, account)?;
        let version = Version::of(request, &target.query)?.unwrap_or(Version::DEFAULT);
        let method = Method::of(&request.method, request)?;
        let grant = auth::authenticate(request, account, target)?;
        request.mark_authenticated(&account.name);
        // Azure Table storage has no page for browsers, so requests for it are not counted.
        let is_page = matches!(target.resource, Resource::Unknown(_));
        (routed.account, routed.is_billed) = (Some(Arc::clone(account)), !is_page);
        request.charge_slot(&account.name, grant.token(target))?;
        let decided = &routed.decided;
        let misbehaving =
            self.behaviour.as_ref().map(|behaviour| Misbehaving { behaviour, decided });
        let base = target.base(request.scheme(), request.host());
        self.dispatch(&RequestContext {
            request,
            account,
            target,
            method,
            version,
            grant,
            base,
            commits,
            feed: &routed.feed,
            misbehaving,
        })
    }

    fn dispatch(&self, context: &RequestContext<'_>) -> Result<Reply, Fault> {
        check_md5(context.request, &context.request.body)?;
        let target = context.target;
        target.query.timeout()?;
        let comp = target.query.get(Parameter::Comp);
        let is_write = !matches!(context.method, Method::Get | Method::Head);
        if target.secondary && is_write {
            let fault = Fault::from(Known::InsufficientAccountPermissions);
            return Err(fault.with_message("Write operations are not allowed."));
        }
        // HEAD is answered like GET; the connection then omits the body.
        let is_head = context.method == Method::Head;
        let method = if is_head { Method::Get } else { context.method };
        match (&target.resource, method, comp) {
            (Resource::Service, Method::Get, Some("properties")) => settings::get_service(context),
            (Resource::Service, Method::Put, Some("properties")) => settings::set_service(context),
            (Resource::Service, Method::Get, Some("stats")) => settings::statistics(context),
            (Resource::Entities(table), Method::Get, Some("acl")) => {
                settings::get_acl(context, table)
            }
            (Resource::Entities(table), Method::Put, Some("acl")) => {
                settings::set_acl(context, table)
            }
            (_, _, Some(comp)) => {
                Err(Fault::parameter("comp", comp, "Not known of this resource and method."))
            }
            (Resource::Tables, Method::Get, None) => tables::list(context),
            (Resource::Tables, Method::Post, None) => tables::create(context),
            (Resource::Table(name), Method::Get, None) => tables::get(context, name),
            (Resource::Table(name), Method::Delete, None) => tables::delete(context, name),
            (Resource::Entities(table), Method::Get, None) => {
                entities::query(context, table, Order::Ascending)
            }
            (Resource::Entity { table, key }, Method::Get, None) => {
                entities::get(context, table, key)
            }
            (Resource::Entities(_) | Resource::Entity { .. }, _, None) => entities::write(context),
            (Resource::Batch, Method::Post, None) => {
                let boundaries = Boundaries { batch: self.new_id(), changeset: self.new_id() };
                batch::answer(context, boundaries, self.now())
            }
            (Resource::Metadata, Method::Get, None) => Err(Code::NotImplemented.into()),
            (Resource::Unknown(path), method, None)
                if self.settings.extensions && extensions::has(path) =>
            {
                extensions::answer(context, path, method)
            }
            (Resource::Unknown(path), Method::Get, None) => {
                page::inside(self.settings, &self.heat, context, path)
            }
            (Resource::Unknown(path), _, None) => entities::refuse_inside(context, path),
            (Resource::Service, _, None) => Err(Known::InvalidUri.into()),
            (Resource::Tables | Resource::Table(_) | Resource::Batch | Resource::Metadata, ..) => {
                Err(Known::MethodNotAllowed.into())
            }
        }
    }

    /// Builds the response to a request that failed.
    fn fault(&self, request: &Request, fault: &Fault) -> Reply {
        if let Some(cause) = &fault.cause {
            tracing::error!(request = %request.request_id, code = %fault.code, cause, "a request failed");
        }
        let occasion = Occasion { request_id: &request.request_id, time: self.now() };
        let mut body = Vec::new();
        let reply = Reply::new(fault.status);
        if fault.is_html() {
            fault.put_html(&mut body);
            return reply.with_body("text/html; charset=us-ascii", body);
        }
        let mut reply = reply.with(ERROR_CODE, fault.code.clone());
        if request.method == "POST"
            && let Some(preference) = Preference::of(request)
        {
            reply = reply.with(PREFERENCE_APPLIED, preference.as_str());
        }
        if request.has_xml_errors() {
            fault.put_xml(&mut body, occasion);
            return reply.with_xml(body);
        }
        fault.put_json(&mut body, occasion);
        let reply = reply.with(header::CACHE_CONTROL, "no-cache");
        reply.with_body(Level::Minimal.content_type(), body)
    }

    /// Adds the common headers, then counts and logs the reply.
    fn finish(
        &self,
        request: &Request,
        mut reply: Reply,
        routed: Routed,
        start: Duration,
    ) -> Reply {
        let taken = self.clock.monotonic().saturating_sub(start);
        // The response to a read or a refusal is sent only if the budget has room for it. The
        // response to a write is always sent: its space in the budget was reserved before the
        // write.
        let tells_of_a_write = reply.status.is_success() && reply.status != StatusCode::OK;
        let room = reply.body.capacity();
        match request.grow(&mut reply.share, room) {
            Ok(()) => reply.share.fit(room),
            Err(_) if tells_of_a_write => reply.body.shrink_to_fit(),
            Err(busy) => reply = self.fault(request, &busy),
        }
        let version = routed.version.unwrap_or_else(|| request.version());
        let reply =
            reply.signed(&request.request_id, Some(version.as_str()), client_request_id(request));
        let reply = match self.date(routed.account.as_deref()) {
            Some(date) => reply.with(header::DATE, date),
            None => reply,
        };
        let (status, code) = (reply.status.as_u16(), reply.header(&ERROR_CODE).unwrap_or_default());
        self.metrics.record(&Answered {
            method: &request.method,
            status,
            code,
            time: taken,
            bytes_in: request.body.len() as u64,
            bytes_out: reply.body.len() as u64,
            payer: routed
                .account
                .as_ref()
                .filter(|_| routed.is_billed)
                .map(|account| &*account.name),
        });
        let changed = routed.decided.get().filter(|decision| !decision.rules.is_empty());
        let misbehaved = changed.map(|decision| &*decision.rules);
        tracing::info!(
            request = %request.request_id,
            peer = %request.peer,
            method = %request.method,
            path = %request.path,
            status,
            code,
            micros = taken.as_micros() as u64,
            bytes = reply.body.len(),
            misbehaved,
            "request"
        );
        reply
    }
}

impl Request {
    /// Refuses a request if one of these headers is not valid text. Ignoring the header could, for
    /// example, turn a conditional write into an unconditional one.
    fn check_headers(&self) -> Result<(), Fault> {
        const MEANT: [&str; 8] = [
            "Accept",
            "Content-Type",
            "DataServiceVersion",
            "If-Match",
            "If-None-Match",
            "Prefer",
            "X-HTTP-Method",
            "x-ms-version",
        ];
        // Avoids lookups by name for most requests: this loop is skipped if all values are text,
        // and the loop below is skipped if no name occurs twice.
        let is_text = |value: &HeaderValue| std::str::from_utf8(value.as_bytes()).is_ok();
        if !self.headers.values().all(is_text) {
            for name in MEANT {
                if let Some(value) = self.headers.get_all(name).iter().find(|value| !is_text(value))
                {
                    let shown = String::from_utf8_lossy(value.as_bytes());
                    return Err(Fault::header(name, &shown));
                }
            }
        }
        // These headers must not be repeated: if a proxy used the first value and the server the
        // second, they would see different requests.
        const SINGLE: [&str; 11] = [
            "Accept",
            "Authorization",
            "Content-MD5",
            "Content-Type",
            "DataServiceVersion",
            "Date",
            "Host",
            "If-None-Match",
            "MaxDataServiceVersion",
            "x-ms-date",
            "x-ms-version",
        ];
        if self.headers.len() == self.headers.keys_len() {
            return Ok(());
        }
        for name in SINGLE {
            let mut values = self.headers.get_all(name).iter();
            if values.next().is_some()
                && let Some(second) = values.next()
            {
                // The error contains the repeated value, but must not reveal credentials.
                let second = if name == "Authorization" { b"" } else { second.as_bytes() };
                return Err(Fault::header(name, &String::from_utf8_lossy(second)));
            }
        }
        Ok(())
    }

    /// Returns the version that the response reports.
    fn version(&self) -> Version {
        self.version_of(&address::Parameters::read(&self.query).unwrap_or_default())
    }

    fn version_of(&self, query: &address::Parameters) -> Version {
        Version::of(self, query).ok().flatten().unwrap_or(Version::DEFAULT)
    }

    /// Whether error bodies are XML. They are XML for preflight requests and for requests with
    /// `comp` (settings, policies and statistics). The successful responses to requests with `comp`
    /// are XML, too.
    fn has_xml_errors(&self) -> bool {
        let query = address::Parameters::read(&self.query).unwrap_or_default();
        query.get(Parameter::Comp).is_some() || self.method == "OPTIONS"
    }
}
