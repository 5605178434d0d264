//! Rounds over a queue that writes nothing: who waits is woken.

#![expect(clippy::disallowed_methods, reason = "tests have threads of their own")]

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::task::{Wake, Waker};
use std::time::Duration;

use super::*;

/// Counts what is queued; a round with a gate waits until the gate is opened.
#[derive(Default)]
struct Counting {
    queued: u64,
    gate: Option<(Sender<()>, Arc<Gate>)>,
}

#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.open.lock() = true;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let mut open = self.open.lock();
        while !*open {
            self.opened.wait(&mut open);
        }
    }
}

impl Queue for Counting {
    type Round = Option<(Sender<()>, Arc<Gate>)>;
    type Done = ();

    fn take(&mut self, _need: Durability) -> Self::Round {
        self.queued = 0;
        self.gate.take()
    }

    fn carry_out(round: Self::Round) -> Result<(), Error> {
        if let Some((entered, gate)) = round {
            entered.send(()).unwrap();
            gate.pass();
        }
        // A round takes a while: others find it under way.
        (0..20).for_each(|_| std::thread::yield_now());
        Ok(())
    }

    fn finished(&mut self, (): ()) -> bool {
        false
    }
}

fn submit(rounds: &Rounds<Counting>, durability: Durability) -> Seq {
    let mut state = rounds.lock();
    let seq = Seq(state.last().0 + 1);
    state.queue.queued += 1;
    rounds.queued(&mut state, seq, durability);
    seq
}

/// Runs `work` elsewhere; a waiter that nobody wakes fails the test instead of hanging it.
fn in_bounded_time(work: impl FnOnce() + Send + 'static) {
    let (done, ended) = channel();
    let thread = std::thread::spawn(move || {
        work();
        done.send(()).unwrap();
    });
    match ended.recv_timeout(Duration::from_secs(60)) {
        Err(RecvTimeoutError::Timeout) => panic!("a waiter was left behind"),
        _ => thread.join().unwrap(),
    }
}

/// `threads` commits at once, again and again: at the end of each wave nobody may be asleep.
fn waves(threads: usize, waves: usize, durability: fn(usize) -> Durability) {
    in_bounded_time(move || {
        let rounds = Arc::new(Rounds::new(Counting::default(), Seq(0)));
        let barrier = Arc::new(std::sync::Barrier::new(threads));
        let work = |thread: usize| {
            let (rounds, barrier) = (Arc::clone(&rounds), Arc::clone(&barrier));
            std::thread::spawn(move || {
                for wave in 0..waves {
                    barrier.wait();
                    let seq = submit(&rounds, durability(thread + wave));
                    rounds.wait(seq).unwrap();
                    assert!(rounds.published() >= seq);
                }
            })
        };
        let threads: Vec<_> = (0..threads).map(work).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn trap_29_a_waiter_whose_round_is_under_way_is_woken_with_it() {
    waves(2, 3000, |_| Durability::Sync);
    waves(4, 3000, |_| Durability::Sync);
}

#[test]
fn trap_29_a_buffered_commit_behind_a_sync_round_is_woken() {
    waves(2, 3000, |i| if i % 2 == 0 { Durability::Sync } else { Durability::Buffered });
    waves(4, 3000, |i| if i % 4 == 0 { Durability::Sync } else { Durability::Buffered });
}

struct Flag(Sender<()>);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.send(()).unwrap();
    }
}

#[test]
fn trap_29_who_polls_during_a_round_is_served_by_the_next() {
    let rounds = Arc::new(Rounds::new(Counting::default(), Seq(0)));
    let (entered, has_entered) = channel();
    let gate = Arc::new(Gate::default());
    let first = submit(&rounds, Durability::Sync);
    rounds.lock().queue.gate = Some((entered, Arc::clone(&gate)));
    let leader = {
        let rounds = Arc::clone(&rounds);
        std::thread::spawn(move || rounds.wait(first).unwrap())
    };
    has_entered.recv().unwrap();
    let second = submit(&rounds, Durability::Sync);
    let (woken, is_woken) = channel();
    let waker = Waker::from(Arc::new(Flag(woken)));
    assert!(rounds.poll(second, &waker).is_none());
    // The background step that the poll asked for comes while the first round is under way.
    let step = {
        let rounds = Arc::clone(&rounds);
        std::thread::spawn(move || rounds.lead_polled())
    };
    gate.open();
    is_woken.recv_timeout(Duration::from_secs(60)).expect("the future is woken");
    assert!(step.join().unwrap());
    leader.join().unwrap();
    assert!(matches!(rounds.poll(second, &waker), Some(Ok(()))));
}
