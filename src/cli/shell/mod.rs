//! The commands of the feature `shell`: `shell`, `completions` and `man`.
//!
//! A session of `shell` parses lines with the arguments of the program, in which the database is
//! filled in. Each command opens the database and closes it, as it does outside. So the session
//! holds no lock, a command shows what other processes have written, and commands that write work
//! while another process has the database open.
//!
//! At a terminal each command is a process of its own, so Ctrl-C ends it whatever it is doing, and
//! the session goes on. Such a process is a shell with the words of one command.

mod complete;
mod manual;

use std::ffi::OsStr;
use std::io::{self, BufRead, IsTerminal, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgMatches, Args, Subcommand};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{CompletionType, Config, Editor};
use signal_hook::consts::SIGINT;

use self::complete::Candidates;
use super::failure::{Failure, Outcome, eprint_line};
use super::files::create_dir;
use super::open::open_to_read;
use super::output::{counted, without_control};
use crate::clock::{Clock, SystemClock};

/// Runs the command that the matches name.
type Execute = fn(&ArgMatches) -> Outcome<ExitCode>;

/// The commands on a database that keep it open, or that make no sense on an open one.
const OTHERS: [&str; 4] = ["exec", "heal", "serve", "shell"];
/// The longest line without a terminal, in bytes: enough for an entity of 1 MiB with any escapes.
const LINE_BYTES_MAX: u64 = 16 << 20;

#[derive(Subcommand)]
pub(super) enum Command {
    Shell(Shell),
    Completions(manual::Completions),
    Man(manual::Pages),
}

impl Command {
    /// Runs the command; `program` is the whole program.
    pub(super) fn run(self, program: clap::Command, execute: Execute) -> Outcome {
        match self {
            Command::Shell(shell) => shell.run(program, execute),
            Command::Completions(completions) => completions.run(program),
            Command::Man(pages) => pages.run(program),
        }
    }
}

/// Type commands on one database, with completion and history.
#[derive(Args)]
#[command(after_long_help = HELP)]
pub(super) struct Shell {
    /// The database
    db: PathBuf,
    /// The words of the only command
    #[arg(hide = true)]
    words: Vec<String>,
}

const HELP: &str = "\
The commands are those of the program without the database, which is filled in. Words are quoted as
in a shell:
  query parts --filter \"Price lt 0.5 and PartitionKey eq 'bolts'\" --top 5
  \\d          the tables, as the command tables
  \\d TABLE    the properties of a table, as the command describe
  \\timing     print the time of each command, or no longer
  \\?          list the commands; help COMMAND explains one
  \\q          quit, as Ctrl-D does

Tab completes commands, options, tables and, after an option, properties. Ctrl-C clears the line, or
ends the command that runs; Ctrl-D ends the shell. The history is in $XDG_STATE_HOME/rowstone/history,
by default in ~/.local/state; a line that begins with a space, or has a key or a signature of an
account, is not kept.

Each command opens the database and closes it again, so the shell keeps no other program out.
Without a terminal, lines are read from standard input, an error names the number of its line, and
the exit status is 1 if any command failed.

Examples:
  rowstone shell shop
  printf 'tables\\ndescribe parts\\n' | rowstone shell shop";

/// The state of a session.
struct Session {
    command: clap::Command,
    execute: Execute,
    is_timed: bool,
    /// The database, if commands are processes of their own.
    apart: Option<PathBuf>,
}

/// Returns the commands of a session on the database at `db`.
fn command(program: clap::Command, db: &Path) -> clap::Command {
    // clap keeps the path for the whole life of the process.
    let db: &'static OsStr = db.to_path_buf().into_os_string().leak();
    let is_other = |command: &clap::Command| OTHERS.contains(&command.get_name());
    let commands =
        program.get_subcommands().filter(|command| has_db(command) && !is_other(command));
    let commands = commands.map(|command| filled(command.clone(), db));
    let session = clap::Command::new("rowstone").multicall(true).subcommand_required(true);
    let session = session.override_usage("COMMAND [ARGUMENTS]");
    let template =
        "Commands:\n{subcommands}\n\nThose of the shell: \\d \\d TABLE \\timing \\? \\q\n";
    session.help_template(template).subcommands(commands)
}

fn has_db(command: &clap::Command) -> bool {
    command.get_arguments().any(|argument| argument.get_id() == "db")
        || command.get_subcommands().any(has_db)
}

/// Fills in the database of a command and of its subcommands: a hidden option takes its place.
fn filled(mut command: clap::Command, db: &'static OsStr) -> clap::Command {
    if let Some(help) = command.get_after_long_help() {
        let outside = "Examples outside of this shell:";
        let help = help.to_string().replace("Examples:", outside).replace("Example:", outside);
        command = command.after_long_help(help);
    }
    let command = command.mut_args(|argument| match argument.get_id() == "db" {
        true => argument.long("db").hide(true).required(false).default_value(db),
        false => argument,
    });
    command.mut_subcommands(|command| filled(command, db))
}

impl Shell {
    fn run(self, program: clap::Command, execute: Execute) -> Outcome {
        let command = command(program, &self.db);
        let mut session = Session { command, execute, is_timed: false, apart: None };
        if !self.words.is_empty() {
            return session.run(&self.words.iter().map(String::as_str).collect::<Vec<_>>());
        }
        let db = open_to_read(&self.db)?;
        let tables = counted(db.tables()?.len() as u64, "table", "tables");
        db.close()?;
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return session.read();
        }
        eprint_line(&format!("{}: {tables}; \\? lists the commands", self.db.display()));
        session.talk(self.db)
    }
}

impl Session {
    /// Executes the lines of standard input.
    fn read(&mut self) -> Outcome {
        let (mut count, mut failed) = (0, 0);
        loop {
            // Not locked while a command runs, which may read its own input from the next lines.
            let mut line = Vec::new();
            let read = io::stdin().lock().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
            read.map_err(|error| Failure::Other(format!("cannot read standard input: {error}")))?;
            if line.is_empty() {
                break;
            }
            count += 1;
            if line.len() as u64 == LINE_BYTES_MAX && !line.ends_with(b"\n") {
                return Err(Failure::Usage(format!("line {count} is longer than 16 MiB")));
            }
            let done = match str::from_utf8(&line) {
                Ok(line) => self.execute(line),
                Err(_) => Err(Failure::Usage("this line is not UTF-8".into())),
            };
            match done {
                Ok(ControlFlow::Continue(())) => (),
                Ok(ControlFlow::Break(())) | Err(Failure::Closed) => break,
                Err(failure) => {
                    failed += 1;
                    let (_, text) = failure.message();
                    let text = text.unwrap_or_else(|| "error: see above".to_owned());
                    eprint_line(&format!("line {count}: {text}"));
                }
            }
        }
        match failed {
            0 => Ok(()),
            _ => Err(Failure::Other(format!("{} failed", counted(failed, "line", "lines")))),
        }
    }

    /// Executes the lines that a person types.
    fn talk(&mut self, db: PathBuf) -> Outcome {
        let cannot = |error: ReadlineError| Failure::Other(format!("cannot read a line: {error}"));
        let config = Config::builder().completion_type(CompletionType::List);
        let config = config.history_ignore_space(true).build();
        let mut editor = Editor::<Candidates, DefaultHistory>::with_config(config);
        let editor = editor.as_mut().map_err(|error| Failure::Other(error.to_string()))?;
        let name = db.file_name().unwrap_or(db.as_os_str()).to_string_lossy();
        let prompt = format!("{}> ", without_control(&name));
        self.apart = Some(db.clone());
        editor.set_helper(Some(Candidates { command: self.command.clone(), db }));
        // The handler keeps the session; a command's process does not inherit it. If the system
        // refuses it, Ctrl-C ends both.
        drop(signal_hook::flag::register(SIGINT, Arc::default()));
        let history = history();
        // The first session has no history yet.
        history.iter().for_each(|path| drop(editor.load_history(path)));
        loop {
            let line = match editor.readline(&prompt) {
                Err(ReadlineError::Interrupted) => continue,
                Err(ReadlineError::Eof) => return Ok(()),
                line => line.map_err(cannot)?,
            };
            if !has_credential(&line) {
                editor.add_history_entry(&line).map_err(cannot)?;
                if let Some(Err(error)) = history.as_ref().map(|path| editor.append_history(path)) {
                    eprint_line(&format!("note: the history is not kept: {error}"));
                }
            }
            match self.execute(&line) {
                Ok(ControlFlow::Continue(())) => (),
                Ok(ControlFlow::Break(())) => return Ok(()),
                Err(failure) => failure.message().1.iter().for_each(|text| eprint_line(text)),
            }
        }
    }

    /// Executes a line; `Break` ends the session.
    fn execute(&mut self, line: &str) -> Outcome<ControlFlow<()>> {
        let line = line.trim();
        let (own, rest) = line.strip_prefix('\\').map_or((false, line), |rest| (true, rest));
        let unclosed = || Failure::Usage("a quote is not closed".into());
        let words = shlex::split(rest).ok_or_else(unclosed)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match (own, &words[..]) {
            (false, []) => (),
            (true, ["q"]) | (false, ["quit" | "exit"]) => return Ok(ControlFlow::Break(())),
            (true, ["d"]) => self.run_timed(&["tables"])?,
            (true, ["d", table]) => self.run_timed(&["describe", table])?,
            (true, ["timing"]) => {
                self.is_timed = !self.is_timed;
                eprint_line(if self.is_timed { "timing is on" } else { "timing is off" });
            }
            (true, ["?"]) => self.run_timed(&["help"])?,
            (true, _) => {
                let text = format!("{line} is no command of the shell; \\? lists the commands");
                return Err(Failure::Usage(text));
            }
            (false, words) => self.run_timed(words)?,
        }
        Ok(ControlFlow::Continue(()))
    }

    fn run(&mut self, words: &[&str]) -> Outcome {
        match self.command.try_get_matches_from_mut(words) {
            Ok(matches) => (self.execute)(&matches).map(drop),
            Err(error) if error.use_stderr() => Err(error.into()),
            Err(help) => Ok(help.print()?),
        }
    }

    fn run_timed(&mut self, words: &[&str]) -> Outcome {
        let clock = SystemClock::new();
        let start = clock.monotonic();
        let done = match &self.apart {
            // Other users see the arguments of a process.
            Some(db) if !words.iter().any(|word| has_credential(word)) => run_apart(db, words),
            _ => self.run(words),
        };
        if self.is_timed {
            let time = clock.monotonic().saturating_sub(start);
            eprint_line(&format!("time: {:.1} ms", time.as_secs_f64() * 1e3));
        }
        done
    }
}

/// Runs a command in a process of its own, which prints its errors itself.
fn run_apart(db: &Path, words: &[&str]) -> Outcome {
    let program = std::env::current_exe();
    let run = |program| {
        let mut command = std::process::Command::new(program);
        command.args(["shell", "--"]).arg(db).args(words).status()
    };
    let failed = |error| Failure::Other(format!("cannot start the command: {error}"));
    let status = program.and_then(run).map_err(failed)?;
    if status.code().is_none() {
        // A signal ended it, at any place in a line.
        eprint_line("");
    }
    Ok(())
}

/// Whether a line may have a key or a signature of an account.
fn has_credential(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    ["accountkey", "sharedaccesssignature", "sig="].iter().any(|part| line.contains(part))
}

/// Returns the file of the history, in a directory that exists; `None` without a home directory.
fn history() -> Option<PathBuf> {
    let of = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state =
        of("XDG_STATE_HOME").or_else(|| of("HOME").map(|home| home.join(".local/state")))?;
    let dir = state.join("rowstone");
    create_dir(&dir).ok().map(|()| dir.join("history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_a_credential_are_not_kept() {
        for line in [
            "copy T --to 'AccountName=a;AccountKey=b'",
            "copy T --to https://a.example.com/?sv=1&SIG=x",
            "copy T --to file:SharedAccessSignature=x",
        ] {
            assert!(has_credential(line), "{line}");
        }
        assert!(!has_credential("query Accounts --filter \"Key eq 'a'\""));
    }
}
