//! Checks of the source text: layers of modules ("floors"), import cycles ("circles"), parts of the
//! engine, lengths, headers, leftovers, links, prose, and that documents, code and tests agree.
//!
//! Each rule is a function that takes text and returns offences. An offence is printed as
//! `file:line: rule: what`. Each rule has a test in which it finds an offence.
//!
//! `.ci/run` also runs rustfmt, clippy and rustdoc.
#![expect(clippy::disallowed_methods, reason = "reads the source tree, not a database")]

#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/corners.rs"]
mod corners;
#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/floors.rs"]
mod floors;
#[path = "tidy/imports.rs"]
mod imports;
#[path = "tidy/leftovers.rs"]
mod leftovers;
#[path = "tidy/lengths.rs"]
mod lengths;
#[path = "tidy/mutants.rs"]
mod mutants;
#[path = "tidy/oracle.rs"]
mod oracle;
#[path = "tidy/parts.rs"]
mod parts;
#[path = "tidy/prose.rs"]
mod prose;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/traps.rs"]
mod traps;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use source::Source;

/// Directories without sources, at any depth: build output of each package, fuzz findings, and
/// third-party packages. Git ignores the same names.
const UNREAD: [&str; 5] = [".git", "target", "artifacts", "node_modules", "__pycache__"];

/// The files of the repository, which are read once for all tests.
static TREE: LazyLock<Tree> = LazyLock::new(Tree::read);

/// One breach of one rule.
#[derive(Debug, PartialEq, Eq)]
struct Offence {
    file: String,
    line: usize,
    rule: &'static str,
    what: String,
}

/// The text files of the repository, read once.
struct Tree {
    /// Every `.rs` file, by path.
    sources: Vec<Source>,
    /// Every `.md` file: path and text.
    documents: Vec<(String, String)>,
    /// Every path, directories included, relative to the root.
    paths: Vec<String>,
}

impl Offence {
    fn new(file: &str, line: usize, rule: &'static str, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, rule, what: what.into() }
    }
}

impl fmt::Display for Offence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.rule, self.what)
    }
}

impl Tree {
    fn read() -> Tree {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut tree = Tree { sources: Vec::new(), documents: Vec::new(), paths: Vec::new() };
        tree.read_dir(root, root);
        tree.paths.sort();
        tree.sources.sort_by(|a, b| a.path.cmp(&b.path));
        assert!(tree.sources.len() > 10, "the tree was not found");
        tree
    }

    fn read_dir(&mut self, root: &Path, dir: &Path) {
        let entries = std::fs::read_dir(dir).unwrap();
        for path in entries.map(|entry| entry.unwrap().path()) {
            let name = relative(root, &path);
            if path.file_name().is_some_and(|name| UNREAD.iter().any(|unread| name == *unread)) {
                continue;
            }
            if path.is_dir() {
                self.read_dir(root, &path);
            } else if name.ends_with(".rs") {
                self.sources.push(Source::new(&name, &std::fs::read_to_string(&path).unwrap()));
            } else if name.ends_with(".md") {
                self.documents.push((name.clone(), std::fs::read_to_string(&path).unwrap()));
            }
            self.paths.push(name);
        }
    }

    fn document(&self, name: &str) -> &str {
        let found = self.documents.iter().find(|(path, _)| path == name);
        &found.unwrap_or_else(|| panic!("{name} is missing")).1
    }
}

fn relative(root: &Path, path: &Path) -> String {
    let relative: PathBuf = path.strip_prefix(root).unwrap().to_owned();
    relative.to_str().unwrap().replace('\\', "/")
}

#[track_caller]
fn expect_none(offences: impl IntoIterator<Item = Offence>) {
    let lines: Vec<String> = offences.into_iter().map(|offence| offence.to_string()).collect();
    assert!(lines.is_empty(), "{} offences\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn modules_use_lower_floors_only() {
    let tree = &*TREE;
    expect_none(tree.sources.iter().flat_map(floors::check));
    expect_none(floors::check_exceptions(&tree.sources));
    expect_none(floors::check_rooms(&tree.sources));
}

#[test]
fn the_oracle_is_independent_of_the_engine() {
    expect_none(TREE.sources.iter().flat_map(oracle::check));
}

#[test]
fn lines_and_functions_are_short() {
    let tree = &*TREE;
    expect_none(tree.sources.iter().flat_map(lengths::check));
    expect_none(lengths::check_exceptions(&tree.sources));
}

#[test]
fn no_leftovers() {
    let tree = &*TREE;
    expect_none(tree.sources.iter().flat_map(leftovers::check));
}

#[test]
fn links_resolve() {
    let tree = &*TREE;
    expect_none(documents::check_links(&tree.documents, &tree.paths));
}

#[test]
fn readme_commands_are_those_of_ci() {
    let tree = &*TREE;
    let ci = Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/run");
    let ci = std::fs::read_to_string(ci).unwrap();
    expect_none(documents::check_commands(tree.document("README.md"), &ci));
}

#[test]
fn every_structure_has_its_four_corners() {
    let tree = &*TREE;
    let format = tree.document("FORMAT.md");
    expect_none(corners::check(&tree.sources, &tree.paths, format));
}

#[test]
fn every_trap_has_its_test() {
    let tree = &*TREE;
    let table = tree.document("docs/TESTING.md");
    expect_none(traps::check(&tree.sources, &tree.paths, table));
}

#[test]
fn every_mutant_is_listed() {
    let tree = &*TREE;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Only `.ci/loom` lists the mutants of loom models.
    let loom = std::fs::read_to_string(root.join(".ci/loom")).unwrap_or_default();
    expect_none(mutants::check(&tree.sources, &loom));
}

#[test]
fn prose_is_plain() {
    expect_none(prose::check_words(&TREE.sources, &TREE.documents));
}

#[test]
fn lines_of_prose_are_short() {
    expect_none(prose::check_columns(&TREE.sources, &TREE.documents));
}

#[test]
fn files_do_not_import_in_circles() {
    expect_none(circles::check(&TREE.sources));
}

#[test]
fn methods_of_a_part_are_in_its_room() {
    expect_none(parts::check(&TREE.sources));
}

/// The crate root is read as a whole, so types that few programs name are in modules.
#[test]
fn the_crate_root_has_at_most_40_names() {
    let lib = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/lib.rs")).unwrap();
    let uses = lib.split("\npub use ").skip(1).map(|rest| rest.split(';').next().unwrap());
    let public = uses.filter(|path| !path.starts_with("testing::") && !path.starts_with("rest::"));
    let names = public.flat_map(|path| path.rsplit("::").next().unwrap().split(','));
    let count = names.filter(|name| name.contains(char::is_alphabetic)).count();
    assert!((30..=40).contains(&count), "{count} names");
}
