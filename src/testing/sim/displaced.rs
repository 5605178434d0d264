//! Displaces an open database, on a copy of the disk: moves its directory, replaces the directory
//! by another database, or removes the lock file so that a second process opens the database.
//!
//! Invariants
//! * from one second after the displacement on, the first process acknowledges nothing, and changes
//!   no file of the second database or process;
//! * the first database still has every row that was acknowledged before the displacement.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, ManualClock};
use crate::db::Db;
use crate::error::Result as EngineResult;
use crate::fs::{Fs, MemFs};
use crate::model::Entity;
use crate::options::{Durability, Options};
use crate::rng::Rng;

use super::counts::Event;
use super::engine::PATH;
use super::runner::{Outcome, Runner, line};

const MOVED: &str = "moved";
const LOCK: &str = "LOCK";
const TABLE: &str = "Displaced";

/// The ways to displace a database.
const WAYS: [&str; 3] = ["moved", "replaced", "unlocked"];

impl Runner {
    pub(super) fn displace(&mut self, seed: u64) -> Outcome {
        if self.is_troubled() {
            return line("not now");
        }
        let image = self.engine.fs.kill_image();
        let way = *Rng::from_seed(seed).pick(&WAYS);
        let clock = Arc::new(ManualClock::new(self.engine.clock.now()));
        let options = self.engine.unthrottled_options_on(&image);
        let options = options.clock(clock.clone()).durability(Durability::Sync);
        let done = displace(&image, &options, way, || clock.advance(Duration::from_secs(1)));
        let problem = done.map_err(|error| format!("displaced: {way}: {error:?}"))?;
        self.counts.note(Event::Displaced);
        match problem {
            Some(problem) => Err(format!("displaced: {way}: {problem}")),
            None => line(way),
        }
    }
}

/// Displaces a database in the given way, and returns the violated invariant, if any.
fn displace(
    image: &MemFs,
    options: &Options,
    way: &str,
    pass_second: impl FnOnce(),
) -> EngineResult<Option<&'static str>> {
    let first = options.clone().open(PATH)?;
    first.table_or_create(TABLE)?.upsert(row("before"))?;
    let second = match way {
        "unlocked" => {
            image.erase(format!("{PATH}/{LOCK}")).expect("the lock file of an open database");
            Some(options.clone().open(PATH)?)
        }
        _ => {
            image.rename(PATH.as_ref(), MOVED.as_ref()).expect("the directory");
            let is_replaced = way == "replaced";
            is_replaced.then(|| options.clone().open(PATH)).transpose()?
        }
    };
    pass_second();
    let files = files(image);
    if works_on(first) {
        return Ok(Some("the first process acknowledges a change"));
    }
    // This is checked only if the directory was replaced. If only the lock file was removed, the
    // first process may still write to its own log in the same directory.
    if way == "replaced" && files != self::files(image) {
        return Ok(Some("the first process changed files of the second"));
    }
    second.map_or(Ok(()), |second| second.close())?;
    if way != "unlocked" {
        let aside = Path::new("aside");
        if way == "replaced" {
            image.rename(PATH.as_ref(), aside).expect("the second directory");
        }
        image.rename(MOVED.as_ref(), PATH.as_ref()).expect("the first directory");
    }
    let again = options.clone().open(PATH)?;
    let has_row = again.table(TABLE)?.get(TABLE, "before")?.is_some();
    let is_sound = again.verify()?.problems.is_empty();
    again.close()?;
    Ok(if has_row && is_sound { None } else { Some("the first database is damaged") })
}

fn row(key: &str) -> Entity {
    Entity::new(TABLE, key)
}

/// Whether a write, a flush or a close succeeds.
fn works_on(db: Db) -> bool {
    let written = db.table(TABLE).and_then(|table| table.upsert(row("after")));
    let flushed = db.flush();
    written.is_ok() || flushed.is_ok() || db.close().is_ok()
}

/// The files at the database's path, with their bytes.
fn files(image: &MemFs) -> Vec<(String, Option<Vec<u8>>)> {
    let paths = image.paths().into_iter().filter(|path| path.starts_with(PATH));
    paths.map(|path| (path.clone(), image.read(&path).ok())).collect()
}
