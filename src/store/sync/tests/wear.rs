//! The bytes that a sync writes to the flash of its device.

use super::*;
use crate::options::Durability;

/// The simulated time: long enough for flushes and merges, and for all saved positions.
const SECONDS: u64 = 3_000;
const SENSORS: u64 = 10;
const PAGE: u64 = 4 << 10;

/// Where a sync saves its position on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    NoSync,
    TargetAlone,
    Cursor,
    File,
}

/// A device that writes the readings of ten sensors each second, and carries them. A power cut may
/// lose those of the last second or minute.
struct Readings {
    device: Device,
    loses_a_minute: bool,
}

impl Readings {
    fn new(at: At, loses_a_minute: bool) -> Self {
        let (fs, clock) = (Arc::new(MemFs::new()), Arc::new(ManualClock::new(NOW)));
        let options = Options::edge().fs(Arc::clone(&fs) as _).clock(Arc::clone(&clock) as _);
        let kept = if at == At::NoSync { 0 } else { 64 << 20 };
        let options = options.background(Background::Manual).durability(Durability::Buffered);
        let options = options.max_commit_delay(Duration::from_secs(60)).keep_changes(kept);
        let db = options.open("device").unwrap();
        db.create_table("Readings").unwrap();
        db.set_ttl("Readings", Some(Duration::from_secs(1_800))).unwrap();
        let device = Device { fs, clock, db, jobs: Cell::new(0) };
        Self { device, loses_a_minute }
    }

    fn second(&self, second: u64) {
        let Device { db, clock, .. } = &self.device;
        let table = db.table("Readings").unwrap();
        for sensor in 0..SENSORS {
            let row = format!("2024-01-01T00:{:02}:{:02}", second / 60, second % 60);
            let noise = second.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (32 + sensor) & 0xfff;
            let entity = Entity::new(format!("sensor-{sensor:02}"), row)
                .with("Battery", 97)
                .with("Celsius", 20.0 + noise as f64 / 100.0)
                .with("Humidity", 50.0 - noise as f64 / 200.0);
            table.upsert(entity).unwrap();
        }
        clock.advance(Duration::from_secs(1));
        if !self.loses_a_minute {
            db.sync().unwrap();
        }
        while db.step(Duration::ZERO) {}
    }
}

/// Returns the bytes to the flash in whole pages, also those of the state file, which has a disk of
/// its own here.
fn worn(at: At, loses_a_minute: bool) -> u64 {
    let readings = Readings::new(at, loses_a_minute);
    let Device { db, clock, .. } = &readings.device;
    let (target, disk) = (Db::open_in_memory().unwrap(), Arc::new(MemFs::new()));
    disk.record();
    let parts = (Arc::clone(clock) as _, Rng::from_seed(1));
    let mut job = SyncJob::with(Source::Db(db.clone()), &target, parts);
    job = match at {
        At::NoSync | At::TargetAlone => job,
        At::Cursor => job.cursor(db.cursor("sync").unwrap()),
        At::File => job.state_file_in(Arc::clone(&disk) as _, Path::new("state")).unwrap(),
    };
    for second in 0..SECONDS {
        readings.second(second);
        while at != At::NoSync && job.step().unwrap() == Step::Busy {}
    }
    if at != At::NoSync {
        let carried = target.table("Readings").unwrap().query("").unwrap().count().unwrap();
        let delay = if loses_a_minute { 61 } else { 1 };
        assert!(carried >= (SECONDS - delay) * SENSORS, "{carried} rows");
    }
    let syncs = disk.log().iter().filter(|line| line.starts_with("sync")).count() as u64;
    db.wear().flash_bytes(PAGE) + syncs * PAGE
}

#[test]
fn a_sync_adds_at_most_two_percent_to_the_wear_of_a_device() {
    for loses_a_minute in [true, false] {
        let alone = worn(At::NoSync, loses_a_minute);
        for at in [At::TargetAlone, At::Cursor, At::File] {
            let with = worn(at, loses_a_minute);
            assert!(with * 100 <= alone * 102, "{at:?}: {with} bytes, {alone} without a sync");
        }
    }
}

/// A target that is away wears the flash by one error, and by two positions when it is back.
#[test]
fn an_absent_target_costs_one_write_of_the_state_file() {
    let (device, target) = (Device::new(), Cut::new());
    device.put("p", "a", 1);
    let disk = Arc::new(MemFs::new());
    let policy = crate::retry::RetryPolicy::fixed(u32::MAX, Duration::from_secs(60));
    let job = device.job(&target).retries(policy);
    let mut job = job.state_file_in(Arc::clone(&disk) as _, Path::new("state")).unwrap();
    while step(&mut job, &device.clock).unwrap() != Step::Idle {}
    device.put("p", "a", 2);
    disk.record();
    *target.fault.lock() = Some((target.requests(), Fault::Away));
    for _ in 0..1_000 {
        step(&mut job, &device.clock).unwrap();
    }
    let renamed = || disk.log().iter().filter(|line| line.starts_with("rename")).count();
    assert_eq!(renamed(), 1);
    *target.fault.lock() = None;
    while step(&mut job, &device.clock).unwrap() != Step::Idle {}
    device.clock.advance(Duration::from_secs(2));
    while step(&mut job, &device.clock).unwrap() != Step::Idle {}
    assert!(renamed() <= 3, "{}", renamed());
}
