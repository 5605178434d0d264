//! Exports a span of keys, deletes it and imports it again, with a snapshot in between.
//!
//! Invariants
//! * the import restores the rows unchanged, with their tags, and makes all of them visible at
//!   once;
//! * no snapshot from before the import sees the imported rows;
//! * if a crash interrupts the move, the rows are still in their old files, absent, or imported.

use std::rc::Rc;

use crate::error::{Code, ErrorKind};
use crate::options::Durability;

use super::counts::Event;
use super::engine::range;
use super::oracle::Change;
use super::row::Row;
use super::runner::{Outcome, Runner, line};
use super::step::{Scan, Step};

impl Runner {
    pub(super) fn move_span(&mut self, table: &str, scan: &Scan, snapshot: &str) -> Outcome {
        let Some(held) = self.oracle.tables.get(&table.to_lowercase()) else {
            return line("no such table");
        };
        let rows = held.rows.values().filter(|row| scan.covers(&row.pk, &row.rk));
        let rows: Vec<Rc<Row>> = rows.cloned().collect();
        if self.is_troubled() || rows.is_empty() || !self.tickets.is_empty() {
            return line("not now");
        }
        self.end_halves()?;
        self.sync()?;
        self.copies += 1;
        let path = format!("move{}", self.copies);
        let lines = self.moved(table, scan, snapshot, (&path, rows))?;
        let fs = &self.engine.fs;
        for file in fs.paths().iter().filter(|file| file.starts_with(&format!("{path}/"))) {
            fs.erase(file).map_err(|error| format!("move: {error}"))?;
        }
        Ok(lines)
    }

    fn moved(
        &mut self,
        table: &str,
        scan: &Scan,
        snapshot: &str,
        (path, rows): (&str, Vec<Rc<Row>>),
    ) -> Outcome {
        let exported = self.engine.db().export_range(table, range(scan), path);
        match &exported {
            Ok(moved) if moved.entities != rows.len() as u64 => {
                return Err(format!("export: {} of {} rows", moved.entities, rows.len()));
            }
            Ok(_) => {}
            Err(_) => return self.excuse(exported.map(drop)),
        }
        let commits = self.oracle.commits();
        let drop_step = Step::DropRange { table: table.to_owned(), scan: scan.clone(), also: None };
        let change = Change::DropRange { table: table.to_owned(), scans: vec![scan.clone()] };
        let lines = self.change(change, &drop_step)?;
        if self.engine.power.is_gone() || self.oracle.commits() == commits {
            return Ok(lines);
        }
        self.snapshot(snapshot)?;
        // The first scan finds that the span is empty, and caches it as a gap (a key range without
        // rows). The second scan uses this gap.
        for _ in 0..2 {
            self.scan(table, &Scan { top: Some(1), page: None, at: None, ..scan.clone() })?;
        }
        let is_gate_of = |gate: &Scan| rows.iter().any(|row| gate.covers(&row.pk, &row.rk));
        let is_gated = self.oracle.gates(table).any(is_gate_of);
        let has_gates = self.oracle.gates(table).next().is_some();
        let change = Change::Import { table: table.to_owned(), rows };
        match self.engine.db().import_range(path, table) {
            Ok(_) if is_gated => Err("import: it passed a gate".to_owned()),
            Ok(_) => {
                let seq = self.engine.published();
                self.accepted(&change, 0, seq, Durability::Sync)?;
                self.oracle.show(self.oracle.commits());
                self.counts.note(Event::Moved);
                line("moved")
            }
            Err(error) if self.is_excused(&error) => {
                self.oracle.pending.push(change);
                line(format!("{}: {}", error.code(), error.chain()))
            }
            Err(error) if has_gates && error.code() == Code::ServerBusy.as_str() => line("gated"),
            // The import is refused because a snapshot or iterator still reads the deleted rows.
            Err(error)
                if error.kind() == ErrorKind::Busy
                    && !(self.snapshots.len() <= 1 && self.iterators.is_empty()) =>
            {
                line("busy")
            }
            Err(error) => Err(format!("import: {error:?}")),
        }
    }
}
