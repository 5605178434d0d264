//! Bulk input: rows in any order, committed in entity groups that are formed inside.
//!
//! Invariants
//! * a row is rejected alone: the rest of its group is committed without it;
//! * rows with one key are committed in the order they came in;
//! * what is held in memory is bounded, whatever the order of partitions;
//! * a line is acknowledged when all lines before it are committed or rejected, so that a load can go on behind it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use crate::error::{Error, ErrorKind, Result};
use crate::format::key::partition_of;
use crate::lsm::{Action, CommitTicket, Condition, Op, PackedRow};
use crate::model::{Entity, GROUP_OPERATIONS_MAX, GROUP_SIZE_MAX};
use crate::options::Durability;

use super::Table;

/// Rows taken after which none waits any longer for its group to fill.
const WAITING_ROWS_MAX: usize = 20_000;
/// And bytes of rows that wait, over all partitions.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// Groups on their way to the disk: enough to share syncs, few enough to bound what a stop may repeat.
const TICKETS_MAX: usize = 64;

/// What a load does with a row whose key exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum LoadMode {
    /// The row is rejected with `EntityAlreadyExists`.
    #[cfg_attr(feature = "cli", value(help = "Must be new"))]
    Insert,
    /// The row replaces it.
    #[cfg_attr(feature = "cli", value(help = "Insert or replace"))]
    Upsert,
    /// The row's properties are set.
    #[cfg_attr(feature = "cli", value(help = "Insert or merge"))]
    UpsertMerge,
}

/// A row that was not loaded, and why.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// The line given with the row.
    pub line: u64,
    /// Why.
    pub error: Error,
}

/// What a load came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadSummary {
    /// Rows loaded.
    pub loaded: u64,
    /// Rows rejected.
    pub rejected: u64,
    /// Groups they were committed in.
    pub groups: u64,
}

/// Loads many entities in any order, in groups of up to 100 a partition.
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
    /// The greatest partition so far.
    highest: Vec<u8>,
    bytes: usize,
    /// Rows taken since all that waited was committed.
    taken: usize,
    /// Groups under way, oldest first.
    tickets: VecDeque<Submitted>,
    /// The first lines of the groups that wait or are under way, and how many begin there.
    starts: BTreeMap<u64, usize>,
    /// The last lines of groups that are as durable as asked, but behind a line that is not.
    held: BinaryHeap<Reverse<u64>>,
    rejected: Vec<Rejected>,
    acknowledged: Option<Box<dyn FnMut(u64) + Send>>,
    summary: LoadSummary,
}

/// The rows of one partition that wait.
#[derive(Default)]
struct Waiting {
    ops: Vec<Op<'static>>,
    lines: Vec<u64>,
    keys: HashSet<u64, BuildHasherDefault<AsItIs>>,
    /// At the most: groups are a little smaller where texts are not ASCII.
    size: usize,
    /// The first line, even if that is rejected later.
    start: u64,
}

/// Hashes of keys are spread already, by a seed that nobody outside knows.
#[derive(Default)]
struct AsItIs(u64);

/// A group under way.
struct Submitted {
    ticket: CommitTicket,
    start: u64,
    last: u64,
    rows: u64,
}

impl Waiting {
    /// With room for a full group: nothing of it is moved while it fills.
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
    /// Begins a bulk load.
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
    /// What to do with keys that exist. Default: [`LoadMode::Insert`].
    pub fn mode(mut self, mode: LoadMode) -> Self {
        self.mode = mode;
        self
    }

    /// How durable each group is when it is acknowledged. Default: the table handle's.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Calls `with` with the last line of each group, in ascending order, once that group and all rows of
    /// earlier lines are as durable as asked, or rejected. Requires that lines ascend.
    pub fn on_acknowledged(mut self, with: impl FnMut(u64) + Send + 'static) -> Self {
        self.acknowledged = Some(Box::new(with));
        self
    }

    /// Takes a row; `line` names it in [`Rejected`] and acknowledgements.
    ///
    /// # Errors
    /// What ends the load: `Io`, `StorageFull`, `Poisoned`, a table that was dropped. A refused row is no error.
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

    /// The rows rejected since the last call. Take them now and then: they are kept until then.
    pub fn take_rejected(&mut self) -> Vec<Rejected> {
        std::mem::take(&mut self.rejected)
    }

    /// What was loaded and acknowledged so far.
    pub fn summary(&self) -> LoadSummary {
        self.summary
    }

    /// Commits what waits and waits until everything is as durable as asked.
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

    /// Commits the rest and ends the load.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn finish(mut self) -> Result<LoadSummary> {
        self.flush()?;
        Ok(self.summary)
    }

    /// What becomes of the entity, in its own allocation.
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
            // Partitions that come in order come to an end: rows left over would come late, and among others.
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
            // The next group of this partition is likely to be full, too.
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
        // By first line: the order of a hash map must not decide what a replayed run does.
        all.sort_unstable_by_key(|waiting| waiting.lines.first().copied());
        all.into_iter().try_for_each(|waiting| self.commit(waiting))
    }

    fn commit(&mut self, waiting: Waiting) -> Result<()> {
        let Waiting { ops, mut lines, size, start, .. } = waiting;
        if ops.is_empty() {
            return Ok(());
        }
        debug_assert!(self.bytes >= size, "a group's bytes are among those that wait");
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
                    // An index says that one operation is at fault, not the engine.
                    let index = error.index().filter(|index| *index < batch.ops.len());
                    let Some(index) = index.filter(|_| is_refusal(&error)) else {
                        return Err(error);
                    };
                    batch.ops.remove(index);
                    let line = lines.remove(index);
                    self.reject(line, error);
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

    /// Ends the group that begins at line `start`; its lines up to `last` were committed. Acknowledges lines that no
    /// earlier open group holds back.
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
