//! A sync from a device to the service. The device loses power, its process and that of the sync
//! are killed, the service is away for hours, the device is restored or repaired, and sometimes
//! two syncs run at once. At the end everything must have arrived.
//!
//! Files: `choices` (of a run), `device` (the source), `history` (what the target may have).

mod choices;
mod device;
mod history;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use self::choices::{Choices, Reader, Stamps};
use self::device::{Device, Writer};
use self::history::{Comparison, Label, Problems, STAMP, Target};
use super::ledger::Action;
use super::network::{Killed, Line, Mortal, Network, no_answer, open_remote, open_source};
use crate::clock::Clock;
use crate::db::Position;
use crate::error::{Error, ErrorKind, Result as EngineResult};
use crate::rng::Rng;
use crate::store::remote::transport::{NoAnswer, Request, Response, Transport};
use crate::store::sync::{Report, Source, Step, SyncJob, SyncProblem};
use crate::store::{Remote, RemoteOptions};
use crate::sync::Mutex;

const NAME: &str = "default";
/// The names of counts.
pub(super) const EXPIRIES: &str = "expiries at the device";
pub(super) const EVICTIONS: &str = "drops for the disk limit";
pub(super) const IMPORTS: &str = "imports into the device";
pub(super) const DELETES: &str = "comparisons that delete";
pub(super) const STAMPED: &str = "expiries that are carried";
pub(super) const SERVED: &str = "syncs from a server";
pub(super) const OUTLIVED: &str = "power cuts that a sync outlives";
pub(super) const REFUSALS: &str = "rows and tables that the target refuses";
/// The clients of the network that syncs are.
pub(super) const CLIENTS: usize = 2;
/// The number of turns of the writer.
pub(super) const TURNS: usize = 80;
/// The number of times that syncs begin before the network is repaired.
const LIVES: u64 = 6;
/// The steps of a life.
const STEPS: u64 = 40;
/// A life is killed before this number of half requests.
const REQUESTS: u64 = 120;
/// The last sync ends within so many lives and steps.
const LAST_LIVES: usize = 8;
const LAST_STEPS: usize = 1_000;
/// In milliseconds.
const HOUR: u64 = 3_600_000;
/// The maximum length of a failure, in characters.
const PROBLEM_MAX: usize = 4_000;
/// The state file of a sync. It is not in the directory of the database.
const STATE: &str = "state";

/// A run, as all its syncs see it.
struct Run<'n> {
    network: &'n Arc<Network>,
    device: Arc<Device>,
    rng: Rng,
    choices: Choices,
    saves: Saves,
    /// Whether syncs go on when the power of the device fails: they run on another machine.
    outlives: bool,
    /// The position of the target at the beginning.
    target: Position,
    /// Whether the next sync compares all rows.
    resync: bool,
    life: usize,
    phase: usize,
    /// Whether the last sync has ended in order, so that nothing is repeated.
    is_clean: bool,
    /// Whether no request and no answer is lost any more.
    is_healed: bool,
    /// The positions of comparisons whose sync was killed or given up. They may have ended: the
    /// request that said so may have taken effect without an answer.
    cut_short: Vec<Position>,
    /// By the number of the call.
    labels: BTreeMap<usize, Label>,
    problems: Arc<Mutex<Problems>>,
}

/// Where a sync saves its position besides at the target.
#[derive(Clone, Copy, Debug)]
enum Saves {
    Nowhere,
    File,
    Cursor,
}

/// A sync in a process.
struct Sync<'r> {
    job: SyncJob<'r>,
    client: usize,
    /// The number that the sync got when it took the position at the target.
    life: Option<usize>,
    phase: usize,
    /// Whether the position at the target is of another history.
    must_refuse: bool,
    /// The newest commit when the sync began, or when its last comparison ended.
    newest: Position,
    /// The tables of the source when the comparison began.
    tables: Vec<String>,
    /// Whether the next comparison, or the running one, is that of `mirror`.
    is_mirror: bool,
}

/// The connection to the server of a device, which does not answer while the power is off.
struct Powered {
    device: Arc<Device>,
    line: Arc<Mortal>,
}

impl Transport for Powered {
    fn send(&self, request: &Request, time: Duration) -> Result<Response, NoAnswer> {
        if self.device.is_down() {
            return Err(no_answer(false, "no connection: the power is off"));
        }
        let answer = self.line.send(request, time);
        match self.device.is_down() {
            true => Err(no_answer(true, "no answer: the power is off")),
            false => answer,
        }
    }

    fn wait(&self, time: Duration) {
        self.line.wait(time);
    }
}

/// How a step ended.
enum End {
    Step(Step),
    Killed,
    Failed(Error),
}

/// Lets a device write, syncs carry its changes, and checks the target.
pub(super) fn sync(network: &Arc<Network>, mut rng: Rng) {
    let choices = Choices::new(&mut rng);
    network.state.lock().strict = choices.strict;
    let device = Arc::new(Device::new(network, Rng::from_seed(rng.next_u64()), choices));
    *network.idle.lock() = vec![Box::new(Writer(Arc::clone(&device)))];
    let saves = *rng.pick(&[Saves::Nowhere, Saves::File, Saves::Cursor]);
    let outlives = choices.reader == Reader::Client && rng.chance(1, 2);
    let mut run = Run {
        network,
        device,
        choices,
        outlives,
        saves: match saves {
            // The file is on the disk of the device.
            _ if outlives => Saves::Nowhere,
            // Only the writer's process can write a cursor.
            Saves::Cursor if choices.reader != Reader::Writer => Saves::File,
            saves => saves,
        },
        target: network.primary.db.position(),
        resync: false,
        life: 0,
        phase: 0,
        is_clean: false,
        is_healed: false,
        cut_short: Vec::new(),
        labels: BTreeMap::new(),
        problems: Arc::default(),
        rng,
    };
    if let Err(problem) = run.live() {
        // Rows that fill the disk have long texts of one character.
        let text = problem.replace(r"\u{1}", "").chars().take(PROBLEM_MAX).collect();
        network.state.lock().ledger.fail(|| text);
    }
}

impl Run<'_> {
    fn live(&mut self) -> Result<(), String> {
        for _ in 0..1 + self.rng.below(LIVES) {
            self.rest();
            self.boot()?;
            if self.life > 0 && self.rng.chance(1, 8) {
                self.device.replace()?;
                self.device.boot()?;
            }
            self.live_once()?;
        }
        self.finish()?;
        self.check()
    }

    fn boot(&mut self) -> Result<(), String> {
        self.device.boot()?;
        let db = self.device.db().map_err(|error| error.to_string())?;
        for began in std::mem::take(&mut self.cut_short) {
            self.device.with_history(|history| history.mark_unseen(&db, began).map(drop))?;
        }
        Ok(())
    }

    fn count(&self, name: &'static str) {
        *self.network.state.lock().counts.entry(name).or_default() += 1;
    }

    /// No sync runs for a while, and the service may be away for longer.
    fn rest(&mut self) {
        for _ in 0..self.rng.below(8) {
            let most = *self.rng.pick(&[100, 5_000, HOUR]);
            self.network.pass(Duration::from_millis(self.rng.below(most)));
            self.network.turn();
        }
        if self.rng.chance(1, 6) {
            let away = Duration::from_millis(self.rng.below(48 * HOUR));
            self.network.state.lock().away = self.network.now() + away;
        }
    }

    fn remote(&mut self, client: usize, left: &Arc<AtomicU64>) -> Remote {
        let (mortal, clock, ids) = self.line(client, left);
        open_remote(mortal, clock, ids, RemoteOptions::new())
    }

    fn line(&mut self, client: usize, left: &Arc<AtomicU64>) -> (Arc<Mortal>, Arc<dyn Clock>, Rng) {
        let line = Line { network: Arc::clone(self.network), client };
        let mortal = Arc::new(Mortal { line, left: Arc::clone(left) });
        (mortal, self.clock(), Rng::from_seed(self.rng.next_u64()))
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.network.clocks[0]) as Arc<dyn Clock>
    }

    /// Runs a sync, or two at once, until they end or are killed.
    fn live_once(&mut self) -> Result<(), String> {
        let count = if self.rng.chance(1, 5) { CLIENTS } else { 1 };
        let is_mortal = self.rng.chance(1, 2);
        let left = if is_mortal { 1 + self.rng.below(REQUESTS) } else { u64::MAX };
        let left = Arc::new(AtomicU64::new(left));
        if !self.outlives {
            self.device.set_left(&left);
        }
        let remotes: Vec<Remote> = (0..count).map(|client| self.remote(client, &left)).collect();
        let mut waiting: Vec<usize> = (0..count).collect();
        let mut syncs: Vec<Sync<'_>> = Vec::new();
        for _ in 0..1 + self.rng.below(STEPS) {
            let is_off = self.outlives && self.is_off()?;
            let chosen = self.rng.index(count);
            if let Some(client) = waiting.pop_if(|_| chosen >= syncs.len() && !is_off) {
                match self.begin(&remotes[client], client, &left) {
                    Ok(sync) => syncs.push(sync),
                    Err(_) if self.device.is_down() => break,
                    Err(error) => self.judge(&error, count)?,
                }
            }
            if chosen >= syncs.len() {
                continue;
            }
            match self.step(&mut syncs[chosen])? {
                End::Step(step) => self.pass(step, count),
                End::Killed => {
                    // A killed process does not end its syncs in order.
                    syncs.drain(..).for_each(|sync| self.leave(&sync));
                    break;
                }
                End::Failed(error) => {
                    self.judge(&error, count)?;
                    let sync = syncs.remove(chosen);
                    self.leave(&sync);
                    self.end(sync)?;
                }
            }
        }
        self.is_clean = false;
        while let Some(sync) = syncs.pop() {
            self.leave(&sync);
            if !self.device.is_down() && self.rng.chance(1, 2) {
                let (is_last, at) = (syncs.is_empty(), sync.job.status().position);
                let is_whole = !sync.job.is_within_commits();
                let has_ended = self.end(sync)?;
                // A sync that repeats commits keeps the position from which it does.
                let is_saved = self.report().is_ok_and(|report| report.position == at);
                self.is_clean = has_ended && is_whole && is_saved && is_last && count == 1;
            }
        }
        Ok(())
    }

    /// Whether the power of the device is off. If it was, it may return now.
    fn is_off(&mut self) -> Result<bool, String> {
        if !self.device.is_down() || self.rng.chance(1, 2) {
            return Ok(self.device.is_down());
        }
        self.boot()?;
        self.network.serve(self.device.db().map_err(|error| error.to_string())?);
        self.count(OUTLIVED);
        Ok(self.device.is_down())
    }

    /// Begins a sync.
    fn begin<'r>(
        &mut self,
        remote: &'r Remote,
        client: usize,
        left: &Arc<AtomicU64>,
    ) -> EngineResult<Sync<'r>> {
        let db = self.device.db()?;
        let newest = db.position();
        let known = self.report()?;
        let is_other = known.position.is_some_and(|at| !at.has_history_of(newest));
        let (mortal, clock, ids) = self.line(client, left);
        let line = Powered { device: Arc::clone(&self.device), line: mortal };
        let source = self.device.source(|| open_source(Arc::new(line), clock, ids))?;
        let ids = Rng::from_seed(self.rng.next_u64());
        let job = self.options(SyncJob::with(source, remote, (self.clock(), ids)))?;
        let job = match self.saves {
            // A second sync is on another machine.
            Saves::File if client == 0 => job.state_file_in(self.device.fs(), STATE.as_ref())?,
            Saves::Cursor => job.cursor(db.cursor(NAME)?),
            Saves::File | Saves::Nowhere => job,
        };
        self.phase += usize::from(!self.is_clean);
        self.is_clean = false;
        self.count("syncs");
        if self.choices.reader == Reader::Client {
            self.count(SERVED);
        }
        Ok(Sync {
            job,
            client,
            life: None,
            phase: self.phase,
            must_refuse: is_other && !self.resync,
            newest,
            tables: Vec::new(),
            is_mirror: self.is_mirror(),
        })
    }

    fn options<'r>(&self, job: SyncJob<'r>) -> EngineResult<SyncJob<'r>> {
        let Choices { allow_drop, delete_missing, strict, .. } = self.choices;
        let (problems, device) = (Arc::clone(&self.problems), Arc::clone(&self.device));
        let report = move |problem: &SyncProblem| {
            problems.lock().add(problem, device.db()?.position());
            Ok(())
        };
        let job = job.workers(1).allow_drop(allow_drop).split_groups(strict.group_bytes.is_some());
        let job = job.resync(self.resync).mirror(self.is_mirror()).delete_missing(delete_missing);
        let job = match self.choices.stamps {
            Stamps::None => job,
            Stamps::Kept => job.stamp(STAMP)?,
            Stamps::Expire => job.stamp_and_expire(STAMP)?,
        };
        Ok(job.on_problem(report))
    }

    fn is_mirror(&self) -> bool {
        self.resync && self.choices.mirrors
    }

    /// Reads the state of the syncs as another process sees it.
    fn report(&self) -> EngineResult<Report> {
        Report::read(&Source::Db(self.device.db()?), &self.network.primary.db, NAME)
    }

    /// Begins a call, to which the next requests of a sync belong.
    fn label(&mut self, sync: &Sync<'_>) {
        self.life += usize::from(sync.life.is_none());
        let life = sync.life.unwrap_or(self.life);
        let newest = sync.newest;
        let is_new = |at: Position| at.has_history_of(newest) && at >= newest;
        let is_strict = sync.job.comparison().is_none()
            && sync.job.status().position.is_some_and(is_new)
            && self.choices.strict.group_bytes.is_none();
        let deletes = sync.job.comparison().is_some() && self.deletes(sync);
        let mut state = self.network.state.lock();
        let call = state.ledger.begin(Action::Job);
        state.current[sync.client] = call;
        self.labels.insert(call, Label { life, phase: sync.phase, is_strict, deletes });
    }

    /// Whether the running comparison of a sync deletes the rows that only the target has.
    fn deletes(&self, sync: &Sync<'_>) -> bool {
        self.choices.delete_missing || sync.is_mirror
    }

    /// Runs a part of a sync. Returns `None` if it is killed, or its machine has no power.
    fn survives<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let lived = catch_unwind(AssertUnwindSafe(work));
        match lived {
            Ok(done) => Some(done).filter(|_| self.outlives || !self.device.is_down()),
            Err(panic) if panic.is::<Killed>() => {
                self.count("kills of syncs");
                None
            }
            Err(panic) => resume_unwind(panic),
        }
    }

    fn step(&mut self, sync: &mut Sync<'_>) -> Result<End, String> {
        self.label(sync);
        let before = sync.job.comparison();
        let Some(stepped) = self.survives(|| sync.job.step()) else { return Ok(End::Killed) };
        self.network.note(|| {
            let text = stepped.as_ref().map_err(Error::kind);
            format!("sync {}: {text:?}, {:?}", sync.client, sync.job.status().position)
        });
        if let Ok(Step::Busy) = stepped {
            sync.life.get_or_insert(self.life);
        }
        self.compare(sync, before)?;
        match stepped {
            Ok(step)
                if sync.must_refuse && (sync.job.comparison().is_some() || step == Step::Idle) =>
            {
                Err("a sync carries another history unasked".to_owned())
            }
            Ok(step) => Ok(End::Step(step)),
            Err(error) => Ok(End::Failed(error)),
        }
    }

    /// Notes whether a step, before which the comparison `before` ran, has begun or ended one.
    fn compare(&mut self, sync: &mut Sync<'_>, before: Option<Position>) -> Result<(), String> {
        let now = sync.job.comparison();
        if now == before {
            return Ok(());
        }
        let db = self.device.db().map_err(|error| error.to_string())?;
        self.phase += 1;
        (sync.phase, sync.newest) = (self.phase, db.position());
        // A follower does not see tables whose creation is not durable yet.
        let tables = std::mem::replace(&mut sync.tables, sync.job.tables_to_compare());
        let Some(began) = before else { return Ok(()) };
        let deletes = self.deletes(sync);
        sync.is_mirror = false;
        self.count(if deletes { DELETES } else { "comparisons" });
        self.network.note(|| format!("a comparison from {began} ends"));
        self.resync = false;
        // A new follower may not know yet how much the writer has synced.
        let is_follower = self.choices.reader == Reader::Follower;
        let db = if is_follower { self.device.durable()? } else { db };
        let problems = self.problems.lock();
        let databases = [&db, &self.network.primary.db];
        let comparison = Comparison { began, tables, deletes };
        self.device.with_history(|history| history.compared(databases, &comparison, &problems))
    }

    /// Lets time pass after a step.
    fn pass(&mut self, step: Step, count: usize) {
        let time = match step {
            Step::Busy => return,
            Step::Idle => Duration::from_millis(self.rng.below(3_000)),
            // Meanwhile the other sync has a turn.
            Step::Wait(time) if count > 1 => {
                Duration::from_millis(self.rng.below(time.as_millis() as u64 + 2))
            }
            Step::Wait(time) => time,
        };
        self.network.pass(time);
        if self.rng.chance(1, 2) {
            self.network.turn();
        }
    }

    /// Checks the error that ended a sync.
    fn judge(&mut self, error: &Error, count: usize) -> Result<(), String> {
        let state = self.network.state.lock();
        let is_quiet = state.ledger.is_quiet && !self.outlives && state.away == Duration::ZERO;
        let is_calm = self.is_healed || is_quiet;
        drop(state);
        let (is_fine, name) = match error.kind() {
            ErrorKind::ChangesLost => {
                self.resync = true;
                (self.device.was_replaced(), "syncs that refuse another history")
            }
            // A late request of an earlier sync may have written the position.
            ErrorKind::Locked => (count > 1 || !is_calm, "syncs that find another one"),
            ErrorKind::Io | ErrorKind::Busy | ErrorKind::Timeout | ErrorKind::OutcomeUnknown => {
                (!is_calm, "syncs that give up")
            }
            // A cursor of the source is a row.
            ErrorKind::StorageFull => (self.choices.is_full, "syncs without room"),
            _ => (false, ""),
        };
        if !is_fine {
            return Err(format!("a sync ended: {}", error.chain()));
        }
        self.count(name);
        Ok(())
    }

    /// Notes that nothing is known any more of the comparison of a sync.
    fn leave(&mut self, sync: &Sync<'_>) {
        self.cut_short.extend(sync.job.comparison());
    }

    /// Ends a sync in order. Returns whether that succeeded.
    fn end(&mut self, mut sync: Sync<'_>) -> Result<bool, String> {
        self.label(&sync);
        let ended = self.survives(|| sync.job.end());
        self.network.note(|| format!("sync {} ends: {:?}", sync.client, ended.is_some()));
        Ok(ended.is_some_and(|ended| ended.is_ok()))
    }

    /// Heals the network, and lets a sync run to its end.
    fn finish(&mut self) -> Result<(), String> {
        let mut state = self.network.state.lock();
        (state.percent, state.away, state.turns) = (0, Duration::ZERO, 0);
        drop(state);
        self.network.drain();
        self.device.calm();
        self.boot()?;
        self.device.settle()?;
        let left = Arc::new(AtomicU64::new(u64::MAX));
        self.is_healed = true;
        for _ in 0..LAST_LIVES {
            let remote = self.remote(0, &left);
            let mut sync =
                self.begin(&remote, 0, &left).map_err(|error| error.chain().to_string())?;
            for _ in 0..LAST_STEPS {
                match self.step(&mut sync)? {
                    End::Step(Step::Idle) => {
                        return match self.end(sync)? {
                            true => Ok(()),
                            false => Err("the last sync could not end".to_owned()),
                        };
                    }
                    End::Step(step) => self.pass(step, 1),
                    End::Failed(error) => {
                        self.judge(&error, 1)?;
                        break;
                    }
                    End::Killed => return Err("the last sync was killed".to_owned()),
                }
            }
        }
        Err("the last sync does not end".to_owned())
    }

    /// Checks all states of the target, and the last one.
    fn check(&self) -> Result<(), String> {
        let target = &self.network.primary.db;
        let source = self.device.db().map_err(|error| error.to_string())?;
        let written = std::mem::take(&mut self.network.state.lock().written);
        let feed = target.changes(self.target).map_err(|error| error.to_string())?;
        let report = Report::read(&Source::Db(source.clone()), target, NAME);
        let report = report.map_err(|error| error.to_string())?;
        if report.is_open || report.lag.is_none_or(|lag| lag.groups > 0) {
            return Err("the position of the last sync is not that of the source".to_owned());
        }
        self.device.with_history(|history| {
            let mut state = self.network.state.lock();
            let lost = if self.choices.is_full { EVICTIONS } else { EXPIRIES };
            *state.counts.entry(lost).or_default() += history.expiries;
            if self.choices.stamps == Stamps::Expire {
                *state.counts.entry(STAMPED).or_default() += history.expiries;
            }
            *state.counts.entry(IMPORTS).or_default() += history.imports.len() as u64;
            *state.counts.entry(REFUSALS).or_default() += self.problems.lock().refused.len() as u64;
            drop(state);
            let mut seen = Target::new(history);
            for commit in feed {
                let commit = commit.map_err(|error| error.to_string())?;
                let at = written.partition_point(|(_, at)| *at < commit.position);
                let call = written.get(at).map_or(0, |(call, _)| *call);
                seen.add(commit, self.labels.get(&call).copied().unwrap_or_default())?;
            }
            history.check_end([&source, target], &self.problems.lock())
        })
    }
}
