//! Converts the rows of a CSV file to entities. Keys are built by templates, and each property has
//! the type of its column.
//!
//! Invariants
//! * properties are sorted by name, as the row of an entity requires;
//! * a field gives no property if it is a null text (a text that means no value), or if it is empty
//!   and its column is not a String column.

use base64::engine::{Engine as _, general_purpose::STANDARD as BASE64};
use clap::Args;

use super::infer::{self, Candidates};
use crate::cli::csv::Row;
use crate::cli::failure::{Failure, Outcome};
use crate::error::{Code, Error, Result};
use crate::model::{
    DateTime, DateTimeProblem, EdmType, Entity, EntityEncoder, PROPERTIES_MAX, SYSTEM_PROPERTIES,
    Template, ValueRef, check_property_name, out_of_range,
};

/// The user's options for keys, types and other conversions of columns.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct Choices {
    /// PartitionKey of a row, with columns in braces: '{carrier}-{origin}'
    #[arg(long, value_name = "TEMPLATE")]
    pub(super) partition_key: Option<String>,
    /// RowKey of a row, with columns in braces
    #[arg(long, value_name = "TEMPLATE")]
    pub(super) row_key: Option<String>,
    /// A text that means no value; may be repeated [default: the empty field]
    #[arg(long = "null", value_name = "TEXT")]
    pub(super) nulls: Vec<String>,
    /// The type of a column instead of the inferred one; may be repeated
    #[arg(long = "type", value_name = "COLUMN=Edm.TYPE", value_parser = parse_type)]
    pub(super) types: Vec<(String, EdmType)>,
    /// A column to ignore; may be repeated
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
}

/// Converts rows to entities, reusing its buffers.
pub(super) struct Converter<'c> {
    columns: &'c Columns,
    encoder: EntityEncoder,
    partition_key: Vec<u8>,
    row_key: Vec<u8>,
    binaries: Vec<Vec<u8>>,
}

impl Columns {
    /// Parses the header, and applies the user's options.
    pub(super) fn new(header: &Row<'_>, choices: &Choices) -> Outcome<Columns> {
        let names = header_names(header)?;
        let find = |name: &str| names.iter().position(|column| column == name);
        let known = |name: &String, option: &str| match find(name) {
            Some(_) => Ok(()),
            None => Err(usage(format!("{option}: there is no column '{name}'"), &names)),
        };
        choices.types.iter().try_for_each(|(name, _)| known(name, "--type"))?;
        choices.skip.iter().try_for_each(|name| known(name, "--skip"))?;
        let template = |given: &Option<String>, option: &str, default: &str| match given {
            Some(text) => Template::parse(text, find)
                .map_err(|problem| usage(format!("--{option}: {problem}"), &names)),
            None => find(default).map(Template::column).ok_or_else(|| {
                let some: Vec<_> = names.iter().take(2).map(|name| format!("{{{name}}}")).collect();
                usage(format!("--{option} is needed, such as '{}'", some.join("-")), &names)
            }),
        };
        let partition_key = template(&choices.partition_key, "partition-key", "PartitionKey")?;
        let row_key = template(&choices.row_key, "row-key", "RowKey")?;
        let mut properties = Vec::new();
        for (index, name) in names.iter().enumerate() {
            if SYSTEM_PROPERTIES.contains(&name.as_str()) || choices.skip.contains(name) {
                continue;
            }
            let given = choices.types.iter().rev().find(|(column, _)| column == name);
            properties.push(Column::new(index, name, given.map(|(_, edm)| *edm))?);
        }
        if properties.len() > PROPERTIES_MAX {
            let count = properties.len();
            let text = format!(
                "{count} columns would be properties, and an entity has at most {PROPERTIES_MAX}: \
                 leave some out with --skip"
            );
            return Err(Failure::Other(text));
        }
        properties.sort_by(|a, b| a.name.cmp(&b.name));
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
            if !field.is_empty() && !self.nulls.iter().any(|null| null == field) {
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

    #[inline]
    fn is_null(&self, field: &[u8], edm: EdmType) -> bool {
        self.nulls.iter().any(|null| null == field) || (field.is_empty() && edm != EdmType::String)
    }
}

impl Column {
    fn new(index: usize, name: &str, given: Option<EdmType>) -> Outcome<Column> {
        check_property_name(name).map_err(|error| {
            let text = format!(
                "column '{name}' cannot be a property: {}\n  try: rename it in the header, or leave \
                 it out with --skip '{name}'",
                error.message()
            );
            Failure::Other(text)
        })?;
        let candidates = if given.is_none() { Some(Candidates::all()) } else { None };
        let edm = given.unwrap_or(EdmType::String);
        Ok(Column { index, name: name.to_owned(), edm, candidates })
    }

    /// Converts `field` to a value of this column.
    #[inline]
    fn value<'f>(&self, field: &'f [u8]) -> Result<ValueRef<'f>> {
        infer::value(field, self.edm).ok_or_else(|| self.refusal(field))
    }

    #[cold]
    fn refusal(&self, field: &[u8]) -> Error {
        let text = String::from_utf8_lossy(field);
        if self.edm == EdmType::DateTime
            && let Err(DateTimeProblem::OutOfRange(time)) = DateTime::parse(&text)
        {
            return out_of_range(&self.name, &time);
        }
        let shown: String = text.chars().take(60).collect();
        let (name, edm) = (&self.name, self.edm);
        let problem = match edm {
            EdmType::String => format!("column '{name}': '{shown}' is not UTF-8"),
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
            let text = format!("malformed CSV: {found} fields, the header has {expected}");
            return Err(Error::refused_with(Code::InvalidInput, text));
        }
        self.partition_key.clear();
        columns.partition_key.expand(&mut self.partition_key, |i| row.field(i));
        self.row_key.clear();
        columns.row_key.expand(&mut self.row_key, |i| row.field(i));
        self.decode_binaries(row)?;
        let mut properties = Vec::with_capacity(columns.properties.len());
        let mut binaries = self.binaries.iter();
        for column in &columns.properties {
            let field = row.field(column.index);
            if columns.is_null(field, column.edm) {
                continue;
            }
            let value = match column.edm {
                EdmType::Binary => {
                    ValueRef::Binary(binaries.next().map(Vec::as_slice).unwrap_or_default())
                }
                _ => column.value(field)?,
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
        let columns = self.columns;
        for column in columns.properties.iter().filter(|column| column.edm == EdmType::Binary) {
            let field = row.field(column.index);
            if !columns.is_null(field, EdmType::Binary) {
                let bytes = BASE64.decode(field).map_err(|_| column.refusal(field))?;
                self.binaries.push(bytes);
            }
        }
        Ok(())
    }
}

fn key_text(key: &[u8]) -> Result<&str> {
    std::str::from_utf8(key)
        .map_err(|_| Error::refused_with(Code::InvalidInput, "the key is not UTF-8"))
}

/// Parses `COLUMN=Edm.TYPE`; the column may contain an equals sign, the type may not.
pub(super) fn parse_type(text: &str) -> Result<(String, EdmType), String> {
    let known = || EdmType::ALL.map(EdmType::name).join(", ");
    let (column, edm) = text.rsplit_once('=').ok_or("expected COLUMN=Edm.TYPE")?;
    let edm = EdmType::from_name(edm).ok_or_else(|| format!("'{edm}' is none of {}", known()))?;
    Ok((column.to_owned(), edm))
}

pub(super) fn header_names(header: &Row<'_>) -> Outcome<Vec<String>> {
    if let Some(problem) = header.problem {
        return Err(Failure::Other(format!("malformed header: {problem}")));
    }
    let mut names: Vec<String> = Vec::with_capacity(header.len());
    for field in header.fields() {
        let name = String::from_utf8(field.to_vec())
            .map_err(|_| Failure::Other("malformed header: it is not UTF-8".into()))?;
        names.push(name);
    }
    let mut sorted: Vec<_> = names.iter().collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair.first() == pair.last()).and_then(|pair| pair.first()) {
        Some(name) => {
            Err(Failure::Other(format!("malformed header: column '{name}' is there twice")))
        }
        None => Ok(names),
    }
}

/// Returns a usage failure with `problem` and the list of existing columns.
pub(super) fn usage(problem: String, names: &[String]) -> Failure {
    Failure::Usage(format!("{problem}\n  columns: {}", names.join(", ")))
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
        refused(csv, &Choices::default(), "--partition-key is needed");
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
