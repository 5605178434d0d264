//! Rows of a view, and the contributions of a source row to them.

use std::collections::BTreeMap;

use crate::error::{Code, Error, Result, quoted};
use crate::model::{Entity, Value, ValueRef};

/// The property of each view row that counts its contributions.
pub(super) const ROWS: &str = "Rows";

/// A view row: the sum of contributions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sum {
    pub(super) rows: i64,
    properties: BTreeMap<String, Value>,
}

impl Sum {
    pub(super) fn of(row: &Entity) -> Result<Self> {
        let properties = row.properties().filter(|(name, _)| *name != ROWS);
        let properties = properties.map(|(name, value)| (name.to_owned(), value.to_value()));
        Ok(Self { rows: row.get(ROWS)?, properties: properties.collect() })
    }

    pub(super) fn to_row(&self, pk: &str, rk: &str) -> Entity {
        let row = Entity::new(pk, rk).with(ROWS, self.rows);
        self.properties.iter().fold(row, |row, (name, value)| row.with(name, value.clone()))
    }

    pub(super) fn add(&mut self, contribution: &Entity) -> Result<()> {
        self.rows += 1;
        for (name, value) in contribution.properties() {
            let sum = match (self.properties.get(name), value) {
                (None, ValueRef::Int32(value)) => Value::Int64(value.into()),
                (None, value) => value.to_value(),
                (Some(old), value) => combined(name, old, value, 1)?,
            };
            self.properties.insert(name.to_owned(), sum);
        }
        Ok(())
    }

    /// Without contributions, a row has no properties. So a row with one contribution equals it,
    /// also if it has doubles.
    pub(super) fn subtract(&mut self, contribution: &Entity) -> Result<()> {
        self.rows -= 1;
        if self.rows == 0 {
            self.properties.clear();
        }
        for (name, value) in contribution.properties() {
            if let Some(old) = self.properties.get_mut(name) {
                let is_number = integer(value).is_some() || matches!(value, ValueRef::Double(_));
                if is_number {
                    *old = combined(name, old, value, -1)?;
                }
            }
        }
        Ok(())
    }
}

fn integer(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Int32(value) => Some(value.into()),
        ValueRef::Int64(value) => Some(value),
        _ => None,
    }
}

/// Returns `old + sign * value` for numbers, and `value` otherwise.
fn combined(name: &str, old: &Value, value: ValueRef<'_>, sign: i64) -> Result<Value> {
    #[expect(clippy::cast_precision_loss, reason = "a sum with a double is a double")]
    let double = |value: ValueRef<'_>| match value {
        ValueRef::Double(value) => Some(value),
        value => integer(value).map(|value| value as f64),
    };
    if let (Some(old), Some(value)) = (integer(old.as_ref()), integer(value)) {
        let sum = value.checked_mul(sign).and_then(|value| old.checked_add(value));
        return sum.map(Value::Int64).ok_or_else(|| {
            let text = format!("the sum of {} exceeds 64 bits", quoted("property", name));
            Error::refused_with(Code::InvalidInput, text)
        });
    }
    let signed = |value: f64| if sign < 0 { -value } else { value };
    Ok(match (double(old.as_ref()), double(value)) {
        (Some(old), Some(value)) => Value::Double(old + signed(value)),
        _ => value.to_value(),
    })
}

/// Returns the row that keeps the contributions of one source row to one view partition: the RowKey
/// of contribution `i` as `_i`, and its properties as `Name_i`.
pub(super) fn encode<'e>(
    pk: &str,
    key: &str,
    contributions: impl Iterator<Item = &'e Entity>,
) -> Entity {
    let mut row = Entity::new(pk, key);
    for (i, contribution) in contributions.enumerate() {
        row.set(format!("_{i}"), contribution.row_key());
        for (name, value) in contribution.properties() {
            row.set(format!("{name}_{i}"), value.to_value());
        }
    }
    row
}

/// Returns the contributions of a row of [`encode`].
pub(super) fn decode(row: &Entity) -> Vec<Entity> {
    let parts = || {
        row.properties().filter_map(|(name, value)| {
            let (name, i) = name.rsplit_once('_')?;
            Some((name, i.parse::<usize>().ok()?, value))
        })
    };
    let keys = parts().filter_map(|(name, i, value)| match value {
        ValueRef::String(key) if name.is_empty() => {
            Some((i, Entity::new(row.partition_key(), key)))
        }
        _ => None,
    });
    let mut contributions: BTreeMap<usize, Entity> = keys.collect();
    for (name, i, value) in parts().filter(|(name, ..)| !name.is_empty()) {
        if let Some(contribution) = contributions.get_mut(&i) {
            contribution.set(name, value.to_value());
        }
    }
    contributions.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contributions_are_kept_with_their_types() {
        let rows = [
            Entity::new("p", "a").with("N", 1).with("A_1", "x"),
            Entity::new("p", "b").with("N", 2.5),
            Entity::new("p", "a").with("N", 3_i64),
        ];
        let kept = encode("p", "key", rows.iter());
        assert_eq!(decode(&kept), rows);
    }

    #[test]
    fn a_sum_is_that_of_its_contributions() {
        let [a, b, c] = [("N", 1), ("N", 2), ("M", 3)].map(|(name, value)| {
            Entity::new("p", "a")
                .with(name, i64::from(value))
                .with("D", 0.1 * f64::from(value))
                .with("T", name)
        });
        let mut sum = Sum::default();
        [&a, &b, &c].into_iter().for_each(|row| sum.add(row).unwrap());
        let row = sum.to_row("p", "a");
        let numbers = ["N", "M", ROWS].map(|name| row.get::<i64>(name).unwrap());
        assert_eq!((numbers, row.get::<&str>("T").unwrap()), ([3, 3, 3], "M"));
        [&b, &c, &a].into_iter().for_each(|row| sum.subtract(row).unwrap());
        assert_eq!(sum, Sum::default());
        // The only contribution is stored without the error of a subtraction.
        sum.add(&c).unwrap();
        sum.subtract(&c).unwrap();
        sum.add(&a).unwrap();
        assert_eq!(sum, Sum { rows: 1, ..Sum::of(&a.clone().with(ROWS, 1_i64)).unwrap() });
        let most = Entity::new("p", "a").with("N", i64::MAX);
        assert!(sum.add(&most).unwrap_err().message().contains("64 bits"));
    }
}
