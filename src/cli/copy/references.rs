//! `check-refs` with a Table service.
//!
//! `db::references` is the search. Between two directories it reads both at one snapshot.

use super::CheckRefs;
use crate::cli::endpoint::{Store, unread};
use crate::cli::failure::Outcome;
use crate::cli::progress::Progress;
use crate::db::{References, search_references};
use crate::error::Result;
use crate::model::{KeyPart, KeyTemplate, check_key};
use crate::store::pages::{PAGE_MAX, Side};
use crate::store::workers;

/// The number of keys that are looked up at once.
const WORKERS: usize = 8;

impl CheckRefs {
    /// Searches if one of the stores is a service. Returns `None` otherwise.
    pub(super) fn search_stores(&self) -> Outcome<Option<References>> {
        let [pk, rk] = [&self.partition_key, &self.row_key].map(|text| KeyTemplate::parse(text));
        let (pk, rk) = (pk?, rk?);
        let of_source = self.account.open(&self.db)?;
        let of_target = self.to.as_ref().map(|to| self.account.open(to)).transpose()?.flatten();
        if of_source.is_none() && of_target.is_none() {
            return Ok(None);
        }
        let source = Store::open_to_read(of_source, &self.db)?;
        let other = self.to.as_ref().map(|to| Store::open_to_read(of_target, to)).transpose()?;
        let target = Side { store: other.as_ref().unwrap_or(&source).get(), table: &self.into };
        // A missing table is reported even if there are no references to it.
        exists(target, (&self.into, &self.into)).map_err(unread)?;
        let names = ["PartitionKey", "RowKey", "Timestamp"].map(str::to_owned);
        let names = [&names, pk.names(), rk.names()].concat();
        let rows = Side { store: source.get(), table: &self.table };
        let rows = rows.rows(self.filter.text(), &names, PAGE_MAX);
        let exist = |keys: &[(&str, &str)]| {
            workers::run(keys.to_vec(), WORKERS, |keys| exists(target, keys))
        };
        let found = Progress::during("rows", None, |bar| {
            search_references(rows, (&pk, &rk), &exist, |rows| bar.reach(rows))
        });
        let found = found.map_err(unread)?;
        [Some(source), other].into_iter().flatten().try_for_each(Store::close)?;
        Ok(Some(found))
    }
}

/// Whether a table has an entity with these keys. No entity has keys that are not allowed.
fn exists(side: Side<'_>, (pk, rk): (&str, &str)) -> Result<bool> {
    if check_key(KeyPart::PartitionKey, pk).is_err() || check_key(KeyPart::RowKey, rk).is_err() {
        return Ok(false);
    }
    Ok(side.store.get(side.table, pk, rk, &["PartitionKey"])?.is_some())
}
