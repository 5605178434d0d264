//! Tables: listing, creating, deleting them.
//!
//! Not here: their policies (`settings`).

use hyper::header;

use crate::error::Code;
use crate::model::Entity;
use crate::query::Filter;
use crate::query::tree::{Node, Property};
use crate::rest::protocol::address::{Parameters, table_path};
use crate::rest::protocol::fault::Fault;
use crate::rest::protocol::headers::{Preference, check_json_body};
use crate::rest::protocol::sas::Action;
use crate::rest::protocol::{paging, payload};

use super::call::Call;
use super::entities::filter;
use super::reply::{DATA_SERVICE_ID, PREFERENCE_APPLIED, Reply, name};

const PAGE_TABLES: usize = 1_000;
/// The one property of a table.
const TABLE_NAME: &str = "TableName";

/// Answers a listing of tables.
pub(super) fn list(call: &Call<'_>) -> Result<Reply, Fault> {
    call.grant.allow(Action::QueryTables, None)?;
    let level = call.level()?;
    let parameters = &call.target.query;
    let (filter, top) = (read_filter(parameters)?, parameters.top()?.unwrap_or(PAGE_TABLES));
    let from = paging::read_tables(parameters)?.unwrap_or_default();
    let matches =
        |name: &String| filter.matches(&Entity::new("", "").with(TABLE_NAME, name.as_str()));
    let names = call.account.db.tables()?.into_iter();
    let mut names = names.filter(|name| name.to_ascii_lowercase() >= from).filter(matches);
    let page: Vec<String> = names.by_ref().take(top).collect();
    let mut reply = Reply::uncached(200);
    if top > 0
        && let Some(next) = names.next()
    {
        reply = reply.with(name(paging::NEXT_TABLE_NAME), paging::tables(&next));
    }
    let mut body = Vec::new();
    let names = page.iter().map(String::as_str);
    payload::put_tables(&mut body, &call.base, &call.account.name, names, level);
    Ok(reply.with_body(level.content_type(), body))
}

/// A filter on names of tables, who have nothing else.
fn read_filter(parameters: &Parameters) -> Result<Filter, Fault> {
    let filter = filter(parameters)?;
    match is_about_name(filter.node()) {
        true => Ok(filter),
        false => Err(Code::InvalidInput.into()),
    }
}

/// True if the name is all that is compared.
fn is_about_name(node: &Node) -> bool {
    match node {
        Node::All | Node::TooDeep => true,
        Node::Compare(comparison) => comparison.property == Property::from(TABLE_NAME),
        Node::And(nodes) | Node::Or(nodes) => nodes.iter().all(is_about_name),
        Node::Not(node) => is_about_name(node),
    }
}

/// Answers a look at one table.
pub(super) fn get(call: &Call<'_>, table: &str) -> Result<Reply, Fault> {
    call.grant.allow(Action::QueryTables, None)?;
    let level = call.level()?;
    let found = call.account.db.table(table).map_err(|_| Code::ResourceNotFound)?;
    Ok(show(call, Reply::uncached(200), found.name(), level))
}

fn show(
    call: &Call<'_>,
    reply: Reply,
    table: &str,
    level: crate::rest::protocol::headers::Level,
) -> Reply {
    let mut body = Vec::new();
    payload::put_table(&mut body, &call.base, &call.account.name, table, level);
    reply.with_body(level.content_type(), body)
}

/// Creates a table.
pub(super) fn create(call: &Call<'_>) -> Result<Reply, Fault> {
    call.grant.allow(Action::CreateTable, None)?;
    let level = call.level()?;
    check_json_body(call.asked)?;
    let table = payload::read_new_table(call.asked.text()?)?;
    let preference = Preference::of(call.asked);
    call.account.db.create_table(&table)?;
    let location = format!("{}{}", call.base, table_path(&table));
    let status = if preference == Some(Preference::NoContent) { 204 } else { 201 };
    let mut reply = Reply::uncached(status).with(header::LOCATION, location.clone());
    if let Some(preference) = preference {
        reply = reply.with(PREFERENCE_APPLIED, preference.as_str());
    }
    match preference {
        Some(Preference::NoContent) => Ok(reply.with(DATA_SERVICE_ID, location)),
        _ => Ok(show(call, reply, &table, level)),
    }
}

/// Deletes a table: gone at once.
pub(super) fn delete(call: &Call<'_>, table: &str) -> Result<Reply, Fault> {
    call.grant.allow(Action::DeleteTable, None)?;
    call.account.db.delete_table(table)?;
    Ok(Reply::uncached(204))
}
