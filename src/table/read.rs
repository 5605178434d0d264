//! Reads single entities of a table, in its current state or at a snapshot.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::codec::{DecodeError, is_ascii};
use crate::error::{Error, Result};
use crate::format::key::{
    TABLE_ID_BYTES, decode_part, decode_user_key, put_possible_key, with_possible_key,
};
use crate::format::span::Span;
use crate::lsm::SnapshotGuard;
use crate::model::{
    ETag, Entity, Projector, RowRef, Seq, Shape, ValueRef, Walk, utf16_len, variable_size,
};

use super::Table;

/// A fixed state of the database: every read through a snapshot sees all commits up to one fixed
/// commit, and no later commits.
///
/// The row versions that a snapshot sees are kept as long as the snapshot, a clone of it, or a
/// query at it exists. So drop them when they are no longer needed.
#[derive(Clone)]
pub struct Snapshot {
    guard: Arc<SnapshotGuard>,
}

/// A table at a snapshot. It has no write methods.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// # use rowstone::{Db, Entity};
/// let db = Db::open_in_memory()?;
/// let parts = db.create_table("parts")?;
/// parts.insert(Entity::new("bolts", "m4x20").with("Stock", 1_200))?;
/// let before = db.snapshot();
/// parts.delete("bolts", "m4x20")?;
/// assert!(parts.get("bolts", "m4x20")?.is_none());
/// assert!(parts.at(&before).get("bolts", "m4x20")?.is_some());
/// # Ok(())
/// # }
/// ```
pub struct TableView<'s> {
    pub(crate) table: Table,
    pub(crate) snapshot: &'s Snapshot,
}

/// A row in its stored form. Each property is decoded when it is accessed.
pub struct RowView<'a> {
    key: &'a [u8],
    seq: Seq,
    row: RowRef<'a>,
}

/// An iterator over the properties of a row, by name.
struct RowProperties<'r>(Walk<'r, 'r>);

impl Snapshot {
    pub(crate) fn new(guard: SnapshotGuard) -> Self {
        Self { guard: Arc::new(guard) }
    }

    /// Returns the sequence number (Seq) of the last commit that the snapshot sees. It is the
    /// commit's Timestamp in ticks of 100 ns since 1601-01-01 UTC.
    pub fn seq(&self) -> Seq {
        self.guard.seq
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Snapshot").field(&self.seq()).finish()
    }
}

impl Table {
    /// Returns the entity with these keys, or `None`. Searches the memtables, and usually reads one
    /// line of the hash index for each table file that may hold the key.
    ///
    /// # Errors
    /// `Corruption` and `Io`; `NotFound` if the table was dropped; `Busy` while a gate or a
    /// scalability target blocks reads.
    pub fn get(&self, partition_key: &str, row_key: &str) -> Result<Option<Entity>> {
        self.read(partition_key, row_key, None, |row| row.to_entity())
    }

    /// As [`get`](Self::get), with only the properties in `names`. Names that the entity lacks are
    /// ignored.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_select(
        &self,
        partition_key: &str,
        row_key: &str,
        names: &[&str],
    ) -> Result<Option<Entity>> {
        self.read(partition_key, row_key, None, |row| row.project(&mut Projector::new(names)))
    }

    /// Returns the entities with the given (PartitionKey, RowKey) pairs, in the order of `keys`.
    /// All are read from the same state of the table. The look-ups are sorted by key, so that
    /// adjacent keys share block reads.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_many(&self, keys: &[(&str, &str)]) -> Result<Vec<Option<Entity>>> {
        self.read_many(keys, None)
    }

    /// Calls `with` with the stored row, without copying it. This is the cheapest read.
    ///
    /// # Errors
    /// As [`get`](Self::get), and errors of `with`.
    pub fn with_row<R>(
        &self,
        partition_key: &str,
        row_key: &str,
        with: impl FnOnce(&RowView<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        self.read(partition_key, row_key, None, with)
    }

    /// Returns the table as of `snapshot`, even if the table has been dropped since.
    pub fn at<'s>(&self, snapshot: &'s Snapshot) -> TableView<'s> {
        TableView { table: self.clone(), snapshot }
    }

    fn read_many(&self, keys: &[(&str, &str)], at: Option<Seq>) -> Result<Vec<Option<Entity>>> {
        let table = self.entry.gate.table;
        // All encoded keys are in one buffer. Each item of `sorted` is the range of a key in this
        // buffer, and the key's index in `keys`.
        let texts: usize = keys.iter().map(|(pk, rk)| pk.len() + rk.len()).sum();
        let mut bytes = Vec::with_capacity(texts + keys.len() * (TABLE_ID_BYTES + 1));
        let mut sorted: Vec<(Range<usize>, usize)> = Vec::with_capacity(keys.len());
        for (index, (pk, rk)) in keys.iter().enumerate() {
            let start = bytes.len();
            if put_possible_key(table, pk, rk, &mut bytes) {
                sorted.push((start..bytes.len(), index));
            }
        }
        let key_at = |place: &Range<usize>| &bytes[place.clone()];
        sorted.sort_unstable_by(|(a, _), (b, _)| key_at(a).cmp(key_at(b)));
        self.engine.writer().throttle_keys(sorted.iter().map(|(place, _)| key_at(place)))?;
        let view = self.engine.read_view(at);
        let is_read = |span: &Span| sorted.iter().any(|(place, _)| span.contains(key_at(place)));
        self.engine.writer().admit_read(is_read)?;
        let mut found = Vec::new();
        found.resize_with(keys.len(), || None);
        for (place, index) in &sorted {
            let key = key_at(place);
            found[*index] = view.get(key, |seq, row| RowView { key, seq, row }.to_entity())?;
        }
        if at.is_none() {
            self.entry.check(self.engine.reader().published())?;
        }
        Ok(found)
    }

    #[inline]
    fn read<R>(
        &self,
        partition_key: &str,
        row_key: &str,
        at: Option<Seq>,
        with: impl FnOnce(&RowView<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        let found = with_possible_key(self.entry.gate.table, partition_key, row_key, |key| {
            self.engine.writer().throttle_keys(std::iter::once(key))?;
            self.engine.writer().admit_read(|span| span.contains(key))?;
            self.engine.reader().get(key, at, |seq, row| with(&RowView { key, seq, row }))
        });
        let found = found.transpose()?.flatten();
        if at.is_none() {
            self.entry.check(self.engine.reader().published())?;
        }
        Ok(found)
    }
}

impl TableView<'_> {
    /// Returns the entity with these keys as of the snapshot.
    ///
    /// # Errors
    /// `Corruption` and `Io`.
    pub fn get(&self, partition_key: &str, row_key: &str) -> Result<Option<Entity>> {
        self.table.read(partition_key, row_key, Some(self.snapshot.seq()), |row| row.to_entity())
    }

    /// As [`Table::get_many`], as of the snapshot.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_many(&self, keys: &[(&str, &str)]) -> Result<Vec<Option<Entity>>> {
        self.table.read_many(keys, Some(self.snapshot.seq()))
    }

    /// As [`get`](Self::get), with only the properties in `names`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_select(
        &self,
        partition_key: &str,
        row_key: &str,
        names: &[&str],
    ) -> Result<Option<Entity>> {
        let at = Some(self.snapshot.seq());
        let mut projector = Projector::new(names);
        self.table.read(partition_key, row_key, at, |row| row.project(&mut projector))
    }
}

impl<'a> RowView<'a> {
    pub(crate) fn new(key: &'a [u8], seq: Seq, row: RowRef<'a>) -> Self {
        Self { key, seq, row }
    }

    /// Returns the PartitionKey; copied only if it contains characters above U+DFFF.
    ///
    /// # Errors
    /// `Corruption` for a key that is not UTF-8.
    pub fn partition_key(&self) -> Result<Cow<'_, str>> {
        Self::text(self.parts()?.0)
    }

    /// Returns the RowKey; copied only if it contains characters above U+DFFF.
    ///
    /// # Errors
    /// `Corruption` for a key that is not UTF-8.
    pub fn row_key(&self) -> Result<Cow<'_, str>> {
        Self::text(self.parts()?.1)
    }

    /// Returns the key as the engine stores it.
    #[inline]
    pub(crate) fn key(&self) -> &'a [u8] {
        self.key
    }

    /// Decodes the text of one of the [parts](Self::parts) of a key.
    #[inline]
    pub(crate) fn text(part: &[u8]) -> Result<Cow<'_, str>> {
        decode_part(part).map_err(damaged)
    }

    /// Returns the Seq of the commit that wrote the entity.
    #[inline]
    pub(crate) fn seq(&self) -> Seq {
        self.seq
    }

    /// Returns the ETag.
    pub fn etag(&self) -> ETag {
        ETag::from(self.seq())
    }

    /// Returns the value of a property; `None` if the entity has no property of this name.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn value(&self, name: &str) -> Result<Option<ValueRef<'_>>> {
        self.row.find(name).map_err(damaged)
    }

    /// Iterates over names and values in the order of names. Decodes each value when it is reached,
    /// which is cheaper than one look-up per name. If the names are known, a
    /// [`RowDecoder`](crate::RowDecoder) is even cheaper. The iterator ends after an error.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// # use rowstone::{Db, Entity};
    /// let parts = Db::open_in_memory()?.create_table("parts")?;
    /// parts.insert(Entity::new("bolts", "m4x20").with("Price", 0.12).with("Stock", 1_200))?;
    /// let names = parts.with_row("bolts", "m4x20", |row| {
    ///     row.properties().map(|property| Ok(property?.0.to_owned())).collect()
    /// })?;
    /// assert_eq!(names, Some(vec!["Price".to_owned(), "Stock".to_owned()]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Corruption`.
    #[inline]
    pub fn properties(&self) -> impl Iterator<Item = Result<(&str, ValueRef<'_>)>> {
        RowProperties(self.row.shape.arc().walk(self.row.body))
    }

    /// Returns the number of properties, not counting keys and Timestamp.
    pub fn len(&self) -> usize {
        self.row.shape.arc().len()
    }

    /// Whether there are no properties except keys and Timestamp.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size that the limits of an entity apply to, as [`Entity::size`] does. Checks the
    /// whole row for damage.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn size(&self) -> Result<usize> {
        let shape = self.row.shape.arc();
        let size = match shape.checked_text_bytes(self.row.body).map_err(damaged)? {
            Some(bytes) => 2 * bytes,
            None => {
                shape.values(self.row.body).filter_map(|value| value.ok()).map(variable_size).sum()
            }
        };
        Ok(4 + 2 * self.key_units()? + shape.size_base() + size)
    }

    /// Returns the size of the properties that `projector` selects. Checks only these for damage.
    pub(crate) fn projected_size(&self, projector: &mut Projector) -> Result<usize> {
        projector.size(self.key_units()?, &self.row).map_err(damaged)
    }

    /// Returns the number of UTF-16 units of both keys.
    #[inline]
    fn key_units(&self) -> Result<usize> {
        let texts = self.key.get(TABLE_ID_BYTES..).unwrap_or_default();
        if is_ascii(texts) {
            // Each ASCII byte is one unit. The separator between the keys does not count.
            return Ok(texts.len().saturating_sub(1));
        }
        Ok(utf16_len(&self.partition_key()?) + utf16_len(&self.row_key()?))
    }

    /// Returns the row's shape, and its body, which contains the values as the shape describes.
    #[inline(always)]
    pub(crate) fn stored(&self) -> (&Arc<Shape>, &[u8]) {
        (self.row.shape.arc(), self.row.body)
    }

    /// Copies the row into an owned entity, with one allocation.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn to_entity(&self) -> Result<Entity> {
        let (partition_key, row_key) = self.parts()?;
        Entity::from_row(partition_key, row_key, self.seq, &self.row).map_err(damaged)
    }

    /// Copies the properties that `projector` selects into an owned entity.
    pub(crate) fn project(&self, projector: &mut Projector) -> Result<Entity> {
        let (partition_key, row_key) = self.parts()?;
        projector.entity(partition_key, row_key, self.seq, &self.row).map_err(damaged)
    }

    /// Returns the encoded PartitionKey and RowKey.
    #[inline]
    pub(crate) fn parts(&self) -> Result<(&'a [u8], &'a [u8])> {
        decode_user_key(self.key()).map(|(_, pk, rk)| (pk, rk)).map_err(damaged)
    }
}

impl<'r> Iterator for RowProperties<'r> {
    type Item = Result<(&'r str, ValueRef<'r>)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self.0.step()? {
            (name, Some(value)) => Some(Ok((name, value))),
            (_, None) => Some(Err(damaged(self.0.problem()))),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

/// Returns the error for a malformed row. Its checksum was valid, so the row was written
/// incorrectly. Still, this is an error and not a panic.
fn damaged(error: DecodeError) -> Error {
    Error::decode("row".as_ref(), 0, error)
}

#[cfg(feature = "serde")]
impl Table {
    /// Returns the entity with these keys as an application's struct, or `None`. See `Entity::to`.
    ///
    /// # Errors
    /// As [`get`](Self::get); `InvalidInput` if a property does not fit its field.
    pub fn get_as<T: serde::de::DeserializeOwned>(
        &self,
        partition_key: &str,
        row_key: &str,
    ) -> Result<Option<T>> {
        self.get(partition_key, row_key)?.map(|entity| entity.to()).transpose()
    }
}
