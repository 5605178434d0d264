//! Prints the results of benchmarks: lines like those of db_bench, or one JSON object per line.

use std::io::Write;

use super::clients::Tally;
use super::entities::Shape;
use super::settings::Settings;
use super::workload::Kind;
use crate::cli::histogram::Histogram;
use crate::cli::output::{Format, Output, counted, with_thousands};
use crate::db::Db;
use crate::json::{self, Object};

/// The percentiles to print, with their names.
pub(super) const PERCENTILES: [(f64, &str); 5] =
    [(50.0, "p50"), (75.0, "p75"), (99.0, "p99"), (99.9, "p99.9"), (99.99, "p99.99")];
/// Counters of the database that are printed at the end.
const COUNTERS: [&str; 16] = [
    "files",
    "file_bytes",
    "raw_bytes",
    "ranges",
    "sources_max",
    "scan_sources_max",
    "commits",
    "log_bytes",
    "log_syncs",
    "flushes",
    "flush_bytes",
    "compaction_bytes",
    "write_amplification_percent",
    "space_amplification_percent",
    "stalls",
    "stall_micros",
];
/// Length of the longest bar of a histogram, in characters.
const BAR_CHARS: usize = 40;
/// Length of a line of a histogram before its bar.
const LISTED_CHARS: usize = 62;

/// Writes the report to `output`, in the format that `settings` choose.
pub(super) struct Report<'r> {
    pub(super) settings: &'r Settings,
    pub(super) output: Output,
}

/// Converts nanoseconds to microseconds.
pub(super) fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

impl Report<'_> {
    pub(super) fn begin(&mut self, shape: &Shape, entity_bytes: u64) -> std::io::Result<()> {
        let Settings { threads, seed, .. } = self.settings;
        let durability = format!("{:?}", self.settings.durability).to_lowercase();
        let output = &mut self.output;
        if self.settings.format.get() != Format::Table {
            return output.object(|object| {
                object.raw("num", shape.num);
                object.raw("entity_bytes", entity_bytes);
                object.raw("value_size", shape.value_size);
                object.raw("partition_rows", shape.partition_rows);
                object.raw("threads", threads);
                object.raw("seed", seed);
                object.text("durability", &durability);
                object.text("version", env!("CARGO_PKG_VERSION"));
            });
        }
        let num = with_thousands(shape.num);
        let rows = with_thousands(shape.partition_rows);
        writeln!(output, "rowstone:   version {}", env!("CARGO_PKG_VERSION"))?;
        let bytes = counted(entity_bytes, "byte", "bytes");
        let text = format!("{num} of {bytes} in keys and values, {rows} a partition");
        output.fold("entities:   ", &text)?;
        writeln!(output, "durability: {durability} (fillsync: sync)")?;
        writeln!(output, "clients:    {threads}; seed {seed}; every answer is checked\n")?;
        output.flush()
    }

    /// Reports one benchmark, with the totals of the concurrent writer if there was one.
    pub(super) fn benchmark(
        &mut self,
        kind: Kind,
        tally: &Tally,
        beside: Option<&Tally>,
    ) -> std::io::Result<()> {
        if self.settings.format.get() != Format::Table {
            let listed = self.settings.histogram;
            self.output.object(|object| {
                object.text("benchmark", &kind.name());
                put_tally(object, tally, listed);
                if let Some(beside) = beside {
                    let writer = json::object(|object| put_tally(object, beside, listed));
                    object.raw("writer", writer);
                }
            })?;
            return self.output.flush();
        }
        let (name, output) = (kind.name(), &mut self.output);
        let found = match kind {
            Kind::ReadRandom | Kind::ReadWhileWriting | Kind::ReadMissing => {
                format!("; {} found", with_thousands(tally.found))
            }
            Kind::SeekRandom | Kind::FilterScan => {
                format!("; {} given", counted(tally.found, "entity", "entities"))
            }
            _ => String::new(),
        };
        write_rate(output, &name, tally, &found)?;
        write_latencies(output, &tally.latencies, self.settings.histogram)?;
        if let Some(beside) = beside {
            write_rate(output, "  the writer", beside, "")?;
            write_latencies(output, &beside.latencies, self.settings.histogram)?;
        }
        output.flush()
    }

    /// Reports the counters of the database. Opening or emptying the database resets them.
    pub(super) fn end(mut self, db: &Db) -> std::io::Result<Output> {
        let stats = db.stats();
        let counters = COUNTERS.iter().filter_map(|name| Some((*name, stats.get(name)?)));
        if self.settings.format.get() != Format::Table {
            let put = json::object(|object| {
                counters.for_each(|(name, value)| object.raw(name, value));
            });
            self.output.object(|object| object.raw("stats", put))?;
            return Ok(self.output);
        }
        writeln!(self.output, "\nthe database, since it was last emptied or opened:")?;
        for (name, value) in counters {
            writeln!(self.output, "  {name:27}  {:>15}", with_thousands(value))?;
        }
        Ok(self.output)
    }
}

fn write_rate(output: &mut Output, name: &str, tally: &Tally, found: &str) -> std::io::Result<()> {
    let (micros, rate) = (tally.micros_per_operation(), with_thousands(tally.per_second() as u64));
    let megabytes = tally.megabytes_per_second();
    let operations = counted(tally.operations, "operation", "operations");
    let seconds = tally.elapsed.as_secs_f64();
    let text = format!(
        "micros/op {rate:>12} ops/sec {megabytes:>8.1} MB/s; \
         {operations} in {seconds:.3} s{found}"
    );
    output.fold(&format!("{name:<16} : {micros:>10.3} "), &text)
}

fn write_latencies(output: &mut Output, times: &Histogram, listed: bool) -> std::io::Result<()> {
    if times.count() < 2 {
        return Ok(());
    }
    let percentiles = PERCENTILES.map(|(percent, name)| (name, times.percentile(percent)));
    let shown = percentiles.into_iter().chain([("max", times.max())]);
    let shown = shown.map(|(name, nanos)| format!("{name} {:.2}", micros(nanos)));
    output.fold(&format!("{:<16} : ", "  micros"), &shown.collect::<Vec<_>>().join("  "))?;
    if !listed {
        return Ok(());
    }
    let listing = times.listing();
    let most = listing.iter().map(|row| row.count).max().unwrap_or(1) as f64;
    let room = output.screen().at_most(LISTED_CHARS + BAR_CHARS).saturating_sub(LISTED_CHARS);
    let bar_chars = room as f64;
    let mut below = 0;
    for row in listing {
        below += row.count;
        let percent = |count: u64| 100.0 * count as f64 / times.count() as f64;
        let bar = "#".repeat((row.count as f64 * bar_chars / most).round() as usize);
        let text = format!(
            "  [{:>12.3}, {:>12.3}) {:>10} {:>8.3}% {:>8.3}% {bar}",
            micros(row.from),
            micros(row.to),
            row.count,
            percent(row.count),
            percent(below)
        );
        writeln!(output, "{}", text.trim_end())?;
    }
    Ok(())
}

fn put_tally(object: &mut Object<'_>, tally: &Tally, listed: bool) {
    object.raw("operations", tally.operations);
    object.raw("found", tally.found);
    object.raw("seconds", format_args!("{:.6}", tally.elapsed.as_secs_f64()));
    object.raw("micros_per_op", format_args!("{:.4}", tally.micros_per_operation()));
    object.raw("ops_per_second", format_args!("{:.0}", tally.per_second()));
    object.raw("mb_per_second", format_args!("{:.2}", tally.megabytes_per_second()));
    if tally.latencies.count() > 0 {
        object.raw("latency_micros", latencies(&tally.latencies));
    }
    if listed {
        let rows = tally.latencies.listing();
        let rows = rows.iter().map(|row| format!("[{},{},{}]", row.from, row.to, row.count));
        object.raw("histogram_nanos", json::array(rows));
    }
}

/// Returns latencies as JSON: `{"count":2,"mean":1.5,"p50":1.0,…,"max":2.0}`, in microseconds.
pub(super) fn latencies(times: &Histogram) -> String {
    let shown = PERCENTILES.iter().map(|(percent, name)| (*name, times.percentile(*percent)));
    let shown = [("mean", times.mean())].into_iter().chain(shown).chain([("max", times.max())]);
    let members: Vec<_> =
        shown.map(|(name, nanos)| format!("\"{name}\":{:.3}", micros(nanos))).collect();
    format!("{{\"count\":{},{}}}", times.count(), members.join(","))
}
