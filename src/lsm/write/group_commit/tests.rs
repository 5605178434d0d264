//! Checks that every commit group wakes all of its waiters. The queue of these tests counts commits
//! and stores nothing.
//!
//! A lost wake-up makes these tests hang. They have no time limit, because a busy machine would
//! exceed any.

#![expect(clippy::disallowed_methods, reason = "tests have threads of their own")]

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier};
use std::task::{Wake, Waker};

use super::*;

/// A queue that counts commits. With a `rule`, commit groups block at the gate.
#[derive(Default)]
struct Counting {
    queued: usize,
    gate: Arc<Gate>,
    rule: Option<Rule>,
}

/// When a commit group may pass the gate.
enum Rule {
    /// After the gate was opened once. The sender reports that the commit group has reached the
    /// gate.
    Opened(Sender<()>),
    /// In every other wave of concurrent commits, after all commits of the wave are queued, so that
    /// some of them find a commit group in progress.
    WholeWave { threads: usize },
}

/// Blocks a commit group until the gate was opened a given number of times.
#[derive(Default)]
struct Gate {
    openings: Mutex<usize>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.openings.lock() += 1;
        self.opened.notify_all();
    }

    fn pass(&self, needed: usize) {
        let mut openings = self.openings.lock();
        while *openings < needed {
            self.opened.wait(&mut openings);
        }
    }
}

impl Queue for Counting {
    type CommitGroup = (Arc<Gate>, usize);
    type Done = ();
    type Syncing = ();

    fn take(&mut self, _need: Durability) -> Self::CommitGroup {
        let needed = match &self.rule {
            None => 0,
            Some(Rule::Opened(waits)) => {
                waits.send(()).unwrap();
                self.rule = None;
                1
            }
            Some(Rule::WholeWave { threads }) => {
                let wave = self.queued.div_ceil(*threads);
                if wave.is_multiple_of(2) { wave * threads } else { 0 }
            }
        };
        (Arc::clone(&self.gate), needed)
    }

    fn carry_out((gate, needed): Self::CommitGroup) -> Result<(), Error> {
        gate.pass(needed);
        Ok(())
    }

    fn finished(&mut self, (): ()) -> bool {
        false
    }

    fn end(&self) -> Position {
        Position::default()
    }

    fn durable(&self) -> Position {
        Position::default()
    }

    fn begin_sync(&self) {}

    fn sync((): &()) -> Result<(), Error> {
        Ok(())
    }

    fn synced(&mut self, (): ()) {}
}

fn submit(group_commit: &GroupCommit<Counting>, durability: Durability) -> Seq {
    let mut state = group_commit.lock();
    let seq = Seq(state.last.0 + 1);
    state.queue.queued += 1;
    group_commit.queued(&mut state, seq, durability);
    seq
}

/// Runs waves of `threads` concurrent commits. A wave ends when all its commits are published.
fn waves(threads: usize, durability: fn(usize) -> Durability) {
    const WAVES: usize = 1000;
    let gate = Arc::new(Gate::default());
    let rule = Some(Rule::WholeWave { threads });
    let queue = Counting { queued: 0, gate: Arc::clone(&gate), rule };
    let (group_commit, barrier) = (GroupCommit::new(queue, Seq(0)), Barrier::new(threads));
    let work = |thread: usize| {
        for wave in 0..WAVES {
            barrier.wait();
            let seq = submit(&group_commit, durability(thread + wave));
            gate.open();
            group_commit.wait(seq).unwrap();
            assert!(group_commit.published() >= seq);
        }
    };
    let work = &work;
    std::thread::scope(|scope| {
        (0..threads).for_each(|thread| drop(scope.spawn(move || work(thread))));
    });
}

#[test]
fn trap_29_a_waiter_of_a_round_in_progress_is_woken_with_it() {
    waves(2, |_| Durability::Sync);
    waves(4, |_| Durability::Sync);
}

#[test]
fn trap_29_a_buffered_commit_behind_a_sync_round_is_woken() {
    waves(2, |i| if i % 2 == 0 { Durability::Sync } else { Durability::Buffered });
    waves(4, |i| if i % 4 == 0 { Durability::Sync } else { Durability::Buffered });
}

struct Flag(Sender<()>);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.send(()).unwrap();
    }
}

#[test]
fn trap_29_a_ticket_polled_during_a_round_is_committed_by_the_next() {
    let group_commit = Arc::new(GroupCommit::new(Counting::default(), Seq(0)));
    let (waits, has_begun) = channel();
    let first = submit(&group_commit, Durability::Sync);
    group_commit.lock().queue.rule = Some(Rule::Opened(waits));
    let leader = {
        let group_commit = Arc::clone(&group_commit);
        std::thread::spawn(move || group_commit.wait(first).unwrap())
    };
    has_begun.recv().unwrap();
    let second = submit(&group_commit, Durability::Sync);
    let (woken, is_woken) = channel();
    let waker = Waker::from(Arc::new(Flag(woken)));
    assert!(group_commit.poll(second, &waker).is_none());
    // The background step that the poll requested begins while the first commit group is in
    // progress.
    let step = {
        let group_commit = Arc::clone(&group_commit);
        std::thread::spawn(move || group_commit.lead_polled())
    };
    group_commit.lock().queue.gate.open();
    is_woken.recv().unwrap();
    assert!(step.join().unwrap());
    leader.join().unwrap();
    assert!(matches!(group_commit.poll(second, &waker), Some(Ok(()))));
}
