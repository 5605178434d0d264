//! Builds and signs the requests of each verb.

use super::check;
use super::endpoint::{Credential, Endpoint, Location};
use super::transport::Request;
use crate::json;
use crate::json::odata::{self, Metadata};
use crate::model::{DateTime, ETag};
use crate::rest::protocol::address::{entity_path, put_encoded, put_query, table_path};
use crate::rest::protocol::sign::{Scheme, SignedParts};
use crate::rest::protocol::time;
use crate::table::Operation;

const VERSION: &str = "2019-02-02";
const JSON: &str = "application/json";
const MINIMAL: &str = "application/json;odata=minimalmetadata";
const FULL: &str = "application/json;odata=fullmetadata";
const NO_CONTENT: (&str, &str) = ("Prefer", "return-no-content");
/// The boundaries of a batch. No JSON body has a line that begins like them.
const BATCH: &str = "batch_rowstone";
const CHANGESET: &str = "changeset_rowstone";

/// A request before it is signed: the same parts are signed again for each try.
#[derive(Clone)]
pub(super) struct Draft {
    pub(super) method: &'static str,
    /// The path of the resource, without the path of the endpoint.
    path: String,
    query: Vec<(&'static str, String)>,
    headers: Vec<(&'static str, String)>,
    /// The requested format of the answer.
    accept: &'static str,
    content_type: Option<String>,
    body: Vec<u8>,
}

impl Draft {
    fn new(method: &'static str, path: impl Into<String>) -> Self {
        let (query, headers, body) = (Vec::new(), Vec::new(), Vec::new());
        let path = path.into();
        Self { method, path, query, headers, accept: MINIMAL, content_type: None, body }
    }

    pub(super) fn with_json(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.content_type = Some(JSON.to_owned());
        self.body = body.into();
        self
    }

    fn with(mut self, header: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((header, value.into()));
        self
    }

    /// Requests all metadata, with which each entity of a page has its ETag.
    pub(super) fn with_all_metadata(self) -> Self {
        Self { accept: FULL, ..self }
    }

    /// Returns the draft with a condition that accepts any state. Only a mutant needs it.
    pub(super) fn bare(mut self) -> Self {
        let conditions = self.headers.iter_mut().filter(|(name, _)| *name == "If-Match");
        conditions.for_each(|(_, etag)| *etag = "*".to_owned());
        self
    }

    /// A request to an extension of `rowstone serve`.
    pub(super) fn extension(
        method: &'static str,
        name: &str,
        query: Vec<(&'static str, String)>,
    ) -> Self {
        Self { query, ..Self::new(method, format!("$rowstone/{name}")) }
    }

    pub(super) fn create_table(name: &str) -> Self {
        let body = json::object(|object| object.text("TableName", name));
        Self::new("POST", "Tables").with_json(body).with(NO_CONTENT.0, NO_CONTENT.1)
    }

    pub(super) fn delete_table(name: &str) -> Self {
        Self::new("DELETE", table_path(name))
    }

    pub(super) fn tables(next: Option<&str>) -> Self {
        let mut draft = Self::new("GET", "Tables");
        draft.query.extend(next.map(|next| ("NextTableName", next.to_owned())));
        draft
    }

    /// Requests one entity or table only.
    pub(super) fn one(mut self) -> Self {
        self.query.push(("$top", "1".to_owned()));
        self
    }

    pub(super) fn get(table: &str, partition_key: &str, row_key: &str, select: &[&str]) -> Self {
        let mut draft = Self::new("GET", entity_path(&encoded(table), partition_key, row_key));
        draft.query.extend(selected(select));
        draft
    }

    pub(super) fn query(
        table: &str,
        (filter, select, top): (&str, &[&str], usize),
        next: Option<(&str, &str)>,
    ) -> Self {
        let mut draft = Self::new("GET", format!("{}()", encoded(table)));
        if !filter.is_empty() {
            draft.query.push(("$filter", filter.to_owned()));
        }
        draft.query.extend(selected(select));
        draft.query.push(("$top", top.to_string()));
        if let Some((partition, row)) = next {
            draft.query.push(("NextPartitionKey", partition.to_owned()));
            if !row.is_empty() {
                draft.query.push(("NextRowKey", row.to_owned()));
            }
        }
        draft
    }

    /// The same query in descending order, an extension of `rowstone serve`.
    pub(super) fn reversed(self, table: &str) -> Self {
        Self { path: format!("$rowstone/reverse/{}", encoded(table)), ..self }
    }

    pub(super) fn operation(table: &str, operation: &Operation) -> Self {
        let (partition_key, row_key) = operation.keys();
        let table = encoded(table);
        let path = || entity_path(&table, partition_key, row_key);
        // Some services take these characters for the end of a line of a group.
        let body = |entity| {
            let text = odata::entity_text(entity, Metadata::REQUEST);
            text.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
        };
        let any = |etag: &Option<ETag>| etag.as_ref().map_or("*".to_owned(), ETag::to_string);
        match operation {
            Operation::Insert(entity) => {
                Self::new("POST", &*table).with_json(body(entity)).with(NO_CONTENT.0, NO_CONTENT.1)
            }
            Operation::Upsert(entity) => Self::new("PUT", path()).with_json(body(entity)),
            Operation::UpsertMerge(entity) => Self::new("PATCH", path()).with_json(body(entity)),
            Operation::Replace(entity, etag) => {
                Self::new("PUT", path()).with_json(body(entity)).with("If-Match", any(etag))
            }
            Operation::Merge(entity, etag) => {
                Self::new("PATCH", path()).with_json(body(entity)).with("If-Match", any(etag))
            }
            Operation::Delete { etag, .. } => {
                Self::new("DELETE", path()).with("If-Match", any(etag))
            }
        }
    }

    /// A group, as one changeset.
    pub(super) fn group(endpoint: &Endpoint, table: &str, operations: &[Operation]) -> Self {
        let mut body =
            format!("--{BATCH}\r\nContent-Type: multipart/mixed; boundary={CHANGESET}\r\n\r\n")
                .into_bytes();
        for operation in operations {
            let part = Self::operation(table, operation);
            let begin = format!(
                "--{CHANGESET}\r\nContent-Type: application/http\r\n\
                 Content-Transfer-Encoding: binary\r\n\r\n{} {}/{} HTTP/1.1\r\n",
                part.method, endpoint.base, part.path
            );
            body.extend_from_slice(begin.as_bytes());
            let kind = part.content_type.map(|kind| ("Content-Type", kind));
            for (name, value) in kind.into_iter().chain(part.headers) {
                body.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
            }
            body.extend_from_slice(b"DataServiceVersion: 3.0\r\n\r\n");
            body.extend_from_slice(&part.body);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(format!("--{CHANGESET}--\r\n--{BATCH}--\r\n").as_bytes());
        let content_type = Some(format!("multipart/mixed; boundary={BATCH}"));
        Self { content_type, body, ..Self::new("POST", "$batch") }
    }

    /// Returns the request with the headers of the protocol, signed for `now`.
    pub(super) fn signed(
        &self,
        endpoint: &Endpoint,
        location: Location,
        now: DateTime,
        seconds: u64,
    ) -> Request {
        let (base, path) = endpoint.at(location);
        let path = format!("{path}/{}", self.path);
        let date = time::http(now);
        let mut url = format!("{base}/{}", self.path);
        let seconds = seconds.to_string();
        let query = self.query.iter().map(|(name, value)| (*name, value.as_str()));
        put_query(&mut url, query.chain([("timeout", seconds.as_str())]));
        let mut headers = vec![
            ("x-ms-date", date.clone()),
            ("x-ms-version", VERSION.to_owned()),
            ("DataServiceVersion", "3.0".to_owned()),
            ("MaxDataServiceVersion", "3.0;NetFx".to_owned()),
            ("Accept", self.accept.to_owned()),
        ];
        let content_type = self.content_type.clone().unwrap_or_default();
        if !content_type.is_empty() {
            headers.push(("Content-Type", content_type.clone()));
        }
        headers.extend(self.headers.iter().cloned());
        match &endpoint.credential {
            Credential::Key(key) => {
                let parts = SignedParts {
                    method: self.method,
                    path: &path,
                    comp: None,
                    content_md5: "",
                    content_type: &content_type,
                    date: &date,
                };
                let signed = parts.sign(Scheme::SharedKeyLite, &endpoint.account, key);
                headers.push(("Authorization", signed));
            }
            Credential::Sas(sas) => {
                url.push('&');
                url.push_str(sas);
            }
        }
        Request { method: self.method, url, headers, body: self.body.clone() }
    }
}

fn selected(select: &[&str]) -> Option<(&'static str, String)> {
    check::selected(select).map(|names| ("$select", names))
}

fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    put_encoded(&mut out, text);
    out
}
