//! The hash index of an SST maps the hash of a key to the location of the key's newest version in
//! the file. FORMAT.md §hash_index.
//!
//! Invariants
//! * each user key of the file has exactly one entry, tombstones included;
//! * an entry is in its home line, which its hash selects, or overflows into a later line; the
//!   first line follows the last. Each line that the entry passes over is full, and has the mark
//!   bit that the hash selects;
//! * the checksum of a page covers the file's id and the page's number.

mod line;

use self::line::{LINE_BYTES, push};
use crate::codec::{Checksum, Cursor, DecodeError};
use crate::format::names::FileId;
use crate::format::sst::section;

pub(crate) use self::line::{Form, HashLine};

/// The length of a page.
pub(crate) const PAGE_BYTES: usize = 4096;

const STRUCTURE: &str = "hash page";
/// The block kind used in the checksum of a page, so that a page never passes for a block.
const PAGE_KIND: u8 = 6;
pub(crate) const LINES_PER_PAGE: usize = PAGE_BYTES / LINE_BYTES - 1;

/// The number of lines of an index, and the layout of their entries.
///
/// A page of 4 KiB has a header and 63 lines of 64 bytes. The [`Form`] defines the layout of a
/// line. The index of a compressed file has no locations; it only shows which keys may exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashLayout {
    lines: u64,
    form: Form,
}

/// The position of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinePlace {
    pub(crate) page: usize,
    /// The offset in the page.
    pub(crate) offset: usize,
}

impl LinePlace {
    /// Returns the index of the line in its page.
    #[inline]
    pub(crate) fn line(self) -> usize {
        (self.offset / LINE_BYTES).saturating_sub(1)
    }
}

/// How a location is divided into the number of a block and a slot (the index of an entry in the
/// block). The slot has the low `slot_bits` bits, as many as the block with the most entries needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocationSplit {
    pub(crate) slot_bits: u8,
}

impl LocationSplit {
    /// Returns the division for a file of `blocks` blocks of at most `slots` entries; `None` if 32
    /// bits do not suffice.
    pub(crate) fn new(blocks: usize, slots: usize) -> Option<Self> {
        let (slot_bits, block_bits) = (bits(slots), bits(blocks));
        let slot_bits = u8::try_from(slot_bits).ok().filter(|_| slot_bits + block_bits <= 32)?;
        Some(Self { slot_bits })
    }

    /// Returns the number of location bits in a file of `blocks` blocks.
    pub(crate) fn location_bits(self, blocks: usize) -> u8 {
        self.slot_bits.saturating_add(u8::try_from(bits(blocks)).unwrap_or(u8::MAX))
    }

    #[inline]
    pub(crate) fn pack(self, block: u32, slot: u32) -> u32 {
        block.checked_shl(u32::from(self.slot_bits)).unwrap_or(0) | slot
    }

    /// Returns the block and the slot.
    #[inline]
    pub(crate) fn unpack(self, location: u32) -> (usize, usize) {
        let bits = u32::from(self.slot_bits);
        let block = location.checked_shr(bits).unwrap_or(0);
        let mask = u32::MAX.checked_shr(32 - bits.min(32)).unwrap_or(0);
        (block as usize, (location & mask) as usize)
    }
}

/// Returns how many bits the numbers below `count` need.
fn bits(count: usize) -> u32 {
    usize::BITS - count.saturating_sub(1).leading_zeros()
}

/// Returns the form of a new index, and the kind of its section. A compressed block is decompressed
/// as a whole, so searching it for a key adds little cost, and the index needs no locations.
/// Searching an uncompressed block would read more memory than a look-up of the location, so the
/// index has locations. It uses the second form, which is smaller, if the locations fit.
pub(crate) fn choose_form(is_compressed: bool, location_bits: u8) -> (Form, u16) {
    if is_compressed {
        return (Form::Third, section::HASH_TAGS);
    }
    match Form::second(location_bits) {
        Some(form) => (form, section::HASH_WORDS),
        None => (Form::First, section::HASH_INDEX),
    }
}

impl HashLayout {
    /// Returns the layout of an index that is stored in a section of `kind` with `bytes` bytes, in
    /// a file of `blocks` blocks.
    pub(crate) fn of_section(
        kind: u16,
        bytes: u64,
        split: LocationSplit,
        blocks: usize,
    ) -> Result<Self, DecodeError> {
        if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES as u64) {
            let problem = format!("{bytes} bytes are not a number of pages");
            return Err(DecodeError::new(STRUCTURE, 0, problem));
        }
        let form = match kind {
            section::HASH_WORDS => Form::second(split.location_bits(blocks)),
            section::HASH_TAGS => Some(Form::Third),
            _ => Some(Form::First),
        };
        let form = form.ok_or_else(|| {
            DecodeError::new(STRUCTURE, 0, "locations leave too few bits for tags")
        })?;
        Ok(Self::of_pages(form, bytes / PAGE_BYTES as u64))
    }

    /// Creates an index of `pages` pages.
    pub(crate) fn of_pages(form: Form, pages: u64) -> Self {
        Self { lines: pages * LINES_PER_PAGE as u64, form }
    }

    fn for_keys(form: Form, keys: usize) -> Self {
        let (entries, lines) = form.fill();
        let lines = (keys * lines).div_ceil(entries).max(1);
        Self::of_pages(form, lines.div_ceil(LINES_PER_PAGE) as u64)
    }

    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }

    /// Whether entries contain the locations of their keys. Without locations, entries only show
    /// that keys may exist, and the sparse index locates the keys.
    #[inline]
    pub(crate) fn has_locations(&self) -> bool {
        self.form != Form::Third
    }

    /// Returns the home line of a key with this hash.
    #[inline]
    pub(crate) fn home(&self, hash: u64) -> u64 {
        // The high bits of the hash choose the line, so the result is the high half of the product.
        // The low bits of the hash are the tag.
        ((u128::from(hash) * u128::from(self.lines)) >> 64) as u64
    }

    pub(crate) fn pages(&self) -> usize {
        usize::try_from(self.lines).unwrap_or(usize::MAX) / LINES_PER_PAGE
    }

    /// Returns the line after `line`.
    #[inline]
    pub(crate) fn next(&self, line: u64) -> u64 {
        if line + 1 == self.lines { 0 } else { line + 1 }
    }

    #[inline]
    pub(crate) fn place(&self, line: u64) -> LinePlace {
        // The cast is lossless: a line number is below the number of lines, all of which are in
        // memory.
        #[expect(clippy::cast_possible_truncation, reason = "as above")]
        let line = line as usize;
        let offset = (line % LINES_PER_PAGE + 1) * LINE_BYTES;
        LinePlace { page: line / LINES_PER_PAGE, offset }
    }

    /// Returns the line at `place` of its page.
    #[inline]
    pub(crate) fn line<'a>(
        &self,
        page: &'a [u8],
        place: LinePlace,
    ) -> Result<HashLine<'a>, DecodeError> {
        let bytes = page.get(place.offset..).and_then(<[u8]>::first_chunk);
        let bytes =
            bytes.ok_or_else(|| DecodeError::new(STRUCTURE, place.offset, "no such line"))?;
        Ok(HashLine { bytes, form: self.form })
    }

    /// Returns the lines of a page.
    pub(crate) fn lines_of<'a>(
        &self,
        page: &'a [u8],
    ) -> impl Iterator<Item = HashLine<'a>> + use<'a> {
        let form = self.form;
        let lines = page.as_chunks::<LINE_BYTES>().0.iter().skip(1);
        lines.map(move |bytes| HashLine { bytes, form })
    }

    /// Checks the parts of lines that look-ups do not check: counts, marks and unused bytes.
    pub(crate) fn check_lines(&self, page: &[u8]) -> Result<(), DecodeError> {
        let head = page.get(4..LINE_BYTES).unwrap_or_default();
        if head.iter().any(|byte| *byte != 0) {
            return Err(DecodeError::new(STRUCTURE, 0, "reserved bytes in use"));
        }
        for (i, line) in self.lines_of(page).enumerate() {
            let at = (i + 1) * LINE_BYTES;
            line.check().map_err(|problem| DecodeError::new(STRUCTURE, at, problem))?;
        }
        Ok(())
    }
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

/// Encodes all pages of the index of `file`; `entries` has the hash and the location of each key.
pub(crate) fn encode_pages(
    file: FileId,
    form: Form,
    keys: usize,
    entries: impl Iterator<Item = (u64, u32)>,
) -> Vec<u8> {
    let layout = HashLayout::for_keys(form, keys);
    let pages = usize::try_from(layout.lines).unwrap_or(usize::MAX) / LINES_PER_PAGE;
    let mut bytes = vec![0; pages * PAGE_BYTES];
    for (hash, location) in entries {
        let mut number = layout.home(hash);
        while let Some(line) = line_mut(&mut bytes, layout.place(number))
            && !push(line, form, hash, location)
        {
            number = layout.next(number);
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

fn line_mut(bytes: &mut [u8], place: LinePlace) -> Option<&mut [u8; LINE_BYTES]> {
    let start = place.page * PAGE_BYTES + place.offset;
    bytes.get_mut(start..).and_then(<[u8]>::first_chunk_mut)
}

fn page_checksum(file: FileId, number: u32, rest: &[u8]) -> u32 {
    Checksum::new().u64(file.0).u32(number).bytes(&[PAGE_KIND]).bytes(rest).finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    const FILE: FileId = FileId(42);

    /// Returns every form. The second form is included three times: with the maximum, a common, and
    /// the minimum number of tag bits.
    fn forms() -> Vec<Form> {
        let second = [0, 19, 22].map(|bits| Form::second(bits).unwrap());
        [Form::First, Form::Third].into_iter().chain(second).collect()
    }

    fn layout(form: Form, bytes: &[u8]) -> HashLayout {
        HashLayout::of_pages(form, (bytes.len() / PAGE_BYTES) as u64)
    }

    /// Returns the locations of matching entries, and the number of lines read.
    fn find(form: Form, bytes: &[u8], hash: u64) -> (Vec<u32>, usize) {
        let layout = layout(form, bytes);
        let (mut found, mut lines) = (Vec::new(), 0);
        let mut at = layout.home(hash);
        loop {
            let place = layout.place(at);
            let page = &bytes[place.page * PAGE_BYTES..][..PAGE_BYTES];
            let line = layout.line(page, place).unwrap();
            let bits = line.matches(hash);
            found.extend((0..32).filter(|i| bits >> i & 1 != 0).map(|i| line.location(i)));
            lines += 1;
            if !line.goes_on(hash) || lines as u64 == layout.lines() {
                return (found, lines);
            }
            at = layout.next(at);
        }
    }

    /// Returns the part of a location that an entry of this form stores.
    fn kept(form: Form, location: u32) -> u32 {
        match form {
            Form::First => location,
            Form::Second { location_bits } => location & ((1 << location_bits) - 1),
            Form::Third => 0,
        }
    }

    #[track_caller]
    fn check(hashes: &[u64]) {
        for form in forms() {
            let entries = hashes.iter().zip(0u32..).map(|(hash, i)| (*hash, i));
            let bytes = encode_pages(FILE, form, hashes.len(), entries);
            let mut count = 0;
            for (number, page) in bytes.chunks(PAGE_BYTES).enumerate() {
                assert_eq!(check_page(FILE, number as u32, page), Ok(()));
                assert_eq!(layout(form, &bytes).check_lines(page), Ok(()));
                let lines = layout(form, &bytes).lines_of(page);
                count += lines.map(|line| line.len()).sum::<usize>();
            }
            assert_eq!(count, hashes.len());
            for (hash, i) in hashes.iter().zip(0u32..) {
                let found = find(form, &bytes, *hash).0;
                assert!(found.contains(&kept(form, i)), "{form:?}: {i}");
            }
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
    fn look_ups_read_little_more_than_one_line() {
        #[track_caller]
        fn check(form: Form, bits: usize, wrong_most: usize) {
            let mut rng = Rng::from_seed(2);
            let keys = 94_000;
            let hashes: Vec<u64> = (0..keys).map(|_| rng.next_u64()).collect();
            let entries = hashes.iter().zip(0u32..).map(|(hash, i)| (*hash, i));
            let bytes = encode_pages(FILE, form, keys, entries);
            assert!(bytes.len() * 80 < keys * bits, "{form:?}: {} bytes", bytes.len());
            let lines: usize = (0..10_000).map(|_| find(form, &bytes, rng.next_u64()).1).sum();
            assert!(lines < 11_500, "{form:?}: {lines} lines for 10,000 misses");
            let lines: usize = hashes[..10_000].iter().map(|h| find(form, &bytes, *h).1).sum();
            assert!(lines < 12_000, "{form:?}: {lines} lines for 10,000 hits");
            let wrong = (0..100_000).map(|_| find(form, &bytes, rng.next_u64()).0.len());
            let wrong: usize = wrong.sum();
            assert!(wrong < wrong_most, "{form:?}: {wrong} false positives in 100,000 misses");
        }
        // Arguments: the form, the maximum size in tenths of a bit per entry, and the maximum
        // number of false positives.
        check(Form::First, 720, 40);
        check(Form::second(19).unwrap(), 420, 250);
        check(Form::second(22).unwrap(), 420, 1800);
        check(Form::Third, 210, 100);
    }

    #[test]
    fn trap_24_pages_are_verified_whole() {
        for form in forms() {
            let page = encode_pages(FILE, form, 1, [(99, 5)].into_iter());
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
    }

    #[test]
    fn impossible_lines_are_detected_and_harmless() {
        #[track_caller]
        fn check(form: Form, cases: &[(usize, u8)]) {
            let page = encode_pages(FILE, form, 1, [(0, 5)].into_iter());
            for (at, value) in cases {
                let mut page = page.clone();
                page[*at] = *value;
                assert!(layout(form, &page).check_lines(&page).is_err(), "{form:?}: {at}");
                find(form, &page, 0);
            }
        }
        let first = [(5, 1), (64 + 20, 11), (64 + 21, 1), (64 + 22, 1), (64 + 2, 1), (126, 1)];
        check(Form::First, &first);
        // Each pair sets one byte of a valid page. The changed page has a reserved byte in use, a
        // count above the maximum, a mark in a line that is not full, or an unused byte that is not
        // zero.
        let words = [(5, 1), (64 + 60, 16), (64 + 60, 31), (127, 1), (64 + 60, 33), (64 + 4, 1)];
        check(Form::second(12).unwrap(), &words);
        check(Form::Third, &[(5, 1), (64 + 60, 31), (127, 1), (64 + 60, 33), (64 + 2, 1)]);
    }

    #[test]
    fn the_smallest_sufficient_form_is_chosen() {
        let second = |location_bits| (Form::Second { location_bits }, section::HASH_WORDS);
        assert_eq!(choose_form(false, 0), second(0));
        assert_eq!(choose_form(false, 22), second(22));
        assert_eq!(choose_form(false, 23), (Form::First, section::HASH_INDEX));
        assert_eq!(choose_form(true, 23), (Form::Third, section::HASH_TAGS));
        // A section is read in the form in which it was written.
        let split = LocationSplit { slot_bits: 12 };
        for blocks in [1, 1024, 1025, 1 << 20] {
            for is_compressed in [false, true] {
                let (form, kind) = choose_form(is_compressed, split.location_bits(blocks));
                let read = HashLayout::of_section(kind, 8192, split, blocks);
                assert_eq!(read, Ok(HashLayout::of_pages(form, 2)));
            }
        }
        let read =
            |bytes, blocks| HashLayout::of_section(section::HASH_WORDS, bytes, split, blocks);
        assert!(read(4096, 1025).is_err());
        assert!(read(0, 1).is_err() && read(4095, 1).is_err());
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
        #[cfg(target_pointer_width = "64")]
        check(1 << 32, 1, Some(0));
    }

    #[test]
    fn the_bytes_of_a_line() {
        // Three keys with the same home line; the third has another tag.
        let entries = [(0x0003_1111, 1), (0x0003_1111, 2), (0x0003_2222, 0x0403)];
        let line = |form| encode_pages(FILE, form, 3, entries.into_iter())[64..128].to_vec();
        let tags = [0x11, 0x11, 0x11, 0x11, 0x22, 0x22];
        let mut expected = [0; 64];
        expected[..6].copy_from_slice(&tags);
        expected[20] = 3;
        expected[24..36].copy_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0, 3, 4, 0, 0]);
        assert_eq!(line(Form::First), expected);
        let mut expected = [0; 64];
        expected[..12].copy_from_slice(&[1, 0x10, 3, 0, 2, 0x10, 3, 0, 3, 0x24, 3, 0]);
        expected[60] = 3;
        assert_eq!(line(Form::second(11).unwrap()), expected);
        let mut expected = [0; 64];
        expected[..6].copy_from_slice(&tags);
        expected[60] = 3;
        assert_eq!(line(Form::Third), expected);
    }

    #[test]
    fn a_full_line_has_an_overflow_mark() {
        // All 16 entries have the same home line, so the last entry overflows into the next line.
        // Bits 32 to 47 of its hash choose the mark.
        for (bits, mark) in [(0, 0), (0xffff, 26), (0x0980, 1)] {
            let entries = (0..15).map(|_| (7, 1)).chain([(7 | bits << 32, 2)]);
            let page = encode_pages(FILE, Form::second(8).unwrap(), 16, entries);
            let end = u32::from_le_bytes(page[64 + 60..128].try_into().unwrap());
            assert_eq!(end, 15 | 1 << (5 + mark));
            assert_eq!((page[128], page[128 + 60]), (2, 1));
        }
    }
}
