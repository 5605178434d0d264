//! Builds the HTML page: tables and charts in one file without external resources, for light and
//! dark display modes.

use std::fmt::Write;

use super::chart;
use super::summary::{Cell, Entry, bytes, count, latencies, time};
use super::text::of_machine;
use crate::built::Built;
use crate::engines::Engine;
use crate::results::Results;

const WRITING: &str = "writing to memory";

const STYLE: &str = "\
:root{color-scheme:light dark;--back:#fff;--text:#1b1f24;--soft:#667;--line:#d8dce2;--ours:#c2410c;--peer:#8fa3bf;--bad:#b91c1c}\
@media(prefers-color-scheme:dark){:root{--back:#14171b;--text:#e3e6ea;--soft:#98a2b0;--line:#333a43;--ours:#f2884b;--peer:#55708f;--bad:#f47067}}\
body{background:var(--back);color:var(--text);font:15px/1.5 system-ui,sans-serif;max-width:1080px;margin:2em auto;padding:0 1em}\
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\
td,th{border-bottom:1px solid var(--line);padding:.25em .6em;text-align:right}\
td:first-child,th:first-child{text-align:left}\
.behind{color:var(--bad);font-weight:600}.soft{color:var(--soft)}\
svg{max-width:100%;height:auto}svg text{fill:var(--text);font:11px system-ui,sans-serif}\
.ours{fill:var(--ours)}.peer{fill:var(--peer)}.spread{stroke:var(--text);fill:none}\
details{margin:.6em 0}summary{cursor:pointer}.wide{overflow-x:auto}";

/// Returns the whole page.
pub fn page(tables: &[(&str, Vec<Entry>)], results: &Results) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>rowstone compared with its peers</title><style>{STYLE}</style>\
         <h1>rowstone compared with its peers</h1>{INTRODUCTION}"
    );
    for (form, entries) in tables {
        write!(page, "<h2>Form: {form}</h2>").expect(WRITING);
        if let Some(limits) = results.limits.get(*form) {
            let built = limits.built.iter().map(Built::text);
            for text in [of_machine(limits)].into_iter().chain(built) {
                write!(page, "<p class=\"soft\">{}</p>", escaped(&text)).expect(WRITING);
            }
        }
        overview(&mut page, entries);
        let mut group = "";
        for entry in entries {
            if entry.row.group != group {
                group = entry.row.group;
                write!(page, "<h3>{}</h3>", escaped(group)).expect(WRITING);
            }
            details(&mut page, entry);
        }
    }
    configuration(&mut page);
    page
}

const INTRODUCTION: &str = "\
<p>Every engine runs in a process of its own, over the same entities, with the same seeds, durability and memory; engines \
take turns in each repetition. Each figure includes the work that a user of a key-value store does by hand: encoding, decoding \
all ten properties, filtering, reading before writing, groups. Every answer is checked against the generator, outside the \
measured time. Once a call returns, <i>sync</i> survives a power cut and <i>os</i> a crash of the process. Figures are medians of the \
repetitions; the line across a bar is their spread. The ratio is to the best peer with its best encoding, and above 1 where \
rowstone is ahead.</p>";

/// Escapes text for HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn overview(page: &mut String, entries: &[Entry]) {
    let head = ["row", "unit", "rowstone", "best peer", "", "ratio", "", "share of the limit"];
    page.push_str("<div class=\"wide\"><table><tr>");
    head.iter().for_each(|head| write!(page, "<th>{head}</th>").expect(WRITING));
    page.push_str("</tr>");
    let mut group = "";
    for entry in entries {
        if entry.row.group != group {
            group = entry.row.group;
            write!(page, "<tr><th colspan=\"8\">{}</th></tr>", escaped(group)).expect(WRITING);
        }
        let value =
            |cell: &Option<Cell>| cell.as_ref().map_or(String::new(), |cell| count(cell.value));
        let best = entry.best.as_ref().map_or(String::new(), |cell| cell.side.name());
        let ratio = entry.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"));
        let behind = if entry.is_behind() { "BEHIND" } else { "" };
        let limit = entry.limit.as_ref().map_or(String::new(), |limit| {
            format!("{:.1} % of {} ({})", limit.share * 100.0, limit.what, count(limit.value))
        });
        write!(
            page,
            "<tr><td>{}</td><td class=\"soft\">{}</td><td>{}</td><td>{}</td><td class=\"soft\">{best}</td>\
             <td>{ratio}</td><td class=\"behind\">{behind}</td><td class=\"soft\">{limit}</td></tr>",
            escaped(&entry.title()),
            entry.row.unit.text(),
            value(&entry.ours),
            value(&entry.best),
        )
        .expect(WRITING);
    }
    page.push_str("</table></div>");
}

fn details(page: &mut String, entry: &Entry) {
    let (title, unit) = (escaped(&entry.title()), entry.row.unit.text());
    let less = if entry.row.unit.higher_is_better() { "" } else { ", less is better" };
    write!(
        page,
        "<details open><summary>{title}, <span class=\"soft\">{unit}{less}</span></summary>"
    )
    .expect(WRITING);
    page.push_str(&chart::bars(entry));
    page.push_str("<details><summary class=\"soft\">latency, processor, memory, writes</summary>");
    page.push_str("<div class=\"wide\"><table><tr>");
    let head = [
        "engine",
        "value",
        "low",
        "high",
        "p50",
        "p99",
        "p99.9",
        "max",
        "waits",
        "CPU each",
        "peak",
        "anonymous",
        "written",
        "disk",
    ];
    head.iter().for_each(|head| write!(page, "<th>{head}</th>").expect(WRITING));
    page.push_str("</tr>");
    entry.cells.iter().for_each(|cell| detail(page, cell));
    page.push_str("</table></div></details>");
    for remark in entry.remarks() {
        let is_bad = ["FAILED", "MISSED", "NOT"].iter().any(|word| remark.contains(word));
        let class = if is_bad { "behind" } else { "soft" };
        write!(page, "<p class=\"{class}\">{}</p>", escaped(&remark)).expect(WRITING);
    }
    page.push_str("</details>");
}

fn detail(page: &mut String, cell: &Cell) {
    let [p50, p99, p999, max, waits] = latencies(cell);
    let written = if cell.written_times > 0.0 {
        format!("{} times", count(cell.written_times))
    } else {
        String::new()
    };
    let memory = |value: f64| if value > 0.0 { bytes(value) } else { String::new() };
    let fields = [
        cell.side.name(),
        count(cell.value),
        count(cell.low),
        count(cell.high),
        p50,
        p99,
        p999,
        max,
        waits,
        time((cell.cpu_micros_each * 1e3) as u64),
        memory(cell.peak_bytes),
        memory(cell.anonymous_bytes),
        written,
        cell.disk_bytes.map_or(String::new(), bytes),
    ];
    page.push_str("<tr>");
    fields.iter().for_each(|field| write!(page, "<td>{field}</td>").expect(WRITING));
    page.push_str("</tr>");
}

fn configuration(page: &mut String) {
    page.push_str("<h2>How each engine is set up</h2>");
    for engine in Engine::ALL.into_iter().filter(|engine| engine.is_built()) {
        let about = engine.about();
        write!(page, "<h3>{} {}</h3><ul>", escaped(about.name), escaped(about.version))
            .expect(WRITING);
        for setting in about.settings {
            write!(page, "<li>{}</li>", escaped(setting)).expect(WRITING);
        }
        page.push_str("</ul>");
    }
}
