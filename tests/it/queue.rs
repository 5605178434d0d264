//! Producers and consumers of a queue over `rowstone serve`. At moments that a seed chooses, one of
//! them or the server is killed.
//!
//! Each consumer reports the time of the commit of each claim, which is the server's, and the time
//! until which it owns the message. At the end, each acknowledged message is in the queue, unless a
//! consumer has sent its delete, and none was claimed within the time of an earlier claim.
//!
//! `ROWSTONE_QUEUE_MINUTES=10` runs for so long instead of some rounds, and `SEED` sets the seed.

#![expect(clippy::disallowed_methods, reason = "threads read the output of child processes")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use rowstone::queue::{Message, Options, Queue};
use rowstone::retry::Rng;
use rowstone::store::{Remote, RemoteOptions, TableStore};
use rowstone::{DateTime, Error, ErrorKind, RetryPolicy, keys};

use crate::follow::{Role, send_line};
use crate::rest::{Place, Server};

/// The default number of rounds. A round is one kill.
const ROUNDS: u64 = 10;
/// The number of claims between two kills.
const CLAIMS: usize = 40;
const PRODUCERS: usize = 2;
const CONSUMERS: usize = 3;
const TABLE: &str = "Queues";
const OPTIONS: Options = Options { buckets: 2, max_dequeue_count: 20 };
/// The connection string, set in child processes.
const SERVICE: &str = "ROWSTONE_QUEUE_SERVICE";

/// A claim or an extension, in ticks of the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    /// The time of its commit.
    at: u64,
    is_extension: bool,
    /// The time until which no other consumer may claim the message.
    until: u64,
}

/// What the children have reported.
#[derive(Default)]
struct Log {
    put: BTreeSet<String>,
    claims: BTreeMap<String, Vec<Claim>>,
    /// The messages whose delete was sent.
    deleting: BTreeSet<String>,
    deleted: BTreeSet<String>,
    /// The number of claims.
    count: usize,
}

impl Log {
    /// Adds a line of a child. Other lines are those of the test harness.
    fn add(&mut self, line: &str) {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["put", id] => drop(self.put.insert(id.to_owned())),
            ["deleting", id] => drop(self.deleting.insert(id.to_owned())),
            ["deleted", id] => drop(self.deleted.insert(id.to_owned())),
            [word @ ("claimed" | "extended"), id, at, until] => {
                let is_extension = word == "extended";
                let [at, until] = [at, until].map(|ticks| ticks.parse().unwrap());
                let claims = self.claims.entry(id.to_owned()).or_default();
                claims.push(Claim { at, is_extension, until });
                self.count += usize::from(!is_extension);
            }
            _ => {}
        }
    }

    /// Checks that no claim is within the time of an earlier one.
    fn check_times(&self) {
        for (id, claims) in &self.claims {
            let mut claims = claims.clone();
            claims.sort_unstable();
            for pair in claims.windows(2).filter(|pair| !pair[1].is_extension) {
                assert!(pair[0].until <= pair[1].at, "{id}: {claims:?}");
            }
        }
    }
}

fn open(connection: &str) -> Remote {
    let options = RemoteOptions::new().retries(RetryPolicy::none());
    Remote::open_with(connection, options).unwrap()
}

/// Opens the service of a child process; `None` in the parent.
fn service() -> Option<Remote> {
    std::env::var(SERVICE).ok().map(|connection| open(&connection))
}

fn pause() {
    thread::park_timeout(Duration::from_millis(5));
}

/// Returns a result, or `None` after a pause if the server is killed.
fn unless_killed<T>(result: Result<T, Error>) -> Option<T> {
    let kinds = [ErrorKind::Io, ErrorKind::OutcomeUnknown, ErrorKind::Busy, ErrorKind::Timeout];
    match result {
        Err(error) if kinds.contains(&error.kind()) => {
            pause();
            None
        }
        result => Some(result.unwrap()),
    }
}

/// Puts messages until it is killed, and reports those that are stored.
#[test]
fn the_producer() {
    let Some(store) = service() else { return };
    let queue = Queue::open(&store, TABLE, "jobs", OPTIONS).unwrap();
    let mut rng = Rng::from_entropy();
    loop {
        // With few messages in the queue, those that come back are claimed again soon.
        if unless_killed(queue.peek(32)).is_none_or(|waiting| waiting.len() == 32) {
            pause();
            continue;
        }
        let texts = vec!["a job"; 1 + rng.index(6)];
        let ids = unless_killed(queue.put_many(&texts)).unwrap_or_default();
        ids.iter().for_each(|id| send_line(format_args!("put {id}")));
        pause();
    }
}

/// Claims and deletes messages until it is killed. Drops some, and extends some.
#[test]
fn the_consumer() {
    let Some(store) = service() else { return };
    let queue = Queue::open(&store, TABLE, "jobs", OPTIONS).unwrap();
    let mut rng = Rng::from_entropy();
    loop {
        let timeout = Duration::from_millis(500 + rng.below(2_000));
        let claimed = unless_killed(queue.claim(1 + rng.index(16), timeout)).unwrap_or_default();
        if claimed.is_empty() {
            pause();
        }
        let mut owned = Vec::new();
        for mut message in claimed {
            if !report(&store, "claimed", &message) || rng.chance(1, 10) {
                continue;
            }
            if rng.chance(1, 5) {
                match queue.extend(&message, timeout) {
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    extended => match unless_killed(extended) {
                        Some(extended) if report(&store, "extended", &extended) => {
                            message = extended;
                        }
                        _ => continue,
                    },
                }
            }
            owned.push(message);
        }
        owned.iter().for_each(|message| send_line(format_args!("deleting {}", message.id)));
        let Some(void) = unless_killed(queue.delete_many(&owned)) else { continue };
        for message in owned.iter().filter(|message| !void.contains(message)) {
            send_line(format_args!("deleted {}", message.id));
        }
    }
}

/// Reports a claim with the time of its commit. Returns false if its row cannot be read any more.
fn report(store: &dyn TableStore, word: &str, message: &Message) -> bool {
    let Message { id, next_visible, .. } = message;
    let bucket = keys::bucket(id, OPTIONS.buckets);
    let row_key = format!("{}-{id}", keys::pad(next_visible.ticks(), 19).unwrap());
    let row = unless_killed(store.get(TABLE, &format!("jobs-{bucket}"), &row_key, &[]));
    let at = row.flatten().and_then(|row| row.timestamp());
    if let Some(at) = at {
        send_line(format_args!("{word} {id} {} {}", at.ticks(), next_visible.ticks()));
    }
    at.is_some()
}

/// The server, its clients, and what they have reported.
struct Run {
    place: Place,
    server: Option<Server>,
    connection: String,
    children: Vec<Role>,
    log: Arc<(Mutex<Log>, Condvar)>,
    readers: Vec<thread::JoinHandle<()>>,
}

impl Run {
    fn new() -> Self {
        let place = Place::new();
        let server = place.serve("");
        let connection = server.connection();
        open(&connection).create_table(TABLE).unwrap();
        let mut run = Self {
            place,
            server: Some(server),
            connection,
            children: Vec::new(),
            log: Arc::default(),
            readers: Vec::new(),
        };
        run.children = (0..PRODUCERS + CONSUMERS).map(|index| run.start(index)).collect();
        run
    }

    /// Starts a producer or a consumer, whose lines a thread reads.
    fn start(&mut self, index: usize) -> Role {
        let name = if index < PRODUCERS { "queue::the_producer" } else { "queue::the_consumer" };
        let mut command = Role::command(name);
        let mut child =
            command.env(SERVICE, &self.connection).stdin(Stdio::null()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let log = Arc::clone(&self.log);
        self.readers.push(thread::spawn(move || {
            let mut line = String::new();
            // A killed child may leave a part of a line.
            while output.read_line(&mut line).is_ok() && line.ends_with('\n') {
                log.0.lock().unwrap().add(&line);
                log.1.notify_all();
                line.clear();
            }
        }));
        Role(child)
    }

    /// Waits for some claims, and kills one process. Returns what was killed.
    fn round(&mut self, rng: &mut Rng) -> &'static str {
        let (log, more) = &*self.log;
        let mut log = log.lock().unwrap();
        let enough = log.count + CLAIMS;
        while log.count < enough {
            let ended = self.children.iter_mut().any(|it| it.0.try_wait().unwrap().is_some());
            assert!(!ended, "a child has ended");
            log = more.wait(log).unwrap();
        }
        drop(log);
        let index = rng.index(self.children.len() + 1);
        if index == self.children.len() {
            let at = self.server.take().unwrap().address();
            self.server = Some(self.place.serve(&format!("--listen {at}")));
            return "server";
        }
        self.children[index].kill();
        self.children[index] = self.start(index);
        if index < PRODUCERS { "producer" } else { "consumer" }
    }

    /// Ends all children, claims what is left, and checks that nothing was lost.
    fn finish(mut self) {
        self.children.iter_mut().for_each(Role::kill);
        self.readers.drain(..).for_each(|reader| reader.join().unwrap());
        let mut log = std::mem::take(&mut *self.log.0.lock().unwrap());
        log.check_times();
        let store = open(&self.connection);
        let queue = Queue::open(&store, TABLE, "jobs", OPTIONS).unwrap();
        let poison = queue.poisoned(1_000).unwrap();
        let mut left: BTreeSet<String> = poison.into_iter().map(|message| message.id).collect();
        // The last claims of the children end after at most 2.5 s.
        let until = DateTime::now().ticks() + 40_000_000;
        loop {
            let claimed = queue.claim(32, Duration::from_secs(3_600)).unwrap();
            if claimed.is_empty() {
                if DateTime::now().ticks() > until {
                    break;
                }
                pause();
            }
            for message in &claimed {
                assert!(!log.deleted.contains(&message.id), "{message:?} was deleted");
            }
            left.extend(claimed.into_iter().map(|message| message.id));
        }
        let (count, deleted) = (log.count, log.deleted.len());
        log.put.retain(|id| !log.deleting.contains(id) && !left.contains(id));
        assert_eq!(log.put, BTreeSet::new(), "lost");
        crate::say(format_args!("{count} claims, {deleted} deleted, {} were left", left.len()));
    }
}

#[test]
fn killed_producers_consumers_and_servers_lose_nothing() {
    let minutes = crate::cases("ROWSTONE_QUEUE_MINUTES", 0);
    let seed = crate::cases("SEED", Rng::from_entropy().next_u64());
    let (mut rng, mut run) = (Rng::from_seed(seed), Run::new());
    let until = DateTime::now().ticks() + minutes * 600_000_000;
    let mut killed = BTreeMap::<_, u64>::new();
    let mut rounds = 0;
    while rounds < ROUNDS || DateTime::now().ticks() < until {
        *killed.entry(run.round(&mut rng)).or_default() += 1;
        rounds += 1;
    }
    crate::say(format_args!("SEED={seed}: killed {killed:?}"));
    run.finish();
}
