//! Tests of the events that subscribers of `tracing` receive.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Mutex;
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::*;

/// A subscriber that stores the fields of every event of the engine, with the level as an
/// additional field.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<BTreeMap<String, String>>>>);

struct Fields<'f>(&'f mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl Subscriber for Kept {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "rowstone"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = BTreeMap::new();
        event.record(&mut Fields(&mut fields));
        fields.insert("level".to_owned(), event.metadata().level().to_string());
        self.0.lock().unwrap().push(fields);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Kept {
    /// Returns the names and fields of the events since the last call.
    fn take(&self) -> Vec<(String, BTreeMap<String, String>)> {
        let all = std::mem::take(&mut *self.0.lock().unwrap());
        all.into_iter().map(|fields| (fields["event"].clone(), fields)).collect()
    }
}

#[track_caller]
fn number(fields: &BTreeMap<String, String>, name: &str) -> u64 {
    fields
        .get(name)
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| panic!("{name}: {fields:?}"))
}

/// Uses a database on one thread, from its creation to a checkpoint.
fn live(fs: &MemFs) -> Db {
    let db = options(fs).slow_query(Duration::ZERO).open("db").unwrap();
    let table = db.create_table("things").unwrap();
    for i in 0..3000 {
        table.upsert(row(i, 0)).unwrap();
        while db.step(Duration::ZERO) {}
    }
    db.compact().unwrap();
    while db.step(Duration::ZERO) {}
    db.checkpoint("copy").unwrap();
    assert_eq!(table.query("I ge 2990").unwrap().count().unwrap(), 10);
    // Reports a stall directly, because with one thread no write stalls.
    table.engine.writer().stalled("ranges", Duration::from_micros(7));
    db
}

/// The events of a database on one thread have exactly the documented fields.
#[test]
fn events_have_the_documented_fields() {
    // If there is only one subscriber, `tracing` caches for each event whether the first thread
    // that reached it was interested, and threads of other tests have no subscriber. So this test
    // adds more subscribers, and reaches every event once before it collects them.
    let _others = [(), ()].map(|()| tracing::Dispatch::new(Kept::default()));
    tracing::subscriber::with_default(Kept::default(), || live(&MemFs::new()).close().unwrap());
    let kept = Kept::default();
    let mut seen = BTreeMap::new();
    tracing::subscriber::with_default(kept.clone(), || {
        let fs = MemFs::new();
        let db = live(&fs);
        let mut told = kept.take();
        let (name, opened) = told.remove(0);
        assert_eq!((&*name, &*opened["created"], &*opened["db"]), ("opened", "true", "db"));
        seen.insert(name, opened);
        let count = |event: &str| told.iter().filter(|(name, _)| name == event).count() as u64;
        let stats = db.stats();
        assert_eq!(count("flushed"), stats.get("flushes").unwrap());
        assert_eq!(count("compacted"), stats.get("compactions").unwrap());
        assert_eq!(count("split"), stats.get("range_splits").unwrap());
        let bytes = |event: &str| {
            let of = told.iter().filter(|(name, _)| name == event);
            of.map(|(_, fields)| number(fields, "bytes")).sum::<u64>()
        };
        assert_eq!(bytes("flushed"), stats.get("flush_bytes").unwrap());
        assert_eq!(bytes("compacted"), stats.get("compaction_bytes").unwrap());
        let first = &told.iter().find(|(name, _)| name == "flushed").unwrap().1;
        assert_eq!((&*first["cause"], &*first["level"]), ("full", "INFO"));
        assert!(number(first, "memtable_bytes") >= 64 << 10);
        seen.extend(told);
        assert_eq!(seen["slow_query"]["class"], "Full table scan");
        assert_eq!(seen["checkpoint"]["target"], "copy");
        assert_eq!((&*seen["stalled"]["cause"], number(&seen["stalled"], "micros")), ("ranges", 7));
        db.close().unwrap();
        let again = open(&fs);
        assert_eq!(kept.take()[0].1["created"], "false");
        again.close().unwrap();
    });
    let documented = documented();
    for (name, fields) in &seen {
        let fields: Vec<_> = fields.keys().map(String::as_str).collect();
        let mut expected = documented[name].clone();
        expected.extend(["db", "event", "level"].map(str::to_owned));
        expected.sort_unstable();
        assert_eq!(fields, expected, "{name}");
    }
    assert!(seen.len() >= 6, "{seen:?}");
}

/// Returns the names of events and of their fields, from the table in docs/OPERATIONS.md.
fn documented() -> BTreeMap<String, Vec<String>> {
    let rows = include_str!("../../../docs/OPERATIONS.md").lines().filter_map(|line| {
        let cells: Vec<_> = line.strip_prefix("| `")?.split('|').collect();
        let levels = ["debug", "info", "warn", "error"];
        if cells.len() < 4 || !levels.contains(&cells[1].trim()) {
            return None;
        }
        let name = cells[0].trim().trim_end_matches('`').to_owned();
        // Skips text in parentheses, which explains the values of a field.
        let mut depth = 0;
        let plain: String = cells[3]
            .chars()
            .filter(|c| {
                depth += i32::from(*c == '(');
                let is_plain = depth == 0;
                depth -= i32::from(*c == ')');
                is_plain
            })
            .collect();
        let fields = plain.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        Some((name, fields))
    });
    let mut rows: BTreeMap<String, Vec<String>> = rows.collect();
    let same = rows["split"].clone();
    rows.insert("merged".to_owned(), same);
    rows
}
