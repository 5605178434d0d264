//! `partitions`: shows the range map of tables, as a table and as bars, and the partitions of the
//! stored data.
//!
//! `db` collects the figures; `advise` reports the problems that they show.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::failure::{Failure, Outcome};
use super::layout::{Screen, cut, padded, width};
use super::open::open_to_read;
use super::output::{
    Format, Output, TableArgs, counted, print, whole, with_thousands, without_control, write_cells,
};
use super::writer::Loads;
use crate::db::{DataShape, Db, PartitionRange, PartitionSize, RangeBound};
use crate::json::report::put_range;
use crate::json::{self, Object};
use crate::sync::pause;

/// Without --exact, at most this many entities of a table are read. This takes 1 to 2 s.
const ENTITIES_MAX: u64 = 1_000_000;
/// Length of the longest bar, in characters.
const BAR_CHARS: usize = 40;
/// Length of the longest bar on a narrow screen. A screen with less space has no bars.
const BAR_CHARS_MIN: usize = 5;
/// A name next to a bar is not cut to less than this.
const NAME_CHARS_MIN: usize = 8;
/// Maximum width of a key that is printed next to a bar.
const KEY_CHARS_MAX: usize = 28;

/// Show how a table's keys are divided.
///
/// Shown are the ranges with their files and load, and the partitions with their sizes.
#[derive(Args)]
#[command(after_long_help = PARTITIONS_HELP)]
pub(super) struct Partitions {
    /// The database
    db: PathBuf,
    /// The table; all tables by default
    table: Option<String>,
    /// Read every key, not only the first million of each table
    #[arg(long)]
    exact: bool,
    #[command(flatten)]
    format: TableArgs,
    /// Print again at this interval in seconds, until interrupted
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
        value_parser = clap::value_parser!(u64).range(1..))]
    watch: Option<u64>,
}

const PARTITIONS_HELP: &str = "\
Ranges: contiguous spans of keys, each with its own files. Only the process that has the database
open knows their reads and writes a second. If it listens on the database's control socket, this
command asks it; otherwise the cells of the load are empty.

Their figures are from the metadata of files: entries include overwritten versions of entities until a
merge removes them, and lack what is only in the log. JSON and CSV call them entities.

Partitions: all entities with one PartitionKey. They are counted by reading keys, at most a million of
each table in key order unless --exact is given. CSV has the ranges only.

The newest tenth: the table is cut into twenty parts with equally many entities, in key order, and
each bar says which share of the newest tenth of the entities is in that part. New keys that always come last
(or first) stand out as one bar.

--watch reads the database again for each picture. If another process writes it, the picture shows
what is durable.

Examples:
  rowstone partitions shop
  rowstone partitions shop parts --exact --format json
  rowstone partitions shop parts --watch 5";

/// The printed data of one table.
struct Picture {
    table: String,
    ranges: Vec<PartitionRange>,
    is_load_known: bool,
    data: DataShape,
}

impl Partitions {
    pub(super) fn run(self) -> Outcome {
        let Some(seconds) = self.watch else { return self.print(false) };
        loop {
            match self.print(true) {
                Err(Failure::Open(error)) => {
                    print(|output| writeln!(output, "not now: {error}"))?;
                }
                printed => printed?,
            }
            // The database is closed, so an interrupt here requires no recovery.
            pause(Duration::from_secs(seconds));
        }
    }

    fn print(&self, again: bool) -> Outcome {
        let db = open_to_read(&self.db)?;
        let pictures = self.pictures(&db, &Loads::of(&self.db));
        db.close()?;
        let pictures = pictures?;
        let format = self.format.get();
        self.format.print(|output| {
            if again && format == Format::Table {
                // Move the cursor home, and clear the screen below it.
                output.data(b"\x1b[H\x1b[J")?;
            }
            write_pictures(output, &pictures, format)
        })
    }

    fn pictures(&self, db: &Db, loads: &Loads) -> Outcome<Vec<Picture>> {
        let picture = |(table, data): (String, DataShape)| {
            let (ranges, is_load_known) = match loads.of_table(&table) {
                Some((ranges, _)) => (ranges, true),
                None => (db.partitions(&table)?, false),
            };
            Ok(Picture { table, ranges, is_load_known, data })
        };
        shapes(db, self.table.as_ref(), self.exact)?.into_iter().map(picture).collect()
    }
}

/// Returns the shape of the data of each table, or of the named one.
pub(super) fn shapes(
    db: &Db,
    table: Option<&String>,
    exact: bool,
) -> Outcome<Vec<(String, DataShape)>> {
    let tables = match table {
        Some(table) => vec![db.table(table)?.name().to_owned()],
        None => db.tables()?,
    };
    let entities_max = if exact { u64::MAX } else { ENTITIES_MAX };
    let shape = |table: String| {
        let data = db.data_shape(&table, entities_max)?;
        Ok((table, data))
    };
    tables.into_iter().map(shape).collect()
}

fn write_pictures(output: &mut Output, pictures: &[Picture], format: Format) -> io::Result<()> {
    match format {
        Format::Table => {
            for (i, picture) in pictures.iter().enumerate() {
                if i > 0 {
                    writeln!(output)?;
                }
                write_picture(output, picture)?;
            }
            Ok(())
        }
        Format::Csv => {
            let rows = pictures.iter().flat_map(Picture::csv_rows).collect();
            write_cells(output, &CSV_COLUMNS, rows, Vec::new(), format)
        }
        Format::Json | Format::Ndjson => {
            output.items(&pictures.iter().map(picture_json).collect::<Vec<_>>(), format)
        }
    }
}

fn write_picture(output: &mut Output, picture: &Picture) -> io::Result<()> {
    let (data, ranges) = (&picture.data, &picture.ranges);
    let at_least = if data.complete { "" } else { "at least " };
    let sizes = format!(
        "{at_least}{} in {} of {at_least}{}",
        counted(data.entities, "entity", "entities"),
        counted(ranges.len() as u64, "range", "ranges"),
        counted(data.partitions, "partition", "partitions"),
    );
    output.fold("", &format!("{}: {sizes}", picture.table))?;
    writeln!(output)?;
    if ranges.is_empty() {
        output.fold("", "no range yet: nothing was flushed to files")?;
    } else {
        // The columns of the load are last.
        let count = if picture.is_load_known { RANGE_COLUMNS.len() } else { FILE_COLUMNS };
        let columns = RANGE_COLUMNS.get(..count).unwrap_or(&RANGE_COLUMNS);
        let is_number = |name: &&str| !matches!(*name, "from" | "below" | "load");
        let right = columns.iter().map(is_number).collect();
        write_cells(output, columns, picture.range_cells(), right, Format::Table)?;
        let read = if data.complete { "counted" } else { "of the entities that were read" };
        let text = format!(
            "ranges: estimates from the files; entries include overwritten versions and lack what \
             is only in the log. partitions: {read}"
        );
        write_heading(output, &text)?;
    }
    write_bars(output, picture)
}

/// Writes an empty line, and `text`.
fn write_heading(output: &mut Output, text: &str) -> io::Result<()> {
    writeln!(output)?;
    output.fold("", text)
}

fn write_bars(output: &mut Output, picture: &Picture) -> io::Result<()> {
    let (data, ranges, screen) = (&picture.data, &picture.ranges, output.screen());
    let row = |range: &PartitionRange, length: f64, text: String| {
        (key_text(&bound_text(range.low.as_ref(), "(start)"), screen), length, text)
    };
    if ranges.len() > 1 {
        write_heading(output, "bytes of each range")?;
        let rows = ranges.iter().map(|r| row(r, r.bytes as f64, size_text(r.bytes)));
        bars(output, &rows.collect::<Vec<_>>())?;
    }
    let ops = |range: &PartitionRange| range.reads + range.writes;
    if ranges.iter().any(|range| ops(range) >= 0.5) {
        write_heading(output, "operations a second in each range")?;
        let rows = ranges.iter().map(|r| row(r, ops(r), whole(ops(r))));
        bars(output, &rows.collect::<Vec<_>>())?;
    }
    if data.partitions == 0 {
        return Ok(());
    }
    let (shown, all) = (data.largest.len(), with_thousands(data.partitions));
    write_heading(output, &format!("largest partitions, {shown} of {all}"))?;
    bars(output, &data.largest.iter().map(|p| size_row(p, data, screen)).collect::<Vec<_>>())?;
    let middle = format!(
        "in the middle {}; {} with one; keys and time go the same way in {:.0} % of the cases",
        counted(data.median_entities, "entity", "entities"),
        counted(data.single_partitions, "partition", "partitions"),
        100.0 * data.ascending,
    );
    write_heading(output, &middle)?;
    let newest = "where the newest tenth is, by twentieths of the table in key order";
    write_heading(output, newest)?;
    let slices = data.newest.iter().enumerate();
    let rows = slices
        .map(|(i, share)| (format!("{:>3} %", i * 5), *share, format!("{:.1} %", 100.0 * share)));
    bars(output, &rows.collect::<Vec<_>>())
}

fn size_row(partition: &PartitionSize, data: &DataShape, screen: Screen) -> (String, f64, String) {
    let share = 100.0 * partition.bytes as f64 / data.bytes.max(1) as f64;
    let entities = counted(partition.entities, "entity", "entities");
    let text = format!("{}, {entities}, {share:.1} %", size_text(partition.bytes));
    (key_text(&partition.partition_key, screen), partition.bytes as f64, text)
}

/// Draws one bar per row. A row consists of a name, the length of its bar, and a text to print
/// after the bar. The longest bar has [`BAR_CHARS`] characters, or what the screen leaves for it.
pub(super) fn bars(output: &mut Output, rows: &[(String, f64, String)]) -> io::Result<()> {
    let longest = rows.iter().map(|row| row.1).fold(0.0, f64::max);
    let widest =
        |of: fn(&(String, f64, String)) -> &str| rows.iter().map(move |row| width(of(row)));
    let names = widest(|row| &row.0).max().unwrap_or(0);
    let texts = widest(|row| &row.2).max().unwrap_or(0);
    let room = output.screen().at_most(usize::MAX).saturating_sub(texts + 3 * 2);
    let names = names.min(room.saturating_sub(BAR_CHARS_MIN).max(NAME_CHARS_MIN));
    let chars = room.saturating_sub(names).min(BAR_CHARS);
    rows.iter().try_for_each(|(name, length, text)| {
        let bar = bar(length / longest.max(f64::MIN_POSITIVE), chars);
        let bar = if chars < BAR_CHARS_MIN { "" } else { &format!("{bar:chars$}  ") };
        output.fold(&format!("  {}  {bar}", padded(&cut(name, names), names)), text)
    })
}

/// Draws a bar with a resolution of an eighth of a character, to distinguish small values from 0.
fn bar(share: f64, chars: usize) -> String {
    const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (share.clamp(0.0, 1.0) * 8.0 * chars as f64).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    if let Some(rest) = (eighths % 8).checked_sub(1) {
        bar.extend(EIGHTHS.get(rest));
    } else if eighths == 0 && share > 0.0 {
        bar.push('▏');
    }
    bar
}

const RANGE_COLUMNS: [&str; 11] = [
    "from",
    "below",
    "bytes",
    "entries",
    "tombstones",
    "files",
    "sources",
    "debt",
    "reads/s",
    "writes/s",
    "load",
];

/// The members of a range in JSON. Its bounds are two columns each.
const CSV_COLUMNS: [&str; 15] = [
    "table",
    "id",
    "low_partition_key",
    "low_row_key",
    "high_partition_key",
    "high_row_key",
    "bytes",
    "entities",
    "tombstones",
    "files",
    "sources",
    "debt",
    "reads_per_second",
    "writes_per_second",
    "load",
];

impl Picture {
    /// Returns a row of CSV for each range, with whole keys and plain numbers.
    fn csv_rows(&self) -> impl Iterator<Item = Vec<String>> {
        let keys = |bound: &Option<RangeBound>| {
            let RangeBound { partition_key, row_key } = bound.clone().unwrap_or_default();
            [partition_key, row_key]
        };
        self.ranges.iter().map(move |range| {
            let PartitionRange { id, low, high, bytes, entities, tombstones, .. } = range;
            let PartitionRange { files, sources, debt, reads, writes, pattern, .. } = range;
            let load = [reads.to_string(), writes.to_string(), pattern.name().to_owned()];
            let load = if self.is_load_known { load } else { Default::default() };
            let mut row = vec![self.table.clone(), id.to_string()];
            row.extend(keys(low).into_iter().chain(keys(high)));
            row.extend([bytes, entities, tombstones].map(u64::to_string));
            row.extend([files.to_string(), sources.to_string(), debt.to_string()]);
            row.extend(load);
            row
        })
    }

    /// Returns a row for each range. Its cells of the load are empty if the load is not known.
    fn range_cells(&self) -> Vec<Vec<String>> {
        let load = |range| if self.is_load_known { load_cells(range) } else { Default::default() };
        let row = |range| [&file_cells(range)[..], &load(range)].concat();
        self.ranges.iter().map(row).collect()
    }
}

/// The number of columns that are known without the load.
const FILE_COLUMNS: usize = 8;

fn file_cells(range: &PartitionRange) -> [String; FILE_COLUMNS] {
    [
        bound_text(range.low.as_ref(), "(start)"),
        bound_text(range.high.as_ref(), "(end)"),
        size_text(range.bytes),
        with_thousands(range.entities),
        with_thousands(range.tombstones),
        range.files.to_string(),
        range.sources.to_string(),
        size_text(range.debt),
    ]
}

fn load_cells(range: &PartitionRange) -> [String; 3] {
    [format!("{:.1}", range.reads), format!("{:.1}", range.writes), range.pattern.name().to_owned()]
}

fn bound_text(bound: Option<&RangeBound>, none: &str) -> String {
    match bound {
        None => none.to_owned(),
        Some(bound) if bound.row_key.is_empty() => bound.partition_key.clone(),
        Some(bound) => format!("{} / {}", bound.partition_key, bound.row_key),
    }
}

/// Formats a key for a line of text: control characters escaped, truncated if it is long.
fn key_text(key: &str, screen: Screen) -> String {
    let text = without_control(key);
    match screen {
        _ if text.is_empty() => "''".to_owned(),
        Screen::WIDE => text,
        _ => cut(&text, KEY_CHARS_MAX).into_owned(),
    }
}

/// Formats bytes in the unit that leaves at most three digits before the point.
pub(super) fn size_text(bytes: u64) -> String {
    let units = [("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
    match units.into_iter().find(|(_, unit)| bytes as f64 >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / unit),
        None => format!("{bytes} B"),
    }
}

fn picture_json(picture: &Picture) -> String {
    json::object(|object| {
        object.text("table", &picture.table);
        object.raw("data", json::object(|object| put_shape(object, &picture.data)));
        let known = picture.is_load_known;
        let put = |object: &mut Object<'_>, range: &PartitionRange| put_range(object, range, known);
        object.raw("ranges_are_estimates", true);
        object.objects("ranges", &picture.ranges, put);
    })
}

pub(super) fn put_shape(object: &mut Object<'_>, data: &DataShape) {
    object.raw("complete", data.complete);
    object.raw("entities", data.entities);
    object.raw("bytes", data.bytes);
    object.raw("partitions", data.partitions);
    object.raw("single_partitions", data.single_partitions);
    object.raw("median_entities", data.median_entities);
    object.raw("ascending", data.ascending);
    object.objects("largest", &data.largest, |object, partition| {
        object.text("partition_key", &partition.partition_key);
        object.raw("entities", partition.entities);
        object.raw("bytes", partition.bytes);
    });
    object.raw("newest", json::array(&data.newest));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_shares() {
        let bar = |share| bar(share, BAR_CHARS);
        assert_eq!(bar(1.0).chars().count(), BAR_CHARS);
        assert_eq!(bar(0.5).chars().count(), BAR_CHARS / 2);
        assert_eq!((bar(0.0), bar(1e-9)), (String::new(), "▏".to_owned()));
        assert_eq!(bar(1.5 / BAR_CHARS as f64), "█▌");
    }

    #[test]
    fn keys_fit_their_line() {
        let plain = |key: &str| key_text(key, Screen::PLAIN);
        assert_eq!(plain("a\tb"), "a\\tb");
        assert_eq!(plain(""), "''");
        assert_eq!(plain(&"x".repeat(40)).chars().count(), KEY_CHARS_MAX);
        assert_eq!(plain(&"x".repeat(KEY_CHARS_MAX)), "x".repeat(KEY_CHARS_MAX));
        assert_eq!(key_text(&"x".repeat(40), Screen::WIDE), "x".repeat(40));
    }

    #[test]
    fn sizes_have_units() {
        let sizes = [0, 999, 1_000, 1_500_000, 2_000_000_000].map(size_text);
        assert_eq!(sizes, ["0 B", "999 B", "1.0 kB", "1.5 MB", "2.0 GB"]);
    }

    #[test]
    fn a_picture_is_json() {
        let data = DataShape::default();
        let (table, ranges) = ("t".into(), Vec::new());
        let text = picture_json(&Picture { table, ranges, is_load_known: false, data });
        assert!(text.starts_with("{\"table\":\"t\",\"data\":{\"complete\":false,"), "{text}");
        assert!(
            text.ends_with("\"newest\":[]},\"ranges_are_estimates\":true,\"ranges\":[]}"),
            "{text}"
        );
    }
}
