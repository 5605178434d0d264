//! The mutants that the simulation of the transport detects: deliberate bugs of a client that
//! repeats requests, of a copy and of a sync, each behind a switch. `tests/tidy` compares this list
//! with the switches in the code.

/// A deliberate bug.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    /// The effect of the bug.
    pub(crate) what: &'static str,
}

const fn entry(name: &'static str, what: &'static str) -> Mutant {
    Mutant { name, what }
}

pub(crate) const MUTANTS: &[Mutant] = &[
    entry("found-is-own", "an entity found after a lost answer counts as the caller's own write"),
    entry("early-look", "a read is to prove absence before the first try must have ended"),
    entry("early-repeat", "a write without a condition is repeated while the first try may arrive"),
    entry("early-success", "a write has succeeded while its last try may still overwrite the next"),
    entry("secondary-settles", "a read of the secondary location decides about a lost answer"),
    entry("repeat-404", "a repeated delete that finds nothing counts as success"),
    entry("bare-repeat", "a repeat of a write with an ETag accepts any state"),
    entry("reused-id", "two calls have the same request id"),
    entry("sent-is-unsent", "a request without an answer counts as not sent"),
    entry("unsent-is-unknown", "the outcome of a request that was never sent is unknown"),
    entry("rerun-closure", "the closure of an update runs again after a lost answer"),
    entry("any-503", "a 503 of a gateway counts as a busy service, which has done nothing"),
    entry("split-group", "only the first operation of a group is sent"),
    entry("dropped-page", "a page with fewer entities than requested counts as the last"),
    entry("saved-early", "the position of a copy is saved before its page is written"),
    entry("bare-delete", "a copy deletes an entity of the source that was changed meanwhile"),
    entry("position-first", "a sync saves a position before the commits have arrived"),
    entry("carried-expiry", "a sync deletes at the target what has expired at the source"),
    entry("carried-drop", "a sync deletes at the target what the disk limit drops at the source"),
    entry("skipped-import", "a sync does not copy an imported range"),
    entry("lost-part", "only the first part of a split group is sent"),
    entry("refusal-ends", "a refused row ends the rest of its group"),
    entry("silent-refusal", "a sync does not record a row or table that the target refuses"),
    entry("past-barrier", "commits before and after a deleted range are joined"),
    entry("first-state", "of two states of a row in joined commits, the first one counts"),
    entry("late-part", "the commits of a partition arrive in another order"),
    entry("torn-commit", "the rows of one commit arrive in two groups"),
    entry("ignored-rival", "a sync goes on when another one has taken the position"),
    entry("old-lease", "a sync goes on after the time for which it owns the position"),
    entry("early-takeover", "a sync begins while requests of a killed one may arrive"),
    entry("any-history", "a restored source is carried although nobody asked for it"),
    entry("lost-is-empty", "changes that are no longer kept are skipped"),
    entry("unsettled-page", "a comparison sends rows that a power cut of the source may revert"),
    entry("late-position", "a comparison takes its position after it has read the rows"),
    entry("mirror", "a comparison deletes the rows that only the target has"),
    entry("unasked-drop", "a sync drops a table at the target although it may not"),
];
