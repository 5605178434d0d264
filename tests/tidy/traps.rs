//! Checks the table of traps in docs/TESTING.md, which maps every known way to lose data to the
//! test that detects it.
//!
//! Rows of the table are `| number | failure | tests, or "waits for …" |`.

use std::collections::BTreeMap;

use super::Offence;
use super::source::{Source, is_word, word_offsets};

const TRAPS: u32 = 66;
const FILE: &str = "docs/TESTING.md";
const RULE: &str = "trap";

struct Row<'a> {
    line: usize,
    number: u32,
    tests: Vec<&'a str>,
    waits: bool,
}

pub fn check(sources: &[Source], paths: &[String], document: &str) -> Vec<Offence> {
    let rows = rows(document);
    let functions = functions(sources);
    let mut offences = Vec::new();
    for number in 1..=TRAPS {
        if rows.iter().filter(|row| row.number == number).count() != 1 {
            let what = format!("trap {number} needs exactly one row");
            offences.push(Offence::new(FILE, 1, RULE, what));
        }
    }
    for row in &rows {
        if row.tests.is_empty() && !row.waits {
            let what = format!("trap {} names neither a test nor what it waits for", row.number);
            offences.push(Offence::new(FILE, row.line, RULE, what));
        }
        for test in &row.tests {
            let there = if test.contains('/') {
                paths.iter().any(|path| path == test)
            } else {
                functions.contains_key(*test)
            };
            if !there {
                let what = format!("`{test}` does not exist");
                offences.push(Offence::new(FILE, row.line, RULE, what));
            }
        }
    }
    for (name, (path, line)) in &functions {
        for number in trap_numbers(name) {
            let is_row = |row: &&Row<'_>| row.number == number && row.tests.contains(&&**name);
            if rows.iter().find(is_row).is_none() {
                let what = format!("`{name}` is not in the row of trap {number}");
                offences.push(Offence::new(path, *line, RULE, what));
            }
        }
    }
    offences
}

fn rows(document: &str) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for (number, line) in document.lines().enumerate() {
        let mut cells = line.trim().trim_matches('|').split('|').map(str::trim);
        let Some(Ok(trap)) = cells.next().map(str::parse) else { continue };
        let last = cells.next_back().unwrap_or_default();
        let tests = last.split('`').skip(1).step_by(2).collect();
        let waits = last.contains("waits for ");
        rows.push(Row { line: number + 1, number: trap, tests, waits });
    }
    rows
}

/// Returns all functions of the tree, by name, with file and line.
fn functions(sources: &[Source]) -> BTreeMap<String, (String, usize)> {
    let mut found = BTreeMap::new();
    for source in sources {
        for (number, code) in source.code.iter().enumerate() {
            for at in word_offsets(code, "fn") {
                let rest = code[at + 2..].trim_start();
                let name: String = rest.chars().take_while(|&c| is_word(c)).collect();
                found.insert(name, (source.path.clone(), number + 1));
            }
        }
    }
    found
}

/// Returns the numbers in the name of a test: `trap_07_trap_08_…` has 7 and 8.
fn trap_numbers(name: &str) -> Vec<u32> {
    let mut numbers = Vec::new();
    let mut rest = name;
    while let Some((digits, more)) = rest.strip_prefix("trap_").and_then(|r| r.split_once('_')) {
        let Ok(number) = digits.parse() else { break };
        numbers.push(number);
        rest = more;
    }
    numbers
}

#[track_caller]
fn finds(row_3: &str, code: &str, expected: &[&str]) {
    let mut document = String::from("| # | trap | tests |\n| --- | --- | --- |\n");
    for number in (1..=TRAPS).filter(|number| *number != 3) {
        document.push_str(&format!("| {number} | bad | waits for queries |\n"));
    }
    document.push_str(row_3);
    let source = Source::new("src/a.rs", code);
    let paths = ["tests/scripts/a.txt".to_owned()];
    let offences = check(&[source], &paths, &document);
    let found: Vec<String> = offences.iter().map(|offence| offence.what.clone()).collect();
    assert_eq!(found, expected);
}

#[test]
fn gaps_in_the_table_are_found() {
    let test = "fn trap_03_torn() {}";
    finds("| 3 | tail | `trap_03_torn`, `tests/scripts/a.txt` |", test, &[]);
    finds("| 3 | tail | waits for sharks |", "", &[]);
    finds("", "", &["trap 3 needs exactly one row"]);
    finds("| 3 | tail | |", "", &["trap 3 names neither a test nor what it waits for"]);
    finds("| 3 | tail | `trap_03_torn` |", "", &["`trap_03_torn` does not exist"]);
    finds("| 3 | tail | `tests/b.txt` |", "", &["`tests/b.txt` does not exist"]);
    finds("| 3 | tail | waits for x |", test, &["`trap_03_torn` is not in the row of trap 3"]);
    finds(
        "| 3 | a | waits for x |\n| 3 | a | waits for x |",
        "",
        &["trap 3 needs exactly one row"],
    );
}
