//! Parses the requests of `rowstone exec`, and builds the responses. Each request and each response
//! is a JSON object on one line.
//!
//! Invariants
//! * a line is parsed completely before any of it takes effect, so malformed JSON has no effect;
//! * a member unknown to the operation is an error, so that no misspelt condition is ignored;
//! * a response is one line.
//!
//! `cli::exec` executes requests, `odata` encodes entities, `cli::window` limits the length of
//! lines.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::explain::{put_aggregate, put_explain, put_slow};
use super::odata::{self, Metadata};
use crate::check::VerifyReport;
use crate::error::{Code, Error, Result};
use crate::json::{self, Members, Object, Scalar, put_array};
use crate::model::{ETag, Entity, KeyPart, check_key};
use crate::query::{Aggregate, Explain, Filter, Token};
use crate::table::{Operation, SlowQuery};

/// The maximum number of entities in a page, and the maximum of `top`.
pub(crate) const PAGE_ENTITIES_MAX: usize = 1000;
/// The maximum number of names in a `select`.
const SELECT_MAX: usize = 255;
/// The maximum number of operations of a group that are parsed. It is one more than a group may
/// have, so that the excess operation causes an error.
const OPERATIONS_MAX: usize = 101;

/// A parsed request.
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
    Group { table: String, writes: Vec<Operation> },
    Flush,
    Compact,
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
/// Errors with the Table service's codes and, for a group, with the index of the failing operation.
pub(crate) fn read_request(line: &[u8]) -> Result<Request> {
    let line = std::str::from_utf8(line)
        .map_err(|error| invalid(format!("not UTF-8 at byte {}", error.valid_up_to())))?;
    let mut fields = Fields::read(line)?;
    let op = fields.string("op")?.ok_or_else(|| invalid("'op' is missing"))?;
    let request = match &*op {
        "create_table" => Request::CreateTable { table: fields.table()? },
        "delete_table" => Request::DeleteTable { table: fields.table()? },
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
        "flush" => Request::Flush,
        "compact" => Request::Compact,
        "checkpoint" => Request::Checkpoint { path: fields.required("path")? },
        "backup" => Request::Backup { path: fields.required("path")? },
        "stats" => Request::Stats,
        "slow_queries" => Request::SlowQueries,
        "verify" => Request::Verify,
        write => {
            let table = fields.table()?;
            Request::Write { table, write: fields.write(write)? }
        }
    };
    fields.finish()?;
    Ok(request)
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
    let writes = ops.into_iter().enumerate();
    let writes = writes.map(|(i, op)| read_write(op).map_err(|error| error.at_index(i)));
    Ok(Request::Group { table, writes: writes.collect::<Result<_>>()? })
}

/// Parses one operation of a group.
fn read_write(op: &RawValue) -> Result<Operation> {
    let mut fields = Fields::read(op.get())?;
    let op = fields.string("op")?.ok_or_else(|| invalid("'op' is missing"))?;
    let write = fields.write(&op)?;
    fields.finish()?;
    Ok(write)
}

/// The members of a request with their values, which are parsed on demand. A null counts as absent.
struct Fields<'a> {
    members: Members<'a>,
}

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
        members.retain(|(_, value)| value.get() != "null");
        Ok(Fields { members })
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

/// Parses an ETag. Returns `None` for `*`, which matches every state of an entity.
pub(crate) fn read_etag(etag: &str) -> Result<Option<ETag>> {
    if etag == "*" {
        return Ok(None);
    }
    let malformed = |_| invalid(format!("The etag value '{etag}' is not valid."));
    etag.parse().map(Some).map_err(malformed)
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
        json::put_object(&mut out, |object| {
            object.text("code", error.code());
            object.raw("status", error.status());
            if error.code() == Code::InternalError.as_str() {
                object.text("kind", &format!("{:?}", error.kind()));
            }
            object.text("message", &error.chain());
            if let Some(index) = error.index() {
                object.raw("index", index);
            }
        });
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

fn put_objects<T>(out: &mut Vec<u8>, items: &[T], put: impl Fn(&mut Object<'_>, &T)) {
    json::put_array(out, items, |out, item| json::put_object(out, |object| put(object, item)));
}

#[cfg(test)]
#[path = "exec_tests.rs"]
mod tests;
