//! Tests `rowstone bench` with tiny sizes: every benchmark, its counts, and refused arguments.
//! Rates are not checked.

use super::{Place, Run};

/// Returns the number after `"name":` in a line of JSON.
#[track_caller]
fn number(line: &str, name: &str) -> f64 {
    let (_, rest) = line.split_once(&format!("\"{name}\":")).expect(name);
    let digits = rest.split([',', '}']).next().unwrap();
    digits.parse().unwrap_or_else(|_| panic!("{name} in {line}"))
}

/// Returns the lines of the benchmarks, without the lines for configuration and counters.
#[track_caller]
fn bench(place: &Place, arguments: &str) -> Vec<String> {
    let out = place.ok(&format!("bench db --json {arguments}"));
    let lines: Vec<_> = out.lines().map(str::to_owned).collect();
    assert!(lines.iter().all(|line| line.starts_with('{') && line.ends_with('}')), "{out}");
    assert!(lines[0].contains("\"entity_bytes\":") && lines.last().unwrap().contains("\"stats\""));
    lines[1..lines.len() - 1].to_vec()
}

#[track_caller]
fn check(kinds: &str, options: &str, expected: &[(&str, f64, f64)]) {
    let place = Place::new();
    let lines = bench(&place, &format!("--num 2000 --benchmarks {kinds} {options}"));
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (line, (name, operations, found)) in lines.iter().zip(expected) {
        assert!(line.contains(&format!("\"benchmark\":\"{name}\"")), "{line}");
        assert_eq!(
            (number(line, "operations"), number(line, "found")),
            (*operations, *found),
            "{line}"
        );
    }
}

#[test]
fn every_name_has_its_counts() {
    let names = "fillseq,readseq,readreverse,readrandom,readmissing,overwrite,compact,readseq";
    let all = 2_000.0;
    check(
        names,
        "--seed 3",
        &[
            ("fillseq", all, 0.0),
            ("readseq", all, all),
            ("readreverse", all, all),
            ("readrandom", all, all),
            ("readmissing", all, 0.0),
            ("overwrite", all, 0.0),
            ("compact", all, 0.0),
            ("readseq", all, all),
        ],
    );
    check("fillbatch,readseq", "--batch-size 7", &[("fillbatch", all, 0.0), ("readseq", all, all)]);
    check("fillsync,readseq", "", &[("fillsync", 2.0, 0.0), ("readseq", 2.0, 2.0)]);
}

#[test]
fn clients_share_the_operations_and_scan_everything_each() {
    check(
        "fillbatch,readrandom,readseq,filterscan",
        "--threads 3 --reads 500 --partition-rows 64 --selectivity 100",
        &[
            ("fillbatch", 2_000.0, 0.0),
            ("readrandom", 500.0, 500.0),
            ("readseq", 6_000.0, 6_000.0),
            ("filterscan", 20_000.0, 20_000.0),
        ],
    );
}

#[test]
fn seeks_return_the_next_entities_of_the_partition() {
    // One entity per partition: a seek finds no further entity.
    let options = "--reads 300 --seek-nexts 4 --partition-rows 1";
    check(
        "fillseq,seekrandom",
        options,
        &[("fillseq", 2_000.0, 0.0), ("seekrandom", 300.0, 300.0)],
    );
    let options = "--reads 300 --seek-nexts 4 --partition-rows 100000 --num 100000";
    let lines = bench(&Place::new(), &format!("--benchmarks fillbatch,seekrandom {options}"));
    assert!(number(&lines[1], "found") > 1_490.0, "{lines:?}");
}

#[test]
fn readers_next_to_a_writer_find_everything() {
    let place = Place::new();
    let lines = bench(&place, "--num 3000 --benchmarks fillseq,readwhilewriting --threads 2");
    let (readers, writer) = lines[1].split_once("\"writer\":").unwrap();
    assert_eq!((number(readers, "operations"), number(readers, "found")), (3_000.0, 3_000.0));
    assert!(number(writer, "operations") >= 0.0);
}

#[test]
fn a_seed_determines_the_data_and_a_later_run_finds_it() {
    let fill = |seed: u32| {
        let place = Place::new();
        let options = format!("--num 3000 --benchmarks fillrandom,readseq --seed {seed}");
        let lines = bench(&place, &options);
        (place, number(&lines[1], "found"))
    };
    let ((place, found), (_, again), (_, other)) = (fill(5), fill(5), fill(6));
    assert_eq!(found, again);
    assert_ne!(found, other);
    assert!(found > 1_700.0 && found < 2_100.0, "of 3000 at random, 63 %: {found}");

    let lines = bench(&place, "--use-existing-db --benchmarks readrandom,readseq --seed 9");
    assert_eq!((number(&lines[0], "operations"), number(&lines[1], "found")), (3_000.0, found));
    place.fails(
        "bench db --use-existing-db --num 4000 --benchmarks readseq",
        2,
        &["with --num 3000", "leave --num out"],
    );
}

#[test]
fn database_options_are_accepted() {
    let options =
        "--io pread --cache-size 1M --write-buffer-size 64K --block-size 4K --rate-limit 1G";
    let kinds = "fillrandom,compact,readrandom,readseq";
    let lines = bench(&Place::new(), &format!("--num 5000 --benchmarks {kinds} {options}"));
    assert_eq!(lines.len(), 4);
    #[cfg(feature = "zstd")]
    bench(&Place::new(), "--num 5000 --benchmarks fillseq,compact,readrandom --compress");
}

#[test]
fn tables_for_people_and_histograms() {
    let place = Place::new();
    let out = place.ok("bench db --num 2000 --benchmarks fillseq,readrandom --histogram");
    let lines =
        ["fillseq          : ", "readrandom       : ", " p99.99 ", "; 2,000 found", "stalls"];
    assert!(lines.iter().all(|text| out.contains(text)), "{out}");
    let counted: u64 = out
        .lines()
        .filter(|line| line.starts_with("  [") && line.contains(')'))
        .map(|line| line.split_once(')').unwrap().1.split_whitespace().next().unwrap())
        .map(|count| count.parse::<u64>().unwrap())
        .sum();
    assert_eq!(counted, 4_000, "{out}");
}

#[test]
fn invalid_arguments_are_refused_with_valid_ones() {
    let place = Place::new();
    place.fails(
        "bench db --benchmarks fillseq,fillmore",
        2,
        &["fillmore", "fillseq", "filterscan"],
    );
    place.fails("bench db --benchmarks readrandom", 2, &["fillseq", "--use-existing-db"]);
    place.fails("bench", 2, &["DIR"]);
    assert!(!place.path("db").exists());
}

#[test]
fn data_of_others_is_kept() {
    let place = Place::new();
    place.write("mine", "mine");
    place.fails("bench . --benchmarks fillseq", 2, &["not empty", "missing or empty"]);
    assert_eq!(place.read("mine"), "mine");

    place.put("Parts", r#"{"PartitionKey":"bolts","RowKey":"m4","Stock":1}"#);
    let fill = "bench db --num 1000 --benchmarks fillseq,readseq,fillseq";
    place.fails(fill, 2, &["did not make", "--use-existing-db"]);
    place.ok(&format!("{fill} --use-existing-db"));
    // Now the database has the benchmark's table, and only that table is emptied.
    place.ok(fill);
    assert!(place.ok("get db Parts bolts m4").contains("Stock"));
}

#[test]
fn wrong_data_ends_the_run() {
    let place = Place::new();
    bench(&place, "--num 1000 --benchmarks fillseq");
    let broken =
        r#"{"PartitionKey":"0000000000","RowKey":"0000000500","Number":1,"Round":1,"Payload":"x"}"#;
    let write = |entity: &str| place.feed("put db RowstoneBench - --mode upsert", entity);
    let written: Run = write(broken);
    assert_eq!(written.status, Some(0), "{}", written.err);
    let read = "bench db --use-existing-db --benchmarks";
    place.fails(&format!("{read} readseq"), 1, &["wrong data", "entity 500"]);
    place.fails(&format!("{read} readrandom --reads 20000"), 1, &["wrong data", "entity 500"]);
    write(r#"{"PartitionKey":"x","RowKey":"y"}"#);
    place.fails(&format!("{read} readmissing"), 1, &["wrong data", "x/y"]);
}
