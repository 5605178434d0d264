//! Splits JSON documents into their elements, and holds one element at a time.
//!
//! A document is an array, or an object with an array in a member `items` or `value`; its elements
//! are those of the array. Any other object is an element itself. Documents may follow one another.
//!
//! Invariants
//! * memory is bounded by the longest allowed element; a longer one is reported once and skipped;
//! * only quotes, brackets and commas delimit an element. Its contents are not checked here, so a
//!   caller can reject an element and read the next one.

use std::io::{self, Read};

use super::plain::plain_len;
use super::window::Window;

/// Iterates over the elements of a stream.
pub(crate) struct Elements<R> {
    window: Window<R>,
    bytes_max: usize,
    number: u64,
    /// The number of the first line in the window.
    line: u64,
    /// The number of bytes of the last element that are still in the window.
    taken: usize,
    /// Whether the next element is in an array, and whether that array is a member of an object.
    array: Option<Wrapped>,
    /// Whether a comma must precede the next element.
    needs_comma: bool,
}

type Wrapped = bool;

/// One element.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Element<'a> {
    /// The number of the element in the stream, counted from 1.
    pub(crate) number: u64,
    /// The line on which the element begins.
    pub(crate) line: u64,
    /// `None` if the element is longer than allowed.
    pub(crate) bytes: Option<&'a [u8]>,
}

/// The end of a scan.
enum Scanned {
    /// A value ends. The first bytes of a value that is too long were dropped.
    Value { too_long: bool },
    /// The array of a document begins. Everything before its first element was consumed.
    Array,
}

impl<R: Read> Elements<R> {
    pub(crate) fn new(source: R, bytes_max: usize) -> Self {
        let window = Window::new(source);
        Self { window, bytes_max, number: 0, line: 1, taken: 0, array: None, needs_comma: false }
    }

    /// Returns the next element, or `None` at the end of the stream.
    ///
    /// # Errors
    /// Errors of the stream; `InvalidData` if the elements cannot be delimited, with the line.
    pub(crate) fn next(&mut self) -> io::Result<Option<Element<'_>>> {
        self.drop_taken();
        let (line, too_long) = loop {
            let first = self.peek()?;
            let line = self.line;
            match (self.array, first) {
                (None, None) => return Ok(None),
                (None, Some(b'[')) => {
                    self.consume(1);
                    (self.array, self.needs_comma) = (Some(false), false);
                }
                (None, Some(b'{')) => {
                    if let Some(too_long) = self.scan_wrapper(0)? {
                        break (line, too_long);
                    }
                }
                (None, _) => return Err(self.malformed("expected an array or an object")),
                (Some(_), None) => return Err(self.malformed("the array is not closed")),
                (Some(is_wrapped), Some(b']')) => {
                    self.consume(1);
                    self.array = None;
                    // Skips the members behind the array.
                    if is_wrapped && self.scan_wrapper(1)?.is_some() {
                        self.drop_taken();
                    }
                }
                (Some(_), Some(b',')) if self.needs_comma => {
                    self.consume(1);
                    self.needs_comma = false;
                }
                (Some(_), _) if self.needs_comma => {
                    return Err(self.malformed("expected ',' or ']'"));
                }
                (Some(_), _) => {
                    self.needs_comma = true;
                    break (
                        line,
                        matches!(self.scan(0, false)?, Scanned::Value { too_long: true }),
                    );
                }
            }
        };
        self.number += 1;
        let bytes = self.window.bytes().get(..self.taken).unwrap_or_default();
        let admitted = !too_long && bytes.len() <= self.bytes_max;
        Ok(Some(Element { number: self.number, line, bytes: admitted.then_some(bytes) }))
    }

    /// Scans an object of which `depth` brackets were consumed, up to the array of a document, or
    /// to its end. At the end, returns whether the object is too long.
    fn scan_wrapper(&mut self, depth: usize) -> io::Result<Option<bool>> {
        match self.scan(depth, true)? {
            Scanned::Value { too_long } => Ok(Some(too_long)),
            Scanned::Array => {
                (self.array, self.needs_comma) = (Some(true), false);
                Ok(None)
            }
        }
    }

    /// Scans the value at the start of the window, of which `depth` brackets were consumed, and
    /// sets `taken`. With `is_wrapper`, stops at the array of a document.
    fn scan(&mut self, mut depth: usize, is_wrapper: bool) -> io::Result<Scanned> {
        let (mut at, mut name, mut too_long, mut is_quoted) = (0, 0, false, false);
        // Whether the last name at depth 1 is that of a document's array, and whether its value
        // follows.
        let (mut is_list, mut is_value) = (false, false);
        loop {
            let bytes = self.window.bytes();
            if is_quoted {
                at += plain_len(bytes.get(at..).unwrap_or_default());
            }
            let Some(&byte) = bytes.get(at) else {
                if at > self.bytes_max {
                    let len = bytes.len().min(at);
                    self.consume(len);
                    (at, too_long) = (at - len, true);
                }
                match self.window.fill()? {
                    true => continue,
                    false if depth == 0 && !is_quoted => break,
                    false => return Err(self.malformed("the input ends within a value")),
                }
            };
            match byte {
                b'\\' if is_quoted => at += 1,
                b'"' if is_quoted => {
                    is_quoted = false;
                    if depth == 1 && !is_value {
                        is_list = matches!(bytes.get(name..at), Some(b"items" | b"value"));
                    }
                }
                _ if is_quoted => {}
                b'"' => (is_quoted, name) = (true, at + 1),
                b'[' if is_wrapper && depth == 1 && is_value && is_list => {
                    self.consume(at + 1);
                    return Ok(Scanned::Array);
                }
                b'[' | b'{' => depth += 1,
                b']' | b'}' | b',' | b' ' | b'\n' | b'\r' | b'\t' if depth == 0 => break,
                b']' | b'}' => {
                    depth -= 1;
                    if depth == 0 {
                        at += 1;
                        break;
                    }
                }
                b':' if depth == 1 => is_value = true,
                b',' if depth == 1 => is_value = false,
                _ => {}
            }
            at += 1;
        }
        self.taken = at;
        Ok(Scanned::Value { too_long })
    }

    /// Skips white space, and returns the next byte.
    fn peek(&mut self) -> io::Result<Option<u8>> {
        loop {
            let bytes = self.window.bytes();
            let space = bytes.len() - bytes.trim_ascii_start().len();
            let found = bytes.get(space).copied();
            self.consume(space);
            if found.is_some() || !self.window.fill()? {
                return Ok(found);
            }
        }
    }

    fn drop_taken(&mut self) {
        let len = std::mem::take(&mut self.taken);
        self.consume(len);
    }

    fn consume(&mut self, len: usize) {
        let bytes = self.window.bytes().get(..len).unwrap_or_default();
        self.line += bytes.iter().filter(|&&byte| byte == b'\n').count() as u64;
        self.window.consume(len);
    }

    fn malformed(&self, problem: &str) -> io::Error {
        let (line, number) = (self.line, self.number);
        let place = if number > 0 { format!(" after element {number}") } else { String::new() };
        io::Error::new(io::ErrorKind::InvalidData, format!("line {line}: {problem}{place}"))
    }
}

/// Whether a stream that begins with `head` consists of documents. If not, it may have an object
/// per line.
pub(crate) fn is_document(head: &[u8]) -> bool {
    let head = head.trim_ascii_start();
    if let Some(inside) = head.strip_prefix(b"[") {
        return matches!(inside.trim_ascii_start().first(), None | Some(b'{' | b']'));
    }
    let mut lines = head.splitn(2, |&byte| byte == b'\n');
    let first = lines.next().filter(|line| line.starts_with(b"{")).unwrap_or_default();
    match Elements::new(first, usize::MAX).scan(0, true) {
        Ok(Scanned::Array) => true,
        Ok(Scanned::Value { .. }) => false,
        // The object of the first line ends on a later one, unless the line is merely malformed.
        Err(_) => lines.next().is_some_and(|rest| !rest.trim_ascii_start().starts_with(b"{")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `text`, `step` bytes at a time.
    fn read(text: &str, step: usize, bytes_max: usize) -> Vec<String> {
        struct Slow<'a>(&'a [u8], usize);
        impl Read for Slow<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let len = self.1.min(self.0.len()).min(buffer.len());
                buffer[..len].copy_from_slice(&self.0[..len]);
                self.0 = &self.0[len..];
                Ok(len)
            }
        }
        let mut elements = Elements::new(Slow(text.as_bytes(), step), bytes_max);
        let mut found = Vec::new();
        loop {
            match elements.next() {
                Ok(Some(Element { line, bytes, .. })) => {
                    let bytes = bytes.map(String::from_utf8_lossy);
                    found.push(format!("{line}: {}", bytes.unwrap_or("too long".into())));
                }
                Ok(None) => return found,
                Err(error) => {
                    found.push(error.to_string());
                    return found;
                }
            }
        }
    }

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        for step in [1, 2, 3, 1000] {
            assert_eq!(read(text, step, 100), expected, "{text:?}, {step} bytes at a time");
        }
    }

    #[test]
    fn arrays_wrappers_and_lone_objects_have_elements() {
        check("", &[]);
        check(" [ ] \n", &[]);
        check(
            "[{\"a\":1},\n{\"b\":\"]}\\\"\"} , {}]\n",
            &["1: {\"a\":1}", "2: {\"b\":\"]}\\\"\"}", "2: {}"],
        );
        check(r#"{"value":[]}"#, &[]);
        check(
            "{\"odata.metadata\":\"x[\",\"n\":{\"value\":[1]},\n\"value\":[{\"value\":[2]},\n3],\"next\":[4]}",
            &["2: {\"value\":[2]}", "3: 3"],
        );
        check("{\"items\" : [{}]}\n{\"items\":[null]} [1]", &["1: {}", "2: null", "2: 1"]);
        check(
            "{\n\"a\": \"value\"\n}\n{\"value\":\"[\"}",
            &["1: {\n\"a\": \"value\"\n}", "4: {\"value\":\"[\"}"],
        );
    }

    #[test]
    fn what_is_not_delimited_is_refused_by_line() {
        check("[{},\n{} {}]", &["1: {}", "2: {}", "line 2: expected ',' or ']' after element 2"]);
        check("[{},\n", &["1: {}", "line 2: the array is not closed after element 1"]);
        check("[{\"a\":\n\"x", &["line 1: the input ends within a value"]);
        check("[1]\n]", &["1: 1", "line 2: expected an array or an object after element 1"]);
        check("[}", &["1: ", "line 1: expected ',' or ']' after element 1"]);
    }

    #[test]
    fn long_elements_are_skipped_in_bounded_memory() {
        let long = format!("{{\"a\":\"{}\"}}", "\\\"x".repeat(1 << 20));
        let text = format!("[{long},\n{{}},\n{long}]");
        assert_eq!(read(&text, 1 << 16, 1000), ["1: too long", "2: {}", "3: too long"]);
        let wrapped =
            format!("{{\"a\":\"{}\",\"value\":[{{}}],\"b\":{long}}}[7]", "x".repeat(9 << 20));
        assert_eq!(read(&wrapped, 1 << 16, 1000), ["1: {}", "1: 7"]);
        let mut elements = Elements::new(wrapped.as_bytes(), 1000);
        while elements.next().unwrap().is_some() {}
        assert!(elements.window.buffer.len() <= 1 << 20);
    }

    #[test]
    fn documents_are_detected() {
        for text in ["[", "[]", " [ {", "{\"value\":[", "{\"a\":[],\"items\": [", "{\n  \"a\": 1"] {
            assert!(is_document(text.as_bytes()), "{text}");
        }
        let lines =
            ["", "[a],[b]", "{\"a\":1}\n{}", "{\"a\":\"", "{\"a\":1\n{}", "{\"value\":\"[\"}", "a"];
        for text in lines {
            assert!(!is_document(text.as_bytes()), "{text}");
        }
    }
}
