//! A service that refuses more than `rowstone serve` does: groups above a size, entities with a
//! certain property, or a table. Other services have other limits.

use crate::rng::Rng;
use crate::store::remote::transport::Request;

/// The name of a property that a strict service refuses.
pub(super) const REFUSED: &str = "Bad";
/// The name of a table that a strict service refuses.
pub(super) const REFUSED_TABLE: &str = "Extra";

/// The additional limits of a service.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Strict {
    /// The maximum length of the body of a group.
    pub(super) group_bytes: Option<usize>,
    pub(super) refuses_rows: bool,
    pub(super) refuses_table: bool,
}

impl Strict {
    /// Chooses limits. `length` is about the length of an entity.
    pub(super) fn new(rng: &mut Rng, length: u64) -> Self {
        let group_bytes = length * 2 + rng.below(length * 4);
        Self {
            group_bytes: rng.chance(1, 2).then_some(group_bytes as usize),
            refuses_rows: rng.chance(1, 4),
            refuses_table: rng.chance(1, 8),
        }
    }

    pub(super) fn is_too_large(&self, request: &Request) -> bool {
        let is_group = request.url.split('?').next().is_some_and(|url| url.ends_with("/$batch"));
        is_group && self.group_bytes.is_some_and(|most| request.body.len() > most)
    }

    /// Returns the request with invalid names in place of those that the service refuses, so that
    /// it refuses them as it refuses other invalid names.
    pub(super) fn spoilt(&self, request: &Request) -> Request {
        let mut spoilt = request.clone();
        let names = [
            (self.refuses_rows, format!("\"{REFUSED}\":")),
            (self.refuses_table, format!("\"TableName\":\"{REFUSED_TABLE}\"")),
        ];
        for (_, name) in names.iter().filter(|(is_refused, _)| *is_refused) {
            let (name, at) = (name.as_bytes(), name.len() - 3);
            let places = request.body.windows(name.len()).enumerate();
            for (place, _) in places.filter(|(_, found)| found.eq_ignore_ascii_case(name)) {
                spoilt.body[place + at] = b'-';
            }
        }
        spoilt
    }
}
