//! Generates queries and their filters, and property values that the filters distinguish.
//!
//! Invariant: the literals of filters are drawn from the same values as the properties of rows, so
//! that filters match some rows.

use crate::testing::sim::engine::START;
use crate::testing::sim::expr::{Expr, Op};
use crate::testing::sim::query::{Query, Want};
use crate::testing::sim::step::{Condition, Scan, Step, Verb, Write};
use crate::testing::sim::value::Val;

use super::{Generator, NAMES, PARTITIONS};

/// Names of properties that some rows have, and one that no row has.
const ASKED: [&str; 7] = ["A", "B", "Count", "Note", "At", "_x", "None"];
/// The maximum nesting depth of a filter.
const DEPTH_MAX: u64 = 3;
/// The number of bytes by which the rows of a stretch (adjacent similar rows) are lengthened.
const FILL_BYTES: usize = 24;
/// Times are chosen from this many ticks after [`START`]. While the clock does not move, each
/// commit takes the next tick, so the Timestamps of about this many commits are in the range.
const COMMITS: u64 = 200;

impl Generator<'_> {
    pub(super) fn query_step(&mut self) -> Step {
        let roll = self.source.below(8);
        if roll < 3 && !self.pagings.is_empty() {
            let at = self.source.index(self.pagings.len());
            let is_last = self.source.chance(1, 6);
            let name = self.pagings[at].clone();
            if is_last {
                self.pagings.remove(at);
            }
            return Step::Resume(name);
        }
        let table = self.table();
        let mut query = Query { at: self.at(), ..self.query() };
        if roll < 4 && self.pagings.len() < 3 {
            let name = self.name('p');
            self.pagings.push(name.clone());
            (query.want, query.at) = (Want::Rows, None);
            query.page = query.page.or(Some(3));
            return Step::Pages { name, table, query: query.into() };
        }
        Step::Query { table, query: query.into() }
    }

    fn query(&mut self) -> Query {
        let filter = self.source.chance(7, 8).then(|| self.expr(DEPTH_MAX));
        let want = match self.source.below(8) {
            0 | 1 => Want::Count,
            2 => Want::CountByPartition,
            3 => Want::Explain,
            4 => Want::Aggregate((*self.source.pick(&NAMES)).to_owned()),
            _ => Want::Rows,
        };
        // If there is no filter, the engine may count the rows of a block without reading the
        // block. To test this, at least half of the counts have no filter.
        let filter = filter.filter(|_| want != Want::Count || self.source.chance(1, 2));
        let reverse = !matches!(want, Want::Aggregate(_) | Want::CountByPartition);
        Query {
            filter,
            want,
            select: self.select(),
            top: self.source.chance(1, 5).then(|| self.source.index(20)),
            page: self.source.chance(1, 3).then(|| 1 + self.source.index(10)),
            reverse: reverse && self.source.chance(1, 5),
            busy: self.source.chance(1, 4).then(|| self.source.below(256)),
            at: None,
        }
    }

    fn expr(&mut self, depth: u64) -> Expr {
        if depth == 0 || self.source.chance(2, 5) {
            return self.comparison();
        }
        match self.source.below(7) {
            0 => Expr::Not(self.expr(depth - 1).into()),
            1..4 => Expr::All(self.exprs(depth - 1)),
            _ => Expr::Any(self.exprs(depth - 1)),
        }
    }

    fn exprs(&mut self, depth: u64) -> Vec<Expr> {
        (0..2 + self.source.below(2)).map(|_| self.expr(depth)).collect()
    }

    fn comparison(&mut self) -> Expr {
        let op = *self.source.pick(&Op::ALL);
        let (name, literal) = match self.source.below(16) {
            0..3 => ("PartitionKey", Val::String((*self.source.pick(&PARTITIONS)).to_owned())),
            3 | 4 => ("RowKey", Val::String(self.rk())),
            5 => ("Timestamp", self.moment()),
            6 => (*self.source.pick(&["PartitionKey", "RowKey", "Timestamp"]), self.value()),
            _ => {
                let name = *self.source.pick(&ASKED);
                (name, self.value_of(name))
            }
        };
        let keeps = name == "PartitionKey" && self.source.chance(1, 2);
        Expr::Compare(name.to_owned(), if keeps { Op::Eq } else { op }, literal)
    }

    /// Returns a value for the property `name`: mostly one of a few values of the property's usual
    /// type.
    pub(super) fn value_of(&mut self, name: &str) -> Val {
        let source = &mut self.source;
        if source.chance(1, 3) {
            return self.value();
        }
        match name {
            "A" => match source.below(6) {
                small @ 0..4 => Val::Int64(small as i64),
                _ => Val::Int32(source.below(4) as i32),
            },
            "B" => {
                let nan = f64::NAN;
                let few = [0.0, -0.0, 1.5, -2.0, nan, nan, nan, f64::INFINITY, f64::NEG_INFINITY];
                Val::Double(source.pick(&few).to_bits())
            }
            "Count" => Val::Int32(source.below(24) as i32),
            "Note" => {
                let few = ["", "a", "\u{ff5e}", "\u{1f600}", "z"];
                match source.below(8) {
                    at @ 0..5 => Val::String(few[at as usize].to_owned()),
                    // Zone bounds are truncated before the position at which these texts differ.
                    at => Val::String(format!("{}{at}", "long texts begin alike ".repeat(4))),
                }
            }
            "At" => self.moment(),
            _ => match source.below(3) {
                0 => Val::Guid([source.below(3) as u8; 16]),
                1 => Val::Binary(vec![1; source.index(4)]),
                _ => Val::Boolean(source.chance(1, 2)),
            },
        }
    }

    /// Adds steps that write rows, overwrite them with other values in one file or in several, and
    /// query the rows.
    pub(super) fn episode(&mut self, steps: &mut Vec<Step>) {
        let table = self.table();
        let pk = (*self.source.pick(&PARTITIONS[..2])).to_owned();
        if self.source.chance(1, 4) {
            self.queue_episode(&table, &pk, steps);
        }
        // `B`, a double, is listed twice, because NaN is a likely source of wrong zone bounds.
        let name = *self.source.pick(&["A", "B", "B", "Count", "Note", "At", "_x"]);
        let mut values = Vec::new();
        for round in 0..2 + self.source.below(2) {
            let two = [self.value_of(name), self.value_of(name)];
            // Later stretches begin at lower keys than the first one. At the lowest keys only the
            // newer file has rows, and at higher keys both files have rows.
            let first = if round == 0 { 12 } else { 0 } + self.source.below(12);
            let writes = self.stretch(&pk, first, name, &two);
            steps.push(Step::Group { table: table.clone(), writes, durability: None });
            values.extend(two);
            if self.snapshots.len() < 3 && self.source.chance(1, 2) {
                let snapshot = self.name('s');
                self.snapshots.push(snapshot.clone());
                steps.push(Step::Snapshot(snapshot));
            }
            match self.source.below(6) {
                0 => {}
                1..4 => steps.push(Step::Flush),
                _ => steps.push(Step::Compact),
            }
        }
        if self.source.chance(1, 3) {
            // Deletes the end of a stretch, so that files have deleted rows next to visible ones.
            let from = Some(format!("r{:02}", 12 + self.source.below(24)));
            let to =
                self.source.chance(1, 3).then(|| format!("r{:02}", 24 + self.source.below(24)));
            let scan = Scan { pk: Some(pk.clone()), from, to, ..Scan::default() };
            steps.push(Step::DropRange { table: table.clone(), scan, also: None });
            let all = Expr::Compare("PartitionKey".to_owned(), Op::Eq, Val::String(pk.clone()));
            let query = Query { filter: Some(all), want: Want::Count, ..Query::default() };
            steps.push(Step::Query { table: table.clone(), query: query.into() });
        }
        for _ in 0..2 {
            let query = self.aimed(&pk, name, &values);
            steps.push(Step::Query { table: table.clone(), query: query.into() });
        }
    }

    /// Returns a query that usually filters by one of `values` or by the number of a row, so that
    /// some of the rows match.
    fn aimed(&mut self, pk: &str, name: &str, values: &[Val]) -> Query {
        let mut query = Query { at: self.at(), ..self.query() };
        if self.source.chance(2, 3) {
            // Two thirds of these queries read forwards to the end, so that blocks can be skipped.
            (query.top, query.page, query.reverse) = (None, None, false);
        }
        let op = *self.source.pick(&[Op::Eq, Op::Eq, Op::Lt, Op::Ge, Op::Gt, Op::Ne]);
        let aim = match self.source.below(3) {
            // The negated comparison is true for NaN, even in a block where it is false for all
            // numbers.
            _ if name == "B" && self.source.chance(1, 3) => {
                let least = Val::Double((-2.5f64).to_bits());
                Expr::Not(Expr::Compare(name.to_owned(), Op::Ge, least).into())
            }
            0 => Expr::Compare("Count".to_owned(), op, Val::Int32(self.number())),
            _ => Expr::Compare(name.to_owned(), op, self.source.pick(values).clone()),
        };
        let aim = if self.source.chance(1, 4) { Expr::Not(aim.into()) } else { aim };
        let pk = Expr::Compare("PartitionKey".to_owned(), Op::Eq, Val::String(pk.to_owned()));
        let aim = if self.source.chance(1, 2) { Expr::All(vec![pk, aim]) } else { aim };
        query.filter = match query.filter {
            Some(filter) if self.source.chance(1, 5) => Some(Expr::All(vec![aim, filter])),
            Some(_) => Some(aim),
            None => None,
        };
        query
    }

    /// Adds steps that delete rows from the head of a partition, as a queue does, and put some of
    /// them back.
    fn queue_episode(&mut self, table: &str, pk: &str, steps: &mut Vec<Step>) {
        let writes = self.stretch(pk, 0, "Count", &[Val::Int32(0), Val::Int32(1)]);
        steps.push(Step::Group { table: table.to_owned(), writes, durability: None });
        for taken in 0..3 + self.source.below(8) {
            let deletes = Write {
                verb: Verb::Delete,
                pk: pk.to_owned(),
                rk: format!("r{taken:02}"),
                properties: Vec::new(),
                condition: Condition::Any,
            };
            let again = self.source.chance(1, 3).then(|| Write {
                verb: Verb::Upsert,
                rk: format!("r{:02}", self.source.below(taken + 1)),
                ..deletes.clone()
            });
            let write = |write| Step::Write { table: table.to_owned(), write, durability: None };
            steps.push(write(deletes));
            if self.source.chance(1, 8) {
                steps.push(Step::Flush);
            }
            for put in [None, again] {
                let is_put = put.is_some();
                steps.extend(put.map(write));
                let at = if is_put { None } else { self.at() };
                let top = Some(1 + self.source.index(2));
                let scan = Scan { pk: Some(pk.to_owned()), top, at, ..Scan::default() };
                steps.push(Step::Scan { table: table.to_owned(), scan });
            }
        }
    }

    /// Returns writes of adjacent rows with similar values, so that the zones (minimum and maximum
    /// of a property) of their blocks differ.
    fn stretch(&mut self, pk: &str, first: u64, name: &str, values: &[Val; 2]) -> Vec<Write> {
        let verb = *self.source.pick(&[Verb::Upsert, Verb::Upsert, Verb::UpsertMerge]);
        let change = self.source.below(40);
        let rows = first..first + 12 + self.source.below(16);
        let write = |number: u64| {
            let value = values[usize::from(number > change)].clone();
            let mut properties = vec![
                ("Count".to_owned(), Val::Int32(number as i32)),
                // With this length, a block has several of these rows, and a stretch has several
                // blocks.
                ("Fill".to_owned(), Val::Binary(vec![0; FILL_BYTES])),
            ];
            // Long values are left out, because a group with them would be larger than all other
            // data.
            if name != "Count" && value.to_string().len() < 120 {
                properties.push((name.to_owned(), value));
            }
            let (pk, rk) = (pk.to_owned(), format!("r{number:02}"));
            Write { verb, pk, rk, properties, condition: Condition::Any }
        };
        rows.map(write).collect()
    }

    /// Returns a value of `Count` in about the same range as the numbers of the rows.
    fn number(&mut self) -> i32 {
        self.source.below(50) as i32
    }

    /// Usually sets `Count` of the row to the number in its key, so that adjacent rows have close
    /// values.
    pub(super) fn number_rows(&mut self, rk: &str, properties: &mut [(String, Val)]) {
        let number = rk.strip_prefix('r').and_then(|digits| digits.parse().ok());
        let count = properties.iter_mut().find(|(name, _)| name == "Count");
        if let (Some(number), Some((_, value))) = (number, count)
            && self.source.chance(2, 3)
        {
            *value = Val::Int32(number);
        }
    }

    /// Returns a time at which a row may have been written.
    fn moment(&mut self) -> Val {
        Val::DateTime(START + self.source.below(COMMITS))
    }
}
