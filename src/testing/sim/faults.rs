//! Injects faults and damage, ends processes, and decides which losses and errors are then allowed.
//!
//! Invariants
//! * a recovered database shows a prefix of the commits, without gaps and with whole groups. The
//!   prefix has all visible commits whose durability covers this kind of crash;
//! * commits that were recovered once survive all later crashes;
//! * everything works after faults have ended and damage was undone;
//! * damage causes an error that names the file, or makes no difference.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result as EngineResult};
use crate::format::edit::Wear;
use crate::format::names::FileName;
use crate::fs::MemFs;
use crate::manifest::ManifestTail;
use crate::rng::Rng;

use super::counts::Event;
use super::engine::{Engine, LOG_ALLOCATE_BYTES, PATH};
use super::oracle::{Tables, differences};
use super::power::End;
use super::runner::{Outcome, Runner, is_storage_error, line, none_of};
use super::runner_state::{Rot, Used};
use super::step::Step;

impl Runner {
    /// Runs a step that acts on the disk and needs no open database; `None` for other steps.
    pub(super) fn run_trouble(&mut self, step: &Step) -> Option<Outcome> {
        match step {
            Step::Kill(Some(ops)) => self.engine.power.arm(*ops, End::Kill),
            Step::Crash { seed, ops: Some(ops) } => {
                self.engine.power.arm(*ops, End::PowerCut(*seed));
            }
            Step::Fault(fault) => self.engine.faults.arm(fault.clone()),
            Step::FaultsOff => self.engine.faults.disarm(),
            Step::Quota(headroom) => {
                let fs = &self.engine.fs;
                fs.set_quota(headroom.map(|bytes| fs.used() + bytes));
                self.trouble.is_limited = headroom.is_some();
                self.trouble.was_limited |= headroom.is_some();
            }
            Step::Mend => return Some(self.mend()),
            Step::Rot(seed) => return Some(self.rot(*seed)),
            Step::Heal => return Some(self.heal()),
            Step::Damage(seed) => return Some(self.damage(*seed)),
            _ => return None,
        }
        Some(Ok(Vec::new()))
    }

    /// Whether a fault or a limit on space explains a storage error.
    pub(super) fn is_disk_troubled(&self) -> bool {
        self.faults_expected
            || self.trouble.was_limited
            || self.engine.power.is_gone()
            || self.engine.faults_met() > self.trouble.faults_before
    }

    /// Whether the contents of the disk may differ from the written data, or operations may fail.
    pub(super) fn may_differ_on_disk(&self) -> bool {
        self.is_disk_troubled() || self.trouble.rot.is_some()
    }

    pub(super) fn is_excused(&mut self, error: &Error) -> bool {
        if self.is_of_cap(error) {
            return true;
        }
        if is_storage_error(error) {
            match error.kind() {
                ErrorKind::Poisoned => self.counts.note(Event::Poisoned),
                ErrorKind::StorageFull => self.counts.note(Event::DiskFull),
                _ => {}
            }
            return self.is_disk_troubled();
        }
        let names_rotten = |rot: &Rot| {
            error.corruption().is_some_and(|found| {
                found
                    .file
                    .file_name()
                    .is_some_and(|name| rot.path.ends_with(&*name.to_string_lossy()))
            })
        };
        let is_met = self.trouble.rot.as_ref().is_some_and(names_rotten);
        if is_met {
            self.counts.note(Event::RotMet);
        }
        is_met
    }

    pub(super) fn is_excused_problem(&self, problem: &str) -> bool {
        let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let names_rotten = |rot: &Rot| problem.contains(&name(&rot.path));
        self.is_disk_troubled() || self.trouble.rot.as_ref().is_some_and(names_rotten)
    }

    /// Returns the outcome for a result: success, an error that the state of the disk explains, or
    /// a failure.
    pub(super) fn excuse(&mut self, result: EngineResult<()>) -> Outcome {
        match result {
            Ok(()) => Ok(Vec::new()),
            Err(error) if self.is_excused(&error) => {
                line(format!("{}: {}", error.code(), error.chain()))
            }
            Err(error) => Err(format!("refused: {error:?}")),
        }
    }

    /// Ends all faults and limits, and restores the damaged byte.
    fn end_troubles(&mut self) {
        self.engine.faults.disarm();
        self.engine.fs.set_quota(None);
        self.trouble.is_limited = false;
        if let Some(rot) = self.trouble.rot.take() {
            let byte = self.engine.fs.read(&rot.path).ok();
            let byte = byte.and_then(|bytes| bytes.get(rot.offset as usize).copied());
            if byte == Some(rot.rotten) {
                drop(self.engine.fs.flip(&rot.path, rot.offset, rot.mask));
            }
        }
    }

    /// Records that the first `faults_met` faults no longer explain storage errors.
    fn well_again(&mut self, faults_met: u64) {
        self.trouble.faults_before = faults_met;
        self.trouble.was_limited = self.trouble.is_limited;
    }

    fn mend(&mut self) -> Outcome {
        let was_rotten = self.trouble.rot.is_some();
        self.end_troubles();
        let has_failed = self.engine.faults_met() > self.trouble.faults_before;
        if !self.engine.is_open() || was_rotten || has_failed {
            return self.reopen();
        }
        // A full disk alone does not require a reopening: when space is freed, the engine
        // continues.
        let mut lines = self.end_halves()?;
        lines.extend(self.sync()?);
        self.well_again(self.engine.faults_met());
        Ok(lines)
    }

    pub(super) fn reopen(&mut self) -> Outcome {
        if self.engine.is_open() {
            self.end_halves()?;
        }
        self.close()?;
        self.reopened(self.oracle.process_floor)
    }

    fn close(&mut self) -> Result<(), String> {
        self.record_engine();
        self.snapshots.clear();
        self.iterators.clear();
        let was_open = self.engine.is_open();
        self.record_wear();
        match self.engine.close() {
            Ok(()) if was_open => {
                self.counts.note(Event::Close);
                self.oracle.all_durable();
            }
            Ok(()) => {}
            Err(error) if self.is_excused(&error) => self.wear = Wear::default(),
            Err(error) => return Err(format!("close: {error:?}")),
        }
        self.tickets.clear();
        Ok(())
    }

    pub(super) fn kill(&mut self) -> Outcome {
        self.record_wear();
        let wear = self.wear;
        let image = self.engine.power.cut(End::Kill);
        self.end(image, End::Kill, wear)
    }

    pub(super) fn crash(&mut self, seed: u64) -> Outcome {
        let end = End::PowerCut(seed);
        let image = self.engine.power.cut(end);
        self.end(image, end, Wear::default())
    }

    pub(super) fn end(&mut self, image: MemFs, end: End, wear: Wear) -> Outcome {
        self.counts.note(if end == End::Kill { Event::Kill } else { Event::PowerCut });
        let floor = self.floor(end);
        self.recover_with(image, floor, wear)
    }

    fn floor(&self, end: End) -> usize {
        match end {
            End::Kill => self.oracle.process_floor,
            End::PowerCut(_) => self.oracle.power_floor,
        }
    }

    /// Opens the database in `image`, the disk that a crash left, and continues. At least the first
    /// `floor` commits must be there.
    pub fn recover(&mut self, image: MemFs, floor: usize) -> Outcome {
        self.recover_with(image, floor, Wear::default())
    }

    fn recover_with(&mut self, image: MemFs, floor: usize, wear: Wear) -> Outcome {
        self.wear = wear;
        self.record_engine();
        self.snapshots.clear();
        self.iterators.clear();
        self.tickets.clear();
        self.engine.abandon(image);
        self.reopened(floor)
    }

    /// Tries to open the database until an opening succeeds, and then compares the state. The first
    /// attempts may meet faults and power cuts.
    pub(super) fn reopened(&mut self, mut floor: usize) -> Outcome {
        let mut mended = false;
        loop {
            let faults_met = self.engine.faults_met();
            self.used = Used::default();
            let result = match self.engine.open() {
                Ok(()) => self.engine.state(),
                Err(error) => Err(error),
            };
            let gone = self.engine.power.take_left();
            match (result, gone) {
                (Ok(state), None) => {
                    self.well_again(faults_met);
                    self.check_wear()?;
                    if self.engine.db().stats().get("flushes") != Some(0) {
                        self.counts.note(Event::LongReplay);
                    }
                    return self.settle_on(&state, floor);
                }
                (_, Some((left, end))) => {
                    self.wear = Wear::default();
                    self.counts.note(Event::EndInRecovery);
                    floor = floor.min(self.floor(end));
                    self.engine.abandon(left);
                }
                (Err(error), None) if !mended && self.is_excused(&error) => {
                    self.counts.note(Event::FailedOpen);
                    self.wear = Wear::default();
                    drop(self.engine.close());
                    // A kill or power cut repairs nothing, so the faults remain for the next
                    // attempt.
                    if !self.engine.power.is_gone() {
                        self.end_troubles();
                        mended = true;
                    }
                }
                (Err(error), None) => return Err(format!("open: {error:?}")),
            }
        }
    }

    /// Checks that `state` is the state after the first n commits, for some n that is at least
    /// `floor`. From now on these n commits survive a kill, and later commits are treated as if
    /// they never happened.
    fn settle_on(&mut self, state: &Tables, floor: usize) -> Outcome {
        let commits = self.oracle.commits();
        let prefix = self.oracle.find(state, floor).map_err(|what| format!("recovered: {what}"))?;
        self.oracle.roll_back(prefix);
        self.oracle.pending.clear();
        if prefix > commits {
            self.oracle.last_commit_was(self.engine.last_seq());
        }
        self.oracle.restarted();
        self.note_confirmed();
        let lost = commits.saturating_sub(prefix);
        self.counts.add(Event::CommitLost, lost as u64);
        line(if lost == 0 { "all there".to_owned() } else { format!("{lost} commits lost") })
    }

    /// If the database has made the recovered commits durable, a power cut must not revoke them.
    pub(super) fn note_confirmed(&mut self) {
        if self.engine.is_open() && !self.engine.is_unconfirmed() {
            self.oracle.confirmed();
        }
    }

    /// Whether a fault is armed or was met, or the disk is damaged or limited.
    pub(super) fn is_troubled(&self) -> bool {
        self.engine.faults.is_armed() || self.trouble.rot.is_some() || self.is_disk_troubled()
    }

    /// Flips a bit of a table file.
    fn rot(&mut self, seed: u64) -> Outcome {
        let mut rng = Rng::from_seed(seed);
        let fs = &self.engine.fs;
        let mut paths = fs.paths();
        paths.retain(|path| path.starts_with(PATH) && path.ends_with(".sst"));
        if paths.is_empty() || self.trouble.rot.is_some() {
            return line("nothing to rot");
        }
        let path = rng.pick(&paths).clone();
        let bytes = fs.read(&path).map_err(|error| format!("rot: {error}"))?;
        let (at, mask) = (rng.index(bytes.len()), 1 << rng.below(8));
        fs.flip(&path, at as u64, mask).map_err(|error| format!("rot: {error}"))?;
        let what = format!("{path} at {at}");
        let rotten = bytes[at] ^ mask;
        self.trouble.rot = Some(Rot { path, offset: at as u64, mask, rotten });
        self.counts.note(Event::Rot);
        line(what)
    }

    fn heal(&mut self) -> Outcome {
        match self.trouble.rot.is_some() {
            true => self.mend(),
            false => line("nothing is rotten"),
        }
    }

    /// Closes the database, damages a copy, and opens and reads the copy. Each read must fail or
    /// return the right result, because checksums cover every byte. For one seed in four, instead
    /// truncates the last log in a copy of the open database, and then kills the process.
    fn damage(&mut self, seed: u64) -> Outcome {
        if self.is_troubled() {
            return line("not during other troubles");
        }
        if self.engine.is_open() {
            if seed.is_multiple_of(4) {
                self.cut_log(seed)?;
                return self.kill();
            }
            self.end_halves()?;
        }
        self.close()?;
        if self.engine.power.is_gone() {
            return Ok(Vec::new());
        }
        let sound = self.engine.fs.kill_image();
        let mut lines = self.damaged(&sound, seed)?;
        lines.extend(self.reopened(self.oracle.commits())?);
        Ok(lines)
    }

    /// Checks that a copy of the database, taken as if the process had been killed, cannot be
    /// opened if its last log is shorter than when it was created.
    fn cut_log(&mut self, seed: u64) -> Result<(), String> {
        let image = self.engine.fs.kill_image();
        let manifest = ManifestTail::open(Arc::new(image.clone()), Path::new(PATH), false);
        let version = Arc::clone(manifest.map_err(|error| format!("cut: {error:?}"))?.version());
        let last = version.logs.last().map(|log| log.number);
        // If nothing was written since a clean close, the manifest records where the last log
        // ended. This case is not tested here.
        let is_closed = version.clean_close.is_some_and(|close| Some(close.log) == last);
        let Some(last) = last.filter(|_| !is_closed) else { return Ok(()) };
        let path = format!("{PATH}/{}", FileName::Wal(last));
        let len = Rng::from_seed(seed).below(LOG_ALLOCATE_BYTES);
        image.truncate(&path, len).map_err(|error| format!("cut: {error}"))?;
        let (clock, config) = (self.engine.clock.clone(), self.engine.config.clone());
        match Engine::on(image, clock, config).open() {
            Err(error) if error.kind() == ErrorKind::Corruption => {
                self.counts.note(Event::DamageRefused);
                Ok(())
            }
            other => Err(format!("{path} cut to {len} bytes is answered by {other:?}")),
        }
    }

    fn damaged(&mut self, sound: &MemFs, seed: u64) -> Outcome {
        let (mut rng, image) = (Rng::from_seed(seed), sound.kill_image());
        let mut paths = image.paths();
        paths.retain(|path| path.starts_with(PATH) && image.len(path).is_ok_and(|len| len > 0));
        if paths.is_empty() {
            return line("nothing to damage");
        }
        let path = rng.pick(&paths).clone();
        let len = image.len(&path).unwrap_or_default();
        // In half of the cases the damage is near the beginning of the file, because the rest may
        // be reserved space without data.
        let front = if rng.chance(1, 2) { len } else { len.min(2048) };
        let at = rng.below(front);
        let done = match rng.below(4) {
            0 => image.truncate(&path, at),
            _ => image.flip(&path, at, 1 << rng.below(8)),
        };
        done.map_err(|error| format!("damage: {error}"))?;
        self.mended(&image, sound, &path, seed)?;
        let clock = self.engine.clock.clone();
        let mut copy = Engine::on(image.clone(), clock, self.engine.config.clone());
        let found = copy.open().and_then(|()| copy.state());
        let what = format!("{path} at {at}");
        match found {
            Ok(state) => {
                let wrong = differences(&self.oracle.tables, &state);
                none_of(wrong, &format!("damage: {what} gives"))?;
                self.counts.note(Event::DamageHarmless);
                line(format!("{what}: harmless"))
            }
            Err(error) => {
                let name = path.rsplit('/').next().unwrap_or_default();
                let is_said =
                    matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported)
                        && error.chain().contains(name);
                if !is_said {
                    return Err(format!("damage: {what} is answered by {error:?}"));
                }
                self.counts.note(Event::DamageRefused);
                line(format!("{what}: refused"))
            }
        }
    }
}
