//! Simulates the work of the device while its power is on: it checks the data of earlier boots,
//! writes, and compares reads with the model.
//!
//! Invariants
//! * after a power cut, the outcome of the interrupted commits is determined before anything is
//!   written;
//! * a read that fails because of a bad block is skipped; every successful read is compared.

use std::time::Duration;

use super::model::{self, SENSORS, SETTINGS, Setting, partition, row};
use super::{Device, SECOND, Session};
use crate::clock::ticks_in;
use crate::db::Db;
use crate::error::Result as EngineResult;
use crate::model::{ETag, Entity, Seq};
use crate::options::Durability;
use crate::query::KeyRange;
use crate::table::{EntityGroup, Table};

/// The maximum number of background steps per second.
const STEPS: u32 = 4;
/// The number of newest readings that are read after each opening.
const LAST: u64 = 20;
/// While a block is bad, a scan reads the readings of one sensor whose numbers are in a range of
/// this length.
const SPAN: u64 = 2_000;
/// The number of readings that are inserted together as one group.
const GROUP: u64 = 5;

const READINGS: &str = "Readings";
const SETTINGS_TABLE: &str = "Settings";

/// Handles of the tables for readings and settings.
struct Tables {
    readings: Table,
    settings: Table,
}

impl Tables {
    fn with(&self, durability: Durability) -> Self {
        let with = |table: &Table| table.clone().with_durability(durability);
        Self { readings: with(&self.readings), settings: with(&self.settings) }
    }
}

impl Device {
    /// Works until the power fails or the session ends.
    pub(super) fn live_on(&mut self, db: &Db, session: &mut Session) -> Result<(), String> {
        let Some(tables) = self.tables(db)? else { return Ok(()) };
        self.is_settled = self.settle(&tables)?;
        if self.is_settled {
            self.look(&tables)?;
            self.look_at_all_if_due(db, &tables)?;
        }
        while !self.power.is_gone() && session.ends >= SECOND {
            self.pass(session, SECOND);
            if self.is_settled {
                self.write(db, &tables, session.durability)?;
            }
            for _ in 0..STEPS {
                if self.power.is_gone() || !db.step(Duration::ZERO) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns the tables for readings and settings. The first boots create them. Returns `None` if
    /// a bad block or a power cut prevents that.
    fn tables(&mut self, db: &Db) -> Result<Option<Tables>, String> {
        if self.is_set_up {
            return Ok(Some(Tables {
                readings: db.table(READINGS).map_err(lost)?,
                settings: db.table(SETTINGS_TABLE).map_err(lost)?,
            }));
        }
        let ttl = self.life.ttl;
        let set_up = || -> EngineResult<Tables> {
            let readings = db.table_or_create(READINGS)?;
            if db.ttl(READINGS)? != ttl {
                db.set_ttl(READINGS, ttl)?;
            }
            Ok(Tables { readings, settings: db.table_or_create(SETTINGS_TABLE)? })
        };
        let tables = self.judge("set up", set_up())?;
        self.is_set_up = tables.is_some();
        Ok(tables)
    }

    /// Determines the outcome of the commits that the last power cut interrupted. Returns false if
    /// a bad block or another power cut prevents that.
    fn settle(&mut self, tables: &Tables) -> Result<bool, String> {
        let mut readings = Vec::new();
        for number in self.model.unsettled() {
            let Some(found) = self.find(tables, number)? else { return Ok(false) };
            readings.push(found);
        }
        let mut settings = [None; SETTINGS];
        for (index, setting) in settings.iter_mut().enumerate() {
            let Some(found) = self.find_setting(tables, index)? else { return Ok(false) };
            *setting = found;
        }
        let settled = self.model.settle(&readings, &settings)?;
        self.figures.doubted_done += settled.done;
        self.figures.doubted_undone += settled.undone;
        self.figures.weak_lost += settled.lost;
        self.note((settled.done << 32) | settled.lost);
        Ok(true)
    }

    /// Returns the tag of a reading, or `Some(None)` if the reading does not exist. Returns `None`
    /// if a bad block or a power cut prevents the read.
    fn find(&mut self, tables: &Tables, number: u64) -> Result<Option<Option<u64>>, String> {
        let Some(sensor) = self.model.sensor(number) else { return Ok(Some(None)) };
        let found = tables.readings.get(&partition(sensor), &row(number));
        let Some(found) = self.judge("get a reading", found)? else { return Ok(None) };
        let tag = found.map(|entity| checked(&entity).map(|(_, _, tag)| tag)).transpose()?;
        self.note(tag.unwrap_or_default());
        Ok(Some(tag))
    }

    fn find_setting(
        &mut self,
        tables: &Tables,
        index: usize,
    ) -> Result<Option<Option<Setting>>, String> {
        let found = tables.settings.get("settings", &format!("{index}"));
        let Some(found) = self.judge("get a setting", found)? else { return Ok(None) };
        let setting = |entity: Entity| -> Result<Setting, String> {
            let value: i64 =
                entity.get("Value").map_err(|error| format!("a setting: {error:?}"))?;
            Ok(Setting { tag: tag_of(&entity)?, value: value as u64 })
        };
        Ok(Some(found.map(setting).transpose()?))
    }

    /// Checks the newest readings and one random older reading. While a block is bad, also checks a
    /// range of readings.
    fn look(&mut self, tables: &Tables) -> Result<(), String> {
        let (first, next) = (self.model.first(), self.model.next());
        let older = first + self.rng.below((next - first).max(1));
        let last = next.saturating_sub(LAST).max(first)..next;
        for number in last.chain([older].into_iter().filter(|number| *number < next)) {
            let Some(found) = self.find(tables, number)? else { continue };
            self.model.check(number, found, self.now)?;
        }
        if self.is_bad() {
            self.look_at_span(tables, older..(older + SPAN).min(next))?;
        }
        Ok(())
    }

    fn look_at_span(
        &mut self,
        tables: &Tables,
        numbers: std::ops::Range<u64>,
    ) -> Result<(), String> {
        let sensor = self.rng.below(SENSORS);
        let rows = row(numbers.start)..row(numbers.end);
        let range = KeyRange::rows(partition(sensor), rows.start.as_str()..rows.end.as_str());
        match self.read(tables, range)? {
            Some(found) => self.model.check_span(numbers, Some(sensor), &found, self.now),
            None => Ok(()),
        }
    }

    /// Returns the numbers and tags of the readings in a range, in ascending order; `None` if a
    /// reading could not be read.
    fn read(
        &mut self,
        tables: &Tables,
        range: KeyRange,
    ) -> Result<Option<Vec<(u64, u64)>>, String> {
        let mut found = Vec::new();
        for entity in tables.readings.scan(range) {
            let Some(entity) = self.judge("read readings", entity)? else { return Ok(None) };
            let (number, sensor, tag) = checked(&entity)?;
            if self.model.sensor(number).is_some_and(|known| known != sensor) {
                return Err(format!("reading {number} is one of sensor {sensor}"));
            }
            found.push((number, tag));
        }
        found.sort_unstable();
        found.iter().for_each(|(_, tag)| self.note(*tag));
        Ok(Some(found))
    }

    fn look_at_all_if_due(&mut self, db: &Db, tables: &Tables) -> Result<(), String> {
        if self.now >= self.next_scan && self.scan(tables)? {
            let ttl = self.life.ttl.map_or(24 * 3_600 * SECOND, ticks_in);
            self.next_scan = self.now + ttl / 6;
        }
        if self.now >= self.next_verify && !self.is_bad() && !self.power.is_gone() {
            self.verify(db)?;
            self.next_verify = self.now + super::DAY.min(ticks_in(self.life.time) / 4);
        }
        Ok(())
    }

    /// Compares all readings with the model and verifies the database. Called at the end of the
    /// simulation, when the medium and the clock have no faults.
    pub(super) fn look_at_everything(&mut self, db: &Db) -> Result<(), String> {
        let tables = self.tables(db)?.ok_or("no tables at the end")?;
        if !self.scan(&tables)? {
            return Err("not everything can be read on sound media".to_owned());
        }
        self.verify(db)
    }

    /// Compares all readings with the model. Returns false if a reading could not be read.
    fn scan(&mut self, tables: &Tables) -> Result<bool, String> {
        let Some(found) = self.read(tables, KeyRange::all())? else { return Ok(false) };
        self.model.check_span(0..self.model.next(), None, &found, self.now)?;
        let late = self.model.oldest(self.now).unwrap_or_default();
        let late = late.saturating_sub(self.life.ttl.map_or(u64::MAX, ticks_in)) / SECOND;
        let is_ahead_allowed = self.is_ahead_allowed();
        let figures = &mut self.figures;
        let worst = match is_ahead_allowed {
            true => &mut figures.late_ahead_seconds,
            false => &mut figures.late_seconds,
        };
        *worst = late.max(*worst);
        figures.late_at_end_seconds = late;
        figures.scans += 1;
        figures.rows_most = figures.rows_most.max(found.len() as u64);
        figures.bytes_most = figures.bytes_most.max(self.fs.used());
        figures.files_most = figures.files_most.max(self.fs.paths().len() as u64);
        Ok(true)
    }

    fn verify(&mut self, db: &Db) -> Result<(), String> {
        let report = db.verify();
        let report = self.judge("verify", report)?;
        // After a power cut the report is meaningless.
        let Some(report) = report.filter(|_| !self.power.is_gone()) else { return Ok(()) };
        self.figures.verified += 1;
        match report.problems.first() {
            Some(problem) => Err(format!("verify: {problem}")),
            None => Ok(()),
        }
    }

    /// Executes the writes of one simulated second.
    fn write(&mut self, db: &Db, tables: &Tables, default: Durability) -> Result<(), String> {
        self.seconds += 1;
        let is_sync = default == Durability::Sync || self.rng.chance(1, 8);
        let durability = if is_sync { Durability::Sync } else { default };
        let tables = tables.with(durability);
        self.write_readings(&tables, 1, is_sync)?;
        if self.seconds.is_multiple_of(10) && !self.power.is_gone() {
            self.write_setting(&tables, is_sync)?;
        }
        if self.seconds.is_multiple_of(30) && !self.power.is_gone() {
            self.write_readings(&tables, GROUP, is_sync)?;
        }
        if default != Durability::Sync && !self.power.is_gone() && self.rng.chance(1, 16) {
            let synced = db.sync();
            if self.judge("sync", synced)?.is_some() {
                self.model.all_durable();
            }
        }
        Ok(())
    }

    fn write_readings(&mut self, tables: &Tables, count: u64, is_sync: bool) -> Result<(), String> {
        let sensor = self.rng.below(SENSORS);
        let numbers = self.model.begin_readings(count, sensor, self.now);
        self.figures.readings += count;
        let tag = match count {
            1 => tables.readings.insert(model::reading(numbers.start, sensor)),
            _ => insert_group(&tables.readings, numbers, sensor),
        };
        self.written("insert", tag, is_sync)
    }

    fn write_setting(&mut self, tables: &Tables, is_sync: bool) -> Result<(), String> {
        let index = self.rng.index(SETTINGS);
        let before = self.model.setting(index);
        let value = self.model.begin_setting(index);
        let entity = Entity::new("settings", format!("{index}")).with("Value", value as i64);
        let tag = match before {
            Some(before) => tables.settings.replace_if(entity, ETag::from(Seq(before.tag))),
            None => tables.settings.insert(entity),
        };
        self.written("replace a setting", tag, is_sync)
    }

    /// Records a commit as acknowledged, refused, or in doubt because the power failed.
    fn written(
        &mut self,
        doing: &str,
        tag: EngineResult<ETag>,
        is_sync: bool,
    ) -> Result<(), String> {
        let Some(tag) = self.judge(doing, tag)? else {
            if !self.power.is_gone() {
                self.model.refuse();
            }
            return Ok(());
        };
        let tag = tag.seq().unwrap_or_default().ticks();
        self.figures.commits += 1;
        self.note(tag);
        self.model.acknowledge(tag, is_sync)
    }
}

fn insert_group(table: &Table, numbers: std::ops::Range<u64>, sensor: u64) -> EngineResult<ETag> {
    let mut group = EntityGroup::new(partition(sensor));
    for number in numbers {
        group.insert(model::reading(number, sensor))?;
    }
    let tags = table.commit(group)?;
    Ok(tags.into_iter().flatten().next_back().expect("an insert has a tag"))
}

/// Checks that a reading has its original contents. Returns its number, sensor and tag.
fn checked(entity: &Entity) -> Result<(u64, u64, u64), String> {
    let strange = || format!("nobody wrote {entity:?}");
    let number = entity.row_key().parse().map_err(|_| strange())?;
    let sensor = entity.partition_key().strip_prefix("sensor-").and_then(|text| text.parse().ok());
    let sensor = sensor.ok_or_else(strange)?;
    let written = model::reading(number, sensor);
    if !entity.properties().eq(written.properties()) || entity.row_key() != written.row_key() {
        return Err(strange());
    }
    Ok((number, sensor, tag_of(entity)?))
}

fn tag_of(entity: &Entity) -> Result<u64, String> {
    let tag = entity.etag().ok_or("a row without a tag")?;
    Ok(tag.seq().unwrap_or_default().ticks())
}

fn lost(error: crate::error::Error) -> String {
    format!("a table is lost: {}", error.chain())
}
