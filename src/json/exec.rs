//! Parses the requests of `rowstone exec`, and builds the responses. Each request and each response
//! is a JSON object on one line.
//!
//! Invariants
//! * a line is parsed completely before any of it takes effect, so malformed JSON has no effect;
//! * a member unknown to the operation is an error, so that no misspelt condition is ignored;
//! * a response is one line.
//!
//! `control::answer` executes requests, `odata` encodes entities, `window` limits the length of
//! lines.

use std::borrow::Cow;
use std::ops::Bound;

use serde_json::value::RawValue;

use super::answer::{Answer, read_error};
use super::explain::{put_aggregate, put_explain, put_slow};
use super::odata::{self, Metadata};
use super::report::{
    put_copied, put_healed, put_queries, put_range, read_copied, read_healed, read_queries,
    read_ranges,
};
use crate::check::VerifyReport;
use crate::db::{ClosedGate, CopySummary, HealReport, Moved, PartitionRange, Position};
use crate::error::{Code, Error, Result};
use crate::json::{self, Members, Object, Scalar, put_array};
use crate::model::{ETag, Entity, KeyPart, check_key};
use crate::query::{Aggregate, Explain, Filter, KeyRange, Token};
use crate::table::{GateMode, LoadMode, Operation, QueryCounts, Rejected, SlowQuery};

/// The maximum number of entities in a page, and the maximum of `top`.
pub(crate) const PAGE_ENTITIES_MAX: usize = 1000;
/// The maximum number of names in a `select`.
const SELECT_MAX: usize = 255;
/// The maximum number of operations of a group that are parsed. It is one more than a group may
/// have, so that the excess operation causes an error.
const OPERATIONS_MAX: usize = 101;

/// A parsed request.
///
/// `Group` and `Load` have an error in place of each invalid operation or entity. `Reclaim` deletes
/// a range of a table, or the whole table if the range is `None`, and frees the space. `Ttl` sets
/// the lifetime of a table's rows if `seconds` is given (0 means that they do not expire), and
/// returns it. `Cursor` commits a position to a cursor if it is given, and returns the cursor's.
#[derive(Debug)]
pub(crate) enum Request {
    CreateTable { table: String },
    DeleteTable { table: String },
    Tables,
    Write { table: String, write: Operation },
    Get { table: String, key: Key, select: Select },
    Query { table: String, query: Query },
    Count { table: String, filter: Filter, by_partition: bool },
    Aggregate { table: String, filter: Filter, property: String, by_partition: bool },
    Group { table: String, writes: Vec<Result<Operation>> },
    Load { table: String, mode: LoadMode, entities: Vec<Result<Entity>> },
    Reclaim { table: String, range: Option<KeyRange> },
    DeleteRange { table: String, range: KeyRange },
    Size { table: String, range: KeyRange },
    Ttl { table: String, seconds: Option<u64> },
    Cursor { name: String, position: Option<Position> },
    Gate { table: String, range: KeyRange, mode: GateMode },
    LiftGate { table: String, range: KeyRange },
    Gates,
    Partitions { table: String },
    ExportRange { table: String, range: KeyRange, path: String },
    ImportRange { table: String, path: String },
    Restore { table: String, into: String, range: KeyRange, path: String, generation: Option<u64> },
    Heal { path: String, file: Option<String> },
    Copy(CopyRequest),
    Sync,
    Flush,
    Compact,
    CompactRange { table: String, range: KeyRange },
    Checkpoint { path: String },
    Backup { path: String },
    Stats,
    SlowQueries,
    Verify,
}

/// A query for one page of entities.
#[derive(Debug)]
pub(crate) struct Query {
    pub(crate) filter: Filter,
    pub(crate) select: Select,
    pub(crate) top: usize,
    pub(crate) next: Option<Token>,
    pub(crate) reverse: bool,
    pub(crate) explain: bool,
}

/// A request to copy entities into another table, or within a table under other keys.
#[derive(Debug)]
pub(crate) struct CopyRequest {
    pub(crate) table: String,
    pub(crate) into: String,
    pub(crate) filter: Filter,
    pub(crate) select: Select,
    pub(crate) partition_key: Option<String>,
    pub(crate) row_key: Option<String>,
    pub(crate) replace: bool,
    pub(crate) then_delete: bool,
}

/// The key of an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) pk: String,
    pub(crate) rk: String,
}

/// The property names to return; `None` returns all properties.
pub(crate) type Select = Option<Vec<String>>;

/// Parses the request in one line.
///
/// # Errors
/// Errors with the Table service's codes.
pub(crate) fn read_request(line: &[u8]) -> Result<Request> {
    let line = std::str::from_utf8(line)
        .map_err(|error| invalid(format!("not UTF-8 at byte {}", error.valid_up_to())))?;
    let mut fields = Fields::read(line)?;
    let op = fields.string("op")?.ok_or_else(|| invalid("'op' is missing"))?;
    let request = match &*op {
        "create_table" => Request::CreateTable { table: fields.table()? },
        "delete_table" => {
            let table = fields.table()?;
            match fields.flag("reclaim")? {
                true => Request::Reclaim { table, range: None },
                false => Request::DeleteTable { table },
            }
        }
        "tables" => Request::Tables,
        "get" => {
            let table = fields.table()?;
            Request::Get { table, key: fields.key()?, select: fields.select()? }
        }
        "query" => Request::Query { table: fields.table()?, query: read_query(&mut fields)? },
        "count" => Request::Count {
            table: fields.table()?,
            filter: fields.filter()?,
            by_partition: fields.flag("by_partition")?,
        },
        "aggregate" => Request::Aggregate {
            table: fields.table()?,
            filter: fields.filter()?,
            property: fields.required("property")?,
            by_partition: fields.flag("by_partition")?,
        },
        "group" => read_group(&mut fields)?,
        "load" => read_load(&mut fields)?,
        "delete_range" => {
            let (table, range) = (fields.table()?, fields.range()?);
            match fields.flag("reclaim")? {
                true => Request::Reclaim { table, range: Some(range) },
                false => Request::DeleteRange { table, range },
            }
        }
        op => match read_maintenance(op, &mut fields)? {
            Some(request) => request,
            None => Request::Write { table: fields.table()?, write: fields.write(op)? },
        },
    };
    fields.finish()?;
    Ok(request)
}

/// Parses a request about the whole database or about key ranges. Returns `None` for any other
/// `op`.
fn read_maintenance(op: &str, fields: &mut Fields<'_>) -> Result<Option<Request>> {
    Ok(Some(match op {
        "size" => Request::Size { table: fields.table()?, range: fields.range()? },
        "ttl" => Request::Ttl { table: fields.table()?, seconds: fields.number("seconds")? },
        "cursor" => Request::Cursor {
            name: fields.required("name")?,
            position: fields.string("position")?.map(|text| text.parse()).transpose()?,
        },
        "gate" => {
            let (table, range) = (fields.table()?, fields.range()?);
            Request::Gate { table, range, mode: fields.mode()? }
        }
        "lift_gate" => Request::LiftGate { table: fields.table()?, range: fields.range()? },
        "gates" => Request::Gates,
        "partitions" => Request::Partitions { table: fields.table()? },
        "export_range" => {
            let (table, range) = (fields.table()?, fields.range()?);
            Request::ExportRange { table, range, path: fields.required("path")? }
        }
        "import_range" => {
            Request::ImportRange { table: fields.table()?, path: fields.required("path")? }
        }
        "restore" => {
            let (table, range) = (fields.table()?, fields.range()?);
            let into = fields.string("into")?.map_or_else(|| table.clone(), Cow::into_owned);
            let (path, generation) = (fields.required("path")?, fields.number("generation")?);
            Request::Restore { table, into, range, path, generation }
        }
        "heal" => {
            let file = fields.string("file")?.map(Cow::into_owned);
            Request::Heal { path: fields.required("path")?, file }
        }
        "copy" => Request::Copy(CopyRequest {
            table: fields.table()?,
            into: fields.required("into")?,
            filter: fields.filter()?,
            select: fields.select()?,
            partition_key: fields.string("partition_key")?.map(Cow::into_owned),
            row_key: fields.string("row_key")?.map(Cow::into_owned),
            replace: fields.flag("replace")?,
            then_delete: fields.flag("then_delete")?,
        }),
        "sync" => Request::Sync,
        "flush" => Request::Flush,
        "compact" => match fields.string("table")? {
            Some(table) => {
                Request::CompactRange { table: table.into_owned(), range: fields.range()? }
            }
            None => Request::Compact,
        },
        "checkpoint" => Request::Checkpoint { path: fields.required("path")? },
        "backup" => Request::Backup { path: fields.required("path")? },
        "stats" => Request::Stats,
        "slow_queries" => Request::SlowQueries,
        "verify" => Request::Verify,
        _ => return Ok(None),
    }))
}

fn read_query(fields: &mut Fields<'_>) -> Result<Query> {
    Ok(Query {
        select: fields.select()?,
        top: fields.top()?,
        next: fields.take("next").map(read_next).transpose()?,
        reverse: fields.flag("reverse")?,
        explain: fields.flag("explain")?,
        filter: fields.filter()?,
    })
}

/// Parses the position at which a query continues. The position is a PartitionKey and, unless the
/// partition is read from its start, a RowKey. A trailing U+0001 in a key means the position right
/// after that key.
fn read_next(next: &RawValue) -> Result<Token> {
    let mut fields = Fields::read(next.get())?;
    let partition_key = fields.required("pk")?;
    let row_key = fields.string("rk")?.unwrap_or_default().into_owned();
    fields.finish()?;
    let key = |text: &str| text.strip_suffix('\u{1}').unwrap_or(text).to_owned();
    check_key(KeyPart::PartitionKey, &key(&partition_key))?;
    check_key(KeyPart::RowKey, &key(&row_key))?;
    Ok(Token { partition_key, row_key })
}

fn read_group(fields: &mut Fields<'_>) -> Result<Request> {
    let table = fields.table()?;
    let ops = fields.take("ops").ok_or_else(|| invalid("'ops' is missing"))?;
    let ops = json::read_array(ops.get(), OPERATIONS_MAX)?;
    Ok(Request::Group { table, writes: ops.into_iter().map(read_write).collect() })
}

/// The maximum number of entities in a load. It bounds the memory of the request and the length of
/// the response, which may describe an error of each entity.
const LOAD_MAX: usize = 65_536;

/// The modes of a load, with their names in requests.
const LOAD_MODES: [(LoadMode, &str); 3] = [
    (LoadMode::Insert, "insert"),
    (LoadMode::Upsert, "upsert"),
    (LoadMode::UpsertMerge, "upsert_merge"),
];

/// Returns the name of a load mode in requests.
pub(crate) fn load_mode(mode: LoadMode) -> &'static str {
    LOAD_MODES.iter().find(|(known, _)| *known == mode).map_or("", |(_, name)| name)
}

fn read_load(fields: &mut Fields<'_>) -> Result<Request> {
    let (table, mode) = (fields.table()?, fields.required("mode")?);
    let problem = || invalid(format!("'{mode}' is not a mode: insert, upsert or upsert_merge"));
    let (mode, _) = LOAD_MODES.into_iter().find(|(_, name)| *name == mode).ok_or_else(problem)?;
    let entities = fields.take("entities").ok_or_else(|| invalid("'entities' is missing"))?;
    let entities = json::read_array(entities.get(), LOAD_MAX + 1)?;
    if entities.len() > LOAD_MAX {
        return Err(invalid(format!("'entities' has more than {LOAD_MAX} entities")));
    }
    let entities = entities.into_iter().map(|entity| odata::read_entity(entity.get())).collect();
    Ok(Request::Load { table, mode, entities })
}

/// Parses one operation of a group.
fn read_write(op: &RawValue) -> Result<Operation> {
    let mut fields = Fields::read(op.get())?;
    let op = fields.string("op")?.ok_or_else(|| invalid("'op' is missing"))?;
    let write = fields.write(&op)?;
    fields.finish()?;
    Ok(write)
}

/// The members of a request with their values, which are parsed on demand. A null counts as absent,
/// except for the bounds of a range.
struct Fields<'a> {
    members: Members<'a>,
    has_null_bound: bool,
}

/// The members that bound a range. An absent one means no bound.
const BOUNDS: [&str; 5] = ["partition", "from", "to", "from_partition", "to_partition"];

/// The maximum number of members of a request. No operation has this many members.
const MEMBERS_MAX: usize = 16;

impl<'a> Fields<'a> {
    fn read(text: &'a str) -> Result<Fields<'a>> {
        let mut members = json::read_object(text, MEMBERS_MAX + 1)?;
        for (i, (name, _)) in members.iter().enumerate() {
            if members.iter().take(i).any(|(other, _)| other == name) {
                return Err(invalid(format!("'{name}' is there twice")));
            }
        }
        if members.len() > MEMBERS_MAX {
            return Err(invalid("too many members"));
        }
        let is_null = |value: &RawValue| value.get() == "null";
        let has_null_bound =
            members.iter().any(|(name, value)| BOUNDS.contains(&&**name) && is_null(value));
        members.retain(|(_, value)| !is_null(value));
        Ok(Fields { members, has_null_bound })
    }

    fn take(&mut self, name: &str) -> Option<&'a RawValue> {
        let found = self.members.iter().position(|(member, _)| member == name)?;
        Some(self.members.swap_remove(found).1)
    }

    fn finish(self) -> Result<()> {
        match self.members.first() {
            Some((name, _)) => Err(invalid(format!("'{name}' means nothing here"))),
            None => Ok(()),
        }
    }

    fn string(&mut self, name: &str) -> Result<Option<Cow<'a, str>>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match Scalar::read(value)? {
            Scalar::String(text) => Ok(Some(text)),
            _ => Err(invalid(format!("'{name}' is not a string"))),
        }
    }

    /// Reads a Boolean; false if the member is absent.
    fn flag(&mut self, name: &str) -> Result<bool> {
        let Some(value) = self.take(name) else { return Ok(false) };
        match Scalar::read(value)? {
            Scalar::Boolean(flag) => Ok(flag),
            _ => Err(invalid(format!("'{name}' is neither true nor false"))),
        }
    }

    /// Reads the filter. An absent or blank filter matches all entities.
    fn filter(&mut self) -> Result<Filter> {
        self.string("filter")?.unwrap_or_default().parse()
    }

    fn required(&mut self, name: &str) -> Result<String> {
        let missing = || invalid(format!("'{name}' is missing"));
        Ok(self.string(name)?.ok_or_else(missing)?.into_owned())
    }

    fn table(&mut self) -> Result<String> {
        self.required("table")
    }

    fn key(&mut self) -> Result<Key> {
        let key = Key { pk: self.required("pk")?, rk: self.required("rk")? };
        check_key(KeyPart::PartitionKey, &key.pk)?;
        check_key(KeyPart::RowKey, &key.rk)?;
        Ok(key)
    }

    fn entity(&mut self) -> Result<Entity> {
        let entity = self.take("entity").ok_or_else(|| invalid("'entity' is missing"))?;
        odata::read_entity(entity.get())
    }

    fn etag(&mut self) -> Result<Option<ETag>> {
        let missing = || invalid("'etag' is missing: give the entity's, or \"*\" for any");
        read_etag(&self.string("etag")?.ok_or_else(missing)?)
    }

    fn write(&mut self, op: &str) -> Result<Operation> {
        Ok(match op {
            "insert" => Operation::Insert(self.entity()?),
            "upsert_replace" => Operation::Upsert(self.entity()?),
            "upsert_merge" => Operation::UpsertMerge(self.entity()?),
            "replace" => Operation::Replace(self.entity()?, self.etag()?),
            "merge" => Operation::Merge(self.entity()?, self.etag()?),
            "delete" => {
                let Key { pk: partition_key, rk: row_key } = self.key()?;
                Operation::Delete { partition_key, row_key, etag: self.etag()? }
            }
            _ => return Err(invalid(format!("unknown operation '{op}'"))),
        })
    }

    fn number(&mut self, name: &str) -> Result<Option<u64>> {
        let Some(number) = self.take(name) else { return Ok(None) };
        let problem = |_| invalid(format!("'{name}' is not a number from 0 to 2^64 - 1"));
        number.get().parse().map(Some).map_err(problem)
    }

    /// Reads the members that describe a key range. Without them, the range is the whole table.
    fn range(&mut self) -> Result<KeyRange> {
        // A program whose variable for a bound is unset must not delete the whole table.
        if self.has_null_bound {
            return Err(invalid("a bound of the range is null: leave it out for no bound"));
        }
        let (partition, from, to) =
            (self.string("partition")?, self.string("from")?, self.string("to")?);
        let (low, high) = (self.string("from_partition")?, self.string("to_partition")?);
        if partition.is_none() && (from.is_some() || to.is_some()) {
            return Err(invalid("'from' and 'to' are RowKeys of a 'partition', which is missing"));
        }
        if partition.is_some() && (low.is_some() || high.is_some()) {
            return Err(invalid("'partition' does not go with 'from_partition' or 'to_partition'"));
        }
        let (rows, partitions) =
            ([from.as_deref(), to.as_deref()], [low.as_deref(), high.as_deref()]);
        Ok(key_range(partition.as_deref(), rows, partitions))
    }

    fn mode(&mut self) -> Result<GateMode> {
        let Some(mode) = self.string("mode")? else { return Ok(GateMode::ReadOnly) };
        let problem = || invalid(format!("'{mode}' is not a mode: ReadOnly or Offline"));
        GateMode::parse(&mode).ok_or_else(problem)
    }

    fn select(&mut self) -> Result<Select> {
        let Some(list) = self.take("select") else { return Ok(None) };
        let list = json::read_array(list.get(), SELECT_MAX + 1)?;
        if list.len() > SELECT_MAX {
            return Err(invalid(format!("'select' lists more than {SELECT_MAX} names")));
        }
        let names = list.into_iter().map(|name| match Scalar::read(name)? {
            Scalar::String(name) => Ok(name.into_owned()),
            _ => Err(invalid("'select' is not a list of names")),
        });
        let names = names.collect::<Result<Vec<_>>>()?;
        let all = names.is_empty() || names.iter().any(|name| name == "*");
        Ok((!all).then_some(names))
    }

    fn top(&mut self) -> Result<usize> {
        let Some(top) = self.take("top") else { return Ok(PAGE_ENTITIES_MAX) };
        let top = top.get().parse().ok().filter(|top| *top <= PAGE_ENTITIES_MAX);
        top.ok_or_else(|| invalid(format!("'top' is not a number from 0 to {PAGE_ENTITIES_MAX}")))
    }
}

/// Returns the range of the rows in `partition` whose RowKeys are at or above `rows[0]` and below
/// `rows[1]`. If `partition` is `None`, returns the range of the partitions at or above
/// `partitions[0]` and below `partitions[1]`. A bound of `None` means that there is no bound.
pub(crate) fn key_range(
    partition: Option<&str>,
    rows: [Option<&str>; 2],
    partitions: [Option<&str>; 2],
) -> KeyRange {
    let between = |[from, to]: [Option<_>; 2]| {
        let from = from.map_or(Bound::Unbounded, Bound::Included);
        (from, to.map_or(Bound::Unbounded, Bound::Excluded))
    };
    match partition {
        Some(partition) if rows == [None; 2] => KeyRange::partition(partition),
        Some(partition) => KeyRange::rows(partition, between(rows)),
        None => KeyRange::partitions(between(partitions)),
    }
}

/// Parses an ETag. Returns `None` for `*`, which matches every state of an entity.
pub(crate) fn read_etag(etag: &str) -> Result<Option<ETag>> {
    if etag == "*" {
        return Ok(None);
    }
    let malformed = |_| invalid(format!("The etag value '{etag}' is not valid."));
    ETag::parse_own(etag).map(Some).map_err(malformed)
}

fn invalid(message: impl Into<Cow<'static, str>>) -> Error {
    Error::refused_with(Code::InvalidInput, message)
}

/// One response, built as a line.
pub(crate) struct Response(Vec<u8>);

impl Response {
    /// Starts the response `{"ok":true}`, to which members can be added.
    pub(crate) fn ok() -> Self {
        Self(b"{\"ok\":true".to_vec())
    }

    /// Builds the response to a request that failed.
    pub(crate) fn error(error: &Error) -> Self {
        let mut out = b"{\"ok\":false,\"error\":".to_vec();
        json::put_object(&mut out, |object| put_error(object, error));
        Self(out)
    }

    pub(crate) fn etag(mut self, etag: ETag) -> Self {
        json::put_string(self.member("etag"), &etag.to_string());
        self
    }

    /// Adds the ETags that the operations of a group returned; null for a delete.
    pub(crate) fn etags(mut self, etags: &[Option<ETag>]) -> Self {
        put_array(self.member("etags"), etags, |out, etag| match etag {
            Some(etag) => json::put_string(out, &etag.to_string()),
            None => out.extend_from_slice(b"null"),
        });
        self
    }

    pub(crate) fn entity(mut self, entity: &Entity, select: &Select) -> Self {
        odata::put_entity(self.member("entity"), entity, select.as_deref(), Metadata::MINIMAL);
        self
    }

    /// Adds a page of a query's results, and the position at which the next page starts.
    pub(crate) fn page(
        mut self,
        entities: &[Entity],
        select: &Select,
        next: Option<&Token>,
    ) -> Self {
        put_array(self.member("entities"), entities, |out, entity| {
            odata::put_entity(out, entity, select.as_deref(), Metadata::MINIMAL);
        });
        let out = self.member("next");
        match next {
            Some(Token { partition_key, row_key }) => json::put_object(out, |object| {
                object.text("pk", partition_key);
                object.text("rk", row_key);
            }),
            None => out.extend_from_slice(b"null"),
        }
        self
    }

    /// Adds the explanation of a query.
    pub(crate) fn explain(mut self, explain: &Explain) -> Self {
        json::put_object(self.member("explain"), |object| put_explain(object, explain));
        self
    }

    /// Adds the slow-query log.
    pub(crate) fn slow_queries(mut self, queries: &[SlowQuery]) -> Self {
        put_objects(self.member("queries"), queries, put_slow);
        self
    }

    /// Adds the count of entities of each partition.
    pub(crate) fn counts(mut self, counts: &[(String, u64)]) -> Self {
        put_objects(self.member("counts"), counts, |object, (pk, count)| {
            object.text("pk", pk);
            object.raw("count", count);
        });
        self
    }

    pub(crate) fn aggregate(mut self, aggregate: &Aggregate) -> Self {
        json::put_object(self.member("aggregate"), |object| put_aggregate(object, aggregate));
        self
    }

    /// Adds the aggregate of each partition.
    pub(crate) fn aggregates(mut self, aggregates: &[(String, Aggregate)]) -> Self {
        put_objects(self.member("aggregates"), aggregates, |object, (pk, aggregate)| {
            object.text("pk", pk);
            put_aggregate(object, aggregate);
        });
        self
    }

    pub(crate) fn tables(mut self, tables: &[String]) -> Self {
        put_array(self.member("tables"), tables, |out, table| json::put_string(out, table));
        self
    }

    pub(crate) fn text(mut self, name: &str, text: &str) -> Self {
        json::put_string(self.member(name), text);
        self
    }

    pub(crate) fn moved(self, moved: &Moved) -> Self {
        let Moved { entities, files, bytes } = *moved;
        self.counters([("entities", entities), ("files", files), ("bytes", bytes)])
    }

    /// Adds the result of a load. The `line` of a rejected entity is its index in the request.
    pub(crate) fn loaded(self, loaded: u64, rejected: &[Rejected]) -> Self {
        let mut response = self.counters([("loaded", loaded)]);
        put_objects(response.member("rejected"), rejected, |object, Rejected { line, error }| {
            object.raw("line", line);
            json::put_object(object.name("error"), |object| put_error(object, error));
        });
        response
    }

    pub(crate) fn healed(mut self, report: &HealReport) -> Self {
        json::put_object(self.member("report"), |object| put_healed(object, report));
        self
    }

    pub(crate) fn copied(mut self, summary: &CopySummary) -> Self {
        json::put_object(self.member("report"), |object| put_copied(object, summary));
        self
    }

    /// Adds the closed gates of all tables.
    pub(crate) fn gates(mut self, gates: &[ClosedGate]) -> Self {
        put_objects(self.member("gates"), gates, put_gate);
        self
    }

    /// Adds the ranges of a table with their load, and the number of its queries of each kind.
    pub(crate) fn load(mut self, ranges: &[PartitionRange], queries: &QueryCounts) -> Self {
        put_objects(self.member("ranges"), ranges, |object, range| put_range(object, range, true));
        json::put_object(self.member("queries"), |object| put_queries(object, queries));
        self
    }

    /// Adds counters, one member for each counter.
    pub(crate) fn counters<'n>(mut self, fields: impl IntoIterator<Item = (&'n str, u64)>) -> Self {
        for (name, value) in fields {
            self.member(name).extend_from_slice(value.to_string().as_bytes());
        }
        self
    }

    /// Builds the response to a verification, with counts and problems. Its `ok` is false if there
    /// are problems.
    pub(crate) fn verified(report: &VerifyReport) -> Self {
        let VerifyReport { checked, torn, problems, .. } = report;
        let mut response = match problems.is_empty() {
            true => Self::ok(),
            false => Self(b"{\"ok\":false".to_vec()),
        };
        if let Some(torn) = torn {
            json::put_string(response.member("torn"), torn);
        }
        json::put_object(response.member("checked"), |object| {
            checked.iter().for_each(|(name, count)| object.raw(name, count));
        });
        put_array(response.member("problems"), problems, |out, p| json::put_string(out, p));
        response
    }

    /// Returns the line, with its line break.
    pub(crate) fn into_line(mut self) -> Vec<u8> {
        self.0.extend_from_slice(b"}\n");
        self.0
    }

    fn member(&mut self, name: &str) -> &mut Vec<u8> {
        self.0.push(b',');
        json::put_string(&mut self.0, name);
        self.0.push(b':');
        &mut self.0
    }
}

pub(crate) fn put_gate(object: &mut Object<'_>, gate: &ClosedGate) {
    object.text("table", &gate.table);
    object.text("mode", gate.mode.as_str());
    object.text("range", &gate.range.to_string());
}

impl Answer {
    /// Replaces `from` by `to` wherever it occurs in a string of the response.
    pub(crate) fn replacing(self, from: &str, to: &str) -> Self {
        let escaped = |text: &str| {
            let mut out = Vec::new();
            json::put_string(&mut out, text);
            out.pop();
            String::from_utf8(out.split_off(1)).unwrap_or_default()
        };
        Self(self.0.replace(&escaped(from), &escaped(to)))
    }

    /// Returns the load that [`Response::load`] wrote.
    pub(crate) fn load(&self) -> Result<(Vec<PartitionRange>, QueryCounts)> {
        Ok((read_ranges(self.required("ranges")?)?, read_queries(self.required("queries")?)?))
    }

    pub(crate) fn healed(&self) -> Result<HealReport> {
        read_healed(self.required("report")?)
    }

    pub(crate) fn copied(&self) -> Result<CopySummary> {
        read_copied(self.required("report")?)
    }

    fn required(&self, name: &str) -> Result<&RawValue> {
        self.member(name).ok_or_else(|| invalid(format!("'{name}' is missing in the response")))
    }

    /// Returns the rejected entities that [`Response::loaded`] wrote.
    pub(crate) fn rejected(&self) -> Result<Vec<Rejected>> {
        let Some(rejected) = self.member("rejected") else { return Ok(Vec::new()) };
        let rejected = json::read_array(rejected.get(), usize::MAX)?.into_iter();
        let read = |rejected: &RawValue| {
            let mut fields = Fields::read(rejected.get())?;
            let error = fields.take("error").ok_or_else(|| invalid("'error' is missing"))?;
            let line = fields.number("line")?.unwrap_or_default();
            Ok(Rejected { line, error: read_error(error.get())? })
        };
        rejected.map(read).collect()
    }

    /// Returns the response as an object without the member `ok`.
    pub(crate) fn without_ok(&self) -> String {
        self.0.trim_end().replacen("\"ok\":true,", "", 1)
    }

    /// Returns the counts that [`Response::moved`] wrote.
    pub(crate) fn moved(&self) -> Moved {
        let [entities, files, bytes] =
            ["entities", "files", "bytes"].map(|name| self.number(name).unwrap_or_default());
        Moved { entities, files, bytes }
    }
}

/// Builds a progress line: the amount of work done, and the total, which is 0 if unknown.
#[cfg(target_os = "linux")]
pub(crate) fn progress_line(done: u64, of: u64) -> String {
    format!("{{\"progress\":[{done},{of}]}}\n")
}

/// Reads a progress line. Returns `None` for any other line.
pub(crate) fn read_progress(line: &str) -> Option<(u64, u64)> {
    let numbers = line.trim_end().strip_prefix("{\"progress\":[")?.strip_suffix("]}")?;
    let (done, of) = numbers.split_once(',')?;
    Some((done.parse().ok()?, of.parse().ok()?))
}

fn put_error(object: &mut Object<'_>, error: &Error) {
    object.text("code", error.code());
    object.raw("status", error.status());
    if error.code() == Code::InternalError.as_str() {
        object.text("kind", &format!("{:?}", error.kind()));
    }
    object.text("message", &error.chain());
    if let Some(of) = error.object() {
        object.text("object", of);
    }
    if let Some(index) = error.index() {
        object.raw("index", index);
    }
}

fn put_objects<T>(out: &mut Vec<u8>, items: &[T], put: impl Fn(&mut Object<'_>, &T)) {
    json::put_array(out, items, |out, item| json::put_object(out, |object| put(object, item)));
}

#[cfg(test)]
#[path = "exec_tests.rs"]
mod tests;
