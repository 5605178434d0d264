//! Compares tables of two stores entity by entity.
//!
//! Both sides are read in key order and merge-joined, slice by slice. Several slices are compared
//! at once, and another thread reads the next page of each side. Memory is bounded by the number
//! of slices. Timestamps and ETags are ignored.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicU64, Ordering as Atomic};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, Scope};
use std::vec;

use super::pages::{PAGE_MAX, Pages, Side};
use super::slice::{Slice, order};
use super::workers;
use crate::error::{Error, ErrorKind, Result};
use crate::model::Entity;

/// A comparison of two tables.
pub(crate) struct Comparison<'s> {
    pub(crate) a: Side<'s>,
    pub(crate) b: Side<'s>,
    /// Restricts both sides.
    pub(crate) filter: &'s str,
    pub(crate) workers: usize,
}

/// Two entities with the same key, one of each side. `None` if a side has no such entity.
pub(crate) type Pair = (Option<Entity>, Option<Entity>);

/// The differences that wait to be reported.
const QUEUED: usize = 16;

/// The entities of one side of a slice, which another thread reads ahead.
struct Stream {
    pages: Receiver<Result<Vec<Entity>>>,
    page: vec::IntoIter<Entity>,
    last: Vec<u8>,
}

impl Comparison<'_> {
    /// Calls `tell` with each difference, in key order within a slice, until it returns false.
    /// Returns the number of distinct keys that were compared.
    ///
    /// # Errors
    /// Errors of reading; `Unsupported` if a store returns entities out of key order.
    pub(crate) fn run(
        &self,
        on_progress: &(dyn Fn(u64) + Sync),
        mut tell: impl FnMut(Pair) -> bool,
    ) -> Result<u64> {
        let slices = self.slices()?;
        let compared = AtomicU64::new(0);
        let (sender, receiver) = sync_channel(QUEUED);
        let told = std::thread::scope(|scope| {
            let count = |keys| on_progress(compared.fetch_add(keys, Atomic::Relaxed) + keys);
            let work = move || {
                let work = |slice| self.slice(&slice, &sender, &count);
                if let Err(error) = workers::run(slices, self.workers, work) {
                    // Not received if the receiver has ended the comparison.
                    drop(sender.send(Err(error)));
                }
            };
            let thread = Builder::new().name("rowstone-compare".to_owned());
            thread.spawn_scoped(scope, work).map_err(no_thread)?;
            // Dropping the receiver, at the latest when this closure returns, ends the workers.
            for pair in receiver {
                if !tell(pair?) {
                    break;
                }
            }
            Ok(())
        });
        told.map(|()| compared.into_inner())
    }

    /// Divides the key space by the keys of the first side.
    fn slices(&self) -> Result<Vec<Slice>> {
        let (mut slices, mut whole) = (vec![Slice::default()], Vec::new());
        while slices.len() + whole.len() < self.workers {
            let widest = slices.iter().enumerate().max_by_key(|(_, slice)| slice.width());
            let Some((index, _)) = widest else { break };
            let slice = slices.swap_remove(index);
            match slice.cut_if_free(self.a, PAGE_MAX)? {
                Some(cut) => {
                    slices.push(Slice { after: slice.after, until: Some(cut.clone()) });
                    slices.push(Slice { after: Some(cut), until: slice.until });
                }
                None => whole.push(slice),
            }
        }
        whole.append(&mut slices);
        Ok(whole)
    }

    /// Compares a slice.
    ///
    /// # Errors
    /// Errors of reading, and any error if a difference is not received.
    fn slice(
        &self,
        slice: &Slice,
        sender: &SyncSender<Result<Pair>>,
        count: &(dyn Fn(u64) + Sync),
    ) -> Result<()> {
        std::thread::scope(|scope| {
            let [of_a, of_b] =
                [self.a, self.b].map(|side| side.pages(slice.filters(self.filter), &[], PAGE_MAX));
            let (mut a, mut b) = (Stream::start(scope, of_a)?, Stream::start(scope, of_b)?);
            let (mut one, mut other) = (a.next()?, b.next()?);
            let mut keys = 0;
            loop {
                let order = match (&one, &other) {
                    (None, None) => break,
                    (Some(_), None) => Ordering::Less,
                    (None, Some(_)) => Ordering::Greater,
                    (Some((one, _)), Some((other, _))) => one.cmp(other),
                };
                let of_a = if order.is_le() { one.take() } else { None };
                let of_b = if order.is_ge() { other.take() } else { None };
                if order.is_le() {
                    one = a.next()?;
                }
                if order.is_ge() {
                    other = b.next()?;
                }
                keys += 1;
                if keys == PAGE_MAX as u64 {
                    count(std::mem::take(&mut keys));
                }
                let pair = (of_a.map(|(_, entity)| entity), of_b.map(|(_, entity)| entity));
                let is_equal = matches!(&pair, (Some(a), Some(b)) if a.has_properties_of(b));
                if !is_equal {
                    let ended = |_| Error::new(ErrorKind::Io, "the comparison has ended");
                    sender.send(Ok(pair)).map_err(ended)?;
                }
            }
            count(keys);
            Ok(())
        })
    }
}

impl Stream {
    /// Starts the thread that reads ahead. It ends when the stream is dropped.
    fn start<'scope>(scope: &'scope Scope<'scope, '_>, mut pages: Pages<'scope>) -> Result<Self> {
        let (sender, receiver) = sync_channel(1);
        let work = move || {
            while let Some(page) = pages.next().transpose() {
                let is_end = page.is_err();
                if sender.send(page).is_err() || is_end {
                    return;
                }
            }
        };
        let thread = Builder::new().name("rowstone-pages".to_owned());
        thread.spawn_scoped(scope, work).map_err(no_thread)?;
        Ok(Self { pages: receiver, page: Vec::new().into_iter(), last: Vec::new() })
    }

    /// Returns the next entity with the encoding of its key.
    fn next(&mut self) -> Result<Option<(Vec<u8>, Entity)>> {
        loop {
            if let Some(entity) = self.page.next() {
                let key = order(&entity);
                if key <= self.last {
                    let message = "a store returns entities out of key order: compare cannot";
                    return Err(Error::new(ErrorKind::Unsupported, message));
                }
                self.last.clone_from(&key);
                return Ok(Some((key, entity)));
            }
            match self.pages.recv() {
                Ok(page) => self.page = page?.into_iter(),
                Err(_) => return Ok(None),
            }
        }
    }
}

fn no_thread(error: std::io::Error) -> Error {
    Error::io("start a thread", error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Db;

    /// Compares two tables of 3,000 entities, which differ at three keys.
    #[test]
    fn differences_of_all_slices_are_found() {
        let [a, b] = [(); 2].map(|()| Db::open_in_memory().unwrap());
        for db in [&a, &b] {
            let table = db.create_table("Tab").unwrap();
            let mut loader = table.loader();
            for i in 0..3_000u32 {
                let (pk, rk) = (format!("p{}", i / 500), format!("{i:05}"));
                loader.push(u64::from(i), Entity::new(pk, rk).with("N", i as i32)).unwrap();
            }
            loader.finish().unwrap();
        }
        let (at_a, at_b) = (a.table("Tab").unwrap(), b.table("Tab").unwrap());
        at_a.insert(Entity::new("a", "first")).unwrap();
        at_b.insert(Entity::new("z", "last")).unwrap();
        at_b.upsert(Entity::new("p3", "01500").with("N", 1_500i64)).unwrap();
        for (workers, filter, expected, keys) in [
            (1, "", vec!["+a", "p3", "-z"], 3_002),
            (4, "", vec!["+a", "p3", "-z"], 3_002),
            (4, "PartitionKey lt 'p1'", vec!["+a"], 501),
        ] {
            let comparison = Comparison {
                a: Side { store: &a, table: "Tab" },
                b: Side { store: &b, table: "Tab" },
                filter,
                workers,
            };
            assert_eq!(comparison.slices().unwrap().len(), workers);
            let mut told = Vec::new();
            let compared = comparison.run(&|_| (), |(a, b)| {
                let sign = if a.is_none() {
                    "-"
                } else if b.is_none() {
                    "+"
                } else {
                    ""
                };
                told.push(format!("{sign}{}", a.or(b).unwrap().partition_key()));
                true
            });
            told.sort_by_key(|text| text.trim_start_matches(['+', '-']).to_owned());
            assert_eq!(
                (told, compared.unwrap()),
                (expected.iter().map(|s| s.to_string()).collect(), keys)
            );
            // A receiver that ends early ends the comparison.
            assert!(comparison.run(&|_| (), |_| false).is_ok());
        }
    }
}
