//! Flips bytes of small databases, cuts files and erases them. A ledger counts the outcomes. One of
//! four cases is tried; `FLIPS=1` tries all: each byte of each file and each length.
//!
//! After a clean close, a read returns the correct result or an error that names the file and the
//! offset. After a kill, commits from the damaged record on may also be missing, if no later record
//! states that they are durable.

use rowstone::options::IoMode;
use rowstone::sim::corruption_matrix::{Counts, FileKind, Origin, ledger_of};

use crate::{cases, say};

/// Checks that no outcome is wrong. Returns the counts of all files, and the counts of the logs.
#[track_caller]
fn check(subjects: &[(Origin, IoMode)], seed: u64) -> (Counts, Counts) {
    let share = cases("FLIPS", 4);
    let ledger = ledger_of(subjects, seed, share, &mut |_, _| {});
    say(&ledger);
    assert_eq!(ledger.faults(), 0, "{ledger}");
    // Each kind of file existed, and damage to it was detected. Only databases of the origin
    // `KilledAgain` have no table files.
    let flushed = subjects.iter().any(|(origin, _)| *origin != Origin::KilledAgain);
    let tables = flushed.then_some(FileKind::Sst);
    for kind in [FileKind::Current, FileKind::Manifest, FileKind::Wal].into_iter().chain(tables) {
        assert!(ledger.of(kind).refused * share > 100, "{}: {ledger}", kind.name());
    }
    (ledger.total(), ledger.of(FileKind::Wal))
}

#[test]
fn trap_24_every_byte_of_a_closed_database() {
    let subjects = [(Origin::Closed, IoMode::Mmap), (Origin::Compacted, IoMode::Pread)];
    let (all, _) = check(&subjects, 1);
    assert_eq!(all.torn, 0, "a clean close leaves nothing that may be lost");
}

#[test]
fn trap_03_every_byte_of_a_killed_database() {
    let (all, logs) = check(&[(Origin::Killed, IoMode::Mmap)], 2);
    // Commits may be missing only if a log was damaged, after its last durable offset.
    assert!(all.torn == logs.torn && logs.torn < logs.refused, "{all:?}");
}

#[test]
fn trap_03_trap_54_every_byte_of_several_logs() {
    let (all, logs) = check(&[(Origin::KilledAgain, IoMode::Pread)], 3);
    assert!(all.torn == logs.torn && logs.torn < logs.refused, "{all:?}");
}
