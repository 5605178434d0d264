//! How far something is that goes on step by step, in whichever thread comes: each step is asked for by waking it.
//!
//! Invariants
//! * it waits in a queue once, or is in one thread, or neither;
//! * a step follows each wake, and sees all that was done before that wake.
//!
//! Not here: the queue, and the threads (`worker_pool`).

use crate::sync::{AtomicUsize, Ordering};

/// One of the four below.
#[derive(Debug)]
pub(crate) struct Stage(AtomicUsize);

/// Nothing can be done until it is woken.
const IDLE: usize = 0;
/// It is in the queue.
const WAITS: usize = 1;
/// It is in a thread.
const RUNS: usize = 2;
/// It is, and was woken meanwhile.
const RUNS_AGAIN: usize = 3;

impl Stage {
    /// Of something that is put into the queue.
    pub(crate) fn new() -> Self {
        Stage(AtomicUsize::new(WAITS))
    }

    /// A step begins, of what was taken from the queue.
    pub(crate) fn begin(&self) {
        // An exchange: what was done before a wake that found it in the queue is seen from here on.
        self.0.swap(RUNS, Ordering::AcqRel);
    }

    /// The step is over; true if it was woken meanwhile, and whoever calls is to put it into the queue.
    pub(crate) fn end(&self) -> bool {
        let settled = self.0.compare_exchange(RUNS, IDLE, Ordering::AcqRel, Ordering::Relaxed);
        if settled.is_err() {
            self.0.swap(WAITS, Ordering::AcqRel);
        }
        settled.is_err()
    }

    /// It can go on; true if whoever calls is to put it into the queue.
    pub(crate) fn wake(&self) -> bool {
        let next = |stage| match stage {
            IDLE => Some(WAITS),
            RUNS => Some(RUNS_AGAIN),
            // It goes on in any case, and yet this is written: the step that follows reads it.
            stage => Some(stage),
        };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) == Ok(IDLE)
    }
}
