//! Loom models of the engine. Two or three threads share a database in memory; loom runs every
//! interleaving of their steps.
//!
//! Production code is tested with these exceptions: the view is behind a lock (`sync::ArcSwap`), a
//! file operation is one step, and only the model's threads run background work.

use std::path::Path;

use loom::sync::atomic::AtomicUsize;
use loom::thread;

use super::*;
use crate::clock::ManualClock;
use crate::error::ErrorKind;
use crate::format::key::user_key;
use crate::format::names::TableId;
use crate::format::span::whole_table;
use crate::fs::{FaultFs, Fs, MemFs};
use crate::model::{EdmType, Row, Shape, ValueRef};
use crate::options::{Background, Options};
use crate::sync::Ordering;

const TABLE: TableId = TableId(7);
const DIR: &str = "db";
const STACK: usize = 1 << 20;

/// A database that the threads of a model share.
#[derive(Clone)]
struct Model {
    fs: MemFs,
    engine: Arc<Engine>,
}

impl Model {
    fn new() -> Self {
        Self::on(MemFs::new())
    }

    fn on(fs: MemFs) -> Self {
        let shared = Arc::new(fs.clone());
        Self::over(fs, shared)
    }

    /// Creates a model in which other threads may run before a sync takes effect.
    fn with_slow_syncs() -> Self {
        let (fs, step) = (MemFs::new(), AtomicUsize::new(0));
        let slow = FaultFs::new(Arc::new(fs.clone()));
        slow.guard_syncs(move |_, _| step.fetch_add(1, Ordering::Relaxed) < usize::MAX);
        Self::over(fs, Arc::new(slow))
    }

    fn over(fs: MemFs, shared: Arc<dyn Fs>) -> Self {
        Self::syncing_every(Options::default().weak_sync_bytes, fs, shared)
    }

    fn syncing_every(weak_sync_bytes: u64, fs: MemFs, shared: Arc<dyn Fs>) -> Self {
        let options = Options {
            weak_sync_bytes,
            durability: Durability::Sync,
            background: Background::Manual,
            cache_bytes: 0,
            log_allocate_bytes: 4096,
            memtable_bytes: 1 << 20,
            gap_entries_min: 1,
            seed: Some(1),
            ..Options::default()
        };
        let clock = Arc::new(ManualClock::new(1));
        let options = options.fs(shared).clock(clock);
        Self { fs, engine: crate::lsm::open(Path::new(DIR), options).unwrap() }
    }

    /// Returns states of the disk that a power cut may leave now.
    fn crash_images(&self) -> Vec<MemFs> {
        (1..8).map(|seed| self.fs.crash_image(seed)).collect()
    }

    fn spawn<R: Send + 'static>(
        &self,
        run: impl FnOnce(Model) -> R + Send + 'static,
    ) -> thread::JoinHandle<R> {
        let model = self.clone();
        spawn(move || run(model))
    }

    fn key(name: &str) -> Vec<u8> {
        user_key(TABLE, "p", name)
    }

    /// Writes a row with the value `value`.
    fn put(&self, name: &str, value: i64) -> Result<Seq> {
        self.put_with(name, value, Durability::Sync)
    }

    fn put_with(&self, name: &str, value: i64, durability: Durability) -> Result<Seq> {
        self.engine.commit(&self.batch(Self::key(name), value), durability)
    }

    /// Returns a batch that puts a row.
    fn batch(&self, key: Vec<u8>, value: i64) -> Batch<'static> {
        let shape = Shape::new(vec![("Value".into(), EdmType::Int64)]);
        let mut body = Vec::new();
        shape.encode_body([ValueRef::Int64(value)].into_iter(), &mut body);
        let row = Row { shape: Arc::new(shape), body };
        Batch {
            gate: Arc::new(Gate::new(TABLE)),
            prefix_len: 0,
            is_group: false,
            changes: Vec::new(),
            closes: None,
            check_merged: |_, _| Ok(()),
            ops: Ops::from_buf([Op {
                hash: self.engine.env().hash(&key),
                key: key.into(),
                condition: Condition::Any,
                action: Action::Put(PackedRow::of(row, &self.engine.env().shapes)),
            }]),
        }
    }

    /// Closes a gate on the table.
    fn close_gate(&self) {
        let gate = SpanGate { id: 1, span: whole_table(TABLE), mode: GateMode::ReadOnly };
        let batch = self.batch(user_key(TableId(8), "gate", ""), 1);
        let batch = Batch { closes: Some(gate), ..batch };
        self.engine.commit(&batch, Durability::Sync).unwrap();
    }

    /// Deletes all rows of the table by a range tombstone.
    fn clear(&self) {
        let change = TableChange::Fenced(whole_table(TABLE));
        let batch = Batch::of_change(&Arc::new(Gate::new(TABLE)), change);
        self.engine.commit(&batch, Durability::Sync).unwrap();
    }

    /// Ingests the rows of `source` into the table, which must be empty.
    fn take_in(&self, source: &Model) -> Result<()> {
        let mut rows = source.engine.scan(&whole_table(TABLE), None).unwrap();
        let (gate, span) = (Gate::new(TABLE), whole_table(TABLE));
        self.engine.maintenance().ingest(&mut rows, &gate, &span, &mut |_| Ok(())).map(drop)
    }

    fn delete(&self, name: &str) {
        let key = Self::key(name);
        let (hash, condition, action) =
            (self.engine.env().hash(&key), Condition::Any, Action::Delete);
        let batch = Batch {
            changes: Vec::new(),
            ops: std::iter::once(Op { key: key.into(), hash, condition, action }).collect(),
            ..Batch::of_change(&Arc::new(Gate::new(TABLE)), TableChange::Created(TABLE))
        };
        self.engine.commit(&batch, Durability::Sync).unwrap();
    }

    /// Returns the first key of the table.
    fn head(&self) -> Option<Vec<u8>> {
        let mut scan = self.engine.scan(&whole_table(TABLE), None).unwrap();
        scan.advance().unwrap().then(|| scan.key().to_vec())
    }

    /// Returns the value of a row as of Seq `at`; `None` means the current state.
    fn get(&self, name: &str, at: Option<Seq>) -> Option<i64> {
        let got =
            self.engine.reader().get(&Self::key(name), at, |_, row| match row.value(0).unwrap() {
                ValueRef::Int64(value) => Ok(value),
                other => panic!("not what was put: {other:?}"),
            });
        got.unwrap()
    }

    fn flush(&self) {
        self.engine.maintenance().flush_all().unwrap();
    }

    /// Returns the names of the table files on the disk.
    fn files(&self) -> Vec<String> {
        let names = self.fs.list(Path::new(DIR)).unwrap();
        names.into_iter().filter(|name| name.ends_with(".sst")).collect()
    }
}

/// Spawns a thread with a larger stack. Loom's default stack is small, and that of Loom's first
/// thread cannot be enlarged.
fn spawn<R: Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> thread::JoinHandle<R> {
    thread::Builder::new().stack_size(STACK).spawn(run).unwrap()
}

/// Runs `model` under every interleaving of its threads with at most `preemptions` preemptions.
#[track_caller]
fn check(preemptions: usize, model: impl Fn(Model) + Copy + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 100_000;
    builder.check(move || spawn(move || model(Model::new())).join().unwrap());
}

/// `read` finds a row that always exists, while another version of it is committed and both
/// versions are flushed.
#[track_caller]
fn check_read(read: fn(&Model) -> Option<i64>) {
    check(2, move |model| {
        model.put("k", 1).unwrap();
        let writer = model.spawn(|model| model.put("k", 2).unwrap());
        let flusher = model.spawn(|model| model.flush());
        assert!(read(&model).is_some(), "the row exists throughout");
        writer.join().unwrap();
        flusher.join().unwrap();
        assert_eq!(model.get("k", None), Some(2));
    });
}

/// A read pins the view before it loads the Seq, so every version that it may see is in that view.
#[test]
fn trap_55_loom_a_read_during_a_commit_and_a_flush() {
    check_read(|model| model.get("k", None));
}

/// Every flush that starts after a snapshot was taken keeps the versions that the snapshot sees.
#[test]
fn trap_55_loom_a_snapshot_during_a_commit_and_a_flush() {
    check_read(|model| {
        let snapshot = SnapshotGuard::take(&model.engine);
        let first = model.get("k", Some(snapshot.seq));
        assert_eq!(first, model.get("k", Some(snapshot.seq)), "a snapshot reads the same twice");
        first
    });
}

/// A flush and a new memtable change the view concurrently. Afterwards both changes are in effect.
#[test]
fn loom_concurrent_changes_of_a_view_are_both_kept() {
    check(2, |model| {
        model.put("a", 1).unwrap();
        model.engine.maintenance().freeze().unwrap();
        // Prepare a log, so that the second freeze does not wait for the end of the flush.
        crate::lsm::write::retry::Unblock::prepare_log(model.engine.maintenance()).unwrap();
        let other = model.spawn(|model| {
            model.put("b", 1).unwrap();
            model.engine.maintenance().freeze().unwrap();
            model.put("c", 1).unwrap();
        });
        model.engine.maintenance().flush_one().unwrap();
        other.join().unwrap();
        for name in ["a", "b", "c"] {
            assert_eq!(model.get(name, None), Some(1), "row {name} was committed");
        }
    });
}

/// During a flush every view contains the row, in its memtable or in its file.
#[test]
fn loom_a_row_is_seen_throughout_its_flush() {
    check(2, |model| {
        model.put("a", 1).unwrap();
        let other = model.spawn(|model| model.flush());
        assert_eq!(model.get("a", None), Some(1), "the row exists throughout");
        other.join().unwrap();
    });
}

/// A file stays on disk while a view that names it is held, and is removed when no view holds it.
#[test]
fn trap_33_loom_files_stay_while_a_view_holds_them() {
    check(2, |model| {
        for value in [1, 2] {
            model.put("a", value).unwrap();
            model.flush();
        }
        let other = model.spawn(|model| {
            let view = model.engine.reader().view.load_full();
            let there = model.files();
            for file in view.version.files() {
                let name = crate::format::names::FileName::Sst(file.meta.number).to_string();
                assert!(there.contains(&name), "{name} is in a view");
            }
            drop(view);
            assert_eq!(model.get("a", None), Some(2));
        });
        model.engine.maintenance().compact_all(&mut |_, _| Ok(())).unwrap();
        other.join().unwrap();
        model.engine.maintenance().remove_unheld();
        assert_eq!(model.files().len(), 1, "files without a holder are removed");
    });
}

/// A scan finds the gap before the first row of a table and caches it, while a row is put into this
/// gap. Once the put is acknowledged, the row is found.
#[test]
fn trap_32_loom_a_put_into_a_gap_during_a_scan() {
    check(2, |model| {
        model.put("b", 1).unwrap();
        model.delete("a");
        let other = model.spawn(|model| {
            model.put("a", 1).unwrap();
            assert_eq!(model.head().as_deref(), Some(&*Model::key("a")), "it was put");
        });
        let heads = [model.head(), model.head()];
        other.join().unwrap();
        assert_eq!(model.head().as_deref(), Some(&*Model::key("a")), "it was put");
        assert!(heads[0] >= heads[1], "it does not go again");
    });
}

/// A commit runs concurrently with a close. When the close returns, the commit is on disk if it was
/// acknowledged, and is not on disk if it was refused. No thread waits forever, and nothing on disk
/// changes after the close.
#[test]
fn trap_43_loom_a_commit_during_a_close() {
    check(2, |model| {
        let other = model.spawn(|model| {
            let first = model.put("a", 1).is_ok();
            (first, model.put("b", 1).is_ok())
        });
        model.engine.close().unwrap();
        let (operations, image) = (model.fs.ops(), model.fs.crash_image(1));
        assert_eq!(model.put("c", 1).unwrap_err().kind(), ErrorKind::InvalidInput);
        let acknowledged = other.join().unwrap();
        assert_eq!(model.fs.ops(), operations, "nothing changes after a close");
        let again = Model::on(image);
        assert_eq!(again.engine.recovered.torn, [""; 0], "it was closed in order");
        let found = (again.get("a", None).is_some(), again.get("b", None).is_some());
        assert_eq!(found, acknowledged, "what was acknowledged is there, and nothing else");
    });
}

/// Runs `work` concurrently with a close. After the close returns, `work` changes nothing on disk,
/// and no row is lost.
#[track_caller]
fn check_work_during_a_close(work: fn(&Engine) -> Result<()>) {
    check(2, move |model| {
        for value in [1, 2] {
            model.put("a", value).unwrap();
            model.flush();
        }
        model.put("a", 3).unwrap();
        let other = model.spawn(move |model| drop(work(&model.engine)));
        model.engine.close().unwrap();
        let (operations, image) = (model.fs.ops(), model.fs.crash_image(1));
        other.join().unwrap();
        assert_eq!(model.fs.ops(), operations, "nothing changes after a close");
        assert_eq!(Model::on(image).get("a", None), Some(3));
    });
}

#[test]
fn trap_43_loom_a_flush_during_a_close() {
    check_work_during_a_close(|engine| engine.maintenance().flush_all());
}

#[test]
fn trap_43_loom_a_merge_during_a_close() {
    check_work_during_a_close(|engine| engine.maintenance().compact_all(&mut |_, _| Ok(())));
}

/// Checks that the next weak commit after a crash has a Seq above `last`.
fn check_next_seqs(images: Vec<MemFs>, last: Seq) {
    for image in images {
        let next = Model::on(image).put_with("c", 1, Durability::Os).unwrap();
        assert!(next > last, "{next:?} must be above {last:?}");
    }
}

/// No Seq is used twice. The log that contains the current Seq reservation is removed only after
/// another log durably contains it. A reservation that a commit group has yet to write does not
/// count.
#[test]
fn loom_a_ceiling_outlives_its_log_during_a_round() {
    check(2, |_| {
        let model = Model::with_slow_syncs();
        model.put("a", 1).unwrap();
        model.engine.writer().reserve_seqs(model.engine.maintenance()).unwrap();
        model.engine.maintenance().freeze().unwrap();
        let last = model.put_with("b", 1, Durability::Os).unwrap();
        let other = model.spawn(|model| {
            model.engine.writer().group_commit.flush(Durability::Sync).unwrap();
        });
        model.engine.maintenance().flush_one().unwrap();
        let images = model.crash_images();
        other.join().unwrap();
        check_next_seqs(images, last);
    });
}

/// A sync does not cover a commit that is written while the sync is in progress. So no record
/// states that the commit is durable, and after a power cut its loss is no damage. A second sync
/// covers it.
#[test]
fn trap_02_loom_a_sync_covers_only_what_was_written_before_it() {
    check(2, |model| {
        model.put_with("a", 1, Durability::Os).unwrap();
        let other = model.spawn(|model| model.engine.writer().sync().unwrap());
        // Longer than a sector, so that it can be lost without the next record.
        let long = "b".repeat(600);
        model.put_with(&long, 1, Durability::Os).unwrap();
        other.join().unwrap();
        for seed in 1..8 {
            assert_eq!(Model::on(model.fs.crash_image(seed)).get("a", None), Some(1));
        }
        model.engine.writer().sync().unwrap();
        assert_eq!(Model::on(model.fs.crash_image(1)).get(&long, None), Some(1), "it was synced");
    });
}

/// When a sync returns, a written record states that the commits before it are durable, even if the
/// sync of another thread covered them.
#[test]
fn loom_a_sync_returns_after_its_durable_offset_is_written() {
    check(2, |model| {
        model.put_with("a", 1, Durability::Os).unwrap();
        let sync = |model: Model| {
            model.engine.writer().sync().unwrap();
            let queue = &model.engine.writer().group_commit.lock().queue;
            assert_eq!(queue.durable_unclaimed(), None, "a record states it");
        };
        let other = model.spawn(sync);
        sync(model);
        other.join().unwrap();
    });
}

/// The log is switched while it is synced. A second sync covers the bytes that the first one does
/// not, in both logs.
#[test]
fn trap_02_loom_the_log_is_switched_during_a_sync() {
    check(2, |model| {
        model.put_with("a", 1, Durability::Os).unwrap();
        crate::lsm::write::retry::Unblock::prepare_log(model.engine.maintenance()).unwrap();
        let other = model.spawn(|model| model.engine.writer().sync().unwrap());
        // Longer than a sector, so that it can be lost without the record before it.
        let long = "b".repeat(600);
        model.put_with(&long, 1, Durability::Os).unwrap();
        model.engine.maintenance().freeze().unwrap();
        model.put_with("c", 1, Durability::Os).unwrap();
        other.join().unwrap();
        model.engine.writer().sync().unwrap();
        for seed in 1..8 {
            let again = Model::on(model.fs.crash_image(seed));
            for name in ["a", &long, "c"] {
                assert_eq!(again.get(name, None), Some(1), "it was synced");
            }
        }
    });
}

/// No Seq is used twice. Weak commits use the Seqs of a reservation only after its record is
/// durable.
#[test]
fn trap_18_loom_a_reservation_is_used_after_its_sync() {
    check(2, |model| {
        model.put_with("a", 1, Durability::Os).unwrap();
        let reserved = model.engine.writer().group_commit.lock().queue.seq_reservation;
        model.engine.writer().group_commit.lock().raise(reserved);
        let other = model.spawn(|model| {
            model.engine.writer().reserve_seqs(model.engine.maintenance()).unwrap();
        });
        let last = model.put_with("b", 1, Durability::Os).unwrap();
        let images = model.crash_images();
        other.join().unwrap();
        check_next_seqs(images, last);
    });
}

/// Two threads whose weak commits exceed the limit of unsynced bytes both make progress, and the
/// unsynced bytes exceed the limit by at most one commit.
#[test]
fn trap_29_loom_weak_commits_at_the_limit_of_unsynced_bytes() {
    check(2, |_| {
        let fs = MemFs::new();
        let model = Model::syncing_every(1, fs.clone(), Arc::new(fs));
        let unsynced =
            |model: &Model| model.engine.writer().group_commit.lock().queue.unsynced_bytes();
        // The first record is the largest one, because it defines the shape.
        model.put_with("a", 1, Durability::Os).unwrap();
        let most = 4 + unsynced(&model);
        let put = move |model: &Model, name| {
            model.put_with(name, 1, Durability::Os).unwrap();
            assert!(unsynced(model) <= most, "too many bytes are unsynced");
        };
        let other = model.spawn(move |model| put(&model, "b"));
        put(&model, "c");
        other.join().unwrap();
    });
}

/// Rows are ingested after all rows of the table were deleted, and the space of the deleted rows is
/// reclaimed concurrently. The ingested rows remain, although their Seqs are below that of the
/// deletion.
#[test]
fn loom_ingested_rows_stay_during_a_reclaim() {
    check(2, |model| {
        let source = Model::on(MemFs::new());
        source.put("a", 5).unwrap();
        for name in ["a", "b"] {
            model.put(name, 1).unwrap();
            model.flush();
        }
        model.clear();
        model.flush();
        let other = model.spawn(|model| drop(model.engine.maintenance().reclaim().unwrap()));
        model.take_in(&source).unwrap();
        other.join().unwrap();
        assert_eq!(model.get("a", None), Some(5), "it was ingested after the deletion");
    });
}

/// A gate is closed while rows are ingested. After the gate is closed, no ingested row appears.
#[test]
fn loom_a_gate_is_closed_during_an_ingest() {
    check(2, |model| {
        let source = Model::on(MemFs::new());
        source.put("a", 5).unwrap();
        let other = model.spawn(|model| {
            model.close_gate();
            model.get("a", None)
        });
        let ingested = model.take_in(&source).is_ok();
        let seen = other.join().unwrap();
        assert_eq!(model.get("a", None), seen, "the gate was closed");
        assert_eq!(seen.is_some(), ingested, "a refused ingest has no effect");
    });
}
