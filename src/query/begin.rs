//! Begins a query: plans it, pins the state that it reads, updates the counters of its table, and
//! checks whether the query is admitted.

use crate::error::Result;
use crate::lsm::RowFilter;
use crate::table::{Breadth, Snapshot};

use super::builder::Query;
use super::eval::Evaluator;
use super::exec::Cursor;
use super::key_range::KeyRange;
use super::plan::{Class, Plan, plan};
use super::tree::Node;

impl Query {
    pub(super) fn begin(&self) -> Result<Cursor<Evaluator>> {
        match self.filter.node() {
            Node::All => {
                let class = Class::of_range(&self.range);
                self.begin_over(std::slice::from_ref(&self.range), class, None, |all| all)
            }
            node => self.begin_with(&plan(node), |evaluator| evaluator),
        }
    }

    pub(super) fn plan(&self) -> Plan {
        match self.filter.node() {
            Node::All => Plan::of_range(&self.range),
            node => plan(node),
        }
    }

    /// Begins to execute `plan`. The remaining filter of the plan is compiled to an evaluator, from
    /// which `wrap` makes the row filter.
    pub(super) fn begin_with<F: RowFilter>(
        &self,
        plan: &Plan,
        wrap: impl FnOnce(Evaluator) -> F,
    ) -> Result<Cursor<F>> {
        self.begin_over(&plan.intervals, plan.class, plan.rest.clone(), wrap)
    }

    /// Begins to read the rows in `intervals`, and to evaluate `rest`, the remaining filter, on
    /// each of them. `class` is the class of the intervals.
    fn begin_over<F: RowFilter>(
        &self,
        intervals: &[KeyRange],
        class: Class,
        rest: Option<Node>,
        wrap: impl FnOnce(Evaluator) -> F,
    ) -> Result<Cursor<F>> {
        let at = self.at.as_ref().map(Snapshot::seq);
        let view = self.table.engine.read_view(at);
        if at.is_none() {
            self.table.entry.check(self.table.engine.reader().published())?;
        }
        let breadth = self.breadth(class);
        self.table.entry.queries.record(breadth);
        self.table.entry.log.queries.record(breadth);
        let filter = wrap(Evaluator::new(rest));
        let table = self.table.entry.gate.table;
        let cursor = Cursor::new(view, filter, table, intervals, self);
        let engine = &self.table.engine;
        engine.writer().throttle_query(|| cursor.partition())?;
        engine.writer().admit_read(|span| cursor.touches(span))?;
        Ok(cursor)
    }

    /// Classifies the query by the keys that it reads, for the counters of its table.
    fn breadth(&self, class: Class) -> Breadth {
        match class {
            Class::Empty | Class::Point => Breadth::Points,
            Class::RowRange => Breadth::RowRange,
            Class::Partition => Breadth::Partition,
            Class::PartitionRange => Breadth::PartitionRange,
            Class::Table if matches!(self.filter.node(), Node::All) => Breadth::Table,
            Class::Table => Breadth::TableScan,
        }
    }
}
