//! Creates a control group, version 1 or 2, with a memory limit. Benchmarks of data larger than
//! memory run in it.
//!
//! The limit covers the memory that processes in the group allocate and the page cache that they
//! fill.
//! Not here: the choice of the limit (`plan.rs`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A control group, removed on drop. No process may be in the group at that time.
pub struct Group {
    dir: PathBuf,
}

impl Group {
    /// Creates a group with a limit of `bytes`. An error means that this machine, or this user,
    /// cannot create one.
    pub fn new(name: &str, bytes: u64) -> io::Result<Self> {
        let root = Path::new("/sys/fs/cgroup");
        if root.join("memory/memory.limit_in_bytes").exists() {
            let group = Self { dir: root.join("memory").join(name) };
            fs::create_dir(&group.dir)?;
            fs::write(group.dir.join("memory.limit_in_bytes"), bytes.to_string())?;
            Ok(group)
        } else if root.join("cgroup.controllers").exists() {
            // An error is ignored: the controller may already be enabled for subgroups.
            drop(fs::write(root.join("cgroup.subtree_control"), "+memory"));
            let group = Self { dir: root.join(name) };
            fs::create_dir(&group.dir)?;
            fs::write(group.dir.join("memory.max"), bytes.to_string())?;
            drop(fs::write(group.dir.join("memory.swap.max"), "0"));
            Ok(group)
        } else {
            Err(io::Error::new(io::ErrorKind::Unsupported, "no control groups for memory"))
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // An error is ignored: a leftover empty group costs nothing.
        drop(fs::remove_dir(&self.dir));
    }
}

/// Moves this process into the group at `dir`.
pub fn join(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("cgroup.procs"), std::process::id().to_string())
}
