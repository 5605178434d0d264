//! Loom models of group commit: each test runs under every interleaving of its threads. The queue
//! of these models only records writes and syncs.
//!
//! The records are relaxed atomics, so a reader sees them only through the ordering that group
//! commit itself provides. Loom reports a thread that is never woken as a deadlock.

use std::sync::Arc;
use std::task::Wake;

use loom::thread;

use super::*;
use crate::error::ErrorKind;
use crate::format::names::FileNumber;
use crate::sync::{AtomicBool, AtomicU64, Ordering, check_model};

/// The writes and syncs of leaders, and the requested durability of each commit.
#[derive(Default)]
struct Disk {
    written: AtomicU64,
    synced: AtomicU64,
    /// True while a sync is in progress.
    syncing: AtomicBool,
    /// This lock of `std` never blocks, because loom does not switch threads while it is held.
    asked: std::sync::Mutex<Vec<(Seq, Durability)>>,
}

impl Disk {
    fn sync(&self, last: Seq) {
        let is_other = self.syncing.swap(true, Ordering::Relaxed);
        assert!(!is_other, "two syncs of a file overlap");
        self.synced.fetch_max(last.0, Ordering::Relaxed);
        self.syncing.store(false, Ordering::Relaxed);
    }
}

struct Recorder {
    disk: Arc<Disk>,
    last: Seq,
    /// The last Seq of the last commit group that was written, and of the last one synced.
    written: Seq,
    synced: Seq,
    /// True if concurrent syncs fail.
    bad_syncs: bool,
    /// Concurrent syncs end only after this signal.
    sync_end: Option<Arc<Signal>>,
    /// The number of commit groups that succeed before one fails.
    good: usize,
    /// True if a sync of an empty queue queues a record that must be written immediately.
    durable_claims: bool,
}

struct Taken {
    disk: Arc<Disk>,
    last: Seq,
    is_sync: bool,
    fails: bool,
    sync_end: Option<Arc<Signal>>,
}

impl Queue for Recorder {
    type CommitGroup = Taken;
    type Done = Taken;
    type Syncing = Taken;

    fn take(&mut self, need: Durability) -> Taken {
        let fails = self.good == 0;
        self.good = self.good.saturating_sub(1);
        let is_sync = need == Durability::Sync;
        let (disk, last) = (Arc::clone(&self.disk), self.last);
        Taken { disk, last, is_sync, fails, sync_end: None }
    }

    fn carry_out(group: Taken) -> Result<Taken, Error> {
        let before = group.disk.written.load(Ordering::Relaxed);
        assert!(before <= group.last.0, "rounds are written in order");
        if group.fails {
            return Err(Error::new(ErrorKind::Io, "write a round"));
        }
        group.disk.written.store(group.last.0, Ordering::Relaxed);
        if group.is_sync {
            group.disk.sync(group.last);
        }
        Ok(group)
    }

    fn finished(&mut self, done: Taken) -> bool {
        self.written = done.last;
        if done.is_sync {
            self.synced = done.last;
        }
        done.is_sync && self.durable_claims && self.last == done.last
    }

    fn end(&self) -> Position {
        position(self.last)
    }

    fn durable(&self) -> Position {
        position(self.synced)
    }

    fn begin_sync(&self) -> Taken {
        let (disk, last) = (Arc::clone(&self.disk), self.written);
        let sync_end = self.sync_end.clone();
        Taken { disk, last, is_sync: true, fails: self.bad_syncs, sync_end }
    }

    fn sync(syncing: &Taken) -> Result<(), Error> {
        if syncing.fails {
            return Err(Error::new(ErrorKind::Io, "sync the log"));
        }
        if let Some(end) = &syncing.sync_end {
            end.wait();
        }
        syncing.disk.sync(syncing.last);
        Ok(())
    }

    fn synced(&mut self, done: Taken) {
        self.synced = done.last;
    }
}

fn position(seq: Seq) -> Position {
    Position { file: FileNumber(1), offset: seq.0 }
}

/// The group commit and its disk, shared by the threads of a model.
#[derive(Clone)]
struct Model {
    group_commit: Arc<GroupCommit<Recorder>>,
    disk: Arc<Disk>,
}

impl Model {
    fn new() -> Self {
        Self::failing_after(usize::MAX)
    }

    /// Creates a model in which the first `good` commit groups succeed and the next one fails.
    fn failing_after(good: usize) -> Self {
        let disk = Arc::new(Disk::default());
        let queue = Recorder {
            disk: Arc::clone(&disk),
            last: Seq::ZERO,
            written: Seq::ZERO,
            synced: Seq::ZERO,
            bad_syncs: false,
            sync_end: None,
            good,
            durable_claims: false,
        };
        Self { group_commit: Arc::new(GroupCommit::new(queue, Seq::ZERO)), disk }
    }

    fn claiming_durable() -> Self {
        let model = Self::new();
        model.group_commit.lock().queue.durable_claims = true;
        model
    }

    fn spawn(&self, run: impl FnOnce(Model) + 'static) -> thread::JoinHandle<()> {
        let model = self.clone();
        thread::spawn(move || run(model))
    }

    /// Queues a commit, as `Writer::submit` does.
    fn submit(&self, durability: Durability) -> Result<Seq, Error> {
        let mut state = self.group_commit.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        let seq = Seq(state.last.0 + 1);
        state.queue.last = seq;
        self.disk.asked.lock().unwrap().push((seq, durability));
        self.group_commit.queued(&mut state, seq, durability);
        Ok(seq)
    }

    fn commit(&self, durability: Durability) -> Result<Seq, Error> {
        let seq = self.submit(durability)?;
        self.group_commit.wait(seq)?;
        assert!(self.published() >= seq, "a commit returns when it is visible");
        Ok(seq)
    }

    /// Returns the published Seq, after asserting that every commit up to it is as durable as
    /// requested.
    fn published(&self) -> Seq {
        let published = self.group_commit.published();
        let written = Seq(self.disk.written.load(Ordering::Relaxed));
        let synced = Seq(self.disk.synced.load(Ordering::Relaxed));
        for (seq, durability) in self.disk.asked.lock().unwrap().iter() {
            let durable = match durability {
                Durability::Buffered => Seq::MAX,
                Durability::Os => written,
                Durability::Sync => synced,
            };
            assert!(
                *seq > published || *seq <= durable,
                "{seq} published before its {durability:?}"
            );
        }
        published
    }
}

/// Runs one thread for each list in `wishes`. The thread commits once for each durability in its
/// list.
#[track_caller]
fn check_commits(durable_claims: bool, wishes: &'static [&'static [Durability]]) {
    check_model(move || {
        let model = if durable_claims { Model::claiming_durable() } else { Model::new() };
        let run = |model: &Model, wishes: &[Durability]| {
            for durability in wishes {
                model.commit(*durability).unwrap();
            }
        };
        let (mine, others) = wishes.split_last().unwrap();
        let spawned: Vec<_> =
            others.iter().map(|wishes| model.spawn(move |model| run(&model, wishes))).collect();
        run(&model, mine);
        for thread in spawned {
            thread.join().unwrap();
        }
        let all = wishes.iter().map(|wishes| wishes.len() as u64).sum();
        assert_eq!(model.published(), Seq(all));
    });
}

const BUFFERED: Durability = Durability::Buffered;
const OS: Durability = Durability::Os;
const SYNC: Durability = Durability::Sync;

/// Every commit returns and is visible. The end of a commit group wakes the waiters of that group,
/// and one waiter of the next group to lead it.
#[test]
fn trap_29_loom_two_threads_share_rounds() {
    check_commits(false, &[&[SYNC, SYNC], &[SYNC, SYNC]]);
}

/// With three threads, every commit returns and is visible. If several threads wait for the next
/// commit group, one of them is woken to lead it.
#[test]
fn trap_29_loom_three_threads_share_rounds() {
    check_commits(false, &[&[SYNC], &[SYNC], &[SYNC]]);
}

/// Commits with different requested durabilities all return and are visible.
#[test]
fn trap_29_loom_every_durability_at_once() {
    check_commits(false, &[&[SYNC], &[OS], &[BUFFERED]]);
}

/// A weak commit that is queued after a stricter one is published together with it, and the waiters
/// of both commits are woken.
#[test]
fn trap_29_loom_weak_commits_wait_for_stricter_ones_before_them() {
    check_commits(false, &[&[BUFFERED, SYNC], &[BUFFERED, BUFFERED]]);
    check_commits(false, &[&[BUFFERED], &[BUFFERED], &[OS]]);
}

/// A record that a sync queues, with no commit after it, is written immediately and does not keep
/// other threads from leading.
#[test]
fn loom_an_empty_record_follows_a_sync() {
    check_commits(true, &[&[SYNC, BUFFERED], &[OS]]);
}

/// A published commit is as durable as requested, and so are all commits before it.
#[test]
fn trap_17_loom_published_commits_are_durable_and_only_grow() {
    check_model(|| {
        let model = Model::new();
        let sync = model.spawn(|model| {
            model.commit(SYNC).unwrap();
        });
        let soft = model.spawn(|model| {
            model.commit(OS).unwrap();
            model.commit(BUFFERED).unwrap();
        });
        let first = model.published();
        assert!(first <= model.published());
        sync.join().unwrap();
        soft.join().unwrap();
    });
}

/// A commit whose ticket (the future of its result) is dropped is not lost and blocks no other
/// commit.
#[test]
fn loom_a_dropped_ticket_is_committed_by_the_next_committer() {
    check_model(|| {
        let model = Model::new();
        let ticket = model.spawn(|model| {
            model.submit(SYNC).unwrap();
        });
        let other = model.spawn(|model| {
            model.commit(OS).unwrap();
        });
        ticket.join().unwrap();
        let seq = model.commit(SYNC).unwrap();
        assert!(model.published() >= seq);
        other.join().unwrap();
    });
}

/// A flush covers all commits queued before it. Commit groups stay in order, because only one
/// thread leads at a time.
#[test]
fn loom_a_flush_with_concurrent_waiters() {
    check_model(|| {
        let model = Model::new();
        let committer = model.spawn(|model| {
            model.commit(BUFFERED).unwrap();
            model.commit(SYNC).unwrap();
        });
        let other = model.spawn(|model| {
            model.commit(OS).unwrap();
        });
        let before = model.group_commit.lock().last;
        model.group_commit.flush(SYNC).unwrap();
        assert!(
            model.disk.synced.load(Ordering::Relaxed) >= before.0,
            "a flush covers all before it"
        );
        assert!(model.published() >= before);
        committer.join().unwrap();
        other.join().unwrap();
    });
}

/// Two flushes, which lead without a commit of their own, and one waiting committer all return.
#[test]
fn loom_two_flushes_with_a_concurrent_waiter() {
    check_model(|| {
        let model = Model::claiming_durable();
        let committer = model.spawn(|model| {
            model.commit(SYNC).unwrap();
        });
        let flusher = model.spawn(|model| model.group_commit.flush(BUFFERED).unwrap());
        model.group_commit.flush(SYNC).unwrap();
        committer.join().unwrap();
        flusher.join().unwrap();
    });
}

/// A concurrent sync covers all commits queued before it, and does not overlap the sync of a commit
/// group or another concurrent sync.
#[test]
fn trap_63_loom_a_concurrent_sync_with_concurrent_waiters() {
    check_model(|| {
        let model = Model::claiming_durable();
        let committer = model.spawn(|model| {
            model.commit(OS).unwrap();
            model.commit(SYNC).unwrap();
        });
        let before = model.submit(BUFFERED).unwrap();
        model.group_commit.sync().unwrap();
        let synced = model.disk.synced.load(Ordering::Relaxed);
        assert!(synced >= before.0, "a sync covers all before it");
        assert!(model.published() >= before);
        committer.join().unwrap();
    });
    check_model(|| {
        let model = Model::new();
        let sync = |model: Model| {
            let before = model.commit(OS).unwrap();
            model.group_commit.sync().unwrap();
            let synced = model.disk.synced.load(Ordering::Relaxed);
            assert!(synced >= before.0, "a sync covers all before it");
        };
        let other = model.spawn(sync);
        sync(model);
        other.join().unwrap();
    });
}

/// A thread that waits for a sync continues at its end.
#[test]
fn trap_29_loom_a_wait_for_a_concurrent_sync_ends() {
    check_model(|| {
        let model = Model::new();
        let other = model.spawn(|model| {
            model.commit(OS).unwrap();
            model.group_commit.sync().unwrap();
        });
        model.commit(OS).unwrap();
        if !model.group_commit.wait_for_sync() {
            model.group_commit.sync().unwrap();
        }
        other.join().unwrap();
    });
}

/// After a failed concurrent sync every waiter gets the failure, and nothing is published, not even
/// a commit group that was written during the sync.
#[test]
fn trap_02_loom_a_failed_concurrent_sync_fails_every_waiter() {
    for wishes in [&[OS, OS], &[OS, SYNC]] {
        check_model(move || {
            let model = Model::new();
            model.group_commit.lock().queue.bad_syncs = true;
            let spawned: Vec<_> = wishes
                .iter()
                .map(|wish| {
                    model.spawn(|model| match model.commit(*wish) {
                        Ok(seq) => assert!(seq <= model.published()),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Poisoned),
                    })
                })
                .collect();
            drop(model.submit(BUFFERED));
            let result = model.group_commit.sync();
            let published = model.published();
            for thread in spawned {
                thread.join().unwrap();
            }
            if let Err(error) = result {
                assert_eq!(error.kind(), ErrorKind::Poisoned);
                assert_eq!(model.published(), published, "nothing is published after a failure");
                assert!(model.commit(BUFFERED).is_err() && model.group_commit.sync().is_err());
            }
        });
    }
}

/// Lets the first `good` commit groups succeed and the next one fail.
#[track_caller]
fn check_failure(good: usize, wishes: &'static [Durability]) {
    check_model(move || {
        let model = Model::failing_after(good);
        let spawned: Vec<_> = wishes
            .iter()
            .map(|wish| {
                model.spawn(|model| match model.commit(*wish) {
                    Ok(seq) => assert!(seq <= model.published()),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Poisoned),
                })
            })
            .collect();
        let flushed = model.group_commit.flush(SYNC);
        let known = model.group_commit.lock().failed.is_some();
        let published = model.published();
        assert!(flushed.is_ok() || known);
        for thread in spawned {
            thread.join().unwrap();
        }
        if known {
            assert_eq!(model.published(), published, "nothing is published after a failure");
            assert!(model.commit(BUFFERED).is_err() && model.group_commit.flush(OS).is_err());
        }
    });
}

/// After a failed commit group every waiter gets the failure, nothing is published, and no commit
/// is accepted.
#[test]
fn loom_a_failed_round_fails_every_waiter() {
    check_failure(0, &[SYNC, SYNC]);
    check_failure(0, &[OS, BUFFERED]);
    check_failure(1, &[SYNC, OS]);
}

/// A failure outside a commit group (of the manifest, or by a close) has the same effects as a
/// failed commit group.
#[test]
fn loom_a_failure_from_outside_fails_every_waiter() {
    check_model(|| {
        let model = Model::new();
        let committers = [SYNC, OS].map(|wish| {
            model.spawn(move |model| match model.commit(wish) {
                Ok(seq) => assert!(seq <= model.published()),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Poisoned),
            })
        });
        model.group_commit.fail(Error::new(ErrorKind::Poisoned, "append to the manifest"));
        assert!(model.commit(BUFFERED).is_err());
        for thread in committers {
            thread.join().unwrap();
        }
    });
}

/// A flag that a thread can wait for. Once set, it stays set.
#[derive(Default)]
struct Signal {
    given: Mutex<bool>,
    wake: Condvar,
}

impl Signal {
    fn give(&self) {
        *self.given.lock() = true;
        self.wake.notify_all();
    }

    fn wait(&self) {
        let mut given = self.given.lock();
        while !*given {
            self.wake.wait(&mut given);
        }
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.give();
    }
}

/// Polls for `seq` until it is decided. Signals `lane`, as a polled ticket signals the background
/// thread that serves the log.
fn await_commit(model: &Model, seq: Seq, lane: &Signal) -> Result<(), Error> {
    loop {
        let woken = Arc::new(Signal::default());
        let polled = model.group_commit.poll(seq, &Waker::from(Arc::clone(&woken)));
        lane.give();
        match polled {
            Some(result) => return result,
            None => woken.wait(),
        }
    }
}

/// One thread polls a ticket. A second thread, which the ticket signals, leads commit groups. Other
/// threads commit.
#[track_caller]
fn check_polled(good: usize, committers: &'static [Durability]) {
    check_model(move || {
        let model = Model::failing_after(good);
        let lane = Arc::new(Signal::default());
        let step = model.spawn({
            let lane = Arc::clone(&lane);
            move |model| {
                lane.wait();
                model.group_commit.lead_polled();
            }
        });
        let spawned: Vec<_> =
            committers.iter().map(|wish| model.spawn(|model| drop(model.commit(*wish)))).collect();
        match model.submit(SYNC) {
            Ok(seq) => {
                let result = await_commit(&model, seq, &lane);
                assert_eq!(result.is_ok(), model.published() >= seq);
            }
            Err(_) => lane.give(),
        }
        step.join().unwrap();
        for thread in spawned {
            thread.join().unwrap();
        }
    });
}

/// A polled ticket is decided, and its waker is called.
#[test]
fn trap_29_loom_a_polled_ticket_is_led_in_the_background() {
    check_polled(usize::MAX, &[]);
    check_polled(usize::MAX, &[SYNC]);
}

/// The waker of a ticket is also called for a failure.
#[test]
fn loom_a_polled_ticket_reports_a_failure() {
    check_polled(0, &[OS]);
    check_polled(1, &[OS]);
}

/// A polled ticket weaker than `Sync` is decided during a concurrent sync, although the thread that
/// leads the groups of polled commits is in that sync. If the ticket waits for the sync, this is a
/// deadlock.
#[test]
fn trap_63_loom_a_polled_ticket_during_a_concurrent_sync() {
    for committers in [0, 1] {
        check_model(move || {
            let (model, end) = (Model::new(), Arc::new(Signal::default()));
            model.group_commit.lock().queue.sync_end = Some(Arc::clone(&end));
            model.submit(OS).unwrap();
            let lane = model.spawn(|model| model.group_commit.sync().unwrap());
            let others: Vec<_> =
                (0..committers).map(|_| model.spawn(|model| drop(model.commit(OS)))).collect();
            let seq = model.submit(OS).unwrap();
            await_commit(&model, seq, &Signal::default()).unwrap();
            end.give();
            lane.join().unwrap();
            for thread in others {
                thread.join().unwrap();
            }
        });
    }
}

/// The waker of a ticket is also called if a concurrent sync fails.
#[test]
fn trap_02_loom_a_polled_ticket_reports_a_failed_concurrent_sync() {
    for wish in [OS, SYNC] {
        check_model(move || {
            let model = Model::new();
            model.group_commit.lock().queue.bad_syncs = true;
            model.submit(OS).unwrap();
            let lane = model.spawn(|model| drop(model.group_commit.sync()));
            if let Ok(seq) = model.submit(wish) {
                // The lane leads polled commits after a sync that succeeds. This one fails, or the
                // commit group before it includes the ticket.
                let result = await_commit(&model, seq, &Signal::default());
                assert_eq!(result.is_ok(), model.published() >= seq);
            }
            lane.join().unwrap();
        });
    }
}

/// A waker that polls again when it is woken, like an executor that runs tasks in place.
struct PollsAgain {
    model: Model,
    seq: Seq,
    resolved: std::sync::Mutex<Option<bool>>,
}

impl Wake for PollsAgain {
    fn wake(self: Arc<Self>) {
        let polled = self.model.group_commit.poll(self.seq, Waker::noop());
        *self.resolved.lock().unwrap() = polled.map(|result| result.is_ok());
    }
}

/// Wakers are called without the commit lock, so a waker may poll immediately.
#[test]
fn loom_a_waker_may_poll_at_once() {
    for good in [0, 1] {
        check_model(move || {
            let model = Model::failing_after(good);
            let seq = model.submit(SYNC).unwrap();
            let resolved = std::sync::Mutex::default();
            let polls = Arc::new(PollsAgain { model: model.clone(), seq, resolved });
            assert!(model.group_commit.poll(seq, &Waker::from(Arc::clone(&polls))).is_none());
            let other = model.spawn(|model| drop(model.commit(OS)));
            drop(model.commit(OS));
            other.join().unwrap();
            assert_eq!(*polls.resolved.lock().unwrap(), Some(good > 0));
        });
    }
}
