//! Tests that clients that write concurrently share log syncs.
//!
//! `src/rest/tests/sharing.rs` tests how many commits share a sync. On a real disk this number
//! depends on the disk's speed.

use super::Place;

const CLIENTS: usize = 32;
const INSERTS: usize = 40;

#[test]
fn durable_inserts_of_many_clients_share_syncs() {
    let place = Place::new();
    let server = place.serve("--log off").with_table();
    let before = ["commits", "log_syncs"].map(|name| server.counter(name));
    let ready = std::sync::Barrier::new(CLIENTS);
    let insert = |number: usize| {
        let mut client = server.client();
        client.ask("GET", "/people", "").is(200);
        ready.wait();
        for i in 0..INSERTS {
            let body = format!(r#"{{"PartitionKey":"{number}","RowKey":"{i}"}}"#);
            client.ask("POST", "/people", &body).is(201);
        }
    };
    let insert = &insert;
    std::thread::scope(|scope| {
        (0..CLIENTS).for_each(|number| drop(scope.spawn(move || insert(number))));
    });
    let after = ["commits", "log_syncs"].map(|name| server.counter(name));
    let (commits, syncs) = (after[0] - before[0], after[1] - before[1]);
    crate::say(format_args!("{commits} commits of {CLIENTS} clients in {syncs} syncs"));
    assert_eq!(commits, (CLIENTS * INSERTS) as u64);
    assert!(syncs > 0, "they are durable");
    assert!(syncs < commits, "{commits} commits took {syncs} syncs");
}
