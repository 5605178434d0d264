//! Background work as steps: threads run them in production, a test runs them when its seed says so.
//!
//! A [`Worker`] offers lanes; a lane has at most as many steps under way as it has threads. Threads sleep until
//! [`Executor::signal`], or until the worker's next deadline, and then run steps until the lane is idle.
//!
//! All threads have the priority of the process: lowering that of one thread is not in the standard library, and takes
//! `unsafe`. What background work may take is bounded by its number of threads and its bytes a second instead.
//!
//! Not here: what the steps do (`lsm::background`).

use std::sync::Arc;
use std::time::Duration;

use crate::sync::{Condvar, Mutex};

/// A kind of background work; lanes run in parallel with one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// Logs: sync of weak commits, the next log, tickets nobody waits for.
    Log,
    /// Flush, sorting of memtable tails, removal of dead files.
    Flush,
    /// Compaction.
    Compact,
}

/// What a lane's step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Something was done; there may be more.
    Worked,
    /// Nothing to do until the next signal, or until the time has passed.
    Idle(Option<Duration>),
}

/// Owns the work; must not block for longer than one step.
pub(crate) trait Worker: Send + Sync {
    fn step(&self, lane: Lane) -> Step;
}

/// Runs a worker's lanes, by threads or not at all.
pub(crate) struct Executor {
    shared: Arc<Shared>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    stopping: bool,
    /// Bit per lane: signalled since its thread last looked.
    pending: u8,
}

impl Lane {
    pub(crate) const ALL: [Lane; 3] = [Lane::Log, Lane::Flush, Lane::Compact];

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl Executor {
    /// An executor that runs nothing: the owner calls [`Worker::step`] itself.
    pub(crate) fn manual() -> Self {
        let shared = Arc::new(Shared { state: Mutex::new(State::default()), wake: Condvar::new() });
        Self { shared, threads: Mutex::new(Vec::new()) }
    }

    /// One thread a lane, and `compactors` for compaction. The worker is held weakly, so that dropping the database ends
    /// the threads.
    pub(crate) fn start(
        &self,
        worker: &Arc<impl Worker + 'static>,
        compactors: usize,
    ) -> std::io::Result<()> {
        for lane in Lane::ALL {
            let count = if lane == Lane::Compact { compactors.max(1) } else { 1 };
            for _ in 0..count {
                let shared = Arc::clone(&self.shared);
                let worker = Arc::downgrade(worker);
                let thread = std::thread::Builder::new()
                    .name(format!("rowstone-{lane:?}").to_lowercase())
                    .spawn(move || run_lane(&shared, &worker, lane))?;
                self.threads.lock().push(thread);
            }
        }
        Ok(())
    }

    /// True if threads run the lanes.
    pub(crate) fn is_threaded(&self) -> bool {
        !self.threads.lock().is_empty()
    }

    /// There may be work in `lane`.
    pub(crate) fn signal(&self, lane: Lane) {
        let mut state = self.shared.state.lock();
        if state.pending & lane.bit() == 0 {
            state.pending |= lane.bit();
            drop(state);
            self.shared.wake.notify_all();
        }
    }

    /// True once the threads were told to end: long steps should.
    pub(crate) fn is_stopping(&self) -> bool {
        self.shared.state.lock().stopping
    }

    /// Lets running steps end, and ends the threads.
    pub(crate) fn stop(&self) {
        self.shared.state.lock().stopping = true;
        self.shared.wake.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // The last handle may be dropped by a step itself: that thread ends on its own.
            if thread.thread().id() != std::thread::current().id() {
                drop(thread.join());
            }
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run_lane(shared: &Shared, worker: &std::sync::Weak<impl Worker>, lane: Lane) {
    let mut state = shared.state.lock();
    loop {
        if state.stopping {
            return;
        }
        state.pending &= !lane.bit();
        drop(state);
        let Some(worker) = worker.upgrade() else { return };
        let step = worker.step(lane);
        drop(worker);
        state = shared.state.lock();
        let Step::Idle(deadline) = step else { continue };
        if state.stopping || state.pending & lane.bit() != 0 {
            continue;
        }
        match deadline {
            Some(wait) => {
                shared.wake.wait_for(&mut state, wait);
            }
            None => shared.wake.wait(&mut state),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::{AtomicUsize, Ordering};

    struct Counter {
        todo: AtomicUsize,
        done: Mutex<usize>,
        all: Condvar,
    }

    impl Worker for Counter {
        fn step(&self, lane: Lane) -> Step {
            let more = |n: usize| n.checked_sub(1);
            if lane != Lane::Flush
                || self.todo.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_err()
            {
                return Step::Idle(None);
            }
            *self.done.lock() += 1;
            self.all.notify_all();
            Step::Worked
        }
    }

    #[test]
    fn signalled_work_is_run_and_stop_joins() {
        let worker = Arc::new(Counter {
            todo: AtomicUsize::new(0),
            done: Mutex::new(0),
            all: Condvar::new(),
        });
        let executor = Executor::manual();
        assert!(!executor.is_threaded());
        executor.start(&worker, 2).unwrap();
        assert!(executor.is_threaded());
        assert_eq!(executor.threads.lock().len(), 4);
        for _ in 0..10 {
            worker.todo.fetch_add(5, Ordering::SeqCst);
            executor.signal(Lane::Flush);
        }
        let mut done = worker.done.lock();
        while *done < 50 {
            worker.all.wait(&mut done);
        }
        drop(done);
        executor.stop();
    }
}
