//! Writes entities as a Parquet file: a column for each property, and a type that holds all its
//! values. A first reading of the table finds the types.
//!
//! Invariant: memory is bounded by a row group of [`GROUP_BYTES`], and by the names of all columns.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FixedLenByteArray,
    FixedLenByteArrayType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};

use super::guard::{NODES_MAX, into_io};
use crate::cli::failure::{Failure, Outcome};
use crate::clock::TICKS_TO_UNIX_EPOCH;
use crate::error::Result;
use crate::json::odata::put_text;
use crate::model::{DateTime, EdmType, Entity, ValueRef};

/// The size of the values of a row group, which is kept in memory.
const GROUP_BYTES: usize = 32 << 20;
/// The number of values after which the size of a page is checked. A value has up to 96 KiB.
const BATCH_VALUES: usize = 64;
/// The memory of a value, apart from its text or bytes.
const VALUE_BYTES: usize = 40;
const TICKS_PER_MICRO: i64 = 10;
const NANOS_PER_TICK: i64 = 100;

/// The values of a property in the whole table.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// A bit for each type of a value.
    types: u8,
    /// Whether a time is no multiple of a microsecond.
    ticks: bool,
    /// Whether a time in nanoseconds exceeds 64 bits.
    far: bool,
}

/// The type of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    One(EdmType),
    Nanos,
    /// Texts of values; the next column holds the names of their types.
    Texts,
    /// The names of types.
    Types,
}

enum Values {
    Boolean(Vec<bool>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Double(Vec<f64>),
    Bytes(Vec<ByteArray>),
    Fixed(Vec<FixedLenByteArray>),
}

/// A column of the current row group.
struct Column {
    name: String,
    kind: Kind,
    is_key: bool,
    /// For each row 1 if it has a value, else 0. Zeros at the end are added before writing.
    levels: Vec<i16>,
    values: Values,
}

/// Collects the rows of a row group.
struct Group {
    columns: Vec<Column>,
    /// The number of the column of each property.
    numbers: BTreeMap<String, usize>,
    rows: usize,
    bytes: usize,
}

/// Writes the entities. `entities` is called twice.
pub(in crate::cli) fn write_entities<I: Iterator<Item = Result<Entity>>>(
    output: impl Write + Send,
    entities: impl Fn() -> Result<I>,
) -> Outcome {
    let mut group = Group::new(&seen(entities()?)?)?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(format!("rowstone version {}", env!("CARGO_PKG_VERSION")))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_write_batch_size(BATCH_VALUES)
        .build();
    let schema = group.schema().map_err(failed)?;
    let mut writer =
        SerializedFileWriter::new(output, schema, Arc::new(properties)).map_err(failed)?;
    for entity in entities()? {
        group.push(&entity?)?;
        if group.bytes >= GROUP_BYTES {
            group.write(&mut writer).map_err(failed)?;
        }
    }
    if group.rows > 0 {
        group.write(&mut writer).map_err(failed)?;
    }
    writer.close().map(drop).map_err(failed)
}

fn failed(error: ParquetError) -> Failure {
    into_io(error).into()
}

/// Finds the types of all properties.
fn seen(entities: impl Iterator<Item = Result<Entity>>) -> Result<BTreeMap<String, Seen>> {
    let mut found = BTreeMap::<String, Seen>::new();
    for entity in entities {
        for (name, value) in entity?.properties() {
            match found.get_mut(name) {
                Some(seen) => seen.add(value),
                None => found.entry(name.to_owned()).or_default().add(value),
            }
        }
    }
    Ok(found)
}

impl Seen {
    fn add(&mut self, value: ValueRef<'_>) {
        self.types |= 1 << (value.edm_type() as u8 - 1);
        if let ValueRef::DateTime(time) = value {
            let ticks = unix_ticks(time);
            self.ticks |= ticks % TICKS_PER_MICRO != 0;
            self.far |= ticks.checked_mul(NANOS_PER_TICK).is_none();
        }
    }

    fn kind(self) -> Kind {
        let mut types = EdmType::ALL.iter().filter(|edm| self.types & 1 << (**edm as u8 - 1) != 0);
        match (types.next(), types.next()) {
            (Some(EdmType::DateTime), None) if self.ticks && self.far => Kind::Texts,
            (Some(EdmType::DateTime), None) if self.ticks => Kind::Nanos,
            (Some(edm), None) => Kind::One(*edm),
            _ => Kind::Texts,
        }
    }
}

/// Returns the ticks since 1970.
fn unix_ticks(time: DateTime) -> i64 {
    // Both numbers are less than 2^62.
    time.ticks().cast_signed() - TICKS_TO_UNIX_EPOCH.cast_signed()
}

impl Group {
    fn new(seen: &BTreeMap<String, Seen>) -> Outcome<Self> {
        let text = Kind::One(EdmType::String);
        let mut columns: Vec<_> =
            ["PartitionKey", "RowKey"].map(|name| Column::new(name.into(), text, true)).into();
        let mut numbers = BTreeMap::new();
        for (name, seen) in seen {
            numbers.insert(name.clone(), columns.len());
            columns.push(Column::new(name.clone(), seen.kind(), false));
            if seen.kind() == Kind::Texts {
                columns.push(Column::new(format!("{name}@type"), Kind::Types, false));
            }
        }
        if columns.len() >= NODES_MAX {
            return Err(Failure::Other(format!(
                "the entities have {} different properties, too many for the columns of a Parquet \
                 file: export them as NDJSON",
                seen.len()
            )));
        }
        Ok(Self { columns, numbers, rows: 0, bytes: 0 })
    }

    fn schema(&self) -> Result<TypePtr, ParquetError> {
        let fields = self.columns.iter().map(|column| column.field().map(Arc::new));
        let fields = fields.collect::<Result<_, _>>()?;
        Type::group_type_builder("entity").with_fields(fields).build().map(Arc::new)
    }

    fn push(&mut self, entity: &Entity) -> Outcome {
        let keys = [entity.partition_key(), entity.row_key()];
        for (column, key) in self.columns.iter_mut().zip(keys) {
            self.bytes += column.push(self.rows, ValueRef::String(key))?;
        }
        for (name, value) in entity.properties() {
            let number = self.numbers.get(name).copied().unwrap_or(usize::MAX);
            let columns = self.columns.get_mut(number..).unwrap_or_default();
            let Some((column, rest)) = columns.split_first_mut() else { return Err(changed(name)) };
            self.bytes += column.push(self.rows, value)?;
            if let (Kind::Texts, Some(types)) = (column.kind, rest.first_mut()) {
                let edm = ValueRef::String(value.edm_type().name());
                self.bytes += types.push(self.rows, edm)?;
            }
        }
        self.rows += 1;
        self.bytes += self.columns.len() * size_of::<i16>();
        Ok(())
    }

    /// Writes the rows, and removes them.
    fn write(
        &mut self,
        writer: &mut SerializedFileWriter<impl Write + Send>,
    ) -> Result<(), ParquetError> {
        let mut group = writer.next_row_group()?;
        for column in &mut self.columns {
            column.levels.resize(self.rows, 0);
            let mut out = group.next_column()?.ok_or_else(|| {
                ParquetError::General(format!("no column '{}' in the schema", column.name))
            })?;
            column.write(&mut out)?;
            out.close()?;
        }
        (self.rows, self.bytes) = (0, 0);
        group.close().map(drop)
    }
}

/// The failure of a value that the first reading did not see.
fn changed(name: &str) -> Failure {
    let problem = format!("the table changed during the export: '{name}' has another type");
    Failure::Other(problem)
}

impl Column {
    fn new(name: String, kind: Kind, is_key: bool) -> Self {
        let values = match kind {
            Kind::One(EdmType::Boolean) => Values::Boolean(Vec::new()),
            Kind::One(EdmType::Int32) => Values::Int32(Vec::new()),
            Kind::One(EdmType::Int64 | EdmType::DateTime) | Kind::Nanos => {
                Values::Int64(Vec::new())
            }
            Kind::One(EdmType::Double) => Values::Double(Vec::new()),
            Kind::One(EdmType::Guid) => Values::Fixed(Vec::new()),
            Kind::One(EdmType::String | EdmType::Binary) | Kind::Texts | Kind::Types => {
                Values::Bytes(Vec::new())
            }
        };
        Self { name, kind, is_key, levels: Vec::new(), values }
    }

    /// Returns the node of the schema.
    fn field(&self) -> Result<Type, ParquetError> {
        let physical = match self.values {
            Values::Boolean(_) => Physical::BOOLEAN,
            Values::Int32(_) => Physical::INT32,
            Values::Int64(_) => Physical::INT64,
            Values::Double(_) => Physical::DOUBLE,
            Values::Bytes(_) => Physical::BYTE_ARRAY,
            Values::Fixed(_) => Physical::FIXED_LEN_BYTE_ARRAY,
        };
        let logical = match self.kind {
            Kind::One(EdmType::DateTime) => Some(LogicalType::timestamp(true, TimeUnit::MICROS)),
            Kind::Nanos => Some(LogicalType::timestamp(true, TimeUnit::NANOS)),
            Kind::One(EdmType::String) | Kind::Texts | Kind::Types => Some(LogicalType::String),
            Kind::One(EdmType::Guid) => Some(LogicalType::Uuid),
            Kind::One(_) => None,
        };
        let length = if physical == Physical::FIXED_LEN_BYTE_ARRAY { 16 } else { -1 };
        let repetition = if self.is_key { Repetition::REQUIRED } else { Repetition::OPTIONAL };
        Type::primitive_type_builder(&self.name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .with_length(length)
            .build()
    }

    /// Adds the value of a row, and returns its size in memory.
    fn push(&mut self, row: usize, value: ValueRef<'_>) -> Outcome<usize> {
        let mut len = 0;
        let holds_text = match self.kind {
            Kind::Texts => true,
            Kind::One(EdmType::String) | Kind::Types => value.edm_type() == EdmType::String,
            _ => false,
        };
        match (&mut self.values, value) {
            (Values::Boolean(values), ValueRef::Boolean(value)) => values.push(value),
            (Values::Int32(values), ValueRef::Int32(value)) => values.push(value),
            (Values::Double(values), ValueRef::Double(value)) => values.push(value),
            (Values::Int64(values), ValueRef::Int64(value))
                if self.kind == Kind::One(EdmType::Int64) =>
            {
                values.push(value);
            }
            (Values::Int64(values), ValueRef::DateTime(value)) => {
                let ticks = unix_ticks(value);
                let number = match self.kind {
                    Kind::Nanos => ticks.checked_mul(NANOS_PER_TICK),
                    _ if ticks % TICKS_PER_MICRO == 0 => Some(ticks / TICKS_PER_MICRO),
                    _ => None,
                };
                values.push(number.ok_or_else(|| changed(&self.name))?);
            }
            (Values::Fixed(values), ValueRef::Guid(value)) => {
                values.push(value.as_bytes().to_vec().into());
            }
            (Values::Bytes(values), ValueRef::Binary(value))
                if self.kind == Kind::One(EdmType::Binary) =>
            {
                len = value.len();
                values.push(value.into());
            }
            (Values::Bytes(values), value) if holds_text => {
                let mut text = Vec::new();
                put_text(&mut text, value);
                len = text.len();
                values.push(text.into());
            }
            _ => return Err(changed(&self.name)),
        }
        self.levels.resize(row, 0);
        self.levels.push(1);
        Ok(VALUE_BYTES + len)
    }

    fn write(&mut self, out: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let levels = std::mem::take(&mut self.levels);
        match &mut self.values {
            Values::Boolean(values) => put::<BoolType>(out, values, &levels),
            Values::Int32(values) => put::<Int32Type>(out, values, &levels),
            Values::Int64(values) => put::<Int64Type>(out, values, &levels),
            Values::Double(values) => put::<DoubleType>(out, values, &levels),
            Values::Bytes(values) => put::<ByteArrayType>(out, values, &levels),
            Values::Fixed(values) => put::<FixedLenByteArrayType>(out, values, &levels),
        }
    }
}

fn put<T: DataType>(
    out: &mut SerializedColumnWriter<'_>,
    values: &mut Vec<T::T>,
    levels: &[i16],
) -> Result<(), ParquetError> {
    out.typed::<T>().write_batch(values, Some(levels), None)?;
    values.clear();
    Ok(())
}
