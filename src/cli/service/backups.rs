//! The scheduled backups of `serve`. One thread makes the backups of all databases.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::RangedU64ValueParser;

use crate::cli::catalog::read_time;
use crate::cli::failure::{Failure, Outcome};
use crate::clock::{Clock, SystemClock, ticks_in};
use crate::db::{Backup, Db, Generation};
use crate::error::Result;
use crate::rest::http::log_writer::LogWriter;
use crate::sync::{Condvar, Mutex};

/// The options of `serve` for backups.
#[derive(Args)]
pub(super) struct BackupArgs {
    /// Make backups in this directory; with --accounts, in one directory inside it per account
    #[arg(long, value_name = "DIR")]
    backup_to: Option<PathBuf>,
    /// Time between two backups, such as 30m, 1h or 1d; the first is due this long after the newest
    /// one in the directory, or at once if there is none
    #[arg(long, value_name = "TIME", value_parser = read_time, default_value = "1d")]
    #[arg(requires = "backup_to")]
    backup_every: Duration,
    /// Keep only this many backups, the newest ones [default: all]
    #[arg(long, value_name = "COUNT", requires = "backup_to")]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    keep: Option<usize>,
}

/// The time after which a failed backup is tried again, unless the next one is due earlier.
const RETRY_TIME: Duration = Duration::from_secs(600);

/// A database, the directory of its backups, and the monotonic time at which the next one is due.
struct Job {
    db: Db,
    dir: PathBuf,
    due: Duration,
}

struct Stop {
    is_stopping: Mutex<bool>,
    stops: Condvar,
}

impl BackupArgs {
    /// Returns the directory for the backups of the account `name`, or of the only database if
    /// `name` is `None`. Returns `None` if no backups are to be made.
    pub(super) fn dir(&self, name: Option<&str>) -> Option<PathBuf> {
        let dir = self.backup_to.as_ref()?;
        Some(name.map_or_else(|| dir.clone(), |name| dir.join(name)))
    }

    /// Runs `serve` while another thread makes backups of the databases, each into its directory.
    /// The function that is passed to `serve` ends this: it cancels a backup in progress.
    pub(super) fn during<T>(
        &self,
        databases: Vec<(PathBuf, Db)>,
        log: &LogWriter,
        serve: impl FnOnce(&dyn Fn()) -> Outcome<T>,
    ) -> Outcome<T> {
        if databases.is_empty() {
            return serve(&|| ());
        }
        // A wrong directory ends the server before it serves, not only each backup.
        databases.iter().try_for_each(|(dir, db)| db.backup_store(dir).map(drop))?;
        let stop = Stop { is_stopping: Mutex::new(false), stops: Condvar::new() };
        let end = || {
            *stop.is_stopping.lock() = true;
            stop.stops.notify_all();
        };
        std::thread::scope(|scope| {
            // Also ends the thread after a panic, because the scope waits for it.
            let _end = OnDrop(&end);
            let thread = std::thread::Builder::new().name("rowstone-backup".to_owned());
            let spawned = thread.spawn_scoped(scope, || self.run(databases, log, &stop));
            spawned.map_err(|error| start_failed(&error)).and_then(|_| serve(&end))
        })
    }

    fn run(&self, databases: Vec<(PathBuf, Db)>, log: &LogWriter, stop: &Stop) {
        let clock = SystemClock::new();
        let job = |(dir, db): (PathBuf, Db)| {
            let due = self.first_due(&dir, &clock);
            Job { db, dir, due }
        };
        let mut jobs: Vec<Job> = databases.into_iter().map(job).collect();
        loop {
            for job in jobs.iter_mut().filter(|job| job.due <= clock.monotonic()) {
                let made = self.make(job, stop);
                if *stop.is_stopping.lock() {
                    return;
                }
                let pause = match made {
                    Ok(_) => self.backup_every,
                    Err(_) => self.backup_every.min(RETRY_TIME),
                };
                log.line(&line(&job.dir, made));
                job.due = clock.monotonic() + pause;
            }
            let next = jobs.iter().map(|job| job.due).min().unwrap_or_default();
            let mut is_stopping = stop.is_stopping.lock();
            if !*is_stopping {
                let pause = next.saturating_sub(clock.monotonic());
                stop.stops.wait_for(&mut is_stopping, pause);
            }
            if *is_stopping {
                return;
            }
        }
    }

    /// Returns the monotonic time at which the first backup is due: one interval after the newest
    /// backup, or at once if that is past, if there is no backup, or if the newest one is dated in
    /// the future.
    fn first_due(&self, dir: &Path, clock: &SystemClock) -> Duration {
        let generations = Backup::open(dir).and_then(|backups| backups.generations());
        let newest = generations.unwrap_or_default().pop();
        let taken = newest.map_or(0, |newest| newest.taken.ticks());
        let left = ticks_in(self.backup_every).checked_sub(clock.now().saturating_sub(taken));
        let left = left.filter(|_| taken <= clock.now()).unwrap_or_default();
        clock.monotonic() + Duration::from_micros(left / 10)
    }

    fn make(&self, job: &Job, stop: &Stop) -> Result<Generation> {
        let made = job.db.backup_while(&job.dir, &mut |_, _| match *stop.is_stopping.lock() {
            true => Err(io::Error::other("the server is stopping")),
            false => Ok(()),
        })?;
        if let Some(keep) = self.keep {
            Backup::open(&job.dir)?.prune(keep)?;
        }
        Ok(made)
    }
}

struct OnDrop<'f>(&'f dyn Fn());

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn start_failed(error: &io::Error) -> Failure {
    Failure::Other(format!("cannot start a thread: {error}"))
}

/// Returns the log line for a backup or its failure.
fn line(dir: &Path, made: Result<Generation>) -> String {
    match made {
        Ok(Generation { number, new_files, new_bytes, .. }) => {
            let dir = dir.display();
            format!("backup {number} in {dir}: {new_files} new files of {new_bytes} bytes")
        }
        Err(error) => format!(
            "error: the backup in {} or the removal of old ones failed: {}",
            dir.display(),
            error.chain()
        ),
    }
}
