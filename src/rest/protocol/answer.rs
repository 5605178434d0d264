//! Reads responses as a client does: responses to batches, and faults.

use super::batch::{Fields, Message, OUTER_MAX, Recent, boundary, read_headers, split};
use super::fault::Fault;
use super::headers::{Headers, Media};
use super::xml;
use crate::json::{self, Scalar};
use crate::model::GROUP_OPERATIONS_MAX;

/// The response to one operation in a batch, as a client reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) headers: Fields<'a>,
    pub(crate) body: &'a str,
    pub(crate) content_id: Option<&'a str>,
}

/// Reads the body of the response to a batch; `None` if it is malformed.
pub(crate) fn read_response<'a>(body: &'a [u8], content_type: &str) -> Option<Vec<Answer<'a>>> {
    let text = std::str::from_utf8(body).ok()?;
    let outer = split(text, boundary(content_type)?, OUTER_MAX)?;
    let [part] = outer.as_slice() else { return None };
    let (headers, content) = read_headers(part)?;
    let content_type = headers.value("Content-Type").unwrap_or_default();
    let mut recent = Recent::default();
    if Media::new(content_type).is("application/http") {
        return Some(vec![Answer::read(part, &mut recent)?]);
    }
    let parts = split(content, boundary(content_type)?, GROUP_OPERATIONS_MAX)?;
    parts.into_iter().map(|part| Answer::read(part, &mut recent)).collect()
}

impl<'a> Answer<'a> {
    /// Returns the error, if the operation failed.
    pub(crate) fn fault(&self) -> Option<Fault> {
        let failed = self.status >= 400;
        let unreadable = || Fault::unreadable(self.status, self.body);
        failed.then(|| read_json(self.body, self.status).unwrap_or_else(unreadable))
    }

    fn read(text: &'a str, recent: &mut Recent<'a>) -> Option<Answer<'a>> {
        let Message { first, headers, body, content_id } = Message::read(text, recent)?;
        let status = first.strip_prefix("HTTP/1.1 ")?.get(..3)?;
        let is_number = status.bytes().all(|byte| byte.is_ascii_digit());
        let status = status.parse().ok().filter(|_| is_number)?;
        Some(Answer { status, headers, body, content_id })
    }
}

/// Reads the fault from the JSON body of an answer with this status.
pub(crate) fn read_json(text: &str, status: u16) -> Option<Fault> {
    let error = member(text, "odata.error")?;
    let code = string(error, "code")?;
    let message = string(member(error, "message")?, "value")?;
    Some(read_fault(code, status, &message))
}

/// Reads the fault from the XML body of an answer with this status.
pub(crate) fn read_xml(text: &str, status: u16) -> Option<Fault> {
    let root = xml::read(text).ok()?.filter(|root| root.name == "Error")?;
    let (code, message) = (root.child("Code")?, root.child("Message")?);
    let mut fault = read_fault(code.text.clone(), status, &message.text);
    let more = root.children.into_iter();
    let more = more.filter(|child| child.name != "Code" && child.name != "Message");
    fault.details = more.map(|child| (child.name.into(), child.text)).collect();
    Some(fault)
}

fn read_fault(code: String, status: u16, message: &str) -> Fault {
    let end = message.find("\nRequestId:").unwrap_or(message.len());
    let mut text = message.get(..end).unwrap_or(message).trim_end();
    let mut index = None;
    if let Some((digits, rest)) = text.split_once(':')
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && let Ok(number) = digits.parse()
    {
        (index, text) = (Some(number), rest);
    }
    Fault { index, ..Fault::build(code.into(), status, text.to_owned()) }
}

/// Returns the JSON text of the value of member `name`.
fn member<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let members = json::read_object(text, 16).ok()?;
    members.into_iter().find(|(member, _)| member == name).map(|(_, value)| value.get())
}

fn string(text: &str, name: &str) -> Option<String> {
    let members = json::read_object(text, 16).ok()?;
    let (_, value) = members.into_iter().find(|(member, _)| member == name)?;
    match Scalar::read(value).ok()? {
        Scalar::String(text) => Some(text.into_owned()),
        _ => None,
    }
}
