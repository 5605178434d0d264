//! Damage: every byte of small databases flipped, every file cut at every length and erased; the ledger says
//! what each came to.
//!
//! After a clean close the answer is right, or an error that names the file and the place. After a kill,
//! moreover, commits that no later record vouches for may be missing: those from the damaged record on.

use rowstone::IoMode;
use rowstone::sim::corruption_matrix::{Counts, FileKind, Origin, ledger_of};

use crate::say;

/// Nothing is wrong; the counts of all, and of the logs.
#[track_caller]
fn check(subjects: &[(Origin, IoMode)], seed: u64) -> (Counts, Counts) {
    let ledger = ledger_of(subjects, seed, &mut |_, _| {});
    say(&ledger);
    assert_eq!(ledger.faults(), 0, "{ledger}");
    // Each kind of file was there, and damage to it was noticed; what was only killed has no tables yet.
    let flushed = subjects.iter().any(|(origin, _)| *origin != Origin::KilledAgain);
    let tables = flushed.then_some(FileKind::Sst);
    for kind in [FileKind::Current, FileKind::Manifest, FileKind::Wal].into_iter().chain(tables) {
        assert!(ledger.of(kind).refused > 100, "{}: {ledger}", kind.name());
    }
    (ledger.total(), ledger.of(FileKind::Wal))
}

#[test]
fn trap_24_every_byte_of_a_closed_database() {
    let subjects = [(Origin::Closed, IoMode::Mmap), (Origin::Compacted, IoMode::Pread)];
    let (all, _) = check(&subjects, 1);
    assert_eq!(all.torn, 0, "a clean close leaves nothing that may go");
}

#[test]
fn trap_03_every_byte_of_a_killed_database() {
    let (all, logs) = check(&[(Origin::Killed, IoMode::Mmap)], 2);
    // Only of a log, and only what is behind the last promise.
    assert!(all.torn == logs.torn && logs.torn < logs.refused, "{all:?}");
}

#[test]
fn trap_03_trap_54_every_byte_of_several_logs() {
    let (all, logs) = check(&[(Origin::KilledAgain, IoMode::Pread)], 3);
    assert!(all.torn == logs.torn && logs.torn < logs.refused, "{all:?}");
}
