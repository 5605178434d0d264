//! Tests the service feature by feature, without sockets: each test sends requests and compares
//! status, headers and body of the responses. The clock is set by the test and ids are seeded, so
//! that whole responses can be compared.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use super::Settings;
use super::accounts::{Account, AccountConfig, Accounts, Rotated};
use super::reply::Reply;
use super::request::Request;
use super::service::Service;
use crate::clock::{Clock, ManualClock};
use crate::db::Db;
use crate::model::DateTime;
use crate::options::Background;
use crate::rest::protocol::address::{Parameters, put_query};
use crate::rest::protocol::sign::{
    AccountKey, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Scheme, SignedParts,
};
use crate::rest::protocol::time;
use crate::rng::Rng;

mod account_tokens;
mod batches;
mod bills;
mod compatibility;
mod entities;
mod errors;
mod exposure;
mod filters;
mod misbehave;
mod protocol;
mod queries;
mod room;
mod settings;
mod sharing;
mod signatures;
mod tables;
mod tokens;
mod writes;

/// The address of the development account.
const BASE: &str = "http://127.0.0.1:10002/devstoreaccount1/";
/// The time of the first write of an entity, unless a test sets another time.
const NOW: &str = "2024-02-03T04:05:06.1234567Z";
/// `NOW` as an ETag.
const NOW_ETAG: &str = "W/\"datetime'2024-02-03T04%3A05%3A06.1234567Z'\"";
const MINIMAL: &str = "application/json;odata=minimalmetadata;streaming=true;charset=utf-8";
/// A second account next to the development account, with two keys.
const ACME: &str = "acme";
const ACME_KEYS: [&str; 2] = ["c2VjcmV0IG9uZQ==", "c2VjcmV0IHR3bw=="];

/// A service with two accounts, whose databases are in memory.
struct Site {
    service: Service,
    clock: Arc<ManualClock>,
}

/// A request under construction.
struct Ask<'s> {
    site: &'s Site,
    request: Request,
    scheme: Scheme,
    /// The account and key with which the request is signed; `None` sends it unsigned.
    signer: Option<(String, AccountKey)>,
}

/// A response.
struct Got {
    status: u16,
    headers: Vec<(HeaderName, Cow<'static, str>)>,
    body: String,
    request_id: String,
    time: DateTime,
}

fn key(text: &str) -> AccountKey {
    AccountKey::read(text).unwrap()
}

fn development_key() -> AccountKey {
    key(DEVELOPMENT_KEY)
}

fn ticks(time: &str) -> u64 {
    time::read_iso(time).unwrap().ticks()
}

impl Site {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(ticks("2024-02-03T04:05:05Z")));
        let databases: Arc<ManualClock> = Arc::clone(&clock);
        Self::with(clock, databases)
    }

    /// Creates a site. `clock` is the clock of the service, `databases` the clock of the databases.
    fn with(clock: Arc<ManualClock>, databases: Arc<dyn Clock>) -> Self {
        let acme = AccountConfig {
            name: ACME.to_owned(),
            keys: ACME_KEYS.map(key).to_vec(),
            database: None,
        };
        let accounts = Accounts::open(vec![AccountConfig::development(), acme], |_| {
            let options = Db::options().background(Background::Manual);
            options.clock(Arc::clone(&databases)).seed(7).open_in_memory()
        });
        let service = Service::with(
            accounts.unwrap(),
            Settings::default(),
            Arc::clone(&clock) as Arc<dyn Clock>,
            Rng::from_seed(7),
        );
        Self { service, clock }
    }

    /// Creates a site with a table `people`; the next write happens at `NOW`.
    fn people() -> Self {
        let site = Self::new();
        site.post("Tables", r#"{"TableName":"people"}"#).send().done(201);
        site.at(NOW);
        site
    }

    /// Sets the current time.
    fn at(&self, time: &str) -> &Self {
        self.clock.jump(ticks(time));
        self
    }

    fn account(&self) -> &Account {
        self.service.accounts().get(DEVELOPMENT_ACCOUNT).unwrap()
    }

    /// Returns a request for `address`, relative to the development account.
    fn ask(&self, method: &str, address: &str) -> Ask<'_> {
        self.ask_path(method, &format!("/{DEVELOPMENT_ACCOUNT}/{address}"))
    }

    /// Returns a request for `address`, a full path with an optional query string.
    fn ask_path(&self, method: &str, address: &str) -> Ask<'_> {
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        let request = Request {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            headers: HeaderMap::new(),
            body: Vec::new().into(),
            peer: IpAddr::V4(Ipv4Addr::LOCALHOST),
            is_encrypted: false,
            received: self.service.now(),
            request_id: self.service.new_id(),
            slot: None,
            request_slot: None,
            response_budget: None,
        };
        let signer = Some((DEVELOPMENT_ACCOUNT.to_owned(), development_key()));
        let ask = Ask { site: self, request, scheme: Scheme::SharedKey, signer };
        ask.header("Host", "127.0.0.1:10002")
            .header("x-ms-version", "2019-02-02")
            .header("x-ms-date", &time::http(self.service.now()))
    }

    fn get(&self, address: &str) -> Ask<'_> {
        self.ask("GET", address)
    }

    fn post(&self, address: &str, body: &str) -> Ask<'_> {
        self.ask("POST", address).json(body)
    }

    fn put(&self, address: &str, body: &str) -> Ask<'_> {
        self.ask("PUT", address).json(body)
    }

    fn patch(&self, address: &str, body: &str) -> Ask<'_> {
        self.ask("PATCH", address).json(body)
    }

    fn delete(&self, address: &str) -> Ask<'_> {
        self.ask("DELETE", address)
    }

    /// Returns a GET request. The values of `parameters` are escaped.
    fn get_with(&self, path: &str, parameters: &[(&str, &str)]) -> Ask<'_> {
        let mut address = path.to_owned();
        put_query(&mut address, parameters.iter().copied());
        self.get(&address)
    }

    /// Returns a query of `people` with a filter.
    fn filter(&self, filter: &str) -> Ask<'_> {
        self.get_with("people()", &[("$filter", filter)])
    }

    /// Returns the RowKeys of the entities that match a filter, in order.
    #[track_caller]
    fn rows(&self, filter: &str) -> String {
        let got = self.filter(filter).header("Accept", "application/json;odata=nometadata").send();
        assert_eq!(got.status, 200, "{filter}: {}", got.body);
        got.values("RowKey").join(" ")
    }

    /// Inserts an entity into `people`; `properties` are its properties as JSON without braces.
    #[track_caller]
    fn insert(&self, pk: &str, rk: &str, properties: &str) -> Got {
        let comma = if properties.is_empty() { "" } else { "," };
        let body = format!("{{\"PartitionKey\":\"{pk}\",\"RowKey\":\"{rk}\"{comma}{properties}}}");
        let got = self.post("people", &body).header("Prefer", "return-no-content").send();
        got.done(204)
    }

    /// Gets the entity with PartitionKey `p` and RowKey `rk` from `people`, without metadata.
    fn bare(&self, rk: &str) -> Got {
        let ask = self.get(&format!("people(PartitionKey='p',RowKey='{rk}')"));
        ask.header("Accept", "application/json;odata=nometadata").send()
    }
}

impl Ask<'_> {
    /// Sets a header.
    fn header(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::try_from(name).unwrap();
        self.request.headers.insert(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        self
    }

    /// Adds a header, even if it is already present.
    fn another(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::try_from(name).unwrap();
        self.request.headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.request.headers.remove(name);
        self
    }

    fn body(mut self, content_type: &str, body: &str) -> Self {
        self.request.body = body.as_bytes().to_vec().into();
        self.header("Content-Type", content_type)
    }

    fn json(self, body: &str) -> Self {
        self.body("application/json", body)
    }

    fn xml(self, body: &str) -> Self {
        self.body("application/xml", body)
    }

    fn matching(self, etag: &str) -> Self {
        self.header("If-Match", etag)
    }

    fn accept(self, accept: &str) -> Self {
        self.header("Accept", accept)
    }

    fn prefer(self, prefer: &str) -> Self {
        self.header("Prefer", prefer)
    }

    fn unsigned(mut self) -> Self {
        self.signer = None;
        self
    }

    fn signed_by(mut self, account: &str, key: AccountKey) -> Self {
        self.signer = Some((account.to_owned(), key));
        self
    }

    fn lite(mut self) -> Self {
        self.scheme = Scheme::SharedKeyLite;
        self
    }

    fn from(mut self, peer: &str) -> Self {
        self.request.peer = peer.parse().unwrap();
        self
    }

    fn encrypted(mut self) -> Self {
        self.request.is_encrypted = true;
        self
    }

    /// Signs and sends the request.
    fn send(self) -> Got {
        let site = self.site;
        let (request, reply) = self.reply();
        Got {
            status: reply.status.as_u16(),
            headers: reply.headers,
            body: String::from_utf8(reply.body).unwrap(),
            request_id: request.request_id,
            time: site.service.now(),
        }
    }

    /// Signs and sends the request. Returns the request and the reply, whose body stays charged to
    /// the budget of unsent responses while the reply exists.
    fn reply(mut self) -> (Request, Reply) {
        if let Some((account, key)) = &self.signer {
            let query = Parameters::read(&self.request.query).unwrap_or_default();
            let request = &self.request;
            let parts = SignedParts::of(&request.method, &request.path, &query, request);
            let signed = parts.sign(self.scheme, account, key);
            self = self.header("Authorization", &signed);
        }
        let Ask { site, request, .. } = self;
        let reply = site.service.answer(&request);
        (request, reply)
    }
}

impl Got {
    fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter().filter(|(given, _)| *given == name);
        let first = all.next().map(|(_, value)| &**value);
        assert!(all.next().is_none(), "the response has the header {name} twice");
        first
    }

    fn etag(&self) -> &str {
        self.header("ETag").unwrap()
    }

    /// Asserts this status.
    #[track_caller]
    fn done(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.body);
        self
    }

    /// Asserts this status and no body.
    #[track_caller]
    fn empty(self, status: u16) -> Self {
        let got = self.done(status);
        assert_eq!((got.body.as_str(), got.header("Content-Type")), ("", None));
        got
    }

    /// Asserts this status and JSON body.
    #[track_caller]
    fn json(self, status: u16, body: &str) -> Self {
        let got = self.done(status);
        assert_eq!(got.body, body);
        got
    }

    /// Asserts an error with a JSON body; `text` is its message.
    #[track_caller]
    fn refused(self, status: u16, code: &str, text: &str) -> Self {
        let text = in_json(text);
        let body = format!(
            "{{\"odata.error\":{{\"code\":\"{code}\",\"message\":{{\"lang\":\"en-US\",\"value\":\"{text}\\nRequestId:{}\
             \\nTime:{}\"}}}}}}",
            self.request_id,
            time::seven_digits(self.time)
        );
        assert_eq!((self.status, self.body.as_str()), (status, body.as_str()));
        assert_eq!(self.header("x-ms-error-code"), Some(code));
        assert_eq!(self.header("Content-Type"), Some(MINIMAL));
        self
    }

    /// Asserts an error with a JSON body and this code, whatever its message.
    #[track_caller]
    fn fails(self, status: u16, code: &str) -> Self {
        let found = self.header("x-ms-error-code").unwrap_or_default();
        assert_eq!((self.status, found), (status, code), "{}", self.body);
        let start =
            format!("{{\"odata.error\":{{\"code\":\"{code}\",\"message\":{{\"lang\":\"en-US\"");
        assert!(self.body.starts_with(&start), "{}", self.body);
        self
    }

    /// Asserts an error with an XML body; `details` are the elements after the message.
    #[track_caller]
    fn refused_xml(self, status: u16, code: &str, text: &str, details: &str) -> Self {
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>{code}</Code><Message>{text}\nRequestId:{}\n\
             Time:{}</Message>{details}</Error>",
            self.request_id,
            time::seven_digits(self.time)
        );
        assert_eq!((self.status, self.body.as_str()), (status, body.as_str()));
        assert_eq!(self.header("x-ms-error-code"), Some(code));
        assert_eq!(self.header("Content-Type"), Some("application/xml"));
        self
    }

    /// Asserts an error with an XML body and this code, whatever its message.
    #[track_caller]
    fn fails_xml(self, status: u16, code: &str) -> Self {
        let found = self.header("x-ms-error-code").unwrap_or_default();
        assert_eq!((self.status, found), (status, code), "{}", self.body);
        let start = format!(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>{code}</Code><Message>"
        );
        assert!(self.body.starts_with(&start), "{}", self.body);
        self
    }

    /// Returns the values of all string members named `name`, at any depth.
    fn values(&self, name: &str) -> Vec<&str> {
        let mark = format!("\"{name}\":\"");
        self.body.split(&mark).skip(1).map(|rest| rest.split('"').next().unwrap()).collect()
    }

    /// Returns the JSON text of member `name` and of its annotation. The body must contain only one
    /// entity.
    fn member(&self, name: &str) -> Option<String> {
        let found = self.body.find(&format!("\"{name}\":"))?;
        let rest = &self.body[found..];
        let end = rest.find(['}', ']']).unwrap();
        let value = &rest[name.len() + 3..end];
        let end = value.find(",\"").unwrap_or(value.len());
        Some(value[..end].to_owned())
    }

    fn has(&self, text: &str) -> bool {
        self.body.contains(text)
    }
}

/// Escapes `text` for a JSON string.
fn in_json(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// Returns the address of an entity of `people` with PartitionKey `p`.
fn person(rk: &str) -> String {
    format!("people(PartitionKey='p',RowKey='{rk}')")
}
