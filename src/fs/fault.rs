//! An `Fs` wrapper that injects failures into chosen operations.
//!
//! Invariants
//! * an operation is counted once, even if it is interrupted and repeated;
//! * a failed operation has no effect, except that a short write writes its first half;
//! * faults are matched in the order in which they were armed; the first match applies.
//!
//! `mem` models the state after a power cut.

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::complete::{self, Directories, read_exact_at, retry, write_all_at};
use super::{Advice, FileLock, FileRead, FileWrite, Fs, Map};
use crate::named::named;
use crate::sync::Mutex;

named! {
    /// The kinds of operations. Each kind is counted separately and can be made to fail.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[non_exhaustive]
    pub enum OpKind {
        /// Create a directory. [`Fs::create_dir_all`] counts one `CreateDir` for each level, and
        /// one `SyncDir` for each sync of a parent.
        CreateDir "create directory",
        /// List a directory.
        List "list",
        /// Ask whether a path exists.
        Exists "look for",
        /// Create a file.
        Create "create",
        /// Open a file for writing.
        OpenWrite "open for writing",
        /// Open a file for reading.
        OpenRead "open",
        /// Rename a file.
        Rename "rename",
        /// Remove a file.
        Remove "remove",
        /// Remove a directory.
        RemoveDir "remove directory",
        /// Give a file a second name.
        Link "link",
        /// Sync a directory.
        SyncDir "sync directory",
        /// Lock a file.
        Lock "lock",
        /// Write to a file.
        Write "write",
        /// Sync a file.
        Sync "sync",
        /// Reserve space.
        Allocate "allocate",
        /// Truncate or grow a file.
        SetLen "set length of",
        /// Ask for a file's length.
        Len "ask length of",
        /// Read from a file.
        Read "read",
        /// Map a file.
        Map "map",
    }

    /// Returns the words that error messages use for the operation.
    fn name;
    pub const ALL;
}

named! {
    /// How an operation fails.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum FaultKind {
        /// An input/output error. The operation has no effect. After a failed sync, the bytes that
        /// were not durable can still be read, but no later sync makes them durable.
        #[default]
        Eio "eio",
        /// No space left. The operation has no effect, and the error's kind is `StorageFull`.
        Enospc "enospc",
        /// The call is interrupted once. The file system repeats it, so the caller sees no error.
        Eintr "eintr",
        /// A write writes its first half and then fails like `Eio`; other operations fail like
        /// `Eio`.
        ShortWrite "short-write",
        /// The first call of a transfer moves only half of the bytes. The file system completes it,
        /// so the caller sees no error.
        ShortTransfer "short-transfer",
    }

    /// Returns the word for this kind in the text format of simulation plans.
    #[cfg(feature = "sim")]
    pub(crate) fn word;
    pub const ALL;
}

/// A planned failure: by default the next operation of any kind fails, once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    pub(crate) kind: FaultKind,
    pub(crate) op: Option<OpKind>,
    pub(crate) path: Option<String>,
    /// Limits the fault to reads and maps that cover at least one byte of this range.
    within: Option<Range<u64>>,
    /// The number of matching operations that succeed before the failure.
    pub(crate) after: u64,
    pub(crate) sticky: bool,
    spent: bool,
}

/// An `Fs` wrapper that forwards operations, counts them, and fails the operations that match an
/// armed [`Fault`].
#[derive(Clone, Debug)]
pub struct FaultFs {
    inner: Arc<dyn Fs>,
    plan: Arc<Mutex<Plan>>,
}

#[derive(Debug, Default)]
struct Plan {
    faults: Vec<Fault>,
    guard: Option<Guard>,
    counts: [u64; OpKind::ALL.len()],
    delivered: [u64; FaultKind::ALL.len()],
    /// Number of hints with [`Advice::Random`]; `will_need` counts the other hints. Hints are not
    /// operations, because they cannot fail.
    random: u64,
    will_need: u64,
}

/// A callback that decides whether a sync is carried out.
type Decision = dyn Fn(OpKind, &Path) -> bool + Send + Sync;

/// Wraps the callback, so that it can be cloned and printed.
#[derive(Clone)]
struct Guard(Arc<Decision>);

/// An open file whose operations are subject to the faults of `fs`.
#[derive(Debug)]
struct Faulty<F> {
    inner: F,
    fs: FaultFs,
    path: std::path::PathBuf,
}

impl fmt::Display for OpKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

impl Fault {
    /// Creates a fault that makes the next operation of any kind fail, once.
    pub fn new(kind: FaultKind) -> Self {
        Self { kind, ..Self::default() }
    }

    /// Restricts the fault to operations of this kind; [`nth`](Self::nth) then counts only such
    /// operations.
    #[must_use]
    pub fn on(mut self, op: OpKind) -> Self {
        self.op = Some(op);
        self
    }

    /// Restricts the fault to operations on paths that end in `suffix`; a rename or link is matched
    /// by its new path.
    #[must_use]
    pub fn on_path(mut self, suffix: &str) -> Self {
        self.path = Some(suffix.to_owned());
        self
    }

    /// Restricts the fault to reads that include at least one byte of `bytes`, and to maps, which
    /// cover every byte. With [`sticky`](Self::sticky) this models a bad area of a medium. No other
    /// operation matches, even on the file's path.
    ///
    /// ```
    /// use std::path::Path;
    /// use std::sync::Arc;
    /// use rowstone::fs::{Fault, FaultFs, FaultKind, Fs, MemFs};
    ///
    /// let memory = MemFs::new();
    /// memory.write("readings", &[7; 8192])?;
    /// let fs = FaultFs::new(Arc::new(memory));
    /// fs.arm(Fault::new(FaultKind::Eio).on_path("readings").within(4096..8192).sticky());
    /// let file = fs.open_read(Path::new("readings"))?;
    /// let mut bytes = [0; 100];
    /// assert!(file.read_at(3996, &mut bytes).is_ok());
    /// assert!(file.read_at(3997, &mut bytes).is_err());
    /// assert!(file.map().is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn within(mut self, bytes: Range<u64>) -> Self {
        self.within = Some(bytes);
        self
    }

    /// Lets `n` matching operations succeed before the failure. Counting begins when the fault is
    /// armed, so `nth(0)` fails the next matching operation.
    #[must_use]
    pub fn nth(mut self, n: u64) -> Self {
        self.after = n;
        self
    }

    /// Makes all later matching operations fail, too, not only the first.
    #[must_use]
    pub fn sticky(mut self) -> Self {
        self.sticky = true;
        self
    }

    /// Whether the fault applies to an operation. `touched` is the range of bytes that a read or
    /// map covers, and is empty for other operations.
    fn matches(&self, op: OpKind, path: &Path, touched: &Range<u64>) -> bool {
        let on_path = |suffix: &String| path.to_string_lossy().ends_with(suffix.as_str());
        let meets =
            |bytes: &Range<u64>| bytes.start.max(touched.start) < bytes.end.min(touched.end);
        self.op.is_none_or(|wanted| wanted == op)
            && self.within.as_ref().is_none_or(meets)
            && self.path.as_ref().is_none_or(on_path)
    }
}

impl FaultKind {
    /// Whether the fault is hidden from the caller: the file system repeats or completes the call.
    pub fn is_hidden(self) -> bool {
        matches!(self, FaultKind::Eintr | FaultKind::ShortTransfer)
    }

    /// Returns the error that the caller sees, if any.
    fn error(self, op: OpKind, path: &Path) -> Option<io::Error> {
        let (kind, problem) = match self {
            FaultKind::Eio | FaultKind::ShortWrite => (io::ErrorKind::Other, "input/output error"),
            FaultKind::Enospc => (io::ErrorKind::StorageFull, "no space left"),
            FaultKind::Eintr | FaultKind::ShortTransfer => return None,
        };
        Some(io::Error::new(kind, format!("{op} {}: injected {problem}", path.display())))
    }
}

impl FaultFs {
    /// Wraps `inner`. No fault is armed yet.
    pub fn new(inner: Arc<dyn Fs>) -> Self {
        Self { inner, plan: Arc::default() }
    }

    /// Adds a fault. Each fault counts the operations that match it separately.
    pub fn arm(&self, fault: Fault) {
        self.plan.lock().faults.push(fault);
    }

    /// Calls `guard` before each sync of a file or a directory, unless a fault applies to the sync.
    /// `guard` may block. If it returns false, the sync is skipped but reports success, like on a
    /// disk that ignores flushes.
    pub fn guard_syncs(&self, guard: impl Fn(OpKind, &Path) -> bool + Send + Sync + 'static) {
        self.plan.lock().guard = Some(Guard(Arc::new(guard)));
    }

    /// Removes all faults and keeps the counts.
    pub fn disarm(&self) {
        self.plan.lock().faults.clear();
    }

    /// Whether any armed fault can still be injected.
    pub fn is_armed(&self) -> bool {
        self.plan.lock().faults.iter().any(|fault| !fault.spent)
    }

    /// Returns the number of operations of this kind, including failed ones.
    pub fn count(&self, op: OpKind) -> u64 {
        self.plan.lock().counts[op as usize]
    }

    /// Returns how often open files received this advice; advice to [maps](Map) is not counted.
    pub fn advised(&self, advice: Advice) -> u64 {
        let plan = self.plan.lock();
        match advice {
            Advice::Random => plan.random,
            Advice::WillNeed | Advice::Populate => plan.will_need,
        }
    }

    /// Returns the number of operations of all kinds.
    pub fn ops(&self) -> u64 {
        self.plan.lock().counts.iter().sum()
    }

    /// Returns the number of injected faults. A test can fail operation 0, 1, 2 and so on in
    /// successive runs, and end when a run returns 0 here.
    pub fn delivered(&self) -> u64 {
        self.plan.lock().delivered.iter().sum()
    }

    /// Returns the number of injected faults of this kind.
    pub fn delivered_of(&self, kind: FaultKind) -> u64 {
        self.plan.lock().delivered[kind as usize]
    }

    /// Wraps another file system, such as the image after a simulated crash. Both wrappers share
    /// armed faults and counts.
    #[must_use]
    pub fn over(&self, inner: Arc<dyn Fs>) -> Self {
        Self { inner, plan: Arc::clone(&self.plan) }
    }

    /// Counts an operation that covers the bytes `touched`, and returns its fault if one matches.
    fn fault_for(&self, op: OpKind, path: &Path, touched: &Range<u64>) -> Option<FaultKind> {
        let mut plan = self.plan.lock();
        plan.counts[op as usize] += 1;
        let mut met = None;
        for fault in plan.faults.iter_mut().filter(|fault| fault.matches(op, path, touched)) {
            if fault.after > 0 {
                fault.after -= 1;
            } else if !fault.spent && met.is_none() {
                fault.spent = !fault.sticky;
                met = Some(fault.kind);
            }
        }
        if let Some(kind) = met {
            plan.delivered[kind as usize] += 1;
        }
        met
    }

    /// Runs an operation that either succeeds or has no effect. Injects a fault if one matches.
    fn run<T>(
        &self,
        op: OpKind,
        path: &Path,
        operation: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        Self::carry_out(self.fault_for(op, path, &(0..0)), op, path, operation)
    }

    /// Runs an operation. If `fault` requires it, the operation fails, or its first call is
    /// interrupted.
    fn carry_out<T>(
        fault: Option<FaultKind>,
        op: OpKind,
        path: &Path,
        mut operation: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        if let Some(error) = fault.and_then(|fault| fault.error(op, path)) {
            return Err(error);
        }
        let mut interrupt = fault == Some(FaultKind::Eintr);
        retry(|| match std::mem::take(&mut interrupt) {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => operation(),
        })
    }

    /// Runs a sync to which no fault applies, unless the guard skips it.
    fn sync_guarded(
        &self,
        op: OpKind,
        path: &Path,
        sync: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        // The guard may wait for other threads, so it runs while the plan is unlocked.
        let guard = self.plan.lock().guard.clone();
        if guard.is_none_or(|Guard(guard)| guard(op, path)) { sync() } else { Ok(()) }
    }

    /// Returns the number of bytes that the first call of a transfer of `len` bytes moves, or the
    /// error of the call.
    fn first_call(fault: &mut Option<FaultKind>, len: usize) -> io::Result<usize> {
        match fault.take() {
            Some(FaultKind::Eintr) => Err(io::ErrorKind::Interrupted.into()),
            Some(FaultKind::ShortTransfer) => Ok(len.div_ceil(2)),
            _ => Ok(len),
        }
    }

    fn faulty<F>(&self, inner: F, path: &Path) -> Faulty<F> {
        Faulty { inner, fs: self.clone(), path: path.to_owned() }
    }
}

impl Fs for FaultFs {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        complete::create_dir_all(self, dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.run(OpKind::List, dir, || self.inner.list(dir))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.run(OpKind::Exists, path, || self.inner.exists(path))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn FileWrite>> {
        let inner = self.run(OpKind::Create, path, || self.inner.create(path))?;
        Ok(Box::new(self.faulty(inner, path)))
    }

    fn open_write(&self, path: &Path) -> io::Result<Box<dyn FileWrite>> {
        let inner = self.run(OpKind::OpenWrite, path, || self.inner.open_write(path))?;
        Ok(Box::new(self.faulty(inner, path)))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn FileRead>> {
        let inner = self.run(OpKind::OpenRead, path, || self.inner.open_read(path))?;
        Ok(Arc::new(self.faulty(inner, path)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.run(OpKind::Rename, to, || self.inner.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.run(OpKind::Remove, path, || self.inner.remove(path))
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.run(OpKind::RemoveDir, dir, || self.inner.remove_dir(dir))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.run(OpKind::Link, to, || self.inner.link(from, to))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let op = OpKind::SyncDir;
        self.run(op, dir, || self.sync_guarded(op, dir, || self.inner.sync_dir(dir)))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.run(OpKind::Lock, path, || self.inner.lock(path))
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        self.inner.is_locked(path)
    }

    fn kind(&self, path: &Path) -> String {
        self.inner.kind(path)
    }

    fn pin(&self, dir: &Path) -> io::Result<Option<Arc<dyn Fs>>> {
        let Some(inner) = self.inner.pin(dir)? else { return Ok(None) };
        Ok(Some(Arc::new(Self { inner, plan: Arc::clone(&self.plan) })))
    }
}

impl Directories for FaultFs {
    fn is_dir(&self, dir: &Path) -> io::Result<bool> {
        let found = self.run(OpKind::Exists, dir, || self.inner.exists(dir))?;
        if found {
            self.inner.list(dir)?; // fails if `dir` is a file
        }
        Ok(found)
    }

    /// Creates a directory. The inner file system also syncs the parent, but no fault is injected
    /// into that sync. Faults of `SyncDir` apply to the separate call of `sync`.
    fn make(&self, dir: &Path) -> io::Result<()> {
        self.run(OpKind::CreateDir, dir, || self.inner.create_dir_all(dir))
    }

    fn sync(&self, dir: &Path) -> io::Result<()> {
        self.sync_dir(dir)
    }
}

impl FileWrite for Faulty<Box<dyn FileWrite>> {
    pass_on! { inner:
        start_write_back(offset: u64, len: u64);
        forget_dirty();
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut fault = self.fs.fault_for(OpKind::Write, &self.path, &(0..0));
        if let Some(kind) = fault {
            if kind == FaultKind::ShortWrite {
                self.inner.write_at(offset, &bytes[..bytes.len() / 2])?;
            }
            if let Some(error) = kind.error(OpKind::Write, &self.path) {
                return Err(error);
            }
        }
        write_all_at(offset, bytes, |offset, bytes| {
            let count = FaultFs::first_call(&mut fault, bytes.len())?;
            self.inner.write_at(offset, &bytes[..count])?;
            Ok(count)
        })
    }

    fn sync(&self) -> io::Result<()> {
        let mut reached = false;
        let result = self.fs.run(OpKind::Sync, &self.path, || {
            reached = true;
            self.fs.sync_guarded(OpKind::Sync, &self.path, || self.inner.sync())
        });
        if result.is_err() && !reached {
            self.inner.forget_dirty();
        }
        result
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.fs.run(OpKind::Allocate, &self.path, || self.inner.allocate(len))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.fs.run(OpKind::SetLen, &self.path, || self.inner.set_len(len))
    }

    fn len(&self) -> io::Result<u64> {
        self.fs.run(OpKind::Len, &self.path, || self.inner.len())
    }
}

impl FileRead for Faulty<Arc<dyn FileRead>> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let touched = offset..offset.saturating_add(buffer.len() as u64);
        let mut fault = self.fs.fault_for(OpKind::Read, &self.path, &touched);
        if let Some(error) = fault.and_then(|kind| kind.error(OpKind::Read, &self.path)) {
            return Err(error);
        }
        read_exact_at(offset, buffer, |offset, buffer| {
            let count = FaultFs::first_call(&mut fault, buffer.len())?;
            self.inner.read_at(offset, &mut buffer[..count])?;
            Ok(count)
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.fs.run(OpKind::Len, &self.path, || self.inner.len())
    }

    fn map(&self) -> io::Result<Map> {
        let fault = self.fs.fault_for(OpKind::Map, &self.path, &(0..u64::MAX));
        FaultFs::carry_out(fault, OpKind::Map, &self.path, || self.inner.map())
    }

    fn advise(&self, advice: Advice, range: Range<u64>) {
        let mut plan = self.fs.plan.lock();
        *match advice {
            Advice::Random => &mut plan.random,
            Advice::WillNeed | Advice::Populate => &mut plan.will_need,
        } += 1;
        drop(plan);
        self.inner.advise(advice, range);
    }
}
