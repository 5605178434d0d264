//! The services that speak the protocol of Azure Table storage, and the rules in which they differ.
//!
//! The rules are data: one constant per service, with the source of each line. Rules that all
//! services share are those of `model`.
//!
//! Not here: what a service does with a request (`remote`).

use crate::error::Result;
use crate::json::odata::{self, Metadata};
use crate::model::{
    ENTITY_SIZE_MAX, Entity, KEY_UNITS_MAX, KeyPart, PROPERTIES_MAX, check_key,
    check_property_name, check_table_name, check_value, utf16_len,
};

/// A service that speaks the protocol of Azure Table storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Dialect {
    /// Azure Table storage
    Azure,
    /// The emulator Azurite
    Azurite,
    /// Azure Cosmos DB for Table, by its documentation
    Cosmos,
    /// `rowstone serve`
    Rowstone,
}

/// The rules of a service.
struct Rules {
    name: &'static str,
    sorted_by_key: bool,
    /// The maximum number of UTF-16 units of a key.
    key_units: usize,
    /// The maximum numbers of UTF-8 bytes of PartitionKey and RowKey.
    key_bytes: [usize; 2],
    /// Whether keys may be empty.
    empty_keys: bool,
    /// Names that a property must not have, in any case.
    reserved: &'static [&'static str],
    /// The maximum size of an entity by [`Entity::size`].
    entity_size: usize,
    /// The maximum number of bytes of an entity as JSON with types.
    entity_json: usize,
    /// Facts that no check of single entities can find.
    notes: &'static [&'static str],
}

/// "Understanding the Table service data model" and "Scalability and performance targets for Table
/// storage": key size, entity size, order of results.
const AZURE: Rules = Rules {
    name: "azure",
    sorted_by_key: true,
    key_units: KEY_UNITS_MAX,
    key_bytes: [usize::MAX; 2],
    empty_keys: true,
    reserved: &[],
    entity_size: ENTITY_SIZE_MAX,
    entity_json: usize::MAX,
    notes: &[],
};

const AZURITE: Rules = Rules {
    name: "azurite",
    // Its source: keys have at most 512 UTF-16 units, as in the older emulator.
    key_units: 512,
    // Its source: a replace or a merge with a body of more than 1 MiB is refused, although the size
    // of the entity may be less.
    entity_json: ENTITY_SIZE_MAX,
    ..AZURE
};

const COSMOS: Rules = Rules {
    name: "cosmos",
    // "Frequently asked questions about Azure Cosmos DB for Table": results are not in key order.
    sorted_by_key: false,
    // "Azure Cosmos DB service quotas": a partition key has at most 2,048 bytes. The questions: a
    // RowKey has at most 255 bytes.
    key_bytes: [2_048, 255],
    // The tests of the Azure SDK for Python, which were recorded at Cosmos DB: an empty key is
    // refused.
    empty_keys: false,
    // The questions write `ID`, `rid`, `etag` and `ResourceId`. They do not say whether the case
    // matters, so it does not here.
    reserved: &["id", "rid", "etag", "ResourceId"],
    // "Azure Cosmos DB service quotas": an item has at most 2 MB as JSON.
    entity_size: 2_000_000,
    entity_json: 2_000_000,
    notes: &[
        "the rules of cosmos are from its documentation; rowstone was never run against it",
        "in cosmos, table names that differ only by case are different tables",
        "cosmos stores at most 20 GB in a partition, and bills reserved throughput",
        "cosmos accepts groups of at most 2 MB; copy sends no larger ones",
    ],
    ..AZURE
};

const ROWSTONE: Rules = Rules { name: "rowstone", ..AZURE };

impl Dialect {
    /// Returns the service at a URL: Cosmos DB for its hosts, Azure Table storage for all others.
    #[cfg(feature = "remote")]
    pub(crate) fn at(url: &str) -> Self {
        match url.to_ascii_lowercase().contains(".table.cosmos") {
            true => Self::Cosmos,
            false => Self::Azure,
        }
    }

    fn rules(self) -> &'static Rules {
        match self {
            Self::Azure => &AZURE,
            Self::Azurite => &AZURITE,
            Self::Cosmos => &COSMOS,
            Self::Rowstone => &ROWSTONE,
        }
    }

    /// Whether the results of a query are in key order. Without it, `compare` and `copy` cannot
    /// read a table slice by slice, and refuse the service.
    pub(crate) fn sorts_by_key(self) -> bool {
        self.rules().sorted_by_key
    }

    /// Returns facts about the service that a user should know before data is moved to it.
    pub(crate) fn notes(self) -> impl Iterator<Item = &'static str> {
        let unsorted =
            (!self.sorts_by_key()).then_some("the service does not sort query results by key");
        self.rules().notes.iter().copied().chain(unsorted)
    }

    /// Returns the reason why the service would refuse a table of this name. Cosmos accepts further
    /// names, which no other service accepts.
    pub(crate) fn refuses_table(self, name: &str) -> Option<String> {
        check_table_name(name).err().map(|error| format!("{}: {error}", self.rules().name))
    }

    /// Returns the reasons why the service would refuse an entity; none if it would accept it.
    pub(crate) fn refuses_entity(self, entity: &Entity) -> Vec<String> {
        let rules = self.rules();
        let mut reasons = Vec::new();
        rules.check_keys(entity, &mut reasons);
        rules.check_properties(entity, &mut reasons);
        rules.check_sizes(entity, &mut reasons);
        reasons
    }
}

impl Rules {
    /// Adds a reason if there is more of a unit than the service accepts.
    fn limit(&self, to: &mut Vec<String>, of: &str, count: usize, unit: &str, most: usize) {
        if count > most {
            to.push(format!("{of} has {count} {unit}; {} accepts {most}", self.name));
        }
    }

    /// Adds the reason of a rule that all services share.
    fn common(&self, reasons: &mut Vec<String>, checked: Result<()>) {
        reasons.extend(checked.err().map(|error| format!("{}: {error}", self.name)));
    }

    fn check_keys(&self, entity: &Entity, reasons: &mut Vec<String>) {
        let keys = [
            (KeyPart::PartitionKey, entity.partition_key(), self.key_bytes[0]),
            (KeyPart::RowKey, entity.row_key(), self.key_bytes[1]),
        ];
        for (part, key, bytes_max) in keys {
            let name = part.name();
            self.common(reasons, check_key(part, key));
            if self.key_units < KEY_UNITS_MAX {
                self.limit(reasons, name, utf16_len(key), "UTF-16 units", self.key_units);
            }
            self.limit(reasons, name, key.len(), "bytes", bytes_max);
            if key.is_empty() && !self.empty_keys {
                reasons.push(format!("{name} is empty; {} refuses it", self.name));
            }
        }
    }

    fn check_properties(&self, entity: &Entity, reasons: &mut Vec<String>) {
        self.limit(reasons, "the entity", entity.len(), "properties", PROPERTIES_MAX);
        for (name, value) in entity.properties() {
            self.common(reasons, check_property_name(name));
            let checked = check_value(value);
            self.common(reasons, checked.map_err(|error| error.about(|| format!("'{name}'"))));
            if self.reserved.iter().any(|reserved| reserved.eq_ignore_ascii_case(name)) {
                reasons.push(format!("the name of property '{name}' is reserved in {}", self.name));
            }
        }
    }

    fn check_sizes(&self, entity: &Entity, reasons: &mut Vec<String>) {
        let size = entity.size();
        self.limit(reasons, "the entity", size, "bytes", self.entity_size);
        // A UTF-16 unit counts 2 bytes and has at most 6 as JSON. A property has less than 64 bytes
        // of punctuation, type and number.
        let at_most = size.saturating_mul(6).saturating_add(entity.len() * 64);
        if at_most > self.entity_json {
            let json = odata::entity_text(entity, Metadata::TYPES).len();
            self.limit(reasons, "the entity as JSON", json, "bytes", self.entity_json);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Dialect; 4] =
        [Dialect::Azure, Dialect::Azurite, Dialect::Cosmos, Dialect::Rowstone];

    /// Asserts the number of reasons of each service, in the order of `ALL`.
    #[track_caller]
    fn refused(entity: &Entity, expected: [usize; 4]) {
        let reasons = ALL.map(|dialect| dialect.refuses_entity(entity));
        assert_eq!(reasons.each_ref().map(Vec::len), expected, "{reasons:?}");
        for (reasons, dialect) in reasons.iter().zip(ALL) {
            assert!(reasons.iter().all(|reason| reason.contains(dialect.rules().name)));
        }
    }

    #[test]
    fn keys_have_the_limits_of_each_service() {
        let entity = |pk: &str, rk: &str| Entity::new(pk, rk).with("A", 1);
        refused(&entity("p", "r"), [0, 0, 0, 0]);
        refused(&entity("", ""), [0, 0, 2, 0]);
        refused(&entity("p", &"r".repeat(255)), [0, 0, 0, 0]);
        refused(&entity("p", &"r".repeat(256)), [0, 0, 1, 0]);
        refused(&entity("p", &"é".repeat(128)), [0, 0, 1, 0]);
        refused(&entity(&"p".repeat(512), "r"), [0, 0, 0, 0]);
        refused(&entity(&"p".repeat(513), "r"), [0, 1, 0, 0]);
        refused(&entity(&"名".repeat(683), "r"), [0, 1, 1, 0]);
        refused(&entity(&"p".repeat(1_025), "r"), [1, 2, 1, 1]);
        refused(&entity("a/b", "r"), [1, 1, 1, 1]);
    }

    #[test]
    fn names_that_cosmos_reserves_are_refused_in_any_case() {
        for name in ["id", "Id", "ID", "rid", "etag", "ResourceId", "resourceid"] {
            refused(&Entity::new("p", "r").with(name, 1), [0, 0, 1, 0]);
        }
        refused(&Entity::new("p", "r").with("Identity", 1).with("a-b", 2), [1, 1, 1, 1]);
    }

    #[test]
    fn values_and_entities_have_the_limits_of_each_service() {
        let texts = |count: usize, text: &str| {
            let names = (0..count).map(|i| format!("P{i}"));
            names.fold(Entity::new("p", "r"), |entity, name| entity.with(name, text))
        };
        refused(&texts(252, ""), [0, 0, 0, 0]);
        refused(&texts(253, ""), [1, 1, 1, 1]);
        refused(&texts(1, &"a".repeat(32_769)), [1, 1, 1, 1]);
        // By the formula 1 MiB at most, but six bytes of JSON for each two.
        refused(&texts(15, &"\u{1}".repeat(32_768)), [0, 1, 1, 0]);
        refused(&texts(7, &"\u{1}".repeat(32_768)), [0, 1, 0, 0]);
        refused(&texts(17, &"a".repeat(32_768)), [1, 1, 0, 1]);
    }

    #[test]
    fn table_names_have_limits() {
        assert_eq!(ALL.map(|d| d.refuses_table("a-b").is_some()), [true; 4]);
        assert_eq!(ALL.map(|d| d.refuses_table("Parts").is_some()), [false; 4]);
    }

    #[test]
    fn only_cosmos_does_not_sort() {
        assert_eq!(ALL.map(Dialect::sorts_by_key), [true, true, false, true]);
        assert_eq!(ALL.map(|d| d.notes().count()), [0, 0, 5, 0]);
        assert!(Dialect::Cosmos.notes().any(|note| note.contains("never run")));
        #[cfg(feature = "remote")]
        for (url, sorts) in [
            ("https://acme.table.core.windows.net", true),
            ("http://127.0.0.1:10002/devstoreaccount1", true),
            ("https://acme.table.cosmos.azure.com:443", false),
            ("https://ACME.TABLE.COSMOSDB.azure.com", false),
        ] {
            assert_eq!(Dialect::at(url).sorts_by_key(), sorts, "{url}");
        }
    }
}
