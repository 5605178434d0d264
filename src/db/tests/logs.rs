//! Tests that logs with valid checksums but invalid contents are refused or read as specified.

use super::*;
use crate::codec::{Checksum, checksum};
use crate::table::EntityGroup;

const HEADER: usize = 48;
/// The offset of the commit's Seq in a record's header.
const SEQ_AT: usize = 24;
/// The offset of the record's kind in the header.
const KIND_AT: usize = 12;
/// An encoded field that creates table 1.
const CREATED: &[u8] = &[0x0b, 1, 1];
/// The first byte of the field that drops a table.
const DROPPED: u8 = 0x0d;

/// Calls `edit` with each record of all logs, header and payload, and then corrects the checksums.
/// `edit` may change the record and returns whether it did. At least one record must change.
fn edit_records(image: &MemFs, edit: impl Fn(&mut [u8]) -> bool) {
    let mut edited = 0;
    for path in image.paths().into_iter().filter(|path| path.ends_with(".wal")) {
        let mut bytes = image.read(&path).unwrap();
        let mut at = 64;
        while bytes.get(at..at + HEADER).is_some_and(|header| header != [0; HEADER]) {
            let len = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
            let end = at + HEADER + len.next_multiple_of(8);
            edited += u32::from(edit(&mut bytes[at..end]));
            let sum = checksum(&bytes[at + HEADER..end]);
            bytes[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
            let sum = Checksum::new().u64(at as u64).bytes(&bytes[at + 4..at + HEADER]).finish();
            bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
            at = end;
        }
        image.write(&path, &bytes).unwrap();
    }
    assert!(edited > 0, "there is a record to edit");
}

fn find(record: &[u8], what: &[u8]) -> Option<usize> {
    record.windows(what.len()).position(|window| window == what)
}

/// Returns the files of a process that was killed after writing two rows with one commit.
fn left_behind() -> MemFs {
    let fs = MemFs::new();
    let db = open(&fs);
    let table = db.create_table("things").unwrap();
    let mut group = EntityGroup::new("p");
    group.upsert(Entity::new("p", "keyone2").with("V", 1)).unwrap();
    group.upsert(Entity::new("p", "keyone1").with("V", 2)).unwrap();
    table.commit(group).unwrap();
    fs.kill_image()
}

fn check_corrupt(image: &MemFs, problem: &str) {
    let error = options(image).open("db").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(format!("{error:?} {error}").contains(problem), "{error:?}");
}

#[test]
fn a_group_with_a_repeated_key_is_corruption() {
    let image = left_behind();
    edit_records(&image, |record| {
        let Some(at) = find(record, b"keyone2") else { return false };
        record[at + 6] = b'1';
        true
    });
    check_corrupt(&image, "twice");
}

#[test]
fn a_commit_beyond_the_last_seq_is_corruption() {
    for seq in [u64::MAX, crate::model::Seq::MAX.ticks() + 1] {
        let image = left_behind();
        edit_records(&image, |record| {
            let is_group = find(record, b"keyone").is_some();
            if is_group {
                record[SEQ_AT..SEQ_AT + 8].copy_from_slice(&seq.to_le_bytes());
            }
            is_group
        });
        check_corrupt(&image, "beyond the last");
    }
}

#[test]
fn commits_are_above_the_seq_of_an_open_record() {
    const FAR: u64 = 200_000_000_000_000_000;
    let image = left_behind();
    edit_records(&image, |record| {
        let is_open = record[KIND_AT] == 1;
        if is_open {
            record[SEQ_AT..SEQ_AT + 8].copy_from_slice(&FAR.to_le_bytes());
        }
        is_open
    });
    // The open record (the first record) of this log has a higher Seq than its commits, as if rows
    // with Timestamps in the future had been imported before the log was created.
    let table = open(&image).table("things").unwrap();
    table.insert(Entity::new("p", "later")).unwrap();
    let timestamp = table.get("p", "later").unwrap().unwrap().timestamp().unwrap();
    assert!(timestamp.ticks() > FAR, "{timestamp}");
}

#[test]
fn an_open_record_behind_the_first_one_is_corruption() {
    let image = left_behind();
    edit_records(&image, |record| {
        let is_group = find(record, b"keyone").is_some();
        if is_group {
            record[KIND_AT] = 1;
        }
        is_group
    });
    check_corrupt(&image, "an open record behind");
}

#[test]
fn a_record_behind_the_close_is_corruption() {
    let image = left_behind();
    edit_records(&image, |record| {
        let is_creation = find(record, CREATED).is_some();
        if is_creation {
            record[KIND_AT] = 5;
            // A close record without a manifest position, and with an unknown field that a reader
            // may ignore.
            let close = [3, 2, 0, 0, 7, 1, 0, 0x64];
            let len = u32::from_le_bytes(record[8..12].try_into().unwrap()) as usize;
            let rest = len - close.len() - 2;
            record[HEADER..HEADER + close.len()].copy_from_slice(&close);
            record[HEADER + close.len()] = rest as u8 | 0x80;
            record[HEADER + close.len() + 1] = (rest >> 7) as u8;
        }
        is_creation
    });
    check_corrupt(&image, "behind the close");
}

#[test]
fn a_drop_of_a_table_that_leaves_its_row_is_corruption() {
    let image = left_behind();
    edit_records(&image, |record| {
        let Some(at) = find(record, CREATED) else { return false };
        record[at] = DROPPED;
        true
    });
    check_corrupt(&image, "its row of the catalog stays");
}
