//! Reading beside writing and merging, in every order: a row that exists throughout is never missed.
//!
//! One row with many versions. Rounds, snapshots and the horizon are the engine's; memtables and files are lists
//! of Seqs, and the view is a shared pointer in a lock.

use loom::sync::Arc;
use loom::thread;

use super::super::round::{Queue, Rounds};
use super::super::snapshot::Snapshots;
use crate::error::Error;
use crate::model::Seq;
use crate::options::Durability;
use crate::sync::{Mutex, check_model};

/// Everything is durable at once.
struct NoLog;

impl Queue for NoLog {
    type Round = ();
    type Done = ();

    fn take(&mut self, _need: Durability) {}

    fn carry_out(_round: ()) -> Result<(), Error> {
        Ok(())
    }

    fn finished(&mut self, _done: ()) -> bool {
        false
    }
}

/// The versions of the row.
struct View {
    /// As in the engine: newest first, the first takes writes.
    memtables: Vec<Arc<Mutex<Vec<Seq>>>>,
    /// Newest first.
    files: Vec<Seq>,
}

struct Store {
    rounds: Rounds<NoLog>,
    snapshots: Snapshots,
    view: Mutex<Arc<View>>,
}

impl View {
    fn newest(&self, at: Seq) -> Option<Seq> {
        let in_memory = self
            .memtables
            .iter()
            .find_map(|memtable| memtable.lock().iter().rev().find(|seq| **seq <= at).copied());
        in_memory.or_else(|| self.files.iter().find(|seq| **seq <= at).copied())
    }
}

impl Store {
    /// The row has one version, in a file.
    fn new() -> Arc<Self> {
        let first = Seq(1);
        let view = View { memtables: vec![Arc::default()], files: vec![first] };
        Arc::new(Self {
            rounds: Rounds::new(NoLog, first),
            snapshots: Snapshots::default(),
            view: Mutex::new(Arc::new(view)),
        })
    }

    fn pin(&self) -> Arc<View> {
        Arc::clone(&self.view.lock())
    }

    /// As `Engine::commit`: into the memtable under the commit lock, unpublished.
    fn write(&self) {
        let mut state = self.rounds.lock();
        let seq = Seq(state.last().0 + 1);
        self.pin().memtables[0].lock().push(seq);
        self.rounds.queued(&mut state, seq, Durability::Sync);
        drop(state);
        self.rounds.wait(seq).unwrap();
    }

    /// A flush and a merge of all files in one: freezes the memtable, waits until it is published, writes what the
    /// horizon does not hide, and installs that in place of the sources.
    fn merge(&self) {
        let frozen = {
            let _commits = self.rounds.lock();
            let mut view = self.view.lock();
            let frozen = Arc::clone(&view.memtables[0]);
            let memtables = vec![Arc::default(), Arc::clone(&frozen)];
            *view = Arc::new(View { memtables, files: view.files.clone() });
            frozen
        };
        let newest = frozen.lock().last().copied();
        if let Some(last) = newest {
            self.rounds.wait(last).unwrap();
        }
        let horizon = self.snapshots.horizon(&self.rounds);
        let mut all: Vec<Seq> = frozen.lock().iter().rev().copied().collect();
        all.extend(&self.pin().files);
        let kept = |(index, seq): (usize, &Seq)| {
            let hidden = index > 0 && horizon.hides(all[index - 1], *seq);
            (!hidden).then_some(*seq)
        };
        let files = all.iter().enumerate().filter_map(kept).collect();
        let mut view = self.view.lock();
        let memtables = vec![Arc::clone(&view.memtables[0])];
        *view = Arc::new(View { memtables, files });
    }
}

/// `read` finds the row beside a writer and a merge.
#[track_caller]
fn check_read(writes: usize, read: fn(&Store) -> Option<Seq>) {
    check_model(move || {
        let store = Store::new();
        let spawn = |run: fn(&Store, usize)| {
            let store = Arc::clone(&store);
            thread::spawn(move || run(&store, writes))
        };
        let writer = spawn(|store, writes| (0..writes).for_each(|_| store.write()));
        let merger = spawn(|store, _| store.merge());
        assert!(read(&store).is_some(), "the row exists throughout");
        writer.join().unwrap();
        merger.join().unwrap();
        assert_eq!(read(&store), Some(store.rounds.published()));
    });
}

#[test]
fn trap_55_loom_a_read_pins_the_view_before_it_takes_the_seq() {
    let read = |store: &Store| {
        let view = store.pin();
        view.newest(store.rounds.published())
    };
    check_read(1, read);
    check_read(2, read);
}

#[test]
#[should_panic(expected = "the row exists throughout")]
fn trap_55_loom_the_other_order_loses_a_row() {
    check_read(1, |store| {
        let at = store.rounds.published();
        store.pin().newest(at)
    });
}

#[test]
fn trap_55_loom_a_snapshot_is_kept_by_merges_that_start_after_it() {
    check_read(2, |store| {
        let at = store.snapshots.register(&store.rounds);
        let first = store.pin().newest(at);
        assert_eq!(first, store.pin().newest(at), "a snapshot reads the same twice");
        first
    });
}
