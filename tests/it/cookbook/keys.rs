//! The example `keys`: the order of keys.

#[path = "../../../examples/keys.rs"]
mod program;

use std::collections::BTreeSet;

use rowstone::store::TableStore;

use super::{Flights, check, over_directory, over_endpoint};

fn run(store: &dyn TableStore) {
    let numbers = [10, u64::MAX, 9, 100, 0, 99, u64::MAX - 1];
    let mut least_first = numbers;
    least_first.sort_unstable();
    let mut texts = least_first.map(|number| number.to_string()).to_vec();
    let padded = program::padded(&numbers).unwrap();
    assert_eq!(program::sorted(store, "pad", &padded).unwrap(), texts);
    texts.reverse();
    assert_eq!(program::sorted(store, "invert", &program::inverted(&numbers)).unwrap(), texts);
    let times =
        ["2013-12-31T23:59Z", "9999-12-31T00:00Z", "1970-01-01T00:00Z", "2014-01-01T00:00Z"];
    let reversed = program::reversed(&times).unwrap();
    let mut newest_first = times;
    newest_first.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(program::sorted(store, "reverse_date", &reversed).unwrap(), newest_first);
    let unusual = program::unusual();
    let mut ordinal: Vec<_> = unusual.iter().map(|(key, _)| key.clone()).collect();
    let by_bytes = {
        let mut texts = ordinal.clone();
        texts.sort_unstable();
        texts
    };
    ordinal.sort_unstable_by_key(|text| text.encode_utf16().collect::<Vec<_>>());
    assert_ne!(ordinal, by_bytes);
    assert_eq!(program::sorted(store, "text", &unusual).unwrap(), ordinal);
    assert_eq!(program::prefixed(store, "text", "Z").unwrap(), 2);
    buckets(store);
}

/// The buckets have all hours, and about as many each.
fn buckets(store: &dyn TableStore) {
    let buckets = program::spread(store).unwrap();
    let hours = Flights::read().column("time_hour").collect::<BTreeSet<_>>().len();
    check(buckets.iter().sum(), hours, 6_936);
    let share = hours / program::BUCKETS as usize;
    assert!(buckets.iter().all(|count| (share / 2..share * 2).contains(count)), "{buckets:?}");
}

#[test]
fn keys_run_over_a_directory() {
    over_directory(run);
}

#[test]
fn keys_run_over_an_endpoint() {
    over_endpoint(run);
}
