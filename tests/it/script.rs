//! Runs the scripts `tests/scripts/*.txt`. A case is a command, its input, `----`, and the expected
//! output. `REWRITE=1` writes the actual output into the script.
//!
//! A script starts with an empty memory file system, a clock that does not advance and no
//! background threads. In addition to the steps of `rowstone::sim::step`, a script can use commands
//! that show and damage files:
//!
//! * `files`: names and sizes; `ops`: the file operations since the last `ops`;
//! * `close`; `stats [prefix]`;
//! * `flip FILE at=… [mask=…]`, `cut FILE to=…`, `erase FILE`.

use std::path::Path;
use std::str::FromStr;

use rowstone::sim::engine::{Engine, PATH};
use rowstone::sim::parse::{Command, steps};
use rowstone::sim::runner::Runner;
use rowstone::sim::step::{Config, Step};

/// One command of a script, with the comments before it, its input and its output.
struct Case {
    /// Comments and blank lines before the command.
    before: String,
    line_number: usize,
    command: String,
    input: Vec<String>,
    expected: Vec<String>,
}

struct Script {
    runner: Runner,
    ops_seen: usize,
}

impl Script {
    fn new() -> Self {
        let runner = Runner::on(Engine::new(Config::default()));
        runner.engine.fs.record();
        Script { runner, ops_seen: 0 }
    }

    /// Runs the command; returns its output lines, including errors.
    fn run(&mut self, case: &Case) -> Vec<String> {
        let input: Vec<&str> = case.input.iter().map(String::as_str).collect();
        let done = match steps(&case.command, &input) {
            Err(problem) => Err(problem),
            Ok(Some(steps)) => self.run_steps(&steps),
            Ok(None) => Command::parse(&case.command).and_then(|command| self.special(command)),
        };
        done.unwrap_or_else(|problem| problem.lines().map(str::to_owned).collect())
    }

    fn run_steps(&mut self, steps: &[Step]) -> Result<Vec<String>, String> {
        let mut lines = Vec::new();
        for step in steps {
            let crashed = matches!(step, Step::Crash { ops: None, .. } | Step::Kill(None));
            lines.extend(self.runner.run(step)?);
            if crashed {
                self.runner.engine.fs.record();
                self.ops_seen = 0;
            }
        }
        Ok(lines)
    }

    fn special(&mut self, mut command: Command) -> Result<Vec<String>, String> {
        let fs = self.runner.engine.fs.clone();
        let file =
            |command: &Command| Ok::<_, String>(format!("{PATH}/{}", command.word("a file")?));
        let io = |error: std::io::Error| error.to_string();
        let done = match command.name.as_str() {
            "close" => {
                self.runner.engine.close().map_err(|error| error.chain())?;
                self.runner.oracle.all_durable();
                Vec::new()
            }
            "files" => files(&fs)?,
            "ops" => {
                let log = fs.log();
                let new = log[self.ops_seen.min(log.len())..].to_vec();
                self.ops_seen = log.len();
                new
            }
            "stats" => {
                let prefix = command.words.first().cloned().unwrap_or_default();
                let stats = self.runner.engine.db().stats();
                let fields = stats.fields().iter().filter(|(name, _)| name.starts_with(&prefix));
                fields.map(|(name, value)| format!("{name} {value}")).collect()
            }
            "flip" => {
                let at = number(&mut command, "at", 0)?;
                let mask = number(&mut command, "mask", 1)?;
                fs.flip(file(&command)?, at, mask).map_err(io)?;
                Vec::new()
            }
            "cut" => {
                let len = number(&mut command, "to", 0)?;
                fs.truncate(file(&command)?, len).map_err(io)?;
                Vec::new()
            }
            "erase" => {
                fs.erase(file(&command)?).map_err(io)?;
                Vec::new()
            }
            name => return Err(format!("`{name}` is no command")),
        };
        command.finish()?;
        Ok(done)
    }
}

/// Returns the option `name` of a command, or `default` if the command lacks the option.
fn number<T: FromStr>(command: &mut Command, name: &str, default: T) -> Result<T, String> {
    let Some(text) = command.take(name)? else { return Ok(default) };
    text.parse().map_err(|_| format!("{name}={text} is no number"))
}

fn files(fs: &rowstone::fs::MemFs) -> Result<Vec<String>, String> {
    let size = |path: String| {
        let len = fs.len(&path).map_err(|error| error.to_string())?;
        Ok(format!("{path} {len}"))
    };
    fs.paths().into_iter().map(size).collect()
}

/// Splits a script into cases. Blank lines separate cases; the input ends at `----`, the expected
/// output at a blank line.
fn parse(text: &str) -> (Vec<Case>, String) {
    let lines: Vec<&str> = text.lines().collect();
    let owned = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    let end = |from: usize, mark: &str| {
        lines[from..].iter().position(|line| *line == mark).map_or(lines.len(), |at| from + at)
    };
    let mut cases = Vec::new();
    let mut before = String::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        if line.is_empty() || line.starts_with('#') {
            before.push_str(line);
            before.push('\n');
            at += 1;
            continue;
        }
        let input_end = end(at, "----");
        let expected_start = lines.len().min(input_end + 1);
        let expected_end = end(expected_start, "");
        cases.push(Case {
            before: std::mem::take(&mut before),
            line_number: at + 1,
            command: (*line).to_owned(),
            input: owned(&lines[at + 1..input_end]),
            expected: owned(&lines[expected_start..expected_end]),
        });
        at = expected_end;
    }
    (cases, before)
}

fn print(case: &Case, output: &[String]) -> String {
    let mut text = format!("{}{}\n", case.before, case.command);
    for line in case.input.iter().map(String::as_str).chain(["----"]) {
        text.push_str(line);
        text.push('\n');
    }
    for line in output {
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Runs one script. Returns its text with the actual output, and the cases that differ.
fn run(name: &str, text: &str) -> (String, Vec<String>) {
    let (cases, tail) = parse(text);
    let mut script = Script::new();
    let (mut rewritten, mut problems) = (String::new(), Vec::new());
    for case in &cases {
        // A blank line would end the expected output.
        let output = script
            .run(case)
            .into_iter()
            .map(|line| if line.is_empty() { " ".into() } else { line });
        let output: Vec<String> = output.collect();
        if output != case.expected {
            problems.push(format!(
                "{name}:{}: {}\nexpected:\n{}\nfound:\n{}",
                case.line_number,
                case.command,
                case.expected.join("\n"),
                output.join("\n")
            ));
        }
        rewritten.push_str(&print(case, &output));
    }
    (rewritten + &tail, problems)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "scripts are files of the repository")]
fn scripts() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut paths: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", dir.display());
    let rewrite = std::env::var_os("REWRITE").is_some();
    let mut all = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let (rewritten, problems) = run(&path.display().to_string(), &text);
        if rewrite {
            std::fs::write(&path, rewritten).unwrap();
        } else {
            all.extend(problems);
        }
    }
    assert!(all.is_empty(), "{}\n\nREWRITE=1 stores the actual output", all.join("\n\n"));
}

#[test]
fn a_failed_script_reports_its_line() {
    let (rewritten, problems) =
        run("x.txt", "# Why.\n\nwhat is=this\n----\nnothing\n\nfiles\n----\n");
    assert_eq!(rewritten, "# Why.\n\nwhat is=this\n----\n`what` is no command\n\nfiles\n----\n");
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("x.txt:3: what is=this\nexpected:\nnothing\n"), "{problems:?}");
}
