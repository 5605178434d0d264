//! The stamp of a carried row: a property at the target with the Timestamp of the row at the
//! source, and the name of the sync.
//!
//! A Timestamp is the Seq of the commit that wrote the row, so it gives the order of the states of
//! a database. It has a fixed length in the stamp, so stamps are in the order of their texts.

use crate::error::{Error, ErrorKind, Result};
use crate::model::{DateTime, Entity, PROPERTIES_MAX};
use crate::store::pages::quoted;

pub(super) struct Stamp {
    pub(super) property: String,
    /// The name of the sync.
    pub(super) name: String,
    /// Whether rows that expire at the source are deleted at the target.
    pub(super) expires: bool,
}

/// The lengths of a Timestamp to the second, and with its fraction, but without the `Z`.
const SECONDS: usize = 19;
const TICKS: usize = 27;

impl Stamp {
    /// Adds the stamp to a row of the source.
    ///
    /// # Errors
    /// `InvalidInput` if the row has such a property itself, or as many as a row can have.
    pub(super) fn put(&self, row: &mut Entity) -> Result<()> {
        let property = &*self.property;
        let refused = |text: String| Err(Error::new(ErrorKind::InvalidInput, text));
        if row.value(property).is_some() {
            return refused(format!("the row has a property '{property}', as the stamp is named"));
        }
        if row.len() >= PROPERTIES_MAX {
            let text = format!("the row has {PROPERTIES_MAX} properties, so it can have no stamp");
            return refused(text);
        }
        let written = row.timestamp().unwrap_or(DateTime::MAX);
        row.set(property, format!("{} {}", fixed(written), self.name));
        Ok(())
    }

    /// Returns a filter that matches the rows with a stamp before a time, of any sync.
    pub(super) fn filter(&self, before: DateTime) -> String {
        format!("{} lt {}", self.property, quoted(&fixed(before)))
    }

    /// Whether the stamp of a row is of this sync, and before a time.
    pub(super) fn is_before(&self, time: DateTime, row: &Entity) -> bool {
        let Ok(stamp) = row.get::<String>(&self.property) else { return false };
        stamp.split_once(' ').is_some_and(|(written, name)| {
            name == self.name && written.len() == TICKS + 1 && *written < *fixed(time)
        })
    }
}

/// Returns the text of a time with all digits of its fraction, which [`DateTime`] does not print.
fn fixed(time: DateTime) -> String {
    let mut text = time.to_string();
    text.truncate(text.len() - 1);
    if text.len() == SECONDS {
        text.push('.');
    }
    format!("{text:0<TICKS$}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_in_the_order_of_times() {
        let start = 134_000_000_000_000_000;
        let times = [0, 1, 10, 1_000_000, 9_999_999, 10_000_000, 10_000_001];
        let times = times.map(|more| fixed(DateTime::from_ticks(start + more).unwrap()));
        assert!(times.is_sorted(), "{times:?}");
        assert!(times.iter().all(|text| text.len() == TICKS + 1 && text.ends_with('Z')));
    }
}
