//! A file system in memory that knows what a power cut would leave of it.
//!
//! Invariants
//! * what was synced, under names that were synced, is in every image, byte for byte;
//! * the same operations and the same seed give the same image, on every machine;
//! * an image shares nothing that can be changed with the file system it was taken from.
//!
//! Locks: one, around the state; nobody's code runs under it.
//!
//! Not here: names (`tree`), bytes (`file`), the choice of what survives (`crash`), the trait (`ops`).

mod crash;
mod fate;
mod file;
mod ops;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use self::file::File;
use self::tree::{Node, NodeId, Tree};
use crate::sync::{Mutex, MutexGuard};

/// A file system in memory. Clones are handles of the same one.
///
/// It keeps apart what was written and what was synced, for the bytes of files (in sectors of 512)
/// as for the names in directories. [`MemFs::crash_image`] cuts the power: of everything that was not
/// synced any part may be left, in any order, as the seed decides.
///
/// * An unsynced sector holds any version that it had since the file's last sync, whatever its neighbours do.
/// * A file that grew has its old length, its new one, or one in between; sectors that were not written are zero.
/// * An unsynced create, rename, removal or link happened or did not, each name for itself: a synced
///   file may be gone with its name, a removed one back. A renamed file keeps at least one of its names,
///   unless it left a directory that was synced for one that was not.
/// * After a failed sync (see [`FaultFs`](super::FaultFs)) unsynced bytes can be read and are never durable.
///
/// A program is crash-tested by recording a run and opening the image at every operation:
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
///         // Here a real program opens its files on `image` and checks what it promised.
///         assert!(op < promised_at || found.as_deref() == Some(b"hello"));
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct MemFs {
    state: Arc<Mutex<State>>,
}

struct State {
    tree: Arc<Tree>,
    /// How often a node is open; an unlinked file lives as long as that.
    open: BTreeMap<NodeId, usize>,
    locked: BTreeSet<NodeId>,
    /// Operations that changed something.
    ops: u64,
    journal: Option<Journal>,
    quota: Option<u64>,
    read_only: bool,
}

/// A recorded run.
struct Journal {
    /// The number of the first operation in it.
    first: u64,
    entries: Vec<Entry>,
}

/// An operation, and what it found.
struct Entry {
    line: String,
    before: Arc<Tree>,
}

impl MemFs {
    /// An empty file system: a root directory, which absolute and relative paths share.
    pub fn new() -> Self {
        Self::of(Arc::new(Tree::new()))
    }

    fn of(tree: Arc<Tree>) -> Self {
        let state = State {
            tree,
            open: BTreeMap::new(),
            locked: BTreeSet::new(),
            ops: 0,
            journal: None,
            quota: None,
            read_only: false,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// A file system beside the one that `tree` is of. They have two locks, and share nodes until one changes them: it
    /// then does so in place behind what the other read, by the range tombstone in `Arc::drop`,
    /// which the sanitizer does not know.
    fn image(tree: Arc<Tree>) -> Self {
        Self::of(if cfg!(tsan) { Arc::new(tree.detached()) } else { tree })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// What a power cut at this moment leaves, one of many possibilities chosen by `seed`: a new file system,
    /// all of it durable, nothing open, no locks held, no quota, nothing recorded.
    #[must_use]
    pub fn crash_image(&self, seed: u64) -> Self {
        let state = self.state();
        Self::image(Arc::new(crash::after_power_cut(&state.tree, seed)))
    }

    /// What the end of the process at this moment leaves: all that was handed over, and
    /// what was not synced can still be lost in a power cut of the image.
    #[must_use]
    pub fn kill_image(&self) -> Self {
        let state = self.state();
        Self::image(Arc::clone(&state.tree))
    }

    /// Starts to keep a line and an image for every operation; forgets an earlier recording.
    /// Files share what is equal: an operation costs the pages it changes.
    pub fn record(&self) {
        let mut state = self.state();
        state.journal = Some(Journal { first: state.ops, entries: Vec::new() });
    }

    /// The moments of which images can be had: before each recorded operation, and now. Empty without a recording.
    pub fn recorded(&self) -> RangeInclusive<u64> {
        let state = self.state();
        match &state.journal {
            Some(journal) => journal.first..=state.ops,
            #[expect(clippy::reversed_empty_ranges, reason = "it is to be empty")]
            None => 1..=0,
        }
    }

    /// What a power cut left after `op` operations (see [`MemFs::ops`]); `None` if that was not recorded.
    #[must_use]
    pub fn crash_image_at(&self, op: u64, seed: u64) -> Option<Self> {
        let state = self.state();
        Some(Self::image(Arc::new(crash::after_power_cut(&*state.tree_at(op)?, seed))))
    }

    /// What the end of the process left after `op` operations; `None` if that was not recorded.
    #[must_use]
    pub fn kill_image_at(&self, op: u64) -> Option<Self> {
        let state = self.state();
        Some(Self::image(state.tree_at(op)?))
    }

    /// How many operations have changed something so far.
    pub fn ops(&self) -> u64 {
        self.state().ops
    }

    /// The recorded operations as text: `create 000003.wal`, `write 000003.wal 0..4096`,
    /// `sync 000003.wal`, `sync-dir .` and so on. A handle is called by the path that it was opened by.
    pub fn log(&self) -> Vec<String> {
        let state = self.state();
        let entries = state.journal.iter().flat_map(|journal| &journal.entries);
        entries.map(|entry| entry.line.clone()).collect()
    }

    /// Writes that would make all files together longer than `bytes` fail with `StorageFull`, after the part
    /// that fits; reservations fail as a whole. `None` lifts the limit.
    pub fn set_quota(&self, bytes: Option<u64>) {
        self.state().quota = bytes;
    }

    /// The sum of the lengths of all files with a name.
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// Refuses, or allows again, everything that changes something: `ReadOnlyFilesystem`.
    pub fn set_read_only(&self, read_only: bool) {
        self.state().read_only = read_only;
    }

    /// The paths of all files, sorted.
    pub fn paths(&self) -> Vec<String> {
        self.state().tree.paths()
    }

    /// The bytes of a file.
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let tree = Arc::clone(&self.state().tree);
        let file = tree.file(tree.find(path.as_ref())?)?;
        let mut bytes = vec![0; usize::try_from(file.len()).map_err(io::Error::other)?];
        file.read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// The length of a file.
    pub fn len(&self, path: impl AsRef<Path>) -> io::Result<u64> {
        let state = self.state();
        Ok(state.tree.file(state.tree.find(path.as_ref())?)?.len())
    }

    /// Puts a file there, durable with its name, or replaces its bytes. Its directory must exist.
    /// Like the other ways to do damage this is no operation: it is neither counted nor recorded.
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

    /// Inverts the bits of `mask` in the byte at `offset`, as read and as durable; like all damage it
    /// settles the file: what was not synced counts as durable from then on.
    pub fn flip(&self, path: impl AsRef<Path>, offset: u64, mask: u8) -> io::Result<()> {
        self.damage(path.as_ref(), |content| content.flip(offset, mask))
    }

    /// Cuts or grows a file behind its owner's back.
    pub fn truncate(&self, path: impl AsRef<Path>, len: u64) -> io::Result<()> {
        File::check_len(Some(len))?;
        self.damage(path.as_ref(), |content| {
            content.resize(len);
            Ok(())
        })
    }

    /// The process that held locks is dead; its bytes stay.
    #[cfg(test)]
    pub(crate) fn kill_locks(&self) {
        self.state().locked.clear();
    }

    /// Removes a file for good.
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

impl Default for MemFs {
    fn default() -> Self {
        Self::new()
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
    /// The tree after `op` operations.
    fn tree_at(&self, op: u64) -> Option<Arc<Tree>> {
        let journal = self.journal.as_ref()?;
        if op == self.ops {
            return Some(Arc::clone(&self.tree));
        }
        let at = usize::try_from(op.checked_sub(journal.first)?).ok()?;
        journal.entries.get(at).map(|entry| Arc::clone(&entry.before))
    }

    /// Carries out an operation: counted and recorded if it succeeds, without a trace otherwise.
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

    /// Changes names, and drops the nodes that became unreachable.
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
