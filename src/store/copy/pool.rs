//! The slices of a job. A worker without a slice halves the largest slice of another worker.

use crate::error::{Error, Result};
use crate::model::Entity;
use crate::store::pages::Side;
use crate::store::slice::{Key, Slice, order};
use crate::sync::{Condvar, Mutex};

/// The slices of a job that are not copied yet.
pub(super) struct Pool {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<Slice>,
    running: Vec<Running>,
    next_id: u64,
    failed: Option<Error>,
}

/// A slice that a worker copies.
struct Running {
    id: u64,
    /// Begins after the last entity that is copied.
    slice: Slice,
    /// The last entity that the worker has read.
    read: Option<Key>,
    /// Whether another worker searches a cut, or found none.
    is_fixed: bool,
}

/// The next step of a worker.
enum Next {
    Copy(u64, Slice),
    Halve(u64, Slice),
    End,
}

impl Pool {
    pub(super) fn new(slices: Vec<Slice>) -> Self {
        let state = State { waiting: slices, ..State::default() };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Returns a slice to copy, with its number. Halves a slice of another worker if necessary.
    /// `None` ends the worker.
    pub(super) fn take(&self, source: Side<'_>, rows_min: usize) -> Result<Option<(u64, Slice)>> {
        loop {
            match self.next() {
                Next::Copy(id, slice) => return Ok(Some((id, slice))),
                Next::End => return Ok(None),
                Next::Halve(id, rest) => {
                    self.halve(id, rest.cut_if_free(source, rows_min)?);
                }
            }
        }
    }

    fn next(&self) -> Next {
        let mut state = self.state.lock();
        loop {
            if state.failed.is_some() {
                return Next::End;
            }
            if let Some(slice) = state.waiting.pop() {
                let id = state.next_id;
                state.next_id += 1;
                let read = slice.after.clone();
                state.running.push(Running { id, slice: slice.clone(), read, is_fixed: false });
                return Next::Copy(id, slice);
            }
            if state.running.is_empty() {
                return Next::End;
            }
            let rest = |running: &Running| Slice {
                after: running.read.clone(),
                until: running.slice.until.clone(),
            };
            let free = state.running.iter_mut().filter(|running| !running.is_fixed);
            if let Some(running) = free.max_by_key(|running| rest(running).width()) {
                running.is_fixed = true;
                return Next::Halve(running.id, rest(running));
            }
            self.changed.wait(&mut state);
        }
    }

    /// Cuts a slice if its worker has not read beyond the cut.
    fn halve(&self, id: u64, cut: Option<Key>) {
        let mut state = self.state.lock();
        let (Some(running), Some(cut)) = (state.running.iter_mut().find(|r| r.id == id), cut)
        else {
            return;
        };
        running.is_fixed = false;
        let until = running.slice.until.replace(cut.clone());
        let is_passed = running.read.as_ref().is_some_and(|read| {
            running.slice.ends_before(&Entity::new(read.0.as_str(), read.1.as_str()))
        });
        if is_passed {
            running.slice.until = until;
            return;
        }
        state.waiting.push(Slice { after: Some(cut), until });
        self.changed.notify_all();
    }

    /// Records that the worker of a slice has read `page`, and removes the entities after the end
    /// of the slice, which may have been halved. Returns whether the slice ends with the page.
    pub(super) fn read(&self, id: u64, page: &mut Vec<Entity>) -> bool {
        let mut state = self.state.lock();
        let Some(running) = state.running.iter_mut().find(|running| running.id == id) else {
            page.clear();
            return true;
        };
        let len = page.iter().take_while(|entity| !running.slice.ends_before(entity)).count();
        let is_end = len < page.len();
        page.truncate(len);
        if let Some(last) = page.last() {
            running.read = Some((last.partition_key().to_owned(), last.row_key().to_owned()));
        }
        is_end
    }

    /// Records that everything up to `key` is copied.
    pub(super) fn advance(&self, id: u64, key: Key) {
        let mut state = self.state.lock();
        if let Some(running) = state.running.iter_mut().find(|running| running.id == id) {
            running.slice.after = Some(key);
        }
    }

    pub(super) fn finish(&self, id: u64) {
        let mut state = self.state.lock();
        state.running.retain(|running| running.id != id);
        self.changed.notify_all();
    }

    /// Ends all workers. The first error is the result of the job.
    pub(super) fn fail(&self, error: Error) {
        let mut state = self.state.lock();
        state.failed.get_or_insert(error);
        self.changed.notify_all();
    }

    pub(super) fn failure(&self) -> Option<Error> {
        self.state.lock().failed.clone()
    }

    /// Returns the ranges of the pages that are read, but not known to be copied.
    pub(super) fn begun(&self) -> Vec<Slice> {
        let state = self.state.lock();
        let begun = state.running.iter().filter(|running| running.read != running.slice.after);
        let range = |running: &Running| Slice {
            after: running.slice.after.clone(),
            until: running.read.clone(),
        };
        begun.map(range).collect()
    }

    /// Returns the slices that are not copied yet.
    pub(super) fn remaining(&self) -> Vec<Slice> {
        let state = self.state.lock();
        let running = state.running.iter().map(|running| running.slice.clone());
        running.chain(state.waiting.iter().cloned()).collect()
    }
}

/// Whether `page` is in key order after `last`, and has no key twice.
pub(super) fn is_ordered(last: Option<&Entity>, page: &[Entity]) -> bool {
    last.into_iter().chain(page).map(order).is_sorted_by(|a, b| a < b)
}
