//! The server's threads: one per processor, and more only while some of them are blocked.
//!
//! Invariants
//! * a connection runs in one thread at a time, and every wake-up is followed by another poll;
//! * no thread is idle while a connection is ready;
//! * there are at most as many threads that are not blocked as processors, and the number of
//!   blocked threads is bounded;
//! * after the pool is dropped no connection runs, and everything that connections held is
//!   released.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{ThreadId, available_parallelism, current};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;

use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, Ordering};

use super::stage::Stage;

/// The threads of a server, and the connections that they serve.
///
/// At any time a connection does all of its work in one of these threads, including database calls
/// that wait for a disk. The thread that computed an answer also sends it, so no other thread is
/// woken.
///
/// One idle thread *listens*: it drives Tokio's runtime (system events and timers). Before it
/// serves a connection, it passes this role on to another idle thread. So a thread that serves a
/// connection holds nothing that other threads need: no system events, no timer, no task of the
/// runtime. A *turn* is one poll of a connection; after it the thread continues with the connection
/// that has waited longest.
///
/// A *guard* samples the threads every [`PATIENCE`]. A thread seen twice in the same turn counts as
/// held up. If no thread is idle, the guard starts a new thread to replace it. When the held-up
/// turn ends, its thread exits if there are now more threads than needed.
///
/// Tokio's multi-thread runtime with `block_in_place` reaches 0.64 to 0.91 of this pool's
/// throughput (`benches/serve`). Without `block_in_place`, one request that waits for a disk blocks
/// all events of that runtime: a worker that an event woke runs the request itself, and does not
/// first pass the handling of events on.
pub(in crate::rest) struct WorkerPool {
    shared: Arc<Shared>,
    /// Dropped last, after all threads have released it. Its drop waits for the threads.
    runtime: Arc<Runtime>,
}

struct Shared {
    state: Mutex<State>,
    /// The target number of threads that are not held up, and the maximum number of threads
    /// altogether (`most`).
    lanes: usize,
    most: usize,
    guard_sleeps: AtomicBool,
    guard_called: Condvar,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// All connections, keyed by arrival number.
    open: BTreeMap<u64, Arc<Connection>>,
    next: u64,
    is_closed: bool,
    /// Connections that are ready to run.
    ready: VecDeque<Arc<Connection>>,
    /// The idle threads. There are none while a connection is ready, because each connection that
    /// becomes ready wakes one.
    free: Vec<(ThreadId, Waker)>,
    /// The current turn of each thread that serves connections.
    threads: Vec<Arc<Turn>>,
    held_up: usize,
    /// The number of threads that hold a reference to the runtime, including the guard.
    running: usize,
}

/// The progress of a thread's current turn: one of the four values below, `NONE` between two turns.
struct Turn(AtomicUsize);

const NONE: usize = 0;
/// The turn has begun; the guard has not yet seen it.
const BEGUN: usize = 1;
/// The guard has seen the turn once.
const SEEN: usize = 2;
/// The guard has seen the turn twice, so the thread counts as held up.
const HELD_UP: usize = 3;

/// A connection, and the future that does its remaining work.
struct Connection {
    shared: Arc<Shared>,
    id: u64,
    stage: Stage,
    /// The future of the remaining work; `None` once the connection has ended. Locked by the thread
    /// that polls it.
    rest: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

/// The guard thread checks at this interval whether the workers make progress.
const PATIENCE: Duration = Duration::from_millis(5);
/// After this number of turns without being idle, a thread polls the runtime, so that events are
/// handled.
const TURNS_MAX: usize = 8;

impl WorkerPool {
    /// Creates one thread per processor. While threads are blocked, up to `held_up` more are
    /// created. In addition, the runtime may create `held_up` threads, but at least one, for
    /// blocking tasks.
    ///
    /// # Errors
    /// The error of the system.
    pub(in crate::rest) fn new(held_up: usize) -> io::Result<Self> {
        Self::of(available_parallelism().map_or(1, usize::from), held_up)
    }

    fn of(lanes: usize, held_up: usize) -> io::Result<Self> {
        let most = lanes + held_up;
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(1 + most + held_up.max(1))
            .thread_name("rowstone-serve")
            .enable_all()
            .build()?;
        let (shared, runtime) = (Arc::new(Shared::new(lanes, most)), Arc::new(runtime));
        (0..lanes).for_each(|_| shared.start(&mut shared.state.lock(), &runtime));
        shared.run(&mut shared.state.lock(), &runtime, Shared::keep_watch);
        Ok(WorkerPool { shared, runtime })
    }

    /// Runs `future` in the calling thread. The future may call [`serve`](Self::serve), and spawn
    /// tasks that never block.
    pub(in crate::rest) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        // Unlike `Runtime::block_on`, this does not drive the runtime; idle threads of the pool do.
        self.runtime.handle().block_on(future)
    }

    /// Serves a connection to its end.
    pub(in crate::rest) fn serve(&self, connection: impl Future<Output = ()> + Send + 'static) {
        if let Some(connection) = self.shared.open(connection) {
            self.shared.enqueue(connection);
        }
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        let (open, ready, free) = {
            let mut state = self.shared.state.lock();
            state.is_closed = true;
            let (ready, free) = (std::mem::take(&mut state.ready), std::mem::take(&mut state.free));
            (std::mem::take(&mut state.open), ready, free)
        };
        free.into_iter().for_each(|(_, thread)| thread.wake());
        self.shared.guard_called.notify_one();
        drop(ready);
        // A connection that a thread is running now is ended by that thread.
        open.values().for_each(|connection| connection.end());
        let mut state = self.shared.state.lock();
        while state.running > 0 {
            self.shared.ended.wait(&mut state);
        }
    }
}

impl Shared {
    fn new(lanes: usize, most: usize) -> Self {
        Shared {
            state: Mutex::default(),
            lanes,
            most,
            guard_sleeps: AtomicBool::new(false),
            guard_called: Condvar::new(),
            ended: Condvar::new(),
        }
    }

    /// Registers a connection. Returns `None` if the pool is closed.
    fn open(
        self: &Arc<Self>,
        rest: impl Future<Output = ()> + Send + 'static,
    ) -> Option<Arc<Connection>> {
        let mut state = self.state.lock();
        if state.is_closed {
            return None;
        }
        let id = state.next;
        state.next += 1;
        let (stage, rest) = (Stage::new(), Mutex::new(Some(Box::pin(rest) as _)));
        let connection = Arc::new(Connection { shared: Arc::clone(self), id, stage, rest });
        state.open.insert(id, Arc::clone(&connection));
        Some(connection)
    }

    /// Queues a connection that is ready, and wakes an idle thread, if there is one, to run it.
    fn enqueue(&self, connection: Arc<Connection>) {
        let thread = {
            let mut state = self.state.lock();
            if state.is_closed {
                return;
            }
            state.ready.push_back(connection);
            state.free_one()
        };
        if let Some(thread) = thread {
            thread.wake();
        }
    }

    /// Starts a thread that serves connections.
    fn start(self: &Arc<Self>, state: &mut State, runtime: &Arc<Runtime>) {
        debug_assert!(state.threads.len() < self.most, "threads are bounded");
        let turn = Arc::new(Turn(AtomicUsize::new(NONE)));
        state.threads.push(Arc::clone(&turn));
        self.run(state, runtime, move |shared, runtime| shared.work(&turn, runtime));
    }

    /// Runs `work` in a new thread. The thread holds a reference to the runtime until `work` ends.
    fn run(
        self: &Arc<Self>,
        state: &mut State,
        runtime: &Arc<Runtime>,
        work: impl FnOnce(&Arc<Self>, &Arc<Runtime>) + Send + 'static,
    ) {
        state.running += 1;
        let (shared, lent) = (Arc::clone(self), Arc::clone(runtime));
        drop(runtime.spawn_blocking(move || {
            drop(catch_unwind(AssertUnwindSafe(|| work(&shared, &lent))));
            drop(lent);
            shared.state.lock().running -= 1;
            shared.ended.notify_all();
        }));
    }

    /// Runs the loop of a thread that serves connections.
    fn work(&self, turn: &Arc<Turn>, runtime: &Runtime) {
        let mut same = None;
        for turns in 1.. {
            if turns % TURNS_MAX == 0 {
                runtime.block_on(yield_now());
            }
            let Some(connection) = self.next(same, runtime) else { return };
            self.begin(turn);
            same = connection.poll().then_some(connection);
            if !self.end(turn) {
                if let Some(connection) = same {
                    self.enqueue(connection);
                }
                return;
            }
        }
    }

    /// Returns the connection that the thread runs next: the one that has waited longest. `same`,
    /// which the thread has just run and which is ready again, is first put at the end of the
    /// queue. Returns `None` once the pool is closed.
    fn next(&self, same: Option<Arc<Connection>>, runtime: &Runtime) -> Option<Arc<Connection>> {
        {
            let mut state = self.state.lock();
            if state.is_closed {
                return None;
            }
            // Wake no other thread: this thread takes a connection itself, and no thread is idle
            // while connections wait.
            state.ready.extend(same);
            if let Some(connection) = state.ready.pop_front() {
                return Some(connection);
            }
        }
        runtime.block_on(poll_fn(|context| self.poll_next(context)))
    }

    /// Returns the next connection for an idle thread. Until there is one, the thread waits in the
    /// list of idle threads.
    fn poll_next(&self, context: &Context<'_>) -> Poll<Option<Arc<Connection>>> {
        let this = current().id();
        let mut state = self.state.lock();
        state.free.retain(|(thread, _)| *thread != this);
        if state.is_closed {
            return Poll::Ready(None);
        }
        let next = state.ready.pop_front();
        if next.is_none() {
            state.free.push((this, context.waker().clone()));
            return Poll::Pending;
        }
        Poll::Ready(next)
    }

    /// Marks the beginning of a thread's turn, and wakes the guard if it sleeps.
    fn begin(&self, turn: &Turn) {
        turn.0.store(BEGUN, Ordering::SeqCst);
        if self.guard_sleeps.load(Ordering::SeqCst) {
            drop(self.state.lock());
            self.guard_called.notify_one();
        }
    }

    /// Marks the end of the turn. Returns false if the thread must exit, because it was held up and
    /// there are now more threads than needed.
    fn end(&self, turn: &Arc<Turn>) -> bool {
        if turn.0.swap(NONE, Ordering::SeqCst) != HELD_UP {
            return true;
        }
        let mut state = self.state.lock();
        debug_assert!(state.held_up > 0, "a thread that was held up is counted");
        state.held_up -= 1;
        let is_needed = state.threads.len() <= self.lanes + state.held_up;
        if !is_needed {
            state.threads.retain(|one| !Arc::ptr_eq(one, turn));
        }
        is_needed
    }

    /// Runs the loop of the guard, which samples the threads and starts new ones for those held up.
    fn keep_watch(self: &Arc<Self>, runtime: &Arc<Runtime>) {
        let mut state = self.state.lock();
        while !state.is_closed {
            for _ in 0..self.look(&mut state) {
                self.start(&mut state, runtime);
            }
            self.guard_sleeps.store(true, Ordering::SeqCst);
            if self.is_quiet(&state) {
                self.guard_called.wait(&mut state);
                self.guard_sleeps.store(false, Ordering::SeqCst);
            } else {
                self.guard_sleeps.store(false, Ordering::SeqCst);
                self.guard_called.wait_for(&mut state, PATIENCE);
            }
        }
    }

    /// Takes one sample of the threads. Returns the number of threads to start.
    fn look(&self, state: &mut State) -> usize {
        let held_up = state.threads.iter().filter(|turn| turn.is_held_up_now()).count();
        state.held_up += held_up;
        // If a thread is idle, no connection waits, so no thread is needed.
        if state.free.is_empty() { self.missing(state) } else { 0 }
    }

    /// Returns how many threads may be started to replace threads that are held up.
    fn missing(&self, state: &State) -> usize {
        let wanted = self.most.min(self.lanes + state.held_up);
        wanted.saturating_sub(state.threads.len())
    }

    /// Whether the guard may sleep until the next turn begins, because no thread has a turn to
    /// sample.
    fn is_quiet(&self, state: &State) -> bool {
        let is_quiet = |turn: &Arc<Turn>| matches!(turn.0.load(Ordering::SeqCst), NONE | HELD_UP);
        state.threads.iter().all(is_quiet)
    }
}

impl State {
    /// Removes one of the idle threads from the list, and returns its waker. Prefers the current
    /// thread, which is in the list if it is listening.
    fn free_one(&mut self) -> Option<Waker> {
        let this = current().id();
        let own = self.free.iter().position(|(thread, _)| *thread == this);
        let last = self.free.len().checked_sub(1)?;
        Some(self.free.swap_remove(own.unwrap_or(last)).1)
    }
}

impl Turn {
    /// Records that the guard has seen the turn. Returns true if this was the second time, so that
    /// the thread now counts as held up.
    fn is_held_up_now(&self) -> bool {
        let later = |turn| matches!(turn, BEGUN | SEEN).then(|| turn + 1);
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, later) == Ok(SEEN)
    }
}

impl Connection {
    /// Polls the connection. Returns true if it was woken during the poll, so that it must be
    /// polled again.
    fn poll(self: &Arc<Self>) -> bool {
        self.stage.begin();
        let is_over = {
            let mut rest = self.rest.lock();
            let waker = Waker::from(Arc::clone(self));
            let polled = rest.as_mut().map(|rest| {
                let mut context = Context::from_waker(&waker);
                catch_unwind(AssertUnwindSafe(|| rest.as_mut().poll(&mut context)))
            });
            // A panic ends only this connection.
            !matches!(polled, Some(Ok(Poll::Pending)))
        };
        if is_over || self.shared.state.lock().is_closed {
            self.end();
            return false;
        }
        self.stage.end()
    }

    /// Drops the connection's future, unless a thread is running it; that thread then drops it.
    fn end(&self) {
        let rest = self.rest.try_lock().and_then(|mut rest| rest.take());
        drop(catch_unwind(AssertUnwindSafe(|| drop(rest))));
        self.shared.state.lock().open.remove(&self.id);
    }
}

impl Wake for Connection {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.stage.wake() {
            self.shared.enqueue(Arc::clone(self));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::SocketAddr;
    use std::sync::mpsc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::oneshot;
    use tokio::time::sleep;

    use super::*;

    /// How often a test looks for an expected change before it fails. This takes some minutes.
    const LOOKS_MAX: usize = 100_000_000;

    fn of(lanes: usize) -> WorkerPool {
        WorkerPool::of(lanes, 100).unwrap()
    }

    /// Runs `work` in a thread of the pool and returns its result; `None` if it panicked.
    fn carry_out<T: Send + 'static>(
        lanes: &WorkerPool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        finish(lanes, async { work() })
    }

    fn finish<T: Send + 'static>(
        lanes: &WorkerPool,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (done, answer) = mpsc::channel();
        lanes.serve(async move { drop(done.send(work.await)) });
        answer.recv().ok()
    }

    /// Serves a connection that blocks its thread until the returned sender is dropped. When it
    /// ends, it sends a message to the returned receiver.
    fn hold_up(lanes: &WorkerPool) -> (mpsc::Sender<()>, mpsc::Receiver<()>) {
        let (go, gone) = mpsc::channel();
        let (begun, has_begun) = mpsc::channel();
        let (over, is_over) = mpsc::channel();
        lanes.serve(async move {
            begun.send(()).unwrap();
            gone.recv().unwrap_err();
            over.send(()).unwrap();
        });
        has_begun.recv().unwrap();
        (go, is_over)
    }

    fn threads(lanes: &WorkerPool) -> usize {
        lanes.shared.state.lock().threads.len()
    }

    /// Waits until there are `count` threads.
    fn wait_for_threads(lanes: &WorkerPool, count: usize) {
        for _ in 0..LOOKS_MAX {
            if threads(lanes) == count {
                return;
            }
            std::thread::yield_now();
        }
        panic!("{} threads instead of {count}", threads(lanes));
    }

    #[test]
    fn each_connection_is_served() {
        let lanes = of(2);
        let (served, all) = mpsc::channel();
        for i in 0..200 {
            let served = served.clone();
            lanes.serve(async move { served.send(i).unwrap() });
        }
        let mut all: Vec<i32> = all.iter().take(200).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..200));
    }

    #[test]
    fn a_panic_ends_one_connection_only() {
        let lanes = of(1);
        assert_eq!(carry_out(&lanes, || panic!("as planned")), None::<()>);
        assert_eq!(carry_out(&lanes, || 1), Some(1));
    }

    #[test]
    fn a_blocked_request_blocks_no_other() {
        let lanes = of(1);
        // Each connection blocks the only thread that is not blocked yet.
        let held: Vec<_> = (0..10).map(|_| hold_up(&lanes)).collect();
        assert_eq!(carry_out(&lanes, || 1), Some(1));
        for (go, is_over) in held {
            drop(go);
            is_over.recv().unwrap();
        }
        wait_for_threads(&lanes, 1);
        assert_eq!(carry_out(&lanes, || 2), Some(2));
    }

    #[test]
    fn threads_are_bounded_and_a_waiting_connection_gets_one() {
        let lanes = WorkerPool::of(1, 2).unwrap();
        let held: Vec<_> = (0..3).map(|_| hold_up(&lanes)).collect();
        assert_eq!(threads(&lanes), 3);
        let (done, answer) = mpsc::channel();
        lanes.serve(async move { done.send(()).unwrap() });
        drop(held);
        answer.recv().unwrap();
        wait_for_threads(&lanes, 1);
    }

    /// Serves a connection that echoes four bytes to the first client of the returned address.
    fn echo(lanes: &WorkerPool) -> SocketAddr {
        let listener = lanes.run(TcpListener::bind("127.0.0.1:0")).unwrap();
        let at = listener.local_addr().unwrap();
        lanes.serve(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).await.unwrap();
            stream.write_all(&bytes).await.unwrap();
        });
        at
    }

    fn ping(at: SocketAddr) {
        let mut stream = std::net::TcpStream::connect(at).unwrap();
        let mut bytes = [0; 4];
        stream.write_all(b"ping").unwrap();
        stream.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, *b"ping");
    }

    /// While all threads of the pool are blocked, other connections that wait for a socket, a timer
    /// or a task of the runtime still make progress. One of the threads is blocked by the
    /// connection that was served last.
    #[test]
    fn system_events_are_handled_while_threads_are_blocked() {
        let lanes = of(2);
        let first = echo(&lanes);
        let held = [hold_up(&lanes), hold_up(&lanes)];
        ping(first);
        ping(echo(&lanes));
        let timed = async { sleep(Duration::from_nanos(1)).await };
        assert_eq!(finish(&lanes, timed), Some(()));
        let spawned = async { tokio::spawn(async { 1 }).await.unwrap() };
        assert_eq!(finish(&lanes, spawned), Some(1));
        drop(held);
    }

    /// While all threads are busy, connections that wait for the system's events still make
    /// progress.
    #[test]
    fn system_events_are_handled_while_threads_are_busy() {
        let lanes = of(1);
        let is_over = Arc::new(AtomicBool::new(false));
        for _ in 0..3 {
            let is_over = Arc::clone(&is_over);
            lanes.serve(async move {
                while !is_over.load(Ordering::SeqCst) {
                    yield_now().await;
                }
            });
        }
        ping(echo(&lanes));
        is_over.store(true, Ordering::SeqCst);
    }

    /// Connections are woken from other threads, also while they run. Each must run in one thread
    /// at a time, and to its end.
    #[test]
    fn a_woken_connection_runs_again() {
        const STEPS: usize = 200;
        let lanes = of(3);
        let ends = (0..20).map(|_| {
            let (done, end) = mpsc::channel();
            let inside = AtomicUsize::new(0);
            lanes.serve(async move {
                for step in 0..STEPS {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    match step % 3 {
                        0 => yield_now().await,
                        1 => tokio::spawn(yield_now()).await.unwrap(),
                        _ => {
                            let (tell, told) = oneshot::channel();
                            drop(tokio::task::spawn_blocking(move || tell.send(step)));
                            assert_eq!(told.await, Ok(step));
                        }
                    }
                }
                done.send(()).unwrap();
            });
            end
        });
        for end in ends.collect::<Vec<_>>() {
            end.recv().unwrap();
        }
    }

    #[test]
    fn dropping_the_pool_drops_its_connections() {
        let lanes = of(2);
        let ends = (0..10).map(|_| {
            let (held, end) = mpsc::channel::<()>();
            lanes.serve(async move {
                std::future::pending::<()>().await;
                held.send(()).unwrap();
            });
            end
        });
        let ends: Vec<_> = ends.collect();
        // One connection is running when the pool is dropped. It is dropped only when its poll
        // returns.
        let (go, gone) = mpsc::channel::<()>();
        let (begun, has_begun) = mpsc::channel();
        let (over, is_over) = mpsc::channel::<()>();
        lanes.serve(async move {
            begun.send(()).unwrap();
            gone.recv().unwrap();
            yield_now().await;
            over.send(()).unwrap();
        });
        has_begun.recv().unwrap();
        let shared = Arc::clone(&lanes.shared);
        let dropped = std::thread::spawn(move || drop(lanes));
        for end in ends {
            assert!(end.recv().is_err());
        }
        go.send(()).unwrap();
        dropped.join().unwrap();
        assert!(is_over.recv().is_err(), "the connection did not continue");
        assert!(shared.open(async {}).is_none());
        let state = shared.state.lock();
        assert!(state.open.is_empty() && state.ready.is_empty() && state.free.is_empty());
    }

    #[test]
    fn no_more_threads_are_started_than_needed() {
        let shared = Shared::new(2, 4);
        let turns: Vec<_> = (0..4).map(|_| Arc::new(Turn(AtomicUsize::new(NONE)))).collect();
        let look = || {
            let mut state = shared.state.lock();
            let more = shared.look(&mut state);
            let (from, to) = (state.threads.len(), state.threads.len() + more);
            state.threads.extend(turns[from..to].iter().cloned());
            more
        };
        shared.state.lock().threads.extend(turns[..2].iter().cloned());
        turns[..2].iter().for_each(|turn| shared.begin(turn));
        assert_eq!(look(), 0);
        // A turn that ends before the guard has seen it twice does not count as held up.
        assert!(shared.end(&turns[1]));
        shared.begin(&turns[1]);
        // While a thread is idle, no thread is started: the idle one can serve new connections.
        shared.state.lock().free.push((current().id(), Waker::noop().clone()));
        assert_eq!(look(), 0);
        shared.state.lock().free.clear();
        // By now the guard has seen both turns twice, so two threads may be started to replace
        // their threads.
        assert_eq!(look(), 2);
        turns[2..4].iter().for_each(|turn| shared.begin(turn));
        assert_eq!([look(), look(), look()], [0; 3], "the maximum number of threads runs");
        assert_eq!(shared.state.lock().held_up, 4);
        // When its turn ends, a thread that was held up exits if there are more threads than lanes
        // and held-up threads together.
        assert_eq!([0, 1, 2, 3].map(|i| shared.end(&turns[i])), [true, true, false, false]);
        let state = shared.state.lock();
        assert_eq!((state.threads.len(), state.held_up), (2, 0));
        assert!(shared.is_quiet(&state));
    }
}
