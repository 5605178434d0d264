//! Cross-origin resource sharing (CORS): the rules of an account, and the response headers that a
//! matching rule adds.
//!
//! Invariant: rules are tried in order, and the first match decides.

use super::elements::{only, required, value};
use crate::rest::protocol::fault::{Fault, Known};
use crate::rest::protocol::headers::Headers;
use crate::rest::protocol::xml::{self, Element};

/// A rule that permits web pages of certain origins to make certain requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CorsRule {
    /// The origins as browsers send them, or `*`.
    pub(crate) origins: Vec<String>,
    pub(crate) methods: Vec<String>,
    pub(crate) max_age_seconds: u32,
    /// The response headers that a page may read: names, prefixes such as `x-ms-meta-*`, or `*`.
    pub(crate) exposed: Vec<String>,
    /// The request headers that a page may send, in the same form as `exposed`.
    pub(crate) allowed: Vec<String>,
}

/// The names and values of response headers.
pub(crate) type Answer = Vec<(&'static str, String)>;

const METHODS: [&str; 8] = ["DELETE", "GET", "HEAD", "MERGE", "POST", "OPTIONS", "PUT", "PATCH"];
/// The maximum number of origins in a rule, and of header names in each of its lists.
const LIST_MAX: usize = 64;
/// The maximum number of prefixes in each header list of a rule.
const PREFIXES_MAX: usize = 2;
/// The maximum number of characters in an origin and in a header name.
const ENTRY_MAX: usize = 256;

const ALLOW_ORIGIN: &str = "Access-Control-Allow-Origin";
const ALLOW_CREDENTIALS: &str = "Access-Control-Allow-Credentials";

/// Answers a preflight request, with which a browser asks whether a page may make a request.
///
/// # Errors
/// `InvalidHeaderValue` if the browser does not name its origin and method, `CorsPreflightFailure`
/// if no rule allows the request.
pub(crate) fn preflight<H: Headers + ?Sized>(
    rules: &[CorsRule],
    headers: &H,
) -> Result<Answer, Fault> {
    let given = |name| {
        let value = headers.value(name).unwrap_or_default();
        if value.is_empty() { Err(Fault::header(name, "")) } else { Ok(value) }
    };
    let origin = given("Origin")?;
    let method = given("Access-Control-Request-Method")?;
    let request = headers.value("Access-Control-Request-Headers").unwrap_or_default();
    let rule = rules.iter().find(|rule| {
        let mut names = request.split(',').map(str::trim).filter(|name| !name.is_empty());
        rule.matches(origin, method) && names.all(|name| is_covered(&rule.allowed, name))
    });
    let rule = rule.ok_or_else(|| Fault::from(Known::CorsPreflightFailure))?;
    let mut answer = vec![
        (ALLOW_ORIGIN, rule.shown_origin(origin)),
        ("Access-Control-Allow-Methods", method.to_owned()),
    ];
    if !request.is_empty() {
        answer.push(("Access-Control-Allow-Headers", request.to_owned()));
    }
    answer.push(("Access-Control-Max-Age", rule.max_age_seconds.to_string()));
    answer.push((ALLOW_CREDENTIALS, "true".to_owned()));
    Ok(answer)
}

/// Returns the first rule that lets a page of `origin` make an ordinary request with this method.
pub(crate) fn matching<'r>(
    rules: &'r [CorsRule],
    method: &str,
    origin: Option<&str>,
) -> Option<&'r CorsRule> {
    match origin.map(str::trim).filter(|origin| !origin.is_empty()) {
        Some(origin) => rules.iter().find(|rule| rule.matches(origin, method)),
        // As in the Azure service, a rule for all origins also applies to a read without an origin:
        // the response, if cached, then also suits a later request with an origin.
        None if is_read(method) => rules.iter().find(|rule| rule.is_open() && rule.allows(method)),
        None => None,
    }
}

/// Returns the headers to add to the response to an ordinary (not a preflight) request. `names` are
/// the headers that the response already has.
///
/// A cache may store the response to a read. It must not return the response to a page of another
/// origin, unless the response is the same for all origins.
pub(crate) fn actual(
    rules: &[CorsRule],
    method: &str,
    origin: Option<&str>,
    names: &[&str],
) -> Answer {
    let first = rules.iter().find(|rule| rule.allows(method));
    let depends = !rules.is_empty() && !first.is_some_and(CorsRule::is_open);
    let vary = || ("Vary", "Origin".to_owned());
    let Some(rule) = matching(rules, method, origin) else {
        return if depends && is_read(method) { vec![vary()] } else { Answer::new() };
    };
    let origin = origin.map(str::trim).unwrap_or_default();
    let mut answer = vec![(ALLOW_ORIGIN, rule.shown_origin(origin))];
    let exposed = rule.exposed_of(names);
    if !exposed.is_empty() {
        answer.push(("Access-Control-Expose-Headers", exposed));
    }
    if !rule.is_open() {
        answer.push((ALLOW_CREDENTIALS, "true".to_owned()));
    }
    if !rule.is_open() || depends && is_read(method) {
        answer.push(vary());
    }
    answer
}

fn is_read(method: &str) -> bool {
    matches!(method, "GET" | "HEAD")
}

impl CorsRule {
    pub(super) fn read(element: &Element) -> Result<CorsRule, Fault> {
        const OPTIONAL: [&str; 2] = ["ExposedHeaders", "AllowedHeaders"];
        let [exposed, allowed] = OPTIONAL;
        only(element, &["AllowedOrigins", "AllowedMethods", "MaxAgeInSeconds", exposed, allowed])?;
        let origins = required(element, "AllowedOrigins")?;
        let methods = required(element, "AllowedMethods")?;
        let age = required(element, "MaxAgeInSeconds")?;
        let headers = |name| element.child(name).map_or(Ok(Vec::new()), read_headers);
        let rule = CorsRule {
            origins: read_list(origins, LIST_MAX)?,
            methods: read_list(methods, METHODS.len())?,
            max_age_seconds: age.text.parse().map_err(|_| value(age))?,
            exposed: headers(exposed)?,
            allowed: headers(allowed)?,
        };
        if rule.origins.is_empty() {
            return Err(value(origins));
        }
        let known = rule.methods.iter().all(|method| METHODS.contains(&method.as_str()));
        if rule.methods.is_empty() || !known {
            return Err(value(methods));
        }
        Ok(rule)
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        xml::open(out, "CorsRule");
        xml::put(out, "AllowedOrigins", &self.origins.join(","));
        xml::put(out, "AllowedMethods", &self.methods.join(","));
        xml::put(out, "MaxAgeInSeconds", &self.max_age_seconds.to_string());
        xml::put(out, "ExposedHeaders", &self.exposed.join(","));
        xml::put(out, "AllowedHeaders", &self.allowed.join(","));
        xml::close(out, "CorsRule");
    }

    /// Whether the rule is for all origins.
    fn is_open(&self) -> bool {
        self.origins.iter().any(|origin| origin == "*")
    }

    fn allows(&self, method: &str) -> bool {
        self.methods.iter().any(|allowed| allowed == method)
    }

    fn matches(&self, origin: &str, method: &str) -> bool {
        let known = self.is_open() || self.origins.iter().any(|allowed| allowed == origin);
        known && self.allows(method)
    }

    fn shown_origin(&self, origin: &str) -> String {
        if self.is_open() { "*".to_owned() } else { origin.to_owned() }
    }

    /// Returns the header names to expose: the names that the rule lists, and the ones in `names`
    /// that match a pattern of the rule.
    fn exposed_of(&self, names: &[&str]) -> String {
        let literal = |entry: &&String| !entry.ends_with('*');
        let mut exposed: Vec<&str> = self.exposed.iter().filter(literal).map(|e| &**e).collect();
        let patterns: Vec<_> =
            self.exposed.iter().filter(|entry| !literal(entry)).cloned().collect();
        for name in names {
            let listed = exposed.iter().any(|listed| listed.eq_ignore_ascii_case(name));
            if !listed && is_covered(&patterns, name) {
                exposed.push(name);
            }
        }
        exposed.join(",")
    }
}

/// Whether a list of names and patterns covers `name`.
fn is_covered(entries: &[String], name: &str) -> bool {
    entries.iter().any(|entry| match entry.strip_suffix('*') {
        Some(prefix) => {
            let start = name.as_bytes().get(..prefix.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
        }
        None => entry.eq_ignore_ascii_case(name),
    })
}

fn read_headers(element: &Element) -> Result<Vec<String>, Fault> {
    let names = read_list(element, LIST_MAX + PREFIXES_MAX)?;
    let prefixes = names.iter().filter(|name| name.len() > 1 && name.ends_with('*')).count();
    if prefixes > PREFIXES_MAX || names.len() - prefixes > LIST_MAX {
        return Err(value(element));
    }
    Ok(names)
}

fn read_list(element: &Element, most: usize) -> Result<Vec<String>, Fault> {
    let entries = element.text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let entries: Vec<_> = entries.take(most + 1).map(str::to_owned).collect();
    let too_long = entries.iter().any(|entry| entry.chars().count() > ENTRY_MAX);
    if entries.len() > most || too_long { Err(value(element)) } else { Ok(entries) }
}

#[cfg(test)]
mod tests;
