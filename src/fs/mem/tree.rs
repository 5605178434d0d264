//! Files and directories in memory: current names, durable names, and the unsynced changes between
//! them.
//!
//! Invariants
//! * applying a directory's pending changes in order to its durable names results in its current
//!   names;
//! * a node is kept while a name, a durable name, a pending change or an open handle refers to it;
//! * nodes are numbered in the order of creation, so that equal operations give equal trees.
//!
//! `file` has the bytes; `crash` chooses the changes that survive a power cut.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path};
use std::sync::Arc;

use crate::sort::sort_by;

use super::file::File;

pub(super) type NodeId = u64;
type Name = Arc<str>;

/// The root directory; relative and absolute paths both start there.
pub(super) const ROOT: NodeId = 0;

#[derive(Clone, Debug)]
pub(super) enum Node {
    File(Arc<File>),
    Dir(Arc<Dir>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Dir {
    pub(super) names: BTreeMap<Name, NodeId>,
    pub(super) durable: BTreeMap<Name, NodeId>,
    /// For each name, its changes since the directory was synced, oldest first.
    pub(super) pending: BTreeMap<Name, Vec<Change>>,
}

/// An unsynced change of one name.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// The number of the operation. The two changes of a rename (old name, new name) have the same
    /// number.
    pub(super) stamp: u64,
    /// The node to which the name refers after the change; `None` if the change removed the name.
    pub(super) target: Option<NodeId>,
    /// The new name, if this change removes the old name of a rename. The old name disappears only
    /// if the new one survives.
    pub(super) moved_to: Option<(NodeId, Name)>,
}

/// The complete contents of a machine's disk and page cache.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) nodes: BTreeMap<NodeId, Node>,
    next: NodeId,
    stamp: u64,
}

/// A resolved path: its directory, and the last name of the path.
pub(super) struct Place {
    dir: NodeId,
    name: Name,
}

impl Default for Tree {
    fn default() -> Self {
        Self { nodes: [(ROOT, Node::Dir(Arc::default()))].into(), next: ROOT + 1, stamp: 0 }
    }
}

impl Tree {
    /// Returns a copy. The copy and the original share only data that is never changed in place.
    pub(super) fn detached(&self) -> Self {
        let copy = |node: &Node| match node {
            Node::File(file) => Node::File(Arc::new(file.detached())),
            Node::Dir(dir) => Node::Dir(Arc::new((**dir).clone())),
        };
        self.with_nodes(self.nodes.iter().map(|(id, node)| (*id, copy(node))).collect())
    }

    /// Returns a tree with the given nodes and with the counters of this tree.
    pub(super) fn with_nodes(&self, nodes: BTreeMap<NodeId, Node>) -> Self {
        Self { nodes, ..*self }
    }

    pub(super) fn dir(&self, id: NodeId) -> io::Result<&Dir> {
        match self.nodes.get(&id) {
            Some(Node::Dir(dir)) => Ok(dir),
            Some(Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn dir_mut(&mut self, id: NodeId) -> io::Result<&mut Dir> {
        match self.nodes.get_mut(&id) {
            Some(Node::Dir(dir)) => Ok(Arc::make_mut(dir)),
            Some(Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn file(&self, id: NodeId) -> io::Result<&Arc<File>> {
        match self.nodes.get(&id) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Dir(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn file_mut(&mut self, id: NodeId) -> io::Result<&mut File> {
        match self.nodes.get_mut(&id) {
            Some(Node::File(file)) => Ok(Arc::make_mut(file)),
            Some(Node::Dir(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Returns the node of a path.
    pub(super) fn find(&self, path: &Path) -> io::Result<NodeId> {
        let mut node = ROOT;
        for name in components(path)? {
            node = *self.dir(node)?.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(node)
    }

    /// Returns the node of a path, if it exists.
    pub(super) fn look(&self, path: &Path) -> io::Result<Option<NodeId>> {
        match self.find(path) {
            Ok(node) => Ok(Some(node)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the path of a directory; `None` if no name leads to it.
    pub(super) fn path_of(&self, id: NodeId) -> Option<String> {
        let dirs = self.nodes.keys().filter_map(|parent| Some((parent, self.dir(*parent).ok()?)));
        let mut names = dirs.flat_map(|(parent, dir)| dir.names.iter().map(move |n| (parent, n)));
        let (parent, (name, _)) = names.find(|(_, (_, node))| **node == id)?;
        if *parent == ROOT {
            return Some(name.to_string());
        }
        Some(format!("{}/{name}", self.path_of(*parent)?))
    }

    /// Resolves a path to the directory of its last name. The name itself may be missing in that
    /// directory.
    pub(super) fn place(&self, path: &Path) -> io::Result<Place> {
        let components = components(path)?;
        let Some((name, parents)) = components.split_last() else {
            return Err(io::ErrorKind::IsADirectory.into());
        };
        let mut dir = ROOT;
        for parent in parents {
            dir = *self.dir(dir)?.names.get(*parent).ok_or(io::ErrorKind::NotFound)?;
        }
        self.dir(dir)?;
        Ok(Place { dir, name: Arc::from(*name) })
    }

    pub(super) fn target(&self, place: &Place) -> io::Result<Option<NodeId>> {
        Ok(self.dir(place.dir)?.names.get(&place.name).copied())
    }

    /// Adds a node under a name that must not exist yet.
    pub(super) fn add(&mut self, place: &Place, node: Node) -> io::Result<NodeId> {
        if self.target(place)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let id = self.next;
        self.next += 1;
        debug_assert!(!self.nodes.contains_key(&id), "ids are given out once");
        self.nodes.insert(id, node);
        self.tick().change(place, Some(id), None)?;
        Ok(id)
    }

    /// Adds a second name to a file. The name must not exist yet.
    pub(super) fn link(&mut self, node: NodeId, place: &Place) -> io::Result<()> {
        self.file(node)?;
        if self.target(place)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.tick().change(place, Some(node), None)
    }

    /// Removes a file's name.
    pub(super) fn remove(&mut self, place: &Place) -> io::Result<()> {
        self.file(self.target(place)?.ok_or(io::ErrorKind::NotFound)?)?;
        self.tick().change(place, None, None)
    }

    /// Removes an empty directory's name.
    pub(super) fn remove_dir(&mut self, place: &Place) -> io::Result<()> {
        if !self.dir(self.target(place)?.ok_or(io::ErrorKind::NotFound)?)?.names.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.tick().change(place, None, None)
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        if spelled(to).starts_with(&(spelled(from) + "/")) {
            return Err(io::ErrorKind::InvalidInput.into()); // a directory into itself
        }
        let (from, to) = (&self.place(from)?, &self.place(to)?);
        let node = self.target(from)?.ok_or(io::ErrorKind::NotFound)?;
        if let Some(replaced) = self.target(to)? {
            if replaced == node {
                return Ok(()); // two names of one file: POSIX keeps both
            }
            match (&self.nodes[&node], &self.nodes[&replaced]) {
                (Node::File(_), Node::File(_)) => {}
                (Node::Dir(_), Node::Dir(dir)) if dir.names.is_empty() => {}
                (_, Node::Dir(dir)) if !dir.names.is_empty() => {
                    return Err(io::ErrorKind::DirectoryNotEmpty.into());
                }
                (_, Node::Dir(_)) => return Err(io::ErrorKind::IsADirectory.into()),
                (_, Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
            }
        }
        self.tick().change(to, Some(node), None)?;
        self.change(from, None, Some((to.dir, Arc::clone(&to.name))))
    }

    pub(super) fn sync_dir(&mut self, id: NodeId) -> io::Result<()> {
        let dir = self.dir_mut(id)?;
        for name in std::mem::take(&mut dir.pending).into_keys() {
            dir.make_durable(name);
        }
        Ok(())
    }

    /// Makes one name durable in its current state.
    pub(super) fn make_durable(&mut self, place: &Place) -> io::Result<()> {
        let dir = self.dir_mut(place.dir)?;
        dir.pending.remove(&place.name);
        dir.make_durable(Arc::clone(&place.name));
        Ok(())
    }

    /// Advances the stamp, which all changes of one operation share.
    fn tick(&mut self) -> &mut Self {
        self.stamp += 1;
        self
    }

    /// Changes the node of the name `place`, or removes the name. The change is pending until the
    /// directory is synced.
    fn change(
        &mut self,
        place: &Place,
        target: Option<NodeId>,
        moved_to: Option<(NodeId, Name)>,
    ) -> io::Result<()> {
        let change = Change { stamp: self.stamp, target, moved_to };
        let dir = self.dir_mut(place.dir)?;
        match target {
            Some(node) => dir.names.insert(Arc::clone(&place.name), node),
            None => dir.names.remove(&place.name),
        };
        dir.pending.entry(Arc::clone(&place.name)).or_default().push(change);
        Ok(())
    }

    /// Returns the nodes to which no name, durable name, pending change or open handle refers.
    pub(super) fn strays(&self, open: impl Iterator<Item = NodeId>) -> Vec<NodeId> {
        let mut seen = BTreeSet::new();
        let mut todo: Vec<NodeId> = open.chain([ROOT]).collect();
        while let Some(id) = todo.pop() {
            if !seen.insert(id) {
                continue;
            }
            if let Some(Node::Dir(dir)) = self.nodes.get(&id) {
                let pending = dir.pending.values().flatten().filter_map(|change| change.target);
                todo.extend(dir.names.values().chain(dir.durable.values()).copied().chain(pending));
            }
        }
        self.nodes.keys().filter(|id| !seen.contains(id)).copied().collect()
    }

    pub(super) fn forget(&mut self, strays: &[NodeId]) {
        debug_assert!(!strays.contains(&ROOT), "the root stays");
        for id in strays {
            self.nodes.remove(id);
        }
    }

    /// Returns the sum of the lengths of all files with a name.
    pub(super) fn used(&self) -> u64 {
        let dirs = self.nodes.keys().filter_map(|id| self.dir(*id).ok());
        let named: BTreeSet<_> = dirs.flat_map(|dir| dir.names.values()).collect();
        named.into_iter().filter_map(|id| self.file(*id).ok()).map(|file| file.len()).sum()
    }

    /// Returns the paths of all files, sorted.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect(ROOT, "", &mut paths);
        sort_by(&mut paths, Ord::cmp);
        paths
    }

    fn collect(&self, dir: NodeId, prefix: &str, paths: &mut Vec<String>) {
        let Some(Node::Dir(dir)) = self.nodes.get(&dir) else { return };
        for (name, id) in &dir.names {
            match self.nodes.get(id) {
                Some(Node::Dir(_)) => self.collect(*id, &format!("{prefix}{name}/"), paths),
                _ => paths.push(format!("{prefix}{name}")),
            }
        }
    }
}

impl Dir {
    fn make_durable(&mut self, name: Name) {
        match self.names.get(&name) {
            Some(node) => drop(self.durable.insert(name, *node)),
            None => drop(self.durable.remove(&name)),
        }
    }
}

/// Splits a path into names, starting at the root. Skips `.`; `..` removes the name before it.
pub(super) fn components(path: &Path) -> io::Result<Vec<&str>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => {
                names.push(name.to_str().ok_or(io::ErrorKind::InvalidFilename)?);
            }
            Component::ParentDir => drop(names.pop()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Ok(names)
}

/// Returns the canonical spelling of a path, for messages: `db/CURRENT`, and `.` for the root.
pub(super) fn spelled(path: &Path) -> String {
    match components(path) {
        Ok(names) if names.is_empty() => ".".to_owned(),
        Ok(names) => names.join("/"),
        Err(_) => path.display().to_string(),
    }
}
