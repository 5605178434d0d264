//! Checks histories of threads that write the same rows with conditions: some linear order of all
//! calls must explain every answer.
//!
//! Each thread follows a seeded program and logs its calls; `rowstone::sim::history` then searches
//! for this order. Rows are written alone or as twins, two rows that only groups write and that
//! scans read as one key. The hot keys change during a program, so that conditions are evaluated on
//! rows in memtables, young files and the sorted run.
//!
//! `LINEAR=n` makes `n` calls in total instead of 300,000.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

// The mutex of `std::sync` is not used, because it blocks inside the standard library, where the
// sanitizer does not see which thread waits for which.
use parking_lot::Mutex;
use rowstone::fs::MemFs;
use rowstone::sim::history::{Answer, Call, Fault, Log, Moments, Op, Open, Pair, Refusal};
use rowstone::sim::history::{check, check_tags};
use rowstone::{
    Db, Durability, ETag, Entity, EntityGroup, Error, ErrorKind, KeyRange, Operation, Options, Seq,
    Snapshot, Table, Ticket,
    clock::ManualClock,
    options::{Background, IoMode},
    retry::Rng,
};

const START: u64 = 133_485_408_000_000_000;
/// The number of keys of a partition, which are hot at the same time. The last two keys are twins.
const HOT: u32 = 8;
const TWINS_FROM: u32 = 6;
/// The number of calls of a thread before it moves to the next partition.
const EPOCH: u64 = 1_000;
const DURABILITIES: [Durability; 3] = [Durability::Buffered, Durability::Os, Durability::Sync];

/// A deliberate fault of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// Occasionally a read returns the result of the previous read of the same key.
    StaleReads,
    /// Occasionally a conditional write is acknowledged but not executed.
    ForgetsWrites,
    /// Replaces without checking the ETag.
    IgnoresTags,
    /// Writes twins with separate commits.
    HalfGroups,
}

#[derive(Clone, Copy)]
struct Plan {
    threads: usize,
    calls: u64,
    background: Background,
    io_mode: IoMode,
    wrong: Wrong,
}

/// The database that the threads call, possibly with a deliberate fault.
struct Store {
    db: Db,
    /// One handle for each durability.
    tables: [Table; 3],
    clock: Arc<ManualClock>,
    wrong: Wrong,
    /// For deliberate faults: the number of reads and conditional writes so far, and the last
    /// answer for each key.
    asked: AtomicU64,
    answered: Mutex<HashMap<u32, Option<(Seq, Pair)>>>,
}

/// A thread that makes a seeded sequence of calls.
struct Client<'s> {
    store: &'s Store,
    thread: u64,
    moments: &'s Moments,
    log: Log<'s>,
    rng: Rng,
    /// The ETags seen last, which may be outdated.
    known: HashMap<u32, Seq>,
    flying: VecDeque<(Open, u32, Ticket)>,
    /// Calls whose tickets were dropped. They are complete once a later commit of this thread is
    /// complete.
    adrift: Vec<Open>,
    held: Option<(Snapshot, u64, u64)>,
    snapshots: u64,
}

/// The reason why a run is rejected.
#[derive(Debug)]
enum Offence {
    History(Fault),
    /// A read returned a part of a group, or a row with properties of different writes.
    Torn(String),
}

type Seen = Result<Option<(Seq, Pair)>, Offence>;

fn is_twin(key: u32) -> bool {
    key % HOT >= TWINS_FROM
}

fn partition(key: u32) -> String {
    format!("p{:04}", key / HOT)
}

/// Returns the row keys of a key: one, or two for twins.
fn rows(key: u32) -> Vec<String> {
    let suffixes: &[&str] = if is_twin(key) { &["a", "b"] } else { &[""] };
    suffixes.iter().map(|suffix| format!("r{}{suffix}", key % HOT)).collect()
}

fn seq(etag: &ETag) -> Seq {
    etag.seq().expect("the tag of a database")
}

fn entity(key: u32, row: &str, pair: Pair) -> Entity {
    let note = "x".repeat(pair.0 as usize % 200);
    let entity = Entity::new(partition(key), row).with("First", pair.0).with("Second", pair.1);
    entity.with("Note", note)
}

fn pair(entity: &Entity) -> Result<(Seq, Pair), Offence> {
    let read = |name: &str| entity.get::<i64>(name).expect("the row has both numbers");
    let pair = Pair(read("First"), read("Second"));
    let note: String = entity.get("Note").expect("the row has the note");
    if note.len() != pair.0 as usize % 200 {
        return Err(Offence::Torn(format!("{entity:?}: the note is from another write")));
    }
    Ok((seq(&entity.etag().expect("read from a table")), pair))
}

/// Returns the content of the rows of one key, which must be equal.
fn combined(key: u32, found: &[Entity]) -> Seen {
    let pairs: Vec<_> = found.iter().map(pair).collect::<Result<_, _>>()?;
    let whole = pairs.is_empty() || pairs.len() == rows(key).len();
    if !whole || pairs.windows(2).any(|two| two[0] != two[1]) {
        return Err(Offence::Torn(format!("key {key}: a group in part: {found:?}")));
    }
    Ok(pairs.first().copied())
}

fn operation(key: u32, row: &str, op: Op, seq: Option<Seq>) -> Operation {
    let etag = seq.map(ETag::from);
    match op {
        Op::Get => unreachable!("not a write"),
        Op::Insert(pair) => Operation::Insert(entity(key, row, pair)),
        Op::Upsert(pair) => Operation::Upsert(entity(key, row, pair)),
        Op::Replace(pair, _) => Operation::Replace(entity(key, row, pair), etag),
        Op::Merge(second, _) => {
            Operation::Merge(Entity::new(partition(key), row).with("Second", second), etag)
        }
        Op::Delete(_) => {
            let (partition_key, row_key) = (partition(key), row.to_owned());
            Operation::Delete { partition_key, row_key, etag }
        }
    }
}

fn refusal(error: &Error) -> Answer {
    Answer::Refused(match error.kind() {
        ErrorKind::AlreadyExists => Refusal::Exists,
        ErrorKind::NotFound => Refusal::Missing,
        ErrorKind::PreconditionFailed => Refusal::Condition,
        _ => panic!("unexpected: {}", error.chain()),
    })
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Awaits the ticket, as an application with a runtime would.
fn block_on(ticket: Ticket) -> rowstone::Result<Vec<Option<ETag>>> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut ticket = pin!(ticket);
    loop {
        match ticket.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

impl Store {
    fn open(fs: &MemFs, plan: &Plan) -> Store {
        let clock = Arc::new(ManualClock::new(START));
        let options = Options::new().fs(Arc::new(fs.clone())).clock(clock.clone());
        let options = options.background(plan.background).io_mode(plan.io_mode);
        let small = options.memtable_bytes(32 << 10).run_file_bytes(64 << 10).block_bytes(1 << 10);
        let db = small.cache_bytes(32 << 10).open("db").unwrap();
        let table = db.table_or_create("Linear").unwrap();
        let tables = DURABILITIES.map(|durability| table.clone().with_durability(durability));
        let (asked, answered) = (AtomicU64::new(0), Mutex::new(HashMap::new()));
        Store { db, tables, clock, wrong: plan.wrong, asked, answered }
    }

    /// True for one call in a hundred if the store has this fault.
    fn errs(&self, wrong: Wrong) -> bool {
        self.wrong == wrong && self.asked.fetch_add(1, Ordering::Relaxed) % 100 == 99
    }

    fn get(&self, key: u32) -> Seen {
        let table = &self.tables[0];
        let found = if is_twin(key) {
            let names = rows(key);
            let range = KeyRange::rows(partition(key), &*names[0]..=&*names[1]);
            table.scan(range).into_iter().collect::<Result<Vec<_>, _>>().unwrap()
        } else {
            Vec::from_iter(table.get(&partition(key), &rows(key)[0]).unwrap())
        };
        let found = combined(key, &found)?;
        if self.wrong == Wrong::StaleReads {
            let before = self.answered.lock().insert(key, found);
            return Ok(before.filter(|_| self.errs(Wrong::StaleReads)).unwrap_or(found));
        }
        Ok(found)
    }

    /// Reads the keys of a partition by one scan.
    fn get_all(&self, first: u32) -> Result<Vec<Option<(Seq, Pair)>>, Offence> {
        let scan = self.tables[0].scan(KeyRange::partition(partition(first)));
        let found: Vec<Entity> = scan.into_iter().collect::<Result<_, _>>().unwrap();
        let of = |key: u32| {
            let rows = rows(key);
            let mine = |entity: &&Entity| rows.iter().any(|row| row == entity.row_key());
            combined(key, &found.iter().filter(mine).cloned().collect::<Vec<_>>())
        };
        (first..first + HOT).map(of).collect()
    }

    fn group(&self, key: u32, op: Op, etag: Option<Seq>) -> EntityGroup {
        let names = rows(key);
        let operations = names.iter().map(|row| operation(key, row, op, etag));
        EntityGroup::from_operations(operations).unwrap()
    }

    /// Commits and waits.
    fn write(
        &self,
        key: u32,
        op: Op,
        etag: Option<Seq>,
        durability: usize,
    ) -> rowstone::Result<Option<Seq>> {
        let etag = etag.filter(|_| self.wrong != Wrong::IgnoresTags);
        if etag.is_some() && self.errs(Wrong::ForgetsWrites) {
            return Ok(etag.filter(|_| !matches!(op, Op::Delete(_))));
        }
        let table = &self.tables[durability];
        if is_twin(key) {
            let operations = self.group(key, op, etag);
            if self.wrong == Wrong::HalfGroups {
                let names = rows(key);
                for row in &names[1..] {
                    let half = operation(key, row, op, etag);
                    table.commit(EntityGroup::from_operations([half]).unwrap())?;
                }
                let half = operation(key, &names[0], op, etag);
                return Ok(table.commit(EntityGroup::from_operations([half])?)?[0]
                    .as_ref()
                    .map(seq));
            }
            let etags = table.commit_with(operations, DURABILITIES[durability])?;
            assert_eq!(etags[0], etags[1], "a group has one tag");
            return Ok(etags[0].as_ref().map(seq));
        }
        let (pk, names) = (partition(key), rows(key));
        let written = match (operation(key, &names[0], op, etag), etag.map(ETag::from)) {
            (Operation::Insert(entity), _) => table.insert(entity).map(Some),
            (Operation::Replace(entity, _), Some(etag)) => table.replace_if(entity, etag).map(Some),
            (Operation::Replace(entity, _), None) => table.replace(entity).map(Some),
            (Operation::Merge(entity, _), Some(etag)) => table.merge_if(entity, etag).map(Some),
            (Operation::Merge(entity, _), None) => table.merge(entity).map(Some),
            (Operation::Delete { .. }, Some(etag)) => {
                table.delete_if(&pk, &names[0], etag).map(|()| None)
            }
            (Operation::Delete { .. }, None) => table.delete(&pk, &names[0]).map(|()| None),
            (Operation::Upsert(entity), _) => table.upsert(entity).map(Some),
            (other, _) => unreachable!("{other:?}"),
        };
        Ok(written?.as_ref().map(seq))
    }
}

impl Client<'_> {
    fn run(mut self, calls: u64) -> Result<(Vec<Call>, u64), Offence> {
        for n in 0..calls {
            let epoch = (n / EPOCH) as u32;
            let any = self.rng.below(u64::from((epoch + 1) * HOT)) as u32;
            let hot = epoch * HOT + any % HOT;
            let key = if self.rng.chance(3, 4) { hot } else { any };
            match self.rng.below(40) {
                0..14 => self.get(key)?,
                14 => self.get_all(key / HOT * HOT)?,
                15 => self.hold_or_read(key)?,
                _ => self.write(key, n),
            }
            while self.flying.len() > self.rng.index(5) {
                self.land();
            }
        }
        while !self.flying.is_empty() {
            self.land();
        }
        // The thread waits for this commit, after which all calls in `adrift` are complete.
        let op = Op::Upsert(Pair(0, 0));
        let call = self.log.invoke(0, op);
        let written = self.store.write(0, op, None, 2);
        self.finish(call, 0, written);
        self.complete_adrift();
        Ok((self.log.into_calls(), self.snapshots))
    }

    fn found(&mut self, key: u32, found: Option<(Seq, Pair)>) -> Answer {
        if let Some((etag, _)) = found {
            self.known.insert(key, etag);
        }
        Answer::Found(found.map(|(seq, pair)| (seq.ticks(), pair)))
    }

    fn get(&mut self, key: u32) -> Result<(), Offence> {
        let call = self.log.invoke(key, Op::Get);
        let found = self.store.get(key)?;
        let answer = self.found(key, found);
        self.log.answer(call, answer);
        Ok(())
    }

    fn get_all(&mut self, first: u32) -> Result<(), Offence> {
        let invoked = self.moments.next();
        let found = self.store.get_all(first)?;
        let returned = self.moments.next();
        for (key, found) in (first..).zip(found) {
            let call = self.log.invoke_at(invoked, key, Op::Get);
            let answer = self.found(key, found);
            self.log.answer_at(returned, call, answer);
        }
        Ok(())
    }

    /// Takes a snapshot, or reads one that was taken earlier. Such a read is logged with the time
    /// at which the snapshot was taken.
    fn hold_or_read(&mut self, key: u32) -> Result<(), Offence> {
        let Some((snapshot, invoked, returned)) = self.held.take() else {
            let invoked = self.moments.next();
            let snapshot = self.store.db.snapshot();
            self.held = Some((snapshot, invoked, self.moments.next()));
            self.snapshots += 1;
            return Ok(());
        };
        let names = rows(key);
        let view = self.store.tables[0].at(&snapshot);
        let found = names.iter().filter_map(|row| view.get(&partition(key), row).unwrap());
        let found = combined(key, &found.collect::<Vec<_>>())?;
        assert!(found.is_none_or(|(seq, _)| seq <= snapshot.seq()));
        let call = self.log.invoke_at(invoked, key, Op::Get);
        let answer = Answer::Found(found.map(|(seq, pair)| (seq.ticks(), pair)));
        self.log.answer_at(returned, call, answer);
        Ok(())
    }

    fn write(&mut self, key: u32, n: u64) {
        // Each write of a run has a different number.
        let number = (n * 16 + self.thread) as i64;
        let pair = Pair(number, number);
        let etag = self.known.get(&key).copied().filter(|_| self.rng.chance(4, 5));
        let demand = etag.map(Seq::ticks);
        let op = match self.rng.below(10) {
            0 => Op::Insert(pair),
            1 => Op::Upsert(pair),
            2..5 => Op::Replace(pair, demand),
            5..8 => Op::Merge(number, demand),
            _ => Op::Delete(demand),
        };
        let durability = self.rng.index(3);
        let call = self.log.invoke(key, op);
        if self.store.wrong != Wrong::Nothing || self.rng.chance(1, 2) {
            let written = self.store.write(key, op, etag, durability);
            return self.finish(call, key, written);
        }
        let table = &self.store.tables[durability];
        match table.commit_async(self.store.group(key, op, etag)) {
            Err(error) => self.log.answer(call, refusal(&error)),
            Ok(ticket) if self.rng.chance(1, 16) => {
                drop(ticket);
                self.adrift.push(call);
            }
            Ok(ticket) => self.flying.push_back((call, key, ticket)),
        }
    }

    /// Waits for the oldest or the newest ticket, at random.
    fn land(&mut self) {
        let oldest = self.rng.chance(1, 2);
        let next = if oldest { self.flying.pop_front() } else { self.flying.pop_back() };
        let Some((call, key, ticket)) = next else { return };
        let etags = if self.rng.chance(1, 2) { ticket.wait() } else { block_on(ticket) };
        let seq = etags.unwrap()[0].as_ref().map(seq);
        self.known.extend(seq.map(|seq| (key, seq)));
        self.log.answer(call, Answer::Written(seq.map(Seq::ticks)));
    }

    fn finish(&mut self, call: Open, key: u32, written: rowstone::Result<Option<Seq>>) {
        match written {
            Ok(etag) => {
                self.known.extend(etag.map(|etag| (key, etag)));
                self.log.answer(call, Answer::Written(etag.map(Seq::ticks)));
                self.complete_adrift();
            }
            Err(error) => self.log.answer(call, refusal(&error)),
        }
    }

    /// Logs the calls in `adrift` as complete. Must be called after a later commit was published,
    /// because then these calls are published, too.
    fn complete_adrift(&mut self) {
        for call in self.adrift.drain(..) {
            self.log.answer(call, Answer::Written(None));
        }
    }
}

/// Flushes, compacts, syncs and sets the clock while the clients run.
fn maintain(store: &Store, done: &AtomicBool) -> u64 {
    let mut rng = Rng::from_seed(4);
    let mut rounds = 0;
    while !done.load(Ordering::Acquire) {
        match rng.below(8) {
            0 => store.db.flush().unwrap(),
            1 => store.db.compact().unwrap(),
            2 => store.db.sync().unwrap(),
            // The clock may jump beyond the Seqs that are reserved.
            3 => store.clock.jump(START + rng.below(600_000_000)),
            _ => drop(store.db.step(std::time::Duration::ZERO)),
        }
        rounds += 1;
        thread::yield_now();
    }
    rounds
}

/// Runs the threads of a plan and checks their history. Returns a summary.
fn run(plan: &Plan, seed: u64) -> Result<String, Offence> {
    let fs = MemFs::new();
    let store = Store::open(&fs, plan);
    let (moments, done) = (Moments::new(), AtomicBool::new(false));
    let client = |thread: usize| Client {
        store: &store,
        thread: thread as u64,
        moments: &moments,
        log: moments.log(thread),
        rng: Rng::from_seed(seed << 8 | thread as u64),
        known: HashMap::new(),
        flying: VecDeque::new(),
        adrift: Vec::new(),
        held: None,
        snapshots: 0,
    };
    let calls_each = plan.calls / plan.threads as u64;
    let (results, rounds) = thread::scope(|scope| {
        let maintenance = scope.spawn(|| maintain(&store, &done));
        let threads: Vec<_> = (0..plan.threads).map(client).collect();
        let threads: Vec<_> =
            threads.into_iter().map(|client| scope.spawn(|| client.run(calls_each))).collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        done.store(true, Ordering::Release);
        (results, maintenance.join().unwrap())
    });
    let (mut calls, mut snapshots) = (Vec::new(), 0);
    for result in results {
        let (logged, taken) = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        calls.extend(logged);
        snapshots += taken;
    }
    // The final reads: the state after all threads have ended, and after a reopening.
    let keys = 0..((calls_each / EPOCH) as u32 + 1) * HOT;
    let mut last = client(plan.threads);
    keys.clone().try_for_each(|key| last.get(key))?;
    let flushes = store.db.stats().get("flushes").unwrap();
    let compactions = store.db.stats().get("compactions").unwrap();
    let report = store.db.verify().unwrap();
    assert!(report.is_sound(), "{:#?}", report.problems);
    store.db.clone().close().unwrap();
    let again = Store::open(&fs, plan);
    let mut reader = Client { store: &again, ..last };
    keys.clone().try_for_each(|key| reader.get(key))?;
    calls.extend(reader.log.into_calls());
    check_tags(&calls).map_err(Offence::History)?;
    check(&calls).map_err(Offence::History)?;
    let refused = calls.iter().filter(|call| matches!(call.answer, Answer::Refused(_))).count();
    let reads = calls.iter().filter(|call| call.op == Op::Get).count();
    Ok(format!(
        "linear: {} threads, {} calls on {} keys explained: {reads} reads, {refused} refusals, {snapshots} \
         snapshots, {flushes} flushes, {compactions} compactions, {rounds} rounds of maintenance",
        plan.threads,
        calls.len(),
        keys.len(),
    ))
}

/// Returns the number of calls of a test that makes `percent` of all calls.
fn calls(percent: u64) -> u64 {
    let all = crate::cases("LINEAR", 300_000);
    all * percent / 100
}

#[track_caller]
fn check_run(plan: &Plan, seed: u64) {
    match run(plan, seed) {
        Ok(said) => crate::say(said),
        Err(Offence::History(fault)) => panic!("{fault}"),
        Err(Offence::Torn(what)) => panic!("{what}"),
    }
}

const PLAN: Plan = Plan {
    threads: 4,
    calls: 0,
    background: Background::Threads,
    io_mode: IoMode::Mmap,
    wrong: Wrong::Nothing,
};

#[test]
fn trap_19_eight_threads_and_the_background() {
    check_run(&Plan { threads: 8, calls: calls(50), ..PLAN }, 1);
}

#[test]
fn trap_19_four_threads_with_a_small_cache() {
    check_run(&Plan { calls: calls(30), io_mode: IoMode::Pread, ..PLAN }, 2);
}

#[test]
fn trap_19_four_threads_that_run_the_steps_themselves() {
    check_run(&Plan { calls: calls(20), background: Background::Manual, ..PLAN }, 3);
}

/// Expects that a store with this fault is detected by its history, or by a torn read if
/// `by_history` is false. On a busy machine the threads may run one after the other, and then the
/// fault has no effect. Therefore up to 50 seeds are tried.
#[track_caller]
fn check_detected(wrong: Wrong, by_history: bool) {
    let plan = Plan { threads: 2, calls: 4_000, wrong, ..PLAN };
    match (4..54).find_map(|seed| run(&plan, seed).err()) {
        None => panic!("{wrong:?} was not detected in 50 runs"),
        Some(Offence::History(fault)) => assert!(by_history, "{fault}"),
        Some(Offence::Torn(what)) => assert!(!by_history, "{what}"),
    }
}

#[test]
fn a_store_with_stale_reads_is_detected() {
    check_detected(Wrong::StaleReads, true);
}

#[test]
fn a_store_that_forgets_writes_is_detected() {
    check_detected(Wrong::ForgetsWrites, true);
}

#[test]
fn a_store_that_ignores_etags_is_detected() {
    check_detected(Wrong::IgnoresTags, true);
}

#[test]
fn a_store_that_writes_half_a_group_is_detected() {
    check_detected(Wrong::HalfGroups, false);
}
