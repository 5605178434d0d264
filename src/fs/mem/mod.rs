//! A file system in memory that models power cuts. An *image* is one possible state after a cut.
//!
//! Invariants
//! * synced bytes under synced names are in every image, byte for byte;
//! * the same operations and the same seed give the same image, on every machine;
//! * an image shares no mutable state with the file system from which it was taken.
//!
//! One lock protects the state; no callback runs under it. `tree` has the names, `file` the bytes,
//! `crash` chooses the writes that survive, and `ops` implements the traits.

mod crash;
mod fate;
mod file;
mod ops;
#[cfg(test)]
mod tests;
mod tree;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::file::File;
use self::tree::{Node, NodeId, Tree};
use crate::sync::{Mutex, MutexGuard};

/// A file system in memory. Clones are handles to the same file system.
///
/// It distinguishes written from synced state, for the bytes of files (in sectors of 512 bytes) and
/// for the names in directories. [`MemFs::crash_image`] models a power cut: any part of the
/// unsynced state may survive, in any order, as chosen by the seed.
///
/// * An unsynced sector has any version that it had since the file's last sync, independently of
///   its neighbours.
/// * A file that grew has its old length, its new length, or a length in between; unwritten sectors
///   are zero.
/// * Each unsynced create, rename, removal or link may survive or not, independently of changes of
///   other names: a synced file may be lost with its name, and a removed one may reappear. A
///   renamed file keeps at least one of its names, unless it moved from a directory that was synced
///   to one that was not.
/// * After a failed sync (see [`FaultFs`](super::FaultFs)) unsynced bytes can be read but never
///   become durable.
///
/// To crash-test a program, record a run and open the image at every operation:
///
/// ```
/// use std::path::Path;
/// use rowstone::fs::{Fs, MemFs};
///
/// let fs = MemFs::new();
/// fs.record();
/// let file = fs.create(Path::new("greeting"))?;
/// file.write_at(0, b"hello")?;
/// file.sync()?;
/// fs.sync_dir(Path::new("."))?; // or the file may vanish with its name
/// let promised_at = fs.ops();
///
/// for op in fs.recorded() {
///     for seed in 0..10 {
///         let image = fs.crash_image_at(op, seed).expect("recorded");
///         let found = image.read("greeting").ok();
///         // Here a real program opens its files on `image` and checks its guarantees.
///         assert!(op < promised_at || found.as_deref() == Some(b"hello"));
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct MemFs {
    state: Arc<Mutex<State>>,
    /// The pinned directory, if `Fs::pin` returned this file system.
    pin: Option<Arc<Pin>>,
}

/// A pinned directory: the path at which it was pinned, and its node. The directory may have moved
/// since it was pinned.
struct Pin {
    dir: PathBuf,
    node: NodeId,
}

#[derive(Default)]
struct State {
    tree: Arc<Tree>,
    /// The number of open handles per node; an unlinked file is kept while it is open.
    open: BTreeMap<NodeId, usize>,
    locked: BTreeSet<NodeId>,
    /// The number of operations so far that changed the file system.
    ops: u64,
    journal: Option<Journal>,
    quota: Option<u64>,
    read_only: bool,
}

/// The recorded operations.
struct Journal {
    /// The number of the first recorded operation.
    first: u64,
    entries: Vec<Entry>,
}

/// A recorded operation, and the state before it.
struct Entry {
    line: String,
    before: Arc<Tree>,
}

impl MemFs {
    /// Creates an empty file system with a root directory. Absolute and relative paths both start
    /// at the root.
    pub fn new() -> Self {
        Self::default()
    }

    fn of(tree: Arc<Tree>) -> Self {
        let state = State { tree, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), pin: None }
    }

    /// Creates a separate file system with the state `tree`. Both file systems share nodes. Once
    /// one of them has released a node, `Arc::make_mut` in the other may change the node in place;
    /// the fence in `Arc::drop` orders that write after earlier reads. The thread sanitizer does
    /// not model fences, so under it the tree is copied.
    fn image(tree: Arc<Tree>) -> Self {
        Self::of(if cfg!(tsan) { Arc::new(tree.detached()) } else { tree })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the current path of a file. This is `path`, unless `path` is in the pinned directory
    /// and that directory has moved. Then it is the same name in the moved directory.
    fn at<'a>(&self, path: &'a Path) -> io::Result<Cow<'a, Path>> {
        let Some(pin) = &self.pin else { return Ok(Cow::Borrowed(path)) };
        let Ok(name) = path.strip_prefix(&pin.dir) else { return Ok(Cow::Borrowed(path)) };
        let tree = Arc::clone(&self.state().tree);
        if tree.look(&pin.dir)? == Some(pin.node) {
            return Ok(Cow::Borrowed(path));
        }
        let dir = tree.path_of(pin.node).ok_or(io::ErrorKind::NotFound)?;
        Ok(Cow::Owned(Path::new(&dir).join(name)))
    }

    /// Returns a state that a power cut now could leave; `seed` chooses one of many. The new file
    /// system is fully durable, without open files, locks, quota or recording.
    #[must_use]
    pub fn crash_image(&self, seed: u64) -> Self {
        Self::image(Arc::new(crash::after_power_cut(&self.state().tree, seed)))
    }

    /// Returns the state that remains if the process ends now. All writes are present, but a power
    /// cut of the image can still lose unsynced writes.
    #[must_use]
    pub fn kill_image(&self) -> Self {
        Self::image(Arc::clone(&self.state().tree))
    }

    /// Starts to record the name of every operation and the state before it; discards an earlier
    /// recording. States share equal pages, so an operation costs only the pages that it changes.
    pub fn record(&self) {
        let mut state = self.state();
        state.journal = Some(Journal { first: state.ops, entries: Vec::new() });
    }

    /// Returns the range of operation numbers that [`crash_image_at`](Self::crash_image_at)
    /// accepts: for each recorded operation the state before it, and the current state. The range
    /// is empty without a recording.
    pub fn recorded(&self) -> RangeInclusive<u64> {
        let state = self.state();
        match &state.journal {
            Some(journal) => journal.first..=state.ops,
            #[expect(clippy::reversed_empty_ranges, reason = "it is to be empty")]
            None => 1..=0,
        }
    }

    /// Returns a state that a power cut after `op` operations (see [`MemFs::ops`]) could leave;
    /// `None` if the state at `op` was not recorded.
    #[must_use]
    pub fn crash_image_at(&self, op: u64, seed: u64) -> Option<Self> {
        Some(Self::image(Arc::new(crash::after_power_cut(&*self.state().tree_at(op)?, seed))))
    }

    /// Returns the state that remains if the process ends after `op` operations; `None` if the
    /// state at `op` was not recorded.
    #[must_use]
    pub fn kill_image_at(&self, op: u64) -> Option<Self> {
        Some(Self::image(self.state().tree_at(op)?))
    }

    /// Returns the number of operations so far that changed the file system.
    pub fn ops(&self) -> u64 {
        self.state().ops
    }

    /// Returns the recorded operations as text: `create 000003.wal`, `write 000003.wal 0..4096`,
    /// `sync 000003.wal`, `sync-dir .` and so on. Operations on an open file show the path with
    /// which it was opened.
    pub fn log(&self) -> Vec<String> {
        let state = self.state();
        let entries = state.journal.iter().flat_map(|journal| &journal.entries);
        entries.map(|entry| entry.line.clone()).collect()
    }

    /// Sets a limit on the sum of the lengths of all files. A write that exceeds the limit writes
    /// the part that fits, then fails with `StorageFull`. A reservation that exceeds the limit
    /// fails with the same error and has no effect. `None` removes the quota.
    pub fn set_quota(&self, bytes: Option<u64>) {
        self.state().quota = bytes;
    }

    /// Returns the sum of the lengths of all files with a name.
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// Refuses all changes with `ReadOnlyFilesystem`, or allows them again.
    pub fn set_read_only(&self, read_only: bool) {
        self.state().read_only = read_only;
    }

    /// Returns the paths of all files, sorted.
    pub fn paths(&self) -> Vec<String> {
        self.state().tree.paths()
    }

    /// Returns the bytes of a file.
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let tree = Arc::clone(&self.state().tree);
        let file = tree.file(tree.find(path.as_ref())?)?;
        let mut bytes = vec![0; usize::try_from(file.len()).map_err(io::Error::other)?];
        file.read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the length of a file.
    pub fn len(&self, path: impl AsRef<Path>) -> io::Result<u64> {
        let state = self.state();
        Ok(state.tree.file(state.tree.find(path.as_ref())?)?.len())
    }

    /// Creates a durable file, or replaces the bytes of an existing one. Its directory must exist.
    /// Like the other methods that damage files, `write` is not an operation: it is neither counted
    /// nor recorded.
    pub fn write(&self, path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let tree = Arc::make_mut(&mut state.tree);
        if let Some(node) = tree.look(path.as_ref())? {
            *tree.file_mut(node)? = File::durable(bytes);
            return Ok(());
        }
        let place = tree.place(path.as_ref())?;
        tree.add(&place, Node::File(Arc::new(File::durable(bytes))))?;
        tree.make_durable(&place)
    }

    /// Inverts the bits of `mask` in the byte at `offset`, in the current and in the durable bytes.
    /// As with every method that damages a file, the whole file becomes durable in its current
    /// state.
    pub fn flip(&self, path: impl AsRef<Path>, offset: u64, mask: u8) -> io::Result<()> {
        self.damage(path.as_ref(), |content| content.flip(offset, mask))
    }

    /// Damages a file by truncating or growing it.
    pub fn truncate(&self, path: impl AsRef<Path>, len: u64) -> io::Result<()> {
        File::check_len(Some(len))?;
        self.damage(path.as_ref(), |content| {
            content.resize(len);
            Ok(())
        })
    }

    /// Releases all locks, as if the process that holds them had ended. Keeps all bytes.
    #[cfg(test)]
    pub(crate) fn kill_locks(&self) {
        self.state().locked.clear();
    }

    /// Removes a file durably.
    pub fn erase(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let mut state = self.state();
        let tree = Arc::make_mut(&mut state.tree);
        let place = tree.place(path.as_ref())?;
        tree.remove(&place)?;
        tree.make_durable(&place)?;
        state.sweep();
        Ok(())
    }

    fn damage(
        &self,
        path: &Path,
        change: impl FnOnce(&mut file::Content) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut state = self.state();
        let node = state.tree.find(path)?;
        let file = Arc::make_mut(&mut state.tree).file_mut(node)?;
        let mut result = Ok(());
        file.replace(|content| result = change(content));
        result
    }
}

impl fmt::Debug for MemFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let files = state.tree.paths().len();
        f.debug_struct("MemFs").field("files", &files).field("ops", &state.ops).finish()
    }
}

impl State {
    /// Returns the tree after `op` operations.
    fn tree_at(&self, op: u64) -> Option<Arc<Tree>> {
        let journal = self.journal.as_ref()?;
        if op == self.ops {
            return Some(Arc::clone(&self.tree));
        }
        let at = usize::try_from(op.checked_sub(journal.first)?).ok()?;
        journal.entries.get(at).map(|entry| Arc::clone(&entry.before))
    }

    /// Runs an operation that changes the file system. Counts and records it if it succeeds.
    fn change<T>(
        &mut self,
        line: impl FnOnce() -> String,
        operation: impl FnOnce(&mut Tree) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.read_only {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        let before = self.journal.is_some().then(|| Arc::clone(&self.tree));
        let result = operation(Arc::make_mut(&mut self.tree))?;
        self.ops += 1;
        if let (Some(journal), Some(before)) = (&mut self.journal, before) {
            journal.entries.push(Entry { line: line(), before });
            let recorded = journal.first + journal.entries.len() as u64;
            debug_assert_eq!(recorded, self.ops, "each operation is recorded");
        }
        Ok(result)
    }

    fn used(&self) -> u64 {
        self.tree.used()
    }

    /// Changes names, and removes the nodes that the change made unreachable.
    fn change_names(
        &mut self,
        line: impl FnOnce() -> String,
        operation: impl FnOnce(&mut Tree) -> io::Result<()>,
    ) -> io::Result<()> {
        self.change(line, operation)?;
        self.sweep();
        Ok(())
    }

    fn sweep(&mut self) {
        let strays = self.tree.strays(self.open.keys().copied());
        if !strays.is_empty() {
            Arc::make_mut(&mut self.tree).forget(&strays);
        }
    }
}
