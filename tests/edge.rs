//! Tests the edge profile (options for devices with little memory): writes and reads several times
//! as many bytes as the profile may use in memory. The operating system reports the resident
//! memory, and a counting allocator the size of the heap. One test opens the same files alternately
//! with this profile and with the default options.
//!
//! The test starts this program again and measures that process, which runs only one test. The
//! memory of other tests is therefore not included.

#![expect(
    unsafe_code,
    reason = "an allocator is unsafe to implement; this one forwards to the system's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rowstone::{Db, Durability, Entity, KeyRange, Options, Table, options::Background, retry::Rng};

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grown(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

fn shrunk(bytes: usize) {
    LIVE.fetch_sub(bytes, Ordering::Relaxed);
}

// SAFETY: every call is forwarded unchanged; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: the caller upholds the contract of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        shrunk(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grown(size);
        shrunk(layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// The profile's bound on resident memory.
const RESIDENT_MAX: usize = 16 << 20;
/// Maximum memory that the engine allocates but does not count: iterators, batches, merge stacks.
const UNCOUNTED_MAX: usize = 2 << 20;
/// Maximum open descriptors for table files, and for all other files: logs, manifest, lock,
/// directories, and the files that every process has open.
const TABLES_OPEN_MAX: usize = 4;
const OTHERS_OPEN_MAX: usize = 12;
const SENSORS: u64 = 10;
/// Readings have about 200 bytes each, in total eight times the memory that the process may use.
const READINGS: u64 = 640_000;

/// Environment variables for the measured process: its database directory, and whether it runs
/// background work itself.
const DIR: &str = "ROWSTONE_EDGE_DIR";
const MANUAL: &str = "ROWSTONE_EDGE_MANUAL";

fn reading(number: u64, rng: &mut Rng) -> Entity {
    let sensor = number % SENSORS;
    Entity::new(format!("sensor-{sensor}"), format!("{:012}", number / SENSORS))
        .with("Celsius", rng.below(40_000) as f64 / 1_000.0)
        .with("Pressure", rng.below(1_100_000) as i64)
        .with("Ok", !rng.chance(1, 100))
        .with("Raw", (0..12).map(|_| format!("{:08x}", rng.below(1 << 32))).collect::<String>())
}

/// The maxima of the memory that the engine counted, and of the memory that it allocated but did
/// not count.
#[derive(Default)]
struct Account {
    base: usize,
    most: usize,
    uncounted: usize,
}

impl Account {
    fn look(&mut self, db: &Db) {
        let counted = db.stats().get("memory_bytes").unwrap() as usize;
        let live = LIVE.load(Ordering::Relaxed) - self.base;
        self.most = self.most.max(counted);
        self.uncounted = self.uncounted.max(live.saturating_sub(counted));
    }
}

fn load(db: &Db, table: &Table, account: &mut Account) {
    let (mut rng, manual) = (Rng::from_seed(1), std::env::var_os(MANUAL).is_some());
    for number in 0..READINGS {
        // One reading in twenty is late and overwrites an existing one.
        let late = rng.chance(1, 20);
        let number = if late { rng.below(number + 1) } else { number };
        table.upsert(reading(number, &mut rng)).unwrap();
        if number % 1_000 == 0 {
            account.look(db);
        }
        if manual && number % 100 == 0 {
            db.step(Duration::from_millis(1));
        }
    }
}

fn read(db: &Db, table: &Table, account: &mut Account) {
    let mut rng = Rng::from_seed(2);
    for _ in 0..20_000 {
        let number = rng.below(READINGS);
        let (sensor, row) = (number % SENSORS, format!("{:012}", number / SENSORS));
        table.get(&format!("sensor-{sensor}"), &row).unwrap();
    }
    account.look(db);
    let all = table.scan(KeyRange::all()).into_iter().map(|row| row.unwrap());
    let rows = all.inspect(|row| assert!(row.partition_key().starts_with("sensor"))).count();
    account.look(db);
    let bad = table.query("Ok eq false and Celsius gt 39.5").unwrap();
    assert!(bad.count().unwrap() > 0 && rows as u64 > READINGS / 2);
    account.look(db);
}

/// Checks the open descriptors of this process against the limits, while the database has read more
/// table files than it may hold open.
#[expect(clippy::disallowed_methods, reason = "reads what the system reports about this process")]
fn check_descriptors(db: &Db) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let files = db.stats().get("open_files").unwrap() as usize;
    assert!(files > TABLES_OPEN_MAX + OTHERS_OPEN_MAX, "{files} files prove nothing");
    assert!(descriptors <= TABLES_OPEN_MAX + OTHERS_OPEN_MAX, "{descriptors} descriptors");
}

/// Returns a line of `/proc/self/status` in bytes; the file states kibibytes.
fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// Runs in the measured process; does nothing in any other.
#[test]
fn a_device() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let mut account = Account { base: LIVE.load(Ordering::Relaxed), ..Account::default() };
    let options = Options::edge().durability(Durability::Buffered);
    let options = options.max_open_files(TABLES_OPEN_MAX);
    let options = match std::env::var_os(MANUAL) {
        Some(_) => options.background(Background::Manual),
        None => options,
    };
    let path = Path::new(&dir).join("db");
    let open = || options.clone().open(&path).unwrap();
    let db = open();
    let table = db.create_table("Readings").unwrap();
    load(&db, &table, &mut account);
    read(&db, &table, &mut account);
    db.compact().unwrap();
    account.look(&db);
    let bytes = db.stats().get("file_bytes").unwrap();
    let most = db.stats();
    db.close().unwrap();
    drop(table);
    let db = open();
    read(&db, &db.table("Readings").unwrap(), &mut account);
    check_descriptors(&db);
    let left = format!("{most:?}");
    db.close().unwrap();
    let Account { most, uncounted, .. } = account;
    let (heap, resident) = (PEAK.load(Ordering::Relaxed), status("VmHWM"));
    eprintln!(
        "{} of files; peak resident {}, of the heap {}; counted at most {}, uncounted at most {}",
        mib(bytes as usize),
        mib(resident),
        mib(heap),
        mib(most),
        mib(uncounted)
    );
    assert!(bytes as usize > 4 * RESIDENT_MAX, "{bytes} bytes of files prove nothing");
    assert!(resident <= RESIDENT_MAX, "{} resident\n{left}", mib(resident));
    assert!(uncounted <= UNCOUNTED_MAX, "{} uncounted\n{left}", mib(uncounted));
}

fn mib(bytes: usize) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}

#[track_caller]
fn check_device(is_manual: bool) {
    let dir = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_device", "--nocapture"]).env(DIR, dir.path());
    if is_manual {
        command.env(MANUAL, "1");
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    eprintln!("{said}");
    assert!(output.status.success() && said.contains("peak resident"), "{said}");
}

#[cfg(all(target_os = "linux", feature = "rest", feature = "remote"))]
mod upload {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use rowstone::RetryPolicy;
    use rowstone::store::sync::{Source, SyncJob, SyncStatus};
    use rowstone::store::{Remote, RemoteOptions};

    use super::*;

    /// The environment variable with the connection string of the service.
    const SERVICE: &str = "ROWSTONE_EDGE_SERVICE";
    /// The readings of an hour. Their changes are kept, those of a longer time are not.
    const HOUR: u64 = 3_600 * SENSORS;
    const KEPT_BYTES: u64 = 16 << 20;
    /// The hours before the first sync, and those without a network: `DEVICE=n` sets n hours.
    const HOURS: u64 = 3;

    /// A process that is killed when dropped.
    struct Server(Child);

    impl Drop for Server {
        fn drop(&mut self) {
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }

    /// Carries everything that is new. Returns the number of rows, and the most anonymous memory
    /// between two steps.
    fn carry(db: &Db, service: &Remote) -> (u64, usize) {
        let mut sync = SyncJob::new(Source::Db(db.clone()), service);
        let mut most = 0;
        let mut look = |_: &SyncStatus| {
            most = most.max(status("RssAnon"));
            true
        };
        sync.run(false, &mut look).unwrap();
        (sync.status().rows, most)
    }

    /// Runs in the measured process; does nothing in any other.
    #[test]
    fn a_device_that_uploads() {
        let Ok(service) = std::env::var(SERVICE) else { return };
        let path = Path::new(&std::env::var_os(DIR).unwrap()).join("db");
        let options = Options::edge().durability(Durability::Buffered);
        let db = options.keep_changes(KEPT_BYTES).open(path).unwrap();
        let table = db.create_table("Readings").unwrap();
        let options = RemoteOptions::new().retries(RetryPolicy::none());
        let service = Remote::open_with(&service, options).unwrap();
        let (mut rng, mut written, mut anonymous) = (Rng::from_seed(1), 0, Vec::new());
        let offline = std::env::var("DEVICE").map_or(HOURS, |hours| hours.parse().unwrap()) * HOUR;
        for (readings, is_compared) in [(offline, true), (offline, true), (HOUR, false)] {
            let since = db.position();
            for number in written..written + readings {
                table.upsert(reading(number, &mut rng)).unwrap();
            }
            written += readings;
            db.sync().unwrap();
            assert_eq!(db.changes(since).is_err(), is_compared, "kept changes after {written}");
            let (rows, most) = carry(&db, &service);
            assert_eq!(rows, readings);
            anonymous.push(most);
        }
        let (heap, resident) = (PEAK.load(Ordering::Relaxed), status("VmHWM"));
        let said: Vec<String> = anonymous.iter().map(|bytes| mib(*bytes)).collect();
        eprintln!(
            "{written} readings carried; peak resident {}, of the heap {}; anonymous {said:?}",
            mib(resident),
            mib(heap),
        );
        // The pages of this program, which also has the tests and the server, do not count.
        assert!(heap <= RESIDENT_MAX, "{} of the heap", mib(heap));
        assert!(anonymous.iter().all(|bytes| *bytes <= RESIDENT_MAX), "{said:?} anonymous");
    }

    #[expect(clippy::disallowed_methods, reason = "a thread reads the output of the server")]
    #[test]
    fn a_device_that_uploads_stays_within_its_memory() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_rowstone"));
        command.args(["serve", "cloud", "--listen", "127.0.0.1:0"]).current_dir(dir.path());
        let mut server = Server(command.stderr(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines();
        let is_connection = |line: &String| line.contains("DefaultEndpointsProtocol=");
        let line = lines.find_map(|line| line.ok().filter(is_connection)).unwrap();
        let at = line.find("DefaultEndpointsProtocol=").unwrap();
        // Unread output would block the server.
        std::thread::spawn(move || lines.count());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "upload::a_device_that_uploads", "--nocapture"]);
        let output = command.env(DIR, dir.path()).env(SERVICE, &line[at..]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        eprintln!("{said}");
        assert!(output.status.success() && said.contains("peak resident"), "{said}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn trap_31_a_device_with_one_thread_stays_within_its_memory() {
    check_device(false);
}

#[cfg(target_os = "linux")]
#[test]
fn trap_31_a_device_that_steps_itself_stays_within_its_memory() {
    check_device(true);
}

#[test]
fn the_same_files_open_under_either_profile() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let profiles =
        [Options::edge(), Options::default(), Options::edge().background(Background::Manual)];
    let mut rng = Rng::from_seed(3);
    let mut expected = std::collections::BTreeMap::new();
    for (round, options) in profiles.iter().cycle().take(7).enumerate() {
        let db = options.clone().durability(Durability::Buffered).open(&path).unwrap();
        let table = db.table_or_create("Readings").unwrap();
        for _ in 0..5_000 {
            let entity = reading(rng.below(9_000), &mut rng);
            let key = (entity.partition_key().to_owned(), entity.row_key().to_owned());
            let raw: String = entity.get("Raw").unwrap();
            table.upsert(entity).unwrap();
            expected.insert(key, raw);
        }
        if round % 3 == 1 {
            db.flush().unwrap();
        }
        let found = table.scan(KeyRange::all()).into_iter().map(|entity| {
            let entity = entity.unwrap();
            let key = (entity.partition_key().to_owned(), entity.row_key().to_owned());
            (key, entity.get::<String>("Raw").unwrap())
        });
        assert!(found.eq(expected.clone()), "round {round}");
        assert_eq!(db.verify().unwrap().problems, [""; 0]);
        db.close().unwrap();
    }
}
