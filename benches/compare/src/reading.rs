//! Defines the entity of all workloads: a telemetry reading with ten properties of six types,
//! generated from its number. Also defines the digest by which answers are checked.
//!
//! Invariants
//! * the same seed, number and revision give the same reading, on every machine;
//! * keys ascend with numbers;
//! * a digest is the sum of a term for each property, so that one property's term can be replaced.
//!
//! Not here: encodings (`encoding.rs`), flights (`flights.rs`), expected answers (`oracle.rs`).

use std::fmt::Write;
use std::sync::Arc;

use rowstone::retry::Rng;
use serde::{Deserialize, Serialize};

/// A sum over all properties of an entity; equal entities have equal digests in every engine.
pub type Digest = u64;

/// The number of readings in a partition. A partition has consecutive readings of one device.
pub const READINGS_PER_DEVICE: u64 = 1_000;

/// 2024-01-01 in ticks of 100 ns since 1601.
const START: i64 = 133_485_408_000_000_000;
const TICKS_PER_SECOND: i64 = 10_000_000;
/// The length of the property `note` in the payload variant.
const PAYLOAD_BYTES: usize = 1024;
/// The partition of the first queue. A queue is a partition whose first entity is taken again and
/// again.
const QUEUE_DEVICE: u32 = 90_000_000;
/// The first partition of sheets, which are entities with many or large properties.
const SHEET_DEVICE: u32 = 95_000_000;
/// The number of different temperatures, which are equally frequent: every hundredth of a degree
/// from -40 °C upwards.
const TEMPERATURES: u64 = 10_000;

/// PartitionKey and RowKey of an entity, as numbers and as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    pub device: u32,
    /// For example `device-00000042`; for flights, carrier and origin.
    pub partition: String,
    /// Time of the reading in ticks, zero-padded so that RowKeys sort by time.
    pub row: String,
}

/// One reading. Fields are in the order of their names, as in Azure Table storage.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    pub key: Key,
    /// Ticks of 100 ns since 1601.
    pub at: i64,
    pub battery: i32,
    pub counter: i64,
    pub firmware: String,
    pub humidity: f64,
    pub note: String,
    pub online: bool,
    pub pressure: f64,
    pub site: String,
    pub temperature: f64,
}

/// The ten properties without the key, with borrowed texts. They are the value in a key-value
/// store.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Properties<'a> {
    pub at: i64,
    pub battery: i32,
    pub counter: i64,
    #[serde(borrow)]
    pub firmware: &'a str,
    pub humidity: f64,
    #[serde(borrow)]
    pub note: &'a str,
    pub online: bool,
    pub pressure: f64,
    #[serde(borrow)]
    pub site: &'a str,
    pub temperature: f64,
}

/// The ten properties with owned texts, as an application keeps them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnedProperties {
    pub at: i64,
    pub battery: i32,
    pub counter: i64,
    pub firmware: String,
    pub humidity: f64,
    pub note: String,
    pub online: bool,
    pub pressure: f64,
    pub site: String,
    pub temperature: f64,
}

/// The entities of a run: generated ones, or real ones held in memory.
#[derive(Clone)]
pub struct Data {
    seed: u64,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Telemetry,
    /// Telemetry with a note of 1 KiB.
    Payload,
    /// Real rows, in the order of their keys.
    Real(Arc<Vec<Reading>>),
}

/// Returns the term of a number in a digest. `place` is the position of the property among the ten,
/// sorted by name, from 0.
#[inline]
pub fn number(place: u64, value: u64) -> Digest {
    // Multiplication by an odd factor is a bijection: every change of the value changes the term.
    let factor = 0x9e37_79b9_7f4a_7c15_u64.wrapping_add(place.wrapping_mul(0x8cb9_2ba7_2f3d_8dd6));
    let mixed = (value ^ (value >> 32)).wrapping_add(place + 1).wrapping_mul(factor);
    mixed ^ (mixed >> 29)
}

/// Returns the term of a text in a digest. It reads eight bytes at a time, where the last eight may
/// overlap. A check should be much cheaper than the read that it checks.
#[inline]
pub fn text(place: u64, value: &str) -> Digest {
    bytes(place, value.as_bytes())
}

/// Returns the term of bytes in a digest.
#[inline]
pub fn bytes(place: u64, bytes: &[u8]) -> Digest {
    let mut sum = bytes.len() as u64;
    let mut add = |word: u64| {
        sum = (sum ^ word).wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(29);
    };
    for chunk in bytes.chunks_exact(8) {
        add(u64::from_le_bytes(chunk.try_into().expect("eight bytes")));
    }
    if let Some(last) = bytes.last_chunk::<8>() {
        add(u64::from_le_bytes(*last));
    } else if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        add(u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last)));
    } else {
        bytes.iter().for_each(|byte| add(u64::from(*byte)));
    }
    number(place, sum)
}

impl Reading {
    pub fn properties(&self) -> Properties<'_> {
        Properties {
            at: self.at,
            battery: self.battery,
            counter: self.counter,
            firmware: &self.firmware,
            humidity: self.humidity,
            note: &self.note,
            online: self.online,
            pressure: self.pressure,
            site: &self.site,
            temperature: self.temperature,
        }
    }

    pub fn digest(&self) -> Digest {
        self.properties().digest()
    }

    /// Returns the raw size, the base of amplification figures: the bytes of the two keys and of
    /// the properties as JSON.
    pub fn raw_bytes(&self) -> u64 {
        let json = serde_json::to_string(&self.properties()).expect("writing to memory");
        (self.key.partition.len() + self.key.row.len() + json.len()) as u64
    }
}

impl Properties<'_> {
    #[inline]
    pub fn digest(&self) -> Digest {
        number(0, self.at as u64)
            .wrapping_add(number(1, self.battery as u64))
            .wrapping_add(number(2, self.counter as u64))
            .wrapping_add(text(3, self.firmware))
            .wrapping_add(number(4, self.humidity.to_bits()))
            .wrapping_add(text(5, self.note))
            .wrapping_add(number(6, u64::from(self.online)))
            .wrapping_add(number(7, self.pressure.to_bits()))
            .wrapping_add(text(8, self.site))
            .wrapping_add(number(9, self.temperature.to_bits()))
    }
}

impl OwnedProperties {
    pub fn borrowed(&self) -> Properties<'_> {
        Properties {
            at: self.at,
            battery: self.battery,
            counter: self.counter,
            firmware: &self.firmware,
            humidity: self.humidity,
            note: &self.note,
            online: self.online,
            pressure: self.pressure,
            site: &self.site,
            temperature: self.temperature,
        }
    }

    pub fn digest(&self) -> Digest {
        self.borrowed().digest()
    }
}

impl Data {
    pub fn telemetry(seed: u64) -> Self {
        Self { seed, kind: Kind::Telemetry }
    }

    /// Generates telemetry with a note of 1 KiB in each reading.
    pub fn payload(seed: u64) -> Self {
        Self { seed, kind: Kind::Payload }
    }

    /// Uses real `rows` as the data, sorted by their keys.
    pub fn real(seed: u64, mut rows: Vec<Reading>) -> Self {
        rows.sort_by(|a, b| (&a.key.partition, &a.key.row).cmp(&(&b.key.partition, &b.key.row)));
        rows.dedup_by(|a, b| a.key.partition == b.key.partition && a.key.row == b.key.row);
        Self { seed, kind: Kind::Real(Arc::new(rows)) }
    }

    /// Returns the number of entities, if the data are real.
    pub fn rows(&self) -> Option<u64> {
        match &self.kind {
            Kind::Real(rows) => Some(rows.len() as u64),
            Kind::Telemetry | Kind::Payload => None,
        }
    }

    /// Returns the reading with this number, in its first revision.
    pub fn reading(&self, number: u64) -> Reading {
        self.revised(number, 0)
    }

    /// Returns the reading of this number after `revision` replacements. Real rows change only
    /// their temperature.
    pub fn revised(&self, number: u64, revision: u32) -> Reading {
        match &self.kind {
            Kind::Real(rows) => {
                let mut reading = rows[number as usize].clone();
                if revision > 0 {
                    reading.temperature = self.temperature(number, revision);
                }
                reading
            }
            Kind::Telemetry | Kind::Payload => {
                let device = (number / READINGS_PER_DEVICE) as u32;
                let tick = ticks(number % READINGS_PER_DEVICE);
                self.made(key_of(device, tick), number, revision)
            }
        }
    }

    pub fn key(&self, number: u64) -> Key {
        match &self.kind {
            Kind::Real(rows) => rows[number as usize].key.clone(),
            Kind::Telemetry | Kind::Payload => {
                key_of((number / READINGS_PER_DEVICE) as u32, ticks(number % READINGS_PER_DEVICE))
            }
        }
    }

    /// Returns a key that has no entity and lies between two existing keys.
    pub fn missing_key(&self, number: u64) -> Key {
        let mut key = self.key(number);
        match &self.kind {
            Kind::Real(_) => key.row.push('x'),
            // RowKeys are times of whole seconds in ticks, so none ends in 7. The length stays the
            // same.
            Kind::Telemetry | Kind::Payload => {
                key.row.pop();
                key.row.push('7');
            }
        }
        key
    }

    /// Returns entry `number` of a queue. Each queue has its own partition, in which RowKeys ascend
    /// without end.
    pub fn queued(&self, queue: u32, number: u64) -> Reading {
        self.made(key_of(QUEUE_DEVICE + queue, ticks(number)), number ^ (1 << 60), 0)
    }

    /// Returns the partition of a queue.
    pub fn queue_device(queue: u32) -> u32 {
        QUEUE_DEVICE + queue
    }

    /// Returns the temperature of a revision: uniform in hundredths of a degree.
    pub fn temperature(&self, number: u64, revision: u32) -> f64 {
        let mut rng = self.rng(number, revision);
        hundredths(rng.below(TEMPERATURES), -4_000)
    }

    /// Returns a limit: `thousandths` of every thousand temperatures are below it.
    pub fn temperature_below(&self, thousandths: u64) -> f64 {
        if let Kind::Real(rows) = &self.kind {
            let mut all: Vec<f64> = rows.iter().map(|row| row.temperature).collect();
            all.sort_by(f64::total_cmp);
            return all[(all.len() as u64 * thousandths / 1000) as usize];
        }
        hundredths(TEMPERATURES * thousandths / 1000, -4_000)
    }

    fn rng(&self, number: u64, revision: u32) -> Rng {
        let mut mixed =
            Rng::from_seed(self.seed ^ number.rotate_left(17) ^ u64::from(revision) << 40);
        Rng::from_seed(mixed.next_u64())
    }

    fn made(&self, key: Key, number: u64, revision: u32) -> Reading {
        let mut rng = self.rng(number, revision);
        let temperature = hundredths(rng.below(TEMPERATURES), -4_000);
        let at = key.row.parse().expect("rows are ticks");
        let firmware = format!("4.{}.{}", rng.below(8), rng.below(20));
        let note = match self.kind {
            Kind::Payload => letters(&mut rng, PAYLOAD_BYTES),
            Kind::Telemetry | Kind::Real(_) => NOTES[rng.index(NOTES.len())].to_owned(),
        };
        Reading {
            at,
            battery: rng.below(101) as i32,
            counter: (number & 0xffff_ffff) as i64 * 7 + rng.below(7) as i64,
            firmware,
            humidity: hundredths(rng.below(10_000), 0),
            note,
            online: rng.chance(9, 10),
            pressure: hundredths(rng.below(9_000), 95_000),
            site: format!("site-{:03}", rng.below(1_000)),
            temperature,
            key,
        }
    }
}

const NOTES: [&str; 8] = [
    "ok",
    "checked",
    "recalibrated",
    "low signal",
    "",
    "door open",
    "battery replaced",
    "ok, noisy",
];

/// Returns the name of a device's partition.
pub fn partition_of(device: u32) -> String {
    format!("device-{device:08}")
}

fn ticks(second: u64) -> i64 {
    START + second as i64 * TICKS_PER_SECOND
}

fn key_of(device: u32, tick: i64) -> Key {
    let mut row = String::with_capacity(18);
    write!(row, "{tick:018}").expect("writing to memory");
    Key { device, partition: partition_of(device), row }
}

/// Returns a number with two decimals. It is short as text, and parsing the text restores it
/// exactly.
fn hundredths(count: u64, from: i64) -> f64 {
    (from + count as i64) as f64 / 100.0
}

/// Returns the key of a sheet. Each partition has a hundred sheets of one kind.
pub fn sheet_key(kind: u32, number: u64) -> Key {
    key_of(SHEET_DEVICE + 100_000 * kind + (number / 100) as u32, ticks(number % 100))
}

/// Returns random letters of six bits each: hardly compressible text.
pub fn letters(rng: &mut Rng, count: usize) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::with_capacity(count);
    while text.len() < count {
        let mut bits = rng.next_u64();
        for _ in 0..8 {
            text.push(char::from(LETTERS[(bits & 63) as usize]));
            bits >>= 6;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_decides_the_reading() {
        let (data, other) = (Data::telemetry(1), Data::telemetry(2));
        assert_eq!(data.reading(4_711), data.reading(4_711));
        assert_ne!(data.reading(4_711), other.reading(4_711));
        assert_ne!(data.reading(4_711).digest(), data.revised(4_711, 1).digest());
        assert_eq!(data.revised(9, 3).temperature, data.temperature(9, 3));
        assert_eq!(data.reading(4_711).key, data.key(4_711));
    }

    #[test]
    fn keys_ascend_and_absent_keys_are_between_them() {
        let data = Data::telemetry(1);
        let keys: Vec<_> = (990..1_010).map(|n| (data.key(n), data.missing_key(n))).collect();
        for pair in keys.windows(2) {
            let of = |key: &Key| (key.partition.clone(), key.row.clone());
            assert!(of(&pair[0].0) < of(&pair[0].1) && of(&pair[0].1) < of(&pair[1].0));
        }
    }

    #[test]
    fn a_reading_has_about_two_hundred_bytes() {
        let data = Data::telemetry(1);
        let sum: u64 = (0..1_000).map(|n| data.reading(n).raw_bytes()).sum();
        assert!((200_000..220_000).contains(&sum), "{sum}");
        assert!((1_150..1_250).contains(&Data::payload(1).reading(5).raw_bytes()));
    }

    #[test]
    fn every_property_counts_in_the_digest() {
        let reading = Data::telemetry(1).reading(77);
        let of = |change: fn(&mut Reading)| {
            let mut changed = reading.clone();
            change(&mut changed);
            changed.digest()
        };
        let changes: [fn(&mut Reading); 11] = [
            |_| (),
            |r| r.at += 1,
            |r| r.battery += 1,
            |r| r.counter += 1,
            |r| r.firmware.push('1'),
            |r| r.humidity += 0.01,
            |r| r.note.push(' '),
            |r| r.online = !r.online,
            |r| r.pressure += 0.01,
            |r| r.site.push('1'),
            |r| r.temperature = -r.temperature,
        ];
        let mut digests: Vec<Digest> = changes.map(of).to_vec();
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), changes.len());
    }

    #[test]
    fn shares_of_temperatures_are_as_specified() {
        let data = Data::telemetry(1);
        for (thousandths, low, high) in [(1, 10, 40), (10, 150, 250), (500, 9_700, 10_300)] {
            let limit = data.temperature_below(thousandths);
            let below = (0..20_000).filter(|n| data.reading(*n).temperature < limit).count();
            assert!((low..high).contains(&below), "{thousandths}: {below}");
        }
    }
}
