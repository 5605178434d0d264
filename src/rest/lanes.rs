//! Reads are carried out by as many threads as there are processors, and by more only while these are held up.
//!
//! A thread that is done goes on with the read that has waited longest: nobody is woken for it, and those that are under way
//! do not take the processor from each other.
//!
//! Invariants
//! * a read is carried out once, whether or not anybody waits for it;
//! * a read that waits is begun once a thread is free, and within two [`PATIENCE`]s whatever holds up the others.
//!
//! Not here: writes, which wait for the disk together (`crowd`), how many requests there may be (`server`).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::sync::Mutex;

/// The reads of a server.
pub(super) struct Lanes {
    state: Mutex<State>,
    /// Threads where nothing holds them up.
    lanes: usize,
}

struct State {
    waiting: VecDeque<Read>,
    /// Reads that had to wait, ever.
    came: usize,
    /// Threads at work, and how many there may be.
    threads: usize,
    threads_max: usize,
    is_watched: bool,
}

type Read = Box<dyn FnOnce() + Send>;

/// What a read that came needs.
enum Start {
    Thread(Read),
    /// Somebody who looks after those that wait.
    Watch,
    Nothing,
}

/// A read waits for others no longer if these may wait themselves: for a disk, for a range that is held back.
const PATIENCE: Duration = Duration::from_millis(5);

impl Lanes {
    pub(super) fn new() -> Arc<Self> {
        Self::of(available_parallelism().map_or(1, usize::from))
    }

    fn of(lanes: usize) -> Arc<Self> {
        let (waiting, threads_max) = (VecDeque::new(), lanes);
        let state = State { waiting, came: 0, threads: 0, threads_max, is_watched: false };
        Arc::new(Lanes { state: Mutex::new(state), lanes })
    }

    /// Carries out a read in a thread that may block. `None` if it ended in a panic.
    pub(super) async fn carry_out<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, answer) = oneshot::channel();
        match self.enter(Box::new(move || drop(done.send(read())))) {
            Start::Thread(read) => self.start(Some(read)),
            Start::Watch => drop(tokio::spawn(Arc::clone(self).watch())),
            Start::Nothing => {}
        }
        answer.await.ok()
    }

    fn enter(&self, read: Read) -> Start {
        let mut state = self.state.lock();
        if state.threads < state.threads_max {
            state.threads += 1;
            return Start::Thread(read);
        }
        state.waiting.push_back(read);
        state.came = state.came.wrapping_add(1);
        match std::mem::replace(&mut state.is_watched, true) {
            true => Start::Nothing,
            false => Start::Watch,
        }
    }

    /// Starts a thread, which counts already.
    fn start(self: &Arc<Self>, first: Option<Read>) {
        let lanes = Arc::clone(self);
        drop(spawn_blocking(move || {
            let mut next = first.or_else(|| lanes.next());
            while let Some(read) = next {
                // Who waits for its answer learns that there is none.
                drop(catch_unwind(AssertUnwindSafe(read)));
                next = lanes.next();
            }
        }));
    }

    /// What a thread does next; it counts no more if there is nothing.
    fn next(&self) -> Option<Read> {
        let mut state = self.state.lock();
        let next = state.waiting.pop_front();
        if next.is_none() {
            state.threads -= 1;
        }
        next
    }

    /// Sees to it that nobody waits for long.
    async fn watch(self: Arc<Self>) {
        let mut came = None;
        loop {
            sleep(PATIENCE).await;
            let Some(late) = self.look(&mut came) else { return };
            (0..late).for_each(|_| self.start(None));
        }
    }

    /// How many threads more are to be started; `None` if nobody needs to look again. `came` is what it was at the last look.
    fn look(&self, came: &mut Option<usize>) -> Option<usize> {
        let mut state = self.state.lock();
        let before = came.replace(state.came);
        // Those that came last stand last.
        let new = before.map_or(usize::MAX, |before| state.came.wrapping_sub(before));
        let late = state.waiting.len().saturating_sub(new);
        state.threads += late;
        state.threads_max = match late {
            0 => (state.threads_max - 1).max(self.lanes),
            _ => state.threads.max(state.threads_max),
        };
        state.is_watched = !state.waiting.is_empty() || state.threads_max > self.lanes;
        state.is_watched.then_some(late)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build();
        runtime.unwrap().block_on(test);
    }

    #[test]
    fn each_read_is_carried_out_once() {
        run(async {
            let lanes = Lanes::of(2);
            let reads = (0..200).map(|i| {
                let lanes = Arc::clone(&lanes);
                tokio::spawn(async move { lanes.carry_out(move || i).await })
            });
            for (i, read) in reads.collect::<Vec<_>>().into_iter().enumerate() {
                assert_eq!(read.await.unwrap(), Some(i));
            }
        });
    }

    #[test]
    fn a_panic_is_that_of_one_read() {
        run(async {
            let lanes = Lanes::of(1);
            assert_eq!(lanes.carry_out(|| panic!("as planned")).await, None::<()>);
            assert_eq!(lanes.carry_out(|| 1).await, Some(1));
        });
    }

    #[test]
    fn who_is_held_up_holds_up_nobody() {
        run(async {
            let lanes = Lanes::of(1);
            let (go, gone) = mpsc::channel::<()>();
            let held = Arc::clone(&lanes);
            let held = tokio::spawn(async move { held.carry_out(move || gone.recv()).await });
            // Each has to wait for the first one, or for a thread more.
            for i in 0..20 {
                assert_eq!(lanes.carry_out(move || i).await, Some(i));
            }
            go.send(()).unwrap();
            assert_eq!(held.await.unwrap(), Some(Ok(())));
        });
    }

    #[test]
    fn threads_are_no_more_than_needed() {
        let lanes = Lanes::of(2);
        let read = || -> Read { Box::new(|| {}) };
        for _ in 0..2 {
            assert!(matches!(lanes.enter(read()), Start::Thread(_)));
        }
        assert!(matches!(lanes.enter(read()), Start::Watch));
        assert!(matches!(lanes.enter(read()), Start::Nothing));
        // At the first look nobody has waited for long; at the second, both have, and one has just come.
        let mut came = None;
        assert_eq!(lanes.look(&mut came), Some(0));
        assert!(matches!(lanes.enter(read()), Start::Nothing));
        assert_eq!(lanes.look(&mut came), Some(2));
        for _ in 0..3 {
            assert!(lanes.next().is_some());
        }
        for _ in 0..4 {
            assert!(lanes.next().is_none());
        }
        // Back to two, one look after the other.
        assert_eq!(lanes.look(&mut came), Some(0));
        assert_eq!(lanes.look(&mut came), None);
        let state = lanes.state.lock();
        assert_eq!((state.threads, state.threads_max, state.is_watched), (0, 2, false));
    }
}
