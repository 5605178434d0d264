//! The companion of a database: an object of a higher floor, such as the server of the control
//! socket, that runs while the database is open. It is dropped before the database is closed, and
//! does not keep the database open.

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

/// The number of retries of reading a manifest, which the writer may replace during the read.
const TRIES: usize = 16;

/// A handle that does not keep the database open.
#[cfg(target_os = "linux")]
pub(crate) struct WeakDb {
    engine: Weak<Engine>,
    catalog: Weak<Catalog>,
}

#[cfg(target_os = "linux")]
impl WeakDb {
    /// Returns the database, or `None` if its last handle was dropped, which closes it.
    pub(crate) fn upgrade(&self) -> Option<Db> {
        let engine = self.engine.upgrade()?;
        match self.catalog.upgrade() {
            Some(catalog) => Some(Db { engine, catalog }),
            // Only handles of tables are left.
            None => Db::of_engine(engine).ok(),
        }
    }
}

impl Db {
    /// Starts the companion. If this fails, [`opened`](Self::opened) reports the error as a
    /// warning.
    pub(super) fn accompany(&self, start: StartCompanion) {
        let started = start(self);
        *self.engine.companion.lock() = Some(started);
    }

    /// Returns the error that prevented the companion from starting, if there was one.
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

    /// Returns the directory, and the file system that accesses it even after it was moved.
    pub(crate) fn place(&self) -> (&Path, &Arc<dyn Fs>) {
        let env = self.engine.env();
        (&env.dir, &env.options.fs)
    }

    /// Returns a text that identifies this copy of the database: its id and its incarnation.
    pub(crate) fn id(&self) -> Result<String> {
        id_of(&self.engine.reader().pin().version, &self.engine.env().dir)
    }
}

fn id_of(version: &Version, dir: &Path) -> Result<String> {
    let missing = || Error::corrupt(dir, 0, "manifest", "no identity");
    let identity = version.identity.as_ref().ok_or_else(missing)?;
    Ok(format!("{:032x}-{:016x}", identity.database, identity.incarnation))
}

/// Reads the text that `Db::id` returns from the manifest in `dir`, which another process may be
/// writing.
///
/// # Errors
/// Like [`Db::open_read_only`].
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
