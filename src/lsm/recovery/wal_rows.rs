//! Inserts the commits of a log into memtables. Converts rows to the shape numbers of this process,
//! and collects range tombstones and table drops.
//!
//! Invariants
//! * Every row is checked against its shape before it is used.
//! * A shape number is valid in one log only: the next log begins without shapes.
//!
//! Not here: which records are accepted (`replay`, `wal_tail`).

use crate::codec::{DecodeError, HashSeed, hash};
use crate::format::Kind;
use crate::format::edit::RangeTombstone;
use crate::format::key::decode_user_key;
use crate::format::names::TableId;
use crate::format::row::{decode_row, encode_head, row_shape_number};
use crate::format::shape::decode_shape;
use crate::format::wal::{Change, Group};
use crate::memtable::{Memtable, NewEntry};
use crate::model::{Interned, Seq, Shapes};
use crate::mutants::mutant;
use crate::sort::SortedMap;

/// The shapes of the current log, and buffers.
#[derive(Default)]
pub(in crate::lsm) struct LogRows {
    /// The shapes by number. A log has few shapes, so a lookup in a tree of one node is faster than
    /// in a hash table. Each row requires a lookup.
    shapes: SortedMap<u32, Interned>,
    /// Buffers for the current key and the head of the current row.
    key: Vec<u8>,
    head: Vec<u8>,
}

/// The table drops and range tombstones of the replayed commits. The manifest does not contain them
/// yet.
#[derive(Clone, Default)]
pub(in crate::lsm) struct Drops {
    pub(in crate::lsm) tables: SortedMap<TableId, Seq>,
    pub(in crate::lsm) range_tombstones: Vec<RangeTombstone>,
}

/// The reason why a group is invalid.
pub(in crate::lsm) struct Problem(pub(in crate::lsm) String);

impl LogRows {
    /// Forgets all shapes, because another log begins.
    pub(in crate::lsm) fn begin_log(&mut self) {
        self.shapes.clear();
    }

    /// Adds the shapes that the group defines: those that no earlier group of the log used.
    pub(in crate::lsm) fn define(
        &mut self,
        shapes: &Shapes,
        group: &Group<'_>,
    ) -> Result<(), Problem> {
        for definition in group.shapes() {
            self.shapes.insert(definition.number, shapes.intern(&decode_shape(definition.shape)?));
        }
        Ok(())
    }

    /// Inserts the entries of commit `seq` into `memtable` and adds its drops to `drops`. If the
    /// commit has a range tombstone, `bytes`, the length of the commit's payload, counts towards
    /// the memtable's size. Without a memtable the entries are only checked.
    pub(in crate::lsm) fn take(
        &mut self,
        seed: HashSeed,
        memtable: Option<&Memtable>,
        (seq, bytes): (Seq, usize),
        group: &Group<'_>,
        drops: &mut Drops,
    ) -> Result<(), Problem> {
        group.check(seq).map_err(Problem)?;
        self.insert(seed, memtable, seq, group)?;
        if group.is_plain() {
            return Ok(());
        }
        let known = drops.range_tombstones.len();
        drops.take(group, seq);
        let bytes = if drops.range_tombstones.len() > known { bytes } else { 0 };
        memtable.iter().for_each(|memtable| memtable.record_bytes(seq, bytes));
        Ok(())
    }

    fn insert(
        &mut self,
        seed: HashSeed,
        memtable: Option<&Memtable>,
        seq: Seq,
        group: &Group<'_>,
    ) -> Result<(), Problem> {
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        key.extend_from_slice(group.key_prefix);
        let is_half = mutant!("half-group");
        for entry in group.entries() {
            key.truncate(group.key_prefix.len());
            key.extend_from_slice(entry.key_suffix);
            decode_user_key(&key)?;
            self.head.clear();
            let body = match entry.kind {
                Kind::Put => self.reframe(entry.row)?,
                _ => &[],
            };
            if let Some(memtable) = memtable {
                let (hash, key, row) = (hash(seed, &key), &key[..], [&self.head[..], body]);
                let entry = NewEntry { hash, key, kind: entry.kind, row };
                memtable.insert_all(seq, std::iter::once(entry));
            }
            if is_half {
                break;
            }
        }
        self.key = key;
        Ok(())
    }

    /// Checks a row and returns its body. Appends its head, with the shape number of this process,
    /// to the buffer for heads.
    fn reframe<'r>(&mut self, row: &'r [u8]) -> Result<&'r [u8], Problem> {
        let known = row_shape_number(row)?.and_then(|number| self.shapes.get(&number));
        let decoded = decode_row(row, |_| known.map(|known| &known.shape))?;
        decoded.check()?;
        let id = known.and_then(|known| known.id);
        encode_head(&mut self.head, id.map(|id| id.0), &decoded);
        // The body ends with the row.
        Ok(row.split_at(row.len() - decoded.body.len()).1)
    }
}

impl Drops {
    /// Adds the drops of commit `seq`.
    fn take(&mut self, group: &Group<'_>, seq: Seq) {
        for change in group.changes() {
            match change {
                Change::Dropped(table) => {
                    self.tables.insert(table, seq);
                }
                change => self.range_tombstones.extend(change.into_tombstone(seq)),
            }
        }
    }
}

impl From<DecodeError> for Problem {
    fn from(error: DecodeError) -> Self {
        Problem(error.to_string())
    }
}
