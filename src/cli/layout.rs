//! Lays out tables for people: aligned columns that fit the width of the terminal, or one value a
//! line where the columns cannot fit.
//!
//! Invariants
//! * without a limit no column is cut;
//! * numbers are never cut, and keys only after all other columns.

use std::borrow::Cow;
use std::io::{self, Write};

use terminal_size::{Height, Width};
use unicode_width::UnicodeWidthStr;

/// The space for a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Screen {
    /// The columns of the terminal; `None` if lines may have any length.
    pub(super) columns: Option<usize>,
    /// The longest value, in characters.
    pub(super) value_chars: usize,
}

/// The longest value in a table, in characters.
const VALUE_CHARS_MAX: usize = 48;
/// A column of texts is not cut to less than this.
const LEAST_WIDTH: usize = 8;
/// The space between two columns.
const GAP: usize = 2;

impl Screen {
    /// Lines may have any length, but long values are cut.
    pub(super) const PLAIN: Self = Self { columns: None, value_chars: VALUE_CHARS_MAX };
    /// Nothing is cut.
    pub(super) const WIDE: Self = Self { columns: None, value_chars: usize::MAX };

    /// The terminal on standard output. If it is no terminal, the variable `COLUMNS` decides.
    pub(super) fn of_standard_output() -> Self {
        Self::of(terminal_size::terminal_size_of(io::stdout()))
    }

    /// Like [`of_standard_output`](Self::of_standard_output), for standard error.
    pub(super) fn of_standard_error() -> Self {
        Self::of(terminal_size::terminal_size_of(io::stderr()))
    }

    fn of(terminal: Option<(Width, Height)>) -> Self {
        let columns = match terminal {
            Some((columns, _)) => Some(columns.0.into()),
            None => std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()),
        };
        Self { columns: columns.filter(|columns| *columns > 0), ..Self::PLAIN }
    }

    /// Returns the shorter of the width of the screen and `columns`.
    pub(super) fn at_most(self, columns: usize) -> usize {
        self.columns.map_or(columns, |limit| limit.min(columns))
    }
}

/// The columns of a terminal that `text` takes: two for a wide character.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// Cuts `text` to `columns` of a terminal.
pub(super) fn cut(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return text.into();
    }
    // Some characters take no column; a text may have any number of them.
    let ends = text.char_indices().map(|(end, _)| end).take(columns.saturating_mul(4).max(16));
    let end = ends.take_while(|end| width(&text[..*end]) < columns).last().unwrap_or(0);
    format!("{}…", &text[..end]).into()
}

/// Returns `text` with spaces up to `columns` of a terminal.
pub(super) fn padded(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

/// Writes `text` in wrapped lines of at most `columns`. The first line starts with `lead`, and the
/// others are indented by its width, but at most by half of a line. A word that no line has room
/// for is divided.
pub(super) fn write_wrapped(
    output: &mut impl Write,
    columns: usize,
    lead: &str,
    text: &str,
) -> io::Result<()> {
    if width(lead) + width(text) <= columns {
        return writeln!(output, "{}", format!("{lead}{text}").trim_end());
    }
    let mut line = lead.to_owned();
    let mut is_empty = true;
    let indent = width(lead).min(columns / 2);
    let room = columns.saturating_sub(indent).max(1);
    for word in text.split(char::is_whitespace) {
        if word.is_empty() && !is_empty {
            line.push(' ');
        }
        for piece in pieces(word, room) {
            let gap = usize::from(!is_empty);
            if width(&line) > indent && width(&line) + gap + width(piece) > columns {
                writeln!(output, "{}", line.trim_end())?;
                line = " ".repeat(indent);
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line.push_str(piece);
            is_empty = false;
        }
    }
    writeln!(output, "{}", line.trim_end())
}

/// Divides `word` into pieces of at most `columns`, or of one character.
fn pieces(word: &str, columns: usize) -> impl Iterator<Item = &str> {
    let mut rest = word;
    std::iter::from_fn(move || {
        let starts = rest.char_indices().map(|(start, _)| start).skip(1).chain([rest.len()]);
        let fits = |end: &usize| width(&rest[..*end]) <= columns;
        let shortest = rest.chars().next()?.len_utf8();
        let end = starts.take_while(fits).last().unwrap_or(shortest);
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(piece)
    })
}

/// Rows of a table under their columns.
pub(super) struct Layout {
    pub(super) columns: Vec<String>,
    pub(super) cells: Vec<Vec<String>>,
    /// Which columns are numbers, aligned to the right.
    pub(super) right: Vec<bool>,
}

/// The columns that a page of a table was printed with, for the next page.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Header {
    columns: Vec<String>,
    widths: Vec<usize>,
}

impl Layout {
    /// Writes the table. If its columns are those of the page `before`, it is aligned with that
    /// page where it fits, and has no header of its own.
    pub(super) fn write(
        self,
        output: &mut impl Write,
        screen: Screen,
        before: Option<Header>,
    ) -> io::Result<Header> {
        let is_first = before.is_none();
        let before = before.filter(|before| before.columns == self.columns);
        let aligned = before.and_then(|before| self.widths(screen, &before.widths));
        if let Some(widths) = aligned {
            return self.write_rows(output, widths);
        }
        if !is_first {
            writeln!(output)?;
        }
        let Some(widths) = self.widths(screen, &[]) else {
            self.write_records(output, screen)?;
            return Ok(Header::default());
        };
        write_row(output, &self.columns, &widths, &self.right)?;
        let rules: Vec<_> = widths.iter().map(|width| "-".repeat(*width)).collect();
        write_row(output, &rules, &widths, &self.right)?;
        self.write_rows(output, widths)
    }

    fn write_rows(self, output: &mut impl Write, widths: Vec<usize>) -> io::Result<Header> {
        self.cells.iter().try_for_each(|row| write_row(output, row, &widths, &self.right))?;
        Ok(Header { columns: self.columns, widths })
    }

    /// Returns the widths of the columns, none less than in `before`. Returns `None` if the screen
    /// is too narrow for them.
    fn widths(&self, screen: Screen, before: &[usize]) -> Option<Vec<usize>> {
        let mut least = Vec::new();
        let mut widths: Vec<usize> = Vec::new();
        for (i, name) in self.columns.iter().enumerate() {
            let cells = self.cells.iter().filter_map(|row| row.get(i)).map(|text| width(text));
            let (cells, name) = (cells.max().unwrap_or(0), width(name));
            let before = before.get(i).copied().unwrap_or(0);
            let is_number = self.right.get(i) == Some(&true);
            let text = if is_number { name } else { name.max(cells) };
            let number = if is_number { cells } else { 0 };
            least.push(text.min(LEAST_WIDTH).max(number).max(before));
            widths.push(name.max(cells).max(before));
        }
        let Some(columns) = screen.columns else { return Some(widths) };
        let space = columns.checked_sub(GAP * self.columns.len().saturating_sub(1))?;
        if least.iter().sum::<usize>() > space {
            return None;
        }
        let mut excess = widths.iter().sum::<usize>().saturating_sub(space);
        for keys in [false, true] {
            while excess > 0 {
                let mut may = (0..widths.len()).filter(|i| self.is_key(*i) == keys);
                let Some(widest) =
                    may.by_ref().filter(|i| widths[*i] > least[*i]).max_by_key(|i| widths[*i])
                else {
                    break;
                };
                widths[widest] -= 1;
                excess -= 1;
            }
        }
        Some(widths)
    }

    /// Whether this is a column of keys: those of entities, or else the first one.
    fn is_key(&self, column: usize) -> bool {
        let is_key = |name: &String| matches!(name.as_str(), "PartitionKey" | "RowKey");
        match self.columns.iter().any(is_key) {
            true => self.columns.get(column).is_some_and(is_key),
            false => column == 0,
        }
    }

    /// Writes each cell that is not empty, or is a key, on its own line, and an empty line between
    /// rows.
    fn write_records(&self, output: &mut impl Write, screen: Screen) -> io::Result<()> {
        let columns = screen.columns.unwrap_or(usize::MAX);
        let names = self.columns.iter().map(|name| width(name)).max().unwrap_or(0);
        // A name has at most half of the line.
        let names = names.min(columns / 2);
        let values = columns.saturating_sub(names + GAP).max(1);
        for (i, row) in self.cells.iter().enumerate() {
            if i > 0 {
                writeln!(output)?;
            }
            for (j, (name, text)) in self.columns.iter().zip(row).enumerate() {
                if !text.is_empty() || self.is_key(j) {
                    let name = padded(&cut(name, names), names + GAP);
                    writeln!(output, "{}", format!("{name}{}", cut(text, values)).trim_end())?;
                }
            }
        }
        Ok(())
    }
}

fn write_row(
    output: &mut impl Write,
    row: &[String],
    widths: &[usize],
    right: &[bool],
) -> io::Result<()> {
    let mut line = String::new();
    for (i, (text, columns)) in row.iter().zip(widths).enumerate() {
        let text = cut(text, *columns);
        let padding = " ".repeat(columns.saturating_sub(width(&text)));
        if i > 0 {
            line.push_str("  ");
        }
        match right.get(i) {
            Some(true) => line.extend([padding.as_str(), &text]),
            _ => line.extend([&text, padding.as_str()]),
        }
    }
    writeln!(output, "{}", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(columns: &[&str], rows: &[&[&str]], right: &[&str]) -> Layout {
        let texts = |row: &[&str]| row.iter().map(|text| (*text).to_owned()).collect();
        Layout {
            columns: texts(columns),
            cells: rows.iter().map(|row| texts(row)).collect(),
            right: columns.iter().map(|name| right.contains(name)).collect(),
        }
    }

    fn written(layout: Layout, columns: usize, before: Option<Header>) -> (Vec<String>, Header) {
        let mut out = Vec::new();
        let screen = Screen { columns: Some(columns), ..Screen::PLAIN };
        let header = layout.write(&mut out, screen, before).unwrap();
        let lines: Vec<_> = String::from_utf8(out).unwrap().lines().map(str::to_owned).collect();
        assert!(lines.iter().all(|line| width(line) <= columns), "{lines:#?}");
        (lines, header)
    }

    /// Two keys of 12, two texts of 20, and a number of 5: 77 columns with their gaps.
    fn wide() -> Layout {
        let texts: Vec<_> = ["k", "r", "a", "b"].map(|text| text.repeat(20)).into();
        let row = [&texts[0][..12], &texts[1][..12], &texts[2], &texts[3], "12345"];
        layout(&["PartitionKey", "RowKey", "A", "B", "N"], &[&row], &["N"])
    }

    #[test]
    fn the_widest_columns_are_cut_first_and_keys_last() {
        let shown = |columns| written(wide(), columns, None).0[2].clone();
        let (k, r) = ("k".repeat(12), "r".repeat(12));
        assert_eq!(shown(77), format!("{k}  {r}  {}  {}  12345", "a".repeat(20), "b".repeat(20)));
        // The rightmost of two equally wide columns.
        assert_eq!(shown(76), format!("{k}  {r}  {}  {}…  12345", "a".repeat(20), "b".repeat(18)));
        assert_eq!(shown(60), format!("{k}  {r}  {}…  {}…  12345", "a".repeat(11), "b".repeat(10)));
        assert_eq!(shown(53), format!("{k}  {r}  aaaaaaa…  bbbbbbb…  12345"));
        assert_eq!(shown(50), "kkkkkkkkkk…  rrrrrrrrr…  aaaaaaa…  bbbbbbb…  12345");
        assert_eq!(shown(45), "kkkkkkk…  rrrrrrr…  aaaaaaa…  bbbbbbb…  12345");
    }

    #[test]
    fn columns_that_cannot_fit_become_lines() {
        let (lines, header) = written(wide(), 44, None);
        assert_eq!(lines[0], format!("PartitionKey  {}", "k".repeat(12)));
        assert_eq!(lines[4], "N             12345");
        assert_eq!(header, Header::default());
        let (lines, _) = written(wide(), 16, Some(header));
        assert_eq!((lines[0].as_str(), lines[1].as_str()), ("", "Partiti…  kkkkk…"));
        let rows: [&[&str]; 2] = [&["x", "", "1"], &["y", "2", ""]];
        let (lines, _) = written(layout(&["one", "two", "three"], &rows, &[]), 10, None);
        assert_eq!(lines, ["one    x", "three  1", "", "one    y", "two    2"]);
        // Keys are shown even if they are empty.
        let rows: [&[&str]; 2] = [&["", "", ""], &["", "r", "1"]];
        let keys = ["PartitionKey", "RowKey", "A"];
        let (lines, _) = written(layout(&keys, &rows, &[]), 16, None);
        let second = ["Partiti…", "RowKey    r", "A         1"];
        assert_eq!(lines, [&["Partiti…", "RowKey", ""][..], &second].concat());
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let rows: [&[&str]; 3] = [&["日本", "1"], &["ab", "2"], &["🙂", "3"]];
        let (lines, _) = written(layout(&["Name", "N"], &rows, &["N"]), 80, None);
        assert_eq!(lines[2..], ["日本  1", "ab    2", "🙂    3"]);
        assert_eq!(
            (cut("日本語", 6), cut("日本語", 5), cut("日本語", 4)),
            ("日本語".into(), "日本…".into(), "日…".into())
        );
        assert_eq!((cut("abc", 1), cut("", 0)), ("…".into(), "".into()));
    }

    #[test]
    fn pages_are_aligned_where_they_fit() {
        let page = |text: &str| layout(&["Key", "Text"], &[&["k", text]], &[]);
        let (lines, header) = written(page("long text"), 80, None);
        assert_eq!(lines.len(), 3);
        let (lines, header) = written(page("x"), 80, Some(header));
        assert_eq!(lines, ["k    x"]);
        assert_eq!(header.widths, [3, 9]);
        // Other columns have their own header.
        let (lines, _) = written(layout(&["Key"], &[&["k"]], &[]), 80, Some(header));
        assert_eq!(lines, ["", "Key", "---", "k"]);
    }

    #[test]
    fn text_is_wrapped_below_its_lead() {
        let mut out = Vec::new();
        write_wrapped(&mut out, 12, "a: ", "one two three 日本 日本").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a: one two\n   three\n   日本 日本\n");
        let wrapped = |columns, text: &str| {
            let mut out = Vec::new();
            write_wrapped(&mut out, columns, "- ", text).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(wrapped(11, "as  it is"), "- as  it is\n");
        assert_eq!(wrapped(10, "as  it is  so"), "- as  it\n  is  so\n");
        assert_eq!(wrapped(8, "a bcdefghijklmn o"), "- a\n  bcdefg\n  hijklm\n  n o\n");
        let mut out = Vec::new();
        write_wrapped(&mut out, 12, "a long name  ", "one two").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a long name\n      one\n      two\n");
        assert_eq!((wrapped(1, "日本"), wrapped(9, "")), ("-\n日\n本\n".into(), "-\n".into()));
    }
}
