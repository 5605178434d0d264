//! The position at which the next page of a query begins.

use std::fmt;
use std::str::FromStr;

use crate::error::{Code, Error, Result};

/// The position of a page of a query. It prints as a text without spaces, which parses back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// The store that returned the position.
    store: String,
    partition: String,
    row: String,
}

impl Continuation {
    pub(crate) fn new(store: &str, partition: String, row: String) -> Self {
        Self { store: store.to_owned(), partition, row }
    }

    /// Returns the keys after which the page begins.
    #[cfg(feature = "json")]
    pub(super) fn keys(&self) -> [&str; 2] {
        [&self.partition, &self.row]
    }

    /// Checks that the store with this name returned the continuation.
    pub(crate) fn of(&self, store: &str) -> Result<(&str, &str)> {
        match self.store == store {
            true => Ok((&self.partition, &self.row)),
            false => Err(Error::refused_with(
                Code::InvalidInput,
                "the continuation is of another store: begin again without one",
            )),
        }
    }
}

/// Each part is written in hexadecimal digits, because a key may be any text.
impl fmt::Display for Continuation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in [&self.store, &self.partition, &self.row].into_iter().enumerate() {
            f.write_str(if i > 0 { "." } else { "" })?;
            part.bytes().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        }
        Ok(())
    }
}

impl FromStr for Continuation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let malformed = || Error::refused_with(Code::InvalidInput, "not a continuation");
        let part = |text: &str| {
            let (digits, _) = text.as_bytes().as_chunks::<2>();
            let byte = |two: &[u8; 2]| {
                let hex = std::str::from_utf8(two).ok().filter(|two| !two.starts_with('+'))?;
                u8::from_str_radix(hex, 16).ok()
            };
            let bytes: Option<Vec<u8>> = digits.iter().map(byte).collect();
            let is_even = text.len().is_multiple_of(2);
            String::from_utf8(bytes.filter(|_| is_even)?).ok()
        };
        let mut parts = text.split('.').map(part);
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(Some(store)), Some(Some(partition)), Some(Some(row)), None) => {
                Ok(Continuation { store, partition, row })
            }
            _ => Err(malformed()),
        }
    }
}
