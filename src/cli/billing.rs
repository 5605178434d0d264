//! The option `--prices`, and the output of bills: `stats --as-service`.
//!
//! `crate::billing` counts.

use std::io::{self, Read, Write};
use std::ops::ControlFlow;

use clap::Args;

use super::failure::{Failure, Outcome};
use super::files::open_input;
use super::output::{Format, Output, print, with_thousands, write_cells};
use super::progress::Progress;
use crate::billing::{Bill, Prices};
use crate::db::Db;
use crate::json::Object;
use crate::query::KeyRange;

/// The maximum number of bytes of a file of prices.
const PRICES_BYTES_MAX: u64 = 64 << 10;
/// Entities between two updates of the progress bar.
const PROGRESS_ROWS: u64 = 1_000;

/// The option `--prices`.
#[derive(Args)]
pub(super) struct PriceArgs {
    /// Prices in the form of docs/prices.json [default: an example of the region and date that the
    /// output names]
    #[arg(long, value_name = "FILE")]
    prices: Option<String>,
}

impl PriceArgs {
    pub(super) fn is_given(&self) -> bool {
        self.prices.is_some()
    }

    pub(super) fn read(&self) -> Outcome<Prices> {
        let Some(path) = &self.prices else { return Ok(Prices::read(Prices::EXAMPLE)?) };
        let mut text = String::new();
        let mut input = open_input(path)?.reader.take(PRICES_BYTES_MAX);
        let read = input.read_to_string(&mut text);
        read.map_err(|error| Failure::Other(format!("cannot read {path}: {error}")))?;
        Prices::read(&text).map_err(|error| Failure::Usage(format!("{path}: {error}")))
    }

    /// Prints for each table of a database the bytes that Azure Table storage would bill, and the
    /// price for a month. Reads all entities.
    pub(super) fn print_tables(&self, db: &Db, format: Format) -> Outcome {
        let prices = self.read()?;
        let tables = Progress::during("entities", None, |bar| {
            db.tables()?.into_iter().map(|name| stored(db, name, bar)).collect::<Outcome<Vec<_>>>()
        })?;
        let mut all = Bill::default();
        tables.iter().for_each(|(_, bill)| all.add(bill));
        print(|output| match format {
            Format::Json | Format::Ndjson => output.object(|object| {
                object.objects("tables", &tables, |object, (name, bill)| {
                    object.text("TableName", name);
                    object.raw("Entities", bill.entities);
                    object.raw("ServiceBytes", bill.bytes_stored);
                });
                self.put(object, &all, &prices);
            }),
            Format::Csv => write_tables(output, &tables, format, |count| count.to_string()),
            Format::Table => {
                if !tables.is_empty() {
                    write_tables(output, &tables, format, with_thousands)?;
                    writeln!(output)?;
                }
                self.write(output, &all, &prices)
            }
        })
    }

    /// Writes a bill with its prices, and the source of the prices. Without requests, only stored
    /// bytes are written.
    pub(super) fn write(
        &self,
        output: &mut Output,
        bill: &Bill,
        prices: &Prices,
    ) -> io::Result<()> {
        let currency = &prices.currency;
        let mut line = |name: &str, count: u64, price: String| {
            writeln!(output, "{name:<13} {:>17}  {price}", with_thousands(count))
        };
        let storage = format!("{} {currency} a month", price_text(bill.storage_price(prices)));
        line("bytes stored", bill.bytes_stored, storage)?;
        if bill.transactions > 0 {
            let price = format!("{} {currency}", price_text(bill.transaction_price(prices)));
            line("transactions", bill.transactions, price)?;
            let price = bill.bytes_out_price(prices);
            let price = price.map(|price| format!("{} {currency}", price_text(price)));
            line("bytes out", bill.bytes_out, price.unwrap_or("no price".to_owned()))?;
        }
        let example = if self.is_given() { "" } else { " (an example: use --prices FILE)" };
        writeln!(output, "prices of {}, {}{example}:", prices.region, prices.date)?;
        writeln!(
            output,
            "  {} {currency} for a GiB a month, {} {currency} for 10,000 transactions",
            prices.gib_month, prices.transactions_10000
        )?;
        prices
            .gib_out
            .map_or(Ok(()), |price| writeln!(output, "  {price} {currency} for a GiB out"))
    }

    /// Adds a bill with its prices. Without requests, only stored bytes are added.
    pub(super) fn put(&self, object: &mut Object<'_>, bill: &Bill, prices: &Prices) {
        object.raw("entities", bill.entities);
        object.raw("bytes_stored", bill.bytes_stored);
        object.raw("storage_price_per_month", bill.storage_price(prices));
        if bill.transactions > 0 {
            object.raw("transactions", bill.transactions);
            object.raw("transaction_price", bill.transaction_price(prices));
            object.raw("bytes_out", bill.bytes_out);
            let price = bill.bytes_out_price(prices).map(|price| price.to_string());
            object.raw("bytes_out_price", price.unwrap_or("null".to_owned()));
        }
        object.text("currency", &prices.currency);
        object.text("region", &prices.region);
        object.text("prices_of", &prices.date);
        object.raw("prices_are_an_example", !self.is_given());
    }
}

/// Returns a price with four decimals. A price that would seem to be nothing is not rounded.
fn price_text(price: f64) -> String {
    match price > 0.0 && price < 0.0001 {
        true => "less than 0.0001".to_owned(),
        false => format!("{price:.4}"),
    }
}

/// Returns the entities and the bytes of a table as Azure Table storage counts them.
fn stored(db: &Db, name: String, bar: &Progress) -> Outcome<(String, Bill)> {
    let mut bill = Bill::default();
    db.table(&name)?.scan(KeyRange::all()).for_each_row(|row| {
        bill.add_entities(1, row.size()? as u64);
        if bill.entities % PROGRESS_ROWS == 0 {
            bar.advance(PROGRESS_ROWS);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((name, bill))
}

fn write_tables(
    output: &mut Output,
    tables: &[(String, Bill)],
    format: Format,
    number: impl Fn(u64) -> String,
) -> io::Result<()> {
    let row = |(name, bill): &(String, Bill)| {
        vec![name.clone(), number(bill.entities), number(bill.bytes_stored)]
    };
    let columns = ["TableName", "Entities", "ServiceBytes"];
    let rows = tables.iter().map(row).collect();
    write_cells(output, &columns, rows, vec![false, true, true], format)
}
