//! Parses request headers: version, metadata level, preference, condition, method.
//!
//! Invariants
//! * the same code reads the headers of a request and the headers of an operation in a batch;
//! * header names are compared without regard to case.
//!
//! Not here: `Authorization` (`sign`), `Origin` (`settings`).

use base64::engine::{Engine as _, general_purpose::STANDARD as BASE64};
use md5::{Digest, Md5};

use super::address::{Parameter, Parameters};
use super::fault::{Fault, Known};
use crate::model::ETag;
use crate::named::named;

/// A collection of headers.
pub(crate) trait Headers {
    /// Returns the `index`-th value, counted from 0, of the headers named `name`; ignores case.
    fn nth(&self, name: &str, index: usize) -> Option<&str>;

    /// Returns the value of the first header named `name`, without surrounding white space.
    fn value(&self, name: &str) -> Option<&str> {
        self.nth(name, 0).map(trimmed)
    }
}

/// A list of names and values.
impl<N: AsRef<str>, V: AsRef<str>> Headers for [(N, V)] {
    fn nth(&self, name: &str, index: usize) -> Option<&str> {
        let same = self.iter().filter(|(given, _)| given.as_ref().eq_ignore_ascii_case(name));
        same.map(|(_, value)| value.as_ref()).nth(index)
    }
}

/// Returns `text` without surrounding white space. In the common case, in which the first and last
/// bytes are no white space, only these two are examined.
#[inline]
pub(super) fn trimmed(text: &str) -> &str {
    let bare = text.strip_prefix(' ').unwrap_or(text);
    match bare.as_bytes() {
        [] => bare,
        [first, ..]
            if first.is_ascii_graphic() && bare.ends_with(|c: char| c.is_ascii_graphic()) =>
        {
            bare
        }
        _ => text.trim(),
    }
}

/// A version of the protocol that the service knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(&'static str);

/// How much metadata a JSON body has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    None,
    Minimal,
    Full,
}

named! {
    /// Whether the client wants the response to an insert to contain the entity.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Preference {
        Content "return-content",
        NoContent "return-no-content",
    }

    /// Returns the preference as written in a header.
    pub(crate) fn as_str;
    pub(super) const ALL;
}

/// The condition under which an entity is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// There is no condition: a replace or merge becomes an upsert, and a delete is refused.
    None,
    /// `*`: the entity exists.
    Any,
    /// `W/"…"`: the entity exists and has this ETag.
    Is(ETag),
}

/// The method of a request line or of `X-HTTP-Method`; `PATCH` is [`Merge`](Method::Merge).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    Options,
    Post,
    Put,
    Merge,
    Delete,
}

/// A media type with its parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Media<'a> {
    text: &'a str,
}

/// The maximum length of a client request id, in characters; longer ids are not echoed.
const CLIENT_REQUEST_ID_MAX: usize = 1024;

const MD5_BYTES: usize = 16;

/// Every version of the service's protocol, in ascending order.
const VERSIONS: &[&str] = &[
    "2009-04-14",
    "2009-07-17",
    "2009-09-19",
    "2011-08-18",
    "2012-02-12",
    "2013-08-15",
    "2014-02-14",
    "2015-02-21",
    "2015-04-05",
    "2015-07-08",
    "2015-12-11",
    "2016-05-31",
    "2017-04-17",
    "2017-07-29",
    "2017-11-09",
    "2018-03-28",
    "2018-11-09",
    "2019-02-02",
    "2019-07-07",
    "2019-10-10",
    "2019-12-12",
    "2020-02-10",
    "2020-04-08",
    "2020-06-12",
    "2020-08-04",
    "2020-10-02",
    "2020-12-06",
    "2021-02-12",
    "2021-04-10",
    "2021-06-08",
    "2021-08-06",
    "2021-10-04",
    "2021-12-02",
    "2022-11-02",
    "2023-01-03",
    "2023-05-03",
    "2023-08-03",
    "2023-11-03",
    "2024-02-04",
    "2024-05-04",
    "2024-08-04",
    "2024-11-04",
    "2025-01-05",
    "2025-05-05",
    "2025-07-05",
    "2025-11-05",
    "2026-02-06",
    "2026-04-06",
    "2026-06-06",
];

impl Version {
    /// The version assumed for a request that names none. The client libraries for tables send this
    /// version.
    pub(crate) const DEFAULT: Version = Version("2019-02-02");
    /// The first version with upserts and `$select`.
    pub(crate) const UPSERTS: Version = Version("2011-08-18");
    /// The first version in which a token's signature covers the token's version.
    pub(crate) const SIGNED_VERSION: Version = Version("2012-02-12");
    /// The first version with JSON, the `Prefer` header and CORS.
    pub(crate) const JSON: Version = Version("2013-08-15");
    /// The first version in which the signed text of a token names the table as `/table/…`.
    pub(crate) const TABLE_RESOURCE: Version = Version("2015-02-21");
    /// The first version with account tokens, and with IP addresses and protocols in tokens.
    pub(crate) const ACCOUNT_SAS: Version = Version("2015-04-05");
    /// The first version with encryption scopes in account tokens.
    pub(crate) const ENCRYPTION_SCOPE: Version = Version("2020-12-06");

    /// Looks up a version by its text, such as `2019-02-02`.
    pub(crate) fn known(text: &str) -> Option<Version> {
        VERSIONS.iter().find(|version| **version == text).map(|version| Version(version))
    }

    /// Returns the version of a request: `api-version`, else `x-ms-version`, else the version of
    /// its shared access signature; `None` if none of them is present.
    pub(crate) fn of<H: Headers + ?Sized>(
        headers: &H,
        query: &Parameters,
    ) -> Result<Option<Version>, Fault> {
        const HEADER: &str = "x-ms-version";
        if let Some(text) = query.get(Parameter::ApiVersion) {
            let fault = || Fault::parameter("api-version", text, "Not a version of the service.");
            return Version::known(text).map(Some).ok_or_else(fault);
        }
        if let Some(text) = headers.value(HEADER) {
            return Version::known(text).map(Some).ok_or_else(|| Fault::header(HEADER, text));
        }
        // An unknown version in a token counts as absent here; reading the token reports the error.
        Ok(query.get(Parameter::SasVersion).and_then(Version::known))
    }

    pub(crate) fn as_str(self) -> &'static str {
        self.0
    }
}

/// Returns the major numbers of `DataServiceVersion` and `MaxDataServiceVersion`, 1 to 3, if given.
///
/// # Errors
/// `InvalidHeaderValue`.
pub(crate) fn data_service_versions<H: Headers + ?Sized>(
    headers: &H,
) -> Result<[Option<u8>; 2], Fault> {
    let read = |name| match headers.value(name) {
        None | Some("") => Ok(None),
        Some("3.0") => Ok(Some(3)),
        Some(text) => match text.split(';').next().map(str::trim) {
            Some("1.0") => Ok(Some(1)),
            Some("2.0") => Ok(Some(2)),
            Some("3.0") => Ok(Some(3)),
            _ => Err(Fault::header(name, text)),
        },
    };
    Ok([read("DataServiceVersion")?, read("MaxDataServiceVersion")?])
}

impl Level {
    const ALL: [Level; 3] = [Level::None, Level::Minimal, Level::Full];

    /// Returns the metadata level of a response: `$format` decides if present, otherwise `Accept`.
    ///
    /// # Errors
    /// 415 with `AtomFormatNotSupported`, `JsonVerboseFormatNotSupported`, `JsonFormatNotSupported`
    /// or `MediaTypeNotSupported`; `InvalidHeaderValue` for an unknown data service version.
    pub(crate) fn of<H: Headers + ?Sized>(
        headers: &H,
        query: &Parameters,
        version: Version,
    ) -> Result<Level, Fault> {
        let [_, most] = data_service_versions(headers)?;
        let format = query.get(Parameter::Format).filter(|format| !format.trim().is_empty());
        let level = match (format, headers.value("Accept")) {
            (Some("json"), _) => Level::Minimal,
            (Some("atom"), _) => return Err(Known::AtomFormatNotSupported.into()),
            (Some("verbosejson"), _) => return Err(Known::JsonVerboseFormatNotSupported.into()),
            (Some(format), _) => Level::of_media(Media { text: format })?,
            (None, None | Some("")) => Level::Minimal,
            (None, Some(accept)) => {
                // Fast path: `Accept` usually equals the text of one level exactly.
                let common = Level::ALL.into_iter().find(|level| level.accept() == accept);
                common.map_or_else(|| Level::of_accept(accept), Ok)?
            }
        };
        if version < Version::JSON || most.is_some_and(|most| most < 3) {
            return Err(Known::JsonFormatNotSupported.into());
        }
        Ok(level)
    }

    /// Returns the first supported level in a list of media types. If none is supported, returns
    /// the error of the first media type.
    fn of_accept(accept: &str) -> Result<Level, Fault> {
        let mut refused = None;
        for text in accept.split(',') {
            match Level::of_media(Media { text }) {
                Ok(level) => return Ok(level),
                Err(fault) => refused = refused.or(Some(fault)),
            }
        }
        Err(refused.unwrap_or_else(|| Known::MediaTypeNotSupported.into()))
    }

    fn of_media(media: Media<'_>) -> Result<Level, Fault> {
        if media.is("*/*") || media.is("application/*") {
            return Ok(Level::Minimal);
        }
        if media.is("application/atom+xml") {
            return Err(Known::AtomFormatNotSupported.into());
        }
        if !media.is("application/json") {
            return Err(Known::MediaTypeNotSupported.into());
        }
        let Some(level) = media.parameter("odata") else { return Ok(Level::Minimal) };
        let names = |name: &str| level.eq_ignore_ascii_case(name);
        match Level::ALL.into_iter().find(|level| names(level.name())) {
            Some(level) => Ok(level),
            None if names("verbose") => Err(Known::JsonVerboseFormatNotSupported.into()),
            None => Err(Known::MediaTypeNotSupported.into()),
        }
    }

    fn name(self) -> &'static str {
        self.accept().strip_prefix("application/json;odata=").unwrap_or_default()
    }

    /// Returns the `Accept` header of a client that requests this level.
    pub(crate) fn accept(self) -> &'static str {
        self.content_type().strip_suffix(";streaming=true;charset=utf-8").unwrap_or_default()
    }

    /// Returns the `Content-Type` of an answer.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Level::None => "application/json;odata=nometadata;streaming=true;charset=utf-8",
            Level::Minimal => "application/json;odata=minimalmetadata;streaming=true;charset=utf-8",
            Level::Full => "application/json;odata=fullmetadata;streaming=true;charset=utf-8",
        }
    }
}

/// Refuses a body of tables or entities with a `Content-Type` other than JSON; a missing one counts
/// as JSON.
pub(crate) fn check_json_body<H: Headers + ?Sized>(headers: &H) -> Result<(), Fault> {
    let Some(text) = headers.value("Content-Type").filter(|text| !text.is_empty()) else {
        return Ok(());
    };
    let media = Media { text };
    match media.is("application/json") {
        true => Ok(()),
        false if media.is("application/atom+xml") => Err(Known::AtomFormatNotSupported.into()),
        false => Err(Known::MediaTypeNotSupported.into()),
    }
}

/// Refuses a body that does not match its `Content-MD5`.
///
/// # Errors
/// `InvalidMd5`, `Md5Mismatch`.
pub(crate) fn check_md5<H: Headers + ?Sized>(headers: &H, body: &[u8]) -> Result<(), Fault> {
    let Some(text) = headers.value("Content-MD5").filter(|text| !text.is_empty()) else {
        return Ok(());
    };
    let given = BASE64.decode(text).ok().filter(|sum| sum.len() == MD5_BYTES);
    match given {
        None => Err(Known::InvalidMd5.into()),
        Some(sum) if sum[..] == Md5::digest(body)[..] => Ok(()),
        Some(_) => Err(Known::Md5Mismatch.into()),
    }
}

impl Preference {
    /// Returns the value of `Prefer`; `None` if it is absent or unknown, or if the request's
    /// `DataServiceVersion` is below 3.
    pub(crate) fn of<H: Headers + ?Sized>(headers: &H) -> Option<Preference> {
        let [version, _] = data_service_versions(headers).ok()?;
        if version.is_some_and(|version| version < 3) {
            return None;
        }
        let names = headers.value("Prefer")?.split(',');
        let find = |name| Preference::ALL.into_iter().find(|known| known.as_str() == name);
        names.map(str::trim).find_map(find)
    }
}

impl Condition {
    /// Returns the condition under which the request writes its entity.
    ///
    /// # Errors
    /// `InvalidInput` for `If-None-Match`, and for an `If-Match` that is repeated or not an ETag;
    /// `MissingRequiredHeader` for a replace or merge without `If-Match` in versions before
    /// upserts.
    pub(crate) fn of<H: Headers + ?Sized>(
        headers: &H,
        method: Method,
        version: Version,
    ) -> Result<Condition, Fault> {
        const MATCH: &str = "If-Match";
        let matches = headers.value(MATCH);
        if let (Some(first), Some(second)) = (matches, headers.nth(MATCH, 1)) {
            return Err(Condition::malformed(&format!("{first},{second}")));
        }
        match (matches, headers.value("If-None-Match"), method) {
            (Some(_), Some(_), _) => Err(Fault::invalid(
                "Both If-Match and If-None-Match HTTP headers cannot be specified at the same time. \
                 Please specify either one of the headers or none of them.",
            )),
            (_, Some(_), Method::Delete) => Err(Fault::invalid(
                "If-None-Match HTTP header cannot be specified for DELETE operations.",
            )),
            (_, Some(_), Method::Post) => Err(Fault::invalid(
                "If-Match or If-None-Match HTTP headers cannot be specified for POST operations.",
            )),
            (_, Some(_), _) => Err(Fault::invalid(
                "If-None-Match HTTP header cannot be specified for PUT operations.",
            )),
            (None, None, Method::Put | Method::Merge) if version < Version::UPSERTS => {
                Err(Fault::no_header("If-Match"))
            }
            (None, None, _) | (Some("*"), None, Method::Post) => Ok(Condition::None),
            (Some("*"), None, _) => Ok(Condition::Any),
            (Some(text), None, _) => match ETag::parse_own(text) {
                // An insert has no entity that the ETag could match, so its condition is ignored.
                Ok(_) if method == Method::Post => Ok(Condition::None),
                Ok(etag) => Ok(Condition::Is(etag)),
                Err(_) => Err(Condition::malformed(text)),
            },
        }
    }

    fn malformed(text: &str) -> Fault {
        Fault::invalid(format!(
            "The etag value '{text}' specified in one of the request headers is not valid. \
             Please make sure only one etag value is specified and is valid."
        ))
    }
}

impl Method {
    /// Returns the method of a request: `X-HTTP-Method` if present, otherwise `name`, the method
    /// in the request line.
    ///
    /// # Errors
    /// `MethodNotAllowed`, `XMethodNotUsingPost`, `XMethodIncorrectCount`, `XMethodIncorrectValue`.
    pub(crate) fn of<H: Headers + ?Sized>(name: &str, headers: &H) -> Result<Method, Fault> {
        const HEADER: &str = "X-HTTP-Method";
        let method = Method::named(name);
        let Some(tunnelled) = headers.value(HEADER) else {
            return method.ok_or_else(|| Known::MethodNotAllowed.into());
        };
        if method != Some(Method::Post) {
            return Err(Known::XMethodNotUsingPost.into());
        }
        if headers.nth(HEADER, 1).is_some() || tunnelled.contains(',') {
            return Err(Known::XMethodIncorrectCount.into());
        }
        match Method::named(&tunnelled.to_ascii_uppercase()) {
            Some(method @ (Method::Put | Method::Merge | Method::Delete)) => Ok(method),
            _ => Err(Known::XMethodIncorrectValue.into()),
        }
    }

    fn named(name: &str) -> Option<Method> {
        Some(match name {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "OPTIONS" => Method::Options,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "MERGE" | "PATCH" => Method::Merge,
            "DELETE" => Method::Delete,
            _ => return None,
        })
    }
}

impl<'a> Media<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Media { text }
    }

    /// Whether the media type is `name`, whatever its parameters.
    pub(crate) fn is(self, name: &str) -> bool {
        if self.text == name {
            return true;
        }
        let essence = self.text.split(';').next().unwrap_or_default();
        essence.trim().eq_ignore_ascii_case(name)
    }

    /// Returns the value of a parameter, without quotes.
    pub(crate) fn parameter(self, name: &str) -> Option<&'a str> {
        self.text.split(';').skip(1).find_map(|parameter| {
            let (given, value) = parameter.split_once('=')?;
            let value = value.trim();
            let bare = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            given.trim().eq_ignore_ascii_case(name).then(|| bare.unwrap_or(value))
        })
    }
}

/// Returns the client's request id, if it is short enough to be echoed.
pub(crate) fn client_request_id<H: Headers + ?Sized>(headers: &H) -> Option<&str> {
    let id = headers.value("x-ms-client-request-id")?;
    let is_short = id.len() <= CLIENT_REQUEST_ID_MAX || id.chars().count() <= CLIENT_REQUEST_ID_MAX;
    (!id.is_empty() && is_short).then_some(id)
}

#[cfg(test)]
mod tests;
