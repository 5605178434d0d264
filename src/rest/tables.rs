//! The operations on tables: list, get, create and delete.
//!
//! Not here: the access policies of tables (`settings`).

use hyper::header;

use crate::behave::Operation;
use crate::error::Code;
use crate::model::Entity;
use crate::query::Filter;
use crate::query::tree::{Node, Property};
use crate::rest::protocol::address::{Parameters, table_path};
use crate::rest::protocol::fault::Fault;
use crate::rest::protocol::headers::{Level, Preference, check_json_body};
use crate::rest::protocol::sas::Action;
use crate::rest::protocol::{paging, payload};

use super::context::RequestContext;
use super::entities::filter;
use super::reply::{DATA_SERVICE_ID, PREFERENCE_APPLIED, Reply, name};

const PAGE_TABLES: usize = 1_000;
/// The only property of a table that a filter or a body may contain.
const TABLE_NAME: &str = "TableName";

/// Answers a listing of tables.
pub(super) fn list(context: &RequestContext<'_>) -> Result<Reply, Fault> {
    context.grant.allow(Action::QueryTables, None)?;
    let level = context.level()?;
    let parameters = &context.target.query;
    let (filter, top) = (read_filter(parameters)?, parameters.top()?.unwrap_or(PAGE_TABLES));
    let from = paging::read_tables(parameters)?.unwrap_or_default();
    context.misbehave(Operation::Tables, "", None, &[&from])?;
    let matches =
        |name: &String| filter.matches(&Entity::new("", "").with(TABLE_NAME, name.as_str()));
    let names = context.account.db.tables()?.into_iter();
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
    payload::put_tables(&mut body, &context.base, &context.account.name, names, level);
    Ok(reply.with_body(level.content_type(), body))
}

/// Parses a filter on the names of tables.
fn read_filter(parameters: &Parameters) -> Result<Filter, Fault> {
    let filter = filter(parameters)?;
    if is_about_name(filter.node()) { Ok(filter) } else { Err(Code::InvalidInput.into()) }
}

/// True if the filter compares no property except the table's name.
fn is_about_name(node: &Node) -> bool {
    match node {
        Node::All | Node::TooDeep => true,
        Node::Compare(comparison) => comparison.property == Property::from(TABLE_NAME),
        Node::And(nodes) | Node::Or(nodes) => nodes.iter().all(is_about_name),
        Node::Not(node) => is_about_name(node),
    }
}

/// Answers a read of one table.
pub(super) fn get(context: &RequestContext<'_>, table: &str) -> Result<Reply, Fault> {
    context.grant.allow(Action::QueryTables, None)?;
    let level = context.level()?;
    context.misbehave(Operation::Tables, table, None, &[])?;
    let found = context.account.db.table(table).map_err(|_| Code::ResourceNotFound)?;
    Ok(show(context, Reply::uncached(200), found.name(), level))
}

fn show(context: &RequestContext<'_>, reply: Reply, table: &str, level: Level) -> Reply {
    let mut body = Vec::new();
    payload::put_table(&mut body, &context.base, &context.account.name, table, level);
    reply.with_body(level.content_type(), body)
}

/// Creates a table.
pub(super) fn create(context: &RequestContext<'_>) -> Result<Reply, Fault> {
    context.grant.allow(Action::CreateTable, None)?;
    let level = context.level()?;
    check_json_body(context.request)?;
    let table = payload::read_new_table(context.request.text()?)?;
    let preference = Preference::of(context.request);
    context.misbehave(Operation::CreateTable, &table, None, &[])?;
    context.account.db.create_table(&table)?;
    let location = format!("{}{}", context.base, table_path(&table));
    let status = if preference == Some(Preference::NoContent) { 204 } else { 201 };
    let mut reply = Reply::uncached(status).with(header::LOCATION, location.clone());
    if let Some(preference) = preference {
        reply = reply.with(PREFERENCE_APPLIED, preference.as_str());
    }
    match preference {
        Some(Preference::NoContent) => Ok(reply.with(DATA_SERVICE_ID, location)),
        _ => Ok(show(context, reply, &table, level)),
    }
}

/// Deletes a table, which disappears immediately.
pub(super) fn delete(context: &RequestContext<'_>, table: &str) -> Result<Reply, Fault> {
    context.grant.allow(Action::DeleteTable, None)?;
    context.misbehave(Operation::DeleteTable, table, None, &[])?;
    context.account.db.delete_table(table)?;
    context.table_deleted(table);
    Ok(Reply::uncached(204))
}
