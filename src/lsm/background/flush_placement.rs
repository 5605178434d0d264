//! Assigns the files of a flush to ranges: a pure function of the files' parts and the current
//! ranges, which may have been split or merged during the flush.
//!
//! Invariants
//! * Every range with keys of a file references the file once. The reference is limited to a key
//!   span, the *clip*. The clips of a file's references cover all keys of the file.
//! * The ranges of a table tile its key space. A table without ranges gets one range.
//! * A flush's edit fits in a record of at most 16 MiB, see [`CLIP_BYTES_MAX`].
//!
//! `flush` and `output_writer` write the files; `ranges` orders references.

use crate::error::Result;
use crate::format::edit::{Placement, RangeMeta, ReferenceMeta, VersionEdit};
use crate::format::file_meta::FileMeta;
use crate::format::key::table_of;
use crate::format::names::{RangeId, TableId};
use crate::format::span::{Span, whole_table};
use crate::manifest::{FileRange, Version};

use super::new_file::NewFile;

/// The maximum total bytes of bounds of clips in the edit of one flush. Up to this total, each clip
/// is bounded by the first and the last key of its part. Beyond this total, a range that gets only
/// one new reference uses the whole range as the clip, which takes 2 bytes in the edit. A reference
/// and a new range then take less than 80 bytes together, so a flush may touch 200,000 ranges,
/// including ranges of new tables.
pub(in crate::lsm) const CLIP_BYTES_MAX: usize = 4 << 20;

/// The part of a file in one range.
struct Piece<'a> {
    home: Home<'a>,
    file: &'a FileMeta,
    /// The bounds of the part: its first and last key, or wider bounds if the range was split.
    low: &'a [u8],
    high: &'a [u8],
    bytes: u64,
}

#[derive(Clone, Copy)]
enum Home<'a> {
    Range(&'a FileRange),
    /// A table without any range.
    Table(TableId),
}

/// Adds `files`, which must be in ascending key order, and their references to `edit`. `ids`
/// reserves a number of consecutive ids for new ranges and returns the first.
pub(in crate::lsm) fn assign_to_ranges(
    version: &Version,
    files: &[NewFile],
    edit: &mut VersionEdit,
    ids: impl FnOnce(u64) -> Result<RangeId>,
) -> Result<()> {
    let pieces = pieces(version, files);
    debug_assert!(pieces.is_sorted_by_key(|piece| piece.low), "pieces ascend");
    let mut tables: Vec<TableId> = Vec::new();
    for piece in &pieces {
        if let Home::Table(table) = piece.home
            && tables.last() != Some(&table)
        {
            tables.push(table);
        }
    }
    debug_assert!(tables.is_sorted(), "files are in order of their keys");
    let first = if tables.is_empty() { RangeId(0) } else { ids(tables.len() as u64)? };
    let new_id = |table: &TableId| RangeId(first.0 + tables.partition_point(|t| t < table) as u64);
    edit.add_ranges.extend(tables.iter().map(|table| RangeMeta {
        id: new_id(table),
        table: *table,
        span: whole_table(*table),
    }));
    let bounds: usize = pieces.iter().map(|piece| piece.low.len() + piece.high.len()).sum();
    for (i, piece) in pieces.iter().enumerate() {
        let neighbours = [i.checked_sub(1), i.checked_add(1)];
        let mut neighbours = neighbours.into_iter().flatten().filter_map(|i| pieces.get(i));
        let is_wide =
            bounds > CLIP_BYTES_MAX && !neighbours.any(|other| other.home.is_same(&piece.home));
        let (range, span) = match piece.home {
            Home::Range(range) => (range.id, range.span.clone()),
            Home::Table(table) => (new_id(&table), whole_table(table)),
        };
        let Some(clip) = span.intersect(&Span::inclusive(piece.low, piece.high)) else { continue };
        let clip = if is_wide { span } else { clip };
        let joins = match piece.home {
            Home::Range(range) => joins_run(range, &clip),
            Home::Table(_) => true,
        };
        let placement = if joins { Placement::Run } else { Placement::Young };
        let clip = if is_wide { ReferenceMeta::whole_range() } else { clip };
        let file = piece.file.number;
        let bytes = (piece.bytes < piece.file.bytes).then_some(piece.bytes);
        edit.add_references.push(ReferenceMeta { range, file, placement, clip, bytes });
    }
    let is_named = |file: &NewFile| {
        edit.add_references.iter().any(|reference| reference.file == file.meta.number)
    };
    debug_assert!(files.iter().all(is_named), "each file is in a range");
    edit.add_files.extend(files.iter().map(|file| file.meta.clone()));
    Ok(())
}

/// Returns the part of each file in each range, in ascending key order.
fn pieces<'a>(version: &'a Version, files: &'a [NewFile]) -> Vec<Piece<'a>> {
    let mut pieces: Vec<Piece<'a>> = Vec::new();
    for file in files {
        for part in &file.parts {
            let ranges = version.ranges_in(&Span::inclusive(&part.low, &part.high));
            let table = ranges.is_empty().then(|| table_of(&part.low).unwrap_or_default());
            let homes = ranges.iter().map(|range| Home::Range(range)).chain(table.map(Home::Table));
            // If the range was split since the part was written, the distribution of the part's
            // bytes is unknown. Assume equal shares.
            let bytes = part.bytes / ranges.len().max(1) as u64;
            for home in homes {
                match pieces.last_mut() {
                    Some(last)
                        if std::ptr::eq(last.file, &file.meta) && last.home.is_same(&home) =>
                    {
                        last.high = &part.high;
                        last.bytes += bytes;
                    }
                    _ => {
                        let (low, high) = (&*part.low, &*part.high);
                        pieces.push(Piece { home, file: &file.meta, low, high, bytes });
                    }
                }
            }
        }
    }
    pieces
}

/// True if `clip` is above all files of the run and overlaps no young file. A new file with this
/// clip is added to the run, so that ascending inserts need no merge.
fn joins_run(range: &FileRange, clip: &Span) -> bool {
    let above = range.run.last().is_none_or(|last| last.clip.ends_before(&clip.low));
    above && !range.young.iter().any(|file| file.clip.overlaps(clip))
}

impl Home<'_> {
    fn is_same(&self, other: &Home<'_>) -> bool {
        match (self, other) {
            (Home::Range(a), Home::Range(b)) => a.id == b.id,
            (Home::Table(a), Home::Table(b)) => a == b,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
