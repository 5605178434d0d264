//! One entity with a value of each type, exchanged with the SDKs of Azure Table storage.
//! `tests/clients/run` runs [`remote_writes_for_the_sdks`], the suites of the SDKs, which read that
//! entity and write their own, and [`remote_reads_what_the_sdks_wrote`].

use rowstone::store::{Remote, TableStore};
use rowstone::{DateTime, Entity, Guid, Value};

const TABLE: &str = "Referee";

fn store() -> Remote {
    Remote::open("env:ROWSTONE_CONNECTION").unwrap()
}

fn entity(partition: &str) -> Entity {
    let time = "2024-02-29T23:59:59.123456Z".parse::<DateTime>().unwrap();
    let guid = "0f8fad5b-d9cb-469f-a165-70867728950e".parse::<Guid>().unwrap();
    Entity::new(partition, "it's 100% é😀")
        .with("String", "it's \"quoted\" \\ é😀\n")
        .with("Empty", "")
        .with("Boolean", true)
        .with("Int32", i32::MIN)
        .with("Int64", (1_i64 << 53) + 1)
        .with("Whole", 2.0)
        .with("Double", 0.1)
        .with("Infinite", f64::INFINITY)
        .with("DateTime", time)
        .with("Guid", guid)
        .with("Binary", Value::Binary(vec![0, 255, 128]))
}

#[test]
#[ignore = "tests/clients/run starts the services"]
fn remote_writes_for_the_sdks() {
    let store = store();
    drop(store.delete_table(TABLE));
    store.create_table(TABLE).unwrap();
    store.insert(TABLE, &entity("rust")).unwrap();
}

#[test]
#[ignore = "tests/clients/run starts the services"]
fn remote_reads_what_the_sdks_wrote() {
    let writers = std::env::var("ROWSTONE_REFEREES").unwrap();
    for writer in writers.split_whitespace() {
        let expected = entity(writer);
        let found = store().get(TABLE, writer, expected.row_key(), &[]).unwrap().expect(writer);
        let of = |entity: &Entity| {
            let mut properties: Vec<_> =
                entity.properties().map(|(name, value)| format!("{name}={value:?}")).collect();
            properties.sort();
            properties
        };
        assert_eq!(of(&found), of(&expected), "{writer}");
    }
}
