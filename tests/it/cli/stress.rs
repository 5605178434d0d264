//! Runs `rowstone stress` for a few process lifetimes: the real program is killed, and limits are
//! set on it.
//!
//! `.ci/run` also runs it on a small file system that fills up, which only the superuser may mount.

use super::{Place, Run};

/// Returns the count `name` in the output of a run.
fn count(run: &Run, name: &str) -> u64 {
    let (_, rest) = run.out.split_once(&format!("\"{name}\":")).unwrap();
    rest.split([',', '}']).next().unwrap().parse().unwrap()
}

#[track_caller]
fn stress(arguments: &str) -> Run {
    let place = Place::new();
    let run = place.run(&format!("stress soak --json {arguments}"));
    assert_eq!((run.status, &*run.err), (Some(0), ""), "{arguments}: {}", run.out);
    run
}

#[test]
fn acknowledged_commits_survive_random_kills() {
    for (seed, durability) in [(1, "sync"), (2, "os"), (3, "buffered")] {
        let run = stress(&format!("--kills 12 --seed {seed} --durability {durability}"));
        assert!(count(&run, "kills") > 5, "{}", run.out);
        assert!(count(&run, "compared") > 5 && count(&run, "commits") > 100, "{}", run.out);
        let lost = count(&run, "commits_lost");
        assert!(durability == "buffered" || lost == 0, "{}", run.out);
    }
}

#[test]
fn trap_49_with_few_descriptors_every_request_is_answered() {
    let run = stress("--kills 12 --seed 4 --open-files 16");
    assert!(count(&run, "refused_starts") + count(&run, "Io") > 0, "{}", run.out);
}

#[test]
fn a_file_size_limit_loses_nothing() {
    let run = stress("--kills 12 --seed 5 --file-bytes 600000");
    let seen = ["refused_starts", "ends_by_limit"].map(|name| count(&run, name));
    assert!(seen.iter().sum::<u64>() > 0, "{}", run.out);
}

#[test]
fn the_table_of_an_earlier_load_can_be_dropped() {
    let place = Place::new();
    place.ok("create-table db StressTest");
    let advice = ["TableAlreadyExists", "try: rowstone drop-table DB StressTest --yes"];
    place.fails("stress db --partition p --rate 10", 1, &advice);
}

#[test]
fn a_nonempty_directory_is_left_alone() {
    let place = Place::new();
    place.write("mine", "mine");
    place.fails("stress . --kills 1", 2, &["not empty"]);
    assert_eq!(place.read("mine"), "mine");
}
