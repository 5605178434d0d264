//! Tests of record files on a file system that can be damaged: reading must return a prefix of the
//! records, or report corruption.

use std::path::Path;
use std::sync::Arc;

use super::reader::Remainder;
use super::*;
use crate::error::{ErrorKind, Result};
use crate::format::names::{FileId, FileNumber};
use crate::format::record::{LogHeader, LogKind, Position, RecordKind, begin, end, seal};
use crate::fs::{Fault, FaultFs, FaultKind, Fs, MemFs, OpKind};
use crate::model::Seq;
use crate::rng::Rng;

const HEADER: LogHeader =
    LogHeader { kind: LogKind::Wal, number: FileNumber(3), id: FileId(0x1122_3344_5566_7788) };

fn path() -> &'static Path {
    Path::new("000003.wal")
}

fn buffer(seqs: std::ops::Range<u64>, payload_len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for seq in seqs {
        let start = begin(&mut out, RecordKind::Group, Seq(seq));
        out.resize(out.len() + payload_len, seq as u8);
        end(&mut out, start).unwrap();
    }
    out
}

/// Writes a log in rounds, that is, in groups of records. Each round is synced, and the headers of
/// the next round state that it is durable.
struct Writer {
    file: LogFile,
    end: u64,
}

impl Writer {
    fn create(fs: &dyn Fs) -> Self {
        let file = LogFile::create(fs, path(), HEADER, 4096).unwrap();
        Self { file, end: LogFile::START }
    }

    fn position(&self) -> Position {
        Position { file: HEADER.number, offset: self.end }
    }

    fn round(&mut self, mut records: Vec<u8>) {
        let durable_up_to = self.position();
        seal(&mut records, self.position(), HEADER.id, durable_up_to);
        self.file.write_at(self.end, &records).unwrap();
        self.file.sync().unwrap();
        self.end += records.len() as u64;
    }
}

/// Writes a log of three rounds with two, three and one records.
fn small_log(fs: &dyn Fs) -> u64 {
    let mut writer = Writer::create(fs);
    writer.round(buffer(1..3, 11));
    writer.round(buffer(3..6, 0));
    writer.round(buffer(6..7, 40));
    writer.end
}

fn open(fs: &dyn Fs) -> Result<LogReader> {
    LogReader::open(fs, path(), LogKind::Wal, Some(HEADER.id))
}

fn seqs(reader: &mut LogReader) -> Result<Vec<u64>> {
    let mut seqs = Vec::new();
    while let Some(record) = reader.next()? {
        assert!(record.payload.iter().all(|byte| u64::from(*byte) == record.seq.0));
        seqs.push(record.seq.0);
    }
    Ok(seqs)
}

/// Returns the durable offset stated after the stop, if it is beyond the stop.
fn durable_beyond(reader: &mut LogReader, stop: Position) -> Option<Position> {
    reader.rest().unwrap().durable_up_to.filter(|durable_up_to| *durable_up_to > stop)
}

#[test]
fn a_reader_finds_zeros_while_allocated_space_is_released() {
    let fs = MemFs::new();
    let mut writer = Writer::create(&fs);
    for round in 0..40 {
        writer.round(buffer(3 * round + 1..3 * round + 4, 700));
    }
    writer.file.allocate(writer.end + (256 << 10)).unwrap();
    let mut reader = LogReader::open(&fs, path(), LogKind::Wal, None).unwrap();
    writer.file.trim(writer.end);
    assert_eq!(fs.len(path()).unwrap(), writer.end);
    let mut count = 0;
    while reader.next().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 120);
    assert!(reader.rest().unwrap().is_zero());
    // Trimming to a length beyond the end must not extend the file.
    writer.file.trim(writer.end + 1);
    assert_eq!(fs.len(path()).unwrap(), writer.end);
}

/// Reading a hole of 4 TiB would take more than ten minutes.
#[cfg(target_os = "linux")]
#[test]
fn a_hole_at_the_end_of_a_log_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(path());
    let fs = crate::fs::DiskFs::new();
    let file = LogFile::create(&fs, &path, HEADER, 4096).unwrap();
    let mut records = buffer(1..4, 700);
    let end = LogFile::START + records.len() as u64;
    let start = Position { file: HEADER.number, offset: LogFile::START };
    seal(&mut records, start, HEADER.id, start);
    file.write_at(LogFile::START, &records).unwrap();
    drop(file);
    let disk = fs.open_write(&path).unwrap();
    // The last byte of the file is not in the hole, so it must be found.
    disk.write_at((4 << 40) - 1, b"x").unwrap();
    let mut reader = LogReader::open(&fs, &path, LogKind::Wal, None).unwrap();
    while reader.next().unwrap().is_some() {}
    let rest = Remainder { bytes: (4 << 40) - end, headers: 0, durable_up_to: None };
    assert_eq!(reader.rest().unwrap(), rest);
    disk.set_len((4 << 40) - 1).unwrap();
    let mut reader = LogReader::open(&fs, &path, LogKind::Wal, None).unwrap();
    while reader.next().unwrap().is_some() {}
    assert!(reader.rest().unwrap().is_zero() && !reader.skip_damage().unwrap());
}

#[test]
fn written_records_are_read_back() {
    let fs = MemFs::new();
    let end = small_log(&fs);
    let mut reader = open(&fs).unwrap();
    assert_eq!(seqs(&mut reader).unwrap(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(reader.position().offset, end);
    assert_eq!(*reader.stop().unwrap(), StopReason::Zeros);
    assert_eq!(reader.rest().unwrap(), Remainder::default());
    fs.truncate(path(), end).unwrap();
    let mut reader = open(&fs).unwrap();
    assert_eq!(seqs(&mut reader).unwrap(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(*reader.stop().unwrap(), StopReason::EndOfFile);
}

#[test]
fn records_larger_than_the_window_are_read_and_the_window_shrinks_again() {
    let fs = MemFs::new();
    let mut writer = Writer::create(&fs);
    for (seqs, len) in [(1..2, 300_000), (2..300, 1000), (300..301, 1 << 20), (301..310, 0)] {
        let mut out = Vec::new();
        for seq in seqs {
            let start = begin(&mut out, RecordKind::Group, Seq(seq));
            out.resize(out.len() + len, seq as u8);
            end(&mut out, start).unwrap();
        }
        writer.round(out);
    }
    let mut reader = open(&fs).unwrap();
    let mut last = 0;
    while let Some(record) = reader.next().unwrap() {
        assert!(record.payload.iter().all(|byte| *byte == record.seq.0 as u8));
        assert_eq!(record.seq.0, last + 1);
        last = record.seq.0;
    }
    assert_eq!((last, reader.position().offset), (309, writer.end));
}

#[test]
fn trap_03_every_damaged_byte_leaves_a_prefix_and_later_records_show_the_loss() {
    let fs = MemFs::new();
    let end = small_log(&fs);
    let last_record = end - 48 - 40;
    let good = fs.read(path()).unwrap();
    for at in 0..end {
        for mask in [1, 0x80, 0xff] {
            fs.flip(path(), at, mask).unwrap();
            if at < LogFile::START {
                let error = open(&fs).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corruption, "byte {at}");
            } else {
                let mut reader = open(&fs).unwrap();
                let seqs = seqs(&mut reader).unwrap();
                assert!(seqs.len() < 6 && seqs.iter().zip(1..).all(|(a, b)| *a == b));
                let stop = reader.position();
                assert!(stop.offset <= at, "byte {at}");
                // The last record states that all records before it are durable.
                let beyond = durable_beyond(&mut reader, stop);
                let expected = Position { file: HEADER.number, offset: last_record };
                assert_eq!(beyond, (at < last_record).then_some(expected), "byte {at}");
                assert!(!reader.rest().unwrap().is_zero());
            }
            fs.flip(path(), at, mask).unwrap();
        }
    }
    assert_eq!(fs.read(path()).unwrap(), good);
}

#[test]
fn trap_03_zeroed_stretches_differ_from_unwritten_space() {
    let fs = MemFs::new();
    let end = small_log(&fs);
    let good = fs.read(path()).unwrap();
    for from in (LogFile::START..end).step_by(8) {
        let mut bytes = good.clone();
        let to = (from + 64).min(end) as usize;
        bytes[from as usize..to].fill(0);
        fs.write(path(), &bytes).unwrap();
        let mut reader = open(&fs).unwrap();
        let seqs = seqs(&mut reader).unwrap();
        assert!(seqs.len() < 6 && seqs.iter().zip(1..).all(|(a, b)| *a == b));
        let stop = reader.position();
        let vouched = durable_beyond(&mut reader, stop).is_some();
        assert_eq!(vouched, stop.offset < end - 88 && to as u64 <= end - 88, "from {from}");
    }
}

#[test]
fn a_log_cut_anywhere_gives_the_records_before_the_cut() {
    let fs = MemFs::new();
    let end = small_log(&fs);
    let good = fs.read(path()).unwrap();
    for len in 0..=end {
        fs.write(path(), &good[..len as usize]).unwrap();
        let Ok(mut reader) = open(&fs) else {
            assert!(len < LogFile::START);
            continue;
        };
        let expected = seqs(&mut reader).unwrap();
        assert!(reader.position().offset <= len);
        assert!(expected.iter().zip(1..).all(|(a, b)| *a == b));
        assert_eq!(expected.len() == 6, len == end);
    }
}

#[test]
fn trap_05_records_of_another_file_behind_the_end_are_not_read() {
    let fs = MemFs::new();
    let end = small_log(&fs);
    let mut stale = buffer(7..9, 5);
    let at = Position { file: HEADER.number, offset: end };
    seal(&mut stale, at, FileId(99), at);
    let mut bytes = fs.read(path()).unwrap();
    bytes[end as usize..end as usize + stale.len()].copy_from_slice(&stale);
    fs.write(path(), &bytes).unwrap();
    let mut reader = open(&fs).unwrap();
    assert_eq!(seqs(&mut reader).unwrap().len(), 6);
    let Remainder { bytes, headers, durable_up_to } = reader.rest().unwrap();
    let used = stale.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
    assert_eq!((bytes, headers, durable_up_to), (used, 0, None));
}

#[test]
fn no_record_is_returned_after_a_damaged_one() {
    let fs = MemFs::new();
    small_log(&fs);
    fs.flip(path(), LogFile::START + 50, 1).unwrap();
    let mut reader = open(&fs).unwrap();
    assert!(reader.next().unwrap().is_none() && reader.next().unwrap().is_none());
    let stop = reader.stop().unwrap();
    assert!(matches!(stop, StopReason::Bad(_)));
    assert_eq!(reader.position().offset, LogFile::START);
    assert_eq!(reader.rest().unwrap().headers, 6);
}

#[test]
fn headers_that_straddle_two_windows_are_found() {
    for shift in 0..12 {
        let fs = MemFs::new();
        let mut writer = Writer::create(&fs);
        writer.round(buffer(1..2, 0));
        // The size of this record puts the next record's header near the end of the first piece
        // that is scanned after the stop.
        writer.round(buffer(2..3, (256 << 10) - 48 - 48 - 8 * shift));
        writer.round(buffer(3..4, 0));
        fs.flip(path(), LogFile::START + 8, 1).unwrap();
        let mut reader = open(&fs).unwrap();
        assert!(reader.next().unwrap().is_none());
        let rest = reader.rest().unwrap();
        let durable_up_to = Position { file: HEADER.number, offset: writer.end - 48 };
        // The damaged header must not be counted, and each of the two valid headers must be counted
        // once.
        assert_eq!((rest.headers, rest.durable_up_to), (2, Some(durable_up_to)), "shift {shift}");
    }
}

#[test]
fn a_log_is_read_to_its_recorded_end_and_an_earlier_stop_is_reported() {
    let fs = MemFs::new();
    let end = small_log(&fs);
    let second_round = LogFile::START + 2 * (48 + 16);
    let mut reader = open(&fs).unwrap().until(second_round);
    assert_eq!(seqs(&mut reader).unwrap(), [1, 2]);
    assert_eq!(*reader.stop().unwrap(), StopReason::Accepted);
    // Wrong ends: before the first record, inside a record, after all records, and beyond any file.
    // Reading must not accept any of them.
    for wrong in [0, LogFile::START + 8, second_round - 8, end + 8, u64::MAX] {
        let mut reader = open(&fs).unwrap().until(wrong);
        assert!(seqs(&mut reader).unwrap().len() < 7);
        let stop = reader.stop().unwrap();
        assert_ne!(*stop, StopReason::Accepted, "end {wrong}");
        assert!(reader.position().offset <= wrong.max(LogFile::START));
    }
    fs.flip(path(), end - 1, 1).unwrap();
    let mut reader = open(&fs).unwrap().until(end);
    assert_eq!(seqs(&mut reader).unwrap(), [1, 2, 3, 4, 5]);
    assert_eq!(reader.position().offset, end - 88);
}

#[test]
fn trap_44_unknown_kinds_are_refused_or_skipped() {
    let fs = MemFs::new();
    let mut writer = Writer::create(&fs);
    let mut records = buffer(1..3, 0);
    records[12..14].copy_from_slice(&[99, 0]);
    writer.round(records);
    assert_eq!(seqs(&mut open(&fs).unwrap()).unwrap(), [2]);
    let mut records = buffer(3..4, 0);
    records[12] = 99;
    writer.round(records);
    let error = seqs(&mut open(&fs).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.to_string(), "000003.wal needs record kind 99 of a newer format");
}

#[test]
fn another_file_or_kind_of_file_is_corruption() {
    let fs = MemFs::new();
    small_log(&fs);
    let wrong_id = LogReader::open(&fs, path(), LogKind::Wal, Some(FileId(1))).unwrap_err();
    let wrong_kind = LogReader::open(&fs, path(), LogKind::Manifest, None).unwrap_err();
    for error in [wrong_id, wrong_kind] {
        assert_eq!(error.kind(), ErrorKind::Corruption);
    }
    let gone = LogReader::open(&fs, Path::new("000004.wal"), LogKind::Wal, None).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::Corruption);
}

#[test]
fn trap_01_trap_02_after_a_failed_write_or_sync_the_file_takes_no_more() {
    for (op, kind) in [
        (OpKind::Write, FaultKind::Eio),
        (OpKind::Write, FaultKind::Enospc),
        (OpKind::Write, FaultKind::ShortWrite),
        (OpKind::Sync, FaultKind::Eio),
        (OpKind::Allocate, FaultKind::Eio),
    ] {
        let fs = FaultFs::new(Arc::new(MemFs::new()));
        let file = LogFile::create(&fs, path(), HEADER, 4096).unwrap();
        fs.arm(Fault::new(kind).on(op));
        let step = || {
            file.allocate(8192)?;
            file.write_at(LogFile::START, &[1; 64])?;
            file.sync()
        };
        let first = step().unwrap_err();
        assert_ne!(first.kind(), ErrorKind::Poisoned, "{op}");
        for later in [file.write_at(64, &[1]), file.sync(), file.allocate(1)] {
            assert_eq!(later.unwrap_err().kind(), ErrorKind::Poisoned, "{op}");
        }
    }
}

#[test]
fn trap_27_a_full_disk_while_allocating_spoils_nothing() {
    let fs = MemFs::new();
    let mut writer = Writer::create(&fs);
    fs.set_quota(Some(8192));
    assert_eq!(writer.file.allocate(1 << 20).unwrap_err().kind(), ErrorKind::StorageFull);
    writer.round(buffer(1..2, 100));
    assert_eq!(seqs(&mut open(&fs).unwrap()).unwrap(), [1]);
}

#[test]
fn random_files_never_panic() {
    let mut rng = Rng::from_seed(3);
    let fs = MemFs::new();
    for _ in 0..300 {
        let mut bytes = HEADER.encode().to_vec();
        let noise = rng.below(2000);
        bytes.extend((0..noise).map(|_| if rng.chance(1, 2) { 0 } else { rng.below(256) as u8 }));
        fs.write(path(), &bytes).unwrap();
        let mut reader = open(&fs).unwrap();
        assert!(reader.next().unwrap().is_none());
        reader.rest().unwrap();
    }
}
