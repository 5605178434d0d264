//! Completes what is typed in the shell: commands, options and their values, tables, properties.
//!
//! Invariant: at most [`SAMPLE_ROWS`] entities of a table are read.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Command;
use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use crate::db::Db;
use crate::error::Result;
use crate::model::SYSTEM_PROPERTIES;
use crate::query::KeyRange;

/// The number of entities whose properties are completed.
const SAMPLE_ROWS: usize = 1_000;

/// The commands of the shell itself.
const NAMES: [&str; 5] = ["help", "\\d", "\\timing", "\\?", "\\q"];

/// The commands and the database that are completed.
pub(super) struct Candidates {
    pub(super) command: Command,
    pub(super) db: PathBuf,
}

impl Candidates {
    /// Returns where the word before the cursor begins, and the words that it may become.
    fn of(&self, before: &str) -> (usize, Vec<String>) {
        let ends_word = |c: char| c.is_whitespace() || "'\"(),=".contains(c);
        let last = before.char_indices().rfind(|(_, c)| ends_word(*c));
        let start = last.map_or(0, |(at, c)| at + c.len_utf8());
        let (before, word) = before.split_at(start);
        let words: Vec<&str> = before.split_whitespace().collect();
        let mut names = self.names(&words, word.starts_with('-'));
        names.retain(|name| name.starts_with(word));
        // A word in quotes or in a list may go on.
        let is_whole = before.chars().last().is_none_or(char::is_whitespace);
        if let [name] = &mut names[..]
            && is_whole
        {
            name.push(' ');
        }
        (start, names)
    }

    /// Returns all words that may follow `words`.
    fn names(&self, words: &[&str], is_option: bool) -> Vec<String> {
        let commands = || self.command.get_subcommands().map(|command| command.get_name());
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        let [name, arguments @ ..] = words else {
            return owned(commands().chain(NAMES).collect());
        };
        match *name {
            "help" => return owned(commands().collect()),
            "\\d" => return self.tables(),
            _ => (),
        }
        let Some(command) = self.command.find_subcommand(name) else { return Vec::new() };
        let options = || command.get_arguments().filter(|option| !option.is_hide_set());
        if is_option {
            let names = options().filter_map(|option| option.get_long());
            return names.map(|name| format!("--{name}")).collect();
        }
        let given = arguments.last().and_then(|last| last.strip_prefix("--"));
        let given = given.and_then(|name| options().find(|option| option.get_long() == Some(name)));
        let values = given.map(|option| option.get_possible_values()).unwrap_or_default();
        if !values.is_empty() {
            return values.iter().map(|value| value.get_name().to_owned()).collect();
        }
        match arguments {
            [] if options().any(|argument| argument.get_id() == "table") => self.tables(),
            [table, rest @ ..] if rest.iter().any(|word| word.starts_with("--")) => {
                self.read(|db| properties(db, table))
            }
            _ => Vec::new(),
        }
    }

    fn tables(&self) -> Vec<String> {
        self.read(Db::tables)
    }

    /// Returns no names if the database cannot be read: a command that follows says why.
    fn read(&self, names: impl FnOnce(&Db) -> Result<Vec<String>>) -> Vec<String> {
        Db::open_read_only(&self.db).and_then(|db| names(&db)).unwrap_or_default()
    }
}

fn properties(db: &Db, table: &str) -> Result<Vec<String>> {
    let mut names: BTreeSet<String> = SYSTEM_PROPERTIES.iter().map(|name| (*name).into()).collect();
    for entity in db.table(table)?.scan(KeyRange::all()).top(SAMPLE_ROWS) {
        names.extend(entity?.properties().map(|(name, _)| name.to_owned()));
    }
    Ok(names.into_iter().collect())
}

impl Completer for Candidates {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.of(line.get(..pos).unwrap_or_default()))
    }
}

impl Hinter for Candidates {
    type Hint = String;
}

impl Highlighter for Candidates {}
impl Validator for Candidates {}
impl Helper for Candidates {}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Arguments;
    use crate::model::Entity;

    #[test]
    fn commands_options_values_tables_and_properties_are_completed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let db = Db::open(&path).unwrap();
        let parts = db.create_table("parts").unwrap();
        parts.insert(Entity::new("p", "r").with("Price", 1).with("Stock", 2)).unwrap();
        db.close().unwrap();
        let command = super::super::command(Arguments::command(), &path);
        let candidates = Candidates { command, db: path };
        let check = |line: &str, start: usize, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(candidates.of(line), (start, names), "{line}");
        };
        check("que", 0, &["query "]);
        check("\\t", 0, &["\\timing "]);
        check("help des", 5, &["describe "]);
        check("query p", 6, &["parts "]);
        check("query é", 6, &[]);
        check("\\d ", 3, &["parts "]);
        check("query parts --ord", 12, &["--order-by "]);
        check("query parts --format j", 21, &["json "]);
        check("query parts --select Price,S", 27, &["Stock"]);
        check("query parts --filter \"(Pr", 23, &["Price"]);
        check("query none --select P", 20, &[]);
        check("get parts P", 10, &[]);
        check("nothing ", 8, &[]);
        check("query parts --d", 12, &[]);
    }
}
