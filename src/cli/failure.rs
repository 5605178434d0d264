//! Defines the failures of commands, each with an exit status, a message, and advice for the user.

use std::io;
use std::process::ExitCode;

use super::layout::{Screen, width, write_wrapped};
use crate::codec::printable::{is_control, message, without_control, without_secrets};
use crate::error::{Error, ErrorKind};

/// The reason why a command failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The arguments are inconsistent, or do not match the input.
    Usage(String),
    /// A filter is invalid. `at` is the index of the erroneous character in its `text`.
    Filter { error: Error, text: String, at: Option<usize> },
    /// The database cannot be opened.
    Open(Error),
    /// The operation failed.
    Operation(Error),
    /// A file outside of the database could not be read or written.
    Other(String),
    /// Verification found problems, which have been printed.
    Problems,
    /// Rows were rejected and have been reported.
    Rejected,
    /// The program that read the output has closed it.
    Closed,
}

/// The number of characters of a filter that are shown before and after an error in it.
const POINTER_CHARS: usize = 36;

const FILTER_EXAMPLES: &str = "\n  try: Price gt 5 and Name eq 'text'; other literals are 5L, 0.5, \
    true, datetime'2020-01-31T00:00:00Z', guid'…' and X'00ff'; operators are eq ne lt le gt ge";

/// The result of a command.
pub(super) type Outcome<T = ()> = Result<T, Failure>;

/// Prints the failure on standard error, and returns the exit status.
pub(super) fn exit_code(outcome: Outcome) -> ExitCode {
    let (status, text) = outcome.err().map_or((0, None), |failure| failure.message());
    text.iter().for_each(|text| eprint_line(text));
    ExitCode::from(status)
}

impl Failure {
    /// Returns the exit status, and the message if there is one.
    pub(super) fn message(&self) -> (u8, Option<String>) {
        let (status, text) = match self {
            Failure::Usage(text) => (2, text.clone()),
            Failure::Filter { error, text, at } => {
                let pointer = at.map(|at| pointer(text, at)).unwrap_or_default();
                let examples = if advice(error).is_none() { FILTER_EXAMPLES } else { "" };
                (2, format!("{}{pointer}{examples}", with_advice(error)))
            }
            Failure::Open(error) => (2, with_advice(error)),
            Failure::Operation(error) if is_no_database(error) => (2, with_advice(error)),
            Failure::Operation(error) => (1, with_advice(error)),
            Failure::Other(text) => (1, text.clone()),
            Failure::Problems => return (1, None),
            Failure::Rejected => return (3, None),
            Failure::Closed => return (0, None),
        };
        (status, Some(format!("error: {text}")))
    }
}

/// Converts an error of a write to standard output or to an output file. A failed read is not
/// converted here, because its message must name the input.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::Other(format!("cannot write the output: {error}")),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Operation(error)
    }
}

/// An error of the parser of arguments.
impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        let text = error.to_string();
        Failure::Usage(text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned())
    }
}

/// Prints lines on standard error, without control characters and secrets. Ignores errors, because
/// standard error may be closed.
pub(super) fn eprint_line(text: &str) {
    drop(io::Write::write_all(&mut io::stderr(), folded(text).as_bytes()));
}

/// Returns lines of standard error that are wrapped if it is a terminal.
pub(super) fn folded(text: &str) -> String {
    let columns = Screen::of_standard_error().at_most(usize::MAX);
    let mut lines = Vec::new();
    drop(write_lines(&mut lines, &message(text), columns));
    String::from_utf8_lossy(&lines).into_owned()
}

/// Prints on standard error a text with a command that is to be copied, as it is. It has no control
/// characters.
pub(super) fn eprint_command(text: &str) {
    drop(io::Write::write_fmt(&mut io::stderr(), format_args!("{text}\n")));
}

/// Quotes `text` as one word of a shell command if it needs that, without control characters.
pub(super) fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    let is_special = |c| is_control(c) || c == '\n';
    if !text.contains(is_special) {
        return format!("'{}'", text.replace('\'', "'\\''"));
    }
    // The form of bash and zsh.
    let escaped = |c: char| match c {
        '\'' | '\\' => format!("\\{c}"),
        c if is_special(c) => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    format!("$'{}'", text.chars().map(escaped).collect::<String>())
}

/// Writes lines, folded at `columns`. An indented line is to be copied and stays whole, unless it
/// is advice.
fn write_lines(output: &mut impl io::Write, text: &str, columns: usize) -> io::Result<()> {
    for line in text.split('\n') {
        let words = line.trim_start();
        let indent = &line[..line.len() - words.len()];
        match width(line) > columns && (indent.is_empty() || words.starts_with("try: ")) {
            true => write_wrapped(output, columns, indent, words)?,
            false => writeln!(output, "{line}")?,
        }
    }
    Ok(())
}

fn with_advice(error: &Error) -> String {
    let code = match error.code() {
        "InternalError" => String::new(),
        code => format!(" ({code})"),
    };
    let next = advice(error).map(|text| format!("\n  try: {text}")).unwrap_or_default();
    format!("{error}{code}{next}")
}

/// Returns the part of `text` around character `at`, and below it a line with a mark at that
/// character.
fn pointer(text: &str, at: usize) -> String {
    let from = at.saturating_sub(POINTER_CHARS);
    // Masked first, because a part of a secret cannot be told from other text.
    let text = without_secrets(text);
    let shown = text.chars().skip(from).take(2 * POINTER_CHARS);
    let is_plain = |c: char| without_control(c.encode_utf8(&mut [0; 4])).chars().eq([c]);
    let shown: String = shown.map(|c| if is_plain(c) { c } else { ' ' }).collect();
    format!("\n  {shown}\n  {}^", " ".repeat(at - from))
}

/// Returns advice on what to do about the error, if there is any.
fn advice(error: &Error) -> Option<&'static str> {
    Some(match (error.kind(), error.code()) {
        (ErrorKind::Io, _) => return advice_on_io(error),
        _ if is_no_database(error) => {
            "name the directory of a database; `rowstone create-table DB NAME` makes one"
        }
        (_, "ResourceNotFound") if error.message().starts_with("there are no backups in ") => {
            "name the directory that `rowstone backup DB DIR` was given"
        }
        (_, "PropertiesNeedValue") => "an entity needs a PartitionKey and a RowKey",
        (_, "NotImplemented") => {
            "the filter language compares a property with a literal, by eq ne lt le gt ge, and joins by and, or, not"
        }
        (_, "TableNotFound") => {
            "`rowstone tables DB` lists the tables, `rowstone create-table DB NAME` adds one"
        }
        (_, "TableAlreadyExists") => "choose another name, or drop the table first",
        (_, "InvalidResourceName" | "OutOfRangeInput")
            if error.message().contains("resource name") =>
        {
            "a table's name is 3 to 63 letters and digits and begins with a letter"
        }
        (_, "OutOfRangeInput") => {
            "keys must not hold / \\ # ? or control characters; times lie in the years 1601 to 9999"
        }
        (ErrorKind::InvalidInput, _) if error.message().contains("limit on disk use") => {
            "give `--max-disk` that many bytes or more"
        }
        (_, "EntityAlreadyExists") if error.message().contains("is not empty") => {
            "name a new directory; what an interrupted run left in this one may be removed"
        }
        (_, "EntityAlreadyExists") if error.message().contains("range is to go") => {
            "take it into another table to look, or make room: `rowstone delete DB TABLE --partition KEY`"
        }
        (_, "EntityAlreadyExists") => "`--mode upsert` overwrites what is there",
        (_, "UpdateConditionNotSatisfied") => "get the entity again and use its present etag",
        (_, "ResourceNotFound") => return None,
        (ErrorKind::Locked, _) => {
            "wait for the other process, or end it; most commands work while `serve`, `exec` or a program with \
             `Options::control` has the database open"
        }
        (ErrorKind::Unsupported, _) if error.to_string().contains("this build lacks") => {
            "use a build of rowstone with its default features"
        }
        (ErrorKind::Unsupported, _) => "use the release of rowstone that wrote it, or a later one",
        (ErrorKind::Corruption, _) if is_of_backup(error) => {
            "`rowstone backups verify DIR` lists all damage; an older backup may be whole: `--generation NUMBER`. \
             If the database still has the file, remove it from DIR/files and back up again"
        }
        (ErrorKind::Corruption, _) if error.to_string().contains("accept_short_logs") => {
            "`rowstone repair DB NEW` saves what is left; `rowstone exec DB --accept-short-logs </dev/null` \
             accepts it where the file system loses lengths in crashes"
        }
        (ErrorKind::Corruption, _) if is_of_no_table(error) => {
            "`rowstone repair DB NEW` builds a new database of what can be proven; `rowstone restore BACKUPS NEW` takes the \
             newest backup; a restore that did not end is removed and begun again"
        }
        (ErrorKind::Corruption, _) => {
            "`rowstone verify DB` lists all damage; `rowstone heal DB --from BACKUP` takes sound files from a backup; \
             `rowstone repair DB NEW` builds a new database of what can be proven"
        }
        (ErrorKind::StorageFull, _) => "free space on the disk and run the command again",
        (ErrorKind::Poisoned, _) => "run the command again: opening the database recovers it",
        (ErrorKind::Busy, _) => {
            "run the command again; `rowstone gate list DB` shows what is held back until it is lifted"
        }
        (ErrorKind::Timeout, _) => "run the command again",
        _ => return None,
    })
}

/// Returns advice on an error of the file system.
fn advice_on_io(error: &Error) -> Option<&'static str> {
    let cause = std::error::Error::source(error)?.downcast_ref::<io::Error>()?;
    Some(match cause.kind() {
        io::ErrorKind::NotADirectory => "a database is a directory: name it, and no file",
        io::ErrorKind::IsADirectory => "name a file in it",
        io::ErrorKind::PermissionDenied => {
            "run the command as the user that owns it, or allow this one to read and write there"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "commands that only read work there; to write, copy it: `rowstone copy DB TABLE --to NEW`"
        }
        _ => return None,
    })
}

/// Whether a database that was named is not there.
fn is_no_database(error: &Error) -> bool {
    error.message().starts_with("there is no database in ")
}

/// Whether the damage is in a directory of backups, not in a database.
fn is_of_backup(error: &Error) -> bool {
    error.corruption().is_some_and(|c| matches!(c.structure, "stored file" | "generation"))
}

/// Whether a log, the manifest or CURRENT is damaged. With such damage the database does not open,
/// and replacing table files from a backup does not help.
fn is_of_no_table(error: &Error) -> bool {
    let file = error.corruption().and_then(|c| c.file.file_name()?.to_str());
    file.is_some_and(|name| {
        name == "CURRENT" || name.starts_with("MANIFEST-") || name.ends_with(".wal")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn errors_say_what_to_do_next() {
        let text = with_advice(&Error::refused(Code::TableNotFound));
        assert!(text.starts_with("The table specified does not exist. (TableNotFound)\n  try: "));
        let io = Error::io("read a.csv", io::ErrorKind::NotFound.into());
        assert_eq!(with_advice(&io), "read a.csv: entity not found");
    }

    #[test]
    fn long_messages_are_folded_and_commands_stay_whole() {
        let text = "error: one two three\n  try: four five six\n  rowstone copy a b\n  x     ^";
        let mut shown = Vec::new();
        write_lines(&mut shown, text, 12).unwrap();
        let folded =
            "error: one\ntwo three\n  try: four\n  five six\n  rowstone copy a b\n  x     ^\n";
        assert_eq!(String::from_utf8(shown).unwrap(), folded);
    }

    #[test]
    fn advice_names_the_obstacle() {
        let file = Error::io("look at a.csv", io::ErrorKind::NotADirectory.into());
        assert!(advice(&file).unwrap().contains("a database is a directory"));
        let full = Error::new(ErrorKind::AlreadyExists, "new exists and is not empty");
        assert!(advice(&full).unwrap().contains("new directory"));
        let message = "there are entities where the range is to go";
        let taken = Error::refused_with(Code::EntityAlreadyExists, message);
        assert!(advice(&taken).unwrap().contains("rowstone delete"));
        let there = Error::refused(Code::EntityAlreadyExists);
        assert!(advice(&there).unwrap().contains("--mode upsert"));
        let stored = Error::corrupt("b/files/1.sst".as_ref(), 0, "stored file", "it is missing");
        assert!(advice(&stored).unwrap().contains("backups verify"));
        let packed =
            Error::new(ErrorKind::Unsupported, "zstd, which this build lacks: build with …");
        assert!(advice(&packed).unwrap().contains("default features"));
        let table = Error::corrupt("db/1.sst".as_ref(), 0, "sst", "it is missing");
        assert!(advice(&table).unwrap().contains("rowstone heal"));
        for name in ["db/CURRENT", "db/MANIFEST-000001", "db/000003.wal"] {
            let error = Error::corrupt(name.as_ref(), 0, "record", "it is missing");
            let advice = advice(&error).unwrap();
            assert!(advice.contains("rowstone restore") && !advice.contains("verify"), "{name}");
        }
    }

    #[test]
    fn words_of_a_shell_have_no_control_characters() {
        assert_eq!(
            (quoted("m4_x-2.0é"), quoted(""), quoted("a b")),
            ("m4_x-2.0é".into(), "''".into(), "'a b'".into())
        );
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted("a\u{202e}'\\\n"), r"$'a\u202e\'\\\u000a'");
    }

    #[test]
    fn a_syntax_error_is_marked_below_the_filter() {
        assert_eq!(pointer("A gt", 4), "\n  A gt\n      ^");
        assert_eq!(pointer("é\nß eq )", 7), "\n  é ß eq )\n         ^");
        assert_eq!(pointer("\u{202e}sig=abc )", 9), "\n   sig=*** )\n           ^");
        let long = "x".repeat(100) + "!" + &"y".repeat(100);
        let (x, y) = ("x".repeat(36), "y".repeat(35));
        assert_eq!(pointer(&long, 100), format!("\n  {x}!{y}\n  {}^", " ".repeat(36)));
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(matches!(failure, Failure::Closed));
        assert!(matches!(
            Failure::from(io::Error::from(io::ErrorKind::StorageFull)),
            Failure::Other(_)
        ));
    }
}
