//! JSON text, read front to back without building a tree, and the few pieces needed to write it.
//!
//! A number keeps its text, because what it means here depends on how it was written: `5` is an Int32,
//! `5.0` and `5e0` are Doubles, and twenty digits are neither.
//!
//! Invariants
//! * no input panics, recursion is bounded by [`DEPTH_MAX`], and a value costs no more memory than its text;
//! * what is skipped is checked as closely as what is read.
//!
//! Not here: what the members mean (`odata`, `exec`).

use std::borrow::Cow;

use crate::error::{Code, Error, Result};

/// Arrays and objects inside one another; requests need four.
const DEPTH_MAX: usize = 64;

/// Reads one JSON text.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    text: &'a str,
    at: usize,
}

/// A value that is not an array or an object; of those only that they were there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar<'a> {
    Null,
    Boolean(bool),
    /// The number as it was written.
    Number(&'a str),
    String(Cow<'a, str>),
    /// An array or object, well-formed and skipped.
    Nested,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Reads an object; `member` must read the value of the name it is given.
    pub(crate) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, Cow<'a, str>) -> Result<()>,
    ) -> Result<()> {
        self.expect(b'{', "an object")?;
        if self.take_if(b'}') {
            return Ok(());
        }
        loop {
            self.skip_space();
            let name = self.string()?;
            self.expect(b':', "a colon")?;
            member(self, name)?;
            if self.take_if(b'}') {
                return Ok(());
            }
            self.expect(b',', "a comma or the end of the object")?;
        }
    }

    /// Reads an array; `item` must read one value.
    pub(crate) fn array(&mut self, mut item: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.expect(b'[', "an array")?;
        if self.take_if(b']') {
            return Ok(());
        }
        loop {
            item(self)?;
            if self.take_if(b']') {
                return Ok(());
            }
            self.expect(b',', "a comma or the end of the array")?;
        }
    }

    /// Reads any value; an array or object is checked and skipped.
    pub(crate) fn scalar(&mut self) -> Result<Scalar<'a>> {
        self.value(0)
    }

    /// Reads any value and gives its text, which is well-formed.
    pub(crate) fn value_text(&mut self) -> Result<&'a str> {
        self.skip_space();
        let start = self.at;
        self.value(0)?;
        Ok(self.text.get(start..self.at).unwrap_or_default())
    }

    /// Requires that nothing but space is left.
    pub(crate) fn end(mut self) -> Result<()> {
        self.skip_space();
        if self.at == self.text.len() { Ok(()) } else { Err(self.error("text after the value")) }
    }

    fn value(&mut self, depth: usize) -> Result<Scalar<'a>> {
        if depth > DEPTH_MAX {
            return Err(self.error("nested too deeply"));
        }
        self.skip_space();
        match self.peek() {
            Some(b'"') => Ok(Scalar::String(self.string()?)),
            Some(b'{') => {
                self.object(|reader, _| reader.value(depth + 1).map(drop))?;
                Ok(Scalar::Nested)
            }
            Some(b'[') => {
                self.array(|reader| reader.value(depth + 1).map(drop))?;
                Ok(Scalar::Nested)
            }
            Some(b'-' | b'0'..=b'9') => Ok(Scalar::Number(self.number()?)),
            Some(b't') => self.word("true", Scalar::Boolean(true)),
            Some(b'f') => self.word("false", Scalar::Boolean(false)),
            Some(b'n') => self.word("null", Scalar::Null),
            _ => Err(self.error("a value is missing")),
        }
    }

    fn word(&mut self, word: &str, value: Scalar<'a>) -> Result<Scalar<'a>> {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        if !rest.starts_with(word.as_bytes()) {
            return Err(self.error("a value is missing"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn number(&mut self) -> Result<&'a str> {
        let start = self.at;
        let len = number_len(self.text.as_bytes().get(start..).unwrap_or_default());
        if len == 0 {
            return Err(self.error("malformed number"));
        }
        self.at += len;
        // `01` and `1.` stop early and leave something that no separator begins with.
        if matches!(self.peek(), Some(b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')) {
            return Err(self.error("malformed number"));
        }
        Ok(self.text.get(start..self.at).unwrap_or_default())
    }

    fn string(&mut self) -> Result<Cow<'a, str>> {
        if self.peek() != Some(b'"') {
            return Err(self.error("a string is missing"));
        }
        self.at += 1;
        let plain = self.plain_run()?;
        if self.peek() == Some(b'"') {
            self.at += 1;
            return Ok(Cow::Borrowed(plain));
        }
        let mut decoded = plain.to_owned();
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Cow::Owned(decoded));
                }
                Some(b'\\') => decoded.push(self.escape()?),
                _ => decoded.push_str(self.plain_run()?),
            }
        }
    }

    /// The characters up to the next quote or backslash.
    fn plain_run(&mut self) -> Result<&'a str> {
        let start = self.at;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' | b'\\' => return Ok(self.text.get(start..self.at).unwrap_or_default()),
                0..0x20 => return Err(self.error("control character in a string")),
                _ => self.at += 1,
            }
        }
        Err(self.error("unterminated string"))
    }

    fn escape(&mut self) -> Result<char> {
        self.at += 1;
        let escaped = self.peek();
        self.at += 1;
        Ok(match escaped {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.error("unknown escape")),
        })
    }

    /// After `\u`: four digits, and the second half of a surrogate pair where the first stands.
    fn unicode_escape(&mut self) -> Result<char> {
        let first = self.four_digits()?;
        let mut scalar = u32::from(first);
        if (0xd800..0xdc00).contains(&first) {
            let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
            if !rest.starts_with(b"\\u") {
                return Err(self.error("half a surrogate pair"));
            }
            self.at += 2;
            let second = self.four_digits()?;
            if !(0xdc00..0xe000).contains(&second) {
                return Err(self.error("half a surrogate pair"));
            }
            scalar = 0x10000 + ((u32::from(first) - 0xd800) << 10) + (u32::from(second) - 0xdc00);
        }
        char::from_u32(scalar).ok_or_else(|| self.error("half a surrogate pair"))
    }

    fn four_digits(&mut self) -> Result<u16> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).unwrap_or_default();
        let hex = digits.len() == 4 && digits.iter().all(u8::is_ascii_hexdigit);
        let parsed = std::str::from_utf8(digits).ok().filter(|_| hex);
        match parsed.and_then(|digits| u16::from_str_radix(digits, 16).ok()) {
            Some(unit) => {
                self.at += 4;
                Ok(unit)
            }
            None => Err(self.error("malformed \\u escape")),
        }
    }

    fn expect(&mut self, byte: u8, what: &str) -> Result<()> {
        if self.take_if(byte) { Ok(()) } else { Err(self.error(&format!("{what} is missing"))) }
    }

    /// Skips space, and `byte` if it comes next.
    fn take_if(&mut self, byte: u8) -> bool {
        self.skip_space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn error(&self, problem: &str) -> Error {
        let at = self.at.min(self.text.len());
        Error::refused_with(Code::InvalidInput, format!("not JSON: {problem} at byte {at}"))
    }
}

/// The length of the JSON number that `bytes` begins with; 0 if there is none.
pub(crate) fn number_len(bytes: &[u8]) -> usize {
    let digits = |from: usize| {
        bytes.get(from..).unwrap_or_default().iter().take_while(|b| b.is_ascii_digit()).count()
    };
    let mut len = usize::from(bytes.first() == Some(&b'-'));
    match bytes.get(len) {
        Some(b'0') => len += 1,
        Some(b'1'..=b'9') => len += digits(len),
        _ => return 0,
    }
    if bytes.get(len) == Some(&b'.') {
        match digits(len + 1) {
            0 => return len,
            fraction => len += 1 + fraction,
        }
    }
    if let Some(b'e' | b'E') = bytes.get(len) {
        let sign = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
        match digits(len + 1 + sign) {
            0 => return len,
            exponent => len += 1 + sign + exponent,
        }
    }
    len
}

/// Appends `text` as a JSON string.
pub(crate) fn put_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    put_escaped(out, text);
    out.push(b'"');
}

/// Appends the inside of a JSON string.
pub(crate) fn put_escaped(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    let mut done = 0;
    for (i, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(bytes.get(done..i).unwrap_or_default());
        done = i + 1;
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
        }
    }
    out.extend_from_slice(bytes.get(done..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Scalar<'_>> {
        let mut reader = Reader::new(text);
        let value = reader.scalar()?;
        reader.end()?;
        Ok(value)
    }

    #[track_caller]
    fn check(text: &str, expected: Scalar<'_>) {
        assert_eq!(read(text).unwrap(), expected, "{text}");
    }

    #[track_caller]
    fn refused(text: &str, problem: &str) {
        let error = read(text).unwrap_err();
        assert_eq!(error.code(), "InvalidInput", "{text}");
        assert!(error.message().contains(problem), "{text}: {error}");
    }

    fn string(text: &str) -> Scalar<'_> {
        Scalar::String(text.into())
    }

    #[test]
    fn scalars() {
        check(" null ", Scalar::Null);
        check("true", Scalar::Boolean(true));
        check("false\n", Scalar::Boolean(false));
        check("-0", Scalar::Number("-0"));
        check("100000000000000000000", Scalar::Number("100000000000000000000"));
        check("1.5e+3", Scalar::Number("1.5e+3"));
        check(r#""a""#, string("a"));
        check(r#""a\n\u0041\/\"\\""#, string("a\nA/\"\\"));
        check(r#""\ud83d\ude00 ok""#, string("😀 ok"));
        check(r#"{"a":[1,{"b":null}],"c":{}}"#, Scalar::Nested);
        check("[]", Scalar::Nested);
    }

    #[test]
    fn malformed_text_is_refused_with_its_place() {
        refused("", "a value is missing at byte 0");
        refused("nul", "a value is missing");
        refused("01", "malformed number");
        refused("1.", "malformed number");
        refused(".5", "a value is missing");
        refused("+5", "a value is missing");
        refused("1e", "malformed number");
        refused("-", "malformed number");
        refused("NaN", "a value is missing");
        refused("1 2", "text after the value at byte 2");
        refused("\"a", "unterminated string");
        refused("\"a\nb\"", "control character");
        refused(r#""\ud83d""#, "half a surrogate pair");
        refused(r#""\udc00""#, "half a surrogate pair");
        refused(r#""\ud83d\u0041""#, "half a surrogate pair");
        refused(r#""\u00g0""#, "malformed \\u escape");
        refused(r#""\u+123""#, "malformed \\u escape");
        refused(r#""\x""#, "unknown escape");
        refused("\"\\", "unknown escape");
        refused("{\"a\":1,}", "a string is missing");
        refused("{a:1}", "a string is missing");
        refused("{\"a\" 1}", "a colon is missing");
        refused("[1 2]", "a comma");
        refused("[1,]", "a value is missing");
    }

    #[test]
    fn depth_is_bounded() {
        let deep = |n: usize| "[".repeat(n) + &"]".repeat(n);
        check(&deep(DEPTH_MAX), Scalar::Nested);
        refused(&deep(100_000), "nested too deeply");
    }

    #[test]
    fn every_cut_of_a_text_is_an_error() {
        let text = r#"{"op":"put","n":-1.5e3,"s":"a\ud83d\ude00\n","l":[true,false,null]}"#;
        assert!(read(text).is_ok());
        for end in 0..text.len() {
            assert!(read(&text[..end]).is_err(), "{}", &text[..end]);
        }
    }

    #[test]
    fn strings_are_escaped() {
        let mut out = Vec::new();
        put_string(&mut out, "a\"b\\c\nd\u{1}é😀\u{7f}");
        assert_eq!(String::from_utf8(out).unwrap(), "\"a\\\"b\\\\c\\nd\\u0001é😀\u{7f}\"");
    }
}
