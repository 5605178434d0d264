//! Keeps a memtable in order as sorted runs of its nodes, which scans and background steps create.
//! The *head* of an item (an entry of a run) is the eight bytes of its key after the common prefix
//! of the run's keys. Heads decide most comparisons without access to a node. A group of items with
//! equal heads is sorted like a run of its own, with its own prefix and heads. `state` is locked
//! while the tail (the nodes in no run) is sorted or runs are replaced, but not while large runs
//! are merged.
//!
//! Invariants
//! * a node is in at most one run of the current list; nodes in no run are newer than `sorted`;
//! * a run is in order (user key ascending, Seq descending) and never changes.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::sync::Arc;

use super::arena::{Arena, Handle, Link, Node};
use crate::codec::shared_len;
use crate::format::key::head as key_head;
use crate::model::Seq;
use crate::sync::{AtomicUsize, Mutex, Ordering};

/// The maximum number of runs that a scan merges.
pub(super) const RUNS_MAX: usize = 16;
/// The minimum number of nodes that a background step sorts into a new run. Sorting this many nodes
/// accesses no more memory than the second-level cache holds.
pub(super) const TAIL_LEN: usize = 4096;
/// The maximum number of items in a run that a scan creates by merging. Longer merges are left to
/// background steps.
const SCAN_MERGE_MAX: usize = 2 * TAIL_LEN;
/// A scan merges its new run with another if both together have at most this many items, because
/// copying them costs less than iterating over one more run.
const SCAN_MERGE_ALL: usize = 512;
/// Groups (items with equal heads) of up to this length are sorted and merged by comparing whole
/// keys.
const GROUP_SMALL: usize = 8;

/// An iteration prefetches this many items ahead: a step takes about 10 ns, a memory access about
/// 100 ns.
const AHEAD: usize = 12;

/// A sorted run.
pub(super) struct Run {
    items: Box<[Item]>,
    /// The length of the common prefix of all keys of the run.
    skip: usize,
    resident: Arc<AtomicUsize>,
}

/// A node and its head.
#[derive(Clone, Copy)]
pub(super) struct Item {
    /// The eight bytes of the key after `skip`, as an integer with the same order.
    pub(super) head: u64,
    pub(super) node: Handle,
}

/// The runs of a memtable.
pub(super) struct Order {
    state: Mutex<State>,
    /// The bytes of all runs, including runs that only an iterator still references.
    resident: Arc<AtomicUsize>,
}

struct State {
    /// The runs, in descending order of length.
    runs: Vec<Arc<Run>>,
    /// The newest node that is in a run. Nodes after it are the *tail*.
    sorted: Option<Handle>,
    sorted_len: usize,
}

impl Order {
    pub(super) fn new() -> Self {
        let state = State { runs: Vec::new(), sorted: None, sorted_len: 0 };
        Self { state: Mutex::new(state), resident: Arc::new(AtomicUsize::new(0)) }
    }

    pub(super) fn bytes(&self) -> usize {
        self.resident.load(Ordering::Relaxed)
    }

    /// Returns runs that contain every node up to `newest`, at most [`RUNS_MAX`] of them.
    pub(super) fn runs(&self, arena: &Arena, newest: &Link) -> Vec<Arc<Run>> {
        let mut state = self.state.lock();
        self.sort_tail(&mut state, arena, newest);
        while let Some(pair) = state.pair_to_scan() {
            let merged = self.merge_runs(arena, &state.runs[pair], &state.runs[pair + 1]);
            state.replace(pair, merged);
        }
        state.runs.clone()
    }

    /// Sorts a long tail, and merges runs of similar length until about `budget` items were moved.
    /// Returns true if any were moved.
    pub(super) fn step(&self, arena: &Arena, newest: &Link, len: usize, budget: usize) -> bool {
        let mut spent = 0;
        let mut state = self.state.lock();
        if len.saturating_sub(state.sorted_len) >= TAIL_LEN {
            spent += self.sort_tail(&mut state, arena, newest);
        }
        while spent < budget {
            let Some(pair) = state.pair() else { break };
            let source = [Arc::clone(&state.runs[pair]), Arc::clone(&state.runs[pair + 1])];
            drop(state);
            let merged = self.merge_runs(arena, &source[0], &source[1]);
            spent += merged.len();
            state = self.state.lock();
            let same = |at: usize, run| state.runs.get(at).is_some_and(|r| Arc::ptr_eq(r, run));
            let found =
                (0..state.runs.len()).find(|&at| same(at, &source[0]) && same(at + 1, &source[1]));
            // If the pair is not found, a scan has already merged one of the two runs, and this
            // merge is dropped.
            if let Some(pair) = found {
                state.replace(pair, merged);
            }
        }
        spent > 0
    }

    /// Sorts the tail up to `newest` into a run. Returns the number of its nodes.
    fn sort_tail(&self, state: &mut State, arena: &Arena, newest: &Link) -> usize {
        let mut items = Vec::new();
        // Load this under the lock. A node loaded earlier might be older than nodes that another
        // thread has sorted since.
        let newest = newest.load(arena);
        let mut next = newest;
        while let Some(node) = next
            && state.sorted != Some(node.handle())
        {
            items.push(Item { head: 0, node: node.handle() });
            next = node.prev();
        }
        let len = items.len();
        if len > 0 {
            state.sorted = newest.map(Node::handle);
            state.sorted_len += len;
            let skip = sort(arena, &mut items);
            let ascend = |a: &Item, b: &Item| compare(arena, a, b).is_lt();
            debug_assert!(
                items.is_sorted_by(ascend),
                "a run is in order and has no two equal entries"
            );
            // If a scan follows each insert, the tail has only one or two nodes, so merge them with
            // the last short run at once.
            let last = state.runs.pop_if(|last| last.len() + len <= SCAN_MERGE_ALL);
            let run = match last {
                Some(last) => self.merge(arena, (&last.items, last.skip), (&items, skip)),
                None => self.run(items, skip),
            };
            state.insert(run);
            let in_runs = state.runs.iter().map(|run| run.len()).sum::<usize>();
            debug_assert_eq!(in_runs, state.sorted_len, "each sorted node is in one run");
        }
        len
    }

    fn merge_runs(&self, arena: &Arena, a: &Run, b: &Run) -> Run {
        self.merge(arena, (&a.items, a.skip), (&b.items, b.skip))
    }

    /// Merges the sorted items of two runs, each given with the number of key bytes that its heads
    /// skip.
    fn merge(&self, arena: &Arena, a: (&[Item], usize), b: (&[Item], usize)) -> Run {
        let skip = common_prefix(arena, [a.0, b.0].into_iter());
        let mut items = Vec::with_capacity(a.0.len() + b.0.len());
        let (a, b) = (with_skip(arena, a, skip), with_skip(arena, b, skip));
        merge(arena, &a, &b, &mut items);
        debug_assert_eq!(items.len(), a.len() + b.len(), "a merge keeps every item");
        self.run(items, skip)
    }

    fn run(&self, items: Vec<Item>, skip: usize) -> Run {
        debug_assert!(!items.is_empty(), "a run has an item");
        let items = items.into_boxed_slice();
        self.resident.fetch_add(size_of_val(&*items), Ordering::Relaxed);
        Run { items, skip, resident: Arc::clone(&self.resident) }
    }
}

impl State {
    fn insert(&mut self, run: Run) {
        let at = self.runs.partition_point(|r| r.len() >= run.len());
        self.runs.insert(at, Arc::new(run));
        debug_assert!(self.runs.is_sorted_by(|a, b| a.len() >= b.len()), "longer runs come first");
    }

    /// Returns the last pair of adjacent runs of similar length, as the index of the pair's first
    /// run.
    fn pair(&self) -> Option<usize> {
        (1..self.runs.len()).rev().map(|at| at - 1).find(|&at| self.is_pair(at))
    }

    /// Returns a pair that a scan must merge first: short runs of similar length or, if there are
    /// too many runs, the two shortest.
    fn pair_to_scan(&self) -> Option<usize> {
        let last = self.runs.len().checked_sub(2)?;
        let len = self.runs[last].len() + self.runs[last + 1].len();
        let is_due = len <= SCAN_MERGE_ALL || len <= SCAN_MERGE_MAX && self.is_pair(last);
        (is_due || self.runs.len() > RUNS_MAX).then_some(last)
    }

    fn is_pair(&self, at: usize) -> bool {
        self.runs[at].len() < 2 * self.runs[at + 1].len()
    }

    fn replace(&mut self, pair: usize, merged: Run) {
        let len = |run: usize| self.runs[run].len();
        debug_assert_eq!(merged.len(), len(pair) + len(pair + 1), "a run replaces its parts");
        self.runs.drain(pair..pair + 2);
        self.insert(merged);
    }
}

impl Run {
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns the item at `at`, with its head computed for `skip` skipped bytes.
    #[inline]
    pub(super) fn item(&self, arena: &Arena, at: usize, skip: usize) -> Option<Item> {
        let item = *self.items.get(at)?;
        prefetch(arena, &self.items[at..]);
        if skip == self.skip {
            return Some(item);
        }
        Some(Item { head: head(arena.node(item.node).key(), skip), node: item.node })
    }

    /// Returns the items from `at` on, in order.
    pub(super) fn items_from(&self, at: usize) -> &[Item] {
        self.items.get(at..).unwrap_or_default()
    }

    /// Returns the index of the first item at or after (`key`, `at`).
    pub(super) fn lower_bound(&self, arena: &Arena, key: &[u8], at: Seq) -> usize {
        let prefix = &arena.node(self.items[0].node).key()[..self.skip];
        let shared = key.len().min(self.skip);
        match prefix[..shared].cmp(&key[..shared]) {
            Less => return self.len(),
            Greater => return 0,
            Equal if shared < self.skip => return 0,
            Equal => {}
        }
        let head = head(key, self.skip);
        let low = self.items.partition_point(|item| item.head < head);
        low + lower_bound_of_group(arena, &self.items[low..], (head, key), at)
    }

    /// Returns the number of items from `from` on with keys below `key`. Checks `guess` first, and
    /// then searches from the front. An item must exist at `from`.
    pub(super) fn below(&self, arena: &Arena, from: usize, key: &[u8], guess: usize) -> usize {
        let items = self.items_from(from);
        if let Some([last, next]) =
            items.get(guess.saturating_sub(1)..).and_then(<[_]>::first_chunk)
            && guess > 0
            && arena.node(next.node).key() == key
            && arena.node(last.node).key() < key
        {
            return guess;
        }
        let Some(first) = items.first() else { return 0 };
        let first = arena.node(first.node).key();
        if first.get(..self.skip) != key.get(..self.skip) {
            // All keys share the prefix of the first key.
            return if *first < *key { items.len() } else { 0 };
        }
        let head = head(key, self.skip);
        let low = below(items, head);
        low + lower_bound_of_group(arena, &items[low..], (head, key), Seq::MAX)
    }
}

/// Converts items whose heads skip `skipped` bytes to items whose heads skip `skip` bytes.
fn with_skip<'r>(
    arena: &Arena,
    (items, skipped): (&'r [Item], usize),
    skip: usize,
) -> std::borrow::Cow<'r, [Item]> {
    if skip == skipped {
        return items.into();
    }
    let mut items = items.to_vec();
    set_heads(arena, &mut items, skip);
    items.into()
}

impl Drop for Run {
    fn drop(&mut self) {
        self.resident.fetch_sub(size_of_val(&*self.items), Ordering::Relaxed);
    }
}

/// Compares two items: user key ascending, Seq descending.
#[inline]
pub(super) fn compare(arena: &Arena, a: &Item, b: &Item) -> std::cmp::Ordering {
    a.head.cmp(&b.head).then_with(|| {
        let (a, b) = (arena.node(a.node), arena.node(b.node));
        a.key().cmp(b.key()).then_with(|| b.seq().cmp(&a.seq()))
    })
}

/// Returns the index of the first item at or after (`key`, `at`). No head in `items` may be below
/// `head`. Accesses only nodes whose head equals `head`, because nodes are scattered in memory.
fn lower_bound_of_group(
    arena: &Arena,
    items: &[Item],
    (head, key): (u64, &[u8]),
    at: Seq,
) -> usize {
    if items.first().is_none_or(|first| first.head != head) {
        return 0;
    }
    let group = &items[..below_or_at(items, head)];
    group.partition_point(|item| {
        let node = arena.node(item.node);
        node.key().cmp(key).then(at.cmp(&node.seq())) == Less
    })
}

/// Returns the length of the common prefix of all keys of these runs, from their first and last
/// keys.
pub(super) fn common_prefix_of_runs(arena: &Arena, runs: &[Arc<Run>]) -> usize {
    common_prefix(arena, runs.iter().map(|run| &*run.items))
}

fn common_prefix<'r>(arena: &Arena, sorted: impl Iterator<Item = &'r [Item]> + Clone) -> usize {
    let key = |item: &Item| arena.node(item.node).key();
    let low = sorted.clone().filter_map(|items| items.first()).map(key).min();
    let high = sorted.filter_map(|items| items.last()).map(key).max();
    low.zip(high).map_or(0, |(low, high)| shared_len(low, high))
}

/// Sorts `items`, and sets their heads. Returns the length of the common prefix, which the heads
/// skip.
fn sort(arena: &Arena, items: &mut [Item]) -> usize {
    // Nodes are linked newest first, which is descending order if keys were inserted in ascending
    // order.
    if let [first, .., last] = items
        && arena.node(first.node).key() > arena.node(last.node).key()
    {
        items.reverse();
    }
    // The heads are not set yet, so whole keys are compared. For unordered keys this check ends
    // after a few comparisons.
    if items.is_sorted_by(|a, b| compare(arena, a, b).is_lt()) {
        let shared = common_prefix(arena, std::iter::once(&*items));
        set_heads(arena, items, shared);
        return shared;
    }
    let (shared, _) = survey(arena, items);
    set_heads(arena, items, shared);
    sort_by_heads(arena, items);
    shared
}

/// Sorts `items`, whose heads must be set. Does not change the heads.
fn sort_by_heads(arena: &Arena, items: &mut [Item]) {
    sort_heads(items);
    for group in items.chunk_by_mut(|a, b| a.head == b.head) {
        if group.len() <= GROUP_SMALL {
            group.sort_unstable_by(|a, b| compare(arena, a, b));
            continue;
        }
        let head = group[0].head;
        match survey(arena, group) {
            (_, Tails::Same) => {
                group.iter_mut().for_each(|item| item.head = !arena.node(item.node).seq().0);
                sort_heads(group);
                group.iter_mut().for_each(|item| item.head = head);
            }
            (_, Tails::OneEnds) => group.sort_unstable_by(|a, b| compare(arena, a, b)),
            (shared, Tails::GoOn) => {
                set_heads(arena, group, shared);
                sort_by_heads(arena, group);
                group.iter_mut().for_each(|item| item.head = head);
            }
        }
    }
}

fn sort_heads(items: &mut [Item]) {
    items.sort_unstable_by_key(|item| item.head);
}

/// How the keys of a group differ after their common prefix.
enum Tails {
    /// All keys are equal.
    Same,
    /// Some key equals the prefix. Heads cannot order the group, because they do not distinguish
    /// the end of a key from a zero byte.
    OneEnds,
    /// All keys continue, but not all with the same bytes.
    GoOn,
}

/// Returns the length of the common prefix of an unsorted group, and how its keys differ after it.
fn survey(arena: &Arena, items: &[Item]) -> (usize, Tails) {
    let mut keys = items.iter().map(|item| arena.node(item.node).key());
    let first = keys.next().unwrap_or_default();
    let (mut shared, mut shortest, mut longest) = (first.len(), first.len(), first.len());
    for key in keys {
        shared = shared_len(&first[..shared], key);
        shortest = shortest.min(key.len());
        longest = longest.max(key.len());
    }
    (shared, tails(shared, shortest, longest))
}

fn tails(shared: usize, shortest: usize, longest: usize) -> Tails {
    match (shared == shortest, shared == longest) {
        (true, true) => Tails::Same,
        (true, false) => Tails::OneEnds,
        _ => Tails::GoOn,
    }
}

/// Merges two sorted slices, whose heads skip the same bytes, into `out`.
fn merge(arena: &Arena, mut a: &[Item], mut b: &[Item], out: &mut Vec<Item>) {
    while let (Some(x), Some(y)) = (a.first(), b.first()) {
        match x.head.cmp(&y.head) {
            Less => {
                // Runs of ascending inserts do not interleave, so copy all lower items at once.
                let len = below(a, y.head);
                out.extend_from_slice(&a[..len]);
                a = &a[len..];
            }
            Greater => {
                let len = below(b, x.head);
                out.extend_from_slice(&b[..len]);
                b = &b[len..];
            }
            Equal => {
                let (group_a, group_b) = (group_len(a), group_len(b));
                merge_group(arena, &a[..group_a], &b[..group_b], out);
                a = &a[group_a..];
                b = &b[group_b..];
            }
        }
    }
    out.extend_from_slice(a);
    out.extend_from_slice(b);
}

/// Merges two groups with the same head.
fn merge_group(arena: &Arena, a: &[Item], b: &[Item], out: &mut Vec<Item>) {
    let by_keys = |x: &Item, y: &Item| compare(arena, x, y) == Less;
    if a.len() + b.len() <= GROUP_SMALL {
        return merge_by(a, b, by_keys, out);
    }
    let key = |item: Option<&Item>| item.map(|item| arena.node(item.node).key());
    let low = key(a.first()).min(key(b.first())).unwrap_or_default();
    let high = key(a.last()).max(key(b.last())).unwrap_or_default();
    let shared = shared_len(low, high);
    // In a sorted group, a key that equals the common prefix is the lowest. If all keys equal the
    // prefix, the highest key equals it too.
    match tails(shared, low.len(), high.len()) {
        Tails::Same => merge_by(a, b, |x, y| newest_first(arena, x) < newest_first(arena, y), out),
        Tails::OneEnds => merge_by(a, b, by_keys, out),
        Tails::GoOn => merge_by_next_heads(arena, a, b, shared, out),
    }
}

/// Merges groups by the bytes after the `shared` prefix of their keys. Accesses each node once.
fn merge_by_next_heads<'r>(
    arena: &Arena,
    mut a: &'r [Item],
    mut b: &'r [Item],
    shared: usize,
    out: &mut Vec<Item>,
) {
    let next = |items: &[Item]| {
        prefetch(arena, items);
        items.first().map(|item| head(arena.node(item.node).key(), shared))
    };
    for items in [a, b] {
        items.iter().take(AHEAD).for_each(|item| arena.prefetch(item.node));
    }
    let (mut head_a, mut head_b) = (next(a), next(b));
    while let (Some(x), Some(y)) = (head_a, head_b) {
        if x < y || x == y && compare(arena, &a[0], &b[0]) == Less {
            out.push(a[0]);
            a = &a[1..];
            head_a = next(a);
        } else {
            out.push(b[0]);
            b = &b[1..];
            head_b = next(b);
        }
    }
    out.extend_from_slice(a);
    out.extend_from_slice(b);
}

fn merge_by<'r>(
    mut a: &'r [Item],
    mut b: &'r [Item],
    less: impl Fn(&Item, &Item) -> bool,
    out: &mut Vec<Item>,
) {
    while let (Some(x), Some(y)) = (a.first(), b.first()) {
        let from = if less(x, y) { &mut a } else { &mut b };
        out.push(from[0]);
        *from = &from[1..];
    }
    out.extend_from_slice(a);
    out.extend_from_slice(b);
}

/// Returns how many leading items have heads below `head`. Searches from the front with doubling
/// steps.
fn below(items: &[Item], head: u64) -> usize {
    let mut high = 1;
    while high < items.len() && items[high].head < head {
        high *= 2;
    }
    let low = high / 2;
    let high = high.min(items.len());
    low + items[low..high].partition_point(|item| item.head < head)
}

/// Returns how many leading items have heads at or below `head`. Searches from the front with
/// doubling steps.
fn below_or_at(items: &[Item], head: u64) -> usize {
    head.checked_add(1).map_or(items.len(), |next| below(items, next))
}

/// Returns how many leading items have the same head as the first.
fn group_len(items: &[Item]) -> usize {
    items.iter().take_while(|item| item.head == items[0].head).count()
}

/// Prefetches a node that an iteration over these items will reach, because nodes are scattered in
/// memory.
#[inline]
pub(super) fn prefetch(arena: &Arena, items: &[Item]) {
    if let Some(item) = items.get(AHEAD) {
        arena.prefetch(item.node);
    }
}

fn set_heads(arena: &Arena, items: &mut [Item], skip: usize) {
    for item in items {
        item.head = head(arena.node(item.node).key(), skip);
    }
}

/// Returns the sort key of an item among the versions of one key.
fn newest_first(arena: &Arena, item: &Item) -> std::cmp::Reverse<Seq> {
    std::cmp::Reverse(arena.node(item.node).seq())
}

/// Returns the head of `key` after `skip` skipped bytes.
#[inline]
pub(super) fn head(key: &[u8], skip: usize) -> u64 {
    key_head(key.get(skip..).unwrap_or_default())
}
