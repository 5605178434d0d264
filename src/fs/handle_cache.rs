//! An `Fs` wrapper with a bounded number of open read handles: idle files are closed, and reopened
//! on demand.
//!
//! Invariants
//! * the number of open handles is at most the limit, plus one for each thread that is reading;
//! * files are reopened by name, so this wrapper is only for files that are not replaced or removed
//!   while in use.
//!
//! Locks: the queue is locked before a file. No lock is held while a file is opened or read. The
//! limit does not apply to files that are written or mapped.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use super::{Advice, FileLock, FileRead, FileWrite, Fs, Map, Watch};
use crate::sync::{AtomicBool, Mutex, Ordering};

/// An `Fs` wrapper that bounds the number of open read handles.
#[derive(Clone)]
pub(crate) struct CachedHandleFs {
    inner: Arc<dyn Fs>,
    open: Arc<Open>,
}

/// The open files, in the order in which they are considered for closing.
struct Open {
    max: usize,
    queue: Mutex<VecDeque<Weak<HandleCache>>>,
}

/// A file with a handle that may be closed and reopened.
struct HandleCache {
    fs: CachedHandleFs,
    path: PathBuf,
    file: Mutex<Option<Arc<dyn FileRead>>>,
    /// Whether the file was read since it was opened or last considered for closing.
    is_used: AtomicBool,
    /// Whether the file will be read in random order; each reopened handle gets the same advice.
    is_random: AtomicBool,
}

debug_as_name!(CachedHandleFs, Reader);

impl CachedHandleFs {
    /// Wraps `inner`. At most `max` files stay open; 0 has the same effect as 1.
    pub(crate) fn new(inner: Arc<dyn Fs>, max: usize) -> Self {
        Self { inner, open: Arc::new(Open { max: max.max(1), queue: Mutex::new(VecDeque::new()) }) }
    }

    /// Adds an opened file to the queue, and closes idle files above the limit.
    fn admit(&self, few: &Arc<HandleCache>) {
        let mut queue = self.open.queue.lock();
        queue.push_back(Arc::downgrade(few));
        // The first pass over the queue clears every use flag. So a second pass finds an idle file,
        // unless all files were read again.
        let mut looks = 2 * queue.len();
        while queue.len() > self.open.max && looks > 0 {
            looks -= 1;
            let Some(oldest) = queue.pop_front() else { return };
            let Some(few) = oldest.upgrade() else { continue };
            if few.is_used.swap(false, Ordering::Relaxed) {
                queue.push_back(oldest);
            } else {
                *few.file.lock() = None;
            }
        }
    }
}

impl HandleCache {
    /// Returns the file's handle, reopened if it was closed.
    fn file(self: &Arc<Self>) -> io::Result<Arc<dyn FileRead>> {
        if let Some(file) = &*self.file.lock() {
            self.is_used.store(true, Ordering::Relaxed);
            return Ok(Arc::clone(file));
        }
        let opened = self.fs.inner.open_read(&self.path)?;
        if self.is_random.load(Ordering::Relaxed) {
            opened.advise(Advice::Random, 0..u64::MAX);
        }
        let mut file = self.file.lock();
        // Another reader may have opened the file at the same time. Only one of the handles is
        // kept.
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        *file = Some(Arc::clone(&opened));
        drop(file);
        self.fs.admit(self);
        Ok(opened)
    }
}

/// The handle that callers receive. The queue refers to the same `HandleCache`, but weakly.
struct Reader(Arc<HandleCache>);

impl FileRead for Reader {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.file()?.read_at(offset, buffer)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.file()?.len()
    }

    fn next_data(&self, offset: u64) -> u64 {
        self.0.file().map_or(offset, |file| file.next_data(offset))
    }

    fn map(&self) -> io::Result<Map> {
        self.0.file()?.map()
    }

    /// Passes the advice on. If the file cannot be reopened, the next read returns the error.
    fn advise(&self, advice: Advice, range: Range<u64>) {
        self.0.is_random.fetch_or(advice == Advice::Random, Ordering::Relaxed);
        if let Ok(file) = self.0.file() {
            file.advise(advice, range);
        }
    }
}

impl Fs for CachedHandleFs {
    pass_on! {
        inner:
        create_dir_all(dir: &Path) -> io::Result<()>;
        list(dir: &Path) -> io::Result<Vec<String>>;
        exists(path: &Path) -> io::Result<bool>;
        create(path: &Path) -> io::Result<Box<dyn FileWrite>>;
        open_write(path: &Path) -> io::Result<Box<dyn FileWrite>>;
        rename(from: &Path, to: &Path) -> io::Result<()>;
        remove(path: &Path) -> io::Result<()>;
        remove_dir(dir: &Path) -> io::Result<()>;
        link(from: &Path, to: &Path) -> io::Result<()>;
        sync_dir(dir: &Path) -> io::Result<()>;
        lock(path: &Path) -> io::Result<Box<dyn FileLock>>;
        is_locked(path: &Path) -> io::Result<bool>;
        watch(dir: &Path) -> io::Result<Box<dyn Watch>>;
        kind(path: &Path) -> String;
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn FileRead>> {
        let (fs, path) = (self.clone(), path.to_owned());
        let (is_used, is_random) = (AtomicBool::new(false), AtomicBool::new(false));
        let few = HandleCache { fs, path, file: Mutex::new(None), is_used, is_random };
        let few = Arc::new(few);
        few.file()?;
        Ok(Arc::new(Reader(few)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{Fault, FaultFs, FaultKind, MemFs, OpKind};
    use super::*;

    const FILES: usize = 8;

    /// Creates the files `0.sst` to `7.sst` and opens them with at most `max` handles. Each file is
    /// filled with its number.
    fn eight(max: usize) -> (Arc<FaultFs>, CachedHandleFs, Vec<Arc<dyn FileRead>>) {
        let inner = Arc::new(FaultFs::new(Arc::new(MemFs::new())));
        let few = CachedHandleFs::new(inner.clone(), max);
        let path = |number| PathBuf::from(format!("{number}.sst"));
        for number in 0..FILES {
            few.create(&path(number)).unwrap().write_at(0, &[number as u8; 100]).unwrap();
        }
        let files = (0..FILES).map(|number| few.open_read(&path(number)).unwrap()).collect();
        (inner, few, files)
    }

    fn read(files: &[Arc<dyn FileRead>], number: usize) -> io::Result<()> {
        let mut bytes = [255; 10];
        files[number].read_at(50, &mut bytes)?;
        assert_eq!(bytes, [number as u8; 10]);
        Ok(())
    }

    fn open(few: &CachedHandleFs) -> usize {
        let queue = few.open.queue.lock();
        let files = queue.iter().filter_map(Weak::upgrade);
        files.filter(|few| few.file.lock().is_some()).count()
    }

    #[test]
    fn no_more_than_the_limit_are_open_and_all_can_be_read() {
        for max in [1, 2, 3, 7, 8, 100] {
            let (_, few, files) = eight(max);
            for round in 0..50 {
                read(&files, round * 5 % FILES).unwrap();
                assert_eq!(open(&few), max.min(FILES), "round {round}");
                assert_eq!(files[round % FILES].len().unwrap(), 100);
            }
            drop(files);
            assert_eq!(open(&few), 0);
        }
    }

    #[test]
    fn a_file_that_is_read_repeatedly_stays_open() {
        let (inner, _, files) = eight(3);
        read(&files, 0).unwrap();
        // Read files 1 to 7 once each. After each of them, file 0 is read and must still be open.
        for other in 1..FILES {
            read(&files, other).unwrap();
            let before = inner.count(OpKind::OpenRead);
            read(&files, 0).unwrap();
            assert_eq!(inner.count(OpKind::OpenRead), before, "it was open");
        }
    }

    #[test]
    fn a_reopened_file_receives_its_advice_again() {
        let (inner, _, files) = eight(1);
        files[0].advise(Advice::Random, 0..100);
        let told = inner.advised(Advice::Random);
        read(&files, 1).unwrap();
        assert_eq!(inner.advised(Advice::Random), told, "no advice for this file");
        read(&files, 0).unwrap();
        assert_eq!(inner.advised(Advice::Random), told + 1);
        files[1].advise(Advice::WillNeed, 0..50);
        assert_eq!(inner.advised(Advice::WillNeed), 1, "it was closed, and is wanted");
        inner.arm(Fault::new(FaultKind::Eio).on(OpKind::OpenRead));
        files[2].advise(Advice::WillNeed, 0..50);
        assert_eq!(inner.advised(Advice::WillNeed), 1);
        read(&files, 2).unwrap();
    }

    #[test]
    fn a_failed_reopen_is_an_error_and_the_next_read_retries_it() {
        let (inner, few, files) = eight(1);
        inner.arm(Fault::new(FaultKind::Eio).on(OpKind::OpenRead));
        read(&files, 3).unwrap_err();
        read(&files, 3).unwrap();
        assert_eq!(open(&few), 1);
        few.remove(Path::new("4.sst")).unwrap();
        assert_eq!(read(&files, 4).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn many_threads_share_few_handles() {
        let (_, few, files) = eight(2);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let files = &files;
                scope.spawn(move || {
                    for round in 0..2_000 {
                        read(files, (round * (thread + 1) + thread) % FILES).unwrap();
                    }
                });
            }
        });
        assert!(open(&few) <= 2 + 4);
        read(&files, 0).unwrap();
        read(&files, 1).unwrap();
        assert!(open(&few) <= 2);
    }
}
