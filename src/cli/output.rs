//! Prints results to standard output: aligned tables for people, JSON and CSV for programs.
//!
//! Invariants
//! * memory is bounded: a table for people is laid out page by page;
//! * a closed pipe ends the command silently.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use clap::{Args, ValueEnum};

use super::csv;
use super::failure::{Failure, Outcome};
use super::files::Overwrite;
pub(super) use crate::codec::text::with_thousands;
use crate::error::Result;
use crate::json::odata::{self, Metadata};
use crate::json::{self, Object, Scalar};
use crate::model::{Entity, SYSTEM_PROPERTIES, ValueRef};

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Aligned columns, for people
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
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct FormatArgs {
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

/// The destination of a command's result.
pub(super) struct Output(BufWriter<Box<dyn Write>>);

/// Rows per page of a table.
const PAGE_ROWS: usize = 500;
/// The longest value in a table, in characters.
const CELL_CHARS_MAX: usize = 48;

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

impl Output {
    pub(super) fn standard() -> Self {
        Self::to(io::stdout())
    }

    /// Opens the file at `path`, or standard output if there is no path.
    pub(super) fn to_file(path: Option<&Path>, overwrite: Overwrite) -> Outcome<Self> {
        let file = path.map(|path| overwrite.create(path)).transpose()?;
        Ok(file.map_or_else(Self::standard, Self::to))
    }

    fn to(target: impl Write + 'static) -> Self {
        Self(BufWriter::with_capacity(64 << 10, Box::new(target)))
    }

    /// Flushes the output, and fails if it cannot be written.
    pub(super) fn finish(mut self) -> Outcome {
        Ok(self.0.flush()?)
    }

    /// Writes a line with one JSON object, whose members `put` writes.
    pub(super) fn object(&mut self, put: impl FnOnce(&mut Object<'_>)) -> io::Result<()> {
        writeln!(self, "{}", json::object(put))
    }

    /// Writes JSON objects, one per line, or as CSV with the members of the first as columns.
    pub(super) fn records(&mut self, objects: &[String], format: Format) -> Outcome {
        if format != Format::Csv {
            return Ok(objects.iter().try_for_each(|object| writeln!(self, "{object}"))?);
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
        Ok(self.write_all(&lines)?)
    }

    /// Writes items that are already JSON: as one array, or one per line.
    pub(super) fn items(&mut self, items: &[String], format: Format) -> io::Result<()> {
        match format {
            Format::Json => writeln!(self, "[\n{}\n]", items.join(",\n")),
            _ => items.iter().try_for_each(|item| writeln!(self, "{item}")),
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes the whole result of a command to standard output.
pub(super) fn print<E: Into<Failure>>(
    write: impl FnOnce(&mut Output) -> std::result::Result<(), E>,
) -> Outcome {
    let mut output = Output::standard();
    write(&mut output).map_err(Into::into)?;
    output.finish()
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
            output.write_all(json)?;
            output.write_all(b"\n")
        }),
        Format::Json => {
            output.write_all(b"[")?;
            for_each_json(entities()?, select, Metadata::MINIMAL, |json, first| {
                output.write_all(if first { b"\n" } else { b",\n" })?;
                output.write_all(json)
            })?;
            Ok(output.write_all(b"\n]\n")?)
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
    output.write_all(&line)?;
    for entity in entities()? {
        let entity = entity?;
        line.clear();
        csv::put_row(&mut line, columns.iter().map(|name| text_of(&entity, name)), b',');
        output.write_all(&line)?;
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
    let mut header: Vec<String> = Vec::new();
    let mut widths: Vec<usize> = Vec::new();
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
        let layout = Layout::new(&page, columns, &widths, header.as_slice());
        layout.write(output, &header)?;
        (header, widths) = (layout.columns, layout.widths);
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
        return output.write_all(&lines);
    }
    let cells = rows.iter().map(|row| row.iter().map(|text| cell(text.as_bytes())).collect());
    Layout::of(columns, cells.collect(), right, &[]).write(output, &[])
}

/// One page of a table.
struct Layout {
    columns: Vec<String>,
    widths: Vec<usize>,
    right: Vec<bool>,
    cells: Vec<Vec<String>>,
}

impl Layout {
    /// Lays out a page. No column gets narrower than on the previous page, so that pages align.
    fn new(page: &[Entity], columns: Vec<String>, widths: &[usize], header: &[String]) -> Self {
        let cells: Vec<Vec<String>> = page
            .iter()
            .map(|entity| columns.iter().map(|name| cell(&text_of(entity, name))).collect())
            .collect();
        let right = columns.iter().map(|name| is_numeric(page, name)).collect();
        let widths = if columns == header { widths } else { &[] };
        Self::of(columns, cells, right, widths)
    }

    /// Lays out cells; no column is narrower than its width in `widths`.
    fn of(
        columns: Vec<String>,
        cells: Vec<Vec<String>>,
        right: Vec<bool>,
        widths: &[usize],
    ) -> Self {
        let widths = (0..columns.len())
            .map(|i| {
                let lens =
                    cells.iter().filter_map(|row| row.get(i)).map(|text| text.chars().count());
                let name = columns.get(i).map_or(0, |name| name.chars().count());
                let before = widths.get(i).copied().unwrap_or(0);
                lens.max().unwrap_or(0).max(name).max(before)
            })
            .collect();
        Self { columns, widths, right, cells }
    }

    fn write(&self, output: &mut Output, header: &[String]) -> io::Result<()> {
        if self.columns != header {
            if !header.is_empty() {
                writeln!(output)?;
            }
            self.write_row(output, &self.columns)?;
            let rules: Vec<_> = self.widths.iter().map(|width| "-".repeat(*width)).collect();
            self.write_row(output, &rules)?;
        }
        self.cells.iter().try_for_each(|row| self.write_row(output, row))
    }

    fn write_row(&self, output: &mut Output, row: &[String]) -> io::Result<()> {
        let mut line = String::new();
        for ((text, width), right) in row.iter().zip(&self.widths).zip(&self.right) {
            let padding = " ".repeat(width.saturating_sub(text.chars().count()));
            if !line.is_empty() {
                line.push_str("  ");
            }
            match right {
                true => line.extend([padding.as_str(), text]),
                false => line.extend([text.as_str(), &padding]),
            }
        }
        writeln!(output, "{}", line.trim_end())
    }
}

fn is_numeric(page: &[Entity], name: &str) -> bool {
    let mut values = page.iter().filter_map(|entity| entity.value(name)).peekable();
    let number =
        |value| matches!(value, ValueRef::Int32(_) | ValueRef::Int64(_) | ValueRef::Double(_));
    !SYSTEM_PROPERTIES.contains(&name) && values.peek().is_some() && values.all(number)
}

/// Formats a value for a table: control characters escaped, truncated if it is long.
fn cell(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    match text.char_indices().nth(CELL_CHARS_MAX) {
        Some((end, _)) => without_control(&text[..end]) + "…",
        None => without_control(&text),
    }
}

/// Escapes control characters, so that a terminal only displays the text.
pub(super) fn without_control(text: &str) -> String {
    let shown = |c: char| match c.is_control() {
        true => c.escape_default().collect::<Vec<_>>(),
        false => vec![c],
    };
    text.chars().flat_map(shown).collect()
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
    let names = lines.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
    for (name, text, edm) in lines {
        let padding = " ".repeat(names - name.chars().count());
        let text = without_control(&text);
        let edm = if edm.is_empty() { String::new() } else { format!("  ({edm})") };
        writeln!(output, "{name}{padding}  {text}{edm}")?;
    }
    if let Some(etag) = entity.etag() {
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
    problems.iter().try_for_each(|problem| writeln!(output, "problem: {problem}"))?;
    match problems.len() {
        0 => writeln!(output, "no problems"),
        1 => writeln!(output, "1 problem"),
        count => writeln!(output, "{count} problems"),
    }
}

/// Formats a count with its noun: `1,000 rows`, `1 row`.
pub(super) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", with_thousands(count), if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;
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

    fn print(entities: &[Entity], select: Option<&[String]>, format: Format) -> String {
        let sink = Sink::default();
        let mut output = Output::to(sink.clone());
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
        let text = print(&[entity], Some(&["A".into()]), Format::Table);
        assert_eq!(text.lines().nth(2), Some(&*format!("{}…", "x".repeat(CELL_CHARS_MAX))));
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
