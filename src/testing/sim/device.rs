//! Simulates the life of an unattended device, from its first boot to the end of the simulated
//! time. The device keeps some hours of sensor readings in a database. Every second it inserts a
//! reading, every 10 s it replaces a setting conditionally, and every 30 s it inserts a group. The
//! power fails every 1 to 10 s. Each opening must show all durable readings that have not expired.
//! Of the commits that were not durable, a prefix must be found.
//!
//! A simulated life runs on one thread, and its seed decides everything: equal seeds have equal
//! digests. The parts are `model` (expected data), `work` (reads and writes) and `wall` (the
//! clock).

mod model;
mod report;
mod wall;
mod work;

pub use report::{Failure, Figures, Report};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{TICKS_PER_SECOND, ticks_in};
use crate::codec::{HashSeed, hash};
use crate::db::Db;
use crate::error::{Error, ErrorKind, Result as EngineResult};
use crate::fs::{Fault, FaultFs, FaultKind, MemFs, OpKind};
use crate::options::{Background, Durability, Options};
use crate::rng::Rng;

use self::model::Model;
use self::wall::{Boot, Clocks};
use super::engine::{PATH, START};
use super::power::{End, PowerFs};
use super::program::panic_text;

const SECOND: u64 = TICKS_PER_SECOND;
const DAY: u64 = 86_400 * SECOND;
/// The time to live of a reading, if the simulated time is at least a day.
const TTL: Duration = Duration::from_secs(6 * 3_600);
/// The size of the part of the medium that becomes unreadable, in bytes.
const STRETCH: u64 = 4 << 10;
/// If background work takes this many steps, the simulation fails because the work does not end.
const STEPS_MAX: u64 = 100_000;

/// The parameters of the simulated life of a device.
///
/// * The power fails at a random file operation or between two operations. Simulated time also
///   advances while the power is off, but the clock of the next boot may not show this time.
/// * The clock of a boot is right, or wrong until it is set, or jumps by decades and back.
/// * In one boot of twenty, 4 KiB of a table file cannot be read for up to four boots.
///
/// ```
/// use std::time::Duration;
/// use rowstone::sim::device::Life;
///
/// let report = Life::new(42, Duration::from_secs(600)).run();
/// assert!(report.failure.is_none(), "{report}");
/// assert!(report.figures.openings > 30 && report.figures.commits > 100, "{report}");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// The seed of all random choices.
    pub seed: u64,
    /// The simulated duration.
    pub time: Duration,
    /// The time to live of readings; `None` keeps them forever.
    pub ttl: Option<Duration>,
    /// Whether the clock of the first boot starts in 1970; otherwise it shows the true time.
    pub begins_in_1970: bool,
    /// Whether rows may expire by a clock that jumped (see `Options::trust_clock_jumps`). Readings
    /// then expire too early, which the simulation must detect.
    pub trusts_clock_jumps: bool,
}

struct Device {
    life: Life,
    rng: Rng,
    /// The state of the disk after the last power cut.
    fs: MemFs,
    power: PowerFs,
    faults: FaultFs,
    /// Time since the first boot, in ticks.
    now: u64,
    model: Model,
    /// Whether the creation of both tables was acknowledged.
    is_set_up: bool,
    /// Whether the outcome of all writes of earlier boots is known.
    is_settled: bool,
    /// The number of seconds in which something was written.
    seconds: u64,
    /// The number of boots for which the bad part of the medium remains unreadable.
    bad_boots: u64,
    /// The number of injected I/O faults before this boot.
    faults_before: u64,
    next_scan: u64,
    next_verify: u64,
    figures: Figures,
    digest: u64,
}

/// The plan of one boot.
struct Session {
    boot: Boot,
    /// The remaining time of the session, in ticks. The power fails at the end of the session, if
    /// not earlier.
    ends: u64,
    durability: Durability,
    delay: Duration,
    /// Whether the session ends with a clean close unless the power fails first.
    closes: bool,
}

impl Life {
    /// Creates a life that begins in 1970. Readings expire after 6 hours, or in a life of less than
    /// a day after a quarter of the life.
    pub fn new(seed: u64, time: Duration) -> Self {
        let ttl = TTL.min(Duration::from_secs((time.as_secs() / 4).max(1)));
        Self { seed, time, ttl: Some(ttl), begins_in_1970: true, trusts_clock_jumps: false }
    }

    /// Runs the life to its end.
    pub fn run(&self) -> Report {
        self.run_with(|_| {})
    }

    /// Runs the life to its end, and regularly passes the simulated time to `progress`.
    pub fn run_with(&self, mut progress: impl FnMut(Duration)) -> Report {
        let mut device = Device::new(*self);
        let lived = catch_unwind(AssertUnwindSafe(|| device.live(&mut progress)));
        let is_bad = if device.is_bad() { " (a block is bad)" } else { "" };
        let what = match lived {
            Ok(Ok(())) => None,
            Ok(Err(what)) => Some(format!("{what}{is_bad}")),
            Err(panic) => Some(format!("panic: {}", panic_text(&*panic))),
        };
        device.report(what)
    }
}

impl Device {
    fn new(life: Life) -> Self {
        let fs = MemFs::new();
        let power = PowerFs::new(Arc::new(fs.clone()), fs.clone());
        let faults = FaultFs::new(Arc::new(power.clone()));
        let ttl = life.ttl.map(ticks_in);
        Self {
            life,
            rng: Rng::from_seed(life.seed),
            fs,
            power,
            faults,
            now: 0,
            model: Model::new(ttl),
            is_set_up: false,
            is_settled: false,
            seconds: 0,
            bad_boots: 0,
            faults_before: 0,
            next_scan: 0,
            next_verify: DAY.min(ticks_in(life.time) / 4),
            figures: Figures::default(),
            digest: 0,
        }
    }

    fn live(&mut self, progress: &mut dyn FnMut(Duration)) -> Result<(), String> {
        let end = ticks_in(self.life.time);
        while self.now < end {
            let session = self.next_session();
            self.spoil();
            self.live_session(session)?;
            self.stay_off();
            if self.figures.boots.is_multiple_of(64) {
                progress(duration(self.now));
            }
        }
        self.end()
    }

    fn next_session(&mut self) -> Session {
        let clocks = match (self.figures.boots, self.life.begins_in_1970) {
            (0, true) => Clocks::First,
            (0, false) => Clocks::Right,
            _ if self.is_ahead_allowed() => Clocks::Any,
            _ => Clocks::Behind,
        };
        let rng = &mut self.rng;
        let boot = Boot::draw(rng, START + self.now, clocks);
        let weak = if rng.chance(1, 2) { Durability::Buffered } else { Durability::Os };
        let is_weak = self.is_set_up && rng.chance(1, 4);
        let delay = if rng.chance(1, 2) { Duration::from_secs(60) } else { Duration::ZERO };
        Session {
            boot,
            ends: SECOND + rng.below(9 * SECOND),
            durability: if is_weak { weak } else { Durability::Sync },
            delay: if is_weak { delay } else { Duration::ZERO },
            closes: rng.chance(1, 50),
        }
    }

    /// Whether a clock may be ahead of the true time. Clocks are ahead only in the second half of a
    /// life.
    fn is_ahead_allowed(&self) -> bool {
        self.now >= ticks_in(self.life.time) / 2
    }

    /// Makes a part of the medium unreadable or readable again, at random.
    fn spoil(&mut self) {
        if self.bad_boots > 0 {
            self.bad_boots -= 1;
            if self.bad_boots > 0 {
                return;
            }
            self.faults.disarm();
        }
        if !self.rng.chance(1, 20) {
            return;
        }
        let mut paths = self.fs.paths();
        paths.retain(|path| path.ends_with(".sst"));
        if paths.is_empty() {
            return;
        }
        let path = self.rng.pick(&paths);
        let len = self.fs.len(path).unwrap_or_default();
        let at = self.rng.below(len.div_ceil(STRETCH)) * STRETCH;
        let fault = Fault::new(FaultKind::Eio).on_path(path).within(at..at + STRETCH);
        self.faults.arm(fault.sticky());
        self.bad_boots = 1 + self.rng.below(4);
        self.figures.bad_blocks += 1;
    }

    fn live_session(&mut self, mut session: Session) -> Result<(), String> {
        self.figures.boots += 1;
        self.figures.wrong_clocks += u64::from(session.boot.is_wrong);
        self.power_on();
        let cut = End::PowerCut(self.rng.next_u64());
        self.arm(&session, cut);
        let opened = self.open(&session);
        let opened = self.judge("open", opened)?;
        if let Some(db) = &opened {
            self.figures.openings += 1;
            self.live_on(db, &mut session)?;
        } else if !self.power.is_gone() {
            // The database could not be opened although the power is on. The device is idle until
            // the next boot.
            self.figures.openings_failed += 1;
        }
        if !self.power.is_gone() {
            self.pass(&mut session, u64::MAX);
        }
        let was_opened = opened.is_some();
        let mut db = opened;
        if session.closes && !self.power.is_gone() {
            self.close(db.take())?;
        }
        self.power_off(cut, was_opened);
        // The database is dropped when the power is off, so that dropping it cannot write.
        drop(db);
        Ok(())
    }

    fn close(&mut self, db: Option<Db>) -> Result<(), String> {
        let Some(db) = db else { return Ok(()) };
        if self.judge("close", db.close())?.is_some() {
            self.figures.closes += 1;
            // If the outcome of earlier writes is unknown, it stays unknown.
            if self.is_settled {
                self.model.all_durable();
            }
        }
        Ok(())
    }

    /// Switches the power on again. The disk has the data that survived the power cut.
    fn power_on(&mut self) {
        self.power = PowerFs::new(Arc::new(self.fs.clone()), self.fs.clone());
        self.faults = self.faults.over(Arc::new(self.power.clone()));
        self.faults_before = self.faults.delivered();
    }

    /// Arms the power cut of a session. In three of five sessions the power fails at a file
    /// operation, which is chosen here. An opening has some 20 operations, and a second of work at
    /// least three.
    fn arm(&mut self, session: &Session, cut: End) {
        if !self.rng.chance(3, 5) {
            return;
        }
        let seconds = session.ends / SECOND;
        let is_early = self.rng.chance(1, 4);
        let (least, most) = if is_early { (0, 25) } else { (15, 15 + 4 * seconds) };
        let ops = least + self.rng.below(most - least);
        self.power.arm(ops, cut);
    }

    fn open(&mut self, session: &Session) -> EngineResult<Db> {
        let options = Options::edge()
            .background(Background::Manual)
            .durability(session.durability)
            .max_commit_delay(session.delay)
            .trust_clock_jumps(self.life.trusts_clock_jumps)
            .clock(session.boot.clock.clone())
            .seed(self.rng.next_u64());
        options.fs(Arc::new(self.faults.clone())).open(PATH)
    }

    /// Returns the value of `answer`; `None` if the power failed or a bad block caused the error.
    /// Fails for any other error.
    fn judge<T>(&mut self, doing: &str, answer: EngineResult<T>) -> Result<Option<T>, String> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(_) if self.power.is_gone() => Ok(None),
            Err(error) if self.is_excused(&error) => {
                self.figures.reads_failed += 1;
                Ok(None)
            }
            Err(error) => Err(format!("{doing}: {}", error.chain())),
        }
    }

    fn is_excused(&self, error: &Error) -> bool {
        let is_of_disk = matches!(error.kind(), ErrorKind::Io | ErrorKind::Corruption);
        is_of_disk && self.is_bad() && self.faults.delivered() > self.faults_before
    }

    /// Whether a part of the medium is unreadable.
    fn is_bad(&self) -> bool {
        self.bad_boots > 0
    }

    /// Advances the time, at most to the end of the session.
    fn pass(&mut self, session: &mut Session, time: u64) {
        let time = time.min(session.ends);
        session.ends -= time;
        self.now += time;
        self.figures.powered_seconds += time;
        self.figures.jumps += session.boot.pass(time, START + self.now);
    }

    fn power_off(&mut self, cut: End, was_opened: bool) {
        self.fs = match self.power.take_left() {
            Some((left, _)) if was_opened => {
                self.figures.cuts_in_operation += 1;
                left
            }
            Some((left, _)) => {
                self.figures.cuts_in_opening += 1;
                left
            }
            None => {
                self.figures.cuts_between += 1;
                self.power.cut(cut)
            }
        };
    }

    fn stay_off(&mut self) {
        let (rng, ttl) = (&mut self.rng, ticks_in(self.life.ttl.unwrap_or(TTL)));
        // A boot and the pause after it take about eight seconds.
        let boots = |time: u64| (time / (8 * SECOND)).max(1);
        let off = if rng.chance(1, boots(4 * ttl)) {
            rng.below(ttl + ttl / 2)
        } else if rng.chance(1, boots(15 * DAY)) {
            DAY + rng.below(DAY)
        } else {
            SECOND / 10 + rng.below(5 * SECOND)
        };
        self.now += off;
        let longest = &mut self.figures.longest_off_seconds;
        *longest = (*longest).max(off / SECOND);
    }

    /// Runs the last boot, until no background work is left. In this boot no block is bad, the
    /// clock is right and the power does not fail.
    fn end(&mut self) -> Result<(), String> {
        self.faults.disarm();
        self.bad_boots = 0;
        let boot = Boot::draw(&mut self.rng, START + self.now, Clocks::Right);
        let (durability, delay) = (Durability::Sync, Duration::ZERO);
        let mut session = Session { boot, ends: 0, durability, delay, closes: true };
        self.power_on();
        let opened = self.open(&session);
        let db = self.judge("open", opened)?.ok_or("the last opening failed")?;
        self.figures.boots += 1;
        self.figures.openings += 1;
        (self.next_scan, self.next_verify) = (u64::MAX, u64::MAX);
        self.live_on(&db, &mut session)?;
        let mut steps = 0;
        while db.step(Duration::ZERO) {
            steps += 1;
            if steps == STEPS_MAX {
                return Err("background work does not end".to_owned());
            }
        }
        if db.stats().get("trouble") != Some(0) {
            return Err("background work is in trouble on sound media".to_owned());
        }
        self.look_at_everything(&db)?;
        self.close(Some(db))
    }

    fn note(&mut self, answer: u64) {
        self.digest = hash(HashSeed(self.digest), &answer.to_le_bytes());
    }

    fn report(mut self, what: Option<String>) -> Report {
        let figures = &mut self.figures;
        figures.simulated_seconds = self.now / SECOND;
        figures.powered_seconds /= SECOND;
        figures.expired = self.model.expired;
        figures.writes = self.faults.count(OpKind::Write);
        figures.syncs = self.faults.count(OpKind::Sync) + self.faults.count(OpKind::SyncDir);
        (figures.bytes_at_end, figures.files_at_end) =
            (self.fs.used(), self.fs.paths().len() as u64);
        let boot = figures.boots;
        let failure = what.map(|what| Failure { boot, at: duration(self.now), what });
        for path in self.fs.paths() {
            let bytes = self.fs.read(&path).unwrap_or_default();
            self.digest = hash(HashSeed(self.digest), path.as_bytes());
            self.digest = hash(HashSeed(self.digest), &bytes);
        }
        Report { seed: self.life.seed, figures: self.figures, digest: self.digest, failure }
    }
}

fn duration(ticks: u64) -> Duration {
    Duration::from_nanos(ticks.saturating_mul(100))
}
