//! Group commit: who waits leads. What shares one write and one sync is a commit group.
//!
//! The protocol
//! 1. under the lock, a commit is put into the queue and [`State::queued`] notes how durable it wants to be;
//! 2. it waits ([`GroupCommit::wait`]); the first waiter without a leader leads: it takes the whole queue,
//!    leaves the lock, carries the commit group out (write, sync), and meanwhile the next commit group fills;
//! 3. back under the lock it publishes the commit group's last Seq, wakes the commit group's
//!    waiters, and one of the next commit group's
//!    to lead it. Nobody else hands on: whoever is woken so finds a leader or leads.
//!
//! Invariants
//! * one leader at a time, so commit groups are written in order and publication is in Seq order;
//! * a commit is published only when it and all before it are as durable as they asked;
//! * after a failed commit group nothing is ever published again: the failure answers every waiter.
//!
//! Locks: `state` is the commit lock of the database. It is never held over a write or a sync.
//!
//! Not here: what is in the queue and how it is written (`commit`).

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::error::Error;
use crate::model::Seq;
use crate::mutants::mutant;
use crate::options::Durability;
use crate::sync::{Condvar, Mutex, MutexGuard};

use crate::lsm::read::published::PublishedSeq;

/// What commit groups are made of.
pub(crate) trait Queue {
    /// Everything a leader needs in order to carry a commit group out without the lock.
    type CommitGroup;
    /// What carrying it out came to.
    type Done;

    /// Takes all that is queued.
    fn take(&mut self, need: Durability) -> Self::CommitGroup;
    /// Writes it, and syncs it if `need` says so. Runs without the lock.
    fn carry_out(group: Self::CommitGroup) -> Result<Self::Done, Error>;
    /// Notes the result, under the lock again. True if it queued something that should be written,
    /// not synced, at once: with nobody waiting, nobody else would.
    fn finished(&mut self, done: Self::Done) -> bool;
}

/// The commit lock, the commit groups under it, and the published Seq.
pub(crate) struct GroupCommit<Q: Queue> {
    state: Mutex<State<Q>>,
    /// Waiters of even and of odd commit groups: the end of one must not wake the next one's crowd.
    ended: [Condvar; 2],
    /// Of those who wait for company: somebody led, or nobody ever will.
    company: Condvar,
    pub(in crate::lsm) published: Arc<PublishedSeq>,
}

/// What the commit lock guards.
pub(crate) struct State<Q> {
    pub(crate) queue: Q,
    /// The number of the commit group that is being filled.
    filling: u64,
    /// A commit group is under way.
    pub(super) leading: bool,
    /// The strictest wish in the commit group being filled.
    need: Durability,
    /// The last Seq queued.
    pub(in crate::lsm) last: Seq,
    /// What the end of the commit group under way publishes: all it took, and what follows up to the first commit that
    /// wants more than `Buffered`.
    ending: Seq,
    /// Why nothing can be written any more.
    pub(in crate::lsm) failed: Option<Error>,
    wakers: Vec<(Seq, Waker)>,
    /// How many wait for company.
    lingering: usize,
}

impl<Q: Queue> GroupCommit<Q> {
    /// Rounds that continue after `last`.
    pub(crate) fn new(queue: Q, last: Seq) -> Self {
        let state = State {
            queue,
            filling: 0,
            leading: false,
            need: Durability::Buffered,
            last,
            ending: last,
            failed: None,
            wakers: Vec::new(),
            lingering: 0,
        };
        Self {
            state: Mutex::new(state),
            ended: [Condvar::new(), Condvar::new()],
            company: Condvar::new(),
            published: Arc::new(PublishedSeq::new(last)),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State<Q>> {
        self.state.lock()
    }

    /// Readers see every commit up to this one. Read it after pinning a view.
    pub(crate) fn published(&self) -> Seq {
        self.published.load()
    }

    /// Notes that `seq` was queued. A `Buffered` commit with nothing stricter before it is published at once.
    pub(crate) fn queued(&self, state: &mut State<Q>, seq: Seq, durability: Durability) {
        debug_assert!(seq > state.last, "Seqs of commits grow");
        state.last = seq;
        if durability == Durability::Buffered && state.need == Durability::Buffered {
            state.ending = seq;
            if !state.leading {
                self.publish(seq);
            }
        } else {
            state.need = state.need.max(durability);
            if mutant!("early-publish") {
                self.publish(seq);
            }
        }
    }

    /// Blocks until `seq` is published; leads commit groups as needed.
    pub(crate) fn wait(&self, seq: Seq) -> Result<(), Error> {
        let mut state = self.lock();
        loop {
            if self.published() >= seq {
                return Ok(());
            }
            state.check()?;
            if state.leading {
                self.ended_of(state.round_of(seq)).wait(&mut state);
            } else {
                state = self.lead(state, Durability::Buffered);
            }
        }
    }

    /// Waits for another thread to lead a commit group with `seq`, until one has ended or `time` has passed.
    pub(crate) fn wait_for_leader(&self, seq: Seq, time: Duration) {
        let mut state = self.lock();
        if self.published() < seq && state.failed.is_none() {
            state.lingering += 1;
            self.company.wait_for(&mut state, time);
            state.lingering -= 1;
        }
    }

    /// Carries out one commit group with all that is queued, at least as durable as `need`; waits for a commit group under way.
    pub(crate) fn flush(&self, need: Durability) -> Result<(), Error> {
        let mut state = self.lock();
        while state.leading && !mutant!("two-leaders") {
            self.ended_of(state.filling - 1).wait(&mut state);
        }
        if state.failed.is_none() {
            state = self.lead(state, need);
        }
        state.check()
    }

    /// Leads a commit group if somebody polls for a commit; one that is under way may leave somebody for the next.
    pub(crate) fn lead_polled(&self) -> bool {
        let mut state = self.lock();
        loop {
            if state.failed.is_some() || state.wakers.is_empty() {
                return false;
            }
            if !state.leading {
                break;
            }
            self.ended_of(state.filling - 1).wait(&mut state);
        }
        drop(self.lead(state, Durability::Buffered));
        true
    }

    /// The state of `seq` now; if it is undecided, `waker` is called when it is decided.
    pub(crate) fn poll(&self, seq: Seq, waker: &Waker) -> Option<Result<(), Error>> {
        let mut state = self.lock();
        if self.published() >= seq {
            return Some(Ok(()));
        }
        if let Some(error) = &state.failed {
            return Some(Err(error.clone()));
        }
        match state.wakers.iter_mut().find(|(of, w)| *of == seq && w.will_wake(waker)) {
            Some((_, known)) => known.clone_from(waker),
            None => state.wakers.push((seq, waker.clone())),
        }
        None
    }

    /// Ends writing for good: `error` answers everybody from now on.
    pub(crate) fn fail(&self, error: Error) {
        let mut state = self.lock();
        state.fail(error);
        drop(self.notify_all(state));
    }

    /// Requires: nobody leads.
    fn lead<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<Q>>,
        need: Durability,
    ) -> MutexGuard<'a, State<Q>> {
        let group = state.filling;
        state.filling += 1;
        state.leading = true;
        let need = state.need.max(need);
        state.need = Durability::Buffered;
        state.ending = state.last;
        let taken = state.queue.take(need);
        drop(state);
        let result = Q::carry_out(taken);
        let mut state = self.lock();
        state.leading = false;
        match result {
            Ok(done) => {
                let more = state.queue.finished(done);
                debug_assert!(state.ending <= state.last, "only what was queued is published");
                self.publish(if mutant!("publish-queued") { state.last } else { state.ending });
                self.ended_of(group).notify_all();
                if state.lingering > 0 {
                    self.company.notify_all();
                }
                if state.last > self.published() && !mutant!("wake-no-leader") {
                    // One of those who wait for the next commit group leads it.
                    self.ended_of(state.filling).notify_one();
                }
                state = self.wake(state);
                if more && !state.leading && state.failed.is_none() {
                    state = self.lead(state, Durability::Os);
                }
                state
            }
            Err(_) if mutant!("forget-failure") => state,
            Err(error) => {
                if mutant!("publish-failed") {
                    self.publish(state.ending);
                }
                state.fail(error.poisoned());
                self.notify_all(state)
            }
        }
    }

    fn ended_of(&self, group: u64) -> &Condvar {
        &self.ended[(group % 2) as usize]
    }

    fn publish(&self, seq: Seq) {
        if seq > self.published() {
            self.published.store(seq);
        }
    }

    /// Wakes all waiters, after a failure.
    fn notify_all<'a>(&'a self, state: MutexGuard<'a, State<Q>>) -> MutexGuard<'a, State<Q>> {
        self.ended[0].notify_all();
        self.company.notify_all();
        if !mutant!("wake-half") {
            self.ended[1].notify_all();
        }
        self.wake(state)
    }

    /// Calls the wakers of all that is decided; without the lock, for a waker may poll at once.
    fn wake<'a>(&'a self, mut state: MutexGuard<'a, State<Q>>) -> MutexGuard<'a, State<Q>> {
        let published = self.published();
        let failed = state.failed.is_some();
        let resolved: Vec<_> =
            state.wakers.extract_if(.., |(seq, _)| failed || *seq <= published).collect();
        if resolved.is_empty() || mutant!("skip-tickets") {
            return state;
        }
        drop(state);
        for (_, waker) in resolved {
            waker.wake();
        }
        self.lock()
    }
}

impl<Q> State<Q> {
    /// Numbers up to `seq` are given out; what ends next publishes them.
    pub(crate) fn raise(&mut self, seq: Seq) {
        self.last = self.last.max(seq);
    }

    /// # Errors
    /// Why nothing can be written any more.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// The commit group whose end decides `seq`. Requires: a commit group is under way.
    fn round_of(&self, seq: Seq) -> u64 {
        let is_taken = seq <= self.ending && !mutant!("wait-next-group");
        if is_taken { self.filling - 1 } else { self.filling }
    }

    fn fail(&mut self, error: Error) {
        // The first failure is the cause of all later ones.
        self.failed.get_or_insert(error);
    }
}

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
