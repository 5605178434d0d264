//! Implements the file system traits for [`MemFs`], its open files and its locks.
//!
//! An operation is checked before it changes anything, so a refused operation has no effect. The
//! exception is a write beyond the quota, which writes the part that fits, as on a disk.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::file::File;
use super::tree::{Node, NodeId, spelled};
use super::{MemFs, Pin, State};
use crate::fs::complete::{self, Directories};
use crate::fs::{FileLock, FileRead, FileWrite, Fs, Map};

/// An open file.
#[derive(Debug)]
struct Handle {
    fs: MemFs,
    node: NodeId,
    /// The path with which the file was opened, for the recorded operations.
    path: String,
}

#[derive(Debug)]
struct Lock(Handle);

impl Fs for MemFs {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        complete::create_dir_all(self, dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let dir = &*self.at(dir)?;
        let state = self.state();
        let dir = state.tree.dir(state.tree.find(dir)?)?;
        Ok(dir.names.keys().map(|name| name.to_string()).collect())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let path = &*self.at(path)?;
        Ok(self.state().tree.look(path)?.is_some())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn FileWrite>> {
        let path = &*self.at(path)?;
        Ok(Box::new(self.create_file(&mut self.state(), path)?))
    }

    fn open_write(&self, path: &Path) -> io::Result<Box<dyn FileWrite>> {
        let path = &*self.at(path)?;
        let mut state = self.state();
        state.check_writable()?;
        let node = state.tree.find(path)?;
        Ok(Box::new(self.open(&mut state, node, path)?))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn FileRead>> {
        let path = &*self.at(path)?;
        let mut state = self.state();
        let node = state.tree.find(path)?;
        Ok(Arc::new(self.open(&mut state, node, path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (&*self.at(from)?, &*self.at(to)?);
        let line = || format!("rename {} {}", spelled(from), spelled(to));
        self.state().change_names(line, |tree| tree.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let path = &*self.at(path)?;
        let line = || format!("remove {}", spelled(path));
        self.state().change_names(line, |tree| tree.remove(&tree.place(path)?))
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let dir = &*self.at(dir)?;
        let line = || format!("remove-dir {}", spelled(dir));
        self.state().change_names(line, |tree| tree.remove_dir(&tree.place(dir)?))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (&*self.at(from)?, &*self.at(to)?);
        let line = || format!("link {} {}", spelled(from), spelled(to));
        self.state().change(line, |tree| tree.link(tree.find(from)?, &tree.place(to)?))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let dir = &*self.at(dir)?;
        let line = || format!("sync-dir {}", spelled(dir));
        self.state().change_names(line, |tree| tree.sync_dir(tree.find(dir)?))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let path = &*self.at(path)?;
        let mut state = self.state();
        state.check_writable()?;
        let handle = match state.tree.look(path)? {
            Some(node) => self.open(&mut state, node, path)?,
            None => self.create_file(&mut state, path)?,
        };
        let taken = state.locked.insert(handle.node);
        drop(state); // because dropping an unused handle takes the lock again
        if taken { Ok(Box::new(Lock(handle))) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        let path = &*self.at(path)?;
        let state = self.state();
        Ok(state.tree.look(path)?.is_some_and(|node| state.locked.contains(&node)))
    }

    fn kind(&self, _path: &Path) -> String {
        "memory".to_owned()
    }

    fn pin(&self, dir: &Path) -> io::Result<Option<Arc<dyn Fs>>> {
        let node = self.state().tree.find(dir)?;
        let pin = Some(Arc::new(Pin { dir: dir.to_owned(), node }));
        Ok(Some(Arc::new(Self { state: Arc::clone(&self.state), pin })))
    }
}

impl MemFs {
    fn create_file(&self, state: &mut State, path: &Path) -> io::Result<Handle> {
        let file = Node::File(Arc::new(File::default()));
        let node = state.change(
            || format!("create {}", spelled(path)),
            |tree| tree.add(&tree.place(path)?, file),
        )?;
        self.open(state, node, path)
    }

    fn open(&self, state: &mut State, node: NodeId, path: &Path) -> io::Result<Handle> {
        state.tree.file(node)?;
        *state.open.entry(node).or_default() += 1;
        Ok(Handle { fs: self.clone(), node, path: spelled(path) })
    }
}

impl Directories for MemFs {
    fn is_dir(&self, dir: &Path) -> io::Result<bool> {
        let state = self.state();
        match state.tree.look(dir)? {
            Some(node) => state.tree.dir(node).map(|_| true),
            None => Ok(false),
        }
    }

    fn make(&self, dir: &Path) -> io::Result<()> {
        self.state().change(
            || format!("mkdir {}", spelled(dir)),
            |tree| tree.add(&tree.place(dir)?, Node::Dir(Arc::default())).map(drop),
        )
    }

    fn sync(&self, dir: &Path) -> io::Result<()> {
        self.sync_dir(dir)
    }
}

impl FileWrite for Handle {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let end = File::check_len(offset.checked_add(bytes.len() as u64))?;
        let mut state = self.fs.state();
        let fits = state.len_max(self.node)?.clamp(offset, end) - offset;
        let part = &bytes[..usize::try_from(fits).unwrap_or(bytes.len())];
        if !part.is_empty() {
            let line = || format!("write {} {offset}..{}", self.path, offset + fits);
            state.change(line, |tree| {
                tree.file_mut(self.node)?.write(offset, part);
                Ok(())
            })?;
        }
        if part.len() < bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.fs.state().change(
            || format!("sync {}", self.path),
            |tree| {
                tree.file_mut(self.node)?.sync();
                Ok(())
            },
        )
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        File::check_len(Some(len))?;
        self.resize(&mut self.fs.state(), "allocate", len, true)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        File::check_len(Some(len))?;
        self.resize(&mut self.fs.state(), "set-len", len, false)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.fs.state().tree.file(self.node)?.len())
    }

    fn forget_dirty(&self) {
        let mut state = self.fs.state();
        if let Ok(file) = Arc::make_mut(&mut state.tree).file_mut(self.node) {
            file.forget_dirty();
        }
    }
}

impl Handle {
    fn resize(&self, state: &mut State, verb: &str, len: u64, grow: bool) -> io::Result<()> {
        if len > state.len_max(self.node)? {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let line = || format!("{verb} {} {len}", self.path);
        state.change(line, |tree| {
            let file = tree.file_mut(self.node)?;
            file.set_len(if grow { len.max(file.len()) } else { len });
            Ok(())
        })
    }
}

impl FileRead for Handle {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.fs.state().tree.file(self.node)?.read(offset, buffer)
    }

    fn len(&self) -> io::Result<u64> {
        FileWrite::len(self)
    }

    fn map(&self) -> io::Result<Map> {
        let mut state = self.fs.state();
        if let Some(whole) = state.tree.file(self.node)?.mapped() {
            return Ok(whole.into());
        }
        Ok(Arc::make_mut(&mut state.tree).file_mut(self.node)?.map().into())
    }
}

impl FileLock for Lock {
    fn is_current(&self) -> io::Result<bool> {
        let named = self.0.fs.state().tree.look(Path::new(&self.0.path))?;
        Ok(named == Some(self.0.node))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.0.fs.state().locked.remove(&self.0.node);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.fs.state();
        let Some(count) = state.open.get_mut(&self.node) else { return };
        *count -= 1;
        if *count == 0 {
            state.open.remove(&self.node);
            state.sweep();
        }
    }
}

impl State {
    fn check_writable(&self) -> io::Result<()> {
        if self.read_only { Err(io::ErrorKind::ReadOnlyFilesystem.into()) } else { Ok(()) }
    }

    /// Returns the maximum length that the quota allows for the file. It is never less than the
    /// current length.
    fn len_max(&self, node: NodeId) -> io::Result<u64> {
        let len = self.tree.file(node)?.len();
        let Some(quota) = self.quota else { return Ok(u64::MAX) };
        Ok(len + quota.saturating_sub(self.used()))
    }
}
