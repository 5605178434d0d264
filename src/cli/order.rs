//! Sorts entities by their properties, for `query --order-by`.
//!
//! Invariants
//! * memory holds at most a given number of bytes of entities: beyond it, sorting fails;
//! * the order is total: entities that are equal by all properties stay in the order of reading.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::failure::{Failure, Outcome};
use crate::error::Result;
use crate::model::{Entity, ValueRef};
use crate::query::order;
use crate::query::tree::Property;

/// The maximum size of the entities that are sorted, in bytes of memory.
pub(super) const BYTES_MAX: usize = 128 << 20;

/// The properties to sort by, the most significant first.
#[derive(Clone, Debug)]
pub(super) struct Order(Vec<By>);

#[derive(Clone, Debug)]
struct By {
    name: String,
    property: Property,
    descending: bool,
}

/// An entity, and how many were read before it.
struct Row<'o> {
    order: &'o Order,
    place: usize,
    entity: Entity,
}

/// Parses an order such as `Price desc, RowKey`.
pub(super) fn read(text: &str) -> Result<Order, String> {
    let by = |part: &str| {
        let words: Vec<&str> = part.split_whitespace().collect();
        let (name, way) = match words[..] {
            [name] => (name, "asc"),
            [name, way] => (name, way),
            _ => return Err(format!("'{part}' is not a property, or a property and asc or desc")),
        };
        let descending = way.eq_ignore_ascii_case("desc");
        if !descending && !way.eq_ignore_ascii_case("asc") {
            return Err(format!("'{way}' after the property {name} is neither asc nor desc"));
        }
        Ok(By { name: name.to_owned(), property: Property::from(name), descending })
    };
    text.split(',').map(by).collect::<Result<_, _>>().map(Order)
}

impl Order {
    /// Returns the names of the properties.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.0.iter().map(|by| &by.name)
    }

    /// Returns the first `top` entities in this order, or all of them, and whether there are more.
    /// At no time are more than `bytes_max` bytes of entities in memory.
    pub(super) fn sorted(
        &self,
        entities: impl IntoIterator<Item = Result<Entity>>,
        top: Option<usize>,
        bytes_max: usize,
    ) -> Outcome<(Vec<Entity>, bool)> {
        let mut first = BinaryHeap::new();
        let (mut bytes, mut is_cut) = (0, false);
        for (place, entity) in entities.into_iter().enumerate() {
            let row = Row { order: self, place, entity: entity? };
            bytes += row.bytes();
            first.push(row);
            if top.is_some_and(|top| first.len() > top) {
                bytes -= first.pop().map_or(0, |last| last.bytes());
                is_cut = true;
            }
            if bytes > bytes_max {
                return Err(too_many(bytes_max));
            }
        }
        let sorted = first.into_sorted_vec();
        Ok((sorted.into_iter().map(|row| row.entity).collect(), is_cut))
    }

    fn compare(&self, a: &Entity, b: &Entity) -> Ordering {
        let orders = self.0.iter().map(|by| {
            let order = match (by.property.of(a), by.property.of(b)) {
                (Some(a), Some(b)) => compare(a, b),
                (a, b) => a.is_some().cmp(&b.is_some()),
            };
            if by.descending { order.reverse() } else { order }
        });
        orders.fold(Ordering::Equal, Ordering::then)
    }
}

fn too_many(bytes_max: usize) -> Failure {
    Failure::Other(format!(
        "--order-by sorts in memory, and the entities that match exceed its {} MiB\n  try: --top \
         N, a --select of fewer properties, or `rowstone export DB TABLE --format csv | sort`",
        bytes_max >> 20
    ))
}

/// Returns the order of two values. Numbers of all types are compared by their exact value, and NaN
/// is the greatest; other values of different types have the order of their types.
fn compare(a: ValueRef<'_>, b: ValueRef<'_>) -> Ordering {
    match (number(a), number(b)) {
        // Rounding to doubles keeps the order, but makes some integers equal.
        (Some((a, exact_a)), Some((b, exact_b))) => a
            .partial_cmp(&b)
            .unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
            .then(exact_a.cmp(&exact_b)),
        _ if a.edm_type() == b.edm_type() => order(a, b).unwrap_or(Ordering::Equal),
        _ => a.edm_type().cmp(&b.edm_type()),
    }
}

/// Returns a number as a double and, as far as it is whole, as an integer.
fn number(value: ValueRef<'_>) -> Option<(f64, i128)> {
    Some(match value {
        ValueRef::Int32(number) => (number.into(), number.into()),
        ValueRef::Int64(number) => (number as f64, number.into()),
        ValueRef::Double(number) => (number, number as i128),
        _ => return None,
    })
}

impl Row<'_> {
    /// Returns the memory of the row. A heap of rows has room for up to twice as many.
    fn bytes(&self) -> usize {
        let keys = self.entity.partition_key().len() + self.entity.row_key().len();
        let values = self.entity.properties().map(|(_, value)| {
            value.edm_type().fixed_width().unwrap_or_else(|| 8 + value.variable_bytes().len())
        });
        2 * size_of::<Self>() + keys + values.sum::<usize>()
    }
}

impl Ord for Row<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_properties = self.order.compare(&self.entity, &other.entity);
        by_properties.then(self.place.cmp(&other.place))
    }
}

impl PartialOrd for Row<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Row<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Row<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{DateTime, Guid, Value};

    fn rows(order: &str, entities: &[Entity], top: Option<usize>) -> Vec<String> {
        let entities = entities.iter().cloned().map(Ok);
        let (sorted, _) = read(order).unwrap().sorted(entities, top, BYTES_MAX).unwrap();
        sorted.iter().map(|entity| entity.row_key().to_owned()).collect()
    }

    #[test]
    fn values_of_all_types_have_one_order() {
        let big = 1_i64 << 53;
        let values: Vec<Value> = vec![
            Value::String("a".into()),
            Value::String("b".into()),
            Value::Binary(vec![0]),
            Value::Boolean(false),
            Value::Boolean(true),
            Value::Double(f64::NEG_INFINITY),
            Value::Int64(i64::MIN),
            Value::Int32(-1),
            Value::Double(-0.5),
            Value::Double(1.5),
            Value::Int32(2),
            Value::Int64(big),
            Value::Int64(big + 1),
            Value::Double((big + 2) as f64),
            Value::Int64(i64::MAX),
            Value::Double(i64::MAX as f64),
            Value::Double(f64::INFINITY),
            Value::Double(f64::NAN),
            Value::DateTime(DateTime::MIN),
            Value::Guid(Guid::from_bytes([0; 16])),
        ];
        for (i, a) in values.iter().enumerate() {
            for (j, b) in values.iter().enumerate() {
                assert_eq!(compare(a.as_ref(), b.as_ref()), i.cmp(&j), "{a:?} {b:?}");
            }
        }
        let equal = [Value::Int32(0), Value::Int64(0), Value::Double(0.0), Value::Double(-0.0)];
        for (a, b) in equal.iter().flat_map(|a| equal.iter().map(move |b| (a, b))) {
            assert!(compare(a.as_ref(), b.as_ref()).is_eq(), "{a:?} {b:?}");
        }
    }

    #[test]
    fn missing_values_are_first_and_ties_stay_in_the_order_of_reading() {
        let row = |key: &str| Entity::new("p", key);
        let entities =
            [row("a").with("A", 2), row("b"), row("c").with("A", 1), row("d").with("A", 2)];
        assert_eq!(rows("A", &entities, None), ["b", "c", "a", "d"]);
        assert_eq!(rows("A desc", &entities, None), ["a", "d", "c", "b"]);
        assert_eq!(rows("A DESC , RowKey desc", &entities, None), ["d", "a", "c", "b"]);
        assert_eq!(rows("PartitionKey,A asc", &entities, Some(2)), ["b", "c"]);
        for top in 0..5 {
            let all = rows("A desc", &entities, None);
            assert_eq!(rows("A desc", &entities, Some(top)), all[..top.min(4)]);
        }
    }

    #[test]
    fn memory_is_bounded_with_a_top_and_without() {
        let order = read("A").unwrap();
        let entities = || (0..100).map(|i| Ok(Entity::new("p", i.to_string()).with("A", i)));
        let one = Row { order: &order, place: 0, entity: entities().next().unwrap().unwrap() };
        let room = 12 * one.bytes();
        let (ten, is_cut) = order.sorted(entities(), Some(10), room).unwrap();
        assert!(ten.len() == 10 && is_cut);
        for top in [None, Some(20)] {
            let (status, text) = order.sorted(entities(), top, room).unwrap_err().message();
            let text = text.unwrap();
            assert!(status == 1 && text.contains("--top N") && text.contains("| sort"), "{text}");
        }
    }

    #[test]
    fn an_order_that_cannot_be_read_is_named() {
        for (text, named) in [("", "''"), ("A,", "''"), ("A up", "'up'"), ("A b c", "'A b c'")] {
            let error = read(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
