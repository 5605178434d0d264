//! Fuzz targets for the structures of table files (SST).

use super::forge::{le_u64, sum_header, sum_tail};
use super::made::made;
use crate::codec::DecodeError;
use crate::format::block::{
    BlockKind, BlockPlace, Packing, RAW_BYTES_MAX, Sealer, StoredBlock, join_columns,
};
use crate::format::file_meta::FileMeta;
use crate::format::hash_index::{self as index, Form, HashLayout, PAGE_BYTES};
use crate::format::names::FileId;
use crate::format::row_block::{RowBlock, RowBlockBuilder};
use crate::format::sparse_index::{Handles, SparseBuilder, SparsePage};
use crate::format::sst::{self as ends, Tail, check_header, encode_footer, encode_header};
use crate::format::stats::SstStats;
use crate::format::zones::{self as format, ZoneColumn, ZoneMeta, ZoneSet, ZoneSummary};

const FILE: FileId = FileId(0x0102_0304_0506_0708);

/// Tests the frame of a block: its header and checksum. Opens the input as a framed block, with and
/// without comparing the checksum. Then frames the input as contents, with each packing and with
/// padding, and opens the results.
pub fn block(data: &[u8]) {
    let place = BlockPlace { kind: BlockKind::Rows, file: FILE, number: 0 };
    for opened in [StoredBlock::open(place, data), StoredBlock::reopen(place, data)] {
        if let Ok(raw) = opened.and_then(|block| block.decompress()) {
            assert!(raw.len() <= RAW_BYTES_MAX.max(data.len()), "bounded by input or limit");
        }
    }
    for len in [data.len(), data.len() / 2, 2 * data.len()] {
        let joined = join_columns(data, len);
        assert!(joined.is_none_or(|raw| raw.len() == len), "as long as asked");
    }
    for packing in [Packing::Plain, Packing::Zstd] {
        let Ok(mut sealer) = Sealer::new(packing) else { continue };
        let sealed = made(|out| sealer.seal(place, data, out));
        let raw = StoredBlock::open(place, &sealed).and_then(|block| block.decompress());
        assert_eq!(raw.as_deref(), Ok(data));
        let rows = made(|out| sealer.seal_rows(place, data, &[7, 30], out));
        let raw = StoredBlock::open(place, &rows).and_then(|block| block.decompress());
        assert_eq!(raw.as_deref(), Ok(data));
        let (mut padded, padding) = (Vec::new(), data.len() % 300);
        sealer.seal_padded(place, data, padding, &mut padded);
        let raw = StoredBlock::open(place, &padded).and_then(|block| block.decompress());
        assert_eq!(raw.as_deref(), Ok(data));
    }
}

/// Tests the decoder and encoder of row blocks.
pub fn row_block(data: &[u8]) {
    let Ok(block) = RowBlock::parse(data) else { return };
    for slot in 0..block.len() {
        drop(block.entry(slot));
    }
    for key in [&b""[..], block.prefix(), data, b"\xff\xff\xff\xff\xff"] {
        drop(block.lower_bound(key));
    }
    if block.check().is_ok() {
        check_rebuilt(&block, data.len());
    }
}

/// Builds a block from the entries of `block` and checks that it is not longer. It may be shorter,
/// because the input may encode a length with more bytes than necessary.
fn check_rebuilt(block: &RowBlock<'_>, len: usize) {
    let rebuilt = rebuild(block).unwrap_or_else(|error| panic!("a checked block: {error}"));
    let again =
        RowBlock::parse(&rebuilt).unwrap_or_else(|error| panic!("a block of ours: {error}"));
    assert_eq!((again.check(), again.len()), (Ok(()), block.len()));
    assert!((0..block.len()).all(|slot| again.entry(slot) == block.entry(slot)));
    assert!(rebuilt.len() <= len);
}

/// Builds a new block from the entries of a valid one.
pub(super) fn rebuild(block: &RowBlock<'_>) -> Result<Vec<u8>, DecodeError> {
    let mut builder = RowBlockBuilder::default();
    for slot in 0..block.len() {
        let entry = block.entry(slot)?;
        let key = [block.prefix(), entry.suffix].concat();
        assert_eq!(block.lower_bound(&key)?.min(slot), block.lower_bound(&key)?);
        builder.add(&key, entry.seq, entry.kind, |out| out.extend_from_slice(entry.row));
    }
    Ok(made(|out| builder.finish(out)))
}

/// Tests the hash index in each of its forms. Reads the input as a page, and then as a list of
/// hashes, from which it builds an index.
pub fn hash_index(data: &[u8]) {
    drop(index::check_page(FILE, 0, data));
    let mut page = data.to_vec();
    page.resize(PAGE_BYTES, 0);
    let hashes: Vec<u64> = data.chunks_exact(8).map(|bytes| le_u64(bytes, 0)).take(2000).collect();
    for form in [Some(Form::First), Form::second(12), Form::second(22), Some(Form::Third)] {
        let Some(form) = form else { continue };
        let layout = HashLayout::of_pages(form, 1);
        drop(layout.check_lines(data));
        for line in 0..layout.lines() {
            read_line(&page, layout, line, data.len() as u64);
        }
        find_all(form, &hashes);
    }
}

fn read_line(page: &[u8], layout: HashLayout, line: u64, hash: u64) {
    let Ok(line) = layout.line(page, layout.place(line)) else { return };
    let found = line.matches(hash);
    for entry in (0..32).filter(|entry| found & (1 << entry) != 0) {
        let _location = line.location(entry);
    }
    let _more = line.goes_on(hash);
}

/// Builds an index of `hashes` and checks that each entry is found by its hash.
fn find_all(form: Form, hashes: &[u64]) {
    let entries = hashes.iter().zip(0u32..).map(|(hash, location)| (*hash, location));
    let pages = index::encode_pages(FILE, form, hashes.len(), entries);
    let layout = HashLayout::of_pages(form, (pages.len() / PAGE_BYTES) as u64);
    for (number, page) in (0u32..).zip(pages.chunks_exact(PAGE_BYTES)) {
        assert_eq!(index::check_page(FILE, number, page), Ok(()));
        assert_eq!(layout.check_lines(page), Ok(()));
    }
    for (hash, location) in hashes.iter().zip(0u32..) {
        assert!(find(&pages, layout, *hash, location), "entry {location} is not found");
    }
}

fn find(pages: &[u8], layout: HashLayout, hash: u64, location: u32) -> bool {
    let mut at = layout.home(hash);
    for _ in 0..layout.lines() {
        let place = layout.place(at);
        let page = pages.chunks_exact(PAGE_BYTES).nth(place.page).unwrap_or_default();
        let Ok(line) = layout.line(page, place) else { return false };
        let found = line.matches(hash);
        let is_it = |i| !layout.has_locations() || line.location(i) == location;
        if (0..32).any(|i| found & (1 << i) != 0 && is_it(i)) {
            return true;
        }
        if !line.goes_on(hash) {
            return false;
        }
        at = layout.next(at);
    }
    false
}

/// Tests pages of the sparse index, and the handles (positions) of blocks and pages.
pub fn sparse_index(data: &[u8]) {
    if let Ok(page) = SparsePage::parse(data) {
        for key in [&b""[..], data, b"\xff\xff"] {
            drop(page.find(key));
        }
        if page.check().is_ok() {
            rebuild_page(&page);
        }
    }
    let end = le_u64(data, 24);
    if let Ok(handles) = Handles::decode(data, 0..end, 0..end) {
        assert_eq!(made(|out| handles.encode(out)), data);
        let blocks = (0..handles.len()).filter_map(|i| handles.block(i));
        assert!(blocks.into_iter().all(|block| block.start <= block.end));
    }
}

/// Checks that a page rebuilt from the separators has the same separators. Its prefix may differ.
fn rebuild_page(page: &SparsePage<'_>) {
    let Ok(keys) = separators(page) else { panic!("a checked page has its separators") };
    let mut builder = SparseBuilder::default();
    keys.iter().for_each(|key| builder.add(key));
    let encoded = made(|out| builder.finish(out));
    let again = SparsePage::parse(&encoded).and_then(|page| page.check().and(separators(&page)));
    assert_eq!(again, Ok(keys));
}

pub(super) fn separators(page: &SparsePage<'_>) -> Result<Vec<Vec<u8>>, DecodeError> {
    (0..page.len()).map(|i| page.separator(i).map(|(a, b)| [a, b].concat())).collect()
}

/// Tests header, directory and tail of a table file, with the input's checksums and with corrected
/// ones.
pub fn sst(data: &[u8]) {
    drop(check_header(FILE, data));
    if let Some(header) = data.get(..ends::HEADER_BYTES) {
        let mut header = header.to_vec();
        sum_header(&mut header);
        if check_header(FILE, &header).is_ok() {
            let encoded = made(|out| encode_header(FILE, out));
            let reserved = header[28..] != [0; 4];
            assert!(reserved || encoded == header, "a header has one encoding");
        }
    }
    check_footer(data);
    let mut summed = data.to_vec();
    sum_tail(&mut summed);
    check_footer(&summed);
}

/// Checks that a valid directory and tail, encoded again, decode to the same sections.
fn check_footer(data: &[u8]) {
    let at = data.len().saturating_sub(ends::TAIL_BYTES);
    let (directory, tail) = data.split_at(at);
    let Ok(tail) = Tail::decode(tail) else { return };
    let Ok(sections) = tail.sections(tail.file, directory) else { return };
    // The directory may become shorter when it is encoded again. The file's length is part of the
    // tail and must not change, so more bytes are placed before the directory.
    let mut encoded = Vec::new();
    let len = encode_footer(tail.file, &sections, 0, &mut encoded);
    let Some(before) = tail.file_bytes.checked_sub(len) else { return };
    encoded.clear();
    encode_footer(tail.file, &sections, before, &mut encoded);
    let (directory, tail) = encoded.split_at(encoded.len() - ends::TAIL_BYTES);
    let again = Tail::decode(tail).map(|again| (again.file, again.sections(again.file, directory)));
    assert!(matches!(again, Ok((_, Ok(again))) if again == sections), "a footer of ours");
}

/// Tests the statistics section of a table file.
pub fn stats(data: &[u8]) {
    let Ok(stats) = SstStats::decode(data) else { return };
    assert_eq!(SstStats::decode(&made(|out| stats.encode(out))), Ok(stats));
}

/// Tests the entry that describes a table file in the manifest.
pub fn file_meta(data: &[u8]) {
    let Ok(meta) = FileMeta::decode(data) else { return };
    let _newer = meta.not_understood();
    assert_eq!(FileMeta::decode(&made(|out| meta.encode(out))), Ok(meta));
}

/// Tests zones: reads the input as a set of zones and as a zone summary. A valid set must encode to
/// the same bytes.
pub fn zones(data: &[u8]) {
    let len = data.len() as u64;
    for blocks in [1, 64, 65] {
        drop(ZoneSummary::decode(data, blocks, 0..len));
    }
    let Ok(set) = ZoneSet::parse(data) else { return };
    for i in 0..=set.len() {
        assert_eq!(set.meta(i).is_some(), i < set.len());
        for column in set.columns() {
            assert_eq!(column.values(i).is_some(), i < set.len());
        }
    }
    if set.check().is_ok() {
        assert_eq!(rebuild_zones(&set).as_deref(), Some(data));
    }
}

/// Builds a new set of zones from the parts of a valid one.
pub(super) fn rebuild_zones(set: &ZoneSet<'_>) -> Option<Vec<u8>> {
    let metas: Option<Vec<ZoneMeta>> = (0..set.len()).map(|i| set.meta(i)).collect();
    let columns = set.columns().map(|column| {
        Some(ZoneColumn {
            name: std::str::from_utf8(column.name).ok()?.into(),
            edm: column.edm,
            prefix: column.prefix.into(),
            values: (0..set.len()).map(|i| column.values(i)).collect::<Option<_>>()?,
        })
    });
    let columns: Option<Vec<ZoneColumn>> = columns.collect();
    let (metas, columns) = (metas?, columns?);
    Some(made(|out| format::encode(&metas, set.is_complete, &columns, out)))
}
