//! Checks that comments, documents, texts in quotes and names of tests are plain English in short
//! lines.
//!
//! The checks do not cover the meaning of the text.

use super::Offence;
use super::source::{Source, is_word, word_offsets};

/// The maximum length of a line of prose. Tables, code in documents and lines with a URL may be
/// longer.
const COLUMNS_MAX: usize = 100;
/// A report that a program writes.
const GENERATED: &str = "benches/compare/results/comparison.md";

/// Words that made comments hard to read, with the words to write instead.
const RARE: &[(&str, &str)] = &[
    ("who", "name the subject: the reader, the leader, the caller"),
    ("whoever", "name the subject: the reader, the leader, the caller"),
    ("nobody", "name the subject: no reader, no caller"),
    ("somebody", "name the subject: a reader, another thread"),
    ("everybody", "name the subject: all readers, every thread"),
    ("anew", "again, from scratch"),
    ("beside", "next to, concurrently with, along with"),
    (WHAT, "begin with the thing: the file, the commit, the range"),
];
/// Further words that are often unclear and sometimes right, with the words to write instead.
const SELDOM: &[(&str, &str)] = &[
    ("whose", "with, of which"),
    ("anybody", "any reader, any caller"),
    ("the one that", "name it"),
    ("so many", "a number, or `at most`"),
    ("of those", "of the files, of the rows"),
    ("those that", "the files that, the rows that"),
    ("goes", "is removed, is written, moves"),
    ("comes", "arrives, follows, is read"),
    ("stands", "is stored, is, holds"),
    ("lies", "is stored, is located, overlaps"),
];
/// A word that is counted only at the beginning of a sentence.
const WHAT: &str = "What";
/// The maximum number of uses per thousand words of the tree: of words of `RARE`, and of words of
/// both lists together.
const RARE_MAX: f64 = 1.0;
const ALL_MAX: f64 = 2.0;

/// The part of one line that is text for people to read.
struct Prose<'a> {
    file: &'a str,
    line: usize,
    text: String,
}

/// Reports lines that are too long.
pub fn check_columns(sources: &[Source], documents: &[(String, String)]) -> Vec<Offence> {
    let comments = sources.iter().flat_map(|source| {
        let lines = source.raw.iter().zip(&source.comments).enumerate();
        lines
            .filter(|(_, (_, comment))| !comment.is_empty() && !is_table(comment))
            .map(|(number, (raw, _))| (source.path.as_str(), number + 1, raw.as_str()))
    });
    let written = documents.iter().filter(|(path, _)| path != GENERATED);
    let texts = written.flat_map(|(path, text)| {
        prose_lines(text).map(|(number, line)| (path.as_str(), number, line))
    });
    let is_long = |(_, _, line): &(&str, usize, &str)| {
        line.trim_end().chars().count() > COLUMNS_MAX && !line.contains("://")
    };
    let offence = |(file, number, line): (&str, usize, &str)| {
        let what = format!("{} columns, at most {COLUMNS_MAX}", line.trim_end().chars().count());
        Offence::new(file, number, "prose width", what)
    };
    comments.chain(texts).filter(is_long).map(offence).collect()
}

/// Reports all uses of words of the lists, if there are more than the maximum.
pub fn check_words(sources: &[Source], documents: &[(String, String)]) -> Vec<Offence> {
    let Uses { words, mut rare, seldom } = all_uses(sources, documents);
    let rate = |uses: usize| uses as f64 * 1_000.0 / (words as f64).max(1_000.0);
    if rate(rare.len()) <= RARE_MAX && rate(rare.len() + seldom.len()) <= ALL_MAX {
        return Vec::new();
    }
    rare.extend(seldom);
    rare
}

/// The number of words of the tree, and the uses of words of the lists.
#[derive(Default)]
struct Uses {
    words: usize,
    rare: Vec<Offence>,
    seldom: Vec<Offence>,
}

fn all_uses(sources: &[Source], documents: &[(String, String)]) -> Uses {
    let of_sources = sources.iter().flat_map(of_source);
    let of_documents = documents.iter().flat_map(|(path, text)| {
        let prose = |(line, text): (usize, &str)| Prose { file: path, line, text: text.to_owned() };
        prose_lines(text).map(prose).collect::<Vec<_>>()
    });
    let mut all = Uses::default();
    for prose in of_sources.chain(of_documents) {
        all.words += prose.text.split(|c| !is_word(c)).filter(|word| !word.is_empty()).count();
        all.rare.extend(uses(&prose, RARE));
        all.seldom.extend(uses(&prose, SELDOM));
    }
    all
}

fn uses(prose: &Prose<'_>, words: &[(&str, &str)]) -> Vec<Offence> {
    let lower = prose.text.to_lowercase();
    let mut offences = Vec::new();
    for (word, instead) in words {
        let count = match *word {
            WHAT => sentences_with_what(&prose.text),
            word => word_offsets(&lower, word).count(),
        };
        let what = format!("`{word}`: write instead: {instead}");
        offences.extend((0..count).map(|_| Offence::new(prose.file, prose.line, "dialect", &what)));
    }
    offences
}

fn sentences_with_what(text: &str) -> usize {
    let is_start = |at: &usize| {
        let before = text[..*at].trim_end_matches(' ');
        let is_marker = before.chars().all(|c| "/!*- \"".contains(c));
        is_marker || before.ends_with(['.', ':', ';']) && before.len() < *at
    };
    let at = word_offsets(text, WHAT);
    let is_question = text.contains('?');
    if is_question { 0 } else { at.filter(is_start).count() }
}

/// Returns comments, texts in quotes of more than three words, and names of tests.
fn of_source(source: &Source) -> Vec<Prose<'_>> {
    let mut found = Vec::new();
    let mut is_test = false;
    for (number, code) in source.code.iter().enumerate() {
        let mut add = |text: String| {
            found.push(Prose { file: &source.path, line: number + 1, text });
        };
        let (comment, literal) = (&source.comments[number], &source.literals[number]);
        if !comment.is_empty() {
            add(comment.clone());
        }
        if literal.split_whitespace().count() > 3 {
            add(literal.clone());
        }
        let name = code.trim_start().strip_prefix("fn ").filter(|_| is_test);
        if let Some(name) = name {
            add(name.split('(').next().unwrap_or_default().replace('_', " "));
        }
        is_test = code.trim() == "#[test]" || is_test && code.trim_start().starts_with('#');
    }
    found
}

fn is_table(comment: &str) -> bool {
    comment.trim_start_matches(['/', '!', ' ']).starts_with('|')
}

/// Returns the lines of a document that are prose: no code, no rows of tables.
fn prose_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        let is_block = line.starts_with("    ") || line.trim_start().starts_with('|');
        let is_prose = !is_code && !is_fence && !is_block;
        is_prose.then_some((number + 1, line))
    })
}

/// Returns the places where a file with `code` and a document use words of the lists.
fn found(code: &str, document: &str) -> Vec<String> {
    let documents = [("a.md".to_owned(), document.to_owned())];
    let Uses { rare, seldom, .. } = all_uses(&[Source::new("src/a.rs", code)], &documents);
    let uses = rare.into_iter().chain(seldom);
    uses.map(|offence| format!("{}:{}", offence.file, offence.line)).collect()
}

#[test]
fn words_of_the_dialect_are_found_wherever_they_are() {
    assert_eq!(found("// The leader writes.\nlet who = 1;", "The leader writes."), [""; 0]);
    assert_eq!(found("x(); // Whoever waits\n/// and nobody", ""), ["src/a.rs:1", "src/a.rs:2"]);
    assert_eq!(found("x(\"it was opened anew here\");\nx(\"who\");", ""), ["src/a.rs:1"]);
    assert_eq!(found("#[test]\nfn who_waits_leads() {}\nfn who_is() {}", ""), ["src/a.rs:2"]);
    assert_eq!(found("", "Rows.\n| who |\n```\nwho\n```\nso many"), ["a.md:6"]);
    let sentences = "What is read stays.\nx what What\nx. What\nWhat is it?";
    assert_eq!(found("", sentences), ["a.md:1", "a.md:3"]);
}

#[test]
fn uses_within_the_budget_are_no_offences() {
    let offences = |uses: usize, word: &str| {
        let text = format!("{}{}", "word ".repeat(1_000 - uses), format!("{word} ").repeat(uses));
        check_words(&[], &[("a.md".to_owned(), text)]).len()
    };
    assert_eq!([offences(1, "who"), offences(2, "who")], [0, 2]);
    assert_eq!([offences(2, "goes"), offences(3, "goes")], [0, 3]);
}

#[test]
fn long_lines_of_prose_are_offences() {
    let long = "x ".repeat(51);
    let lines = |code: &str, document: &str| {
        let documents = [("a.md".to_owned(), document.to_owned())];
        check_columns(&[Source::new("src/a.rs", code)], &documents).len()
    };
    assert_eq!(lines(&format!("// {long}"), &long), 2);
    assert_eq!(lines(&format!("\"{long}\""), &format!("| {long}\n```\n{long}\n```")), 0);
    assert_eq!(lines(&format!("// https://{long}"), &format!("https://{long}")), 0);
    assert_eq!(lines(&format!("//! | {long}"), &format!("    {long}")), 0);
}
