//! Shapes the help of all commands: lists the commands by group, leaves the folding of lines to
//! clap, and names the features of this build and those that a missing command needs.

use std::any::TypeId;

use clap::{Arg, ArgAction, Command};

use super::endpoint::Place;
use super::failure::Failure;
use super::local_path;

/// The groups of commands in the help of the program.
const GROUPS: [(&str, &[&str]); 8] = [
    (
        "Tables and entities",
        &[
            "create-table",
            "drop-table",
            "ttl",
            "tables",
            "describe",
            "put",
            "get",
            "delete",
            "scan",
            "query",
            "exec",
            "shell",
        ],
    ),
    ("Files in and out", &["import", "export", "copy", "check-refs", "compare", "changes", "sync"]),
    ("Serving", &["serve", "azurite-table", "sas"]),
    ("Care and backups", &["compact", "verify", "checkpoint", "backup", "backups", "restore"]),
    ("Damage", &["heal", "repair", "salvage", "inspect"]),
    ("Key design and load", &["partitions", "advise", "stats", "wear", "stress", "bench", "sim"]),
    ("Moving ranges of keys", &["gate", "export-range", "import-range"]),
    ("Set-up of this program", &["completions", "man"]),
];

/// A command that a feature adds, its purpose, the feature, and whether this build has it.
type Optional = (&'static str, &'static str, &'static str, bool);

const OPTIONAL: [Optional; 10] = [
    ("serve", "Serve clients of Azure Table storage", "rest", cfg!(feature = "rest")),
    (
        "azurite-table",
        "Serve with the options of Azurite's command",
        "rest",
        cfg!(feature = "rest"),
    ),
    ("sas", "Make a shared access signature", "rest", cfg!(feature = "rest")),
    ("shell", "Type commands on one database", "shell", cfg!(feature = "shell")),
    ("completions", "Print completions for a shell", "shell", cfg!(feature = "shell")),
    ("man", "Write manual pages", "shell", cfg!(feature = "shell")),
    (
        "stress",
        "Stress one partition at an application's peak rate",
        "bench",
        cfg!(feature = "bench"),
    ),
    ("bench", "Measure the speed of this machine", "bench", cfg!(feature = "bench")),
    ("sim", "Run the database against a model on a failing disk", "sim", cfg!(feature = "sim")),
    ("sync", "Carry changes to a Table service", "remote", cfg!(feature = "remote")),
];

/// The features that this build may have.
const FEATURES: [(&str, bool); 10] = [
    ("bench", cfg!(feature = "bench")),
    ("cli", cfg!(feature = "cli")),
    ("events", cfg!(feature = "events")),
    ("parquet", cfg!(feature = "parquet")),
    ("remote", cfg!(feature = "remote")),
    ("rest", cfg!(feature = "rest")),
    ("serde", cfg!(feature = "serde")),
    ("shell", cfg!(feature = "shell")),
    ("sim", cfg!(feature = "sim")),
    ("zstd", cfg!(feature = "zstd")),
];

/// The note in the help of a build that opens directories only.
const NO_SERVICES: &str = "\
A build with the feature remote accepts a Table service as DB: env:NAME, file:PATH or a URL.
  cargo install rowstone --features remote";

/// Completes the command of the program.
pub(super) fn completed(command: Command) -> Command {
    let features = FEATURES.iter().filter(|(_, has)| *has).map(|(name, _)| *name);
    let features = features.collect::<Vec<_>>().join(" ");
    // clap keeps a version for the whole life of the process.
    let version = format!("{}\nfeatures: {features}", env!("CARGO_PKG_VERSION")).leak();
    let command = with_note(with_missing(command, &OPTIONAL), cfg!(feature = "remote"));
    grouped(unfolded(local_path::checked(command)).long_version(&*version))
}

/// Returns the failure of a command that this build lacks.
pub(super) fn missing(command: &str) -> Option<Failure> {
    missing_of(command, &OPTIONAL)
}

fn missing_of(command: &str, optional: &[Optional]) -> Option<Failure> {
    let (name, _, feature, _) =
        optional.iter().find(|(name, _, _, has)| *name == command && !has)?;
    Some(needs(&format!("`{name}`"), feature))
}

/// Returns the failure of a use of what this build lacks.
pub(super) fn needs(what: &str, feature: &str) -> Failure {
    Failure::Usage(format!(
        "this build has no {what}, which needs the feature {feature}\n  \
         try: cargo install rowstone --features {feature}"
    ))
}

/// Adds the commands that this build lacks. They accept any arguments.
fn with_missing(command: Command, optional: &[Optional]) -> Command {
    let missing = optional.iter().filter(|(_, _, _, has)| !has);
    missing.fold(command, |command, (name, purpose, feature, _)| {
        let arguments = Arg::new("arguments").num_args(0..).allow_hyphen_values(true);
        let arguments = arguments.trailing_var_arg(true).action(ArgAction::Append).hide(true);
        let about = format!("{purpose} (feature {feature})");
        command.subcommand(Command::new(*name).about(about).arg(arguments))
    })
}

/// Adds [`NO_SERVICES`] to the long help of the program and of each command that could open a Table
/// service.
fn with_note(command: Command, has_remote: bool) -> Command {
    let noted = |command: Command| {
        let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        command.after_long_help(format!("{help}\n\n{NO_SERVICES}").trim_start().to_owned())
    };
    if has_remote {
        return command;
    }
    let is_place = |arg: &Arg| arg.get_value_parser().type_id() == TypeId::of::<Place>();
    noted(command).mut_subcommands(|command| {
        let has_place = command.get_arguments().any(is_place);
        if has_place { noted(command) } else { command }
    })
}

/// Joins the lines of each paragraph of help, so that clap folds them to the width of the terminal.
/// Lines that are indented stay as they are: examples can be copied.
fn unfolded(command: Command) -> Command {
    let help = command.get_after_long_help().map(|text| paragraphs(&text.to_string()));
    let command = match help {
        Some(help) => command.after_long_help(help),
        None => command,
    };
    command.mut_subcommands(unfolded)
}

fn paragraphs(text: &str) -> String {
    let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
    let mut joined = String::new();
    let mut before = "";
    for (i, line) in text.lines().enumerate() {
        let goes_on = is_prose(before) && is_prose(line) && !before.ends_with(':');
        if i > 0 {
            joined.push(if goes_on { ' ' } else { '\n' });
        }
        joined.push_str(line);
        before = line;
    }
    joined
}

/// Lists the commands by group.
fn grouped(command: Command) -> Command {
    let mut list = String::new();
    for (group, names) in GROUPS {
        list.push_str(&format!("{group}:\n"));
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            list.push_str(&format!("  {name:13} {}\n", about.cloned().unwrap_or_default()));
        }
        list.push('\n');
    }
    let template = "{about-with-newline}\n{usage-heading} {usage}\n\n";
    command.help_template(format!("{template}{list}Options:\n{{options}}{{after-help}}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Arguments;

    fn each(command: &Command, check: &mut impl FnMut(&Command)) {
        check(command);
        command.get_subcommands().for_each(|command| each(command, check));
    }

    #[test]
    fn every_command_is_in_one_group() {
        let command = completed(Arguments::command());
        let mut named: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let mut known: Vec<_> = command.get_subcommands().map(Command::get_name).collect();
        named.sort_unstable();
        known.sort_unstable();
        assert_eq!(named, known);
    }

    /// A list line must fit the line, and clap must not fold a line that is to be copied.
    #[test]
    fn help_fits_80_columns() {
        let help = completed(Arguments::command()).render_help().to_string();
        let long = |line: &&str| line.chars().count() > 80;
        let is_listed = |line: &&str| line.starts_with("  ");
        assert_eq!(help.lines().filter(is_listed).find(long), None);
        let mut whole = completed(Arguments::command()).term_width(80);
        whole.build();
        each(&whole, &mut |command| {
            let mut command = command.clone();
            let texts = [command.render_help(), command.render_long_help()].map(|h| h.to_string());
            // A connection string is one word, which is to be copied.
            let lines = texts.iter().flat_map(|text| text.lines());
            for line in lines.filter(|line| line.trim().contains(' ')) {
                assert!(!long(&line), "{}: {line}", command.get_name());
            }
            let is_folded = |text: &String| text.lines().any(|line| line.trim() == "\\");
            assert!(!texts.iter().any(is_folded), "{}: a folded example", command.get_name());
        });
    }

    #[test]
    fn every_argument_has_a_help() {
        each(&completed(Arguments::command()), &mut |command| {
            let mut shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
            let bare = shown.find(|argument| argument.get_help().is_none());
            assert!(bare.is_none(), "{}: {bare:?}", command.get_name());
        });
    }

    /// Calls `with` for each command that has arguments, with the words that name it.
    fn each_leaf(command: &Command, words: &[String], with: &mut impl FnMut(&[String], &Command)) {
        if !command.has_subcommands() {
            with(words, command);
        }
        for command in command.get_subcommands() {
            each_leaf(command, &[words, &[command.get_name().to_owned()]].concat(), with);
        }
    }

    /// Every message of the parser with a secret at any place masks it.
    #[test]
    fn no_message_of_the_parser_has_a_secret() {
        let key = "k3y/AAAA".repeat(10) + "BBBBCC==";
        let account = format!("DefaultEndpointsProtocol=https;AccountName=a;AccountKey={key}");
        let mut program = completed(Arguments::command());
        let mut refused = 0;
        let mut check = |words: &[String], secret: &str, more: &[String]| {
            let words = [words, more].concat();
            if let Err(error) = program.try_get_matches_from_mut(&words) {
                let (_, text) = Failure::from(error).message();
                let text = crate::codec::printable::message(&text.unwrap());
                assert!(!text.contains(secret) && !text.contains(&key), "{words:?}: {text}");
                refused += 1;
            }
        };
        let whole = completed(Arguments::command());
        each_leaf(&whole, &["rowstone".to_owned()], &mut |words, command| {
            let signed = "https://a.table.core.windows.net/?sv=1&sig=s1gn%2Bature%3D".to_owned();
            for (text, secret) in [(&key, &*key), (&account, &key), (&signed, "s1gn%2Bature")] {
                let mut is_masked = |more: &[String]| check(words, secret, more);
                for count in 1..=5 {
                    is_masked(&vec![text.clone(); count]);
                }
                let options = command.get_opts().filter_map(Arg::get_long);
                for option in options.chain(["nope", text]) {
                    is_masked(&[format!("--{option}"), text.clone()]);
                    is_masked(&[format!("--{option}={text}")]);
                }
                is_masked(&["-x".to_owned(), text.clone()]);
                is_masked(&[format!("-x{text}")]);
            }
            for more in [&key, &account, &signed] {
                check(&words[..words.len() - 1], "s1gn%2Bature", std::slice::from_ref(more));
            }
        });
        assert!(refused > 1_000, "{refused}");
    }

    #[test]
    fn prose_is_folded_by_clap_alone() {
        let text = "One two\nthree.\n\nExamples:\n  a \\\n      b\nMore\nprose:\n  c";
        let joined = "One two three.\n\nExamples:\n  a \\\n      b\nMore prose:\n  c";
        assert_eq!(paragraphs(text), joined);
    }

    #[test]
    fn a_build_without_services_says_how_to_build_one_with_them() {
        let help = |has_remote, name: &str| {
            let command = with_note(Arguments::command(), has_remote);
            let mut command = match name {
                "" => command,
                name => command.find_subcommand(name).unwrap().clone(),
            };
            command.render_long_help().to_string()
        };
        for name in ["", "tables", "import", "check-refs", "copy", "get"] {
            assert!(help(false, name).contains("cargo install rowstone --features remote"));
            assert!(!help(true, name).contains("features remote"), "{name}");
        }
        assert!(!help(false, "stats").contains("features remote"));
        assert_eq!(FEATURES.contains(&("remote", true)), cfg!(feature = "remote"));
    }

    #[test]
    fn a_missing_command_names_its_feature() {
        let optional = [("fly", "Fly", "wings", false), ("walk", "Walk", "legs", true)];
        let command = with_missing(Command::new("rowstone"), &optional);
        let matches =
            command.clone().try_get_matches_from(["rowstone", "fly", "db", "--far", "-x"]);
        assert_eq!(matches.unwrap().subcommand_name(), Some("fly"));
        let about = command.find_subcommand("fly").and_then(Command::get_about).unwrap();
        assert_eq!(about.to_string(), "Fly (feature wings)");
        assert!(command.find_subcommand("walk").is_none());
        let (status, text) = missing_of("fly", &optional).unwrap().message();
        let text = text.unwrap();
        assert!(status == 2 && text.contains("no `fly`, which needs the feature wings"), "{text}");
        assert!(missing_of("walk", &optional).is_none());
    }
}
