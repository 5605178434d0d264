//! Checks the "four corners": each module `src/format/X.rs` has a section §X in FORMAT.md, a fuzz
//! target X and a corpus X.
//!
//! A heading of FORMAT.md contains `§X` for each structure that its section describes. A source
//! file cites the section as `FORMAT.md §X`.

use super::Offence;
use super::documents::headings;
use super::source::{Source, is_word};

/// Files of `src/format` that need no fuzz target: name, reason.
const WITHOUT_TARGET: &[(&str, &str)] =
    &[("names", "names are a few dozen characters, tested exhaustively beside the code")];

pub fn check(sources: &[Source], paths: &[String], format: &str) -> Vec<Offence> {
    let sections: Vec<String> =
        headings(format).flat_map(|(_, heading)| citations(heading, "§")).collect();
    let structures = structures(sources);
    let mut offences = Vec::new();
    for (name, path) in &structures {
        if !sections.contains(name) {
            let what = format!("FORMAT.md has no heading with §{name}");
            offences.push(Offence::new(path, 1, "four corners", what));
        }
        let target = format!("fuzz/fuzz_targets/{name}.rs");
        let excused = WITHOUT_TARGET.iter().any(|(excused, _)| excused == name);
        if excused == paths.contains(&target) {
            let what = if excused { "excused but exists" } else { "missing" };
            offences.push(Offence::new(path, 1, "four corners", format!("{target} is {what}")));
        }
        if !excused && !paths.iter().any(|path| path.starts_with(&format!("fuzz/corpus/{name}/"))) {
            let what = format!("fuzz/corpus/{name} is empty");
            offences.push(Offence::new(path, 1, "four corners", what));
        }
    }
    for (name, _) in WITHOUT_TARGET {
        if !structures.iter().any(|(structure, _)| structure == name) {
            let what = format!("src/format/{name}.rs is gone");
            offences.push(Offence::new("tests/tidy/corners.rs", 1, "stale exception", what));
        }
    }
    offences.extend(check_citations(sources, &sections));
    offences
}

/// Returns the modules of `src/format`: name and path.
fn structures(sources: &[Source]) -> Vec<(String, String)> {
    let engine = sources.iter().filter(|source| source.is_engine() && !source.is_test());
    engine
        .filter_map(|source| match source.modules()[..] {
            ["format", name] => Some((name.to_owned(), source.path.clone())),
            _ => None,
        })
        .collect()
}

fn check_citations(sources: &[Source], sections: &[String]) -> Vec<Offence> {
    let mut offences = Vec::new();
    for source in sources.iter().filter(|source| source.is_engine()) {
        for (number, comment) in source.comments.iter().enumerate() {
            for name in citations(comment, "FORMAT.md §") {
                if !sections.contains(&name) {
                    let what = format!("FORMAT.md has no heading with §{name}");
                    offences.push(Offence::new(&source.path, number + 1, "citation", what));
                }
            }
        }
    }
    offences
}

/// Returns the name after each occurrence of `mark`.
fn citations(text: &str, mark: &str) -> Vec<String> {
    let after = text.match_indices(mark).map(|(at, _)| &text[at + mark.len()..]);
    after
        .map(|rest| rest.chars().take_while(|&c| is_word(c) || c == '.').collect::<String>())
        .map(|name| name.trim_end_matches('.').to_owned())
        .collect()
}

#[track_caller]
fn finds(source: (&str, &str), paths: &[&str], format: &str, expected: &[&str]) {
    let sources = [Source::new(source.0, source.1), Source::new("src/format/names.rs", "")];
    let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
    let format = format!("{format}\n## Names §names\n");
    let offences = check(&sources, &paths, &format);
    let found: Vec<String> = offences.iter().map(|offence| offence.what.clone()).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_missing_corner_is_found() {
    let row = ("src/format/row.rs", "//! FORMAT.md §row.");
    let target = ["fuzz/fuzz_targets/row.rs", "fuzz/corpus/row/1"];
    finds(row, &target, "# 4 Rows §row and §other", &[]);
    finds(row, &target, "# Rows", &["FORMAT.md has no heading with §row"; 2]);
    finds(row, &target[..1], "# §row", &["fuzz/corpus/row is empty"]);
    finds(row, &target[1..], "# §row", &["fuzz/fuzz_targets/row.rs is missing"]);
    let excused = "fuzz/fuzz_targets/names.rs is excused but exists";
    finds(row, &[target[0], target[1], "fuzz/fuzz_targets/names.rs"], "# §row", &[excused]);
}

#[test]
fn a_dangling_citation_is_found() {
    let cites = ("src/log/reader.rs", "//! Reads records. FORMAT.md §records.");
    finds(cites, &[], "# §record", &["FORMAT.md has no heading with §records"]);
    finds(cites, &[], "# §records", &[]);
}
