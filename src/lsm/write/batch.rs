//! Defines a batch: the mutations of one commit, each with a condition on the newest entry of its
//! key.
//!
//! Not here: entities and their limits (`table`), the log's encoding (`format::wal`).

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::error::{Code, Error, Result};
use crate::format::Kind;
use crate::format::names::TableId;
use crate::format::row::{self, RowHead};
use crate::format::span::Span;
use crate::format::wal::Change;
use crate::model::{Body, NewRow, Row, RowRef, Seq, ShapeId, ShapeRef, Shapes, merge_rows};
use crate::sync::{AtomicBool, AtomicU64, Ordering};

use super::gates::SpanGate;
use crate::lsm::read::view::Current;

/// A list of mutations that are applied atomically.
pub(crate) struct Batch<'a> {
    /// The gate of the table that the batch writes to. Every write checks it. A commit that drops
    /// the table closes it.
    pub(crate) gate: Arc<Gate>,
    pub(crate) ops: Ops<'a>,
    /// The length of the prefix shared by all keys. The log stores the prefix once.
    pub(crate) prefix_len: usize,
    /// True if errors must name the index of the failing operation.
    pub(crate) is_group: bool,
    /// The tables that this commit creates or drops, and the key spans that it deletes.
    pub(crate) changes: Vec<TableChange>,
    /// The gate that this commit closes, so that writes to a key span, or all access to it, are
    /// refused.
    pub(crate) closes: Option<SpanGate>,
    /// Checks the row that results from a merge, together with its key.
    pub(crate) check_merged: fn(&[u8], &RowRef<'_>) -> Result<()>,
}

/// The operations of a batch; most commits have one.
pub(crate) type Ops<'a> = SmallVec<[Op<'a>; 1]>;

/// One mutation. No other operation of the batch has the same key.
pub(crate) struct Op<'a> {
    /// The user key.
    pub(crate) key: Cow<'a, [u8]>,
    pub(crate) hash: u64,
    pub(crate) condition: Condition,
    pub(crate) action: Action<'a>,
}

/// The approximate memtable overhead of an entry, in bytes, besides its key and row.
const ENTRY_BYTES: usize = 48;

/// The condition that the newest entry of the key must meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Any,
    Absent,
    Present,
    /// The newest entry was written by the commit with this Seq.
    Is(Seq),
}

pub(crate) enum Action<'a> {
    Put(PackedRow<'a>),
    /// Sets the given properties and keeps the others. If no row exists, it acts like a put.
    Merge(Row),
    Delete,
}

/// A row encoded for the memtable and the log, as a head and a body. An existing body is borrowed,
/// and copied only into the log buffer and the memtable.
#[derive(Clone, Debug)]
pub(crate) struct PackedRow<'a> {
    /// The shape whose definition the log needs; `None` for a self-describing row.
    pub(crate) shape: Option<ShapeId>,
    head: RowHead,
    body: Body<'a>,
}

/// The gate of a table: the state that every write to the table checks. The commit that drops the
/// table closes the gate.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) table: TableId,
    /// The Seq of the commit that drops the table; 0 if there is none.
    dropped_at: AtomicU64,
    /// True if FIFO eviction drops the table's oldest files near the space limit. Files of such a
    /// table overlap without being merged.
    is_fifo: AtomicBool,
}

/// A change that a commit makes to a whole table or key span.
#[derive(Clone, Debug)]
pub(crate) enum TableChange {
    Created(TableId),
    Dropped(Arc<Gate>),
    /// All entries of the span are deleted.
    Fenced(Span),
    /// Entries of the span with a Seq below the given one are deleted. The given Seq must be below
    /// the Seq of the commit.
    Expired(Span, Seq),
}

impl TableChange {
    /// Converts the change to its log format.
    pub(crate) fn logged(&self) -> Change {
        match self {
            TableChange::Created(table) => Change::Created(*table),
            TableChange::Dropped(gate) => Change::Dropped(gate.table),
            TableChange::Fenced(span) => Change::RangeTombstone(span.clone()),
            TableChange::Expired(span, below) => Change::Ttl(*below, span.clone()),
        }
    }

    /// True for an expiry whose bound is at or above `seq`, the Seq of the commit. A higher bound
    /// could hide entries that are not written yet.
    pub(crate) fn is_ahead_of(&self, seq: Seq) -> bool {
        matches!(self, TableChange::Expired(_, below) if *below >= seq)
    }

    /// Returns an upper bound of the change's size in a log, in bytes.
    pub(crate) fn bytes_max(&self) -> usize {
        match self {
            TableChange::Created(_) | TableChange::Dropped(_) => 16,
            TableChange::Fenced(span) | TableChange::Expired(span, _) => {
                32 + span.low.len() + span.high.as_ref().map_or(0, |high| high.len())
            }
        }
    }

    /// True if the commit must be synced. Once the change is published, background jobs may durably
    /// remove files, so a power cut must not undo the change.
    pub(crate) fn must_be_durable(&self) -> bool {
        !matches!(self, TableChange::Created(_))
    }
}

impl Gate {
    pub(crate) fn new(table: TableId) -> Self {
        Self { table, dropped_at: AtomicU64::new(0), is_fifo: AtomicBool::new(false) }
    }

    /// Returns the Seq of the commit that drops the table, published or not.
    pub(crate) fn dropped_at(&self) -> Option<Seq> {
        let ticks = self.dropped_at.load(Ordering::Acquire);
        (ticks > 0).then_some(Seq(ticks))
    }

    pub(in crate::lsm) fn set_fifo(&self) {
        self.is_fifo.store(true, Ordering::Release);
    }

    pub(super) fn is_fifo(&self) -> bool {
        self.is_fifo.load(Ordering::Acquire)
    }

    /// Closes the table for commits after `seq`. Requires the commit lock.
    pub(crate) fn close(&self, seq: Seq) {
        debug_assert!(self.dropped_at().is_none(), "a table is dropped once");
        self.dropped_at.store(seq.0, Ordering::Release);
    }

    /// Checks that a read at `published` may use the table. Call it after the read has pinned its
    /// view, because the view may lack the rows of a dropped table.
    ///
    /// # Errors
    /// `TableNotFound` if the table is dropped as of `published`.
    pub(crate) fn check(&self, published: Seq) -> Result<()> {
        match self.dropped_at() {
            Some(at) if at <= published => Err(Error::refused(Code::TableNotFound)),
            _ => Ok(()),
        }
    }
}

impl<'a> PackedRow<'a> {
    /// Encodes the row. The body is copied only for a self-describing row.
    #[inline]
    pub(crate) fn new(row: NewRow<'a>) -> Self {
        let NewRow { number, shape, body } = row;
        match number {
            Some(id) => Self { shape: number, head: RowHead::new(id.0), body },
            None => {
                let mut bytes = Vec::new();
                row::encode_row(&mut bytes, None, &RowRef { shape, body: body.as_slice() });
                Self { shape: None, head: RowHead::default(), body: Body::Owned(bytes) }
            }
        }
    }

    /// As [`new`](Self::new), for a row whose shape may not be registered. Registers the shape in
    /// `shapes` if there is space for it.
    pub(crate) fn of(row: Row, shapes: &Shapes) -> Self {
        let number = shapes.number(&row.shape);
        Self::new(NewRow { number, shape: ShapeRef::Own(row.shape), body: Body::Owned(row.body) })
    }

    /// Returns the head and the body.
    #[inline]
    pub(crate) fn parts(&self) -> [&[u8]; 2] {
        [self.head.as_slice(), self.body.as_slice()]
    }

    pub(crate) fn len(&self) -> usize {
        let [head, body] = self.parts();
        head.len() + body.len()
    }
}

impl Batch<'_> {
    /// Creates a batch of one change, without entities.
    pub(crate) fn of_change(gate: &Arc<Gate>, change: TableChange) -> Self {
        Self::of_changes(gate, vec![change])
    }

    /// Creates a batch of several changes in one commit.
    pub(crate) fn of_changes(gate: &Arc<Gate>, changes: Vec<TableChange>) -> Self {
        Batch {
            gate: Arc::clone(gate),
            ops: Ops::new(),
            prefix_len: 0,
            is_group: false,
            changes,
            closes: None,
            check_merged: |_, _| Ok(()),
        }
    }
}

impl Op<'_> {
    /// True if the result of the operation depends on the newest entry of its key.
    pub(crate) fn needs_current(&self) -> bool {
        self.condition != Condition::Any || matches!(self.action, Action::Merge(_))
    }

    /// Returns the approximate size of the operation's entry in a memtable, in bytes. For a merge,
    /// this is the size with the patch as the row, because the resulting row is not known yet.
    pub(crate) fn memtable_bytes(&self) -> usize {
        let row = match &self.action {
            Action::Put(row) => row.len(),
            Action::Merge(patch) => patch.body.len(),
            Action::Delete => 0,
        };
        self.bytes_with(row)
    }

    /// Returns the approximate size of the operation's entry in a memtable, in bytes, if its row
    /// has `row` bytes.
    pub(in crate::lsm) fn bytes_with(&self, row: usize) -> usize {
        self.key.len() + row + ENTRY_BYTES
    }

    /// True if the result depends on the newest entry's row, not only on its existence.
    pub(crate) fn needs_row(&self) -> bool {
        matches!(self.action, Action::Merge(_))
    }

    /// Checks the condition against the entry `current`.
    ///
    /// # Errors
    /// The Azure error code for an unmet condition.
    pub(crate) fn check(&self, current: Option<&Current<'_>>) -> Result<(), Code> {
        match (self.condition, current.filter(|c| c.kind == Kind::Put)) {
            (Condition::Any, _) | (Condition::Absent, None) | (Condition::Present, Some(_)) => {
                Ok(())
            }
            (Condition::Absent, Some(_)) => Err(Code::EntityAlreadyExists),
            (Condition::Present | Condition::Is(_), None) => Err(Code::ResourceNotFound),
            (Condition::Is(seq), Some(c)) if c.seq == seq => Ok(()),
            (Condition::Is(_), Some(_)) => Err(Code::UpdateConditionNotSatisfied),
        }
    }

    /// Returns the row that results from applying `patch` to `current`.
    pub(crate) fn merged(
        patch: &Row,
        current: Option<&Current<'_>>,
        shapes: &Shapes,
        check: impl FnOnce(&RowRef<'_>) -> Result<()>,
    ) -> Result<PackedRow<'static>> {
        let old = current.filter(|c| c.kind == Kind::Put).and_then(|c| c.row.as_ref());
        let Some(old) = old else {
            return Ok(PackedRow::of(patch.clone(), shapes));
        };
        let is_checked = current.is_some_and(|c| c.is_checked);
        let merged = merge_rows(old, &patch.as_ref(), is_checked)
            .map_err(|error| Error::decode("merge".as_ref(), 0, error))?;
        check(&merged.as_ref())?;
        Ok(PackedRow::of(merged, shapes))
    }
}
