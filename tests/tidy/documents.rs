//! Checks that each relative link in a document refers to an existing file, and its anchor to an
//! existing heading.

use super::Offence;

pub fn check_links(documents: &[(String, String)], paths: &[String]) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (file, text) in documents {
        for (line, target) in links(text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if path.is_empty() { file.clone() } else { resolve(file, path) };
            if !paths.contains(&path) {
                let what = format!("`{target}` does not exist");
                offences.push(Offence::new(file, line, "dead link", what));
                continue;
            }
            let document = documents.iter().find(|(name, _)| *name == path);
            if let (Some((_, text)), false) = (document, anchor.is_empty())
                && !headings(text).any(|(_, heading)| slug(heading) == anchor)
            {
                let what = format!("`{target}` names no heading");
                offences.push(Offence::new(file, line, "dead link", what));
            }
        }
    }
    offences
}

/// Checks that `.ci/run` calls exactly the commands that README.md shows under "Test it".
pub fn check_commands(readme: &str, ci: &str) -> Vec<Offence> {
    let after = readme.split("## Test it").nth(1).unwrap_or_default();
    let block = after.split("```").nth(1).unwrap_or_default();
    let mut commands = block.lines().skip(1).filter(|line| !line.is_empty()).peekable();
    if commands.peek().is_none() {
        return vec![Offence::new("README.md", 1, "commands", "no command under `## Test it`")];
    }
    let missing = commands.filter(|command| !ci.contains(*command));
    missing
        .map(|command| {
            let what = format!("`{command}` is not called");
            Offence::new(".ci/run", 1, "commands", what)
        })
        .collect()
}

/// Returns the headings of a document outside code blocks: line and text without the marks.
pub fn headings(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text)
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(number, line)| (number, line.trim_start_matches('#').trim()))
}

/// Returns the lines outside code blocks, numbered from 1.
pub fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((number + 1, line))
    })
}

/// Returns every `[text](target)`: line and target.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        for (at, _) in line.match_indices("](") {
            // After an odd number of backticks, the text is shown as code, not as a link.
            let rest = &line[at + 2..];
            let end = rest.find(')').filter(|_| line[..at].matches('`').count() % 2 == 0);
            if let Some(target) = end.and_then(|end| rest[..end].split_whitespace().next()) {
                found.push((number, target.to_owned()));
            }
        }
    }
    found
}

/// Resolves `path`, as written in `file`, against the root of the repository.
fn resolve(file: &str, path: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the anchor that the common renderers make of a heading.
fn slug(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn commands_that_differ_are_found() {
    let readme = "## Test it\nSo:\n```sh\ncargo test --x\n```\n";
    assert_eq!(check_commands(readme, "step tests cargo test --x\n"), []);
    assert_eq!(check_commands(readme, "cargo test\n")[0].what, "`cargo test --x` is not called");
    assert_eq!(check_commands("# No", "cargo test\n").len(), 1);
}

#[track_caller]
fn finds(text: &str, expected: &[&str]) {
    let there = ("docs/THERE.md".to_owned(), "# There\n## 1.2 So: `it` is".to_owned());
    let here = ("docs/HERE.md".to_owned(), text.to_owned());
    let paths = ["docs/HERE.md", "docs/THERE.md", "src"].map(str::to_owned);
    let offences = check_links(&[here, there], &paths);
    let found: Vec<String> = offences.iter().map(|offence| offence.to_string()).collect();
    assert_eq!(found, expected);
}

#[test]
fn dead_links_are_found() {
    finds("[a](THERE.md) and [b](../src/) and [c](https://example.org/x) `[d](e)`", &[]);
    finds("```\n[a](b)\n```\n# H\n[h](#h)", &[]);
    finds("\n[a](NOWHERE.md)", &["docs/HERE.md:2: dead link: `NOWHERE.md` does not exist"]);
    finds("[a](THERE.md#12-so-it-is)", &[]);
    finds("[a](THERE.md#so)", &["docs/HERE.md:1: dead link: `THERE.md#so` names no heading"]);
    finds("[a](#so)", &["docs/HERE.md:1: dead link: `#so` names no heading"]);
}
