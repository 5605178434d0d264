//! Examples of what stands in an SST.

use std::sync::Arc;

use crate::codec::Cursor;
use crate::format::block::{BlockKind, BlockPlace, Packing, Sealer, StoredBlock};
use crate::format::hash_index::{HashLine, LinePlace, encode_pages};
use crate::format::names::FileId;
use crate::format::row_block::{RowBlock, RowBlockBuilder};
use crate::format::shape::{decode_shape, encode_shape};
use crate::format::sparse_index::{Handles, SparseBuilder, SparsePage};
use crate::format::sst::{TAIL_BYTES, Tail, check_header, encode_footer, encode_header};
use crate::format::stats::SstStats;

use super::{debug, text};

/// The file of all examples.
const FILE: FileId = FileId(0x1122_3344_5566_7788);
const ROWS: BlockPlace = BlockPlace { kind: BlockKind::Rows, file: FILE, number: 0 };

/// As `round_trip`; `None` if no structure of an SST has this name.
pub(super) fn round_trip(name: &str, bytes: &[u8]) -> Option<Result<Vec<u8>, String>> {
    let mut out = Vec::new();
    let done = match name {
        "sst-header" => header(bytes, &mut out),
        "sst-footer" => footer(bytes, &mut out),
        "block" => block(bytes, &mut out),
        "row-block" => row_block(bytes, &mut out),
        "hash-line" => hash_line(bytes, &mut out),
        "sparse-index-page" => sparse_page(bytes, &mut out),
        "block-handles" => {
            let handles = Handles::decode(bytes, 0x20..0x1800, 0x3000..0x3060);
            handles.map_err(text).map(|handles| handles.encode(&mut out))
        }
        "shapes-section" => shapes(bytes, &mut out),
        "statistics" => SstStats::decode(bytes).map_err(text).map(|stats| stats.encode(&mut out)),
        _ => return None,
    };
    Some(done.map(|()| out))
}

fn header(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    check_header(FILE, bytes).map_err(debug)?;
    encode_header(FILE, out);
    Ok(())
}

fn footer(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let (directory, tail) = bytes.split_last_chunk::<TAIL_BYTES>().ok_or("no tail")?;
    let tail = Tail::decode(tail).map_err(text)?;
    let sections = tail.sections(FILE, directory).map_err(debug)?;
    let before = tail.file_bytes.checked_sub(bytes.len() as u64).ok_or("longer than the file")?;
    encode_footer(FILE, &sections, before, out);
    Ok(())
}

fn block(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let opened = StoredBlock::open(ROWS, bytes).map_err(debug)?;
    let raw = opened.decompress().map_err(debug)?;
    Sealer::new(Packing::Plain).map_err(text)?.seal_plain(ROWS, &raw, out);
    Ok(())
}

fn row_block(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let block = RowBlock::parse(bytes).map_err(text)?;
    block.check().map_err(text)?;
    let mut builder = RowBlockBuilder::default();
    for slot in 0..block.len() {
        let entry = block.entry(slot).map_err(text)?;
        let key = [block.prefix(), entry.suffix].concat();
        builder.add(&key, entry.seq, entry.kind, |out| out.extend_from_slice(entry.row));
    }
    builder.finish(out);
    Ok(())
}

/// Line 1 of an index of one page: its entries have a hash that leads there, and their tag below.
fn hash_line(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let place = LinePlace { page: 0, offset: 0 };
    let line = HashLine::of_page(bytes, place).map_err(text)?;
    let tags = bytes.chunks_exact(2).map(|tag| u16::from_le_bytes([tag[0], tag[1]]));
    let entries: Vec<(u64, u32)> = tags
        .take(line.len())
        .zip(0..)
        .map(|(tag, i)| (0x0003_0000 | u64::from(tag), line.location(i)))
        .collect();
    let page = encode_pages(FILE, entries.len(), entries.into_iter());
    out.extend_from_slice(page.get(64..128).ok_or("no second line")?);
    Ok(())
}

fn sparse_page(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let page = SparsePage::parse(bytes).map_err(text)?;
    page.check().map_err(text)?;
    let mut builder = SparseBuilder::default();
    for i in 0..page.len() {
        let (prefix, suffix) = page.separator(i).map_err(text)?;
        builder.add(&[prefix, suffix].concat());
    }
    builder.finish(out);
    Ok(())
}

fn shapes(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let mut cursor = Cursor::new("shapes", bytes);
    let count = cursor.count(bytes.len()).map_err(text)?;
    crate::codec::put_varint(out, count as u64);
    for _ in 0..count {
        let shape = Arc::new(decode_shape(cursor.bytes().map_err(text)?).map_err(text)?);
        let mut encoded = Vec::new();
        encode_shape(&mut encoded, &shape);
        crate::codec::put_bytes(out, &encoded);
    }
    cursor.finish().map_err(text)
}
