//! Tests of syncs of the log. A guard of the file system runs commits during a sync, on the thread
//! that syncs, so that no test depends on timing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use smallvec::smallvec;

use super::*;
use crate::clock::ManualClock;
use crate::executor::{Step, Worker};
use crate::format::key::user_key;
use crate::format::names::TableId;
use crate::fs::{FaultFs, MemFs, OpKind};
use crate::lsm::Engine;
use crate::lsm::write::batch::{Action, Batch, Condition, Gate, Op, PackedRow, TableChange};
use crate::model::Entity;
use crate::options::{Background, Options};

const NOW: u64 = 133_000_000_000_000_000;
const TABLE: TableId = TableId(7);

/// A database in memory without background threads.
struct Subject {
    memory: MemFs,
    fs: FaultFs,
    clock: Arc<ManualClock>,
    engine: Arc<Engine>,
}

impl Subject {
    fn new() -> Self {
        Self::on(MemFs::new())
    }

    fn on(memory: MemFs) -> Self {
        let fs = FaultFs::new(Arc::new(memory.clone()));
        let clock = Arc::new(ManualClock::new(NOW));
        let options = Options::default().fs(Arc::new(fs.clone())).clock(clock.clone());
        let options = options.background(Background::Manual);
        let options = Options { log_allocate_bytes: 16 << 10, ..options };
        let engine = crate::lsm::open("db".as_ref(), options).unwrap();
        Self { memory, fs, clock, engine }
    }

    /// Runs `work` once, during the next sync of a file.
    fn during_sync(&self, work: impl Fn(&Engine) + Send + Sync + 'static) {
        let (engine, is_next) = (Arc::downgrade(&self.engine), AtomicBool::new(true));
        self.fs.guard_syncs(move |op, _| {
            if op == OpKind::Sync && is_next.swap(false, Ordering::SeqCst) {
                work(&engine.upgrade().unwrap());
            }
            true
        });
    }

    fn sync(&self) {
        self.engine.writer().sync().unwrap();
    }

    fn queue<R>(&self, read: impl FnOnce(&LogQueue) -> R) -> R {
        read(&self.engine.writer().group_commit.lock().queue)
    }

    fn has(&self, name: &str) -> bool {
        let key = user_key(TABLE, "p", name);
        self.engine.reader().get(&key, None, |_, _| Ok(())).unwrap().is_some()
    }
}

/// Queues a row of about 1 KiB.
fn submit(engine: &Engine, name: &str, durability: Durability) -> Seq {
    let (key, shapes) = (user_key(TABLE, "p", name), &engine.env().shapes);
    let row = Entity::new("p", name).with("Filler", vec![7; 1000]).to_row(shapes).unwrap();
    let batch = Batch {
        ops: smallvec![Op {
            hash: engine.env().hash(&key),
            key: key.into(),
            condition: Condition::Any,
            action: Action::Put(PackedRow::of(row, shapes)),
        }],
        changes: Vec::new(),
        ..Batch::of_change(&Arc::new(Gate::new(TABLE)), TableChange::Created(TABLE))
    };
    engine.writer().submit(engine.maintenance(), &batch, durability).unwrap()
}

fn commit(engine: &Engine, name: &str) {
    let seq = submit(engine, name, Durability::Os);
    engine.writer().group_commit.wait(seq).unwrap();
}

/// A polled commit is there again at each step of the background. It must not keep the step from
/// the sync.
#[test]
fn trap_63_polled_commits_do_not_defer_a_due_sync() {
    let subject = Subject::new();
    let seq = submit(&subject.engine, "a", Durability::Os);
    let group_commit = &subject.engine.writer().group_commit;
    assert!(group_commit.poll(seq, Waker::noop()).is_none());
    subject.clock.advance(WEAK_SYNC_EVERY);
    assert!(subject.queue(LogQueue::unsynced_bytes) > 0);
    assert_eq!(subject.engine.maintenance().step(Lane::Log), Step::Worked);
    assert!(group_commit.poll(seq, Waker::noop()).is_some_and(|result| result.is_ok()));
    assert_eq!(subject.queue(LogQueue::unsynced_bytes), 0);
}

/// During a sync the background cannot allocate log space. The commit that nearly fills the space
/// allocates more after it has released the commit lock.
#[test]
fn commits_during_a_sync_allocate_log_space_ahead() {
    let subject = Subject::new();
    commit(&subject.engine, "first");
    let before = subject.fs.count(OpKind::Allocate);
    subject.during_sync(|engine| {
        for i in 0..80 {
            commit(engine, &i.to_string());
            let queue = &engine.writer().group_commit.lock().queue;
            assert!(queue.end + queue.allocated / 8 < queue.allocated, "commit {i}");
        }
    });
    subject.sync();
    // The log grows from 16 KiB to 128 KiB.
    assert_eq!(subject.fs.count(OpKind::Allocate) - before, 3);
    assert!(subject.has("first") && subject.has("79"));
}

/// A later sync covers the old log only if it was written to after the sync during which the log
/// was switched.
#[test]
fn trap_02_the_log_is_switched_during_a_sync() {
    for is_written in [false, true] {
        let subject = Subject::new();
        commit(&subject.engine, "a");
        subject.engine.maintenance().prepare_log().unwrap();
        subject.during_sync(move |engine| {
            if is_written {
                commit(engine, "b");
            }
            engine.maintenance().freeze().unwrap();
            commit(engine, "c");
        });
        subject.sync();
        let syncs = subject.queue(|queue| queue.syncs);
        subject.sync();
        assert_eq!(subject.queue(|queue| queue.syncs) - syncs, 1 + u64::from(is_written));
        for seed in 0..8 {
            let again = Subject::on(subject.memory.crash_image(seed));
            assert!(again.has("a") && again.has("c"));
            assert_eq!(again.has("b"), is_written);
        }
    }
}

/// Other processes see an import only after a written record states that the commits before it are
/// durable. A `Buffered` commit would be written only later.
#[test]
fn a_sync_writes_its_durable_offset_even_if_a_later_commit_is_queued() {
    let subject = Subject::new();
    commit(&subject.engine, "a");
    subject.during_sync(|engine| {
        submit(engine, "b", Durability::Buffered);
    });
    subject.sync();
    assert_eq!(subject.queue(LogQueue::durable_unclaimed), None);
    assert!(subject.has("b"));
}

/// The first log after an opening is created only after the disk had no space for it. Its edit
/// tells other processes that the recovered commits are durable.
#[test]
fn a_log_that_is_created_late_states_that_recovered_commits_are_durable() {
    let killed = Subject::new();
    (0..9).for_each(|i| commit(&killed.engine, &i.to_string()));
    let memory = killed.memory.kill_image();
    memory.set_quota(Some(memory.used()));
    let subject = Subject::on(memory);
    let error = subject.engine.maintenance().prepare_log().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    subject.memory.set_quota(None);
    subject.engine.maintenance().prepare_log().unwrap();
    let stated = subject.engine.maintenance().install.lock().version().vouched();
    assert_eq!(stated, subject.queue(|queue| queue.position()));
}

#[test]
fn a_sync_of_durable_commits_does_nothing() {
    let subject = Subject::new();
    let ops = || subject.fs.count(OpKind::Sync) + subject.fs.count(OpKind::Write);
    for durability in [Durability::Sync, Durability::Os, Durability::Buffered] {
        let seq = submit(&subject.engine, "a", durability);
        subject.engine.writer().group_commit.wait(seq).unwrap();
        let before = ops();
        subject.engine.maintenance().sync().unwrap();
        assert_eq!(ops() > before, durability != Durability::Sync, "{durability:?}");
        let before = ops();
        subject.engine.maintenance().sync().unwrap();
        assert_eq!(ops(), before, "{durability:?}, synced before");
    }
}
