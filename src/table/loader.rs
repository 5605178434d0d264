//! Bulk loading: accepts rows in any order and commits them in entity groups.
//!
//! Invariants
//! * a rejected row does not affect its group: the other rows are committed;
//! * rows with equal keys are committed in input order;
//! * memory is bounded, whatever the order of partitions;
//! * a line is acknowledged when all lines up to it are committed or rejected, so that a load can
//!   resume after it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use crate::error::{Error, ErrorKind, Result};
use crate::format::key::{decode_part, decode_user_key, partition_of};
use crate::lsm::{Action, CommitTicket, Condition, Op, PackedRow};
use crate::model::{Entity, GROUP_OPERATIONS_MAX, GROUP_SIZE_MAX};
use crate::options::Durability;
use crate::sort::sort_by;

use super::Table;

/// Rows wait until their group is full. If this many rows wait, all groups are committed anyway.
const WAITING_ROWS_MAX: usize = 20_000;
/// The same limit for the total size of the waiting rows, in bytes.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// The maximum number of groups in progress: submitted, but not yet as durable as requested. Enough
/// to share syncs; few enough to bound the rows that a resumed load commits again.
const TICKETS_MAX: usize = 64;

/// How to treat a row whose key already exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum LoadMode {
    /// Rejects the row with `EntityAlreadyExists`.
    #[cfg_attr(feature = "cli", value(help = "Must be new"))]
    Insert,
    /// Replaces the existing entity.
    #[cfg_attr(feature = "cli", value(help = "Insert or replace"))]
    Upsert,
    /// Sets the row's properties in the existing entity and keeps its other properties.
    #[cfg_attr(feature = "cli", value(help = "Insert or merge"))]
    UpsertMerge,
}

/// A row that was not loaded, and the reason.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// The number that was passed as `line` with the row.
    pub line: u64,
    /// The reason.
    pub error: Error,
}

/// The result of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadSummary {
    /// The number of rows loaded.
    pub loaded: u64,
    /// The number of rows rejected.
    pub rejected: u64,
    /// The number of groups committed.
    pub groups: u64,
}

/// Loads many entities in any order, in groups of up to 100 per partition.
///
/// ```
/// # fn main() -> rowstone::Result<()> {
/// # use rowstone::{Db, Entity};
/// let parts = Db::open_in_memory()?.create_table("parts")?;
/// let mut loader = parts.loader();
/// for line in 1..=1_000u64 {
///     loader.push(line, Entity::new(format!("p{}", line % 7), format!("{line:06}")))?;
/// }
/// assert_eq!(loader.finish()?.loaded, 1_000);
/// # Ok(())
/// # }
/// ```
pub struct Loader {
    table: Table,
    mode: LoadMode,
    durability: Durability,
    waiting: HashMap<Vec<u8>, Waiting>,
    /// The greatest encoded PartitionKey so far.
    highest: Vec<u8>,
    bytes: usize,
    /// The number of rows accepted since all waiting groups were last committed together.
    taken: usize,
    /// The groups in progress (see [`TICKETS_MAX`]), oldest first.
    tickets: VecDeque<Submitted>,
    /// The numbers of unfinished groups (waiting or in progress), by the groups' first line.
    starts: BTreeMap<u64, usize>,
    /// The last lines of finished groups that cannot be acknowledged yet, because a group with an
    /// earlier line is not finished.
    held: BinaryHeap<Reverse<u64>>,
    rejected: Vec<Rejected>,
    acknowledged: Option<Box<dyn FnMut(u64) + Send>>,
    summary: LoadSummary,
}

/// The rows of one partition that wait until their group is full.
#[derive(Default)]
struct Waiting {
    ops: Vec<Op<'static>>,
    lines: Vec<u64>,
    keys: HashSet<u64, BuildHasherDefault<AsItIs>>,
    /// An upper bound for the size of the group. The exact size is smaller if texts are not ASCII.
    size: usize,
    /// The first line of the group, even if that row is rejected when the group is committed.
    start: u64,
}

/// Returns its input as the hash. The keys of the set are themselves hashes, which are uniform and
/// depend on a secret seed.
#[derive(Default)]
struct AsItIs(u64);

/// A group in progress.
struct Submitted {
    ticket: CommitTicket,
    start: u64,
    last: u64,
    rows: u64,
}

impl Waiting {
    /// Creates an empty group with the capacity of a full one, which needs no reallocation.
    fn roomy() -> Self {
        Self {
            ops: Vec::with_capacity(GROUP_OPERATIONS_MAX),
            lines: Vec::with_capacity(GROUP_OPERATIONS_MAX),
            keys: HashSet::with_capacity_and_hasher(GROUP_OPERATIONS_MAX, Default::default()),
            ..Self::default()
        }
    }
}

impl Table {
    /// Starts a bulk load.
    pub fn loader(&self) -> Loader {
        Loader {
            durability: self.durability(),
            table: self.clone(),
            mode: LoadMode::Insert,
            waiting: HashMap::new(),
            highest: Vec::new(),
            bytes: 0,
            taken: 0,
            tickets: VecDeque::new(),
            starts: BTreeMap::new(),
            held: BinaryHeap::new(),
            rejected: Vec::new(),
            acknowledged: None,
            summary: LoadSummary::default(),
        }
    }
}

impl Loader {
    /// Sets how rows with existing keys are treated. Default: [`LoadMode::Insert`].
    pub fn mode(mut self, mode: LoadMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the durability that a group must have before its lines are acknowledged. Default: the
    /// durability of the table handle.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets a function to call for each group, in ascending order, with the last line of the group.
    /// It is called when all rows up to that line are rejected or have the requested durability.
    /// Requires that the lines passed to [`push`](Self::push) ascend.
    pub fn on_acknowledged(mut self, with: impl FnMut(u64) + Send + 'static) -> Self {
        self.acknowledged = Some(Box::new(with));
        self
    }

    /// Adds a row; `line` identifies it in [`Rejected`] and in acknowledgements.
    ///
    /// # Errors
    /// Errors that end the load: `Io`, `StorageFull`, `Poisoned`, or `NotFound` if the table was
    /// dropped. A rejected row is not an error.
    pub fn push(&mut self, line: u64, entity: Entity) -> Result<()> {
        let size = entity.size_at_most();
        match self.op(entity) {
            Ok(op) => self.wait(line, op, size),
            Err(error) => {
                self.reject(line, error);
                Ok(())
            }
        }
    }

    /// Returns the rows rejected since the last call. Call this regularly, because rejected rows
    /// are kept in memory until then.
    pub fn take_rejected(&mut self) -> Vec<Rejected> {
        std::mem::take(&mut self.rejected)
    }

    /// Returns the number of rows and groups that are committed so far.
    pub fn summary(&self) -> LoadSummary {
        self.summary
    }

    /// Commits all waiting rows and blocks until all groups have the requested durability.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn flush(&mut self) -> Result<()> {
        self.commit_all()?;
        while !self.tickets.is_empty() {
            self.await_oldest()?;
        }
        Ok(())
    }

    /// Commits the remaining rows and ends the load.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn finish(mut self) -> Result<LoadSummary> {
        self.flush()?;
        Ok(self.summary)
    }

    /// Returns the operation for an entity. It reuses the entity's allocation.
    fn op(&self, entity: Entity) -> Result<Op<'static>> {
        let shapes = &self.table.engine.env().shapes;
        let (key, hash) = self.table.checked_key(entity.partition_key(), entity.row_key())?;
        let condition = match self.mode {
            LoadMode::Insert => Condition::Absent,
            LoadMode::Upsert | LoadMode::UpsertMerge => Condition::Any,
        };
        let action = match self.mode {
            LoadMode::UpsertMerge => Action::Merge(entity.to_row_of_checked_keys(shapes)?),
            _ => Action::Put(PackedRow::new(entity.into_new_row(shapes)?)),
        };
        Ok(Op { key: key.into(), hash, condition, action })
    }

    fn wait(&mut self, line: u64, op: Op<'static>, size: usize) -> Result<()> {
        let partition = partition_of(&op.key).unwrap_or(&op.key);
        if partition > self.highest.as_slice() {
            // If the input is ordered by partition, the previous partition is now complete. Its
            // waiting rows are committed at once, so that commits stay in key order.
            let last = std::mem::replace(&mut self.highest, partition.to_vec());
            if let Some(rest) = self.waiting.remove(&last) {
                self.commit(rest)?;
            }
        }
        let waiting = match self.waiting.get_mut(partition) {
            Some(waiting) => waiting,
            None => self.waiting.entry(partition.to_vec()).or_default(),
        };
        let is_full = waiting.ops.len() >= GROUP_OPERATIONS_MAX
            || waiting.size + size > GROUP_SIZE_MAX
            || waiting.keys.contains(&op.hash);
        if is_full && !waiting.ops.is_empty() {
            // This partition has filled a group, so its next group is likely to become full, too.
            let full = std::mem::replace(waiting, Waiting::roomy());
            self.commit(full)?;
            return self.wait(line, op, size);
        }
        if waiting.ops.is_empty() {
            waiting.start = line;
            *self.starts.entry(line).or_default() += 1;
        }
        waiting.keys.insert(op.hash);
        waiting.ops.push(op);
        waiting.lines.push(line);
        debug_assert_eq!(waiting.ops.len(), waiting.lines.len(), "each row has its line");
        debug_assert_eq!(waiting.ops.len(), waiting.keys.len(), "a group has each key once");
        debug_assert!(waiting.ops.len() <= GROUP_OPERATIONS_MAX, "a group has a limit");
        waiting.size += size;
        self.bytes += size;
        self.taken += 1;
        if self.taken >= WAITING_ROWS_MAX || self.bytes >= WAITING_BYTES_MAX {
            self.commit_all()?;
        }
        Ok(())
    }

    fn commit_all(&mut self) -> Result<()> {
        self.taken = 0;
        let mut all: Vec<Waiting> = self.waiting.drain().map(|(_, waiting)| waiting).collect();
        let bytes = all.iter().map(|waiting| waiting.size).sum::<usize>();
        debug_assert!(self.bytes >= bytes, "the rows that wait are counted");
        // Sorts by first line: the order of commits must not depend on the order of the hash map.
        sort_by(&mut all, |a, b| a.lines.first().cmp(&b.lines.first()));
        all.into_iter().try_for_each(|waiting| self.commit(waiting))
    }

    fn commit(&mut self, waiting: Waiting) -> Result<()> {
        let Waiting { ops, mut lines, size, start, .. } = waiting;
        if ops.is_empty() {
            return Ok(());
        }
        debug_assert!(self.bytes >= size, "the bytes of a group are included in the waiting bytes");
        self.bytes -= size;
        let mut batch = self.table.batch(ops, true);
        while !batch.ops.is_empty() {
            match CommitTicket::submit(&self.table.engine, &batch, self.durability) {
                Ok(ticket) => {
                    let last = lines.iter().copied().max().unwrap_or_default();
                    let rows = lines.len() as u64;
                    self.tickets.push_back(Submitted { ticket, start, last, rows });
                    break;
                }
                Err(error) => {
                    // An error with an index means that one operation failed, not the engine.
                    let index = error.index().filter(|index| *index < batch.ops.len());
                    let Some(index) = index.filter(|_| is_refusal(&error)) else {
                        return Err(error);
                    };
                    let op = batch.ops.remove(index);
                    self.reject(lines.remove(index), self.about(error, &op.key));
                }
            }
        }
        if batch.ops.is_empty() {
            self.finish_group(start, None);
        }
        if self.tickets.len() >= TICKETS_MAX {
            self.await_oldest()?;
        }
        Ok(())
    }

    fn await_oldest(&mut self) -> Result<()> {
        let Some(oldest) = self.tickets.pop_front() else { return Ok(()) };
        debug_assert!(self.tickets.len() < TICKETS_MAX, "few groups are under way");
        oldest.ticket.wait()?;
        self.summary.loaded += oldest.rows;
        self.summary.groups += 1;
        self.finish_group(oldest.start, Some(oldest.last));
        Ok(())
    }

    /// Ends the group whose first line is `start`; `last` is its last committed line, if any.
    /// Acknowledges the lines in `held` that precede all groups still waiting or in progress.
    fn finish_group(&mut self, start: u64, last: Option<u64>) {
        debug_assert!(self.starts.contains_key(&start), "a group that ends had begun");
        if let Some(count) = self.starts.get_mut(&start) {
            debug_assert!(*count > 0, "a group that begins here is under way");
            *count -= 1;
            if *count == 0 {
                self.starts.remove(&start);
            }
        }
        let Some(acknowledged) = &mut self.acknowledged else { return };
        self.held.extend(last.map(Reverse));
        let open = self.starts.first_key_value().map_or(u64::MAX, |(start, _)| *start);
        while let Some(Reverse(line)) = self.held.peek().copied().filter(|held| held.0 < open) {
            self.held.pop();
            acknowledged(line);
        }
    }

    /// Adds the entity with this encoded key to an error.
    fn about(&self, error: Error, key: &[u8]) -> Error {
        let keys =
            decode_user_key(key).and_then(|(_, pk, rk)| Ok((decode_part(pk)?, decode_part(rk)?)));
        match keys {
            Ok((pk, rk)) => self.table.about(error, (&pk, &rk)),
            Err(_) => error,
        }
    }

    fn reject(&mut self, line: u64, error: Error) {
        self.summary.rejected += 1;
        self.rejected.push(Rejected { line, error });
    }
}

impl Hasher for AsItIs {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn is_refusal(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::AlreadyExists
            | ErrorKind::NotFound
            | ErrorKind::PreconditionFailed
            | ErrorKind::InvalidInput
    )
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader").field("summary", &self.summary).finish_non_exhaustive()
    }
}
