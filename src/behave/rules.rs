//! Reads the rules of `behave` from JSON; docs/BEHAVE.md defines the form.

use std::ops::Range;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::error::{Code, Error, Result};
use crate::named::named;
use crate::options::Targets;
use crate::rng::Rng;

named! {
    /// An operation of a store.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Operation {
        CreateTable "create_table",
        DeleteTable "delete_table",
        Tables "tables",
        Get "get",
        Insert "insert",
        Replace "replace",
        Merge "merge",
        Delete "delete",
        Commit "commit",
        Query "query",
    }

    pub(crate) fn name;
    pub(super) const ALL;
}

/// Chances are numbers out of a million.
pub(super) const PER_MILLION: u64 = 1_000_000;
const SECONDS_MAX: f64 = 86_400.0 * 365.0;
/// The maximum delay of an answer.
const DELAY_MS_MAX: f64 = 3_600_000.0;
/// The time for which a deleted table stays unusable in Azure Table storage.
const DELETED_SECONDS: f64 = 40.0;
/// The time for which Azure Table storage moves a partition.
const OFFLINE_SECONDS: [f64; 2] = [10.0, 20.0];
const PERIOD_SECONDS: f64 = 300.0;
const RULES_MAX: usize = 1_000;

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) table: Option<String>,
    pub(super) partition: Option<String>,
    /// The prefix of partitions.
    pub(super) prefix: Option<String>,
    /// The operations; all if it is empty.
    pub(super) operations: Vec<Operation>,
    pub(super) chance: Chance,
    /// The times at which the rule applies, since the start.
    pub(super) times: Range<Duration>,
    pub(super) action: Action,
}

/// How often a rule applies.
#[derive(Debug, PartialEq)]
pub(super) enum Chance {
    Always,
    PerMillion(u64),
    /// To each n-th of the very same requests.
    Every(u64),
    /// To the first n of the very same requests.
    First(u64),
    /// To requests above these rates.
    Above(Targets),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Action {
    Busy,
    Timeout,
    TimeoutAfter,
    Lost,
    Cut,
    Delay(Delay),
    ShortPage(usize),
    EmptyPage,
    TableBeingDeleted(Duration),
    /// In each period a partition is offline once, for a time between these two.
    Move {
        period: Duration,
        offline: [Duration; 2],
    },
    /// The seconds by which the clock is fast.
    Skew(i64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Delay {
    Between([Duration; 2]),
    Exponential { mean: Duration, cap: Duration },
}

impl Delay {
    pub(super) fn draw(self, rng: &mut Rng) -> Duration {
        match self {
            Delay::Between(ends) => Duration::from_micros(between(ends.map(micros), rng)),
            Delay::Exponential { mean, cap } => {
                // A number above 0, at most 1.
                let unit = (rng.below(PER_MILLION) + 1) as f64 / PER_MILLION as f64;
                mean.mul_f64(-unit.ln().min(0.0)).min(cap)
            }
        }
    }
}

impl Action {
    pub(super) fn name(self) -> &'static str {
        match self {
            Action::Busy => "busy",
            Action::Timeout => "timeout",
            Action::TimeoutAfter => "timeout_after",
            Action::Lost => "lost",
            Action::Cut => "cut",
            Action::Delay(_) => "delay",
            Action::ShortPage(_) => "short_page",
            Action::EmptyPage => "empty_page",
            Action::TableBeingDeleted(_) => "table_being_deleted",
            Action::Move { .. } => "move",
            Action::Skew(_) => "skew",
        }
    }

    /// Whether the action can change requests of an operation.
    pub(super) fn can_change(self, operation: Operation) -> bool {
        match self {
            Action::ShortPage(_) | Action::EmptyPage => operation == Operation::Query,
            Action::TableBeingDeleted(_) => operation != Operation::Tables,
            Action::Skew(_) => false,
            _ => true,
        }
    }
}

/// The fields of a rule that are not read yet.
struct Fields {
    /// The number of the rule, and its action if it is known.
    rule: String,
    left: Map<String, Value>,
}

/// Reads a list of rules.
///
/// # Errors
/// `InvalidInput`, with the rule and the field.
pub(super) fn read(text: &str) -> Result<Vec<Rule>> {
    let rules: Vec<Value> = serde_json::from_str(text)
        .map_err(|error| refused(format!("the rules are not a list in JSON: {error}")))?;
    if rules.len() > RULES_MAX {
        return Err(refused(format!("there are more than {RULES_MAX} rules")));
    }
    let mut read: Vec<Rule> = Vec::with_capacity(rules.len());
    for (index, rule) in rules.into_iter().enumerate() {
        let rule = read_rule(index + 1, rule)?;
        if let Some(same) = read.iter().position(|other| other.name == rule.name) {
            let name = rule.name;
            let (rule, other) = (index + 1, same + 1);
            return Err(refused(format!(
                "rule {rule}: \"name\" is \"{name}\", as of rule {other}"
            )));
        }
        read.push(rule);
    }
    Ok(read)
}

fn read_rule(number: usize, rule: Value) -> Result<Rule> {
    let Value::Object(left) = rule else {
        return Err(refused(format!("rule {number} is not an object")));
    };
    let mut fields = Fields { rule: format!("rule {number}"), left };
    let action = fields.text("do")?.ok_or_else(|| fields.problem("do", "is missing"))?;
    fields.rule = format!("rule {number} ({action})");
    let name = fields.text("name")?.unwrap_or_else(|| format!("{action} {number}"));
    let action = fields.action(&action)?;
    let times = fields.times()?;
    let mut rule = Rule {
        name,
        table: None,
        partition: None,
        prefix: None,
        operations: Vec::new(),
        chance: Chance::Always,
        times,
        action,
    };
    if !matches!(action, Action::Skew(_)) {
        rule.table = fields.text("table")?;
    }
    if !matches!(action, Action::Skew(_) | Action::TableBeingDeleted(_)) {
        rule.partition = fields.text("partition")?;
        rule.prefix = fields.text("prefix")?;
        rule.operations = fields.operations()?;
        rule.chance = fields.chance(action)?;
    }
    match fields.left.keys().next() {
        Some(unknown) => Err(fields.problem(unknown, "is not a field of such a rule")),
        None => Ok(rule),
    }
}

impl Fields {
    fn problem(&self, field: &str, problem: &str) -> Error {
        refused(format!("{}: \"{field}\" {problem}", self.rule))
    }

    fn text(&mut self, field: &str) -> Result<Option<String>> {
        match self.left.remove(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.problem(field, "is not a text")),
        }
    }

    /// Reads a number in `range`.
    fn number(&mut self, field: &str, range: [f64; 2]) -> Result<Option<f64>> {
        let Some(value) = self.left.remove(field) else { return Ok(None) };
        self.number_in(field, &value, range).map(Some)
    }

    fn number_in(&self, field: &str, value: &Value, [low, high]: [f64; 2]) -> Result<f64> {
        let number = value.as_f64().filter(|number| (low..=high).contains(number));
        let problem = || self.problem(field, &format!("is not a number from {low} to {high}"));
        number.ok_or_else(problem)
    }

    /// Reads a whole number from 1.
    fn count(&mut self, field: &str) -> Result<Option<u64>> {
        let Some(value) = self.left.remove(field) else { return Ok(None) };
        let count = value.as_u64().filter(|count| *count > 0);
        count.map(Some).ok_or_else(|| self.problem(field, "is not a whole number from 1"))
    }

    /// Reads a number, or a list of the least and the greatest one.
    fn ends(&mut self, field: &str, high: f64) -> Result<Option<[f64; 2]>> {
        let Some(value) = self.left.remove(field) else { return Ok(None) };
        let number = |value: &Value| self.number_in(field, value, [0.0, high]);
        let ends = match value.as_array().map(Vec::as_slice) {
            None => [number(&value)?; 2],
            Some([low, high]) => [number(low)?, number(high)?],
            Some(_) => return Err(self.problem(field, "is not a number or a list of two")),
        };
        match ends[0] <= ends[1] {
            true => Ok(Some(ends)),
            false => Err(self.problem(field, "has its least number second")),
        }
    }

    fn action(&mut self, name: &str) -> Result<Action> {
        Ok(match name {
            "busy" => Action::Busy,
            "timeout" => Action::Timeout,
            "timeout_after" => Action::TimeoutAfter,
            "lost" => Action::Lost,
            "cut" => Action::Cut,
            "delay" => Action::Delay(self.delay()?),
            "short_page" => {
                let most = self.count("entities")?.unwrap_or(1);
                Action::ShortPage(usize::try_from(most).unwrap_or(usize::MAX))
            }
            "empty_page" => Action::EmptyPage,
            "table_being_deleted" => {
                let seconds = self.number("seconds", [0.0, SECONDS_MAX])?;
                Action::TableBeingDeleted(seconds_in(seconds.unwrap_or(DELETED_SECONDS)))
            }
            "move" => {
                let period = self.number("period", [1.0, SECONDS_MAX])?.unwrap_or(PERIOD_SECONDS);
                let offline = self.ends("offline", period)?.unwrap_or(OFFLINE_SECONDS);
                if offline[1] > period {
                    return Err(self.problem("period", "is shorter than the time offline"));
                }
                Action::Move { period: seconds_in(period), offline: offline.map(seconds_in) }
            }
            "skew" => match self.number("seconds", [-SECONDS_MAX, SECONDS_MAX])? {
                Some(seconds) => Action::Skew(seconds as i64),
                None => return Err(self.problem("seconds", "is missing")),
            },
            _ => return Err(self.problem("do", "is not an action")),
        })
    }

    fn delay(&mut self) -> Result<Delay> {
        let ms = |ms: f64| Duration::from_secs_f64(ms / 1_000.0);
        let mean = self.number("mean_ms", [0.0, DELAY_MS_MAX])?;
        let cap = self.number("cap_ms", [0.0, DELAY_MS_MAX])?;
        match (mean, self.ends("ms", DELAY_MS_MAX)?) {
            (Some(mean), None) => {
                let cap = cap.unwrap_or((10.0 * mean).min(DELAY_MS_MAX));
                Ok(Delay::Exponential { mean: ms(mean), cap: ms(cap) })
            }
            (None, Some(_)) if cap.is_some() => Err(self.problem("cap_ms", "needs \"mean_ms\"")),
            (None, Some(ends)) => Ok(Delay::Between(ends.map(ms))),
            (None, None) => Err(self.problem("ms", "is missing, and so is \"mean_ms\"")),
            (Some(_), Some(_)) => Err(self.problem("ms", "excludes \"mean_ms\"")),
        }
    }

    fn times(&mut self) -> Result<Range<Duration>> {
        let mut time = |field| self.number(field, [0.0, SECONDS_MAX]);
        let (from, until) = (time("from")?, time("until")?);
        let times =
            from.map_or(Duration::ZERO, seconds_in)..until.map_or(Duration::MAX, seconds_in);
        if times.is_empty() {
            return Err(self.problem("until", "is not after \"from\""));
        }
        Ok(times)
    }

    fn operations(&mut self) -> Result<Vec<Operation>> {
        const FIELD: &str = "operations";
        let names = match self.left.remove(FIELD) {
            None => return Ok(Vec::new()),
            Some(Value::Array(names)) if !names.is_empty() => names,
            Some(_) => return Err(self.problem(FIELD, "is not a list of operations")),
        };
        let read = |name: &Value| {
            let name = name.as_str().unwrap_or_default();
            let known = Operation::ALL.into_iter().find(|operation| operation.name() == name);
            let all = Operation::ALL.map(Operation::name).join(", ");
            known.ok_or_else(|| self.problem(FIELD, &format!("has another than {all}")))
        };
        names.iter().map(read).collect()
    }

    fn chance(&mut self, action: Action) -> Result<Chance> {
        let mut chances = Vec::new();
        if let Some(percent) = self.number("percent", [0.0, 100.0])? {
            chances.push(Chance::PerMillion((percent * 10_000.0).round() as u64));
        }
        if !matches!(action, Action::Move { .. }) {
            chances.extend(self.count("every")?.map(Chance::Every));
            chances.extend(self.count("first")?.map(Chance::First));
            chances.extend(self.rate()?.map(Chance::Above));
        }
        let is_always = |chance: Option<&Chance>| {
            matches!(
                chance,
                None | Some(Chance::Always | Chance::PerMillion(PER_MILLION) | Chance::Every(1))
            )
        };
        match chances.len() {
            2.. => Err(refused(format!(
                "{}: only one of \"percent\", \"every\", \"first\" and \"rate\"",
                self.rule
            ))),
            // A client would read empty pages forever.
            _ if action == Action::EmptyPage && is_always(chances.first()) => {
                Err(self.problem("percent", "must be below 100, or \"first\" given"))
            }
            _ => Ok(chances.pop().unwrap_or(Chance::Always)),
        }
    }

    fn rate(&mut self) -> Result<Option<Targets>> {
        const FIELD: &str = "rate";
        let mut rates = match self.left.remove(FIELD) {
            None => return Ok(None),
            Some(Value::String(name)) if name == "2010" => return Ok(Some(Targets::y2010())),
            Some(Value::String(name)) if name == "service" => return Ok(Some(Targets::service())),
            Some(Value::Object(left)) => Fields { rule: self.rule.clone(), left },
            Some(_) => {
                return Err(self.problem(FIELD, "is not \"2010\", \"service\" or an object"));
            }
        };
        let mut number = |field| rates.number(field, [1.0, f64::from(u32::MAX)]);
        let (partition, account) = (number("partition")?, number("account")?);
        if !rates.left.is_empty() || partition.is_none() && account.is_none() {
            return Err(self.problem(FIELD, "has other fields than \"partition\" and \"account\""));
        }
        Ok(Some(Targets {
            partition_entities_per_second: partition.unwrap_or(0.0) as u32,
            database_entities_per_second: account.unwrap_or(0.0) as u32,
        }))
    }
}

/// Returns a random number from the first to the second.
pub(super) fn between([low, high]: [u64; 2], rng: &mut Rng) -> u64 {
    low + rng.below(high.saturating_sub(low) + 1)
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn seconds_in(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn refused(problem: String) -> Error {
    Error::refused_with(Code::InvalidInput, problem)
}
