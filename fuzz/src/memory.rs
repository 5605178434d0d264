//! Counts what a target holds in memory, so that a length that lies is found even where the machine would give in.
//!
//! Invariants
//! * counted is what the target's own thread asked the allocator of Rust for; zstd's own memory is not;
//! * a limit is made of the length of the input, never of what the input says.
//!
//! Not here: memory that is never given back, which libFuzzer's leak check looks for.
#![expect(
    unsafe_code,
    reason = "an allocator is unsafe to implement; this one hands on to the system's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Targets that hold a database, a table or programs rather than one structure, and what they may take.
const ROOMY: &[(&str, usize)] = &[
    ("csv", 32 << 20),
    ("directory", 32 << 20),
    ("exec", 32 << 20),
    ("ndjson", 32 << 20),
    ("program", 64 << 20),
    ("rest", 32 << 20),
    // A compressed block may say that it holds 4 MiB, and does so twice here.
    ("block", 10 << 20),
];
/// What a decoder may take whatever the input.
const BASE_BYTES: usize = 256 << 10;
/// And for each byte of it: the smallest encoding of a file entry has a fiftieth of its size in memory.
const BYTES_PER_BYTE: usize = 128;

/// The most that the target `name` may hold at once for an input of `len` bytes.
pub fn limit(name: &str, len: usize) -> usize {
    let roomy = ROOMY.iter().find(|(roomy, _)| *roomy == name);
    roomy.map_or(BASE_BYTES, |(_, bytes)| *bytes) + len * BYTES_PER_BYTE
}

/// Runs `target` and panics if it held more than it may.
pub fn bounded(name: &str, target: fn(&[u8]), data: &[u8]) {
    HELD.set(0);
    MOST.set(0);
    target(data);
    let (most, limit) = (MOST.get(), limit(name, data.len()));
    assert!(most <= limit as isize, "{name} held {most} bytes for {}, not {limit}", data.len());
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// Counts a change; what one thread allocates and another frees counts for neither of the two right.
fn count(change: isize) {
    // A thread that ends has no counters any more.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: every call is handed on as it came, and counting neither allocates nor unwinds: the counters are
// plain cells without destructors.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_believes_a_length_is_noticed() {
        fn greedy(data: &[u8]) {
            let length = usize::from(data[0]) << 20;
            drop(std::hint::black_box(vec![1u8; length]));
        }
        bounded("key", greedy, &[0]);
        assert!(std::panic::catch_unwind(|| bounded("key", greedy, &[1])).is_err());
        bounded("key", greedy, &[0]);
    }
}
