//! Runs readers concurrently with the engine: a read-only process, and a consumer of the change
//! feed that continues from its last position.
//!
//! Invariants
//! * a reader shows a prefix of the commits, all of which survive a power cut;
//! * replaying the feed yields that prefix: no commit is missing or repeated. The consumer may
//!   restart only when its position is lost.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::db::{Change, Commit, Db};
use crate::error::ErrorKind;
use crate::format::key::user_key;
use crate::format::names::TableId;
use crate::query::KeyRange;

use super::counts::Event;
use super::engine::{PATH, state_of};
use super::oracle::{Tables, differences};
use super::row::{Key, Row, key};
use super::runner::{Outcome, Runner, line, none_of};
use super::runner_state::Fed;

impl Runner {
    /// Opens a read-only database while the engine runs, compares its contents with the oracle, and
    /// consumes the new part of the change feed.
    pub(super) fn beside(&mut self) -> Outcome {
        // The step is skipped if a failure or damage may have changed the disk, or if the outcome
        // of a write is unknown: then the oracle does not know the contents of the disk.
        if self.may_differ_on_disk() || !self.oracle.pending.is_empty() {
            return line("troubled");
        }
        self.counts.note(Event::Beside);
        let options = self.engine.options_on(&self.engine.fs);
        let opened = options.open_read_only(PATH);
        let reader = opened.map_err(|error| format!("beside: {error:?}"))?;
        let shown = reader.engine().reader().published().ticks();
        let state = state_of(&reader).map_err(|error| format!("beside: {error:?}"))?;
        let expected = self.oracle.at(self.oracle.count_up_to(shown)).into_owned();
        none_of(differences(&expected, &state), "beside")?;
        self.copies += 1;
        let image = self.engine.fs.crash_image(self.copies);
        let left = self.engine.published_in(&image, PATH);
        let left = left.map_err(|error| format!("beside, after a power cut: {error:?}"))?;
        if left < shown {
            return Err(format!("beside: #{shown} was shown, and a power cut leaves #{left}"));
        }
        self.feed(&reader)?;
        Ok(Vec::new())
    }

    fn feed(&mut self, reader: &Db) -> Result<(), String> {
        let (position, state) = (reader.position(), &self.oracle);
        let anew = || {
            let tables = state.at(state.count_up_to(position.seq().ticks())).into_owned();
            Fed { position, tables: of_tables(&tables) }
        };
        let Some(mut fed) = self.fed.take() else {
            self.fed = Some(anew());
            return Ok(());
        };
        let mut changes = match reader.changes(fed.position) {
            Ok(changes) => changes,
            Err(error) if error.kind() == ErrorKind::ChangesLost => {
                self.fed = Some(anew());
                return Ok(());
            }
            Err(error) => return Err(format!("feed: {error:?}")),
        };
        for commit in changes.by_ref() {
            let commit = commit.map_err(|error| format!("feed: {error:?}"))?;
            let then = state.count_up_to(commit.position.seq().ticks());
            fed.apply(&commit, || state.at(then).into_owned())?;
        }
        fed.position = changes.position();
        let count = state.count_up_to(fed.position.seq().ticks());
        let expected = of_tables(&state.at(count));
        if fed.tables != expected {
            let at = fed.position;
            return Err(format!("feed: after {at} it says\n{:?}\nnot\n{expected:?}", fed.tables));
        }
        self.counts.note(Event::Fed);
        self.fed = Some(fed);
        Ok(())
    }
}

impl Fed {
    /// Applies a commit to the consumer's state. `then` returns the oracle's state after the
    /// commit.
    fn apply(&mut self, commit: &Commit, then: impl Fn() -> Tables) -> Result<(), String> {
        for change in &commit.changes {
            let name = change.table().to_lowercase();
            if matches!(change, Change::TableCreated { .. }) {
                self.tables.insert(name, BTreeMap::new());
                continue;
            }
            let Some(rows) = self.tables.get_mut(&name) else {
                return Err(format!("feed: no table {name} for {change:?}"));
            };
            match change {
                Change::TableDropped { .. } => drop(self.tables.remove(&name)),
                Change::Put { entity, .. } => {
                    let row = Row::of(entity);
                    rows.insert(key(&row.pk, &row.rk), Rc::new(row));
                }
                Change::Deleted { partition_key, row_key, .. } => {
                    rows.remove(&key(partition_key, row_key));
                }
                Change::RangeDeleted { range, .. } => rows.retain(|_, row| !is_in(range, row)),
                Change::Expired { before, .. } => rows.retain(|_, row| row.etag >= before.ticks()),
                // The feed does not list the imported rows, so they are copied from the oracle's
                // state.
                Change::Imported { range, .. } => {
                    let then = then();
                    let all = then.get(&name).map(|table| &*table.rows);
                    let came = all.into_iter().flatten().filter(|(_, row)| is_in(range, row));
                    rows.extend(came.map(|(key, row)| (key.clone(), Rc::clone(row))));
                }
                Change::TableCreated { .. } => {}
            }
        }
        Ok(())
    }
}

fn is_in(range: &KeyRange, row: &Row) -> bool {
    let table = TableId(1);
    range.span(table).contains(&user_key(table, &row.pk, &row.rk))
}

fn of_tables(tables: &Tables) -> BTreeMap<String, BTreeMap<Key, Rc<Row>>> {
    tables.iter().map(|(name, table)| (name.clone(), (*table.rows).clone())).collect()
}
