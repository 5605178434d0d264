//! Converts reports on a database to JSON and back: the ranges of a table with their load, the
//! number of its queries of each kind, and the results of healing files and copying entities. The
//! process that has the database open writes the JSON, and clients of its control socket read it.

use serde_json::value::RawValue;

use crate::db::{
    CopyProblem, CopyProblemKind, CopySummary, FileOutcome, HealReport, LoadPattern,
    PartitionRange, Quarantined, RangeBound,
};
use crate::error::Result;
use crate::json::{self, Members, Object, Scalar};
use crate::table::QueryCounts;

/// The maximum number of members of an object that is read here.
const MEMBERS_MAX: usize = 32;

/// The members of a range that describe its load.
const LOAD_MEMBERS: [&str; 7] = [
    "reads_per_second",
    "writes_per_second",
    "ascending",
    "descending",
    "load",
    "distinct_partitions",
    "heaviest",
];

/// Adds a range. If the load is not known, the members of the load are `null`.
pub(crate) fn put_range(object: &mut Object<'_>, range: &PartitionRange, is_load_known: bool) {
    let bound = |bound: &RangeBound| {
        json::object(|object| {
            object.text("partition_key", &bound.partition_key);
            object.text("row_key", &bound.row_key);
        })
    };
    let bound = |place: &Option<RangeBound>| place.as_ref().map_or("null".to_owned(), bound);
    object.raw("id", range.id);
    object.raw("low", bound(&range.low));
    object.raw("high", bound(&range.high));
    object.raw("bytes", range.bytes);
    object.raw("entities", range.entities);
    object.raw("tombstones", range.tombstones);
    object.raw("files", range.files);
    object.raw("sources", range.sources);
    object.raw("debt", range.debt);
    if !is_load_known {
        LOAD_MEMBERS.iter().for_each(|member| object.raw(member, "null"));
        return;
    }
    object.raw("reads_per_second", range.reads);
    object.raw("writes_per_second", range.writes);
    object.raw("ascending", range.ascending);
    object.raw("descending", range.descending);
    object.text("load", range.pattern.name());
    object.raw("distinct_partitions", range.distinct);
    object.objects("heaviest", &range.heaviest, |object, (key, share)| {
        object.text("partition_key", key);
        object.raw("share", share);
    });
}

pub(super) fn put_queries(object: &mut Object<'_>, queries: &QueryCounts) {
    let QueryCounts { points, row_ranges, partitions, partition_ranges, table_scans, tables } =
        queries;
    object.raw("points", points);
    object.raw("row_ranges", row_ranges);
    object.raw("partitions", partitions);
    object.raw("partition_ranges", partition_ranges);
    object.raw("table_scans", table_scans);
    object.raw("tables", tables);
}

/// The members of an object. A member that is missing or has another type reads as the default.
struct Fields<'a>(Members<'a>);

impl<'a> Fields<'a> {
    fn read(object: &'a RawValue) -> Result<Self> {
        Ok(Self(json::read_object(object.get(), MEMBERS_MAX)?))
    }

    fn get(&self, name: &str) -> Option<&'a RawValue> {
        Some(self.0.iter().find(|(member, _)| member == name)?.1)
    }

    fn number<T: Default + std::str::FromStr>(&self, name: &str) -> T {
        self.get(name).and_then(|value| value.get().parse().ok()).unwrap_or_default()
    }

    fn items<T>(&self, name: &str, read: impl Fn(&RawValue) -> Result<T>) -> Result<Vec<T>> {
        let items = self.get(name).map_or("[]", RawValue::get);
        json::read_array(items, usize::MAX)?.into_iter().map(read).collect()
    }

    fn text(&self, name: &str) -> String {
        self.get(name).map(text_of).unwrap_or_default()
    }
}

/// Returns the string `value`, or an empty string if the value has another type.
fn text_of(value: &RawValue) -> String {
    match Scalar::read(value) {
        Ok(Scalar::String(text)) => text.into_owned(),
        _ => String::new(),
    }
}

pub(super) fn read_ranges(ranges: &RawValue) -> Result<Vec<PartitionRange>> {
    json::read_array(ranges.get(), usize::MAX)?.into_iter().map(read_range).collect()
}

pub(super) fn read_queries(queries: &RawValue) -> Result<QueryCounts> {
    let queries = Fields::read(queries)?;
    Ok(QueryCounts {
        points: queries.number("points"),
        row_ranges: queries.number("row_ranges"),
        partitions: queries.number("partitions"),
        partition_ranges: queries.number("partition_ranges"),
        table_scans: queries.number("table_scans"),
        tables: queries.number("tables"),
    })
}

fn read_range(range: &RawValue) -> Result<PartitionRange> {
    let range = Fields::read(range)?;
    let heavy = |heavy: &RawValue| {
        let heavy = Fields::read(heavy)?;
        Ok((heavy.text("partition_key"), heavy.number("share")))
    };
    let load = range.text("load");
    let pattern = LoadPattern::ALL.into_iter().find(|pattern| pattern.name() == load);
    Ok(PartitionRange {
        id: range.number("id"),
        low: read_bound(range.get("low"))?,
        high: read_bound(range.get("high"))?,
        bytes: range.number("bytes"),
        entities: range.number("entities"),
        tombstones: range.number("tombstones"),
        files: range.number("files"),
        sources: range.number("sources"),
        debt: range.number("debt"),
        reads: range.number("reads_per_second"),
        writes: range.number("writes_per_second"),
        ascending: range.number("ascending"),
        descending: range.number("descending"),
        pattern: pattern.unwrap_or_default(),
        distinct: range.number("distinct_partitions"),
        heaviest: range.items("heaviest", heavy)?,
        ..PartitionRange::default()
    })
}

fn read_bound(bound: Option<&RawValue>) -> Result<Option<RangeBound>> {
    let Some(bound) = bound.filter(|bound| bound.get() != "null") else { return Ok(None) };
    let bound = Fields::read(bound)?;
    let (partition_key, row_key) = (bound.text("partition_key"), bound.text("row_key"));
    Ok(Some(RangeBound { partition_key, row_key }))
}

pub(crate) fn put_healed(object: &mut Object<'_>, report: &HealReport) {
    object.raw("checked", report.checked);
    object.objects("files", &report.files, put_outcome);
    object.texts("problems", report.problems.iter());
}

fn put_outcome(object: &mut Object<'_>, outcome: &FileOutcome) {
    let damaged = &outcome.damaged;
    object.text("file", &damaged.file);
    object.text("keys", &damaged.keys);
    object.raw("entries", damaged.entries);
    object.raw("bytes", damaged.bytes);
    object.text("problem", &damaged.problem);
    if let Some((from, now)) = &outcome.healed {
        object.text("from", from);
        object.text("now", now);
    }
    if let Some(why) = &outcome.why {
        object.text("why", why);
    }
}

pub(super) fn read_healed(report: &RawValue) -> Result<HealReport> {
    let report = Fields::read(report)?;
    let outcome = |outcome: &RawValue| {
        let outcome = Fields::read(outcome)?;
        let text = |name: &str| outcome.get(name).map(|_| outcome.text(name));
        let damaged = Quarantined {
            file: outcome.text("file"),
            keys: outcome.text("keys"),
            entries: outcome.number("entries"),
            bytes: outcome.number("bytes"),
            problem: outcome.text("problem"),
        };
        Ok(FileOutcome { damaged, healed: text("from").zip(text("now")), why: text("why") })
    };
    Ok(HealReport {
        checked: report.number("checked"),
        files: report.items("files", outcome)?,
        problems: report.items("problems", |problem| Ok(text_of(problem)))?,
    })
}

pub(crate) fn put_copied(object: &mut Object<'_>, summary: &CopySummary) {
    summary.fields().iter().for_each(|(name, count)| object.raw(name, count));
    object.objects("problems", &summary.problems, put_problem);
}

pub(crate) fn put_problem(object: &mut Object<'_>, problem: &CopyProblem) {
    object.text("kind", problem.kind.as_str());
    object.text("PartitionKey", &problem.source.0);
    object.text("RowKey", &problem.source.1);
    if let Some((partition_key, row_key)) = &problem.target {
        object.text("target_pk", partition_key);
        object.text("target_rk", row_key);
    }
    object.text("message", &problem.message);
}

pub(super) fn read_copied(summary: &RawValue) -> Result<CopySummary> {
    let summary = Fields::read(summary)?;
    let problem = |problem: &RawValue| {
        let problem = Fields::read(problem)?;
        let text = |name: &str| problem.get(name).map(|_| problem.text(name));
        let name = problem.text("kind");
        let kind = CopyProblemKind::ALL.into_iter().find(|kind| kind.as_str() == name);
        Ok(CopyProblem {
            source: (problem.text("PartitionKey"), problem.text("RowKey")),
            target: text("target_pk").zip(text("target_rk")),
            kind: kind.unwrap_or(CopyProblemKind::Refused),
            message: problem.text("message"),
        })
    };
    Ok(CopySummary {
        rows: summary.number("rows"),
        copied: summary.number("copied"),
        present: summary.number("present"),
        replaced: summary.number("replaced"),
        in_place: summary.number("in_place"),
        deleted: summary.number("deleted"),
        conflicts: summary.number("conflicts"),
        shared: summary.number("shared"),
        refused: summary.number("refused"),
        changed: summary.number("changed"),
        problems: summary.items("problems", problem)?,
    })
}
