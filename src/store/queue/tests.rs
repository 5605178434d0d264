//! Tests of queues over a store that fails, loses answers, and has several consumers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::clock::ManualClock;
use crate::fs::MemFs;
use crate::store::cut::{Cut, Fault};

const NOW: u64 = 134_000_000_000_000_000;
const TABLE: &str = "Queues";
const TIMEOUT: Duration = Duration::from_secs(30);

/// A store with a clock, and how its queue is divided.
struct Bench {
    clock: Arc<ManualClock>,
    store: Cut,
    options: Options,
}

impl Bench {
    fn new(buckets: u32) -> Self {
        let clock = Arc::new(ManualClock::new(NOW));
        let options = crate::options::Options::new().fs(Arc::new(MemFs::new()));
        let db = options.clock(Arc::clone(&clock) as _).open("db").unwrap();
        let mut store = Cut::new();
        store.db = db;
        let bench = Self { clock, store, options: Options { buckets, max_dequeue_count: 3 } };
        bench.store.create_table(TABLE).unwrap();
        bench
    }

    /// Returns a queue whose random numbers begin with a seed.
    fn queue(&self, seed: u64) -> Queue<'_> {
        queue(&self.store, self.options, seed)
    }

    /// Lets the request after `requests` more fail.
    fn fail(&self, requests: u64, fault: Fault) {
        *self.store.fault.lock() = Some((self.store.requests() + requests, fault));
    }

    fn before(&self, requests: u64, run: impl FnOnce() + Send + 'static) {
        *self.store.before.lock() = Some((self.store.requests() + requests, Box::new(run)));
    }

    /// Returns the number of rows of the table.
    fn rows(&self) -> usize {
        Side { store: &self.store.db, table: TABLE }.rows("", &[], 1_000).count()
    }
}

fn queue(store: &dyn TableStore, options: Options, seed: u64) -> Queue<'_> {
    let queue = Queue::open(store, TABLE, "jobs", options).unwrap();
    Queue { rng: Mutex::new(Rng::from_seed(seed)), ..queue }
}

fn texts(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| &*message.text).collect()
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn claimed_messages_are_invisible_until_their_time() {
    let bench = Bench::new(1);
    let [first, second] = [1, 2].map(|seed| bench.queue(seed));
    let ids = first.put_many(&["a", "b", "c"]).unwrap();
    bench.clock.advance(Duration::from_secs(1));
    first.put("d").unwrap();
    assert_eq!(texts(&first.peek(32).unwrap()), ["a", "b", "c", "d"]);
    let claimed = first.claim(2, TIMEOUT).unwrap();
    assert_eq!(texts(&claimed), ["a", "b"]);
    assert_eq!((&*claimed[0].id, claimed[0].dequeue_count), (&*ids[0], 1));
    bench.clock.advance(Duration::from_millis(1));
    assert_eq!(texts(&second.claim(32, TIMEOUT).unwrap()), ["c", "d"]);
    bench.clock.advance(TIMEOUT - Duration::from_millis(2));
    assert_eq!(second.claim(32, TIMEOUT).unwrap(), []);
    bench.clock.advance(Duration::from_millis(1));
    let again = second.claim(2, TIMEOUT).unwrap();
    assert_eq!(texts(&again), ["a", "b"]);
    assert_eq!((&again[0].id, again[0].dequeue_count), (&ids[0], 2));
    assert_eq!(again[0].inserted.ticks(), NOW);
}

#[test]
fn a_receipt_is_void_after_the_message_was_moved() {
    let bench = Bench::new(1);
    let [first, second] = [1, 2].map(|seed| bench.queue(seed));
    first.put_many(&["a", "b"]).unwrap();
    let mut claimed = first.claim(2, TIMEOUT).unwrap();
    // At the same time as the claim, the new deadline would be the same.
    let extended = first.extend(&claimed[0], TIMEOUT).unwrap();
    assert!(extended.next_visible > claimed[0].next_visible);
    assert_eq!(extended.dequeue_count, 1);
    assert_eq!(kind(first.delete(&claimed[0])), Some(ErrorKind::NotFound));
    claimed[0] = first.update(&extended, "half done", TIMEOUT * 2).unwrap();
    bench.clock.advance(TIMEOUT);
    let again = second.claim(2, TIMEOUT).unwrap();
    assert_eq!(texts(&again), ["b"]);
    assert_eq!(kind(first.extend(&claimed[1], TIMEOUT)), Some(ErrorKind::NotFound));
    assert_eq!(first.delete_many(&claimed).unwrap(), [&claimed[1]]);
    // A message that is given back is visible at once.
    second.extend(&again[0], Duration::ZERO).unwrap();
    assert_eq!(first.claim(1, TIMEOUT).unwrap()[0].dequeue_count, 3);
    assert_eq!(bench.rows(), 1);
}

#[test]
fn a_message_is_poison_after_the_maximum_of_claims() {
    let bench = Bench::new(2);
    let queue = bench.queue(1);
    queue.put("bad").unwrap();
    for count in 1..=3 {
        assert_eq!(queue.poisoned(10).unwrap(), []);
        let claimed = queue.claim(32, TIMEOUT).unwrap();
        assert_eq!((texts(&claimed), claimed[0].dequeue_count), (vec!["bad"], count));
        bench.clock.advance(TIMEOUT);
    }
    queue.put("good").unwrap();
    assert_eq!(texts(&queue.peek(32).unwrap()), ["good"]);
    let claimed = queue.claim(32, TIMEOUT).unwrap();
    assert_eq!(texts(&claimed), ["good"]);
    // The other bucket is looked at.
    assert_eq!(queue.claim(32, TIMEOUT).unwrap(), []);
    let poison = queue.poisoned(10).unwrap();
    assert_eq!((texts(&poison), poison[0].dequeue_count), (vec!["bad"], 3));
    assert_eq!(kind(queue.extend(&poison[0], TIMEOUT)), Some(ErrorKind::InvalidInput));
    assert_eq!(queue.delete_many(&[poison, claimed].concat()).unwrap(), [] as [&Message; 0]);
    assert_eq!(bench.rows(), 0);
}

#[test]
fn a_claim_without_an_answer_hands_nothing_out_and_is_not_repeated() {
    // The fault of the group, the kind of the error, and the next dequeue count.
    for (fault, expected, count) in
        [(Fault::Refused, ErrorKind::Io, 1), (Fault::Lost, ErrorKind::OutcomeUnknown, 2)]
    {
        let bench = Bench::new(1);
        let queue = bench.queue(1);
        queue.put_many(&["a", "b"]).unwrap();
        let before = bench.store.requests();
        bench.fail(1, fault);
        assert_eq!(kind(queue.claim(32, TIMEOUT)), Some(expected));
        assert_eq!(bench.store.requests() - before, 2, "{fault:?}");
        bench.clock.advance(TIMEOUT);
        let claimed = queue.claim(32, TIMEOUT).unwrap();
        assert_eq!((texts(&claimed), claimed[0].dequeue_count), (vec!["a", "b"], count));
    }
}

#[test]
fn a_claim_that_was_repeated_or_has_no_etags_is_recognized_by_its_id() {
    for fault in [Fault::Repeated, Fault::NoETags] {
        let bench = Bench::new(1);
        let queue = bench.queue(1);
        queue.put_many(&["a", "b"]).unwrap();
        bench.fail(1, fault);
        let mut claimed = queue.claim(32, TIMEOUT).unwrap();
        assert_eq!(texts(&claimed), ["a", "b"], "{fault:?}");
        bench.fail(0, fault);
        claimed[0] = queue.extend(&claimed[0], TIMEOUT).unwrap();
        assert_eq!(queue.delete_many(&claimed).unwrap(), [] as [&Message; 0]);
        assert_eq!(bench.rows(), 0);
    }
}

#[test]
fn an_answer_after_the_timeout_hands_nothing_out() {
    let bench = Bench::new(1);
    bench.queue(1).put("a").unwrap();
    let clock = Arc::clone(&bench.clock);
    let queue = bench.queue(1);
    let visible = queue.visible("jobs-0", 1).unwrap();
    bench.before(0, move || clock.advance(TIMEOUT));
    assert_eq!(queue.claim_group("jobs-0", visible, TIMEOUT).unwrap(), []);
    assert_eq!(queue.claim(1, TIMEOUT).unwrap()[0].dequeue_count, 2);
}

#[test]
fn consumers_that_meet_share_the_messages() {
    for taken in [1, 2, 4] {
        let bench = Bench::new(1);
        bench.queue(1).put_many(&["a", "b", "c", "d"]).unwrap();
        let (db, options) = (bench.store.db.clone(), bench.options);
        // Another consumer is faster, after this one has read the messages.
        bench.before(1, move || {
            assert_eq!(queue(&db, options, 2).claim(taken, TIMEOUT).unwrap().len(), taken);
        });
        let claimed = bench.queue(1).claim(4, TIMEOUT).unwrap();
        assert_eq!(texts(&claimed), ["a", "b", "c", "d"][taken..]);
    }
    // The third look claims the messages one by one.
    let bench = Bench::new(1);
    bench.queue(1).put_many(&["a", "b", "c", "d"]).unwrap();
    let first = bench.queue(1);
    let visible = first.visible("jobs-0", 4).unwrap();
    assert_eq!(bench.queue(2).claim(1, TIMEOUT).unwrap().len(), 1);
    assert_eq!(first.claim_group("jobs-0", visible.clone(), TIMEOUT).unwrap(), []);
    let claimed = first.claim_each("jobs-0", visible, TIMEOUT).unwrap();
    let found: BTreeSet<&str> = texts(&claimed).into_iter().collect();
    assert_eq!(found, BTreeSet::from(["b", "c", "d"]));
}

#[test]
fn a_delete_without_an_answer_is_repeated() {
    let bench = Bench::new(1);
    let queue = bench.queue(1);
    queue.put_many(&["a", "b", "c"]).unwrap();
    let claimed = queue.claim(3, TIMEOUT).unwrap();
    bench.fail(0, Fault::Lost);
    queue.delete(&claimed[0]).unwrap();
    bench.fail(0, Fault::Lost);
    assert_eq!(queue.delete_many(&claimed[1..2]).unwrap(), [] as [&Message; 0]);
    // After its time, another consumer may have moved the message.
    bench.clock.advance(TIMEOUT);
    bench.fail(0, Fault::Lost);
    assert_eq!(kind(queue.delete(&claimed[2])), Some(ErrorKind::OutcomeUnknown));
}

#[test]
fn limits_are_checked_before_a_request() {
    let bench = Bench::new(1);
    let queue = bench.queue(1);
    let long = "é".repeat(32_769);
    let week = Duration::from_secs(7 * 86_400 + 1);
    let errors = [
        queue.put(&long).err(),
        queue.put_many(&["a", &long]).err(),
        queue.claim(33, TIMEOUT).err(),
        queue.claim(0, TIMEOUT).err(),
        queue.claim(1, Duration::ZERO).err(),
        queue.claim(1, week).err(),
        queue.peek(0).err(),
        Queue::open(&bench.store, TABLE, "", bench.options).err(),
        Queue::open(&bench.store, TABLE, "a/b", bench.options).err(),
        Queue::open(&bench.store, TABLE, "a", Options { buckets: 0, ..bench.options }).err(),
    ];
    assert_eq!(bench.rows(), 0);
    for (number, error) in errors.into_iter().enumerate() {
        assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::InvalidInput), "{number}");
    }
    queue.put("é".repeat(32_768)).unwrap();
    let peeked = queue.peek(1).unwrap();
    let error = queue.delete(&peeked[0]).unwrap_err().to_string();
    assert!(error.contains("was peeked"), "{error}");
    let claimed = queue.claim(1, TIMEOUT).unwrap();
    assert_eq!(kind(queue.extend(&claimed[0], week)), Some(ErrorKind::InvalidInput));
    assert_eq!(kind(queue.update(&claimed[0], long, TIMEOUT)), Some(ErrorKind::InvalidInput));
    let other = Queue::create(&bench.store, "Other", "jobs", bench.options).unwrap();
    assert_eq!(other.claim(1, TIMEOUT).unwrap(), []);
    let none = Queue::open(&bench.store, "None", "jobs", bench.options).unwrap();
    assert_eq!(none.claim(1, TIMEOUT).unwrap_err().code(), "TableNotFound");
}

#[test]
fn groups_of_large_messages_are_divided() {
    let bench = Bench::new(1);
    let queue = bench.queue(1);
    // In JSON, and in UTF-8, the longest texts.
    let texts = ["\u{1}", "€", "a"].map(|text| text.repeat(32_768));
    for (text, count) in texts.iter().zip([40, 40, 100]) {
        queue.put_many(&vec![text; count]).unwrap();
        let mut left = count;
        while left > 0 {
            let claimed = queue.claim(32, TIMEOUT).unwrap();
            left -= claimed.len();
            assert!((1..=32).contains(&claimed.len()));
            queue.delete_many(&claimed).unwrap();
        }
    }
}

/// What a consumer knows of a message.
#[derive(Debug, Default)]
struct Known {
    /// The texts that it may have.
    texts: BTreeSet<String>,
    /// The time until which it must not be handed out.
    hidden_until: u64,
    dequeue_count: u32,
    is_deleted: bool,
    may_be_deleted: bool,
}

/// Consumers and producers in random order, whose answers are lost.
struct Model<'b> {
    bench: &'b Bench,
    rng: Rng,
    queues: Vec<(Queue<'b>, Vec<Message>)>,
    /// By id. A put without an answer is known by its first claim.
    known: BTreeMap<String, Known>,
    /// The texts of puts without an answer.
    unknown: BTreeSet<String>,
    puts: u64,
    handed_out: usize,
}

impl Model<'_> {
    fn now(&self) -> u64 {
        self.bench.store.db.now().unwrap().ticks()
    }

    fn step(&mut self) {
        if self.rng.chance(1, 3) {
            use Fault::{Lost, NoETags, Refused, Repeated};
            let fault = *self.rng.pick(&[Lost, Lost, Refused, Repeated, NoETags]);
            self.bench.fail(self.rng.below(5), fault);
        }
        let consumer = self.rng.index(self.queues.len());
        match self.rng.below(10) {
            0 | 1 => self.put(consumer),
            2..=4 => self.claim(consumer),
            5 | 6 => self.renew(consumer),
            7 | 8 => self.delete(consumer),
            _ => self.bench.clock.advance(Duration::from_millis(self.rng.below(20_000))),
        }
    }

    fn put(&mut self, consumer: usize) {
        let count = 1 + self.rng.below(5);
        let texts: Vec<_> = (0..count).map(|number| (self.puts + number).to_string()).collect();
        self.puts += count;
        match self.queues[consumer].0.put_many(&texts) {
            Ok(ids) => {
                for (id, text) in ids.into_iter().zip(texts) {
                    self.known.entry(id).or_default().texts.insert(text);
                }
            }
            // Each group may have been stored.
            Err(_) => self.unknown.extend(texts),
        }
    }

    fn claim(&mut self, consumer: usize) {
        let timeout = Duration::from_millis(1 + self.rng.below(30_000));
        let n = 1 + self.rng.index(8);
        let now = self.now();
        let Ok(claimed) = self.queues[consumer].0.claim(n, timeout) else { return };
        assert!(claimed.len() <= n);
        for message in claimed {
            if !self.known.contains_key(&message.id) {
                assert!(self.unknown.remove(&message.text), "{message:?}");
                self.known
                    .entry(message.id.clone())
                    .or_default()
                    .texts
                    .insert(message.text.clone());
            }
            let known = self.known.get_mut(&message.id).unwrap();
            assert!(known.texts.contains(&message.text), "{message:?} {known:?}");
            assert!(!known.is_deleted && now >= known.hidden_until, "{message:?} {known:?}");
            assert!((known.dequeue_count + 1..=3).contains(&message.dequeue_count), "{known:?}");
            known.texts = BTreeSet::from([message.text.clone()]);
            known.dequeue_count = message.dequeue_count;
            known.hidden_until = message.next_visible.ticks();
            self.handed_out += 1;
            self.queues[consumer].1.push(message);
        }
    }

    fn renew(&mut self, consumer: usize) {
        let timeout = Duration::from_millis(self.rng.below(30_000));
        let now = self.now();
        let (queue, owned) = &mut self.queues[consumer];
        if owned.is_empty() {
            return;
        }
        let index = self.rng.index(owned.len());
        let text = format!("{}+", owned[index].text);
        let known = self.known.get_mut(&owned[index].id).unwrap();
        match queue.update(&owned[index], &text, timeout) {
            Ok(message) => {
                known.texts = BTreeSet::from([text]);
                known.hidden_until = message.next_visible.ticks();
                owned[index] = message;
            }
            Err(error) if error.kind() == ErrorKind::OutcomeUnknown => {
                known.texts.insert(text);
                known.hidden_until = known.hidden_until.min(now);
            }
            Err(error) => {
                let is_void = error.kind() == ErrorKind::NotFound;
                assert!(is_void || error.kind() == ErrorKind::Io, "{error}");
                if is_void {
                    owned.swap_remove(index);
                }
            }
        }
    }

    fn delete(&mut self, consumer: usize) {
        // A repeated delete finds no row, as if the receipt were void.
        self.bench.store.fault.lock().take_if(|(_, fault)| *fault == Fault::Repeated);
        let (queue, owned) = &mut self.queues[consumer];
        let rest = owned.split_off(self.rng.index(owned.len() + 1));
        let done = queue.delete_many(&rest);
        for message in &rest {
            let known = self.known.get_mut(&message.id).unwrap();
            match &done {
                Ok(void) if void.contains(&message) => {}
                // After an update without an answer the receipt may have been void before.
                Ok(_) if known.texts.len() == 1 => known.is_deleted = true,
                Ok(_) => known.may_be_deleted = true,
                Err(_) => known.may_be_deleted = true,
            }
        }
    }

    /// Claims and deletes everything that is left, and checks that nothing was lost.
    fn finish(mut self) -> usize {
        *self.bench.store.fault.lock() = None;
        for _ in 0..4 {
            self.bench.clock.advance(Duration::from_secs(60));
            while self.claim_all() > 0 {}
        }
        let poison = self.queues[0].0.poisoned(1_000).unwrap();
        for message in &poison {
            assert_eq!(message.dequeue_count, 3, "{message:?}");
        }
        for (id, known) in &self.known {
            let is_poison = poison.iter().any(|message| message.id == *id);
            let is_accounted = known.is_deleted || known.may_be_deleted || is_poison;
            assert!(is_accounted, "{id} is lost: {known:?}");
        }
        assert_eq!(self.bench.rows(), poison.len());
        self.handed_out
    }

    /// Claims and deletes once with each consumer. Returns the number of claimed messages.
    fn claim_all(&mut self) -> usize {
        let before = self.handed_out;
        for consumer in 0..self.queues.len() {
            self.claim(consumer);
            let owned = std::mem::take(&mut self.queues[consumer].1);
            let void = self.queues[consumer].0.delete_many(&owned).unwrap();
            for message in owned.iter().filter(|message| !void.contains(message)) {
                self.known.get_mut(&message.id).unwrap().is_deleted = true;
            }
        }
        self.handed_out - before
    }
}

#[test]
fn no_message_is_lost_or_handed_out_twice_within_its_time() {
    let mut handed_out = 0;
    for seed in 0..100 {
        let bench = Bench::new(1 + seed as u32 % 3);
        let queues = (0..3).map(|number| (bench.queue(seed << 8 | number), Vec::new()));
        let mut model = Model {
            bench: &bench,
            rng: Rng::from_seed(seed),
            queues: queues.collect(),
            known: BTreeMap::new(),
            unknown: BTreeSet::new(),
            puts: 0,
            handed_out: 0,
        };
        for _ in 0..120 {
            model.step();
        }
        handed_out += model.finish();
    }
    assert!(handed_out > 3_000, "{handed_out}");
}
