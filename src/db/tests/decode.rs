//! Compares the properties that a `RowDecoder` returns for many rows with those of the entities.

use std::fmt;
use std::ops::ControlFlow;

use super::*;
use crate::model::{Binary, DateTime, FromValue, Guid, Value, ValueRef};
use crate::rng::Rng;
use crate::table::{RowDecoder, RowView, Table};

/// Returns a value of a random type. Some types have values of random length, and some texts are
/// not ASCII.
fn any_value(rng: &mut Rng) -> Value {
    match rng.below(10) {
        0 => Value::String("plain".to_owned()),
        1 => Value::String("größer als \u{1f980}".repeat(rng.index(40))),
        2 => Value::Binary(vec![0xff; rng.index(300)]),
        3 => Value::Boolean(rng.chance(1, 2)),
        4 => Value::Int32(rng.next_u64() as i32),
        5 => Value::Int64(rng.next_u64() as i64),
        6 => Value::Double(f64::from_bits(rng.next_u64() >> 2)),
        7 => Value::DateTime(DateTime::from_ticks(rng.below(1 << 60)).unwrap()),
        8 => Value::Guid(Guid::from_bytes([rng.next_u64() as u8; 16])),
        _ => Value::String(String::new()),
    }
}

fn table() -> Table {
    Db::open_in_memory().unwrap().create_table("parts").unwrap()
}

/// Checks that `read` agrees with the entity's property `name`.
#[track_caller]
fn same<'e, T: FromValue<'e> + PartialEq + fmt::Debug>(
    read: Result<T, ErrorKind>,
    entity: &'e Entity,
    name: &str,
) {
    assert_eq!(read, entity.get::<T>(name).map_err(|error| error.kind()), "{name} of {entity:?}");
}

#[test]
fn decoded_values_equal_those_of_the_entity() {
    let (table, mut rng) = (table(), Rng::from_seed(7));
    for row in 0..400 {
        let mut entity = Entity::new("p", format!("{row:03}"));
        for name in ["A", "B", "C", "D"] {
            if rng.chance(3, 4) {
                entity.set(name, any_value(&mut rng));
            }
        }
        table.insert(entity).unwrap();
    }
    // These names are in another order than in the rows, and one of them is in no row.
    let mut decoder = RowDecoder::new(["C", "A", "X", "B"]);
    let check = |row: &RowView<'_>, decoder: &mut RowDecoder<4>| {
        let entity = row.to_entity().unwrap();
        macro_rules! each {
            ($($target:ty)+) => {$({
                type Any<'r> = Option<ValueRef<'r>>;
                let all = decoder.decode::<(Any<'_>, Any<'_>, Option<$target>, Any<'_>)>(row);
                let (c, a, x, b) = all.unwrap();
                assert_eq!((c, a), (entity.value("C"), entity.value("A")));
                assert_eq!((x, b), (None, entity.value("B")));
                let mut one = RowDecoder::new(["A"]);
                same(one.decode(row).map(|(a,): ($target,)| a).map_err(|e| e.kind()), &entity, "A");
                let a = one.decode(row).map(|(a,): (Option<$target>,)| a);
                same(a.map_err(|e| e.kind()), &entity, "A");
            })+};
        }
        each!(&str String &[u8] Vec<u8> Binary bool i32 i64 f64 DateTime Guid Value);
    };
    let mut rows = 0;
    let done = table.scan(KeyRange::all()).for_each_row(|row| {
        check(row, &mut decoder);
        rows += 1;
        Ok(ControlFlow::Continue(()))
    });
    done.unwrap();
    assert_eq!(rows, 400);
}

#[test]
fn more_shapes_than_the_decoder_caches_replace_one_another() {
    let table = table();
    for kind in 0..40 {
        let entity = Entity::new("p", format!("{kind:02}")).with(format!("N{kind}"), kind);
        table.insert(entity.with("Kind", kind)).unwrap();
    }
    let mut decoder = RowDecoder::new(["Kind", "N7"]);
    for _ in 0..3 {
        let mut next = 0;
        let done = table.scan(KeyRange::all()).for_each_row(|row| {
            let (kind, seven): (i32, Option<i64>) = decoder.decode(row)?;
            assert_eq!((kind, seven), (next, (next == 7).then_some(7)));
            next += 1;
            Ok(ControlFlow::Continue(()))
        });
        done.unwrap();
        assert_eq!(next, 40);
    }
}

#[test]
fn properties_that_do_not_fit_their_type_are_named() {
    let table = table();
    table.insert(Entity::new("p", "r").with("Price", 0.5).with("Stock", 3)).unwrap();
    let read = |row: &RowView<'_>| {
        let mut decoder = RowDecoder::new(["Stock", "Price"]);
        // Whole numbers are widened, as for an entity.
        assert_eq!(decoder.decode::<(i64, f64)>(row)?, (3, 0.5));
        assert_eq!(decoder.decode::<(f64, f64)>(row)?, (3.0, 0.5));
        let error = decoder.decode::<(i32, i32)>(row).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(error.message(), "property 'Price' is Edm.Double, not Edm.Int32");
        let mut decoder = RowDecoder::new(["Stock", "Weight"]);
        let error = decoder.decode::<(i32, f64)>(row).unwrap_err();
        let said = (error.kind(), error.message().to_owned());
        assert_eq!(said, (ErrorKind::NotFound, "no property 'Weight'".to_owned()));
        Ok(())
    };
    assert!(table.with_row("p", "r", read).unwrap().is_some());
}
