//! Entities: queries, single reads, and writes one by one.
//!
//! Not here: several writes at once (`batch`), what a write does (`table`).

use std::time::Duration;

use hyper::header::{self, HeaderName};

use crate::error::Code;
use crate::model::{ETag, Entity};
use crate::query::Filter;
use crate::table::{EntityGroup, Operation};
use crate::wire::address::{Key, Parameters, Resource, entity_path};
use crate::wire::fault::{Fault, Known};
use crate::wire::headers::{
    Condition, Headers, Level, Method, Preference, Version, check_json_body,
};
use crate::wire::paging;
use crate::wire::payload::{self, Scope};
use crate::wire::sas::Action;

use super::call::{Call, text};
use super::reply::{DATA_SERVICE_ID, PREFERENCE_APPLIED, Reply};

/// Entities of a page that says nothing else.
const PAGE_ENTITIES: usize = 1_000;
/// A query is carried out for so long at most before its page ends.
const QUERY_SECONDS_MAX: u64 = 5;

/// A write of one entity, read but not carried out.
pub(super) struct Write {
    pub(super) table: String,
    pub(super) operation: Operation,
    /// Of an insert: whether the entity is sent back.
    pub(super) preference: Option<Preference>,
}

/// What a write was answered with by the library.
pub(super) struct Written<'a> {
    pub(super) write: &'a Write,
    /// None of a delete.
    pub(super) etag: Option<ETag>,
    /// Of an insert that sends the entity back.
    pub(super) entity: Option<Entity>,
}

/// Answers a query of entities.
pub(super) fn query(call: &Call<'_>, table: &str) -> Result<Reply, Fault> {
    call.grant.allow(Action::Query, Some(table))?;
    let level = call.level()?;
    let parameters = &call.target.query;
    let (select, top) = (parameters.select()?, parameters.top()?);
    let next = paging::read_entities(parameters)?;
    let filter = call.grant.within(filter(parameters)?);
    let seconds = parameters.timeout()?.min(QUERY_SECONDS_MAX);
    let table = call.account.db.table(table)?;
    let mut query = table.query(filter)?.time_budget(Duration::from_secs(seconds));
    if let Some(names) = &select {
        query = query.select(&names.iter().map(String::as_str).collect::<Vec<_>>());
    }
    if let Some(next) = next {
        query = query.after(next);
    }
    let page = match top {
        // Nothing was asked for, and nothing comes after it.
        Some(0) => None,
        top => Some(query.page(top.unwrap_or(PAGE_ENTITIES))?),
    };
    let mut reply = Reply::uncached(200);
    if let Some(token) = page.as_ref().and_then(|page| page.next()) {
        let [partition, row] = paging::entities(token);
        reply = reply.with(name(paging::NEXT_PARTITION_KEY), partition);
        reply = reply.with(name(paging::NEXT_ROW_KEY), row);
    }
    let mut body = Vec::new();
    let scope = scope(call, table.name(), select.as_deref(), level);
    scope.put_set(&mut body, page.iter().flat_map(|page| page.entities()));
    Ok(reply.with_body(level.content_type(), body))
}

/// The condition that a query asks for.
pub(super) fn filter(parameters: &Parameters) -> Result<Filter, Fault> {
    Ok(match parameters.filter() {
        Some(text) => text.parse()?,
        None => Filter::all(),
    })
}

/// Answers a read of one entity.
pub(super) fn get(call: &Call<'_>, table: &str, key: &Key) -> Result<Reply, Fault> {
    let level = call.level()?;
    let found = find(call, &call.target.query, table, key)?;
    let mut reply = Reply::uncached(200);
    if let Some(etag) = found.etag() {
        reply = reply.with(header::ETAG, etag.to_string());
    }
    Ok(reply.with_body(level.content_type(), found.body(call, level)))
}

/// An entity that was found, and how it is to be shown.
pub(super) struct Found {
    table: String,
    entity: Entity,
    select: Option<Vec<String>>,
}

/// Reads one entity.
pub(super) fn find(
    call: &Call<'_>,
    parameters: &Parameters,
    table: &str,
    key: &Key,
) -> Result<Found, Fault> {
    call.grant.allow(Action::Query, Some(table))?;
    call.grant.check_keys(&key.partition_key, &key.row_key)?;
    let select = parameters.select()?;
    let table = call.account.db.table(table)?;
    key.check(true)?;
    let found = match &select {
        Some(names) => {
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            table.get_select(&key.partition_key, &key.row_key, &names)
        }
        None => table.get(&key.partition_key, &key.row_key),
    };
    let entity = found?.ok_or(Code::ResourceNotFound)?;
    Ok(Found { table: table.name().to_owned(), entity, select })
}

impl Found {
    pub(super) fn etag(&self) -> Option<ETag> {
        self.entity.etag()
    }

    pub(super) fn body(&self, call: &Call<'_>, level: Level) -> Vec<u8> {
        let mut body = Vec::new();
        scope(call, &self.table, self.select.as_deref(), level).put_single(&mut body, &self.entity);
        body
    }
}

/// Answers a write of one entity.
pub(super) fn write(call: &Call<'_>) -> Result<Reply, Fault> {
    let write =
        read_write(call.method, &call.target.resource, call.asked, &call.asked.body, call.version)?;
    let level = call.level()?;
    call.grant.allow(action(&write.operation), Some(&write.table))?;
    let (pk, rk) = write.operation.keys();
    call.grant.check_keys(pk, rk)?;
    let table = call.account.db.table(&write.table)?;
    let group = EntityGroup::of_request([write.operation.clone()]).map_err(single)?;
    let etags = table.commit(group).map_err(single)?;
    let etag = etags.into_iter().next().flatten();
    Ok(written_reply(call, &written(&write, etag), level))
}

/// An error of the only operation of a group is one of the request.
fn single(error: crate::error::Error) -> Fault {
    Fault { index: None, ..Fault::from(error) }
}

/// What is told of a write that succeeded.
pub(super) fn written(write: &Write, etag: Option<ETag>) -> Written<'_> {
    let entity = match (&write.operation, write.preference, etag) {
        (_, Some(Preference::NoContent), _) => None,
        (Operation::Insert(entity), _, Some(etag)) => Some(entity.clone().at(etag.seq())),
        _ => None,
    };
    Written { write, etag, entity }
}

/// The response to a write that succeeded.
pub(super) fn written_reply(call: &Call<'_>, written: &Written<'_>, level: Level) -> Reply {
    let Written { write, etag, entity } = written;
    let mut reply = Reply::uncached(if entity.is_some() { 201 } else { 204 });
    if let Some(preference) = write.preference {
        reply = reply.with(PREFERENCE_APPLIED, preference.as_str());
    }
    if let Operation::Insert(_) = write.operation {
        let location = location(call, write);
        if entity.is_none() {
            reply = reply.with(DATA_SERVICE_ID, location.clone());
        }
        reply = reply.with(header::LOCATION, location);
    }
    if let Some(etag) = etag {
        reply = reply.with(header::ETAG, etag.to_string());
    }
    let Some(entity) = entity else { return reply };
    let mut body = Vec::new();
    scope(call, &write.table, None, level).put_single(&mut body, entity);
    reply.with_body(level.content_type(), body)
}

/// The address of the entity that a write is about.
pub(super) fn location(call: &Call<'_>, write: &Write) -> String {
    let (pk, rk) = write.operation.keys();
    format!("{}{}", call.base, entity_path(&write.table, pk, rk))
}

/// What a write of one entity asks for, in a request of its own or in a batch.
///
/// # Errors
/// Those of headers, keys, body and properties; nothing is looked up.
pub(super) fn read_write<H: Headers + ?Sized>(
    method: Method,
    resource: &Resource,
    headers: &H,
    body: &[u8],
    version: Version,
) -> Result<Write, Fault> {
    let (table, key) = match (method, resource) {
        (Method::Post, Resource::Entities(table)) => {
            return read_insert(table, headers, body, version);
        }
        (Method::Put | Method::Merge | Method::Delete, Resource::Entity { table, key }) => {
            (table, key)
        }
        _ => return Err(Known::MethodNotAllowed.into()),
    };
    let condition = Condition::of(headers, method, version)?;
    key.check(false)?;
    let operation = match (method, condition) {
        (Method::Delete, Condition::None) => {
            return Err(Fault::invalid(
                "If-Match is missing: give the entity's etag, or * for any.",
            ));
        }
        (Method::Delete, condition) => Operation::Delete {
            partition_key: key.partition_key.clone(),
            row_key: key.row_key.clone(),
            etag: etag(condition),
        },
        (Method::Put, Condition::None) => Operation::Upsert(read_body(headers, body, key)?),
        (Method::Put, condition) => {
            Operation::Replace(read_body(headers, body, key)?, etag(condition))
        }
        (_, Condition::None) => Operation::UpsertMerge(read_body(headers, body, key)?),
        (_, condition) => Operation::Merge(read_body(headers, body, key)?, etag(condition)),
    };
    Ok(Write { table: table.clone(), operation, preference: None })
}

fn etag(condition: Condition) -> Option<ETag> {
    match condition {
        Condition::Is(etag) => Some(etag),
        Condition::Any | Condition::None => None,
    }
}

fn read_insert<H: Headers + ?Sized>(
    table: &str,
    headers: &H,
    body: &[u8],
    version: Version,
) -> Result<Write, Fault> {
    Condition::of(headers, Method::Post, version)?;
    check_json_body(headers)?;
    let operation = Operation::Insert(payload::read_insert(text(body)?)?);
    Ok(Write { table: table.to_owned(), operation, preference: Preference::of(headers) })
}

/// An entity whose keys are those of its address, whatever its body says.
fn read_body<H: Headers + ?Sized>(headers: &H, body: &[u8], key: &Key) -> Result<Entity, Fault> {
    check_json_body(headers)?;
    payload::read_update(text(body)?, key)
}

/// What a token must allow for an operation.
pub(super) fn action(operation: &Operation) -> Action {
    match operation {
        Operation::Insert(_) => Action::Insert,
        Operation::Replace(..) | Operation::Merge(..) => Action::Update,
        Operation::Upsert(_) | Operation::UpsertMerge(_) => Action::Upsert,
        Operation::Delete { .. } => Action::Delete,
    }
}

fn scope<'a>(
    call: &'a Call<'_>,
    table: &'a str,
    select: Option<&'a [String]>,
    level: Level,
) -> Scope<'a> {
    Scope { base: &call.base, account: &call.account.name, table, select, level }
}

/// A header of ours, which is a legal one.
pub(super) fn name(name: &str) -> HeaderName {
    HeaderName::try_from(name).unwrap_or(super::reply::ERROR_CODE)
}
