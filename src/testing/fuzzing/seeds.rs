//! Builds the initial corpora of the fuzz targets: a few well-formed structures of each kind, made
//! by the encoders.

use super::made::made;
use crate::codec::HashSeed;
use crate::format::Kind;
use crate::format::block::{BlockKind, BlockPlace, Packing, Sealer};
use crate::format::current::Current;
use crate::format::edit::{CleanClose, Identity, LogMeta, Placement, RangeMeta, RangeTombstone};
use crate::format::edit::{ReferenceMeta, VersionEdit};
use crate::format::field::Content;
use crate::format::file_meta::{FileMeta, Section};
use crate::format::generation::{Generation, StoredFile};
use crate::format::hash_index::LocationSplit;
use crate::format::key::user_key;
use crate::format::names::{FileId, FileNumber, RangeId, TableId};
use crate::format::record::{LogHeader, LogKind, Position};
use crate::format::row_block::RowBlockBuilder;
use crate::format::shape::encode_shape;
use crate::format::span::Span;
use crate::format::sparse_index::{Handles, SparseBuilder};
use crate::format::sst::{encode_footer, encode_header};
use crate::format::stats::SstStats;
use crate::format::wal::{Change, Close, DurableUpTo, Open, Predecessor, put_group};
use crate::format::wal::{ShapeDefinition, WalEntry};
use crate::format::zones::{self, ZoneColumn, ZoneMeta, ZoneSummary, ZoneValues};
use crate::model::{EdmType, Seq, Shape};
use crate::rng::Rng;

const FILE: FileId = FileId(0x0102_0304_0506_0708);

/// Returns initial inputs for the corpus of the target `name`.
pub fn seeds(name: &str) -> Vec<Vec<u8>> {
    let mut seeds = match name {
        "block" => vec![block(Packing::Plain), block(Packing::Zstd), columns(), row_block()],
        "csv" => texts(&CSV),
        "current" => vec![current()],
        "directory" => edits(),
        "exec" => texts(&EXEC),
        "edit" => vec![made(|out| edit().encode(out))],
        "field" | "field_set" | "file_meta" => vec![made(|out| file_meta().encode(out))],
        "filter_text" => texts(&FILTER_TEXTS),
        "generation" => vec![generation()],
        "hash_index" => vec![(0..=255).collect()],
        "json" => texts(&REQUESTS),
        "key" => {
            vec![user_key(TableId(1), "bolts", "m4x20"), user_key(TableId(7), "😀", "\u{ff5e}")]
        }
        "ndjson" => texts(&NDJSON),
        "program" => [64, 256, 1024].map(noise).to_vec(),
        "record" => vec![log_header()],
        "row" => rows(),
        "row_block" => vec![row_block()],
        "shape" => vec![made(|out| encode_shape(out, &shape()))],
        "span" => vec![
            made(|out| Span::new(b"a", Some(b"b")).encode(out)),
            made(|out| Span::new(b"", None).encode(out)),
        ],
        "sparse_index" => vec![sparse_page(), handles()],
        "sst" => vec![made(|out| encode_header(FILE, out)), footer()],
        "stats" => vec![made(|out| stats().encode(out))],
        "text" => texts(&TEXTS),
        "wal" => wal(),
        "zones" => zones(),
        _ => Vec::new(),
    };
    seeds.push(Vec::new());
    seeds
}

/// Returns random bytes, for targets that use bytes as choices.
fn noise(len: usize) -> Vec<u8> {
    let mut rng = Rng::from_seed(len as u64);
    (0..len).map(|_| rng.below(256).to_le_bytes()[0]).collect()
}

fn block(packing: Packing) -> Vec<u8> {
    let place = BlockPlace { kind: BlockKind::Rows, file: FILE, number: 0 };
    let Ok(mut sealer) = Sealer::new(packing) else { return Vec::new() };
    made(|out| sealer.seal(place, &b"rows, rows, rows and more rows ".repeat(9), out))
}

/// Returns a block of rows that is compressed by columns.
fn columns() -> Vec<u8> {
    let place = BlockPlace { kind: BlockKind::Rows, file: FILE, number: 0 };
    let Ok(mut sealer) = Sealer::new(Packing::Columns) else { return Vec::new() };
    let mut builder = RowBlockBuilder::default();
    for number in 0..50u8 {
        let key = user_key(TableId(1), "p", &format!("{number:03}"));
        let row = [1, number, 0, 0, 0, b'r', b'o', b'w'];
        builder.add(&key, Seq(9), Kind::Put, |out| out.extend_from_slice(&row));
    }
    let rows = made(|out| builder.finish(out));
    made(|out| sealer.seal_rows(place, &rows, &[5], out))
}

fn current() -> Vec<u8> {
    Current { manifest: FileNumber(3), id: FILE, synced_len: 4096 }.encode().to_vec()
}

fn generation() -> Vec<u8> {
    let mut edit = edit();
    (edit.add_logs, edit.clean_close) = (Vec::new(), None);
    let files = edit.add_files.iter();
    let files =
        files.map(|meta| StoredFile { id: meta.id, bytes: meta.bytes, checksum: 0x0102_0304 });
    let files = files.collect();
    Generation { number: 3, taken: 300, files, edit, unknown: Box::default() }.encode()
}

fn log_header() -> Vec<u8> {
    LogHeader { kind: LogKind::Wal, number: FileNumber(4), id: FILE }.encode().to_vec()
}

fn shape() -> Shape {
    Shape::new(EdmType::ALL.into_iter().map(|edm| (edm.name().into(), edm)).collect())
}

/// Returns a row that contains its own shape, and rows of the two shapes that the target knows.
fn rows() -> Vec<Vec<u8>> {
    let own = b"\x00\x01\x04\x05Stock\xb0\x04\x00\x00".to_vec();
    let flight = b"\x02\xfe\xff\xff\xff\x01\x02\x08AAN12345".to_vec();
    let mut all = vec![1, 1];
    all.extend([0; 44]);
    all.extend([1, 2, 4, 1, 2, 0xc3, 0xa9]);
    vec![own, flight, all]
}

fn row_block() -> Vec<u8> {
    let mut builder = RowBlockBuilder::default();
    for (rk, seq, kind) in [("a", 9, Kind::Put), ("a", 7, Kind::Delete), ("b", 300, Kind::Put)] {
        let key = user_key(TableId(1), "p", rk);
        builder.add(&key, Seq(seq), kind, |out| {
            if kind == Kind::Put {
                out.extend_from_slice(b"\x01row");
            }
        });
    }
    made(|out| builder.finish(out))
}

fn sparse_page() -> Vec<u8> {
    let mut builder = SparseBuilder::default();
    for separator in [&b""[..], b"abc", b"abd", b"b"] {
        builder.add(separator);
    }
    made(|out| builder.finish(out))
}

fn handles() -> Vec<u8> {
    let (blocks, pages) = ([0, 100, 300].into(), [0, 40, 80].into());
    let split = LocationSplit { slot_bits: 7 };
    made(|out| Handles { split, fanout: 128, blocks, pages }.encode(out))
}

fn sections() -> Vec<Section> {
    let section = |(at, kind): (u64, u16)| {
        let (flags, offset) = (Section::MUST_UNDERSTAND, 32 + at * 100);
        Section { kind, flags, offset, len: 100, checksum: 7 }
    };
    (0..).zip([1, 2, 3, 4, 5, 7]).map(section).collect()
}

fn footer() -> Vec<u8> {
    made(|out| {
        encode_footer(FILE, &sections(), 632, out);
    })
}

fn stats() -> SstStats {
    SstStats {
        entries: 3,
        keys: 2,
        tombstones: 1,
        raw_bytes: 99,
        seq_min: Seq(7),
        seq_max: Seq(300),
        key_min: user_key(TableId(1), "p", "a").into(),
        key_max: user_key(TableId(1), "p", "b").into(),
    }
}

fn file_meta() -> FileMeta {
    let stats = stats();
    FileMeta {
        number: FileNumber(12),
        id: FILE,
        bytes: 1000,
        seq_min: stats.seq_min,
        seq_max: stats.seq_max,
        visible_from: Seq(1),
        tombstones_applied: Seq(2),
        entries: stats.entries,
        tombstones: stats.tombstones,
        raw_bytes: stats.raw_bytes,
        key_min: stats.key_min,
        key_max: stats.key_max,
        sections: sections(),
        unknown: Box::default(),
    }
}

fn edit() -> VersionEdit {
    let identity = Identity {
        database: 1 << 100,
        incarnation: 5,
        seed: HashSeed(6),
        read_features: Vec::new(),
        write_features: Vec::new(),
        ignorable_features: vec!["zones".into()],
    };
    let (range, file) = (RangeId(1), FileNumber(12));
    let (span, clip) = (Span::new(b"a", None), Span::new(b"a", Some(b"b")));
    VersionEdit {
        identity: Some(identity),
        numbers_below: Some(FileNumber(64)),
        add_logs: vec![LogMeta { number: FileNumber(4), id: FILE }],
        remove_logs: vec![FileNumber(2)],
        flushed_seq: Some(Seq(300)),
        add_files: vec![file_meta()],
        remove_files: vec![FileNumber(8)],
        add_ranges: vec![RangeMeta { id: range, table: TableId(1), span: span.clone() }],
        remove_ranges: vec![RangeId(2)],
        add_references: vec![ReferenceMeta {
            range,
            file,
            placement: Placement::Run,
            clip,
            bytes: Some(400),
        }],
        remove_references: vec![(RangeId(2), FileNumber(8))],
        drop_tables: vec![(TableId(3), Seq(9))],
        forget_tables: vec![TableId(2)],
        add_range_tombstones: vec![RangeTombstone::drop(span, Seq(9))],
        clean_close: Some(CleanClose { log: FileNumber(4), end: 64, last_seq: Seq(300) }),
        ..VersionEdit::default()
    }
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

const TEXTS: [&str; 4] = [
    "2020-10-01T00:38:38.47506Z",
    "2024-02-29T23:59:59+02:00",
    "0f8fad5b-d9cb-469f-a165-70867728950e",
    "W/\"datetime'2022-02-01T20%3A52%3A48.011206Z'\"",
];

/// Filters that together have every kind of literal in all spellings, and every operator. Some
/// filters are malformed or must be refused.
const FILTER_TEXTS: [&str; 6] = [
    "PartitionKey eq 'bolts' and RowKey ge 'm4''x' and RowKey lt '\u{1f600}' or not Coated",
    "((1.5E+3 le Price)or(Big ne -5L))and not(Stock gt 3D or Stock lt -7 or T eq true)",
    "At ge datetime'2024-01-31T00:00:00.1234567Z' or Raw eq X'0a0b' or Raw lt binary'FF'",
    "Id eq guid'0f8fad5b-d9cb-469f-a165-70867728950e' and (A eq NaN or INF gt B or C gt -INF)",
    "startswith(RowKey, 'a') or A add 1 eq B",
    "A eq null or B gt 2147483648 or C eq 'open",
];

const REQUESTS: [&str; 5] = [
    r#"{"op":"insert","table":"T","entity":{"PartitionKey":"p","RowKey":"r","A":1}}"#,
    r#"{"op":"query","table":"T","filter":"A gt 1","select":["A"],"next":{"pk":"p","rk":"r"}}"#,
    r#"{"op":"group","table":"T","ops":[{"op":"delete","pk":"p","rk":"s","etag":"*"}]}"#,
    r#"{"PartitionKey":"p","RowKey":"\u00e9","B@odata.type":"Edm.Int64","B":"-5","D":1.5e3}"#,
    r#"{"PartitionKey":"","RowKey":"r","X":"AQL/","X@odata.type":"Edm.Binary","N":null}"#,
];

/// Inputs for the target `csv`: the first byte selects the options of the command, and the
/// remaining bytes are the CSV file.
const CSV: [&str; 5] = [
    "0PartitionKey,RowKey,A,B,C\np,r1,1,true,x\np,r2,-7,false,\"a \"\"b\"\", c\"\nq,r1,,,\n",
    "1a,b,c\n1,2020-01-01T00:00:00Z,1.5\n2,2021-02-03T04:05:06.789Z,NaN\nbad\n\"x\"y,1,2\n",
    "4a;b;RowKey\n1;2;0f8fad5b-d9cb-469f-a165-70867728950e\n1;2;\n",
    "3PartitionKey\tRowKey\tA\np\tr\tnull\np\tr\t9223372036854775807\n",
    "2a,b,c\nx,1,NA\nx,1,\"two\nlines\"\r\ny,\u{e9},5\n",
];

const NDJSON: [&str; 4] = [
    "0{\"PartitionKey\":\"p\",\"RowKey\":\"r\",\"A\":1}\n{\"PartitionKey\":\"p\",\"RowKey\":\"s\"}\n",
    "1{\"a\":\"x\",\"D\":1.5e3,\"B@odata.type\":\"Edm.Int64\",\"B\":\"-5\"}\n\n{\"a\":2}\n",
    "2{\"a\":\"p\",\"b\":1.50,\"c\":true}\r\n{\"a\":\"p\",\"b\":1.50,\"c\":true}",
    "0{\"PartitionKey\":\"\",\"RowKey\":\"r\",\"X\":\"AQL/\",\"X@odata.type\":\"Edm.Binary\",\"N\":null}\nno\n",
];

const EXEC: [&str; 3] = [
    r#"{"op":"create_table","table":"Parts"}
{"op":"insert","table":"parts","entity":{"PartitionKey":"p","RowKey":"r","A":1}}
{"op":"merge","table":"parts","entity":{"PartitionKey":"p","RowKey":"r","B":"x"},"etag":"*"}
{"op":"get","table":"parts","pk":"p","rk":"r","select":["A"]}
{"op":"query","table":"parts","filter":"PartitionKey eq 'p'","top":1}
"#,
    r#"{"op":"create_table","table":"Parts"}
{"op":"group","table":"Parts","ops":[{"op":"insert","entity":{"PartitionKey":"p","RowKey":"r"}}]}
{"op":"group","table":"Parts","ops":[{"op":"delete","pk":"p","rk":"r","etag":"*"}]}
{"op":"flush"}
{"op":"compact"}
{"op":"verify"}
{"op":"stats"}
{"op":"tables"}
{"op":"delete_table","table":"parts"}
"#,
    r#"{"op":"create_table","table":"Parts"}
{"op":"upsert_replace","table":"Parts","entity":{"PartitionKey":"p","RowKey":"a","D":1.5}}
{"op":"query","table":"Parts","next":{"pk":"p","rk":"a"},"select":["D"]}
{"op":"checkpoint","path":"copy"}
{"op":"backup","path":"backups"}
{"op":"delete","table":"Parts","pk":"p","rk":"a","etag":"*"}
not a request
"#,
];

/// Returns inputs for the target `directory`: a byte that selects the database, then edits. An edit
/// is a byte (9 × number of the file + kind of edit), a two-byte offset, and the bytes that the
/// edit needs.
fn edits() -> Vec<Vec<u8>> {
    let edit = |file: u8, what: u8, offset: u8, with: &[u8]| {
        [&[file * 9 + what, offset, 0], with].concat()
    };
    let edits = [
        (b'0', vec![]),
        (b'1', vec![]),
        (b'2', vec![]),
        (b'0', edit(0, 0, 20, &[1])),
        (b'1', edit(1, 2, 100, &[])),
        (b'1', edit(2, 3, 200, &[])),
        (b'0', edit(3, 5, 0, &[3, 1, 2, 3])),
        (b'2', [edit(4, 6, 30, &[2, 255, 255]), edit(5, 1, 64, &[0])].concat()),
        (b'0', edit(2, 4, 0, &[])),
        (b'1', edit(1, 7, 64, &[2, 32])),
        (b'0', edit(3, 8, 0, &[4])),
        (b'3', edit(1, 0, 150, &[1])),
        (b'4', edit(2, 1, 130, &[9])),
        (b'5', edit(3, 6, 60, &[2, 0, 1])),
    ];
    edits.map(|(database, edits)| [vec![database], edits].concat()).to_vec()
}

fn wal() -> Vec<Vec<u8>> {
    let manifest = Position { file: FileNumber(3), offset: 4096 };
    let predecessor = Predecessor { number: FileNumber(2), id: FILE, accepted_end: 512 };
    let open = Open { predecessor: Some(predecessor), manifest };
    let close = Close { manifest, last_seq: Seq(300) };
    let encoded_shape = made(|out| encode_shape(out, &shape()));
    let shapes = [ShapeDefinition { number: 0, shape: &encoded_shape }];
    let entries = [
        WalEntry { kind: Kind::Put, key_suffix: b"a", head: b"", row: b"\x01row" },
        WalEntry { kind: Kind::Delete, key_suffix: b"b", head: b"", row: b"" },
    ];
    let range_tombstone = Change::RangeTombstone(Span::new(b"a", Some(b"b")));
    let expiry = Change::Ttl(Seq(1), Span::new(b"a", None));
    let changes =
        [Change::Created(TableId(1)), Change::Dropped(TableId(2)), range_tombstone, expiry];
    let prefix = user_key(TableId(1), "p", "");
    vec![
        made(|out| open.encode(out)),
        made(|out| close.encode(out)),
        made(|out| DurableUpTo { seq_reservation: Seq(400), len: Some(8192) }.encode(out)),
        made(|out| put_group(out, shapes.into_iter(), &prefix, entries.into_iter(), &changes)),
    ]
}

/// Returns a page of zones for two blocks, with a column of each type, and a zone summary.
fn zones() -> Vec<Vec<u8>> {
    let meta = ZoneMeta { seq_min: Seq(7), seq_max: Seq(300), entries: 3, flags: 3 };
    let columns = EdmType::ALL.map(|edm| ZoneColumn {
        name: "P".into(),
        edm,
        prefix: if edm == EdmType::String { b"prefix"[..].into() } else { Box::default() },
        values: vec![ZoneValues { presence: 1, min: 1, max: 1 << 40 }, ZoneValues::NONE],
    });
    let page = made(|out| zones::encode(&[meta; 2], true, &columns, out));
    let set = made(|out| zones::encode(&[meta], false, &[], out));
    vec![page, made(|out| ZoneSummary::encode(&[0, 64], &set, out))]
}
