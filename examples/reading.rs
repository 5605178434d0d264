//! Three ways to read a table: a *projection*, *page by page*, and *parts in parallel*. The parts
//! are prefixes of the PartitionKeys, or those of `store::split` if the keys are not known.
//!
//! A query is a range of keys, a page has at most 1,000 entities, and `select` names the properties
//! that are sent. Another process can continue after a page, because its position is a text.
//!
//! Do not read parts in parallel if one page holds the result: each costs at least a request.
//! Do not count often by reading; keep a count with the data (see `airline`).

use std::sync::Mutex;
use std::thread;

use rowstone::Filter;
use rowstone::keys::prefix_end;
use rowstone::store::{Continuation, PageQuery, TableStore, split};

mod cookbook;
use cookbook::Result;

/// A number of flights, and the sum of their distances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub flights: usize,
    pub miles: i64,
}

/// The number of threads that read.
const READERS: usize = 4;

fn main() -> Result<()> {
    let store = &*cookbook::store_of_arguments()?;
    println!("{} flights loaded", cookbook::load_flights(store, "Flights")?);
    let carriers = carriers(store)?;
    println!("{} carriers: {}", carriers.len(), carriers.join(" "));
    println!("one scan: {:?}", totals(store, "")?);
    println!("in parallel: {:?}", parallel(store, &filters(&carriers))?);
    println!("in 16 parts: {:?}", parallel(store, &split(store, "Flights", 16)?)?);
    let (first, next) = page(store, 3, None)?;
    println!("the first page: {first:?}");
    println!("the second page: {:?}", page(store, 3, next)?.0);
    Ok(())
}

/// Returns the carriers, which are the parts of the PartitionKeys before the dash. After each
/// carrier the next query skips all its partitions, so it costs one request per carrier.
pub fn carriers(store: &dyn TableStore) -> Result<Vec<String>> {
    let mut carriers: Vec<String> = Vec::new();
    loop {
        let end = carriers.last().and_then(|carrier| prefix_end(&format!("{carrier}-")));
        let filter = end.map(|end| format!("PartitionKey ge '{end}'")).unwrap_or_default();
        let query = PageQuery {
            filter: &filter,
            select: &["PartitionKey"],
            top: 1,
            ..PageQuery::default()
        };
        let page = store.query("Flights", &query)?;
        let Some(first) = page.entities.first() else { return Ok(carriers) };
        let (carrier, _) = first.partition_key().split_once('-').ok_or("a key without a dash")?;
        carriers.push(carrier.to_owned());
    }
}

/// Adds up the flights that match a filter. Only one property is sent.
pub fn totals(store: &dyn TableStore, filter: &str) -> Result<Totals> {
    let mut totals = Totals::default();
    cookbook::for_each(store, "Flights", filter, &["distance"], |flight| {
        totals.flights += 1;
        totals.miles += i64::from(flight.get::<i32>("distance")?);
        Ok(())
    })?;
    Ok(totals)
}

/// Returns a filter for the flights of each carrier.
pub fn filters(carriers: &[String]) -> Vec<String> {
    let of = |carrier| Filter::partition_prefix(&format!("{carrier}-")).to_string();
    carriers.iter().map(of).collect()
}

/// Adds up all flights; each reader takes the next filter when it has finished one.
pub fn parallel(store: &dyn TableStore, filters: &[String]) -> Result<Totals> {
    let waiting = Mutex::new(filters.iter());
    let next = || waiting.lock().expect("a reader panicked").next();
    let read = || -> Result<Totals> {
        let mut sum = Totals::default();
        while let Some(filter) = next() {
            let part = totals(store, filter)?;
            sum.flights += part.flights;
            sum.miles += part.miles;
        }
        Ok(sum)
    };
    thread::scope(|scope| {
        let readers = [(); READERS].map(|()| scope.spawn(read));
        let mut sum = Totals::default();
        for reader in readers {
            let part = reader.join().expect("a reader panicked")?;
            sum.flights += part.flights;
            sum.miles += part.miles;
        }
        Ok(sum)
    })
}

/// Returns a page of RowKeys, and the position of the next page as text, such as for a link.
pub fn page(
    store: &dyn TableStore,
    top: usize,
    position: Option<String>,
) -> Result<(Vec<String>, Option<String>)> {
    let position = position.map(|text| text.parse::<Continuation>()).transpose()?;
    let continuation = position.as_ref();
    let query = PageQuery { select: &["RowKey"], top, continuation, ..PageQuery::default() };
    let page = store.query("Flights", &query)?;
    let keys = page.entities.iter().map(|flight| flight.row_key().to_owned()).collect();
    Ok((keys, page.next.map(|next| next.to_string())))
}
