//! The mutants that a simulation can detect: bugs known from storage engines, each behind a switch.
//!
//! [`activate`](super::activate) activates one mutant. `tests/tidy` compares this list with the
//! switches in the code. Mutants that only a loom model can detect are not listed here but in
//! `.ci/loom`.

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// The name passed to [`activate`](super::activate).
    pub name: &'static str,
    /// The effect of the bug.
    pub what: &'static str,
    /// Events without which the bug has no effect. Writes, flushes, compactions and reads are not
    /// listed.
    pub needs: &'static str,
    /// The bug's row in the table of traps in docs/TESTING.md.
    pub trap: Option<u8>,
    /// The seed of the [device simulation](super::device) with which a search for the bug begins,
    /// because few seeds detect it. `None` if programs generated from a seed
    /// ([`explore`](super::explore)) detect the bug; the device simulation is not needed then.
    pub first_life: Option<u64>,
}

impl Mutant {
    /// Returns the same bug, marked as one that only the [device simulation](super::device)
    /// detects, with the seed `first_life` or a later one.
    #[must_use]
    pub const fn of_device(self, first_life: u64) -> Self {
        Self { first_life: Some(first_life), ..self }
    }
}

const fn entry(name: &'static str, trap: u8, needs: &'static str, what: &'static str) -> Mutant {
    Mutant { name, what, needs, trap: Some(trap), first_life: None }
}

/// Every mutant that a simulation can detect, grouped by subject.
pub const MUTANTS: &[Mutant] = &[
    // Group commit.
    entry("early-publish", 17, "kill or power cut", "a commit is published when it is queued"),
    entry("forget-failure", 1, "failing write or sync", "commits continue after a failed group"),
    entry("unsynced-log", 4, "power cut", "a durable group skips the sync of its logs"),
    entry("unsynced-old-logs", 54, "weak commits, power cut", "a group syncs the active log only"),
    entry(
        "early-durable",
        4,
        "weak commits, power cut",
        "the durable offset covers bytes that are written but not synced",
    ),
    entry(
        "unsynced-close",
        51,
        "closing, power cut",
        "the clean-close mark is durable before the log that it vouches for",
    ),
    // Recovery.
    entry("half-group", 17, "reopening", "replay applies only the first entry of a group"),
    entry(
        "replay-past-torn",
        54,
        "weak commits, power cut",
        "replay continues with the next log after a torn tail",
    ),
    entry(
        "forget-ceiling",
        18,
        "weak commits, power cut",
        "after a crash, numbers continue at the last commit found instead of the reservation",
    ),
    entry(
        "unsynced-recovery",
        54,
        "kill, then power cut",
        "replayed logs are not synced before new commits",
    ),
    entry(
        "early-log-link",
        8,
        "an opening with smaller memtables",
        "replay links a log to the first memtable with its commits instead of the last",
    ),
    entry(
        "untold-length",
        3,
        "kill, then a cut of the last log",
        "the edit that names a log states no length for it",
    ),
    // Flush and manifest.
    entry(
        "unsynced-names",
        6,
        "power cut",
        "the directory is not synced after table files are renamed",
    ),
    entry("unsynced-edit", 8, "power cut", "a version edit is installed before it is durable"),
    // Moved and replaced directories.
    entry(
        "unchecked-lock",
        58,
        "a moved or replaced directory",
        "the lock file is not compared again after it was locked",
    ),
    // Scans past deleted rows.
    entry("stale-gap", 32, "nothing", "a scan skips a row that was put into a remembered gap"),
    // Expiry under wrong clocks.
    entry(
        "unwitnessed-time",
        56,
        "clocks that begin in 1970, power cuts",
        "any clock may add the time that passed without power",
    )
    .of_device(67),
    entry(
        "forget-doubts",
        56,
        "clocks that begin in 1970, power cuts",
        "rows written before the clock was set age by their number alone",
    )
    .of_device(4),
];
