//! Runs work on several threads: requests of a load or a copy, and the slices of a comparison.

use crate::error::Result;
use crate::sync::Mutex;

/// Calls `work` with each item, on up to `workers` threads. Returns the results in the order of the
/// items.
///
/// # Errors
/// The first error. The items that no thread has begun are then left out.
pub(crate) fn run<T: Send, R: Send>(
    items: Vec<T>,
    workers: usize,
    work: impl Fn(T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let workers = workers.min(items.len());
    let waiting = Mutex::new(items.into_iter().enumerate());
    let done = Mutex::new((Vec::new(), None));
    let work = || {
        while done.lock().1.is_none() {
            let next = waiting.lock().next();
            let Some((index, item)) = next else { return };
            match work(item) {
                Ok(result) => done.lock().0.push((index, result)),
                Err(error) => drop(done.lock().1.get_or_insert(error)),
            }
        }
    };
    on_threads(workers, work);
    let (mut results, failed) = done.into_inner();
    if let Some(error) = failed {
        return Err(error);
    }
    results.sort_unstable_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

/// Calls `work` on this thread, and on others up to `workers` in all. If one cannot be started,
/// there are fewer calls.
pub(crate) fn on_threads(workers: usize, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 1..workers {
            let thread = std::thread::Builder::new().name("rowstone-work".to_owned());
            drop(thread.spawn_scoped(scope, &work));
        }
        work();
    });
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::error::{Error, ErrorKind};

    #[test]
    fn results_have_the_order_of_the_items() {
        for workers in [1, 4, 1_000] {
            let doubled = run((0..500).collect(), workers, |n| Ok(2 * n)).unwrap();
            assert_eq!(doubled, (0..1_000).step_by(2).collect::<Vec<_>>());
        }
        assert!(run(Vec::<u8>::new(), 4, Ok).unwrap().is_empty());
    }

    #[test]
    fn an_error_ends_the_work() {
        let begun = AtomicU32::new(0);
        let failed = run((0..1_000).collect(), 1, |n| {
            begun.fetch_add(1, Ordering::Relaxed);
            if n == 3 { Err(Error::new(ErrorKind::Io, "three")) } else { Ok(()) }
        });
        assert_eq!(failed.unwrap_err().message(), "three");
        assert_eq!(begun.into_inner(), 4);
    }
}
