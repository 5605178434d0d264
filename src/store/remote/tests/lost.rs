//! Requests that are repeated, and lost answers. The transport gives the answers that a test lists.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{ManualClock, TICKS_PER_SECOND};
use crate::error::{ErrorKind, Result};
use crate::model::{DateTime, ETag, Entity};
use crate::rest::protocol::time;
use crate::retry::{RetryPolicy, Rng};
use crate::store::remote::endpoint::Endpoint;
use crate::store::remote::transport::{NoAnswer, Request, Response, Transport};
use crate::store::remote::{Remote, RemoteOptions};
use crate::store::table_store::{Condition, PageQuery, TableStore};
use crate::store::update::{PartitionView, transact_with, update_with};
use crate::sync::{Mutex, OnceLock};
use crate::table::{EntityGroup, Operation};

const SERVICE_TIME: Duration = Duration::from_secs(30);
const READ: &str = "W/\"read\"";
const NOW: &str = "2024-02-03T04:05:06Z";

/// The answer to one request.
#[derive(Clone, Copy, Debug)]
enum Step {
    Lost,
    NotSent,
    TooLarge,
    /// A refused certificate.
    Untrusted,
    Done,
    Refused(u16, &'static str),
    /// Too many requests, with this `Retry-After`.
    Throttled(&'static str),
    /// The entity of the first request, with the ETag `W/"own"`.
    Own,
    /// The entity of another request, with this ETag.
    Other(&'static str),
    /// A group whose body breaks the protocol.
    Cut,
    /// A refused signature, with this time of the service's clock.
    Skewed(&'static str),
    EmptyPage,
    /// A refusal by the service with this date.
    Dated(&'static str),
    /// An answer with this status, these headers and this date.
    Strange(u16, &'static [(&'static str, &'static str)], &'static str),
}
use Step::*;

/// What a client did, in order: the method of each request, and `wait` or `pause` for a wait of at
/// least, or less than, the time of the service.
#[derive(Default)]
struct Script {
    steps: Mutex<VecDeque<Step>>,
    requests: Mutex<Vec<Request>>,
    trace: Mutex<Vec<&'static str>>,
    waits: Mutex<Vec<Duration>>,
    clock: OnceLock<Arc<ManualClock>>,
}

impl Transport for Script {
    fn send(&self, request: &Request, _time: Duration) -> Result<Response, NoAnswer> {
        self.trace.lock().push(request.method);
        self.requests.lock().push(request.clone());
        let step = self.steps.lock().pop_front().expect("no more requests were expected");
        let no_answer = |was_sent, is_too_large| {
            Err(NoAnswer { was_sent, is_too_large, is_final: false, problem: "cut".to_owned() })
        };
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let answer = |status, headers: Vec<(String, String)>, body: String| {
            Ok(Response { status, headers, body: body.into_bytes() })
        };
        match step {
            Lost => no_answer(true, false),
            NotSent => no_answer(false, false),
            TooLarge => no_answer(true, true),
            Untrusted => Err(NoAnswer {
                was_sent: false,
                is_too_large: false,
                is_final: true,
                problem: "its certificate is refused".to_owned(),
            }),
            Done => answer(204, vec![header("ETag", "W/\"done\"")], String::new()),
            Refused(status, code) => {
                answer(status, vec![header("x-ms-error-code", code)], String::new())
            }
            Throttled(after) => {
                let code = header("x-ms-error-code", "TooManyRequests");
                answer(429, vec![code, header("Retry-After", after)], String::new())
            }
            Own => {
                let requests = self.requests.lock();
                let body = String::from_utf8(requests[0].body.clone()).unwrap();
                let json = body.lines().rev().find_map(|line| line.strip_prefix('{')).unwrap();
                answer(200, vec![], format!("{{\"odata.etag\":\"W/\\\"own\\\"\",{json}"))
            }
            Other(etag) => {
                let keys = "{\"PartitionKey\":\"p\",\"RowKey\":\"r\"}".to_owned();
                answer(200, vec![header("ETag", etag)], keys)
            }
            Cut => answer(202, vec![header("Content-Type", "multipart/mixed")], "--".to_owned()),
            Skewed(date) => answer(403, vec![header("Date", &http(date))], String::new()),
            Dated(date) => {
                let headers = vec![header("Date", &http(date)), header("x-ms-version", "1")];
                answer(403, headers, String::new())
            }
            Strange(status, others, date) => {
                let others = others.iter().map(|(name, value)| header(name, value));
                let headers = others.chain([header("Date", &http(date))]).collect();
                answer(status, headers, String::new())
            }
            EmptyPage => answer(200, vec![], "{\"value\":[]}".to_owned()),
        }
    }

    fn wait(&self, time: Duration) {
        self.trace.lock().push(if time >= SERVICE_TIME { "wait" } else { "pause" });
        self.waits.lock().push(time);
    }
}

/// Returns a time as in a header.
fn http(text: &str) -> String {
    time::http(DateTime::parse(text).unwrap())
}

fn scripted(steps: &[Step], options: RemoteOptions, url: &str) -> (Remote, Arc<Script>) {
    let script = Arc::new(Script { steps: Mutex::new(steps.to_vec().into()), ..Script::default() });
    let clock = Arc::new(ManualClock::new(DateTime::parse(NOW).unwrap().ticks()));
    assert!(script.clock.set(Arc::clone(&clock)).is_ok());
    let text = format!("AccountName=acme;AccountKey=c2VjcmV0;TableEndpoint={url}");
    let endpoint = Endpoint::read(&text).unwrap();
    let transport = Arc::<Script>::clone(&script);
    (Remote::with_parts(endpoint, transport, clock, Rng::from_seed(1), options), script)
}

fn bolt() -> Entity {
    Entity::new("p", "r").with("Price", 1)
}

fn with_id() -> RemoteOptions {
    RemoteOptions::new().request_id("RequestId")
}

fn read_etag() -> Condition {
    Condition::Match(READ.parse().unwrap())
}

/// A write through a closure, of which each run is in the trace.
fn raise(remote: &Remote, runs: &Script, is_group: bool) -> Result<()> {
    let (mut rng, wait) = (Rng::from_seed(1), |time| runs.wait(time));
    let change = |entity: &mut Entity| {
        runs.trace.lock().push("run");
        entity.set("Price", 2);
        Ok(())
    };
    if !is_group {
        return update_with(&mut rng, wait, remote, "parts", ("p", "r"), change).map(drop);
    }
    let build = |view: &mut PartitionView<'_>| {
        let mut entity = view.get("r")?.expect("the script has it");
        change(&mut entity)?;
        EntityGroup::from_operations([Operation::Merge(entity, None)])
    };
    transact_with(&mut rng, wait, remote, "parts", "p", build).map(drop)
}

/// Runs a verb over `steps`, and compares the result and the trace with the expected ones.
#[track_caller]
fn check<T: std::fmt::Debug>(
    options: RemoteOptions,
    steps: &[Step],
    verb: impl FnOnce(&Remote) -> Result<T>,
    expected: Result<(), ErrorKind>,
    trace: &str,
) -> Arc<Script> {
    let (remote, script) = scripted(steps, options, "https://acme.table.example.com");
    let result = verb(&remote);
    assert_eq!(script.trace.lock().join(" "), trace, "{steps:?}: {result:?}");
    assert_eq!(result.map(drop).map_err(|error| error.kind()), expected, "{steps:?}");
    assert!(script.steps.lock().is_empty(), "{steps:?}");
    script
}

const UNKNOWN: Result<(), ErrorKind> = Err(ErrorKind::OutcomeUnknown);

#[test]
fn a_repeat_waits_for_the_service_unless_an_etag_lets_one_of_two_take_effect() {
    let insert = |remote: &Remote| remote.insert("parts", &bolt());
    check(with_id(), &[Lost, Done], insert, Ok(()), "POST wait POST");
    let upsert = |remote: &Remote| remote.upsert("parts", &bolt());
    check(with_id(), &[Lost, Done], upsert, Ok(()), "PUT wait PUT");
    let any = |remote: &Remote| remote.merge("parts", &bolt(), &Condition::Any);
    check(with_id(), &[Lost, Done], any, Ok(()), "PATCH wait PATCH");
    let etag = |remote: &Remote| remote.replace("parts", &bolt(), &read_etag());
    let script = check(with_id(), &[Lost, Done], etag, Ok(()), "PUT pause PUT");
    let requests = script.requests.lock();
    assert_eq!(requests[0].body, requests[1].body, "a repeat has the same request id");
    assert!(requests[1].headers.contains(&("If-Match", READ.to_owned())));
    // Nothing was done, so a repeat need not wait.
    let busy = [Refused(503, "ServerBusy"), NotSent, Done];
    check(with_id(), &busy, insert, Ok(()), "POST pause POST pause POST");
}

#[test]
fn a_refused_repeat_is_success_only_if_a_read_finds_the_request_id() {
    let insert = |remote: &Remote| {
        let etag = remote.insert("parts", &bolt())?;
        assert_eq!(etag.to_string(), "W/\"own\"");
        Ok(())
    };
    let exists = Refused(409, "EntityAlreadyExists");
    check(with_id(), &[Lost, exists, Own], insert, Ok(()), "POST wait POST GET");
    check(with_id(), &[Lost, exists, Other(READ)], insert, UNKNOWN, "POST wait POST GET");
    check(RemoteOptions::new(), &[Lost, exists, Own], insert, UNKNOWN, "POST wait POST GET");
    check(with_id(), &[exists], insert, Err(ErrorKind::AlreadyExists), "POST");

    let replace = |remote: &Remote| remote.replace("parts", &bolt(), &read_etag());
    let changed = Refused(412, "UpdateConditionNotSatisfied");
    let trace = "PUT pause PUT GET";
    check(with_id(), &[Lost, changed, Own], replace, Ok(()), trace);
    let trace = "PUT pause PUT GET wait GET";
    let other = Other("W/\"other\"");
    check(with_id(), &[Lost, changed, other, other], replace, UNKNOWN, trace);
    check(with_id(), &[changed], replace, Err(ErrorKind::PreconditionFailed), "PUT");

    let create = |remote: &Remote| remote.create_table("parts");
    let exists = Refused(409, "TableAlreadyExists");
    check(with_id(), &[Lost, exists], create, UNKNOWN, "POST wait POST");
    let drop = |remote: &Remote| remote.delete_table("parts");
    let missing = Refused(404, "ResourceNotFound");
    check(with_id(), &[Lost, missing], drop, UNKNOWN, "DELETE wait DELETE");
}

/// A 412 of the first try is a conflict. A 412 of a repeat after a lost answer may be due to the
/// first try.
#[test]
fn a_closure_runs_again_only_after_a_refusal_of_a_first_try() {
    let changed = Refused(412, "UpdateConditionNotSatisfied");
    let (read, other) = (Other(READ), Other("W/\"other\""));
    #[track_caller]
    fn check(
        options: RemoteOptions,
        steps: &[Step],
        is_group: bool,
        expected: Result<(), ErrorKind>,
        trace: &str,
    ) {
        let (remote, script) = scripted(steps, options, "https://acme.table.example.com");
        let result = raise(&remote, &script, is_group).map_err(|error| error.kind());
        assert_eq!((script.trace.lock().join(" "), result), (trace.to_owned(), expected));
    }
    let again = "GET run PUT pause GET run PUT";
    check(with_id(), &[read, changed, other, Done], false, Ok(()), again);
    let steps = [read, Lost, changed, other, other];
    let trace = "GET run PUT pause PUT GET wait GET";
    check(with_id(), &steps, false, UNKNOWN, trace);
    let trace = "GET run POST pause POST GET wait GET";
    check(with_id(), &steps, true, UNKNOWN, trace);
    // The read finds the first ETag, so nothing was done, and the 412 was for another reason.
    let steps = [read, Lost, changed, read, read, Done];
    let trace = "GET run PUT pause PUT wait GET pause GET run PUT";
    check(RemoteOptions::new(), &steps, false, Ok(()), trace);
    check(with_id(), &[read, Lost, Done], false, Ok(()), "GET run PUT pause PUT");
    let missing = Refused(404, "ResourceNotFound");
    check(with_id(), &[missing], false, Err(ErrorKind::NotFound), "GET");
}

#[test]
fn a_repeated_delete_of_a_missing_entity_is_success_only_without_a_condition() {
    let missing = Refused(404, "ResourceNotFound");
    let delete =
        |condition: Condition| move |remote: &Remote| remote.delete("parts", "p", "r", &condition);
    let trace = "DELETE wait DELETE";
    check(with_id(), &[Lost, missing], delete(Condition::None), Ok(()), trace);
    let trace = "DELETE wait DELETE GET";
    check(with_id(), &[Lost, missing, missing], delete(Condition::Any), UNKNOWN, trace);
    let trace = "DELETE pause DELETE wait GET";
    check(with_id(), &[Lost, missing, missing], delete(read_etag()), UNKNOWN, trace);
    check(with_id(), &[missing], delete(Condition::Any), Err(ErrorKind::NotFound), "DELETE");
}

#[test]
fn a_write_that_was_sent_never_ends_with_busy_or_timeout() {
    let insert = |remote: &Remote| remote.insert("parts", &bolt());
    let once = || RemoteOptions::new().retries(RetryPolicy::none());
    for step in [
        Lost,
        Refused(500, "OperationTimedOut"),
        Refused(500, "InternalError"),
        Refused(503, "Maintenance"),
        Refused(504, ""),
        EmptyPage,
    ] {
        check(once(), &[step], insert, UNKNOWN, "POST");
    }
    let twice = || RemoteOptions::new().retries(RetryPolicy::fixed(1, Duration::ZERO));
    let busy = Refused(503, "ServerBusy");
    check(twice(), &[Lost, busy, Other(READ)], insert, UNKNOWN, "POST wait POST GET");
    check(once(), &[busy], insert, Err(ErrorKind::Busy), "POST");
    check(once(), &[NotSent], insert, Err(ErrorKind::Io), "POST");
    check(once(), &[Refused(507, "StorageFull")], insert, Err(ErrorKind::StorageFull), "POST");

    // The entity is as it was, and the request can no longer take effect.
    let replace = |remote: &Remote| remote.replace("parts", &bolt(), &read_etag());
    check(once(), &[Lost, Other(READ)], replace, Err(ErrorKind::Io), "PUT wait GET");
    let timed_out = Refused(500, "OperationTimedOut");
    check(once(), &[timed_out, Other(READ)], replace, Err(ErrorKind::Io), "PUT wait GET");
    check(once(), &[Lost, Other("W/\"other\"")], replace, UNKNOWN, "PUT wait GET");

    let get = |remote: &Remote| remote.get("parts", "p", "r", &[]);
    check(once(), &[timed_out], get, Err(ErrorKind::Timeout), "GET");
    check(once(), &[Lost], get, Err(ErrorKind::Io), "GET");
}

/// `copy` goes on after these kinds, and ends after another kind.
#[test]
fn only_refusals_of_entities_have_the_kinds_of_entities() {
    let mut group = EntityGroup::new("p");
    group.insert(bolt()).unwrap();
    let commit = |remote: &Remote| remote.commit("parts", &group);
    for (status, code, expected) in [
        (400, "PropertyNameInvalid", ErrorKind::InvalidInput),
        (400, "SomethingNew", ErrorKind::InvalidInput),
        (413, "", ErrorKind::InvalidInput),
        (400, "InvalidAuthenticationInfo", ErrorKind::Io),
        (401, "NoAuthenticationInformation", ErrorKind::Io),
        (403, "AuthenticationFailed", ErrorKind::Io),
        (403, "AuthorizationPermissionMismatch", ErrorKind::Io),
        (403, "AccountIsDisabled", ErrorKind::Io),
        (405, "", ErrorKind::Io),
        // A proxy answers without a code, so nothing is known about the entity.
        (404, "", ErrorKind::Io),
        (409, "", ErrorKind::Io),
        (412, "", ErrorKind::Io),
        (404, "ResourceNotFound", ErrorKind::NotFound),
    ] {
        check(RemoteOptions::new(), &[Refused(status, code)], commit, Err(expected), "POST");
    }
}

#[test]
fn a_read_that_must_prove_absence_waits_for_the_service() {
    let once = || with_id().retries(RetryPolicy::none());
    let insert = |remote: &Remote| remote.insert("parts", &bolt());
    let missing = Refused(404, "ResourceNotFound");
    check(once(), &[Lost, Own], insert, Ok(()), "POST wait GET");
    check(once(), &[Lost, missing], insert, UNKNOWN, "POST wait GET");
    let replace = |remote: &Remote| remote.replace("parts", &bolt(), &read_etag());
    let other = Other("W/\"other\"");
    check(once(), &[Lost, other, Own], replace, Ok(()), "PUT GET wait GET");
    // The second try may still overwrite a later write, although the first took effect.
    let twice = || with_id().retries(RetryPolicy::fixed(1, Duration::ZERO));
    let upsert = |remote: &Remote| remote.upsert("parts", &bolt());
    check(twice(), &[Lost, Lost, Own], upsert, Ok(()), "PUT wait PUT wait GET");
    check(twice(), &[Lost, Lost, Own], replace, Ok(()), "PUT pause PUT GET");
}

/// Cosmos DB throttles with 429.
#[test]
fn throttled_requests_are_repeated_after_the_time_that_the_service_asks_for() {
    let insert = |remote: &Remote| remote.insert("parts", &bolt());
    let get = |remote: &Remote| remote.get("parts", "p", "r", &[]);
    let once = || RemoteOptions::new().retries(RetryPolicy::none());
    check(once(), &[Throttled("1")], insert, Err(ErrorKind::Busy), "POST");
    check(once(), &[Throttled("1")], get, Err(ErrorKind::Busy), "GET");
    let short = || RemoteOptions::new().retries(RetryPolicy::fixed(1, Duration::from_secs(2)));
    for (after, seconds) in [
        ("7", 7),
        ("1", 2),
        ("999999999", 30),
        ("99999999999999999999", 2),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 2),
        // After NOW.
        ("Sat, 03 Feb 2024 04:05:18 GMT", 12),
        ("Saturday, 03-Feb-24 04:05:18 GMT", 12),
        ("Sat, 03 Feb 2029 04:05:18 GMT", 30),
        ("Sat, 03 Feb 2024", 2),
        ("-1", 2),
    ] {
        let pause = if seconds < 30 { "pause" } else { "wait" };
        let waits = |script: Arc<Script>| {
            assert_eq!(*script.waits.lock(), [Duration::from_secs(seconds)], "{after}");
        };
        let trace = format!("POST {pause} POST");
        waits(check(short(), &[Throttled(after), Done], insert, Ok(()), &trace));
        let trace = format!("GET {pause} GET");
        waits(check(short(), &[Throttled(after), Other(READ)], get, Ok(()), &trace));
    }
}

#[test]
fn requests_that_would_fail_again_are_not_repeated() {
    let get = |remote: &Remote| remote.get("Parts", "p", "r", &[]);
    let insert = |remote: &Remote| remote.insert("Parts", &bolt());
    let options = RemoteOptions::new;
    check(options(), &[Untrusted], get, Err(ErrorKind::Io), "GET");
    check(options(), &[Untrusted], insert, Err(ErrorKind::Io), "POST");
    // The page of a proxy, for example.
    check(options(), &[Cut], get, Err(ErrorKind::Io), "GET");
}

#[test]
fn retries_of_two_policies_do_not_multiply() {
    let busy = Refused(503, "ServerBusy");
    for (retries, is_transient) in [(0, true), (1, false)] {
        let policy = RetryPolicy::fixed(retries, Duration::ZERO);
        let options = RemoteOptions::new().retries(policy);
        let (remote, _) = scripted(&[busy, busy], options, "https://acme.table.example.com");
        let error = remote.insert("parts", &bolt()).unwrap_err();
        assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Busy, is_transient));
        // Each answer is counted.
        let errors: Vec<_> = remote.take_errors().into_iter().collect();
        assert_eq!(errors, [("ServerBusy".to_owned(), 1 + u64::from(retries))]);
        assert!(remote.take_errors().is_empty());
    }
}

#[test]
fn a_group_has_the_request_id_in_one_surviving_entity() {
    let mut group = EntityGroup::new("p");
    group.delete("a").unwrap();
    group.upsert(bolt()).unwrap();
    group.insert(Entity::new("p", "s")).unwrap();
    let commit = |remote: &Remote| -> Result<()> {
        let etags = remote.commit("parts", &group)?;
        let own: ETag = "W/\"own\"".parse().unwrap();
        assert_eq!(etags, [None, Some(own), None]);
        Ok(())
    };
    let exists = Refused(409, "EntityAlreadyExists");
    for step in [Lost, Cut] {
        let options = with_id();
        let (remote, script) = scripted(&[step, exists], options, "https://acme.table.example.com");
        // `Own` answers with the last entity of the body, so the read is checked by its address.
        script.steps.lock().push_back(Refused(404, "ResourceNotFound"));
        let error = commit(&remote).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
        assert!(error.to_string().contains("entity 'p' 'r' of table 'parts'"), "{error}");
        let requests = script.requests.lock();
        assert!(requests[2].url.contains("RowKey='r'"), "{}", requests[2].url);
        let body = std::str::from_utf8(&requests[0].body).unwrap();
        assert_eq!(body.matches("\"RequestId\":").count(), 1, "{body}");
    }
    group = EntityGroup::new("p");
    group.delete("a").unwrap();
    group.upsert(bolt()).unwrap();
    let found = |remote: &Remote| -> Result<()> {
        let etags = remote.commit("parts", &group)?;
        assert_eq!(etags, [None, Some("W/\"own\"".parse().unwrap())]);
        Ok(())
    };
    let missing = Refused(404, "ResourceNotFound");
    check(with_id(), &[Lost, missing, Own], found, Ok(()), "POST wait POST GET");
}

/// Azurite takes these characters for the end of a line.
#[test]
fn separators_of_lines_are_escaped() {
    let (remote, script) = scripted(&[Done], RemoteOptions::new(), "https://acme.example.com");
    remote.insert("parts", &bolt().with("Text", "a\u{2028}b\u{2029}")).unwrap();
    let requests = script.requests.lock();
    let body = std::str::from_utf8(&requests[0].body).unwrap();
    assert!(body.contains("\"Text\":\"a\\u2028b\\u2029\""), "{body}");
}

#[test]
fn each_write_has_a_new_random_id() {
    let (remote, script) = scripted(&[Done, Done], with_id(), "https://acme.table.example.com");
    remote.insert("parts", &bolt()).unwrap();
    remote.insert("parts", &bolt()).unwrap();
    let requests = script.requests.lock();
    let id = |request: &Request| {
        let body = String::from_utf8(request.body.clone()).unwrap();
        let (_, rest) = body.split_once("\"RequestId\":\"").unwrap();
        rest[..36].to_owned()
    };
    let ids = [id(&requests[0]), id(&requests[1])];
    assert_ne!(ids[0], ids[1]);
    for id in ids {
        assert!(&id[14..15] == "4" && "89ab".contains(&id[19..20]), "{id} is not of version 4");
    }
}

#[test]
fn only_reads_of_the_caller_use_the_secondary_location() {
    let url = "https://acme.table.example.com";
    let options = with_id().secondary(true);
    let exists = Refused(409, "EntityAlreadyExists");
    let steps = [Lost, Other(READ), Lost, exists, Lost, Other(READ)];
    let (remote, script) = scripted(&steps, options, url);
    remote.get("parts", "p", "r", &[]).unwrap();
    remote.insert("parts", &bolt()).unwrap_err();
    let secondary = |request: &Request| request.url.contains("acme-secondary.table");
    let seen: Vec<bool> = script.requests.lock().iter().map(secondary).collect();
    assert_eq!(seen, [false, true, false, false, false, false]);
}

#[test]
fn the_clock_of_the_service_is_learnt_over_tls_only() {
    let dates = |url, steps: &[Step]| {
        let (remote, script) = scripted(steps, RemoteOptions::new(), url);
        let results = [remote.upsert("parts", &bolt()), remote.upsert("parts", &bolt())];
        let date = |request: &Request| {
            let found = request.headers.iter().find(|(name, _)| *name == "x-ms-date");
            found.unwrap().1.clone()
        };
        let dates: Vec<String> = script.requests.lock().iter().map(date).collect();
        (results.map(|result| result.is_ok()), dates)
    };
    let later = "2024-02-03T05:05:06Z";
    let (done, seen) = dates("https://acme.example.com", &[Skewed(later), Done, Done]);
    assert_eq!((done, seen), ([true, true], [http(NOW), http(later), http(later)].to_vec()));
    let (done, seen) = dates("http://127.0.0.1:1/acme", &[Skewed(later), Done]);
    assert_eq!((done, seen), ([false, true], [http(NOW), http(NOW)].to_vec()));
    // A refusal for another reason is not repeated, and a repeat is not repeated again.
    let (done, _) = dates("https://acme.example.com", &[Skewed(NOW), Done]);
    assert_eq!(done, [false, true]);
    let steps = [Skewed(later), Skewed("2024-02-03T07:05:06Z"), Done];
    let (done, _) = dates("https://acme.example.com", &steps);
    assert_eq!(done, [false, true]);
}

#[test]
fn the_time_of_the_service_is_that_of_its_answers() {
    let url = "http://127.0.0.1:1/acme";
    let (noon, second) = ("2013-02-03T12:00:00Z", "2013-02-03T12:00:01Z");
    let (hour_before, before) = ("2013-02-03T11:00:00Z", "2013-02-03T11:59:58Z");
    let (remote, script) = scripted(&[Dated(noon)], RemoteOptions::new(), url);
    let at = |text| DateTime::parse(text).unwrap();
    assert_eq!(remote.now().unwrap(), at(noon), "a refusal has a date, too");
    assert_eq!(remote.now().unwrap(), at(noon), "no more requests");
    for (date, expected) in [(before, before), (second, second), (hour_before, hour_before)] {
        script.steps.lock().push_back(Dated(date));
        remote.get("parts", "p", "r", &[]).unwrap_err();
        assert_eq!(remote.now().unwrap(), at(expected), "{date}");
    }
    let clock = script.clock.get().unwrap();
    clock.advance(Duration::from_secs(50));
    assert_eq!(remote.now().unwrap(), at("2013-02-03T11:00:50Z"), "monotonic time is added");
    // An answer that was overtaken changes nothing, and a clock that was set back is believed.
    for (date, expected) in [
        ("2013-02-03T11:00:49Z", "2013-02-03T11:00:50Z"),
        ("2013-02-03T11:00:48Z", "2013-02-03T11:00:48Z"),
    ] {
        script.steps.lock().push_back(Dated(date));
        remote.get("parts", "p", "r", &[]).unwrap_err();
        assert_eq!(remote.now().unwrap(), at(expected), "{date}");
    }
    let (remote, _) = scripted(&[EmptyPage], RemoteOptions::new(), url);
    assert!(remote.now().unwrap_err().to_string().contains("an answer without a date"));
}

#[test]
fn the_time_of_the_service_is_requested_again_after_a_minute_and_a_suspension() {
    let steps = [Dated("2013-02-03T12:00:00Z")];
    let (remote, script) = scripted(&steps, RemoteOptions::new(), "http://127.0.0.1:1/acme");
    remote.now().unwrap();
    let clock = script.clock.get().unwrap();
    clock.advance(Duration::from_secs(61));
    let (minute, hour) = ("2013-02-03T12:01:05Z", "2013-02-03T13:00:00Z");
    script.steps.lock().push_back(Dated(minute));
    assert_eq!(remote.now().unwrap(), DateTime::parse(minute).unwrap());
    // The monotonic clock stands still while the machine is suspended.
    clock.jump(DateTime::parse(NOW).unwrap().ticks() + 3_600 * TICKS_PER_SECOND);
    script.steps.lock().push_back(Dated(hour));
    assert_eq!(remote.now().unwrap(), DateTime::parse(hour).unwrap());
    assert!(script.steps.lock().is_empty());
}

#[test]
fn the_time_of_a_proxy_a_copy_or_a_refused_signature_is_not_that_of_the_service() {
    let later = "2024-02-03T04:15:06Z";
    const VERSION: (&str, &str) = ("x-ms-version", "1");
    const REFUSED: (&str, &str) = ("x-ms-error-code", "AuthenticationFailed");
    for step in [
        Strange(502, &[("Via", "proxy")], later),
        Strange(307, &[VERSION], later),
        Strange(403, &[VERSION, REFUSED], later),
    ] {
        let options = RemoteOptions::new().retries(RetryPolicy::none());
        let (remote, _) = scripted(&[Dated(NOW), step], options, "http://127.0.0.1:1/acme");
        remote.now().unwrap();
        remote.get("parts", "p", "r", &[]).unwrap_err();
        assert_eq!(remote.now().unwrap(), DateTime::parse(NOW).unwrap());
    }
    let options = RemoteOptions::new().secondary(true);
    let steps = [Dated(NOW), Lost, Strange(403, &[VERSION], later)];
    let (remote, script) = scripted(&steps, options, "https://acme.table.example.com");
    remote.now().unwrap();
    remote.get("parts", "p", "r", &[]).unwrap_err();
    assert!(script.requests.lock()[2].url.contains("acme-secondary.table"));
    assert_eq!(remote.now().unwrap(), DateTime::parse(NOW).unwrap());
}

#[test]
fn a_page_that_is_too_large_is_requested_again_with_half_the_entities() {
    let steps = [TooLarge, TooLarge, EmptyPage];
    let (remote, script) = scripted(&steps, RemoteOptions::new(), "https://acme.example.com");
    remote.query("parts", &PageQuery { select: &["Price"], ..PageQuery::default() }).unwrap();
    let requests = script.requests.lock();
    let tops = ["$top=1000", "$top=500", "$top=250"];
    assert!(requests.iter().zip(tops).all(|(request, top)| request.url.contains(top)));
    let select = "$select=PartitionKey%2CRowKey%2CTimestamp%2CPrice";
    assert!(requests[0].url.contains(select), "{}", requests[0].url);
}
