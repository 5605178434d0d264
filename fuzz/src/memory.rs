//! Counts the memory that a target holds. A target that allocates memory by a wrong length in its
//! input is thus detected even on a machine with enough memory.
//!
//! Invariants
//! * only the target's own thread and the Rust allocator are counted, not the memory of zstd;
//! * a limit depends on the length of the input, never on its content.
//!
//! Not here: memory leaks, which libFuzzer's leak check detects.
#![expect(
    unsafe_code,
    reason = "an allocator is unsafe to implement; this one hands on to the system's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Targets that hold more than one decoded structure, for example a database, with their limits.
const ROOMY: &[(&str, usize)] = &[
    ("csv", 32 << 20),
    ("directory", 32 << 20),
    ("exec", 32 << 20),
    ("ndjson", 32 << 20),
    ("program", 64 << 20),
    ("rest", 32 << 20),
    // A compressed block may declare 4 MiB, and here it is decompressed twice.
    ("block", 10 << 20),
];
/// The memory that a decoder may hold for any input.
const BASE_BYTES: usize = 256 << 10;
/// The memory that a decoder may hold in addition per input byte: a table file's metadata take up
/// to fifty times as many bytes in memory as in their shortest encoding.
const BYTES_PER_BYTE: usize = 128;

/// Returns the maximum that the target `name` may hold at a time for an input of `len` bytes.
pub fn limit(name: &str, len: usize) -> usize {
    let roomy = ROOMY.iter().find(|(roomy, _)| *roomy == name);
    roomy.map_or(BASE_BYTES, |(_, bytes)| *bytes) + len * BYTES_PER_BYTE
}

/// Runs `target` and panics if it exceeded its limit.
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

/// Adds a change of the allocated bytes. Memory that one thread allocates and another frees is
/// counted wrong in both.
fn count(change: isize) {
    // Ignores the error: a thread that is exiting no longer has counters.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: every call is forwarded unchanged. Counting neither allocates nor unwinds, because the
// counters are plain cells without destructors.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller upholds the contract of the system allocator.
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
    fn a_target_that_trusts_a_length_is_detected() {
        fn greedy(data: &[u8]) {
            let length = usize::from(data[0]) << 20;
            drop(std::hint::black_box(vec![1u8; length]));
        }
        bounded("key", greedy, &[0]);
        assert!(std::panic::catch_unwind(|| bounded("key", greedy, &[1])).is_err());
        bounded("key", greedy, &[0]);
    }
}
