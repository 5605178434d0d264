//! A message, and its row.

use std::time::Duration;

use crate::clock::ticks_in;
use crate::error::{Code, Error, ErrorKind, Result, quoted};
use crate::model::{DateTime, ETag, Entity, keys};

/// The most UTF-16 units of a text: those of a property.
pub(super) const TEXT_UNITS_MAX: usize = 32_768;
/// The digits of a time in a RowKey.
const TIME_DIGITS: usize = 19;
/// The size of an operation of a group besides the text, as an estimate.
const OVERHEAD: usize = 2_048;

// The properties of a row.
const TEXT: &str = "Text";
const DEQUEUE_COUNT: &str = "DequeueCount";
const INSERTED: &str = "Inserted";
/// The id of the group that moved the row here. A row that was only put has none.
const CLAIM_ID: &str = "ClaimId";

/// A message of a [`Queue`](super::Queue).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// A unique id, which the message keeps for life.
    pub id: String,
    /// The text.
    pub text: String,
    /// The number of claims of this message, with the present one.
    pub dequeue_count: u32,
    /// The store's time of the put.
    pub inserted: DateTime,
    /// The store's time from which consumers may claim the message again; the year 9999 for a
    /// poison message.
    pub next_visible: DateTime,
    pub(super) receipt: Option<Receipt>,
}

/// A pop receipt: a row, and the state in which it permits to move or delete it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Receipt {
    pub(super) partition_key: String,
    pub(super) row_key: String,
    pub(super) etag: ETag,
}

impl Message {
    pub(super) fn new(id: String, text: &str, now: DateTime) -> Result<Self> {
        let units = text.encode_utf16().take(TEXT_UNITS_MAX + 1).count();
        if units > TEXT_UNITS_MAX {
            let text = format!(
                "the text of a message has at most {TEXT_UNITS_MAX} characters (UTF-16 units); \
                 store a longer one as an entity of its own, and put its keys"
            );
            return Err(refused(text));
        }
        let (text, dequeue_count, receipt) = (text.to_owned(), 0, None);
        Ok(Self { id, text, dequeue_count, inserted: now, next_visible: now, receipt })
    }

    /// Reads a row. The message has a receipt for it.
    pub(super) fn read(row: &Entity) -> Result<Self> {
        let (partition_key, row_key) = (row.partition_key().to_owned(), row.row_key().to_owned());
        let (next_visible, id) = match row_key.split_once('-') {
            Some((time, id)) if time.len() == TIME_DIGITS => {
                (time.parse().ok().and_then(DateTime::from_ticks), id)
            }
            // The id of a poison message.
            _ => (Some(DateTime::MAX), &*row_key),
        };
        let count = row.get::<i32>(DEQUEUE_COUNT)?;
        let is_foreign = || {
            let text = format!("{} is no message", quoted("row", row.row_key()));
            Error::new(ErrorKind::InvalidInput, text)
        };
        Ok(Self {
            id: id.to_owned(),
            text: row.get(TEXT)?,
            dequeue_count: u32::try_from(count).map_err(|_| is_foreign())?,
            inserted: row.get(INSERTED)?,
            next_visible: next_visible.ok_or_else(is_foreign)?,
            receipt: row.etag().map(|etag| Receipt { partition_key, row_key, etag }),
        })
    }

    /// Returns the row of the message in a partition. `claim_id` is empty for a put.
    pub(super) fn row(&self, partition_key: &str, claim_id: &str) -> Entity {
        self.with_properties(Entity::new(partition_key, self.row_key()), claim_id)
    }

    /// Returns the row of a poison message.
    pub(super) fn poison_row(&self, partition_key: &str) -> Entity {
        self.with_properties(Entity::new(partition_key, &*self.id), "")
    }

    fn with_properties(&self, row: Entity, claim_id: &str) -> Entity {
        let count = i32::try_from(self.dequeue_count).unwrap_or(i32::MAX);
        let row = row.with(TEXT, &*self.text).with(DEQUEUE_COUNT, count);
        let row = row.with(INSERTED, self.inserted);
        if claim_id.is_empty() { row } else { row.with(CLAIM_ID, claim_id) }
    }

    pub(super) fn row_key(&self) -> String {
        format!("{}-{}", time_key(self.next_visible.ticks()), self.id)
    }

    /// Sets the time from which the message is visible. The RowKey changes, because a group has at
    /// most one operation on a row.
    pub(super) fn hide(&mut self, now: DateTime, visibility_timeout: Duration) {
        let before = self.next_visible;
        self.next_visible = after(now, ticks_in(visibility_timeout));
        if self.next_visible == before {
            self.next_visible = after(before, 1);
        }
    }

    /// Returns the receipt.
    ///
    /// # Errors
    /// `InvalidInput` if the message was peeked.
    pub(super) fn receipt(&self) -> Result<&Receipt> {
        self.receipt.as_ref().ok_or_else(|| {
            let message = quoted("message", &self.id);
            refused(format!("{message} was peeked: only a claimed message has a pop receipt"))
        })
    }

    /// Returns about the bytes of an operation with the message: those of the entity, or as JSON.
    pub(super) fn weight(&self) -> usize {
        let is_escaped = |byte: &u8| *byte < b' ' || [b'"', b'\\'].contains(byte);
        let as_json = self.text.len() + 5 * self.text.bytes().filter(is_escaped).count();
        // A character has at least as many bytes in UTF-8 as UTF-16 units.
        OVERHEAD + as_json.max(2 * self.text.len())
    }
}

/// Whether a row was written by the group `claim_id`.
pub(super) fn is_of_claim(row: &Entity, claim_id: &str) -> bool {
    row.get::<&str>(CLAIM_ID).is_ok_and(|found| found == claim_id)
}

/// Returns the beginning of the RowKeys of a time in ticks.
pub(super) fn time_key(ticks: u64) -> String {
    // Times until the year 9999 have so many digits.
    keys::pad(ticks, TIME_DIGITS).unwrap_or_default()
}

fn after(time: DateTime, ticks: u64) -> DateTime {
    DateTime::from_ticks(time.ticks().saturating_add(ticks)).unwrap_or(DateTime::MAX)
}

pub(super) fn refused(text: impl Into<String>) -> Error {
    Error::refused_with(Code::InvalidInput, text.into())
}
