//! Tests gaps with puts, snapshots, range tombstones, imports and files. Compares random scans with
//! a map.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::row_filter::{RowFilter, ScanRow, Step, VisibleRun, ZoneMatch};
use super::super::scan::{ReadView, Scan};
use super::*;
use crate::error::Result;
use crate::format::key::user_key;
use crate::format::names::TableId;
use crate::format::span::Span;
use crate::format::zones::ZoneSet;
use crate::fs::MemFs;
use crate::lsm::write::batch::{Action, Batch, Condition, Gate, Op, PackedRow, TableChange};
use crate::lsm::{Engine, SnapshotGuard};
use crate::model::Entity;
use crate::options::{Background, Durability, Options};
use crate::rng::Rng;

const TABLE: TableId = TableId(7);

struct Fixture {
    engine: Arc<Engine>,
    gate: Arc<Gate>,
}

fn key(name: &str) -> Vec<u8> {
    user_key(TABLE, "p", name)
}

/// Returns the span from `low` to `high`, or without `high` to the end of the partition.
fn span(low: &str, high: Option<&str>) -> Span {
    let high = high.map_or_else(|| user_key(TABLE, "q", ""), key);
    Span::new(&key(low), Some(&high))
}

impl Fixture {
    fn new(gap_entries_min: u32) -> Self {
        let options = Options::default().fs(Arc::new(MemFs::new())).seed(1);
        let options = Options { memtable_bytes: 16 << 10, gap_entries_min, ..options };
        let options = options.background(Background::Manual);
        let engine = crate::lsm::open("db".as_ref(), options).unwrap();
        Self { engine, gate: Arc::new(Gate::new(TABLE)) }
    }

    fn commit(&self, names: &[&str], is_put: bool) {
        let row = Entity::new("p", "r").to_row(&self.engine.env().shapes).unwrap();
        let op = |name: &&str| Op {
            hash: self.engine.env().hash(&key(name)),
            key: key(name).into(),
            condition: Condition::Any,
            action: match is_put {
                true => Action::Put(PackedRow::of(row.clone(), &self.engine.env().shapes)),
                false => Action::Delete,
            },
        };
        let batch = Batch {
            ops: names.iter().map(op).collect(),
            changes: Vec::new(),
            ..Batch::of_change(&self.gate, TableChange::Created(TABLE))
        };
        self.engine.commit(&batch, Durability::Os).unwrap();
    }

    fn put(&self, names: &[&str]) {
        self.commit(names, true);
    }

    fn delete(&self, names: &[&str]) {
        self.commit(names, false);
    }

    fn drop_span(&self, span: Span) {
        let batch = Batch::of_change(&self.gate, TableChange::Fenced(span));
        self.engine.commit(&batch, Durability::Sync).unwrap();
    }

    fn scan(&self) -> Scan {
        self.engine.scan(&span("", None), None).unwrap()
    }

    /// Returns the name of the first row, or "" if there is no row.
    fn head(&self) -> String {
        next(&mut self.scan()).unwrap_or_default()
    }

    /// Returns the bounds of the gaps.
    fn gaps(&self) -> Vec<(String, String)> {
        self.engine.writer().cut_gaps();
        let list = self.engine.env().gaps.list.lock();
        list.gaps.iter().map(|gap| (name(&gap.low), name(&gap.high))).collect()
    }

    fn passed(&self) -> u64 {
        self.engine.env().gaps.passed()
    }
}

/// A filter that every row matches. Unless `is_known`, the scan evaluates it for each row.
struct All {
    is_known: bool,
}

impl RowFilter for All {
    fn select(&mut self, run: &VisibleRun<'_>, found: &mut Vec<u16>) -> Result<()> {
        run.visit(|slot, _| {
            found.push(slot);
            Ok(())
        })
    }

    fn matches(&mut self, _row: &ScanRow<'_>) -> Result<bool> {
        Ok(true)
    }

    fn takes_all(&self) -> bool {
        self.is_known
    }

    fn asks_zones(&self) -> bool {
        false
    }

    fn match_zones(&mut self, _zones: &ZoneSet<'_>) -> Option<ZoneMatch> {
        None
    }

    fn stretch(&self) -> u64 {
        u64::MAX
    }
}

fn name(key: &[u8]) -> String {
    let at = user_key(TABLE, "p", "").len();
    String::from_utf8_lossy(key.get(at..).unwrap_or_default()).into_owned()
}

fn next(scan: &mut Scan) -> Option<String> {
    scan.advance().unwrap().then(|| name(scan.key()))
}

/// Like [`next`], but lets the filter evaluate whole blocks of a file where possible.
fn next_of(scan: &mut Scan, filter: &mut All) -> Option<String> {
    let step = scan.advance_where(filter, u64::MAX).unwrap();
    (step == Step::Row).then(|| name(scan.key()))
}

fn pairs(gaps: &[(&str, &str)]) -> Vec<(String, String)> {
    gaps.iter().map(|(low, high)| ((*low).to_owned(), (*high).to_owned())).collect()
}

#[test]
fn a_head_of_dead_entries_is_scanned_once() {
    let db = Fixture::new(4);
    db.put(&["a", "b", "c", "d", "e"]);
    db.delete(&["a"]);
    assert_eq!((db.head().as_str(), db.gaps()), ("b", vec![]), "two entries are too few for a gap");
    db.delete(&["b"]);
    assert_eq!((db.head().as_str(), db.gaps()), ("c", pairs(&[("", "c")])));
    let mut scan = db.scan();
    assert_eq!((next(&mut scan).as_deref(), scan.rows), (Some("c"), 1));
    assert_eq!((db.passed(), next(&mut scan).as_deref()), (1, Some("d")));
    db.delete(&["c", "d"]);
    assert_eq!((db.head().as_str(), db.gaps()), ("e", pairs(&[("", "e")])));
    // Scan from a key inside the gap, and up to an end inside it.
    assert_eq!(next(&mut db.engine.scan(&span("b", None), None).unwrap()).as_deref(), Some("e"));
    assert_eq!(next(&mut db.engine.scan(&span("b", Some("d")), None).unwrap()), None);
    db.engine.maintenance().flush_all().unwrap();
    let mut scan = db.scan();
    assert_eq!(
        (next(&mut scan).as_deref(), scan.rows),
        (Some("e"), 1),
        "the same with rows in files"
    );
}

#[test]
fn an_empty_queue_is_cached_as_a_gap_up_to_its_last_row() {
    let db = Fixture::new(2);
    db.put(&["a", "b"]);
    db.delete(&["a", "b"]);
    assert_eq!((db.head().as_str(), db.gaps()), ("", pairs(&[("", "b\0")])));
    db.put(&["c"]);
    assert_eq!((db.head().as_str(), db.gaps()), ("c", pairs(&[("", "b\0")])));
}

#[test]
fn rows_read_by_blocks_are_not_in_a_gap() {
    for is_known in [false, true] {
        let db = Fixture::new(1);
        db.put(&["b", "c", "d", "e", "f"]);
        db.engine.maintenance().compact_all(&mut |_, _| Ok(())).unwrap();
        let (mut scan, mut rows) = (db.scan(), Vec::new());
        while let Some(name) = next_of(&mut scan, &mut All { is_known }) {
            rows.push(name);
        }
        assert_eq!((rows.join(""), db.gaps()), ("bcdef".to_owned(), vec![]));
        db.delete(&["b"]);
        let mut scan = db.scan();
        let first = next_of(&mut scan, &mut All { is_known });
        while next_of(&mut scan, &mut All { is_known }).is_some() {}
        assert_eq!((first.as_deref(), db.gaps()), (Some("c"), pairs(&[("", "c")])));
    }
}

#[test]
fn a_put_divides_its_gap() {
    let db = Fixture::new(2);
    db.put(&["a", "b", "c", "d"]);
    db.delete(&["a", "b", "c"]);
    assert_eq!(db.head(), "d");
    // The gap is only offered so far. This commit adds it and cuts the commit's own key out of it.
    db.put(&["b"]);
    assert_eq!((db.head().as_str(), db.gaps()), ("b", pairs(&[("", "b"), ("b\0", "d")])));
    db.put(&[""]);
    assert_eq!(db.gaps(), pairs(&[("\0", "b"), ("b\0", "d")]));
    db.delete(&[""]);
    db.delete(&["b"]);
    assert_eq!(
        (db.head().as_str(), db.gaps()),
        ("d", pairs(&[("", "d")])),
        "the two parts are one gap again"
    );
}

#[test]
fn a_put_during_the_scan_is_cut_out_of_its_gap() {
    let db = Fixture::new(2);
    db.put(&["a", "b", "c", "d"]);
    db.delete(&["a", "b", "c"]);
    let mut scan = db.scan();
    db.put(&["b"]);
    db.delete(&["a"]);
    assert_eq!(next(&mut scan).as_deref(), Some("d"), "the scan reads at its own Seq");
    assert_eq!(db.gaps(), pairs(&[("", "b"), ("b\0", "d")]));
    assert_eq!(db.head(), "b");
}

#[test]
fn gaps_of_an_older_memtable_or_an_outdated_seq_are_ignored() {
    for long in [false, true] {
        let db = Fixture::new(2);
        db.put(&["a", "b", "c"]);
        db.delete(&["a", "b"]);
        let mut scan = db.scan();
        db.put(&["a"]);
        if long {
            (0..NEWER_MAX).for_each(|_| db.put(&["x"]));
        } else {
            db.engine.maintenance().freeze().unwrap();
        }
        assert_eq!(next(&mut scan).as_deref(), Some("c"));
        assert_eq!((db.gaps(), db.head().as_str()), (vec![], "a"));
    }
}

#[test]
fn unpublished_commits_may_be_in_a_frozen_memtable() {
    let db = Fixture::new(2);
    db.put(&["a", "b", "c"]);
    db.delete(&["a", "b"]);
    let at = db.engine.reader().published();
    db.put(&["a"]);
    db.engine.maintenance().freeze().unwrap();
    // A read at `at` does not see the put, as if the put were still waiting for its commit group.
    let view = ReadView::of(db.engine.env(), db.engine.reader().view.load_full(), at, true);
    assert_eq!(
        next(&mut view.scan(&span("", None), &span("", None)).unwrap()).as_deref(),
        Some("c")
    );
    assert_eq!((db.gaps(), db.head().as_str()), (vec![], "a"));
}

#[test]
fn a_view_from_before_the_memtable_of_a_gap_does_not_use_it() {
    let db = Fixture::new(2);
    db.put(&["a", "b", "z"]);
    let old = db.engine.reader().view.load_full();
    db.engine.maintenance().freeze().unwrap();
    db.delete(&["a", "b"]);
    assert_eq!((db.head().as_str(), db.gaps()), ("z", pairs(&[("", "z")])));
    let view = ReadView::of(db.engine.env(), old, db.engine.reader().published(), true);
    let first = next(&mut view.scan(&span("", None), &span("", None)).unwrap());
    assert_eq!(first.as_deref(), Some("a"), "an older view does not see later deletes");
}

#[test]
fn only_snapshots_newer_than_a_gap_use_it() {
    let db = Fixture::new(2);
    db.put(&["a", "b", "c"]);
    let before = SnapshotGuard::take(&db.engine);
    db.delete(&["a", "b"]);
    let after = SnapshotGuard::take(&db.engine);
    assert_eq!(db.head(), "c");
    let head = |at: &SnapshotGuard| {
        next(&mut db.engine.scan(&span("", None), Some(at.seq)).unwrap()).unwrap()
    };
    assert_eq!((head(&before).as_str(), db.passed()), ("a", 0));
    // This snapshot may use the gap, because the snapshot's Seq is not below the gap's Seq.
    assert_eq!((head(&after).as_str(), db.passed()), ("c", 1));
    db.put(&["a"]);
    assert_eq!((head(&before).as_str(), head(&after).as_str()), ("a", "c"));
}

#[test]
fn imported_files_invalidate_gaps_and_offers() {
    for is_settled in [false, true] {
        let (db, source) = (Fixture::new(2), Fixture::new(2));
        source.put(&["a", "b"]);
        db.put(&["a", "b", "z"]);
        db.delete(&["a", "b"]);
        db.engine.maintenance().compact_all(&mut |_, _| Ok(())).unwrap();
        db.put(&["a", "b"]);
        db.delete(&["a", "b"]);
        assert_eq!(db.head(), "z");
        if is_settled {
            assert_eq!(db.gaps(), pairs(&[("", "z")]));
        }
        // The scan starts before the files are imported, and reaches its first row only afterwards.
        let mut scan = db.scan();
        let (part, mut rows) = (span("a", Some("c")), source.scan());
        let ingested =
            db.engine.maintenance().ingest(&mut rows, &db.gate, &part, &mut |_| Ok(())).unwrap();
        assert_eq!(ingested.rows, 2);
        assert_eq!(next(&mut scan).as_deref(), Some("z"));
        assert_eq!((db.gaps(), db.head().as_str()), (vec![], "a"));
    }
}

#[test]
fn trap_32_a_read_before_an_import_leaves_no_gap_over_imported_rows() {
    let (db, source) = (Fixture::new(2), Fixture::new(2));
    source.put(&["b"]);
    db.put(&["a0", "a1", "a2", "a3", "z"]);
    db.delete(&["a0", "a1", "a2", "a3"]);
    let at = db.engine.reader().published();
    let (part, mut rows) = (span("b", Some("c")), source.scan());
    db.engine.maintenance().ingest(&mut rows, &db.gate, &part, &mut |_| Ok(())).unwrap();
    // Read at the last published Seq, while the view already contains the files.
    let read = ReadView::of(db.engine.env(), db.engine.reader().view.load_full(), at, true);
    assert_eq!(
        next(&mut read.scan(&span("", None), &span("", None)).unwrap()).as_deref(),
        Some("z")
    );
    assert_eq!((db.gaps(), db.head().as_str()), (vec![], "b"));
}

#[test]
fn gaps_cover_rows_hidden_by_range_tombstones_and_stay_few() {
    let db = Fixture::new(2);
    db.put(&["a", "b", "c", "d"]);
    db.drop_span(span("a", Some("c")));
    assert_eq!((db.head().as_str(), db.gaps()), ("c", pairs(&[("", "c")])));
    db.put(&["b"]);
    assert_eq!(db.head(), "b");
    let names: Vec<String> = (0..4 * GAPS_MAX).map(|i| format!("x{i:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.chunks(50).for_each(|names| db.put(names));
    names.chunks(50).for_each(|names| db.delete(names));
    assert_eq!(next(&mut db.engine.scan(&span("x", None), None).unwrap()), None);
    let at = db.gaps().len();
    assert!(at >= 2);
    for name in names.iter().step_by(2) {
        db.put(&[name]);
    }
    assert_eq!(db.gaps().len(), GAPS_MAX);
}

/// The rows of a database as of a Seq.
type State = BTreeMap<String, ()>;

/// Runs random operations and compares all scans with a map: whichever gaps exist, every scan must
/// return the expected rows.
#[test]
fn trap_32_random_scans_agree_with_a_map() {
    let mut passed = 0;
    for seed in 0..150 {
        passed += run(seed);
    }
    assert!(passed > 2_000, "{passed} gaps were passed over");
}

fn run(seed: u64) -> u64 {
    let mut rng = Rng::from_seed(seed);
    let db = Fixture::new(1 + rng.below(4) as u32);
    let mut state = State::new();
    let mut snapshots: Vec<(SnapshotGuard, State)> = Vec::new();
    let mut open: Vec<(Scan, Option<All>, Vec<String>)> = Vec::new();
    let names: Vec<String> = (0..40).map(|i| format!("r{i:02}")).collect();
    for _ in 0..300 {
        let name = &names[rng.index(names.len())];
        match rng.below(24) {
            0..4 => {
                db.put(&[name]);
                state.insert(name.clone(), ());
            }
            4..6 => {
                db.delete(&[name]);
                state.remove(name);
            }
            // Delete from the front, as a queue does.
            6..10 => {
                let first = state.pop_first().map(|(name, ())| name);
                assert_eq!(db.head(), first.clone().unwrap_or_default(), "seed {seed}");
                first.iter().for_each(|name| db.delete(&[name]));
            }
            10 => db.engine.maintenance().flush_all().unwrap(),
            11 => db.engine.maintenance().freeze().unwrap_or_default(),
            12 if rng.chance(1, 4) => {
                db.engine.maintenance().compact_all(&mut |_, _| Ok(())).unwrap()
            }
            13 if snapshots.len() < 3 => {
                snapshots.push((SnapshotGuard::take(&db.engine), state.clone()))
            }
            14 if !snapshots.is_empty() => {
                drop(snapshots.swap_remove(rng.index(snapshots.len())));
            }
            15 => {
                let to = &names[rng.index(names.len())];
                if name < to {
                    db.drop_span(span(name, Some(to)));
                    state.retain(|other, ()| other < name || other >= to);
                }
            }
            16 => while db.engine.maintenance().reclaim().unwrap() {},
            _ => {
                let at = rng.index(2 * snapshots.len() + 3);
                let (at, state) = match snapshots.get(at) {
                    Some((guard, state)) => (Some(guard.seq), state),
                    None => (None, &state),
                };
                let low = if rng.chance(1, 2) { "" } else { name };
                let high = rng.chance(1, 4).then(|| names[rng.index(names.len())].as_str());
                let high = high.filter(|high| low < *high);
                let rows = state.keys().filter(|row| {
                    row.as_str() >= low && high.is_none_or(|high| row.as_str() < high)
                });
                let rows = rows.rev().cloned().collect();
                let filter = [None, Some(All { is_known: false }), Some(All { is_known: true })];
                let filter = filter.into_iter().nth(rng.index(3)).flatten();
                open.push((db.engine.scan(&span(low, high), at).unwrap(), filter, rows));
            }
        }
        go_on(&mut rng, &mut open, seed);
    }
    db.passed()
}

/// Advances one of the open scans and checks the result.
fn go_on(rng: &mut Rng, open: &mut Vec<(Scan, Option<All>, Vec<String>)>, seed: u64) {
    if open.is_empty() {
        return;
    }
    let at = rng.index(open.len());
    let steps = if rng.chance(1, 4) { 99 } else { rng.below(6) };
    let (scan, filter, rows) = &mut open[at];
    let ends = (0..steps).any(|_| {
        let expected = rows.pop();
        let found = match filter {
            Some(filter) => next_of(scan, filter),
            None => next(scan),
        };
        assert_eq!(found, expected, "seed {seed}");
        expected.is_none()
    });
    if ends || rng.chance(1, 2) {
        open.swap_remove(at);
    }
}

/// With concurrent readers and writers, a scan must not skip a row whose put was acknowledged
/// before the scan began.
#[test]
fn concurrent_readers_find_rows_put_at_the_head() {
    let db = Fixture::new(1);
    db.put(&["z"]);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let db = &db;
            scope.spawn(move || {
                for group in 0..300 {
                    let name = format!("{}{thread}", (b'a' + (group % 7) as u8) as char);
                    db.put(&[&name]);
                    let mut scan = db.scan();
                    let found = std::iter::from_fn(|| next(&mut scan)).any(|row| row == name);
                    assert!(found, "{name} was put");
                    db.delete(&[&name]);
                    let mut scan = db.scan();
                    let found = std::iter::from_fn(|| next(&mut scan)).any(|row| row == name);
                    assert!(!found, "{name} was deleted");
                }
            });
        }
    });
    assert_eq!(db.head(), "z");
}
