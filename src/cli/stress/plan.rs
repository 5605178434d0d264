//! Chooses the parameters of one life of the process under test, from its start to its end. The
//! seed of the test determines these parameters.
//!
//! `soak` runs the process with these parameters.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use super::child::Limits;
use crate::options::Durability;
use crate::rng::Rng;
use crate::testing::sim::parse::durability_name;

/// The limit that the process runs into; `Kills` has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scenario {
    Kills,
    /// The file system has this many bytes.
    Fill(u64),
    /// The process may have at most this many open descriptors.
    OpenFiles(u64),
    /// A file may have at most this many bytes.
    FileBytes(u64),
}

/// The parameters of a life of the process.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) limited: bool,
    pub(super) limits: Limits,
    pub(super) durability: Durability,
    pub(super) memtable_bytes: u64,
    pub(super) pread: bool,
    /// The process is ended after it has answered this number of requests, or earlier if limits
    /// cause too many refusals.
    pub(super) requests: u64,
    /// Maximum number of unanswered requests.
    pub(super) window: usize,
    pub(super) ending: Ending,
    /// The time from the last answer to the kill.
    pub(super) delay: Duration,
    /// Whether a full disk is enlarged during the life.
    pub(super) relieve: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    KillOpening,
    Kill,
    KillClosing,
    Close,
}

impl Scenario {
    pub(super) fn name(self) -> &'static str {
        match self {
            Scenario::Kills => "kills",
            Scenario::Fill(_) => "fill",
            Scenario::OpenFiles(_) => "open-files",
            Scenario::FileBytes(_) => "file-bytes",
        }
    }
}

impl Plan {
    /// Chooses the parameters of the next life at random. `opening`, the time that opening the
    /// database takes, bounds the delay of a kill during opening.
    pub(super) fn random(
        rng: &mut Rng,
        scenario: Scenario,
        durability: Option<Durability>,
        opening: Duration,
    ) -> Plan {
        let limited = scenario != Scenario::Kills && rng.chance(2, 3);
        let mut limits = Limits::default();
        match scenario {
            Scenario::OpenFiles(most) if limited => {
                limits.open_files = Some(5 + rng.below(most.saturating_sub(4)));
            }
            Scenario::FileBytes(most) if limited => {
                limits.file_bytes = Some((64 << 10) + rng.below(most.saturating_sub(64 << 10)));
                limits.ignore_signal = rng.chance(1, 2);
            }
            _ => {}
        }
        let durabilities = [Durability::Sync, Durability::Os, Durability::Buffered];
        let any = *rng.pick(&durabilities);
        let ending = match rng.index(100) {
            0..=69 => Ending::Kill,
            70..=81 => Ending::KillOpening,
            82..=89 => Ending::KillClosing,
            _ => Ending::Close,
        };
        let delay_max = match ending {
            Ending::KillOpening => opening.saturating_mul(2),
            _ => Duration::from_millis(3),
        };
        let nanos = u64::try_from(delay_max.as_nanos()).unwrap_or(u64::MAX);
        let filling = limited && matches!(scenario, Scenario::Fill(_));
        Plan {
            limited,
            limits,
            durability: durability.unwrap_or(any),
            memtable_bytes: *rng.pick(&[16 << 10, 64 << 10, 256 << 10, 1 << 20]),
            pread: rng.chance(1, 3),
            requests: if filling { 3000 } else { 1 + rng.below(400) },
            window: 1 + rng.index(64),
            ending,
            delay: Duration::from_nanos(rng.below(nanos)),
            relieve: rng.chance(1, 2),
        }
    }

    /// Returns the command line of the process.
    pub(super) fn arguments(&self, db: &Path) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["exec".into(), db.into()];
        arguments.extend(["--durability".into(), durability_name(self.durability).into()]);
        arguments.extend(["--memtable-bytes".into(), self.memtable_bytes.to_string().into()]);
        if self.pread {
            arguments.extend(["--io".into(), "pread".into()]);
        }
        arguments
    }

    pub(super) fn describe(&self) -> String {
        let limited = match (&self.limits, self.limited) {
            (_, false) => "no limit".to_owned(),
            (Limits { open_files: Some(count), .. }, _) => format!("{count} open files"),
            (Limits { file_bytes: Some(bytes), ignore_signal, .. }, _) => {
                format!("files of {bytes} bytes, signal ignored: {ignore_signal}")
            }
            _ => "a small disk".to_owned(),
        };
        format!(
            "{}, memtable {}, {}, {} waiting, ending {:?} after {:?}",
            durability_name(self.durability),
            self.memtable_bytes,
            limited,
            self.window,
            self.ending,
            self.delay
        )
    }
}
