//! Entity group transactions, and the one read that a batch may hold.
//!
//! Invariant: what a batch asks for is read whole before anything of it is carried out, by one commit.
//!
//! Not here: multipart bodies (`wire::batch`), what a group may hold (`table`).

use hyper::header;

use crate::error::Code;
use crate::model::ETag;
use crate::table::EntityGroup;
use crate::wire::address::Resource;
use crate::wire::batch::{
    self, Boundaries, Envelope, Part, put_changeset, put_failure, put_found, put_not_found,
};
use crate::wire::fault::{Fault, Occasion};
use crate::wire::headers::{Headers, Level, Method};
use crate::wire::payload::Scope;

use super::call::Call;
use super::entities::{self, Write};
use super::reply::Reply;
use super::service::Service;

/// An operation of a changeset, read but not carried out.
struct Item<'p> {
    content_id: Option<&'p str>,
    write: Write,
    /// Of an entity that is sent back.
    level: Level,
}

/// Answers a batch.
pub(super) fn answer(service: &Service, call: &Call<'_>) -> Result<Reply, Fault> {
    let boundaries = Boundaries { batch: service.new_id(), changeset: service.new_id() };
    let occasion = Occasion { request_id: &call.asked.request_id, time: service.now() };
    let content_type = call.asked.value(header::CONTENT_TYPE.as_str()).unwrap_or_default();
    let mut body = Vec::new();
    match batch::read(&call.asked.body, content_type) {
        Ok(Envelope::Query(part)) => match read(call, &part) {
            Ok((etag, level, entity)) => put_found(&mut body, &boundaries, etag, level, &entity),
            Err(fault) => put_not_found(&mut body, &boundaries, &fault, occasion),
        },
        Ok(Envelope::Changeset(parts)) => match write(call, &parts) {
            Ok((items, etags)) => put_written(call, &mut body, &boundaries, &items, &etags),
            Err(fault) => {
                let part = fault.index.and_then(|index| parts.get(index));
                let content_id = part.and_then(|part| part.content_id);
                put_failure(&mut body, &boundaries, content_id, &fault, occasion);
            }
        },
        // A fault with an index is that of an operation.
        Err(fault) if fault.index.is_some() => {
            put_failure(&mut body, &boundaries, None, &fault, occasion);
        }
        Err(fault) => return Err(fault),
    }
    Ok(Reply::uncached(202).with_body(boundaries.response_type(), body))
}

/// Carries out the read of a batch.
fn read(call: &Call<'_>, part: &Part<'_>) -> Result<(ETag, Level, Vec<u8>), Fault> {
    let target = part.target(call.target)?;
    let Resource::Entity { table, key } = &target.resource else {
        return Err(Code::InvalidInput.into());
    };
    let level = Level::of(part.headers.as_slice(), &target.query, call.version)?;
    let found = entities::find(call, &target.query, table, key)?;
    let etag = found.etag().ok_or(Code::InternalError)?;
    Ok((etag, level, found.body(call, level)))
}

/// Carries out a changeset: all of it, or nothing.
fn write<'p>(
    call: &Call<'_>,
    parts: &'p [Part<'p>],
) -> Result<(Vec<Item<'p>>, Vec<Option<ETag>>), Fault> {
    let mut items: Vec<Item<'p>> = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let item = read_item(call, part).map_err(|fault| fault.at_index(index))?;
        let is_other =
            |first: &Item<'_>| !first.write.table.eq_ignore_ascii_case(&item.write.table);
        if items.first().is_some_and(is_other) {
            return Err(Fault::from(Code::CommandsInBatchActOnDifferentPartitions).at_index(index));
        }
        items.push(item);
    }
    let first = items.first().ok_or(Code::InvalidInput)?;
    let indexed = |error: crate::error::Error| {
        let fault = Fault::from(error);
        let index = fault.index.unwrap_or(0);
        fault.at_index(index)
    };
    let table = call.account.db.table(&first.write.table).map_err(indexed)?;
    let operations = items.iter().map(|item| item.write.operation.clone());
    let group = EntityGroup::of_request(operations).map_err(indexed)?;
    let etags = table.commit(group).map_err(indexed)?;
    Ok((items, etags))
}

fn read_item<'p>(call: &Call<'_>, part: &'p Part<'p>) -> Result<Item<'p>, Fault> {
    let (method, target) = (part.method()?, part.target(call.target)?);
    let headers = part.headers.as_slice();
    let body = part.body.as_bytes();
    let write = entities::read_write(method, &target.resource, headers, body, call.version)?;
    let level = match method {
        Method::Post => Level::of(headers, &target.query, call.version)?,
        _ => Level::Minimal,
    };
    call.grant.allow(entities::action(&write.operation), Some(&write.table))?;
    let (pk, rk) = write.operation.keys();
    call.grant.check_keys(pk, rk)?;
    Ok(Item { content_id: part.content_id, write, level })
}

fn put_written(
    call: &Call<'_>,
    body: &mut Vec<u8>,
    boundaries: &Boundaries,
    items: &[Item<'_>],
    etags: &[Option<ETag>],
) {
    // What an insert sends back has to outlive the list of replies.
    let shown: Vec<_> = items
        .iter()
        .zip(etags)
        .map(|(item, etag)| {
            let written = entities::written(&item.write, *etag);
            let location = entities::location(call, &item.write);
            let entity = written.entity.map(|entity| {
                let (mut out, account) = (Vec::new(), &*call.account.name);
                let table = item.write.table.as_str();
                let scope =
                    Scope { base: &call.base, account, table, select: None, level: item.level };
                scope.put_single(&mut out, &entity);
                out
            });
            (location, entity)
        })
        .collect();
    let replies = items.iter().zip(etags).zip(&shown).map(|((item, etag), (location, entity))| {
        let is_insert = matches!(item.write.operation, crate::table::Operation::Insert(_));
        let reply = match etag {
            None => batch::Reply::Deleted,
            Some(etag) if is_insert => batch::Reply::Inserted {
                location,
                etag: *etag,
                preference: item.write.preference,
                body: entity.as_deref().map(|body| (item.level, body)),
            },
            Some(etag) => batch::Reply::Written { etag: *etag },
        };
        (item.content_id, reply)
    });
    put_changeset(body, boundaries, replies);
}
