//! The example `ledger`: transfers whose answers are lost.

#[path = "../../../examples/ledger.rs"]
mod program;

use rowstone::ErrorKind;
use rowstone::store::TableStore;

use super::lossy::{Loss, Lossy, billed};
use super::{over_directory, over_endpoint};
use program::Transfer;

const ACCOUNTS: [&str; 3] = ["ann", "bob", "eve"];

/// Each transfer is repeated with its id until its answer arrives.
fn run(store: &dyn TableStore) {
    program::open(store, &ACCOUNTS, 100).unwrap();
    let lossy = Lossy::new(store, Loss::Thirds);
    let mut expected = [100; 3];
    let mut unknown = 0;
    for number in 0..30 {
        let (from, to, amount) = (number % 3, (number + number / 3 + 1) % 3, number as i64 % 7 + 1);
        let id = number.to_string();
        let (payer, payee) = (ACCOUNTS[from], ACCOUNTS[to]);
        let transfer = Transfer { id: &id, payer, payee, amount };
        while let Err(error) = program::transfer(&lossy, transfer) {
            let error = error.downcast::<rowstone::Error>().unwrap();
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
            assert_eq!(program::sum(store).unwrap(), 300, "after {transfer:?}");
            unknown += 1;
        }
        expected[from] -= amount;
        expected[to] += amount;
    }
    assert!(unknown >= 30, "{unknown}");
    let balances = program::balances(store).unwrap();
    assert_eq!(ACCOUNTS.map(|account| balances[account]), expected);
    assert_eq!(program::sum(store).unwrap(), 300);
    stopped(store);
}

/// A transfer that is stopped after the debit is completed later.
fn stopped(store: &dyn TableStore) {
    let before = program::balances(store).unwrap();
    let late = Transfer { id: "late", payer: "ann", payee: "bob", amount: 5 };
    program::transfer(&Lossy::new(store, Loss::After(1)), late).unwrap_err();
    assert_eq!(program::balances(store).unwrap()["ann"], before["ann"] - 5);
    assert_eq!(program::sum(store).unwrap(), 300);
    assert_eq!(program::complete(store).unwrap(), 1);
    assert_eq!(program::complete(store).unwrap(), 0);
    assert_eq!(program::balances(store).unwrap()["bob"], before["bob"] + 5);
    let next = Transfer { id: "next", ..late };
    for expected in [7, 3] {
        let (moved, requests) = billed(store, |store| program::transfer(store, next));
        assert!(moved.unwrap());
        assert_eq!(requests, expected);
    }
    let much = Transfer { id: "much", payer: "ann", payee: "bob", amount: 1_000 };
    assert!(!program::transfer(store, much).unwrap());
    assert_eq!(program::sum(store).unwrap(), 300);
}

#[test]
fn ledger_runs_over_a_directory() {
    over_directory(run);
}

#[test]
fn ledger_runs_over_an_endpoint() {
    over_endpoint(run);
}
