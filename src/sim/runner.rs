//! Runs steps on the engine and the oracle side by side, and says where they part.
//!
//! Invariants
//! * every answer of the engine is compared: results, error codes and indexes, order, tags;
//! * entity tags only grow, over crashes and jumps of the clock too.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Clock;
use crate::error::{Error, ErrorKind};

use super::engine::{Engine, Pinned, START, code};
use super::oracle::{Change, Oracle, Refusal, Row, Tables, differences};
use super::step::{Config, Scan, Step, durability_name};

/// An engine, an oracle and the snapshots open on both.
pub struct Runner {
    pub engine: Engine,
    pub oracle: Oracle,
    snapshots: BTreeMap<String, (Pinned, Tables)>,
    /// Storage errors end the step, not the run: the change that met one is pending.
    pub faults_expected: bool,
    pub counts: Counts,
}

/// What was compared, so that a run can say so.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub steps: u64,
    pub commits: u64,
    pub refusals: u64,
    pub rows_read: u64,
    pub recoveries: u64,
}

/// The lines a step prints, or how engine and oracle disagree.
pub type Outcome = Result<Vec<String>, String>;

impl Runner {
    pub fn new(config: Config) -> Self {
        Self::on(Engine::new(config))
    }

    pub fn on(engine: Engine) -> Self {
        let (snapshots, counts) = (BTreeMap::new(), Counts::default());
        Self { engine, oracle: Oracle::new(), snapshots, faults_expected: false, counts }
    }

    pub fn run(&mut self, step: &Step) -> Outcome {
        self.counts.steps += 1;
        match step {
            Step::Open(config) => self.open(config),
            Step::CreateTable(name) => self.change(Change::Create(name.clone()), step),
            Step::DropTable(name) => self.change(Change::Drop(name.clone()), step),
            Step::Tables => self.tables(),
            Step::Write { table, write, .. } => {
                let change = Change::Rows { table: table.clone(), writes: vec![write.clone()] };
                self.change(change, step)
            }
            Step::Group { table, writes, .. } => {
                let change = Change::Rows { table: table.clone(), writes: writes.clone() };
                self.change(change, step)
            }
            Step::Get { table, pk, rk, select, at } => self.get(table, (pk, rk), select, at),
            Step::Scan { table, scan } => self.scan(table, scan),
            Step::Snapshot(name) => {
                let pinned = self.engine.pin().map_err(|error| format!("snapshot: {error:?}"))?;
                self.snapshots.insert(name.clone(), (pinned, self.oracle.tables.clone()));
                Ok(Vec::new())
            }
            Step::Release(name) => {
                self.snapshots.remove(name);
                Ok(Vec::new())
            }
            Step::Flush => self.maintain(|engine| engine.db().flush()),
            Step::Compact => self.maintain(|engine| engine.db().compact()),
            Step::Sync => self.sync(),
            Step::Background(steps) => {
                let done = (0..*steps).take_while(|_| self.engine.db().step()).count();
                Ok(vec![format!("{done} steps")])
            }
            Step::Verify => self.verify(),
            Step::Reopen => self.reopen(),
            Step::Kill => self.kill(),
            Step::Crash(seed) => self.crash(*seed),
            Step::Clock(millis) => self.clock(*millis),
        }
    }

    fn open(&mut self, config: &Config) -> Outcome {
        self.engine.config = config.clone();
        self.engine.open().map_err(|error| format!("open: {error:?}"))?;
        self.compare_with_floor(self.oracle.commits())
    }

    fn change(&mut self, change: Change, step: &Step) -> Outcome {
        let expected = self.oracle.check(&change);
        let durability = match step {
            Step::Write { durability, .. } | Step::Group { durability, .. } => *durability,
            _ => None,
        };
        let result = match (step, &change) {
            (Step::CreateTable(name), _) => self.engine.db().create_table(name).map(|_| Vec::new()),
            (Step::DropTable(name), _) => self.engine.db().delete_table(name).map(|()| Vec::new()),
            (Step::Write { table, write, .. }, _) => {
                let etag = self.oracle.etag(table, write);
                self.engine.write(table, write, etag, durability).map(|etag| vec![etag])
            }
            (_, Change::Rows { table, writes }) => {
                let etags: Vec<_> =
                    writes.iter().map(|write| self.oracle.etag(table, write)).collect();
                self.engine.group(table, writes, &etags, durability)
            }
            _ => unreachable!("a change comes from one of the steps above"),
        };
        match (result, expected) {
            (Ok(etags), Ok(())) => {
                let durability = durability.unwrap_or(self.engine.config.durability);
                let etag = self.check_etags(&etags)?;
                // Whatever failed before did not happen, or this one would have been refused.
                self.oracle.pending = None;
                self.oracle.commit(&change, etag, durability);
                self.counts.commits += 1;
                let number = self.oracle.commits();
                Ok(vec![format!("#{number} {}", durability_name(durability))])
            }
            (Err(error), expected) => self.refused(&error, expected, change, step),
            (Ok(_), Err(refusal)) => Err(format!("done, where {refusal:?} was due")),
        }
    }

    fn refused(
        &mut self,
        error: &Error,
        expected: Result<(), Refusal>,
        change: Change,
        step: &Step,
    ) -> Outcome {
        if self.faults_expected && is_storage_error(error) {
            if self.oracle.pending.is_none() && error.kind() != ErrorKind::StorageFull {
                self.oracle.pending = Some(change);
            }
            return Ok(vec![format!("{}: {}", error.code(), error.chain())]);
        }
        let Err(refusal) = expected else { return Err(format!("refused: {error:?}")) };
        let (found, index) = code(error);
        // A write alone has no index to speak of.
        let index_due = if matches!(step, Step::Group { .. }) { refusal.index } else { index };
        if (found, index) != (refusal.code, index_due) {
            return Err(format!("{error:?}, where {refusal:?} was due"));
        }
        self.counts.refusals += 1;
        Ok(vec![match index_due {
            Some(index) if matches!(step, Step::Group { .. }) => format!("{found} at {index}"),
            _ => found.to_owned(),
        }])
    }

    /// The one tag of a commit: the same for all its entities, larger than any before.
    fn check_etags(&self, etags: &[Option<u64>]) -> Result<u64, String> {
        let mut tags = etags.iter().flatten();
        let Some(&first) = tags.next() else { return Ok(0) };
        if tags.any(|tag| *tag != first) {
            return Err(format!("one commit, several tags: {etags:?}"));
        }
        if first <= self.oracle.etag_max {
            return Err(format!("tag {first} after {}", self.oracle.etag_max));
        }
        Ok(first)
    }

    fn tables(&mut self) -> Outcome {
        let found = self.engine.db().tables().map_err(|error| format!("{error:?}"))?;
        let expected: Vec<_> = self.oracle.tables.values().map(|t| t.name.clone()).collect();
        if found != expected {
            return Err(format!("tables {found:?}, expected {expected:?}"));
        }
        Ok(found)
    }

    fn get(
        &mut self,
        table: &str,
        (pk, rk): (&str, &str),
        select: &Option<Vec<String>>,
        at: &Option<String>,
    ) -> Outcome {
        let Some((snapshot, tables)) = self.state_at(at, table) else { return no_snapshot() };
        let expected = tables.get(&table.to_lowercase()).map(|table| {
            let row = table.rows.get(&super::oracle::key(pk, rk));
            row.map(|row| project(row, select.as_deref()))
        });
        let found = self.engine.get(table, (pk, rk), select.as_deref(), snapshot);
        match (found, expected) {
            (Ok(found), Some(expected)) if found == expected => {
                self.counts.rows_read += 1;
                Ok(vec![found.map_or("none".to_owned(), |row| row.to_string())])
            }
            (Ok(found), expected) => Err(format!("found {found:?}, expected {expected:?}")),
            (Err(error), expected) => self.read_refused(&error, expected.is_none()),
        }
    }

    fn scan(&mut self, table: &str, scan: &Scan) -> Outcome {
        let Some((snapshot, tables)) = self.state_at(&scan.at, table) else { return no_snapshot() };
        let table_there = tables.get(&table.to_lowercase());
        let rows = table_there.map(|table| table.rows.values().map(|row| &**row));
        let expected: Option<Vec<Row>> = rows.map(|rows| {
            let covered = rows.filter(|row| covers(scan, row));
            let top = if scan.page.is_some() { None } else { scan.top };
            covered
                .take(top.unwrap_or(usize::MAX))
                .map(|row| project(row, scan.select.as_deref()))
                .collect()
        });
        match (self.engine.scan(table, scan, snapshot), expected) {
            (Ok(found), Some(expected)) => {
                if let Some(at) = first_difference(&found, &expected) {
                    let (found, expected) = (found.get(at), expected.get(at));
                    return Err(format!("row {at}: found {found:?}, expected {expected:?}"));
                }
                self.counts.rows_read += found.len() as u64;
                Ok(found.iter().map(Row::to_string).collect())
            }
            (Ok(_), None) => Err("a table that is not there was read".to_owned()),
            (Err(error), expected) => self.read_refused(&error, expected.is_none()),
        }
    }

    fn read_refused(&self, error: &Error, table_missing: bool) -> Outcome {
        let fault = self.faults_expected && is_storage_error(error);
        if fault || (table_missing && error.code() == "TableNotFound") {
            return Ok(vec![error.code().to_owned()]);
        }
        Err(format!("refused: {error:?}"))
    }

    /// `None` if there is no such snapshot, or no such table in it: steps are taken out of programs
    /// that fail.
    fn state_at(&self, at: &Option<String>, table: &str) -> Option<(Option<&Pinned>, &Tables)> {
        let Some(name) = at else { return Some((None, &self.oracle.tables)) };
        let (pinned, tables) = self.snapshots.get(name)?;
        tables.contains_key(&table.to_lowercase()).then_some((Some(pinned), tables))
    }

    fn maintain(&mut self, work: impl FnOnce(&Engine) -> crate::error::Result<()>) -> Outcome {
        match work(&self.engine) {
            Ok(()) => Ok(Vec::new()),
            Err(error) => self.read_refused(&error, false),
        }
    }

    fn sync(&mut self) -> Outcome {
        let done = self.maintain(|engine| engine.db().sync())?;
        if done.is_empty() {
            self.oracle.all_durable();
        }
        Ok(done)
    }

    fn verify(&mut self) -> Outcome {
        match self.engine.db().verify() {
            Ok(report) if report.problems.is_empty() => Ok(vec!["sound".to_owned()]),
            Ok(report) => Err(format!("verify: {}", report.problems.join("\n"))),
            Err(error) => self.read_refused(&error, false),
        }
    }

    fn reopen(&mut self) -> Outcome {
        self.snapshots.clear();
        match self.engine.close() {
            Ok(()) => self.oracle.all_durable(),
            Err(error) if self.faults_expected && is_storage_error(&error) => {}
            Err(error) => return Err(format!("close: {error:?}")),
        }
        self.engine.open().map_err(|error| format!("open: {error:?}"))?;
        self.compare_with_floor(self.oracle.process_floor)
    }

    fn kill(&mut self) -> Outcome {
        let image = self.engine.fs.kill_image();
        self.recover(image, self.oracle.process_floor)
    }

    fn crash(&mut self, seed: u64) -> Outcome {
        let image = self.engine.fs.crash_image(seed);
        self.recover(image, self.oracle.power_floor)
    }

    /// Goes on with what a crash left; at least `floor` commits must be there.
    pub fn recover(&mut self, image: crate::fs::MemFs, floor: usize) -> Outcome {
        self.snapshots.clear();
        self.counts.recoveries += 1;
        self.engine.abandon(image);
        self.engine.open().map_err(|error| format!("open after a crash: {error:?}"))?;
        self.compare_with_floor(floor)
    }

    /// The state found must be that after at least `floor` commits; the rest never happened.
    fn compare_with_floor(&mut self, floor: usize) -> Outcome {
        let state = self.engine.state().map_err(|error| format!("read back: {error:?}"))?;
        let commits = self.oracle.commits();
        let prefix = self.oracle.find(&state, floor)?;
        self.oracle.roll_back(prefix);
        self.oracle.pending = None;
        let lost = commits.saturating_sub(prefix);
        Ok(vec![if lost == 0 { "all there".to_owned() } else { format!("{lost} commits lost") }])
    }

    /// Compares the whole state, and has the engine check its files.
    pub fn compare(&mut self) -> Outcome {
        let state = self.engine.state().map_err(|error| format!("read back: {error:?}"))?;
        let differences = differences(&self.oracle.tables, &state);
        if !differences.is_empty() {
            return Err(differences.join("\n"));
        }
        self.verify()
    }

    fn clock(&mut self, millis: i64) -> Outcome {
        if millis >= 0 {
            self.engine.clock.advance(Duration::from_millis(millis.unsigned_abs()));
        } else {
            let now = self.engine.clock.now();
            let back = millis.unsigned_abs() * 10_000;
            self.engine.clock.jump(now.saturating_sub(back).max(START / 2));
        }
        Ok(Vec::new())
    }
}

fn no_snapshot() -> Outcome {
    Ok(vec!["not in the snapshot".to_owned()])
}

/// The disk's fault, or its consequence.
pub fn is_storage_error(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::Poisoned | ErrorKind::StorageFull)
}

fn covers(scan: &Scan, row: &Row) -> bool {
    let units = |text: &str| text.encode_utf16().collect::<Vec<u16>>();
    let rk = units(&row.rk);
    scan.pk.as_ref().is_none_or(|pk| *pk == row.pk)
        && scan.from.as_ref().is_none_or(|from| units(from) <= rk)
        && scan.to.as_ref().is_none_or(|to| rk < units(to))
}

/// The row with the named properties only; the tag always comes along.
fn project(row: &Row, select: Option<&[String]>) -> Row {
    let mut row = row.clone();
    if let Some(names) = select {
        row.properties.retain(|name, _| names.contains(name));
    }
    row
}

fn first_difference(found: &[Row], expected: &[Row]) -> Option<usize> {
    let len = found.len().max(expected.len());
    (0..len).find(|&at| found.get(at) != expected.get(at))
}
