//! Asks for confirmation before `drop-table` and `delete` remove many entities, and reports the
//! result.

use std::io::{self, IsTerminal, Write};

use clap::Args;

#[cfg(feature = "remote")]
use super::endpoint::Service;
use super::failure::{Failure, Outcome, eprint_line};
use super::moving::KeyArgs;
use super::output::{counted, print};
use super::writer::Writer;
use crate::json::Object;

/// The option of commands that remove many entities.
#[derive(Args)]
pub(super) struct Removal {
    /// Remove many entities without asking; required without a terminal
    #[arg(long)]
    yes: bool,
}

/// The members of the response that give the space still held, each with the text to print.
const HOLDERS: [(&str, &str); 3] = [
    ("snapshot_bytes", "snapshots still read removed entities of"),
    ("reader_bytes", "open readers hold removed table files of"),
    ("kept_log_bytes", "kept changes of all tables hold logs of"),
];

impl Removal {
    /// If the user agrees, sends the request `op`, which deletes the range `keys` of a table or the
    /// whole table, and frees the space.
    pub(super) fn run(&self, db: &Writer, table: &str, op: &str, keys: &KeyArgs) -> Outcome {
        let put = |request: &mut Object<'_>| {
            request.text("table", table);
            keys.put(request);
        };
        let size = db.ask("size", put)?;
        let all = |count| counted(count, "entity", "entities");
        let entities = match size.number("entities") {
            Some(count) => all(count),
            None => format!("about {}", all(size.number("entities_about").unwrap_or_default())),
        };
        let what = format!("{entities} of {table}");
        let bytes_text = |bytes| counted(bytes, "byte", "bytes");
        let bytes = bytes_text(size.number("bytes").unwrap_or_default());
        self.confirm(&format!("{what}, about {bytes} in files"))?;
        let removed = db.ask(op, |request| {
            put(request);
            request.raw("reclaim", true);
        })?;
        let freed = bytes_text(removed.number("freed_bytes").unwrap_or_default());
        print(|output| {
            writeln!(output, "removed {what}; {freed} of table files given back")?;
            HOLDERS.iter().try_for_each(|(member, holder)| {
                match removed.number(member).unwrap_or_default() {
                    0 => Ok(()),
                    bytes => writeln!(output, "{holder} {}", bytes_text(bytes)),
                }
            })
        })?;
        // Only prints the error: the entities are removed even if their space could not be freed.
        let left =
            removed.text("left").map(|error| format!("space is left to be given back: {error}"));
        left.iter().for_each(|text| eprint_line(text));
        Ok(())
    }

    /// If the user agrees, deletes the range `keys` of a table of a service that has extensions.
    #[cfg(feature = "remote")]
    pub(super) fn run_at(&self, service: &Service, table: &str, keys: &KeyArgs) -> Outcome {
        let remote = service.remote();
        let Some(count) = remote.count(table, &keys.filter())? else {
            return service.refuse(&[("a range", true)]);
        };
        let what = format!("{} of {table}", counted(count, "entity", "entities"));
        self.confirm(&what)?;
        remote.delete_range(table, |object| keys.put(object))?;
        print(|output| writeln!(output, "removed {what}"))
    }

    /// Asks whether `what` is to be removed. An error ends the command.
    pub(super) fn confirm(&self, what: &str) -> Outcome {
        if self.yes {
            return Ok(());
        }
        let refuse = |how: &str| Failure::Usage(format!("{what} would be removed: {how}"));
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Err(refuse("confirm it with --yes"));
        }
        eprint_line(&format!("{what} will be removed.\nGo on? [y/N]"));
        let mut answer = String::new();
        let read = io::stdin().read_line(&mut answer);
        read.map_err(|error| Failure::Other(format!("cannot read the answer: {error}")))?;
        let agrees = ["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str());
        if agrees { Ok(()) } else { Err(refuse("nothing was done")) }
    }
}
