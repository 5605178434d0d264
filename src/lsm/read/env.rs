//! The environment of the engine, shared by all its parts and never replaced: file system, clock,
//! options, shapes, caches, samples.
//!
//! Not here: the current view (`reader`), the load of a range (`load_sampling`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::clock::Clock;
use crate::codec::{HashSeed, hash};
use crate::error::{Doing, Result};
use crate::format::names::FileName;
use crate::fs::Fs;
use crate::manifest::{FileEntry, FileRange, Manifest, Version};
use crate::model::Shapes;
use crate::options::{MergePrice, Options};
use crate::sst::{Sst, SstShared};
use crate::write_accounting::Meter;

use super::gap_cache::GapCache;
use super::load_sampling::{Due, Kind, LoadSampling, Place, Readers};

/// See the module.
pub(crate) struct Env {
    /// Counted by `meter`. Table files written through it are counted as ingested.
    pub(crate) fs: Arc<dyn Fs>,
    /// The same file system for reading table files. It closes idle files when other files need
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
    /// The environment of the database in `dir`, whose table files share `sst`. `file_systems` are
    /// `fs` and `cached_fs`.
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

    /// The hash under which memtables and files index `key`.
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        hash(self.seed, key)
    }

    /// The reader of `file`, opened at its first use.
    #[inline]
    pub(in crate::lsm) fn open_sst<'a>(&self, file: &'a FileEntry) -> Result<&'a Arc<Sst>> {
        file.sst_or_open(|| Sst::open(&*self.cached_fs, &self.dir, &file.meta, &self.sst))
    }

    /// Makes the names in the database's directory durable.
    pub(crate) fn sync_dir(&self) -> Result<()> {
        self.fs.sync_dir(&self.dir).doing("sync", &self.dir)
    }

    /// Removes a file that nothing names. A failure is harmless, because opening removes orphans.
    pub(crate) fn discard(&self, name: FileName) {
        drop(self.fs.remove(&self.dir.join(name.to_string())));
    }

    /// Removes the manifests that were superseded by a roll-over.
    pub(in crate::lsm) fn discard_superseded(&self, manifest: &mut Manifest) {
        for number in std::mem::take(&mut manifest.superseded) {
            self.discard(FileName::Manifest(number));
        }
    }

    /// The monotonic time in seconds.
    pub(in crate::lsm) fn seconds(&self) -> f64 {
        self.clock.monotonic().as_secs_f64()
    }

    /// The class of the range's readers.
    pub(in crate::lsm) fn readers(&self, range: &FileRange) -> Readers {
        match self.options.max_disk {
            Some(_) => Readers::Some,
            None => self.loads.readers(range, self.merge_price(), || self.seconds()),
        }
    }

    /// The price of a merge on behalf of readers, if such merges are enabled. A limit on disk use
    /// disables them, because there is no space for them.
    pub(in crate::lsm) fn merge_price(&self) -> Option<MergePrice> {
        self.options.merge_for_readers.filter(|_| self.options.max_disk.is_none())
    }

    /// Counts rows that were read; `key` is the key of the last one.
    #[inline]
    pub(in crate::lsm) fn record_rows(&self, version: &Version, rows: u32, key: &[u8]) {
        if let Some(due) = self.loads.take(rows) {
            self.sample(&due, version, key, Kind::Read);
        }
    }

    /// Records the operation at `key` with the weight of all that `due` counted.
    #[cold]
    pub(in crate::lsm) fn sample(&self, due: &Due, version: &Version, key: &[u8], kind: Kind) {
        let price = self.merge_price();
        let place = version.range_for(key).map(|range| Place::new(range, key, price));
        self.loads.sample(due, place.as_ref(), key, kind, self.seconds());
    }
}
