//! Devices write, and their changes are carried to one service. At moments that a seed chooses, the
//! writers, their syncs and the service are killed. A round is one kill of a device. Devices have
//! rounds of their own, because a sync waits for 40 s after a kill of the last one.
//!
//! At the end source and target are compared. Each acknowledged durable write is at the source, and
//! the target has what the source has. The differences that are allowed are counted ([`Left`]).
//!
//! `ROWSTONE_KILLS=200` sets the number of rounds, and `SEED` the seed.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use rowstone::retry::Rng;
use rowstone::store::sync::{Source, SyncJob};
use rowstone::store::{Remote, RemoteOptions, TableStore};
use rowstone::{Db, Durability, Entity, EntityGroup, KeyRange, Options, RetryPolicy};

use super::{Place, Server};
use crate::follow::{Role, send_line};

/// The default number of rounds.
const ROUNDS: u64 = 8;
/// The maximum number of devices.
const DEVICES: u64 = 20;
/// The maximum number of commits that a writer makes without being told to go on.
const BURST_MAX: u64 = 60;
/// The partitions of a log. Commit `n` writes the partition `n % PARTITIONS`.
const PARTITIONS: i64 = 4;
/// Commit `n` deletes the row of commit `n - BACK`, which is in the same partition, if that number
/// is a multiple of three.
const BACK: i64 = 2 * PARTITIONS;
/// The rows that one import adds.
const IMPORTED: i64 = 30;
/// The pause between two looks at the target.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The environment variables of a writer: its database, and the service if it also runs the sync.
const DATABASE: &str = "ROWSTONE_KILLED";
const SERVICE: &str = "ROWSTONE_KILLED_SERVICE";

/// How a device is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// By `rowstone sync`, with all changes kept.
    Beside,
    /// By a thread of the writer with a cursor, with all changes kept.
    Inside,
    /// By `rowstone sync`, with no more changes kept than the database needs itself. So some are
    /// lost, and all rows are compared.
    Lossy,
}

/// The numbers of the rows that only the target has, and why.
#[derive(Debug, Default)]
struct Left {
    /// Expired at the source.
    expired: usize,
    /// Deleted at the source by a change that was lost. Listed in the rejects.
    deleted: usize,
}

/// The service, and the directory of the devices.
struct Target {
    place: Place,
    connection: String,
    /// `None` for a service that is not killed.
    server: Option<Mutex<Option<Server>>>,
}

impl Target {
    /// Kills the server, and starts it again at its address.
    fn kill(&self) {
        let Some(server) = &self.server else { return };
        let mut server = server.lock().unwrap();
        let at = server.as_ref().unwrap().at;
        drop(server.take());
        *server = Some(self.place.serve(&format!("--listen {at}")));
    }

    fn open(&self) -> Remote {
        let options = RemoteOptions::new().retries(RetryPolicy::none());
        Remote::open_with(&self.connection, options).unwrap()
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = self.place.command(arguments);
        command.env("STORE", &self.connection);
        command
    }
}

fn options(kind: Kind) -> Options {
    let kept = if kind == Kind::Lossy { 0 } else { 256 << 20 };
    Db::options().memtable_bytes(16 << 10).run_file_bytes(16 << 10).keep_changes(kept)
}

fn row(number: i64) -> String {
    format!("{number:08}")
}

fn partition(number: i64) -> String {
    format!("p{}", number % PARTITIONS)
}

fn is_deleted(number: i64, last: i64) -> bool {
    number % 3 == 0 && number + BACK <= last
}

/// The database of a device, as its writer has it. All names of tables begin with that of the
/// device, because the target has the tables of all devices.
struct Station {
    db: Db,
    path: PathBuf,
    name: String,
    kind: Kind,
}

impl Station {
    fn open(path: PathBuf) -> Self {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let kind = kind_of(&name);
        let db = options(kind).open(&path).unwrap();
        let station = Self { db, path, name, kind };
        station.db.table_or_create(&station.table("Log")).unwrap();
        let expiring = station.table("Expiring");
        station.db.table_or_create(&expiring).unwrap();
        station.db.set_ttl(&expiring, Some(Duration::from_secs(1))).unwrap();
        station
    }

    fn table(&self, end: &str) -> String {
        format!("{}{end}", self.name)
    }

    /// Returns the number of the last commit.
    fn last(&self) -> i64 {
        let log = self.db.table(&self.table("Log")).unwrap();
        let counter = |n| log.get(&partition(n), "counter").unwrap();
        let numbers = (0..PARTITIONS).filter_map(counter).map(|row| row.get("N").unwrap());
        numbers.max().unwrap_or(0)
    }

    /// Writes a row that expires, and then the group of commit `number`.
    fn write(&self, number: i64, durability: Durability) {
        let own = |row: &str| Entity::new(partition(number), row).with("N", number);
        let expiring = self.db.table(&self.table("Expiring")).unwrap();
        expiring.with_durability(Durability::Os).upsert(own(&row(number))).unwrap();
        let mut group = EntityGroup::new(partition(number));
        group.upsert(own(&row(number)).with("Text", "x".repeat(200))).unwrap();
        group.upsert(own("counter")).unwrap();
        if is_deleted(number - BACK, number) && number > BACK {
            group.delete(&row(number - BACK)).unwrap();
        }
        self.db.table(&self.table("Log")).unwrap().commit_with(group, durability).unwrap();
    }

    /// At random flushes or compacts, or drops, imports or empties a table.
    fn maintain(&self, rng: &mut Rng) {
        let other = self.table("Other");
        match (rng.below(40), self.db.table(&other)) {
            (0, _) => self.db.flush().unwrap(),
            (1, _) => self.db.compact().unwrap(),
            // Drops and deleted ranges that are lost leave rows that no rule names one by one.
            _ if self.kind == Kind::Lossy => {}
            (2 | 3, Ok(_)) => self.db.delete_table(&other).unwrap(),
            (2 | 3, Err(_)) => drop(self.db.import_range(parts(&self.path), &other).unwrap()),
            (4, Ok(table)) => table.delete_range(&KeyRange::partition("p1")).unwrap(),
            _ => {}
        }
    }
}

/// Returns the path of the database from which a device imports.
fn parts(device: &Path) -> PathBuf {
    device.with_extension("parts")
}

fn fill_parts(device: &Path) {
    let source = Db::open(parts(device)).unwrap();
    let mut loader = source.create_table("parts").unwrap().loader();
    for number in 0..IMPORTED {
        let own = Entity::new(partition(number), row(number));
        loader.push(number as u64, own.with("N", number)).unwrap();
    }
    loader.finish().unwrap();
    source.close().unwrap();
}

fn kind_of(device: &str) -> Kind {
    let number: usize = device.trim_start_matches("device").parse().unwrap();
    [Kind::Beside, Kind::Inside, Kind::Beside, Kind::Lossy][number % 4]
}

/// Reads numbers of commits to make, a line each, and acknowledges the durable ones.
#[test]
fn the_writer() {
    let Some(path) = std::env::var_os(DATABASE) else { return };
    let station = Station::open(path.into());
    let mut rng = Rng::from_entropy();
    if let Ok(service) = std::env::var(SERVICE) {
        let (db, name) = (station.db.clone(), station.name.clone());
        thread::spawn(move || carry(db, &name, &service));
    }
    let mut number = station.last();
    for line in std::io::stdin().lock().lines() {
        let burst: u64 = line.unwrap().parse().unwrap();
        for _ in 0..burst {
            number += 1;
            let weaker = [Durability::Os, Durability::Buffered, Durability::Sync];
            let durability = if rng.chance(1, 2) { Durability::Sync } else { *rng.pick(&weaker) };
            station.write(number, durability);
            let word = if durability == Durability::Sync { "wrote" } else { "weaker" };
            send_line(format_args!("{word} {number}"));
            station.maintain(&mut rng);
        }
    }
}

/// Carries the changes until the process is killed.
fn carry(db: Db, name: &str, service: &str) {
    let options = RemoteOptions::new().retries(RetryPolicy::none());
    let service = Remote::open_with(service, options).unwrap();
    let [min, z, max] = [1, 1, 60].map(Duration::from_secs);
    let retries = RetryPolicy::exponential_within(z, min, max).with_retries(u32::MAX);
    let cursor = db.cursor("sync").unwrap();
    let sync = SyncJob::new(Source::Db(db), &service).name(name).cursor(cursor);
    let ended = sync.allow_drop(true).retries(retries).run(true, &mut |_| true);
    crate::say(format_args!("the sync ended: {ended:?}"));
    std::process::exit(1);
}

/// A writer, and the lines that it prints.
struct Writer {
    role: Role,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The number of commits that it was told to make and has not reported.
    pending: u64,
}

/// A device with the processes that are running now.
struct Device<'t> {
    target: &'t Target,
    name: String,
    kind: Kind,
    rng: Rng,
    writer: Option<Writer>,
    sync: Option<Role>,
    /// The last durable commit that was acknowledged.
    wrote: i64,
}

impl<'t> Device<'t> {
    fn new(target: &'t Target, number: u64, seed: u64) -> Self {
        let name = format!("device{number}");
        let device = Self {
            target,
            kind: kind_of(&name),
            name,
            rng: Rng::from_seed(seed ^ number << 32),
            writer: None,
            sync: None,
            wrote: 0,
        };
        Station::open(device.path()).db.close().unwrap();
        fill_parts(&device.path());
        if device.kind != Kind::Lossy {
            // From the first comparison on, the feed has every write.
            device.carry_all();
        }
        device
    }

    fn path(&self) -> PathBuf {
        self.target.place.path(&self.name)
    }

    fn sync_command(&self, more: &str) -> Command {
        let name = &self.name;
        let state = if self.kind == Kind::Lossy { "" } else { &format!("--state {name}.state") };
        let options = format!("--name {name} --rejects {name}.rejects --allow-drop {state} {more}");
        self.target.command(&format!("sync {name} env:STORE {options}"))
    }

    /// Carries everything, and ends.
    fn carry_all(&self) {
        let output = self.sync_command("").output().unwrap();
        assert!(output.status.success(), "{}: {output:?}", self.name);
    }

    fn start(&mut self) {
        if self.writer.is_none() {
            let mut command = Role::command("rest::killed::the_writer");
            command.env(DATABASE, self.path()).stdin(Stdio::piped()).stderr(self.errors("writer"));
            if self.kind == Kind::Inside {
                command.env(SERVICE, &self.target.connection);
            }
            let mut child = command.spawn().unwrap();
            let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            let output = BufReader::new(output);
            self.writer = Some(Writer { role: Role(child), input, output, pending: 0 });
        }
        if self.sync.is_none() && self.kind != Kind::Inside {
            let mut command = self.sync_command("--follow");
            command.stdout(Stdio::null()).stderr(self.errors("sync"));
            self.sync = Some(Role(command.spawn().unwrap()));
        }
    }

    /// Returns a file for the errors of a process.
    fn errors(&self, process: &str) -> File {
        File::create(self.target.place.path(&format!("{}.{process}", self.name))).unwrap()
    }

    fn said(&self, process: &str) -> String {
        std::fs::read_to_string(self.target.place.path(&format!("{}.{process}", self.name)))
            .unwrap_or_default()
    }

    /// Tells the writer to make more commits.
    fn tell(&mut self, commits: u64) {
        let writer = self.writer.as_mut().unwrap();
        writer.pending += commits;
        writeln!(writer.input, "{commits}").unwrap();
    }

    /// Reads reports of the writer until at most `pending` commits are missing. Returns false if it
    /// has ended before.
    fn hear(&mut self, pending: u64) -> bool {
        let writer = self.writer.as_mut().unwrap();
        let mut line = String::new();
        while writer.pending > pending {
            line.clear();
            // A killed writer may leave a part of a line.
            if writer.output.read_line(&mut line).unwrap() == 0 || !line.ends_with('\n') {
                return false;
            }
            let Some((word, number)) = line.trim_end().split_once(' ') else { continue };
            if !["wrote", "weaker"].contains(&word) {
                continue;
            }
            if word == "wrote" {
                self.wrote = number.parse().unwrap();
            }
            writer.pending -= 1;
        }
        true
    }

    /// Runs the processes, and kills at a random moment. Returns what was killed.
    fn round(&mut self) -> &'static str {
        self.start();
        let before = 1 + self.rng.below(BURST_MAX / 4);
        self.tell(before);
        assert!(self.hear(0), "{}: {}", self.name, self.said("writer"));
        if self.wrote > 0 && self.rng.chance(3, 4) {
            self.wait_for_arrival();
        }
        let burst = 1 + self.rng.below(BURST_MAX);
        self.tell(burst);
        let left = self.rng.below(burst + 1);
        assert!(self.hear(left), "{}: {}", self.name, self.said("writer"));
        // Its kill is one for all devices.
        let kills_service = self.name == "device0" && self.target.server.is_some();
        match self.rng.below(if kills_service { 6 } else { 3 }) {
            3.. => {
                self.target.kill();
                "service"
            }
            0 if self.kind != Kind::Inside => {
                self.end_sync();
                "sync"
            }
            1 if self.kind != Kind::Inside => {
                self.end_writer();
                "writer"
            }
            _ => {
                self.end_writer();
                self.end_sync();
                "both"
            }
        }
    }

    fn end_writer(&mut self) {
        let Some(writer) = &mut self.writer else { return };
        writer.role.kill();
        // Reads the acknowledgements that it has sent before.
        self.hear(0);
        self.writer = None;
    }

    fn end_sync(&mut self) {
        if let Some(mut sync) = self.sync.take() {
            let ended = sync.0.try_wait().unwrap();
            assert!(ended.is_none(), "{}: {ended:?} {}", self.name, self.said("sync"));
            sync.kill();
        }
    }

    /// Waits until the target has the last acknowledged commit.
    fn wait_for_arrival(&mut self) {
        let (target, log) = (self.target.open(), format!("{}Log", self.name));
        let is_there = || {
            // The service may be killed.
            let row = target.get(&log, &partition(self.wrote), "counter", &["N"]);
            row.is_ok_and(|row| row.is_some_and(|row| row.get::<i64>("N").unwrap() >= self.wrote))
        };
        while !is_there() {
            let mut roles = self.sync.iter_mut().chain(self.writer.iter_mut().map(|w| &mut w.role));
            let has_ended = roles.any(|role| role.0.try_wait().unwrap().is_some());
            let said = || format!("{}{}", self.said("sync"), self.said("writer"));
            assert!(!has_ended, "{}: {}", self.name, said());
            thread::park_timeout(LOOK_EVERY);
        }
    }

    /// Ends the processes, carries the rest, and compares.
    fn finish(mut self) -> Left {
        self.end_writer();
        self.end_sync();
        let station = Station::open(self.path());
        let last = station.last();
        assert!(last >= self.wrote, "{}: {last} of {}", self.name, self.wrote);
        station.check_log(last);
        // Drops expired rows.
        station.db.compact().unwrap();
        let has_other = station.db.table(&station.table("Other")).is_ok();
        station.db.close().unwrap();
        self.carry_all();
        // A comparison also lists the tables of other devices.
        let all = self.said("rejects");
        let tables = ["Log", "Expiring", "Other"];
        let tables = tables.map(|table| format!(r#""table":"{}{table}""#, self.name));
        let is_own = |line: &&str| tables.iter().any(|table| line.contains(table));
        let rejects = all.lines().filter(is_own).collect::<Vec<_>>().join("\n");
        let left = Left {
            expired: self.check_expiring(last),
            deleted: self.check_deleted(last, &rejects),
        };
        if self.kind != Kind::Lossy {
            assert_eq!((left.deleted, &*rejects), (0, ""), "{}", self.name);
        }
        match has_other {
            true => assert_eq!(self.compare("Other"), [] as [String; 0], "{}", self.name),
            false => {
                let tables = self.target.open().tables().unwrap();
                assert!(!tables.contains(&format!("{}Other", self.name)), "{tables:?}");
            }
        }
        left
    }

    /// Returns the differences of a table between the source and the target.
    fn compare(&self, table: &str) -> Vec<String> {
        let name = &self.name;
        let compare = format!("compare {name} env:STORE --table {name}{table}");
        let output = self.target.command(&compare).output().unwrap();
        assert!(output.status.code().is_some_and(|code| code < 2), "{name}: {output:?}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    /// Returns the numbers of the rows that only the target has; no other difference is allowed.
    fn only_target(&self, table: &str) -> BTreeSet<i64> {
        let number = |line: String| {
            assert!(line.contains(r#""difference":"only-b""#), "{}: {line}", self.name);
            let number = line.split(r#""RowKey":""#).nth(1).unwrap().split('"').next().unwrap();
            number.parse().unwrap_or_else(|_| panic!("{}: {line}", self.name))
        };
        self.compare(table).into_iter().map(number).collect()
    }

    /// Checks that the target has each expired row of which the feed had the write. Returns how
    /// many it has.
    fn check_expiring(&self, last: i64) -> usize {
        let source = Db::open_read_only(self.path()).unwrap();
        let kept = source.table(&format!("{}Expiring", self.name)).unwrap();
        let kept = kept.scan(KeyRange::all()).into_iter();
        let kept: BTreeSet<i64> = kept.map(|row| row.unwrap().get("N").unwrap()).collect();
        let only = self.only_target("Expiring");
        // The writer may have been killed before the group after the last row.
        assert!(only.iter().all(|n| (1..=last + 1).contains(n)), "{}: {only:?}", self.name);
        let is_missing = |n: &i64| !only.contains(n) && !kept.contains(n);
        if self.kind != Kind::Lossy {
            assert_eq!((1..=self.wrote).find(is_missing), None, "{}: not carried", self.name);
        }
        only.len()
    }

    /// Checks that only rows whose delete was lost are left at the target, and that the rejects
    /// list them. Returns their number.
    fn check_deleted(&self, last: i64, rejects: &str) -> usize {
        let only = self.only_target("Log");
        for number in &only {
            let listed = format!(r#""RowKey":"{}""#, row(*number));
            let is_listed = rejects.lines().any(|line| {
                let is_of_log = line.contains(&format!(r#""table":"{}Log""#, self.name));
                is_of_log && line.contains("only-at-target") && line.contains(&listed)
            });
            assert!(is_deleted(*number, last) && is_listed, "{}: {number}", self.name);
        }
        only.len()
    }
}

impl Station {
    /// Checks that the log has exactly the rows of the commits up to `last`.
    fn check_log(&self, last: i64) {
        let log = self.db.table(&self.table("Log")).unwrap();
        let rows = log.scan(KeyRange::all()).into_iter().map(|row| row.unwrap());
        let numbers = rows.filter(|row| row.row_key() != "counter");
        let found: BTreeSet<i64> = numbers.map(|row| row.get("N").unwrap()).collect();
        let expected = (1..=last).filter(|number| !is_deleted(*number, last)).collect();
        assert_eq!(found, expected, "{}", self.name);
    }
}

/// Runs all rounds, and prints what was killed and which differences the rules allowed.
fn run(target: &Target) {
    let rounds = crate::cases("ROWSTONE_KILLS", ROUNDS);
    let seed = crate::cases("SEED", Rng::from_entropy().next_u64());
    crate::say(format_args!("{rounds} rounds with SEED={seed}"));
    let devices = DEVICES.min(rounds);
    let live = |number: u64| {
        let mut device = Device::new(target, number, seed);
        let own = (number..rounds).step_by(devices as usize);
        let killed: Vec<_> = own.map(|_| device.round()).collect();
        (killed, device.finish())
    };
    let done: Vec<(Vec<&str>, Left)> = thread::scope(|scope| {
        let live = &live;
        let devices: Vec<_> =
            (0..devices).map(|number| scope.spawn(move || live(number))).collect();
        devices.into_iter().map(|device| device.join().unwrap()).collect()
    });
    let count = |what| done.iter().flat_map(|(killed, _)| killed).filter(|k| **k == what).count();
    let [syncs, writers, both, services] = ["sync", "writer", "both", "service"].map(count);
    let sum = |of: fn(&Left) -> usize| done.iter().map(|(_, left)| of(left)).sum::<usize>();
    let (expired, deleted) = (sum(|left| left.expired), sum(|left| left.deleted));
    crate::say(format_args!(
        "killed {syncs} syncs, {writers} writers, {both} times both, {services} times the service; \
         only the target has {expired} expired rows, and {deleted} whose deletes were lost"
    ));
}

#[test]
fn killed_syncs_and_writers_lose_nothing() {
    let place = Place::new();
    let server = place.serve("");
    let connection = server.connection();
    run(&Target { place, connection, server: Some(Mutex::new(Some(server))) });
}

#[test]
#[ignore = "tests/clients/run starts Azurite"]
fn killed_syncs_to_azurite_lose_nothing() {
    let connection = std::env::var("ROWSTONE_AZURITE").unwrap();
    run(&Target { place: Place::new(), connection, server: None });
}
