//! Numbers in the fields of an edit: varints with an upper bound each.

use crate::codec::{Cursor, DecodeError};
use crate::format::names::{FileNumber, TableId};
use crate::model::Seq;

/// Numbers above this are never given out: sums of them do not overflow.
const NUMBER_MAX: u64 = 1 << 56;

pub(super) fn file_number(cursor: &mut Cursor<'_>) -> Result<FileNumber, DecodeError> {
    let number = cursor.varint()?;
    if number > NUMBER_MAX {
        return Err(cursor.error(format!("file number {number}")));
    }
    Ok(FileNumber(number))
}

pub(super) fn table_id(cursor: &mut Cursor<'_>) -> Result<TableId, DecodeError> {
    let id = u32::try_from(cursor.varint()?);
    id.map(TableId).map_err(|_| cursor.error("table id above u32"))
}

pub(super) fn seq(cursor: &mut Cursor<'_>) -> Result<Seq, DecodeError> {
    let seq = Seq(cursor.varint()?);
    if seq > Seq::MAX {
        return Err(cursor.error("Seq beyond the year 9999"));
    }
    Ok(seq)
}
