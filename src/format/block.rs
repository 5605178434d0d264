//! Writes and reads the frame of an SST block: header, checksum and compression. FORMAT.md §block.
//!
//! Invariants
//! * the checksum covers the header, the file's id and the block's number, so a block that was
//!   moved, or copied into another file, fails the check like a damaged one;
//! * nothing is interpreted or decompressed before the checksum is verified;
//! * padding is zeros, covered by the checksum, and not part of the contents;
//! * decompression yields exactly the raw length, which is at most [`RAW_BYTES_MAX`].

#[cfg_attr(not(feature = "zstd"), allow(dead_code, reason = "only what is compressed is split"))]
mod columns;

use std::borrow::Cow;
#[cfg(feature = "zstd")]
use std::cell::RefCell;

#[cfg(feature = "zstd")]
use zstd::bulk::Decompressor;

use crate::codec::{Checksum, Cursor, DecodeError, check_sum};
use crate::format::field::{FormatError, unsupported};
use crate::format::names::FileId;
use crate::format::row_block::leaves_out;

/// The length of a block's header.
pub(crate) const HEADER_BYTES: usize = 24;

/// The maximum length of a compressed block's contents: twice 2 MiB, the size of the largest row
/// with its key.
pub(crate) const RAW_BYTES_MAX: usize = 4 << 20;

/// The kind of a block's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum BlockKind {
    Rows = 1,
    Shapes = 2,
    Sparse = 3,
    Handles = 4,
    Stats = 5,
    // 6 is not the kind of a block: it is used in the checksums of hash pages.
    Zones = 7,
    ZoneSummary = 8,
}

/// How the contents of a block are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// Uncompressed.
    Plain,
    Zstd,
    /// Rows transposed into columns, which are compressed with zstd.
    Columns,
}

/// The identity of a block. The checksum covers it, although it is not stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockPlace {
    pub(crate) kind: BlockKind,
    pub(crate) file: FileId,
    /// The block's index in its section, counted from 0.
    pub(crate) number: u32,
}

impl BlockPlace {
    pub(crate) fn new(kind: BlockKind, file: FileId, number: usize) -> Self {
        Self { kind, file, number: u32::try_from(number).unwrap_or(u32::MAX) }
    }
}

/// A block with a verified checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredBlock<'a> {
    pub(crate) packing: Packing,
    pub(crate) raw_len: usize,
    pub(crate) stored: &'a [u8],
}

const STRUCTURE: &str = "block";
/// Whether the header of `block` declares its contents compressed.
pub(crate) fn is_compressed(block: &[u8]) -> bool {
    matches!(block.get(1), Some(&(CODEC_ZSTD | CODEC_COLUMNS)))
}

const CODEC_NONE: u8 = 0;
const CODEC_ZSTD: u8 = 1;
const CODEC_COLUMNS: u8 = 2;
/// Flag: zeros follow the stored bytes up to the start of the next block.
const FLAG_PADDED: u8 = 1;
/// Flag of a block of rows: its entries omit fields (see `row_block`), so a reader that does not
/// know the flag must not read the block.
const FLAG_SHORT: u8 = 2;
/// zstd compression level. It makes blocks 2 % smaller than zstd's default level, 3. Decompression,
/// which is far more frequent, takes the same time at every level.
#[cfg(feature = "zstd")]
const ZSTD_LEVEL: i32 = 6;
/// The number of header bytes before the checksum.
const CHECKED_BYTES: usize = 20;

/// Compresses and frames blocks; reuses the compressor's memory for all blocks.
pub(crate) struct Sealer {
    /// Scratch buffer for rows transposed into columns; empty between calls.
    #[cfg(feature = "zstd")]
    columns: Vec<u8>,
    #[cfg(feature = "zstd")]
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl Sealer {
    /// Creates a sealer.
    ///
    /// # Errors
    /// An error names the part of `packing` that this build does not support.
    pub(crate) fn new(packing: Packing) -> Result<Self, Cow<'static, str>> {
        #[cfg(feature = "zstd")]
        {
            let zstd = match packing {
                Packing::Plain => None,
                Packing::Zstd | Packing::Columns => {
                    let compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL);
                    Some(compressor.map_err(|error| error.to_string())?)
                }
            };
            Ok(Self { columns: Vec::new(), zstd })
        }
        #[cfg(not(feature = "zstd"))]
        match packing {
            Packing::Plain => Ok(Self {}),
            Packing::Zstd | Packing::Columns => Err(WITHOUT_ZSTD.into()),
        }
    }

    /// Appends `raw` as a block. Stores it uncompressed if compression saves less than one eighth.
    pub(crate) fn seal(&mut self, place: BlockPlace, raw: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + HEADER_BYTES, 0);
        let codec = if self.compress(raw, raw.len(), out) { CODEC_ZSTD } else { CODEC_NONE };
        if codec == CODEC_NONE {
            out.extend_from_slice(raw);
        }
        seal_header(place, (codec, raw, 0), out.get_mut(start..).unwrap_or_default());
    }

    /// Appends `raw`, a block of rows, compressed by columns if this sealer compresses. `places`
    /// states, for each shape number, how many bytes a row of that shape has before its texts.
    /// Wrong numbers only make the block larger.
    #[cfg(feature = "zstd")]
    pub(crate) fn seal_rows(
        &mut self,
        place: BlockPlace,
        raw: &[u8],
        places: &[u16],
        out: &mut Vec<u8>,
    ) {
        let mut columns = std::mem::take(&mut self.columns);
        let start = out.len();
        out.resize(start + HEADER_BYTES, 0);
        // Store columns only if the exact block can be rebuilt from them. This holds for every
        // block of rows that this crate writes.
        let is_split = self.zstd.is_some()
            && columns::split(raw, places, &mut columns).is_ok()
            && columns::join(&columns, raw.len()).as_deref() == Ok(raw);
        if is_split && self.compress(&columns, raw.len(), out) {
            seal_header(place, (CODEC_COLUMNS, raw, 0), out.get_mut(start..).unwrap_or_default());
        } else {
            out.truncate(start);
            self.seal(place, raw, out);
        }
        columns.clear();
        self.columns = columns;
    }

    /// Stores the block uncompressed, because this build has no zstd.
    #[cfg(not(feature = "zstd"))]
    pub(crate) fn seal_rows(
        &mut self,
        place: BlockPlace,
        raw: &[u8],
        _places: &[u16],
        out: &mut Vec<u8>,
    ) {
        self.seal(place, raw, out);
    }

    /// Appends `raw` as an uncompressed block.
    pub(crate) fn seal_plain(&self, place: BlockPlace, raw: &[u8], out: &mut Vec<u8>) {
        self.seal_padded(place, raw, 0, out);
    }

    /// Appends `raw` as an uncompressed block that ends with `padding` zeros.
    pub(crate) fn seal_padded(
        &self,
        place: BlockPlace,
        raw: &[u8],
        padding: usize,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        out.resize(start + HEADER_BYTES, 0);
        out.extend_from_slice(raw);
        out.resize(out.len() + padding, 0);
        let block = out.get_mut(start..).unwrap_or_default();
        seal_header(place, (CODEC_NONE, raw, padding), block);
    }

    /// Appends `bytes` compressed. Returns false if that saves less than one eighth of `raw_len`.
    #[cfg(feature = "zstd")]
    fn compress(&mut self, bytes: &[u8], raw_len: usize, out: &mut Vec<u8>) -> bool {
        let Some(zstd) = &mut self.zstd else { return false };
        let start = out.len();
        let limit = raw_len - raw_len / 8;
        if raw_len > RAW_BYTES_MAX {
            return false;
        }
        out.resize(start + limit, 0);
        // If the output buffer is too small, compression saves too little, and the block is stored
        // uncompressed.
        let stored = zstd.compress_to_buffer(bytes, out.get_mut(start..).unwrap_or_default());
        out.truncate(start + stored.as_ref().copied().unwrap_or(0));
        stored.is_ok()
    }

    #[cfg(not(feature = "zstd"))]
    fn compress(&mut self, _bytes: &[u8], _raw_len: usize, _out: &mut Vec<u8>) -> bool {
        false
    }
}

#[cfg(not(feature = "zstd"))]
const WITHOUT_ZSTD: &str = "zstd, which this build lacks: build with the feature `zstd`";

impl<'a> StoredBlock<'a> {
    /// Verifies the checksum of the block that fills `bytes`, and reads its header.
    pub(crate) fn open(place: BlockPlace, bytes: &'a [u8]) -> Result<Self, FormatError> {
        let mut cursor = Cursor::new(STRUCTURE, bytes);
        let checked = cursor.take(CHECKED_BYTES)?;
        let checksum = cursor.u32()?;
        let stored = cursor.rest();
        let sum = block_checksum(place, checked, stored);
        check_sum(STRUCTURE, CHECKED_BYTES, sum, checksum)?;
        Self::header(place, Cursor::new(STRUCTURE, checked), stored)
    }

    /// Reads the header of a block whose checksum was verified before.
    #[inline]
    pub(crate) fn reopen(place: BlockPlace, bytes: &'a [u8]) -> Result<Self, FormatError> {
        // Recognizes the common block in one comparison: the right kind, uncompressed, no reserved
        // bits set.
        if let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>()
            && let [kind, CODEC_NONE, 0..=3, 0, .., l0, l1, l2, l3, _, _, _, _] = *header
            && kind == place.kind as u8
            && let Some(stored) = rest.get(..u32::from_le_bytes([l0, l1, l2, l3]) as usize)
        {
            return Ok(Self { packing: Packing::Plain, raw_len: stored.len(), stored });
        }
        let mut cursor = Cursor::new(STRUCTURE, bytes);
        let checked = cursor.take(CHECKED_BYTES)?;
        cursor.u32()?;
        Self::header(place, Cursor::new(STRUCTURE, checked), cursor.rest())
    }

    fn header(
        place: BlockPlace,
        mut cursor: Cursor<'_>,
        stored: &'a [u8],
    ) -> Result<Self, FormatError> {
        let kind = cursor.u8()?;
        if kind != place.kind as u8 {
            let problem = format!("kind {kind}, {} expected", place.kind as u8);
            return Err(DecodeError::new(STRUCTURE, 0, problem).into());
        }
        let packing = match cursor.u8()? {
            CODEC_NONE => Packing::Plain,
            CODEC_ZSTD => Packing::Zstd,
            CODEC_COLUMNS if place.kind == BlockKind::Rows => Packing::Columns,
            code => return unsupported(format!("block codec {code}")),
        };
        let (flags, dictionary, key) = (cursor.u16()?, cursor.u32()?, cursor.u32()?);
        let is_padded = flags & u16::from(FLAG_PADDED) != 0;
        let is_rows = place.kind == BlockKind::Rows;
        let known = u16::from(FLAG_PADDED | if is_rows { FLAG_SHORT } else { 0 });
        match (flags & !known, dictionary, key) {
            (0, 0, 0) => {}
            (0, 0, key) => return unsupported(format!("key {key} to decrypt its blocks")),
            (0, id, _) => return unsupported(format!("compression dictionary {id}")),
            _ => return unsupported(format!("block flags {flags:#x}")),
        }
        let (raw_len, stored_len) = (cursor.u32()?, cursor.u32()?);
        let (raw_len, stored_len) = (raw_len as usize, stored_len as usize);
        let (stored, padding) = match stored.split_at_checked(stored_len) {
            Some((part, zeros)) if is_padded => (part, zeros),
            _ => (stored, &[][..]),
        };
        if is_padded && (padding.is_empty() || padding.iter().any(|byte| *byte != 0)) {
            return Err(cursor.error("padding that is none, or not zero").into());
        }
        if stored_len != stored.len() || packing == Packing::Plain && raw_len != stored_len {
            let problem = format!("{stored_len} bytes stored of {raw_len}, {}", stored.len());
            return Err(cursor.error(problem).into());
        }
        if packing != Packing::Plain && raw_len > RAW_BYTES_MAX {
            return Err(cursor.error(format!("raw length {raw_len} is above the limit")).into());
        }
        Ok(Self { packing, raw_len, stored })
    }

    /// Returns the block's contents in a new buffer.
    pub(crate) fn decompress(&self) -> Result<Vec<u8>, FormatError> {
        match self.packing {
            Packing::Plain => Ok(self.stored.to_vec()),
            Packing::Zstd => {
                let raw = self.decompress_zstd(0)?;
                if raw.len() != self.raw_len {
                    let problem = format!("{} bytes, {} expected", raw.len(), self.raw_len);
                    return Err(DecodeError::new(STRUCTURE, HEADER_BYTES, problem).into());
                }
                Ok(raw)
            }
            Packing::Columns => {
                let columns = self.decompress_zstd(columns::MORE_BYTES_MAX)?;
                Ok(columns::join(&columns, self.raw_len)?)
            }
        }
    }

    /// Decompresses the stored bytes; the result may be at most `more` bytes longer than the
    /// contents.
    #[cfg(feature = "zstd")]
    fn decompress_zstd(&self, more: usize) -> Result<Vec<u8>, FormatError> {
        let wrong = |error| DecodeError::new(STRUCTURE, HEADER_BYTES, format!("zstd: {error}"));
        let len_max = self.raw_len + more;
        // While a thread ends, its thread-local decompressor may already be destroyed.
        let raw = DECOMPRESSOR.try_with(|kept| {
            // The code below does not reenter this closure, so this is the only borrow.
            let mut kept = kept.borrow_mut();
            let decompressor = match &mut *kept {
                Some(decompressor) => decompressor,
                None => kept.insert(Decompressor::new()?),
            };
            decompressor.decompress(self.stored, len_max)
        });
        let raw = raw.unwrap_or_else(|_| zstd::bulk::decompress(self.stored, len_max));
        Ok(raw.map_err(wrong)?)
    }

    #[cfg(not(feature = "zstd"))]
    fn decompress_zstd(&self, _more: usize) -> Result<Vec<u8>, FormatError> {
        unsupported(WITHOUT_ZSTD)
    }
}

#[cfg(feature = "zstd")]
thread_local! {
    /// Created when a thread reads its first compressed block. It uses some 100 KB, which would
    /// otherwise be initialized for each block.
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Returns the block of `raw_len` bytes that was split into `columns`. Fuzzing calls it directly,
/// because a fuzzer cannot guess compressed bytes.
#[cfg(any(fuzzing, feature = "fuzzing"))]
pub(crate) fn join_columns(columns: &[u8], raw_len: usize) -> Option<Vec<u8>> {
    columns::join(columns, raw_len).ok()
}

/// Fills in the header at the start of `block`, from the codec, the raw contents and the number of
/// zeros at the end.
fn seal_header(place: BlockPlace, (codec, raw, padding): (u8, &[u8], usize), block: &mut [u8]) {
    let Some((header, stored)) = block.split_first_chunk_mut::<HEADER_BYTES>() else { return };
    let len32 = |len: usize| u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
    header[0] = place.kind as u8;
    header[1] = codec;
    let is_short = place.kind == BlockKind::Rows && leaves_out(raw);
    header[2] = if padding > 0 { FLAG_PADDED } else { 0 } | if is_short { FLAG_SHORT } else { 0 };
    // Bytes 3..12 stay zero: reserved byte, no dictionary, no encryption key.
    header[12..16].copy_from_slice(&len32(raw.len()));
    header[16..20].copy_from_slice(&len32(stored.len() - padding));
    let sum = block_checksum(place, &header[..CHECKED_BYTES], stored);
    header[20..].copy_from_slice(&sum.to_le_bytes());
}

pub(crate) fn block_checksum(place: BlockPlace, header: &[u8], stored: &[u8]) -> u32 {
    Checksum::new().u64(place.file.0).u32(place.number).bytes(header).bytes(stored).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: BlockPlace =
        BlockPlace { kind: BlockKind::Rows, file: FileId(0x1122_3344_5566_7788), number: 3 };

    fn sealed(packing: Packing, raw: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Sealer::new(packing).unwrap().seal(PLACE, raw, &mut out);
        out
    }

    #[track_caller]
    fn check_round_trip(packing: Packing, raw: &[u8]) {
        let bytes = sealed(packing, raw);
        let block = StoredBlock::open(PLACE, &bytes).unwrap();
        assert_eq!(StoredBlock::reopen(PLACE, &bytes), Ok(block));
        assert_eq!(block.decompress().unwrap(), raw);
    }

    #[test]
    fn round_trips() {
        check_round_trip(Packing::Plain, b"");
        check_round_trip(Packing::Plain, b"abc");
        check_round_trip(Packing::Plain, &vec![7; RAW_BYTES_MAX + 1]);
    }

    #[cfg(feature = "zstd")]
    #[test]
    fn round_trips_compressed() {
        check_round_trip(Packing::Zstd, b"");
        check_round_trip(Packing::Zstd, b"abc");
        check_round_trip(Packing::Zstd, &vec![7; 100_000]);
        check_round_trip(Packing::Zstd, &vec![7; RAW_BYTES_MAX + 1]);
        assert!(sealed(Packing::Zstd, &vec![7; 100_000]).len() < 1000);
    }

    #[cfg(feature = "zstd")]
    #[test]
    fn a_damaged_block_does_not_affect_the_next_one_of_the_thread() {
        let raw: Vec<u8> = (0..20_000u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        let whole = sealed(Packing::Zstd, &raw);
        let whole = StoredBlock::open(PLACE, &whole).unwrap();
        for end in (0..whole.stored.len()).step_by(97) {
            let cut = StoredBlock { stored: &whole.stored[..end], ..whole };
            assert!(cut.decompress().is_err(), "{end} bytes");
            assert_eq!(whole.decompress().as_deref(), Ok(&raw[..]));
        }
    }

    #[cfg(feature = "zstd")]
    #[test]
    fn an_exiting_thread_can_still_decompress() {
        struct Last(&'static str);
        impl Drop for Last {
            fn drop(&mut self) {
                check_round_trip(Packing::Zstd, self.0.as_bytes());
            }
        }
        thread_local! { static LAST: Last = const { Last("what is read while a thread ends") } }
        // The thread-local value that is initialized first is destroyed last, so the test tries
        // both orders.
        for first in [true, false] {
            let ending = std::thread::spawn(move || {
                if first {
                    LAST.with(|_| check_round_trip(Packing::Zstd, b"abc"));
                } else {
                    check_round_trip(Packing::Zstd, b"abc");
                    LAST.with(|_| ());
                }
            });
            ending.join().unwrap();
        }
    }

    #[cfg(feature = "zstd")]
    #[test]
    fn rows_are_compressed_by_columns_and_other_blocks_directly() {
        let mut builder = crate::format::row_block::RowBlockBuilder::default();
        for i in 0..500u64 {
            let seq = crate::model::Seq(1000 + i * i);
            builder.add(format!("key{i:05}").as_bytes(), seq, crate::format::Kind::Put, |out| {
                out.extend_from_slice(&[1, (i * 7) as u8, 1, 2, 3, (i % 5) as u8, b'x']);
            });
        }
        let mut rows = Vec::new();
        builder.finish(&mut rows);
        let mut sealer = Sealer::new(Packing::Columns).unwrap();
        let seal_rows = |sealer: &mut Sealer, raw: &[u8]| {
            let mut out = Vec::new();
            sealer.seal_rows(PLACE, raw, &[6], &mut out);
            let block = StoredBlock::open(PLACE, &out).unwrap();
            assert_eq!(StoredBlock::reopen(PLACE, &out), Ok(block));
            assert_eq!(block.decompress().as_deref(), Ok(raw));
            (block.packing, out)
        };
        let (packing, columns) = seal_rows(&mut sealer, &rows);
        assert_eq!((packing, columns[1], is_compressed(&columns)), (Packing::Columns, 2, true));
        assert!(2 * columns.len() < sealed(Packing::Zstd, &rows).len(), "{}", columns.len());
        assert_eq!(seal_rows(&mut sealer, &[7; 10_000]).0, Packing::Zstd);
        assert_eq!(seal_rows(&mut sealer, b"short").0, Packing::Plain);
        assert_eq!(seal_rows(&mut Sealer::new(Packing::Plain).unwrap(), &rows).0, Packing::Plain);
        // The stated length must be right, as in other blocks, and only blocks of rows may be
        // stored by columns.
        let forge = |place, at: usize, value: &[u8]| {
            let mut bytes = columns.clone();
            bytes[at..at + value.len()].copy_from_slice(value);
            let sum = block_checksum(place, &bytes[..CHECKED_BYTES], &bytes[HEADER_BYTES..]);
            bytes[CHECKED_BYTES..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
            StoredBlock::open(place, &bytes).and_then(|block| block.decompress())
        };
        for len in [0, 1, rows.len() - 1, rows.len() + 1, RAW_BYTES_MAX] {
            let forged = forge(PLACE, 12, &(len as u32).to_le_bytes());
            assert!(matches!(forged, Err(FormatError::Damaged(_))), "{len}");
        }
        let sparse = BlockPlace { kind: BlockKind::Sparse, ..PLACE };
        let forged = forge(sparse, 0, &[3, 2, 0]);
        assert_eq!(forged, Err(FormatError::Unsupported("block codec 2".into())));
    }

    #[test]
    fn a_block_that_does_not_shrink_is_stored_uncompressed() {
        let raw: Vec<u8> = (0..=255).collect();
        let bytes = sealed(Packing::Plain, &raw);
        assert_eq!(StoredBlock::open(PLACE, &bytes).unwrap().packing, Packing::Plain);
        assert_eq!(bytes.len(), HEADER_BYTES + raw.len());
    }

    #[test]
    fn trap_24_the_checksum_covers_every_byte_and_the_offset() {
        let bytes = sealed(Packing::Plain, b"some rows");
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << bit;
                assert!(matches!(
                    StoredBlock::open(PLACE, &bytes),
                    Err(FormatError::Damaged(error)) if error.problem.starts_with("checksum")
                ));
            }
        }
        for len in 0..bytes.len() {
            assert!(StoredBlock::open(PLACE, &bytes[..len]).is_err());
        }
        assert!(StoredBlock::open(BlockPlace { number: 4, ..PLACE }, &bytes).is_err());
        assert!(StoredBlock::open(BlockPlace { file: FileId(1), ..PLACE }, &bytes).is_err());
        assert!(StoredBlock::open(BlockPlace { kind: BlockKind::Stats, ..PLACE }, &bytes).is_err());
    }

    /// Checks that a block with a changed header and a valid checksum, as a faulty writer could
    /// have written it, fails with `expected`.
    #[track_caller]
    fn check_forged(at: usize, value: &[u8], expected: &str) {
        let mut bytes = sealed(Packing::Plain, b"some rows");
        bytes[at..at + value.len()].copy_from_slice(value);
        let sum = block_checksum(PLACE, &bytes[..CHECKED_BYTES], &bytes[HEADER_BYTES..]);
        bytes[CHECKED_BYTES..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
        let opened = StoredBlock::open(PLACE, &bytes).and_then(|block| block.decompress());
        let text = format!("{:?}", opened.unwrap_err());
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn trap_23_unknown_block_features_are_refused_by_name() {
        check_forged(0, &[5], "kind 5, 1 expected");
        check_forged(1, &[9], "Unsupported(\"block codec 9\")");
        check_forged(2, &[4], "Unsupported(\"block flags 0x4\")");
        check_forged(2, &[5], "Unsupported(\"block flags 0x5\")");
        check_forged(3, &[1], "Unsupported(\"block flags 0x102\")");
        check_forged(2, &[1], "padding that is none");
        check_forged(16, &[8], "8 bytes stored of 9");
        check_forged(2, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 8], "or not zero");
        check_forged(4, &[1], "Unsupported(\"compression dictionary 1\")");
        check_forged(8, &[2], "Unsupported(\"key 2 to decrypt its blocks\")");
        check_forged(12, &[1], "9 bytes stored of 1");
        check_forged(16, &[1], "1 bytes stored of 9");
        #[cfg(not(feature = "zstd"))]
        check_forged(1, &[1], "Unsupported(\"zstd, which this build lacks");
        #[cfg(feature = "zstd")]
        {
            check_forged(1, &[1], "zstd:");
            check_forged(1, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255], "limit");
        }
    }

    #[test]
    fn rows_with_omissions_set_the_flag_for_older_readers() {
        let rows = |flags| [1, 0, 2, 0, 0, 0, flags, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        let sealer = Sealer::new(Packing::Plain).unwrap();
        for (padding, flags, expected) in [(0, 0, 0), (0, 1, 2), (5, 0, 1), (5, 3, 3)] {
            let mut bytes = Vec::new();
            sealer.seal_padded(PLACE, &rows(flags), padding, &mut bytes);
            assert_eq!(bytes[2..4], [expected, 0]);
            let block = StoredBlock::open(PLACE, &bytes).unwrap();
            assert_eq!(block.stored, rows(flags));
            assert_eq!(StoredBlock::reopen(PLACE, &bytes), Ok(block));
        }
        // A reader must refuse the flag `FLAG_SHORT` in a block that is not a block of rows.
        let place = BlockPlace { kind: BlockKind::Stats, ..PLACE };
        let mut bytes = Vec::new();
        sealer.seal_plain(place, &rows(1), &mut bytes);
        assert_eq!(bytes[2], 0);
        bytes[2] = 2;
        let sum = block_checksum(place, &bytes[..CHECKED_BYTES], &bytes[HEADER_BYTES..]);
        bytes[CHECKED_BYTES..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
        assert!(matches!(StoredBlock::open(place, &bytes), Err(FormatError::Unsupported(_))));
    }

    #[test]
    fn damaged_or_truncated_padding_is_detected() {
        let sealer = Sealer::new(Packing::Plain).unwrap();
        for padding in [1, 2, 300] {
            let mut bytes = Vec::new();
            sealer.seal_padded(PLACE, b"some rows", padding, &mut bytes);
            assert_eq!(bytes.len(), HEADER_BYTES + 9 + padding);
            let block = StoredBlock::open(PLACE, &bytes).unwrap();
            assert_eq!((block.stored, block.raw_len), (&b"some rows"[..], 9));
            assert_eq!(StoredBlock::reopen(PLACE, &bytes), Ok(block));
            for at in 0..bytes.len() {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1;
                assert!(matches!(StoredBlock::open(PLACE, &bytes), Err(FormatError::Damaged(_))));
            }
            for len in 0..bytes.len() {
                assert!(StoredBlock::open(PLACE, &bytes[..len]).is_err());
                drop(StoredBlock::reopen(PLACE, &bytes[..len]));
            }
        }
    }

    #[cfg(feature = "zstd")]
    #[test]
    fn trap_23_a_wrong_raw_length_is_corruption() {
        let mut bytes = sealed(Packing::Zstd, &vec![7; 10_000]);
        for raw_len in [0u32, 1, 9_999, 10_001, 4 << 20] {
            bytes[12..16].copy_from_slice(&raw_len.to_le_bytes());
            let sum = block_checksum(PLACE, &bytes[..CHECKED_BYTES], &bytes[HEADER_BYTES..]);
            bytes[CHECKED_BYTES..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
            let block = StoredBlock::open(PLACE, &bytes).unwrap();
            assert!(matches!(block.decompress(), Err(FormatError::Damaged(_))), "{raw_len}");
        }
    }
}
