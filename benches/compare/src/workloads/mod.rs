//! Defines the workloads. Each measures one or more rows of the report, in a child process.
//!
//! Owns: [`Spec`], the parameters of a child; [`Bench`], which measures rows and emits figures.
//! Invariants
//! * rows that are not selected are skipped; the oracle (the expected contents) records all
//!   changes;
//! * every answer is checked: a wrong answer ends the child, and the row has no figure.
//!
//! Not here: starting children (`run.rs`).

mod fill;
mod fresh;
mod life;
mod mixes;
mod reads;
mod sessions;
mod updates;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::engines::{self, Engine};
use crate::measure::{Budget, Timing};
use crate::process::{self, Memory};
use crate::reading::{Data, Reading};
use crate::results::{Figures, Key, Line};
use crate::rows::{self, Session, Unit};
use crate::store::{Encoding, Setup, Store};

pub use life::die;
pub use sessions::run;

/// The task of a child process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    pub form: String,
    pub session: Session,
    pub engine: Engine,
    pub encoding: Encoding,
    pub repetition: u32,
    pub entities: u64,
    /// The selected rows.
    pub rows: Vec<String>,
    /// The directory for the databases of this child, used by no other child.
    pub dir: PathBuf,
    pub seed: u64,
    /// The time for which each row is measured.
    pub time: Duration,
    /// The time for which a load is measured, if it has a row of its own in the report.
    pub load_time: Duration,
    /// Time limit for loading the entities that other measurements use. If loading takes longer,
    /// those measurements are skipped.
    pub base_time: Duration,
    pub cache_bytes: u64,
    pub write_buffer_bytes: u64,
    /// The CSV of flights, for the session that uses them.
    pub csv: Option<PathBuf>,
    /// The control group that limits the child's memory; the child joins it before opening
    /// anything.
    pub cgroup: Option<PathBuf>,
}

/// Receives each result line as soon as it is measured.
pub type Emit<'a> = dyn FnMut(Line) + Send + Sync + 'a;

/// Measures the rows of one child.
pub struct Bench<'a> {
    spec: &'a Spec,
    data: Data,
    raw_bytes_each: f64,
    /// Memory of the harness itself, which is not charged to an engine.
    own_bytes: u64,
    emit: &'a mut Emit<'a>,
}

impl Spec {
    pub fn key(&self, row: &str) -> Key {
        Key {
            form: self.form.clone(),
            row: row.to_owned(),
            entities: self.entities,
            engine: self.engine,
            encoding: self.encoding,
            repetition: self.repetition,
        }
    }

    /// Opens the database `name` in the child's directory.
    fn open(&self, name: &str) -> Box<dyn Store> {
        let dir = self.dir.join(name);
        std::fs::create_dir_all(&dir).expect("room on the disk");
        let setup = Setup {
            dir: &dir,
            encoding: self.encoding,
            cache_bytes: self.cache_bytes,
            write_buffer_bytes: self.write_buffer_bytes,
            compress: self.session == Session::Compressed,
        };
        engines::open(self.engine, &setup)
    }
}

impl<'a> Bench<'a> {
    fn new(spec: &'a Spec, data: Data, emit: &'a mut Emit<'a>) -> Self {
        let sample = spec.entities.min(1_000);
        let step = spec.entities / sample.max(1);
        let raw: u64 = (0..sample).map(|n| data.reading(n * step).raw_bytes()).sum();
        Self { spec, data, raw_bytes_each: raw as f64 / sample as f64, own_bytes: 0, emit }
    }

    fn wants(&self, row: &str) -> bool {
        self.spec.rows.iter().any(|wanted| wanted == row)
    }

    /// Records how much memory the harness uses now. Figures of later rows exclude it.
    fn begin(&mut self) {
        self.own_bytes = Memory::now().anonymous_bytes;
    }

    fn budget(&self) -> Budget {
        Budget { ops: u64::MAX, time: self.spec.time }
    }

    /// Measures `row` on `store`. If `writes` is set, also measures the bytes written, including
    /// those of the background work that follows.
    fn row(
        &mut self,
        row: &str,
        store: &dyn Store,
        writes: bool,
        measured: impl FnOnce(&Self) -> Timing,
    ) {
        if self.wants(row) {
            let figures = self.measured(row, store, writes, measured);
            self.emit(row, figures);
        }
    }

    /// Like [`row`](Self::row), but also measures rows that are not selected, and returns the
    /// figures.
    fn measured(
        &self,
        row: &str,
        store: &dyn Store,
        writes: bool,
        measured: impl FnOnce(&Self) -> Timing,
    ) -> Figures {
        Memory::reset_peak();
        let before = process::written_bytes();
        let timing = measured(self);
        if writes {
            store.sync();
            store.settle();
        }
        let mut figures = self.figures(row, &timing);
        figures.written_bytes = process::written_bytes() - before;
        figures
    }

    /// Returns the figures of a row that measures a rate, with the current memory use.
    fn figures(&self, row: &str, timing: &Timing) -> Figures {
        let unit = rows::find(row).expect("a known row").unit;
        let count = if unit == Unit::OpsPerSecond { timing.ops } else { timing.entities };
        let memory = Memory::now();
        Figures {
            value: count as f64 / timing.seconds,
            ops: timing.ops,
            entities: timing.entities,
            seconds: timing.seconds,
            latency: (timing.latency.samples > 0).then_some(timing.latency),
            cpu_seconds: timing.cpu_seconds,
            memory: Memory {
                peak_bytes: memory.peak_bytes.saturating_sub(self.own_bytes),
                anonymous_bytes: memory.anonymous_bytes.saturating_sub(self.own_bytes),
            },
            raw_bytes_each: self.raw_bytes_each,
            ..Figures::default()
        }
    }

    fn emit(&mut self, row: &str, mut figures: Figures) {
        if self.spec.session == Session::Cold && self.spec.cgroup.is_none() {
            figures.note = Some("the memory limit was NOT enforced".to_owned());
        }
        (self.emit)(Line::Figure { key: self.spec.key(row), figures });
    }

    fn unsupported(&mut self, row: &str) {
        (self.emit)(Line::Unsupported { key: self.spec.key(row) });
    }
}

/// Readings for a bulk load, generated in chunks outside the measured time.
struct Feed<F> {
    make: F,
    next: u64,
    count: u64,
    ready: std::vec::IntoIter<Reading>,
    /// Time spent on generating readings.
    making: Duration,
    deadline: Instant,
}

impl<F: FnMut(u64) -> Reading> Feed<F> {
    /// Creates a feed; `make` returns the reading at a position below `count`.
    fn new(count: u64, time: Duration, make: F) -> Self {
        let ready = Vec::new().into_iter();
        let deadline = Instant::now() + time;
        Self { make, next: 0, count, ready, making: Duration::ZERO, deadline }
    }

    /// Returns the number of readings handed out so far.
    fn given(&self) -> u64 {
        self.next - self.ready.len() as u64
    }
}

impl<F: FnMut(u64) -> Reading> Iterator for Feed<F> {
    type Item = Reading;

    fn next(&mut self) -> Option<Reading> {
        if let Some(reading) = self.ready.next() {
            return Some(reading);
        }
        let start = Instant::now();
        if start > self.deadline {
            return None;
        }
        let end = (self.next + 4_096).min(self.count);
        let ready: Vec<_> = (self.next..end).map(&mut self.make).collect();
        self.next = end;
        self.ready = ready.into_iter();
        let spent = start.elapsed();
        self.making += spent;
        // Moves the deadline, so that the time for generating readings is not taken from the
        // engine.
        self.deadline += spent;
        self.ready.next()
    }
}

/// Loads `count` entities in a pseudo-random order, and returns the engine's time.
///
/// # Panics
/// Panics if loading takes longer than the spec allows. Later rows of the report would otherwise
/// measure an incomplete database.
fn load_all(spec: &Spec, data: &Data, store: &dyn Store, count: u64) -> Timing {
    let order = crate::choose::Permutation::new(spec.seed, count);
    let cpu = process::cpu_seconds();
    let start = Instant::now();
    let mut feed = Feed::new(count, spec.base_time, |place| data.reading(order.at(place)));
    store.load(&mut feed, crate::store::Durability::Sync);
    let seconds = (start.elapsed() - feed.making).as_secs_f64();
    let given = feed.given();
    let cpu_seconds = process::cpu_seconds() - cpu - feed.making.as_secs_f64();
    assert!(given == count, "only {given} of {count} entities were loaded in {:?}", spec.base_time);
    Timing { ops: count, entities: count, seconds, cpu_seconds, latency: Default::default() }
}
