//! Runs the process under test repeatedly, and checks the data in each run, called a life:
//!
//! 1. Start the process; occasionally kill it while it opens the database.
//! 2. Compare the whole state with the model, then run `verify`. All commits acknowledged as
//!    durable must be present. Of the commits after the last durable one, a kill may lose the
//!    newest. If none is lost, one change whose result was unknown may be present, too.
//! 3. Send requests, several at a time, and compare each answer with the model, in order.
//! 4. Kill the process while requests are unanswered or while it closes, or let it close.
//!
//! Invariant: a process without limits refuses a request only if the model does.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use super::answer::{Answer, Refused};
use super::child::{Ended, Heard, Limits};
use super::disk::Disk;
use super::plan::{Ending, Plan, Scenario};
use super::session::{ANSWER_WITHIN, Halt, Session};
use super::tally::{Live, Tally};
use super::traffic::{Ask, TABLES, Traffic};
use crate::clock::{Clock, SystemClock};
use crate::options::Durability;
use crate::rng::Rng;
use crate::testing::sim::oracle::{Change, Oracle, Tables};
use crate::testing::sim::row::{Row, key};
use crate::testing::sim::step::{Condition, Verb, Write};

/// The end condition.
pub(super) struct Until {
    /// The time at which to end, on the monotonic clock.
    pub(super) time: Option<Duration>,
    pub(super) lives: Option<u64>,
}

/// The model, and the process that is compared with it.
pub(super) struct Soak {
    db: PathBuf,
    scenario: Scenario,
    disk: Option<Disk>,
    durability: Option<Durability>,
    rng: Rng,
    traffic: Traffic,
    oracle: Oracle,
    /// Changes that were not answered or failed in the storage; one of them may have taken effect.
    doubts: Vec<Change>,
    /// A moving average of the time that opening takes.
    opening: Duration,
    clock: SystemClock,
    live: Live,
    tally: Tally,
}

/// The maximum total size of unanswered requests in bytes. A pipe holds more, so sending never
/// blocks.
const WAITING_BYTES_MAX: usize = 60 << 10;
/// A life ends when this many requests were refused because of storage errors.
const REFUSED_MAX: u64 = 40;
/// The size of the enlarged file system, as a multiple of its size in limited lives.
const RELIEF: u64 = 8;
/// An enlarged disk must accept a write within this time. Even a busy machine needs far less.
const GOES_ON_WITHIN: Duration = Duration::from_secs(300);

impl Soak {
    pub(super) fn new(
        db: PathBuf,
        scenario: Scenario,
        disk: Option<Disk>,
        durability: Option<Durability>,
        seed: u64,
        clock: SystemClock,
    ) -> Self {
        let mut rng = Rng::from_seed(seed);
        let traffic = Traffic::new(Rng::from_seed(rng.next_u64()));
        Self {
            db,
            scenario,
            disk,
            durability,
            rng,
            traffic,
            oracle: Oracle::new(),
            doubts: Vec::new(),
            opening: Duration::from_millis(5),
            clock,
            live: Live::new(),
            tally: Tally::default(),
        }
    }

    /// Runs lives until the end condition holds, and then two more without limits.
    ///
    /// # Errors
    /// Returns a description of the first difference between the process and the model.
    pub(super) fn run(&mut self, until: &Until) -> Result<(), String> {
        let over = |soak: &Self| {
            until.time.is_some_and(|time| soak.clock.monotonic() >= time)
                || until.lives.is_some_and(|lives| soak.tally.starts >= lives)
        };
        while !over(self) {
            let plan = self.plan();
            self.life(plan)?;
        }
        for requests in [50, 0] {
            let plan = self.plan();
            let (limits, ending) = (Limits::default(), Ending::Close);
            self.life(Plan { limited: false, limits, ending, requests, ..plan })?;
        }
        Ok(())
    }

    /// Returns the counts; after a failure the small file system stays mounted for inspection.
    pub(super) fn end(mut self, failed: bool) -> Tally {
        if let Some(disk) = &mut self.disk {
            disk.keep = failed;
        }
        self.tally
    }

    fn plan(&mut self) -> Plan {
        Plan::random(&mut self.rng, self.scenario, self.durability, self.opening)
    }

    fn life(&mut self, mut plan: Plan) -> Result<(), String> {
        self.set_disk(&mut plan);
        self.set_traffic(&plan);
        let number = self.tally.starts;
        self.tally.starts += 1;
        self.live.show(self.scenario.name(), &self.tally);
        let mut session = Session::start(&plan.arguments(&self.db), plan)?;
        let lived = self.live(&mut session);
        lived.map_err(|what| format!("life {number} ({}): {what}", session.plan.describe()))
    }

    fn live(&mut self, session: &mut Session) -> Result<(), String> {
        if session.plan.ending == Ending::KillOpening {
            session.child.hear(session.plan.delay);
            self.tally.kills_opening += 1;
            return self.kill(session);
        }
        match self.compare(session) {
            Ok(()) => {}
            Err(Halt::Wrong(what)) => return Err(what),
            Err(Halt::Ended) => return self.ended(session),
            Err(Halt::Refused(refused)) if session.plan.limited && refused.is_storage() => {
                // The state could not be read, so nothing is written in this life.
                *self.tally.refusals.entry(refused.name().to_owned()).or_default() += 1;
                return self.kill(session);
            }
            Err(Halt::Refused(refused)) => return Err(format!("read back: {refused:?}")),
        }
        if self.disk.is_some() && !session.plan.limited {
            self.make_space(session);
        }
        if !self.work(session)? {
            return self.ended(session);
        }
        match session.plan.ending {
            Ending::Kill | Ending::KillOpening => {
                self.hear_for(session)?;
                self.kill(session)
            }
            Ending::KillClosing => {
                session.child.end_requests();
                self.tally.kills_closing += 1;
                self.hear_for(session)?;
                self.kill(session)
            }
            Ending::Close => {
                session.child.end_requests();
                self.ended(session)
            }
        }
    }

    /// Chooses the size of values: larger ones if this life limits the disk or the size of files,
    /// so that the limit is reached.
    fn set_traffic(&mut self, plan: &Plan) {
        let heavy =
            plan.limited && matches!(self.scenario, Scenario::Fill(_) | Scenario::FileBytes(_));
        let (large, catalog) = if heavy { ((30_000, 40), false) } else { ((20_000, 2), true) };
        (self.traffic.large, self.traffic.catalog) = (large, catalog);
    }

    /// Sets the file system's size for this life; a file system that is too full to shrink is left
    /// unchanged.
    fn set_disk(&mut self, plan: &mut Plan) {
        let (Scenario::Fill(bytes), Some(disk)) = (self.scenario, &self.disk) else { return };
        if plan.limited {
            let least = bytes / 2;
            plan.limited = disk.resize(least + self.rng.below(bytes - least)).is_ok();
        }
        if !plan.limited {
            // The file system always accepts this size, because its content is smaller.
            drop(disk.resize(bytes.saturating_mul(RELIEF)));
        }
    }

    /// Lets the session drop all tables first, so that the next life with a small disk starts with
    /// an empty database.
    fn make_space(&self, session: &mut Session) {
        let drops = TABLES.map(|table| Ask::Change(Change::Drop(table.to_owned())));
        session.first.extend(drops);
        session.first.extend([Ask::Flush, Ask::Compact]);
    }

    /// Reads the state back and verifies it; the state found becomes the model.
    fn compare(&mut self, session: &mut Session) -> Result<(), Halt> {
        let began = self.clock.monotonic();
        session.ask(&Ask::Stats.line(&self.oracle))?;
        let took = self.clock.monotonic().saturating_sub(began);
        self.opening = (self.opening.saturating_mul(3) + took) / 4;
        let state = session.state()?;
        self.find(state)?;
        self.tally.compared += 1;
        match session.ask(&Ask::Verify.line(&self.oracle)) {
            Err(Halt::Refused(refused)) if session.plan.limited && refused.is_limit() => Ok(()),
            Err(Halt::Refused(refused)) => Err(Halt::Wrong(format!("verify: {}", refused.message))),
            verified => verified.map(drop),
        }
    }

    /// Checks that the state found is one of the allowed ones.
    fn find(&mut self, state: Tables) -> Result<(), String> {
        let (commits, floor) = (self.oracle.commits(), self.oracle.process_floor);
        if state != self.oracle.tables {
            let happened = self.doubts.iter().find_map(|change| self.happened(change, &state));
            if let Some(tag) = happened {
                if tag > 0 && tag <= self.oracle.etag_max {
                    return Err(format!("tag {tag} after {}", self.oracle.etag_max));
                }
                self.oracle.etag_max = self.oracle.etag_max.max(tag);
                self.tally.unanswered_found += 1;
            } else {
                let prefix = self.oracle.find(&state, floor)?;
                self.tally.commits_lost += (commits - prefix) as u64;
            }
        }
        self.oracle = model_of(&state, self.oracle.etag_max);
        self.traffic.renumber(&self.oracle);
        self.doubts.clear();
        Ok(())
    }

    /// Returns the ETag of `change` if `state` is the result of all commits followed by `change`.
    fn happened(&self, change: &Change, state: &Tables) -> Option<u64> {
        self.oracle.check(change).ok()?;
        let tag = change.tag_in(state)?;
        let mut with = model_of(&self.oracle.tables, 0);
        with.commit(change, tag, Durability::Sync);
        (with.tables == *state).then_some(tag)
    }

    /// Sends requests and compares the answers; false if the process ended.
    fn work(&mut self, session: &mut Session) -> Result<bool, String> {
        let mut answered = 0;
        while answered < session.plan.requests.max(session.first.len() as u64)
            && session.refused < REFUSED_MAX
        {
            self.fill_window(session);
            match session.child.hear(ANSWER_WITHIN) {
                Heard::Answer(line) => self.settle(session, &line)?,
                Heard::Nothing => return Err(session.silent()),
                Heard::End => return Ok(false),
            }
            answered += 1;
            self.relieve(session)?;
        }
        Ok(true)
    }

    fn fill_window(&mut self, session: &mut Session) {
        while session.waiting.len() < session.plan.window
            && (session.waiting.is_empty() || session.waiting_bytes < WAITING_BYTES_MAX / 2)
        {
            let first = session.first.pop_front();
            let ask = first.unwrap_or_else(|| self.traffic.next(&self.oracle));
            let line = ask.line(&self.oracle);
            let lone = line.len() > WAITING_BYTES_MAX / 2;
            if lone && !session.waiting.is_empty() {
                session.first.push_front(ask);
                return;
            }
            session.waiting_bytes += line.len();
            session.waiting.push_back((ask, line.len()));
            // If the process no longer reads, it has ended, which is noticed when waiting for an
            // answer.
            session.child.send(&line);
        }
    }

    /// Enlarges a full disk, and checks that writes succeed afterwards.
    fn relieve(&mut self, session: &mut Session) -> Result<(), String> {
        let (Scenario::Fill(bytes), Some(disk)) = (self.scenario, &self.disk) else {
            return Ok(());
        };
        let now = self.clock.monotonic();
        if let Some(since) = session.relieved {
            // A poisoned database rightly refuses further writes.
            if session.poisoned {
                session.refused = REFUSED_MAX;
            } else if session.last_commit > since {
                self.tally.relieved += 1;
                (session.relieved, session.refused) = (None, REFUSED_MAX);
            } else if now > since + GOES_ON_WITHIN {
                return Err(format!("no write is taken {GOES_ON_WITHIN:?} after there was space"));
            } else {
                session.refused = 0;
            }
        } else if session.plan.limited && session.plan.relieve && session.refused >= REFUSED_MAX / 2
        {
            disk.resize(bytes.saturating_mul(RELIEF))?;
            session.relieved = Some(now);
        }
        Ok(())
    }

    /// Compares one answer with the model's answer to the oldest waiting request.
    fn settle(&mut self, session: &mut Session, line: &[u8]) -> Result<(), String> {
        let Some((ask, bytes)) = session.waiting.pop_front() else {
            return Err(format!("an answer without a request: {}", shown(line)));
        };
        session.waiting_bytes -= bytes;
        session.heard = true;
        self.tally.requests += 1;
        let request = ask.line(&self.oracle);
        let settled = self.settle_one(session, &ask, line);
        settled.map_err(|what| {
            format!("{what}\n  request: {}\n  answer:  {}", shown(&request), shown(line))
        })
    }

    fn settle_one(&mut self, session: &mut Session, ask: &Ask, line: &[u8]) -> Result<(), String> {
        let answer = Answer::read(line)?;
        let refused = answer.refused()?;
        if let Some(refused) = refused.as_ref().filter(|refused| refused.is_storage()) {
            return self.storage_refused(session, ask, refused);
        }
        match ask {
            Ask::Change(change) => self.changed(session, change, &answer, refused),
            _ => self.read(session, ask, &answer, refused),
        }
    }

    fn storage_refused(
        &mut self,
        session: &mut Session,
        ask: &Ask,
        refused: &Refused,
    ) -> Result<(), String> {
        if !session.plan.limited {
            return Err("refused by the storage, which is well".to_owned());
        }
        session.refused += 1;
        *self.tally.refusals.entry(refused.name().to_owned()).or_default() += 1;
        if let Ask::Change(change) = ask
            && refused.code != "StorageFull"
            && !session.poisoned
        {
            self.doubts.push(change.clone());
        }
        session.poisoned |= refused.is_poisoned();
        Ok(())
    }

    fn changed(
        &mut self,
        session: &mut Session,
        change: &Change,
        answer: &Answer<'_>,
        refused: Option<Refused>,
    ) -> Result<(), String> {
        match (refused, self.oracle.check(change)) {
            (None, Ok(())) => {
                let tag = answer.tag()?;
                if (tag == 0) == has_tag(change) || (tag > 0 && tag <= self.oracle.etag_max) {
                    return Err(format!("tag {tag} after {}", self.oracle.etag_max));
                }
                if session.poisoned {
                    return Err("committed by a poisoned database".to_owned());
                }
                self.oracle.commit(change, tag, session.plan.durability);
                self.traffic.note(&self.oracle);
                // Earlier failed changes did not take effect; otherwise this one would have been
                // refused.
                self.doubts.clear();
                self.tally.commits += 1;
                session.last_commit = self.clock.monotonic();
                Ok(())
            }
            (None, Err(due)) => Err(format!("done, where {due:?} was due")),
            (Some(refused), Err(due)) => {
                // The index of the refused write matters only in a group of several writes.
                let group = matches!(change, Change::Rows { writes, .. } if writes.len() > 1);
                if refused.code != due.code || (group && refused.index != due.index) {
                    return Err(format!("refused, where {due:?} was due"));
                }
                *self.tally.refusals.entry(refused.code).or_default() += 1;
                Ok(())
            }
            (Some(_), Ok(())) => Err("refused, where it was due to be done".to_owned()),
        }
    }

    fn read(
        &self,
        session: &Session,
        ask: &Ask,
        answer: &Answer<'_>,
        refused: Option<Refused>,
    ) -> Result<(), String> {
        let code = refused.as_ref().map(|refused| &*refused.code);
        let rows = |table: &str| self.oracle.tables.get(&table.to_lowercase()).map(|t| &*t.rows);
        match ask {
            Ask::Get { table, pk, rk } => {
                let row = rows(table).map(|rows| rows.get(&key(pk, rk)));
                match (row, code) {
                    (None, Some("TableNotFound")) | (Some(None), Some("ResourceNotFound")) => {
                        Ok(())
                    }
                    (Some(Some(row)), None) => same(&answer.entity()?, row),
                    (due, _) => Err(format!("{due:?} was due")),
                }
            }
            Ask::Query { table, pk, top } => match (rows(table), code) {
                (None, Some("TableNotFound")) => Ok(()),
                (Some(rows), None) => {
                    let rows =
                        rows.values().filter(|row| pk.as_ref().is_none_or(|pk| *pk == row.pk));
                    same_page(&rows.collect::<Vec<_>>(), *top, answer)
                }
                _ => Err("not what was due".to_owned()),
            },
            Ask::Tables if code.is_none() => {
                let due: Vec<_> = self.oracle.tables.values().map(|t| t.name.clone()).collect();
                let found = answer.tables()?;
                if found == due { Ok(()) } else { Err(format!("{due:?} was due")) }
            }
            Ask::Verify
                if session.plan.limited && refused.as_ref().is_some_and(Refused::is_limit) =>
            {
                Ok(())
            }
            _ if code.is_none() => Ok(()),
            _ => Err("refused".to_owned()),
        }
    }

    /// Receives answers until the kill is due.
    fn hear_for(&mut self, session: &mut Session) -> Result<(), String> {
        let until = self.clock.monotonic() + session.plan.delay;
        loop {
            let left = until.saturating_sub(self.clock.monotonic());
            match session.child.hear(left) {
                Heard::Answer(line) => self.settle(session, &line)?,
                Heard::Nothing | Heard::End => return Ok(()),
            }
        }
    }

    /// Sends signal 9. Answers that the process wrote before its end are compared, too.
    fn kill(&mut self, session: &mut Session) -> Result<(), String> {
        session.child.kill();
        self.tally.kills += 1;
        let ended = self.last_words(session)?;
        if ended.text.contains("panicked") {
            return Err(format!("killed after it {}", ended.describe()));
        }
        Ok(())
    }

    /// Handles the end of a process that was not killed; fails if it had no permitted reason to
    /// end.
    fn ended(&mut self, session: &mut Session) -> Result<(), String> {
        let told = session.plan.ending == Ending::Close && session.child.is_told();
        let ended = self.last_words(session)?;
        if told && ended.is_success() {
            if !session.waiting.is_empty() {
                return Err(format!("closed with {} requests unanswered", session.waiting.len()));
            }
            self.tally.closes += 1;
            self.oracle.all_durable();
            self.doubts.clear();
            return Ok(());
        }
        let signalled =
            session.plan.limits.file_bytes.is_some() && !session.plan.limits.ignore_signal;
        if signalled && ended.is_file_limit() {
            self.tally.ends_by_limit += 1;
            return Ok(());
        }
        // A limited process may refuse to open or to close, but it must not report damage.
        if session.plan.limited
            && (told || !session.heard)
            && ended.is_refusal()
            && !ended.text.contains("lists all damage")
        {
            self.tally.refused_starts += u64::from(!told);
            return Ok(());
        }
        Err(format!("the process ended: {}", ended.describe()))
    }

    /// Compares the answers that were not read yet, and waits for the end of the process. Notes the
    /// first unanswered request, if it is a change, as one that may have taken effect.
    fn last_words(&mut self, session: &mut Session) -> Result<Ended, String> {
        loop {
            match session.child.hear(ANSWER_WITHIN) {
                Heard::Answer(line) => self.settle(session, &line)?,
                Heard::Nothing => return Err(session.silent()),
                Heard::End => break,
            }
        }
        self.tally.unanswered += session.waiting.len() as u64;
        if let Some((Ask::Change(change), _)) = session.waiting.front() {
            self.doubts.push(change.clone());
        }
        session.child.wait()
    }
}

/// Returns a model that holds `tables` without their history.
fn model_of(tables: &Tables, etag_max: u64) -> Oracle {
    let mut oracle = Oracle::new();
    for table in tables.values() {
        oracle.commit(&Change::Create(table.name.clone()), 0, Durability::Sync);
        for row in table.rows.values() {
            let properties = row.properties.clone().into_iter().collect();
            let (pk, rk) = (row.pk.clone(), row.rk.clone());
            let write = Write { verb: Verb::Upsert, pk, rk, properties, condition: Condition::Any };
            let change = Change::Rows { table: table.name.clone(), writes: vec![write] };
            oracle.commit(&change, row.etag, Durability::Sync);
        }
    }
    oracle.etag_max = oracle.etag_max.max(etag_max);
    oracle
}

fn has_tag(change: &Change) -> bool {
    matches!(change, Change::Rows { writes, .. } if writes.iter().any(|w| w.verb != Verb::Delete))
}

fn same(found: &Row, due: &Row) -> Result<(), String> {
    if found == due { Ok(()) } else { Err(format!("{due} @{} was due", due.etag)) }
}

/// Checks a page of a query against `due`, the entities that the model expects. The page must hold
/// the first entities of `due`. If it does not hold all, it must name the next entity as the
/// continuation.
fn same_page(due: &[&Rc<Row>], top: usize, answer: &Answer<'_>) -> Result<(), String> {
    let found = answer.entities()?;
    let next = answer.next()?;
    if found.len() > top || found.len() > due.len() {
        return Err(format!("{} entities, where at most {top} of {}", found.len(), due.len()));
    }
    found.iter().zip(due).try_for_each(|(found, due)| same(found, due))?;
    match (due.get(found.len()), next) {
        (Some(row), Some((pk, rk))) if (&row.pk, &row.rk) == (&pk, &rk) && !found.is_empty() => {
            Ok(())
        }
        (None, None) => Ok(()),
        (due, next) => Err(format!("the page ends before {due:?} and names {next:?}")),
    }
}

/// Truncates a line for display.
fn shown(line: &[u8]) -> String {
    const SHOWN: usize = 2000;
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], line.len()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
#[path = "soak_tests.rs"]
mod tests;
