//! Background work as steps: threads run them in production, a test runs them when its seed says so.
//!
//! A [`Worker`] offers lanes; a lane has at most as many steps under way as it has threads. Threads sleep until
//! [`Executor::signal`], or until the worker's next deadline, and then run steps until the lane is idle. A lane has no
//! threads before its first signal: who opens a database to read a little pays for none.
//!
//! All threads have the priority of the process: lowering that of one thread is not in the standard library, and takes
//! `unsafe`. What background work may take is bounded by its number of threads and its bytes a second instead.
//!
//! Not here: what the steps do (`lsm::background`).

use std::io;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
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
    threads: Mutex<Threads>,
}

#[derive(Default)]
struct Threads {
    /// Starts one for a lane, and how many compaction has; `None`: there are to be none.
    start: Option<(Start, usize)>,
    running: Vec<JoinHandle<()>>,
}

type Start = Box<dyn Fn(Lane) -> io::Result<JoinHandle<()>> + Send>;

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    stopping: bool,
    /// Bit per lane: signalled since its thread last looked.
    pending: u8,
    /// Bit per lane: it has its threads.
    started: u8,
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
        Self { shared, threads: Mutex::new(Threads::default()) }
    }

    /// From now on a lane that is signalled gets one thread, and compaction `compactors`. The worker is held weakly, so
    /// that dropping the database ends the threads.
    pub(crate) fn serve(&self, worker: &Arc<impl Worker + 'static>, compactors: usize) {
        let (shared, worker) = (Arc::clone(&self.shared), Arc::downgrade(worker));
        let start = move |lane| {
            let (shared, worker) = (Arc::clone(&shared), Weak::clone(&worker));
            std::thread::Builder::new()
                .name(format!("rowstone-{lane:?}").to_lowercase())
                .spawn(move || run_lane(&shared, &worker, lane))
        };
        self.threads.lock().start = Some((Box::new(start), compactors.max(1)));
    }

    /// True if threads run the lanes, or will.
    pub(crate) fn is_threaded(&self) -> bool {
        self.threads.lock().start.is_some()
    }

    /// There may be work in `lane`. False if no thread runs it: the caller may have to.
    pub(crate) fn signal(&self, lane: Lane) -> bool {
        let mut state = self.shared.state.lock();
        if state.stopping {
            return false;
        }
        let is_news = state.pending & lane.bit() == 0;
        state.pending |= lane.bit();
        if state.started & lane.bit() == 0 {
            drop(state);
            return self.start(lane).is_ok_and(|started| started);
        }
        drop(state);
        if is_news {
            self.shared.wake.notify_all();
        }
        true
    }

    /// Sees to it that `lane` has its threads; false if there are to be none, or none any more.
    ///
    /// # Errors
    /// The system has no thread to give. The next signal tries again.
    pub(crate) fn start(&self, lane: Lane) -> io::Result<bool> {
        let mut threads = self.threads.lock();
        let Threads { start: Some((start, compactors)), running } = &mut *threads else {
            return Ok(false);
        };
        if self.shared.state.lock().started & lane.bit() != 0 {
            return Ok(true);
        }
        running.push(start(lane)?);
        self.shared.state.lock().started |= lane.bit();
        // One is enough to go on with.
        let others = if lane == Lane::Compact { *compactors - 1 } else { 0 };
        running.extend((0..others).map_while(|_| start(lane).ok()));
        Ok(true)
    }

    /// True once the threads were told to end: long steps should.
    pub(crate) fn is_stopping(&self) -> bool {
        self.shared.state.lock().stopping
    }

    /// Lets running steps end, and ends the threads.
    pub(crate) fn stop(&self) {
        self.shared.state.lock().stopping = true;
        self.shared.wake.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock()).running;
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

fn run_lane(shared: &Shared, worker: &Weak<impl Worker>, lane: Lane) {
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
        assert!(!executor.signal(Lane::Compact));
        executor.serve(&worker, 2);
        assert!(executor.is_threaded());
        assert!(executor.threads.lock().running.is_empty());
        assert!(executor.signal(Lane::Compact));
        assert_eq!(executor.threads.lock().running.len(), 2);
        for _ in 0..10 {
            worker.todo.fetch_add(5, Ordering::SeqCst);
            assert!(executor.signal(Lane::Flush));
        }
        assert_eq!(executor.threads.lock().running.len(), 3);
        let mut done = worker.done.lock();
        while *done < 50 {
            worker.all.wait(&mut done);
        }
        drop(done);
        executor.stop();
        assert!(!executor.signal(Lane::Log), "no thread starts behind the end");
    }

    #[test]
    fn a_lane_whose_thread_cannot_start_is_tried_again() {
        let worker = Arc::new(Counter {
            todo: AtomicUsize::new(0),
            done: Mutex::new(0),
            all: Condvar::new(),
        });
        let executor = Executor::manual();
        executor.threads.lock().start =
            Some((Box::new(|_| Err(io::ErrorKind::WouldBlock.into())), 1));
        assert!(!executor.signal(Lane::Flush));
        executor.serve(&worker, 1);
        assert!(executor.signal(Lane::Flush));
    }
}
