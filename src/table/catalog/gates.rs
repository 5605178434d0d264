//! Gates in the catalog: a closed gate blocks operations on a key range (span) of a table.
//!
//! | PartitionKey | RowKey                       | properties                                                             |
//! | `gate`       | the gate's id, 16 hex digits | `Id` Int64: the table, `Low` and `High` Binary: the span, `Mode` String |
//!
//! Invariants
//! * a gate is durable when its closing is acknowledged;
//! * a table has at most one gate with a given span; dropping a table removes its gates.
//!
//! `lsm::gates` defines which operations a gate blocks.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::format::key::table_of;
use crate::format::names::TableId;
use crate::format::span::Span;
use crate::lsm::{Action, GateMode, Op, SpanGate};
use crate::model::Entity;
use crate::options::Durability;

use super::rows::{GATES, damaged};
use super::{Catalog, Tables};
use crate::sort::sort_by;
use crate::table::entry::TableEntry;

/// The maximum length of an encoded bound in bytes: three bytes for each UTF-16 unit of both keys,
/// and a separator.
const BOUND_BYTES_MAX: usize = 8 << 10;

/// A closed gate, and the table that it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct GateEntry {
    pub(crate) table: Arc<TableEntry>,
    pub(crate) gate: SpanGate,
}

impl Catalog {
    /// Closes a gate on `span`; replaces a gate with the same span. On return, all earlier commits
    /// to the span are published, and no later commit can write to it.
    ///
    /// # Errors
    /// `NotFound` for a table that was dropped; `InvalidInput` for an empty span; and the errors
    /// that any write may return.
    pub(crate) fn close_gate(&self, table: TableId, span: Span, mode: GateMode) -> Result<()> {
        let bounds = [span.low.len(), span.high.as_ref().map_or(0, |high| high.len())];
        if span.is_empty() || bounds.iter().any(|len| *len > BOUND_BYTES_MAX) {
            return Err(Error::new(ErrorKind::InvalidInput, "no key can be in this span"));
        }
        let mut tables = self.tables.lock();
        tables.by_id(table)?;
        let known = tables.gates.iter().find(|gate| gate.span == span);
        let next = || tables.gates.iter().map(|gate| gate.id).max().unwrap_or(0) + 1;
        let id = known.map_or_else(next, |gate| gate.id);
        let gate = SpanGate { id, span, mode };
        let row = Entity::new(GATES, row_key(id))
            .with("Id", i64::from(table.0))
            .with("Low", gate.span.low.to_vec())
            .with("High", gate.span.high.as_deref().unwrap_or_default().to_vec())
            .with("Mode", mode.as_str());
        let mut batch = self.batch(vec![self.put(&row)?]);
        batch.closes = Some(gate.clone());
        self.engine.commit(&batch, Durability::Sync)?;
        self.engine.writer().gates.remove_superseded(id);
        tables.gates.retain(|other| other.id != id);
        tables.gates.push(gate);
        let same = || tables.gates.iter().filter(|gate| gate.id == id).count();
        debug_assert_eq!(same(), 1, "an id is one gate's");
        Ok(())
    }

    /// Opens the gate that was closed with exactly this span, which allows operations there again.
    ///
    /// # Errors
    /// `NotFound` if there is no such gate, and the errors that any write may return.
    pub(crate) fn lift_gate(&self, span: &Span) -> Result<()> {
        let mut tables = self.tables.lock();
        let Some(at) = tables.gates.iter().position(|gate| gate.span == *span) else {
            return Err(Error::new(ErrorKind::NotFound, "there is no gate with this span"));
        };
        let id = tables.gates[at].id;
        self.engine.commit(&self.batch(vec![self.delete_gate(id)]), Durability::Sync)?;
        tables.gates.remove(at);
        self.engine.writer().gates.lift(id);
        Ok(())
    }

    /// Returns all closed gates, ordered by the start of their spans.
    pub(crate) fn gates(&self) -> Vec<GateEntry> {
        let tables = self.tables.lock();
        let entry = |gate: &SpanGate| {
            let table = table_of(&gate.span.low)?;
            Some(GateEntry { table: tables.by_id(table).ok()?, gate: gate.clone() })
        };
        let mut gates: Vec<GateEntry> = tables.gates.iter().filter_map(entry).collect();
        sort_by(&mut gates, |a, b| {
            (&a.gate.span.low, a.gate.id).cmp(&(&b.gate.span.low, b.gate.id))
        });
        gates
    }

    /// Returns the operation that deletes the gate's row from the catalog.
    pub(super) fn delete_gate(&self, id: u64) -> Op<'static> {
        self.op(GATES, &row_key(id), Action::Delete)
    }
}

impl Tables {
    fn by_id(&self, id: TableId) -> Result<Arc<TableEntry>> {
        let found = self.by_name.values().find(|entry| entry.gate.table == id);
        found.cloned().ok_or_else(|| Error::refused(crate::error::Code::TableNotFound))
    }

    /// Returns the ids of the gates in a table.
    pub(super) fn gates_of(&self, table: TableId) -> Vec<u64> {
        let of_table = |gate: &&SpanGate| table_of(&gate.span.low) == Some(table);
        self.gates.iter().filter(of_table).map(|gate| gate.id).collect()
    }

    /// Adds the gate that a catalog row describes.
    pub(super) fn add_gate(&mut self, row: &Entity) -> Result<()> {
        let id = u64::from_str_radix(row.row_key(), 16);
        let id = id.map_err(|_| damaged("a gate's id that is none"))?;
        let mode: String = row.get("Mode")?;
        let mode = GateMode::parse(&mode).ok_or_else(|| damaged("a gate of an unknown mode"))?;
        let (low, high): (Vec<u8>, Vec<u8>) = (row.get("Low")?, row.get("High")?);
        let span = Span::new(&low, (!high.is_empty()).then_some(high.as_slice()));
        self.gates.push(SpanGate { id, span, mode });
        Ok(())
    }
}

fn row_key(id: u64) -> String {
    format!("{id:016x}")
}
