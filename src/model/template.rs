//! Parses and expands templates of keys. A name in braces, as in `{carrier}-{origin}`, is replaced
//! by the text of that column or property; `{{` and `}}` are literal braces.

use std::cell::RefCell;
use std::fmt::Write;

use super::entity::Entity;
use super::value::ValueRef;
use crate::error::{Error, ErrorKind, Result as Answer};

/// A parsed template that refers to columns by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Column(usize),
}

impl Template {
    /// Parses `template`; `column` maps names to numbers.
    ///
    /// # Errors
    /// A sentence that describes the problem; for an unknown column it is that of `column`.
    pub(crate) fn parse(
        template: &str,
        column: impl Fn(&str) -> Result<usize, String>,
    ) -> Result<Template, String> {
        let mut parts = Vec::new();
        let mut text = String::new();
        let mut rest = template;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, braced) = rest.split_at(at);
            text.push_str(before);
            if let Some(after) = braced.strip_prefix("{{").or_else(|| braced.strip_prefix("}}")) {
                text.push_str(braced.get(..1).unwrap_or_default());
                rest = after;
                continue;
            }
            let Some((name, after)) = braced.strip_prefix('{').and_then(|b| b.split_once('}'))
            else {
                return Err(format!("'{template}' has a lone brace; double it if it is meant"));
            };
            let number = column(name)?;
            if !text.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut text)));
            }
            parts.push(Part::Column(number));
            rest = after;
        }
        text.push_str(rest);
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        Ok(Template(parts))
    }

    /// Returns a template that consists of one column.
    #[cfg(any(test, feature = "cli"))]
    pub(crate) fn column(number: usize) -> Template {
        Template(vec![Part::Column(number)])
    }

    /// Appends the key to `out`; `field` returns the text of a column.
    #[inline]
    pub(crate) fn expand<'f>(&self, out: &mut Vec<u8>, field: impl Fn(usize) -> &'f [u8]) {
        for part in &self.0 {
            match part {
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                Part::Column(number) => out.extend_from_slice(field(*number)),
            }
        }
    }
}

/// A template of a key formed from an entity's properties, including PartitionKey, RowKey and
/// Timestamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyTemplate {
    template: Template,
    names: Vec<String>,
}

impl KeyTemplate {
    /// Parses a template. Any name is accepted; [`key`](Self::key) reports a property that an
    /// entity lacks.
    ///
    /// # Errors
    /// `InvalidInput` for a lone brace.
    pub(crate) fn parse(text: &str) -> Answer<Self> {
        let names = RefCell::new(Vec::<String>::new());
        let number = |name: &str| {
            names.borrow_mut().push(name.to_owned());
            Ok(names.borrow().len() - 1)
        };
        let template = Template::parse(text, number)
            .map_err(|problem| Error::new(ErrorKind::InvalidInput, problem))?;
        Ok(Self { template, names: names.into_inner() })
    }

    /// Returns the names of the properties that form the key.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the key for `entity`, or the name of a property that it lacks.
    pub(crate) fn key(&self, entity: &Entity) -> Result<String, &str> {
        let mut texts = Vec::with_capacity(self.names.len());
        for name in &self.names {
            texts.push(text_of(entity, name).ok_or(name.as_str())?);
        }
        let mut key = Vec::new();
        let text = |i: usize| texts.get(i).map(String::as_bytes).unwrap_or_default();
        self.template.expand(&mut key, text);
        // All parts are valid texts, and so is their concatenation.
        String::from_utf8(key).map_err(|_| "")
    }
}

/// Returns a property's text as a part of a key. Bytes become hexadecimal digits, because Base64
/// has characters that are forbidden in keys.
fn text_of(entity: &Entity, name: &str) -> Option<String> {
    match name {
        "PartitionKey" => return Some(entity.partition_key().to_owned()),
        "RowKey" => return Some(entity.row_key().to_owned()),
        "Timestamp" => return entity.timestamp().map(|time| time.to_string()),
        _ => {}
    }
    let mut text = String::new();
    let written = match entity.value(name)? {
        ValueRef::String(value) => return Some(value.to_owned()),
        ValueRef::Boolean(value) => write!(text, "{value}"),
        ValueRef::Int32(value) => write!(text, "{value}"),
        ValueRef::Int64(value) => write!(text, "{value}"),
        ValueRef::Double(value) => write!(text, "{value:?}"),
        ValueRef::DateTime(value) => write!(text, "{value}"),
        ValueRef::Guid(value) => write!(text, "{value}"),
        ValueRef::Binary(bytes) => bytes.iter().try_for_each(|byte| write!(text, "{byte:02x}")),
    };
    written.is_ok().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_of_properties() {
        let entity = Entity::new("p", "r")
            .with("S", "x/y")
            .with("I", -3)
            .with("L", 5i64)
            .with("D", 0.5)
            .with("T", true)
            .with("B", vec![1u8, 255]);
        let key =
            |text: &str| KeyTemplate::parse(text).unwrap().key(&entity).map_err(str::to_owned);
        assert_eq!(key("{PartitionKey}.{RowKey}"), Ok("p.r".to_owned()));
        assert_eq!(key("{S} {I} {L} {D} {T} {B}"), Ok("x/y -3 5 0.5 true 01ff".to_owned()));
        assert_eq!(key("all"), Ok("all".to_owned()));
        assert_eq!(key("{I}{N}"), Err("N".to_owned()));
        assert_eq!(key("{Timestamp}"), Err("Timestamp".to_owned()));
        let error = KeyTemplate::parse("{I").unwrap_err();
        assert_eq!((error.code(), error.message().contains("lone brace")), ("InvalidInput", true));
    }

    const COLUMNS: [&str; 3] = ["carrier", "origin", "a b"];

    fn parse(template: &str) -> Result<Template, String> {
        let number = |name: &str| COLUMNS.iter().position(|column| *column == name);
        Template::parse(template, |name| number(name).ok_or_else(|| format!("no '{name}'")))
    }

    #[track_caller]
    fn check(template: &str, expected: &str) {
        let mut out = Vec::new();
        let fields: [&[u8]; 3] = [b"UA", b"EWR", b"NA"];
        parse(template).unwrap().expand(&mut out, |i| fields[i]);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn columns_and_text() {
        check("{carrier}-{origin}", "UA-EWR");
        check("{carrier}{carrier}{a b}", "UAUANA");
        check("all", "all");
        check("", "");
        check("{{{carrier}}} }}", "{UA} }");
        assert_eq!(parse("{origin}"), Ok(Template::column(1)));
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(parse("{tail}").unwrap_err(), "no 'tail'");
        assert_eq!(parse("{}").unwrap_err(), "no ''");
        for template in ["{carrier", "carrier}", "{{carrier}", "a}b"] {
            assert!(parse(template).unwrap_err().contains("lone brace"), "{template}");
        }
    }
}
