//! Moves amounts between accounts of different partitions, exactly once: *debit and credit with
//! idempotence by transaction id*.
//!
//! A group spans one partition. The first group debits the payer and inserts `out_{id}`, which owes
//! the credit; the second credits the payee and inserts `in_{id}`. Each is written only if its row
//! is missing, so a transfer may be repeated with its id after a lost answer or a crash. The sum of
//! the balances and of the owed amounts is constant.
//!
//! Do not use it if all accounts of a transfer can be in one partition: then one group is enough.

use std::collections::BTreeMap;

use rowstone::store::{Condition, TableStore, transact};
use rowstone::{Entity, EntityGroup, ErrorKind};

mod cookbook;
use cookbook::Result;

/// PartitionKey: the account. RowKey: `balance`, `out_{id}`, `in_{id}`.
const LEDGER: &str = "Ledger";

/// A transfer of an amount.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'t> {
    pub id: &'t str,
    pub payer: &'t str,
    pub payee: &'t str,
    pub amount: i64,
}

fn main() -> Result<()> {
    let store = &*cookbook::store_of_arguments()?;
    open(store, &["ann", "bob", "eve"], 100)?;
    let lunch = Transfer { id: "lunch", payer: "ann", payee: "bob", amount: 30 };
    for _ in 0..3 {
        println!("lunch is paid: {}", transfer(store, lunch)?);
    }
    let house = Transfer { id: "house", payer: "eve", payee: "ann", amount: 1_000 };
    println!("the house is paid: {}", transfer(store, house)?);
    println!("{:?}, sum {}", balances(store)?, sum(store)?);
    Ok(())
}

/// Opens accounts with a balance; accounts that exist are kept.
pub fn open(store: &dyn TableStore, accounts: &[&str], balance: i64) -> Result<()> {
    cookbook::create_table(store, LEDGER)?;
    for account in accounts {
        let row = Entity::new(*account, "balance").with("Amount", balance);
        match store.insert(LEDGER, &row) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            done => drop(done?),
        }
    }
    Ok(())
}

/// Moves the amount, unless the payer has too little. Returns whether it was moved, now or before.
pub fn transfer(store: &dyn TableStore, transfer: Transfer<'_>) -> Result<bool> {
    let Transfer { id, payer, payee, amount } = transfer;
    let out = Entity::new(payer, format!("out_{id}")).with("Amount", amount);
    let out = out.with("Payee", payee).with("IsDone", false);
    if !book(store, &out, -amount)? {
        return Ok(false);
    }
    settle(store, id, payer, payee, amount)?;
    Ok(true)
}

/// Completes the transfers that were stopped after the debit. Returns their number.
pub fn complete(store: &dyn TableStore) -> Result<usize> {
    let mut completed = 0;
    cookbook::for_each(store, LEDGER, "IsDone eq false", &[], |out| {
        let id = out.row_key().strip_prefix("out_").ok_or("not a debit")?;
        settle(store, id, out.partition_key(), out.get("Payee")?, out.get("Amount")?)?;
        completed += 1;
        Ok(())
    })?;
    Ok(completed)
}

/// Writes the credit and marks the debit as done.
fn settle(store: &dyn TableStore, id: &str, payer: &str, payee: &str, amount: i64) -> Result<()> {
    let credit = Entity::new(payee, format!("in_{id}")).with("Amount", amount);
    book(store, &credit.with("Payer", payer), amount)?;
    let done = Entity::new(payer, format!("out_{id}")).with("IsDone", true);
    store.merge(LEDGER, &done, &Condition::Any)?;
    Ok(())
}

/// Inserts the row of a booking and adds to the balance in one group, unless the row exists or the
/// balance would be negative. Returns whether the booking exists.
fn book(store: &dyn TableStore, booking: &Entity, amount: i64) -> Result<bool> {
    let account = booking.partition_key();
    let mut is_booked = false;
    transact(store, LEDGER, account, |view| {
        let mut group = EntityGroup::new(account);
        is_booked = view.get(booking.row_key())?.is_some();
        if is_booked {
            return Ok(group);
        }
        let balance = view.get("balance")?;
        let balance = balance.map_or(Ok(0), |row| row.get::<i64>("Amount"))? + amount;
        if balance >= 0 {
            is_booked = true;
            // If another writer has booked it since, the upsert is refused and this runs again.
            group.upsert(booking)?;
            group.upsert_merge(Entity::new(account, "balance").with("Amount", balance))?;
        }
        Ok(group)
    })?;
    Ok(is_booked)
}

/// Returns the balances of all accounts.
pub fn balances(store: &dyn TableStore) -> Result<BTreeMap<String, i64>> {
    let mut balances = BTreeMap::new();
    cookbook::for_each(store, LEDGER, "RowKey eq 'balance'", &[], |row| {
        balances.insert(row.partition_key().to_owned(), row.get("Amount")?);
        Ok(())
    })?;
    Ok(balances)
}

/// Returns the sum of the balances and of the amounts that are owed.
pub fn sum(store: &dyn TableStore) -> Result<i64> {
    let mut sum: i64 = balances(store)?.values().sum();
    cookbook::for_each(store, LEDGER, "IsDone eq false", &[], |out| {
        let credit = out.row_key().replacen("out_", "in_", 1);
        let is_credited = store.get(LEDGER, out.get("Payee")?, &credit, &["Amount"])?.is_some();
        sum += if is_credited { 0 } else { out.get::<i64>("Amount")? };
        Ok(())
    })?;
    Ok(sum)
}
