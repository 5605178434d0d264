//! Decides which requests to a Table service fail, are late or get an incomplete answer, so that
//! programs can be tested against such a service.
//!
//! Invariants
//! * a decision follows from the seed, the rule, the operation, the table, the keys, and the number
//!   of times that this very request was made; other requests do not change it;
//! * rules by time and rate also follow from the clock.
//!
//! `rules` reads the rules. `store::Misbehaving` and `rest::misbehave` carry decisions out.

mod recent;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Clock, SystemClock, TICKS_PER_SECOND};
use crate::codec::{HashSeed, hash};
use crate::error::{Code, Result};
use crate::lsm::RateLimit;
use crate::model::Value;
use crate::query::Filter;
use crate::query::tree::{CompareOp, Node, Property};
use crate::rng::Rng;
use crate::sync::Mutex;

use recent::Recent;
pub(crate) use rules::Operation;
use rules::{Action, Chance, PER_MILLION, Rule, between, micros};

/// The rules that can be chosen by name.
const PROFILES: [(&str, &str); 3] = [
    ("flaky", include_str!("profiles/flaky.json")),
    ("throttled-2010", include_str!("profiles/throttled-2010.json")),
    ("rebalancing", include_str!("profiles/rebalancing.json")),
];

/// Rules, and the state that they need.
pub(crate) struct Behaviour {
    rules: Vec<Rule>,
    seed: u64,
    clock: Arc<dyn Clock>,
    /// The time of the clock from which `from` and `until` of rules count.
    start: Duration,
    /// For each rule, the number of requests that it changed.
    done: Vec<AtomicU64>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of times that each request was made, by its hash.
    counts: Recent<u64>,
    /// The time since the start at which each table was deleted, by the hash of its name.
    deleted: Recent<Option<Duration>>,
    /// The rates that were used, by rule and account.
    rates: BTreeMap<(usize, String), RateLimit>,
}

/// A request to be decided about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// The account; empty in a process.
    pub(crate) account: &'a str,
    pub(crate) operation: Operation,
    pub(crate) table: &'a str,
    /// The partition; `None` if the request names none or may read several.
    pub(crate) partition: Option<&'a str>,
    /// The other texts that tell requests apart: RowKeys, or a filter and a position. A commit has
    /// one RowKey for each operation.
    pub(crate) rest: &'a [&'a str],
}

/// The change of a request or of its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    /// The time by which the answer is late.
    pub(crate) delay: Duration,
    pub(crate) fate: Option<Fate>,
    /// The names of the rules that applied, for a log.
    pub(crate) rules: String,
}

/// The change apart from a delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The request has no effect and is answered with this error.
    Refused(Code),
    /// The request has its effect, and the answer is `OperationTimedOut`.
    TimedOutAfter,
    /// The request has its effect, and there is no answer.
    Lost,
    /// The request has its effect, and the answer ends within its body. The number selects where.
    Cut(u64),
    /// A page of a query has at most this number of entities.
    Page(usize),
}

impl Behaviour {
    /// Reads rules.
    ///
    /// # Errors
    /// `InvalidInput`, with the rule and the field.
    pub(crate) fn read(rules: &str, seed: u64) -> Result<Self> {
        let rules = rules::read(rules)?;
        let done = rules.iter().map(|_| AtomicU64::new(0)).collect();
        let clock = Arc::new(SystemClock::new());
        let start = clock.monotonic();
        Ok(Self { rules, seed, clock, start, done, state: Mutex::default() })
    }

    /// Returns the rules of a profile, if there is one with this name.
    pub(crate) fn profile(name: &str) -> Option<&'static str> {
        PROFILES.iter().find(|(known, _)| *known == name).map(|(_, rules)| *rules)
    }

    /// Uses `clock`. The times of rules count from now on.
    pub(crate) fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { start: clock.monotonic(), clock, ..self }
    }

    /// Decides about a request, which must be carried out accordingly.
    pub(crate) fn decide(&self, asked: &Asked<'_>) -> Decision {
        let now = self.now();
        let mut state = self.state.lock();
        let identity = asked.identity();
        let count = state.counts.entry(hash_of(identity, &[asked.account]));
        *count += 1;
        let count = *count;
        let mut decision = Decision::default();
        for (index, rule) in self.rules.iter().enumerate() {
            if !rule.covers(asked, now) {
                continue;
            }
            let seed = hash_of(self.seed ^ identity, &[&rule.name, &count.to_string()]);
            let mut rng = Rng::from_seed(seed);
            if !self.applies(index, asked, (now, count), &mut rng, &mut state) {
                continue;
            }
            self.done[index].fetch_add(1, Ordering::Relaxed);
            decision.add(rule, &mut rng);
            if decision.fate.is_some() {
                break;
            }
        }
        decision
    }

    /// Whether a rule that covers a request applies to it.
    fn applies(
        &self,
        index: usize,
        asked: &Asked<'_>,
        (now, count): (Duration, u64),
        rng: &mut Rng,
        state: &mut State,
    ) -> bool {
        let rule = &self.rules[index];
        match rule.action {
            Action::TableBeingDeleted(time) => {
                let deleted = *state.deleted.entry(asked.table_hash());
                return deleted.is_some_and(|at| now < at.saturating_add(time));
            }
            Action::Move { period, offline } => {
                return self.is_offline(rule, asked, (period, offline), now);
            }
            _ => {}
        }
        match &rule.chance {
            Chance::Always => true,
            Chance::PerMillion(chance) => rng.chance(*chance, PER_MILLION),
            Chance::Every(every) => count.is_multiple_of(*every),
            Chance::First(first) => count <= *first,
            Chance::Above(targets) => {
                let key = (index, asked.account.to_owned());
                let rate = state.rates.entry(key).or_insert_with(|| RateLimit::new(*targets));
                let partition = asked.partition.map(|partition| {
                    hash_of(0, &[&asked.table.to_ascii_lowercase(), partition]) | 1
                });
                rate.admit_entities(partition, asked.entities(), self.clock.monotonic()).is_err()
            }
        }
    }

    /// Whether the partition of a request, or the range of partitions of the rule, is being moved.
    /// It follows from the seed and the time, so moves need no state. A request that names no
    /// partition is in none that is moved.
    fn is_offline(
        &self,
        rule: &Rule,
        asked: &Asked<'_>,
        (period, offline): (Duration, [Duration; 2]),
        now: Duration,
    ) -> bool {
        let Some(moved) = rule.prefix.as_deref().or(asked.partition) else { return false };
        let period = micros(period);
        let (index, at) = (micros(now) / period, micros(now) % period);
        let table = asked.table.to_ascii_lowercase();
        let texts = [&*rule.name, &*table, moved, &*index.to_string()];
        let mut rng = Rng::from_seed(hash_of(self.seed, &texts));
        let moves = match rule.chance {
            Chance::PerMillion(chance) => rng.chance(chance, PER_MILLION),
            _ => true,
        };
        let time = between(offline.map(micros), &mut rng);
        let begin = rng.below(period.saturating_sub(time) + 1);
        moves && (begin..begin + time).contains(&at)
    }

    /// Records that a table was deleted.
    pub(crate) fn table_deleted(&self, account: &str, table: &str) {
        let asked =
            Asked { account, operation: Operation::DeleteTable, table, partition: None, rest: &[] };
        let now = self.now();
        *self.state.lock().deleted.entry(asked.table_hash()) = Some(now);
    }

    /// Returns the ticks by which the service's clock is fast.
    #[cfg_attr(not(test), allow(dead_code, reason = "only servers show a clock"))]
    pub(crate) fn skew(&self) -> i64 {
        let now = self.now();
        let skews = self.rules.iter().filter(|rule| rule.times.contains(&now));
        let seconds = skews.map(|rule| if let Action::Skew(by) = rule.action { by } else { 0 });
        seconds.sum::<i64>().saturating_mul(TICKS_PER_SECOND.cast_signed())
    }

    /// Returns for each rule its name, its action, and the number of requests that it changed.
    pub(crate) fn done(&self) -> impl Iterator<Item = (&str, &'static str, u64)> {
        self.rules
            .iter()
            .zip(&self.done)
            .map(|(rule, done)| (&*rule.name, rule.action.name(), done.load(Ordering::Relaxed)))
    }

    fn now(&self) -> Duration {
        self.clock.monotonic().saturating_sub(self.start)
    }
}

impl fmt::Debug for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rules, seed, .. } = self;
        f.debug_struct("Behaviour")
            .field("rules", rules)
            .field("seed", seed)
            .finish_non_exhaustive()
    }
}

impl Asked<'_> {
    /// Returns the hash of the parts that make it the very same request.
    fn identity(&self) -> u64 {
        let table = self.table.to_ascii_lowercase();
        let partition = self.partition.unwrap_or_default();
        let of_keys = hash_of(0, self.rest);
        hash_of(of_keys, &[self.operation.name(), &table, partition])
    }

    fn table_hash(&self) -> u64 {
        hash_of(0, &[self.account, &self.table.to_ascii_lowercase()])
    }

    /// Returns the number of entities that count for a rate.
    fn entities(&self) -> u64 {
        if self.operation == Operation::Commit { self.rest.len().max(1) as u64 } else { 1 }
    }
}

impl Rule {
    /// Whether a request is one of the rule's, at the time `now` since the start.
    fn covers(&self, asked: &Asked<'_>, now: Duration) -> bool {
        let is_table = |table: &String| table.eq_ignore_ascii_case(asked.table);
        let is_in = |prefix: &String| asked.partition.is_some_and(|key| key.starts_with(&**prefix));
        self.times.contains(&now)
            && self.action.can_change(asked.operation)
            && (self.operations.is_empty() || self.operations.contains(&asked.operation))
            && self.table.as_ref().is_none_or(is_table)
            && self.partition.as_ref().is_none_or(|key| asked.partition == Some(&**key))
            && self.prefix.as_ref().is_none_or(is_in)
    }
}

impl Decision {
    /// Adds the change that a rule makes.
    fn add(&mut self, rule: &Rule, rng: &mut Rng) {
        if !self.rules.is_empty() {
            self.rules.push_str(", ");
        }
        self.rules.push_str(&rule.name);
        self.fate = match rule.action {
            Action::Busy | Action::Move { .. } => Some(Fate::Refused(Code::ServerBusy)),
            Action::Timeout => Some(Fate::Refused(Code::OperationTimedOut)),
            Action::TableBeingDeleted(_) => Some(Fate::Refused(Code::TableBeingDeleted)),
            Action::TimeoutAfter => Some(Fate::TimedOutAfter),
            Action::Lost => Some(Fate::Lost),
            Action::Cut => Some(Fate::Cut(rng.next_u64())),
            Action::ShortPage(most) => Some(Fate::Page(most)),
            Action::EmptyPage => Some(Fate::Page(0)),
            Action::Skew(_) => None,
            Action::Delay(delay) => {
                self.delay = self.delay.saturating_add(delay.draw(rng));
                None
            }
        };
    }
}

/// Returns the partition to which a filter limits a query, if a comparison outside of any `or` says
/// so.
pub(crate) fn partition_of(filter: &Filter) -> Option<&str> {
    fn of(node: &Node) -> Option<&str> {
        match node {
            Node::And(nodes) => nodes.iter().find_map(of),
            Node::Compare(comparison) => match (&comparison.property, &comparison.value) {
                (Property::PartitionKey, Value::String(key)) if comparison.op == CompareOp::Eq => {
                    Some(key)
                }
                _ => None,
            },
            _ => None,
        }
    }
    of(filter.node())
}

/// Returns a hash of texts, different for ["ab", "c"] and ["a", "bc"].
fn hash_of(seed: u64, texts: &[&str]) -> u64 {
    texts.iter().fold(seed, |before, text| hash(HashSeed(before), text.as_bytes()))
}
