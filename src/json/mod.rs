//! Reads JSON with `serde_json`, one level of nesting at a time. Values remain unparsed text.
//!
//! A number keeps its text, because its type depends on how it was written: `5` is an Int32, `5.0`
//! and `5e0` are Doubles, and twenty digits are neither. A parsed tree would lose this.
//!
//! Invariants
//! * every returned or skipped value is well-formed, whatever its depth;
//! * the caller bounds the number of members or items read, and nesting uses no stack.
//!
//! `control::answer` executes requests; `rest::protocol` parses the requests of the REST service.

#[cfg(any(feature = "cli", feature = "remote"))]
pub(crate) mod answer;
#[cfg(any(feature = "cli", feature = "remote"))]
pub(crate) mod changes;
pub(crate) mod double;
#[cfg(feature = "cli")]
pub(crate) mod elements;
#[cfg(feature = "cli")]
pub(crate) mod exec;
#[cfg(feature = "cli")]
pub(crate) mod explain;
#[cfg(feature = "serde")]
mod nested;
pub(crate) mod odata;
pub(crate) mod plain;
#[cfg(feature = "cli")]
pub(crate) mod report;
mod scan;
#[cfg(feature = "cli")]
pub(crate) mod window;

#[cfg(feature = "serde")]
pub use nested::{deserialize, serialize};

use std::borrow::Cow;
use std::fmt::{self, Display};

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::error::{Code, Error, Result};

/// The members of an object, in order, including repeated names.
pub(crate) type Members<'a> = Vec<(Cow<'a, str>, &'a RawValue)>;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar<'a> {
    Null,
    Boolean(bool),
    /// The number as it was written.
    Number(&'a str),
    String(Cow<'a, str>),
    /// The array or object as it was written.
    Nested(&'a str),
}

/// Reads the first `most` members of the object in `text`; later members are checked and dropped.
pub(crate) fn read_object(text: &str, most: usize) -> Result<Members<'_>> {
    let mut json = serde_json::Deserializer::from_str(text);
    let members = json.deserialize_map(ObjectVisitor { most });
    let members = members.and_then(|members| json.end().map(|()| members));
    members.map_err(|error| refused(&error, "an object"))
}

/// Reads the first `most` items of the array in `text`; later items are checked and dropped.
pub(crate) fn read_array(text: &str, most: usize) -> Result<Vec<&RawValue>> {
    let mut json = serde_json::Deserializer::from_str(text);
    let items = json.deserialize_seq(ArrayVisitor { most });
    let items = items.and_then(|items| json.end().map(|()| items));
    items.map_err(|error| refused(&error, "an array"))
}

impl<'a> Scalar<'a> {
    pub(crate) fn read(value: &'a RawValue) -> Result<Self> {
        let text = value.get();
        Ok(match text.as_bytes().first() {
            Some(b'"') => {
                let text = read_string(text).map_err(|error| refused(&error, "a string"))?;
                Scalar::String(text)
            }
            Some(b'{' | b'[') => Scalar::Nested(text),
            Some(b'n') => Scalar::Null,
            Some(b't') => Scalar::Boolean(true),
            Some(b'f') => Scalar::Boolean(false),
            _ => Scalar::Number(text),
        })
    }
}

/// Parses a string with its quotes.
pub(crate) fn read_string(text: &str) -> serde_json::Result<Cow<'_, str>> {
    serde_json::from_str(text).map(|text: Text<'_>| text.0)
}

/// Appends `text` as a JSON string.
#[inline]
pub(crate) fn put_string(out: &mut Vec<u8>, text: &str) {
    if !plain::is_plain(text.as_bytes()) {
        return put_escaped(out, text);
    }
    out.reserve(text.len() + 2);
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

#[cold]
fn put_escaped(out: &mut Vec<u8>, text: &str) {
    let written = serde_json::to_writer(out, text);
    debug_assert!(written.is_ok(), "any text is a JSON string, and a vector takes any bytes");
}

/// The size of a buffer that holds any integer, and any decimal that `double::put_decimal` writes.
pub(crate) const NUMBER_BYTES: usize = 24;

/// Appends `value` in decimal.
#[inline]
pub(crate) fn put_integer(out: &mut Vec<u8>, value: i64) {
    let mut text = [0; NUMBER_BYTES];
    let len = put_number(&mut text, value);
    out.extend_from_slice(text.get(..len).unwrap_or_default());
}

/// Writes `value` in decimal; returns the number of bytes.
#[inline]
pub(crate) fn put_number(text: &mut [u8; NUMBER_BYTES], value: i64) -> usize {
    let sign = usize::from(value < 0);
    text[0] = b'-';
    sign + put_digits(text.get_mut(sign..).unwrap_or_default(), value.unsigned_abs())
}

/// The two digits of each number below 100.
static PAIRS: [[u8; 2]; 100] = {
    let (mut pairs, mut number) = ([[b'0'; 2]; 100], 0);
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

/// Writes an unsigned number in decimal. If `text` is too short, its contents are unspecified.
/// Returns the number of digits.
#[inline(always)]
pub(crate) fn put_digits(text: &mut [u8], value: u64) -> usize {
    if let (Some([tens, ones]), Some(place)) = (PAIRS.get(value as usize), text.first_chunk_mut()) {
        let is_short = value < 10;
        *place = if is_short { [*ones, 0] } else { [*tens, *ones] };
        return 2 - usize::from(is_short);
    }
    put_many_digits(text, value)
}

#[inline(never)]
fn put_many_digits(text: &mut [u8], value: u64) -> usize {
    let len = value.checked_ilog10().map_or(1, |log| log as usize + 1);
    let mut left = value;
    let (first, pairs) = text.get_mut(..len).unwrap_or_default().as_rchunks_mut::<2>();
    for place in pairs.iter_mut().rev() {
        *place = PAIRS[(left % 100) as usize];
        left /= 100;
    }
    if let [first] = first {
        *first = b'0' + left as u8;
    }
    len
}

/// An object being written.
pub(crate) struct Object<'o> {
    out: &'o mut Vec<u8>,
    is_empty: bool,
}

/// Builds an object as text, with the members that `put` adds.
pub(crate) fn object(put: impl FnOnce(&mut Object<'_>)) -> String {
    let mut text = Vec::new();
    put_object(&mut text, put);
    String::from_utf8(text).unwrap_or_default()
}

/// Appends an object with the members that `put` adds.
pub(crate) fn put_object(out: &mut Vec<u8>, put: impl FnOnce(&mut Object<'_>)) {
    out.push(b'{');
    put(&mut Object { out, is_empty: true });
    out.push(b'}');
}

/// Appends an array. Calls `put` to append each of `items`.
pub(crate) fn put_array<T>(
    out: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    mut put: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(b'[');
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        put(out, item);
    }
    out.push(b']');
}

/// Builds an array as text, of items that are already JSON.
pub(crate) fn array(items: impl IntoIterator<Item = impl Display>) -> String {
    let items: Vec<_> = items.into_iter().map(|item| item.to_string()).collect();
    format!("[{}]", items.join(","))
}

impl Object<'_> {
    /// Adds a member with a value that is already JSON.
    pub(crate) fn raw(&mut self, name: &str, json: impl Display) {
        self.name(name).extend_from_slice(json.to_string().as_bytes());
    }

    pub(crate) fn text(&mut self, name: &str, text: &str) {
        put_string(self.name(name), text);
    }

    pub(crate) fn texts<'t>(&mut self, name: &str, texts: impl Iterator<Item = &'t String>) {
        put_array(self.name(name), texts, |out, text| put_string(out, text));
    }

    /// Adds an array of objects, each with the members that `put` adds.
    pub(crate) fn objects<T>(
        &mut self,
        name: &str,
        items: &[T],
        put: impl Fn(&mut Object<'_>, &T),
    ) {
        put_array(self.name(name), items, |out, item| {
            put_object(out, |object| put(object, item));
        });
    }

    /// Writes a member's name. The caller appends the value to the returned buffer.
    pub(crate) fn name(&mut self, name: &str) -> &mut Vec<u8> {
        let out = self.next_member();
        put_string(out, name);
        out.push(b':');
        out
    }

    /// Writes a comma unless this is the first member. The caller appends the member to the
    /// returned buffer.
    pub(crate) fn next_member(&mut self) -> &mut Vec<u8> {
        if !std::mem::replace(&mut self.is_empty, false) {
            self.out.push(b',');
        }
        self.out
    }
}

fn refused(error: &serde_json::Error, expected: &str) -> Error {
    let message = match error.classify() {
        Category::Data => format!("{expected} is missing"),
        Category::Io | Category::Syntax | Category::Eof => format!("not JSON: {error}"),
    };
    Error::refused_with(Code::InvalidInput, message)
}

struct ObjectVisitor {
    most: usize,
}

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut members = Members::new();
        while let Some((Text(name), value)) = map.next_entry()? {
            if members.len() < self.most {
                members.push((name, value));
            }
        }
        Ok(members)
    }
}

struct ArrayVisitor {
    most: usize,
}

impl<'de> Visitor<'de> for ArrayVisitor {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            if items.len() < self.most {
                items.push(item);
            }
        }
        Ok(items)
    }
}

/// A string, borrowed if it has no escapes; serde's implementation for `Cow` always copies.
struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `text` as the only item of an array, and returns the array's items in debug format.
    fn read(text: &str) -> Result<String> {
        let array = format!("[{text}]");
        let items = read_array(&array, 2)?;
        let scalars: Result<Vec<_>> = items.into_iter().map(Scalar::read).collect();
        Ok(format!("{:?}", scalars?))
    }

    #[track_caller]
    fn check(text: &str, expected: Scalar<'_>) {
        assert_eq!(read(text).unwrap(), format!("[{expected:?}]"), "{text}");
    }

    #[track_caller]
    fn refused(text: &str) {
        let error = read(text).unwrap_err();
        assert_eq!(error.code(), "InvalidInput", "{text}");
        assert!(error.message().starts_with("not JSON: "), "{text}: {error}");
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
        check(" 1.5e+3 ", Scalar::Number("1.5e+3"));
        check(r#""a""#, string("a"));
        check(r#""a\n\u0041\/\"\\""#, string("a\nA/\"\\"));
        check(r#""\ud83d\ude00 ok""#, string("😀 ok"));
        for text in [r#"{"a":[1,{"b":null}],"c":{}}"#, "[]"] {
            check(text, Scalar::Nested(text));
        }
    }

    #[test]
    fn malformed_text_is_refused() {
        for text in ["nul", "01", "1.", ".5", "+5", "1e", "-", "NaN", "1 2", "1,", "'a'"] {
            refused(text);
        }
        for text in ["\"a", "\"a\nb\"", "\"\\", r#""\x""#, r#""\u00g0""#, r#""\u+123""#] {
            refused(text);
        }
        for text in [r#""\ud83d""#, r#""\udc00""#, r#""\ud83d\u0041""#] {
            refused(text);
        }
        for text in [r#"{"a":1,}"#, "{a:1}", r#"{"a" 1}"#, "{1:1}", "[1 2]", "[1,]", "[01]"] {
            refused(text);
        }
    }

    #[test]
    fn errors_have_a_position() {
        let message = |text| read_object(text, 9).unwrap_err().message().to_owned();
        assert_eq!(message("{\"a\":1} 2"), "not JSON: trailing characters at line 1 column 9");
        assert_eq!(message(" 5"), "an object is missing");
        assert_eq!(read_array("{}", 9).unwrap_err().message(), "an array is missing");
    }

    #[test]
    fn members_keep_order_repeats_and_text() {
        let text = r#" { "b" : 1e2 , "\u0061":[ 1 ],"b":"x" } "#;
        let shown: Vec<_> = read_object(text, 9)
            .unwrap()
            .into_iter()
            .map(|(name, value)| (name, value.get()))
            .collect();
        assert_eq!(shown, [("b".into(), "1e2"), ("a".into(), "[ 1 ]"), ("b".into(), "\"x\"")]);
        assert!(matches!(shown[0].0, Cow::Borrowed(_)));
        assert_eq!(read_object(text, 2).unwrap().len(), 2);
        assert!(read_object(r#"{"a":1,"b":2,"c":}"#, 1).is_err());
        assert!(read_array("[1,2,.]", 1).is_err());
    }

    #[test]
    fn nesting_uses_no_stack() {
        let deep = |n: usize| "[".repeat(n) + &"]".repeat(n);
        check(&deep(1_000_000), Scalar::Nested(&deep(1_000_000)));
        refused(&deep(1_000_000)[1..]);
    }

    #[test]
    fn every_cut_of_a_text_is_an_error() {
        let text = r#"{"op":"put","n":-1.5e3,"s":"a\ud83d\ude00\n","l":[true,false,null]}"#;
        assert!(read_object(text, 9).is_ok());
        for end in 0..text.len() {
            assert!(read_object(&text[..end], 9).is_err(), "{}", &text[..end]);
        }
    }

    #[test]
    fn strings_are_escaped() {
        let mut out = Vec::new();
        put_string(&mut out, "a\"b\\c\nd\u{1}é😀\u{7f}");
        assert_eq!(String::from_utf8(out).unwrap(), "\"a\\\"b\\\\c\\nd\\u0001é😀\u{7f}\"");
    }
}
