//! `stress`: kills this program at random moments, and compares the remaining data with a model.
//!
//! This process computes the expected data with the model. Its child process runs the same
//! executable with the subcommand `exec`. A *life* of the child is the time from its start to its
//! end. A seed determines requests, options and plans. The moments of kills, and how the system
//! reacts to limits, are not repeatable.
//!
//! Files: `soak` (runs lives and checks them), `plan` (parameters of a life), `traffic` (requests),
//! `answer`, `session`, `child` (the process), `disk` (a small file system), `tally` (counts). The
//! model is `sim::oracle`.

mod answer;
mod child;
mod disk;
mod plan;
mod session;
mod soak;
mod tally;
mod traffic;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use self::disk::Disk;
use self::plan::Scenario;
use self::soak::{Soak, Until};
use self::tally::Tally;
use super::failure::{Failure, Outcome, eprint_line};
use super::output::print;
use crate::clock::{Clock, SystemClock};
use crate::fs::{DiskFs, Fs};
use crate::options::Durability;
use crate::rng::Rng;

/// Kill this program at random moments, restart it, and compare the data that it kept with a model.
#[derive(Args)]
#[group(id = "kills-and-limits")]
pub(super) struct Stress {
    /// Seconds for each scenario [default: 60, without --kills]
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// End a scenario after this many starts of the program
    #[arg(long, value_name = "N")]
    kills: Option<u64>,
    /// Seed for the requests and options; the moments of kills are real [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// Put the database on a file system of this many bytes, which fills up; requires superuser
    /// rights
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1 << 20..))]
    fill: Option<u64>,
    /// Let the program open at most this many files
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(8..))]
    open_files: Option<u64>,
    /// Limit each file to this many bytes
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(64 << 10..))]
    file_bytes: Option<u64>,
    /// Run all scenarios, one after the other, with default limits where none is given
    #[arg(long)]
    full: bool,
}

pub(super) const HELP: &str = "\
Without a limit, each life of the process ends by signal 9 at a random moment: while it
opens, works on several requests that wait, or closes; now and then by a close in order.
Then the state found must be that after all commits that were acknowledged as durable
enough, and at most the one request that was not answered yet; groups are whole, tags only
grow, and `verify` finds nothing.

With a limit, every other life runs under it: on a full disk writes are refused with
StorageFull and go on when there is space again; without descriptors, or with a file grown
to its limit, requests fail but nothing acknowledged is lost. A file grown to its limit
ends the process by SIGXFSZ, which is a kill like any other, unless it ignores the signal;
both are tried.

The first difference ends the run with status 1 and a description; the directory stays.

Examples:
  rowstone stress /tmp/soak --seconds 60
  rowstone stress /tmp/soak --kills 100 --durability buffered --seed 7
  rowstone stress /tmp/soak --full --seconds 20";

/// The limits that `--full` uses for scenarios whose options are not given.
const FILL_BYTES: u64 = 8 << 20;
const OPEN_FILES: u64 = 24;
const FILE_BYTES: u64 = 1 << 20;
const SECONDS: u64 = 60;

impl Stress {
    pub(super) fn run(self, dir: PathBuf, durability: Option<Durability>, json: bool) -> Outcome {
        let seed = self.seed.unwrap_or_else(|| Rng::from_entropy().next_u64() >> 32);
        let mut scenarios = Vec::new();
        let limit = |given: Option<u64>, usual| given.or(self.full.then_some(usual));
        if self.full || (self.fill, self.open_files, self.file_bytes) == (None, None, None) {
            scenarios.push(Scenario::Kills);
        }
        scenarios.extend(limit(self.fill, FILL_BYTES).map(Scenario::Fill));
        scenarios.extend(limit(self.open_files, OPEN_FILES).map(Scenario::OpenFiles));
        scenarios.extend(limit(self.file_bytes, FILE_BYTES).map(Scenario::FileBytes));
        check_empty(&dir)?;
        scenarios.into_iter().try_for_each(|scenario| {
            let name = scenario.name();
            let tally = self.scenario(scenario, dir.join(name), durability, seed)?;
            print(|output| match json {
                true => output.object(|object| {
                    object.text("scenario", name);
                    object.raw("seed", seed);
                    object.raw("counts", tally.json());
                }),
                false => writeln!(output, "{name}, seed {seed}: no difference\n{}", tally.text()),
            })
        })
    }

    fn scenario(
        &self,
        mut scenario: Scenario,
        dir: PathBuf,
        durability: Option<Durability>,
        seed: u64,
    ) -> Outcome<Tally> {
        let name = scenario.name();
        make_dir(&dir)?;
        let mut disk = None;
        if let Scenario::Fill(bytes) = scenario {
            match Disk::mount(&dir, bytes) {
                Ok(mounted) => disk = Some(mounted),
                Err(why) => {
                    eprint_line(&format!(
                        "skipped: no file system of {bytes} bytes can be mounted here ({why}); \
                         files of at most that many bytes instead"
                    ));
                    scenario = Scenario::FileBytes(bytes);
                }
            }
        }
        let clock = SystemClock::new();
        let seconds = self.seconds.or(self.kills.is_none().then_some(SECONDS));
        let until = Until {
            time: seconds.map(|seconds| clock.monotonic() + Duration::from_secs(seconds)),
            lives: self.kills,
        };
        let mut soak = Soak::new(dir.join("db"), scenario, disk, durability, seed, clock);
        let result = soak.run(&until);
        let tally = soak.end(result.is_err());
        if let Err(what) = result {
            let dir = dir.display();
            let text = format!("{name}, seed {seed}: {what}\n  the database is in {dir}");
            return Err(Failure::Other(text));
        }
        Ok(tally)
    }
}

/// Refuses a directory that is not empty, because its files may belong to the user.
fn check_empty(dir: &Path) -> Outcome {
    let fs = DiskFs::new();
    let cannot = |error| Failure::Other(format!("cannot read {}: {error}", dir.display()));
    if fs.exists(dir).map_err(cannot)? && !fs.list(dir).map_err(cannot)?.is_empty() {
        return Err(Failure::Usage(format!("{} is not empty", dir.display())));
    }
    Ok(())
}

fn make_dir(dir: &Path) -> Outcome {
    let cannot = |error| Failure::Other(format!("cannot create {}: {error}", dir.display()));
    DiskFs::new().create_dir_all(dir).map_err(cannot)
}
