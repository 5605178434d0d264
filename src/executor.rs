//! Runs background work in steps. In production, threads run the steps. A test runs them in an
//! order that its seed determines.
//!
//! A [`Lane`] is a kind of work, with threads that its first signal starts. They sleep until
//! [`Executor::signal`] or the worker's next deadline, and then run steps until the lane is idle.
//! With [`Crew::One`] a single thread runs all lanes, and takes each step from the first lane with
//! work. So no step may wait for another step.
//!
//! Background threads have the priority of the process, because lowering it needs `unsafe`. Their
//! load is bounded by the number of threads and by a limit on bytes per second.

use std::io;
use std::sync::{Arc, Weak};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

use crate::sync::{Condvar, Mutex};

/// A kind of background work. Lanes run in parallel with one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// Logs: syncs commits with a durability below `Sync`, and commits that no thread waits for;
    /// prepares the next log.
    Log,
    /// Flushes memtables, sorts their newest entries, and removes files that are no longer used.
    Flush,
    /// Compaction.
    Compact,
}

/// The result of a lane's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The step did some work, and there may be more.
    Worked,
    /// There is no work until the next signal, or until the given time has passed.
    Idle(Option<Duration>),
}

/// Implemented by the owner of the work. A call runs one step of a lane, and may not block for
/// longer than a step takes.
pub(crate) trait Worker: Send + Sync {
    fn step(&self, lane: Lane) -> Step;
}

/// Runs a worker's steps on threads. Without threads it runs nothing: the owner calls
/// [`Worker::step`] itself.
pub(crate) struct Executor {
    shared: Arc<Shared>,
}

/// Lets code that has no reference to an executor signal its lanes.
#[derive(Clone)]
pub(crate) struct Bell(Arc<Shared>);

#[derive(Default)]
struct Threads {
    /// The function that starts one thread for given lanes, and the crew, which determines the
    /// number of threads; `None` if no threads are wanted.
    start: Option<(Start, Crew)>,
    running: Vec<JoinHandle<()>>,
}

/// The threads that run the lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crew {
    /// One thread for all lanes.
    One,
    /// One thread for each lane except compaction, which has `compactors` threads, at least one.
    Lanes { compactors: usize },
}

type Start = Box<dyn Fn(&Arc<Shared>, &'static [Lane]) -> io::Result<JoinHandle<()>> + Send>;

struct Shared {
    threads: Mutex<Threads>,
    state: Mutex<State>,
    wake: Condvar,
    /// Wakes callers of [`Executor::wait_idle`] when the last busy thread has no work left.
    idle: Condvar,
}

#[derive(Default)]
struct State {
    stopping: bool,
    /// One bit per lane: set if the lane was signalled since its thread last checked.
    pending: u8,
    /// One bit per lane: set if its threads were started.
    started: u8,
    /// The number of threads that run steps or were just started.
    busy: usize,
    /// The thread that runs all lanes, if there is one.
    alone: Option<ThreadId>,
}

impl Lane {
    pub(crate) const ALL: [Lane; 3] = [Lane::Log, Lane::Flush, Lane::Compact];

    fn bit(self) -> u8 {
        1 << self as u8
    }

    /// Returns a list with this lane as its only element.
    fn alone(self) -> &'static [Lane] {
        let at = self as usize;
        &Lane::ALL[at..=at]
    }
}

impl Executor {
    /// Creates an executor without threads: the owner calls [`Worker::step`] itself.
    pub(crate) fn manual() -> Self {
        Self::behind(&Bell::default())
    }

    /// Creates an executor that `bell` can wake; it has no threads until [`serve`](Self::serve) is
    /// called.
    pub(crate) fn behind(Bell(shared): &Bell) -> Self {
        Self { shared: Arc::clone(shared) }
    }

    /// Lets the next signal of a lane start the threads of `crew`. The worker is held weakly, so
    /// that dropping the database ends the threads.
    pub(crate) fn serve(&self, worker: &Arc<impl Worker + 'static>, crew: Crew) {
        let worker = Arc::downgrade(worker);
        let start = move |shared: &Arc<Shared>, lanes: &'static [Lane]| {
            let (shared, worker) = (Arc::clone(shared), Weak::clone(&worker));
            let name = match lanes {
                [lane] => format!("rowstone-{lane:?}").to_lowercase(),
                _ => "rowstone".to_owned(),
            };
            let busy = Busy::new(Arc::clone(&shared));
            let run = move || {
                let _busy = busy;
                run_lanes(&shared, &worker, lanes);
            };
            std::thread::Builder::new().name(name).spawn(run)
        };
        self.shared.threads.lock().start = Some((Box::new(start), crew));
    }

    /// Whether threads run the lanes, or will run them.
    pub(crate) fn is_threaded(&self) -> bool {
        self.shared.threads.lock().start.is_some()
    }

    /// Returns the number of threads that were started.
    #[cfg(test)]
    pub(crate) fn threads(&self) -> usize {
        self.shared.threads.lock().running.len()
    }

    /// Whether one thread runs all lanes. Then a caller that waits for a step may have to wait for
    /// the steps of other lanes, too.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self.shared.threads.lock().start, Some((_, Crew::One)))
    }

    /// Reports that there may be work in `lane`. Returns false if no thread, or only the calling
    /// thread, runs the lane, so that the caller may have to do the work.
    pub(crate) fn signal(&self, lane: Lane) -> bool {
        self.shared.signal(lane)
    }

    /// Returns the lanes that were signalled since the last call. Only for executors without
    /// threads.
    #[cfg(test)]
    pub(crate) fn take_signals(&self) -> Vec<Lane> {
        let pending = std::mem::take(&mut self.shared.state.lock().pending);
        Lane::ALL.into_iter().filter(|lane| pending & lane.bit() != 0).collect()
    }

    /// Starts the threads of `lane` unless they run. Returns false if no threads are wanted, or if
    /// they have been asked to end.
    ///
    /// # Errors
    /// An error if the system cannot start a thread. The next signal tries again.
    pub(crate) fn start(&self, lane: Lane) -> io::Result<bool> {
        self.shared.start(lane)
    }

    /// Whether the threads have been asked to end. Long steps should end early then.
    pub(crate) fn is_stopping(&self) -> bool {
        self.shared.state.lock().stopping
    }

    /// Waits until no thread has work that is due. Returns at once if there are no threads.
    pub(crate) fn wait_idle(&self) {
        let mut state = self.shared.state.lock();
        while !state.stopping && (state.busy > 0 || state.pending & state.started != 0) {
            self.shared.idle.wait(&mut state);
        }
    }

    /// Waits for running steps, and ends the threads.
    pub(crate) fn stop(&self) {
        self.shared.state.lock().stopping = true;
        self.shared.wake.notify_all();
        self.shared.idle.notify_all();
        let threads = std::mem::take(&mut *self.shared.threads.lock()).running;
        for thread in threads {
            // A step may drop the last handle. Its thread cannot wait for itself and ends after the
            // step.
            if thread.thread().id() != std::thread::current().id() {
                drop(thread.join());
            }
        }
    }
}

impl Default for Bell {
    fn default() -> Self {
        let (threads, state) = (Mutex::new(Threads::default()), Mutex::new(State::default()));
        Self(Arc::new(Shared { threads, state, wake: Condvar::new(), idle: Condvar::new() }))
    }
}

impl Bell {
    /// As [`Executor::signal`].
    pub(crate) fn ring(&self, lane: Lane) {
        self.0.signal(lane);
    }
}

/// Counts a thread as busy until its end, which may be a panic.
struct Busy(Arc<Shared>);

impl Busy {
    fn new(shared: Arc<Shared>) -> Self {
        shared.state.lock().busy += 1;
        Self(shared)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.pause(&mut self.0.state.lock());
    }
}

impl Shared {
    fn signal(self: &Arc<Self>, lane: Lane) -> bool {
        let mut state = self.state.lock();
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
            self.wake.notify_all();
        }
        true
    }

    fn start(self: &Arc<Self>, lane: Lane) -> io::Result<bool> {
        let mut threads = self.threads.lock();
        let Threads { start: Some((start, crew)), running } = &mut *threads else {
            return Ok(false);
        };
        if self.state.lock().started & lane.bit() != 0 {
            return Ok(true);
        }
        let lanes = if *crew == Crew::One { &Lane::ALL } else { lane.alone() };
        let thread = start(self, lanes)?;
        self.state.lock().started |= lanes.iter().fold(0, |bits, lane| bits | lane.bit());
        running.push(thread);
        if let (Lane::Compact, Crew::Lanes { compactors }) = (lane, *crew) {
            // With one thread the lane makes progress, so a failure to start more threads is
            // ignored.
            running.extend((1..compactors).map_while(|_| start(self, lanes).ok()));
        }
        Ok(true)
    }

    /// Records that one thread is no longer busy.
    fn pause(&self, state: &mut State) {
        state.busy -= 1;
        if state.busy == 0 {
            self.idle.notify_all();
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
        shared.pause(&mut state);
        match deadline {
            Some(wait) => {
                shared.wake.wait_for(&mut state, wait);
            }
            None => shared.wake.wait(&mut state),
        }
        state.busy += 1;
    }
}

/// Runs a step of the first lane with work. If no lane has work, returns idle until the earliest
/// deadline.
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
        assert!(executor.threads() == 0);
        assert!(executor.signal(Lane::Compact));
        assert_eq!(executor.threads(), 2);
        for _ in 0..10 {
            worker.todo.fetch_add(5, Ordering::SeqCst);
            assert!(executor.signal(Lane::Flush));
        }
        assert_eq!(executor.threads(), 3);
        let mut done = worker.done.lock();
        while *done < 50 {
            worker.all.wait(&mut done);
        }
        drop(done);
        executor.stop();
        assert!(!executor.signal(Lane::Log), "no thread starts behind the end");
    }

    #[test]
    fn one_thread_runs_all_lanes_including_those_it_signals() {
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
                // No deadline: only a signal can cause the next step.
                Step::Idle(None)
            }
        }
        let (executor, seen) = (Executor::manual(), Mutex::new(Vec::new()));
        let worker = Arc::new(Chain { executor, seen, end: Condvar::new() });
        assert!(!worker.executor.is_alone());
        worker.executor.serve(&worker, Crew::One);
        assert!(worker.executor.is_alone() && worker.executor.signal(Lane::Compact));
        assert_eq!(worker.executor.threads(), 1);
        let mut seen = worker.seen.lock();
        while seen.len() < 3 {
            worker.end.wait(&mut seen);
        }
        let lanes = [Lane::Compact, Lane::Flush, Lane::Log];
        assert_eq!(*seen, lanes.map(|lane| (lane, false)));
        drop(seen);
        assert!(worker.executor.signal(Lane::Flush), "others are served");
        assert_eq!(worker.executor.threads(), 1);
        worker.executor.stop();
    }

    #[test]
    fn a_bell_starts_the_threads_of_its_lane_until_the_executor_stops() {
        let (todo, done) = (AtomicUsize::new(1), Mutex::new(0));
        let worker = Arc::new(Counter { todo, done, all: Condvar::new() });
        let bell = Bell::default();
        bell.ring(Lane::Flush);
        let executor = Executor::behind(&bell);
        executor.serve(&worker, Crew::Lanes { compactors: 1 });
        assert_eq!(executor.threads(), 0);
        bell.ring(Lane::Flush);
        assert_eq!(executor.threads(), 1);
        executor.wait_idle();
        assert_eq!(*worker.done.lock(), 1);
        executor.stop();
        bell.ring(Lane::Compact);
        assert_eq!(executor.threads(), 0);
    }

    #[test]
    fn a_lane_with_a_thread_that_cannot_start_is_tried_again() {
        let worker = Arc::new(Counter {
            todo: AtomicUsize::new(0),
            done: Mutex::new(0),
            all: Condvar::new(),
        });
        let executor = Executor::manual();
        executor.shared.threads.lock().start =
            Some((Box::new(|_, _| Err(io::ErrorKind::WouldBlock.into())), Crew::One));
        assert!(!executor.signal(Lane::Flush));
        executor.serve(&worker, Crew::Lanes { compactors: 1 });
        assert!(executor.signal(Lane::Flush));
    }
}
