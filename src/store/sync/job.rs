//! The steps of a sync.
//!
//! Invariants
//! * a position is saved when everything before it is acknowledged: first at the target, then at
//!   the source;
//! * nothing is sent unless this sync has owned the position row within the last [`LEASE`]; a sync
//!   that takes the row from one that has not ended waits until nothing of it can take effect;
//! * memory is bounded: a window of commits, or a page of rows.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::barrier::Barriers;
use super::mark::{Found, Mark};
use super::plan::Plan;
use super::problem::{Report, SyncProblem};
use super::saved::{Process, Saved};
use super::send::{Counts, Sender};
use super::snapshot::{Missing, Snapshot, check_tables};
use super::stamp::Stamp;
use super::window::Window;
use crate::clock::{Clock, SystemClock};
use crate::db::{Cursor, Position};
use crate::error::{Error, ErrorKind, Result};
use crate::fs::{DiskFs, Fs};
use crate::model::check_property_name;
use crate::mutants::mutant;
use crate::query::Filter;
use crate::retry::RetryPolicy;
use crate::rng::Rng;
use crate::store::source::{Feed, Source};
use crate::store::table_store::TableStore;

/// Borrows the parts of a job that send units.
macro_rules! sender {
    ($job:expr) => {
        Sender {
            target: $job.target,
            clock: &*$job.clock,
            until: $job.owned.unwrap_or_default().saturating_add(LEASE),
            workers: $job.options.workers,
            split_groups: $job.options.split_groups,
            stamp: $job.stamp.as_ref(),
            report: $job.report.as_deref(),
            counts: &$job.counts,
        }
    };
}
/// Carries the changes of a database to another store: its rows arrive there in effect once, and in
/// order within their partition.
///
/// A sync runs in [steps](Self::step), or by [`run`](Self::run) until nothing is left. It may be
/// killed at any time, and continues after the last saved position. Readers of the target may then
/// see some older states again, of about the last second.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// use rowstone::store::sync::{Source, SyncJob};
/// use rowstone::{Db, Entity};
/// let (device, cloud) = (Db::open_in_memory()?, Db::open_in_memory()?);
/// let readings = device.create_table("readings")?;
/// readings.insert(Entity::new("site-1", "0001").with("Celsius", 21.5))?;
/// let mut sync = SyncJob::new(Source::Db(device.clone()), &cloud);
/// sync.run(false, &mut |_| true)?;
/// readings.insert(Entity::new("site-1", "0002").with("Celsius", 22.0))?;
/// sync.run(false, &mut |_| true)?;
/// assert_eq!(cloud.table("readings")?.query("")?.count()?, 2);
/// # Ok(())
/// # }
/// ```
pub struct SyncJob<'s> {
    source: Source,
    target: &'s dyn TableStore,
    options: Options,
    stamp: Option<Stamp>,
    report: Option<Box<Report<'s>>>,
    clock: Arc<dyn Clock>,
    rng: Rng,
    name: String,
    mark: Mark,
    saved: Saved,
    phase: Phase,
    window: Window,
    /// The position up to which everything is acknowledged.
    reached: Option<Position>,
    /// Whether `reached` is not saved yet.
    is_dirty: bool,
    /// Whether the next comparison is that of [`mirror`](Self::mirror).
    is_mirror: bool,
    /// The monotonic time at which the last write of the position row was sent.
    owned: Option<Duration>,
    /// The monotonic time of the last save at the source; `None` if the next save must not wait.
    saved_at: Option<Duration>,
    /// Whether a request may still take effect whose answer was lost.
    is_pending: bool,
    /// The number of failures since the last success.
    failures: u32,
    /// The monotonic time of the next try.
    resume: Duration,
    error: Option<Error>,
    commits: u64,
    counts: Counts,
}

struct Options {
    allow_drop: bool,
    split_groups: bool,
    resync: bool,
    /// Whether the comparison of a `resync` also deletes.
    mirror: bool,
    delete_missing: bool,
    workers: usize,
    retries: RetryPolicy,
}

enum Phase {
    Start,
    /// Waits until a sync that did not end can no longer write. Then starts at a position.
    Takeover(Duration, Option<Position>),
    Compare(Box<Snapshot>),
    Follow(Box<dyn Feed>),
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// There is more to do.
    Busy,
    /// Everything that is durable was carried.
    Idle,
    /// Nothing can be done before this time has passed: the target fails.
    Wait(Duration),
}

/// The counts of a sync.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SyncStatus {
    /// The position up to which everything was carried; `None` before the first comparison ends.
    pub position: Option<Position>,
    /// The commits that were carried.
    pub commits: u64,
    /// The rows that were written or deleted at the target.
    pub rows: u64,
    /// The requests with rows that were sent.
    pub requests: u64,
    /// The problems that were reported.
    pub problems: u64,
    /// Whether nothing is sent before requests of an earlier sync, which did not end in order, can
    /// no longer take effect.
    pub is_taking_over: bool,
    /// The last error, if nothing was carried since.
    pub error: Option<Error>,
}

/// The time for which a sync owns the position row after it has written it.
const LEASE: Duration = Duration::from_secs(10);
/// The time after which a request can no longer take effect: the service's most is 30 s.
const LATE: Duration = Duration::from_secs(30);
/// The shortest time between two saved positions.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// The same at the source, where each one wears the flash. A late position only repeats changes,
/// since the older one of both ends counts.
const SAVE_AT_SOURCE_EVERY: Duration = Duration::from_secs(300);
/// The refusal of a sync to its own source.
pub(crate) const SAME: &str = "source and target are the same database";
/// The longest wait for new commits. Changes by another machine are found only by looking.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The partitions that are written at once.
const WORKERS: usize = 4;

impl<'s> SyncJob<'s> {
    /// Creates a sync, which sends nothing yet.
    pub fn new(source: Source, target: &'s dyn TableStore) -> Self {
        Self::with(source, target, (Arc::new(SystemClock::new()), Rng::from_entropy()))
    }

    /// As [`new`](Self::new), with a clock and random numbers.
    pub(crate) fn with(
        source: Source,
        target: &'s dyn TableStore,
        (clock, mut rng): (Arc<dyn Clock>, Rng),
    ) -> Self {
        let [min, z, max] = [1, 1, 60].map(Duration::from_secs);
        let name = "default".to_owned();
        let mark = Mark::new(&name, &mut rng);
        Self {
            source,
            target,
            options: Options {
                allow_drop: false,
                split_groups: false,
                resync: false,
                mirror: false,
                delete_missing: false,
                workers: WORKERS,
                retries: RetryPolicy::exponential_within(z, min, max),
            },
            stamp: None,
            report: None,
            clock,
            rng,
            name,
            mark,
            saved: Saved::Nowhere,
            phase: Phase::Start,
            window: Window::default(),
            reached: None,
            is_dirty: false,
            is_mirror: false,
            owned: None,
            saved_at: None,
            is_pending: false,
            failures: 0,
            resume: Duration::ZERO,
            error: None,
            commits: 0,
            counts: Counts::default(),
        }
    }

    /// Sets the name of the position at the target. Several databases that are carried to one
    /// target need names of their own. Default: `default`.
    pub fn name(mut self, name: &str) -> Self {
        (self.name, self.mark) = (name.to_owned(), Mark::new(name, &mut self.rng));
        self.stamp.iter_mut().for_each(|stamp| name.clone_into(&mut stamp.name));
        self
    }

    /// Also saves the position in a file, with the last error: at the end, and at most every five
    /// minutes. The older position of both ends counts, so after a kill changes of this time are
    /// carried again.
    ///
    /// # Errors
    /// `Locked` if another sync uses the file, `InvalidInput` for another file, `Io`.
    pub fn state_file(self, path: impl AsRef<Path>) -> Result<Self> {
        self.state_file_in(Arc::new(DiskFs::new()), path.as_ref())
    }

    /// As [`state_file`](Self::state_file), in another file system.
    pub(crate) fn state_file_in(self, fs: Arc<dyn Fs>, path: &Path) -> Result<Self> {
        let saved = Saved::open(fs, path)?;
        Ok(Self { saved, ..self })
    }

    /// Also saves the position in a cursor of the source, as [`state_file`](Self::state_file) does,
    /// which costs a commit each time. If the source is set back to an earlier state, the cursor is
    /// too, and the sync continues there.
    pub fn cursor(self, cursor: Cursor) -> Self {
        Self { saved: Saved::Cursor(cursor), ..self }
    }

    /// As [`cursor`](Self::cursor), with a database that another process has open.
    pub(crate) fn process(self, ask: Box<Process>) -> Self {
        Self { saved: Saved::Process(ask), ..self }
    }

    /// Also drops at the target the tables that the source drops. Default: that is a problem.
    pub fn allow_drop(mut self, allow_drop: bool) -> Self {
        self.options.allow_drop = allow_drop;
        self
    }

    /// Sends an entity group in parts if the target refuses it for its size. Readers of the target
    /// may then see a part of it. Default: it ends the sync.
    pub fn split_groups(mut self, split_groups: bool) -> Self {
        self.options.split_groups = split_groups;
        self
    }

    /// Begins again by comparing all rows: also if the source was restored, repaired or set back.
    /// Rows that only the target has stay, see [`delete_missing`](Self::delete_missing).
    pub fn resync(mut self, resync: bool) -> Self {
        self.options.resync = resync;
        self
    }

    /// As [`resync`](Self::resync), and this one comparison also deletes the rows that only the
    /// target has, as [`delete_missing`](Self::delete_missing), and with
    /// [`allow_drop`](Self::allow_drop) drops the tables that only the target has: also those that
    /// other programs or syncs have made.
    pub fn mirror(mut self, mirror: bool) -> Self {
        (self.options.resync, self.options.mirror) = (self.options.resync || mirror, mirror);
        self
    }

    /// Sets whether every comparison deletes the rows that only the target has: the first one, one
    /// after changes were lost, and a [`resync`](Self::resync). Default: they are reported. Use it
    /// only if no other program or sync writes to the tables at the target.
    ///
    /// A [`step`](Self::step) returns `Unsupported` if a table has a time to live, or if a limit on
    /// disk use drops its oldest rows: the source has let such rows go, and the target keeps them.
    pub fn delete_missing(mut self, delete_missing: bool) -> Self {
        self.options.delete_missing = delete_missing;
        self
    }

    /// Gives each carried row one more property at the target: a text of the Timestamp at the
    /// source with all seven digits, a space, and the name of the sync. The Timestamp is the
    /// [Seq](crate::Seq) of the row, so the order of these texts is the order in which the source
    /// wrote the rows. A row that has 252 properties, or a property of this name, is a problem and
    /// is not carried. Default: none.
    ///
    /// # Errors
    /// `InvalidInput` for a name that no property can have.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use rowstone::store::sync::{Source, SyncJob};
    /// use rowstone::{Db, Entity};
    /// let (device, cloud) = (Db::open_in_memory()?, Db::open_in_memory()?);
    /// device.create_table("readings")?.insert(Entity::new("site-1", "0001"))?;
    /// let sync = SyncJob::new(Source::Db(device), &cloud).name("station-7");
    /// sync.stamp("Source")?.run(false, &mut |_| true)?;
    /// let row = cloud.table("readings")?.get("site-1", "0001")?.expect("it was carried");
    /// assert!(row.get::<String>("Source")?.ends_with("Z station-7"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn stamp(mut self, property: &str) -> Result<Self> {
        check_property_name(property)?;
        if format!("{property} lt ''").parse::<Filter>().is_err() {
            let text = format!("'{property}' is a word of the filter language: name another one");
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        let (property, name) = (property.to_owned(), self.name.clone());
        self.stamp = Some(Stamp { property, name, expires: false });
        Ok(self)
    }

    /// As [`stamp`](Self::stamp), and rows that expire at the source, or that a limit on disk use
    /// drops there, are deleted at the target: those whose stamp has the name of this sync and a
    /// time before which the source has let all rows go. Each such change of the feed reads the
    /// rows of the table with an older stamp, which a Table service finds by reading the whole
    /// table. Default: these rows stay.
    ///
    /// # Errors
    /// As [`stamp`](Self::stamp).
    pub fn stamp_and_expire(self, property: &str) -> Result<Self> {
        let mut job = self.stamp(property)?;
        job.stamp.iter_mut().for_each(|stamp| stamp.expires = true);
        Ok(job)
    }

    /// Sets the number of partitions that are written at once. Default: 4.
    pub fn workers(mut self, workers: usize) -> Self {
        self.options.workers = workers.max(1);
        self
    }

    /// Sets how often, and after which pauses, a failing target is tried again. Default: three
    /// times after some 2, 4 and 8 seconds.
    pub fn retries(mut self, retries: RetryPolicy) -> Self {
        self.options.retries = retries;
        self
    }

    /// Sets the function that receives each problem. Without it, a row that the target refuses and
    /// a dropped table end the sync. After a crash, a problem may be reported again.
    pub fn on_problem(
        mut self,
        report: impl Fn(&SyncProblem) -> Result<()> + Send + Sync + 's,
    ) -> Self {
        self.report = Some(Box::new(report));
        self
    }

    /// Returns what was done so far.
    pub fn status(&self) -> SyncStatus {
        let count = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        SyncStatus {
            position: self.reached,
            commits: self.commits,
            rows: count(&self.counts.rows),
            requests: count(&self.counts.requests),
            problems: count(&self.counts.problems),
            is_taking_over: matches!(self.phase, Phase::Takeover(..)),
            error: self.error.clone(),
        }
    }

    /// Returns the position at which a running comparison of all rows began. Meanwhile commits may
    /// arrive in parts.
    #[cfg(feature = "sim")]
    pub(crate) fn comparison(&self) -> Option<Position> {
        match &self.phase {
            Phase::Compare(snapshot) => Some(snapshot.position),
            _ => None,
        }
    }

    /// Whether a part of some commits may have arrived, which the next sync sends again.
    #[cfg(feature = "sim")]
    pub(crate) fn is_within_commits(&self) -> bool {
        !self.window.is_empty()
    }

    /// Returns the tables that a running comparison still has to compare.
    #[cfg(feature = "sim")]
    pub(crate) fn tables_to_compare(&self) -> Vec<String> {
        match &self.phase {
            Phase::Compare(snapshot) => snapshot.tables.iter().cloned().collect(),
            _ => Vec::new(),
        }
    }

    /// Runs steps while `goes_on` returns true for the counts so far, until everything is carried;
    /// with `follow` also later commits. Then [ends](Self::end).
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn run(
        &mut self,
        follow: bool,
        goes_on: &mut dyn FnMut(&SyncStatus) -> bool,
    ) -> Result<()> {
        let mut left = Duration::ZERO;
        while goes_on(&self.status()) {
            if left > Duration::ZERO {
                let now = left.min(LOOK_EVERY);
                crate::sync::pause(now);
                left -= now;
                continue;
            }
            match self.step() {
                Ok(Step::Busy) => {}
                Ok(Step::Idle) if !follow => break,
                Ok(Step::Idle) => self.wait(LOOK_EVERY)?,
                Ok(Step::Wait(pause)) => left = pause,
                Err(error) => {
                    // The error that ended the sync counts.
                    drop(self.end());
                    return Err(error);
                }
            }
        }
        self.end()
    }

    /// Waits for new commits of the source, for `at_most` at the most.
    ///
    /// # Errors
    /// `Io`.
    pub fn wait(&mut self, at_most: Duration) -> Result<()> {
        match &mut self.phase {
            Phase::Follow(changes) => changes.wait(at_most),
            _ => Ok(()),
        }
    }

    /// Does a bounded part of the work. Failures of the target that may pass are retried in later
    /// steps.
    ///
    /// # Errors
    /// `InvalidInput` if source and target are the same database; `ChangesLost` if the source was
    /// restored, repaired or set back, see [`resync`](Self::resync); `Locked` if another sync uses
    /// the name; errors of the source; the last error of a target that fails for too long; and
    /// errors that problems become, see [`on_problem`](Self::on_problem).
    pub fn step(&mut self) -> Result<Step> {
        let now = self.clock.monotonic();
        if now < self.resume {
            return Ok(Step::Wait(self.resume - now));
        }
        let error = match self.advance() {
            Ok(step) => {
                if self.failures > 0 {
                    // The error is removed from the state file, too.
                    (self.failures, self.error, self.is_dirty) = (0, None, true);
                    (self.is_pending, self.saved_at) = (false, None);
                }
                return Ok(step);
            }
            Err(error) => error,
        };
        // While the target is away for days, a file gets its error once.
        let is_new = self.error.as_ref().is_none_or(|last| last.chain() != error.chain());
        self.error = Some(error.clone());
        if is_new {
            // Ignores a failure, because the error that is returned is the first one.
            drop(self.saved.note(self.reached, &error));
        }
        let may_pass = matches!(
            error.kind(),
            ErrorKind::Io | ErrorKind::Busy | ErrorKind::Timeout | ErrorKind::OutcomeUnknown
        );
        self.failures = self.failures.saturating_add(1);
        let pause = self.options.retries.pause(self.failures, &mut self.rng);
        let Some(mut pause) = pause.filter(|_| may_pass) else { return Err(error) };
        if error.kind() == ErrorKind::OutcomeUnknown {
            // A late request would overwrite what follows its repeat.
            self.is_pending = true;
            pause = pause.max(LATE);
        }
        self.resume = self.clock.monotonic().saturating_add(pause);
        Ok(Step::Wait(pause))
    }

    fn advance(&mut self) -> Result<Step> {
        if !self.window.is_empty() {
            return self.carry();
        }
        let now = self.clock.monotonic();
        match &mut self.phase {
            Phase::Start => self.start(),
            Phase::Takeover(until, _) if now < *until => Ok(Step::Wait(*until - now)),
            Phase::Takeover(_, position) => {
                let position = *position;
                // Fails if a third sync has taken the row in the meantime.
                self.save()?;
                self.begin_at(position)
            }
            Phase::Compare(_) => self.compare(),
            Phase::Follow(_) => self.follow(),
        }
    }

    /// Reads the positions at both ends, and takes the row at the target.
    fn start(&mut self) -> Result<Step> {
        let found = self.mark.read(self.target)?;
        let saved = self.saved.position()?;
        let view = self.source.view()?;
        self.is_mirror = self.options.mirror;
        if self.options.delete_missing || self.is_mirror {
            // Not only when a comparison begins, which may be much later.
            check_tables(&view)?;
        }
        let newest = view.position();
        let position = found.as_ref().and_then(|found| found.position);
        let saved = saved.filter(|saved| saved.has_history_of(newest));
        // Without a position at the target all rows are compared, whatever the source has saved.
        let saved = saved.filter(|_| position.is_some());
        for position in [position, saved].into_iter().flatten().filter(|_| !self.options.resync) {
            check(position, newest, &self.name)?;
        }
        let older = position.map(|at| saved.map_or(at, |saved| at.min(saved)));
        let start = older.filter(|_| !self.options.resync);
        // The changes after the start are sent again, which overwrites newer states of the target.
        // So a later position is no longer true. A comparison keeps the position of the target
        // until it has ended.
        self.reached = start.or(position);
        let Found { is_open, problems, .. } = found.unwrap_or_default();
        self.counts.problems.store(problems, Ordering::Relaxed);
        self.save()?;
        // One database may have several names. Carried to itself, its changes would never end.
        if self.mark.is_in(self.source.view()?.store())? {
            self.end()?;
            return Err(Error::new(ErrorKind::InvalidInput, SAME));
        }
        if is_open && !mutant!("early-takeover") {
            let until = self.clock.monotonic().saturating_add(LEASE + LATE);
            self.phase = Phase::Takeover(until, start);
            return Ok(Step::Busy);
        }
        self.begin_at(start)
    }

    fn begin_at(&mut self, position: Option<Position>) -> Result<Step> {
        let changes = match position {
            Some(position) => self.source.view()?.changes(position),
            None => return self.begin_comparison(None),
        };
        match changes {
            Ok(changes) => {
                self.reached = position;
                self.phase = Phase::Follow(changes);
                Ok(Step::Busy)
            }
            Err(error) if error.kind() == ErrorKind::ChangesLost => {
                if mutant!("lost-is-empty") {
                    let newest = self.source.view()?.position();
                    return self.begin_at(Some(newest));
                }
                self.begin_comparison(position)
            }
            Err(error) => Err(error),
        }
    }

    /// Compares all rows. `lost` is the position after which changes are no longer kept, if that is
    /// the reason.
    fn begin_comparison(&mut self, lost: Option<Position>) -> Result<Step> {
        let view = self.source.view()?;
        if let Some(lost) = lost {
            // A server may have been restored since the start.
            check(lost, view.position(), &self.name)?;
        }
        let Options { delete_missing, allow_drop, .. } = self.options;
        let is_mirror = self.is_mirror;
        let missing =
            Missing { rows: delete_missing || is_mirror, tables: is_mirror && allow_drop };
        let snapshot = Snapshot::new(view, missing)?;
        self.source.settle()?;
        self.is_mirror = false;
        self.phase = Phase::Compare(Box::new(snapshot));
        Ok(Step::Busy)
    }

    /// Compares a page of rows.
    fn compare(&mut self) -> Result<Step> {
        self.keep()?;
        let Phase::Compare(snapshot) = &mut self.phase else { return Ok(Step::Busy) };
        let sender = sender!(self);
        if snapshot.page(&self.source, &sender, &mut self.window.plan)? {
            return Ok(Step::Busy);
        }
        let is_late = mutant!("late-position");
        let position = if is_late { self.source.view()?.position() } else { snapshot.position };
        self.reached = Some(position);
        self.save()?;
        self.begin_at(Some(position))
    }

    /// Reads commits of the feed and carries them.
    fn follow(&mut self) -> Result<Step> {
        let now = self.clock.monotonic();
        let is_due = self.owned.is_none_or(|owned| now >= owned.saturating_add(SAVE_EVERY));
        if self.is_dirty && is_due {
            self.save()?;
        }
        let Phase::Follow(changes) = &mut self.phase else { return Ok(Step::Busy) };
        match self.window.fill(&mut **changes, self.stamp.as_ref()) {
            Err(error) if error.kind() == ErrorKind::ChangesLost && self.window.is_empty() => {
                return self.begin_comparison(self.reached);
            }
            Err(error) if self.window.is_empty() => return Err(error),
            _ => {}
        }
        match self.window.is_empty() {
            true => Ok(Step::Idle),
            false => self.carry(),
        }
    }

    /// Sends what is in the window.
    fn carry(&mut self) -> Result<Step> {
        if mutant!("position-first") && self.window.end.is_some() {
            self.reached = self.window.end;
            self.save()?;
        }
        self.keep()?;
        let sender = sender!(self);
        if !sender.send(self.window.plan.queues())? {
            return Ok(Step::Busy);
        }
        let Window { plan, barriers, next, .. } = &mut self.window;
        *plan = Plan::default();
        if let Some(change) = barriers.front() {
            let (source, allow_drop) = (&self.source, self.options.allow_drop);
            if (Barriers { sender, source, allow_drop, next, plan }).part(change)? {
                barriers.pop_front();
            }
            if !self.window.is_empty() {
                return Ok(Step::Busy);
            }
        }
        let Window { end, commits, held, .. } = std::mem::take(&mut self.window);
        self.window.held = held;
        self.commits += commits;
        if end.is_some() {
            (self.reached, self.is_dirty) = (end, true);
        }
        Ok(Step::Busy)
    }

    /// Renews the ownership of the position row if less than half of the lease is left.
    fn keep(&mut self) -> Result<()> {
        let now = self.clock.monotonic();
        if mutant!("old-lease") && self.owned.is_some() {
            self.owned = Some(now);
        }
        let is_owned = self.owned.is_some_and(|owned| now < owned.saturating_add(LEASE / 2));
        if is_owned { Ok(()) } else { self.save() }
    }

    /// Saves the position, at the target first, and less often at the source.
    fn save(&mut self) -> Result<()> {
        let (now, problems) =
            (self.clock.monotonic(), self.counts.problems.load(Ordering::Relaxed));
        self.mark.write(self.target, self.reached, (true, problems))?;
        self.owned = Some(now);
        let is_due = |at: Duration| now >= at.saturating_add(SAVE_AT_SOURCE_EVERY);
        if self.saved_at.is_none_or(is_due) {
            self.saved.write(self.reached)?;
            self.saved_at = Some(now);
        }
        self.is_dirty = false;
        Ok(())
    }

    /// Saves the position and gives the position row up, so that the next sync starts at once. It
    /// sends the commits again of which a part was sent.
    ///
    /// # Errors
    /// Those of the target; the position that was saved last then counts.
    pub fn end(&mut self) -> Result<()> {
        if self.owned.is_none() {
            return Ok(());
        }
        let problems = self.counts.problems.load(Ordering::Relaxed);
        self.mark.write(self.target, self.reached, (self.is_pending, problems))?;
        (self.owned, self.saved_at, self.is_dirty) = (None, None, false);
        self.phase = Phase::Start;
        self.saved.write(self.reached)?;
        self.error.iter().try_for_each(|error| self.saved.note(self.reached, error))
    }
}

/// Refuses a position of another history, and one after the newest commit.
fn check(position: Position, newest: Position, name: &str) -> Result<()> {
    if position.has_history_of(newest) && position <= newest || mutant!("any-history") {
        return Ok(());
    }
    let what = match position.has_history_of(newest) {
        true => "was set back to an earlier state",
        false => "was restored or repaired, or is another one",
    };
    let text = format!(
        "the source {what}: the position '{name}' of the target is {position}, and the newest \
         commit is {newest}"
    );
    Err(Error::new(ErrorKind::ChangesLost, text))
}
