//! Implements `completions` and `man`: completions for shells and manual pages, made from the
//! arguments of the program.
//!
//! Invariant: a build always writes the same bytes.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::failure::Outcome;
use crate::cli::files::{Overwrite, create_dir};
use crate::cli::output::print;

/// Print completions for a shell.
#[derive(Args)]
#[command(after_long_help = COMPLETIONS_HELP)]
pub(in crate::cli) struct Completions {
    /// The shell
    shell: Shell,
}

const COMPLETIONS_HELP: &str = "\
Put the output where the shell looks for it, and start a new shell:
  bash        ~/.local/share/bash-completion/completions/rowstone
  zsh         _rowstone in a directory of $fpath
  fish        ~/.config/fish/completions/rowstone.fish
  elvish      a file that ~/.config/elvish/rc.elv evaluates
  powershell  a file that $PROFILE runs

Examples:
  rowstone completions bash \\
      > ~/.local/share/bash-completion/completions/rowstone
  rowstone completions fish > ~/.config/fish/completions/rowstone.fish";

/// Write manual pages, one for each command.
#[derive(Args)]
#[command(after_long_help = MAN_HELP)]
pub(in crate::cli) struct Pages {
    /// The directory for the pages, created if it is missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    overwrite: Overwrite,
}

const MAN_HELP: &str = "\
The pages are rowstone.1, rowstone-query.1 and so on. `man` looks for them in
~/.local/share/man/man1 and in /usr/local/share/man/man1.

Example:
  rowstone man --out ~/.local/share/man/man1 && man rowstone-query";

impl Completions {
    pub(super) fn run(self, mut command: Command) -> Outcome {
        // Written to memory first, because the generator panics if it cannot write.
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut command, "rowstone", &mut text);
        print(|output| output.data(&text))
    }
}

impl Pages {
    pub(super) fn run(self, command: Command) -> Outcome {
        create_dir(&self.out)?;
        let mut command = command.disable_help_subcommand(true);
        command.build();
        self.write(command)
    }

    /// Writes the pages of `command` and of its subcommands.
    fn write(&self, command: Command) -> Outcome {
        for command in command.get_subcommands().cloned() {
            self.write(command)?;
        }
        let page = Man::new(command);
        let mut file = self.overwrite.create(&self.out.join(page.get_filename()))?;
        let mut text = Vec::new();
        page.render(&mut text)?;
        file.write_all(unfilled(&String::from_utf8_lossy(&text)).as_bytes())?;
        Ok(file.flush()?)
    }
}

/// Keeps lines that are indented, such as examples, as they are.
fn unfilled(page: &str) -> String {
    let mut text = String::new();
    let mut is_indented = false;
    for line in page.lines() {
        if line.starts_with(' ') != is_indented {
            is_indented = !is_indented;
            text.push_str(if is_indented { ".nf\n" } else { ".fi\n" });
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}
