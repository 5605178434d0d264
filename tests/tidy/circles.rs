//! Checks that no files of `src` import one another in a circle, such as a parent that imports its
//! child and a child that imports its parent.
//!
//! A circle is a strongly connected component of the import graph with more than one file.

use std::collections::{BTreeMap, BTreeSet};

use super::Offence;
use super::imports::{Edge, Graph};
use super::source::Source;

const RULE: &str = "circle";

pub fn check(sources: &[Source]) -> Vec<Offence> {
    let edges = Graph::new(sources).edges();
    circles(&edges).iter().map(|files| offence(files, &edges)).collect()
}

/// Returns an offence that names the files of a circle, and for each file one of its edges to
/// another file of the circle.
fn offence(files: &[&str], edges: &[Edge]) -> Offence {
    let mut lines = vec![format!("{} files import one another", files.len())];
    let mut first = 1;
    for (index, file) in files.iter().enumerate() {
        let mut inner = edges.iter().filter(|e| e.from == *file && files.contains(&&*e.to));
        let edge = inner.next().expect("each file of a circle has an edge in it");
        if index == 0 {
            first = edge.line;
        }
        lines.push(format!("{file}:{} uses {} (`{}`)", edge.line, edge.to, edge.path));
    }
    Offence::new(files[0], first, RULE, lines.join("\n    "))
}

/// Returns the strongly connected components that have more than one file.
fn circles(edges: &[Edge]) -> Vec<Vec<&str>> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for edge in edges {
        next.entry(&edge.from).or_default().push(&edge.to);
    }
    let reachable: BTreeMap<&str, BTreeSet<&str>> =
        next.keys().map(|from| (*from, reachable(from, &next))).collect();
    let mut circles: Vec<Vec<&str>> = Vec::new();
    for (from, reached) in &reachable {
        if !reached.contains(from) || circles.iter().flatten().any(|file| file == from) {
            continue;
        }
        let back = |file: &&str| reachable.get(*file).is_some_and(|files| files.contains(from));
        circles.push(reached.iter().copied().filter(back).collect());
    }
    circles
}

/// Returns every file reachable from `from` over at least one edge.
fn reachable<'a>(from: &'a str, next: &BTreeMap<&'a str, Vec<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![from];
    while let Some(file) = waiting.pop() {
        for to in next.get(file).into_iter().flatten() {
            if reached.insert(*to) {
                waiting.push(to);
            }
        }
    }
    reached
}

fn sources(files: &[(&str, &str)]) -> Vec<Source> {
    files.iter().map(|(path, text)| Source::new(path, text)).collect()
}

#[track_caller]
fn finds(files: &[(&str, &str)], expected: &[&str]) {
    let offences = check(&sources(files));
    let found: Vec<String> = offences.iter().map(|offence| offence.to_string()).collect();
    assert_eq!(found, expected);
}

#[test]
fn circles_are_offences() {
    let a = ("src/x/a.rs", "use super::b::B;\nstruct A;");
    let b = ("src/x/b.rs", "struct B;\nfn f() { super::a::A; }");
    let parent = ("src/x/mod.rs", "mod a; mod b; pub use a::A; pub(crate) use b::{B};");
    let circle = "src/x/a.rs:1: circle: 2 files import one another\n    \
                  src/x/a.rs:1 uses src/x/b.rs (`super::b::B`)\n    \
                  src/x/b.rs:2 uses src/x/a.rs (`super::a::A`)";
    finds(&[a, b, parent], &[circle]);
    let through_the_parent = ("src/x/a.rs", "use super::B;\nstruct A;");
    finds(&[through_the_parent, b, parent], &[&circle.replace("super::b::B", "super::B")]);
    let test = ("src/x/b.rs", "struct B;\n#[cfg(test)]\nmod tests {\nuse super::super::a::A;\n}");
    finds(&[a, test, parent], &[]);
}

#[test]
fn a_parent_and_its_child_may_form_a_circle() {
    let crate_root = ("src/lib.rs", "mod x;");
    let child = ("src/x/y.rs", "use crate::x::X; impl X { fn f() {} }\nstruct Y;");
    let parent = ("src/x.rs", "mod y;\nuse y::Y;\nstruct X(Y);");
    let circle = "src/x.rs:2: circle: 2 files import one another\n    \
                  src/x.rs:2 uses src/x/y.rs (`y::Y`)\n    \
                  src/x/y.rs:1 uses src/x.rs (`crate::x::X`)";
    finds(&[crate_root, child, parent], &[circle]);
    let no_import = ("src/x.rs", "mod y;\npub use y::Y;\nstruct X;");
    finds(&[crate_root, child, no_import], &[]);
    let used_itself = ("src/x.rs", "mod y;\npub use y::Y;\nstruct X(Y);");
    finds(&[crate_root, child, used_itself], &[circle]);
}

#[test]
fn an_imported_module_is_no_edge_but_its_paths_are() {
    let files = [
        ("src/lib.rs", "mod x; mod y;"),
        ("src/x/mod.rs", "mod a;\npub(crate) use a::A;\npub fn own() {}"),
        ("src/x/a.rs", "pub struct A;"),
        ("src/y.rs", "use crate::x;\nfn f() { x::A::new(); y() }\nuse std::fmt;"),
    ];
    let edges = Graph::new(&sources(&files)).edges();
    let found: Vec<_> = edges.iter().map(|e| (&*e.from, e.line, &*e.to, &*e.path)).collect();
    assert_eq!(found, [("src/y.rs", 2, "src/x/a.rs", "x::A::new")]);
}
