//! Tests of copies between two databases through the interface of stores.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{StateFile, StoreCopy, Traffic};
use crate::clock::{Clock, ManualClock};
use crate::db::{CopyProblemKind, CopySummary};
use crate::error::{ErrorKind, Result};
use crate::fs::{Fs, MemFs};
use crate::model::{Entity, KeyTemplate};
use crate::store::compare::Comparison;
use crate::store::failing::{Fail, Failing, entities, failing};
use crate::store::pages::Side;
use crate::store::{Dialect, TableStore};

/// With one worker, the answers of two successive groups are not both lost.
const ONE: usize = 1;

/// Returns a store with 7 partitions of 150 entities.
fn source(fail: Fail) -> Failing {
    let store = failing(fail);
    let table = store.db.table("Tab").unwrap();
    let mut loader = table.loader();
    for i in 0..1_050u32 {
        let entity = Entity::new(format!("p{}", i / 150), format!("{:03}", i % 150));
        loader.push(u64::from(i), entity.with("N", i as i32).with("Half", i % 2 == 0)).unwrap();
    }
    loader.finish().unwrap();
    store
}

/// Checks that `target` has the entities of `source`.
#[track_caller]
fn check_copies(source: &[Entity], target: &Failing) {
    let target = entities(target);
    assert_eq!(source.len(), target.len());
    for (a, b) in source.iter().zip(&target) {
        assert_eq!((a.partition_key(), a.row_key()), (b.partition_key(), b.row_key()));
        assert!(a.has_properties_of(b), "{a:?} {b:?}");
    }
}

/// Runs a copy of the table `Tab` with options that `set` changes.
pub(crate) fn copy(
    source: &dyn TableStore,
    target: &dyn TableStore,
    state: Option<&StateFile>,
    set: impl FnOnce(&mut StoreCopy<'_>),
) -> Result<(CopySummary, Traffic)> {
    let mut job = StoreCopy::new([source, target].map(|store| Side { store, table: "Tab" }));
    (job.workers, job.page_rows) = (3, 40);
    set(&mut job);
    job.run(state)
}

fn state(fs: &Arc<dyn Fs>, job: &str) -> StateFile {
    open_state(fs, job).unwrap()
}

fn open_state(fs: &Arc<dyn Fs>, job: &str) -> Result<StateFile> {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(0));
    let parts = (Arc::clone(fs), clock);
    StateFile::open(parts, Path::new("state"), job.to_owned(), Duration::ZERO)
}

fn memory() -> Arc<dyn Fs> {
    Arc::new(MemFs::new())
}

#[test]
fn all_entities_are_copied_once() {
    for workers in [1, 8] {
        let (from, to) = (source(Fail::Never), failing(Fail::Never));
        let set = |job: &mut StoreCopy<'_>| job.workers = workers;
        let (summary, _) = copy(&from, &to, None, set).unwrap();
        assert_eq!((summary.rows, summary.copied), (1_050, 1_050));
        let groups = to.groups.swap(0, Ordering::Relaxed);
        assert!(groups >= 27 && to.reads.load(Ordering::Relaxed) == 0, "{groups}");
        check_copies(&entities(&from), &to);
        // A second run finds every copy. Each group is sent once, and its range is read once.
        let (summary, _) = copy(&from, &to, None, |_| ()).unwrap();
        assert_eq!((summary.rows, summary.present, summary.copied), (1_050, 1_050, 0));
        let again = [&to.groups, &to.reads].map(|count| count.load(Ordering::Relaxed));
        assert!(again.iter().all(|count| *count < 2 * groups), "{again:?} {groups}");
    }
}

/// The job is ended at each group, and continues from its file.
#[test]
fn an_interrupted_copy_continues_at_every_position() {
    for workers in [1, 4] {
        let from = source(Fail::Never);
        let expected = entities(&from);
        let (mut to, fs) = (failing(Fail::Never), memory());
        let (mut copied, mut runs) = (0, 0);
        loop {
            to.fail = Fail::From(2);
            to.groups = AtomicU64::new(0);
            runs += 1;
            let result = copy(&from, &to, Some(&state(&fs, "job")), |job| {
                job.workers = workers;
            });
            let there = entities(&to).len();
            assert!(there > copied || result.is_ok(), "no progress at {there}");
            copied = there;
            if result.is_ok() {
                break;
            }
            // A finished part is not read again.
            assert!(fs.exists(Path::new("state")).unwrap());
        }
        assert!(runs > 10, "{runs}");
        check_copies(&expected, &to);
        assert!(state(&fs, "job").read().unwrap().unwrap().slices.is_empty());
    }
}

/// The job is ended at groups that insert and at groups that delete.
#[test]
fn an_interrupted_move_loses_nothing() {
    for fails in [(Fail::From(4), Fail::Never), (Fail::Never, Fail::From(4))] {
        let (mut from, mut to, fs) = (source(Fail::Never), failing(Fail::Never), memory());
        let expected = entities(&from);
        (from.fail, to.fail) = fails;
        let mut runs = 0;
        loop {
            (from.groups, to.groups) = (AtomicU64::new(0), AtomicU64::new(0));
            runs += 1;
            let result = copy(&from, &to, Some(&state(&fs, "job")), |job| {
                (job.then_delete, job.workers) = (true, ONE);
            });
            let keys = |entities: Vec<Entity>| {
                let key = |e: &Entity| (e.partition_key().to_owned(), e.row_key().to_owned());
                entities.iter().map(key).collect::<Vec<_>>()
            };
            let mut left = keys([entities(&from), entities(&to)].concat());
            left.sort();
            left.dedup();
            assert_eq!(left, keys(expected.clone()));
            if result.is_ok() {
                break;
            }
            assert!(runs < 500, "{result:?}");
        }
        assert!(runs > 5, "{runs}");
        check_copies(&expected, &to);
        assert!(entities(&from).is_empty());
    }
}

/// A process is killed after the copy, before its summary is reported.
#[test]
fn a_finished_copy_that_runs_again_finds_no_conflicts() {
    let (from, to, fs) = (source(Fail::Never), failing(Fail::Never), memory());
    let new_keys = |job: &mut StoreCopy<'_>| {
        job.partition_key = Some(KeyTemplate::parse("x{PartitionKey}").unwrap());
    };
    let (summary, _) = copy(&from, &to, Some(&state(&fs, "job")), new_keys).unwrap();
    assert_eq!((summary.rows, summary.copied, summary.conflicts), (1_050, 1_050, 0));
    let (summary, _) = copy(&from, &to, Some(&state(&fs, "job")), new_keys).unwrap();
    assert_eq!((summary.rows, summary.copied, summary.conflicts), (0, 0, 0));
}

/// Positions are not saved before the target has acknowledged the entities.
#[test]
fn what_is_copied_again_after_an_error_is_little() {
    let (from, mut to, fs) = (source(Fail::Never), failing(Fail::From(20)), memory());
    let one = |job: &mut StoreCopy<'_>| job.workers = ONE;
    copy(&from, &to, Some(&state(&fs, "job")), one).unwrap_err();
    let there = entities(&to).len() as u64;
    to.fail = Fail::Never;
    let (summary, _) = copy(&from, &to, Some(&state(&fs, "job")), one).unwrap();
    assert!(summary.present <= 40, "{summary:?}");
    assert_eq!(summary.copied, 1_050 - there);
    check_copies(&entities(&from), &to);
}

#[test]
fn a_state_of_another_copy_is_refused() {
    let (from, to, fs) = (source(Fail::Never), failing(Fail::From(3)), memory());
    copy(&from, &to, Some(&state(&fs, "one")), |_| ()).unwrap_err();
    let error = copy(&from, &to, Some(&state(&fs, "other")), |_| ()).unwrap_err();
    assert!(error.message().contains("state is of another copy"), "{error}");
    for text in ["", "{}", "[1", "{\"job\":\"one\",\"version\":1,\"slices\":[{\"after\":[1,2]}]}"] {
        fs.remove(Path::new("state")).unwrap();
        let file = fs.create(Path::new("state")).unwrap();
        file.write_at(0, text.as_bytes()).unwrap();
        let error = copy(&from, &to, Some(&state(&fs, "one")), |_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}: {error}");
    }
}

#[test]
fn problems_before_an_interruption_are_not_forgotten() {
    let (from, mut to, fs) = (source(Fail::Never), failing(Fail::From(9)), memory());
    to.db.upsert("Tab", &Entity::new("p0", "007").with("Other", "x")).unwrap();
    let one = |job: &mut StoreCopy<'_>| job.workers = ONE;
    copy(&from, &to, Some(&state(&fs, "job")), one).unwrap_err();
    to.fail = Fail::Never;
    let (summary, _) = copy(&from, &to, Some(&state(&fs, "job")), one).unwrap();
    assert!(summary.rows < 1_050, "{summary:?}");
    assert_eq!((summary.conflicts, summary.problem_count()), (1, 1));
}

#[test]
fn a_copy_into_a_table_that_was_deleted_is_not_continued() {
    let (from, mut to, fs) = (source(Fail::Never), failing(Fail::From(3)), memory());
    copy(&from, &to, Some(&state(&fs, "job")), |_| ()).unwrap_err();
    to.fail = Fail::Never;
    to.db.delete_table("Tab").unwrap();
    let error = copy(&from, &to, Some(&state(&fs, "job")), |_| ()).unwrap_err();
    assert_eq!(error.code(), "TableNotFound");
    assert!(error.message().contains("remove its --state file"), "{error}");
    assert!(fs.exists(Path::new("state")).unwrap());
}

/// The new table would lack the entities before the positions.
#[test]
fn a_copy_into_a_table_that_was_made_again_is_not_continued() {
    let (from, mut to, fs) = (source(Fail::Never), failing(Fail::From(3)), memory());
    copy(&from, &to, Some(&state(&fs, "job")), |_| ()).unwrap_err();
    to.fail = Fail::Never;
    to.db.delete_table("Tab").unwrap();
    to.db.create_table("Tab").unwrap();
    let error = copy(&from, &to, Some(&state(&fs, "job")), |_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.message().contains("remove its --state file"), "{error}");
    assert!(entities(&to).is_empty());
    fs.remove(Path::new("state")).unwrap();
    copy(&from, &to, Some(&state(&fs, "job")), |_| ()).unwrap();
    check_copies(&entities(&from), &to);
}

#[test]
fn a_continued_copy_knows_its_own_copies_under_new_keys() {
    // The first of two groups of a page is written.
    let (from, mut to, fs) = (source(Fail::Never), failing(Fail::From(4)), memory());
    let set = |job: &mut StoreCopy<'_>| {
        job.workers = ONE;
        job.row_key = Some(KeyTemplate::parse("x{RowKey}").unwrap());
    };
    copy(&from, &to, Some(&state(&fs, "job")), set).unwrap_err();
    assert_eq!(entities(&to).len(), 150);
    // Two failures at the same page.
    to.fail = Fail::From(0);
    copy(&from, &to, Some(&state(&fs, "job")), set).unwrap_err();
    to.fail = Fail::Never;
    // An equal entity that the job has not written.
    let other = from.db.get("Tab", "p6", "149", &[]).unwrap().unwrap();
    to.db.insert("Tab", &other.with_keys("p6", "x149")).unwrap();
    let (summary, _) = copy(&from, &to, Some(&state(&fs, "job")), set).unwrap();
    assert_eq!((summary.present, summary.conflicts), (30, 1), "{summary:?}");
    assert_eq!(summary.problems[0].source, ("p6".to_owned(), "149".to_owned()));
    assert_eq!(entities(&to).len(), 1_050);
}

#[test]
fn one_process_uses_a_state() {
    let fs = memory();
    let first = state(&fs, "job");
    let error = open_state(&fs, "job").err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    assert!(error.message().contains("another copy uses state"), "{error}");
    drop(first);
    drop(state(&fs, "job"));
    assert!(fs.list(Path::new("")).unwrap().is_empty());
}

#[test]
fn groups_whose_answers_are_lost_are_copied() {
    // Also if nothing was done: an entity that is kept is not counted as deleted.
    for fail in [Fail::Lost, Fail::Unsent] {
        let (from, to) = (source(fail), failing(fail));
        let expected = entities(&from);
        let (summary, _) = copy(&from, &to, None, |job| {
            (job.then_delete, job.workers) = (true, ONE);
        })
        .unwrap();
        assert_eq!((summary.rows, summary.copied + summary.present), (1_050, 1_050));
        assert_eq!((summary.deleted, summary.problem_count()), (1_050, 0));
        check_copies(&expected, &to);
        assert!(entities(&from).is_empty());
    }
}

#[test]
fn existing_entities_stay_or_are_replaced() {
    let (from, to) = (source(Fail::Never), failing(Fail::Lost));
    let other = || Entity::new("p3", "077").with("Other", "x");
    to.db.upsert("Tab", &other()).unwrap();
    let (summary, _) = copy(&from, &to, None, |job| job.workers = ONE).unwrap();
    assert_eq!((summary.conflicts, summary.problems.len()), (1, 1));
    assert_eq!(summary.problems[0].source, ("p3".to_owned(), "077".to_owned()));
    assert!(to.db.get("Tab", "p3", "077", &[]).unwrap().unwrap().has_properties_of(&other()));
    let (summary, _) = copy(&from, &to, None, |job| {
        (job.replace, job.workers) = (true, ONE);
    })
    .unwrap();
    assert_eq!((summary.problem_count(), summary.rows), (0, 1_050));
    check_copies(&entities(&from), &to);
}

#[test]
fn entities_that_changed_since_they_were_read_are_not_deleted() {
    let (from, to) = (source(Fail::Races), failing(Fail::Never));
    let (summary, _) = copy(&from, &to, None, |job| {
        job.then_delete = true;
        job.workers = ONE;
    })
    .unwrap();
    assert_eq!((summary.copied, summary.deleted, summary.changed), (1_050, 1_049, 1));
    assert_eq!(summary.problems[0].kind, CopyProblemKind::Changed);
    let left = entities(&from);
    assert_eq!(left.len(), 1);
    assert!(left[0].has_properties_of(&Entity::new("p0", "000").with("New", true)));
}

/// Azurite reads some keys wrongly in the addresses of a group.
#[test]
fn a_delete_that_is_refused_in_a_group_is_sent_alone() {
    for (most, left) in [(1, 0), (0, 7)] {
        let (from, to) = (source(Fail::Refuses(most)), failing(Fail::Never));
        let (summary, _) = copy(&from, &to, None, |job| job.then_delete = true).unwrap();
        assert_eq!((summary.copied, summary.deleted, summary.refused), (1_050, 1_050 - left, left));
        assert!(entities(&from).iter().all(|entity| entity.row_key() == "001"));
        assert_eq!(entities(&from).len() as u64, left);
    }
}

#[test]
fn an_entity_of_another_partition_is_no_copy() {
    let (from, to) = (source(Fail::Never), failing(Fail::Lies));
    for entity in entities(&from) {
        let mut other = Entity::new("other", entity.row_key());
        for (name, value) in entity.properties() {
            other.set(name, value.to_value());
        }
        to.db.upsert("Tab", &other).unwrap();
    }
    let error = copy(&from, &to, None, |job| job.then_delete = true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(entities(&from).len(), 1_050);
}

/// A target that is the source under another name.
#[test]
fn the_only_copy_of_an_entity_is_neither_deleted_nor_replaced() {
    type Set = fn(&mut StoreCopy<'_>);
    let harmful: [Set; 3] = [
        |job| job.then_delete = true,
        |job| (job.replace, job.select) = (true, vec!["Half".to_owned()]),
        |job| job.row_key = Some(KeyTemplate::parse("x{RowKey}").unwrap()),
    ];
    let store = source(Fail::Never);
    let before = entities(&store);
    for set in harmful {
        let error = copy(&store, &store, None, set).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains("they are the same table"), "{error}");
        assert_eq!(entities(&store), before);
    }
    let (summary, _) = copy(&store, &store, None, |_| ()).unwrap();
    assert_eq!((summary.present, summary.problem_count()), (1_050, 0));
}

/// Without an error these would not end.
#[test]
fn a_source_that_repeats_pages_is_an_error() {
    for (has_entity, expected) in [(false, ErrorKind::Io), (true, ErrorKind::Unsupported)] {
        let (from, to) = (source(Fail::Repeats(has_entity)), failing(Fail::Never));
        let error = copy(&from, &to, None, |job| job.workers = ONE).unwrap_err();
        assert_eq!(error.kind(), expected, "{error}");
        let [a, b] = [&from, &to].map(|store| Side { store, table: "Tab" });
        let comparison = Comparison { a, b, filter: "", workers: ONE };
        let error = comparison.run(&|_| (), |_| true).unwrap_err();
        assert_eq!(error.kind(), expected, "{error}");
    }
}

#[test]
fn filters_selections_and_new_keys() {
    let (from, to) = (source(Fail::Never), failing(Fail::Never));
    let (summary, _) = copy(&from, &to, None, |job| {
        job.filter = "Half eq true or N eq 1".to_owned();
        job.select = vec!["N".to_owned()];
        job.partition_key = Some(KeyTemplate::parse("{Half}").unwrap());
        job.row_key = Some(KeyTemplate::parse("{PartitionKey}-{RowKey}").unwrap());
    })
    .unwrap();
    assert_eq!((summary.rows, summary.copied), (526, 526));
    let found = to.db.get("Tab", "false", "p0-001", &[]).unwrap().unwrap();
    assert!(found.has_properties_of(&Entity::new("", "").with("N", 1)));
    let all = || KeyTemplate::parse("all").unwrap();
    // All entities of a page get one of two keys.
    let to = failing(Fail::Never);
    let (summary, _) = copy(&from, &to, None, |job| {
        job.partition_key = Some(all());
        job.row_key = Some(KeyTemplate::parse("{Half}").unwrap());
    })
    .unwrap();
    assert_eq!((summary.rows, summary.shared), (1_050, 1_050));
    // Copies whose answer is lost are known to be this job's.
    let lost = failing(Fail::Lost);
    let (summary, _) = copy(&from, &lost, None, |job| {
        job.row_key = Some(KeyTemplate::parse("x{RowKey}").unwrap());
        job.workers = ONE;
    })
    .unwrap();
    assert_eq!((summary.copied + summary.present, summary.problem_count()), (1_050, 0));
    // Two equal copies under one key are reported, in one page or in two.
    for page_rows in [1, 40] {
        let (from, to) = (source(Fail::Never), failing(Fail::Never));
        let (summary, _) = copy(&from, &to, None, |job| {
            job.filter = "N eq 1 or N eq 1001".to_owned();
            job.select = vec!["None".to_owned()];
            (job.partition_key, job.row_key) = (Some(all()), Some(all()));
            (job.page_rows, job.workers) = (page_rows, ONE);
        })
        .unwrap();
        let shared_or_conflict = if page_rows == 1 { (1, 0, 1) } else { (0, 2, 0) };
        assert_eq!((summary.copied, summary.shared, summary.conflicts), shared_or_conflict);
        assert_eq!(summary.present, 0);
    }
    for (replace, then_delete) in [(true, false), (false, true)] {
        let error = copy(&from, &to, None, |job| {
            (job.replace, job.then_delete) = (replace, then_delete);
            job.row_key = Some(KeyTemplate::parse("{N}").unwrap());
        });
        assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    let (summary, _) = copy(&from, &to, None, |job| {
        job.row_key = Some(KeyTemplate::parse("{None}").unwrap());
    })
    .unwrap();
    assert_eq!((summary.refused, summary.copied), (1_050, 0));
}

/// Large entities make small groups.
#[test]
fn groups_stay_within_the_limits_of_the_target() {
    let (from, to) = (failing(Fail::Never), failing(Fail::Never));
    for i in 0..12 {
        let mut entity = Entity::new("p", format!("{i:02}"));
        // A quotation mark takes two bytes of JSON.
        (0..10).for_each(|n| {
            entity.set(format!("P{n}"), "\"".repeat(30_000));
        });
        from.db.insert("Tab", &entity).unwrap();
    }
    let (summary, traffic) = copy(&from, &to, None, |_| ()).unwrap();
    assert_eq!(summary.copied, 12);
    let all: usize = entities(&from).iter().map(Entity::size).sum();
    assert_eq!((traffic.target.entities, traffic.target.bytes_stored), (12, all as u64));
    // Three entities have 1.8 MB of JSON. Cosmos DB accepts 2 MB.
    let largest = to.largest.load(Ordering::Relaxed);
    assert!((1_800_000..2_000_000).contains(&largest), "{largest}");
    check_copies(&entities(&from), &to);
}

#[test]
fn a_dry_run_writes_nothing() {
    let (from, to) = (source(Fail::Never), failing(Fail::Never));
    let (summary, traffic) = copy(&from, &to, None, |job| {
        job.target = None;
        job.then_delete = true;
        job.workers = ONE;
    })
    .unwrap();
    assert_eq!((summary.rows, summary.copied, summary.deleted), (1_050, 0, 0));
    // A page of 40 entities ends within a partition of 150, so its groups are of two partitions.
    assert_eq!(traffic.source.transactions, traffic.target.transactions);
    assert!(traffic.target.transactions >= 27, "{traffic:?}");
    assert_eq!((entities(&from).len(), entities(&to).len()), (1_050, 0));
    // The job itself sends as many groups, and stores as many bytes.
    let (_, real) = copy(&from, &to, None, |job| job.workers = ONE).unwrap();
    assert_eq!(to.groups.load(Ordering::Relaxed), traffic.target.transactions);
    assert_eq!(real.target.bytes_stored, traffic.target.bytes_stored);
    assert_eq!((real.target.entities, traffic.target.entities), (1_050, 1_050));
}

/// A position in another order than that of the keys has entities left before it.
#[test]
fn a_source_in_another_order_leaves_no_positions() {
    let (mut from, to, fs) = (source(Fail::Disorder), failing(Fail::Never), memory());
    for _ in 0..2 {
        from.reads = AtomicU64::new(0);
        let error = copy(&from, &to, Some(&state(&fs, "job")), |job| job.workers = ONE);
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("table 'Tab' cannot be copied"), "{error}");
        assert!(!fs.exists(Path::new("state")).unwrap());
    }
    // The first page was copied.
    assert_eq!(entities(&to).len(), 40);
}

/// Only the reported entities would be refused.
#[test]
fn a_check_reports_what_a_service_would_refuse() {
    let (from, to) = (source(Fail::Never), failing(Fail::Never));
    from.db.upsert("Tab", &Entity::new("p3", "x").with("id", 1)).unwrap();
    let (summary, _) = copy(&from, &to, None, |job| {
        (job.target, job.dialect) = (None, Some(Dialect::Cosmos));
    })
    .unwrap();
    assert_eq!((summary.rows, summary.refused, summary.problem_count()), (1_051, 1, 1));
    let problem = &summary.problems[0];
    assert_eq!(problem.source, ("p3".to_owned(), "x".to_owned()));
    assert!(problem.message.contains("reserved in cosmos"), "{problem:?}");
}
