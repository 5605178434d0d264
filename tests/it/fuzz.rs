//! Runs every fuzz target over its stored corpus and some thousands of seeded mutations, within its
//! memory limit.
//!
//! `MUTATIONS=n` sets the number of mutations per decoder, and also seeds them. `REWRITE=1` adds
//! the encoders' output and the examples of FORMAT.md to the corpora.
#![expect(clippy::disallowed_methods, reason = "corpora are files of the repository")]

#[path = "../../fuzz/src/memory.rs"]
mod memory;
#[path = "../../fuzz/src/replay.rs"]
mod replay;

use std::path::Path;

use rowstone::fuzzing::{TARGETS, Target, seeds};

use crate::format::{examples, target};

const MUTATIONS: u64 = 1_000;
/// Targets that open databases. A run of one takes about a hundred times as long as a run of a
/// decoder.
const WHOLE_DATABASES: [&str; 6] = ["csv", "directory", "exec", "ndjson", "program", "rest"];

/// A target that needs a Cargo feature: its name, its function, and the function that returns its
/// seeds.
type More = (&'static str, Target, fn() -> Vec<Vec<u8>>);

#[cfg(feature = "rest")]
const MORE: &[More] = &[("rest", rowstone::fuzzing_rest::rest, rowstone::fuzzing_rest::seeds)];
#[cfg(not(feature = "rest"))]
const MORE: &[More] = &[];

fn targets() -> impl Iterator<Item = (&'static str, Target)> {
    TARGETS.iter().copied().chain(MORE.iter().map(|(name, target, _)| (*name, *target)))
}

#[test]
fn targets_survive_their_corpus_and_mutations_of_it() {
    if std::env::var_os("REWRITE").is_some() {
        store();
    }
    let all = crate::cases("MUTATIONS", MUTATIONS);
    for (name, target) in targets() {
        let mutations = if WHOLE_DATABASES.contains(&name) { all / 5 } else { all };
        let bounded = |data: &[u8]| memory::bounded(name, target, data);
        let done = replay::replay(name, bounded, all, |done| done < mutations);
        println!("{name}: {} stored inputs, {} mutations", done.stored, done.mutated);
    }
}

#[test]
fn every_target_is_replayed() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/fuzz_targets");
    let mut names: Vec<String> = std::fs::read_dir(sources)
        .unwrap()
        .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names.retain(|name| cfg!(feature = "rest") || name != "rest");
    let mut known: Vec<&str> = targets().map(|(name, _)| name).collect();
    known.sort_unstable();
    assert_eq!(names, known);
}

fn store() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let more = |wanted| MORE.iter().find(|(name, ..)| *name == wanted).map(|(.., seeds)| seeds());
    for (name, _) in targets() {
        let dir = root.join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let seeds = more(name).unwrap_or_else(|| seeds(name));
        for (number, bytes) in seeds.into_iter().enumerate() {
            std::fs::write(dir.join(format!("seed-{number}")), bytes).unwrap();
        }
        let stored = examples().into_iter().filter(|example| target(&example.name) == name);
        for (number, example) in stored.enumerate() {
            let file = format!("format-{}-{number}", example.name);
            std::fs::write(dir.join(file), example.bytes).unwrap();
        }
    }
}

#[test]
fn a_target_that_panics_is_detected() {
    fn fragile(data: &[u8]) {
        assert!(!data.starts_with(&[0xff]), "it broke");
    }
    let caught =
        std::panic::catch_unwind(|| replay::replay("key", fragile, 1, |done| done < 9_000));
    assert!(caught.is_err());
}

#[test]
fn the_program_target_detects_a_mutant() {
    let (_, target) = TARGETS.iter().find(|(name, _)| *name == "program").unwrap();
    // The first run creates the state that a target keeps between runs, while no mutant is active.
    target(b"0");
    let _active = rowstone::sim::activate("half-group");
    let replayed = || replay::replay("program", target, 1, |done| done < 50_000);
    assert!(std::panic::catch_unwind(replayed).is_err(), "the target does not detect the mutant");
}
