//! Answers the requests that Azure Table storage does not have: for the change feed, and for
//! operations of the library. They are for a client with a key of the account, and only served with
//! the option `--extensions`.
//!
//! docs/SEMANTICS.md has their form. `page` answers the other paths under `$rowstone`.

use std::time::Duration;

use crate::db::Position;
use crate::error::Code;
use crate::json;
use crate::json::exec::{Request, Response, read_request};
use crate::rest::protocol::address::extra_parameter;
use crate::rest::protocol::fault::{Fault, Known};
use crate::rest::protocol::headers::Method;

use super::context::RequestContext;
use super::entities::{self, Order};
use super::feed::Feed;
use super::page::{INSIDE, JSON};
use super::reply::Reply;

/// The maximum time for which a request waits for a commit, in seconds.
const WAIT_SECONDS_MAX: u64 = 30;

/// Whether a path is one of an extension.
pub(super) fn has(path: &str) -> bool {
    let Some((name, rest)) = split(path) else { return false };
    match name {
        "positions" | "changes" | "exec" => rest.is_empty(),
        "reverse" => !rest.is_empty(),
        _ => false,
    }
}

fn split(path: &str) -> Option<(&str, &str)> {
    let path = path.strip_prefix(INSIDE)?;
    Some(path.split_once('/').unwrap_or((path, "")))
}

/// Answers a request for an extension.
pub(super) fn answer(
    context: &RequestContext<'_>,
    path: &str,
    method: Method,
) -> Result<Reply, Fault> {
    context.grant.allow_owner()?;
    match (split(path).unwrap_or_default(), method) {
        (("positions", _), Method::Get) => positions(context),
        (("changes", _), Method::Get) => changes(context),
        (("exec", _), Method::Post) => exec(context),
        (("reverse", table), Method::Get) => entities::query(context, table, Order::Descending),
        _ => Err(Known::MethodNotAllowed.into()),
    }
}

fn positions(context: &RequestContext<'_>) -> Result<Reply, Fault> {
    let db = &context.account.db;
    let (oldest, newest) = (db.oldest_position()?, db.position());
    let body = json::object(|object| {
        object.text("oldest", &oldest.to_string());
        object.text("newest", &newest.to_string());
    });
    Ok(Reply::uncached(200).with_body(JSON, body.into_bytes()))
}

fn changes(context: &RequestContext<'_>) -> Result<Reply, Fault> {
    let parameter = |name| extra_parameter(&context.request.query, name);
    let since = parameter("since")?.map(|text| text.parse::<Position>()).transpose()?;
    let wait = match parameter("wait")? {
        Some(text) => {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let unreadable = || Fault::parameter("wait", &text, "Not a number of seconds.");
            let seconds = is_number.then(|| text.parse().unwrap_or(WAIT_SECONDS_MAX));
            seconds.ok_or_else(unreadable)?.min(WAIT_SECONDS_MAX)
        }
        None => 0,
    };
    let (db, wait) = (&context.account.db, Duration::from_secs(wait));
    let mut feed = Feed::open(db, &context.account.readers, since, wait)?;
    if feed.look()? || wait.is_zero() {
        return feed.reply(context.request);
    }
    // The connection waits, and then builds the answer.
    context.feed.replace(Some(Box::new(feed)));
    Ok(Reply::uncached(200))
}

/// Executes an operation of `rowstone exec`.
fn exec(context: &RequestContext<'_>) -> Result<Reply, Fault> {
    let db = &context.account.db;
    let response = match read_request(&context.request.body)? {
        Request::DeleteRange { table, range } => {
            db.table(&table)?.delete_range(&range)?;
            Response::ok()
        }
        Request::Count { table, filter, by_partition: false } => {
            Response::ok().counters([("count", db.table(&table)?.query(filter)?.count()?)])
        }
        Request::Sync => {
            db.sync()?;
            Response::ok()
        }
        _ => {
            let fault = Fault::from(Code::NotImplemented);
            return Err(fault.with_message(
                "Only delete_range without reclaim, count without by_partition, and sync are served.",
            ));
        }
    };
    Ok(Reply::uncached(200).with_body(JSON, response.into_line()))
}
