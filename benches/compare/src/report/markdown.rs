//! The table as Markdown, for `docs/BENCHMARKS.md`.

use std::fmt::Write;

use super::engines;
use super::summary::{Entry, bytes, count, time};
use super::text::of_machine;
use crate::results::Results;

const WRITING: &str = "writing to memory";

/// All forms, a table for each group of rows.
pub fn document(tables: &[(&str, Vec<Entry>)], results: &Results) -> String {
    let mut text = String::new();
    for (form, entries) in tables {
        writeln!(text, "## Form: {form}\n").expect(WRITING);
        if let Some(limits) = results.limits.get(*form) {
            writeln!(text, "{}", of_machine(limits)).expect(WRITING);
        }
        let mut rest = entries.as_slice();
        while let Some(first) = rest.first() {
            let len = rest.iter().take_while(|entry| entry.row.group == first.row.group).count();
            group(&mut text, &rest[..len], entries);
            rest = &rest[len..];
        }
    }
    text
}

fn group(text: &mut String, entries: &[Entry], all: &[Entry]) {
    let engines = engines(all);
    writeln!(text, "### {}\n", entries[0].row.group).expect(WRITING);
    let names: Vec<_> = engines.iter().map(|engine| engine.name()).collect();
    writeln!(
        text,
        "| row | unit | {} | ratio to the best peer | share of the limit |",
        names.join(" | ")
    )
    .expect(WRITING);
    writeln!(text, "|{}", " --- |".repeat(engines.len() + 4)).expect(WRITING);
    for entry in entries {
        let cells = engines.iter().map(|engine| {
            let Some(cell) = entry.of_engine(*engine) else {
                let has_failed = entry.failed.iter().any(|(side, _)| side.engine == *engine);
                return if has_failed { "failed" } else { "" }.to_owned();
            };
            let spread = if cell.repetitions > 1 {
                format!(" ({}–{})", count(cell.low), count(cell.high))
            } else {
                String::new()
            };
            format!("{}{spread}", count(cell.value))
        });
        let cells: Vec<_> = cells.collect();
        let ratio = entry.ratio.map_or(String::new(), |ratio| match entry.is_behind() {
            true => format!("**{ratio:.2}**"),
            false => format!("{ratio:.2}"),
        });
        let limit = entry.limit.as_ref().map_or(String::new(), |limit| {
            format!("{:.1} % of {}", limit.share * 100.0, limit.what)
        });
        let (title, unit) = (entry.title(), entry.row.unit.text());
        writeln!(text, "| {title} | {unit} | {} | {ratio} | {limit} |", cells.join(" | "))
            .expect(WRITING);
    }
    writeln!(text).expect(WRITING);
    for entry in entries {
        for remark in entry.remarks() {
            writeln!(text, "* {}: {remark}", entry.title()).expect(WRITING);
        }
    }
    costs(text, entries);
}

/// Latencies, processor time, memory and writes of rowstone and of the best peer.
fn costs(text: &mut String, entries: &[Entry]) {
    let pairs = entries.iter().flat_map(|entry| {
        [&entry.ours, &entry.best].map(|cell| cell.as_ref().map(|cell| (entry, cell)))
    });
    let mut pairs = pairs.flatten().filter(|(_, cell)| cell.peak_bytes > 0.0).peekable();
    if pairs.peek().is_none() {
        writeln!(text).expect(WRITING);
        return;
    }
    let head = "row | engine | p50 | p99 | p99.9 | max | CPU each | peak memory | written";
    writeln!(text, "\n| {head} |\n|{}", " --- |".repeat(9)).expect(WRITING);
    for (entry, cell) in pairs {
        let latency = cell.latency.map_or([(); 4].map(|()| String::new()), |latency| {
            [latency.p50, latency.p99, latency.p999, latency.max].map(time)
        });
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} times |",
            entry.title(),
            cell.side.name(),
            latency.join(" | "),
            time((cell.cpu_micros_each * 1e3) as u64),
            bytes(cell.peak_bytes),
            count(cell.written_times),
        )
        .expect(WRITING);
    }
    writeln!(text).expect(WRITING);
}
