//! Computes the state of a simulated file system after a power cut. A seed determines all choices.
//!
//! 1. Every name with unsynced changes gets one of the states that it had since its directory was
//!    synced. The old name of a rename disappears only if the new name survives, so that no rename
//!    loses a file.
//! 2. Files and directories are lost if no surviving name leads to them, even if they were synced.
//! 3. Every unsynced sector gets one of the versions that it had since its file was synced. The
//!    file gets one of the lengths that it had since that sync, or a length in between.
//!
//! A [`Survival`] is a rule that selects the surviving changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fate::{FileFate, Survival};
use super::file::File;
use super::tree::{Change, Dir, Node, NodeId, ROOT, Tree};
use crate::rng::Rng;

type NameRef<'a> = (NodeId, &'a str);
/// For each name with unsynced changes, how many of them survive. Older changes survive first.
type Kept<'a> = BTreeMap<NameRef<'a>, usize>;

/// Returns the tree after a power cut.
pub(super) fn after_power_cut(tree: &Tree, seed: u64) -> Tree {
    let mut rng = Rng::from_seed(seed);
    let names = Survival::draw(&mut rng);
    // In half of the images the same rule applies to all files. In the other half, each file draws
    // its own rule.
    let files = rng.chance(1, 2).then(|| Survival::draw(&mut rng));
    let mut kept = draw_names(tree, names, &mut rng);
    keep_renamed(tree, &mut kept);
    let mut nodes = BTreeMap::new();
    let mut todo = vec![ROOT];
    while let Some(id) = todo.pop() {
        let Some(node) = tree.nodes.get(&id).filter(|_| !nodes.contains_key(&id)) else { continue };
        let node = match node {
            Node::Dir(dir) => {
                let dir = dir_after(id, dir, &kept);
                todo.extend(dir.names.values());
                Node::Dir(dir)
            }
            Node::File(file) => Node::File(file_after(id, file, seed, files)),
        };
        nodes.insert(id, node);
    }
    tree.with_nodes(nodes)
}

fn draw_names<'a>(tree: &'a Tree, survival: Survival, rng: &mut Rng) -> Kept<'a> {
    let mut kept = Kept::new();
    for (id, dir) in dirs(tree) {
        // A random point in the order of operations. `Front` keeps the changes before the point.
        // `Back` keeps all changes of each name that was changed at the point or later.
        let stamps = dir.pending.values().flatten().map(|change| change.stamp);
        let (first, last) = (stamps.clone().min().unwrap_or(0), stamps.max().unwrap_or(0));
        let point = first + rng.below(last - first + 2);
        for (name, changes) in &dir.pending {
            let count = match survival {
                Survival::Nothing => 0,
                Survival::Everything => changes.len(),
                Survival::Front => changes.iter().filter(|change| change.stamp < point).count(),
                Survival::Back if changes.iter().any(|change| change.stamp >= point) => {
                    changes.len()
                }
                Survival::Back => 0,
                Survival::Some(eighths) if rng.chance(eighths, 8) => {
                    1 + rng.below(changes.len() as u64) as usize
                }
                Survival::Some(_) => 0,
            };
            kept.insert((id, name), count);
        }
    }
    kept
}

/// Restores the old name of each rename that lost its new name. Repeats this until nothing changes,
/// because a restored name may itself be the new name of another rename.
fn keep_renamed<'a>(tree: &'a Tree, kept: &mut Kept<'a>) {
    loop {
        let mut changed = false;
        for (id, dir) in dirs(tree) {
            for (name, changes) in &dir.pending {
                let count = kept.get(&(id, &**name)).copied().unwrap_or(0);
                let lost = |change: &Change| is_lost(tree, kept, change);
                if let Some(first) = changes[..count].iter().position(lost) {
                    kept.insert((id, name), first);
                    changed = true;
                }
            }
        }
        if !changed {
            return;
        }
    }
}

/// Whether `change` removes the old name in a rename whose new name is lost.
fn is_lost(tree: &Tree, kept: &Kept<'_>, change: &Change) -> bool {
    let Some((id, name)) = &change.moved_to else { return false };
    let Some(Node::Dir(dir)) = tree.nodes.get(id) else { return false };
    let Some(changes) = dir.pending.get(name) else { return false };
    let at = changes.iter().position(|other| other.stamp == change.stamp);
    at.is_some_and(|at| at >= kept.get(&(*id, &**name)).copied().unwrap_or(0))
}

fn dirs(tree: &Tree) -> impl Iterator<Item = (NodeId, &Dir)> {
    tree.nodes.iter().filter_map(|(id, node)| match node {
        Node::Dir(dir) if !dir.pending.is_empty() => Some((*id, &**dir)),
        _ => None,
    })
}

fn dir_after(id: NodeId, dir: &Arc<Dir>, kept: &Kept<'_>) -> Arc<Dir> {
    if dir.pending.is_empty() {
        return Arc::clone(dir);
    }
    let mut names = dir.durable.clone();
    for (name, changes) in &dir.pending {
        let count = kept.get(&(id, &**name)).copied().unwrap_or(0);
        match changes[..count].last().map(|change| change.target) {
            Some(Some(node)) => drop(names.insert(Arc::clone(name), node)),
            Some(None) => drop(names.remove(name)),
            None => {}
        }
    }
    Arc::new(Dir { durable: names.clone(), names, pending: BTreeMap::new() })
}

fn file_after(id: NodeId, file: &Arc<File>, seed: u64, survival: Option<Survival>) -> Arc<File> {
    if file.is_clean() {
        return Arc::clone(file);
    }
    // Each file has its own random sequence, so that the choices for one file do not depend on the
    // size of another.
    let mut rng = Rng::from_seed(seed ^ id.wrapping_mul(0xd6e8_feb8_6659_fd93));
    let survival = survival.unwrap_or_else(|| Survival::draw(&mut rng));
    let point = rng.below(file.dirty_sectors() + 1);
    let mut fate = FileFate { rng, survival, met: 0, point };
    Arc::new(file.after_power_cut(&mut fate))
}
