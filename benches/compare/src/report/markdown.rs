//! The report as Markdown: the very file that the project keeps as `docs/COMPARISON.md`.
//!
//! Invariants
//! * nothing in it needs a hand: what a reader must know of a run is here, or in the documents that it names;
//! * of one form, headings are those of groups; of more, they say which form.
//!
//! Not here: what rows come to (`summary.rs`), what stands before the first group (`head.rs`).

use super::summary::{Cell, Entry, Side, bytes, count, time};
use super::{engines, head};
use crate::engines::Engine;
use crate::results::Results;

const TITLE: &str = "# rowstone beside RocksDB, fjall, LMDB, redb and SQLite: the whole table";

const INTRODUCTION: &str = "\
Written by `benches/compare` at the end of a run, and kept as it is; [BENCHMARKS.md](BENCHMARKS.md) says how it is measured
and why rowstone is behind where it is. A ratio above 1 means that rowstone is ahead of the best of the others in that row,
whichever it is; bold ones are below. Figures are medians of the repetitions, with the lowest and the highest behind them.
Where a peer was measured with more than one encoding, the row shows the better, and a table after all groups each.";

/// All forms, a table for each group of rows; blocks of text have one empty line between them.
pub fn document(tables: &[(&str, Vec<Entry>)], results: &Results) -> String {
    let mut blocks = vec![TITLE.to_owned(), INTRODUCTION.to_owned()];
    for (form, entries) in tables {
        let which = if tables.len() > 1 { format!(", form {form}") } else { String::new() };
        if tables.len() > 1 {
            blocks.push(format!("## Machine and memory{which}"));
        }
        blocks.extend(head::blocks(form, entries, results));
        let mut rest = entries.as_slice();
        while let Some(first) = rest.first() {
            let len = rest.iter().take_while(|entry| entry.row.group == first.row.group).count();
            blocks.push(format!("## {}{which}", first.row.group));
            group(&mut blocks, &rest[..len], entries);
            rest = &rest[len..];
        }
        encodings(&mut blocks, &which, entries);
    }
    setups(&mut blocks, tables);
    blocks.join("\n\n") + "\n"
}

/// A table of these columns.
pub fn table(head: &[String], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |fields: &[String]| format!("| {} |", fields.join(" | "));
    let mut lines = vec![line(head), format!("|{}", " --- |".repeat(head.len()))];
    lines.extend(rows.into_iter().map(|fields| line(&fields)));
    lines.join("\n")
}

/// Some columns in front, one for each of `names`, some behind.
fn columns(before: &[&str], names: impl Iterator<Item = String>, after: &[&str]) -> Vec<String> {
    let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    own(before).into_iter().chain(names).chain(own(after)).collect()
}

fn group(blocks: &mut Vec<String>, entries: &[Entry], all: &[Entry]) {
    let engines = engines(all);
    let names = engines.iter().map(|engine| engine.name().to_owned());
    let head = columns(&["row", "unit"], names, &["ratio to the best peer", "share of the limit"]);
    blocks.push(table(&head, entries.iter().map(|entry| figures(entry, &engines))));
    let remarks = entries.iter().flat_map(|entry| {
        entry.remarks().into_iter().map(|remark| format!("* {}: {remark}", entry.title()))
    });
    let remarks: Vec<String> = remarks.collect();
    if !remarks.is_empty() {
        blocks.push(remarks.join("\n"));
    }
    costs(blocks, entries);
}

/// A row: the better encoding of each engine.
fn figures(entry: &Entry, engines: &[Engine]) -> Vec<String> {
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
    let ratio = entry.ratio.map_or(String::new(), |ratio| match entry.is_behind() {
        true => format!("**{ratio:.2}**"),
        false => format!("{ratio:.2}"),
    });
    let limit = entry
        .limit
        .as_ref()
        .map_or(String::new(), |limit| format!("{:.1} % of {}", limit.share * 100.0, limit.what));
    let front = [entry.title(), entry.row.unit.text().to_owned()];
    front.into_iter().chain(cells).chain([ratio, limit]).collect()
}

/// Latencies, processor time, memory and writes of rowstone and of the best peer.
fn costs(blocks: &mut Vec<String>, entries: &[Entry]) {
    let pairs = entries.iter().flat_map(|entry| {
        [&entry.ours, &entry.best].map(|cell| cell.as_ref().map(|cell| (entry, cell)))
    });
    let pairs = pairs.flatten().filter(|(_, cell)| cell.peak_bytes > 0.0);
    let rows: Vec<Vec<String>> = pairs.map(|(entry, cell)| cost(entry, cell)).collect();
    if !rows.is_empty() {
        let names = ["row", "engine", "p50", "p99", "p99.9", "max", "CPU each", "peak memory"];
        blocks.push(table(&columns(&names, std::iter::empty(), &["written"]), rows));
    }
}

fn cost(entry: &Entry, cell: &Cell) -> Vec<String> {
    let latencies = cell.latency.map_or([(); 4].map(|()| String::new()), |latency| {
        [latency.p50, latency.p99, latency.p999, latency.max].map(time)
    });
    let front = [entry.title(), cell.side.name()];
    let behind = [
        time((cell.cpu_micros_each * 1e3) as u64),
        bytes(cell.peak_bytes),
        format!("{} times", count(cell.written_times)),
    ];
    front.into_iter().chain(latencies).chain(behind).collect()
}

/// Rows that were measured with every encoding, and what each came to.
fn encodings(blocks: &mut Vec<String>, which: &str, entries: &[Entry]) {
    let entries: Vec<&Entry> = entries.iter().filter(|entry| entry.row.all_encodings).collect();
    let mut sides: Vec<Side> =
        entries.iter().flat_map(|entry| &entry.cells).map(|cell| cell.side).collect();
    sides.sort_unstable();
    sides.dedup();
    // One encoding of rowstone alone is in the tables before.
    if sides.len() < 2 {
        return;
    }
    let row = |entry: &&Entry| {
        let figures = sides.iter().map(|side| {
            let cell = entry.cells.iter().find(|cell| cell.side == *side);
            let failed = || entry.failed.iter().any(|(other, _)| other == side);
            match cell {
                Some(cell) => count(cell.value),
                None => if failed() { "failed" } else { "" }.to_owned(),
            }
        });
        [entry.title(), entry.row.unit.text().to_owned()].into_iter().chain(figures).collect()
    };
    let head = columns(&["row", "unit"], sides.iter().map(|side| side.name()), &[]);
    blocks.push(format!("## Both encodings{which}"));
    blocks.push(table(&head, entries.iter().map(row)));
}

/// The settings of the engines that any figure is of, as far as this program knows them.
fn setups(blocks: &mut Vec<String>, tables: &[(&str, Vec<Entry>)]) {
    let measured: Vec<Engine> = tables.iter().flat_map(|(_, entries)| engines(entries)).collect();
    let is_known = |engine: &Engine| engine.is_built() && measured.contains(engine);
    blocks.push("## How each engine is set up".to_owned());
    for engine in Engine::ALL.into_iter().filter(is_known) {
        let about = engine.about();
        blocks.push(format!("### {} {}", about.name, about.version));
        let settings: Vec<String> =
            about.settings.iter().map(|setting| format!("* {setting}")).collect();
        blocks.push(settings.join("\n"));
    }
}
