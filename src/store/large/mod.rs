//! Values of any length, in chunks with a manifest row.
//!
//! Invariants
//! * a group that makes chunks the current ones deletes their mark, by the ETag that it had before
//!   all but the first chunks were written. A group that replaces them inserts their mark;
//! * a sweep deletes a mark before its chunks, so no manifest of swept chunks is committed later.
//!
//! Files: `rows` (keys and entities), `write`, `read`, `sweep`.

mod read;
mod rows;
mod sweep;
#[cfg(test)]
mod tests;
mod write;

use std::io::{Read, Write};
use std::time::Duration;

use self::read::{Limited, Unlimited};
pub use self::rows::Info;
use self::rows::{Manifest, Values};
use self::write::Expected;
use super::table_store::TableStore;
use crate::error::Result;
use crate::model::ETag;

/// Values of any length, each under a PartitionKey and a name, in a table of a store.
///
/// A value below 960 KiB is one entity. A longer one is divided into chunks, which are entities of
/// the same partition. A write first stores the chunks, then replaces the *manifest*, an entity
/// that refers to them, so it takes effect at once: a reader finds the old or the new value, also
/// after a crash of the writer.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use rowstone::large::LargeValues;
/// use rowstone::store::TableStore;
/// use rowstone::{Db, ErrorKind};
/// use std::time::Duration;
///
/// let store = Db::open_in_memory()?;
/// store.create_table("files")?;
/// let files = LargeValues::new(&store, "files");
/// let etag = files.put("maps", "city.png", &vec![7; 2_000_000][..])?;
/// assert_eq!(files.head("maps", "city.png")?.expect("it was stored").length, 2_000_000);
///
/// // Two writers have read the value: only one of them replaces it.
/// files.put_if("maps", "city.png", &b"a"[..], Some(&etag))?;
/// let late = files.put_if("maps", "city.png", &b"b"[..], Some(&etag)).unwrap_err();
/// assert_eq!(late.kind(), ErrorKind::PreconditionFailed);
/// assert_eq!(files.get_vec("maps", "city.png", 1 << 20)?.as_deref(), Some(&b"a"[..]));
///
/// // The chunks of the replaced value are deleted after a day.
/// assert_eq!(files.sweep(Duration::from_secs(86_400))?, 0);
/// # Ok(())
/// # }
/// ```
///
/// **Names** have any characters. Those that keys must not have, `!` and `%` become three
/// characters (`%2F`), and a name has at most 982 after that.
///
/// **Other rows.** The table may have rows of other programs whose RowKeys have no `!`, but
/// [`sweep`](Self::sweep) reads the keys of all rows. A RowKey without these characters is the name
/// of its value.
///
/// **Lost answers.** A `put` finds out whether it took effect, and returns `OutcomeUnknown` only
/// if the store stays away, or if another writer replaced what the put may have stored.
pub struct LargeValues<'s>(Values<'s>);

impl<'s> LargeValues<'s> {
    /// Returns the values of a table. Nothing is read or written.
    pub fn new(store: &'s dyn TableStore, table: impl Into<String>) -> Self {
        Self(Values { store, table: table.into() })
    }

    /// Stores a value, or replaces the stored one. Of two writers at once the later one wins.
    ///
    /// # Errors
    /// * `Io` if `value` cannot be read: the stored value stays as it was;
    /// * `Timeout` if a [`sweep`](Self::sweep) deleted the chunks because the write took longer
    ///   than its grace;
    /// * `PreconditionFailed` if other writers were faster several times;
    /// * `OutcomeUnknown`; see [`LargeValues`];
    /// * those of [`TableStore::commit`].
    pub fn put(&self, partition_key: &str, name: &str, value: impl Read) -> Result<ETag> {
        self.0.write(&self.0.place(partition_key, name)?, value, &Expected::Anything)
    }

    /// Stores a value if the stored one still has the ETag `expected`; `None` means that there is
    /// none.
    ///
    /// # Errors
    /// * `PreconditionFailed` if the value was replaced since;
    /// * `NotFound` if it was deleted;
    /// * `AlreadyExists` if none was expected;
    /// * those of [`put`](Self::put).
    pub fn put_if(
        &self,
        partition_key: &str,
        name: &str,
        value: impl Read,
        expected: Option<&ETag>,
    ) -> Result<ETag> {
        let expected = expected.map_or(Expected::Absent, Expected::State);
        self.0.write(&self.0.place(partition_key, name)?, value, &expected)
    }

    /// Writes a value to `sink`; `None` if there is none. The last chunk, of up to 960 KiB, is
    /// written after length and checksum have been verified. After an error `sink` has none, some
    /// or all of the earlier chunks, in order.
    ///
    /// # Errors
    /// * `PreconditionFailed` if the value was replaced and its chunks were deleted by a
    ///   [`sweep`](Self::sweep) when `sink` had a part of it already. If it had none, the new value
    ///   is read;
    /// * `Corruption` if chunks are missing, or if length or checksum differ;
    /// * `InvalidInput` if the entity is not a large value;
    /// * `Io` of `sink`.
    pub fn get(
        &self,
        partition_key: &str,
        name: &str,
        sink: &mut dyn Write,
    ) -> Result<Option<Info>> {
        let mut sink = Unlimited { sink, is_begun: false };
        self.0.read(&self.0.place(partition_key, name)?, &mut sink)
    }

    /// Returns a value of at most `length_max` bytes; `None` if there is none.
    ///
    /// # Errors
    /// `InvalidInput` if the value is longer, and those of [`get`](Self::get).
    pub fn get_vec(
        &self,
        partition_key: &str,
        name: &str,
        length_max: usize,
    ) -> Result<Option<Vec<u8>>> {
        let mut sink = Limited { bytes: Vec::new(), length_max };
        let found = self.0.read(&self.0.place(partition_key, name)?, &mut sink)?;
        Ok(found.map(|_| sink.bytes))
    }

    /// Returns length and ETag of a value; `None` if there is none.
    ///
    /// # Errors
    /// `InvalidInput` if the entity is not a large value, and those of [`TableStore::get`].
    pub fn head(&self, partition_key: &str, name: &str) -> Result<Option<Info>> {
        Ok(self.0.manifest(&self.0.place(partition_key, name)?)?.map(Manifest::into_info))
    }

    /// Deletes a value.
    ///
    /// # Errors
    /// `NotFound` if there is none, and those of [`TableStore::commit`].
    pub fn delete(&self, partition_key: &str, name: &str) -> Result<()> {
        self.0.remove(&self.0.place(partition_key, name)?)
    }

    /// Deletes the chunks of values that were replaced or deleted, and of writes that began, longer
    /// ago than `grace` by [the store's time](TableStore::now). Returns the number of chunks.
    ///
    /// The grace must be longer than a read or a write of a value takes with all repeats of its
    /// requests, such as a day. A read or write that takes longer fails. Sweeps may be stopped at
    /// any time, and run beside each other. The table must have no
    /// [time to live](crate::Db::set_ttl), because chunks are older than their manifest, and a
    /// `Remote` must not read from the secondary location.
    ///
    /// # Errors
    /// Those of [`TableStore::query`] and [`TableStore::commit`].
    pub fn sweep(&self, grace: Duration) -> Result<u64> {
        self.0.sweep(grace)
    }
}

impl std::fmt::Debug for LargeValues<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LargeValues").field(&self.0.table).finish()
    }
}
