//! Reads the requests and writes the responses of entity group transactions, which are multipart
//! bodies.
//!
//! Invariants
//! * the parser scans a body a fixed number of times, whatever its boundaries are; the numbers of
//!   parts and headers are bounded;
//! * a body that ends before its last delimiter is refused, and none of its operations is executed;
//! * a fault with an index answers one operation; a fault without an index answers the whole batch.
//!
//! Not here: executing operations, and checking that they form one transaction (`table`).

#[cfg(feature = "rest")]
mod write;

#[cfg(feature = "rest")]
pub(crate) use write::{Boundaries, Changeset, Reply, put_failure, put_found, put_not_found};

use std::sync::Arc;

use memchr::memchr;
use memchr::memmem::Finder;
use smallvec::SmallVec;

use super::address::{Parameter, Parameters, Target};
use super::fault::Fault;
use super::headers::{Headers, Media, Method, Version, trimmed};
use crate::model::GROUP_OPERATIONS_MAX;

/// The content of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Envelope<'a> {
    /// Operations that take effect together.
    Changeset(Vec<Part<'a>>),
    /// One read.
    Query(Box<Part<'a>>),
}

/// A request inside a batch. Its URL and body are parsed later, because errors in them belong to
/// the response of this operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part<'a> {
    pub(crate) method: &'a str,
    pub(crate) url: &'a str,
    pub(crate) headers: Fields<'a>,
    /// The body without surrounding white space.
    pub(crate) body: &'a str,
    pub(crate) content_id: Option<&'a str>,
}

/// Headers of a part, in order. Parts of one body with byte-identical headers share them.
pub(crate) type Fields<'a> = Arc<[(&'a str, &'a str)]>;

/// The headers of a part while they are parsed.
type List<'a> = SmallVec<[(&'a str, &'a str); FIELDS_ROOM]>;

/// The headers read most recently: of a part, and of the HTTP message in it. They are reused if the
/// next part has the same ones, which is the usual case.
#[derive(Default)]
pub(in crate::rest) struct Recent<'a> {
    outer: Option<Block<'a>>,
    inner: Option<Block<'a>>,
}

/// A parsed header block, including the empty line that ends it.
struct Block<'a> {
    /// The raw text, including the empty line.
    text: &'a str,
    /// Whether `text` ends with a complete empty line. Only then can the block be reused for other
    /// input that begins with `text`.
    has_end: bool,
    fields: Fields<'a>,
    content_id: Option<&'a str>,
    /// Whether the block has no content type, or the content type of an HTTP message.
    is_http: bool,
}

/// The number of headers that fit into a [`List`] without an allocation; clients usually send
/// fewer with an operation.
const FIELDS_ROOM: usize = 8;
/// The maximum number of headers in a part, and also in the HTTP message that it contains.
const HEADERS_MAX: usize = 64;
/// The maximum number of characters in a boundary; the MIME standard allows 70.
const BOUNDARY_MAX: usize = 200;
/// The maximum number of parts to read from the outer body. A valid body has one; reading a few
/// more shows that a body has too many.
pub(in crate::rest) const OUTER_MAX: usize = 4;

/// Reads the body of a batch.
///
/// # Errors
/// `InvalidInput`, with the index of the operation where the Azure service reports one.
pub(crate) fn read<'a>(body: &'a [u8], content_type: &str) -> Result<Envelope<'a>, Fault> {
    let boundary = boundary(content_type).ok_or_else(invalid)?;
    let text = std::str::from_utf8(body).map_err(|_| invalid())?;
    let outer = split(text, boundary, OUTER_MAX).ok_or_else(invalid)?;
    let [part] = outer.as_slice() else { return Err(invalid()) };
    let (headers, content) = read_headers(part).ok_or_else(invalid)?;
    let content_type = headers.value("Content-Type").unwrap_or_default();
    let mut recent = Recent::default();
    if Media::new(content_type).is("application/http") {
        let part = Part::read(part, &mut recent).filter(|part| is_read(part.method));
        return part.map(|part| Envelope::Query(Box::new(part))).ok_or_else(invalid);
    }
    let boundary = self::boundary(content_type).ok_or_else(invalid)?;
    let parts = split(content, boundary, GROUP_OPERATIONS_MAX + 1).ok_or_else(invalid)?;
    if parts.len() > GROUP_OPERATIONS_MAX {
        let text = "The batch request operation exceeds the maximum 100 changes per change set.";
        return Err(Fault::invalid(text).at_index(GROUP_OPERATIONS_MAX - 1));
    }
    let parts = parts.into_iter().map(|part| Part::read(part, &mut recent));
    let parts = parts.collect::<Option<Vec<_>>>().ok_or_else(invalid)?;
    if parts.is_empty() { Err(invalid()) } else { Ok(Envelope::Changeset(parts)) }
}

impl<'a> Part<'a> {
    /// Returns the method, which `X-HTTP-Method` may override.
    pub(crate) fn method(&self) -> Result<Method, Fault> {
        Method::of(self.method, &*self.headers)
    }

    /// Whether this is a read, which a changeset must not contain.
    pub(crate) fn is_read(&self) -> bool {
        is_read(self.method)
    }

    /// Returns the target of this operation; `outer` is the target of the batch. Checks its query
    /// string like that of a request of its own.
    pub(crate) fn target(&self, outer: &Target) -> Result<Target, Fault> {
        // The front end's HTML error page is only for whole requests. An operation in a batch gets
        // an ordinary error instead.
        let plain = |fault: Fault| if fault.is_html() { Fault::query_syntax() } else { fault };
        let target = outer.read_inner(self.url).map_err(plain)?;
        target.query.timeout()?;
        match target.query.get(Parameter::Comp) {
            Some(comp) => Err(Fault::parameter("comp", comp, "Not known of an operation.")),
            None => Ok(target),
        }
    }

    /// Returns the version in the query string of this operation, or else `outer`, the version of
    /// the batch.
    pub(crate) fn version(query: &Parameters, outer: Version) -> Result<Version, Fault> {
        let none: &[(&str, &str)] = &[];
        match query.get(Parameter::ApiVersion) {
            Some(_) => Ok(Version::of(none, query)?.unwrap_or(outer)),
            None => Ok(outer),
        }
    }

    fn read(text: &'a str, recent: &mut Recent<'a>) -> Option<Part<'a>> {
        let Message { first, headers, body, content_id } = Message::read(text, recent)?;
        let (method, rest) = first.split_once(' ')?;
        let (url, version) = trimmed(rest).rsplit_once(' ')?;
        let is_named = !method.is_empty() && version.starts_with("HTTP/");
        is_named.then_some(Part { method, url: trimmed(url), headers, body, content_id })
    }
}

/// An HTTP message in a part, without the part's own headers.
pub(in crate::rest) struct Message<'a> {
    pub(in crate::rest) first: &'a str,
    pub(in crate::rest) headers: Fields<'a>,
    pub(in crate::rest) body: &'a str,
    pub(in crate::rest) content_id: Option<&'a str>,
}

impl<'a> Message<'a> {
    pub(in crate::rest) fn read(part: &'a str, recent: &mut Recent<'a>) -> Option<Message<'a>> {
        let (outer, content) = Block::read(part, &mut recent.outer)?;
        if !outer.is_http {
            return None;
        }
        let outer_id = outer.content_id;
        let content = match content.as_bytes().first() {
            Some(b'\r' | b'\n') => content.trim_start_matches(['\r', '\n']),
            _ => content,
        };
        let (first, rest) = line(content);
        let (inner, body) = Block::read(rest, &mut recent.inner)?;
        let (headers, content_id) = (Arc::clone(&inner.fields), outer_id.or(inner.content_id));
        Some(Message { first, headers, body: trimmed(body), content_id })
    }
}

impl<'a> Block<'a> {
    /// Reads headers; also returns the text after them. Reuses `recent` if `text` begins with the
    /// same header block.
    fn read<'r>(
        text: &'a str,
        recent: &'r mut Option<Block<'a>>,
    ) -> Option<(&'r Block<'a>, &'a str)> {
        let known = recent.take().filter(|recent| recent.has_end && text.starts_with(recent.text));
        let known = match known {
            Some(known) => known,
            None => {
                let (fields, rest) = read_headers(text)?;
                let read = text.get(..text.len() - rest.len())?;
                let is_http = |text| Media::new(text).is("application/http");
                let mut ids =
                    fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("Content-ID"));
                Block {
                    text: read,
                    has_end: has_end(read),
                    content_id: ids.next().map(|(_, value)| *value),
                    is_http: fields.value("Content-Type").is_none_or(is_http),
                    fields: fields.as_slice().into(),
                }
            }
        };
        let rest = text.get(known.text.len()..)?;
        Some((recent.insert(known), rest))
    }
}

/// Returns the boundary parameter of a `multipart/mixed` content type; `None` for other types.
pub(in crate::rest) fn boundary(content_type: &str) -> Option<&str> {
    let media = Media::new(content_type);
    let boundary = media.parameter("boundary").filter(|_| media.is("multipart/mixed"))?;
    (!boundary.is_empty() && boundary.len() <= BOUNDARY_MAX).then_some(boundary)
}

/// Returns up to `most` parts between the lines `--boundary`; `None` if there is no such line, or
/// no last line `--boundary--`. Because some clients omit the trailing dashes, the last line may
/// lack them if nothing follows it.
pub(in crate::rest) fn split<'a>(
    text: &'a str,
    boundary: &str,
    most: usize,
) -> Option<Vec<&'a str>> {
    let mut parts = Vec::new();
    let delimiter = format!("--{boundary}");
    let finder = Finder::new(&delimiter);
    let (mut begin, mut from) = (None, 0);
    while let Some(at) = finder.find(text.as_bytes().get(from..)?).map(|found| from + found) {
        let is_at_line =
            at.checked_sub(1).is_none_or(|before| text.as_bytes().get(before) == Some(&b'\n'));
        if !is_at_line {
            from = at + 1;
            continue;
        }
        let (content, after) = line(text.get(at..)?);
        let next = text.len() - after.len();
        let is_last = match content.get(delimiter.len()..).map(str::trim_end) {
            Some("") => false,
            Some("--") => true,
            // The boundary in this line is longer; the expected one is only its prefix.
            _ => {
                from = next;
                continue;
            }
        };
        if let Some(begin) = begin {
            parts.push(without_line_end(text.get(begin..at)?));
        }
        if is_last {
            return begin.map(|_| parts).or(Some(Vec::new()));
        }
        if parts.len() >= most {
            return Some(parts);
        }
        (begin, from) = (Some(next), next);
    }
    let rest = text.get(begin?..)?;
    rest.trim().is_empty().then_some(parts)
}

/// Reads headers up to an empty line or the end; also returns the rest of the text.
pub(in crate::rest) fn read_headers(text: &str) -> Option<(List<'_>, &str)> {
    let mut headers = List::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (content, after) = line(rest);
        rest = after;
        if trimmed(content).is_empty() {
            break;
        }
        let colon = memchr(b':', content.as_bytes())?;
        let (name, value) = (content.get(..colon)?, content.get(colon + 1..)?);
        // The folds have no early exit, so that the compiler can vectorize them.
        let is_plain = name.bytes().fold(true, |plain, byte| plain & byte.is_ascii_graphic());
        let is_name = !name.is_empty() && (is_plain || !name.contains(char::is_whitespace));
        let has_control = content.bytes().fold(false, |found, byte| found | is_control(byte));
        // Control characters are refused: if this header is echoed in a response, it must not be
        // able to start a new header there.
        if !is_name || has_control || headers.len() >= HEADERS_MAX {
            return None;
        }
        headers.push((name, trimmed(value)));
    }
    Some((headers, rest))
}

/// Whether `text` ends with a complete empty line.
fn has_end(text: &str) -> bool {
    let last = text.strip_suffix('\n').and_then(|lines| lines.rsplit('\n').next());
    last.is_some_and(|last| trimmed(last).is_empty())
}

/// Returns the first line without its end, and the rest of the text.
fn line(text: &str) -> (&str, &str) {
    let (line, rest) = match memchr(b'\n', text.as_bytes()) {
        Some(at) => (text.get(..at).unwrap_or_default(), text.get(at + 1..).unwrap_or_default()),
        None => (text, ""),
    };
    (line.strip_suffix('\r').unwrap_or(line), rest)
}

/// Removes the line end before a delimiter, which belongs to the delimiter and not to the part.
fn without_line_end(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

fn is_read(method: &str) -> bool {
    matches!(method, "GET" | "HEAD")
}

fn invalid() -> Fault {
    crate::error::Code::InvalidInput.into()
}

#[cfg(test)]
mod tests;
