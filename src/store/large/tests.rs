//! Tests of large values over stores that fail, lose answers, and have other writers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::rows::{CHUNK_BYTES, Place, WriteKey};
use super::{Info, LargeValues};
use crate::clock::ManualClock;
use crate::db::Db;
use crate::error::{ErrorKind, Result};
use crate::fs::MemFs;
use crate::model::{ETag, Entity};
use crate::options::Options;
use crate::store::cut::{Cut, Fault};
use crate::store::pages::Side;
use crate::store::{Condition, TableStore};

const TABLE: &str = "Tab";
const PK: &str = "maps";
const NAME: &str = "city.png";
/// A value of four chunks, which are written by two groups.
const LENGTH: usize = 3 * CHUNK_BYTES + 5;
/// The rows of such a value: the manifest and the chunks.
const ROWS: usize = 5;

fn cut() -> Cut {
    let cut = Cut::new();
    cut.db.create_table(TABLE).unwrap();
    cut
}

fn values(store: &dyn TableStore) -> LargeValues<'_> {
    LargeValues::new(store, TABLE)
}

/// Returns a value that depends on its length and a number.
fn bytes(len: usize, number: u8) -> Vec<u8> {
    (0..len).map(|i| (i ^ i >> 8 ^ i >> 16) as u8 ^ number).collect()
}

fn row_keys(db: &Db) -> Vec<String> {
    let side = Side { store: db, table: TABLE };
    let keys = ["PartitionKey", "RowKey"].map(str::to_owned);
    side.rows("", &keys, 1_000).map(|row| row.unwrap().row_key().to_owned()).collect()
}

fn get(db: &Db) -> Option<Vec<u8>> {
    values(db).get_vec(PK, NAME, 1 << 30).unwrap()
}

/// Asserts that the value is one of `expected`, and that a sweep leaves nothing else.
#[track_caller]
fn check(db: &Db, expected: &[Option<&[u8]>]) {
    let found = get(db);
    assert!(expected.contains(&found.as_deref()), "{:?}", found.map(|bytes| bytes.len()));
    values(db).sweep(Duration::ZERO).unwrap();
    assert_eq!(get(db), found);
    let rows = match found.map(|bytes| bytes.len()) {
        None => 0,
        Some(len) if len < CHUNK_BYTES => 1,
        Some(_) => ROWS,
    };
    assert_eq!(row_keys(db).len(), rows, "{:?}", row_keys(db));
    assert_eq!(values(db).sweep(Duration::ZERO).unwrap(), 0);
}

#[test]
fn values_of_all_lengths_are_read_as_they_were_stored() {
    let db = cut().db;
    let values = values(&db);
    let lengths = [0, 1, (64 << 10) - 1, 64 << 10, (64 << 10) + 1, CHUNK_BYTES - 1, CHUNK_BYTES]
        .into_iter()
        .chain([CHUNK_BYTES + 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 * CHUNK_BYTES])
        .chain([20_000_000]);
    for (number, len) in lengths.enumerate() {
        let value = bytes(len, number as u8);
        let etag = values.put(PK, NAME, &value[..]).unwrap();
        let info = Some(Info { length: len as u64, etag });
        assert_eq!(values.head(PK, NAME).unwrap(), info);
        let mut sink = Vec::new();
        assert_eq!(values.get(PK, NAME, &mut sink).unwrap(), info);
        assert!(sink == value, "{len}");
        assert!(values.get_vec(PK, NAME, len).unwrap() == Some(value));
        if len > 0 {
            let error = values.get_vec(PK, NAME, len - 1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
        values.sweep(Duration::ZERO).unwrap();
        let chunks = if len < CHUNK_BYTES { 0 } else { len.div_ceil(CHUNK_BYTES) };
        assert_eq!(row_keys(&db).len(), 1 + chunks, "{len}");
    }
    values.delete(PK, NAME).unwrap();
    assert_eq!(values.head(PK, NAME).unwrap(), None);
    assert_eq!(values.delete(PK, NAME).unwrap_err().kind(), ErrorKind::NotFound);
    check(&db, &[None]);
}

#[test]
fn names_have_any_characters_and_do_not_meet() {
    let db = cut().db;
    let values = values(&db);
    let id = "0123456789abcdef".repeat(2);
    let names = ["", "a", "ab", "a!", "a!b", "a%21", "a/b\\c#d?\u{7}", "é\u{1f600}", "a b"];
    let names = names.map(str::to_owned).into_iter().chain([format!("a!{id}")]);
    let names: Vec<_> = names.chain([format!("a!{id}!00000000")]).collect();
    for (number, name) in names.iter().enumerate() {
        values.put(PK, name, &bytes(CHUNK_BYTES + number, number as u8)[..]).unwrap();
    }
    assert_eq!(values.sweep(Duration::ZERO).unwrap(), 0);
    for (number, name) in names.iter().enumerate() {
        let found = values.get_vec(PK, name, 1 << 30).unwrap();
        assert!(found == Some(bytes(CHUNK_BYTES + number, number as u8)), "{name}");
    }
    for name in &names {
        values.delete(PK, name).unwrap();
    }
    assert_eq!(values.sweep(Duration::ZERO).unwrap(), 1 + 2 * (names.len() as u64 - 1));
    assert!(row_keys(&db).is_empty());

    let long = "!".repeat(327) + "a";
    values.put(PK, &long, &bytes(CHUNK_BYTES, 1)[..]).unwrap();
    let error = values.put(PK, &(long + "!"), &b""[..]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn row_keys_are_read_as_they_were_made() {
    let key = WriteKey { row: "a".to_owned(), id: "0f".repeat(16) };
    assert_eq!(WriteKey::of(&key.mark()), Some((key.clone(), false)));
    assert_eq!(WriteKey::of(&key.chunk(7)), Some((key.clone(), true)));
    let others = [key.chunk(7) + "!1", key.mark() + "0", key.mark() + "!7", "a!b".to_owned()];
    assert_eq!(others.map(|row| WriteKey::of(&row)), [const { None }; 4]);
    assert_eq!(Place::new(TABLE, PK, "50%!").unwrap().row, "50%25%21");
}

#[test]
fn one_of_two_writers_wins_and_the_chunks_of_the_other_are_swept() {
    let db = cut().db;
    let values = values(&db);
    let put = |number, expected: Option<&ETag>| {
        values.put_if(PK, NAME, &bytes(LENGTH, number)[..], expected)
    };
    let first = put(1, None).unwrap();
    assert_eq!(put(2, None).unwrap_err().kind(), ErrorKind::AlreadyExists);
    let second = put(3, Some(&first)).unwrap();
    let error = put(4, Some(&first)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PreconditionFailed);
    let about = "(value 'city.png' of partition 'maps' of table 'Tab')";
    assert!(error.to_string().contains(about), "{error}");
    // The values 1, 2 and 4 have four chunks.
    assert_eq!(values.sweep(Duration::ZERO).unwrap(), 12);
    assert_eq!(get(&db), Some(bytes(LENGTH, 3)));
    values.delete(PK, NAME).unwrap();
    assert_eq!(put(5, Some(&second)).unwrap_err().kind(), ErrorKind::NotFound);
    check(&db, &[None]);
}

/// What a test does with the value that is stored.
type Action = fn(&LargeValues<'_>) -> Result<()>;

const ACTIONS: [(Action, Option<usize>); 4] = [
    (|values| values.put(PK, NAME, &bytes(LENGTH, 2)[..]).map(drop), Some(LENGTH)),
    (|values| values.put(PK, NAME, &bytes(9, 2)[..]).map(drop), Some(9)),
    (|values| values.delete(PK, NAME), None),
    (|values| values.sweep(Duration::ZERO).map(drop), Some(LENGTH)),
];

/// Runs each action over a stored value, with each fault at each request.
fn each_fault(faults: &[Fault], check: impl Fn(&Cut, &Result<()>, &[u8], Option<&[u8]>)) {
    for (number, (action, len)) in ACTIONS.into_iter().enumerate() {
        let is_sweep = number == 3;
        let (old, new) =
            (bytes(LENGTH, 1), len.map(|len| bytes(len, if is_sweep { 1 } else { 2 })));
        for fault in faults {
            for at in 0.. {
                let store = cut();
                values(&store.db).put(PK, NAME, &bytes(LENGTH, 0)[..]).unwrap();
                values(&store.db).put(PK, NAME, &old[..]).unwrap();
                *store.fault.lock() = Some((at, *fault));
                let done = action(&values(&store));
                if store.requests() <= at {
                    assert!(at > 1 && done.is_ok(), "{done:?}");
                    break;
                }
                check(&store, &done, &old, new.as_deref());
            }
        }
    }
}

#[test]
fn a_reader_sees_the_old_or_the_new_value_after_each_crash() {
    each_fault(&[Fault::Refused, Fault::Away, Fault::LostThenAway], |store, done, old, new| {
        match done {
            Ok(()) => check(&store.db, &[new]),
            Err(error) => {
                if new != Some(old) && get(&store.db).as_deref() == new {
                    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "the change is done");
                }
                check(&store.db, &[Some(old), new]);
            }
        }
    });
}

#[test]
fn a_lost_answer_of_a_put_or_delete_is_settled() {
    each_fault(&[Fault::Lost], |store, done, old, new| match done {
        Ok(()) => check(&store.db, &[new]),
        Err(error) => {
            // Reads fail as writes do; only a sweep ends after a lost write.
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
            check(&store.db, &[Some(old), new]);
        }
    });
    let store = cut();
    let values = values(&store);
    let lose_write = |nth| *store.fault.lock() = Some((store.requests() + nth, Fault::Lost));
    // Both groups of chunks, then the read and the change of the manifest.
    for nth in [0, 1, 3] {
        lose_write(nth);
        let etag = values.put(PK, NAME, &bytes(LENGTH, nth as u8)[..]).unwrap();
        assert_eq!(values.head(PK, NAME).unwrap().map(|info| info.etag), Some(etag));
        check(&store.db, &[Some(&bytes(LENGTH, nth as u8))]);
    }
    lose_write(1);
    values.delete(PK, NAME).unwrap();
    check(&store.db, &[None]);
}

#[test]
fn a_delete_whose_answer_was_lost_spares_the_next_value() {
    let store = cut();
    values(&store.db).put(PK, NAME, &b"old"[..]).unwrap();
    // After the read and the delete of the manifest.
    *store.fault.lock() = Some((store.requests() + 1, Fault::Lost));
    let db = store.db.clone();
    let put = move || drop(values(&db).put(PK, NAME, &b"new"[..]).unwrap());
    *store.before.lock() = Some((store.requests() + 2, Box::new(put)));
    values(&store).delete(PK, NAME).unwrap();
    assert_eq!(get(&store.db), Some(b"new".to_vec()));
}

#[test]
fn a_manifest_with_another_number_of_chunks_is_corrupt() {
    let db = cut().db;
    values(&db).put(PK, NAME, &bytes(9, 1)[..]).unwrap();
    let chunks = Entity::new(PK, NAME).with("Chunks", 10_000_i64);
    db.merge(TABLE, &chunks, &Condition::Any).unwrap();
    let error = values(&db).get_vec(PK, NAME, 100).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
}

#[test]
fn a_put_whose_lost_change_was_replaced_has_an_unknown_outcome() {
    for len in [9, LENGTH] {
        let store = cut();
        values(&store.db).put(PK, NAME, &bytes(9, 0)[..]).unwrap();
        let changed = if len == 9 { 1 } else { 3 };
        let db = store.db.clone();
        let other = move || drop(values(&db).put(PK, NAME, &bytes(9, 7)[..]).unwrap());
        *store.fault.lock() = Some((changed, Fault::Lost));
        *store.before.lock() = Some((changed + 1, Box::new(other)));
        let error = values(&store).put(PK, NAME, &bytes(len, 1)[..]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
        check(&store.db, &[Some(&bytes(9, 7))]);
    }
}

#[test]
fn a_value_that_is_replaced_while_it_is_read_is_never_mixed() {
    for at in 0..3 {
        for is_swept in [false, true] {
            let store = cut();
            // More chunks than a page has.
            let old = bytes(6 * CHUNK_BYTES, 1);
            values(&store.db).put(PK, NAME, &old[..]).unwrap();
            let replace = || {
                let db = store.db.clone();
                let at = store.requests() + at;
                *store.before.lock() = Some((
                    at,
                    Box::new(move || {
                        values(&db).put(PK, NAME, &bytes(LENGTH, 2)[..]).unwrap();
                        if is_swept {
                            values(&db).sweep(Duration::ZERO).unwrap();
                        }
                    }),
                ));
            };
            replace();
            let found = values(&store).get_vec(PK, NAME, 1 << 30).unwrap().unwrap();
            let is_new = at == 0 || is_swept;
            assert!(found == if is_new { bytes(LENGTH, 2) } else { old.clone() });

            values(&store.db).put(PK, NAME, &old[..]).unwrap();
            replace();
            let mut sink = Vec::new();
            match values(&store).get(PK, NAME, &mut sink) {
                Ok(_) => assert!(sink == if is_new { bytes(LENGTH, 2) } else { old }),
                Err(error) => {
                    assert_eq!((error.kind(), at), (ErrorKind::PreconditionFailed, 2));
                    assert!(is_swept && sink == old[..3 * CHUNK_BYTES]);
                }
            }
        }
    }
}

#[test]
fn a_sweep_at_any_time_of_a_write_leaves_no_manifest_without_chunks() {
    for at in 0..5 {
        let store = cut();
        values(&store.db).put(PK, NAME, &bytes(LENGTH, 1)[..]).unwrap();
        let db = store.db.clone();
        let sweep = move || assert!(values(&db).sweep(Duration::ZERO).is_ok());
        *store.before.lock() = Some((at, Box::new(sweep)));
        let done = values(&store).put(PK, NAME, &bytes(LENGTH, 2)[..]);
        match done {
            Ok(_) => assert!(at == 0 || at == 4),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Timeout);
                assert!((1..4).contains(&at), "{at}");
            }
        }
        check(&store.db, &[Some(&bytes(LENGTH, if at == 0 || at == 4 { 2 } else { 1 }))]);
    }
}

#[test]
fn a_write_at_any_time_of_a_sweep_keeps_its_chunks() {
    for at in 0.. {
        let store = cut();
        for number in 0..2 {
            values(&store.db).put(PK, NAME, &bytes(LENGTH, number)[..]).unwrap();
        }
        // The first chunks of a write that has lost its mark, as after a sweep that was stopped.
        let key = WriteKey { row: NAME.to_owned(), id: "0".repeat(32) };
        store.db.upsert(TABLE, &Entity::new(PK, key.chunk(0))).unwrap();
        let db = store.db.clone();
        let put = move || drop(values(&db).put(PK, NAME, &bytes(LENGTH, 2)[..]).unwrap());
        *store.before.lock() = Some((at, Box::new(put)));
        values(&store).sweep(Duration::ZERO).unwrap();
        if store.before.lock().is_some() {
            assert!(at > 5);
            break;
        }
        check(&store.db, &[Some(&bytes(LENGTH, 2))]);
    }
}

#[test]
fn the_grace_begins_with_the_replacement_by_the_time_of_the_store() {
    let clock = Arc::new(ManualClock::new(134_000_000_000_000_000));
    let options = Options::new().fs(Arc::new(MemFs::new())).clock(Arc::clone(&clock) as _);
    let db = options.open("db").unwrap();
    db.create_table(TABLE).unwrap();
    let values = values(&db);
    let hour = Duration::from_secs(3_600);
    values.put(PK, NAME, &bytes(LENGTH, 1)[..]).unwrap();
    clock.advance(100 * hour);
    assert_eq!(values.sweep(hour).unwrap(), 0);
    values.put(PK, NAME, &bytes(9, 2)[..]).unwrap();
    clock.advance(hour - Duration::from_secs(1));
    assert_eq!(values.sweep(hour).unwrap(), 0);
    clock.advance(Duration::from_secs(2));
    assert_eq!(values.sweep(hour).unwrap(), 4);
    check(&db, &[Some(&bytes(9, 2))]);
}

#[test]
fn damage_and_other_entities_are_reported() {
    let db = cut().db;
    let values = values(&db);
    let mut sink = Vec::new();
    db.insert(TABLE, &Entity::new(PK, NAME).with("Other", 1)).unwrap();
    let error = values.get(PK, NAME, &mut sink).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(values.sweep(Duration::ZERO).unwrap(), 0);
    assert_eq!(row_keys(&db), [NAME]);

    values.put(PK, "b", &bytes(LENGTH, 1)[..]).unwrap();
    let last = row_keys(&db).into_iter().rfind(|row| row.starts_with("b!")).unwrap();
    let row = db.get(TABLE, PK, &last, &[]).unwrap().unwrap();
    db.upsert(TABLE, &row.clone().with("Data00", &b"wrong"[..])).unwrap();
    let error = values.get(PK, "b", &mut sink).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains("value 'b' of partition 'maps' of table 'Tab'"), "{error}");
    assert!(sink == bytes(LENGTH, 1)[..3 * CHUNK_BYTES]);
    db.table(TABLE).unwrap().delete(PK, &last).unwrap();
    let error = values.get_vec(PK, "b", LENGTH).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
}

/// Fails after some bytes.
struct Broken(usize);

impl io::Read for Broken {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = out.len().min(self.0);
        self.0 -= len;
        if len == 0 { Err(io::Error::other("the source fails")) } else { Ok(len) }
    }
}

#[test]
fn a_source_that_fails_changes_nothing() {
    let db = cut().db;
    values(&db).put(PK, NAME, &bytes(9, 1)[..]).unwrap();
    let error = values(&db).put(PK, NAME, Broken(LENGTH)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    check(&db, &[Some(&bytes(9, 1))]);
}

#[cfg(feature = "json")]
#[test]
fn values_survive_a_store_that_loses_answers() {
    use crate::store::Misbehaving;
    let rules = r#"[{"do": "lost", "operations": ["commit"], "percent": 30}]"#;
    let (mut done, mut unknown) = (0, 0);
    for seed in 0..40 {
        let store = Misbehaving::new(cut().db, rules, seed).unwrap();
        let mut possible = vec![None];
        for number in 1..4 {
            let value = bytes(if number == 2 { 9 } else { LENGTH }, number);
            match values(&store).put(PK, NAME, &value[..]) {
                Ok(_) => {
                    possible.clear();
                    done += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
                    unknown += 1;
                }
            }
            possible.push(Some(value));
        }
        check(store.inner(), &possible.iter().map(Option::as_deref).collect::<Vec<_>>());
    }
    assert!(done > 100 && unknown < 20, "{done} {unknown}");
}
