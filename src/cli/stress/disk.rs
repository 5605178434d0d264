//! Mounts a small real file system: a tmpfs of a given size. This requires superuser rights.
//!
//! Invariants
//! * the file system is unmounted when dropped, unless it is kept for inspection.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted tmpfs.
pub(super) struct Disk {
    path: PathBuf,
    /// Whether the file system stays mounted when this value is dropped.
    pub(super) keep: bool,
}

impl Disk {
    /// Mounts a file system of `bytes` at `path`, an empty directory.
    ///
    /// # Errors
    /// Returns the reason why the file system cannot be mounted.
    pub(super) fn mount(path: &Path, bytes: u64) -> Result<Disk, String> {
        let options = format!("size={bytes},mode=0700");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "rowstone"]).arg(path))?;
        Ok(Disk { path: path.to_owned(), keep: false })
    }

    /// Changes the size of the file system; fails if more than `bytes` are in use.
    pub(super) fn resize(&self, bytes: u64) -> Result<(), String> {
        let options = format!("remount,size={bytes}");
        run(Command::new("mount").args(["-o", &options]).arg(&self.path))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if !self.keep {
            // A file system that stays mounted is harmless, and the error cannot be reported here.
            drop(run(Command::new("umount").arg(&self.path)));
        }
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(text.lines().next().unwrap_or("mount says nothing").to_owned())
}
