//! Converts the rows of a CSV file to entities. Keys are built by templates, and each property has
//! the type of its column, or of the column `NAME@type`, which Azure Storage Explorer writes.
//!
//! Invariants
//! * properties are sorted by name, as the row of an entity requires;
//! * a field gives no property if it is a null text (a text that means no value), or if it is empty
//!   and not a String. An empty field with the type String in `NAME@type` is an empty text.

use base64::engine::{Engine as _, general_purpose::STANDARD as BASE64};
use clap::Args;

use super::infer::{self, Candidates};
use crate::cli::csv::Row;
use crate::cli::failure::{Failure, Outcome, quoted};
use crate::cli::layout::cut;
use crate::cli::output::counted;
use crate::cli::unmatched::nearest;
use crate::error::{Code, Error, Result};
use crate::model::{
    DateTime, DateTimeProblem, EdmType, Entity, EntityEncoder, KeyPart, PROPERTIES_MAX,
    SYSTEM_PROPERTIES, Template, ValueRef, check_property_name, out_of_range,
};
use crate::sort::sort_by;

/// The number of columns, and of characters of each, that an error lists.
const NAMES_SHOWN: usize = 20;
const NAME_SHOWN_MAX: usize = 40;

/// The user's options for keys, types and other conversions of columns.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct Choices {
    /// PartitionKey of a row, with columns in braces: '{carrier}-{origin}'
    #[arg(long, value_name = "TEMPLATE")]
    pub(super) partition_key: Option<String>,
    /// RowKey of a row, with columns in braces
    #[arg(long, value_name = "TEMPLATE")]
    pub(super) row_key: Option<String>,
    /// Treat a column or JSON member as if it were named NEW; all other options name it so
    #[arg(long = "rename", value_name = "OLD=NEW", value_parser = parse_rename)]
    pub(super) renames: Vec<(String, String)>,
    /// A text in CSV that means no value; may be repeated [default: the empty field]
    #[arg(long = "null", value_name = "TEXT")]
    pub(super) nulls: Vec<String>,
    /// The type of a column or JSON member; may be repeated. TYPE is an EDM type such as Edm.Int64,
    /// or int, long, double, bool, datetime, guid, binary, string
    #[arg(long = "type", value_name = "COLUMN=TYPE", value_parser = parse_type)]
    pub(super) types: Vec<(String, EdmType)>,
    /// A column or JSON member to ignore; may be repeated
    #[arg(long, value_name = "COLUMN")]
    pub(super) skip: Vec<String>,
}

/// A parsed header.
#[derive(Debug)]
pub(super) struct Columns {
    width: usize,
    partition_key: Template,
    row_key: Template,
    nulls: Vec<Vec<u8>>,
    properties: Vec<Column>,
}

#[derive(Debug)]
struct Column {
    index: usize,
    name: String,
    edm: EdmType,
    /// `None` if the user gave the type.
    candidates: Option<Candidates>,
    /// The column with the types of the values, unless the user gave the type.
    types: Option<usize>,
}

/// Converts rows to entities, reusing its buffers.
pub(super) struct Converter<'c> {
    columns: &'c Columns,
    encoder: EntityEncoder,
    partition_key: Vec<u8>,
    row_key: Vec<u8>,
    /// The type of each property of the row; `None` if the row lacks it.
    types: Vec<Option<EdmType>>,
    binaries: Vec<Vec<u8>>,
}

/// Advice for text that is not UTF-8, which is most likely Latin-1.
const NOT_UTF8: &str = "not UTF-8 (try: iconv -f LATIN1 -t UTF-8)";
const TYPE_SUFFIX: &str = "@type";
/// Short names of types, in addition to the names without `Edm.`.
const SHORT_NAMES: [(&str, EdmType); 3] =
    [("int", EdmType::Int32), ("long", EdmType::Int64), ("bool", EdmType::Boolean)];

impl Columns {
    /// Parses the header, and applies the user's options.
    pub(super) fn new(header: &Row<'_>, choices: &Choices) -> Outcome<Columns> {
        let names = header_names(header, &choices.renames)?;
        let find = |name: &str| find_column(&names, name);
        let known = |name: &String, option: &str| match find(name) {
            Ok(_) => Ok(()),
            Err(problem) => Err(usage(format!("{option}: {problem}"), &names)),
        };
        choices.types.iter().try_for_each(|(name, _)| known(name, "--type"))?;
        choices.skip.iter().try_for_each(|name| known(name, "--skip"))?;
        let template = |part| key_template(choices, part, &names, find);
        let partition_key = template(KeyPart::PartitionKey)?;
        let row_key = template(KeyPart::RowKey)?;
        let mut properties = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let typed = name.strip_suffix(TYPE_SUFFIX).filter(|name| find(name).is_ok());
            let is_system = SYSTEM_PROPERTIES.contains(&name.as_str());
            if typed.is_some() || is_system || choices.skip.contains(name) {
                continue;
            }
            let given = choices.types.iter().rev().find(|(column, _)| column == name);
            let types = find(&format!("{name}{TYPE_SUFFIX}")).ok();
            properties.push(Column::new(index, name, given.map(|(_, edm)| *edm), types)?);
        }
        if properties.len() > PROPERTIES_MAX {
            let count = properties.len();
            let text = format!(
                "{count} columns would be properties, and an entity has at most {PROPERTIES_MAX}: \
                 leave some out with --skip"
            );
            return Err(Failure::Other(text));
        }
        sort_by(&mut properties, |a, b| a.name.cmp(&b.name));
        let nulls = choices.nulls.iter().map(|null| null.as_bytes().to_vec()).collect();
        Ok(Columns { width: names.len(), partition_key, row_key, nulls, properties })
    }

    /// Narrows the possible types of the columns to those that fit the fields of `row`.
    pub(super) fn see(&mut self, row: &Row<'_>) {
        if row.problem.is_some() || row.len() != self.width {
            return;
        }
        for column in &mut self.properties {
            let Some(candidates) = &mut column.candidates else { continue };
            let field = row.field(column.index);
            let is_typed = column.types.is_some_and(|types| !row.field(types).is_empty());
            if !is_typed && !field.is_empty() && !self.nulls.iter().any(|null| null == field) {
                candidates.see(field);
            }
        }
    }

    /// Chooses the type of each column, after all rows were passed to `see`.
    pub(super) fn decide(&mut self) {
        for column in &mut self.properties {
            if let Some(candidates) = column.candidates {
                column.edm = candidates.decide();
            }
        }
    }

    /// Returns the type of the column's value in `row`, or `None` if the row has no value.
    #[inline]
    fn type_in(&self, row: &Row<'_>, column: &Column) -> Result<Option<EdmType>> {
        let field = row.field(column.index);
        let given = column.given_in(row)?;
        let edm = given.unwrap_or(column.edm);
        let is_null = match (field.is_empty(), given) {
            (true, Some(edm)) => edm != EdmType::String,
            (true, None) if edm != EdmType::String => true,
            _ => self.nulls.iter().any(|null| null == field),
        };
        Ok((!is_null).then_some(edm))
    }
}

impl Column {
    fn new(
        index: usize,
        name: &str,
        given: Option<EdmType>,
        types: Option<usize>,
    ) -> Outcome<Column> {
        check_property_name(name).map_err(|error| {
            let text = format!(
                "column '{name}' cannot be a property: {}\n  try: --rename {word}=NEW, or leave it \
                 out with --skip {word}",
                error.message(),
                word = quoted(name)
            );
            Failure::Other(text)
        })?;
        let candidates = if given.is_none() { Some(Candidates::all()) } else { None };
        let edm = given.unwrap_or(EdmType::String);
        let types = types.filter(|_| given.is_none());
        Ok(Column { index, name: name.to_owned(), edm, candidates, types })
    }

    /// Returns the type that `row` has in the column of types, if any.
    #[inline]
    fn given_in(&self, row: &Row<'_>) -> Result<Option<EdmType>> {
        let Some(text) = self.types.map(|types| row.field(types)).filter(|text| !text.is_empty())
        else {
            return Ok(None);
        };
        let edm = std::str::from_utf8(text).ok().and_then(edm_of);
        edm.map(Some).ok_or_else(|| {
            let (name, shown) = (&self.name, shown(text));
            let problem = format!("column '{name}{TYPE_SUFFIX}': '{shown}' is not a type");
            Error::refused_with(Code::InvalidInput, problem)
        })
    }

    /// Converts `field` to a value of this column.
    #[inline]
    fn value<'f>(&self, field: &'f [u8], edm: EdmType) -> Result<ValueRef<'f>> {
        let digit = match (field, edm) {
            (b"0" | b"1", EdmType::Boolean) => Some(ValueRef::Boolean(field == b"1")),
            _ => None,
        };
        digit.or_else(|| infer::value(field, edm)).ok_or_else(|| self.refusal(field, edm))
    }

    #[cold]
    fn refusal(&self, field: &[u8], edm: EdmType) -> Error {
        let text = String::from_utf8_lossy(field);
        if edm == EdmType::DateTime
            && let Err(DateTimeProblem::OutOfRange(time)) = DateTime::parse(&text)
        {
            return out_of_range(&self.name, &time);
        }
        let (name, shown) = (&self.name, shown(field));
        let problem = match edm {
            EdmType::String => format!("column '{name}': '{shown}' is {NOT_UTF8}"),
            EdmType::Int32 if text.parse::<i64>().is_ok() => {
                format!("column '{name}': '{shown}' is not of type {edm} ({})", use_long(name))
            }
            _ => format!("column '{name}': '{shown}' is not of type {edm}"),
        };
        Error::refused_with(Code::InvalidInput, problem)
    }
}

impl<'c> Converter<'c> {
    pub(super) fn new(columns: &'c Columns) -> Self {
        Self {
            columns,
            encoder: EntityEncoder::default(),
            partition_key: Vec::new(),
            row_key: Vec::new(),
            types: Vec::new(),
            binaries: Vec::new(),
        }
    }

    /// Builds the entity of a row.
    pub(super) fn entity(&mut self, row: &Row<'_>) -> Result<Entity> {
        let columns = self.columns;
        if let Some(problem) = row.problem {
            return Err(Error::refused_with(
                Code::InvalidInput,
                format!("malformed CSV: {problem}"),
            ));
        }
        if row.len() != columns.width {
            let (found, expected) = (row.len(), columns.width);
            let found = counted(found as u64, "field", "fields");
            let text = format!("malformed CSV: {found}, the header has {expected}");
            return Err(Error::refused_with(Code::InvalidInput, text));
        }
        self.partition_key.clear();
        columns.partition_key.expand(&mut self.partition_key, |i| row.field(i));
        self.row_key.clear();
        columns.row_key.expand(&mut self.row_key, |i| row.field(i));
        self.types.clear();
        for column in &columns.properties {
            self.types.push(columns.type_in(row, column)?);
        }
        self.decode_binaries(row)?;
        let mut properties = Vec::with_capacity(columns.properties.len());
        let mut binaries = self.binaries.iter();
        for (column, edm) in columns.properties.iter().zip(&self.types) {
            let value = match *edm {
                None => continue,
                Some(EdmType::Binary) => {
                    ValueRef::Binary(binaries.next().map(Vec::as_slice).unwrap_or_default())
                }
                Some(edm) => column.value(row.field(column.index), edm)?,
            };
            properties.push((column.name.as_str(), value));
        }
        let (pk, rk) = (key_text(&self.partition_key)?, key_text(&self.row_key)?);
        self.encoder.entity(pk, rk, &mut properties)
    }

    /// Decodes the Binary values of a row into separate memory. Values of other types are read from
    /// the row itself.
    fn decode_binaries(&mut self, row: &Row<'_>) -> Result<()> {
        self.binaries.clear();
        let typed = self.columns.properties.iter().zip(&self.types);
        for (column, _) in typed.filter(|(_, edm)| **edm == Some(EdmType::Binary)) {
            let field = row.field(column.index);
            let bytes = BASE64.decode(field);
            self.binaries.push(bytes.map_err(|_| column.refusal(field, EdmType::Binary))?);
        }
        Ok(())
    }
}

/// Advice for an integer that is too large for its property.
pub(super) fn use_long(name: &str) -> String {
    format!("use --type {}=long", quoted(name))
}

fn key_text(key: &[u8]) -> Result<&str> {
    std::str::from_utf8(key)
        .map_err(|_| Error::refused_with(Code::InvalidInput, format!("the key is {NOT_UTF8}")))
}

fn shown(field: &[u8]) -> String {
    String::from_utf8_lossy(field).chars().take(60).collect()
}

/// Returns the type of this name: `Edm.Int32`, `Int32` or `int`, in any case.
fn edm_of(name: &str) -> Option<EdmType> {
    let name = name.strip_prefix("Edm.").unwrap_or(name);
    let full = EdmType::ALL.map(|edm| (edm.name().trim_start_matches("Edm."), edm));
    let mut known = full.into_iter().chain(SHORT_NAMES);
    known.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, edm)| edm)
}

/// Parses `COLUMN=TYPE`; the column may contain an equals sign, the type may not.
pub(super) fn parse_type(text: &str) -> Result<(String, EdmType), String> {
    let (column, edm) = text.rsplit_once('=').ok_or("expected COLUMN=TYPE")?;
    let known = || EdmType::ALL.map(EdmType::name).join(", ");
    let edm = edm_of(edm).ok_or_else(|| {
        format!("'{edm}' is none of {}, nor a short name such as int, long or bool", known())
    })?;
    Ok((column.to_owned(), edm))
}

/// Parses `OLD=NEW`; the old name may contain an equals sign, the new one may not.
fn parse_rename(text: &str) -> Result<(String, String), String> {
    let (old, new) = text.rsplit_once('=').ok_or("expected OLD=NEW")?;
    if new.is_empty() || new == "Timestamp" {
        return Err("NEW is a property, PartitionKey or RowKey".to_owned());
    }
    Ok((old.to_owned(), new.to_owned()))
}

/// Returns the names of the columns after the renames, each of which must apply to a column.
pub(super) fn header_names(header: &Row<'_>, renames: &[(String, String)]) -> Outcome<Vec<String>> {
    if let Some(problem) = header.problem {
        return Err(Failure::Other(format!("malformed header: {problem}")));
    }
    let mut names: Vec<String> = Vec::with_capacity(header.len());
    for field in header.fields() {
        let name = String::from_utf8(field.to_vec())
            .map_err(|_| Failure::Other(format!("malformed header: it is {NOT_UTF8}")))?;
        names.push(name);
    }
    let mut renamed = Vec::new();
    for (old, new) in renames {
        let column = find_column(&names, old);
        let column = column.map_err(|problem| usage(format!("--rename: {problem}"), &names))?;
        renamed.push((column, new.clone()));
        let types = find_column(&names, &format!("{old}{TYPE_SUFFIX}"));
        renamed.extend(types.map(|types| (types, format!("{new}{TYPE_SUFFIX}"))));
    }
    for (column, new) in renamed {
        names.get_mut(column).into_iter().for_each(|name| *name = new.clone());
    }
    let mut sorted: Vec<_> = names.iter().collect();
    sort_by(&mut sorted, Ord::cmp);
    match sorted.windows(2).find(|pair| pair.first() == pair.last()).and_then(|pair| pair.first()) {
        Some(name) => {
            Err(Failure::Other(format!("malformed header: column '{name}' is there twice")))
        }
        None => Ok(names),
    }
}

/// Returns the number of the column `name`, or else a sentence that also has the nearest name.
pub(super) fn find_column(names: &[String], name: &str) -> Result<usize, String> {
    let found = names.iter().position(|column| column == name);
    found.ok_or_else(|| none_such("column", name, names))
}

/// Says that no column or member (`kind`) among `names` is named `name`.
pub(super) fn none_such(kind: &str, name: &str, names: &[impl AsRef<str>]) -> String {
    let nearest = nearest(name, names.iter().map(AsRef::as_ref));
    let nearest = nearest.map(|name| format!(", the nearest is '{name}'")).unwrap_or_default();
    format!("there is no {kind} '{name}'{nearest}")
}

/// Returns the template of a key: the given one, or else the column that is named like the key.
pub(super) fn key_template(
    choices: &Choices,
    part: KeyPart,
    names: &[String],
    find: impl Fn(&str) -> Result<usize, String>,
) -> Outcome<Template> {
    let (given, other) = match part {
        KeyPart::PartitionKey => (&choices.partition_key, &choices.row_key),
        KeyPart::RowKey => (&choices.row_key, &choices.partition_key),
    };
    match given {
        Some(text) => Template::parse(text, find)
            .map_err(|problem| usage(format!("{}: {problem}", option_of(part)), names)),
        None => find(part.name()).map(Template::column).map_err(|problem| {
            let needed = needed(part, names, other.as_deref().unwrap_or_default());
            usage(format!("{problem}{needed}"), names)
        }),
    }
}

/// The option that forms a key of columns or members.
pub(super) fn option_of(part: KeyPart) -> &'static str {
    match part {
        KeyPart::PartitionKey => "--partition-key",
        KeyPart::RowKey => "--row-key",
    }
}

/// The end of a sentence: a key must be formed, such as of these columns or members. Those in
/// `other`, the template of the other key, are left out, so that the keys differ.
pub(super) fn needed(part: KeyPart, names: &[impl AsRef<str>], other: &str) -> String {
    let (other_name, most) = match part {
        KeyPart::PartitionKey => ("RowKey", 1),
        KeyPart::RowKey => ("PartitionKey", 2),
    };
    let in_braces = |name: &str| format!("{{{name}}}");
    let is_free = |name: &&str| *name != other_name && !other.contains(&in_braces(name));
    let names = || names.iter().map(AsRef::as_ref).filter(is_free);
    let example = match nearest(part.name(), names()) {
        Some(name) => in_braces(name),
        None => names().take(most).map(in_braces).collect::<Vec<_>>().join("-"),
    };
    let such_as = if example.is_empty() { "" } else { &format!(", such as {}", quoted(&example)) };
    format!(", so {} is needed{such_as}", option_of(part))
}

/// Lists the first names.
pub(super) fn listed(names: &[impl AsRef<str>]) -> String {
    let shown = names.iter().take(NAMES_SHOWN).map(|name| cut(name.as_ref(), NAME_SHOWN_MAX));
    let more = (names.len() > NAMES_SHOWN).then(|| "…".into());
    shown.chain(more).collect::<Vec<_>>().join(", ")
}

/// Returns a usage failure with `problem` and the list of existing columns.
pub(super) fn usage(problem: String, names: &[String]) -> Failure {
    Failure::Usage(format!("{problem}\n  columns: {}", listed(names)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::csv::CsvReader;

    /// Converts the rows of `csv`, and returns the entity or the error of each as text.
    fn load(csv: &str, choices: &Choices) -> Outcome<Vec<String>> {
        let mut reader = CsvReader::new(csv.as_bytes(), b',');
        let mut columns = Columns::new(&reader.next().unwrap().unwrap(), choices)?;
        while let Some(row) = reader.next().unwrap() {
            columns.see(&row);
        }
        columns.decide();
        let mut reader = CsvReader::new(csv.as_bytes(), b',');
        reader.next().unwrap();
        let mut converter = Converter::new(&columns);
        let mut found = Vec::new();
        while let Some(row) = reader.next().unwrap() {
            found.push(match converter.entity(&row) {
                Ok(entity) => format!("{entity:?}"),
                Err(error) => format!("{} {}: {error}", row.line, error.code()),
            });
        }
        Ok(found)
    }

    fn keyed() -> Choices {
        Choices {
            partition_key: Some("{p}".into()),
            row_key: Some("{r}-{a}".into()),
            nulls: vec!["NA".into()],
            skip: vec!["p".into(), "r".into()],
            ..Choices::default()
        }
    }

    #[track_caller]
    fn check(csv: &str, choices: &Choices, expected: &[&str]) {
        assert_eq!(load(csv, choices).unwrap(), expected);
    }

    #[track_caller]
    fn refused(csv: &str, choices: &Choices, expected: &str) {
        match load(csv, choices) {
            Err(Failure::Usage(text) | Failure::Other(text)) => {
                assert!(text.contains(expected), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn keys_take_the_raw_text_and_nulls_are_absent() {
        check(
            "p,r,a,b\nx,1,NA,0.5\ny,2,7,NA\n",
            &keyed(),
            &[
                r#"{"PartitionKey": "x", "RowKey": "1-NA", "b": Double(0.5)}"#,
                r#"{"PartitionKey": "y", "RowKey": "2-7", "a": Int32(7)}"#,
            ],
        );
    }

    #[test]
    fn an_empty_field_is_text_or_absent() {
        check(
            "p,r,a,b\nx,1,,\nx,2,s,7\n",
            &keyed(),
            &[
                r#"{"PartitionKey": "x", "RowKey": "1-", "a": String("")}"#,
                r#"{"PartitionKey": "x", "RowKey": "2-s", "a": String("s"), "b": Int32(7)}"#,
            ],
        );
        let choices = Choices { nulls: vec![String::new()], ..keyed() };
        check(
            "p,r,a\nx,1,\nx,2,s\n",
            &choices,
            &[
                r#"{"PartitionKey": "x", "RowKey": "1-"}"#,
                r#"{"PartitionKey": "x", "RowKey": "2-s", "a": String("s")}"#,
            ],
        );
    }

    #[test]
    fn given_types_take_precedence_and_misfits_are_refused() {
        let types = vec![("a".to_owned(), EdmType::Double), ("b".to_owned(), EdmType::Binary)];
        let choices = Choices { types, ..keyed() };
        check(
            "p,r,a,b\nx,1,1,AQID\nx,2,one,AQID\nx,3,1.5,NA\nx,4,1,A\n",
            &choices,
            &[
                r#"{"PartitionKey": "x", "RowKey": "1-1", "a": Double(1.0), "b": Binary([1, 2, 3])}"#,
                "3 InvalidInput: column 'a': 'one' is not of type Edm.Double",
                r#"{"PartitionKey": "x", "RowKey": "3-1.5", "a": Double(1.5)}"#,
                "5 InvalidInput: column 'b': 'A' is not of type Edm.Binary",
            ],
        );
        let types = vec![("a".to_owned(), EdmType::DateTime)];
        check(
            "p,r,a\nx,1,1600-01-01T00:00:00Z\n",
            &Choices { types, ..keyed() },
            &[
                "2 OutOfRangeInput: The 'a' parameter of value '01/01/1600 00:00:00' is out of range.",
            ],
        );
    }

    #[test]
    fn malformed_rows_are_refused_by_line_and_do_not_spoil_the_types() {
        check(
            "p,r,a\nx,1\nx,2,3,4\n\"x\"y,3,z\nx,4,5\n",
            &keyed(),
            &[
                "2 InvalidInput: malformed CSV: 2 fields, the header has 3",
                "3 InvalidInput: malformed CSV: 4 fields, the header has 3",
                "4 InvalidInput: malformed CSV: text after a closing quote",
                r#"{"PartitionKey": "x", "RowKey": "4-5", "a": Int32(5)}"#,
            ],
        );
    }

    #[test]
    fn exported_files_need_no_templates() {
        check(
            "PartitionKey,RowKey,Timestamp,A\np,r,2024-01-01T00:00:00Z,1\n",
            &Choices::default(),
            &[r#"{"PartitionKey": "p", "RowKey": "r", "A": Int32(1)}"#],
        );
    }

    #[test]
    fn mistakes_about_columns_are_named() {
        let csv = "p,r,a\n";
        refused(
            csv,
            &Choices::default(),
            "no column 'PartitionKey', so --partition-key is needed, such as '{p}'\n  columns: p,",
        );
        refused(
            "PartitionKey,row_key\n",
            &Choices::default(),
            "no column 'RowKey', the nearest is 'row_key', so --row-key is needed, such as '{row_key}'",
        );
        let choices = Choices { partition_key: Some("{Contry}".into()), ..Choices::default() };
        refused(
            "id,Country\n",
            &choices,
            "'Contry', the nearest is 'Country'\n  columns: id, Country",
        );
        let choices = |f: fn(&mut Choices)| {
            let mut choices = keyed();
            f(&mut choices);
            choices
        };
        refused(
            csv,
            &choices(|c| c.row_key = Some("{x}".into())),
            "no column 'x'\n  columns: p, r, a",
        );
        refused(csv, &choices(|c| c.skip = vec!["x".into()]), "--skip: there is no column 'x'");
        refused(
            csv,
            &choices(|c| c.types = vec![("x".into(), EdmType::Int32)]),
            "--type: there is",
        );
        refused("p,r,a,a\n", &keyed(), "column 'a' is there twice");
        refused("p,r,a,first name\n", &keyed(), "column 'first name' cannot be a property");
        refused("p,r,a,\"b\n", &keyed(), "malformed header: a quote is never closed");
        let wide: Vec<_> = (0..300).map(|i| format!("c{i}")).collect();
        refused(&format!("p,r,a,{}\n", wide.join(",")), &keyed(), "at most 252");
    }
}
