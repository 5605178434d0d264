//! Reads the rows of a Parquet file. Each column at the root of the schema becomes a property of
//! one type, except that a column `X@type` has the type of each value of the text column `X`.
//!
//! Invariants
//! * of each column, one data page and the dictionary are in memory; the sum is at most
//!   [`MEMORY_MAX`];
//! * what the file claims is checked by `guard` before the crate `parquet` reads it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Arc;

use base64::engine::{Engine as _, general_purpose::STANDARD as BASE64};
use parquet::basic::{
    Compression, ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical,
};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType, Int96};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::{SerializedFileReader, SerializedPageReader};
use parquet::schema::types::{ColumnDescriptor, Type};

use super::columns::{Choices, find_column, key_template, usage};
use super::infer;
use super::rows::unreadable;
use crate::cli::failure::{Failure, Outcome, quoted};
use crate::cli::parquet::guard::{Pages, check_footer, pages, quietly};
use crate::clock::TICKS_TO_UNIX_EPOCH;
use crate::error::{Code, Error, Result};
use crate::json::double;
use crate::json::odata::put_text;
use crate::model::{
    DateTime, EdmType, Entity, EntityEncoder, Guid, KeyPart, SYSTEM_PROPERTIES, Template, ValueRef,
    check_property_name,
};

/// The maximum memory for the pages of a row group that are read at the same time, in bytes.
const MEMORY_MAX: u64 = 1 << 30;
/// The maximum number of rows that are decoded at once.
const BATCH_ROWS: u64 = 512;
const DECIMAL_SCALE_MAX: i32 = 38;
/// The maximum length of a decimal in bytes.
const DECIMAL_BYTES: usize = 16;
/// The maximum number of digits that a Double keeps.
const DOUBLE_DIGITS: i32 = 15;
const TICKS_PER_SECOND: i64 = 10_000_000;
const TICKS_PER_DAY: i64 = 86_400 * TICKS_PER_SECOND;
/// The Julian day of 1970-01-01.
const JULIAN_1970: i64 = 2_440_588;

/// A file whose schema was found to be readable.
pub(super) struct Source {
    file: File,
    reader: SerializedFileReader<File>,
    columns: Vec<Column>,
    partition_key: Template,
    row_key: Template,
}

/// A column at the root of the schema.
struct Column {
    name: String,
    /// The number among the leaves of the schema.
    leaf: usize,
    /// The reason is given for a column that cannot be read.
    kind: Result<Kind, String>,
    is_property: bool,
    in_key: bool,
    /// Whether this column has the types of another one.
    is_type: bool,
    /// The index in the columns of the column with the types of the values.
    types: Option<usize>,
}

/// How the values of a column are converted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Plain,
    /// An unsigned 32-bit or 64-bit integer.
    Unsigned,
    Text,
    Guid,
    Days,
    Time(TimeUnit),
    Decimal {
        precision: i32,
        scale: i32,
    },
}

/// A value of a row.
#[derive(Clone, Debug)]
enum Cell {
    Null,
    Value(ValueRef<'static>),
    Text(ByteArray),
    Bytes(ByteArray),
    /// The reason why there is no value.
    Bad(String),
}

/// A column of the current row group.
struct Reading {
    reader: ColumnReader,
    pages: Pages,
    is_optional: bool,
}

impl Source {
    /// Reads the schema. Errors name the file `input`.
    pub(super) fn open(file: File, choices: &Choices, input: &str) -> Outcome<Self> {
        let failed = |error: io::Error| unreadable(input, &error);
        check_footer(&file).map_err(failed)?;
        let again = file.try_clone().map_err(failed)?;
        let reader = quietly(|| SerializedFileReader::new(again)).map_err(failed)?;
        let schema = reader.metadata().file_metadata().schema_descr_ptr();
        let fields = schema.root_schema().get_fields();
        let names: Vec<_> = fields.iter().map(|field| field.name().to_owned()).collect();
        let mut sorted: Vec<_> = names.iter().collect();
        sorted.sort_unstable();
        if let Some([name, _]) = sorted.windows(2).find(|pair| pair.first() == pair.last()) {
            return Err(Failure::Other(format!("{input} has the column '{name}' twice")));
        }
        let columns = columns_of(fields, schema.columns(), &names);
        let mut columns = columns.map_err(failed)?;
        let skipped = choices.skip.iter().try_for_each(|name| find_column(&names, name).map(drop));
        skipped.map_err(|problem| usage(format!("--skip: {problem}"), &names))?;
        let mut template = |part| template(choices, part, &names, &mut columns);
        let partition_key = template(KeyPart::PartitionKey)?;
        let row_key = template(KeyPart::RowKey)?;
        choose(&mut columns, choices)?;
        if !columns.iter().any(Column::is_read) {
            return Err(Failure::Other(format!("{input}: no column would be read")));
        }
        Ok(Self { file, reader, columns, partition_key, row_key })
    }

    /// Returns the number of rows that the file claims to have.
    pub(super) fn rows(&self) -> u64 {
        self.reader.metadata().file_metadata().num_rows().try_into().unwrap_or(0)
    }

    /// Passes each row to `push`, with its number from 1, until `push` returns false.
    pub(super) fn parse(
        &self,
        mut push: impl FnMut(u64, Result<Entity>) -> bool,
    ) -> io::Result<()> {
        let mut encoder = EntityEncoder::default();
        let mut line = 0;
        for number in 0..self.reader.num_row_groups() {
            let group = self.reader.metadata().row_group(number);
            let mut readings = self.readings(group, number)?;
            let mut left = u64::try_from(group.num_rows()).unwrap_or(0);
            while left > 0 {
                let rows = batch_rows(&mut readings, left);
                let cells = self.read_batch(&mut readings, rows, number)?;
                for row in 0..usize::try_from(rows).unwrap_or(0) {
                    line += 1;
                    if !push(line, self.entity(&cells, row, &mut encoder)) {
                        return Ok(());
                    }
                }
                left -= rows;
            }
            let rest = |reading: &Reading| reading.pages.rows.iter().any(|rows| *rows > 0);
            let longer = |(_, reading): &(_, Option<Reading>)| reading.as_ref().is_some_and(rest);
            if let Some((column, _)) = self.columns.iter().zip(readings).find(longer) {
                let problem = format!("it has more rows than row group {number}");
                return Err(column.failed(&invalid(problem)));
            }
        }
        Ok(())
    }

    /// Opens the columns of a row group.
    fn readings(
        &self,
        group: &RowGroupMetaData,
        number: usize,
    ) -> io::Result<Vec<Option<Reading>>> {
        let mut readings = Vec::with_capacity(self.columns.len());
        let mut bytes = 0u64;
        for column in &self.columns {
            if !column.is_read() {
                readings.push(None);
                continue;
            }
            let reading = self.reading(group, column).map_err(|error| column.failed(&error))?;
            bytes = bytes.saturating_add(reading.pages.bytes);
            readings.push(Some(reading));
        }
        if bytes > MEMORY_MAX {
            return Err(invalid(format!(
                "row group {number} needs {} MB at once, more than {} MB; write it with smaller \
                 pages, or leave out columns with --skip",
                bytes >> 20,
                MEMORY_MAX >> 20
            )));
        }
        Ok(readings)
    }

    fn reading(&self, group: &RowGroupMetaData, column: &Column) -> io::Result<Reading> {
        let (chunk, start, len) = quietly(|| {
            let chunk = group.columns().get(column.leaf).ok_or(ParquetError::EOF(String::new()))?;
            let (start, len) = chunk.byte_range();
            Ok((chunk, start, len))
        })?;
        let codec = chunk.compression();
        use Compression::{SNAPPY, UNCOMPRESSED, ZSTD};
        if !matches!(codec, UNCOMPRESSED | SNAPPY | ZSTD(_)) {
            let name = codec.to_string();
            let name = name.split('(').next().unwrap_or_default();
            let problem = format!(
                "its pages are compressed by {name}, which this build does not read; write them \
                 with Snappy"
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
        }
        let pages = pages(&self.file, start, len)?;
        let descr = chunk.column_descr_ptr();
        let is_optional = descr.max_def_level() > 0;
        let file = Arc::new(self.file.try_clone()?);
        let rows = usize::try_from(group.num_rows()).unwrap_or(0);
        let reader = quietly(|| {
            let pages = SerializedPageReader::new(file, chunk, rows, None)?;
            Ok(get_column_reader(descr, Box::new(pages)))
        })?;
        Ok(Reading { reader, pages, is_optional })
    }

    /// Reads the next rows of each column.
    fn read_batch(
        &self,
        readings: &mut [Option<Reading>],
        rows: u64,
        group: usize,
    ) -> io::Result<Vec<Vec<Cell>>> {
        let mut batch = Vec::with_capacity(readings.len());
        for (column, reading) in self.columns.iter().zip(readings) {
            let Some(reading) = reading else {
                batch.push(Vec::new());
                continue;
            };
            let has_rows = reading.pages.rows.front().is_some_and(|front| *front >= rows);
            let cells = match column.kind {
                Ok(kind) if has_rows => quietly(|| reading.read(rows, kind)),
                _ => Err(invalid(format!("it ends early in row group {group}"))),
            };
            batch.push(cells.map_err(|error| column.failed(&error))?);
        }
        for (number, column) in self.columns.iter().enumerate() {
            let Some(types) = column.types.and_then(|types| batch.get(types)).cloned() else {
                continue;
            };
            for (cell, edm) in batch.get_mut(number).into_iter().flatten().zip(types) {
                *cell = typed(std::mem::replace(cell, Cell::Null), &edm);
            }
        }
        Ok(batch)
    }

    /// Builds the entity of a row.
    fn entity(
        &self,
        cells: &[Vec<Cell>],
        row: usize,
        encoder: &mut EntityEncoder,
    ) -> Result<Entity> {
        let mut properties = Vec::with_capacity(self.columns.len());
        let mut texts = vec![Vec::new(); self.columns.len()];
        for ((column, cells), text) in self.columns.iter().zip(cells).zip(&mut texts) {
            let value = match cells.get(row) {
                Some(cell) => cell.value().map_err(|problem| column.refusal(&problem))?,
                None => None,
            };
            if column.in_key {
                let value = value.ok_or_else(|| column.refusal("a part of the key is null"))?;
                put_text(text, value);
            }
            if let (true, Some(value)) = (column.is_property, value) {
                properties.push((column.name.as_str(), value));
            }
        }
        let key = |template: &Template| {
            let mut key = Vec::new();
            template.expand(&mut key, |i| texts.get(i).map(Vec::as_slice).unwrap_or_default());
            // All parts are texts.
            String::from_utf8(key).unwrap_or_default()
        };
        encoder.entity(&key(&self.partition_key), &key(&self.row_key), &mut properties)
    }
}

/// Returns a column for each field at the root of the schema. None is chosen to be read.
fn columns_of(
    fields: &[Arc<Type>],
    leaves: &[Arc<ColumnDescriptor>],
    names: &[String],
) -> io::Result<Vec<Column>> {
    let mut columns = Vec::with_capacity(fields.len());
    let at_root = |(number, leaf): (usize, _)| match ColumnDescriptor::path(leaf).parts() {
        [name] => Some((name.as_str(), number)),
        _ => None,
    };
    let numbers: BTreeMap<_, _> =
        leaves.iter().map(AsRef::as_ref).enumerate().filter_map(at_root).collect();
    for (field, name) in fields.iter().zip(names) {
        let leaf = numbers.get(name.as_str()).copied();
        columns.push(Column {
            name: name.clone(),
            leaf: leaf.unwrap_or(usize::MAX),
            kind: quietly(|| Ok(kind_of(field)))?,
            is_property: false,
            in_key: false,
            is_type: false,
            types: None,
        });
    }
    Ok(columns)
}

/// Returns the template of a key, and marks its columns.
fn template(
    choices: &Choices,
    part: KeyPart,
    names: &[String],
    columns: &mut [Column],
) -> Outcome<Template> {
    let used = RefCell::new(Vec::<usize>::new());
    let find = |name: &str| {
        let found = find_column(names, name);
        used.borrow_mut().extend(&found);
        found
    };
    let template = key_template(choices, part, names, find)?;
    for number in used.into_inner() {
        columns.get_mut(number).into_iter().for_each(|column| column.in_key = true);
    }
    Ok(template)
}

/// Chooses the columns that are read, and refuses those that cannot be.
fn choose(columns: &mut [Column], choices: &Choices) -> Outcome {
    let skipped = |name: &String| choices.skip.contains(name);
    let texts: Vec<_> =
        columns.iter().map(|c| (c.name.clone(), c.kind == Ok(Kind::Text))).collect();
    for number in 0..columns.len() {
        let Some(column) = columns.get_mut(number) else { break };
        if skipped(&column.name) || SYSTEM_PROPERTIES.contains(&column.name.as_str()) {
            continue;
        }
        let name = column.name.strip_suffix("@type");
        let value_of = |of: &str| texts.iter().position(|(name, text)| name == of && *text);
        if let (Some(values), Ok(Kind::Text)) = (name.and_then(value_of), &column.kind) {
            column.is_type = !name.is_some_and(|name| choices.skip.iter().any(|skip| skip == name));
            columns.get_mut(values).into_iter().for_each(|values| values.types = Some(number));
            continue;
        }
        column.is_property = true;
        check_property_name(&column.name).map_err(|error| column.unfit(error.message()))?;
    }
    for column in columns.iter().filter(|column| column.is_read()) {
        if let Err(problem) = &column.kind {
            return Err(column.unfit(problem));
        }
    }
    Ok(())
}

/// Returns how the values of a field are converted, or the reason why they cannot be.
fn kind_of(field: &Type) -> Result<Kind, String> {
    let info = field.get_basic_info();
    if field.is_group() || info.repetition() == Repetition::REPEATED {
        return Err("it is a list, or has columns of its own".into());
    }
    let (logical, converted) = (info.logical_type_ref(), info.converted_type());
    let is_text = matches!(
        (logical, converted),
        (Some(LogicalType::String | LogicalType::Enum | LogicalType::Json), _)
            | (_, ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON)
    );
    Ok(match (field.get_physical_type(), logical, converted) {
        (_, Some(LogicalType::Decimal(_)), _) | (_, _, ConvertedType::DECIMAL) => {
            let (precision, scale) = (field.get_precision(), field.get_scale());
            if !(0..=DECIMAL_SCALE_MAX).contains(&scale) {
                return Err(format!("it is a decimal with {scale} digits after the point"));
            }
            Kind::Decimal { precision, scale }
        }
        (_, Some(LogicalType::Time(_)), _)
        | (_, _, ConvertedType::TIME_MILLIS | ConvertedType::TIME_MICROS) => {
            return Err("it is a time of day".into());
        }
        (_, Some(LogicalType::Float16), _) => return Err("its numbers have 16 bits".into()),
        (_, _, ConvertedType::INTERVAL) => return Err("it is an interval".into()),
        (Physical::INT64, Some(LogicalType::Timestamp(time)), _) => Kind::Time(time.unit),
        (Physical::INT64, _, ConvertedType::TIMESTAMP_MILLIS) => Kind::Time(TimeUnit::MILLIS),
        (Physical::INT64, _, ConvertedType::TIMESTAMP_MICROS) => Kind::Time(TimeUnit::MICROS),
        (Physical::INT32, Some(LogicalType::Date), _)
        | (Physical::INT32, _, ConvertedType::DATE) => Kind::Days,
        (Physical::INT32 | Physical::INT64, Some(LogicalType::Integer(int)), _)
            if !int.is_signed && int.bit_width >= 32 =>
        {
            Kind::Unsigned
        }
        (_, _, ConvertedType::UINT_32 | ConvertedType::UINT_64) => Kind::Unsigned,
        (Physical::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Uuid), _) => Kind::Guid,
        (Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY, ..) if is_text => Kind::Text,
        _ => Kind::Plain,
    })
}

/// Returns the number of rows that every column has in its current page; 0 if one has ended.
fn batch_rows(readings: &mut [Option<Reading>], left: u64) -> u64 {
    let mut rows = left.min(BATCH_ROWS);
    for reading in readings.iter_mut().flatten() {
        while reading.pages.rows.front() == Some(&0) {
            reading.pages.rows.pop_front();
        }
        rows = rows.min(reading.pages.rows.front().copied().unwrap_or(0));
    }
    rows
}

impl Column {
    fn is_read(&self) -> bool {
        self.is_property || self.in_key || self.is_type
    }

    fn failed(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("column '{}': {error}", self.name))
    }

    fn unfit(&self, problem: &str) -> Failure {
        let name = &self.name;
        Failure::Other(format!(
            "column '{name}' cannot be a property: {problem}\n  try: leave it out with --skip {}",
            quoted(name)
        ))
    }

    fn refusal(&self, problem: &str) -> Error {
        Error::refused_with(Code::InvalidInput, format!("column '{}': {problem}", self.name))
    }
}

impl Reading {
    /// Reads the next rows. They must be in the current page.
    fn read(&mut self, rows: u64, kind: Kind) -> Result<Vec<Cell>, ParquetError> {
        if let Some(front) = self.pages.rows.front_mut() {
            *front -= rows;
        }
        let rows = usize::try_from(rows)?;
        let optional = self.is_optional;
        match &mut self.reader {
            ColumnReader::BoolColumnReader(reader) => {
                cells(reader, rows, optional, |value| Cell::Value(ValueRef::Boolean(value)))
            }
            ColumnReader::Int32ColumnReader(reader) => {
                cells(reader, rows, optional, |value| of_i32(value, kind))
            }
            ColumnReader::Int64ColumnReader(reader) => {
                cells(reader, rows, optional, |value| of_i64(value, kind))
            }
            ColumnReader::Int96ColumnReader(reader) => {
                cells(reader, rows, optional, |value| of_i96(&value))
            }
            ColumnReader::FloatColumnReader(reader) => {
                cells(reader, rows, optional, |value| Cell::Value(ValueRef::Double(value.into())))
            }
            ColumnReader::DoubleColumnReader(reader) => {
                cells(reader, rows, optional, |value| Cell::Value(ValueRef::Double(value)))
            }
            ColumnReader::ByteArrayColumnReader(reader) => {
                cells(reader, rows, optional, |value| of_bytes(value, kind))
            }
            ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                cells(reader, rows, optional, |value| of_bytes(value.into(), kind))
            }
        }
    }
}

fn cells<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    optional: bool,
    cell: impl Fn(T::T) -> Cell,
) -> Result<Vec<Cell>, ParquetError> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let (read, ..) = reader.read_records(rows, Some(&mut levels), None, &mut values)?;
    if !optional {
        levels = vec![1; values.len()];
    }
    if read != rows || levels.len() != rows {
        return Err(ParquetError::EOF(format!("a page has {read} rows instead of {rows}")));
    }
    let mut values = values.into_iter();
    Ok(levels
        .into_iter()
        .map(|level| if level == 0 { None } else { values.next() }.map_or(Cell::Null, &cell))
        .collect())
}

fn of_i32(value: i32, kind: Kind) -> Cell {
    match kind {
        Kind::Unsigned => Cell::Value(ValueRef::Int64(value.cast_unsigned().into())),
        Kind::Days => of_time(i64::from(value).checked_mul(TICKS_PER_DAY)),
        Kind::Decimal { precision, scale } => of_decimal(value.into(), precision, scale),
        _ => Cell::Value(ValueRef::Int32(value)),
    }
}

fn of_i64(value: i64, kind: Kind) -> Cell {
    match kind {
        Kind::Unsigned if value < 0 => {
            Cell::Bad(format!("{} exceeds Int64", value.cast_unsigned()))
        }
        Kind::Time(TimeUnit::MILLIS) => of_time(value.checked_mul(TICKS_PER_SECOND / 1000)),
        Kind::Time(TimeUnit::MICROS) => of_time(value.checked_mul(TICKS_PER_SECOND / 1_000_000)),
        // A DateTime has ticks of 100 ns; the time is rounded down, as that of a longer text is.
        Kind::Time(TimeUnit::NANOS) => of_time(Some(value.div_euclid(100))),
        Kind::Decimal { precision, scale } => of_decimal(value.into(), precision, scale),
        _ => Cell::Value(ValueRef::Int64(value)),
    }
}

/// Converts an old form of a time: nanoseconds of a day, and the Julian day.
fn of_i96(value: &Int96) -> Cell {
    let [low, high, day] = *value.data() else { return Cell::Bad("it is no time".into()) };
    let nanos = (u64::from(high) << 32 | u64::from(low)).cast_signed();
    let days = (i64::from(day) - JULIAN_1970).checked_mul(TICKS_PER_DAY);
    of_time(days.and_then(|ticks| ticks.checked_add(nanos.div_euclid(100))))
}

/// Converts ticks since 1970.
fn of_time(ticks: Option<i64>) -> Cell {
    let ticks = ticks.and_then(|ticks| ticks.checked_add(TICKS_TO_UNIX_EPOCH.cast_signed()));
    match ticks.and_then(|ticks| DateTime::from_ticks(ticks.try_into().ok()?)) {
        Some(time) => Cell::Value(ValueRef::DateTime(time)),
        None => Cell::Bad("the time is outside of the years 1601 to 9999".into()),
    }
}

fn of_bytes(value: ByteArray, kind: Kind) -> Cell {
    let bytes = value.data();
    match kind {
        Kind::Text if std::str::from_utf8(bytes).is_ok() => Cell::Text(value),
        Kind::Text => Cell::Bad("the text is not UTF-8".into()),
        Kind::Guid => match bytes.try_into() {
            Ok(bytes) => Cell::Value(ValueRef::Guid(Guid::from_bytes(bytes))),
            Err(_) => Cell::Bad(format!("a Guid of {} bytes", bytes.len())),
        },
        Kind::Decimal { precision, scale } if bytes.len() <= DECIMAL_BYTES => {
            let negative = bytes.first().is_some_and(|byte| byte.cast_signed() < 0);
            let unscaled = bytes.iter().fold(if negative { -1 } else { 0 }, |value: i128, byte| {
                value << 8 | i128::from(*byte)
            });
            of_decimal(unscaled, precision, scale)
        }
        Kind::Decimal { .. } => Cell::Bad(format!("a decimal of {} bytes", bytes.len())),
        _ => Cell::Bytes(value),
    }
}

/// Converts a decimal to a Double if that has its digits, else to a text.
fn of_decimal(unscaled: i128, precision: i32, scale: i32) -> Cell {
    let (sign, scale) = (if unscaled < 0 { "-" } else { "" }, usize::try_from(scale).unwrap_or(0));
    let digits = format!("{:0width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let point = if scale == 0 { "" } else { "." };
    let text = format!("{sign}{whole}{point}{fraction}");
    match text.parse() {
        Ok(number) if (1..=DOUBLE_DIGITS).contains(&precision) => {
            Cell::Value(ValueRef::Double(number))
        }
        _ => Cell::Text(text.into_bytes().into()),
    }
}

/// Converts a text to a value of the type with the name `edm`.
fn typed(cell: Cell, edm: &Cell) -> Cell {
    let Cell::Text(text) = cell else { return cell };
    let name = match edm.value() {
        Ok(Some(ValueRef::String(name))) => name,
        Ok(_) => return Cell::Text(text),
        Err(problem) => return Cell::Bad(problem),
    };
    let bytes = text.data();
    let value = match EdmType::from_name(name) {
        Some(EdmType::String) => return Cell::Text(text),
        Some(EdmType::Binary) => match BASE64.decode(bytes) {
            Ok(bytes) => return Cell::Bytes(bytes.into()),
            Err(_) => None,
        },
        Some(EdmType::Double) => {
            let number = std::str::from_utf8(bytes).ok().and_then(double::parse);
            number.map(ValueRef::Double)
        }
        Some(edm) => infer::value(bytes, edm).and_then(owned),
        None => None,
    };
    value.map_or_else(
        || {
            let shown: String = String::from_utf8_lossy(bytes).chars().take(60).collect();
            Cell::Bad(format!("'{shown}' is not of type {name}"))
        },
        Cell::Value,
    )
}

/// Returns a value that borrows nothing.
fn owned(value: ValueRef<'_>) -> Option<ValueRef<'static>> {
    Some(match value {
        ValueRef::String(_) | ValueRef::Binary(_) => return None,
        ValueRef::Boolean(value) => ValueRef::Boolean(value),
        ValueRef::Int32(value) => ValueRef::Int32(value),
        ValueRef::Int64(value) => ValueRef::Int64(value),
        ValueRef::Double(value) => ValueRef::Double(value),
        ValueRef::DateTime(value) => ValueRef::DateTime(value),
        ValueRef::Guid(value) => ValueRef::Guid(value),
    })
}

impl Cell {
    fn value(&self) -> Result<Option<ValueRef<'_>>, String> {
        Ok(match self {
            Cell::Null => None,
            Cell::Value(value) => Some(*value),
            Cell::Text(text) => Some(ValueRef::String(
                std::str::from_utf8(text.data()).map_err(|_| "the text is not UTF-8")?,
            )),
            Cell::Bytes(bytes) => Some(ValueRef::Binary(bytes.data())),
            Cell::Bad(problem) => return Err(problem.clone()),
        })
    }
}

fn invalid(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(test)]
#[path = "parquet_tests.rs"]
mod tests;
