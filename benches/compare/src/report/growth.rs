//! Rows about growth: how much longer an operation takes than at the smallest size, and how much of that the caches of
//! the processor explain.
//!
//! Invariants
//! * a row is compared with its own smallest size that was measured; only its largest one meets or misses the target;
//! * what caches explain is measured: accesses to memory that depend on each other, over as many bytes as each size has.
//!
//! Not here: how accesses are measured (`limits.rs`).

use super::summary::{Entry, count};
use crate::limits::Limits;
use crate::rows::Session;

/// So many times as long may an operation take at the largest size, beyond what caches explain.
const TIMES_MAX: f64 = 1.5;

/// A size beside the smallest one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// Entities of the smallest.
    pub smallest: u64,
    /// As long as there does an operation take.
    pub slowdown: f64,
    pub caches: Caches,
    /// The target is about this one.
    pub is_largest: bool,
}

/// What they have to do with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Caches {
    /// A load goes through memory from one end to the other.
    NoMatter,
    /// Dependent accesses over the bytes of the size take so many times as long.
    Explain(f64),
    NotMeasured,
}

/// Says of rows about growth how they compare with their smallest size.
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

/// Sizes of a row ascend, and each was measured.
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
    /// What the target is about, if enough is known.
    fn beyond_caches(&self) -> Option<f64> {
        match self.caches {
            Caches::NoMatter => Some(self.slowdown),
            Caches::Explain(times) => Some(self.slowdown / times),
            Caches::NotMeasured => None,
        }
    }

    /// Whether the target is met, where it is about this size and enough is known.
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
