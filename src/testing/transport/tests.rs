//! The simulated transport: many seeds, a replay, and the mutants.

use super::network::{AWAY, Fault};
use super::*;

const SEEDS: u64 = 300;

/// A client of Azure Table storage repeats a request because its answer was lost. The first try
/// takes effect before or after the repeat, or not at all. A device lets rows expire, and loses
/// power while a sync carries its changes.
#[test]
fn trap_65_trap_66_results_agree_with_what_the_service_did_whatever_is_lost() {
    let explored = explore(1 << 32, SEEDS, 2, None, |_| ());
    assert_eq!(explored.failure, None);
    let missing = |name: &&str| explored.counts.get(*name).is_none_or(|count| *count == 0);
    let names = Fault::ALL.into_iter().map(Fault::name);
    let names = names.chain(["unknown outcomes", INCREMENTS, UNKNOWN_INCREMENTS]);
    let names = names.chain(["copies", "kills of copies", "errors of copies"]);
    let names = names.chain(["syncs", "comparisons", "kills of syncs", "syncs that give up", AWAY]);
    let names = names.chain(["syncs that find another one", "syncs that refuse another history"]);
    let names = names.chain(["power cuts", "restores", "repairs"]);
    let names = names.chain([sync::DELETES, sync::STAMPED, sync::SERVED, sync::OUTLIVED]);
    let names = names.chain([sync::EXPIRIES, sync::EVICTIONS, sync::IMPORTS, sync::REFUSALS]);
    assert_eq!(names.filter(missing).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_seed_replays_the_same_trace() {
    for seed in 0..20 {
        let (one, other) = (run(seed, true), run(seed, true));
        assert_eq!((one.digest, &one.trace), (other.digest, &other.trace));
        assert_eq!(run(seed, false).digest, one.digest);
    }
    assert_ne!(run(0, false).digest, run(1, false).digest);
}

/// `.ci/run` searches for a seed that detects each mutant.
#[test]
fn mutants_are_detected() {
    for name in [
        "found-is-own",
        "early-repeat",
        "repeat-404",
        "rerun-closure",
        "dropped-page",
        "saved-early",
        "position-first",
        "carried-expiry",
        "first-state",
        "late-part",
        "ignored-rival",
        "any-history",
        "lost-is-empty",
        "mirror",
        "skipped-import",
        "refusal-ends",
        "silent-refusal",
    ] {
        let mutant = MUTANTS.iter().find(|mutant| mutant.name == name).expect("in the list");
        let found = explore(0, 500, 2, Some(mutant.name), |_| ()).failure;
        assert!(found.is_some(), "{name}");
    }
}
