//! Tests that the hex examples of FORMAT.md decode, and encode back to the same bytes.
//!
//! An example is a code block that opens with ```` ```hex name=structure ````. Bars, spaces and
//! line ends in it only make it easier to read. A block that opens with ```` ```hex file=name ````
//! is one file of an example database, and a ```` ```python ```` block is a part of
//! `tests/format/reader.py`.

use std::path::Path;
use std::sync::Arc;

use rowstone::Db;
use rowstone::fs::{Fs, MemFs};
use rowstone::fuzzing::round_trip;
use rowstone::sim::value::unhex;

const DOCUMENT: &str = include_str!("../../FORMAT.md");

/// One example of the document.
pub struct Example {
    pub name: String,
    pub line: usize,
    pub bytes: Vec<u8>,
}

/// Returns the examples of FORMAT.md.
pub fn examples() -> Vec<Example> {
    parse(DOCUMENT, "name")
}

/// Returns the name of the fuzz target for the structure of the example `name`.
pub fn target(name: &str) -> &str {
    match name {
        "user-key" => "key",
        "log-header" => "record",
        "identity" => "edit",
        "sst-header" | "sst-footer" => "sst",
        "row-block" => "row_block",
        "hash-line" | "hash-words" | "hash-tags" => "hash_index",
        "sparse-index-page" | "block-handles" => "sparse_index",
        "shapes-section" => "shape",
        "statistics" => "stats",
        "file-entry" => "file_meta",
        "zone-summary" => "zones",
        name if name.starts_with("wal-") => "wal",
        name => name,
    }
}

#[test]
fn every_example_belongs_to_a_target() {
    for Example { name, line, .. } in examples() {
        let known = rowstone::fuzzing::TARGETS.iter().any(|(known, _)| *known == target(&name));
        assert!(known, "FORMAT.md:{line}: {name}");
    }
}

/// Returns the examples that open with ```` ```hex key= ````.
fn parse(document: &str, key: &str) -> Vec<Example> {
    let fence = format!("```hex {key}=");
    let mut examples = Vec::new();
    let mut lines = document.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(name) = line.trim_start().strip_prefix(&fence) else { continue };
        let body = lines.by_ref().map(|(_, line)| line);
        let hex: String = body.take_while(|line| !line.trim_start().starts_with("```")).collect();
        let hex: String = hex.chars().filter(|c| !matches!(c, ' ' | '|')).collect();
        let bytes = unhex(&hex).unwrap_or_else(|| panic!("FORMAT.md:{}: no hex", number + 1));
        examples.push(Example { name: name.trim().to_owned(), line: number + 1, bytes });
    }
    examples
}

#[test]
fn examples_decode_and_encode_back() {
    let examples = examples();
    assert!(examples.len() >= 25, "FORMAT.md has {} examples", examples.len());
    for Example { name, line, bytes } in &examples {
        let again = round_trip(name, bytes);
        assert_eq!(again.as_deref(), Ok(&**bytes), "FORMAT.md:{line}: {name}");
    }
}

#[test]
fn truncated_examples_differ_and_do_not_panic() {
    for Example { name, bytes, .. } in examples() {
        for len in 0..bytes.len() {
            let cut = round_trip(&name, &bytes[..len]);
            assert_ne!(cut.as_deref(), Ok(&*bytes), "{name} cut at {len}");
        }
    }
}

#[test]
fn bars_and_line_ends_are_ignored() {
    let document = "x\n```hex name=row\n01 | 02\n| ff\n```\ny\n";
    let [example] = &parse(document, "name")[..] else { panic!("one example") };
    assert_eq!((&*example.name, example.line, &*example.bytes), ("row", 2, &[1, 2, 255][..]));
}

#[test]
fn the_whole_database_opens() {
    let fs = MemFs::new();
    fs.create_dir_all(Path::new("db")).unwrap();
    let files = parse(DOCUMENT, "file");
    assert_eq!(files.len(), 3, "CURRENT, a manifest and a log");
    for Example { name, bytes, .. } in files {
        fs.write(Path::new("db").join(name), &bytes).unwrap();
    }
    let db = Db::options().fs(Arc::new(fs)).create_if_missing(false).open("db").unwrap();
    assert_eq!(db.verify().unwrap().problems, [""; 0]);
    let row = db.table("Parts").unwrap().get("bolts", "m4").unwrap().unwrap();
    assert_eq!((row.get::<i32>("N").unwrap(), db.tables().unwrap()), (5, vec!["Parts".to_owned()]));
    db.close().unwrap();
}

#[test]
fn python_is_a_part_of_the_reader() {
    let reader = include_str!("../format/reader.py");
    let parts: Vec<&str> = DOCUMENT.split("```python\n").skip(1).collect();
    assert!(!parts.is_empty(), "FORMAT.md prints a part of the reader");
    for part in parts {
        let part = part.split("```").next().unwrap_or_default();
        assert!(reader.contains(part), "tests/format/reader.py does not contain:\n{part}");
    }
    assert!(reader.lines().count() <= 400, "FORMAT.md promises at most 400 lines");
}
