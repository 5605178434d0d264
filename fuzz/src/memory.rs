//! Limits the memory that a fuzz target holds. A target that trusts a wrong length in its input
//! allocates too much, and the limit detects this even on a machine with enough memory.
//!
//! Invariants
//! * only the target's own thread and the Rust allocator are counted, not the memory of zstd;
//! * a limit depends on the target and the length of its input, not on the content of the input.
//!
//! Not here: memory leaks, which libFuzzer's leak check detects.
#![expect(
    unsafe_code,
    reason = "an allocator is unsafe to implement; this one hands on to the system's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Targets with a higher limit than [`BASE_BYTES`], because they hold more than one decoded
/// structure, for example a database.
const ROOMY: &[(&str, usize)] = &[
    ("csv", 32 << 20),
    ("directory", 32 << 20),
    ("exec", 32 << 20),
    ("ndjson", 32 << 20),
    ("program", 64 << 20),
    ("rest", 32 << 20),
    // A compressed block may declare an uncompressed size of 4 MiB, and the target decompresses it
    // twice.
    ("block", 10 << 20),
];
/// The memory that other targets may hold for an input of any length.
const BASE_BYTES: usize = 256 << 10;
/// The memory that every target may hold in addition for each byte of the input. Decoded metadata
/// of a table file take up to fifty times the bytes of their shortest encoding.
const BYTES_PER_BYTE: usize = 128;

/// Returns how many bytes the target `name` may hold at any time for an input of `len` bytes.
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

/// Adds `change` to the number of bytes that this thread holds. If one thread allocates and another
/// frees, the counts of both threads are wrong.
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
