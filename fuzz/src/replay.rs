//! Runs a fuzz target on its stored corpus, first unchanged and then mutated, on stable Rust.
//!
//! The mutations are seeded. A failure prints the target, the seed and the bytes in hex.
#![expect(clippy::disallowed_methods, reason = "reads the corpus, which no seam covers")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

/// The number of inputs on which a target ran: stored ones, and mutated ones.
pub struct Replayed {
    pub stored: u64,
    pub mutated: u64,
}

/// Runs `target` on the corpus of `name`, then on inputs mutated from it with `seed`. Before each
/// mutated input, `more` gets the number of mutated inputs so far; the replay ends when it returns
/// false. The target must neither panic nor loop forever on any input.
pub fn replay(
    name: &str,
    target: impl Fn(&[u8]),
    seed: u64,
    more: impl Fn(u64) -> bool,
) -> Replayed {
    let corpus = corpus(name);
    assert!(!corpus.is_empty(), "fuzz/corpus/{name} is empty");
    for input in &corpus {
        run_one(name, &target, seed, input);
    }
    let mut rng = Rng(seed);
    let mut mutated = 0;
    while more(mutated) {
        let input = mutate(&mut rng, &corpus);
        run_one(name, &target, seed, &input);
        mutated += 1;
    }
    Replayed { stored: corpus.len() as u64, mutated }
}

fn run_one(name: &str, target: impl Fn(&[u8]), seed: u64, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        eprintln!("target {name}, seed {seed}: {hex}");
        resume_unwind(panic);
    }
}

/// Returns the inputs in `fuzz/corpus/<name>`, by file name.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    // This file is compiled both into the fuzz package and into the library's tests.
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let local = root.join("corpus");
    let root = if local.is_dir() { root.to_owned() } else { root.join("fuzz") };
    let Ok(entries) = std::fs::read_dir(root.join("corpus").join(name)) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Returns one stored input with a few bytes flipped, set, inserted, removed, cut off, copied or
/// spliced in.
fn mutate(rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut input = corpus[rng.below(corpus.len())].clone();
    for _ in 0..=rng.below(4) {
        let at = rng.below(input.len() + 1);
        match rng.below(8) {
            0 if at < input.len() => input[at] ^= 1 << rng.below(8),
            1 if at < input.len() => input[at] = *rng.pick(&[0, 1, 0x7f, 0x80, 0xfe, 0xff]),
            2 if at < input.len() => input[at] = rng.below(256) as u8,
            3 => input.insert(at, rng.below(256) as u8),
            4 => drop(input.drain(at..input.len().min(at + 1 + rng.below(8)))),
            5 => input.truncate(at),
            // Copies bytes to another position. Values that must differ may then be equal.
            6 => {
                let len = rng.below(8).min(input.len() - at);
                let to = rng.below(input.len() - len + 1);
                input.copy_within(at..at + len, to);
            }
            _ => {
                let other = &corpus[rng.below(corpus.len())];
                let from = rng.below(other.len() + 1);
                let to = other.len().min(from + rng.below(32));
                input.splice(at..at, other[from..to].iter().copied());
            }
        }
    }
    input
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}
