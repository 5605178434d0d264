//! Reports a run: prints a table, and writes an HTML page, a Markdown document and the figures as
//! JSON lines. All of them are derived from `results.jsonl`.
//!
//! Not here: the format of `results.jsonl` (`results.rs`).

mod chart;
mod growth;
mod head;
mod html;
mod limit;
mod markdown;
mod summary;
mod text;

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde_json::json;

use crate::engines::Engine;
use crate::results::Results;
use summary::{Entry, entries};

/// Prints the tables of each form (sizes and times of a run, such as `quick`). Writes
/// `report.html`, `comparison.md` and `comparison.jsonl` into `dir`.
pub fn write(results: &Results, dir: &Path) -> io::Result<()> {
    let mut forms: Vec<&str> = results.limits.keys().map(String::as_str).collect();
    forms.extend(results.figures.keys().map(|key| &*key.form));
    forms.sort_unstable();
    forms.dedup();
    let tables: Vec<(&str, Vec<Entry>)> =
        forms.into_iter().map(|form| (form, entries(results, form))).collect();
    let mut output = io::stdout().lock();
    for (form, entries) in &tables {
        write!(output, "{}", text::table(form, entries, results.limits.get(*form)))?;
    }
    fs::write(dir.join("report.html"), html::page(&tables, results))?;
    fs::write(dir.join("comparison.md"), markdown::document(&tables, results))?;
    fs::write(dir.join("comparison.jsonl"), data(&tables, results))?;
    writeln!(
        output,
        "\nwritten: report.html, comparison.md and comparison.jsonl in {}",
        dir.display()
    )
}

/// Returns JSON lines: the limits of each form, then a line for each row.
fn data(tables: &[(&str, Vec<Entry>)], results: &Results) -> String {
    let limits = results
        .limits
        .iter()
        .map(|(form, limits)| json!({ "kind": "limits", "form": form, "limits": limits }));
    let rows = tables.iter().flat_map(|(form, entries)| {
        entries.iter().map(move |entry| {
            let cells = entry.cells.iter().map(|cell| {
                json!({
                    "engine": cell.side.engine,
                    "encoding": cell.side.encoding,
                    "value": cell.value,
                    "low": cell.low,
                    "high": cell.high,
                    "repetitions": cell.repetitions,
                    "latency": cell.latency,
                    "cpu_micros_each": cell.cpu_micros_each,
                    "peak_bytes": cell.peak_bytes,
                    "anonymous_bytes": cell.anonymous_bytes,
                    "written_times": cell.written_times,
                    "disk_bytes": cell.disk_bytes,
                    "note": cell.note,
                })
            });
            json!({
                "kind": "row",
                "form": form,
                "row": entry.row.name,
                "group": entry.row.group,
                "title": entry.title(),
                "unit": entry.row.unit.text(),
                "entities": entry.entities,
                "best": entry.best.as_ref().map(|cell| cell.side.name()),
                "ratio": entry.ratio,
                "remarks": entry.remarks(),
                "limit": entry.limit.as_ref().map(|limit| json!({
                    "what": limit.what, "value": limit.value, "share": limit.share,
                })),
                "cells": cells.collect::<Vec<_>>(),
            })
        })
    });
    limits.chain(rows).map(|line| format!("{line}\n")).collect()
}

/// Returns the engines that have at least one figure, in the order of [`Engine::ALL`].
fn engines(entries: &[Entry]) -> Vec<Engine> {
    let is_there = |engine: &Engine| entries.iter().any(|entry| entry.of_engine(*engine).is_some());
    Engine::ALL.into_iter().filter(is_there).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Result lines: two repetitions of rowstone, two encodings of another engine, a row where less
    /// is better, a failure, growth rows, and limits in an older format.
    const LINES: &str = include_str!("canned.jsonl");

    fn quick() -> (Results, Vec<Entry>) {
        let results = Results::parse(LINES);
        let entries = entries(&results, "quick");
        (results, entries)
    }

    #[test]
    fn the_best_peer_decides_the_ratio() {
        let (_, entries) = quick();
        let of = |name: &str| entries.iter().find(|entry| entry.row.name == name).expect("a row");
        let hit = of("get-hit");
        assert_eq!(hit.ours.as_ref().map(|ours| (ours.value, ours.low)), Some((150.0, 100.0)));
        assert_eq!(hit.best.as_ref().map(|best| best.side.name()), Some("lmdb binary".to_owned()));
        assert_eq!((hit.ratio, hit.is_behind()), (Some(0.5), true));
        let disk = of("disk");
        assert_eq!((disk.ratio, disk.is_behind()), (Some(2.0), false), "less is better");
        let tickets = of("tickets-16");
        assert_eq!(tickets.ratio, Some(8.0), "compared with the peer's threads");
        assert!(!tickets.has_counterpart() && hit.has_counterpart());
        assert_eq!(of("scan").failed.len(), 1);
        assert!(of("scan").ratio.is_none());
        let reached: Vec<_> =
            tickets.targets.iter().map(|(target, reached)| (target.times, *reached)).collect();
        assert_eq!(reached, [(1.0, 8.0)], "of the peers only RocksDB was measured");
    }

    #[test]
    fn limits_belong_to_their_rows() {
        let (_, entries) = quick();
        let tickets = entries.iter().find(|entry| entry.row.name == "tickets-16").expect("a row");
        let limit = tickets.limit.as_ref().expect("limits were measured");
        assert_eq!((limit.value, limit.share), (1_600.0, 0.5));
    }

    #[test]
    fn growth_excludes_the_effect_of_caches() {
        let (_, entries) = quick();
        let of = |name: &str, size: u64| {
            let mut entries = entries.iter();
            entries.find(|entry| entry.row.name == name && entry.entities == size).expect("a row")
        };
        assert_eq!(of("growth-get-hit", 500).growth, None);
        let remark = |name, size| of(name, size).remarks().remove(0);
        let between = remark("growth-get-hit", 5_000);
        assert!(between.contains("3.00 times") && between.contains("so 1.50 beyond"), "{between}");
        assert!(!between.contains("target"), "only the largest size has a target");
        let largest = remark("growth-get-hit", 50_000);
        assert!(largest.contains("so 2.40 beyond") && largest.contains("MISSED"), "{largest}");
        let load = remark("growth-load", 50_000);
        assert!(load.contains("1.25 times") && load.contains("met") && !load.contains("caches"));
        let open = remark("growth-get-miss", 500_000);
        assert!(open.contains("NOT checked"), "{open}");
    }

    #[test]
    fn the_limit_of_gets_is_of_accesses_over_as_many_bytes() {
        let (_, entries) = quick();
        let limit = |name: &str, size: u64| {
            let mut entries = entries.iter();
            let entry = entries.find(|entry| entry.row.name == name && entry.entities == size);
            entry.expect("a row").limit.as_ref().map(|limit| limit.value)
        };
        assert_eq!(limit("growth-get-hit", 5_000), Some(10_000_000.0));
        assert_eq!(
            limit("growth-get-miss", 500_000),
            None,
            "older lines have no accesses over 4 GiB"
        );
    }

    #[test]
    fn lines_of_an_older_run_are_read() {
        let limits = &Results::parse(LINES).limits["full"];
        assert_eq!((limits.zstd_level, limits.sized_accesses.len()), (3, 0));
    }

    #[test]
    fn reports_mark_rows_behind_and_failures() {
        let (results, entries) = quick();
        let text = text::table("quick", &entries, results.limits.get("quick"));
        let line = |word: &str| text.lines().find(|line| line.contains(word)).expect("a line");
        assert!(line("get, hit, owned ").contains("BEHIND"), "{text}");
        assert!(!line("disk at rest").contains("BEHIND"));
        assert!(line("rows compared").contains("1 rows without a counterpart"), "{text}");
        assert!(text.contains("FAILED") && text.contains("killed by a test"));
        let tables = [("quick", entries)];
        let page = html::page(&tables, &results);
        assert!(
            page.contains("<svg") && page.contains("BEHIND") && page.contains("killed by a test")
        );
        assert!(!page.contains("<script") && !page.contains("http://") && !page.contains("src="));
        let document = markdown::document(&tables, &results);
        assert!(
            document.contains("| get, hit, owned |") && document.contains("**0.50**"),
            "{document}"
        );
    }

    #[test]
    fn the_document_is_complete() {
        let (results, entries) = quick();
        let document = markdown::document(&[("quick", entries)], &results);
        let has = |text: &str| assert!(document.contains(text), "{text} is not in {document}");
        has("# rowstone compared with RocksDB, fjall, LMDB, redb and SQLite\n\n");
        has("commit 0123abc, rustc 1.2.3. Peers: LMDB 4.5.6.");
        has("\n\n## Point reads, all in memory\n\n| row |");
        has("| reads, updates, mixes, drop, opening | 500 | 67.1 MB | 16.8 MB | none |");
        has("\n\n## Both encodings\n\n| row | unit | rowstone | rocksdb binary | lmdb json |");
        has("| get, hit, owned | ops/s | 150 |  | 50.0 | 300 | 299 |  |\n");
        has("\n\n## How each engine is set up\n\n### rowstone");
        assert!(document.ends_with('\n') && !document.contains("\n\n\n"), "{document}");
        assert!(!document.contains(", form quick") && !document.contains("\n### Point"));
    }

    #[test]
    fn the_data_has_a_line_for_each_row() {
        let (results, entries) = quick();
        let titles: Vec<String> = entries.iter().map(Entry::title).collect();
        let text = data(&[("quick", entries)], &results);
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect();
        let limits = lines.iter().take_while(|line| line["kind"] == "limits").count();
        assert_eq!(limits, results.limits.len());
        assert!(lines[limits..].iter().map(|line| &line["title"]).eq(&titles));
    }

    #[test]
    fn headings_of_more_forms_say_which() {
        let (results, quick) = quick();
        let full = entries(&results, "full");
        let document = markdown::document(&[("full", full), ("quick", quick)], &results);
        assert!(document.contains("## Machine and memory, form full\n"), "{document}");
        assert!(document.contains("## Point reads, all in memory, form quick\n"), "{document}");
    }
}
