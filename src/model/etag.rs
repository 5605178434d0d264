//! The ETag of an entity: its Timestamp, in the text form that HTTP clients compare and send back.

use std::fmt;
use std::str::FromStr;

use super::datetime::DateTime;
use super::seq::Seq;
use crate::error::{Code, Error, Result};

/// The state of an entity that a caller has read. For one entity, equal ETags mean the same state.
///
/// The text form is `W/"datetime'2022-02-01T20%3A52%3A48.011206Z'"`. Parsing also accepts plain
/// colons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ETag(pub(crate) Seq);

const BEFORE: &str = "W/\"datetime'";
const AFTER: &str = "'\"";

impl From<Seq> for ETag {
    fn from(seq: Seq) -> Self {
        ETag(seq)
    }
}

impl ETag {
    /// Returns the Seq of the commit that wrote the entity.
    pub fn seq(self) -> Seq {
        self.0
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(BEFORE)?;
        for (i, part) in DateTime::from(self.0).text().as_str().split(':').enumerate() {
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

    /// Accepts only the printed form, with `%3A`, `%3a` or `:`. Other texts are `InvalidInput`,
    /// including `*`, which matches every state of an entity and so does not identify one.
    fn from_str(text: &str) -> Result<Self> {
        let malformed = || Error::refused(Code::InvalidInput);
        let inner = text.strip_prefix(BEFORE).and_then(|rest| rest.strip_suffix(AFTER));
        let time = inner.ok_or_else(malformed)?.replace("%3A", ":").replace("%3a", ":");
        // An ETag always has the zone `Z`.
        if !time.ends_with('Z') {
            return Err(malformed());
        }
        Ok(ETag(Seq(DateTime::parse(&time).map_err(|_| malformed())?.ticks())))
    }
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
        assert_eq!(TEXT.replace("%3A", ":").parse::<ETag>().unwrap(), etag);
        assert_eq!(TEXT.replace("%3A", "%3a").parse::<ETag>().unwrap(), etag);
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
            let error = text.parse::<ETag>().unwrap_err();
            assert_eq!((error.code(), error.status()), ("InvalidInput", 400), "{text}");
        }
    }

    #[test]
    fn the_largest_seq_has_an_etag() {
        let etag = ETag(Seq::MAX);
        assert_eq!(etag.to_string().parse::<ETag>().unwrap(), etag);
    }
}
