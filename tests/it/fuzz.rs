//! Every fuzz target over its stored corpus and some thousands of seeded mutations.

#[path = "../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn targets_survive_their_corpus_and_mutations_of_it() {
    for (name, target) in rowstone::fuzzing::TARGETS {
        let done = replay::replay(name, *target, 1, |done| done < 5_000);
        println!("{name}: {} stored inputs, {} mutations", done.stored, done.mutated);
    }
}
