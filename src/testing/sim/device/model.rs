//! Holds the expected contents of the device's database: readings by number, settings by index, and
//! the commits whose outcome is unknown until the next opening.
//!
//! Invariants
//! * every acknowledged tag (the ETag of a commit, in ticks) is larger than all tags acknowledged
//!   or found before, including the tags of lost commits;
//! * commits survive as a prefix of their order, each as a whole;
//! * readings expire in order: if a reading is found, all later readings that were written are
//!   found too.

use std::collections::VecDeque;
use std::ops::Range;

use crate::clock::TICKS_PER_SECOND;
use crate::model::Entity;

/// The number of sensors, each of which has a partition.
pub(super) const SENSORS: u64 = 10;
/// The number of rows that are updated repeatedly.
pub(super) const SETTINGS: usize = 8;
/// The time by which a reading may expire too early, in ticks. Even right clocks differ by some
/// seconds, and the last time before a power cut may not have been recorded.
const SLACK: u64 = 20 * TICKS_PER_SECOND;

/// The expected data.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// How long a reading must be kept, in ticks; `None` keeps it forever.
    ttl: Option<u64>,
    readings: VecDeque<Reading>,
    /// The number of the first reading in `readings`; older ones have expired and must not
    /// reappear.
    first: u64,
    settings: [Option<Setting>; SETTINGS],
    /// Commits since the last durable one, in order. Their outcome is unknown.
    unsettled: Vec<Commit>,
    /// The largest tag that was acknowledged or found.
    tag_max: u64,
    /// The number of values that were written to settings.
    values: u64,
    /// The number of readings that were durable and have expired.
    pub(super) expired: u64,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    /// The true time of the insert, in ticks since the first boot.
    at: u64,
    tag: u64,
    sensor: u8,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Whether the reading exists is unknown until the next opening.
    Unsettled,
    Durable,
    /// The commit was refused or lost.
    Never,
}

/// The state of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) tag: u64,
    pub(super) value: u64,
}

#[derive(Debug)]
struct Commit {
    /// The tag of the commit; `None` while the outcome is unknown.
    tag: Option<u64>,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Readings(Range<u64>),
    Setting { index: usize, value: u64 },
}

/// The outcomes of commits that an opening determined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    /// The number of unanswered commits that took effect (`done`), and of those that did not
    /// (`undone`).
    pub(super) done: u64,
    pub(super) undone: u64,
    /// The number of acknowledged commits that were lost. Only commits without `Durability::Sync`
    /// may be lost.
    pub(super) lost: u64,
}

impl Model {
    pub(super) fn new(ttl: Option<u64>) -> Self {
        Self { ttl, ..Self::default() }
    }

    /// Returns the number of the next reading.
    pub(super) fn next(&self) -> u64 {
        self.first + self.readings.len() as u64
    }

    /// Returns the number of the first reading that may exist.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Returns the sensor of a known reading.
    pub(super) fn sensor(&self, number: u64) -> Option<u64> {
        Some(u64::from(self.reading(number)?.sensor))
    }

    fn reading(&self, number: u64) -> Option<&Reading> {
        self.readings.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Records readings of one sensor that a commit is about to write.
    pub(super) fn begin_readings(&mut self, count: u64, sensor: u64, at: u64) -> Range<u64> {
        let numbers = self.next()..self.next() + count;
        let reading = Reading { at, tag: 0, sensor: sensor as u8, fate: Fate::Unsettled };
        self.readings.extend((0..count).map(|_| reading));
        self.unsettled.push(Commit { tag: None, what: What::Readings(numbers.clone()) });
        numbers
    }

    /// Records that a commit is about to set a setting, and returns the value.
    pub(super) fn begin_setting(&mut self, index: usize) -> u64 {
        self.values += 1;
        let what = What::Setting { index, value: self.values };
        self.unsettled.push(Commit { tag: None, what });
        self.values
    }

    /// Returns the current state of a setting, including acknowledged commits that are not durable
    /// yet.
    pub(super) fn setting(&self, index: usize) -> Option<Setting> {
        let of_this = |commit: &Commit| match (&commit.what, commit.tag) {
            (What::Setting { index: at, value }, Some(tag)) if *at == index => {
                Some(Setting { tag, value: *value })
            }
            _ => None,
        };
        self.unsettled.iter().rev().find_map(of_this).or(self.settings[index])
    }

    /// Records that the last commit was acknowledged.
    pub(super) fn acknowledge(&mut self, tag: u64, durable: bool) -> Result<(), String> {
        if tag <= self.tag_max {
            return Err(format!("tag {tag} was given out behind {}", self.tag_max));
        }
        self.tag_max = tag;
        if let Some(commit) = self.unsettled.last_mut() {
            commit.tag = Some(tag);
        }
        if durable {
            self.all_durable();
        }
        Ok(())
    }

    /// Records that the last commit was refused before it had any effect.
    pub(super) fn refuse(&mut self) {
        if let Some(commit) = self.unsettled.pop() {
            self.decide(&commit.what, None);
        }
    }

    /// Records that all acknowledged commits will survive.
    pub(super) fn all_durable(&mut self) {
        for Commit { tag, what } in std::mem::take(&mut self.unsettled) {
            self.decide(&what, tag);
        }
    }

    /// Records that a commit took effect with this tag, or for `None` that it did not take effect.
    fn decide(&mut self, what: &What, tag: Option<u64>) {
        match (what, tag) {
            (What::Readings(numbers), _) => {
                let fate = if tag.is_some() { Fate::Durable } else { Fate::Never };
                let front = numbers.start.saturating_sub(self.first) as usize;
                let behind = numbers.end.saturating_sub(self.first) as usize;
                for reading in self.readings.range_mut(front..behind) {
                    (reading.tag, reading.fate) = (tag.unwrap_or_default(), fate);
                }
            }
            (What::Setting { index, value }, Some(tag)) => {
                self.settings[*index] = Some(Setting { tag, value: *value });
            }
            (What::Setting { .. }, None) => {}
        }
    }

    /// Returns the numbers of the readings whose outcome the next opening decides.
    pub(super) fn unsettled(&self) -> Vec<u64> {
        let numbers = self.unsettled.iter().filter_map(|commit| match &commit.what {
            What::Readings(numbers) => Some(numbers.clone()),
            What::Setting { .. } => None,
        });
        numbers.flatten().collect()
    }

    /// Determines the outcomes of the unsettled commits from the data that an opening found: the
    /// tags of the unsettled readings, in order, and all settings.
    pub(super) fn settle(
        &mut self,
        readings: &[Option<u64>],
        settings: &[Option<Setting>; SETTINGS],
    ) -> Result<Settled, String> {
        let kept = self.kept(readings, settings)?;
        let mut settled = Settled::default();
        let mut readings = readings.iter();
        for (at, Commit { tag, what }) in
            std::mem::take(&mut self.unsettled).into_iter().enumerate()
        {
            let found = match &what {
                What::Readings(numbers) => {
                    readings.by_ref().take((numbers.end - numbers.start) as usize).fold(None, one)
                }
                // If the tag of the commit is known, it is not compared with the tag found, because
                // a later commit may have overwritten the setting.
                What::Setting { index, .. } => {
                    settings[*index].map(|found| tag.unwrap_or(found.tag))
                }
            };
            let found = found.filter(|_| at < kept);
            match (found, tag) {
                (Some(found), Some(tag)) if found != tag => {
                    return Err(format!("what was written with tag {tag} is found with {found}"));
                }
                (Some(found), None) if found <= self.tag_max => {
                    return Err(format!("tag {found} was given out behind {}", self.tag_max));
                }
                (Some(found), None) => {
                    self.tag_max = found;
                    settled.done += 1;
                }
                (None, None) => settled.undone += 1,
                (None, Some(_)) => settled.lost += 1,
                (Some(_), Some(_)) => {}
            }
            self.decide(&what, found);
        }
        for (index, (found, due)) in settings.iter().zip(&self.settings).enumerate() {
            if found != due {
                return Err(format!("setting {index} is {found:?} and was left as {due:?}"));
            }
        }
        Ok(settled)
    }

    /// Returns the number of unsettled commits that survived; they must be the first ones.
    fn kept(
        &self,
        readings: &[Option<u64>],
        settings: &[Option<Setting>; SETTINGS],
    ) -> Result<usize, String> {
        let (mut least, mut most) = (0, self.unsettled.len());
        let mut rest = readings;
        for (at, commit) in self.unsettled.iter().enumerate() {
            let is_there = match &commit.what {
                What::Readings(numbers) => {
                    let (these, others) = rest.split_at((numbers.end - numbers.start) as usize);
                    rest = others;
                    let there = these.iter().flatten().count();
                    if there % these.len() != 0 {
                        let count = these.len();
                        return Err(format!("of {count} readings of one group {there} are there"));
                    }
                    there > 0
                }
                What::Setting { index, value } => {
                    settings[*index].is_some_and(|found| found.value >= *value)
                }
            };
            match is_there {
                true => least = at + 1,
                false => most = most.min(at),
            }
        }
        match least <= most {
            true => Ok(most),
            false => Err(format!(
                "commit {least} after the last durable one is there, {} is not",
                most + 1
            )),
        }
    }

    /// Checks the result of reading `number` at time `now`: the tag that was found, if any.
    pub(super) fn check(
        &mut self,
        number: u64,
        found: Option<u64>,
        now: u64,
    ) -> Result<(), String> {
        let Some(reading) = self.reading(number).copied() else {
            return match found {
                Some(_) => Err(format!("reading {number} was gone and is there again")),
                None => Ok(()),
            };
        };
        match (reading.fate, found) {
            (Fate::Durable, Some(tag)) if tag == reading.tag => Ok(()),
            (Fate::Durable, Some(tag)) => {
                Err(format!("reading {number} has tag {tag}, and was written with {}", reading.tag))
            }
            (Fate::Durable, None) => {
                self.check_age(number, reading, now)?;
                self.forget_before(number + 1);
                Ok(())
            }
            (Fate::Never, Some(_)) => Err(format!("reading {number} never was, and is there")),
            (Fate::Never, None) | (Fate::Unsettled, _) => Ok(()),
        }
    }

    /// Checks that a missing durable reading has expired.
    fn check_age(&self, number: u64, reading: Reading, now: u64) -> Result<(), String> {
        let age = now.saturating_sub(reading.at);
        if self.ttl.is_some_and(|ttl| age.saturating_add(SLACK) >= ttl) {
            return Ok(());
        }
        let (ttl, age) = (self.ttl.map_or("for ever".to_owned(), seconds), seconds(age));
        Err(format!("reading {number} is gone after {age}, and was to stay {ttl}"))
    }

    /// Forgets readings before `first`, which are older than an expired reading.
    fn forget_before(&mut self, first: u64) {
        while self.first < first {
            let Some(reading) = self.readings.pop_front() else { break };
            self.expired += u64::from(reading.fate == Fate::Durable);
            self.first += 1;
        }
    }

    /// Checks the readings `numbers` of one sensor, or of all sensors, against `found`: the numbers
    /// and tags that were read at time `now`, in ascending order.
    pub(super) fn check_span(
        &mut self,
        numbers: Range<u64>,
        sensor: Option<u64>,
        found: &[(u64, u64)],
        now: u64,
    ) -> Result<(), String> {
        let mut rest = found.iter().peekable();
        for number in numbers.start.max(self.first)..numbers.end {
            let is_other = |known| sensor.is_some_and(|sensor| Some(sensor) != known);
            if is_other(self.sensor(number)) {
                continue;
            }
            while rest.next_if(|(before, _)| *before < self.first).is_some() {}
            let found = rest.next_if(|(found, _)| *found == number).map(|(_, tag)| *tag);
            self.check(number, found, now)?;
        }
        match found.iter().find(|(number, _)| *number < self.first).or(rest.next()) {
            Some((number, _)) => Err(format!("reading {number} is there, and should not be")),
            None => Ok(()),
        }
    }

    /// Returns the age in ticks of the oldest durable reading that may still exist.
    pub(super) fn oldest(&self, now: u64) -> Option<u64> {
        let there = self.readings.iter().find(|reading| reading.fate == Fate::Durable);
        there.map(|reading| now.saturating_sub(reading.at))
    }
}

/// Combines the tags found for the rows of a group into the tag of the group: the first one that is
/// not `None`.
fn one(before: Option<u64>, tag: &Option<u64>) -> Option<u64> {
    before.or(*tag)
}

fn seconds(ticks: u64) -> String {
    format!("{:.1} s", ticks as f64 / TICKS_PER_SECOND as f64)
}

/// Returns the row of a reading, which is determined by the reading's number.
pub(super) fn reading(number: u64, sensor: u64) -> Entity {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Entity::new(partition(sensor), row(number))
        .with("Celsius", (mixed >> 48) as f64 / 1_000.0)
        .with("Number", number as i64)
        .with("Raw", format!("{mixed:016x}"))
}

pub(super) fn partition(sensor: u64) -> String {
    format!("sensor-{sensor}")
}

pub(super) fn row(number: u64) -> String {
    format!("{number:010}")
}
