//! Measures dropping a tenth of a database, and opening it after a close and after a kill.

use std::process::{Command, Stdio};
use std::time::Instant;

use super::{Bench, Spec};
use crate::measure::Timing;
use crate::oracle::Oracle;
use crate::process;
use crate::reading::{Data, READINGS_PER_DEVICE};
use crate::results::Figures;
use crate::store::Durability::Os;
use crate::store::{Found, Store};

/// Drops the first tenth of the partitions, durably.
pub fn drop_tenth(bench: &mut Bench<'_>, store: &dyn Store, oracle: &mut Oracle) {
    let devices = (bench.spec.entities / READINGS_PER_DEVICE).div_ceil(10) as u32;
    if !bench.wants("drop-tenth") {
        return;
    }
    let entities = (u64::from(devices) * READINGS_PER_DEVICE).min(bench.spec.entities);
    bench.row("drop-tenth", store, true, |_| {
        let (start, cpu) = (Instant::now(), process::cpu_seconds());
        store.drop_partitions(0..devices);
        Timing {
            ops: u64::from(devices),
            entities,
            seconds: start.elapsed().as_secs_f64(),
            cpu_seconds: process::cpu_seconds() - cpu,
            ..Timing::default()
        }
    });
    (0..entities).for_each(|number| oracle.deleted(number));
    assert_eq!(store.scan(), oracle.all(), "the rest is there");
}

/// Measures opening the database, first after a close, then after the kill of a process that wrote
/// to it.
pub fn open_again(bench: &mut Bench<'_>, name: &str, store: Box<dyn Store>, oracle: &mut Oracle) {
    store.close();
    if bench.wants("open-closed") {
        reopen(bench, "open-closed", name, oracle, 0).close();
    }
    if bench.wants("open-killed") {
        let writes = (bench.spec.entities / 10).clamp(10, 50_000);
        kill_while_writing(bench.spec, name, oracle.count, writes);
        (0..writes).for_each(|_| oracle.inserted());
        let store = reopen(bench, "open-killed", name, oracle, writes);
        assert_eq!(store.scan(), oracle.all(), "what was handed to the system survives a kill");
        store.close();
    }
}

/// Opens the database and reads its last entity.
fn reopen(
    bench: &mut Bench<'_>,
    row: &str,
    name: &str,
    oracle: &Oracle,
    writes: u64,
) -> Box<dyn Store> {
    let last = oracle.count - 1;
    let key = oracle.data.key(last);
    let (start, cpu) = (Instant::now(), process::cpu_seconds());
    let store = bench.spec.open(name);
    let found = Found::one(store.get(&key));
    let seconds = start.elapsed().as_secs_f64();
    let cpu_seconds = process::cpu_seconds() - cpu;
    assert_eq!(found, Found::one(oracle.digest(last)), "the last entity");
    let timing = Timing { ops: 1, entities: 1, seconds, cpu_seconds, ..Timing::default() };
    let note = (writes > 0).then(|| format!("after {writes} single writes without a sync"));
    let figures = Figures { value: seconds * 1e3, note, ..bench.figures(row, &timing) };
    bench.emit(row, figures);
    store
}

/// Starts another process of this program, which adds `writes` entities to the existing ones and is
/// then killed.
fn kill_while_writing(spec: &Spec, name: &str, first: u64, writes: u64) {
    let program = std::env::current_exe().expect("this program has a path");
    let spec = serde_json::to_string(spec).expect("plain data");
    let status = Command::new(program)
        .arg("die")
        .args([spec, name.to_owned(), first.to_string(), writes.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .expect("this program starts");
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    assert_eq!(signal, Some(9), "it was to be killed: {status}");
}

/// Writes entities `first..first + writes` to the database in `name`, and kills its own process as
/// `kill -9` does.
pub fn die(spec: &Spec, name: &str, first: u64, writes: u64) {
    let store = spec.open(name);
    let data = Data::telemetry(spec.seed);
    for number in first..first + writes {
        store.put(&data.reading(number), Os);
    }
    let own = rustix::process::getpid();
    rustix::process::kill_process(own, rustix::process::Signal::KILL)
        .expect("a process may kill itself");
}
