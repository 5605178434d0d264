//! Provides the counters and sizes of a database by name, with their meanings and units, also in
//! the Prometheus text format.
//!
//! Invariant: the macro `stats` lists every field, in the order in which the engine counts them.
//! `lsm::inspect` and `table::counts` do the counting; `rest::metrics` has the server's counters.

use super::prometheus::{Exposition, Metric};

/// The description of a field.
struct Field {
    name: &'static str,
    /// The unit of the field's value.
    unit: &'static str,
    kind: &'static str,
    /// The field's meaning as in the source, with spaces at the start.
    help: &'static str,
}

impl Field {
    /// Returns the field's meaning, in a sentence.
    fn help(&self) -> &'static str {
        self.help.trim_start()
    }
}

/// Defines the fields: each with its meaning, its unit, and its kind (`total`: counted since
/// opening; `now`: the current value).
macro_rules! stats {
    ($($(#[doc = $help:literal])+ $name:ident: $unit:literal $kind:ident,)*) => {
        /// Counters and sizes of an open database. Each field has a unit; a `total` counts since
        /// opening, the others are current values. [`fields`](Self::fields) lists all by name.
        ///
        /// ```
        /// # fn main() -> rowstone::Result<()> {
        /// # use rowstone::{Db, Entity};
        /// let db = Db::open_in_memory()?;
        /// db.create_table("parts")?.insert(Entity::new("bolts", "m4x20"))?;
        /// assert_eq!((db.stats().tables, db.stats().get("tables")), (1, Some(1)));
        /// # Ok(())
        /// # }
        /// ```
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $(
                $(#[doc = $help])+
                #[doc = concat!("\n\nUnit: ", $unit, "; `", stringify!($kind), "`.")]
                pub $name: u64,
            )*
            list: Vec<(&'static str, u64)>,
        }

        const FIELDS: &[Field] = &[$(Field {
            name: stringify!($name),
            unit: $unit,
            kind: stringify!($kind),
            help: concat!($($help),+),
        },)*];

        impl Stats {
            /// Requires: `list` has all fields, in order.
            pub(super) fn new(list: Vec<(&'static str, u64)>) -> Self {
                debug_assert!(list.iter().map(|(name, _)| *name).eq(FIELDS.iter().map(|f| f.name)));
                let mut values = list.iter().map(|(_, value)| *value);
                Self { $($name: values.next().unwrap_or_default(),)* list }
            }
        }
    };
}

stats! {
    /// Number of tables.
    tables: "tables" now,
    /// Queries that read only single keys, or nothing. Reads by `get` are not counted.
    queries_point: "queries" total,
    /// Queries that read a range of rows within one partition.
    queries_row_range: "queries" total,
    /// Queries that read one whole partition.
    queries_partition: "queries" total,
    /// Queries that read more than one partition, but not the whole table.
    queries_partition_range: "queries" total,
    /// Queries that read the whole table.
    queries_table: "queries" total,
    /// Queries that took at least the time set by `Options::slow_query`.
    queries_slow: "queries" total,
    /// Table files in use.
    files: "files" now,
    /// Table files that are open for reading. Each has a memory map or, with `IoMode::Pread`, a
    /// descriptor if it is among the `max_open_files` files read last.
    open_files: "files" now,
    /// Size of the table files.
    file_bytes: "bytes" now,
    /// Size of the keys and encoded rows in table files, before compression.
    raw_bytes: "bytes" now,
    /// Entries in table files, including old versions and tombstones.
    entries: "entries" now,
    /// Entries in table files that mark a key as deleted.
    tombstones: "entries" now,
    /// Key ranges into which the tables are split.
    ranges: "ranges" now,
    /// Size of the largest range.
    range_bytes_max: "bytes" now,
    /// Maximum number of files that a read of one key may have to search.
    sources_max: "files" now,
    /// Maximum number of files that a scan of one range reads at the same time.
    scan_sources_max: "files" now,
    /// Memtables (write buffers) in memory.
    memtables: "memtables" now,
    /// Memory of the memtables.
    memtable_bytes: "bytes" now,
    /// Memory of the caches: blocks, and locations of keys in compressed files.
    cache_bytes: "bytes" now,
    /// Memory of log buffers, which hold commits that are not yet written to the log; spare buffers
    /// included.
    log_buffer_bytes: "bytes" now,
    /// Memory of the key bounds of all table files, and of the block positions of open table files.
    index_bytes: "bytes" now,
    /// Memory of shapes. A shape is a set of property names with types, stored once for all
    /// entities that have it.
    shape_bytes: "bytes" now,
    /// Memory of indexes and buffers of table files that are being written, updated every thousand
    /// rows.
    writer_bytes: "bytes" now,
    /// Memory that the engine counts: the sum of `memtable_bytes`, `cache_bytes`,
    /// `log_buffer_bytes`, `index_bytes`, `shape_bytes` and `writer_bytes`.
    memory_bytes: "bytes" now,
    /// Size of all files of the database; 0 if there is no limit on disk use.
    disk_bytes: "bytes" now,
    /// Limit on disk use (`Options::max_disk`); 0 if there is no limit.
    disk_limit_bytes: "bytes" now,
    /// Writes refused because of the limit on disk use.
    disk_refusals: "writes" total,
    /// Table files dropped from the tables that `Options::on_full` names, to stay below the limit
    /// on disk use.
    oldest_files_dropped: "files" total,
    /// Size of the table files that `oldest_files_dropped` counts.
    oldest_bytes_dropped: "bytes" total,
    /// Logs that a recovery after a crash would read.
    logs: "files" now,
    /// Logs that are kept only for the change feed.
    kept_logs: "files" now,
    /// Size of the logs that are kept only for the change feed.
    kept_log_bytes: "bytes" now,
    /// Commits since opening.
    commits: "commits" total,
    /// Bytes written to logs.
    log_bytes: "bytes" total,
    /// Syncs of logs.
    log_syncs: "syncs" total,
    /// Memtables flushed to table files.
    flushes: "flushes" total,
    /// Bytes written by flushes.
    flush_bytes: "bytes" total,
    /// Merges of table files.
    compactions: "merges" total,
    /// Approximate number of bytes read by merges.
    compaction_bytes_read: "bytes" total,
    /// Bytes written by merges.
    compaction_bytes: "bytes" total,
    /// Bytes written by merges into sorted runs (files whose key spans do not overlap).
    compaction_run_bytes: "bytes" total,
    /// Bytes written by merges of young files (files that are not in a sorted run) into young
    /// files.
    compaction_young_bytes: "bytes" total,
    /// Bytes written by merges that compress ranges at rest (ranges without recent writes).
    compaction_rest_bytes: "bytes" total,
    /// Ranges whose files were merged. A merge of several small ranges counts each of them.
    compaction_jobs: "ranges" total,
    /// Ranges in which a merge rewrote only a part of the key span.
    compaction_jobs_partial: "ranges" total,
    /// Ranges whose files were merged because too many files might contain the same key.
    compaction_jobs_forced: "ranges" total,
    /// Young files that became part of a sorted run without being rewritten.
    joins: "files" total,
    /// Tombstones (marks of deleted keys) that merges removed because no older version of the key
    /// was left.
    tombstones_dropped: "entries" total,
    /// Bytes written to logs and table files since opening, as a percentage of the bytes written to
    /// logs alone.
    write_amplification_percent: "percent" now,
    /// Size of the table files, as a percentage of the estimated size of the live data in them.
    /// Rows that are overwritten in another file count as live. For each tombstone, one row counts
    /// as dead. At most 10,000.
    space_amplification_percent: "percent" now,
    /// Bytes of the keys and rows in all commits since the database was created. See `Db::wear`.
    wear_user_bytes: "bytes" total,
    /// Bytes written to logs, table files, manifests and copies of the database since it was
    /// created.
    wear_bytes: "bytes" total,
    /// Syncs of files and directories since the database was created.
    wear_syncs: "syncs" total,
    /// Bytes written to flash memory for `wear_bytes`, in whole pages of 16 KiB; a lower bound.
    wear_flash_bytes: "bytes" total,
    /// Writes delayed because background work was behind.
    stalls: "writes" total,
    /// Total time for which writes were delayed.
    stall_micros: "microseconds" total,
    /// Table files removed from disk.
    files_removed: "files" total,
    /// Splits of a range into two.
    range_splits: "ranges" total,
    /// Merges of two neighbouring ranges into one.
    range_merges: "ranges" total,
    /// Key spans of deleted rows that scans skipped without reading these rows.
    gaps_passed: "spans" total,
    /// Range tombstones. Each hides the deleted or expired rows of a key span until table files no
    /// longer have these rows.
    fences: "fences" now,
    /// Time by which the clock of expiry, which decides when rows expire, is behind the wall clock.
    /// Above 0 while the engine does not trust the wall clock.
    expiry_lag_seconds: "seconds" now,
    /// Table files known to be damaged. See `Db::quarantined`.
    quarantined_files: "files" now,
    /// 1 if background work fails or a table file is damaged, otherwise 0.
    trouble: "yes or no" now,
}

impl Stats {
    /// Returns the names and values of all fields, in a fixed order.
    pub fn fields(&self) -> &[(&'static str, u64)] {
        &self.list
    }

    /// Returns the value of the field with this name.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.list.iter().find(|(field, _)| *field == name).map(|(_, value)| *value)
    }

    /// Returns the unit of a field: `bytes`, `commits`, `microseconds`, ….
    pub fn unit(name: &str) -> Option<&'static str> {
        field(name).map(|field| field.unit)
    }

    /// Returns the meaning of a field, in a sentence.
    pub fn meaning(name: &str) -> Option<&'static str> {
        field(name).map(Field::help)
    }

    /// Returns all fields in the Prometheus text format. Names begin with `rowstone_`, and names of
    /// counters end with `_total`. Times are in seconds, and percentages are given as ratios: 50 %
    /// is 0.5.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// let db = rowstone::Db::open_in_memory()?;
    /// let text = db.stats().to_prometheus();
    /// assert!(text.contains("# TYPE rowstone_commits_total counter\nrowstone_commits_total "));
    /// # Ok(())
    /// # }
    /// ```
    pub fn to_prometheus(&self) -> String {
        let mut out = Exposition::new();
        put_all(&mut out, &[(&[], self)]);
        out.into_text()
    }
}

/// Writes the fields of several databases, each with its labels, grouped by metric.
pub(crate) fn put_all(out: &mut Exposition, all: &[(&[(&str, &str)], &Stats)]) {
    for field in FIELDS {
        let (metric, units) = metric(field);
        out.begin(&metric);
        for (labels, stats) in all {
            if let Some(value) = stats.get(field.name) {
                out.sample(&metric.name, labels, value as f64 / units);
            }
        }
    }
}

fn field(name: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.name == name)
}

/// Returns the metric of a field, and the divisor that converts the field's value into the metric's
/// base unit, such as seconds.
fn metric(field: &Field) -> (Metric, f64) {
    let (base, units) = match field.unit {
        "percent" => (field.name.replace("_percent", "_ratio"), 100.0),
        "microseconds" => (field.name.replace("_micros", "_seconds"), 1e6),
        _ => (field.name.to_owned(), 1.0),
    };
    let (kind, end) = if field.kind == "total" { ("counter", "_total") } else { ("gauge", "") };
    let name = format!("rowstone_{base}{end}");
    (Metric { name, kind, help: field.help() }, units)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Db;

    #[test]
    fn every_field_is_described_and_every_description_has_a_field() {
        let stats = Db::open_in_memory().unwrap().stats();
        let names: Vec<_> = stats.fields().iter().map(|(name, _)| *name).collect();
        let described: Vec<_> = FIELDS.iter().map(|field| field.name).collect();
        assert_eq!(names, described);
        for name in names {
            assert!(Stats::unit(name).is_some_and(|unit| !unit.is_empty()), "{name}");
            assert!(Stats::meaning(name).is_some_and(|help| help.ends_with('.')), "{name}");
        }
        assert_eq!(
            Stats::meaning("ranges").unwrap(),
            "Key ranges into which the tables are split."
        );
        assert_eq!((Stats::unit("colour"), Stats::meaning("colour")), (None, None));
    }

    /// Parses the text as a scraper does: each sample belongs to the metric before it.
    #[test]
    fn the_text_for_prometheus_can_be_read_back() {
        let db = Db::open_in_memory().unwrap();
        db.create_table("things").unwrap();
        let stats = db.stats();
        let by_name = |name| stats.get(name).unwrap();
        assert_eq!((stats.tables, stats.commits), (1, by_name("commits")));
        assert_eq!((stats.ranges, stats.trouble), (by_name("ranges"), by_name("trouble")));
        let text = stats.to_prometheus();
        let (mut begun, mut seen) = (None, 0);
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                assert!(
                    rest.split_once(' ').is_some_and(|(_, help)| help.ends_with('.')),
                    "{line}"
                );
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                begun = rest.split_once(' ');
                assert!(matches!(begun, Some((_, "counter" | "gauge"))), "{line}");
            } else {
                let (name, value) = line.split_once(' ').unwrap();
                let (metric, kind) = begun.unwrap();
                assert_eq!(name, metric);
                assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
                assert!(name.strip_prefix("rowstone_").is_some_and(|rest| {
                    rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
                }));
                assert!(value.parse::<f64>().unwrap() >= 0.0, "{line}");
                seen += 1;
            }
        }
        assert_eq!(seen, stats.fields().len());
        assert!(text.contains("\nrowstone_tables 1\n"), "{text}");
        let micros = field("stall_micros").unwrap();
        assert_eq!(metric(micros).0.name, "rowstone_stall_seconds_total");
        assert_eq!(2_500_000.0 / metric(micros).1, 2.5);
        let percent = field("write_amplification_percent").unwrap();
        assert_eq!(metric(percent).0.name, "rowstone_write_amplification_ratio");
        assert_eq!(250.0 / metric(percent).1, 2.5);
    }
}
