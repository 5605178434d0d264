//! Encodes an entity for a key-value store: the version, then the properties in the encoding.
//!
//! Decoders borrow texts from the value if the caller allows it, so that an engine is not charged
//! for copies that its user would avoid.
//!
//! Invariants
//! * keys as bytes (partition, a zero, row) sort in the order of (PartitionKey, RowKey);
//! * the first eight bytes of a value are its version, little-endian, and are decoded separately.
//!
//! Not here: rows of rowstone and columns of SQLite (`engines/`).

use serde::{Deserialize, Serialize};

use crate::reading::{Digest, Key, OwnedProperties, Properties, Reading, partition_of};
use crate::sheet::{self, Item, Json, Sheet};
use crate::store::{Change, Encoding, Filter};

/// Bytes of the version in front of a value.
pub const VERSION_BYTES: usize = 8;

/// The only property that a filter decodes from an encoding with names; serde skips the other
/// members without building them.
#[derive(Deserialize)]
struct Temperature {
    temperature: f64,
}

#[derive(Deserialize)]
struct Humidity {
    humidity: f64,
}

/// These methods are not for [`Encoding::Native`]; a store with its own rows needs no encoding.
impl Encoding {
    /// Replaces the content of `into` by the encoded value: `version`, then the properties of
    /// `reading`.
    pub fn encode(self, reading: &Reading, version: u64, into: &mut Vec<u8>) {
        self.encode_properties(&reading.properties(), version, into);
    }

    /// Like [`encode`](Self::encode), for properties.
    pub fn encode_properties(self, properties: &impl Serialize, version: u64, into: &mut Vec<u8>) {
        into.clear();
        into.extend_from_slice(&version.to_le_bytes());
        match self {
            Encoding::Json => {
                serde_json::to_writer(&mut *into, properties).expect("writing to memory");
            }
            Encoding::Named => {
                rmp_serde::encode::write_named(&mut *into, properties).expect("writing to memory");
            }
            Encoding::Binary => {
                postcard::to_io(properties, &mut *into).expect("writing to memory");
            }
            Encoding::Native => panic!("native rows are not encoded here"),
        }
    }

    /// Decodes all properties in `value`, borrowing their texts.
    pub fn decode(self, value: &[u8]) -> Properties<'_> {
        self.read(value)
    }

    /// Decodes all properties in `value` into owned ones.
    pub fn decode_owned(self, value: &[u8]) -> OwnedProperties {
        self.read(value)
    }

    /// Decodes the property that `filter` tests, in the cheapest way.
    pub fn tested(self, value: &[u8], filter: Filter) -> f64 {
        match (self, filter) {
            // The format has no names, so all fields are decoded; texts are not copied.
            (Encoding::Binary, Filter::Below(_)) => self.decode(value).temperature,
            (Encoding::Binary, Filter::Between(..)) => self.decode(value).humidity,
            (_, Filter::Below(_)) => self.read::<Temperature>(value).temperature,
            (_, Filter::Between(..)) => self.read::<Humidity>(value).humidity,
        }
    }

    #[inline]
    fn read<'a, T: Deserialize<'a>>(self, value: &'a [u8]) -> T {
        let bytes = &value[VERSION_BYTES..];
        match self {
            Encoding::Json => serde_json::from_slice(bytes).expect("as it was written"),
            Encoding::Named => rmp_serde::from_slice(bytes).expect("as it was written"),
            Encoding::Binary => postcard::from_bytes(bytes).expect("as it was written"),
            Encoding::Native => panic!("native rows are not decoded here"),
        }
    }

    /// Replaces the content of `into` by `value` with `change` applied and with the new `version`.
    pub fn merge(self, value: &[u8], change: Change, version: u64, into: &mut Vec<u8>) {
        match change {
            Change::Temperature(temperature) => {
                let properties = Properties { temperature, ..self.decode(value) };
                self.encode_properties(&properties, version, into);
            }
            Change::Counter(kind, counter) => {
                let mut items = self.decode_items(value);
                items[kind.counter()] = Item::Whole(counter);
                self.encode_items(kind, items, version, into);
            }
        }
    }

    /// Replaces the content of `into` by the encoded value: `version`, then the items of `sheet`
    /// (an entity with many or large properties).
    pub fn encode_sheet(self, sheet: &Sheet, version: u64, into: &mut Vec<u8>) {
        self.encode_items(sheet.kind, sheet.items(), version, into);
    }

    fn encode_items(
        self,
        kind: sheet::Kind,
        items: Vec<Item<'_>>,
        version: u64,
        into: &mut Vec<u8>,
    ) {
        match self {
            Encoding::Json | Encoding::Named => {
                self.encode_properties(&Json(kind, items), version, into);
            }
            _ => self.encode_properties(&items, version, into),
        }
    }

    fn decode_items(self, value: &[u8]) -> Vec<Item<'_>> {
        match self {
            Encoding::Json | Encoding::Named => self.read::<Json<'_>>(value).1,
            _ => self.read(value),
        }
    }

    /// Returns the digest of the sheet that `value` encodes.
    pub fn sheet_digest(self, value: &[u8]) -> Digest {
        sheet::digest(self.decode_items(value).into_iter())
    }
}

/// Returns the version that is stored in the first bytes of `value`.
pub fn version(value: &[u8]) -> u64 {
    let bytes = value[..VERSION_BYTES].try_into().expect("eight bytes");
    u64::from_le_bytes(bytes)
}

/// Returns the key as bytes.
pub fn key_bytes(key: &Key) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(key.partition.len() + 1 + key.row.len());
    bytes.extend_from_slice(key.partition.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(key.row.as_bytes());
    bytes
}

/// Returns a lower bound of the keys in the partition of `device`. All keys of the partition are
/// below [`partition_end`].
pub fn partition_start(device: u32) -> Vec<u8> {
    let mut bytes = partition_of(device).into_bytes();
    bytes.push(0);
    bytes
}

/// Returns a bound above all keys in the partition of `device`.
pub fn partition_end(device: u32) -> Vec<u8> {
    let mut bytes = partition_of(device).into_bytes();
    bytes.push(1);
    bytes
}

/// Returns the key prefix shared by a partition, including the zero byte.
pub fn partition_prefix(key: &[u8]) -> &[u8] {
    let zero =
        key.iter().position(|byte| *byte == 0).expect("keys have a zero behind the partition");
    &key[..=zero]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Data;

    #[test]
    fn values_round_trip() {
        let data = Data::telemetry(7);
        let (mut value, mut other) = (Vec::new(), Vec::new());
        for encoding in [Encoding::Json, Encoding::Named, Encoding::Binary] {
            for reading in (0..500).map(|number| data.reading(number)) {
                encoding.encode(&reading, 42, &mut value);
                assert_eq!(version(&value), 42);
                assert_eq!(encoding.decode(&value), reading.properties());
                assert_eq!(encoding.decode_owned(&value).digest(), reading.digest());
                assert_eq!(encoding.tested(&value, Filter::Below(0.0)), reading.temperature);
                assert_eq!(encoding.tested(&value, Filter::Between(0.0, 1.0)), reading.humidity);
                encoding.merge(&value, Change::Temperature(1.5), 43, &mut other);
                let changed = Reading { temperature: 1.5, ..reading };
                assert_eq!((version(&other), encoding.decode(&other)), (43, changed.properties()));
            }
        }
    }

    #[test]
    fn sheets_round_trip_except_for_merged_properties() {
        let (mut value, mut other) = (Vec::new(), Vec::new());
        for encoding in [Encoding::Json, Encoding::Named, Encoding::Binary] {
            for kind in [sheet::Kind::Wide, sheet::Kind::Large] {
                let mut sheet = Sheet::new(3, kind, 5);
                encoding.encode_sheet(&sheet, 42, &mut value);
                assert_eq!(encoding.sheet_digest(&value), sheet.digest());
                encoding.merge(&value, Change::Counter(kind, -9), 43, &mut other);
                sheet.items[kind.counter()] = sheet::OwnedItem::Whole(-9);
                assert_eq!((version(&other), encoding.sheet_digest(&other)), (43, sheet.digest()));
            }
        }
    }

    #[test]
    fn keys_keep_their_order_and_their_partition() {
        let data = Data::telemetry(7);
        let keys: Vec<_> = (998..1_002).map(|number| key_bytes(&data.key(number))).collect();
        assert!(keys.is_sorted());
        assert_eq!(partition_prefix(&keys[0]), partition_start(0));
        assert!(keys[1] < partition_end(0) && partition_end(0) < keys[2]);
    }
}
