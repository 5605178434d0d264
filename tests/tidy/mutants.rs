//! Checks the mutants, deliberate bugs behind switches: each switch `mutant!("name")` in the code
//! is listed in `src/testing/sim/mutants.rs`, in `src/testing/transport/mutants.rs` or in
//! `.ci/loom`, each listed mutant is in the code, and there are at most [`MUTANTS_MAX`] switches.
//!
//! An entry of a list is written `entry("name", …`. Names are short words with hyphens.

use std::collections::BTreeSet;

use super::Offence;
use super::source::{Source, is_word};

/// The maximum number of switches. Only protocols have switches; pure code is tested by mutations
/// made by hand (docs/TESTING.md). The 20 mutants of syncs belong to a protocol of its own.
const MUTANTS_MAX: usize = 81;
const NAME_BYTES_MAX: usize = 20;
const LIST: &str = "mutants.rs";
/// The folders with a list.
const FOLDERS: [&str; 2] = ["sim", "transport"];
const RULE: &str = "mutant";

pub fn check(sources: &[Source], loom: &str) -> Vec<Offence> {
    let (mut offences, mut used) = (Vec::new(), BTreeSet::new());
    let is_list = |source: &&Source| {
        FOLDERS.iter().any(|folder| source.path == format!("src/testing/{folder}/{LIST}"))
    };
    let lists = sources.iter().filter(is_list);
    let listed: Vec<(&str, usize, String)> = lists
        .flat_map(|list| listed(list).into_iter().map(|(line, name)| (&*list.path, line, name)))
        .collect();
    let all: BTreeSet<&str> = listed.iter().map(|(_, _, name)| &**name).collect();
    for source in sources.iter().filter(|source| source.is_engine()) {
        for (line, name) in switches(source) {
            let mut offence =
                |what: String| offences.push(Offence::new(&source.path, line, RULE, what));
            if !all.contains(name) && !names(loom, name) {
                offence(format!("`{name}` is neither in {LIST} nor in .ci/loom"));
            }
            if name.len() > NAME_BYTES_MAX {
                offence(format!("`{name}` is longer than {NAME_BYTES_MAX} characters"));
            }
            if !source.path.ends_with("/models.rs") {
                used.insert(name);
            }
        }
    }
    let mut seen = BTreeSet::new();
    for (path, line, name) in &listed {
        if !used.contains(&**name) {
            let what = format!("`{name}` is listed but not in the code");
            offences.push(Offence::new(path, *line, RULE, what));
        }
        if !seen.insert(name) {
            offences.push(Offence::new(path, *line, RULE, format!("`{name}` is listed twice")));
        }
    }
    if used.len() > MUTANTS_MAX {
        let what = format!("{} mutants, at most {MUTANTS_MAX} are allowed", used.len());
        offences.push(Offence::new(LIST, 1, RULE, what));
    }
    offences
}

/// Returns line and name of each switch. A name that is not on the same line is returned empty.
fn switches(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    let lines = source.code.iter().zip(&source.raw).enumerate();
    lines.filter(|(_, (code, _))| code.contains("mutant!(")).flat_map(|(at, (_, raw))| {
        raw.split("mutant!(").skip(1).map(move |rest| {
            let name = rest.strip_prefix('"').and_then(|rest| rest.split('"').next());
            (at + 1, name.unwrap_or_default())
        })
    })
}

/// Returns line and name of each entry of the list.
fn listed(source: &Source) -> Vec<(usize, String)> {
    let text = source.raw.join("\n");
    let entries = text.match_indices("entry(").filter_map(|(at, call)| {
        let name = text[at + call.len()..].trim_start().strip_prefix('"')?.split('"').next()?;
        Some((text[..at].matches('\n').count() + 1, name.to_owned()))
    });
    entries.collect()
}

/// True if `text` contains `name` as a whole word.
fn names(text: &str, name: &str) -> bool {
    let is_part = |c: char| is_word(c) || c == '-';
    let found = text.match_indices(name).any(|(at, _)| {
        !text[..at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part)
    });
    found && !name.is_empty()
}

#[track_caller]
fn finds(code: &str, list: &str, loom: &str, expected: &[&str]) {
    let sources = [Source::new("src/a.rs", code), Source::new("src/testing/sim/mutants.rs", list)];
    let offences = check(&sources, loom);
    let found: Vec<&str> = offences.iter().map(|offence| &*offence.what).collect();
    assert_eq!(found, expected);
}

#[test]
fn switches_and_list_agree() {
    let code = "//! `mutant!(\"not-code\")`\nif mutant!(\"a-b\") || mutant!(\"c\") {}";
    finds(code, "entry(\"a-b\", 1),\nentry(\n  \"c\", 2)", "", &[]);
    let unlisted = "`c` is neither in mutants.rs nor in .ci/loom";
    finds(code, "entry(\"a-b\", 1)", "", &[unlisted]);
    finds(code, "entry(\"a-b\", 1)", "bug=c-d", &[unlisted]);
    finds(code, "entry(\"a-b\", 1)", "--cfg mutant=\"c\"", &[]);
    let unused = "`e` is listed but not in the code";
    finds("mutant!(\"f\")", "entry(\"f\")\nentry(\"e\")", "", &[unused]);
    finds("mutant!(\"f\")", "entry(\"f\")\nentry(\"f\")", "", &["`f` is listed twice"]);
    let nameless = "`` is neither in mutants.rs nor in .ci/loom";
    finds(
        "mutant!(\n\"f\")",
        "entry(\"f\")",
        "f",
        &[nameless, "`f` is listed but not in the code"],
    );
}

#[test]
fn each_simulation_has_a_list() {
    let texts = [("a.rs", "mutant!(\"a\")"), ("testing/transport/mutants.rs", "entry(\"a\")")];
    let sources = texts.map(|(path, text)| Source::new(&format!("src/{path}"), text));
    assert_eq!(check(&sources, ""), []);
}

#[test]
fn mutants_are_few_and_their_names_short() {
    let code = |count| (0..count).map(|i| format!("mutant!(\"m{i}\")\n")).collect::<String>();
    let list = |count| (0..count).map(|i| format!("entry(\"m{i}\")\n")).collect::<String>();
    finds(&code(81), &list(81), "", &[]);
    finds(&code(82), &list(82), "", &["82 mutants, at most 81 are allowed"]);
    let long = "a-name-of-more-than-twenty";
    let offence = format!("`{long}` is longer than 20 characters");
    finds(&format!("mutant!(\"{long}\")"), &format!("entry(\"{long}\")"), "", &[&offence]);
}

#[test]
fn a_listed_mutant_used_by_a_model_alone_is_an_offence() {
    let list = Source::new("src/testing/sim/mutants.rs", "entry(\"f\")");
    let sources = [Source::new("src/a/models.rs", "mutant!(\"f\")"), list];
    assert_eq!(check(&sources, "").len(), 1);
}
