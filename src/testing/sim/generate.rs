//! Chooses options and steps, from a seed or from bytes.
//!
//! Invariants
//! * sizes are such that flushes, compactions and new manifests happen every few steps;
//! * trouble occurs in episodes: faults and damage end some steps later, so that runs can continue.

mod query;

use crate::fs::{Fault, FaultKind, OpKind};
use crate::lsm::GateMode;
use crate::options::{Durability, IoMode};
use crate::rng::Rng;

use super::step::{Condition, Config, Lane, Scan, Step, Verb, Write};
use super::value::Val;

/// The frequency of each kind of step, relative to 1,000 for reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Kills of the process, and power cuts.
    pub crashes: u64,
    /// Clean closes, each followed by an opening.
    pub reopens: u64,
    /// Jumps of the wall clock, in both directions.
    pub clock: u64,
    /// Creating, dropping and listing tables.
    pub tables: u64,
    /// Commits that are not waited for immediately.
    pub tickets: u64,
    /// Iterators and background work that are interleaved with other steps.
    pub overlaps: u64,
    /// Failing operations, and limits on space.
    pub faults: u64,
    /// Flipped bits, in the database in use and in closed copies.
    pub rot: u64,
    /// Copies of the whole database, opened and compared.
    pub checkpoints: u64,
    /// Backups of the database, restored and compared.
    pub backups: u64,
    /// Steps that archive a table into another database, on images of the disk.
    pub archives: u64,
    /// Moved or replaced directories, on images of the disk.
    pub displacements: u64,
}

impl Mix {
    /// Only clean closes interrupt the run. Steps do not overlap, and the disk is healthy.
    pub const PLAIN: Mix = Mix {
        crashes: 0,
        reopens: 2,
        clock: 2,
        tables: 4,
        tickets: 0,
        overlaps: 0,
        faults: 0,
        rot: 0,
        checkpoints: 0,
        backups: 0,
        archives: 0,
        displacements: 0,
    };
    /// As `PLAIN`, with overlapping steps and with copies of the database.
    pub const QUIET: Mix = Mix {
        tickets: 200,
        overlaps: 100,
        checkpoints: 2,
        backups: 2,
        archives: 1,
        displacements: 1,
        ..Mix::PLAIN
    };
    /// As `QUIET`, with kills and power cuts.
    pub const CRASHING: Mix = Mix { crashes: 25, reopens: 6, ..Mix::QUIET };
    /// All kinds of steps.
    pub const ALL: Mix = Mix { clock: 12, tables: 12, faults: 25, rot: 12, ..Mix::CRASHING };
}

const TABLES: [&str; 3] = ["Alpha", "beta", "Gamma"];
/// The tables that evict their oldest rows, if eviction is enabled.
pub(super) const RING: [&str; 2] = [TABLES[0], TABLES[2]];
/// Partition keys: the empty key, keys that are prefixes of others, and two keys whose order
/// differs between UTF-8 and UTF-16.
const PARTITIONS: [&str; 6] = ["", "a", "ab", "b", "\u{ff5e}", "\u{1f600}"];
const NAMES: [&str; 6] = ["A", "B", "Count", "Note", "At", "_x"];

/// The source of choices: a seed, or bytes that a fuzzer mutates.
pub(super) enum Source<'a> {
    Seed(Rng),
    Bytes(&'a [u8]),
}

pub(super) struct Generator<'a> {
    source: Source<'a>,
    mix: Mix,
    snapshots: Vec<String>,
    iterators: Vec<String>,
    tickets: Vec<String>,
    pagings: Vec<String>,
    names: usize,
    /// The number of steps until the current trouble ends, and the step that ends it.
    remedy: Option<(u64, Step)>,
    /// The number of steps until the closed gate is opened, and the step that opens it.
    lift: Option<(u64, Step)>,
    /// Whether the database has scalability targets, so that time must pass between requests.
    is_throttled: bool,
    /// The factor by which rows are enlarged to reach the limit on disk use.
    scale: usize,
}

/// A function that generates steps of one kind.
type Make<'a> = fn(&mut Generator<'a>) -> Step;

impl Source<'_> {
    /// Returns the next choice, a number below `bound`. Returns 0 after the fuzzer's bytes are used
    /// up.
    fn below(&mut self, bound: u64) -> u64 {
        match self {
            Source::Seed(rng) => rng.below(bound),
            Source::Bytes(bytes) => {
                let width = if bound <= 256 { 1 } else { 3 };
                let (front, rest) = bytes.split_at(bytes.len().min(width));
                *bytes = rest;
                front.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)) % bound.max(1)
            }
        }
    }

    fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    fn pick<'i, T>(&mut self, items: &'i [T]) -> &'i T {
        &items[self.index(items.len())]
    }

    /// Returns an arbitrary number, derived from three bytes if the source is bytes.
    fn number(&mut self) -> u64 {
        match self {
            Source::Seed(rng) => rng.next_u64(),
            Source::Bytes(_) => self.below(1 << 24).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        }
    }

    /// Returns a seed with few digits.
    fn seed(&mut self) -> u64 {
        self.below(1 << 24)
    }
}

impl<'a> Generator<'a> {
    pub(super) fn new(source: Source<'a>, mix: Mix) -> Self {
        Self {
            source,
            mix,
            snapshots: Vec::new(),
            iterators: Vec::new(),
            tickets: Vec::new(),
            pagings: Vec::new(),
            names: 0,
            remedy: None,
            lift: None,
            is_throttled: false,
            scale: 1,
        }
    }

    /// Whether the fuzzer's bytes are used up. Always false for a seed.
    pub(super) fn is_spent(&self) -> bool {
        matches!(self.source, Source::Bytes([]))
    }

    pub(super) fn config(&mut self) -> Config {
        let source = &mut self.source;
        let durabilities = [Durability::Sync, Durability::Os, Durability::Buffered];
        let mut config = Config {
            durability: *source.pick(&durabilities),
            io_mode: *source.pick(&[IoMode::Mmap, IoMode::Pread]),
            memtable_bytes: *source.pick(&[10 << 10, 12 << 10, 24 << 10]),
            block_bytes: *source.pick(&[512, 512, 1 << 10, 4 << 10]),
            run_file_bytes: *source.pick(&[4 << 10, 64 << 10]),
            cache_bytes: *source.pick(&[0, 8 << 10, 1 << 20]),
            log_buffer_bytes: *source.pick(&[512, 2 << 10, 64 << 10]),
            manifest_roll_bytes: *source.pick(&[256, 1 << 10, 64 << 10]),
            // `chance` is called in every build, so that later choices do not depend on the
            // features.
            compress: source.chance(1, 4) && cfg!(feature = "zstd"),
            targets: source
                .chance(1, 16)
                .then(|| (*source.pick(&[3, 10, 30]), *source.pick(&[10, 40]))),
            cap: None,
            ring: false,
            seed: source.seed(),
        };
        // The limit on disk use depends on the seed. Only odd seeds have a limit, and only even
        // seeds keep logs for the change feed, so no database has both.
        if config.seed % 8 == 5 {
            config.cap = Some([0, 32 << 10, 128 << 10][(config.seed / 8 % 3) as usize]);
            config.ring = (config.seed / 24).is_multiple_of(2);
            if config.ring {
                config.cap = Some(0);
            }
        }
        self.is_throttled = config.targets.is_some();
        self.scale = match (config.cap, config.ring) {
            (None, _) => 1,
            (_, false) => 16,
            (_, true) => 32,
        };
        config
    }

    /// Returns the step that creates the table that most steps use.
    pub(super) fn first(&self) -> Step {
        Step::CreateTable(TABLES[0].to_owned())
    }

    /// Adds the step that ends a trouble or opens a gate, if it is due. Otherwise adds one or more
    /// randomly chosen steps.
    pub(super) fn push_step(&mut self, steps: &mut Vec<Step>) {
        if let Some((left, _)) = &mut self.remedy {
            *left = left.saturating_sub(1);
        }
        if self.remedy.as_ref().is_some_and(|(left, _)| *left == 0)
            && let Some((_, remedy)) = self.remedy.take()
        {
            self.forget_handles();
            steps.push(remedy);
            return;
        }
        if let Some((left, lift)) = self.lift.take() {
            match left.checked_sub(1) {
                Some(left) => self.lift = Some((left, lift)),
                None => return steps.push(lift),
            }
        }
        if self.is_throttled && self.source.chance(1, 5) {
            return steps.push(Step::Clock(100 + self.source.below(1500) as i64));
        }
        if self.source.chance(1, 128) {
            self.episode(steps);
            return;
        }
        let step = self.step();
        steps.push(step);
    }

    fn step(&mut self) -> Step {
        let mix = self.mix;
        let kinds: [(u64, Make<'a>); 24] = [
            (370, Self::write_step),
            (90, Self::group_step),
            (100, Self::get_step),
            (60, Self::scan_step),
            (35, Self::snapshot_step),
            (60, |_| Step::Flush),
            (100, Self::background_step),
            (30, |_| Step::Compact),
            (12, Self::upkeep_step),
            (mix.crashes, Self::end_step),
            (mix.reopens, |generator| generator.forgetting(Step::Reopen)),
            (mix.clock, |generator| Step::Clock(generator.source.below(4000) as i64 - 2000)),
            (mix.tables, Self::table_step),
            (mix.tickets, Self::ticket_step),
            (mix.overlaps, Self::overlap_step),
            (mix.faults, Self::fault_step),
            (mix.rot, Self::rot_step),
            (mix.checkpoints, |_| Step::Checkpoint),
            (30, Self::query_step),
            (20, Self::span_step),
            (mix.backups, |_| Step::Backup),
            (mix.archives, |generator| {
                let table = generator.table();
                Step::Archive { table, seed: generator.source.seed() }
            }),
            (mix.displacements, |generator| Step::Displace(generator.source.seed())),
            (20, |_| Step::Beside),
        ];
        let mut roll = self.source.below(kinds.iter().map(|(weight, _)| weight).sum());
        for (weight, kind) in kinds {
            if roll < weight {
                return kind(self);
            }
            roll -= weight;
        }
        unreachable!("the roll is below the sum of the weights")
    }

    fn forget_handles(&mut self) {
        self.snapshots.clear();
        self.iterators.clear();
        self.tickets.clear();
    }

    /// Forgets all open handles, because `step` makes them invalid, and returns `step`.
    fn forgetting(&mut self, step: Step) -> Step {
        self.forget_handles();
        step
    }

    fn name(&mut self, kind: char) -> String {
        self.names += 1;
        format!("{kind}{}", self.names)
    }

    fn table(&mut self) -> String {
        // Picks mostly the first table, which exists from the start.
        let pick = self.source.below(8).saturating_sub(5) as usize;
        TABLES[pick].to_owned()
    }

    fn table_step(&mut self) -> Step {
        let table = (*self.source.pick(&TABLES)).to_owned();
        match self.source.below(8) {
            0 | 1 => Step::DropTable(table),
            2 => Step::Tables,
            3 => Step::CreateTable(table.to_uppercase()),
            _ => Step::CreateTable(table),
        }
    }

    /// Returns a step that deletes or moves a span of keys, expires old rows, or closes a gate.
    fn span_step(&mut self) -> Step {
        let table = self.table();
        if self.source.chance(1, 4) {
            return Step::Expire { table, keep: self.source.index(40) };
        }
        if self.source.chance(1, 3) {
            return self.gate_step(table);
        }
        let moves = self.source.chance(1, 4);
        let scan = self.bounds();
        if moves {
            let snapshot = self.name('s');
            self.snapshots.push(snapshot.clone());
            return Step::Move { table, scan, snapshot };
        }
        let also = self.source.chance(1, 4).then(|| self.pk());
        Step::DropRange { table, scan, also }
    }

    /// Returns the bounds of a whole table, or of rows of a partition.
    fn bounds(&mut self) -> Scan {
        if !self.source.chance(7, 8) {
            return Scan::default();
        }
        let pk = Some(self.pk());
        let from = self.source.chance(1, 2).then(|| self.rk());
        let to = self.source.chance(1, 2).then(|| self.rk());
        Scan { pk, from, to, ..Scan::default() }
    }

    /// Closes a gate for some steps, or changes the mode of a closed gate.
    fn gate_step(&mut self, table: String) -> Step {
        let modes = [GateMode::ReadOnly, GateMode::Offline, GateMode::Offline];
        let mode = *self.source.pick(&modes);
        if let Some((_, Step::Lift { table, scan })) = &self.lift {
            return Step::Gate { table: table.clone(), scan: scan.clone(), mode };
        }
        let mut scan = self.bounds();
        scan.from = scan.from.filter(|from| !from.is_empty());
        let lift = Step::Lift { table: table.clone(), scan: scan.clone() };
        self.lift = Some((4 + self.source.below(16), lift));
        Step::Gate { table, scan, mode }
    }

    fn background_step(&mut self) -> Step {
        let steps = 1 + self.source.index(4);
        let lanes = [Some(Lane::Log), Some(Lane::Flush), Some(Lane::Compact), None, None];
        Step::Background(steps, *self.source.pick(&lanes))
    }

    fn upkeep_step(&mut self) -> Step {
        match self.source.below(6) {
            0 => Step::Verify,
            1 => Step::Settle,
            _ => Step::Sync,
        }
    }

    fn end_step(&mut self) -> Step {
        let ops = self.source.below(40);
        let seed = self.source.seed();
        match self.source.below(6) {
            0 => self.forgetting(Step::Kill(None)),
            1 => self.forgetting(Step::Crash { seed, ops: None }),
            2 => Step::Kill(Some(ops)),
            _ => Step::Crash { seed, ops: Some(ops) },
        }
    }

    fn pk(&mut self) -> String {
        (*self.source.pick(&PARTITIONS)).to_owned()
    }

    fn rk(&mut self) -> String {
        match self.source.below(12) {
            0 => String::new(),
            1 => "r".repeat(1 + self.source.index(3)),
            2 => format!("r{}", "x".repeat(self.source.index(200))),
            _ => format!("r{:02}", self.source.below(24)),
        }
    }

    fn durability(&mut self) -> Option<Durability> {
        let choices = [Durability::Sync, Durability::Os, Durability::Buffered];
        self.source.chance(1, 3).then(|| *self.source.pick(&choices))
    }

    fn write_step(&mut self) -> Step {
        let pk = self.pk();
        let write = self.write(pk);
        Step::Write { table: self.table(), write, durability: self.durability() }
    }

    fn write(&mut self, pk: String) -> Write {
        let verbs = [Verb::Upsert, Verb::Insert, Verb::UpsertMerge, Verb::Insert, Verb::Upsert];
        let all = self.source.chance(1, 2);
        let verb = *if all { self.source.pick(&Verb::ALL) } else { self.source.pick(&verbs) };
        let conditions = [Condition::Any, Condition::Current, Condition::Current, Condition::Stale];
        let conditional = verb.is_conditional() && self.source.chance(1, 2);
        let condition = if conditional { *self.source.pick(&conditions) } else { Condition::Any };
        let mut properties = if verb == Verb::Delete { Vec::new() } else { self.properties() };
        let rk = self.rk();
        self.number_rows(&rk, &mut properties);
        Write { verb, pk, rk, properties, condition }
    }

    fn properties(&mut self) -> Vec<(String, Val)> {
        let mut properties: Vec<(String, Val)> = Vec::new();
        for _ in 0..self.source.below(5) {
            let name = (*self.source.pick(&NAMES)).to_owned();
            let value = self.value_of(&name);
            properties.retain(|(other, _)| *other != name);
            properties.push((name, value));
        }
        properties
    }

    fn value(&mut self) -> Val {
        let source = &mut self.source;
        let scale = self.scale;
        match source.below(8) {
            0 => Val::String("é x'".repeat(scale * source.index(40))),
            1 => Val::Binary(vec![source.below(256) as u8; scale * source.index(300)]),
            2 => Val::Boolean(source.chance(1, 2)),
            3 => Val::Int32(source.number() as i32),
            4 => Val::Int64(source.number() as i64),
            5 => Val::Double(source.pick(&[0.0f64, -0.0, 1.5, f64::INFINITY, f64::NAN]).to_bits()),
            6 => Val::DateTime(source.number() % 2_650_467_744_000_000_000),
            _ => {
                let byte = source.below(256) as u8;
                Val::Guid(std::array::from_fn(|at| byte.wrapping_mul(at as u8 | 1)))
            }
        }
    }

    fn writes(&mut self) -> Vec<Write> {
        let pk = self.pk();
        let mut writes: Vec<Write> = Vec::new();
        for _ in 0..=self.source.below(6) {
            let write = self.write(pk.clone());
            if writes.iter().all(|other| other.rk != write.rk) {
                writes.push(write);
            }
        }
        writes
    }

    fn group_step(&mut self) -> Step {
        let writes = self.writes();
        Step::Group { table: self.table(), writes, durability: self.durability() }
    }

    /// Returns a step that submits a commit without waiting for it, or that awaits, polls or drops
    /// the ticket of an earlier commit. Several tickets are open at the same time.
    fn ticket_step(&mut self) -> Step {
        if self.tickets.len() < 6 && self.source.chance(3, 5) {
            let ticket = self.name('t');
            self.tickets.push(ticket.clone());
            let (writes, durability) = (self.writes(), self.durability());
            return Step::Submit { ticket, table: self.table(), writes, durability };
        }
        if self.tickets.is_empty() {
            return Step::Sync;
        }
        let ticket = self.tickets.remove(self.source.index(self.tickets.len()));
        match self.source.below(6) {
            0 => Step::Forget(ticket),
            1 => Step::Poll(ticket),
            _ => Step::Await(ticket),
        }
    }

    fn overlap_step(&mut self) -> Step {
        match self.source.below(10) {
            0 => Step::BeginFlush,
            1 => Step::EndFlush,
            2 | 3 => Step::BeginCompaction,
            4 => Step::EndCompaction,
            _ => self.iterator_step(),
        }
    }

    fn iterator_step(&mut self) -> Step {
        if self.iterators.is_empty() || (self.iterators.len() < 3 && self.source.chance(1, 4)) {
            let name = self.name('i');
            self.iterators.push(name.clone());
            let scan = Scan { page: None, at: None, ..self.span() };
            return Step::Iterate { name, table: self.table(), scan };
        }
        if self.source.chance(1, 8) {
            let at = self.source.index(self.iterators.len());
            return Step::Release(self.iterators.remove(at));
        }
        let name = self.source.pick(&self.iterators).clone();
        Step::Next { name, count: 1 + self.source.index(8) }
    }

    /// Returns a step that makes the disk fail in some way, and plans a later step that ends the
    /// failure.
    fn fault_step(&mut self) -> Step {
        if self.remedy.is_some() {
            return Step::Sync;
        }
        self.remedy = Some((3 + self.source.below(12), Step::Mend));
        if self.source.chance(1, 5) {
            return Step::Quota(Some(self.source.below(24 << 10)));
        }
        let kinds = [
            FaultKind::Eio,
            FaultKind::Eio,
            FaultKind::Enospc,
            FaultKind::Eintr,
            FaultKind::ShortWrite,
            FaultKind::ShortTransfer,
        ];
        let kind = *self.source.pick(&kinds);
        let ops = [
            None,
            None,
            Some(OpKind::Sync),
            Some(OpKind::SyncDir),
            Some(OpKind::Write),
            Some(OpKind::Read),
            Some(OpKind::Map),
            Some(OpKind::Create),
            Some(OpKind::Rename),
            Some(OpKind::Remove),
            Some(OpKind::Allocate),
            Some(OpKind::OpenRead),
        ];
        let op = *self.source.pick(&ops);
        let paths = [None, None, None, Some(".wal"), Some(".sst"), Some(".tmp"), Some("MANIFEST")];
        let path = self.source.pick(&paths).map(str::to_owned);
        if matches!(op, Some(OpKind::Sync | OpKind::SyncDir)) && self.source.chance(1, 2) {
            // A power cut shows whether the engine relied on data that was not synced.
            let seed = self.source.seed();
            self.remedy = Some((2 + self.source.below(6), Step::Crash { seed, ops: None }));
        }
        let nth = self.source.below(if op.is_none() { 30 } else { 6 });
        let mut fault = Fault::new(kind).nth(nth);
        (fault.op, fault.path, fault.sticky) = (op, path, self.source.chance(1, 4));
        Step::Fault(fault)
    }

    fn rot_step(&mut self) -> Step {
        let seed = self.source.seed();
        if self.remedy.is_some() || self.source.chance(1, 2) {
            return self.forgetting(Step::Damage(seed));
        }
        self.remedy = Some((3 + self.source.below(12), Step::Heal));
        Step::Rot(seed)
    }

    fn select(&mut self) -> Option<Vec<String>> {
        let names = NAMES.iter().filter(|_| self.source.chance(1, 3));
        let names: Vec<String> = names.map(|name| (*name).to_owned()).collect();
        (!names.is_empty() && self.source.chance(1, 3)).then_some(names)
    }

    fn at(&mut self) -> Option<String> {
        let some = !self.snapshots.is_empty() && self.source.chance(1, 2);
        some.then(|| self.source.pick(&self.snapshots).clone())
    }

    fn get_step(&mut self) -> Step {
        let (table, key) = (self.table(), (self.pk(), self.rk()));
        Step::Get { table, key, select: self.select(), at: self.at() }
    }

    fn scan_step(&mut self) -> Step {
        let scan = Scan { at: self.at(), ..self.span() };
        Step::Scan { table: self.table(), scan }
    }

    fn span(&mut self) -> Scan {
        let pk = self.source.chance(2, 3).then(|| self.pk());
        let bounded = pk.is_some();
        let bound = |generator: &mut Self| {
            (bounded && generator.source.chance(1, 3)).then(|| generator.rk())
        };
        let (from, to) = (bound(self), bound(self));
        // Scans never have a lower bound above the upper one.
        let ordered = !matches!((&from, &to), (Some(from), Some(to)) if from > to);
        let to = to.filter(|_| ordered);
        let top = self.source.chance(1, 4).then(|| self.source.index(20));
        let page = self.source.chance(1, 4).then(|| 1 + self.source.index(10));
        Scan { pk, from, to, select: self.select(), top, page, at: None }
    }

    fn snapshot_step(&mut self) -> Step {
        if self.snapshots.len() > 2 || (!self.snapshots.is_empty() && self.source.chance(1, 2)) {
            let at = self.source.index(self.snapshots.len());
            return Step::Release(self.snapshots.remove(at));
        }
        let name = self.name('s');
        self.snapshots.push(name.clone());
        Step::Snapshot(name)
    }
}
