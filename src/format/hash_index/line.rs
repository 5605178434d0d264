//! A line of a hash index: one processor cache line, in one of three forms. FORMAT.md §hash_index.
//!
//! Invariants
//! * only a full line has marks, and unused bytes are zero;
//! * every access is bounds-checked, whether or not the page's checksum was verified.
//!
//! `hash_index` chooses the line for an entry, and implements the pages with their checksums.

/// The length of a line.
pub(crate) const LINE_BYTES: usize = 64;

/// The layout of a line. A mark is a bit of a full line. It is set if an entry whose hash selects
/// the bit was put into a later line.
///
/// | form | entries | count and marks |
/// | --- | --- | --- |
/// | first | 10 tags of 16 bits, 10 locations of 32 bits | a count, 16 marks |
/// | second | 15 words of 32 bits, each a tag above a location | a count, 27 marks |
/// | third | 30 tags of 16 bits, no locations | a count, 27 marks |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    First,
    /// The low `location_bits` bits of an entry are its location; the other bits are the tag.
    Second {
        location_bits: u8,
    },
    Third,
}

/// A line of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashLine<'a> {
    pub(super) bytes: &'a [u8; LINE_BYTES],
    pub(super) form: Form,
}

/// The maximum number of location bits in the second form. It leaves 10 bits for the tag.
const LOCATION_BITS_MAX: u8 = 22;

/// The number of entries of a line in the first form.
const FIRST_ENTRIES: usize = 10;
const FIRST_COUNT_AT: usize = 2 * FIRST_ENTRIES;
const FIRST_MARKS_AT: usize = FIRST_COUNT_AT + 2;
const FIRST_LOCATIONS_AT: usize = FIRST_COUNT_AT + 4;

/// The offset of the word that follows the entries in the second and the third form. Its low bits
/// are the count, and its high bits are the marks.
const END_AT: usize = LINE_BYTES - 4;
const COUNT_BITS: u32 = 5;
const CLASSES: u32 = 32 - COUNT_BITS;

impl Form {
    /// Returns the second form for locations of `bits` bits; `None` if that leaves too few tag
    /// bits.
    pub(crate) fn second(bits: u8) -> Option<Form> {
        (bits <= LOCATION_BITS_MAX).then_some(Form::Second { location_bits: bits })
    }

    /// Returns the capacity of a line.
    #[inline]
    pub(crate) fn entries(self) -> usize {
        match self {
            Form::First => FIRST_ENTRIES,
            Form::Second { .. } => END_AT / 4,
            Form::Third => END_AT / 2,
        }
    }

    /// Returns the target fill as (entries, lines). The fraction of look-ups that continue to a
    /// second line is:
    ///
    /// | entries per line | key absent | key present |
    /// | --- | --- | --- |
    /// | 7.5 of 10 | 1 in 20 | 1 in 15 |
    /// | 12.75 of 15 | 1 in 8 | 1 in 9 |
    /// | 26.5 of 30 | 1 in 10 | 1 in 16 |
    ///
    /// A fill that is 5 % higher doubles these fractions.
    pub(super) fn fill(self) -> (usize, usize) {
        match self {
            Form::First => (15, 2),
            Form::Second { .. } => (51, 4),
            Form::Third => (53, 2),
        }
    }
}

impl HashLine<'_> {
    /// Returns a bit set of the entries whose tag equals the tag of `hash`.
    #[inline]
    pub(crate) fn matches(&self, hash: u64) -> u32 {
        let bits = match self.form {
            Form::First => self.first_matches(tag(hash)),
            Form::Second { location_bits } => self.second_matches(hash, location_bits),
            Form::Third => self.third_matches(tag(hash)),
        };
        bits & ((1 << self.len()) - 1)
    }

    #[inline]
    fn first_matches(&self, tag: u16) -> u32 {
        let mut bits = 0;
        let mut i = 0;
        while i < FIRST_ENTRIES {
            let ours = u16::from_le_bytes([self.bytes[2 * i], self.bytes[2 * i + 1]]);
            bits |= u32::from(ours == tag) << i;
            i += 1;
        }
        bits
    }

    #[inline]
    fn second_matches(&self, hash: u64, location_bits: u8) -> u32 {
        let mask = tag_mask(location_bits);
        let wanted = low_word(hash) & mask;
        let mut bits = 0;
        // The last word contains the count instead of an entry, so the caller clears its bit.
        // Comparing 16 words takes no more steps than comparing 15.
        for (i, word) in self.bytes.as_chunks::<4>().0.iter().enumerate() {
            bits |= u32::from(u32::from_le_bytes(*word) & mask == wanted) << i;
        }
        bits
    }

    #[inline]
    fn third_matches(&self, tag: u16) -> u32 {
        let mut bits = 0;
        for (i, ours) in self.bytes.as_chunks::<2>().0.iter().enumerate() {
            bits |= u32::from(u16::from_le_bytes(*ours) == tag) << i;
        }
        bits
    }

    /// Returns the location of entry `i`, which is below [`len`](Self::len); 0 in a form without
    /// locations.
    #[inline]
    pub(crate) fn location(&self, i: u32) -> u32 {
        let (at, mask) = match self.form {
            Form::First => (FIRST_LOCATIONS_AT, u32::MAX),
            Form::Second { location_bits } => (0, !tag_mask(location_bits)),
            Form::Third => return 0,
        };
        let location = self.bytes.get(at + 4 * (i as usize)..).and_then(<[u8]>::first_chunk);
        location.map_or(u32::MAX, |location| u32::from_le_bytes(*location)) & mask
    }

    /// Returns the number of entries.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.count().min(self.form.entries())
    }

    /// Whether the entry of a key with this hash may be in the next line.
    #[inline]
    pub(crate) fn goes_on(&self, hash: u64) -> bool {
        match self.form {
            Form::First => self.first_marks() & first_mark(hash) != 0,
            Form::Second { .. } | Form::Third => self.end() & mark(hash) != 0,
        }
    }

    /// Checks the parts of the line that look-ups do not check: the count, marks and unused bytes.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let (count, entries) = (self.count(), self.form.entries());
        let marked = match self.form {
            Form::First => self.first_marks() != 0,
            Form::Second { .. } | Form::Third => self.end() >> COUNT_BITS != 0,
        };
        if count > entries || marked && count < entries {
            return Err("impossible count or mark");
        }
        let unused = |at: usize, width: usize| {
            let places = self.bytes.get(at + count * width..at + entries * width);
            places.unwrap_or_default().iter().all(|byte| *byte == 0)
        };
        let is_clean = match self.form {
            Form::First => {
                let spare = self.bytes[FIRST_COUNT_AT + 1] == 0;
                spare && unused(0, 2) && unused(FIRST_LOCATIONS_AT, 4)
            }
            Form::Second { .. } => unused(0, 4),
            Form::Third => unused(0, 2),
        };
        if is_clean { Ok(()) } else { Err("unused places are not zero") }
    }

    #[inline]
    fn count(&self) -> usize {
        match self.form {
            Form::First => usize::from(self.bytes[FIRST_COUNT_AT]),
            Form::Second { .. } | Form::Third => usize::from(self.bytes[END_AT] & 31),
        }
    }

    #[inline]
    fn first_marks(&self) -> u16 {
        u16::from_le_bytes([self.bytes[FIRST_MARKS_AT], self.bytes[FIRST_MARKS_AT + 1]])
    }

    #[inline]
    fn end(&self) -> u32 {
        end(self.bytes)
    }
}

/// Adds an entry to a line. If the line is full, sets the mark that the hash selects and returns
/// false.
pub(super) fn push(line: &mut [u8; LINE_BYTES], form: Form, hash: u64, location: u32) -> bool {
    let count = HashLine { bytes: line, form }.len();
    let is_full = count == form.entries();
    match form {
        Form::First if is_full => {
            let marks = HashLine { bytes: line, form }.first_marks() | first_mark(hash);
            line[FIRST_MARKS_AT..FIRST_LOCATIONS_AT].copy_from_slice(&marks.to_le_bytes());
        }
        Form::Second { .. } | Form::Third if is_full => {
            let marked = end(line) | mark(hash);
            line[END_AT..].copy_from_slice(&marked.to_le_bytes());
        }
        Form::First => {
            let at = FIRST_LOCATIONS_AT + 4 * count;
            line[FIRST_COUNT_AT] += 1;
            line[2 * count..2 * count + 2].copy_from_slice(&tag(hash).to_le_bytes());
            line[at..at + 4].copy_from_slice(&location.to_le_bytes());
        }
        Form::Second { location_bits } => {
            let mask = tag_mask(location_bits);
            let word = low_word(hash) & mask | location & !mask;
            line[END_AT] += 1;
            line[4 * count..4 * count + 4].copy_from_slice(&word.to_le_bytes());
        }
        Form::Third => {
            line[END_AT] += 1;
            line[2 * count..2 * count + 2].copy_from_slice(&tag(hash).to_le_bytes());
        }
    }
    !is_full
}

#[inline]
fn end(line: &[u8; LINE_BYTES]) -> u32 {
    line.last_chunk().map_or(0, |end| u32::from_le_bytes(*end))
}

/// Returns the tag of a hash in the first and the third form.
#[inline]
fn tag(hash: u64) -> u16 {
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are the tag")]
    let tag = hash as u16;
    tag
}

#[inline]
fn low_word(hash: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the upper ones of these bits are the tag")]
    let word = hash as u32;
    word
}

/// Returns a mask of the bits that contain the tag in an entry of the second form.
#[inline]
fn tag_mask(location_bits: u8) -> u32 {
    u32::MAX.checked_shl(u32::from(location_bits)).unwrap_or(0)
}

/// Returns the mark of the first form for entries with this hash: one of 16, chosen by the tag.
#[inline]
fn first_mark(hash: u64) -> u16 {
    1 << (hash & 15)
}

/// Returns the mark for entries with this hash: one of 27, chosen by bits that are not in the tag.
#[inline]
fn mark(hash: u64) -> u32 {
    let bits = (hash >> 32) & 0xffff;
    1 << (COUNT_BITS + ((bits * u64::from(CLASSES)) >> 16) as u32)
}
