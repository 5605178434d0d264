//! Answers requests about the settings of an account and of its tables: policies, service
//! properties, statistics, and cross-origin requests.
//!
//! Settings are stored as notes, small named texts in the catalog of the account's database, in the
//! same XML as in requests.
//!
//! Not here: parsing and writing the XML (`protocol::settings`).

use std::sync::Arc;

use hyper::header::HeaderName;

use crate::rest::protocol::address::Parameter;
use crate::rest::protocol::fault::{Fault, Known};
use crate::rest::protocol::headers::{Headers, Version};
use crate::rest::protocol::sas::Action;
use crate::rest::protocol::settings::{
    Change, Properties, cors, put_policies, put_stats, read_policies,
};

use super::accounts::{Account, POLICIES, unreadable};
use super::context::RequestContext;
use super::reply::{self, Reply, name};
use super::request::Request;

/// The name of the note that holds the service properties.
const PROPERTIES: &str = "service-properties";

/// Returns the service properties. Those that were never set have their default values.
fn properties(account: &Account) -> Result<Properties, Fault> {
    Ok(stored(account)?.map_or_else(Properties::default, |stored| (*stored).clone()))
}

/// Returns the stored service properties; `None` if none was ever set. Every request calls this, so
/// the parsed properties are cached until the note changes.
fn stored(account: &Account) -> Result<Option<Arc<Properties>>, Fault> {
    let Some(text) = account.db.catalog.note(None, PROPERTIES)? else { return Ok(None) };
    let mut known = account.properties.lock();
    match &*known {
        Some((of, properties)) if Arc::ptr_eq(of, &text) => Ok(Some(Arc::clone(properties))),
        _ => {
            let stored = Change::read(&text).map_err(|_| unreadable(PROPERTIES))?;
            let properties = Arc::new(Properties::default().with(stored));
            *known = Some((text, Arc::clone(&properties)));
            Ok(Some(properties))
        }
    }
}

pub(super) fn get_acl(context: &RequestContext<'_>, table: &str) -> Result<Reply, Fault> {
    context.grant.allow(Action::Policies, Some(table))?;
    context.table(table)?;
    let mut body = Vec::new();
    put_policies(&mut body, &context.account.policies(table)?);
    Ok(Reply::new(200).with_xml(body))
}

pub(super) fn set_acl(context: &RequestContext<'_>, table: &str) -> Result<Reply, Fault> {
    context.grant.allow(Action::Policies, Some(table))?;
    let policies = read_policies(context.request.text()?)?;
    context.table(table)?;
    let mut text = Vec::new();
    put_policies(&mut text, &policies);
    let text = String::from_utf8_lossy(&text);
    context.account.db.catalog.set_note(Some(table), POLICIES, Some(&text))?;
    Ok(Reply::new(204))
}

pub(super) fn get_service(context: &RequestContext<'_>) -> Result<Reply, Fault> {
    check_service(context)?;
    context.grant.allow(Action::GetProperties, None)?;
    let mut body = Vec::new();
    properties(context.account)?.put(&mut body, context.version < Version::JSON);
    Ok(Reply::new(200).with_xml(body))
}

pub(super) fn set_service(context: &RequestContext<'_>) -> Result<Reply, Fault> {
    check_service(context)?;
    context.grant.allow(Action::SetProperties, None)?;
    let change = Change::read(context.request.text()?)?;
    let _turn = context.account.settings.lock();
    let mut text = Vec::new();
    properties(context.account)?.with(change).put(&mut text, false);
    let text = String::from_utf8_lossy(&text);
    context.account.db.catalog.set_note(None, PROPERTIES, Some(&text))?;
    Ok(Reply::new(202))
}

pub(super) fn statistics(context: &RequestContext<'_>) -> Result<Reply, Fault> {
    check_service(context)?;
    context.grant.allow(Action::GetStats, None)?;
    if !context.target.secondary {
        let reason = "Only the secondary location has statistics.";
        return Err(Fault::parameter("comp", "stats", reason));
    }
    let mut body = Vec::new();
    // Only one copy of the data exists, so reads from the secondary location see every write.
    put_stats(&mut body, context.request.received);
    Ok(Reply::new(200).with_xml(body))
}

/// Refuses a request about service properties or statistics without `restype=service`.
fn check_service(context: &RequestContext<'_>) -> Result<(), Fault> {
    const RESTYPE: &str = "restype";
    match context.target.query.get(Parameter::Restype) {
        Some("service") => Ok(()),
        Some(other) => Err(Fault::parameter(RESTYPE, other, "Not known of this resource.")),
        None => {
            let fault = Fault::from(Known::MissingRequiredQueryParameter);
            Err(fault.with_detail("QueryParameterName", RESTYPE))
        }
    }
}

/// Answers a preflight request, with which a browser asks whether a page may make a request.
pub(super) fn preflight(request: &Request, account: Option<&Account>) -> Result<Reply, Fault> {
    let rules = account.map(properties).transpose()?.unwrap_or_default().cors;
    let answer = cors::preflight(&rules, request)?;
    Ok(with_all(Reply::new(200), answer))
}

/// Adds the CORS headers that let a page of another origin read the response, if a rule allows it.
pub(super) fn share(request: &Request, account: &Account, reply: Reply) -> Reply {
    let Ok(Some(properties)) = stored(account) else { return reply };
    if properties.cors.is_empty() {
        return reply;
    }
    let own = reply.headers.iter().map(|(name, _)| name.as_str());
    let names: Vec<&str> = own.chain(reply::COMMON.iter().map(HeaderName::as_str)).collect();
    let answer = cors::actual(&properties.cors, &request.method, request.value("Origin"), &names);
    with_all(reply, answer)
}

/// Whether a CORS rule lets a page of another origin make this request.
pub(super) fn is_shared(request: &Request, account: &Account) -> bool {
    let origin = request.value("Origin");
    let rules = properties(account).map(|properties| properties.cors).unwrap_or_default();
    origin.is_some() && cors::matching(&rules, &request.method, origin).is_some()
}

fn with_all(reply: Reply, answer: cors::Answer) -> Reply {
    answer.into_iter().fold(reply, |reply, (header, value)| reply.with(name(header), value))
}
