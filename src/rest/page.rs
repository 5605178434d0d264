//! Serves the web page at `/`, and answers the requests that only this page makes: for statistics,
//! the map of ranges with its heat, and explanations of queries.
//!
//! The page is one embedded file without external resources. It has no rights of its own: it signs
//! its requests with the account's key, which it keeps only in the tab.
//!
//! Not here: the page's code (`page/index.html`).

use hyper::header;

use crate::db::{PartitionRange, Stats};
use crate::error::Code;
use crate::json;
use crate::json::explain::{put_explain, put_slow};
use crate::rest::protocol::fault::{Fault, Known};

use super::context::RequestContext;
use super::entities::filter;
use super::heat::{self, HeatHistory};
use super::reply::Reply;
use super::request::Request;

const PAGE: &str = include_str!("page/index.html");
const HTML: &str = "text/html; charset=utf-8";
pub(super) const JSON: &str = "application/json; charset=utf-8";
/// The page's content security policy: because the page holds a key, it may load no external
/// resource and no site may frame it.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// The first part of the paths, after the account, that Azure Table storage does not have.
pub(super) const INSIDE: &str = "$rowstone/";
/// The maximum number of entities that a query may read when the page asks to explain it.
const EXPLAINED: usize = 100;

/// The settings of the server, the same for all requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    /// Whether the page may change entities.
    pub(crate) allow_edit: bool,
    /// Whether the server refuses requests beyond the scalability targets of Azure Table storage.
    /// The page shows this.
    pub(crate) is_throttled: bool,
    /// Whether the server has extensions of the protocol.
    pub(crate) extensions: bool,
}

/// Answers the request with the page, if the page is requested.
pub(super) fn answer(request: &Request) -> Option<Reply> {
    if !matches!(request.method.as_str(), "GET" | "HEAD") || !request.query.is_empty() {
        return None;
    }
    match request.path.as_str() {
        "/" => {
            let reply = Reply::uncached(200).with(header::CONTENT_SECURITY_POLICY, POLICY);
            Some(reply.with_body(HTML, PAGE.as_bytes().to_vec()))
        }
        "/favicon.ico" => Some(Reply::uncached(204)),
        _ => None,
    }
}

/// Answers a request under [`INSIDE`], which only the page makes.
pub(super) fn inside(
    settings: Settings,
    heat: &HeatHistory,
    context: &RequestContext<'_>,
    path: &str,
) -> Result<Reply, Fault> {
    let Some(path) = path.strip_prefix(INSIDE) else { return Err(Known::InvalidUri.into()) };
    context.grant.allow_owner()?;
    let body = match path.split_once('/').unwrap_or((path, "")) {
        ("stats", "") => stats(settings, context),
        ("meanings", "") => meanings(&context.account.db.stats()),
        ("ranges", table) if !table.is_empty() => ranges(&context.account.db.partitions(table)?),
        ("heat", table) if !table.is_empty() => {
            context.account.db.table(table)?;
            heat.of_table(&context.account.name, table).into_bytes()
        }
        ("explain", table) if !table.is_empty() => explain(context, table)?,
        _ => return Err(Code::ResourceNotFound.into()),
    };
    Ok(Reply::uncached(200).with_body(JSON, body))
}

fn stats(settings: Settings, context: &RequestContext<'_>) -> Vec<u8> {
    let db = &context.account.db;
    let counters = json::object(|object| {
        db.stats().fields().iter().for_each(|(name, value)| object.raw(name, value));
    });
    json::object(|object| {
        object.raw("allowEdit", settings.allow_edit);
        object.raw("throttled", settings.is_throttled);
        object.raw("counters", counters);
        object.objects("slow", &db.slow_queries(), put_slow);
    })
    .into_bytes()
}

/// Returns the meaning of each counter.
fn meanings(stats: &Stats) -> Vec<u8> {
    let names = stats.fields().iter().map(|(name, _)| *name);
    json::object(|object| {
        names.for_each(|name| object.text(name, Stats::meaning(name).unwrap_or_default()));
    })
    .into_bytes()
}

fn ranges(ranges: &[PartitionRange]) -> Vec<u8> {
    let range = |range: &PartitionRange| {
        json::object(|object| {
            object.raw("id", range.id);
            for (name, bound) in [("low", &range.low), ("high", &range.high)] {
                if let Some(bound) = bound {
                    object.text(name, &heat::shown(bound));
                }
            }
            object.raw("bytes", range.bytes);
            object.raw("entities", range.entities);
            object.raw("isExact", range.is_exact);
            object.raw("files", range.files);
            object.raw("debt", range.debt);
            object.raw("reads", format_args!("{:.3}", range.reads));
            object.raw("writes", format_args!("{:.3}", range.writes));
            object.text("pattern", range.pattern.name());
        })
    };
    json::array(ranges.iter().map(range)).into_bytes()
}

fn explain(context: &RequestContext<'_>, table: &str) -> Result<Vec<u8>, Fault> {
    let query = context.account.db.table(table)?.query(filter(&context.target.query)?)?;
    let (_, explain) = query.page_explained(EXPLAINED)?;
    Ok(json::object(|object| put_explain(object, &explain)).into_bytes())
}
