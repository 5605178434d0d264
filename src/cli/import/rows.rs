//! Parses the rows of an input, CSV, NDJSON or JSON documents, into entities.

use std::io::{self, Read};

use clap::ValueEnum;

use super::columns::{Choices, Columns, Converter, listed, needed, none_such, option_of, use_long};
use crate::cli::csv::CsvReader;
use crate::cli::failure::{Failure, Outcome, quoted};
use crate::error::{Code, Error, Result};
use crate::json::Scalar;
use crate::json::elements::{Elements, is_document};
use crate::json::odata::Members;
use crate::json::window::Lines;
use crate::model::{EdmType, Entity, EntityEncoder, KeyPart, Template};

/// The maximum length of an NDJSON line or of an element of a JSON document, in bytes. It is enough
/// for an entity of 1 MiB, even if all its text is escaped.
pub(super) const LINE_BYTES_MAX: usize = 8 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum InputFormat {
    /// Comma-separated values with a header
    Csv,
    /// One JSON object per line
    Ndjson,
    /// JSON: an array, an object with an array `items` or `value`, or objects over many lines
    Json,
    /// Columns of typed values (feature parquet)
    Parquet,
}

/// Detects the format: Parquet begins with its magic bytes, and JSON with a brace or with `[{`. No
/// sensible CSV header does.
pub(super) fn format_of(head: &[u8]) -> InputFormat {
    if head.starts_with(b"PAR1") {
        return InputFormat::Parquet;
    }
    match head.trim_ascii_start().first() {
        _ if is_document(head) => InputFormat::Json,
        Some(b'{') => InputFormat::Ndjson,
        _ => InputFormat::Csv,
    }
}

pub(super) fn unreadable(input: &str, error: &io::Error) -> Failure {
    Failure::Other(format!("cannot read {input}: {error}"))
}

/// Reads a whole CSV file to infer the types of its columns and to count its rows. Errors name the
/// file `input`.
pub(super) fn infer_columns<R: Read>(
    mut reader: CsvReader<R>,
    choices: &Choices,
    input: &str,
) -> Outcome<(Columns, u64)> {
    let header = reader.next().map_err(|error| unreadable(input, &error))?;
    let header = header.ok_or_else(|| {
        Failure::Other(format!("{input} is empty: CSV begins with a line of column names"))
    })?;
    let mut columns = Columns::new(&header, choices)?;
    let mut rows = 0;
    while let Some(row) = reader.next().map_err(|error| unreadable(input, &error))? {
        columns.see(&row);
        rows += 1;
    }
    columns.decide();
    Ok((columns, rows))
}

/// Passes each row after the header to `push`, with its line number, until `push` returns false.
pub(super) fn parse_csv<R: Read>(
    mut reader: CsvReader<R>,
    columns: &Columns,
    mut push: impl FnMut(u64, Result<Entity>) -> bool,
) -> io::Result<()> {
    let mut converter = Converter::new(columns);
    reader.next()?;
    while let Some(row) = reader.next()? {
        if !push(row.line, converter.entity(&row)) {
            break;
        }
    }
    Ok(())
}

/// Passes the entity of each non-empty line to `push`, until `push` returns false.
pub(super) fn parse_ndjson(
    source: impl Read,
    keys: &mut MemberKeys,
    mut push: impl FnMut(u64, Result<Entity>) -> bool,
) -> io::Result<()> {
    let mut lines = Lines::new(source, LINE_BYTES_MAX);
    while let Some(line) = lines.next()? {
        let row = match line.bytes {
            Some(bytes) if bytes.trim_ascii().is_empty() => continue,
            Some(bytes) => keys.entity(bytes),
            None => {
                let text = format!("the line is longer than {LINE_BYTES_MAX} bytes");
                Err(Error::refused_with(Code::InvalidInput, text))
            }
        };
        if !push(line.number, row) {
            break;
        }
    }
    Ok(())
}

/// Passes the entity of each element to `push`, with the number of the element, until `push`
/// returns false.
pub(super) fn parse_json(
    source: impl Read,
    keys: &mut MemberKeys,
    mut push: impl FnMut(u64, Result<Entity>) -> bool,
) -> io::Result<()> {
    let mut elements = Elements::new(source, LINE_BYTES_MAX);
    while let Some(element) = elements.next()? {
        let line = element.line;
        let row = element.bytes.map_or_else(
            || {
                let text = format!("the element is longer than {LINE_BYTES_MAX} bytes");
                Err(Error::refused_with(Code::InvalidInput, text))
            },
            |bytes| keys.entity(bytes),
        );
        let row = row.map_err(|error| error.with_message(format!("line {line}: {error}")));
        if !push(element.number, row) {
            break;
        }
    }
    Ok(())
}

/// Builds the keys of entities from the members of JSON objects, and applies the user's options.
pub(super) struct MemberKeys {
    choices: Choices,
    names: Vec<String>,
    partition_key: Option<Template>,
    row_key: Option<Template>,
    encoder: EntityEncoder,
}

impl MemberKeys {
    pub(super) fn new(partition_key: Option<&str>, row_key: Option<&str>) -> Outcome<Self> {
        let names = std::cell::RefCell::new(Vec::<String>::new());
        // Accepts every member name in a template. A line without that member is rejected when it
        // is read.
        let column = |name: &str| {
            let mut names = names.borrow_mut();
            names.push(name.to_owned());
            Ok(names.len() - 1)
        };
        let parse = |template: Option<&str>| {
            template.map(|text| Template::parse(text, column)).transpose().map_err(Failure::Usage)
        };
        let (partition_key, row_key) = (parse(partition_key)?, parse(row_key)?);
        let (names, encoder) = (names.into_inner(), EntityEncoder::default());
        Ok(Self { choices: Choices::default(), partition_key, row_key, names, encoder })
    }

    /// Renames, skips and types the members as in `choices`.
    pub(super) fn with(self, choices: Choices) -> Self {
        Self { choices, ..self }
    }

    pub(super) fn entity(&mut self, object: &[u8]) -> Result<Entity> {
        let text = std::str::from_utf8(object).map_err(|_| {
            let text = "the text is not UTF-8 (BLOBs must be Base64, with --type NAME=binary)";
            Error::refused_with(Code::InvalidInput, text)
        })?;
        let Choices { renames, skip, types, .. } = &self.choices;
        let mut members = Members::read(text)?;
        if !(renames.is_empty() && skip.is_empty() && types.is_empty()) {
            members.adapt(renames, skip, types)?;
        }
        let (pk, rk) = self.keys(&members)?;
        let entity = members.entity(&pk, &rk, &mut self.encoder);
        entity.map_err(|error| with_advice(error, &members))
    }

    /// Returns the keys of the entity of an object.
    pub(super) fn keys(&self, members: &Members<'_>) -> Result<(String, String)> {
        let pk = self.key(members, KeyPart::PartitionKey, self.partition_key.as_ref())?;
        Ok((pk, self.key(members, KeyPart::RowKey, self.row_key.as_ref())?))
    }

    fn key(
        &self,
        members: &Members<'_>,
        part: KeyPart,
        template: Option<&Template>,
    ) -> Result<String> {
        let Some(template) = template else {
            let key = members.key(part).map(str::to_owned);
            return key.map_err(|error| error.with_message(self.unkeyed(members, part)));
        };
        let missing = std::cell::Cell::new(None);
        let mut key = Vec::new();
        template.expand(&mut key, |i| {
            let name = self.names.get(i).map_or("", String::as_str);
            let text = members.raw(name);
            missing.set(missing.get().or(text.is_none().then_some(name)));
            text.unwrap_or_default().as_bytes()
        });
        match missing.get() {
            // All parts are texts.
            None => Ok(String::from_utf8(key).unwrap_or_default()),
            Some(name) => {
                let text = format!("{}: {}", option_of(part), unusable(members, name, ""));
                Err(Error::refused_with(Code::PropertiesNeedValue, text))
            }
        }
    }

    /// Says why an object lacks the key `part`, which has no template, and how it can be formed.
    #[cold]
    fn unkeyed(&self, members: &Members<'_>, part: KeyPart) -> String {
        let texts = members.names().filter(|name| members.raw(name).is_some());
        let other: String = self.names.iter().map(|name| format!("{{{name}}}")).collect();
        unusable(members, part.name(), &needed(part, &texts.collect::<Vec<_>>(), &other))
    }
}

/// Says why a member cannot be a key, then the advice, and the names of the members.
fn unusable(members: &Members<'_>, name: &str, advice: &str) -> String {
    let names: Vec<_> = members.names().collect();
    let problem = match members.find(name) {
        None => none_such("member", name, &names),
        Some(Scalar::Null) => format!("member '{name}' is null"),
        Some(Scalar::Nested(_)) => format!("member '{name}' is an array or object"),
        Some(_) => format!("member '{name}' is not of type Edm.String"),
    };
    format!("{problem}{advice}; members: {}", listed(&names))
}

/// Adds to the error for a member that cannot be a property the options with which it can.
#[cold]
fn with_advice(error: Error, members: &Members<'_>) -> Error {
    let Some((name, value)) = members.unfit() else { return error };
    let is_int = || matches!(members.type_of(name), Ok(None | Some(EdmType::Int32)));
    let is_long = || members.raw(name).is_some_and(|text| text.parse::<i64>().is_ok());
    let advice = match value {
        Scalar::Nested(_) => {
            let name = quoted(name);
            format!("use --type {name}=string for its JSON as text, or --skip {name}")
        }
        _ if is_int() && is_long() => use_long(name),
        _ => return error,
    };
    error.with_message(format!("{} ({advice})", error.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_detected_by_the_first_bytes() {
        assert_eq!(format_of(b" [\n{\"a\":1}]"), InputFormat::Json);
        assert_eq!(format_of(b"[a],[b]"), InputFormat::Csv);
        assert_eq!(format_of(b" \n{\"a\":1}"), InputFormat::Ndjson);
        assert_eq!(format_of(b"PAR1\x15\x04"), InputFormat::Parquet);
        assert_eq!(format_of(b"a,b"), InputFormat::Csv);
        assert_eq!(format_of(b""), InputFormat::Csv);
    }

    #[test]
    fn ndjson_has_keys_or_builds_them_from_members() {
        let mut keys = MemberKeys::new(None, None).unwrap();
        let entity = keys.entity(br#"{"PartitionKey":"p","RowKey":"r","A":1}"#).unwrap();
        assert_eq!(format!("{entity:?}"), r#"{"PartitionKey": "p", "RowKey": "r", "A": Int32(1)}"#);
        let mut made = MemberKeys::new(Some("{A}-{B}"), Some("{A}{C}")).unwrap();
        let entity = made.entity(br#"{"A":1.50,"B":"x","C":true}"#).unwrap();
        assert_eq!((entity.partition_key(), entity.row_key()), ("1.50-x", "1.50true"));
        assert_eq!(entity.len(), 3);
        let mut code = |line: &[u8]| made.entity(line).unwrap_err().code();
        assert_eq!(code(br#"{"A":1,"B":null,"C":1}"#), "PropertiesNeedValue");
        assert_eq!(code(br#"{"A":1"#), "InvalidInput");
        assert_eq!(code(b"\xff"), "InvalidInput");
        assert!(MemberKeys::new(Some("{A"), None).is_err());
    }
}
