//! Generates the requests to the process under test from a seed, and encodes them as lines of text.
//!
//! Invariants
//! * a write is conditional on an ETag that is already known, or only on the existence of the
//!   entity. So the meaning of a request does not depend on unanswered requests;
//! * every write stores a number that no other write stores, so that no two states are equal.

use std::collections::HashMap;

use crate::json::odata::{Metadata, entity_text};
use crate::json::{self, Object};
use crate::model::{DateTime, ETag};
use crate::rng::Rng;
use crate::testing::sim::oracle::{Change, Oracle};
use crate::testing::sim::step::{Condition, Verb, Write};
use crate::testing::sim::value::Val;

/// One request.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Change(Change),
    Get { table: String, pk: String, rk: String },
    Query { table: String, pk: Option<String>, top: usize },
    Tables,
    Flush,
    Compact,
    Stats,
    Verify,
}

/// The source of requests.
pub(super) struct Traffic {
    rng: Rng,
    /// The number of entities written.
    written: i64,
    /// Maps the ETag of each commit to the number that the oracle gave to the commit.
    numbers: HashMap<u64, usize>,
    /// The maximum size of a large value in bytes, and the percentage of values that are large.
    pub(super) large: (usize, u64),
    /// Whether tables are created and dropped.
    pub(super) catalog: bool,
}

pub(super) const TABLES: [&str; 3] = ["Alpha", "beta", "Gamma"];
/// PartitionKeys: one is empty, one is a prefix of another, one needs quoting, and the last two
/// have different orders in UTF-8 and UTF-16.
const PARTITIONS: [&str; 6] = ["", "a", "ab", "it's", "\u{ff5e}", "\u{1f600}"];
const ROWS: usize = 60;
/// The property whose value is unique among all writes.
const NUMBER: &str = "N";

impl Traffic {
    pub(super) fn new(rng: Rng) -> Self {
        let numbers = HashMap::new();
        Self { rng, written: 0, numbers, large: (20_000, 2), catalog: true }
    }

    /// Replaces `numbers` by the numbers of the commits in `oracle`.
    pub(super) fn renumber(&mut self, oracle: &Oracle) {
        self.numbers = (1..).zip(&oracle.etags).map(|(number, etag)| (*etag, number)).collect();
    }

    /// Records the last commit of `oracle`.
    pub(super) fn note(&mut self, oracle: &Oracle) {
        if let Some(etag) = oracle.etags.last() {
            self.numbers.insert(*etag, oracle.commits());
        }
    }

    /// Returns the next request, given the known commits.
    pub(super) fn next(&mut self, oracle: &Oracle) -> Ask {
        let table = self.table();
        match self.rng.index(100) {
            0..=54 => {
                let pk = self.pk();
                let writes = vec![self.write(oracle, &table, pk)];
                Ask::Change(Change::Rows { table, writes })
            }
            55..=71 => self.group(oracle, table),
            72..=81 => Ask::Get { table, pk: self.pk(), rk: self.rk() },
            82..=88 => {
                let pk = self.rng.chance(3, 4).then(|| self.pk());
                Ask::Query { table, pk, top: 1 + self.rng.index(50) }
            }
            89 if self.rng.chance(1, 2) => Ask::Compact,
            89 | 90 => Ask::Flush,
            91 => Ask::Verify,
            92..=94 => Ask::Stats,
            95 | 96 => Ask::Tables,
            97 if self.catalog && self.rng.chance(1, 4) => Ask::Change(Change::Drop(table)),
            _ => Ask::Change(Change::Create(table)),
        }
    }

    fn table(&mut self) -> String {
        // The first table is picked more often, so that it becomes large.
        let pick = self.rng.index(6).saturating_sub(3);
        TABLES[pick].to_owned()
    }

    fn pk(&mut self) -> String {
        (*self.rng.pick(&PARTITIONS)).to_owned()
    }

    fn rk(&mut self) -> String {
        match self.rng.index(ROWS) {
            0 => String::new(),
            row => format!("r{row:02}"),
        }
    }

    fn group(&mut self, oracle: &Oracle, table: String) -> Ask {
        let pk = self.pk();
        let mut writes: Vec<Write> = Vec::new();
        for _ in 0..1 + self.rng.index(6) {
            let write = self.write(oracle, &table, pk.clone());
            if writes.iter().all(|other| other.rk != write.rk) {
                writes.push(write);
            }
        }
        Ask::Change(Change::Rows { table, writes })
    }

    fn write(&mut self, oracle: &Oracle, table: &str, pk: String) -> Write {
        let verbs = [Verb::Upsert, Verb::UpsertMerge, Verb::Insert];
        let any = self.rng.chance(1, 2);
        let verb = if any { *self.rng.pick(&Verb::ALL) } else { *self.rng.pick(&verbs) };
        let rk = self.rk();
        let condition = if verb.is_conditional() {
            self.condition(oracle, table, &pk, &rk)
        } else {
            Condition::Any
        };
        let properties = if verb == Verb::Delete { Vec::new() } else { self.properties() };
        Write { verb, pk, rk, properties, condition }
    }

    fn condition(&mut self, oracle: &Oracle, table: &str, pk: &str, rk: &str) -> Condition {
        let current = oracle.row(table, pk, rk).and_then(|row| self.numbers.get(&row.etag));
        let number = match self.rng.index(4) {
            0 | 1 => return Condition::Any,
            2 => current.copied(),
            _ => Some(1 + self.rng.index(oracle.commits())),
        };
        // Deletions, and commits that create or drop a table, have no ETag that a condition could
        // name.
        let tagged = number.filter(|number| oracle.etags.get(number - 1).is_some_and(|e| *e > 0));
        tagged.map_or(Condition::Any, Condition::Commit)
    }

    fn properties(&mut self) -> Vec<(String, Val)> {
        self.written += 1;
        let mut properties = vec![(NUMBER.to_owned(), Val::Int64(self.written))];
        for name in ["A", "B", "Note", "At", "_x"] {
            if self.rng.chance(1, 3) {
                properties.push((name.to_owned(), self.value()));
            }
        }
        properties
    }

    fn value(&mut self) -> Val {
        let (large, often) = self.large;
        let rng = &mut self.rng;
        if rng.chance(often, 100) {
            return Val::Binary(vec![rng.index(256) as u8; 1 + rng.index(large)]);
        }
        match rng.index(8) {
            0 => Val::String("é x'\"\\\n".repeat(rng.index(40))),
            1 => Val::Binary((0..rng.index(300)).map(|_| rng.index(256) as u8).collect()),
            2 => Val::Boolean(rng.chance(1, 2)),
            3 => Val::Int32(rng.next_u64() as i32),
            4 => Val::Int64(rng.next_u64() as i64),
            5 => Val::Double(rng.pick(&[0.0f64, -0.0, 1.5, f64::INFINITY, f64::NAN]).to_bits()),
            6 => Val::DateTime(rng.next_u64() % 2_650_467_744_000_000_000),
            _ => Val::Guid(std::array::from_fn(|_| rng.index(256) as u8)),
        }
    }
}

impl Ask {
    /// Returns the request as a line, including the newline. A condition on the ETag of an earlier
    /// commit gets the ETag from `oracle`.
    pub(super) fn line(&self, oracle: &Oracle) -> Vec<u8> {
        line(|object| match self {
            Ask::Change(change) => put_change(object, change, oracle),
            Ask::Get { table, pk, rk } => {
                put_op(object, "get", table);
                object.text("pk", pk);
                object.text("rk", rk);
            }
            Ask::Query { table, pk, top } => {
                put_op(object, "query", table);
                object.raw("top", top);
                if let Some(pk) = pk {
                    let filter = format!("PartitionKey eq '{}'", pk.replace('\'', "''"));
                    object.text("filter", &filter);
                }
            }
            Ask::Tables => object.text("op", "tables"),
            Ask::Flush => object.text("op", "flush"),
            Ask::Compact => object.text("op", "compact"),
            Ask::Stats => object.text("op", "stats"),
            Ask::Verify => object.text("op", "verify"),
        })
    }
}

/// Returns a query for the whole table, or for the rest of it: all entities from the key `from`,
/// which the previous page returned as its continuation.
pub(super) fn rest_of_table(table: &str, from: Option<(&str, &str)>) -> Vec<u8> {
    line(|object| {
        put_op(object, "query", table);
        if let Some((pk, rk)) = from {
            let next = json::object(|object| {
                object.text("pk", pk);
                object.text("rk", rk);
            });
            object.raw("next", next);
        }
    })
}

fn line(put: impl FnOnce(&mut Object<'_>)) -> Vec<u8> {
    (json::object(put) + "\n").into_bytes()
}

fn put_op(object: &mut Object<'_>, op: &str, table: &str) {
    object.text("op", op);
    object.text("table", table);
}

fn put_change(object: &mut Object<'_>, change: &Change, oracle: &Oracle) {
    match change {
        Change::Create(table) => put_op(object, "create_table", table),
        Change::Drop(table) => put_op(object, "delete_table", table),
        Change::Rows { table, writes } => match writes.as_slice() {
            [write] => {
                put_write(object, write, oracle.etag(table, write));
                object.text("table", table);
            }
            writes => {
                put_op(object, "group", table);
                object.objects("ops", writes, |object, write| {
                    put_write(object, write, oracle.etag(table, write));
                });
            }
        },
        _ => unreachable!("sessions delete no ranges, close no gates and move nothing"),
    }
}

/// Writes the members of one write. A conditional write without an ETag requires only that the
/// entity exists.
fn put_write(object: &mut Object<'_>, write: &Write, etag: Option<u64>) {
    let op = match write.verb {
        Verb::Insert => "insert",
        Verb::Upsert => "upsert_replace",
        Verb::UpsertMerge => "upsert_merge",
        Verb::Replace => "replace",
        Verb::Merge => "merge",
        Verb::Delete => "delete",
    };
    object.text("op", op);
    if write.verb == Verb::Delete {
        object.text("pk", &write.pk);
        object.text("rk", &write.rk);
    } else {
        object.raw("entity", entity_text(&write.entity(), Metadata::TYPES));
    }
    if write.verb.is_conditional() {
        object.text("etag", &etag.and_then(tag_text).unwrap_or_else(|| "*".to_owned()));
    }
}

fn tag_text(ticks: u64) -> Option<String> {
    let time = DateTime::from_ticks(ticks)?;
    let etag: ETag = format!("W/\"datetime'{time}'\"").parse().ok()?;
    Some(etag.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::exec::{Request, read_request};

    #[test]
    fn the_seed_determines_the_requests_and_every_line_parses() {
        let oracle = Oracle::new();
        let mut traffic = Traffic::new(Rng::from_seed(7));
        let lines: Vec<_> = (0..500).map(|_| traffic.next(&oracle).line(&oracle)).collect();
        let mut again = Traffic::new(Rng::from_seed(7));
        assert!(lines.iter().all(|line| *line == again.next(&oracle).line(&oracle)));
        for line in &lines {
            let text = String::from_utf8_lossy(line);
            read_request(line.trim_ascii_end()).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        }
    }

    #[test]
    fn a_page_continues_at_a_key() {
        let line = rest_of_table("T", Some(("a\"b", "")));
        let Ok(Request::Query { query, .. }) = read_request(line.trim_ascii_end()) else {
            panic!("{}", String::from_utf8_lossy(&line))
        };
        let next = query.next.unwrap();
        assert_eq!((&*next.partition_key, &*next.row_key), ("a\"b", ""));
    }
}
