//! The scheduling state of a connection: idle, queued, or running.
//!
//! Invariants
//! * a connection is queued at most once, and never queued and running at the same time;
//! * after each wake a step runs that sees everything that happened before the wake.
//!
//! Not here: the queue and the threads (`worker_pool`).

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
    /// Creates the state of a connection that is put into the queue.
    pub(crate) fn new() -> Self {
        Stage(AtomicUsize::new(QUEUED))
    }

    /// Begins a step of a connection that was taken from the queue.
    pub(crate) fn begin(&self) {
        // A swap, not a store: it synchronizes with a wake that found the connection in the queue.
        self.0.swap(RUNNING, Ordering::AcqRel);
    }

    /// Ends the step; true if a wake arrived meanwhile and the caller has to queue the connection.
    pub(crate) fn end(&self) -> bool {
        let is_idle =
            self.0.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !is_idle {
            self.0.swap(QUEUED, Ordering::AcqRel);
        }
        !is_idle
    }

    /// Wakes the connection; true if the caller has to queue it.
    pub(crate) fn wake(&self) -> bool {
        let next = |stage| match stage {
            IDLE => Some(QUEUED),
            RUNNING => Some(WOKEN),
            _ if mutant!("lost-wake") => None,
            // The value is written although it stays the same: the next step synchronizes with this
            // write.
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

    /// A connection that two threads wake once each, with a record of what each did before its
    /// wake.
    struct Connection {
        stage: Stage,
        /// Accessed with relaxed ordering, so that only the orderings of `stage` make the values
        /// visible.
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

        /// Runs one step; true if it saw what both threads did.
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
