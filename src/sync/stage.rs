//! How far something is that goes on step by step, in whichever thread comes: each step is asked for by waking it.
//!
//! Invariants
//! * it waits in a queue once, or is in one thread, or neither;
//! * a step follows each wake, and sees all that was done before that wake.
//!
//! Not here: the queue, and the threads (`rest::lanes`).

use super::{AtomicUsize, Ordering};
use crate::mutants::mutant;

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
        if mutant!("missed-wake") {
            self.0.store(IDLE, Ordering::SeqCst);
            return false;
        }
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
            _ if mutant!("lost-wake") => None,
            // It goes on in any case, and yet this is written: the step that follows reads it.
            stage => Some(stage),
        };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) == Ok(IDLE)
    }
}

#[cfg(all(test, loom))]
mod models {
    use std::sync::Arc;

    use loom::thread;

    use super::*;
    use crate::sync::{AtomicBool, Condvar, Mutex, check_model};

    /// Something that two threads wake once each, and what they did before that.
    struct Woken {
        stage: Stage,
        /// Relaxed: seen only through the orderings of the stage itself.
        done: [AtomicBool; 2],
        queue: Mutex<Queue>,
        queued: Condvar,
    }

    #[derive(Default)]
    struct Queue {
        waits: bool,
        runs: bool,
    }

    impl Woken {
        fn wake(&self, who: usize) {
            self.done[who].store(true, Ordering::Relaxed);
            if self.stage.wake() {
                self.push();
            }
        }

        fn push(&self) {
            let mut queue = self.queue.lock();
            assert!(!queue.waits && !queue.runs, "it is in one place at a time");
            queue.waits = true;
            self.queued.notify_one();
        }

        /// True if all was seen that was done.
        fn step(&self) -> bool {
            let mut queue = self.queue.lock();
            while !queue.waits {
                self.queued.wait(&mut queue);
            }
            *queue = Queue { waits: false, runs: true };
            drop(queue);
            self.stage.begin();
            let seen = self.done.each_ref().map(|done| done.load(Ordering::Relaxed));
            self.queue.lock().runs = false;
            if self.stage.end() {
                self.push();
            }
            seen == [true; 2]
        }
    }

    /// Whoever wakes it, a step follows that sees why.
    #[test]
    fn loom_a_step_follows_each_wake_and_sees_what_was_done_before_it() {
        check_model(|| {
            let queue = Mutex::new(Queue { waits: true, runs: false });
            let done = [AtomicBool::new(false), AtomicBool::new(false)];
            let woken = Woken { stage: Stage::new(), done, queue, queued: Condvar::new() };
            let woken = Arc::new(woken);
            let wakers = [0, 1].map(|who| {
                let woken = Arc::clone(&woken);
                thread::spawn(move || woken.wake(who))
            });
            while !woken.step() {}
            wakers.map(|waker| waker.join().unwrap());
        });
    }
}
