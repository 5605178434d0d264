//! `compare` with a Table service.

use std::sync::Arc;

use super::{Compare, Difference, Join};
use crate::cli::endpoint::{Service, Store};
use crate::cli::failure::{Failure, Outcome};
use crate::cli::open::open_table;
use crate::store::compare::Comparison;
use crate::store::pages::{PAGE_MAX, Side};

/// The slices that are compared at once.
const WORKERS: usize = 4;

impl Compare {
    /// Compares if one of the stores is a service. Returns false otherwise.
    pub(super) fn run_stores(&self, join: &mut Join) -> Outcome<bool> {
        let [a, b] = [&self.a, &self.b].map(|place| self.account.open(place));
        let (a, b) = (a?, b?);
        if a.is_none() && b.is_none() {
            return Ok(false);
        }
        let services = || [&a, &b].into_iter().flatten();
        services().try_for_each(Service::check_order)?;
        let hidden = services().filter(|service| service.note_hidden_keys()).count();
        if self.requests && hidden > 0 {
            let text = "--requests would delete or add what the signature does not show";
            return Err(Failure::Usage(text.to_owned()));
        }
        let stores = [Store::open_to_read(a, &self.a)?, Store::open_to_read(b, &self.b)?];
        self.join_stores(join, &stores)?;
        stores.into_iter().try_for_each(Store::close)?;
        Ok(true)
    }

    fn join_stores(&self, join: &mut Join, [a, b]: &[Store; 2]) -> Outcome {
        if let Some(table) = &self.table {
            let with = self.with.as_ref().unwrap_or(table);
            for (store, place, table) in [(a, &self.a, table), (b, &self.b, with)] {
                if let Store::Directory(db) = store {
                    open_table(db, place, table)?;
                }
            }
            return self.join_tables(join, (a, table), (b, with));
        }
        let (of_a, of_b) = (a.get().tables()?, b.get().tables()?);
        let pairs = pairs(&of_a, &of_b);
        for name in &of_a {
            if let Some((_, other)) = pairs.iter().find(|(one, _)| *one == name) {
                self.join_tables(join, (a, name), (b, other))?;
                continue;
            }
            join.tell([name, name], Difference::TableOnlyA)?;
            if self.requests {
                let side = Side { store: a.get(), table: name };
                for entity in side.rows(&self.keys.filter(), &[], PAGE_MAX) {
                    join.tell([name, name], Difference::Entities(Some(&entity?), None))?;
                }
            }
        }
        for name in of_b.iter().filter(|name| pairs.iter().all(|(_, other)| *other != *name)) {
            let side = Side { store: b.get(), table: name };
            join.extra(name, &self.keys, side.rows(&self.keys.filter(), &[], PAGE_MAX))?;
        }
        Ok(())
    }

    fn join_tables(
        &self,
        join: &mut Join,
        (a, of_a): (&Store, &str),
        (b, of_b): (&Store, &str),
    ) -> Outcome {
        let comparison = Comparison {
            a: Side { store: a.get(), table: of_a },
            b: Side { store: b.get(), table: of_b },
            filter: &self.keys.filter(),
            workers: WORKERS,
        };
        let (progress, before) = (Arc::clone(&join.progress), join.compared);
        let mut told = Ok(());
        let compared = comparison.run(&|keys| progress.reach(before + keys), |(one, other)| {
            told = join.tell([of_a, of_b], Difference::Entities(one.as_ref(), other.as_ref()));
            told.is_ok() && join.differences < join.most
        });
        told?;
        join.compared += compared?;
        Ok(())
    }
}

/// Pairs the names of tables of two stores. Names ignore case, but a service may find a table only
/// by its own spelling, or have tables whose names differ only by case.
fn pairs<'n>(of_a: &'n [String], of_b: &'n [String]) -> Vec<(&'n String, &'n String)> {
    let is_same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    let (mut pairs, mut left): (Vec<_>, Vec<_>) = (Vec::new(), Vec::new());
    for name in of_b {
        match of_a.iter().find(|one| *one == name) {
            Some(one) => pairs.push((one, name)),
            None => left.push(name),
        }
    }
    for one in of_a.iter().filter(|one| !of_b.contains(one)) {
        if let Some(at) = left.iter().position(|other| is_same(one, other)) {
            pairs.push((one, left.remove(at)));
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_by_case_are_one_table_unless_a_store_has_both() {
        let names = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (a, b, expected) in [
            ("Parts Only", "parts OnlyB", "Parts=parts"),
            ("PARTS Parts", "Parts", "Parts=Parts"),
            ("Parts", "PARTS Parts", "Parts=Parts"),
            ("PARTS parts", "Parts parts", "parts=parts PARTS=Parts"),
        ] {
            let (a, b) = (names(a), names(b));
            let pairs = pairs(&a, &b).into_iter().map(|(a, b)| format!("{a}={b}"));
            assert_eq!(pairs.collect::<Vec<_>>().join(" "), expected);
        }
    }
}
