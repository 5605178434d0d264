//! Reads and writes comma-separated values (RFC 4180). Rows are read with their line numbers.
//!
//! The reader must be fast, because an import reads its input twice. It is strict where guessing
//! would lose data: a row with a stray or unclosed quote is reported as malformed, with its line
//! number, and reading continues after it. The `csv` crate is not used: it silently reads `"a"b` as
//! `ab`, and after an unclosed quote it reads the rest of the input as one field.
//!
//! Invariants
//! * a row is at most [`ROW_BYTES_MAX`] long, so memory is bounded whatever the input;
//! * fields are raw bytes; a quoted field loses its quotes, and doubled quotes become single.

use std::io::{self, Read};

use crate::json::window::Window;

/// The maximum length of a row in bytes, which is enough for an entity of 1 MiB with any quoting.
pub(super) const ROW_BYTES_MAX: usize = 8 << 20;

/// The separators of fields that are detected, the likeliest first.
const DELIMITERS: [u8; 4] = *b",;\t|";

/// Reads rows.
pub(super) struct CsvReader<R> {
    window: Window<R>,
    delimiter: u8,
    /// The line number of the first line in `window`.
    line: u64,
    /// The number of bytes at the start of `window` that the last row occupies.
    taken: usize,
    fields: Vec<Field>,
}

/// One row: its line number and its fields.
pub(super) struct Row<'a> {
    /// The line that the row begins on; the first is 1.
    pub(super) line: u64,
    /// The reason why the row is malformed; the fields are meaningless then.
    pub(super) problem: Option<&'static str>,
    bytes: &'a [u8],
    fields: &'a [Field],
}

/// The position of a field in its row.
#[derive(Clone, Copy)]
struct Field {
    start: usize,
    end: usize,
    /// Whether the field is quoted and contains doubled quotes.
    doubled: bool,
}

/// The result of scanning the window.
enum Scan {
    Row {
        taken: usize,
        lines: u64,
        problem: Option<&'static str>,
    },
    /// The window ends before the row does. If `quoted` is set, it ends inside a quoted field.
    Cut {
        quoted: bool,
    },
}

/// The start of a first line that names the separator of fields, such as `sep=;`, as Excel does.
const SEPARATOR_LINE: &[u8] = b"sep=";

/// Returns the separator that the first line names, and the length of that line.
fn separator_line(head: &[u8]) -> Option<(u8, usize)> {
    let (&separator, end) = head.strip_prefix(SEPARATOR_LINE)?.split_first()?;
    let end = [&b"\r\n"[..], b"\n"].into_iter().find(|line_end| end.starts_with(line_end))?;
    let is_usable = separator.is_ascii() && !matches!(separator, b'"' | b'\r' | b'\n');
    is_usable.then_some((separator, SEPARATOR_LINE.len() + 1 + end.len()))
}

/// Detects the separator of fields: the one that the first line names, or else the one that is most
/// frequent in it, outside of quotes.
pub(super) fn delimiter_of(head: &[u8]) -> u8 {
    if let Some((separator, _)) = separator_line(head) {
        return separator;
    }
    let mut counts = [0; DELIMITERS.len()];
    let mut quoted = false;
    for byte in head.iter().skip_while(|byte| matches!(byte, b'\r' | b'\n')) {
        quoted ^= *byte == b'"';
        if *byte == b'\n' && !quoted {
            break;
        }
        let known = DELIMITERS.iter().position(|delimiter| delimiter == byte && !quoted);
        known.and_then(|at| counts.get_mut(at)).into_iter().for_each(|count| *count += 1);
    }
    // The last of the greatest is chosen.
    let ranked = DELIMITERS.into_iter().zip(counts).rev();
    ranked.max_by_key(|(_, count)| *count).map_or(b',', |(delimiter, _)| delimiter)
}

impl<R: Read> CsvReader<R> {
    pub(super) fn new(source: R, delimiter: u8) -> Self {
        Self { window: Window::new(source), delimiter, line: 1, taken: 0, fields: Vec::new() }
    }

    /// Returns the next row, and skips empty lines and a first line that names the separator.
    /// Returns `None` at the end of the input.
    pub(super) fn next(&mut self) -> io::Result<Option<Row<'_>>> {
        if self.line == 1 {
            self.skip_separator_line()?;
        }
        loop {
            self.window.consume(self.taken);
            self.taken = 0;
            if self.window.bytes().is_empty() && !self.window.fill()? {
                return Ok(None);
            }
            let (line, problem) = self.scan()?;
            let empty = self.fields.len() == 1 && self.fields.iter().all(Field::is_plain_empty);
            if !empty || problem.is_some() {
                self.undouble();
                let bytes = self.window.bytes();
                return Ok(Some(Row { line, problem, bytes, fields: &self.fields }));
            }
        }
    }

    fn skip_separator_line(&mut self) -> io::Result<()> {
        let line_max = SEPARATOR_LINE.len() + 3;
        while self.window.bytes().len() < line_max && self.window.fill()? {}
        if let Some((_, len)) = separator_line(self.window.bytes()) {
            self.window.consume(len);
            self.line += 1;
        }
        Ok(())
    }

    /// Scans one row, reading more input as needed. Returns its first line number, and the problem
    /// if it is malformed.
    fn scan(&mut self) -> io::Result<(u64, Option<&'static str>)> {
        let line = self.line;
        loop {
            self.fields.clear();
            let bytes = self.window.bytes();
            let last = self.window.is_last();
            match scan_row(bytes, self.delimiter, last, &mut self.fields) {
                Scan::Row { taken, lines, problem } => {
                    self.taken = taken;
                    self.line += lines;
                    return Ok((line, problem));
                }
                Scan::Cut { .. } if bytes.len() < ROW_BYTES_MAX && !last => {
                    self.window.fill()?;
                }
                Scan::Cut { quoted } => {
                    let problem =
                        if quoted { "a quote is never closed" } else { "the row is too long" };
                    // Skips only the first line of the row, so that one stray quote makes only one
                    // line malformed.
                    self.window.skip_line()?;
                    self.line += 1;
                    self.fields.clear();
                    return Ok((line, Some(problem)));
                }
            }
        }
    }

    /// Replaces doubled quotes by single ones, in place.
    fn undouble(&mut self) {
        let bytes = self.window.bytes_mut();
        for field in self.fields.iter_mut().filter(|field| field.doubled) {
            let mut to = field.start;
            let mut from = field.start;
            while from < field.end {
                bytes[to] = bytes[from];
                from += if bytes[from] == b'"' { 2 } else { 1 };
                to += 1;
            }
            field.end = to;
        }
    }
}

impl<'a> Row<'a> {
    pub(super) fn len(&self) -> usize {
        self.fields.len()
    }

    /// Returns the bytes of field `i`; empty if there is no such field.
    #[inline]
    pub(super) fn field(&self, i: usize) -> &'a [u8] {
        self.fields.get(i).and_then(|f| self.bytes.get(f.start..f.end)).unwrap_or_default()
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = &'a [u8]> {
        self.fields.iter().map(|f| self.bytes.get(f.start..f.end).unwrap_or_default())
    }
}

impl Field {
    /// Whether the field is empty and unquoted, and the first of its row.
    fn is_plain_empty(&self) -> bool {
        self.start == self.end && self.start == 0
    }
}

/// Scans the row at the start of `bytes`. If `last` is set, the input ends with `bytes`.
fn scan_row(bytes: &[u8], delimiter: u8, last: bool, fields: &mut Vec<Field>) -> Scan {
    let mut at = 0;
    let mut lines = 1;
    let mut problem = None;
    loop {
        let mut field = Field { start: at, end: at, doubled: false };
        let quoted = bytes.get(at) == Some(&b'"');
        if quoted {
            let Some(end) = scan_quoted(bytes, last, &mut field, &mut lines) else {
                return Scan::Cut { quoted: true };
            };
            at = end;
        }
        let rest = bytes.get(at..).unwrap_or_default();
        let len = rest.iter().position(|&byte| byte == delimiter || byte == b'\n');
        if len.is_none() && !last {
            return Scan::Cut { quoted: false };
        }
        let len = len.unwrap_or(rest.len());
        let separator = rest.get(len).copied();
        let row_ends = separator != Some(delimiter) || delimiter == b'\n';
        let text = rest.get(..len).unwrap_or_default();
        let text = if row_ends { text.strip_suffix(b"\r").unwrap_or(text) } else { text };
        if !quoted {
            field.end = at + text.len();
        } else if !text.is_empty() {
            problem = Some("text after a closing quote");
        }
        fields.push(field);
        at += len + usize::from(separator.is_some());
        if row_ends {
            return Scan::Row { taken: at, lines, problem };
        }
    }
}

/// Scans the quoted text that starts at `field.start`, and sets `field`. Returns the position after
/// the closing quote, or `None` if that quote may be in bytes that are not read yet.
fn scan_quoted(bytes: &[u8], last: bool, field: &mut Field, lines: &mut u64) -> Option<usize> {
    field.start += 1;
    let mut at = field.start;
    let mut newlines = 0;
    loop {
        match bytes.get(at)? {
            b'"' => match bytes.get(at + 1) {
                Some(b'"') => {
                    field.doubled = true;
                    at += 2;
                }
                None if !last => return None,
                _ => {
                    field.end = at;
                    *lines += newlines;
                    return Some(at + 1);
                }
            },
            byte => {
                newlines += u64::from(*byte == b'\n');
                at += 1;
            }
        }
    }
}

/// Appends a row. An empty field that is alone is quoted, because readers skip empty lines.
pub(crate) fn put_row(
    out: &mut Vec<u8>,
    fields: impl IntoIterator<Item = impl AsRef<[u8]>>,
    delimiter: u8,
) {
    let (start, mut count) = (out.len(), 0);
    for field in fields {
        if count > 0 {
            out.push(delimiter);
        }
        put_field(out, field.as_ref(), delimiter);
        count += 1;
    }
    if count == 1 && out.len() == start {
        out.extend_from_slice(b"\"\"");
    }
    out.push(b'\n');
}

/// Appends a field, quoted if necessary.
fn put_field(out: &mut Vec<u8>, field: &[u8], delimiter: u8) {
    let special = |&byte: &u8| byte == delimiter || matches!(byte, b'"' | b'\n' | b'\r');
    if !field.iter().any(special) {
        return out.extend_from_slice(field);
    }
    out.push(b'"');
    for &byte in field {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_empty_field_is_no_empty_line() {
        let mut out = Vec::new();
        put_row(&mut out, [""], b',');
        put_row(&mut out, ["", ""], b',');
        assert_eq!(out, b"\"\"\n,\n");
        assert_eq!(read(&out), ["1: ", "2: |"]);
    }

    fn read(text: &[u8]) -> Vec<String> {
        let mut reader = CsvReader::new(text, b',');
        let mut rows = Vec::new();
        while let Some(row) = reader.next().unwrap() {
            let fields: Vec<_> = row.fields().map(String::from_utf8_lossy).collect();
            assert_eq!(fields.len(), row.len());
            rows.push(match row.problem {
                Some(problem) => format!("{}! {problem}", row.line),
                None => format!("{}: {}", row.line, fields.join("|")),
            });
        }
        rows
    }

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(read(text.as_bytes()), expected, "{text:?}");
    }

    #[test]
    fn plain_rows() {
        check("", &[]);
        check("a,b\n1,2\n", &["1: a|b", "2: 1|2"]);
        check("a,b\r\n1,2\r\n", &["1: a|b", "2: 1|2"]);
        check("a,b\n1,2", &["1: a|b", "2: 1|2"]);
        check("a,,\n,\n", &["1: a||", "2: |"]);
        check("a\n\n\r\nb\n", &["1: a", "4: b"]);
        check("a b, c \n", &["1: a b| c "]);
        check("5\" pipe,x\n", &["1: 5\" pipe|x"]);
    }

    #[test]
    fn the_delimiter_is_the_most_frequent_of_the_header() {
        for (head, expected) in [
            ("", b','),
            ("a", b','),
            ("a,b", b','),
            ("\na;b,c;d\n1,2,3,4,5\n", b';'),
            ("\ta\tb", b'\t'),
            ("a|b\n", b'|'),
            ("\"x,y\n,z\";b", b';'),
            ("sep=|\r\na,b,c\n", b'|'),
            ("sep=;,x,y\n", b','),
        ] {
            assert_eq!(delimiter_of(head.as_bytes()), expected, "{head:?}");
        }
    }

    #[test]
    fn a_line_that_names_the_separator_is_no_row() {
        check("sep=,\r\na,b\n1,2\n", &["2: a|b", "3: 1|2"]);
        check("sep=;\na,b\n", &["2: a|b"]);
        check("sep=,\n", &[]);
        check("a,b\nsep=,\n", &["1: a|b", "2: sep=|"]);
        check("sep=,x\n", &["1: sep=|x"]);
        check("sep=\n", &["1: sep="]);
    }

    #[test]
    fn quoted_fields() {
        check("\"a,b\",\"c\"\"d\"\n", &["1: a,b|c\"d"]);
        check("\"a\nb\",c\nd,e\n", &["1: a\nb|c", "3: d|e"]);
        check("\"\"\n\"\",\"\"\n", &["1: ", "2: |"]);
        check("\"\"\"\"\r\n", &["1: \""]);
        check("x,\"a\"", &["1: x|a"]);
    }

    #[test]
    fn a_malformed_row_loses_only_itself() {
        check("\"a\"b,c\nd,e\n", &["1! text after a closing quote", "2: d|e"]);
        check("a,\"b\nc,d\ne,f\n", &["1! a quote is never closed", "2: c|d", "3: e|f"]);
    }

    #[test]
    fn long_rows_are_refused_in_bounded_memory() {
        let long = "x".repeat(ROW_BYTES_MAX * 2);
        let text = format!("a\n{long}\nb\n\"{long}\nc\n");
        let expected =
            ["1: a", "2! the row is too long", "3: b", "4! a quote is never closed", "5: c"];
        assert_eq!(read(text.as_bytes()), expected);
    }

    #[test]
    fn rows_are_independent_of_read_boundaries() {
        struct Slow<'a>(&'a [u8]);
        impl Read for Slow<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let len = self.0.len().min(1);
                buffer[..len].copy_from_slice(&self.0[..len]);
                self.0 = &self.0[len..];
                Ok(len)
            }
        }
        let text = b"a,\"b\"\"\r\nc\",d\r\n\r\n\"\",\"x\"y\n1,2,3";
        let mut slow = CsvReader::new(Slow(text), b',');
        let mut rows = Vec::new();
        while let Some(row) = slow.next().unwrap() {
            let fields: Vec<_> = row.fields().map(String::from_utf8_lossy).collect();
            rows.push(match row.problem {
                Some(problem) => format!("{}! {problem}", row.line),
                None => format!("{}: {}", row.line, fields.join("|")),
            });
        }
        assert_eq!(rows, read(text));
        assert_eq!(rows.len(), 3);
    }

    #[test]
    fn written_csv_is_read_back() {
        let fields = ["plain", "a,b", "say \"hi\"", "two\nlines", "", "cr\r"];
        let mut out = Vec::new();
        put_row(&mut out, fields, b',');
        assert_eq!(read(&out), [format!("1: {}", fields.join("|"))]);
    }
}
