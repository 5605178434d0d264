//! Implements `Store` with rowstone. Rows are typed; rowstone itself implements conditions, groups,
//! filters and drops of partitions.
//!
//! Invariants
//! * checksums, checks and durability have their defaults; none is turned off;
//! * entities are built by `EntityEncoder`, which is meant for programs that write many entities of
//!   one kind; groups and single inserts pass properties, and rowstone builds no entity.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use rowstone::{
    DateTime, Db, Durability as Native, ETag, Entity, EntityEncoder, EntityGroup, ErrorKind,
    KeyRange, Query, RowDecoder, RowView, Table, ValueRef,
    load::LoadMode,
    options::{Codec, IoMode},
    prop,
};

use super::About;
use super::shared::available_memory;
use crate::process::disk_bytes;
use crate::reading::{Digest, Key, Properties, Reading, bytes, number, partition_of, text};
use crate::sheet::{Kind, OwnedItem, Sheet};
use crate::store::{Change, Durability, Filter, Found, Setup, Store, Version};

pub const ABOUT: About = About {
    name: "rowstone",
    version: "as in this repository",
    settings: &[
        "Memtables of a third of the write buffers, because up to three are in memory.",
        "Files are mapped, the default: their cache is the page cache. Compressed files use a \
         block cache of the size that every engine gets. So do all files if they are larger than \
         the memory of the process when it opens them (Options::io_mode).",
        "All other options have their defaults: checksums on every block, one compaction thread on \
         two processors.",
        "Compressed: zstd at level 6 in sorted runs (Options::codec).",
    ],
};

const NAMES: [&str; 10] = [
    "At",
    "Battery",
    "Counter",
    "Firmware",
    "Humidity",
    "Note",
    "Online",
    "Pressure",
    "Site",
    "Temperature",
];

thread_local! {
    /// A reused encoder keeps the shape (property names and types) from one entity to the next.
    /// Applications that write many entities of one kind also reuse it.
    static ENCODER: RefCell<EntityEncoder> = RefCell::default();
    /// A reused group keeps its memory.
    static GROUP: RefCell<EntityGroup> = RefCell::new(EntityGroup::new(""));
    /// A reused decoder keeps the shape from one row to the next. Applications that read many rows
    /// of one kind also reuse it.
    static DECODER: RefCell<RowDecoder<10>> = RefCell::new(RowDecoder::new(NAMES));
}

/// Background work counts as finished if no counter changed for this long.
const QUIET: Duration = Duration::from_millis(300);

struct Rowstone {
    db: Db,
    sync: Table,
    os: Table,
    compresses: bool,
}

pub fn open(setup: &Setup<'_>) -> Box<dyn Store> {
    let db = Db::options()
        .durability(Native::Os)
        .memtable_bytes((setup.write_buffer_bytes / 3) as usize)
        .cache_bytes(setup.cache_bytes as usize)
        .io_mode(io_mode(setup.dir))
        .codec(if setup.compress { Codec::Zstd } else { Codec::None })
        .open(setup.dir)
        .expect("rowstone opens");
    let table = db.table_or_create("Readings").expect("a table");
    let sync = table.clone().with_durability(Native::Sync);
    let os = table.with_durability(Native::Os);
    Box::new(Rowstone { db, sync, os, compresses: setup.compress })
}

/// Returns the access to table files: read calls for data larger than memory, otherwise a memory
/// map. With a map, page faults of concurrent threads would be slower than read calls.
fn io_mode(dir: &Path) -> IoMode {
    let is_larger = disk_bytes(dir) > available_memory();
    if is_larger { IoMode::Pread } else { IoMode::Mmap }
}

impl Rowstone {
    fn table(&self, durability: Durability) -> &Table {
        match durability {
            Durability::Sync => &self.sync,
            Durability::Os => &self.os,
        }
    }
}

impl Store for Rowstone {
    fn put(&self, reading: &Reading, durability: Durability) {
        self.table(durability).upsert(entity(reading)).expect("a put");
    }

    fn put_group(&self, readings: &[Reading], durability: Durability) {
        GROUP.with_borrow_mut(|group| {
            fill(group, readings, EntityGroup::upsert_properties);
            self.table(durability).commit(&*group).expect("a group");
        });
    }

    fn load(&self, readings: &mut dyn Iterator<Item = Reading>, durability: Durability) {
        let mut loader = self.os.loader().mode(LoadMode::Upsert);
        for (line, reading) in (0..).zip(readings) {
            loader.push(line, entity(&reading)).expect("room on the disk");
        }
        let summary = loader.finish().expect("room on the disk");
        assert_eq!(summary.rejected, 0);
        if durability == Durability::Sync {
            self.sync();
        }
    }

    fn put_in_flight(
        &self,
        readings: &mut dyn Iterator<Item = Reading>,
        in_flight: usize,
        each: &mut dyn FnMut(u64),
    ) -> bool {
        let (mut tickets, mut done) = (VecDeque::with_capacity(in_flight), 0);
        for reading in readings {
            if tickets.len() == in_flight {
                wait(&mut tickets, &mut done, each);
            }
            let mut group = EntityGroup::new(&reading.key.partition);
            group.upsert(entity(&reading)).expect("one partition");
            tickets.push_back(self.sync.commit_async(group).expect("a commit"));
        }
        while !tickets.is_empty() {
            wait(&mut tickets, &mut done, each);
        }
        true
    }

    fn insert(&self, reading: &Reading, durability: Durability) -> bool {
        let Key { partition, row, .. } = &reading.key;
        let inserted = ENCODER.with_borrow_mut(|encoder| {
            let table = self.table(durability);
            table.insert_properties(encoder, partition, row, &mut properties(reading))
        });
        met(inserted, ErrorKind::AlreadyExists)
    }

    fn insert_group(&self, readings: &[Reading], durability: Durability) -> bool {
        GROUP.with_borrow_mut(|group| {
            fill(group, readings, EntityGroup::insert_properties);
            met(self.table(durability).commit(&*group), ErrorKind::AlreadyExists)
        })
    }

    fn version(&self, key: &Key) -> Option<Version> {
        let etag = self.os.with_row(&key.partition, &key.row, |row| Ok(row.etag()));
        etag.expect("a read").map(Version::Tag)
    }

    fn replace_if(&self, reading: &Reading, version: Version, durability: Durability) -> bool {
        let Version::Tag(etag) = version else { panic!("a version of another engine") };
        let done = self.table(durability).replace_if(entity(reading), etag);
        match done.map_err(|error| error.kind()) {
            Err(ErrorKind::PreconditionFailed | ErrorKind::NotFound) => false,
            done => done.map(|_| true).expect("a replacement"),
        }
    }

    fn merge(&self, key: &Key, change: Change, durability: Durability) -> bool {
        let mut patch = Entity::new(&key.partition, &key.row);
        match change {
            Change::Temperature(temperature) => patch.set(NAMES[9], temperature),
            Change::Counter(kind, counter) => patch.set(&kind.names()[kind.counter()], counter),
        };
        met(self.table(durability).merge(patch), ErrorKind::NotFound)
    }

    fn put_sheet(&self, sheet: &Sheet, durability: Durability) {
        let Key { partition, row, .. } = &sheet.key;
        let mut entity = Entity::new(partition, row);
        for (name, item) in sheet.kind.names().iter().zip(&sheet.items) {
            match item.clone() {
                OwnedItem::Whole(value) => entity.set(name, value),
                OwnedItem::Real(value) => entity.set(name, value),
                OwnedItem::Text(value) => entity.set(name, value),
                OwnedItem::Bytes(value) => entity.set(name, value),
            };
        }
        self.table(durability).upsert(entity).expect("a put");
    }

    fn get_sheet(&self, _: Kind, key: &Key) -> Option<Digest> {
        let found = self.os.get(&key.partition, &key.row).expect("a read");
        found.map(|entity| digest_of(&entity))
    }

    fn get(&self, key: &Key) -> Option<Digest> {
        let found = self.os.get(&key.partition, &key.row).expect("a read");
        found.map(|entity| digest_of(&entity))
    }

    fn get_view(&self, key: &Key) -> Option<Digest> {
        DECODER.with_borrow_mut(|decoder| {
            let digest = |row: &RowView<'_>| digest_of_row(decoder, row);
            self.os.with_row(&key.partition, &key.row, digest).expect("a read")
        })
    }

    fn range(&self, key: &Key, limit: usize) -> Found {
        let rows = KeyRange::rows(&key.partition, key.row.as_str()..);
        sum(self.os.scan(rows).top(limit))
    }

    fn scan(&self) -> Found {
        sum(self.os.scan(KeyRange::all()))
    }

    fn filter(&self, filter: Filter) -> Found {
        let query = match filter {
            Filter::Below(limit) => prop(NAMES[9]).lt(limit),
            Filter::Between(low, high) => prop(NAMES[4]).ge(low).and(prop(NAMES[4]).lt(high)),
        };
        sum(self.os.query(query).expect("a filter"))
    }

    fn delete(&self, key: &Key, durability: Durability) {
        met(self.table(durability).delete(&key.partition, &key.row), ErrorKind::NotFound);
    }

    fn take_first(&self, partition: u32, durability: Durability) -> Option<Digest> {
        let table = self.table(durability);
        let partition = partition_of(partition);
        loop {
            let first =
                table.scan(KeyRange::partition(partition.as_str())).top(1).into_iter().next();
            let first = first?.expect("a read");
            let etag: ETag = first.etag().expect("it was read");
            let deleted = table.delete_if(&partition, first.row_key(), etag);
            match deleted.map_err(|error| error.kind()) {
                Ok(()) => return Some(digest_of(&first)),
                // Another thread took the entity.
                Err(ErrorKind::PreconditionFailed | ErrorKind::NotFound) => {}
                Err(kind) => panic!("a delete failed: {kind:?}"),
            }
        }
    }

    fn drop_partition(&self, partition: u32, durability: Durability) {
        self.os.delete_partition(&partition_of(partition)).expect("a drop");
        // Dropping a partition commits with the durability of the database, which may be weaker.
        if durability == Durability::Sync {
            self.sync();
        }
    }

    fn drop_partitions(&self, partitions: std::ops::Range<u32>) {
        let ranges: Vec<_> = partitions.map(|one| KeyRange::partition(partition_of(one))).collect();
        ranges.chunks(100).for_each(|some| self.os.delete_ranges(some).expect("a drop"));
        self.sync();
    }

    fn sync(&self) {
        self.db.sync().expect("a sync");
    }

    fn compact(&self) {
        self.db.compact().expect("room on the disk");
    }

    fn packs_with(&self) -> Option<&'static str> {
        self.compresses.then_some("zstd, level 6")
    }

    fn settle(&self) {
        let mut seen = self.db.stats();
        let mut since = Instant::now();
        while since.elapsed() < QUIET {
            std::thread::park_timeout(Duration::from_millis(10));
            let now = self.db.stats();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
    }

    fn close(self: Box<Self>) {
        self.db.close().expect("no other handle is open");
    }
}

fn wait(tickets: &mut VecDeque<rowstone::Ticket>, done: &mut u64, each: &mut dyn FnMut(u64)) {
    let ticket = tickets.pop_front().expect("one is under way");
    ticket.wait().expect("a commit");
    each(*done);
    *done += 1;
}

/// Returns whether a condition held. An error of `kind` means that it did not; any other error ends
/// the run.
fn met<T>(result: rowstone::Result<T>, kind: ErrorKind) -> bool {
    match result {
        Ok(_) => true,
        Err(error) if error.kind() == kind => false,
        Err(error) => panic!("rowstone: {error}"),
    }
}

/// Adds an operation on a row with the given RowKey to a group.
type Add = for<'g> fn(
    &'g mut EntityGroup,
    &mut EntityEncoder,
    &str,
    &mut [(&str, ValueRef<'_>)],
) -> rowstone::Result<&'g mut EntityGroup>;

/// Fills the group with one operation for each reading, which `add` adds.
fn fill(group: &mut EntityGroup, readings: &[Reading], add: Add) {
    group.reset(&readings[0].key.partition);
    ENCODER.with_borrow_mut(|encoder| {
        for reading in readings {
            add(group, encoder, &reading.key.row, &mut properties(reading)).expect("one partition");
        }
    });
}

fn entity(reading: &Reading) -> Entity {
    let Key { partition, row, .. } = &reading.key;
    let mut properties = properties(reading);
    let entity = ENCODER.with_borrow_mut(|encoder| encoder.entity(partition, row, &mut properties));
    entity.expect("within the limits of the data model")
}

fn properties(reading: &Reading) -> [(&str, ValueRef<'_>); 10] {
    let at = DateTime::from_ticks(reading.at as u64).expect("a valid time");
    [
        (NAMES[0], ValueRef::DateTime(at)),
        (NAMES[1], ValueRef::Int32(reading.battery)),
        (NAMES[2], ValueRef::Int64(reading.counter)),
        (NAMES[3], ValueRef::String(&reading.firmware)),
        (NAMES[4], ValueRef::Double(reading.humidity)),
        (NAMES[5], ValueRef::String(&reading.note)),
        (NAMES[6], ValueRef::Boolean(reading.online)),
        (NAMES[7], ValueRef::Double(reading.pressure)),
        (NAMES[8], ValueRef::String(&reading.site)),
        (NAMES[9], ValueRef::Double(reading.temperature)),
    ]
}

fn term(place: u64, value: ValueRef<'_>) -> Digest {
    match value {
        ValueRef::String(value) => text(place, value),
        ValueRef::Boolean(value) => number(place, u64::from(value)),
        ValueRef::Int32(value) => number(place, value as u64),
        ValueRef::Int64(value) => number(place, value as u64),
        ValueRef::Double(value) => number(place, value.to_bits()),
        ValueRef::DateTime(value) => number(place, value.ticks()),
        ValueRef::Binary(value) => bytes(place, value),
        ValueRef::Guid(_) => panic!("no entity has one"),
    }
}

fn digest_of(entity: &Entity) -> Digest {
    let terms = (0..).zip(entity.properties()).map(|(place, (_, value))| term(place, value));
    terms.fold(0, Digest::wrapping_add)
}

/// Returns all ten properties, decoded to types that are known in advance, as in the other engines.
#[inline]
fn properties_of<'r>(
    decoder: &mut RowDecoder<10>,
    row: &'r RowView<'_>,
) -> rowstone::Result<Properties<'r>> {
    type All<'r> = (DateTime, i32, i64, &'r str, f64, &'r str, bool, f64, &'r str, f64);
    let (at, battery, counter, firmware, humidity, note, online, pressure, site, temperature): All<
        'r,
    > = decoder.decode(row)?;
    Ok(Properties {
        at: at.ticks() as i64,
        battery,
        counter,
        firmware,
        humidity,
        note,
        online,
        pressure,
        site,
        temperature,
    })
}

#[inline]
fn digest_of_row(decoder: &mut RowDecoder<10>, row: &RowView<'_>) -> rowstone::Result<Digest> {
    properties_of(decoder, row).map(|properties| properties.digest())
}

fn sum(query: Query) -> Found {
    let mut found = Found::default();
    let done = DECODER.with_borrow_mut(|decoder| {
        query.for_each_row(|row| {
            found.entities += 1;
            found.digest = found.digest.wrapping_add(digest_of_row(decoder, row)?);
            Ok(ControlFlow::Continue(()))
        })
    });
    done.expect("a read");
    found
}
