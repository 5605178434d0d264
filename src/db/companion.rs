//! The companion of a database: a part above it, such as the server of the control socket, that
//! ends before the database is closed and does not keep it open.

use std::path::Path;
use std::sync::Arc;
#[cfg(target_os = "linux")]
use std::sync::Weak;

use super::Db;
use crate::error::{Error, Result};
use crate::fs::{DiskFs, Fs};
#[cfg(target_os = "linux")]
use crate::lsm::Engine;
use crate::manifest::{Access, Manifest, Version};
use crate::options::StartCompanion;
use crate::rng::Rng;
#[cfg(target_os = "linux")]
use crate::table::Catalog;

/// The number of attempts to read a manifest that the writer replaces meanwhile.
const TRIES: usize = 16;

/// A handle that does not keep the database open.
#[cfg(target_os = "linux")]
pub(crate) struct WeakDb {
    engine: Weak<Engine>,
    catalog: Weak<Catalog>,
}

#[cfg(target_os = "linux")]
impl WeakDb {
    /// Returns the database unless it is closed because of its last handle.
    pub(crate) fn upgrade(&self) -> Option<Db> {
        Some(Db { engine: self.engine.upgrade()?, catalog: self.catalog.upgrade()? })
    }
}

impl Db {
    /// Starts the companion. A failure is a warning of the opening.
    pub(super) fn accompany(&self, start: StartCompanion) {
        let started = start(self);
        *self.engine.companion.lock() = Some(started);
    }

    /// Returns why there is no companion, if starting it failed.
    pub(crate) fn without_companion(&self) -> Option<String> {
        match &*self.engine.companion.lock() {
            Some(Err(error)) => Some(error.chain()),
            _ => None,
        }
    }
}

#[cfg(target_os = "linux")]
impl Db {
    pub(crate) fn downgrade(&self) -> WeakDb {
        WeakDb { engine: Arc::downgrade(&self.engine), catalog: Arc::downgrade(&self.catalog) }
    }

    /// Returns the directory, and the file system that reaches it even if it was moved.
    pub(crate) fn place(&self) -> (&Path, &Arc<dyn Fs>) {
        let env = self.engine.env();
        (&env.dir, &env.options.fs)
    }

    /// Returns a text that identifies the database among all databases, and among its copies.
    pub(crate) fn id(&self) -> Result<String> {
        id_of(&self.engine.reader().pin().version, &self.engine.env().dir)
    }
}

fn id_of(version: &Version, dir: &Path) -> Result<String> {
    let missing = || Error::corrupt(dir, 0, "manifest", "no identity");
    let identity = version.identity.as_ref().ok_or_else(missing)?;
    Ok(format!("{:032x}-{:016x}", identity.database, identity.incarnation))
}

/// Reads the id of the database in `dir`, which another process may write; see `Db::id`.
///
/// # Errors
/// As [`Db::open_read_only`].
pub(crate) fn id_in(dir: &Path) -> Result<String> {
    let fs: Arc<dyn Fs> = Arc::new(DiskFs::new());
    let mut tries = 0;
    loop {
        let opened = Manifest::open(Arc::clone(&fs), dir, Access::ReadOnly, Rng::from_seed(0));
        match opened {
            Ok(opened) => return id_of(opened.manifest.version(), dir),
            Err(error) if tries == TRIES => return Err(error),
            Err(_) => tries += 1,
        }
    }
}
