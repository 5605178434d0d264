//! Measures dropping a tenth of a database, and opening it after a close and after a kill.

use std::process::{Command, Stdio};
use std::time::Instant;

use super::{Bench, Spec};
use crate::measure::{Timing, latency_of};
use crate::oracle::Oracle;
use crate::plan::RAW_BYTES;
use crate::process;
use crate::reading::{Data, READINGS_PER_DEVICE};
use crate::results::Figures;
use crate::store::Durability::Os;
use crate::store::{Found, Store};

/// The number of durable drops that remove a tenth of the partitions.
const DROPS: u32 = 20;
/// The bytes of raw data that are written before a kill with a full log, and the write buffers that
/// keep them all in the log.
const LOG_BYTES: u64 = 64 << 20;
const LOG_BUFFER_BYTES: u64 = 4 * LOG_BYTES;

/// Drops the first tenth of the partitions by [`DROPS`] durable drops.
pub fn drop_tenth(bench: &mut Bench<'_>, store: &dyn Store, oracle: &mut Oracle) {
    let devices = (bench.spec.entities / READINGS_PER_DEVICE).div_ceil(10) as u32;
    if !bench.wants("drop-tenth") {
        return;
    }
    let entities = (u64::from(devices) * READINGS_PER_DEVICE).min(bench.spec.entities);
    bench.row("drop-tenth", store, true, |_| {
        let (start, cpu) = (Instant::now(), process::cpu_seconds());
        let mut nanos = Vec::new();
        for drop in 0..DROPS {
            let partitions = devices * drop / DROPS..devices * (drop + 1) / DROPS;
            if !partitions.is_empty() {
                let start = Instant::now();
                store.drop_partitions(partitions);
                nanos.push(start.elapsed().as_nanos() as u64);
            }
        }
        Timing {
            ops: nanos.len() as u64,
            entities,
            seconds: start.elapsed().as_secs_f64(),
            cpu_seconds: process::cpu_seconds() - cpu,
            latency: latency_of(&nanos),
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
        reopen(bench, "open-closed", bench.spec, name, oracle, 0).close();
    }
    let writes = (bench.spec.entities / 10).clamp(10, 50_000);
    killed(bench, "open-killed", bench.spec, name, oracle, writes);
    let spec = Spec { write_buffer_bytes: LOG_BUFFER_BYTES, ..bench.spec.clone() };
    let writes = (LOG_BYTES / RAW_BYTES).min(bench.spec.entities * 2);
    killed(bench, "open-killed-64", &spec, name, oracle, writes);
}

/// Measures opening after the kill of a process that did `writes` single writes.
fn killed(
    bench: &mut Bench<'_>,
    row: &str,
    spec: &Spec,
    name: &str,
    oracle: &mut Oracle,
    writes: u64,
) {
    if bench.wants(row) {
        kill_while_writing(spec, name, oracle.count, writes);
        (0..writes).for_each(|_| oracle.inserted());
        let store = reopen(bench, row, spec, name, oracle, writes);
        assert_eq!(store.scan(), oracle.all(), "what was handed to the system survives a kill");
        store.close();
    }
}

/// Opens the database and reads its last entity.
fn reopen(
    bench: &mut Bench<'_>,
    row: &str,
    spec: &Spec,
    name: &str,
    oracle: &Oracle,
    writes: u64,
) -> Box<dyn Store> {
    let last = oracle.count - 1;
    let key = oracle.data.key(last);
    let (start, cpu) = (Instant::now(), process::cpu_seconds());
    let store = spec.open(name);
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
