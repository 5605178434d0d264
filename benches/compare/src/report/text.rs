//! Builds the table that is printed on the terminal.

use std::fmt::Write;

use super::summary::{Entry, bytes, count, with_unit};
use crate::limits::Limits;

const WRITING: &str = "writing to memory";

/// Returns the table of one form.
pub fn table(form: &str, entries: &[Entry], limits: Option<&Limits>) -> String {
    let mut text = format!("\n{form}\n");
    if let Some(limits) = limits {
        text += &of_machine(limits);
    }
    let mut group = "";
    for entry in entries {
        if entry.row.group != group {
            group = entry.row.group;
            write!(text, "\n{group}\n").expect(WRITING);
        }
        line(&mut text, entry);
    }
    let compared = || entries.iter().filter(|entry| entry.has_counterpart());
    let behind = compared().filter(|entry| entry.is_behind()).count();
    let apart = entries.iter().filter(|entry| entry.row.peer_row.is_some()).count();
    let versus_peers = entries.iter().flat_map(|entry| &entry.targets);
    let versus_peers = versus_peers.map(|(target, reached)| *reached >= target.times);
    let growing = entries.iter().filter_map(|entry| entry.growth?.is_met());
    let targets: Vec<bool> = versus_peers.chain(growing).collect();
    let missed = targets.iter().filter(|is_met| !**is_met).count();
    writeln!(
        text,
        "\n{} rows compared, {behind} of them BEHIND; {apart} rows without a counterpart; \
         {} targets, {missed} of them MISSED",
        compared().count(),
        targets.len(),
    )
    .expect(WRITING);
    text
}

fn line(text: &mut String, entry: &Entry) {
    let ours =
        entry.ours.as_ref().map_or("-".to_owned(), |cell| with_unit(cell.value, entry.row.unit));
    let best = entry
        .best
        .as_ref()
        .map_or("-".to_owned(), |cell| format!("{} ({})", count(cell.value), cell.side.name()));
    let ratio = entry.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    let behind = if entry.is_behind() { "BEHIND" } else { "" };
    let limit = entry.limit.as_ref().map_or(String::new(), |limit| {
        format!("{:.1} % of {} ({})", limit.share * 100.0, limit.what, count(limit.value))
    });
    let title = entry.title();
    writeln!(text, "  {title:<48} {ours:>24} {best:>26} {ratio:>6} {behind:<6}  {limit}")
        .expect(WRITING);
    for remark in entry.remarks() {
        writeln!(text, "      {remark}").expect(WRITING);
    }
}

/// Describes the limits in words.
pub fn of_machine(limits: &Limits) -> String {
    let zstd = |what: &str| format!("zstd {what} (level {})", limits.zstd_level);
    let rates = [
        ("memory read".to_owned(), limits.memory_read_bytes),
        ("memory copy".to_owned(), limits.memory_copy_bytes),
        ("sequential write with a sync".to_owned(), limits.write_bytes),
        ("sequential read".to_owned(), limits.read_bytes),
        ("CRC-32".to_owned(), limits.crc32_bytes),
        ("LZ4 encode".to_owned(), limits.lz4_compress_bytes),
        ("LZ4 decode".to_owned(), limits.lz4_decompress_bytes),
        (zstd("encode"), limits.zstd_compress_bytes),
        (zstd("decode"), limits.zstd_decompress_bytes),
    ];
    let rates: Vec<String> =
        rates.iter().map(|(what, rate)| format!("{what} {}/s", bytes(*rate))).collect();
    let sized: String = limits.sized_accesses.iter().map(of_size).collect();
    format!(
        "{}\nlimits: {}; dependent memory accesses {}/s, over 4 GiB {}/s{sized}; random pages {}/s by one thread, {}/s by two; \
         syncs {}/s by one thread, {}/s by four; small files opened {}/s\n",
        limits.machine,
        rates.join(", "),
        count(limits.memory_accesses),
        count(limits.far_accesses),
        count(limits.random_reads[0]),
        count(limits.random_reads[1]),
        count(limits.syncs[0]),
        count(limits.syncs[1]),
        count(limits.file_opens),
    )
}

fn of_size((entities, accesses): (&u64, &Option<f64>)) -> String {
    let over = format!(", over the bytes of {} entities", count(*entities as f64));
    match accesses {
        Some(accesses) => format!("{over} {}/s", count(*accesses)),
        None => format!("{over} NOT measured for want of memory"),
    }
}
