//! Writes responses to batches. Lines end with CR LF.

use http::StatusCode;

use crate::model::ETag;
use crate::rest::protocol::fault::{Fault, Occasion};
use crate::rest::protocol::headers::{Level, Preference};

/// The ids in the boundaries of a response. The server generates GUIDs for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Boundaries {
    pub(crate) batch: String,
    pub(crate) changeset: String,
}

/// The result of one operation in a changeset that was committed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply<'a> {
    /// An insert. The response contains the entity as JSON, unless the client asked not to get it.
    Inserted {
        location: &'a str,
        etag: &'a ETag,
        preference: Option<Preference>,
        body: Option<(Level, &'a [u8])>,
    },
    /// A replace, a merge or an upsert.
    Written {
        etag: &'a ETag,
    },
    Deleted,
}

impl Boundaries {
    /// Returns the `Content-Type` of a response.
    pub(crate) fn response_type(&self) -> String {
        format!("multipart/mixed; boundary=batchresponse_{}", self.batch)
    }
}

/// Writes the body of the response to a changeset: the `Content-ID` and result of each operation.
pub(crate) struct Changeset<'o, 'b> {
    out: &'o mut Vec<u8>,
    boundaries: &'b Boundaries,
    /// The delimiter and part headers that precede each operation's response.
    part: Vec<u8>,
    /// The last ETag and its text, cached because all operations of a changeset have the same ETag.
    etag: Option<(ETag, String)>,
}

impl<'o, 'b> Changeset<'o, 'b> {
    pub(crate) fn begin(out: &'o mut Vec<u8>, boundaries: &'b Boundaries) -> Self {
        let Boundaries { batch, changeset } = boundaries;
        line(out, &format!("--batchresponse_{batch}"));
        let boundary = format!("multipart/mixed; boundary=changesetresponse_{changeset}");
        header(out, "Content-Type", &boundary);
        line(out, "");
        let mut begun = Vec::new();
        part(&mut begun, "changesetresponse_", changeset);
        Changeset { out, boundaries, part: begun, etag: None }
    }

    pub(crate) fn put(&mut self, content_id: Option<&str>, reply: Reply<'_>) {
        let (Reply::Inserted { etag, .. } | Reply::Written { etag }) = reply else {
            return self.put_with(content_id, reply, "");
        };
        let (_, text) = match self.etag.take() {
            Some(known) if known.0 == *etag => known,
            _ => (etag.clone(), etag.to_string()),
        };
        self.put_with(content_id, reply, &text);
        self.etag = Some((etag.clone(), text));
    }

    pub(crate) fn end(self) {
        delimiter(self.out, "changesetresponse_", &self.boundaries.changeset, "--");
        delimiter(self.out, "batchresponse_", &self.boundaries.batch, "--");
    }

    fn put_with(&mut self, content_id: Option<&str>, reply: Reply<'_>, etag: &str) {
        self.out.extend_from_slice(&self.part);
        put_reply(self.out, content_id, reply, etag);
    }
}

/// Appends the response body for a changeset that failed; none of its operations took effect.
pub(crate) fn put_failure(
    out: &mut Vec<u8>,
    boundaries: &Boundaries,
    content_id: Option<&str>,
    fault: &Fault,
    occasion: Occasion<'_>,
) {
    let changeset = Changeset::begin(out, boundaries);
    changeset.out.extend_from_slice(&changeset.part);
    put_fault(changeset.out, content_id, fault, occasion);
    changeset.end();
}

/// Appends the response body for a batch with one read that found its entity.
pub(crate) fn put_found(
    out: &mut Vec<u8>,
    boundaries: &Boundaries,
    etag: &ETag,
    level: Level,
    body: &[u8],
) {
    part(out, "batchresponse_", &boundaries.batch);
    line(out, "HTTP/1.1 200 OK");
    header(out, "DataServiceVersion", "3.0;");
    header(out, "Content-Type", level.content_type());
    header(out, "X-Content-Type-Options", "nosniff");
    header(out, "Cache-Control", "no-cache");
    header(out, "ETag", &etag.to_string());
    finish(out, body);
    delimiter(out, "batchresponse_", &boundaries.batch, "--");
}

/// Appends the response body for a batch with one read that failed.
pub(crate) fn put_not_found(
    out: &mut Vec<u8>,
    boundaries: &Boundaries,
    fault: &Fault,
    occasion: Occasion<'_>,
) {
    part(out, "batchresponse_", &boundaries.batch);
    put_fault(out, None, fault, occasion);
    delimiter(out, "batchresponse_", &boundaries.batch, "--");
}

fn put_reply(out: &mut Vec<u8>, content_id: Option<&str>, reply: Reply<'_>, etag: &str) {
    let status = match reply {
        Reply::Inserted { body: Some(_), .. } => "HTTP/1.1 201 Created",
        _ => "HTTP/1.1 204 No Content",
    };
    line(out, status);
    put_content_id(out, content_id);
    header(out, "X-Content-Type-Options", "nosniff");
    header(out, "Cache-Control", "no-cache");
    match reply {
        Reply::Inserted { location, preference, body, .. } => {
            if let Some(preference) = preference {
                header(out, "Preference-Applied", preference.as_str());
            }
            header(out, "DataServiceVersion", "3.0;");
            if let Some((level, _)) = body {
                header(out, "Content-Type", level.content_type());
            }
            header(out, "Location", location);
            if body.is_none() {
                header(out, "DataServiceId", location);
            }
            header(out, "ETag", etag);
            finish(out, body.map(|(_, body)| body).unwrap_or_default());
        }
        Reply::Written { .. } | Reply::Deleted => {
            header(out, "DataServiceVersion", "1.0;");
            if !matches!(reply, Reply::Deleted) {
                header(out, "ETag", etag);
            }
            finish(out, b"");
        }
    }
}

fn put_fault(out: &mut Vec<u8>, content_id: Option<&str>, fault: &Fault, occasion: Occasion<'_>) {
    line(out, &format!("HTTP/1.1 {} {}", fault.status, reason(fault.status)));
    put_content_id(out, content_id);
    header(out, "X-Content-Type-Options", "nosniff");
    header(out, "DataServiceVersion", "3.0;");
    header(out, "Content-Type", Level::Minimal.content_type());
    let mut body = Vec::new();
    fault.put_json(&mut body, occasion);
    finish(out, &body);
}

fn put_content_id(out: &mut Vec<u8>, content_id: Option<&str>) {
    if let Some(content_id) = content_id {
        header(out, "Content-ID", content_id);
    }
}

fn reason(status: u16) -> &'static str {
    match StatusCode::from_u16(status) {
        // The Azure service uses the reason phrase of an older HTTP standard.
        Ok(StatusCode::PAYLOAD_TOO_LARGE) => "Request Entity Too Large",
        status => status.ok().and_then(|known| known.canonical_reason()).unwrap_or("Error"),
    }
}

/// Appends a delimiter and the headers of a part that contains an HTTP message.
fn part(out: &mut Vec<u8>, prefix: &str, boundary: &str) {
    delimiter(out, prefix, boundary, "");
    header(out, "Content-Type", "application/http");
    header(out, "Content-Transfer-Encoding", "binary");
    line(out, "");
}

fn delimiter(out: &mut Vec<u8>, prefix: &str, boundary: &str, suffix: &str) {
    for text in ["--", prefix, boundary, suffix] {
        out.extend_from_slice(text.as_bytes());
    }
    line(out, "");
}

/// Appends the end of a message: an empty line, the body, and the line end before the next
/// delimiter.
fn finish(out: &mut Vec<u8>, body: &[u8]) {
    line(out, "");
    out.extend_from_slice(body);
    line(out, "");
}

fn header(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    line(out, value);
}

fn line(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}
