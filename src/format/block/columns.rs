//! Splits a block of rows into columns, which compress better, and joins the columns again. The
//! lengths, Seqs and keys of all entries are columns. For rows of the same shape, the first bytes
//! of all rows are a column, then the second bytes, and so on. FORMAT.md §block.
//!
//! Invariants
//! * joining the columns of a block reproduces its bytes;
//! * joining allocates no more than the requested length, and never panics.
//!
//! `block` compresses and frames the columns; `row_block` defines the contents of a block of rows.

use crate::codec::{Cursor, DecodeError, put_varint, varint_len};
use crate::format::row_block::{EntryPlace, FIXED_BYTES, RowBlock, RowLayout, SLOTS_MAX};

/// The maximum number of bytes by which the columns are longer than the block: one byte for each
/// suffix length, three for each head (see [`HEADS`]), and one for the number of heads.
pub(super) const MORE_BYTES_MAX: usize = SLOTS_MAX + 3 * HEADS + 1;

const STRUCTURE: &str = "columns";
/// Rows with one of this many different heads may be stored in columns. A head is the first byte of
/// a row: the number of the row's shape plus one, or 0 if the row contains its own shape.
const HEADS: usize = 0x80;

/// Appends the columns of the block `raw`. `places[n]` is the number of bytes before the texts in a
/// row with shape number `n`.
pub(crate) fn split(raw: &[u8], places: &[u16], out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let block = RowBlock::parse(raw)?;
    let layout = block.layout;
    let entries = (0..block.len()).map(|slot| block.place(slot));
    let entries = entries.collect::<Result<Vec<EntryPlace>, _>>()?;
    let bytes = |from: usize, to: usize| raw.get(from..to).unwrap_or_default();
    let rows: Vec<&[u8]> = entries.iter().map(|entry| bytes(entry.row_at, entry.end)).collect();
    let widths = row_widths(&rows, places);
    out.extend_from_slice(bytes(0, FIXED_BYTES));
    put_widths(&widths, out);
    out.extend_from_slice(block.prefix());
    let suffix = |entry: &EntryPlace| entry.row_at - entry.suffix_at;
    if layout.even_len().is_none() {
        put_numbers(entries.iter().map(suffix), 2, out);
    }
    if !layout.is_puts {
        out.extend(entries.iter().map(|entry| entry.kind as u8));
    }
    for entry in &entries {
        let seq = entry.suffix_at - layout.seq_width;
        out.extend_from_slice(bytes(seq, entry.suffix_at));
    }
    let seqs = out.len() - entries.len() * layout.seq_width;
    transpose(out.get_mut(seqs..).unwrap_or_default(), layout.seq_width);
    put_numbers(rows.iter().map(|row| row.len()), layout.offset_width(), out);
    let suffixes = out.len();
    for entry in &entries {
        out.extend_from_slice(bytes(entry.suffix_at, entry.row_at));
    }
    if let Some(len) = layout.even_len() {
        transpose(out.get_mut(suffixes..).unwrap_or_default(), len);
    }
    put_rows(&rows, &widths, out);
    Ok(())
}

/// Returns, for each head (the first byte of a row), how many bytes at the start of the rows with
/// this head are stored in columns. 0 means that `places` does not cover the head: then only the
/// head itself is in a column.
fn row_widths(rows: &[&[u8]], places: &[u16]) -> [u16; HEADS] {
    let mut widths = [0; HEADS];
    for row in rows {
        if let Some(head @ 1..) = row.first().map(|head| usize::from(*head))
            && let Some((width, places)) = widths.get_mut(head).zip(places.get(head - 1))
        {
            // The number in `places`, but at most the length of the longest row.
            let len = u16::try_from(row.len()).unwrap_or(u16::MAX);
            *width = (*width).max(len.min(*places));
        }
    }
    widths
}

fn put_widths(widths: &[u16; HEADS], out: &mut Vec<u8>) {
    let at = out.len();
    out.push(0);
    for (head, width) in (0u8..).zip(widths).filter(|(_, width)| **width > 1) {
        out.push(head);
        out.extend_from_slice(&width.to_le_bytes());
        if let Some(count) = out.get_mut(at) {
            *count += 1;
        }
    }
}

/// Appends the lowest byte of each number, then the next byte of each, `width` times.
fn put_numbers(numbers: impl Iterator<Item = usize> + Clone, width: usize, out: &mut Vec<u8>) {
    for byte in 0..width {
        out.extend(numbers.clone().map(|number| number.to_le_bytes()[byte]));
    }
}

/// Transposes rows of `width` bytes into columns.
fn transpose(bytes: &mut [u8], width: usize) {
    let rows = bytes.to_vec();
    let mut at = bytes.iter_mut();
    for column in 0..width {
        let column = rows.iter().skip(column).step_by(width);
        at.by_ref().zip(column).for_each(|(to, from)| *to = *from);
    }
}

/// Appends the heads of all rows. Then appends, for each head, the columns of the rows with this
/// head. Last, appends the bytes of each row that are not in columns.
fn put_rows(rows: &[&[u8]], widths: &[u16; HEADS], out: &mut Vec<u8>) {
    out.extend(rows.iter().filter_map(|row| row.first()));
    for (head, width) in (0u8..).zip(widths).filter(|(_, width)| **width > 1) {
        let of_head = rows.iter().filter(|row| row.first() == Some(&head));
        let of_head: Vec<&[u8]> = of_head.copied().collect();
        for at in 1..usize::from(*width) {
            out.extend(of_head.iter().filter_map(|row| row.get(at)));
        }
    }
    for row in rows {
        let width = row.first().map_or(0, |head| row_width(widths, *head));
        out.extend_from_slice(row.get(width..).unwrap_or_default());
    }
}

/// Returns the number of bytes of a row with this head that are stored in columns, including the
/// head.
fn row_width(widths: &[u16; HEADS], head: u8) -> usize {
    usize::from(widths.get(usize::from(head)).copied().unwrap_or(0)).max(1)
}

/// Reassembles the block of `raw_len` bytes that was split into `bytes`.
pub(crate) fn join(bytes: &[u8], raw_len: usize) -> Result<Vec<u8>, DecodeError> {
    let mut cursor = Cursor::new(STRUCTURE, bytes);
    let fixed = cursor.take(FIXED_BYTES)?;
    let layout = RowLayout::fixed(fixed)
        .ok_or_else(|| cursor.error("impossible count, width, prefix length or flags"))?;
    let widths = take_widths(&mut cursor)?;
    let count = layout.count;
    let prefix = cursor.take(layout.prefix_len())?;
    let suffixes = match layout.even_len() {
        Some(len) => vec![len; count],
        None => take_numbers(&mut cursor, count, 2)?,
    };
    let kinds = if layout.is_puts { &[][..] } else { cursor.take(count)? };
    let seqs = cursor.take(count * layout.seq_width)?;
    let rows = take_numbers(&mut cursor, count, layout.offset_width())?;
    let len_of = |len: usize| if layout.even_len().is_some() { 0 } else { varint_len(len as u64) };
    // The sum of hostile lengths may exceed a 32-bit `usize`.
    let heads: u64 = suffixes.iter().map(|len| (len_of(*len) + len) as u64).sum();
    let each = layout.offset_width() + usize::from(!layout.is_puts) + layout.seq_width;
    let rows_len: u64 = rows.iter().map(|len| *len as u64).sum();
    let whole = (FIXED_BYTES + prefix.len() + count * each) as u64 + heads + rows_len;
    if whole != raw_len as u64 {
        return Err(cursor.error(format!("columns of {whole} bytes, {raw_len} expected")));
    }
    let mut out = Vec::with_capacity(raw_len);
    out.extend_from_slice(fixed);
    out.resize(FIXED_BYTES + count * layout.offset_width(), 0);
    out.extend_from_slice(prefix);
    let mut places = Vec::with_capacity(count);
    for (slot, (suffix_len, row_len)) in suffixes.iter().zip(&rows).enumerate() {
        put_offset(&mut out, slot, layout.offset_width());
        if layout.even_len().is_none() {
            put_varint(&mut out, *suffix_len as u64);
        }
        out.extend(kinds.get(slot));
        out.extend(seqs.iter().skip(slot).step_by(count).take(layout.seq_width));
        let suffix_at = out.len();
        out.resize(suffix_at + suffix_len + row_len, 0);
        places.push((suffix_at, suffix_at + suffix_len, out.len()));
    }
    join_suffixes(&mut cursor, layout.even_len(), &places, &mut out)?;
    join_rows(&mut cursor, &widths, &places, &mut out)?;
    cursor.finish()?;
    Ok(out)
}

fn take_widths(cursor: &mut Cursor<'_>) -> Result<[u16; HEADS], DecodeError> {
    let mut widths = [0; HEADS];
    for _ in 0..cursor.u8()? {
        let (head, width) = (cursor.u8()?, cursor.u16()?);
        match widths.get_mut(usize::from(head)) {
            Some(place) if head > 0 => *place = width,
            _ => return Err(cursor.error("columns of rows without a head of one byte")),
        }
    }
    Ok(widths)
}

fn take_numbers(
    cursor: &mut Cursor<'_>,
    count: usize,
    width: usize,
) -> Result<Vec<usize>, DecodeError> {
    let mut numbers = vec![0; count];
    for byte in 0..width {
        let column = cursor.take(count)?;
        let parts = numbers.iter_mut().zip(column);
        parts.for_each(|(number, part)| *number |= usize::from(*part) << (8 * byte));
    }
    Ok(numbers)
}

/// Sets the offset of `slot` to the end of `out`, where its entry begins.
fn put_offset(out: &mut [u8], slot: usize, width: usize) {
    let offset = u32::try_from(out.len()).unwrap_or(u32::MAX).to_le_bytes();
    let at = FIXED_BYTES + slot * width;
    if let Some(place) = out.get_mut(at..at + width) {
        place.iter_mut().zip(offset).for_each(|(to, from)| *to = from);
    }
}

/// The offsets of an entry's suffix, of its row, and of its end.
type Place = (usize, usize, usize);

fn join_suffixes(
    cursor: &mut Cursor<'_>,
    even_len: Option<usize>,
    places: &[Place],
    out: &mut [u8],
) -> Result<(), DecodeError> {
    let Some(len) = even_len else {
        for (suffix_at, row_at, _) in places {
            let suffix = cursor.take(row_at - suffix_at)?;
            out.get_mut(*suffix_at..*row_at).unwrap_or_default().copy_from_slice(suffix);
        }
        return Ok(());
    };
    for column in 0..len {
        let bytes = cursor.take(places.len())?;
        spread(bytes, places.iter().map(|(suffix_at, ..)| suffix_at + column), out);
    }
    Ok(())
}

fn join_rows(
    cursor: &mut Cursor<'_>,
    widths: &[u16; HEADS],
    places: &[Place],
    out: &mut [u8],
) -> Result<(), DecodeError> {
    let rows = places
        .iter()
        .filter(|(_, row_at, end)| row_at < end)
        .map(|(_, row_at, end)| (*row_at, *end));
    let rows: Vec<(usize, usize)> = rows.collect();
    let heads = cursor.take(rows.len())?;
    spread(heads, rows.iter().map(|(row_at, _)| *row_at), out);
    let mut of_head = Vec::new();
    for (head, width) in (0u8..).zip(widths).filter(|(_, width)| **width > 1) {
        of_head.clear();
        let ours = rows.iter().zip(heads).filter(|(_, ours)| **ours == head);
        of_head.extend(ours.map(|(row, _)| *row));
        let shortest = of_head.iter().map(|(row_at, end)| end - row_at).min().unwrap_or(0);
        for at in 1..usize::from(*width) {
            if at >= shortest {
                of_head.retain(|(row_at, end)| at < end - row_at);
                if of_head.is_empty() {
                    break;
                }
            }
            let bytes = cursor.take(of_head.len())?;
            spread(bytes, of_head.iter().map(|(row_at, _)| row_at + at), out);
        }
    }
    for ((row_at, end), head) in rows.iter().zip(heads) {
        let from = (row_at + row_width(widths, *head)).min(*end);
        let rest = cursor.take(end - from)?;
        out.get_mut(from..*end).unwrap_or_default().copy_from_slice(rest);
    }
    Ok(())
}

/// Writes each byte of `bytes` to the offset in `out` that `places` yields for it.
fn spread(bytes: &[u8], places: impl Iterator<Item = usize>, out: &mut [u8]) {
    for (byte, at) in bytes.iter().zip(places) {
        if let Some(place) = out.get_mut(at) {
            *place = *byte;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Kind;
    use crate::format::row_block::RowBlockBuilder;
    use crate::model::Seq;
    use crate::rng::Rng;

    /// Returns a block of random entries of several shapes. The block may have tombstones, and its
    /// keys have equal or different lengths.
    fn block(rng: &mut Rng) -> Vec<u8> {
        let mut builder = RowBlockBuilder::default();
        let (even, puts, bits) = (rng.chance(1, 2), rng.chance(1, 2), rng.below(60));
        let long = if rng.chance(1, 8) { 3000 } else { 30 };
        for i in 0..rng.below(200) + 1 {
            let tail = if even { 0 } else { rng.below(200) as usize };
            let key = format!("table/{i:06}{}", "k".repeat(tail));
            let deletes = !puts && rng.chance(1, 4);
            let kind = if deletes { Kind::Delete } else { Kind::Put };
            let row: Vec<u8> = (0..rng.below(long)).map(|_| rng.next_u64() as u8).collect();
            let head = [0, 1, 2, 3, 0x81][rng.below(5) as usize];
            builder.add(key.as_bytes(), Seq(rng.below(1 << bits)), kind, |out| {
                if !deletes {
                    out.push(head);
                    out.extend_from_slice(&row);
                }
            });
        }
        let mut out = Vec::new();
        builder.finish(&mut out);
        out
    }

    #[test]
    fn split_columns_are_joined_again() {
        let mut rng = Rng::from_seed(5);
        for round in 0..400 {
            let raw = block(&mut rng);
            let places = [0, 1, 9, 40, u16::MAX].map(|_| rng.below(50) as u16);
            for places in [&[][..], &places, &[u16::MAX; 200]] {
                let mut columns = Vec::new();
                split(&raw, places, &mut columns).unwrap();
                assert!(columns.len() <= raw.len() + MORE_BYTES_MAX);
                assert_eq!(join(&columns, raw.len()).as_ref(), Ok(&raw), "{round}");
                assert!(join(&columns, raw.len() + 1).is_err());
                columns.push(0);
                assert!(join(&columns, raw.len()).is_err());
            }
        }
    }

    #[test]
    fn trap_23_hostile_columns_never_panic() {
        let mut rng = Rng::from_seed(6);
        for _ in 0..20 {
            let raw = block(&mut rng);
            let mut columns = Vec::new();
            split(&raw, &[3, 20, 7], &mut columns).unwrap();
            for _ in 0..300 {
                let mut columns = columns.clone();
                for _ in 0..=rng.below(4) {
                    let at = rng.below(columns.len().min(400) as u64) as usize;
                    columns[at] = rng.next_u64() as u8;
                }
                columns.truncate(rng.below(2 * columns.len() as u64) as usize);
                for len in [raw.len(), columns.len(), 0] {
                    if let Ok(joined) = join(&columns, len) {
                        assert_eq!(joined.len(), len);
                    }
                }
            }
        }
    }

    /// Returns the hex digits of a code block in FORMAT.md: the last one that begins with `fence`
    /// before the text `end`.
    fn printed(fence: &str, end: &str) -> String {
        let document = include_str!("../../../FORMAT.md");
        let before = document.split(end).next().unwrap_or_default();
        let block = before.rsplit(fence).next().and_then(|rest| rest.split("```").next());
        block.unwrap_or_default().chars().filter(char::is_ascii_hexdigit).collect()
    }

    #[test]
    fn example_columns() {
        let rows = [&b"\x01\xb0\x04\0\0\x01\x01x"[..], b"\x01\x84\x03\0\0\x01\x02yz"];
        let keys = [&b"\0\0\0\x01p\0a"[..], b"\0\0\0\x01p\0b"];
        let mut builder = RowBlockBuilder::default();
        for ((key, seq), row) in keys.into_iter().zip([0x1234, 0x1200]).zip(rows) {
            builder.add(key, Seq(seq), Kind::Put, |out| out.extend_from_slice(row));
        }
        let (mut raw, mut columns) = (Vec::new(), Vec::new());
        builder.finish(&mut raw);
        split(&raw, &[7], &mut columns).unwrap();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(&raw), printed("```hex name=row-block\n", "```hex columns\n"));
        assert_eq!(hex(&columns), printed("```hex columns\n", "Why columns"));
    }
}
