//! The state that all parts of the engine share and never replace: file system, clock, options,
//! caches, row shapes (names and types of properties), and samples of the load.
//!
//! Not here: the current view (`reader`), the load of a range (`load_sampling`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::clock::Clock;
use crate::codec::{HashSeed, hash};
use crate::error::{Doing, Result};
use crate::format::names::FileName;
use crate::fs::Fs;
use crate::manifest::{FileEntry, FileRange, Manifest};
use crate::model::Shapes;
use crate::options::{MergePrice, Options};
use crate::sst::{Sst, SstShared};
use crate::write_accounting::Meter;

use super::gap_cache::GapCache;
use super::load_sampling::{LoadSampling, Readers};

/// The shared environment of an open database.
pub(crate) struct Env {
    /// The file system, whose use `meter` counts. Table files written directly through `fs` are
    /// counted as imports.
    pub(crate) fs: Arc<dyn Fs>,
    /// The same file system for reading table files. Closes idle files to limit the number of open
    /// handles.
    pub(in crate::lsm) cached_fs: Arc<dyn Fs>,
    pub(in crate::lsm) meter: Arc<Meter>,
    pub(crate) dir: PathBuf,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Options,
    pub(crate) seed: HashSeed,
    pub(crate) shapes: Arc<Shapes>,
    pub(in crate::lsm) sst: SstShared,
    pub(in crate::lsm) loads: LoadSampling,
    pub(in crate::lsm) gaps: GapCache,
}

impl Env {
    /// Creates the environment of the database in `dir`. `sst` is the state shared by its table
    /// files; `file_systems` are `fs` and `cached_fs`.
    pub(in crate::lsm) fn new(
        dir: &Path,
        options: Options,
        sst: SstShared,
        file_systems: [Arc<dyn Fs>; 2],
        meter: Arc<Meter>,
    ) -> Self {
        let [fs, cached_fs] = file_systems;
        Self {
            fs,
            cached_fs,
            meter,
            dir: dir.to_owned(),
            clock: Arc::clone(&options.clock),
            seed: sst.seed,
            shapes: Arc::clone(&sst.shapes),
            sst,
            gaps: GapCache::default(),
            loads: LoadSampling::new(options.background, options.clock.monotonic().as_secs_f64()),
            options,
        }
    }

    /// Returns the hash under which memtables and files index `key`.
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        hash(self.seed, key)
    }

    /// Returns the reader of `file`, which is opened at its first use.
    #[inline]
    pub(in crate::lsm) fn open_sst<'a>(&self, file: &'a FileEntry) -> Result<&'a Arc<Sst>> {
        file.sst_or_open(|| Sst::open(&*self.cached_fs, &self.dir, &file.meta, &self.sst))
    }

    /// Syncs the database's directory, which makes names in it durable.
    pub(crate) fn sync_dir(&self) -> Result<()> {
        self.fs.sync_dir(&self.dir).doing("sync", &self.dir)
    }

    /// Removes a file that is no longer in use. Ignores a failure, because the next opening removes
    /// files that the manifest does not name.
    pub(crate) fn discard(&self, name: FileName) {
        drop(self.fs.remove(&self.dir.join(name.to_string())));
    }

    /// Removes the manifests replaced by roll-overs.
    pub(in crate::lsm) fn discard_superseded(&self, manifest: &mut Manifest) {
        for number in std::mem::take(&mut manifest.superseded) {
            self.discard(FileName::Manifest(number));
        }
    }

    /// Returns the monotonic time in seconds.
    pub(in crate::lsm) fn seconds(&self) -> f64 {
        self.clock.monotonic().as_secs_f64()
    }

    /// Returns how much `range` is read, and whether its extra files (see [`Readers`]) have cost
    /// its reads as much as a merge would cost.
    pub(in crate::lsm) fn readers(&self, range: &FileRange) -> Readers {
        match self.options.max_disk {
            Some(_) => Readers::Some,
            None => self.loads.readers(range, self.merge_price(), || self.seconds()),
        }
    }

    /// Returns the price of a merge that speeds up reads, or `None` if such merges are disabled. A
    /// limit on disk use disables them, because they need additional space.
    pub(in crate::lsm) fn merge_price(&self) -> Option<MergePrice> {
        self.options.merge_for_readers.filter(|_| self.options.max_disk.is_none())
    }
}
