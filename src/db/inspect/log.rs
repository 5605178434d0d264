//! Inspects logs and manifests: the header, each record, and the end of the records.

use std::path::Path;

use super::bytes::Bytes;
use super::parts::{
    DAMAGE, InspectOptions, InspectedPart, Sink, Stop, damage, hex, hex_id, hex_part, number, part,
    place_in, show_damage, text,
};
use super::sst::names_of;
use crate::error::{ErrorKind, Result};
use crate::format::edit::VersionEdit;
use crate::format::key::{DisplayEntry, DisplayKey};
use crate::format::record::{LogKind, Position, RecordKind};
use crate::format::row::row_shape_number;
use crate::format::shape::decode_shape;
use crate::format::wal::{Change, Group, WalRecord};
use crate::fs::Fs;
use crate::log::{LogReader, RecordView, StopReason};

pub(super) fn records(
    fs: &dyn Fs,
    path: &Path,
    kind: LogKind,
    options: InspectOptions,
    sink: &mut Sink<'_>,
) -> Result<()> {
    let mut reader = match LogReader::open(fs, path, kind, None) {
        Ok(reader) => reader,
        Err(error) if error.kind() == ErrorKind::Io => return Err(error),
        Err(error) => {
            let at = error.corruption().map_or(0, |corruption| corruption.offset);
            let file = Bytes::open(fs, path)?;
            sink(part(DAMAGE, at, [("problem", text(error.chain()))]))?;
            return sink(part("bytes", 0, [("hex", hex(&file.read(0..64)?))]));
        }
    };
    let header = reader.header();
    let kind = format!("{:?}", header.kind).to_lowercase();
    let fields =
        [("kind", text(kind)), ("number", text(header.number)), ("id", hex_id(header.id.0))];
    sink(part("header", 0, fields))?;
    let mut count = 0;
    loop {
        let record = match reader.next() {
            Ok(Some(record)) => record,
            Ok(None) => break,
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                return sink(part("unsupported", 0, [("problem", text(error.chain()))]));
            }
            Err(error) => return Err(error),
        };
        if options.block.is_none_or(|block| block == count) {
            sink(outline(&record, count))?;
            let is_whole = options.block.is_some() || header.kind == LogKind::Manifest;
            show_damage(contents(&record, is_whole, options, sink), sink)?;
        }
        count += 1;
    }
    match options.block {
        None => end(&mut reader, sink),
        Some(block) if block < count => Ok(()),
        Some(block) => {
            let fields = [("number", number(block)), ("of", number(count))];
            sink(part("missing", reader.position().offset, fields))
        }
    }
}

fn outline(record: &RecordView<'_>, index: u64) -> InspectedPart {
    let fields = [
        ("number", number(index)),
        ("kind", text(format!("{:?}", record.kind).to_lowercase())),
        ("seq", number(record.seq.0)),
        ("bytes", number(record.payload.len())),
        ("promise", text(record.durable_up_to)),
    ];
    part("record", record.offset, fields)
}

/// Shows the contents of a record. The single entries of a commit are shown only if `is_whole` is
/// set.
fn contents(
    record: &RecordView<'_>,
    is_whole: bool,
    options: InspectOptions,
    sink: &mut Sink<'_>,
) -> Result<(), Stop> {
    let at = record.payload_offset();
    let damaged = |error| damage(at, error);
    if record.kind == RecordKind::Edit {
        for line in VersionEdit::decode(record.payload).map_err(damaged)?.to_string().lines() {
            sink(part("edit", at, [("says", text(line))]))?;
        }
    } else {
        let decoded = WalRecord::decode(record.kind, record.payload).map_err(damaged)?;
        wal(&decoded, record, is_whole, options, sink)?;
    }
    if options.row.is_none() && options.block.is_some() {
        sink(part("bytes", at, [("hex", hex(record.payload))]))?;
    }
    Ok(())
}

fn wal(
    decoded: &WalRecord<'_>,
    record: &RecordView<'_>,
    is_whole: bool,
    options: InspectOptions,
    sink: &mut Sink<'_>,
) -> Result<()> {
    let at = record.payload_offset();
    match decoded {
        WalRecord::Open(open) => {
            let before = open
                .predecessor
                .map(|before| format!("{}.wal up to {}", before.number, before.accepted_end));
            let before = before.unwrap_or_else(|| "none: the first log".to_owned());
            sink(part("open", at, [("after", text(before)), ("manifest", text(open.manifest))]))?;
        }
        WalRecord::DurableUpTo(durable_up_to) => {
            sink(part("promise", at, [("ceiling", number(durable_up_to.seq_reservation.0))]))?;
        }
        WalRecord::Close(close) => {
            let fields =
                [("manifest", text(close.manifest)), ("last_seq", number(close.last_seq.0))];
            sink(part("close", at, fields))?;
        }
        WalRecord::Group(group) | WalRecord::Catalog(group) => {
            let fields = [
                ("entries", number(group.entries().count())),
                ("prefix", text(DisplayKey(group.key_prefix))),
            ];
            sink(part("group", at, fields))?;
            if is_whole {
                entries(group, record, options, sink)?;
            }
        }
    }
    Ok(())
}

fn entries(
    group: &Group<'_>,
    record: &RecordView<'_>,
    options: InspectOptions,
    sink: &mut Sink<'_>,
) -> Result<()> {
    let place = |bytes: &[u8]| record.payload_offset() + place_in(record.payload, bytes);
    for shape in group.shapes() {
        let names = match decode_shape(shape.shape) {
            Ok(shape) => names_of(&shape),
            Err(error) => {
                sink(damage(place(shape.shape), error))?;
                continue;
            }
        };
        let fields = [("number", number(shape.number)), ("properties", text(names))];
        sink(part("shape", place(shape.shape), fields))?;
    }
    for change in group.changes() {
        sink(part("change", record.payload_offset(), [("says", text(said(&change)))]))?;
    }
    for (slot, entry) in group.entries().enumerate() {
        if options.row.is_some_and(|row| row != slot as u64) {
            continue;
        }
        let key = [group.key_prefix, entry.key_suffix].concat();
        let shown = DisplayEntry { key: &key, seq: record.seq, kind: entry.kind };
        let fields =
            [("number", number(slot)), ("entry", text(shown)), ("bytes", number(entry.row.len()))];
        sink(part("row", place(entry.key_suffix), fields))?;
        if options.row.is_some() {
            let suffix = entry.key_suffix;
            sink(hex_part(place(suffix), suffix, "the key, behind the prefix"))?;
            let shape = row_shape_number(entry.row).ok().flatten();
            let shape = shape.map_or("a row that describes itself".to_owned(), |number| {
                format!("a row of shape {number} of this log")
            });
            sink(hex_part(place(entry.row), entry.row, shape))?;
        }
    }
    Ok(())
}

fn said(change: &Change) -> String {
    match change {
        Change::Created(table) => format!("create {table}"),
        Change::Dropped(table) => format!("drop {table}"),
        Change::RangeTombstone(span) => format!("fence {span}"),
        Change::Ttl(below, span) => format!("expiry {span} below #{below}"),
    }
}

/// Shows why the records end at this point: damage, zeros or the end of the file.
fn end(reader: &mut LogReader, sink: &mut Sink<'_>) -> Result<()> {
    let Some(stop) = reader.stop().cloned() else { return Ok(()) };
    let Position { file, offset: at } = reader.position();
    let rest = reader.rest()?;
    match stop {
        StopReason::Bad(error) => sink(damage(at, error))?,
        StopReason::Zeros if !rest.is_zero() => {
            sink(part(DAMAGE, at, [("problem", text("zeros, and bytes behind them"))]))?;
        }
        StopReason::Zeros => {
            sink(part("end", at, [("rest", text("zeros: space that is not written yet"))]))?;
        }
        StopReason::EndOfFile | StopReason::Accepted => {
            sink(part("end", at, [("rest", text("nothing"))]))?;
        }
    }
    let Some(durable_up_to) = rest.durable_up_to else { return Ok(()) };
    let vouched = if durable_up_to.offset > at && durable_up_to.file == file {
        "and one vouches for what is missing: this is damage"
    } else {
        "and none vouches for what is missing: a torn tail"
    };
    let fields = [
        ("records", number(rest.headers)),
        ("promise", text(durable_up_to)),
        ("means", text(vouched)),
    ];
    sink(part("behind", at, fields))
}
