//! Tests damaged manifests. Opening must report corruption or accept a prefix of the edits. The
//! logs can then show that the prefix is incomplete.

use super::*;
use crate::codec::Checksum;
use crate::format::record::Position;

/// Writes the first edit and three more; returns the position after each of the three.
fn small(fs: &MemFs) -> Vec<Position> {
    let mut manifest = create(fs).unwrap();
    let edits = (2..5).map(|seq| {
        manifest.append(&flushed(seq)).unwrap();
        manifest.position()
    });
    edits.collect()
}

#[test]
fn trap_03_trap_24_every_flipped_byte_of_a_manifest_is_detected_or_leaves_a_prefix() {
    let fs = MemFs::new();
    let positions = small(&fs);
    let path = Path::new(DIR).join("MANIFEST-000001");
    let [_, before_last, end] = positions[..] else { panic!("three edits") };
    for at in 0..end.offset + 16 {
        for mask in [1, 0x80, 0xff] {
            fs.flip(&path, at, mask).unwrap();
            match open(&fs.kill_image()) {
                Ok(opened) => {
                    // No later record states that the last edit is durable, so only `require`
                    // detects its loss.
                    assert!(at >= before_last.offset, "byte {at}");
                    assert!(opened.torn.is_some());
                    let expected = if at < end.offset { 3 } else { 4 };
                    assert_eq!(opened.manifest.version().flushed_seq, Seq(expected));
                    let required = opened.manifest.require(end);
                    assert_eq!(required.is_err(), at < end.offset);
                }
                Err(error) => {
                    assert!(at < before_last.offset, "byte {at}: {error}");
                    assert_eq!(error.kind(), ErrorKind::Corruption, "byte {at}: {error}");
                    assert_eq!(error.corruption().unwrap().file, path);
                }
            }
            fs.flip(&path, at, mask).unwrap();
        }
    }
}

#[test]
fn trap_24_every_flipped_byte_of_current_is_corruption() {
    let fs = MemFs::new();
    small(&fs);
    for at in 0..40 {
        fs.flip("db/CURRENT", at, 4).unwrap();
        let error = open(&fs).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "byte {at}: {error}");
        fs.flip("db/CURRENT", at, 4).unwrap();
    }
    for len in [0, 39, 41, 1 << 20] {
        fs.truncate("db/CURRENT", len).unwrap();
        assert_eq!(open(&fs).unwrap_err().kind(), ErrorKind::Corruption, "length {len}");
    }
}

#[test]
fn trap_51_a_manifest_shorter_than_current_states_is_corruption() {
    let fs = MemFs::new();
    let mut manifest = create(&fs).unwrap();
    manifest.append(&padded(2, 70_000)).unwrap();
    manifest.append(&flushed(3)).unwrap();
    let rolled = manifest.position().file;
    assert_ne!(rolled, FileNumber(1));
    let path = Path::new(DIR).join(FileName::Manifest(rolled).to_string());
    let good = fs.read(&path).unwrap();
    let end = manifest.position().offset;
    assert!(open(&fs).unwrap().short.is_none());
    // The last edit is 56 bytes long and begins where the snapshot ends.
    for len in [0, 63, 64, 100, end - 57, end - 56, end - 1, end] {
        fs.write(&path, &good[..len as usize]).unwrap();
        match open(&fs.kill_image()) {
            Ok(opened) => {
                assert!(len >= end - 56 && opened.short.is_some());
                assert_eq!(opened.manifest.require(manifest.position()).is_err(), len < end);
            }
            Err(error) => {
                assert!(len < end - 56);
                assert_eq!(error.kind(), ErrorKind::Corruption);
            }
        }
    }
}

/// True if an image of `fs`, with its manifest `number` cut to `len` bytes, opens without reporting
/// the manifest as too short.
fn is_whole(fs: &MemFs, number: FileNumber, len: u64) -> bool {
    let path = Path::new(DIR).join(FileName::Manifest(number).to_string());
    let image = fs.kill_image();
    image.truncate(&path, len).unwrap();
    open(&image).unwrap().short.is_none()
}

fn len(fs: &MemFs, number: FileNumber) -> u64 {
    fs.len(Path::new(DIR).join(FileName::Manifest(number).to_string())).unwrap()
}

#[test]
fn a_manifest_states_its_length_after_each_growth() {
    let fs = MemFs::new();
    let mut manifest = create(&fs).unwrap();
    manifest.roll_bytes_min = 1 << 30;
    // This edit causes a roll-over. The new manifest is not rolled over again.
    manifest.append(&padded(2, 70_000)).unwrap();
    manifest.append(&flushed(2)).unwrap();
    let number = manifest.position().file;
    for seq in 3..20 {
        let len = len(&fs, number);
        assert!(!is_whole(&fs, number, len - 1) && is_whole(&fs, number, len), "{seq}");
        // The edit that grows the file is synced along with the new length; the next edit states
        // that length.
        for edit in [padded(seq, 20_000), flushed(seq), flushed(seq)] {
            manifest.append(&edit).unwrap();
        }
    }
    assert!(len(&fs, number) > 4 * ALLOCATED);
}

#[test]
fn a_clean_close_revokes_the_length_of_the_manifest() {
    let fs = MemFs::new();
    let mut manifest = create(&fs).unwrap();
    let number = manifest.position().file;
    let log = LogMeta { number: manifest.next_number().unwrap(), id: FileId(1) };
    manifest.append(&VersionEdit { add_logs: vec![log], ..VersionEdit::default() }).unwrap();
    let close = CleanClose { log: log.number, end: 64, last_seq: Seq(20) };
    let close = VersionEdit { clean_close: Some(close), ..VersionEdit::default() };
    manifest.append(&close).unwrap();
    manifest.trim();
    assert!(len(&fs, number) < ALLOCATED);
    let mut manifest = open(&fs).unwrap().manifest;
    // The edit after the one that grows the file states the new length.
    for (seq, is_stated) in [(30, false), (31, true)] {
        manifest.append(&flushed(seq)).unwrap();
        assert_eq!(len(&fs, number), ALLOCATED);
        assert!(is_whole(&fs, number, ALLOCATED));
        assert_eq!(is_whole(&fs, number, ALLOCATED - 1), !is_stated);
    }
}

#[test]
fn a_manifest_older_than_a_log_states_is_corruption() {
    let fs = MemFs::new();
    let positions = small(&fs);
    let manifest = open(&fs).unwrap().manifest;
    positions.iter().for_each(|position| manifest.require(*position).unwrap());
    let newer = Position { file: FileNumber(2), offset: 0 };
    let error = manifest.require(newer).unwrap_err();
    assert_eq!(
        error.to_string(),
        "record at byte 336 of db/MANIFEST-000001: the records end here; a log vouches up to 000002:0"
    );
}

#[test]
fn trap_05_nothing_is_appended_to_a_torn_manifest() {
    let fs = MemFs::new();
    let positions = small(&fs);
    let path = Path::new(DIR).join("MANIFEST-000001");
    fs.flip(&path, positions[2].offset - 1, 1).unwrap();
    let torn = fs.read(&path).unwrap();
    let mut opened = open(&fs).unwrap();
    let at = opened.torn.as_ref().unwrap().at;
    assert_eq!(at, positions[1]);
    assert_eq!(opened.manifest.version().flushed_seq, Seq(3));
    opened.manifest.append(&flushed(9)).unwrap();
    assert_eq!(fs.read(&path).unwrap(), torn);
    let again = open(&fs).unwrap();
    assert_eq!((again.torn, again.manifest.version().flushed_seq), (None, Seq(9)));
    assert!(again.manifest.position().file > FileNumber(1));
}

#[test]
fn a_missing_or_foreign_manifest_is_an_error() {
    let fs = MemFs::new();
    small(&fs);
    let path = Path::new(DIR).join("MANIFEST-000001");
    let good = fs.read(&path).unwrap();
    fs.erase(&path).unwrap();
    assert!(open(&fs).is_err());
    let other = MemFs::new();
    drop(create(&other).unwrap());
    let mut header = good.clone();
    header[24] ^= 1;
    fs.write(&path, &header).unwrap();
    assert_eq!(open(&fs).unwrap_err().kind(), ErrorKind::Corruption);
}

#[test]
fn an_edit_with_a_seq_is_corruption() {
    let fs = MemFs::new();
    small(&fs);
    let path = Path::new(DIR).join("MANIFEST-000001");
    let mut bytes = fs.read(&path).unwrap();
    // Change the first record's Seq, and correct its header's checksum.
    bytes[64 + 24] = 1;
    let sum = Checksum::new().u64(64).bytes(&bytes[68..112]).finish();
    bytes[64..68].copy_from_slice(&sum.to_le_bytes());
    fs.write(&path, &bytes).unwrap();
    let error = open(&fs).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(format!("{error:?}").contains("Seq 1 of a version edit"), "{error:?}");
}
