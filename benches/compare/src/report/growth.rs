//! Evaluates the growth rows, which repeat an operation at several database sizes. It computes the
//! slowdown compared with the smallest size, and the part of it that processor caches explain.
//!
//! Invariants
//! * a row is compared with its own smallest measured size; only the largest size has a target;
//! * the effect of caches is measured: dependent memory accesses over the raw bytes of each size.
//!
//! Not here: measuring the accesses (`limits.rs`).

use super::summary::{Entry, count};
use crate::limits::Limits;
use crate::rows::Session;

/// The target for the largest size: the slowdown that caches do not explain is at most this factor.
const TIMES_MAX: f64 = 1.5;

/// The comparison of a size with the smallest size of the same row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// The number of entities at the smallest size.
    pub smallest: u64,
    /// The time of an operation at this size, divided by its time at the smallest size.
    pub slowdown: f64,
    pub caches: Caches,
    /// Whether this size is the largest, the only one with a target.
    pub is_largest: bool,
}

/// The effect of processor caches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Caches {
    /// No effect, because a load accesses memory sequentially.
    NoMatter,
    /// The factor by which dependent memory accesses are slower at this size than at the smallest
    /// size. Each size has a memory region as large as its raw bytes.
    Explain(f64),
    NotMeasured,
}

/// Sets the `growth` of growth rows: compares each size with the smallest size of the same row.
pub fn compare_sizes(entries: &mut [Entry], limits: Option<&Limits>) {
    let is_growth = |entry: &&mut Entry| entry.row.session == Session::Growth;
    let mut rows: Vec<Vec<&mut Entry>> = Vec::new();
    for entry in entries.iter_mut().filter(is_growth).filter(|entry| entry.ours.is_some()) {
        match rows.last_mut() {
            Some(row) if row[0].row.name == entry.row.name => row.push(entry),
            _ => rows.push(vec![entry]),
        }
    }
    for row in &mut rows {
        let Some((smallest, larger)) = row.split_first_mut() else { continue };
        let count = larger.len();
        for (place, entry) in (1..).zip(larger) {
            entry.growth = growth(smallest, entry, place == count, limits);
        }
    }
}

/// Compares an entry with the smallest size of its row; `None` if either was not measured.
fn growth(
    smallest: &Entry,
    entry: &Entry,
    is_largest: bool,
    limits: Option<&Limits>,
) -> Option<Growth> {
    let slowdown = smallest.ours.as_ref()?.value / entry.ours.as_ref()?.value;
    let accesses = |entry: &Entry| limits.and_then(|limits| limits.accesses_over(entry.entities));
    let caches = match (is_load(entry), accesses(smallest), accesses(entry)) {
        (true, ..) => Caches::NoMatter,
        (false, Some(near), Some(far)) => Caches::Explain(near / far),
        _ => Caches::NotMeasured,
    };
    Some(Growth { smallest: smallest.entities, slowdown, caches, is_largest })
}

fn is_load(entry: &Entry) -> bool {
    entry.row.name == "growth-load"
}

impl Growth {
    /// Returns the slowdown beyond the effect of caches, if it is known. The target limits this
    /// value.
    fn beyond_caches(&self) -> Option<f64> {
        match self.caches {
            Caches::NoMatter => Some(self.slowdown),
            Caches::Explain(times) => Some(self.slowdown / times),
            Caches::NotMeasured => None,
        }
    }

    /// Returns whether the target is met, or `None` if this size has no target or the effect of
    /// caches is unknown.
    pub fn is_met(&self) -> Option<bool> {
        self.beyond_caches().filter(|_| self.is_largest).map(|times| times <= TIMES_MAX)
    }

    pub fn text(&self) -> String {
        let slowdown = self.slowdown;
        let mut text = format!(
            "rowstone: an operation takes {slowdown:.2} times as long as at the smallest size, {}",
            count(self.smallest as f64),
        );
        if let (Caches::Explain(times), Some(beyond)) = (self.caches, self.beyond_caches()) {
            text += &format!(
                "; dependent accesses over as many bytes take {times:.2} times as long, so \
                 {beyond:.2} beyond caches"
            );
        }
        match self.is_met() {
            Some(true) => text += &format!("; target at most {TIMES_MAX}: met"),
            Some(false) => text += &format!("; target at most {TIMES_MAX}: MISSED"),
            None if self.is_largest => {
                text += &format!(
                    "; target at most {TIMES_MAX} beyond caches: NOT checked, accesses over as \
                     many bytes were not measured"
                );
            }
            None => {}
        }
        text
    }
}
