//! The hex examples of FORMAT.md decode, and encode back to the same bytes.
//!
//! An example is a code block that opens with ```` ```hex name=structure ````. Bars, spaces and
//! line ends only separate bytes for the reader.

use rowstone::fuzzing::round_trip;

use rowstone::sim::value::unhex;

/// One example of the document.
pub struct Example {
    pub name: String,
    pub line: usize,
    pub bytes: Vec<u8>,
}

/// The examples of FORMAT.md.
pub fn examples() -> Vec<Example> {
    parse(include_str!("../../FORMAT.md"))
}

/// The fuzz target of an example's structure.
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

fn parse(document: &str) -> Vec<Example> {
    let mut examples = Vec::new();
    let mut lines = document.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(name) = line.trim_start().strip_prefix("```hex name=") else { continue };
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
    let [example] = &parse(document)[..] else { panic!("one example") };
    assert_eq!((&*example.name, example.line, &*example.bytes), ("row", 2, &[1, 2, 255][..]));
}
