//! Asks for confirmation before `drop-table` and `delete` remove many entities, and reports the
//! result.

use std::io::{self, IsTerminal, Write};

use clap::Args;

use super::failure::{Failure, Outcome, eprint_line};
use super::output::{counted, print, with_thousands};
use crate::db::Db;
use crate::error::{ErrorKind, Result};
use crate::query::KeyRange;

/// If the metadata of the files indicates at most this many entities, they are counted; otherwise
/// the estimate is shown.
const COUNTED_MAX: u64 = 1_000_000;

/// The option of commands that remove many entities.
#[derive(Args)]
pub(super) struct Removal {
    /// Remove many entities without asking; required without a terminal
    #[arg(long)]
    yes: bool,
}

impl Removal {
    /// If the user agrees, removes a range of a table by calling `remove`, and frees the space of
    /// the range.
    pub(super) fn run(
        &self,
        db: &Db,
        table: &str,
        range: &KeyRange,
        remove: impl FnOnce() -> Result<()>,
    ) -> Outcome {
        let (estimate, bytes) = db.size_in_files(table, range)?;
        let all = |count| counted(count, "entity", "entities");
        let count = || db.table(table)?.scan(range.clone()).count();
        let entities = match (estimate <= COUNTED_MAX).then(count) {
            Some(Ok(count)) => all(count),
            // A gate that blocks reads of a key range makes the count fail with `Busy`. A table
            // with such a gate can still be dropped, so the estimate is shown instead of the count.
            Some(Err(error)) if error.kind() != ErrorKind::Busy => return Err(error.into()),
            _ => format!("about {}", all(estimate)),
        };
        let what = format!("{entities} of {table}");
        self.confirm(&format!("{what}, about {} bytes in files", with_thousands(bytes)))?;
        let (freed, error) = db.remove_now(table, range, remove)?;
        let freed = with_thousands(freed);
        let stats = db.stats();
        print(|output| {
            writeln!(output, "removed {what}; {freed} bytes of table files given back")?;
            match stats.get("kept_log_bytes").unwrap_or_default() {
                0 => Ok(()),
                kept => writeln!(
                    output,
                    "kept changes hold {} bytes of logs, with changes of other tables",
                    with_thousands(kept)
                ),
            }
        })?;
        // Only prints the error: the entities are removed even if their space could not be freed.
        let left = error.map(|error| format!("space is left to be given back: {}", error.chain()));
        left.iter().for_each(|text| eprint_line(text));
        Ok(())
    }

    fn confirm(&self, what: &str) -> Outcome {
        if self.yes {
            return Ok(());
        }
        let refuse = |how: &str| Failure::Usage(format!("{what} would be removed: {how}"));
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Err(refuse("confirm it with --yes"));
        }
        eprint_line(&format!("{what} will be removed. Go on? [y/N]"));
        let mut answer = String::new();
        let read = io::stdin().read_line(&mut answer);
        read.map_err(|error| Failure::Other(format!("cannot read the answer: {error}")))?;
        let agrees = ["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str());
        if agrees { Ok(()) } else { Err(refuse("nothing was done")) }
    }
}
