//! Counts the requests of a server, and exports the counters in the Prometheus text format.
//!
//! Not here: the counters of databases (`Db::stats`), the text format (`db::prometheus`), the
//! listener that serves it (`http::metrics`).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::behave::Behaviour;
use crate::billing::Bill;
use crate::db::prometheus::{Exposition, Metric};
use crate::sync::Mutex;

/// Upper bounds of the buckets in the histogram of response times, in seconds.
const BOUNDS: [f64; 11] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0];

/// Counts since the server started.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    /// The number of requests by method, HTTP status and error code.
    requests: BTreeMap<(&'static str, u16, String), u64>,
    times: [u64; BOUNDS.len()],
    count: u64,
    seconds: f64,
    bytes_in: u64,
    bytes_out: u64,
    /// For each account: the requests that Azure Table storage would bill.
    bills: BTreeMap<String, Bill>,
}

/// An answered request.
pub(super) struct Answered<'a> {
    pub(super) method: &'a str,
    pub(super) status: u16,
    /// The error code; empty after success.
    pub(super) code: &'a str,
    pub(super) time: Duration,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    /// The account whose client was authenticated.
    pub(super) payer: Option<&'a str>,
}

impl Metrics {
    /// Counts a request.
    pub(super) fn record(&self, answered: &Answered<'_>) {
        let Answered { method, status, code, time, bytes_in, bytes_out, payer } = *answered;
        let mut counted = self.counted.lock();
        // `known` maps all unusual methods to one name, because clients may send any method and
        // could add any number of keys.
        let key = (known(method), status, code.to_owned());
        *counted.requests.entry(key).or_default() += 1;
        let seconds = time.as_secs_f64();
        for (bound, count) in BOUNDS.iter().zip(&mut counted.times) {
            *count += u64::from(seconds <= *bound);
        }
        counted.count += 1;
        counted.seconds += seconds;
        counted.bytes_in += bytes_in;
        counted.bytes_out += bytes_out;
        let Some(payer) = payer else { return };
        if let Some(bill) = counted.bills.get_mut(payer) {
            return bill.add_answer(status, bytes_out);
        }
        let bill = counted.bills.entry(payer.to_owned()).or_default();
        bill.add_answer(status, bytes_out);
    }

    pub(crate) fn put(&self, out: &mut Exposition) {
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
        counted.put_bills(out);
    }
}

impl Counted {
    fn put_bills(&self, out: &mut Exposition) {
        let help = "Requests that Azure Table storage would bill.";
        let name = begin(out, "rowstone_billable_transactions_total", "counter", help);
        for (account, bill) in &self.bills {
            out.sample(name, &[("account", account)], bill.transactions);
        }
        let help = "Bytes of the bodies of responses to billable requests.";
        let name = begin(out, "rowstone_billable_response_bytes_total", "counter", help);
        for (account, bill) in &self.bills {
            out.sample(name, &[("account", account)], bill.bytes_out);
        }
    }
}

/// Exports the number of requests that each rule of `serve --behave` changed.
pub(super) fn put_misbehaved(out: &mut Exposition, behaviour: &Behaviour) {
    let help = "Requests that were changed on purpose.";
    let name = begin(out, "rowstone_misbehaved_total", "counter", help);
    for (rule, action, count) in behaviour.done() {
        out.sample(name, &[("rule", rule), ("action", action)], count);
    }
}

pub(super) fn begin(
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
