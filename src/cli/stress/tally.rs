//! What a soak came to: counts, and a line that shows them while it runs.

use std::collections::BTreeMap;

use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::output::with_thousands;

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
pub(super) struct Progress(ProgressBar);

impl Tally {
    /// For people: a line for each count.
    pub(super) fn text(&self) -> String {
        let mut lines = Vec::new();
        let mut put = |name: &str, count: u64| {
            lines.push(format!("  {name:40} {:>12}", with_thousands(count)));
        };
        put("restarts", self.starts);
        put("  refused by a limit", self.refused_starts);
        put("kills", self.kills);
        put("  while opening", self.kills_opening);
        put("  while closing", self.kills_closing);
        put("clean closes", self.closes);
        put("ends by the limit of a file's length", self.ends_by_limit);
        put("states read back and compared", self.compared);
        put("requests answered", self.requests);
        put("commits acknowledged", self.commits);
        put("  lost, where that may be", self.commits_lost);
        put("requests unanswered at a kill", self.unanswered);
        put("  found done", self.unanswered_found);
        put("full disks relieved", self.relieved);
        for (code, count) in &self.refusals {
            put(&format!("refused: {code}"), *count);
        }
        lines.join("\n")
    }

    /// For programs: one object.
    pub(super) fn json(&self) -> String {
        let refusals = self.refusals.iter().map(|(code, count)| format!("\"{code}\":{count}"));
        let refusals: Vec<_> = refusals.collect();
        format!(
            "{{\"starts\":{},\"refused_starts\":{},\"kills\":{},\"kills_opening\":{},\
             \"kills_closing\":{},\"closes\":{},\"ends_by_limit\":{},\"compared\":{},\
             \"requests\":{},\"commits\":{},\"commits_lost\":{},\"unanswered\":{},\
             \"unanswered_found\":{},\"relieved\":{},\"refusals\":{{{}}}}}",
            self.starts,
            self.refused_starts,
            self.kills,
            self.kills_opening,
            self.kills_closing,
            self.closes,
            self.ends_by_limit,
            self.compared,
            self.requests,
            self.commits,
            self.commits_lost,
            self.unanswered,
            self.unanswered_found,
            self.relieved,
            refusals.join(",")
        )
    }
}

impl Progress {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::no_length();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    pub(super) fn show(&self, scenario: &str, tally: &Tally) {
        let number = with_thousands;
        self.0.set_message(format!(
            "{scenario}: {} kills, {} commits, {} unanswered, {} states compared",
            number(tally.kills),
            number(tally.commits),
            number(tally.unanswered),
            number(tally.compared)
        ));
        self.0.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_told_to_people_and_programs() {
        let refusals = BTreeMap::from([("StorageFull".to_owned(), 3)]);
        let tally = Tally { starts: 2, commits: 1234, refusals, ..Tally::default() };
        let text = tally.text();
        assert!(text.contains("restarts                                            2"), "{text}");
        assert!(text.contains("1,234") && text.contains("refused: StorageFull"), "{text}");
        let json = tally.json();
        assert!(json.starts_with("{\"starts\":2,") && json.ends_with("{\"StorageFull\":3}}"));
    }
}
