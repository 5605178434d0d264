//! Counts what Azure Table storage bills: transactions, stored bytes and bytes out.
//!
//! Invariants
//! * every count of a bill is made here, for servers, commands and copies alike;
//! * a price is never compiled in as a fact: prices are read from a file, and the built-in
//!   example names its region and date.
//!
//! Not here: the size of an entity (`Entity::size`, which is the formula of the service).

use serde_json::Value;

use crate::error::{Code, Error, Result};

/// The lengths of the parts of an answer to a group, without URLs: headers and delimiters of
/// `rowstone serve`, which follow recorded answers of the service.
const GROUP_ANSWER: u64 = 268;
const INSERT_ANSWER: u64 = 363;
const DELETE_ANSWER: u64 = 240;

/// The requests and the data that Azure Table storage bills.
///
/// The rules are those of three pages of the service's documentation, read in 2026:
/// * "Map REST API operations to transaction types": a request is not billed if its
///   authentication fails. Otherwise it is billed, also if it fails.
/// * "Storage Analytics logged operations and status messages": a request that is refused because
///   the server is busy (503), or that ends because of an error of the server (500), is not
///   billed. (An article of 2010 says that throttled requests are billed; the page is newer.)
/// * "Understanding Windows Azure Storage Billing": each request is one transaction. So an entity
///   group of any size is one, a page of a query is one, and each continuation is one more. An
///   entity is stored with the bytes of [`Entity::size`](crate::Entity::size).
///
/// Bytes out are bodies of responses; headers are not counted. Bytes in cost nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bill {
    pub(crate) transactions: u64,
    pub(crate) bytes_out: u64,
    pub(crate) entities: u64,
    /// The sum of the sizes of the entities.
    pub(crate) bytes_stored: u64,
}

impl Bill {
    /// Adds a request of an authenticated client, answered with this HTTP status.
    #[cfg_attr(not(test), allow(dead_code, reason = "only servers and clients see statuses"))]
    pub(crate) fn add_answer(&mut self, status: u16, bytes_out: u64) {
        if status < 500 {
            self.add_requests(1, bytes_out);
        }
    }

    /// Adds requests that are answered with success.
    pub(crate) fn add_requests(&mut self, count: u64, bytes_out: u64) {
        self.transactions += count;
        self.bytes_out += bytes_out;
    }

    /// Adds a group that would be sent. `locations` has for each insert the length of the entity's
    /// URL, which its answer has twice, and 0 for each delete.
    #[cfg_attr(not(feature = "remote"), allow(dead_code, reason = "only copies send groups"))]
    pub(crate) fn add_group(&mut self, locations: impl Iterator<Item = usize>) {
        let bytes = locations.map(|location| match location {
            0 => DELETE_ANSWER,
            _ => INSERT_ANSWER + 2 * location as u64,
        });
        self.add_requests(1, GROUP_ANSWER + bytes.sum::<u64>());
    }

    /// Adds stored entities; `bytes` is the sum of their sizes.
    pub(crate) fn add_entities(&mut self, count: u64, bytes: u64) {
        self.entities += count;
        self.bytes_stored += bytes;
    }

    /// Adds the counts of another bill.
    pub(crate) fn add(&mut self, other: &Bill) {
        self.add_requests(other.transactions, other.bytes_out);
        self.add_entities(other.entities, other.bytes_stored);
    }

    /// Returns the price of the stored bytes for a month.
    pub(crate) fn storage_price(&self, prices: &Prices) -> f64 {
        gib(self.bytes_stored) * prices.gib_month
    }

    /// Returns the price of the transactions.
    pub(crate) fn transaction_price(&self, prices: &Prices) -> f64 {
        self.transactions as f64 / 10_000.0 * prices.transactions_10000
    }

    /// Returns the price of the bytes out; `None` if the prices have none for them.
    pub(crate) fn bytes_out_price(&self, prices: &Prices) -> Option<f64> {
        prices.gib_out.map(|price| gib(self.bytes_out) * price)
    }
}

/// Prices of a region at a date.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Prices {
    pub(crate) region: String,
    pub(crate) date: String,
    pub(crate) currency: String,
    /// The price of a GiB that is stored for a month.
    pub(crate) gib_month: f64,
    /// The price of 10,000 transactions.
    pub(crate) transactions_10000: f64,
    /// The price of a GiB out, if the file has it.
    pub(crate) gib_out: Option<f64>,
}

impl Prices {
    /// Prices that show the form of the file. They are of the past, and of one region.
    pub(crate) const EXAMPLE: &str = include_str!("../docs/prices.json");

    /// Reads a JSON object with the members of docs/prices.json; other members are ignored.
    ///
    /// # Errors
    /// `InvalidInput` for a text that is not such an object; the error names the member.
    pub(crate) fn read(text: &str) -> Result<Self> {
        let json: Value = serde_json::from_str(text)
            .map_err(|error| refused(format!("the prices are not JSON: {error}")))?;
        let member = |name: &str| json.get(name).filter(|value| !value.is_null());
        let text = |name: &str| {
            let text = member(name).and_then(Value::as_str).filter(|text| is_printable(text));
            let problem = || refused(format!("the prices need '{name}', a text of one line"));
            text.map(str::to_owned).ok_or_else(problem)
        };
        let number = |name: &str| {
            let number = member(name).and_then(Value::as_f64).filter(|number| *number >= 0.0);
            number.ok_or_else(|| refused(format!("the prices need '{name}', a number from 0")))
        };
        Ok(Self {
            region: text("region")?,
            date: text("date")?,
            currency: text("currency")?,
            gib_month: number("gib_month")?,
            transactions_10000: number("transactions_10000")?,
            gib_out: member("gib_out").map(|_| number("gib_out")).transpose()?,
        })
    }
}

/// Whether a terminal shows the text as it is. A file from elsewhere may have any text.
fn is_printable(text: &str) -> bool {
    !text.is_empty() && text.len() <= 80 && !text.chars().any(char::is_control)
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1u32 << 30)
}

fn refused(text: String) -> Error {
    Error::refused_with(Code::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Entity;

    #[test]
    fn a_bill_has_the_requests_that_the_service_bills() {
        let mut bill = Bill::default();
        // A conflict and a missing entity are billed; a busy or broken server is not.
        for status in [200, 201, 202, 204, 304, 400, 403, 404, 409, 412, 500, 501, 503] {
            bill.add_answer(status, 10);
        }
        assert_eq!((bill.transactions, bill.bytes_out), (10, 100));
        // A group of 100 is a transaction; a query of 2,500 entities has three pages.
        let mut copy = Bill::default();
        copy.add_requests(1, 0);
        copy.add_requests(3, 4_000);
        bill.add(&copy);
        assert_eq!((bill.transactions, bill.bytes_out), (14, 4_100));
    }

    #[test]
    fn stored_bytes_and_transactions_have_prices() {
        let entity = Entity::new("p1", "r1").with("Age", 1).with("Name", "Ann");
        let mut bill = Bill::default();
        bill.add_entities(1, entity.size() as u64);
        assert_eq!((bill.entities, bill.bytes_stored), (1, 56));
        bill.add_entities(0, (5 << 30) - 56);
        bill.add_requests(25_000, 1 << 29);
        let text = r#"{"region":"R","date":"D","currency":"EUR","gib_month":0.5,
            "transactions_10000":0.25,"gib_out":0.125,"more":null}"#;
        let prices = Prices::read(text).unwrap();
        assert_eq!(bill.storage_price(&prices), 2.5);
        assert_eq!(bill.transaction_price(&prices), 0.625);
        assert_eq!(bill.bytes_out_price(&prices), Some(0.0625));
        let without = Prices::read(&text.replace("0.125", "null")).unwrap();
        assert_eq!(bill.bytes_out_price(&without), None);
    }

    #[test]
    fn the_example_can_be_read_and_is_dated() {
        let example = Prices::read(Prices::EXAMPLE).unwrap();
        assert!(example.date.len() == 10 && !example.region.is_empty(), "{example:?}");
    }

    #[test]
    fn malformed_prices_are_refused_by_name() {
        let example: Value = serde_json::from_str(Prices::EXAMPLE).unwrap();
        let with = |name: &str, value: Value| {
            let mut changed = example.clone();
            changed[name] = value;
            Prices::read(&changed.to_string()).unwrap_err().to_string()
        };
        for name in ["region", "date", "currency"] {
            for value in [Value::Null, 1.into(), "".into(), "a\u{1b}[0m".into()] {
                assert!(with(name, value).contains(&format!("'{name}'")));
            }
        }
        for name in ["gib_month", "transactions_10000", "gib_out"] {
            for value in ["1".into(), Value::from(-0.5)] {
                assert!(with(name, value).contains(&format!("'{name}'")));
            }
        }
        for text in ["", "[]", "{", "{\"gib_month\":1e999}"] {
            assert!(Prices::read(text).is_err(), "{text}");
        }
    }
}
