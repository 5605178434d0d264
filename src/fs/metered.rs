//! An `Fs` wrapper that counts the bytes in the files of one directory, and refuses growth beyond a
//! limit.
//!
//! Invariants
//! * the count is the sum of the lengths of the directory's files, including reserved space. It may
//!   be too high, but never too low, during an operation and after one that failed halfway;
//! * a refused operation has no effect and returns `StorageFull`, as on a full disk.
//!
//! Locks: `files` is locked before `limits`. Neither is held during calls of the inner file system.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{FileLock, FileRead, FileWrite, Fs, Watch};
use crate::sort::SortedMap;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

/// The kind of a file, which determines its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metered {
    /// A table file, counted by [`Meter::tables`].
    Table,
    Log,
    /// Any other file. Its growth is never refused: such files are small, and freeing space
    /// requires writing them.
    Other,
}

/// An `Fs` wrapper that counts and limits the bytes in the files of one directory.
#[derive(Clone)]
pub(crate) struct MeteredFs {
    inner: Arc<dyn Fs>,
    meter: Arc<Meter>,
}

/// The number of bytes in the files of a directory, and the limits on it.
pub(crate) struct Meter {
    dir: PathBuf,
    /// Returns the kind of a file from its name.
    kind: fn(&str) -> Metered,
    total: AtomicU64,
    tables: AtomicU64,
    others: AtomicU64,
    limits: Mutex<MeterLimits>,
    files: Mutex<SortedMap<String, Arc<Counted>>>,
}

/// Limits on the total bytes of the directory's files. The kind of the growing file and the reason
/// for the growth determine which limit applies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeterLimits {
    /// A table file may grow until all files together have this many bytes.
    pub(crate) tables: u64,
    /// A log may grow until all files together have this many bytes.
    pub(crate) logs: u64,
    /// Space in a log may be reserved ahead of need until all files together have this many bytes.
    pub(crate) logs_ahead: u64,
}

/// The reason why a file grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    Needed,
    /// The space is reserved before it is needed.
    Ahead,
}

/// A file of the directory.
struct Counted {
    kind: Metered,
    /// Changed only under the meter's lock.
    bytes: AtomicU64,
    /// Whether the file no longer has a name in the directory, and thus is no longer counted.
    is_gone: AtomicBool,
}

struct MeteredWrite {
    inner: Box<dyn FileWrite>,
    file: Arc<Counted>,
    meter: Arc<Meter>,
}

fn is_no_file(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::IsADirectory | io::ErrorKind::InvalidInput)
}

debug_as_name!(MeteredFs, MeteredWrite);

impl MeteredFs {
    /// Wraps `inner` and counts the files in `dir`, which need not exist. Reads the length of each
    /// existing file once. Until limits are set, nothing is refused.
    pub(crate) fn new(
        inner: Arc<dyn Fs>,
        dir: &Path,
        kind: fn(&str) -> Metered,
    ) -> io::Result<Self> {
        let meter = Meter {
            dir: dir.to_owned(),
            kind,
            total: AtomicU64::new(0),
            tables: AtomicU64::new(0),
            others: AtomicU64::new(0),
            limits: Mutex::new(MeterLimits::default()),
            files: Mutex::new(SortedMap::default()),
        };
        if inner.exists(dir)? {
            for name in inner.list(dir)? {
                match inner.open_read(&dir.join(&name)).and_then(|file| file.len()) {
                    // A directory or a FIFO is not counted.
                    Err(error) if is_no_file(&error) => {}
                    len => drop(meter.add(&name, len?)),
                }
            }
        }
        Ok(Self { inner, meter: Arc::new(meter) })
    }

    pub(crate) fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Reads the length of a file that was renamed or linked into the directory, and counts it.
    fn look(&self, path: &Path) -> io::Result<()> {
        if let Some(name) = self.meter.name(path) {
            self.meter.add(&name, self.inner.open_read(path).and_then(|file| file.len())?);
        }
        Ok(())
    }

    fn metered(
        &self,
        path: &Path,
        opened: io::Result<Box<dyn FileWrite>>,
    ) -> io::Result<Box<dyn FileWrite>> {
        let inner = opened?;
        let Some(name) = self.meter.name(path) else { return Ok(inner) };
        let file = self.meter.add(&name, inner.len()?);
        Ok(Box::new(MeteredWrite { inner, file, meter: Arc::clone(&self.meter) }))
    }
}

impl Default for MeterLimits {
    fn default() -> Self {
        Self { tables: u64::MAX, logs: u64::MAX, logs_ahead: u64::MAX }
    }
}

impl Meter {
    /// Returns the bytes of all files.
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Acquire)
    }

    /// Returns the bytes of the table files, including unfinished and obsolete ones.
    pub(crate) fn tables(&self) -> u64 {
        self.tables.load(Ordering::Acquire)
    }

    /// Returns the bytes of the files that are neither tables nor logs.
    pub(crate) fn others(&self) -> u64 {
        self.others.load(Ordering::Acquire)
    }

    /// Sets the limits. A file cannot grow if the growth would raise the total above the limit for
    /// the file.
    pub(crate) fn limit(&self, limits: MeterLimits) {
        *self.limits.lock() = limits;
    }

    /// Returns the name of `path` in the directory; `None` if `path` is not in the directory.
    fn name(&self, path: &Path) -> Option<String> {
        let name = path.file_name().filter(|_| path.parent() == Some(&self.dir))?;
        Some(name.to_string_lossy().into_owned())
    }

    /// Sets the size of the file `name`, and adds the file if it is new.
    fn add(&self, name: &str, bytes: u64) -> Arc<Counted> {
        let mut files = self.files.lock();
        let new = || Counted {
            kind: (self.kind)(name),
            bytes: AtomicU64::new(0),
            is_gone: AtomicBool::new(false),
        };
        let file = Arc::clone(files.get_or_insert_with(name.to_owned(), || Arc::new(new())));
        debug_assert!(!file.is_gone.load(Ordering::Acquire), "a file with a name counts");
        self.set(&file, bytes);
        file
    }

    /// Sets the size of a file, and updates the totals. Requires the lock of `files`.
    fn set(&self, file: &Counted, bytes: u64) {
        if file.is_gone.load(Ordering::Acquire) {
            return;
        }
        let before = file.bytes.swap(bytes, Ordering::AcqRel);
        let count = |sum: &AtomicU64| {
            sum.fetch_add(bytes, Ordering::AcqRel);
            let all = sum.fetch_sub(before, Ordering::AcqRel);
            debug_assert!(all >= before, "the sum has what a file took");
        };
        count(&self.total);
        match file.kind {
            Metered::Table => count(&self.tables),
            Metered::Other => count(&self.others),
            Metered::Log => {}
        }
        let (total, parts) = (self.total(), self.tables() + self.others());
        debug_assert!(total >= parts, "tables and others are among all files");
    }

    /// Counts the growth of a file to `to` bytes, or refuses it. Does nothing if the file is
    /// already at least that long.
    fn grow(&self, file: &Counted, to: u64, why: Growth) -> io::Result<()> {
        if file.bytes.load(Ordering::Acquire) >= to {
            return Ok(());
        }
        let _files = self.files.lock();
        let before = file.bytes.load(Ordering::Acquire);
        if before >= to || file.is_gone.load(Ordering::Acquire) {
            return Ok(());
        }
        let limits = *self.limits.lock();
        let limit = match file.kind {
            Metered::Table => limits.tables,
            Metered::Log if why == Growth::Ahead => limits.logs_ahead,
            Metered::Log => limits.logs,
            Metered::Other => u64::MAX,
        };
        if self.total().saturating_add(to - before) > limit {
            let problem = "the limit on disk use (Options::max_disk) is reached";
            return Err(io::Error::new(io::ErrorKind::StorageFull, problem));
        }
        self.set(file, to);
        Ok(())
    }

    fn forget(&self, path: &Path) {
        let Some(name) = self.name(path) else { return };
        let mut files = self.files.lock();
        if let Some(file) = files.remove(&name) {
            self.drop_count(&file);
        }
    }

    /// Stops counting a file. Requires the lock of `files`.
    fn drop_count(&self, file: &Counted) {
        debug_assert!(!file.is_gone.load(Ordering::Acquire), "a file leaves once");
        self.set(file, 0);
        file.is_gone.store(true, Ordering::Release);
    }

    /// Records a rename. Returns false if the file must still be counted: `to` is in the directory,
    /// and `from` was not counted.
    fn rename(&self, from: &Path, to: &Path) -> bool {
        let (from, to) = (self.name(from), self.name(to));
        if from == to {
            return true;
        }
        let mut files = self.files.lock();
        let file = from.and_then(|from| files.remove(&from));
        let replaced = match (&file, &to) {
            (Some(file), Some(to)) => files.insert(to.clone(), Arc::clone(file)),
            (None, Some(to)) => files.remove(to),
            (file, None) => file.clone(),
        };
        if let Some(replaced) = replaced {
            self.drop_count(&replaced);
        }
        file.is_some() || to.is_none()
    }
}

impl MeteredWrite {
    /// Counts the growth of the file to `len` bytes. Then runs `work`, which may grow the file to
    /// this length.
    fn growing(
        &self,
        len: u64,
        why: Growth,
        work: impl FnOnce(&dyn FileWrite) -> io::Result<()>,
    ) -> io::Result<()> {
        self.meter.grow(&self.file, len, why)?;
        work(&*self.inner).inspect_err(|_| self.look())
    }

    /// Reads the file's length and counts it. Called after a failed operation, which may have
    /// changed the length.
    fn look(&self) {
        if let Ok(bytes) = self.inner.len() {
            let _files = self.meter.files.lock();
            self.meter.set(&self.file, bytes);
        }
    }
}

impl FileWrite for MeteredWrite {
    pass_on! {
        inner:
        sync() -> io::Result<()>;
        len() -> io::Result<u64>;
        start_write_back(offset: u64, len: u64);
        forget_dirty();
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        // An empty write does not grow a file, whatever its offset.
        let end = if bytes.is_empty() { 0 } else { offset.saturating_add(bytes.len() as u64) };
        self.growing(end, Growth::Needed, |file| file.write_at(offset, bytes))
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.growing(len, Growth::Needed, |file| file.allocate(len))
    }

    fn allocate_ahead(&self, len: u64) -> io::Result<()> {
        self.growing(len, Growth::Ahead, |file| file.allocate_ahead(len))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.growing(len, Growth::Needed, |file| file.set_len(len))?;
        self.look();
        Ok(())
    }
}

impl Fs for MeteredFs {
    pass_on! {
        inner:
        create_dir_all(dir: &Path) -> io::Result<()>;
        list(dir: &Path) -> io::Result<Vec<String>>;
        exists(path: &Path) -> io::Result<bool>;
        open_read(path: &Path) -> io::Result<Arc<dyn FileRead>>;
        remove_dir(dir: &Path) -> io::Result<()>;
        sync_dir(dir: &Path) -> io::Result<()>;
        lock(path: &Path) -> io::Result<Box<dyn FileLock>>;
        is_locked(path: &Path) -> io::Result<bool>;
        watch(dir: &Path) -> io::Result<Box<dyn Watch>>;
        kind(path: &Path) -> String;
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn FileWrite>> {
        self.metered(path, self.inner.create(path))
    }

    #[cfg(all(target_os = "linux", feature = "cli"))]
    fn listen(&self, path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
        self.inner.listen(path)
    }

    fn open_write(&self, path: &Path) -> io::Result<Box<dyn FileWrite>> {
        self.metered(path, self.inner.open_write(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)?;
        if self.meter.rename(from, to) { Ok(()) } else { self.look(to) }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)?;
        self.meter.forget(path);
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.link(from, to)?;
        self.look(to)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{Fault, FaultFs, FaultKind, MemFs, OpKind};
    use super::*;
    use crate::rng::Rng;

    fn kind(name: &str) -> Metered {
        match name.rsplit_once('.') {
            Some((_, "sst" | "tmp")) => Metered::Table,
            Some((_, "wal")) => Metered::Log,
            _ => Metered::Other,
        }
    }

    fn sum(memory: &MemFs, end: &str) -> u64 {
        let paths = memory.paths();
        let mine = paths.iter().filter(|path| path.starts_with("db/") && path.ends_with(end));
        mine.map(|path| memory.len(path).unwrap()).sum()
    }

    #[test]
    fn the_count_equals_the_sum_of_all_file_lengths() {
        let memory = MemFs::new();
        memory.create_dir_all(Path::new("db")).unwrap();
        memory.create_dir_all(Path::new("elsewhere")).unwrap();
        memory.write("db/before.sst", &[7; 1000]).unwrap();
        let faults = FaultFs::new(Arc::new(memory.clone()));
        let fs = MeteredFs::new(Arc::new(faults.clone()), Path::new("db"), kind).unwrap();
        let mut rng = Rng::from_seed(1);
        let names = ["a.sst", "b.tmp", "c.wal", "MANIFEST", "d.sst"];
        for round in 0..5_000 {
            let dir = Path::new(if rng.chance(1, 8) { "elsewhere" } else { "db" });
            let path = dir.join(*rng.pick(&names));
            if rng.chance(1, 10) {
                faults.arm(Fault::new(FaultKind::ShortWrite).on(OpKind::Write));
            }
            let open = if rng.chance(1, 2) { fs.create(&path) } else { fs.open_write(&path) };
            if let Ok(file) = open {
                for _ in 0..rng.below(4) {
                    let len = rng.below(5_000);
                    drop(match rng.below(4) {
                        0 => file.allocate(len),
                        1 => file.set_len(len),
                        _ => file.write_at(len, &vec![1; rng.index(3_000)]),
                    });
                }
            }
            let dir = Path::new(if rng.chance(1, 8) { "elsewhere" } else { "db" });
            let other = dir.join(*rng.pick(&names));
            drop(match rng.below(5) {
                0 => fs.rename(&path, &other),
                1 => fs.remove(&path),
                _ => Ok(()),
            });
            faults.disarm();
            assert_eq!(fs.meter().total(), sum(&memory, ""), "round {round}");
        }
    }

    #[test]
    fn a_write_over_the_limit_is_refused_before_it_starts() {
        let memory = MemFs::new();
        memory.create_dir_all(Path::new("db")).unwrap();
        let fs = MeteredFs::new(Arc::new(memory.clone()), Path::new("db"), kind).unwrap();
        fs.meter().limit(MeterLimits { tables: 1_000, logs: 2_000, logs_ahead: 1_500 });
        let table = fs.create(Path::new("db/a.sst")).unwrap();
        table.write_at(0, &[1; 900]).unwrap();
        let refused = |result: io::Result<()>| result.unwrap_err().kind();
        assert_eq!(refused(table.write_at(900, &[1; 101])), io::ErrorKind::StorageFull);
        assert_eq!(memory.len("db/a.sst").unwrap(), 900);
        table.write_at(850, &[1; 150]).unwrap();
        let log = fs.create(Path::new("db/a.wal")).unwrap();
        log.allocate(1_000).unwrap();
        assert_eq!(refused(log.allocate(1_001)), io::ErrorKind::StorageFull);
        log.write_at(500, &[2; 500]).unwrap();
        // The limit `logs_ahead` refuses even a small reservation by `allocate_ahead`.
        fs.meter().limit(MeterLimits { tables: 1_000, logs: 3_000_000, logs_ahead: 2_000 });
        assert_eq!(refused(log.allocate_ahead(1_001)), io::ErrorKind::StorageFull);
        assert_eq!((log.len().unwrap(), fs.meter().total()), (1_000, 2_000));
        let other = fs.create(Path::new("db/z.wal")).unwrap();
        other.allocate(1_000_000).unwrap();
        fs.remove(Path::new("db/z.wal")).unwrap();
        // The manifest and other small files may always grow, because freeing space requires
        // writing them.
        fs.create(Path::new("db/MANIFEST")).unwrap().allocate(5_000).unwrap();
        assert_eq!((fs.meter().total(), fs.meter().tables()), (7_000, 1_000));
        assert_eq!(fs.meter().others(), 5_000);
        fs.remove(Path::new("db/MANIFEST")).unwrap();
        fs.remove(Path::new("db/a.sst")).unwrap();
        // A second name of a file is counted like a separate file.
        fs.link(Path::new("db/a.wal"), Path::new("db/b.wal")).unwrap();
        fs.link(Path::new("db/a.wal"), Path::new("b.wal")).unwrap();
        assert_eq!(fs.meter().total(), 2_000);
        fs.remove(Path::new("db/b.wal")).unwrap();
        // Files outside the directory are not limited, and neither is a file that no longer has a
        // name in it.
        fs.create(Path::new("b.sst")).unwrap().allocate(9_000).unwrap();
        table.write_at(0, &[1; 9_000]).unwrap();
        assert_eq!((fs.meter().total(), fs.meter().tables()), (1_000, 0));
        fs.create(Path::new("db/c.sst")).unwrap().write_at(0, &[3; 1]).unwrap_err();
    }
}
