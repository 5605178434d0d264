//! Answers requests for entities: queries, and reads and writes of single entities.
//!
//! `batch` handles several writes in one request, and `table` defines the semantics of writes.

use std::time::Duration;

use hyper::header;

use crate::behave::{Operation as Asked, partition_of};
use crate::error::{Code, Error};
use crate::model::{ETag, Entity, EntityEncoder};
use crate::query::{Filter, Token};
use crate::rest::protocol::address::{Key, Parameters, Resource, entity_path_len, put_entity_path};
use crate::rest::protocol::fault::{Fault, Known};
use crate::rest::protocol::headers::{
    Condition, Headers, Level, Method, Preference, Version, check_json_body,
};
use crate::rest::protocol::paging;
use crate::rest::protocol::payload::{self, Scope};
use crate::rest::protocol::rows::RowSet;
use crate::rest::protocol::sas::Action;
use crate::table::{EntityGroup, Operation};

use super::context::RequestContext;
use super::http::body::Share;
use super::misbehave::name_of;
use super::reply::{DATA_SERVICE_ID, PREFERENCE_APPLIED, Reply, name};

/// The default number of entities of a page.
const PAGE_ENTITIES: usize = 1_000;
/// The maximum size of a group, as computed by `EntityGroup::size`. A request body has at most 4
/// MiB and never reaches this size: the size counts two bytes for an ASCII character, and little
/// more for a short property. A group of this size fits into a log record.
pub(super) const REQUEST_SIZE_MAX: usize = 12 << 20;
/// The maximum time of a query in seconds. A query that takes longer returns the page read so far.
const QUERY_SECONDS_MAX: u64 = 5;

/// The order of the entities of a query, by key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Ascending,
    Descending,
}

/// A write of one entity, parsed but not yet carried out.
pub(super) struct Write<'t> {
    pub(super) table: &'t str,
    pub(super) operation: Operation,
    /// For an insert: whether the answer has the entity.
    pub(super) preference: Option<Preference>,
}

/// The parsed headers of a write. Headers are parsed when they are first needed. The operations of
/// a batch mostly have the same headers and then share one `Meaning`.
pub(super) struct Meaning {
    pub(super) method: Method,
    pub(super) version: Version,
    condition: Option<Condition>,
    has_json: bool,
    preference: Option<Option<Preference>>,
}

/// Answers a query of entities.
pub(super) fn query(
    context: &RequestContext<'_>,
    table: &str,
    order: Order,
) -> Result<Reply, Fault> {
    context.grant.allow(Action::Query, Some(table))?;
    let level = context.level()?;
    let parameters = &context.target.query;
    let (select, top) = (parameters.select()?, parameters.top()?);
    let next = paging::read_entities(parameters)?;
    let filter = context.grant.within(filter(parameters)?);
    let seconds = parameters.timeout()?.min(QUERY_SECONDS_MAX);
    let position = next.as_ref().map_or(["", ""], |next| [&next.partition_key, &next.row_key]);
    let rest = [parameters.filter().unwrap_or_default(), position[0], position[1]];
    let most = context.misbehave(Asked::Query, table, partition_of(&filter), &rest)?;
    let table = context.table(table)?;
    let query = table.query(filter)?.time_budget(Duration::from_secs(seconds));
    let mut query = query.select_some(select.as_deref());
    if let Some(next) = &next {
        query = query.after(next.clone());
    }
    if order == Order::Descending {
        query = query.reverse();
    }
    let mut share = Share::default();
    let mut body = context.request.spare(&mut share);
    let count = top.unwrap_or(PAGE_ENTITIES);
    let scope = scope(context, table.name(), select.as_deref(), level);
    let mut set = RowSet::begin(scope, count, &mut body);
    let next = match count {
        // `$top=0` asks for an empty page, which has no continuation.
        0 => None,
        _ if most == 0 => {
            let start = || Token { partition_key: String::new(), row_key: String::new() };
            Some(next.unwrap_or_else(start))
        }
        // The memory for the text is charged to the budget before the text is written, and again as
        // the text grows.
        count => query.page_texts(count.min(most), |row| {
            let written = set.put(row, &mut |room| {
                let grown = context.request.grow(&mut share, room);
                grown.map_err(|_| Error::refused(Code::ServerBusy))
            })?;
            Ok((written.bytes, written.size))
        })?,
    };
    set.end();
    let mut reply = Reply::uncached(200);
    if let Some(token) = next {
        let [partition, row] = paging::entities(&token);
        reply = reply.with(name(paging::NEXT_PARTITION_KEY), partition);
        reply = reply.with(name(paging::NEXT_ROW_KEY), row);
    }
    Ok(Reply { share, ..reply.with_body(level.content_type(), body) })
}

/// Returns the filter of a query.
pub(super) fn filter(parameters: &Parameters) -> Result<Filter, Fault> {
    Ok(match parameters.filter() {
        Some(text) => text.parse()?,
        None => Filter::all(),
    })
}

/// Answers a read of one entity.
pub(super) fn get(context: &RequestContext<'_>, table: &str, key: &Key) -> Result<Reply, Fault> {
    let level = context.level()?;
    let found = find(context, &context.target.query, table, key)?;
    let mut reply = Reply::uncached(200);
    let size = found.entity.size();
    context.request.grow(&mut reply.share, size)?;
    if let Some(etag) = found.entity.etag() {
        reply = reply.with_etag(etag);
    }
    // Most bodies fit into as many bytes as the entity's size, because the size counts two bytes
    // per character.
    let body = found.body(context, level, size);
    Ok(reply.with_body(level.content_type(), body))
}

/// An entity that was found, and the data needed to convert it to text.
pub(super) struct Found {
    table: String,
    pub(super) entity: Entity,
    select: Option<Vec<String>>,
}

/// Reads one entity.
pub(super) fn find(
    context: &RequestContext<'_>,
    parameters: &Parameters,
    table: &str,
    key: &Key,
) -> Result<Found, Fault> {
    context.grant.allow(Action::Get, Some(table))?;
    context.grant.check_keys(&key.partition_key, &key.row_key)?;
    let select = parameters.select()?;
    let Key { partition_key, row_key } = key;
    context.misbehave(Asked::Get, table, Some(partition_key), &[row_key])?;
    let table = context.table(table)?;
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
    /// Returns the body, with an initial capacity of `room` bytes.
    pub(super) fn body(&self, context: &RequestContext<'_>, level: Level, room: usize) -> Vec<u8> {
        let mut body = Vec::with_capacity(room);
        self.scope(context, level).put_single(&mut body, &self.entity);
        body
    }

    /// Returns an upper bound of the bytes of the body.
    pub(super) fn body_at_most(&self, context: &RequestContext<'_>, level: Level) -> usize {
        self.scope(context, level).single_at_most(&self.entity)
    }

    fn scope<'a>(&'a self, context: &'a RequestContext<'_>, level: Level) -> Scope<'a> {
        scope(context, &self.table, self.select.as_deref(), level)
    }
}

/// Answers a write of one entity.
pub(super) fn write(context: &RequestContext<'_>) -> Result<Reply, Fault> {
    let (request, resource) = (context.request, &context.target.resource);
    let mut meaning = Meaning::of(context.method, context.version);
    let encoder = &mut EntityEncoder::default();
    let write = read_write(resource, request, &mut meaning, || request.text(), encoder)?;
    let Write { table: name, operation, preference } = write;
    // The answer to an insert may contain the entity, at the requested level of metadata.
    let level = match operation {
        Operation::Insert(_) => context.level()?,
        _ => Level::Minimal,
    };
    context.grant.allow(action(&operation), Some(name))?;
    let (pk, rk) = operation.keys();
    context.grant.check_keys(pk, rk)?;
    context.misbehave(name_of(&operation), name, Some(pk), &[rk])?;
    let table = context.table(name)?;
    let at_most = sent_back_at_most(context, table.name(), &operation, preference, level);
    let share = context.response_share(at_most)?;
    let group = EntityGroup::within([operation], REQUEST_SIZE_MAX).map_err(single)?;
    let etags = context.commit(&table, &group).map_err(single)?;
    let etag = etags.into_iter().next().flatten();
    let operation = group.operations().next().ok_or(Code::InternalError)?;
    let reply = written(context, (table.name(), &operation, preference), etag, level);
    Ok(Reply { share, ..reply })
}

/// Refuses a write to a resource inside a table, such as `people/Tables`. Clients send it if they
/// were given the table's address as that of the account. The Azure service answers as if the write
/// were one of the table's entities; clients recognize these answers and name the cause.
pub(super) fn refuse_inside(context: &RequestContext<'_>, path: &str) -> Result<Reply, Fault> {
    match (context.method, path.split_once('/')) {
        (Method::Post, Some((table, "Tables" | "$batch"))) => {
            check_json_body(context.request)?;
            context.grant.allow(Action::Insert, Some(table))?;
            context.table(table)?;
            Err(Code::PropertiesNeedValue.into())
        }
        (Method::Delete, Some((table, rest))) if rest.starts_with("Tables(") => {
            context.grant.allow(Action::Delete, Some(table))?;
            let (account, table) = (&context.account.name, context.table(table)?);
            Err(Fault::invalid(format!(
                "The number of keys specified in the URI does not match number of key properties \
                 for the resource '{account}.{}'.",
                table.name()
            )))
        }
        _ => Err(Known::InvalidUri.into()),
    }
}

/// Converts an error of an entity group with one operation into an error of the request.
fn single(error: Error) -> Fault {
    Fault { index: None, ..Fault::from(error) }
}

/// Returns the entity that the answer to a successful operation contains, if any.
pub(super) fn sent_back(
    operation: &Operation,
    preference: Option<Preference>,
    etag: Option<&ETag>,
) -> Option<Entity> {
    match (operation, preference, etag) {
        (_, Some(Preference::NoContent), _) => None,
        (Operation::Insert(entity), _, Some(etag)) => Some(entity.clone().at(etag.seq()?)),
        _ => None,
    }
}

/// Returns an upper bound of the bytes that the entity takes in the answer; 0 if the answer does
/// not contain it.
pub(super) fn sent_back_at_most(
    context: &RequestContext<'_>,
    table: &str,
    operation: &Operation,
    preference: Option<Preference>,
    level: Level,
) -> usize {
    match (operation, preference) {
        (_, Some(Preference::NoContent)) => 0,
        (Operation::Insert(entity), _) => scope(context, table, None, level).single_at_most(entity),
        _ => 0,
    }
}

/// Returns the response to a write that succeeded; a delete has no ETag.
fn written(
    context: &RequestContext<'_>,
    (table, operation, preference): (&str, &Operation, Option<Preference>),
    etag: Option<ETag>,
    level: Level,
) -> Reply {
    let entity = sent_back(operation, preference, etag.as_ref());
    let mut reply = Reply::uncached(if entity.is_some() { 201 } else { 204 });
    if let Some(preference) = preference {
        reply = reply.with(PREFERENCE_APPLIED, preference.as_str());
    }
    if let Operation::Insert(_) = operation {
        let mut location = String::new();
        put_location(&mut location, context, table, operation);
        if entity.is_none() {
            reply = reply.with(DATA_SERVICE_ID, location.clone());
        }
        reply = reply.with(header::LOCATION, location);
    }
    if let Some(etag) = etag {
        reply = reply.with_etag(etag);
    }
    let Some(entity) = entity else { return reply };
    let mut body = Vec::new();
    scope(context, table, None, level).put_single(&mut body, &entity);
    reply.with_body(level.content_type(), body)
}

/// Appends the address of the entity that an operation writes.
pub(super) fn put_location(
    out: &mut String,
    context: &RequestContext<'_>,
    table: &str,
    operation: &Operation,
) {
    let (pk, rk) = operation.keys();
    out.push_str(&context.base);
    put_entity_path(out, table, pk, rk);
}

/// Returns the number of bytes that [`put_location`] appends.
pub(super) fn location_len(
    context: &RequestContext<'_>,
    table: &str,
    operation: &Operation,
) -> usize {
    let (pk, rk) = operation.keys();
    context.base.len() + entity_path_len(table, pk, rk)
}

/// Parses a write of one entity, which is a request of its own or an operation of a batch. `body`
/// is called only if the write has a body.
///
/// # Errors
/// Those of headers, keys, body and properties; the database is not read.
pub(super) fn read_write<'t, 'b, H: Headers + ?Sized>(
    resource: &'t Resource,
    headers: &H,
    meaning: &mut Meaning,
    body: impl FnOnce() -> Result<&'b str, Fault>,
    encoder: &mut EntityEncoder,
) -> Result<Write<'t>, Fault> {
    let method = meaning.method;
    let (table, key) = match (method, resource) {
        (Method::Post, Resource::Entities(table)) => {
            meaning.condition(headers)?;
            meaning.check_json(headers)?;
            let operation = Operation::Insert(payload::read_insert(body()?, encoder)?);
            return Ok(Write { table, operation, preference: meaning.preference(headers) });
        }
        (Method::Put | Method::Merge | Method::Delete, Resource::Entity { table, key }) => {
            (table, key)
        }
        _ => return Err(Known::MethodNotAllowed.into()),
    };
    let condition = meaning.condition(headers)?;
    key.check(false)?;
    // The entity gets the keys in the address, whatever keys the body contains.
    let entity = || {
        meaning.check_json(headers)?;
        payload::read_update(body()?, key, encoder)
    };
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
        (Method::Put, Condition::None) => Operation::Upsert(entity()?),
        (Method::Put, condition) => Operation::Replace(entity()?, etag(condition)),
        (_, Condition::None) => Operation::UpsertMerge(entity()?),
        (_, condition) => Operation::Merge(entity()?, etag(condition)),
    };
    Ok(Write { table, operation, preference: None })
}

impl Meaning {
    /// Creates the value for a write with this method. No header is parsed yet.
    pub(super) fn of(method: Method, version: Version) -> Self {
        Meaning { method, version, condition: None, has_json: false, preference: None }
    }

    fn condition<H: Headers + ?Sized>(&mut self, headers: &H) -> Result<Condition, Fault> {
        let condition = match self.condition.take() {
            Some(condition) => condition,
            None => Condition::of(headers, self.method, self.version)?,
        };
        Ok(self.condition.insert(condition).clone())
    }

    fn check_json<H: Headers + ?Sized>(&mut self, headers: &H) -> Result<(), Fault> {
        if !self.has_json {
            check_json_body(headers)?;
        }
        self.has_json = true;
        Ok(())
    }

    fn preference<H: Headers + ?Sized>(&mut self, headers: &H) -> Option<Preference> {
        *self.preference.get_or_insert_with(|| Preference::of(headers))
    }
}

fn etag(condition: Condition) -> Option<ETag> {
    match condition {
        Condition::Is(etag) => Some(etag),
        Condition::Any | Condition::None => None,
    }
}

/// Returns the right that an operation requires.
pub(super) fn action(operation: &Operation) -> Action {
    match operation {
        Operation::Insert(_) => Action::Insert,
        Operation::Replace(..) | Operation::Merge(..) => Action::Update,
        Operation::Upsert(_) | Operation::UpsertMerge(_) => Action::Upsert,
        Operation::Delete { .. } => Action::Delete,
    }
}

pub(super) fn scope<'a>(
    context: &'a RequestContext<'_>,
    table: &'a str,
    select: Option<&'a [String]>,
    level: Level,
) -> Scope<'a> {
    Scope { base: &context.base, account: &context.account.name, table, select, level }
}
