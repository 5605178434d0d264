//! Defines sheets: entities with the maximum number of properties, or of nearly the maximum size.
//!
//! Owns: [`Sheet`], its generation, and its encoding and decoding for key-value stores.
//! Invariants
//! * the same seed, kind and number give the same sheet, on every machine;
//! * items (property values) are in the order of their names; merges change only the counter.
//!
//! Not here: rows of rowstone and columns of SQLite (`engines/`).

use std::fmt;
use std::sync::LazyLock;

use rowstone::retry::Rng;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

use crate::reading::{Digest, Key, bytes, letters, number, sheet_key, text};

/// The maximum number of properties of an entity.
const WIDE_PROPERTIES: usize = 252;
/// The maximum size of a property. An entity of maximum size has room for fifteen such properties.
const BLOCK_BYTES: usize = 64 << 10;
const BLOCKS: usize = 15;

/// The kind of a sheet's properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 252 small properties: whole numbers, reals and texts.
    Wide,
    /// Fifteen binaries of 64 KiB, and a counter.
    Large,
}

/// One entity.
pub struct Sheet {
    pub key: Key,
    pub kind: Kind,
    pub items: Vec<OwnedItem>,
}

/// The value of a property.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnedItem {
    Whole(i64),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
}

/// The value of a property, borrowed from a stored value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Item<'a> {
    Whole(i64),
    Real(f64),
    Text(&'a str),
    #[serde(borrow)]
    Bytes(#[serde(serialize_with = "as_bytes")] &'a [u8]),
}

/// The items as a JSON object. Binaries need no base64, because they consist of ASCII letters.
pub struct Json<'a>(pub Kind, pub Vec<Item<'a>>);

/// An item in JSON, which does not distinguish binaries from texts.
struct Plain<'a>(Item<'a>);

static NAMES: LazyLock<[Vec<String>; 2]> = LazyLock::new(|| {
    let wide = (0..WIDE_PROPERTIES).map(|place| format!("Field{place:03}")).collect();
    let blocks = (0..BLOCKS).map(|place| format!("Data{place:02}"));
    [wide, ["Counter".to_owned()].into_iter().chain(blocks).collect()]
});

impl Kind {
    /// Returns the names of the properties, in order.
    pub fn names(self) -> &'static [String] {
        match self {
            Kind::Wide => &NAMES[0],
            Kind::Large => &NAMES[1],
        }
    }

    /// Returns the position of the counter, which is the integer property that merges set.
    pub fn counter(self) -> usize {
        match self {
            Kind::Wide => 100,
            Kind::Large => 0,
        }
    }

    /// Returns the key of sheet `number` of this kind.
    pub fn key(self, number: u64) -> Key {
        sheet_key(self as u32, number)
    }
}

impl Sheet {
    pub fn new(seed: u64, kind: Kind, number: u64) -> Self {
        let mut rng = Rng::from_seed(seed ^ number.rotate_left(17) ^ (kind as u64 + 1) << 50);
        let item = |place: usize| match (kind, place % 4) {
            (Kind::Large, _) if place != kind.counter() => {
                OwnedItem::Bytes(letters(&mut rng, BLOCK_BYTES).into_bytes())
            }
            (_, 1) => OwnedItem::Real(rng.below(10_000) as f64 / 100.0),
            (_, 3) => OwnedItem::Text(format!("state {}", rng.below(1_000))),
            _ => OwnedItem::Whole(rng.below(1 << 40) as i64),
        };
        let items = (0..kind.names().len()).map(item).collect();
        Self { key: kind.key(number), kind, items }
    }

    pub fn items(&self) -> Vec<Item<'_>> {
        self.items.iter().map(OwnedItem::borrowed).collect()
    }

    pub fn digest(&self) -> Digest {
        digest(self.items.iter().map(OwnedItem::borrowed))
    }

    /// Returns the raw size: the bytes of the two keys, and of the properties as JSON.
    pub fn raw_bytes(&self) -> u64 {
        let json = serde_json::to_string(&Json(self.kind, self.items())).expect("to memory");
        (self.key.partition.len() + self.key.row.len() + json.len()) as u64
    }
}

impl OwnedItem {
    pub fn borrowed(&self) -> Item<'_> {
        match self {
            OwnedItem::Whole(value) => Item::Whole(*value),
            OwnedItem::Real(value) => Item::Real(*value),
            OwnedItem::Text(value) => Item::Text(value),
            OwnedItem::Bytes(value) => Item::Bytes(value),
        }
    }
}

/// Returns a digest of all items. Equal items have equal digests. A text and a binary with the same
/// bytes also count as equal.
pub fn digest<'a>(items: impl Iterator<Item = Item<'a>>) -> Digest {
    let term = |(place, item): (u64, Item<'_>)| match item {
        Item::Whole(value) => number(place, value as u64),
        Item::Real(value) => number(place, value.to_bits()),
        Item::Text(value) => text(place, value),
        Item::Bytes(value) => bytes(place, value),
    };
    (0..).zip(items).map(term).fold(0, Digest::wrapping_add)
}

fn as_bytes<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bytes(bytes)
}

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.1.len()))?;
        for (name, item) in self.0.names().iter().zip(&self.1) {
            match *item {
                Item::Whole(value) => map.serialize_entry(name, &value)?,
                Item::Real(value) => map.serialize_entry(name, &value)?,
                Item::Text(value) => map.serialize_entry(name, value)?,
                Item::Bytes(value) => {
                    let text = std::str::from_utf8(value).map_err(serde::ser::Error::custom)?;
                    map.serialize_entry(name, text)?;
                }
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Json<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Json<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the properties of a sheet, in order")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json<'de>, A::Error> {
                let (mut kind, mut items) = (Kind::Large, Vec::with_capacity(WIDE_PROPERTIES));
                while let Some(name) = map.next_key::<&str>()? {
                    if items.is_empty() && name == Kind::Wide.names()[0] {
                        kind = Kind::Wide;
                    }
                    if kind.names().get(items.len()).is_none_or(|expected| expected != name) {
                        return Err(A::Error::custom("another name"));
                    }
                    items.push(map.next_value::<Plain<'de>>()?.0);
                }
                Ok(Json(kind, items))
            }
        }
        from.deserialize_map(Members)
    }
}

impl<'de> Deserialize<'de> for Plain<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Plain<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or a text without escapes")
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Plain<'de>, E> {
                Ok(Plain(Item::Whole(value as i64)))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Plain<'de>, E> {
                Ok(Plain(Item::Whole(value)))
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Plain<'de>, E> {
                Ok(Plain(Item::Real(value)))
            }

            fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Plain<'de>, E> {
                Ok(Plain(Item::Text(value)))
            }
        }
        from.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sheet_has_the_size_that_it_reports() {
        let (wide, large) = (Sheet::new(1, Kind::Wide, 7), Sheet::new(1, Kind::Large, 7));
        assert_eq!(wide.items.len(), 252);
        assert!((983_040..1 << 20).contains(&large.raw_bytes()), "{}", large.raw_bytes());
        for sheet in [wide, large] {
            assert!(matches!(sheet.items[sheet.kind.counter()], OwnedItem::Whole(_)));
            assert!(sheet.kind.names().is_sorted());
            assert_ne!(sheet.digest(), Sheet::new(1, sheet.kind, 8).digest());
            assert_eq!(sheet.digest(), Sheet::new(1, sheet.kind, 7).digest());
        }
    }
}
