//! Reads the answers to requests: results, or the reason why there is none.
//!
//! Texts of the service are not yet safe to show, since a service may repeat credentials in them.

use std::time::Duration;

use super::transport::{NOT_TEXT, Response};
use crate::clock::TICKS_PER_SECOND;
use crate::db::Position;
use crate::error::{Code, Error, ErrorKind, Result};
use crate::json::odata::{Members, read_page};
use crate::json::{self, Scalar};
use crate::model::{DateTime, ETag, Entity, EntityEncoder, KeyPart};
use crate::rest::protocol::answer::{Answer, read_json, read_response, read_xml};
use crate::rest::protocol::fault::{Fault, Known};
use crate::rest::protocol::headers::Headers as _;
use crate::rest::protocol::time;

/// The maximum number of elements in a page.
pub(super) const PAGE_MAX: usize = 1_000;
/// The maximum number of characters that are read of the body of an answer without an error code.
/// Far more than an error shows, so that a credential is found before the text is cut.
const SEARCHED_MAX: usize = 16 << 10;
/// The longest pause before a repeat for which a service may ask.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The reason why an answer is not a result.
pub(super) enum Refusal {
    /// The answer breaks the protocol.
    Malformed(&'static str),
    /// The end of the answer is missing.
    Cut,
    /// The answer names another address.
    Redirect,
    /// The service refused the request, or failed.
    Fault(Fault),
}

/// A page of entities, and the position of the next page.
pub(super) type Page = (Vec<Entity>, Option<(String, String)>);

fn refusal(response: &Response) -> Refusal {
    match response.status {
        200..=299 => Refusal::Malformed("an unexpected status"),
        300..=399 => Refusal::Redirect,
        status => {
            let text = std::str::from_utf8(&response.body).unwrap_or_default();
            let fault = read_json(text, status).or_else(|| read_xml(text, status));
            let end = text.char_indices().nth(SEARCHED_MAX).map_or(text.len(), |(at, _)| at);
            let start = text.get(..end).unwrap_or_default();
            let mut fault = fault.unwrap_or_else(|| Fault::unreadable(status, start));
            if let Some(code) = response.header("x-ms-error-code") {
                fault.code = code.to_owned().into();
            }
            Refusal::Fault(fault)
        }
    }
}

/// Whether an answer is of the service, to a client that it knows. The other answers of a service
/// show the clock by which it checks signatures, and those of a proxy show the proxy's clock.
pub(super) fn is_of_client(response: &Response) -> bool {
    let is_marked =
        ["x-ms-request-id", "x-ms-version"].iter().any(|name| response.header(name).is_some());
    let is_known = response.header("x-ms-error-code") != Some("AuthenticationFailed");
    is_marked && is_known && !matches!(response.status, 300..=399)
}

/// Returns the pause before a repeat for which the service asks, in seconds or until a time. `now`
/// is the time of the service in ticks.
pub(super) fn retry_after(response: &Response, now: u64) -> Duration {
    let text = response.header("Retry-After").unwrap_or_default().trim();
    let ticks_until = |time: DateTime| time.ticks().saturating_sub(now);
    let until = || time::read_http(text).map(|time| ticks_until(time).div_ceil(TICKS_PER_SECOND));
    let seconds = text.parse().ok().or_else(until);
    Duration::from_secs(seconds.unwrap_or(0)).min(PAUSE_MAX)
}

/// Reads the answer to a write without a result.
pub(super) fn done(response: &Response) -> Result<(), Refusal> {
    matches!(response.status, 201 | 204).then_some(()).ok_or_else(|| refusal(response))
}

/// Reads the answer to a delete of an entity that may be missing.
pub(super) fn done_or_absent(response: &Response) -> Result<(), Refusal> {
    done(response).or_else(|refusal| if is_absent(&refusal) { Ok(()) } else { Err(refusal) })
}

fn is_absent(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Fault(fault) if fault.code == Code::ResourceNotFound.as_str())
}

/// Reads the ETag in the answer to a write.
pub(super) fn etag(response: &Response) -> Result<ETag, Refusal> {
    done(response)?;
    let etag = response.header("ETag").and_then(|text| text.parse().ok());
    etag.ok_or(Refusal::Malformed("an answer without an ETag"))
}

/// Reads an entity; `None` if it does not exist.
pub(super) fn entity(response: &Response) -> Result<Option<Entity>, Refusal> {
    match success(response) {
        Ok(text) => {
            let members = Members::read(text).ok();
            let etag = response.header("ETag");
            let entity = members.and_then(|m| to_entity(&m, etag, &mut EntityEncoder::default()));
            entity.map(Some).ok_or(Refusal::Malformed("a malformed entity"))
        }
        Err(refusal) if is_absent(&refusal) => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

/// Reads a page of entities.
pub(super) fn page(response: &Response) -> Result<Page, Refusal> {
    let text = success(response)?;
    let mut encoder = EntityEncoder::default();
    let entities = read_page(text, PAGE_MAX, |members| to_entity(members, None, &mut encoder));
    let partition = continuation(response, "x-ms-continuation-NextPartitionKey")?;
    let next = match (partition, continuation(response, "x-ms-continuation-NextRowKey")?) {
        (Some(partition), row) => Some((partition, row.unwrap_or_default())),
        (None, None) => None,
        (None, Some(_)) => return Err(Refusal::Malformed("a position without a partition")),
    };
    Ok((entities.ok_or(Refusal::Malformed("a malformed page"))?, next))
}

/// Reads a part of the position of the next page. Without it, the page would be taken for the last.
fn continuation(response: &Response, name: &str) -> Result<Option<String>, Refusal> {
    match response.header(name) {
        Some(NOT_TEXT) => Err(Refusal::Malformed("a malformed position of a page")),
        text => Ok(text.map(str::to_owned)),
    }
}

/// Reads a page of the names of tables, and the position of the next page.
pub(super) fn tables(response: &Response) -> Result<(Vec<String>, Option<String>), Refusal> {
    let names =
        read_page(success(response)?, PAGE_MAX, |members| match members.find("TableName") {
            Some(Scalar::String(name)) => Some(name.clone().into_owned()),
            _ => None,
        });
    let next = continuation(response, "x-ms-continuation-NextTableName")?;
    Ok((names.ok_or(Refusal::Malformed("a malformed list of tables"))?, next))
}

/// Reads the ETags in the answer to a group of `len` operations.
pub(super) fn group(response: &Response, len: usize) -> Result<Vec<Option<ETag>>, Refusal> {
    if response.status != 202 {
        return Err(refusal(response));
    }
    let malformed = || Refusal::Malformed("a malformed answer to a group");
    let content_type = response.header("Content-Type").unwrap_or_default();
    let answers: Vec<Answer<'_>> =
        read_response(&response.body, content_type).ok_or_else(malformed)?;
    if let Some(fault) = answers.iter().find_map(Answer::fault) {
        return Err(Refusal::Fault(fault));
    }
    if answers.len() != len || answers.iter().any(|answer| !(200..300).contains(&answer.status)) {
        return Err(malformed());
    }
    let etag = |answer: &Answer<'_>| answer.headers.value("ETag").map(str::parse).transpose();
    answers.iter().map(etag).collect::<Result<_>>().map_err(|_| malformed())
}

/// Returns the body of an answer of an extension.
pub(super) fn text(response: &Response) -> Result<String, Refusal> {
    success(response).map(str::to_owned)
}

/// Returns the body of an answer of an extension that is one JSON object.
pub(super) fn object(response: &Response) -> Result<String, Refusal> {
    let text = text(response)?;
    let is_whole = json::read_object(&text, 0).is_ok();
    is_whole.then_some(text).ok_or(Refusal::Cut)
}

/// Reads a page of the change feed: its lines, and the position after it.
pub(super) fn changes(response: &Response) -> Result<(String, Position), Refusal> {
    let lines = text(response)?;
    let position = response.header("x-rowstone-position").and_then(|text| text.parse().ok());
    let position = position.ok_or(Refusal::Malformed("changes without a position"))?;
    let commits = response.header("x-rowstone-commits").and_then(|text| text.parse().ok());
    let commits: usize = commits
        .ok_or(Refusal::Malformed("changes without x-rowstone-commits, as of an older server"))?;
    let is_whole = lines.matches('\n').count() == commits;
    is_whole.then_some((lines, position)).ok_or(Refusal::Cut)
}

fn success(response: &Response) -> Result<&str, Refusal> {
    if response.status != 200 {
        return Err(refusal(response));
    }
    std::str::from_utf8(&response.body).map_err(|_| Refusal::Malformed("a body that is not UTF-8"))
}

/// Returns an entity with its ETag and Timestamp.
fn to_entity(
    members: &Members<'_>,
    etag: Option<&str>,
    encoder: &mut EntityEncoder,
) -> Option<Entity> {
    let etag = members.etag().or(etag).map(str::parse).transpose().ok()?;
    let timestamp = match members.find("Timestamp") {
        Some(Scalar::String(text)) => Some(DateTime::parse(text).ok()?),
        _ => None,
    };
    let partition_key = members.key(KeyPart::PartitionKey).ok()?;
    let row_key = members.key(KeyPart::RowKey).ok()?;
    let entity = members.entity(partition_key, row_key, encoder).ok()?;
    Some(entity.received(etag, timestamp))
}

/// Converts a fault of the service to the error that the same request to a database returns.
pub(super) fn error_of(fault: &Fault, message: String) -> Error {
    let error = match Code::ALL.iter().find(|known| known.as_str() == fault.code) {
        Some(code) => Error::refused_with(*code, message),
        // Too many requests. Cosmos DB throttles by this status, and other services by 503.
        None if fault.status == 429 => Error::refused_with(Code::ServerBusy, message),
        None => {
            let kind = match fault.status {
                _ if fault.code == Known::ChangesLost.parts().0 => ErrorKind::ChangesLost,
                // Not an answer of a service but, for example, of a proxy.
                404 | 409 | 412 if fault.code.is_empty() => ErrorKind::Io,
                404 => ErrorKind::NotFound,
                409 => ErrorKind::AlreadyExists,
                412 => ErrorKind::PreconditionFailed,
                501 => ErrorKind::NotImplemented,
                400 | 413 if fault.code != "InvalidAuthenticationInfo" => ErrorKind::InvalidInput,
                // The client is refused, not the entities.
                _ => ErrorKind::Io,
            };
            Error::new(kind, message)
        }
    };
    match fault.index {
        Some(index) => error.at_index(index),
        None => error,
    }
}
