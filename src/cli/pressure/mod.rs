//! `stress --partition`: tests whether one partition sustains the application's peak load.
//!
//! 1. Load a new table with entities, in the tested partition and others.
//! 2. Run the application's mix of reads and writes on the tested partition, unthrottled, to
//!    measure this machine.
//! 3. Run the mix at the peak rate on a simulated clock, and count the requests that the service's
//!    targets of 2010 and of today (500 and 2,000 entities per second) refuse.
//! 4. Report the verdicts, and recommend a finer key if needed.
//!
//! `mix` sends the requests; `advice` chooses a finer key; `timing` collects the latencies.

mod advice;
mod mix;
mod timing;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use self::advice::{Advice, Sample};
use self::mix::{Kind, Mix, TABLE};
use self::timing::Timing;
use super::failure::{Failure, Outcome};
use super::open::{Create, open_durable, open_to_read};
use super::output::{Output, print, with_thousands};
use crate::clock::{Clock, ManualClock, SystemClock};
use crate::db::Db;
use crate::error::{Error, ErrorKind, Result};
use crate::json::{self, Object};
use crate::model::{Entity, Shapes};
use crate::named::named;
use crate::options::{Background, Durability, Options, Targets};
use crate::query::KeyRange;
use crate::rng::Rng;
use crate::store::TableStore;
use crate::table::LoadMode;
#[cfg(feature = "remote")]
use crate::{
    cli::endpoint::Service,
    store::{load::StoreLoader, pages::Side},
};

/// The options of the partition stress test.
#[derive(Args)]
pub(super) struct Pressure {
    /// Test whether this one partition sustains the application's peak, without killing this
    /// program
    #[arg(long, value_name = "PARTITION_KEY", requires = "rate")]
    partition: Option<String>,
    /// Entities per second on that partition at the application's peak
    #[arg(long, value_name = "N", requires = "partition",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,
    #[command(flatten)]
    mix: Mix,
    /// Take the partition's entities from this database
    #[arg(long, value_name = "DB", requires = "sample_table")]
    sample: Option<PathBuf>,
    /// The table of the sample
    #[arg(long, value_name = "TABLE", requires = "sample")]
    sample_table: Option<String>,
    /// Entities loaded into each of ten partitions if there is no sample
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    entities: u32,
    /// Size of each of these entities in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1_024)]
    entity_bytes: u32,
    /// Seconds for which requests run unthrottled
    #[arg(long, value_name = "N", default_value_t = 10)]
    peak_seconds: u32,
    /// Concurrent requests
    #[arg(long, value_name = "N", default_value_t = 8,
        value_parser = clap::value_parser!(u32).range(1..=256))]
    clients: u32,
}

pub(super) const HELP: &str = "\
With --partition, the partition stress test instead: a test table is loaded, and the mix of
reads, queries, groups, deletes and writes that the application has at its peak runs on that one
partition: once as fast as possible, and once at the given rate against the targets of the service,
which returns ServerBusy beyond 2,000 entities a second (500 by its articles of 2010). The verdict
says whether the partition passes, and if not, which finer PartitionKey would. Of the properties
that divide the load far enough, it is the one that most of the --filter options compare by eq: their
queries then still read one partition. Exit status 1 if the peak is beyond what the service or this
machine takes.

Over a Table service the requests go to its table StressTest, which must not exist and stays there;
they are billed. Refusals such as ServerBusy are retried as usual, and their numbers are printed.

Example:
  rowstone stress /tmp/peak --partition Component --rate 1200 --reads 80
  rowstone stress /tmp/peak --partition UA-EWR --rate 900 \\
      --sample flights --sample-table Flights
  rowstone stress /tmp/peak --partition UA-EWR --rate 900 \\
      --reads 60 --queries 10 --groups 5 \\
      --sample flights --sample-table Flights \\
      --filter \"origin eq 'EWR' and dep_delay gt 60\"";

/// The number of partitions to load besides the tested one, since real tables have several.
const OTHERS: u32 = 9;
/// The maximum number of entities of the requests against a target. This many exhaust the burst of
/// one second that the target allows.
const ENTITIES_MAX: u64 = 100_000;
const TARGET_SECONDS: u64 = 30;
/// The part of a target that must be unused at the peak for a partition to pass.
const MARGIN_PERCENT: u64 = 20;

/// The result of testing the partition against one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trial {
    name: &'static str,
    target: u32,
    requests: u64,
    busy: u64,
    verdict: Verdict,
}

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Verdict {
        Pass "pass",
    /// No request is refused, but little margin is left.
        NoMargin "pass without margin",
        Fail "fail",
    }

    fn as_str;
}

/// Creates the table of the test, which must not exist: it may have data of an earlier run.
fn create_table(store: &dyn TableStore) -> Outcome {
    match store.create_table(TABLE) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(Failure::Other(format!(
            "there is a table {TABLE} already, perhaps of an earlier run ({})\n  \
             try: rowstone drop-table DB {TABLE} --yes",
            error.code()
        ))),
        done => Ok(done?),
    }
}

impl Pressure {
    /// True if this test was requested.
    #[cfg(all(unix, feature = "sim"))]
    pub(super) fn is_asked(&self) -> bool {
        self.partition.is_some()
    }

    /// Runs the test in a directory.
    pub(super) fn run(&self, dir: &Path, durability: Option<Durability>, json: bool) -> Outcome {
        let plan = self.plan()?;
        let durability = durability.unwrap_or(Durability::Sync);
        let db = open_durable(dir, Create::IfMissing, durability)?;
        create_table(&db)?;
        let mut loader = db.table(TABLE)?.loader().mode(LoadMode::Upsert);
        for (line, row) in self.load(&plan).enumerate() {
            loader.push(line as u64, row)?;
        }
        loader.finish()?;
        let timing = self.press(&db, &plan.rows)?;
        let told = self.tell(&plan, ("here", timing, Errors::new()), json);
        db.close()?;
        told
    }

    /// Runs the test in a table of a service. Its refusals are retried, and counted.
    #[cfg(feature = "remote")]
    pub(super) fn run_at(&self, service: &Service, json: bool) -> Outcome {
        if self.partition.is_none() {
            let name = &service.name;
            let text = format!("{name} is a Table service: without --partition it must be a path");
            return Err(Failure::Usage(text));
        }
        let plan = self.plan()?;
        let store: &dyn TableStore = &**service;
        create_table(store)?;
        let side = Side { store, table: TABLE };
        let mut loader = StoreLoader::new(side, LoadMode::Upsert, false, None);
        for (line, row) in self.load(&plan).enumerate() {
            loader.push(line as u64, row)?;
        }
        loader.flush()?;
        if let Some(rejected) = loader.take_rejected().into_iter().next() {
            store.delete_table(TABLE)?;
            return Err(rejected.error.into());
        }
        service.take_errors();
        let timing = self.press(store, &plan.rows)?;
        let errors = service.take_errors();
        self.tell(&plan, (&format!("at {}", service.name), timing, errors), json)
    }

    /// Checks the options, and reads the sample.
    fn plan(&self) -> Outcome<Plan<'_>> {
        let (Some(partition), Some(rate)) = (&self.partition, self.rate) else {
            return Err(Failure::Usage("name a --partition and a --rate".to_owned()));
        };
        self.mix.check()?;
        let sample = self.read_sample(partition)?;
        let rows = match sample.is_empty() {
            true => self.made_up(partition).collect(),
            false => sample,
        };
        // Before anything is created.
        let shapes = Shapes::new(1 << 20);
        rows.iter().try_for_each(|row| row.to_row(&shapes).map(drop))?;
        Ok(Plan { partition, rate, rows })
    }

    /// Tries the targets of the service, and prints the report.
    fn tell(
        &self,
        plan: &Plan<'_>,
        (place, timing, errors): (&str, Timing, Errors),
        json: bool,
    ) -> Outcome {
        let &Plan { partition, rate, ref rows } = plan;
        let trials = [
            self.try_target("2010", Targets::y2010(), rows, rate)?,
            self.try_target("now", Targets::service(), rows, rate)?,
        ];
        let wants_finer = trials.iter().any(|trial| trial.verdict == Verdict::Fail);
        let advice = wants_finer.then(|| Advice::new(partition, rate, rows, &self.mix.filters));
        let mix = &self.mix;
        let report = Report { partition, rate, mix, place, timing, errors, trials, advice };
        print(|output| match json {
            true => output.object(|object| report.put(object)),
            false => report.write(output),
        })?;
        if report.fails() { Err(Failure::Problems) } else { Ok(()) }
    }

    fn read_sample(&self, partition: &str) -> Outcome<Vec<Entity>> {
        let (Some(path), Some(name)) = (&self.sample, &self.sample_table) else {
            return Ok(Vec::new());
        };
        let db = open_to_read(path)?;
        let rows = db.table(name)?.scan(KeyRange::partition(partition)).top(Sample::ROWS_MAX);
        let rows = rows.into_iter().collect::<Result<Vec<_>>>()?;
        db.close()?;
        if rows.is_empty() {
            let text = format!("the table {name} has no entity with PartitionKey '{partition}'");
            return Err(Failure::Usage(text));
        }
        Ok(rows)
    }

    /// Returns the entities to load: the tested partition and others.
    fn load<'p>(&'p self, plan: &'p Plan<'_>) -> impl Iterator<Item = Entity> + 'p {
        let others = (0..OTHERS).flat_map(|i| self.made_up(&format!("{}~{i}", plan.partition)));
        plan.rows.iter().cloned().chain(others)
    }

    fn made_up(&self, partition: &str) -> impl Iterator<Item = Entity> + use<> {
        let (partition, payload) = (partition.to_owned(), "x".repeat(self.entity_bytes as usize));
        let row = move |i| Entity::new(&*partition, format!("{i:08}")).with("Payload", &*payload);
        (0..self.entities.max(1)).map(row)
    }

    /// Runs the mix unthrottled: every client sends its next request when the last one is answered.
    /// A refused request that may be repeated is not counted.
    fn press(&self, store: &dyn TableStore, rows: &[Entity]) -> Outcome<Timing> {
        let clock = SystemClock::new();
        let end = Duration::from_secs(u64::from(self.peak_seconds.max(1)));
        let client = |number: u32| -> Result<Timing> {
            let (mut timing, mut rng) = (Timing::default(), Rng::from_seed(u64::from(number)));
            loop {
                let start = clock.monotonic();
                if start >= end {
                    timing.elapsed = start;
                    return Ok(timing);
                }
                let kind = self.mix.next(&mut rng);
                match self.mix.send(kind, store, rows, &mut rng) {
                    Ok(entities) => {
                        timing.note(kind, entities, clock.monotonic().saturating_sub(start));
                    }
                    Err(error) if is_of_load(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        };
        let timings: Vec<Result<Timing>> = std::thread::scope(|scope| {
            let clients: Vec<_> =
                (0..self.clients).map(|i| scope.spawn(move || client(i))).collect();
            let lost = || Error::new(ErrorKind::Io, "a client ended early");
            clients.into_iter().map(|c| c.join().unwrap_or_else(|_| Err(lost()))).collect()
        });
        let mut all = Timing::default();
        for timing in timings {
            all.add(&timing?);
        }
        Ok(all)
    }

    /// Runs the mix at `rate` against a target, in an in-memory database whose clock advances with
    /// each request by the time in which the application touches as many entities.
    fn try_target(
        &self,
        name: &'static str,
        targets: Targets,
        rows: &[Entity],
        rate: u32,
    ) -> Outcome<Trial> {
        let clock = Arc::new(ManualClock::new(SystemClock::new().now()));
        let options = Options::new().background(Background::Threads).clock(clock.clone());
        let db: Db = options.durability(Durability::Buffered).throttle(targets).open_in_memory()?;
        let table = db.create_table(TABLE)?;
        let target = targets.partition_entities_per_second;
        if self.mix.queries > 0 {
            // Queries are charged for the entities that they return, so they need the entities.
            for row in rows {
                table.upsert(row)?;
                clock.advance(Duration::from_secs(1) / target);
            }
        }
        let entities_max = (u64::from(rate) * TARGET_SECONDS).min(ENTITIES_MAX);
        let (mut rng, mut busy) = (Rng::from_seed(1), 0);
        let (mut requests, mut entities) = (0, 0);
        while entities < entities_max {
            let kind = self.mix.next(&mut rng);
            let touched = match self.mix.send(kind, &db, rows, &mut rng) {
                Ok(touched) => touched,
                Err(error) if error.is_transient() => {
                    busy += 1;
                    self.mix.entities(kind)
                }
                Err(error) => return Err(error.into()),
            };
            requests += 1;
            entities += touched;
            clock.advance(Duration::from_secs(touched) / rate);
        }
        let with_margin = u64::from(rate) * 100 <= u64::from(target) * (100 - MARGIN_PERCENT);
        let verdict = match (busy, with_margin) {
            (0, true) => Verdict::Pass,
            // The target allows a burst of one second. So a short run above the target may see no
            // refusal, although a longer run would.
            (0, false) if rate <= target => Verdict::NoMargin,
            _ => Verdict::Fail,
        };
        drop(table);
        db.close()?;
        Ok(Trial { name, target, requests, busy, verdict })
    }
}

/// Whether an error shows that the store has too much load.
fn is_of_load(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Busy | ErrorKind::Timeout | ErrorKind::OutcomeUnknown)
}

/// The partition to test, and the rows to load into it.
struct Plan<'p> {
    partition: &'p str,
    rate: u32,
    rows: Vec<Entity>,
}

/// The numbers of answers that were errors, by code.
type Errors = BTreeMap<String, u64>;

/// The result of the test.
struct Report<'p> {
    partition: &'p str,
    rate: u32,
    mix: &'p Mix,
    /// Where the mix ran.
    place: &'p str,
    timing: Timing,
    errors: Errors,
    trials: [Trial; 2],
    advice: Option<Advice>,
}

impl Report<'_> {
    /// Whether the partition cannot sustain the peak, because it exceeds the service's current
    /// target or because this machine is too slow.
    fn fails(&self) -> bool {
        let [_, now] = &self.trials;
        now.verdict == Verdict::Fail || self.is_too_slow()
    }

    fn is_too_slow(&self) -> bool {
        self.timing.entities_per_second() < u64::from(self.rate)
    }

    fn write(&self, output: &mut Output) -> std::io::Result<()> {
        let shown = || Kind::ALL.into_iter().filter(|kind| self.mix.shows(*kind));
        let share = |kind: Kind| format!("{} % {}", self.mix.percent(kind), kind.name());
        let mut shares: Vec<_> = shown().map(share).collect();
        let last = shares.pop().unwrap_or_default();
        let shares = shares.join(", ");
        output.fold("", &format!("partition '{}', {shares} and {last}", self.partition))?;
        writeln!(output, "\nas fast as possible, {}:", self.place)?;
        let width = shown().map(|kind| kind.name().len()).max().unwrap_or(0);
        for kind in shown() {
            let (name, rate) = (kind.name(), with_thousands(self.timing.rate(kind)));
            let (p50, p99) = (self.timing.micros(kind, 50.0), self.timing.micros(kind, 99.0));
            writeln!(output, "  {name:width$}  {rate:>10}/s   p50 {p50:>7} µs   p99 {p99:>7} µs")?;
        }
        for (code, count) in &self.errors {
            writeln!(output, "  {} answers were {code}", with_thousands(*count))?;
        }
        writeln!(
            output,
            "\nat the peak of {}/s, by the service:",
            with_thousands(self.rate.into())
        )?;
        for trial in &self.trials {
            let percent = trial.busy * 1000 / trial.requests.max(1);
            let target = with_thousands(trial.target.into());
            let (name, verdict) = (trial.name, trial.verdict.as_str());
            let busy = format!("{}.{} % ServerBusy", percent / 10, percent % 10);
            writeln!(output, "  {name:4}  {target:>5}/s   {busy:>17}   {verdict}")?;
        }
        if self.is_too_slow() {
            let most = with_thousands(self.timing.entities_per_second());
            writeln!(output, "\nfail: {most} entities/s of them {}", self.place)?;
        }
        match &self.advice {
            Some(advice) => {
                writeln!(output)?;
                output.fold("", &advice.to_string())
            }
            None => Ok(()),
        }
    }

    fn put(&self, object: &mut Object<'_>) {
        object.text("partition", self.partition);
        object.raw("rate", self.rate);
        object.raw("reads_percent", self.mix.reads);
        for kind in Kind::ALL.into_iter().filter(|kind| self.mix.shows(*kind)) {
            let name = kind.name().to_ascii_lowercase();
            object.raw(&format!("{name}_per_second"), self.timing.rate(kind));
            object.raw(&format!("{name}_p50_micros"), self.timing.micros(kind, 50.0));
            object.raw(&format!("{name}_p99_micros"), self.timing.micros(kind, 99.0));
        }
        if !self.errors.is_empty() {
            let errors = json::object(|object| {
                self.errors.iter().for_each(|(code, count)| object.raw(code, count));
            });
            object.raw("errors", errors);
        }
        for trial in &self.trials {
            object.raw(&format!("busy_at_{}", trial.target), trial.busy);
            object.text(&format!("verdict_at_{}", trial.target), trial.verdict.as_str());
        }
        object.raw("requests", self.trials[0].requests);
        if let Some(advice) = &self.advice {
            object.text("advice", &advice.to_string());
        }
        object.raw("ok", !self.fails());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressure(mix: Mix) -> Pressure {
        Pressure {
            partition: None,
            rate: None,
            mix,
            sample: None,
            sample_table: None,
            entities: 10,
            entity_bytes: 10,
            peak_seconds: 1,
            clients: 1,
        }
    }

    #[track_caller]
    fn check(rate: u32, expected: [Verdict; 2]) -> [u64; 2] {
        check_mix(mix::tests::plain(50), 1, rate, expected)
    }

    #[track_caller]
    fn check_mix(mix: Mix, rows: u32, rate: u32, expected: [Verdict; 2]) -> [u64; 2] {
        let rows: Vec<_> = (0..rows).map(|i| Entity::new("p", format!("{i:04}"))).collect();
        let pressure = pressure(mix);
        let try_target = |targets| pressure.try_target("", targets, &rows, rate).unwrap();
        let trials = [try_target(Targets::y2010()), try_target(Targets::service())];
        assert_eq!(trials.map(|trial| trial.verdict), expected, "{rate} {trials:?}");
        trials.map(|trial| trial.busy * 100 / trial.requests)
    }

    #[test]
    fn the_verdict_follows_the_targets_of_the_service() {
        use Verdict::{Fail, NoMargin, Pass};
        assert_eq!(check(400, [Pass, Pass]), [0, 0]);
        assert_eq!(check(500, [NoMargin, Pass]), [0, 0]);
        // A third of the requests exceeds the target of 500. Slightly fewer are refused, because
        // the target allows a burst of one second.
        assert_eq!(check(750, [Fail, Pass]), [31, 0]);
        check(1_900, [Fail, NoMargin]);
        let [_, busy] = check(4_000, [Fail, Fail]);
        assert!((45..50).contains(&busy), "{busy}");
    }

    #[test]
    fn queries_and_groups_count_by_their_entities() {
        use Verdict::{Fail, Pass};
        let mix = || Mix { queries: 20, groups: 20, deletes: 10, ..mix::tests::plain(30) };
        assert_eq!(check_mix(mix(), 400, 400, [Pass, Pass]), [0, 0]);
        let [busy, _] = check_mix(mix(), 400, 1_500, [Fail, Pass]);
        assert!(busy > 20, "{busy}");
        // Without writes, too, a query is charged for ten entities.
        let queries = || Mix { queries: 100, ..mix::tests::plain(0) };
        assert_eq!(check_mix(queries(), 400, 1_500, [Fail, Pass])[1], 0);
    }
}
