//! Tests the hints about future reads of a table file that the operating system receives, for
//! mapped files and for files that are read.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::codec::hash;
use crate::format::Kind;
use crate::format::file_meta::FileMeta;
use crate::format::names::{FileId, FileNumber};
use crate::fs::{Advice, FaultFs, FileRead, Fs, Map, MemFs, Pages};
use crate::model::{EdmType, Row, Seq, Shape, ValueRef};
use crate::sync::Mutex;

const SEED: HashSeed = HashSeed(3);
const ROWS: u64 = 20_000;

#[derive(Debug, Default)]
struct Told(Mutex<Vec<(Advice, Range<usize>)>>);

impl Pages for Told {
    fn advise(&self, advice: Advice, range: Range<usize>) {
        self.0.lock().push((advice, range));
    }
}

/// Wraps a file, and records the hints ([`Advice`]) that readers give to the operating system.
#[derive(Debug)]
struct ToldFile(Arc<dyn FileRead>, Arc<Told>);

impl FileRead for ToldFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.0.read_at(offset, buffer)
    }

    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }

    fn map(&self) -> std::io::Result<Map> {
        self.0.map()
    }

    fn advise(&self, advice: Advice, range: Range<u64>) {
        self.1.advise(advice, range.start as usize..range.end as usize);
    }
}

impl Told {
    /// Returns the ranges requested (`WillNeed`) since the last call, and asserts that there were
    /// no other hints.
    fn asked(&self) -> Vec<Range<usize>> {
        let told = std::mem::take(&mut *self.0.lock());
        assert!(told.iter().all(|(advice, _)| *advice == Advice::WillNeed));
        told.into_iter().map(|(_, range)| range).collect()
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

/// Writes a file of about 4 MB in blocks of 16 KiB.
fn write(fs: Arc<dyn Fs>, dir: &Path) -> FileMeta {
    let shape = Arc::new(Shape::new(vec![("Text".into(), EdmType::String)]));
    let mut body = Vec::new();
    shape.encode_body([ValueRef::String(&"x".repeat(200))].into_iter(), &mut body);
    let row = Row { shape, body };
    let options = SstOptions { block_bytes: 16 << 10, codec: Codec::None, seed: SEED };
    let mut writer = SstWriter::create(fs, dir, FileNumber(7), FileId(8), options).unwrap();
    for number in 0..ROWS {
        writer.add(&key(number), Seq(number + 1), Kind::Put, Some(&row.as_ref())).unwrap();
    }
    writer.finish().unwrap()
}

fn open(fs: &dyn Fs, dir: &Path, meta: &FileMeta, mode: IoMode) -> Sst {
    let cache = Arc::new(BlockCache::new(1 << 20));
    let shapes = Arc::new(crate::model::Shapes::new(1 << 20));
    Sst::open(fs, dir, meta, &SstShared { cache, shapes, mode, seed: SEED }).unwrap()
}

fn watched() -> (Arc<Sst>, Arc<Told>) {
    watched_as(IoMode::Mmap)
}

fn watched_as(mode: IoMode) -> (Arc<Sst>, Arc<Told>) {
    let (fs, dir) = (Arc::new(MemFs::new()), Path::new("db"));
    fs.create_dir_all(dir).unwrap();
    let meta = write(fs.clone(), dir);
    let mut sst = open(&*fs, dir, &meta, mode);
    let told = Arc::new(Told::default());
    let source = &mut sst.source;
    source.map = source.map.take().map(|map| Map::new(map.bytes().clone(), told.clone()));
    source.file = source.file.take().map(|file| Arc::new(ToldFile(file, told.clone())) as _);
    (Arc::new(sst), told)
}

fn block(sst: &Sst, number: usize) -> Range<usize> {
    let block = sst.handles.block(number).unwrap();
    block.start as usize..block.end as usize
}

#[test]
fn gets_in_a_file_that_was_handed_over_request_and_check_nothing() {
    let (sst, told) = watched();
    let mut sst = Arc::into_inner(sst).expect("no other reader");
    let all = 0..sst.meta.bytes as usize;
    sst.hand_over(true);
    let populated = [(Advice::WillNeed, all.clone()), (Advice::Populate, all)];
    assert_eq!(std::mem::take(&mut *told.0.lock()), populated);
    let found = (0..ROWS).filter(|number| {
        let key = key(*number);
        sst.get(hash(SEED, &key), &key, Seq::MAX).unwrap().is_some()
    });
    assert_eq!(found.count() as u64, ROWS);
    assert!(told.asked().is_empty(), "each block that is checked is requested first");
}

#[test]
fn a_get_requests_an_unchecked_block_once() {
    let (sst, told) = watched();
    let get = |number| sst.get(hash(SEED, &key(number)), &key(number), Seq::MAX).unwrap().is_some();
    assert!(get(10_000));
    let number = sst.block_of(&key(10_000), true).unwrap();
    told.asked();
    assert!(get(0));
    assert_eq!(told.asked(), [block(&sst, 0)]);
    for _ in 0..3 {
        assert!(get(10_000) && get(0) && get(1) && !get(ROWS + 5));
    }
    assert!(told.asked().is_empty(), "block {number} and the first were checked");
}

#[test]
fn a_get_from_an_unmapped_file_requests_no_pages() {
    let (sst, told) = watched_as(IoMode::Pread);
    let get = |number| sst.get(hash(SEED, &key(number)), &key(number), Seq::MAX).unwrap().is_some();
    assert!(get(10_000) && get(0) && !get(ROWS + 5));
    assert!(told.asked().is_empty(), "pread needs no advice for a block");
}

#[test]
fn a_file_read_by_pread_gets_random_advice_once() {
    let (memory, dir) = (Arc::new(MemFs::new()), Path::new("db"));
    memory.create_dir_all(dir).unwrap();
    let meta = write(memory.clone(), dir);
    let fs = FaultFs::new(memory);
    drop(open(&fs, dir, &meta, IoMode::Pread));
    assert_eq!((fs.advised(Advice::Random), fs.advised(Advice::WillNeed)), (1, 0));
}

#[test]
fn a_short_range_requests_its_pages_once() {
    let (sst, told) = watched();
    for _ in 0..2 {
        let mut iter = sst.iter(true);
        iter.seek(&key(7_000)).unwrap();
        told.asked();
        iter.seek(&key(12_000)).unwrap();
        (0..99).for_each(|_| iter.next().unwrap());
        assert_eq!(iter.key(), key(12_099));
        let asked = told.asked();
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert!((32 << 10..64 << 10).contains(&asked[0].len()), "{asked:?}");
    }
}

/// A scan must request every byte of the rows once, before it is read, and in few calls.
#[test]
fn scans_request_all_rows_in_growing_windows() {
    for (fill_cache, mode) in
        [(true, IoMode::Mmap), (false, IoMode::Mmap), (true, IoMode::Pread), (false, IoMode::Pread)]
    {
        let (sst, told) = watched_as(mode);
        let mut iter = sst.iter(fill_cache);
        iter.next().unwrap();
        let mut asked = told.asked();
        while iter.valid() {
            asked.extend(told.asked());
            let end = asked.last().map_or(0, |range| range.end);
            assert!(block(&sst, iter.block_number()).end <= end);
            iter.next().unwrap();
        }
        check_tiling(&sst, asked.iter(), if fill_cache { 8 } else { 6 });
        let first = if fill_cache { 48 << 10 } else { 1 << 20 };
        assert_eq!(asked[0].len(), first);
    }
}

#[test]
fn reverse_scans_request_pages_downwards() {
    let (sst, told) = watched();
    let mut iter = sst.iter(true);
    iter.seek_to_last().unwrap();
    let mut asked = told.asked();
    while iter.valid() {
        asked.extend(told.asked());
        let start = asked.last().map_or(usize::MAX, |range| range.start);
        assert!(block(&sst, iter.block_number()).start >= start);
        iter.prev().unwrap();
    }
    check_tiling(&sst, asked.iter().rev(), 9);
}

#[track_caller]
fn check_tiling<'a>(sst: &Sst, asked: impl Iterator<Item = &'a Range<usize>>, calls_max: usize) {
    let (mut end, mut calls) = (sst.handles.rows().start as usize, 0);
    for range in asked {
        assert_eq!(range.start, end);
        (end, calls) = (range.end, calls + 1);
    }
    assert_eq!(end, sst.handles.rows().end as usize);
    assert!(calls <= calls_max, "{calls} calls");
}

#[test]
fn verification_requests_the_pages_that_it_reads() {
    let (sst, told) = watched();
    sst.verify(&mut |_| {}).unwrap();
    let bytes: usize = told.asked().iter().map(|range| range.len()).sum();
    // Verification reads the rows twice: as a section and then block by block.
    assert!(bytes as u64 >= 2 * (sst.handles.rows().end - sst.handles.rows().start), "{bytes}");
}

/// Reads the kernel's report about a mapping, in which `rr` means that random reads are expected.
#[cfg(target_os = "linux")]
#[test]
fn a_mapped_file_gets_random_advice() {
    let dir = tempfile::tempdir().unwrap();
    let fs: Arc<dyn Fs> = Arc::new(crate::fs::DiskFs::new());
    let meta = write(fs.clone(), dir.path());
    let sst = open(&*fs, dir.path(), &meta, IoMode::Mmap);
    let name = sst.source.path.to_str().unwrap();
    let path = Path::new("/proc/self/smaps");
    let mut bytes = Vec::new();
    let maps = fs.open_read(path).unwrap();
    let mut byte = [0];
    while maps.read_at(bytes.len() as u64, &mut byte).is_ok() {
        bytes.push(byte[0]);
    }
    let maps = String::from_utf8_lossy(&bytes);
    let flags = maps
        .split(name)
        .nth(1)
        .and_then(|rest| rest.lines().find_map(|line| line.strip_prefix("VmFlags:")));
    let flags = flags.expect("the file is mapped");
    assert!(flags.split(' ').any(|flag| flag == "rr"), "{flags}");
}
