//! Planted bugs: each switch in the code is in the list of `src/testing/sim/planted.rs` or in `.ci/loom`, and each in the
//! list is in the code.
//!
//! A switch reads `planted!("name")`, an entry of the list `bug("name", …`.

use std::collections::BTreeSet;

use super::Offence;
use super::source::{Source, is_word};

const LIST: &str = "src/testing/sim/planted.rs";
const RULE: &str = "planted bug";

pub fn check(sources: &[Source], loom: &str) -> Vec<Offence> {
    let (mut offences, mut used) = (Vec::new(), BTreeSet::new());
    let listed = sources.iter().find(|source| source.path == LIST).map(listed).unwrap_or_default();
    let all: BTreeSet<&str> = listed.iter().map(|(_, name)| &**name).collect();
    for source in sources.iter().filter(|source| source.is_engine()) {
        for (line, name) in switches(source) {
            let is_model = source.path.ends_with("/models.rs");
            if !all.contains(name) && !names(loom, name) {
                let what = format!("`{name}` is neither in {LIST} nor in .ci/loom");
                offences.push(Offence::new(&source.path, line, RULE, what));
            }
            if !is_model {
                used.insert(name);
            }
        }
    }
    let mut seen = BTreeSet::new();
    for (line, name) in &listed {
        if !used.contains(&**name) {
            let what = format!("`{name}` is listed and nowhere in the code");
            offences.push(Offence::new(LIST, *line, RULE, what));
        }
        if !seen.insert(name) {
            offences.push(Offence::new(LIST, *line, RULE, format!("`{name}` is listed twice")));
        }
    }
    offences
}

/// Line and name of each switch; its name stands on its line, or is empty.
fn switches(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    let lines = source.code.iter().zip(&source.raw).enumerate();
    lines.filter(|(_, (code, _))| code.contains("planted!(")).flat_map(|(at, (_, raw))| {
        raw.split("planted!(").skip(1).map(move |rest| {
            let name = rest.strip_prefix('"').and_then(|rest| rest.split('"').next());
            (at + 1, name.unwrap_or_default())
        })
    })
}

/// Line and name of each entry of the list.
fn listed(source: &Source) -> Vec<(usize, String)> {
    let text = source.raw.join("\n");
    let entries = text.match_indices("bug(").filter_map(|(at, call)| {
        let name = text[at + call.len()..].trim_start().strip_prefix('"')?.split('"').next()?;
        Some((text[..at].matches('\n').count() + 1, name.to_owned()))
    });
    entries.collect()
}

/// True if `text` holds `name` as a word of its own.
fn names(text: &str, name: &str) -> bool {
    let is_part = |c: char| is_word(c) || c == '-';
    let found = text.match_indices(name).any(|(at, _)| {
        !text[..at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part)
    });
    found && !name.is_empty()
}

#[track_caller]
fn finds(code: &str, list: &str, loom: &str, expected: &[&str]) {
    let sources = [Source::new("src/a.rs", code), Source::new(LIST, list)];
    let offences = check(&sources, loom);
    let found: Vec<&str> = offences.iter().map(|offence| &*offence.what).collect();
    assert_eq!(found, expected);
}

#[test]
fn switches_and_list_agree() {
    let code = "//! `planted!(\"not-code\")`\nif planted!(\"a-b\") || planted!(\"c\") {}";
    finds(code, "bug(\"a-b\", 1),\nbug(\n  \"c\", 2)", "", &[]);
    let unlisted = "`c` is neither in src/testing/sim/planted.rs nor in .ci/loom";
    finds(code, "bug(\"a-b\", 1)", "", &[unlisted]);
    finds(code, "bug(\"a-b\", 1)", "bug=c-d", &[unlisted]);
    finds(code, "bug(\"a-b\", 1)", "--cfg planted=\"c\"", &[]);
    let unused = "`e` is listed and nowhere in the code";
    finds("planted!(\"f\")", "bug(\"f\")\nbug(\"e\")", "", &[unused]);
    finds("planted!(\"f\")", "bug(\"f\")\nbug(\"f\")", "", &["`f` is listed twice"]);
    let nameless = "`` is neither in src/testing/sim/planted.rs nor in .ci/loom";
    finds("planted!(\n\"f\")", "", "f", &[nameless]);
}

#[test]
fn a_model_alone_does_not_make_a_listed_bug() {
    let sources =
        [Source::new("src/a/models.rs", "planted!(\"f\")"), Source::new(LIST, "bug(\"f\")")];
    assert_eq!(check(&sources, "").len(), 1);
}
