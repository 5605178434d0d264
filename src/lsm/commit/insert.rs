//! An insert whose row is made only when it is wanted: where an entity of its key is there already, none is.
//!
//! Not here: the decision under the commit lock, which every other insert waits for (`commit`).

use crate::error::{Code, Error, Result};
use crate::format::Kind;
use crate::model::Seq;
use crate::options::Durability;
use crate::planted::planted;

use super::super::Engine;
use super::super::batch::{Action, Batch, PackedRow};
use super::super::view::Looked;
use super::Closing;

impl Engine {
    /// Commits an insert, a `batch` of one operation, and waits until it is as durable as asked. Its row is made when its key
    /// was looked up, and not at all if an entity is there already.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) fn commit_insert<'a>(
        &self,
        mut batch: Batch<'a>,
        durability: Durability,
        row: impl FnOnce() -> PackedRow<'a>,
    ) -> Result<Seq> {
        let looked = self.look_up(&batch)?;
        if self.is_taken(&batch, &looked) {
            return Err(Error::refused(Code::EntityAlreadyExists));
        }
        if let [op] = batch.ops.as_mut_slice() {
            op.action = Action::Put(row());
        }
        let seq = self.submit_around(&batch, durability, Some(looked), || {})?;
        self.rounds.wait(seq)?;
        Ok(seq)
    }

    /// True if nothing is to be said of the one insert of `batch` but that everybody sees an entity of its key. It was there
    /// when the view of the look-up was pinned, or as soon as it was published: what came later changes nothing about that.
    fn is_taken(&self, batch: &Batch<'_>, looked: &Looked) -> bool {
        let hidden = looked.hidden_since(0).filter(|_| !planted!("refusal-ignores-fences"));
        let is_there = looked.current(0).is_some_and(|current| {
            let is_seen = current.seq <= self.rounds.published();
            current.kind == Kind::Put && is_seen && hidden.is_none()
        });
        if !is_there || self.throttle.is_some() || batch.gate.dropped_at().is_some() {
            return false;
        }
        let state = self.rounds.lock();
        state.failed().is_none()
            && state.queue.check_open(Closing::No).is_ok()
            && self.gates.closed_to(batch.ops.iter().map(|op| &*op.key)).is_none()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::db::Db;
    use crate::error::ErrorKind;
    use crate::model::{EntityEncoder, ValueRef};
    use crate::options::Background;
    use crate::query::KeyRange;
    use crate::table::{GateMode, Table};

    fn insert(table: &Table, rk: &str, price: f64) -> Result<(), &'static str> {
        let mut row = [("Price", ValueRef::Double(price)), ("Name", ValueRef::String("bolt"))];
        let inserted = table.insert_properties(&mut EntityEncoder::default(), "p", rk, &mut row);
        inserted.map(drop).map_err(|error| error.code())
    }

    fn open() -> (Db, Table) {
        let options = Db::options().background(Background::Manual);
        let db = options.open_in_memory().unwrap();
        let table = db.create_table("parts").unwrap();
        (db, table)
    }

    #[test]
    fn an_insert_of_properties_answers_as_one_of_an_entity() {
        let (db, table) = open();
        for is_flushed in [false, true] {
            let rk = is_flushed.to_string();
            let settle = |db: &Db| {
                if is_flushed {
                    db.flush().unwrap();
                }
            };
            assert_eq!(insert(&table, &rk, 1.5), Ok(()));
            settle(&db);
            assert_eq!(insert(&table, &rk, 2.5), Err("EntityAlreadyExists"));
            let found = table.get("p", &rk).unwrap().unwrap();
            assert_eq!((found.get("Price").unwrap(), found.get("Name").unwrap()), (1.5, "bolt"));
            table.delete("p", &rk).unwrap();
            settle(&db);
            assert_eq!(insert(&table, &rk, 3.5), Ok(()));
            table.delete_partition("p").unwrap();
            assert_eq!(insert(&table, &rk, 4.5), Ok(()));
            assert_eq!(insert(&table, &rk, 4.5), Err("EntityAlreadyExists"));
        }
    }

    #[test]
    fn what_an_insert_breaks_is_said_before_what_is_there() {
        let (db, table) = open();
        insert(&table, "1", 1.0).unwrap();
        let mut twice = [("A", ValueRef::Int32(1)), ("A", ValueRef::Int32(2))];
        let mut large = [("A", ValueRef::String(&"x".repeat(40_000)))];
        let mut encoder = EntityEncoder::default();
        for row in [&mut twice[..], &mut large] {
            let error = table.insert_properties(&mut encoder, "p", "1", row).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
        let mut row = [("A", ValueRef::Int32(1))];
        let error = table.insert_properties(&mut encoder, "p", "a/b", &mut row).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        db.gate("parts", KeyRange::partition("p"), GateMode::ReadOnly).unwrap();
        assert_eq!(insert(&table, "1", 1.0), Err("ServerBusy"));
        db.lift_gate("parts", KeyRange::partition("p")).unwrap();
        assert_eq!(insert(&table, "1", 1.0), Err("EntityAlreadyExists"));
        db.delete_table("parts").unwrap();
        assert_eq!(insert(&table, "1", 1.0), Err("TableNotFound"));
        let again = db.create_table("parts").unwrap();
        insert(&again, "1", 1.0).unwrap();
        db.close().unwrap();
        assert_eq!(insert(&again, "1", 1.0), Err("InvalidInput"));
    }

    #[test]
    fn a_buffer_that_held_a_long_row_takes_a_short_one() {
        let (_db, table) = open();
        let mut encoder = EntityEncoder::default();
        for (rk, len) in [("1", 30_000), ("2", 3), ("3", 0)] {
            let text = "x".repeat(len);
            let mut row = [("Text", ValueRef::String(&text)), ("Len", ValueRef::Int64(len as i64))];
            table.insert_properties(&mut encoder, "p", rk, &mut row).unwrap();
            let found = table.get("p", rk).unwrap().unwrap();
            assert_eq!(
                (found.get("Text").unwrap(), found.get("Len").unwrap()),
                (&*text, len as i64)
            );
        }
    }
}
