//! Reports leftovers: code for debugging, sleeps, ignored tests, and assertions that assert
//! nothing.

use super::Offence;
use super::source::{Source, word_offsets};

/// Forbidden in code: pattern, rule, and the alternative.
const PATTERNS: &[(&str, &str, &str)] = &[
    ("dbg!(", "leftover", "`dbg!`"),
    ("todo!(", "leftover", "`todo!`"),
    ("unimplemented!(", "leftover", "`unimplemented!`"),
    ("#[ignore", "ignored test", "run it or remove it"),
    ("#[allow(", "allow", "use `#[expect(…, reason = …)]`"),
    ("#![allow(", "allow", "use `#![expect(…, reason = …)]`"),
    ("thread::sleep", "sleep", "wait for a condition, or move a manual clock"),
    ("sleep_ms", "sleep", "wait for a condition, or move a manual clock"),
];
/// Tests that need a service which `cargo test` cannot start.
const RUN_BY_CLIENTS: &str = "#[ignore = \"tests/clients/run starts";
/// The maximum number of lines of a module header (`//!`).
const HEADER_LINES_MAX: usize = 10;
const WORDS: [&str; 4] = ["TODO", "FIXME", "XXX", "HACK"];

pub fn check(source: &Source) -> Vec<Offence> {
    let mut offences = Vec::new();
    if !source.raw[0].starts_with("//!") {
        offences.push(Offence::new(&source.path, 1, "header", "the file does not open with `//!`"));
    }
    let header = source.raw.iter().take_while(|line| line.starts_with("//!")).count();
    // The header of the library is the first page of its documentation.
    if header > HEADER_LINES_MAX && source.path != "src/lib.rs" {
        let what = format!("{header} lines, at most {HEADER_LINES_MAX}");
        offences.push(Offence::new(&source.path, 1, "header", what));
    }
    for (number, code) in source.code.iter().enumerate() {
        for (pattern, rule, what) in PATTERNS {
            if code.contains(pattern) && !source.raw[number].contains(RUN_BY_CLIENTS) {
                offences.push(Offence::new(&source.path, number + 1, rule, *what));
            }
        }
    }
    for (number, comment) in source.comments.iter().enumerate() {
        for word in WORDS {
            if word_offsets(comment, word).next().is_some() {
                offences.push(Offence::new(&source.path, number + 1, "leftover", word));
            }
        }
    }
    offences.extend(check_bare_matches(source));
    offences
}

/// Reports `matches!(…);` as a statement, which looks like an assertion but asserts nothing.
fn check_bare_matches(source: &Source) -> Vec<Offence> {
    let text = source.code.join("\n");
    let mut offences = Vec::new();
    for (at, pattern) in text.match_indices("matches!(") {
        let before = text[..at].trim_end();
        let mut depth = 1usize;
        let rest = &text[at + pattern.len()..];
        let end = rest.find(|c| {
            depth = match c {
                '(' => depth + 1,
                ')' => depth - 1,
                _ => depth,
            };
            depth == 0
        });
        let ends = end.is_some_and(|end| rest[end + 1..].trim_start().starts_with(';'));
        if ends && (before.is_empty() || before.ends_with([';', '{', '}'])) {
            let line = text[..at].matches('\n').count() + 1;
            offences.push(Offence::new(&source.path, line, "bare matches", "asserts nothing"));
        }
    }
    offences
}

#[track_caller]
fn finds(text: &str, expected: &[(usize, &str)]) {
    let offences = check(&Source::new("src/a.rs", text));
    let found: Vec<_> = offences.iter().map(|offence| (offence.line, offence.rule)).collect();
    assert_eq!(found, expected);
}

#[test]
fn leftovers_are_found_in_code_and_in_comments() {
    finds("//! A.\nfn a() {}", &[]);
    finds("fn a() {}", &[(1, "header")]);
    finds(&"//! A.\n".repeat(11), &[(1, "header")]);
    finds("//! A.\nlet x = dbg!(1);", &[(2, "leftover")]);
    finds("//! A.\n// dbg!(1) in a comment, \"#[ignore]\"\nlet s = \"dbg!(1)\";", &[]);
    finds("//! A.\n\n#[ignore = \"tests/clients/run starts it\"]", &[]);
    finds("//! A.\n\n#[ignore = \"slow\"]\n#[allow(x)]", &[(3, "ignored test"), (4, "allow")]);
    finds("//! A.\nstd::thread::sleep(d);", &[(2, "sleep")]);
    finds("//! A.\n// FIXME later\nlet a = TODOS;", &[(2, "leftover")]);
}

#[test]
fn a_bare_matches_is_found_over_lines() {
    finds("//! A.\nf();\nmatches!(\n    a(b),\n    C(_)\n);", &[(3, "bare matches")]);
    finds("//! A.\nfn f() { matches!(a, b) }", &[]);
    finds("//! A.\nassert!(matches!(a, b));\nlet x = matches!(a, b);", &[]);
}
