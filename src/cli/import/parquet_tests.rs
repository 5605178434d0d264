//! Reads files that this crate or the crate `parquet` wrote, whole and damaged.

use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;

use parquet::data_type::{
    ByteArrayType, DoubleType, FixedLenByteArrayType, Int32Type, Int64Type, Int96Type,
};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::*;
use crate::cli::parquet::write::write_entities;
use crate::json::odata::{Metadata, entity_text};
use crate::model::Value;
use crate::rng::Rng;

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    file
}

fn written(entities: &[Entity]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_entities(&mut bytes, || Ok(entities.iter().cloned().map(Ok))).unwrap();
    bytes
}

/// Returns each row, or the text of its error.
fn read(bytes: &[u8], choices: &Choices) -> Result<Vec<Result<Entity, String>>, String> {
    let text = |failure: Failure| failure.message().1.unwrap_or_default();
    let source = Source::open(file(bytes), choices, "the input").map_err(text)?;
    let mut rows = Vec::new();
    let parsed = source.parse(|line, row| {
        assert_eq!(line, rows.len() as u64 + 1);
        rows.push(row.map_err(|error| error.to_string()));
        rows.len() < 20_000
    });
    parsed.map_err(|error| error.to_string())?;
    Ok(rows)
}

/// Returns the texts of entities, which tell types, -0.0 and NaN apart.
fn texts<'e>(entities: impl IntoIterator<Item = &'e Entity>) -> Vec<String> {
    entities.into_iter().map(|entity| entity_text(entity, Metadata::TYPES)).collect()
}

#[track_caller]
fn round_trip(entities: &[Entity]) {
    let rows = read(&written(entities), &Choices::default()).unwrap();
    let rows: Vec<_> = rows.into_iter().map(Result::unwrap).collect();
    assert_eq!(texts(&rows), texts(entities));
}

const DOUBLES: [f64; 8] =
    [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, 5e-324, 1e20];

fn text(rng: &mut Rng) -> String {
    let len = rng.below(12);
    (0..len).map(|_| *rng.pick(&['a', 'ß', '日', '😀', '\n', '\u{0}', '"'])).collect()
}

/// The ticks of the years 1700 to 2249, whose nanoseconds fit 64 bits.
const NEAR: Range<u64> = 31_242_240_000_000_000..204_800_000_000_000_000;
const ALL: Range<u64> = 0..2_650_467_744_000_000_000;

fn time(rng: &mut Rng, within: Range<u64>, multiple: u64) -> DateTime {
    let ticks = within.start + rng.below(within.end - within.start);
    DateTime::from_ticks(ticks / multiple * multiple).unwrap()
}

fn value(rng: &mut Rng, edm: EdmType) -> Value {
    match edm {
        EdmType::String => Value::String(text(rng)),
        EdmType::Binary => Value::Binary(text(rng).into_bytes()),
        EdmType::Boolean => Value::Boolean(rng.below(2) == 0),
        EdmType::Int32 => Value::Int32(*rng.pick(&[0, -1, i32::MIN, i32::MAX, 7])),
        EdmType::Int64 => Value::Int64(*rng.pick(&[0, -1, i64::MIN, i64::MAX, 7])),
        EdmType::Double => Value::Double(*rng.pick(&DOUBLES)),
        EdmType::DateTime => Value::DateTime(time(rng, ALL, 1)),
        EdmType::Guid => {
            Value::Guid(Guid::from_bytes(std::array::from_fn(|_| rng.below(256) as u8)))
        }
    }
}

/// Generates entities in which some properties have one type and others have several.
fn entities(rng: &mut Rng) -> Vec<Entity> {
    let count = rng.below(1_500);
    let row = |number: u64, rng: &mut Rng| {
        let mut entity = Entity::new(*rng.pick(&["", "a", "日", "😀 b"]), format!("{number}"));
        for edm in EdmType::ALL {
            if rng.below(3) > 0 {
                entity.set(edm.name().replace('.', ""), value(rng, edm));
            }
        }
        if rng.below(2) == 0 {
            let edm = *rng.pick(&EdmType::ALL);
            entity.set("Mixed", value(rng, edm));
        }
        entity.set("Micros", time(rng, ALL, 10)).set("Ticks", time(rng, NEAR, 1));
        entity
    };
    (0..count).map(|number| row(number, rng)).collect()
}

#[test]
fn generated_entities_of_all_types_round_trip() {
    let mut rng = Rng::from_seed(7);
    round_trip(&[]);
    for _ in 0..6 {
        round_trip(&entities(&mut rng));
    }
}

#[test]
fn times_round_trip_in_three_forms() {
    let ticks = |ticks: u64| DateTime::from_ticks(ticks).unwrap();
    let year_2000 = 125_911_584_000_000_000;
    let forms = [
        (vec![DateTime::MIN, ticks(DateTime::MAX.ticks() - 9)], "TIMESTAMP(MICROS,true)"),
        (vec![ticks(year_2000), ticks(year_2000 + 1)], "TIMESTAMP(NANOS,true)"),
        (vec![DateTime::MIN, DateTime::MAX], "BYTE_ARRAY T@type (STRING)"),
    ];
    for (times, form) in forms {
        let entity = |(i, time)| Entity::new("p", format!("{i}")).with("T", time);
        let entities: Vec<_> = (0..2).zip(times).map(entity).collect();
        round_trip(&entities);
        let reader = SerializedFileReader::new(file(&written(&entities))).unwrap();
        let mut schema = Vec::new();
        let root = reader.metadata().file_metadata().schema();
        parquet::schema::printer::print_schema(&mut schema, root);
        let schema = String::from_utf8(schema).unwrap();
        assert!(schema.contains(form), "{schema}");
    }
}

/// Writes a row group of one row with the required columns of `schema`.
fn foreign(
    schema: &str,
    put: impl Fn(usize, &mut parquet::file::writer::SerializedColumnWriter<'_>),
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut number = 0;
    while let Some(mut column) = group.next_column().unwrap() {
        put(number, &mut column);
        column.close().unwrap();
        number += 1;
    }
    group.close().unwrap();
    writer.close().unwrap();
    bytes
}

fn keyed() -> Choices {
    Choices {
        partition_key: Some("all".into()),
        row_key: Some("{n}-{day}".into()),
        ..Choices::default()
    }
}

#[test]
fn types_of_other_programs_are_converted() {
    let schema = "message m {
        required int32 n (INTEGER(32,false)); required int32 day (DATE);
        required int64 price (DECIMAL(9,2)); required fixed_len_byte_array(9) big (DECIMAL(20,3));
        required int96 old; required int64 ms (TIMESTAMP(MILLIS,false)); required binary raw;
        required int64 PartitionKey; }";
    let mut old = Int96::new();
    old.set_data(1_000, 0, 2_440_589);
    let bytes = foreign(schema, |number, column| {
        match number {
            0 => column.typed::<Int32Type>().write_batch(&[-1], None, None),
            1 => column.typed::<Int32Type>().write_batch(&[-1], None, None),
            2 => column.typed::<Int64Type>().write_batch(&[-5], None, None),
            3 => {
                let value = vec![255, 255, 255, 255, 255, 255, 255, 255, 254];
                column.typed::<FixedLenByteArrayType>().write_batch(&[value.into()], None, None)
            }
            4 => column.typed::<Int96Type>().write_batch(&[old], None, None),
            6 => column.typed::<ByteArrayType>().write_batch(&["é".into()], None, None),
            _ => column.typed::<Int64Type>().write_batch(&[1_500], None, None),
        }
        .unwrap();
    });
    let rows = read(&bytes, &keyed()).unwrap();
    let json = texts([rows[0].as_ref().unwrap()]);
    let expected = Entity::new("all", "4294967295-1969-12-31T00:00:00Z")
        .with("n", 4_294_967_295_i64)
        .with("day", "1969-12-31T00:00:00Z".parse::<DateTime>().unwrap())
        .with("price", -0.05)
        .with("big", "-0.002")
        .with("old", "1970-01-02T00:00:00.000001Z".parse::<DateTime>().unwrap())
        .with("ms", "1970-01-01T00:00:01.5Z".parse::<DateTime>().unwrap())
        .with("raw", "é".as_bytes().to_vec());
    assert_eq!(json, texts([&expected]));
}

#[test]
fn columns_that_cannot_be_properties_are_named() {
    let schema = "message m { required double n; required double day;
        optional group tags (LIST) { repeated group list { optional double element; } } }";
    let bytes = foreign(schema, |number, column| {
        let levels: Option<&[i16]> = if number == 2 { Some(&[0]) } else { None };
        let values: &[f64] = if number == 2 { &[] } else { &[0.5] };
        column.typed::<DoubleType>().write_batch(values, levels, levels).unwrap();
    });
    let refused = |choices: &Choices, expected: &str| {
        let text = read(&bytes, choices).unwrap_err();
        assert!(text.contains(expected), "{text}");
    };
    refused(&keyed(), "column 'tags' cannot be a property: it is a list");
    refused(&Choices::default(), "--partition-key is needed");
    refused(&Choices { skip: vec!["tag".into()], ..keyed() }, "--skip: there is no column 'tag'");
    refused(&Choices { row_key: Some("{x}".into()), ..keyed() }, "no column 'x'");
    let rows = read(&bytes, &Choices { skip: vec!["tags".into()], ..keyed() }).unwrap();
    let expected = Entity::new("all", "0.5-0.5").with("day", 0.5).with("n", 0.5);
    assert_eq!(rows, [Ok(expected)]);
}

#[test]
fn a_null_in_a_key_is_refused_by_row() {
    let entities = [Entity::new("p", "1").with("A", 1), Entity::new("p", "2")];
    let choices = Choices { row_key: Some("{A}".into()), ..Choices::default() };
    let rows = read(&written(&entities), &choices).unwrap();
    assert_eq!(rows[0], Ok(Entity::new("p", "1").with("A", 1)));
    assert!(rows[1].as_ref().unwrap_err().contains("column 'A': a part of the key is null"));
}

/// Whatever is in a file, it is read or refused: no panic is printed, and no claim of a size is
/// believed.
#[test]
fn mutated_files_are_read_or_refused() {
    let mut rng = Rng::from_seed(3);
    let entities = entities(&mut rng);
    let small = &entities[..entities.len().min(40)];
    let good = written(small);
    // Most of the metadata is at the end.
    let footer = good.len() - good.len().min(1_200);
    let (mut read_whole, mut refused) = (0, 0);
    for round in 0..2_000 {
        let mut bytes = good.clone();
        for _ in 0..1 + rng.below(3) {
            let from = if rng.below(2) == 0 { 0 } else { footer };
            let at = from + rng.below((bytes.len() - from) as u64) as usize;
            match rng.below(4) {
                0 => bytes[at] ^= 1 << rng.below(8),
                1 => bytes[at] = rng.below(256) as u8,
                2 => bytes[at] = 0xff,
                _ => drop(bytes.remove(at)),
            }
        }
        if round % 50 == 0 {
            bytes.truncate(rng.below(bytes.len() as u64) as usize);
        }
        match read(&bytes, &Choices::default()) {
            Ok(_) => read_whole += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(read_whole > 50 && refused > 500, "{read_whole} {refused}");
}
