//! Checks the floors, which are the layers of the top modules. A module uses only modules of lower
//! floors: none of its own or a higher floor, and nothing through the crate root.
//!
//! The table has the order of docs/ARCHITECTURE.md. Within a top module, files may import one
//! another as far as `circles.rs` allows. In `src/lsm`, in addition, the folders, here called
//! rooms, are ordered like floors.

use super::Offence;
use super::imports::{Edge, Graph};
use super::source::{Source, is_word};

/// Top modules and their floors.
const FLOORS: &[(u8, &[&str])] = &[
    (15, &["main", "testing::fuzzing", "testing::bench_support"]),
    (14, &["cli"]),
    // `lib.rs` declares it as `transport`.
    (13, &["testing::transport", "transport"]),
    (12, &["store"]),
    (11, &["rest", "control"]),
    (10, &["json", "testing::sim"]),
    (9, &["db", "behave"]),
    (8, &["query"]),
    (7, &["table", "check"]),
    (6, &["lsm"]),
    (5, &["manifest"]),
    (4, &["log", "sst", "memtable", "ranges", "write_accounting"]),
    (3, &["format", "options", "billing"]),
    (2, &["model", "fs", "retry"]),
    (1, &["error"]),
    (0, &["codec", "clock", "rng", "sync", "executor", "mutants", "named", "sort"]),
];

/// A folder whose modules are on different floors.
const ROOM: &str = "testing";

/// Allowed uses of the same or a higher floor: from, to, reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("clock", "sync", "the manual clock is made of atomics, which loom replaces"),
    ("executor", "sync", "lanes meet at a lock, which loom replaces"),
    ("rest", "testing::fuzzing", "its fuzz target shares the databases of the others"),
];

/// The rooms of the engine, folders of `src/lsm`, lowest first.
const ENGINE_ROOMS: [&str; 4] = ["read", "write", "background", "recovery"];

pub fn check(source: &Source) -> Vec<Offence> {
    let modules = source.modules();
    let (Some(top), true) = (top_module(&modules), source.is_engine()) else { return Vec::new() };
    // The crate root may use every floor, because it re-exports items.
    if top == "lib" || top == ROOM {
        return Vec::new();
    }
    let mut offences = Vec::new();
    for (line, name) in uses(source) {
        if let Some(what) = problem(&top, &name) {
            offences.push(Offence::new(&source.path, line, "floor", what));
        }
    }
    offences.extend(check_climbs(source, modules.len()));
    offences
}

/// Reports exceptions that no longer apply.
pub fn check_exceptions(sources: &[Source]) -> Vec<Offence> {
    let taken = |from: &str, to: &str| {
        let from_there =
            sources.iter().filter(|source| top_module(&source.modules()).as_deref() == Some(from));
        from_there.flat_map(uses).any(|(_, name)| name == to)
    };
    let stale = EXCEPTIONS.iter().filter(|(from, to, _)| !taken(from, to));
    stale
        .map(|(from, to, _)| {
            Offence::new("tests/tidy/floors.rs", 1, "stale exception", format!("{from} to {to}"))
        })
        .collect()
}

/// Returns the top module, which has a floor, of a module path: the first module, or the first two
/// modules if the first is the folder [`ROOM`].
fn top_module(modules: &[&str]) -> Option<String> {
    match modules {
        [ROOM, inner, ..] => Some(format!("{ROOM}::{inner}")),
        [top, ..] => Some((*top).to_owned()),
        [] => None,
    }
}

/// Checks that the files of a room import only from their own room and lower rooms.
pub fn check_rooms(sources: &[Source]) -> Vec<Offence> {
    let edges = Graph::new(sources).edges();
    let upward = edges.iter().filter(|edge| is_upward(edge));
    let offences = upward.map(|edge| {
        let what = format!("uses `{}` of {}, a higher room", edge.path, edge.to);
        Offence::new(&edge.from, edge.line, "room", what)
    });
    offences.collect()
}

fn is_upward(edge: &Edge) -> bool {
    let room = |file: &str| {
        let name = file.strip_prefix("src/lsm/")?.split_once('/')?.0;
        ENGINE_ROOMS.iter().position(|room| *room == name)
    };
    room(&edge.from).zip(room(&edge.to)).is_some_and(|(from, to)| to > from)
}

fn floor(module: &str) -> Option<u8> {
    FLOORS.iter().find(|(_, modules)| modules.contains(&module)).map(|(floor, _)| *floor)
}

/// Describes the offence if the module `from` may not use `crate::name`.
fn problem(from: &str, name: &str) -> Option<String> {
    if from == name || EXCEPTIONS.iter().any(|(a, b, _)| *a == from && *b == name) {
        return None;
    }
    let Some(own) = floor(from) else { return Some(format!("`{from}` has no floor")) };
    match floor(name) {
        None if name.starts_with(char::is_uppercase) => {
            Some(format!("`crate::{name}` goes through the crate root"))
        }
        None => Some(format!("`crate::{name}` has no floor")),
        Some(other) if other >= own => {
            Some(format!("`{from}` (floor {own}) uses `{name}` (floor {other})"))
        }
        Some(_) => None,
    }
}

/// Returns every `crate::name`, with groups expanded: line and first segment.
fn uses(source: &Source) -> Vec<(usize, String)> {
    let text = source.code.join("\n");
    let mut found = Vec::new();
    for (at, pattern) in text.match_indices("crate::") {
        if text[..at].ends_with(is_word) {
            continue;
        }
        let line = text[..at].matches('\n').count() + 1;
        let rest = &text[at + pattern.len()..];
        found.extend(first_segments(rest).into_iter().map(|name| (line, name)));
    }
    found
}

/// Returns the first segments of a path: `a::b` gives a; `{a::{b, c}, d}` gives a and d.
fn first_segments(path: &str) -> Vec<String> {
    let word = |text: &str| {
        let segment = |text: &str| text.chars().take_while(|&c| is_word(c)).collect::<String>();
        let first = segment(text.trim_start());
        let inner = text.trim_start().strip_prefix(ROOM).and_then(|rest| rest.strip_prefix("::"));
        inner.map_or(first.clone(), |inner| format!("{first}::{}", segment(inner)))
    };
    let Some(group) = path.trim_start().strip_prefix('{') else { return vec![word(path)] };
    let mut names = vec![word(group)];
    let mut depth = 0usize;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(word(&group[at + 1..])),
            _ => {}
        }
    }
    names.retain(|name: &String| !name.is_empty());
    names
}

/// Reports each `super::super::` that leads out of the top module, because it names the crate root.
fn check_climbs(source: &Source, file_depth: usize) -> Vec<Offence> {
    let mut offences = Vec::new();
    let text = source.code.join("\n");
    for (at, _) in text.match_indices("super::") {
        let before = &text[..at];
        if before.ends_with("super::") || before.ends_with(is_word) {
            continue;
        }
        let mut climbs = 0;
        while text[at..].starts_with(&"super::".repeat(climbs + 1)) {
            climbs += 1;
        }
        if climbs >= file_depth + inline_modules(before) {
            let line = before.matches('\n').count() + 1;
            let what = "`super::` climbs to the crate root";
            offences.push(Offence::new(&source.path, line, "floor", what));
        }
    }
    offences
}

/// Returns the number of inline modules (`mod name {`) that are still open at the end of `text`.
fn inline_modules(text: &str) -> usize {
    let mut open = Vec::new();
    for (at, c) in text.char_indices() {
        match c {
            '{' => {
                let statement = text[..at].rsplit([';', '{', '}']).next().unwrap_or_default();
                open.push(statement.split_whitespace().rev().nth(1) == Some("mod"));
            }
            '}' => drop(open.pop()),
            _ => {}
        }
    }
    open.into_iter().filter(|module| *module).count()
}

#[track_caller]
fn finds(path: &str, text: &str, expected: &[(usize, &str)]) {
    let offences = check(&Source::new(path, text));
    let found: Vec<_> = offences.iter().map(|offence| (offence.line, &*offence.what)).collect();
    assert_eq!(found, expected);
}

#[test]
fn lower_floors_are_fine() {
    finds("src/lsm/read.rs", "use crate::sst::Sst;\nuse crate::lsm::view::View;", &[]);
    finds("src/db.rs", "use crate::{lsm::{commit, view}, model::Seq};", &[]);
    finds("src/clock.rs", "use crate::sync::AtomicU64;", &[]);
    finds("src/testing/fuzzing/mod.rs", "use crate::{db::Db, testing::sim::Program};", &[]);
    finds("src/lib.rs", "pub use crate::Anything;", &[]);
    finds("tests/a.rs", "use crate::Anything;", &[]);
    finds("src/fs/mem.rs", "pub(crate) fn f() {} // crate::db::Db", &[]);
}

#[test]
fn the_same_floor_and_higher_ones_are_offences() {
    finds("src/sst/a.rs", "\nuse crate::log::X;", &[(2, "`sst` (floor 4) uses `log` (floor 4)")]);
    let upward = "`testing::sim` (floor 10) uses `testing::fuzzing` (floor 15)";
    finds("src/testing/sim/a.rs", "use crate::testing::fuzzing::A;", &[(1, upward)]);
    let upward = "`model` (floor 2) uses `db` (floor 9)";
    finds("src/model/a.rs", "fn f() { crate::db::g() }", &[(1, upward)]);
    finds("src/model/a.rs", "use crate::{codec::{A, B}, db::{C}};", &[(1, upward)]);
}

#[test]
fn uses_of_the_crate_root_are_offences() {
    let through = "`crate::Error` goes through the crate root";
    finds("src/fs/mod.rs", "use crate::Error;", &[(1, through)]);
    finds("src/fs/mod.rs", "use crate::{Error, codec::A};", &[(1, through)]);
    finds("src/fs/mod.rs", "use crate::cellar::A;", &[(1, "`crate::cellar` has no floor")]);
    finds("src/attic.rs", "use crate::fs::A;", &[(1, "`attic` has no floor")]);
    let climbs = "`super::` climbs to the crate root";
    finds("src/fs/mem.rs", "use super::super::db::Db;", &[(1, climbs)]);
    finds("src/db.rs", "use super::fs::Fs;", &[(1, climbs)]);
    finds("src/db.rs", "mod tests {\n use super::*;\n}", &[]);
    finds("src/db.rs", "mod tests {\n use super::super::fs;\n}", &[(2, climbs)]);
}

#[test]
fn rooms_import_lower_rooms_only() {
    let files = [
        ("src/lib.rs", "mod lsm;"),
        ("src/lsm/mod.rs", "mod read; mod write; mod background;\nuse write::Commit;"),
        ("src/lsm/read/mod.rs", "pub struct View;\nuse super::Commit;"),
        ("src/lsm/write/mod.rs", "mod commit;\npub use commit::Commit;"),
        ("src/lsm/write/commit.rs", "use super::super::read::View;\npub struct Commit;"),
        ("src/lsm/background.rs", "pub fn flush() {}"),
    ];
    let sources = files.map(|(path, text)| Source::new(path, text));
    let what = "uses `super::Commit` of src/lsm/write/commit.rs, a higher room";
    let from = "src/lsm/read/mod.rs";
    assert_eq!(check_rooms(&sources), [Offence::new(from, 2, "room", what)]);
}
