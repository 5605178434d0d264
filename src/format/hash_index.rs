//! The hash index of an SST: from the hash of a user key to the slot of its newest version. FORMAT.md §hash_index.
//!
//! A line is 64 bytes, one cache line of the processor: ten tags, ten locations, a count, and marks that say
//! which entries had to go on to the next line. Sixty-three lines and a header make a page of 4 KiB.
//!
//! Invariants
//! * each user key of the file has exactly one entry, tombstones included;
//! * an entry stands in its home line, or in a later one (after the last comes the first) with every
//!   line from its home up to there full and marked for its tag;
//! * the checksum of a page covers the file's id and the page's number.
//!
//! Not here: what a location points to (`row_block`), hashing (`codec::hash`).

use crate::codec::{Checksum, Cursor, DecodeError};
use crate::format::names::FileId;

/// The length of a page.
pub(crate) const PAGE_BYTES: usize = 4096;

const STRUCTURE: &str = "hash page";
/// As in a block's header, so that a page never passes for a block.
const PAGE_KIND: u8 = 6;
const LINE_BYTES: usize = 64;
const LINES_PER_PAGE: usize = PAGE_BYTES / LINE_BYTES - 1;
const ENTRIES_PER_LINE: usize = 10;
const COUNT_AT: usize = 2 * ENTRIES_PER_LINE;
const MARKS_AT: usize = COUNT_AT + 2;
const LOCATIONS_AT: usize = COUNT_AT + 4;
/// How full lines are on average: 7.5 of 10. Two lines in five hand an entry on then, but as the marks
/// tell sixteen classes of tags apart, one look-up in fifteen reads a second line.
const FILL: (usize, usize) = (15, 2);

/// Where entries of an index of a given size belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashLayout {
    lines: u64,
}

/// Where a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinePlace {
    pub(crate) page: usize,
    /// In the page.
    pub(crate) offset: usize,
}

/// One line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashLine<'a>(&'a [u8; LINE_BYTES]);

/// How a location is divided into block and slot: as many low bits for the slot as the file's longest block needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocationSplit {
    pub(crate) slot_bits: u8,
}

impl LocationSplit {
    /// The split for a file of `blocks` blocks of at most `slots` entries; `None` if 32 bits do not suffice.
    pub(crate) fn new(blocks: usize, slots: usize) -> Option<Self> {
        let bits = |count: usize| usize::BITS - count.saturating_sub(1).leading_zeros();
        let (slot_bits, block_bits) = (bits(slots), bits(blocks));
        let slot_bits = u8::try_from(slot_bits).ok().filter(|_| slot_bits + block_bits <= 32)?;
        Some(Self { slot_bits })
    }

    #[inline]
    pub(crate) fn pack(self, block: u32, slot: u32) -> u32 {
        block.checked_shl(u32::from(self.slot_bits)).unwrap_or(0) | slot
    }

    /// Block and slot.
    #[inline]
    pub(crate) fn unpack(self, location: u32) -> (usize, usize) {
        let bits = u32::from(self.slot_bits);
        let block = location.checked_shr(bits).unwrap_or(0);
        let mask = u32::MAX.checked_shr(32 - bits.min(32)).unwrap_or(0);
        (block as usize, (location & mask) as usize)
    }
}

impl HashLayout {
    /// The index that fills `bytes` bytes.
    pub(crate) fn of_section(bytes: u64) -> Result<Self, DecodeError> {
        if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES as u64) {
            let problem = format!("{bytes} bytes are not a number of pages");
            return Err(DecodeError::new(STRUCTURE, 0, problem));
        }
        Ok(Self { lines: bytes / PAGE_BYTES as u64 * LINES_PER_PAGE as u64 })
    }

    fn for_keys(keys: usize) -> Self {
        let lines = (keys * FILL.1).div_ceil(FILL.0).max(1);
        Self { lines: (lines.div_ceil(LINES_PER_PAGE) * LINES_PER_PAGE) as u64 }
    }

    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }

    /// The line in which the entry of a key with this hash belongs.
    #[inline]
    pub(crate) fn home(&self, hash: u64) -> u64 {
        // The high half of the product: the hash's high bits choose the line, its low bits are the tag.
        ((u128::from(hash) * u128::from(self.lines)) >> 64) as u64
    }

    /// The line after `line`.
    #[inline]
    pub(crate) fn next(&self, line: u64) -> u64 {
        if line + 1 == self.lines { 0 } else { line + 1 }
    }

    #[inline]
    pub(crate) fn place(&self, line: u64) -> LinePlace {
        // A line number is below the number of lines, which are held in memory.
        #[expect(clippy::cast_possible_truncation, reason = "as above")]
        let line = line as usize;
        let offset = (line % LINES_PER_PAGE + 1) * LINE_BYTES;
        LinePlace { page: line / LINES_PER_PAGE, offset }
    }
}

/// The tag of a hash.
#[inline]
pub(crate) fn tag(hash: u64) -> u16 {
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are the tag")]
    let tag = hash as u16;
    tag
}

impl<'a> HashLine<'a> {
    /// The line at `place` of its page.
    #[inline]
    pub(crate) fn of_page(page: &'a [u8], place: LinePlace) -> Result<Self, DecodeError> {
        let line = page.get(place.offset..).and_then(<[u8]>::first_chunk);
        line.map(Self).ok_or_else(|| DecodeError::new(STRUCTURE, place.offset, "no such line"))
    }

    /// The entries with this tag, as bits.
    #[inline]
    pub(crate) fn matches(&self, tag: u16) -> u32 {
        let mut bits = 0;
        let mut i = 0;
        while i < ENTRIES_PER_LINE {
            let ours = u16::from_le_bytes([self.0[2 * i], self.0[2 * i + 1]]);
            bits |= u32::from(ours == tag) << i;
            i += 1;
        }
        bits & ((1 << self.len()) - 1)
    }

    /// The location of entry `i`, below [`len`](Self::len).
    #[inline]
    pub(crate) fn location(&self, i: u32) -> u32 {
        let at = LOCATIONS_AT + 4 * (i as usize);
        let location = self.0.get(at..).and_then(<[u8]>::first_chunk);
        location.map_or(u32::MAX, |location| u32::from_le_bytes(*location))
    }

    /// How many entries.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        usize::from(self.0[COUNT_AT]).min(ENTRIES_PER_LINE)
    }

    /// True if an entry with this tag may stand in the next line.
    #[inline]
    pub(crate) fn goes_on(&self, tag: u16) -> bool {
        let marks = u16::from_le_bytes([self.0[MARKS_AT], self.0[MARKS_AT + 1]]);
        marks & mark(tag) != 0
    }
}

/// The mark for entries with this tag: one of sixteen.
#[inline]
fn mark(tag: u16) -> u16 {
    1 << (tag & 15)
}

/// Checks page `number` of the index of `file`.
pub(crate) fn check_page(file: FileId, number: u32, page: &[u8]) -> Result<(), DecodeError> {
    let mut cursor = Cursor::new(STRUCTURE, page);
    let checksum = cursor.u32()?;
    let sum = page_checksum(file, number, cursor.rest());
    if page.len() != PAGE_BYTES || sum != checksum {
        let problem = format!("checksum {sum:08x}, stored {checksum:08x}");
        return Err(DecodeError::new(STRUCTURE, 0, problem));
    }
    Ok(())
}

/// Checks what look-ups do not: counts, marks, unused places.
pub(crate) fn check_lines(page: &[u8]) -> Result<(), DecodeError> {
    for (i, line) in page.chunks_exact(LINE_BYTES).enumerate() {
        let wrong = |problem| Err(DecodeError::new(STRUCTURE, i * LINE_BYTES, problem));
        if i == 0 {
            if line.iter().skip(4).any(|byte| *byte != 0) {
                return wrong("reserved bytes in use");
            }
            continue;
        }
        let count = line.get(COUNT_AT).copied().map_or(0, usize::from);
        let marked = line.get(MARKS_AT..LOCATIONS_AT) != Some(&[0, 0]);
        if count > ENTRIES_PER_LINE || marked && count < ENTRIES_PER_LINE {
            return wrong("impossible count or mark");
        }
        let unused = |at: usize, width: usize, from: usize| {
            let places = line.get(at + from * width..at + ENTRIES_PER_LINE * width);
            places.unwrap_or_default().iter().all(|byte| *byte == 0)
        };
        let spare = line.get(COUNT_AT + 1) == Some(&0);
        if !spare || !unused(0, 2, count) || !unused(LOCATIONS_AT, 4, count) {
            return wrong("unused places are not zero");
        }
    }
    Ok(())
}

/// Encodes the index of `entries` (hash and location of each key) of `file`, page after page.
pub(crate) fn encode_pages(
    file: FileId,
    keys: usize,
    entries: impl Iterator<Item = (u64, u32)>,
) -> Vec<u8> {
    let layout = HashLayout::for_keys(keys);
    let pages = usize::try_from(layout.lines).unwrap_or(usize::MAX) / LINES_PER_PAGE;
    let mut bytes = vec![0; pages * PAGE_BYTES];
    for (hash, location) in entries {
        let mut line = layout.home(hash);
        while !push(&mut bytes, layout.place(line), tag(hash), location) {
            line = layout.next(line);
        }
    }
    for (number, page) in bytes.chunks_exact_mut(PAGE_BYTES).enumerate() {
        if let Some((checksum, rest)) = page.split_first_chunk_mut::<4>() {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            *checksum = page_checksum(file, number, rest).to_le_bytes();
        }
    }
    bytes
}

/// Puts an entry into a line; false, and the line marked, if it is full.
fn push(bytes: &mut [u8], place: LinePlace, tag: u16, location: u32) -> bool {
    let start = place.page * PAGE_BYTES + place.offset;
    let line = bytes.get_mut(start..).and_then(<[u8]>::first_chunk_mut::<LINE_BYTES>);
    let Some(line) = line else { return true };
    let count = usize::from(line[COUNT_AT]);
    let tag_at = 2 * count;
    if count == ENTRIES_PER_LINE {
        let marks = u16::from_le_bytes([line[MARKS_AT], line[MARKS_AT + 1]]) | mark(tag);
        line[MARKS_AT..LOCATIONS_AT].copy_from_slice(&marks.to_le_bytes());
        return false;
    }
    let location_at = LOCATIONS_AT + 4 * count;
    line[COUNT_AT] += 1;
    line[tag_at..tag_at + 2].copy_from_slice(&tag.to_le_bytes());
    line[location_at..location_at + 4].copy_from_slice(&location.to_le_bytes());
    true
}

fn page_checksum(file: FileId, number: u32, rest: &[u8]) -> u32 {
    Checksum::new().u64(file.0).u32(number).bytes(&[PAGE_KIND]).bytes(rest).finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    const FILE: FileId = FileId(42);

    fn find(bytes: &[u8], hash: u64) -> (Vec<u32>, usize) {
        let layout = HashLayout::of_section(bytes.len() as u64).unwrap();
        let (mut found, mut lines) = (Vec::new(), 0);
        let mut at = layout.home(hash);
        loop {
            let place = layout.place(at);
            let page = &bytes[place.page * PAGE_BYTES..][..PAGE_BYTES];
            let line = HashLine::of_page(page, place).unwrap();
            let bits = line.matches(tag(hash));
            found.extend((0..10).filter(|i| bits >> i & 1 != 0).map(|i| line.location(i)));
            lines += 1;
            if !line.goes_on(tag(hash)) || lines as u64 == layout.lines() {
                return (found, lines);
            }
            at = layout.next(at);
        }
    }

    #[track_caller]
    fn check(hashes: &[u64]) {
        let entries = hashes.iter().zip(0u32..).map(|(hash, i)| (*hash, i));
        let bytes = encode_pages(FILE, hashes.len(), entries);
        for (number, page) in bytes.chunks(PAGE_BYTES).enumerate() {
            assert_eq!(check_page(FILE, number as u32, page), Ok(()));
            assert_eq!(check_lines(page), Ok(()));
        }
        for (hash, i) in hashes.iter().zip(0u32..) {
            assert!(find(&bytes, *hash).0.contains(&i));
        }
    }

    #[test]
    fn trap_39_every_entry_is_found() {
        let mut rng = Rng::from_seed(1);
        check(&[]);
        check(&[0]);
        check(&[u64::MAX]);
        for keys in [10, 471, 473, 10_000, 100_000] {
            check(&(0..keys).map(|_| rng.next_u64()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn trap_42_equal_hashes_spill_over_and_around() {
        check(&[7; 200]);
        check(&[u64::MAX; 472]);
        let mut hashes = vec![u64::MAX; 300];
        hashes.extend([0; 300]);
        hashes.extend([1 << 63; 300]);
        check(&hashes);
    }

    #[test]
    fn look_ups_read_little_more_than_a_line() {
        let mut rng = Rng::from_seed(2);
        let hashes: Vec<u64> = (0..94_000).map(|_| rng.next_u64()).collect();
        let entries = hashes.iter().zip(0u32..).map(|(hash, i)| (*hash, i));
        let bytes = encode_pages(FILE, hashes.len(), entries);
        assert!(bytes.len() < hashes.len() * 9);
        let lines: usize = (0..10_000).map(|_| find(&bytes, rng.next_u64()).1).sum();
        assert!(lines < 11_000, "{lines} lines for 10,000 misses");
        let wrong: usize = (0..100_000).map(|_| find(&bytes, rng.next_u64()).0.len()).sum();
        assert!(wrong < 40, "{wrong} false positives in 100,000 misses");
    }

    #[test]
    fn trap_24_pages_are_checked_whole() {
        let page = encode_pages(FILE, 1, [(99, 5)].into_iter());
        for at in 0..PAGE_BYTES {
            let mut page = page.clone();
            page[at] ^= 0x10;
            assert!(check_page(FILE, 0, &page).is_err());
        }
        assert!(check_page(FILE, 1, &page).is_err());
        assert!(check_page(FileId(1), 0, &page).is_err());
        assert!(check_page(FILE, 0, &page[..4095]).is_err());
        assert!(check_page(FILE, 0, &[]).is_err());
    }

    #[test]
    fn impossible_lines_are_found_and_harmless() {
        let page = encode_pages(FILE, 1, [(0, 5)].into_iter());
        for (at, value) in
            [(5, 1), (64 + 20, 11), (64 + 21, 1), (64 + 22, 1), (64 + 2, 1), (126, 1)]
        {
            let mut page = page.clone();
            page[at] = value;
            assert!(check_lines(&page).is_err(), "{at}");
            find(&page, 0);
        }
    }

    #[test]
    fn locations_split_as_needed() {
        #[track_caller]
        fn check(blocks: usize, slots: usize, expected: Option<u8>) {
            let split = LocationSplit::new(blocks, slots);
            assert_eq!(split.map(|split| split.slot_bits), expected);
            if let Some(split) = split {
                let (block, slot) = (blocks - 1, slots - 1);
                assert_eq!(split.unpack(split.pack(block as u32, slot as u32)), (block, slot));
            }
        }
        check(1, 1, Some(0));
        check(1, 2, Some(1));
        check(1000, 4096, Some(12));
        check(1 << 20, 4096, Some(12));
        check((1 << 20) + 1, 4096, None);
        check(1 << 32, 1, Some(0));
    }

    #[test]
    fn the_bytes_of_a_line() {
        // Three keys of one home; the third has another tag.
        let entries = [(0x0003_1111, 1), (0x0003_1111, 2), (0x0003_2222, 0x0403)];
        let page = encode_pages(FILE, 3, entries.into_iter());
        let mut expected = [0; 64];
        expected[..6].copy_from_slice(&[0x11, 0x11, 0x11, 0x11, 0x22, 0x22]);
        expected[20] = 3;
        expected[24..36].copy_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0, 3, 4, 0, 0]);
        assert_eq!(page[64..128], expected);
    }
}
