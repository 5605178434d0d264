//! Fuzz target: sends requests to the server's code without a connection, on a database in memory.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::http::Uri;

use crate::clock::Clock;
use crate::db::Db;
use crate::error::Code;
use crate::model::{DateTime, Entity};
use crate::rest::Settings;
use crate::rest::accounts::{AccountConfig, Accounts};
use crate::rest::protocol::address::Parameters;
use crate::rest::protocol::answer::{read_json, read_response, read_xml};
use crate::rest::protocol::fault::Known;
use crate::rest::protocol::sas::Sas;
use crate::rest::protocol::sign::{
    AccountKey, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Scheme, SignedParts,
};
use crate::rest::protocol::time;
use crate::rest::reply::{ERROR_CODE, Reply};
use crate::rest::service::{Request, Service};
use crate::rng::Rng;

use crate::testing::fuzzing::commands;

/// The query parameters that a shared access signature may have.
const TOKEN_NAMES: [&str; 16] = [
    "sv", "sig", "tn", "sp", "st", "se", "si", "sip", "spr", "ss", "srt", "ses", "spk", "srk",
    "epk", "erk",
];
/// The maximum number of requests in one input. Zero bytes separate them.
const REQUESTS_MAX: usize = 8;

/// Answers the requests in `data` as on a connection. Each is sent unchanged, then with a valid
/// signature for its token if it has one, and finally signed with the account's key.
///
/// Every response must be one that the service documents. A request with neither key nor token
/// must change and reveal nothing. A request whose token permits no write must change nothing.
pub fn rest(data: &[u8]) {
    let clock = Arc::new(commands::clock());
    let db = commands::memory(&crate::fs::MemFs::new());
    fill(&db);
    let accounts = Accounts::open(vec![AccountConfig::development()], |_| Ok::<_, ()>(db.clone()));
    let Ok(accounts) = accounts else { return };
    let service =
        Service::with(accounts, Settings::default(), Arc::clone(&clock) as _, Rng::from_seed(1));
    let now = DateTime::from_ticks(clock.now()).unwrap_or(DateTime::MAX);
    for request in data.split(|byte| *byte == 0).take(REQUESTS_MAX) {
        let Some(mut request) = read(request, now) else { continue };
        let before = commands::contents(&db);
        let reply = service.answer(&request);
        check(&request, &reply);
        let is_public =
            request.method == "OPTIONS" || matches!(request.path.as_str(), "/" | "/favicon.ico");
        assert!(!reply.status.is_success() || is_public, "{request:?} answered with {reply:?}");
        assert_eq!(commands::contents(&db), before, "{request:?} wrote something");
        if let Some((query, letters)) = with_token(&request.query) {
            request.headers.remove("authorization");
            let unsigned = std::mem::replace(&mut request.query, query);
            check(&request, &service.answer(&request));
            let may_write =
                letters.is_none_or(|letters| letters.contains(['a', 'c', 'd', 'u', 'w']));
            assert!(may_write || commands::contents(&db) == before, "{request:?} wrote something");
            request.query = unsigned;
        }
        sign(&mut request, now);
        check(&request, &service.answer(&request));
    }
    commands::sound(&db);
}

/// Inserts some entities that the requests can find, replace and delete.
fn fill(db: &Db) {
    let table = commands::table(db, "people");
    for (pk, rk) in [("p", "a"), ("p", "b"), ("q", "")] {
        let entity =
            Entity::new(pk, rk).with("Age", 42).with("Name", "Ann").with("Id", 1_i64 << 40);
        table.insert(entity).unwrap_or_else(|error| panic!("an insert in memory: {error:?}"));
    }
}

/// Parses a request leniently: drops invalid headers, and takes all remaining bytes as the body.
/// `None` if the method or the address is invalid.
fn read(data: &[u8], now: DateTime) -> Option<Request> {
    let (first, mut rest) = line(data);
    let mut words = first.split(|byte| *byte == b' ');
    let (method, target) = (words.next()?, words.next()?);
    let method = hyper::Method::from_bytes(method).ok()?;
    let target = Uri::try_from(target).ok()?;
    let mut headers = HeaderMap::new();
    loop {
        let (field, after) = line(rest);
        rest = after;
        let Some(colon) = field.iter().position(|byte| *byte == b':') else { break };
        let (name, value) = field.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or_default().trim_ascii();
        let field = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value));
        if let (Ok(name), Ok(value)) = field {
            headers.append(name, value);
        }
    }
    if !headers.contains_key("host") {
        headers.insert("host", HeaderValue::from_static("localhost"));
    }
    Some(Request {
        method: method.as_str().to_owned(),
        path: target.path().to_owned(),
        query: target.query().unwrap_or_default().to_owned(),
        headers,
        body: Bytes::copy_from_slice(rest),
        peer: IpAddr::V4(Ipv4Addr::LOCALHOST),
        is_encrypted: false,
        received: now,
        request_id: "00000000-0000-4000-8000-000000000000".to_owned(),
        slot: None,
        request_slot: None,
        response_budget: None,
    })
}

fn line(data: &[u8]) -> (&[u8], &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (line, rest) = data.split_at(end);
    (line.strip_suffix(b"\r").unwrap_or(line), rest.strip_prefix(b"\n").unwrap_or_default())
}

/// Signs a request, if its query string can be read.
fn sign(request: &mut Request, now: DateTime) {
    let Ok(query) = Parameters::read(&request.query) else { return };
    let Some(key) = AccountKey::read(DEVELOPMENT_KEY) else { return };
    let Ok(date) = HeaderValue::from_str(&time::http(now)) else { return };
    request.headers.insert("x-ms-date", date);
    let parts = SignedParts::of(&request.method, &request.path, &query, &*request);
    let signed = parts.sign(Scheme::SharedKey, DEVELOPMENT_ACCOUNT, &key);
    if let Ok(signed) = HeaderValue::from_str(&signed) {
        request.headers.insert("authorization", signed);
    }
}

/// Returns the query string with a valid signature for its token, and the letters of the token's
/// permissions. There are no letters if the token names a stored policy. `None` without a token.
fn with_token(query: &str) -> Option<(String, Option<String>)> {
    let sas = Sas::read(&Parameters::read(query).ok()?).ok()??;
    let key = AccountKey::read(DEVELOPMENT_KEY)?;
    let (token, letters) = match sas {
        Sas::Service(sas) => {
            // The permissions of a stored policy are not looked up here.
            let letters = sas.policy.is_none().then(|| sas.terms.permissions.clone());
            (sas.sign(DEVELOPMENT_ACCOUNT, &key).token(), letters)
        }
        Sas::Account(sas) => {
            let letters = Some(sas.terms.permissions.clone());
            (sas.sign(DEVELOPMENT_ACCOUNT, &key).token(), letters)
        }
    };
    let letters = letters.map(Option::unwrap_or_default);
    let is_of_token = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default();
        TOKEN_NAMES.contains(&name)
    };
    let rest: Vec<_> =
        query.split('&').filter(|pair| !is_of_token(pair)).chain([&*token]).collect();
    Some((rest.join("&"), letters))
}

/// Asserts that a response is one that clients understand: a known status, valid headers, and a
/// documented error code in header and body.
fn check(request: &Request, reply: &Reply) {
    let status = reply.status.as_u16();
    for (name, value) in &reply.headers {
        assert!(HeaderValue::from_bytes(value.as_bytes()).is_ok(), "{name}: {value:?}");
    }
    let Ok(body) = std::str::from_utf8(&reply.body) else { panic!("{request:?}: a body of bytes") };
    if status < 400 {
        assert!(matches!(status, 200 | 201 | 202 | 204), "{request:?}: {status}");
        assert!(status != 202 || reply.body.is_empty() || is_batch(reply), "{request:?}: {body}");
        return;
    }
    let Some(code) = reply.header(&ERROR_CODE) else {
        assert!(
            status == 400 && body.contains("Invalid URL"),
            "{request:?}: {status} without a code"
        );
        return;
    };
    assert!(is_documented(code, status), "{request:?}: {status} {code}");
    assert_ne!(code, "InternalError", "{request:?}: {body}");
    let read = read_json(body, status).or_else(|| read_xml(body, status));
    assert!(read.is_some_and(|fault| fault.code == code), "{request:?}: {body}");
}

/// True if the response to every operation in the batch is one that the service documents.
fn is_batch(reply: &Reply) -> bool {
    let content_type = reply.header(&hyper::header::CONTENT_TYPE).unwrap_or_default();
    let Some(answers) = read_response(&reply.body, content_type) else { return false };
    answers.iter().all(|answer| match answer.fault() {
        Some(fault) => is_documented(&fault.code, fault.status) && fault.status != 500,
        None => true,
    })
}

/// Whether the service documents `code` together with `status`.
fn is_documented(code: &str, status: u16) -> bool {
    let known = Known::ALL.iter().map(|known| known.parts());
    let own = Code::ALL.iter().map(|code| (code.as_str(), code.status(), ""));
    known.chain(own).any(|(name, own, _)| (name, own) == (code, status))
}

/// Returns the initial corpus, which covers every operation and every kind of authorization.
pub fn seeds() -> Vec<Vec<u8>> {
    let texts = SEEDS.iter().map(|text| text.replace("~", "\0").replace('\n', "\r\n").into_bytes());
    texts.collect()
}

/// The initial inputs. A tilde represents the zero byte between two requests.
const SEEDS: [&str; 11] = [
    "GET / HTTP/1.1\n\n~OPTIONS /devstoreaccount1/people HTTP/1.1\nOrigin: http://a\n\
     Access-Control-Request-Method: GET\nAccess-Control-Request-Headers: x-ms-date\n\n",
    "POST /devstoreaccount1/Tables HTTP/1.1\nPrefer: return-no-content\n\n{\"TableName\":\"cars\"}~\
     GET /devstoreaccount1/Tables?$filter=TableName%20ge%20'c'&$top=1 HTTP/1.1\n\n~\
     GET /devstoreaccount1/Tables('cars') HTTP/1.1\nAccept: application/json;odata=fullmetadata\n\n~\
     DELETE /devstoreaccount1/Tables('cars') HTTP/1.1\n\n",
    "GET /devstoreaccount1/people()?$filter=Age%20ge%2021%20and%20not(Name%20eq%20'B')&$select=Age,Name&$top=2 HTTP/1.1\n\n~\
     GET /devstoreaccount1/people?NextPartitionKey=1!4!cA--&NextRowKey=1!4!Yg-- HTTP/1.1\n\
     Accept: application/json;odata=nometadata\n\n",
    "GET /devstoreaccount1/people(PartitionKey='p',RowKey='a')?$select=Age HTTP/1.1\n\n~\
     HEAD /devstoreaccount1-secondary/people(RowKey='a',PartitionKey='p') HTTP/1.1\n\n~\
     GET /people(PartitionKey='q',RowKey='') HTTP/1.1\nHost: devstoreaccount1.table.localhost:10002\n\n",
    "POST /devstoreaccount1/people HTTP/1.1\nContent-Type: application/json;odata=nometadata\nDataServiceVersion: 3.0;NetFx\n\
     x-ms-client-request-id: 7\n\n{\"PartitionKey\":\"p\",\"RowKey\":\"n\",\"A@odata.type\":\"Edm.Int64\",\"A\":\"7\",\
     \"B\":1.5,\"C\":true,\"D\":null,\"E@odata.type\":\"Edm.DateTime\",\"E\":\"2024-01-01T00:00:00Z\"}",
    "PUT /devstoreaccount1/people(PartitionKey='p',RowKey='a') HTTP/1.1\nIf-Match: *\n\n{\"Age\":1}~\
     MERGE /devstoreaccount1/people(PartitionKey='p',RowKey='a') HTTP/1.1\nIf-Match: W/\"datetime'2024-01-01T00%3A00%3A00Z'\"\n\n{\"B\":2}~\
     POST /devstoreaccount1/people(PartitionKey='p',RowKey='z') HTTP/1.1\nX-HTTP-Method: MERGE\n\n{\"B\":2}~\
     DELETE /devstoreaccount1/people(PartitionKey='p',RowKey='b') HTTP/1.1\nIf-Match: *\n\n",
    "POST /devstoreaccount1/$batch HTTP/1.1\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\
     Content-Type: multipart/mixed; boundary=c\n\n--c\nContent-Type: application/http\nContent-Transfer-Encoding: binary\n\n\
     POST http://localhost/devstoreaccount1/people HTTP/1.1\nContent-ID: 1\n\n{\"PartitionKey\":\"p\",\"RowKey\":\"1\"}\n\
     --c\nContent-Type: application/http\n\nDELETE /people(PartitionKey='p',RowKey='a') HTTP/1.1\nIf-Match: *\n\n\n--c--\n--b--\n",
    "POST /devstoreaccount1/$batch HTTP/1.1\nContent-Type: multipart/mixed; boundary=\"b\"\n\n--b\n\
     Content-Type: application/http\n\nGET /people(PartitionKey='p',RowKey='a') HTTP/1.1\n\n--b--",
    "PUT /devstoreaccount1/people?comp=acl HTTP/1.1\n\n<SignedIdentifiers><SignedIdentifier><Id>i</Id><AccessPolicy>\
     <Start>2024-01-01</Start><Expiry>2025-01-01T00:00:00Z</Expiry><Permission>raud</Permission></AccessPolicy></SignedIdentifier>\
     </SignedIdentifiers>~GET /devstoreaccount1/people?comp=acl HTTP/1.1\n\n~\
     GET /devstoreaccount1/people?sv=2019-02-02&tn=people&si=i&sig=x HTTP/1.1\n\n",
    "PUT /devstoreaccount1/?restype=service&comp=properties HTTP/1.1\n\n<StorageServiceProperties><Cors><CorsRule>\
     <AllowedOrigins>*</AllowedOrigins><AllowedMethods>GET,PUT</AllowedMethods><MaxAgeInSeconds>9</MaxAgeInSeconds>\
     <ExposedHeaders>*</ExposedHeaders><AllowedHeaders>x-ms-*</AllowedHeaders></CorsRule></Cors></StorageServiceProperties>~\
     GET /devstoreaccount1?restype=service&comp=properties HTTP/1.1\nOrigin: http://a\n\n~\
     GET /devstoreaccount1-secondary/?restype=service&comp=stats HTTP/1.1\n\n~\
     OPTIONS /devstoreaccount1/people HTTP/1.1\nOrigin: http://a\nAccess-Control-Request-Method: PUT\n\n",
    "GET /devstoreaccount1/people?sv=2019-02-02&tn=people&sp=r&se=2100-01-01&spk=p&epk=p&sig=x HTTP/1.1\n\n~\
     DELETE /devstoreaccount1/people(PartitionKey='p',RowKey='a')?sv=2019-02-02&ss=t&srt=o&sp=rd&se=2100-01-01&sig=x HTTP/1.1\n\
     If-Match: *\n\n~GET /devstoreaccount1/$rowstone/stats HTTP/1.1\n\n~\
     GET /devstoreaccount1/$rowstone/explain/people?$filter=Age%20eq%201 HTTP/1.1\n\n",
];
