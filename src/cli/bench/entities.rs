//! Generates and checks the entities of `rowstone bench`. An entity is determined by the seed, its
//! number and its `Round`.
//!
//! Entity `i` has `i / partition_rows` as PartitionKey and the remainder as RowKey, in fixed width,
//! so that keys sort like numbers. An entity has three properties. `Number`, below [`NUMBERS`],
//! depends only on the entity and is used by filters. Each write chooses a `Round`. `Payload`
//! depends on the entity and on `Round`. So a reader can check an entity without knowing which
//! write was the last.
//!
//! Invariant: [`Present`] contains the numbers of exactly the entities that were written.

use std::sync::Arc;

use crate::cli::failure::{Failure, Outcome};
use crate::model::Entity;
use crate::rng::Rng;
use crate::sync::{AtomicU64, Ordering};

/// The number of distinct values of the property `Number`.
pub(super) const NUMBERS: u64 = 1_000_000;
/// The length of a PartitionKey or RowKey, in characters.
const KEY_CHARS: usize = 10;
/// The length of the text that payloads are cut from. It exceeds a block and the window of the
/// compressor, so that the compressor does not find the text repeated.
const POOL_BYTES: usize = 1 << 20;
/// Payloads consist of pieces of this length, as in db_bench.
const PIECE_BYTES: usize = 100;

/// The parameters of a benchmark's table, which determine its entities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shape {
    pub(super) num: u64,
    pub(super) value_size: u32,
    pub(super) partition_rows: u64,
    pub(super) compression_ratio: f64,
    pub(super) seed: u64,
}

/// Minimal parameters, for a table without entities.
impl Default for Shape {
    fn default() -> Self {
        Self { num: 1, value_size: 0, partition_rows: 1, compression_ratio: 1.0, seed: 0 }
    }
}

/// Creates and checks entities.
pub(super) struct Entities {
    pub(super) shape: Shape,
    pool: String,
    names: [Arc<str>; 3],
}

/// The keys of one entity.
pub(super) struct Keys {
    partition: [u8; KEY_CHARS],
    row: [u8; KEY_CHARS],
}

/// The set of existing entities, one bit each.
pub(super) struct Present(Vec<AtomicU64>);

impl Entities {
    pub(super) fn new(shape: Shape) -> Self {
        let names = ["Number", "Round", "Payload"].map(Arc::from);
        Self { shape, pool: pool(&shape), names }
    }

    pub(super) fn keys(&self, i: u64) -> Keys {
        let rows = self.shape.partition_rows;
        Keys { partition: digits(i / rows), row: digits(i % rows) }
    }

    /// Returns the number of the entity with these keys, or `None` if the benchmark writes no such
    /// entity.
    pub(super) fn number_of(&self, partition_key: &str, row_key: &str) -> Option<u64> {
        let (partition, row) = (partition_key.parse::<u64>().ok()?, row_key.parse::<u64>().ok()?);
        let i = partition.checked_mul(self.shape.partition_rows)?.checked_add(row)?;
        (i < self.shape.num && row < self.shape.partition_rows).then_some(i)
    }

    pub(super) fn entity(&self, i: u64, round: i32) -> Entity {
        let (keys, [number, payload_round, payload]) = (self.keys(i), &self.names);
        Entity::new(keys.partition(), keys.row())
            .with(Arc::clone(number), self.number(i))
            .with(Arc::clone(payload_round), round)
            .with(Arc::clone(payload), self.payload(i, round))
    }

    /// Returns the property `Number` of entity `i`, which is below [`NUMBERS`].
    pub(super) fn number(&self, i: u64) -> i32 {
        (self.mix(i, 0) % NUMBERS) as i32
    }

    /// Returns the number of bytes in the keys and values of an entity.
    pub(super) fn entity_bytes(&self) -> u64 {
        u64::from(self.shape.value_size) + 2 * KEY_CHARS as u64 + 8
    }

    /// Fails if no write of entity `i` can have stored `found`. Any `Round` is accepted.
    pub(super) fn check(&self, i: u64, found: &Entity) -> Outcome {
        let keys = self.keys(i);
        let is_right = (found.partition_key(), found.row_key()) == (keys.partition(), keys.row())
            && found.get::<i32>("Number")? == self.number(i)
            && found.get::<&str>("Payload")? == self.payload(i, found.get("Round")?);
        let (partition, row) = (found.partition_key(), found.row_key());
        match is_right {
            true => Ok(()),
            false => Err(wrong(&format!("entity {i} was expected, and {partition}/{row} differs"))),
        }
    }

    fn payload(&self, i: u64, round: i32) -> &str {
        let at = self.mix(i, round.unsigned_abs().into()) as usize % POOL_BYTES;
        &self.pool[at..at + self.shape.value_size as usize]
    }

    fn mix(&self, i: u64, round: u64) -> u64 {
        Rng::from_seed(self.shape.seed ^ (i << 20) ^ round.rotate_right(16)).next_u64()
    }
}

impl Keys {
    pub(super) fn partition(&self) -> &str {
        text(&self.partition)
    }

    pub(super) fn row(&self) -> &str {
        text(&self.row)
    }
}

impl Present {
    pub(super) fn new(num: u64) -> Self {
        Self((0..num.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    pub(super) fn add(&self, i: u64) {
        self.0[(i / 64) as usize].fetch_or(1 << (i % 64), Ordering::Relaxed);
    }

    pub(super) fn has(&self, i: u64) -> bool {
        self.0[(i / 64) as usize].load(Ordering::Relaxed) & (1 << (i % 64)) != 0
    }

    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }
}

/// Returns the failure that reports a wrong answer of the database.
pub(super) fn wrong(what: &str) -> Failure {
    Failure::Other(format!(
        "wrong data: {what}\n  try: `rowstone verify DIR`, and keep the directory and the seed for a report"
    ))
}

/// Returns printable text in pieces. Each piece starts with random characters and repeats them to
/// its end; `compression_ratio` is the random fraction.
fn pool(shape: &Shape) -> String {
    let mut rng = Rng::from_seed(shape.seed);
    let len = POOL_BYTES + shape.value_size as usize;
    let fresh = ((PIECE_BYTES as f64 * shape.compression_ratio) as usize).clamp(1, PIECE_BYTES);
    let mut pool = String::with_capacity(len + PIECE_BYTES);
    while pool.len() < len {
        let piece: String = (0..fresh).map(|_| char::from(b' ' + rng.below(95) as u8)).collect();
        pool.extend(piece.chars().cycle().take(PIECE_BYTES));
    }
    pool
}

fn digits(mut number: u64) -> [u8; KEY_CHARS] {
    let mut digits = [b'0'; KEY_CHARS];
    for digit in digits.iter_mut().rev() {
        *digit += (number % 10) as u8;
        number /= 10;
    }
    digits
}

fn text(digits: &[u8]) -> &str {
    std::str::from_utf8(digits).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entities() -> Entities {
        let (num, value_size, partition_rows) = (1_000, 40, 7);
        let shape = Shape { num, value_size, partition_rows, compression_ratio: 0.5, seed: 3 };
        Entities::new(shape)
    }

    #[test]
    fn keys_ascend_with_their_numbers_and_name_them() {
        let entities = entities();
        let keys = |i| {
            let keys = entities.keys(i);
            (keys.partition().to_owned(), keys.row().to_owned())
        };
        assert_eq!(keys(15), ("0000000002".to_owned(), "0000000001".to_owned()));
        assert!((0..999).all(|i| keys(i) < keys(i + 1)));
        for i in 0..1_000 {
            let (partition, row) = keys(i);
            assert_eq!(entities.number_of(&partition, &row), Some(i));
        }
        let others = [("0000000000", "0000000007"), ("0000000999", "0000000000"), ("x", "1")];
        assert!(others.iter().all(|(pk, rk)| entities.number_of(pk, rk).is_none()));
    }

    #[test]
    fn an_entity_is_determined_by_its_number_and_any_difference_is_detected() {
        let entities = entities();
        entities.check(5, &entities.entity(5, 77)).unwrap();
        assert!(entities.check(6, &entities.entity(5, 77)).is_err());
        let changes = [("Number", -1), ("Round", 78)];
        for (name, value) in changes {
            assert!(entities.check(5, &entities.entity(5, 77).with(name, value)).is_err());
        }
        assert!(entities.check(5, &entities.entity(5, 77).with("Payload", "x")).is_err());
        assert_eq!(entities.entity(5, 77).get::<&str>("Payload").unwrap().len(), 40);
    }

    #[test]
    fn the_seed_decides_the_entities() {
        let (one, again) = (entities(), entities());
        assert_eq!(one.payload(9, 1), again.payload(9, 1));
        let other = Entities::new(Shape { seed: 4, ..one.shape });
        assert_ne!(one.payload(9, 1), other.payload(9, 1));
        assert_ne!(one.payload(9, 1), one.payload(9, 2));
    }

    #[test]
    fn added_keys_are_present() {
        let present = Present::new(130);
        [0, 63, 64, 129, 129].into_iter().for_each(|i| present.add(i));
        assert_eq!(present.count(), 4);
        assert!(present.has(64) && !present.has(65));
    }
}
