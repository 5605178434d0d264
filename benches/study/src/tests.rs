//! Tests the whole program without processes of its own. The runs are so small that each takes only
//! a moment.

use std::path::Path;

use clap::Parser;
use rowstone::{Db, Entity};
use serde_json::Value;

use crate::plot::tests::check_nesting;
use crate::{Outcome, Study};

const TINY: &str = "--library --quick --point-millis 5 --inserts-max 300 --rows 20 --durability os";

/// Runs the program, with threads as clients, with `arguments`, where DIR means `dir`, and returns
/// its output.
fn run(dir: &Path, arguments: &str) -> Outcome<String> {
    let dir = dir.to_str().expect("a path in UTF-8");
    let line = format!("study {arguments} {TINY}").replace("DIR", dir);
    let mut output = Vec::new();
    Study::try_parse_from(line.split(' '))?.run(&mut output)?;
    Ok(String::from_utf8(output)?)
}

#[test]
fn draws_and_prints_every_figure() {
    let dir = tempfile::tempdir().unwrap();
    let out = run(dir.path(), "DIR/db --out DIR/all.html").unwrap();
    let html = std::fs::read_to_string(dir.path().join("all.html")).unwrap();
    // Skips the first line, because the document type is not an element.
    check_nesting(html.split_once('\n').unwrap().1);
    for number in 3..=15 {
        assert!(out.contains(&format!("\nFigure {number}: ")), "{number}: {out}");
        assert!(html.contains(&format!("<h2 id=\"figure-{number}\">")), "{number}");
    }
    assert_eq!(html.matches("<svg ").count(), 15, "one a figure, and three of the last");
    assert!(!html.contains("NaN") && !html.contains("http") && !html.contains("<script"));
    assert!(html.contains("2010: most calls within"));
    assert!(html.contains("<cite>How to get most out of Windows Azure Tables</cite>"));
    assert!(out.contains("13 figures are drawn in "), "{out}");
    // The first run dropped its measured table and kept the marker table. So a second run must
    // accept the directory.
    let db = Db::open(dir.path().join("db")).unwrap();
    assert_eq!(db.tables().unwrap(), ["RowstoneStudy"]);
    db.close().unwrap();
    run(dir.path(), "DIR/db --out DIR/one.html --figures 4").unwrap();
}

#[test]
fn prints_json_of_the_requested_figures() {
    let dir = tempfile::tempdir().unwrap();
    let out = run(dir.path(), "DIR/db --json --figures 7,15 --out DIR/a.html").unwrap();
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3, "{out}");
    assert_eq!((&lines[0]["figure"], &lines[1]["figure"]), (&7.into(), &15.into()));
    assert!(lines[0]["rows"].as_array().unwrap().iter().any(|row| row[0] == "100"), "{out}");
    assert!(lines[2]["report"].as_str().unwrap().ends_with("a.html"));
    assert_eq!(lines[2]["figures"], 2);
    assert!(std::fs::read_to_string(dir.path().join("a.html")).unwrap().contains("Figure 7"));
    // This figure runs on a virtual clock, so every machine measures the same values.
    let row = lines[1]["rows"].as_array().unwrap().iter().find(|row| row[0] == "50").unwrap();
    assert!((2_300.0..=2_600.0).contains(&row[1].as_f64().unwrap()), "{row}");
}

/// As in the study, figure 6 is figure 5 divided by the size of the batch, whichever comes first.
#[test]
fn figure_6_is_derived_from_figure_5() {
    let dir = tempfile::tempdir().unwrap();
    for (place, numbers) in [("a", "5,6"), ("b", "6,5")] {
        let arguments = format!("DIR/{place} --json --figures {numbers} --out DIR/{place}.html");
        let out = run(dir.path(), &arguments).unwrap();
        let lines = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut figures: Vec<Value> = lines.take(2).collect();
        figures.sort_by_key(|figure| figure["figure"].as_u64());
        let rows = |figure: usize| figures[figure]["rows"].as_array().unwrap().clone();
        assert_eq!((rows(0).len(), rows(1).len()), (7, 7));
        for (batch, entity) in rows(0).iter().zip(rows(1)) {
            let size: f64 = batch[0].as_str().unwrap().parse().unwrap();
            let derived = batch[1].as_f64().unwrap() / size;
            let difference = (entity[1].as_f64().unwrap() - derived).abs();
            assert!(difference <= 1e-9 * derived, "batches of {size}: {batch} {entity}");
        }
    }
}

/// The figures of one partition show its target.
#[test]
fn figures_of_one_partition_show_its_target_of_2010() {
    let dir = tempfile::tempdir().unwrap();
    let out = run(dir.path(), "DIR/db --json --figures 8,15 --out DIR/a.html").unwrap();
    for line in out.lines().take(2) {
        let figure: Value = serde_json::from_str(line).unwrap();
        let names = figure["columns"].as_array().unwrap();
        let target = names.iter().position(|name| name == "2010: the target of a partition");
        let target = target.expect("a column");
        let rows = figure["rows"].as_array().unwrap();
        assert!(rows.iter().any(|row| row[target] == 500.0), "{line}");
    }
    assert!(std::fs::read_to_string(dir.path().join("a.html")).unwrap().contains("500"));
}

#[test]
fn leaves_other_databases_and_directories_alone() {
    let dir = tempfile::tempdir().unwrap();
    let parts = || {
        let db = Db::open(dir.path().join("db")).unwrap();
        (db.table_or_create("Parts").unwrap(), db)
    };
    let (table, db) = parts();
    table.insert(Entity::new("bolts", "m4").with("Stock", 1)).unwrap();
    drop(table);
    db.close().unwrap();
    let refused = |arguments: &str, reason: &str| {
        let error = run(dir.path(), arguments).unwrap_err().to_string();
        assert!(error.contains(reason), "{arguments}: {error}");
    };
    refused("DIR/db", "did not make");
    refused("DIR", "holds no database");
    refused("DIR/new --figures 2", "2");
    refused("DIR/new --out DIR/no/where.html", "where.html");
    let (table, db) = parts();
    assert!(table.get("bolts", "m4").unwrap().is_some());
    assert_eq!(db.tables().unwrap(), ["Parts"]);
}
