//! The result of one device simulation: counts of events, and the first failure.

use std::fmt;
use std::time::Duration;

use crate::codec::text::with_thousands;
use crate::named::figures;

figures! {
    /// Counts of the events in one simulation, from the first boot to the end of the simulated
    /// time. Times are in seconds.
    pub struct Figures {
        simulated_seconds "seconds simulated",
        powered_seconds "of these with power",
        boots "times the power came",
        openings "openings that succeeded",
        openings_failed "openings that a bad block failed",
        cuts_in_opening "power cuts during an opening",
        cuts_in_operation "power cuts at a later file operation",
        cuts_between "power cuts between operations",
        closes "closes in order",
        longest_off_seconds "longest time without power",
        wrong_clocks "boots with a wrong clock",
        jumps "jumps of a clock by more than a day",
        commits "commits acknowledged",
        readings "readings written",
        doubted_done "commits in doubt found done",
        doubted_undone "commits in doubt found not done",
        weak_lost "weak commits lost, as they may be",
        bad_blocks "stretches of media gone bad for a time",
        reads_failed "operations that a bad block failed",
        scans "full comparisons",
        verified "verifications",
        expired "readings that expired",
        late_seconds "expiry late at worst, before any clock was ahead",
        late_ahead_seconds "expiry late at worst, from then on",
        late_at_end_seconds "expiry late at the end",
        rows_most "most rows alive",
        bytes_most "most bytes on the disk",
        bytes_at_end "bytes on the disk at the end",
        files_most "most files",
        files_at_end "files at the end",
        writes "writes to files",
        syncs "syncs of files and directories",
    }
}

/// The result of one device simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The seed of the simulation.
    pub seed: u64,
    /// The counts of events.
    pub figures: Figures,
    /// A hash of all answers of the database, and of the contents of all files at the end. Equal
    /// seeds have equal digests.
    pub digest: u64,
    /// The failure that ended the simulation, if any.
    pub failure: Option<Failure>,
}

/// A wrong answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The number of the boot in which the wrong answer was returned, counted from 1.
    pub boot: u64,
    /// The time since the first boot.
    pub at: Duration,
    /// The difference between the answer and the expected one.
    pub what: String,
}

impl Figures {
    /// Formats `count` per acknowledged commit, with two decimals.
    pub(crate) fn per_commit(&self, count: u64) -> String {
        format!("{:.2}", count as f64 / self.commits.max(1) as f64)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |count: &str, label: &str| writeln!(f, "{count:>15}  {label}");
        for (_, label, count) in self.figures.all() {
            line(&with_thousands(count), label)?;
        }
        line(&self.figures.per_commit(self.figures.writes), "writes for each commit")?;
        line(&self.figures.per_commit(self.figures.syncs), "syncs for each commit")?;
        writeln!(f, "seed {}, digest {:016x}", self.seed, self.digest)?;
        self.failure.iter().try_for_each(|failure| writeln!(f, "\n{failure}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, seconds) = (self.at.as_secs() / 86_400, self.at.as_secs() % 86_400);
        write!(f, "boot {}, day {days}, second {seconds}: {}", self.boot, self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_report_has_a_text_form_and_a_json_form() {
        let figures = Figures { boots: 1_234_567, commits: 4, syncs: 9, ..Figures::default() };
        let failure = Failure {
            boot: 7,
            at: Duration::from_secs(86_405),
            what: "reading \"1\" is gone".to_owned(),
        };
        let report = Report { seed: 3, figures, digest: 255, failure: Some(failure) };
        let text = report.to_string();
        assert!(text.contains("\n      1,234,567  times the power came\n"), "{text}");
        assert!(text.contains("\n           2.25  syncs for each commit\n"), "{text}");
        assert!(text.ends_with("boot 7, day 1, second 5: reading \"1\" is gone\n"), "{text}");
    }
}
