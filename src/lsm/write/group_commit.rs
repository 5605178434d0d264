//! Group commit. The first waiter becomes the leader of its commit group: the commits that share
//! one write and one sync of the log.
//!
//! Invariants
//! * there is one leader at a time, so commit groups are written and published in Seq order;
//! * a commit is published only when it and all commits before it are as durable as requested;
//! * after a failed write or sync nothing more is published, and every waiter gets the failure.
//!
//! Locks: `state` is the database's commit lock. It is never held during a write or a sync.
//! Not here: the queue's contents and their writing (`log_queue`), the commit path (`commit`).

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::error::Error;
use crate::format::record::Position;
use crate::model::Seq;
use crate::mutants::mutant;
use crate::options::Durability;
use crate::sync::{Condvar, Mutex, MutexGuard};

use crate::lsm::read::published::PublishedSeq;

/// A queue of commits, from which a leader takes commit groups.
pub(crate) trait Queue {
    /// The data that a leader needs to write a commit group without holding the lock.
    type CommitGroup;
    /// The result of writing a commit group.
    type Done;
    /// The data that a concurrent sync needs.
    type Syncing;

    /// Takes all queued commits as one commit group.
    fn take(&mut self, need: Durability) -> Self::CommitGroup;
    /// Writes the group, and syncs it if its `need` was `Sync`. Runs without the lock.
    fn carry_out(group: Self::CommitGroup) -> Result<Self::Done, Error>;
    /// Records the result; called under the lock. Returns true if it queued a record that must be
    /// written (not synced) immediately, because no waiter would trigger its write.
    fn finished(&mut self, done: Self::Done) -> bool;

    /// Returns the position after all queued bytes.
    fn end(&self) -> Position;
    /// Returns the position up to which all bytes are durable.
    fn durable(&self) -> Position;
    /// Begins a concurrent sync of the bytes that finished commit groups have written.
    fn begin_sync(&self) -> Self::Syncing;
    /// Syncs these bytes. Runs without the lock.
    fn sync(syncing: &Self::Syncing) -> Result<(), Error>;
    /// Records that the concurrent sync succeeded; called under the lock.
    fn synced(&mut self, syncing: Self::Syncing);
}

/// The commit lock, the commit groups that it guards, and the published Seq.
///
/// The protocol
/// 1. Under the lock, a commit is queued, and [`GroupCommit::queued`] records its requested
///    durability.
/// 2. The committer waits ([`GroupCommit::wait`]). If there is no leader, it becomes the leader: it
///    takes the whole queue, releases the lock, and writes and syncs the group while the next group
///    fills.
/// 3. Under the lock again, the leader publishes the last Seq of the group and wakes the group's
///    waiters. It also wakes one waiter of the next group, which becomes the leader unless there
///    already is one.
///
/// A concurrent sync ([`GroupCommit::sync`]) makes durable what finished commit groups had written
/// when it began. Groups that need no sync are written meanwhile. A group that needs one has no
/// leader before the concurrent sync has ended. The background, which leads the groups of polled
/// commits, may be the thread that syncs. So during a concurrent sync a poll leads its group itself
/// ([`GroupCommit::poll`]).
pub(crate) struct GroupCommit<Q: Queue> {
    state: Mutex<State<Q>>,
    /// Condition variables for the waiters of commit groups with even and with odd numbers. With
    /// two, the end of a group does not wake all waiters of the next group.
    ended: [Condvar; 2],
    /// Wakes committers in [`GroupCommit::wait_for_leader`] when a commit group ends or writing
    /// fails.
    company: Condvar,
    /// Wakes all threads that wait for the end of a sync.
    sync_ended: Condvar,
    pub(in crate::lsm) published: Arc<PublishedSeq>,
}

/// The state that the commit lock guards.
pub(crate) struct State<Q> {
    pub(crate) queue: Q,
    /// The number of the commit group being filled.
    filling: u64,
    /// True while a leader writes a commit group.
    pub(super) leading: bool,
    /// True while a commit group that needs a sync is written, and during a concurrent sync. Two
    /// syncs never overlap: the system reports a failure to only one of two syncs of a file, and
    /// the other one succeeds.
    pub(super) syncing: bool,
    /// The strictest durability requested in the commit group being filled.
    need: Durability,
    /// The last Seq queued.
    pub(in crate::lsm) last: Seq,
    /// The Seq to publish when the commit group in progress ends. It covers the commits of the
    /// group, and later commits before the first one stricter than `Buffered`.
    ending: Seq,
    /// The error that ended writing, if any.
    pub(in crate::lsm) failed: Option<Error>,
    wakers: Vec<(Seq, Waker)>,
    /// The number of committers in [`GroupCommit::wait_for_leader`].
    lingering: usize,
}

impl<Q: Queue> GroupCommit<Q> {
    /// Creates an empty group commit. The Seqs of its commits are above `last`.
    pub(crate) fn new(queue: Q, last: Seq) -> Self {
        let state = State {
            queue,
            filling: 0,
            leading: false,
            syncing: false,
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
            sync_ended: Condvar::new(),
            published: Arc::new(PublishedSeq::new(last)),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State<Q>> {
        self.state.lock()
    }

    /// Returns the Seq up to which readers see all commits. Load it after pinning a view.
    pub(crate) fn published(&self) -> Seq {
        self.published.load()
    }

    /// Records that `seq` was queued. If no earlier queued commit is stricter, a `Buffered` commit
    /// is published immediately or, if there is a leader, at the end of its commit group.
    pub(crate) fn queued(&self, state: &mut State<Q>, seq: Seq, durability: Durability) {
        debug_assert!(seq > state.last, "Seqs of commits grow");
        debug_assert!(state.ending <= state.last, "only queued commits are published");
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

    /// Waits until `seq` is published. If there is no leader, leads commit groups meanwhile.
    pub(crate) fn wait(&self, seq: Seq) -> Result<(), Error> {
        let mut state = self.lock();
        loop {
            if self.published() >= seq {
                return Ok(());
            }
            state.check()?;
            if state.leading {
                self.ended_of(state.round_of(seq)).wait(&mut state);
            } else if state.must_wait_for_sync(Durability::Buffered) {
                self.sync_ended.wait(&mut state);
            } else {
                state = self.lead(state, Durability::Buffered);
            }
        }
    }

    /// Waits until another committer has led a commit group, but at most for `time`. Returns
    /// immediately if `seq` is *decided*: published or failed.
    pub(crate) fn wait_for_leader(&self, seq: Seq, time: Duration) {
        let mut state = self.lock();
        if self.published() < seq && state.failed.is_none() {
            state.lingering += 1;
            self.company.wait_for(&mut state, time);
            state.lingering -= 1;
        }
    }

    /// Waits for a group in progress, then leads a commit group of everything queued, with at least
    /// the durability `need`.
    pub(crate) fn flush(&self, need: Durability) -> Result<(), Error> {
        let mut state = self.lock();
        while self.wait_to_lead(&mut state, need) {}
        if state.failed.is_none() {
            state = self.lead(state, need);
        }
        state.check()
    }

    /// Makes everything queued durable by a concurrent sync, for which commits weaker than `Sync`
    /// do not wait. Does not sync if another sync meanwhile covers everything. Finally writes the
    /// records queued meanwhile, because the first one states the new durable offset.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        let end = self.lock().queue.end();
        self.flush(Durability::Os)?;
        let mut state = self.lock();
        loop {
            state.check()?;
            if state.queue.durable() >= end {
                return self.write_after(state, end);
            }
            if !state.syncing {
                break;
            }
            self.sync_ended.wait(&mut state);
        }
        state.syncing = true;
        let syncing = state.queue.begin_sync();
        drop(self.wake(state));
        let result = Q::sync(&syncing);
        let mut state = self.lock();
        state.syncing = false;
        if let Err(error) = result {
            state.fail(error.poisoned());
            return self.notify_all(state).check();
        }
        state.queue.synced(syncing);
        debug_assert!(state.queue.durable() >= end, "the sync covers what was queued before it");
        self.sync_ended.notify_all();
        self.write_after(state, end)
    }

    /// Writes the queued records, if there are any after `end`.
    fn write_after(&self, state: MutexGuard<'_, State<Q>>, end: Position) -> Result<(), Error> {
        let is_written = state.queue.end() <= end;
        drop(state);
        if is_written { Ok(()) } else { self.flush(Durability::Os) }
    }

    /// Waits for the end of the sync in progress. Returns false if there is none.
    pub(crate) fn wait_for_sync(&self) -> bool {
        let mut state = self.lock();
        let is_syncing = state.syncing;
        if is_syncing {
            self.sync_ended.wait(&mut state);
        }
        is_syncing
    }

    /// Leads one commit group if a polled commit (one awaited as a future) is undecided. First
    /// waits for a group in progress, which may not include all polled commits. Returns false if
    /// there was nothing to lead.
    pub(crate) fn lead_polled(&self) -> bool {
        let mut state = self.lock();
        loop {
            if state.failed.is_some() || state.wakers.is_empty() {
                return false;
            }
            if !self.wait_to_lead(&mut state, Durability::Buffered) {
                break;
            }
        }
        drop(self.lead(state, Durability::Buffered));
        true
    }

    /// Returns the result of `seq`. While `seq` is undecided, returns `None` and registers `waker`,
    /// which is woken when `seq` is decided or can be decided by another poll. During a concurrent
    /// sync, leads the commit group unless the group needs a sync, too.
    pub(crate) fn poll(&self, seq: Seq, waker: &Waker) -> Option<Result<(), Error>> {
        let mut state = self.lock();
        if self.published() < seq && state.failed.is_none() && state.is_led_by_polls() {
            state = self.lead(state, Durability::Buffered);
        }
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

    /// Ends writing permanently: every waiter and every later commit gets `error`.
    pub(crate) fn fail(&self, error: Error) {
        let mut state = self.lock();
        state.fail(error);
        drop(self.notify_all(state));
    }

    /// Waits for the commit group in progress or, if the next one needs a sync, for the sync in
    /// progress. Returns false if there is nothing to wait for.
    fn wait_to_lead(&self, state: &mut MutexGuard<'_, State<Q>>, need: Durability) -> bool {
        let is_led = state.leading && !mutant!("two-leaders");
        if is_led {
            self.ended_of(state.filling - 1).wait(state);
        } else if state.must_wait_for_sync(need) {
            self.sync_ended.wait(state);
        } else {
            return false;
        }
        true
    }

    /// Leads one commit group. Requires: there is no leader, and no sync in progress if the group
    /// needs one.
    fn lead<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<Q>>,
        need: Durability,
    ) -> MutexGuard<'a, State<Q>> {
        debug_assert!(!state.leading || mutant!("two-leaders"), "one thread leads at a time");
        debug_assert!(state.failed.is_none(), "nothing is written after a failure");
        let group = state.filling;
        state.filling += 1;
        state.leading = true;
        let need = state.need.max(need);
        let is_sync = need == Durability::Sync;
        state.need = Durability::Buffered;
        state.syncing |= is_sync;
        state.ending = state.last;
        let taken = state.queue.take(need);
        drop(state);
        let result = Q::carry_out(taken);
        let mut state = self.lock();
        state.leading = false;
        if is_sync {
            state.syncing = false;
            self.sync_ended.notify_all();
        }
        match result {
            // If a concurrent sync has failed, bytes before those of the group may be lost.
            Ok(_) if state.failed.is_some() && !mutant!("publish-after-sync") => {
                self.notify_all(state)
            }
            Ok(done) => {
                let more = state.queue.finished(done);
                debug_assert!(state.ending <= state.last, "only what was queued is published");
                self.publish(state.ending);
                self.ended_of(group).notify_all();
                if state.lingering > 0 {
                    self.company.notify_all();
                }
                if state.last > self.published() && !mutant!("wake-no-leader") {
                    // Wake one waiter of the next commit group, which becomes its leader.
                    self.ended_of(state.filling).notify_one();
                }
                state = self.wake(state);
                let may_lead = !state.leading && !state.must_wait_for_sync(Durability::Os);
                if more && may_lead && state.failed.is_none() {
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

    /// Wakes all waiters after a failure.
    fn notify_all<'a>(&'a self, state: MutexGuard<'a, State<Q>>) -> MutexGuard<'a, State<Q>> {
        self.ended[0].notify_all();
        self.company.notify_all();
        self.ended[1].notify_all();
        self.sync_ended.notify_all();
        self.wake(state)
    }

    /// Wakes the wakers of all decided commits, and all wakers if polls lead the next commit group.
    /// Releases the lock meanwhile, because a waker may poll immediately.
    fn wake<'a>(&'a self, mut state: MutexGuard<'a, State<Q>>) -> MutexGuard<'a, State<Q>> {
        let published = self.published();
        let is_all = state.failed.is_some() || state.is_led_by_polls();
        let resolved: Vec<_> =
            state.wakers.extract_if(.., |(seq, _)| is_all || *seq <= published).collect();
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
    /// Raises the last Seq in use to `seq`. The end of the next commit group publishes it.
    pub(crate) fn raise(&mut self, seq: Seq) {
        self.last = self.last.max(seq);
    }

    /// Checks that writing has not ended.
    ///
    /// # Errors
    /// The error that ended writing.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// True if the next commit group, with at least the durability `need`, needs a sync and another
    /// sync is in progress.
    fn must_wait_for_sync(&self, need: Durability) -> bool {
        self.syncing && self.need.max(need) == Durability::Sync && !mutant!("overlapping-syncs")
    }

    /// True if polls lead the next commit group: there is a concurrent sync but no leader, and the
    /// group needs no sync.
    fn is_led_by_polls(&self) -> bool {
        self.syncing && !self.leading && !self.must_wait_for_sync(Durability::Buffered)
    }

    /// Returns the number of the commit group that decides `seq`. Requires a commit group in
    /// progress.
    fn round_of(&self, seq: Seq) -> u64 {
        let is_taken = seq <= self.ending && !mutant!("wait-next-group");
        if is_taken { self.filling - 1 } else { self.filling }
    }

    fn fail(&mut self, error: Error) {
        // Keep the first failure, because it caused all later ones.
        self.failed.get_or_insert(error);
    }
}

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
