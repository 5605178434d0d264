//! Processes messages: *queue* with visibility timeouts, over any store.
//!
//! Consumers add up the distance that each carrier flies. The messages of a consumer that dies
//! return after their visibility timeout, so a message may be processed twice. The work tolerates
//! it: its result is an upsert under the message's id. A second argument is a number of messages,
//! whose put, claim and delete are measured.
//!
//! Do not use it to keep work in order, or if each message must be processed exactly once: then the
//! result and the id of the message belong in one group (`ledger`).

use std::collections::BTreeMap;
use std::env;
use std::thread;
use std::time::{Duration, Instant};

use rowstone::queue::{Message, Options, Queue};
use rowstone::store::TableStore;
use rowstone::{Entity, EntityGroup};

mod cookbook;
use cookbook::Result;

/// PartitionKey: queue and bucket.
const QUEUES: &str = "Queues";
/// PartitionKey: the carrier. RowKey: the id of the message.
const FLOWN: &str = "Flown";
/// The number of flights that are put.
pub const FLIGHTS: usize = 1_000;
/// The most messages of a claim.
const CLAIM: usize = 32;
/// The time that a consumer has for the messages of a claim.
const TIMEOUT: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let store = &*cookbook::store_of_arguments()?;
    let queue = open(store, Options::default())?;
    println!("put {} messages", produce(&queue)?);
    println!("a consumer dies with {} messages", die(&queue)?.len());
    let mut processed = [0; 2];
    // The messages of the dead consumer return.
    while processed.iter().sum::<usize>() < FLIGHTS {
        let counts = thread::scope(|scope| {
            let consumer = scope.spawn(|| consume(store, &queue));
            [consume(store, &queue), consumer.join().expect("a consumer panicked")]
        });
        for (sum, count) in processed.iter_mut().zip(counts) {
            *sum += count?;
        }
    }
    println!("the consumers processed {processed:?} messages");
    println!("poison: {:?}", poison(&queue)?);
    println!("{:?}", distances(store)?);
    if let Some(count) = env::args().nth(2) {
        println!("{:.0} messages a second", measure(store, count.parse()?)?);
    }
    Ok(())
}

/// Opens the queue of the flights.
pub fn open(store: &dyn TableStore, options: Options) -> Result<Queue<'_>> {
    cookbook::create_table(store, FLOWN)?;
    Ok(Queue::create(store, QUEUES, "flights", options)?)
}

/// Puts flights, and a message that nothing can process. Returns the number of messages.
pub fn produce(queue: &Queue<'_>) -> Result<usize> {
    let mut texts = vec!["a flight to nowhere".to_owned()];
    cookbook::for_each_flight(|flight| {
        if texts.len() <= FLIGHTS {
            texts.push(format!("{} {}", flight.carrier, flight.distance));
        }
        Ok(())
    })?;
    // A list may be put again after an error: then some flights have two messages.
    Ok(queue.put_many(&texts)?.len())
}

/// Claims messages for a second and does not process them, as a consumer that is killed.
pub fn die(queue: &Queue<'_>) -> Result<Vec<Message>> {
    Ok(queue.claim(CLAIM, Duration::from_secs(1))?)
}

/// Processes messages until none is visible. Returns their number.
pub fn consume(store: &dyn TableStore, queue: &Queue<'_>) -> Result<usize> {
    let (mut processed, mut empty) = (0, 0);
    while empty < 5 {
        let claimed = queue.claim(CLAIM, TIMEOUT)?;
        if claimed.is_empty() {
            // A service waits for messages, longer after each empty claim.
            empty += 1;
            thread::park_timeout(Duration::from_millis(2 << empty));
            continue;
        }
        empty = 0;
        let (good, bad) = work(store, claimed)?;
        // A message whose receipt is void was processed twice.
        processed += good.len() - queue.delete_many(&good)?.len();
        for message in bad {
            queue.extend(&message, Duration::ZERO)?;
        }
    }
    Ok(processed)
}

/// Stores the distance of each flight. Returns the messages that are done, and those that are not
/// flights.
fn work(store: &dyn TableStore, messages: Vec<Message>) -> Result<(Vec<Message>, Vec<Message>)> {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let mut groups = BTreeMap::new();
    for message in messages {
        let flight = message.text.split_once(' ');
        match flight.and_then(|(carrier, distance)| Some((carrier, distance.parse::<i32>().ok()?)))
        {
            Some((carrier, distance)) => {
                let row = Entity::new(carrier, &*message.id).with("Distance", distance);
                let group = groups.entry(carrier.to_owned());
                group.or_insert_with_key(|key| EntityGroup::new(key)).upsert(row)?;
                good.push(message);
            }
            None => bad.push(message),
        }
    }
    for group in groups.values() {
        store.commit(FLOWN, group)?;
    }
    Ok((good, bad))
}

/// Returns the texts of the poison messages.
pub fn poison(queue: &Queue<'_>) -> Result<Vec<String>> {
    Ok(queue.poisoned(100)?.into_iter().map(|message| message.text).collect())
}

/// Returns the distance that each carrier flies.
pub fn distances(store: &dyn TableStore) -> Result<BTreeMap<String, i64>> {
    let mut distances = BTreeMap::new();
    cookbook::for_each(store, FLOWN, "", &[], |row| {
        let distance = distances.entry(row.partition_key().to_owned()).or_default();
        *distance += i64::from(row.get::<i32>("Distance")?);
        Ok(())
    })?;
    Ok(distances)
}

/// Puts messages, claims all and deletes them, each durably. Returns the messages a second.
#[expect(clippy::disallowed_methods, reason = "the program measures, not the engine")]
pub fn measure(store: &dyn TableStore, count: usize) -> Result<f64> {
    let queue = Queue::create(store, QUEUES, "measure", Options::default())?;
    let texts = vec!["0123456789abcdef0123456789abcdef"; 1_000.min(count)];
    let start = Instant::now();
    for _ in 0..count / texts.len() {
        queue.put_many(&texts)?;
    }
    let mut deleted = 0;
    loop {
        let claimed = queue.claim(CLAIM, TIMEOUT)?;
        if claimed.is_empty() {
            return Ok(deleted as f64 / start.elapsed().as_secs_f64());
        }
        queue.delete_many(&claimed)?;
        deleted += claimed.len();
    }
}
