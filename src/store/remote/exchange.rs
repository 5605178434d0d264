//! Sends requests, repeats them, and finds out what a lost answer means.
//!
//! Invariants
//! * a write that may have taken effect ends with success or with `OutcomeUnknown`, unless a read
//!   proves that it had no effect;
//! * a write that may still take effect is not repeated until the service has given it up, unless
//!   an ETag lets only one of the two take effect;
//! * no error shows a credential, even if the service repeats it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::endpoint::{Credential, Endpoint, Location};
use super::options::RemoteOptions;
use super::request::Draft;
use super::response::{self, Page, Refusal, error_of};
use super::transport::{NoAnswer, REFUSED, Request, Response, Transport};
use crate::billing::Bill;
use crate::clock::{Clock, TICKS_PER_SECOND, ticks_in};
use crate::error::{Code, Error, ErrorKind, Result};
use crate::model::{DateTime, ETag, Guid, Seq};
use crate::mutants::mutant;
use crate::rest::protocol::address::{Parameter, Parameters, put_encoded};
use crate::rest::protocol::time;
use crate::retry::Rng;
use crate::sync::{Mutex, OnceLock};

/// The maximum time that the service grants a request, in seconds.
const SERVICE_SECONDS_MAX: u64 = 30;
/// A refused signature whose date differs by more from the service's clock is made again.
const SKEW_TICKS: u64 = 14 * 60 * TICKS_PER_SECOND;
/// A date that is older than this is requested again.
const DATE_AGE_MAX: u64 = 60 * TICKS_PER_SECOND;
/// The maximum number of characters that an error shows of a message of the service.
const MESSAGE_MAX: usize = 500;

/// The connection to a service.
pub(super) struct Exchange {
    pub(super) endpoint: Endpoint,
    pub(super) options: RemoteOptions,
    transport: Arc<dyn Transport>,
    clock: Arc<dyn Clock>,
    rng: Mutex<Rng>,
    /// Ticks by which the service's clock is ahead of this machine's.
    clock_offset: Mutex<i64>,
    dated: Mutex<Option<Dated>>,
    /// Whether pages have ETags only with all metadata. By the documentation of Azure Table
    /// storage they do, but it and the known other services send ETags with minimal metadata.
    needs_metadata: AtomicBool,
    /// Whether the service has extensions; unset until it was asked.
    extensions: OnceLock<bool>,
    bill: Mutex<Bill>,
    /// The numbers of tries that failed, by code.
    errors: Mutex<BTreeMap<String, u64>>,
}

/// The service's time by the dates of its answers.
#[derive(Clone, Copy)]
struct Dated {
    ticks: u64,
    /// This machine's clocks when the date was received.
    wall: u64,
    monotonic: Duration,
}

/// A write, and how a read can tell whether it took effect.
pub(super) struct Write {
    pub(super) draft: Draft,
    pub(super) table: String,
    /// The entity or table that errors name.
    pub(super) object: String,
    /// The keys of the written entity; of one of them for a group, and `None` for a table.
    pub(super) row: Option<(String, String)>,
    /// The request id that the entity has if the write took effect.
    pub(super) id: Option<Guid>,
    /// The ETag that the entity has if the write did not take effect.
    pub(super) etag: Option<ETag>,
    /// Whether an ETag lets the write take effect only once.
    pub(super) is_once: bool,
}

/// A try that failed.
struct Failure {
    error: Error,
    effect: Effect,
    is_too_large: bool,
    /// Whether a repeated read would fail in the same way.
    is_final: bool,
    /// The least pause before a repeat, for which the service asked.
    pause: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// The request had no effect, and a repeat would fail in the same way.
    Refused,
    /// The request had no effect; a repeat may succeed.
    NotDone,
    /// The request may have taken effect, or may still do so.
    Unknown,
}

/// What a read found about a write.
enum State {
    /// The entity has the request id of the write, and this ETag.
    Own(ETag),
    /// The entity still has the ETag of the condition.
    Unchanged,
    /// Neither; the text tells what was found.
    Other(String),
}

impl Exchange {
    pub(super) fn new(
        endpoint: Endpoint,
        transport: Arc<dyn Transport>,
        clock: Arc<dyn Clock>,
        rng: Rng,
        options: RemoteOptions,
    ) -> Self {
        let (rng, clock_offset, dated) = (Mutex::new(rng), Mutex::new(0), Mutex::default());
        let needs_metadata = AtomicBool::new(false);
        let (bill, errors) = (Mutex::default(), Mutex::default());
        Self {
            endpoint,
            options,
            transport,
            clock,
            rng,
            clock_offset,
            dated,
            needs_metadata,
            extensions: OnceLock::new(),
            bill,
            errors,
        }
    }

    #[cfg(feature = "bench")]
    /// Returns the numbers of tries that failed since the last call, by code.
    pub(super) fn take_errors(&self) -> BTreeMap<String, u64> {
        std::mem::take(&mut *self.errors.lock())
    }

    /// Returns the transactions and bytes out of all answers so far.
    pub(super) fn bill(&self) -> Bill {
        *self.bill.lock()
    }

    /// Returns a new request id: a random UUID (version 4).
    pub(super) fn new_id(&self) -> Guid {
        let mut rng = self.rng.lock();
        if mutant!("reused-id") {
            return Guid::from_bytes([1; 16]);
        }
        let random = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
        let mut bytes = random.to_le_bytes();
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Guid::from_bytes(bytes)
    }

    /// Sends a read, and repeats it after failures.
    ///
    /// # Errors
    /// The last failure.
    pub(super) fn read<T>(
        &self,
        draft: &Draft,
        read: impl Fn(&Response) -> Result<T, Refusal>,
    ) -> Result<T> {
        self.read_at(draft, self.options.secondary, read).map_err(|failure| failure.error)
    }

    /// Reads a page of at most `top` entities. If the answer is longer than the bound, half as many
    /// are requested. If entities lack ETags, this page and all later ones are requested with all
    /// metadata.
    pub(super) fn page(&self, draft: impl Fn(usize) -> Draft, mut top: usize) -> Result<Page> {
        loop {
            let with_all = self.needs_metadata.load(Ordering::Relaxed);
            let asked = if with_all { draft(top).with_all_metadata() } else { draft(top) };
            match self.read_at(&asked, self.options.secondary, response::page) {
                Ok((rows, _)) if !with_all && rows.iter().any(|row| row.etag().is_none()) => {
                    self.needs_metadata.store(true, Ordering::Relaxed);
                }
                Ok(page) => return Ok(page),
                Err(failure) if failure.is_too_large && top > 1 => top /= 2,
                Err(failure) => return Err(failure.error),
            }
        }
    }

    /// Returns whether the service answers `draft`, a request to an extension. Asks once. A shared
    /// access signature does not permit extensions.
    ///
    /// # Errors
    /// There was no answer.
    pub(super) fn has_extensions(&self, draft: &Draft) -> Result<bool> {
        if let Some(known) = self.extensions.get() {
            return Ok(*known);
        }
        let has = match &self.endpoint.credential {
            Credential::Sas(_) => false,
            Credential::Key(_) => match self.read_at(draft, false, response::object) {
                Ok(_) => true,
                Err(failure) if failure.effect == Effect::Refused => false,
                Err(failure) => return Err(failure.error),
            },
        };
        Ok(*self.extensions.get_or_init(|| has))
    }

    fn read_at<T>(
        &self,
        draft: &Draft,
        with_secondary: bool,
        read: impl Fn(&Response) -> Result<T, Refusal>,
    ) -> Result<T, Failure> {
        let mut retry = 0u32;
        loop {
            let is_second = with_secondary && retry % 2 == 1;
            let location = if is_second { Location::Secondary } else { Location::Primary };
            let failure = match self.once(draft, location, &read) {
                Ok(result) => return Ok(result),
                Err(failure) => failure,
            };
            let is_repeated = failure.effect != Effect::Refused && !failure.is_final;
            match is_repeated.then(|| self.pause(retry + 1)).flatten() {
                Some(pause) => self.transport.wait(pause.max(failure.pause)),
                None => return Err(Failure { error: ended(failure.error, retry), ..failure }),
            }
            retry += 1;
        }
    }

    /// Sends a write, and repeats it after failures. `found` converts the ETag of the entity if a
    /// read finds that the write took effect.
    ///
    /// # Errors
    /// That of a try, if no try can have taken effect; otherwise `OutcomeUnknown`.
    pub(super) fn write<T>(
        &self,
        write: &Write,
        read: impl Fn(&Response) -> Result<T, Refusal>,
        found: impl FnOnce(ETag) -> T,
    ) -> Result<T> {
        let is_delete = write.draft.method == "DELETE";
        let (mut lost, mut is_pending, mut retry) = (None, false, 0u32);
        loop {
            let repeat = (mutant!("bare-repeat") && retry > 0).then(|| write.draft.clone().bare());
            let draft = repeat.as_ref().unwrap_or(&write.draft);
            let failure = match self.once(draft, Location::Primary, &read) {
                Ok(result) => return Ok(result),
                Err(failure) => failure,
            };
            if failure.effect == Effect::Unknown {
                (lost, is_pending) = (Some(failure.error.clone()), true);
            }
            let is_repeated = failure.effect != Effect::Refused;
            let Some(mut pause) = is_repeated.then(|| self.pause(retry + 1)).flatten() else {
                let last = ended(failure.error, retry);
                return match lost {
                    None if mutant!("unsent-is-unknown") && retry > 0 => {
                        Err(Error::new(ErrorKind::OutcomeUnknown, ""))
                    }
                    None => Err(last),
                    Some(_) if mutant!("repeat-404") && is_delete && last.status() == 404 => {
                        Ok(found(ETag::from(Seq::MAX)))
                    }
                    Some(lost) => self.settle(write, (&lost, last), is_pending).map(found),
                };
            };
            pause = pause.max(failure.pause);
            if is_pending && !write.is_once && !mutant!("early-repeat") {
                pause = pause.max(self.service_time());
            }
            is_pending &= pause < self.service_time();
            self.transport.wait(pause);
            retry += 1;
        }
    }

    /// Finds out by reads whether a write took effect: the answer to one try was `lost`, and the
    /// last try failed with `last`. If a try `is_pending`, it may still take effect.
    fn settle(
        &self,
        write: &Write,
        (lost, last): (&Error, Error),
        is_pending: bool,
    ) -> Result<ETag> {
        let can_prove = write.id.is_some() || write.etag.is_some();
        let mut is_pending = is_pending;
        // After a success, a late try would overwrite the next write of the entity.
        if is_pending && write.id.is_some() && !write.is_once && !mutant!("early-success") {
            self.transport.wait(self.service_time());
            is_pending = false;
        }
        let mut state = match is_pending && write.id.is_none() {
            true => State::Other("nothing was read, as the write may still take effect".to_owned()),
            false => self.look(write),
        };
        if is_pending && can_prove && !matches!(state, State::Own(_)) {
            if !mutant!("early-look") {
                self.transport.wait(self.service_time());
            }
            state = self.look(write);
        }
        let found = match state {
            State::Own(etag) => return Ok(etag),
            // `Timeout` is not for a write that was sent.
            State::Unchanged if last.kind() == ErrorKind::Timeout => {
                return Err(Error::new(ErrorKind::Io, last.message().to_owned()));
            }
            State::Unchanged => return Err(last),
            State::Other(found) => found,
        };
        let lost = lost.message();
        let object = &write.object;
        let mut text = format!("the request for {object} may have been carried out: {lost}");
        if last.message() != lost {
            text.push_str(&format!("; the repeat failed with {}", last.code()));
        }
        Err(Error::new(ErrorKind::OutcomeUnknown, format!("{text}; {found}")))
    }

    /// Reads the entity of a write at the primary location.
    fn look(&self, write: &Write) -> State {
        let Some((partition_key, row_key)) = &write.row else {
            return State::Other("a read cannot tell whose request it was".to_owned());
        };
        let draft = Draft::get(&write.table, partition_key, row_key, &[]);
        let at_secondary = mutant!("secondary-settles") && self.options.secondary;
        let entity = match self.read_at(&draft, at_secondary, response::entity) {
            Ok(Some(entity)) => entity,
            Ok(None) => return State::Other("a read found no entity".to_owned()),
            Err(failure) => {
                return State::Other(format!("a read failed: {}", failure.error.message()));
            }
        };
        let property = self.options.request_id.as_deref();
        let id = property.and_then(|name| entity.get::<Guid>(name).ok());
        match entity.etag() {
            Some(etag) if mutant!("found-is-own") => State::Own(etag),
            Some(etag) if write.id.is_some() && id == write.id => State::Own(etag),
            Some(etag) if write.etag.as_ref() == Some(&etag) => State::Unchanged,
            _ if write.id.is_some() => {
                State::Other("a read found the entity without the id of this request".to_owned())
            }
            _ => State::Other("a read found the entity in another state".to_owned()),
        }
    }

    /// Sends a request once, and counts an error.
    fn once<T>(
        &self,
        draft: &Draft,
        location: Location,
        read: impl Fn(&Response) -> Result<T, Refusal>,
    ) -> Result<T, Failure> {
        self.try_once(draft, location, read).inspect_err(|failure| {
            *self.errors.lock().entry(failure.error.code().to_owned()).or_default() += 1;
        })
    }

    /// Sends a request once; twice if its signature was refused because of this machine's clock.
    fn try_once<T>(
        &self,
        draft: &Draft,
        location: Location,
        read: impl Fn(&Response) -> Result<T, Refusal>,
    ) -> Result<T, Failure> {
        let mut may_sign_again = true;
        loop {
            let now = DateTime::from_ticks(self.service_now()).unwrap_or(DateTime::MAX);
            let seconds = self.service_time().as_secs();
            let request = draft.signed(&self.endpoint, location, now, seconds);
            let sent = self.clock.monotonic();
            let response = match self.transport.send(&request, self.options.timeout) {
                Ok(response) => response,
                Err(lost) => return Err(self.no_answer(&request, &lost)),
            };
            if matches!(location, Location::Primary) {
                self.learn_date(&response, sent);
            }
            if response.header("x-ms-error-code") != Some("AuthenticationFailed") {
                self.bill.lock().add_answer(response.status, response.body.len() as u64);
            }
            let is_refused = response.status == 403 && !response::is_of_client(&response);
            let is_skewed = is_refused && self.learn_offset(&response, now);
            if !std::mem::replace(&mut may_sign_again, false) || !is_skewed {
                return read(&response).map_err(|refusal| {
                    let pause = response::retry_after(&response, self.service_now());
                    Failure { pause, ..self.failure(&request, refusal) }
                });
            }
        }
    }

    /// Returns the time of the service's clock in ticks, as far as it is known.
    fn service_now(&self) -> u64 {
        self.clock.now().saturating_add_signed(*self.clock_offset.lock())
    }

    /// Returns the service's time in ticks: the date of an answer plus the monotonic time since. If
    /// there was no answer for a minute, `draft` is sent, and its result is ignored.
    ///
    /// # Errors
    /// There was no answer, or it has no date.
    pub(super) fn date(&self, draft: &Draft) -> Result<u64> {
        if let Some(date) = self.recent_date() {
            return Ok(date);
        }
        let sent = self.read(draft, response::text);
        self.recent_date().map_or_else(
            || {
                sent?;
                let text = format!("{} sent an answer without a date", self.endpoint.name());
                Err(Error::new(ErrorKind::Io, text))
            },
            Ok,
        )
    }

    fn recent_date(&self) -> Option<u64> {
        let dated = (*self.dated.lock())?;
        let (wall, monotonic) = (self.clock.now(), self.clock.monotonic());
        let age = ticks_in(monotonic.saturating_sub(dated.monotonic));
        // The monotonic clock may stand still while the machine is suspended.
        let was_suspended = wall.abs_diff(dated.wall).abs_diff(age) > TICKS_PER_SECOND;
        (age <= DATE_AGE_MAX && !was_suspended).then(|| dated.at(monotonic))
    }

    /// Learns the service's time from an answer at the primary location to a request that was sent
    /// at `sent`. Dates are rounded down to seconds, and answers may overtake each other, so the
    /// latest date counts. But a time that is later than this answer permits shows that the
    /// service's clock was set back, and is forgotten.
    fn learn_date(&self, response: &Response, sent: Duration) {
        let date = response.header("Date").filter(|_| response::is_of_client(response));
        let Some(date) = date.and_then(time::read_http) else { return };
        let mut dated = self.dated.lock();
        let (wall, monotonic) = (self.clock.now(), self.clock.monotonic());
        let latest = date.ticks() + TICKS_PER_SECOND + ticks_in(monotonic.saturating_sub(sent));
        let known = dated.map(|dated| dated.at(monotonic)).filter(|known| *known <= latest);
        let ticks = date.ticks().max(known.unwrap_or(0));
        *dated = Some(Dated { ticks, wall, monotonic });
    }

    /// Learns from the `Date` of an answer how far this machine's clock is wrong. Returns whether
    /// that explains a refused signature. Without TLS anyone could send the answer.
    fn learn_offset(&self, response: &Response, signed: DateTime) -> bool {
        let date = response.header("Date").filter(|_| self.endpoint.is_tls());
        let Some(date) = date.and_then(time::read_http) else { return false };
        let is_skewed = date.ticks().abs_diff(signed.ticks()) > SKEW_TICKS;
        if is_skewed {
            *self.clock_offset.lock() = date.ticks().wrapping_sub(self.clock.now()).cast_signed();
        }
        is_skewed
    }

    fn no_answer(&self, request: &Request, lost: &NoAnswer) -> Failure {
        let NoAnswer { was_sent, is_too_large, is_final, problem } = lost;
        let effect = match *was_sent && !mutant!("sent-is-unsent") {
            true => Effect::Unknown,
            false if *is_final => Effect::Refused,
            false => Effect::NotDone,
        };
        let text = match was_sent {
            true => "no complete answer from",
            false => "cannot reach",
        };
        let hint = match problem == REFUSED && self.endpoint.is_local() {
            true => "; Azurite or `rowstone serve` must be running there",
            false => "",
        };
        let base = self.endpoint.name();
        let text = format!("{text} {base}: {}{hint}", self.shown(request, problem));
        let (error, is_too_large) = (Error::new(ErrorKind::Io, text), *is_too_large);
        let is_final = is_too_large || *is_final;
        Failure { error, effect, is_too_large, is_final, pause: Duration::ZERO }
    }

    fn failure(&self, request: &Request, refusal: Refusal) -> Failure {
        let base = self.endpoint.name();
        let is_final = matches!(refusal, Refusal::Malformed(_));
        let (error, effect) = match refusal {
            Refusal::Malformed(what) => {
                let text = format!(
                    "{base} sent {what}, which breaks the protocol; is it the address of a Table \
                     service?"
                );
                (Error::new(ErrorKind::Io, text), Effect::Unknown)
            }
            Refusal::Cut => {
                let text = format!("no complete answer from {base}: its end is missing");
                (Error::new(ErrorKind::Io, text), Effect::Unknown)
            }
            Refusal::Redirect => {
                let text = format!("{base} redirects to another address, which is not followed");
                (Error::new(ErrorKind::Io, text), Effect::Refused)
            }
            Refusal::Fault(fault) => {
                let is_known = Code::ALL.iter().any(|code| code.as_str() == fault.code);
                let message = self.shown(request, &fault.message);
                let message = match is_known {
                    true => message,
                    false => {
                        let code = self.shown(request, &fault.code);
                        let whose = match (fault.status, &self.endpoint.source) {
                            (401 | 403, Some(source)) => format!(" to the credential of {source}"),
                            _ => String::new(),
                        };
                        let blank = if code.is_empty() { "" } else { " " };
                        format!("{base} answered {}{blank}{code}{whose}: {message}", fault.status)
                    }
                };
                let is_code = |code: Code| fault.code == code.as_str();
                let effect = match fault.status {
                    429 => Effect::NotDone,
                    503 if is_code(Code::ServerBusy) || mutant!("any-503") => Effect::NotDone,
                    501 | 505 => Effect::Refused,
                    507 if is_code(Code::StorageFull) => Effect::Refused,
                    408 | 500.. => Effect::Unknown,
                    _ => Effect::Refused,
                };
                (error_of(&fault, message), effect)
            }
        };
        Failure { error, effect, is_too_large: false, is_final, pause: Duration::ZERO }
    }

    /// Returns a text of the service for an error: on one line, shortened, and replaced if it
    /// contains a credential.
    fn shown(&self, request: &Request, text: &str) -> String {
        let mut secrets = vec!["sig=".to_owned(), "sig%3D".to_owned(), "SharedKey".to_owned()];
        let authorization = request.headers.iter().find(|(name, _)| *name == "Authorization");
        if let Some((_, signature)) = authorization.and_then(|(_, value)| value.rsplit_once(':')) {
            secrets.push(signature.to_owned());
        }
        if let Credential::Sas(sas) = &self.endpoint.credential {
            let raw = sas.split('&').filter_map(|part| part.strip_prefix("sig="));
            secrets.extend(raw.map(str::to_owned));
            let decoded = Parameters::read(sas).ok();
            secrets.extend(
                decoded.and_then(|sas| sas.get(Parameter::SasSignature).map(str::to_owned)),
            );
        }
        for at in 0..secrets.len() {
            let mut encoded = String::new();
            put_encoded(&mut encoded, &secrets[at]);
            secrets.push(encoded);
        }
        if secrets.iter().any(|secret| !secret.is_empty() && text.contains(secret.as_str())) {
            return "(a message that is not shown, because it contains a credential)".to_owned();
        }
        let chars = text.chars().take(MESSAGE_MAX);
        chars.map(|char| if char.is_control() { ' ' } else { char }).collect()
    }

    fn pause(&self, retry: u32) -> Option<Duration> {
        self.options.retries.pause(retry, &mut self.rng.lock())
    }

    /// Returns the time that the service has for a request. Later the request has no effect.
    fn service_time(&self) -> Duration {
        Duration::from_secs(self.options.timeout.as_secs().clamp(1, SERVICE_SECONDS_MAX))
    }
}

impl Dated {
    /// Returns the service's time at a time of the monotonic clock.
    fn at(self, monotonic: Duration) -> u64 {
        self.ticks.saturating_add(ticks_in(monotonic.saturating_sub(self.monotonic)))
    }
}

/// Marks the error of a request that was repeated.
fn ended(error: Error, retries: u32) -> Error {
    if retries > 0 { error.after_retries() } else { error }
}
