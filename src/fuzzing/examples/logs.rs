//! Examples of what stands in record files.

use crate::codec::Cursor;
use crate::format::edit::VersionEdit;
use crate::format::field::{next_field, put_field};
use crate::format::names::{FileId, FileNumber};
use crate::format::record::{
    LOG_HEADER_BYTES, LogHeader, Position, RECORD_HEADER_BYTES, begin, decode_header, end, seal,
};
use crate::format::wal::{Change, Close, Open, Promise, WalRecord, put_group};

use super::{debug, text};

/// The file of all examples, and where its first record stands.
const FILE: FileId = FileId(0x0807_0605_0403_0201);
const AT: Position = Position { file: FileNumber(3), offset: LOG_HEADER_BYTES as u64 };

/// As `round_trip`; `None` if no structure of a record file has this name.
pub(super) fn round_trip(name: &str, bytes: &[u8]) -> Option<Result<Vec<u8>, String>> {
    let mut out = Vec::new();
    let done = match name {
        "log_header" => LogHeader::decode(bytes).map_err(debug).map(|h| out.extend(h.encode())),
        "record" => record(bytes, &mut out),
        "field" => field(bytes, &mut out),
        "wal_open" => Open::decode(bytes).map_err(debug).map(|open| open.encode(&mut out)),
        "wal_promise" => Promise::decode(bytes).map_err(debug).map(|p| p.encode(&mut out)),
        "wal_close" => Close::decode(bytes).map_err(debug).map(|close| close.encode(&mut out)),
        "wal_group" | "wal_catalog" => group(name == "wal_catalog", bytes, &mut out),
        "edit" | "identity" => {
            VersionEdit::decode(bytes).map_err(debug).map(|edit| edit.encode(&mut out))
        }
        _ => return None,
    };
    Some(done.map(|()| out))
}

fn record(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let (header, stored) =
        bytes.split_first_chunk::<RECORD_HEADER_BYTES>().ok_or("cut short in the header")?;
    let decoded = decode_header(header, AT, FILE).map_err(text)?;
    let payload = decoded.payload(stored).map_err(text)?;
    let kind = decoded.kind().map_err(|code| format!("kind {code}"))?;
    let start = begin(out, kind, decoded.seq);
    out.extend_from_slice(payload);
    end(out, start).map_err(text)?;
    seal(out, AT, FILE, decoded.promise);
    Ok(())
}

fn field(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let mut cursor = Cursor::new("field", bytes);
    while let Some(field) = next_field(&mut cursor).map_err(text)? {
        if !field.must_understand {
            return Err("the examples have fields of version 1 only".to_owned());
        }
        put_field(out, field.tag, field.content);
    }
    Ok(())
}

fn group(is_catalog: bool, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let kind = if is_catalog {
        crate::format::record::RecordKind::Catalog
    } else {
        crate::format::record::RecordKind::Group
    };
    let (WalRecord::Group(group) | WalRecord::Catalog(group)) =
        WalRecord::decode(kind, bytes).map_err(debug)?
    else {
        return Err("another record".to_owned());
    };
    let shapes: Vec<_> = group.shapes().collect();
    let entries: Vec<_> = group.entries().collect();
    let changes: Vec<Change<'_>> = group.changes().collect();
    put_group(out, shapes.into_iter(), group.key_prefix, entries.into_iter(), &changes);
    Ok(())
}
