//! A fast reader for flat JSON objects and for lists of them: one pass, which copies only strings
//! with escapes.
//!
//! Invariants
//! * the result is the same as that of `json`, or `None`, for which the caller uses `json` instead.
//!   It is `None` for nested values, for too many members and for malformed input;
//! * every byte is examined a bounded number of times.
//!
//! `json` reports errors in the text; `odata` interprets the members.

use std::borrow::Cow;

use super::double;
use super::plain::plain_len;
use crate::json::{self, Scalar};

/// The maximum number of members of an object that has a list.
#[cfg(feature = "remote")]
const LIST_MEMBERS_MAX: usize = 64;

/// Passes the members of the object in `text` to `member`, in order, including repeated names.
/// Returns `None` if `json` must read the object instead. The members passed so far are then
/// invalid.
pub(crate) fn read_object<'a>(
    text: &'a str,
    most: usize,
    member: impl FnMut(Cow<'a, str>, Scalar<'a>),
) -> Option<()> {
    let mut scan = Scan { text, at: 0 };
    scan.object(most, member)?;
    scan.end()
}

/// Calls `item` at each item of the array in the member `name` of the object in `text`; `item`
/// consumes the item. Returns `None` if `item` does, and if `json` must read the object instead:
/// also if the member is missing or repeated, or has more than `most` items.
#[cfg(feature = "remote")]
pub(super) fn read_list<'a>(
    text: &'a str,
    name: &str,
    most: usize,
    mut item: impl FnMut(&mut Scan<'a>) -> Option<()>,
) -> Option<()> {
    let (mut scan, mut is_found) = (Scan { text, at: 0 }, false);
    scan.sequence([b'{', b'}'], LIST_MEMBERS_MAX, |scan| {
        if scan.name()? != name {
            return scan.value().map(drop);
        }
        if std::mem::replace(&mut is_found, true) {
            return None;
        }
        scan.sequence([b'[', b']'], most, &mut item)
    })?;
    scan.end().filter(|()| is_found)
}

/// A text and the position up to which it was read.
#[derive(Clone, Copy)]
pub(super) struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    #[inline]
    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    #[inline]
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.rest().first() {
            self.at += 1;
        }
    }

    /// Skips white space and consumes `byte`. Returns `None` if a different byte follows.
    #[inline]
    pub(super) fn after(&mut self, byte: u8) -> Option<()> {
        self.skip_space();
        (self.rest().first() == Some(&byte)).then(|| self.at += 1)
    }

    /// Consumes white space, which must be the rest of the text.
    fn end(&mut self) -> Option<()> {
        self.skip_space();
        (self.at == self.text.len()).then_some(())
    }

    /// Consumes the brackets and commas around at most `most` elements, each of which `element`
    /// consumes.
    #[inline]
    fn sequence(
        &mut self,
        brackets: [u8; 2],
        most: usize,
        mut element: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        self.after(brackets[0])?;
        if self.after(brackets[1]).is_some() {
            return Some(());
        }
        for _ in 0..most {
            element(self)?;
            if self.after(b',').is_none() {
                return self.after(brackets[1]);
            }
        }
        None
    }

    /// Consumes an object, and passes its members to `member`.
    #[inline]
    pub(super) fn object(
        &mut self,
        most: usize,
        mut member: impl FnMut(Cow<'a, str>, Scalar<'a>),
    ) -> Option<()> {
        self.sequence([b'{', b'}'], most, |scan| {
            let (name, value) = (scan.name()?, scan.value()?);
            member(name, value);
            Some(())
        })
    }

    /// Consumes the name of a member, and the colon, if the name is written as `known`.
    #[cfg(feature = "remote")]
    #[inline]
    pub(super) fn known_name(&mut self, known: &str) -> Option<()> {
        self.after(b'"')?;
        let rest = self.rest().strip_prefix(known.as_bytes())?;
        (rest.first() == Some(&b'"')).then(|| self.at += known.len() + 1)?;
        self.after(b':')
    }

    /// Consumes the name of a member, and the colon.
    fn name(&mut self) -> Option<Cow<'a, str>> {
        let name = self.string()?;
        self.after(b':').map(|()| name)
    }

    fn string(&mut self) -> Option<Cow<'a, str>> {
        self.after(b'"')?;
        let start = self.at;
        let mut has_escapes = false;
        loop {
            self.at += plain_len(self.rest());
            match self.rest().first()? {
                b'"' => break,
                b'\\' => {
                    has_escapes = true;
                    self.at += 2;
                }
                _ => return None,
            }
        }
        let end = self.at;
        self.at += 1;
        if has_escapes {
            return json::read_string(self.text.get(start - 1..=end)?).ok();
        }
        self.text.get(start..end).map(Cow::Borrowed)
    }

    pub(super) fn value(&mut self) -> Option<Scalar<'a>> {
        self.skip_space();
        let word =
            |word: &[u8], value| self.rest().starts_with(word).then_some((word.len(), value));
        let (len, value) = match self.rest().first()? {
            b'"' => return self.string().map(Scalar::String),
            b'n' => word(b"null", Scalar::Null)?,
            b't' => word(b"true", Scalar::Boolean(true))?,
            b'f' => word(b"false", Scalar::Boolean(false))?,
            _ => {
                // An object or array does not start with a number either, so it also leads to
                // `None` here.
                let len = double::number_len(self.rest());
                let number = self.text.get(self.at..self.at + len).filter(|text| !text.is_empty());
                (len, Scalar::Number(number?))
            }
        };
        self.at += len;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Reads `text` with `json`, for comparison. Returns `None` if `json` refuses it, if it has
    /// more than `most` members, or if a value is nested.
    fn slowly(text: &str, most: usize) -> Option<Vec<(String, Scalar<'_>)>> {
        let members = json::read_object(text, most + 1).ok()?;
        if members.len() > most {
            return None;
        }
        let read = members.into_iter().map(|(name, value)| match Scalar::read(value).ok()? {
            Scalar::Nested(_) => None,
            scalar => Some((name.into_owned(), scalar)),
        });
        read.collect()
    }

    fn same(text: &str) -> bool {
        let mut found = Vec::new();
        let read = read_object(text, 8, |name, value| found.push((name.into_owned(), value)));
        let found = read.map(|()| found);
        assert_eq!(found, slowly(text, 8), "{text}");
        found.is_some()
    }

    #[test]
    fn the_fast_reader_agrees_with_the_full_parser() {
        for text in [
            "{}",
            " { } \n",
            r#"{"a":1}"#,
            r#" { "a" : -1.5e+3 , "b":"x","a":null , "c" : true,"d":false } "#,
            r#"{"a\n\u0041":"\ud83d\ude00 \" \\","é😀":"ü"}"#,
            r#"{"a":"0123456789abcdef\\","":""}"#,
        ] {
            assert!(same(text), "{text}");
        }
        for text in [
            "",
            "{",
            "[]",
            "1",
            "null",
            "{}x",
            "{,}",
            "{a:1}",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{"a":1 "b":2}"#,
            r#"{"a":01}"#,
            r#"{"a":1.}"#,
            r#"{"a":+1}"#,
            r#"{"a":nul}"#,
            r#"{"a":nulll}"#,
            r#"{"a":{}}"#,
            r#"{"a":[1]}"#,
            r#"{"a":"x}"#,
            "{\"a\":\"\n\"}",
            r#"{"a":"\x"}"#,
            r#"{"a":"\ud83d"}"#,
            r#"{"a":1,"a":1,"a":1,"a":1,"a":1,"a":1,"a":1,"a":1,"a":1}"#,
            "{\"a\":1}\u{a0}",
        ] {
            assert!(!same(text), "{text}");
        }
    }

    #[test]
    fn the_fast_reader_leaves_malformed_texts_to_the_parser() {
        let whole = r#"{"Name@odata.type":"Edm.String","Näme":"x\u00e4\\ \"y\"","N":-1.5e3,"T":true,"Z":null, "E":[1]}"#;
        let mut rng = Rng::from_seed(3);
        let pieces = ["\"", "\\", ",", ":", "{", "}", "e", "0", " ", "\u{1}", "ä", "n", "-"];
        let places: Vec<usize> = whole.char_indices().map(|(at, _)| at).collect();
        let mut read = 0;
        for _ in 0..20_000 {
            let mut text = whole.replace(r#", "E":[1]"#, "");
            for _ in 0..rng.below(3) {
                let at = places[rng.below(places.len() as u64) as usize];
                let piece = pieces[rng.below(pieces.len() as u64) as usize];
                if !text.is_char_boundary(at) || at >= text.len() {
                    continue;
                }
                match rng.below(2) {
                    0 => text.insert_str(at, piece),
                    _ => drop(text.remove(at)),
                }
            }
            read += u32::from(same(&text));
        }
        assert!(read > 1_000);
        for (end, _) in whole.char_indices() {
            assert!(!same(&whole[..end]));
        }
    }
}
