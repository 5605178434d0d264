//! Buffers a part of a stream, and reads lines from it.
//!
//! Invariants
//! * the buffer is bounded by the longest allowed line, whatever the length of the input;
//! * a line that is too long is reported once and skipped, and the next one is read.

use std::io::{self, Read};

/// Bytes requested by one read.
const READ_BYTES: usize = 256 << 10;
/// The maximum size of the buffer that is kept after a long line.
const KEPT_BYTES: usize = 1 << 20;

/// The part of a stream that has been read and not yet consumed.
pub(crate) struct Window<R> {
    source: R,
    pub(super) buffer: Vec<u8>,
    start: usize,
    filled: usize,
    ended: bool,
}

/// Iterates over the lines of a stream, without their line ends.
pub(crate) struct Lines<R> {
    window: Window<R>,
    bytes_max: usize,
    number: u64,
    /// The number of bytes at the start of the window that are known to contain no newline.
    searched: usize,
    /// The number of bytes of the last line, including its line end.
    taken: usize,
}

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// The number of the line in the stream, counted from 1.
    pub(crate) number: u64,
    /// `None` if the line is longer than allowed.
    pub(crate) bytes: Option<&'a [u8]>,
}

impl<R: Read> Window<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { source, buffer: Vec::new(), start: 0, filled: 0, ended: false }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.get(self.start..self.filled).unwrap_or_default()
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.buffer.get_mut(self.start..self.filled).unwrap_or_default()
    }

    /// True if the stream has ended, so that [`bytes`](Self::bytes) returns all that remains of it.
    pub(crate) fn is_last(&self) -> bool {
        self.ended
    }

    /// Drops the first `len` bytes.
    pub(crate) fn consume(&mut self, len: usize) {
        self.start = (self.start + len).min(self.filled);
    }

    /// Reads more bytes from the source into the window; returns false at the end of the stream.
    pub(crate) fn fill(&mut self) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        if self.buffer.len() - self.filled < READ_BYTES / 2 {
            self.buffer.copy_within(self.start..self.filled, 0);
            self.filled -= self.start;
            self.start = 0;
            // Frees the memory of a long line that was consumed.
            if self.buffer.len() > KEPT_BYTES && self.filled < READ_BYTES {
                self.buffer.truncate(KEPT_BYTES);
                self.buffer.shrink_to_fit();
            }
            if self.buffer.len() - self.filled < READ_BYTES / 2 {
                self.buffer.resize((self.buffer.len() * 2).max(READ_BYTES), 0);
            }
        }
        let free = self.buffer.get_mut(self.filled..).unwrap_or_default();
        let read = loop {
            match self.source.read(free) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.filled += read;
        self.ended = read == 0;
        Ok(read > 0)
    }

    /// Reads and consumes all bytes up to and including the next newline. Returns false if the
    /// stream ends first.
    pub(crate) fn skip_line(&mut self) -> io::Result<bool> {
        loop {
            if let Some(end) = self.bytes().iter().position(|&byte| byte == b'\n') {
                self.consume(end + 1);
                return Ok(true);
            }
            self.consume(self.bytes().len());
            if !self.fill()? {
                return Ok(false);
            }
        }
    }
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(source: R, bytes_max: usize) -> Self {
        let window = Window::new(source);
        Self { window, bytes_max, number: 0, searched: 0, taken: 0 }
    }

    /// Returns the next line, or `None` at the end of the stream. A line ends with `\n`, with
    /// `\r\n` or at the end of the stream.
    pub(crate) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.window.consume(self.taken);
        (self.taken, self.searched) = (0, 0);
        let len = loop {
            let unsearched = self.window.bytes().get(self.searched..).unwrap_or_default();
            if let Some(found) = unsearched.iter().position(|&byte| byte == b'\n') {
                let len = self.searched + found;
                self.taken = len + 1;
                break len;
            }
            self.searched = self.window.bytes().len();
            if self.searched > self.bytes_max {
                self.window.skip_line()?;
                self.number += 1;
                return Ok(Some(Line { number: self.number, bytes: None }));
            }
            if !self.window.fill()? {
                self.taken = self.searched;
                break self.searched;
            }
        };
        if self.taken == 0 {
            return Ok(None);
        }
        self.number += 1;
        let line = self.window.bytes().get(..len).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let admitted = line.len() <= self.bytes_max;
        Ok(Some(Line { number: self.number, bytes: admitted.then_some(line) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that returns a few bytes per read.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let len = self.1.min(self.0.len()).min(buffer.len());
            buffer[..len].copy_from_slice(&self.0[..len]);
            self.0 = &self.0[len..];
            Ok(len)
        }
    }

    fn lines(text: &str, step: usize, bytes_max: usize) -> Vec<(u64, Option<String>)> {
        let mut lines = Lines::new(Slow(text.as_bytes(), step), bytes_max);
        let mut found = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            let text = line.bytes.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
            found.push((line.number, text));
        }
        found
    }

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        for step in [1, 2, 7, 1000] {
            let found: Vec<_> =
                lines(text, step, 100).into_iter().map(|(_, text)| text.unwrap()).collect();
            assert_eq!(found, expected, "{step} bytes at a time");
        }
    }

    #[test]
    fn lines_end_at_newlines_and_at_the_end() {
        check("", &[]);
        check("\n", &[""]);
        check("a", &["a"]);
        check("a\nbc\r\n\nd", &["a", "bc", "", "d"]);
    }

    #[test]
    fn a_line_too_long_is_skipped_in_bounded_memory() {
        let long = "x".repeat(3 << 20);
        let text = format!("a\n{long}\nb\n{long}");
        let found = lines(&text, 1 << 16, 1000);
        let expected = [(1, Some("a".to_owned())), (2, None), (3, Some("b".to_owned())), (4, None)];
        assert_eq!(found, expected);
        let mut lines = Lines::new(text.as_bytes(), 1000);
        while lines.next().unwrap().is_some() {}
        assert!(lines.window.buffer.len() <= 2 * READ_BYTES);
    }

    #[test]
    fn a_line_one_byte_too_long_is_refused() {
        assert_eq!(lines("abcd\nabc\n", 100, 3), [(1, None), (2, Some("abc".into()))]);
    }
}
