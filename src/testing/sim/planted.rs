//! The planted bugs: mistakes that engines have made, each behind a switch on the path where it was made.
//!
//! [`plant`](super::plant) turns one on. `tests/tidy.rs` holds this list against the switches in the code.
//!
//! Not here: the switches' mechanism (`crate::planted`), bugs that only a loom model can show (beside the models).

/// A mistake that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bug {
    /// What [`plant`](super::plant) calls it.
    pub name: &'static str,
    /// What goes wrong.
    pub what: &'static str,
    /// What must happen, besides writes, flushes, compactions and reads, before anybody can notice.
    pub needs: &'static str,
    /// Its row in the table of traps in docs/TESTING.md.
    pub trap: Option<u8>,
    /// Random programs do not get there: lives of devices do.
    pub is_of_device: bool,
}

impl Bug {
    /// The same mistake, to be looked for in [lives of devices](super::device).
    #[must_use]
    pub const fn of_device(self) -> Self {
        Self { is_of_device: true, ..self }
    }
}

const fn bug(name: &'static str, trap: u8, needs: &'static str, what: &'static str) -> Bug {
    let trap = if trap == 0 { None } else { Some(trap) };
    Bug { name, what, needs, trap, is_of_device: false }
}

/// Every bug that a simulation can notice, by the place where it sits.
pub const BUGS: &[Bug] = &[
    // Commits and rounds.
    bug(
        "publish-before-durable",
        17,
        "kill or power cut",
        "a commit is published when it is queued",
    ),
    bug(
        "forget-failed-round",
        1,
        "failing write or sync",
        "a failed round is followed by others as if nothing was",
    ),
    bug("skip-log-sync", 4, "power cut", "a round that should sync its logs does not"),
    bug("older-logs-unsynced", 54, "weak commits, power cut", "a round syncs the active log only"),
    bug(
        "promise-unsynced-bytes",
        4,
        "weak commits, power cut",
        "a record vouches for bytes that were written and not synced",
    ),
    bug(
        "delay-without-end",
        4,
        "weak commits that wait for company, power cut",
        "commits that may wait for company are not synced when their time is over",
    ),
    bug(
        "ignore-ceiling",
        18,
        "weak commits, power cut",
        "a weak commit takes a number above the durable ceiling",
    ),
    bug(
        "ceiling-goes-with-its-log",
        18,
        "weak commits, power cut",
        "a flush removes the only log that names the ceiling",
    ),
    bug(
        "check-memtables-only",
        19,
        "nothing",
        "a condition is checked against the memtables and no file",
    ),
    bug(
        "merge-loses-flushed-row",
        0,
        "nothing",
        "a merge into a row that only files hold forgets the old properties",
    ),
    bug("tombstone-exists", 0, "nothing", "a condition takes a tombstone for a row"),
    bug("older-tag-passes", 0, "nothing", "a condition on a tag passes if the row is newer"),
    bug(
        "shapes-of-another-log",
        0,
        "reopening",
        "a log uses shapes that only its predecessor defines",
    ),
    bug("weak-drop", 9, "dropped table, power cut", "a drop is carried out before it is durable"),
    bug(
        "close-before-sync",
        51,
        "closing, power cut",
        "the mark of a clean close is durable before what it vouches for",
    ),
    bug(
        "close-trims-its-record",
        51,
        "closing",
        "what a close gives back of the log's room begins inside its last record",
    ),
    // Recovery.
    bug("half-group-at-replay", 17, "reopening", "replay applies the first entry of a group only"),
    bug("trust-torn-tail", 24, "power cut", "a record with a wrong payload checksum is believed"),
    bug(
        "replay-behind-torn-log",
        54,
        "weak commits, power cut",
        "replay goes on in the next log behind a torn tail",
    ),
    bug(
        "ignore-promises",
        3,
        "bit rot in a log",
        "damage in the middle of a log is taken for a torn tail",
    ),
    bug(
        "forget-ceiling",
        18,
        "weak commits, power cut",
        "after a crash numbers go on above the last commit found",
    ),
    bug(
        "forget-drop-at-replay",
        9,
        "dropped table, reopening, verify",
        "replay does not note that a table was dropped",
    ),
    bug(
        "recovered-log-unsynced",
        54,
        "kill, then power cut",
        "what was replayed is not synced before new commits",
    ),
    bug(
        "recovered-log-not-rewritten",
        2,
        "failing sync, kill, power cut",
        "what a failed sync left in memory is synced without being written again",
    ),
    bug(
        "orphans-stay",
        52,
        "kill or power cut, count of files",
        "opening leaves files that nothing names",
    ),
    bug(
        "reuse-table-id",
        9,
        "dropped table, reopening, new table",
        "a table gets the id of one that was dropped",
    ),
    // Names and syncs.
    bug(
        "retry-failed-sync",
        2,
        "failing sync, kill or power cut",
        "a failed sync is tried again and believed",
    ),
    bug("short-write-is-whole", 1, "short write", "the rest of a short write is not written"),
    bug("log-name-unsynced", 6, "power cut", "the directory is not synced after a log was created"),
    bug(
        "sst-name-unsynced",
        6,
        "power cut",
        "the directory is not synced after table files were renamed",
    ),
    bug(
        "ignore-failed-dir-sync",
        48,
        "failing directory sync, power cut",
        "a failed sync of the directory is ignored",
    ),
    bug("sst-unsynced", 7, "power cut", "the manifest names a table file that was not synced"),
    bug("edit-unsynced", 8, "power cut", "a version edit is carried out before it is durable"),
    // Flush and compaction.
    bug(
        "log-goes-before-edit",
        8,
        "kill, power cut or failure within a flush",
        "a flush removes logs before the edit that replaces them",
    ),
    bug(
        "flushed-seq-too-high",
        8,
        "reopening",
        "a flush says that commits of younger memtables are in files",
    ),
    bug(
        "failed-flush-drops-memtable",
        26,
        "failing flush",
        "a memtable goes although its flush failed",
    ),
    bug(
        "flush-drops-tombstones",
        14,
        "nothing",
        "a flush drops tombstones of rows that older files hold",
    ),
    bug(
        "flush-places-first-part",
        20,
        "several ranges",
        "a flush names a file to the first of the ranges that it has rows of",
    ),
    bug(
        "split-forgets-young",
        20,
        "several ranges",
        "the upper half of a divided range has no young files",
    ),
    bug(
        "drop-unseen-tombstone",
        14,
        "snapshot",
        "a tombstone goes although a snapshot keeps an older version",
    ),
    bug(
        "snapshot-off-by-one",
        15,
        "snapshot",
        "the version written last before a snapshot is dropped",
    ),
    bug(
        "horizon-of-newest-snapshot",
        15,
        "several snapshots",
        "jobs keep what the newest snapshot needs only",
    ),
    bug(
        "drop-ignores-snapshots",
        16,
        "dropped table, snapshot",
        "a dropped table's rows go although a snapshot reads them",
    ),
    bug(
        "merge-leaves-run-files",
        12,
        "nothing",
        "a merge into the run leaves out the files of the run that it overlaps",
    ),
    bug(
        "reuse-file-numbers",
        36,
        "reads without maps",
        "a new table file gets the number of one that was removed, and its cached blocks",
    ),
    bug("merged-files-stay", 52, "count of files", "the inputs of a merge are not removed"),
    // Reads.
    bug(
        "frozen-memtables-oldest-first",
        12,
        "nothing",
        "a read looks into the oldest frozen memtable first",
    ),
    bug("run-before-young-files", 12, "nothing", "a read looks into the run before younger files"),
    bug("scan-ignores-snapshot", 15, "snapshot", "a scan at a snapshot reads what is newest"),
    bug(
        "swallow-iterator-error",
        25,
        "failing read or bit rot",
        "an error ends a scan or a merge as if nothing followed",
    ),
    bug(
        "zone-nan-as-number",
        40,
        "filters with not over Doubles",
        "a zone takes NaN for the greatest of numbers",
    ),
    bug(
        "zone-ignores-older-versions",
        40,
        "filters, snapshot",
        "a zone knows the newest version of each key only",
    ),
    bug(
        "zone-cut-maximum-closed",
        40,
        "filters over long texts",
        "a bound that was cut is compared as if it was the value",
    ),
    bug(
        "skip-beside-older",
        53,
        "filters",
        "a block is passed over although an older source has a row that it hides",
    ),
    bug(
        "skip-goes-on",
        53,
        "filters, snapshot",
        "a block is passed over although the next one has older versions of its last key",
    ),
    bug(
        "count-beside-newer",
        40,
        "counts",
        "a block is counted unread although a newer source has a key inside it",
    ),
    bug(
        "batch-forgets-decided",
        53,
        "filters, snapshot",
        "what a block decided about its last key is forgotten in the next block",
    ),
    bug("plan-drops-last-interval", 0, "filters over keys", "a plan lacks its last interval"),
    bug(
        "eval-missing-as-mismatch",
        0,
        "filters",
        "an absent property counts as one of another type",
    ),
    bug("eval-texts-by-bytes", 21, "filters over texts", "texts are compared by their bytes"),
    bug(
        "reverse-skips-behind-shared-key",
        0,
        "queries in reverse",
        "a key before one that two sources hold is skipped",
    ),
    bug(
        "filtered-page-skips-a-row",
        22,
        "filters, pages",
        "a token of a query with a filter leads behind the next row",
    ),
    bug("page-skips-a-row", 22, "nothing", "a token leads behind the next row"),
    bug("scan-end-inclusive", 20, "nothing", "an exclusive end of a span counts as inclusive"),
    bug(
        "skip-damaged-block",
        28,
        "bit rot in a table file, compaction",
        "a merge passes over a block that it cannot read",
    ),
    bug("heal-unchecked", 24, "bit rot in two copies", "a copy from a backup is not checked"),
    bug(
        "repair-trusts-gaps",
        53,
        "bit rot in a table file, repair",
        "a repair takes what lies under a lost block for the newest",
    ),
    bug("block-unchecked", 24, "bit rot in a table file", "a block that is read is not checked"),
    bug(
        "short-cache-key",
        36,
        "reads without maps",
        "blocks of two files share a place in the cache",
    ),
    bug(
        "known-where-it-is-older",
        0,
        "compressed files, snapshot",
        "of a compressed block older versions are put down as where their keys are",
    ),
    // Gaps.
    bug("gap-survives-a-put", 32, "nothing", "a scan passes over what was put into a gap"),
    bug(
        "gap-unchecked",
        32,
        "overlapping reads",
        "a gap is taken over though a row was put into it after the read",
    ),
    bug("gap-ignores-snapshots", 32, "snapshot", "a scan at a snapshot uses a gap that came later"),
    bug("gap-survives-an-import", 32, "moved span", "a scan passes over what came in as files"),
    // Fences.
    bug("point-ignores-fences", 16, "dropped span", "a point read finds what a fence hides"),
    bug("scan-ignores-fences", 16, "dropped span", "a scan shows what fences hide"),
    bug(
        "batch-ignores-fences",
        16,
        "dropped span, filters",
        "a block is filtered at once though a fence hides some of it",
    ),
    bug(
        "count-ignores-fences",
        16,
        "dropped span, filters",
        "a block is counted unread though a fence hides some of it",
    ),
    bug(
        "condition-ignores-fences",
        16,
        "dropped span",
        "a condition is checked against a row that a fence hides",
    ),
    bug(
        "refusal-ignores-fences",
        16,
        "dropped span",
        "an insert is refused, before its row is made, because of an entity that a fence hides",
    ),
    bug(
        "snapshot-sees-fences",
        16,
        "dropped span, snapshots",
        "a scan at a snapshot misses what was dropped after it",
    ),
    bug(
        "fence-ignores-snapshots",
        16,
        "dropped span, snapshots",
        "a job leaves out what a fence hides, though a snapshot sees it",
    ),
    bug(
        "fence-drops-newer-files",
        16,
        "dropped span",
        "a file goes that a fence covers, though what it holds is newer",
    ),
    bug(
        "fence-leaves-early",
        16,
        "dropped span",
        "a fence leaves while a memtable holds what it hides",
    ),
    bug("flush-forgets-fences", 16, "dropped span, reopening", "a flush does not name new fences"),
    bug(
        "forget-fence-at-replay",
        16,
        "dropped span, reopening",
        "a fence in the log is not replayed",
    ),
    // Gates.
    bug("gate-lets-writes-pass", 0, "closed span", "a write gets into a closed span"),
    bug(
        "offline-lets-reads-pass",
        0,
        "closed span",
        "a read of a span that is offline is answered",
    ),
    bug("lifted-gate-holds", 0, "closed span", "a gate that was opened goes on holding back"),
    bug(
        "gate-forgotten-at-reopening",
        0,
        "closed span, reopening",
        "a gate holds nothing back once the database was opened anew",
    ),
    // Moves.
    bug(
        "import-shows-to-snapshots",
        0,
        "moved span, snapshots",
        "what is imported shows to snapshots from before",
    ),
    // Targets.
    bug("throttle-never-refills", 0, "targets", "what is used up is not given back with time"),
    bug("throttle-counts-a-group-once", 0, "targets", "a group costs as much as one entity"),
    // The limit on disk use.
    bug("cap-counts-too-little", 0, "limit on disk use", "what logs grow by is not counted"),
    bug("cap-keeps-counting", 0, "limit on disk use", "files that are gone are counted"),
    bug(
        "drop-touches-other-table",
        0,
        "limit on disk use, tables that give their oldest rows",
        "old rows of other tables go, too",
    ),
    bug(
        "dropped-row-returns",
        0,
        "limit on disk use, tables that give their oldest rows",
        "what went to make room is there again where its file had to stay",
    ),
    bug(
        "drop-takes-the-newest",
        0,
        "limit on disk use, tables that give their oldest rows",
        "what was written last goes with what is old",
    ),
    bug("throttle-books-refusals", 0, "targets", "what is refused counts as if it had passed"),
    bug(
        "checkpoint-without-memtables",
        0,
        "checkpoint",
        "a checkpoint lacks what is only in memory",
    ),
    bug(
        "copy-keeps-incarnation",
        0,
        "checkpoint",
        "a copy pretends to be the database that it was copied from",
    ),
    bug(
        "generation-unsynced",
        7,
        "backup, power cut",
        "a generation names files whose names are not durable",
    ),
    // The wear account.
    bug("account-begins-anew", 0, "reopening", "what was written before an opening is forgotten"),
    bug(
        "account-without-logs",
        0,
        "kill",
        "what logs hold that no edit has told of is not in the account",
    ),
    // Other readers.
    bug(
        "follower-shows-unsynced",
        33,
        "weak commits, a reader beside",
        "a reader shows what the log holds, whether anybody vouches for it or not",
    ),
    bug(
        "feed-over-a-gap",
        0,
        "a consumer of the feed that comes late",
        "the feed begins with the oldest log there is, though others before it are gone",
    ),
    bug(
        "feed-forgets-imports",
        0,
        "a range that is moved, a consumer of the feed",
        "rows that came in as files are not in the feed",
    ),
    bug(
        "archive-unsynced",
        0,
        "archive step, power cut",
        "what is archived is deleted before its copy is durable",
    ),
    // Retention by a clock that is wrong.
    bug(
        "off-time-without-witness",
        56,
        "clocks that begin in 1970, power cuts",
        "time without power is made up by any clock",
    )
    .of_device(),
    bug(
        "forget-doubts",
        56,
        "clocks that begin in 1970, power cuts",
        "what was written before the clock was set looks as old as its number",
    )
    .of_device(),
];
