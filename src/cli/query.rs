//! Implements `query`: prints the entities that a filter matches, or aggregates of them, or
//! explains the cost of finding them.
//!
//! Invariants
//! * rows are printed as they are read; memory holds only one page of a table for people, one line
//!   per partition if requested, and what `order` holds with --order-by;
//! * the filter is parsed before the database is opened.
//!
//! `crate::query` parses and evaluates filters; `output` lays out the results.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::endpoint::Place;
#[cfg(feature = "remote")]
use super::endpoint::{AccountArgs, Service};
use super::failure::{Failure, Outcome, eprint_command, quoted};
use super::layout::{Screen, width};
use super::open::{FilterArgs, Trimmed, open_to_read};
use super::order::{self, Order};
use super::output::{
    Format, Output, TableArgs, average, with_thousands, write_cells, write_entities,
};
use super::unmatched::{note, notes};
use crate::error::Result;
use crate::json::explain::{counts, number_text, numbers, put_aggregate, put_explain};
use crate::json::{self, Object};
use crate::query::{self, Aggregate, Explain, Filter, Number, Token};
use crate::table::Table;

/// The maximum number of entities on a page that is printed for people.
const PAGE_ENTITIES: usize = 1_000;

/// The length of a name and the space after it in the text of [`Explain`].
const EXPLAIN_NAME_BYTES: usize = 11;

/// Print the entities that match a filter, in key order.
#[derive(Args)]
#[command(after_long_help = QUERY_HELP)]
pub(super) struct Query {
    /// The database
    db: Place,
    /// The table
    table: String,
    #[command(flatten)]
    filter: FilterArgs,
    /// Properties to print, separated by commas; all by default
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = ["count", "aggregate"])]
    #[arg(value_parser = Trimmed(NonEmptyStringValueParser::new()))]
    select: Option<Vec<String>>,
    /// At most this many entities
    #[arg(long, alias = "limit", value_name = "N", conflicts_with_all = ["count", "aggregate"])]
    top: Option<usize>,
    /// Print at most 1,000 entities, and how to continue; the default for a table on a terminal
    /// without --top
    #[arg(long, conflicts_with_all = ["top", "explain", "count", "aggregate"])]
    page: bool,
    /// Continue at this PartitionKey, printed at the end of a page
    #[arg(long, value_name = "PARTITION_KEY", allow_hyphen_values = true)]
    next_pk: Option<String>,
    /// Continue at this RowKey of that partition; by default at the partition's first entity
    #[arg(long, value_name = "ROW_KEY", requires = "next_pk", allow_hyphen_values = true)]
    next_rk: Option<String>,
    /// From the last key to the first
    #[arg(long)]
    reverse: bool,
    /// Sort by properties: 'Price desc, RowKey'
    #[arg(long, value_name = "ORDER", value_parser = order::read)]
    #[arg(conflicts_with_all = ["page", "next_pk", "reverse", "explain", "count", "aggregate"])]
    order_by: Option<Order>,
    /// Read everything, print no entity, and explain the cost
    #[arg(long, conflicts_with_all = ["count", "aggregate"])]
    explain: bool,
    /// Print the number of entities
    #[arg(long, conflicts_with = "aggregate")]
    count: bool,
    /// Print minimum, maximum, sum and average of a numeric property
    #[arg(long, value_name = "PROPERTY")]
    aggregate: Option<String>,
    /// With --count or --aggregate: one result per PartitionKey
    #[arg(long)]
    by_partition: bool,
    #[command(flatten)]
    format: TableArgs,
    #[cfg(feature = "remote")]
    #[command(flatten)]
    account: AccountArgs,
}

const QUERY_HELP: &str = "\
A filter compares properties with literals, by eq ne lt le gt ge, joined by and, or, not and
parentheses. Its conditions on PartitionKey and RowKey limit the rows that are read.
  texts 'JFK' ('' is a quote in one)   integers 120, of 64 bits 120L
  doubles 0.5   true, false   datetime'2013-01-01T10:00:00Z'   guid'...'
  X'0fa0'
A comparison with a property that an entity lacks is false. An Int32 never equals 5.0 or 5L. If a
property or a type occurs in no entity, a note on standard error says so, and --explain too.

On a terminal a table ends after 1,000 entities, and standard error says how to continue. Otherwise,
and with --top, nothing is cut. With --explain there are no rows: text, or one JSON object with
--format json or ndjson.

--order-by sorts in memory, at most 128 MiB of entities; with --top N it holds only N of them. An
entity without the property comes first, with desc last. Numbers of all types are compared by value;
values of other types have the order texts, binaries, booleans, numbers, times, guids. Ties are in
key order. Azure Table storage sorts by keys alone, so rowstone's server has no such option.

Examples:
  rowstone query flights Flights --order-by 'dep_delay desc, dest' --top 5
  rowstone query flights Flights --filter \"dep_delay gt 120 and origin eq 'JFK'\"
  rowstone query flights Flights \\
      --filter \"dep_delay gt 120 and origin eq 'JFK'\" --explain
  rowstone query flights Flights --select dest,dep_delay --format csv \\
      --filter \"PartitionKey eq 'UA-EWR' and RowKey lt '2013-01-02'\"
  rowstone query flights Flights --filter \"PartitionKey eq 'B6-JFK'\" \\
      --reverse --top 5
  rowstone query flights Flights --filter \"dest eq 'LAX'\" \\
      --aggregate dep_delay --by-partition";

impl Query {
    pub(super) fn run(self) -> Outcome {
        let filter = self.filter.read()?;
        if self.explain && self.format.get() == Format::Csv {
            return Err(Failure::Usage("--explain is text or JSON, not CSV".into()));
        }
        if self.by_partition && !self.count && self.aggregate.is_none() {
            return Err(Failure::Usage("--by-partition requires --count or --aggregate".into()));
        }
        #[cfg(feature = "remote")]
        if let Some(service) = self.account.open(&self.db)? {
            return self.run_at(&service);
        }
        let db = open_to_read(&self.db)?;
        let table = db.table(&self.table)?;
        let query = self.query(&table, filter.clone())?;
        let matched = Cell::new(false);
        let mut more = None;
        self.format.print(|output| {
            if self.explain {
                let explain = query.explain()?;
                let matched = explain.rows_returned() > 0;
                let notes = notes(&table, &filter, Some(&self.named()), matched);
                return Ok(self.write_explain(output, &explain, &notes)?);
            }
            if let Some(order) = &self.order_by {
                more = self.write_sorted(output, order, query, &matched)?;
                return Ok(());
            }
            match (&self.aggregate, self.by_partition) {
                _ if self.count && self.by_partition => {
                    self.write_groups(output, &query.count_by_partition()?, &matched)
                }
                _ if self.count => self.write_one(output, &query.count()?, &matched),
                (Some(property), true) => {
                    self.write_groups(output, &query.aggregate_by_partition(property)?, &matched)
                }
                (Some(property), false) => {
                    self.write_one(output, &query.aggregate(property)?, &matched)
                }
                (None, _) if self.is_paged() => {
                    more = self.write_page(output, query, &matched)?;
                    Ok(())
                }
                (None, _) => {
                    let entities = || Ok(query.clone().into_iter().inspect(|_| matched.set(true)));
                    write_entities(output, entities, self.names(), self.format.get())
                }
            }
        })?;
        if !self.explain {
            note(&table, &filter, Some(&self.named()), matched.get());
        }
        if let Some((more, how)) = more {
            eprint_more(&more, &how);
        }
        Ok(db.close()?)
    }

    fn query(&self, table: &Table, filter: Filter) -> Result<query::Query> {
        // The properties to sort by are read, but only the selected ones are printed.
        let read = self.names().map(|names| names.iter().chain(self.ordered()).cloned());
        let read = read.map(|names| names.collect::<Vec<_>>());
        let mut query = table.query(filter)?.select_some(read.as_deref());
        if let Some(top) = self.top.filter(|_| self.order_by.is_none()) {
            query = query.top(top);
        }
        if let Some(partition_key) = self.next_pk.clone() {
            let row_key = self.next_rk.clone().unwrap_or_default();
            query = query.after(Token { partition_key, row_key });
        }
        Ok(if self.reverse { query.reverse() } else { query })
    }

    /// Returns the selected names; `None` means all.
    fn names(&self) -> Option<&[String]> {
        self.select.as_deref().filter(|names| names.iter().all(|name| name != "*"))
    }

    /// Returns the names of the properties to sort by.
    fn ordered(&self) -> impl Iterator<Item = &String> {
        self.order_by.iter().flat_map(Order::names)
    }

    /// Returns the names of the properties to print, to aggregate or to sort by.
    fn named(&self) -> Vec<String> {
        let names = self.select.iter().flatten().chain(&self.aggregate).chain(self.ordered());
        names.cloned().collect()
    }

    /// Whether a table without --top is to end after [`PAGE_ENTITIES`].
    fn is_cut(&self) -> bool {
        self.top.is_none() && self.format.get() == Format::Table && io::stdout().is_terminal()
    }

    fn is_paged(&self) -> bool {
        self.page || self.is_cut()
    }

    /// Prints the entities in `order`, and returns how to see more if the table was cut.
    fn write_sorted(
        &self,
        output: &mut Output,
        order: &Order,
        query: query::Query,
        matched: &Cell<bool>,
    ) -> Outcome<Option<(String, String)>> {
        let top = self.top.or_else(|| self.is_cut().then_some(PAGE_ENTITIES));
        let (entities, has_more) = order.sorted(query, top, order::BYTES_MAX)?;
        matched.set(!entities.is_empty());
        let each = || Ok(entities.iter().cloned().map(Ok));
        write_entities(output, each, self.names(), self.format.get())?;
        let shown = with_thousands(entities.len() as u64);
        let is_to_tell = has_more && self.top.is_none();
        Ok(is_to_tell.then(|| {
            (format!("{shown} shown, there are more:"), "--top N shows N of them".to_owned())
        }))
    }

    /// Prints a page, and returns the continuation if there is more.
    fn write_page(
        &self,
        output: &mut Output,
        query: query::Query,
        matched: &Cell<bool>,
    ) -> Outcome<Option<(String, String)>> {
        // Sets no time budget, because it could end a page without entities, which is of no use to
        // a person.
        let page = query.time_budget(Duration::MAX).page(PAGE_ENTITIES)?;
        matched.set(!page.entities().is_empty());
        let entities = || Ok(page.entities().iter().cloned().map(Ok));
        write_entities(output, entities, self.names(), self.format.get())?;
        let shown = with_thousands(page.entities().len() as u64);
        Ok(page.next().map(|Token { partition_key, row_key }| {
            let (pk, rk) = (quoted(partition_key), quoted(row_key));
            let how = format!("--next-pk={pk} --next-rk={rk}");
            (format!("{shown} shown, there are more: go on with"), how)
        }))
    }

    fn write_explain(
        &self,
        output: &mut Output,
        explain: &Explain,
        notes: &[String],
    ) -> io::Result<()> {
        if matches!(self.format.get(), Format::Json | Format::Ndjson) {
            return output.object(|object| {
                put_explain(object, explain);
                if !notes.is_empty() {
                    object.texts("notes", notes.iter());
                }
            });
        }
        for line in explain.to_string().lines() {
            // The text begins behind the name.
            let (name, text) = line.split_at_checked(EXPLAIN_NAME_BYTES).unwrap_or((line, ""));
            output.fold(name, text)?;
        }
        notes.iter().try_for_each(|note| output.fold("note       ", note))
    }

    /// Prints the result for all entities.
    fn write_one<M: Measure>(
        &self,
        output: &mut Output,
        result: &M,
        matched: &Cell<bool>,
    ) -> Outcome {
        matched.set(result.count() > 0);
        Ok(match self.format.get() {
            Format::Table => write!(output, "{}", result.for_people()),
            Format::Json | Format::Ndjson => output.object(|object| result.put(object)),
            Format::Csv => {
                let (columns, row): (Vec<_>, _) = result.cells(false).into_iter().unzip();
                write_cells(output, &columns, vec![row], Vec::new(), Format::Csv)
            }
        }?)
    }

    /// Prints a result for each partition.
    fn write_groups<M: Measure>(
        &self,
        output: &mut Output,
        groups: &[(String, M)],
        matched: &Cell<bool>,
    ) -> Outcome {
        matched.set(!groups.is_empty());
        if matches!(self.format.get(), Format::Json | Format::Ndjson) {
            let json = |(key, result): &(String, M)| {
                json::object(|object| {
                    object.text("PartitionKey", key);
                    result.put(object);
                })
            };
            return Ok(
                output.items(&groups.iter().map(json).collect::<Vec<_>>(), self.format.get())?
            );
        }
        let names = M::default().cells(false).into_iter().map(|(name, _)| name);
        let columns: Vec<_> = std::iter::once("PartitionKey").chain(names).collect();
        let for_people = self.format.get() == Format::Table;
        let rows = groups.iter().map(|(key, result)| {
            let cells = result.cells(for_people).into_iter().map(|(_, text)| text);
            std::iter::once(key.clone()).chain(cells).collect()
        });
        let right = (0..columns.len()).map(|i| i > 0).collect();
        Ok(write_cells(output, &columns, rows.collect(), right, self.format.get())?)
    }
}

#[cfg(feature = "remote")]
impl Query {
    /// Queries a Table service page by page.
    fn run_at(&self, service: &Service) -> Outcome {
        service.refuse(&[
            ("--page", self.page),
            ("--next-pk", self.next_pk.is_some()),
            ("--order-by", self.order_by.is_some()),
            ("--explain", self.explain),
            ("--aggregate", self.aggregate.is_some()),
            ("--by-partition", self.by_partition),
        ])?;
        let reversed = self.reverse.then(|| service.reversed()).transpose()?;
        let service = reversed.as_ref().unwrap_or(service);
        let top = self.top.or_else(|| self.is_cut().then_some(PAGE_ENTITIES));
        let keys = ["PartitionKey".to_owned()];
        let select = if self.count { Some(&keys[..]) } else { self.names() };
        let entities = || service.rows(&self.table, self.filter.text(), select, top);
        let count = Cell::new(0u64);
        self.format.print(|output| {
            if self.count {
                let counted = match service.remote().count(&self.table, self.filter.text())? {
                    Some(counted) => counted,
                    None => entities().try_fold(0u64, |sum, row| row.map(|_| sum + 1))?,
                };
                return self.write_one(output, &counted, &Cell::new(false));
            }
            let counted = || {
                count.set(0);
                Ok(entities().inspect(|_| count.set(count.get() + 1)))
            };
            write_entities(output, counted, self.names(), self.format.get())
        })?;
        if self.top.is_none() && top.is_some_and(|top| count.get() == top as u64) {
            let shown = with_thousands(count.get());
            eprint_more(&format!("{shown} shown, there may be more:"), "--top N shows N of them");
        }
        Ok(())
    }
}

/// An aggregate of many entities.
trait Measure: Default {
    /// Returns the number of entities.
    fn count(&self) -> u64;
    /// Returns the numbers of the aggregate, each with its name. For people an average has few
    /// digits.
    fn cells(&self, for_people: bool) -> Vec<(&'static str, String)>;
    /// Writes the members of a JSON object.
    fn put(&self, object: &mut Object<'_>);
    /// Returns the result as lines of text.
    fn for_people(&self) -> String;
}

impl Measure for u64 {
    fn count(&self) -> u64 {
        *self
    }

    fn cells(&self, for_people: bool) -> Vec<(&'static str, String)> {
        vec![("count", count_text(*self, for_people))]
    }

    fn put(&self, object: &mut Object<'_>) {
        object.raw("count", self);
    }

    fn for_people(&self) -> String {
        // Without separators, for scripts.
        format!("{self}\n")
    }
}

impl Measure for Aggregate {
    fn count(&self) -> u64 {
        self.rows()
    }

    fn cells(&self, for_people: bool) -> Vec<(&'static str, String)> {
        let text = |name, number| match number {
            Number::Double(value) if for_people && name == "avg" && value.is_finite() => {
                average(value)
            }
            number => number_text(number),
        };
        let counts = counts(self).into_iter();
        let counts = counts.map(|(name, count)| (name, count_text(count, for_people)));
        let numbers = numbers(self)
            .into_iter()
            .map(|(name, number)| (name, number.map(|n| text(name, n)).unwrap_or_default()));
        counts.chain(numbers).collect()
    }

    fn put(&self, object: &mut Object<'_>) {
        put_aggregate(object, self);
    }

    fn for_people(&self) -> String {
        let lines = self.cells(true).into_iter().map(|(name, text)| format!("{name:<9} {text}"));
        lines.map(|line| format!("{}\n", line.trim_end())).collect()
    }
}

fn count_text(count: u64, for_people: bool) -> String {
    if for_people { with_thousands(count) } else { count.to_string() }
}

/// Prints on standard error that there are more entities, and how to see them. A command for that
/// gets a line of its own if both do not fit the terminal. It is to be copied, so it is neither
/// wrapped nor masked.
fn eprint_more(more: &str, how: &str) {
    let columns = Screen::of_standard_error().at_most(usize::MAX);
    let fits = width(&format!("{more} {how}")) <= columns;
    eprint_command(&format!("{more}{}{how}", if fits { " " } else { "\n  " }));
}
