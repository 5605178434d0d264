//! Gives the benchmarks access to internals. Not part of the public interface; may change at any
//! time.

use std::path::Path;
use std::sync::Arc;

use crate::codec::{HashSeed, hash};
use crate::db::Db;
use crate::format::Kind;
use crate::format::names::{FileId, FileNumber};
use crate::format::record::{
    Position, RECORD_HEADER_BYTES, RecordKind, begin, decode_header, end, seal,
};
use crate::format::row::{decode_row, encode_row};
use crate::format::wal::{Group, WalEntry, put_group};
use crate::fs::{Fs, MemFs};
use crate::memtable;
use crate::model::{EdmType, Entity, Row, Seq, Shape, Shapes, ValueRef, merge_rows};
use crate::options::{Codec, IoMode};
use crate::sst::{BlockCache, Sst, SstOptions, SstShared, SstWriter};

/// Turns the counting of each range's reads and writes on or off, so that a benchmark can measure
/// the cost of counting.
pub fn count_loads(db: &Db, on: bool) {
    db.count_loads(on);
}

/// A memtable, for benches/memtable.rs.
pub struct Memtable(Arc<memtable::Memtable>);

impl Memtable {
    /// Creates an empty memtable for about `bytes_hint` bytes.
    pub fn new(bytes_hint: usize) -> Self {
        Self(Arc::new(memtable::Memtable::new(1, bytes_hint, 0)))
    }

    /// Hashes `key`, and inserts the row.
    pub fn insert(&self, key: &[u8], seq: u64, row: &[u8]) {
        self.0.insert(hash(HashSeed(1), key), key, Seq(seq), Kind::Put, row);
    }

    /// Returns the length of the newest row of `key`.
    pub fn get(&self, key: &[u8]) -> Option<usize> {
        let entry = self.0.get(hash(HashSeed(1), key), key, Seq::MAX)?;
        Some(entry.row.len())
    }

    /// Reads up to `len` entries from `key` on. Returns the total length of their keys and rows.
    pub fn scan(&self, key: &[u8], len: usize) -> usize {
        let (mut iter, mut bytes) = (self.0.iter(), 0);
        iter.seek(key);
        for _ in 0..len {
            if !iter.valid() {
                break;
            }
            let entry = iter.entry();
            bytes += entry.key.len() + entry.row.len();
            iter.next();
        }
        bytes
    }

    /// Runs one background step of sorting the memtable. Returns whether more steps are needed.
    pub fn sort_step(&self, budget: usize) -> bool {
        self.0.sort_step(budget)
    }

    /// Returns the memory that the memtable occupies, in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// How a table file is stored and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SstShape {
    /// Uncompressed and memory-mapped; blocks are used in place.
    Mapped,
    /// Compressed and memory-mapped; decompressed blocks are not cached.
    MappedZstd,
    /// Uncompressed and read through a cache that has room for the whole file.
    Cached,
}

/// A table file in memory, for benches/sst.rs.
pub struct SstFile(Arc<Sst>);

const SEED: HashSeed = HashSeed(1);

impl SstFile {
    /// Creates a file with one row of `row_bytes` bytes per key. The keys must ascend.
    pub fn build(shape: SstShape, keys: &[Vec<u8>], row_bytes: usize) -> Self {
        let fs = MemFs::new();
        let codec = if shape == SstShape::MappedZstd { Codec::Zstd } else { Codec::None };
        let options = SstOptions { block_bytes: 16 << 10, codec, seed: SEED };
        let (number, id, dir) = (FileNumber(1), FileId(1), Path::new(""));
        let writer = SstWriter::create(Arc::new(fs.clone()), dir, number, id, options);
        let mut writer = writer.expect("memory");
        let row = bench_row(row_bytes);
        for (key, i) in keys.iter().zip(0..) {
            // Each Seq is a little greater than the previous one, as after a bulk load.
            let seq = Seq(132_000_000_000_000_000 + i * 70);
            writer.add(key, seq, Kind::Put, Some(&row.as_ref())).expect("memory");
        }
        let meta = writer.finish().expect("memory");
        let (mode, cache_bytes) = match shape {
            SstShape::Cached => (IoMode::Pread, 1 << 30),
            _ => (IoMode::Mmap, 0),
        };
        let cache = Arc::new(BlockCache::new(cache_bytes));
        let shared = SstShared { cache, shapes: Arc::new(Shapes::new(1 << 20)), mode, seed: SEED };
        Self(Arc::new(Sst::open(&fs as &dyn Fs, dir, &meta, &shared).expect("just written")))
    }

    /// Hashes and looks up `key`. Returns the length of the row.
    pub fn get(&self, key: &[u8]) -> Option<usize> {
        let hit = self.0.get(hash(SEED, key), key, Seq::MAX).expect("sound")?;
        Some(hit.row().expect("sound").body.len())
    }

    /// Reads every entry. Returns the total length of keys and rows.
    pub fn scan(&self) -> usize {
        let (mut iter, mut bytes) = (self.0.iter(true), 0);
        iter.next().expect("sound");
        while iter.valid() {
            bytes += iter.key().len() + iter.row_bytes().len();
            iter.next().expect("sound");
        }
        bytes
    }

    /// Seeks to each key. Returns the total length of the keys found.
    pub fn seeks<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> usize {
        let (mut iter, mut bytes) = (self.0.iter(true), 0);
        for key in keys {
            iter.seek(key).expect("sound");
            bytes += if iter.valid() { iter.key().len() } else { 0 };
        }
        bytes
    }

    /// Returns the length of the file.
    pub fn bytes(&self) -> u64 {
        self.0.meta().bytes
    }
}

/// The log record of one commit, for benches/structures.rs and benches/instructions.rs.
pub struct LogRecord {
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    buffer: Vec<u8>,
}

impl LogRecord {
    const ID: FileId = FileId(1);
    const PLACE: Position = Position { file: FileNumber(7), offset: 4_096 };

    /// Creates the record of a commit with `rows` rows of `row_bytes` bytes in one partition, and
    /// encodes it once.
    pub fn new(rows: usize, row_bytes: usize) -> Self {
        let framed = framed(&bench_row(row_bytes), Some(0));
        let rows = (0..rows).map(|i| (format!("{i:012}").into_bytes(), framed.clone())).collect();
        let mut record = Self { rows, buffer: Vec::new() };
        record.encode();
        record
    }

    /// Encodes the record with its checksums; returns its length.
    pub fn encode(&mut self) -> usize {
        self.buffer.clear();
        let start = begin(&mut self.buffer, RecordKind::Group, Seq(132_000_000_000_000_000));
        let entries = self.rows.iter().map(|(key_suffix, row)| {
            let (head, row) = row.split_at(1);
            WalEntry { kind: Kind::Put, key_suffix, head, row }
        });
        put_group(&mut self.buffer, std::iter::empty(), b"\0\0\0\x01device-1\0", entries, &[]);
        end(&mut self.buffer, start).expect("short enough");
        seal(&mut self.buffer, Self::PLACE, Self::ID, Self::PLACE);
        self.buffer.len()
    }

    /// Verifies and decodes the encoded record. Returns the total length of keys and rows.
    pub fn decode(&self) -> usize {
        let (header, stored) =
            self.buffer.split_first_chunk::<RECORD_HEADER_BYTES>().expect("a record");
        let header = decode_header(header, Self::PLACE, Self::ID).expect("sound");
        let payload = header.payload(stored).expect("sound");
        let group = Group::decode(payload).expect("sound");
        group.entries().map(|entry| entry.key_suffix.len() + entry.row.len()).sum()
    }
}

/// The conversion of an entity to a stored row and back, for benches/structures.rs.
pub struct RowPath {
    shapes: Shapes,
    shape: Arc<Shape>,
    entity: Entity,
    patch: Row,
    bytes: Vec<u8>,
}

impl RowPath {
    /// Prepares `entity` and a patch for it: [`merge`](Self::merge) merges the properties of
    /// `patch` into the entity.
    pub fn new(entity: Entity, patch: &Entity) -> Self {
        let shapes = Shapes::new(1 << 20);
        let row = entity.to_row(&shapes).expect("a valid entity");
        let patch = patch.to_row(&shapes).expect("a valid entity");
        let shape = Arc::clone(&row.shape);
        let bytes = framed(&row, Some(0));
        Self { shapes, shape, entity, patch, bytes }
    }

    /// Looks up the shape, checks limits, and encodes the row. Returns the length of the row.
    pub fn encode(&self) -> usize {
        let row = self.entity.to_row(&self.shapes).expect("a valid entity");
        let number = self.shapes.number(&row.shape).map(|id| id.0);
        framed(&row, number).len()
    }

    /// Looks up the entity's shape, which is already known, and returns its number.
    pub fn number(&self) -> Option<u32> {
        self.shapes.number(&self.shape).map(|id| id.0)
    }

    /// Decodes the row's head and looks up a property by name; returns whether the row has it.
    pub fn find(&self, name: &str) -> bool {
        let row = decode_row(&self.bytes, |_| Some(&self.shape)).expect("sound");
        row.find(name).expect("sound").is_some()
    }

    /// Checks every value for damage, as the engine does before it returns a row. Returns the
    /// length of the body.
    pub fn check(&self) -> usize {
        let row = decode_row(&self.bytes, |_| Some(&self.shape)).expect("sound");
        row.check().expect("sound");
        row.body.len()
    }

    /// Merges the patch into the entity; returns the length of the new body.
    pub fn merge(&self) -> usize {
        let row = decode_row(&self.bytes, |_| Some(&self.shape)).expect("sound");
        merge_rows(&row, &self.patch.as_ref(), false).expect("sound").body.len()
    }
}

fn bench_row(bytes: usize) -> Row {
    let shape =
        Shape::new(vec![("Count".into(), EdmType::Int64), ("Text".into(), EdmType::String)]);
    let text = "x".repeat(bytes.saturating_sub(10));
    let mut body = Vec::new();
    shape.encode_body([ValueRef::Int64(7), ValueRef::String(&text)].into_iter(), &mut body);
    Row { shape: Arc::new(shape), body }
}

fn framed(row: &Row, number: Option<u32>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(row.body.len() + 8);
    encode_row(&mut bytes, number, &row.as_ref());
    bytes
}
