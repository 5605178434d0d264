//! Runs steps on the engine and the oracle, and reports where they differ.
//!
//! Invariants
//! * every answer of the engine is compared: results, error codes and indexes, order, tags;
//! * a read shows exactly the commits up to the published Seq, which never decreases and includes
//!   all acknowledged commits: operations are linearizable;
//! * entity tags only grow, even across crashes and jumps of the clock;
//! * an error of the disk, or about damage, is accepted only while the disk has faults, limits or
//!   damage.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result as EngineResult};
use crate::format::edit::Wear;
use crate::fs::FaultKind;
use crate::options::Durability;
use crate::query::Entities;

use super::counts::{Counts, Event};
use super::engine::{Engine, Pinned, START, range};
use super::oracle::{Change, Oracle, Refusal, Tables, differences, first_difference};
use super::parse::durability_name;
use super::row::{Row, key};
use super::runner_state::{Ask, Fed, Held, Paging, Trouble, Used, Waiting};
use super::step::{Config, Scan, Step, Write, may_flush, merges_all};

/// An engine, an oracle, and the open handles: snapshots, iterators, paged queries and tickets.
pub struct Runner {
    /// The engine under test.
    pub engine: Engine,
    /// The oracle.
    pub oracle: Oracle,
    pub(super) snapshots: BTreeMap<String, (Pinned, Tables)>,
    pub(super) iterators: BTreeMap<String, Iteration>,
    /// Queries read by pages. Their tokens are keys, so they stay valid when the engine is opened
    /// again.
    pub(super) pagings: BTreeMap<String, Paging>,
    pub(super) tickets: BTreeMap<String, Waiting>,
    pub(super) trouble: Trouble,
    pub(super) used: Used,
    /// Whether storage errors are accepted even without a known fault.
    pub faults_expected: bool,
    /// Counts of the runner's own events so far. [`Runner::counted`] adds the counts of the engine
    /// and of the faults.
    pub counts: Counts,
    /// The number of copies of the database made so far. It names the copies and seeds power cuts.
    pub(super) copies: u64,
    /// The acknowledged backups, and the state that each must restore.
    pub(super) backups: BTreeMap<u64, Tables>,
    /// The state of a consumer of the change feed. It is kept when the engine is killed or
    /// reopened.
    pub(super) fed: Option<Fed>,
    /// The bytes written in total, as counted by the database at the last close or kill. The count
    /// must not be smaller after the next opening.
    pub(super) wear: Wear,
}

/// An open iterator, and the rows that it must return.
pub(super) struct Iteration {
    entities: Entities,
    expected: Vec<Row>,
    given: usize,
    held: Held,
}

/// The lines that a step prints, or the difference between engine and oracle.
pub type Outcome = Result<Vec<String>, String>;

impl Runner {
    /// Creates a runner over an empty memory file system; [`Step::Open`] must be the first step.
    pub fn new(config: Config) -> Self {
        Self::on(Engine::new(config))
    }

    /// Creates a runner with an empty oracle over the given engine.
    pub fn on(engine: Engine) -> Self {
        Self {
            engine,
            oracle: Oracle::new(),
            snapshots: BTreeMap::new(),
            iterators: BTreeMap::new(),
            pagings: BTreeMap::new(),
            tickets: BTreeMap::new(),
            trouble: Trouble::default(),
            used: Used::default(),
            faults_expected: false,
            counts: Counts::default(),
            copies: 0,
            backups: BTreeMap::new(),
            fed: None,
            wear: Wear::default(),
        }
    }

    /// Runs a step. If a kill or power cut occurs during the step, also recovers.
    pub fn run(&mut self, step: &Step) -> Outcome {
        self.counts.note(Event::Step);
        let mut lines = self.run_alive(step).and_then(|lines| self.check_cap().map(|()| lines))?;
        if let Some((left, end)) = self.engine.power.take_left() {
            lines.push("the run ended".to_owned());
            lines.extend(self.end(left, end, Wear::default())?);
        }
        self.note_confirmed();
        Ok(lines)
    }

    /// Returns the counts so far, including those of the engine and its faults.
    pub fn counted(&mut self) -> Counts {
        self.record_engine();
        let mut counts = self.counts;
        for (kind, event) in [
            (FaultKind::Eio, Event::Eio),
            (FaultKind::Enospc, Event::Enospc),
            (FaultKind::Eintr, Event::Eintr),
            (FaultKind::ShortWrite, Event::ShortWrite),
            (FaultKind::ShortTransfer, Event::ShortTransfer),
        ] {
            counts.add(event, self.engine.faults.delivered_of(kind));
        }
        counts
    }

    fn run_alive(&mut self, step: &Step) -> Outcome {
        if let Some(outcome) = self.run_unopened(step) {
            return outcome;
        }
        if !self.engine.is_open() {
            return line("not open");
        }
        if merges_all(step) {
            self.end_halves()?;
        } else if may_flush(step) || self.is_out_of_memtables() {
            let ended = self.engine.end_flush().map(drop);
            self.excuse(ended)?;
        }
        match step {
            Step::CreateTable(name) => self.change(Change::Create(name.clone()), step),
            Step::DropTable(name) => self.change(Change::Drop(name.clone()), step),
            Step::DropRange { .. }
            | Step::Expire { .. }
            | Step::Gate { .. }
            | Step::Lift { .. }
            | Step::Move { .. } => self.run_span(step),
            Step::Tables => self.tables(),
            Step::Write { table, write, .. } => {
                let change = Change::Rows { table: table.clone(), writes: vec![write.clone()] };
                self.change(change, step)
            }
            Step::Group { table, writes, .. } => {
                let change = Change::Rows { table: table.clone(), writes: writes.clone() };
                self.change(change, step)
            }
            Step::Submit { ticket, table, writes, durability } => {
                self.submit(ticket, table, writes, *durability)
            }
            Step::Await(ticket) => self.wait(ticket),
            Step::Poll(ticket) => self.poll(ticket),
            Step::Forget(ticket) => {
                self.tickets.remove(ticket);
                Ok(Vec::new())
            }
            Step::Get { table, key, select, at } => self.get(table, (&key.0, &key.1), select, at),
            Step::Scan { table, scan } => self.scan(table, scan),
            Step::Query { table, query } => self.query(table, query),
            Step::Pages { name, table, query } => self.pages(name, table, query),
            Step::Resume(name) => self.resume(name),
            Step::Iterate { name, table, scan } => self.iterate(name, table, scan),
            Step::Next { name, count } => self.next(name, *count),
            Step::Snapshot(name) => self.snapshot(name),
            Step::Release(name) => {
                self.snapshots.remove(name);
                self.iterators.remove(name);
                Ok(Vec::new())
            }
            other => self.run_maintenance(other),
        }
    }

    fn run_span(&mut self, step: &Step) -> Outcome {
        match step {
            // The span contains no key, so there is no commit.
            Step::DropRange { scan, also: None, .. } if scan.is_empty() => line("nothing"),
            Step::DropRange { table, scan, also } => {
                let also = also.clone().map(|pk| Scan { pk: Some(pk), ..Scan::default() });
                let scans = std::iter::once(scan.clone()).chain(also).collect();
                self.change(Change::DropRange { table: table.clone(), scans }, step)
            }
            Step::Expire { table, keep } => {
                let last = self.oracle.commits().checked_sub(keep + 1);
                // A commit without a tag wrote no row, so nothing expires.
                let below = last.map_or(0, |at| self.oracle.etags[at]).max(1);
                self.change(Change::Expire { table: table.clone(), below }, step)
            }
            Step::Gate { scan, .. } if scan.is_empty() => line("nothing"),
            Step::Gate { table, scan, mode } => {
                let (table, scan, mode) = (table.clone(), scan.clone(), *mode);
                self.counts.note(Event::Gate);
                self.change(Change::Gate { table, scan, mode }, step)
            }
            Step::Lift { table, scan } => {
                let (table, scan) = (table.clone(), scan.clone());
                self.change(Change::Lift { table, scan }, step)
            }
            Step::Move { table, scan, snapshot } => self.move_span(table, scan, snapshot),
            other => Err(format!("`{other}` is about no span")),
        }
    }

    fn run_maintenance(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Flush => self.flush(),
            Step::Compact => self.maintain(|engine| engine.db().compact()),
            Step::Sync => self.sync(),
            Step::Background(steps, None) => {
                self.background(*steps, |engine| engine.db().step(Duration::ZERO))
            }
            Step::Background(steps, Some(lane)) => {
                self.background(*steps, |engine| engine.step(*lane))
            }
            Step::BeginFlush => {
                let begun = self.engine.begin_flush();
                self.half(Event::FlushPaused, begun)
            }
            Step::EndFlush => {
                let ended = self.engine.end_flush();
                self.excuse(ended.map(drop))
            }
            Step::BeginCompaction => {
                let begun = self.engine.begin_compaction();
                self.half(Event::CompactionPaused, begun)
            }
            Step::EndCompaction => self.end_compaction(),
            Step::Verify => self.verify(),
            Step::Settle => self.settle(),
            Step::Checkpoint => self.checkpoint(),
            Step::Backup => self.backup(),
            Step::Archive { table, seed } => self.archive(table, *seed),
            Step::Displace(seed) => self.displace(*seed),
            Step::Beside => self.beside(),
            other => Err(format!("`{other}` is no step of an open database")),
        }
    }

    /// Runs a step that needs no open database; `None` for other steps.
    fn run_unopened(&mut self, step: &Step) -> Option<Outcome> {
        Some(match step {
            Step::Open(config) => self.open(config),
            Step::Reopen => self.reopen(),
            Step::Kill(None) => self.kill(),
            Step::Crash { seed, ops: None } => self.crash(*seed),
            Step::Clock(millis) => self.clock(*millis),
            other => return self.run_trouble(other),
        })
    }

    fn open(&mut self, config: &Config) -> Outcome {
        self.engine.config = config.clone();
        self.reopened(self.oracle.commits())
    }

    pub(super) fn change(&mut self, change: Change, step: &Step) -> Outcome {
        let ask = ask_of(&change);
        let busy = ask.as_ref().map_or(Held::No, |ask| self.asks(ask));
        let expected = self.oracle.check(&change);
        let durability = match step {
            Step::Write { durability, .. } | Step::Group { durability, .. } => *durability,
            Step::CreateTable(_) => None,
            // Drops and gates are always synced.
            _ => Some(Durability::Sync),
        };
        let untagged = |done: EngineResult<()>| done.map(|()| Vec::new());
        let result = match (step, &change) {
            (Step::CreateTable(name), _) => untagged(self.engine.db().create_table(name).map(drop)),
            (Step::DropTable(name), _) => untagged(self.drop_table(name)?),
            (Step::Write { table, write, .. }, _) => {
                let etag = self.oracle.etag(table, write);
                self.engine.write(table, write, etag, durability).map(|etag| vec![etag])
            }
            (_, Change::DropRange { table, scans }) => {
                untagged(self.engine.drop_ranges(table, scans))
            }
            (_, Change::Expire { table, below }) => untagged(self.engine.expire(table, *below)),
            (_, Change::Gate { table, scan, mode }) => {
                untagged(self.engine.db().gate(table, range(scan), *mode))
            }
            (_, Change::Lift { table, scan }) => {
                untagged(self.engine.db().lift_gate(table, range(scan)))
            }
            (_, Change::Rows { table, writes }) => {
                let etags = self.etags(table, writes);
                self.engine.group(table, writes, &etags, durability)
            }
            _ => unreachable!("all steps with changes are handled above"),
        };
        let expected = busy.or_refused(self.judge(&change, expected)?, result.as_ref().err());
        if let Some(ask) = &ask {
            self.asked(ask, result.as_ref().err());
        }
        match (result, expected) {
            (Ok(etags), Ok(())) => {
                let durability = durability.unwrap_or(self.engine.config.durability);
                let etag = tag_of(&etags)?;
                let seq = self.engine.published();
                if etag != 0 && etag != seq {
                    return Err(format!("acknowledged: number {etag}, published up to {seq}"));
                }
                self.accepted(&change, etag, seq, durability)?;
                self.oracle.show(self.oracle.commits());
                let number = self.oracle.commits();
                line(format!("#{number} {}", durability_name(durability)))
            }
            (Err(error), expected) => {
                let is_group = matches!(step, Step::Group { .. });
                self.refused(&error, expected, change, is_group)
            }
            (Ok(_), Err(refusal)) => Err(format!("done: where {refusal:?} was due")),
        }
    }

    /// Drops a table. Older handles must not find it, even if its name is used again later.
    fn drop_table(&mut self, name: &str) -> Result<EngineResult<()>, String> {
        let (dropped, answers) = self.engine.drop_table(name);
        let (ask, is_throttled) = (Ask::query(0, 2), self.engine.config.targets.is_some());
        self.asked(&ask, None);
        self.forget_partitions(name);
        for answer in answers {
            match answer {
                Err(error) if error.code() == "TableNotFound" || self.is_excused(&error) => {}
                Err(error) if is_throttled && error.code() == "ServerBusy" => {}
                found => return Err(format!("dropped: its old handle is answered {found:?}")),
            }
        }
        Ok(dropped)
    }

    pub(super) fn etags(&self, table: &str, writes: &[Write]) -> Vec<Option<u64>> {
        writes.iter().map(|write| self.oracle.etag(table, write)).collect()
    }

    pub(super) fn accepted(
        &mut self,
        change: &Change,
        etag: u64,
        seq: u64,
        durability: Durability,
    ) -> Result<(), String> {
        self.oracle.check_seq(seq)?;
        let now = self.engine.clock.now();
        if self.engine.is_unconfirmed() {
            return Err(format!("accepted: {seq} before the recovered commits are durable"));
        }
        if seq < now {
            return Err(format!("number: {seq} is below the clock, {now}"));
        }
        // Earlier failed changes did not take effect; otherwise this change would have been
        // refused.
        self.oracle.pending.clear();
        self.oracle.submit(change, etag, seq, durability);
        self.counts.note(Event::Commit);
        Ok(())
    }

    pub(super) fn refused(
        &mut self,
        error: &Error,
        expected: Result<(), Refusal>,
        change: Change,
        is_group: bool,
    ) -> Outcome {
        if self.is_near_cap(error, &change)? {
            return line(format!("{}: {}", error.code(), error.chain()));
        }
        if self.is_excused(error) {
            // If the disk is full, or if the engine found damage before writing, nothing was
            // written.
            if !matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::Corruption) {
                self.oracle.pending.push(change);
            }
            return line(format!("{}: {}", error.code(), error.chain()));
        }
        let Err(refusal) = expected else { return Err(format!("refused: {error:?}")) };
        let (found, index) = (error.code(), error.index());
        // The refusal of a single write has no index.
        let index_due = if is_group { refusal.index } else { index };
        if (found, index) != (refusal.code, index_due) {
            return Err(format!("refused: {error:?}, where {refusal:?} was due"));
        }
        self.counts.note(Event::Refusal);
        match index_due.filter(|_| is_group) {
            Some(index) => line(format!("{found} at {index}")),
            None => line(found),
        }
    }

    fn tables(&mut self) -> Outcome {
        let found = self.engine.db().tables().map_err(|error| format!("tables: {error:?}"))?;
        let expected: Vec<_> = self.oracle.tables.values().map(|t| t.name.clone()).collect();
        if found != expected {
            return Err(format!("tables: {found:?}, expected {expected:?}"));
        }
        Ok(found)
    }

    /// Returns the number of commits that a reader sees now; never less than before.
    pub(super) fn visible(&mut self) -> Result<usize, String> {
        let visible = self.oracle.count_up_to(self.engine.published());
        if visible < self.oracle.shown() {
            return Err(format!("went back: {visible} commits of {} shown", self.oracle.shown()));
        }
        if visible < self.oracle.commits() {
            self.counts.note(Event::BehindRead);
        }
        self.oracle.show(visible);
        Ok(visible)
    }

    fn get(
        &mut self,
        table: &str,
        (pk, rk): (&str, &str),
        select: &Option<Vec<String>>,
        at: &Option<String>,
    ) -> Outcome {
        let visible = self.visible()?;
        let Some((snapshot, tables)) = self.state_at(at, table, visible) else {
            return no_snapshot();
        };
        let expected = tables.get(&table.to_lowercase()).map(|table| {
            let row = table.rows.get(&key(pk, rk));
            row.map(|row| project(row, select.as_deref()))
        });
        let ask = Ask::points(table, pk, 1);
        let held =
            self.held_keys(table, at.as_ref(), std::iter::once((pk, rk))).max(self.asks(&ask));
        let found = self.engine.get(table, (pk, rk), select.as_deref(), snapshot);
        self.asked(&ask, found.as_ref().err());
        match (found, expected) {
            (Ok(found), Some(expected)) if found == expected => {
                held.check_served()?;
                self.counts.note(Event::Row);
                line(found.map_or("none".to_owned(), |row| row.to_string()))
            }
            (Ok(found), expected) => Err(format!("get: {found:?}, expected {expected:?}")),
            (Err(error), expected) => self.read_refused(&error, expected.is_none(), held),
        }
    }

    pub(super) fn scan(&mut self, table: &str, scan: &Scan) -> Outcome {
        let visible = self.visible()?;
        let Some((snapshot, tables)) = self.state_at(&scan.at, table, visible) else {
            return no_snapshot();
        };
        let expected = expected_rows(&tables, table, scan);
        let rows = expected.as_deref().unwrap_or_default();
        let ask = match (scan.page, scan.top) {
            (None, Some(0)) => Ask::query(0, 1),
            (None, _) => Ask::query(rows.len().max(1), rows.len() + 1),
            (Some(_), _) => Ask::query(1, 2 * rows.len() + 2),
        };
        let held = self.held(table, scan.at.as_ref(), rows).max(self.asks(&ask));
        let found = self.engine.scan(table, scan, snapshot);
        self.asked(&ask, found.as_ref().err());
        match (found, expected) {
            (Ok(found), Some(expected)) => {
                held.check_served()?;
                if let Some(at) = first_difference(&found, &expected) {
                    let (found, expected) = (found.get(at), expected.get(at));
                    return Err(format!("scan: row {at}: {found:?}, expected {expected:?}"));
                }
                self.counts.add(Event::Row, found.len() as u64);
                Ok(found.iter().map(Row::to_string).collect())
            }
            (Ok(_), None) => Err("scan: a table that is not there was read".to_owned()),
            (Err(error), expected) => self.read_refused(&error, expected.is_none(), held),
        }
    }

    fn iterate(&mut self, name: &str, table: &str, scan: &Scan) -> Outcome {
        let visible = self.visible()?;
        let expected = expected_rows(&self.oracle.at(visible), table, scan);
        let rows = expected.as_deref().unwrap_or_default();
        // If gates or targets refuse the read, the iterator returns the error in place of its first
        // row.
        let ask = Ask::query(0, 1);
        let held = self.held(table, None, rows).max(self.asks(&ask));
        self.asked(&ask, None);
        match (self.engine.iterate(table, scan), expected) {
            (Ok(entities), Some(expected)) => {
                self.counts.note(Event::Iterator);
                let iteration = Iteration { entities, expected, given: 0, held };
                self.iterators.insert(name.to_owned(), iteration);
                Ok(Vec::new())
            }
            (Ok(_), None) => Err("iterate: a table that is not there was read".to_owned()),
            (Err(error), expected) => self.read_refused(&error, expected.is_none(), held),
        }
    }

    fn next(&mut self, name: &str, count: usize) -> Outcome {
        let Some(mut iteration) = self.iterators.remove(name) else {
            return line("no such iterator");
        };
        let mut lines = Vec::new();
        self.asked(&Ask::query(0, count), None);
        for _ in 0..count {
            let expected = iteration.expected.get(iteration.given);
            match (iteration.entities.next(), expected) {
                (None, None) => break,
                (Some(Ok(entity)), Some(expected)) if Row::of(&entity) == *expected => {
                    iteration.held.check_served()?;
                    iteration.given += 1;
                    self.counts.note(Event::Row);
                    lines.push(expected.to_string());
                }
                (Some(Err(error)), _) => {
                    lines.extend(self.read_refused(&error, false, iteration.held)?);
                    // An iterator that failed returns the error forever, so it is dropped here.
                    return match iteration.entities.next() {
                        Some(Err(_)) => Ok(lines),
                        other => Err(format!("next: {other:?} behind an error")),
                    };
                }
                (found, expected) => {
                    return Err(format!("next: {found:?}, expected {expected:?}"));
                }
            }
        }
        self.iterators.insert(name.to_owned(), iteration);
        Ok(lines)
    }

    pub(super) fn snapshot(&mut self, name: &str) -> Outcome {
        let visible = self.visible()?;
        match self.engine.pin() {
            Ok(pinned) => {
                let tables = self.oracle.at(visible).into_owned();
                self.snapshots.insert(name.to_owned(), (pinned, tables));
                self.counts.note(Event::Snapshot);
                Ok(Vec::new())
            }
            Err(error) => self.excuse(Err(error)),
        }
    }

    /// Returns the state of a table at a snapshot. `None` if there is no such snapshot, or no such
    /// table in it, which happens in shrunk programs.
    pub(super) fn state_at(
        &self,
        at: &Option<String>,
        table: &str,
        visible: usize,
    ) -> Option<(Option<&Pinned>, Cow<'_, Tables>)> {
        let Some(name) = at else { return Some((None, self.oracle.at(visible))) };
        let (pinned, tables) = self.snapshots.get(name)?;
        let is_there = tables.contains_key(&table.to_lowercase());
        is_there.then_some((Some(pinned), Cow::Borrowed(tables)))
    }

    fn maintain(&mut self, work: impl FnOnce(&Engine) -> EngineResult<()>) -> Outcome {
        let done = work(&self.engine);
        self.excuse(done)
    }

    fn background(&mut self, steps: usize, step: impl Fn(&Engine) -> bool) -> Outcome {
        let done = (0..steps).take_while(|_| step(&self.engine)).count();
        line(format!("{done} steps"))
    }

    fn half(&mut self, event: Event, begun: EngineResult<bool>) -> Outcome {
        match begun {
            Ok(true) => {
                self.counts.note(event);
                line("begun")
            }
            Ok(false) => line("nothing to do"),
            Err(error) => self.excuse(Err(error)),
        }
    }

    fn end_compaction(&mut self) -> Outcome {
        match self.engine.end_compaction() {
            Ok(Some(false)) => {
                self.counts.note(Event::CompactionDeclined);
                line("declined")
            }
            Ok(_) => Ok(Vec::new()),
            Err(error) => self.excuse(Err(error)),
        }
    }

    /// Ends a flush and a compaction that were begun, because some steps would wait for them
    /// forever.
    pub(super) fn end_halves(&mut self) -> Outcome {
        let flushed = self.engine.end_flush().map(drop);
        let mut lines = self.excuse(flushed)?;
        lines.extend(self.end_compaction()?);
        Ok(lines)
    }

    /// Whether the next write may have to flush while another flush is in progress.
    fn is_out_of_memtables(&self) -> bool {
        const MEMTABLES_MAX: u64 = 2;
        self.engine.is_flushing()
            && self.engine.db().stats().get("memtables").is_some_and(|n| n > MEMTABLES_MAX)
    }

    pub(super) fn verify(&mut self) -> Outcome {
        self.counts.note(Event::Verified);
        match self.engine.db().verify() {
            Ok(report) => {
                let unexcused = |problem: &&String| !self.is_excused_problem(problem);
                let problems: Vec<_> = report.problems.iter().filter(unexcused).cloned().collect();
                none_of(problems, "verify")?;
                line(if report.problems.is_empty() { "sound" } else { "damaged" })
            }
            Err(error) => self.excuse(Err(error)),
        }
    }

    /// Compares the whole state, and verifies the engine's files.
    pub fn compare(&mut self) -> Outcome {
        let visible = self.visible()?;
        let state = self.engine.state().map_err(|error| format!("read back: {error:?}"))?;
        none_of(differences(&self.oracle.at(visible), &state), "read back")?;
        self.verify()
    }

    fn clock(&mut self, millis: i64) -> Outcome {
        if millis >= 0 {
            self.engine.clock.advance(Duration::from_millis(millis.unsigned_abs()));
        } else {
            self.counts.note(Event::ClockBack);
            let back = millis.unsigned_abs() * 10_000;
            let now = self.engine.clock.now();
            self.engine.clock.jump(now.saturating_sub(back).max(START / 2));
        }
        Ok(Vec::new())
    }
}

/// Returns the load that a change puts on the scalability targets; `None` unless it writes rows.
fn ask_of(change: &Change) -> Option<Ask> {
    match change {
        Change::Rows { table, writes } => Some(Ask::writes(table, writes)),
        _ => None,
    }
}

pub(super) fn line(text: impl Into<String>) -> Outcome {
    Ok(vec![text.into()])
}

/// Returns an error with one line for each item of `wrong`, if there are any.
pub(super) fn none_of(wrong: Vec<String>, what: &str) -> Result<(), String> {
    if wrong.is_empty() { Ok(()) } else { Err(format!("{what}: {}", wrong.join("\n"))) }
}

pub(super) fn no_snapshot() -> Outcome {
    line("not in the snapshot")
}

/// Returns the tag of a commit, which all its entities share; 0 if it wrote no entity.
fn tag_of(etags: &[Option<u64>]) -> Result<u64, String> {
    let mut tags = etags.iter().flatten();
    let Some(&first) = tags.next() else { return Ok(0) };
    match tags.any(|tag| *tag != first) {
        true => Err(format!("tags: one commit, several: {etags:?}")),
        false => Ok(first),
    }
}

/// Whether the disk caused the error, directly or through an earlier error.
pub fn is_storage_error(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::Poisoned | ErrorKind::StorageFull)
}

/// Returns the rows that a scan must return; `None` if there is no such table.
fn expected_rows(tables: &Tables, table: &str, scan: &Scan) -> Option<Vec<Row>> {
    let rows = tables.get(&table.to_lowercase())?.rows.values().map(|row| &**row);
    let covered = rows.filter(|row| scan.covers(&row.pk, &row.rk));
    let top = if scan.page.is_some() { None } else { scan.top };
    let taken = covered.take(top.unwrap_or(usize::MAX));
    Some(taken.map(|row| project(row, scan.select.as_deref())).collect())
}

/// Returns a copy of the row that has only the selected properties, and keeps keys and tag.
pub(super) fn project(row: &Row, select: Option<&[String]>) -> Row {
    let mut row = row.clone();
    if let Some(names) = select {
        row.properties.retain(|name, _| names.contains(name));
    }
    row
}
