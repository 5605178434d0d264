//! Background work as steps: threads run them in production, a test runs them when its seed says so.
//!
//! A [`Worker`] offers lanes; a lane has at most as many steps under way as it has threads. Threads sleep until
//! [`Executor::signal`], or until the worker's next deadline, and then run steps until the lane is idle. A lane has no
//! threads before its first signal: who opens a database to read a little pays for none. A crew of one thread runs all
//! lanes, one step after another, the first lane that has something to do first; its steps must not wait for one another.
//!
//! All threads have the priority of the process: lowering that of one thread is not in the standard library, and takes
//! `unsafe`. What background work may take is bounded by its number of threads and its bytes a second instead.
//!
//! Not here: what the steps do (`lsm::background::scheduler`).

use std::io;
use std::sync::{Arc, Weak};
use std::thread::{JoinHandle, ThreadId};
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

/// Wakes the threads of an executor, for who does not know it.
#[derive(Clone)]
pub(crate) struct Bell(Arc<Shared>);

#[derive(Default)]
struct Threads {
    /// Starts one for some lanes, and how many there are to be; `None`: there are to be none.
    start: Option<(Start, Crew)>,
    running: Vec<JoinHandle<()>>,
}

/// Who runs the lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crew {
    /// One thread, all of them.
    One,
    /// A thread each, and so many for compaction, at least one.
    Lanes { compactors: usize },
}

type Start = Box<dyn Fn(&'static [Lane]) -> io::Result<JoinHandle<()>> + Send>;

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
    /// The thread that runs all lanes, if one does.
    alone: Option<ThreadId>,
}

impl Lane {
    pub(crate) const ALL: [Lane; 3] = [Lane::Log, Lane::Flush, Lane::Compact];

    fn bit(self) -> u8 {
        1 << self as u8
    }

    /// This lane alone.
    fn alone(self) -> &'static [Lane] {
        let at = self as usize;
        &Lane::ALL[at..=at]
    }
}

impl Executor {
    /// An executor that runs nothing: the owner calls [`Worker::step`] itself.
    pub(crate) fn manual() -> Self {
        Self::behind(&Bell::default())
    }

    /// The same, whose threads `bell` wakes once there are some.
    pub(crate) fn behind(Bell(shared): &Bell) -> Self {
        Self { shared: Arc::clone(shared), threads: Mutex::new(Threads::default()) }
    }

    /// From now on a lane that is signalled gets the threads of `crew`. The worker is held weakly, so that dropping the
    /// database ends the threads.
    pub(crate) fn serve(&self, worker: &Arc<impl Worker + 'static>, crew: Crew) {
        let (shared, worker) = (Arc::clone(&self.shared), Arc::downgrade(worker));
        let start = move |lanes: &'static [Lane]| {
            let (shared, worker) = (Arc::clone(&shared), Weak::clone(&worker));
            let name = match lanes {
                [lane] => format!("rowstone-{lane:?}").to_lowercase(),
                _ => "rowstone".to_owned(),
            };
            let run = move || run_lanes(&shared, &worker, lanes);
            std::thread::Builder::new().name(name).spawn(run)
        };
        self.threads.lock().start = Some((Box::new(start), crew));
    }

    /// True if threads run the lanes, or will.
    pub(crate) fn is_threaded(&self) -> bool {
        self.threads.lock().start.is_some()
    }

    /// True if one thread runs all lanes: whoever waits for one of its steps waits for all.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self.threads.lock().start, Some((_, Crew::One)))
    }

    /// There may be work in `lane`. False if no thread runs it, or only the caller's: it may have to.
    pub(crate) fn signal(&self, lane: Lane) -> bool {
        let mut state = self.shared.state.lock();
        if state.stopping {
            return false;
        }
        let is_news = state.pending & lane.bit() == 0;
        state.pending |= lane.bit();
        if state.alone.is_some_and(|thread| thread == std::thread::current().id()) {
            return false;
        }
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
        let Threads { start: Some((start, crew)), running } = &mut *threads else {
            return Ok(false);
        };
        if self.shared.state.lock().started & lane.bit() != 0 {
            return Ok(true);
        }
        let lanes = if *crew == Crew::One { &Lane::ALL } else { lane.alone() };
        let thread = start(lanes)?;
        self.shared.state.lock().started |= lanes.iter().fold(0, |bits, lane| bits | lane.bit());
        running.push(thread);
        if let (Lane::Compact, Crew::Lanes { compactors }) = (lane, *crew) {
            // One is enough to go on with.
            running.extend((1..compactors).map_while(|_| start(lanes).ok()));
        }
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

impl Default for Bell {
    fn default() -> Self {
        let (state, wake) = (Mutex::new(State::default()), Condvar::new());
        Self(Arc::new(Shared { state, wake }))
    }
}

impl Bell {
    /// There may be work in `lane`, if it has threads.
    pub(crate) fn ring(&self, lane: Lane) {
        let mut state = self.0.state.lock();
        let is_news = state.pending & lane.bit() == 0;
        state.pending |= lane.bit();
        drop(state);
        if is_news {
            self.0.wake.notify_all();
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run_lanes(shared: &Shared, worker: &Weak<impl Worker>, lanes: &[Lane]) {
    let bits = lanes.iter().fold(0, |bits, lane| bits | lane.bit());
    let mut state = shared.state.lock();
    if lanes.len() == Lane::ALL.len() {
        state.alone = Some(std::thread::current().id());
    }
    loop {
        if state.stopping {
            return;
        }
        state.pending &= !bits;
        drop(state);
        let Some(worker) = worker.upgrade() else { return };
        let step = step_first(&*worker, lanes);
        drop(worker);
        state = shared.state.lock();
        let Step::Idle(deadline) = step else { continue };
        if state.stopping || state.pending & bits != 0 {
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

/// A step of the first lane that has something to do; if none has, idle until the first deadline.
fn step_first(worker: &impl Worker, lanes: &[Lane]) -> Step {
    let mut first = None;
    for lane in lanes {
        match worker.step(*lane) {
            Step::Worked => return Step::Worked,
            Step::Idle(deadline) => first = first.into_iter().chain(deadline).min(),
        }
    }
    Step::Idle(first)
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
        executor.serve(&worker, Crew::Lanes { compactors: 2 });
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
    fn one_thread_runs_all_lanes_and_its_own_signals_are_its_own_to_serve() {
        struct Chain {
            executor: Executor,
            seen: Mutex<Vec<(Lane, bool)>>,
            end: Condvar,
        }
        impl Worker for Chain {
            fn step(&self, lane: Lane) -> Step {
                let mut seen = self.seen.lock();
                let next = match (lane, seen.len()) {
                    (Lane::Compact, 0) => Lane::Flush,
                    (Lane::Flush, 1) => Lane::Log,
                    (Lane::Log, 2) => Lane::Log,
                    _ => return Step::Idle(Some(Duration::from_secs(3600))),
                };
                let is_served = self.executor.signal(next);
                seen.push((lane, is_served));
                self.end.notify_all();
                // The signal alone must bring it back.
                Step::Idle(None)
            }
        }
        let (executor, seen) = (Executor::manual(), Mutex::new(Vec::new()));
        let worker = Arc::new(Chain { executor, seen, end: Condvar::new() });
        assert!(!worker.executor.is_alone());
        worker.executor.serve(&worker, Crew::One);
        assert!(worker.executor.is_alone() && worker.executor.signal(Lane::Compact));
        assert_eq!(worker.executor.threads.lock().running.len(), 1);
        let mut seen = worker.seen.lock();
        while seen.len() < 3 {
            worker.end.wait(&mut seen);
        }
        let lanes = [Lane::Compact, Lane::Flush, Lane::Log];
        assert_eq!(*seen, lanes.map(|lane| (lane, false)));
        drop(seen);
        assert!(worker.executor.signal(Lane::Flush), "others are served");
        assert_eq!(worker.executor.threads.lock().running.len(), 1);
        worker.executor.stop();
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
            Some((Box::new(|_| Err(io::ErrorKind::WouldBlock.into())), Crew::One));
        assert!(!executor.signal(Lane::Flush));
        executor.serve(&worker, Crew::Lanes { compactors: 1 });
        assert!(executor.signal(Lane::Flush));
    }
}
