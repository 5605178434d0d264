//! Encodes user keys (table, PartitionKey and RowKey) as bytes that sort as Azure Table storage
//! sorts entities. FORMAT.md §key.
//!
//! Invariants
//! * keys of valid entities do not contain U+0000, so the first 00 after the table id ends the
//!   PartitionKey;
//! * the bytes of two keys compare like (table, PartitionKey, RowKey), texts by UTF-16 code unit;
//! * a bound from a filter may contain any character, and sorts correctly among the keys.
//!
//! Keys do not contain the Seq and the kind of an entry, which are stored separately.

use std::borrow::Cow;
use std::fmt;

use super::Kind;
use super::names::TableId;
use crate::codec::{Cursor, DecodeError, find_zero, is_ascii, is_plain, utf8};
use crate::model::{Seq, utf16_rank, utf16_unrank_in_place};

const STRUCTURE: &str = "user key";
/// The number of bytes of the table id at the start of a key.
pub(crate) const TABLE_ID_BYTES: usize = 4;
/// The byte that ends a PartitionKey; no encoded text contains it.
const SEPARATOR: u8 = 0;
/// The byte directly above [`SEPARATOR`]. The encoding of every character that a key may contain is
/// greater.
const AFTER_SEPARATOR: u8 = 1;
/// Keys up to this length are built on the stack.
const SHORT_BYTES: usize = 128;

/// Appends the key of an entity.
///
/// Requires: neither text contains U+0000.
pub(crate) fn encode_user_key(table: TableId, pk: &str, rk: &str, out: &mut Vec<u8>) {
    debug_assert!(!pk.contains('\0') && !rk.contains('\0'), "keys are checked before");
    out.reserve(TABLE_ID_BYTES + pk.len() + 1 + rk.len());
    put_table(out, table);
    put_text(out, pk);
    out.push(SEPARATOR);
    put_text(out, rk);
}

/// Returns the key of an entity.
pub(crate) fn user_key(table: TableId, pk: &str, rk: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(TABLE_ID_BYTES + pk.len() + 1 + rk.len());
    encode_user_key(table, pk, rk, &mut key);
    key
}

/// Appends a RowKey to a key that ends with the separator.
///
/// Requires: the RowKey does not contain U+0000.
#[inline]
pub(crate) fn put_row_key(out: &mut Vec<u8>, rk: &str) {
    put_text(out, rk);
}

/// Calls `with` with the key of an entity with these texts. Returns `None` if a text contains
/// U+0000, because no entity has such a key. A short key is built without allocation.
#[inline]
pub(crate) fn with_possible_key<R>(
    table: TableId,
    pk: &str,
    rk: &str,
    with: impl FnOnce(&[u8]) -> R,
) -> Option<R> {
    let is_plain = is_plain(pk.as_bytes()) && is_plain(rk.as_bytes());
    if !is_plain && (pk.contains('\0') || rk.contains('\0')) {
        return None;
    }
    let (pk_end, len) = (TABLE_ID_BYTES + pk.len(), TABLE_ID_BYTES + pk.len() + 1 + rk.len());
    let (mut short, mut long) = ([SEPARATOR; SHORT_BYTES], Vec::new());
    let key = match short.get_mut(..len) {
        Some(key) => key,
        None => {
            long.resize(len, SEPARATOR);
            &mut long[..]
        }
    };
    key[..TABLE_ID_BYTES].copy_from_slice(&table_bytes(table));
    key[TABLE_ID_BYTES..pk_end].copy_from_slice(pk.as_bytes());
    key[pk_end + 1..].copy_from_slice(rk.as_bytes());
    if !is_plain {
        key[TABLE_ID_BYTES..].iter_mut().for_each(|byte| *byte = utf16_rank(*byte));
    }
    Some(with(key))
}

/// Appends the key of an entity with these texts. Returns false if a text contains U+0000, because
/// no entity has such a key.
pub(crate) fn put_possible_key(table: TableId, pk: &str, rk: &str, out: &mut Vec<u8>) -> bool {
    let is_possible = |text: &str| find_zero(text.as_bytes()).is_none();
    let possible = is_possible(pk) && is_possible(rk);
    if possible {
        encode_user_key(table, pk, rk, out);
    }
    possible
}

/// Splits a key into the table and the encoded PartitionKey and RowKey.
#[inline]
pub(crate) fn decode_user_key(key: &[u8]) -> Result<(TableId, &[u8], &[u8]), DecodeError> {
    let mut cursor = Cursor::new(STRUCTURE, key);
    let table = table_id(cursor.take(TABLE_ID_BYTES)?);
    let texts = cursor.rest();
    match find_zero(texts) {
        Some(end) => Ok((table, &texts[..end], &texts[end + 1..])),
        None => Err(cursor.error("nothing ends the PartitionKey")),
    }
}

/// Returns the table of a key or of a bound.
pub(crate) fn table_of(key: &[u8]) -> Option<TableId> {
    key.get(..TABLE_ID_BYTES).map(table_id)
}

/// Returns the text of an encoded PartitionKey or RowKey.
pub(crate) fn decode_part(part: &[u8]) -> Result<Cow<'_, str>, DecodeError> {
    let plain = is_ascii(part) || part.iter().all(|&byte| byte < 0xee);
    let text = if plain {
        utf8(part).map(Cow::Borrowed).map_err(|e| e.valid_up_to())
    } else {
        let mut bytes = part.to_vec();
        utf16_unrank_in_place(&mut bytes);
        String::from_utf8(bytes).map(Cow::Owned).map_err(|e| e.utf8_error().valid_up_to())
    };
    text.map_err(|at| DecodeError::new(STRUCTURE, at, "a key is not text"))
}

/// Encodes a text in the same way as a PartitionKey or RowKey in a key. The text may contain
/// characters that are not allowed in keys.
pub(crate) fn ranked_text(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    put_text(&mut bytes, text);
    bytes
}

/// Returns the lower bound of the keys of `table`.
pub(crate) fn table_start(table: TableId) -> Vec<u8> {
    let mut bound = Vec::with_capacity(TABLE_ID_BYTES);
    put_table(&mut bound, table);
    bound
}

/// Returns the exclusive upper bound of the keys of `table`.
pub(crate) fn table_end(table: TableId) -> Vec<u8> {
    match table.0.checked_add(1) {
        Some(next) => table_start(TableId(next)),
        // No encoded text contains FF.
        None => vec![0xff; TABLE_ID_BYTES + 1],
    }
}

/// Returns the bound between keys with a PartitionKey < `pk`, which are below it, and keys with a
/// PartitionKey ≥ `pk`, which are at or above it. `pk` may contain any character.
pub(crate) fn before_partition(table: TableId, pk: &str) -> Vec<u8> {
    partition_bound(table, pk, SEPARATOR)
}

/// Returns the bound between keys with a PartitionKey ≤ `pk`, which are below it, and keys with a
/// PartitionKey > `pk`, which are at or above it. `pk` may contain any character.
pub(crate) fn after_partition(table: TableId, pk: &str) -> Vec<u8> {
    partition_bound(table, pk, AFTER_SEPARATOR)
}

/// Returns the bound between keys < (`pk`, `rk`), which are below it, and keys ≥ (`pk`, `rk`),
/// which are at or above it. Both texts may contain any character.
pub(crate) fn before_row(table: TableId, pk: &str, rk: &str) -> Vec<u8> {
    row_bound(table, pk, rk, false)
}

/// Returns the bound between keys ≤ (`pk`, `rk`), which are below it, and keys > (`pk`, `rk`),
/// which are at or above it. Both texts may contain any character.
pub(crate) fn after_row(table: TableId, pk: &str, rk: &str) -> Vec<u8> {
    row_bound(table, pk, rk, true)
}

/// Returns the partition part of a key, up to and including the separator.
pub(crate) fn partition_of(key: &[u8]) -> Option<&[u8]> {
    let end = find_zero(key.get(TABLE_ID_BYTES..)?)?;
    key.get(..TABLE_ID_BYTES + end + 1)
}

/// Returns the first eight bytes of `rest` as a big-endian number, padded with zeros. `rest` is the
/// part of a key after a common prefix. If the numbers of two keys differ, they compare like the
/// keys.
#[inline]
#[expect(clippy::big_endian_bytes, reason = "the first byte decides, as it does in the key")]
pub(crate) fn head(rest: &[u8]) -> u64 {
    if let Some(bytes) = rest.first_chunk::<8>() {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0; 8];
    bytes[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(bytes)
}

/// Displays an entry: `t1/bolts/m4x20#17,PUT`.
pub(crate) struct DisplayEntry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) seq: Seq,
    pub(crate) kind: Kind,
}

/// Displays a user key or a bound: `t1/bolts/m4x20`. Bytes that are not a key are displayed in hex.
pub(crate) struct DisplayKey<'a>(pub(crate) &'a [u8]);

impl fmt::Display for DisplayEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Put => "PUT",
            Kind::Delete => "DELETE",
        };
        write!(f, "{}#{},{kind}", DisplayKey(self.key), self.seq)
    }
}

impl fmt::Display for DisplayKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = decode_user_key(self.0)
            .and_then(|(table, pk, rk)| Ok((table, decode_part(pk)?, decode_part(rk)?)));
        match texts {
            Ok((table, pk, rk)) => {
                write!(f, "{table}/{}/{}", pk.escape_debug(), rk.escape_debug())
            }
            Err(_) => {
                f.write_str("0x")?;
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

/// Formats an inclusive interval of keys: `t1/bolts/m4x20 to t1/nuts/m3`.
pub(crate) fn display_keys(first: &[u8], last: &[u8]) -> String {
    format!("{} to {}", DisplayKey(first), DisplayKey(last))
}

fn partition_bound(table: TableId, pk: &str, end: u8) -> Vec<u8> {
    let mut bound = Vec::with_capacity(TABLE_ID_BYTES + pk.len() + 1);
    put_partition_bound(&mut bound, table, pk, end);
    bound
}

fn put_partition_bound(bound: &mut Vec<u8>, table: TableId, pk: &str, end: u8) {
    put_table(bound, table);
    let whole = put_text_before_nul(bound, pk);
    bound.push(if whole { end } else { AFTER_SEPARATOR });
}

fn row_bound(table: TableId, pk: &str, rk: &str, after: bool) -> Vec<u8> {
    let mut bound =
        Vec::with_capacity(TABLE_ID_BYTES + pk.len() + 1 + rk.len() + usize::from(after));
    put_partition_bound(&mut bound, table, pk, SEPARATOR);
    // No entity has a PartitionKey with U+0000, so the RowKey does not matter: the bound is between
    // two partitions.
    if find_zero(pk.as_bytes()).is_none() {
        let whole = put_text_before_nul(&mut bound, rk);
        if after || !whole {
            bound.push(AFTER_SEPARATOR);
        }
    }
    bound
}

/// Appends `text` up to its first U+0000. Returns true if `text` has no U+0000. Otherwise `text`
/// sorts directly after the key that equals the appended part, and before every longer key with
/// this prefix. The caller then appends a byte 01 to get the bound.
fn put_text_before_nul(out: &mut Vec<u8>, text: &str) -> bool {
    if is_plain(text.as_bytes()) {
        out.extend_from_slice(text.as_bytes());
        return true;
    }
    let prefix = text.split('\0').next().unwrap_or_default();
    put_text(out, prefix);
    prefix.len() == text.len()
}

#[inline]
fn put_text(out: &mut Vec<u8>, text: &str) {
    let start = out.len();
    out.extend_from_slice(text.as_bytes());
    if !is_ascii(text.as_bytes()) {
        out[start..].iter_mut().for_each(|byte| *byte = utf16_rank(*byte));
    }
}

fn put_table(out: &mut Vec<u8>, table: TableId) {
    out.extend_from_slice(&table_bytes(table));
}

#[expect(clippy::big_endian_bytes, reason = "bytes of a key must sort as its numbers do")]
fn table_bytes(table: TableId) -> [u8; TABLE_ID_BYTES] {
    table.0.to_be_bytes()
}

#[expect(clippy::big_endian_bytes, reason = "bytes of a key must sort as its numbers do")]
fn table_id(bytes: &[u8]) -> TableId {
    let mut array = [0; TABLE_ID_BYTES];
    array.copy_from_slice(bytes);
    TableId(u32::from_be_bytes(array))
}

#[cfg(test)]
mod tests;
