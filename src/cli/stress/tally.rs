//! What a soak came to: counts, and a line that shows them while it runs.

use std::collections::BTreeMap;

use crate::cli::output::with_thousands;
use crate::cli::progress::Progress;
use crate::json;

/// Counts of one soak, or of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) starts: u64,
    /// Starts that a limit refused.
    pub(super) refused_starts: u64,
    pub(super) kills: u64,
    /// … of which the process had not answered anything yet.
    pub(super) kills_opening: u64,
    /// … of which it had been told to end.
    pub(super) kills_closing: u64,
    pub(super) closes: u64,
    /// Ends by the system at the limit of a file's length.
    pub(super) ends_by_limit: u64,
    /// Times that the state was read back whole and found among those that may be.
    pub(super) compared: u64,
    pub(super) requests: u64,
    pub(super) commits: u64,
    /// Commits acknowledged with less than was needed to survive, and gone.
    pub(super) commits_lost: u64,
    /// Requests that a kill left without an answer, and their changes that were found made.
    pub(super) unanswered: u64,
    pub(super) unanswered_found: u64,
    /// Times that a full disk got space and the process went on.
    pub(super) relieved: u64,
    /// By code, or for the engine's own errors by kind.
    pub(super) refusals: BTreeMap<String, u64>,
}

/// The live line on standard error, if that is a terminal.
pub(super) struct Live(Progress);

impl Tally {
    /// Each count by its name for programs and for people.
    fn counts(&self) -> [(&'static str, &'static str, u64); 14] {
        [
            ("starts", "restarts", self.starts),
            ("refused_starts", "  refused by a limit", self.refused_starts),
            ("kills", "kills", self.kills),
            ("kills_opening", "  while opening", self.kills_opening),
            ("kills_closing", "  while closing", self.kills_closing),
            ("closes", "clean closes", self.closes),
            ("ends_by_limit", "ends by the limit of a file's length", self.ends_by_limit),
            ("compared", "states read back and compared", self.compared),
            ("requests", "requests answered", self.requests),
            ("commits", "commits acknowledged", self.commits),
            ("commits_lost", "  lost, where that may be", self.commits_lost),
            ("unanswered", "requests unanswered at a kill", self.unanswered),
            ("unanswered_found", "  found done", self.unanswered_found),
            ("relieved", "full disks relieved", self.relieved),
        ]
    }

    /// For people: a line for each count.
    pub(super) fn text(&self) -> String {
        let counts = self.counts().map(|(_, name, count)| (name.to_owned(), count));
        let refusals =
            self.refusals.iter().map(|(code, count)| (format!("refused: {code}"), *count));
        let line = |(name, count)| format!("  {name:40} {:>12}", with_thousands(count));
        counts.into_iter().chain(refusals).map(line).collect::<Vec<_>>().join("\n")
    }

    /// For programs: one object.
    pub(super) fn json(&self) -> String {
        json::object(|object| {
            self.counts().iter().for_each(|(name, _, count)| object.raw(name, count));
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
