//! Checks the hex examples of FORMAT.md: each must decode, and encode to the same bytes again.

use super::files::{rebuild, rebuild_zones, separators};
use super::logs::{put_again, sealed};
use super::made::made;
use super::rows::{numbered, split_shape};
use crate::codec::{Cursor, put_bytes, put_varint};
use crate::format::block::{BlockKind, BlockPlace, HEADER_BYTES, Packing, Sealer, StoredBlock};
use crate::format::current::Current;
use crate::format::edit::VersionEdit;
use crate::format::field::{Content, next_field, put_field};
use crate::format::file_meta::FileMeta;
use crate::format::generation::Generation;
use crate::format::hash_index::{Form, HashLayout, encode_pages};
use crate::format::key::{decode_part, decode_user_key, user_key};
use crate::format::names::{FileId, FileNumber};
use crate::format::record::{self, LogHeader, Position, RECORD_HEADER_BYTES, RecordKind};
use crate::format::row::{decode_row, encode_row, row_shape_number};
use crate::format::row_block::RowBlock;
use crate::format::shape::{decode_shape, encode_shape};
use crate::format::span::Span;
use crate::format::sparse_index::{Handles, SparseBuilder, SparsePage};
use crate::format::sst::{TAIL_BYTES, Tail, check_header, encode_footer, encode_header};
use crate::format::stats::SstStats;
use crate::format::wal::{Close, DurableUpTo, Open, WalRecord};
use crate::format::zones::{ZoneSet, ZoneSummary};

/// The id of the table file in the examples.
const SST: FileId = FileId(0x1122_3344_5566_7788);
/// The id of the write-ahead log in the examples, and the position of the example record.
const WAL: FileId = FileId(0x0807_0605_0403_0201);
const RECORD_AT: Position = Position { file: FileNumber(3), offset: 64 };

/// Decodes `bytes`, an example of the structure `name`, and encodes the result.
///
/// # Errors
/// The decoder's error, or that no structure has this name.
pub fn round_trip(name: &str, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    match name {
        "field" => field(bytes, &mut out)?,
        "user-key" => {
            let (table, pk, rk) = decode_user_key(bytes).map_err(text)?;
            let (pk, rk) = (decode_part(pk).map_err(text)?, decode_part(rk).map_err(text)?);
            out = user_key(table, &pk, &rk);
        }
        "span" => Span::decode(&mut Cursor::new("span", bytes)).map_err(text)?.encode(&mut out),
        "shape" => encode_shape(&mut out, &decode_shape(bytes).map_err(text)?),
        "row" => row(bytes, &mut out)?,
        "log-header" => out.extend(LogHeader::decode(bytes).map_err(debug)?.encode()),
        "record" => log_record(bytes, &mut out)?,
        "wal-open" => Open::decode(bytes).map_err(debug)?.encode(&mut out),
        "wal-promise" => DurableUpTo::decode(bytes).map_err(debug)?.encode(&mut out),
        "wal-close" => Close::decode(bytes).map_err(debug)?.encode(&mut out),
        "wal-group" => group(RecordKind::Group, bytes, &mut out)?,
        "wal-catalog" => group(RecordKind::Catalog, bytes, &mut out)?,
        "edit" | "identity" => VersionEdit::decode(bytes).map_err(debug)?.encode(&mut out),
        "generation" => out.extend(Generation::decode(bytes).map_err(debug)?.encode()),
        "current" => out.extend(Current::decode(bytes).map_err(debug)?.encode()),
        "file-entry" => FileMeta::decode(bytes).map_err(text)?.encode(&mut out),
        "statistics" => SstStats::decode(bytes).map_err(text)?.encode(&mut out),
        _ => sst_part(name, bytes, &mut out)?,
    }
    Ok(out)
}

fn sst_part(name: &str, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    match name {
        "sst-header" => {
            check_header(SST, bytes).map_err(debug)?;
            encode_header(SST, out);
        }
        "sst-footer" => {
            let at = bytes.len().checked_sub(TAIL_BYTES).ok_or("shorter than a tail")?;
            let (directory, tail) = bytes.split_at(at);
            let tail = Tail::decode(tail).map_err(text)?;
            let sections = tail.sections(SST, directory).map_err(debug)?;
            encode_footer(SST, &sections, tail.file_bytes - bytes.len() as u64, out);
        }
        "block" => {
            let place = BlockPlace { kind: BlockKind::Rows, file: SST, number: 0 };
            let raw = StoredBlock::open(place, bytes).and_then(|block| block.decompress());
            let raw = raw.map_err(debug)?;
            let padding = bytes.len().saturating_sub(HEADER_BYTES + raw.len());
            Sealer::new(Packing::Plain)?.seal_padded(place, &raw, padding, out);
        }
        "row-block" => {
            let block = RowBlock::parse(bytes).map_err(text)?;
            block.check().map_err(text)?;
            *out = rebuild(&block).map_err(text)?;
        }
        "hash-line" => hash_line(Form::First, 2, bytes, out)?,
        "hash-words" => {
            let form = Form::second(11).ok_or("no such form")?;
            hash_line(form, 4, bytes, out)?;
        }
        "hash-tags" => hash_line(Form::Third, 2, bytes, out)?,
        "sparse-index-page" => {
            let page = SparsePage::parse(bytes).map_err(text)?;
            page.check().map_err(text)?;
            let mut builder = SparseBuilder::default();
            separators(&page).map_err(text)?.iter().for_each(|key| builder.add(key));
            builder.finish(out);
        }
        "block-handles" => {
            // The example has two row blocks and one index page. The decoder needs the byte ranges
            // of both sections, which the handles in the example contain.
            let offset = |i: usize| Cursor::new("offset", bytes.get(16 + 8 * i..)?).u64().ok();
            let span = |from, to| Some(offset(from)?..offset(to)?);
            let (rows, pages) = (span(0, 2), span(3, 5));
            let handles = Handles::decode(bytes, rows.ok_or("short")?, pages.ok_or("short")?);
            handles.map_err(text)?.encode(out);
        }
        "shapes-section" => shapes(bytes, out)?,
        "zones" => *out = zones(bytes)?,
        "zone-summary" => {
            // The example has one page. The summary itself contains the byte range of the zone
            // pages.
            let offset = |at: usize| Cursor::new("offset", bytes.get(at..)?).u64().ok();
            let pages = offset(8).zip(offset(16)).map(|(start, end)| start..end);
            let summary = ZoneSummary::decode(bytes, 1, pages.ok_or("short")?).map_err(text)?;
            let set = zones(bytes.get(summary.set_at..).unwrap_or_default())?;
            ZoneSummary::encode(&summary.pages, &set, out);
        }
        _ => return Err(format!("no structure is called `{name}`")),
    }
    Ok(())
}

fn zones(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let set = ZoneSet::parse(bytes).map_err(text)?;
    set.check().map_err(text)?;
    rebuild_zones(&set).ok_or_else(|| "not whole".to_owned())
}

fn field(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let mut cursor = Cursor::new("field", bytes);
    let field = next_field(&mut cursor).map_err(text)?.ok_or("no field")?;
    cursor.finish().map_err(text)?;
    put_field(out, field.tag, field.content);
    Ok(())
}

/// Decodes and encodes a row. It either contains its shape, or refers to shape 0 of FORMAT.md.
fn row(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    // In FORMAT.md, shape 0 has the properties Coated Boolean, Name String, Price Double and Stock
    // Int32.
    let known = b"\x04\x03\x06Coated\x01\x04Name\x06\x05Price\x04\x05Stock";
    let (shape, _) = split_shape(known).ok_or("the document's shape")?;
    let number = row_shape_number(bytes).map_err(text)?;
    let row = decode_row(bytes, |number| (number == 0).then_some(&shape)).map_err(text)?;
    row.check().map_err(text)?;
    match number {
        Some(_) => encode_row(out, number, &numbered(&shape, row.body)),
        None => encode_row(out, None, &row),
    }
    Ok(())
}

fn log_record(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let (header, stored) = bytes.split_first_chunk::<RECORD_HEADER_BYTES>().ok_or("cut short")?;
    let header = record::decode_header(header, RECORD_AT, WAL).map_err(text)?;
    let payload = header.payload(stored).map_err(text)?;
    let kind = header.kind().map_err(|code| format!("kind {code}"))?;
    let place = (RECORD_AT, WAL);
    *out = sealed(place, kind, header.seq, payload, header.durable_up_to).ok_or("too long")?;
    Ok(())
}

fn group(kind: RecordKind, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let decoded = WalRecord::decode(kind, bytes).map_err(debug)?;
    let (WalRecord::Group(group) | WalRecord::Catalog(group)) = decoded else {
        return Err("another kind".to_owned());
    };
    put_again(&group, out);
    Ok(())
}

/// Rebuilds a line of the hash index from its entries, whose tags have `width` bytes. Each tag
/// serves as the entry's hash; such small hashes all belong to line 0.
fn hash_line(form: Form, width: usize, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let layout = HashLayout::of_pages(form, 1);
    let place = layout.place(0);
    if bytes.len() != 64 {
        return Err("a line has 64 bytes".to_owned());
    }
    let mut page = vec![0; place.offset];
    page.extend_from_slice(bytes);
    let line = layout.line(&page, place).map_err(text)?;
    // Of an entry, only the tag depends on the hash.
    let tag = |i: usize| {
        let tag = bytes.get(width * i..width * (i + 1)).unwrap_or_default();
        tag.iter().rev().fold(0, |hash, byte| hash << 8 | u64::from(*byte))
    };
    let entries = (0u32..).take(line.len()).map(|i| (tag(i as usize), line.location(i)));
    let pages = encode_pages(SST, form, line.len(), entries);
    out.extend_from_slice(pages.get(place.offset..place.offset + 64).unwrap_or_default());
    Ok(())
}

fn shapes(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let mut cursor = Cursor::new("shapes section", bytes);
    let count = cursor.varint().map_err(text)?;
    put_varint(out, count);
    for _ in 0..count {
        let shape = decode_shape(cursor.bytes().map_err(text)?).map_err(text)?;
        put_bytes(out, &made(|out| encode_shape(out, &shape)));
    }
    cursor.finish().map_err(text)
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

fn debug(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}
