//! Checks the lengths of lines and functions.
//!
//! Only code lines are counted, not comments or blank lines. A long string literal does not make a
//! line too long.

use super::Offence;
use super::source::{Source, is_word, word_offsets};

const LINE_CHARS_MAX: usize = 100;
/// The maximum number of characters of a line with a comment. `prose.rs` allows fewer, except in
/// tables.
const COMMENT_CHARS_MAX: usize = 130;
const FUNCTION_LINES_MAX: usize = 70;

/// Functions that may be longer: file, name, reason.
const LONG_FUNCTIONS: &[(&str, &str, &str)] = &[];

pub fn check(source: &Source) -> Vec<Offence> {
    let mut offences = check_lines(source);
    let long_function = |f: &Function| {
        f.lines > FUNCTION_LINES_MAX
            && !LONG_FUNCTIONS.iter().any(|(file, name, _)| *file == source.path && *name == f.name)
    };
    for function in functions(source).into_iter().filter(long_function) {
        let what = format!("`{}` has {} lines of code", function.name, function.lines);
        offences.push(Offence::new(&source.path, function.line, "function length", what));
    }
    offences
}

/// Reports exceptions that no longer apply.
pub fn check_exceptions(sources: &[Source]) -> Vec<Offence> {
    let find = |path: &str| sources.iter().find(|source| source.path == path);
    let mut offences = Vec::new();
    for (file, name, _) in LONG_FUNCTIONS {
        let functions = find(file).map(functions).unwrap_or_default();
        if !functions.iter().any(|f| f.name == *name && f.lines > FUNCTION_LINES_MAX) {
            offences.push(Offence::new(file, 1, "stale exception", format!("`{name}` is short")));
        }
    }
    offences
}

fn check_lines(source: &Source) -> Vec<Offence> {
    let mut offences = Vec::new();
    let lines = source.code.iter().zip(&source.comments).enumerate();
    for (number, (code, comment)) in lines {
        let chars = |text: &str| text.trim_end().chars().count();
        let (code, whole) = (chars(code), chars(&source.raw[number]));
        let too_long = if comment.is_empty() {
            code > LINE_CHARS_MAX
        } else {
            whole > COMMENT_CHARS_MAX && !comment.contains("http")
        };
        if too_long {
            let what = format!("{whole} characters");
            offences.push(Offence::new(&source.path, number + 1, "line length", what));
        }
    }
    offences
}

#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    line: usize,
    lines: usize,
}

fn functions(source: &Source) -> Vec<Function> {
    let mut found = Vec::new();
    for (number, code) in source.code.iter().enumerate() {
        for at in word_offsets(code, "fn") {
            let name: String =
                code[at + 2..].trim_start().chars().take_while(|&c| is_word(c)).collect();
            // `fn` without a name, as in `fn(u32) -> u32`, is a type.
            if name.is_empty() {
                continue;
            }
            if let Some(end) = body_end(&source.code, number, at) {
                let body = &source.code[number..=end];
                let lines = body.iter().filter(|line| !line.trim().is_empty()).count();
                found.push(Function { name, line: number + 1, lines });
            }
        }
    }
    found
}

/// Returns the line of the brace that closes the function with `fn` at `line`, `column`; `None` for
/// a declaration without a body.
fn body_end(code: &[String], line: usize, column: usize) -> Option<usize> {
    let (mut braces, mut brackets) = (0usize, 0usize);
    for (number, text) in code.iter().enumerate().skip(line) {
        for c in text.chars().skip(if number == line { column } else { 0 }) {
            match c {
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets = brackets.saturating_sub(1),
                '{' => braces += 1,
                '}' => {
                    braces = braces.checked_sub(1)?;
                    if braces == 0 {
                        return Some(number);
                    }
                }
                ';' if braces == 0 && brackets == 0 => return None,
                _ => {}
            }
        }
    }
    None
}

fn rules(text: &str) -> Vec<&'static str> {
    check(&Source::new("src/a.rs", text)).into_iter().map(|offence| offence.rule).collect()
}

#[test]
fn long_lines_are_offences_and_long_texts_are_not() {
    assert_eq!(rules(&"x".repeat(101)), ["line length"]);
    assert_eq!(rules(&"x".repeat(100)), [""; 0]);
    assert_eq!(rules(&format!("\"{}\"", "x".repeat(200))), [""; 0]);
    assert_eq!(rules(&format!("// {}", "x".repeat(128))), ["line length"]);
    assert_eq!(rules(&format!("// {}", "x".repeat(127))), [""; 0]);
}

#[test]
fn long_functions_are_offences() {
    let body =
        |lines: usize| format!("trait T {{ fn d(); }}\nfn a() {{\n{}}}\n", "x;\n".repeat(lines));
    assert_eq!(rules(&body(68)), [""; 0]);
    assert_eq!(rules(&body(69)), ["function length"]);
    assert_eq!(rules(&format!("fn a() {{\n{}}}\n", "// x\n\n".repeat(90))), [""; 0]);
    let functions = functions(&Source::new("src/a.rs", &body(1)));
    assert_eq!(functions, [Function { name: "a".into(), line: 2, lines: 3 }]);
}
