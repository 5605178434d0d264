//! Loom model of two jobs that share an input, and of a concurrent flush, in every order. No file
//! may be lost, and no row may be duplicated.
//!
//! Versions and the exchange are production code; a lock around a version replaces the manifest.
//! The engine never runs two jobs of a range at once (`MaintenanceState::claim`); this model shows
//! that nothing would be lost even then.

use loom::thread;

use super::super::plan::Reason;
use super::*;
use crate::codec::HashSeed;
use crate::format::edit::{Identity, RangeMeta, ReferenceMeta, VersionEdit};
use crate::format::file_meta::FileMeta;
use crate::format::names::{FileId, TableId};
use crate::lsm::background::new_file::Part;
use crate::sync::{Mutex, check_model};

const RANGE: RangeId = RangeId(1);

/// Returns the metadata of a file. Flushed file n holds the commits of Seq n, and an output holds
/// the commits of all its inputs.
fn file(number: u64, seqs: (u64, u64)) -> FileMeta {
    FileMeta {
        number: FileNumber(number),
        id: FileId(number),
        bytes: 1000,
        seq_min: Seq(seqs.0),
        seq_max: Seq(seqs.1),
        visible_from: Seq::ZERO,
        tombstones_applied: Seq::ZERO,
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
    let reference = ReferenceMeta {
        range: RANGE,
        file: meta.number,
        placement: Placement::Young,
        clip,
        bytes: None,
    };
    VersionEdit { add_references: vec![reference], add_files: vec![meta], ..VersionEdit::default() }
}

/// Returns a version of one range with the young files 1 to 3.
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

/// Returns a merge of two neighbouring young files into file `output`.
fn merge_of(young: [u64; 2], placement: Placement, output: u64) -> (Job, NewFile) {
    let [newer, older] = young;
    let job = Job {
        reason: Reason::Size,
        young: young.map(FileNumber).to_vec(),
        run: Vec::new(),
        placement,
        below: None,
        bytes: 2000,
    };
    let meta = file(output, (older, newer));
    let (low, high) = (meta.key_min.clone(), meta.key_max.clone());
    let parts = vec![Part { low, high, bytes: meta.bytes }];
    (job, NewFile { meta, parts, sst: None })
}

/// Returns the Seqs of all commits in the files, ascending.
fn commits(version: &Version) -> Vec<u64> {
    version.check().unwrap();
    let seqs = version.files().map(|file| file.meta.seq_min.0..=file.meta.seq_max.0);
    let mut all: Vec<u64> = seqs.flatten().collect();
    all.sort_unstable();
    all
}

fn range(version: &Version) -> Arc<FileRange> {
    Arc::clone(version.ranges.get(RANGE).unwrap())
}

/// Installs the job in the current version, as `install_tasks` does, or returns false.
fn install(current: &Mutex<Arc<Version>>, picked: &Version, job: &Job, files: &[NewFile]) -> bool {
    let mut current = current.lock();
    let task = Task { range: range(picked), job: job.clone() };
    let Some(exchanged) = exchange(&current, &[task], files, &[]) else { return false };
    let next = current.apply(&exchanged.edit).unwrap();
    *current = Arc::new(next);
    true
}

/// Two jobs were picked from the same version and have a common input. Exactly one of them must be
/// declined, and a concurrent flush must not be lost.
#[test]
fn trap_10_loom_of_two_jobs_with_a_common_input_one_declines() {
    check_model(|| {
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
