//! Tests whole table files: writes them, reads them back in every way, and damages every part.

mod salvage_reader;

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::codec::hash;
use crate::error::{Error, ErrorKind, Result};
use crate::format::Kind;
use crate::format::block::{BlockKind, BlockPlace, HEADER_BYTES, Packing, Sealer};
use crate::format::file_meta::FileMeta;
use crate::format::hash_index::{choose_form, encode_pages};
use crate::format::names::{FileId, FileNumber};
use crate::format::span::Span;
use crate::format::sst::section;
use crate::fs::{Fault, FaultFs, FaultKind, Fs, MemFs, OpKind};
use crate::model::{EdmType, Row, Seq, Shape, ShapeRef, ValueRef};
use crate::rng::Rng;

const SEED: HashSeed = HashSeed(99);
const NUMBER: FileNumber = FileNumber(7);
const ID: FileId = FileId(0x1122_3344_5566_7788);
const FILE: &str = "db/000007.sst";

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    key: Vec<u8>,
    seq: Seq,
    row: Option<Row>,
}

/// A table file and the entries written to it.
struct Written {
    fs: MemFs,
    meta: FileMeta,
    entries: Vec<Entry>,
}

fn options(block_bytes: usize, codec: Codec) -> SstOptions {
    SstOptions { block_bytes, codec, seed: SEED }
}

fn row(number: i64, text: &str) -> Row {
    let names = vec![("Number".into(), EdmType::Int64), ("Text".into(), EdmType::String)];
    let shape = Arc::new(Shape::new(names));
    let mut body = Vec::new();
    shape.encode_body([ValueRef::Int64(number), ValueRef::String(text)].into_iter(), &mut body);
    Row { shape, body }
}

/// Returns the key in table 1 with this PartitionKey and an empty RowKey.
fn user_key(text: &str) -> Vec<u8> {
    [&[0, 0, 0, 1], text.as_bytes(), &[0]].concat()
}

fn put(key: &str, seq: u64, text: &str) -> Entry {
    Entry { key: user_key(key), seq: Seq(seq), row: Some(row(seq as i64, text)) }
}

fn delete(key: &str, seq: u64) -> Entry {
    Entry { key: user_key(key), seq: Seq(seq), row: None }
}

fn memory() -> MemFs {
    let fs = MemFs::new();
    fs.create_dir_all(Path::new("db")).unwrap();
    fs
}

fn write_to(fs: Arc<dyn Fs>, entries: &[Entry], options: SstOptions) -> Result<FileMeta> {
    let mut writer = SstWriter::create(fs, Path::new("db"), NUMBER, ID, options)?;
    for entry in entries {
        let kind = if entry.row.is_some() { Kind::Put } else { Kind::Delete };
        let row = entry.row.as_ref().map(Row::as_ref);
        writer.add(&entry.key, entry.seq, kind, row.as_ref())?;
    }
    writer.finish()
}

fn write(entries: Vec<Entry>, options: SstOptions) -> Written {
    let fs = memory();
    let meta = write_to(Arc::new(fs.clone()), &entries, options).unwrap();
    assert_eq!(fs.len(FILE).unwrap(), meta.bytes);
    Written { fs, meta, entries }
}

fn shared(mode: IoMode, cache_bytes: usize) -> SstShared {
    let cache = Arc::new(BlockCache::new(cache_bytes));
    SstShared { cache, shapes: Arc::new(Shapes::new(1 << 20)), mode, seed: SEED }
}

/// Returns random keys with shared prefixes, with one to a few versions each and some tombstones.
fn random_entries(rng: &mut Rng, count: usize) -> Vec<Entry> {
    let mut entries: Vec<Entry> = (0..count)
        .map(|_| {
            let key = format!("t/p{:02}/{:x}", rng.below(20), rng.below(count as u64));
            let seq = 1000 + rng.below(1 << 40);
            let text = "x".repeat(rng.below(60) as usize);
            if rng.chance(1, 8) { delete(&key, seq) } else { put(&key, seq, &text) }
        })
        .collect();
    entries.sort_by(|a, b| a.key.cmp(&b.key).then(b.seq.cmp(&a.seq)));
    entries.dedup_by(|a, b| a.key == b.key && a.seq == b.seq);
    entries
}

impl Written {
    fn open(&self, shared: &SstShared) -> Result<Arc<Sst>> {
        Sst::open(&self.fs, Path::new("db"), &self.meta, shared).map(Arc::new)
    }

    fn expected(&self, key: &[u8], at: Seq) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key && entry.seq <= at)
    }

    /// Reads all entries in every way. Panics if a result is wrong; returns the error of a failed
    /// read.
    fn read_all(&self, sst: &Arc<Sst>) -> Result<()> {
        for entry in &self.entries {
            for at in [entry.seq, Seq(entry.seq.0 - 1), Seq::MAX] {
                let found = get(sst, &entry.key, at)?;
                assert_eq!(found.as_ref(), self.expected(&entry.key, at));
            }
        }
        assert_eq!(scan(sst, true)?, self.entries);
        Ok(())
    }
}

fn get(sst: &Sst, key: &[u8], at: Seq) -> Result<Option<Entry>> {
    let Some(hit) = sst.get(hash(SEED, key), key, at)? else { return Ok(None) };
    let row = if hit.kind == Kind::Put { Some(hit.row()?.to_row()) } else { None };
    Ok(Some(Entry { key: key.to_vec(), seq: hit.seq, row }))
}

fn current(iter: &SstIter) -> Result<Entry> {
    let row = if iter.kind() == Kind::Put { Some(iter.row()?.to_row()) } else { None };
    Ok(Entry { key: iter.key().to_vec(), seq: iter.seq(), row })
}

fn scan(sst: &Arc<Sst>, fill_cache: bool) -> Result<Vec<Entry>> {
    let mut iter = sst.iter(fill_cache);
    let mut entries = Vec::new();
    iter.next()?;
    while iter.valid() {
        entries.push(current(&iter)?);
        iter.next()?;
    }
    iter.next()?;
    assert!(!iter.valid(), "the iterator stays at its end");
    Ok(entries)
}

#[track_caller]
fn check_sound(sst: &Sst) {
    let facts = sst.verify(&mut |_| {}).unwrap();
    assert_eq!(facts.problems, []);
    assert_eq!(facts.stats.entries, sst.meta().entries);
}

#[track_caller]
fn check_corrupt(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Corruption, "{}", error.chain());
    assert_eq!(error.corruption().unwrap().file, Path::new(FILE));
}

/// Writes a file and checks every way of reading, including look-ups of keys between the entries.
#[track_caller]
fn check_round_trip(entries: Vec<Entry>, options: SstOptions) {
    let written = write(entries, options);
    for mode in [IoMode::Mmap, IoMode::Pread] {
        for cache_bytes in [0, 3000, 4 << 20] {
            let sst = written.open(&shared(mode, cache_bytes)).unwrap();
            written.read_all(&sst).unwrap();
            check_seeks(&written, &sst);
            check_sound(&sst);
        }
    }
}

fn check_seeks(written: &Written, sst: &Arc<Sst>) {
    let mut iter = sst.iter(true);
    let step = written.entries.len() / 50 + 1;
    for entry in written.entries.iter().step_by(step) {
        let longer = [&entry.key[..], &[0]].concat();
        let shorter = entry.key.split_last().map_or(vec![], |(_, rest)| rest.to_vec());
        for key in [entry.key.clone(), longer, shorter] {
            iter.seek(&key).unwrap();
            let expected = written.entries.iter().find(|entry| entry.key >= key);
            let found = iter.valid().then(|| current(&iter).unwrap());
            assert_eq!(found.as_ref(), expected);
            if written.expected(&key, Seq::MAX).is_none() {
                assert_eq!(get(sst, &key, Seq::MAX).unwrap(), None);
            }
        }
    }
}

#[test]
fn a_file_tells_whether_it_has_a_key_in_a_span() {
    let rng = &mut Rng::from_seed(5);
    let entries = random_entries(rng, 400);
    let written = write(entries.clone(), options(256, Codec::None));
    let bound = |rng: &mut Rng| {
        let mut key = entries[rng.below(entries.len() as u64) as usize].key.clone();
        match rng.below(3) {
            0 => key.push(0),
            1 => key.truncate(key.len() - 1),
            _ => {}
        }
        key
    };
    for mode in [IoMode::Mmap, IoMode::Pread] {
        let sst = written.open(&shared(mode, 1 << 20)).unwrap();
        for _ in 0..2_000 {
            let (a, b) = (bound(rng), bound(rng));
            for span in [Span::new((&a).min(&b), Some((&a).max(&b))), Span::new(&a, None)] {
                let has_key = entries.iter().any(|entry| span.contains(&entry.key));
                assert_eq!(sst.may_hold(&span).unwrap(), has_key, "{span}");
            }
        }
    }
}

#[cfg(feature = "zstd")]
#[test]
fn a_compressed_file_is_not_examined_for_keys_in_a_span() {
    let entries = random_entries(&mut Rng::from_seed(5), 400);
    let written = write(entries, options(256, Codec::Zstd));
    let sst = written.open(&shared(IoMode::Mmap, 1 << 20)).unwrap();
    assert!(sst.may_hold(&Span::new(b"\xff", None)).unwrap());
}

#[test]
fn trap_39_every_written_key_is_found() {
    let mut rng = Rng::from_seed(39);
    let codecs = [
        Codec::None,
        #[cfg(feature = "zstd")]
        Codec::Zstd,
    ];
    for codec in codecs {
        for block_bytes in [1, 256, 4096, 16 << 10] {
            for count in [1, 10, 700] {
                check_round_trip(random_entries(&mut rng, count), options(block_bytes, codec));
            }
        }
    }
}

#[test]
fn unusual_files_round_trip() {
    let check = |entries| check_round_trip(entries, options(256, Codec::None));
    check(vec![put("", 1, "")]);
    check(vec![delete("", 1)]);
    check(vec![put("", 2, "new"), put("", 1, "old"), put("\0", 1, ""), delete("\0\0", 5)]);
    // The older versions of keys `k` and `l` continue in the following blocks.
    let mut versions = vec![put("a", 5, "")];
    versions.extend((1..200).rev().map(|seq| put("k", seq, "some text that takes room")));
    versions.push(put("kk", 3, ""));
    versions.extend((1..50).rev().map(|seq| delete("l", seq)));
    check(versions);
    let long = "k".repeat(3000);
    check((0..40).map(|i| put(&format!("{long}{i:02}"), 9, "")).collect());
}

#[test]
fn rows_larger_than_any_block() {
    let text = "x".repeat(2 << 20);
    for codec in [
        Codec::None,
        #[cfg(feature = "zstd")]
        Codec::Zstd,
    ] {
        let entries =
            vec![put("a", 1, "small"), put("b", 2, &text), put("c", 3, &text), delete("d", 4)];
        check_round_trip(entries, options(16 << 10, codec));
    }
}

#[test]
fn trap_42_keys_of_one_hash_line_are_all_found() {
    // All keys have one of three home lines in the hash index, so their entries overflow into the
    // next lines.
    const LINES: u128 = 63;
    let mut entries = Vec::new();
    for i in 0.. {
        let key = format!("{i:08}");
        if (u128::from(hash(SEED, &user_key(&key))) * LINES) >> 64 < 3 {
            entries.push(put(&key, 1, ""));
        }
        if entries.len() == 472 {
            break;
        }
    }
    check_round_trip(entries, options(1024, Codec::None));
}

/// Tests a file whose hash index has no locations. Some pairs of keys have the same line and tag;
/// each key has several versions, and there are other keys between them.
#[cfg(feature = "zstd")]
#[test]
fn keys_with_equal_tags_are_distinguished_by_cached_locations() {
    let mut first = std::collections::HashMap::new();
    let mut entries = Vec::new();
    for i in 0..60_000 {
        let key = format!("{i:08}");
        let hash = hash(SEED, &user_key(&key));
        let line = (u128::from(hash) * 63) >> 64;
        if let Some(other) = first.insert((line, hash & 0xffff), key.clone()) {
            let versions = |key: &str| [9, 5, 2].map(|seq| put(key, seq, "text text text"));
            entries.extend(versions(&other).into_iter().chain(versions(&key)));
        }
    }
    entries.sort_by(|a, b| a.key.cmp(&b.key).then(b.seq.cmp(&a.seq)));
    entries.dedup();
    assert!((300..4_000).contains(&entries.len()), "{}", entries.len());
    let written = write(entries, options(1000, Codec::Zstd));
    assert_eq!(written.meta.section(section::HASH_TAGS).unwrap().len, 4096, "one page");
    for mode in [IoMode::Mmap, IoMode::Pread] {
        let shared = shared(mode, 4 << 20);
        let sst = written.open(&shared).unwrap();
        let before = shared.cache.bytes();
        for _ in 0..3 {
            written.read_all(&sst).unwrap();
        }
        assert!(shared.cache.bytes() > before);
        // A key has no cached location if another key with an equal tag has an entry in an earlier
        // line.
        let (known, keys) = (sst.known.count(), written.entries.len() / 3);
        assert!(known * 10 > keys * 9 && known <= keys, "{known} of {keys}");
    }
}

#[test]
fn rows_of_many_shapes() {
    let entries: Vec<Entry> = (0..1500)
        .map(|i| {
            let shape = Arc::new(Shape::new(vec![(format!("P{i}").into(), EdmType::Int32)]));
            let row = Some(Row { shape, body: vec![1, 0, 0, 0] });
            Entry { key: user_key(&format!("{i:05}")), seq: Seq(5), row }
        })
        .collect();
    let written = write(entries, options(4096, Codec::None));
    let sst = written.open(&shared(IoMode::Mmap, 0)).unwrap();
    written.read_all(&sst).unwrap();
    check_sound(&sst);
    let mut iter = sst.iter(true);
    iter.seek(&user_key("01400")).unwrap();
    assert!(matches!(iter.row().unwrap().shape, ShapeRef::Own(_)));
}

#[test]
fn the_metadata_describes_the_file() {
    let entries = vec![put("a", 30, "x"), put("a", 20, ""), delete("b", 25), put("c", 40, "")];
    let written = write(entries, options(4096, Codec::None));
    let meta = &written.meta;
    assert_eq!((meta.entries, meta.tombstones), (4, 1));
    assert_eq!((meta.seq_min, meta.seq_max), (Seq(20), Seq(40)));
    assert_eq!((&*meta.key_min, &*meta.key_max), (&*user_key("a"), &*user_key("c")));
    let mut encoded = Vec::new();
    meta.encode(&mut encoded);
    assert_eq!(FileMeta::decode(&encoded).as_ref(), Ok(meta));
}

/// Returns a small file with a few entries per block, versions across blocks, and a tombstone.
fn small() -> Written {
    small_in(Codec::None)
}

fn small_in(codec: Codec) -> Written {
    let mut entries: Vec<Entry> =
        (0..12).map(|i| put(&format!("k{i:02}"), 50 + i, "text")).collect();
    entries.insert(6, delete("k05", 3));
    entries.insert(6, put("k05", 4, "older"));
    write(entries, options(150, codec))
}

/// Returns the codecs of this build. Each of them uses a different layout of the hash index.
fn codecs() -> Vec<Codec> {
    if cfg!(feature = "zstd") { vec![Codec::None, Codec::Zstd] } else { vec![Codec::None] }
}

#[test]
fn trap_23_trap_24_every_flipped_byte_is_noticed_or_harmless() {
    let cases = codecs().into_iter().map(|codec| (codec, IoMode::Mmap));
    for (codec, mode) in cases.chain([(Codec::None, IoMode::Pread)]) {
        let written = small_in(codec);
        for at in 0..written.meta.bytes {
            let mask = 1 << (at % 8);
            written.fs.flip(FILE, at, mask).unwrap();
            match written.open(&shared(mode, 1 << 20)) {
                Err(error) => check_corrupt(&error),
                Ok(sst) => {
                    let read = written.read_all(&sst);
                    read.unwrap_or_else(|error| check_corrupt(&error));
                    let facts = sst.verify(&mut |_| {}).unwrap();
                    assert!(!facts.problems.is_empty(), "byte {at} is not verified");
                }
            }
            written.fs.flip(FILE, at, mask).unwrap();
        }
        check_sound(&written.open(&shared(mode, 0)).unwrap());
    }
}

/// The first reads of a file that was handed over check no block. Everything that would spread
/// damage checks it again.
#[test]
fn trap_23_verification_and_merges_check_files_that_were_handed_over() {
    let entries = (0..90).map(|i| put(&format!("k{i:02}"), 50 + i, "xxxxxxxx")).collect();
    let written = write(entries, options(1000, Codec::None));
    let bytes = written.fs.read(FILE).unwrap();
    let at = bytes.windows(8).position(|part| part == b"xxxxxxxx").expect("a text") as u64;
    written.fs.flip(FILE, at, 1).unwrap();
    let open = |mode| Sst::open(&written.fs, Path::new("db"), &written.meta, &shared(mode, 0));
    for mode in [IoMode::Mmap, IoMode::Pread] {
        let (opened, mut sst) = (Arc::new(open(mode).unwrap()), open(mode).unwrap());
        check_corrupt(&scan(&opened, true).unwrap_err());
        sst.hand_over(true);
        let sst = Arc::new(sst);
        assert_eq!(scan(&sst, true).is_ok(), mode == IoMode::Mmap, "{mode:?}");
        check_corrupt(&scan(&sst, false).unwrap_err());
        assert!(!sst.verify(&mut |_| {}).unwrap().problems.is_empty());
    }
}

#[cfg(feature = "zstd")]
#[test]
fn trap_23_flips_in_compressed_blocks_are_noticed() {
    let entries = (0..60).map(|i| put(&format!("k{i:02}"), 50 + i, "text text text")).collect();
    let written = write(entries, options(1000, Codec::Zstd));
    let rows = written.meta.section(section::ROWS).unwrap();
    assert!(rows.len < 1500, "compressed");
    for at in rows.offset..rows.offset + rows.len {
        written.fs.flip(FILE, at, 0x40).unwrap();
        let sst = written.open(&shared(IoMode::Pread, 0)).unwrap();
        check_corrupt(&written.read_all(&sst).unwrap_err());
        written.fs.flip(FILE, at, 0x40).unwrap();
    }
}

#[test]
fn trap_41_a_file_of_another_length_is_refused() {
    let written = small();
    let whole = written.fs.read(FILE).unwrap();
    for len in (0..whole.len()).rev() {
        written.fs.truncate(FILE, len as u64).unwrap();
        for mode in [IoMode::Mmap, IoMode::Pread] {
            check_corrupt(&written.open(&shared(mode, 0)).unwrap_err());
        }
    }
    let longer = [&whole[..], &[0]].concat();
    written.fs.write(FILE, &longer).unwrap();
    check_corrupt(&written.open(&shared(IoMode::Mmap, 0)).unwrap_err());
    written.fs.remove(Path::new(FILE)).unwrap();
    check_corrupt(&written.open(&shared(IoMode::Mmap, 0)).unwrap_err());
}

#[test]
fn trap_41_a_file_cut_short_while_open_is_an_error() {
    let written = small();
    for len in (0..written.meta.bytes).rev().step_by(97) {
        let sst = written.open(&shared(IoMode::Pread, 0));
        let Ok(sst) = sst else { break };
        let whole = written.fs.read(FILE).unwrap();
        written.fs.truncate(FILE, len).unwrap();
        written.read_all(&sst).unwrap_or_else(|error| check_corrupt(&error));
        assert!(!sst.verify(&mut |_| {}).unwrap().problems.is_empty());
        written.fs.write(FILE, &whole).unwrap();
    }
}

#[test]
fn another_file_under_the_same_number_is_refused() {
    let written = small();
    let other = FileMeta { id: FileId(5), ..written.meta.clone() };
    let open = |meta: &FileMeta| {
        Sst::open(&written.fs, Path::new("db"), meta, &shared(IoMode::Mmap, 0)).unwrap_err()
    };
    check_corrupt(&open(&other));
    let mut other = written.meta.clone();
    other.sections[1].checksum ^= 1;
    check_corrupt(&open(&other));
    other = FileMeta { unknown: [81, 0].into(), ..written.meta.clone() };
    let error = open(&other);
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("field 40"), "{error}");
}

#[test]
fn a_key_that_no_entity_can_have_is_found_by_verification() {
    for (key, problem) in [
        (&b"\0\0\0\x01p"[..], "nothing ends the PartitionKey"),
        (b"\0\0\0\x01\xff\0r", "a key is not text"),
        (b"\0\0\0\x01p\0\xff", "a key is not text"),
    ] {
        let written =
            write(vec![Entry { key: key.into(), ..delete("", 1) }], options(256, Codec::None));
        let problems = written.open(&shared(IoMode::Mmap, 0)).unwrap().verify(&mut |_| {});
        let problems = problems.unwrap().problems;
        assert!(problems[0].to_string().contains(problem), "{problems:?}");
    }
}

#[test]
fn an_entry_that_differs_from_the_statistics_is_found() {
    let written = small();
    let check = |change: fn(&mut FileMeta)| {
        let mut meta = written.meta.clone();
        change(&mut meta);
        let sst = Sst::open(&written.fs, Path::new("db"), &meta, &shared(IoMode::Mmap, 0)).unwrap();
        check_corrupt(&sst.verify_entry().unwrap_err());
        assert_eq!(sst.verify(&mut |_| {}).unwrap().problems.len(), 1);
    };
    written.open(&shared(IoMode::Mmap, 0)).unwrap().verify_entry().unwrap();
    check(|meta| meta.entries += 1);
    check(|meta| meta.tombstones += 1);
    check(|meta| meta.raw_bytes += 1);
    check(|meta| meta.seq_min.0 -= 1);
    check(|meta| meta.seq_max.0 += 1);
    check(|meta| meta.key_min = b"\0\0\0\x01\0".as_slice().into());
    check(|meta| meta.key_max = b"\0\0\0\x01z\0".as_slice().into());
}

#[test]
fn trap_25_an_iterator_repeats_its_error() {
    let written = small();
    let rows = written.meta.section(section::ROWS).unwrap();
    written.fs.flip(FILE, rows.offset + rows.len / 2, 1).unwrap();
    for mode in [IoMode::Mmap, IoMode::Pread] {
        let sst = written.open(&shared(mode, 0)).unwrap();
        let mut iter = sst.iter(true);
        let mut seen = 0;
        let error = loop {
            match iter.next() {
                Ok(()) => {
                    assert!(iter.valid(), "the end was reported");
                    assert_eq!(current(&iter).unwrap(), written.entries[seen]);
                    seen += 1;
                }
                Err(error) => break error,
            }
        };
        check_corrupt(&error);
        for _ in 0..3 {
            assert!(!iter.valid());
            assert_eq!(iter.next().unwrap_err().to_string(), error.to_string());
            assert_eq!(iter.seek(b"k00").unwrap_err().to_string(), error.to_string());
        }
    }
}

#[test]
fn trap_25_every_failing_read_surfaces() {
    let written = small();
    let faulty = Arc::new(FaultFs::new(Arc::new(written.fs.clone())));
    for after in 0.. {
        faulty.disarm();
        faulty.arm(Fault::new(FaultKind::Eio).on(OpKind::Read).nth(after));
        let opened = Sst::open(&*faulty, Path::new("db"), &written.meta, &shared(IoMode::Pread, 0));
        let scanned = opened.map(Arc::new).and_then(|sst| scan(&sst, false));
        match scanned {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Io),
            Ok(entries) => {
                assert!(after > 8, "{after}");
                assert_eq!(entries, written.entries);
                return;
            }
        }
    }
}

#[test]
fn trap_23_blocks_with_a_right_checksum_and_wrong_contents_never_panic() {
    let written = small();
    let whole = written.fs.read(FILE).unwrap();
    let rows = written.meta.section(section::ROWS).unwrap();
    let sst = written.open(&shared(IoMode::Mmap, 0)).unwrap();
    let mut rng = Rng::from_seed(23);
    for _ in 0..2000 {
        let mut bytes = whole.clone();
        let number = rng.below(sst.handles.len() as u64) as usize;
        let range = sst.handles.block(number).unwrap();
        let range = range.start as usize..range.end as usize;
        let mut raw = bytes[range.start + HEADER_BYTES..range.end].to_vec();
        for _ in 0..=rng.below(3) {
            let at = rng.below(raw.len() as u64) as usize;
            raw[at] = rng.next_u64() as u8;
        }
        let place = BlockPlace { kind: BlockKind::Rows, file: ID, number: number as u32 };
        let mut sealed = Vec::new();
        Sealer::new(Packing::Plain).unwrap().seal_plain(place, &raw, &mut sealed);
        bytes[range].copy_from_slice(&sealed);
        written.fs.write(FILE, &bytes).unwrap();
        let damaged = written.open(&shared(IoMode::Mmap, 0)).unwrap();
        for entry in &written.entries {
            let _ = get(&damaged, &entry.key, Seq::MAX);
        }
        let _ = scan(&damaged, true);
        let facts = damaged.verify(&mut |_| {}).unwrap();
        assert_eq!(facts.problems.is_empty(), bytes == whole);
    }
    assert!(rows.len > 0);
}

/// In a mapped file, index pages must be used without a look-up in the cache, which would only cost
/// time at every seek.
#[cfg(feature = "zstd")]
#[test]
fn indexes_of_a_mapped_file_are_used_in_place_even_if_its_rows_are_cached() {
    let entries = random_entries(&mut Rng::from_seed(5), 600);
    let written = write(entries, options(2048, Codec::Zstd));
    let shared = shared(IoMode::Mmap, 1 << 20);
    let sst = written.open(&shared).unwrap();
    assert_eq!(scan(&sst, true).unwrap(), written.entries);
    assert!(shared.cache.bytes() > 0, "the file is compressed");
    for page in 0..sst.handles.page_count() as u32 {
        let key = cache::CacheKey { file: NUMBER, area: cache::Area::Sparse, index: page };
        shared.cache.insert(key, &bytes::Bytes::from_static(b"no page"));
    }
    for entry in &written.entries {
        let mut iter = sst.iter(true);
        iter.seek(&entry.key).unwrap();
        assert_eq!(iter.key(), entry.key);
    }
}

#[test]
fn a_wrong_hash_index_is_found_by_verification() {
    #[track_caller]
    fn check(codec: Codec, change: impl Fn(usize, &mut (u64, u32)), expected: &str) {
        let written = small_in(codec);
        let sst = written.open(&shared(IoMode::Mmap, 0)).unwrap();
        let mut entries = Vec::new();
        let mut last = None;
        for block in 0..sst.handles.len() {
            let range = sst.handles.block(block).unwrap();
            let contents = sst.source.block(cache::Area::Rows, block, range, false).unwrap();
            let rows = crate::format::row_block::RowBlock::parse(&contents).unwrap();
            for slot in 0..rows.len() {
                let key = [rows.prefix(), rows.entry(slot).unwrap().suffix].concat();
                if last.as_ref() != Some(&key) {
                    let location = sst.handles.split.pack(block as u32, slot as u32);
                    entries.push((hash(SEED, &key), location));
                    last = Some(key);
                }
            }
        }
        entries.iter_mut().enumerate().for_each(|(i, entry)| change(i, entry));
        let section = reader::hash_section(&sst.source, &written.meta).unwrap();
        let at = section.offset as usize;
        let mut bytes = written.fs.read(FILE).unwrap();
        let entries = entries.into_iter().filter(|entry| *entry != (0, 0));
        let bits = sst.handles.split.location_bits(sst.handles.len());
        let pages = encode_pages(ID, choose_form(codec == Codec::Zstd, bits).0, 12, entries);
        bytes[at..at + pages.len()].copy_from_slice(&pages);
        written.fs.write(FILE, &bytes).unwrap();
        let sst = written.open(&shared(IoMode::Mmap, 0)).unwrap();
        let problems = sst.verify(&mut |_| {}).unwrap().problems;
        let found = problems.iter().any(|problem| problem.to_string().contains(expected));
        assert!(found || expected.is_empty() && problems.is_empty(), "{problems:?}");
        for entry in &written.entries {
            if let Ok(Some(found)) = get(&sst, &entry.key, Seq::MAX) {
                assert!(written.entries.contains(&found));
            }
        }
    }
    // Changes the lowest bit of a hash, and also bit 13, because in the second layout of the index
    // the lowest bits are not part of the tag. Changes locations only in the layout that has them.
    for codec in codecs() {
        check(codec, |_, _| {}, "");
        check(codec, |i, entry| *entry = if i == 3 { (0, 0) } else { *entry }, "hash index");
        check(
            codec,
            |i, entry| entry.0 ^= u64::from(i == 3) << 13 | u64::from(i == 3),
            "hash index",
        );
    }
    check(Codec::None, |i, entry| entry.1 += u32::from(i == 3), "hash index");
    check(Codec::None, |i, entry| entry.1 = if i == 3 { u32::MAX } else { entry.1 }, "hash index");
}

#[test]
fn entries_out_of_order_are_refused() {
    #[track_caller]
    fn check(entries: &[Entry]) {
        let fs = memory();
        let error =
            write_to(Arc::new(fs.clone()), entries, options(4096, Codec::None)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(fs.list(Path::new("db")).unwrap(), [""; 0]);
    }
    check(&[put("b", 1, ""), put("a", 1, "")]);
    check(&[put("a", 1, ""), put("a", 1, "")]);
    check(&[put("a", 1, ""), put("a", 2, "")]);
    check(&[delete("a", Seq::MAX.0 + 1)]);
    check(&[delete(&"k".repeat(70_000), 1)]);
    check(&[]);
}

#[test]
fn a_failed_write_leaves_no_file_and_is_not_retried() {
    let entries = small().entries;
    for kind in [OpKind::Create, OpKind::Write, OpKind::Sync, OpKind::Rename] {
        let fs = memory();
        let faulty = Arc::new(FaultFs::new(Arc::new(fs.clone())));
        faulty.arm(Fault::new(FaultKind::Eio).on(kind));
        let error = write_to(faulty, &entries, options(4096, Codec::None)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(fs.list(Path::new("db")).unwrap(), [""; 0], "{kind:?}");
    }
}

#[test]
fn large_files_are_synced_in_steps() {
    let faulty = Arc::new(FaultFs::new(Arc::new(memory())));
    let text = "x".repeat(30_000);
    let entries: Vec<Entry> = (0..900).map(|i| put(&format!("{i:04}"), 5, &text)).collect();
    write_to(Arc::clone(&faulty) as Arc<dyn Fs>, &entries, options(16 << 10, Codec::None)).unwrap();
    assert_eq!(faulty.count(OpKind::Sync), 27_000_000 / (8 << 20) + 1);
}

#[test]
fn trap_31_a_writer_needs_little_memory_for_much_data() {
    let dir = Path::new("db");
    let options = options(16 << 10, Codec::None);
    let mut writer = SstWriter::create(Arc::new(memory()), dir, NUMBER, ID, options).unwrap();
    let before = writer.memory_bytes();
    let row = row(1, &"x".repeat(1000));
    for i in 0..10_000 {
        let key = format!("partition/{i:08}");
        writer.add(key.as_bytes(), Seq(5), Kind::Put, Some(&row.as_ref())).unwrap();
    }
    assert!(writer.bytes() > 10_000_000);
    let blocks = usize::try_from(writer.bytes()).unwrap() / (16 << 10) + 1;
    // The summands: the keys; per block a separator and the zones of two properties; and the texts
    // of the blocks on the zone page that is not finished.
    let expected = 10_000 * 24 + blocks * (21 + 2 * 17 + 8) + 64 * 2 * 700;
    assert!(writer.memory_bytes() - before < expected);
}

#[test]
fn compaction_reads_around_the_cache() {
    let written = small();
    let shared = shared(IoMode::Pread, 1 << 20);
    let sst = written.open(&shared).unwrap();
    assert_eq!(scan(&sst, false).unwrap(), written.entries);
    assert_eq!(shared.cache.bytes(), 0);
    assert_eq!(scan(&sst, true).unwrap(), written.entries);
    assert!(shared.cache.bytes() > 0);
    shared.cache.remove_file(NUMBER);
    assert_eq!(shared.cache.bytes(), 0);
}

#[test]
fn a_key_outside_the_bounds_is_not_looked_up_in_the_file() {
    let written = small();
    let sst = written.open(&shared(IoMode::Pread, 0)).unwrap();
    written.fs.truncate(FILE, 0).unwrap();
    for key in ["", "a", "k0", "k12", "z"] {
        assert_eq!(get(&sst, &user_key(key), Seq::MAX).unwrap(), None);
    }
    assert!(get(&sst, &user_key("k01"), Seq::MAX).is_err());
    let mut iter = sst.iter(true);
    iter.seek(&user_key("l")).unwrap();
    assert!(!iter.valid());
}

#[cfg(not(feature = "zstd"))]
#[test]
fn compression_without_the_feature_is_refused() {
    let entries = [put("a", 1, "")];
    let error = write_to(Arc::new(memory()), &entries, options(4096, Codec::Zstd)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}
