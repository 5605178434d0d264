//! Prints results to standard output: aligned tables for people, JSON and CSV for programs.
//!
//! Invariants
//! * memory is bounded: a table for people is laid out page by page;
//! * text for people has no control characters, whatever keys, names and values hold; JSON, CSV and
//!   output to a file are exact;
//! * a closed pipe ends the command silently.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use clap::{Args, ValueEnum};

use super::csv;
use super::failure::{Failure, Outcome};
use super::files::{NewFile, Overwrite};
use super::layout::{Layout, Screen, padded, width, write_wrapped};
use crate::codec::printable::lines_without_control;
pub(super) use crate::codec::printable::without_control;
pub(super) use crate::codec::text::with_thousands;
use crate::error::Result;
use crate::json::odata::{self, Metadata};
use crate::json::{self, Object, Scalar};
use crate::model::{Entity, SYSTEM_PROPERTIES, ValueRef};

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Aligned columns, for people
    #[default]
    #[value(alias = "text")]
    Table,
    /// One JSON document
    Json,
    /// One JSON object per line
    Ndjson,
    /// Comma-separated values with a header
    Csv,
}

/// The option `--format`, and `--json`, its other spelling for one of its values.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(super) struct FormatArgs {
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format", hide = true)]
    json: bool,
}

/// The options of commands that print tables.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(super) struct TableArgs {
    #[command(flatten)]
    format: FormatArgs,
    /// Cut no column of a table, however long the lines get
    #[arg(long)]
    wide: bool,
}

/// The destination of a command's result.
pub(super) struct Output {
    to: BufWriter<Box<dyn Write + Send>>,
    /// The space for tables.
    screen: Screen,
    /// Whether all that is written is data, and not text for people.
    is_exact: bool,
    /// A file that gets its name when it is complete, so that an interrupted command leaves an
    /// older file as it was.
    file: Option<NewFile>,
}

/// Rows per page of a table.
const PAGE_ROWS: usize = 500;

impl FormatArgs {
    pub(super) fn get(self) -> Format {
        if self.json { Format::Json } else { self.format }
    }

    /// Whether JSON is to be printed and not text, for a result that is no table of rows.
    pub(super) fn is_json(self) -> Outcome<bool> {
        match self.get() {
            Format::Csv => Err(Failure::Usage("this result is text or JSON, not CSV".into())),
            format => Ok(format != Format::Table),
        }
    }
}

impl TableArgs {
    pub(super) fn get(self) -> Format {
        self.format.get()
    }

    /// As [`FormatArgs::is_json`].
    pub(super) fn is_json(self) -> Outcome<bool> {
        self.format.is_json()
    }

    /// Returns standard output. Tables do not fit the terminal if they are to be wide.
    pub(super) fn output(self) -> Output {
        let output = Output::standard();
        Output { screen: if self.wide { Screen::WIDE } else { output.screen }, ..output }
    }

    /// As [`print`], to [`output`](Self::output).
    pub(super) fn print<E: Into<Failure>>(
        self,
        write: impl FnOnce(&mut Output) -> std::result::Result<(), E>,
    ) -> Outcome {
        let mut output = self.output();
        write(&mut output).map_err(Into::into)?;
        output.finish()
    }
}

impl Output {
    /// Tables fit the terminal.
    pub(super) fn standard() -> Self {
        Self::to(io::stdout(), Screen::of_standard_output())
    }

    /// Opens the file at `path`, or standard output if there is no path, for data. Lines have any
    /// length.
    pub(super) fn to_file(path: Option<&Path>, overwrite: Overwrite) -> Outcome<Self> {
        let Some(path) = path else {
            return Ok(Self { is_exact: true, ..Self::to(io::stdout(), Screen::PLAIN) });
        };
        let (file, target) = overwrite.create_new(path)?;
        Ok(Self { is_exact: true, file, ..Self::to(target, Screen::PLAIN) })
    }

    fn to(target: impl Write + Send + 'static, screen: Screen) -> Self {
        let to = BufWriter::with_capacity(64 << 10, Box::new(target) as Box<_>);
        Self { to, screen, is_exact: false, file: None }
    }

    pub(super) fn screen(&self) -> Screen {
        self.screen
    }

    /// Flushes the output, and fails if it cannot be written.
    pub(super) fn finish(mut self) -> Outcome {
        self.to.flush()?;
        self.file.map_or(Ok(()), NewFile::finish)
    }

    /// Writes a line of text for people. If the screen is too narrow for it, it is wrapped, and
    /// indented by the width of `lead`.
    pub(super) fn fold(&mut self, lead: &str, text: &str) -> io::Result<()> {
        write_wrapped(self, self.screen.at_most(usize::MAX), lead, text)
    }

    /// Writes data as it is.
    pub(super) fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)
    }

    /// Writes a line of JSON.
    pub(super) fn json(&mut self, json: &str) -> io::Result<()> {
        writeln!(self.to, "{json}")
    }

    /// Writes a line with one JSON object, whose members `put` writes.
    pub(super) fn object(&mut self, put: impl FnOnce(&mut Object<'_>)) -> io::Result<()> {
        self.json(&json::object(put))
    }

    /// Writes JSON objects, one per line, or as CSV with the members of the first as columns.
    pub(super) fn records(&mut self, objects: &[String], format: Format) -> Outcome {
        if format != Format::Csv {
            return Ok(objects.iter().try_for_each(|object| self.json(object))?);
        }
        let mut lines = Vec::new();
        for (i, object) in objects.iter().enumerate() {
            let members = json::read_object(object, usize::MAX)?;
            if i == 0 {
                csv::put_row(&mut lines, members.iter().map(|(name, _)| name.as_bytes()), b',');
            }
            let cells = members.iter().map(|(_, value)| match Scalar::read(value) {
                Ok(Scalar::String(text)) => text.into_owned().into_bytes(),
                _ => value.get().as_bytes().to_vec(),
            });
            csv::put_row(&mut lines, cells, b',');
        }
        Ok(self.data(&lines)?)
    }

    /// Writes items that are already JSON: as one array, or one per line.
    pub(super) fn items(&mut self, items: &[String], format: Format) -> io::Result<()> {
        match format {
            Format::Json => self.json(&format!("[\n{}\n]", items.join(",\n"))),
            _ => items.iter().try_for_each(|item| self.json(item)),
        }
    }
}

/// Writes text for people, or data if there is nothing else.
impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_exact {
            return self.to.write(bytes);
        }
        let text = String::from_utf8_lossy(bytes);
        self.to.write_all(lines_without_control(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Writes the whole result of a command to standard output.
pub(super) fn print<E: Into<Failure>>(
    write: impl FnOnce(&mut Output) -> std::result::Result<(), E>,
) -> Outcome {
    TableArgs::default().print(write)
}

/// Prints entities as they arrive. `entities` may be called twice, because CSV first needs the
/// names of all columns.
pub(super) fn write_entities<I: Iterator<Item = Result<Entity>>>(
    output: &mut Output,
    entities: impl Fn() -> Result<I>,
    select: Option<&[String]>,
    format: Format,
) -> Outcome {
    match format {
        Format::Table => write_table(output, entities()?, select),
        Format::Csv => write_csv(output, entities, select),
        Format::Ndjson => for_each_json(entities()?, select, Metadata::MINIMAL, |json, _| {
            output.data(json)?;
            output.data(b"\n")
        }),
        Format::Json => {
            output.data(b"[")?;
            for_each_json(entities()?, select, Metadata::MINIMAL, |json, first| {
                output.data(if first { b"\n" } else { b",\n" })?;
                output.data(json)
            })?;
            Ok(output.data(b"\n]\n")?)
        }
    }
}

/// Calls `write` for each entity, with its JSON and whether it is the first entity.
pub(super) fn for_each_json(
    entities: impl Iterator<Item = Result<Entity>>,
    select: Option<&[String]>,
    metadata: Metadata,
    mut write: impl FnMut(&[u8], bool) -> io::Result<()>,
) -> Outcome {
    let mut json = Vec::new();
    for (i, entity) in entities.enumerate() {
        json.clear();
        odata::put_entity(&mut json, &entity?, select, metadata);
        write(&json, i == 0)?;
    }
    Ok(())
}

/// Writes CSV whose columns are the keys and then the union of all properties, or the selected
/// ones.
pub(super) fn write_csv<I: Iterator<Item = Result<Entity>>>(
    output: &mut Output,
    entities: impl Fn() -> Result<I>,
    select: Option<&[String]>,
) -> Outcome {
    let columns = match select {
        Some(names) => names.to_vec(),
        None => columns_of(entities()?)?,
    };
    let mut line = Vec::new();
    csv::put_row(&mut line, &columns, b',');
    output.data(&line)?;
    for entity in entities()? {
        let entity = entity?;
        // A service has no snapshot, so the second reading may find other entities.
        let names = columns.get(2..).unwrap_or_default();
        let is_new =
            |name: &&str| names.binary_search_by(|known| known.as_str().cmp(name)).is_err();
        if select.is_none()
            && let Some(name) = entity.properties().map(|(name, _)| name).find(is_new)
        {
            let text = format!("an entity got a property '{name}' meanwhile: repeat the command");
            return Err(Failure::Other(text));
        }
        line.clear();
        csv::put_row(&mut line, columns.iter().map(|name| text_of(&entity, name)), b',');
        output.data(&line)?;
    }
    Ok(())
}

/// Returns the columns of a table of `entities`: the keys, then all other names.
fn columns_of<E: Borrow<Entity>>(entities: impl Iterator<Item = Result<E>>) -> Result<Vec<String>> {
    let mut names = BTreeSet::new();
    for entity in entities {
        for (name, _) in entity?.borrow().properties() {
            if !names.contains(name) {
                names.insert(name.to_owned());
            }
        }
    }
    Ok(["PartitionKey", "RowKey"].map(str::to_owned).into_iter().chain(names).collect())
}

/// Returns the text of the key or property called `name`; empty if the entity lacks it.
fn text_of(entity: &Entity, name: &str) -> Vec<u8> {
    let mut text = Vec::new();
    match name {
        "PartitionKey" => text.extend_from_slice(entity.partition_key().as_bytes()),
        "RowKey" => text.extend_from_slice(entity.row_key().as_bytes()),
        "Timestamp" => {
            text = entity.timestamp().map(|time| time.to_string()).unwrap_or_default().into();
        }
        _ => {
            if let Some(value) = entity.value(name) {
                odata::put_text(&mut text, value);
            }
        }
    }
    text
}

/// Writes an aligned table; pages with different columns get their own header.
fn write_table(
    output: &mut Output,
    mut entities: impl Iterator<Item = Result<Entity>>,
    select: Option<&[String]>,
) -> Outcome {
    let screen = output.screen;
    let mut header = None;
    let mut count = 0;
    loop {
        let page: Vec<Entity> = entities.by_ref().take(PAGE_ROWS).collect::<Result<_>>()?;
        if page.is_empty() {
            break;
        }
        count += page.len() as u64;
        let columns = match select {
            Some(names) => names.to_vec(),
            None => columns_of(page.iter().map(Ok))?,
        };
        let text = |entity, name| cell(&text_of(entity, name), screen);
        let row = |entity| columns.iter().map(|name| text(entity, name)).collect();
        let cells = page.iter().map(row).collect();
        let right = columns.iter().map(|name| is_numeric(&page, name)).collect();
        header = Some(Layout { columns, cells, right }.write(output, screen, header)?);
    }
    let gap = if count == 0 { "" } else { "\n" };
    Ok(writeln!(output, "{gap}{}", counted(count, "entity", "entities"))?)
}

/// Prints rows of text under `columns`, as an aligned table or as CSV.
pub(super) fn write_cells(
    output: &mut Output,
    columns: &[&str],
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
    format: Format,
) -> io::Result<()> {
    let columns = columns.iter().map(|name| (*name).to_owned()).collect();
    if format == Format::Csv {
        let mut lines = Vec::new();
        for row in std::iter::once(&columns).chain(&rows) {
            csv::put_row(&mut lines, row, b',');
        }
        return output.data(&lines);
    }
    let screen = output.screen;
    let row = |row: &Vec<String>| row.iter().map(|text| cell(text.as_bytes(), screen)).collect();
    let cells = rows.iter().map(row).collect();
    Layout { columns, cells, right }.write(output, screen, None).map(drop)
}

fn is_numeric(page: &[Entity], name: &str) -> bool {
    let mut values = page.iter().filter_map(|entity| entity.value(name)).peekable();
    let number =
        |value| matches!(value, ValueRef::Int32(_) | ValueRef::Int64(_) | ValueRef::Double(_));
    !SYSTEM_PROPERTIES.contains(&name) && values.peek().is_some() && values.all(number)
}

/// Formats a value for a table: control characters escaped, truncated if it is long.
fn cell(text: &[u8], screen: Screen) -> String {
    let text = String::from_utf8_lossy(text);
    match text.char_indices().nth(screen.value_chars) {
        Some((end, _)) => without_control(&text[..end]) + "…",
        None => without_control(&text),
    }
}

/// Writes one entity for people, one property per line.
pub(super) fn write_entity(
    output: &mut Output,
    entity: &Entity,
    select: Option<&[String]>,
) -> io::Result<()> {
    let mut lines = vec![
        ("PartitionKey".to_owned(), entity.partition_key().to_owned(), ""),
        ("RowKey".to_owned(), entity.row_key().to_owned(), ""),
    ];
    if let Some(time) = entity.timestamp() {
        lines.push(("Timestamp".to_owned(), time.to_string(), ""));
    }
    for (name, value) in entity.properties() {
        let text = text_of(entity, name);
        let text = String::from_utf8_lossy(&text).into_owned();
        lines.push((name.to_owned(), text, value.edm_type().name()));
    }
    if let Some(names) = select {
        lines.retain(|(name, ..)| names.contains(name));
    }
    let names = lines.iter().map(|(name, ..)| width(name)).max().unwrap_or(0);
    let names = output.screen.at_most(usize::MAX).div_ceil(3).min(names);
    for (name, text, edm) in lines {
        let name = padded(&name, names);
        let text = without_control(&text);
        let edm = if edm.is_empty() { String::new() } else { format!("  ({edm})") };
        output.fold(&format!("{name}  "), &format!("{text}{edm}"))?;
    }
    if let Some(etag) = entity.etag() {
        // To be copied, so it is not wrapped.
        writeln!(output, "\netag: {etag}")?;
    }
    Ok(())
}

/// Writes named counters.
pub(super) fn write_counters(
    output: &mut Output,
    fields: &[(&'static str, u64)],
    format: Format,
) -> io::Result<()> {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    match format {
        Format::Table => fields.iter().try_for_each(|(name, value)| {
            writeln!(output, "{name:width$}  {:>15}", with_thousands(*value))
        }),
        Format::Csv => {
            writeln!(output, "name,value")?;
            fields.iter().try_for_each(|(name, value)| writeln!(output, "{name},{value}"))
        }
        Format::Json | Format::Ndjson => {
            output.object(|object| fields.iter().for_each(|(name, value)| object.raw(name, value)))
        }
    }
}

/// Writes the problems of a verification, and their number.
pub(super) fn write_problems(output: &mut Output, problems: &[String]) -> io::Result<()> {
    problems.iter().try_for_each(|problem| output.fold("problem: ", problem))?;
    match problems.len() as u64 {
        0 => writeln!(output, "no problems"),
        count => writeln!(output, "{}", counted(count, "problem", "problems")),
    }
}

/// Formats a rate as a whole number: `1,234`.
pub(super) fn whole(rate: f64) -> String {
    with_thousands(rate.round() as u64)
}

/// Formats an average with three significant digits, and all digits of its integral part.
pub(super) fn average(value: f64) -> String {
    // The number of digits before the point; a value below 1 has more digits after it.
    let digits = if value == 0.0 { 1.0 } else { value.abs().log10().floor() + 1.0 };
    match 3.0 - digits {
        decimals if !(-15.0..9.0).contains(&decimals) && value.is_finite() => {
            format!("{value:.2e}")
        }
        decimals => format!("{value:.0$}", decimals.max(0.0) as usize),
    }
}

/// Formats a count with its noun: `1,000 rows`, `1 row`.
pub(super) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", with_thousands(count), if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::files::open_path;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_file_is_replaced_when_it_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.csv");
        let read = || io::read_to_string(open_path(&path).unwrap()).unwrap();
        for (text, is_finished) in [("old", true), ("cut", false), ("new", true)] {
            let mut output = Output::to_file(Some(&path), Overwrite::FORCE).unwrap();
            output.write_all(text.as_bytes()).unwrap();
            match is_finished {
                true => output.finish().unwrap(),
                false => assert_eq!(read(), "old"),
            }
        }
        assert_eq!(read(), "new");
        assert_eq!(dir.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn csv_of_rows_that_change_meanwhile_is_an_error() {
        let readings = std::cell::Cell::new(0);
        let entities = || {
            readings.set(readings.get() + 1);
            let names = ["B", "A"].into_iter().take(readings.get());
            let entity = names.fold(Entity::new("p", "r"), |entity, name| entity.with(name, 1));
            Ok([Ok(entity)].into_iter())
        };
        let mut output = Output::to(Sink::default(), Screen::PLAIN);
        let error = write_entities(&mut output, entities, None, Format::Csv).unwrap_err();
        assert!(error.message().1.unwrap().contains("a property 'A' meanwhile"));
        readings.set(0);
        let names = ["B".to_owned()];
        write_entities(&mut output, entities, Some(&names), Format::Csv).unwrap();
    }

    fn print(entities: &[Entity], select: Option<&[String]>, format: Format) -> String {
        print_on(Screen::PLAIN, entities, select, format)
    }

    fn print_on(
        screen: Screen,
        entities: &[Entity],
        select: Option<&[String]>,
        format: Format,
    ) -> String {
        let sink = Sink::default();
        let mut output = Output::to(sink.clone(), screen);
        let list = || Ok(entities.iter().cloned().map(Ok));
        write_entities(&mut output, list, select, format).unwrap();
        output.finish().unwrap();
        String::from_utf8(sink.0.lock().unwrap().clone()).unwrap()
    }

    fn parts() -> Vec<Entity> {
        vec![
            Entity::new("bolts", "m4x20").with("Price", 0.12).with("Stock", 1200),
            Entity::new("nuts", "m4").with("Note", "a,b\n\"c\"").with("Stock", 5),
        ]
    }

    #[test]
    fn tables_are_aligned() {
        let expected = [
            "PartitionKey  RowKey  Note      Price  Stock",
            "------------  ------  --------  -----  -----",
            "bolts         m4x20              0.12   1200",
            "nuts          m4      a,b\\n\"c\"             5",
            "",
            "2 entities\n",
        ];
        assert_eq!(print(&parts(), None, Format::Table), expected.join("\n"));
        assert_eq!(print(&[], None, Format::Table), "0 entities\n");
    }

    #[test]
    fn long_values_are_cut() {
        let entity = Entity::new("p", "r").with("A", "x".repeat(60));
        let select: Option<&[String]> = Some(&["A".into()]);
        let line = |screen| {
            let text = print_on(screen, std::slice::from_ref(&entity), select, Format::Table);
            text.lines().nth(2).unwrap().to_owned()
        };
        assert_eq!(line(Screen::PLAIN), format!("{}…", "x".repeat(48)));
        let narrow = Screen { columns: Some(10), ..Screen::PLAIN };
        assert_eq!(line(narrow), format!("{}…", "x".repeat(9)));
        assert_eq!(line(Screen::WIDE), "x".repeat(60));
    }

    /// A page with other properties than the one before has its own header.
    #[test]
    fn pages_have_the_columns_of_their_entities() {
        let entity = |i: usize| {
            let name = if i < PAGE_ROWS { "First" } else { "Second" };
            Entity::new("p", format!("{i:04}")).with(name, "\u{1b}")
        };
        let entities: Vec<_> = (0..2 * PAGE_ROWS + 1).map(entity).collect();
        let text = print(&entities, None, Format::Table);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2 * 2 + 1 + entities.len() + 2);
        assert_eq!(lines[PAGE_ROWS + 2..][..2], ["", "PartitionKey  RowKey  Second"]);
        assert_eq!(lines[PAGE_ROWS + 5], "p             0500    \\u{1b}");
        // Without room for columns, a property a line, and an empty line between entities.
        let narrow = Screen { columns: Some(20), ..Screen::PLAIN };
        let text = print_on(narrow, &entities[..2], None, Format::Table);
        let first = "Partition…  p\nRowKey      0000\nFirst       \\u{1b}\n\n";
        assert!(text.starts_with(first) && text.ends_with("\n\n2 entities\n"), "{text}");
    }

    #[test]
    fn averages_have_three_digits_and_rates_none() {
        let shown = [0.0, 12.639, 1.0, 9.876, 123_456.7, 0.012_345, -45.67, 99.96, 1e-300];
        let shown = shown.map(average);
        let expected =
            ["0.00", "12.6", "1.00", "9.88", "123457", "0.0123", "-45.7", "100.0", "1.00e-300"];
        assert_eq!(shown, expected);
        assert_eq!((average(f64::NAN), average(f64::INFINITY)), ("NaN".into(), "inf".into()));
        assert_eq!([0.4, 0.5, 1_234.5].map(whole), ["0", "1", "1,235"]);
    }

    #[test]
    fn csv_has_the_union_of_all_properties() {
        let expected = "PartitionKey,RowKey,Note,Price,Stock\nbolts,m4x20,,0.12,1200\n\
            nuts,m4,\"a,b\n\"\"c\"\"\",,5\n";
        assert_eq!(print(&parts(), None, Format::Csv), expected);
        let select = ["Stock".to_owned(), "Nope".to_owned()];
        assert_eq!(print(&parts(), Some(&select), Format::Csv), "Stock,Nope\n1200,\n5,\n");
    }

    #[test]
    fn json_and_ndjson() {
        let select = ["Stock".to_owned()];
        assert_eq!(
            print(&parts(), Some(&select), Format::Json),
            "[\n{\"Stock\":1200},\n{\"Stock\":5}\n]\n"
        );
        assert_eq!(
            print(&parts(), Some(&select), Format::Ndjson),
            "{\"Stock\":1200}\n{\"Stock\":5}\n"
        );
        assert_eq!(print(&[], None, Format::Json), "[\n]\n");
    }

    #[test]
    fn thousands() {
        assert_eq!(with_thousands(0), "0");
        assert_eq!(with_thousands(999), "999");
        assert_eq!(with_thousands(336_776), "336,776");
        assert_eq!(with_thousands(1_000_000), "1,000,000");
    }
}
