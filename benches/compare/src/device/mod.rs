//! Runs the device-day benchmark: ten sensors each write one row per second, and rows are kept for
//! a week. It measures the bytes written to flash.
//!
//! Time is simulated. Each store is first filled with the rows of all days that it keeps. Then some
//! hours are measured with each of two loss windows: a power cut may lose the rows of the last
//! minute, or those of the last second. The loss window decides how often the store syncs.
//!
//! Invariants
//! * each store runs in its own process, which measures itself;
//! * at the end the rows of all kept days are counted one by one.

mod stores;
mod syncs;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::process::{Memory, disk_bytes, in_memory, written_bytes};
use stores::Store;

pub const SENSORS: u64 = 10;
const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;
/// Seconds between deletions of expired rows, in stores without expiry.
const FORGET_EVERY: u64 = HOUR;
/// How long, in seconds, an expired row may remain in a store. rowstone may keep a row beyond its
/// time to live by up to 1/64 of that time.
const LATE: u64 = 7 * DAY / 64 + FORGET_EVERY + 60;

/// A store with its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Rowstone,
    RowstoneEdge,
    Sqlite,
    Lmdb,
}

/// The most that a power cut may lose: the rows of a minute, or of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Window {
    Minute,
    Second,
}

/// The task of one child process, which runs one store.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Task {
    kind: Kind,
    dir: PathBuf,
    days_kept: u64,
    hours: u64,
}

/// The figures of one store, measured for some hours with one loss window.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Figures {
    kind: Kind,
    window: Window,
    days_kept: u64,
    hours: u64,
    /// Bytes sent to storage, from the kernel's counter. It counts 4 KiB each time that a page of
    /// the page cache becomes dirty.
    written_bytes: u64,
    /// Calls of fsync and fdatasync by this process.
    syncs: u64,
    /// Peak resident memory including mapped files. `anonymous_bytes` is measured at the end.
    peak_bytes: u64,
    anonymous_bytes: u64,
    /// The peak size of the directory, sampled hourly, and its size at the end.
    disk_peak_bytes: u64,
    disk_bytes: u64,
    /// Real time, not simulated time.
    seconds: f64,
    rows: u64,
    /// rowstone's own counters for the measured hours.
    account: Option<Account>,
}

/// See `rowstone::stats::Wear`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Account {
    user_bytes: u64,
    log_bytes: u64,
    flush_bytes: u64,
    compaction_bytes: u64,
    manifest_bytes: u64,
    syncs: u64,
    /// Bytes written to flash if every write occupies whole flash pages: of 4 KiB in this field, of
    /// 16 KiB in the next.
    flash_4k_bytes: u64,
    flash_16k_bytes: u64,
}

impl Account {
    fn of(wear: &rowstone::stats::Wear) -> Self {
        Self {
            user_bytes: wear.user_bytes,
            log_bytes: wear.log_bytes,
            flush_bytes: wear.flush_bytes,
            compaction_bytes: wear.compaction_bytes,
            manifest_bytes: wear.manifest_bytes,
            syncs: wear.syncs(),
            flash_4k_bytes: wear.flash_bytes(4 << 10),
            flash_16k_bytes: wear.flash_bytes(16 << 10),
        }
    }
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Rowstone, Kind::RowstoneEdge, Kind::Sqlite, Kind::Lmdb];

    fn name(self) -> &'static str {
        match self {
            Kind::Rowstone => "rowstone",
            Kind::RowstoneEdge => "rowstone, edge",
            Kind::Sqlite => "SQLite",
            Kind::Lmdb => "LMDB",
        }
    }
}

/// Measures every store that this build includes, prints the table and writes `device-day.json`.
pub fn run(dir: &Path, days_kept: u64, hours: u64) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    if let Some(name) = in_memory(dir) {
        let problem = format!("{} is on {name}: a database belongs on a disk", dir.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    let mut all = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|kind| stores::is_built(*kind)) {
        eprintln!("{}: {days_kept} days, then {hours} hours each way", kind.name());
        let database = dir.join("device-day");
        drop(fs::remove_dir_all(&database));
        fs::create_dir_all(&database)?;
        let task = Task { kind, dir: database.clone(), days_kept, hours };
        all.extend(child(&task)?);
        drop(fs::remove_dir_all(&database));
        fs::write(dir.join("device-day.json"), serde_json::to_vec_pretty(&all)?)?;
    }
    print!("{}", table(&all));
    Ok(())
}

fn child(task: &Task) -> io::Result<Vec<Figures>> {
    let output = Command::new(std::env::current_exe()?)
        .arg("device-child")
        .arg(serde_json::to_string(task)?)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("{}: {}", task.kind.name(), output.status)));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Measures one store in a child process, and prints the figures.
pub fn child_main(task: &str) -> io::Result<()> {
    let task: Task = serde_json::from_str(task)?;
    let store = stores::open(task.kind, &task.dir, task.days_kept);
    let mut day = DeviceDay { store, task, now: 0 };
    let start = Instant::now();
    while day.now < day.task.days_kept * DAY {
        day.second(Window::Minute);
    }
    eprintln!("    filled in {:.0} s", start.elapsed().as_secs_f64());
    let figures = [Window::Minute, Window::Second].map(|window| day.measure(window));
    let kept = day.task.days_kept * DAY * SENSORS;
    let rows = day.store.count();
    assert!((kept..=kept + LATE * SENSORS).contains(&rows), "{rows} rows, expected {kept}");
    day.store.close();
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

struct DeviceDay {
    store: Box<dyn Store>,
    task: Task,
    /// Simulated seconds since the start.
    now: u64,
}

impl DeviceDay {
    fn second(&mut self, window: Window) {
        self.store.write(self.now);
        self.now += 1;
        let is_due = window == Window::Second || self.now.is_multiple_of(60);
        if self.now.is_multiple_of(FORGET_EVERY) {
            self.store.forget(self.now.saturating_sub(self.task.days_kept * DAY));
        }
        self.store.passed(is_due, window);
    }

    fn measure(&mut self, window: Window) -> Figures {
        Memory::reset_peak();
        let (start, written, syncs) = (Instant::now(), written_bytes(), syncs::count());
        let before = self.store.wear();
        let (mut disk_peak_bytes, first) = (0, self.now);
        while self.now < first + self.task.hours * HOUR {
            self.second(window);
            if self.now.is_multiple_of(HOUR) {
                disk_peak_bytes = disk_peak_bytes.max(disk_bytes(&self.task.dir));
            }
        }
        let memory = Memory::now();
        let account = self.store.wear().zip(before);
        Figures {
            kind: self.task.kind,
            window,
            days_kept: self.task.days_kept,
            hours: self.task.hours,
            written_bytes: written_bytes() - written,
            syncs: syncs::count() - syncs,
            peak_bytes: memory.peak_bytes,
            anonymous_bytes: memory.anonymous_bytes,
            disk_peak_bytes,
            disk_bytes: disk_bytes(&self.task.dir),
            seconds: start.elapsed().as_secs_f64(),
            rows: (self.now - first) * SENSORS,
            account: account.map(|(now, before)| Account::of(&now.since(&before))),
        }
    }
}

fn table(all: &[Figures]) -> String {
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    let mut text = format!(
        "{:16} {:7} {:>12} {:>10} {:>12} {:>10} {:>12} {:>12} {:>12}\n",
        "store",
        "window",
        "MiB to flash",
        "syncs",
        "bytes a row",
        "peak MiB",
        "anonymous",
        "disk MiB",
        "own 4k MiB",
    );
    for figures in all {
        let window = if figures.window == Window::Minute { "minute" } else { "second" };
        let own = figures.account.map_or_else(String::new, |account| mib(account.flash_4k_bytes));
        text += &format!(
            "{:16} {:7} {:>12} {:>10} {:>12.1} {:>10} {:>12} {:>12} {:>12}\n",
            figures.kind.name(),
            window,
            mib(figures.written_bytes),
            figures.syncs,
            figures.written_bytes as f64 / figures.rows as f64,
            mib(figures.peak_bytes),
            mib(figures.anonymous_bytes),
            mib(figures.disk_peak_bytes),
            own,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs every store of this build for an hour, and checks that all rows of that hour exist.
    #[test]
    fn a_short_day_keeps_its_rows() {
        for kind in Kind::ALL.into_iter().filter(|kind| stores::is_built(*kind)) {
            let name = format!("device-day-{}-{kind:?}", std::process::id());
            let dir = std::env::temp_dir().join(name);
            fs::create_dir_all(&dir).unwrap();
            let task = Task { kind, dir: dir.clone(), days_kept: 1, hours: 1 };
            let mut day = DeviceDay { store: stores::open(kind, &dir, 1), task, now: 0 };
            let figures = day.measure(Window::Minute);
            assert_eq!(figures.rows, HOUR * SENSORS);
            assert_eq!(day.store.count(), HOUR * SENSORS);
            assert!(table(&[figures]).contains(kind.name()));
            day.store.close();
            fs::remove_dir_all(&dir).unwrap();
        }
    }
}
