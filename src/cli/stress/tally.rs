//! Counts what happened in a soak (a sequence of runs of the process under test), and shows the
//! counts in a line while it runs.

use std::collections::BTreeMap;

use crate::cli::output::with_thousands;
use crate::cli::progress::Progress;
use crate::json;
use crate::named::figures;

figures! {
    /// The counts of one soak, or the sum of several. A kill counts as "while opening" if the
    /// process was not sent any request, and as "while closing" if the input of the process had
    /// been closed before. A commit may be lost if its durability does not guarantee that it
    /// survives a kill.
    pub(super) struct Tally {
        starts "restarts",
        refused_starts "  refused by a limit",
        kills "kills",
        kills_opening "  while opening",
        kills_closing "  while closing",
        closes "clean closes",
        ends_by_limit "ends by the limit of a file's length",
        compared "states read back and compared",
        requests "requests answered",
        commits "commits acknowledged",
        commits_lost "  lost, where that may be",
        unanswered "requests unanswered at a kill",
        unanswered_found "  found done",
        relieved "full disks relieved",
    }
    (refusals: BTreeMap<String, u64>)
}

/// The progress line on standard error, if that is a terminal.
pub(super) struct Live(Progress);

impl Tally {
    /// Returns the counts as text, one line per count.
    pub(super) fn text(&self) -> String {
        let counts = self.all().into_iter().map(|(_, name, count)| (name.to_owned(), count));
        let refusals =
            self.refusals.iter().map(|(code, count)| (format!("refused: {code}"), *count));
        let line = |(name, count)| format!("  {name:40} {:>12}", with_thousands(count));
        counts.chain(refusals).map(line).collect::<Vec<_>>().join("\n")
    }

    /// Returns the counts as a JSON object.
    pub(super) fn json(&self) -> String {
        json::object(|object| {
            self.all().iter().for_each(|(name, _, count)| object.raw(name, count));
            object.raw(
                "refusals",
                json::object(|object| {
                    self.refusals.iter().for_each(|(code, count)| object.raw(code, count));
                }),
            );
        })
    }
}

impl Live {
    pub(super) fn new() -> Self {
        Self(Progress::line("{spinner} {elapsed} {msg}"))
    }

    pub(super) fn show(&self, scenario: &str, tally: &Tally) {
        let number = with_thousands;
        self.0.say(format!(
            "{scenario}: {} kills, {} commits, {} unanswered, {} states compared",
            number(tally.kills),
            number(tally.commits),
            number(tally.unanswered),
            number(tally.compared)
        ));
    }
}
