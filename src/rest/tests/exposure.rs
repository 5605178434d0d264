//! Tests what a server exposes: accounts with a public key, repeated headers, concurrent requests,
//! and the details of failures in responses and in the log.

use std::io::Write;

use super::*;
use crate::error::{Error, ErrorKind};
use crate::rest::protocol::fault::Fault;
use crate::sync::Mutex;

const PERSON: &str = r#"{"PartitionKey":"p","RowKey":"r"}"#;

#[test]
fn a_public_key_is_valid_on_loopback_only() {
    let site = Site::people();
    for host in ["evil.example", "evil.example:10002", "192.0.2.1:10002"] {
        site.get("people()").header("Host", host).send().fails(403, "AuthorizationFailure");
        let ask = site.post("people", PERSON).header("Host", host);
        ask.send().fails(403, "AuthorizationFailure");
    }
    let host = "devstoreaccount1.table.evil.example";
    let ask = site.ask_path("GET", "/people()").header("Host", host);
    ask.send().fails(403, "AuthorizationFailure");
    assert_eq!(site.get("people()").send().done(200).values("RowKey"), [""; 0]);
    // An account with a private key is served under any host name.
    let ask = site.ask_path("GET", "/acme/Tables").header("Host", "tables.example");
    ask.signed_by(ACME, key(ACME_KEYS[0])).send().done(200);
}

#[test]
fn a_foreign_web_page_cannot_write_with_a_public_key() {
    let site = Site::people();
    let origin = "http://a.example";
    let post = |body: &str, fetch: &str| {
        let ask = site.post("people", body).header("Origin", origin);
        ask.header("Sec-Fetch-Site", fetch).send()
    };
    let refused = post(PERSON, "cross-site");
    refused.fails(403, "CorsPreflightFailure");
    let get =
        || site.get("people()").header("Origin", origin).header("Sec-Fetch-Site", "cross-site");
    assert_eq!(get().send().done(200).values("RowKey"), [""; 0]);
    post(PERSON, "same-origin").done(201);
    // A request without `Sec-Fetch-Site` is not from a browser. Then `Origin` only determines the
    // CORS headers of the response.
    let body = r#"{"PartitionKey":"p","RowKey":"s"}"#;
    site.post("people", body).header("Origin", origin).send().done(201);
    let rule = format!(
        "<CorsRule><AllowedOrigins>{origin}</AllowedOrigins><AllowedMethods>POST</AllowedMethods>\
         <MaxAgeInSeconds>1</MaxAgeInSeconds></CorsRule>"
    );
    let xml = format!("<StorageServiceProperties><Cors>{rule}</Cors></StorageServiceProperties>");
    site.ask("PUT", "?restype=service&comp=properties").xml(&xml).send().done(202);
    post(r#"{"PartitionKey":"p","RowKey":"t"}"#, "cross-site").done(201);
}

#[test]
fn single_valued_headers_are_refused_if_repeated() {
    let site = Site::people();
    site.insert("p", "r", "");
    for name in [
        "Accept",
        "Authorization",
        "Content-Type",
        "DataServiceVersion",
        "Host",
        "x-ms-date",
        "x-ms-version",
    ] {
        let ask = site.put(&person("r"), "{}").header("Accept", "application/json");
        let ask = ask.header("DataServiceVersion", "3.0");
        let mut ask = ask.another(name, "2019-02-02");
        if name == "Authorization" {
            // Signing would replace both values of `Authorization`, so the request is not signed.
            ask = ask.unsigned().another(name, "SharedKey devstoreaccount1:AAAA");
        }
        ask.send().fails(400, "InvalidHeaderValue");
    }
    let ask = site.put(&person("r"), "{}").matching(NOW_ETAG).another("If-Match", "*");
    let text = format!(
        "The etag value '{NOW_ETAG},*' specified in one of the request headers is not valid. \
         Please make sure only one etag value is specified and is valid."
    );
    ask.send().refused(400, "InvalidInput", &text);
}

/// The log output, as JSON lines.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_log_says_why_a_request_failed_and_the_answer_does_not() {
    let site = Site::people();
    let request = site.get("people()").request;
    let log = Log::default();
    let answered = |error: Error| {
        let fault = Fault::from(error);
        tracing::subscriber::with_default(subscriber_of(&log), || {
            site.service.refuse(&request, fault)
        })
    };
    let cause = "record at byte 32768 of /var/db/000004.wal";
    let reply = answered(Error::new(ErrorKind::Corruption, cause));
    assert!(!String::from_utf8(reply.body).unwrap().contains("wal"));
    let said = String::from_utf8(std::mem::take(&mut *log.0.lock())).unwrap();
    let line = said.lines().find(|line| line.contains(cause)).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("\"ERROR\"") && line.contains(&request.request_id), "{line}");
    // Errors caused by the client and transient errors must not be logged as failures.
    answered(Error::refused(crate::error::Code::ServerBusy));
    answered(Error::refused(crate::error::Code::InvalidInput));
    let said = String::from_utf8(std::mem::take(&mut *log.0.lock())).unwrap();
    assert!(!said.contains("ERROR"), "{said}");
}

fn subscriber_of(log: &Log) -> impl tracing::Subscriber + Send + Sync {
    let log = log.clone();
    tracing_subscriber::fmt().json().with_writer(move || log.clone()).finish()
}

#[test]
fn settings_that_are_set_at_the_same_time_are_all_kept() {
    let site = Site::new();
    let set = |inner: &str| {
        let xml = format!("<StorageServiceProperties>{inner}</StorageServiceProperties>");
        let ask = site.ask("PUT", "?restype=service&comp=properties").xml(&xml);
        ask.send().done(202);
    };
    let metrics = |name: &str, on: bool| {
        let apis = if on { "<IncludeAPIs>true</IncludeAPIs>" } else { "" };
        format!(
            "<{name}><Version>1.0</Version><Enabled>{on}</Enabled>{apis}<RetentionPolicy>\
             <Enabled>false</Enabled></RetentionPolicy></{name}>"
        )
    };
    for round in 0..100 {
        let on = round % 2 == 0;
        std::thread::scope(|scope| {
            for name in ["HourMetrics", "MinuteMetrics"] {
                let (set, metrics) = (&set, &metrics);
                scope.spawn(move || set(&metrics(name, on)));
            }
        });
        let got = site.get("?restype=service&comp=properties").send().done(200);
        for name in ["HourMetrics", "MinuteMetrics"] {
            let expected = format!("<{name}><Version>1.0</Version><Enabled>{on}</Enabled>");
            assert!(got.has(&expected), "round {round}: {}", got.body);
        }
    }
}
