//! The ETag of an entity: an opaque text that HTTP clients compare and send back. The ETag of an
//! entity of this engine is its Timestamp.

use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::sync::Arc;

use smallvec::SmallVec;

use super::datetime::DateTime;
use super::seq::Seq;
use crate::error::{Code, Error, Result};

/// The state of an entity that a caller has read. For one entity, equal ETags mean the same state.
///
/// An ETag is an opaque text: one that was parsed prints as it was received. ETags of a
/// [`Db`](crate::Db) have the form `W/"datetime'2022-02-01T20%3A52%3A48.011206Z'"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ETag(Repr);

/// `Text` is never the text that is printed for a `Seq`, so equal texts are equal ETags.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Repr {
    Seq(Seq),
    Text(Arc<str>),
}

const BEFORE: &str = "W/\"datetime'";
const AFTER: &str = "'\"";
/// The length of a time that is read without an allocation.
const TIME_ROOM: usize = 32;
/// The maximum length of an ETag that is parsed, in bytes.
const TEXT_MAX: usize = 1_024;

impl From<Seq> for ETag {
    fn from(seq: Seq) -> Self {
        ETag(Repr::Seq(seq))
    }
}

impl ETag {
    /// Returns the Seq of the commit that wrote the entity; `None` if the ETag is not of the form
    /// that a [`Db`](crate::Db) prints. Plain colons instead of `%3A` are accepted.
    pub fn seq(&self) -> Option<Seq> {
        match &self.0 {
            Repr::Seq(seq) => Some(*seq),
            Repr::Text(text) => read_seq(text),
        }
    }

    /// Whether the ETag prints as `text`.
    fn prints_as(&self, text: &str) -> bool {
        let mut rest = Unwritten(text);
        write!(rest, "{self}").is_ok() && rest.0.is_empty()
    }

    /// Parses an ETag of the form that a [`Db`](crate::Db) prints, with `%3A`, `%3a` or `:`.
    ///
    /// # Errors
    /// `InvalidInput` for other texts.
    #[cfg(any(test, feature = "json"))]
    pub(crate) fn parse_own(text: &str) -> Result<Self> {
        read_seq(text).map(Self::from).ok_or_else(malformed)
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seq = match &self.0 {
            Repr::Seq(seq) => *seq,
            Repr::Text(text) => return f.write_str(text),
        };
        f.write_str(BEFORE)?;
        for (i, part) in DateTime::from(seq).text().as_str().split(':').enumerate() {
            if i > 0 {
                f.write_str("%3A")?;
            }
            f.write_str(part)?;
        }
        f.write_str(AFTER)
    }
}

impl FromStr for ETag {
    type Err = Error;

    /// Accepts any entity tag of HTTP, `"…"` or `W/"…"`, of at most 1,024 bytes. Other texts are
    /// `InvalidInput`, including `*`, which matches every state of an entity and so does not
    /// identify one.
    fn from_str(text: &str) -> Result<Self> {
        if let Some(own) = read_seq(text).map(Self::from).filter(|own| own.prints_as(text)) {
            return Ok(own);
        }
        let quoted = text.strip_prefix("W/").unwrap_or(text);
        let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let is_allowed = |char: char| char != '"' && !char.is_control();
        if text.len() > TEXT_MAX || !inner.is_some_and(|inner| inner.chars().all(is_allowed)) {
            return Err(malformed());
        }
        Ok(ETag(Repr::Text(text.into())))
    }
}

/// The rest of a text, without what is written to it.
struct Unwritten<'t>(&'t str);

impl fmt::Write for Unwritten<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.strip_prefix(text).ok_or(fmt::Error)?;
        Ok(())
    }
}

/// Reads the Seq in an ETag of a [`Db`](crate::Db).
fn read_seq(text: &str) -> Option<Seq> {
    let inner = text.strip_prefix(BEFORE)?.strip_suffix(AFTER)?;
    let (mut time, mut rest) = (SmallVec::<[u8; TIME_ROOM]>::new(), inner.as_bytes());
    while let [first, after @ ..] = rest {
        let (byte, after) = match rest {
            [b'%', b'3', b'A' | b'a', after @ ..] => (b':', after),
            _ => (*first, after),
        };
        time.push(byte);
        rest = after;
    }
    // An ETag always has the zone `Z`.
    let time = std::str::from_utf8(&time).ok().filter(|time| time.ends_with('Z'))?;
    Some(Seq(DateTime::parse(time).ok()?.ticks()))
}

fn malformed() -> Error {
    Error::refused(Code::InvalidInput)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "W/\"datetime'2022-02-01T20%3A52%3A48.011206Z'\"";

    #[test]
    fn etags_print_as_they_were_parsed() {
        assert_eq!(TEXT.parse::<ETag>().unwrap().to_string(), TEXT);
    }

    #[test]
    fn colons_may_be_plain() {
        let etag: ETag = TEXT.parse().unwrap();
        for text in [TEXT.replace("%3A", ":"), TEXT.replace("%3A", "%3a")] {
            assert_eq!(ETag::parse_own(&text).unwrap(), etag);
            assert_eq!(text.parse::<ETag>().unwrap().seq(), etag.seq());
        }
    }

    /// Other stores compare ETags as texts. Azurite prints seven digits, also if the last is 0.
    #[test]
    fn etags_of_other_stores_are_kept_as_they_were_received() {
        let padded = TEXT.replace("206Z", "2060Z");
        for text in [&*padded, "\"0x8D2\"", "W/\"wrong\"", "W/\"\"", "\"é\""] {
            assert_eq!(text.parse::<ETag>().unwrap().to_string(), text);
        }
        assert_ne!(padded.parse::<ETag>().unwrap(), TEXT.parse().unwrap());
        assert_eq!("W/\"wrong\"".parse::<ETag>().unwrap().seq(), None);
        for text in ["", "*", "W/", "\"", "a\"b\"", "\"a\"b\"", "\"a\r\n\"", &"x".repeat(2_000)] {
            assert_eq!(text.parse::<ETag>().unwrap_err().code(), "InvalidInput", "{text}");
        }
    }

    #[test]
    fn malformed() {
        for text in [
            "",
            "*",
            "test",
            "W/\"wrong\"",
            "W/\"0x5B\"",
            &TEXT[2..],
            &TEXT[..TEXT.len() - 1],
            &TEXT.replace('Z', ""),
            &TEXT.replace("2022", "1022"),
            &TEXT.replace("Z", "+00:00"),
            "W/\"datetime''\"",
            "W/\"datetime'\"",
        ] {
            let error = ETag::parse_own(text).unwrap_err();
            assert_eq!((error.code(), error.status()), ("InvalidInput", 400), "{text}");
        }
    }

    #[test]
    fn the_largest_seq_has_an_etag() {
        let etag = ETag::from(Seq::MAX);
        assert_eq!(etag.to_string().parse::<ETag>().unwrap(), etag);
    }
}
