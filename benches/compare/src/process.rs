//! Measures the resources that this process uses: processor time, memory, bytes written, disk
//! space.
//!
//! Not here: limits of the machine (`limits.rs`), control groups (`cgroup.rs`).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Resident memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Peak since `reset_peak`, including mapped files.
    pub peak_bytes: u64,
    /// Current anonymous memory.
    pub anonymous_bytes: u64,
}

impl Memory {
    pub fn now() -> Self {
        let of = |name| field("/proc/self/status", name).unwrap_or(0) * 1024;
        Self { peak_bytes: of("VmHWM:"), anonymous_bytes: of("RssAnon:") }
    }

    /// Resets the peak.
    pub fn reset_peak() {
        // If the system refuses the reset, the peak covers the lifetime of the process.
        drop(fs::write("/proc/self/clear_refs", "5"));
    }
}

/// Returns the processor time of all threads of this process so far.
pub fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the bytes sent to storage so far, as counted by the kernel. It counts a whole page when
/// the page becomes dirty.
pub fn written_bytes() -> u64 {
    field("/proc/self/io", "write_bytes:").unwrap_or(0)
}

/// Returns the bytes of memory that are available to programs.
pub fn available_bytes() -> u64 {
    field("/proc/meminfo", "MemAvailable:").unwrap_or(0) * 1024
}

/// Returns the bytes that the files in `dir` occupy on the disk. Holes do not count.
pub fn disk_bytes(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        // The file was removed after the directory listed it.
        Err(_) => 0,
    });
    sizes.sum()
}

/// Drops the page cache of the files in `dir`.
pub fn drop_cached(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            drop_cached(&path);
        } else if let Ok(file) = fs::File::open(&path) {
            drop(file.sync_all());
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        }
    }
}

/// Returns the name of the file system of `dir`, if that file system is in memory.
pub fn in_memory(dir: &Path) -> Option<&'static str> {
    match rustix::fs::statfs(dir).ok()?.f_type as u64 & 0xffff_ffff {
        0x0102_1994 => Some("tmpfs"),
        0x8584_58f6 => Some("ramfs"),
        _ => None,
    }
}

/// Reads how long the calling thread has waited for a processor so far. The file stays open between
/// reads.
pub struct RunQueue(fs::File);

impl RunQueue {
    /// Opens the counters of the calling thread.
    pub fn of_this_thread() -> Option<Self> {
        fs::File::open("/proc/thread-self/schedstat").ok().map(Self)
    }

    pub fn waited_nanos(&self) -> u64 {
        use std::os::unix::fs::FileExt;
        let mut text = [0; 96];
        let len = self.0.read_at(&mut text, 0).unwrap_or(0);
        let text = std::str::from_utf8(&text[..len]).unwrap_or("");
        text.split(' ').nth(1).and_then(|field| field.parse().ok()).unwrap_or(0)
    }
}

fn field(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}
