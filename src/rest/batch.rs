//! Answers batches: entity group transactions, and the single read that a batch may contain
//! instead.
//!
//! Invariants
//! * a batch is parsed completely before its operations are carried out, by one commit;
//! * memory for the answer is reserved before the commit, so that every commit is reported.
//!
//! `protocol::batch` parses multipart bodies, and `table` checks the limits of a group.

use std::sync::Arc;

use hyper::header;

use crate::behave::Operation as Asked;
use crate::error::{Code, Error};
use crate::model::{DateTime, ETag, EntityEncoder};
use crate::rest::protocol::address::{Resource, Target};
use crate::rest::protocol::batch::{
    self, Boundaries, Changeset, Envelope, Fields, Part, put_failure, put_found, put_not_found,
};
use crate::rest::protocol::fault::{Fault, Occasion};
use crate::rest::protocol::headers::{Headers, Level, Method, Preference};
use crate::table::{EntityGroup, Operation};

use super::context::RequestContext;
use super::entities::{self, Meaning, Write};
use super::http::body::Share;
use super::reply::Reply;

/// An upper bound of the bytes of boundaries and headers. It applies to the answer as a whole, and
/// again to each of its parts.
const ANSWER_BYTES: usize = 640;

/// The data that the answer to an operation needs.
struct Item<'p> {
    content_id: Option<&'p str>,
    /// The table's name as spelled in this operation; `None` if it is spelled as in the first
    /// operation.
    name: Option<String>,
    preference: Option<Preference>,
    /// The metadata level of the entity in the answer, if there is one.
    level: Level,
}

/// A changeset that was carried out.
struct Done<'p> {
    /// The table's name as spelled in the first operation.
    table: String,
    items: Vec<Item<'p>>,
    group: EntityGroup,
    etags: Vec<Option<ETag>>,
    /// The answer's share of the memory budget, and an upper bound of the answer's bytes.
    share: Share,
    at_most: usize,
}

/// Parses the operations of a changeset. Operations often have the same address or headers as the
/// previous one; these are not parsed again.
#[derive(Default)]
struct Reader<'p> {
    encoder: EntityEncoder,
    /// The address of the previous operation, and its parsed form.
    target: Option<(&'p str, Target)>,
    /// The method and headers of the previous operation, and their parsed form.
    meaning: Option<(&'p str, Fields<'p>, Meaning)>,
    /// The metadata level, if the previous operation was an insert. It applies to an insert with
    /// the same address and headers.
    level: Option<Level>,
    table: Option<String>,
}

/// Answers a batch.
pub(super) fn answer(
    context: &RequestContext<'_>,
    boundaries: Boundaries,
    time: DateTime,
) -> Result<Reply, Fault> {
    let occasion = Occasion { request_id: &context.request.request_id, time };
    let content_type = context.request.value(header::CONTENT_TYPE.as_str()).unwrap_or_default();
    let (mut body, mut share) = (Vec::new(), Share::default());
    match batch::read(&context.request.body, content_type) {
        Ok(Envelope::Query(part)) => match read(context, &part) {
            Ok((etag, level, entity, room)) => {
                put_found(&mut body, &boundaries, &etag, level, &entity);
                share = room;
            }
            Err(fault) if is_of_server(&fault) => return Err(Fault { index: None, ..fault }),
            Err(fault) => put_not_found(&mut body, &boundaries, &fault, occasion),
        },
        Ok(Envelope::Changeset(parts)) => match write(context, &parts) {
            Ok(mut done) => {
                share = std::mem::take(&mut done.share);
                body = context.request.spare(&mut share);
                body.clear();
                put_written(context, &mut body, &boundaries, &done);
                debug_assert!(body.len() <= done.at_most, "{} > {}", body.len(), done.at_most);
            }
            Err(fault) if is_of_server(&fault) => return Err(Fault { index: None, ..fault }),
            Err(fault) => {
                let part = fault.index.and_then(|index| parts.get(index));
                let content_id = part.and_then(|part| part.content_id);
                put_failure(&mut body, &boundaries, content_id, &fault, occasion);
            }
        },
        // A fault with an index is the fault of one operation, and is reported in the answer to the
        // batch.
        Err(fault) if fault.index.is_some() => {
            put_failure(&mut body, &boundaries, None, &fault, occasion);
        }
        Err(fault) => return Err(fault),
    }
    let reply = Reply::uncached(202).with_body(boundaries.response_type(), body);
    Ok(Reply { share, ..reply })
}

/// Whether the fault is an error of the server and not of an operation. The whole request then
/// fails.
fn is_of_server(fault: &Fault) -> bool {
    matches!(fault.status, 500 | 503 | 507)
}

/// Carries out a batch that contains one read.
fn read(
    context: &RequestContext<'_>,
    part: &Part<'_>,
) -> Result<(ETag, Level, Vec<u8>, Share), Fault> {
    if part.method()? != Method::Get {
        return Err(Code::InvalidInput.into());
    }
    let target = part.target(context.target)?;
    let Resource::Entity { table, key } = &target.resource else {
        return Err(Code::InvalidInput.into());
    };
    let version = Part::version(&target.query, context.version)?;
    let level = Level::of(&*part.headers, &target.query, version)?;
    let found = entities::find(context, &target.query, table, key)?;
    let etag = found.entity.etag().ok_or(Code::InternalError)?;
    let share = context.response_share(ANSWER_BYTES + found.body_at_most(context, level))?;
    Ok((etag, level, found.body(context, level, 0), share))
}

/// Carries out a changeset: all of it or nothing. The error is that of the first operation that
/// fails, malformed or not.
fn write<'p>(context: &RequestContext<'_>, parts: &[Part<'p>]) -> Result<Done<'p>, Fault> {
    let mut items = Vec::with_capacity(parts.len());
    let mut reader = Reader::default();
    let operations = parts.iter().map(|part| {
        let (item, operation) = reader.read(context, part)?;
        items.push(item);
        Ok::<_, Fault>(operation)
    });
    let group = EntityGroup::up_to_refused(operations, entities::REQUEST_SIZE_MAX);
    let indexed = |error: Error| {
        let fault = Fault::from(error);
        let index = fault.index.unwrap_or(0);
        fault.at_index(index)
    };
    let (group, refused) = group.map_err(indexed)?;
    let refused = refused.map(|fault| fault.at_index(group.len()));
    let Some(name) = reader.table else {
        return Err(refused.unwrap_or_else(|| Code::InvalidInput.into()));
    };
    if context.misbehaving.is_some() && refused.is_none() {
        let keys: Vec<_> = (0..group.len()).filter_map(|index| group.keys(index)).collect();
        let rows: Vec<_> = keys.iter().map(|(_, row)| *row).collect();
        let decided = context.misbehave(Asked::Commit, &name, Some(group.partition_key()), &rows);
        decided.map_err(|fault| fault.at_index(0))?;
    }
    let table = context.table(&name).map_err(indexed)?;
    if let Some(refused) = refused {
        return Err(table.first_failure(&group).map_or(refused, indexed));
    }
    let at_most = written_at_most(context, &name, &items, &group);
    let share = context.response_share(at_most)?;
    let etags = context.commit(&table, &group).map_err(indexed)?;
    Ok(Done { table: name, items, group, etags, share, at_most })
}

/// Returns an upper bound of the bytes of the answer to a changeset.
fn written_at_most(
    context: &RequestContext<'_>,
    table: &str,
    items: &[Item<'_>],
    group: &EntityGroup,
) -> usize {
    let parts = items.iter().zip(group.operations()).map(|(item, operation)| {
        let name = item.name.as_deref().unwrap_or(table);
        let entity =
            entities::sent_back_at_most(context, name, &operation, item.preference, item.level);
        let addresses = match (&*operation, entity) {
            (Operation::Insert(_), 0) => 2 * entities::location_len(context, name, &operation),
            (Operation::Insert(_), _) => entities::location_len(context, name, &operation),
            _ => 0,
        };
        ANSWER_BYTES + item.content_id.map_or(0, str::len) + addresses + entity
    });
    ANSWER_BYTES + parts.sum::<usize>()
}

impl<'p> Reader<'p> {
    fn read(
        &mut self,
        context: &RequestContext<'_>,
        part: &Part<'p>,
    ) -> Result<(Item<'p>, Operation), Fault> {
        if part.is_read() {
            return Err(Code::InvalidInput.into());
        }
        let (headers, level) = (&part.headers, self.level.take());
        let (target, is_same) = match self.target.take() {
            Some((url, target)) if url == part.url => (target, true),
            _ => (part.target(context.target)?, false),
        };
        let (_, target) = self.target.insert((part.url, target));
        let version = Part::version(&target.query, context.version)?;
        let known = self.meaning.take().filter(|(method, known, meaning)| {
            // Two operations that share the list of headers have identical headers.
            *method == part.method && Arc::ptr_eq(known, headers) && meaning.version == version
        });
        let are_known = is_same && known.is_some();
        let known = match known {
            Some(known) => known,
            None => (part.method, Arc::clone(headers), Meaning::of(part.method()?, version)),
        };
        let (_, _, meaning) = self.meaning.insert(known);
        let (resource, body) = (&target.resource, || Ok(part.body));
        let write = entities::read_write(resource, &**headers, meaning, body, &mut self.encoder)?;
        let level = match (meaning.method, level) {
            (Method::Post, Some(level)) if are_known => level,
            (Method::Post, _) => Level::of(&**headers, &target.query, version)?,
            _ => Level::Minimal,
        };
        self.level = Some(level);
        let Write { table, operation, preference } = write;
        context.grant.allow(entities::action(&operation), Some(table))?;
        let (pk, rk) = operation.keys();
        context.grant.check_keys(pk, rk)?;
        match &self.table {
            None => self.table = Some(table.to_owned()),
            Some(first) if first.eq_ignore_ascii_case(table) => {}
            Some(_) => return Err(Code::CommandsInBatchActOnDifferentPartitions.into()),
        }
        let name = (self.table.as_deref() != Some(table)).then(|| table.to_owned());
        Ok((Item { content_id: part.content_id, name, preference, level }, operation))
    }
}

fn put_written(
    context: &RequestContext<'_>,
    body: &mut Vec<u8>,
    boundaries: &Boundaries,
    done: &Done<'_>,
) {
    let Done { table, items, group, etags, .. } = done;
    let (mut location, mut shown) = (String::new(), Vec::new());
    let mut changeset = Changeset::begin(body, boundaries);
    for ((item, operation), etag) in items.iter().zip(group.operations()).zip(etags) {
        let name = item.name.as_ref().unwrap_or(table);
        let reply = match (etag, &*operation) {
            (None, _) => batch::Reply::Deleted,
            (Some(etag), Operation::Insert(_)) => {
                location.clear();
                entities::put_location(&mut location, context, name, &operation);
                let entity = entities::sent_back(&operation, item.preference, Some(etag));
                if let Some(entity) = &entity {
                    shown.clear();
                    let scope = entities::scope(context, name, None, item.level);
                    scope.put_single(&mut shown, entity);
                }
                batch::Reply::Inserted {
                    location: &location,
                    etag,
                    preference: item.preference,
                    body: entity.map(|_| (item.level, shown.as_slice())),
                }
            }
            (Some(etag), _) => batch::Reply::Written { etag },
        };
        changeset.put(item.content_id, reply);
    }
    changeset.end();
}
