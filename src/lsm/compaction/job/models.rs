//! Two jobs with a common input and a flush, in every order: no file is lost and no row is there twice.
//!
//! Versions and the exchange are the engine's; the lock and the version in it stand for the manifest.

use loom::thread;

use super::super::picker::Action;
use super::*;
use crate::codec::HashSeed;
use crate::format::edit::{Identity, RangeMeta};
use crate::format::file_meta::FileMeta;
use crate::format::names::{FileId, TableId};
use crate::model::Seq;
use crate::sync::{Mutex, check_model};

const RANGE: RangeId = RangeId(1);

/// Flushed file n holds the commits of one Seq, n; an output holds those of its inputs.
fn file(number: u64, seqs: (u64, u64)) -> FileMeta {
    FileMeta {
        number: FileNumber(number),
        id: FileId(number),
        bytes: 1000,
        seq_min: Seq(seqs.0),
        seq_max: Seq(seqs.1),
        visible_from: Seq::ZERO,
        entries: 1,
        tombstones: 0,
        raw_bytes: 1000,
        key_min: b"b".as_slice().into(),
        key_max: b"c".as_slice().into(),
        sections: Vec::new(),
        unknown: Box::default(),
    }
}

fn flushed(number: u64) -> VersionEdit {
    let meta = file(number, (number, number));
    let clip = Span::inclusive(&meta.key_min, &meta.key_max);
    let reference =
        ReferenceMeta { range: RANGE, file: meta.number, placement: Placement::Young, clip };
    VersionEdit { add_references: vec![reference], add_files: vec![meta], ..VersionEdit::default() }
}

/// One range with files 1 to 3, all young.
fn start() -> Arc<Version> {
    let range = RangeMeta { id: RANGE, table: TableId(1), span: Span::new(b"a", Some(b"z")) };
    let identity = Identity {
        database: 1,
        incarnation: 2,
        seed: HashSeed(3),
        read_features: Vec::new(),
        write_features: Vec::new(),
        ignorable_features: Vec::new(),
    };
    let first = VersionEdit {
        identity: Some(identity),
        numbers_below: Some(FileNumber(64)),
        add_ranges: vec![range],
        ..VersionEdit::default()
    };
    let empty = Version::default().apply(&first).unwrap();
    let full = (1..=3).fold(empty, |version, n| version.apply(&flushed(n)).unwrap());
    Arc::new(full)
}

/// Merges two neighbours into file `output`.
fn merge_of(young: [u64; 2], placement: Placement, output: u64) -> (Job, NewFile) {
    let [newer, older] = young;
    let job = Job {
        range: RANGE,
        action: Action::Merge,
        young: young.map(FileNumber).to_vec(),
        run: Vec::new(),
        placement,
        drops_tombstones: false,
        bytes: 2000,
        forced: false,
    };
    (job, NewFile { meta: file(output, (older, newer)), tables: vec![TableId(1)] })
}

/// Which commits the files hold together, ascending.
fn commits(version: &Version) -> Vec<u64> {
    version.check().unwrap();
    let seqs = version.files().map(|file| file.meta.seq_min.0..=file.meta.seq_max.0);
    let mut all: Vec<u64> = seqs.flatten().collect();
    all.sort_unstable();
    all
}

/// Puts a job into the current version, or declines; the second version is the one it was picked from.
type Install = fn(&Mutex<Arc<Version>>, &Version, &Job, &[NewFile]) -> bool;

/// Both jobs are picked from the version at the start.
#[track_caller]
fn check_race(install: Install) {
    check_model(move || {
        let start = start();
        let current = Arc::new(Mutex::new(Arc::clone(&start)));
        let jobs = [merge_of([3, 2], Placement::Young, 10), merge_of([2, 1], Placement::Run, 11)];
        let racing = jobs.map(|(job, output)| {
            let (current, start) = (Arc::clone(&current), Arc::clone(&start));
            thread::spawn(move || install(&current, &start, &job, &[output]))
        });
        {
            let mut current = current.lock();
            let next = current.apply(&flushed(4)).unwrap();
            *current = Arc::new(next);
        }
        let seen = Arc::clone(&current.lock());
        assert_eq!(commits(&seen), [1, 2, 3, 4], "what was flushed stays");
        let installed = racing.map(|thread| thread.join().unwrap());
        assert_eq!(commits(&current.lock()), [1, 2, 3, 4], "what was flushed stays");
        assert_eq!(installed.iter().filter(|done| **done).count(), 1, "one of them declines");
    });
}

fn range(version: &Version) -> &FileRange {
    version.ranges().get(RANGE).unwrap()
}

#[test]
fn trap_10_loom_of_two_jobs_with_a_common_input_one_declines() {
    check_race(|current, picked, job, files| {
        let mut current = current.lock();
        match exchange(&current, range(picked), job, files) {
            Some((edit, _)) => {
                let next = current.apply(&edit).unwrap();
                *current = Arc::new(next);
                true
            }
            None => false,
        }
    });
}

#[test]
#[should_panic(expected = "what was flushed stays")]
fn trap_10_loom_installing_on_the_version_it_was_picked_from_loses_files() {
    check_race(|current, picked, job, files| {
        let edit = exchange(picked, range(picked), job, files).map(|(edit, _)| edit);
        let next = picked.apply(&edit.unwrap()).unwrap();
        *current.lock() = Arc::new(next);
        true
    });
}
