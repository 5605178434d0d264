//! The scheduling state of a connection: idle, queued, or running. A connection runs in steps;
//! after a step it is idle until an event wakes it.
//!
//! Invariants
//! * a connection is queued at most once, and never queued and running at the same time;
//! * after each wake a step runs that sees everything that happened before the wake.
//!
//! `worker_pool` has the queue and the threads.

use crate::mutants::mutant;
use crate::sync::{AtomicUsize, Ordering};

/// The state of a connection: one of the four values below.
#[derive(Debug)]
pub(crate) struct Stage(AtomicUsize);

/// The connection waits for a wake.
const IDLE: usize = 0;
/// The connection is in the queue.
const QUEUED: usize = 1;
/// A thread runs a step of the connection.
const RUNNING: usize = 2;
/// A thread runs a step of the connection, and a wake has arrived since the step began.
const WOKEN: usize = 3;

impl Stage {
    /// Creates the state of a connection that the caller puts into the queue.
    pub(crate) fn new() -> Self {
        Stage(AtomicUsize::new(QUEUED))
    }

    /// Begins a step of a connection that was taken from the queue.
    pub(crate) fn begin(&self) {
        // A swap, not a store: the step must see what happened before a wake that found the
        // connection already queued.
        self.0.swap(RUNNING, Ordering::AcqRel);
    }

    /// Ends the step. Returns true if a wake arrived during the step, so that the caller has to
    /// queue the connection.
    pub(crate) fn end(&self) -> bool {
        let is_idle =
            self.0.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !is_idle {
            self.0.swap(QUEUED, Ordering::AcqRel);
        }
        !is_idle
    }

    /// Wakes the connection. Returns true if the caller has to queue it.
    pub(crate) fn wake(&self) -> bool {
        let next = |stage| match stage {
            IDLE => Some(QUEUED),
            RUNNING => Some(WOKEN),
            _ if mutant!("lost-wake") => None,
            // Write the value although it stays the same: the next step reads it, and so sees what
            // happened before this wake.
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

    /// A connection that each of two threads wakes once. Before its wake, each thread sets its flag
    /// in `done`.
    struct Connection {
        stage: Stage,
        /// Written and read with relaxed ordering, so that only the orderings in `stage` can make
        /// the flags visible to a step.
        done: [AtomicBool; 2],
        queue: Mutex<Queue>,
        queued: Condvar,
    }

    #[derive(Default)]
    struct Queue {
        waits: bool,
        runs: bool,
    }

    impl Connection {
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

        /// Runs one step. Returns true if it saw the flags of both threads.
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

    #[test]
    fn loom_a_step_follows_each_wake_and_sees_all_earlier_writes() {
        check_model(|| {
            let queue = Mutex::new(Queue { waits: true, runs: false });
            let done = [AtomicBool::new(false), AtomicBool::new(false)];
            let connection =
                Connection { stage: Stage::new(), done, queue, queued: Condvar::new() };
            let connection = Arc::new(connection);
            let wakers = [0, 1].map(|who| {
                let connection = Arc::clone(&connection);
                thread::spawn(move || connection.wake(who))
            });
            while !connection.step() {}
            wakers.map(|waker| waker.join().unwrap());
        });
    }
}
