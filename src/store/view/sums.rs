//! Rows of a view, and the contributions of a source row to them.

use std::collections::BTreeMap;

use super::index::{Key, index_key};
use crate::error::{Code, Error, Result, quoted};
use crate::model::{
    Entity, KeyPart, PROPERTIES_MAX, ValueRef, check_key, check_property_name, utf16_len,
};

/// The RowKey of the position row of a view partition. A view row has a smaller or a larger one.
pub(super) const RESERVED: &str = "~";
/// The most view rows of a partition to which a source row contributes. A group replaces all of
/// them: old and new ones, the contributions and the position.
const CONTRIBUTIONS_MAX: usize = 49;
/// The property of each view row that counts its contributions.
pub(super) const ROWS: &str = "Rows";
/// This and the name of a property: the number of contributions with the property, if it is not
/// [`ROWS`].
const ROWS_WITH: &str = "Rows_";
/// The length of the names of the view partitions of a source row together, in UTF-16 units. The
/// index has those of a few states of the row in one string of 32,768 units.
const PARTITIONS_UNITS_MAX: usize = 8_000;

/// A view row: the sum of contributions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sum {
    pub(super) rows: i64,
    properties: BTreeMap<String, Total>,
}

/// The sum of a property, and the number of contributions with it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Total {
    sum: i128,
    rows: i64,
}

impl Sum {
    pub(super) fn of(row: &Entity) -> Result<Self> {
        let rows = row.get(ROWS)?;
        let mut properties = BTreeMap::new();
        for (name, _) in row.properties().filter(|(name, _)| !is_reserved(name)) {
            let with = format!("{ROWS_WITH}{name}");
            let rows = row.value(&with).map_or(Ok(rows), |_| row.get(&with))?;
            let sum = row.get::<i64>(name)?.into();
            properties.insert(name.to_owned(), Total { sum, rows });
        }
        Ok(Self { rows, properties })
    }

    /// # Errors
    /// `InvalidInput` if a sum exceeds 64 bits, or if there are too many properties.
    pub(super) fn to_row(&self, pk: &str, rk: &str) -> Result<Entity> {
        let problem = |text| Error::refused_with(Code::InvalidInput, text);
        let partial = self.properties.values().filter(|total| total.rows != self.rows).count();
        let count = 1 + self.properties.len() + partial;
        if count > PROPERTIES_MAX {
            let text = format!(
                "view row '{pk}', '{rk}' would have {count} properties with the counts `Rows_…` of \
                 those that some contributions lack; at most {PROPERTIES_MAX} are allowed"
            );
            return Err(problem(text));
        }
        let mut row = Entity::new(pk, rk).with(ROWS, self.rows);
        for (name, total) in &self.properties {
            let sum = i64::try_from(total.sum).map_err(|_| {
                let name = quoted("property", name);
                problem(format!("the sum of {name} of view row '{pk}', '{rk}' exceeds 64 bits"))
            })?;
            row.set(name, sum);
            if total.rows != self.rows {
                row.set(format!("{ROWS_WITH}{name}"), total.rows);
            }
        }
        Ok(row)
    }

    /// Adds a contribution, or subtracts it if the sign is -1.
    pub(super) fn add(&mut self, contribution: &Entity, sign: i64) {
        self.rows += sign;
        for (name, value) in contribution.properties() {
            let Some(value) = integer(value) else { continue };
            let total = self.properties.entry(name.to_owned()).or_default();
            total.sum += i128::from(value) * i128::from(sign);
            total.rows += sign;
        }
        self.properties.retain(|_, total| total.rows != 0);
    }
}

fn is_reserved(name: &str) -> bool {
    name == ROWS || name.starts_with(ROWS_WITH)
}

fn integer(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Int32(value) => Some(value.into()),
        ValueRef::Int64(value) => Some(value),
        _ => None,
    }
}

/// Checks the contributions of a source row, so that all groups with them can be built.
///
/// # Errors
/// `InvalidInput`.
pub(super) fn check(source: &Key, folded: &[Entity]) -> Result<()> {
    let problem = |text: String| {
        let text = format!("the fold of row '{}', '{}' returned {text}", source.0, source.1);
        Err(Error::refused_with(Code::InvalidInput, text))
    };
    let mut partitions: BTreeMap<&str, Vec<&Entity>> = BTreeMap::new();
    for row in folded {
        let rk = row.row_key();
        if rk.starts_with(RESERVED) {
            return problem(format!("RowKey '{rk}': '{RESERVED}' is reserved"));
        }
        if let Err(error) = check_key(KeyPart::RowKey, rk) {
            return problem(format!("RowKey '{rk}': {}", error.message()));
        }
        if let Some((name, _)) = row.properties().find(|(name, _)| is_reserved(name)) {
            return problem(format!("{}, which is reserved", quoted("property", name)));
        }
        if let Some((name, _)) = row.properties().find(|(_, value)| integer(*value).is_none()) {
            let name = quoted("property", name);
            return problem(format!("{name}, which is no integer: a view adds only integers"));
        }
        let is_long = |name: &str| check_property_name(&format!("{ROWS_WITH}{name}")).is_err();
        if let Some((name, _)) = row.properties().find(|(name, _)| is_long(name)) {
            return problem(format!("{}, a name that is too long", quoted("property", name)));
        }
        partitions.entry(row.partition_key()).or_default().push(row);
    }
    for (pk, rows) in &partitions {
        if rows.len() > CONTRIBUTIONS_MAX {
            return problem(format!("more than {CONTRIBUTIONS_MAX} rows of partition '{pk}'"));
        }
        if let Err(error) = check_key(KeyPart::PartitionKey, pk) {
            return problem(format!("PartitionKey '{pk}': {}", error.message()));
        }
        let properties: usize = rows.iter().map(|row| row.len() + 1).sum();
        if properties > PROPERTIES_MAX {
            let text = "rows of partition '{pk}' with more than 252 properties and RowKeys";
            return problem(text.replace("{pk}", pk));
        }
    }
    let units: usize = partitions.keys().map(|pk| utf16_len(pk) + 1).sum();
    if units > PARTITIONS_UNITS_MAX {
        return problem(format!(
            "rows of {} partitions, whose names exceed {PARTITIONS_UNITS_MAX} characters together",
            partitions.len()
        ));
    }
    for key in [contribution_key(source), index_key(source)] {
        if !folded.is_empty() && check_key(KeyPart::RowKey, &key).is_err() {
            return problem("a row, but its own keys are too long for the rows of the view".into());
        }
    }
    Ok(())
}

/// Returns the RowKey of the contributions of a source row.
pub(super) fn contribution_key((pk, rk): &Key) -> String {
    format!("{RESERVED}{}~{pk}{rk}", pk.len())
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
            Entity::new("p", "a").with("N", 1).with("A_1", 2_i64),
            Entity::new("p", "b").with("N", i64::MIN),
            Entity::new("p", "a").with("N", 3_i64),
        ];
        let kept = encode("p", "key", rows.iter());
        assert_eq!(decode(&kept), rows);
    }

    #[test]
    fn a_sum_is_that_of_its_contributions() {
        let [a, b, c] = [("N", 1), ("N", 2), ("M", 3)]
            .map(|(name, value)| Entity::new("p", "a").with(name, i64::from(value)).with("D", 1));
        let mut sum = Sum::default();
        [&a, &b, &c].into_iter().for_each(|row| sum.add(row, 1));
        let row = sum.to_row("p", "a").unwrap();
        let numbers = ["N", "M", "D", ROWS, "Rows_N", "Rows_M"].map(|it| row.get::<i64>(it).ok());
        assert_eq!(numbers, [3, 3, 3, 3, 2, 1].map(Some));
        assert!(row.value("Rows_D").is_none());
        assert_eq!(Sum::of(&row).unwrap(), sum);
        // A sum without a contribution is no longer a property, even if others are left.
        sum.add(&c, -1);
        let row = sum.to_row("p", "a").unwrap();
        assert!(row.value("M").is_none() && row.value("Rows_N").is_none());
        [&b, &a].into_iter().for_each(|row| sum.add(row, -1));
        assert_eq!(sum, Sum::default());
    }

    #[test]
    fn only_the_final_sum_must_have_64_bits() {
        let [most, one, least] =
            [i64::MAX, 1, i64::MIN].map(|value| Entity::new("p", "a").with("N", value));
        let mut sum = Sum::default();
        [&most, &one].into_iter().for_each(|row| sum.add(row, 1));
        let error = sum.to_row("p", "a").unwrap_err();
        assert!(error.message().contains("property 'N' of view row 'p', 'a'"), "{error}");
        sum.add(&least, 1);
        assert_eq!(sum.to_row("p", "a").unwrap().get::<i64>("N").unwrap(), 0);
        [&most, &one, &least].into_iter().for_each(|row| sum.add(row, -1));
        assert_eq!(sum, Sum::default());
    }
}
